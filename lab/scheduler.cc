// SPDX-License-Identifier: Apache-2.0
#include "lab/scheduler.h"

#include <algorithm>
#include <utility>

namespace kvguard::lab {

Scheduler::Scheduler(const EngineConfig& config, FaultSwitch* faults, StateCounts* states)
    : config_(config),
      faults_(faults),
      states_(states),
      kv_(config, faults, states),
      random_(Mix(config.seed, 0x7363)) {
  for (const GroupConfig& group : config.groups) {
    if (group.kind == GroupKind::kState && group.state_mode == StateMode::kAlign &&
        config.prefix_caching) {
      align_ = std::max(align_, group.block_size);
    }
  }
}

RequestName Scheduler::Submit(const Submission& submission) {
  Handle handle = 0;
  if (free_handles_.empty()) {
    handle = static_cast<Handle>(requests_.size());
    requests_.emplace_back();
  } else {
    handle = free_handles_.back();
    free_handles_.pop_back();
  }
  Request& request = requests_[handle];
  request.name = {handle, next_serial_++};
  request.state = RequestState::kWaiting;
  request.domain = submission.domain;
  request.parent = submission.parent;
  request.prompt_len = static_cast<int32_t>(submission.prompt.size());
  request.max_output = submission.max_output;
  request.stop_at = submission.stop_at;
  request.tokens.assign(submission.prompt.begin(), submission.prompt.end());
  request.hashed = 0;
  request.num_computed = request.in_flight = request.placeholders = request.num_drafts = 0;
  request.drafts_in_flight = 0;
  request.admissions = 0;
  waiting_.push_back(handle);
  return request.name;
}

bool Scheduler::Abort(RequestName name) {
  if (!Lives(name)) return false;
  Request& request = requests_[name.handle];
  if (request.state == RequestState::kWaiting) {
    states_->Add(State::kAbortWaiting);
  } else {
    states_->Add(request.in_flight > 0 ? State::kAbortInFlight : State::kAbortRunning);
  }
  End(name.handle);
  return true;
}

// The request's blocks are free from here on; the runner hears of it in the next step.
void Scheduler::End(Handle handle) {
  Request& request = requests_[handle];
  if (request.state == RequestState::kWaiting) {
    waiting_.erase(std::find(waiting_.begin(), waiting_.end(), handle));
  } else {
    running_.erase(std::find(running_.begin(), running_.end(), handle));
  }
  kv_.Free(&request);
  request.state = RequestState::kFree;
  request.in_flight = 0;
  finished_.push_back(request.name);
  free_handles_.push_back(handle);
}

int32_t Scheduler::TokensToSchedule(const Request& request, int32_t budget) const {
  // Beyond the last token that may be asked for, nothing is computed.
  const int32_t total = request.num_tokens() + request.placeholders;
  if (request.placeholders > 0 && total >= request.prompt_len + request.max_output) return 0;
  int32_t tokens = total + request.num_drafts - request.num_computed;
  if (config_.max_chunk > 0) tokens = std::min(tokens, config_.max_chunk);
  tokens = std::min({tokens, config_.max_model_len - request.num_computed, budget});
  if (align_ > 0 && tokens > 1 && request.num_drafts == 0) {
    // A prefill ends where its state can be found again, if it comes that far.
    const int32_t end = (request.num_computed + tokens) / align_ * align_;
    if (end > request.num_computed) tokens = end - request.num_computed;
  }
  return tokens;
}

void Scheduler::AddRow(Request* request, int32_t num_tokens, SchedulerOutput* out) {
  ScheduledRequest& row = out->scheduled.emplace_back();
  row.name = request->name;
  row.admission = request->admissions;
  row.num_computed = request->num_computed;
  row.num_tokens = num_tokens;
  const int32_t known = request->num_tokens() + request->placeholders;
  row.num_drafts = std::max(0, request->num_computed + num_tokens - known);
  row.drafts = request->drafts;
  row.samples = request->num_computed + num_tokens >= known;
  if (!row.samples) states_->Add(State::kChunkedPrefill);
  out->num_tokens += num_tokens;
  for (size_t g = 0; g < config_.groups.size(); ++g) {
    const std::vector<int32_t>& blocks = request->blocks[g];
    const int32_t size = config_.groups[g].block_size;
    const bool whole =
        config_.groups[g].kind == GroupKind::kState || config_.groups[g].kind == GroupKind::kCross;
    const auto num_columns = static_cast<int32_t>(blocks.size());
    const int32_t first =
        whole ? 0 : std::max(0, request->num_computed - request->in_flight) / size;
    const int32_t end =
        whole ? num_columns
              : std::min(num_columns, CeilDiv(request->num_computed + num_tokens, size));
    row.bound_first[g] = first;
    row.bound[g].begin = static_cast<uint32_t>(out->blocks.size());
    for (int32_t j = first; j < end; ++j) out->blocks.push_back(blocks[Ix(j)]);
    row.bound[g].end = static_cast<uint32_t>(out->blocks.size());
  }
  kv_.EnterCache(request, request->num_computed + num_tokens,
                 row.num_drafts > 0 || request->drafts_in_flight > 0);
  request->num_computed += num_tokens;
  request->in_flight += num_tokens;
  request->drafts_in_flight += row.num_drafts;
  if (row.samples) request->placeholders += 1 + row.num_drafts;
  // Where the next step is scheduled before this one's output, its drafts are not known yet: it
  // verifies whatever the device proposes.
  request->num_drafts = config_.async && row.samples ? config_.num_drafts : 0;
}

void Scheduler::Preempt(Handle handle, SchedulerOutput* out) {
  Request& request = requests_[handle];
  states_->Add(State::kPreempted);
  old_name_ = request.name;
  for (size_t g = 0; g < config_.groups.size(); ++g) old_blocks_[g] = request.blocks[g];
  kv_.Free(&request);
  request.state = RequestState::kWaiting;
  request.num_computed = request.in_flight = request.placeholders = request.num_drafts = 0;
  request.drafts_in_flight = 0;
  ++request.admissions;  // what is in flight belongs to the admission before
  out->preempted.push_back(request.name);
  waiting_.push_front(handle);
}

void Scheduler::SendNewBlocks(const Request& request, const std::array<size_t, kMaxGroups>& before,
                              SchedulerOutput* out) {
  CachedRequest& cached = out->cached.emplace_back();
  cached.name = request.name;
  cached.num_computed = request.num_computed;
  for (size_t g = 0; g < config_.groups.size(); ++g) {
    cached.blocks[g].begin = static_cast<uint32_t>(out->blocks.size());
    const auto first = request.blocks[g].begin() + static_cast<std::ptrdiff_t>(before[g]);
    const bool some = first != request.blocks[g].end();
    if (!(some && faults_->Strikes(FaultKind::kAppendLost))) {
      out->blocks.insert(out->blocks.end(), first, request.blocks[g].end());
      if (some && faults_->Strikes(FaultKind::kAppendTwice)) {
        out->blocks.insert(out->blocks.end(), first, request.blocks[g].end());
      }
      if (some && faults_->Strikes(FaultKind::kAppendNull)) out->blocks.back() = kNullBlock;
      if (some && faults_->Strikes(FaultKind::kAppendOutOfRange)) {
        out->blocks.back() = config_.num_blocks + 3;
      }
      if (some && running_.size() > 1 && faults_->Waits(FaultKind::kAppendOther)) {
        const Request& other = requests_[running_[running_[0] == request.name.handle ? 1 : 0]];
        if (!other.blocks[g].empty() && other.blocks[g].back() != kNullBlock &&
            faults_->Strikes(FaultKind::kAppendOther)) {
          out->blocks.back() = other.blocks[g].back();
        }
      }
    }
    cached.blocks[g].end = static_cast<uint32_t>(out->blocks.size());
  }
}

void Scheduler::ScheduleRunning(SchedulerOutput* out, int32_t* budget) {
  for (size_t i = 0; i < running_.size() && *budget > 0; ++i) {
    Request& request = requests_[running_[i]];
    if (request.num_computed > 32 && request.in_flight == 0 &&
        faults_->Strikes(FaultKind::kCountBehind)) {
      request.num_computed -= 16;
    }
    const int32_t tokens = TokensToSchedule(request, *budget);
    if (tokens <= 0) continue;
    std::array<size_t, kMaxGroups> before{};
    for (size_t g = 0; g < config_.groups.size(); ++g) before[g] = request.blocks[g].size();
    bool fits = kv_.Extend(&request, tokens);
    while (!fits && running_.size() > i) {
      const Handle victim = running_.back();
      running_.pop_back();
      Preempt(victim, out);
      if (victim == request.name.handle) break;
      fits = kv_.Extend(&request, tokens);
    }
    if (!fits) break;
    SendNewBlocks(request, before, out);
    *budget -= tokens;
    AddRow(&request, tokens, out);
  }
}

// What a scheduler with a fault says of a prefix hit. The scheduler's own account stays as it is.
void Scheduler::BreakHits(NewRequest* added, SchedulerOutput* out) {
  const Request& request = requests_[added->name.handle];
  const int32_t size = config_.groups[0].block_size;
  const int32_t hit = added->num_computed / size;
  int32_t* row = out->blocks.data() + added->blocks[0].begin;
  const bool plain = config_.groups[0].kind == GroupKind::kFull;
  if (plain && hit > 0 && faults_->Waits(FaultKind::kHitCollision)) {
    for (const Handle handle : running_) {
      const Request& other = requests_[handle];
      if (other.name.serial == request.name.serial || other.blocks[0].size() < Ix(hit)) continue;
      const int32_t id = other.blocks[0][Ix(hit) - 1];
      if (id == row[hit - 1] || other.num_computed < hit * size) continue;
      if (faults_->Strikes(FaultKind::kHitCollision)) row[hit - 1] = id;
      break;
    }
  }
  if (plain && hit > 1 && faults_->Strikes(FaultKind::kHitMisplaced)) std::swap(row[0], row[1]);
  if (config_.groups.size() == 1 && added->blocks[0].size() > Ix(hit) + 1 &&
      request.num_tokens() > (hit + 1) * size + 1 && faults_->Strikes(FaultKind::kHitTooLong)) {
    added->num_computed += size;
    requests_[added->name.handle].num_computed += size;
  }
  if (added->resumed && faults_->Strikes(FaultKind::kCountAhead)) added->num_computed += size;
}

void Scheduler::SendRows(Request* request, NewRequest* added, SchedulerOutput* out) {
  const bool keeps = added->resumed && old_name_.serial == request->name.serial &&
                     old_blocks_[0].size() >= request->blocks[0].size() &&
                     faults_->Strikes(FaultKind::kResumeKeepsBlocks);
  for (size_t g = 0; g < config_.groups.size(); ++g) {
    added->blocks[g].begin = static_cast<uint32_t>(out->blocks.size());
    const std::vector<int32_t>& row = keeps ? old_blocks_[g] : request->blocks[g];
    out->blocks.insert(out->blocks.end(), row.begin(),
                       row.begin() + static_cast<std::ptrdiff_t>(request->blocks[g].size()));
    added->blocks[g].end = static_cast<uint32_t>(out->blocks.size());
  }
}

void Scheduler::ScheduleWaiting(SchedulerOutput* out, int32_t* budget) {
  while (!waiting_.empty() && *budget > 0 && running_.size() < Ix(config_.max_requests)) {
    const Handle handle = waiting_.front();
    Request& request = requests_[handle];
    int32_t hit = kv_.FindHits(&request);
    if (config_.forks && Lives(request.parent) &&
        requests_[request.parent.handle].state == RequestState::kRunning &&
        requests_[request.parent.handle].admitted_in < step_) {  // copies of a step have no order
      hit = kv_.FindFork(request, requests_[request.parent.handle], hit);
    }
    request.num_computed = hit;
    const int32_t tokens = TokensToSchedule(request, *budget);
    if (tokens <= 0 || !kv_.Admit(&request, hit, tokens)) {
      request.num_computed = 0;
      break;
    }
    waiting_.pop_front();
    running_.push_back(handle);
    request.state = RequestState::kRunning;
    request.admitted_in = step_;
    NewRequest& added = out->added.emplace_back();
    added.name = request.name;
    added.resumed = request.admissions > 0;
    if (added.resumed) states_->Add(State::kResumed);
    if (request.domain != Domain{}) states_->Add(State::kOtherDomain);
    added.num_computed = hit;
    added.domain = request.domain;
    added.tokens.begin = static_cast<uint32_t>(out->tokens.size());
    out->tokens.insert(out->tokens.end(), request.tokens.begin(), request.tokens.end());
    added.tokens.end = static_cast<uint32_t>(out->tokens.size());
    SendRows(&request, &added, out);
    if (faults_->kind() != FaultKind::kNone) BreakHits(&added, out);
    ++request.admissions;
    const int32_t rest = request.num_computed - hit;  // only after a fault
    *budget -= tokens - rest;
    AddRow(&request, tokens - rest, out);
  }
}

void Scheduler::BreakFinished(SchedulerOutput* out) {
  if (!out->finished.empty() && faults_->Waits(FaultKind::kFinishLost)) {
    // One that the runner and whoever listens know of.
    for (size_t i = 0; i < out->finished.size(); ++i) {
      if (requests_[out->finished[i].handle].admissions == 0) continue;
      if (faults_->Strikes(FaultKind::kFinishLost)) {
        out->finished.erase(out->finished.begin() + static_cast<std::ptrdiff_t>(i));
      }
      break;
    }
  }
  if (!out->finished.empty() && running_.size() > 1 && faults_->Strikes(FaultKind::kFinishOther)) {
    out->finished.back() = requests_[running_.front()].name;
  }
  if (!running_.empty() && faults_->Waits(FaultKind::kReleaseLive)) {
    const Request& request =
        requests_[running_[random_.Below(static_cast<uint32_t>(running_.size()))]];
    const std::vector<int32_t>& row = request.blocks[0];
    if (row.size() > 1 && row[row.size() - 2] != kNullBlock &&
        kv_.pool().references(row[row.size() - 2]) == 1 &&
        faults_->Strikes(FaultKind::kReleaseLive)) {
      kv_.pool().Release(row[row.size() - 2], true);
    }
  }
}

void Scheduler::Schedule(SchedulerOutput* out) {
  out->Clear();
  out->step = ++step_;
  kv_.StartStep(step_);
  // Whoever filled only a part of a block that can be found goes away.
  if (const RequestName name = kv_.unfilled(); name.serial != 0 && Lives(name)) End(name.handle);
  out->finished = finished_;
  finished_.clear();
  if (faults_->kind() != FaultKind::kNone) BreakFinished(out);
  int32_t budget = config_.max_batched_tokens;
  ScheduleRunning(out, &budget);
  if (out->preempted.empty()) ScheduleWaiting(out, &budget);
  out->copies = kv_.copies();
  BreakCopies(out);
  if (config_.zeroing) {
    out->blocks_to_zero = kv_.blocks_to_zero();
    states_->Add(State::kZeroed, out->blocks_to_zero.size());
    if (!out->blocks_to_zero.empty() && !running_.empty() && faults_->Waits(FaultKind::kZeroLive)) {
      const Request& request = requests_[running_.front()];
      if (request.num_computed - request.in_flight > config_.groups[0].block_size &&
          request.blocks[0][0] != kNullBlock && config_.groups[0].kind != GroupKind::kState &&
          faults_->Strikes(FaultKind::kZeroLive)) {
        out->blocks_to_zero.push_back(request.blocks[0][0]);
      }
    }
  }
  if (out->scheduled.empty()) states_->Add(State::kZeroTokens);
}

void Scheduler::BreakCopies(SchedulerOutput* out) {
  if (out->copies.empty()) return;
  BlockCopy& copy = out->copies.back();
  if (faults_->Strikes(FaultKind::kCopyLost)) {
    out->copies.pop_back();
  } else if (faults_->Strikes(FaultKind::kCopySwapped)) {
    std::swap(copy.source, copy.target);
  }
}

void Scheduler::Propose(const StepOutput::Row& row, Request* request) const {
  if (config_.async) return;
  request->num_drafts = 0;
  if (config_.has_draft_model()) {
    request->drafts = row.drafts;
    request->num_drafts = config_.num_drafts;
  } else {
    ProposeNgram(request);
  }
  const int32_t room = request->prompt_len + request->max_output - request->num_tokens() - 1;
  request->num_drafts = std::clamp(request->num_drafts, 0, std::max(0, room));
}

// What followed the last two tokens when they stood together before.
void Scheduler::ProposeNgram(Request* request) const {
  if (config_.num_drafts == 0 || request->num_tokens() < 3) return;
  const std::vector<int32_t>& tokens = request->tokens;
  const size_t n = tokens.size();
  for (size_t i = n - 2; i-- > 0;) {
    if (tokens[i] != tokens[n - 2] || tokens[i + 1] != tokens[n - 1]) continue;
    for (size_t j = i + 2; j < n && request->num_drafts < config_.num_drafts; ++j) {
      request->drafts[Ix(request->num_drafts++)] = tokens[j];
    }
    break;
  }
}

void Scheduler::Update(const StepOutput& output, std::vector<RequestName>* ended) {
  for (const StepOutput::Row& row : output.rows) {
    if (!Lives(row.name)) {
      states_->Add(State::kEndInFlight);
      continue;
    }
    Request& request = requests_[row.name.handle];
    if (request.admissions != row.admission) continue;
    request.in_flight -= row.num_tokens;
    request.drafts_in_flight -= row.num_drafts;
    if (row.num_sampled == 0) continue;
    request.num_computed -= row.num_rejected;
    request.placeholders -= 1 + row.num_drafts;
    if (row.num_rejected > 0) states_->Add(State::kDraftRejected, Ix(row.num_rejected));
    if (row.num_rejected > 0 && request.in_flight > 0) states_->Add(State::kOptimisticCount);
    if (row.num_rejected < row.num_drafts) {
      states_->Add(State::kDraftAccepted, Ix(row.num_drafts - row.num_rejected));
    }
    bool done = false;
    for (int32_t i = 0; i < row.num_sampled && !done; ++i) {
      request.tokens.push_back(row.tokens[Ix(i)]);
      done = request.num_output() >= request.max_output ||
             request.num_output() == request.stop_at ||
             request.num_tokens() >= config_.max_model_len;
    }
    if (done) {
      const RequestName name = request.name;
      End(name.handle);
      ended->push_back(name);
    } else {
      Propose(row, &request);
    }
  }
}

}  // namespace kvguard::lab
