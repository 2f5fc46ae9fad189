// SPDX-License-Identifier: Apache-2.0
// What the findings of events say, and of what reads or writes the blocks that they name.
#include <gtest/gtest.h>

#include "rules/catalog.h"
#include "tests/rules/values.h"

namespace kvguard::tests {
namespace {

using audit::Scenario;
using audit::ScenarioOptions;
using audit::ScenarioPlan;

ScenarioOptions Window(uint32_t sink = 0) {
  ScenarioOptions options;
  options.groups[0].kind = KVGUARD_GROUP_WINDOW;
  options.groups[0].window = 8;
  options.groups[0].sink = sink;
  return options;
}

ScenarioOptions Connector() {
  ScenarioOptions options;
  options.engine_flags |= KVGUARD_ENGINE_CONNECTOR | KVGUARD_ENGINE_PARTIAL_HITS;
  return options;
}

// --- binding, ownership ---

TEST(Values, BlocksThatCannotBeBound) {
  Scenario s;
  s.Admit("a", {{64, 0, 3, 3}}).Schedule("a", 1).Begin();
  Expect(s, {{.code = rules::kBlockOutOfRange,
              .request = "a",
              .group = 0,
              .pos = 0,
              .expected = 63,
              .observed = 64},
             {.code = rules::kBlockNull,
              .request = "a",
              .group = 0,
              .pos = 1,
              .expected = kNone,
              .observed = 0},
             {.code = rules::kBlockRepeated,
              .request = "a",
              .group = 0,
              .pos = 3,
              .expected = kNone,
              .observed = 3}});
}

TEST(Values, ARowThatIsTooShortAndOneThatIsTooWide) {
  ScenarioOptions options;
  options.columns = 2;
  Scenario s(options);
  s.Admit("a", {{1}}).Schedule("a", 6).Admit("b", {{2, 3, 4}}).Schedule("b", 1).Begin();
  Expect(s, {{.code = rules::kRowTooWide, .request = "b", .group = 0, .expected = 2, .observed = 3},
             {.code = rules::kCapacityShort,
              .request = "a",
              .group = 0,
              .pos = 5,
              .expected = 2,
              .observed = 1}});
}

TEST(Values, CountsThatAreAheadAndBehind) {
  for (const int64_t computed : {5, 3}) {
    Scenario s;
    s.Admit("a", {{1, 2}}).Schedule("a", 4).Step();
    s.Schedule("a", 1, 0, computed).Begin();
    Expect(s, {{.code = computed == 5 ? rules::kCountAhead : rules::kCountBehind,
                .request = "a",
                .pos = computed,
                .expected = 4,
                .observed = computed}});
  }
}

TEST(Values, AFreshBlockThatSomebodyHolds) {
  Scenario s;
  s.Admit("x", {{9}}).Schedule("x", 1).Step();
  s.Admit("a", {{1, 2}}).Schedule("a", 4).Step();
  s.Admit("b", {{3, 2}}).Schedule("b", 1).Begin();
  Expect(s, {{.code = rules::kBlockOwned,
              .request = "b",
              .group = 0,
              .pos = 1,
              .expected = kNone,
              .observed = 2,
              .victim = "a",
              .victim_block = 2,
              .first = 4,
              .last = 7,
              .since = 2}});
}

// Both are told to write what the first one fills.
TEST(Values, TwoWritersOfOneBlock) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 6).Step();
  s.Admit("b", {{1, 2}}, 8).Schedule("a", 1);
  s.Computed("b") = 6;
  s.Schedule("b", 1).Begin();
  EXPECT_EQ(Text(Only(s, rules::kTwoWriters)), Text(s, {.code = rules::kTwoWriters,
                                                        .request = "b",
                                                        .group = 0,
                                                        .pos = 4,
                                                        .expected = kNone,
                                                        .observed = 2,
                                                        .victim = "a",
                                                        .victim_block = 2,
                                                        .first = 4,
                                                        .last = 7,
                                                        .since = 1}));
}

// --- lifetime ---

// Window 8 at 16: columns 2 and 3 are read, and 0 is a sink.
TEST(Values, WhatIsStaleInAWindow) {
  for (const uint32_t sink : {0u, 1u}) {
    Scenario s(Window(sink));
    s.Admit("a", {{1, 2, 3, 4, 5}}).Schedule("a", 17).Step();
    s.Admit("b", {{sink == 0 ? 3 : 1, 4}}).Schedule("b", 1).Begin();
    ASSERT_FALSE(s.Findings().empty());
    s.Plan(s.RightPlan());
    s.End();
    s.Schedule("a", 1).Step();
    const std::vector<kvguard_finding> found = s.Findings();
    ASSERT_EQ(found.back().code, static_cast<uint32_t>(rules::kReadStale)) << s.Report();
    EXPECT_EQ(Text(found.back()), Text(s, {.code = rules::kReadStale,
                                           .request = "a",
                                           .group = 0,
                                           .row = 0,
                                           .pos = sink == 0 ? 10 : 0,
                                           .expected = kNone,
                                           .observed = sink == 0 ? 3 : 1,
                                           .count = 2,
                                           .victim = "b",
                                           .victim_block = sink == 0 ? 3 : 1,
                                           .first = 0,
                                           .last = 3,
                                           .since = 2}));
  }
}

