// SPDX-License-Identifier: Apache-2.0
// Snapshots whose bytes were changed by somebody who knows the hash: what is taken says what the
// bytes say, and what contradicts itself is refused.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "mirror/mirror.h"

namespace kvguard::mirror {
namespace {

constexpr size_t kHeader = 16;  // magic, version, hash

// A full group and a windowed one of kernel blocks, in one pool.
geometry::Layout TwoGroups() {
  geometry::Layout layout;
  layout.forgets = true;
  layout.content_unit = 4;
  layout.pools.push_back({64, 0, KVGUARD_POOL_PAGES, 0});
  for (uint32_t id = 0; id < 2; ++id) {
    geometry::Group group;
    group.id = id;
    group.kind = id == 1 ? KVGUARD_GROUP_WINDOW : KVGUARD_GROUP_FULL;
    group.table_unit = id == 1 ? KVGUARD_UNIT_KERNEL_BLOCK : KVGUARD_UNIT_BLOCK;
    group.block_size = group.slots_per_block = group.block_stride = 4;
    group.kernel_block_size = id == 1 ? 2 : 4;
    group.kernel_per_block = id == 1 ? 2 : 1;
    group.window = id == 1 ? 8 : 0;
    group.num_slots = 256;
    layout.groups.push_back(group);
  }
  return layout;
}

std::string Number(uint64_t value, size_t size) {
  std::string bytes;
  for (size_t i = 0; i < size; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
  return bytes;
}

// The hash belongs to the payload.
std::string Sealed(std::string bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : std::string_view(bytes).substr(kHeader))
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  bytes.replace(8, 8, Number(hash, 8));
  return bytes;
}

// Requests, blocks and ids may stand in another order afterwards.
std::string InOrder(std::string_view bytes) {
  std::string payload(bytes.substr(kHeader));
  std::sort(payload.begin(), payload.end());
  return payload;
}

class SnapshotBytes : public testing::Test {
 protected:
  SnapshotBytes() {
    mirror_.Init(&layout_, 8, 1u << 20);
    other_.Init(&layout_, 8, 1u << 20);
  }
  Request& Admit(uint64_t key) { return mirror_.at(mirror_.Admit(key, "r", 0, 3)); }
  void Bind(Request* request, const geometry::Group& group, int64_t block) {
    mirror_.Push(request, group, block, 3);
    Mirror::ClaimFresh(&mirror_.TouchBlock(group, block), request->key, 3);
  }
  std::string Bytes() const {
    std::string bytes;
    mirror_.Serialize(&bytes);
    return bytes;
  }
  bool Comes(const std::string& bytes) { return other_.Restore(Sealed(bytes)).ok(); }
  // The bytes with what stands at the only place of `from` replaced.
  std::string With(const std::string& from, const std::string& to) const {
    std::string bytes = Bytes();
    const size_t at = bytes.find(from);
    EXPECT_NE(at, std::string::npos);
    EXPECT_EQ(bytes.find(from, at + 1), std::string::npos);
    return bytes.replace(at, from.size(), to);
  }
  // Every place overwritten, and what stands behind it left out, as far as a lying count would
  // have it passed over.
  void WhatIsTakenSaysTheSame(const std::vector<std::string>& patterns, size_t most_left_out) {
    const std::string good = Bytes();
    ASSERT_TRUE(Comes(good));
    for (const std::string& pattern : patterns) {
      for (size_t at = kHeader; at + pattern.size() <= good.size(); ++at) {
        for (size_t left_out = 0; left_out <= most_left_out; ++left_out) {
          std::string bytes = good;
          bytes.replace(at, pattern.size(), pattern);
          if (at + pattern.size() + left_out > bytes.size()) break;
          bytes.erase(at + pattern.size(), left_out);
          if (!Comes(bytes)) continue;
          std::string again;
          other_.Serialize(&again);
          ASSERT_EQ(InOrder(again), InOrder(bytes)) << "at " << at << ", " << left_out;
        }
      }
    }
  }

