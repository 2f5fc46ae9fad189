// SPDX-License-Identifier: Apache-2.0
#include "lab/tags.h"

#include <algorithm>
#include <cstring>

namespace kvguard::lab {
namespace {

constexpr size_t kTagBytes = sizeof(uint64_t);
constexpr uint64_t kOutside = 0x6f757473696465;  // what a read outside the pool gives

uint8_t* Place(const Batch& batch, const GroupConfig& group, int64_t slot) {
  return batch.memory + Ix(slot / group.block_size) * batch.page_bytes +
         Ix(slot % group.block_size) * kTagBytes;
}

bool InPool(const EngineConfig& config, const GroupConfig& group, int64_t slot) {
  return slot >= 0 && slot < static_cast<int64_t>(config.num_blocks) * group.block_size;
}

uint64_t Load(const uint8_t* place) {
  uint64_t tag = 0;
  std::memcpy(&tag, place, kTagBytes);
  return tag;
}

uint64_t SumOfEncoder(const Domain& domain, size_t group) {
  uint64_t sum = 0;
  for (int32_t p = 0; p < domain.encoder_count; ++p) {
    sum += TagOf(EncoderContent(domain, p), group, p);
  }
  return sum;
}

}  // namespace

size_t TagsModel::PageBytes(const EngineConfig& config) {
  int32_t most = 0;
  for (const GroupConfig& group : config.groups) {
    most = std::max(most, group.kind == GroupKind::kState ? 1 : group.block_size);
  }
  return Ix(most) * kTagBytes;
}

int32_t TagsModel::Choose(const EngineConfig& config, uint64_t sum, int32_t last_token) {
  const uint64_t hash = Mix(sum);
  if (config.repetitive) {
    if ((hash & 3) != 0) return (last_token * 5 + 3) % 11;
    return static_cast<int32_t>((hash >> 8) % 11);
  }
  return static_cast<int32_t>((hash >> 8) % static_cast<uint64_t>(config.vocabulary));
}

std::vector<int32_t> TagsModel::Continue(const EngineConfig& config, const Domain& domain,
                                         std::span<const int32_t> prompt, int32_t num_tokens) {
  std::vector<int32_t> said;
  std::vector<uint64_t> contents;
  std::array<uint64_t, kMaxGroups> sums{};  // of the tags that the next query reads
  std::array<int32_t, kMaxGroups> first{};
  const auto size = static_cast<int32_t>(prompt.size());
  for (int32_t p = 0; static_cast<int32_t>(said.size()) < num_tokens; ++p) {
    const int32_t token = p < size ? prompt[Ix(p)] : said[Ix(p - size)];
    contents.push_back(
        NextContent(domain, p == 0 ? FirstContent(domain) : contents.back(), p, token));
    uint64_t sum = 0;
    for (size_t g = 0; g < config.groups.size(); ++g) {
      if (config.groups[g].draft) continue;
      if (config.groups[g].kind == GroupKind::kState) {
        sum += Mix(contents.back(), g + 1);
        continue;
      }
      if (config.groups[g].kind == GroupKind::kCross) {
        sum += SumOfEncoder(domain, g);
        continue;
      }
      sums[g] += TagOf(contents.back(), g, p);
      for (; first[g] < EngineConfig::FirstRead(config.groups[g], p); ++first[g]) {
        sums[g] -= TagOf(contents[Ix(first[g])], g, first[g]);
      }
      sum += sums[g];
    }
    if (p + 1 >= size) said.push_back(Choose(config, sum, token));
  }
  return said;
}

void TagsModel::Forward(const Batch& batch) {
  for (int32_t row = 0; row < batch.num_rows; ++row) Write(batch, row);
  for (int32_t row = 0; row < batch.num_rows; ++row) Read(batch, row);
}

void TagsModel::Write(const Batch& batch, int32_t row) {
  const RowTruth& truth = (*batch.rows)[Ix(row)];
  TruthRequest& request = *truth.request;
  for (size_t g = 0; g < config_.groups.size(); ++g) {
    if (config_.groups[g].kind == GroupKind::kCross) WriteCross(batch, row, g);
  }
  const int32_t begin = batch.query_start[row];
  const int32_t end = batch.query_start[row + 1];
  for (int32_t t = begin; t < end; ++t) {
    const int32_t position = batch.positions[t];
    const int32_t token = batch.input_ids[t];
    // Drafts continue the request until the sampler has judged them.
    if (position == request.size()) request.Append(token);
    const bool right =
        position >= 0 && position < request.size() && request.tokens[Ix(position)] == token;
    for (size_t g = 0; g < config_.groups.size(); ++g) {
      const GroupConfig& group = config_.groups[g];
      if (group.draft || group.kind == GroupKind::kState || group.kind == GroupKind::kCross) {
        continue;
      }
      int64_t slot = batch.SlotOf(g, t);
      const int32_t column = position / group.block_size - truth.bound_first[g];
      const bool bound = column >= 0 && column < static_cast<int32_t>(truth.bound[g].size());
      const int64_t wanted =
          bound ? static_cast<int64_t>(truth.bound[g][Ix(column)]) * group.block_size +
                      position % group.block_size
                : kPadSlot;
      if (slot != wanted) {
        batch.truth->Note({WrongKind::kWrite, batch.step, request.name.serial, g, position, slot,
                           static_cast<uint64_t>(wanted), static_cast<uint64_t>(slot)});
      }
      if (!InPool(config_, group, slot)) continue;  // the pad slot writes nothing
      if (t == end - 1 && faults_->Strikes(FaultKind::kKernelSkipsWrite)) continue;
      if (t == end - 1 && faults_->Strikes(FaultKind::kKernelWritesBeside)) slot ^= 1;
      const uint64_t tag = right ? request.tags[g][Ix(position)]
                                 : TagOf(Mix(static_cast<uint64_t>(token), 0x6261), g, position);
      std::memcpy(Place(batch, group, slot), &tag, kTagBytes);
    }
  }
}

// True where positions [first, end) all hold what they must.
bool TagsModel::ReadGroup(const Batch& batch, int32_t row, size_t group, int32_t first, int32_t end,
                          const TruthRequest* of) {
  const GroupConfig& g = config_.groups[group];
  const TruthRequest& request = *of;
  const int32_t unit = g.kernel_block_size;
  const int32_t parts = g.block_size / unit;
  const int32_t* table = batch.tables[group] + Ix(row) * Ix(batch.table_width[group]);
  bool all_right = true;
  for (int32_t position = first; position < end;) {
    const int32_t column = position / unit;
    const int32_t stop = std::min(end, (column + 1) * unit);
    const int32_t entry = column < batch.table_width[group] ? table[column] : -1;
    const bool inside = entry >= 0 && entry < config_.num_blocks * parts;
    const uint8_t* place = inside ? batch.memory + Ix(entry / parts) * batch.page_bytes +
                                        Ix(entry % parts * unit + position % unit) * kTagBytes
                                  : nullptr;
    const int32_t known = std::min(stop, request.size());
    if (inside && known == stop &&
        std::memcmp(place, &request.tags[group][Ix(position)], Ix(stop - position) * kTagBytes) ==
            0) {
      position = stop;
      continue;
    }
    for (; position < stop; ++position) {
      const uint64_t found = inside ? Load(place) : kOutside;
      const uint64_t wanted = position < request.size() ? request.tags[group][Ix(position)] : 0;
      if (found != wanted) {
        all_right = false;
        batch.truth->Note({WrongKind::kRead, batch.step, request.name.serial, group, position,
                           inside ? static_cast<int64_t>(entry) * unit + position % unit : -1,
                           wanted, found});
      }
      if (inside) place += kTagBytes;
    }
  }
  return all_right;
}

void TagsModel::StoreState(const Batch& batch, size_t group, int32_t block,
                           uint64_t content) const {
  if (block <= kNullBlock || block >= config_.num_blocks) return;
  content ^= Mix(group + 1);
  std::memcpy(batch.memory + Ix(block) * batch.page_bytes, &content, kTagBytes);
}

// The draft model keeps the content of the request's tokens and, behind them, of its own drafts.
// Those stand at the request's end until the next step's sampler takes them away.
void TagsModel::WriteDraft(const Batch& batch, int32_t row, TruthRequest* request, bool appends) {
  for (int32_t t = batch.query_start[row]; t < batch.query_start[row + 1]; ++t) {
    const int32_t position = batch.positions[t];
    const int32_t token = batch.input_ids[t];
    if (appends && position == request->size()) request->Append(token);
    const bool right = position < request->size() && request->tokens[Ix(position)] == token;
    for (size_t g = 0; g < config_.groups.size(); ++g) {
      if (!config_.groups[g].draft) continue;
      const int64_t slot = batch.SlotOf(g, t);
      if (!InPool(config_, config_.groups[g], slot)) continue;
      const uint64_t tag = right ? request->tags[g][Ix(position)]
                                 : TagOf(Mix(static_cast<uint64_t>(token), 0x647261), g, position);
      std::memcpy(Place(batch, config_.groups[g], slot), &tag, kTagBytes);
    }
  }
}

void TagsModel::ForwardDraft(const Batch& batch, int32_t pass, const std::vector<int32_t>& rows) {
  for (int32_t row = 0; row < batch.num_rows; ++row) {
    WriteDraft(batch, row, (*batch.rows)[Ix(pass == 0 ? row : rows[Ix(row)])].request, pass > 0);
  }
  for (int32_t row = 0; row < batch.num_rows; ++row) {
    const RowTruth& truth = (*batch.rows)[Ix(pass == 0 ? row : rows[Ix(row)])];
    int32_t end = batch.seq_lens[row];
    // What stands at the end of the longest request is written over and over.
    if (end >= config_.max_model_len) continue;
    // Of pass 0 what stands behind the last accepted token does not count.
    if (pass == 0 && truth.samples) end = std::min(end, truth.request->size() - 1);
    for (size_t g = 0; g < config_.groups.size(); ++g) {
      if (config_.groups[g].draft) ReadGroup(batch, row, g, 0, end, truth.request);
    }
  }
}

void TagsModel::WriteCross(const Batch& batch, int32_t row, size_t group) {
  const GroupConfig& g = config_.groups[group];
  const RowTruth& truth = (*batch.rows)[Ix(row)];
  const TruthRequest& request = *truth.request;
  const int32_t begin = batch.cross_start[row];
  for (int32_t t = begin; t < batch.cross_start[row + 1]; ++t) {
    const int32_t position = t - begin;
    const int64_t slot = batch.SlotOf(group, t);
    const auto column = Ix(position / g.block_size);
    const int64_t wanted =
        column < truth.bound[group].size()
            ? int64_t{truth.bound[group][column]} * g.block_size + position % g.block_size
            : kPadSlot;
    if (slot != wanted) {
      batch.truth->Note({WrongKind::kWrite, batch.step, request.name.serial, group, position, slot,
                         static_cast<uint64_t>(wanted), static_cast<uint64_t>(slot)});
    }
    if (!InPool(config_, g, slot)) continue;
    const uint64_t tag = TagOf(EncoderContent(request.domain, position), group, position);
    std::memcpy(Place(batch, g, slot), &tag, kTagBytes);
  }
}

// True where all of the encoder's tokens are there, and no other.
bool TagsModel::ReadCross(const Batch& batch, int32_t row, size_t group) {
  const GroupConfig& g = config_.groups[group];
  const TruthRequest& request = *(*batch.rows)[Ix(row)].request;
  const int32_t* table = batch.tables[group] + Ix(row) * Ix(batch.table_width[group]);
  const int32_t length = batch.cross_lens[row];
  bool right = length == request.domain.encoder_count;
  if (!right) {
    batch.truth->Note({WrongKind::kRead, batch.step, request.name.serial, group, length, -1,
                       static_cast<uint64_t>(request.domain.encoder_count),
                       static_cast<uint64_t>(length)});
  }
  cross_[group] = 0;
  for (int32_t p = 0; p < length; ++p) {
    const int64_t slot =
        int64_t{table[p / g.kernel_block_size]} * g.kernel_block_size + p % g.kernel_block_size;
    const uint64_t found = InPool(config_, g, slot) ? Load(Place(batch, g, slot)) : kOutside;
    const uint64_t wanted = TagOf(EncoderContent(request.domain, p), group, p);
    cross_[group] += found;
    if (found == wanted) continue;
    right = false;
    batch.truth->Note(
        {WrongKind::kRead, batch.step, request.name.serial, group, p, slot, wanted, found});
  }
  return right;
}

// A recurrent group: from the state before to the states that the step leaves. What a state holds
// is the content of all tokens so far, so a wrong one stays wrong. True where the one before was
// right.
bool TagsModel::StepStates(const Batch& batch, int32_t row, size_t group) {
  const GroupConfig& g = config_.groups[group];
  const RowTruth& truth = (*batch.rows)[Ix(row)];
  TruthRequest& request = *truth.request;
  const int32_t begin = batch.query_start[row];
  const int32_t num_tokens = batch.query_start[row + 1] - begin;
  const int32_t start = std::max(0, batch.seq_lens[row] - num_tokens);
  const int32_t in = batch.state_in[group][row];
  bool right = true;
  uint64_t content = FirstContent(request.domain);
  if (batch.state_init[row] == 0) {
    const bool inside = in >= 0 && in < config_.num_blocks;
    content = inside ? Load(batch.memory + Ix(in) * batch.page_bytes) ^ Mix(group + 1) : kOutside;
  }
  const uint64_t wanted = start == 0                ? FirstContent(request.domain)
                          : start <= request.size() ? request.contents[Ix(start) - 1]
                                                    : 0;
  if (content != wanted) {
    right = false;
    batch.truth->Note(
        {WrongKind::kRead, batch.step, request.name.serial, group, start, in, wanted, content});
  }
  const auto bound = [&](int32_t column) {
    return column < static_cast<int32_t>(truth.bound[group].size()) ? truth.bound[group][Ix(column)]
                                                                    : -1;
  };
  states_[group].clear();
  for (int32_t i = 0; i < num_tokens; ++i) {
    content = NextContent(request.domain, content, start + i, batch.input_ids[begin + i]);
    states_[group].push_back(content);
    const Batch::StatePlace to = batch.StatePlaceOf(g, group, row, i, num_tokens);
    if (to.column < 0) continue;
    if (to.block != bound(to.column)) {
      batch.truth->Note({WrongKind::kWrite, batch.step, request.name.serial, group, to.column,
                         to.block, static_cast<uint64_t>(bound(to.column)),
                         static_cast<uint64_t>(to.block)});
    }
    StoreState(batch, group, to.block, content);
  }
  return right;
}

uint64_t TagsModel::SumRead(const Batch& batch, int32_t row, size_t group, int32_t first,
                            int32_t last) const {
  const GroupConfig& g = config_.groups[group];
  const int32_t* table = batch.tables[group] + Ix(row) * Ix(batch.table_width[group]);
  uint64_t sum = 0;
  for (int32_t p = first; p <= last; ++p) {
    const int32_t column = p / g.kernel_block_size;
    const int32_t entry = column < batch.table_width[group] ? table[column] : -1;
    const int64_t slot =
        static_cast<int64_t>(entry) * g.kernel_block_size + p % g.kernel_block_size;
    sum += InPool(config_, g, slot) ? Load(Place(batch, g, slot)) : kOutside;
  }
  return sum;
}

void TagsModel::Read(const Batch& batch, int32_t row) {
  RowTruth& truth = (*batch.rows)[Ix(row)];
  TruthRequest& request = *truth.request;
  const int32_t begin = batch.query_start[row];
  const int32_t num_tokens = batch.query_start[row + 1] - begin;
  if (num_tokens <= 0) return;
  // Attention takes the last query token for the last key.
  const int32_t end = batch.seq_lens[row];
  const int32_t last = batch.positions[begin + num_tokens - 1];
  bool right = end == last + 1;
  if (!right) {
    batch.truth->Note({WrongKind::kRead, batch.step, request.name.serial, 0, last, -1,
                       static_cast<uint64_t>(last + 1), static_cast<uint64_t>(end)});
  }
  const int32_t start = std::max(0, end - num_tokens);
  for (size_t g = 0; g < config_.groups.size(); ++g) {
    if (config_.groups[g].draft) continue;
    if (config_.groups[g].kind == GroupKind::kState) {
      right = StepStates(batch, row, g) && right;
      continue;
    }
    if (config_.groups[g].kind == GroupKind::kCross) {
      right = ReadCross(batch, row, g) && right;
      continue;
    }
    right = ReadGroup(batch, row, g, EngineConfig::FirstRead(config_.groups[g], start), end,
                      &request) &&
            right;
  }
  if (!truth.samples) return;
  // As many logits as the scheduler asked for, whatever the batch holds.
  const int32_t logits = std::min(truth.num_drafts + 1, num_tokens);
  for (int32_t i = 0; i < logits; ++i) {
    const int32_t query = num_tokens - logits + i;
    const int32_t position = start + query;  // what attention takes it for
    uint64_t sum = 0;
    for (size_t g = 0; g < config_.groups.size(); ++g) {
      if (config_.groups[g].draft) continue;
      if (config_.groups[g].kind == GroupKind::kState) {
        sum += Mix(states_[g][Ix(query)], g + 1);
        continue;
      }
      if (config_.groups[g].kind == GroupKind::kCross) {
        sum += cross_[g];
        continue;
      }
      const int32_t first = EngineConfig::FirstRead(config_.groups[g], position);
      sum += right ? request.Sum(g, first, position) : SumRead(batch, row, g, first, position);
    }
    batch.next_tokens[row * (kMaxDrafts + 1) + i] =
        Choose(config_, sum, batch.input_ids[begin + query]);
    const int32_t wanted = truth.base - 1 + i;
    if (wanted >= request.size()) continue;
    uint64_t right_sum = 0;
    for (size_t g = 0; g < config_.groups.size(); ++g) {
      const GroupConfig& group = config_.groups[g];
      if (group.draft) continue;
      right_sum += group.kind == GroupKind::kState ? Mix(request.contents[Ix(wanted)], g + 1)
                   : group.kind == GroupKind::kCross
                       ? SumOfEncoder(request.domain, g)
                       : request.Sum(g, EngineConfig::FirstRead(group, wanted), wanted);
    }
    truth.expected[Ix(i)] = Choose(config_, right_sum, request.tokens[Ix(wanted)]);
  }
}

}  // namespace kvguard::lab
