// SPDX-License-Identifier: Apache-2.0
// The one source of chance of a program: equal seeds give equal programs on every machine.
#ifndef KVGUARD_TESTS_GENERATE_RANDOM_H_
#define KVGUARD_TESTS_GENERATE_RANDOM_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace kvguard::generate {

inline uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t z = a + 0x9e3779b97f4a7c15u * (b + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(Mix(seed, 0x6b76)) {}

  uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15u;
    return Mix(state_, 0);
  }
  uint64_t Below(uint64_t bound) { return Next() % bound; }
  // Both ends included.
  int64_t Range(int64_t first, int64_t last) {
    return first + static_cast<int64_t>(Below(static_cast<uint64_t>(last - first + 1)));
  }
  bool OneIn(uint64_t n) { return Below(n) == 0; }
  template <typename T>
  const T& Of(const std::vector<T>& values) {
    return values[static_cast<size_t>(Below(values.size()))];
  }
  template <typename T>
  void Shuffle(std::vector<T>* values) {
    for (size_t i = values->size(); i > 1; --i)
      std::swap((*values)[i - 1], (*values)[static_cast<size_t>(Below(i))]);
  }

 private:
  uint64_t state_;
};

}  // namespace kvguard::generate

#endif  // KVGUARD_TESTS_GENERATE_RANDOM_H_
