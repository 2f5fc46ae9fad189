/* SPDX-License-Identifier: Apache-2.0
 *
 * Builders for geometries and records that own what they point to. A part of kvguard.hpp, which
 * includes it; an engine with persistent buffers of its own fills the structs of kvguard.h instead
 * and copies nothing.
 */
#ifndef KVGUARD_BUILDERS_HPP_
#define KVGUARD_BUILDERS_HPP_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvguard/kvguard.h"
#include "kvguard/kvguard.hpp"  // NOLINT(misc-header-include-cycle): whichever comes first

namespace kvguard {

/* ---- GeometryBuilder ---- */

/* A geometry that owns its arrays and names. It starts as one rank of one engine with dense paged
 * attention; whatever differs is set on the structs themselves. */
class GeometryBuilder {
 public:
  /* max_rows, max_tokens: the most that one pass may have, padding included. */
  GeometryBuilder(std::string_view engine, std::string_view engine_version, uint64_t max_rows,
                  uint64_t max_tokens)
      : engine_(engine), engine_version_(engine_version), geometry_(Sized<kvguard_geometry>()) {
    geometry_.max_rows = max_rows;
    geometry_.max_tokens = max_tokens;
    geometry_.pad_slot = -1;
    geometry_.num_ranks = geometry_.tp_size = geometry_.pp_size = 1;
    geometry_.dcp_size = geometry_.pcp_size = geometry_.interleave = 1;
  }

  /* A pool of pages in device memory. Returns its id. */
  uint32_t AddPool(uint64_t num_blocks, int64_t null_block = KVGUARD_NONE) {
    kvguard_pool pool = Sized<kvguard_pool>();
    pool.id = static_cast<uint32_t>(pools_.size());
    pool.kind = KVGUARD_POOL_PAGES;
    pool.num_blocks = num_blocks;
    pool.null_block = null_block;
    pool.read_trash = pool.write_trash = KVGUARD_NONE;
    pools_.push_back(pool);
    return pool.id;
  }

  /* A group of full-attention layers that are addressed by block tables. Returns its id. */
  uint32_t AddGroup(uint32_t pool, uint32_t block_size) {
    kvguard_group group = Sized<kvguard_group>();
    group.id = static_cast<uint32_t>(groups_.size());
    group.pool = pool;
    group.kind = KVGUARD_GROUP_FULL;
    group.placement = KVGUARD_PLACEMENT_ASSIGNED;
    group.encoding = KVGUARD_READ_TABLE;
    group.table_unit = KVGUARD_UNIT_BLOCK;
    group.block_size = group.kernel_block_size = block_size;
    group.index_scale = group.token_stride = 1;
    groups_.push_back(group);
    return group.id;
  }

  /* Something that this engine does and nobody judges, by name. */
  GeometryBuilder& AddStandingGap(std::string_view name) {
    standing_gaps_.emplace_back(name);
    return *this;
  }

  /* To change what is not the default. Arrays, counts and names are set by Build. */
  kvguard_geometry& fields() { return geometry_; }
  kvguard_pool& pool(uint32_t id) { return pools_[id]; }
  kvguard_group& group(uint32_t id) { return groups_[id]; }

  /* Valid until this builder changes or goes. */
  const kvguard_geometry& Build() {
    gap_names_.clear();
    for (const std::string& name : standing_gaps_) gap_names_.push_back(name.c_str());
    geometry_.engine = engine_.c_str();
    geometry_.engine_version = engine_version_.c_str();
    geometry_.pools = pools_.data();
    geometry_.num_pools = static_cast<uint32_t>(pools_.size());
    geometry_.groups = groups_.data();
    geometry_.num_groups = static_cast<uint32_t>(groups_.size());
    geometry_.standing_gaps = gap_names_.data();
    geometry_.num_standing_gaps = static_cast<uint32_t>(gap_names_.size());
    return geometry_;
  }

 private:
  std::string engine_;
  std::string engine_version_;
  std::vector<kvguard_pool> pools_;
  std::vector<kvguard_group> groups_;
  std::vector<std::string> standing_gaps_;
  std::vector<const char*> gap_names_;
  kvguard_geometry geometry_;
};

/* ---- StepBuilder ---- */

/* The records of one step, with everything they point to. Fill and feed them in the order of the
 * step: events and schedule, Begin; rows, slots and tables, Plan, as often as there are passes;
 * outcomes, Outcome; End. A record is valid until the next call. NewStep starts over. */
class StepBuilder {
 public:
  explicit StepBuilder(uint64_t step) : step_(step) {}
  StepBuilder(const StepBuilder&) = delete;  // records point into it
  StepBuilder& operator=(const StepBuilder&) = delete;

