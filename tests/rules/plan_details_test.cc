// SPDX-License-Identifier: Apache-2.0
// Details of what plans show: rows that were longer once, blocks of nobody between those of others,
// starts that are open, ids that no table can hold.
#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "audit/scenario.h"
#include "rules/catalog.h"

namespace kvguard::tests {
namespace {

using audit::Scenario;
using audit::ScenarioOptions;
using audit::ScenarioPlan;

std::vector<kvguard_finding> Of(const Scenario& s, uint32_t code) {
  std::vector<kvguard_finding> found = s.Findings();
  std::erase_if(found, [&](const kvguard_finding& f) { return f.code != code; });
  return found;
}

size_t Count(const Scenario& s, uint32_t code) { return Of(s, code).size(); }

ScenarioOptions Connector() {
  ScenarioOptions options;
  options.engine_flags |= KVGUARD_ENGINE_CONNECTOR;
  return options;
}

ScenarioOptions WithoutNull() {
  ScenarioOptions options;
  options.null_block = KVGUARD_NONE;
  options.group_flags = 0;
  return options;
}

ScenarioOptions Window(uint32_t window) {
  ScenarioOptions options;
  options.groups[0].kind = KVGUARD_GROUP_WINDOW;
  options.groups[0].window = window;
  return options;
}

// --- writers ---

// A fresh column of the record that admits a request is written, though its last token is computed
// again in it.
TEST(PlanDetails, AFreshColumnIsWrittenByItsRequest) {
  Scenario s;
  s.Admit("b", {{1, 2}}, 7).Tokens({1, 2, 3, 4, 5, 6, 7, 8}).Schedule("b", 1);
  s.Admit("c", {{2}}).Schedule("c", 1).Begin();
  EXPECT_EQ(Count(s, rules::kTwoWriters), 1u) << s.Report();
}

// Only a last token is computed again: from further back on, a hit is written.
TEST(PlanDetails, AHitThatIsWrittenFromFurtherBackIsWritten) {
  for (const int64_t back : {1, 2}) {
    Scenario s(Connector());
    s.Admit("a", {{1, 2}}).Schedule("a", 8).Step();
    s.Blocks(KVGUARD_EVENT_SEND_PENDING, "a", {2}, 8);
    s.Admit("b", {{1, 2}}, 8).Tokens({1, 2, 3, 4, 5, 6, 7, 8}).Rollback("b", back);
    s.Schedule("b", back).Begin();
    EXPECT_EQ(Count(s, rules::kWriteWhilePinned), back == 1 ? 0u : 1u) << s.Report();
  }
}

// A hit beyond the known tokens is no last token that is computed again.
TEST(PlanDetails, AHitBeyondTheKnownTokensIsWritten) {
  Scenario s(Connector());
  s.Admit("a", {{1, 2}}).Schedule("a", 8).Step();
  s.Blocks(KVGUARD_EVENT_SEND_PENDING, "a", {2}, 8);
  s.Admit("b", {{1, 2}}, 8).Tokens({1, 2, 3, 4, 5, 6}).Rollback("b", 3).Schedule("b", 1).Begin();
  EXPECT_EQ(Count(s, rules::kWriteWhilePinned), 1u) << s.Report();
}

// A hit of an earlier step is written like any other block.
TEST(PlanDetails, AHitOfAnEarlierStepIsWritten) {
  Scenario s(Connector());
  s.Admit("a", {{1, 2}}).Schedule("a", 8).Step();
  s.Blocks(KVGUARD_EVENT_SEND_PENDING, "a", {2}, 8);
  s.Admit("b", {{1, 2}}, 7).Tokens({1, 2, 3, 4, 5, 6, 7, 8}).Step();
  EXPECT_EQ(Count(s, rules::kWriteWhilePinned), 0u) << s.Report();
  s.Schedule("b", 1).Begin();
  EXPECT_EQ(Count(s, rules::kWriteWhilePinned), 1u) << s.Report();
}

// --- positions and tables ---

TEST(PlanDetails, PositionsMayBeNarrow) {
  for (const bool wrong : {false, true}) {
    Scenario s;
    s.Admit("a", {{1}}).Schedule("a", 3).Admit("b", {{2, 3}}).Schedule("b", 5).Begin();
    const std::vector<int32_t> positions = {0, 1, 2, 0, 1, wrong ? 5 : 2, 3, 4};
    s.Plan(s.RightPlan(), [&](kvguard_plan& plan, kvguard_group_plan*) {
      plan.positions = {positions.data(), positions.size(), KVGUARD_I32, 0};
    });
    EXPECT_EQ(Count(s, rules::kPositionMismatch), wrong ? 1u : 0u) << s.Report();
  }
}

// What the table of one row holds behind its columns says nothing of the next row's.
TEST(PlanDetails, TheRowBeforeSaysNothingOfAWindow) {
  for (const bool wide : {false, true}) {
    ScenarioOptions options = Window(4);
    options.wide_tables = wide;
    options.columns = 4;
    Scenario s(options);
    s.Admit("a", {{1, 2}}).Schedule("a", 1).Admit("b", {{11, 12, 13, 14}}).Schedule("b", 12).Step();
    s.Schedule("a", 1).Schedule("b", 1).Step([](ScenarioPlan& p) {
      p.Table(0, 0, 2) = 13;  // as if they were the last of b's
      p.Table(0, 0, 3) = 14;
      p.Table(0, 1, 0) = p.Table(0, 1, 1) = 60;  // behind b's window
      p.Table(0, 1, 3) = 50;
    });
    const auto found = Of(s, rules::kTableMismatch);
    ASSERT_EQ(found.size(), 1u) << s.Report();
    EXPECT_EQ(found[0].request, s.Key("b"));
    EXPECT_EQ(found[0].pos, 3);
  }
}

// A padded row is looked at from its first entry on, whatever the null block is.
TEST(PlanDetails, APaddedRowIsNullFromItsFirstEntryOn) {
  for (const bool wide : {false, true}) {
    for (const int64_t null_block : {0, 5}) {
      for (const int64_t shown : {0, 1, 5}) {
        ScenarioOptions options;
        options.wide_tables = wide;
        options.null_block = null_block;
        Scenario s(options);
        s.Admit("a", {{2}}).Schedule("a", 1).Step([&](ScenarioPlan& p) {
          p.Pad(1, 0);
          for (uint64_t column = 0; column < p.groups[0].columns; ++column)
            p.Table(0, 1, column) = column == 0 ? shown : null_block;
        });
        const auto found = Of(s, rules::kPaddedRowNotNull);
        EXPECT_EQ(found.size(), shown == null_block ? 0u : 1u) << null_block << shown;
        for (const kvguard_finding& f : found) EXPECT_EQ(f.pos, 0);
      }
    }
  }
}

// A row of a padded table that shows nothing but ones is not null.
TEST(PlanDetails, APaddedRowOfOnesIsNotNull) {
  for (const bool wide : {false, true}) {
    ScenarioOptions options;
    options.wide_tables = wide;
    Scenario s(options);
    s.Admit("a", {{2}}).Schedule("a", 1).Step([](ScenarioPlan& p) {
      p.Pad(1, 0);
      for (uint64_t column = 0; column < p.groups[0].columns; ++column) p.Table(0, 1, column) = 1;
    });
    EXPECT_EQ(Count(s, rules::kPaddedRowNotNull), 1u) << s.Report();
  }
}

// --- foreign writes ---

TEST(PlanDetails, ABlockOfNobodyBelongsToNoForeignRun) {
  Scenario s;
  s.Admit("b", {{5}}).Schedule("b", 4).Step();
  s.Admit("a", {{1}}).Schedule("a", 3).Step([](ScenarioPlan& p) {
    p.groups[0].slots = {20, 40, 41};
  });
  const auto found = Of(s, rules::kForeignWrite);
  ASSERT_EQ(found.size(), 1u) << s.Report();
  EXPECT_EQ(found[0].count, 1u);
  EXPECT_EQ(found[0].victim_last, 0);
}

// Whoever has an id out of the pool, or the null block, in his row holds nothing.
TEST(PlanDetails, NobodyHoldsTheNullBlockOrWhatIsOutOfThePool) {
  for (const int64_t block : {0, 64}) {
    Scenario s;
    s.Admit("b", {{block}}).Schedule("b", 1).Step();
    s.Admit("a", {{1}}).Schedule("a", 1).Step([&](ScenarioPlan& p) {
      p.groups[0].slots = {block * 4};
    });
    EXPECT_EQ(Count(s, rules::kForeignWrite), 0u) << s.Report();
  }
}

TEST(PlanDetails, APadSlotIsNotTheFirstBlock) {
  Scenario s(WithoutNull());
  s.Admit("b", {{0}}).Schedule("b", 4).Step();
  s.Admit("a", {{1}}).Schedule("a", 2).Step([](ScenarioPlan& p) { p.groups[0].slots = {-1, -2}; });
  EXPECT_EQ(Count(s, rules::kForeignWrite), 0u) << s.Report();
  const auto pad = Of(s, rules::kSlotPad);
  ASSERT_EQ(pad.size(), 1u) << s.Report();
  EXPECT_EQ(pad[0].victim, 0u);
}

// A right column of a wrong row may be shared.
TEST(PlanDetails, ASharedColumnAtItsPlaceIsNotForeign) {
  Scenario s;
  s.Admit("b", {{2}}).Schedule("b", 4).Step();
  s.Admit("a", {{1, 2}}).Schedule("a", 8).Step([](ScenarioPlan& p) { p.groups[0].slots[0] = 36; });
  EXPECT_EQ(Count(s, rules::kSlotMismatch), 1u) << s.Report();
  EXPECT_EQ(Count(s, rules::kForeignWrite), 0u) << s.Report();
}

// What a row held once it does not hold any more.
TEST(PlanDetails, AColumnThatWasTakenAwayIsForeign) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 4).Step();
  s.Truncate("a", 1).Admit("b", {{2}}).Schedule("b", 1).Schedule("a", 2);
  s.Step([](ScenarioPlan& p) { p.groups[0].slots = {8, 8, 9}; });
  EXPECT_EQ(Count(s, rules::kForeignWrite), 1u) << s.Report();
}

