// SPDX-License-Identifier: Apache-2.0
// Details of transfers, zeroing, copies and frees: rows with ids that no table can hold, requests
// that come late, blocks that are named without being held.
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

constexpr int64_t kNoTable = int64_t{1} << 40;  // an id that no table can hold

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

ScenarioOptions States() {
  ScenarioOptions options = Connector();
  ScenarioGroup& group = options.groups[0];
  group.kind = KVGUARD_GROUP_STATE;
  group.state_mode = KVGUARD_STATE_ALIGN;
  return options;
}

// --- where loads are placed ---

TEST(TransferDetails, BehindTheBoundColumnsNothingIsRight) {
  for (const int64_t block : {2, -1}) {
    Scenario s(Connector());
    s.Admit("a", {{1, 2}}).Schedule("a", 1).Step();
    s.Truncate("a", 1).Blocks(KVGUARD_EVENT_LOAD, "a", {block}, 7, 4).Begin();
    const auto found = Of(s, rules::kTransferMisplaced);
    ASSERT_EQ(found.size(), 1u) << s.Report();
    EXPECT_EQ(found[0].expected, KVGUARD_NONE);
    EXPECT_EQ(found[0].observed, block);
  }
}

// Of a load before its request only columns count that are bound, computed, and of unknown home.
TEST(TransferDetails, WhatALateRequestDoesNotCount) {
  const std::vector<std::vector<int64_t>> rows = {{3}, {3, kNoTable}, {3, 64}, {3, 0}, {3, 4}};
  for (const auto& row : rows) {
    Scenario s(Connector());
    s.Expect("a").Blocks(KVGUARD_EVENT_LOAD, "a", {3, 9}, 7).Step();
    s.Admit("a", {row}, 8).Begin();
    EXPECT_EQ(Count(s, rules::kTransferMisplaced), row.back() == 4 ? 1u : 0u) << s.Report();
  }
}

// A column whose last token is computed again is not computed.
TEST(TransferDetails, AColumnThatIsComputedAgainIsNotCounted) {
  Scenario s(Connector());
  s.Expect("a").Admit("x", {{3, 4}}, 8).Blocks(KVGUARD_EVENT_LOAD, "a", {3, 9}, 7).Step();
  s.Admit("a", {{3, 4}}, 7).Tokens({1, 2, 3, 4, 5, 6, 7, 8}).Begin();
  EXPECT_EQ(s.Report(), "");
}

// Of the loads whose requests never come, the 4,096 latest are kept.
TEST(TransferDetails, LoadsOfRequestsThatNeverComeAreForgotten) {
  for (const int64_t others : {4095, 4096}) {
    Scenario s(Connector());
    s.Expect("a").Blocks(KVGUARD_EVENT_LOAD, "a", {3}, 1);
    for (int64_t i = 0; i < others; ++i) s.Blocks(KVGUARD_EVENT_LOAD, "nobody", {9}, 2 + i);
    s.Step();
    s.Admit("a", {{5}}, 4).Begin();
    EXPECT_EQ(Count(s, rules::kTransferMisplaced), others == 4095 ? 1u : 0u);
  }
}

// --- pins ---

// One pin is enough.
TEST(TransferDetails, ABlockThatIsPinnedOnceIsNotWritten) {
  for (const uint32_t kind : {KVGUARD_EVENT_LOAD, KVGUARD_EVENT_SEND_PENDING}) {
    Scenario s(Connector());
    s.Expect("a").Blocks(kind, "a", {1}, 7).Step();
    s.Admit("a", {{1}}).Schedule("a", 1).Begin();
    EXPECT_EQ(Count(s, rules::kWriteWhilePinned), 1u) << s.Report();
  }
}

TEST(TransferDetails, ABlockThatSomebodyHoldsIsHandedToNobody) {
  Scenario s(Connector());
  s.Expect("b").Admit("a", {{3}}).Blocks(KVGUARD_EVENT_LOAD, "a", {3}, 7);
  s.Blocks(KVGUARD_EVENT_RESERVE, "b", {3}, 8).Begin();
  EXPECT_EQ(Count(s, rules::kPinnedRebound), 0u) << s.Report();
}

// The blocks of a LOAD take the place of the reserved ones, be they none.
TEST(TransferDetails, ALoadOfNothingGivesUpWhatWasReserved) {
  for (const bool follows : {false, true}) {
    Scenario s(Connector());
    s.Expect("a").Blocks(KVGUARD_EVENT_RESERVE, "a", {3}, 7);
    if (follows) s.Blocks(KVGUARD_EVENT_LOAD, "a", {}, 7);
    s.Admit("b", {{3}}).Schedule("b", 1).Begin();
    EXPECT_EQ(Count(s, rules::kPinnedRebound), follows ? 0u : 1u) << s.Report();
  }
}

