// SPDX-License-Identifier: Apache-2.0
// Legal situations that look like faults. Each must be clean: a false alarm is the worst bug there
// is. They are numbered as engines' reference notes number them; what needs windows, recurrent
// states, context parallelism, draft passes, micro-batches or layers without slots (3, 4, 14, 20,
// 21, 23, 25, 26, 34) is refused or a gap in this version, 15, 22 and 35 are matters of an adapter,
// and 31 is a kind of reading that no plan shows.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "audit/scenario.h"
#include "step/status.h"
#include "tests/support/plan_edit.h"

namespace kvguard::tests {
namespace {

using audit::Scenario;
using audit::ScenarioOptions;
using audit::ScenarioPlan;

ScenarioOptions Engine(uint32_t flags, uint32_t max_drafts = 0) {
  ScenarioOptions options;
  options.engine_flags = KVGUARD_ENGINE_PREFIX_CACHE | flags;
  options.max_drafts = max_drafts;
  return options;
}

std::string Nth(const char* name, uint64_t i) {
  return step::Sprintf("%s%llu", name, static_cast<unsigned long long>(i));
}

void ExpectClean(const Scenario& s) {
  EXPECT_EQ(s.Report(), "");
  EXPECT_EQ(s.verdict().verdict, static_cast<uint32_t>(KVGUARD_CLEAN)) << s.error();
  EXPECT_EQ(s.verdict().step_gaps, 0u);
  EXPECT_EQ(s.verdict().suspicions, 0u);
  EXPECT_EQ(s.verdict().steps_judged > 0, true);
}

// --- 1: sharing a prefix; only writers are exclusive ---

TEST(Trap1Sharing, ManyRowsShowOneBlock) {
  Scenario s;
  s.Admit("a", {{1, 2, 3}}).Schedule("a", 9).Step();
  for (int64_t i = 0; i < 10; ++i) {
    const std::string name = Nth("b", i);
    s.Admit(name, {{1, 2, 10 + i}}, 8).Schedule(name, 1);
  }
  s.Step();
  for (int64_t i = 0; i < 10; ++i) s.Schedule(Nth("b", i), 1);
  s.Schedule("a", 1).Step();
  ExpectClean(s);
}

TEST(Trap1Sharing, StartsInTheStepThatWritesTheBlockWriterFirst) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 6);
  s.Admit("b", {{1, 3}}, 4).Schedule("b", 3).Step();
  ExpectClean(s);
}

TEST(Trap1Sharing, StartsInTheStepThatWritesTheBlockReaderFirst) {
  Scenario s;
  s.Admit("b", {{1, 3}}, 4).Schedule("b", 3);
  s.Admit("a", {{1, 2}}).Schedule("a", 6).Step();
  s.Schedule("a", 1).Schedule("b", 1).Step();
  ExpectClean(s);
}

TEST(Trap1Sharing, ManyReadersStandOnBothSidesOfTheWriter) {
  Scenario s;
  s.Admit("r1", {{1, 2, 11}}, 8).Schedule("r1", 1);
  s.Admit("r2", {{1, 12}}, 4).Schedule("r2", 2);
  s.Admit("w", {{1, 2, 3}}).Schedule("w", 9);
  s.Admit("r3", {{1, 2, 13}}, 8).Schedule("r3", 1);
  s.Step();
  ExpectClean(s);
}

// A new request hits the block that a running one gets and fills in this very step. A scheduler's
// output lists new requests before the blocks of running ones.
TEST(Trap1Sharing, ANewRequestHitsTheAppendOfTheSameStep) {
  for (const bool append_first : {false, true}) {
    Scenario s;
    s.Admit("a", {{1}}).Schedule("a", 4).Step();
    if (append_first) s.Append("a", {2});
    s.Admit("b", {{1, 2, 3}}, 8);
    if (!append_first) s.Append("a", {2});
    s.Schedule("a", 4).Schedule("b", 2).Step();
    ExpectClean(s);
  }
}

