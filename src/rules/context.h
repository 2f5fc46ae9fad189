// SPDX-License-Identifier: Apache-2.0
// What the rules share while one record is judged.
#ifndef KVGUARD_SRC_RULES_CONTEXT_H_
#define KVGUARD_SRC_RULES_CONTEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "mirror/mirror.h"
#include "rules/catalog.h"
#include "step/views.h"

namespace kvguard::rules {

// How often a family judged something, by group, pass and stage. The last group stands for "no
// group".
class Coverage {
 public:
  static constexpr uint32_t kPasses = KVGUARD_PASS_DUMMY + 1;
  static constexpr uint32_t kStages = KVGUARD_STAGE_FINAL + 1;
  static constexpr uint32_t kFamilies = KVGUARD_FAMILY_RANK + 1;

  void Init(size_t num_groups) {
    num_groups_ = static_cast<uint32_t>(num_groups);
    judged_.assign((num_groups + 1) * kPasses * kStages * kFamilies, 0);
  }
  uint32_t num_groups() const { return num_groups_; }
  void Add(uint32_t group, uint32_t pass, uint32_t stage, uint32_t family, uint64_t count) {
    judged_[Index(group, pass, stage, family)] += count;
  }
  uint64_t Get(uint32_t group, uint32_t pass, uint32_t stage, uint32_t family) const {
    return judged_[Index(group, pass, stage, family)];
  }

 private:
  size_t Index(uint32_t group, uint32_t pass, uint32_t stage, uint32_t family) const {
    const size_t g = group < num_groups_ ? group : num_groups_;
    return ((g * kPasses + pass) * kStages + stage) * kFamilies + family;
  }
  uint32_t num_groups_ = 0;
  std::vector<uint64_t> judged_;
};

// One row of the plan being judged, against what the mirror expects of it.
struct RowState {
  uint32_t request =
      mirror::kNoRequest;  // index in the mirror; kNoRequest: unknown, not judged further
  uint64_t key = 0;
  uint64_t first_token = 0;  // index of the row's first token in the plan
  int64_t num_tokens = 0;    // as the plan says
  int64_t length = 0;  // tokens that its KV length counts beyond the start; KVGUARD_NONE: not known
  int64_t taken = 0;   // tokens of its request in earlier micro-batches
  // It begins with the first token of its request's schedule, and ends with the last.
  bool has_first = true;
  bool has_last = true;
  int64_t start = 0;           // position of the first token that the mirror expects
  int64_t seen_start = 0;      // and the one that the plan has, where it shows one
  bool tokens_usable = false;  // the row's token range lies within the plan
};

struct Counters {
  uint64_t rows = 0;
  uint64_t slots = 0;
  uint64_t entries = 0;
  uint64_t assumptions = 0;
  uint64_t ignored = 0;
};

struct Context {
  mirror::Mirror* mirror = nullptr;
  Coverage* coverage = nullptr;
  Counters* counters = nullptr;
  uint64_t step = 0;
  uint32_t max_findings = 32;
  const step::PlanView* plan = nullptr;  // while a PLAN is judged
  std::vector<RowState>* rows = nullptr;
  std::vector<kvguard_finding>* findings = nullptr;  // of this record
  uint64_t suppressed_proofs = 0;                    // beyond max_findings
  uint64_t suppressed_suspicions = 0;
  std::vector<std::string>* gaps = nullptr;    // names met while judging
  bool appending = false;                      // the event that binds is an APPEND
  std::vector<const kvguard_event*> admitted;  // of this BEGIN, with tokens: learnt when every
                                               // domain of theirs is known

