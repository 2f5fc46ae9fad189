// SPDX-License-Identifier: Apache-2.0
// Of how many tokens each state is, and where it stands: what a hit of it finds, and which blocks
// of a row may move on.
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
using audit::ScenarioPlan;

size_t Count(const Scenario& s, uint32_t code) {
  const std::vector<kvguard_finding> found = s.Findings();
  return static_cast<size_t>(std::count_if(
      found.begin(), found.end(), [&](const kvguard_finding& f) { return f.code == code; }));
}

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

const std::vector<int64_t> kBlocks = {1, 2, 3, 4, 5, 6};
const std::vector<int64_t> kRow = {31, 32, 33, 34, 35, 36};

// Whether a request that counts so many tokens as computed finds another state in that block.
bool Strays(Scenario& s, int64_t block, int64_t computed) {
  std::vector<int64_t> row(static_cast<size_t>((computed - 1) / 4), 0);
  row.push_back(block);
  const size_t before = Count(s, rules::kContentMisplaced);
  s.Admit("reader", {{}, row}, computed).Begin();
  return Count(s, rules::kContentMisplaced) > before;
}

struct Leaves {
  uint32_t mode;
  std::vector<int64_t> steps;  // tokens
  int64_t block;
  int64_t is;  // the tokens of its state; 0: not known
};

// A step leaves the state of all tokens in their column; in mode ALL that of every column that it
// fills, too. In mode ALIGN a boundary that it crosses may be stored where it came from.
TEST(StateTokens, AStepLeavesTheStatesOfItsTokens) {
  const uint32_t all = KVGUARD_STATE_ALL;
  const uint32_t align = KVGUARD_STATE_ALIGN;
  const Leaves cases[] = {
      {all, {3}, 31, 3},        {all, {4}, 31, 4},      {all, {10}, 31, 4},
      {all, {10}, 32, 8},       {all, {10}, 33, 10},    {all, {10}, 34, 0},
      {all, {3, 2}, 31, 4},     {all, {3, 2}, 32, 5},   {all, {10, 1}, 32, 8},
      {all, {3, 9}, 33, 12},    {all, {4, 4}, 31, 4},   {align, {3}, 31, 3},
      {align, {10}, 33, 10},    {align, {10}, 32, 0},   {align, {10}, 31, 0},
      {align, {3, 1}, 31, 4},   {align, {3, 2}, 31, 0}, {align, {3, 2}, 32, 5},
      {align, {4, 1}, 31, 4},   {align, {4, 4}, 31, 4}, {align, {4, 5}, 31, 0},
      {align, {8, 1}, 32, 8},   {align, {8, 4}, 32, 8}, {align, {8, 5}, 32, 0},
      {align, {7, 1}, 32, 8},   {align, {7, 2}, 32, 0}, {align, {5, 2}, 32, 7},
      {align, {1, 2}, 31, 3},   {align, {1, 9}, 31, 0}, {align, {6, 7}, 32, 0},
      {align, {12, 4}, 33, 12},
  };
  for (const Leaves& c : cases) {
    const int64_t column = c.block - 31;
    for (int64_t computed = column * 4 + 1; computed <= column * 4 + 4; ++computed) {
      Scenario s(States(c.mode));
      s.Admit("w", {{10, 11}, {50, 51}}).Schedule("w", 5).Step();  // so that a is not the first
      s.Admit("a", {kBlocks, kRow});
      for (const int64_t tokens : c.steps) s.Schedule("a", tokens).Step();
      EXPECT_EQ(Strays(s, c.block, computed), c.is != 0 && c.is != computed)
          << c.mode << testing::PrintToString(c.steps) << c.block << " " << computed << s.Report();
    }
  }
}

