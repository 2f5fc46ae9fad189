// SPDX-License-Identifier: Apache-2.0
// Details of draft passes and micro-batches: where the model ends, what is bound, who is named.
#include <algorithm>
#include <cstdint>
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

std::vector<kvguard_finding> Of(const Scenario& s, uint32_t code) {
  std::vector<kvguard_finding> found = s.Findings();
  std::erase_if(found, [&](const kvguard_finding& f) { return f.code != code; });
  return found;
}

size_t Count(const Scenario& s, uint32_t code) { return Of(s, code).size(); }

ScenarioOptions ModelOf(uint64_t max_model_len) {
  ScenarioOptions options;
  options.max_model_len = max_model_len;
  return options;
}

ScenarioOptions WithoutNull() {
  ScenarioOptions options;
  options.null_block = KVGUARD_NONE;
  options.group_flags = 0;
  return options;
}

// b holds block 5, and a runs six tokens in 1 and 2; `pass` shows them all in b's block.
void SixInTheBlockOfB(Scenario& s, uint32_t pass, int64_t seq_len) {
  s.Admit("b", {{5}}).Schedule("b", 4).Step();
  s.Admit("a", {{1, 2}}).Schedule("a", 6).Begin();
  ScenarioPlan plan = s.RightPlan();
  plan.pass = pass;
  plan.seq_lens[0] = seq_len;
  plan.groups[0].slots = {20, 21, 22, 23, 20, 21};
  EXPECT_EQ(s.Plan(plan), KVGUARD_OK) << s.error();
}

// Tokens at or beyond the model's length are not judged in a draft pass, and its lengths stop
// there; 0: the model has no bound.
TEST(PassDetails, ADraftPassEndsWithTheModel) {
  for (const uint64_t most : {0, 1, 2, 5, 6, 9}) {
    Scenario s(ModelOf(most));
    const uint64_t tokens = most == 0 ? 6 : std::min<uint64_t>(most, 6);
    SixInTheBlockOfB(s, KVGUARD_PASS_DRAFT, static_cast<int64_t>(tokens));
    EXPECT_EQ(Only(s, rules::kSlotMismatch).count, tokens) << most;
    EXPECT_EQ(Only(s, rules::kForeignWrite).count, tokens) << most;
    EXPECT_EQ(Count(s, rules::kSeqLenMismatch), 0u) << s.Report();
  }
}

// The same of a draft that begins inside.
TEST(PassDetails, ADraftPassEndsWithTheModelWhereverItStarts) {
  Scenario s(ModelOf(4));
  s.Admit("b", {{5}}).Schedule("b", 4).Admit("a", {{1, 2}}).Schedule("a", 2).Step();
  s.Schedule("a", 4).Begin();
  ScenarioPlan plan = s.RightPlan();
  plan.pass = KVGUARD_PASS_DRAFT;
  plan.seq_lens[0] = 4;
  plan.groups[0].slots = {20, 21, 22, 23};
  EXPECT_EQ(s.Plan(plan), KVGUARD_OK) << s.error();
  EXPECT_EQ(Only(s, rules::kSlotMismatch).count, 2u);
  EXPECT_EQ(Only(s, rules::kForeignWrite).count, 2u);
  EXPECT_EQ(Count(s, rules::kSeqLenMismatch), 0u) << s.Report();
}

TEST(PassDetails, ATargetPassDoesNotEndWithTheModel) {
  for (const uint64_t most : {0, 1, 4}) {
    Scenario s(ModelOf(most));
    SixInTheBlockOfB(s, KVGUARD_PASS_TARGET, 6);
    EXPECT_EQ(Only(s, rules::kSlotMismatch).count, 6u) << most;
    EXPECT_EQ(Only(s, rules::kForeignWrite).count, 6u) << most;
    EXPECT_EQ(Count(s, rules::kSeqLenMismatch), 0u) << s.Report();
  }
}

TEST(PassDetails, TheBlockThatADraftWritesIsNamed) {
  Scenario s;
  SixInTheBlockOfB(s, KVGUARD_PASS_DRAFT, 6);
  const kvguard_finding found = Only(s, rules::kSlotMismatch);
  EXPECT_EQ(found.victim, s.Key("b"));
  EXPECT_EQ(found.victim_block, 5);
}

// Of a row that is right but for pads nothing is wrong; the next one is judged all the same.
TEST(PassDetails, EveryRowOfADraftPassIsJudged) {
  Scenario s;
  s.Admit("b", {{5}}).Schedule("b", 2).Admit("a", {{1}}).Schedule("a", 2).Begin();
  ScenarioPlan plan = s.RightPlan();
  plan.pass = KVGUARD_PASS_DRAFT;
  plan.groups[0].slots = {20, -1, 5, 4};
  EXPECT_EQ(s.Plan(plan), KVGUARD_OK) << s.error();
  const kvguard_finding found = Only(s, rules::kSlotMismatch);
  EXPECT_EQ(found.request, s.Key("a"));
  EXPECT_EQ(found.count, 2u);
  EXPECT_EQ(s.verdict().slots, 4u);
}

