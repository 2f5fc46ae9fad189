// SPDX-License-Identifier: Apache-2.0
//
// What is measured. Every lane (the guard, the bare loop, plain Python, numpy) sees the same steps
// of these.
#ifndef KVGUARD_BENCH_SCENARIO_H_
#define KVGUARD_BENCH_SCENARIO_H_

#include <cstdint>
#include <vector>

namespace kvguard::bench {

// `count` equal rows of a batch. query > 1: a prefill from position 0, by a new request in every
// step. query == 1: a decode at about `context` tokens, by a request that lives through the whole
// cycle.
struct Rows {
  uint32_t count;
  uint32_t query;
  uint32_t context;
};

struct Scenario {
  const char* name;
  const char* title;
  uint32_t block_size;
  std::vector<Rows> rows;
};

inline const std::vector<Scenario>& Scenarios() {
  static const std::vector<Scenario> scenarios = {
      {"prefill_c1", "C1 prefill 2,048 tokens, block 128", 128, {{1, 2048, 0}}},
      {"mixed_c8",
       "C8 mixed, prefill 1,024 + 7 decodes at 4k, block 16",
       16,
       {{7, 1, 4096}, {1, 1024, 0}}},
      {"decode_c8", "C8 decode at 4k, block 16", 16, {{8, 1, 4096}}},
      {"decode_c256", "C256 decode at 4k, block 16", 16, {{256, 1, 4096}}},
  };
  return scenarios;
}

// Steps between two admissions of the decoding requests; their contexts go from context - kCycle /
// 2 to context + kCycle / 2 and start one token apart, so that rows reach a new block in different
// steps.
inline constexpr uint32_t kCycle = 128;

}  // namespace kvguard::bench

#endif  // KVGUARD_BENCH_SCENARIO_H_
