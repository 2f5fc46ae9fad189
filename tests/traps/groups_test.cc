// SPDX-License-Identifier: Apache-2.0
// Traps of cache groups: windows, states, sizes, ranks.
#include <gtest/gtest.h>

#include "rules/catalog.h"
#include "tests/traps/trap_test.h"

namespace kvguard::tests {
namespace {

using audit::Scenario;
using audit::ScenarioGroup;
using audit::ScenarioOptions;
using audit::ScenarioPlan;

// --- 3: what a window or a state has left behind belongs to others ---

// Another request's columns, in every step anew, while both go on.
TEST(Trap3Stale, WhatAWindowHasPassedIsAnotherRequests) {
  for (const uint32_t retained : {0u, 4u}) {
    // 16 tokens: position 9 is the first of the window, 5 the first that is retained.
    const int64_t passed = retained == 0 ? 2 : 1;
    CheckTrap(Forgetting(KVGUARD_GROUP_WINDOW, retained), rules::kBlockOwned,
              [=](Scenario& s, bool wrong) {
                s.Admit("a", {{1, 2, 3, 4, 5}}).Schedule("a", 16).Step();
                s.Schedule("a", 1).Admit("b", {{wrong ? passed + 1 : passed}}).Schedule("b", 4);
                s.Step();
                for (int i = 0; i < 3 && !wrong; ++i) s.Schedule("a", 1).Step();
              });
  }
}

TEST(Trap3Stale, TwoWindowsHandOneBlockToAndFro) {
  Scenario s(Forgetting(KVGUARD_GROUP_WINDOW));
  s.Admit("a", {{1, 2, 3}}).Schedule("a", 12).Admit("b", {{4, 5, 6}}).Schedule("b", 12).Step();
  // A step of 4 tokens needs a column more, and the first ones are behind the window then.
  int64_t free = 7;
  for (int64_t i = 0; i < 7; ++i) {
    const char* name = i % 2 == 0 ? "a" : "b";
    s.Append(name, {free}).Schedule(name, 4).Step();
    free = (i % 2 == 0 ? 1 : 4) + i / 2;
  }
  ExpectClean(s);
}

TEST(Trap3Stale, WhatStoodInAnEarlierChunkIsAnotherRequests) {
  CheckTrap(Forgetting(KVGUARD_GROUP_CHUNKED), rules::kBlockOwned, [](Scenario& s, bool wrong) {
    s.Admit("a", {{1, 2, 3, 4, 5}}).Schedule("a", 16).Step();  // position 16 opens a chunk
    s.Schedule("a", 1).Admit("b", {{4, 3, 2, wrong ? 5 : 1}}).Schedule("b", 13).Step();
    if (!wrong) s.Schedule("a", 1).Schedule("b", 1).Step();
  });
}

TEST(Trap3Stale, StatesThatWereLeftAreAnotherRequests) {
  for (const uint32_t mode : {KVGUARD_STATE_ALIGN, KVGUARD_STATE_ALL}) {
    for (const bool shows_states : {true, false}) {
      ScenarioOptions options = WithStates(mode);
      options.groups[1].shows_states = shows_states;
      CheckTrap(options, rules::kBlockOwned, [](Scenario& s, bool wrong) {
        s.Admit("a", {{1, 2, 3}, {6, 7}}).Schedule("a", 8).Step();
        s.Append("a", {8}, 1).Schedule("a", 1).Step();
        s.Admit("b", {{10}, {wrong ? 8 : 7}}).Schedule("b", 4).Schedule("a", 1).Step();
        if (!wrong) s.Schedule("a", 1).Step();
      });
    }
  }
}

// A window in flight: columns are given away as the scheduler counts, and the table still shows
// them.
TEST(Trap3Stale, ColumnsGoBeforeTheOutcomeOfDraftsThatAreAccepted) {
  ScenarioOptions options = Forgetting(KVGUARD_GROUP_WINDOW);
  options.engine_flags |= KVGUARD_ENGINE_ASYNC;
  options.max_drafts = 4;
  CheckTrap(options, rules::kReadStale, [](Scenario& s, bool wrong) {
    s.Admit("a", {{1, 2, 3, 4, 5, 6}}).Schedule("a", 15).Step();
    s.Schedule("a", 5, 4).Step();  // all accepted: 20, else 16
    s.Schedule("a", 1, 0, 20).Admit("b", {{3}}).Schedule("b", 1).Begin();
    s.Outcome(s.step() - 1, "a", wrong ? 1 : 5, wrong ? 4 : 0);
    s.Plan(s.RightPlan());
    s.End();
  });
}

// --- 4: recurrent rows hold an id twice, and null ---

// Three tokens and two speculative blocks; then chunks that take these along: the row that the
// runner keeps has them twice, the columns between are null.
TEST(Trap4Align, MovedSpeculativeBlocksStandTwiceInARow) {
  for (const bool shows_states : {true, false}) {
    ScenarioOptions options = WithStates(KVGUARD_STATE_ALIGN);
    options.groups[1].shows_states = shows_states;
    CheckTrap(options, rules::kBlockRepeated, [](Scenario& s, bool wrong) {
      s.Admit("a", {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {31, 32, 33}}).Schedule("a", 3).Step();
      s.Append("a", {0, 32, 33, 34}, 1).Schedule("a", 17).Step();
      // The state of 20 tokens is in 32: that one cannot move on.
      s.Append("a", {0, wrong ? 32 : 33, 34, 35}, 1).Schedule("a", 16).Step();
      if (wrong) return;
      s.Append("a", {36}, 1).Schedule("a", 3, 2).Step();
      s.Outcome(s.step(), "a", 2, 1);
      s.Schedule("a", 1).Step();
    });
  }
}

TEST(Trap4Align, AMovedBlockIsFreeForOthersInItsOldColumnOnly) {
  CheckTrap(WithStates(KVGUARD_STATE_ALIGN), rules::kBlockOwned, [](Scenario& s, bool wrong) {
    s.Admit("a", {{1, 2, 3, 4, 5}, {31, 32, 33}}).Schedule("a", 3).Step();
    s.Append("a", {0, 32, 33, 34}, 1).Schedule("a", 17).Step();
    s.Admit("b", {{11}, {wrong ? 32 : 31}}).Schedule("b", 1).Step();  // 31: of a's first 3 tokens
  });
}

TEST(Trap4Align, AppendedListsHoldNulls) {
  CheckTrap(WithStates(KVGUARD_STATE_ALIGN), rules::kBlockNull, [](Scenario& s, bool wrong) {
    s.Admit("a", {{1, 2, 3, 4, 5, 6}, {0, 0, 31}}).Schedule("a", 9).Step();
    s.Append("a", {0, wrong ? 32 : 0, wrong ? 0 : 32}, 1).Schedule("a", 12).Step();
    if (!wrong) s.Schedule("a", 1).Step();
  });
}

// --- 21: groups without slots ---

TEST(Trap21NoSlots, AStateGroupHasNoneOrPadsThoughItsTokensAreReal) {
  for (const uint32_t mode : {KVGUARD_STATE_NONE, KVGUARD_STATE_ALL, KVGUARD_STATE_ALIGN}) {
    for (const bool absent : {false, true}) {
      ScenarioOptions options = WithStates(mode);
      options.groups[1].flags = KVGUARD_GROUP_NO_SLOTS;
      CheckTrap(options, rules::kSlotPad, [=](Scenario& s, bool wrong) {
        const auto edit = [=](ScenarioPlan& p) {
          p.groups[1].slots_present = !absent;
          p.groups[1].slots.assign(p.padded_tokens, -1);
        };
        s.Admit("a", {{1, 2}, {6, 7}}).Schedule("a", 5).Step(edit);
        s.Schedule("a", 2).Step([=](ScenarioPlan& p) {
          edit(p);
          if (wrong) p.groups[0].slots.assign(p.padded_tokens, -1);
        });
      });
    }
  }
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

TEST(Trap24Hybrid, StatesOfLargerBlocksShareAPool) {
  CheckTrap(WithStates(KVGUARD_STATE_ALIGN, 8), rules::kStateMismatch, [](Scenario& s, bool wrong) {
    s.Admit("p", {{1, 2}, {7}}).Schedule("p", 8).Step();
    s.Finish("p").Admit("r", {{1, 2, 9, 10, 11}, {7, 12, 13}}, 8).Schedule("r", 9);
    s.Step([=](ScenarioPlan& p) {
      EXPECT_EQ(p.groups[1].in[0], 7);
      EXPECT_EQ(p.groups[1].out[0], 13);
      if (wrong) p.groups[1].in[0] = 9;
    });
    if (wrong) return;
    s.Schedule("r", 1).Step();
    // A block that held tokens holds a state, and the other way round.
    s.Finish("r").Admit("q", {{7, 12}, {1}}).Schedule("q", 6).Step();
  });
}

// --- 25: groups that every rank keeps whole ---

// Groups that every rank keeps whole do not pad the other ranks' tokens.
TEST(Trap25Replicated, StandsBesideShardedGroupsOnEveryRank) {
  for (const uint32_t rank : {0u, 1u}) {
    for (const size_t padded : {1u, 2u}) {
      ScenarioOptions options = Forgetting(KVGUARD_GROUP_WINDOW);
      options.groups.insert(options.groups.begin(), 2, ScenarioGroup{});
      options.groups[1].flags = options.groups[2].flags = KVGUARD_GROUP_REPLICATED;
      options.dcp_size = 2;
      options.dcp_rank = rank;
      options.interleave = 2;
      CheckTrap(options, rules::kSlotPad, [=](Scenario& s, bool wrong) {
        // A column of the sharded group stands for 8 positions.
        s.Admit("a", {{1, 2}, {3, 4, 5}, {6, 7, 8}}).Schedule("a", 9).Step([=](ScenarioPlan& p) {
          for (size_t i = 0; wrong && i < 9; ++i) {
            if (p.groups[0].slots[i] == -1) p.groups[padded].slots[i] = -1;
          }
        });
        if (!wrong) s.Schedule("a", 1).Step();
      });
    }
  }
}

TEST(Trap25Replicated, StatesAreNeverSharded) {
  for (const uint32_t mode : {KVGUARD_STATE_NONE, KVGUARD_STATE_ALL, KVGUARD_STATE_ALIGN}) {
    for (const uint32_t flags : {0u, static_cast<uint32_t>(KVGUARD_GROUP_REPLICATED)}) {
      ScenarioOptions options = WithStates(mode);
      options.groups[1].flags = flags;
      options.dcp_size = 2;
      options.dcp_rank = 1;
      options.interleave = 2;
      // 9 tokens: two columns of the sharded group, three of the states.
      CheckTrap(options, rules::kStateTargetMismatch, [](Scenario& s, bool wrong) {
        s.Admit("a", {{1, 2}, {6, 7, 8}}).Schedule("a", 9).Step([=](ScenarioPlan& p) {
          if (wrong) p.groups[1].out[0] = p.groups[1].out[0] == 7 ? 6 : 7;
        });
        if (!wrong) s.Schedule("a", 1).Step();
      });
    }
  }
}

}  // namespace
}  // namespace kvguard::tests
