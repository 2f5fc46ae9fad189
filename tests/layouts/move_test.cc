// SPDX-License-Identifier: Apache-2.0
// Blocks that move (REMAP), and positions of cells that are erased or counted anew.
#include <gtest/gtest.h>

#include "tests/layouts/planted.h"

namespace kvguard::tests {
namespace {

using audit::Scenario;
using audit::ScenarioOptions;
using audit::ScenarioPlan;
using Edit = std::function<void(ScenarioPlan&)>;
using Play = std::function<void(Scenario&)>;
using Ints = std::vector<int64_t>;

constexpr uint32_t kDedupe = KVGUARD_REMAP_DEDUPE;
constexpr uint32_t kMove = KVGUARD_REMAP_MOVE;
constexpr uint32_t kSwap = KVGUARD_REMAP_SWAP;

Ints From(int64_t first, int64_t count) {
  Ints out;
  for (int64_t i = 0; i < count; ++i) out.push_back(first + i);
  return out;
}

Play Moved(const Edit& edit = nullptr) {
  return [=](Scenario& s) {
    s.Admit("a", {{1, 2}}).Admit("b", {{3}}).Schedule("a", 6).Schedule("b", 2).Step();
    s.Remap(kMove, {1, 11, 2, 12}).Schedule("a", 1).Schedule("b", 1).Step(edit);
    if (!edit) s.Finish("b").Admit("c", {{1, 2}}).Schedule("c", 5).Schedule("a", 1).Step();
  };
}

// a and b computed the same 5 tokens but where `other` is; b's block `from` becomes a's `to`.
Play Deduped(const Ints& other, int64_t from, int64_t to, int64_t lora = 0) {
  return [=](Scenario& s) {
    s.Admit("a", {{1, 2, 3}}).Tokens(From(100, 9)).Admit("b", {{4, 5, 6}}).Tokens(other);
    if (lora != 0) s.Domain(KVGUARD_DOMAIN_LORA, lora, 0, 9);
    s.Schedule("a", 9).Schedule("b", 9).Step();
    s.Remap(kDedupe, {from, to}).Schedule("a", 1).Schedule("b", 1).Step();
  };
}

Play CachedBlock(int64_t hit) {
  return [=](Scenario& s) {
    s.Admit("a", {{1, 2}}).Tokens(From(100, 6)).Schedule("a", 6).Step();
    s.Finish("a").Step();
    s.Remap(kMove, {1, 11}).Step();
    s.Admit("b", {{2}}).Schedule("b", 1).Step();  // of the column behind, which is free
    s.Admit("c", {{hit, 7}}, 4).Tokens(From(100, 6)).Schedule("c", 1).Step();
  };
}

TEST(Moves, PlantedFaultsAreFoundAndTheirNeighboursAreNot) {
  ScenarioOptions connector;
  connector.engine_flags |= KVGUARD_ENGINE_CONNECTOR;
  ScenarioOptions told;
  told.engine_flags |= KVGUARD_ENGINE_FILLS_TOLD;
  Ints other = From(100, 9);
  other[2] = 7;
  CheckPlantedList(
      "move_faults.txt",
      {
          {"moved", {{}, Moved()}},
          {"moved-onto-one-another",
           {{},
            [](Scenario& s) {
              s.Admit("a", {{1}}).Admit("b", {{2}}).Schedule("a", 2).Schedule("b", 2).Step();
              s.Remap(kMove, {1, 2, 2, 3}).Schedule("a", 1).Schedule("b", 1).Step();
            }}},
          {"moved-cached-block", {told, CachedBlock(11)}},
          {"swapped",
           {{},
            [](Scenario& s) {
              s.Admit("a", {{1}}).Admit("b", {{2}}).Schedule("a", 2).Schedule("b", 2).Step();
              s.Remap(kSwap, {1, 2}).Schedule("a", 1).Schedule("b", 1).Step([](ScenarioPlan& plan) {
                EXPECT_EQ(plan.groups[0].slots, (Ints{10, 6}));
              });
            }}},
          {"deduped", {{}, Deduped(From(100, 9), 4, 1)}},
          {"table-before-the-move",
           {{}, Moved([](ScenarioPlan& plan) { plan.Table(0, 0, 0) = 1; })}},
          {"slot-before-the-move",
           {{}, Moved([](ScenarioPlan& plan) { plan.groups[0].slots[0] = 10; })}},
          {"moved-onto-a-held-block",
           {{},
            [](Scenario& s) {
              s.Admit("a", {{1}}).Admit("b", {{2}}).Schedule("a", 2).Schedule("b", 2).Step();
              s.Remap(kMove, {1, 2}).Schedule("a", 1).Begin();
              s.End();
            }}},
          {"deduped-with-other-tokens", {{}, Deduped(other, 4, 1)}},
          {"deduped-with-another-lora", {{}, Deduped(From(100, 9), 4, 1, 3)}},
          {"deduped-at-another-column", {{}, Deduped(From(100, 9), 5, 1)}},
          {"deduped-while-written", {{}, Deduped(From(100, 9), 6, 3)}},
          {"deduped-onto-its-own-row",
           {{},
            [](Scenario& s) {
              s.Admit("a", {{1, 2}}).Schedule("a", 8).Step();
              s.Remap(kDedupe, {2, 1}).Step();
            }}},
          {"hit-on-the-old-block", {told, CachedBlock(1)}},
          {"B129-sent-from-the-old-blocks",
           {connector,
            [](Scenario& s) {
              s.Admit("a", {{1, 2}}).Schedule("a", 6).Step();
              s.Remap(kMove, {1, 11, 2, 12}).Blocks(KVGUARD_EVENT_SEND_PENDING, "a", {1, 2}, 7);
              s.Schedule("a", 1).Begin();
              s.End();
            }}},
          {"move-out-of-range",
           {{},
            [](Scenario& s) {
              s.Admit("a", {{1}}).Schedule("a", 2).Step();
              s.Blocks(KVGUARD_EVENT_REMAP, "", {1, 64}, kMove).Step();
            }}},
      });
}

TEST(Moves, ABlockThatIsMovedTwiceIsMalformed) {
  for (const Ints& pairs : {Ints{1, 5, 1, 6}, Ints{1, 5, 2, 5}}) {
    Scenario s;
    s.Admit("a", {{1, 2}}).Schedule("a", 6).Step();
    s.Blocks(KVGUARD_EVENT_REMAP, "", pairs, kMove);
    EXPECT_EQ(s.Begin(), KVGUARD_ERROR_ARGUMENT);
    EXPECT_NE(s.error().find("moved twice"), std::string::npos);
  }
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 6).Step();
  s.Blocks(KVGUARD_EVENT_REMAP, "", {1, 5}, 4);
  EXPECT_EQ(s.Begin(), KVGUARD_ERROR_ARGUMENT);
  EXPECT_NE(s.error().find("reason 4"), std::string::npos) << s.error();
}

// Pairs that move nothing are no fault: an engine may list every block.
TEST(Moves, BlocksThatStayAreNotMoved) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 6).Step();
  s.Blocks(KVGUARD_EVENT_REMAP, "", {1, 1, 1, 1, 2, 0}, kMove).Schedule("a", 1).Step();
  EXPECT_TRUE(s.Findings().empty()) << s.Report();
}

