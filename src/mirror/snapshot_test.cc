// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "mirror/mirror.h"

namespace kvguard::mirror {
namespace {

geometry::Layout LayoutOf(uint32_t table_unit, int64_t num_blocks = 64) {
  geometry::Layout layout;
  for (uint32_t id = 0; id < 2; ++id) {
    layout.pools.push_back({num_blocks, 0, KVGUARD_POOL_PAGES, 0});
    geometry::Group group;
    group.id = id;
    group.pool = id;
    group.kind = KVGUARD_GROUP_FULL;
    group.table_unit = table_unit;
    group.block_size = 8;
    group.kernel_block_size = 4;
    group.kernel_per_block = 2;
    group.num_slots = num_blocks * 8;
    layout.groups.push_back(group);
  }
  return layout;
}

// A mirror that has lived: requests with and without names, released ones, drafts whose outcome is
// open, blocks of both pools, a previous step.
void Live(Mirror* mirror, const geometry::Layout& layout, uint64_t seed, uint64_t steps = 30) {
  std::mt19937_64 random(seed);
  std::vector<uint64_t> live;
  uint64_t next_key = random() | 1;  // keys are never used twice, whatever lived here before
  for (uint64_t step = 1; step <= steps; ++step) {
    mirror->BeginStep(step);
    if (live.size() > 5 || (!live.empty() && random() % 3 == 0)) {
      const size_t i = random() % live.size();
      mirror->Release(mirror->Find(live[i]), step);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(i));
    }
    const uint64_t key = next_key++;
    const auto computed = static_cast<int64_t>(random() % 3 * 8);
    const std::string name = random() % 4 == 0 ? "" : "r%" + std::to_string(key);
    const uint32_t index = mirror->Admit(key, name, computed, step);
    for (const geometry::Group& group : layout.groups) {
      for (uint64_t i = 0; i < random() % 6; ++i) {
        const auto block = static_cast<int64_t>(1 + random() % 63);
        if (random() % 3 == 0) {
          Mirror::ClaimHit(&mirror->TouchBlock(group, block), step);
        } else {
          Mirror::ClaimFresh(&mirror->TouchBlock(group, block), key, step);
        }
        mirror->Push(&mirror->at(index), group, block);
        if (random() % 8 == 0) mirror->Push(&mirror->at(index), group, -7);
        if (random() % 4 == 0) mirror->MarkAppend(&mirror->at(index), group);
      }
    }
    live.push_back(key);
    for (const uint64_t scheduled : live) {
      Request& request = mirror->at(mirror->Find(scheduled));
      request.start = random() % 4 == 0 ? KVGUARD_NONE : request.frontier.valid_low;
      request.num_tokens = static_cast<int64_t>(1 + random() % 4);
      request.num_drafts =
          static_cast<int64_t>(random() % static_cast<uint64_t>(request.num_tokens));
      mirror->Schedule(mirror->Find(scheduled));
      mirror->executing().push_back({scheduled, request.start, request.num_tokens});
    }
    mirror->EndStep(step, random() % 8 != 0, random() % 8 == 0);
  }
}

std::string BytesOf(const Mirror& mirror) {
  std::string bytes;
  mirror.Serialize(&bytes);
  return bytes;
}

class Snapshot : public testing::TestWithParam<uint32_t> {
 protected:
  Snapshot() : layout_(LayoutOf(GetParam())) {
    mirror_.Init(&layout_, 8, 1u << 20);
    other_.Init(&layout_, 8, 1u << 20);
  }
  geometry::Layout layout_;
  Mirror mirror_;
  Mirror other_;
};

INSTANTIATE_TEST_SUITE_P(Units, Snapshot,
                         testing::Values(KVGUARD_UNIT_BLOCK, KVGUARD_UNIT_KERNEL_BLOCK));

TEST_P(Snapshot, AnEmptyMirrorComesBack) {
  Live(&other_, layout_, 1);
  ASSERT_TRUE(other_.Restore(BytesOf(mirror_)).ok());
  EXPECT_EQ(other_.num_live(), 0u);
  EXPECT_EQ(BytesOf(other_), BytesOf(mirror_));
}

TEST_P(Snapshot, ARandomLifeComesBackAsItWas) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    mirror_.Reset();
    Live(&mirror_, layout_, seed);
    const std::string bytes = BytesOf(mirror_);
    const step::Status status = other_.Restore(bytes);
    ASSERT_TRUE(status.ok()) << "seed " << seed << ": " << status.text();
    ASSERT_EQ(BytesOf(other_), bytes) << "seed " << seed;
    for (const geometry::Group& group : layout_.groups) {
      for (int64_t block = 0; block < 64; ++block) {
        const Block& a = mirror_.BlockOf(group, block);
        const Block& b = other_.BlockOf(group, block);
        ASSERT_EQ(a.claims, b.claims) << "seed " << seed << " block " << block;
        ASSERT_EQ(a.owner, b.owner) << "seed " << seed << " block " << block;
      }
    }
  }
}