  void NewStep(uint64_t step) {
    step_ = step;
    blocks_.clear();
    names_.clear();
    events_.clear();
    scheduled_.clear();
    outcomes_.clear();
    ClearPlan();
  }

  /* ---- BEGIN ---- */

  /* claimed: tokens whose KV is said to be valid already; known: tokens of the request so far. */
  StepBuilder& Admit(uint64_t request, std::string_view name, int64_t claimed, int64_t known) {
    names_.emplace_back(name);
    kvguard_event& event = AddEvent(KVGUARD_EVENT_ADMIT, request);
    event.first = claimed;
    event.count = known;
    event.name = names_.back().data();
    event.name_size = names_.back().size();
    return *this;
  }
  StepBuilder& Finish(uint64_t request) {
    AddEvent(KVGUARD_EVENT_FINISH, request);
    return *this;
  }
  StepBuilder& Preempt(uint64_t request) {
    AddEvent(KVGUARD_EVENT_PREEMPT, request);
    return *this;
  }
  StepBuilder& Append(uint64_t request, uint32_t group, std::vector<int64_t> blocks) {
    return Bind(KVGUARD_EVENT_APPEND, request, group, std::move(blocks));
  }
  StepBuilder& Replace(uint64_t request, uint32_t group, std::vector<int64_t> blocks) {
    return Bind(KVGUARD_EVENT_REPLACE, request, group, std::move(blocks));
  }

  /* Any other event: its further fields are set on what comes back, which lives until the next
   * event. */
  kvguard_event& AddEvent(kvguard_event_kind kind, uint64_t request = 0) {
    kvguard_event event = Sized<kvguard_event>();
    event.kind = static_cast<uint32_t>(kind);
    event.request = request;
    events_.push_back(event);
    return events_.back();
  }

  StepBuilder& Schedule(uint64_t request, int64_t num_tokens, int64_t num_computed,
                        uint32_t num_drafts = 0) {
    kvguard_scheduled scheduled = Sized<kvguard_scheduled>();
    scheduled.request = request;
    scheduled.num_tokens = num_tokens;
    scheduled.num_computed = num_computed;
    scheduled.num_drafts = num_drafts;
    scheduled_.push_back(scheduled);
    return *this;
  }

  const kvguard_record& Begin() {
    begin_ = Sized<kvguard_begin>();
    begin_.events = events_.data();
    begin_.num_events = events_.size();
    begin_.scheduled = scheduled_.data();
    begin_.num_scheduled = scheduled_.size();
    record_ = NewRecord(KVGUARD_RECORD_BEGIN);
    record_.body.begin = &begin_;
    return record_;
  }

  /* ---- PLAN ---- */

  /* The next row of the batch: its tokens in this pass, and how long its KV is once they are
   * written. */
  StepBuilder& Row(uint64_t request, int64_t num_tokens, int64_t seq_len) {
    requests_.push_back(request);
    query_start_.push_back(query_start_.back() + num_tokens);
    seq_lens_.push_back(seq_len);
    return *this;
  }

  /* Further write slots, in the order of the rows' tokens. */
  StepBuilder& Slots(uint32_t group, const std::vector<int64_t>& slots) {
    std::vector<int64_t>& all = GroupOf(group).slots;
    all.insert(all.end(), slots.begin(), slots.end());
    return *this;
  }

  /* The next row of a group's table, in the group's table unit. */
  StepBuilder& TableRow(uint32_t group, std::vector<int64_t> entries) {
    GroupOf(group).rows.push_back(std::move(entries));
    return *this;
  }

  /* The plan's other fields (padding, positions, num_computed), set before Plan. */
  kvguard_plan& plan() { return plan_; }

  /* The plan of a pass. For that of another pass with other rows: ClearPlan first. */
  const kvguard_record& Plan(kvguard_pass pass = KVGUARD_PASS_TARGET,
                             kvguard_stage stage = KVGUARD_STAGE_PLANNED, uint32_t pass_index = 0) {
    plan_.size = static_cast<uint32_t>(sizeof plan_);
    plan_.pass = static_cast<uint32_t>(pass);
    plan_.stage = static_cast<uint32_t>(stage);
    plan_.pass_index = pass_index;
    plan_.num_rows = requests_.size();
    plan_.num_tokens = static_cast<uint64_t>(query_start_.back());
    if (plan_.padded_rows < plan_.num_rows) plan_.padded_rows = plan_.num_rows;
    if (plan_.padded_tokens < plan_.num_tokens) plan_.padded_tokens = plan_.num_tokens;
    plan_.requests = requests_.data();
    plan_.query_start = View(query_start_);
    plan_.seq_lens = View(seq_lens_);
    group_plans_.clear();
    for (PlannedGroup& group : groups_) group_plans_.push_back(group.Build());
    plan_.groups = group_plans_.data();
    plan_.num_groups = static_cast<uint32_t>(group_plans_.size());
    record_ = NewRecord(KVGUARD_RECORD_PLAN);
    record_.body.plan = &plan_;
    return record_;
  }

