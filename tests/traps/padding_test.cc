// SPDX-License-Identifier: Apache-2.0
// Traps of what no kernel looks at, which may hold anything.
#include <vector>

#include <gtest/gtest.h>

#include "rules/catalog.h"
#include "tests/traps/trap_test.h"

namespace kvguard::tests {
namespace {

using audit::Scenario;
using audit::ScenarioGroup;
using audit::ScenarioOptions;
using audit::ScenarioPlan;

// --- 2: the null block may stand where nothing is kept ---

// A step of one request whose plan has two padding rows.
void PaddedStates(Scenario& s, uint32_t mode, int64_t in, int64_t out) {
  const int64_t held = mode == KVGUARD_STATE_NONE ? 6 : 7;
  s.Admit("a", {{1, 2}, {6, 7}}).Schedule("a", 5).Step();
  s.Schedule("a", 1).Step([=](ScenarioPlan& p) {
    p.Pad(2, 2);
    p.groups[1].in = {held, in, in};
    p.groups[1].out = {held, out, out};
  });
}

// A dummy pass over rows that name such states.
ScenarioPlan DummyStates(int64_t slot, int64_t state) {
  ScenarioPlan dummy;
  dummy.pass = KVGUARD_PASS_DUMMY;
  dummy.query_start = {0};
  dummy.padded_rows = dummy.padded_tokens = 4;
  dummy.groups.resize(2);
  for (ScenarioPlan::Group& group : dummy.groups) {
    group.table_present = false;
    group.slots.assign(4, slot);
  }
  dummy.groups[1].in = dummy.groups[1].out = {0, state, 0, -1};
  return dummy;
}

TEST(Trap2Null, StandsInColumnsThatAWindowHasPassed) {
  ScenarioOptions options = Forgetting(KVGUARD_GROUP_WINDOW);
  options.groups.insert(options.groups.begin(), ScenarioGroup{});
  // The window of position 16 begins at 9, in column 2.
  CheckTrap(options, rules::kBlockNull, [](Scenario& s, bool wrong) {
    s.Admit("a", {{1, 2, 3, 4, 5}, {0, 0, wrong ? 0 : 8, 9, 10}}, 16).Schedule("a", 1).Step();
    for (int i = 0; i < 3 && !wrong; ++i) s.Schedule("a", 1).Step();
  });
}

TEST(Trap2Null, StandsInRowsOfStates) {
  CheckTrap(WithStates(KVGUARD_STATE_ALIGN), rules::kBlockNull, [](Scenario& s, bool wrong) {
    s.Admit("a", {{1, 2, 3}, {0, 0, wrong ? 0 : 7}}).Schedule("a", 9).Step();
  });
  CheckTrap(WithStates(KVGUARD_STATE_ALL), rules::kBlockNull, [](Scenario& s, bool wrong) {
    s.Admit("p", {{1, 2}, {6, 7}}).Schedule("p", 8).Step();
    s.Admit("a", {{1, 2, 3}, {0, 7, wrong ? 0 : 8}}, 8).Schedule("a", 2).Step();
  });
}

// Of tables that are read under a mask: what the mask hides is null, what it shows is not.
TEST(Trap2Null, StandsInTheTableOfAState) {
  ScenarioOptions options = WithStates(KVGUARD_STATE_ALIGN);
  options.groups[1].shows_states = false;
  CheckTrap(options, rules::kTableNull, [](Scenario& s, bool wrong) {
    s.Admit("a", {{1, 2}, {6, 7}}).Schedule("a", 6).Step();
    s.Schedule("a", 1).Step([=](ScenarioPlan& p) {
      p.Table(1, 0, 0) = 0;
      if (wrong) p.Table(1, 0, 1) = 0;
    });
  });
}

TEST(Trap2Null, StandsInPaddedRowsAndUnusedColumns) {
  for (const uint32_t code :
       {rules::kPaddedRowNotNull, rules::kPadSlotReal, rules::kSlotNullBlock}) {
    CheckTrap(ScenarioOptions{}, code, [=](Scenario& s, bool wrong) {
      s.Admit("a", {{1, 2}}).Schedule("a", 5).Step([=](ScenarioPlan& p) {
        p.Pad(3, 3);
        if (wrong && code == rules::kPaddedRowNotNull) p.Table(0, 2, 0) = 2;
        if (wrong && code == rules::kPadSlotReal) p.groups[0].slots[6] = 1;
        if (wrong && code == rules::kSlotNullBlock) p.groups[0].slots[4] = 1;
      });
    });
  }
}

TEST(Trap2Null, TakesTheStatesOfPaddedRows) {
  for (const uint32_t mode : {KVGUARD_STATE_NONE, KVGUARD_STATE_ALL, KVGUARD_STATE_ALIGN}) {
    for (const int64_t null : {0, -1}) {
      CheckTrap(WithStates(mode), rules::kPadStateReal,
                [=](Scenario& s, bool wrong) { PaddedStates(s, mode, null, wrong ? 6 : null); });
      CheckTrap(WithStates(mode), rules::kPadStateReal,
                [=](Scenario& s, bool wrong) { PaddedStates(s, mode, wrong ? 9 : null, null); });
    }
  }
}

TEST(Trap2Null, TakesTheStatesOfDummies) {
  for (const bool slots : {false, true}) {
    CheckTrap(WithStates(KVGUARD_STATE_NONE), slots ? rules::kPadSlotReal : rules::kPadStateReal,
              [=](Scenario& s, bool wrong) {
                s.Admit("a", {{1, 2}, {6}}).Schedule("a", 5).Step();
                s.Plan(DummyStates(wrong && slots ? 1 : -1, wrong && !slots ? 6 : 0));
                if (!wrong) s.Schedule("a", 1).Step();
              });
  }
}

// --- 18: padding ---

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

TEST(Trap18Padding, StatesBehindItAreResidue) {
  CheckTrap(WithStates(KVGUARD_STATE_NONE), rules::kPadStateReal, [](Scenario& s, bool wrong) {
    s.Admit("a", {{1}, {6}}).Schedule("a", 2).Admit("b", {{2}, {7}}).Schedule("b", 1).Step();
    s.Schedule("a", 1).Step([=](ScenarioPlan& p) {
      p.Pad(1, 1);
      p.groups[1].in = {6, wrong ? 7 : 0, 7, 6};
      p.groups[1].out = {6, 0, 7, 6};
      p.groups[1].init = {0, 1, 1, 1};
    });
  });
}

// --- 19: columns behind the last ---

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

// Both copies of a table have residue of their own behind the live columns.
TEST(Trap19StaleColumns, DifferInBothCopiesOfATable) {
  CheckTrap(ScenarioOptions{}, rules::kTableMismatch, [](Scenario& s, bool wrong) {
    s.Admit("a", {{1, 2, 3}}).Schedule("a", 9).Admit("b", {{5}}).Schedule("b", 4).Step();
    s.Finish("a").Append("b", {6}).Schedule("b", 1).Begin();
    ScenarioPlan plan = s.RightPlan();
    plan.Table(0, 0, 2) = 3;
    s.Plan(plan);
    plan.stage = KVGUARD_STAGE_FINAL;
    plan.Table(0, 0, 2) = -1;
    plan.Table(0, 0, 3) = 5;
    if (wrong) plan.Table(0, 0, 1) = 2;
    s.Plan(plan);
    s.End();
  });
}

// --- 30: the last block is full of something else ---

TEST(Trap30PartialBlock, OldDataStandsBehindTheFrontier) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 8).Step();
  s.Finish("a").Admit("b", {{2}}).Schedule("b", 1).Step();  // slots 9..11 still hold a's tokens
  for (int i = 0; i < 3; ++i) s.Schedule("b", 1).Step();
  ExpectClean(s);
}

