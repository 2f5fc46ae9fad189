// SPDX-License-Identifier: Apache-2.0
// The slots of all ranks of prefill context parallelism, in one plan.
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "rules/catalog.h"
#include "tests/layouts/planted.h"
#include "tests/rules/values.h"

namespace kvguard::tests {
namespace {

using audit::Scenario;
using audit::ScenarioOptions;
using audit::ScenarioPlan;
using Run = std::function<void(Scenario&)>;
using Slots = std::vector<int64_t>;

ScenarioOptions Options(uint32_t layout, uint32_t ranks = 2) {
  ScenarioOptions options;
  options.pcp_size = ranks;
  options.pcp_layout = layout;
  options.max_drafts = 3;
  return options;
}

Slots Prompt(int64_t tokens) {
  Slots prompt;
  for (int64_t i = 0; i < tokens; ++i) prompt.push_back(i + 1);
  return prompt;
}

std::function<void(ScenarioPlan&)> Shows(const Slots& slots) {
  return [=](ScenarioPlan& p) {
    p.groups[0].slots = slots;
    p.padded_tokens = p.positions.size();
  };
}

// 7 tokens of a prompt of 7.
Run Seven(const Slots& slots) {
  return [=](Scenario& s) {
    s.Admit("a", {{9, 5}}).Tokens(Prompt(7)).Schedule("a", 7).Step(Shows(slots));
  };
}

// 7 tokens behind 8 of a prompt of 20.
Run Behind(const Slots& slots) {
  return [=](Scenario& s) {
    s.Admit("a", {{9, 5, 7, 3}}, 8).Tokens(Prompt(20)).Schedule("a", 7).Step(Shows(slots));
  };
}

// A decode at position 5 and a prefill of 4, in this order.
Run Mixed(const Slots& slots) {
  return [=](Scenario& s) {
    s.Admit("d", {{3, 8}}, 5).Tokens(Prompt(5)).Admit("p", {{6}}).Tokens(Prompt(4));
    s.Schedule("d", 1).Schedule("p", 4).Step(Shows(slots));
  };
}

// B116: 4 tokens of a decode with drafts and 2 of another, padded to 8 a rank.
Run Padded(int64_t sixth, int64_t seventh) {
  return [=](Scenario& s) {
    s.Admit("n", {{9, 10}}).Tokens(Prompt(8)).Schedule("n", 8);
    s.Step(Shows({36, 37, 42, 43, 38, 39, 40, 41}));
    s.Admit("q", {{6, 7, 13, 14}}, 10).Tokens(Prompt(10)).Admit("r", {{1, 2}}, 5).Tokens(Prompt(5));
    s.Schedule("q", 4, 3).Schedule("r", 2, 1);
    s.Step(Shows({54, 55, 56, 57, 9, 10, sixth, seventh, -1, -1, -1, -1, -1, -1, -1, -1}));
  };
}

const Slots kSeven = {36, 37, 22, -1, 38, 39, 20, 21};

Slots With(size_t at, int64_t slot) {
  Slots slots = kSeven;
  slots[at] = slot;
  return slots;
}

const std::map<std::string, PlantedScenario>& All() {
  static const std::map<std::string, PlantedScenario> all = {
      {"layout-1-prefill", {Options(1), Seven({22, 36, 37, -1, 38, 39, 20, 21})}},
      {"layout-2-prefill", {Options(2), Seven(kSeven)}},
      {"layout-2-prefill-with-context", {Options(2), Behind({28, 29, 14, -1, 30, 31, 12, 13})}},
      {"layout-1-decode-beside-prefill", {Options(1), Mixed({33, 27, 24, -1, 25, 26})}},
      {"layout-2-decode-replicated", {Options(2), Mixed({33, 24, 27, -1, 25, 26})}},
      {"layout-3-decode-sharded", {Options(3), Mixed({33, 24, 27, 25, 26, -1})}},
      {"prefill-of-one-token",
       {Options(2),
        [](Scenario& s) {
          s.Admit("p", {{6}}).Tokens(Prompt(1)).Schedule("p", 1).Step(Shows({24, -1}));
        }}},
      {"four-ranks", {Options(2, 4), Seven({36, -1, 37, 22, 38, 21, 39, 20})}},
      {"B116-slab-padded-by-a-common-count", {Options(2), Padded(38, 39)}},
      {"wrong-order-in-a-rank", {Options(2), Seven({22, 36, 37, -1, 38, 39, 20, 21})}},
      {"replicated-row-written-twice", {Options(2), Mixed({33, 24, 27, 33, 25, 26})}},
      {"sharded-row-on-the-wrong-rank", {Options(3), Mixed({24, 27, -1, 33, 25, 26})}},
      {"token-is-never-written", {Options(2), Seven(With(2, -1))}},
      {"slabs-too-short",
       {Options(2),
        [](Scenario& s) {
          s.Admit("d", {{3, 8}}, 4).Tokens(Prompt(4)).Schedule("d", 4, 3);
          s.Step(Shows({32, 33, -1, -1}));
        }}},
      {"token-in-a-foreign-block",
       {Options(2),
        [](Scenario& s) {
          s.Admit("o", {{30}}).Tokens(Prompt(1)).Schedule("o", 1).Step(Shows({120, -1}));
          s.Admit("a", {{9, 5}}).Tokens(Prompt(7)).Schedule("a", 7).Step(Shows(With(5, 121)));
        }}},
      {"dummy-with-a-slot",
       {Options(2),
        [](Scenario& s) {
          Seven(kSeven)(s);
          ScenarioPlan p;
          p.pass = KVGUARD_PASS_DUMMY;
          p.query_start = {0};
          p.padded_tokens = 4;
          p.groups.resize(1);
          p.groups[0].table_present = false;
          p.groups[0].slots = {-1, -1, -1, -1, -1, -1, 5, -1};
          s.Plan(p);
        }}},
  };
  return all;
}

TEST(PrefillParallel, EachPlantedFaultIsFoundAndNothingElse) {
  CheckPlantedList("prefill_parallel_faults.txt", All());
}

TEST(PrefillParallel, AForeignBlockNamesItsOwner) {
  const PlantedScenario& planted = All().at("token-in-a-foreign-block");
  Scenario s(planted.options);
  planted.run(s);
  const std::vector<kvguard_finding> findings = s.Findings();
  ASSERT_EQ(findings.size(), 2u) << s.Report();
  EXPECT_EQ(findings[0].pos, 3);
  EXPECT_EQ(findings[1].code, rules::kForeignWrite);
  EXPECT_EQ(findings[1].victim, s.Key("o"));
}

ScenarioOptions WithoutNull(uint32_t layout = 2) {
  ScenarioOptions options = Options(layout);
  options.null_block = KVGUARD_NONE;
  options.group_flags = 0;
  return options;
}

// o holds block 30, and a computes seven tokens beside it.
void Beside(Scenario& s, const Slots& slots, int64_t block = 30) {
  s.Admit("o", {{block}}).Tokens(Prompt(1)).Schedule("o", 1).Step(Shows({block * 4, -1}));
  Seven(slots)(s);
}

size_t Count(const Scenario& s, uint32_t code) {
  size_t count = 0;
  for (const kvguard_finding& f : s.Findings()) count += f.code == code;
  return count;
}

TEST(PrefillParallel, AWrongSlotSaysWhatWasExpectedAndWhomItHits) {
  Scenario s(Options(2));
  Beside(s, With(5, 121));
  const Want wrong = {.code = rules::kSlotMismatch,
                      .request = "a",
                      .group = 0,
                      .row = 0,
                      .pos = 3,
                      .expected = 39,
                      .observed = 121,
                      .victim = "o",
                      .victim_block = 30,
                      .first = 0,
                      .last = 3,
                      .since = 1};
  Want foreign = wrong;
  foreign.code = rules::kForeignWrite;
  foreign.expected = kNone;
  Expect(s, {wrong, foreign});
}

// Only the first token in a foreign block is told, in the order of the array; wrong slots once for
// each code.
TEST(PrefillParallel, ARowIsToldOnce) {
  Scenario s(Options(2));
  Slots slots = With(5, 121);
  slots[6] = 122;
  slots[7] = 300;
  Beside(s, slots);
  EXPECT_EQ(Only(s, rules::kSlotMismatch).pos, 3);
  EXPECT_EQ(Only(s, rules::kForeignWrite).pos, 3);
  EXPECT_EQ(Only(s, rules::kSlotOutOfRange).pos, 5);
}

// Nobody holds the null block or what is out of the pool, whatever stands in his row.
TEST(PrefillParallel, ASlotOfTheNullBlockOrOfNoneHitsNobody) {
  for (const int64_t block : {0, 64}) {
    Scenario s(Options(2));
    Beside(s, With(5, block * 4), block);
    EXPECT_EQ(Count(s, rules::kForeignWrite), 0u) << s.Report();
    for (const uint32_t code : {rules::kSlotNullBlock, rules::kSlotOutOfRange}) {
      for (const kvguard_finding& f : s.Findings()) {
        if (f.code == code) {
          EXPECT_EQ(f.victim, 0u) << s.Report();
        }
      }
    }
  }
}

// A negative slot is no slot of the first block.
TEST(PrefillParallel, OnlyARealSlotOfTheFirstBlockHitsItsHolder) {
  for (const int64_t slot : {-2, 0, 3}) {
    Scenario s(WithoutNull());
    Beside(s, With(5, slot), 0);
    EXPECT_EQ(Count(s, rules::kForeignWrite), slot < 0 ? 0u : 1u) << slot << s.Report();
  }
}

// A slot in the row's own block at its position is wrong, not foreign, though others share it.
TEST(PrefillParallel, TheOwnBlockIsNotForeign) {
  for (const int64_t slot : {22, 37}) {
    Scenario s(Options(2));
    s.Admit("o", {{9, 5}}).Tokens(Prompt(8)).Schedule("o", 8);
    s.Step(Shows({36, 37, 22, 23, 38, 39, 20, 21}));
    s.Admit("a", {{9, 5}}, 7).Tokens(Prompt(8)).Schedule("a", 1).Step(Shows({slot, -1}));
    EXPECT_EQ(Count(s, rules::kSlotMismatch), 1u) << s.Report();
    EXPECT_EQ(Count(s, rules::kForeignWrite), slot == 22 ? 0u : 1u) << s.Report();
  }
}

// A rank that should not write names whose slot it writes.
TEST(PrefillParallel, ARankThatShouldNotWriteNamesWhomItHits) {
  Scenario s(Options(2));
  s.Admit("o", {{30}}).Tokens(Prompt(1)).Schedule("o", 1).Step(Shows({120, -1}));
  Mixed({33, 24, 27, 121, 25, 26})(s);
  const kvguard_finding found = Only(s, rules::kSlotNotLocal);
  EXPECT_EQ(found.pos, 5);
  EXPECT_EQ(found.victim, s.Key("o"));
}

TEST(PrefillParallel, ARealPadNamesWhomItHits) {
  struct {
    int64_t slot;
    bool held;
  } const cases[] = {{121, true}, {-2, false}, {256, false}, {200, false}};
  for (const auto& [slot, held] : cases) {
    Scenario s(Options(2));
    Beside(s, With(3, slot));
    const kvguard_finding found = Only(s, rules::kPadSlotReal);
    EXPECT_EQ(found.pos, 3);
    EXPECT_EQ(found.expected, -1);
    EXPECT_EQ(found.observed, slot);
    EXPECT_EQ(found.victim, held ? s.Key("o") : 0u) << slot;
  }
  for (const int64_t slot : {-2, 0}) {
    Scenario s(WithoutNull());
    Beside(s, With(3, slot), 0);
    EXPECT_EQ(Only(s, rules::kPadSlotReal).victim, slot == 0 ? s.Key("o") : 0u) << slot;
  }
}

TEST(PrefillParallel, SlotsOfAllRanksAreCounted) {
  Scenario s(Options(2));
  Seven(kSeven)(s);
  EXPECT_EQ(s.verdict().slots, 8u);
}

// Layout 3: decodes go to the ranks in turn. A row without tokens takes no turn, known or not.
TEST(PrefillParallel, DecodesTakeTurns) {
  Scenario s(Options(3));
  for (const std::string name : {"d0", "d1", "d2"}) {
    const int64_t block = 10 + name[1] - '0';
    s.Admit(name, {{block}}, 2).Tokens(Prompt(2)).Schedule(name, 1);
  }
  s.Step(Shows({42, 50, 46, -1}));
  EXPECT_EQ(s.Report(), "");
  s.Schedule("d0", 1).Schedule("d1", 1).Step([](ScenarioPlan& p) {
    p.requests.insert(p.requests.begin(), 77);
    p.query_start.insert(p.query_start.begin(), 0);
    p.seq_lens.insert(p.seq_lens.begin(), 0);
    p.padded_rows = 3;
    p.groups[0].table.insert(p.groups[0].table.begin(), p.groups[0].columns, 0);
    p.groups[0].slots = {43, 47};
  });
  EXPECT_EQ(Count(s, rules::kRowUnknown), 1u) << s.Report();
  EXPECT_EQ(s.Findings().size(), 1u) << s.Report();
}

// A token that its rank's slots do not reach is never written, whatever stands first in the next
// rank's.
TEST(PrefillParallel, ATokenBeyondItsRankIsNotWrittenByTheNext) {
  Scenario s(Options(2));
  s.Admit("d", {{3, 8}}, 4).Tokens(Prompt(4)).Schedule("d", 4, 3);
  s.Step(Shows({32, 33, 34, -1}));
  EXPECT_EQ(Only(s, rules::kSlotPad).pos, 6);
}

TEST(PrefillParallel, WithoutPaddingTheSlotsMustSpreadOverTheRanks) {
  Scenario s(Options(2));
  s.Admit("a", {{9, 5}}).Tokens(Prompt(7)).Schedule("a", 7).Begin();
  ScenarioPlan plan = s.RightPlan();
  EXPECT_EQ(s.Plan(plan), KVGUARD_ERROR_ARGUMENT);  // 7 slots on two ranks
  EXPECT_NE(s.error().find("ranks"), std::string::npos) << s.error();
}

}  // namespace
}  // namespace kvguard::tests
