// SPDX-License-Identifier: Apache-2.0
// How often a run came through each situation worth naming: a healthy run that never met one says
// nothing about it.
#ifndef KVGUARD_LAB_STATES_H_
#define KVGUARD_LAB_STATES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kvguard::lab {

enum class State : uint8_t {
#define LAB_STATE(kind, name) kind,
#include "lab/states.inc"
#undef LAB_STATE
  kCount,
};

inline constexpr size_t kNumStates = static_cast<size_t>(State::kCount);

inline constexpr std::array<std::string_view, kNumStates> kStateNames = {
#define LAB_STATE(kind, name) name,
#include "lab/states.inc"
#undef LAB_STATE
};

struct StateCounts {
  std::array<uint64_t, kNumStates> counts{};

  void Add(State state, uint64_t n = 1) { counts[static_cast<size_t>(state)] += n; }
  uint64_t operator[](State state) const { return counts[static_cast<size_t>(state)]; }
};

}  // namespace kvguard::lab

#endif  // KVGUARD_LAB_STATES_H_
