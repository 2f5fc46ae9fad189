// SPDX-License-Identifier: Apache-2.0
#include "lab/faults.h"

#include <array>
#include <cstddef>

namespace kvguard::lab {
namespace {

constexpr auto kFaults = std::to_array<FaultInfo>({
#define LAB_FAULT(kind, name, where, codes, bugs, sentence) \
  {FaultKind::kind, name, FaultPlace::where, codes, bugs, sentence},
#include "lab/faults.inc"
#undef LAB_FAULT
});

}  // namespace

std::span<const FaultInfo> AllFaults() { return kFaults; }

const FaultInfo* FindFault(std::string_view name) {
  for (const FaultInfo& info : kFaults) {
    if (info.name == name) return &info;
  }
  return nullptr;
}

const FaultInfo& InfoOf(FaultKind kind) { return kFaults[static_cast<size_t>(kind) - 1]; }

std::string_view PlaceName(FaultPlace place) {
  switch (place) {
    case FaultPlace::kScheduler:
      return "scheduler output";
    case FaultPlace::kRunner:
      return "runner state";
    case FaultPlace::kSlots:
      return "slot computation";
    case FaultPlace::kBuffer:
      return "device buffer";
    case FaultPlace::kCopy:
      return "copy";
    case FaultPlace::kZero:
      return "zeroing";
    case FaultPlace::kKernel:
      return "kernel";
  }
  return "";
}

}  // namespace kvguard::lab
