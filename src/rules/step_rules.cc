// SPDX-License-Identifier: Apache-2.0
// Family step: the plan's rows against the schedule. Everything later works on what this leaves in
// context.rows.
#include "geometry/equal.h"
#include "rules/context.h"

namespace kvguard::rules {
namespace {

// Query offsets must start at zero, never fall, and end at the number of tokens. True if all rows
// can be used.
bool JudgeQueryStart(Context& context) {
  const step::PlanView& plan = *context.plan;
  const auto malformed = [&](uint64_t row, int64_t expected, int64_t observed) {
    kvguard_finding& finding = Emit(context, kQueryStartMalformed);
    finding.row = static_cast<int64_t>(row);
    SetValues(finding, expected, observed);
    return false;
  };
  const auto total = static_cast<int64_t>(plan.num_tokens);
  int64_t previous = plan.query_start[0];
  if (previous != 0) return malformed(0, 0, previous);
  for (uint64_t row = 0; row < plan.num_rows; ++row) {
    const int64_t next = plan.query_start[row + 1];
    if (next < previous || next > total)
      return malformed(row + 1, next < previous ? previous : total, next);
    previous = next;
  }
  if (previous != total) return malformed(plan.num_rows, total, previous);
  return true;
}

}  // namespace

void JudgeRows(Context& context) {
  const step::PlanView& plan = *context.plan;
  mirror::Mirror& mirror = *context.mirror;
  const bool offsets_usable = JudgeQueryStart(context);
  const bool is_target = plan.pass == KVGUARD_PASS_TARGET;
  const uint64_t serial = mirror.NextPlanSerial();
  context.rows->resize(plan.num_rows);
  size_t seen = 0;
  for (uint64_t b = 0; b < plan.num_rows; ++b) {
    RowState& row = (*context.rows)[b];
    row = RowState{};
    row.key = plan.requests[b];
    row.tokens_usable = offsets_usable;
    if (offsets_usable) {
      row.first_token = static_cast<uint64_t>(plan.query_start[b]);
      row.num_tokens = plan.query_start[b + 1] - plan.query_start[b];
    }
    const uint32_t index = mirror.Find(row.key);
    if (index == mirror::kNoRequest || !mirror.IsScheduled(mirror.at(index))) {
      EmitRow(context, kRowUnknown, b);
      continue;
    }
    mirror::Request& request = mirror.at(index);
    if (request.seen_plan == serial) {
      EmitRow(context, kRowDuplicate, b);
      continue;
    }
    request.seen_plan = serial;
    ++seen;
    row.request = index;
    if (!is_target) {
      PlaceRow(context, b, &row);
      continue;
    }
    row.start = row.seen_start = request.start;
    row.length = request.num_tokens;
    if (offsets_usable && row.num_tokens != request.num_tokens)
      SetValues(EmitRow(context, kQueryLengthMismatch, b), request.num_tokens, row.num_tokens);
  }
  const bool every = is_target || plan.pass == KVGUARD_PASS_CROSS;
  if (every && seen < mirror.scheduled().size()) {
    for (const uint32_t index : mirror.scheduled()) {
      const mirror::Request& request = mirror.at(index);
      if (request.seen_plan != serial) Emit(context, kRowMissing).request = request.key;
    }
  }
  context.counters->rows += plan.num_rows;
  context.coverage->Add(KVGUARD_ALL_GROUPS, plan.pass, plan.stage, KVGUARD_FAMILY_STEP,
                        plan.num_rows);
}

void JudgeDummy(Context& context) {
  const step::PlanView& plan = *context.plan;
  const int64_t pad = context.layout().pad_slot;
  for (const step::GroupPlanView& group : plan.groups) {
    if (group.group->IsCross() || group.group->on_host) continue;
    if (group.group->IsState()) {
      JudgePaddedStates(context, group);
      continue;
    }
    if (!group.slots.present()) continue;
    const uint64_t n = context.layout().pcp_size > 1
                           ? group.slots.count
                           : std::min(plan.padded_tokens, group.slots.count);
    const size_t good = MatchPads(context, group, 0, n);
    if (good < n) {
      kvguard_finding& finding = Emit(context, kPadSlotReal);
      finding.group = group.group->id;
      finding.pos = static_cast<int64_t>(good);
      SetValues(finding, pad, group.slots[good]);
    }
    context.counters->slots += n;
    context.coverage->Add(group.group->id, plan.pass, plan.stage, KVGUARD_FAMILY_SLOT, n);
  }
}

}  // namespace kvguard::rules
