// SPDX-License-Identifier: Apache-2.0
// The fixture that other tests stand on: its plans, written out.
#include "audit/scenario.h"

#include <vector>

#include <gtest/gtest.h>

namespace kvguard::audit {
namespace {

using Ints = std::vector<int64_t>;

TEST(ScenarioPlan, HoldsWhatTheEngineWouldPlan) {
  Scenario s;
  s.Admit("a", {{7, 3, 12}}, 4).Schedule("a", 5).Admit("b", {{5}}).Schedule("b", 2).Begin();
  const ScenarioPlan p = s.RightPlan();
  EXPECT_EQ(p.requests, (std::vector<uint64_t>{s.Key("a"), s.Key("b")}));
  EXPECT_EQ(p.query_start, (Ints{0, 5, 7}));
  EXPECT_EQ(p.seq_lens, (Ints{9, 2}));
  EXPECT_EQ(p.positions, (Ints{4, 5, 6, 7, 8, 0, 1}));
  EXPECT_EQ(p.groups[0].slots, (Ints{12, 13, 14, 15, 48, 20, 21}));
  EXPECT_EQ(p.groups[0].columns, 16u);
  ScenarioPlan copy = p;
  EXPECT_EQ(copy.Table(0, 0, 1), 3);
  EXPECT_EQ(copy.Table(0, 1, 0), 5);
  EXPECT_EQ(copy.Table(0, 1, 1), 0);
}

// The example of the reference on kernel blocks: blocks of 64, kernel blocks of 16, row 5 9.
TEST(ScenarioPlan, CountsKernelBlocksInTheTableAndTokensInTheSlots) {
  ScenarioOptions options;
  options.groups = {{64, 16, KVGUARD_UNIT_KERNEL_BLOCK, 0}};
  Scenario s(options);
  s.Admit("a", {{5, 9}}, 70).Schedule("a", 1).Begin();
  ScenarioPlan p = s.RightPlan();
  for (size_t j = 0; j < 8; ++j)
    EXPECT_EQ(p.Table(0, 0, j), (j < 4 ? 20 : 32) + static_cast<int64_t>(j));
  EXPECT_EQ(p.groups[0].slots, Ints{582});
}

TEST(ScenarioPlan, PadsAsACapturedGraphDoes) {
  Scenario s;
  s.Admit("a", {{1}}).Schedule("a", 2).Begin();
  ScenarioPlan p = s.RightPlan();
  p.Pad(2, 3);
  EXPECT_EQ(p.padded_rows, 3u);
  EXPECT_EQ(p.padded_tokens, 5u);
  EXPECT_EQ(p.query_start, (Ints{0, 2, 2, 2}));
  EXPECT_EQ(p.seq_lens, (Ints{2, 0, 0}));
  EXPECT_EQ(p.groups[0].slots, (Ints{4, 5, -1, -1, -1}));
  EXPECT_EQ(p.groups[0].table.size(), 3u * 16u);
}

TEST(Scenario, CountsWhatAForwardComputed) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 3).Step();
  EXPECT_EQ(s.Computed("a"), 3);
  s.Schedule("a", 1).Begin();
  s.End(KVGUARD_END_NO_FORWARD);
  EXPECT_EQ(s.Computed("a"), 3);
  s.Schedule("a", 3, 2).Step();
  s.Outcome(3, "a", 2, 1);
  EXPECT_EQ(s.Computed("a"), 5);
  s.Rollback("a", 2).Begin();
  EXPECT_EQ(s.Computed("a"), 3);
}

TEST(Scenario, KeysAreNeverUsedTwice) {
  Scenario s;
  s.Admit("a", {{1}});
  const uint64_t first = s.Key("a");
  s.Finish("a").Admit("a", {{1}});
  EXPECT_NE(s.Key("a"), first);
  EXPECT_NE(s.Key("nobody"), s.Key("a"));
}

TEST(Scenario, AnotherGuardCanFollowTheSameEngine) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 3).Step();
  Scenario other;
  ASSERT_EQ(other.Restore(s.Snapshot()), KVGUARD_OK) << other.error();
  other.Follow(s);
  other.Schedule("a", 1).Step();
  EXPECT_EQ(other.step(), 2u);
  EXPECT_TRUE(other.Findings().empty()) << other.Report();
}

}  // namespace
}  // namespace kvguard::audit
