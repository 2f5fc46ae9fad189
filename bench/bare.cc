// SPDX-License-Identifier: Apache-2.0
#include "bench/bare.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstring>

namespace kvguard::bench {

#if defined(__x86_64__)
namespace {

#define KVGUARD_BENCH_AVX2 __attribute__((target("avx2")))

KVGUARD_BENCH_AVX2 __attribute__((always_inline)) inline __m256i Load(const char* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

// Differences gathered over a range of bytes, a multiple of four long. There is no branch on what
// is found: a bench of equal arrays pays nothing for it, and the loop is bound by its loads.
KVGUARD_BENCH_AVX2 __attribute__((always_inline)) inline __m256i Differences(const void* a,
                                                                             const void* b,
                                                                             size_t bytes,
                                                                             __m256i any) {
  const char* x = static_cast<const char*>(a);
  const char* y = static_cast<const char*>(b);
  size_t i = 0;
  __m256i d0 = any;
  __m256i d1 = _mm256_setzero_si256();
  __m256i d2 = _mm256_setzero_si256();
  __m256i d3 = _mm256_setzero_si256();
  for (; i + 128 <= bytes; i += 128) {
    d0 = _mm256_or_si256(d0, _mm256_xor_si256(Load(x + i), Load(y + i)));
    d1 = _mm256_or_si256(d1, _mm256_xor_si256(Load(x + i + 32), Load(y + i + 32)));
    d2 = _mm256_or_si256(d2, _mm256_xor_si256(Load(x + i + 64), Load(y + i + 64)));
    d3 = _mm256_or_si256(d3, _mm256_xor_si256(Load(x + i + 96), Load(y + i + 96)));
  }
  for (; i + 32 <= bytes; i += 32)
    d0 = _mm256_or_si256(d0, _mm256_xor_si256(Load(x + i), Load(y + i)));
  if (i < bytes && bytes >= 32) {  // the last 32 bytes; some of them are looked at twice
    d1 = _mm256_or_si256(d1, _mm256_xor_si256(Load(x + bytes - 32), Load(y + bytes - 32)));
  } else {
    for (; i < bytes; i += 4) {
      int32_t p;
      int32_t q;
      std::memcpy(&p, x + i, 4);
      std::memcpy(&q, y + i, 4);
      d1 = _mm256_or_si256(d1, _mm256_set1_epi32(p ^ q));
    }
  }
  return _mm256_or_si256(_mm256_or_si256(d0, d1), _mm256_or_si256(d2, d3));
}

KVGUARD_BENCH_AVX2 bool Equal(const Metadata& metadata, const Expected& expected) {
  __m256i any = Differences(metadata.slots, expected.slots.data(), metadata.tokens * 8,
                            _mm256_setzero_si256());
  for (uint64_t b = 0; b < metadata.rows; ++b) {
    const uint64_t row = b * metadata.stride;
    any = Differences(metadata.table + row, expected.table.data() + row, metadata.columns[b] * 4,
                      any);
  }
  return _mm256_testz_si256(any, any) != 0;
}

}  // namespace

bool BareAvailable() { return __builtin_cpu_supports("avx2") != 0; }

bool BareEqual(const Metadata& metadata, const Expected& expected) {
  return Equal(metadata, expected);
}

#else

bool BareAvailable() { return false; }

bool BareEqual(const Metadata&, const Expected&) { return false; }

#endif

void CopyExpected(const Metadata& metadata, Expected* expected) {
  expected->slots.resize(std::max<size_t>(expected->slots.size(), metadata.tokens));
  expected->table.resize(std::max<size_t>(expected->table.size(), metadata.rows * metadata.stride));
  std::copy_n(metadata.slots, metadata.tokens, expected->slots.begin());
  std::copy_n(metadata.table, metadata.rows * metadata.stride, expected->table.begin());
}

}  // namespace kvguard::bench
