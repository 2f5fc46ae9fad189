// SPDX-License-Identifier: Apache-2.0
// Corners of docs/judging.md that two auditors written apart had read in two ways.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "audit/scenario.h"
#include "rules/catalog.h"

namespace kvguard::tests {
namespace {

using audit::Scenario;
using audit::ScenarioOptions;
using audit::ScenarioPlan;

ScenarioOptions Async() {
  ScenarioOptions options;
  options.engine_flags |= KVGUARD_ENGINE_ASYNC;
  options.max_drafts = 3;
  return options;
}

bool Found(const Scenario& s, uint32_t code) {
  const std::vector<uint32_t> codes = s.Codes();
  return std::find(codes.begin(), codes.end(), code) != codes.end();
}

TEST(Corners, AHitThatIsGivenBackExcusesNoFreshBinding) {
  Scenario s;
  s.Admit("writer", {{3}}).Schedule("writer", 4).Step();
  s.Admit("gone", {{3, 6}}, 4).Truncate("gone", 0).Admit("new", {{3}}).Schedule("new", 1).Step();
  ASSERT_FALSE(s.Findings().empty());
  EXPECT_EQ(s.Findings()[0].code, static_cast<uint32_t>(rules::kBlockOwned)) << s.Report();
}

TEST(Corners, AStepWithoutDraftsHasNothingToRejectHoweverLateItIsSaid) {
  for (const bool drafts : {false, true}) {
    Scenario s(Async());
    s.Admit("a", {{1, 2, 3, 4, 5}}).Schedule("a", 4).Step();
    const uint64_t without = s.step();
    s.Schedule("a", 4, 3).Step();
    const uint64_t with = s.step();
    s.Rollback("a", 0).Schedule("a", 1).Step();  // what was open is settled
    s.Outcome(drafts ? with : without, "a", 1, 3);
    EXPECT_EQ(Found(s, rules::kRejectedTooMany), !drafts) << s.Report();
    s.Outcome(with, "a", 1, 3);
    EXPECT_TRUE(Found(s, rules::kRejectedTooMany)) << "told twice\n" << s.Report();
  }
}

TEST(Corners, ATokenWithoutABlockIsNotExcusedByThePadSlot) {
  Scenario s;
  s.Admit("a", {{1}}).Schedule("a", 5).Step([](ScenarioPlan& p) { p.groups[0].slots[4] = -1; });
  EXPECT_TRUE(Found(s, rules::kCapacityShort)) << s.Report();
  EXPECT_TRUE(Found(s, rules::kSlotPad)) << s.Report();
}

TEST(Corners, APadBetweenTwoForeignWritesMakesThemTwo) {
  Scenario s;
  s.Admit("a", {{1, 2}})
      .Schedule("a", 4)
      .Admit("b", {{3}})
      .Schedule("b", 3)
      .Step([](ScenarioPlan& p) {
        p.groups[0].slots[4] = 1 * 4 + 1;
        p.groups[0].slots[5] = -1;
        p.groups[0].slots[6] = 1 * 4 + 2;
      });
  const std::vector<uint32_t> codes = s.Codes();
  EXPECT_EQ(std::count(codes.begin(), codes.end(), static_cast<uint32_t>(rules::kForeignWrite)), 2)
      << s.Report();
}

TEST(Corners, AFinalPlanOfAnUnjudgedStepIsMissedInTheNext) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 4).Gap("fields-unknown").Begin();
  ScenarioPlan plan = s.RightPlan();
  plan.stage = KVGUARD_STAGE_FINAL;
  s.Plan(plan);
  s.End();
  s.Schedule("a", 1).Step();
  EXPECT_EQ(s.verdict().step_verdict, static_cast<uint32_t>(KVGUARD_CANNOT_JUDGE));
}

// What an abandoned step came to may still be told.
TEST(Corners, TheOutcomeOfAnAbandonedStepIsNoFault) {
  Scenario s(Async());
  s.Admit("a", {{1, 2, 3}}).Schedule("a", 4, 3).Begin();
  s.Plan(s.RightPlan());
  s.End(KVGUARD_END_ABANDONED);
  s.Outcome(s.step(), "a", 1, 3);
  EXPECT_TRUE(s.Findings().empty()) << s.Report();
}

// Until the outcome of drafts is told, the plan's own start is taken; when it is told, the start
// that was taken must have been the right one.
TEST(Corners, AStartThatTheOutcomeContradictsIsFoundWhenItIsTold) {
  for (const int64_t start : {8, 6}) {
    Scenario s(Async());
    s.Admit("a", {{1, 2, 3, 4, 5}}).Schedule("a", 4).Step();
    s.Schedule("a", 4, 3).Step();  // computes 4..7, of which two are rejected
    const uint64_t drafted = s.step();
    s.Computed("a") = start;
    s.Schedule("a", 1, 0, 8).Step();
    EXPECT_TRUE(s.Findings().empty()) << s.Report();
    EXPECT_EQ(s.verdict().assumptions, 1u);
    s.Outcome(drafted, "a", 2, 2);
    EXPECT_EQ(Found(s, rules::kFrontierMismatch), start == 8) << s.Report();
  }
}

// With a connector a block that nobody claims may have been filled from outside, unsaid: neither
// where it was bound before nor that it was never filled speaks against a hit.
TEST(Corners, AConnectorMayHaveFilledAFreeBlock) {
  for (const bool connector : {false, true}) {
    ScenarioOptions options;
    if (connector) options.engine_flags |= KVGUARD_ENGINE_CONNECTOR;
    Scenario s(options);
    s.Admit("a", {{1, 2, 3}}).Schedule("a", 6).Step();
    s.Finish("a").Step();
    s.Admit("b", {{3, 2, 4}}, 8).Schedule("b", 1).Step();
    EXPECT_EQ(Found(s, rules::kContentMisplaced), !connector) << s.Report();
    EXPECT_EQ(Found(s, rules::kContentUnwritten), !connector) << s.Report();
    EXPECT_EQ(s.verdict().suspicions, 0u);
  }
}

// Two requests that compute the last token of one shared block again write what it holds.
TEST(Corners, TwoMayComputeASharedLastTokenAgain) {
  Scenario s;
  s.Admit("a", {{1, 2, 3}}).Tokens({1, 2, 3, 4, 5, 6, 7, 8}).Schedule("a", 8).Step();
  s.Admit("b", {{1, 2}}, 7).Tokens({1, 2, 3, 4, 5, 6, 7, 8}).Schedule("b", 1);
  s.Admit("c", {{1, 2}}, 7).Tokens({1, 2, 3, 4, 5, 6, 7, 8}).Schedule("c", 1).Step();
  EXPECT_EQ(s.Report(), "");
}

// What marks a position is a set: told in another order, or twice, it is the same.
TEST(Corners, MarksHaveNoOrder) {
  Scenario s;
  const std::vector<int64_t> tokens = {1, 2, 3, 4, 5};
  s.Admit("a", {{1, 2}}).Tokens(tokens).Domain(KVGUARD_DOMAIN_LORA, 7, 0, 9);
  s.Domain(KVGUARD_DOMAIN_SALT, 9, 0, 9).Schedule("a", 5).Step();
  s.Admit("b", {{1, 3}}, 4).Tokens(tokens).Domain(KVGUARD_DOMAIN_SALT, 9, 0, 9);
  s.Domain(KVGUARD_DOMAIN_LORA, 7, 0, 9).Domain(KVGUARD_DOMAIN_LORA, 7, 0, 9).Schedule("b", 1);
  s.Step();
  EXPECT_EQ(s.Report(), "");
}

}  // namespace
}  // namespace kvguard::tests
