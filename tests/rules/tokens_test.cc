// SPDX-License-Identifier: Apache-2.0
// What sampled tokens say of what a block holds, and what a transfer's end leaves of it.
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

size_t Count(const Scenario& s, uint32_t code) {
  const std::vector<uint32_t> codes = s.Codes();
  return static_cast<size_t>(std::count(codes.begin(), codes.end(), code));
}

void StepWithOutcome(Scenario& s, bool inside, uint32_t sampled, const std::vector<int64_t>& told) {
  s.Begin();
  s.Plan(s.RightPlan());
  if (inside) s.Outcome(s.step(), "a", sampled, 0, told);
  s.End();
  if (!inside) s.Outcome(s.step(), "a", sampled, 0, told);
}

// a is admitted with five tokens and samples the sixth to the eighth; b hits both blocks.
void Sampled(Scenario& s, bool inside, const std::vector<int64_t>& last, uint32_t sampled_last) {
  s.Admit("a", {{1, 2, 3}}).Tokens({1, 2, 3, 4, 5}).Schedule("a", 5);
  StepWithOutcome(s, inside, 1, {6});
  s.Schedule("a", 1);
  StepWithOutcome(s, inside, 1, {7});
  s.Schedule("a", 1);
  StepWithOutcome(s, inside, sampled_last, last);
  s.Schedule("a", 1).Step();
  s.Admit("b", {{1, 2, 4}}, 8).Tokens({1, 2, 3, 4, 5, 6, 7, 8, 9}).Schedule("b", 1).Step();
}

TEST(Tokens, SampledTokensNameABlock) {
  for (const bool inside : {false, true}) {
    Scenario right;
    Sampled(right, inside, {8}, 1);
    EXPECT_EQ(right.Report(), "");
    EXPECT_EQ(right.verdict().assumptions, 0u);
    Scenario wrong;
    Sampled(wrong, inside, {0}, 1);
    EXPECT_EQ(Count(wrong, rules::kContentMismatch), 1u) << wrong.Report();
  }
}

// A row that sampled more than it tells: nothing is known from there on.
TEST(Tokens, TokensThatAreNotAllToldEndWhatIsKnown) {
  for (const bool inside : {false, true}) {
    Scenario s;
    Sampled(s, inside, {0}, 2);
    EXPECT_EQ(s.Report(), "");
  }
}

// Nothing sampled is nothing said: what is known goes on.
TEST(Tokens, AStepThatSampledNothingEndsNothing) {
  Scenario s;
  s.Admit("a", {{1, 2, 3}}).Tokens({1, 2, 3, 4, 5, 6, 7, 8, 9}).Schedule("a", 5).Begin();
  s.Plan(s.RightPlan());
  s.End();
  s.Outcome(s.step(), "a", 0, 0);
  s.Schedule("a", 4).Step();
  s.Outcome(s.step(), "a", 1, 0, {10});
  s.Schedule("a", 1).Step();
  s.Outcome(s.step(), "a", 1, 0, {11});
  s.Schedule("a", 1).Step();
  s.Outcome(s.step(), "a", 1, 0, {12});
  s.Schedule("a", 1).Step();
  s.Admit("b", {{1, 2, 3, 4}}, 12).Tokens({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0, 13});
  s.Schedule("b", 1).Step();
  EXPECT_EQ(Count(s, rules::kContentMismatch), 1u) << s.Report();
}

// With drafts the sampled tokens stand where the first draft stood.
TEST(Tokens, SampledTokensOfDraftsStandWhereTheDraftsStood) {
  for (const bool inside : {false, true}) {
    for (const int64_t last : {8, 0}) {
      ScenarioOptions options;
      options.engine_flags |= KVGUARD_ENGINE_ASYNC;
      options.max_drafts = 3;
      Scenario s(options);
      s.Admit("a", {{1, 2, 3}}).Tokens({1, 2, 3, 4, 5}).Schedule("a", 5);
      StepWithOutcome(s, inside, 1, {6});
      s.Schedule("a", 3, 2);  // 5, and drafts at 6 and 7: all are accepted
      StepWithOutcome(s, inside, 3, {7, last, 9});
      s.Schedule("a", 1).Step();
      s.Admit("b", {{1, 2, 4}}, 8).Tokens({1, 2, 3, 4, 5, 6, 7, 8, 9}).Schedule("b", 1).Step();
      EXPECT_EQ(Count(s, rules::kContentMismatch), last == 8 ? 0u : 1u) << s.Report();
    }
  }
}