TEST(PlanDetails, AColumnThatWasTakenAwayHasNoSlots) {
  Scenario s;
  s.Admit("a", {{1, 2, 3}}).Schedule("a", 4).Step();
  s.Truncate("a", 2).Schedule("a", 8);
  s.Step([](ScenarioPlan& p) { p.groups[0].slots = {8, 9, 10, 11, 12, 13, 14, 15}; });
  const auto found = Of(s, rules::kSlotMismatch);
  ASSERT_EQ(found.size(), 1u) << s.Report();
  EXPECT_EQ(found[0].pos, 8);
  EXPECT_EQ(found[0].count, 4u);
}

// In the first step, too, a column that was behind its window when it was bound is no claim.
TEST(PlanDetails, WhatIsBehindAWindowIsHeldByNobodyInStepZero) {
  Scenario s(Window(8));
  s.SkipTo(0);
  s.Admit("a", {{1, 2, 3, 4}}, 12).Admit("b", {{5}}).Schedule("b", 1);
  s.Step([](ScenarioPlan& p) { p.groups[0].slots = {4}; });
  EXPECT_EQ(s.step(), 0u);
  EXPECT_EQ(Count(s, rules::kSlotMismatch), 1u) << s.Report();
  EXPECT_EQ(Count(s, rules::kForeignWrite), 0u) << s.Report();
}