// Drafts may be rejected, and an abandoned step may have stopped anywhere: of how many tokens the
// states are is not known.
TEST(StateTokens, OfDraftsAndAbandonedStepsNothingIsKnown) {
  for (const int how : {0, 1, 2, 3, 4, 5}) {
    for (int64_t computed = 1; computed <= 4; ++computed) {
      const uint32_t mode = how == 5 ? KVGUARD_STATE_ALL : KVGUARD_STATE_ALIGN;
      Scenario s(States(mode, how == 3 ? KVGUARD_ENGINE_ASYNC : 0));
      s.Admit("a", {kBlocks, kRow});
      if (how == 0) s.Schedule("a", 3).Step();
      if (how == 1) s.Schedule("a", 3, 2).Step();
      if (how == 4) s.Schedule("a", 2).Step();
      if (how == 2 || how == 4 || how == 5) {
        s.Schedule("a", how == 4 ? 1 : 3).Begin();
        s.Plan(s.RightPlan());
        s.End(KVGUARD_END_ABANDONED);
      }
      if (how == 3) {  // the second step's start is not known
        s.Schedule("a", 2, 1).Step();
        s.Schedule("a", 1).Step();
      }
      EXPECT_EQ(Strays(s, 31, computed), how == 0 && computed != 3)
          << how << computed << s.Report();
    }
  }
}

// What stands in a row as tokens has none as a state, nor what lies on the host.
TEST(StateTokens, OnlyStatesOfTheDeviceHaveTokens) {
  Scenario s(States(KVGUARD_STATE_ALIGN, 0, 0));
  s.Admit("a", {{1, 2}, {31, 32}}).Schedule("a", 3).Step();
  s.Admit("b", {{3}, {1}}, 4).Begin();
  EXPECT_EQ(Only(s, rules::kContentMisplaced).observed, kNone);
  ScenarioOptions options = States(KVGUARD_STATE_ALIGN);
  options.groups[1].host = true;
  Scenario host(options);
  host.Admit("a", {{1, 2}, {31, 32}}).Schedule("a", 3).Step([](ScenarioPlan& p) {
    p.groups[1].present = false;
  });
  EXPECT_FALSE(Strays(host, 31, 4)) << host.Report();
}

// A row that is too short, or holds what is none, leaves no state there.
TEST(StateTokens, AStateWithoutABlockIsLeftNowhere) {
  for (const uint32_t mode : {KVGUARD_STATE_NONE, KVGUARD_STATE_ALIGN, KVGUARD_STATE_ALL}) {
    for (const int64_t block : {int64_t{1} << 40, int64_t{64}, int64_t{0}, int64_t{-3}}) {
      Scenario s(States(mode));
      s.Admit("a", {kBlocks, {block}}).Schedule("a", 3).Step();
      s.Schedule("a", 6).Step();
      EXPECT_EQ(Count(s, rules::kCapacityShort), mode == KVGUARD_STATE_NONE ? 0u : 1u);
    }
    Scenario s(States(mode));
    s.Admit("a", {kBlocks, {31}}).Schedule("a", 4).Step();
    s.Schedule("a", 1).Step();
    if (mode == KVGUARD_STATE_NONE) continue;
    EXPECT_TRUE(Strays(s, 31, 3)) << s.Report();
  }
}

// A column whose claim has ended is written by nobody: its block is another's.
TEST(StateTokens, AColumnWithoutAClaimIsNotWritten) {
  Scenario s(States(KVGUARD_STATE_ALL));
  s.Admit("a", {kBlocks, kRow}).Schedule("a", 8).Step();
  s.Admit("b", {{10}, {31}}).Schedule("b", 2).Step();
  s.Rollback("a", 8).Schedule("a", 4).Step();
  EXPECT_FALSE(Strays(s, 31, 2)) << s.Report();
}

// A state that was hit may be stored over where its new request came from.
TEST(StateTokens, AHitThatARequestGoesOnFromMayBeStoredOver) {
  for (const int64_t tokens : {1, 2, 3}) {
    Scenario s(States(KVGUARD_STATE_ALIGN));
    s.Admit("w", {{10, 11}, {0, 50}}).Schedule("w", 6).Step();
    s.Admit("a", {kBlocks, kRow}).Schedule("a", 5).Step();
    s.Schedule("a", 3, 2).Step();
    s.Outcome(s.step(), "a", 1, 2);  // 6 tokens again
    s.Replace("a", {31, 50, 33, 34}, 1).Schedule("a", tokens).Step();
    const bool known = tokens < 3;  // at 8 tokens the boundary is not crossed
    EXPECT_EQ(Strays(s, 50, 5), known) << tokens << s.Report();
  }
}

