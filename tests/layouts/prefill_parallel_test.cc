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

TEST(PrefillParallel, WithoutPaddingTheSlotsMustSpreadOverTheRanks) {
  Scenario s(Options(2));
  s.Admit("a", {{9, 5}}).Tokens(Prompt(7)).Schedule("a", 7).Begin();
  ScenarioPlan plan = s.RightPlan();
  EXPECT_EQ(s.Plan(plan), KVGUARD_ERROR_ARGUMENT);  // 7 slots on two ranks
  EXPECT_NE(s.error().find("ranks"), std::string::npos) << s.error();
}

}  // namespace
}  // namespace kvguard::tests
