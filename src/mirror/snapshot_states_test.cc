// SPDX-License-Identifier: Apache-2.0
// Snapshots of geometries with states, encoders and prefill context parallelism: the fields that
// only these have come back, and have bounds.
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "mirror/mirror.h"

namespace kvguard::mirror {
namespace {

geometry::Layout StatesAndEncoders() {
  geometry::Layout layout;
  layout.forgets = layout.has_states = layout.has_cross = true;
  layout.every_pass = false;
  layout.pcp_size = 2;
  layout.pools.push_back({64, 0, KVGUARD_POOL_PAGES, 0});
  for (const uint32_t kind : {KVGUARD_GROUP_FULL, KVGUARD_GROUP_STATE, KVGUARD_GROUP_CROSS}) {
    geometry::Group group;
    group.id = static_cast<uint32_t>(layout.groups.size());
    group.kind = kind;
    group.block_size = group.slots_per_block = group.block_stride = group.kernel_block_size = 4;
    if (group.IsState()) group.state_mode = KVGUARD_STATE_ALIGN;
    group.num_slots = 256;
    layout.groups.push_back(group);
  }
  return layout;
}

std::string BytesOf(const Mirror& mirror) {
  std::string bytes;
  mirror.Serialize(&bytes);
  return bytes;
}

std::string WithRightHash(std::string bytes) {
  constexpr size_t kHeader = 16;
  uint64_t hash = 0xcbf29ce484222325u;
  for (size_t i = kHeader; i < bytes.size(); ++i)
    hash = (hash ^ static_cast<unsigned char>(bytes[i])) * 0x100000001b3u;
  for (size_t i = 0; i < 8; ++i) bytes[8 + i] = static_cast<char>(hash >> (8 * i));
  return bytes;
}

class SnapshotStates : public testing::Test {
 protected:
  SnapshotStates() {
    mirror_.Init(&layout_, 8, 1u << 20);
    other_.Init(&layout_, 8, 1u << 20);
    mirror_.BeginStep(3);
    for (const uint64_t key : {5, 9}) {
      const uint32_t index = mirror_.Admit(key, "", 8, 3);
      for (const geometry::Group& group : layout_.groups) {
        const auto block = static_cast<int64_t>(key * 3 + group.id);
        Mirror::ClaimFresh(&mirror_.TouchBlock(group, block), key, 3);
        mirror_.Push(&mirror_.at(index), group, block, 3);
      }
      Request& request = mirror_.at(index);
      request.known = 11;
      request.states_end = 9;
      request.states_drafts = 2;
      request.encoder = 6;
      request.encoder_written = key == 9;
    }
    mirror_.TouchBlock(layout_.groups[1], 16).state_tokens = 7;
    mirror_.TouchBlock(layout_.groups[1], 40).state_tokens = 3;  // held by nobody
    mirror_.TouchBlock(layout_.groups[1], 41).ever_filled = true;
    mirror_.AddStateCopy({1, 3, 4});
    mirror_.EndStep(3, false, false);
  }
  bool Comes() { return other_.Restore(BytesOf(mirror_)).ok(); }
  Request& Get(uint64_t key) { return mirror_.at(mirror_.Find(key)); }
  void Bounds(int64_t* field, const std::vector<int64_t>& good, const std::vector<int64_t>& bad) {
    const int64_t before = *field;
    for (const int64_t value : good) {
      *field = value;
      EXPECT_TRUE(Comes()) << value;
      EXPECT_EQ(BytesOf(other_), BytesOf(mirror_)) << value;
    }
    for (const int64_t value : bad) {
      *field = value;
      EXPECT_FALSE(Comes()) << value;
    }
    *field = before;
    ASSERT_TRUE(Comes());
  }