TEST(PassDetails, TheSlotsOfADraftPassAreCounted) {
  Scenario s;
  s.Admit("a", {{1}}).Schedule("a", 3).Begin();
  ScenarioPlan plan = s.RightPlan();
  plan.pass = KVGUARD_PASS_DRAFT;
  plan.Pad(0, 2);
  plan.groups[0].slots[4] = 9;
  EXPECT_EQ(s.Plan(plan), KVGUARD_OK) << s.error();
  EXPECT_EQ(Count(s, rules::kPadSlotReal), 1u) << s.Report();
  EXPECT_EQ(s.verdict().slots, 5u);
  uint64_t judged = 0;
  std::vector<kvguard_coverage_row> rows(64);
  rows[0].size = sizeof(kvguard_coverage_row);
  size_t count = 0;
  ASSERT_EQ(kvguard_coverage(s.guard(), rows.data(), rows.size(), &count, nullptr), KVGUARD_OK);
  for (size_t i = 0; i < count; ++i) {
    if (rows[i].pass == KVGUARD_PASS_DRAFT && rows[i].family == KVGUARD_FAMILY_SLOT)
      judged += rows[i].judged;
  }
  EXPECT_EQ(judged, 5u);
}

// A column that is bound to what no table can hold has no right slot and no wrong one.
TEST(PassDetails, AnUnknownColumnOfADraftIsNotJudged) {
  Scenario s;
  s.Admit("b", {{5}}).Schedule("b", 4).Step();
  s.Admit("a", {{1, int64_t{1} << 40}}).Schedule("a", 6).Begin();
  ScenarioPlan plan = s.RightPlan();
  plan.pass = KVGUARD_PASS_DRAFT;
  plan.groups[0].slots = {4, 5, -1, 7, 20, 21};
  EXPECT_EQ(s.Plan(plan), KVGUARD_OK) << s.error();
  EXPECT_EQ(Count(s, rules::kSlotMismatch), 0u) << s.Report();
  EXPECT_EQ(Count(s, rules::kForeignWrite), 0u) << s.Report();
}

// Beyond what is bound no slot is right; a slot that is none names nobody.
TEST(PassDetails, BeyondWhatIsBoundOnlyARealSlotNamesWhoHoldsIt) {
  struct {
    int64_t slot;
    bool named;
  } const cases[] = {{0, true}, {3, true}, {-2, false}, {256, false}, {20, true}};
  for (const auto& [slot, named] : cases) {
    Scenario s(WithoutNull());
    s.Admit("b", {{0, 5}}).Schedule("b", 8).Step();
    s.Admit("a", {{1}}).Schedule("a", 4).Step();
    s.Schedule("a", 1).Begin();
    ScenarioPlan plan = s.RightPlan();
    plan.pass = KVGUARD_PASS_DRAFT;
    plan.groups[0].slots = {slot};
    EXPECT_EQ(s.Plan(plan), KVGUARD_OK) << s.error();
    const kvguard_finding found = Only(s, rules::kSlotMismatch);
    EXPECT_EQ(found.grade, uint32_t{KVGUARD_GRADE_SUSPICION}) << slot;
    EXPECT_EQ(found.victim, named ? s.Key("b") : 0) << slot;
  }
}

// A padded slot names who holds it, too.
TEST(PassDetails, APaddedSlotThatIsNoneNamesNobody) {
  for (const int64_t slot : {-2, 256}) {
    Scenario s(WithoutNull());
    s.Admit("b", {{0}}).Schedule("b", 4).Step([&](ScenarioPlan& p) {
      p.Pad(0, 1);
      p.groups[0].slots.back() = slot;
    });
    EXPECT_EQ(Only(s, rules::kPadSlotReal).victim, 0u) << slot;
  }
}

// Two ranks share each column: the slot of another rank's token.
TEST(PassDetails, ADraftThatWritesAnotherRanksTokenNamesWhoHoldsIt) {
  ScenarioOptions options;
  options.dcp_size = 2;
  Scenario s(options);
  s.Admit("b", {{5}}).Schedule("b", 8).Step();
  s.Admit("a", {{1}}).Schedule("a", 2).Begin();
  ScenarioPlan plan = s.RightPlan();
  plan.pass = KVGUARD_PASS_DRAFT;
  plan.groups[0].slots = {4, 20};
  EXPECT_EQ(s.Plan(plan), KVGUARD_OK) << s.error();
  const kvguard_finding found = Only(s, rules::kSlotNotLocal);
  EXPECT_EQ(found.pos, 1);
  EXPECT_EQ(found.victim, s.Key("b"));
}

// After eight findings of a row no more are looked for; the eighth is told whole.
TEST(PassDetails, TheEighthForeignRunIsToldWhole) {
  Scenario s;
  std::vector<int64_t> slots;
  for (int64_t i = 0; i < 9; ++i) {
    s.Admit("b" + std::to_string(i), {{20 + i}}).Schedule("b" + std::to_string(i), 4);
    slots.insert(slots.end(), {(20 + i) * 4, (20 + i) * 4 + 1});
  }
  s.Step();
  s.Admit("a", {{1, 2, 3, 4, 5}}).Schedule("a", 18).Step([&](ScenarioPlan& p) {
    p.groups[0].slots = slots;
  });
  const auto found = Of(s, rules::kForeignWrite);
  ASSERT_EQ(found.size(), 8u) << s.Report();
  for (const kvguard_finding& f : found) EXPECT_EQ(f.count, 2u);
  EXPECT_EQ(found[7].victim, s.Key("b7"));
}

}  // namespace
}  // namespace kvguard::tests
