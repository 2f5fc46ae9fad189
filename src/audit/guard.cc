// SPDX-License-Identifier: Apache-2.0
#include "audit/guard.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <tuple>

#include "explain/causes.h"
#include "explain/prose.h"

using kvguard::rules::Context;
using kvguard::step::Malformed;
using kvguard::step::OutOfOrder;

namespace {

using Ull = unsigned long long;

constexpr uint32_t kDefaultHistorySteps = 64;
constexpr uint64_t kDefaultHistoryBytes = 4u << 20;
constexpr uint32_t kDefaultFindingsPerStep = 32;
constexpr uint32_t kDefaultFindings = 1024;
constexpr size_t kMostForgottenNames = 256;  // beyond as many as are needed: pruning stays rare
constexpr size_t kMostGapNames =
    256;  // a hostile stream of GAP events must not grow memory without end

// Records that say what is bound; without one of them the mirror cannot be believed.
bool MovesBindings(uint32_t kind) {
  return kind == KVGUARD_RECORD_BEGIN || kind == KVGUARD_RECORD_RESET;
}

// Bits of planned_.
constexpr uint8_t kTableSeen = 1;
constexpr uint8_t kSlotsSeen = 2;
constexpr uint8_t kFinalSeen = 4;
constexpr uint8_t kStatesSeen = 8;

}  // namespace

kvguard::step::Status kvguard_guard::Init(const kvguard_geometry* in,
                                          const kvguard_config* configuration) {
  if (Status s = kvguard::step::CheckGeometry(in, &layout, &standing_); !s.ok()) return s;
  if (configuration != nullptr) {
    if (Status s = kvguard::step::ReadStruct(configuration, &config, "config"); !s.ok()) return s;
  }
  config.size = sizeof(config);
  if (config.action > KVGUARD_ACTION_LOG || config.latch > 1) {
    return Malformed(
        "config: action %u, latch %u; actions are 0 (raise) and 1 (log), latch is 0 or 1",
        config.action, config.latch);
  }
  if (config.history_steps == 0) config.history_steps = kDefaultHistorySteps;
  if (config.history_bytes == 0) config.history_bytes = kDefaultHistoryBytes;
  if (config.max_findings_per_step == 0) config.max_findings_per_step = kDefaultFindingsPerStep;
  if (config.max_findings == 0) config.max_findings = kDefaultFindings;
  config.max_findings = std::max(config.max_findings, config.max_findings_per_step);

  OwnedGeometry& own = geometry;
  (void)kvguard::step::ReadStruct(in, &own.view, "geometry");
  own.engine = own.view.engine;
  own.engine_version = own.view.engine_version != nullptr ? own.view.engine_version : "";
  kvguard::step::StructArray<kvguard_pool> pools;
  kvguard::step::StructArray<kvguard_group> groups;
  (void)pools.Assign(own.view.pools, own.view.num_pools, own.view.num_pools, "pools");
  (void)groups.Assign(own.view.groups, own.view.num_groups, own.view.num_groups, "groups");
  for (size_t i = 0; i < pools.size(); ++i) own.pools.push_back(pools[i]);
  for (size_t i = 0; i < groups.size(); ++i) own.groups.push_back(groups[i]);
  for (kvguard_pool& pool : own.pools) pool.size = sizeof(pool);
  for (kvguard_group& group : own.groups) group.size = sizeof(group);
  own.gap_names = standing_;
  for (const std::string& name : own.gap_names) own.gap_pointers.push_back(name.c_str());
  own.view.engine = own.engine.c_str();
  own.view.engine_version = own.engine_version.c_str();
  own.view.pools = own.pools.data();
  own.view.groups = own.groups.data();
  own.view.standing_gaps = own.gap_pointers.data();

  mirror.Init(&layout, config.history_steps, config.history_bytes);
  coverage_.Init(layout.groups.size());
  planned_.assign(layout.groups.size(), 0);
  final_known_.assign(layout.groups.size(), 0);
  return {};
}

void kvguard_guard::NoteGap(std::string_view name, uint64_t step) {
  // A name declared at arming is a standing gap wherever it is met.
  if (std::find(standing_.begin(), standing_.end(), name) != standing_.end()) return;
  step_gap_ = true;
  if (!step_gap_counted_) {
    step_gap_counted_ = true;
    ++step_gaps_;
  }
  auto it = gaps_.find(name);
  if (it == gaps_.end()) {
    if (gaps_.size() >= kMostGapNames) return;
    kvguard_gap gap{};
    gap.size = sizeof(gap);
    gap.first_step = step;
    const size_t n = std::min(name.size(), sizeof(gap.name) - 1);
    std::memcpy(gap.name, name.data(), n);
    it = gaps_.emplace(std::string(name), gap).first;
  }
  ++it->second.count;
}

