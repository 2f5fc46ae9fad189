// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <numeric>
#include <vector>

#include <benchmark/benchmark.h>

#include "geometry/equal.h"

namespace kvguard::geometry {
namespace {

template <typename T>
void BM_MatchRun(benchmark::State& state) {
  const size_t n = static_cast<size_t>(state.range(0));
  std::vector<T> slots(n);
  std::iota(slots.begin(), slots.end(), T{4096});
  for (auto _ : state) {
    benchmark::DoNotOptimize(slots.data());
    benchmark::DoNotOptimize(MatchRun(slots.data(), n, 4096));
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(n * sizeof(T)));
}

template <typename T>
void BM_MatchEqual(benchmark::State& state) {
  const size_t n = static_cast<size_t>(state.range(0));
  std::vector<T> a(n);
  std::iota(a.begin(), a.end(), T{3});
  const std::vector<int32_t> b(a.begin(), a.end());
  for (auto _ : state) {
    benchmark::DoNotOptimize(a.data());
    benchmark::DoNotOptimize(MatchEqual(a.data(), b.data(), n));
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(n * (sizeof(T) + 4)));
}

template <typename T>
void BM_MatchValue(benchmark::State& state) {
  const size_t n = static_cast<size_t>(state.range(0));
  const std::vector<T> a(n, T{-1});
  for (auto _ : state) {
    benchmark::DoNotOptimize(a.data());
    benchmark::DoNotOptimize(MatchValue(a.data(), n, -1));
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(n * sizeof(T)));
}

// Blocks of 16 and of 128 tokens.
void BM_MatchBlocks(benchmark::State& state) {
  const size_t n = static_cast<size_t>(state.range(0));
  const size_t per_entry = static_cast<size_t>(state.range(1));
  std::vector<int32_t> entries(n / per_entry + 1);
  std::vector<int64_t> slots(n);
  for (size_t i = 0; i < entries.size(); ++i) entries[i] = static_cast<int32_t>(i * 7919 % 4096);
  for (size_t i = 0; i < n; ++i) {
    slots[i] = int64_t{entries[i / per_entry]} * static_cast<int64_t>(per_entry) +
               static_cast<int64_t>(i % per_entry);
  }
  for (auto _ : state) {
    benchmark::DoNotOptimize(slots.data());
    benchmark::DoNotOptimize(MatchBlocks(slots.data(), n, entries.data(), 0, per_entry));
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(n * sizeof(int64_t)));
}

// 1: a decode row. 16 and 128: a block. 256: a table row at 4k tokens. 2048: a prefill. 1 << 20:
// beyond the caches.
#define KVGUARD_LENGTHS Arg(1)->Arg(8)->Arg(16)->Arg(128)->Arg(256)->Arg(2048)->Arg(1 << 20)
BENCHMARK(BM_MatchRun<int64_t>)->KVGUARD_LENGTHS;
BENCHMARK(BM_MatchRun<int32_t>)->KVGUARD_LENGTHS;
BENCHMARK(BM_MatchEqual<int32_t>)->KVGUARD_LENGTHS;
BENCHMARK(BM_MatchEqual<int64_t>)->KVGUARD_LENGTHS;
BENCHMARK(BM_MatchValue<int64_t>)->KVGUARD_LENGTHS;
BENCHMARK(BM_MatchValue<int32_t>)->KVGUARD_LENGTHS;
BENCHMARK(BM_MatchBlocks)->Args({1, 16})->Args({1024, 16})->Args({1024, 128})->Args({2048, 128});

}  // namespace
}  // namespace kvguard::geometry
