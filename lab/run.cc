// SPDX-License-Identifier: Apache-2.0
#include "lab/run.h"

#include <algorithm>
#include <chrono>
#include <span>

#include "lab/tags.h"

namespace kvguard::lab {
namespace {

constexpr size_t kFindingsKept = 32;
constexpr uint64_t kStepsBetweenReports = 4096;

// Every ended request's output, computed again without a cache.
uint64_t CountWrong(const Engine& engine) {
  uint64_t wrong = 0;
  for (const RequestName name : engine.ended()) {
    const Request& request = engine.scheduler().Of(name);
    const std::span<const int32_t> tokens = request.tokens;
    const std::vector<int32_t> right =
        TagsModel::Continue(engine.config(), request.domain, tokens.first(Ix(request.prompt_len)),
                            request.num_output());
    if (!std::equal(right.begin(), right.end(), tokens.begin() + request.prompt_len)) ++wrong;
  }
  return wrong;
}

}  // namespace

RunResult Run(const RunOptions& options) {
  EngineOptions engine_options;
  engine_options.config = options.setup.engine;
  engine_options.config.seed = options.seed;
  engine_options.guard = options.guard;
  engine_options.record = options.record;
  engine_options.fault = options.fault;
  engine_options.fault_at = options.fault_at;
  Engine engine(engine_options);
  Workload workload(options.setup.workload, engine.config(), options.seed);

  RunResult result;
  result.not_armed = engine.not_armed();
  const auto start = std::chrono::steady_clock::now();
  uint64_t last = options.steps;
  while (result.steps < last) {
    workload.Before(&engine);
    const bool goes_on = engine.Step();
    ++result.steps;
    result.requests += engine.ended().size();
    result.wrong_requests += CountWrong(engine);
    workload.After(engine);
    if (!goes_on) {
      result.stopped = true;
      break;
    }
    if (engine.faults().struck() == 0 && engine.guard().on()) {
      result.alarm_before = engine.guard().verdict().proofs > 0;
    }
    if (engine.faults().struck() != 0 && options.steps_after_fault != UINT64_MAX) {
      last = std::min(last, engine.faults().struck() + options.steps_after_fault);
    }
    if (options.progress && result.steps % kStepsBetweenReports == 0) {
      options.progress(result.steps);
    }
  }
  if (!result.stopped) result.stopped = !engine.Finish();
  result.wrong_requests += CountWrong(engine);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  result.tokens = engine.num_tokens();
  result.states = engine.states();
  result.fault_struck = engine.faults().struck();
  const Truth& truth = engine.truth();
  result.wrong_reads = truth.reads();
  result.wrong_writes = truth.writes();
  result.wrong_tokens = truth.tokens();
  result.first_harm = truth.first_harm();
  result.wrongs = truth.wrongs();
  GuardHook& guard = engine.guard();
  result.guarded = guard.on();
  if (guard.on()) {
    result.error = guard.Close();
    if (result.error.empty()) result.error = guard.error();
    result.guard_seconds = static_cast<double>(guard.nanoseconds()) * 1e-9;
    result.verdict = guard.verdict();
    result.first_proof = guard.first_proof_step();
    result.findings = guard.Findings(kFindingsKept);
    for (const GuardFinding& finding : result.findings) {
      if (finding.finding.grade != KVGUARD_GRADE_PROOF) continue;
      result.first_proof_code = finding.finding.code;
      break;
    }
    result.gaps = guard.Gaps();
  }
  return result;
}

}  // namespace kvguard::lab
