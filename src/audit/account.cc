// SPDX-License-Identifier: Apache-2.0
// What a guard answers: the verdict, coverage, gaps, names. Nothing here changes what is judged.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "audit/guard.h"
#include "explain/prose.h"

using kvguard::step::OutOfOrder;

namespace {

using Ull = unsigned long long;

}  // namespace

bool kvguard_guard::FamiliesComplete() const {
  // Counters only grow, so that what was complete once stays complete: a feed pays for this in the
  // first steps only.
  if (families_complete_) return true;
  for (const kvguard_coverage_row& row : CoverageRows()) {
    if (row.expected != 0 && row.judged == 0) return false;
  }
  families_complete_ = true;
  return true;
}

void kvguard_guard::FillVerdict(kvguard_verdict* out) const {
  kvguard_verdict v{};
  v.size = sizeof(v);
  v.step = last_step;
  v.first_sequence = record_first_;
  v.num_findings = record_count_;
  v.steps = steps_;
  v.steps_judged = steps_judged_;
  v.plans = plans_;
  v.rows = counters_.rows;
  v.slots = counters_.slots;
  v.entries = counters_.entries;
  v.proofs = proofs_;
  v.suspicions = suspicions_;
  v.assumptions = counters_.assumptions;
  v.step_gaps = step_gaps_;
  v.ignored = counters_.ignored;
  v.violated_steps = violated_steps_;
  v.first_violated_step = first_violated_step_;
  v.step_verdict = step_proofs_ > 0 ? KVGUARD_VIOLATED
                   : step_gap_      ? KVGUARD_CANNOT_JUDGE
                                    : KVGUARD_CLEAN;
  v.verdict = KVGUARD_CLEAN;
  if (proofs_ > 0) {
    v.verdict = KVGUARD_VIOLATED;
  } else if (step_gaps_ > 0 || steps_judged_ == 0 || !FamiliesComplete()) {
    v.verdict = KVGUARD_CANNOT_JUDGE;
  }
  v.must_raise = config.action == KVGUARD_ACTION_RAISE &&
                 (step_proofs_ > 0 || (config.latch != 0 && proofs_ > 0));
  *out = v;
}

std::vector<kvguard_coverage_row> kvguard_guard::CoverageRows() const {
  std::vector<kvguard_coverage_row> rows;
  // An engine may show its plans at either stage; what it shows nowhere is missed at the first.
  const auto shown_stage = [&](uint32_t group, uint32_t pass, uint32_t family) -> uint32_t {
    const bool final_only = coverage_.Get(group, pass, KVGUARD_STAGE_PLANNED, family) == 0 &&
                            coverage_.Get(group, pass, KVGUARD_STAGE_FINAL, family) > 0;
    return final_only ? KVGUARD_STAGE_FINAL : KVGUARD_STAGE_PLANNED;
  };
  // ... or in micro-batches alone.
  const auto target_pass = [&](uint32_t group, uint32_t family) -> uint32_t {
    const auto judged = [&](uint32_t pass) {
      return coverage_.Get(group, pass, KVGUARD_STAGE_PLANNED, family) +
             coverage_.Get(group, pass, KVGUARD_STAGE_FINAL, family);
    };
    const bool micro = judged(KVGUARD_PASS_TARGET) == 0 && judged(KVGUARD_PASS_MICRO_BATCH) > 0;
    return micro ? KVGUARD_PASS_MICRO_BATCH : KVGUARD_PASS_TARGET;
  };
  const auto expected = [&](uint32_t group, uint32_t pass, uint32_t stage, uint32_t family) {
    if (pass == 0) {
      if (stage != 0) return false;
      return group == KVGUARD_ALL_GROUPS &&
             (family == KVGUARD_FAMILY_BINDING || family == KVGUARD_FAMILY_OWNERSHIP ||
              family == KVGUARD_FAMILY_FRONTIER);
    }
    if (group != KVGUARD_ALL_GROUPS && layout.groups[group].on_host) return false;
    const bool cross = group != KVGUARD_ALL_GROUPS && layout.groups[group].IsCross();
    const uint32_t wanted = cross ? uint32_t{KVGUARD_PASS_CROSS} : target_pass(group, family);
    if (pass != wanted || stage != shown_stage(group, wanted, family)) return false;
    if (group != KVGUARD_ALL_GROUPS && layout.groups[group].IsState()) {
      return family == (layout.groups[group].encoding == KVGUARD_READ_STATE ? KVGUARD_FAMILY_STATE
                                                                            : KVGUARD_FAMILY_TABLE);
    }
    return group == KVGUARD_ALL_GROUPS
               ? family == KVGUARD_FAMILY_STEP || family == KVGUARD_FAMILY_LENGTH ||
                     (family == KVGUARD_FAMILY_LIFETIME &&
                      (layout.forgets || layout.has_rings))  // each row's window
               : family == KVGUARD_FAMILY_TABLE || family == KVGUARD_FAMILY_SLOT;
  };
  using kvguard::rules::Coverage;
  for (uint32_t g = 0; g <= coverage_.num_groups(); ++g) {
    const uint32_t group = g == 0 ? KVGUARD_ALL_GROUPS : g - 1;
    for (uint32_t pass = 0; pass < Coverage::kPasses; ++pass) {
      for (uint32_t stage = 0; stage < Coverage::kStages; ++stage) {
        for (uint32_t family = 1; family < Coverage::kFamilies; ++family) {
          const uint64_t judged = coverage_.Get(group, pass, stage, family);
          const bool wanted = expected(group, pass, stage, family);
          if (judged == 0 && !wanted) continue;
          rows.push_back(
              {sizeof(kvguard_coverage_row), group, pass, stage, family, wanted ? 1u : 0u, judged});
        }
      }
    }
  }
  return rows;
}

