// SPDX-License-Identifier: Apache-2.0
#include "explain/naming.h"
#include "rules/catalog.h"

namespace kvguard::explain {
namespace {

using geometry::Group;
using mirror::Mirror;
using mirror::Request;
using rules::Context;
using rules::RowState;

// The column that a right row starts from, or leaves its state in.
int64_t RightColumn(const Request& request, const RowState& row, const Group& group, bool source) {
  if (row.start == KVGUARD_NONE) return KVGUARD_NONE;
  const int64_t start = row.start - row.taken;  // its request's
  if (source) return Mirror::PlaceOf(request, group, start);
  return group.Written(start, start, request.num_tokens, request.num_drafts).last;
}

}  // namespace

void ExplainStates(Context& context, kvguard_finding& finding, const RowState& row,
                   const Group& group) {
  const Mirror& mirror = *context.mirror;
  const bool source = finding.code != rules::kStateTargetMismatch;
  const auto shows = [&](const Request& request, int64_t column) {
    return column >= 0 && column < mirror.BoundBlocks(request, group) &&
           mirror.BlockAt(request, group, column) == finding.observed;
  };
  Tried(finding, KVGUARD_CAUSE_ROW_OF);
  for (const RowState& other : *context.rows) {
    if (other.request == mirror::kNoRequest || other.key == row.key) continue;
    const Request& request = mirror.at(other.request);
    if (shows(request, RightColumn(request, other, group, source)))
      Name(finding, KVGUARD_CAUSE_ROW_OF, other.key);
  }
  const Request& request = mirror.at(row.request);
  const int64_t right = RightColumn(request, row, group, source);
  if (source && request.states_drafts > 0) {
    // Drafts whose outcome was not heard of: none, or all of them, counted as accepted.
    Tried(finding, KVGUARD_CAUSE_STALE_FRONTIER);
    Tried(finding, KVGUARD_CAUSE_OPTIMISTIC_FRONTIER);
    const int64_t none = request.states_end - request.states_drafts;
    if (row.start != none && shows(request, Mirror::PlaceOf(request, group, none)))
      Name(finding, KVGUARD_CAUSE_STALE_FRONTIER, static_cast<uint64_t>(none));
    const int64_t all = request.states_end;
    if (row.start != all && shows(request, Mirror::PlaceOf(request, group, all)))
      Name(finding, KVGUARD_CAUSE_OPTIMISTIC_FRONTIER, static_cast<uint64_t>(all));
  }
  if (group.state_mode != KVGUARD_STATE_NONE) {
    Tried(finding, KVGUARD_CAUSE_BLOCK_SIZE);
    const int64_t tokens = source ? row.start : row.start + request.num_tokens;
    for (const Group& other : context.layout().groups) {
      if (other.block_size == group.block_size || tokens <= 0) continue;
      if (shows(request, (tokens - 1) / other.block_size))
        Name(finding, KVGUARD_CAUSE_BLOCK_SIZE, static_cast<uint64_t>(other.block_size));
    }
  }
  Tried(finding, KVGUARD_CAUSE_OFF_BY_ONE_BLOCK);
  for (const int64_t by : {1, -1}) {
    if (right != KVGUARD_NONE && shows(request, right + by))
      Name(finding, KVGUARD_CAUSE_OFF_BY_ONE_BLOCK, static_cast<uint64_t>(by));
  }
}

}  // namespace kvguard::explain
