// SPDX-License-Identifier: Apache-2.0
// Faults that an engine of the lab can be given, one at a time. The engine asks at each place where
// one may strike; the answer is yes once, in the first step from `at` on in which the place is
// reached.
#ifndef KVGUARD_LAB_FAULTS_H_
#define KVGUARD_LAB_FAULTS_H_

#include <cstdint>
#include <span>
#include <string_view>

namespace kvguard::lab {

enum class FaultKind : uint8_t {
  kNone,
#define LAB_FAULT(kind, name, where, codes, bugs, sentence) kind,
#include "lab/faults.inc"
#undef LAB_FAULT
};

enum class FaultPlace : uint8_t {
  kScheduler,
  kRunner,
  kSlots,
  kBuffer,
  kCopy,
  kZero,
  kKernel,
};

struct FaultInfo {
  FaultKind kind;
  std::string_view name;
  FaultPlace place;
  std::string_view codes;  // "0601 0203": what is expected first, any of them; empty: nothing
  std::string_view bugs;   // "B047 B048"
  std::string_view sentence;
};

std::span<const FaultInfo> AllFaults();
const FaultInfo* FindFault(std::string_view name);
const FaultInfo& InfoOf(FaultKind kind);  // not of kNone
std::string_view PlaceName(FaultPlace place);

class FaultSwitch {
 public:
  FaultSwitch() = default;
  FaultSwitch(FaultKind kind, uint64_t at) : kind_(kind), at_(at) {}

  // The step under way. Kernels are in another one than the host where it is ahead of them.
  void StartStep(uint64_t step) { step_ = step; }
  uint64_t step() const { return step_; }

  // For the last condition of a place, behind those that make the fault matter there.
  bool Strikes(FaultKind kind) {
    if (kind != kind_ || struck_ != 0 || step_ < at_) return false;
    struck_ = step_;
    return true;
  }
  // Whether the place should look at all; does not strike.
  bool Waits(FaultKind kind) const { return kind == kind_ && struck_ == 0 && step_ >= at_; }

  FaultKind kind() const { return kind_; }
  uint64_t struck() const { return struck_; }  // the step; 0: not yet

 private:
  FaultKind kind_ = FaultKind::kNone;
  uint64_t at_ = 0;
  uint64_t step_ = 0;
  uint64_t struck_ = 0;
};

// Work of one step, while the host may be in a later one.
class InStep {
 public:
  InStep(FaultSwitch* faults, uint64_t step) : faults_(faults), host_(faults->step()) {
    faults_->StartStep(step);
  }
  ~InStep() { faults_->StartStep(host_); }
  InStep(const InStep&) = delete;
  InStep& operator=(const InStep&) = delete;

 private:
  FaultSwitch* faults_;
  uint64_t host_;
};

}  // namespace kvguard::lab

#endif  // KVGUARD_LAB_FAULTS_H_
