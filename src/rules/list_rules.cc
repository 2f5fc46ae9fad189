// SPDX-License-Identifier: Apache-2.0
// Family table where each row reads a list of entries of its own (CSR, FLAT): every entry is read,
// so that the list is as long as what it stands for.
#include <algorithm>
#include <vector>

#include "geometry/equal.h"
#include "rules/context.h"

namespace kvguard::rules {
namespace {

using geometry::Group;
using mirror::Request;

// A row's list, and what it must stand for.
struct List {
  uint64_t row = 0;
  uint64_t first = 0;  // index of its first entry
  int64_t size = 0;
  int64_t end = 0;     // tokens that it covers, from the request's first one on
  int64_t wanted = 0;  // entries that it must have
  const Request* request = nullptr;
  const RowState* state = nullptr;
  // Cells: the positions that hold a token, where some do not.
  std::vector<int64_t> positions;
};

// The first position that an entry stands for.
int64_t PositionOf(const Group& group, const List& list, int64_t k) {
  if (group.IsRing()) return group.FirstInRing(list.state->start) + k;
  if (!list.positions.empty()) return list.positions[static_cast<size_t>(k)];
  return k * group.TokensPerListEntry();
}

// What an entry must be; kNotJudged where nothing is known.
int64_t ExpectedEntry(const Context& context, const Group& group, const List& list,
                      const step::ListView& view, int64_t k) {
  const int64_t position = PositionOf(group, list, k);
  if (group.IsRing() && position >= list.state->start) return view.sentinel;
  const int64_t column = group.ColumnOf(position);
  if (column >= context.mirror->BoundBlocks(*list.request, group)) return kNotJudged;
  const int64_t block = context.mirror->BlockAt(*list.request, group, column);
  if (block < 0) return kNotJudged;
  if (group.table_unit == KVGUARD_UNIT_SLOT) return group.SlotOf(block, position);
  const int64_t within = position % group.block_size;
  return block * group.ListEntriesPerBlock() + within / group.TokensPerListEntry();
}

bool IsRight(const Group& group, const List& list, const step::ListView& view, int64_t k,
             int64_t expected, int64_t shown) {
  // A sentinel may be any number, kNotJudged included.
  if (group.IsRing() && PositionOf(group, list, k) >= list.state->start)
    return shown == view.sentinel;
  if (expected == kNotJudged || shown == expected) return true;
  return group.encoding == KVGUARD_READ_FLAT && shown == view.sentinel &&
         PositionOf(group, list, k) >= list.state->start;
}

uint32_t CodeFor(const Context& context, const Group& group, const step::ListView& view,
                 int64_t shown) {
  if (group.encoding == KVGUARD_READ_FLAT && shown == view.sentinel) return kTableMismatch;
  const geometry::Pool& pool = context.layout().PoolOf(group);
  if (group.table_unit == KVGUARD_UNIT_SLOT) {
    if (!group.IsSlot(shown)) return kTableOutOfRange;
    return group.BlockOfSlot(shown) == pool.null_block ? kTableNull : kTableMismatch;
  }
  const int64_t per_block = group.ListEntriesPerBlock();
  if (shown < 0 || shown >= pool.num_blocks * per_block) return kTableOutOfRange;
  return shown / per_block == pool.null_block ? kTableNull : kTableMismatch;
}

// Whether the first n entries are runs of the row's blocks, and sentinels behind them in a ring.
bool RunsMatch(const Context& context, const Group& group, const List& list,
               const step::ListView& view, int64_t n) {
  const auto match = [&view, &list](int64_t from, int64_t count, int64_t first) {
    const uint64_t at = list.first + static_cast<uint64_t>(from);
    const auto size = static_cast<size_t>(count);
    return (view.entries.wide() ? geometry::MatchRun(view.entries.i64() + at, size, first)
                                : geometry::MatchRun(view.entries.i32() + at, size, first)) == size;
  };
  const int64_t bound = context.mirror->BoundBlocks(*list.request, group);
  const int64_t old = group.IsRing() ? std::min(n, list.wanted - list.state->num_tokens) : n;
  for (int64_t k = 0; k < old;) {
    const int64_t position = PositionOf(group, list, k);
    const int64_t place = group.Place(position);
    const int64_t column = place / group.block_size;
    if (column >= bound) return false;
    const int64_t block = context.mirror->BlockAt(*list.request, group, column);
    if (block < 0) return false;
    int64_t run = std::min(group.block_size - place % group.block_size, old - k);
    if (group.IsRing()) run = std::min(run, group.ring - place);
    if (!match(k, run, group.SlotOf(block, position))) return false;
    k += run;
  }
  if (old == n) return true;
  const uint64_t at = list.first + static_cast<uint64_t>(old);
  const auto rest = static_cast<size_t>(n - old);
  return (view.entries.wide()
              ? geometry::MatchValue(view.entries.i64() + at, rest, view.sentinel)
              : geometry::MatchValue(view.entries.i32() + at, rest, view.sentinel)) == rest;
}

// Whether the first n entries are those of the row's blocks, in one comparison.
bool Matches(const Context& context, const Group& group, const List& list,
             const step::ListView& view, int64_t n) {
  if (n == 0) return true;
  if (group.cells || group.token_stride > 1) return false;
  if (group.IsRing() || group.IsScaled()) return RunsMatch(context, group, list, view, n);
  const std::vector<int32_t>& bound =
      context.mirror->at(list.state->request).rows[group.id].entries;
  const auto wanted = static_cast<size_t>(n);
  const auto same = [&](const auto* entries) {
    if (group.table_unit != KVGUARD_UNIT_SLOT)
      return bound.size() >= wanted &&
             geometry::MatchEqual(entries, bound.data(), wanted) == wanted;
    const auto size = static_cast<size_t>(group.block_size);
    return bound.size() >= (wanted + size - 1) / size &&
           geometry::MatchBlocks(entries, wanted, bound.data(), size_t{0}, size) == wanted;
  };
  return view.entries.wide() ? same(view.entries.i64() + list.first)
                             : same(view.entries.i32() + list.first);
}

void Diagnose(Context& context, const Group& group, const List& list, const step::ListView& view,
              int64_t n) {
  for (const uint32_t code : {kTableMismatch, kTableNull, kTableOutOfRange}) {
    kvguard_finding* finding = nullptr;
    for (int64_t k = 0; k < n; ++k) {
      const int64_t shown = view.entries[list.first + static_cast<uint64_t>(k)];
      const int64_t expected = ExpectedEntry(context, group, list, view, k);
      if (IsRight(group, list, view, k, expected, shown) ||
          CodeFor(context, group, view, shown) != code) {
        continue;
      }
      if (finding == nullptr) {
        finding = &EmitRow(context, code, list.row, group.id);
        finding->pos = group.TokensPerListEntry() == 1 ? PositionOf(group, list, k) : k;
        finding->count = 0;
        SetValues(*finding, expected, shown);
        const bool slot = group.table_unit == KVGUARD_UNIT_SLOT;
        if (code == kTableMismatch && shown >= 0 && (!slot || group.IsSlot(shown))) {
          SetVictim(context, *finding, group,
                    slot ? group.BlockOfSlot(shown) : shown / group.ListEntriesPerBlock(),
                    finding->request);
        }
      }
      ++finding->count;
    }
  }
}

// The positions of cells that hold a token before `end`; none are listed where all do.
void FindHoles(const Context& context, const Group& group, List* list) {
  const int64_t bound = std::min(list->end, context.mirror->BoundBlocks(*list->request, group));
  for (int64_t column = 0; column < bound; ++column) {
    if (context.mirror->BlockAt(*list->request, group, column) >= 0)
      list->positions.push_back(column);
  }
  const int64_t holes = bound - static_cast<int64_t>(list->positions.size());
  for (int64_t column = bound; column < list->end; ++column) list->positions.push_back(column);
  list->wanted = list->end - holes;
}

void WrongSize(Context& context, const Group& group, const List& list, int64_t position) {
  kvguard_finding& finding = EmitRow(context, kTableColumnsMismatch, list.row, group.id);
  finding.pos = position;
  SetValues(finding, list.wanted, list.size);
}

}  // namespace

void JudgeList(Context& context, const step::GroupPlanView& view) {
  const step::ListView& lists = view.list;
  if (!lists.present()) return;
  const step::PlanView& plan = *context.plan;
  const Group& group = *view.group;
  const auto total = static_cast<int64_t>(lists.entries.count);
  const bool offsets = lists.offsets.present();
  // A kernel that reads the keys which it has at hand needs no list.
  const bool none = group.encoding == KVGUARD_READ_FLAT &&
                    (total == 0 || !offsets || lists.offsets[0] == lists.offsets[plan.num_rows]);
  uint64_t judged = 0;
  for (uint64_t b = 0; b < plan.num_rows; ++b) {
    const RowState& row = (*context.rows)[b];
    if (row.request == mirror::kNoRequest || !row.tokens_usable || row.num_tokens == 0 ||
        row.start == KVGUARD_NONE || row.length == KVGUARD_NONE) {
      continue;
    }
    List list;
    list.row = b;
    list.request = &context.mirror->at(row.request);
    list.state = &row;
    list.end = row.start + row.length;
    if (plan.pass == KVGUARD_PASS_DRAFT && context.layout().max_model_len > 0)
      list.end = std::min(list.end, context.layout().max_model_len);
    list.wanted = geometry::BlocksFor(list.end, group.TokensPerListEntry());
    if (group.IsRing()) list.wanted = std::min(row.start, group.ring - 1) + row.num_tokens;
    if (group.cells) FindHoles(context, group, &list);
    const int64_t from = offsets ? lists.offsets[b] : 0;
    const int64_t to = offsets ? lists.offsets[b + 1] : 0;
    if (from < 0 || to < from || to > total) {
      list.size = from >= 0 && to >= from ? to - from : KVGUARD_NONE;
      WrongSize(context, group, list, KVGUARD_NONE);
      continue;
    }
    list.first = static_cast<uint64_t>(from);
    list.size = to - from;
    judged += static_cast<uint64_t>(list.wanted);
    const int64_t n = std::min(list.wanted, list.size);
    if (!Matches(context, group, list, lists, n)) Diagnose(context, group, list, lists, n);
    if (list.size != list.wanted && !(none && row.start == 0))
      WrongSize(context, group, list, group.IsRing() ? KVGUARD_NONE : n);
    if (!lists.last_page.present() || list.wanted == 0) continue;
    const int64_t right = list.end - (list.wanted - 1) * group.TokensPerListEntry();
    if (lists.last_page[b] == right) continue;
    kvguard_finding& finding = EmitRow(context, kSeqLenMismatch, b, group.id);
    finding.pos = list.end;
    SetValues(finding, right, lists.last_page[b]);
  }
  context.counters->entries += judged;
  context.coverage->Add(group.id, plan.pass, plan.stage, KVGUARD_FAMILY_TABLE, judged);
}

}  // namespace kvguard::rules
