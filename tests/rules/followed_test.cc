// SPDX-License-Identifier: Apache-2.0
// What an event must not do, seen in the step after: a transfer that is reused, a load that came
// before its request, a block that a window has left, an outcome that comes too late.
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

ScenarioOptions Connector() {
  ScenarioOptions options;
  options.engine_flags |= KVGUARD_ENGINE_CONNECTOR | KVGUARD_ENGINE_PARTIAL_HITS;
  return options;
}

ScenarioOptions AsyncWindow() {
  ScenarioOptions options = Connector();
  options.engine_flags |= KVGUARD_ENGINE_ASYNC;
  options.max_drafts = 3;
  options.groups[0].kind = KVGUARD_GROUP_WINDOW;
  options.groups[0].window = 6;
  return options;
}

TEST(Followed, AReusedTransferChangesNothing) {
  Scenario s(Connector());
  s.Expect("a").Blocks(KVGUARD_EVENT_LOAD, "a", {1}, 7).Step();
  s.Blocks(KVGUARD_EVENT_LOAD, "a", {2}, 7).Step();
  EXPECT_EQ(Count(s, rules::kTransferReused), 1u);
  s.Admit("b", {{2}}).Schedule("b", 1).Step();
  EXPECT_EQ(Count(s, rules::kPinnedRebound), 0u) << s.Report();
  s.Admit("c", {{1}}).Schedule("c", 1).Step();
  EXPECT_EQ(Count(s, rules::kPinnedRebound), 1u) << s.Report();
}

// A pin of another pool's block of the same number, of the request itself, or of nobody known, is
// no reason not to bind it.
TEST(Followed, OnlyAnotherRequestsPinForbidsABinding) {
  ScenarioOptions options = Connector();
  for (const bool known : {false, true}) {
    Scenario s(options);
    s.Expect("a").Blocks(KVGUARD_EVENT_LOAD, known ? "a" : "", {1}, 7).Step();
    s.Admit("b", {{1}}).Schedule("b", 1).Begin();
    EXPECT_EQ(Count(s, rules::kPinnedRebound), known ? 1u : 0u) << s.Report();
    s.Admit("a", {{2, 1}}).Begin();
    EXPECT_EQ(Count(s, rules::kPinnedRebound), known ? 1u : 0u) << s.Report();
  }
}

// A block that somebody holds may be loaded again; one that is sent may not be handed out.
TEST(Followed, ATransferForNobodyIsHandedWhatIsNotSent) {
  for (const bool sent : {false, true}) {
    Scenario s(Connector());
    s.Admit("a", {{1}}).Schedule("a", 4).Step();
    s.Blocks(sent ? KVGUARD_EVENT_SEND_PENDING : KVGUARD_EVENT_LOAD, "a", {1}, 7).Finish("a");
    s.Step();
    s.Blocks(KVGUARD_EVENT_LOAD, "", {1}, 8).Begin();
    EXPECT_EQ(Count(s, rules::kPinnedRebound), sent ? 1u : 0u) << s.Report();
  }
}

// Drafts leave a's first column open; a transfer that is handed its block ends that claim, and
// finds the block pinned.
TEST(Followed, ATransferIsHandedWhatAWindowMayHaveLeft) {
  for (const uint32_t kind : {KVGUARD_EVENT_LOAD, KVGUARD_EVENT_SEND_PENDING}) {
    Scenario s(AsyncWindow());
    s.Admit("a", {{1, 2, 3, 4}}).Schedule("a", 6).Step();
    s.Blocks(KVGUARD_EVENT_SEND_PENDING, "a", {1}, 7).Schedule("a", 4, 3).Step();
    s.Expect("b").Blocks(kind, "b", {1}, 8).Begin();
    EXPECT_EQ(Count(s, rules::kPinnedRebound), kind == KVGUARD_EVENT_LOAD ? 1u : 0u) << s.Report();
  }
}