// --- places ---

// Of a count that no step has led to the place is not known: any source may be right.
TEST(StateTokens, OfACountThatNoStepLedToThePlaceIsNotKnown) {
  struct {
    int64_t back;
    bool known;
  } const cases[] = {{0, true}, {1, false}, {3, false}};
  for (const auto& [back, known] : cases) {
    Scenario s(States(KVGUARD_STATE_ALIGN));
    s.Admit("a", {kBlocks, kRow}).Schedule("a", 7).Step();
    if (back > 0) s.Rollback("a", back);
    s.Schedule("a", 1).Step([](ScenarioPlan& p) { p.groups[1].in[0] = 60; });
    EXPECT_EQ(Count(s, rules::kStateMismatch), known ? 1u : 0u) << back << s.Report();
  }
}

TEST(StateTokens, AfterAnAbandonedStepThePlaceIsNotKnown) {
  Scenario s(States(KVGUARD_STATE_ALIGN));
  s.Admit("a", {kBlocks, kRow}).Schedule("a", 5).Step();
  s.Schedule("a", 1).Begin();
  s.Plan(s.RightPlan());
  s.End(KVGUARD_END_ABANDONED);
  s.Schedule("a", 1).Step([](ScenarioPlan& p) { p.groups[1].in[0] = 60; });
  EXPECT_EQ(Count(s, rules::kStateMismatch), 0u) << s.Report();
}

// After five tokens and two drafts, of which `rejected` were not accepted, the states of 6, 7 and 8
// tokens stand in columns 1, 2 and 3, and that of 8 in column 1 besides. What cannot be the place
// of the row's count may move on.
TEST(StateTokens, OnlyWhatIsNoPlaceMovesOn) {
  struct {
    int rejected;  // -1: not told
    int64_t block;
    bool moves;
  } const cases[] = {
      {0, 31, true}, {0, 32, false},  {0, 33, true},   {0, 34, false},  {0, 35, true},
      {1, 32, true}, {1, 33, false},  {1, 34, true},   {2, 32, false},  {2, 33, true},
      {2, 34, true}, {-1, 32, false}, {-1, 33, false}, {-1, 34, false}, {-1, 35, true},
  };
  for (const auto& [rejected, block, moves] : cases) {
    Scenario s(States(KVGUARD_STATE_ALIGN, KVGUARD_ENGINE_ASYNC));
    s.Admit("a", {kBlocks, {31, 32, 33, 34, 35}}).Schedule("a", 5).Step();
    s.Schedule("a", 3, 2).Step();
    if (rejected >= 0) {
      s.Outcome(s.step(), "a", static_cast<uint32_t>(3 - rejected),
                static_cast<uint32_t>(rejected));
    }
    s.Append("a", {block}, 1).Begin();
    EXPECT_EQ(Count(s, rules::kBlockRepeated), moves ? 0u : 1u) << rejected << block << s.Report();
    EXPECT_EQ(Count(s, rules::kBlockOwned), 0u) << s.Report();
  }
}

// A step of drafts alone may come to nothing: no tokens have no state. One has.
TEST(StateTokens, NoTokensHaveNoPlace) {
  struct {
    int64_t block;
    bool moves;
  } const cases[] = {{31, true}, {32, false}, {33, false}, {34, true}};
  for (const auto& [block, moves] : cases) {
    Scenario s(States(KVGUARD_STATE_ALIGN, KVGUARD_ENGINE_ASYNC));
    s.Admit("a", {kBlocks, {31, 32, 33, 34}}).Schedule("a", 2, 2).Step();
    s.Append("a", {block}, 1).Begin();
    EXPECT_EQ(Count(s, rules::kBlockRepeated), moves ? 0u : 1u) << block << s.Report();
  }
  for (const int64_t computed : {0, 1}) {
    Scenario s(States(KVGUARD_STATE_ALIGN));
    s.Admit("a", {kBlocks, {31, 32, 33}}, computed).Append("a", {31}, 1).Begin();
    EXPECT_EQ(Count(s, rules::kBlockRepeated), computed == 0 ? 0u : 1u) << s.Report();
  }
}

}  // namespace
}  // namespace kvguard::tests
