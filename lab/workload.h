// SPDX-License-Identifier: Apache-2.0
// Who asks for what, when. A workload talks to an engine as its clients do: it submits and aborts.
#ifndef KVGUARD_LAB_WORKLOAD_H_
#define KVGUARD_LAB_WORKLOAD_H_

#include <cstdint>
#include <vector>

#include "lab/engine.h"
#include "lab/random.h"
#include "lab/traces.h"

namespace kvguard::lab {

enum class TraceKind : uint8_t { kNone, kMooncake, kAzure };

struct WorkloadConfig {
  // Arrivals, lengths and sharing of a public trace in place of all that follows; it begins again
  // when it has ended.
  TraceKind trace = TraceKind::kNone;
  int64_t milliseconds_a_step = 25;
  int32_t live = 12;  // requests that are kept waiting or running
  int32_t min_prompt = 8;
  int32_t max_prompt = 200;
  int32_t min_output = 1;
  int32_t max_output = 60;
  // Prompts begin with one of so many common prefixes, of `max_prefix` tokens at most; 0: none.
  int32_t num_prefixes = 6;
  int32_t max_prefix = 128;
  uint32_t repeat_one_in = 4;   // a prompt is one of before, whole; 0: never
  uint32_t domain_one_in = 5;   // another adapter, salt or image; 0: never
  uint32_t abort_one_in = 60;   // steps
  uint32_t stop_one_in = 6;     // requests whose model ends by itself; 0: never
  uint32_t idle_one_in = 300;   // steps, then nothing new comes until all is done; 0: never
  uint32_t fork_one_in = 0;     // steps; a request goes on from what another one has; 0: never
  uint32_t sibling_one_in = 8;  // a prompt is submitted several times at once; 0: never
};

class Workload {
 public:
  Workload(const WorkloadConfig& config, const EngineConfig& engine, uint64_t seed);

  // Before each step.
  void Before(Engine* engine);
  // After it.
  void After(const Engine& engine);

  uint64_t submitted() const { return submitted_; }

 private:
  void SubmitOne(Engine* engine);
  void MakePrompt();
  void Fork(Engine* engine);
  void Replay(Engine* engine);

  WorkloadConfig config_;
  int32_t vocabulary_;
  int32_t max_model_len_;
  int32_t max_encoder_;
  Random random_;
  std::vector<int32_t> prompt_;
  Domain domain_;
  std::vector<std::vector<int32_t>> before_;  // prompts
  std::vector<RequestName> live_;
  uint64_t submitted_ = 0;
  bool idle_ = false;
  std::vector<TraceRequest> trace_;
  size_t next_ = 0;
  int64_t now_ = 0;  // milliseconds
};

}  // namespace kvguard::lab

#endif  // KVGUARD_LAB_WORKLOAD_H_
