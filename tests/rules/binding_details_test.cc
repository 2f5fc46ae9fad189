// SPDX-License-Identifier: Apache-2.0
// Details of the binding that show only later: in another request's binding, in a plan, in a
// snapshot.
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

size_t Count(const Scenario& s, uint32_t code) {
  const std::vector<uint32_t> codes = s.Codes();
  return static_cast<size_t>(std::count(codes.begin(), codes.end(), code));
}

ScenarioOptions Window(uint32_t window) {
  ScenarioOptions options;
  options.groups[0].kind = KVGUARD_GROUP_WINDOW;
  options.groups[0].window = window;
  return options;
}

ScenarioOptions Connector() {
  ScenarioOptions options;
  options.engine_flags |= KVGUARD_ENGINE_CONNECTOR;
  return options;
}

// --- windows ---

TEST(BindingDetails, ANullBlockOfAWindowIsStaleWhenItIsRead) {
  Scenario s(Window(8));
  s.Admit("a", {{0, 2, 3}}).Schedule("a", 4).Step();
  EXPECT_EQ(Count(s, rules::kReadStale), 0u) << s.Report();
  s.Schedule("a", 1).Step();
  EXPECT_EQ(Count(s, rules::kReadStale), 1u) << s.Report();
}

// What the window had left is needed again, and was given away meanwhile.
TEST(BindingDetails, AfterARollbackAWindowMayReadWhatItHadLeft) {
  Scenario s(Window(8));
  s.Admit("a", {{1, 2, 3, 4}}).Schedule("a", 12).Step();
  s.Admit("b", {{1}}).Schedule("b", 1).Schedule("a", 1).Step();
  EXPECT_EQ(s.Report(), "");
  s.Rollback("a", 6).Schedule("a", 1).Step();
  EXPECT_EQ(Count(s, rules::kReadStale), 1u) << s.Report();
}

// A column that is needed only if drafts are rejected may come back further on.
TEST(BindingDetails, OnlyColumnsThatAreNeededForCertainAreRepeated) {
  ScenarioOptions options = Window(4);
  options.engine_flags |= KVGUARD_ENGINE_ASYNC;
  options.max_drafts = 3;
  Scenario s(options);
  s.Admit("holder", {{5}}).Schedule("holder", 1).Admit("a", {{1, 2, 3, 4}}).Schedule("a", 8).Step();
  s.Schedule("a", 4, 3).Step();  // 9 to 12 tokens: column 1 is needed at 9 only
  s.Replace("a", {1, 5, 5, 6}).Begin();
  EXPECT_EQ(Count(s, rules::kBlockRepeated), 0u) << s.Report();
  EXPECT_EQ(Count(s, rules::kBlockOwned), 1u) << s.Report();
}

// The schedule's count decides between open drafts: claims of columns that are behind it end.
TEST(BindingDetails, TheScheduledCountEndsClaims) {
  for (const int64_t computed : {9, 12}) {
    ScenarioOptions options = Window(4);
    options.max_drafts = 3;
    Scenario s(options);
    s.Admit("a", {{1, 2, 3, 4}}).Schedule("a", 8).Step();
    s.Schedule("a", 4, 3).Step();
    s.Blocks(KVGUARD_EVENT_ZERO, "", {2}).Schedule("a", 1, 0, computed).Begin();
    EXPECT_EQ(Count(s, rules::kZeroLive), computed == 9 ? 1u : 0u) << s.Report();
  }
}

// --- prefix hits of a step ---

TEST(BindingDetails, AllHitsThatAreGivenBackExcuseNoFreshBinding) {
  Scenario s;
  s.Admit("writer", {{3, 4}}).Schedule("writer", 8).Step();
  s.Admit("gone", {{3, 4, 6}}, 8).Truncate("gone", 0).Admit("new", {{3}}).Schedule("new", 1);
  s.Begin();
  EXPECT_EQ(Count(s, rules::kBlockOwned), 1u) << s.Report();
}

TEST(BindingDetails, HitsOfALaterStepAreGivenBackToo) {
  Scenario s;
  s.Admit("writer", {{3, 4}}).Schedule("writer", 8).Step();
  s.Admit("reader", {{3, 4, 6}}, 8).Schedule("reader", 1).Step();
  s.Replace("reader", {3, 4, 6}).Truncate("reader", 0).Admit("new", {{3}}).Schedule("new", 1);
  s.Begin();
  EXPECT_EQ(Count(s, rules::kBlockOwned), 1u) << s.Report();
}

