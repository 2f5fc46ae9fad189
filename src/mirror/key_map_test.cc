// SPDX-License-Identifier: Apache-2.0
#include "mirror/key_map.h"

#include <random>
#include <unordered_map>
#include <vector>

#include <gtest/gtest.h>

namespace kvguard::mirror {
namespace {

TEST(KeyMap, AnEmptyOneFindsNothing) {
  KeyMap map;
  EXPECT_EQ(map.Find(1), KeyMap::kNone);
  EXPECT_EQ(map.Find(0), KeyMap::kNone);
  map.Erase(1);
  EXPECT_EQ(map.size(), 0u);
}

TEST(KeyMap, KeyZeroIsNobodys) {
  KeyMap map;
  map.Insert(5, 50);
  EXPECT_EQ(map.Find(0), KeyMap::kNone);
  map.Erase(0);
  EXPECT_EQ(map.size(), 1u);
  EXPECT_EQ(map.Find(5), 50u);
}

TEST(KeyMap, ClearForgetsAll) {
  KeyMap map;
  for (uint64_t key = 1; key <= 1000; ++key) map.Insert(key, static_cast<uint32_t>(key));
  map.Clear();
  EXPECT_EQ(map.size(), 0u);
  EXPECT_EQ(map.Find(7), KeyMap::kNone);
  map.Insert(7, 70);
  EXPECT_EQ(map.Find(7), 70u);
}

// Keys that hash to few places, so that clusters are long, wrap around the end of the table and are
// torn by erasures.
std::vector<uint64_t> Colliding(size_t places, size_t each) {
  // The inverse of the map's odd multiplier modulo 2^64 (Newton's iteration doubles the right
  // bits).
  constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15u;
  uint64_t inverse = kMultiplier;
  for (int i = 0; i < 6; ++i) inverse *= 2 - kMultiplier * inverse;
  std::vector<uint64_t> keys;
  for (size_t place = 0; place < places; ++place) {
    const uint64_t top = ~uint64_t{0} - (uint64_t{place} << 58);  // from the table's end downwards
    for (size_t i = 0; i < each; ++i) keys.push_back((top - i) * inverse);
  }
  return keys;
}

void Compare(const std::vector<uint64_t>& keys, uint64_t seed) {
  std::mt19937_64 random(seed);
  KeyMap map;
  std::unordered_map<uint64_t, uint32_t> right;
  for (int i = 0; i < 60'000; ++i) {
    const uint64_t key = keys[random() % keys.size()];
    const auto it = right.find(key);
    // The load wanders up and down, so that the table grows and long clusters shrink.
    const bool fill = (i / 5000) % 2 == 0 ? random() % 4 != 0 : random() % 4 == 0;
    if (it == right.end()) {
      ASSERT_EQ(map.Find(key), KeyMap::kNone) << "seed " << seed << " operation " << i;
      if (fill) {
        const auto value = static_cast<uint32_t>(random() % 1'000'000);
        map.Insert(key, value);
        right.emplace(key, value);
      }
    } else {
      ASSERT_EQ(map.Find(key), it->second) << "seed " << seed << " operation " << i;
      if (!fill) {
        map.Erase(key);
        right.erase(it);
      }
    }
    ASSERT_EQ(map.size(), right.size());
    if (i % 1000 == 0) {
      for (const uint64_t k : keys) {
        const auto at = right.find(k);
        ASSERT_EQ(map.Find(k), at == right.end() ? KeyMap::kNone : at->second)
            << "seed " << seed << " operation " << i;
      }
    }
  }
}

TEST(KeyMap, AgreesWithUnorderedMapOnRandomKeys) {
  std::mt19937_64 random(1);
  std::vector<uint64_t> keys;
  for (int i = 0; i < 400; ++i) keys.push_back(random() | 1);
  Compare(keys, 2);
}

TEST(KeyMap, AgreesWithUnorderedMapOnCountedKeys) {
  std::vector<uint64_t> keys;
  for (uint64_t key = 1; key <= 300; ++key) keys.push_back(key);
  Compare(keys, 3);
}

TEST(KeyMap, AgreesWithUnorderedMapOnCollidingKeys) {
  Compare(Colliding(1, 200), 4);
  Compare(Colliding(4, 40), 5);
}

}  // namespace
}  // namespace kvguard::mirror
