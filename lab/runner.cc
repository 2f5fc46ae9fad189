// SPDX-License-Identifier: Apache-2.0
// The host's side of a step.
#include "lab/runner.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "lab/packed.h"

namespace kvguard::lab {

Runner::Runner(const EngineConfig& config, Device* device, Truth* truth, FaultSwitch* faults,
               StateCounts* states)
    : config_(config),
      device_(device),
      truth_(truth),
      faults_(faults),
      states_(states),
      tags_(config, faults),
      transformer_(config.model == ModelKind::kTransformer
                       ? std::make_unique<TransformerModel>(config)
                       : nullptr),
      page_bytes_(transformer_ ? TransformerModel::PageBytes(config)
                               : TagsModel::PageBytes(config)) {
  const size_t rows = Ix(config.max_requests);
  size_t table_words = 0;
  for (size_t g = 0; g < config.groups.size(); ++g) {
    const GroupConfig& group = config.groups[g];
    width_[g] = config.MaxColumns(group) * (group.block_size / group.kernel_block_size);
    for (auto* by_row : {&places_[g], &state_in_[g], &state_out_[g], &state_base_[g],
                         &copied_from_[g], &copied_to_[g]}) {
      by_row->assign(rows, 0);
    }
    num_columns_[g].assign(rows, 0);
    rows_[g].assign(rows * Ix(width_[g]), 0);
    tables_[g].assign(rows * Ix(width_[g]), 0);
    columns_[g].assign(rows, 0);
    live_[g].assign(rows, 0);
    if (group.draft) {
      draft_tables_[g].assign(rows * Ix(width_[g]), 0);
      draft_live_[g].assign(rows, 0);
      draft_slots32_[g].assign(rows, -1);
      draft_slots64_[g].assign(rows, kPadSlot);
    }
    const size_t most_slots =
        std::max(Ix(config.max_batched_tokens), rows * Ix(config.max_encoder));
    if (config.int32_slots) {
      slots32_[g].assign(most_slots, -1);
    } else {
      slots64_[g].assign(most_slots, kPadSlot);
    }
    table_words += rows * (Ix(width_[g]) * 2 + 8);
  }
  const size_t packed_words =
      kHeaderWords + rows * (kRowWords + 8 + Ix(config.max_model_len)) + table_words;
  for (int32_t row = config.max_requests; row-- > 0;) free_rows_.push_back(row);
  host_counts_.assign(rows, 0);
  known_.assign(rows, 0);
  encoder_.assign(rows, 0);
  cross_start_.assign(rows + 1, 0);
  cross_lens_.assign(rows, 0);
  cross_positions_.assign(rows * Ix(config.max_encoder), 0);
  added_in_.assign(rows, 0);
  packed_.assign(packed_words, 0);
  counts_.assign(rows, 0);
  tokens_.assign(rows * Ix(config.max_model_len), 0);
  drafts_.assign(rows * kMaxDrafts, 0);
  state_init_.assign(rows, 0);
  query_start_.assign(rows + 1, 0);
  seq_lens_.assign(rows, 0);
  positions_.assign(Ix(config.max_batched_tokens), 0);
  input_ids_.assign(Ix(config.max_batched_tokens), 0);
  draft_start_.assign(rows + 1, 0);
  for (auto* by_row : {&draft_lens_, &draft_positions_, &draft_ids_}) by_row->assign(rows, 0);
  next_tokens_.assign(rows * (kMaxDrafts + 1), 0);
  sampled_.assign(rows * kSampledStride, 0);
  memory_.assign(Ix(config.num_blocks) * page_bytes_, 0);
  for (InFlight& step : ring_) {
    step.packed.assign(packed_words, 0);
    step.sampled.assign(rows * kSampledStride, 0);
    step.truth.resize(rows);
  }
}

void Runner::Remove(RequestName name) {
  // A request may end before it ever had a row.
  if (name.handle >= row_of_.size() || row_of_[name.handle] < 0) return;
  free_rows_.push_back(row_of_[name.handle]);
  row_of_[name.handle] = -1;
}

void Runner::StageBlocks(size_t group, int32_t row, std::span<const int32_t> blocks) {
  if (blocks.empty()) return;
  const GroupConfig& g = config_.groups[group];
  const int32_t parts = g.block_size / g.kernel_block_size;
  int32_t column = num_columns_[group][Ix(row)];
  if (faults_->kind() != FaultKind::kNone) {
    if (column > 0 && faults_->Strikes(FaultKind::kRowAppendLost)) return;
    if (column > 0 && config_.max_requests > 1 && faults_->Strikes(FaultKind::kRowAppendOtherRow)) {
      row = (row + 1) % config_.max_requests;
    }
    if (column > 0 && faults_->Strikes(FaultKind::kRowAppendShifted)) --column;
    if (column > 0 && config_.groups.size() > 1 &&
        faults_->Strikes(FaultKind::kRowAppendOtherGroup)) {
      group = (group + 1) % config_.groups.size();
    }
  }
  const int32_t room = (width_[group] - column) / parts;
  const int32_t count = std::min(static_cast<int32_t>(blocks.size()), room);
  if (count <= 0) return;  // only after a fault
  staged_blocks_.insert(staged_blocks_.end(),
                        {static_cast<int32_t>(group), row, column, count * parts});
  for (int32_t i = 0; i < count; ++i) {
    for (int32_t j = 0; j < parts; ++j) staged_blocks_.push_back(blocks[Ix(i)] * parts + j);
  }
  num_columns_[group][Ix(row)] = column + count * parts;
  ++num_staged_blocks_;
}

void Runner::Add(const SchedulerOutput& out, const NewRequest& added) {
  if (row_of_.size() <= added.name.handle) row_of_.resize(added.name.handle + 1, -1);
  Remove(added.name);              // a live request of this name is replaced
  if (free_rows_.empty()) return;  // only after a fault
  int32_t row = free_rows_.back();
  free_rows_.pop_back();
  if (faults_->Waits(FaultKind::kRowGivenTwice)) {
    for (const ScheduledRequest& other : out.scheduled) {
      if (other.name.serial == added.name.serial || row_of_[other.name.handle] < 0) continue;
      if (faults_->Strikes(FaultKind::kRowGivenTwice)) {
        free_rows_.push_back(row);
        row = row_of_[other.name.handle];
      }
      break;
    }
  }
  row_of_[added.name.handle] = row;
  const std::span<const int32_t> tokens = out.Tokens(added.tokens);
  staged_tokens_.insert(staged_tokens_.end(), {row, static_cast<int32_t>(tokens.size())});
  staged_tokens_.insert(staged_tokens_.end(), tokens.begin(), tokens.end());
  ++num_staged_tokens_;
  if (!(added.resumed && host_counts_[Ix(row)] != added.num_computed &&
        faults_->Strikes(FaultKind::kCountKeptOnResume))) {
    staged_counts_.insert(staged_counts_.end(), {row, added.num_computed});
    ++num_staged_counts_;
  }
  host_counts_[Ix(row)] = added.num_computed;
  known_[Ix(row)] = static_cast<int32_t>(tokens.size());
  encoder_[Ix(row)] = added.domain.encoder_count;
  if (added_in_[Ix(row)] != 0) states_->Add(State::kHandleReuse);
  added_in_[Ix(row)] = out.step;
  for (size_t g = 0; g < config_.groups.size(); ++g) {
    const std::span<const int32_t> blocks = out.Blocks(added.blocks[g]);
    const int32_t kept = num_columns_[g][Ix(row)];
    const bool keeps = kept > 0 && kept + static_cast<int32_t>(blocks.size()) < width_[g] / 2 &&
                       faults_->Strikes(FaultKind::kRowKeepsBlocks);
    if (!keeps) num_columns_[g][Ix(row)] = 0;
    StageBlocks(g, row, blocks);
  }
}

void Runner::Append(const SchedulerOutput& out, const CachedRequest& cached) {
  const int32_t row = cached.name.handle < row_of_.size() ? row_of_[cached.name.handle] : -1;
  if (row < 0) return;  // only after a fault
  host_counts_[Ix(row)] = cached.num_computed;
  for (size_t g = 0; g < config_.groups.size(); ++g) {
    StageBlocks(g, row, out.Blocks(cached.blocks[g]));
  }
}

// Rows with few tokens first; the scheduler's order among equals.
void Runner::OrderBatch(const SchedulerOutput& out, InFlight* step) {
  step->rows.clear();
  for (const ScheduledRequest& scheduled : out.scheduled) {
    step->rows.push_back(&scheduled);
    for (size_t i = step->rows.size() - 1;
         i > 0 && step->rows[i - 1]->num_tokens > step->rows[i]->num_tokens; --i) {
      std::swap(step->rows[i - 1], step->rows[i]);
    }
  }
  if (step->rows.size() > 1) {
    if (faults_->Strikes(FaultKind::kBatchRowMissing)) step->rows.pop_back();
    if (step->rows.size() > 1 && faults_->Strikes(FaultKind::kBatchRowTwice)) {
      step->rows.back() = step->rows[step->rows.size() - 2];
    }
  }
  step->map.clear();
  for (const ScheduledRequest* row : step->rows) {
    const uint32_t handle = row->name.handle;
    step->map.push_back(handle < row_of_.size() ? std::max(0, row_of_[handle]) : 0);
  }
  if (faults_->Waits(FaultKind::kRowMapStale)) {
    for (size_t b = 0; b < std::min(last_map_.size(), step->map.size()); ++b) {
      if (last_map_[b] == step->map[b]) continue;
      if (faults_->Strikes(FaultKind::kRowMapStale)) step->map[b] = last_map_[b];
      break;
    }
  }
  if (step->map.size() > 1 && faults_->Strikes(FaultKind::kRowMapSwapped)) {
    std::swap(step->map[0], step->map[1]);
  }
  last_map_ = step->map;
}

int32_t Runner::PaddedSize(int32_t size, int32_t most) const {
  return std::min(most, static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(size))));
}

