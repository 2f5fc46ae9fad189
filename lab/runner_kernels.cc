// SPDX-License-Identifier: Apache-2.0
// The device's side of a step: what runs when the streams come to it. Kernels see the device's
// buffers and what was uploaded, nothing of the host's account.
#include <algorithm>
#include <cstring>

#include "lab/packed.h"
#include "lab/runner.h"

namespace kvguard::lab {
template <void (Runner::*kKernel)(InFlight*)>
void Runner::Launch(uint64_t index) {
  device_->Launch(
      Stream::kCompute,
      [](void* self, uint64_t at) {
        auto* runner = static_cast<Runner*>(self);
        InFlight* step = &runner->ring_[at];
        const InStep in(runner->faults_, step->step);
        (runner->*kKernel)(step);
      },
      this, index);
}

void Runner::LaunchZero(uint64_t index) { Launch<&Runner::Zero>(index); }
void Runner::LaunchCopy(uint64_t index) { Launch<&Runner::CopyBlocks>(index); }
void Runner::LaunchApply(uint64_t index) { Launch<&Runner::Apply>(index); }
void Runner::LaunchPlan(uint64_t index) {
  Launch<&Runner::Prepare>(index);
  Launch<&Runner::MakeTables>(index);
}
void Runner::LaunchFreeze(uint64_t index) { Launch<&Runner::Freeze>(index); }
void Runner::LaunchForward(uint64_t index) { Launch<&Runner::RunModel>(index); }
void Runner::LaunchSample(uint64_t index) { Launch<&Runner::Sample>(index); }
void Runner::LaunchDraft(uint64_t index, bool runs) {
  if (runs) {
    Launch<&Runner::RunDraft>(index);
  } else {
    Launch<&Runner::PrepareDraft>(index);
  }
}
void Runner::LaunchDummy() {
  device_->Launch(
      Stream::kCompute, [](void* self, uint64_t) { static_cast<Runner*>(self)->ClearBatch(); },
      this, 0);
}

void Runner::Zero(InFlight* step) {
  for (int32_t id : step->zero) {
    // The first block of the batch before is likely to be in use.
    const int32_t parts = config_.groups[0].block_size / config_.groups[0].kernel_block_size;
    const int32_t other = tables_[0][0] / parts;
    if (other != 0 && other != id && faults_->Strikes(FaultKind::kZeroOther)) id = other;
    std::memset(memory_.data() + Ix(id) * page_bytes_, 0, page_bytes_);
  }
}

void Runner::CopyBlocks(InFlight* step) {
  for (const BlockCopy& copy : step->copies) {
    if (faults_->Strikes(FaultKind::kCopySkipped)) continue;
    std::memcpy(memory_.data() + Ix(copy.target) * page_bytes_,
                memory_.data() + Ix(copy.source) * page_bytes_, page_bytes_);
  }
}

// Staged writes reach the persistent rows. An upload that is torn (only after a fault) writes where
// it may, not beyond its buffers.
void Runner::Apply(InFlight*) {
  const int32_t* words = packed_.data();
  const auto size = static_cast<int32_t>(packed_.size());
  const auto in = [](int32_t value, int32_t end) { return value >= 0 && value < end; };
  const auto section = [&](int32_t at) { return std::clamp(words[at + 1], 0, size - 4); };
  int32_t at = section(kStagedBlocks);
  for (int32_t i = 0; i < words[kStagedBlocks]; ++i) {
    const int32_t* from = words + at;
    if (!in(at, size - 4) || !in(from[3], size - at - 3)) break;
    at += 4 + from[3];
    if (!in(from[0], static_cast<int32_t>(config_.groups.size())) ||
        !in(from[1], config_.max_requests) || !in(from[2], width_[Ix(from[0])]) ||
        from[2] + from[3] > width_[Ix(from[0])]) {
      continue;
    }
    std::copy_n(from + 4, from[3], Row(Ix(from[0]), from[1]) + from[2]);
    columns_[Ix(from[0])][Ix(from[1])] = from[2] + from[3];
  }
  at = section(kStagedCounts);
  for (int32_t i = 0; i < words[kStagedCounts] && in(at, size - 2); ++i, at += 2) {
    const int32_t count = std::clamp(words[at + 1], 0, config_.max_model_len - 1);
    if (!in(words[at], config_.max_requests)) continue;
    counts_[Ix(words[at])] = count;
    for (size_t g = 0; g < config_.groups.size(); ++g) {
      places_[g][Ix(words[at])] =
          count > 0 ? EngineConfig::StateColumn(config_.groups[g], count) : 0;
    }
  }
  at = section(kStagedTokens);
  for (int32_t i = 0; i < words[kStagedTokens]; ++i) {
    const int32_t* from = words + at;
    if (!in(at, size - 2) || !in(from[1], size - at - 1)) break;
    at += 2 + from[1];
    if (!in(from[0], config_.max_requests) || from[1] > config_.max_model_len) continue;
    std::copy_n(from + 2, from[1], tokens_.data() + Ix(from[0]) * Ix(config_.max_model_len));
  }
  // The batch's own section, as the kernels behind this one take it.
  const int32_t rows_at = std::clamp(words[kRows + 1], 0, size - 1);
  int32_t room = config_.max_batched_tokens;
  packed_[kRows + 1] = rows_at;
  packed_[kRows] =
      std::clamp(words[kRows], 0, std::min(config_.max_requests, (size - rows_at) / kRowWords));
  for (int32_t b = 0; b < packed_[kRows]; ++b) {
    int32_t* entry = packed_.data() + rows_at + b * kRowWords;
    entry[kRowIndex] = std::clamp(entry[kRowIndex], 0, config_.max_requests - 1);
    entry[kRowTokens] = std::clamp(entry[kRowTokens], 0, room);
    entry[kRowDrafts] =
        std::clamp(entry[kRowDrafts], 0, std::max(0, std::min(kMaxDrafts, entry[kRowTokens] - 1)));
    room -= entry[kRowTokens];
    entry[kRowEncoder] = std::clamp(entry[kRowEncoder], 0, config_.max_encoder);
  }
  packed_[kPaddedRows] = std::clamp(words[kPaddedRows], packed_[kRows], config_.max_requests);
  packed_[kNumTokens] = std::clamp(words[kNumTokens], 0, config_.max_batched_tokens);
  packed_[kPaddedTokens] =
      std::clamp(words[kPaddedTokens], packed_[kNumTokens], config_.max_batched_tokens);
}

// Query offsets, positions from the device's own counts, input ids, KV lengths.
void Runner::Prepare(InFlight*) {
  const int32_t* words = packed_.data();
  const int32_t num_rows = words[kRows];
  int32_t at = 0;
  for (int32_t b = 0; b < num_rows; ++b) {
    const int32_t* entry = words + words[kRows + 1] + b * kRowWords;
    const int32_t row = entry[kRowIndex];
    const int32_t first = counts_[Ix(row)];
    const int32_t known = entry[kRowTokens] - entry[kRowDrafts];
    const int32_t* tokens = tokens_.data() + Ix(row) * Ix(config_.max_model_len);
    const int32_t* drafts =
        config_.async ? drafts_.data() + Ix(row) * kMaxDrafts : entry + kRowFirstDraft;
    query_start_[Ix(b)] = at;
    seq_lens_[Ix(b)] = first + entry[kRowTokens];
    for (int32_t i = 0; i < entry[kRowTokens]; ++i, ++at) {
      positions_[Ix(at)] = first + i;
      input_ids_[Ix(at)] =
          i < known ? tokens[std::min(first + i, config_.max_model_len - 1)] : drafts[i - known];
    }
  }
  query_start_[Ix(num_rows)] = at;
  if (config_.max_encoder > 0) PrepareCross();
  for (int32_t b = num_rows; b < words[kPaddedRows]; ++b) {
    query_start_[Ix(b) + 1] = at;
    seq_lens_[Ix(b)] = 0;
  }
  if (num_rows > 1 && query_start_[1] > 1 && faults_->Strikes(FaultKind::kQueryStartShifted)) {
    --query_start_[1];
  }
}

void Runner::GatherRow(size_t group, int32_t batch_row, int32_t row) {
  std::copy_n(Row(group, row), columns_[group][Ix(row)],
              tables_[group].data() + Ix(batch_row) * Ix(width_[group]));
}

void Runner::MakeTables(InFlight*) {
  const int32_t* words = packed_.data();
  if (faults_->kind() != FaultKind::kNone) stale_table_ = tables_[0];
  for (size_t g = 0; g < config_.groups.size(); ++g) {
    for (int32_t b = 0; b < words[kRows]; ++b) {
      const int32_t* entry = words + words[kRows + 1] + b * kRowWords;
      GatherRow(g, b, entry[kRowIndex]);
      live_[g][Ix(b)] = columns_[g][Ix(entry[kRowIndex])];
    }
    for (int32_t b = words[kRows]; b < words[kPaddedRows]; ++b) {
      std::fill_n(tables_[g].begin() + static_cast<std::ptrdiff_t>(Ix(b) * Ix(width_[g])),
                  width_[g], 0);
      live_[g][Ix(b)] = 0;
    }
    if (config_.groups[g].kind == GroupKind::kCross) {
      if (config_.int32_slots) {
        ComputeCrossSlots(g, &slots32_[g]);
      } else {
        ComputeCrossSlots(g, &slots64_[g]);
      }
    } else if (config_.groups[g].kind == GroupKind::kState) {
      FindStates(g);
    } else if (config_.int32_slots) {
      ComputeSlots(g, &slots32_[g]);
    } else {
      ComputeSlots(g, &slots64_[g]);
    }
  }
  if (faults_->kind() != FaultKind::kNone) BreakTables();
}

// Where each row's state stands and where the step leaves it.
void Runner::FindStates(size_t group) {
  const int32_t* words = packed_.data();
  const GroupConfig& g = config_.groups[group];
  const size_t width = Ix(width_[group]);
  for (int32_t b = 0; b < words[kRows]; ++b) {
    const int32_t* entry = words + words[kRows + 1] + b * kRowWords;
    const int32_t row = entry[kRowIndex];
    const int32_t start = counts_[Ix(row)];
    const int32_t last_column = width_[group] - 1;
    const int32_t* table = tables_[group].data() + Ix(b) * width;
    const int32_t end = std::max(1, start + entry[kRowTokens]);
    const int32_t base = std::min(EngineConfig::StateColumn(g, end), last_column);
    const int32_t place =
        std::min(g.state_mode == StateMode::kAll && start > 0 ? EngineConfig::StateColumn(g, start)
                                                              : places_[group][Ix(row)],
                 last_column);
    state_init_[Ix(b)] = start == 0 ? 1 : 0;
    state_base_[group][Ix(b)] = base;
    state_in_[group][Ix(b)] = table[place];
    state_out_[group][Ix(b)] = table[std::min(base + entry[kRowDrafts], last_column)];
    copied_from_[group][Ix(b)] = kNullBlock;
    if (start > 0 && place != base) states_->Add(State::kStateMoved);
    if (config_.state_copies && g.state_mode == StateMode::kAlign && start > 0 && place != base) {
      const int32_t from = table[place];
      const int32_t to = table[base];
      const bool lost = faults_->Strikes(FaultKind::kStateCopyLost);
      if (!lost && from > 0 && from < config_.num_blocks && to > 0 && to < config_.num_blocks) {
        std::memcpy(memory_.data() + Ix(to) * page_bytes_, memory_.data() + Ix(from) * page_bytes_,
                    page_bytes_);
      }
      copied_from_[group][Ix(b)] = lost ? kNullBlock : from;
      copied_to_[group][Ix(b)] = state_in_[group][Ix(b)] = to;
      states_->Add(State::kStateCopied);
    }
  }
  for (int32_t b = words[kRows]; b < words[kPaddedRows]; ++b) {
    state_in_[group][Ix(b)] = state_out_[group][Ix(b)] = kNullBlock;
    state_init_[Ix(b)] = 0;
  }
  if (faults_->kind() != FaultKind::kNone) BreakStates(group);
}

// Rows of cross-attention: they write the encoder's tokens once and read them always.
void Runner::PrepareCross() {
  const int32_t* words = packed_.data();
  int32_t at = 0;
  for (int32_t b = 0; b < words[kRows]; ++b) {
    const int32_t* entry = words + words[kRows + 1] + b * kRowWords;
    cross_start_[Ix(b)] = at;
    cross_lens_[Ix(b)] = entry[kRowEncoder];
    for (int32_t p = 0; entry[kRowEncodes] != 0 && p < entry[kRowEncoder]; ++p, ++at) {
      cross_positions_[Ix(at)] = p;
    }
  }
  cross_start_[Ix(words[kRows])] = at;
  if (words[kRows] > 0 && cross_lens_[0] > 1 && faults_->Strikes(FaultKind::kCrossLenShort)) {
    --cross_lens_[0];
  }
}

template <typename Slot>
void Runner::ComputeCrossSlots(size_t group, std::vector<Slot>* slots) {
  const int32_t* words = packed_.data();
  const int32_t unit = config_.groups[group].kernel_block_size;
  for (int32_t b = 0; b < words[kRows]; ++b) {
    const int32_t* table = tables_[group].data() + Ix(b) * Ix(width_[group]);
    for (int32_t t = cross_start_[Ix(b)]; t < cross_start_[Ix(b) + 1]; ++t) {
      const int32_t p = cross_positions_[Ix(t)];
      (*slots)[Ix(t)] = static_cast<Slot>(table[p / unit]) * static_cast<Slot>(unit) +
                        static_cast<Slot>(p % unit);
    }
  }
  BreakCross(group, slots);
}

template <typename Slot>
void Runner::ComputeSlots(size_t group, std::vector<Slot>* slots) {
  const int32_t* words = packed_.data();
  const GroupConfig& g = config_.groups[group];
  const int32_t unit = g.kernel_block_size;
  Slot* out = slots->data();
  if (faults_->Waits(FaultKind::kSlotRowStale)) stale_slots_.assign(slots->begin(), slots->end());
  for (int32_t b = 0; b < words[kRows]; ++b) {
    const int32_t* table = tables_[group].data() + Ix(b) * Ix(width_[group]);
    const int32_t begin = query_start_[Ix(b)];
    const int32_t end = query_start_[Ix(b) + 1];
    for (int32_t t = begin; t < end;) {
      const int32_t position = positions_[Ix(t)];
      const int32_t column = std::min(position / unit, width_[group] - 1);
      const int32_t stop = std::min(end, t + unit - position % unit);
      Slot slot = static_cast<Slot>(table[column]) * static_cast<Slot>(unit) +
                  static_cast<Slot>(position % unit);
      for (; t < stop; ++t) out[t] = slot++;
    }
  }
  if (faults_->kind() != FaultKind::kNone) BreakSlots(group, slots);
  if (words[kNumTokens] > 0 && words[kPaddedTokens] > words[kNumTokens] &&
      faults_->Strikes(FaultKind::kSlotPadReal)) {
    out[words[kNumTokens]] = out[words[kNumTokens] - 1];
    return;
  }
  std::fill(out + words[kNumTokens], out + words[kPaddedTokens], static_cast<Slot>(kPadSlot));
}

void Runner::RunModel(InFlight* step) {
  Batch batch;
  batch.step = step->step;
  batch.num_rows = static_cast<int32_t>(step->rows.size());
  batch.num_tokens = step->num_tokens;
  batch.query_start = query_start_.data();
  batch.seq_lens = seq_lens_.data();
  batch.positions = positions_.data();
  batch.input_ids = input_ids_.data();
  for (size_t g = 0; g < config_.groups.size(); ++g) {
    batch.tables[g] = tables_[g].data();
    batch.table_width[g] = width_[g];
    batch.slots[g] = config_.int32_slots ? static_cast<const void*>(slots32_[g].data())
                                         : static_cast<const void*>(slots64_[g].data());
  }
  for (size_t g = 0; g < config_.groups.size(); ++g) {
    batch.state_in[g] = state_in_[g].data();
    batch.state_out[g] = state_out_[g].data();
    batch.state_base[g] = state_base_[g].data();
  }
  batch.state_init = state_init_.data();
  batch.cross_start = cross_start_.data();
  batch.cross_lens = cross_lens_.data();
  batch.int32_slots = config_.int32_slots;
  batch.memory = memory_.data();
  batch.page_bytes = page_bytes_;
  batch.next_tokens = next_tokens_.data();
  batch.rows = &step->truth;
  batch.truth = truth_;
  if (faults_->kind() != FaultKind::kNone) BreakForward(*step);
  for (size_t b = 0; b < step->rows.size(); ++b) {
    RowTruth& truth = step->truth[b];
    truth.request->Truncate(truth.request->settled);
    if (truth.known >= 0) truth.request->Truncate(truth.known);
    truth.base = truth.request->size();
  }
  if (transformer_) {
    transformer_->Forward(batch);
  } else {
    tags_.Forward(batch);
  }
}

// Greedy: drafts stand as far as they are what the model says. Counts and tokens move on.
void Runner::Sample(InFlight* step) {
  const int32_t* words = packed_.data();
  for (int32_t b = 0; b < words[kRows]; ++b) {
    const int32_t* entry = words + words[kRows + 1] + b * kRowWords;
    const int32_t row = entry[kRowIndex];
    const int32_t drafts = entry[kRowDrafts];
    const int32_t* next = next_tokens_.data() + b * (kMaxDrafts + 1);
    const int32_t* ids = input_ids_.data() + query_start_[Ix(b) + 1] - drafts;
    int32_t* out = sampled_.data() + b * kSampledStride;
    int32_t accepted = 0;
    if (entry[kRowSamples] != 0) {
      while (accepted < drafts && ids[accepted] == next[accepted]) ++accepted;
    }
    const int32_t rejected = entry[kRowSamples] != 0 ? drafts - accepted : 0;
    out[0] = entry[kRowSamples] != 0 ? accepted + 1 : 0;
    out[1] = rejected;
    std::copy_n(next, kMaxDrafts + 1, out + 2);
    int32_t& count = counts_[Ix(row)];
    const int32_t known = count + entry[kRowTokens] - drafts;
    for (int32_t i = 0; i < out[0]; ++i) {
      const int32_t position = std::min(known + i, config_.max_model_len - 1);
      tokens_[Ix(row) * Ix(config_.max_model_len) + Ix(position)] = next[i];
    }
    for (size_t g = 0; g < config_.groups.size(); ++g) {
      places_[g][Ix(row)] = state_base_[g][Ix(b)] + drafts - rejected;
    }
    count += entry[kRowTokens] - rejected;
    if (faults_->kind() != FaultKind::kNone) {
      if (faults_->Strikes(FaultKind::kCountNotAdvanced)) count -= entry[kRowTokens] - rejected;
      if (faults_->Strikes(FaultKind::kCountTooFar)) ++count;
      if (rejected > 0 && faults_->Strikes(FaultKind::kRejectionIgnored)) count += rejected;
      count = std::clamp(count, 0, config_.max_model_len - 1);
    }
    if (config_.async && config_.num_drafts > 0) ProposeOnDevice(row);
  }
  Judge(step);
}

// What of the step was said wrongly; the truth takes it for the request's text all the same.
void Runner::Judge(InFlight* step) {
  for (size_t b = 0; b < step->rows.size(); ++b) {
    RowTruth& truth = step->truth[b];
    TruthRequest& request = *truth.request;
    request.Truncate(truth.base);
    if (truth.samples) {
      const int32_t* out = sampled_.data() + b * kSampledStride;
      bool right = !transformer_;  // of which the truth is told when the request has ended
      for (int32_t i = 0; i < out[0]; ++i) {
        if (right && out[2 + i] != truth.expected[Ix(i)]) {
          right = false;
          truth_->Note({WrongKind::kToken, step->step, request.name.serial, 0, request.size(), 0,
                        static_cast<uint64_t>(truth.expected[Ix(i)]),
                        static_cast<uint64_t>(out[2 + i])});
        }
        if (request.size() < config_.max_model_len) request.Append(out[2 + i]);
      }
    }
    request.settled = request.size();
    truth_->Landed(&request);
  }
}

// N-gram drafts from the row's own tokens, as the host makes them where it may wait.
void Runner::ProposeOnDevice(int32_t row) {
  const int32_t* tokens = tokens_.data() + Ix(row) * Ix(config_.max_model_len);
  int32_t* drafts = drafts_.data() + Ix(row) * kMaxDrafts;
  const int32_t size = std::min(counts_[Ix(row)] + 1, config_.max_model_len);
  int32_t made = 0;
  for (int32_t i = size - 3; i >= 0 && made == 0; --i) {
    if (tokens[i] != tokens[size - 2] || tokens[i + 1] != tokens[size - 1]) continue;
    for (int32_t j = i + 2; j < size && made < config_.num_drafts; ++j) drafts[made++] = tokens[j];
  }
  for (; made < config_.num_drafts; ++made) drafts[made] = tokens[std::max(0, size - 1)];
}

void Runner::ClearBatch() {
  const bool writes = faults_->Strikes(FaultKind::kDummyWrites);
  const bool clears = faults_->Strikes(FaultKind::kDummyClearsRows);
  for (size_t g = 0; g < config_.groups.size(); ++g) {
    std::fill(tables_[g].begin(), tables_[g].end(), 0);
    std::fill(state_in_[g].begin(), state_in_[g].end(), kNullBlock);
    std::fill(state_out_[g].begin(), state_out_[g].end(), kNullBlock);
    if (clears) std::fill(rows_[g].begin(), rows_[g].end(), 0);
    if (writes) continue;
    std::fill(slots32_[g].begin(), slots32_[g].end(), -1);
    std::fill(slots64_[g].begin(), slots64_[g].end(), kPadSlot);
  }
}

// The plan as it is now, into pinned memory.
void Runner::Freeze(InFlight* step) {
  FrozenPlan& frozen = step->frozen;
  const size_t rows = Ix(step->padded_rows);
  const size_t tokens = Ix(step->padded_tokens);
  const auto keep = [](auto* to, const auto& from, size_t count) {
    to->assign(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(count));
  };
  keep(&frozen.query_start, query_start_, rows + 1);
  keep(&frozen.seq_lens, seq_lens_, rows);
  keep(&frozen.positions, positions_, tokens);
  keep(&frozen.state_init, state_init_, rows);
  keep(&frozen.cross_start, cross_start_, rows + 1);
  keep(&frozen.cross_lens, cross_lens_, rows);
  const size_t encoder_tokens = Ix(step->num_encoder_tokens);
  keep(&frozen.cross_positions, cross_positions_, encoder_tokens);
  for (size_t g = 0; g < config_.groups.size(); ++g) {
    keep(&frozen.tables[g], tables_[g], rows * Ix(width_[g]));
    keep(&frozen.live[g], live_[g], rows);
    if (config_.groups[g].kind == GroupKind::kState) {
      keep(&frozen.state_in[g], state_in_[g], rows);
      keep(&frozen.state_out[g], state_out_[g], rows);
      keep(&frozen.copied_from[g], copied_from_[g], rows);
      keep(&frozen.copied_to[g], copied_to_[g], rows);
      continue;
    }
    const size_t slots = config_.groups[g].kind == GroupKind::kCross ? encoder_tokens : tokens;
    if (config_.int32_slots) {
      keep(&frozen.slots32[g], slots32_[g], slots);
    } else {
      keep(&frozen.slots64[g], slots64_[g], slots);
    }
  }
}

}  // namespace kvguard::lab
