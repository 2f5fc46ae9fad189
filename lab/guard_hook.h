// SPDX-License-Identifier: Apache-2.0
// The guard on an engine of the lab, as a user would attach it: through kvguard.h alone. Bindings
// come from the SchedulerOutput, plans from the runner's final metadata, outcomes from the sampled
// counts; nothing here looks into scheduler, pool or truth.
#ifndef KVGUARD_LAB_GUARD_HOOK_H_
#define KVGUARD_LAB_GUARD_HOOK_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kvguard/kvguard.h"
#include "lab/config.h"
#include "lab/runner.h"
#include "lab/scheduler_output.h"

namespace kvguard::lab {

enum class GuardMode : uint8_t { kOff, kLog, kRaise };

struct GuardFinding {
  kvguard_finding finding;
  std::string text;  // the machine line and the prose
};

class GuardHook {
 public:
  // Empty, or why the guard is not armed.
  std::string Arm(const EngineConfig& config, GuardMode mode, const std::string& record);
  bool on() const { return guard_ != nullptr; }

  void Begin(const SchedulerOutput& out);
  // Blocks that Begin announced were zeroed.
  void Zeroed(uint64_t step, const std::vector<int32_t>& blocks);
  // Likewise its copies.
  void Copied(uint64_t step, const std::vector<BlockCopy>& copies);
  void Plan(const InFlight& step, const PlanView& view);
  void DummyPlan(const PlanView& view, int32_t num_tokens);
  void DraftPlan(const InFlight& step, int32_t pass, const PlanView& view);
  void Outcome(const StepOutput& output);
  void End(uint64_t step, bool ran);

  // What was begun may not go on (before its forward), or not be told (after it).
  bool must_raise() const { return verdict_.must_raise != 0; }
  const kvguard_verdict& verdict() const { return verdict_; }
  uint64_t first_proof_step() const { return first_proof_step_; }
  // The oldest `most`.
  std::vector<GuardFinding> Findings(size_t most) const;
  std::vector<kvguard_gap> Gaps() const;
  const std::string& error() const { return error_; }  // the first record that was refused
  uint64_t nanoseconds() const { return nanoseconds_; }
  // Closes the recording; empty, or what went wrong with it.
  std::string Close();

 private:
  struct Destroy {
    void operator()(kvguard_guard* guard) const { kvguard_destroy(guard); }
  };
  struct Key {
    uint64_t serial = 0;
    uint64_t key = 0;
  };

  kvguard_event* AddEvent(uint32_t kind, uint64_t request);
  uint64_t KeyOf(RequestName name);
  kvguard_group_plan TablePlan(const InFlight& step, const PlanView& view, size_t group,
                               int32_t rows, int32_t slots) const;
  void CrossPlan(const InFlight& step, const PlanView& view, const std::vector<uint64_t>& keys);
  void StatesCopied(const InFlight& step, const PlanView& view);
  void Admit(const NewRequest& added);
  void AddBlocks(uint64_t key, uint32_t kind, const std::array<Span, kMaxGroups>& blocks);
  void AddCopies(uint32_t kind, const std::vector<BlockCopy>& copies);
  void Feed(uint32_t kind, uint64_t step, const void* body);

  const EngineConfig* config_ = nullptr;
  std::unique_ptr<kvguard_guard, Destroy> guard_;
  kvguard_verdict verdict_{};
  std::string error_;
  uint64_t first_proof_step_ = 0;
  uint64_t nanoseconds_ = 0;
  bool records_ = false;

  uint64_t next_key_ = 1;
  uint64_t last_step_ = 0;
  std::vector<Key> keys_;                          // by handle
  std::array<std::vector<uint64_t>, 4> row_keys_;  // of the latest steps, by batch row
  std::vector<kvguard_group_plan> group_plans_;
  std::vector<kvguard_event> events_;
  std::vector<kvguard_scheduled> scheduled_;
  std::vector<kvguard_outcome_row> rows_;
  std::vector<int64_t> blocks_;
  std::vector<int64_t> tokens_;
  std::vector<int64_t> zeroed_;
  std::vector<int64_t> pairs_;
  std::vector<std::array<char, 24>> names_;
};

}  // namespace kvguard::lab

#endif  // KVGUARD_LAB_GUARD_HOOK_H_