Context kvguard_guard::MakeContext(uint64_t step) {
  record_findings_.clear();
  record_gaps_.clear();
  Context context;
  context.mirror = &mirror;
  context.coverage = &coverage_;
  context.counters = &counters_;
  context.step = step;
  const uint64_t room =
      config.max_findings_per_step > step_stored_ ? config.max_findings_per_step - step_stored_ : 0;
  context.max_findings = static_cast<uint32_t>(room);
  context.rows = &rows_;
  context.findings = &record_findings_;
  context.gaps = &record_gaps_;
  return context;
}

void kvguard_guard::Remember(const kvguard_finding& finding) {
  const auto remember = [&](uint64_t key) {
    if (key == 0 || names_.count(key) != 0) return;
    if (const auto* request = mirror.FindRequest(key)) {
      names_.emplace(key, request->name);
    } else if (const auto* released = mirror.FindReleased(key)) {
      names_.emplace(key, released->name);
    }
  };
  remember(finding.request);
  remember(finding.victim);
  for (uint32_t i = 0; i < finding.num_causes; ++i) {
    const uint32_t kind = finding.causes[i].kind;
    if (kind == KVGUARD_CAUSE_ROW_OF || kind == KVGUARD_CAUSE_EARLIER_OWNER)
      remember(finding.causes[i].arg);
  }
}

void kvguard_guard::Conclude(Context& context) {
  for (const std::string& name : record_gaps_) NoteGap(name, context.step);
  for (size_t i = 0; i < record_findings_.size(); ++i) record_findings_[i].sequence = i;
  std::sort(record_findings_.begin(), record_findings_.end(),
            [](const kvguard_finding& a, const kvguard_finding& b) {
              const int ra = kvguard::rules::CausalRank(a.code);
              const int rb = kvguard::rules::CausalRank(b.code);
              return std::tie(ra, a.row, a.sequence) < std::tie(rb, b.row, b.sequence);
            });
  uint64_t proofs = context.suppressed_proofs;
  suspicions_ += context.suppressed_suspicions;
  for (kvguard_finding& finding : record_findings_) {
    if (finding.grade == KVGUARD_GRADE_SUSPICION) {
      ++suspicions_;
      if (!suspicions_printed_.insert(finding.code).second) continue;
    } else {
      ++proofs;
      const int rank = kvguard::rules::CausalRank(finding.code);
      for (const FirstCause& cause : step_causes_) {
        if (cause.request != finding.request && cause.request != 0) continue;
        // A wrong table says nothing about the frontier unless the whole row is somebody else's.
        const uint32_t family = finding.code / 100;
        const bool independent =
            cause.code / 100 == KVGUARD_FAMILY_TABLE && !cause.moves_row &&
            (family == KVGUARD_FAMILY_FRONTIER || family == KVGUARD_FAMILY_LENGTH);
        if (independent) continue;
        finding.because_of = cause.code;
        break;
      }
      if (step_causes_.empty()) finding.flags |= KVGUARD_FINDING_FIRST_CAUSE;
      if (finding.because_of == 0 && step_causes_.size() < kDefaultFindingsPerStep) {
        bool moves_row = false;
        for (uint32_t i = 0; i < finding.num_causes; ++i) {
          moves_row = moves_row || finding.causes[i].kind == KVGUARD_CAUSE_ROW_OF ||
                      finding.causes[i].kind == KVGUARD_CAUSE_PREVIOUS_STEP;
        }
        step_causes_.push_back({finding.request, finding.code, rank, moves_row});
      }
    }
    finding.sequence = next_sequence_++;
    ++record_count_;
    ++step_stored_;
    Remember(finding);
    findings.push_back(finding);
  }
  if (proofs > 0) {
    if (!first_violated_known_) {
      first_violated_known_ = true;
      first_violated_step_ = context.step;
    }
    if (step_proofs_ == 0) ++violated_steps_;
    step_proofs_ += proofs;
    proofs_ += proofs;
  }
  // Drop the oldest that do not belong to the first violated step. Late outcomes may add to that
  // step without end, so no more are kept than one step can store.
  while (findings.size() > config.max_findings) {
    auto it = findings.begin();
    for (uint32_t kept = 0; kept < config.max_findings_per_step; ++kept, ++it) {
      if (it->step != first_violated_step_) break;
    }
    findings.erase(it);
  }
  if (names_.size() > names_limit_) {
    std::unordered_map<uint64_t, std::string> old;
    old.swap(names_);
    for (const kvguard_finding& finding : findings) {
      const auto keep = [&](uint64_t key) {
        const auto it = old.find(key);
        if (it != old.end()) names_.emplace(key, it->second);
      };
      keep(finding.request);
      keep(finding.victim);
      for (uint32_t i = 0; i < finding.num_causes; ++i) keep(finding.causes[i].arg);
    }
    names_limit_ = 2 * names_.size() + kMostForgottenNames;
  }
}

