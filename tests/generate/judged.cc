// SPDX-License-Identifier: Apache-2.0
#include "tests/generate/judged.h"

#include <utility>

namespace kvguard::generate {

Judged Judge(Program* program, const std::vector<Record>& records) {
  Judged judged;
  kvguard_config config = Sized<kvguard_config>();
  config.action = KVGUARD_ACTION_LOG;
  config.max_findings_per_step = 1u << 20;
  config.max_findings = 1u << 20;
  auto guard = Guard::Create(program->geometry.Build(), &config);
  if (!guard) {
    judged.refused = guard.error().message;
    return judged;
  }
  RecordView view;
  judged.record_refused.assign(records.size(), false);
  for (size_t i = 0; i < records.size(); ++i) {
    const auto fed = guard->Feed(view.Of(records[i]));
    if (fed) continue;
    judged.record_refused[i] = true;
    if (judged.first_error.empty()) judged.first_error = fed.error().message;
  }
  judged.verdict = *guard->Verdict();
  if (judged.verdict.proofs + judged.verdict.suspicions > 0) judged.findings = *guard->Findings();
  if (!judged.findings.empty()) judged.prose = *guard->Explain(judged.findings.front());
  if (judged.verdict.step_gaps > 0 || judged.verdict.verdict != KVGUARD_CLEAN) {
    const auto gaps = guard->Gaps();
    for (const kvguard_gap& gap : *gaps) {
      if (gap.standing == 0) judged.gaps.emplace_back(gap.name);
    }
  }
  return judged;
}

}  // namespace kvguard::generate