std::vector<kvguard_gap> kvguard_guard::Gaps() const {
  std::vector<kvguard_gap> out;
  for (const std::string& name : standing_) {
    kvguard_gap gap{};
    gap.size = sizeof(gap);
    gap.standing = 1;
    std::memcpy(gap.name, name.data(), std::min(name.size(), sizeof(gap.name) - 1));
    out.push_back(gap);
  }
  for (const auto& [name, gap] : gaps_) out.push_back(gap);
  return out;
}

std::string kvguard_guard::NameOf(uint64_t key) const {
  std::string_view name;  // an empty one would leave a field without a value
  if (const auto* request = mirror.FindRequest(key)) {
    name = request->name;
  } else if (const auto* released = mirror.FindReleased(key)) {
    name = released->name;
  } else if (const auto it = names_.find(key); it != names_.end()) {
    name = it->second;
  }
  if (!name.empty()) return kvguard::explain::PercentEncode(name);
  return kvguard::step::Sprintf("key:%llu", static_cast<Ull>(key));
}

kvguard::step::Status kvguard_guard::Restore(std::string_view bytes) {
  if (step_open) return OutOfOrder("restore: a step is open; feed END first");
  if (Status status = mirror.Restore(bytes); !status.ok()) return status;
  restored_step_ = mirror.last_begun();
  return {};
}

namespace kvguard {

void AddTap(kvguard_guard& guard, const RecordTap& tap) { guard.taps.push_back(tap); }

void RemoveTap(kvguard_guard& guard, void* context) {
  std::erase_if(guard.taps, [&](const RecordTap& tap) { return tap.context == context; });
}

void* FindTap(const kvguard_guard& guard, decltype(RecordTap::on_record) on_record) {
  for (const RecordTap& tap : guard.taps) {
    if (tap.on_record == on_record) return tap.context;
  }
  return nullptr;
}

const kvguard_geometry& GeometryOf(const kvguard_guard& guard) { return guard.geometry.view; }
const kvguard_config& ConfigOf(const kvguard_guard& guard) { return guard.config; }
bool HasOpenStep(const kvguard_guard& guard) { return guard.step_open; }
bool MirrorIsEmpty(const kvguard_guard& guard) { return guard.mirror.num_live() == 0; }

uint64_t JudgedColumns(const kvguard_guard& guard, const kvguard_plan& plan,
                       const kvguard_group_plan& group_plan, uint64_t row) {
  if (group_plan.encoding != KVGUARD_READ_TABLE || group_plan.group >= guard.layout.groups.size())
    return 0;
  const kvguard_read_table& table = group_plan.reads.table;
  // Padding rows are judged as a whole.
  if (row >= plan.num_rows) return table.columns;
  const geometry::Group& group = guard.layout.groups[group_plan.group];
  uint64_t columns = 0;
  if (const auto* request = guard.mirror.FindRequest(plan.requests[row])) {
    columns = request->rows[group.id].entries.size();
  }
  // What attention will read besides belongs to the picture that a person wants to see.
  const kvguard_array& lens = plan.seq_lens;
  if (row < lens.count && lens.data != nullptr && lens.dtype != KVGUARD_DTYPE_NONE) {
    const int64_t length = lens.dtype == KVGUARD_I64 ? static_cast<const int64_t*>(lens.data)[row]
                                                     : static_cast<const int32_t*>(lens.data)[row];
    if (length > 0) {
      columns = std::max(
          columns, static_cast<uint64_t>(geometry::BlocksFor(length, group.TokensPerEntry())));
    }
  }
  return std::min(columns, table.columns);
}

std::string Explain(const kvguard_guard& guard, const kvguard_finding& finding) {
  const explain::NameOf name_of = [&](uint64_t key) { return guard.NameOf(key); };
  return explain::MachineLine(finding, name_of) + "\n" +
         explain::Prose(finding, guard.layout, name_of) + "\n";
}

}  // namespace kvguard
