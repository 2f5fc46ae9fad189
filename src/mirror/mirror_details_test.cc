// SPDX-License-Identifier: Apache-2.0
// The mirror's bookkeeping, function by function: outcomes, assumptions, claims, windows, history.
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "mirror/mirror.h"

namespace kvguard::mirror {
namespace {

// A full and a windowed group over one pool, and a windowed one over another.
geometry::Layout WithWindows() {
  geometry::Layout layout;
  layout.forgets = true;
  layout.content_unit = 4;
  for (uint32_t pool = 0; pool < 2; ++pool) layout.pools.push_back({64, 0, KVGUARD_POOL_PAGES, 0});
  for (uint32_t id = 0; id < 3; ++id) {
    geometry::Group group;
    group.id = id;
    group.pool = id == 2 ? 1 : 0;
    group.kind = id == 0 ? KVGUARD_GROUP_FULL : KVGUARD_GROUP_WINDOW;
    group.block_size = group.slots_per_block = group.block_stride = group.kernel_block_size = 4;
    group.window = id == 0 ? 0 : 8;
    group.num_slots = 256;
    layout.groups.push_back(group);
  }
  return layout;
}

class Details : public testing::Test {
 protected:
  Details() { mirror_.Init(&layout_, 8, 1u << 20); }
  Request& Admit(uint64_t key, int64_t computed = 0) {
    return mirror_.at(mirror_.Admit(key, "", computed, 1));
  }
  Request& Get(uint64_t key) { return mirror_.at(mirror_.Find(key)); }
  void Fresh(uint64_t key, size_t group, int64_t block, uint64_t step = 1) {
    const geometry::Group& g = layout_.groups[group];
    const int64_t column = mirror_.BoundBlocks(Get(key), g);
    Mirror::ClaimFresh(&mirror_.TouchBlock(g, block), key, step);
    Mirror::SetHome(&mirror_.TouchBlock(g, block), g.id, column);
    mirror_.Push(&Get(key), g, block, step);
  }
  const Block& Of(size_t group, int64_t block) {
    return mirror_.BlockOf(layout_.groups[group], block);
  }
  void Schedule(uint64_t key, int64_t start, int64_t tokens, int64_t drafts = 0) {
    Request& request = Get(key);
    request.start = request.start_low = request.start_high = start;
    request.num_tokens = tokens;
    request.num_drafts = drafts;
    mirror_.Schedule(mirror_.Find(key));
  }

