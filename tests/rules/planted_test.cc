// SPDX-License-Identifier: Apache-2.0
// Every rule fires on a planted example, the smallest there is, and stays silent on its nearest
// legal neighbour.
#include "tests/layouts/planted.h"

#include <algorithm>
#include <functional>
#include <map>
#include <ostream>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "audit/scenario.h"
#include "rules/catalog.h"
#include "tests/support/plan_edit.h"

namespace kvguard::tests {
namespace {

using audit::Scenario;
using audit::ScenarioOptions;
using audit::ScenarioPlan;
using Edit = std::function<void(ScenarioPlan&)>;
using Run = std::function<void(Scenario&)>;

struct Planted {
  uint32_t code;
  const char* fault;
  Run plant;
  const char* neighbour;
  Run legal;
  // What explains the finding, where the rule's own state always has another cause.
  uint32_t first = 0;
  ScenarioOptions options = {};
};

void PrintTo(const Planted& planted, std::ostream* out) {
  *out << rules::FindRule(planted.code)->name;
}

// Request a with 6 tokens in blocks 1, 2 and b with 5 in blocks 3, 4: slots 4..9 and 12..16.
Run Two(Edit edit) {
  return [edit = std::move(edit)](Scenario& s) {
    s.Admit("a", {{1, 2}}).Schedule("a", 6).Admit("b", {{3, 4}}).Schedule("b", 5).Step(edit);
  };
}

// Request a alone, one step of `tokens` in these blocks.
Run One(std::vector<int64_t> blocks, int64_t tokens, Edit edit = nullptr) {
  return [=](Scenario& s) { s.Admit("a", {blocks}).Schedule("a", tokens).Step(edit); };
}

// Four tokens of a are computed; then `next`.
Run Then(Run next) {
  return [next = std::move(next)](Scenario& s) {
    s.Admit("a", {{1, 2}}).Schedule("a", 4).Step();
    next(s);
  };
}

ScenarioOptions Narrow() {
  ScenarioOptions options;
  options.columns = 2;
  return options;
}

ScenarioOptions Drafts(uint32_t flags = 0) {
  ScenarioOptions options;
  options.engine_flags |= flags;
  options.max_drafts = 3;
  return options;
}

// A sliding window of 8 tokens: at position 16 it has left columns 0 and 1 behind.
ScenarioOptions Window8() {
  ScenarioOptions options;
  options.engine_flags |= KVGUARD_ENGINE_CONNECTOR;
  options.groups[0].kind = KVGUARD_GROUP_WINDOW;
  options.groups[0].window = 8;
  return options;
}

// 17 tokens of a are computed in blocks 1 to 5, b gets `blocks`, and a's count goes back to 8.
Run Reread(std::vector<int64_t> blocks) {
  return [=](Scenario& s) {
    s.Admit("a", {{1, 2, 3, 4, 5}}).Schedule("a", 16).Step();
    s.Schedule("a", 1).Admit("b", {blocks}).Schedule("b", 1).Step();
    s.Computed("a") = 8;
    s.Schedule("a", 1, 0, 8).Step();
  };
}

const std::vector<Planted>& All() {
  static const std::vector<Planted> all = {
      {rules::kRowUnknown, "a row of a request that waits",
       [](Scenario& s) {
         s.Admit("waiting", {{9}});
         Two([&](ScenarioPlan& p) { AddEmptyRow(p, s.Key("waiting")); })(s);
       },
       "the same row as padding",
       [](Scenario& s) {
         s.Admit("waiting", {{9}});
         Two([](ScenarioPlan& p) { p.Pad(1, 0); })(s);
       }},
      {rules::kRowMissing, "the second row is dropped",
       Two([](ScenarioPlan& p) { p = WithRows(p, {0}); }), "the second request waits",
       [](Scenario& s) { s.Admit("a", {{1, 2}}).Schedule("a", 6).Admit("b", {{3, 4}}).Step(); }},
      {rules::kRowDuplicate, "a request has a second, empty row",
       Two([](ScenarioPlan& p) { AddEmptyRow(p, p.requests[0]); }), "the rows change places",
       Two([](ScenarioPlan& p) { p = WithRows(p, {1, 0}); })},
      {rules::kQueryLengthMismatch, "the boundary between two rows is one token off",
       Two([](ScenarioPlan& p) { --p.query_start[1]; }), "a chunk is as short as it was scheduled",
       [](Scenario& s) {
         s.Admit("a", {{1, 2}}).Schedule("a", 5).Admit("b", {{3, 4}}).Schedule("b", 5).Step();
       }},
      {rules::kQueryStartMalformed, "query offsets fall",
       Two([](ScenarioPlan& p) { p.query_start = {0, 11, 6}; }),
       "offsets of padding rows repeat the number of tokens",
       Two([](ScenarioPlan& p) { p.Pad(3, 0); })},
      {rules::kBlockOutOfRange, "the block behind the last one is bound", One({1, 64}, 6),
       "the last block is bound", One({1, 63}, 6)},
      {rules::kBlockNull, "the null block is bound", One({1, 0}, 6),
       "columns behind the row show the null block",
       One({1, 2}, 6, [](ScenarioPlan& p) { p.Table(0, 0, 2) = 0; })},
      {rules::kBlockRepeated, "a block is bound in both columns", One({1, 1}, 6),
       "two requests share a block as their prefix",
       [](Scenario& s) {
         s.Admit("a", {{1, 2}}).Schedule("a", 6);
         s.Admit("b", {{1, 3}}, 4).Schedule("b", 2).Step();
       }},
      {rules::kCapacityShort, "five tokens for one block of four", One({1}, 5),
       "four tokens for one block of four", One({1}, 4)},
      {rules::kRequestUnknown, "a key that was never admitted is scheduled",
       [](Scenario& s) { s.Admit("a", {{1}}).Schedule("a", 1).Schedule("ghost", 1).Step(); },
       "a key that was never admitted is finished",
       [](Scenario& s) { s.Admit("a", {{1}}).Schedule("a", 1).Finish("ghost").Step(); }},
      {rules::kRowTooWide, "three blocks in a row of two columns", One({1, 2, 3}, 6),
       "two blocks in a row of two columns", One({1, 2}, 6), 0, Narrow()},
      {rules::kTableMismatch, "a column shows the neighbour's block",
       Two([](ScenarioPlan& p) { p.Table(0, 0, 1) = 3; }),
       "a column behind the row shows the neighbour's block",
       Two([](ScenarioPlan& p) { p.Table(0, 0, 2) = 3; })},
      {rules::kTableNull, "a live column is zeroed",
       Two([](ScenarioPlan& p) { p.Table(0, 1, 0) = 0; }), "a dead column is zeroed",
       Two([](ScenarioPlan& p) { p.Table(0, 1, 2) = 0; })},
      {rules::kTableOutOfRange, "a live column shows an id outside the pool",
       Two([](ScenarioPlan& p) { p.Table(0, 0, 1) = 64; }), "a dead column shows garbage",
       Two([](ScenarioPlan& p) {
         p.Table(0, 0, 2) = -7;
         p.Table(0, 1, 9) = 1'000'000;
       })},
      {rules::kTableColumnsMismatch, "the engine counts a column less",
       Two([](ScenarioPlan& p) { p.groups[0].row_columns = {1, 2}; }),
       "the engine counts the bound columns",
       Two([](ScenarioPlan& p) { p.groups[0].row_columns = {2, 2}; })},
      {rules::kPaddedRowNotNull, "a padding row shows a block", Two([](ScenarioPlan& p) {
         p.Pad(1, 0);
         p.Table(0, 2, 5) = 3;
       }),
       "padding rows are null", Two([](ScenarioPlan& p) { p.Pad(2, 0); })},
      {rules::kSlotMismatch, "a token is written one slot further",
       Two([](ScenarioPlan& p) { ++p.groups[0].slots[5]; }),
       "slots jump where the blocks are not neighbours", One({9, 2, 40}, 12)},
      {rules::kSlotNullBlock, "a token is written into block 0",
       Two([](ScenarioPlan& p) { p.groups[0].slots[0] = 3; }), "a token is written behind block 0",
       One({1}, 1)},
      {rules::kSlotPad, "a real token has the pad slot",
       Two([](ScenarioPlan& p) { p.groups[0].slots[10] = -1; }), "padding tokens have it",
       Two([](ScenarioPlan& p) { p.Pad(0, 5); })},
      {rules::kSlotOutOfRange, "the slot behind the pool",
       One({63}, 4, [](ScenarioPlan& p) { p.groups[0].slots[3] = 256; }), "the last slot of it",
       One({63}, 4)},
      {rules::kSlotWrittenTwice, "two tokens of a step on one slot",
       Two([](ScenarioPlan& p) { p.groups[0].slots[5] = p.groups[0].slots[4]; }),
       "a rejected draft's slot is written again a step later", Then([](Scenario& s) {
         s.Schedule("a", 3, 2).Step();
         s.Outcome(2, "a", 1, 2);
         s.Schedule("a", 1).Step();
       }),
       rules::kSlotMismatch, Drafts()},
      {rules::kPadSlotReal, "a padding token has a slot of the pool", Two([](ScenarioPlan& p) {
         p.Pad(0, 3);
         p.groups[0].slots[12] = 40;
       }),
       "padding tokens have the pad slot", Two([](ScenarioPlan& p) { p.Pad(0, 3); })},
      {rules::kSeqLenMismatch, "a row reads a token that nobody wrote",
       Two([](ScenarioPlan& p) { ++p.seq_lens[1]; }), "a row reads what earlier steps wrote",
       Then([](Scenario& s) { s.Schedule("a", 2).Step(); })},
      {rules::kPaddedSeqLen, "a padding row reads a token", Two([](ScenarioPlan& p) {
         p.Pad(2, 0);
         p.seq_lens[3] = 1;
       }),
       "padding rows read nothing", Two([](ScenarioPlan& p) { p.Pad(2, 0); })},
      {rules::kBlockOwned, "a live request's block is handed out as new",
       Then([](Scenario& s) { s.Admit("b", {{2}}).Schedule("a", 1).Schedule("b", 1).Step(); }),
       "a finished request's block is handed out in the same step",
       Then([](Scenario& s) { s.Finish("a").Admit("b", {{2}}).Schedule("b", 1).Step(); })},
      {rules::kForeignWrite, "a token is written into the neighbour's block",
       Two([](ScenarioPlan& p) { p.groups[0].slots[0] = 12; }),
       "a token is written behind a prefix that both hold",
       [](Scenario& s) {
         s.Admit("a", {{1, 2}}).Schedule("a", 6).Step();
         s.Admit("b", {{1, 3}}, 4).Schedule("b", 2).Schedule("a", 1).Step();
       },
       rules::kSlotMismatch},
      {rules::kTwoWriters, "a hit is taken back and written by both",
       [](Scenario& s) {
         s.Admit("a", {{1, 2}}).Schedule("a", 6);
         s.Admit("b", {{1, 3}}, 4).Rollback("b", 4).Schedule("b", 6).Step();
       },
       "a hit is kept",
       [](Scenario& s) {
         s.Admit("a", {{1, 2}}).Schedule("a", 6);
         s.Admit("b", {{1, 3}}, 4).Schedule("b", 2).Step();
       }},
      {rules::kReadStale, "the count goes back to where the window's columns were given away",
       Reread({2}), "it goes back, and nobody has got them", Reread({9}), 0, Window8()},
      {rules::kContentMisplaced, "a prefix hit names the blocks in the wrong order",
       [](Scenario& s) {
         s.Admit("a", {{1, 2, 3}}).Schedule("a", 9).Step();
         s.Admit("b", {{2, 1, 4}}, 8).Schedule("b", 1).Step();
       },
       "it names them in the order they were written",
       [](Scenario& s) {
         s.Admit("b", {{1, 2, 4}}, 8).Admit("a", {{1, 2, 3}}).Schedule("a", 9).Schedule("b", 1);
         s.Step();
       }},
      {rules::kFrontierMismatch, "a row starts one token early", Then([](Scenario& s) {
         s.Computed("a") = 3;
         s.Schedule("a", 1, 0, 4).Step();
       }),
       "a row starts behind what was computed",
       Then([](Scenario& s) { s.Schedule("a", 1).Step(); })},
      {rules::kCountAhead, "the scheduler counts a token that no step computed",
       Then([](Scenario& s) { s.Schedule("a", 1, 0, 5).Step(); }),
       "an asynchronous scheduler counts drafts that it does not know rejected",
       Then([](Scenario& s) {
         s.Schedule("a", 3, 2).Step();  // the scheduler now counts 7
         s.Outcome(2, "a", 1, 2);
         s.Schedule("a", 1, 0, 7).Step();
       }),
       0, Drafts(KVGUARD_ENGINE_ASYNC)},
      {rules::kPositionMismatch, "the positions of a row break off",
       Two([](ScenarioPlan& p) { p.positions[3] = 5; }),
       "the positions of a row start where its last step ended",
       Then([](Scenario& s) { s.Schedule("a", 3).Step(); })},
      {rules::kCountBehind, "the scheduler takes a token back", Then([](Scenario& s) {
         s.Computed("a") = 3;
         s.Schedule("a", 1).Step();
       }),
       "the scheduler takes back what was rejected", Then([](Scenario& s) {
         s.Schedule("a", 3, 2).Step();
         s.Outcome(2, "a", 2, 1);
         s.Schedule("a", 1).Step();
       })},
      {rules::kRejectedTooMany, "three of two drafts are rejected", Then([](Scenario& s) {
         s.Schedule("a", 3, 2).Step();
         s.Outcome(2, "a", 1, 3);
       }),
       "two of two drafts are rejected", Then([](Scenario& s) {
         s.Schedule("a", 3, 2).Step();
         s.Outcome(2, "a", 1, 2);
       })},
  };
  return all;
}

std::string NameOf(const testing::TestParamInfo<Planted>& info) {
  std::string name = rules::FindRule(info.param.code)->name;
  name.erase(std::remove(name.begin(), name.end(), '-'), name.end());
  return "KV0" + std::to_string(info.param.code) + "_" + name;
}

class PlantedTest : public testing::TestWithParam<Planted> {};

TEST_P(PlantedTest, Fires) {
  const Planted& planted = GetParam();
  SCOPED_TRACE(planted.fault);
  Scenario s(planted.options);
  planted.plant(s);
  const auto findings = s.Findings();
  const auto it = std::find_if(findings.begin(), findings.end(),
                               [&](const kvguard_finding& f) { return f.code == planted.code; });
  ASSERT_NE(it, findings.end()) << s.Report();
  const kvguard_rule& rule = *rules::FindRule(planted.code);
  EXPECT_EQ(it->grade, rule.grade);
  EXPECT_EQ(it->step, s.step()) << "found in the step that has the fault";
  if (rule.grade == KVGUARD_GRADE_SUSPICION) {
    EXPECT_EQ(s.verdict().verdict, static_cast<uint32_t>(KVGUARD_CLEAN));
    EXPECT_EQ(s.verdict().must_raise, 0u);
    EXPECT_EQ(s.verdict().proofs, 0u);
    EXPECT_EQ(s.verdict().suspicions, 1u);
    return;
  }
  const uint32_t first = planted.first != 0 ? planted.first : planted.code;
  EXPECT_EQ(findings[0].code, first) << s.Report();
  EXPECT_NE(findings[0].flags & KVGUARD_FINDING_FIRST_CAUSE, 0u);
  EXPECT_EQ(findings[0].because_of, 0u);
  EXPECT_EQ(it->because_of, planted.first) << s.Report();
  EXPECT_EQ(s.verdict().verdict, static_cast<uint32_t>(KVGUARD_VIOLATED));
  EXPECT_EQ(s.verdict().step_verdict, static_cast<uint32_t>(KVGUARD_VIOLATED));
  EXPECT_EQ(s.verdict().must_raise, 1u);
  EXPECT_EQ(s.verdict().violated_steps, 1u);
  EXPECT_EQ(s.verdict().first_violated_step, s.step());
}

TEST_P(PlantedTest, IsSilentOnItsNeighbour) {
  const Planted& planted = GetParam();
  SCOPED_TRACE(planted.neighbour);
  Scenario s(planted.options);
  planted.legal(s);
  EXPECT_TRUE(s.Findings().empty()) << s.Report();
  EXPECT_EQ(s.verdict().verdict, static_cast<uint32_t>(KVGUARD_CLEAN)) << s.error();
  EXPECT_EQ(s.verdict().suspicions, 0u);
}

// What is found does not depend on how wide the engine's arrays are.
TEST_P(PlantedTest, FindsTheSameInEveryElementType) {
  const Planted& planted = GetParam();
  std::string first;
  for (const bool wide_tables : {false, true}) {
    for (const bool narrow_slots : {false, true}) {
      ScenarioOptions options = planted.options;
      options.wide_tables = wide_tables;
      options.narrow_slots = narrow_slots;
      Scenario s(options);
      planted.plant(s);
      if (first.empty()) first = s.Report();
      EXPECT_EQ(s.Report(), first) << wide_tables << narrow_slots;
      Scenario legal(options);
      planted.legal(legal);
      EXPECT_EQ(legal.Report(), "") << wide_tables << narrow_slots;
    }
  }
  EXPECT_FALSE(first.empty());
}

INSTANTIATE_TEST_SUITE_P(Rules, PlantedTest, testing::ValuesIn(All()), NameOf);

TEST(Planted, EveryRuleOfTheCatalogHasOne) {
  std::map<uint32_t, size_t> planted;
  for (const Planted& each : All()) {
    ++planted[each.code];
    EXPECT_TRUE(each.plant && each.legal) << each.code;
  }
  const std::set<uint32_t> listed = CodesOfPlantedLists();
  for (const kvguard_rule& rule : rules::Catalog()) {
    const size_t here = planted.count(rule.code) != 0 ? planted[rule.code] : 0;
    EXPECT_TRUE(here == 1 || (here == 0 && listed.count(rule.code) != 0))
        << "KV" << rule.code << " " << rule.name << " has no planted example";
  }
  for (const auto& [code, count] : planted)
    EXPECT_NE(rules::FindRule(code), nullptr) << code << " is not in the catalog";
  for (const uint32_t code : listed) EXPECT_NE(rules::FindRule(code), nullptr) << code;
}

}  // namespace
}  // namespace kvguard::tests
