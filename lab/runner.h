// SPDX-License-Identifier: Apache-2.0
// The model runner: keeps a row for each running request, makes the attention metadata of each step
// on the device, and launches the forward.
//
// The host stages what changed (new rows, appended blocks) and the batch's order into one pinned
// buffer; one upload brings it to the device, and kernels do the rest: they apply the staged writes
// to the persistent rows, take positions from the device's own counts, gather each batch row's
// table, compute slots, and pad. Buffers on the device are the same ones in every step.
#ifndef KVGUARD_LAB_RUNNER_H_
#define KVGUARD_LAB_RUNNER_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lab/batch.h"
#include "lab/config.h"
#include "lab/device.h"
#include "lab/faults.h"
#include "lab/scheduler.h"
#include "lab/scheduler_output.h"
#include "lab/states.h"
#include "lab/tags.h"
#include "lab/transformer.h"
#include "lab/truth.h"

namespace kvguard::lab {

// The final metadata of a step as somebody outside may see it: device buffers or a copy of them.
struct PlanView {
  const int32_t* query_start = nullptr;
  const int32_t* seq_lens = nullptr;
  const int32_t* positions = nullptr;
  std::array<const int32_t*, kMaxGroups> tables{};
  std::array<int32_t, kMaxGroups> table_width{};
  std::array<const int32_t*, kMaxGroups> row_columns{};
  std::array<const void*, kMaxGroups> slots{};
  std::array<const int32_t*, kMaxGroups> state_in{};  // recurrent groups
  std::array<const int32_t*, kMaxGroups> state_out{};
  const uint8_t* state_init = nullptr;
  const int32_t* cross_start = nullptr;  // cross-attention's own query offsets, lengths, positions
  const int32_t* cross_lens = nullptr;
  const int32_t* cross_positions = nullptr;
  std::array<const int32_t*, kMaxGroups> copied_from{};  // a row's state before the step; 0: none
  std::array<const int32_t*, kMaxGroups> copied_to{};
};

// A copy of it in pinned memory.
struct FrozenPlan {
  std::vector<int32_t> query_start;
  std::vector<int32_t> seq_lens;
  std::vector<int32_t> positions;
  std::array<std::vector<int32_t>, kMaxGroups> tables;
  std::array<std::vector<int32_t>, kMaxGroups> live;
  std::array<std::vector<int32_t>, kMaxGroups> slots32;
  std::array<std::vector<int64_t>, kMaxGroups> slots64;
  std::array<std::vector<int32_t>, kMaxGroups> state_in;
  std::array<std::vector<int32_t>, kMaxGroups> state_out;
  std::array<std::vector<int32_t>, kMaxGroups> copied_from;
  std::array<std::vector<int32_t>, kMaxGroups> copied_to;
  std::vector<uint8_t> state_init;
  std::vector<int32_t> cross_start;
  std::vector<int32_t> cross_lens;
  std::vector<int32_t> cross_positions;
};

// A step between its launch and its output.
struct InFlight {
  uint64_t step = 0;
  std::vector<const ScheduledRequest*> rows;  // in the batch's order
  std::vector<int32_t> map;                   // the runner's row of each
  std::vector<RowTruth> truth;
  StepOutput output;             // its rows are filled by the download
  std::vector<int32_t> packed;   // pinned: what goes up
  std::vector<int32_t> sampled;  // pinned: what comes down, [rows, kMaxDrafts + 3]
  FrozenPlan frozen;             // filled where it was asked for
  int32_t padded_rows = 0;
  int32_t padded_tokens = 0;
  int32_t num_tokens = 0;
  int32_t num_encoder_tokens = 0;  // that the step writes
  int32_t num_words = 0;           // of `packed`
  bool zeroed = false;             // zeroing was launched before the kernels that use the blocks
  Event planned;
  Event uploaded;
  Event downloaded;
  int32_t draft_pass = 0;
  std::vector<int32_t> draft_rows;  // batch rows of the draft passes after the first
  std::vector<int32_t> zero;        // blocks to zero
  std::vector<BlockCopy> copies;
  bool copied = false;  // they were launched before the kernels that use the blocks
};

class Runner {
 public:
  Runner(const EngineConfig& config, Device* device, Truth* truth, FaultSwitch* faults,
         StateCounts* states);