// Only what fills blocks takes them over: a send ends no claim of a window.
TEST(TransferDetails, ASendEndsNoClaim) {
  ScenarioOptions options = Connector();
  options.engine_flags |= KVGUARD_ENGINE_ASYNC;
  options.max_drafts = 3;
  options.groups[0].kind = KVGUARD_GROUP_WINDOW;
  options.groups[0].window = 4;
  Scenario s(options);
  s.Admit("a", {{1, 2, 3, 4}}).Schedule("a", 8).Step();
  s.Schedule("a", 4, 3).Step();  // 9 to 12 tokens: column 1 is needed at 9 only
  s.Blocks(KVGUARD_EVENT_SEND_PENDING, "a", {2}, 8).Blocks(KVGUARD_EVENT_ZERO, "", {2}).Begin();
  EXPECT_EQ(Count(s, rules::kZeroLive), 1u) << s.Report();
}

TEST(TransferDetails, IdsThatNoTableCanHoldAreWrittenLoadedAndLostNowhere) {
  Scenario s(Connector());
  s.Admit("x", {{9}}).Blocks(KVGUARD_EVENT_LOAD, "x", {9}, 7);
  s.Blocks(KVGUARD_EVENT_LOAD, "", {3, kNoTable}, 8).Step();
  s.Blocks(KVGUARD_EVENT_LOAD_FAILED, "", {3, kNoTable}, 8);
  s.Blocks(KVGUARD_EVENT_ZERO, "", {kNoTable}).Blocks(KVGUARD_EVENT_FREE, "", {kNoTable});
  s.Admit("a", {{kNoTable, 3, kNoTable}}, 8).Schedule("a", 1).Begin();
  const auto found = Of(s, rules::kFailedLoadUsed);
  ASSERT_EQ(found.size(), 1u) << s.Report();
  EXPECT_EQ(found[0].pos, 4);
  EXPECT_EQ(Count(s, rules::kWriteWhilePinned), 0u) << s.Report();
}

// The blocks that a LOAD_FAILED names are of its transfer's group.
TEST(TransferDetails, AFailedLoadIsOfTheGroupOfItsTransfer) {
  ScenarioOptions options = Connector();
  options.groups = std::vector<ScenarioGroup>(2);
  Scenario s(options);
  s.Blocks(KVGUARD_EVENT_LOAD, "", {3}, 7, 0, 1).Step();
  s.Blocks(KVGUARD_EVENT_LOAD_FAILED, "", {99}, 7, 0, KVGUARD_ALL_GROUPS).Begin();
  const auto found = Of(s, rules::kBlockOutOfRange);
  ASSERT_EQ(found.size(), 1u) << s.Report();
  EXPECT_EQ(found[0].group, 1u);
}

// --- blocks without content ---

// Column 1 begins where the writer's step ends.
TEST(TransferDetails, AStepRewritesWhatItReaches) {
  for (const int64_t tokens : {4, 5}) {
    Scenario s(Connector());
    s.Blocks(KVGUARD_EVENT_LOAD, "", {3}, 7).Step();
    s.Blocks(KVGUARD_EVENT_LOAD_FAILED, "", {3}, 7);
    s.Admit("w", {{2, 3}}, 8).Rollback("w", 8).Schedule("w", tokens);
    s.Admit("b", {{2, 3, 5}}, 8).Schedule("b", 1).Begin();
    EXPECT_EQ(Count(s, rules::kFailedLoadUsed), tokens == 4 ? 1u : 0u) << s.Report();
  }
}

// Column 2 begins behind the start: it is not read.
TEST(TransferDetails, ALostBlockBehindTheStartIsNotUsed) {
  Scenario s(Connector());
  s.Blocks(KVGUARD_EVENT_LOAD, "", {3}, 7).Step();
  s.Blocks(KVGUARD_EVENT_LOAD_FAILED, "", {3}, 7);
  s.Admit("b", {{1, 2, 3}}, 12).Rollback("b", 7).Schedule("b", 1).Begin();
  EXPECT_EQ(Count(s, rules::kFailedLoadUsed), 0u) << s.Report();
}

// --- zeroing, copies, frees ---