// The writer of a shared block ends; the readers go on, and later readers come.
TEST(Trap1Sharing, OutlivesTheWriter) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 6).Step();
  s.Admit("b", {{1, 3}}, 4).Schedule("b", 1).Finish("a").Step();
  s.Admit("c", {{1, 2}}, 4).Schedule("c", 1).Schedule("b", 1).Step();  // block 2: free, so fresh
  s.Finish("b").Finish("c").Admit("d", {{1, 3}}, 4).Schedule("d", 1).Step();
  s.Finish("d").Admit("e", {{3, 1}}).Schedule("e", 8).Step();  // and at last nobody holds it
  ExpectClean(s);
}

TEST(Trap1Sharing, AReaderThatEndsTakesNothingFromTheWriter) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 5).Step();
  s.Admit("b", {{1, 3}}, 4).Schedule("b", 1).Schedule("a", 1).Step();
  s.Preempt("b").Schedule("a", 1).Step();
  s.Admit("b", {{1, 3}}, 4).Schedule("b", 2).Schedule("a", 1).Step();
  ExpectClean(s);
}

// --- 5: what ends in a step gives its blocks to what starts in it ---

TEST(Trap5Reuse, AFinishedRequestsBlocksGoToANewOne) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 6).Step();
  s.Finish("a").Admit("b", {{2, 1}}).Schedule("b", 7).Step();
  ExpectClean(s);
}

TEST(Trap5Reuse, APreemptedRequestsBlocksGoToARunningOne) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 6).Admit("b", {{3}}).Schedule("b", 4).Step();
  s.Preempt("a").Append("b", {2}).Schedule("b", 1).Step();
  ExpectClean(s);
}

TEST(Trap5Reuse, APreemptedRequestComesBackInTheSameStep) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 6).Step();
  s.Preempt("a").Admit("a", {{2, 1}}).Schedule("a", 7).Step();
  ExpectClean(s);
}

TEST(Trap5Reuse, AResumedRequestHitsWhatItWroteItself) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 6).Admit("b", {{3}}).Schedule("b", 1).Step();
  s.Preempt("a").Schedule("b", 1).Step();
  s.Admit("a", {{1, 4}}, 4).Schedule("a", 3).Schedule("b", 1).Step();
  s.Schedule("a", 1).Step();
  ExpectClean(s);
}

TEST(Trap5Reuse, ABlockChangesHandsInEveryStep) {
  Scenario s;
  for (int i = 0; i < 50; ++i) {
    if (i > 0) s.Finish("r");
    s.Admit("r", {{1, 2}}).Schedule("r", 5 + i % 4).Step();
  }
  ExpectClean(s);
}

// --- 6: the engine schedules ahead of what it knows ---

TEST(Trap6InFlight, AFinishedRequestStandsInOneMoreStep) {
  Scenario s(Engine(KVGUARD_ENGINE_ASYNC));
  s.Admit("a", {{1}}).Schedule("a", 3).Step();
  s.Schedule("a", 1).Step();  // the outcome of step 1 ended it, but step 2 was scheduled before
  s.Finish("a").Admit("b", {{1}}).Schedule("b", 4);
  s.Begin();
  s.Outcome(2, "a", 1, 0);  // for a request that is gone
  s.Plan(s.RightPlan());
  s.End();
  ExpectClean(s);
}

TEST(Trap6InFlight, AnOutcomeComesStepsLater) {
  Scenario s(Engine(KVGUARD_ENGINE_ASYNC, 3));
  s.Admit("a", {{1, 2, 3}}).Schedule("a", 2).Step();
  s.Schedule("a", 4, 3).Step();  // 3..6 valid
  s.Computed("a") = 4;           // the runner's own count: two of three drafts were rejected
  s.Schedule("a", 1, 0, 6).Step();
  s.Computed("a") += 2;  // Outcome below takes them off once more
  s.Outcome(2, "a", 2, 2);
  s.Schedule("a", 1).Step();
  ExpectClean(s);
  EXPECT_EQ(s.verdict().assumptions, 1u) << "a start inside the bounds was taken from the plan";
}

