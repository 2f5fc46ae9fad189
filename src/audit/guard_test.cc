// SPDX-License-Identifier: Apache-2.0
// Verdicts, gaps, coverage: what the guard says about its own account.
#include "audit/guard.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "audit/scenario.h"
#include "rules/catalog.h"

namespace kvguard::audit {
namespace {

constexpr uint32_t kClean = KVGUARD_CLEAN;
constexpr uint32_t kViolated = KVGUARD_VIOLATED;
constexpr uint32_t kCannotJudge = KVGUARD_CANNOT_JUDGE;

std::vector<std::string> GapNames(const Scenario& s) {
  std::vector<std::string> names;
  for (const kvguard_gap& gap : s.guard()->Gaps()) names.emplace_back(gap.name);
  return names;
}

using Names = std::vector<std::string>;

void WrongSlot(ScenarioPlan& plan) { plan.groups[0].slots[0] += 20; }

TEST(Verdict, WithoutAStepNothingCanBeJudged) {
  Scenario s;
  kvguard_verdict verdict{};
  verdict.size = sizeof(verdict);
  ASSERT_EQ(kvguard_verdict_now(s.guard(), &verdict, nullptr), KVGUARD_OK);
  EXPECT_EQ(verdict.verdict, kCannotJudge);
  EXPECT_EQ(verdict.steps, 0u);
  s.Admit("a", {{1}}).Begin();  // nor with steps that have no tokens
  s.End();
  EXPECT_EQ(s.verdict().verdict, kCannotJudge);
  EXPECT_EQ(s.verdict().steps, 1u);
  EXPECT_EQ(s.verdict().steps_judged, 0u);
}

TEST(Verdict, CleanComesWithItsCounts) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 6).Admit("b", {{3}}).Schedule("b", 3).Step();
  s.Schedule("a", 1);
  s.Step([](ScenarioPlan& p) { p.Pad(0, 3); });
  const kvguard_verdict& v = s.verdict();
  EXPECT_EQ(v.verdict, kClean);
  EXPECT_EQ(v.step_verdict, kClean);
  EXPECT_EQ(v.step, 2u);
  EXPECT_EQ(v.steps, 2u);
  EXPECT_EQ(v.steps_judged, 2u);
  EXPECT_EQ(v.plans, 2u);
  EXPECT_EQ(v.rows, 3u);
  EXPECT_EQ(v.slots, 9u + 1u + 3u);
  EXPECT_EQ(v.entries, 3u + 2u);
  EXPECT_EQ(v.proofs + v.suspicions + v.assumptions + v.step_gaps + v.ignored, 0u);
  EXPECT_EQ(v.violated_steps, 0u);
  EXPECT_EQ(v.must_raise, 0u);
}

TEST(Verdict, AViolatedStepIsFollowedByACleanOne) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 3).Begin();
  EXPECT_EQ(s.verdict().step_verdict, kClean);
  ScenarioPlan plan = s.RightPlan();
  WrongSlot(plan);
  s.Plan(plan);
  EXPECT_EQ(s.verdict().step_verdict, kViolated);
  EXPECT_EQ(s.verdict().must_raise, 1u);
  EXPECT_GT(s.verdict().num_findings, 0u);
  s.End();
  EXPECT_EQ(s.verdict().must_raise, 1u) << "the output of the step is still held";
  EXPECT_EQ(s.verdict().num_findings, 0u);
  s.Schedule("a", 1).Begin();
  EXPECT_EQ(s.verdict().step_verdict, kClean);
  EXPECT_EQ(s.verdict().verdict, kViolated);
  EXPECT_EQ(s.verdict().must_raise, 0u);
  s.Plan(s.RightPlan());
  s.End();
  EXPECT_EQ(s.verdict().violated_steps, 1u);
  EXPECT_EQ(s.verdict().first_violated_step, 1u);
  EXPECT_EQ(s.verdict().steps_judged, 2u);
}

TEST(Verdict, AFindingOfBeginRaisesBeforeAnyPlan) {
  Scenario s;
  s.Admit("a", {{1, 1}}).Schedule("a", 6).Begin();
  EXPECT_EQ(s.verdict().step_verdict, kViolated);
  EXPECT_EQ(s.verdict().must_raise, 1u);
}

TEST(Action, LogNeverRaises) {
  ScenarioOptions options;
  options.action = KVGUARD_ACTION_LOG;
  options.latch = 1;
  Scenario s(options);
  s.Admit("a", {{1, 2}}).Schedule("a", 3).Step(WrongSlot);
  EXPECT_EQ(s.verdict().step_verdict, kViolated);
  EXPECT_EQ(s.verdict().must_raise, 0u);
}

