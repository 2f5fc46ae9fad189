// SPDX-License-Identifier: Apache-2.0
// What a step leaves for the next: claims and hits that are given back, content that is written
// anew, encoders, copies of states.
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

size_t Count(const Scenario& s, uint32_t code) {
  const std::vector<kvguard_finding> found = s.Findings();
  return static_cast<size_t>(std::count_if(
      found.begin(), found.end(), [&](const kvguard_finding& f) { return f.code == code; }));
}

uint64_t Judged(const Scenario& s, uint32_t family) {
  std::vector<kvguard_coverage_row> rows(256);
  rows[0].size = sizeof(kvguard_coverage_row);
  size_t count = 0;
  kvguard_coverage(s.guard(), rows.data(), rows.size(), &count, nullptr);
  uint64_t judged = 0;
  for (size_t i = 0; i < count; ++i) judged += rows[i].family == family ? rows[i].judged : 0;
  return judged;
}

ScenarioOptions Beside(uint32_t kind, uint32_t pool = 1, bool host = false) {
  ScenarioGroup group;
  group.kind = kind;
  group.pool = pool;
  group.host = host;
  if (kind == KVGUARD_GROUP_STATE) group.state_mode = KVGUARD_STATE_ALIGN;
  ScenarioOptions options;
  options.groups.push_back(group);
  options.max_drafts = 2;
  if (kind == KVGUARD_GROUP_CROSS) options.engine_flags |= KVGUARD_ENGINE_ENCODER;
  return options;
}

void WithoutSecond(ScenarioPlan& plan) { plan.groups[1].present = false; }

// --- hits that are given back ---

// Of the hits of two requests in two groups, those count that still stand.
TEST(Claims, HitsThatAreGivenBackAreNotJudged) {
  struct {
    const char* name;
    int64_t columns;
    uint32_t group;
    uint64_t judged;
  } const cases[] = {{"r", 3, 0, 7}, {"r", 2, 0, 6}, {"r", 0, 0, 4}, {"r", 0, 1, 6},
                     {"q", 1, 1, 6}, {"q", 0, 0, 6}, {"q", 0, 1, 5}};
  for (const auto& [name, columns, group, judged] : cases) {
    Scenario s(Beside(KVGUARD_GROUP_FULL));
    s.Admit("r", {{5, 6, 7}, {5}}, 12).Admit("q", {{5}, {5, 6}}, 12);
    s.Truncate(name, columns, group).Begin();
    EXPECT_EQ(Judged(s, KVGUARD_FAMILY_CONTENT), judged) << name << columns << group;
  }
}

// What is bound in the column of a hit that was given back is no hit.
TEST(Claims, AFreshBlockInTheColumnOfAHitIsNoHit) {
  Scenario s;
  s.Admit("w", {{7}}).Schedule("w", 4).Step();
  s.Finish("w").Admit("q", {{7}}, 4).Admit("r", {{5, 6}}, 8).Truncate("r", 1).Rollback("r", 8);
  s.Append("r", {7}).Truncate("r", 1).Admit("c", {{7}}).Begin();
  EXPECT_EQ(Count(s, rules::kBlockOwned), 0u) << s.Report();
}

// Hits of a row that was emptied say nothing of those that follow.
TEST(Claims, AHitBeforeThoseThatWereGivenBackIsGivenBackToo) {
  ScenarioOptions options;
  options.groups[0].kind = KVGUARD_GROUP_WINDOW;
  options.groups[0].window = 4;
  Scenario s(options);
  s.Admit("w", {{5}}).Schedule("w", 4).Step();
  s.Admit("r", {{20, 21, 22}}, 12).Truncate("r", 0).Rollback("r", 8);
  s.Append("r", {5}).Truncate("r", 0).Admit("c", {{5}}).Begin();
  EXPECT_EQ(Count(s, rules::kBlockOwned), 1u) << s.Report();
}

// --- content that was lost ---

struct LostCase {
  uint32_t kind;             // of the group that w writes block 5 in
  std::vector<int64_t> row;  // w's there
  int64_t ran;               // tokens of w before 5 lost its content
  int64_t tokens;            // and those of the step after
  uint32_t drafts = 0;
  bool written = false;
};