// The scheduler has heard of the rejected drafts before the guard does.
TEST(Trap6InFlight, TheSchedulerKnowsAnOutcomeBeforeTheGuard) {
  for (const uint32_t rejected : {0u, 1u, 2u, 3u}) {
    Scenario s(Engine(KVGUARD_ENGINE_ASYNC, 3));
    s.Admit("a", {{1, 2, 3, 4}}).Schedule("a", 4, 3).Step();
    s.Computed("a") -= rejected;
    s.Schedule("a", 1).Step();
    s.Computed("a") += rejected;
    s.Outcome(1, "a", 1, rejected);
    for (int i = 0; i < 6; ++i) s.Schedule("a", 1).Step();
    ExpectClean(s);
  }
}

TEST(Trap6InFlight, ASynchronousEnginesOutcomeComesLate) {
  Scenario s(Engine(0, 3));
  s.Admit("a", {{1, 2, 3}}).Schedule("a", 4, 3).Step();
  s.Computed("a") -= 2;
  s.Schedule("a", 1).Step();
  s.Computed("a") += 2;
  s.Outcome(1, "a", 2, 2);
  s.Schedule("a", 1).Step();
  ExpectClean(s);
}

// Near the end an asynchronous scheduler counts drafts that can never be kept, without blocks for
// them.
TEST(Trap6InFlight, NoBlocksAreNeededBeyondTheModelsLength) {
  ScenarioOptions options = Engine(KVGUARD_ENGINE_ASYNC, 3);
  options.max_model_len = 16;
  Scenario s(options);
  s.Admit("a", {{1, 2, 3, 4}}).Schedule("a", 9).Step();
  s.Schedule("a", 4, 3).Step();  // the scheduler counts 13
  s.Computed("a") -= 3;          // all three are rejected: 10
  s.Schedule("a", 4, 3, 13).Step();
  s.Computed("a") += 3;
  s.Outcome(2, "a", 1, 3);
  s.Outcome(3, "a", 1, 3);
  s.Schedule("a", 1).Step();
  ExpectClean(s);
}

// --- 7: blocks that stay away ---

TEST(Trap7DelayedFree, BlocksThatNeverComeBackAreNotMissed) {
  Scenario s(Engine(KVGUARD_ENGINE_CONNECTOR));
  s.Admit("a", {{1, 2}}).Schedule("a", 6).Admit("b", {{3, 4, 5, 6}}).Schedule("b", 1).Step();
  s.Finish("a").Schedule("b", 1).Step();
  for (int i = 0; i < 10; ++i) s.Schedule("b", 1).Step();
  ExpectClean(s);
}

// --- 8, 10, 11: a connector's loads ---

TEST(Trap8AsyncLoad, BlocksArriveFullOfWhatNobodyWroteHere) {
  Scenario s(Engine(KVGUARD_ENGINE_CONNECTOR));
  s.Admit("a", {{1, 2, 3}}, 9).Schedule("a", 1).Step();
  s.Schedule("a", 1).Step();
  ExpectClean(s);
}

// All of the prompt was loaded: its last token is computed again, in a block that others share.
TEST(Trap10LastToken, IsWrittenAgainIntoASharedBlock) {
  Scenario s(Engine(KVGUARD_ENGINE_CONNECTOR));
  s.Admit("a", {{1, 2}}, 7).Schedule("a", 1).Step();
  s.Admit("b", {{1, 2}}, 7).Schedule("b", 1).Append("a", {3}).Schedule("a", 1).Step();
  EXPECT_EQ(s.verdict().verdict, static_cast<uint32_t>(KVGUARD_CLEAN)) << s.Report();
  EXPECT_EQ(s.verdict().must_raise, 0u);
  EXPECT_EQ(s.verdict().proofs, 0u);
  for (const kvguard_finding& finding : s.Findings())
    EXPECT_EQ(finding.grade, static_cast<uint32_t>(KVGUARD_GRADE_SUSPICION));
}

// The same of a block that a connector filled unsaid: where it belongs, its holder says.
TEST(Trap10LastToken, IsWrittenAgainIntoABlockThatAConnectorFilled) {
  Scenario s(Engine(KVGUARD_ENGINE_CONNECTOR));
  s.Admit("a", {{1, 2, 3}}).Schedule("a", 8).Step();
  s.Finish("a").Admit("b", {{1, 2, 4}}, 8).Tokens({1, 2, 3, 4, 5, 6, 7, 8, 9}).Schedule("b", 1);
  s.Step();
  s.Admit("c", {{1, 2}}, 7).Tokens({1, 2, 3, 4, 5, 6, 7, 8}).Schedule("c", 1).Step();
  ExpectClean(s);
}

