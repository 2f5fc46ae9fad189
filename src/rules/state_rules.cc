// SPDX-License-Identifier: Apache-2.0
// Family state: which states the rows of a plan start from and leave behind in recurrent groups
// (mrv2.md 3.5).
#include <algorithm>

#include "rules/context.h"

namespace kvguard::rules {
namespace {

using geometry::Group;
using mirror::Mirror;
using mirror::Request;

struct Row {
  uint64_t index = 0;
  int64_t start = 0;
  int64_t end = 0;  // tokens when the row has run
  const Request* request = nullptr;
};

// The block of a column; KVGUARD_NONE where nothing is known of it.
int64_t BoundAt(const Context& context, const Request& request, const Group& group,
                int64_t column) {
  if (column < 0 || column >= context.mirror->BoundBlocks(request, group)) return KVGUARD_NONE;
  return context.mirror->BlockAt(request, group, column);
}

kvguard_finding& EmitState(Context& context, uint32_t code, const Row& row, const Group& group,
                           int64_t position, int64_t expected, int64_t observed) {
  kvguard_finding& finding = EmitRow(context, code, row.index, group.id);
  finding.pos = position;
  SetValues(finding, expected, observed);
  return finding;
}

void NameHolder(Context& context, kvguard_finding& finding, const Group& group, int64_t block,
                uint64_t but) {
  if (!context.mirror->InPool(group, block)) return;
  if (block == context.layout().PoolOf(group).null_block) return;
  SetVictim(context, finding, group, block, but);
}

void JudgeSource(Context& context, const step::StateView& view, const Group& group,
                 const Row& row) {
  const bool fresh = view.init != nullptr && view.init[row.index] != 0;
  if (row.start == 0) {
    if (view.init != nullptr && !fresh)
      EmitState(context, kStateUninitialised, row, group, 0, 1, 0);
    return;
  }
  if (fresh) {
    EmitState(context, kStateDiscarded, row, group, row.start, 0, 1);
    return;
  }
  if (!view.in.present()) return;
  const Mirror& mirror = *context.mirror;
  const int64_t shown = view.in[row.index];
  const int64_t place =
      BoundAt(context, *row.request, group, Mirror::PlaceOf(*row.request, group, row.start));
  int64_t store =
      BoundAt(context, *row.request, group, Mirror::StoreOf(*row.request, group, row.start));
  if (store == context.layout().PoolOf(group).null_block) store = KVGUARD_NONE;  // no state there
  if (place == KVGUARD_NONE || shown == place) return;
  if (store != KVGUARD_NONE && shown == store) return;
  const auto& copies = mirror.state_copies();
  const bool copied = std::any_of(copies.begin(), copies.end(), [&](const Mirror::StateCopy& c) {
    const bool source = c.source == place || (store != KVGUARD_NONE && c.source == store);
    return c.group == group.id && source && c.target == shown;
  });
  if (copied) return;
  // An engine that moves states does so where a step enters another block.
  const int64_t column = group.StateColumn(row.end);
  const bool target = group.state_mode == KVGUARD_STATE_ALIGN &&
                      column != group.StateColumn(row.request->states_end) &&
                      shown != KVGUARD_NONE &&
                      shown == BoundAt(context, *row.request, group, column);
  if (target && !mirror.says_state_copies()) {
    ++context.counters->assumptions;
    return;
  }
  kvguard_finding& finding = EmitState(context, target ? kStateNotCopied : kStateMismatch, row,
                                       group, row.start, place, shown);
  NameHolder(context, finding, group, shown, row.request->key);
}

void JudgeTarget(Context& context, const step::StateView& view, const Group& group,
                 const Row& row) {
  if (!view.out.present()) return;
  const int64_t shown = view.out[row.index];
  const int64_t column =
      group.Written(row.start, row.start, row.request->num_tokens, row.request->num_drafts).last;
  const int64_t expected = BoundAt(context, *row.request, group, column);
  if (expected == KVGUARD_NONE || shown == expected) return;
  EmitState(context, kStateTargetMismatch, row, group, row.end, expected, shown);
  if (!context.mirror->InPool(group, shown) || shown == context.layout().PoolOf(group).null_block) {
    return;
  }
  const mirror::Holding holding = context.mirror->Holder(group, shown, row.request->key);
  if (holding.request == mirror::kNoRequest) return;
  kvguard_finding& foreign =
      EmitState(context, kForeignWrite, row, group, row.end, KVGUARD_NONE, shown);
  SetVictim(context, foreign, group, shown, holding);
}

}  // namespace

void JudgePaddedStates(Context& context, const step::GroupPlanView& view) {
  const step::PlanView& plan = *context.plan;
  const Group& group = *view.group;
  const int64_t null_block = context.layout().PoolOf(group).null_block;
  const uint64_t first = plan.pass == KVGUARD_PASS_DUMMY ? 0 : plan.num_rows;
  for (const step::Ints* states : {&view.states.out, &view.states.in}) {
    if (!states->present()) continue;
    const uint64_t end = std::min(plan.padded_rows, states->count);
    for (uint64_t b = first; b < end; ++b) {
      const int64_t shown = (*states)[b];
      if (shown == KVGUARD_NONE || shown == null_block) continue;
      kvguard_finding& finding = Emit(context, kPadStateReal);
      finding.group = group.id;
      finding.row = static_cast<int64_t>(b);
      SetValues(finding, null_block, shown);
      NameHolder(context, finding, group, shown, 0);
      return;
    }
  }
}

void JudgeStates(Context& context, const step::GroupPlanView& view) {
  if (!view.states.present()) return;
  const step::PlanView& plan = *context.plan;
  uint64_t judged = 0;
  for (uint64_t b = 0; b < plan.num_rows; ++b) {
    const RowState& state = (*context.rows)[b];
    if (state.request == mirror::kNoRequest || !state.tokens_usable || state.num_tokens == 0 ||
        state.start == KVGUARD_NONE || (!state.has_first && !state.has_last)) {
      continue;
    }
    const Request& request = context.mirror->at(state.request);
    // The scheduler's token count, not the plan's, as for lengths.
    const int64_t start = state.start - state.taken;
    const Row row = {b, start, start + request.num_tokens, &request};
    if (state.has_first) JudgeSource(context, view.states, *view.group, row);
    if (state.has_last) JudgeTarget(context, view.states, *view.group, row);
    ++judged;
  }
  JudgePaddedStates(context, view);
  context.coverage->Add(view.group->id, plan.pass, plan.stage, KVGUARD_FAMILY_STATE, judged);
}

}  // namespace kvguard::rules
