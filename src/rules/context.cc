// SPDX-License-Identifier: Apache-2.0
#include "rules/context.h"

namespace kvguard::rules {

kvguard_finding& Emit(Context& context, uint32_t code, uint32_t grade) {
  if (grade == 0) grade = FindRule(code)->grade;
  if (context.Full()) {
    // Counted, not stored: the reference must stay writable, so it goes to a scratch finding.
    static thread_local kvguard_finding scratch;
    scratch = kvguard_finding{};
    ++(grade == KVGUARD_GRADE_PROOF ? context.suppressed_proofs : context.suppressed_suspicions);
    return scratch;
  }
  kvguard_finding& finding = context.findings->emplace_back();
  finding = kvguard_finding{};
  finding.size = sizeof(kvguard_finding);
  finding.code = code;
  finding.grade = grade;
  finding.step = context.step;
  finding.rank = context.layout().rank;
  finding.group = KVGUARD_ALL_GROUPS;
  finding.row = KVGUARD_NONE;
  finding.pos = KVGUARD_NONE;
  finding.victim_block = KVGUARD_NONE;
  finding.count = 1;
  if (context.plan != nullptr) {
    finding.pass = context.plan->pass;
    finding.pass_index = context.plan->pass_index;
    finding.stage = context.plan->stage;
  }
  return finding;
}

kvguard_finding& EmitRow(Context& context, uint32_t code, uint64_t row, uint32_t group,
                         uint32_t grade) {
  kvguard_finding& finding = Emit(context, code, grade);
  finding.row = static_cast<int64_t>(row);
  finding.request = context.plan->requests[row];
  finding.group = group;
  return finding;
}

void SetVictim(Context& context, kvguard_finding& finding, const geometry::Group& group,
               int64_t block, uint64_t but) {
  if (!context.mirror->InPool(group, block)) return;
  SetVictim(context, finding, group, block, context.mirror->Holder(group, block, but));
}

void SetVictim(Context& context, kvguard_finding& finding, const geometry::Group& group,
               int64_t block, const mirror::Holding& holding) {
  if (holding.request == mirror::kNoRequest) return;
  const mirror::Request& victim = context.mirror->at(holding.request);
  const mirror::Block& b = context.mirror->BlockOf(group, block);
  finding.victim = victim.key;
  finding.victim_block = block;
  finding.victim_first = holding.first;
  finding.victim_last = holding.first + holding.block_size - 1;
  finding.victim_since = b.owner == victim.key ? b.since_step : victim.admitted_step;
  finding.flags |= KVGUARD_FINDING_HAS_VICTIM;
}

}  // namespace kvguard::rules
