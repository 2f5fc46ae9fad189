// SPDX-License-Identifier: Apache-2.0
#include "audit/scenario.h"

#include <cstdio>
#include <cstdlib>

namespace kvguard::audit {
namespace {

template <typename T>
std::vector<T> Narrow(const std::vector<int64_t>& values) {
  std::vector<T> out;
  out.reserve(values.size() + 1);
  for (const int64_t value : values) out.push_back(static_cast<T>(value));
  return out;
}

kvguard_array ArrayOf(const std::vector<int64_t>& values) {
  return {values.data(), values.size(), KVGUARD_I64, 0};
}

void ShowList(const ScenarioGroup& group, const ScenarioPlan::Group& in, kvguard_group_plan* out) {
  static constexpr int64_t kNothing = 0;
  kvguard_array entries = ArrayOf(in.list);
  if (entries.count == 0) entries.data = &kNothing;  // shown, and empty
  out->encoding = group.encoding;
  if (group.encoding == KVGUARD_READ_FLAT) {
    out->reads.flat = {entries, ArrayOf(in.starts), in.sentinel};
    return;
  }
  out->reads.csr = {ArrayOf(in.starts), entries, {}};
  if (!in.last_page.empty()) out->reads.csr.last_page_len = ArrayOf(in.last_page);
}

}  // namespace

Scenario::Scenario(ScenarioOptions options) : options_(std::move(options)) {
  kvguard_pool pool{};
  pool.size = sizeof(pool);
  pool.kind = KVGUARD_POOL_PAGES;
  pool.num_blocks = options_.num_blocks;
  pool.null_block = options_.null_block;
  pool.read_trash = pool.write_trash = KVGUARD_NONE;
  std::vector<kvguard_pool> pools;
  std::vector<kvguard_group> groups;
  for (const ScenarioGroup& group : options_.groups) {
    while (pools.size() <= group.pool) {
      pool.id = static_cast<uint32_t>(pools.size());
      pools.push_back(pool);
    }
    if (group.host) pools[group.pool].memory = 1;
    pools[group.pool].kind = group.pool_kind;
    pools[group.pool].write_trash = group.write_trash;
    kvguard_group g{};
    g.size = sizeof(g);
    g.id = static_cast<uint32_t>(groups.size());
    g.pool = group.pool;
    g.kind = group.kind;
    g.window = group.window;
    g.sink = group.sink;
    g.retained = group.retained;
    g.placement = KVGUARD_PLACEMENT_ASSIGNED;
    const bool states = group.kind == KVGUARD_GROUP_STATE && group.shows_states;
    g.encoding = states ? KVGUARD_READ_STATE : KVGUARD_READ_TABLE;
    g.state_mode = group.state_mode;
    g.table_unit = group.table_unit;
    if (group.encoding != 0) g.encoding = group.encoding;
    g.flags = (IsList(group) ? 0 : options_.group_flags) | group.flags;
    g.block_size = group.block_size;
    g.kernel_block_size = group.kernel_block_size;
    g.index_scale = group.index_scale;
    g.token_stride = group.token_stride;
    g.slot_base = group.slot_base;
    g.max_columns = options_.columns;
    groups.push_back(g);
  }
  kvguard_geometry geometry{};
  geometry.size = sizeof(geometry);
  geometry.flags = options_.engine_flags;
  geometry.engine = "scenario";
  geometry.pools = pools.data();
  geometry.num_pools = static_cast<uint32_t>(pools.size());
  geometry.groups = groups.data();
  geometry.num_groups = static_cast<uint32_t>(groups.size());
  geometry.max_rows = options_.max_rows;
  geometry.max_tokens = options_.max_tokens;
  geometry.max_model_len = options_.max_model_len;
  geometry.max_drafts = options_.max_drafts;
  geometry.pad_slot = options_.pad_slot;
  geometry.num_ranks = options_.dcp_size;
  geometry.rank = geometry.dcp_rank = options_.dcp_rank;
  geometry.dcp_size = options_.dcp_size;
  geometry.interleave = options_.interleave;
  geometry.pcp_size = options_.pcp_size;
  geometry.pcp_layout = options_.pcp_layout;
  std::vector<const char*> gaps;
  for (const std::string& name : options_.standing_gaps) gaps.push_back(name.c_str());
  geometry.standing_gaps = gaps.data();
  geometry.num_standing_gaps = static_cast<uint32_t>(gaps.size());
  kvguard_config config = options_.config;
  config.size = sizeof(config);
  config.action = options_.action;
  config.latch = options_.latch;
  kvguard_error error{};
  error.size = sizeof(error);
  if (kvguard_create(&geometry, &config, &guard_, &error) != KVGUARD_OK) {
    error_text_ = error.text;
    if (options_.may_fail) return;
    std::fprintf(stderr, "scenario: %s\n", error.text);
    std::abort();
  }
}

Scenario::~Scenario() { kvguard_destroy(guard_); }

Scenario::Event_& Scenario::Push(uint32_t kind, uint64_t request) {
  Event_& e = events_.emplace_back();
  e.event.size = sizeof(e.event);
  e.event.kind = kind;
  e.event.request = request;
  e.event.group = KVGUARD_ALL_GROUPS;
  return e;
}

Scenario& Scenario::Admit(const std::string& name, std::vector<std::vector<int64_t>> blocks,
                          int64_t computed) {
  Live live;
  const auto expected = expected_.find(name);
  live.key = keys_[name] = expected != expected_.end() ? expected->second : next_key_++;
  if (expected != expected_.end()) expected_.erase(expected);
  live.computed = live.states_end = computed;
  if (blocks.size() == 1) blocks.resize(options_.groups.size(), blocks[0]);
  live.blocks = blocks;
  Event_& admit = Push(KVGUARD_EVENT_ADMIT, live.key);
  admit.event.first = computed;
  admit.name = name;
  for (uint32_t g = 0; g < blocks.size(); ++g) {
    Event_& bind = Push(KVGUARD_EVENT_REPLACE, live.key);
    bind.event.group = g;
    bind.blocks = blocks[g];
  }
  live_[name] = std::move(live);
  return *this;
}

Scenario& Scenario::Append(const std::string& name, std::vector<int64_t> blocks, uint32_t group) {
  Event_& bind = Push(KVGUARD_EVENT_APPEND, Key(name));
  bind.event.group = group;
  bind.blocks = blocks;
  auto& row = live_.at(name).blocks[group];
  row.insert(row.end(), blocks.begin(), blocks.end());
  return *this;
}

Scenario& Scenario::Replace(const std::string& name, std::vector<int64_t> blocks, uint32_t group) {
  Event_& bind = Push(KVGUARD_EVENT_REPLACE, Key(name));
  bind.event.group = group;
  bind.blocks = blocks;
  live_.at(name).blocks[group] = std::move(blocks);
  return *this;
}

Scenario& Scenario::Truncate(const std::string& name, int64_t columns, uint32_t group) {
  Event_& cut = Push(KVGUARD_EVENT_TRUNCATE, Key(name));
  cut.event.group = group;
  cut.event.first = columns;
  live_.at(name).blocks[group].resize(static_cast<size_t>(columns));
  return *this;
}

Scenario& Scenario::Rollback(const std::string& name, int64_t tokens) {
  Push(KVGUARD_EVENT_ROLLBACK, Key(name)).event.count = tokens;
  live_.at(name).computed -= tokens;
  return *this;
}

Scenario& Scenario::Finish(const std::string& name) {
  Push(KVGUARD_EVENT_FINISH, Key(name));
  live_.erase(name);
  return *this;
}

Scenario& Scenario::Preempt(const std::string& name) {
  Push(KVGUARD_EVENT_PREEMPT, Key(name));
  live_.erase(name);
  return *this;
}

Scenario& Scenario::Schedule(const std::string& name, int64_t tokens, uint32_t drafts,
                             int64_t computed) {
  Scheduled s;
  s.name = name;
  s.row.size = sizeof(s.row);
  s.row.request = Key(name);
  s.row.num_tokens = tokens;
  s.row.num_drafts = drafts;
  s.row.num_computed = computed >= 0            ? computed
                       : live_.count(name) != 0 ? live_.at(name).computed
                                                : 0;
  scheduled_.push_back(s);
  return *this;
}

Scenario& Scenario::Event(const kvguard_event& event) {
  events_.emplace_back().event = event;
  return *this;
}

Scenario& Scenario::Blocks(uint32_t kind, const std::string& name, std::vector<int64_t> blocks,
                           int64_t value, int64_t first, uint32_t group) {
  Event_& e = Push(kind, name.empty() ? 0 : Key(name));
  e.event.group = group;
  e.event.value = value;
  e.event.first = first;
  e.blocks = std::move(blocks);
  return *this;
}

Scenario& Scenario::Tokens(std::vector<int64_t> tokens) {
  for (auto it = events_.rbegin(); it != events_.rend(); ++it) {
    if (it->event.kind != KVGUARD_EVENT_ADMIT) continue;
    it->event.count = static_cast<int64_t>(tokens.size());
    it->tokens = std::move(tokens);
    break;
  }
  return *this;
}

Scenario& Scenario::Domain(uint32_t kind, int64_t value, int64_t first, int64_t count) {
  Event_& e = Push(KVGUARD_EVENT_DOMAIN, next_key_ - 1);
  e.event.other = kind;
  e.event.value = value;
  e.event.first = first;
  e.event.count = count;
  return *this;
}

Scenario& Scenario::Expect(const std::string& name) {
  keys_[name] = expected_[name] = next_key_++;
  return *this;
}

Scenario& Scenario::Gap(const std::string& name, uint32_t flags) {
  Event_& gap = Push(KVGUARD_EVENT_GAP, 0);
  gap.name = name;
  gap.event.flags = flags;
  return *this;
}

kvguard_status Scenario::Feed(uint32_t kind, uint64_t step, const void* body) {
  kvguard_record record{};
  record.size = sizeof(record);
  record.kind = kind;
  record.step = step;
  record.body.begin = static_cast<const kvguard_begin*>(body);
  kvguard_error error{};
  error.size = sizeof(error);
  verdict_ = kvguard_verdict{};
  verdict_.size = sizeof(verdict_);
  const kvguard_status status = kvguard_feed(guard_, &record, &verdict_, &error);
  error_text_ = status == KVGUARD_OK ? "" : error.text;
  return status;
}

kvguard_status Scenario::Begin() {
  std::vector<kvguard_event> events;
  for (Event_& e : events_) {
    if (!e.blocks.empty()) {
      e.event.blocks = e.blocks.data();
      e.event.num_blocks = e.blocks.size();
    }
    if (!e.tokens.empty()) {
      e.event.tokens = e.tokens.data();
      e.event.num_tokens = e.tokens.size();
    }
    if (!e.name.empty()) {
      e.event.name = e.name.data();
      e.event.name_size = e.name.size();
    }
    events.push_back(e.event);
  }
  std::vector<kvguard_scheduled> rows;
  for (const Scheduled& s : scheduled_) rows.push_back(s.row);
  kvguard_begin begin{};
  begin.size = sizeof(begin);
  begin.events = events.data();
  begin.num_events = events.size();
  begin.scheduled = rows.data();
  begin.num_scheduled = rows.size();
  const kvguard_status status = Feed(KVGUARD_RECORD_BEGIN, ++step_, &begin);
  is_open_ = true;
  events_.clear();
  open_.swap(scheduled_);
  scheduled_.clear();
  return status;
}

// The address formula of kvguard.h, as it stands there.
int64_t Scenario::SlotOf(const ScenarioGroup& group, const std::vector<int64_t>& blocks,
                         int64_t position) const {
  const auto size = static_cast<int64_t>(group.block_size);
  const int64_t n = IsSharded(group) ? options_.dcp_size : 1;
  const int64_t interleave = n > 1 ? options_.interleave : size;
  if (group.kind == KVGUARD_GROUP_RING) position %= group.window;
  const auto v = static_cast<size_t>(position / (size * n));
  const int64_t w = position % (size * n);
  if (n > 1 && w / interleave % n != options_.dcp_rank) return options_.pad_slot;
  const int64_t block = v < blocks.size() ? blocks[v] : 0;
  const int64_t offset = w / (interleave * n) * interleave + w % interleave;
  return block * size * group.index_scale + offset * group.token_stride + group.slot_base;
}

// A state stands in the column of the tokens that left it, and one column further for each draft
// that was accepted; a step goes on from there without a copy.
void Scenario::PlanStates(const ScenarioGroup& group, const Live& live,
                          const std::vector<int64_t>& blocks, const kvguard_scheduled& row,
                          ScenarioPlan::Group* out) const {
  const auto size = static_cast<int64_t>(group.block_size);
  const auto column_of = [&](int64_t tokens) {
    return group.state_mode == KVGUARD_STATE_NONE ? 0 : (tokens - 1) / size;
  };
  const auto block_in = [&](int64_t column) {
    return column >= 0 && column < static_cast<int64_t>(blocks.size())
               ? blocks[static_cast<size_t>(column)]
               : KVGUARD_NONE;
  };
  const int64_t start = live.computed;
  const int64_t place =
      group.state_mode == KVGUARD_STATE_ALL
          ? column_of(start)
          : column_of(live.states_end) + start - (live.states_end - live.states_drafts);
  out->in.push_back(start == 0 ? KVGUARD_NONE : block_in(place));
  out->out.push_back(block_in(column_of(start + row.num_tokens) + row.num_drafts));
  out->init.push_back(start == 0);
}

ScenarioPlan Scenario::RightPlan() const {
  ScenarioPlan plan;
  plan.query_start.push_back(0);
  plan.groups.resize(options_.groups.size());
  for (size_t g = 0; g < plan.groups.size(); ++g) {
    const ScenarioGroup& group = options_.groups[g];
    const uint64_t per_block = group.table_unit == KVGUARD_UNIT_KERNEL_BLOCK
                                   ? group.block_size / group.kernel_block_size
                                   : 1;
    plan.groups[g].columns = options_.columns * per_block;
  }
  for (const Scheduled& s : open_) {
    if (live_.count(s.name) == 0) continue;
    const Live& live = live_.at(s.name);
    plan.requests.push_back(live.key);
    plan.query_start.push_back(plan.query_start.back() + s.row.num_tokens);
    plan.seq_lens.push_back(live.computed + s.row.num_tokens);
    for (int64_t i = 0; i < s.row.num_tokens; ++i) plan.positions.push_back(live.computed + i);
    for (size_t g = 0; g < plan.groups.size(); ++g) {
      const ScenarioGroup& group = options_.groups[g];
      ScenarioPlan::Group& out = plan.groups[g];
      const auto size = static_cast<int64_t>(group.block_size);
      const int64_t per_block = group.table_unit == KVGUARD_UNIT_KERNEL_BLOCK
                                    ? size / static_cast<int64_t>(group.kernel_block_size)
                                    : 1;
      std::vector<int64_t> row;
      for (const int64_t block : live.blocks[g]) {
        for (int64_t j = 0; j < per_block; ++j) row.push_back(block * per_block + j);
      }
      if (group.kind == KVGUARD_GROUP_STATE && group.shows_states)
        PlanStates(group, live, live.blocks[g], s.row, &out);
      row.resize(out.columns, 0);
      out.table.insert(out.table.end(), row.begin(), row.end());
      if (IsList(group)) PlanList(group, live, live.blocks[g], s.row.num_tokens, &out);
      for (int64_t i = 0; i < s.row.num_tokens; ++i) {
        const bool clipped = group.kind == KVGUARD_GROUP_RING &&
                             i + static_cast<int64_t>(group.window) < s.row.num_tokens;
        out.slots.push_back(!clipped ? SlotOf(group, live.blocks[g], live.computed + i)
                            : group.write_trash != KVGUARD_NONE ? group.write_trash
                                                                : options_.pad_slot);
      }
    }
  }
  plan.padded_rows = plan.requests.size();
  plan.padded_tokens = plan.positions.size();
  return plan;
}

void ScenarioPlan::Pad(uint64_t rows, uint64_t tokens, int64_t pad_slot) {
  padded_rows = requests.size() + rows;
  padded_tokens = positions.size() + tokens;
  query_start.resize(padded_rows + 1, query_start.back());
  seq_lens.resize(padded_rows, 0);
  for (Group& group : groups) {
    group.table.resize(padded_rows * group.columns, 0);
    group.slots.resize(padded_tokens, pad_slot);
    if (!group.in.empty()) group.in.resize(padded_rows, KVGUARD_NONE);
    if (!group.out.empty()) group.out.resize(padded_rows, KVGUARD_NONE);
    if (!group.init.empty()) group.init.resize(padded_rows, 0);
  }
}

kvguard_status Scenario::Plan(const ScenarioPlan& plan, const RawEdit& edit) {
  std::vector<kvguard_group_plan> groups;
  std::vector<std::vector<int32_t>> narrow;
  narrow.reserve(plan.groups.size() * 2);
  for (size_t g = 0; g < plan.groups.size(); ++g) {
    const ScenarioPlan::Group& in = plan.groups[g];
    if (!in.present) continue;
    kvguard_group_plan out{};
    out.size = sizeof(out);
    out.group = static_cast<uint32_t>(g);
    if (in.slots_present) {
      if (options_.narrow_slots) {
        narrow.push_back(Narrow<int32_t>(in.slots));
        out.slots = {narrow.back().data(), in.slots.size(), KVGUARD_I32, 0};
      } else {
        out.slots = ArrayOf(in.slots);
      }
    }
    if (!in.in.empty() || !in.out.empty()) {
      out.encoding = KVGUARD_READ_STATE;
      out.reads.state.in = ArrayOf(in.in);
      out.reads.state.out = ArrayOf(in.out);
      if (!in.init.empty()) out.reads.state.init = {in.init.data(), in.init.size(), KVGUARD_U8, 0};
    } else if (!in.starts.empty()) {
      ShowList(options_.groups[g], in, &out);
    } else if (in.table_present) {
      out.encoding = KVGUARD_READ_TABLE;
      kvguard_read_table& table = out.reads.table;
      table.columns = table.row_stride = in.columns;
      table.rows = in.columns == 0 ? 0 : in.table.size() / in.columns;
      if (options_.wide_tables) {
        table.data = in.table.data();
        table.dtype = KVGUARD_I64;
      } else {
        narrow.push_back(Narrow<int32_t>(in.table));
        table.data = narrow.back().data();
        table.dtype = KVGUARD_I32;
      }
      if (!in.row_columns.empty()) table.row_columns = ArrayOf(in.row_columns);
      if (!in.seq_lens.empty()) table.seq_lens = ArrayOf(in.seq_lens);
    }
    groups.push_back(out);
  }
  kvguard_plan out{};
  out.size = sizeof(out);
  out.pass = plan.pass;
  out.pass_index = plan.pass_index;
  out.stage = plan.stage;
  out.num_rows = plan.requests.size();
  out.padded_rows = plan.padded_rows;
  out.num_tokens = plan.query_start.empty() ? 0 : plan.positions.size();
  out.padded_tokens = plan.padded_tokens;
  out.requests = plan.requests.data();
  out.query_start = ArrayOf(plan.query_start);
  out.seq_lens = ArrayOf(plan.seq_lens);
  if (plan.positions_present) out.positions = ArrayOf(plan.positions);
  if (!plan.num_computed.empty()) out.num_computed = ArrayOf(plan.num_computed);
  out.groups = groups.data();
  out.num_groups = static_cast<uint32_t>(groups.size());
  if (edit) edit(out, groups.data());
  return Feed(KVGUARD_RECORD_PLAN, step_, &out);
}

kvguard_status Scenario::End(uint32_t flags) {
  kvguard_end end{sizeof(kvguard_end), flags};
  is_open_ = false;
  if (flags == 0) {
    for (const Scheduled& s : open_) {
      if (live_.count(s.name) == 0) continue;
      Live& live = live_.at(s.name);
      live.computed += s.row.num_tokens;
      live.states_end = live.computed + live.rejected;
      live.rejected = 0;
      live.states_drafts = s.row.num_drafts;
    }
  }
  return Feed(KVGUARD_RECORD_END, step_, &end);
}

kvguard_status Scenario::Outcome(uint64_t step, const std::string& name, uint32_t sampled,
                                 uint32_t rejected, const std::vector<int64_t>& tokens) {
  kvguard_outcome_row row{};
  row.size = sizeof(row);
  row.request = Key(name);
  row.num_sampled = sampled;
  row.num_rejected = rejected;
  row.tokens = tokens.empty() ? nullptr : tokens.data();
  row.num_tokens = tokens.size();
  if (live_.count(name) != 0) {
    live_.at(name).computed -= rejected;
    if (is_open_ && step == step_) live_.at(name).rejected = rejected;
  }
  kvguard_outcome outcome{};
  outcome.size = sizeof(outcome);
  outcome.rows = &row;
  outcome.num_rows = 1;
  return Feed(KVGUARD_RECORD_OUTCOME, step, &outcome);
}

kvguard_status Scenario::Reset(uint32_t reason) {
  live_.clear();
  kvguard_reset reset{sizeof(kvguard_reset), reason};
  return Feed(KVGUARD_RECORD_RESET, step_, &reset);
}

kvguard_verdict Scenario::Step(const std::function<void(ScenarioPlan&)>& edit) {
  Begin();
  ScenarioPlan plan = RightPlan();
  if (edit) edit(plan);
  Plan(plan);
  End();
  return verdict_;
}

void Scenario::Follow(const Scenario& other) {
  live_ = other.live_;
  keys_ = other.keys_;
  step_ = other.step_;
  next_key_ = other.next_key_;
}

uint64_t Scenario::Key(const std::string& name) const {
  const auto it = keys_.find(name);
  return it != keys_.end() ? it->second : 999'999;  // a key that nobody was admitted under
}

int64_t& Scenario::Computed(const std::string& name) { return live_.at(name).computed; }

std::vector<kvguard_finding> Scenario::Findings(uint64_t first) const {
  size_t count = 0;
  kvguard_findings(guard_, first, nullptr, 0, &count, nullptr);
  std::vector<kvguard_finding> out(count + 1);
  out[0].size = sizeof(kvguard_finding);
  kvguard_findings(guard_, first, out.data(), count, &count, nullptr);
  out.resize(count);
  return out;
}

std::vector<uint32_t> Scenario::Codes() const {
  std::vector<uint32_t> codes;
  for (const kvguard_finding& finding : Findings()) codes.push_back(finding.code);
  return codes;
}

std::string Scenario::Explain(const kvguard_finding& finding) const {
  size_t needed = 0;
  kvguard_explain(guard_, &finding, nullptr, 0, &needed, nullptr);
  std::string text(needed, '\0');
  if (kvguard_explain(guard_, &finding, text.data(), text.size(), &needed, nullptr) != KVGUARD_OK)
    return "";
  text.pop_back();  // the terminating NUL
  return text;
}

std::string Scenario::Report() const {
  std::string report;
  for (const kvguard_finding& finding : Findings()) report += Explain(finding);
  return report;
}

std::vector<uint8_t> Scenario::Snapshot() const {
  size_t needed = 0;
  kvguard_snapshot(guard_, nullptr, 0, &needed, nullptr);
  std::vector<uint8_t> bytes(needed);
  if (kvguard_snapshot(guard_, bytes.data(), bytes.size(), &needed, nullptr) != KVGUARD_OK)
    bytes.clear();
  return bytes;
}

kvguard_status Scenario::Restore(const std::vector<uint8_t>& bytes) {
  kvguard_error error{};
  error.size = sizeof(error);
  const kvguard_status status = kvguard_restore(guard_, bytes.data(), bytes.size(), &error);
  error_text_ = status == KVGUARD_OK ? "" : error.text;
  return status;
}

}  // namespace kvguard::audit
