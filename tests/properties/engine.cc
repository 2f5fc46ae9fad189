// SPDX-License-Identifier: Apache-2.0
#include "tests/properties/engine.h"

#include <algorithm>
#include <numeric>
#include <sstream>
#include <utility>

namespace kvguard::properties {
namespace {

constexpr int64_t kPadSlot = -1;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <typename T>
std::vector<T> Laid(const std::vector<int64_t>& values, size_t shift) {
  std::vector<T> laid(shift, T{0x5a});
  for (int64_t value : values) laid.push_back(static_cast<T>(value));
  return laid;
}

// The same rows with elements between them that are not the table's.
std::vector<int64_t> Strided(const std::vector<int64_t>& table, size_t columns, size_t stride) {
  std::vector<int64_t> strided;
  for (size_t first = 0; first < table.size(); first += columns) {
    strided.insert(strided.end(), table.begin() + static_cast<ptrdiff_t>(first),
                   table.begin() + static_cast<ptrdiff_t>(first + columns));
    strided.insert(strided.end(), stride, 0x5a);
  }
  return strided;
}

}  // namespace

int64_t Draw(int64_t least, int64_t most) { return *rc::gen::inRange(least, most + 1); }

bool Flip() { return Draw(0, 1) == 1; }

/* ---- Presented ---- */

Presented::Presented(const PlanValues& values, uint64_t step, kvguard_stage stage,
                     const Layout& layout)
    : requests_(values.requests), plan_(Sized<kvguard_plan>()), record_(Sized<kvguard_record>()) {
  plan_.pass = KVGUARD_PASS_TARGET;
  plan_.stage = static_cast<uint32_t>(stage);
  plan_.num_rows = values.num_rows();
  plan_.padded_rows = values.padded_rows;
  plan_.num_tokens = values.num_tokens();
  plan_.padded_tokens = values.padded_tokens;
  plan_.requests = requests_.data();
  plan_.query_start = Array(values.query_start, layout);
  plan_.seq_lens = Array(values.seq_lens, layout);
  plan_.positions = Array(values.positions, layout);
  plan_.num_computed = Array(values.num_computed, layout);
  for (size_t index = 0; index < values.groups.size(); ++index) {
    const GroupValues& from = values.groups[index];
    kvguard_group_plan group = Sized<kvguard_group_plan>();
    group.group = static_cast<uint32_t>(index);
    group.slots = Array(from.slots, layout);
    group.encoding = KVGUARD_READ_TABLE;
    kvguard_read_table& table = group.reads.table;
    const kvguard_array entries = Array(Strided(from.table, from.columns, layout.stride), layout);
    table.data = entries.data;
    table.dtype = entries.dtype;
    table.rows = values.padded_rows;
    table.columns = from.columns;
    table.row_stride = from.columns + layout.stride;
    table.seq_lens = Array(from.seq_lens, layout);
    table.row_columns = Array(from.row_columns, layout);
    groups_.push_back(group);
  }
  plan_.groups = groups_.data();
  plan_.num_groups = static_cast<uint32_t>(groups_.size());
  record_.kind = KVGUARD_RECORD_PLAN;
  record_.step = step;
  record_.body.plan = &plan_;
}

kvguard_array Presented::Array(const std::vector<int64_t>& values, const Layout& layout) {
  if (values.empty()) return kvguard_array{};
  if (layout.narrow) {
    narrow_.push_back(Laid<int32_t>(values, layout.shift));
    return View(narrow_.back().data() + layout.shift, values.size());
  }
  wide_.push_back(Laid<int64_t>(values, layout.shift));
  return View(wide_.back().data() + layout.shift, values.size());
}

/* ---- Engine ---- */

Engine::Engine() : builder_("drawn", "1", 64, 4096) {
  ranks_ = Pick<int64_t>({1, 1, 2, 3});
  rank_ = Draw(0, ranks_ - 1);
  interleave_ = ranks_ == 1 ? 1 : Draw(1, 3);
  kvguard_geometry& fields = builder_.fields();
  fields.flags = Flip() ? KVGUARD_ENGINE_ASYNC : 0;
  fields.dcp_size = static_cast<uint32_t>(ranks_);
  fields.dcp_rank = static_cast<uint32_t>(rank_);
  fields.interleave = static_cast<uint32_t>(interleave_);
  const int64_t num_pools = Draw(1, 2);
  for (int64_t pool = 0; pool < num_pools; ++pool) {
    null_blocks_.push_back(Pick<int64_t>({0, 0, KVGUARD_NONE, 7}));
    builder_.AddPool(static_cast<uint64_t>(kNumBlocks), null_blocks_.back());
    const int64_t stride = Draw(1, kNumBlocks - 1);
    std::deque<int64_t>& free = free_.emplace_back();
    for (int64_t i = 0; i < kNumBlocks; ++i) {
      const int64_t block = (i * stride + 1) % kNumBlocks;
      if (block != null_blocks_.back()) free.push_back(block);
    }
  }
  const int64_t num_groups = Draw(1, 3);
  for (int64_t i = 0; i < num_groups; ++i) {
    DrawGroup(static_cast<uint32_t>(Draw(0, num_pools - 1)));
  }
}

void Engine::DrawGroup(uint32_t pool) {
  // a multiple of the interleave, as a sharded group's must be
  const int64_t kernel = Pick<int64_t>({1, 2, 3, 4, 8, 16}) * interleave_;
  const int64_t block = kernel * Pick<int64_t>({1, 1, 2, 3, 4});
  const uint32_t id = builder_.AddGroup(pool, static_cast<uint32_t>(block));
  kvguard_group& group = builder_.group(id);
  group.kernel_block_size = static_cast<uint32_t>(kernel);
  group.table_unit = Flip() ? KVGUARD_UNIT_KERNEL_BLOCK : KVGUARD_UNIT_BLOCK;
  if (Flip()) group.flags |= KVGUARD_GROUP_PAD_ROWS_NULL;
  if (ranks_ > 1 && Flip()) group.flags |= KVGUARD_GROUP_REPLICATED;
  const auto kind =
      Pick<kvguard_group_kind>({KVGUARD_GROUP_FULL, KVGUARD_GROUP_WINDOW, KVGUARD_GROUP_CHUNKED});
  group.kind = static_cast<uint32_t>(kind);
  if (kind != KVGUARD_GROUP_FULL) group.window = static_cast<uint32_t>(Draw(1, 40));
  if (kind == KVGUARD_GROUP_WINDOW) {
    group.sink = static_cast<uint32_t>(Draw(0, 6));
    group.retained = static_cast<uint32_t>(Draw(0, 4));
  }
  groups_.push_back(group);
}

std::string Engine::ToString() {
  std::ostringstream out;
  out << "ranks " << ranks_ << ", rank " << rank_ << ", interleave " << interleave_;
  for (const kvguard_group& group : groups_) {
    out << "; group " << group.id << ": pool " << group.pool << ", kind " << group.kind << ", "
        << group.block_size << "/" << group.kernel_block_size << ", unit " << group.table_unit
        << ", flags " << group.flags << ", window " << group.window << ", sink " << group.sink
        << ", retained " << group.retained;
  }
  for (const Request& request : live_) {
    out << "; request " << request.key << ": " << request.computed << "+" << request.scheduled;
  }
  return out.str();
}

int64_t Engine::Ranks(size_t group) const {
  return (groups_[group].flags & KVGUARD_GROUP_REPLICATED) != 0 ? 1 : ranks_;
}

int64_t Engine::ColumnTokens(size_t group) const {
  return groups_[group].block_size * Ranks(group);
}

int64_t Engine::EntriesPerBlock(size_t group) const {
  const kvguard_group& g = groups_[group];
  return g.table_unit == KVGUARD_UNIT_BLOCK ? 1 : g.block_size / g.kernel_block_size;
}

int64_t Engine::Slot(const Request& request, size_t group, int64_t position) const {
  const int64_t n = Ranks(group);
  const int64_t r = n == 1 ? 0 : rank_;
  const int64_t i = n == 1 ? 1 : interleave_;
  const int64_t p = groups_[group].block_size;
  const int64_t v = position / (p * n);
  const int64_t w = position % (p * n);
  if ((w / i) % n != r) return kPadSlot;
  const int64_t offset = (w / (i * n)) * i + w % i;
  return request.rows[group][static_cast<size_t>(v)] * p + offset;
}

int64_t Engine::LocalLength(size_t group, int64_t tokens) const {
  const int64_t n = Ranks(group);
  if (n == 1) return tokens;
  const int64_t whole = tokens / (n * interleave_);
  const int64_t rest = tokens % (n * interleave_);
  return whole * interleave_ + std::clamp<int64_t>(rest - rank_ * interleave_, 0, interleave_);
}

bool Engine::IsNeeded(size_t group, int64_t column, int64_t start) const {
  const kvguard_group& g = groups_[group];
  if (g.kind == KVGUARD_GROUP_FULL) return true;
  const int64_t window = g.window;
  const bool chunked = g.kind == KVGUARD_GROUP_CHUNKED;
  const int64_t first = chunked ? start / window * window
                                : std::max<int64_t>(0, start - window + 1 - int64_t{g.retained});
  const int64_t tokens = ColumnTokens(group);
  if (!chunked && column < CeilDiv(g.sink, tokens)) return true;
  return (column + 1) * tokens > first;
}

int64_t Engine::NewBlock(size_t group) {
  std::deque<int64_t>& free = free_[groups_[group].pool];
  RC_PRE(!free.empty());
  const int64_t block = free.front();
  free.pop_front();
  return block;
}

void Engine::Admit() {
  Request request;
  request.key = next_key_++;
  request.rows.resize(groups_.size());
  records_.Admit(request.key, std::to_string(request.key), 0, Draw(1, 300));
  live_.push_back(std::move(request));
}

void Engine::Finish(size_t index) {
  if (Flip()) {
    records_.Finish(live_[index].key);
  } else {
    records_.Preempt(live_[index].key);
  }
  for (size_t group = 0; group < groups_.size(); ++group) {
    std::deque<int64_t>& free = free_[groups_[group].pool];
    // to the front: the next request takes what this one has left
    for (int64_t block : live_[index].rows[group]) free.push_front(block);
  }
  live_.erase(live_.begin() + static_cast<ptrdiff_t>(index));
}

void Engine::ScheduleRow(Request& request) {
  // long rows too: kernels that compare many values at once have a middle and two ends
  request.scheduled = Flip() ? Draw(1, 6) : Draw(1, 90);
  for (size_t group = 0; group < groups_.size(); ++group) {
    const int64_t end = request.computed + request.scheduled;
    const int64_t lookahead = Draw(0, 1);
    std::vector<int64_t>& row = request.rows[group];
    std::vector<int64_t> fresh;
    while (static_cast<int64_t>(row.size()) < CeilDiv(end, ColumnTokens(group)) + lookahead) {
      row.push_back(NewBlock(group));
      fresh.push_back(row.back());
    }
    if (!fresh.empty()) records_.Append(request.key, static_cast<uint32_t>(group), fresh);
  }
  records_.Schedule(request.key, request.scheduled, request.computed);
}

const kvguard_record& Engine::BeginStep() {
  step_ += static_cast<uint64_t>(Draw(1, 3));
  records_.NewStep(step_);
  for (size_t index = live_.size(); index-- > 0;) {
    live_[index].scheduled = 0;
    if (Draw(0, 5) == 5) Finish(index);
  }
  for (int64_t count = Draw(live_.empty() ? 1 : 0, 2); count > 0; --count) Admit();
  const int64_t always = Draw(0, static_cast<int64_t>(live_.size()) - 1);
  for (size_t index = 0; index < live_.size(); ++index) {
    if (static_cast<int64_t>(index) == always || Flip()) ScheduleRow(live_[index]);
  }
  return records_.Begin();
}

PlanValues Engine::DrawPlan() {
  std::vector<std::pair<int64_t, size_t>> order;
  for (size_t index = 0; index < live_.size(); ++index) {
    if (live_[index].scheduled > 0) order.emplace_back(Draw(0, 9), index);
  }
  std::sort(order.begin(), order.end());
  PlanValues plan;
  plan.query_start = {0};
  plan.groups.resize(groups_.size());
  for (size_t group = 0; group < groups_.size(); ++group) {
    size_t most = 0;
    for (const Request& request : live_) most = std::max(most, request.rows[group].size());
    plan.groups[group].columns =
        most * static_cast<size_t>(EntriesPerBlock(group)) + static_cast<size_t>(Draw(0, 3));
  }
  for (const auto& [key, index] : order) AddRow(plan, live_[index]);
  AddPadding(plan);
  if (Flip()) plan.positions.clear();
  if (Flip()) plan.num_computed.clear();
  for (size_t group = 0; group < groups_.size(); ++group) {
    // a sharded group may leave its lengths out, as any other
    if (Flip()) plan.groups[group].seq_lens.clear();
    if (Flip()) plan.groups[group].row_columns.clear();
  }
  return plan;
}

void Engine::AddRow(PlanValues& plan, const Request& request) const {
  plan.requests.push_back(request.key);
  plan.query_start.push_back(plan.query_start.back() + request.scheduled);
  plan.seq_lens.push_back(request.computed + request.scheduled);
  plan.num_computed.push_back(request.computed);
  for (int64_t i = 0; i < request.scheduled; ++i) plan.positions.push_back(request.computed + i);
  for (size_t group = 0; group < groups_.size(); ++group) {
    AddGroupRow(plan.groups[group], group, request);
  }
}

void Engine::AddGroupRow(GroupValues& values, size_t group, const Request& request) const {
  for (int64_t i = 0; i < request.scheduled; ++i) {
    values.slots.push_back(Slot(request, group, request.computed + i));
  }
  const int64_t per_block = EntriesPerBlock(group);
  const std::vector<int64_t>& row = request.rows[group];
  const bool forgets = Flip();
  for (size_t column = 0; column < values.columns; ++column) {
    const auto j = static_cast<int64_t>(column);
    const int64_t block = j / per_block;
    if (block >= static_cast<int64_t>(row.size())) {
      values.table.push_back(0x7a);  // what an earlier request has left
    } else if (forgets && !IsNeeded(group, block, request.computed)) {
      values.table.push_back(0);
    } else {
      values.table.push_back(row[static_cast<size_t>(block)] * per_block + j % per_block);
    }
  }
  values.seq_lens.push_back(LocalLength(group, request.computed + request.scheduled));
  values.row_columns.push_back(static_cast<int64_t>(row.size()) * per_block);
}

void Engine::AddPadding(PlanValues& plan) const {
  plan.padded_rows = plan.num_rows() + static_cast<size_t>(Draw(0, 2));
  plan.padded_tokens = plan.num_tokens() + static_cast<size_t>(Draw(0, 9));
  plan.seq_lens.resize(plan.padded_rows, 0);
  for (size_t group = 0; group < groups_.size(); ++group) {
    GroupValues& values = plan.groups[group];
    values.slots.resize(plan.padded_tokens, kPadSlot);
    const int64_t null = null_blocks_[groups_[group].pool];
    const int64_t entry = null == KVGUARD_NONE ? -1 : null * EntriesPerBlock(group);
    values.table.resize(plan.padded_rows * values.columns, entry);
  }
}

const kvguard_record& Engine::EndStep() {
  for (Request& request : live_) request.computed += request.scheduled;
  return records_.End();
}

const Request& Engine::RowRequest(const PlanValues& plan, size_t row) const {
  return *std::find_if(live_.begin(), live_.end(),
                       [&](const Request& r) { return r.key == plan.requests[row]; });
}

/* ---- Guards ---- */

Guard MakeGuard(Engine& engine) {
  kvguard_config config = Sized<kvguard_config>();
  config.action = KVGUARD_ACTION_LOG;
  config.max_findings = config.max_findings_per_step = 4096;
  return Guard::Create(engine.geometry(), &config).OrThrow();
}

void Feed(Guard& guard, const kvguard_record& record) {
  Result<kvguard_verdict> verdict = guard.Feed(record);
  if (!verdict) RC_FAIL("a legal record was refused: " + verdict.error().message);
}

std::vector<kvguard_finding> Findings(const Guard& guard, uint64_t first) {
  return guard.Findings(first).OrThrow();
}

std::string ToString(const std::vector<kvguard_finding>& findings) {
  std::ostringstream out;
  for (const kvguard_finding& f : findings) {
    out << "KV" << f.code << " step " << f.step << " group " << static_cast<int32_t>(f.group)
        << " request " << f.request << " row " << f.row << " pos " << f.pos << " expected "
        << f.expected << " observed " << f.observed << "\n";
  }
  return out.str();
}

}  // namespace kvguard::properties