TEST(Action, ALatchedGuardRaisesFromTheFirstViolationOn) {
  ScenarioOptions options;
  options.latch = 1;
  Scenario s(options);
  s.Admit("a", {{1, 2, 3}}).Schedule("a", 3).Step();
  EXPECT_EQ(s.verdict().must_raise, 0u);
  s.Schedule("a", 1).Step(WrongSlot);
  for (int i = 0; i < 3; ++i) {
    s.Schedule("a", 1).Step();
    EXPECT_EQ(s.verdict().step_verdict, kClean);
    EXPECT_EQ(s.verdict().must_raise, 1u);
  }
  s.Reset();
  EXPECT_EQ(s.verdict().must_raise, 1u);
}

TEST(Suspicion, IsCountedEachTimeAndPrintedOnce) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 4).Step();
  for (int i = 0; i < 5; ++i) {
    s.Computed("a") = 3;
    s.Schedule("a", 1).Step();
  }
  EXPECT_EQ(s.verdict().suspicions, 5u);
  EXPECT_EQ(s.Codes(), std::vector<uint32_t>{rules::kCountBehind});
  EXPECT_EQ(s.verdict().verdict, kClean);
  EXPECT_EQ(s.verdict().must_raise, 0u);
}

TEST(Suspicion, IsNeverAFirstCause) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 4).Step();
  s.Computed("a") = 3;
  s.Schedule("a", 1).Step(WrongSlot);
  const auto findings = s.Findings();
  ASSERT_EQ(findings.size(), 2u) << s.Report();
  EXPECT_EQ(findings[0].code, static_cast<uint32_t>(rules::kCountBehind));
  EXPECT_EQ(findings[0].flags & KVGUARD_FINDING_FIRST_CAUSE, 0u);
  EXPECT_NE(findings[1].flags & KVGUARD_FINDING_FIRST_CAUSE, 0u);
  EXPECT_EQ(findings[1].because_of, 0u);
}

TEST(Gap, AStepWithoutItsPlanCannotBeJudged) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 4).Begin();
  s.End();
  EXPECT_EQ(s.verdict().step_verdict, kCannotJudge);
  EXPECT_EQ(GapNames(s), (Names{"slots-not-presented", "table-not-presented"}));
  s.Schedule("a", 1).Step();
  EXPECT_EQ(s.verdict().step_verdict, kClean) << "its bindings and counts were followed";
  EXPECT_EQ(s.verdict().verdict, kCannotJudge);
  EXPECT_EQ(s.verdict().step_gaps, 1u);
  EXPECT_EQ(s.verdict().steps_judged, 1u);
}

TEST(Gap, EveryGroupMustShowItsTableAndItsSlots) {
  for (const bool table : {false, true}) {
    ScenarioOptions options;
    options.groups = {{4, 4, KVGUARD_UNIT_BLOCK, 0}, {4, 4, KVGUARD_UNIT_BLOCK, 0}};
    Scenario s(options);
    s.Admit("a", {{1, 2}, {3, 4}}).Schedule("a", 4);
    s.Step([&](ScenarioPlan& p) {
      (table ? p.groups[1].table_present : p.groups[1].slots_present) = false;
    });
    EXPECT_EQ(s.verdict().step_verdict, kCannotJudge);
    EXPECT_EQ(GapNames(s), Names{table ? "table-not-presented" : "slots-not-presented"});
  }
}

TEST(Gap, OptionalArraysAreNotMissed) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 4);
  s.Step([](ScenarioPlan& p) { p.positions_present = false; });
  EXPECT_EQ(s.verdict().verdict, kClean);
}

TEST(Gap, BeatsCleanAndIsBeatenByViolated) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 4);
  s.Step([](ScenarioPlan& p) {
    p.groups[0].table_present = false;
    WrongSlot(p);
  });
  EXPECT_EQ(s.verdict().step_verdict, kViolated);
  EXPECT_EQ(s.verdict().verdict, kViolated);
  EXPECT_EQ(s.verdict().step_gaps, 1u);
}

TEST(GapEvent, ItsStepsPlansAreNotJudgedAndItsBindingsAreFollowed) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 4).Step();
  s.Gap("new-feature").Append("a", {3}).Schedule("a", 5).Step(WrongSlot);
  EXPECT_EQ(s.verdict().step_verdict, kCannotJudge);
  EXPECT_TRUE(s.Findings().empty());
  EXPECT_EQ(GapNames(s), Names{"new-feature"});
  s.Schedule("a", 1).Step();
  EXPECT_EQ(s.verdict().step_verdict, kClean) << s.Report();
  EXPECT_EQ(s.verdict().steps_judged, 2u);
}

