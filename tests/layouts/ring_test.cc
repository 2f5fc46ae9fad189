// SPDX-License-Identifier: Apache-2.0
// Rings: position p stands at p mod window.
#include <algorithm>

#include <gtest/gtest.h>

#include "tests/layouts/planted.h"

namespace kvguard::tests {
namespace {

using audit::Scenario;
using audit::ScenarioOptions;
using audit::ScenarioPlan;
using Edit = std::function<void(ScenarioPlan&)>;
using Run = std::function<void(Scenario&)>;
using Ints = std::vector<int64_t>;

constexpr int64_t kTrash = 255;

ScenarioOptions Ring(uint32_t window = 8, int64_t trash = kTrash, bool flat = true) {
  ScenarioOptions options;
  audit::ScenarioGroup& group = options.groups[0];
  group.kind = KVGUARD_GROUP_RING;
  group.window = window;
  group.write_trash = trash;
  if (flat) {
    group.encoding = KVGUARD_READ_FLAT;
    group.table_unit = KVGUARD_UNIT_SLOT;
  }
  return options;
}

// A prefill of 6 and ten tokens in blocks 2 and 1, another request beside it. edit: of step `at`.
Run Decode(const Edit& edit = nullptr, uint64_t at = 0) {
  return [=](Scenario& s) {
    s.Admit("a", {{2, 1}}).Admit("b", {{3, 5}}).Schedule("a", 6).Schedule("b", 3).Step();
    for (uint64_t step = 2; step <= 11; ++step) {
      s.Schedule("a", 1).Schedule("b", 1).Step(step == at ? edit : nullptr);
      if (step == at) return;
    }
  };
}

Run Prefill(const Edit& edit = nullptr) {
  return [=](Scenario& s) {
    s.Admit("a", {{2, 1}}).Schedule("a", 13).Step(edit);
    if (edit) return;
    s.Schedule("a", 1).Step();
  };
}

// 20 tokens, then back by so many.
Run Back(int64_t tokens) {
  return [=](Scenario& s) {
    s.Admit("a", {{2, 1}}).Schedule("a", 20).Step();
    s.Rollback("a", tokens).Schedule("a", 1).Step();
  };
}

ScenarioPlan::Group& Of(ScenarioPlan& plan) { return plan.groups[0]; }

TEST(Rings, PlantedFaultsAreFoundAndTheirNeighboursAreNot) {
  ScenarioOptions hybrid = Ring();
  hybrid.groups.push_back({});
  hybrid.groups[1].encoding = KVGUARD_READ_FLAT;
  hybrid.groups[1].table_unit = KVGUARD_UNIT_SLOT;
  hybrid.groups[1].write_trash = kTrash;
  ScenarioOptions narrow = Ring();
  narrow.columns = 2;
  CheckPlantedList(
      "ring_faults.txt",
      {
          {"ring-decode-past-its-window", {Ring(), Decode()}},
          {"ring-prefill-longer-than-the-window", {Ring(), Prefill()}},
          {"ring-clipped-to-the-pad-slot", {Ring(8, KVGUARD_NONE), Prefill()}},
          {"ring-window-no-multiple-of-its-block", {Ring(6), Decode()}},
          {"ring-beside-full",
           {hybrid,
            [](Scenario& s) {
              s.Admit("a", {{2, 1}, {7, 8, 9, 10}}).Schedule("a", 6).Step();
              for (int i = 0; i < 9; ++i) s.Schedule("a", 1).Step();
            }}},
          {"ring-no-more-columns", {narrow, Decode()}},
          {"ring-pads-on-the-write-trash",
           {Ring(), Decode(
                        [](ScenarioPlan& plan) {
                          plan.Pad(0, 3, kTrash);
                          Of(plan).slots.back() = -1;
                        },
                        4)}},
          {"ring-given-away-at-the-end",
           {Ring(),
            [](Scenario& s) {
              s.Admit("a", {{2, 1}}).Schedule("a", 12).Step();
              s.Finish("a").Admit("b", {{1, 2}}).Schedule("b", 3).Step();
            }}},
          {"ring-of-a-request-that-went-back-a-little", {Ring(), Back(1)}},
          {"ring-computed-anew-from-the-start",
           {Ring(),
            [](Scenario& s) {
              s.Admit("a", {{2, 1}}).Schedule("a", 12).Step();
              s.Rollback("a", 12).Schedule("a", 6).Step();
              for (int i = 0; i < 9; ++i) s.Schedule("a", 1).Step();
            }}},
          {"ring-went-back-twice",
           {Ring(),
            [](Scenario& s) {
              s.Admit("a", {{2, 1}}).Schedule("a", 20).Step();
              s.Rollback("a", 1).Schedule("a", 2).Step();
              s.Rollback("a", 3).Schedule("a", 1).Step();
            }}},
          {"B080-slot-of-the-raw-column",
           {Ring(), Decode([](ScenarioPlan& plan) { Of(plan).slots[0] = 12; }, 4)}},
          {"ring-slot-one-turn-late",
           {Ring(), Decode([](ScenarioPlan& plan) { --Of(plan).slots[0]; }, 5)}},
          {"ring-clipped-token-written",
           {Ring(), Prefill([](ScenarioPlan& plan) { Of(plan).slots[4] = 4; })}},
          {"ring-token-into-the-trash",
           {Ring(), Decode([](ScenarioPlan& plan) { Of(plan).slots[0] = kTrash; }, 4)}},
          {"ring-capacity",
           {Ring(),
            [](Scenario& s) {
              s.Admit("a", {{2}}).Schedule("a", 5).Begin();
              s.End();
            }}},
          {"ring-shared-block",
           {Ring(),
            [](Scenario& s) {
              s.Admit("a", {{2, 1}}).Schedule("a", 8).Step();
              s.Admit("b", {{2, 3}}, 4).Schedule("b", 1).Begin();
              s.End();
            }}},
          {"ring-list-one-position-late",
           {Ring(), Decode(
                        [](ScenarioPlan& plan) {
                          // Of positions 3 to 9, now 2 to 8.
                          for (size_t k = 6; k > 0; --k) Of(plan).list[k] = Of(plan).list[k - 1];
                          Of(plan).list[0] = 10;
                        },
                        6)}},
          {"ring-list-not-rotated",
           {Ring(), Decode(
                        [](ScenarioPlan& plan) {
                          std::sort(Of(plan).list.begin(), Of(plan).list.begin() + 7);
                        },
                        6)}},
          {"ring-list-of-the-whole-window",
           {Ring(), Decode(
                        [](ScenarioPlan& plan) {
                          Of(plan).list.insert(Of(plan).list.begin(), 10);
                          ++Of(plan).starts[1];
                          ++Of(plan).starts[2];
                        },
                        6)}},
          {"ring-list-one-token-too-many",
           {Ring(), Decode(
                        [](ScenarioPlan& plan) {
                          Of(plan).list.insert(Of(plan).list.begin() + 8, -1);
                          ++Of(plan).starts[1];
                          ++Of(plan).starts[2];
                        },
                        6)}},
          {"ring-list-with-another-sentinel",
           {Ring(), Decode(
                        [](ScenarioPlan& plan) {
                          Of(plan).sentinel = -2;
                          std::replace(Of(plan).list.begin(), Of(plan).list.end(), -1, -2);
                        },
                        6)}},
          {"ring-list-without-the-sentinel",
           {Ring(), Decode([](ScenarioPlan& plan) { Of(plan).sentinel = -2; }, 6)}},
          {"ring-list-without-sentinels",
           {Ring(), Decode([](ScenarioPlan& plan) { Of(plan).list[7] = Of(plan).slots[0]; }, 6)}},
          {"ring-went-back-too-far", {Ring(), Back(5)}},
      });
}

// What an abandoned step has written is not known: nothing is said of what stands there.
TEST(Rings, AnAbandonedStepLeavesThemUnknown) {
  Scenario s(Ring());
  s.Admit("a", {{2, 1}}).Schedule("a", 8).Step();
  s.Schedule("a", 2).Begin();
  s.Plan(s.RightPlan());
  s.End(KVGUARD_END_ABANDONED);
  s.Schedule("a", 2).Step();
  EXPECT_TRUE(s.Findings().empty()) << s.Report();
}

// Behind a restore it is still known what stands where.
TEST(Rings, ASnapshotKeepsWhatWasWrittenLast) {
  Scenario s(Ring());
  s.Admit("a", {{2, 1}}).Schedule("a", 20).Step();
  ASSERT_EQ(s.Restore(s.Snapshot()), KVGUARD_OK) << s.error();
  s.Rollback("a", 5).Schedule("a", 1).Step();
  ASSERT_EQ(s.Codes(), std::vector<uint32_t>{701}) << s.Report();
  EXPECT_EQ(s.Findings()[0].pos, 8);
}

// A ring's block may be handed to a load, and what is read of it must be there.
TEST(Rings, WhatIsZeroedUnderThemIsFound) {
  Scenario s(Ring());
  s.Admit("a", {{2, 1}}).Schedule("a", 13).Step();
  s.Blocks(KVGUARD_EVENT_ZERO, "", {1}).Schedule("a", 1).Begin();
  ASSERT_EQ(s.Codes(), std::vector<uint32_t>{1202});
  EXPECT_EQ(s.Findings()[0].pos, 4) << "of the column, not of a position";
}

// Where a transfer's tokens stand in a ring depends on the turn.
TEST(Rings, TransfersOfThemAreNotMisplaced) {
  for (const uint32_t kind : {KVGUARD_EVENT_LOAD, KVGUARD_EVENT_SEND_PENDING}) {
    Scenario s(Ring());
    s.Admit("a", {{2, 1}}).Schedule("a", 13).Step();
    s.Blocks(kind, "a", {9}, 7).Schedule("a", 1).Step();
    EXPECT_EQ(s.Codes(), std::vector<uint32_t>{});
    Scenario full;
    full.Admit("a", {{2, 1, 3, 4}}).Schedule("a", 13).Step();
    full.Blocks(kind, "a", {9}, 7).Schedule("a", 1).Step();
    EXPECT_EQ(full.Codes(), std::vector<uint32_t>{1105}) << "the neighbour";
  }
}

TEST(Rings, TablesOfThemAreComparedWhole) {
  Scenario s(Ring(8, kTrash, false));
  s.Admit("a", {{2, 1}}).Schedule("a", 13).Step();
  s.Schedule("a", 1).Step([](ScenarioPlan& plan) { plan.Table(0, 0, 0) = 1; });
  ASSERT_EQ(s.Codes(), std::vector<uint32_t>{301}) << s.Report();
}

TEST(Rings, AListOfAnotherLengthNamesNoPosition) {
  Scenario s(Ring());
  s.Admit("a", {{2, 1}}).Schedule("a", 13).Step();
  s.Schedule("a", 1).Step([](ScenarioPlan& plan) { --Of(plan).starts[1]; });
  ASSERT_EQ(s.Codes(), std::vector<uint32_t>{304}) << s.Report();
  EXPECT_EQ(s.Findings()[0].pos, KVGUARD_NONE);
}

// B080's neighbour: without a ring's formula the slot of position 13 would be another block's.
TEST(Rings, ExpectedSlotsAreThoseOfTheRing) {
  Scenario s(Ring());
  s.Admit("a", {{2, 1}}).Schedule("a", 13).Step();
  s.Schedule("a", 1).Step([](ScenarioPlan& plan) {
    EXPECT_EQ(Of(plan).slots, Ints{5});
    Of(plan).slots[0] = 9;
  });
  ASSERT_EQ(s.Codes(), std::vector<uint32_t>{401}) << s.Report();
  EXPECT_EQ(s.Findings()[0].expected, 5);
}

}  // namespace
}  // namespace kvguard::tests
