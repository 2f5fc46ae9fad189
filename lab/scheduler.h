// SPDX-License-Identifier: Apache-2.0
// Continuous batching: who runs in the next step, with how many tokens and which blocks.
#ifndef KVGUARD_LAB_SCHEDULER_H_
#define KVGUARD_LAB_SCHEDULER_H_

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "lab/config.h"
#include "lab/faults.h"
#include "lab/kv_manager.h"
#include "lab/random.h"
#include "lab/request.h"
#include "lab/scheduler_output.h"
#include "lab/states.h"

namespace kvguard::lab {

struct Submission {
  std::span<const int32_t> prompt;
  int32_t max_output = 1;
  int32_t stop_at = 0;  // the model ends by itself at this length of output; 0: never
  Domain domain;
  RequestName
      parent;  // a fork of this request, whose tokens the prompt begins with; serial 0: none
};

// What a step gave, row by row, in the order of its batch.
struct StepOutput {
  struct Row {
    RequestName name;
    uint32_t admission = 0;
    int32_t num_tokens = 0;  // scheduled
    int32_t num_drafts = 0;
    int32_t num_sampled = 0;
    int32_t num_rejected = 0;
    std::array<int32_t, kMaxDrafts + 1> tokens{};
    std::array<int32_t, kMaxDrafts> drafts{};  // for the next step, where a draft model makes them
  };
  uint64_t step = 0;
  std::vector<Row> rows;
};

class Scheduler {
 public:
  Scheduler(const EngineConfig& config, FaultSwitch* faults, StateCounts* states);

  RequestName Submit(const Submission& submission);
  // Takes effect with the next Schedule. False where no such request lives.
  bool Abort(RequestName name);

  void Schedule(SchedulerOutput* out);
  // Any step scheduled before, in order. `ended` gets the requests that are done.
  void Update(const StepOutput& output, std::vector<RequestName>* ended);

  size_t num_running() const { return running_.size(); }
  size_t num_waiting() const { return waiting_.size(); }
  uint64_t step() const { return step_; }
  const Request& Of(RequestName name) const { return requests_[name.handle]; }
  bool Lives(RequestName name) const {
    return name.handle < requests_.size() && requests_[name.handle].name.serial == name.serial &&
           requests_[name.handle].state != RequestState::kFree;
  }
  KvManager& kv() { return kv_; }
  const KvManager& kv() const { return kv_; }

 private:
  using Handle = uint32_t;

  int32_t TokensToSchedule(const Request& request, int32_t budget) const;
  void ScheduleRunning(SchedulerOutput* out, int32_t* budget);
  void ScheduleWaiting(SchedulerOutput* out, int32_t* budget);
  void Preempt(Handle handle, SchedulerOutput* out);
  void AddRow(Request* request, int32_t num_tokens, SchedulerOutput* out);
  void SendNewBlocks(const Request& request, const std::array<size_t, kMaxGroups>& before,
                     SchedulerOutput* out);
  void SendRows(Request* request, NewRequest* added, SchedulerOutput* out);
  void End(Handle handle);
  void Propose(const StepOutput::Row& row, Request* request) const;
  void ProposeNgram(Request* request) const;
  void BreakCopies(SchedulerOutput* out);
  void BreakFinished(SchedulerOutput* out);
  void BreakHits(NewRequest* added, SchedulerOutput* out);

  const EngineConfig& config_;
  FaultSwitch* faults_;
  StateCounts* states_;
  KvManager kv_;
  Random random_;
  int32_t align_ = 0;  // prefills end at its multiples; 0: wherever
  std::vector<Request> requests_;
  std::vector<Handle> free_handles_;
  std::deque<Handle> waiting_;
  std::vector<Handle> running_;
  std::vector<RequestName> finished_;                        // not told yet
  std::array<std::vector<int32_t>, kMaxGroups> old_blocks_;  // of a preempted request
  RequestName old_name_;
  uint64_t next_serial_ = 1;
  uint64_t step_ = 0;
};

}  // namespace kvguard::lab

#endif  // KVGUARD_LAB_SCHEDULER_H_