TEST(Trap30PartialBlock, RejectedDraftsStandBehindTheFrontier) {
  CheckTrap(Engine(0, 3), rules::kSeqLenMismatch, [](Scenario& s, bool wrong) {
    s.Admit("a", {{1, 2, 3}}).Schedule("a", 5).Step();
    s.Schedule("a", 4, 3).Step();  // writes 5..8, of which 6..8 are rejected
    s.Outcome(s.step(), "a", 1, 3);
    s.Schedule("a", 1).Step([=](ScenarioPlan& p) { p.seq_lens[0] += wrong ? 1 : 0; });
  });
}

// A hit shares whole blocks: the tail that nobody filled is not part of it.
TEST(Trap30PartialBlock, AHitEndsBeforeTheTail) {
  CheckTrap(ScenarioOptions{}, rules::kContentUnwritten, [](Scenario& s, bool wrong) {
    const std::vector<int64_t> tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    s.Admit("a", {{1, 2}}).Tokens({1, 2, 3, 4, 5, 6}).Schedule("a", 6).Step();
    s.Finish("a").Admit("b", {{1, wrong ? 2 : 5, 6}}, wrong ? 8 : 4).Tokens(tokens);
    s.Schedule("b", wrong ? 1 : 5).Step();
  });
}

}  // namespace
}  // namespace kvguard::tests