// The hit of an earlier step is given back: that of this step, by somebody else, still stands.
TEST(BindingDetails, AHitOfAnEarlierStepIsNoHitOfThisOne) {
  Scenario s;
  s.Admit("x", {{9}}).Schedule("x", 1).Admit("a", {{3}}, 12).Step();
  s.Append("a", {4}).Admit("b", {{3}}, 4).Truncate("a", 0).Admit("c", {{3}}).Begin();
  EXPECT_EQ(Count(s, rules::kBlockOwned), 0u) << s.Report();
}

// --- transfers ---

TEST(BindingDetails, ABlockThatIsFilledAndSentIsPinned) {
  Scenario s(Connector());
  s.Blocks(KVGUARD_EVENT_LOAD, "", {5}, 7).Blocks(KVGUARD_EVENT_SEND_PENDING, "", {5}, 8);
  s.Admit("a", {{5}}).Schedule("a", 1).Begin();
  EXPECT_EQ(Count(s, rules::kPinnedRebound), 1u) << s.Report();
}

// A block that has lost its content lies free for a while before somebody comes upon it.
TEST(BindingDetails, ALostBlockIsFoundHoweverLateItIsHit) {
  Scenario s(Connector());
  s.Admit("x", {{9}}).Schedule("x", 1).Blocks(KVGUARD_EVENT_LOAD, "", {3}, 7).Step();
  s.Schedule("x", 1).Blocks(KVGUARD_EVENT_LOAD_FAILED, "", {3}, 7).Step();
  s.Schedule("x", 1).Step();
  s.Admit("a", {{3, 4}}, 4).Schedule("a", 1).Begin();
  EXPECT_EQ(Count(s, rules::kFailedLoadUsed), 1u) << s.Report();
}

TEST(BindingDetails, AFreshBindingEndsALoss) {
  Scenario s(Connector());
  s.Blocks(KVGUARD_EVENT_LOAD, "", {3}, 7).Step();
  s.Blocks(KVGUARD_EVENT_LOAD_FAILED, "", {3}, 7).Admit("a", {{2, 3}}, 6).Schedule("a", 1).Begin();
  EXPECT_EQ(Count(s, rules::kFailedLoadUsed), 0u) << s.Report();
}

// A request that ended before it was admitted takes its loads with it.
TEST(BindingDetails, TheLoadsOfARequestThatEndedAreComparedWithNothing) {
  for (const bool ended : {false, true}) {
    Scenario s(Connector());
    s.Expect("a").Blocks(KVGUARD_EVENT_LOAD, "a", {3}, 7).Step();
    if (ended) s.Finish("a");
    s.Admit("x", {{9}}).Schedule("x", 1).Step();
    EXPECT_EQ(s.verdict().ignored, ended ? 1u : 0u);
    s.Admit("a", {{5}}, 4).Begin();
    EXPECT_EQ(Count(s, rules::kTransferMisplaced), ended ? 0u : 1u) << s.Report();
  }
}

// --- counts ---

// What was computed has not changed by being miscounted: column 0 is not written again.
TEST(BindingDetails, ACountThatIsAheadMovesNoStart) {
  Scenario s(Connector());
  s.Admit("a", {{1, 2}}).Schedule("a", 4).Step();
  s.Blocks(KVGUARD_EVENT_SEND_PENDING, "a", {1}, 8).Schedule("a", 1, 0, 6).Begin();
  EXPECT_EQ(Count(s, rules::kCountAhead), 1u) << s.Report();
  EXPECT_EQ(Count(s, rules::kWriteWhilePinned), 0u) << s.Report();
}

TEST(BindingDetails, ARowOfOneColumnIsTooWideWithTwo) {
  ScenarioOptions options;
  options.columns = 1;
  Scenario s(options);
  s.Admit("a", {{1}}).Schedule("a", 1).Admit("b", {{2, 3}}).Schedule("b", 1).Begin();
  EXPECT_EQ(Count(s, rules::kRowTooWide), 1u) << s.Report();
}

// Drafts beyond the model's length need no block, be it one token long.
TEST(BindingDetails, AModelOfOneTokenNeedsOne) {
  ScenarioOptions options;
  options.engine_flags |= KVGUARD_ENGINE_ASYNC;
  options.max_drafts = 1;
  options.max_model_len = 1;
  options.groups[0].block_size = options.groups[0].kernel_block_size = 1;
  Scenario s(options);
  s.Admit("a", {{1}}).Schedule("a", 1, 1).Step();
  s.Schedule("a", 1).Begin();
  EXPECT_EQ(Count(s, rules::kCapacityShort), 0u) << s.Report();
}

