// SPDX-License-Identifier: Apache-2.0
// Public bugs of vLLM's other plugins, add-ons and connectors: the sketches of
// cases_vllm_plugins.toml.
#include "tests/bugs/bug_test.h"

namespace kvguard::tests {
namespace {

BUG(B001, vllm_tt_plugin_pull_103, Geometry::Full(64, 160)) {
  p.s.Admit("A", {Range(1, 54)});
  p.Run({{"A", 0, 3456}});
  p.s.Admit("B", {Range(55, 86)});
  p.Run({{"B", 0, 2048}});
  p.s.Append("A", {98}).Append("B", Range(87, 97));
  const bool residue = p.wrong || p.RightOf(2) == 1;
  p.Run({{"A", 3456, 1}, {"B", 2048, 704}}, [&](ScenarioPlan& plan) {
    plan.groups[0].row_columns = {55, p.wrong ? 54 : 43};
    for (size_t column = 43; residue && column < 54; ++column)
      plan.Table(0, 1, column) = static_cast<int64_t>(column + 1);
  });
}

BUG(B004, tt_metal_issues_56324, Geometry::Full(64, 64)) {
  p.s.Admit("N", {Range(30, 40)});
  p.Run({{"N", 0, 704}});
  p.s.Admit("R", {Range(9, 13)});
  p.Run({{"R", 0, 300}}, [&](ScenarioPlan& plan) {
    plan.Pad(0, 724);
    for (size_t place = 300; p.wrong && place < 1024; ++place) {
      const auto offset = static_cast<int64_t>(place);
      plan.groups[0].slots[place] = place < 320 ? 13 * 64 + offset - 256 : 30 * 64 + offset - 320;
    }
  });
}

BUG(B006, LMCache_pull_2007, Geometry::Full(16, 64).Flags(kConnector)) {
  p.s.Admit("R", {{4, 5, 6}});
  p.Run({{"R", 0, 34}});
  p.s.Preempt("R").Admit("S", {{4, 5, 6}});
  p.Run({{"S", 0, 40}});
  p.s.Admit("R", {{1, 2, 3}}, 32);
  p.s.Blocks(kLoad, "R", p.wrong ? Ints{4, 5} : Ints{1, 2}, 1).Blocks(kLoadDone, "", {}, 1);
  p.Run({{"R", 32, 2}, {"S", 40, 1}});
}

// Both pools have the larger one's size here, and neither a null block.
BUG(B015, vllm_rbln_pull_549,
    Geometry::Full(16, 64).NoNull().And(kCross, 0, 1500, 1).Flags(kEncoder)) {
  p.s.Admit("Q", {{1}, {0}}).Domain(KVGUARD_DOMAIN_ENCODER, 1, 0, 1500);
  p.Begin({{"Q", 0, 4}});
  p.Show(HideGroup1);
  p.Pass(Cross(p.s.RightPlan(), {1500}, {true}, 1500));
  p.End();
  p.Told(1, "Q");
  p.s.Finish("Q").Admit("R", {{2}, {1}}).Domain(KVGUARD_DOMAIN_ENCODER, 2, 0, 1500);
  p.Begin({{"R", 0, 4}});
  p.Show(HideGroup1);
  ScenarioPlan cross = Cross(p.s.RightPlan(), {1500}, {true}, 1500);
  EXPECT_EQ(cross.groups[1].slots, Range(1500, 2999));
  if (p.wrong) cross.Table(1, 0, 0) = 0;
  p.Pass(cross);
  p.End();
}

BUG(B028, kvcached_pull_398, Geometry::Full(16, 64).State(kStateNone, 16, 0)) {
  p.s.Admit("R", {{1}, {p.wrong ? 0 : 2}});
  p.Run({{"R", 0, 10}});
}

BUG(B036, dynamo_issues_826, Geometry::Full(16, 64).Flags(kConnector)) {
  p.s.Admit("R", {{7, 8}});
  p.Run({{"R", 0, 32}});
  p.s.Blocks(kSend, "R", {7, 8}, 1).Finish("R");
  p.Idle();
  if (!p.wrong) p.Told(kSendDone, "", {}, 1);
  p.s.Admit("S", {{7}});
  p.Run({{"S", 0, 10}});
}

BUG(B046, LMCache_pull_4955, Geometry::Full(16, 64).Flags(kConnector)) {
  p.s.Admit("R", {{4, 5}});
  p.Run({{"R", 0, 32}});
  p.s.Blocks(kSend, "R", {4, 5}, 31).Preempt("R");
  p.Idle();
  if (!p.wrong) p.Told(kSendDone, "", {}, 31);
  p.s.Admit("S", {{4}});
  p.Run({{"S", 0, 10}});
}

BUG(B055, unified_cache_management_pull_1053, Geometry::Window(64, 16, 64)) {
  p.s.Admit("R", {{18}});
  p.Run({{"R", 0, 10}});
  p.s.Finish("R").Blocks(kFree, "", p.wrong ? Ints{0, 0, 18, 18} : Ints{18});
  p.Idle();
}

// The numbers of the report divided by about 100.
BUG(B064, vllm_issues_480, Geometry::Full(64, 13).Flags(kPrefix)) {
  p.s.Admit("P", {Range(1, 10)}).Tokens(Seq('p', 0, 639));
  p.Run({{"P", 0, 640}});
  p.s.Finish("P").Admit("Q", {Ints{11, 12} + Range(1, 10)}).Tokens(Seq('q', 0, 767));
  p.Run({{"Q", 0, 768}});
  p.s.Finish("Q").Admit("S", {Range(1, 12)}).Tokens(Seq('s', 0, 767));
  p.Run({{"S", 0, 768}});
  p.s.Finish("S").Admit("T", {{1, 2}}, p.wrong ? 64 : 0).Tokens(Seq('p', 0, 70));
  p.Run({{"T", p.wrong ? 64 : 0, p.wrong ? 7 : 71}});
}

BUG(B088, tpu_inference_pull_2366, Geometry::Full(16, 280)) {
  p.s.Admit("R", {{p.wrong ? 300 : 278}}).Admit("S", {{p.wrong ? 500 : 279}});
  p.Run({{"R", 0, 10}, {"S", 0, 10}});
}

BUG(B089, vllm_metal_pull_527, Geometry::Full(16, 600)) {
  p.s.Admit("R", {{p.wrong ? 700 : 599}});
  p.Run({{"R", 0, 10}});
}

BUG(B109, kvcached_pull_451, Geometry::Full(64, 64).Flags(kPrefix)) {
  p.s.Admit("A", {{1, 2, 3}}).Tokens(Seq('a', 0, 128));
  p.Run({{"A", 0, 129}});
  p.s.Admit("T", {p.wrong ? Ints{1, 2, 4} : Ints{5, 6, 4}}, p.wrong ? 128 : 0);
  p.s.Tokens(Seq('a', 0, 31) + Seq('t', 32, 128));
  p.Run({{"T", p.wrong ? 128 : 0, p.wrong ? 1 : 129}, {"A", 129, 1}});
}

BUG(B112, ATOM_pull_1807, Geometry::Full(16, 64).NoNull().Flags(kConnector)) {
  p.s.Admit("R", {{3, 4}}, 16);
  p.s.Blocks(kLoad, "R", {p.wrong ? 0 : 3}, 1).Blocks(kLoadDone, "", {}, 1);
  p.Run({{"R", 16, 1}});
}

BUG(B118, tt_xla_issues_5778, Geometry::Full(16, 128)) {
  p.s.Admit("R", {{76, 77}}).Admit("N", {{12}});
  p.Run({{"R", 0, 20}, {"N", 0, 9}});
  p.Run({{"R", 20, 1}, {"N", 9, 1}}, [&](ScenarioPlan& plan) {
    if (!p.wrong) return;
    plan.Table(0, 0, 0) = 12;
    plan.Table(0, 0, 1) = 13;
  });
}

BUG(B125, LMCache_issues_2206,
    Geometry::Full(16, 1024).ModelLen(16384).Flags(kPrefix | kConnector)) {
  p.s.Admit("V", {Range(1, 926)}).Tokens(Seq('v', 0, 14815));
  p.Run({{"V", 0, 14816}});
  p.s.Append("V", {928}).Admit("R", {Range(1, 927)}, 14820);
  p.s.Tokens(Seq('v', 0, 14819) + Seq('r', 14820, 14820));
  p.s.Blocks(kLoad, "R", p.wrong ? Range(913, 927) : Ints{927}, 1, p.wrong ? 14592 : 14816);
  p.s.Blocks(kLoadDone, "", {}, 1);
  p.Run({{"R", 14820, 1}, {"V", 14816, 1}});
}

BUG(B135, LMCache_Ascend_pull_270, Geometry::Full(16, 64).Flags(kConnector | kFillsTold)) {
  p.s.Admit("R", {{5, 6, 7}}, 32);
  if (!p.wrong) p.s.Blocks(kLoad, "R", {5, 6}, 1).Blocks(kLoadDone, "", {}, 1);
  p.Run({{"R", 32, 2}});
}

BUG(B136, dynamo_issues_15079, Geometry::Full(16, 64).Flags(kConnector)) {
  p.s.Expect("R").Blocks(kLoad, "R", Range(3, 9), 1);
  p.Idle();
  p.Told(kLoadFailed, "", Range(3, 9), 1);
  p.s.Admit("R", {Range(3, 10)}, p.wrong ? 112 : 0);
  p.Run({{"R", p.wrong ? 112 : 0, p.wrong ? 1 : 113}});
}

}  // namespace
}  // namespace kvguard::tests