// ... and a fault all the same where nobody holds it in that column.
TEST(Trap10LastToken, InABlockOfAnotherColumnIsAFault) {
  Scenario s(Engine(KVGUARD_ENGINE_CONNECTOR));
  s.Admit("a", {{2, 1, 3}}).Schedule("a", 8).Step();
  s.Finish("a").Admit("b", {{2, 1, 4}}, 8).Tokens({1, 2, 3, 4, 5, 6, 7, 8, 9}).Schedule("b", 1);
  s.Step();
  s.Admit("c", {{7, 2}}, 7).Tokens({9, 9, 9, 9, 5, 6, 7, 8}).Schedule("c", 1).Step();
  EXPECT_NE(s.Report(), "");
  EXPECT_EQ(s.verdict().suspicions > 0, true);
}

TEST(Trap11LoadFailed, TheCountGoesBackAndBlocksAreWrittenAgain) {
  Scenario s(Engine(KVGUARD_ENGINE_CONNECTOR));
  s.Admit("a", {{1, 2, 3, 4}}, 12).Schedule("a", 2).Step();
  s.Computed("a") = 4;  // the load of block 2 had failed
  s.Schedule("a", 10).Step();
  s.Schedule("a", 1).Step();
  ExpectClean(s);
}

TEST(Trap11LoadFailed, SharedBlocksAreComputedAgainByOneOfTheirHolders) {
  Scenario s(Engine(KVGUARD_ENGINE_CONNECTOR));
  s.Admit("a", {{1, 2, 3}}, 8).Schedule("a", 1);
  s.Admit("b", {{1, 2, 4}}, 8).Schedule("b", 1).Step();
  s.Computed("a") = 0;
  s.Schedule("a", 9).Schedule("b", 1).Step();
  EXPECT_EQ(s.verdict().verdict, static_cast<uint32_t>(KVGUARD_CLEAN)) << s.Report();
  EXPECT_EQ(s.verdict().proofs, 0u);
}

// --- 9: keys and names ---

TEST(Trap9Keys, AnAbortBeforeTheFirstScheduleIsCounted) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 6).Finish("never-seen").Preempt("nor-this").Step();
  ExpectClean(s);
  EXPECT_EQ(s.verdict().ignored, 2u);
}

TEST(Trap9Keys, FinishedTwiceIsCounted) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 6).Step();
  s.Finish("a").Finish("a").Admit("b", {{1}}).Schedule("b", 1).Step();
  ExpectClean(s);
  EXPECT_EQ(s.verdict().ignored, 1u);
}

// Streaming input: the request comes again as new, with the row that it had.
TEST(Trap9Keys, ALiveNameIsAdmittedAgainWithItsOwnBlocks) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 6).Admit("b", {{7}}).Schedule("b", 1).Step();
  s.Finish("a").Admit("a", {{1, 2, 3}}, 6).Schedule("a", 5).Schedule("b", 1).Step();
  s.Schedule("a", 1).Step();
  ExpectClean(s);
}

// --- 12: copies; declared as not judged in this version ---

TEST(Trap12Copy, APartialHitContinuesInItsPrivateCopy) {
  ScenarioOptions options = Engine(KVGUARD_ENGINE_PARTIAL_HITS);
  options.standing_gaps = {"copy-not-judged"};
  Scenario s(options);
  s.Admit("a", {{1, 2}}).Schedule("a", 7).Step();
  const std::vector<int64_t> pair = {2, 3};
  kvguard_event copy{};
  copy.size = sizeof(copy);
  copy.kind = KVGUARD_EVENT_COPY;
  copy.group = 0;
  copy.blocks = pair.data();
  copy.num_blocks = pair.size();
  copy.count = 2;
  s.Event(copy);
  s.Admit("b", {{1, 3}}, 6).Schedule("b", 1).Schedule("a", 1).Step();
  ExpectClean(s);
}

// --- 13: rejected drafts are written again ---