  const std::vector<std::string> most_ = {Number(~0u, 1), Number(~0u, 4), Number(~uint64_t{0}, 8)};
  geometry::Layout layout_ = TwoGroups();
  Mirror mirror_;
  Mirror other_;
};

TEST_F(SnapshotBytes, OfARequestWithNothing) {
  Admit(5);
  std::vector<std::string> patterns = most_;
  patterns.push_back(Number(0, 8));
  WhatIsTakenSaysTheSame(patterns, 24);
}

TEST_F(SnapshotBytes, OfOneOfEverything) {
  Request& request = Admit(5);
  const int64_t tokens[] = {1, 2, 3, 4};
  request.chain.AddDomain({KVGUARD_DOMAIN_SALT, 6, 0, 5});
  request.chain.Append(0, tokens, 4, 4);
  request.sampled_at = {{1, 6}};
  mirror_.transfers().Open(4) = {TransferKind::kSend, true, 1, 5, 16, {}};
  mirror_.transfers().unplaced().push_back({8, {TransferKind::kLoad, false, 1, 77, 4, {}}});
  mirror_.transfers().Remember(1);
  WhatIsTakenSaysTheSame(most_, 44);
}

TEST_F(SnapshotBytes, OfRowsAndBlocks) {
  for (const uint64_t key : {5, 9}) {
    Request& request = Admit(key);
    for (const geometry::Group& group : layout_.groups) {
      for (int64_t i = 0; i < 2; ++i)
        Bind(&request, group, static_cast<int64_t>(key) * 4 + i * 2 + group.id);
    }
  }
  WhatIsTakenSaysTheSame(most_, 0);
}

TEST_F(SnapshotBytes, AnAppendBehindTheRowIsRefused) {
  Request& request = Admit(5);
  request.rows[1].last_append = 1;
  EXPECT_FALSE(Comes(Bytes()));
  request.rows[1].last_append = 0;
  EXPECT_TRUE(Comes(Bytes()));
}

TEST_F(SnapshotBytes, ATransferThatIsOpenTwiceIsRefused) {
  mirror_.transfers().Open(0x0104) = {TransferKind::kSend, false, 0, 9, 0, {}};
  mirror_.transfers().Open(0x0206) = {TransferKind::kSend, false, 0, 9, 0, {}};
  ASSERT_TRUE(Comes(Bytes()));
  EXPECT_FALSE(Comes(With(Number(0x0206, 8), Number(0x0104, 8))));
}

TEST_F(SnapshotBytes, MoreEndedTransfersThanAreRememberedAreRefused) {
  const uint64_t most = Transfers::kMostEnded;
  for (uint64_t id = 1; id <= most; ++id) mirror_.transfers().Remember(id);
  ASSERT_TRUE(Comes(Bytes()));
  EXPECT_FALSE(Comes(With(Number(most, 4) + Number(1, 8) + Number(2, 8),
                          Number(most + 1, 4) + Number(9999, 8) + Number(1, 8) + Number(2, 8))));
}

TEST_F(SnapshotBytes, ABlockBehindThePoolIsRefused) {
  mirror_.TouchBlock(layout_.groups[0], 60).freed = true;
  const std::string first = Bytes();
  mirror_.TouchBlock(layout_.groups[0], 60).freed = false;
  mirror_.TouchBlock(layout_.groups[0], 63).freed = true;
  std::string last = Bytes();
  ASSERT_EQ(first.size(), last.size());
  ASSERT_TRUE(Comes(last));
  const auto differs = std::mismatch(first.begin() + kHeader, first.end(), last.begin() + kHeader);
  ASSERT_EQ(*differs.second, 63);
  *differs.second = 64;
  EXPECT_FALSE(Comes(last));
}

// Those without content, and no others.
TEST_F(SnapshotBytes, LostBlocksAreThoseThatWereLost) {
  Request& request = Admit(5);
  Bind(&request, layout_.groups[0], 1);
  Bind(&request, layout_.groups[0], 2);
  mirror_.SetLost(layout_.groups[0], 2, true);
  ASSERT_TRUE(Comes(Bytes()));
  EXPECT_TRUE(other_.AnyLostClaimed());
  other_.SetLost(layout_.groups[0], 2, false);
  EXPECT_FALSE(other_.AnyLostClaimed());
}

}  // namespace
}  // namespace kvguard::mirror