// --- slots ---

TEST(PlanDetails, ASlotOfAnotherRankNamesWhoHoldsIt) {
  ScenarioOptions options;
  options.dcp_size = 2;
  Scenario s(options);
  s.Admit("b", {{5}}).Schedule("b", 8).Step();
  s.Admit("a", {{1}}).Schedule("a", 2).Step([](ScenarioPlan& p) { p.groups[0].slots[1] = 20; });
  const auto found = Of(s, rules::kSlotNotLocal);
  ASSERT_EQ(found.size(), 1u) << s.Report();
  EXPECT_EQ(found[0].victim, s.Key("b"));
}

// A dummy pass may show no slots of a group; those that it shows are counted.
TEST(PlanDetails, SlotsOfADummyPassAreCounted) {
  for (const bool shown : {true, false}) {
    Scenario s;
    ScenarioPlan plan;
    plan.pass = KVGUARD_PASS_DUMMY;
    plan.query_start = {0};
    plan.padded_tokens = 4;
    plan.groups.resize(1);
    plan.groups[0].slots = {-1, -1, -1, -1};
    plan.groups[0].slots_present = shown;
    plan.groups[0].table_present = false;
    EXPECT_EQ(s.Plan(plan), KVGUARD_OK) << s.error();
    EXPECT_EQ(s.verdict().slots, shown ? 4u : 0u);
    EXPECT_EQ(s.Report(), "");
  }
}