// A step that ended has written blocks from their first token on: they have content again.
TEST(Claims, AStepThatWritesABlockFromItsFirstTokenFillsIt) {
  const LostCase cases[] = {
      {KVGUARD_GROUP_FULL, {5, 6}, 0, 1, 0, true},
      {KVGUARD_GROUP_FULL, {5, 6}, 1, 3, 0, false},
      {KVGUARD_GROUP_FULL, {6, 5}, 0, 4, 0, false},
      {KVGUARD_GROUP_FULL, {6, 5}, 0, 5, 0, true},
      {KVGUARD_GROUP_FULL, {6, 5}, 4, 1, 0, true},
      {KVGUARD_GROUP_FULL, {6, 7, 5}, 0, 5, 0, false},
      {KVGUARD_GROUP_STATE, {5, 6, 7}, 0, 3, 0, true},
      {KVGUARD_GROUP_STATE, {5, 6, 7}, 1, 2, 0, false},
      {KVGUARD_GROUP_STATE, {5, 6, 7}, 0, 5, 0, false},
      {KVGUARD_GROUP_STATE, {6, 5, 7}, 0, 5, 0, true},
      {KVGUARD_GROUP_STATE, {6, 7, 5}, 0, 3, 2, true},
      {KVGUARD_GROUP_STATE, {6, 7, 8, 5}, 0, 3, 2, false},
      {KVGUARD_GROUP_CROSS, {5, 6}, 0, 1, 0, true},
      {KVGUARD_GROUP_CROSS, {6, 5}, 0, 1, 0, true},
      {KVGUARD_GROUP_CROSS, {6, 7, 5}, 0, 1, 0, false},
      {KVGUARD_GROUP_CROSS, {5, 6}, 1, 1, 0, false},
  };
  for (const LostCase& c : cases) {
    Scenario s(Beside(c.kind, 0));
    s.Admit("w", {{1, 2, 3}, c.row});
    if (c.kind == KVGUARD_GROUP_CROSS) s.Domain(KVGUARD_DOMAIN_ENCODER, 7, 0, 6);
    if (c.ran > 0) s.Schedule("w", c.ran);
    s.Step(WithoutSecond);
    s.Blocks(KVGUARD_EVENT_LOAD, "", {5}, 1).Blocks(KVGUARD_EVENT_LOAD_FAILED, "", {5}, 1);
    s.Step(WithoutSecond);
    s.Schedule("w", c.tokens, c.drafts).Step(WithoutSecond);
    s.Admit("b", {{5, 9}, {}}, 4).Schedule("b", 1).Begin();
    size_t of_b = 0;
    for (const kvguard_finding& f : s.Findings())
      of_b += f.code == rules::kFailedLoadUsed && f.request == s.Key("b");
    EXPECT_EQ(of_b, c.written ? 0u : 1u)
        << c.kind << testing::PrintToString(c.row) << c.ran << c.tokens << c.drafts << s.Report();
  }
}

// --- encoders ---

// The columns of the encoder's tokens are written, all of them and no others, and once.
TEST(Claims, AnEncoderWritesItsColumnsOnce) {
  struct {
    int64_t tokens;
    size_t column;
    bool two;
  } const cases[] = {{5, 0, true}, {5, 1, true}, {5, 2, false}, {4, 0, true}, {4, 1, false}};
  for (const bool again : {false, true}) {
    for (const auto& [tokens, column, two] : cases) {
      Scenario s(Beside(KVGUARD_GROUP_CROSS));
      s.Admit("w", {{1}, {31, 32, 33}}).Domain(KVGUARD_DOMAIN_ENCODER, 7, 0, tokens);
      s.Schedule("w", 1);
      if (again) s.Step(WithoutSecond);
      std::vector<int64_t> row = {41, 42, 43};
      row[column] = static_cast<int64_t>(31 + column);
      if (again) s.Schedule("w", 1);
      s.Admit("v", {{2}, row}).Domain(KVGUARD_DOMAIN_ENCODER, 7, 0, tokens).Schedule("v", 1);
      s.Begin();
      EXPECT_EQ(Count(s, rules::kTwoWriters), two && !again ? 1u : 0u)
          << tokens << column << s.Report();
    }
  }
}