void Runner::Pack(const SchedulerOutput& out, InFlight* step) {
  int32_t* words = step->packed.data();
  int32_t at = kHeaderWords;
  const auto section = [&](int32_t count_at, int32_t count, const std::vector<int32_t>& data) {
    words[count_at] = count;
    words[count_at + 1] = at;
    std::copy(data.begin(), data.end(), words + at);
    at += static_cast<int32_t>(data.size());
  };
  section(kStagedBlocks, num_staged_blocks_, staged_blocks_);
  section(kStagedCounts, num_staged_counts_, staged_counts_);
  section(kStagedTokens, num_staged_tokens_, staged_tokens_);
  const auto num_rows = static_cast<int32_t>(step->rows.size());
  words[kRows] = num_rows;
  words[kRows + 1] = at;
  bool decode = config_.padding && num_rows > 0;
  step->num_encoder_tokens = 0;
  int32_t num_tokens = 0;
  for (int32_t b = 0; b < num_rows; ++b) {
    const ScheduledRequest& row = *step->rows[Ix(b)];
    int32_t* entry = words + at + b * kRowWords;
    entry[kRowIndex] = step->map[Ix(b)];
    entry[kRowTokens] = row.num_tokens;
    if (row.num_tokens > 1 && row.num_drafts == 0 && faults_->Strikes(FaultKind::kQueryShort)) {
      --entry[kRowTokens];
    }
    entry[kRowDrafts] = row.num_drafts;
    entry[kRowSamples] = row.samples ? 1 : 0;
    const size_t index = Ix(step->map[Ix(b)]);
    entry[kRowEncoder] = encoder_[index];
    entry[kRowEncodes] = added_in_[index] == out.step ? 1 : 0;
    if (entry[kRowEncodes] != 0) step->num_encoder_tokens += encoder_[index];
    std::copy(row.drafts.begin(), row.drafts.end(), entry + kRowFirstDraft);
    num_tokens += entry[kRowTokens];
    decode = decode && row.num_tokens == 1;
  }
  at += num_rows * kRowWords;
  if (num_rows > 1 && step->rows.front()->num_tokens == 1 && step->rows.back()->num_tokens > 1) {
    states_->Add(State::kMixedBatch);
  }
  step->num_tokens = num_tokens;
  step->padded_rows = decode ? PaddedSize(num_rows, config_.max_requests) : num_rows;
  step->padded_tokens = decode ? PaddedSize(num_tokens, config_.max_batched_tokens) : num_tokens;
  if (step->padded_rows > num_rows) states_->Add(State::kPaddedBatch);
  words[kPaddedRows] = step->padded_rows;
  words[kNumTokens] = num_tokens;
  words[kPaddedTokens] = step->padded_tokens;
  step->num_words = at;
  staged_blocks_.clear();
  staged_counts_.clear();
  staged_tokens_.clear();
  num_staged_blocks_ = num_staged_counts_ = num_staged_tokens_ = 0;
}

