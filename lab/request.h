// SPDX-License-Identifier: Apache-2.0
// A request as the scheduler keeps it.
#ifndef KVGUARD_LAB_REQUEST_H_
#define KVGUARD_LAB_REQUEST_H_

#include <array>
#include <cstdint>
#include <vector>

#include "lab/config.h"
#include "lab/scheduler_output.h"

namespace kvguard::lab {

enum class RequestState : uint8_t { kFree, kWaiting, kRunning };

struct Request {
  RequestName name;
  RequestState state = RequestState::kFree;
  Domain domain;
  RequestName parent;  // whose tokens it went on from; serial 0: none
  int32_t prompt_len = 0;
  int32_t max_output = 0;
  int32_t stop_at = 0;           // output length at which the model ends by itself
  std::vector<int32_t> tokens;   // known: prompt and sampled
  std::vector<uint64_t> hashes;  // of tokens[0, (k + 1) * unit) in its domain
  uint64_t running_hash = 0;     // of the tokens that were hashed so far
  int32_t hashed = 0;
  int32_t num_computed = 0;  // optimistic: what is in flight counts
  int32_t in_flight = 0;     // tokens scheduled in steps whose output is not known
  int32_t placeholders = 0;  // tokens that those steps will sample, drafts taken as accepted
  int32_t num_drafts = 0;    // to be verified by the next step
  int32_t drafts_in_flight = 0;
  std::array<int32_t, kMaxDrafts> drafts{};
  uint32_t admissions = 0;
  uint64_t admitted_in = 0;  // step
  std::array<std::vector<int32_t>, kMaxGroups> blocks;
  std::array<int32_t, kMaxGroups> cached_columns{};
  std::array<int32_t, kMaxGroups> passed_columns{};  // given back, behind the window

  int32_t num_tokens() const { return static_cast<int32_t>(tokens.size()); }
  int32_t num_output() const { return num_tokens() - prompt_len; }
};

}  // namespace kvguard::lab

#endif  // KVGUARD_LAB_REQUEST_H_