  void ClearPlan() {
    requests_.clear();
    query_start_.assign(1, 0);
    seq_lens_.clear();
    groups_.clear();
    plan_ = kvguard_plan{};
  }

  /* ---- OUTCOME, END, RESET ---- */

  StepBuilder& Sampled(uint64_t request, uint32_t num_sampled, uint32_t num_rejected = 0) {
    kvguard_outcome_row row = Sized<kvguard_outcome_row>();
    row.request = request;
    row.num_sampled = num_sampled;
    row.num_rejected = num_rejected;
    outcomes_.push_back(row);
    return *this;
  }

  const kvguard_record& Outcome() {
    outcome_ = Sized<kvguard_outcome>();
    outcome_.rows = outcomes_.data();
    outcome_.num_rows = outcomes_.size();
    record_ = NewRecord(KVGUARD_RECORD_OUTCOME);
    record_.body.outcome = &outcome_;
    return record_;
  }

  const kvguard_record& End(uint32_t flags = 0) {
    end_ = Sized<kvguard_end>();
    end_.flags = flags;
    record_ = NewRecord(KVGUARD_RECORD_END);
    record_.body.end = &end_;
    return record_;
  }

  const kvguard_record& Reset(kvguard_reset_reason reason) {
    reset_ = Sized<kvguard_reset>();
    reset_.reason = static_cast<uint32_t>(reason);
    record_ = NewRecord(KVGUARD_RECORD_RESET);
    record_.body.reset = &reset_;
    return record_;
  }

 private:
  struct PlannedGroup {
    uint32_t group;
    std::vector<int64_t> slots;
    std::vector<std::vector<int64_t>> rows;
    std::vector<int64_t> table;  // the rows, each as wide as the widest

    kvguard_group_plan Build() {
      kvguard_group_plan plan = Sized<kvguard_group_plan>();
      plan.group = group;
      if (!slots.empty()) plan.slots = View(slots);
      if (rows.empty()) return plan;
      size_t columns = 0;
      for (const auto& row : rows) columns = row.size() > columns ? row.size() : columns;
      table.assign(rows.size() * columns, 0);
      for (size_t b = 0; b < rows.size(); ++b) {
        for (size_t j = 0; j < rows[b].size(); ++j) table[b * columns + j] = rows[b][j];
      }
      plan.encoding = KVGUARD_READ_TABLE;
      plan.reads.table.data = table.data();
      plan.reads.table.dtype = KVGUARD_I64;
      plan.reads.table.rows = rows.size();
      plan.reads.table.columns = columns;
      plan.reads.table.row_stride = columns;
      return plan;
    }
  };

  kvguard_record NewRecord(kvguard_record_kind kind) const {
    kvguard_record record = Sized<kvguard_record>();
    record.kind = static_cast<uint32_t>(kind);
    record.step = step_;
    return record;
  }

  StepBuilder& Bind(kvguard_event_kind kind, uint64_t request, uint32_t group,
                    std::vector<int64_t> blocks) {
    blocks_.push_back(std::move(blocks));
    kvguard_event& event = AddEvent(kind, request);
    event.group = group;
    event.blocks = blocks_.back().data();
    event.num_blocks = blocks_.back().size();
    return *this;
  }

  PlannedGroup& GroupOf(uint32_t group) {
    for (PlannedGroup& planned : groups_) {
      if (planned.group == group) return planned;
    }
    groups_.push_back({group, {}, {}, {}});
    return groups_.back();
  }

  uint64_t step_;
  // Deques: events point at their elements, which must not move.
  std::deque<std::vector<int64_t>> blocks_;
  std::deque<std::string> names_;
  std::vector<kvguard_event> events_;
  std::vector<kvguard_scheduled> scheduled_;
  std::vector<uint64_t> requests_;
  std::vector<int64_t> query_start_ = {0};
  std::vector<int64_t> seq_lens_;
  std::vector<PlannedGroup> groups_;
  std::vector<kvguard_group_plan> group_plans_;
  std::vector<kvguard_outcome_row> outcomes_;
  kvguard_begin begin_{};
  kvguard_plan plan_{};
  kvguard_outcome outcome_{};
  kvguard_end end_{};
  kvguard_reset reset_{};
  kvguard_record record_{};
};

}  // namespace kvguard

#endif  // KVGUARD_BUILDERS_HPP_
