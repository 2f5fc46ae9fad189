// SPDX-License-Identifier: Apache-2.0
// Traps of what is in flight: steps, drafts, blocks that stay away.
#include <gtest/gtest.h>

#include "rules/catalog.h"
#include "tests/traps/trap_test.h"

namespace kvguard::tests {
namespace {

using audit::Scenario;
using audit::ScenarioOptions;
using audit::ScenarioPlan;

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

// The runner knows which drafts were accepted before the guard does, and goes on from there.
TEST(Trap6InFlight, StatesGoOnFromAnOutcomeThatIsNotToldYet) {
  for (const uint32_t mode : {KVGUARD_STATE_NONE, KVGUARD_STATE_ALIGN}) {
    for (uint32_t rejected = 0; rejected <= 2; ++rejected) {
      ScenarioOptions options = WithStates(mode);
      options.engine_flags |= KVGUARD_ENGINE_ASYNC;
      CheckTrap(options, rules::kStateMismatch, [=](Scenario& s, bool wrong) {
        s.Admit("a", {{1, 2, 3}, {20, 21, 22, 23, 24}}).Schedule("a", 5).Step();
        s.Schedule("a", 3, 2).Step();
        s.Computed("a") -= rejected;
        s.Schedule("a", 1, 0, 8).Step([=](ScenarioPlan& p) {
          if (wrong) p.groups[1].in[0] = 24;
        });
        if (wrong) return;
        s.Computed("a") += rejected;
        s.Outcome(2, "a", 3 - rejected, rejected);
        for (int i = 0; i < 2; ++i) s.Schedule("a", 1).Step();
      });
    }
  }
}

// --- 7: blocks that stay away ---

TEST(Trap7DelayedFree, BlocksThatNeverComeBackAreNotMissed) {
  Scenario s(Engine(KVGUARD_ENGINE_CONNECTOR));
  s.Admit("a", {{1, 2}}).Schedule("a", 6).Admit("b", {{3, 4, 5, 6}}).Schedule("b", 1).Step();
  s.Finish("a").Schedule("b", 1).Step();
  for (int i = 0; i < 10; ++i) s.Schedule("b", 1).Step();
  ExpectClean(s);
}

TEST(Trap7DelayedFree, BlocksThatAreBeingSentComeBackLate) {
  CheckTrap(Engine(KVGUARD_ENGINE_CONNECTOR), rules::kPinnedRebound, [](Scenario& s, bool wrong) {
    s.Admit("a", {{1, 2}}).Schedule("a", 6).Admit("b", {{3, 4, 5}}).Schedule("b", 1).Step();
    s.Blocks(KVGUARD_EVENT_SEND_PENDING, "a", {1, 2}, 1).Finish("a").Schedule("b", 1).Step();
    for (int i = 0; i < 5; ++i) s.Schedule("b", 1).Step();
    if (!wrong) s.Blocks(KVGUARD_EVENT_SEND_DONE, "", {}, 1);
    s.Admit("c", {{2, 1}}).Schedule("c", 6).Step();
  });
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

TEST(Trap13Drafts, OfAcceptedOnesTheStateStandsFurtherOn) {
  for (const uint32_t mode : {KVGUARD_STATE_NONE, KVGUARD_STATE_ALIGN}) {
    for (int64_t rejected = 0; rejected <= 2; ++rejected) {
      CheckTrap(WithStates(mode), rules::kStateMismatch, [=](Scenario& s, bool wrong) {
        s.Admit("a", {{1, 2, 3}, {20, 21, 22, 23, 24}}).Schedule("a", 5).Step();
        s.Schedule("a", 3, 2).Step();
        s.Outcome(s.step(), "a", static_cast<uint32_t>(3 - rejected),
                  static_cast<uint32_t>(rejected));
        s.Schedule("a", 1).Step([=](ScenarioPlan& p) {
          const int64_t first = mode == KVGUARD_STATE_NONE ? 20 : 21;
          EXPECT_EQ(p.groups[1].in[0], first + 2 - rejected);
          if (wrong) p.groups[1].in[0] = first + 3 - rejected;
        });
      });
    }
  }
}

TEST(Trap13Drafts, StatesOfRejectedOnesAreWrittenAgainInEveryStep) {
  for (const uint32_t mode : {KVGUARD_STATE_NONE, KVGUARD_STATE_ALIGN}) {
    Scenario s(WithStates(mode));
    s.Admit("a", {{1, 2, 3, 4, 5, 6}, {20, 21, 22, 23, 24, 25, 26, 27}}).Schedule("a", 5).Step();
    for (uint32_t i = 0; i < 6; ++i) {
      s.Schedule("a", 3, 2).Step();
      s.Outcome(s.step(), "a", 3 - i % 3, i % 3);
    }
    ExpectClean(s);
  }
}

// --- 14: drafts and lookahead at the edges ---

// Blocks for drafts come with the step that has some: none stand behind what was loaded.
TEST(Trap14Edges, LookaheadIsAbsentAfterAnAsynchronousLoad) {
  CheckTrap(Engine(KVGUARD_ENGINE_CONNECTOR | KVGUARD_ENGINE_ASYNC, 3), rules::kCapacityShort,
            [](Scenario& s, bool wrong) {
              s.Expect("r").Blocks(KVGUARD_EVENT_LOAD, "r", {5, 6}, 1).Admit("b", {{1}});
              s.Schedule("b", 1).Step();
              s.Blocks(KVGUARD_EVENT_LOAD_DONE, "", {}, 1).Admit("r", {{5, 6, 7}}, 8);
              s.Schedule("r", 4).Step();
              if (!wrong) s.Append("r", {8});
              s.Schedule("r", 4, 3).Step();
            });
}

// An asynchronous scheduler counts drafts that can never be kept: near the end without blocks for
// them, but for all that can be kept.
TEST(Trap14Edges, NearTheModelsLengthBlocksEndWithIt) {
  ScenarioOptions options = Engine(KVGUARD_ENGINE_ASYNC, 3);
  options.max_model_len = 14;
  CheckTrap(options, rules::kCapacityShort, [](Scenario& s, bool wrong) {
    s.Admit("a", {{1, 2, 3}});
    if (!wrong) s.Append("a", {4});
    s.Schedule("a", 8).Step();
    s.Schedule("a", 4, 3).Step();  // the scheduler counts 12, and has 9 when all are rejected
    s.Computed("a") -= 3;
    s.Schedule("a", 4, 3, 12).Step();
    if (wrong) return;
    s.Computed("a") += 3;
    s.Outcome(2, "a", 1, 3);
    s.Outcome(3, "a", 1, 3);
    s.Schedule("a", 1).Step();
  });
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

TEST(Trap28Pipeline, StatesGoOnFromTheCorrectedCount) {
  for (const uint32_t mode : {KVGUARD_STATE_NONE, KVGUARD_STATE_ALIGN}) {
    ScenarioOptions options = WithStates(mode);
    options.engine_flags |= KVGUARD_ENGINE_ASYNC;
    CheckTrap(options, rules::kStateMismatch, [](Scenario& s, bool wrong) {
      s.Admit("a", {{1, 2, 3, 4}, {20, 21, 22, 23, 24, 25, 26}}).Schedule("a", 5).Step();
      s.Schedule("a", 3, 2).Step();
      s.Schedule("a", 3, 2).Begin();
      const int64_t optimistic = s.RightPlan().groups[1].in[0];
      s.Outcome(2, "a", 2, 1);
      ScenarioPlan plan = s.RightPlan();
      if (wrong) plan.groups[1].in[0] = optimistic;
      s.Plan(plan);
      s.End();
      if (wrong) return;
      s.Outcome(3, "a", 1, 2);
      s.Schedule("a", 1).Step();
    });
  }
}

// Two batches are under way: each one's outcome comes inside its next step.
TEST(Trap28Pipeline, TwoBatchesTakeTurns) {
  CheckTrap(Engine(KVGUARD_ENGINE_ASYNC, 3), rules::kFrontierMismatch, [](Scenario& s, bool wrong) {
    s.Admit("a", {{1, 2, 3, 4}}).Schedule("a", 4, 3).Step();
    s.Admit("b", {{5, 6, 7, 8}}).Schedule("b", 4, 3).Step();
    for (int i = 0; i < (wrong ? 1 : 4); ++i) {
      const char* name = i % 2 == 0 ? "a" : "b";
      s.Schedule(name, 4, 3).Begin();
      const ScenarioPlan optimistic = s.RightPlan();
      s.Outcome(s.step() - 2, name, 2, 2);
      s.Plan(wrong ? optimistic : s.RightPlan());
      s.End();
    }
  });
}

}  // namespace
}  // namespace kvguard::tests
