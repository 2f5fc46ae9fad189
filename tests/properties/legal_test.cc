// SPDX-License-Identifier: Apache-2.0
// What is right never fires, whatever the geometry; and how values lie in memory is no part of what
// they say.
#include <cstring>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/properties/engine.h"

namespace kvguard::properties {
namespace {

Layout DrawLayout() {
  return {Flip(), static_cast<size_t>(Draw(0, 7)), static_cast<size_t>(Draw(0, 3))};
}

// Feeds a healthy step; both stages, or one.
void RunStep(Engine& engine, Guard& guard) {
  Feed(guard, engine.BeginStep());
  const PlanValues plan = engine.DrawPlan();
  RC_LOG() << engine.ToString() << "\n";
  Feed(guard, Presented(plan, engine.step(), KVGUARD_STAGE_PLANNED, DrawLayout()).record());
  Feed(guard, Presented(plan, engine.step(), KVGUARD_STAGE_FINAL, DrawLayout()).record());
  Feed(guard, engine.EndStep());
}

void AssertSilent(const Guard& guard, uint64_t steps) {
  const auto findings = Findings(guard);
  RC_LOG() << ToString(findings);
  RC_ASSERT(findings.empty());
  const kvguard_verdict verdict = guard.Verdict().OrThrow();
  RC_ASSERT(verdict.verdict == uint32_t{KVGUARD_CLEAN});
  RC_ASSERT(verdict.step_gaps == uint64_t{0});
  RC_ASSERT(verdict.steps_judged == steps);
}

// The values that one plan may get wrong anywhere.
void Disturb(PlanValues& plan) {
  for (int64_t count = Draw(1, 4); count > 0; --count) {
    GroupValues& group =
        plan.groups[static_cast<size_t>(Draw(0, static_cast<int64_t>(plan.groups.size()) - 1))];
    std::vector<int64_t>* values =
        Pick<std::vector<int64_t>*>({&group.slots, &group.table, &plan.seq_lens});
    if (values->empty()) continue;
    (*values)[static_cast<size_t>(Draw(0, static_cast<int64_t>(values->size()) - 1))] =
        Draw(-2, 5000);
  }
}

// A finding's bytes, without what says which record of the stream it was.
std::vector<std::string> Bytes(const std::vector<kvguard_finding>& findings) {
  std::vector<std::string> bytes;
  for (const kvguard_finding& finding : findings) {
    bytes.emplace_back(reinterpret_cast<const char*>(&finding), sizeof finding);
  }
  return bytes;
}

RC_GTEST_PROP(Properties, WhatTheFormulaGivesIsSilent, ()) {
  Engine engine;
  Guard guard = MakeGuard(engine);
  const auto steps = static_cast<uint64_t>(Draw(1, 6));
  for (uint64_t i = 0; i < steps; ++i) RunStep(engine, guard);
  AssertSilent(guard, steps);
}

RC_GTEST_PROP(Properties, TheSameValuesGiveTheSameFindingsHoweverTheyLieInMemory, ()) {
  Engine engine;
  Guard one = MakeGuard(engine);
  Guard other = MakeGuard(engine);
  for (int64_t steps = Draw(1, 3); steps > 0; --steps) {
    const kvguard_record& begin = engine.BeginStep();
    Feed(one, begin);
    Feed(other, begin);
    PlanValues plan = engine.DrawPlan();
    Disturb(plan);
    const Presented wide(plan, engine.step(), KVGUARD_STAGE_PLANNED, Layout{});
    const Presented laid(plan, engine.step(), KVGUARD_STAGE_PLANNED, DrawLayout());
    Feed(one, wide.record());
    Feed(other, laid.record());
    const kvguard_record& end = engine.EndStep();
    Feed(one, end);
    Feed(other, end);
  }
  const auto ours = Findings(one);
  RC_LOG() << engine.ToString() << "\n"
           << ToString(ours) << "other:\n"
           << ToString(Findings(other));
  RC_CLASSIFY(!ours.empty(), "with findings");
  RC_ASSERT(Bytes(ours) == Bytes(Findings(other)));
}

RC_GTEST_PROP(Properties, ARestoredGuardFindsTheSame, ()) {
  Engine engine;
  Guard first = MakeGuard(engine);
  for (int64_t steps = Draw(0, 3); steps > 0; --steps) RunStep(engine, first);
  Guard second = MakeGuard(engine);
  const std::string bytes = first.Snapshot().OrThrow();
  RC_ASSERT(static_cast<bool>(second.Restore(bytes)));
  RC_ASSERT(second.Snapshot().OrThrow() == bytes);
  for (int64_t steps = Draw(1, 3); steps > 0; --steps) {
    const kvguard_record& begin = engine.BeginStep();
    Feed(first, begin);
    Feed(second, begin);
    PlanValues plan = engine.DrawPlan();
    Disturb(plan);
    const Presented presented(plan, engine.step(), KVGUARD_STAGE_PLANNED, DrawLayout());
    Feed(first, presented.record());
    Feed(second, presented.record());
    const kvguard_record& end = engine.EndStep();
    Feed(first, end);
    Feed(second, end);
  }
  const auto ours = Findings(first);
  const auto theirs = Findings(second);
  RC_LOG() << engine.ToString() << "\n" << ToString(ours) << "restored:\n" << ToString(theirs);
  RC_ASSERT(ours.size() == theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    RC_ASSERT(ours[i].code == theirs[i].code);
    RC_ASSERT(ours[i].step == theirs[i].step);
    RC_ASSERT(ours[i].group == theirs[i].group);
    RC_ASSERT(ours[i].request == theirs[i].request);
    RC_ASSERT(ours[i].row == theirs[i].row);
    RC_ASSERT(ours[i].pos == theirs[i].pos);
    RC_ASSERT(ours[i].expected == theirs[i].expected);
    RC_ASSERT(ours[i].observed == theirs[i].observed);
  }
}

}  // namespace
}  // namespace kvguard::properties