void Runner::FillTruth(const SchedulerOutput& out, InFlight* step) {
  step->output.step = out.step;
  step->output.rows.clear();
  for (size_t b = 0; b < step->rows.size(); ++b) {
    const ScheduledRequest& row = *step->rows[b];
    RowTruth& truth = step->truth[b];
    truth.request = truth_->Find(row.name);
    ++truth.request->in_flight;
    const int32_t own = row_of_[row.name.handle];
    truth.known = own >= 0 && added_in_[Ix(own)] == out.step ? known_[Ix(own)] : -1;
    truth.encodes = truth.known >= 0 && truth.request->domain.encoder_count > 0;
    truth.num_tokens = row.num_tokens;
    truth.num_drafts = row.num_drafts;
    truth.samples = row.samples;
    for (size_t g = 0; g < config_.groups.size(); ++g) {
      const std::span<const int32_t> bound = out.Blocks(row.bound[g]);
      truth.bound[g].assign(bound.begin(), bound.end());
      truth.bound_first[g] = row.bound_first[g];
    }
    StepOutput::Row& output = step->output.rows.emplace_back();
    output.name = row.name;
    output.admission = row.admission;
    output.num_tokens = row.num_tokens;
    output.num_drafts = row.num_drafts;
  }
}

InFlight* Runner::Plan(const SchedulerOutput& out, bool freeze) {
  InFlight* before = &ring_[(launched_ + ring_.size() - 1) % ring_.size()];
  const uint64_t index = launched_++ % ring_.size();
  InFlight* step = &ring_[index];
  step->step = out.step;
  // Its buffers are free when what they were last used for has happened.
  device_->Synchronize(step->uploaded);
  device_->Synchronize(step->downloaded);

  for (const RequestName name : out.finished) Remove(name);
  for (const RequestName name : out.preempted) Remove(name);
  for (const NewRequest& added : out.added) Add(out, added);
  for (const CachedRequest& cached : out.cached) Append(out, cached);
  OrderBatch(out, step);
  const bool appends = num_staged_blocks_ > 0;
  Pack(out, step);
  FillTruth(out, step);
  if (!device_->Done(before->uploaded) && faults_->Strikes(FaultKind::kStagingReused)) {
    std::memcpy(before->packed.data(), step->packed.data(),
                Ix(std::min(before->num_words, step->num_words)) * sizeof(int32_t));
  }

  device_->Wait(Stream::kUpload, consumed_);
  device_->Copy(Stream::kUpload, packed_.data(), step->packed.data(),
                Ix(step->num_words) * sizeof(int32_t));
  step->uploaded = device_->Record(Stream::kUpload);
  if (step->rows.empty() || !faults_->Strikes(FaultKind::kUploadNotAwaited)) {
    device_->Wait(Stream::kCompute, step->uploaded);
  }
  step->zero = out.blocks_to_zero;
  step->zeroed = !step->zero.empty() && !faults_->Strikes(FaultKind::kZeroLate);
  if (step->zeroed) LaunchZero(index);
  step->copies = out.copies;
  step->copied = !step->copies.empty() && !faults_->Strikes(FaultKind::kCopyLate);
  if (step->copied) LaunchCopy(index);
  const bool early = appends && !out.cached.empty() && !step->rows.empty() &&
                     faults_->Strikes(FaultKind::kSlotBeforeAppend);
  if (!early) LaunchApply(index);
  if (!step->rows.empty()) {
    LaunchPlan(index);
  }
  if (early) LaunchApply(index);
  step->planned = device_->Record(Stream::kCompute);
  if (freeze && !step->rows.empty()) {
    LaunchFreeze(index);
    step->planned = device_->Record(Stream::kCompute);
  }
  consumed_ = step->planned;
  step->downloaded = step->planned;
  return step;
}