void kvguard_guard::LoseBindings(uint64_t step) {
  lost_ = true;
  NoteGap("bindings-lost", step);
}

kvguard::step::Status kvguard_guard::FeedBegin(const kvguard_record& record) {
  if (step_open) {
    LoseBindings(record.step);
    return OutOfOrder(
        "BEGIN of step %llu inside step %llu: feed END first; nothing is judged until a RESET",
        static_cast<Ull>(record.step), static_cast<Ull>(last_step));
  }
  if (any_step && record.step <= last_step) {
    LoseBindings(record.step);
    return OutOfOrder(
        "BEGIN of step %llu after step %llu: steps rise; nothing is judged until a RESET",
        static_cast<Ull>(record.step), static_cast<Ull>(last_step));
  }
  last_step = record.step;
  any_step = true;
  step_open = true;
  step_scheduled_ = 0;
  step_unjudged_ = step_gap_ = step_gap_counted_ = false;
  step_proofs_ = step_stored_ = 0;
  step_causes_.clear();
  micro_stages_ = 0;
  std::fill(planned_.begin(), planned_.end(), uint8_t{0});
  if (lost_) {
    NoteGap("bindings-lost", record.step);
    return {};
  }
  const auto lose = [&](Status s) {
    LoseBindings(record.step);
    return s;
  };
  if (Status s = kvguard::step::CheckBegin(record.body.begin, layout, &begin_view_); !s.ok())
    return lose(std::move(s));
  Context context = MakeContext(record.step);
  bool lost = false;
  if (Status s = kvguard::rules::JudgeBegin(context, begin_view_, &lost, &step_unjudged_);
      !s.ok()) {
    return lose(std::move(s));
  }
  step_scheduled_ = begin_view_.scheduled.size();
  if (lost) {
    // What was found before the loss may rest on it.
    record_findings_.clear();
    context.suppressed_proofs = context.suppressed_suspicions = 0;
    Conclude(context);
    return lose({});
  }
  Conclude(context);
  return {};
}