TEST(GapEvent, ItsStepsBindingsAreJudgedAllTheSame) {
  Scenario s;
  s.Gap("new-feature").Admit("a", {{1, 1}}).Schedule("a", 5).Step();
  EXPECT_EQ(s.verdict().step_verdict, kViolated);
}

TEST(GapEvent, ADeclaredOneIsStandingAndItsStepIsNotCountedAsJudged) {
  ScenarioOptions options;
  options.standing_gaps = {"new-feature"};
  Scenario s(options);
  s.Admit("a", {{1, 2}}).Schedule("a", 4).Step();
  s.Gap("new-feature").Schedule("a", 1).Step(WrongSlot);
  EXPECT_EQ(s.verdict().step_gaps, 0u);
  EXPECT_EQ(s.verdict().steps_judged, 1u);
  EXPECT_EQ(s.verdict().verdict, kClean);
  const auto gaps = s.guard()->Gaps();
  ASSERT_EQ(gaps.size(), 1u);
  EXPECT_EQ(gaps[0].standing, 1u);
}

TEST(GapEvent, ManyInOneStepAreOneStepGap) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 4).Gap("x").Gap("y").Gap("x").Step();
  EXPECT_EQ(s.verdict().step_gaps, 1u);
  const auto gaps = s.guard()->Gaps();
  ASSERT_EQ(gaps.size(), 2u);
  EXPECT_STREQ(gaps[0].name, "x");
  EXPECT_EQ(gaps[0].count, 2u);
  EXPECT_EQ(gaps[0].first_step, 1u);
}

TEST(GapEvent, ALongNameIsCut) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 4).Gap(std::string(4000, 'g')).Step();
  EXPECT_EQ(GapNames(s), Names{std::string(95, 'g')});
}

TEST(FinalStage, IsJudgedByTheSameRules) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 4).Begin();
  ScenarioPlan plan = s.RightPlan();
  s.Plan(plan);
  plan.stage = KVGUARD_STAGE_FINAL;
  plan.Table(0, 0, 1) = 9;
  s.Plan(plan);
  s.End();
  const auto findings = s.Findings();
  ASSERT_EQ(findings.size(), 1u) << s.Report();
  EXPECT_EQ(findings[0].code, static_cast<uint32_t>(rules::kTableMismatch));
  EXPECT_EQ(findings[0].stage, static_cast<uint32_t>(KVGUARD_STAGE_FINAL));
  EXPECT_NE(s.Explain(findings[0]).find(" stage=final"), std::string::npos);
}

TEST(FinalStage, AloneIsEnough) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 4);
  s.Step([](ScenarioPlan& p) { p.stage = KVGUARD_STAGE_FINAL; });
  EXPECT_EQ(s.verdict().verdict, kClean);
}

TEST(FinalStage, OnceSeenItIsMissed) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 4).Begin();
  ScenarioPlan plan = s.RightPlan();
  s.Plan(plan);
  plan.stage = KVGUARD_STAGE_FINAL;
  s.Plan(plan);
  s.End();
  EXPECT_EQ(s.verdict().verdict, kClean);
  s.Schedule("a", 1).Step();
  EXPECT_EQ(s.verdict().step_verdict, kCannotJudge);
  EXPECT_EQ(GapNames(s), Names{"final-plan-missing"});
}

TEST(End, AnAbandonedStepIsAGapAndTheNextMayStartWhereItStopped) {
  for (const int64_t done : {0, 2, 3}) {
    ScenarioOptions options;
    options.engine_flags |= KVGUARD_ENGINE_ASYNC;
    Scenario s(options);
    s.Admit("a", {{1, 2}}).Schedule("a", 4).Step();
    s.Schedule("a", 3).Begin();
    s.Plan(s.RightPlan());
    s.End(KVGUARD_END_ABANDONED);
    EXPECT_EQ(s.verdict().step_verdict, kCannotJudge);
    s.Computed("a") += done;
    s.Schedule("a", 1).Step();
    EXPECT_EQ(s.verdict().step_verdict, kClean) << done << s.Report();
  }
}