// Of a row that is not known nothing is said, nor that it writes what another does.
TEST(PlanDetails, AnUnknownRowWritesNothingTwice) {
  for (const bool known : {true, false}) {
    Scenario s;
    s.Admit("a", {{1}}).Schedule("a", 1).Admit("b", {{2}}).Schedule("b", 1);
    s.Step([&](ScenarioPlan& p) {
      p.groups[0].slots = {39, 39};
      if (!known) p.requests[1] = 777;
    });
    EXPECT_EQ(Count(s, rules::kSlotWrittenTwice), known ? 1u : 0u) << s.Report();
  }
}

// --- positions ---

TEST(PlanDetails, NarrowPositionsAreReadFromTheirRow) {
  for (const int32_t second : {0, 1}) {
    Scenario s;
    s.Admit("a", {{1}}).Schedule("a", 3).Admit("b", {{2}}).Schedule("b", 2).Begin();
    const std::vector<int32_t> positions = {0, 1, 2, second, second + 1};
    s.Plan(s.RightPlan(), [&](kvguard_plan& p, kvguard_group_plan*) {
      p.positions = {positions.data(), positions.size(), KVGUARD_I32, 0};
    });
    EXPECT_EQ(Count(s, rules::kFrontierMismatch), second == 0 ? 0u : 1u) << s.Report();
  }
}

// A length of nothing gives no start that an outcome could contradict: it is a finding itself.
TEST(PlanDetails, ALengthOfNothingGivesNoStart) {
  ScenarioOptions options;
  options.engine_flags |= KVGUARD_ENGINE_ASYNC;
  options.max_drafts = 1;
  Scenario s(options);
  s.Admit("a", {{1}}).Schedule("a", 1, 1).Step();
  const uint64_t drafted = s.step();
  s.Schedule("a", 1).Step([](ScenarioPlan& p) {
    p.positions_present = false;
    p.seq_lens = {0};
  });
  EXPECT_EQ(Count(s, rules::kSeqLenMismatch), 1u) << s.Report();
  s.Outcome(drafted, "a", 1, 0);
  EXPECT_EQ(Count(s, rules::kFrontierMismatch), 0u) << s.Report();
}

// --- windows ---

// A column that was behind the window when it was bound has no claim: nothing says so when its
// block is given away, so it is looked at as long as it is needed.
TEST(PlanDetails, AColumnWithoutAClaimIsLookedAtAgain) {
  for (const bool only : {true, false}) {
    Scenario s(Window(8));
    const int64_t computed = only ? 20 : 12;
    s.Admit("a", {only ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{1, 2, 3, 4}}, computed);
    s.Rollback("a", computed - 6).Schedule("a", 1).Step();
    EXPECT_EQ(Count(s, rules::kReadStale), 0u) << s.Report();
    s.Admit("b", {{1}}).Schedule("b", 1).Schedule("a", 1).Step();
    EXPECT_EQ(Count(s, rules::kReadStale), 1u) << s.Report();
  }
}

