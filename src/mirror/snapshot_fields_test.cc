// SPDX-License-Identifier: Apache-2.0
// A snapshot field by field: each comes back as it was, each has its bounds, and the bytes of this
// version stay what they are.
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "mirror/mirror.h"

namespace kvguard::mirror {
namespace {

// A full group, a windowed one with sinks over the same pool, and a sharded one of kernel blocks.
geometry::Layout ThreeGroups() {
  geometry::Layout layout;
  layout.forgets = true;
  layout.content_unit = 4;
  for (uint32_t pool = 0; pool < 2; ++pool) layout.pools.push_back({64, 0, KVGUARD_POOL_PAGES, 0});
  for (uint32_t id = 0; id < 3; ++id) {
    geometry::Group group;
    group.id = id;
    group.pool = id == 2 ? 1 : 0;
    group.kind = id == 1 ? KVGUARD_GROUP_WINDOW : KVGUARD_GROUP_FULL;
    group.table_unit = id == 2 ? KVGUARD_UNIT_KERNEL_BLOCK : KVGUARD_UNIT_BLOCK;
    group.block_size = id == 2 ? 16 : 4;
    group.slots_per_block = id == 2 ? 8 : 4;
    group.kernel_block_size = 4;
    group.kernel_per_block = id == 2 ? 2 : 1;
    group.window = id == 1 ? 8 : 0;
    group.sink = id == 1 ? 4 : 0;
    group.retained = id == 1 ? 1 : 0;
    group.ranks = id == 2 ? 2 : 1;
    group.rank = id == 2 ? 1 : 0;
    group.interleave = id == 2 ? 4 : 1;
    group.block_stride = group.slots_per_block;
    group.num_slots = 64 * group.slots_per_block;
    layout.groups.push_back(group);
  }
  return layout;
}

// Something other than its default in every field.
void Fill(Mirror* mirror, const geometry::Layout& layout) {
  mirror->BeginStep(3);
  const int64_t tokens[] = {11, 12, 13, 14, 15};
  for (const uint64_t key : {9, 5, 7}) {
    const std::string name = key == 9 ? "" : std::string("r").append(std::to_string(key));
    const uint32_t index = mirror->Admit(key, name, 8, 3);
    for (const geometry::Group& group : layout.groups) {
      for (int64_t column = 0; column < 2; ++column) {
        const int64_t block = static_cast<int64_t>(key * 3) + column + (group.id == 1 ? 30 : 0);
        Mirror::ClaimFresh(&mirror->TouchBlock(group, block), key, 3);
        Mirror::SetHome(&mirror->TouchBlock(group, block), group.id, column);
        mirror->MarkAppend(&mirror->at(index), group);
        mirror->Push(&mirror->at(index), group, block, 3);
      }
    }
    Request& request = mirror->at(index);
    request.chain.AddDomain({KVGUARD_DOMAIN_SALT, 6, 0, 5});
    request.chain.AddDomain({KVGUARD_DOMAIN_LORA, 4, 2, 3});
    request.chain.Append(0, tokens, 5, layout.content_unit);
    if (key == 5) request.chain.Close();
    request.frontier = {8, 11, 12};
    request.pending = {{1, 1}, {2, 2}};
    request.settled = {{1, 4}};
    request.forgotten_before = 1;
    request.assumed = {{2, 9, 8, 1}};
    request.filled = 12;
    request.sampled_at = {{1, 6}, {2, 7}};
    request.rows[1].expired = 1;
  }
  Block& block = mirror->TouchBlock(layout.groups[0], 15);
  block.written = true;
  block.last_owner = 2;
  block.released_step = 2;
  block.content = {21, 23};
  mirror->TouchBlock(layout.groups[0], 60).freed = true;
  mirror->SetLost(layout.groups[2], 27, true);
  mirror->Release(mirror->Find(7), 3);
  Transfers& transfers = mirror->transfers();
  transfers.Open(4) = {TransferKind::kLoad, true, 2, 5, 16, {15, 16}};
  transfers.Open(6) = {TransferKind::kSend, false, 0, 9, 0, {27}};
  for (const auto& [id, transfer] : transfers.open()) mirror->Pin(transfer, 1);
  transfers.unplaced().push_back({8, {TransferKind::kLoad, false, 1, 77, 4, {1, 2, 3}}});
  transfers.Remember(1);
  transfers.Remember(2);
  transfers.set_forgot(true);
  mirror->zeroing().set_says_done(true);
  mirror->executing() = {{5, 8, 2}, {9, KVGUARD_NONE, 1}};
  mirror->EndStep(3, true, false);
}

std::string BytesOf(const Mirror& mirror, bool with_content = true) {
  std::string bytes;
  mirror.Serialize(&bytes, with_content);
  return bytes;
}

class SnapshotFields : public testing::Test {
 protected:
  SnapshotFields() {
    mirror_.Init(&layout_, 8, 1u << 20);
    other_.Init(&layout_, 8, 1u << 20);
    Fill(&mirror_, layout_);
  }
  bool Comes() { return other_.Restore(BytesOf(mirror_)).ok(); }
  // Whether a mirror comes back with the field at each of these values; then it is as before.
  template <typename T>
  void Bounds(T* field, const std::vector<T>& good, const std::vector<T>& bad) {
    const T before = *field;
    for (const T value : good) {
      *field = value;
      EXPECT_TRUE(Comes()) << static_cast<int64_t>(value);
    }
    for (const T value : bad) {
      *field = value;
      EXPECT_FALSE(Comes()) << static_cast<int64_t>(value);
    }
    *field = before;
    ASSERT_TRUE(Comes());
  }
  Request& Get(uint64_t key) { return mirror_.at(mirror_.Find(key)); }

