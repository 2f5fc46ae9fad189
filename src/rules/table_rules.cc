// SPDX-License-Identifier: Apache-2.0
// Family table: what attention will read through, against what is bound. All bound columns are
// compared, not only those of this step's reads: a wrong entry is found before it is used.
#include <algorithm>

#include "geometry/equal.h"
#include "rules/context.h"

namespace kvguard::rules {
namespace {

size_t MatchEntries(const step::Ints& shown, const std::vector<int32_t>& bound, size_t from,
                    size_t n) {
  return shown.wide() ? geometry::MatchEqual(shown.i64() + from, bound.data() + from, n - from)
                      : geometry::MatchEqual(shown.i32() + from, bound.data() + from, n - from);
}

uint32_t CodeFor(const geometry::Group& group, const geometry::Pool& pool, int64_t shown) {
  if (shown < 0 || shown >= pool.num_blocks * group.EntriesPerBlock()) return kTableOutOfRange;
  if (pool.null_block != KVGUARD_NONE && shown / group.EntriesPerBlock() == pool.null_block)
    return kTableNull;
  return kTableMismatch;
}

// The entries of a row that may be read: [head, head_end) and [first, end). head_end <= first.
struct Judged {
  size_t head = 0;
  size_t head_end = 0;
  size_t first = 0;
  size_t end = 0;

  uint64_t size() const { return head_end - head + end - first; }
};

// States: the one that the row starts from, and those that the step leaves.
Judged JudgedStates(const Context& context, const geometry::Group& group, const RowState& row,
                    size_t n) {
  const mirror::Request& request = context.mirror->at(row.request);
  const int64_t start = request.start;  // of a row that is only a part: its request's
  if (start == KVGUARD_NONE || (!row.has_first && !row.has_last)) return {};
  const auto clamped = [n](int64_t column) { return std::min(n, static_cast<size_t>(column)); };
  const geometry::Group::Columns written =
      group.Written(start, start, request.num_tokens, request.num_drafts);
  Judged judged = {0, 0, clamped(written.first), clamped(written.last + 1)};
  if (!row.has_last) judged.end = judged.first;
  const int64_t place =
      row.has_first ? mirror::Mirror::PlaceOf(request, group, start) : KVGUARD_NONE;
  if (place == KVGUARD_NONE) return judged;
  if (!row.has_last) return {0, 0, clamped(place), clamped(place + 1)};
  if (place < written.first) {
    judged.head = clamped(place);
    judged.head_end = clamped(place + 1);
  } else if (place > written.last) {
    judged.head = judged.first;
    judged.head_end = judged.end;
    judged.first = clamped(place);
    judged.end = clamped(place + 1);
  }
  return judged;
}

Judged JudgedEntries(const Context& context, const geometry::Group& group, const RowState& row,
                     size_t n) {
  if (group.IsState()) return JudgedStates(context, group, row, n);
  if (!group.Forgets()) return {0, 0, 0, n};
  const mirror::Request& request = context.mirror->at(row.request);
  const int64_t start = row.start == KVGUARD_NONE ? request.start_high + row.taken : row.start;
  const auto per_block = static_cast<size_t>(group.EntriesPerBlock());
  const size_t first = std::min(n, static_cast<size_t>(group.FirstNeededColumn(start)) * per_block);
  const size_t sink = std::min(first, static_cast<size_t>(group.SinkColumns()) * per_block);
  return {0, sink, first, n};
}

// One finding for each kind of wrong entry in the row, at its first column.
void Diagnose(Context& context, uint64_t b, const geometry::Group& group, const step::Ints& shown,
              const std::vector<int32_t>& bound, const Judged& judged) {
  const geometry::Pool& pool = context.layout().PoolOf(group);
  for (const uint32_t code : {kTableMismatch, kTableNull, kTableOutOfRange}) {
    size_t at = judged.end;
    uint64_t count = 0;
    for (size_t j = judged.head; j < judged.end; ++j) {
      if (j >= judged.head_end && j < judged.first) continue;
      if (shown[j] == bound[j] || CodeFor(group, pool, shown[j]) != code) continue;
      if (count++ == 0) at = j;
    }
    if (count == 0) continue;
    kvguard_finding& finding = EmitRow(context, code, b, group.id);
    finding.pos = static_cast<int64_t>(at);
    finding.count = count;
    SetValues(finding, bound[at], shown[at]);
    if (code == kTableMismatch) {
      SetVictim(context, finding, group, shown[at] / group.EntriesPerBlock(), finding.request);
    }
  }
}

void JudgePaddedRows(Context& context, const step::GroupPlanView& group) {
  const step::PlanView& plan = *context.plan;
  const int64_t null_block = context.layout().PoolOf(*group.group).null_block;
  const int64_t per_block = group.group->EntriesPerBlock();
  const uint64_t end = std::min(plan.padded_rows, group.table.rows);
  for (uint64_t b = plan.num_rows; b < end; ++b) {
    const step::Ints row = group.table.Row(b);
    // Zeroed whole rows are how every engine does it; any kernel block of the null block is as
    // good.
    const uint64_t zeros = null_block != 0 ? 0
                           : row.wide()    ? geometry::MatchValue(row.i64(), row.count, 0)
                                           : geometry::MatchValue(row.i32(), row.count, 0);
    for (uint64_t j = zeros; j < row.count; ++j) {
      const int64_t shown = row[j];
      if (shown >= 0 ? shown / per_block == null_block : shown == null_block) continue;
      kvguard_finding& finding = Emit(context, kPaddedRowNotNull);
      finding.group = group.group->id;
      finding.row = static_cast<int64_t>(b);
      finding.pos = static_cast<int64_t>(j);
      SetValues(finding, null_block, row[j]);
      break;
    }
  }
}

}  // namespace

void JudgeTable(Context& context, const step::GroupPlanView& group) {
  if (!group.table.present()) return;
  const step::PlanView& plan = *context.plan;
  const uint32_t id = group.group->id;
  uint64_t judged = 0;
  for (uint64_t b = 0; b < plan.num_rows; ++b) {
    const RowState& row = (*context.rows)[b];
    if (row.request == mirror::kNoRequest) continue;
    const std::vector<int32_t>& bound = context.mirror->at(row.request).rows[id].entries;
    const size_t width = std::min<size_t>(bound.size(), group.table.columns);
    const int64_t live = group.table.row_columns.present() ? group.table.row_columns[b]
                                                           : static_cast<int64_t>(width);
    // Columns that the engine itself does not count hold whatever was there: the count says it all.
    const size_t n = live < 0 ? 0 : std::min(width, static_cast<size_t>(live));
    const step::Ints shown = group.table.Row(b);
    const Judged entries = JudgedEntries(context, *group.group, row, n);
    if (MatchEntries(shown, bound, entries.first, entries.end) < entries.end - entries.first ||
        MatchEntries(shown, bound, entries.head, entries.head_end) <
            entries.head_end - entries.head) {
      Diagnose(context, b, *group.group, shown, bound, entries);
    }
    if (live != static_cast<int64_t>(bound.size())) {
      kvguard_finding& finding = EmitRow(context, kTableColumnsMismatch, b, id);
      finding.pos = static_cast<int64_t>(n);
      SetValues(finding, static_cast<int64_t>(bound.size()), live);
    }
    judged += entries.size();
  }
  if ((group.group->flags & KVGUARD_GROUP_PAD_ROWS_NULL) != 0) JudgePaddedRows(context, group);
  context.counters->entries += judged;
  context.coverage->Add(id, plan.pass, plan.stage, KVGUARD_FAMILY_TABLE, judged);
}

}  // namespace kvguard::rules
