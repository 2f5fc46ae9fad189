// SPDX-License-Identifier: Apache-2.0
// Details of bindings and hits: states, what is loaded or copied, hits that are given back, and
// what the encoder leaves.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "audit/scenario.h"
#include "rules/catalog.h"
#include "tests/rules/values.h"

namespace kvguard::tests {
namespace {

using audit::Scenario;
using audit::ScenarioGroup;
using audit::ScenarioOptions;

size_t Count(const Scenario& s, uint32_t code) {
  const std::vector<kvguard_finding> found = s.Findings();
  return static_cast<size_t>(std::count_if(
      found.begin(), found.end(), [&](const kvguard_finding& f) { return f.code == code; }));
}

// Attention in blocks of 4 beside states in the same pool, or in one of their own.
ScenarioOptions States(uint32_t mode, uint32_t engine_flags = 0, uint32_t pool = 1) {
  ScenarioGroup states;
  states.kind = KVGUARD_GROUP_STATE;
  states.state_mode = mode;
  states.pool = pool;
  ScenarioOptions options;
  options.groups = {ScenarioGroup{}, states};
  options.max_drafts = mode == KVGUARD_STATE_ALL ? 0 : 2;
  options.engine_flags |= engine_flags;
  return options;
}

ScenarioOptions Cross(uint32_t pool = 0) {
  ScenarioGroup cross;
  cross.kind = KVGUARD_GROUP_CROSS;
  cross.pool = pool;
  ScenarioOptions options;
  options.groups = {ScenarioGroup{}, cross};
  options.engine_flags |= KVGUARD_ENGINE_ENCODER;
  return options;
}

const std::vector<int64_t> kFour = {1, 2, 3, 4};

// --- hits of states ---

// The state of a single token may be a hit, too.
TEST(StateBinding, TheStateOfOneTokenIsAHit) {
  Scenario s(States(KVGUARD_STATE_ALIGN));
  s.Admit("a", {{1}, {31}}).Schedule("a", 1).Step();
  s.Admit("b", {{2}, {31}}, 1).Begin();
  EXPECT_EQ(s.Report(), "");
}

// A last token that is computed again makes no hit of a state, nor of an encoder's output.
TEST(StateBinding, ALastTokenThatIsComputedAgainIsNoHitOfAState) {
  Scenario s(States(KVGUARD_STATE_NONE));
  s.Admit("a", {{1}, {31, 32, 33}}).Schedule("a", 4).Step();
  s.Admit("b", {{2}, {31, 34, 35}}, 3).Tokens({1, 2, 3, 4}).Begin();
  const kvguard_finding found = Only(s, rules::kBlockOwned);
  EXPECT_EQ(found.group, 1u);
  EXPECT_EQ(found.pos, 0);
}

TEST(StateBinding, ALastTokenThatIsComputedAgainIsNoHitOfAnEncoder) {
  Scenario s(Cross());
  s.Admit("a", {{1}, {31}}).Domain(KVGUARD_DOMAIN_ENCODER, 7, 0, 4).Schedule("a", 4).Step();
  s.Admit("b", {{2}, {31}}, 3).Tokens({1, 2, 3, 4}).Domain(KVGUARD_DOMAIN_ENCODER, 7, 0, 4);
  s.Begin();
  EXPECT_EQ(Only(s, rules::kBlockOwned).group, 1u);
}

// A speculative block moves on from wherever it stands, the first column included.
TEST(StateBinding, ASpeculativeBlockMovesOnFromTheFirstColumn) {
  Scenario s(States(KVGUARD_STATE_ALIGN));
  s.Admit("a", {{1, 2}, {31, 32, 33}}).Schedule("a", 3, 2).Step();
  s.Outcome(s.step(), "a", 3, 0);  // the state of 3 tokens stands in column 2
  s.Append("a", {31}, 1).Begin();
  EXPECT_EQ(s.Report(), "");
}

// A claim that has moved on is no hit any more, though the record made it as one.
TEST(StateBinding, AHitThatMovesOnIsNotJudged) {
  for (const bool moves : {true, false}) {
    Scenario s(States(KVGUARD_STATE_ALIGN, KVGUARD_ENGINE_FILLS_TOLD));
    s.Admit("a", {kFour, {31, 32}}).Schedule("a", 7).Step();  // 32: the state of 7 tokens
    s.Admit("b", {{5, 6}, {}}, 8).Rollback("b", 4);
    s.Append("b", {32}, 1);
    if (moves) s.Append("b", {32}, 1);
    s.Begin();
    EXPECT_EQ(Count(s, rules::kContentMisplaced), moves ? 0u : 1u) << s.Report();
  }
}

// Where all fills are told, a state that was never left is unwritten, if it is that of a whole
// column.
TEST(StateBinding, AStateThatWasNeverFilledIsFound) {
  for (const int64_t computed : {4, 6, 8}) {
    Scenario s(States(KVGUARD_STATE_ALIGN, KVGUARD_ENGINE_FILLS_TOLD));
    s.Admit("b", {{}, computed == 4 ? std::vector<int64_t>{40} : std::vector<int64_t>{0, 40}},
            computed);
    s.Begin();
    EXPECT_EQ(Count(s, rules::kContentUnwritten), computed % 4 == 0 ? 1u : 0u) << s.Report();
    if (computed % 4 == 0) {
      EXPECT_EQ(Only(s, rules::kContentUnwritten).group, 1u);
    }
  }
}

// A step reads states before it leaves any: one that another row of the step writes is not there.
TEST(StateBinding, AStateThatTheStepLeavesIsNotThereYet) {
  Scenario s(States(KVGUARD_STATE_ALIGN));
  s.Admit("a", {{1}, {31}}).Schedule("a", 2).Step();
  s.Schedule("a", 2).Admit("b", {{1, 2}, {31, 32}}, 4).Schedule("b", 1).Begin();
  const kvguard_finding found = Only(s, rules::kContentUnwritten);
  EXPECT_EQ(found.request, s.Key("b"));
  EXPECT_EQ(found.group, 1u);
}

// Nor is one that was bound in the same record, though its request had come so far once.
TEST(StateBinding, AStateThatIsBoundInTheRecordIsNotThereYet) {
  Scenario s(States(KVGUARD_STATE_ALL));
  s.Admit("a", {{1, 2, 3}, {31, 32, 33}}).Schedule("a", 12).Step();
  s.Rollback("a", 8).Truncate("a", 1, 1).Append("a", {42, 43}, 1);
  s.Admit("b", {{1, 2, 3}, {0, 0, 43}}, 12).Begin();
  const kvguard_finding found = Only(s, rules::kContentUnwritten);
  EXPECT_EQ(found.request, s.Key("b"));
  EXPECT_EQ(found.group, 1u);
}

// --- where a step leaves its states ---

// One finding, at the first of the columns that the step writes.
TEST(StateBinding, AStepThatLeavesItsDraftsInTheNullBlockIsFound) {
  struct {
    std::vector<int64_t> states;
    int64_t at;
  } const cases[] = {{{31, 32, 33}, -1}, {{31, 0, 33}, 1}, {{31, 32, 0}, 2},
                     {{31, 0, 0}, 1},    {{0, 32, 33}, 0}, {{31, 32, 33, 0}, -1}};
  for (const auto& [states, at] : cases) {
    Scenario s(States(KVGUARD_STATE_ALIGN));
    s.Admit("b", {{10}, {40, 41, 42}}).Schedule("b", 1);
    s.Admit("a", {{1}, states}).Schedule("a", 3, 2).Begin();
    if (at < 0) {
      EXPECT_EQ(Count(s, rules::kBlockNull), 0u) << s.Report();
      continue;
    }
    const kvguard_finding found = Only(s, rules::kBlockNull);
    EXPECT_EQ(found.request, s.Key("a"));
    EXPECT_EQ(found.group, 1u);
    EXPECT_EQ(found.pos, at);
    EXPECT_EQ(found.expected, kNone);
    EXPECT_EQ(found.observed, 0);
  }
}

// --- hits ---

// A hit that is given back in the step that made it is none, in a step after its request's
// admission as well.
TEST(StateBinding, AHitOfALaterStepThatIsGivenBackIsNone) {
  Scenario s;
  s.Admit("w", {{5, 6}}).Schedule("w", 8).Step();
  s.Admit("a", {{5}}, 8).Step();
  s.Append("a", {6}).Truncate("a", 1).Admit("c", {{6}}).Begin();
  EXPECT_EQ(Count(s, rules::kBlockOwned), 1u) << s.Report();
}

// What a block will hold is not there while it is being loaded, by one load or several.
TEST(StateBinding, AHitOnWhatIsBeingLoadedIsNotJudged) {
  for (const int loads : {0, 1, 2}) {
    ScenarioOptions options;
    options.engine_flags |= KVGUARD_ENGINE_CONNECTOR | KVGUARD_ENGINE_FILLS_TOLD;
    Scenario s(options);
    s.Expect("b");
    for (int i = 0; i < loads; ++i) s.Blocks(KVGUARD_EVENT_LOAD, "b", {5}, 7 + i);
    s.Admit("b", {{5, 6}}, 4).Begin();
    EXPECT_EQ(Count(s, rules::kContentUnwritten), loads == 0 ? 1u : 0u) << loads << s.Report();
  }
}

// Of what was never written nothing more is said.
TEST(StateBinding, AHitOnWhatIsUnwrittenIsNotComparedToo) {
  Scenario s;
  s.Admit("a", {{5}}).Tokens({1, 2, 3, 4}).Schedule("a", 2).Step();
  s.Admit("b", {{5, 6}}, 4).Tokens({9, 9, 9, 9, 9}).Begin();
  EXPECT_EQ(Count(s, rules::kContentUnwritten), 1u) << s.Report();
  EXPECT_EQ(Count(s, rules::kContentMismatch), 0u) << s.Report();
}

// A key that one record admits twice is found wherever the two stand.
TEST(StateBinding, AKeyThatIsAdmittedTwiceIsFoundWhateverStandsBetween) {
  Scenario s;
  s.Expect("a").Admit("a", {{1}}).Admit("b", {{2}});
  kvguard_event again{};
  again.size = sizeof(again);
  again.kind = KVGUARD_EVENT_ADMIT;
  again.request = s.Key("a");
  again.group = KVGUARD_ALL_GROUPS;
  s.Event(again);
  EXPECT_EQ(s.Begin(), KVGUARD_OK) << s.error();
  EXPECT_EQ(s.verdict().step_verdict, uint32_t{KVGUARD_CANNOT_JUDGE});
}

// An encoder's output has at most 2^40 tokens, however many its event says.
TEST(StateBinding, AnEncoderIsBounded) {
  struct {
    int64_t first;
    int64_t count;
    int64_t end;
  } const cases[] = {{(int64_t{1} << 40) - 1, 10, int64_t{1} << 40},
                     {(int64_t{1} << 40) - 10, 9, (int64_t{1} << 40) - 1},
                     {10, 5, 15}};
  for (const auto& [first, count, end] : cases) {
    Scenario s(Cross());
    s.Admit("a", {{1}, {}}).Domain(KVGUARD_DOMAIN_ENCODER, 7, first, count).Schedule("a", 1);
    EXPECT_EQ(s.Begin(), KVGUARD_OK) << s.error();
    EXPECT_EQ(Only(s, rules::kCapacityShort).pos, end - 1);
  }
}

// --- copies and zeroing ---

// A copy brings another state: of how many tokens is not known.
TEST(StateBinding, ACopyEndsWhatIsKnownOfAState) {
  for (const uint32_t kind : {KVGUARD_EVENT_COPY, KVGUARD_EVENT_COPY_DONE}) {
    for (const int64_t target : {31, 50}) {
      Scenario s(States(KVGUARD_STATE_ALIGN));
      s.Admit("a", {{1}, {31}}).Schedule("a", 3).Step();
      s.Blocks(kind, "", {60, target}, 0, 0, 1).Step();
      s.Admit("b", {{1, 2}, {31, 32}}, 4).Begin();
      EXPECT_EQ(Count(s, rules::kContentMisplaced), target == 31 ? 0u : 1u) << s.Report();
    }
  }
}

// A copy fills its target, be it done or only announced; that it is done says so of no other.
TEST(StateBinding, ACopyFillsItsTarget) {
  for (const bool announced : {true, false}) {
    for (const bool done : {true, false}) {
      ScenarioOptions options;
      options.engine_flags |= KVGUARD_ENGINE_FILLS_TOLD;
      Scenario s(options);
      s.Admit("a", {{1}}).Schedule("a", 4);
      if (announced) s.Blocks(KVGUARD_EVENT_COPY, "", {1, 5});
      if (done) s.Blocks(KVGUARD_EVENT_COPY_DONE, "", {1, 5});
      s.Step();
      s.Admit("b", {{5, 6}}, 4).Begin();
      EXPECT_EQ(Count(s, rules::kContentUnwritten), announced ? 0u : 1u)
          << announced << done << s.Report();
    }
  }
}

// Of a kind that is never said to be done nothing is lost, whatever is said of the other.
TEST(StateBinding, CopiesThatAreNeverSaidToBeDoneAreNotLost) {
  for (const bool says : {true, false}) {
    Scenario s;
    s.Blocks(KVGUARD_EVENT_ZERO, "", {50}).Blocks(KVGUARD_EVENT_ZERO_DONE, "", {50});
    if (says) {
      s.Blocks(KVGUARD_EVENT_COPY, "", {51, 52}).Blocks(KVGUARD_EVENT_COPY_DONE, "", {51, 52});
    }
    s.Admit("a", {{1}}).Schedule("a", 2).Step();
    s.Blocks(KVGUARD_EVENT_ZERO, "", {50}).Blocks(KVGUARD_EVENT_COPY, "", {51, 52});
    s.Schedule("a", 1).Step();
    EXPECT_EQ(Count(s, rules::kCopyLost), says ? 2u : 1u) << s.Report();
  }
}

// States are zeroed and attended to by nobody: what a request holds as one is no token of it.
TEST(StateBinding, ZeroingJudgesTokensAlone) {
  struct {
    uint32_t zeroed;  // the event's group
    int64_t block;
    size_t found;
  } const cases[] = {{0, 1, 1}, {1, 1, 0}, {0, 31, 0}, {1, 31, 0}};
  for (const bool cross : {true, false}) {
    for (const auto& [group, block, found] : cases) {
      Scenario s(cross ? Cross() : States(KVGUARD_STATE_NONE, 0, 0));
      s.Admit("a", {{1, 2}, {31, 32, 33}});
      if (cross) s.Domain(KVGUARD_DOMAIN_ENCODER, 7, 0, 4);
      s.Schedule("a", 5).Step();
      s.Blocks(KVGUARD_EVENT_ZERO, "", {block}, 0, 0, group).Schedule("a", 1).Begin();
      EXPECT_EQ(Count(s, rules::kZeroLive), found) << group << block << s.Report();
    }
  }
}

}  // namespace
}  // namespace kvguard::tests
