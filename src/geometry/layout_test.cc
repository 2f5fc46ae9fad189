// SPDX-License-Identifier: Apache-2.0
#include "geometry/layout.h"

#include <cstdint>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace kvguard::geometry {
namespace {

// By definition: the first position that a token at `position` reads is its window's first.
TEST(Layout, AWindowKeepsItsLastTokensAndWhatIsRetained) {
  for (const int64_t retained : {0, 2, 5}) {
    Group group;
    group.kind = KVGUARD_GROUP_WINDOW;
    group.block_size = 4;
    group.window = 8;
    group.retained = retained;
    for (int64_t position = 0; position < 40; ++position) {
      int64_t first = position;  // the token itself
      for (int64_t kept = 1; kept < 8 + retained && first > 0; ++kept) --first;
      EXPECT_EQ(group.FirstNeeded(position), first) << position << " " << retained;
      for (int64_t column = 0; column < 10; ++column)
        EXPECT_EQ(group.Needs(column, position), column * 4 + 3 >= first) << column;
    }
  }
}

TEST(Layout, SinksAreKeptForEver) {
  Group group;
  group.kind = KVGUARD_GROUP_WINDOW;
  group.block_size = 4;
  group.window = 4;
  for (const auto& [sink, columns] : {std::pair{0, 0}, {1, 1}, {4, 1}, {5, 2}, {8, 2}}) {
    group.sink = sink;
    EXPECT_EQ(group.SinkColumns(), columns) << sink;
    for (int64_t column = 0; column < 5; ++column)
      EXPECT_EQ(group.Needs(column, 100), column < columns) << sink;
  }
}

TEST(Layout, AChunkIsReadFromItsBeginning) {
  Group group;
  group.kind = KVGUARD_GROUP_CHUNKED;
  group.window = 8;
  for (int64_t position = 0; position < 33; ++position)
    EXPECT_EQ(group.FirstNeeded(position), position - position % 8);
  group.kind = KVGUARD_GROUP_FULL;
  EXPECT_EQ(group.FirstNeeded(30), 0);
}

// A row of states goes on from the state of all tokens before it.
TEST(Layout, OfStatesTheLastIsNeeded) {
  Group group;
  group.kind = KVGUARD_GROUP_STATE;
  group.block_size = 1;
  for (const uint32_t mode : {KVGUARD_STATE_ALL, KVGUARD_STATE_ALIGN}) {
    group.state_mode = mode;
    EXPECT_TRUE(group.Forgets());
    for (const auto& [position, first] : {std::pair{0, 0}, {1, 0}, {2, 1}, {9, 8}}) {
      EXPECT_EQ(group.FirstNeeded(position), first) << position;
      EXPECT_EQ(group.FirstNeededColumn(position), first) << position;
    }
  }
  group.state_mode = KVGUARD_STATE_NONE;
  EXPECT_FALSE(group.Forgets());
  EXPECT_EQ(group.FirstNeeded(9), 0);
}

// Positions are dealt out in runs of `interleave`, rank by rank; each rank's slots are dense, in
// the order of its positions.
TEST(Layout, RanksDealOutPositionsInTurns) {
  for (const int64_t ranks : {1, 2, 3, 4}) {
    for (const int64_t interleave : {1, 2, 4}) {
      int64_t held = 0;
      std::vector<int64_t> next(static_cast<size_t>(ranks), 0);
      for (int64_t position = 0; position < 8 * ranks; ++position) {
        const int64_t owner = position / interleave % ranks;
        for (int64_t rank = 0; rank < ranks; ++rank) {
          Group group;
          group.slots_per_block = group.block_stride = 8;
          group.block_size = 8 * ranks;
          group.ranks = ranks;
          group.rank = rank;
          group.interleave = interleave;
          EXPECT_EQ(group.IsSharded(), ranks > 1);
          int64_t& count = next[static_cast<size_t>(rank)];
          EXPECT_EQ(group.LocalLength(position), count) << position << " " << rank;
          EXPECT_EQ(group.IsLocal(position), owner == rank);
          if (owner != rank) continue;
          EXPECT_EQ(group.SlotOf(5, position), 5 * 8 + count);
          EXPECT_EQ(group.BlockOfSlot(group.SlotOf(5, position)), 5);
          EXPECT_EQ(group.WithinColumn(group.SlotOf(5, position)), position);
          ++count;
          ++held;
        }
      }
      EXPECT_EQ(held, 8 * ranks);
    }
  }
}

TEST(Layout, EntriesAreBlocksOrKernelBlocks) {
  Group group;
  group.slots_per_block = group.block_stride = 16;
  group.kernel_block_size = 4;
  group.kernel_per_block = 4;
  group.ranks = 2;
  group.table_unit = KVGUARD_UNIT_BLOCK;
  EXPECT_EQ(group.SlotsPerEntry(), 16);
  EXPECT_EQ(group.TokensPerEntry(), 32);
  EXPECT_EQ(group.EntriesPerBlock(), 1);
  group.table_unit = KVGUARD_UNIT_KERNEL_BLOCK;
  EXPECT_EQ(group.SlotsPerEntry(), 4);
  EXPECT_EQ(group.TokensPerEntry(), 8);
  EXPECT_EQ(group.EntriesPerBlock(), 4);
}

TEST(Layout, BlocksForHoldsAnyCount) {
  EXPECT_EQ(BlocksFor(0, 4), 0);
  EXPECT_EQ(BlocksFor(1, 4), 1);
  EXPECT_EQ(BlocksFor(4, 4), 1);
  EXPECT_EQ(BlocksFor(5, 4), 2);
  EXPECT_EQ(BlocksFor(INT64_MAX, 1), INT64_MAX);
}

}  // namespace
}  // namespace kvguard::geometry
