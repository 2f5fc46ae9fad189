// SPDX-License-Identifier: Apache-2.0
#include "tests/hpp/no_exceptions.h"

#include "kvguard/kvguard.hpp"

#if defined(__cpp_exceptions) || defined(__cpp_rtti)
#error "this file is the proof that kvguard.hpp needs neither exceptions nor RTTI"
#endif

std::string JudgeWithoutExceptions(int slot) {
  kvguard::GeometryBuilder geometry("test", "1", 4, 64);
  geometry.AddGroup(geometry.AddPool(8, 0), 16);
  kvguard::Result<kvguard::Guard> guard = kvguard::Guard::Create(geometry.Build());
  if (!guard) return guard.error().message;

  kvguard::StepBuilder step(1);
  step.Admit(1, "a", 0, 1).Append(1, 0, {1}).Schedule(1, 1, 0);
  if (auto fed = guard->Feed(step.Begin()); !fed) return fed.error().message;
  step.Row(1, 1, 1).Slots(0, {slot}).TableRow(0, {1});
  if (auto fed = guard->Feed(step.Plan()); !fed) return fed.error().message;
  if (auto fed = guard->Feed(step.End()); !fed) return fed.error().message;

  kvguard::Result<kvguard_verdict> verdict = guard->Verdict();
  if (!verdict) return verdict.error().message;
  std::string text(kvguard::Name("verdict", verdict->verdict));
  kvguard::Result<std::vector<kvguard_finding>> findings = guard->Findings();
  if (!findings) return findings.error().message;
  for (const kvguard_finding& finding : *findings) {
    kvguard::Result<std::string> lines = guard->Explain(finding);
    if (!lines) return lines.error().message;
    text += "\n" + *lines;
  }
  return text;
}