// A pinned place stays pinned: whoever reads it reads the old bytes.
TEST(Moves, PinsStayWithThePlace) {
  ScenarioOptions options;
  options.engine_flags |= KVGUARD_ENGINE_CONNECTOR;
  Scenario s(options);
  s.Admit("a", {{1}}).Schedule("a", 4).Step();
  s.Blocks(KVGUARD_EVENT_SEND_PENDING, "a", {1}, 7).Step();
  s.Remap(kMove, {1, 11}).Step();
  s.Admit("b", {{1}}).Schedule("b", 1).Begin();
  EXPECT_EQ(s.Codes(), (std::vector<uint32_t>{1103, 1102})) << s.Report();
}

ScenarioOptions Cells() {
  ScenarioOptions options;
  audit::ScenarioGroup& group = options.groups[0];
  group.block_size = group.kernel_block_size = 1;
  group.encoding = KVGUARD_READ_FLAT;
  group.table_unit = KVGUARD_UNIT_SLOT;
  group.pool_kind = KVGUARD_POOL_CELLS;
  options.null_block = KVGUARD_NONE;
  return options;
}

// Nine tokens, of which c and d are erased and the rest moves down.
void Shifted(Scenario& s) {
  s.Admit("a", {From(0, 9)}).Schedule("a", 9).Step();
  s.Erase("a", 2, 2).Rebase("a", 4, 5, -2);
}

