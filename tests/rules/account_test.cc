// SPDX-License-Identifier: Apache-2.0
// The account beside the findings: what a count, an outcome or an event that came to nothing leaves
// behind, and what is counted as judged.
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "audit/scenario.h"
#include "rules/catalog.h"

namespace kvguard::tests {
namespace {

using audit::Scenario;
using audit::ScenarioOptions;
using audit::ScenarioPlan;

ScenarioOptions Async() {
  ScenarioOptions options;
  options.engine_flags |= KVGUARD_ENGINE_ASYNC;
  options.max_drafts = 3;
  return options;
}

size_t Count(const Scenario& s, uint32_t code) {
  const std::vector<uint32_t> codes = s.Codes();
  return static_cast<size_t>(std::count(codes.begin(), codes.end(), code));
}

// --- rollback ---

// After a rollback the start is one number again, and what was open is settled.
TEST(Account, ARollbackTakesBothEndsBack) {
  for (const int64_t start : {6, 7}) {
    Scenario s(Async());
    s.Admit("a", {{1, 2, 3}}).Schedule("a", 4).Step();
    s.Schedule("a", 4, 3).Step();  // 5 to 8 tokens
    s.Rollback("a", 2);            // 3 to 6
    s.Computed("a") = start;
    s.Schedule("a", 1, 0, 6).Step();
    EXPECT_EQ(Count(s, rules::kFrontierMismatch), start == 6 ? 0u : 1u) << s.Report();
  }
}

TEST(Account, ARollbackOfMoreThanThereIsStopsAtZero) {
  Scenario s(Async());
  s.Admit("a", {{1}}).Schedule("a", 2).Step();
  s.Rollback("a", 5);
  s.Computed("a") = 0;
  s.Schedule("a", 1, 0, 0).Step();
  EXPECT_EQ(s.Report(), "");
  s.Rollback("a", 5);
  s.Computed("a") = 1;
  s.Schedule("a", 1, 0, 1).Step();
  EXPECT_EQ(Count(s, rules::kCountAhead), 1u) << s.Report();
}

// What the scheduler may count goes back too.
TEST(Account, AfterARollbackTheOldCountIsAhead) {
  Scenario s(Async());
  s.Admit("a", {{1, 2}}).Schedule("a", 6).Step();
  s.Rollback("a", 2).Schedule("a", 1, 0, 6).Begin();
  EXPECT_EQ(Count(s, rules::kCountAhead), 1u) << s.Report();
}

// --- asynchronous counts ---

// The scheduler has heard of fewer tokens than it said before: it may not go up again by itself.
TEST(Account, TheSchedulersCountIsTheLatestOne) {
  Scenario s(Async());
  s.Admit("a", {{1, 2, 3, 4}}).Schedule("a", 4).Step();
  s.Schedule("a", 4, 3).Step();  // 5 to 8
  s.Computed("a") = 6;
  s.Schedule("a", 1, 0, 6).Step();  // it counts 6, then 7
  s.Computed("a") = 7;
  s.Schedule("a", 1, 0, 8).Begin();
  EXPECT_EQ(Count(s, rules::kCountAhead), 1u) << s.Report();
}

// A count that goes back behind all that is known settles what was open.
TEST(Account, ACountThatGoesBackSettlesWhatWasOpen) {
  ScenarioOptions options = Async();
  options.engine_flags |= KVGUARD_ENGINE_CONNECTOR;
  Scenario s(options);
  s.Admit("a", {{1, 2, 3, 4}}).Schedule("a", 4).Step();
  s.Schedule("a", 4, 3).Step();
  const uint64_t drafted = s.step();
  s.Computed("a") = 2;
  s.Schedule("a", 1, 0, 2).Step();
  EXPECT_EQ(s.Report(), "");
  // Were it open still, the frontier would move by the drafts that were accepted.
  s.Outcome(drafted, "a", 1, 1);
  s.Computed("a") = 3;
  s.Schedule("a", 1).Step();
  EXPECT_EQ(s.Report(), "");
}

// A synchronous scheduler's count is the truth: an outcome that comes later moves nothing.
TEST(Account, ASynchronousCountSettlesWhatWasOpen) {
  ScenarioOptions options;
  options.max_drafts = 3;
  Scenario s(options);
  s.Admit("a", {{1, 2, 3, 4}}).Schedule("a", 4).Step();
  s.Schedule("a", 4, 3).Step();
  const uint64_t drafted = s.step();
  s.Computed("a") = 6;
  s.Schedule("a", 1).Step();
  s.Outcome(drafted, "a", 1, 1);
  s.Computed("a") = 7;
  s.Schedule("a", 1).Step();
  EXPECT_EQ(s.Report(), "");
}

// The bounds of the start go with it: a plan that starts at the miscounted place is wrong.
TEST(Account, ACountThatIsAheadLeavesTheStartWhereItWas) {
  Scenario s(Async());
  s.Admit("a", {{1, 2, 3}}).Schedule("a", 4).Step();
  s.Schedule("a", 1, 0, 6).Step();
  EXPECT_EQ(Count(s, rules::kCountAhead), 1u);
  EXPECT_EQ(Count(s, rules::kFrontierMismatch), 0u) << s.Report();
  EXPECT_EQ(s.verdict().assumptions, 0u);
  s.Schedule("a", 1).Step();
  EXPECT_EQ(Count(s, rules::kFrontierMismatch), 0u) << s.Report();
}

// What may still turn out rejected needs no block beyond the model's length, and a length that is
// not known bounds nothing.
TEST(Account, CapacityEndsWithTheModelsLength) {
  for (const uint64_t longest : {uint64_t{0}, uint64_t{8}, uint64_t{9}}) {
    ScenarioOptions options = Async();
    options.max_model_len = longest;
    Scenario s(options);
    s.Admit("a", {{1, 2}}).Schedule("a", 4).Step();
    s.Schedule("a", 4, 3).Step();  // 5 to 8
    s.Schedule("a", 1, 0, 8).Begin();
    EXPECT_EQ(Count(s, rules::kCapacityShort), longest == 8 ? 0u : 1u) << longest;
  }
}

// --- what came to nothing is counted ---

TEST(Account, EventsOfRequestsThatAreGoneAreCountedAsIgnored) {
  Scenario s;
  s.Admit("a", {{1}}).Schedule("a", 1).Step();
  EXPECT_EQ(s.verdict().ignored, 0u);
  kvguard_event event{};
  event.size = sizeof(event);
  event.request = 77;
  event.group = KVGUARD_ALL_GROUPS;
  for (const uint32_t kind : {KVGUARD_EVENT_FINISH, KVGUARD_EVENT_PREEMPT, KVGUARD_EVENT_DOMAIN}) {
    event.kind = kind;
    event.other = KVGUARD_DOMAIN_SALT;
    event.count = 1;
    s.Event(event);
  }
  s.Schedule("a", 1).Step();
  EXPECT_EQ(s.verdict().ignored, 3u);
  s.Finish("a").Step();
  EXPECT_EQ(s.verdict().ignored, 3u);
}

TEST(Account, AnOutcomeOfARequestThatIsGoneIsCountedAsIgnored) {
  Scenario s;
  s.Admit("a", {{1}}).Schedule("a", 1).Step();
  const uint64_t step = s.step();
  s.Finish("a").Step();
  s.Outcome(step, "a", 1, 0);
  EXPECT_EQ(s.verdict().ignored, 1u);
  EXPECT_EQ(s.Report(), "");
}

TEST(Account, TransfersThatAResetForgotAreCountedAsIgnored) {
  ScenarioOptions options;
  options.engine_flags |= KVGUARD_ENGINE_CONNECTOR;
  Scenario s(options);
  s.Admit("a", {{1, 2}}).Schedule("a", 4).Step();
  s.Blocks(KVGUARD_EVENT_SEND_PENDING, "a", {1}, 7).Schedule("a", 1).Step();
  s.Reset();
  s.Admit("b", {{2}}).Blocks(KVGUARD_EVENT_SEND_DONE, "", {}, 7).Schedule("b", 1).Step();
  EXPECT_EQ(s.verdict().ignored, 1u);
  EXPECT_EQ(s.Report(), "");
}

// --- coverage ---

using Line = std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>;  // group, pass, stage, family

std::map<Line, uint64_t> Covered(const Scenario& s) {
  uint64_t count = 0;
  kvguard_coverage(s.guard(), nullptr, 0, &count, nullptr);
  std::vector<kvguard_coverage_row> rows(count);
  for (kvguard_coverage_row& row : rows) row.size = sizeof(row);
  EXPECT_EQ(kvguard_coverage(s.guard(), rows.data(), rows.size(), &count, nullptr), KVGUARD_OK);
  std::map<Line, uint64_t> lines;
  for (const kvguard_coverage_row& row : rows)
    lines[{row.group, row.pass, row.stage, row.family}] = row.judged;
  return lines;
}

// Every figure of one step, by hand: 2 requests with 3 + 2 blocks, 5 + 2 tokens, 3 tokens and 1 row
// of padding.
TEST(Account, WhatAStepJudgesIsCounted) {
  ScenarioOptions options;
  options.engine_flags |= KVGUARD_ENGINE_CONNECTOR;
  Scenario s(options);
  s.Admit("a", {{1, 2, 3}}).Schedule("a", 5).Admit("b", {{4, 5}}).Schedule("b", 2);
  s.Blocks(KVGUARD_EVENT_ZERO, "", {6, 7, 8}).Blocks(KVGUARD_EVENT_FREE, "", {9, 10});
  s.Blocks(KVGUARD_EVENT_SEND_PENDING, "a", {1}, 7);
  s.Step([](ScenarioPlan& p) {
    p.Pad(1, 3);
    p.num_computed = {0, 0};
    p.groups[0].seq_lens = {5, 2, 0};
  });
  EXPECT_EQ(Count(s, rules::kWriteWhilePinned), 1u) << s.Report();
  const uint32_t all = KVGUARD_ALL_GROUPS;
  const uint32_t target = KVGUARD_PASS_TARGET;
  const uint32_t planned = KVGUARD_STAGE_PLANNED;
  const std::map<Line, uint64_t> expected = {
      {{0, 0, 0, KVGUARD_FAMILY_BINDING}, 5},
      {{0, 0, 0, KVGUARD_FAMILY_OWNERSHIP}, 5},
      {{0, 0, 0, KVGUARD_FAMILY_COPY}, 3},
      {{0, 0, 0, KVGUARD_FAMILY_LIFETIME}, 2},
      {{0, target, planned, KVGUARD_FAMILY_TABLE}, 5},
      {{0, target, planned, KVGUARD_FAMILY_SLOT}, 7 + 3},
      {{all, 0, 0, KVGUARD_FAMILY_BINDING}, 2},
      {{all, 0, 0, KVGUARD_FAMILY_OWNERSHIP}, 2},
      {{all, 0, 0, KVGUARD_FAMILY_FRONTIER}, 2},
      {{all, 0, 0, KVGUARD_FAMILY_TRANSFER}, 1},
      {{all, target, planned, KVGUARD_FAMILY_STEP}, 2},
      {{all, target, planned, KVGUARD_FAMILY_FRONTIER}, 4},
      {{all, target, planned, KVGUARD_FAMILY_LENGTH}, 4},
  };
  EXPECT_EQ(Covered(s), expected);
  EXPECT_EQ(s.verdict().slots, 10u);
  EXPECT_EQ(s.verdict().entries, 5u);
  EXPECT_EQ(s.verdict().rows, 2u);
}

TEST(Account, WindowsHitsAndDummiesAreCounted) {
  ScenarioOptions options;
  options.groups[0].kind = KVGUARD_GROUP_WINDOW;
  options.groups[0].window = 8;
  options.groups[0].sink = 4;
  Scenario s(options);
  s.Admit("a", {{1, 2, 3, 4, 5}}).Schedule("a", 16).Step();
  s.Admit("b", {{1, 2, 6}}, 8).Schedule("b", 1).Schedule("a", 1).Begin();
  s.Plan(s.RightPlan());
  ScenarioPlan dummy;
  dummy.pass = KVGUARD_PASS_DUMMY;
  dummy.query_start = {0};
  dummy.groups.resize(1);
  dummy.groups[0].columns = options.columns;
  dummy.groups[0].table_present = false;
  dummy.padded_tokens = 6;
  dummy.groups[0].slots.assign(6, -1);
  EXPECT_EQ(s.Plan(dummy), KVGUARD_OK) << s.error();
  s.End();
  EXPECT_EQ(s.Report(), "");
  const std::map<Line, uint64_t> covered = Covered(s);
  const auto judged = [&](uint32_t group, uint32_t pass, uint32_t stage, uint32_t family) {
    const auto it = covered.find({group, pass, stage, family});
    return it == covered.end() ? 0 : it->second;
  };
  const uint32_t all = KVGUARD_ALL_GROUPS;
  EXPECT_EQ(judged(all, 0, 0, KVGUARD_FAMILY_CONTENT), 2u);
  EXPECT_EQ(judged(all, KVGUARD_PASS_TARGET, KVGUARD_STAGE_PLANNED, KVGUARD_FAMILY_LIFETIME), 3u);
  // Of a at 0 all five; of b three; of a at 16 the sink and two of the window and one more.
  EXPECT_EQ(judged(0, KVGUARD_PASS_TARGET, KVGUARD_STAGE_PLANNED, KVGUARD_FAMILY_TABLE),
            5u + 3u + 4u);
  EXPECT_EQ(judged(0, KVGUARD_PASS_DUMMY, KVGUARD_STAGE_PLANNED, KVGUARD_FAMILY_SLOT), 6u);
}

}  // namespace
}  // namespace kvguard::tests
