// SPDX-License-Identifier: Apache-2.0
// Details of the content rules: what is known of tokens, and until when; hits that are given back
// in their own record.
#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "audit/scenario.h"
#include "rules/catalog.h"

namespace kvguard::tests {
namespace {

using audit::Scenario;
using audit::ScenarioOptions;

constexpr int64_t kNoTable = int64_t{1} << 40;  // an id that no table can hold

size_t Count(const Scenario& s, uint32_t code) {
  const std::vector<uint32_t> codes = s.Codes();
  return static_cast<size_t>(std::count(codes.begin(), codes.end(), code));
}

// --- what is filled ---

TEST(ContentDetails, ABlockOfOneTokenIsUnwrittenToo) {
  ScenarioOptions options;
  options.groups[0].block_size = options.groups[0].kernel_block_size = 1;
  Scenario s(options);
  s.Admit("a", {{1}}).Admit("b", {{1, 2}}, 1).Schedule("b", 1).Begin();
  EXPECT_EQ(Count(s, rules::kContentUnwritten), 1u) << s.Report();
}

// One finding for each request, however many columns.
TEST(ContentDetails, EveryReaderOfAnUnwrittenBlockIsTold) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Admit("b", {{1, 2, 3}}, 8).Admit("c", {{1, 2, 4}}, 8);
  s.Schedule("b", 1).Begin();
  std::vector<uint64_t> readers;
  for (const kvguard_finding& f : s.Findings()) {
    if (f.code != rules::kContentUnwritten) continue;
    EXPECT_EQ(f.pos, 0);
    readers.push_back(f.request);
  }
  EXPECT_EQ(readers, (std::vector<uint64_t>{s.Key("b"), s.Key("c")})) << s.Report();
}

// --- hits that are given back ---

TEST(ContentDetails, AHitThatIsGivenBackReadsNothing) {
  for (const bool back : {false, true}) {
    Scenario s;
    s.Admit("a", {{1}}).Admit("b", {{1}}, 4);
    if (back) s.Truncate("b", 0);
    s.Begin();
    EXPECT_EQ(Count(s, rules::kContentUnwritten), back ? 0u : 1u) << s.Report();
  }
  for (const bool back : {false, true}) {
    Scenario s;
    s.Admit("a", {{1, 2}}).Schedule("a", 8).Step();
    s.Admit("b", {{2}}, 4);
    if (back) s.Truncate("b", 0);
    s.Begin();
    EXPECT_EQ(Count(s, rules::kContentMisplaced), back ? 0u : 1u) << s.Report();
  }
}

TEST(ContentDetails, AHitMayGiveWayToAnIdThatNoTableCanHold) {
  Scenario s;
  s.Admit("b", {{1}}, 4).Truncate("b", 0).Append("b", {kNoTable}).Begin();
  EXPECT_EQ(s.Codes(), std::vector<uint32_t>{rules::kBlockOutOfRange}) << s.Report();
}

TEST(ContentDetails, AMisplacedHitThatIsMadeTwiceIsToldOnce) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 8).Step();
  s.Admit("b", {{2}}, 4).Truncate("b", 0).Append("b", {2}).Begin();
  EXPECT_EQ(Count(s, rules::kContentMisplaced), 1u) << s.Report();
}

TEST(ContentDetails, AnotherFindingOfItsColumnHidesNoMisplacedHit) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 8).Step();
  s.Admit("b", {{64}}, 4).Truncate("b", 0).Append("b", {2}).Begin();
  EXPECT_EQ(Count(s, rules::kBlockOutOfRange), 1u) << s.Report();
  EXPECT_EQ(Count(s, rules::kContentMisplaced), 1u) << s.Report();
}

// --- what is known ---

TEST(ContentDetails, OfAReaderWithoutTokensNothingIsCompared) {
  for (const bool live : {true, false}) {
    Scenario s;
    s.Admit("a", {{1, 2}}).Tokens({1, 2, 3, 4}).Schedule("a", 4).Step();
    if (!live) s.Finish("a");
    s.Admit("b", {{1, 3}}, 4).Schedule("b", 1).Step();
    EXPECT_EQ(s.Report(), "");
    EXPECT_EQ(s.verdict().assumptions, 0u);
  }
}