TEST(Trap13Drafts, RejectedOnesAreWrittenAgainInTheNextStep) {
  for (const uint32_t flags : {0u, static_cast<uint32_t>(KVGUARD_ENGINE_ASYNC)}) {
    Scenario s(Engine(flags, 3));
    s.Admit("a", {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}}).Schedule("a", 5).Step();
    for (uint32_t i = 0; i < 8; ++i) {
      s.Schedule("a", 4, 3).Step();
      s.Outcome(s.step(), "a", 4 - i % 4, i % 4);
    }
    ExpectClean(s);
    EXPECT_EQ(s.verdict().assumptions, 0u);
  }
}

TEST(Trap13Drafts, AnOutcomeInsideItsStepIsAsGood) {
  Scenario s(Engine(KVGUARD_ENGINE_ASYNC, 3));
  s.Admit("a", {{1, 2, 3}}).Schedule("a", 4, 3);
  s.Begin();
  s.Plan(s.RightPlan());
  s.Outcome(1, "a", 2, 2);
  s.End();
  s.Schedule("a", 1).Step();
  ExpectClean(s);
}

// --- 16: dummy runs ---

ScenarioPlan Dummy(uint64_t tokens, int64_t residue) {
  ScenarioPlan dummy;
  dummy.pass = KVGUARD_PASS_DUMMY;
  dummy.query_start = {0};
  dummy.groups.resize(1);
  dummy.groups[0].columns = 16;
  dummy.groups[0].table.assign(16 * 4, residue);
  dummy.padded_rows = 4;
  dummy.padded_tokens = tokens;
  dummy.groups[0].slots.assign(tokens, -1);
  return dummy;
}

TEST(Trap16Dummy, MovesNothingWhateverItsTablesShow) {
  Scenario s;
  EXPECT_EQ(s.Plan(Dummy(8, 0)), KVGUARD_OK);  // before the first step
  s.Admit("a", {{1, 2}}).Schedule("a", 5).Step();
  EXPECT_EQ(s.Plan(Dummy(64, 63)), KVGUARD_OK);
  EXPECT_EQ(s.Plan(Dummy(1, -1)), KVGUARD_OK);
  s.Schedule("a", 1).Begin();
  EXPECT_EQ(s.Plan(Dummy(4, 1'000'000)), KVGUARD_OK);  // inside one
  s.Plan(s.RightPlan());
  s.End();
  ExpectClean(s);
}

// --- 17, 33: everything starts anew ---

TEST(Trap17WarmUp, LeavesNothingBehindOnceArmed) {
  Scenario s;
  for (int i = 0; i < 4; ++i) {
    const std::string name = Nth("_warmup_", i) + "_";
    s.Admit(name, {{1 + i}}).Schedule(name, 4);
  }
  s.Step();
  EXPECT_EQ(s.Reset(KVGUARD_RESET_ARM), KVGUARD_OK);
  s.Admit("a", {{1, 2, 3}}).Schedule("a", 9).Step();
  ExpectClean(s);
}

TEST(Trap33Void, AfterSleepTheSameBlocksAreBoundAsNew) {
  for (const uint32_t reason : {KVGUARD_RESET_SLEEP, KVGUARD_RESET_WEIGHTS, KVGUARD_RESET_LAYOUT}) {
    Scenario s;
    s.Admit("a", {{1, 2}}).Schedule("a", 6).Step();
    EXPECT_EQ(s.Reset(reason), KVGUARD_OK);
    s.Admit("b", {{2, 1}}).Schedule("b", 6).Step();
    s.Finish("a").Schedule("b", 1).Step();  // of a request that the reset forgot
    ExpectClean(s);
  }
}

// --- 2, 18, 19, 30: what no kernel looks at may hold anything ---

TEST(Trap18Padding, PaddedTokensHaveStalePositions) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 5).Begin();
  ScenarioPlan plan = s.RightPlan();
  plan.Pad(3, 11);
  std::vector<int64_t> stale = plan.positions;
  stale.resize(16, 77);
  s.Plan(plan, [&](kvguard_plan& raw, kvguard_group_plan*) {
    raw.positions = {stale.data(), stale.size(), KVGUARD_I64, 0};
  });
  s.End();
  ExpectClean(s);
}