kvguard::step::Status kvguard_guard::FeedPlan(const kvguard_record& record) {
  if (Status s = kvguard::step::CheckPlan(record.body.plan, layout, &plan_view_); !s.ok()) {
    NoteGap(s.code() == KVGUARD_ERROR_UNSUPPORTED ? "plan-not-supported" : "plan-malformed",
            record.step);
    return s;
  }
  const bool dummy = plan_view_.pass == KVGUARD_PASS_DUMMY;
  if (!dummy && (!step_open || record.step != last_step)) {
    NoteGap("plan-out-of-order", record.step);
    if (NeverBegun(record.step)) LoseBindings(record.step);
    return OutOfOrder("PLAN of step %llu, but %s; a plan comes between its step's BEGIN and END",
                      static_cast<Ull>(record.step),
                      step_open ? "another step is open" : "no step is open");
  }
  ++plans_;
  if (!dummy && (!layout.every_pass || plan_view_.pass == KVGUARD_PASS_CROSS)) {
    std::erase_if(plan_view_.groups, [&](const kvguard::step::GroupPlanView& group) {
      return !kvguard::rules::IsJudgedIn(plan_view_.pass, *group.group);
    });
  }
  const bool final = plan_view_.stage == KVGUARD_STAGE_FINAL;
  // What a draft model shows says nothing of what the target does.
  const bool draft = plan_view_.pass == KVGUARD_PASS_DRAFT;
  const bool target = plan_view_.pass == KVGUARD_PASS_TARGET;
  const bool cross = plan_view_.pass == KVGUARD_PASS_CROSS;
  if (!dummy && !draft && final) {
    for (const auto& group : plan_view_.groups) final_known_[group.group->id] = 1;
  }
  if (!dummy && (lost_ || step_unjudged_)) return {};
  Context context = MakeContext(record.step);
  context.plan = &plan_view_;
  if (dummy) {  // between two steps it counts for the one that ended, whose output may still be
                // held
    kvguard::rules::JudgeDummy(context);
    Conclude(context);
    return {};
  }
  // In the order of CausalRank: where findings are cut off, the first causes are there.
  kvguard::rules::JudgeRows(context);
  for (const auto& group : plan_view_.groups) kvguard::rules::JudgeTable(context, group);
  kvguard::rules::JudgeFrontiers(context);
  if (layout.has_lists) {
    for (const auto& group : plan_view_.groups) kvguard::rules::JudgeList(context, group);
  }
  if (!draft && !cross) {
    kvguard::rules::JudgeLifetimes(context);
    kvguard::rules::JudgeUseBeforeDone(context);
  }
  kvguard::rules::JudgeLengths(context);
  for (const auto& group : plan_view_.groups) {
    kvguard::rules::JudgeSlots(context, group);
    if (layout.has_states) kvguard::rules::JudgeStates(context, group);
    if (draft) continue;
    uint8_t& seen = planned_[group.group->id];
    if (final) seen |= kFinalSeen;
    if (group.table.present() || group.list.present()) seen |= kTableSeen;
    if (group.slots.present()) seen |= kSlotsSeen;
    if (group.states.present()) seen |= kStatesSeen;
  }
  if (!record_findings_.empty()) kvguard::explain::NameCauses(context);
  Conclude(context);
  if (plan_view_.pass == KVGUARD_PASS_MICRO_BATCH) micro_stages_ |= 1u << plan_view_.stage;
  if (!target) return {};
  auto& executed = mirror.executing();
  if (!final || executed.empty()) {
    executed.clear();
    for (const auto& row : rows_) executed.push_back({row.key, row.start, row.num_tokens});
  }
  return {};
}

kvguard::step::Status kvguard_guard::FeedOutcome(const kvguard_record& record) {
  if (NeverBegun(record.step)) {
    NoteGap("outcome-out-of-order", record.step);
    LoseBindings(record.step);
    return OutOfOrder("OUTCOME of step %llu, which was never begun", static_cast<Ull>(record.step));
  }
  if (Status s = kvguard::step::CheckOutcome(record.body.outcome, layout, &outcome_view_);
      !s.ok()) {
    NoteGap("outcome-malformed", record.step);
    return s;
  }
  if (lost_) return {};
  Context context = MakeContext(record.step);
  bool lost = false;
  Status s = kvguard::rules::JudgeOutcome(context, outcome_view_, record.step, &lost);
  if (!s.ok()) NoteGap("outcome-malformed", record.step);
  Conclude(context);
  if (lost) LoseBindings(record.step);
  return s;
}

kvguard::step::Status kvguard_guard::FeedEnd(const kvguard_record& record) {
  if (!step_open || record.step != last_step) {
    NoteGap("end-out-of-order", record.step);
    if (NeverBegun(record.step)) LoseBindings(record.step);
    return OutOfOrder("END of step %llu, but %s", static_cast<Ull>(record.step),
                      step_open ? "another step is open" : "no step is open");
  }
  kvguard_end end{};
  if (Status s = kvguard::step::CheckEnd(record.body.end, &end); !s.ok()) {
    NoteGap("end-malformed", record.step);
    return s;
  }
  const bool abandoned = (end.flags & KVGUARD_END_ABANDONED) != 0;
  const bool forward = (end.flags & KVGUARD_END_NO_FORWARD) == 0;
  const bool real = step_scheduled_ > 0 && forward;
  if (abandoned) {
    NoteGap("step-abandoned", record.step);
  } else if (real && !lost_ && !step_unjudged_) {
    for (size_t g = 0; g < planned_.size(); ++g) {
      if (layout.groups[g].on_host) continue;
      if (layout.groups[g].IsCross()) {
        if ((planned_[g] & kTableSeen) == 0) NoteGap("table-not-presented", record.step);
        if ((planned_[g] & kSlotsSeen) == 0 && mirror.WritesEncoder())
          NoteGap("slots-not-presented", record.step);
      } else if (layout.groups[g].IsState()) {
        if ((planned_[g] & (kTableSeen | kStatesSeen)) == 0)
          NoteGap("states-not-presented", record.step);
      } else {
        if ((planned_[g] & kTableSeen) == 0) NoteGap("table-not-presented", record.step);
        if ((planned_[g] & kSlotsSeen) == 0) NoteGap("slots-not-presented", record.step);
      }
      if (final_known_[g] != 0 && (planned_[g] & kFinalSeen) == 0)
        NoteGap("final-plan-missing", record.step);
    }
  }
  const bool announced = mirror.zeroing().AnyOpen() || mirror.copying().AnyOpen();
  if (announced && real && !lost_ && !step_unjudged_ && !abandoned) {
    Context context = MakeContext(record.step);
    kvguard::rules::JudgeAnnouncedAtEnd(context);
    Conclude(context);
  }
  if (micro_stages_ != 0 && real && !lost_ && !step_unjudged_ && !abandoned) {
    Context context = MakeContext(record.step);
    const bool planned = (micro_stages_ & 1u << KVGUARD_STAGE_PLANNED) != 0;
    kvguard::rules::JudgeMicroBatches(context,
                                      planned ? KVGUARD_STAGE_PLANNED : KVGUARD_STAGE_FINAL);
    Conclude(context);
  }
  if (!lost_) mirror.EndStep(record.step, real, abandoned);
  step_open = false;
  ++steps_;
  if (real && !step_gap_ && !step_unjudged_) ++steps_judged_;
  return {};
}

