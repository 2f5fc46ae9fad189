// SPDX-License-Identifier: Apache-2.0
// Traps of passes and rows: dummies, warm-up, pooling, order, a new start.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "rules/catalog.h"
#include "tests/support/plan_edit.h"
#include "tests/traps/trap_test.h"

namespace kvguard::tests {
namespace {

using audit::Scenario;
using audit::ScenarioOptions;
using audit::ScenarioPlan;

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

TEST(Trap16Dummy, OneAtTheFinalStageAsksForNoFinalPlan) {
  for (const bool inside : {false, true}) {
    CheckTrap(ScenarioOptions{}, rules::kPadSlotReal, [=](Scenario& s, bool wrong) {
      ScenarioPlan dummy = Dummy(4, 5);
      dummy.stage = KVGUARD_STAGE_FINAL;
      if (wrong) dummy.groups[0].slots[2] = 20;
      s.Admit("a", {{1, 2}}).Schedule("a", 5).Begin();
      if (inside) s.Plan(dummy);
      s.Plan(s.RightPlan());
      s.End();
      if (!inside) s.Plan(dummy);
      if (!wrong) s.Schedule("a", 1).Step();
    });
  }
}

// --- 17: warm-up ---

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

// Real requests that the worker makes up, ended by an output without tokens.
TEST(Trap17WarmUp, UsesBlocksOfItsOwnChoice) {
  CheckTrap(ScenarioOptions{}, rules::kBlockOwned, [](Scenario& s, bool wrong) {
    s.Admit("_warmup_0_", {{1, 2}}).Schedule("_warmup_0_", 7).Step();
    s.Schedule("_warmup_0_", 1).Step();
    if (!wrong) {
      s.Finish("_warmup_0_").Begin();
      s.End();
      s.Reset(KVGUARD_RESET_ARM);
    }
    s.Admit("a", {{1, 2}}).Schedule("a", 5).Step();
  });
}

// --- 20: requests that sample nothing ---

// Nothing is sampled, so no outcome has tokens, if one is told at all.
TEST(Trap20Pooling, RequestsSampleNothingAndEnd) {
  CheckTrap(ScenarioOptions{}, rules::kCountAhead, [](Scenario& s, bool wrong) {
    s.Admit("a", {{1, 2, 3}}).Schedule("a", 8).Admit("b", {{4}}).Schedule("b", 3).Step();
    s.Outcome(s.step(), "b", 0, 0);
    s.Finish("b").Schedule("a", 4).Step();
    s.Finish("a").Admit("c", {{1, 2, 4}}, 8).Schedule("c", 1).Step();
    s.Schedule("c", 1, 0, wrong ? 10 : 9).Step();
  });
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

TEST(Trap27Order, StatesFollowTheirRows) {
  CheckTrap(WithStates(KVGUARD_STATE_NONE), rules::kStateMismatch, [](Scenario& s, bool wrong) {
    std::vector<size_t> order = {0, 1, 2};
    for (const size_t i : order) {
      const auto block = static_cast<int64_t>(i) + 1;
      s.Admit(Nth("r", i), {{block}, {block + 10}}).Schedule(Nth("r", i), 1);
    }
    s.Step();
    for (int step = 0; step < (wrong ? 1 : 3); ++step) {
      std::rotate(order.begin(), order.begin() + 1, order.end());
      for (size_t i = 0; i < 3; ++i) s.Schedule(Nth("r", i), 1);
      s.Step([&](ScenarioPlan& p) {
        const std::vector<int64_t> before = p.groups[1].in;
        p = WithRows(p, order);
        if (wrong) p.groups[1].in = before;
      });
    }
  });
}

// The slot of a request that ends is taken over by one that begins in the same step.
TEST(Trap27Order, ARowIsTakenOverInItsStep) {
  CheckTrap(ScenarioOptions{}, rules::kTableMismatch, [](Scenario& s, bool wrong) {
    s.Admit("a", {{1, 2}}).Schedule("a", 5).Admit("b", {{3}}).Schedule("b", 2).Step();
    s.Finish("a").Admit("c", {{4, 5}}).Schedule("c", 6).Schedule("b", 1);
    s.Step([=](ScenarioPlan& p) {
      p.Table(0, 0, 2) = 2;
      if (wrong) p.Table(0, 0, 1) = 2;
    });
  });
}

// --- 33: everything starts anew ---

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

TEST(Trap33Void, StatesAndTransfersStartAnewToo) {
  for (const uint32_t reason : {KVGUARD_RESET_SLEEP, KVGUARD_RESET_WEIGHTS, KVGUARD_RESET_LAYOUT}) {
    ScenarioOptions options = WithStates(KVGUARD_STATE_NONE);
    options.engine_flags |= KVGUARD_ENGINE_CONNECTOR;
    CheckTrap(options, rules::kPinnedRebound, [=](Scenario& s, bool wrong) {
      s.Admit("a", {{1, 2}, {7}}).Schedule("a", 6).Step();
      s.Blocks(KVGUARD_EVENT_SEND_PENDING, "a", {1, 2}, 1).Finish("a").Begin();
      s.End();
      if (!wrong) s.Reset(reason);
      s.Admit("b", {{2, 1}, {7}}).Schedule("b", 6).Step();
      if (wrong) return;
      s.Blocks(KVGUARD_EVENT_SEND_DONE, "", {}, 1).Schedule("b", 1).Step();
      EXPECT_EQ(s.verdict().ignored, 1u);
    });
  }
}

// --- 34: a backend with rows and types of its own ---

// A backend that adds a row of its own and keeps slots in 32 bits.
TEST(Trap34Backend, ARowIsAddedAndSlotsAreNarrow) {
  for (const uint32_t code : {rules::kSlotMismatch, rules::kPaddedSeqLen}) {
    ScenarioOptions options;
    options.narrow_slots = true;
    CheckTrap(options, code, [=](Scenario& s, bool wrong) {
      s.Admit("a", {{1, 2}}).Schedule("a", 5).Step([](ScenarioPlan& p) { p.Pad(1, 0); });
      s.Schedule("a", 1).Step([=](ScenarioPlan& p) {
        p.Pad(1, 0);
        if (wrong && code == rules::kPaddedSeqLen) p.seq_lens[1] = 1;
        if (wrong && code == rules::kSlotMismatch) p.groups[0].slots[0] = 10;
      });
    });
  }
}

}  // namespace
}  // namespace kvguard::tests