// A load before its request: compared are columns that count as computed, whose block has no home
// that is known.
TEST(Followed, ALateLoadIsComparedWhereTheRequestCountsOnIt) {
  struct Case {
    int64_t computed;
    std::vector<int64_t> row;
    size_t wrong;
  };
  const Case cases[] = {
      {8, {8, 9, 3}, 0},               // as loaded
      {8, {8, 5, 3}, 1},               // another block, never bound before
      {8, {8, 6, 3}, 0},               // another one, that x has filled: a prefix hit
      {7, {8, 5, 3}, 0},               // not computed yet
      {4, {8, 5, 3}, 0}, {4, {8}, 0},  // not bound
      {4, {5, 9}, 1},
  };
  for (const Case& c : cases) {
    Scenario s(Connector());
    s.Admit("x", {{7, 6}}).Schedule("x", 8).Step();
    s.Expect("a").Blocks(KVGUARD_EVENT_LOAD, "a", {8, 9}, 7).Step();
    s.Admit("a", {c.row}, c.computed).Begin();
    EXPECT_EQ(Count(s, rules::kTransferMisplaced), c.wrong) << c.computed << "\n" << s.Report();
  }
}

// In a full group the null block stands for nothing; in a window it stands for what is not kept.
TEST(Followed, TheNullBlockOfALoad) {
  for (const bool window : {false, true}) {
    ScenarioOptions options = Connector();
    if (window) {
      options.groups[0].kind = KVGUARD_GROUP_WINDOW;
      options.groups[0].window = 4;
    }
    for (const std::vector<int64_t>& blocks :
         {std::vector<int64_t>{0, 2}, std::vector<int64_t>{1, 0}, std::vector<int64_t>{9, 2}}) {
      Scenario s(options);
      s.Admit("a", {{1, 2, 3}}, 8).Blocks(KVGUARD_EVENT_LOAD, "a", blocks, 7).Begin();
      const bool right = window && blocks[0] == 0;
      EXPECT_EQ(Count(s, rules::kTransferMisplaced), right ? 0u : 1u) << s.Report();
    }
  }
}

