// SPDX-License-Identifier: Apache-2.0
// Reports of the table that the stream cannot decide: played as they were, none is proved. What the
// stream would have to say stands in README.md.
#include "rules/catalog.h"
#include "tests/bugs/bug_test.h"

namespace kvguard::tests {
namespace {

void ExpectNotDecided(const Play& p) {
  EXPECT_EQ(p.s.Report(), "");
  EXPECT_EQ(p.s.verdict().verdict, static_cast<uint32_t>(KVGUARD_CLEAN));
}

// R ends with what came out of the last step but one; the last one may still run on the device, for
// its outcome is told only when a load into one of R's blocks has begun.
void LoadBeforeTheLastOutcome(Play& p, int64_t computed, int64_t block, uint32_t group,
                              const std::vector<Ints>& neighbour) {
  p.Begin({{"R", computed}});
  p.Show();
  p.End();
  const uint64_t last_but_one = p.s.step();
  p.Begin({{"R", computed + 1}});
  p.Show();
  p.End();
  p.Told(last_but_one, "R");
  p.s.Finish("R").Expect("S").Blocks(kLoad, "S", {block}, 1, 0, group);
  p.s.Admit("N", neighbour);
  p.Begin({{"N", 0, 10}});
  p.Told(last_but_one + 1, "R");
  p.Show();
  p.End();
}

TEST(NotJudged, B029_vllm_pull_45357) {
  Play p(Geometry::Full(16, 64).Flags(kAsync | kConnector).options(), true, 0);
  p.s.Admit("R", {{5, 6}});
  p.Run({{"R", 0, 20}});
  LoadBeforeTheLastOutcome(p, 20, 6, 0, {{20}});
  ExpectNotDecided(p);
}

TEST(NotJudged, B031_vllm_pull_45096) {
  const Geometry geometry =
      Geometry::Full(16, 64).State(kStateNone, 16, 0).Flags(kAsync | kConnector);
  Play p(geometry.options(), true, 0);
  p.s.Admit("R", {{3}, {9}});
  p.Run({{"R", 0, 8}});
  LoadBeforeTheLastOutcome(p, 8, 9, 1, {{20}, {21}});
  ExpectNotDecided(p);
}

TEST(NotJudged, B033_sglang_pull_36738) {
  Play p(Geometry::Full(64, 64).Flags(kAsync | kPrefix | kConnector).options(), true, 0);
  p.s.Admit("R", {{30}});
  p.Run({{"R", 0, 20}});
  LoadBeforeTheLastOutcome(p, 20, 30, 0, {{20}});
  ExpectNotDecided(p);
}

TEST(NotJudged, B094_vllm_issues_52071) {
  Play p(Geometry::Full(16, 64).Drafts(2).options(), true, 0);
  p.s.Admit("R", {{1, 2, 3}});
  p.Run({{"R", 0, 30}});
  p.Begin({{"R", 30, 3, 2}});
  p.Show();
  p.End();
  p.s.Computed("R") = 30;
  p.Begin({{"R", 30, 3, 2}});
  EXPECT_EQ(p.first_at(), "begin");
  p.Show();
  p.End();
  const std::vector<kvguard_finding> findings = p.s.Findings();
  ASSERT_EQ(findings.size(), 1u) << p.s.Report();
  EXPECT_EQ(findings[0].code, rules::kCountBehind);
  EXPECT_EQ(findings[0].grade, static_cast<uint32_t>(KVGUARD_GRADE_SUSPICION));
  EXPECT_EQ(findings[0].expected, 31);
  EXPECT_EQ(findings[0].observed, 30);
  EXPECT_EQ(p.s.verdict().verdict, static_cast<uint32_t>(KVGUARD_CLEAN));
}

}  // namespace
}  // namespace kvguard::tests
