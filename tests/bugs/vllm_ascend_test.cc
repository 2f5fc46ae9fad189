// SPDX-License-Identifier: Apache-2.0
// Public bugs of vLLM-Ascend: the sketches of cases_vllm_ascend.toml.
#include "tests/bugs/bug_test.h"

namespace kvguard::tests {
namespace {

BUG(B021, vllm_ascend_pull_15417, Geometry::Full(128, 64).NarrowSlots()) {
  p.s.Admit("Q", {{11}});
  p.Run({{"Q", 0, 98}});
  p.s.Finish("Q").Admit("N", {{11}});
  p.Run({{"N", 0, 100}});
  p.Dummy(Ints(8, -1));
  p.Dummy(p.wrong ? Range(1498, 1505) : Ints(8, -1), KVGUARD_STAGE_FINAL);
}

BUG(B023, vllm_ascend_issues_10245, Geometry::Full(16, 64).Flags(kConnector)) {
  p.s.Admit("R", {{21, 22, 23}});
  p.Run({{"R", 0, 40}});
  p.Dummy({-1});
  p.Told(kSend, "R", p.wrong ? Ints{0, 0, 0} : Ints{21, 22, 23}, 1);
}

BUG(B074, vllm_ascend_issues_9098,
    Geometry::Full(128, 700).Columns(625).ModelLen(80000).Drafts(2)) {
  p.s.Admit("R", {Range(1, 625)});
  p.Run({{"R", 0, 79999}});
  p.Begin({{"R", 79999}});
  p.Show();
  ScenarioPlan draft = Draft(p.s.RightPlan(), 1, {79999}, 128);
  EXPECT_EQ(draft.groups[0].slots, Ints{80127});
  EXPECT_EQ(draft.seq_lens, Ints{80000});
  if (p.wrong) draft.seq_lens = {80001};
  p.Pass(draft);
  p.End();
}

BUG(B081, vllm_ascend_pull_11466,
    Geometry::Full(1024, 64).State(kStateAlign, 1024, 0).Columns(wrong ? 4 : 6).Drafts(2)) {
  p.s.Admit("R", {{1, 2, 3, 4}, {0, 0, 0, 31, 32, 33}});
  p.Run({{"R", 0, 4000}});
}

BUG(B092, vllm_ascend_pull_10032, Geometry::Full(16, 64).Flags(kAsync).Drafts(3)) {
  p.s.Admit("R", {{2, 4, 6, 8, 10}});
  p.Run({{"R", 0, 46}});
  p.Begin({{"R", 46, 4, 3}});
  p.Show();
  p.End();
  p.Begin({{"R", 50, 4, 3}});
  p.Told(2, "R", 2);
  p.Show([&](ScenarioPlan& plan) {
    EXPECT_EQ(plan.groups[0].slots, Range(128, 131));
    EXPECT_EQ(plan.seq_lens, Ints{52});
    if (!p.wrong) return;
    plan.positions = Range(50, 53);
    plan.seq_lens = {54};
    plan.groups[0].slots = Range(130, 133);
  });
  p.End();
}

BUG(B095, vllm_ascend_pull_11699, Geometry::Full(16, 64).Drafts(3)) {
  p.s.Admit("R", {{5, 6, 7}});
  p.Run({{"R", 0, 38}});
  p.Begin({{"R", 38, 4, 3}});
  p.Show();
  p.End();
  p.Told(2, "R", 2);
  p.Run({{"R", 40, 2, 1}}, [&](ScenarioPlan& plan) {
    EXPECT_EQ(plan.groups[0].slots, (Ints{120, 121}));
    if (p.wrong) plan.groups[0].slots = {122, 123};
  });
}

BUG(B115, vllm_ascend_pull_14534, Geometry::Full(4, 64).Ranks(0, 2, 1)) {
  p.s.Admit("R", {{7, 8}});
  p.Run({{"R", 0, 6}});
  p.Run({{"R", 6, 1}}, nullptr, [&](ScenarioPlan& plan) {
    EXPECT_EQ(plan.groups[0].slots, Ints{31});
    if (p.wrong) plan.groups[0].slots = {34};
  });
}

BUG(B116, vllm_ascend_pull_8547, Geometry::Full(16, 64).Prefill(2, 2).Drafts(3)) {
  p.s.Admit("Q", {{1, 2}}).Tokens(Range(1, 10)).Admit("R", {{3}}).Tokens(Range(1, 5));
  p.s.Admit("N", {{9}}).Tokens(Range(1, 8));
  p.Run({{"Q", 0, 10}, {"R", 0, 5}, {"N", 0, 8}}, [](ScenarioPlan& plan) {
    plan.groups[0].slots = Ints{16, 17, 18, 25, 48, 49, 144, 145, 150, 151, -1, -1, -1} +
                           Range(19, 24) + Range(50, 52) + Range(146, 149);
  });
  p.Run({{"Q", 10, 4, 3}, {"R", 5, 2, 1}}, [&](ScenarioPlan& plan) {
    plan.groups[0].slots =
        Ints{26, 27, 28, 29, 53, 54} + (p.wrong ? Ints{150, 151} : Ints{-1, -1}) + Ints(8, -1);
  });
}

BUG(B123, vllm_ascend_pull_13965, Geometry::Full(128, 64).Flags(kConnector)) {
  p.s.Admit("R", {{5, 6}}, 128);
  p.s.Blocks(kLoad, "R", p.wrong ? Range(40, 47) : Ints{5}, 1).Blocks(kLoadDone, "", {}, 1);
  p.Run({{"R", 128, 1}});
}

BUG(B127, vllm_ascend_pull_12781, Geometry::Full(16, 64).Flags(kPrefix | kConnector)) {
  p.s.Admit("P", {{7}}).Tokens(Seq('p', 0, 15));
  p.Run({{"P", 0, 16}});
  p.s.Admit("R", {{7, 3, 4, 5}}, 48).Tokens(Seq('p', 0, 15) + Seq('x', 16, 48));
  p.s.Blocks(kLoad, "R", {3, 4}, 1, p.wrong ? 0 : 16).Blocks(kLoadDone, "", {}, 1);
  p.Run({{"R", 48, 1}});
}

BUG(B145, vllm_ascend_pull_5647, Geometry::Full(16, 64)) {
  p.s.Admit("Q", {{2}}).Admit("R", {{3}});
  p.Run({{"Q", 0, 8}, {"R", 0, 12}});
  p.Run({{"Q", 8, 4}}, [](ScenarioPlan& plan) { EXPECT_EQ(plan.groups[0].slots, Range(40, 43)); });
  p.Run({{"R", 12, 2}}, [&](ScenarioPlan& plan) {
    plan.Pad(0, 2);
    EXPECT_EQ(plan.groups[0].slots, (Ints{60, 61, -1, -1}));
    if (p.wrong) plan.groups[0].slots = {60, 61, 42, 43};
  });
}

}  // namespace
}  // namespace kvguard::tests
