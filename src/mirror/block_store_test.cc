// SPDX-License-Identifier: Apache-2.0
#include "mirror/block_store.h"

#include <cstddef>
#include <new>
#include <vector>

#include <gtest/gtest.h>

namespace kvguard::mirror {
namespace {

std::vector<size_t> Claimed(const BlockStore& store) {
  std::vector<size_t> found;
  store.ForEach([&](size_t index, const Block& block) {
    if (block.claims > 0) found.push_back(index);
  });
  return found;
}

TEST(BlockStore, ABlockThatWasNeverTouchedIsEmpty) {
  BlockStore store;
  store.Init(5000);
  EXPECT_EQ(store.size(), 5000u);
  for (const size_t block : {size_t{0}, size_t{2500}, size_t{4999}}) {
    EXPECT_EQ(store.At(block).owner, 0u);
    EXPECT_EQ(store.At(block).claims, 0u);
    EXPECT_FALSE(store.At(block).lost);
  }
  EXPECT_TRUE(Claimed(store).empty());
}

TEST(BlockStore, VisitsWhatWasTouchedByIndex) {
  BlockStore store;
  store.Init(5001);  // the last span is not whole
  const std::vector<size_t> blocks = {5000, 0, 1023, 1024, 3072};
  for (const size_t block : blocks) store.Touch(block).claims = 1;
  EXPECT_EQ(Claimed(store), (std::vector<size_t>{0, 1023, 1024, 3072, 5000}));
}

TEST(BlockStore, VisitsNoSpanThatWasNotTouched) {
  BlockStore store;
  store.Init(1 << 20);
  store.Touch(1 << 19).claims = 1;
  size_t visits = 0;
  store.ForEach([&](size_t, const Block&) { ++visits; });
  EXPECT_LE(visits, 1024u);
}

TEST(BlockStore, InitForgetsEverything) {
  BlockStore store;
  store.Init(100);
  store.Touch(7).claims = 3;
  store.Init(200);
  EXPECT_EQ(store.size(), 200u);
  EXPECT_EQ(store.At(7).claims, 0u);
  EXPECT_TRUE(Claimed(store).empty());
  store.Init(0);
  EXPECT_EQ(store.size(), 0u);
}

TEST(BlockStore, SaysSoWhenThereAreNoAddressesLeft) {
  BlockStore store;
  EXPECT_THROW(store.Init(size_t{1} << 46), std::bad_alloc);
}

}  // namespace
}  // namespace kvguard::mirror