TEST(Coverage, SaysWhatIsExpectedAndWhatWasJudged) {
  Scenario s;
  const auto count = [&](uint32_t group, uint32_t pass, uint32_t stage, uint32_t family) {
    for (const kvguard_coverage_row& row : s.guard()->CoverageRows()) {
      if (row.group == group && row.pass == pass && row.stage == stage && row.family == family)
        return std::pair<uint64_t, uint32_t>{row.judged, row.expected};
    }
    return std::pair<uint64_t, uint32_t>{0, 9};
  };
  constexpr uint32_t kAll = KVGUARD_ALL_GROUPS;
  constexpr uint32_t kTarget = KVGUARD_PASS_TARGET;
  using Count = std::pair<uint64_t, uint32_t>;
  EXPECT_EQ(count(0, kTarget, KVGUARD_STAGE_PLANNED, KVGUARD_FAMILY_TABLE), (Count{0, 1}));
  EXPECT_EQ(count(kAll, 0, 0, KVGUARD_FAMILY_BINDING), (Count{0, 1}));
  s.Admit("a", {{1, 2}}).Schedule("a", 5).Step();
  EXPECT_EQ(count(0, kTarget, KVGUARD_STAGE_PLANNED, KVGUARD_FAMILY_TABLE), (Count{2, 1}));
  EXPECT_EQ(count(0, kTarget, KVGUARD_STAGE_PLANNED, KVGUARD_FAMILY_SLOT), (Count{5, 1}));
  EXPECT_EQ(count(kAll, kTarget, KVGUARD_STAGE_PLANNED, KVGUARD_FAMILY_STEP), (Count{1, 1}));
  EXPECT_EQ(count(kAll, kTarget, KVGUARD_STAGE_PLANNED, KVGUARD_FAMILY_LENGTH), (Count{1, 1}));
  EXPECT_EQ(count(kAll, kTarget, KVGUARD_STAGE_PLANNED, KVGUARD_FAMILY_FRONTIER), (Count{1, 0}));
  EXPECT_EQ(count(kAll, 0, 0, KVGUARD_FAMILY_FRONTIER), (Count{1, 1}));
  EXPECT_EQ(count(kAll, 0, 0, KVGUARD_FAMILY_OWNERSHIP), (Count{1, 1}));
  EXPECT_EQ(count(0, 0, 0, KVGUARD_FAMILY_BINDING), (Count{2, 0}));
}

// Whether a row still reads what was bound for it is judged of every row of a windowed group.
TEST(Coverage, LifetimeIsExpectedWhereAGroupForgets) {
  const auto lifetime = [](bool window) {
    ScenarioOptions options;
    if (window) options.groups[0].kind = KVGUARD_GROUP_WINDOW;
    if (window) options.groups[0].window = 8;
    Scenario s(options);
    s.Admit("a", {{1, 2}}).Schedule("a", 5).Step();
    EXPECT_EQ(s.verdict().verdict, kClean);
    for (const kvguard_coverage_row& row : s.guard()->CoverageRows()) {
      if (row.family == KVGUARD_FAMILY_LIFETIME)
        return std::pair<uint64_t, uint32_t>{row.judged, row.expected};
    }
    return std::pair<uint64_t, uint32_t>{0, 9};
  };
  EXPECT_EQ(lifetime(true), (std::pair<uint64_t, uint32_t>{1, 1}));
  EXPECT_EQ(lifetime(false), (std::pair<uint64_t, uint32_t>{0, 9}));
}

// A gap that was declared at arming is no step gap, but nothing was compared: armed but blind.
TEST(Coverage, AFamilyThatJudgedNothingKeepsTheVerdictOpen) {
  ScenarioOptions options;
  options.standing_gaps = {"table-not-presented"};
  Scenario s(options);
  s.Admit("a", {{1, 2}}).Schedule("a", 5).Step([](ScenarioPlan& plan) {
    plan.groups[0].table_present = false;
  });
  EXPECT_EQ(s.verdict().steps_judged, 1u) << s.error();
  EXPECT_EQ(s.verdict().step_gaps, 0u);
  EXPECT_EQ(s.Report(), "");
  EXPECT_EQ(s.verdict().verdict, kCannotJudge);
  s.Schedule("a", 1).Step();
  EXPECT_EQ(s.verdict().verdict, kClean) << "from the first comparison on it sees";
}

TEST(Coverage, AGroupThatIsNeverShownKeepsTheVerdictOpen) {
  ScenarioOptions options;
  options.standing_gaps = {"slots-not-presented"};
  Scenario s(options);
  s.Admit("a", {{1, 2}}).Schedule("a", 4);
  s.Step([](ScenarioPlan& p) { p.groups[0].slots_present = false; });
  EXPECT_EQ(s.verdict().step_gaps, 0u);
  EXPECT_EQ(s.verdict().verdict, kCannotJudge) << "a family that should have run did not";
}

