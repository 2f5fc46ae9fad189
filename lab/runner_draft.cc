// SPDX-License-Identifier: Apache-2.0
// The draft model's passes on the device. Pass 0 runs over the tokens of the step, with its
// metadata; pass k > 0 over one token of each row that sampled, k - 1 behind the last accepted one.
#include <algorithm>
#include <cstring>

#include "lab/packed.h"
#include "lab/runner.h"

namespace kvguard::lab {

void Runner::PrepareDraft(InFlight* step) {
  const int32_t* words = packed_.data();
  const auto num_rows = static_cast<int32_t>(step->draft_rows.size());
  for (int32_t i = 0; i < num_rows; ++i) {
    const int32_t b = step->draft_rows[Ix(i)];
    const int32_t row = words[words[kRows + 1] + b * kRowWords + kRowIndex];
    int32_t position = counts_[Ix(row)] + step->draft_pass - 1;
    if (faults_->Strikes(FaultKind::kDraftPositionBehind)) --position;
    position = std::clamp(position, 0, config_.max_model_len - 1);
    draft_start_[Ix(i)] = i;
    draft_positions_[Ix(i)] = position;
    draft_lens_[Ix(i)] = position + 1;
    // The token that stands there: the one just sampled, then the drafts themselves.
    const int32_t* sampled = sampled_.data() + b * kSampledStride;
    draft_ids_[Ix(i)] = step->draft_pass == 1
                            ? sampled[2 + std::max(0, sampled[0] - 1)]
                            : drafts_[Ix(row) * kMaxDrafts + Ix(step->draft_pass - 2)];
    for (size_t g = 0; g < config_.groups.size(); ++g) {
      if (!config_.groups[g].draft) continue;
      const int32_t unit = config_.groups[g].kernel_block_size;
      const auto width = static_cast<std::ptrdiff_t>(width_[g]);
      int32_t* table = draft_tables_[g].data() + i * width;
      std::copy_n(tables_[g].data() + b * width, width, table);
      draft_live_[g][Ix(i)] = live_[g][Ix(b)];
      if (i > 0 && faults_->Strikes(FaultKind::kDraftOtherRow)) {
        std::copy_n(draft_tables_[g].data(), width, table);
      }
      int64_t slot = int64_t{table[position / unit]} * unit + position % unit;
      if (faults_->Strikes(FaultKind::kDraftSlotStale)) --slot;
      draft_slots32_[g][Ix(i)] = static_cast<int32_t>(slot);
      draft_slots64_[g][Ix(i)] = slot;
    }
  }
  draft_start_[Ix(num_rows)] = num_rows;
}

void Runner::RunDraft(InFlight* step) {
  const int32_t* words = packed_.data();
  const int32_t pass = step->draft_pass;
  Batch batch;
  batch.step = step->step;
  batch.int32_slots = config_.int32_slots;
  batch.memory = memory_.data();
  batch.page_bytes = page_bytes_;
  batch.rows = &step->truth;
  batch.truth = truth_;
  const PlanView view = pass == 0 ? View() : DraftView();
  batch.num_rows = static_cast<int32_t>(pass == 0 ? step->rows.size() : step->draft_rows.size());
  batch.query_start = view.query_start;
  batch.seq_lens = view.seq_lens;
  batch.positions = view.positions;
  batch.input_ids = pass == 0 ? input_ids_.data() : draft_ids_.data();
  batch.tables = view.tables;
  batch.table_width = view.table_width;
  batch.slots = view.slots;
  if (!transformer_) tags_.ForwardDraft(batch, pass, step->draft_rows);
  // What it proposes next: the likely successor of the newest token.
  for (const int32_t b : step->draft_rows) {
    const int32_t row = words[words[kRows + 1] + b * kRowWords + kRowIndex];
    int32_t* sampled = sampled_.data() + b * kSampledStride;
    int32_t* drafts = drafts_.data() + Ix(row) * kMaxDrafts;
    const int32_t newest = pass == 0 ? sampled[2 + std::max(0, sampled[0] - 1)] : drafts[pass - 1];
    drafts[pass] = (newest * 5 + 3) % 11;
    sampled[3 + kMaxDrafts + pass] = drafts[pass];
  }
}

}  // namespace kvguard::lab
