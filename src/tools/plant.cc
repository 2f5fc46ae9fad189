// SPDX-License-Identifier: Apache-2.0
#include "tools/plant.h"

#include <algorithm>

#include "rules/catalog.h"
#include "step/status.h"

namespace kvguard::tools {
namespace {

using step::Sprintf;
using trace::OwnedArray;
using trace::OwnedEvent;
using trace::OwnedGroupPlan;
using trace::OwnedPlan;
using trace::OwnedRecord;
using Ll = long long;
using Ull = unsigned long long;

constexpr Fault kFaults[] = {
    {FaultKind::kSwappedRows, "swapped-rows",
     "Two rows of the block table change places: each request reads the other's KV."},
    {FaultKind::kStaleSlots, "stale-slots",
     "The slot mapping is not rewritten: this step's tokens go where the last step's went."},
    {FaultKind::kLostAppend, "lost-append",
     "A block that the scheduler appended does not reach the block table."},
    {FaultKind::kWrongFrontier, "wrong-frontier",
     "A request's count of computed tokens is one behind: its last token is written over."},
    {FaultKind::kForeignBlock, "foreign-block",
     "A table entry names a live neighbour's block: its KV is overwritten and read."},
    {FaultKind::kOffByOneBlock, "off-by-one-block",
     "The slot mapping is computed from the column before the right one."},
    {FaultKind::kZeroedEntry, "zeroed-entry",
     "A live table entry is zero: attention reads the null block there."},
};

int64_t At(const OwnedArray& array, uint64_t index) {
  return array.values[static_cast<size_t>(index)];
}

bool Covers(const OwnedArray& array, uint64_t count) {
  return array.present() && array.values.size() >= count;
}

// Where a right plan's row begins and how long it is.
struct Span {
  uint64_t first_token;
  int64_t num_tokens;
  int64_t start;   // position
  int64_t length;  // KV tokens with this step
};

Span SpanOf(const OwnedPlan& plan, uint64_t row) {
  Span span{};
  span.first_token = static_cast<uint64_t>(At(plan.query_start, row));
  span.num_tokens = At(plan.query_start, row + 1) - At(plan.query_start, row);
  span.length = At(plan.seq_lens, row);
  span.start = span.length - span.num_tokens;
  return span;
}

// A right stream's plan has these; anything else is not touched.
bool IsWhole(const OwnedPlan& plan) {
  if (plan.pass != KVGUARD_PASS_TARGET || plan.num_rows == 0) return false;
  if (plan.requests.size() < plan.num_rows || !Covers(plan.query_start, plan.num_rows + 1) ||
      !Covers(plan.seq_lens, plan.num_rows)) {
    return false;
  }
  for (uint64_t b = 0; b < plan.num_rows; ++b) {
    const Span span = SpanOf(plan, b);
    if (At(plan.query_start, b) < 0 || span.num_tokens <= 0 || span.start < 0 ||
        At(plan.query_start, b + 1) > static_cast<int64_t>(plan.num_tokens)) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::span<const Fault> Faults() { return kFaults; }

const Fault* FindFault(std::string_view name) {
  for (const Fault& fault : kFaults) {
    if (name == fault.name) return &fault;
  }
  return nullptr;
}

Planter::Planter(const kvguard_geometry& geometry, FaultKind kind, uint64_t from_step)
    : kind_(kind), from_step_(from_step) {
  for (uint32_t i = 0; i < geometry.num_groups; ++i) {
    const kvguard_group& in = geometry.groups[i];
    Group group{};
    group.id = i;
    group.block_size = in.block_size;
    const bool kernel = in.table_unit == KVGUARD_UNIT_KERNEL_BLOCK;
    group.per_block = kernel && in.kernel_block_size > 0
                          ? static_cast<int64_t>(in.block_size / in.kernel_block_size)
                          : 1;
    group.index_scale = in.index_scale;
    group.token_stride = in.token_stride;
    group.slot_base = in.slot_base;
    const bool whole = geometry.dcp_size <= 1 || (in.flags & KVGUARD_GROUP_REPLICATED) != 0;
    group.plain = in.kind == KVGUARD_GROUP_FULL && in.encoding == KVGUARD_READ_TABLE &&
                  in.placement == KVGUARD_PLACEMENT_ASSIGNED && whole && in.block_size > 0 &&
                  (kernel || in.table_unit == KVGUARD_UNIT_BLOCK) && in.pool < geometry.num_pools;
    group.null_block = group.plain ? geometry.pools[in.pool].null_block : KVGUARD_NONE;
    groups_.push_back(group);
  }
}

// KVGUARD_NONE where the column is not shown or is null.
int64_t Planter::BlockAt(const Shown& shown, uint64_t row, int64_t column) const {
  const int64_t entry = column * shown.group.per_block;
  if (column < 0 || row >= shown.part.table.rows ||
      entry >= static_cast<int64_t>(shown.part.table.columns)) {
    return KVGUARD_NONE;
  }
  const int64_t value = shown.part.table.at(row, static_cast<uint64_t>(entry));
  const int64_t block = value < 0 ? KVGUARD_NONE : value / shown.group.per_block;
  return block == shown.group.null_block ? KVGUARD_NONE : block;
}

int64_t Planter::SlotAt(const Group& group, int64_t block, int64_t position) const {
  return block * group.block_size * group.index_scale +
         position % group.block_size * group.token_stride + group.slot_base;
}

void Planter::SetBlock(const Shown& shown, uint64_t row, int64_t column, int64_t block) const {
  for (int64_t j = 0; j < shown.group.per_block; ++j) {
    const int64_t entry = column * shown.group.per_block + j;
    if (entry >= static_cast<int64_t>(shown.part.table.columns)) break;
    shown.part.table.at(row, static_cast<uint64_t>(entry)) = block * shown.group.per_block + j;
  }
}

void Planter::Rewrite(const Shown& shown, uint64_t row) const {
  if (!shown.part.slots.present()) return;
  const Span span = SpanOf(shown.plan, row);
  for (int64_t i = 0; i < span.num_tokens; ++i) {
    const int64_t position = span.start + i;
    int64_t block = BlockAt(shown, row, position / shown.group.block_size);
    if (block == KVGUARD_NONE) block = shown.group.null_block;
    shown.part.slots.values[static_cast<size_t>(span.first_token) + static_cast<size_t>(i)] =
        SlotAt(shown.group, block, position);
  }
}

bool Planter::IsRight(const Shown& shown) const {
  if (!shown.group.plain || shown.part.encoding != KVGUARD_READ_TABLE) return false;
  if (shown.part.table.dtype == KVGUARD_DTYPE_NONE || shown.part.table.rows < shown.plan.num_rows ||
      !Covers(shown.part.slots, shown.plan.num_tokens)) {
    return false;
  }
  for (uint64_t b = 0; b < shown.plan.num_rows; ++b) {
    const Span span = SpanOf(shown.plan, b);
    for (int64_t i = 0; i < span.num_tokens; ++i) {
      const int64_t position = span.start + i;
      const int64_t block = BlockAt(shown, b, position / shown.group.block_size);
      if (block == KVGUARD_NONE ||
          At(shown.part.slots, span.first_token + static_cast<uint64_t>(i)) !=
              SlotAt(shown.group, block, position)) {
        return false;
      }
    }
  }
  return true;
}

bool Planter::SwapRows(const Shown& shown) {
  const int64_t size = shown.group.block_size;
  for (uint64_t a = 0; a < shown.plan.num_rows; ++a) {
    for (uint64_t b = a + 1; b < shown.plan.num_rows; ++b) {
      const int64_t columns = std::min((SpanOf(shown.plan, a).length + size - 1) / size,
                                       (SpanOf(shown.plan, b).length + size - 1) / size);
      bool differ = false;
      for (int64_t j = 0; j < columns && !differ; ++j) {
        const int64_t of_b = BlockAt(shown, b, j);
        differ = of_b != KVGUARD_NONE && BlockAt(shown, a, j) != of_b;
      }
      if (!differ) continue;
      for (uint64_t j = 0; j < shown.part.table.columns; ++j) {
        std::swap(shown.part.table.at(a, j), shown.part.table.at(b, j));
      }
      planted_.row = a;
      planted_.code = rules::kTableMismatch;
      planted_.cause = KVGUARD_CAUSE_ROW_OF;
      planted_.what = Sprintf("rows %llu and %llu of the block table were exchanged",
                              static_cast<Ull>(a), static_cast<Ull>(b));
      return true;
    }
  }
  return false;
}

bool Planter::ShiftBlock(const Shown& shown) {
  for (uint64_t b = 0; b < shown.plan.num_rows; ++b) {
    const Span span = SpanOf(shown.plan, b);
    if (span.start < shown.group.block_size) continue;
    std::vector<int64_t> slots;
    for (int64_t i = 0; i < span.num_tokens; ++i) {
      const int64_t position = span.start + i;
      const int64_t block = BlockAt(shown, b, position / shown.group.block_size - 1);
      if (block != KVGUARD_NONE) slots.push_back(SlotAt(shown.group, block, position));
    }
    if (slots.size() != static_cast<size_t>(span.num_tokens)) continue;
    std::copy(slots.begin(), slots.end(),
              shown.part.slots.values.begin() + static_cast<std::ptrdiff_t>(span.first_token));
    planted_.row = b;
    planted_.code = rules::kSlotMismatch;
    planted_.cause = KVGUARD_CAUSE_OFF_BY_ONE_BLOCK;
    planted_.what =
        Sprintf("row %llu's write slots were computed one column too early", static_cast<Ull>(b));
    return true;
  }
  return false;
}

bool Planter::KeepSlots(const Shown& shown) {
  const auto previous = previous_slots_.find(shown.group.id);
  if (previous == previous_slots_.end()) return false;
  const std::vector<int64_t>& old = previous->second;
  const auto n = static_cast<size_t>(shown.plan.num_tokens);
  auto& slots = shown.part.slots.values;
  if (old.size() < n ||
      std::equal(slots.begin(), slots.begin() + static_cast<std::ptrdiff_t>(n), old.begin())) {
    return false;
  }
  bool found = false;
  for (uint64_t b = 0; b < shown.plan.num_rows && !found; ++b) {
    const Span span = SpanOf(shown.plan, b);
    for (int64_t i = 0; i < span.num_tokens; ++i) {
      const size_t at = static_cast<size_t>(span.first_token) + static_cast<size_t>(i);
      if (slots[at] == old[at]) continue;
      planted_.row = b;
      found = true;
      break;
    }
  }
  std::copy(old.begin(), old.begin() + static_cast<std::ptrdiff_t>(n), slots.begin());
  planted_.code = rules::kSlotMismatch;
  planted_.cause = KVGUARD_CAUSE_PREVIOUS_STEP;
  planted_.what = "the slot mapping still holds the step before";
  return found;
}

bool Planter::LoseAppend(const Shown& shown) {
  if (shown.group.null_block == KVGUARD_NONE) return false;
  for (uint64_t b = 0; b < shown.plan.num_rows; ++b) {
    const uint64_t key = shown.plan.requests[static_cast<size_t>(b)];
    const auto it = appended_.find({key, shown.group.id});
    if (it == appended_.end()) continue;
    // Behind the bound columns a recorded row is null.
    auto bound = static_cast<int64_t>(shown.part.table.columns) / shown.group.per_block;
    while (bound > 0 && BlockAt(shown, b, bound - 1) == KVGUARD_NONE) --bound;
    const int64_t kept = bound - static_cast<int64_t>(it->second);
    if (kept < 1) continue;
    for (int64_t j = kept; j < bound; ++j) {
      for (int64_t k = 0; k < shown.group.per_block; ++k) {
        const auto entry = static_cast<uint64_t>(j * shown.group.per_block + k);
        if (entry < shown.part.table.columns) {
          shown.part.table.at(b, entry) = shown.group.null_block * shown.group.per_block;
        }
      }
    }
    planted_.row = b;
    planted_.cause = KVGUARD_CAUSE_LOST_APPEND;
    planted_.code = rules::kTableNull;
    if (Covers(shown.part.b, shown.plan.num_rows)) {
      shown.part.b.values[static_cast<size_t>(b)] = kept * shown.group.per_block;
      planted_.code = rules::kTableColumnsMismatch;
    }
    planted_.what = Sprintf("row %llu's last append (column %lld on) did not arrive",
                            static_cast<Ull>(b), static_cast<Ll>(kept));
    Rewrite(shown, b);
    return true;
  }
  return false;
}

bool Planter::HoldFrontier(const Shown& shown) {
  OwnedPlan& plan = shown.plan;
  const bool positions = Covers(plan.positions, plan.num_tokens);
  const bool counts = Covers(plan.num_computed, plan.num_rows);
  if (!positions && !counts) return false;
  // A row that reads what it wrote before; its count is wrong for all groups alike.
  for (OwnedGroupPlan& part : plan.groups) {
    if (part.group >= groups_.size() || !IsRight({groups_[part.group], plan, part})) return false;
  }
  for (uint64_t b = 0; b < plan.num_rows; ++b) {
    const Span span = SpanOf(plan, b);
    if (span.start < 1) continue;
    plan.seq_lens.values[static_cast<size_t>(b)] -= 1;
    if (counts) plan.num_computed.values[static_cast<size_t>(b)] -= 1;
    for (int64_t i = 0; positions && i < span.num_tokens; ++i) {
      plan.positions.values[static_cast<size_t>(span.first_token) + static_cast<size_t>(i)] -= 1;
    }
    for (OwnedGroupPlan& part : plan.groups) {
      if (Covers(part.a, plan.num_rows)) part.a.values[static_cast<size_t>(b)] -= 1;
      Rewrite({groups_[part.group], plan, part}, b);
    }
    planted_.row = b;
    planted_.code = rules::kFrontierMismatch;
    planted_.cause = KVGUARD_CAUSE_STALE_FRONTIER;
    planted_.what = Sprintf("row %llu starts at position %lld instead of %lld", static_cast<Ull>(b),
                            static_cast<Ll>(span.start - 1), static_cast<Ll>(span.start));
    return true;
  }
  return false;
}

bool Planter::TakeForeignBlock(const Shown& shown) {
  const int64_t size = shown.group.block_size;
  for (uint64_t a = 0; a < shown.plan.num_rows; ++a) {
    const int64_t last = (SpanOf(shown.plan, a).length - 1) / size;
    for (uint64_t b = 0; b < shown.plan.num_rows; ++b) {
      if (a == b) continue;
      const int64_t block = BlockAt(shown, b, (SpanOf(shown.plan, b).length - 1) / size);
      bool own = block == KVGUARD_NONE;
      for (int64_t j = 0; j <= last && !own; ++j) own = BlockAt(shown, a, j) == block;
      if (own) continue;
      const int64_t right = BlockAt(shown, a, last);
      SetBlock(shown, a, last, block);
      Rewrite(shown, a);
      planted_.row = a;
      planted_.code = rules::kTableMismatch;
      planted_.what = Sprintf("row %llu's column %lld shows block %lld, row %llu's, for block %lld",
                              static_cast<Ull>(a), static_cast<Ll>(last), static_cast<Ll>(block),
                              static_cast<Ull>(b), static_cast<Ll>(right));
      return true;
    }
  }
  return false;
}

bool Planter::ZeroEntry(const Shown& shown) {
  if (shown.group.null_block == KVGUARD_NONE) return false;
  for (uint64_t b = 0; b < shown.plan.num_rows; ++b) {
    if (SpanOf(shown.plan, b).start < shown.group.block_size) continue;
    if (BlockAt(shown, b, 0) == KVGUARD_NONE) continue;
    for (int64_t k = 0; k < shown.group.per_block; ++k) {
      shown.part.table.at(b, static_cast<uint64_t>(k)) =
          shown.group.null_block * shown.group.per_block;
    }
    planted_.row = b;
    planted_.code = rules::kTableNull;
    planted_.what = Sprintf("row %llu's column 0 was zeroed", static_cast<Ull>(b));
    return true;
  }
  return false;
}

bool Planter::Plant(const Shown& shown) {
  switch (kind_) {
    case FaultKind::kSwappedRows:
      return SwapRows(shown);
    case FaultKind::kOffByOneBlock:
      return ShiftBlock(shown);
    case FaultKind::kStaleSlots:
      return KeepSlots(shown);
    case FaultKind::kLostAppend:
      return LoseAppend(shown);
    case FaultKind::kWrongFrontier:
      return HoldFrontier(shown);
    case FaultKind::kForeignBlock:
      return TakeForeignBlock(shown);
    case FaultKind::kZeroedEntry:
      return ZeroEntry(shown);
  }
  return false;
}

bool Planter::Offer(OwnedRecord* record) {
  if (record->refused) return false;
  switch (record->kind) {
    case KVGUARD_RECORD_BEGIN: {
      step_ = record->step;
      planned_ = false;
      appended_.clear();
      open_slots_.clear();
      for (const OwnedEvent& event : record->events) {
        if (event.kind == KVGUARD_EVENT_APPEND && !event.blocks.empty()) {
          appended_[{event.request, event.group}] = event.blocks.size();
        }
      }
      return false;
    }
    case KVGUARD_RECORD_END:
      if (record->flags == 0 && !open_slots_.empty()) previous_slots_.swap(open_slots_);
      open_slots_.clear();
      return false;
    case KVGUARD_RECORD_RESET:
      previous_slots_.clear();
      return false;
    case KVGUARD_RECORD_PLAN:
      break;
    default:
      return false;
  }
  OwnedPlan& plan = record->plan;
  if (planned_ || !IsWhole(plan)) return false;
  planned_ = true;
  bool changed = false;
  for (OwnedGroupPlan& part : plan.groups) {
    if (part.group >= groups_.size()) continue;
    const Shown shown{groups_[part.group], plan, part};
    if (!IsRight(shown)) continue;
    open_slots_[part.group].assign(
        part.slots.values.begin(),
        part.slots.values.begin() + static_cast<std::ptrdiff_t>(plan.num_tokens));
    if (done_ || changed || step_ < from_step_) continue;
    changed = Plant(shown);
    if (changed) {
      planted_.step = step_;
      planted_.group = part.group;
    }
  }
  done_ = done_ || changed;
  return changed;
}

}  // namespace kvguard::tools
