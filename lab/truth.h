// SPDX-License-Identifier: Apache-2.0
// The truth beside the engine: what each request's tokens are, what every slot that it reads must
// therefore hold, and which reads, writes and tokens were wrong. Only the models' kernels and the
// reports look here; scheduler and runner never do.
#ifndef KVGUARD_LAB_TRUTH_H_
#define KVGUARD_LAB_TRUTH_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lab/config.h"
#include "lab/scheduler_output.h"

namespace kvguard::lab {

// The tag of a position: a hash of the request's content up to it (40 bits, another one in each
// group) and the position (24 bits).
inline constexpr int kTagPositionBits = 24;
uint64_t FirstContent(const Domain& domain);
uint64_t EncoderContent(const Domain& domain, int32_t position);
uint64_t NextContent(const Domain& domain, uint64_t before, int32_t position, int32_t token);
constexpr uint64_t TagOf(uint64_t content, size_t group, int32_t position) {
  return (Mix(content, group + 1) << kTagPositionBits) | static_cast<uint32_t>(position);
}

// What one request really is.
class TruthRequest {
 public:
  void Start(RequestName name, const Domain& domain, std::span<const int32_t> tokens,
             size_t num_groups);
  void Append(int32_t token);
  void Truncate(int32_t num_tokens);

  int32_t size() const { return static_cast<int32_t>(tokens.size()); }
  // Sum of the tags of positions [first, last].
  uint64_t Sum(size_t group, int32_t first, int32_t last) const {
    return sums[group][Ix(last) + 1] - sums[group][Ix(first)];
  }

  RequestName name;
  Domain domain;
  std::vector<int32_t> tokens;
  std::vector<uint64_t> contents;  // after each token
  std::array<std::vector<uint64_t>, kMaxGroups> tags;
  std::array<std::vector<uint64_t>, kMaxGroups> sums;  // of the tags before a position
  int32_t in_flight = 0;                               // launched steps that have not run
  bool ended = false;
  int32_t settled = 0;  // tokens that the last sampler has left; what is behind are drafts
};

enum class WrongKind : uint8_t { kRead, kWrite, kToken };

// One wrong access. `found`: what the slot held (reads) or the slot (writes) or the token.
struct Wrong {
  WrongKind kind = WrongKind::kRead;
  uint64_t step = 0;
  uint64_t serial = 0;
  size_t group = 0;
  int64_t position = 0;
  int64_t slot = 0;  // reads and writes; KV that is nowhere: -1
  uint64_t expected = 0;
  uint64_t found = 0;
};

struct WrongCounts {
  uint64_t count = 0;
  uint64_t first_step = 0;  // 0: none
};

class Truth {
 public:
  explicit Truth(const EngineConfig& config) : config_(config) {}

  TruthRequest* Start(RequestName name, const Domain& domain, std::span<const int32_t> tokens);
  TruthRequest* Find(RequestName name) const;  // nullptr where it has ended
  void End(RequestName name);
  // A step that held the request has run.
  void Landed(TruthRequest* request);

  void Note(const Wrong& wrong);
  const WrongCounts& reads() const { return counts_[0]; }
  const WrongCounts& writes() const { return counts_[1]; }
  const WrongCounts& tokens() const { return counts_[2]; }
  // The earliest ones of each kind, a bounded number.
  const std::vector<Wrong>& wrongs() const { return wrongs_; }
  // The first step with a wrong read or token; 0: none.
  uint64_t first_harm() const;

 private:
  const EngineConfig& config_;
  std::vector<TruthRequest*> live_;  // by handle
  std::vector<std::unique_ptr<TruthRequest>> all_;
  std::vector<TruthRequest*> idle_;
  std::array<WrongCounts, 3> counts_;
  std::vector<Wrong> wrongs_;
};

}  // namespace kvguard::lab

#endif  // KVGUARD_LAB_TRUTH_H_