TEST(Trap18Padding, BuffersAreLongerThanThePlan) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 5).Begin();
  ScenarioPlan plan = s.RightPlan();
  plan.Pad(1, 3);
  plan.query_start.resize(40, 5);
  for (int i = 0; i < 30; ++i) {  // behind the padding: residue of a larger batch
    plan.seq_lens.push_back(9);
    plan.groups[0].slots.push_back(40 + i);
    for (uint64_t j = 0; j < plan.groups[0].columns; ++j) plan.groups[0].table.push_back(9);
  }
  s.Plan(plan);
  s.End();
  ExpectClean(s);
}

TEST(Trap19StaleColumns, HoldEarlierOwnersOrGarbage) {
  Scenario s;
  s.Admit("a", {{1, 2, 3}}).Schedule("a", 9).Admit("b", {{5, 6}}).Schedule("b", 5).Step();
  s.Finish("a").Admit("c", {{4}}).Schedule("c", 2).Schedule("b", 1);
  s.Step([](ScenarioPlan& p) {
    p.Table(0, 0, 1) = 2;  // residue of a, in c's row
    p.Table(0, 0, 2) = 3;
    p.Table(0, 1, 2) = 1;  // and the neighbour's block behind b's row
    p.Table(0, 1, 15) = 0x7fffffff;
    p.Table(0, 1, 14) = -3;
  });
  ExpectClean(s);
}

TEST(Trap30PartialBlock, OldDataStandsBehindTheFrontier) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 8).Step();
  s.Finish("a").Admit("b", {{2}}).Schedule("b", 1).Step();  // slots 9..11 still hold a's tokens
  for (int i = 0; i < 3; ++i) s.Schedule("b", 1).Step();
  ExpectClean(s);
}

// --- 24: several groups of different sizes over one pool ---

TEST(Trap24Hybrid, GroupsOfDifferentBlockSizesShareAPool) {
  ScenarioOptions options;
  options.groups = {{4, 4, KVGUARD_UNIT_BLOCK, 0}, {8, 8, KVGUARD_UNIT_BLOCK, 0}};
  Scenario s(options);
  s.Admit("a", {{1, 2, 3}, {4, 5}}).Schedule("a", 10);
  s.Admit("b", {{1, 2, 6}, {4, 7}}, 8).Schedule("b", 2).Step();  // hits in both groups
  s.Append("a", {9}, 1).Schedule("a", 2).Schedule("b", 1).Step();
  s.Finish("a").Append("b", {3}, 1).Schedule("b", 1).Step();  // a's block of the other group
  ExpectClean(s);
}

TEST(Trap24Hybrid, ABlockChangesItsGroup) {
  ScenarioOptions options;
  options.groups = {{4, 4, KVGUARD_UNIT_BLOCK, 0}, {8, 8, KVGUARD_UNIT_BLOCK, 0}};
  Scenario s(options);
  s.Admit("a", {{1, 2}, {3}}).Schedule("a", 8).Step();
  s.Finish("a").Admit("b", {{3}, {1}}).Schedule("b", 4).Step();
  s.Finish("b").Admit("c", {{1, 3}, {2}}).Schedule("c", 7).Step();
  ExpectClean(s);
}

TEST(Trap24Hybrid, EqualIdsInTwoPoolsAreDifferentBlocks) {
  ScenarioOptions options;
  options.groups = {{4, 4, KVGUARD_UNIT_BLOCK, 0}, {4, 4, KVGUARD_UNIT_BLOCK, 1}};
  Scenario s(options);
  s.Admit("a", {{1, 2}, {1, 2}}).Schedule("a", 6);
  s.Admit("b", {{3, 4}, {4, 3}}).Schedule("b", 6).Step();
  s.Finish("a").Append("b", {1}, 0).Append("b", {2}, 1).Schedule("b", 3).Step();
  ExpectClean(s);
}

