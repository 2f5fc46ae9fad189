// SPDX-License-Identifier: Apache-2.0
// The runner's reads by lists, its rings, and what it does when blocks and positions move.
#include <algorithm>
#include <map>
#include <utility>

#include "tests/generate/runner.h"

namespace kvguard::generate {
namespace {

size_t Size(int64_t value) { return static_cast<size_t>(value); }

}  // namespace

int64_t Runner::Thrown(size_t g) const {
  return Group(g).clips_on_trash ? Group(g).write_trash : -1;
}

void Runner::Pads(Array* slots, size_t g, uint64_t first, uint64_t last) const {
  if (!slots->present()) return;
  const bool trash = Group(g).pads_on_trash && options_.pcp_size == 1;
  if (trash && first < last) situations_.Reach(Situation::kPadsOnTrash);
  std::fill(slots->values.begin() + static_cast<std::ptrdiff_t>(first),
            slots->values.begin() + static_cast<std::ptrdiff_t>(last),
            trash ? Group(g).write_trash : -1);
}

void Runner::AddToList(GroupPlan* to, size_t g, const ListRow& row) const {
  const GroupOptions& group = Group(g);
  const GroupPlan& from = plan_.groups[g];
  std::vector<int64_t>& entries = to->entries.values;
  const bool flat = group.encoding == KVGUARD_READ_FLAT;
  const auto add = [&](int64_t position) {
    if (flat && position >= row.start && group.sentinels &&
        (group.is_ring() || !random_.OneIn(8))) {
      situations_.Reach(Situation::kFlatSentinel);
      entries.push_back(group.sentinel);
      return;
    }
    const int64_t slot = SlotOf(from, row.b, g, position);
    if (group.cells && slot < 0) return;  // a hole
    entries.push_back(group.unit == KVGUARD_UNIT_SLOT ? slot : slot / group.unit_tokens());
  };
  const int64_t first = group.is_ring() ? std::max<int64_t>(0, row.start - (group.window - 1)) : 0;
  for (int64_t p = first; p < row.length; p += group.list_unit()) add(p);
  const int64_t bound = rows_[batch_[row.b]].columns[g] * group.unit_tokens();
  if (!group.is_ring() && bound >= row.length + group.unit_tokens())
    situations_.Reach(Situation::kListWithoutLookahead);
}

void Runner::MakeLists(GroupPlan* to, size_t g, const std::vector<ListRow>& rows,
                       uint64_t padded) const {
  const GroupOptions& group = Group(g);
  to->entries.values.clear();
  to->offsets = {group.offsets_dtype, {}};
  to->last_page.values.clear();
  const bool at_start =
      std::all_of(rows.begin(), rows.end(), [](const ListRow& row) { return row.start == 0; });
  const bool none = group.empty_at_start && at_start && !rows.empty();
  // What other passes left in the buffer stands before and behind the lists.
  const auto residue = [&] {
    for (uint64_t n = random_.OneIn(2) ? 0 : random_.Below(5); n > 0; --n)
      to->entries.values.push_back(random_.Range(0, 9));
  };
  if (!none) residue();
  if (!to->entries.values.empty()) situations_.Reach(Situation::kListBehindOthers);
  const auto here = [&] { return static_cast<int64_t>(to->entries.values.size()); };
  to->offsets.values.push_back(here());
  for (const ListRow& row : rows) {
    if (!none) AddToList(to, g, row);
    to->offsets.values.push_back(here());
    const int64_t last = (row.length - 1) / group.list_unit() * group.list_unit();
    if (group.last_page) to->last_page.values.push_back(row.length - last);
  }
  for (uint64_t b = 0; b < padded; ++b) {
    to->offsets.values.push_back(here());
    if (group.last_page) to->last_page.values.push_back(0);
  }
  if (!none) residue();
  if (none) {
    situations_.Reach(Situation::kFlatEmpty);
    if (random_.OneIn(2)) to->offsets = {};
  }
  const bool slots = group.unit == KVGUARD_UNIT_SLOT;
  if (group.is_ring()) {
    situations_.Reach(Situation::kRingList);
  } else if (group.encoding == KVGUARD_READ_FLAT) {
    situations_.Reach(Situation::kFlatSlots);
  } else {
    situations_.Reach(slots                 ? Situation::kCsrSlots
                      : group.kernel_unit() ? Situation::kCsrKernelBlocks
                                            : Situation::kCsrBlocks);
    if (group.last_page) situations_.Reach(Situation::kCsrLastPage);
  }
}

// Reads what the list of a row says, entry by entry.
void Runner::ReadList(size_t b, size_t g) {
  const GroupOptions& group = Group(g);
  const GroupPlan& plan = plan_.groups[g];
  const int64_t length = plan_.seq_lens.values[b];
  // Its keys are all at hand.
  if (!plan.offsets.present() ||
      plan.offsets.values.front() == plan.offsets.values[batch_.size()]) {
    if (starts_[b] > 0) Fail("no list", b, g, 0);
    return;
  }
  const int64_t unit = group.list_unit();
  auto at = Size(plan.offsets.values[b]);
  const auto end = Size(plan.offsets.values[b + 1]);
  for (int64_t p = 0; p < length; ++p) {
    if (group.cells && SlotOf(plan, b, g, p) < 0) continue;
    if (at == end) return Fail("a list too short", b, g, p);
    const int64_t entry = plan.entries.values[at];
    if (p % unit == unit - 1) ++at;
    const bool at_hand = group.encoding == KVGUARD_READ_FLAT && entry == group.sentinel;
    if (at_hand && p >= starts_[b]) continue;
    const Tag* tag = memory_.At(static_cast<uint32_t>(g), entry * unit + p % unit);
    if (tag == nullptr || tag->content == 0 || !(*tag == Expected(b, g, p)))
      return Fail("list of something else", b, g, p);
  }
  if (length % unit != 0) ++at;
  if (at != end) Fail("a list too long", b, g, length);
}

// Before the step writes: the window behind its first token.
void Runner::ReadRing(size_t b, size_t g) {
  const GroupOptions& group = Group(g);
  const GroupPlan& plan = plan_.groups[g];
  const int64_t start = starts_[b];
  const int64_t first = std::max<int64_t>(0, start - (group.window - 1));
  for (int64_t p = first; p < start; ++p) {
    const int64_t slot = group.reads_by_list()
                             ? plan.entries.values[Size(plan.offsets.values[b] + p - first)]
                             : SlotOf(plan, b, g, p);
    const Tag* tag = memory_.At(static_cast<uint32_t>(g), slot);
    if (tag == nullptr || tag->content == 0 || !(*tag == Expected(b, g, p)))
      return Fail("ring of something else", b, g, p);
  }
  const int64_t end = plan_.seq_lens.values[b];
  if (end > group.window) situations_.Reach(Situation::kRingWrapped);
  if (end - start > group.window) {
    situations_.Reach(group.clips_on_trash ? Situation::kRingClippedToTrash
                                           : Situation::kRingClipped);
  }
}

// When the step has written, the ring has its last tokens.
void Runner::KeepRing(size_t b, size_t g) {
  const int64_t end = plan_.seq_lens.values[b];
  for (int64_t p = std::max<int64_t>(0, end - Group(g).window); p < end; ++p) {
    const Tag* tag = memory_.At(static_cast<uint32_t>(g), SlotOf(plan_.groups[g], b, g, p));
    if (tag == nullptr || !(*tag == Expected(b, g, p)))
      return Fail("a ring lost what it keeps", b, g, p);
  }
}

void Runner::Move(const std::vector<Decision::Remap>& moves) {
  for (const Decision::Remap& move : moves) {
    const uint32_t pool = Group(move.group).pool;
    auto pairs = move.pairs;
    if (move.reason == KVGUARD_REMAP_SWAP) {
      for (const auto& [from, to] : move.pairs) pairs.emplace_back(to, from);
    }
    if (move.reason != KVGUARD_REMAP_DEDUPE) memory_.MoveBlocks(pool, pairs);
    if (options_.fault == Fault::kLostMove) continue;
    const std::map<int64_t, int64_t> to(pairs.begin(), pairs.end());
    for (size_t g = 0; g < options_.groups.size(); ++g) {
      if (Group(g).pool != pool) continue;
      const int64_t m = Group(g).entries_per_block();
      for (size_t r = 0; r < rows_.size(); ++r) {
        if (rows_[r].key == 0) continue;
        for (int64_t j = 0; j < rows_[r].columns[g]; ++j) {
          int64_t& entry = tables_[g][r * Size(widths_[g]) + Size(j)];
          const auto found = entry < 0 ? to.end() : to.find(entry / m);
          if (found != to.end()) entry = found->second * m + entry % m;
        }
      }
    }
  }
}

void Runner::EditPart(size_t index, size_t g, const RowEdit& part) {
  if (options_.fault == Fault::kLostShift && part.kind == KVGUARD_EVENT_REBASE) return;
  int64_t& columns = rows_[index].columns[g];
  int64_t* table = &tables_[g][index * Size(widths_[g])];
  const int64_t end = std::min(part.first + part.count, columns);
  std::vector<int64_t> taken;
  for (int64_t j = part.first; j < end; ++j) taken.push_back(std::exchange(table[j], -1));
  for (int64_t j = columns; j < widths_[g]; ++j) table[j] = -1;
  for (size_t i = 0; part.kind == KVGUARD_EVENT_REBASE && i < taken.size(); ++i) {
    const int64_t to = part.first + static_cast<int64_t>(i) + part.value;
    if (to < 0) continue;
    table[to] = taken[i];
    columns = std::max(columns, to + 1);
    // The key is turned to its new position where it stands.
    if (taken[i] >= 0) memory_.At(static_cast<uint32_t>(g), taken[i])->position = to;
  }
  while (columns > 0 && table[columns - 1] < 0) --columns;
}

void Runner::Edit(const Decision::Edit& edit) {
  const size_t index = RowOf(edit.key);
  Row& row = rows_[index];
  for (const RowEdit& part : edit.parts) {
    for (size_t g = 0; g < options_.groups.size(); ++g) EditPart(index, g, part);
    if (part.kind != KVGUARD_EVENT_REBASE) continue;
    // What a token is was settled when it was computed; only where it stands changes.
    const auto first = row.chain.begin() + static_cast<std::ptrdiff_t>(part.first);
    if (part.value < 0) {
      const int64_t gone = part.first == 0 ? -part.value : 0;  // else they were erased
      row.chain.erase(first + (gone > 0 ? 0 : part.value), first + gone);
    } else {
      row.chain.insert(first, Size(part.value), random_.Next() | 1);  // nothing has computed them
    }
  }
  row.tokens = edit.tokens;
  row.chain.resize(std::min(row.chain.size(), Size(edit.changed)));
  while (row.chain.size() < row.tokens.size())
    ExtendChain(&row, row.tokens[row.chain.size()], static_cast<int64_t>(row.chain.size()));
  row.computed = edit.computed;
}

}  // namespace kvguard::generate
