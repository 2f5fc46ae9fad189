// SPDX-License-Identifier: Apache-2.0
// Traps of connectors, and of steps without tokens.
#include <gtest/gtest.h>

#include "rules/catalog.h"
#include "tests/traps/trap_test.h"

namespace kvguard::tests {
namespace {

using audit::Scenario;
using audit::ScenarioOptions;
using audit::ScenarioPlan;

// --- 8: blocks that a connector fills before their request runs ---

TEST(Trap8AsyncLoad, BlocksArriveFullOfWhatNobodyWroteHere) {
  Scenario s(Engine(KVGUARD_ENGINE_CONNECTOR));
  s.Admit("a", {{1, 2, 3}}, 9).Schedule("a", 1).Step();
  s.Schedule("a", 1).Step();
  ExpectClean(s);
}

TEST(Trap8AsyncLoad, BlocksOfAWaitingRequestBelongToNobodyInTheStream) {
  CheckTrap(Engine(KVGUARD_ENGINE_CONNECTOR), rules::kReadWhileLoading,
            [](Scenario& s, bool wrong) {
              s.Admit("b", {{1, 2}}).Schedule("b", 1).Expect("r");
              s.Blocks(KVGUARD_EVENT_LOAD, "r", {5, 6}, 1).Step();
              for (int i = 0; i < 3; ++i) s.Schedule("b", 1).Step();
              if (!wrong) s.Blocks(KVGUARD_EVENT_LOAD_DONE, "", {}, 1);
              s.Admit("r", {{5, 6, 7}}, 8).Schedule("r", 1).Schedule("b", 1).Step();
            });
}

// A state comes in one block; null stands for the columns of which none was kept.
TEST(Trap8AsyncLoad, AStateArrivesInTheColumnOfItsTokens) {
  ScenarioOptions options = WithStates(KVGUARD_STATE_ALIGN);
  options.engine_flags |= KVGUARD_ENGINE_CONNECTOR;
  CheckTrap(options, rules::kStateMismatch, [](Scenario& s, bool wrong) {
    s.Admit("b", {{1}, {9}}).Schedule("b", 1).Expect("r");
    s.Blocks(KVGUARD_EVENT_LOAD, "r", {5, 6}, 1).Blocks(KVGUARD_EVENT_LOAD, "r", {0, 31}, 2, 0, 1);
    s.Step();
    s.Blocks(KVGUARD_EVENT_LOAD_DONE, "", {}, 1).Blocks(KVGUARD_EVENT_LOAD_DONE, "", {}, 2, 0, 1);
    s.Admit("r", {{5, 6, 7}, {0, 31, 32}}, 8).Schedule("r", 2).Step([=](ScenarioPlan& p) {
      EXPECT_EQ(p.groups[1].in[0], 31);
      if (wrong) p.groups[1].in[0] = 9;
    });
    if (!wrong) s.Schedule("r", 1).Step();
  });
}

// --- 11: a load that failed ---

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

// The connector says so: from the block that was lost on all is computed again.
TEST(Trap11LoadFailed, WhatWasLostIsWrittenAgain) {
  CheckTrap(Engine(KVGUARD_ENGINE_CONNECTOR), rules::kFailedLoadUsed, [](Scenario& s, bool wrong) {
    s.Blocks(KVGUARD_EVENT_LOAD, "", {1, 2, 3}, 1).Begin();
    s.End();
    s.Admit("a", {{1, 2, 3, 4}}, 12).Blocks(KVGUARD_EVENT_LOAD_FAILED, "", {2}, 1);
    s.Admit("b", {{9}}).Schedule("b", 1).Step();
    if (!wrong) s.Computed("a") = 4;
    s.Schedule("a", wrong ? 1 : 9).Step();
    if (!wrong) s.Schedule("a", 1).Step();
  });
}

// Of a recurrent group nothing is left of what was computed before the loss.
TEST(Trap11LoadFailed, StatesAreComputedFromTheFirstTokenOn) {
  ScenarioOptions options = WithStates(KVGUARD_STATE_ALIGN);
  options.engine_flags |= KVGUARD_ENGINE_CONNECTOR;
  CheckTrap(options, rules::kStateUninitialised, [](Scenario& s, bool wrong) {
    s.Admit("a", {{1, 2, 3, 4}, {0, 0, 31, 32}}, 12).Schedule("a", 1).Step();
    s.Computed("a") = 0;
    s.Schedule("a", 14).Step([=](ScenarioPlan& p) {
      if (wrong) p.groups[1].init[0] = 0;
    });
    if (!wrong) s.Schedule("a", 1).Step();
  });
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

TEST(Trap29NoTokens, AConnectorsLoadsComeAndEndWithoutTokens) {
  CheckTrap(Engine(KVGUARD_ENGINE_CONNECTOR), rules::kReadWhileLoading,
            [](Scenario& s, bool wrong) {
              s.Expect("r").Blocks(KVGUARD_EVENT_LOAD, "r", {5}, 1).Begin();
              s.End();
              if (!wrong) s.Blocks(KVGUARD_EVENT_LOAD_DONE, "", {}, 1);
              s.Begin();
              s.End();
              s.Admit("r", {{5, 6}}, 4).Schedule("r", 1).Step();
            });
}

TEST(Trap29NoTokens, StatesStayWhereTheyAre) {
  for (const uint32_t mode : {KVGUARD_STATE_NONE, KVGUARD_STATE_ALIGN}) {
    CheckTrap(WithStates(mode), rules::kStateMismatch, [](Scenario& s, bool wrong) {
      s.Admit("a", {{1, 2, 3}, {20, 21, 22, 23, 24}}).Schedule("a", 5).Step();
      s.Schedule("a", 3, 2).Step();
      s.Outcome(s.step(), "a", 2, 1);
      s.Schedule("a", 1).Begin();
      s.End(KVGUARD_END_NO_FORWARD);
      s.Begin();
      s.End();
      s.Schedule("a", 1).Step([=](ScenarioPlan& p) {
        if (wrong) p.groups[1].in[0] = 24;
      });
    });
  }
}

// --- 35: blocks that only a connector knows ---

// A step's loads and sends fill and read blocks that no plan shows, of requests that wait or ended.
TEST(Trap35Connector, TransfersNameBlocksThatNoPlanShows) {
  CheckTrap(Engine(KVGUARD_ENGINE_CONNECTOR), rules::kPinnedRebound, [](Scenario& s, bool wrong) {
    s.Admit("a", {{1, 2}}).Schedule("a", 8).Admit("b", {{3, 4}}).Schedule("b", 1).Step();
    s.Blocks(KVGUARD_EVENT_SEND_PENDING, "a", {1, 2}, 1).Finish("a").Schedule("b", 1);
    s.Expect("r").Blocks(KVGUARD_EVENT_RESERVE, "r", {5, 6}, 2).Step();
    s.Blocks(KVGUARD_EVENT_LOAD, "r", {5, 6}, 2).Schedule("b", 1).Step();
    s.Blocks(KVGUARD_EVENT_CANCEL, "", {}, 2).Schedule("b", 1).Step();
    if (!wrong) s.Blocks(KVGUARD_EVENT_DRAIN, "", {}, 2);
    s.Admit("c", {{6, 5}}).Schedule("c", 5).Schedule("b", 1).Step();
  });
}

}  // namespace
}  // namespace kvguard::tests
