// SPDX-License-Identifier: Apache-2.0
// Records that are lost, malformed or out of order: a gap, never a finding. Where bindings may be
// lost nothing is judged until a RESET, since every later step would look wrong.
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "audit/guard.h"
#include "audit/scenario.h"

namespace kvguard::audit {
namespace {

constexpr uint32_t kClean = KVGUARD_CLEAN;
constexpr uint32_t kCannotJudge = KVGUARD_CANNOT_JUDGE;

bool HasGap(const Scenario& s, const std::string& name) {
  for (const kvguard_gap& gap : s.guard()->Gaps()) {
    if (name == gap.name) return true;
  }
  return false;
}

// A request that runs, as most do when something goes wrong.
void Running(Scenario& s) { s.Admit("a", {{1, 2, 3}}).Schedule("a", 4).Step(); }

// Everything that would be a finding if the mirror were believed.
void ExpectNothingIsJudged(Scenario& s) {
  ASSERT_TRUE(HasGap(s, "bindings-lost")) << s.error();
  const size_t before = s.Findings().size();
  const uint64_t judged = s.verdict().steps_judged;
  for (int i = 0; i < 3; ++i) {
    s.Admit("n", {{1, 1, 0, 99}}).Schedule("n", 30).Schedule("ghost", 1);
    s.Step([](ScenarioPlan& p) {
      p.groups[0].slots[0] = 99;
      p.Table(0, 0, 0) = 7;
    });
    EXPECT_EQ(s.verdict().step_verdict, kCannotJudge);
    EXPECT_EQ(s.verdict().must_raise, 0u);
  }
  EXPECT_EQ(s.Findings().size(), before) << s.Report();
  EXPECT_EQ(s.verdict().steps_judged, judged);
  EXPECT_EQ(s.verdict().verdict, kCannotJudge);
  ASSERT_EQ(s.Reset(), KVGUARD_OK);
  s.Admit("z", {{1, 2}}).Schedule("z", 6).Step();
  EXPECT_EQ(s.verdict().step_verdict, kClean) << s.Report();
  EXPECT_EQ(s.Findings().size(), before) << s.Report();
  EXPECT_EQ(s.verdict().verdict, kCannotJudge) << "what was missed stays missed";
  s.Schedule("z", 1).Step([](ScenarioPlan& p) { ++p.groups[0].slots[0]; });
  EXPECT_EQ(s.verdict().step_verdict, static_cast<uint32_t>(KVGUARD_VIOLATED));
}

// A gap of this step alone: the next one is judged, and clean.
void ExpectTheStepIsAGap(Scenario& s) {
  EXPECT_FALSE(HasGap(s, "bindings-lost"));
  EXPECT_EQ(s.verdict().step_verdict, kCannotJudge);
  EXPECT_EQ(s.verdict().step_gaps, 1u);
  s.Schedule("a", 1).Step();
  EXPECT_EQ(s.verdict().step_verdict, kClean) << s.Report();
  EXPECT_EQ(s.verdict().verdict, kCannotJudge);
  EXPECT_TRUE(s.Findings().empty()) << s.Report();
}

TEST(LostBegin, ItsPlanIsEnough) {
  Scenario s;
  Running(s);
  const ScenarioPlan plan = s.RightPlan();
  s.SkipTo(3);  // the BEGIN of step 2 was dropped
  EXPECT_EQ(s.Plan(plan), KVGUARD_ERROR_ORDER);
  EXPECT_TRUE(HasGap(s, "plan-out-of-order"));
  ExpectNothingIsJudged(s);
}

TEST(LostBegin, ItsEndIsEnough) {
  Scenario s;
  Running(s);
  s.SkipTo(3);
  EXPECT_EQ(s.End(), KVGUARD_ERROR_ORDER);
  EXPECT_TRUE(HasGap(s, "end-out-of-order"));
  ExpectNothingIsJudged(s);
}

TEST(LostBegin, ItsOutcomeIsEnough) {
  Scenario s;
  Running(s);
  EXPECT_EQ(s.Outcome(2, "a", 1, 0), KVGUARD_ERROR_ORDER);
  s.SkipTo(3);
  ExpectNothingIsJudged(s);
}

TEST(LostBegin, BeforeTheFirstStepAsWell) {
  Scenario s;
  s.SkipTo(5);
  ScenarioPlan plan = s.RightPlan();
  EXPECT_EQ(s.Plan(plan), KVGUARD_ERROR_ORDER);
  ExpectNothingIsJudged(s);
}

TEST(LatePlan, OfAStepThatEndedIsAGapOnly) {
  Scenario s;
  Running(s);
  EXPECT_EQ(s.Plan(s.RightPlan()), KVGUARD_ERROR_ORDER);
  ExpectTheStepIsAGap(s);
}

TEST(LostEnd, TheNextBeginSaysSo) {
  Scenario s;
  Running(s);
  s.Schedule("a", 1).Begin();
  EXPECT_EQ(s.Begin(), KVGUARD_ERROR_ORDER);
  EXPECT_NE(s.error().find("feed END first"), std::string::npos);
  s.End();
  EXPECT_EQ(s.End(), KVGUARD_ERROR_ORDER);
  // The open step is still the old one: it ends with the reset.
  EXPECT_EQ(s.Reset(), KVGUARD_OK);
  s.Admit("b", {{1}}).Schedule("b", 1).Step();
  EXPECT_EQ(s.verdict().step_verdict, kClean);
  EXPECT_TRUE(s.Findings().empty());
}

TEST(Begin, StepsRise) {
  for (const uint64_t step : {uint64_t{1}, uint64_t{0}}) {
    Scenario s;
    Running(s);
    s.SkipTo(step);
    EXPECT_EQ(s.Begin(), KVGUARD_ERROR_ORDER);
    s.SkipTo(10);
    ExpectNothingIsJudged(s);
  }
}

TEST(Begin, StepsMaySkipNumbers) {
  Scenario s;
  Running(s);
  s.SkipTo(1'000'000'000'000);
  s.Schedule("a", 1).Step();
  EXPECT_EQ(s.verdict().verdict, kClean) << s.error();
}

TEST(Begin, AMalformedOneLosesItsBindings) {
  const std::vector<std::function<void(Scenario&)>> spoilt = {
      [](Scenario& s) { s.Schedule("a", 0).Begin(); },
      [](Scenario& s) { s.Gap("").Begin(); },
      [](Scenario& s) {
        kvguard_event event{};
        event.size = sizeof(event);
        event.kind = KVGUARD_EVENT_APPEND;
        event.request = s.Key("a");
        event.group = 7;
        s.Event(event).Begin();
      },
      [](Scenario& s) { s.Feed(KVGUARD_RECORD_BEGIN, 2, nullptr); },
      [](Scenario& s) {
        kvguard_begin begin{};
        begin.size = 2;
        s.Feed(KVGUARD_RECORD_BEGIN, 2, &begin);
      },
      [](Scenario& s) {  // the live key once more
        kvguard_event event{};
        event.size = sizeof(event);
        event.kind = KVGUARD_EVENT_ADMIT;
        event.request = s.Key("a");
        s.Event(event).Begin();
      },
      [](Scenario& s) {
        kvguard_event event{};
        event.size = sizeof(event);
        event.kind = 4711;
        s.Event(event).Begin();
      }};
  for (size_t i = 0; i < spoilt.size(); ++i) {
    SCOPED_TRACE(i);
    Scenario s;
    Running(s);
    spoilt[i](s);
    s.End();
    s.SkipTo(10);
    ExpectNothingIsJudged(s);
  }
}

TEST(Begin, AKeyThatIsAdmittedTwiceInItLosesThem) {
  Scenario s;
  Running(s);
  kvguard_event event{};
  event.size = sizeof(event);
  event.kind = KVGUARD_EVENT_ADMIT;
  event.request = 500;
  s.Event(event).Event(event).Begin();
  EXPECT_TRUE(HasGap(s, "admitted-twice"));
  s.End();
  ExpectNothingIsJudged(s);
}

TEST(Begin, EventsThatAreNotFollowedLoseThem) {
  for (const uint32_t kind :
       {KVGUARD_EVENT_SHARE, KVGUARD_EVENT_REMAP, KVGUARD_EVENT_ERASE, KVGUARD_EVENT_REBASE}) {
    ScenarioOptions windowed;
    windowed.groups[0].kind = KVGUARD_GROUP_WINDOW;
    windowed.groups[0].window = 64;
    Scenario s(windowed);
    Running(s);
    kvguard_event event{};
    event.size = sizeof(event);
    event.kind = kind;
    event.request = s.Key("a");
    event.value = KVGUARD_REMAP_MOVE;
    s.Event(event).Begin();
    EXPECT_TRUE(HasGap(s, "table-event-not-followed")) << kvguard_name("event_kind", kind);
    s.End();
    ExpectNothingIsJudged(s);
  }
}

TEST(Begin, AGapEventMaySayThatTheyAreLost) {
  Scenario s;
  Running(s);
  s.Gap("ring-full", KVGUARD_EVENT_BINDINGS_LOST).Begin();
  s.End();
  EXPECT_TRUE(HasGap(s, "ring-full"));
  ExpectNothingIsJudged(s);
}

TEST(Begin, WhatWasFoundBeforeTheLossIsNotReported) {
  Scenario s;
  Running(s);
  s.Admit("b", {{7, 7}}).Gap("ring-full", KVGUARD_EVENT_BINDINGS_LOST).Begin();
  EXPECT_EQ(s.verdict().proofs, 0u);
  s.End();
  ExpectNothingIsJudged(s);
}

TEST(Begin, ARequestThatIsScheduledTwiceIsAGap) {
  Scenario s;
  Running(s);
  s.Schedule("a", 1).Schedule("a", 1).Begin();
  EXPECT_TRUE(HasGap(s, "scheduled-twice"));
  EXPECT_EQ(s.verdict().step_verdict, kCannotJudge);
}

TEST(Record, OneThatCannotBeReadMayHaveHeldBindings) {
  const std::vector<std::function<kvguard_status(Scenario&)>> unreadable = {
      [](Scenario& s) { return kvguard_feed(s.guard(), nullptr, nullptr, nullptr); },
      [](Scenario& s) {
        kvguard_record record{};
        return kvguard_feed(s.guard(), &record, nullptr, nullptr);
      },
      [](Scenario& s) {
        struct {
          kvguard_record record;
          uint64_t later;
        } newer{};
        newer.record.size = sizeof(newer);
        newer.record.kind = KVGUARD_RECORD_BEGIN;
        newer.later = 1;
        return kvguard_feed(s.guard(), &newer.record, nullptr, nullptr);
      },
      [](Scenario& s) {
        alignas(8) unsigned char bytes[sizeof(kvguard_record) + 4] = {};
        const void* misaligned = bytes + 4;
        return kvguard_feed(s.guard(), static_cast<const kvguard_record*>(misaligned), nullptr,
                            nullptr);
      },
      [](Scenario& s) {  // the caller forgot the verdict's size: not one that reads as clean
        kvguard_begin begin{};
        begin.size = sizeof(begin);
        kvguard_record record{};
        record.size = sizeof(record);
        record.kind = KVGUARD_RECORD_BEGIN;
        record.step = 2;
        record.body.begin = &begin;
        kvguard_verdict verdict{};
        return kvguard_feed(s.guard(), &record, &verdict, nullptr);
      }};
  for (size_t i = 0; i < unreadable.size(); ++i) {
    SCOPED_TRACE(i);
    Scenario s;
    Running(s);
    EXPECT_LT(unreadable[i](s), 0);
    EXPECT_TRUE(HasGap(s, "record-malformed"));
    ExpectNothingIsJudged(s);
  }
}

TEST(Record, OneThatHoldsNoBindingsIsAGapOnly) {
  Scenario s;
  Running(s);
  struct {
    kvguard_record record;
    uint64_t later;
  } newer{};
  newer.record.size = sizeof(newer);
  newer.record.kind = KVGUARD_RECORD_PLAN;
  newer.later = 1;
  s.Schedule("a", 1).Begin();
  EXPECT_EQ(kvguard_feed(s.guard(), &newer.record, nullptr, nullptr), KVGUARD_ERROR_UNSUPPORTED);
  EXPECT_EQ(s.Feed(77, 2, &newer), KVGUARD_ERROR_ARGUMENT);
  EXPECT_EQ(s.Feed(KVGUARD_RECORD_PLAN, 2, nullptr), KVGUARD_ERROR_ARGUMENT);
  s.Plan(s.RightPlan());
  s.End();
  ExpectTheStepIsAGap(s);
}

TEST(Record, AnOldersIsAccepted) {
  Scenario s;
  kvguard_begin begin{};
  begin.size = offsetof(kvguard_begin, scheduled);  // as if nothing were ever scheduled
  EXPECT_EQ(s.Feed(KVGUARD_RECORD_BEGIN, 1, &begin), KVGUARD_OK) << s.error();
  s.SkipTo(2);
  EXPECT_EQ(s.End(), KVGUARD_OK);
}

TEST(Plan, AMalformedOneIsAGapAndTheRightOneIsJudgedBesideIt) {
  Scenario s;
  Running(s);
  s.Schedule("a", 1).Begin();
  EXPECT_EQ(s.Plan(s.RightPlan(), [](kvguard_plan& p, kvguard_group_plan*) { p.num_tokens = 7; }),
            KVGUARD_ERROR_ARGUMENT);
  EXPECT_TRUE(HasGap(s, "plan-malformed"));
  s.Plan(s.RightPlan());
  s.End();
  ExpectTheStepIsAGap(s);
}

TEST(Plan, APassWithoutRulesIsAGapByName) {
  Scenario s;
  Running(s);
  s.Schedule("a", 1).Begin();
  ScenarioPlan plan = s.RightPlan();
  s.Plan(plan);
  plan.pass = KVGUARD_PASS_GRAPH_REPLAY;
  EXPECT_EQ(s.Plan(plan), KVGUARD_ERROR_UNSUPPORTED);
  EXPECT_NE(s.error().find("graph-replay"), std::string::npos);
  EXPECT_TRUE(HasGap(s, "plan-not-supported"));
  s.End();
  ExpectTheStepIsAGap(s);
}

TEST(Plan, OfAnotherStepIsOutOfOrder) {
  Scenario s;
  Running(s);
  s.Schedule("a", 1).Begin();
  const ScenarioPlan plan = s.RightPlan();
  s.SkipTo(2);
  EXPECT_EQ(s.Plan(plan), KVGUARD_ERROR_ORDER);  // step 1's
  s.SkipTo(3);
  s.Plan(plan);
  s.End();
  ExpectTheStepIsAGap(s);
}

kvguard_status FeedOutcome(Scenario& s, uint64_t step, uint32_t rejected, uint32_t event_kind,
                           uint32_t event_flags = 0) {
  kvguard_outcome_row row{};
  row.size = sizeof(row);
  row.request = s.Key("a");
  row.num_rejected = rejected;
  kvguard_event event{};
  event.size = sizeof(event);
  event.kind = event_kind;
  event.flags = event_flags;
  event.name = "result";
  event.name_size = 6;
  kvguard_outcome outcome{};
  outcome.size = sizeof(outcome);
  outcome.rows = &row;
  outcome.num_rows = 1;
  outcome.events = &event;
  outcome.num_events = 1;
  return s.Feed(KVGUARD_RECORD_OUTCOME, step, &outcome);
}

TEST(Outcome, AMalformedOneMovesNothing) {
  ScenarioOptions options;
  options.engine_flags |= KVGUARD_ENGINE_ASYNC;
  options.max_drafts = 3;
  Scenario s(options);
  s.Admit("a", {{1, 2, 3}}).Schedule("a", 4, 3).Step();
  EXPECT_EQ(FeedOutcome(s, 1, 3, KVGUARD_EVENT_FREE), KVGUARD_ERROR_ARGUMENT);
  EXPECT_TRUE(HasGap(s, "outcome-malformed"));
  s.Schedule("a", 1).Step();  // all drafts accepted: not what the malformed outcome said
  EXPECT_EQ(s.verdict().step_verdict, kClean) << s.Report();
  EXPECT_TRUE(s.Findings().empty());
}

TEST(Outcome, MaySayThatBindingsAreLost) {
  Scenario s;
  Running(s);
  EXPECT_EQ(FeedOutcome(s, 1, 0, KVGUARD_EVENT_GAP, KVGUARD_EVENT_BINDINGS_LOST), KVGUARD_OK);
  EXPECT_TRUE(HasGap(s, "result"));
  ExpectNothingIsJudged(s);
}

TEST(Outcome, ResultsOfTransfersAreJudged) {
  Scenario s;
  Running(s);
  EXPECT_EQ(FeedOutcome(s, 1, 0, KVGUARD_EVENT_LOAD_DONE), KVGUARD_OK);
  EXPECT_EQ(s.Codes(), std::vector<uint32_t>{rules::kTransferUnknown}) << s.Report();
}

TEST(End, AMalformedOneLeavesTheStepOpen) {
  Scenario s;
  Running(s);
  s.Schedule("a", 1).Begin();
  s.Plan(s.RightPlan());
  const kvguard_end later{sizeof(kvguard_end), 1u << 9};
  EXPECT_EQ(s.Feed(KVGUARD_RECORD_END, 2, &later), KVGUARD_ERROR_UNSUPPORTED);
  EXPECT_TRUE(HasGap(s, "end-malformed"));
  EXPECT_EQ(s.End(), KVGUARD_OK);
  ExpectTheStepIsAGap(s);
}

TEST(Reset, AMalformedOneForgetsNothingAndSoNothingIsJudged) {
  const kvguard_reset later{sizeof(kvguard_reset), 99};
  for (const void* body : {static_cast<const void*>(&later), static_cast<const void*>(nullptr)}) {
    Scenario s;
    Running(s);
    EXPECT_EQ(s.Feed(KVGUARD_RECORD_RESET, 0, body), KVGUARD_ERROR_ARGUMENT);
    ExpectNothingIsJudged(s);
  }
}

TEST(Reset, ClosesAnOpenStepAsAGap) {
  Scenario s;
  Running(s);
  s.Schedule("a", 1).Begin();
  EXPECT_EQ(s.Reset(), KVGUARD_OK);
  EXPECT_TRUE(HasGap(s, "step-open-at-reset"));
  EXPECT_EQ(s.verdict().steps, 2u);
  EXPECT_EQ(s.verdict().step_gaps, 1u);
  s.Admit("b", {{1}}).Schedule("b", 1).Step();
  EXPECT_EQ(s.verdict().step_verdict, kClean);
}

}  // namespace
}  // namespace kvguard::audit
