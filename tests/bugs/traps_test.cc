// SPDX-License-Identifier: Apache-2.0
// Legal situations that public threads took for faults: the sketches of traps.toml.
#include <algorithm>
#include <random>

#include "tests/bugs/bug_test.h"

namespace kvguard::tests {
namespace {

constexpr uint32_t kWindow = KVGUARD_GROUP_WINDOW;

BUG(T1, LMCache_pull_2263, Geometry::Full(16, 64).Flags(kPrefix | kConnector)) {
  p.s.Admit("P", {Range(1, 18)}).Tokens(Seq('p', 0, 287));
  p.Run({{"P", 0, 288}});
  p.s.Finish("P").Admit("R", {Range(1, 33)}, 512);
  p.s.Tokens(Seq('p', 0, 287) + Seq('r', 288, 512));
  p.s.Blocks(kLoad, "R", Range(17, 32), 1, 256).Blocks(kLoadDone, "", {}, 1);
  p.Run({{"R", 512, 1}});
}

BUG(T2, nano_vllm_issues_144, Geometry::Full(4, 64).Flags(kPrefix)) {
  p.s.Admit("A", {{1, 2}}).Tokens(Seq('a', 0, 7));
  p.Run({{"A", 0, 8}});
  p.s.Append("A", {3}).Admit("B", {{1, 2}}, 7).Tokens(Seq('a', 0, 7));
  p.Run({{"A", 8, 1}, {"B", 7, 1}});
}

BUG(T3, sglang_pull_27228, Geometry::Full(4, 64).Drafts(8)) {
  p.s.Admit("R", {{1, 2, 3, 4}});
  const auto columns = [](ScenarioPlan& plan) { plan.groups[0].row_columns = {4}; };
  p.Run({{"R", 0, 5}}, columns);
  p.Begin({{"R", 5, 9, 8}});
  p.Show(columns);
  p.End();
  p.Told(2, "R", 8);
  p.Run({{"R", 6, 9, 8}}, columns);
  p.Run({{"R", 15, 1}}, columns);
}

BUG(T4, padded_columns_point_at_the_null_block,
    Geometry::Full(4, 64).And(kWindow, 8, 4, 0).Flags(kPrefix)) {
  p.s.Admit("R", {{1, 2, 3, 4}, {11, 12, 13, 14}}).Tokens(Seq('r', 0, 12));
  p.Run({{"R", 0, 13}});
  p.Run({{"R", 13, 1}}, [](ScenarioPlan& plan) { plan.Pad(3, 3); });
  p.s.Finish("R").Admit("S", {{1, 2, 3, 5}, {0, 12, 13, 15}}, 12).Tokens(Seq('r', 0, 12));
  p.Run({{"S", 12, 1}});
}

BUG(T5, vllm_pull_55227, Geometry::Full(4, 16).Flags(kAsync)) {
  p.s.Admit("A", {{1, 2}}).Admit("B", {{3, 4}});
  p.Run({{"A", 0, 5}, {"B", 0, 5}});
  p.Begin({{"A", 5, 1}, {"B", 5, 1}});
  p.Show();
  p.End();
  p.Begin({{"A", 6, 1}, {"B", 6, 1}});
  p.Told(2, "A");
  p.Told(2, "B");
  p.Show();
  p.End();
  p.s.Finish("A").Admit("C", {{5, 6}});
  p.Begin({{"B", 7, 1}, {"C", 0, 5}});
  p.Show();
  p.Told(3, "B");
  p.Told(3, "A");
  p.End();
  p.s.Admit("D", {{1, 2}});
  p.Run({{"D", 0, 5}, {"C", 5, 1}});
}

BUG(T6, vllm_issues_21694, Geometry::Chunked(4, 2, 64)) {
  p.s.Admit("R", {{5, 6}});
  p.Run({{"R", 0, 4}});
  p.s.Admit("N", {{5, 6}}).Append("R", {7});
  p.Run({{"N", 0, 4}, {"R", 4, 1}});
  p.Run({{"R", 5, 1}});
}

BUG(T7, vllm_issues_39146, Geometry::Full(16, 16).Flags(kPrefix)) {
  std::mt19937 random(39146);
  Ints blocks = Range(1, 15);
  const Ints tokens[2] = {Seq('a', 0, 39), Seq('b', 0, 39)};
  for (int mix = 0; mix < 200; ++mix) {
    std::shuffle(blocks.begin(), blocks.end(), random);
    std::vector<std::string> names;
    std::vector<Row> prefill;
    std::vector<Row> decode;
    // One to five requests of the two prompts, in any order, each with three blocks of the pool.
    const auto count = static_cast<int64_t>(1 + random() % 5);
    for (int64_t i = 0; i < count; ++i) {
      names.push_back(std::to_string(mix));
      names.back().append("-").append(std::to_string(i));
      const auto own = blocks.begin() + 3 * i;
      p.s.Admit(names.back(), {Ints(own, own + 3)}).Tokens(tokens[random() % 2]);
      prefill.push_back({names.back(), 0, 40});
      decode.push_back({names.back(), 40, 1});
    }
    p.Run(prefill);
    std::shuffle(decode.begin(), decode.end(), random);
    p.Run(decode);
    for (const std::string& name : names) p.s.Finish(name);
  }
}

}  // namespace
}  // namespace kvguard::tests
