// SPDX-License-Identifier: Apache-2.0
// Public bugs of vLLM: the sketches of cases_vllm_1.toml, cases_vllm_2.toml and cases_vllm_3.toml.
#include "tests/bugs/bug_test.h"

namespace kvguard::tests {
namespace {

BUG(B002, vllm_issues_42494, Geometry::Full(16, 64)) {
  p.s.Admit("N", {{21, 22}}).Admit("R", {{7, 8, 9}});
  p.Run({{"N", 0, 20}, {"R", 0, 32}});
  p.Run({{"R", 32, 1}, {"N", 20, 1}}, [](ScenarioPlan& plan) {
    plan.Table(0, 0, 3) = 21;
    plan.Table(0, 0, 4) = 22;
    plan.groups[0].row_columns = {3, 2};
  });
}

BUG(B003, vllm_issues_39589, Geometry::Full(16, 64)) {
  p.s.Admit("N", {{40}}).Admit("R", {{5, 6}});
  p.Run({{"N", 0, 10}, {"R", 0, 31}});
  p.Run({{"R", 31, 1}, {"N", 10, 1}}, [&](ScenarioPlan& plan) {
    plan.Table(0, 0, 2) = 40;
    if (p.wrong) plan.seq_lens[0] = 40;
  });
}

// Rotary coordinates are no positions, so none are shown.
BUG(B009, vllm_issues_54498, Geometry::Full(16, 64).Drafts(2)) {
  p.s.Admit("R", {{7, 8, 9}});
  p.Begin({{"R", 0, 44}});
  p.Show([](ScenarioPlan& plan) { plan.positions_present = false; });
  ScenarioPlan draft = Draft(p.s.RightPlan(), 1, {44}, 16);
  draft.positions_present = false;
  EXPECT_EQ(draft.groups[0].slots, Ints{156});
  EXPECT_EQ(draft.seq_lens, Ints{45});
  if (p.wrong) draft.groups[0].slots = {126};
  p.Pass(draft);
  p.End();
  p.Told(1, "R");
}

BUG(B013, vllm_pull_7018, Geometry::Full(16, 64).NoNull().Flags(kPrefix)) {
  p.s.Admit("P", {{1, 2, 3, 9}}).Tokens(Seq('a', 0, 59));
  p.Run({{"P", 0, 60}});
  p.s.Admit("A", {{1, 2, 3, 4}}, 48).Tokens(Seq('a', 0, 47) + Seq('x', 48, 59));
  p.s.Admit("B", {{5, 6, 7, 8}});
  p.Run({{"A", 48, 12}, {"B", 0, 60}}, [&](ScenarioPlan& plan) {
    for (size_t column = 0; p.wrong && column < 4; ++column) plan.Table(0, 1, column) = 0;
  });
}

BUG(B018, vllm_pull_5412, Geometry::Full(16, 64).Lists(kCsr, KVGUARD_UNIT_BLOCK).Drafts(1)) {
  p.s.Admit("R", {{3, 4}}).Admit("S", {{8, 9}});
  p.Run({{"R", 0, 16}, {"S", 0, 19}});
  p.Begin({{"R", 16, 1}, {"S", 19, 1}});
  p.Show();
  ScenarioPlan draft = p.s.RightPlan();
  draft.pass = KVGUARD_PASS_DRAFT;
  EXPECT_EQ(draft.groups[0].list, (Ints{3, 4, 8, 9}));
  EXPECT_EQ(draft.groups[0].last_page, (Ints{1, 4}));
  if (p.wrong) {
    draft.groups[0].starts = {0, 1, 2};
    draft.groups[0].list = {3, 8};
  }
  p.Pass(draft);
  p.End();
}

BUG(B020, vllm_pull_39444, Geometry::Full(16, 64)) {
  p.s.Admit("R", {{1}});
  p.Run({{"R", 0, 4}});
  p.Dummy(Ints(4, p.wrong ? 0 : -1));
}

BUG(B030, vllm_pull_47728, Geometry::Window(128, 32, 64).Flags(kAsync).Drafts(2)) {
  p.s.SkipTo(9);
  p.s.Admit("W", {Range(11, 19)});
  p.Run({{"W", 0, 253}});
  p.Begin({{"W", 253, 3, 2}});
  p.Show();
  p.End();
  p.s.Admit("N", {{p.wrong ? 14 : 13}});
  p.Begin({{"W", 256, 3, 2}, {"N", 0, 8}});
  p.Told(10, "W", 2);
  p.Show();
  p.End();
}

BUG(B034, vllm_pull_32255, Geometry::Full(16, 64).Flags(kConnector)) {
  p.s.Expect("R").Blocks(kLoad, "R", {3, 4}, 1);
  p.Idle();
  p.s.Finish("R");
  if (!p.wrong) {
    p.Idle();
    p.Told(kLoadDone, "", {}, 1);
  }
  p.s.Admit("S", {{3}});
  p.Run({{"S", 0, 10}});
}

BUG(B035, vllm_issues_46951, Geometry::Full(16, 64).Flags(kConnector)) {
  p.s.Admit("Q", {{12}});
  p.Run({{"Q", 0, 16}});
  p.s.Blocks(kSend, "Q", {12}, 1).Finish("Q");
  p.Idle();
  if (!p.wrong) p.Told(kSendDone, "", {}, 1);
  p.s.Expect("R").Blocks(KVGUARD_EVENT_RESERVE, "R", {12}, 2);
  p.Idle();
}

BUG(B057, vllm_pull_37164, Geometry::Full(16, 64).Flags(kPrefix)) {
  p.s.Admit("P", {{21, 22}}).Tokens(Seq('h', 0, 16));
  p.Run({{"P", 0, 17}});
  p.s.Finish("P");
  p.Idle();
  p.s.Admit("B", {{p.wrong ? 21 : 24}}).Tokens(Seq('b', 0, 15));
  p.s.Admit("A", {{21, 23}}, 16).Tokens(Seq('h', 0, 19));
  p.Run({{"B", 0, 16}, {"A", 16, 4}});
}

BUG(B061, vllm_pull_4761, Geometry::Full(16, 64).NoNull().Flags(kPrefix)) {
  p.s.Admit("A", {{7, 8}}).Tokens(Seq('a', 0, 16));
  p.Run({{"A", 0, 17}});
  p.s.Finish("A").Admit("M", {{7}}).Tokens(Seq('m', 0, 4));
  p.Run({{"M", 0, 5}});
  if (p.wrong) {
    p.s.Admit("C", {{7, 9}}, 16).Tokens(Seq('a', 0, 16));
    p.Run({{"C", 16, 1}, {"M", 5, 1}});
  } else {
    p.s.Admit("C", {{10, 9}}).Tokens(Seq('a', 0, 16));
    p.Run({{"C", 0, 17}, {"M", 5, 1}});
  }
}

BUG(B065, vllm_pull_43569, Geometry::Full(16, 64).Flags(kPrefix | kFillsTold)) {
  p.s.SkipTo(8);
  p.s.Admit("Q", {{5}});
  p.Run({{"Q", 0, 4}});
  std::vector<Row> rows;
  if (!p.wrong) {
    p.s.Admit("A", {{30}}).Tokens(Seq('a', 0, 15));
    rows.push_back({"A", 0, 16});
  }
  p.s.Admit("B", {{30, 31}}, 16).Tokens(Seq('a', 0, 15) + Seq('b', 16, 19));
  rows.push_back({"B", 16, 4});
  rows.push_back({"Q", 4, 1});
  p.Run(rows);
}

BUG(B067, vllm_pull_48195,
    Geometry::Full(16, 64).State(kStateAlign, 16, 0).Flags(kPrefix | kConnector | kFillsTold)) {
  p.s.Admit("P", {Range(1, 8), Ints(7, 0) + Ints{40}}).Tokens(Seq('p', 0, 127));
  p.Run({{"P", 0, 128}});
  p.s.Finish("P").Admit("Q", {Range(5, 8), {0, 0, 0, 41}}).Tokens(Seq('q', 0, 59));
  p.Run({{"Q", 0, 60}});
  if (p.wrong) {
    p.s.Admit("T", {Range(1, 4) + Range(21, 25), Ints(7, 0) + Ints{40, 42}}, 128);
  } else {
    p.s.Admit("T", {Range(21, 29), Ints(8, 0) + Ints{42}});
  }
  p.s.Tokens(Seq('p', 0, 127) + Seq('t', 128, 135));
  p.Run({{"T", p.wrong ? 128 : 0, p.wrong ? 8 : 136}});
}

BUG(B069, vllm_issues_30931, Geometry::Full(16, 64).Flags(kPrefix)) {
  constexpr uint32_t kLora = KVGUARD_DOMAIN_LORA;
  p.s.Admit("A", {{5, 6}}).Tokens(Seq('a', 0, 16)).Domain(kLora, 1, 0, 17);
  p.Run({{"A", 0, 17}});
  const bool hit = p.wrong || p.RightOf(2) == 0;
  p.s.Admit("B", {{hit ? 5 : 8, 7}}, hit ? 16 : 0).Tokens(Seq('a', 0, 16));
  p.s.Domain(kLora, p.wrong || !hit ? 2 : 1, 0, 17);
  p.Run({{"B", hit ? 16 : 0, hit ? 1 : 17}});
}

BUG(B070, vllm_issues_44701, Geometry::Full(16, 64).Flags(kPrefix)) {
  p.s.Admit("A", {{5, 6}}).Tokens(Seq('a', 0, 16)).Domain(KVGUARD_DOMAIN_LORA, 88, 0, 17);
  p.Run({{"A", 0, 17}});
  p.s.Admit("B", {{p.wrong ? 5 : 8, 7}}, p.wrong ? 16 : 0).Tokens(Seq('a', 0, 16));
  p.s.Domain(KVGUARD_DOMAIN_SALT, 88, 0, 17);
  p.Run({{"B", p.wrong ? 16 : 0, p.wrong ? 1 : 17}});
}

BUG(B077, vllm_pull_29268, Geometry::Full(16, 256).And(kCross, 0, 16, 0).Flags(kEncoder)) {
  p.s.Admit("R", {{1}, Range(2, 20)}).Domain(KVGUARD_DOMAIN_ENCODER, 1, 0, 300);
  p.Begin({{"R", 0, 4}});
  p.Show(HideGroup1);
  p.Pass(Cross(p.s.RightPlan(), {300}, {true}, 16));
  p.End();
  p.Told(1, "R");
  p.Begin({{"R", 4, 1}});
  p.Show(HideGroup1);
  ScenarioPlan cross = Cross(p.s.RightPlan(), {300}, {false}, 16);
  if (p.wrong) cross.seq_lens = {1500};
  p.Pass(cross);
  p.End();
}

BUG(B079, vllm_issues_21694, Geometry::Chunked(4, 2, 64)) {
  p.s.Admit("R", {{5, 6}});
  p.Run({{"R", 0, 4}});
  p.s.Admit("N", {{5, 6}}).Append("R", {7});
  p.Run({{"N", 0, 4}, {"R", 4, 1}});
}

BUG(B080, vllm_issues_53982, Geometry::Ring(32, 16, 64).Columns(2)) {
  p.s.Admit("R", {{4, 5}}).Admit("N", {{9, 3}});
  p.Run({{"R", 0, 32}, {"N", 0, 20}});
  p.Run({{"R", 32, 1}, {"N", 20, 1}}, [&](ScenarioPlan& plan) {
    EXPECT_EQ(plan.groups[0].slots, (Ints{64, 52}));
    if (p.wrong) plan.groups[0].slots = {144, 52};
  });
}

BUG(B084, vllm_pull_10730, Geometry::Full(16, 64).Columns(3).ModelLen(40)) {
  p.s.Admit("R", {p.wrong ? Range(1, 6) : Range(1, 3)});
  p.Run({{"R", 0, 30}});
}

// Both pools have the size of the host's here.
BUG(B090, vllm_pull_50443, Geometry::Full(16, 39).And(kFull, 0, 16, 1).Host().Flags(kConnector)) {
  p.s.Admit("R", {{1, 2, 3}, {}});
  p.Run({{"R", 0, 40}}, HideGroup1);
  p.s.Blocks(kSend, "R", {1, 2}, 1);
  p.s.Blocks(kReserve, "", p.wrong ? Ints{38, 511} : Ints{37, 38}, 2, 0, 1);
  p.Run({{"R", 40, 1}}, HideGroup1);
}

// The numbers of the report divided by 64.
BUG(B098, vllm_issues_53142, Geometry::Full(2, 1024).State(kStateAlign, 34, 0).Flags(kPrefix)) {
  p.s.Admit("P", {Range(101, 882), Ints(45, 0) + Ints{58}}).Tokens(Seq('p', 0, 1563));
  p.Run({{"P", 0, 1564}});
  p.s.Finish("P").Admit("R", {Range(101, 882) + Ints{900}, Ints(45, 0) + Ints{58, 59}}, 1564);
  p.s.Tokens(Seq('p', 0, 1564));
  p.Run({{"R", 1564, 1}}, [&](ScenarioPlan& plan) {
    EXPECT_EQ(plan.groups[1].in, Ints{58});
    EXPECT_EQ(plan.groups[1].out, Ints{59});
    if (p.wrong) plan.groups[1].in = {91};
  });
}

BUG(B099, vllm_pull_47861, Geometry::Full(16, 64).State(kStateAlign, 16, 0).Flags(kPrefix)) {
  p.s.Admit("P", {{1, 2, 3, 4}, {0, 0, 0, 31}}).Tokens(Seq('p', 0, 63));
  p.Run({{"P", 0, 64}});
  p.s.Finish("P");
  if (p.wrong) {
    p.s.Admit("R", {{1, 2, 3, 5, 6}, {0, 0, 31, 0, 32}}, 48);
  } else {
    p.s.Admit("R", {{1, 2, 3, 4, 6}, {0, 0, 0, 31, 32}}, 64);
  }
  p.s.Tokens(Seq('p', 0, 63) + Seq('r', 64, 71));
  p.Run({{"R", p.wrong ? 48 : 64, p.wrong ? 24 : 8}});
}

// The numbers of the report divided by 100.
BUG(B100, vllm_issues_53505,
    Geometry::Full(8, 64).State(kStateAlign, 16, 0).Flags(kPrefix | kConnector | kFillsTold)) {
  p.s.Admit("P", {{1, 2}, {31}}).Tokens(Seq('p', 0, 31));
  p.Run({{"P", 0, 16}});
  p.s.Append("P", {3, 4}).Append("P", {32}, 1);
  p.Run({{"P", 16, 16}});
  p.s.Finish("P");
  if (p.wrong) {
    p.s.Admit("R", {{1, 2, 3, 9, 10}, {0, 32, 33}}, 24);
  } else {
    p.s.Admit("R", {{1, 2, 8, 9, 10}, {31, 0, 33}}, 16);
  }
  p.s.Tokens(Seq('p', 0, 31) + Seq('r', 32, 32));
  p.Run({{"R", p.wrong ? 24 : 16, p.wrong ? 9 : 17}});
}

BUG(B103, vllm_pull_27547, Geometry::Full(64, 64).Kernel(16, KVGUARD_UNIT_KERNEL_BLOCK)) {
  p.s.Admit("R", {{5, 9}});
  p.Run({{"R", 0, 70}});
  p.Run({{"R", 70, 1}}, [&](ScenarioPlan& plan) {
    EXPECT_EQ(plan.groups[0].slots, Ints{582});
    if (p.wrong) plan.groups[0].slots = {1350};
  });
}

BUG(B104, vllm_pull_28677,
    Geometry::Full(128, 64).Kernel(64, KVGUARD_UNIT_KERNEL_BLOCK).Flags(kConnector)) {
  p.s.Admit("R", {{5, 6}}, 128);
  p.s.Blocks(kLoad, "R", {p.wrong ? 2 : 5}, 1).Blocks(kLoadDone, "", {}, 1);
  p.Run({{"R", 128, 1}});
}

BUG(B113, vllm_pull_57260,
    Geometry::Full(4, 64).And(KVGUARD_GROUP_WINDOW, 64, 4, 0).Replicated().Ranks(0, 2, 1)) {
  p.s.Admit("R", {{1, 2}, {5, 6, 7}});
  p.Run({{"R", 0, 9}});
  p.Run({{"R", 9, 1}}, [&](ScenarioPlan& plan) {
    EXPECT_EQ(plan.groups[0].slots, Ints{-1});
    EXPECT_EQ(plan.groups[1].slots, Ints{29});
    if (p.wrong) plan.groups[1].slots = {-1};
  });
}

// The row in kernel blocks is [12, 13]: position 300 is rank 2's, at 6 * 128 + 44.
BUG(B114, vllm_pull_51031,
    Geometry::Full(128, 64).Kernel(64, KVGUARD_UNIT_KERNEL_BLOCK).Ranks(0, 4, 128)) {
  p.s.Admit("R", {{6}});
  p.Run({{"R", 0, 300}});
  p.Run({{"R", 300, 1}}, [&](ScenarioPlan& plan) {
    EXPECT_EQ(plan.groups[0].slots, Ints{-1});
    if (p.wrong) plan.groups[0].slots = {876};
  });
}

BUG(B121, vllm_pull_50558, Geometry::Full(64, 128).Flags(kPrefix | kConnector)) {
  p.s.Admit("P", {Range(1, 31)}).Tokens(Seq('p', 0, 1983));
  p.Run({{"P", 0, 1984}});
  p.s.Admit("R", {Range(1, 31) + Ints{41, 42}}, 2048);
  p.s.Tokens(Seq('p', 0, 1983) + Seq('x', 1984, 2048));
  if (p.wrong) {
    p.s.Blocks(kLoad, "R", {41, 42}, 1, 1920);
  } else {
    p.s.Blocks(kLoad, "R", {41}, 1, 1984);
  }
  p.s.Blocks(kLoadDone, "", {}, 1);
  p.Run({{"R", 2048, 1}});
}

BUG(B124, vllm_pull_28951, Geometry::Full(16, 64).Flags(kPrefix | kConnector)) {
  p.s.Admit("P", {{10, 11}}).Tokens(Seq('p', 0, 31));
  p.Run({{"P", 0, 32}});
  p.s.Admit("R", {Range(10, 14)}, 64).Tokens(Seq('p', 0, 31) + Seq('x', 32, 64));
  p.s.Blocks(kLoad, "R", {12, 13}, 1, p.wrong ? 0 : 32).Blocks(kLoadDone, "", {}, 1);
  p.Run({{"R", 64, 1}});
}

BUG(B137, vllm_issues_49250,
    Geometry::Full(16, 64).Flags(kPrefix | kConnector).StandingGap("external-unproved")) {
  p.s.Admit("P", {{1}}).Tokens(Seq('r', 0, 15));
  p.Run({{"P", 0, 16}});
  p.s.Admit("R", {Range(1, 5)}, 64).Tokens(Seq('r', 0, 79));
  p.Run({{"R", 64, 16}});
  p.s.Computed("R") = 16;
  p.Run({{"R", 16, 64}}, [&](ScenarioPlan& plan) {
    if (!p.wrong) return;
    plan.positions = Range(80, 143);
    plan.seq_lens = {144};
  });
}

BUG(B141, vllm_pull_48659, Geometry::Full(16, 64)) {
  p.s.Admit("A", {{1, 2, 3}}).Admit("B", {{4, 5, 6}}).Admit("C", {{7, 8, 9}});
  p.s.Admit("D", {Range(10, 22)}).Admit("E", {{23, 24}});
  p.Run({{"A", 0, 39}, {"B", 0, 39}, {"C", 0, 39}, {"D", 0, 199}, {"E", 0, 16}});
  p.Begin({{"A", 39}, {"B", 39}, {"C", 39}, {"D", 199}, {"E", 16}});
  p.Pass(MicroBatch(p.s.RightPlan(), 0, {{0, 0, 1}, {1, 0, 1}, {2, 0, 1}}));
  ScenarioPlan second = MicroBatch(p.s.RightPlan(), 1, {{3, 0, 1}, {4, 0, 1}});
  EXPECT_EQ(second.seq_lens, (Ints{200, 17}));
  if (p.wrong) second.seq_lens = {40, 40};
  p.Pass(second);
  p.End();
}

BUG(B146, vllm_pull_55506, Geometry::Full(16, 64).State(kStateAlign, 16, 0).Drafts(1)) {
  p.s.SkipTo(19);
  p.s.Admit("A", {{1, 2}, {5}}).Admit("B", {{3, 4}, {8, 9}});
  p.Run({{"A", 0, 16}, {"B", 0, 9}});
  const bool copies = p.wrong || p.RightOf(2) == 0;
  const Ints pair = p.wrong ? Ints{8, 9} : Ints{5, 6};
  p.s.Append("A", {6}, 1);
  if (copies) p.s.Blocks(kCopy, "", pair, 0, 0, 1).Blocks(kCopyDone, "", pair, 0, 0, 1);
  p.Run({{"A", 16, 1}, {"B", 9, 1}}, [&](ScenarioPlan& plan) {
    EXPECT_EQ(plan.groups[1].in, (Ints{5, 8}));
    EXPECT_EQ(plan.groups[1].out, (Ints{6, 8}));
    if (copies) plan.groups[1].in = {6, 8};
  });
}

// The worker of the neighbour step did zero: of one that never says so nothing is judged.
BUG(B150, vllm_pull_43990, Geometry::Full(16, 64)) {
  p.s.Admit("Q", {{8}}).Blocks(kZero, "", {8}).Blocks(kZeroDone, "", {8});
  p.Run({{"Q", 0, 10}});
  p.s.Admit("R", {{9}}).Blocks(kZero, "", {9});
  if (!p.wrong) p.s.Blocks(kZeroDone, "", {9});
  p.Run({{"R", 0, 10}});
}

BUG(B151, vllm_pull_57158, Geometry::Full(16, 64)) {
  p.s.Admit("R", {{1}});
  p.Run({{"R", 0, 4}});
  p.Dummy(p.wrong ? Range(0, 15) : Ints(16, -1));
}

BUG(B153, vllm_pull_55227, Geometry::Full(16, 320).Flags(kPrefix)) {
  const bool shared = !p.wrong && p.RightOf(2) == 1;
  std::vector<Row> first;
  std::vector<Row> next;
  for (int64_t i = 1; i <= 8; ++i) {
    std::string name = "S";
    name += std::to_string(i);
    Ints blocks = Range(80 + 20 * i, 96 + 20 * i);
    if (shared) blocks = Range(100, 115) + Ints{blocks.back()};
    const int64_t hit = shared && i > 1 ? 256 : 0;
    p.s.Admit(name, {blocks}, hit);
    if (shared) p.s.Tokens(Seq('s', 0, 255) + Seq(static_cast<char>('a' + i), 256, 259));
    first.push_back({name, hit, 260 - hit});
    next.push_back({name, 260, 1});
  }
  p.Run(first);
  p.Run(next, nullptr, [&](ScenarioPlan& plan) {
    if (!p.wrong && !shared) return;
    for (size_t row = 1; row < 8; ++row) {
      for (size_t column = 0; column < 16; ++column)
        plan.Table(0, row, column) = static_cast<int64_t>(100 + column);
    }
  });
}

BUG(B162, vllm_issues_39146, Geometry::Full(16, 16).Flags(kPrefix)) {
  const Ints a = Seq('a', 0, 39);
  const Ints b = Seq('b', 0, 39);
  if (p.RightOf(2) == 0) {
    p.s.Admit("A", {{1, 2, 3}}).Tokens(a);
    p.Run({{"A", 0, 40}});
    p.Run({{"A", 40, 1}});
    p.s.Finish("A");
    p.Idle();
    p.s.Admit("B", {{3, 1, 2}}).Tokens(b);
    p.Run({{"B", 0, 40}});
    p.Run({{"B", 40, 1}});
  } else {
    p.s.Admit("A", {{4, 5, 6}}).Tokens(a).Admit("B", {{7, 8, 9}}).Tokens(b);
    p.Run({{"A", 0, 40}, {"B", 0, 40}});
    p.Run({{"A", 40, 1}, {"B", 40, 1}});
  }
}

}  // namespace
}  // namespace kvguard::tests
