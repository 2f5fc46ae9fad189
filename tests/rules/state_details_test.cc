// SPDX-License-Identifier: Apache-2.0
// Details of what plans show of recurrent groups: which entries of a table count, which source is
// right, who is named.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "audit/scenario.h"
#include "rules/catalog.h"
#include "tests/rules/values.h"
#include "tests/support/passes.h"

namespace kvguard::tests {
namespace {

using audit::Scenario;
using audit::ScenarioGroup;
using audit::ScenarioOptions;
using audit::ScenarioPlan;
using Edit = std::function<void(ScenarioPlan&)>;

std::vector<kvguard_finding> Of(const Scenario& s, uint32_t code) {
  std::vector<kvguard_finding> found = s.Findings();
  std::erase_if(found, [&](const kvguard_finding& f) { return f.code != code; });
  return found;
}

size_t Count(const Scenario& s, uint32_t code) { return Of(s, code).size(); }

// Attention in blocks of 4, and states in the pool that is asked for.
ScenarioOptions States(uint32_t mode, uint32_t pool = 1) {
  ScenarioGroup states;
  states.kind = KVGUARD_GROUP_STATE;
  states.state_mode = mode;
  states.pool = pool;
  ScenarioOptions options;
  options.groups = {ScenarioGroup{}, states};
  options.max_drafts = mode == KVGUARD_STATE_ALL ? 0 : 2;
  return options;
}

ScenarioOptions Tables(uint32_t flags = 0) {
  ScenarioOptions options = States(KVGUARD_STATE_ALIGN);
  options.groups[1].shows_states = false;
  options.engine_flags |= flags;
  return options;
}

const std::vector<int64_t> kBlocks = {1, 2, 3, 4, 5};

// --- tables ---

// How a row of states comes to its step, and the columns of its table that count then.
struct TableCase {
  std::string name;
  std::function<void(Scenario&)> before;  // up to and without its schedule
  int64_t tokens = 1;
  uint32_t drafts = 0;
  std::vector<size_t> columns = {};
};

std::vector<TableCase> TableCases() {
  const auto prefill = [](int64_t tokens, std::vector<int64_t> states) {
    return [=](Scenario& s) { s.Admit("a", {kBlocks, states}).Schedule("a", tokens).Step(); };
  };
  // Two drafts behind the prefill, of which `rejected` are not accepted.
  const auto drafts = [=](int64_t tokens, uint32_t rejected) {
    return [=](Scenario& s) {
      prefill(tokens, {31, 32, 33, 34, 35})(s);
      s.Schedule("a", 3, 2).Step();
      s.Outcome(s.step(), "a", 3 - rejected, rejected);
    };
  };
  return {
      {"goes on in its column", prefill(5, {31, 32, 33, 34, 35}), 1, 0, {1}},
      {"enters the next column", prefill(8, {31, 32, 33, 34, 35}), 1, 0, {1, 2}},
      {"skips a column", prefill(4, {31, 32, 33, 34, 35}), 5, 0, {0, 2}},
      {"leaves drafts behind", prefill(5, {31, 32, 33, 34, 35}), 3, 2, {1, 2, 3}},
      {"comes from the last draft", drafts(5, 0), 1, 0, {2, 3}},
      {"comes from the first draft", drafts(5, 1), 1, 0, {1, 2}},
      {"comes from where it leaves its last draft", drafts(5, 1), 1, 1, {1, 2}},
      {"from the first token on again",
       [](Scenario& s) {
         s.Admit("a", {kBlocks, {31, 32, 33, 34, 35}}).Schedule("a", 2, 2).Step();
         s.Outcome(s.step(), "a", 0, 2);
       },
       5,
       0,
       {1}},
      {"from the first token on",
       [](Scenario& s) { s.Admit("a", {kBlocks, {31, 32, 33}}); },
       6,
       0,
       {1}},
  };
}

// Only the entries of the place of the start and of the written columns are compared.
TEST(StateDetails, OfATableOnlyThePlaceAndWhatIsWrittenCount) {
  for (const TableCase& c : TableCases()) {
    for (size_t column = 0; column < 5; ++column) {
      Scenario s(Tables());
      c.before(s);
      const uint64_t entries = s.verdict().entries;
      s.Schedule("a", c.tokens, c.drafts).Begin();
      ScenarioPlan plan = s.RightPlan();
      plan.groups[0].table_present = false;
      plan.Table(1, 0, column) = 50;
      EXPECT_EQ(s.Plan(plan), KVGUARD_OK) << s.error();
      EXPECT_EQ(s.verdict().entries - entries, c.columns.size()) << c.name;
      const bool counts = std::find(c.columns.begin(), c.columns.end(), column) != c.columns.end();
      const auto found = Of(s, rules::kTableMismatch);
      ASSERT_EQ(found.size(), counts ? 1u : 0u) << c.name << " " << column << s.Report();
      if (!counts) continue;
      EXPECT_EQ(found[0].pos, static_cast<int64_t>(column));
      EXPECT_EQ(found[0].count, 1u);
    }
  }
}

// Every wrong entry that counts is counted, those between are not.
TEST(StateDetails, WrongEntriesOfAStateTableAreCounted) {
  Scenario s(Tables());
  s.Admit("a", {kBlocks, {31, 32, 33, 34, 35}}).Schedule("a", 4).Step();
  s.Schedule("a", 5).Step([](ScenarioPlan& p) {
    for (size_t column = 0; column < 5; ++column) p.Table(1, 0, column) = 50;
  });
  const kvguard_finding found = Only(s, rules::kTableMismatch);
  EXPECT_EQ(found.pos, 0);
  EXPECT_EQ(found.count, 2u);
}

// Of a row whose start is not known nothing is compared, nor of a part of one.
TEST(StateDetails, OfAnOpenStartNoEntryCounts) {
  Scenario s(Tables(KVGUARD_ENGINE_ASYNC));
  s.Admit("a", {kBlocks, {31, 32, 33, 34, 35}}).Schedule("a", 4).Step();
  s.Schedule("a", 3, 2).Step();
  const uint64_t entries = s.verdict().entries;
  s.Schedule("a", 1).Begin();
  ScenarioPlan plan = s.RightPlan();
  plan.groups[0].table_present = false;
  plan.positions_present = false;
  for (size_t column = 0; column < 5; ++column) plan.Table(1, 0, column) = 50;
  EXPECT_EQ(s.Plan(plan), KVGUARD_OK) << s.error();
  EXPECT_EQ(Count(s, rules::kTableMismatch), 0u) << s.Report();
  EXPECT_EQ(s.verdict().entries, entries);
}

// The first part of a row is compared in the place of its start, the last in what it leaves.
TEST(StateDetails, OfAPartOfARowItsOwnEndCounts) {
  Scenario s(Tables());
  s.Admit("a", {kBlocks, {31, 32, 33, 34, 35}}).Schedule("a", 4).Step();
  s.Schedule("a", 6).Begin();
  const ScenarioPlan whole = s.RightPlan();
  uint32_t index = 0;
  for (const Cut& cut : {Cut{0, 0, 2}, Cut{0, 2, 3}, Cut{0, 5, 1}}) {
    const uint64_t entries = s.verdict().entries;
    const size_t found = s.Findings().size();
    ScenarioPlan part = MicroBatch(whole, index++, {cut});
    part.groups[0].table_present = false;
    part.groups[1].slots_present = false;
    for (size_t column = 0; column < 5; ++column) part.Table(1, 0, column) = 50;
    EXPECT_EQ(s.Plan(part), KVGUARD_OK) << s.error();
    const auto all = s.Findings();
    EXPECT_EQ(s.verdict().entries - entries, cut.first == 2 ? 0u : 1u);
    ASSERT_EQ(all.size() - found, cut.first == 2 ? 0u : 1u) << s.Report();
    if (cut.first == 2) continue;
    EXPECT_EQ(all.back().code, rules::kTableMismatch);
    EXPECT_EQ(all.back().pos, cut.first == 0 ? 0 : 2);
    EXPECT_EQ(all.back().count, 1u);
  }
}

// --- sources ---

Edit In(int64_t block) {
  return [=](ScenarioPlan& p) { p.groups[1].in[0] = block; };
}
Edit Out(int64_t block) {
  return [=](ScenarioPlan& p) { p.groups[1].out[0] = block; };
}

TEST(StateDetails, AStateThatIsNotInitialisedSaysWhere) {
  Scenario s(States(KVGUARD_STATE_NONE));
  s.Admit("a", {{1, 2}, {31, 32, 33}}).Schedule("a", 5);
  s.Step([](ScenarioPlan& p) { p.groups[1].init[0] = 0; });
  Expect(s, {{.code = rules::kStateUninitialised,
              .request = "a",
              .group = 1,
              .row = 0,
              .pos = 0,
              .expected = 1,
              .observed = 0}});
}

// Of a state that is discarded the source says nothing more.
TEST(StateDetails, AStateThatIsDiscardedSaysWhere) {
  Scenario s(States(KVGUARD_STATE_NONE));
  s.Admit("a", {{1, 2}, {31, 32, 33}}).Schedule("a", 5).Step();
  s.Schedule("a", 1).Step([](ScenarioPlan& p) {
    p.groups[1].init[0] = 1;
    p.groups[1].in[0] = 50;
  });
  Expect(s, {{.code = rules::kStateDiscarded,
              .request = "a",
              .group = 1,
              .row = 0,
              .pos = 5,
              .expected = 0,
              .observed = 1}});
}

// What a plan does not show is not judged; what it shows is.
TEST(StateDetails, SourcesAndTargetsAreShownApart) {
  for (const bool in : {true, false}) {
    for (const bool wrong : {true, false}) {
      Scenario s(States(KVGUARD_STATE_NONE));
      s.Admit("a", {{1, 2}, {31, 32, 33}}).Schedule("a", 5).Step();
      s.Schedule("a", 1).Step([&](ScenarioPlan& p) {
        p.Pad(1, 0);
        (in ? p.groups[1].out : p.groups[1].in) = std::vector<int64_t>();
        std::vector<int64_t>& shown = in ? p.groups[1].in : p.groups[1].out;
        if (wrong) shown = {50, 51};
      });
      EXPECT_EQ(Count(s, rules::kStateMismatch), in && wrong ? 1u : 0u) << s.Report();
      EXPECT_EQ(Count(s, rules::kStateTargetMismatch), !in && wrong ? 1u : 0u) << s.Report();
      EXPECT_EQ(Count(s, rules::kPadStateReal), wrong ? 1u : 0u) << s.Report();
    }
  }
}

// After two accepted drafts from token 5 on, the state of 8 tokens stands in column 3; an engine
// may have stored it in column 1 besides.
void AfterDrafts(Scenario& s, bool two_groups = false) {
  std::vector<std::vector<int64_t>> blocks = {kBlocks, {31, 32, 33, 34, 35}};
  if (two_groups) blocks.push_back(blocks[1]);
  s.Admit("a", blocks).Schedule("a", 5).Step();
  s.Schedule("a", 3, 2).Step();
  s.Outcome(s.step(), "a", 3, 0);
}

struct CopyCase {
  std::vector<int64_t> pair;
  int64_t in;
  uint32_t group;
  bool right;
};

// The copy of a state is as good as the state: of the one at its place or of the stored one, in its
// own group, and to where the row reads.
TEST(StateDetails, ACopyOfTheRightStateIsRight) {
  const std::vector<CopyCase> cases = {
      {{}, 34, 1, true},        {{}, 32, 1, true},        {{}, 31, 1, false},
      {{}, 50, 1, false},       {{34, 50}, 50, 1, true},  {{32, 50}, 50, 1, true},
      {{31, 50}, 50, 1, false}, {{34, 51}, 50, 1, false}, {{32, 51}, 50, 1, false},
      {{34, 50}, 50, 2, false}, {{31, 51}, 50, 2, false},
  };
  for (const CopyCase& c : cases) {
    ScenarioOptions options = States(KVGUARD_STATE_ALIGN);
    options.groups.push_back(options.groups[1]);
    options.groups[2].pool = 2;
    Scenario s(options);
    AfterDrafts(s, true);
    if (!c.pair.empty()) {
      s.Blocks(KVGUARD_EVENT_COPY, "", c.pair, 0, 0, c.group);
      s.Blocks(KVGUARD_EVENT_COPY_DONE, "", c.pair, 0, 0, c.group);
    }
    s.Schedule("a", 1).Step(In(c.in));
    EXPECT_EQ(Count(s, rules::kStateMismatch), c.right ? 0u : 1u)
        << testing::PrintToString(c.pair) << c.in << s.Report();
  }
}

// The null block keeps no state, wherever it stands.
TEST(StateDetails, TheNullBlockIsNoStoredState) {
  Scenario s(States(KVGUARD_STATE_ALIGN));
  AfterDrafts(s);
  s.Replace("a", {31, 0, 33, 34, 35}, 1).Schedule("a", 1).Step(In(0));
  EXPECT_EQ(Count(s, rules::kStateMismatch), 1u) << s.Report();
}

// A step that enters another column may have its state copied there unsaid, by an engine that never
// says so; one that stays in its column, or keeps all states, may not.
TEST(StateDetails, OnlyAStepThatEntersAnotherColumnMayHaveBeenCopiedFor) {
  {
    Scenario s(States(KVGUARD_STATE_ALIGN));
    s.Admit("a", {kBlocks, {31, 32, 33}}).Schedule("a", 4).Step();
    s.Schedule("a", 1).Step(In(32));
    EXPECT_EQ(s.Report(), "");
    EXPECT_EQ(s.verdict().assumptions, 1u);
  }
  {
    Scenario s(States(KVGUARD_STATE_ALL));
    s.Admit("a", {kBlocks, {31, 32, 33}}).Schedule("a", 4).Step();
    s.Schedule("a", 1).Step(In(32));
    EXPECT_EQ(Count(s, rules::kStateMismatch), 1u) << s.Report();
  }
  {
    Scenario s(States(KVGUARD_STATE_ALIGN));
    s.Admit("a", {kBlocks, {31, 32, 33, 34, 35}}).Schedule("a", 5).Step();
    s.Schedule("a", 3, 2).Step();
    s.Outcome(s.step(), "a", 2, 1);  // the state of 7 tokens stands in column 2
    s.Schedule("a", 1).Step(In(32));
    EXPECT_EQ(Count(s, rules::kStateMismatch), 1u) << s.Report();
  }
}

// Only a COPY_DONE of a recurrent group says that the engine tells of its copies of states.
TEST(StateDetails, WhatIsNoCopyOfAStateSaysNothingOfThem) {
  struct {
    uint32_t kind;
    std::vector<int64_t> blocks;
    uint32_t group;
    bool says;
  } const cases[] = {
      {KVGUARD_EVENT_COPY, {50, 51}, 1, false},     {KVGUARD_EVENT_ZERO, {50}, 1, false},
      {KVGUARD_EVENT_ZERO_DONE, {50}, 1, false},    {KVGUARD_EVENT_COPY_DONE, {50, 51}, 0, false},
      {KVGUARD_EVENT_COPY_DONE, {50, 51}, 1, true},
  };
  for (const auto& [kind, blocks, group, says] : cases) {
    Scenario s(States(KVGUARD_STATE_ALIGN));
    s.Blocks(kind, "", blocks, 0, 0, group);
    s.Admit("a", {kBlocks, {31, 32, 33}}).Schedule("a", 4).Step();
    s.Schedule("a", 1).Step(In(32));
    EXPECT_EQ(Count(s, rules::kStateNotCopied), says ? 1u : 0u) << kind << s.Report();
    EXPECT_EQ(s.verdict().assumptions, says ? 0u : 1u);
  }
}

// --- who is named ---

// Who holds what is read or written in place of the right state; nobody holds the null block, what
// is out of the pool, or a block that is free.
TEST(StateDetails, WhoHoldsAWrongStateIsNamed) {
  struct {
    int64_t block;
    bool held;
  } const cases[] = {{40, true}, {0, false}, {1000, false}, {-5, false}, {50, false}};
  for (const auto& [block, held] : cases) {
    Scenario s(States(KVGUARD_STATE_NONE, 0));
    s.Admit("b", {{10, 0}, {40}}).Schedule("b", 1).Step();  // 0202: its row has the null block
    s.Admit("a", {{1, 2}, {31}}).Schedule("a", 5).Step();
    s.Schedule("a", 1).Step(In(block));
    const kvguard_finding in = Only(s, rules::kStateMismatch);
    EXPECT_EQ(in.victim, held ? s.Key("b") : 0) << block;
    EXPECT_EQ(in.expected, 31);
    s.Schedule("a", 1).Step(Out(block));
    EXPECT_EQ(Count(s, rules::kStateTargetMismatch), 1u) << s.Report();
    EXPECT_EQ(Count(s, rules::kForeignWrite), held ? 1u : 0u) << s.Report();
    s.Schedule("a", 1).Step([&](ScenarioPlan& p) {
      p.Pad(2, 0);
      p.groups[1].out[2] = block;
      p.groups[1].in[1] = block;
    });
    if (block == 0) {
      EXPECT_EQ(Count(s, rules::kPadStateReal), 0u) << s.Report();
      continue;
    }
    const kvguard_finding pad = Only(s, rules::kPadStateReal);
    EXPECT_EQ(pad.row, 2) << block;
    EXPECT_EQ(pad.victim, held ? s.Key("b") : 0) << block;
  }
}

// In a dummy pass no row holds a request.
TEST(StateDetails, ADummyPassHasNoRealState) {
  for (const size_t row : {size_t{0}, size_t{1}}) {
    for (const bool out : {true, false}) {
      Scenario s(States(KVGUARD_STATE_NONE));
      s.Admit("a", {{1, 2}, {31, 32, 33}}).Schedule("a", 5).Begin();
      ScenarioPlan plan;
      plan.pass = KVGUARD_PASS_DUMMY;
      plan.query_start = {0};
      plan.padded_rows = 2;
      plan.groups.resize(2);
      plan.groups[0].present = false;
      (out ? plan.groups[1].out : plan.groups[1].in) = {-1, -1};
      (out ? plan.groups[1].out : plan.groups[1].in)[row] = 31;
      plan.groups[1].slots_present = false;
      plan.query_start.resize(3, 0);
      plan.seq_lens.resize(2, 0);
      EXPECT_EQ(s.Plan(plan), KVGUARD_OK) << s.error();
      const kvguard_finding found = Only(s, rules::kPadStateReal);
      EXPECT_EQ(found.row, static_cast<int64_t>(row));
      EXPECT_EQ(found.victim, s.Key("a"));
    }
  }
}

// --- which rows ---

// Of a row without a known request, without tokens or with a start that is open nothing is said of
// its states.
TEST(StateDetails, OnlyRowsWithARequestTokensAndAStartHaveStates) {
  {
    Scenario s(States(KVGUARD_STATE_NONE));
    s.Admit("a", {{1, 2}, {31, 32, 33}}).Schedule("a", 5).Step([](ScenarioPlan& p) {
      p.requests[0] = 77;
      p.groups[1].out[0] = 50;
    });
    EXPECT_EQ(Count(s, rules::kStateTargetMismatch), 0u) << s.Report();
  }
  for (const bool usable : {true, false}) {
    Scenario s(States(KVGUARD_STATE_NONE));
    s.Admit("a", {{1, 2}, {31, 32, 33}}).Schedule("a", 5).Step([&](ScenarioPlan& p) {
      p.groups[1].out[0] = 50;
      if (!usable) p.query_start = {0, 9};
    });
    EXPECT_EQ(Count(s, rules::kStateTargetMismatch), usable ? 1u : 0u) << s.Report();
  }
  {
    Scenario s(States(KVGUARD_STATE_NONE));
    s.Admit("b", {{10}, {40, 41, 42}}).Schedule("b", 1);
    s.Admit("a", {{1, 2}, {31, 32, 33}}).Schedule("a", 5).Step([](ScenarioPlan& p) {
      p.query_start = {0, 0, 6};
      p.groups[1].out[0] = 50;
    });
    EXPECT_EQ(Count(s, rules::kStateTargetMismatch), 0u) << s.Report();
  }
  {
    ScenarioOptions options = States(KVGUARD_STATE_NONE);
    options.engine_flags |= KVGUARD_ENGINE_ASYNC;
    Scenario s(options);
    s.Admit("a", {kBlocks, {31, 32, 33}}).Schedule("a", 4).Step();
    s.Schedule("a", 3, 2).Step();
    s.Schedule("a", 1).Begin();
    ScenarioPlan plan = s.RightPlan();
    plan.query_start = {0, 9};
    plan.groups[1].out[0] = 50;
    EXPECT_EQ(s.Plan(plan), KVGUARD_OK) << s.error();
    EXPECT_EQ(Count(s, rules::kStateTargetMismatch), 0u) << s.Report();
  }
}

// A part of a row is judged by what it starts from if it is the first, by what it leaves if it is
// the last.
TEST(StateDetails, OfAPartOfARowItsOwnStateCounts) {
  Scenario s(States(KVGUARD_STATE_NONE));
  s.Admit("a", {{1, 2}, {31, 32, 33}}).Schedule("a", 6).Begin();
  const ScenarioPlan whole = s.RightPlan();
  uint32_t index = 0;
  for (const Cut& cut : {Cut{0, 0, 2}, Cut{0, 2, 3}, Cut{0, 5, 1}}) {
    ScenarioPlan part = MicroBatch(whole, index++, {cut});
    part.groups[1].slots_present = false;
    part.groups[1].table_present = false;
    part.groups[1].in = {50};
    part.groups[1].out = {50};
    part.groups[1].init = {0};
    EXPECT_EQ(s.Plan(part), KVGUARD_OK) << s.error();
    EXPECT_EQ(Count(s, rules::kStateUninitialised), 1u) << s.Report();
    EXPECT_EQ(Count(s, rules::kStateTargetMismatch), cut.first == 5 ? 1u : 0u) << s.Report();
  }
  EXPECT_EQ(Only(s, rules::kStateTargetMismatch).pos, 6);
}

}  // namespace
}  // namespace kvguard::tests
