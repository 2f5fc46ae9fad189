// SPDX-License-Identifier: Apache-2.0
// The model *tags*: a slot holds the tag of what was computed there, attention reads tags through
// the tables and checks each of them, and the next token is a hash of all that was read. Who reads
// wrong memory therefore says wrong tokens, and the truth knows which reads made them so.
#ifndef KVGUARD_LAB_TAGS_H_
#define KVGUARD_LAB_TAGS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "lab/batch.h"
#include "lab/config.h"
#include "lab/faults.h"

namespace kvguard::lab {

class TagsModel {
 public:
  TagsModel(const EngineConfig& config, FaultSwitch* faults) : config_(config), faults_(faults) {}

  static size_t PageBytes(const EngineConfig& config);
  void Forward(const Batch& batch);
  // Pass `pass` of the draft model, over its own groups: 0 over the step's rows, later ones over a
  // token of each of `rows`. It runs when the sampler has judged the step.
  void ForwardDraft(const Batch& batch, int32_t pass, const std::vector<int32_t>& rows);

  // What the model says behind a prompt, computed without any cache: from the definition.
  static std::vector<int32_t> Continue(const EngineConfig& config, const Domain& domain,
                                       std::span<const int32_t> prompt, int32_t num_tokens);

 private:
  void Write(const Batch& batch, int32_t row);
  void Read(const Batch& batch, int32_t row);
  bool ReadGroup(const Batch& batch, int32_t row, size_t group, int32_t first, int32_t end,
                 const TruthRequest* of);
  void WriteDraft(const Batch& batch, int32_t row, TruthRequest* request, bool appends);
  void WriteCross(const Batch& batch, int32_t row, size_t group);
  bool ReadCross(const Batch& batch, int32_t row, size_t group);
  bool StepStates(const Batch& batch, int32_t row, size_t group);
  void StoreState(const Batch& batch, size_t group, int32_t block, uint64_t content) const;
  uint64_t SumRead(const Batch& batch, int32_t row, size_t group, int32_t first,
                   int32_t last) const;
  static int32_t Choose(const EngineConfig& config, uint64_t sum, int32_t last_token);

  const EngineConfig& config_;
  FaultSwitch* faults_;
  std::array<uint64_t, kMaxGroups> cross_{};              // sum of a row's encoder tags, as read
  std::array<std::vector<uint64_t>, kMaxGroups> states_;  // after each token of a row
};

}  // namespace kvguard::lab

#endif  // KVGUARD_LAB_TAGS_H_