  static constexpr int64_t kMost = int64_t{1} << 41;
  geometry::Layout layout_ = ThreeGroups();
  Mirror mirror_;
  Mirror other_;
};

TEST_F(SnapshotFields, EverythingComesBack) {
  ASSERT_TRUE(Comes());
  EXPECT_EQ(BytesOf(other_), BytesOf(mirror_));
  for (const uint64_t key : {5, 9}) {
    const Request& a = Get(key);
    const Request& b = *other_.FindRequest(key);
    EXPECT_EQ(b.name, a.name);
    EXPECT_EQ(b.admitted_step, 3u);
    EXPECT_EQ(b.frontier.valid_low, 8);
    EXPECT_EQ(b.frontier.valid_high, 11);
    EXPECT_EQ(b.frontier.scheduler, 12);
    EXPECT_EQ(b.forgotten_before, 1u);
    EXPECT_EQ(b.filled, 12);
    EXPECT_TRUE(b.maybe_stale);
    ASSERT_EQ(b.pending.size(), 2u);
    EXPECT_EQ(b.pending[1].step, 2u);
    EXPECT_EQ(b.pending[1].drafts, 2);
    ASSERT_EQ(b.settled.size(), 1u);
    EXPECT_EQ(b.settled[0].drafts, 4);
    ASSERT_EQ(b.assumed.size(), 1u);
    EXPECT_EQ(b.assumed[0].step, 2u);
    EXPECT_EQ(b.assumed[0].start, 9);
    EXPECT_EQ(b.assumed[0].low, 8);
    EXPECT_EQ(b.assumed[0].open, 1u);
    ASSERT_EQ(b.sampled_at.size(), 2u);
    EXPECT_EQ(b.sampled_at[1].position, 7);
    EXPECT_TRUE(b.chain.active());
    EXPECT_EQ(b.chain.state().closed, key == 5);
    EXPECT_EQ(b.chain.state().domains.size(), 2u);
    EXPECT_EQ(b.chain.state().size, 5);
    EXPECT_EQ(b.chain.NameAt(4, 4).tokens, a.chain.NameAt(4, 4).tokens);
    EXPECT_EQ(b.rows[1].expired, 1);
    EXPECT_EQ(b.rows[1].claimed_in, (std::vector<uint64_t>{3, 3}));
    EXPECT_EQ(b.rows[2].last_append, 2u);
  }
  const Block& block = other_.BlockOf(layout_.groups[0], 15);
  EXPECT_TRUE(block.written);
  EXPECT_TRUE(block.bound);
  EXPECT_TRUE(block.ever_home);
  EXPECT_EQ(block.home, 1u);
  EXPECT_EQ(block.content.domain, 23u);
  EXPECT_TRUE(other_.BlockOf(layout_.groups[0], 60).freed);
  EXPECT_TRUE(other_.BlockOf(layout_.groups[2], 27).lost);
  EXPECT_TRUE(other_.AnyLostClaimed());
  EXPECT_EQ(other_.BlockOf(layout_.groups[2], 15).pins_in, 1u);
  EXPECT_EQ(other_.BlockOf(layout_.groups[2], 15).loading, 1u);
  EXPECT_EQ(other_.BlockOf(layout_.groups[0], 27).pins_out, 1u);
  EXPECT_TRUE(other_.AnyLoading());
  EXPECT_TRUE(other_.transfers().Find(4)->cancelled);
  EXPECT_EQ(other_.transfers().Find(4)->first, 16);
  EXPECT_EQ(other_.transfers().Find(6)->kind, TransferKind::kSend);
  ASSERT_EQ(other_.transfers().unplaced().size(), 1u);
  EXPECT_EQ(other_.transfers().unplaced()[0].load.blocks.size(), 3u);
  EXPECT_TRUE(other_.transfers().WasEnded(2));
  EXPECT_TRUE(other_.transfers().forgot());
  EXPECT_TRUE(other_.zeroing().says_done());
  EXPECT_FALSE(other_.copying().says_done());
  EXPECT_EQ(other_.FindReleased(7)->name, "r7");
  EXPECT_EQ(other_.last_begun(), 3u);
  EXPECT_EQ(other_.previous_step(), 3u);
  ASSERT_EQ(other_.previous_rows().size(), 2u);
  EXPECT_EQ(other_.previous_rows()[1].start, KVGUARD_NONE);
  EXPECT_FALSE(other_.IsScheduled(*other_.FindRequest(5)));
}

// Snapshots lie in traces: the bytes of one version, hashes and names of content included, are the
// same for every build of it.
TEST_F(SnapshotFields, TheBytesOfThisVersionStay) {
  uint64_t hash = 1;
  for (const char c : BytesOf(mirror_)) hash = hash * 31 + static_cast<unsigned char>(c);
  EXPECT_EQ(BytesOf(mirror_).substr(0, 4), "KVGS");
  EXPECT_EQ(BytesOf(mirror_).size(), 2352u);
  EXPECT_EQ(hash, 5264881866219377345u)
      << "a new version of the format needs a new number in kVersion";
}

TEST_F(SnapshotFields, WithoutContentReadersKnowNothingOfIt) {
  ASSERT_TRUE(other_.Restore(BytesOf(mirror_, false)).ok());
  EXPECT_FALSE(other_.FindRequest(5)->chain.active());
  EXPECT_EQ(other_.BlockOf(layout_.groups[0], 15).content.tokens, 0u);
  EXPECT_EQ(other_.BlockOf(layout_.groups[0], 15).content.domain, 0u);
  EXPECT_EQ(other_.BlockOf(layout_.groups[0], 15).home, 1u);
}

TEST_F(SnapshotFields, RequestsHaveBounds) {
  Request& request = Get(5);
  Bounds<int64_t>(&request.frontier.scheduler, {0, kMost}, {-1, kMost + 1});
  Bounds<int64_t>(&request.frontier.valid_low, {0, 8}, {-1, 9, 12});  // 3 drafts are open
  Bounds<int64_t>(&request.frontier.valid_high, {11, kMost}, {10, 7, kMost + 1});
  Bounds<int64_t>(&request.pending[0].drafts, {0, 1}, {-1, 2});
  Bounds<int64_t>(&request.settled[0].drafts, {0, 99}, {-1});
  Bounds<uint64_t>(&request.assumed[0].open, {0, 2}, {3});
  Bounds<int64_t>(&request.assumed[0].low, {0, kMost}, {-1, kMost + 1});
  Bounds<uint64_t>(&request.key, {5}, {9});
}

TEST_F(SnapshotFields, RowsHaveBounds) {
  Request& request = Get(5);
  Bounds<uint32_t>(&request.rows[0].last_append, {0, 2}, {3});
  Bounds<int64_t>(&request.rows[1].expired, {0, 1}, {-1, 3});
  Bounds<int32_t>(&Get(9).rows[2].entries[0], {}, {-2});
  Get(9).rows[2].entries.pop_back();  // half a block
  EXPECT_FALSE(Comes());
}

TEST_F(SnapshotFields, ChainsHaveBounds) {
  Request& request = Get(5);
  const ChainState before = request.chain.state();
  const auto comes = [&](const std::function<void(ChainState&)>& change) {
    ChainState state = before;
    change(state);
    request.chain.set_state(state);
    const bool came = Comes();
    request.chain.set_state(before);
    return came;
  };
  EXPECT_TRUE(comes([](ChainState& s) { s.size = 0; }));
  EXPECT_FALSE(comes([](ChainState& s) { s.size = -1; }));
  EXPECT_TRUE(comes([](ChainState& s) { s.domains[1].first = 0; }));
  EXPECT_FALSE(comes([](ChainState& s) { s.domains[1].first = -1; }));
  EXPECT_TRUE(comes([](ChainState& s) { s.domains[1].count = 0; }));
  EXPECT_FALSE(comes([](ChainState& s) { s.domains[1].count = -1; }));
}

TEST_F(SnapshotFields, TransfersHaveBounds) {
  Transfer& transfer = *mirror_.transfers().Find(4);
  Bounds<uint32_t>(&transfer.group, {0, 2}, {3});
  Bounds<int64_t>(&transfer.first, {0, kMost}, {-1, kMost + 1});
  Bounds<uint32_t>(&mirror_.transfers().unplaced()[0].load.group, {2}, {3});
  for (const auto& [kind, good] : {std::pair<uint8_t, bool>{2, true}, {3, false}}) {
    transfer.kind = static_cast<TransferKind>(kind);
    EXPECT_EQ(Comes(), good);
  }
}

// As many ended transfers as are remembered, and no more.
TEST_F(SnapshotFields, AllRememberedTransfersComeBack) {
  for (uint64_t id = 100; id < 100 + Transfers::kMostEnded; ++id) mirror_.transfers().Remember(id);
  ASSERT_TRUE(Comes());
  EXPECT_EQ(other_.transfers().ended().size(), size_t{Transfers::kMostEnded});
  EXPECT_FALSE(other_.transfers().WasEnded(1));
  EXPECT_TRUE(other_.transfers().WasEnded(100));
}

// The hash of what is behind the header, made right.
std::string WithRightHash(std::string bytes) {
  constexpr size_t kHeader = 16;
  uint64_t hash = 0xcbf29ce484222325u;
  for (size_t i = kHeader; i < bytes.size(); ++i)
    hash = (hash ^ static_cast<unsigned char>(bytes[i])) * 0x100000001b3u;
  for (size_t i = 0; i < 8; ++i) bytes[8 + i] = static_cast<char>(hash >> (8 * i));
  return bytes;
}

TEST_F(SnapshotFields, EveryTruncationBehindARightHashIsRefused) {
  const std::string right = BytesOf(mirror_);
  ASSERT_TRUE(other_.Restore(WithRightHash(right)).ok());
  for (size_t n = 16; n < right.size(); ++n) {
    const std::string bytes = WithRightHash(right.substr(0, n));
    ASSERT_EQ(other_.Restore(bytes).code(), KVGUARD_ERROR_FORMAT) << n;
  }
  EXPECT_FALSE(other_.Restore(WithRightHash(right + '\0')).ok());
}

// The first request's key stands behind the fingerprint and the number of requests.
TEST_F(SnapshotFields, NobodyHasKeyZeroOrAnothersKey) {
  const std::string right = BytesOf(mirror_);
  for (const char key : {0, 5, 9}) {
    std::string bytes = right;
    ASSERT_EQ(bytes[16 + 8 + 4], 5);
    bytes[16 + 8 + 4] = key;
    EXPECT_EQ(other_.Restore(WithRightHash(bytes)).ok(), key == 5);
  }
}

// Damage behind a right hash is refused, or kept as it was written. What may come back in other
// bytes: truth values of any number, and places in lists that have an order of their own. Both
// figures are of this version: a check more or less, or a field that is read and not kept, moves
// them.
TEST_F(SnapshotFields, WhatIsAcceptedIsKept) {
  const std::string right = BytesOf(mirror_);
  size_t accepted = 0;
  size_t otherwise = 0;
  for (size_t at = 16 + 8; at < right.size(); ++at) {
    for (const int change : {1, 8, 255}) {
      std::string bytes = right;
      bytes[at] = static_cast<char>(static_cast<unsigned char>(bytes[at]) + change);
      bytes = WithRightHash(bytes);
      if (!other_.Restore(bytes).ok()) continue;
      ++accepted;
      otherwise += BytesOf(other_) != bytes;
    }
  }
  EXPECT_EQ(accepted, 5135u);
  EXPECT_EQ(otherwise, 49u);
}

// Whatever else differs, a snapshot of another geometry is not this one's.
TEST_F(SnapshotFields, EveryFieldOfTheGeometryCounts) {
  const std::function<void(geometry::Layout&)> changes[] = {
      [](geometry::Layout& l) { l.pools[1].num_blocks = 65; },
      [](geometry::Layout& l) { l.pools[1].null_block = 1; },
      [](geometry::Layout& l) { l.groups[1].pool = 1; },
      [](geometry::Layout& l) { l.groups[1].kind = KVGUARD_GROUP_CHUNKED; },
      [](geometry::Layout& l) { l.groups[2].table_unit = KVGUARD_UNIT_BLOCK; },
      [](geometry::Layout& l) { l.groups[0].block_size = 8; },
      [](geometry::Layout& l) { l.groups[0].kernel_block_size = 2; },
      [](geometry::Layout& l) { l.groups[1].window = 12; },
      [](geometry::Layout& l) { l.groups[1].sink = 0; },
      [](geometry::Layout& l) { l.groups[1].retained = 0; },
      [](geometry::Layout& l) { l.groups[2].ranks = 4; },
      [](geometry::Layout& l) { l.groups[2].rank = 0; },
      [](geometry::Layout& l) { l.groups[2].interleave = 2; },
      [](geometry::Layout& l) { l.groups[0].ring = 8; },
      [](geometry::Layout& l) { l.groups[0].cells = true; },
      [](geometry::Layout& l) { l.groups[0].block_stride = 8; },
      [](geometry::Layout& l) { l.groups[0].slot_base = 4; },
      [](geometry::Layout& l) { l.pcp_size = 2; },
  };
  int number = 0;
  for (const auto& change : changes) {
    geometry::Layout layout = ThreeGroups();
    change(layout);
    Mirror other;
    other.Init(&layout, 8, 1u << 20);
    EXPECT_EQ(other.Restore(BytesOf(mirror_)).code(), KVGUARD_ERROR_ARGUMENT) << number;
    ++number;
  }
}

// A mirror that was reset is one that has never lived, but for the serials of steps and plans.
TEST_F(SnapshotFields, AResetForgetsEverything) {
  Mirror never;
  never.Init(&layout_, 8, 1u << 20);
  mirror_.BeginStep(4);
  mirror_.Schedule(mirror_.Find(5));
  mirror_.executing().push_back({5, 8, 1});
  mirror_.zeroing().Add({0, 0, 3, KVGUARD_NONE, false});
  mirror_.copying().set_says_done(true);
  mirror_.copying().Add({0, 0, 3, 4, false});
  mirror_.Reset();
  never.transfers().set_forgot(true);   // their ends may still be told
  never.zeroing().set_says_done(true);  // and what the engine says is not forgotten
  never.copying().set_says_done(true);
  EXPECT_EQ(BytesOf(mirror_), BytesOf(never));
  EXPECT_FALSE(mirror_.AnyLoading());
  EXPECT_FALSE(mirror_.AnyPinned());
  EXPECT_FALSE(mirror_.AnyLostClaimed());
  EXPECT_FALSE(mirror_.zeroing().AnyOpen());
  EXPECT_FALSE(mirror_.copying().AnyOpen());
  EXPECT_FALSE(mirror_.IsOpen(4));
  EXPECT_FALSE(mirror_.IsOpen(0));
  EXPECT_TRUE(mirror_.scheduled().empty());
  EXPECT_TRUE(mirror_.executing().empty());
  EXPECT_TRUE(mirror_.previous_rows().empty());
  EXPECT_TRUE(mirror_.released().empty());
  EXPECT_EQ(mirror_.previous_step(), 0u);
  EXPECT_EQ(mirror_.last_begun(), 0u);
  EXPECT_EQ(mirror_.num_live(), 0u);
  EXPECT_EQ(mirror_.Admit(5, "again", 0, 1), 0u);  // no place of the past is used
}

// Bytes behind the history's bound go with the oldest; exactly the bound is kept.
TEST_F(SnapshotFields, HistoryKeepsItsBytes) {
  const auto kept = [&](uint64_t bytes) {
    Mirror mirror;
    mirror.Init(&layout_, 8, bytes);
    for (uint64_t key = 1; key <= 3; ++key) {
      const uint32_t index = mirror.Admit(key, "abcd", 0, 1);
      for (int64_t block = 0; block < 5; ++block)
        mirror.Push(&mirror.at(index), layout_.groups[0], block + 1);
      mirror.Release(index, 1);
    }
    return mirror.released().size();
  };
  const uint64_t one = sizeof(Released) + 4 + 3 * sizeof(Row) + 5 * sizeof(int32_t);
  EXPECT_EQ(kept(3 * one), 3u);
  EXPECT_EQ(kept(3 * one - 1), 2u);
  EXPECT_EQ(kept(one), 1u);
  EXPECT_EQ(kept(one - 1), 0u);
}

}  // namespace
}  // namespace kvguard::mirror