  const geometry::Layout& layout() const { return mirror->layout(); }
  bool Full() const { return findings->size() >= max_findings; }
};

// A finding of the record being judged, filled with what the context knows. It may be a scratch one
// that is only counted.
kvguard_finding& Emit(Context& context, uint32_t code, uint32_t grade = 0);

// The same for a row of the plan.
kvguard_finding& EmitRow(Context& context, uint32_t code, uint64_t row,
                         uint32_t group = KVGUARD_ALL_GROUPS, uint32_t grade = 0);

inline void SetValues(kvguard_finding& finding, int64_t expected, int64_t observed) {
  finding.expected = expected;
  finding.observed = observed;
  finding.flags |= KVGUARD_FINDING_HAS_VALUES;
}

// Names the live request that holds `block`, other than `but`, as the finding's victim, if there is
// one.
void SetVictim(Context& context, kvguard_finding& finding, const geometry::Group& group,
               int64_t block, uint64_t but);
void SetVictim(Context& context, kvguard_finding& finding, const geometry::Group& group,
               int64_t block, const mirror::Holding& holding);

// --- BEGIN ---
// Applies the events to the mirror and judges them (families binding, ownership, frontier).
// Malformed combinations are found before anything changes. *lost: the mirror cannot follow any
// more.
step::Status JudgeBegin(Context& context, const step::BeginView& begin, bool* lost,
                        bool* gap_event);
step::Status JudgeOutcome(Context& context, const step::OutcomeView& outcome, uint64_t for_step,
                          bool* lost);
// The last token of a shared block, computed again in the step that admits its request: it is
// written with what it holds.
bool IsRecomputed(const Context& context, const mirror::Request& request,
                  const geometry::Group& group, int64_t column);
// Ownership of what this step's schedule writes, one request.
void JudgeWriters(Context& context, const mirror::Request& request);
// Frees, transfers, zeroing and copies. Findings of ids out of the pool.
void ApplyFree(Context& context, const kvguard_event& event);
void ApplyTransfer(Context& context, const kvguard_event& event);
void ApplyCopy(Context& context, const kvguard_event& event);
// Blocks that move (REMAP), and positions that are forgotten or counted anew (ERASE, REBASE). False
// where this version does not follow.
bool ApplyMove(Context& context, const kvguard_event& event);
// The target of a copy that somebody holds.
void JudgeCopyTarget(Context& context, const geometry::Group& group, int64_t target);
void JudgeEventBlocks(Context& context, const kvguard_event& event, const geometry::Group& group);
// When all events of a BEGIN have been applied: loads of requests that are live now.
void JudgePlacements(Context& context);
// ... the tokens of the admitted, and what a step sampled,
void LearnTokens(Context& context);
void LearnSampled(Context& context, mirror::Request& request, const kvguard_outcome_row& row,
                  uint64_t step);
// ... what prefix hits read, when all of the schedule is known,
void JudgeContents(Context& context);
// ... and prefix hits whose block holds what belongs elsewhere.
void JudgeStrayed(Context& context);
// A fresh block that transfers pin, before it is claimed.
void JudgePinned(Context& context, const mirror::Request& request, const geometry::Group& group,
                 int64_t column, int64_t block);
// What this step's schedule writes, one request; and, when all of it is known, what it counts on
// and what is zeroed.
void JudgeWritesToPinned(Context& context, const mirror::Request& request);
void JudgeLost(Context& context);
void JudgeZeroing(Context& context);
// PLAN: blocks that are still being loaded, zeroed or copied. END: what was never done.
void JudgeUseBeforeDone(Context& context);
void JudgeAnnouncedAtEnd(Context& context);
// A fresh block of a request that has claims from before, before it is claimed.
void JudgeFreshOwner(Context& context, const mirror::Request& request, const geometry::Group& group,
                     int64_t column, int64_t block);

// --- passes ---
// Whether a plan of that pass says anything of the group.
bool IsJudgedIn(uint32_t pass, const geometry::Group& group);
// Where a known row starts in a pass other than the target's, and how long it is.
void PlaceRow(Context& context, uint64_t b, RowState* row);
// END: tokens that no micro-batch of that stage had.
void JudgeMicroBatches(Context& context, uint32_t stage);

// --- PLAN, in this order ---
void JudgeRows(Context& context);       // step: rows against the schedule; fills context.rows
void JudgeFrontiers(Context& context);  // frontier: first positions and runs of positions
void JudgeLengths(Context& context);    // length
void JudgeLifetimes(Context& context);  // lifetime
void JudgeTable(Context& context, const step::GroupPlanView& group);
void JudgeList(Context& context, const step::GroupPlanView& group);  // table, starts being known
void JudgeSlots(Context& context, const step::GroupPlanView& group);
// The same where the slots of all prefill context parallel ranks stand in one plan.
void JudgeParallelSlots(Context& context, const step::GroupPlanView& group);
// The slot that a position has on this rank, KVGUARD_NONE where nothing is bound for it, or
// kNotJudged; of a position of another rank: the pad slot, whatever is bound.
inline constexpr int64_t kNotJudged = -2;
int64_t ExpectedSlot(const Context& context, const mirror::Request& request,
                     const geometry::Group& group, int64_t position);
// Whether a slot is that; here: whether this rank writes the position.
bool IsRightSlot(int64_t expected, int64_t observed, bool here);
// The code of one that is not.
uint32_t CodeForSlot(const Context& context, const geometry::Group& group, int64_t slot, bool here);
void JudgeStates(Context& context, const step::GroupPlanView& group);  // state
// Rows that hold no request, of a real pass or a dummy one.
void JudgePaddedStates(Context& context, const step::GroupPlanView& group);
void JudgeForeignWrites(Context& context, const step::GroupPlanView& group, uint64_t row);
// How many of n slots from `first` on write nothing.
size_t MatchPads(const Context& context, const step::GroupPlanView& group, uint64_t first,
                 size_t n);
void JudgeDummy(Context& context);

}  // namespace kvguard::rules

#endif  // KVGUARD_SRC_RULES_CONTEXT_H_