// One finding for a request, group and code; another request has its own.
TEST(Tokens, EachReaderIsToldOnce) {
  Scenario s;
  s.Admit("a", {{1, 2, 3}}).Tokens({1, 2, 3, 4, 5, 6, 7, 8, 9}).Schedule("a", 9).Step();
  s.Admit("b", {{1, 2, 4}}, 8).Tokens({0, 2, 3, 4, 5, 6, 7, 8, 9}).Schedule("b", 1);
  s.Admit("c", {{1, 2, 5}}, 8).Tokens({0, 2, 3, 4, 5, 6, 7, 8, 9}).Schedule("c", 1).Begin();
  EXPECT_EQ(Count(s, rules::kContentMismatch), 2u) << s.Report();
}

// Hits that are gone by the end of their record, or whose block is in no pool, are judged no more.
TEST(Tokens, HitsThatWereGivenBackAreNotJudged) {
  Scenario s;
  s.Admit("a", {{1, 2, 3}}).Tokens({1, 2, 3, 4, 5, 6, 7, 8, 9}).Schedule("a", 9).Step();
  s.Admit("b", {{1, 2, 4}}, 8)
      .Tokens({0, 2, 3, 4, 5, 6, 7, 8, 9})
      .Truncate("b", 0)
      .Rollback("b", 8);
  s.Append("b", {6, 7, 8}).Schedule("b", 1);
  s.Admit("c", {{2, 1}}, 8).Finish("c").Step();
  EXPECT_EQ(s.Report(), "");
}

// What belongs elsewhere is told of each column and each request.
TEST(Tokens, EachColumnThatStrayedIsTold) {
  Scenario s;
  s.Admit("a", {{1, 2, 3}}).Schedule("a", 12).Step();
  s.Admit("b", {{2, 1, 4}}, 8).Schedule("b", 1).Admit("c", {{2, 5}}, 4).Schedule("c", 1).Begin();
  EXPECT_EQ(Count(s, rules::kContentMisplaced), 3u) << s.Report();
}

// --- transfers ---

ScenarioOptions Connector() {
  ScenarioOptions options;
  options.engine_flags |= KVGUARD_ENGINE_CONNECTOR | KVGUARD_ENGINE_PARTIAL_HITS;
  return options;
}

// A load that is done gives its blocks a home and a content: a hit elsewhere is misplaced, one with
// other tokens is a mismatch.
TEST(Tokens, WhatWasLoadedHasAHomeAndAContent) {
  for (const bool misplaced : {false, true}) {
    Scenario s(Connector());
    s.Admit("a", {{1, 2, 3}}, 8).Tokens({1, 2, 3, 4, 5, 6, 7, 8, 9});
    s.Blocks(KVGUARD_EVENT_LOAD, "a", {1, 2}, 7).Step();
    s.Blocks(KVGUARD_EVENT_LOAD_DONE, "a", {}, 7).Schedule("a", 1).Step();
    EXPECT_EQ(s.Report(), "");
    const std::vector<int64_t> row =
        misplaced ? std::vector<int64_t>{2, 1, 4} : std::vector<int64_t>{1, 2, 4};
    s.Admit("b", {row}, 8).Tokens({1, 2, 3, 4, 5, 6, 7, 0, 9}).Schedule("b", 1).Step();
    EXPECT_EQ(Count(s, rules::kContentMisplaced), misplaced ? 2u : 0u) << s.Report();
    EXPECT_EQ(Count(s, rules::kContentMismatch), misplaced ? 0u : 1u) << s.Report();
  }
}

// A load of blocks that had failed before makes them good again, whatever else the load holds.
TEST(Tokens, ALoadThatIsDoneMendsWhatFailed) {
  for (const bool again : {false, true}) {
    Scenario s(Connector());
    s.Admit("a", {{1, 2, 3}}, 8).Blocks(KVGUARD_EVENT_LOAD, "a", {1, 2}, 7);
    s.Blocks(KVGUARD_EVENT_LOAD_FAILED, "a", {1, 2}, 7).Step();
    if (again) {
      s.Blocks(KVGUARD_EVENT_LOAD, "a", {1, 2}, 8).Blocks(KVGUARD_EVENT_LOAD_DONE, "a", {}, 8);
    }
    s.Schedule("a", 1).Step();
    EXPECT_EQ(Count(s, rules::kFailedLoadUsed), again ? 0u : 1u) << s.Report();
  }
}

// Bound as fresh, a block has no lost content any more.
TEST(Tokens, AFreshBlockHasLostNothing) {
  Scenario s(Connector());
  s.Admit("a", {{1, 2, 3}}, 8).Blocks(KVGUARD_EVENT_LOAD, "a", {1, 2}, 7);
  s.Blocks(KVGUARD_EVENT_LOAD_FAILED, "a", {1, 2}, 7).Finish("a").Step();
  s.Admit("b", {{2, 4}}).Schedule("b", 2).Step();
  s.Schedule("b", 1).Step();
  s.Admit("c", {{2, 5}}, 4).Schedule("c", 1).Step();
  EXPECT_EQ(Count(s, rules::kFailedLoadUsed), 0u) << s.Report();
}

