// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "audit/scenario.h"
#include "report/account.h"
#include "report/json.h"
#include "report/text.h"

namespace kvguard::report {
namespace {

using audit::Scenario;
using audit::ScenarioOptions;
using audit::ScenarioPlan;
using Strings = std::vector<std::string>;

TEST(Text, TablesAlign) {
  Table table("lr", 1);
  table.Row({"a", "1"});
  table.Row({"long", "1234"});
  table.Row({"\xc3\xa9", "7"});  // one character of two bytes
  EXPECT_EQ(table.Text(), " a        1\n long  1234\n \xc3\xa9        7\n");
}

TEST(Text, RunsOfValues) {
  EXPECT_EQ(Runs(std::vector<int64_t>{}), "none");
  EXPECT_EQ(Runs(std::vector<int64_t>{5}), "5");
  EXPECT_EQ(Runs(std::vector<int64_t>{5, 6}), "5 6");
  EXPECT_EQ(Runs(std::vector<int64_t>{5, 6, 7, 9, -1, 0}), "5..7 9 -1 0");
  EXPECT_EQ(Runs(std::vector<int64_t>{1, 3, 5, 7}, 2), "1 3 ... and 2 more");
  EXPECT_EQ(Runs(std::vector<int64_t>{INT64_MAX, INT64_MIN}),
            "9223372036854775807 -9223372036854775808");
}

TEST(Text, TheNearestWordIsNearEnough) {
  const Strings words = {"replay", "rules", "trace"};
  EXPECT_EQ(Nearest("replya", words), "replay");
  EXPECT_EQ(Nearest("rule", words), "rules");
  EXPECT_EQ(Nearest("something-else", words), "");
  EXPECT_EQ(Nearest(std::string(5000, 'x'), words), "");
}

TEST(Text, WrapsAtBlanks) {
  EXPECT_EQ(Wrap("one two three", 2, 9), "  one two\n  three\n");
  EXPECT_EQ(Wrap("unbreakable-word", 0, 4), "unbreakable-word\n");
  EXPECT_EQ(Wrap("", 3), "");
}

TEST(Account, OfACleanGuard) {
  ScenarioOptions options;
  options.standing_gaps = {"external-unproved"};
  Scenario s(options);
  s.Admit("a", {{1, 2}}).Schedule("a", 6).Step();
  const Account account = AccountOf(*s.guard());
  EXPECT_EQ(account.verdict.verdict, uint32_t{KVGUARD_CLEAN});
  EXPECT_TRUE(Reasons(account).empty());
  const std::string text = AccountText(account, {}, {{"verdict", "clean"}});
  EXPECT_NE(text.find("verdict      clean\n"), std::string::npos) << text;
  EXPECT_NE(text.find("1 row, 6 write slots, 2 table entries"), std::string::npos) << text;
  EXPECT_NE(text.find("not judged   external-unproved"), std::string::npos) << text;
  EXPECT_NE(CoverageText(account).find("slot"), std::string::npos);
}

TEST(Account, ReasonsOfAGuardThatCannotJudge) {
  Scenario nothing;
  EXPECT_EQ(Reasons(AccountOf(*nothing.guard())).size(), 1u);

  Scenario s;
  s.Admit("a", {{1}}).Schedule("a", 2).Begin();
  s.End();  // no plan came
  const Account account = AccountOf(*s.guard());
  ASSERT_EQ(account.verdict.verdict, uint32_t{KVGUARD_CANNOT_JUDGE});
  const std::string reasons = Join(Reasons(account));
  EXPECT_NE(reasons.find("table-not-presented: met 1 time, first in step 1"), std::string::npos)
      << reasons;
}

TEST(Account, FamiliesThatJudgedNothingAreNamed) {
  Account account;
  account.verdict.verdict = KVGUARD_CANNOT_JUDGE;
  account.verdict.steps = account.verdict.steps_judged = 3;
  kvguard_coverage_row row{};
  row.size = sizeof(row);
  row.pass = KVGUARD_PASS_TARGET;
  row.family = KVGUARD_FAMILY_SLOT;
  row.expected = 1;
  account.coverage.push_back(row);
  EXPECT_EQ(Join(Reasons(account)), "family slot judged nothing (group 0, pass target)");
}

TEST(Account, OfAGuardThatIsBlindInOneFamily) {
  ScenarioOptions options;
  options.standing_gaps = {"table-not-presented"};  // no step gap, and nothing compared
  Scenario s(options);
  s.Admit("a", {{1, 2}}).Schedule("a", 5).Step([](ScenarioPlan& plan) {
    plan.groups[0].table_present = false;
  });
  EXPECT_EQ(Join(Reasons(AccountOf(*s.guard()))),
            "family table judged nothing (group 0, pass target)");
}

TEST(Json, HoldsEveryFieldOfAFinding) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 6).Admit("b", {{3, 4}}).Schedule("b", 5);
  s.Step([](ScenarioPlan& plan) { plan.groups[0].slots[0] = 13; });
  const std::vector<kvguard_finding> findings = FindingsFrom(*s.guard(), 0);
  ASSERT_FALSE(findings.empty());
  const RenderedFinding rendered = Render(*s.guard(), findings[0]);
  EXPECT_EQ(rendered.line + "\n" + rendered.prose + "\n", s.Explain(findings[0]));
  EXPECT_EQ(FindingText(rendered), s.Explain(findings[0]));
  const Json json = Json::parse(Dump(FindingJson(rendered), -1));
  EXPECT_EQ(json.at("code"), "KV0401");
  EXPECT_EQ(json.at("grade"), "proof");
  EXPECT_EQ(json.at("first_cause"), true);
  EXPECT_EQ(json.at("expected"), 4);
  EXPECT_EQ(json.at("observed"), 13);
  EXPECT_EQ(json.at("victim").at("block"), 3);
  EXPECT_EQ(json.at("line"), rendered.line);
  EXPECT_FALSE(json.at("causes_tried").empty());
  EXPECT_EQ(json.at("because_of"), nullptr);
}

TEST(Json, CountsCoverageGaps) {
  ScenarioOptions options;
  options.standing_gaps = {"external-unproved"};
  Scenario s(options);
  s.Admit("a", {{1, 2}}).Schedule("a", 6).Step();
  const Account account = AccountOf(*s.guard());
  const Json counts = CountsJson(account.verdict);
  EXPECT_EQ(counts.at("steps"), 1);
  EXPECT_EQ(counts.at("slots"), 6);
  EXPECT_EQ(counts.at("first_violated_step"), nullptr);
  EXPECT_EQ(GapsJson(account.gaps).at(0).at("name"), "external-unproved");
  uint64_t slots = 0;
  for (const Json& row : CoverageJson(account.coverage)) {
    if (row.at("family") == "slot") slots += row.at("judged").get<uint64_t>();
  }
  EXPECT_EQ(slots, 6u);
}

TEST(Json, BytesThatAreNoUtf8AreReplaced) {
  const Json json = {{"path", "\xff\xfe"}};
  EXPECT_FALSE(Json::parse(Dump(json, -1)).is_discarded());
}

}  // namespace
}  // namespace kvguard::report
