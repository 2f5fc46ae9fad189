// SPDX-License-Identifier: Apache-2.0
// Public bugs of other engines and libraries: the sketches of cases_others.toml.
#include "tests/bugs/bug_test.h"

namespace kvguard::tests {
namespace {

BUG(B007, TensorRT_LLM_pull_13592, Geometry::Full(32, 128)) {
  p.s.Admit("N", {Range(1, 32)}).Admit("R", {Range(40, 67)});
  p.Run({{"N", 0, 1020}, {"R", 0, 894}});
  p.s.Preempt("R");
  p.Run({{"N", 1020, 1}});
  p.s.Admit("R", {Range(40, 67)});
  p.Run({{"R", 0, 894}, {"N", 1021, 1}});
  p.Run({{"R", 894, 1}}, [&](ScenarioPlan& plan) {
    if (p.wrong) plan.positions = {1020};
  });
}

BUG(B010, text_generation_inference_pull_2711,
    Geometry::Full(1, 64).NoNull().Flags(kPrefix).Drafts(2)) {
  p.s.Admit("N", {{12, 13}}).Admit("R", {{10, 11, 57, 58, 59}});
  p.Run({{"N", 0, 2}, {"R", 0, 1}});
  p.Run({{"R", 1, 3, 2}}, [&](ScenarioPlan& plan) {
    EXPECT_EQ(plan.groups[0].slots, (Ints{11, 57, 58}));
    if (p.wrong) plan.groups[0].slots = {11, 12, 13};
  });
}

BUG(B012, MinivLLM_pull_73, Geometry::Full(4, 16).NoNull()) {
  p.s.Admit("R", {{3}});
  p.Run({{"R", 0, 2}});
  p.s.Append("R", {5});
  p.Run({{"R", 2, 4}}, [&](ScenarioPlan& plan) {
    EXPECT_EQ(plan.groups[0].slots, (Ints{14, 15, 20, 21}));
    if (p.wrong) plan.groups[0].slots = {20, 21, 22, 23};
  });
}

BUG(B014, ssd_issues_23, Geometry::Full(256, 16).NoNull().Flags(kPrefix)) {
  p.s.Admit("P", {{9}}).Tokens(Seq('p', 0, 255));
  p.Run({{"P", 0, 256}});
  p.s.Admit("R", {{9, 4}}, 256).Tokens(Seq('p', 0, 255) + Seq('r', 256, 511));
  p.Run({{"R", 256, 256}}, nullptr, [&](ScenarioPlan& plan) {
    if (!p.wrong) return;
    plan.Table(0, 0, 0) = 0;
    plan.Table(0, 0, 1) = 1;
  });
}

// The server's coordinates are those of before the first shift: three live tokens go with the wrong
// one.
BUG(B016, llama_cpp_pull_12161, Geometry::Cells(64)) {
  p.s.Admit("R", {Range(0, 8)});
  p.Run({{"R", 0, 9}});
  p.s.Erase("R", 2, 2).Rebase("R", 4, 5, -2);
  p.s.Erase("R", 4, p.wrong ? 3 : 1).Rebase("R", 5, 2, -1).Append("R", {20});
  p.Run({{"R", 6, 1}});
}

BUG(B017, llama_cpp_issues_27994, Geometry::Cells(128)) {
  p.s.Admit("A", {Range(0, 5)});
  p.Run({{"A", 0, 6}});
  p.s.Admit("B", {Range(100, 105)}).Append("A", {6});
  p.Run({{"A", 6, 1}, {"B", 0, 6}}, [&](ScenarioPlan& plan) {
    EXPECT_EQ(plan.groups[0].list, Range(0, 6) + Range(100, 105));
    if (p.wrong) plan.groups[0].list[5] = 105;
  });
}

// Here the pool of attention has no null block either.
BUG(B025, tokenspeed_pull_700, Geometry::Full(16, 64).NoNull().State(kStateNone, 16, 1)) {
  p.s.Admit("A", {{1}, {4}}).Admit("C", {{2}, {2}}).Admit("X", {{3}, {0}});
  p.Run({{"A", 0, 3}, {"C", 0, 3}, {"X", 0, 3}});
  p.Run({{"A", 3, 1}, {"C", 3, 1}}, [&](ScenarioPlan& plan) {
    plan.Pad(2, 2);
    EXPECT_EQ(plan.groups[1].out, (Ints{4, 2, -1, -1}));
    if (!p.wrong) return;
    plan.groups[1].in = {4, 2, 0, 0};
    plan.groups[1].out = {4, 2, 0, 0};
  });
}

BUG(B042, TensorRT_LLM_pull_9056, Geometry::Full(32, 64).Flags(kPrefix | kConnector)) {
  p.s.Expect("A").Blocks(kLoad, "A", {3}, 1);
  p.Idle();
  if (!p.wrong) {
    p.Told(kLoadDone, "", {}, 1);
    p.s.Finish("A");
  }
  p.s.Admit("B", {{3}});
  p.Run({{"B", 0, 10}});
}

BUG(B044, TensorRT_LLM_issues_12542, Geometry::Full(32, 64).Flags(kPrefix | kConnector)) {
  p.s.Admit("R", {{20, 21}});
  p.Run({{"R", 0, 64}});
  p.s.Blocks(kSend, "R", {20, 21}, 1).Finish("R");
  p.Idle();
  if (!p.wrong) p.Told(kSendDone, "", {}, 1);
  p.s.Admit("S", {{20}});
  p.Run({{"S", 0, 10}});
}

BUG(B045, TensorRT_LLM_pull_13713, Geometry::Full(32, 64).Flags(kConnector)) {
  p.s.Admit("R", {Range(20, 25)});
  p.Run({{"R", 0, 180}});
  p.s.Blocks(kSend, "R", Range(20, 25), 1);
  p.Idle();
  p.s.Blocks(kCancel, "", {}, 1).Finish("R");
  p.Idle();
  if (!p.wrong) p.Told(kDrain, "", {}, 1);
  p.s.Admit("S", {{20}});
  p.Run({{"S", 0, 10}});
}

BUG(B056, mllm_pull_688, Geometry::Full(1, 64)) {
  p.s.Admit("R", {{31}});
  p.Run({{"R", 0, 1}});
  p.s.Finish("R").Blocks(kFree, "", p.wrong ? Ints{0, 31, 31} : Ints{31});
  p.Idle();
}

BUG(B058, FreeToken_issues_204, Geometry::Full(16, 128)) {
  p.s.Admit("X", {{88}});
  p.Run({{"X", 0, 10}});
  p.s.Admit("Y", {{p.wrong ? 88 : 89}});
  p.Run({{"Y", 0, 10}, {"X", 10, 1}});
}

BUG(B060, nano_vllm_issues_163, Geometry::Full(256, 16).NoNull().Flags(kPrefix)) {
  p.s.Admit("A", {{3, 4}}).Tokens(Seq('a', 0, 256));
  p.Run({{"A", 0, 257}});
  p.s.Finish("A").Admit("B", {{3, 5}}).Tokens(Seq('b', 0, 256));
  p.Run({{"B", 0, 257}});
  p.s.Admit("C", {{p.wrong ? 3 : 7, 6}}, p.wrong ? 256 : 0).Tokens(Seq('a', 0, 256));
  p.Run({{"C", p.wrong ? 256 : 0, p.wrong ? 1 : 257}, {"B", 257, 1}});
}

BUG(B068, TensorRT_LLM_pull_15018, Geometry::Full(32, 128).Flags(kPrefix)) {
  p.s.Admit("X", {{70, 71}}).Tokens(Seq('x', 0, 63));
  p.Run({{"X", 0, 64}});
  p.s.Finish("X");
  p.Idle();
  p.s.Admit("T", {{70, 72}}, p.wrong ? 32 : 0).Tokens(Seq('t', 0, 32));
  p.Run({{"T", p.wrong ? 32 : 0, p.wrong ? 1 : 33}});
}

BUG(B073, lmdeploy_issues_4933, Geometry::Full(16, 64).Flags(kPrefix)) {
  constexpr uint32_t kEmbeds = KVGUARD_DOMAIN_PROMPT_EMBEDS;
  p.s.Admit("A", {{5, 6}}).Tokens(Seq('a', 0, 16)).Domain(kEmbeds, 1, 0, 16);
  p.Run({{"A", 0, 17}});
  const bool hit = p.wrong || p.RightOf(2) == 0;
  p.s.Admit("B", {{hit ? 5 : 8, 7}}, hit ? 16 : 0).Tokens(Seq('a', 0, 16));
  p.s.Domain(kEmbeds, p.wrong || !hit ? 2 : 1, 0, 16);
  p.Run({{"B", hit ? 16 : 0, hit ? 1 : 17}});
}

BUG(B076, TensorRT_LLM_issues_13320, Geometry::Full(32, 4096).Flags(kConnector)) {
  p.s.Admit("R", {{2117}});
  p.Run({{"R", 0, 32}});
  if (!p.wrong) p.s.Append("R", {2118});
  p.Run({{"R", 32, 1}});
}

// Both pools have the size of the host's here.
BUG(B097, llama_cpp_issues_26478, Geometry::Cells(20000)) {
  p.s.Admit("R", {Range(0, 16384)});
  p.Run({{"R", 0, 16383}});
  p.Run({{"R", p.wrong ? 16384 : 16383, 1}});
}

BUG(B130, tokenspeed_pull_293,
    Geometry::Full(16, 128).And(kFull, 0, 16, 1).Host().Flags(kPrefix | kConnector)) {
  p.s.Admit("N", {{1}, {}}).Admit("R", {{}, Range(60, 64)});
  p.s.Blocks(kLoad, "R", {60, 61, 62}, 1, 0, 1).Blocks(kLoadDone, "", {}, 1);
  p.Run({{"N", 0, 10}}, HideGroup1);
  p.s.Blocks(kLoad, "R", p.wrong ? Ints{60, 61} : Ints{63, 64}, 2, 48, 1);
  p.Run({{"N", 10, 1}}, HideGroup1);
}

BUG(B140, TensorRT_LLM_pull_15546, Geometry::Full(32, 64).Flags(kAsync)) {
  p.s.SkipTo(7);
  p.s.Admit("X", {{3, 4}}).Admit("Y", {{9, 10}});
  p.Run({{"X", 0, 40}, {"Y", 0, 40}});
  p.Run({{"X", 40, 1}}, nullptr, [&](ScenarioPlan& plan) {
    if (!p.wrong) return;
    plan.Table(0, 0, 0) = 9;
    plan.Table(0, 0, 1) = 10;
  });
  p.Run({{"Y", 40, 1}}, nullptr, [](ScenarioPlan&) {});
}

BUG(B155, TensorRT_LLM_pull_12306, Geometry::Full(16, 64).Flags(kPrefix)) {
  p.s.Admit("A", {{7, 8}}).Tokens(Seq('a', 0, 16));
  p.Run({{"A", 0, 17}});
  p.s.Admit("C", {{7, p.wrong ? 7 : 9}}, 16).Tokens(Seq('a', 0, 15) + Seq('c', 16, 16));
  p.Run({{"C", 16, 1}, {"A", 17, 1}});
}

BUG(B156, MinivLLM_pull_98, Geometry::Full(256, 16).NoNull().Flags(kPrefix)) {
  p.s.Admit("P", {{1, 2}}).Tokens(Seq('p', 0, 299));
  p.Run({{"P", 0, 300}});
  p.s.Admit("C", {{1, 3}}, 256).Tokens(Seq('p', 0, 299));
  p.Run({{"C", 256, 44}}, [&](ScenarioPlan& plan) {
    EXPECT_EQ(plan.positions, Range(256, 299));
    if (p.wrong) plan.positions = Range(0, 43);
  });
}

}  // namespace
}  // namespace kvguard::tests
