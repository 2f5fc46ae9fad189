// SPDX-License-Identifier: Apache-2.0
#include "explain/prose.h"

#include <string>

#include <gtest/gtest.h>

#include "rules/catalog.h"
#include "step/status.h"

namespace kvguard::explain {
namespace {

std::string Name(uint64_t key) {
  switch (key) {
    case 1:
      return "0-b5365fe9";
    case 2:
      return "1-77c2a0d4";
    default:
      return step::Sprintf("key:%llu", static_cast<unsigned long long>(key));
  }
}

kvguard_finding Finding(uint32_t code) {
  kvguard_finding f{};
  f.size = sizeof(f);
  f.code = code;
  f.grade = KVGUARD_GRADE_PROOF;
  f.step = 1842;
  f.group = KVGUARD_ALL_GROUPS;
  f.row = f.pos = KVGUARD_NONE;
  f.victim_block = KVGUARD_NONE;
  f.count = 1;
  return f;
}

kvguard_finding WrongSlot() {
  kvguard_finding f = Finding(rules::kSlotMismatch);
  f.flags = KVGUARD_FINDING_HAS_VALUES;
  f.group = 0;
  f.request = 1;
  f.row = 3;
  f.pos = 517;
  f.expected = 8277;
  f.observed = 8293;
  f.pass = KVGUARD_PASS_TARGET;
  f.stage = KVGUARD_STAGE_PLANNED;
  f.causes_tried = 1u << KVGUARD_CAUSE_ROW_OF;
  return f;
}

void AddCause(kvguard_finding& f, uint32_t kind, uint64_t arg) {
  f.causes[f.num_causes++] = {kind, 0, arg};
}

// The two lines of the header, which scripts rely on.
TEST(MachineLine, IsTheOneOfTheHeader) {
  kvguard_finding f = WrongSlot();
  AddCause(f, KVGUARD_CAUSE_ROW_OF, 2);
  EXPECT_EQ(MachineLine(f, Name),
            "kvguard KV0401 slot-mismatch step=1842 rank=0 group=0 req=0-b5365fe9 row=3 pos=517 "
            "expected=8277 observed=8293 cause=row-of:1-77c2a0d4");
}

TEST(Prose, IsTheOneOfTheHeader) {
  kvguard_finding f = WrongSlot();
  f.flags |= KVGUARD_FINDING_HAS_VICTIM;
  f.victim = 2;
  f.victim_block = 518;
  f.victim_first = 512;
  f.victim_last = 527;
  f.victim_since = 1790;
  f.causes_tried = 0;
  EXPECT_EQ(Prose(f, {}, Name),
            "Request 0-b5365fe9 would have overwritten request 1-77c2a0d4's tokens 512..527 "
            "(block 518, owned since step 1790).");
}

TEST(MachineLine, FieldsWithoutAMeaningAreLeftOut) {
  EXPECT_EQ(MachineLine(Finding(rules::kRowMissing), Name),
            "kvguard KV0102 row-missing step=1842 rank=0");
  kvguard_finding f = Finding(rules::kSlotMismatch);
  f.flags = KVGUARD_FINDING_HAS_VALUES;
  f.expected = KVGUARD_NONE;
  f.observed = 5;
  EXPECT_EQ(MachineLine(f, Name), "kvguard KV0401 slot-mismatch step=1842 rank=0 observed=5");
}

TEST(MachineLine, WhatIsAddedStandsBehind) {
  kvguard_finding f = WrongSlot();
  f.flags |= KVGUARD_FINDING_HAS_VICTIM;
  f.because_of = rules::kTableMismatch;
  f.victim = 2;
  f.count = 4;
  f.stage = KVGUARD_STAGE_FINAL;
  f.pass = KVGUARD_PASS_DRAFT;
  f.pass_index = 2;
  f.grade = KVGUARD_GRADE_SUSPICION;
  EXPECT_EQ(MachineLine(f, Name),
            "kvguard KV0401 slot-mismatch step=1842 rank=0 group=0 req=0-b5365fe9 row=3 pos=517 "
            "expected=8277 observed=8293 cause=none because-of=KV0301 victim=1-77c2a0d4 count=4 "
            "stage=final pass=draft:2 grade=suspicion");
}

TEST(MachineLine, NamesEveryCause) {
  kvguard_finding f = WrongSlot();
  AddCause(f, KVGUARD_CAUSE_OFF_BY_ONE_BLOCK, static_cast<uint64_t>(-1));
  AddCause(f, KVGUARD_CAUSE_EARLIER_OWNER, 9);
  AddCause(f, KVGUARD_CAUSE_PREVIOUS_STEP, 1841);
  AddCause(f, KVGUARD_CAUSE_PHYSICAL_ID, 0);
  EXPECT_NE(MachineLine(f, Name).find(
                "cause=off-by-one-block:-1,earlier-owner:key:9,previous-step:1841,physical-id"),
            std::string::npos);
}

TEST(Prose, EveryRuleHasASentenceOfItsOwn) {
  for (const kvguard_rule& rule : rules::Catalog()) {
    for (const uint32_t flags :
         {0u, uint32_t{KVGUARD_FINDING_HAS_VALUES} | uint32_t{KVGUARD_FINDING_HAS_VICTIM}}) {
      kvguard_finding f = Finding(rule.code);
      f.flags = flags;
      f.request = 1;
      f.victim = 2;
      f.count = 3;
      const std::string text = Prose(f, {}, Name);
      EXPECT_NE(text, rule.sentence) << rule.code << " says nothing about this finding";
      EXPECT_EQ(text.back(), '.') << text;
      EXPECT_EQ(text.find("(null)"), std::string::npos) << text;
      EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    }
  }
}

TEST(Prose, EveryCauseHasASentence) {
  for (uint32_t kind = KVGUARD_CAUSE_ROW_OF; kind <= KVGUARD_CAUSE_LOST_APPEND; ++kind) {
    // Not found by this version; a later one's findings still print their cause in the line.
    const bool later = kind == KVGUARD_CAUSE_OTHER_GROUP || kind == KVGUARD_CAUSE_PHYSICAL_ID;
    kvguard_finding f = WrongSlot();
    const std::string without = Prose(f, {}, Name);
    EXPECT_NE(without.find("None of the usual mistakes"), std::string::npos);
    AddCause(f, kind, 2);
    const std::string with = Prose(f, {}, Name);
    if (!later) {
      EXPECT_GT(with.size(), std::string("Request 0-b5365fe9 would.").size());
      EXPECT_NE(with, without) << kind;
    }
    EXPECT_EQ(with.find("None of the usual mistakes"), std::string::npos) << kind;
  }
}

// Findings are values: they may come from a file, a later version or a confused caller.
TEST(Explain, UnknownValuesPrintAsUnknown) {
  kvguard_finding f = Finding(4242);
  f.pass = 99;
  f.stage = 99;
  f.num_causes = KVGUARD_MAX_CAUSES;
  for (kvguard_cause& cause : f.causes) cause.kind = 77;
  const std::string line = MachineLine(f, Name);
  EXPECT_NE(line.find("KV4242 unknown"), std::string::npos);
  EXPECT_NE(line.find("pass=unknown:0"), std::string::npos);
  EXPECT_NE(line.find("cause=unknown:0"), std::string::npos);
  EXPECT_FALSE(Prose(f, {}, Name).empty());
}

TEST(PercentEncode, KeepsTheWholeNameInOneField) {
  EXPECT_EQ(PercentEncode("cmpl-1_a.b:c"), "cmpl-1_a.b:c");
  EXPECT_EQ(PercentEncode("a b=c%\n"), "a%20b%3Dc%25%0A");
  EXPECT_EQ(PercentEncode(std::string_view("\0\xff", 2)), "%00%FF");
  EXPECT_EQ(PercentEncode("\xe2\x82\xac"), "%E2%82%AC");
  EXPECT_EQ(PercentEncode(""), "");
}

}  // namespace
}  // namespace kvguard::explain