void Runner::Forward(InFlight* step) {
  const auto index = static_cast<uint64_t>(step - ring_.data());
  if (step->rows.empty()) return;
  LaunchForward(index);
  if (!step->zero.empty() && !step->zeroed) {
    LaunchZero(index);
  }
  if (!step->copies.empty() && !step->copied) LaunchCopy(index);
  // The buffer that the sampler fills is read by the download of the step before.
  device_->Wait(Stream::kCompute, last_download_);
  LaunchSample(index);
  consumed_ = device_->Record(Stream::kCompute);
}

void Runner::PlanDraft(InFlight* step, int32_t k) {
  step->draft_pass = k;
  if (k == 0) {
    step->draft_rows.clear();
    for (size_t b = 0; b < step->rows.size(); ++b) {
      if (step->rows[b]->samples) step->draft_rows.push_back(static_cast<int32_t>(b));
    }
  } else {
    LaunchDraft(static_cast<uint64_t>(step - ring_.data()), false);
  }
}

void Runner::ForwardDraft(InFlight* step) {
  LaunchDraft(static_cast<uint64_t>(step - ring_.data()), true);
  // The pass reads which one it is from the step: the next one is made when it has run.
  consumed_ = device_->Record(Stream::kCompute);
  device_->Synchronize(consumed_);
}

void Runner::Download(InFlight* step) {
  if (step->rows.empty()) return;
  device_->Wait(Stream::kDownload, consumed_);
  device_->Copy(Stream::kDownload, step->sampled.data(), sampled_.data(),
                step->rows.size() * kSampledStride * sizeof(int32_t));
  step->downloaded = last_download_ = device_->Record(Stream::kDownload);
}

