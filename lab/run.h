// SPDX-License-Identifier: Apache-2.0
// A run of the lab, from its options to what came of it.
#ifndef KVGUARD_LAB_RUN_H_
#define KVGUARD_LAB_RUN_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lab/engine.h"
#include "lab/scenario.h"

namespace kvguard::lab {

struct RunOptions {
  Setup setup;
  ModelKind model = ModelKind::kTags;
  uint64_t seed = 1;
  uint64_t steps = 10000;
  GuardMode guard = GuardMode::kRaise;
  FaultKind fault = FaultKind::kNone;
  uint64_t fault_at = 0;
  uint64_t steps_after_fault = UINT64_MAX;  // then the run ends
  std::string record;
  // Called now and then with the number of steps done.
  std::function<void(uint64_t)> progress;
};

struct RunResult {
  std::string not_armed;  // why there was no guard
  std::string error;      // the first record that the guard refused, or a lost recording
  uint64_t steps = 0;
  uint64_t tokens = 0;   // computed
  uint64_t history = 0;  // a hash of all outputs
  double seconds = 0;
  double guard_seconds = 0;
  bool stopped = false;   // by the guard
  uint64_t requests = 0;  // ended
  // Requests whose tokens are not those of a computation without a cache.
  uint64_t wrong_requests = 0;
  StateCounts states;
  uint64_t fault_struck = 0;  // step
  bool alarm_before = false;  // there was a proof before the fault struck
  WrongCounts wrong_reads;
  WrongCounts wrong_writes;
  WrongCounts wrong_tokens;
  uint64_t first_harm = 0;  // step of the first wrong read or token
  std::vector<Wrong> wrongs;
  bool guarded = false;
  kvguard_verdict verdict{};
  uint64_t first_proof = 0;       // step
  uint32_t first_proof_code = 0;  // of the first of its findings
  std::vector<GuardFinding> findings;
  std::vector<kvguard_gap> gaps;
};

RunResult Run(const RunOptions& options);

}  // namespace kvguard::lab

#endif  // KVGUARD_LAB_RUN_H_