// What an open start does not read, the outcome may.
TEST(PlanDetails, AWindowIsLookedAtAgainWhenItsStartIsTold) {
  ScenarioOptions options = Window(4);
  options.engine_flags |= KVGUARD_ENGINE_ASYNC;
  options.max_drafts = 3;
  Scenario s(options);
  s.Admit("a", {{1, 2, 3, 4, 5}}).Schedule("a", 8).Step();
  s.Schedule("a", 4, 3).Step();  // 9 to 12 tokens: column 1 is needed up to 10 only
  const uint64_t drafted = s.step();
  s.Admit("b", {{2}}).Schedule("b", 1).Schedule("a", 1).Step();
  EXPECT_EQ(Count(s, rules::kReadStale), 0u) << s.Report();
  s.Outcome(drafted, "a", 1, 3);
  s.Schedule("a", 1).Step();
  EXPECT_EQ(Count(s, rules::kReadStale), 1u) << s.Report();
}

// --- tables ---

// Sinks in kernel blocks: of two entries for each block both are compared.
TEST(PlanDetails, BothKernelBlocksOfASinkAreCompared) {
  ScenarioOptions options = Window(4);
  options.groups[0].sink = 2;
  options.groups[0].kernel_block_size = 2;
  options.groups[0].table_unit = KVGUARD_UNIT_KERNEL_BLOCK;
  for (const size_t column : {0u, 1u, 2u}) {
    Scenario s(options);
    s.Admit("a", {{1, 2, 3, 4}}).Schedule("a", 12).Step();
    s.Schedule("a", 1).Step([&](ScenarioPlan& p) { p.Table(0, 0, column) = 41; });
    EXPECT_EQ(Count(s, rules::kTableMismatch), column < 2 ? 1u : 0u) << s.Report();
  }
}

// Of a window's row, what lies behind it is not compared, in whatever column the rest is wrong.
TEST(PlanDetails, OnlyNeededEntriesOfARowAreCounted) {
  for (const uint32_t sink : {0u, 2u}) {
    ScenarioOptions options = Window(4);
    options.groups[0].sink = sink;
    Scenario s(options);
    s.Admit("a", {{1, 2, 3, 4}}).Schedule("a", 12).Step();
    s.Schedule("a", 1).Step([&](ScenarioPlan& p) {
      for (size_t j = 0; j < 4; ++j) p.Table(0, 0, j) = 41;
    });
    const auto found = Of(s, rules::kTableMismatch);
    ASSERT_EQ(found.size(), 1u) << s.Report();
    EXPECT_EQ(found[0].pos, sink > 0 ? 0 : 2);
    EXPECT_EQ(found[0].count, sink > 0 ? 3u : 2u);
  }
}

// Zeros are the null rows of a pool whose null block is the first, and of no other.
TEST(PlanDetails, ARowOfZerosIsNullWhereTheFirstBlockIs) {
  for (const bool wide : {false, true}) {
    for (const int64_t null_block : {0, 5}) {
      ScenarioOptions options;
      options.null_block = null_block;
      options.wide_tables = wide;
      Scenario s(options);
      s.Admit("a", {{1}}).Schedule("a", 1).Step([](ScenarioPlan& p) { p.Pad(1, 0); });
      const auto found = Of(s, rules::kPaddedRowNotNull);
      ASSERT_EQ(found.size(), null_block == 0 ? 0u : 1u) << s.Report();
      if (!found.empty()) {
        EXPECT_EQ(found[0].pos, 0);
      }
    }
  }
}

// A row that begins with zeros and does not end with them.
TEST(PlanDetails, AWrongEntryBehindZerosIsFound) {
  for (const bool wide : {false, true}) {
    for (const size_t column : {0u, 1u, 15u}) {
      ScenarioOptions options;
      options.wide_tables = wide;
      Scenario s(options);
      s.Admit("a", {{1}}).Schedule("a", 1).Step([&](ScenarioPlan& p) {
        p.Pad(1, 0);
        p.Table(0, 1, column) = 7;
      });
      const auto found = Of(s, rules::kPaddedRowNotNull);
      ASSERT_EQ(found.size(), 1u) << s.Report();
      EXPECT_EQ(found[0].pos, static_cast<int64_t>(column));
    }
  }
}

}  // namespace
}  // namespace kvguard::tests