  static constexpr int64_t kMost = int64_t{1} << 41;
  geometry::Layout layout_ = StatesAndEncoders();
  Mirror mirror_;
  Mirror other_;
};

TEST_F(SnapshotStates, EverythingComesBack) {
  ASSERT_TRUE(Comes());
  EXPECT_EQ(BytesOf(other_), BytesOf(mirror_));
  for (const uint64_t key : {5, 9}) {
    const Request& request = *other_.FindRequest(key);
    EXPECT_EQ(request.known, 11);
    EXPECT_EQ(request.states_end, 9);
    EXPECT_EQ(request.states_drafts, 2);
    EXPECT_EQ(request.encoder, 6);
    EXPECT_EQ(request.encoder_written, key == 9);
  }
  EXPECT_EQ(other_.BlockOf(layout_.groups[1], 16).state_tokens, 7);
  EXPECT_EQ(other_.BlockOf(layout_.groups[1], 40).state_tokens, 3);
  EXPECT_TRUE(other_.BlockOf(layout_.groups[1], 41).ever_filled);
  EXPECT_TRUE(other_.says_state_copies());
}

TEST_F(SnapshotStates, AnEngineThatNeverSaidItsCopiesHasNot) {
  Mirror silent;
  silent.Init(&layout_, 8, 1u << 20);
  ASSERT_TRUE(other_.Restore(BytesOf(silent)).ok());
  EXPECT_FALSE(other_.says_state_copies());
}

TEST_F(SnapshotStates, EachFieldHasBounds) {
  Request& request = Get(5);
  Bounds(&request.known, {0, 1}, {-1});
  Bounds(&request.states_end, {KVGUARD_NONE, 0, kMost}, {KVGUARD_NONE - 1, kMost + 1});
  Bounds(&request.states_drafts, {0, kMost}, {-1, kMost + 1});
  Bounds(&request.encoder, {0, kMost}, {-1, kMost + 1});
  Bounds(&mirror_.TouchBlock(layout_.groups[1], 16).state_tokens, {0, kMost}, {-1});
}

// A truth value is 0 or 1. Where it stands is where the bytes differ when it does.
TEST_F(SnapshotStates, TruthHasTwoValues) {
  Mirror silent;
  silent.Init(&layout_, 8, 1u << 20);
  Mirror says;
  says.Init(&layout_, 8, 1u << 20);
  says.AddStateCopy({1, 3, 4});
  const std::string before = BytesOf(mirror_);
  Get(5).encoder_written = true;
  const std::vector<std::pair<std::string, std::string>> pairs = {{before, BytesOf(mirror_)},
                                                                  {BytesOf(silent), BytesOf(says)}};
  for (const auto& [no, yes] : pairs) {
    ASSERT_EQ(no.size(), yes.size());
    size_t at = 16;
    while (no[at] == yes[at]) ++at;
    for (const auto& [value, good] : {std::pair{0, true}, {1, true}, {2, false}, {255, false}}) {
      std::string bytes = no;
      bytes[at] = static_cast<char>(value);
      EXPECT_EQ(other_.Restore(WithRightHash(bytes)).ok(), good) << value;
    }
  }
}

TEST_F(SnapshotStates, EveryTruncationBehindARightHashIsRefused) {
  const std::string right = BytesOf(mirror_);
  ASSERT_TRUE(other_.Restore(WithRightHash(right)).ok());
  for (size_t n = 16; n < right.size(); ++n)
    ASSERT_FALSE(other_.Restore(WithRightHash(right.substr(0, n))).ok()) << n;
}

TEST_F(SnapshotStates, AnotherModeOfStatesIsAnotherGeometry) {
  geometry::Layout layout = StatesAndEncoders();
  layout.groups[1].state_mode = KVGUARD_STATE_ALL;
  Mirror other;
  other.Init(&layout, 8, 1u << 20);
  EXPECT_EQ(other.Restore(BytesOf(mirror_)).code(), KVGUARD_ERROR_ARGUMENT);
}

// Serials are no part of it: what was scheduled, or in a plan, before is not so afterwards.
TEST_F(SnapshotStates, NothingIsScheduledAfterwards) {
  for (int i = 0; i < 3; ++i) {
    mirror_.BeginStep(4);
    mirror_.Schedule(mirror_.Find(5));
    const uint64_t plan = mirror_.NextPlanSerial();
    Get(5).seen_plan = plan;
    mirror_.EndStep(4, false, false);
    ASSERT_TRUE(mirror_.Restore(BytesOf(mirror_)).ok());
    mirror_.BeginStep(5);
    EXPECT_FALSE(mirror_.IsScheduled(Get(5)));
    EXPECT_NE(Get(5).seen_plan, mirror_.NextPlanSerial());
    mirror_.EndStep(5, false, false);
  }
}

#if defined(__has_feature)
#define KVGUARD_HAS_FEATURE(x) __has_feature(x)
#else
#define KVGUARD_HAS_FEATURE(x) 0
#endif
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && \
    !KVGUARD_HAS_FEATURE(address_sanitizer) && !KVGUARD_HAS_FEATURE(thread_sanitizer)
// A count that the bytes behind it cannot hold is refused before anything is made of its size.
TEST_F(SnapshotStates, AForgedCountCostsNoMemory) {
  Request& request = Get(9);
  request.settled.assign(100'000, {1, 0x0101010101010101});
  std::string bytes = BytesOf(mirror_);
  const uint32_t right = 100'000;
  const std::string count(reinterpret_cast<const char*>(&right), sizeof(right));
  const size_t at = bytes.rfind(count, bytes.find(std::string(8, '\1')));
  ASSERT_NE(at, std::string::npos);
  const uint32_t forged = 16'000'000;  // 256 MB of outcomes
  bytes.replace(at, sizeof(forged), reinterpret_cast<const char*>(&forged), sizeof(forged));
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const int64_t kilobytes = usage.ru_maxrss;
  EXPECT_EQ(other_.Restore(WithRightHash(bytes)).code(), KVGUARD_ERROR_FORMAT);
  getrusage(RUSAGE_SELF, &usage);
  EXPECT_LT(usage.ru_maxrss - kilobytes, 100'000);
}
#endif

}  // namespace
}  // namespace kvguard::mirror