TEST(Dummy, APadSlotThatIsRealIsFoundInsideAndBetweenSteps) {
  ScenarioPlan dummy;
  dummy.pass = KVGUARD_PASS_DUMMY;
  dummy.query_start = {0};
  dummy.padded_tokens = 4;
  dummy.groups.resize(1);
  dummy.groups[0].slots = {-1, -1, 9, -1};
  dummy.groups[0].table_present = false;
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 4).Step();
  s.Plan(dummy);
  EXPECT_EQ(s.Codes(), std::vector<uint32_t>{rules::kPadSlotReal});
  EXPECT_EQ(s.verdict().must_raise, 1u);
  EXPECT_EQ(s.Findings()[0].pass, static_cast<uint32_t>(KVGUARD_PASS_DUMMY));
}

TEST(Dummy, DoesNotReleaseTheOutputOfAViolatedStep) {
  ScenarioPlan dummy;
  dummy.pass = KVGUARD_PASS_DUMMY;
  dummy.query_start = {0};
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 4).Step(WrongSlot);
  EXPECT_EQ(s.verdict().must_raise, 1u);
  ASSERT_EQ(s.Plan(dummy), KVGUARD_OK);
  EXPECT_EQ(s.verdict().must_raise, 1u);
  EXPECT_EQ(s.verdict().step_verdict, kViolated);
  kvguard_verdict waited{};
  waited.size = sizeof(waited);
  ASSERT_EQ(kvguard_wait(s.guard(), 1, 0, &waited, nullptr), KVGUARD_OK);
  EXPECT_EQ(waited.must_raise, 1u);
}

struct Tapped {
  std::vector<uint32_t> kinds;
  std::vector<kvguard_status> fed;
  int destroyed = 0;
};

RecordTap TapInto(Tapped* tapped) {
  return {tapped,
          [](void* context, const kvguard_guard&, const kvguard_record& record, kvguard_status fed,
             const kvguard_verdict& verdict) {
            auto& t = *static_cast<Tapped*>(context);
            t.kinds.push_back(record.kind);
            t.fed.push_back(fed);
            EXPECT_EQ(verdict.size, sizeof(kvguard_verdict));
          },
          [](void* context) { ++static_cast<Tapped*>(context)->destroyed; }};
}

TEST(Tap, SeesEveryRecordAfterItWasJudged) {
  Tapped tapped;
  {
    Scenario s;
    AddTap(*s.guard(), TapInto(&tapped));
    s.Admit("a", {{1}}).Schedule("a", 1).Step();
    s.End();
    s.Feed(77, 3, &s);
    kvguard_feed(s.guard(), nullptr, nullptr, nullptr);
    EXPECT_EQ(tapped.kinds, (std::vector<uint32_t>{1, 2, 4, 4, 77, 0}));
    EXPECT_EQ(tapped.fed[2], KVGUARD_OK);
    EXPECT_EQ(tapped.fed[3], KVGUARD_ERROR_ORDER);
    EXPECT_EQ(tapped.fed[4], KVGUARD_ERROR_ARGUMENT);
    EXPECT_EQ(tapped.fed[5], KVGUARD_ERROR_ARGUMENT);
    RemoveTap(*s.guard(), &tapped);
    s.Reset();
    EXPECT_EQ(tapped.kinds.size(), 6u);
    AddTap(*s.guard(), TapInto(&tapped));
  }
  EXPECT_EQ(tapped.destroyed, 1);
}

TEST(JudgedColumns, AreThoseThatARuleMayRead) {
  ScenarioOptions options;
  options.groups = {{8, 4, KVGUARD_UNIT_KERNEL_BLOCK, 0}};
  Scenario s(options);
  s.Admit("a", {{1, 2}}).Schedule("a", 3).Begin();
  ScenarioPlan plan = s.RightPlan();
  plan.Pad(1, 0);
  const int32_t lengths[] = {27};
  s.Plan(plan, [&](kvguard_plan& raw, kvguard_group_plan* groups) {
    EXPECT_EQ(JudgedColumns(*s.guard(), raw, groups[0], 0), 4u) << "two blocks of two";
    EXPECT_EQ(JudgedColumns(*s.guard(), raw, groups[0], 1), 32u) << "padding is judged whole";
    raw.seq_lens = {lengths, 1, KVGUARD_I32, 0};
    EXPECT_EQ(JudgedColumns(*s.guard(), raw, groups[0], 0), 7u) << "or what attention would read";
    groups[0].encoding = KVGUARD_READ_CSR;
    EXPECT_EQ(JudgedColumns(*s.guard(), raw, groups[0], 0), 0u);
  });
}

}  // namespace
}  // namespace kvguard::audit