TEST_P(Snapshot, EveryTruncationIsRefused) {
  Live(&mirror_, layout_, 7);
  const std::string bytes = BytesOf(mirror_);
  const std::string before = BytesOf(other_);
  for (size_t n = 0; n < bytes.size(); ++n) {
    ASSERT_EQ(other_.Restore(std::string_view(bytes).substr(0, n)).code(), KVGUARD_ERROR_FORMAT)
        << n << " of " << bytes.size() << " bytes";
  }
  EXPECT_EQ(other_.Restore(bytes + '\0').code(), KVGUARD_ERROR_FORMAT);
  EXPECT_EQ(BytesOf(other_), before) << "what is refused changes nothing";
}

TEST_P(Snapshot, EveryFlippedBitIsRefused) {
  Live(&mirror_, layout_, 8, 12);
  std::string bytes = BytesOf(mirror_);
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
      ASSERT_FALSE(other_.Restore(bytes).ok()) << "byte " << i << " bit " << bit;
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
    }
  }
  ASSERT_TRUE(other_.Restore(bytes).ok());
}

// Damage that keeps the hash right reaches the checks behind it. Whatever is accepted must be a
// mirror that can go on.
TEST_P(Snapshot, ForgedBytesNeverBreakTheMirror) {
  constexpr size_t kHeader = 16;
  std::mt19937_64 random(9);
  size_t accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (i % 500 == 0) {
      mirror_.Reset();
      Live(&mirror_, layout_, static_cast<uint64_t>(i), 6);
    }
    std::string bytes = BytesOf(mirror_);
    for (uint64_t n = 1 + random() % 3; n > 0; --n) {
      bytes[kHeader + 8 + random() % (bytes.size() - kHeader - 8)] = static_cast<char>(random());
    }
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t at = kHeader; at < bytes.size(); ++at)
      hash = (hash ^ static_cast<unsigned char>(bytes[at])) * 0x100000001b3u;
    std::memcpy(bytes.data() + 8, &hash, sizeof(hash));
    if (!other_.Restore(bytes).ok()) continue;
    ++accepted;
    ASSERT_TRUE(mirror_.Restore(BytesOf(other_)).ok()) << "its own snapshot, round " << i;
    Live(&other_, layout_, static_cast<uint64_t>(i), 3);
    mirror_.Reset();
    Live(&mirror_, layout_, static_cast<uint64_t>(i), 6);
  }
  EXPECT_GT(accepted, 100u) << "the forgeries are all refused early: this test sees nothing";
}

TEST_P(Snapshot, AnotherGeometryIsRefused) {
  Live(&mirror_, layout_, 3);
  const geometry::Layout larger = LayoutOf(GetParam(), 65);
  Mirror other;
  other.Init(&larger, 8, 1u << 20);
  const step::Status status = other.Restore(BytesOf(mirror_));
  EXPECT_EQ(status.code(), KVGUARD_ERROR_ARGUMENT);
  EXPECT_NE(status.text().find("geometry"), std::string::npos);
}

TEST_P(Snapshot, AnotherVersionSaysSo) {
  std::string bytes = BytesOf(mirror_);
  bytes[4] = 99;
  EXPECT_EQ(other_.Restore(bytes).code(), KVGUARD_ERROR_VERSION);
  bytes[4] = 0;
  EXPECT_EQ(other_.Restore(bytes).code(), KVGUARD_ERROR_VERSION);
  EXPECT_EQ(other_.Restore("not a snapshot at all").code(), KVGUARD_ERROR_FORMAT);
}

TEST_P(Snapshot, AnOwnerWithoutTheBlockIsRefused) {
  const geometry::Group& group = layout_.groups[0];
  for (const uint64_t key : {1, 2}) mirror_.Admit(key, "r", 0, 1);
  Mirror::ClaimFresh(&mirror_.TouchBlock(group, 5), 1, 1);
  mirror_.Push(&mirror_.at(mirror_.Find(1)), group, 5);
  EXPECT_TRUE(other_.Restore(BytesOf(mirror_)).ok());
  for (const uint64_t owner : {2, 3}) {  // a live one with other blocks, and nobody
    mirror_.TouchBlock(group, 5).owner = owner;
    EXPECT_EQ(other_.Restore(BytesOf(mirror_)).code(), KVGUARD_ERROR_FORMAT);
  }
  mirror_.TouchBlock(group, 5).owner = 1;
  mirror_.TouchBlock(group, 0).owner = 2;  // nobody owns the null block
  mirror_.Push(&mirror_.at(mirror_.Find(2)), group, 0);
  EXPECT_EQ(other_.Restore(BytesOf(mirror_)).code(), KVGUARD_ERROR_FORMAT);
}

TEST_P(Snapshot, DraftsBeyondTheRangeAreRefused) {
  mirror_.Admit(1, "a", 8, 1);
  mirror_.at(0).pending = {{1, 3}};  // without the range of three that three drafts leave open
  EXPECT_EQ(other_.Restore(BytesOf(mirror_)).code(), KVGUARD_ERROR_FORMAT);
  mirror_.at(0).frontier.valid_high += 3;
  EXPECT_TRUE(other_.Restore(BytesOf(mirror_)).ok());
}

}  // namespace
}  // namespace kvguard::mirror
