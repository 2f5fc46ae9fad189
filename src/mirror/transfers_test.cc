// SPDX-License-Identifier: Apache-2.0
#include "mirror/transfers.h"

#include <cstdint>

#include <gtest/gtest.h>

namespace kvguard::mirror {
namespace {

TEST(Transfers, AnIdEndsOnceAndIsRemembered) {
  Transfers transfers;
  transfers.Open(7).group = 1;
  ASSERT_NE(transfers.Find(7), nullptr);
  EXPECT_FALSE(transfers.WasEnded(7));
  transfers.End(7);
  EXPECT_EQ(transfers.Find(7), nullptr);
  EXPECT_TRUE(transfers.WasEnded(7));
}

TEST(Transfers, TheLatestEndedIdsAreRemembered) {
  Transfers transfers;
  for (uint64_t id = 0; id < Transfers::kMostEnded + 2; ++id) transfers.Remember(id);
  transfers.Remember(Transfers::kMostEnded);  // known already: forgets nobody
  EXPECT_EQ(transfers.ended().size(), Transfers::kMostEnded);
  EXPECT_FALSE(transfers.WasEnded(1));
  EXPECT_TRUE(transfers.WasEnded(2));
}

TEST(Transfers, AResetRemembersThatItForgot) {
  Transfers transfers;
  transfers.Reset();
  EXPECT_FALSE(transfers.forgot());
  transfers.Open(3);
  transfers.Reset();
  EXPECT_TRUE(transfers.forgot());
  EXPECT_EQ(transfers.Find(3), nullptr);
  transfers.Reset();
  EXPECT_TRUE(transfers.forgot());
}

TEST(Transfers, ARequestThatEndsTakesItsWaitingLoadsWithIt) {
  Transfers transfers;
  for (const uint64_t request : {1, 2, 1}) {
    Unplaced unplaced;
    unplaced.load.request = request;
    transfers.unplaced().push_back(unplaced);
  }
  transfers.DropUnplaced(1);
  ASSERT_EQ(transfers.unplaced().size(), 1u);
  EXPECT_EQ(transfers.unplaced().front().load.request, 2u);
}

Announced::Entry Zero(uint32_t pool, int64_t block) {
  Announced::Entry entry;
  entry.pool = pool;
  entry.block = block;
  entry.source = -1;
  return entry;
}

TEST(Announced, OneDoneIsForAllThatCameBeforeIt) {
  Announced announced;
  announced.set_says_done(true);
  announced.Add(Zero(0, 5));
  announced.Add(Zero(0, 5));
  announced.Add(Zero(1, 5));
  announced.Done(Zero(0, 5));
  EXPECT_FALSE(announced.IsOpen(0, 5));
  EXPECT_TRUE(announced.IsOpen(1, 5));
  EXPECT_TRUE(announced.AnyOpen());
  announced.Add(Zero(0, 5));
  EXPECT_TRUE(announced.IsOpen(0, 5));
  announced.Done(Zero(0, 5));
  announced.Done(Zero(1, 5));
  EXPECT_FALSE(announced.AnyOpen());
  EXPECT_EQ(announced.entries().size(), 4u);
}

TEST(Announced, APairIsDoneAsAPair) {
  Announced announced;
  announced.set_says_done(true);
  Announced::Entry copy = Zero(0, 9);
  copy.source = 3;
  announced.Add(copy);
  Announced::Entry other = copy;
  other.source = 4;
  announced.Done(other);
  EXPECT_TRUE(announced.IsOpen(0, 9));
  other = copy;
  other.group = 1;
  announced.Done(other);
  EXPECT_TRUE(announced.IsOpen(0, 9));
  announced.Done(copy);
  EXPECT_FALSE(announced.IsOpen(0, 9));
}

TEST(Announced, NothingIsKnownOfAnEngineThatNeverSaysDone) {
  Announced announced;
  announced.Add(Zero(0, 5));
  EXPECT_FALSE(announced.AnyOpen());
}

TEST(Announced, ANewStepOwesNothing) {
  Announced announced;
  announced.set_says_done(true);
  announced.Add(Zero(0, 5));
  announced.NewStep();
  EXPECT_FALSE(announced.AnyOpen());
  EXPECT_FALSE(announced.IsOpen(0, 5));
  EXPECT_TRUE(announced.says_done());
}

}  // namespace
}  // namespace kvguard::mirror
