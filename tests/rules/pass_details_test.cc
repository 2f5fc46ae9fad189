// SPDX-License-Identifier: Apache-2.0
// Details of draft passes and micro-batches: where the model ends, what is bound, who is named.
#include <algorithm>
#include <cstdint>
#include <string>
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
    const std::string name = {'b', static_cast<char>('0' + i)};
    s.Admit(name, {{20 + i}}).Schedule(name, 4);
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

// --- micro-batches ---

// a has six tokens; `cuts` are those of its micro-batches.
void Parts(Scenario& s, const std::vector<Cut>& cuts) {
  s.Admit("a", {{1, 2}}).Schedule("a", 6).Begin();
  const ScenarioPlan whole = s.RightPlan();
  uint32_t index = 0;
  for (const Cut& cut : cuts) s.Plan(MicroBatch(whole, index++, {cut}));
  s.End();
}

TEST(PassDetails, AMicroBatchSaysWhatWasLeftForIt) {
  Scenario s;
  Parts(s, {{0, 0, 4}, {0, 1, 3}});
  const kvguard_finding found = Only(s, rules::kQueryLengthMismatch);
  EXPECT_EQ(found.expected, 2);
  EXPECT_EQ(found.observed, 3);
}

TEST(PassDetails, WhatNoMicroBatchHadSaysHowMuchThereWas) {
  Scenario s;
  Parts(s, {{0, 0, 4}});
  Expect(s, {{.code = rules::kMicroBatchMissing,
              .request = "a",
              .pos = 4,
              .expected = 6,
              .observed = 4}});
}

// Of a window, the first part of a row reads what the second does not: at each stage it is found
// anew.
TEST(PassDetails, WhatAPartReadsStaleIsFoundAtEachStage) {
  ScenarioOptions options;
  options.groups[0].kind = KVGUARD_GROUP_WINDOW;
  options.groups[0].window = 2;
  Scenario s(options);
  s.Admit("a", {{1, 2}}).Schedule("a", 4).Step();
  s.Admit("b", {{1}}).Schedule("a", 4).Begin();  // 0601: a still reads it
  const ScenarioPlan whole = s.RightPlan();
  for (const uint32_t stage : {KVGUARD_STAGE_PLANNED, KVGUARD_STAGE_FINAL}) {
    for (const Cut& cut : {Cut{0, 0, 1}, Cut{0, 1, 3}}) {
      ScenarioPlan part = MicroBatch(whole, static_cast<uint32_t>(cut.first), {cut});
      part.stage = stage;
      EXPECT_EQ(s.Plan(part), KVGUARD_OK) << s.error();
    }
  }
  EXPECT_EQ(Count(s, rules::kReadStale), 2u) << s.Report();
}

// While a start is open a part is compared from its own first token on.
TEST(PassDetails, APartWithAnOpenStartReadsItsOwnWindow) {
  for (const size_t column : {size_t{1}, size_t{2}}) {
    ScenarioOptions options;
    options.groups[0].kind = KVGUARD_GROUP_WINDOW;
    options.groups[0].window = 2;
    options.max_drafts = 2;
    options.engine_flags |= KVGUARD_ENGINE_ASYNC;
    Scenario s(options);
    s.Admit("a", {{1, 2, 3, 4}}).Schedule("a", 4).Step();
    s.Schedule("a", 3, 2).Step();  // 5 to 7 tokens
    s.Schedule("a", 4).Begin();
    const ScenarioPlan whole = s.RightPlan();
    s.Plan(
        MicroBatch(whole, 0, {{0, 0, 2}}));  // 2 tokens, and none behind them: it reads from 8 on
    ScenarioPlan part = MicroBatch(whole, 1, {{0, 2, 0}});
    part.Table(0, 0, column) = 50;
    EXPECT_EQ(s.Plan(part), KVGUARD_OK) << s.error();
    EXPECT_EQ(Count(s, rules::kTableMismatch), column == 1 ? 0u : 1u) << s.Report();
  }
}

// --- draft passes ---

// A draft row without tokens has no length.
TEST(PassDetails, ADraftRowWithoutTokensHasNoLength) {
  for (const int64_t tokens : {0, 1}) {
    Scenario s;
    s.Admit("a", {{1, 2}}).Schedule("a", 4).Step();
    s.Schedule("a", 1).Begin();
    ScenarioPlan plan = s.RightPlan();
    plan.pass = KVGUARD_PASS_DRAFT;
    plan.seq_lens = {9};
    if (tokens == 0) {
      plan.query_start = {0, 0};
      plan.positions = {};
      plan.groups[0].slots = {};
      plan.padded_tokens = 0;
    }
    EXPECT_EQ(s.Plan(plan), KVGUARD_OK) << s.error();
    EXPECT_EQ(Count(s, rules::kSeqLenMismatch), tokens == 0 ? 0u : 1u) << s.Report();
  }
}