  // Brings the rows up to date and makes the metadata of the step. The metadata is final when
  // `planned` of the returned step has happened; nothing reads KV before Forward.
  // `freeze`: copy it to the host behind that.
  InFlight* Plan(const SchedulerOutput& out, bool freeze);
  // Launches the forward and sampling.
  void Forward(InFlight* step);
  // With a draft model, for each pass 0 <= k < num_drafts, after Forward: makes its metadata (for
  // k = 0 there is nothing to make, it is that of the step), then launches it.
  void PlanDraft(InFlight* step, int32_t k);
  void ForwardDraft(InFlight* step);
  // Launches the download of what the step gave.
  void Download(InFlight* step);
  // Drops a step that was planned and will not run.
  void Abandon(InFlight* step);
  // What the sampler gave, where the device's memory may be read; before the draft model's passes.
  const StepOutput& Peek(InFlight* step);
  // Waits for the tokens.
  const StepOutput& Await(InFlight* step);

  // A batch without requests, as idle engines run it.
  void Dummy();

  void FillOutput(const int32_t* sampled, InFlight* step);
  PlanView View() const;                        // of the device's buffers
  PlanView DraftView() const;                   // of a draft pass k > 0
  PlanView View(const InFlight& frozen) const;  // of the copy
  int32_t table_width(size_t group) const { return width_[group]; }
  Event LastWork() const { return device_->Record(Stream::kCompute); }

  static constexpr int kSampledStride = 2 * kMaxDrafts + 3;  // sampled, rejected, tokens, drafts

 private:
  // The host's side.
  void Remove(RequestName name);
  void Add(const SchedulerOutput& out, const NewRequest& added);
  void Append(const SchedulerOutput& out, const CachedRequest& cached);
  void StageBlocks(size_t group, int32_t row, std::span<const int32_t> blocks);
  void OrderBatch(const SchedulerOutput& out, InFlight* step);
  void Pack(const SchedulerOutput& out, InFlight* step);
  void FillTruth(const SchedulerOutput& out, InFlight* step);
  int32_t PaddedSize(int32_t size, int32_t most) const;

  // Kernels.
  template <void (Runner::*kKernel)(InFlight*)>
  void Launch(uint64_t index);
  void LaunchZero(uint64_t index);
  void LaunchCopy(uint64_t index);
  void LaunchApply(uint64_t index);
  void LaunchPlan(uint64_t index);
  void LaunchFreeze(uint64_t index);
  void LaunchForward(uint64_t index);
  void LaunchSample(uint64_t index);
  void LaunchDraft(uint64_t index, bool runs);
  void PrepareDraft(InFlight* step);
  void RunDraft(InFlight* step);
  void LaunchDummy();
  void Zero(InFlight* step);
  void CopyBlocks(InFlight* step);
  void Apply(InFlight* step);
  void Prepare(InFlight* step);
  void MakeTables(InFlight* step);
  void FindStates(size_t group);
  void PrepareCross();
  template <typename Slot>
  void ComputeCrossSlots(size_t group, std::vector<Slot>* slots);
  void GatherRow(size_t group, int32_t batch_row, int32_t row);
  template <typename Slot>
  void ComputeSlots(size_t group, std::vector<Slot>* slots);
  template <typename Slot>
  void BreakSlots(size_t group, std::vector<Slot>* slots);
  void BreakTables();
  void BreakStates(size_t group);
  template <typename Slot>
  void BreakCross(size_t group, std::vector<Slot>* slots);
  void Freeze(InFlight* step);
  void RunModel(InFlight* step);
  void BreakForward(const InFlight& step);
  void Sample(InFlight* step);
  void Judge(InFlight* step);
  void ProposeOnDevice(int32_t row);
  void ClearBatch();

  int32_t* Row(size_t group, int32_t row) {
    return rows_[group].data() + Ix(row) * Ix(width_[group]);
  }

  const EngineConfig& config_;
  Device* device_;
  Truth* truth_;
  FaultSwitch* faults_;
  StateCounts* states_;
  TagsModel tags_;
  std::unique_ptr<TransformerModel> transformer_;  // where it is the model
  std::array<int32_t, kMaxGroups> width_{};        // of a table row, in kernel blocks

