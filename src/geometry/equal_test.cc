// SPDX-License-Identifier: Apache-2.0
#include "geometry/equal.h"

#include <cstdint>
#include <iterator>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace kvguard::geometry {
namespace {

// The definitions, element by element, in arithmetic that cannot wrap.
template <typename T>
size_t RunByDefinition(const T* slots, size_t n, int64_t first) {
  size_t i = 0;
  while (i < n && slots[i] >= first &&
         static_cast<uint64_t>(int64_t{slots[i]}) - static_cast<uint64_t>(first) == i) {
    ++i;
  }
  return i;
}

template <typename T>
size_t ValueByDefinition(const T* a, size_t n, int64_t value) {
  size_t i = 0;
  while (i < n && int64_t{a[i]} == value) ++i;
  return i;
}

template <typename T>
size_t EqualByDefinition(const T* a, const int32_t* b, size_t n) {
  size_t i = 0;
  while (i < n && int64_t{a[i]} == int64_t{b[i]}) ++i;
  return i;
}

template <typename T>
size_t BlocksByDefinition(const T* slots, size_t n, const int32_t* entries, size_t offset,
                          size_t per_entry) {
  size_t i = 0;
  while (i < n && int64_t{slots[i]} ==
                      int64_t{entries[(offset + i) / per_entry]} * static_cast<int64_t>(per_entry) +
                          static_cast<int64_t>((offset + i) % per_entry)) {
    ++i;
  }
  return i;
}

// Every kernel set that this machine can run; the functions of the header dispatch to one of them.
std::vector<const EqualKernels*> Kernels() {
  std::vector<const EqualKernels*> sets = {&kPortableEqualKernels};
  if (Avx2EqualKernels() != nullptr) sets.push_back(Avx2EqualKernels());
  return sets;
}

constexpr size_t kLengths[] = {0,  1,  2,  3,  4,  5,  7,  8,  9,   12,  15,  16,  17,  20, 23,
                               24, 31, 32, 33, 48, 63, 64, 65, 100, 127, 128, 129, 257, 300};

// An array at every alignment of its element, ending exactly at the end of its allocation, so that
// a kernel that reads past the end is seen by the address sanitizer.
template <typename T>
struct Placed {
  Placed(size_t n, size_t offset) : storage(n + offset), data(storage.data() + offset) {}
  std::vector<T> storage;
  T* data;
};

template <typename T>
T Represent(int64_t value) {
  return static_cast<T>(value);
}

// A wrong value at every place of every length, at several alignments, changed in its low and in
// its high half.
template <typename T>
void TryEveryPlace(int64_t first) {
  for (size_t n : kLengths) {
    for (size_t offset = 0; offset < 9; offset += 3) {
      Placed<T> slots(n, offset);
      Placed<T> values(n, offset);
      Placed<int32_t> row(n, offset % 5);
      Placed<T> copy(n, offset);
      for (size_t i = 0; i < n; ++i) {
        slots.data[i] = Represent<T>(first + static_cast<int64_t>(i));
        values.data[i] = Represent<T>(first);
        row.data[i] =
            static_cast<int32_t>((first ^ static_cast<int64_t>(i * 2654435761u)) & 0x7fffffff) - 5;
        copy.data[i] = T{row.data[i]};
      }
      for (size_t wrong = 0; wrong <= n; ++wrong) {
        for (int bit : {0, static_cast<int>(sizeof(T) * 8) - 1}) {
          const T flip = static_cast<T>(static_cast<uint64_t>(1) << bit);
          if (wrong < n) {
            slots.data[wrong] ^= flip;
            values.data[wrong] ^= flip;
            copy.data[wrong] ^= flip;
          }
          ASSERT_EQ(MatchRun(slots.data, n, first), wrong) << n << " " << offset;
          ASSERT_EQ(MatchValue(values.data, n, first), wrong) << n << " " << offset;
          ASSERT_EQ(MatchEqual(copy.data, row.data, n), wrong) << n << " " << offset;
          for (const EqualKernels* set : Kernels()) {
            if constexpr (sizeof(T) == 8) {
              ASSERT_EQ(set->run64(slots.data, n, first), wrong) << set->name << " " << n;
              ASSERT_EQ(set->value64(values.data, n, first), wrong) << set->name << " " << n;
              ASSERT_EQ(set->equal64(copy.data, row.data, n), wrong) << set->name << " " << n;
            } else {
              const int32_t narrow = static_cast<int32_t>(first);
              ASSERT_EQ(set->run32(slots.data, n, narrow), wrong) << set->name << " " << n;
              ASSERT_EQ(set->value32(values.data, n, narrow), wrong) << set->name << " " << n;
              ASSERT_EQ(set->equal32(copy.data, row.data, n), wrong) << set->name << " " << n;
            }
          }
          if (wrong < n) {
            slots.data[wrong] ^= flip;
            values.data[wrong] ^= flip;
            copy.data[wrong] ^= flip;
          }
        }
      }
    }
  }
}

TEST(Equal, FindsTheFirstDifferenceAtEveryPlace64) {
  TryEveryPlace<int64_t>(0);
  TryEveryPlace<int64_t>(-3);
  TryEveryPlace<int64_t>((int64_t{1} << 40) - 100);
}

TEST(Equal, FindsTheFirstDifferenceAtEveryPlace32) {
  TryEveryPlace<int32_t>(0);
  TryEveryPlace<int32_t>(-3);
  TryEveryPlace<int32_t>(1 << 24);
}

TEST(Equal, OnlyTheFirstOfSeveralDifferencesCounts) {
  std::vector<int64_t> slots(200);
  for (size_t i = 0; i < slots.size(); ++i) slots[i] = 1000 + static_cast<int64_t>(i);
  slots[150] = 0;
  slots[199] = 0;
  slots[61] = 0;
  EXPECT_EQ(MatchRun(slots.data(), slots.size(), 1000), 61u);
}

// Expected values end with the range of the type; they do not begin again at its other end.
TEST(Equal, RunsDoNotWrap) {
  for (size_t before : {size_t{1}, size_t{5}, size_t{40}}) {
    for (size_t after : {size_t{1}, size_t{40}}) {
      std::vector<int64_t> wide(before + after);
      std::vector<int32_t> narrow(before + after);
      for (size_t i = 0; i < wide.size(); ++i) {
        const uint64_t above = static_cast<uint64_t>(i) - before + 1;
        wide[i] = static_cast<int64_t>(static_cast<uint64_t>(INT64_MAX) + above);
        narrow[i] =
            static_cast<int32_t>(static_cast<uint32_t>(INT32_MAX) + static_cast<uint32_t>(above));
      }
      EXPECT_EQ(MatchRun(wide.data(), wide.size(), wide[0]), before);
      EXPECT_EQ(MatchRun(narrow.data(), narrow.size(), narrow[0]), before);
    }
  }
}

// A slot beyond 32 bits is not the slot with the same low half.
TEST(Equal, NarrowElementsDoNotMatchWideValues) {
  std::vector<int32_t> slots(40);
  for (size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<int32_t>(i);
  EXPECT_EQ(MatchRun(slots.data(), slots.size(), 0), 40u);
  EXPECT_EQ(MatchRun(slots.data(), slots.size(), int64_t{1} << 32), 0u);
  EXPECT_EQ(MatchRun(slots.data(), slots.size(), INT64_MIN), 0u);
  const std::vector<int32_t> pads(40, -1);
  EXPECT_EQ(MatchValue(pads.data(), pads.size(), -1), 40u);
  EXPECT_EQ(MatchValue(pads.data(), pads.size(), int64_t{0xffffffff}), 0u);
  std::vector<int64_t> wide(40, int64_t{0xffffffff});
  EXPECT_EQ(MatchEqual(wide.data(), pads.data(), pads.size()), 0u);
}

// The first and the last number that an element can hold are numbers like any other.
TEST(Equal, TheEndsOfTheRangeMatch) {
  const std::vector<int32_t> low = {INT32_MIN, INT32_MIN + 1};
  EXPECT_EQ(MatchRun(low.data(), low.size(), INT32_MIN), 2u);
  EXPECT_EQ(MatchRun(low.data(), low.size(), int64_t{INT32_MIN} - 1), 0u);
  for (const int32_t end : {INT32_MIN, INT32_MAX}) {
    const std::vector<int32_t> values(3, end);
    EXPECT_EQ(MatchRun(values.data(), 1, end), 1u);
    EXPECT_EQ(MatchValue(values.data(), values.size(), end), 3u);
  }
  // A run that ends exactly with the type.
  const std::vector<int64_t> wide = {INT64_MAX - 1, INT64_MAX};
  EXPECT_EQ(MatchRun(wide.data(), wide.size(), INT64_MAX - 1), 2u);
}

// Rows of one value: an element that is passed over, or looked at twice, is seen by nothing else.
TEST(Equal, RowsOfOneValueDifferWhereTheyDiffer) {
  for (const size_t n : kLengths) {
    std::vector<int64_t> wide(n, 7);
    std::vector<int32_t> narrow(n, 7);
    const std::vector<int32_t> other(n, 7);
    const std::vector<int64_t> even(n, 7);
    for (size_t wrong = 0; wrong < n; ++wrong) {
      wide[wrong] = narrow[wrong] = 8;
      for (const EqualKernels* set : Kernels()) {
        ASSERT_EQ(set->equal64(wide.data(), other.data(), n), wrong) << set->name << " " << n;
        ASSERT_EQ(set->equal32(narrow.data(), other.data(), n), wrong) << set->name << " " << n;
        ASSERT_EQ(set->equal32(other.data(), narrow.data(), n), wrong) << set->name << " " << n;
        ASSERT_EQ(set->equal64(even.data(), narrow.data(), n), wrong) << set->name << " " << n;
      }
      wide[wrong] = narrow[wrong] = 7;
    }
  }
}

// Blocks that follow one another, as a fresh pool gives them: the slots behind a block are those
// that its run would go on with.
TEST(Equal, BlocksInARowDifferWhereTheyDiffer) {
  for (const size_t per_entry : {size_t{16}, size_t{32}, size_t{48}}) {
    for (const size_t offset : {size_t{0}, size_t{5}}) {
      const std::vector<int32_t> entries = {3, 4, 5, 6, 7};
      const size_t n = 4 * per_entry;
      std::vector<int64_t> slots(n + 64);  // what lies behind the row goes on in the same way
      for (size_t i = 0; i < slots.size(); ++i)
        slots[i] = static_cast<int64_t>(3 * per_entry + offset + i);
      for (size_t wrong = 0; wrong <= n; ++wrong) {
        const int64_t right = slots[wrong];
        if (wrong < n) slots[wrong] = 1;
        for (const EqualKernels* set : Kernels()) {
          ASSERT_EQ(set->blocks64(slots.data(), n, entries.data(), offset, per_entry), wrong)
              << set->name << " " << per_entry;
        }
        slots[wrong] = right;
      }
    }
  }
}

// A row of one token is compared without a loop.
TEST(Equal, OneTokenOfABlock) {
  const int32_t entry = 9;
  for (size_t offset = 0; offset < 16; ++offset) {
    const int64_t right = 9 * 16 + static_cast<int64_t>(offset);
    for (const int64_t slot : {right - 1, right, right + 1})
      EXPECT_EQ(MatchBlocks(&slot, 1, &entry, offset, 16), slot == right ? 1u : 0u);
  }
}

TEST(Equal, NothingIsReadOfAnEmptyArray) {
  const int64_t* wide = nullptr;
  const int32_t* narrow = nullptr;
  EXPECT_EQ(MatchRun(wide, 0, 7), 0u);
  EXPECT_EQ(MatchRun(narrow, 0, 7), 0u);
  EXPECT_EQ(MatchRun(narrow, 0, INT32_MAX), 0u);
  EXPECT_EQ(MatchEqual(narrow, narrow, 0), 0u);
  EXPECT_EQ(MatchEqual(wide, narrow, 0), 0u);
  EXPECT_EQ(MatchValue(wide, 0, 7), 0u);
  EXPECT_EQ(MatchValue(narrow, 0, 7), 0u);
}

// Random arrays with few different values, so that long equal prefixes, early ends and several
// differences all occur.
TEST(Equal, EveryKernelSetAgreesWithTheDefinition) {
  std::mt19937_64 random(20240613);
  int differences = 0;
  for (int round = 0; round < 20000; ++round) {
    const size_t n = random() % 200;
    const size_t offset = random() % 8;
    const int64_t first = static_cast<int64_t>(random() % 5 == 0 ? random() : random() % 100000);
    const int32_t narrow_first = static_cast<int32_t>(first);
    Placed<int64_t> wide(n, offset);
    Placed<int32_t> narrow(n, offset);
    Placed<int32_t> other(n, offset / 2);
    Placed<int64_t> wide_value(n, offset);
    Placed<int32_t> narrow_value(n, offset);
    const uint64_t rarity = 1 + random() % 300;
    for (size_t i = 0; i < n; ++i) {
      const uint64_t noise = random() % rarity == 0 ? random() % 3 : 0;
      wide.data[i] = static_cast<int64_t>(static_cast<uint64_t>(first) + i + noise);
      narrow.data[i] = static_cast<int32_t>(static_cast<uint64_t>(first) + i + noise);
      other.data[i] = static_cast<int32_t>(static_cast<uint64_t>(first) + i);
      wide_value.data[i] = static_cast<int64_t>(static_cast<uint64_t>(first) + noise);
      narrow_value.data[i] = static_cast<int32_t>(static_cast<uint64_t>(first) + noise);
    }
    const size_t run64 = RunByDefinition(wide.data, n, first);
    const size_t run32 = RunByDefinition(narrow.data, n, narrow_first);
    const size_t equal32 = EqualByDefinition(narrow.data, other.data, n);
    const size_t equal64 = EqualByDefinition(wide.data, other.data, n);
    const size_t value64 = ValueByDefinition(wide_value.data, n, first);
    const size_t value32 = ValueByDefinition(narrow_value.data, n, narrow_first);
    differences += run64 < n;
    ASSERT_EQ(MatchRun(wide.data, n, first), run64);
    ASSERT_EQ(MatchRun(narrow.data, n, narrow_first), run32);
    ASSERT_EQ(MatchEqual(narrow.data, other.data, n), equal32);
    ASSERT_EQ(MatchEqual(wide.data, other.data, n), equal64);
    ASSERT_EQ(MatchValue(wide_value.data, n, first), value64);
    ASSERT_EQ(MatchValue(narrow_value.data, n, narrow_first), value32);
    for (const EqualKernels* set : Kernels()) {
      // The kernels themselves are given runs that do not reach the end of the type; the header
      // sees to that.
      if (first <= INT64_MAX - 200) {
        ASSERT_EQ(set->run64(wide.data, n, first), run64) << set->name;
      }
      if (narrow_first <= INT32_MAX - 200) {
        ASSERT_EQ(set->run32(narrow.data, n, narrow_first), run32) << set->name;
      }
      ASSERT_EQ(set->equal32(narrow.data, other.data, n), equal32) << set->name;
      ASSERT_EQ(set->equal64(wide.data, other.data, n), equal64) << set->name;
      ASSERT_EQ(set->value64(wide_value.data, n, first), value64) << set->name;
      ASSERT_EQ(set->value32(narrow_value.data, n, narrow_first), value32) << set->name;
    }
  }
  EXPECT_GT(differences, 4000);
  EXPECT_LT(differences, 16000);
}

// Rows of every block size that engines use and some that they do not, from every offset, right and
// with one wrong slot.
TEST(Equal, BlocksAgreeWithTheAddressFormula) {
  std::mt19937_64 random(7);
  int whole = 0;
  for (int round = 0; round < 20000; ++round) {
    constexpr size_t kSizes[] = {1, 2, 3, 5, 8, 16, 16, 16, 24, 32, 48, 64, 128};
    const size_t per_entry = kSizes[random() % std::size(kSizes)];
    const size_t offset = random() % per_entry;
    const size_t n = random() % 300;
    Placed<int32_t> entries((offset + n + per_entry - 1) / per_entry, random() % 4);
    for (int32_t& entry : entries.storage) entry = static_cast<int32_t>(random() % 100000);
    if (random() % 4 == 0 && !entries.storage.empty())
      entries.storage.back() = random() % 2 == 0 ? INT32_MAX : -1;
    Placed<int64_t> wide(n, random() % 4);
    Placed<int32_t> narrow(n, random() % 8);
    for (size_t i = 0; i < n; ++i) {
      wide.data[i] =
          int64_t{entries.data[(offset + i) / per_entry]} * static_cast<int64_t>(per_entry) +
          static_cast<int64_t>((offset + i) % per_entry);
      narrow.data[i] = static_cast<int32_t>(wide.data[i]);
    }
    if (n > 0 && random() % 2 == 0) {
      wide.data[random() % n] ^= int64_t{1} << (random() % 63);
      narrow.data[random() % n] ^= 1 << (random() % 31);
    }
    const size_t expected = BlocksByDefinition(wide.data, n, entries.data, offset, per_entry);
    whole += expected == n;
    ASSERT_EQ(MatchBlocks(wide.data, n, entries.data, offset, per_entry), expected)
        << per_entry << " " << offset;
    ASSERT_EQ(MatchBlocks(narrow.data, n, entries.data, offset, per_entry),
              BlocksByDefinition(narrow.data, n, entries.data, offset, per_entry));
    for (const EqualKernels* set : Kernels()) {
      ASSERT_EQ(set->blocks64(wide.data, n, entries.data, offset, per_entry), expected)
          << set->name;
    }
  }
  EXPECT_GT(whole, 5000);
  EXPECT_LT(whole, 15000);
}

// The differential tests above say nothing where there is one set only, so that is said aloud.
TEST(Equal, Avx2KernelsWereCompared) {
  if (Avx2EqualKernels() == nullptr) GTEST_SKIP() << "this processor has no AVX2";
  EXPECT_STREQ(Avx2EqualKernels()->name, "avx2");
}

// A kernel reads vectors of `lanes` elements, four at a time. Each of these arrays would be right
// if it read the kth of them `step` elements apart, or expected them to begin that far apart: what
// stands before an array, and a run whose pieces jump, say nothing.
template <typename T>
void TryDisplaced(size_t lanes) {
  const auto width = static_cast<int64_t>(lanes);
  const auto want = [](int64_t place) { return static_cast<T>(100 + place); };
  std::vector<int32_t> row(16 * lanes, -7);
  for (size_t i = 0; i < 8 * lanes; ++i) row[8 * lanes + i] = static_cast<int32_t>(100 + i);
  for (const int64_t step : {-width, width - 1, width + 1}) {
    for (const bool reads : {true, false}) {
      std::vector<T> slots(16 * lanes, -7);
      std::vector<T> values(16 * lanes, -7);
      std::vector<int32_t> other(16 * lanes, -7);
      T* run = slots.data() + 8 * lanes;
      for (int64_t k = 3; k >= 0; --k) {
        for (int64_t j = 0; j < width; ++j) {
          const int64_t at = k * (reads ? step : width) + j;
          run[at] = want(k * (reads ? width : step) + j);
          other[8 * lanes + static_cast<size_t>(at)] = static_cast<int32_t>(run[at]);
          values[8 * lanes + static_cast<size_t>(at)] = 5;
        }
      }
      const T* value = values.data() + 8 * lanes;
      const int32_t* a = row.data() + 8 * lanes;
      const int32_t* b = other.data() + 8 * lanes;
      const std::vector<T> right(a, a + 8 * lanes);
      const size_t n = 4 * lanes;
      for (const EqualKernels* set : Kernels()) {
        if constexpr (sizeof(T) == 8) {
          EXPECT_EQ(set->run64(run, n, 100), RunByDefinition(run, n, 100)) << set->name << step;
          EXPECT_EQ(set->value64(value, n, 5), ValueByDefinition(value, n, 5)) << set->name << step;
          EXPECT_EQ(set->equal64(run, a, n), EqualByDefinition(run, a, n)) << set->name << step;
          EXPECT_EQ(set->equal64(right.data(), b, n), EqualByDefinition(right.data(), b, n));
        } else {
          EXPECT_EQ(set->run32(run, n, 100), RunByDefinition(run, n, 100)) << set->name << step;
          EXPECT_EQ(set->value32(value, n, 5), ValueByDefinition(value, n, 5)) << set->name << step;
          EXPECT_EQ(set->equal32(run, a, n), EqualByDefinition(run, a, n)) << set->name << step;
          EXPECT_EQ(set->equal32(a, b, n), EqualByDefinition(a, b, n)) << set->name << step;
        }
      }
    }
  }
}

TEST(Equal, VectorsAreReadWhereTheyStand) {
  for (const size_t lanes : {4, 8}) {
    TryDisplaced<int64_t>(lanes);
    TryDisplaced<int32_t>(lanes);
  }
}

// Three blocks of a row in the middle of an array, which `change` makes wrong: value(i) of the ith.
template <typename Change>
void TryBlocks(const Change& change) {
  for (const size_t per_entry : {16, 32, 48}) {
    const std::vector<int32_t> entries = {40, 7, 300};
    const size_t n = 3 * per_entry;
    std::vector<int64_t> storage(3 * n, -7);
    int64_t* slots = storage.data() + n;
    const auto right = [&](size_t i) {
      return int64_t{entries[i / per_entry]} * static_cast<int64_t>(per_entry) +
             static_cast<int64_t>(i % per_entry);
    };
    for (size_t i = 0; i < n; ++i) slots[i] = right(i);
    change(slots, per_entry, right);
    for (const EqualKernels* set : Kernels()) {
      ASSERT_EQ(set->blocks64(slots, n, entries.data(), 0, per_entry),
                BlocksByDefinition(slots, n, entries.data(), 0, per_entry))
          << set->name << " " << per_entry;
    }
  }
}

// Each of these rows would be right if a vector's places, the pieces of a block or the block itself
// were expected elsewhere.
TEST(Equal, BlocksAreExpectedWhereTheyStand) {
  for (const int64_t by : {-1, 1}) {
    for (size_t lane = 0; lane < 4; ++lane) {
      TryBlocks([&](int64_t* slots, size_t per_entry, const auto&) {
        for (size_t i = lane; i < 3 * per_entry; i += 4) slots[i] += by;
      });
    }
    TryBlocks([&](int64_t* slots, size_t per_entry, const auto&) {
      for (size_t i = 0; i < 3 * per_entry; ++i)
        slots[i] += 4 * by * static_cast<int64_t>(i % per_entry / 16);
    });
    TryBlocks([&](int64_t* slots, size_t per_entry, const auto& right) {
      for (size_t i = 3 * per_entry; i-- > 0;) {  // pieces one further apart, or one closer
        const size_t at = i + i % per_entry / 16 * static_cast<size_t>(by > 0 ? 1 : 0) -
                          i % per_entry / 16 * static_cast<size_t>(by < 0 ? 1 : 0);
        slots[at] = right(i);
      }
    });
  }
  TryBlocks([](int64_t* slots, size_t per_entry, const auto&) {
    for (size_t i = 0; i < 3 * per_entry; ++i)
      slots[i] -= static_cast<int64_t>(i % per_entry / 16 * 16);
  });
  TryBlocks([](int64_t* slots, size_t per_entry, const auto& right) {
    for (size_t i = 0; i < 3 * per_entry; ++i) slots[i + 1] = right(i);
    slots[0] = -7;
  });
  TryBlocks([](int64_t* slots, size_t per_entry, const auto&) {
    for (size_t i = 0; i < per_entry; ++i)
      slots[i] = 40 / static_cast<int64_t>(per_entry) + static_cast<int64_t>(i);
  });
  TryBlocks([](int64_t* slots, size_t per_entry, const auto& right) {
    for (size_t i = 0; i < per_entry; ++i) {
      *(slots - per_entry + i) = right(per_entry + i);
      *(slots - 2 * per_entry + i) = right(2 * per_entry + i);
      slots[per_entry + i] = slots[2 * per_entry + i] = -7;
    }
  });
}

}  // namespace
}  // namespace kvguard::geometry