// After 5 tokens, a draft of index k stands k - 1 tokens further, or at the model's last.
TEST(PassDetails, ADraftStandsBehindWhatIsValid) {
  struct {
    uint64_t model;
    uint32_t index;
    int64_t position;
    int64_t expected;  // kNone: it is right
  } const cases[] = {
      {0, 1, 5, kNone}, {0, 2, 6, kNone},  {0, 3, 7, kNone}, {0, 2, 5, 6},
      {0, 2, 7, 6},     {64, 2, 6, kNone}, {64, 2, 5, 6},    {6, 2, 5, kNone},
      {6, 2, 6, 5},     {6, 3, 5, kNone},  {64, 1, 4, 5},    {64, 3, 900, 7},
  };
  for (const auto& c : cases) {
    Scenario s(ModelOf(c.model));
    s.Admit("a", {{1, 2}}).Schedule("a", 5).Begin();
    const ScenarioPlan whole = s.RightPlan();
    s.Plan(whole);
    s.Plan(Draft(whole, c.index, {c.position}));
    if (c.expected == kNone) {
      EXPECT_EQ(Count(s, rules::kFrontierMismatch), 0u) << c.index << s.Report();
      continue;
    }
    const kvguard_finding found = Only(s, rules::kFrontierMismatch);
    EXPECT_EQ(found.pos, c.expected);
    EXPECT_EQ(found.expected, c.expected);
    EXPECT_EQ(found.observed, c.position);
  }
}

// A model of one token: what follows it stands on it.
TEST(PassDetails, ADraftOfAModelOfOneTokenStandsOnIt) {
  Scenario s(ModelOf(1));
  s.Admit("a", {{1}}).Schedule("a", 1).Begin();
  const ScenarioPlan whole = s.RightPlan();
  s.Plan(whole);
  s.Plan(Draft(whole, 1, {0}));
  EXPECT_EQ(s.Report(), "");
}

// --- cross-attention, host pools ---

ScenarioOptions CrossOptions() {
  ScenarioGroup cross;
  cross.kind = KVGUARD_GROUP_CROSS;
  ScenarioOptions options;
  options.groups = {ScenarioGroup{}, cross};
  options.engine_flags |= KVGUARD_ENGINE_ENCODER;
  return options;
}

// Before the encoder's output is written a row has all of its tokens; afterwards all or none.
TEST(PassDetails, ACrossPassSaysHowManyTokensItShouldHave) {
  for (const bool again : {false, true}) {
    Scenario s(CrossOptions());
    s.Admit("a", {{1, 2}, {8, 9}}).Domain(KVGUARD_DOMAIN_ENCODER, 7, 0, 6).Schedule("a", 5);
    if (again) {
      s.Step([](ScenarioPlan& p) { p.groups[1].present = false; });
      s.Schedule("a", 1);
    }
    s.Begin();
    ScenarioPlan plan = Cross(s.RightPlan(), {6}, {true});
    plan.query_start = {0, 3};
    plan.positions.resize(3);
    plan.groups[1].slots.resize(3);
    plan.padded_tokens = 3;
    EXPECT_EQ(s.Plan(plan), KVGUARD_OK) << s.error();
    const kvguard_finding found = Only(s, rules::kQueryLengthMismatch);
    EXPECT_EQ(found.expected, again ? 0 : 6);
    EXPECT_EQ(found.observed, 3);
  }
}

// A cross-attention pass says nothing of other groups, no other pass of cross-attention, and no
// pass of what lies on the host.
TEST(PassDetails, APassSaysNothingOfGroupsItDoesNotRun) {
  for (const bool host : {true, false}) {
    ScenarioOptions options = CrossOptions();
    if (host) {
      options.groups[1] = ScenarioGroup{};
      options.groups[1].pool = 1;
      options.groups[1].host = true;
    }
    Scenario s(options);
    s.Admit("a", {{1, 2}, {8, 9}});
    if (!host) s.Domain(KVGUARD_DOMAIN_ENCODER, 7, 0, 6);
    s.Schedule("a", 5).Begin();
    ScenarioPlan plan = s.RightPlan();
    plan.Table(1, 0, 0) = 50;
    plan.groups[1].slots[0] = 200;
    EXPECT_EQ(s.Plan(plan), KVGUARD_OK) << s.error();
    EXPECT_EQ(s.Report(), "");
    if (host) continue;
    plan = Cross(s.RightPlan(), {6}, {true});
    plan.groups[0].present = true;
    plan.groups[0].slots = {200, 201, 202, 203, 204, 205};
    plan.Table(0, 0, 0) = 50;
    EXPECT_EQ(s.Plan(plan), KVGUARD_OK) << s.error();
    EXPECT_EQ(s.Report(), "");
  }
}

}  // namespace
}  // namespace kvguard::tests
