// SPDX-License-Identifier: Apache-2.0
#include "mirror/mirror.h"

#include <vector>

#include <gtest/gtest.h>

namespace kvguard::mirror {
namespace {

// Two groups over one pool: blocks of 4 tokens in a table of blocks, blocks of 8 in one of kernel
// blocks of 4.
geometry::Layout SharedPool() {
  geometry::Layout layout;
  layout.pools.push_back({32, 0, KVGUARD_POOL_PAGES, 0});
  for (uint32_t id = 0; id < 2; ++id) {
    geometry::Group group;
    group.id = id;
    group.kind = KVGUARD_GROUP_FULL;
    group.table_unit = id == 0 ? KVGUARD_UNIT_BLOCK : KVGUARD_UNIT_KERNEL_BLOCK;
    group.block_size = id == 0 ? 4 : 8;
    group.kernel_block_size = 4;
    group.kernel_per_block = group.block_size / 4;
    group.num_slots = 32 * group.block_size;
    layout.groups.push_back(group);
  }
  return layout;
}

class MirrorTest : public testing::Test {
 protected:
  MirrorTest() { mirror_.Init(&layout_, 8, 1u << 20); }

  Request& Get(uint64_t key) { return mirror_.at(mirror_.Find(key)); }
  const geometry::Group& Group(size_t id) { return layout_.groups[id]; }
  void BindFresh(uint64_t key, size_t group, int64_t block, uint64_t step) {
    Mirror::ClaimFresh(&mirror_.TouchBlock(Group(group), block), key, step);
    mirror_.Push(&Get(key), Group(group), block);
  }
  void BindHit(uint64_t key, size_t group, int64_t block, uint64_t step) {
    Mirror::ClaimHit(&mirror_.TouchBlock(Group(group), block), step);
    mirror_.Push(&Get(key), Group(group), block);
  }
  void Schedule(uint64_t key, int64_t start, int64_t tokens, int64_t drafts = 0) {
    Request& request = Get(key);
    request.start = request.start_low = request.start_high = start;
    request.num_tokens = tokens;
    request.num_drafts = drafts;
    mirror_.Schedule(mirror_.Find(key));
  }
  uint32_t EarlierClaims(int64_t block, uint64_t step) {
    return mirror_.EarlierClaims(mirror_.BlockOf(Group(0), block), step);
  }