// --- records ---

TEST(BindingDetails, ALiveKeyIsAdmittedNowhereInARecord) {
  for (const bool first : {true, false}) {
    Scenario s;
    s.Admit("a", {{1}}).Schedule("a", 1).Step();
    if (!first) s.Admit("b", {{2}});
    kvguard_event again{};
    again.size = sizeof(again);
    again.kind = KVGUARD_EVENT_ADMIT;
    again.request = s.Key("a");
    again.group = KVGUARD_ALL_GROUPS;
    s.Event(again);
    EXPECT_EQ(s.Begin(), KVGUARD_ERROR_ARGUMENT);
  }
}

TEST(BindingDetails, AKeyThatIsAdmittedTwiceIsOneRequest) {
  Scenario s;
  s.Admit("a", {{1}});
  kvguard_event again{};
  again.size = sizeof(again);
  again.kind = KVGUARD_EVENT_ADMIT;
  again.request = s.Key("a");
  again.group = KVGUARD_ALL_GROUPS;
  s.Event(again).Begin();
  s.End();
  const std::vector<uint8_t> bytes = s.Snapshot();
  ASSERT_FALSE(bytes.empty());
  Scenario other;
  EXPECT_EQ(other.Restore(bytes), KVGUARD_OK) << other.error();
}

TEST(BindingDetails, WhatAnOutcomeMayTell) {
  for (const uint32_t kind : {KVGUARD_EVENT_RESERVE, KVGUARD_EVENT_FREE}) {
    Scenario s(Connector());
    s.Admit("a", {{1}}).Schedule("a", 1).Step();
    const int64_t block = 5;
    kvguard_event events[2]{};
    for (kvguard_event& event : events) {
      event.size = sizeof(event);
      event.kind = KVGUARD_EVENT_RESERVE;
      event.blocks = &block;
      event.num_blocks = 1;
    }
    events[0].value = 7;
    events[1].kind = kind;
    events[1].value = 8;
    kvguard_outcome outcome{};
    outcome.size = sizeof(outcome);
    outcome.events = events;
    outcome.num_events = 2;
    EXPECT_EQ(s.Feed(KVGUARD_RECORD_OUTCOME, s.step(), &outcome),
              kind == KVGUARD_EVENT_RESERVE ? KVGUARD_OK : KVGUARD_ERROR_ARGUMENT);
  }
}

// An event is judged as what it is, and as nothing else.
TEST(BindingDetails, AFreeIsNoDomainAndAShareNoCopy) {
  Scenario s;
  s.Admit("a", {{1}}).Schedule("a", 1).Blocks(KVGUARD_EVENT_FREE, "", {20}).Step();
  EXPECT_EQ(s.verdict().ignored, 0u);
  s.Schedule("a", 1).Blocks(KVGUARD_EVENT_SHARE, "a", {1}).Begin();
  size_t count = 0;
  ASSERT_EQ(kvguard_coverage(s.guard(), nullptr, 0, &count, nullptr), KVGUARD_OK);
  std::vector<kvguard_coverage_row> rows(count);
  for (kvguard_coverage_row& row : rows) row.size = sizeof(row);
  ASSERT_EQ(kvguard_coverage(s.guard(), rows.data(), count, &count, nullptr), KVGUARD_OK);
  for (const kvguard_coverage_row& row : rows) {
    if (row.family == KVGUARD_FAMILY_COPY) {
      EXPECT_EQ(row.judged, 0u);
    }
  }
}

// An APPEND of nothing is none: the one before it is the one that did not arrive.
TEST(BindingDetails, AnAppendOfNothingIsNotTheLastOne) {
  Scenario s;
  s.Admit("a", {{1}}).Schedule("a", 1).Step();
  s.Append("a", {2}).Schedule("a", 1).Step();
  s.Append("a", {}).Schedule("a", 1);
  s.Step([](ScenarioPlan& p) { p.groups[0].row_columns = {1}; });
  ASSERT_EQ(Count(s, rules::kTableColumnsMismatch), 1u) << s.Report();
  for (const kvguard_finding& f : s.Findings()) {
    if (f.code != rules::kTableColumnsMismatch) continue;
    ASSERT_GT(f.num_causes, 0u);
    EXPECT_EQ(f.causes[0].kind, static_cast<uint32_t>(KVGUARD_CAUSE_LOST_APPEND));
  }
}

}  // namespace
}  // namespace kvguard::tests
