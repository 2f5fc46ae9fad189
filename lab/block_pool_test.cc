// SPDX-License-Identifier: Apache-2.0
#include "lab/block_pool.h"

#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "lab/random.h"

namespace kvguard::lab {
namespace {

TEST(BlockPool, HandsOutEachBlockOnceAndNeverTheNullBlock) {
  BlockPool pool(5);
  std::vector<int32_t> ids;
  while (pool.num_free() > 0) ids.push_back(pool.Take());
  EXPECT_EQ(ids, (std::vector<int32_t>{1, 2, 3, 4}));
}

TEST(BlockPool, TakesTheBlockThatWasReleasedLongestAgo) {
  BlockPool pool(4);
  for (int i = 0; i < 3; ++i) pool.Take();
  pool.Release(2);
  pool.Release(3);
  pool.Release(1);
  EXPECT_EQ(pool.Take(), 2);
  EXPECT_EQ(pool.Take(), 3);
}

TEST(BlockPool, FindsAReleasedBlockUntilItIsTaken) {
  BlockPool pool(3);
  const int32_t id = pool.Take();
  pool.Enter(id, 77);
  pool.Release(id);
  EXPECT_EQ(pool.Find(77), id);
  pool.Touch(id);
  EXPECT_EQ(pool.num_free(), 1);
  pool.Release(id);
  EXPECT_NE(pool.Take(), id);
  EXPECT_EQ(pool.Take(), id);
  EXPECT_EQ(pool.Find(77), 0);
  EXPECT_TRUE(pool.WasEvicted(77));
  EXPECT_EQ(pool.evictions(), 1u);
}

TEST(BlockPool, ItsIndexIsThatOfAMap) {
  BlockPool pool(40);
  std::map<uint64_t, int32_t> model;
  std::map<int32_t, uint64_t> key_of;
  Random random(3);
  for (int32_t i = 0; i < 39; ++i) pool.Take();
  for (int i = 0; i < 20000; ++i) {
    // Keys with few different homes, so that they collide.
    const uint64_t key = (uint64_t{random.Below(4)} << 61) + 1 + random.Below(50);
    const int32_t id = random.Between(1, 39);
    if (random.OneIn(2)) {
      pool.Enter(id, key);
      if (!model.contains(key) && !key_of.contains(id)) {
        model[key] = id;
        key_of[id] = key;
      }
    } else {
      pool.Forget(id);
      if (key_of.contains(id)) {
        model.erase(key_of[id]);
        key_of.erase(id);
      }
    }
    ASSERT_EQ(pool.Find(key), model.contains(key) ? model[key] : 0);
  }
}

}  // namespace
}  // namespace kvguard::lab
