// SPDX-License-Identifier: Apache-2.0
#include "geometry/equal.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define KVGUARD_HAVE_AVX2 1
#include <immintrin.h>
#else
#define KVGUARD_HAVE_AVX2 0
#endif

namespace kvguard::geometry {
namespace {

// ---- portable
// --------------------------------------------------------------------------------------------------

// Differences are gathered without a branch over this many elements, which is what lets a compiler
// vectorise.
constexpr size_t kChunk = 32;

// difference(i) is zero iff element i is right. All arithmetic is unsigned: it may wrap, and
// equality survives that.
template <typename Difference>
size_t Prefix(size_t n, Difference difference) {
  using Word = decltype(difference(size_t{0}));
  size_t i = 0;
  for (; i + kChunk <= n; i += kChunk) {
    Word any = 0;
    for (size_t j = 0; j < kChunk; ++j) any = static_cast<Word>(any | difference(i + j));
    if (any != 0) break;
  }
  while (i < n && difference(i) == 0) ++i;
  return i;
}

size_t PortableRun64(const int64_t* slots, size_t n, int64_t first) {
  const uint64_t base = static_cast<uint64_t>(first);
  return Prefix(n, [=](size_t i) { return static_cast<uint64_t>(slots[i]) ^ (base + i); });
}

size_t PortableRun32(const int32_t* slots, size_t n, int32_t first) {
  const uint32_t base = static_cast<uint32_t>(first);
  return Prefix(n, [=](size_t i) {
    return static_cast<uint32_t>(slots[i]) ^ (base + static_cast<uint32_t>(i));
  });
}

size_t PortableEqual32(const int32_t* a, const int32_t* b, size_t n) {
  return Prefix(n, [=](size_t i) { return static_cast<uint32_t>(a[i] ^ b[i]); });
}

size_t PortableEqual64(const int64_t* a, const int32_t* b, size_t n) {
  return Prefix(n, [=](size_t i) { return static_cast<uint64_t>(a[i] ^ int64_t{b[i]}); });
}

size_t PortableValue64(const int64_t* a, size_t n, int64_t value) {
  return Prefix(n, [=](size_t i) { return static_cast<uint64_t>(a[i] ^ value); });
}

size_t PortableValue32(const int32_t* a, size_t n, int32_t value) {
  return Prefix(n, [=](size_t i) { return static_cast<uint32_t>(a[i] ^ value); });
}

// The blocks of a row, each of them a run. run(slots, count, first) is the prefix of one.
template <typename T, typename Run>
size_t Blocks(const T* slots, size_t n, const int32_t* entries, size_t offset, size_t per_entry,
              Run run) {
  size_t i = 0;
  while (i < n) {
    const size_t count = n - i < per_entry - offset ? n - i : per_entry - offset;
    const int64_t first =
        int64_t{*entries++} * static_cast<int64_t>(per_entry) + static_cast<int64_t>(offset);
    const size_t good = run(slots + i, count, first);
    i += good;
    if (good < count) break;
    offset = 0;
  }
  return i;
}

size_t PortableBlocks64(const int64_t* slots, size_t n, const int32_t* entries, size_t offset,
                        size_t per_entry) {
  return Blocks(slots, n, entries, offset, per_entry, PortableRun64);
}

}  // namespace

const EqualKernels kPortableEqualKernels = {
    "portable",      PortableRun64,   PortableRun32,   PortableEqual32,
    PortableEqual64, PortableValue64, PortableValue32, PortableBlocks64,
};

// ---- AVX2
// ------------------------------------------------------------------------------------------------------
//
// All six are one loop: four vectors at a time, then one at a time, then the last one once more,
// moved back so that it ends at n. What that one sees twice has been found equal, so its first
// difference is the first of all. A source says what is compared: Equal(i, k) is all ones in the
// right lanes of the k-th vector after element i; Advance and Seek move what it expects along with
// i. Sources are structs because a lambda does not inherit the target of the function around it.

#if KVGUARD_HAVE_AVX2

#define KVGUARD_AVX2 __attribute__((target("avx2"), always_inline)) inline

namespace {

KVGUARD_AVX2 __m256i Load256(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}

KVGUARD_AVX2 __m128i Load128(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}

struct Run64 {
  static constexpr size_t kLanes = 4;
  const int64_t* slots;
  __m256i base;
  __m256i want = base;
  KVGUARD_AVX2 void Seek(size_t i) {
    want = _mm256_add_epi64(base, _mm256_set1_epi64x(static_cast<int64_t>(i)));
  }
  KVGUARD_AVX2 void Advance(int vectors) {
    want = _mm256_add_epi64(want, _mm256_set1_epi64x(4LL * vectors));
  }
  KVGUARD_AVX2 __m256i Equal(size_t i, size_t k) const {
    return _mm256_cmpeq_epi64(
        Load256(slots + i + 4 * k),
        _mm256_add_epi64(want, _mm256_set1_epi64x(static_cast<int64_t>(4 * k))));
  }
};

struct Run32 {
  static constexpr size_t kLanes = 8;
  const int32_t* slots;
  __m256i base;
  __m256i want = base;
  KVGUARD_AVX2 void Seek(size_t i) {
    want = _mm256_add_epi32(base, _mm256_set1_epi32(static_cast<int32_t>(i)));
  }
  KVGUARD_AVX2 void Advance(int vectors) {
    want = _mm256_add_epi32(want, _mm256_set1_epi32(8 * vectors));
  }
  KVGUARD_AVX2 __m256i Equal(size_t i, size_t k) const {
    return _mm256_cmpeq_epi32(
        Load256(slots + i + 8 * k),
        _mm256_add_epi32(want, _mm256_set1_epi32(static_cast<int32_t>(8 * k))));
  }
};

// What is expected does not depend on the place.
struct Still {
  KVGUARD_AVX2 void Seek(size_t) {}
  KVGUARD_AVX2 void Advance(int) {}
};

struct Equal32 : Still {
  static constexpr size_t kLanes = 8;
  const int32_t* a;
  const int32_t* b;
  KVGUARD_AVX2 Equal32(const int32_t* x, const int32_t* y) : a(x), b(y) {}
  KVGUARD_AVX2 __m256i Equal(size_t i, size_t k) const {
    return _mm256_cmpeq_epi32(Load256(a + i + 8 * k), Load256(b + i + 8 * k));
  }
};

struct Equal64 : Still {
  static constexpr size_t kLanes = 4;
  const int64_t* a;
  const int32_t* b;
  KVGUARD_AVX2 Equal64(const int64_t* x, const int32_t* y) : a(x), b(y) {}
  KVGUARD_AVX2 __m256i Equal(size_t i, size_t k) const {
    return _mm256_cmpeq_epi64(Load256(a + i + 4 * k),
                              _mm256_cvtepi32_epi64(Load128(b + i + 4 * k)));
  }
};

struct Value64 : Still {
  static constexpr size_t kLanes = 4;
  const int64_t* a;
  __m256i value;
  KVGUARD_AVX2 Value64(const int64_t* x, __m256i v) : a(x), value(v) {}
  KVGUARD_AVX2 __m256i Equal(size_t i, size_t k) const {
    return _mm256_cmpeq_epi64(Load256(a + i + 4 * k), value);
  }
};

struct Value32 : Still {
  static constexpr size_t kLanes = 8;
  const int32_t* a;
  __m256i value;
  KVGUARD_AVX2 Value32(const int32_t* x, __m256i v) : a(x), value(v) {}
  KVGUARD_AVX2 __m256i Equal(size_t i, size_t k) const {
    return _mm256_cmpeq_epi32(Load256(a + i + 8 * k), value);
  }
};

// Index of the first lane that is not all ones; kLanes if there is none. `lanes` of 32 / kLanes
// bytes each.
template <size_t kLanes>
KVGUARD_AVX2 size_t FirstFalse(__m256i equal) {
  const uint64_t wrong = ~static_cast<uint64_t>(static_cast<uint32_t>(_mm256_movemask_epi8(equal)));
  return static_cast<size_t>(__builtin_ctzll(wrong)) / (32 / kLanes);
}

// n >= kLanes.
template <typename Source>
KVGUARD_AVX2 size_t Avx2Prefix(Source source, size_t n) {
  constexpr size_t kLanes = Source::kLanes;
  size_t i = 0;
  for (; n - i >= 4 * kLanes; i += 4 * kLanes) {
    const __m256i low = _mm256_and_si256(source.Equal(i, 0), source.Equal(i, 1));
    const __m256i high = _mm256_and_si256(source.Equal(i, 2), source.Equal(i, 3));
    if (_mm256_movemask_epi8(_mm256_and_si256(low, high)) != -1) break;
    source.Advance(4);
  }
  for (; n - i >= kLanes; i += kLanes) {
    const size_t good = FirstFalse<kLanes>(source.Equal(i, 0));
    if (good < kLanes) return i + good;
    source.Advance(1);
  }
  if (i == n) return n;
  source.Seek(n - kLanes);
  return n - kLanes + FirstFalse<kLanes>(source.Equal(n - kLanes, 0));
}

#define KVGUARD_AVX2_KERNEL __attribute__((target("avx2")))

KVGUARD_AVX2_KERNEL size_t Avx2Run64(const int64_t* slots, size_t n, int64_t first) {
  if (n < Run64::kLanes) return PortableRun64(slots, n, first);
  const __m256i base = _mm256_add_epi64(_mm256_set1_epi64x(first), _mm256_setr_epi64x(0, 1, 2, 3));
  return Avx2Prefix(Run64{slots, base}, n);
}

KVGUARD_AVX2_KERNEL size_t Avx2Run32(const int32_t* slots, size_t n, int32_t first) {
  if (n < Run32::kLanes) return PortableRun32(slots, n, first);
  const __m256i base =
      _mm256_add_epi32(_mm256_set1_epi32(first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  return Avx2Prefix(Run32{slots, base}, n);
}

KVGUARD_AVX2_KERNEL size_t Avx2Equal32(const int32_t* a, const int32_t* b, size_t n) {
  if (n < Equal32::kLanes) return PortableEqual32(a, b, n);
  return Avx2Prefix(Equal32(a, b), n);
}

KVGUARD_AVX2_KERNEL size_t Avx2Equal64(const int64_t* a, const int32_t* b, size_t n) {
  if (n < Equal64::kLanes) return PortableEqual64(a, b, n);
  return Avx2Prefix(Equal64(a, b), n);
}

KVGUARD_AVX2_KERNEL size_t Avx2Value64(const int64_t* a, size_t n, int64_t value) {
  if (n < Value64::kLanes) return PortableValue64(a, n, value);
  return Avx2Prefix(Value64(a, _mm256_set1_epi64x(value)), n);
}

KVGUARD_AVX2_KERNEL size_t Avx2Value32(const int32_t* a, size_t n, int32_t value) {
  if (n < Value32::kLanes) return PortableValue32(a, n, value);
  return Avx2Prefix(Value32(a, _mm256_set1_epi32(value)), n);
}

// Whole blocks of a multiple of 16 tokens stay in one loop here: at block size 16 a call for each
// block would cost as much as its comparison. The ragged ends, and other block sizes, are runs.
KVGUARD_AVX2_KERNEL size_t Avx2Blocks64(const int64_t* slots, size_t n, const int32_t* entries,
                                        size_t offset, size_t per_entry) {
  size_t i = 0;
  if (offset != 0) {
    const size_t count = n < per_entry - offset ? n : per_entry - offset;
    i = Avx2Run64(
        slots, count,
        int64_t{*entries++} * static_cast<int64_t>(per_entry) + static_cast<int64_t>(offset));
    if (i < count) return i;
  }
  if (per_entry % 16 == 0) {
    const __m256i iota = _mm256_setr_epi64x(0, 1, 2, 3);
    for (; n - i >= per_entry; i += per_entry) {
      Run64 run{slots + i,
                _mm256_add_epi64(
                    iota, _mm256_set1_epi64x(int64_t{*entries} * static_cast<int64_t>(per_entry)))};
      __m256i all = _mm256_set1_epi64x(-1);
      for (size_t j = 0; j < per_entry; j += 16) {
        const __m256i low = _mm256_and_si256(run.Equal(j, 0), run.Equal(j, 1));
        const __m256i high = _mm256_and_si256(run.Equal(j, 2), run.Equal(j, 3));
        all = _mm256_and_si256(all, _mm256_and_si256(low, high));
        run.Advance(4);
      }
      if (_mm256_movemask_epi8(all) != -1) break;
      ++entries;
    }
  }
  return i + Blocks(slots + i, n - i, entries, 0, per_entry, Avx2Run64);
}

constexpr EqualKernels kAvx2EqualKernels = {
    "avx2", Avx2Run64, Avx2Run32, Avx2Equal32, Avx2Equal64, Avx2Value64, Avx2Value32, Avx2Blocks64,
};

// One load and one test: libgcc has filled the processor's features in before any constructor of
// ours runs.
inline bool HasAvx2() { return __builtin_cpu_supports("avx2") != 0; }

}  // namespace

const EqualKernels* Avx2EqualKernels() { return HasAvx2() ? &kAvx2EqualKernels : nullptr; }

#define KVGUARD_CHOOSE(kernel, ...) \
  return HasAvx2() ? Avx2##kernel(__VA_ARGS__) : Portable##kernel(__VA_ARGS__)

#else

const EqualKernels* Avx2EqualKernels() { return nullptr; }

#define KVGUARD_CHOOSE(kernel, ...) return Portable##kernel(__VA_ARGS__)

#endif  // KVGUARD_HAVE_AVX2

namespace detail {

size_t LongRun(const int64_t* slots, size_t n, int64_t first) {
  KVGUARD_CHOOSE(Run64, slots, n, first);
}
size_t LongRun(const int32_t* slots, size_t n, int32_t first) {
  KVGUARD_CHOOSE(Run32, slots, n, first);
}
size_t LongEqual(const int32_t* a, const int32_t* b, size_t n) { KVGUARD_CHOOSE(Equal32, a, b, n); }
size_t LongEqual(const int64_t* a, const int32_t* b, size_t n) { KVGUARD_CHOOSE(Equal64, a, b, n); }
size_t LongValue(const int64_t* a, size_t n, int64_t value) {
  KVGUARD_CHOOSE(Value64, a, n, value);
}
size_t LongValue(const int32_t* a, size_t n, int32_t value) {
  KVGUARD_CHOOSE(Value32, a, n, value);
}

size_t LongBlocks(const int64_t* slots, size_t n, const int32_t* entries, size_t offset,
                  size_t per_entry) {
  KVGUARD_CHOOSE(Blocks64, slots, n, entries, offset, per_entry);
}

}  // namespace detail

size_t MatchBlocks(const int32_t* slots, size_t n, const int32_t* entries, size_t offset,
                   size_t per_entry) {
  const auto run = [](const int32_t* a, size_t count, int64_t first) {
    return MatchRun(a, count, first);
  };
  return Blocks(slots, n, entries, offset, per_entry, run);
}

}  // namespace kvguard::geometry