TEST(Cells, PlantedFaultsAreFoundAndTheirNeighboursAreNot) {
  const auto scattered = [](const Edit& edit, int64_t counted) -> Play {
    return [=](Scenario& s) {
      s.Admit("a", {{40, 7, 21, 3}}).Admit("b", {{8, 41, 0, 60}});
      s.Schedule("a", 4).Schedule("b", 4).Step();
      s.Append("a", {9}).Append("b", {10});
      s.Schedule("a", 1, 0, counted).Schedule("b", 1).Step(edit);
    };
  };
  const auto holes = [](const Edit& edit) -> Play {
    return [=](Scenario& s) {
      s.Admit("a", {{40, 7, 21, 3}}).Schedule("a", 4).Step();
      s.Erase("a", 1, 2).Append("a", {7}).Schedule("a", 1).Step(edit);
    };
  };
  const auto taken = [](bool erased) -> Play {
    return [=](Scenario& s) {
      s.Admit("a", {{40, 7, 21, 3}}).Schedule("a", 4).Step();
      if (erased) s.Erase("a", 2, 2);
      s.Admit("b", {{21, 5}}).Schedule("b", 2).Step();
    };
  };
  CheckPlantedList(
      "cell_faults.txt",
      {
          {"cells-in-any-order", {Cells(), scattered(nullptr, -1)}},
          {"cells-context-shift",
           {Cells(),
            [](Scenario& s) {
              Shifted(s);
              s.Erase("a", 4, 1).Rebase("a", 5, 2, -1).Append("a", {2}).Schedule("a", 1).Step();
              EXPECT_EQ(s.Computed("a"), 7);
            }}},
          {"cells-erased-in-the-middle", {Cells(), holes(nullptr)}},
          {"cells-erased-at-the-end",
           {Cells(),
            [](Scenario& s) {
              s.Admit("a", {{40, 7, 21, 3}}).Schedule("a", 4).Step();
              s.Erase("a", 2, 9).Append("a", {3, 50}).Schedule("a", 2).Step();
            }}},
          {"cells-freed-and-taken", {Cells(), taken(true)}},
          {"cells-shared-prefix",
           {Cells(),
            [](Scenario& s) {
              s.Admit("a", {{40, 7, 21}}).Schedule("a", 3).Step();
              s.Admit("b", {{40, 7, 21}}, 3).Append("a", {1}).Append("b", {2});
              s.Schedule("a", 1).Schedule("b", 1).Step();
              s.Erase("a", 0, 2).Append("a", {3}).Append("b", {4});
              s.Schedule("a", 1).Schedule("b", 1).Step();
              s.Erase("b", 0, 2).Append("a", {40}).Append("b", {7});
              s.Schedule("a", 1).Schedule("b", 1).Step();
            }}},
          {"B016-erased-in-coordinates-before-the-shift",
           {Cells(),
            [](Scenario& s) {
              Shifted(s);
              s.Erase("a", 4, 3).Rebase("a", 5, 2, -1).Append("a", {50, 51, 52});
              s.Schedule("a", 1, 0, 6).Begin();
              s.End();
            }}},
          {"B017-cell-of-another-request",
           {Cells(), scattered([](ScenarioPlan& plan) { plan.groups[0].list[3] = 60; }, -1)}},
          {"B097-batch-behind-a-gap",
           {Cells(),
            [](Scenario& s) {
              s.Admit("a", {{40, 7, 21, 3}}).Schedule("a", 4).Step();
              s.Append("a", {9, 10}).Schedule("a", 1, 0, 5).Begin();
              s.End();
            }}},
          {"cells-hole-is-read", {Cells(), holes([](ScenarioPlan& plan) {
                                    plan.groups[0].list.insert(plan.groups[0].list.begin() + 1,
                                                               {7, 21});
                                    plan.groups[0].starts = {0, 5};
                                    // What is erased is read, and everything behind it comes too
                                    // late.
                                    plan.groups[0].list = {40, 3, 7, 7, 21};
                                  })}},
          {"cells-taken-while-held", {Cells(), taken(false)}},
          {"cells-written-at-the-old-place",
           {Cells(),
            [](Scenario& s) {
              Shifted(s);
              s.Append("a", {2}).Schedule("a", 1).Step([](ScenarioPlan& plan) {
                EXPECT_EQ(plan.groups[0].slots, Ints{2});
                plan.groups[0].slots[0] = 9;
              });
            }}},
      });
}

// Cells that are bound ahead of their tokens are no tokens.
TEST(Cells, WhatIsBoundAheadIsNotCounted) {
  Scenario s(Cells());
  s.Admit("a", {{40, 7, 21, 3}}).Schedule("a", 4).Step();
  s.Append("a", {9}).Erase("a", 0, 1);
  s.Computed("a") = 4;
  s.Schedule("a", 1).Step();
  EXPECT_TRUE(s.Findings().empty()) << s.Report();
}

// A pad slot is no slot of a hole, though both are written -1.
TEST(Cells, APadSlotAtAHoleIsWrong) {
  Scenario s(Cells());
  s.Admit("a", {{40, 7}}).Schedule("a", 2).Step();
  s.Append("a", {9, 8}).Erase("a", 2, 1);
  s.Computed("a") = 2;
  s.Schedule("a", 1).Step([](ScenarioPlan& plan) { plan.groups[0].slots[0] = -1; });
  EXPECT_EQ(s.Codes(), std::vector<uint32_t>{403}) << s.Report();
}

TEST(Cells, ASlotAtAHoleIsWrong) {
  Scenario s(Cells());
  s.Admit("a", {{40, 7, 21, 3}}).Schedule("a", 3).Step();
  s.Erase("a", 3, 1).Schedule("a", 1).Begin();
  EXPECT_EQ(s.Codes(), std::vector<uint32_t>{204}) << s.Report();
}

TEST(Cells, PositionsThatNoRowCanHaveAreGivenBack) {
  Scenario s(Cells());
  s.Admit("a", {{40, 7, 21}}).Schedule("a", 3).Step();
  kvguard_event event{};
  event.size = sizeof(event);
  event.kind = KVGUARD_EVENT_REBASE;
  event.request = s.Key("a");
  event.first = 1;
  event.count = 2;
  event.value = int64_t{1} << 40;
  s.Event(event).Step();
  s.Admit("b", {{7, 21}}).Schedule("b", 2).Begin();
  EXPECT_TRUE(s.Findings().empty()) << s.Report();
}

}  // namespace
}  // namespace kvguard::tests
