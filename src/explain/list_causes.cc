// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "explain/naming.h"
#include "rules/catalog.h"

namespace kvguard::explain {

using geometry::Group;
using mirror::Mirror;
using mirror::Request;
using rules::Context;
using rules::RowState;

void ExplainList(Context& context, kvguard_finding& finding, const RowState& row,
                 const step::GroupPlanView& view) {
  const Group& group = *view.group;
  const step::ListView& lists = view.list;
  if (group.IsRing() || group.cells || !lists.offsets.present()) return;
  const auto b = static_cast<uint64_t>(finding.row);
  const int64_t from = lists.offsets[b];
  const int64_t to = std::min(lists.offsets[b + 1], static_cast<int64_t>(lists.entries.count));
  if (from < 0 || to <= from) return;
  const Mirror& mirror = *context.mirror;
  // What a request's own list has at k; KVGUARD_NONE where nothing is bound.
  const auto entry_of = [&](const Request& request, int64_t k) -> int64_t {
    const int64_t per_block = group.ListEntriesPerBlock();
    if (k < 0 || k / per_block >= mirror.BoundBlocks(request, group)) return KVGUARD_NONE;
    const int64_t block = mirror.BlockAt(request, group, k / per_block);
    if (block < 0) return KVGUARD_NONE;
    return group.table_unit == KVGUARD_UNIT_SLOT ? group.SlotOf(block, k)
                                                 : block * per_block + k % per_block;
  };
  // Whether the whole list is that request's, so many entries on.
  const auto shows = [&](const Request& request, int64_t on) {
    bool any = false;
    for (int64_t k = from; k < to; ++k) {
      const int64_t entry = entry_of(request, k - from + on);
      if (entry == KVGUARD_NONE && k > from) continue;  // beyond what is known
      if (entry != lists.entries[static_cast<uint64_t>(k)]) return false;
      any = true;
    }
    return any;
  };
  Tried(finding, KVGUARD_CAUSE_ROW_OF);
  for (const RowState& other : *context.rows) {
    if (other.request == mirror::kNoRequest || other.key == row.key) continue;
    if (shows(mirror.at(other.request), 0)) Name(finding, KVGUARD_CAUSE_ROW_OF, other.key);
  }
  Tried(finding, KVGUARD_CAUSE_OFF_BY_ONE_BLOCK);
  for (const int64_t by : {int64_t{1}, int64_t{-1}}) {
    if (shows(mirror.at(row.request), by * group.ListEntriesPerBlock()))
      Name(finding, KVGUARD_CAUSE_OFF_BY_ONE_BLOCK, static_cast<uint64_t>(by));
  }
}

}  // namespace kvguard::explain