// An abandoned step may have stopped before the encoder had run.
TEST(Claims, AnAbandonedStepHasNotWrittenTheEncoder) {
  for (const uint32_t flags : {0u, uint32_t{KVGUARD_END_ABANDONED}}) {
    Scenario s(Beside(KVGUARD_GROUP_CROSS));
    s.Admit("a", {{1}, {31, 32}}).Domain(KVGUARD_DOMAIN_ENCODER, 7, 0, 6).Schedule("a", 1).Begin();
    s.End(flags);
    s.Schedule("a", 1, 0, flags == 0 ? 1 : 0).Begin();
    EXPECT_EQ(s.Plan(Cross(s.RightPlan(), {6}, {false})), KVGUARD_OK) << s.error();
    EXPECT_EQ(Count(s, rules::kQueryLengthMismatch), flags == 0 ? 0u : 1u) << s.Report();
  }
}

// Slots of cross-attention are missed where a step writes an encoder's output.
TEST(Claims, SlotsOfAnEncoderAreMissedWhereItIsWritten) {
  struct {
    int64_t tokens;
    bool again;
    bool missed;
  } const cases[] = {{1, false, true}, {6, false, true}, {6, true, false}, {0, false, false}};
  for (const auto& [tokens, again, missed] : cases) {
    Scenario s(Beside(KVGUARD_GROUP_CROSS));
    s.Admit("a", {{1}, {31, 32}});
    if (tokens > 0) s.Domain(KVGUARD_DOMAIN_ENCODER, 7, 0, tokens);
    s.Schedule("a", 1);
    if (again) {
      s.Step(WithoutSecond);
      s.Schedule("a", 1);
    }
    s.Begin();
    ScenarioPlan plan = s.RightPlan();
    plan.groups[1].present = false;
    s.Plan(plan);
    ScenarioPlan cross = Cross(s.RightPlan(), {tokens}, {!again});
    cross.groups[1].slots_present = false;
    EXPECT_EQ(s.Plan(cross), KVGUARD_OK) << s.error();
    s.End();
    EXPECT_EQ(s.verdict().step_verdict,
              missed ? uint32_t{KVGUARD_CANNOT_JUDGE} : uint32_t{KVGUARD_CLEAN})
        << tokens << again << s.Report();
  }
}

// --- states ---

// A copy is good for the step that it was done in.
TEST(Claims, ACopyOfAStateIsGoodForItsStepAlone) {
  for (const bool now : {true, false}) {
    Scenario s(Beside(KVGUARD_GROUP_STATE));
    s.Admit("a", {{1, 2}, {31, 32}}).Schedule("a", 2).Step();
    const auto copy = [&] {
      s.Blocks(KVGUARD_EVENT_COPY, "", {31, 50}, 0, 0, 1);
      s.Blocks(KVGUARD_EVENT_COPY_DONE, "", {31, 50}, 0, 0, 1);
    };
    if (!now) {
      copy();
      s.Step();
    }
    if (now) copy();
    s.Schedule("a", 1).Step([](ScenarioPlan& p) { p.groups[1].in[0] = 50; });
    EXPECT_EQ(Count(s, rules::kStateMismatch), now ? 0u : 1u) << s.Report();
  }
}

// A block that is bound as fresh keeps no state of before.
TEST(Claims, AFreshBlockHoldsNoState) {
  for (const bool fresh : {true, false}) {
    Scenario s(Beside(KVGUARD_GROUP_STATE));
    s.Admit("a", {{1}, {31}}).Schedule("a", 3).Step();
    s.Finish("a");
    if (fresh) s.Admit("c", {{2}, {31}});
    s.Step();
    s.Admit("b", {{1, 3}, {31, 33}}, 4).Begin();
    EXPECT_EQ(Count(s, rules::kContentMisplaced), fresh ? 0u : 1u) << s.Report();
  }
}

// Each step's micro-batches begin anew.
TEST(Claims, MicroBatchesOfAStepBeginAnew) {
  Scenario s;
  s.Admit("a", {{1, 2}});
  for (int step = 0; step < 2; ++step) {
    s.Schedule("a", 3).Begin();
    const ScenarioPlan whole = s.RightPlan();
    s.Plan(MicroBatch(whole, 0, {{0, 0, 2}}));
    s.Plan(MicroBatch(whole, 1, {{0, 2, 1}}));
    s.End();
  }
  EXPECT_EQ(s.Report(), "");
}

}  // namespace
}  // namespace kvguard::tests