TEST(Values, FreesOfWhatIsHeldAndOfWhatIsFree) {
  Scenario s;
  s.Admit("x", {{9}}).Admit("a", {{1, 2}}).Schedule("a", 6).Step();
  s.Blocks(KVGUARD_EVENT_FREE, "", {2, 7, 64, 7}).Schedule("a", 1).Begin();
  Expect(s,
         {{.code = rules::kBlockOutOfRange, .group = 0, .pos = 2, .expected = 63, .observed = 64},
          {.code = rules::kFreedWhileHeld,
           .request = "a",
           .group = 0,
           .pos = 1,
           .expected = kNone,
           .observed = 2},
          {.code = rules::kFreedTwice, .group = 0, .expected = kNone, .observed = 7}});
}

// --- content ---

TEST(Values, AHitOfWhatBelongsElsewhere) {
  Scenario s;
  s.Admit("a", {{1, 2, 3}}).Schedule("a", 12).Step();
  s.Admit("b", {{1, 3, 4}}, 8).Schedule("b", 1).Begin();
  Expect(s, {{.code = rules::kContentMisplaced,
              .request = "b",
              .group = 0,
              .pos = 1,
              .expected = 2,
              .observed = 3}});
}

TEST(Values, AHitOfOtherTokensOfOtherMarksAndOfNothing) {
  Scenario s;
  s.Admit("a", {{1, 2, 3}}).Tokens({1, 2, 3, 4, 5, 6, 7, 8, 9}).Schedule("a", 8).Step();
  s.Admit("b", {{1, 2, 3, 4}}, 12).Tokens({1, 2, 3, 4, 5, 6, 7, 0, 9, 9, 9, 9, 9});
  s.Schedule("b", 1);
  s.Admit("c", {{1, 5}}, 4).Tokens({1, 2, 3, 4, 5}).Domain(KVGUARD_DOMAIN_SALT, 3, 0, 5);
  s.Schedule("c", 1).Begin();
  Expect(s, {{.code = rules::kContentMismatch,
              .request = "b",
              .group = 0,
              .pos = 1,
              .expected = kNone,
              .observed = 2},
             {.code = rules::kContentUnwritten,
              .request = "b",
              .group = 0,
              .pos = 2,
              .expected = kNone,
              .observed = 3},
             {.code = rules::kDomainMismatch,
              .request = "c",
              .group = 0,
              .pos = 0,
              .expected = kNone,
              .observed = 1}});
}

// --- transfer ---

TEST(Values, TransfersThatNobodyKnowsOrKnowsAlready) {
  Scenario s(Connector());
  s.Expect("a").Blocks(KVGUARD_EVENT_LOAD, "a", {1}, 7).Step();
  s.Blocks(KVGUARD_EVENT_LOAD, "a", {2}, 7).Blocks(KVGUARD_EVENT_SEND_DONE, "a", {}, 8).Begin();
  Expect(s, {{.code = rules::kTransferReused,
              .request = "a",
              .group = 0,
              .expected = kNone,
              .observed = 7},
             {.code = rules::kTransferUnknown,
              .request = "a",
              .group = 0,
              .expected = kNone,
              .observed = 8}});
}

TEST(Values, ALoadIntoAnotherBlock) {
  Scenario s(Connector());
  s.Admit("b", {{9}}).Schedule("b", 4).Step();
  s.Admit("a", {{1, 2, 3}}).Blocks(KVGUARD_EVENT_LOAD, "a", {1, 9}, 7).Begin();
  Expect(s, {{.code = rules::kTransferMisplaced,
              .request = "a",
              .group = 0,
              .pos = 4,
              .expected = 2,
              .observed = 9,
              .victim = "b",
              .victim_block = 9,
              .first = 0,
              .last = 3,
              .since = 1},
             {.code = rules::kLoadOverwrites,
              .request = "a",
              .group = 0,
              .pos = 0,
              .expected = kNone,
              .observed = 9,
              .victim = "b",
              .victim_block = 9,
              .first = 0,
              .last = 3,
              .since = 1}});
}

TEST(Values, ASendOfAnothersBlock) {
  Scenario s(Connector());
  s.Admit("b", {{9, 8}}).Schedule("b", 8).Admit("a", {{1, 2}}).Schedule("a", 4).Step();
  s.Blocks(KVGUARD_EVENT_SEND_PENDING, "a", {1, 9, 8}, 7).Begin();
  Expect(s, {{.code = rules::kTransferMisplaced,
              .request = "a",
              .group = 0,
              .expected = kNone,
              .observed = 9,
              .victim = "b",
              .victim_block = 9,
              .first = 0,
              .last = 3,
              .since = 1}});
}

