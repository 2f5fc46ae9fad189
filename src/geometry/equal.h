// SPDX-License-Identifier: Apache-2.0
//
// Length of the longest prefix of an array that equals what is expected. Every function answers
// "how far is this right?", so that a caller that gets n back is done and one that gets less knows
// where to look.
//
// The answer never depends on the instruction set: the wide kernels only skip what is equal faster.
// A value that an element type cannot hold equals nothing; expected values never wrap.
#ifndef KVGUARD_GEOMETRY_EQUAL_H_
#define KVGUARD_GEOMETRY_EQUAL_H_

#include <cstddef>
#include <cstdint>

namespace kvguard::geometry {

// The kernels behind the functions below, one set per instruction set; tests compare the sets with
// each other.
struct EqualKernels {
  const char* name;
  size_t (*run64)(const int64_t* slots, size_t n, int64_t first);
  size_t (*run32)(const int32_t* slots, size_t n, int32_t first);
  size_t (*equal32)(const int32_t* a, const int32_t* b, size_t n);
  size_t (*equal64)(const int64_t* a, const int32_t* b, size_t n);
  size_t (*value64)(const int64_t* a, size_t n, int64_t value);
  size_t (*value32)(const int32_t* a, size_t n, int32_t value);
  size_t (*blocks64)(const int64_t* slots, size_t n, const int32_t* entries, size_t offset,
                     size_t per_entry);
};

// Portable C++; the compiler vectorises it for the baseline it builds for.
extern const EqualKernels kPortableEqualKernels;

// nullptr where this processor, or this build, has no AVX2.
const EqualKernels* Avx2EqualKernels();

namespace detail {

// Below this a call costs more than the loop that it saves.
inline constexpr size_t kInlineElements = 8;

size_t LongRun(const int64_t* slots, size_t n, int64_t first);
size_t LongRun(const int32_t* slots, size_t n, int32_t first);
size_t LongEqual(const int32_t* a, const int32_t* b, size_t n);
size_t LongEqual(const int64_t* a, const int32_t* b, size_t n);
size_t LongValue(const int64_t* a, size_t n, int64_t value);
size_t LongValue(const int32_t* a, size_t n, int32_t value);
size_t LongBlocks(const int64_t* slots, size_t n, const int32_t* entries, size_t offset,
                  size_t per_entry);

// How many of n consecutive values from `first` on T can hold.
template <typename T>
constexpr size_t Representable(T first, size_t n) {
  const uint64_t room = static_cast<uint64_t>(sizeof(T) == 8 ? INT64_MAX : INT32_MAX) -
                        static_cast<uint64_t>(int64_t{first});
  return n == 0 || n - 1 <= room ? n : static_cast<size_t>(room) + 1;
}

template <typename T>
inline size_t Run(const T* slots, size_t n, T first) {
  n = Representable(first, n);
  if (n > kInlineElements) return LongRun(slots, n, first);
  size_t i = 0;
  while (i < n && slots[i] == static_cast<T>(first + static_cast<T>(i))) ++i;
  return i;
}

template <typename A>
inline size_t Equal(const A* a, const int32_t* b, size_t n) {
  if (n > kInlineElements) return LongEqual(a, b, n);
  size_t i = 0;
  while (i < n && a[i] == b[i]) ++i;
  return i;
}

template <typename T>
inline size_t Value(const T* a, size_t n, T value) {
  if (n > kInlineElements) return LongValue(a, n, value);
  size_t i = 0;
  while (i < n && a[i] == value) ++i;
  return i;
}

}  // namespace detail

// Longest prefix with slots[i] == first + i.
inline size_t MatchRun(const int64_t* slots, size_t n, int64_t first) {
  return detail::Run(slots, n, first);
}
inline size_t MatchRun(const int32_t* slots, size_t n, int64_t first) {
  if (first < INT32_MIN || first > INT32_MAX) return 0;
  return detail::Run(slots, n, static_cast<int32_t>(first));
}

// Longest prefix with a[i] == b[i].
inline size_t MatchEqual(const int32_t* a, const int32_t* b, size_t n) {
  return detail::Equal(a, b, n);
}
inline size_t MatchEqual(const int64_t* a, const int32_t* b, size_t n) {
  return detail::Equal(a, b, n);
}

// Longest prefix with a[i] == value.
inline size_t MatchValue(const int64_t* a, size_t n, int64_t value) {
  return detail::Value(a, n, value);
}
inline size_t MatchValue(const int32_t* a, size_t n, int64_t value) {
  if (value < INT32_MIN || value > INT32_MAX) return 0;
  return detail::Value(a, n, static_cast<int32_t>(value));
}

// Longest prefix with slots[i] == entries[(offset + i) / per_entry] * per_entry + (offset + i) %
// per_entry: a row's tokens against its table, one call for all their blocks. offset < per_entry <=
// INT32_MAX; `entries` starts at the column of the first token and covers the last one.
inline size_t MatchBlocks(const int64_t* slots, size_t n, const int32_t* entries, size_t offset,
                          size_t per_entry) {
  if (n == 1)
    return slots[0] ==
           int64_t{entries[0]} * static_cast<int64_t>(per_entry) + static_cast<int64_t>(offset);
  return detail::LongBlocks(slots, n, entries, offset, per_entry);
}
size_t MatchBlocks(const int32_t* slots, size_t n, const int32_t* entries, size_t offset,
                   size_t per_entry);

}  // namespace kvguard::geometry

#endif  // KVGUARD_GEOMETRY_EQUAL_H_