TEST(Trap24Hybrid, KernelBlocksAreSmallerThanBlocks) {
  ScenarioOptions options;
  options.groups = {{64, 16, KVGUARD_UNIT_KERNEL_BLOCK, 0}, {16, 16, KVGUARD_UNIT_BLOCK, 0}};
  Scenario s(options);
  s.Admit("a", {{5, 9}, {1, 2, 3, 4, 6}}).Schedule("a", 70).Begin();
  ScenarioPlan plan = s.RightPlan();
  EXPECT_EQ(plan.Table(0, 0, 4), 36) << "block 9 is kernel blocks 36..39";
  EXPECT_EQ(plan.groups[0].slots[65], 9 * 64 + 1);
  plan.Pad(2, 2);
  plan.Table(0, 1, 3) = 3;  // a kernel block of the null block is null, too
  s.Plan(plan);
  s.End();
  s.Admit("b", {{5, 10}, {1, 2, 3, 4, 7}}, 64).Schedule("b", 9).Schedule("a", 1).Step();
  ExpectClean(s);
}

// --- 27: a request's row changes from step to step ---

TEST(Trap27Order, RowsComeInAnyOrder) {
  Scenario s;
  std::vector<size_t> order = {0, 1, 2, 3, 4};
  for (const size_t i : order)
    s.Admit(Nth("r", i), {{static_cast<int64_t>(2 * i + 1), static_cast<int64_t>(2 * i + 2)}});
  int steps = 0;
  do {
    for (size_t i = 0; i < 5; ++i) s.Schedule(Nth("r", i), steps == 0 ? 3 : 1);
    s.Step([&](ScenarioPlan& p) { p = WithRows(p, order); });
    std::rotate(order.begin(), order.begin() + 2, order.end());
  } while (++steps < 5);
  ExpectClean(s);
}

// --- 28: a pipeline rank hears of rejected drafts one round later, between BEGIN and PLAN ---

TEST(Trap28Pipeline, TheCountIsCorrectedInsideTheNextStep) {
  for (const uint32_t rejected : {0u, 1u, 3u}) {
    Scenario s(Engine(KVGUARD_ENGINE_ASYNC, 3));
    s.Admit("a", {{1, 2, 3, 4}}).Schedule("a", 4, 3).Step();
    s.Schedule("a", 2, 1, 4).Begin();
    s.Outcome(1, "a", 4 - rejected, rejected);
    s.Plan(s.RightPlan());
    s.End();
    s.Outcome(2, "a", 1, 1);
    s.Schedule("a", 1).Step();
    ExpectClean(s);
    EXPECT_EQ(s.verdict().assumptions, 0u) << "the outcome was known before the plan";
  }
}

// --- 29: steps without tokens ---

TEST(Trap29NoTokens, FinishesAndBlocksCountAllTheSame) {
  Scenario s;
  s.Admit("a", {{1}}).Schedule("a", 4).Admit("b", {{2}}).Schedule("b", 1).Step();
  s.Finish("b").Append("a", {3}).Begin();
  s.End();
  s.Admit("c", {{2}}).Begin();
  s.End();
  s.Schedule("a", 1).Schedule("c", 2).Step();
  ExpectClean(s);
  EXPECT_EQ(s.verdict().steps, 4u);
  EXPECT_EQ(s.verdict().steps_judged, 2u);
}

TEST(Trap29NoTokens, AStepMayNotRunAfterAll) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 4).Step();
  s.Schedule("a", 1).Begin();
  s.End(KVGUARD_END_NO_FORWARD);
  s.Schedule("a", 1).Step();
  ExpectClean(s);
}

// --- 32: siblings ---

TEST(Trap32Siblings, ChildrenOfOnePromptShareItsFullBlocksOnly) {
  Scenario s;
  s.Admit("0_p", {{1, 2}}).Schedule("0_p", 6);
  s.Admit("1_p", {{1, 3}}, 4).Schedule("1_p", 2);
  s.Admit("2_p", {{1, 4}}, 4).Schedule("2_p", 2).Step();
  for (int i = 0; i < 2; ++i) s.Schedule("0_p", 1).Schedule("1_p", 1).Schedule("2_p", 1).Step();
  s.Finish("0_p").Schedule("1_p", 1).Append("1_p", {5}).Step();
  s.Finish("1_p").Schedule("2_p", 1).Append("2_p", {3}).Step();
  ExpectClean(s);
}

}  // namespace
}  // namespace kvguard::tests
