// SPDX-License-Identifier: Apache-2.0
// The guard: one fold over records, and the account it keeps. What libkvguard's upper rooms need of
// it is declared here; users see kvguard.h only.
#ifndef KVGUARD_SRC_AUDIT_GUARD_H_
#define KVGUARD_SRC_AUDIT_GUARD_H_

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "mirror/mirror.h"
#include "rules/context.h"
#include "step/views.h"

namespace kvguard {

// Sees every record after it was judged, on the feeding thread. Must not feed. A record whose
// struct could not be read arrives as one of kind 0 with its error.
struct RecordTap {
  void* context = nullptr;
  void (*on_record)(void* context, const kvguard_guard& guard, const kvguard_record& record,
                    kvguard_status fed, const kvguard_verdict& verdict) = nullptr;
  void (*on_destroy)(void* context) = nullptr;  // may be null
};

void AddTap(kvguard_guard& guard, const RecordTap& tap);
void RemoveTap(kvguard_guard& guard, void* context);
// The context of the tap with this function, or null.
void* FindTap(const kvguard_guard& guard, decltype(RecordTap::on_record) on_record);

// Called for every guard that kvguard_create makes, before it returns; how upper rooms add what
// every guard has.
void SetCreateHook(kvguard_status (*hook)(kvguard_guard& guard, kvguard_error* error));

const kvguard_geometry& GeometryOf(const kvguard_guard& guard);
const kvguard_config& ConfigOf(const kvguard_guard& guard);
bool HasOpenStep(const kvguard_guard& guard);
bool MirrorIsEmpty(const kvguard_guard& guard);

// TABLE: a rule may read columns [0, n) of this row; a recorder that keeps them keeps all that was
// judged.
uint64_t JudgedColumns(const kvguard_guard& guard, const kvguard_plan& plan,
                       const kvguard_group_plan& group_plan, uint64_t row);

// The finding's machine line and prose, each with its newline.
std::string Explain(const kvguard_guard& guard, const kvguard_finding& finding);

}  // namespace kvguard

struct kvguard_guard {
 public:
  kvguard::step::Status Init(const kvguard_geometry* geometry, const kvguard_config* config);
  kvguard_status Feed(const kvguard_record* record, kvguard_verdict* verdict, kvguard_error* error);

  void FillVerdict(kvguard_verdict* verdict) const;
  std::string NameOf(uint64_t key) const;
  kvguard::step::Status Restore(std::string_view bytes);
  std::vector<kvguard_coverage_row> CoverageRows() const;
  std::vector<kvguard_gap> Gaps() const;

  // Owned copies behind `geometry`.
  struct OwnedGeometry {
    std::string engine;
    std::string engine_version;
    std::vector<kvguard_pool> pools;
    std::vector<kvguard_group> groups;
    std::vector<std::string> gap_names;
    std::vector<const char*> gap_pointers;
    kvguard_geometry view{};
  };

  kvguard::geometry::Layout layout;
  OwnedGeometry geometry;
  kvguard_config config{};
  kvguard::mirror::Mirror mirror;
  std::deque<kvguard_finding> findings;
  std::vector<kvguard::RecordTap> taps;

  bool step_open = false;
  uint64_t last_step = 0;  // of the last BEGIN
  bool any_step = false;

 private:
  using Status = kvguard::step::Status;

  Status Dispatch(const kvguard_record& record);
  Status FeedBegin(const kvguard_record& record);
  Status FeedPlan(const kvguard_record& record);
  Status FeedOutcome(const kvguard_record& record);
  Status FeedEnd(const kvguard_record& record);
  Status FeedReset(const kvguard_record& record);
  kvguard::rules::Context MakeContext(uint64_t step);
  // Orders, links and stores what the record's rules found.
  void Conclude(kvguard::rules::Context& context);
  void NoteGap(std::string_view name, uint64_t step);
  // Bindings are not known: nothing is judged until a RESET.
  void LoseBindings(uint64_t step);
  // A record of such a step says that its BEGIN was lost.
  // Steps from before a restore were begun, though not in this guard.
  bool NeverBegun(uint64_t step) const {
    if (!any_step) return restored_step_ == 0 || step > restored_step_;
    return step > last_step && step > restored_step_;
  }
  void Remember(const kvguard_finding& finding);
  bool FamiliesComplete() const;

  kvguard::rules::Coverage coverage_;
  kvguard::rules::Counters counters_;
  std::vector<kvguard::rules::RowState> rows_;
  std::vector<kvguard_finding> record_findings_;
  std::vector<std::string> record_gaps_;
  kvguard::step::BeginView begin_view_;
  kvguard::step::PlanView plan_view_;
  kvguard::step::OutcomeView outcome_view_;

  std::map<std::string, kvguard_gap, std::less<>> gaps_;
  std::vector<std::string> standing_;
  std::unordered_map<uint64_t, std::string> names_;  // of keys in stored findings
  size_t names_limit_ = 256;
  std::set<uint32_t> suspicions_printed_;

  // The open step, or the last one.
  uint64_t step_scheduled_ = 0;
  bool step_unjudged_ = false;  // a GAP event: its plans are not judged
  bool step_gap_ = false;
  bool step_gap_counted_ = false;
  uint64_t step_proofs_ = 0;
  uint64_t step_stored_ = 0;
  struct FirstCause {
    uint64_t request;
    uint32_t code;
    int rank;
    bool
        moves_row;  // a table finding that is another row's or step's: it explains the frontier too
  };
  std::vector<FirstCause> step_causes_;
  std::vector<uint8_t> planned_;  // by group: bit 0 table, bit 1 slots, bit 2 final, in this step
  uint32_t micro_stages_ = 0;     // bit (1 << stage): it had a micro-batch, in this step
  std::vector<uint8_t> final_known_;  // by group: a FINAL plan was seen in this run

  mutable bool families_complete_ = false;
  bool lost_ = false;           // bindings were lost: nothing is judged until a RESET
  uint64_t restored_step_ = 0;  // the last step of the snapshot this guard was restored from
  uint64_t next_sequence_ = 0;
  uint64_t record_first_ = 0;
  uint64_t record_count_ = 0;
  uint64_t steps_ = 0;
  uint64_t steps_judged_ = 0;
  uint64_t plans_ = 0;
  uint64_t proofs_ = 0;
  uint64_t suspicions_ = 0;
  uint64_t step_gaps_ = 0;
  uint64_t violated_steps_ = 0;
  uint64_t first_violated_step_ = 0;
  bool first_violated_known_ = false;
};

#endif  // KVGUARD_SRC_AUDIT_GUARD_H_
