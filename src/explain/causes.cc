// SPDX-License-Identifier: Apache-2.0
#include "explain/causes.h"

#include <algorithm>
#include <functional>

#include "explain/naming.h"

namespace kvguard::explain {
namespace {

using geometry::Group;
using mirror::Row;
using rules::Context;
using rules::RowState;

// The row of one finding, as it was planned and as it is bound.
struct Case {
  Context& context;
  kvguard_finding& finding;
  const Group& group;
  const step::GroupPlanView& view;
  const RowState& row;
  const std::vector<int32_t>& bound;  // entries of the row's own request
};

int64_t BlockIn(const std::vector<int32_t>& entries, const Group& group, int64_t column) {
  const int64_t per_block = group.EntriesPerBlock();
  if (column < 0 || (column + 1) * per_block > static_cast<int64_t>(entries.size()))
    return KVGUARD_NONE;
  const int64_t entry = entries[static_cast<size_t>(column * per_block)];
  return entry < 0 ? KVGUARD_NONE : entry / per_block;
}

int64_t SlotIn(const Case& c, const std::vector<int32_t>& entries, int64_t position,
               int64_t columns_on = 0) {
  if (!c.group.IsLocal(position)) return c.context.layout().pad_slot;
  const int64_t block = BlockIn(entries, c.group, c.group.ColumnOf(position) + columns_on);
  return block == KVGUARD_NONE ? KVGUARD_NONE : c.group.SlotOf(block, position);
}

// Whether slot_of(i) gives every observed slot of the row, i counting its tokens.
template <typename SlotOf>
bool Reproduces(const Case& c, SlotOf slot_of) {
  if (c.row.num_tokens <= 0) return false;
  for (int64_t i = 0; i < c.row.num_tokens; ++i) {
    if (slot_of(i) != c.view.slots[c.row.first_token + static_cast<uint64_t>(i)]) return false;
  }
  return true;
}

const std::vector<int32_t>* EntriesOf(const Case& c, uint64_t key) {
  const std::vector<Row>* rows = c.context.mirror->RowsOf(key);
  return rows == nullptr ? nullptr : &(*rows)[c.group.id].entries;
}

void SlotRowOf(Case& c) {
  Tried(c.finding, KVGUARD_CAUSE_ROW_OF);
  for (const RowState& other : *c.context.rows) {
    if (other.request == mirror::kNoRequest || other.key == c.row.key) continue;
    const auto& entries = c.context.mirror->at(other.request).rows[c.group.id].entries;
    const auto with = [&](int64_t start) {
      return Reproduces(c, [&](int64_t i) { return SlotIn(c, entries, start + i); });
    };
    if (with(c.row.start) || with(other.start)) Name(c.finding, KVGUARD_CAUSE_ROW_OF, other.key);
  }
}

// The slot mapping of the step before, at the same place of the same buffer.
void SlotPreviousStep(Case& c) {
  const auto& previous = c.context.mirror->previous_rows();
  if (previous.empty()) return;
  Tried(c.finding, KVGUARD_CAUSE_PREVIOUS_STEP);
  const auto slot_then = [&](uint64_t token) -> int64_t {
    uint64_t first = 0;
    for (const mirror::ExecutedRow& row : previous) {
      const auto n = static_cast<uint64_t>(row.num_tokens);
      if (token < first + n) {
        const auto* entries = EntriesOf(c, row.key);
        return entries == nullptr || row.start == KVGUARD_NONE
                   ? KVGUARD_NONE
                   : SlotIn(c, *entries, row.start + static_cast<int64_t>(token - first));
      }
      first += n;
    }
    return KVGUARD_NONE;
  };
  if (Reproduces(
          c, [&](int64_t i) { return slot_then(c.row.first_token + static_cast<uint64_t>(i)); })) {
    Name(c.finding, KVGUARD_CAUSE_PREVIOUS_STEP, c.context.mirror->previous_step());
  }
}

void SlotOffByOneBlock(Case& c) {
  Tried(c.finding, KVGUARD_CAUSE_OFF_BY_ONE_BLOCK);
  for (const int64_t by : {1, -1}) {
    const bool fits =
        Reproduces(c, [&](int64_t i) { return SlotIn(c, c.bound, c.row.start + i, by); });
    if (fits) Name(c.finding, KVGUARD_CAUSE_OFF_BY_ONE_BLOCK, static_cast<uint64_t>(by));
  }
}

// Of a sharded group: the slots that it has with `k` slots a block of the table (the row's blocks
// cut into such, where k is smaller), with another rank, or with another interleave.
bool SharesLike(const Case& c, int64_t k, int64_t ranks, int64_t rank, int64_t interleave) {
  const int64_t cut = c.group.slots_per_block / k;
  return Reproduces(c, [&](int64_t i) {
    const int64_t position = c.row.start + i;
    const int64_t within = position % (k * ranks);
    if (within / interleave % ranks != rank) return c.context.layout().pad_slot;
    const int64_t index = position / (k * ranks);
    const int64_t block = BlockIn(c.bound, c.group, index / cut);
    if (block == KVGUARD_NONE) return int64_t{KVGUARD_NONE};
    return (block * cut + index % cut) * k + within / (interleave * ranks) * interleave +
           within % interleave;
  });
}

void SlotShares(Case& c) {
  const Group& g = c.group;
  Tried(c.finding, KVGUARD_CAUSE_BLOCK_SIZE);
  if (g.kernel_per_block > 1 && SharesLike(c, g.kernel_block_size, g.ranks, g.rank, g.interleave)) {
    Name(c.finding, KVGUARD_CAUSE_BLOCK_SIZE, static_cast<uint64_t>(g.kernel_block_size));
  }
  Tried(c.finding, KVGUARD_CAUSE_OTHER_RANK);
  for (int64_t rank = 0; rank < g.ranks; ++rank) {
    if (rank != g.rank && SharesLike(c, g.slots_per_block, g.ranks, rank, g.interleave))
      Name(c.finding, KVGUARD_CAUSE_OTHER_RANK, static_cast<uint64_t>(rank));
  }
  Tried(c.finding, KVGUARD_CAUSE_INTERLEAVE);
  if (SharesLike(c, g.slots_per_block, 1, 0, g.slots_per_block))
    Name(c.finding, KVGUARD_CAUSE_INTERLEAVE, 0);
  for (int64_t interleave = 1; interleave <= g.slots_per_block; ++interleave) {
    if (interleave == g.interleave || g.slots_per_block % interleave != 0) continue;
    if (SharesLike(c, g.slots_per_block, g.ranks, g.rank, interleave))
      Name(c.finding, KVGUARD_CAUSE_INTERLEAVE, static_cast<uint64_t>(interleave));
  }
}

void SlotBlockSize(Case& c) {
  if (c.group.IsSharded()) return SlotShares(c);
  Tried(c.finding, KVGUARD_CAUSE_BLOCK_SIZE);
  const int64_t right = c.group.block_size;
  std::vector<int64_t> sizes = {c.group.kernel_block_size, right / 2, right * 2, 16, 32, 64, 128};
  for (const Group& other : c.context.layout().groups) sizes.push_back(other.block_size);
  for (const int64_t size : sizes) {
    if (size <= 0 || size == right) continue;
    // The wrong size in the column, in the offset, or in both.
    const auto with = [&](int64_t column_size, int64_t slot_size) {
      return Reproduces(c, [&](int64_t i) {
        const int64_t position = c.row.start + i;
        const int64_t block = BlockIn(c.bound, c.group, position / column_size);
        return block == KVGUARD_NONE ? KVGUARD_NONE : block * slot_size + position % slot_size;
      });
    };
    if (with(size, size) || with(right, size) || with(size, right)) {
      Name(c.finding, KVGUARD_CAUSE_BLOCK_SIZE, static_cast<uint64_t>(size));
    }
  }
}

// Whether the plan starts the row somewhere else, at a position that can be counted on from.
bool StartsElsewhere(const Case& c) {
  return c.row.seen_start != c.row.start && c.row.seen_start >= 0 &&
         c.row.seen_start <= INT64_MAX - c.row.num_tokens;
}

// The slots that the plan's own table row and start give: residue behind the bound columns
// included, as far as the row's length says that attention reads.
bool FollowsShownRow(const Case& c) {
  if (!c.view.table.present() || !StartsElsewhere(c) || c.group.IsSharded() || c.group.IsScaled())
    return false;
  const auto b = static_cast<uint64_t>(c.finding.row);
  const step::Ints shown = c.view.table.Row(b);
  const step::Ints& lens = c.context.plan->seq_lens;
  const int64_t needed =
      lens.present() && lens[b] > 0 ? geometry::BlocksFor(lens[b], c.group.TokensPerEntry()) : 0;
  const int64_t readable = std::min(static_cast<int64_t>(shown.count),
                                    std::max(needed, static_cast<int64_t>(c.bound.size())));
  return Reproduces(c, [&](int64_t i) {
    const int64_t position = c.row.seen_start + i;
    const int64_t entry = position / c.group.TokensPerEntry();
    if (entry >= readable) return int64_t{KVGUARD_NONE};
    const int64_t id = shown[static_cast<uint64_t>(entry)];
    const int64_t per_entry = c.group.SlotsPerEntry();
    if (id < 0 || id >= c.group.num_slots / per_entry) return int64_t{KVGUARD_NONE};
    return id * per_entry + position % per_entry;
  });
}

// The slots that the plan's start gives where it runs past the bound columns into what an earlier
// request left in the runner's own row. 0 if no released request's row gives them.
uint64_t RunsIntoResidueOf(const Case& c) {
  if (!StartsElsewhere(c)) return 0;
  const int64_t bound = static_cast<int64_t>(c.bound.size()) / c.group.EntriesPerBlock();
  const int64_t last = (c.row.seen_start + c.row.num_tokens - 1) / c.group.block_size;
  if (last < bound) return 0;
  const auto& released = c.context.mirror->released();
  for (auto it = released.rbegin(); it != released.rend(); ++it) {
    const std::vector<int32_t>& left = it->rows[c.group.id].entries;
    const bool fits = Reproduces(c, [&](int64_t i) {
      const int64_t position = c.row.seen_start + i;
      return SlotIn(c, position / c.group.block_size < bound ? c.bound : left, position);
    });
    if (fits) return it->key;
  }
  return 0;
}

void SlotFrontier(Case& c) {
  Tried(c.finding, KVGUARD_CAUSE_STALE_FRONTIER);
  Tried(c.finding, KVGUARD_CAUSE_OPTIMISTIC_FRONTIER);
  const uint64_t residue_of = RunsIntoResidueOf(c);
  if (residue_of != 0) Name(c.finding, KVGUARD_CAUSE_EARLIER_OWNER, residue_of);
  if (residue_of != 0 || FollowsShownRow(c)) {
    Name(c.finding,
         c.row.seen_start < c.row.start ? KVGUARD_CAUSE_STALE_FRONTIER
                                        : KVGUARD_CAUSE_OPTIMISTIC_FRONTIER,
         static_cast<uint64_t>(c.row.seen_start));
  }
  const int64_t first = c.view.slots[c.row.first_token];
  if (!c.group.IsSlot(first)) return;
  const int64_t block = c.group.BlockOfSlot(first);
  const int64_t columns = static_cast<int64_t>(c.bound.size()) / c.group.EntriesPerBlock();
  for (int64_t column = 0; column < columns; ++column) {
    if (BlockIn(c.bound, c.group, column) != block) continue;
    const int64_t start = column * c.group.block_size + c.group.WithinColumn(first);
    if (start == c.row.start) continue;
    if (Reproduces(c, [&](int64_t i) { return SlotIn(c, c.bound, start + i); })) {
      Name(c.finding,
           start < c.row.start ? KVGUARD_CAUSE_STALE_FRONTIER : KVGUARD_CAUSE_OPTIMISTIC_FRONTIER,
           static_cast<uint64_t>(start));
    }
  }
}

// The request that wrote a block before its present owner (or last, where it has none).
uint64_t EarlierOwner(const Case& c, int64_t block) {
  if (!c.context.mirror->InPool(c.group, block)) return 0;
  return c.context.mirror->BlockOf(c.group, block).last_owner;
}

// Residue: each wrong value names a block that one and the same request held before, in that very
// column.
template <typename Columns>
void NameEarlierOwner(Case& c, Columns wrong_blocks) {
  Tried(c.finding, KVGUARD_CAUSE_EARLIER_OWNER);
  uint64_t owner = 0;
  bool all = true;
  size_t count = 0;
  wrong_blocks([&](int64_t column, int64_t block) {
    ++count;
    const uint64_t earlier = EarlierOwner(c, block);
    if (count == 1) owner = earlier;
    if (earlier == 0 || earlier != owner || earlier == c.row.key) {
      all = false;
      return;
    }
    const auto* entries = EntriesOf(c, earlier);
    if (entries == nullptr || BlockIn(*entries, c.group, column) != block) all = false;
  });
  if (all && count > 0) Name(c.finding, KVGUARD_CAUSE_EARLIER_OWNER, owner);
}

void ExplainSlots(Case& c) {
  if (!c.view.slots.present() || !c.row.tokens_usable) return;
  SlotRowOf(c);
  SlotPreviousStep(c);
  SlotOffByOneBlock(c);
  SlotBlockSize(c);
  SlotFrontier(c);
  NameEarlierOwner(c, [&](auto&& each) {
    for (int64_t i = 0; i < c.row.num_tokens; ++i) {
      const int64_t position = c.row.start + i;
      const int64_t slot = c.view.slots[c.row.first_token + static_cast<uint64_t>(i)];
      if (slot == SlotIn(c, c.bound, position)) continue;
      each(position / c.group.block_size,
           !c.group.IsSlot(slot) ? KVGUARD_NONE : c.group.BlockOfSlot(slot));
    }
  });
}

// Whether the entries, read as a row, are the ones shown. Only the columns that this request has
// bound are looked at, and a longer or shorter row of the other request must cover them.
bool ShowsRow(const Case& c, const step::Ints& shown, const std::vector<int32_t>& entries) {
  const size_t n = std::min<size_t>(c.bound.size(), c.view.table.columns);
  bool distinct = false;
  for (size_t j = 0; j < n; ++j) {
    if (j >= entries.size()) return false;
    if (shown[j] != entries[j]) return false;
    distinct = distinct || entries[j] != c.bound[j];
  }
  return distinct;
}

// A row that is shorter than ours explains what it can show: the columns behind its end hold
// residue.
bool ShowsPrefixOf(const Case& c, const step::Ints& shown, const std::vector<int32_t>& entries) {
  const size_t n =
      std::min({c.bound.size(), static_cast<size_t>(c.view.table.columns), entries.size()});
  bool distinct = false;
  for (size_t j = 0; j < n; ++j) {
    if (shown[j] != entries[j]) return false;
    distinct = distinct || entries[j] != c.bound[j];
  }
  return distinct;
}

void ExplainTable(Case& c) {
  if (!c.view.table.present()) return;
  const size_t last_append = c.context.mirror->at(c.row.request).rows[c.group.id].last_append;
  if (c.finding.code == rules::kTableColumnsMismatch) {
    Tried(c.finding, KVGUARD_CAUSE_LOST_APPEND);
    if (c.finding.observed == static_cast<int64_t>(last_append) && last_append < c.bound.size()) {
      Name(c.finding, KVGUARD_CAUSE_LOST_APPEND, last_append);
    }
    return;
  }
  const step::Ints shown = c.view.table.Row(static_cast<uint64_t>(c.finding.row));
  const size_t n = std::min<size_t>(c.bound.size(), c.view.table.columns);

  Tried(c.finding, KVGUARD_CAUSE_ROW_OF);
  for (const bool whole : {true, false}) {
    for (const RowState& other : *c.context.rows) {
      if (other.request == mirror::kNoRequest || other.key == c.row.key) continue;
      const auto& entries = c.context.mirror->at(other.request).rows[c.group.id].entries;
      if (whole ? ShowsRow(c, shown, entries) : ShowsPrefixOf(c, shown, entries)) {
        Name(c.finding, KVGUARD_CAUSE_ROW_OF, other.key);
      }
    }
  }

  const auto& previous = c.context.mirror->previous_rows();
  if (!previous.empty()) {
    Tried(c.finding, KVGUARD_CAUSE_PREVIOUS_STEP);
    const auto b = static_cast<size_t>(c.finding.row);
    if (b < previous.size() && previous[b].key != c.row.key) {
      const auto* entries = EntriesOf(c, previous[b].key);
      if (entries != nullptr &&
          (ShowsRow(c, shown, *entries) || ShowsPrefixOf(c, shown, *entries))) {
        Name(c.finding, KVGUARD_CAUSE_PREVIOUS_STEP, c.context.mirror->previous_step());
      }
    }
  }

  Tried(c.finding, KVGUARD_CAUSE_OFF_BY_ONE_BLOCK);
  const int64_t step_entries = c.group.EntriesPerBlock();
  for (const int64_t by : {step_entries, -step_entries}) {
    bool fits = n > 0;
    bool any = false;
    for (size_t j = 0; j < n && fits; ++j) {
      const int64_t from = static_cast<int64_t>(j) + by;
      if (from < 0 || from >= static_cast<int64_t>(c.bound.size()))
        continue;  // nothing to compare with
      any = true;
      fits = shown[j] == c.bound[static_cast<size_t>(from)];
    }
    if (fits && any)
      Name(c.finding, KVGUARD_CAUSE_OFF_BY_ONE_BLOCK, static_cast<uint64_t>(by > 0 ? 1 : -1));
  }

  Tried(c.finding, KVGUARD_CAUSE_BLOCK_SIZE);
  if (c.group.kernel_per_block > 1) {
    // Kernel blocks where blocks belong, or the reverse.
    bool scaled = n > 0;
    for (size_t j = 0; j < n && scaled; ++j) {
      scaled = c.group.table_unit == KVGUARD_UNIT_BLOCK
                   ? shown[j] == c.bound[j / static_cast<size_t>(c.group.kernel_per_block)] *
                                         c.group.kernel_per_block +
                                     static_cast<int64_t>(j) % c.group.kernel_per_block
                   : (j * static_cast<size_t>(c.group.kernel_per_block) >= c.bound.size() ||
                      shown[j] == c.bound[j * static_cast<size_t>(c.group.kernel_per_block)] /
                                      c.group.kernel_per_block);
    }
    if (scaled) {
      Name(
          c.finding, KVGUARD_CAUSE_BLOCK_SIZE,
          static_cast<uint64_t>(c.group.table_unit == KVGUARD_UNIT_BLOCK ? c.group.kernel_block_size
                                                                         : c.group.block_size));
    }
  }

  NameEarlierOwner(c, [&](auto&& each) {
    for (size_t j = 0; j < n; ++j) {
      if (shown[j] == c.bound[j]) continue;
      each(static_cast<int64_t>(j) / c.group.EntriesPerBlock(),
           shown[j] < 0 ? KVGUARD_NONE : shown[j] / c.group.EntriesPerBlock());
    }
  });

  // Right up to the last binding and wrong from there on: that append did not arrive.
  const size_t last = last_append;
  Tried(c.finding, KVGUARD_CAUSE_LOST_APPEND);
  // Residue is nobody's: where a live request's block stands, something put it there.
  const bool residue = (c.finding.flags & KVGUARD_FINDING_HAS_VICTIM) == 0;
  if (residue && last > 0 && last < c.bound.size()) {
    bool right = true;
    bool wrong = true;
    for (size_t j = 0; j < n; ++j) {
      if (j < last) {
        right = right && shown[j] == c.bound[j];
      } else {
        wrong = wrong && shown[j] != c.bound[j];
      }
    }
    if (right && wrong && n > last) Name(c.finding, KVGUARD_CAUSE_LOST_APPEND, last);
  }
}

void ExplainFrontier(Context& context, kvguard_finding& finding) {
  Tried(finding, KVGUARD_CAUSE_ROW_OF);
  Tried(finding, KVGUARD_CAUSE_STALE_FRONTIER);
  Tried(finding, KVGUARD_CAUSE_OPTIMISTIC_FRONTIER);
  const RowState& row = (*context.rows)[static_cast<size_t>(finding.row)];
  // Another row's frontier explains this one only together with that row's table: see the table
  // finding.
  for (const kvguard_finding& other : *context.findings) {
    if (other.row != finding.row || other.code / 100 != KVGUARD_FAMILY_TABLE) continue;
    for (uint32_t i = 0; i < other.num_causes; ++i) {
      if (other.causes[i].kind != KVGUARD_CAUSE_ROW_OF) continue;
      const mirror::Request* source = context.mirror->FindRequest(other.causes[i].arg);
      if (source != nullptr && source->start == row.seen_start)
        Name(finding, KVGUARD_CAUSE_ROW_OF, source->key);
    }
  }
  if (finding.num_causes > 0) return;
  Name(
      finding,
      row.seen_start < row.start ? KVGUARD_CAUSE_STALE_FRONTIER : KVGUARD_CAUSE_OPTIMISTIC_FRONTIER,
      static_cast<uint64_t>(row.seen_start));
}

}  // namespace

void NameCauses(Context& context) {
  const step::PlanView& plan = *context.plan;
  const auto each = [&](auto&& want) {
    for (kvguard_finding& finding : *context.findings) {
      if (finding.row < 0 || static_cast<uint64_t>(finding.row) >= context.rows->size()) continue;
      const RowState& row = (*context.rows)[static_cast<size_t>(finding.row)];
      if (row.request != mirror::kNoRequest) want(finding, row);
    }
  };
  each([&](kvguard_finding& finding, const RowState& row) {
    const uint32_t family = finding.code / 100;
    const bool table = family == KVGUARD_FAMILY_TABLE;
    const bool slot =
        finding.code == rules::kSlotMismatch || finding.code == rules::kSlotNotLocal ||
        finding.code == rules::kSlotNullBlock || finding.code == rules::kSlotOutOfRange;
    const bool pad = finding.code == rules::kSlotPad;  // right on the ranks that do not hold it
    const bool state = finding.code == rules::kStateMismatch ||
                       finding.code == rules::kStateTargetMismatch ||
                       finding.code == rules::kStateNotCopied;
    if (state) {
      ExplainStates(context, finding, row, context.layout().groups[finding.group]);
      return;
    }
    if (!table && !slot && !pad) return;
    for (const step::GroupPlanView& view : plan.groups) {
      if (view.group->id != finding.group || (pad && !view.group->IsSharded())) continue;
      Case c{context, finding, *view.group,
             view,    row,     context.mirror->at(row.request).rows[view.group->id].entries};
      if (table && view.list.present()) {
        ExplainList(context, finding, row, view);
      } else {
        table ? ExplainTable(c) : ExplainSlots(c);
      }
    }
  });
  each([&](kvguard_finding& finding, const RowState&) {
    if (finding.code == rules::kFrontierMismatch) ExplainFrontier(context, finding);
  });
}

}  // namespace kvguard::explain
