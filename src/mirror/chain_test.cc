// SPDX-License-Identifier: Apache-2.0
#include "mirror/chain.h"

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "kvguard/kvguard.h"

namespace kvguard::mirror {
namespace {

constexpr int64_t kUnit = 4;

Chain Of(const std::vector<int64_t>& tokens, const std::vector<Domain>& domains = {}) {
  Chain chain;
  for (const Domain& domain : domains) chain.AddDomain(domain);
  chain.Append(0, tokens.data(), tokens.size(), kUnit);
  return chain;
}

bool SameTokens(const Chain& a, const Chain& b, int64_t end) {
  return a.NameAt(end, kUnit).tokens == b.NameAt(end, kUnit).tokens;
}

bool SameDomain(const Chain& a, const Chain& b, int64_t end) {
  return a.NameAt(end, kUnit).domain == b.NameAt(end, kUnit).domain;
}

TEST(Chain, NamesWholeUnitsOnly) {
  const Chain chain = Of({1, 2, 3, 4, 5, 6, 7});
  EXPECT_NE(chain.NameAt(4, kUnit).tokens, 0u);
  EXPECT_EQ(chain.NameAt(8, kUnit).tokens, 0u);
  EXPECT_EQ(chain.NameAt(0, kUnit).tokens, 0u);
}

TEST(Chain, ANameIsOfAllTokensFromTheFirstOn) {
  const Chain a = Of({1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_TRUE(SameTokens(a, Of({1, 2, 3, 4, 5, 6, 7, 8, 9}), 8));
  EXPECT_FALSE(SameTokens(a, Of({9, 2, 3, 4, 5, 6, 7, 8}), 8));
  EXPECT_FALSE(SameTokens(a, Of({5, 6, 7, 8}), 4));
  EXPECT_NE(a.NameAt(4, kUnit).tokens, a.NameAt(8, kUnit).tokens);
  // An order, and a length, is part of it.
  EXPECT_FALSE(SameTokens(Of({1, 2, 3, 4}), Of({2, 1, 3, 4}), 4));
  EXPECT_FALSE(SameTokens(Of({0, 0, 0, 0}), Of({0, 0, 0, 0, 0, 0, 0, 0}), 8));
}

TEST(Chain, HowTokensCameDoesNotMatter) {
  const Chain whole = Of({1, 2, 3, 4, 5, 6, 7, 8});
  Chain parts;
  const std::vector<int64_t> tokens = {1, 2, 3, 4, 5, 6, 7, 8};
  parts.Append(0, tokens.data(), 3, kUnit);
  parts.Append(3, tokens.data() + 3, 4, kUnit);
  parts.Append(7, tokens.data() + 7, 1, kUnit);
  EXPECT_TRUE(SameTokens(whole, parts, 4));
  EXPECT_TRUE(SameTokens(whole, parts, 8));
}

TEST(Chain, NothingIsLearntBehindTokensThatDoNotContinue) {
  for (const int64_t first : {int64_t{3}, int64_t{9}}) {
    Chain chain = Of({1, 2, 3, 4, 5, 6, 7, 8});
    const int64_t token = 1;
    chain.Append(first, &token, 1, kUnit);
    const std::vector<int64_t> more = {9, 10, 11, 12};
    chain.Append(8, more.data(), more.size(), kUnit);
    EXPECT_NE(chain.NameAt(8, kUnit).tokens, 0u) << first;
    EXPECT_EQ(chain.NameAt(12, kUnit).tokens, 0u) << first;
  }
}

TEST(Chain, WhatIsKnownStaysWhenItIsClosed) {
  Chain chain = Of({1, 2, 3, 4});
  chain.Close();
  const std::vector<int64_t> more = {5, 6, 7, 8};
  chain.Append(4, more.data(), more.size(), kUnit);
  EXPECT_NE(chain.NameAt(4, kUnit).tokens, 0u);
  EXPECT_EQ(chain.NameAt(8, kUnit).tokens, 0u);
}

TEST(Chain, ADomainTellsEqualTokensApartWhereItStands) {
  const std::vector<int64_t> tokens = {1, 2, 3, 4, 5, 6, 7, 8};
  const Chain plain = Of(tokens);
  const Chain image = Of(tokens, {{KVGUARD_DOMAIN_MULTIMODAL, 77, 4, 3}});
  EXPECT_TRUE(SameTokens(plain, image, 8));
  EXPECT_TRUE(SameDomain(plain, image, 4));
  EXPECT_FALSE(SameDomain(plain, image, 8));
  EXPECT_FALSE(SameDomain(image, Of(tokens, {{KVGUARD_DOMAIN_MULTIMODAL, 78, 4, 3}}), 8));
  EXPECT_TRUE(SameDomain(image, Of(tokens, {{KVGUARD_DOMAIN_MULTIMODAL, 77, 4, 3}}), 8));
}

// Of an image the place in it counts; of an adapter or a salt only that it is there.
TEST(Chain, OnlyAdaptersAndSaltsAreTheSameEverywhere) {
  const std::vector<int64_t> tokens(8, 5);
  for (const uint64_t kind : {uint64_t{KVGUARD_DOMAIN_LORA}, uint64_t{KVGUARD_DOMAIN_SALT}}) {
    EXPECT_TRUE(SameDomain(Of(tokens, {{kind, 1, 0, 8}}),
                           Of(tokens, {{kind, 1, 0, 2}, {kind, 1, 2, 6}}), 8));
  }
  EXPECT_FALSE(SameDomain(
      Of(tokens, {{KVGUARD_DOMAIN_MULTIMODAL, 1, 0, 8}}),
      Of(tokens, {{KVGUARD_DOMAIN_MULTIMODAL, 1, 0, 2}, {KVGUARD_DOMAIN_MULTIMODAL, 1, 2, 6}}), 8));
}

// Neither the order of marks nor a mark told twice counts, and each ends where it ends.
TEST(Chain, MarksAreASet) {
  const std::vector<int64_t> tokens(12, 5);
  const Domain lora = {KVGUARD_DOMAIN_LORA, 1, 0, 6};
  const Domain image = {KVGUARD_DOMAIN_MULTIMODAL, 2, 3, 6};
  const Domain endless = {KVGUARD_DOMAIN_SALT, 3, 1, INT64_MAX};
  const Chain a = Of(tokens, {lora, image, endless});
  const Chain b = Of(tokens, {endless, image, lora, image});
  for (const int64_t end : {4, 8, 12}) EXPECT_TRUE(SameDomain(a, b, end)) << end;
  EXPECT_FALSE(SameDomain(a, Of(tokens, {lora, image}), 4));
  EXPECT_FALSE(SameDomain(a, Of(tokens, {image, endless}), 4));
}

TEST(Chain, ALateDomainEndsWhatIsKnown) {
  Chain chain = Of({1, 2, 3, 4});
  chain.AddDomain({KVGUARD_DOMAIN_LORA, 1, 2, 4});
  EXPECT_EQ(chain.NameAt(4, kUnit).tokens, 0u);
}

TEST(Chain, ItsStateIsAllOfIt) {
  Chain chain = Of({1, 2, 3, 4, 5}, {{KVGUARD_DOMAIN_SALT, 3, 0, 9}});
  Chain copy;
  copy.set_state(chain.state());
  const std::vector<int64_t> more = {6, 7, 8};
  chain.Append(5, more.data(), more.size(), kUnit);
  copy.Append(5, more.data(), more.size(), kUnit);
  EXPECT_TRUE(SameTokens(chain, copy, 8));
  EXPECT_TRUE(SameDomain(chain, copy, 8));
}

// 0 is no name: every one is odd.
TEST(Chain, ANameIsNeverNothing) {
  for (int64_t i = 0; i < 16; ++i) {
    const ContentName name = Of({i, 2, 3, 4}).NameAt(4, kUnit);
    EXPECT_EQ(name.tokens & 1, 1u);
    EXPECT_EQ(name.domain & 1, 1u);
  }
}

// What marks positions may be told when those in front of them are known already.
TEST(Chain, ADomainMayBeginBehindTheKnownTokens) {
  const std::vector<int64_t> tokens = {1, 2, 3, 4, 5, 6, 7, 8};
  const Domain first = {KVGUARD_DOMAIN_LORA, 7, 0, 4};
  const Domain second = {KVGUARD_DOMAIN_LORA, 8, 4, 4};
  Chain parts;
  parts.AddDomain(first);
  parts.Append(0, tokens.data(), 4, kUnit);
  parts.AddDomain(second);
  parts.Append(4, tokens.data() + 4, 4, kUnit);
  EXPECT_TRUE(SameDomain(parts, Of(tokens, {first, second}), 8));
  EXPECT_FALSE(SameDomain(parts, Of(tokens, {first}), 8));
}

// Names lie in snapshots, which other builds read: a mark counts from where it begins.
TEST(Chain, NamesStayWhatTheyAre) {
  const Chain chain = Of({1, 2, 3, 4, 5, 6, 7, 8}, {{KVGUARD_DOMAIN_MULTIMODAL, 9, 2, 4}});
  EXPECT_EQ(chain.NameAt(8, kUnit).tokens, 2246776020857537941u);
  EXPECT_EQ(chain.NameAt(8, kUnit).domain, 4297286304338462861u);
}

}  // namespace
}  // namespace kvguard::mirror