// What fails is what the event names, ids in no pool told and passed over.
TEST(Followed, AFailedLoadNamesItsBlocks) {
  Scenario s(Connector());
  s.Admit("a", {{1, 2, 3}}, 8).Blocks(KVGUARD_EVENT_LOAD, "a", {1, 2}, 7).Step();
  s.Blocks(KVGUARD_EVENT_LOAD_FAILED, "a", {64, 0, 2, -1}, 7).Schedule("a", 1).Step();
  std::vector<int64_t> out;
  for (const kvguard_finding& f : s.Findings()) {
    if (f.code != static_cast<uint32_t>(rules::kBlockOutOfRange)) continue;
    EXPECT_EQ(f.request, s.Key("a"));
    EXPECT_EQ(f.group, 0u);
    out.push_back(f.pos);
  }
  EXPECT_EQ(out, (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(Count(s, rules::kFailedLoadUsed), 1u) << s.Report();
  const auto last_out_of_range = [&] {
    std::vector<kvguard_finding> found = s.Findings();
    std::erase_if(found, [](const kvguard_finding& f) {
      return f.code != static_cast<uint32_t>(rules::kBlockOutOfRange);
    });
    return found.back();
  };
  // Of a free, nobody is named.
  s.Blocks(KVGUARD_EVENT_FREE, "a", {64}).Step();
  EXPECT_EQ(last_out_of_range().request, 0u);
  // Of a reservation, its request is.
  s.Blocks(KVGUARD_EVENT_RESERVE, "a", {64}, 8).Step();
  EXPECT_EQ(last_out_of_range().request, s.Key("a"));
}

// A rollback settles what was open: what is told of it afterwards moves nothing.
TEST(Followed, AnOutcomeAfterARollbackMovesNothing) {
  ScenarioOptions options;
  options.engine_flags |= KVGUARD_ENGINE_ASYNC;
  options.max_drafts = 3;
  Scenario s(options);
  s.Admit("a", {{1, 2, 3}}).Schedule("a", 4).Step();
  s.Schedule("a", 4, 3).Step();  // 5 to 8
  const uint64_t drafted = s.step();
  s.Rollback("a", 2).Begin();  // 3 to 6
  s.End(KVGUARD_END_NO_FORWARD);
  s.Outcome(drafted, "a", 1, 0);
  s.Computed("a") = 4;
  s.Schedule("a", 1, 0, 6).Step();
  EXPECT_EQ(s.Report(), "");
}

// A start that was taken and that the outcome contradicts is told once, with both.
TEST(Followed, ATakenStartIsToldOnce) {
  ScenarioOptions options;
  options.engine_flags |= KVGUARD_ENGINE_ASYNC;
  options.max_drafts = 3;
  Scenario s(options);
  s.Admit("a", {{1, 2, 3, 4, 5}}).Schedule("a", 4).Step();
  s.Schedule("a", 4, 3).Step();
  const uint64_t first = s.step();
  s.Schedule("a", 4, 3, 8).Step();  // taken: 8
  const uint64_t second = s.step();
  s.Outcome(first, "a", 2, 2);
  ASSERT_EQ(Count(s, rules::kFrontierMismatch), 1u) << s.Report();
  EXPECT_EQ(s.Findings().back().pos, 6);
  EXPECT_EQ(s.Findings().back().expected, 6);
  EXPECT_EQ(s.Findings().back().observed, 8);
  s.Outcome(second, "a", 1, 0);
  EXPECT_EQ(Count(s, rules::kFrontierMismatch), 1u) << s.Report();
  s.Outcome(second, "a", 1, 5);
  EXPECT_EQ(s.Findings().back().code, static_cast<uint32_t>(rules::kRejectedTooMany));
  EXPECT_EQ(s.Findings().back().observed, 5);
}

// Hits and fresh blocks of one row in one step: each hit is one, wherever the row began.
TEST(Followed, HitsOfTwoEventsOfOneStepAreGivenBackAsHits) {
  Scenario s;
  s.Admit("w", {{3, 4, 5}}).Schedule("w", 12).Step();
  s.Admit("a", {{3, 4, 5}}, 12).Truncate("a", 1).Admit("b", {{6, 7}}).Schedule("b", 1).Step();
  EXPECT_EQ(s.Report(), "");
  s.Finish("w").Step();
  s.Admit("c", {{4, 5}}).Schedule("c", 1).Step();  // nobody claims them any more
  EXPECT_EQ(s.Report(), "");
  s.Admit("d", {{3}}).Schedule("d", 1).Step();
  EXPECT_EQ(Count(s, rules::kBlockOwned), 1u) << s.Report();
}

// REPLACE begins anew: the old blocks are given back.
TEST(Followed, AReplacedRowHasGivenItsBlocksBack) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 1).Step();
  s.Replace("a", {3, 4}).Schedule("a", 1).Step();
  s.Admit("b", {{1, 2}}).Schedule("b", 1).Step();
  EXPECT_EQ(s.Report(), "");
}

// A padding row may show any entry of the null block, whatever its number, and no other.
TEST(Followed, APaddingRowShowsTheNullBlock) {
  for (const int64_t null_block : {0, 5, int{KVGUARD_NONE}}) {
    ScenarioOptions options;
    options.null_block = null_block;
    for (const int64_t shown : {0, 1, 5, -1, -2}) {
      Scenario s(options);
      s.Admit("a", {{2}}).Schedule("a", 1).Step([&](ScenarioPlan& p) {
        p.Pad(1, 0);
        for (size_t column = 0; column < p.groups[0].columns; ++column)
          p.Table(0, 1, column) = null_block;
        p.Table(0, 1, 3) = shown;
      });
      EXPECT_EQ(Count(s, rules::kPaddedRowNotNull), shown == null_block ? 0u : 1u)
          << null_block << " " << shown << "\n"
          << s.Report();
    }
  }
}

// A row that shows no live column, or none to compare, shows no wrong entry.
TEST(Followed, OnlyColumnsThatTheEngineCountsAreCompared) {
  for (const int64_t live : {-1, 0, 1, 2}) {
    Scenario s;
    s.Admit("a", {{1, 2}}).Schedule("a", 1).Step([&](ScenarioPlan& p) {
      p.groups[0].row_columns = {live};
      p.Table(0, 0, 0) = 9;
      p.Table(0, 0, 1) = 9;
    });
    EXPECT_EQ(Count(s, rules::kTableMismatch), live > 0 ? 1u : 0u) << live;
    EXPECT_EQ(Count(s, rules::kTableColumnsMismatch), live == 2 ? 0u : 1u) << live;
  }
}

}  // namespace
}  // namespace kvguard::tests
