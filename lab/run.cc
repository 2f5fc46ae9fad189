// SPDX-License-Identifier: Apache-2.0
#include "lab/run.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>

#include "lab/tags.h"
#include "lab/transformer.h"

namespace kvguard::lab {
namespace {

constexpr size_t kFindingsKept = 32;
constexpr uint64_t kStepsBetweenReports = 4096;

// Holds every ended request's output against a computation without a cache.
class Verifier {
 public:
  explicit Verifier(const EngineConfig& config) : config_(config) {
    if (config.model == ModelKind::kTransformer) {
      transformer_ = std::make_unique<TransformerModel>(config);
    }
  }

  bool IsRight(const Request& request) {
    const std::span<const int32_t> tokens = request.tokens;
    if (transformer_) {
      return transformer_->FirstWrong(request.domain, tokens, request.prompt_len) < 0;
    }
    const std::vector<int32_t> right = TagsModel::Continue(
        config_, request.domain, tokens.first(Ix(request.prompt_len)), request.num_output());
    return std::equal(right.begin(), right.end(), tokens.begin() + request.prompt_len);
  }

 private:
  const EngineConfig& config_;
  std::unique_ptr<TransformerModel> transformer_;
};

uint64_t CountWrong(const Engine& engine, Verifier* verifier) {
  uint64_t wrong = 0;
  for (const RequestName name : engine.ended()) {
    if (!verifier->IsRight(engine.scheduler().Of(name))) ++wrong;
  }
  return wrong;
}

// A transformer takes what a tag takes some thousand times: shorter requests of fewer words.
Setup ForTransformer(Setup setup) {
  setup.engine.model = ModelKind::kTransformer;
  setup.engine.vocabulary = std::min(setup.engine.vocabulary, 256);
  setup.engine.max_batched_tokens = std::min(setup.engine.max_batched_tokens, 64);
  return setup;
}

}  // namespace

RunResult Run(const RunOptions& options) {
  EngineOptions engine_options;
  const Setup setup =
      options.model == ModelKind::kTransformer ? ForTransformer(options.setup) : options.setup;
  engine_options.config = setup.engine;
  engine_options.config.seed = options.seed;
  engine_options.guard = options.guard;
  engine_options.record = options.record;
  engine_options.fault = options.fault;
  engine_options.fault_at = options.fault_at;
  Engine engine(engine_options);
  Workload workload(setup.workload, engine.config(), options.seed);
  Verifier verifier(engine.config());

  RunResult result;
  result.not_armed = engine.not_armed();
  const auto start = std::chrono::steady_clock::now();
  uint64_t last = options.steps;
  while (result.steps < last) {
    workload.Before(&engine);
    const bool goes_on = engine.Step();
    ++result.steps;
    result.requests += engine.ended().size();
    result.wrong_requests += CountWrong(engine, &verifier);
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
  result.wrong_requests += CountWrong(engine, &verifier);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  result.tokens = engine.num_tokens();
  result.history = engine.history();
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
