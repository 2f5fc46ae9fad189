// SPDX-License-Identifier: Apache-2.0
// What the scheduler tells the runner in each step: the shape and the semantics of the standard
// SchedulerOutput. Lists are flat, so that a step allocates nothing once they have grown.
#ifndef KVGUARD_LAB_SCHEDULER_OUTPUT_H_
#define KVGUARD_LAB_SCHEDULER_OUTPUT_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "lab/config.h"
#include "lab/random.h"

namespace kvguard::lab {

// What makes equal tokens unequal.
struct Domain {
  uint64_t lora = 0;
  uint64_t salt = 0;
  uint64_t image = 0;  // identity of a multimodal item; its placeholder tokens stand at
  int32_t image_first = 0;
  int32_t image_count = 0;
  uint64_t encoder = 0;  // identity of what an encoder has made, of so many tokens
  int32_t encoder_count = 0;

  bool operator==(const Domain&) const = default;
};

struct Span {
  uint32_t begin = 0;
  uint32_t end = 0;
  uint32_t size() const { return end - begin; }
};

// A request is named by its handle, a small number that is used again, and by its serial, which is
// not. One that comes back after preemption is new under its old names.
struct RequestName {
  uint32_t handle = 0;
  uint64_t serial = 0;
};

struct NewRequest {
  RequestName name;
  Span tokens;               // in SchedulerOutput::tokens: all that are known
  int32_t num_computed = 0;  // of these, with KV already
  bool resumed = false;
  Domain domain;
  std::array<Span, kMaxGroups> blocks;  // in SchedulerOutput::blocks: whole rows
};

struct CachedRequest {
  RequestName name;
  int32_t num_computed = 0;             // before this step
  std::array<Span, kMaxGroups> blocks;  // behind what the row has
};

struct ScheduledRequest {
  RequestName name;
  uint32_t admission = 0;  // which one of the request's; comes back with the step's output
  int32_t num_computed = 0;
  int32_t num_tokens = 0;  // drafts included
  int32_t num_drafts = 0;
  std::array<int32_t, kMaxDrafts> drafts{};
  bool samples = false;  // its last known token is computed in this step
  // For the truth alone: the blocks bound where this step may write, from column bound_first[g] on.
  std::array<Span, kMaxGroups> bound;
  std::array<int32_t, kMaxGroups> bound_first{};
};

// A block whose content another one gets before the forward: the last, partly shared one of a fork.
struct BlockCopy {
  uint32_t group = 0;
  int32_t source = 0;
  int32_t target = 0;
};

struct SchedulerOutput {
  uint64_t step = 0;
  std::vector<RequestName> finished;
  std::vector<RequestName> preempted;
  std::vector<NewRequest> added;
  std::vector<CachedRequest> cached;
  std::vector<ScheduledRequest> scheduled;
  std::vector<int32_t> blocks_to_zero;
  std::vector<BlockCopy> copies;  // after the zeroing
  std::vector<int32_t> blocks;
  std::vector<int32_t> tokens;
  int32_t num_tokens = 0;

  std::span<const int32_t> Blocks(Span span) const {
    return {blocks.data() + span.begin, span.size()};
  }
  std::span<const int32_t> Tokens(Span span) const {
    return {tokens.data() + span.begin, span.size()};
  }
  void Clear() {
    finished.clear();
    preempted.clear();
    added.clear();
    cached.clear();
    scheduled.clear();
    blocks_to_zero.clear();
    copies.clear();
    blocks.clear();
    tokens.clear();
    num_tokens = 0;
  }
};

}  // namespace kvguard::lab

#endif  // KVGUARD_LAB_SCHEDULER_OUTPUT_H_