  // The host's account.
  std::vector<int32_t> row_of_;  // by handle; -1: none
  std::vector<int32_t> free_rows_;
  std::array<std::vector<int32_t>, kMaxGroups> num_columns_;  // by row, in kernel blocks
  std::vector<int32_t> staged_blocks_;                        // group, row, column, count, ids
  std::vector<int32_t> staged_counts_;                        // row, count
  std::vector<int32_t> staged_tokens_;                        // row, count, ids
  int32_t num_staged_blocks_ = 0;
  int32_t num_staged_counts_ = 0;
  int32_t num_staged_tokens_ = 0;
  std::vector<int32_t> host_counts_;  // by row: tokens with KV when it was last given
  std::vector<int32_t> encoder_;      // by row: encoder tokens
  std::vector<int32_t> known_;        // by row: tokens known at its admission
  std::vector<uint64_t> added_in_;    // by row: the step of that
  std::vector<int32_t> last_map_;     // batch row to row, one step ago
  std::array<InFlight, 4> ring_;
  uint64_t launched_ = 0;
  Event consumed_;  // the device has read what was uploaded
  Event last_download_;

  // The device's buffers.
  std::vector<int32_t> packed_;
  std::array<std::vector<int32_t>, kMaxGroups> rows_;     // [max_requests, width]
  std::vector<int32_t> counts_;                           // [max_requests] tokens with KV
  std::vector<int32_t> tokens_;                           // [max_requests, max_model_len]
  std::vector<int32_t> drafts_;                           // [max_requests, kMaxDrafts]
  std::array<std::vector<int32_t>, kMaxGroups> tables_;   // [max_requests, width], by batch row
  std::array<std::vector<int32_t>, kMaxGroups> columns_;  // [max_requests] live ones, by row
  std::array<std::vector<int32_t>, kMaxGroups> live_;     // the same, by batch row
  std::array<std::vector<int64_t>, kMaxGroups> slots64_;  // [max_batched_tokens]
  std::array<std::vector<int32_t>, kMaxGroups> slots32_;
  // Recurrent groups: by row the column that holds the state, by batch row blocks and columns.
  std::array<std::vector<int32_t>, kMaxGroups> places_;
  std::array<std::vector<int32_t>, kMaxGroups> state_in_;
  std::array<std::vector<int32_t>, kMaxGroups> state_out_;
  std::array<std::vector<int32_t>, kMaxGroups> state_base_;  // the step's first written column
  std::array<std::vector<int32_t>, kMaxGroups> copied_from_;
  std::array<std::vector<int32_t>, kMaxGroups> copied_to_;
  std::vector<uint8_t> state_init_;
  // Cross-attention; its slots stand where the other groups' do.
  std::vector<int32_t> cross_start_;
  std::vector<int32_t> cross_lens_;
  std::vector<int32_t> cross_positions_;
  std::vector<int32_t> query_start_;
  std::vector<int32_t> seq_lens_;
  std::vector<int32_t> positions_;
  std::vector<int32_t> input_ids_;
  std::vector<int32_t> next_tokens_;
  // The passes of the draft model after its first: one token of each row that sampled.
  std::vector<int32_t> draft_start_;
  std::vector<int32_t> draft_lens_;
  std::vector<int32_t> draft_positions_;
  std::vector<int32_t> draft_ids_;
  std::array<std::vector<int32_t>, kMaxGroups> draft_tables_;
  std::array<std::vector<int32_t>, kMaxGroups> draft_live_;
  std::array<std::vector<int64_t>, kMaxGroups> draft_slots64_;
  std::array<std::vector<int32_t>, kMaxGroups> draft_slots32_;
  std::vector<int32_t> sampled_;
  std::vector<uint8_t> memory_;
  size_t page_bytes_ = 0;
  // Of the step before, for the faults that leave something as it was.
  std::vector<int64_t> stale_slots_;
  std::vector<int32_t> stale_table_;
  std::vector<int64_t> broken_slots_;
};

}  // namespace kvguard::lab

#endif  // KVGUARD_LAB_RUNNER_H_
