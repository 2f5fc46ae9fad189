// SPDX-License-Identifier: Apache-2.0
#include "lab/engine.h"

#include <algorithm>

namespace kvguard::lab {

Engine::Engine(const EngineOptions& options)
    : config_(options.config),
      faults_(options.fault, options.fault_at),
      truth_(config_),
      device_(config_.seed),
      scheduler_(config_, &faults_, &states_),
      runner_(config_, &device_, &truth_, &faults_, &states_),
      random_(Mix(config_.seed, 0x656e67)) {
  WarmUp();
  if (options.guard != GuardMode::kOff) {
    not_armed_ = guard_.Arm(config_, options.guard, options.record);
  }
}

RequestName Engine::Submit(const Submission& submission) {
  const RequestName name = scheduler_.Submit(submission);
  truth_.Start(name, submission.domain, submission.prompt);
  return name;
}

void Engine::Abort(RequestName name) {
  if (scheduler_.Abort(name)) truth_.End(name);
}

// Two requests with blocks of the runner's own choice, run and ended before anybody listens. Their
// KV and their rows' contents stay behind.
void Engine::WarmUp() {
  SchedulerOutput& out = outputs_[0];
  const int32_t num_tokens = std::min(5, config_.max_batched_tokens / 2);
  const auto num_requests = static_cast<uint32_t>(std::min(2, config_.max_requests));
  for (const bool ends : {false, true}) {
    out.Clear();
    for (uint32_t i = 0; i < num_requests; ++i) {
      const RequestName name{i, UINT64_MAX - i};
      if (ends) {
        out.finished.push_back(name);
        continue;
      }
      NewRequest& added = out.added.emplace_back();
      added.name = name;
      added.tokens.begin = static_cast<uint32_t>(out.tokens.size());
      out.tokens.resize(out.tokens.size() + Ix(num_tokens), 1);
      added.tokens.end = static_cast<uint32_t>(out.tokens.size());
      ScheduledRequest& row = out.scheduled.emplace_back();
      row.name = name;
      row.num_tokens = num_tokens;
      row.samples = true;
      for (size_t g = 0; g < config_.groups.size(); ++g) {
        added.blocks[g].begin = static_cast<uint32_t>(out.blocks.size());
        for (int32_t j = 0; j < CeilDiv(num_tokens, config_.groups[g].block_size); ++j) {
          out.blocks.push_back(1 +
                               static_cast<int32_t>(out.blocks.size()) % (config_.num_blocks - 1));
        }
        added.blocks[g].end = static_cast<uint32_t>(out.blocks.size());
        row.bound[g] = added.blocks[g];
      }
      truth_.Start(name, {}, out.Tokens(added.tokens));
    }
    InFlight* step = runner_.Plan(out, false);
    runner_.Forward(step);
    runner_.Download(step);
    runner_.Await(step);
  }
  for (uint32_t i = 0; i < num_requests; ++i) truth_.End({i, UINT64_MAX - i});
  states_.Add(State::kWarmUp, num_requests);
}

void Engine::DummyRun() {
  runner_.Dummy();
  if (!guard_.on()) return;
  device_.Synchronize(runner_.LastWork());
  guard_.DummyPlan(runner_.View(), config_.max_batched_tokens);
}

bool Engine::Step() {
  ended_.clear();
  faults_.StartStep(scheduler_.step() + 1);
  if (config_.dummy_every > 0 && random_.OneIn(static_cast<uint32_t>(config_.dummy_every))) {
    DummyRun();
  }
  return config_.async ? StepAhead() : StepNow();
}

bool Engine::StepNow() {
  SchedulerOutput& out = outputs_[(scheduler_.step() + 1) % outputs_.size()];
  scheduler_.Schedule(&out);
  num_tokens_ += Ix(out.num_tokens);
  if (guard_.on()) {
    guard_.Begin(out);
    if (guard_.must_raise()) {
      guard_.End(out.step, false);
      return false;
    }
  }
  InFlight* step = runner_.Plan(out, false);
  if (guard_.on()) {
    device_.Synchronize(step->planned);
    if (step->zeroed) guard_.Zeroed(out.step, step->zero);
    if (step->copied) guard_.Copied(out.step, step->copies);
    if (!step->rows.empty()) guard_.Plan(*step, runner_.View());
    if (guard_.must_raise()) {
      runner_.Abandon(step);
      guard_.End(out.step, false);
      return false;
    }
  }
  runner_.Forward(step);
  const bool drafts = config_.has_draft_model() && !step->rows.empty();
  // What was rejected is known before the draft model runs.
  if (guard_.on() && drafts) guard_.Outcome(runner_.Peek(step));
  for (int32_t k = 0; drafts && k < config_.num_drafts; ++k) {
    runner_.PlanDraft(step, k);
    if (guard_.on()) {
      device_.Synchronize(runner_.LastWork());
      guard_.DraftPlan(*step, k, k == 0 ? runner_.View() : runner_.DraftView());
      if (guard_.must_raise()) {
        guard_.End(out.step, true);
        return false;
      }
    }
    runner_.ForwardDraft(step);
  }
  runner_.Download(step);
  const StepOutput& output = runner_.Await(step);
  if (guard_.on()) {
    if (!step->zero.empty() && !step->zeroed) guard_.Zeroed(out.step, step->zero);
    if (!step->copies.empty() && !step->copied) guard_.Copied(out.step, step->copies);
    if (!output.rows.empty() && !drafts) guard_.Outcome(output);
    guard_.End(out.step, !output.rows.empty());
    if (guard_.must_raise()) return false;
  }
  Release(output);
  return true;
}

void Engine::Release(const StepOutput& output) {
  for (const StepOutput::Row& row : output.rows) {
    history_ = Mix(history_, row.name.serial);
    for (int32_t i = 0; i < row.num_sampled; ++i) {
      history_ = Mix(history_, static_cast<uint64_t>(row.tokens[Ix(i)]));
    }
  }
  scheduler_.Update(output, &ended_);
  for (const RequestName name : ended_) truth_.End(name);
}

bool Engine::StepAhead() {
  SchedulerOutput& out = outputs_[(scheduler_.step() + 1) % outputs_.size()];
  scheduler_.Schedule(&out);
  num_tokens_ += Ix(out.num_tokens);
  InFlight* step = runner_.Plan(out, guard_.on());
  runner_.Forward(step);
  runner_.Download(step);
  InFlight* before = flying_;
  flying_ = step;
  return before == nullptr || Take(before);
}

bool Engine::Take(InFlight* step) {
  const StepOutput& output = runner_.Await(step);
  if (guard_.on()) {
    device_.Synchronize(step->planned);
    guard_.Begin(outputs_[step->step % outputs_.size()]);
    if (step->zeroed) guard_.Zeroed(step->step, step->zero);
    if (step->copied) guard_.Copied(step->step, step->copies);
    if (!output.rows.empty()) guard_.Plan(*step, runner_.View(*step));
    if (!step->zero.empty() && !step->zeroed) guard_.Zeroed(step->step, step->zero);
    if (!step->copies.empty() && !step->copied) guard_.Copied(step->step, step->copies);
    guard_.End(step->step, !output.rows.empty());
    // A step's outcome was not known when the next one was scheduled.
    if (taken_ != nullptr && !taken_->output.rows.empty()) guard_.Outcome(taken_->output);
    taken_ = step;
    if (guard_.must_raise()) return false;
  }
  Release(output);
  return true;
}

bool Engine::Finish() {
  ended_.clear();
  InFlight* before = flying_;
  flying_ = nullptr;
  const bool goes_on = before == nullptr || Take(before);
  if (guard_.on() && taken_ != nullptr && !taken_->output.rows.empty()) {
    guard_.Outcome(taken_->output);
    taken_ = nullptr;
  }
  device_.Drain();
  return goes_on;
}

}  // namespace kvguard::lab
