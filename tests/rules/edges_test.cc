// SPDX-License-Identifier: Apache-2.0
// Where a rule's ground ends: the first and last slot, the last finding that is looked for, the
// first position of a window, the last column that is used.
#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "audit/scenario.h"
#include "rules/catalog.h"

namespace kvguard::tests {
namespace {

using audit::Scenario;
using audit::ScenarioGroup;
using audit::ScenarioOptions;
using audit::ScenarioPlan;

std::vector<kvguard_finding> Of(const Scenario& s, uint32_t code) {
  std::vector<kvguard_finding> found = s.Findings();
  std::erase_if(found, [&](const kvguard_finding& f) { return f.code != code; });
  return found;
}

ScenarioOptions Window(uint32_t sink) {
  ScenarioOptions options;
  options.engine_flags |= KVGUARD_ENGINE_CONNECTOR;
  options.groups[0].kind = KVGUARD_GROUP_WINDOW;
  options.groups[0].window = 6;
  options.groups[0].sink = sink;
  return options;
}

TEST(Edges, APadSlotHitsWhoeverHoldsIt) {
  ScenarioOptions options;
  options.null_block = KVGUARD_NONE;
  options.group_flags = 0;
  for (const int64_t slot : {0, 255, 256, -2}) {
    Scenario s(options);
    s.Admit("b", {{0}}).Schedule("b", 4).Admit("c", {{63}}).Schedule("c", 4).Step();
    s.Admit("a", {{1}}).Schedule("a", 2).Step([&](ScenarioPlan& p) {
      p.Pad(0, 1);
      p.groups[0].slots[2] = slot;
    });
    const auto found = Of(s, rules::kPadSlotReal);
    ASSERT_EQ(found.size(), 1u) << s.Report();
    EXPECT_EQ(found[0].victim, slot == 0 ? s.Key("b") : slot == 255 ? s.Key("c") : 0);
  }
}

TEST(Edges, OnlyTheSmallestSlotThatIsWrittenTwiceIsTold) {
  Scenario s;
  s.Admit("a", {{1}}).Schedule("a", 4).Admit("b", {{2}}).Schedule("b", 2);
  s.Step([](ScenarioPlan& p) { p.groups[0].slots = {7, 7, 6, 6, 7, 9}; });
  const auto found = Of(s, rules::kSlotWrittenTwice);
  ASSERT_EQ(found.size(), 1u) << s.Report();
  EXPECT_EQ(found[0].observed, 6);
  EXPECT_EQ(found[0].count, 1u);
  EXPECT_EQ(found[0].pos, 3);
  EXPECT_EQ(found[0].victim_block, KVGUARD_NONE);
}

TEST(Edges, PadSlotsOfTokensAreNotWrittenTwice) {
  Scenario s;
  s.Admit("a", {{1}}).Schedule("a", 3).Step([](ScenarioPlan& p) {
    p.groups[0].slots = {-1, -1, 9};
  });
  EXPECT_TRUE(Of(s, rules::kSlotWrittenTwice).empty()) << s.Report();
}

// A row writes into nine blocks of others: eight are told.
TEST(Edges, EightForeignBlocksOfARowAreTold) {
  for (const int64_t others : {8, 9}) {
    Scenario s;
    std::vector<int64_t> blocks;
    for (int64_t i = 0; i < others; ++i) blocks.push_back(10 + i);
    s.Admit("b", {blocks}).Schedule("b", others * 4).Step();
    s.Admit("a", {{1, 2, 3}}).Schedule("a", others).Step([&](ScenarioPlan& p) {
      for (int64_t i = 0; i < others; ++i)
        p.groups[0].slots[static_cast<size_t>(i)] = (10 + i) * 4 + i % 4;
    });
    EXPECT_EQ(Of(s, rules::kForeignWrite).size(), 8u) << others;
  }
}

// A block of one's own at another position is foreign; at its own it is shared.
TEST(Edges, ASharedBlockIsForeignAtAnotherPositionOnly) {
  for (const bool own_place : {false, true}) {
    Scenario s;
    s.Admit("b", {{5, 6}}).Schedule("b", 8).Step();
    s.Admit("a", {{5, 1}}, 4).Schedule("a", 2).Step([&](ScenarioPlan& p) {
      if (own_place) {
        p.positions = {2, 3};
        p.groups[0].slots = {24, 25};
      } else {
        p.groups[0].slots = {20, 21};
      }
    });
    EXPECT_EQ(Of(s, rules::kForeignWrite).size(), 1u) << s.Report();
  }
}

// A slot of nobody and an own slot end a run of foreign ones.
TEST(Edges, AnOwnSlotEndsAForeignRun) {
  Scenario s;
  s.Admit("b", {{5}}).Schedule("b", 4).Step();
  s.Admit("a", {{1, 2}}).Schedule("a", 6).Step([](ScenarioPlan& p) {
    p.groups[0].slots = {20, 5, 21, 0, 22, 256};
  });
  const auto found = Of(s, rules::kForeignWrite);
  ASSERT_EQ(found.size(), 3u) << s.Report();
  for (const kvguard_finding& f : found) EXPECT_EQ(f.count, 1u);
}

// What is announced and not done, in a window of 6 at 10: positions 5 to 9, columns 1 and 2.
TEST(Edges, AnnouncedBlocksBehindAWindowAreNotUsed) {
  for (const uint32_t sink : {0u, 2u}) {
    for (const int64_t block : {1, 2, 3, 4}) {
      for (const uint32_t kind : {KVGUARD_EVENT_ZERO, KVGUARD_EVENT_COPY}) {
        Scenario s(Window(sink));
        s.Admit("x", {{20}}).Schedule("x", 1);
        s.Blocks(KVGUARD_EVENT_ZERO_DONE, "", {30}).Blocks(KVGUARD_EVENT_COPY_DONE, "", {30, 31});
        s.Admit("a", {{1, 2, 3, 4}}).Schedule("a", 10).Step();
        if (kind == KVGUARD_EVENT_ZERO) {
          s.Blocks(kind, "", {block});
        } else {
          s.Blocks(kind, "", {40, block});
        }
        s.Schedule("a", 1).Step();
        const uint32_t code = kind == KVGUARD_EVENT_ZERO ? uint32_t{rules::kUsedBeforeZeroed}
                                                         : uint32_t{rules::kUsedBeforeCopied};
        const auto found = Of(s, code);
        const bool used = block == 2 || block == 3 || (block == 1 && sink > 0);
        ASSERT_EQ(found.size(), used ? 1u : 0u) << block << " " << sink << "\n" << s.Report();
        if (used) {
          EXPECT_EQ(found[0].pos, block == 2 ? 5 : (block - 1) * 4) << sink;
        }
      }
    }
  }
}

TEST(Edges, LoadsBehindAWindowAreNotRead) {
  for (const uint32_t sink : {0u, 2u}) {
    for (const int64_t column : {0, 1, 2, 3}) {
      Scenario s(Window(sink));
      s.Admit("a", {{1, 2, 3, 4}}).Schedule("a", 10).Step();
      s.Blocks(KVGUARD_EVENT_LOAD, "a", {column + 1}, 7, column * 4).Step();
      s.Schedule("a", 1).Step();
      const auto found = Of(s, rules::kReadWhileLoading);
      const bool read = column == 1 || column == 2 || (column == 0 && sink > 0);
      ASSERT_EQ(found.size(), read ? 1u : 0u) << column << " " << sink << "\n" << s.Report();
      if (read) {
        EXPECT_EQ(found[0].pos, column == 1 ? 5 : column * 4);
      }
    }
  }
}

// A request that is not scheduled has what it has; one that is, what it starts from.
TEST(Edges, ZeroingIsLiveUpToTheFrontier) {
  for (const bool scheduled : {false, true}) {
    for (const int64_t block : {1, 2}) {
      Scenario s;
      s.Admit("x", {{9}}).Schedule("x", 1).Admit("a", {{1, 2}}).Schedule("a", 4).Step();
      s.Blocks(KVGUARD_EVENT_ZERO, "", {block});
      if (scheduled) s.Schedule("a", 1);
      s.Schedule("x", 1).Begin();
      EXPECT_EQ(Of(s, rules::kZeroLive).size(), block == 1 ? 1u : 0u) << s.Report();
    }
  }
  // The scheduler goes back: what stands behind its count is not live any more.
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 8).Step();
  s.Blocks(KVGUARD_EVENT_ZERO, "", {2}).Schedule("a", 1, 0, 4).Begin();
  EXPECT_TRUE(Of(s, rules::kZeroLive).empty()) << s.Report();
}

// Each kind and group that was announced in vain is told once, with its number.
TEST(Edges, WhatIsLostIsToldForEachGroup) {
  ScenarioOptions options;
  options.groups = std::vector<ScenarioGroup>(2);
  Scenario s(options);
  s.Admit("x", {{9}, {19}}).Schedule("x", 1);
  s.Blocks(KVGUARD_EVENT_ZERO_DONE, "", {30}).Step();
  s.Blocks(KVGUARD_EVENT_ZERO, "", {40, 41}, 0, 0, 1).Schedule("x", 1).Step();
  auto found = Of(s, rules::kCopyLost);
  ASSERT_EQ(found.size(), 1u) << s.Report();
  EXPECT_EQ(found[0].group, 1u);
  EXPECT_EQ(found[0].count, 2u);
  s.Blocks(KVGUARD_EVENT_ZERO, "", {40, 41}, 0, 0, 1).Blocks(KVGUARD_EVENT_ZERO, "", {42});
  s.Blocks(KVGUARD_EVENT_ZERO_DONE, "", {40}, 0, 0, 1).Schedule("x", 1).Step();
  found = Of(s, rules::kCopyLost);
  ASSERT_EQ(found.size(), 3u) << s.Report();
  EXPECT_EQ(found[1].count, 1u);
  EXPECT_EQ(found[2].count, 1u);
}

// A free ends the claims of columns that a window needs only if drafts are rejected.
TEST(Edges, AFreeOfWhatAWindowHasLeftIsNoFault) {
  for (const int64_t drafts : {0, 3}) {
    ScenarioOptions options = Window(0);
    options.engine_flags |= KVGUARD_ENGINE_ASYNC;
    options.max_drafts = 3;
    Scenario s(options);
    s.Admit("a", {{1, 2, 3, 4}}).Schedule("a", 6).Step();
    s.Schedule("a", drafts == 0 ? 1 : 4, static_cast<uint32_t>(drafts)).Step();
    s.Blocks(KVGUARD_EVENT_FREE, "", {1}).Begin();
    EXPECT_EQ(Of(s, rules::kFreedWhileHeld).size(), drafts == 0 ? 1u : 0u) << s.Report();
  }
}

// The last token of a prompt, computed again, writes what its block holds: that block alone.
TEST(Edges, OnlyTheBlockOfTheLastTokenIsComputedAgain) {
  for (const int64_t first : {7, 6}) {
    Scenario s;
    s.Admit("a", {{1, 2, 3}}).Tokens({1, 2, 3, 4, 5, 6, 7, 8}).Schedule("a", 8).Step();
    s.Admit("b", {{1, 2}}, first).Tokens({1, 2, 3, 4, 5, 6, 7, 8}).Schedule("b", 8 - first);
    s.Begin();
    EXPECT_EQ(Of(s, rules::kBlockOwned).size(), first == 7 ? 0u : 1u) << s.Report();
  }
}

// A finding says which pass of the step it is of, and on which rank.
TEST(Edges, AFindingNamesItsPassAndRank) {
  ScenarioOptions options;
  options.dcp_size = 2;
  options.dcp_rank = 1;
  Scenario s(options);
  s.Admit("a", {{1}}).Schedule("a", 2).Begin();
  ScenarioPlan plan = s.RightPlan();
  plan.seq_lens[0] = 9;
  s.Plan(plan, [](kvguard_plan& p, kvguard_group_plan*) { p.pass_index = 3; });
  const auto found = Of(s, rules::kSeqLenMismatch);
  ASSERT_EQ(found.size(), 1u) << s.Report();
  EXPECT_EQ(found[0].pass_index, 3u);
  EXPECT_EQ(found[0].rank, 1u);
  EXPECT_EQ(found[0].pass, static_cast<uint32_t>(KVGUARD_PASS_TARGET));
}

// A block that changed hands is held since its new owner got it; one that is shared, since its
// reader came.
TEST(Edges, AVictimHoldsSinceItGotTheBlock) {
  Scenario s;
  s.Admit("b", {{5}}).Schedule("b", 4).Step();
  s.Append("b", {6}).Schedule("b", 4).Step();
  s.Admit("c", {{5, 7}}, 4).Schedule("c", 1).Finish("b").Step();
  for (const int64_t slot : {20, 28}) {
    const std::string name = std::string("a").append(std::to_string(slot));
    s.Admit(name, {{slot == 20 ? 1 : 2}});
    s.Schedule(name, 1).Step([&](ScenarioPlan& p) { p.groups[0].slots = {slot}; });
    const auto found = Of(s, rules::kForeignWrite);
    ASSERT_FALSE(found.empty()) << s.Report();
    EXPECT_EQ(found.back().victim, s.Key("c"));
    EXPECT_EQ(found.back().victim_since, 3u);
  }
}

}  // namespace
}  // namespace kvguard::tests
