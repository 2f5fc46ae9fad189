// SPDX-License-Identifier: Apache-2.0
#include "step/structs.h"

#include <cstddef>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

namespace kvguard::step {
namespace {

// What a later header would make of a kvguard_end.
struct LaterEnd {
  kvguard_end end;
  uint32_t more[2];
};

// Elements of any size over one buffer, as an older or a later caller would lay them out.
class Elements {
 public:
  Elements(size_t count, uint32_t size) : size_(size), words_((count * size + 7) / 8 + 1, 0) {
    for (size_t i = 0; i < count; ++i) std::memcpy(At(i), &size, sizeof(size));
  }
  unsigned char* At(size_t i) {
    return reinterpret_cast<unsigned char*>(words_.data()) + i * size_;
  }
  const kvguard_scheduled* Array() {
    return reinterpret_cast<const kvguard_scheduled*>(words_.data());
  }

 private:
  size_t size_;
  std::vector<uint64_t> words_;
};

TEST(ReadStruct, OursIsCopied) {
  const kvguard_end in{sizeof(kvguard_end), KVGUARD_END_ABANDONED};
  kvguard_end out{};
  ASSERT_TRUE(ReadStruct(&in, &out, "end").ok());
  EXPECT_EQ(out.flags, static_cast<uint32_t>(KVGUARD_END_ABANDONED));
}

TEST(ReadStruct, AnOldersAbsentFieldsAreZero) {
  kvguard_scheduled in{};
  in.size = offsetof(kvguard_scheduled, num_computed);
  in.request = 7;
  in.num_tokens = 3;
  in.num_computed = 99;  // behind its end: somebody else's bytes
  kvguard_scheduled out;
  std::memset(&out, 0xff, sizeof(out));
  ASSERT_TRUE(ReadStruct(&in, &out, "scheduled").ok());
  EXPECT_EQ(out.size, sizeof(out));
  EXPECT_EQ(out.request, 7u);
  EXPECT_EQ(out.num_tokens, 3);
  EXPECT_EQ(out.num_computed, 0);
  in.size = 4;
  ASSERT_TRUE(ReadStruct(&in, &out, "scheduled").ok());
  EXPECT_EQ(out.request, 0u);
}

TEST(ReadStruct, ALatersZeroTailIsAccepted) {
  LaterEnd in{{sizeof(LaterEnd), KVGUARD_END_NO_FORWARD}, {0, 0}};
  kvguard_end out{};
  ASSERT_TRUE(ReadStruct(&in.end, &out, "end").ok());
  EXPECT_EQ(out.size, sizeof(out));
  EXPECT_EQ(out.flags, static_cast<uint32_t>(KVGUARD_END_NO_FORWARD));
}

TEST(ReadStruct, ALatersSetFieldIsRefused) {
  for (const size_t at : {size_t{0}, sizeof(uint32_t) * 2 - 1}) {
    LaterEnd in{{sizeof(LaterEnd), 0}, {0, 0}};
    reinterpret_cast<unsigned char*>(in.more)[at] = 1;
    kvguard_end out{};
    const Status status = ReadStruct(&in.end, &out, "end");
    EXPECT_EQ(status.code(), KVGUARD_ERROR_UNSUPPORTED);
    EXPECT_NE(status.text().find("update kvguard"), std::string::npos);
  }
}

TEST(ReadStruct, GarbageIsRefusedBeforeItIsRead) {
  kvguard_end out{};
  EXPECT_EQ(ReadStruct<kvguard_end>(nullptr, &out, "end").text(), "end is NULL");
  for (const uint32_t size : {0u, 1u, 3u, 7u, 10u, kMaxStructSize + 4, 0xffffffffu}) {
    std::vector<uint32_t> in = {size, 0};
    EXPECT_EQ(ReadStruct(reinterpret_cast<const kvguard_end*>(in.data()), &out, "end").code(),
              KVGUARD_ERROR_ARGUMENT)
        << size;
  }
  alignas(8) unsigned char bytes[sizeof(kvguard_end) + 1] = {};
  bytes[1] = sizeof(kvguard_end);
  const void* misaligned = bytes + 1;
  EXPECT_EQ(ReadStruct(static_cast<const kvguard_end*>(misaligned), &out, "end").text(),
            "end is not aligned");
}

TEST(StructArray, AnEmptyOneNeedsNoPointer) {
  StructArray<kvguard_scheduled> array;
  EXPECT_TRUE(array.Assign(nullptr, 0, 5, "rows").ok());
  EXPECT_EQ(array.size(), 0u);
}

TEST(StructArray, OursAreViewedInPlace) {
  Elements elements(3, sizeof(kvguard_scheduled));
  StructArray<kvguard_scheduled> array;
  ASSERT_TRUE(array.Assign(elements.Array(), 3, 3, "rows").ok());
  ASSERT_EQ(array.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(&array[i], elements.Array() + i);
}

TEST(StructArray, OldersAreWidened) {
  constexpr uint32_t kOlder = offsetof(kvguard_scheduled, num_computed);
  Elements elements(3, kOlder);
  for (uint64_t i = 0; i < 3; ++i) {
    const uint64_t request = 10 + i;
    std::memcpy(elements.At(i) + offsetof(kvguard_scheduled, request), &request, sizeof(request));
  }
  StructArray<kvguard_scheduled> array;
  ASSERT_TRUE(array.Assign(elements.Array(), 3, 3, "rows").ok());
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(array[i].request, 10 + i);
    EXPECT_EQ(array[i].num_computed, 0);
  }
}

TEST(StructArray, LatersAreStriddenOver) {
  constexpr uint32_t kLater = sizeof(kvguard_scheduled) + 16;
  Elements elements(3, kLater);
  for (uint64_t i = 0; i < 3; ++i) {
    const uint64_t request = 20 + i;
    std::memcpy(elements.At(i) + offsetof(kvguard_scheduled, request), &request, sizeof(request));
  }
  StructArray<kvguard_scheduled> array;
  ASSERT_TRUE(array.Assign(elements.Array(), 3, 3, "rows").ok());
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(array[i].request, 20 + i);
  elements.At(2)[kLater - 1] = 1;
  EXPECT_EQ(array.Assign(elements.Array(), 3, 3, "rows").code(), KVGUARD_ERROR_UNSUPPORTED);
  EXPECT_EQ(array.size(), 0u);
}

TEST(StructArray, WhatCannotBeAnArrayIsRefused) {
  StructArray<kvguard_scheduled> array;
  Elements elements(3, sizeof(kvguard_scheduled));
  EXPECT_EQ(array.Assign(nullptr, 1, 5, "rows").code(), KVGUARD_ERROR_ARGUMENT);
  EXPECT_EQ(array.Assign(elements.Array(), 3, 2, "rows").code(), KVGUARD_ERROR_ARGUMENT);
  EXPECT_EQ(array.Assign(elements.Array(), UINT64_MAX, 2, "rows").code(), KVGUARD_ERROR_ARGUMENT);
  const void* misaligned = elements.At(0) + 4;
  EXPECT_EQ(array.Assign(static_cast<const kvguard_scheduled*>(misaligned), 1, 5, "rows").code(),
            KVGUARD_ERROR_ARGUMENT);
  for (const uint32_t size : {0u, 2u, 12u, kMaxStructSize + 8}) {
    Elements odd(1, sizeof(kvguard_scheduled));
    std::memcpy(odd.At(0), &size, sizeof(size));
    EXPECT_EQ(array.Assign(odd.Array(), 1, 5, "rows").code(), KVGUARD_ERROR_ARGUMENT) << size;
  }
  const uint32_t other = sizeof(kvguard_scheduled) - 8;
  std::memcpy(elements.At(1), &other, sizeof(other));
  const Status mixed = array.Assign(elements.Array(), 3, 5, "rows");
  EXPECT_EQ(mixed.code(), KVGUARD_ERROR_ARGUMENT);
  EXPECT_NE(mixed.text().find("rows[1].size"), std::string::npos);
}

}  // namespace
}  // namespace kvguard::step
