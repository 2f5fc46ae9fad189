// SPDX-License-Identifier: Apache-2.0
// An engine: scheduler and runner in a loop, a guard beside them or none.
//
// Synchronous: a step is scheduled, planned, looked at, run, and its output is taken before the
// next one is scheduled; the guard stands before the forward. Asynchronous: a step is launched
// before the output of the one before is known; the guard judges what the device froze, before the
// output is told.
#ifndef KVGUARD_LAB_ENGINE_H_
#define KVGUARD_LAB_ENGINE_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "lab/config.h"
#include "lab/device.h"
#include "lab/faults.h"
#include "lab/guard_hook.h"
#include "lab/runner.h"
#include "lab/scheduler.h"
#include "lab/states.h"
#include "lab/truth.h"

namespace kvguard::lab {

struct EngineOptions {
  EngineConfig config;
  GuardMode guard = GuardMode::kOff;
  std::string record;  // a file; empty: none
  FaultKind fault = FaultKind::kNone;
  uint64_t fault_at = 0;  // the first step in which it may strike
};

class Engine {
 public:
  explicit Engine(const EngineOptions& options);

  // Empty, or why there is no guard although one was asked for.
  const std::string& not_armed() const { return not_armed_; }

  RequestName Submit(const Submission& submission);
  void Abort(RequestName name);

  // One step. False where the guard forbids to go on.
  bool Step();
  // Takes the output of what is in flight.
  bool Finish();
  // The requests that the last Step or Finish ended. Their tokens can be read until the next
  // Submit.
  const std::vector<RequestName>& ended() const { return ended_; }

  const EngineConfig& config() const { return config_; }
  const Scheduler& scheduler() const { return scheduler_; }
  const Truth& truth() const { return truth_; }
  const StateCounts& states() const { return states_; }
  const FaultSwitch& faults() const { return faults_; }
  GuardHook& guard() { return guard_; }
  uint64_t num_tokens() const { return num_tokens_; }
  // A hash of every output so far: what the engine did, in one number.
  uint64_t history() const { return history_; }

 private:
  bool StepNow();
  bool StepAhead();
  bool Take(InFlight* step);
  void DummyRun();
  void WarmUp();
  void Release(const StepOutput& output);

  EngineConfig config_;
  FaultSwitch faults_;
  StateCounts states_;
  Truth truth_;
  Device device_;
  Scheduler scheduler_;
  Runner runner_;
  GuardHook guard_;
  std::string not_armed_;
  Random random_;
  std::array<SchedulerOutput, 4> outputs_;  // of the latest steps
  InFlight* flying_ = nullptr;
  InFlight* taken_ = nullptr;  // whose outcome the guard has not been told
  std::vector<RequestName> ended_;
  uint64_t num_tokens_ = 0;
  uint64_t history_ = 0;
};

}  // namespace kvguard::lab

#endif  // KVGUARD_LAB_ENGINE_H_
