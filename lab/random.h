// SPDX-License-Identifier: Apache-2.0
// Hashes and the one source of randomness: equal seeds give equal runs, on every machine.
#ifndef KVGUARD_LAB_RANDOM_H_
#define KVGUARD_LAB_RANDOM_H_

#include <cstddef>
#include <cstdint>

namespace kvguard::lab {

// Sizes and positions are int32_t in the engine, as in its tables; containers count otherwise.
template <typename T>
constexpr size_t Ix(T value) {
  return static_cast<size_t>(value);
}

template <typename T>
constexpr T CeilDiv(T a, T b) {
  return (a + b - 1) / b;
}

constexpr uint64_t Mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

constexpr uint64_t Mix(uint64_t a, uint64_t b) { return Mix(a * 0x9e3779b97f4a7c15u + Mix(b)); }

class Random {
 public:
  explicit Random(uint64_t seed) : state_(Mix(seed, 0x6c6162)) {}

  uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15u;
    return Mix(state_);
  }

  // In [0, n); n > 0.
  uint32_t Below(uint32_t n) {
    return static_cast<uint32_t>(((Next() >> 32) * static_cast<uint64_t>(n)) >> 32);
  }

  // In [low, high].
  int32_t Between(int32_t low, int32_t high) {
    return low + static_cast<int32_t>(Below(static_cast<uint32_t>(high - low + 1)));
  }

  // True once in `n` times.
  bool OneIn(uint32_t n) { return Below(n) == 0; }

 private:
  uint64_t state_;
};

}  // namespace kvguard::lab

#endif  // KVGUARD_LAB_RANDOM_H_
