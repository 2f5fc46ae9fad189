// SPDX-License-Identifier: Apache-2.0
#include "rules/catalog.h"

#include <cstring>
#include <set>
#include <string>

#include <gtest/gtest.h>

namespace kvguard::rules {
namespace {

TEST(Catalog, CodesRiseAndSayTheirFamily) {
  uint32_t previous = 0;
  for (const kvguard_rule& rule : Catalog()) {
    EXPECT_GT(rule.code, previous);
    previous = rule.code;
    EXPECT_EQ(rule.code / 100, rule.family) << rule.code;
    EXPECT_EQ(rule.size, sizeof(kvguard_rule));
    EXPECT_STREQ(rule.family_name, kvguard_name("family", rule.family)) << rule.code;
    EXPECT_NE(kvguard_name("grade", rule.grade), nullptr) << rule.code;
  }
  EXPECT_EQ(Catalog().size(), 61u) << "a new rule also needs its planted example in tests/rules";
}

TEST(Catalog, NamesAreKebabCaseAndUnique) {
  std::set<std::string> names;
  for (const kvguard_rule& rule : Catalog()) {
    EXPECT_TRUE(names.insert(rule.name).second) << rule.name;
    EXPECT_EQ(std::strspn(rule.name, "abcdefghijklmnopqrstuvwxyz-"), std::strlen(rule.name))
        << rule.name;
    EXPECT_NE(rule.name[0], '-');
  }
}

TEST(Catalog, SentencesAreSentences) {
  std::set<std::string> sentences;
  for (const kvguard_rule& rule : Catalog()) {
    const std::string sentence = rule.sentence;
    ASSERT_GT(sentence.size(), 20u) << rule.code;
    EXPECT_TRUE(sentences.insert(sentence).second) << sentence;
    EXPECT_EQ(sentence.back(), '.') << sentence;
    EXPECT_TRUE(sentence[0] >= 'A' && sentence[0] <= 'Z') << sentence;
  }
}

TEST(FindRule, FindsEachCodeAndNoOther) {
  for (const kvguard_rule& rule : Catalog()) EXPECT_EQ(FindRule(rule.code), &rule);
  for (const uint32_t code : {0u, 100u, 107u, 200u, 408u, 900u, 906u, 9999u, 0xffffffffu})
    EXPECT_EQ(FindRule(code), nullptr) << code;
}

TEST(CausalRank, WhatIsDecidedExplainsWhatIsPlanned) {
  const auto explains = [](uint32_t cause, uint32_t effect) {
    EXPECT_LT(CausalRank(cause), CausalRank(effect)) << cause << " explains " << effect;
  };
  explains(kBlockNull, kBlockOwned);
  explains(kBlockNull, kCountAhead);
  explains(kBlockNull, kContentMismatch);
  explains(kCountAhead, kRowUnknown);
  explains(kCapacityShort, kSlotMismatch);
  explains(kBlockOwned, kTableMismatch);
  explains(kTwoWriters, kSlotWrittenTwice);
  explains(kCountAhead, kFrontierMismatch);
  explains(kRowUnknown, kTableMismatch);
  explains(kQueryLengthMismatch, kSeqLenMismatch);
  explains(kTableMismatch, kFrontierMismatch);
  explains(kTableMismatch, kSlotMismatch);
  explains(kFrontierMismatch, kSeqLenMismatch);
  explains(kSeqLenMismatch, kSlotMismatch);
  explains(kSlotMismatch, kForeignWrite);
  explains(kForeignWrite, 9999);  // and what no rule says, last of all
}

}  // namespace
}  // namespace kvguard::rules