  geometry::Layout layout_ = WithWindows();
  Mirror mirror_;
};

// --- states ---

// After a step that may have stopped anywhere nothing is known of where it ended.
TEST_F(Details, AnAbandonedStepForgetsWhereItsStatesEnd) {
  layout_.has_states = true;
  for (const bool abandoned : {false, true}) {
    const uint64_t key = abandoned ? 2 : 1;
    Admit(key, 4);
    mirror_.BeginStep(2);
    Schedule(key, 4, 3, 2);
    mirror_.EndStep(2, true, abandoned);
    EXPECT_EQ(Get(key).states_end, abandoned ? int64_t{KVGUARD_NONE} : 7);
    EXPECT_EQ(Get(key).states_drafts, abandoned ? 0 : 2);
  }
}

// --- outcomes ---

TEST_F(Details, AnOutcomeMovesItsOwnStepAlone) {
  Request& r = Admit(1);
  r.frontier = {8, 11, 11};
  r.pending = {{1, 2}, {2, 1}};
  r.settled = {{3, 4}, {4, 1}};
  r.assumed = {{1, 9, 8, 1}, {3, 9, 8, 2}};
  int64_t drafts = 77;
  EXPECT_TRUE(mirror_.Outcome(&r, 9, 0, &drafts));  // nothing is known of it, nothing is said
  EXPECT_EQ(drafts, 0);
  drafts = 77;
  EXPECT_FALSE(mirror_.Outcome(&r, 9, 1, &drafts));
  EXPECT_EQ(drafts, 0);
  EXPECT_FALSE(mirror_.Outcome(&r, 2, 2, &drafts));
  EXPECT_EQ(drafts, 1);
  EXPECT_EQ(r.pending.size(), 2u);
  EXPECT_TRUE(mirror_.Outcome(&r, 1, 1, &drafts));
  EXPECT_EQ(drafts, 2);
  EXPECT_EQ(r.frontier.valid_low, 9);
  EXPECT_EQ(r.frontier.valid_high, 10);
  ASSERT_EQ(r.pending.size(), 1u);
  EXPECT_EQ(r.pending[0].step, 2u);
  EXPECT_EQ(r.assumed[0].low, 8);  // taken in that step itself, before its drafts
  EXPECT_EQ(r.assumed[0].open, 1u);
  EXPECT_EQ(r.assumed[1].low, 9);
  EXPECT_EQ(r.assumed[1].open, 1u);
  EXPECT_FALSE(mirror_.Outcome(&r, 4, 2, &drafts));
  EXPECT_EQ(drafts, 1);
  EXPECT_TRUE(mirror_.Outcome(&r, 4, 1, &drafts));
  EXPECT_FALSE(mirror_.Outcome(&r, 4, 1, &drafts));  // told once
  EXPECT_EQ(r.settled.size(), 1u);
  r.forgotten_before = 7;
  EXPECT_TRUE(mirror_.Outcome(&r, 6, 1, &drafts));
  EXPECT_FALSE(mirror_.Outcome(&r, 7, 1, &drafts));
}

TEST_F(Details, SixteenSettledStepsAreRemembered) {
  Request& r = Admit(1);
  for (uint64_t step = 1; step <= 16; ++step) Mirror::AddSettled(&r, {step, 1});
  EXPECT_EQ(r.forgotten_before, 0u);
  EXPECT_EQ(r.settled.size(), 16u);
  Mirror::AddSettled(&r, {17, 1});
  EXPECT_EQ(r.forgotten_before, 2u);
  ASSERT_EQ(r.settled.size(), 16u);
  EXPECT_EQ(r.settled.front().step, 2u);
}

TEST_F(Details, SettlingEndsAssumptions) {
  Request& r = Admit(1);
  r.assumed = {{1, 9, 8, 1}};
  Mirror::Settle(&r);  // nothing is open
  EXPECT_EQ(r.assumed.size(), 1u);
  r.pending = {{1, 2}};
  Mirror::Settle(&r);
  EXPECT_TRUE(r.assumed.empty());
  EXPECT_TRUE(r.pending.empty());
  EXPECT_EQ(r.settled.size(), 1u);
}

TEST_F(Details, StartsAreAssumedWhereDraftsExplainThem) {
  Request& r = Admit(1);
  mirror_.BeginStep(5);
  r.frontier = {8, 8, 8};
  mirror_.Assume(&r, 8);  // nothing is open
  r.frontier = {8, 11, 11};
  r.pending = {{3, 2}};
  mirror_.Assume(&r, 9);  // two drafts do not explain three tokens
  EXPECT_TRUE(r.assumed.empty());
  r.pending.push_back({4, 1});
  for (int64_t start : {9, 9, 10}) mirror_.Assume(&r, start);
  ASSERT_EQ(r.assumed.size(), 2u);
  EXPECT_EQ(r.assumed[0].step, 5u);
  EXPECT_EQ(r.assumed[0].low, 8);
  EXPECT_EQ(r.assumed[0].open, 2u);
  mirror_.BeginStep(6);
  mirror_.Assume(&r, 9);  // the same start in another step
  EXPECT_EQ(r.assumed.size(), 3u);
  for (uint64_t step = 7; step <= 20; ++step) {
    mirror_.BeginStep(step);
    mirror_.Assume(&r, 9);
  }
  ASSERT_EQ(r.assumed.size(), 16u);
  EXPECT_EQ(r.assumed.front().start, 10);
}

// --- the end of a step ---

TEST_F(Details, AStepMovesWhatItScheduled) {
  for (const uint64_t key : {1, 2, 3}) Admit(key, 4);
  Get(1).frontier = {4, 7, 7};
  Get(1).pending = {{1, 3}};
  mirror_.BeginStep(2);
  Schedule(1, 6, 2);
  Schedule(2, 4, 3, 2);
  mirror_.EndStep(2, true, false);
  EXPECT_EQ(Get(1).frontier.valid_low, 8);  // its start was known: what was open is settled
  EXPECT_EQ(Get(1).frontier.valid_high, 8);
  EXPECT_TRUE(Get(1).pending.empty());
  EXPECT_EQ(Get(1).filled, 8);
  EXPECT_EQ(Get(2).frontier.valid_low, 5);
  EXPECT_EQ(Get(2).frontier.valid_high, 7);
  EXPECT_EQ(Get(2).frontier.scheduler, 7);
  ASSERT_EQ(Get(2).pending.size(), 1u);
  EXPECT_EQ(Get(3).frontier.valid_high, 4);
  EXPECT_FALSE(mirror_.IsOpen(2));
  EXPECT_FALSE(mirror_.IsScheduled(Get(1)));
  // Without a forward nothing moves; a request that ended meanwhile is left alone.
  mirror_.BeginStep(3);
  EXPECT_FALSE(mirror_.IsScheduled(Get(1)));
  Schedule(1, 8, 2);
  mirror_.EndStep(3, false, false);
  EXPECT_EQ(Get(1).frontier.valid_low, 8);
  mirror_.BeginStep(4);
  Schedule(1, 8, 2);
  mirror_.Release(mirror_.Find(1), 4);
  Admit(4, 4);  // in the same place
  mirror_.EndStep(4, true, false);
  EXPECT_EQ(Get(4).frontier.valid_high, 4);
}

TEST_F(Details, WhatWasRejectedInsideAStepIsOfThatStepAlone) {
  Admit(1, 4);
  mirror_.BeginStep(2);
  Schedule(1, 4, 3, 2);
  Get(1).rejected = 2;
  mirror_.EndStep(2, true, false);
  EXPECT_EQ(Get(1).frontier.valid_low, 5);
  EXPECT_EQ(Get(1).frontier.valid_high, 5);
  mirror_.BeginStep(3);
  Schedule(1, 5, 3, 2);
  EXPECT_EQ(Get(1).rejected, KVGUARD_NONE);
  mirror_.EndStep(3, true, true);  // abandoned: anything may have been written
  EXPECT_EQ(Get(1).frontier.valid_low, 5);
  EXPECT_EQ(Get(1).frontier.valid_high, 8);
  EXPECT_EQ(Get(1).settled.back().drafts, 3);
}

TEST_F(Details, SixteenStepsOfSampledTokensAreRemembered) {
  Admit(1, 4).chain.Append(0, nullptr, 0, 4);
  for (uint64_t step = 2; step < 19; ++step) {
    mirror_.BeginStep(step);
    Schedule(1, static_cast<int64_t>(step), 3, 1);
    mirror_.EndStep(step, true, false);
  }
  ASSERT_EQ(Get(1).sampled_at.size(), 16u);
  EXPECT_EQ(Get(1).sampled_at.front().step, 3u);
  EXPECT_EQ(Get(1).sampled_at.front().position, 3 + 3 - 1);
}

TEST_F(Details, AStepForgetsOldHistoryAndItsOwnAnnouncements) {
  Admit(1);
  mirror_.Release(mirror_.Find(1), 1);
  mirror_.hits().push_back({1, 0, 0});
  mirror_.copying().set_says_done(true);
  mirror_.copying().Add({0, 0, 3, 4, false});
  mirror_.BeginStep(9);
  EXPECT_TRUE(mirror_.hits().empty());
  EXPECT_FALSE(mirror_.copying().AnyOpen());
  mirror_.EndStep(9, true, false);
  EXPECT_NE(mirror_.FindReleased(1), nullptr);
  mirror_.BeginStep(10);
  mirror_.EndStep(10, true, false);
  EXPECT_EQ(mirror_.FindReleased(1), nullptr);
}

// --- windows ---

// Window 8 at 16: positions 9 to 15 are read, columns 0 and 1 are behind.
TEST_F(Details, ClaimsBehindAWindowEnd) {
  Admit(1, 0);
  for (int64_t block = 1; block <= 5; ++block) Fresh(1, 1, block);
  mirror_.BeginStep(2);
  Schedule(1, 0, 16);
  mirror_.EndStep(2, true, false);
  EXPECT_EQ(Get(1).rows[1].expired, 2);
  for (int64_t block = 1; block <= 5; ++block)
    EXPECT_EQ(Of(1, block).claims, block <= 2 ? 0u : 1u) << block;
  // By an outcome as well.
  Get(1).pending = {{2, 4}};
  Get(1).frontier.valid_high = 20;
  int64_t drafts = 0;
  EXPECT_TRUE(mirror_.Outcome(&Get(1), 2, 0, &drafts));
  EXPECT_EQ(Get(1).rows[1].expired, 3);
  EXPECT_EQ(Of(1, 3).claims, 0u);
}

TEST_F(Details, ATruncatedWindowHasNoPast) {
  Admit(1, 16);
  for (int64_t block = 1; block <= 4; ++block) Fresh(1, 1, block);
  Get(1).rows[1].expired = 3;
  mirror_.Truncate(&Get(1), layout_.groups[1], 4, 1);  // nothing is behind that
  EXPECT_EQ(Get(1).rows[1].expired, 3);
  mirror_.Truncate(&Get(1), layout_.groups[1], 2, 1);
  EXPECT_EQ(Get(1).rows[1].expired, 2);
  EXPECT_EQ(Get(1).rows[1].claimed_in.size(), 2u);
  Fresh(1, 1, 9);
  EXPECT_TRUE(mirror_.IsClaimed(Get(1), layout_.groups[1], 2));
}

// Drafts leave columns open: whoever binds their block next ends the claim of exactly those.
TEST_F(Details, OnlyWhatIsNotNeededLapses) {
  for (const uint64_t key : {1, 2}) {
    Admit(key, 8);
    for (int64_t column = 0; column < 4; ++column) Fresh(key, key == 1 ? 1 : 2, 10 + column);
    Get(key).frontier = {8, 16, 16};
  }
  mirror_.Lapse(layout_.groups[0], 10, 3);
  EXPECT_EQ(Of(0, 10).claims, 0u);
  EXPECT_EQ(Of(0, 11).claims, 1u);
  EXPECT_EQ(Of(2, 10).claims, 1u);  // of another pool
  EXPECT_TRUE(Get(1).maybe_stale);
  EXPECT_FALSE(Get(2).maybe_stale);
  EXPECT_FALSE(mirror_.IsClaimed(Get(1), layout_.groups[1], 0));
  EXPECT_FALSE(mirror_.HoldsItsBlock(Get(1), layout_.groups[1], 0));
  mirror_.Lapse(layout_.groups[0], 12, 3);  // needed whatever is accepted
  EXPECT_EQ(Of(0, 12).claims, 1u);
  EXPECT_TRUE(mirror_.HoldsItsBlock(Get(1), layout_.groups[1], 2));
}

TEST_F(Details, ABlockThatIsInNoPoolIsNotStale) {
  Admit(1, 8);
  mirror_.Push(&Get(1), layout_.groups[1], 64, 1);
  EXPECT_TRUE(mirror_.HoldsItsBlock(Get(1), layout_.groups[1], 0));
}

// --- claims ---

TEST_F(Details, AFreshClaimNamesWhoHadTheBlock) {
  Block b;
  b.owner = 4;
  b.written = b.freed = true;
  b.content = {3, 5};
  Mirror::ClaimFresh(&b, 4, 2);
  EXPECT_EQ(b.last_owner, 0u);
  EXPECT_EQ(b.released_step, 0u);
  EXPECT_FALSE(b.written);
  EXPECT_FALSE(b.freed);
  EXPECT_EQ(b.content.tokens, 0u);
  Mirror::ClaimFresh(&b, 6, 3);
  EXPECT_EQ(b.last_owner, 4u);
  EXPECT_EQ(b.released_step, 3u);
  EXPECT_EQ(b.owner, 6u);
  b.freed = true;
  Mirror::ClaimHit(&b, 3);
  EXPECT_FALSE(b.freed);
  EXPECT_EQ(b.claims, 3u);
  b.content = {3, 5};
  b.written = true;
  b.home = 2;
  Mirror::ForgetContent(&b);
  EXPECT_EQ(b.home, 0u);
  EXPECT_FALSE(b.bound);
  EXPECT_FALSE(b.written);
  EXPECT_EQ(b.content.tokens, 0u);
}

TEST_F(Details, AHitThatIsGivenBackInItsStepIsNoEarlierClaim) {
  for (const uint64_t key : {1, 2}) {
    Admit(key, 4);
    Mirror::ClaimHit(&mirror_.TouchBlock(layout_.groups[0], 7), 5);
    mirror_.Push(&Get(key), layout_.groups[0], 7, 5);
    Get(key).rows[0].hit_step = 5;
    Get(key).rows[0].hit_end = 1;
  }
  mirror_.Truncate(&Get(1), layout_.groups[0], 0, 5);
  EXPECT_EQ(Of(0, 7).claims, 1u);
  EXPECT_EQ(Mirror::EarlierClaims(Of(0, 7), 5), 0u);
  EXPECT_EQ(Mirror::EarlierClaims(Of(0, 7), 6), 1u);
  const Row& row = Get(2).rows[0];
  EXPECT_TRUE(row.IsHitOf(5, 0));
  EXPECT_FALSE(row.IsHitOf(5, 1));
  EXPECT_FALSE(row.IsHitOf(4, 0));
}

// Of a block that its request holds twice, the column that it belongs to ends the ownership.
TEST_F(Details, TheHomeColumnEndsTheOwnership) {
  const int64_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 8};
  Request& r = Admit(1, 8);
  r.chain.Append(0, tokens, 8, 4);
  Fresh(1, 0, 7);
  mirror_.Push(&r, layout_.groups[0], 7, 1);
  ++mirror_.TouchBlock(layout_.groups[0], 7).claims;
  mirror_.Truncate(&r, layout_.groups[0], 1, 2);
  EXPECT_EQ(Of(0, 7).owner, 1u);
  EXPECT_EQ(Of(0, 7).content.tokens, 0u);
  mirror_.Truncate(&r, layout_.groups[0], 0, 2);
  EXPECT_EQ(Of(0, 7).owner, 0u);
  EXPECT_EQ(Of(0, 7).last_owner, 1u);
  EXPECT_EQ(Of(0, 7).released_step, 2u);
  EXPECT_TRUE(Of(0, 7).written);
  EXPECT_EQ(Of(0, 7).content.tokens, r.chain.NameAt(4, 4).tokens);
  // One that was never filled is not written, and what was loaded keeps its own content.
  Fresh(1, 0, 8);
  Fresh(1, 0, 9);
  Fresh(1, 0, 10);
  mirror_.TouchBlock(layout_.groups[0], 9).bound = false;
  mirror_.TouchBlock(layout_.groups[0], 9).content = {33, 35};
  mirror_.Truncate(&r, layout_.groups[0], 0, 3);
  EXPECT_FALSE(Of(0, 10).written);
  EXPECT_EQ(Of(0, 9).content.tokens, 33u);
  EXPECT_EQ(Of(0, 9).owner, 0u);
}

TEST_F(Details, TheSmallestKeyIsFoundWhereverItLies) {
  for (const uint64_t key : {9, 5, 7}) {
    Admit(key);
    Mirror::ClaimHit(&mirror_.TouchBlock(layout_.groups[0], 6), 1);
    mirror_.Push(&Get(key), layout_.groups[key == 7 ? 1 : 0], 6, 1);
  }
  const auto any = [](const Request&, const geometry::Group&, int64_t) { return true; };
  EXPECT_EQ(mirror_.at(mirror_.FindClaim(layout_.groups[0], 6, any)).key, 5u);
  EXPECT_EQ(mirror_.FindClaim(layout_.groups[2], 6, any), kNoRequest);
  EXPECT_EQ(mirror_.at(mirror_.Holder(layout_.groups[0], 6, 5).request).key, 7u);
  EXPECT_EQ(mirror_.Holder(layout_.groups[2], 6, 5).request, kNoRequest);
}

TEST_F(Details, WhatIsMendedIsNotLost) {
  Admit(1);
  Fresh(1, 0, 6);
  EXPECT_FALSE(mirror_.AnyLostClaimed());
  mirror_.SetLost(layout_.groups[0], 6, true);
  mirror_.SetLost(layout_.groups[0], 6, true);
  EXPECT_TRUE(mirror_.AnyLostClaimed());
  mirror_.SetLost(layout_.groups[0], 6, false);
  EXPECT_FALSE(mirror_.AnyLostClaimed());
  mirror_.NoteLostClaim();
  EXPECT_FALSE(mirror_.AnyLostClaimed());
  mirror_.SetLost(layout_.groups[0], 7, true);  // nobody claims that one
  EXPECT_FALSE(mirror_.AnyLostClaimed());
  Fresh(1, 0, 7);
  mirror_.NoteLostClaim();
  EXPECT_TRUE(mirror_.AnyLostClaimed());
  // A mirror that was reset has lost nothing, and has room for the same history again.
  mirror_.Reset();
  Admit(2);
  Fresh(2, 0, 7);
  mirror_.NoteLostClaim();
  EXPECT_FALSE(mirror_.AnyLostClaimed());
}

TEST_F(Details, AResetGivesTheHistoryItsRoomBack) {
  const uint64_t one = sizeof(Released) + 3 * sizeof(Row);
  mirror_.Init(&layout_, 8, 3 * one);
  for (int life = 0; life < 2; ++life) {
    for (const uint64_t key : {1, 2, 3}) {
      Admit(key);
      mirror_.Release(mirror_.Find(key), 1);
    }
    EXPECT_EQ(mirror_.released().size(), 3u) << life;
    mirror_.Reset();
  }
}

TEST_F(Details, IdsUpToTheLargestEntryAreKept) {
  Admit(1);
  mirror_.Push(&Get(1), layout_.groups[0], INT32_MAX);
  mirror_.Push(&Get(1), layout_.groups[0], int64_t{INT32_MAX} + 1);
  mirror_.Push(&Get(1), layout_.groups[0], 0);
  EXPECT_EQ(Get(1).rows[0].entries, (std::vector<int32_t>{INT32_MAX, -1, 0}));
  EXPECT_TRUE(Get(1).rows[0].claimed_in.empty());
}

// Rows are stamped anew each time, and never with nothing.
TEST_F(Details, StampsDoNotRepeat) {
  Admit(1);
  Fresh(1, 0, 6);
  const uint64_t first = mirror_.StampRow(Get(1), layout_.groups[0]);
  EXPECT_EQ(Of(0, 6).stamp, first);
  EXPECT_EQ(first, 1u);
  EXPECT_EQ(mirror_.StampRow(Get(1), layout_.groups[0]), 2u);
}

// --- chain ---

// Marks begin with their first position and end behind their last one.
TEST(ChainDetails, MarksCoverTheirPositionsAlone) {
  const std::vector<int64_t> tokens(12, 5);
  const auto name = [&](std::vector<Domain> domains, int64_t end) {
    Chain chain;
    for (const Domain& domain : domains) chain.AddDomain(domain);
    chain.Append(0, tokens.data(), tokens.size(), 1);
    return chain.NameAt(end, 1).domain;
  };
  const std::vector<Domain> none;
  for (const uint64_t kind : {uint64_t{KVGUARD_DOMAIN_SALT}, uint64_t{KVGUARD_DOMAIN_MULTIMODAL}}) {
    const std::vector<Domain> mark = {{kind, 7, 4, 3}};
    EXPECT_EQ(name(mark, 4), name(none, 4));
    EXPECT_NE(name(mark, 5), name(none, 5));
    EXPECT_NE(name(mark, 7), name({{kind, 7, 4, 2}}, 7));
    EXPECT_EQ(name(mark, 6), name({{kind, 7, 4, 2}}, 6));
    EXPECT_EQ(name(mark, 7), name({{kind, 7, 4, 3}, {kind, 7, 7, 5}}, 7));
    EXPECT_NE(name(mark, 8), name({{kind, 7, 4, 3}, {kind, 7, 7, 5}}, 8));
    EXPECT_EQ(name({{kind, 7, 4, INT64_MAX}}, 12), name({{kind, 7, 4, 8}}, 12));
    EXPECT_EQ(name({{kind, 7, 4, INT64_MAX - 4}}, 12), name({{kind, 7, 4, 8}}, 12));
  }
}

// What was told while others stood is told of the right positions still.
TEST(ChainDetails, AMarkThatComesLaterCounts) {
  const std::vector<int64_t> tokens(12, 5);
  Chain whole;
  whole.AddDomain({KVGUARD_DOMAIN_SALT, 7, 0, 12});
  whole.AddDomain({KVGUARD_DOMAIN_SALT, 8, 6, 6});
  whole.Append(0, tokens.data(), 12, 1);
  Chain parts;
  parts.AddDomain({KVGUARD_DOMAIN_SALT, 7, 0, 12});
  parts.Append(0, tokens.data(), 6, 1);
  parts.AddDomain({KVGUARD_DOMAIN_SALT, 8, 6, 6});
  parts.Append(6, tokens.data() + 6, 6, 1);
  EXPECT_EQ(parts.NameAt(12, 1).domain, whole.NameAt(12, 1).domain);
  Chain restored;
  restored.set_state(parts.state());
  EXPECT_EQ(restored.NameAt(12, 1).domain, whole.NameAt(12, 1).domain);
  // One that begins before what is known ends it, for good.
  parts.AddDomain({KVGUARD_DOMAIN_SALT, 9, 3, 2});
  EXPECT_EQ(parts.NameAt(4, 1).tokens, 0u);
  parts.Append(12, tokens.data(), 4, 1);
  EXPECT_EQ(parts.NameAt(1, 1).tokens, 0u);
}

}  // namespace
}  // namespace kvguard::mirror
