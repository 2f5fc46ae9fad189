// SPDX-License-Identifier: Apache-2.0
// Family length: KV lengths. A row's attention reads exactly what was computed plus what this step
// writes.
#include <algorithm>

#include "rules/context.h"

namespace kvguard::rules {
namespace {

// group: whose own lengths these are; nullptr: those of all.
uint64_t Judge(Context& context, const step::Ints& lengths, const geometry::Group* group) {
  const step::PlanView& plan = *context.plan;
  const uint32_t id = group == nullptr ? uint32_t{KVGUARD_ALL_GROUPS} : group->id;
  uint64_t judged = 0;
  for (uint64_t b = 0; b < plan.num_rows; ++b) {
    const RowState& row = (*context.rows)[b];
    if (row.request == mirror::kNoRequest || row.start == KVGUARD_NONE ||
        row.length == KVGUARD_NONE) {
      continue;
    }
    // Of a target pass the scheduler's token count, not the plan's: a row that dropped tokens must
    // not look right by its own account.
    int64_t end = row.start + row.length;
    if (plan.pass == KVGUARD_PASS_DRAFT && context.layout().max_model_len > 0)
      end = std::min(end, context.layout().max_model_len);
    const int64_t expected = group == nullptr ? end : group->LocalLength(end);
    ++judged;
    if (lengths[b] == expected) continue;
    kvguard_finding& finding = EmitRow(context, kSeqLenMismatch, b, id);
    finding.pos = end;
    SetValues(finding, expected, lengths[b]);
  }
  const uint64_t end = std::min(plan.padded_rows, lengths.count);
  for (uint64_t b = plan.num_rows; b < end; ++b) {
    if (lengths[b] == 0) continue;
    kvguard_finding& finding = Emit(context, kPaddedSeqLen);
    finding.group = id;
    finding.row = static_cast<int64_t>(b);
    SetValues(finding, 0, lengths[b]);
  }
  return judged;
}

}  // namespace

void JudgeLengths(Context& context) {
  const step::PlanView& plan = *context.plan;
  uint64_t judged = 0;
  if (plan.seq_lens.present()) judged += Judge(context, plan.seq_lens, nullptr);
  for (const step::GroupPlanView& group : plan.groups) {
    if (group.table.seq_lens.present()) judged += Judge(context, group.table.seq_lens, group.group);
  }
  context.coverage->Add(KVGUARD_ALL_GROUPS, plan.pass, plan.stage, KVGUARD_FAMILY_LENGTH, judged);
}

}  // namespace kvguard::rules
