// SPDX-License-Identifier: Apache-2.0
// Family lifetime: what a row reads must still be what was bound for it. Windows are judged when
// they are read, with the worker's frontier: what an engine releases inside a live request is not
// in the stream.
#include <algorithm>

#include "rules/context.h"

namespace kvguard::rules {
namespace {

// True if nothing was stale, and nothing can be in a later step unless something happens to the
// row.
bool JudgeRow(Context& context, const geometry::Group& group, uint64_t b) {
  const RowState& row = (*context.rows)[b];
  const mirror::Request& request = context.mirror->at(row.request);
  const int64_t bound = context.mirror->BoundBlocks(request, group);
  const int64_t end = geometry::BlocksFor(row.start, group.block_size);  // of what is read
  const int64_t first = group.FirstNeededColumn(row.start);
  kvguard_finding* finding = nullptr;
  bool good = true;
  for (int64_t column = group.sink == 0 ? first : 0; column < bound; ++column) {
    if (!group.Needs(column, row.start)) continue;
    // Without a claim nothing says so when the block is given away.
    good = good && context.mirror->IsClaimed(request, group, column);
    if (context.mirror->HoldsItsBlock(request, group, column)) continue;
    good = false;
    if (column >= end) continue;
    if (finding != nullptr) {
      ++finding->count;
      continue;
    }
    finding = &EmitRow(context, kReadStale, b, group.id);
    finding->pos = column * group.block_size;
    if (column >= group.SinkColumns())
      finding->pos = std::max(finding->pos, group.FirstNeeded(row.start));
    const int64_t block = context.mirror->BlockAt(request, group, column);
    SetValues(*finding, KVGUARD_NONE, block);
    SetVictim(context, *finding, group, block, request.key);
  }
  return good;
}

// A count that went back leaves a ring without its oldest tokens: later ones stand in their place.
// True if nothing is missing.
bool JudgeRings(Context& context, uint64_t b) {
  const RowState& row = (*context.rows)[b];
  const mirror::Request& request = context.mirror->at(row.request);
  bool good = true;
  for (const geometry::Group& group : context.layout().groups) {
    if (!group.IsRing()) continue;
    if (!IsJudgedIn(context.plan->pass, group)) {
      good = false;  // not looked at
      continue;
    }
    int64_t position = group.FirstInRing(row.start);
    while (position < row.start && !mirror::Mirror::IsOverwritten(request, group, position))
      ++position;
    if (position == row.start) continue;
    good = false;
    kvguard_finding& finding = EmitRow(context, kReadStale, b, group.id);
    finding.pos = position;
    SetValues(finding, row.start, KVGUARD_NONE);
  }
  return good;
}

}  // namespace

void ApplyFree(Context& context, const kvguard_event& event) {
  const geometry::Group& group = context.layout().groups[event.group];
  mirror::Mirror& mirror = *context.mirror;
  JudgeEventBlocks(context, event, group);
  for (uint64_t i = 0; i < event.num_blocks; ++i) {
    const int64_t block = event.blocks[i];
    if (!mirror.InPool(group, block) || block == context.layout().PoolOf(group).null_block)
      continue;
    if (context.layout().forgets) mirror.Lapse(group, block, context.step);
    mirror::Block& b = mirror.TouchBlock(group, block);
    if (b.freed) {
      kvguard_finding& twice = Emit(context, kFreedTwice);
      twice.group = group.id;
      SetValues(twice, KVGUARD_NONE, block);
    }
    b.freed = true;
    if (b.claims == 0) continue;
    kvguard_finding& finding = Emit(context, kFreedWhileHeld);
    finding.group = group.id;
    SetValues(finding, KVGUARD_NONE, block);
    // Called last for the claim of the request that is found.
    const auto column_of = [&](const mirror::Request&, const geometry::Group&, int64_t column) {
      finding.pos = column;
      return true;
    };
    const uint32_t index = mirror.FindClaim(group, block, column_of);
    if (index == mirror::kNoRequest) continue;
    finding.request = mirror.at(index).key;
  }
  context.coverage->Add(group.id, 0, 0, KVGUARD_FAMILY_LIFETIME, event.num_blocks);
}

void JudgeLifetimes(Context& context) {
  if (!context.layout().forgets && !context.layout().has_rings) return;
  const step::PlanView& plan = *context.plan;
  uint64_t judged = 0;
  for (uint64_t b = 0; b < plan.num_rows; ++b) {
    const RowState& row = (*context.rows)[b];
    if (row.request == mirror::kNoRequest || !row.tokens_usable || row.num_tokens == 0 ||
        row.start == KVGUARD_NONE) {
      continue;
    }
    ++judged;
    mirror::Request& request = context.mirror->at(row.request);
    if (!request.maybe_stale) continue;
    bool good = !context.layout().has_rings || JudgeRings(context, b);
    for (const geometry::Group& group : context.layout().groups) {
      if (group.Forgets() && !group.IsState() && !group.on_host)
        good = JudgeRow(context, group, b) && good;
    }
    // From a known start on, windows only move forward.
    const bool whole_row = row.taken == 0;  // else its first part has read more
    if (good && whole_row && request.start != KVGUARD_NONE) request.maybe_stale = false;
  }
  context.coverage->Add(KVGUARD_ALL_GROUPS, plan.pass, plan.stage, KVGUARD_FAMILY_LIFETIME, judged);
}

}  // namespace kvguard::rules