TEST(Values, PinnedBlocksThatAreBoundOrHandedOut) {
  Scenario s(Connector());
  s.Admit("a", {{1, 2}}).Schedule("a", 8).Step();
  s.Blocks(KVGUARD_EVENT_SEND_PENDING, "a", {1, 2}, 7).Finish("a").Step();
  s.Admit("b", {{3, 1}}).Expect("c").Blocks(KVGUARD_EVENT_LOAD, "c", {4, 2, 2}, 8).Begin();
  Expect(s, {{.code = rules::kPinnedRebound,
              .request = "b",
              .group = 0,
              .pos = 1,
              .expected = kNone,
              .observed = 1},
             {.code = rules::kPinnedRebound,
              .request = "c",
              .group = 0,
              .expected = kNone,
              .observed = 2}});
}

TEST(Values, AWriteToWhatIsBeingSent) {
  Scenario s(Connector());
  s.Admit("a", {{1, 2, 3}}).Schedule("a", 6).Step();
  s.Blocks(KVGUARD_EVENT_SEND_PENDING, "a", {1, 2, 3}, 7).Schedule("a", 4).Begin();
  Expect(s, {{.code = rules::kWriteWhilePinned,
              .request = "a",
              .group = 0,
              .pos = 4,
              .expected = kNone,
              .observed = 2}});
}

TEST(Values, AReadOfWhatIsBeingLoadedAndOfWhatFailed) {
  Scenario s(Connector());
  s.Admit("x", {{9}}).Schedule("x", 1).Step();
  s.Expect("a").Blocks(KVGUARD_EVENT_LOAD, "a", {1, 2}, 7).Step();
  s.Admit("a", {{1, 2, 3}}, 8).Schedule("x", 1).Schedule("a", 1).Step();
  Expect(s, {{.code = rules::kReadWhileLoading,
              .request = "a",
              .group = 0,
              .row = 1,
              .pos = 0,
              .expected = kNone,
              .observed = 1}});
  s.Blocks(KVGUARD_EVENT_LOAD_FAILED, "a", {2}, 7).Schedule("a", 1).Begin();
  EXPECT_EQ(Text(s.Findings().back()), Text(s, {.code = rules::kFailedLoadUsed,
                                                .request = "a",
                                                .group = 0,
                                                .pos = 4,
                                                .expected = kNone,
                                                .observed = 2}));
}

// --- copy ---

TEST(Values, ZeroingThatIsUsedLiveOrLost) {
  Scenario s;
  s.Admit("x", {{9}}).Blocks(KVGUARD_EVENT_ZERO, "", {9}).Blocks(KVGUARD_EVENT_ZERO_DONE, "", {9});
  s.Schedule("x", 1).Step();
  s.Admit("a", {{1, 2, 3}}).Schedule("a", 12).Step();
  s.Admit("b", {{4, 5, 6}}).Blocks(KVGUARD_EVENT_ZERO, "", {2, 5, 6}).Schedule("a", 1);
  s.Append("a", {7}).Schedule("b", 9).Step();
  Expect(s, {{.code = rules::kZeroLive,
              .request = "a",
              .group = 0,
              .pos = 4,
              .expected = kNone,
              .observed = 2},
             {.code = rules::kUsedBeforeZeroed,
              .request = "a",
              .group = 0,
              .row = 0,
              .pos = 4,
              .expected = kNone,
              .observed = 2},
             {.code = rules::kUsedBeforeZeroed,
              .request = "b",
              .group = 0,
              .row = 1,
              .pos = 4,
              .expected = kNone,
              .observed = 5},
             {.code = rules::kCopyLost, .group = 0, .expected = kNone, .observed = 2, .count = 3}});
}

TEST(Values, CopiesOntoWhatIsHeldAndFromWhatIsZeroed) {
  Scenario s;
  s.Admit("x", {{9}}).Schedule("x", 1).Admit("a", {{1, 2}}).Schedule("a", 8).Step();
  s.Blocks(KVGUARD_EVENT_COPY, "", {5, 2, 6, 0, 8, 7});
  s.Blocks(KVGUARD_EVENT_ZERO, "", {8, 4}).Schedule("x", 1).Begin();
  Expect(s, {{.code = rules::kCopyTargetHeld,
              .request = "a",
              .group = 0,
              .expected = kNone,
              .observed = 2},
             {.code = rules::kCopyTargetHeld, .group = 0, .expected = kNone, .observed = 0},
             {.code = rules::kCopySourceZeroed, .group = 0, .expected = kNone, .observed = 8}});
}

}  // namespace
}  // namespace kvguard::tests