// The blocks of a load that came before its request are compared once, when the request comes.
TEST(Tokens, ALoadBeforeItsRequestIsComparedOnce) {
  Scenario s(Connector());
  s.Expect("a").Blocks(KVGUARD_EVENT_LOAD, "a", {8, 9}, 7).Step();
  s.Admit("a", {{1, 2, 3}}, 8).Schedule("a", 1).Step();
  EXPECT_EQ(Count(s, rules::kTransferMisplaced), 1u) << s.Report();
  s.Schedule("a", 1).Step();
  s.Finish("a").Step();
  EXPECT_EQ(Count(s, rules::kTransferMisplaced), 1u) << s.Report();
}

// A load that failed, was drained, or whose request ended is compared with nothing.
TEST(Tokens, ALoadThatCameToNothingIsComparedWithNothing) {
  for (const uint32_t end : {uint32_t{KVGUARD_EVENT_LOAD_FAILED}, uint32_t{KVGUARD_EVENT_DRAIN}}) {
    Scenario s(Connector());
    s.Expect("a").Blocks(KVGUARD_EVENT_LOAD, "a", {8, 9}, 7);
    s.Expect("c").Blocks(KVGUARD_EVENT_LOAD, "c", {10}, 8).Step();
    s.Blocks(end, "a", {}, 7).Step();
    s.Admit("a", {{1, 2, 3}}, 8).Schedule("a", 1).Step();
    EXPECT_EQ(s.Report(), "");
    s.Admit("c", {{4, 5}}, 4).Schedule("c", 1).Step();  // another's is still waiting
    EXPECT_EQ(Count(s, rules::kTransferMisplaced), 1u) << s.Report();
  }
}

// A reservation gives way to the load of its id: the load's blocks alone stay pinned.
TEST(Tokens, AReservationGivesWayToItsLoad) {
  Scenario s(Connector());
  s.Admit("a", {{1, 2, 3}}).Blocks(KVGUARD_EVENT_RESERVE, "a", {1, 9}, 7).Step();
  s.Blocks(KVGUARD_EVENT_LOAD, "a", {1, 2}, 7).Step();
  s.Admit("b", {{9}}).Schedule("b", 1).Step();
  EXPECT_EQ(s.Report(), "");
  s.Blocks(KVGUARD_EVENT_LOAD_DONE, "a", {}, 7).Finish("a").Step();
  s.Admit("c", {{1, 2}}).Schedule("c", 5).Step();
  EXPECT_EQ(s.Report(), "");
}

TEST(Tokens, ATransferIsCancelledOnce) {
  Scenario s(Connector());
  s.Expect("a").Blocks(KVGUARD_EVENT_LOAD, "a", {1}, 7).Step();
  s.Blocks(KVGUARD_EVENT_CANCEL, "a", {}, 7).Step();
  EXPECT_EQ(Count(s, rules::kTransferUnknown), 0u) << s.Report();
  s.Blocks(KVGUARD_EVENT_CANCEL, "a", {}, 7).Step();
  EXPECT_EQ(Count(s, rules::kTransferUnknown), 1u) << s.Report();
  s.Blocks(KVGUARD_EVENT_DRAIN, "a", {}, 7).Step();
  EXPECT_EQ(Count(s, rules::kTransferUnknown), 1u) << s.Report();
}

// A write is judged from the first token's column to the last one's, no further.
TEST(Tokens, OnlyColumnsThatAreWrittenArePinnedAgainst) {
  for (const int64_t sent : {1, 2, 3}) {
    Scenario s(Connector());
    s.Admit("a", {{1, 2, 3}}).Schedule("a", 4).Step();
    s.Blocks(KVGUARD_EVENT_SEND_PENDING, "a", {sent}, 7).Schedule("a", 4).Begin();
    EXPECT_EQ(Count(s, rules::kWriteWhilePinned), sent == 2 ? 1u : 0u) << sent;
  }
}

// What failed is used by whoever counts on a token of it: one token behind its first is enough.
TEST(Tokens, AFailedBlockIsUsedFromItsFirstToken) {
  for (const int64_t computed : {4, 5}) {
    Scenario s(Connector());
    s.Admit("a", {{1, 2, 3}}, 8).Blocks(KVGUARD_EVENT_LOAD, "a", {1, 2}, 7);
    s.Blocks(KVGUARD_EVENT_LOAD_FAILED, "a", {2}, 7);
    s.Computed("a") = computed;
    s.Schedule("a", 1, 0, computed).Begin();
    EXPECT_EQ(Count(s, rules::kFailedLoadUsed), computed == 4 ? 0u : 1u) << s.Report();
  }
}

}  // namespace
}  // namespace kvguard::tests