// Bound as fresh in this step, given back, and still held by a hit of this step. The first key
// is 1.
TEST(TransferDetails, ACopyMayGoWhereABlockWasFreshInThisStep) {
  for (const bool fresh : {true, false}) {
    Scenario s(Connector());
    s.Admit("x", {{3}});
    if (!fresh) s.Schedule("x", 4).Step();
    s.Admit("b", {{3}}, 4).Truncate("x", 0).Blocks(KVGUARD_EVENT_COPY, "", {9, 3}).Begin();
    EXPECT_EQ(Count(s, rules::kCopyTargetHeld), fresh ? 0u : 1u) << s.Report();
  }
}

// In step 0 a block that nobody ever bound is not fresh either.
TEST(TransferDetails, NoBlockIsFreshBecauseTheStepIsTheFirst) {
  Scenario s(Connector());
  s.SkipTo(0);
  s.Admit("b", {{3}}, 4).Blocks(KVGUARD_EVENT_COPY, "", {9, 3}).Begin();
  EXPECT_EQ(s.step(), 0u);
  EXPECT_EQ(Count(s, rules::kCopyTargetHeld), 1u) << s.Report();
}

TEST(TransferDetails, AStateIsCopiedWithinItsRow) {
  Scenario s(States());
  s.Admit("a", {{1, 2}}).Schedule("a", 4).Step();
  s.Blocks(KVGUARD_EVENT_COPY, "", {1, 2}).Schedule("a", 1).Begin();
  EXPECT_EQ(Count(s, rules::kCopyTargetHeld), 0u) << s.Report();
}

TEST(TransferDetails, StatesThatAreLoadedAreNotJudgedAsTokens) {
  Scenario s(States());
  s.Admit("a", {{1, 2}}).Schedule("a", 4).Step();
  s.Blocks(KVGUARD_EVENT_LOAD, "a", {1}, 7).Step();
  s.Schedule("a", 1).Step();
  EXPECT_EQ(Count(s, rules::kReadWhileLoading), 0u) << s.Report();
}

// The first token over all groups of the pool, whichever group comes first.
TEST(TransferDetails, ZeroedTokensAreNamedFromTheFirstOn) {
  ScenarioOptions options;
  options.groups = std::vector<ScenarioGroup>(2);
  Scenario s(options);
  s.Admit("a", {{1, 2}, {2, 3}}).Schedule("a", 8).Step();
  s.Blocks(KVGUARD_EVENT_ZERO, "", {2}).Schedule("a", 1).Begin();
  const auto found = Of(s, rules::kZeroLive);
  ASSERT_EQ(found.size(), 1u) << s.Report();
  EXPECT_EQ(found[0].pos, 0);
}

// Who never says DONE is not asked for it.
TEST(TransferDetails, WithoutDoneNothingIsLost) {
  for (const bool says : {false, true}) {
    Scenario s;
    s.Admit("x", {{9}}).Schedule("x", 1).Blocks(KVGUARD_EVENT_ZERO, "", {40});
    if (says) s.Blocks(KVGUARD_EVENT_ZERO_DONE, "", {41});
    s.Step();
    EXPECT_EQ(Count(s, rules::kCopyLost), says ? 1u : 0u) << s.Report();
  }
}

TEST(TransferDetails, AFreeIsOfTheBlocksThatItNames) {
  Scenario s;
  s.Admit("a", {{1}}).Schedule("a", 1).Step();
  const int64_t blocks[] = {20, 1};
  kvguard_event event{};
  event.size = sizeof(event);
  event.kind = KVGUARD_EVENT_FREE;
  event.blocks = blocks;
  event.num_blocks = 1;
  s.Event(event).Begin();
  EXPECT_EQ(s.Report(), "");
}

// The request with the smallest key, and its own column.
TEST(TransferDetails, AFreeNamesTheColumnOfItsRequest) {
  Scenario s;
  s.Expect("late").Admit("x", {{9}}).Schedule("x", 1).Step();
  s.Admit("a", {{1, 2, 3}}).Schedule("a", 12).Step();
  s.Admit("late", {{4, 3, 6}}, 8).Schedule("late", 1).Admit("b", {{1, 2, 3, 5}}, 12);
  s.Schedule("b", 1).Step();
  s.Blocks(KVGUARD_EVENT_FREE, "", {3}).Begin();
  const auto found = Of(s, rules::kFreedWhileHeld);
  ASSERT_EQ(found.size(), 1u) << s.Report();
  EXPECT_EQ(found[0].request, s.Key("late"));
  EXPECT_EQ(found[0].pos, 1);
}

}  // namespace
}  // namespace kvguard::tests