  geometry::Layout layout_ = SharedPool();
  Mirror mirror_;
};

TEST_F(MirrorTest, AdmittedIsFoundUntilReleased) {
  mirror_.Admit(7, "a", 3, 1);
  ASSERT_NE(mirror_.FindRequest(7), nullptr);
  EXPECT_EQ(Get(7).name, "a");
  EXPECT_EQ(Get(7).frontier.valid_low, 3);
  EXPECT_EQ(Get(7).frontier.valid_high, 3);
  EXPECT_EQ(mirror_.num_live(), 1u);
  BindFresh(7, 0, 5, 1);
  mirror_.Release(mirror_.Find(7), 2);
  EXPECT_EQ(mirror_.FindRequest(7), nullptr);
  EXPECT_EQ(mirror_.num_live(), 0u);
  ASSERT_NE(mirror_.FindReleased(7), nullptr);
  EXPECT_EQ(mirror_.FindReleased(7)->name, "a");
  ASSERT_NE(mirror_.RowsOf(7), nullptr);
  EXPECT_EQ((*mirror_.RowsOf(7))[0].entries, std::vector<int32_t>{5});
  const Block& block = mirror_.BlockOf(Group(0), 5);
  EXPECT_EQ(block.owner, 0u);
  EXPECT_EQ(block.last_owner, 7u);
  EXPECT_EQ(block.claims, 0u);
}

TEST_F(MirrorTest, APlaceIsUsedAgainWithoutItsPast) {
  mirror_.Admit(7, "a", 3, 1);
  BindFresh(7, 0, 5, 1);
  const uint32_t place = mirror_.Find(7);
  mirror_.Release(place, 2);
  EXPECT_EQ(mirror_.Admit(8, "b", 0, 2), place);
  EXPECT_EQ(mirror_.BoundBlocks(Get(8), Group(0)), 0);
  EXPECT_EQ(Get(8).frontier.valid_high, 0);
}

TEST_F(MirrorTest, RowsHoldTheTablesOwnUnit) {
  mirror_.Admit(7, "a", 0, 1);
  BindFresh(7, 1, 3, 1);
  BindFresh(7, 1, 10, 1);
  EXPECT_EQ(Get(7).rows[1].entries, (std::vector<int32_t>{6, 7, 20, 21}));
  EXPECT_EQ(mirror_.BoundBlocks(Get(7), Group(1)), 2);
  EXPECT_EQ(mirror_.BlockAt(Get(7), Group(1), 1), 10);
}

TEST_F(MirrorTest, IdsThatNoTableHoldsStayRecognisable) {
  mirror_.Admit(7, "a", 0, 1);
  for (const int64_t block : {int64_t{-5}, int64_t{1} << 40, INT64_MAX, INT64_MIN}) {
    mirror_.Push(&Get(7), Group(1), block);
  }
  mirror_.Push(&Get(7), Group(1), INT32_MAX / 2);  // the largest whose last kernel block fits
  mirror_.Push(&Get(7), Group(1), INT32_MAX / 2 + 1);
  EXPECT_EQ(mirror_.BlockAt(Get(7), Group(1), 0), -1);
  EXPECT_EQ(mirror_.BlockAt(Get(7), Group(1), 3), -1);
  EXPECT_EQ(mirror_.BlockAt(Get(7), Group(1), 4), INT32_MAX / 2);
  EXPECT_EQ(mirror_.BlockAt(Get(7), Group(1), 5), -1);
  mirror_.Release(mirror_.Find(7), 1);  // none of them is a block to give up
}

TEST_F(MirrorTest, TruncateGivesTheTailUp) {
  mirror_.Admit(7, "a", 0, 1);
  for (const int64_t block : {3, 4, 5}) BindFresh(7, 1, block, 1);
  mirror_.MarkAppend(&Get(7), Group(1));
  mirror_.Truncate(&Get(7), Group(1), 1, 2);
  EXPECT_EQ(Get(7).rows[1].entries, (std::vector<int32_t>{6, 7}));
  EXPECT_EQ(Get(7).rows[1].last_append, 2u);
  EXPECT_EQ(mirror_.BlockOf(Group(1), 3).owner, 7u);
  EXPECT_EQ(mirror_.BlockOf(Group(1), 4).owner, 0u);
  EXPECT_EQ(mirror_.BlockOf(Group(1), 5).claims, 0u);
  mirror_.Truncate(&Get(7), Group(1), 9, 2);  // beyond the row: nothing to do
  EXPECT_EQ(mirror_.BoundBlocks(Get(7), Group(1)), 1);
}

TEST_F(MirrorTest, HitsOfTheStepDoNotCountAsEarlierClaims) {
  mirror_.Admit(1, "a", 0, 1);
  mirror_.Admit(2, "b", 4, 1);
  BindHit(2, 0, 5, 1);
  EXPECT_EQ(EarlierClaims(5, 1), 0u);
  EXPECT_EQ(EarlierClaims(5, 2), 1u);
  BindFresh(1, 0, 5, 1);
  EXPECT_EQ(EarlierClaims(5, 1), 1u);
  mirror_.Admit(3, "c", 4, 2);
  BindHit(3, 0, 5, 2);
  EXPECT_EQ(EarlierClaims(5, 2), 2u);
  mirror_.Release(mirror_.Find(1), 2);
  mirror_.Release(mirror_.Find(2), 2);
  EXPECT_EQ(EarlierClaims(5, 2), 0u);
  EXPECT_EQ(EarlierClaims(5, 3), 1u);
}

TEST_F(MirrorTest, AStampMarksTheRowsBlocksAndNoOthers) {
  mirror_.Admit(1, "a", 0, 1);
  BindFresh(1, 0, 5, 1);
  BindFresh(1, 0, 6, 1);
  mirror_.Push(&Get(1), Group(0), -3);
  const uint64_t stamp = mirror_.StampRow(Get(1), Group(0));
  EXPECT_NE(stamp, 0u);
  EXPECT_EQ(mirror_.BlockOf(Group(0), 5).stamp, stamp);
  EXPECT_EQ(mirror_.BlockOf(Group(0), 6).stamp, stamp);
  EXPECT_NE(mirror_.BlockOf(Group(0), 7).stamp, stamp);
  EXPECT_NE(mirror_.StampRow(Get(1), Group(0)), stamp);
}

TEST_F(MirrorTest, TheHolderIsTheOwnerElseTheSmallestKey) {
  EXPECT_EQ(mirror_.Holder(Group(0), 5, 0).request, kNoRequest);
  for (const uint64_t key : {9, 4, 6}) mirror_.Admit(key, "r", 8, 1);
  BindHit(9, 0, 3, 1);
  BindHit(9, 0, 5, 1);
  BindHit(6, 0, 5, 1);
  BindHit(4, 1, 3, 1);
  BindHit(4, 1, 5, 1);  // another group of the pool: in units of its own
  const Holding smallest = mirror_.Holder(Group(0), 5, 0);
  EXPECT_EQ(smallest.request, mirror_.Find(4));
  EXPECT_EQ(smallest.first, 8);
  EXPECT_EQ(smallest.block_size, 8);
  const Holding next = mirror_.Holder(Group(0), 5, 4);
  EXPECT_EQ(next.request, mirror_.Find(6));
  EXPECT_EQ(next.first, 0);
  EXPECT_EQ(next.block_size, 4);
  mirror_.TouchBlock(Group(0), 5).owner = 9;
  EXPECT_EQ(mirror_.Holder(Group(0), 5, 0).request, mirror_.Find(9));
  EXPECT_EQ(mirror_.Holder(Group(0), 5, 0).first, 4);
  EXPECT_EQ(mirror_.Holder(Group(0), 5, 9).request, mirror_.Find(4));
}

TEST_F(MirrorTest, AForwardMovesTheFrontierOfWhatWasScheduled) {
  mirror_.Admit(1, "a", 0, 1);
  mirror_.Admit(2, "b", 0, 1);
  mirror_.BeginStep(1);
  Schedule(1, 0, 5);
  EXPECT_TRUE(mirror_.IsScheduled(Get(1)));
  EXPECT_FALSE(mirror_.IsScheduled(Get(2)));
  mirror_.EndStep(1, true, false);
  EXPECT_EQ(Get(1).frontier.valid_low, 5);
  EXPECT_EQ(Get(1).frontier.valid_high, 5);
  EXPECT_EQ(Get(1).frontier.scheduler, 5);
  EXPECT_EQ(Get(2).frontier.valid_high, 0);
  mirror_.BeginStep(2);
  Schedule(1, 5, 3);
  mirror_.EndStep(2, false, false);
  EXPECT_EQ(Get(1).frontier.valid_high, 5);
}

TEST_F(MirrorTest, AnAbandonedStepMayHaveStoppedAnywhere) {
  mirror_.Admit(1, "a", 0, 1);
  mirror_.BeginStep(1);
  Schedule(1, 0, 5);
  mirror_.EndStep(1, true, true);
  EXPECT_EQ(Get(1).frontier.valid_low, 0);
  EXPECT_EQ(Get(1).frontier.valid_high, 5);
}

TEST_F(MirrorTest, DraftsOpenARangeThatTheirOutcomeCloses) {
  mirror_.Admit(1, "a", 10, 1);
  mirror_.BeginStep(1);
  Schedule(1, 10, 4, 3);
  mirror_.EndStep(1, true, false);
  EXPECT_EQ(Get(1).frontier.valid_low, 11);
  EXPECT_EQ(Get(1).frontier.valid_high, 14);
  EXPECT_EQ(Get(1).frontier.scheduler, 14);
  int64_t drafts = 0;
  EXPECT_FALSE(mirror_.Outcome(&Get(1), 1, 4, &drafts));
  EXPECT_EQ(drafts, 3);
  EXPECT_TRUE(mirror_.Outcome(&Get(1), 1, 2, &drafts));
  EXPECT_EQ(Get(1).frontier.valid_low, 12);
  EXPECT_EQ(Get(1).frontier.valid_high, 12);
  EXPECT_FALSE(mirror_.Outcome(&Get(1), 1, 1, &drafts)) << "the step has no drafts left";
  EXPECT_TRUE(mirror_.Outcome(&Get(1), 1, 0, &drafts));
}

TEST_F(MirrorTest, AnOutcomeInsideTheStepIsAppliedAtItsEnd) {
  mirror_.Admit(1, "a", 10, 1);
  mirror_.BeginStep(1);
  Schedule(1, 10, 4, 3);
  Get(1).rejected = 1;
  mirror_.EndStep(1, true, false);
  EXPECT_EQ(Get(1).frontier.valid_low, 13);
  EXPECT_EQ(Get(1).frontier.valid_high, 13);
  EXPECT_TRUE(Get(1).pending.empty());
}

TEST_F(MirrorTest, ASettledStepsOutcomeMovesNothing) {
  mirror_.Admit(1, "a", 10, 1);
  mirror_.BeginStep(1);
  Schedule(1, 10, 4, 3);
  mirror_.EndStep(1, true, false);
  Get(1).frontier = {12, 12, 12};
  Mirror::Settle(&Get(1));
  int64_t drafts = 0;
  EXPECT_TRUE(mirror_.Outcome(&Get(1), 1, 2, &drafts));
  EXPECT_EQ(Get(1).frontier.valid_low, 12);
  EXPECT_EQ(Get(1).frontier.valid_high, 12);
  EXPECT_FALSE(mirror_.Outcome(&Get(1), 2, 2, &drafts)) << "a step that had no drafts";
}

TEST_F(MirrorTest, TheRangeNeverTurnsAround) {
  mirror_.Admit(1, "a", 0, 1);
  mirror_.BeginStep(1);
  Schedule(1, 0, 4, 3);
  mirror_.EndStep(1, true, false);
  Get(1).frontier.valid_low = Get(1).frontier.valid_high = 1;  // known by other means, not settled
  int64_t drafts = 0;
  EXPECT_TRUE(mirror_.Outcome(&Get(1), 1, 3, &drafts));
  EXPECT_LE(Get(1).frontier.valid_low, Get(1).frontier.valid_high);
  EXPECT_GE(Get(1).frontier.valid_low, 0);
}

TEST_F(MirrorTest, HistoryIsBoundedBySteps) {
  for (uint64_t step = 1; step <= 40; ++step) {
    mirror_.Admit(step, "r", 0, step);
    BindFresh(step, 0, 1, step);
    mirror_.Release(mirror_.Find(step), step);
  }
  EXPECT_EQ(mirror_.FindReleased(31), nullptr);
  EXPECT_NE(mirror_.FindReleased(32), nullptr);
  EXPECT_EQ(mirror_.released().size(), 9u);
}

TEST_F(MirrorTest, HistoryIsBoundedByBytes) {
  mirror_.Init(&layout_, 1'000'000, 4096);
  const std::string name(1000, 'n');
  for (uint64_t key = 1; key <= 40; ++key) {
    mirror_.Admit(key, name, 0, key);
    mirror_.Release(mirror_.Find(key), key);
  }
  EXPECT_LE(mirror_.released().size(), 4u);
  EXPECT_NE(mirror_.FindReleased(40), nullptr);
}

TEST_F(MirrorTest, OnlyAnExecutedStepIsThePreviousOne) {
  mirror_.BeginStep(1);
  mirror_.executing() = {{7, 0, 5}};
  mirror_.EndStep(1, true, false);
  ASSERT_EQ(mirror_.previous_rows().size(), 1u);
  EXPECT_EQ(mirror_.previous_step(), 1u);
  mirror_.BeginStep(2);
  mirror_.executing() = {{8, 0, 5}, {9, 0, 1}};
  mirror_.EndStep(2, true, true);
  EXPECT_EQ(mirror_.previous_step(), 1u);
  mirror_.BeginStep(3);
  mirror_.EndStep(3, true, false);
  EXPECT_EQ(mirror_.previous_step(), 1u) << "a step without a plan leaves nothing to compare with";
}

TEST_F(MirrorTest, ResetForgetsEverything) {
  mirror_.Admit(1, "a", 4, 1);
  BindFresh(1, 0, 5, 1);
  mirror_.BeginStep(1);
  Schedule(1, 4, 1);
  mirror_.Reset();
  EXPECT_EQ(mirror_.num_live(), 0u);
  EXPECT_EQ(mirror_.FindRequest(1), nullptr);
  EXPECT_EQ(mirror_.BlockOf(Group(0), 5).claims, 0u);
  EXPECT_FALSE(mirror_.IsOpen(1));
  EXPECT_TRUE(mirror_.released().empty());
}

}  // namespace
}  // namespace kvguard::mirror