void Runner::Abandon(InFlight* step) {
  device_->Synchronize(step->planned);
  for (size_t b = 0; b < step->rows.size(); ++b) truth_->Landed(step->truth[b].request);
  step->output.rows.clear();
}

const StepOutput& Runner::Await(InFlight* step) {
  const InStep in(faults_, step->step);
  if (step->rows.empty() || !faults_->Strikes(FaultKind::kOutputNotAwaited)) {
    device_->Synchronize(step->downloaded);
  }
  FillOutput(step->sampled.data(), step);
  return step->output;
}

const StepOutput& Runner::Peek(InFlight* step) {
  device_->Synchronize(device_->Record(Stream::kCompute));
  FillOutput(sampled_.data(), step);
  return step->output;
}

void Runner::FillOutput(const int32_t* sampled, InFlight* step) {
  for (size_t b = 0; b < step->output.rows.size(); ++b) {
    StepOutput::Row& row = step->output.rows[b];
    const int32_t* from = sampled + b * kSampledStride;
    row.num_sampled = from[0];
    row.num_rejected = from[1];
    if (row.num_sampled == 0 && faults_->struck() == step->step &&
        faults_->kind() == FaultKind::kOutputNotAwaited) {
      row.num_sampled = 1;
    }
    if (row.num_drafts > 0 && faults_->Strikes(FaultKind::kRejectedTooMany)) {
      row.num_rejected = row.num_drafts + 1;
    }
    std::copy_n(from + 2, row.tokens.size(), row.tokens.begin());
    std::copy_n(from + 3 + kMaxDrafts, row.drafts.size(), row.drafts.begin());
  }
}

void Runner::Dummy() {
  states_->Add(State::kDummyRun);
  LaunchDummy();
}

PlanView Runner::View() const {
  PlanView view;
  view.query_start = query_start_.data();
  view.seq_lens = seq_lens_.data();
  view.positions = positions_.data();
  for (size_t g = 0; g < config_.groups.size(); ++g) {
    view.tables[g] = tables_[g].data();
    view.table_width[g] = width_[g];
    view.row_columns[g] = live_[g].data();
    view.slots[g] = config_.int32_slots ? static_cast<const void*>(slots32_[g].data())
                                        : static_cast<const void*>(slots64_[g].data());
    view.state_in[g] = state_in_[g].data();
    view.state_out[g] = state_out_[g].data();
    view.copied_from[g] = copied_from_[g].data();
    view.copied_to[g] = copied_to_[g].data();
  }
  view.state_init = state_init_.data();
  view.cross_start = cross_start_.data();
  view.cross_lens = cross_lens_.data();
  view.cross_positions = cross_positions_.data();
  return view;
}

PlanView Runner::DraftView() const {
  PlanView view;
  view.query_start = draft_start_.data();
  view.seq_lens = draft_lens_.data();
  view.positions = draft_positions_.data();
  for (size_t g = 0; g < config_.groups.size(); ++g) {
    view.tables[g] = draft_tables_[g].data();
    view.table_width[g] = width_[g];
    view.row_columns[g] = draft_live_[g].data();
    view.slots[g] = config_.int32_slots ? static_cast<const void*>(draft_slots32_[g].data())
                                        : static_cast<const void*>(draft_slots64_[g].data());
  }
  return view;
}

PlanView Runner::View(const InFlight& step) const {
  const FrozenPlan& frozen = step.frozen;
  PlanView view;
  view.query_start = frozen.query_start.data();
  view.seq_lens = frozen.seq_lens.data();
  view.positions = frozen.positions.data();
  for (size_t g = 0; g < config_.groups.size(); ++g) {
    view.tables[g] = frozen.tables[g].data();
    view.table_width[g] = width_[g];
    view.row_columns[g] = frozen.live[g].data();
    view.slots[g] = config_.int32_slots ? static_cast<const void*>(frozen.slots32[g].data())
                                        : static_cast<const void*>(frozen.slots64[g].data());
    view.state_in[g] = frozen.state_in[g].data();
    view.state_out[g] = frozen.state_out[g].data();
    view.copied_from[g] = frozen.copied_from[g].data();
    view.copied_to[g] = frozen.copied_to[g].data();
  }
  view.state_init = frozen.state_init.data();
  view.cross_start = frozen.cross_start.data();
  view.cross_lens = frozen.cross_lens.data();
  view.cross_positions = frozen.cross_positions.data();
  return view;
}

}  // namespace kvguard::lab
