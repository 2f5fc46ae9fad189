// SPDX-License-Identifier: Apache-2.0
// Public bugs of SGLang and SGLang-JAX: the sketches of cases_sglang.toml. Where a sketch has pools
// of two sizes, both have the larger one here.
#include "tests/bugs/bug_test.h"

namespace kvguard::tests {
namespace {

constexpr uint32_t kWindow = KVGUARD_GROUP_WINDOW;

BUG(B008, sglang_pull_26292, Geometry::Full(1, 64)) {
  p.s.Admit("A", {Range(1, 4)}).Admit("B", {Range(5, 8)}).Admit("C", {Range(9, 12)});
  p.s.Admit("D", {Range(20, 22)});
  p.Run({{"A", 0, 3}, {"B", 0, 3}, {"C", 0, 3}, {"D", 0, 3}});
  p.Run({{"A", 3, 1}, {"B", 3, 1}, {"C", 3, 1}}, [&](ScenarioPlan& plan) {
    plan.Pad(1, 0);
    plan.seq_lens.resize(3);
    for (size_t column = 0; p.wrong && column < 3; ++column)
      plan.Table(0, 3, column) = static_cast<int64_t>(20 + column);
  });
}

BUG(B024, sglang_pull_17404, Geometry::Full(1, 64).State(kStateNone, 1, 1)) {
  p.s.Admit("A", {{1, 2, 3}, {p.wrong ? 0 : 1}});
  p.Run({{"A", 0, 3}});
}

BUG(B037, sglang_issues_24527, Geometry::Full(16, 64).Flags(kConnector)) {
  p.s.Expect("A").Blocks(kLoad, "A", {40, 41}, 1);
  p.Idle();
  p.s.Blocks(kCancel, "", {}, 1).Finish("A");
  p.Idle();
  if (!p.wrong) p.Told(kDrain, "", {}, 1);
  p.s.Admit("B", {{40}});
  p.Run({{"B", 0, 10}});
}

BUG(B038, sglang_pull_38961, Geometry::Full(16, 64).Flags(kConnector)) {
  p.s.Expect("A").Blocks(kLoad, "A", {44, 45}, 5);
  p.Idle();
  p.s.SkipTo(9);
  p.s.Blocks(kCancel, "", {}, 5).Finish("A");
  p.Idle();
  if (!p.wrong) p.Told(kDrain, "", {}, 5);
  p.s.Admit("B", {{44}});
  p.Run({{"B", 0, 10}});
}

BUG(B040, sglang_pull_31427,
    Geometry::Full(16, 64).And(kFull, 0, 16, 1).Host().Flags(kPrefix | kConnector)) {
  p.s.Admit("N", {{1}, {}});
  p.s.Expect("R").Blocks(kSend, "", {5}, 1, 0, 1).Blocks(kLoad, "R", {60}, 2);
  p.Run({{"N", 0, 10}}, HideGroup1);
  if (!p.wrong) {
    p.Told(kSendDone, "", {}, 1);
    p.Told(kLoadDone, "", {}, 2);
  }
  p.s.Blocks(kReserve, "", {5}, 3, 0, 1);
  p.Run({{"N", 10, 1}}, HideGroup1);
}

BUG(B047, sglang_jax_pull_994, Geometry::Full(1, 64)) {
  p.s.Admit("R", {{55, 56, 57}});
  p.Run({{"R", 0, 2}});
  p.Run({{"R", 2, 1}});
  p.s.Finish("R").Blocks(kFree, "", p.wrong ? Ints{55, 56, 57} : Ints{55, 56});
  p.s.Blocks(kFree, "", {57});
  p.Idle();
}

BUG(B048, sglang_pull_27779, Geometry::Full(4, 64).And(kWindow, 8, 4, 1)) {
  p.s.Admit("R", {{2}, {5}});
  p.Run({{"R", 0, 4}});
  p.s.Finish("R").Blocks(kFree, "", {5}, 0, 0, 1);
  p.Idle();
  p.s.Blocks(kFree, "", {2});
  if (p.wrong) p.s.Blocks(kFree, "", {5}, 0, 0, 1);
  p.Idle();
}

BUG(B049, sglang_pull_25805, Geometry::Full(1, 128).And(kWindow, 8, 1, 1)) {
  p.s.Admit("B", {{70}, {12}});
  p.Run({{"B", 0, 1}});
  p.s.Admit("A", {{64}, {30}}).Append("B", {71}).Append("B", {13}, 1);
  p.Run({{"A", 0, 1}, {"B", 1, 1}});
  p.s.Finish("A").Blocks(kFree, "", {64}).Blocks(kFree, "", {p.wrong ? 12 : 30}, 0, 0, 1);
  p.Idle();
}

BUG(B051, sglang_pull_27586, Geometry::Full(1, 128).And(kWindow, 8, 1, 1)) {
  p.s.Admit("T", {{30}, {5}});
  p.Run({{"T", 0, 1}});
  p.s.Finish("T").Blocks(kFree, "", {5}, 0, 0, 1);
  p.Idle();
  p.s.Admit("R", {{31}, {5}});
  p.Run({{"R", 0, 1}});
  if (p.wrong) p.s.Blocks(kFree, "", {5}, 0, 0, 1);
  p.s.Append("R", {32}).Append("R", {6}, 1);
  p.Run({{"R", 1, 1}});
}

BUG(B052, sglang_pull_35501, Geometry::Full(1, 128).And(kWindow, 8, 1, 1).Flags(kPrefix)) {
  p.s.Admit("A", {{10, 11}, {4, 5}}).Tokens(Seq('a', 0, 1));
  p.Run({{"A", 0, 2}});
  p.s.Blocks(kCopy, "", {10, 77}).Blocks(kCopyDone, "", {10, 77});
  p.s.Admit("B", {{77, 78}, {4, 6}}, 1).Tokens(Seq('a', 0, 0) + Seq('b', 1, 1));
  p.Run({{"B", 1, 1}});
  p.s.Finish("A").Blocks(kFree, "", {10, 11});
  p.s.Blocks(kFree, "", p.wrong ? Ints{4, 5} : Ints{5}, 0, 0, 1);
  p.s.Append("B", {79}).Append("B", {7}, 1);
  p.Run({{"B", 2, 1}});
}

BUG(B053, sglang_pull_38941, Geometry::Full(64, 64).Ranks(0, 8, 1)) {
  p.s.Admit("R", {{30, 31}});
  p.Run({{"R", 0, 1000}});
  p.s.Finish("R").Blocks(kFree, "", {30, 31});
  if (p.wrong) p.s.Blocks(kFree, "", {31});
  p.Idle();
}

BUG(B054, sglang_pull_27731, Geometry::Full(16, 64)) {
  p.s.Admit("S", {{3, 4}});
  p.Run({{"S", 0, 32}});
  p.s.Append("S", {p.wrong ? 4 : 9});
  p.Run({{"S", 32, 16}});
}

BUG(B066, sglang_issues_38319, Geometry::Full(16, 128).Flags(kPrefix)) {
  p.s.Admit("R", {{50, 51}}).Tokens(Seq('r', 0, 47));
  p.Run({{"R", 0, 32}});
  p.s.Finish("R").Admit("S", {{50, 51}}).Tokens(Seq('s', 0, 31));
  p.Run({{"S", 0, 32}});
  p.s.Append("S", {53});
  p.s.Admit("T", {p.wrong ? Ints{50, 51, 52} : Ints{54, 55, 52}}, p.wrong ? 32 : 0);
  p.s.Tokens(Seq('r', 0, 32));
  p.Run({{"T", p.wrong ? 32 : 0, p.wrong ? 1 : 33}, {"S", 32, 1}});
}

BUG(B087, sglang_pull_26972, Geometry::Full(1, 8192).Columns(wrong ? 4100 : 4132).Drafts(8)) {
  p.s.Admit("R", {Range(1, 4090)});
  p.Run({{"R", 0, 4090}});
  p.s.Append("R", Range(5000, 5031));
  p.Run({{"R", 4090, 9, 8}});
}

BUG(B106, sglang_pull_25556, Geometry::Full(64, 64).Lists(kCsr, KVGUARD_UNIT_SLOT)) {
  p.s.Admit("R", {{3, 4, 5}});
  p.Run({{"R", 0, 129}});
  p.Run({{"R", 129, 1}}, [&](ScenarioPlan& plan) {
    EXPECT_EQ(plan.groups[0].starts, (Ints{0, 130}));
    if (p.wrong) plan.groups[0].starts = {0, 3};
  });
}

BUG(B107, sglang_pull_11985, Geometry::Full(32, 256)) {
  p.s.Admit("R", {Range(1, 128)});
  p.Run({{"R", 0, 4096}}, nullptr, [&](ScenarioPlan& plan) {
    for (size_t column = 64; p.wrong && column < 128; ++column) plan.Table(0, 0, column) = -1;
  });
}

BUG(B110, sglang_pull_32902, Geometry::Chunked(8192, 16, 128)) {
  p.s.Admit("R", {{5, 6}});
  p.Run({{"R", 0, 20}}, nullptr, [&](ScenarioPlan& plan) {
    if (!p.wrong) return;
    plan.Table(0, 0, 0) = 80;
    plan.Table(0, 0, 1) = 81;
  });
}

BUG(B128, sglang_pull_33309, Geometry::Full(16, 64).Flags(kConnector | kFillsTold)) {
  p.s.Expect("R").Blocks(kLoad, "R", {5, 6, 7, 8}, 1);
  if (!p.wrong) p.s.Blocks(kLoad, "R", {9, 10}, 2, 64);
  p.Idle();
  p.Told(kLoadDone, "", {}, 1);
  if (!p.wrong) p.Told(kLoadDone, "", {}, 2);
  p.s.Admit("R", {Range(5, 11)}, 96);
  p.Run({{"R", 96, 1}});
}

BUG(B129, sglang_pull_31471, Geometry::Full(1, 256).Flags(kConnector)) {
  p.s.Admit("R", {{100, 101}});
  p.Run({{"R", 0, 2}});
  p.s.Remap(kMove, {100, 40, 101, 41}).Append("R", {42});
  p.Run({{"R", 2, 1}});
  p.Told(kSend, "R", p.wrong ? Ints{100, 101} : Ints{40, 41}, 1);
}

BUG(B133, sglang_issues_30057, Geometry::Full(64, 64).And(kFull, 0, 64, 1).Flags(kConnector)) {
  p.s.Expect("R").Blocks(kLoad, "R", Range(1, 8), 1).Blocks(kLoad, "R", Range(1, 8), 2, 0, 1);
  p.Idle();
  p.Told(kLoadDone, "", {}, 1);
  p.Told(kLoadFailed, "", {6, 7, 8}, 2, 1);
  p.s.Admit("R", {Range(1, 9)}, p.wrong ? 512 : 320);
  p.Run({{"R", p.wrong ? 512 : 320, p.wrong ? 1 : 193}});
}

}  // namespace
}  // namespace kvguard::tests