kvguard::step::Status kvguard_guard::FeedReset(const kvguard_record& record) {
  kvguard_reset reset{};
  if (Status s = kvguard::step::CheckReset(record.body.reset, &reset); !s.ok()) {
    NoteGap("reset-malformed", record.step);
    LoseBindings(record.step);  // what was to be forgotten would be taken for live
    return s;
  }
  if (step_open) {
    NoteGap("step-open-at-reset", record.step);
    step_open = false;
    ++steps_;
  }
  lost_ = false;
  mirror.Reset();
  return {};
}

kvguard::step::Status kvguard_guard::Dispatch(const kvguard_record& record) {
  if (record.body.begin == nullptr) {
    NoteGap("record-malformed", record.step);
    if (MovesBindings(record.kind)) LoseBindings(record.step);
    return Malformed("record: body is NULL");
  }
  switch (record.kind) {
    case KVGUARD_RECORD_BEGIN:
      return FeedBegin(record);
    case KVGUARD_RECORD_PLAN:
      return FeedPlan(record);
    case KVGUARD_RECORD_OUTCOME:
      return FeedOutcome(record);
    case KVGUARD_RECORD_END:
      return FeedEnd(record);
    case KVGUARD_RECORD_RESET:
      return FeedReset(record);
    default:
      NoteGap("record-malformed", record.step);
      return Malformed("record: kind %u does not exist", record.kind);
  }
}

kvguard_status kvguard_guard::Feed(const kvguard_record* in, kvguard_verdict* verdict,
                                   kvguard_error* error) {
  Status status;
  kvguard_record record{};
  record_first_ = next_sequence_;
  record_count_ = 0;
  try {
    if (verdict != nullptr && verdict->size < sizeof(kvguard_verdict)) {
      status = Malformed("verdict: size is %u; set size = sizeof(kvguard_verdict)", verdict->size);
    } else {
      status = kvguard::step::ReadStruct(in, &record, "record");
    }
    if (status.ok()) {
      status = Dispatch(record);
    } else {
      NoteGap("record-malformed", last_step);
      // Unless its head says otherwise, it may have held bindings.
      const bool head = in != nullptr &&
                        reinterpret_cast<uintptr_t>(in) % alignof(kvguard_record) == 0 &&
                        in->size >= offsetof(kvguard_record, step);
      if (!head || MovesBindings(in->kind)) LoseBindings(last_step);
    }
  } catch (const std::bad_alloc&) {
    lost_ = true;
    NoteGap("out-of-memory", last_step);
    status = Status(KVGUARD_ERROR_MEMORY,
                    "out of memory while judging; nothing is judged until a RESET");
  } catch (const std::exception& e) {
    lost_ = true;
    NoteGap("internal-error", last_step);
    status = Status(KVGUARD_ERROR_INTERNAL,
                    std::string("a bug in kvguard; please report it: ") + e.what());
  }
  kvguard_verdict answer{};
  FillVerdict(&answer);
  for (const kvguard::RecordTap& tap : taps) {
    tap.on_record(tap.context, *this, record, status.code(), answer);
  }
  if (verdict != nullptr && verdict->size >= sizeof(kvguard_verdict)) *verdict = answer;
  return kvguard::step::Report(status, error);
}