// Its binder may still tell, so its first reader says nothing of it.
TEST(ContentDetails, AReaderDoesNotSayWhatALiveBinderWrote) {
  for (const bool live : {true, false}) {
    Scenario s;
    s.Admit("a", {{1, 2}}).Schedule("a", 4).Step();
    if (!live) s.Finish("a");
    s.Admit("b", {{1, 3}}, 4).Tokens({1, 2, 3, 4}).Schedule("b", 1).Step();
    EXPECT_EQ(s.verdict().assumptions, live ? 0u : 1u);
    s.Admit("c", {{1, 4}}, 4).Tokens({1, 2, 3, 9}).Schedule("c", 1).Step();
    EXPECT_EQ(Count(s, rules::kContentMismatch), live ? 0u : 1u) << s.Report();
  }
}

// A DOMAIN of a later record ends what is known of the request.
TEST(ContentDetails, ALateDomainEndsWhatIsKnown) {
  for (const bool late : {false, true}) {
    Scenario s;
    s.Admit("a", {{1, 2}}).Tokens({1, 2, 3, 4}).Schedule("a", 4).Step();
    if (late) s.Domain(KVGUARD_DOMAIN_LORA, 7, 0, 4);
    s.Admit("b", {{1, 3}}, 4).Tokens({1, 2, 3, 9}).Schedule("b", 1).Step();
    EXPECT_EQ(Count(s, rules::kContentMismatch), late ? 0u : 1u) << s.Report();
  }
}

TEST(ContentDetails, ARequestMayEndInTheRecordThatAdmitsIt) {
  Scenario s;
  s.Admit("x", {{9}}).Schedule("x", 1).Admit("a", {{1}}).Tokens({1, 2, 3, 4}).Finish("a").Step();
  EXPECT_EQ(s.Report(), "");
}

// What an earlier step sampled is told while the next one is open.
TEST(ContentDetails, TokensOfAnEarlierStepStandWhereItSampledThem) {
  for (const int64_t last : {8, 9}) {
    Scenario s;
    s.Admit("a", {{1, 2, 3}}).Tokens({1, 2, 3, 4}).Schedule("a", 4).Step();
    const uint64_t first = s.step();
    s.Schedule("a", 1).Begin();
    s.Outcome(first, "a", 1, 0, {5});
    s.Plan(s.RightPlan());
    s.End();
    for (const int64_t token : {6, 7, 8}) {
      s.Outcome(s.step(), "a", 1, 0, {token});
      s.Schedule("a", 1).Step();
    }
    s.Admit("b", {{1, 2, 4}}, 8).Tokens({1, 2, 3, 4, 5, 6, 7, last}).Schedule("b", 1).Step();
    EXPECT_EQ(Count(s, rules::kContentMismatch), last == 8 ? 0u : 1u) << s.Report();
    EXPECT_EQ(s.verdict().assumptions, 0u);
  }
}

// A row that sampled more than it tells ends what is known, be the same position told later.
TEST(ContentDetails, AfterTokensThatWereNotToldNothingIsLearnt) {
  for (const bool told : {true, false}) {
    Scenario s;
    s.Admit("a", {{1, 2}}).Tokens({1, 2, 3}).Schedule("a", 3).Step();
    if (!told) s.Outcome(s.step(), "a", 1, 0);
    s.Rollback("a", 1).Schedule("a", 1).Step();
    s.Outcome(s.step(), "a", 1, 0, {4});
    s.Schedule("a", 1).Step();
    s.Admit("b", {{1, 3}}, 4).Tokens({1, 2, 3, 9}).Schedule("b", 1).Step();
    EXPECT_EQ(Count(s, rules::kContentMismatch), told ? 1u : 0u) << s.Report();
  }
}

}  // namespace
}  // namespace kvguard::tests
