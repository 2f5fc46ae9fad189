// SPDX-License-Identifier: Apache-2.0
#include "lab/guard_hook.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>

namespace kvguard::lab {
namespace {

template <typename T>
T Sized() {
  T value{};
  value.size = static_cast<uint32_t>(sizeof(T));
  return value;
}

kvguard_array View32(const int32_t* data, size_t count) { return {data, count, KVGUARD_I32, 0}; }

kvguard_group GroupOf(const EngineConfig& config, size_t index) {
  const GroupConfig& from = config.groups[index];
  auto group = Sized<kvguard_group>();
  group.id = static_cast<uint32_t>(index);
  switch (from.kind) {
    case GroupKind::kFull:
    case GroupKind::kMla:
      group.kind = KVGUARD_GROUP_FULL;
      break;
    case GroupKind::kWindow:
      group.kind = KVGUARD_GROUP_WINDOW;
      break;
    case GroupKind::kChunked:
      group.kind = KVGUARD_GROUP_CHUNKED;
      break;
    case GroupKind::kCross:
      group.kind = KVGUARD_GROUP_CROSS;
      break;
    case GroupKind::kState:
      group.kind = KVGUARD_GROUP_STATE;
      group.state_mode = from.state_mode == StateMode::kNone  ? KVGUARD_STATE_NONE
                         : from.state_mode == StateMode::kAll ? KVGUARD_STATE_ALL
                                                              : KVGUARD_STATE_ALIGN;
      break;
  }
  group.placement = KVGUARD_PLACEMENT_ASSIGNED;
  const bool state = from.kind == GroupKind::kState;
  group.encoding = state ? KVGUARD_READ_STATE : KVGUARD_READ_TABLE;
  group.table_unit =
      from.kernel_block_size == from.block_size ? KVGUARD_UNIT_BLOCK : KVGUARD_UNIT_KERNEL_BLOCK;
  group.flags = KVGUARD_GROUP_PAD_ROWS_NULL;
  if (state) group.flags = KVGUARD_GROUP_NO_SLOTS;
  group.block_size = static_cast<uint32_t>(from.block_size);
  group.kernel_block_size = static_cast<uint32_t>(from.kernel_block_size);
  group.index_scale = 1;
  group.token_stride = 1;
  group.max_columns = Ix(config.MaxColumns(from));
  group.window = static_cast<uint32_t>(from.window);
  group.num_layers = 1;
  return group;
}

}  // namespace

std::string GuardHook::Arm(const EngineConfig& config, GuardMode mode, const std::string& record) {
  config_ = &config;
  auto pool = Sized<kvguard_pool>();
  pool.kind = KVGUARD_POOL_PAGES;
  pool.num_blocks = Ix(config.num_blocks);
  pool.null_block = kNullBlock;
  pool.read_trash = KVGUARD_NONE;
  pool.write_trash = KVGUARD_NONE;
  std::vector<kvguard_group> groups;
  for (size_t g = 0; g < config.groups.size(); ++g) groups.push_back(GroupOf(config, g));
  auto geometry = Sized<kvguard_geometry>();
  geometry.flags = KVGUARD_ENGINE_FILLS_TOLD;
  if (config.prefix_caching) geometry.flags |= KVGUARD_ENGINE_PREFIX_CACHE;
  if (config.async) geometry.flags |= KVGUARD_ENGINE_ASYNC;
  if (config.forks) geometry.flags |= KVGUARD_ENGINE_PARTIAL_HITS;
  if (config.has_cross()) geometry.flags |= KVGUARD_ENGINE_ENCODER;
  geometry.engine = "lab";
  geometry.engine_version = "1";
  geometry.pools = &pool;
  geometry.num_pools = 1;
  geometry.groups = groups.data();
  geometry.num_groups = static_cast<uint32_t>(groups.size());
  geometry.max_rows = Ix(config.max_requests);
  geometry.max_tokens =
      std::max(Ix(config.max_batched_tokens), Ix(config.max_requests) * Ix(config.max_encoder));
  geometry.max_model_len = Ix(config.max_model_len);
  geometry.num_lookahead = static_cast<uint32_t>(config.num_drafts);
  geometry.max_drafts = static_cast<uint32_t>(config.num_drafts);
  geometry.pad_slot = kPadSlot;
  geometry.num_ranks = geometry.tp_size = geometry.pp_size = 1;
  geometry.dcp_size = geometry.pcp_size = geometry.interleave = 1;
  auto settings = Sized<kvguard_config>();
  settings.action = mode == GuardMode::kRaise ? KVGUARD_ACTION_RAISE : KVGUARD_ACTION_LOG;
  verdict_ = Sized<kvguard_verdict>();
  auto error = Sized<kvguard_error>();
  kvguard_guard* guard = nullptr;
  if (kvguard_create(&geometry, &settings, &guard, &error) != KVGUARD_OK) return error.text;
  guard_.reset(guard);
  if (!record.empty()) {
    if (kvguard_record_start(guard, record.c_str(), 0, &error) != KVGUARD_OK) return error.text;
    records_ = true;
  }
  return "";
}

std::string GuardHook::Close() {
  if (!records_) return "";
  records_ = false;
  auto error = Sized<kvguard_error>();
  return kvguard_record_stop(guard_.get(), &error) == KVGUARD_OK ? "" : error.text;
}

void GuardHook::Feed(uint32_t kind, uint64_t step, const void* body) {
  auto record = Sized<kvguard_record>();
  record.kind = kind;
  record.step = step;
  // The members of the union are pointers to structs of one kind each.
  std::memcpy(&record.body, &body, sizeof(body));
  auto error = Sized<kvguard_error>();
  const uint64_t proofs = verdict_.proofs;
  const auto start = std::chrono::steady_clock::now();
  if (kvguard_feed(guard_.get(), &record, &verdict_, &error) != KVGUARD_OK && error_.empty()) {
    error_ = "step " + std::to_string(step) + ": " + error.text;
  }
  nanoseconds_ += static_cast<uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count());
  if (proofs == 0 && verdict_.proofs > 0) first_proof_step_ = verdict_.first_violated_step;
}

kvguard_event* GuardHook::AddEvent(uint32_t kind, uint64_t request) {
  kvguard_event& event = events_.emplace_back(Sized<kvguard_event>());
  event.kind = kind;
  event.request = request;
  return &event;
}

// A request that was never admitted gets a key too: that it has ended is legal to say.
uint64_t GuardHook::KeyOf(RequestName name) {
  if (keys_.size() <= name.handle) keys_.resize(name.handle + 1);
  Key& key = keys_[name.handle];
  if (key.serial != name.serial) key = {name.serial, next_key_++};
  return key.key;
}

void GuardHook::AddBlocks(uint64_t key, uint32_t kind, const std::array<Span, kMaxGroups>& blocks) {
  for (size_t g = 0; g < config_->groups.size(); ++g) {
    if (blocks[g].size() == 0) continue;
    kvguard_event* event = AddEvent(kind, key);
    event->group = static_cast<uint32_t>(g);
    event->blocks = blocks_.data() + blocks[g].begin;
    event->num_blocks = blocks[g].size();
  }
}

void GuardHook::Admit(const NewRequest& added) {
  if (keys_.size() <= added.name.handle) keys_.resize(added.name.handle + 1);
  const uint64_t key = next_key_++;
  keys_[added.name.handle] = {added.name.serial, key};
  std::array<char, 24>& name = names_.emplace_back();
  kvguard_event* event = AddEvent(KVGUARD_EVENT_ADMIT, key);
  event->name_size = static_cast<uint64_t>(std::snprintf(
      name.data(), name.size(), "r%llu", static_cast<unsigned long long>(added.name.serial)));
  event->name = name.data();
  event->first = added.num_computed;
  event->count = added.tokens.size();
  event->tokens = tokens_.data() + added.tokens.begin;
  event->num_tokens = added.tokens.size();
  const auto domain = [&](uint64_t kind, uint64_t value, int64_t first, int64_t count) {
    kvguard_event* told = AddEvent(KVGUARD_EVENT_DOMAIN, key);
    told->other = kind;
    told->value = static_cast<int64_t>(value);
    told->first = first;
    told->count = count;
  };
  const auto all = static_cast<int64_t>(config_->max_model_len);
  if (added.domain.lora != 0) domain(KVGUARD_DOMAIN_LORA, added.domain.lora, 0, all);
  if (added.domain.salt != 0) domain(KVGUARD_DOMAIN_SALT, added.domain.salt, 0, all);
  if (added.domain.image != 0) {
    domain(KVGUARD_DOMAIN_MULTIMODAL, added.domain.image, added.domain.image_first,
           added.domain.image_count);
  }
  if (added.domain.encoder != 0) {
    domain(KVGUARD_DOMAIN_ENCODER, added.domain.encoder, 0, added.domain.encoder_count);
  }
  AddBlocks(key, KVGUARD_EVENT_REPLACE, added.blocks);
}

void GuardHook::Begin(const SchedulerOutput& out) {
  events_.clear();
  scheduled_.clear();
  names_.clear();
  names_.reserve(out.added.size());  // events point into it
  blocks_.assign(out.blocks.begin(), out.blocks.end());
  tokens_.assign(out.tokens.begin(), out.tokens.end());
  zeroed_.assign(out.blocks_to_zero.begin(), out.blocks_to_zero.end());
  for (const RequestName name : out.finished) AddEvent(KVGUARD_EVENT_FINISH, KeyOf(name));
  for (const RequestName name : out.preempted) AddEvent(KVGUARD_EVENT_PREEMPT, KeyOf(name));
  for (const NewRequest& added : out.added) Admit(added);
  for (const CachedRequest& cached : out.cached) {
    AddBlocks(KeyOf(cached.name), KVGUARD_EVENT_APPEND, cached.blocks);
  }
  if (!zeroed_.empty()) {
    kvguard_event* event = AddEvent(KVGUARD_EVENT_ZERO, 0);
    event->blocks = zeroed_.data();
    event->num_blocks = zeroed_.size();
  }
  AddCopies(KVGUARD_EVENT_COPY, out.copies);
  for (const ScheduledRequest& row : out.scheduled) {
    auto scheduled = Sized<kvguard_scheduled>();
    scheduled.request = KeyOf(row.name);
    scheduled.num_tokens = row.num_tokens;
    scheduled.num_drafts = static_cast<uint32_t>(row.num_drafts);
    scheduled.num_computed = row.num_computed;
    scheduled_.push_back(scheduled);
  }
  // What a new request says of its count stands in its admission.
  for (const NewRequest& added : out.added) {
    for (kvguard_scheduled& scheduled : scheduled_) {
      if (scheduled.request == keys_[added.name.handle].key) {
        scheduled.num_computed = added.num_computed;
      }
    }
  }
  auto begin = Sized<kvguard_begin>();
  begin.events = events_.data();
  begin.num_events = events_.size();
  begin.scheduled = scheduled_.data();
  begin.num_scheduled = scheduled_.size();
  last_step_ = out.step;
  Feed(KVGUARD_RECORD_BEGIN, out.step, &begin);
}

void GuardHook::AddCopies(uint32_t kind, const std::vector<BlockCopy>& copies) {
  pairs_.clear();
  pairs_.reserve(2 * copies.size());  // events point into it
  for (const BlockCopy& copy : copies) {
    pairs_.push_back(copy.source);
    pairs_.push_back(copy.target);
    kvguard_event* event = AddEvent(kind, 0);
    event->group = copy.group;
    event->blocks = pairs_.data() + pairs_.size() - 2;
    event->num_blocks = 2;
  }
}

void GuardHook::Copied(uint64_t step, const std::vector<BlockCopy>& copies) {
  events_.clear();
  AddCopies(KVGUARD_EVENT_COPY_DONE, copies);
  auto outcome = Sized<kvguard_outcome>();
  outcome.events = events_.data();
  outcome.num_events = events_.size();
  Feed(KVGUARD_RECORD_OUTCOME, step, &outcome);
}

void GuardHook::Zeroed(uint64_t step, const std::vector<int32_t>& blocks) {
  zeroed_.assign(blocks.begin(), blocks.end());
  auto event = Sized<kvguard_event>();
  event.kind = KVGUARD_EVENT_ZERO_DONE;
  event.blocks = zeroed_.data();
  event.num_blocks = zeroed_.size();
  auto outcome = Sized<kvguard_outcome>();
  outcome.events = &event;
  outcome.num_events = 1;
  Feed(KVGUARD_RECORD_OUTCOME, step, &outcome);
}

kvguard_group_plan GuardHook::TablePlan(const InFlight& step, const PlanView& view, size_t group,
                                        int32_t rows, int32_t slots) const {
  auto plan = Sized<kvguard_group_plan>();
  plan.group = static_cast<uint32_t>(group);
  plan.encoding = KVGUARD_READ_TABLE;
  plan.slots = {view.slots[group], Ix(slots),
                static_cast<uint32_t>(config_->int32_slots ? KVGUARD_I32 : KVGUARD_I64), 0};
  kvguard_read_table& table = plan.reads.table;
  table = {};
  table.data = view.tables[group];
  table.dtype = KVGUARD_I32;
  table.rows = Ix(step.padded_rows);
  table.columns = table.row_stride = Ix(view.table_width[group]);
  table.row_columns = View32(view.row_columns[group], Ix(rows));
  return plan;
}

void GuardHook::Plan(const InFlight& step, const PlanView& view) {
  std::vector<uint64_t>& keys = row_keys_[step.step % row_keys_.size()];
  keys.clear();
  for (const StepOutput::Row& row : step.output.rows) keys.push_back(KeyOf(row.name));
  std::vector<kvguard_group_plan>& groups = group_plans_;
  groups.clear();
  for (size_t g = 0; g < config_->groups.size(); ++g) {
    if (config_->groups[g].kind == GroupKind::kCross) continue;
    if (config_->groups[g].kind != GroupKind::kState) {
      groups.push_back(TablePlan(step, view, g, step.padded_rows, step.padded_tokens));
      continue;
    }
    kvguard_group_plan& plan = groups.emplace_back(Sized<kvguard_group_plan>());
    plan.group = static_cast<uint32_t>(g);
    plan.encoding = KVGUARD_READ_STATE;
    plan.reads.state.in = View32(view.state_in[g], Ix(step.padded_rows));
    plan.reads.state.out = View32(view.state_out[g], Ix(step.padded_rows));
    plan.reads.state.init = {view.state_init, keys.size(), KVGUARD_U8, 0};
  }
  auto plan = Sized<kvguard_plan>();
  plan.pass = KVGUARD_PASS_TARGET;
  plan.stage = KVGUARD_STAGE_PLANNED;
  plan.num_groups = static_cast<uint32_t>(groups.size());
  plan.groups = groups.data();
  plan.num_rows = keys.size();
  plan.padded_rows = Ix(step.padded_rows);
  plan.num_tokens = Ix(step.num_tokens);
  plan.padded_tokens = Ix(step.padded_tokens);
  plan.requests = keys.data();
  plan.query_start = View32(view.query_start, keys.size() + 1);
  plan.seq_lens = View32(view.seq_lens, Ix(step.padded_rows));
  plan.positions = View32(view.positions, Ix(step.num_tokens));
  if (config_->state_copies) StatesCopied(step, view);
  Feed(KVGUARD_RECORD_PLAN, step.step, &plan);
  if (config_->has_cross()) CrossPlan(step, view, keys);
}

void GuardHook::DraftPlan(const InFlight& step, int32_t pass, const PlanView& view) {
  const std::vector<uint64_t>& all = row_keys_[step.step % row_keys_.size()];
  std::vector<uint64_t> keys;
  for (const int32_t row : step.draft_rows) keys.push_back(all[Ix(row)]);
  if (pass == 0) keys = all;
  if (keys.empty()) return;
  const auto num_rows = static_cast<int32_t>(keys.size());
  const int32_t num_tokens = pass == 0 ? step.num_tokens : num_rows;
  std::vector<kvguard_group_plan>& groups = group_plans_;
  groups.clear();
  for (size_t g = 0; g < config_->groups.size(); ++g) {
    if (!config_->groups[g].draft) continue;
    groups.push_back(TablePlan(step, view, g, num_rows, num_tokens));
    groups.back().reads.table.rows = keys.size();
  }
  auto plan = Sized<kvguard_plan>();
  plan.pass = KVGUARD_PASS_DRAFT;
  plan.pass_index = static_cast<uint32_t>(pass);
  plan.stage = KVGUARD_STAGE_PLANNED;
  plan.num_groups = static_cast<uint32_t>(groups.size());
  plan.groups = groups.data();
  plan.num_rows = plan.padded_rows = keys.size();
  plan.num_tokens = plan.padded_tokens = Ix(num_tokens);
  plan.requests = keys.data();
  plan.query_start = View32(view.query_start, keys.size() + 1);
  plan.seq_lens = View32(view.seq_lens, keys.size());
  plan.positions = View32(view.positions, Ix(num_tokens));
  Feed(KVGUARD_RECORD_PLAN, step.step, &plan);
}

void GuardHook::CrossPlan(const InFlight& step, const PlanView& view,
                          const std::vector<uint64_t>& keys) {
  std::vector<kvguard_group_plan>& groups = group_plans_;
  groups.clear();
  const auto num_rows = static_cast<int32_t>(keys.size());
  for (size_t g = 0; g < config_->groups.size(); ++g) {
    if (config_->groups[g].kind != GroupKind::kCross) continue;
    groups.push_back(TablePlan(step, view, g, num_rows, step.num_encoder_tokens));
  }
  auto plan = Sized<kvguard_plan>();
  plan.pass = KVGUARD_PASS_CROSS;
  plan.stage = KVGUARD_STAGE_PLANNED;
  plan.num_groups = static_cast<uint32_t>(groups.size());
  plan.groups = groups.data();
  plan.num_rows = plan.padded_rows = keys.size();
  plan.num_tokens = plan.padded_tokens = Ix(step.num_encoder_tokens);
  plan.requests = keys.data();
  plan.query_start = View32(view.cross_start, keys.size() + 1);
  plan.seq_lens = View32(view.cross_lens, keys.size());
  plan.positions = View32(view.cross_positions, Ix(step.num_encoder_tokens));
  Feed(KVGUARD_RECORD_PLAN, step.step, &plan);
}

// The runner copies states by itself; it says so before the plan that goes on from the copies.
void GuardHook::StatesCopied(const InFlight& step, const PlanView& view) {
  events_.clear();
  zeroed_.clear();
  zeroed_.reserve(2 * config_->groups.size() * step.output.rows.size());  // events point into it
  for (size_t g = 0; g < config_->groups.size(); ++g) {
    if (config_->groups[g].kind != GroupKind::kState) continue;
    const size_t first = zeroed_.size();
    for (size_t b = 0; b < step.output.rows.size(); ++b) {
      if (view.copied_from[g][b] == kNullBlock) continue;
      zeroed_.push_back(view.copied_from[g][b]);
      zeroed_.push_back(view.copied_to[g][b]);
    }
    if (zeroed_.size() == first) continue;
    kvguard_event* event = AddEvent(KVGUARD_EVENT_COPY_DONE, 0);
    event->group = static_cast<uint32_t>(g);
    event->blocks = zeroed_.data() + first;
    event->num_blocks = zeroed_.size() - first;
  }
  if (events_.empty()) return;
  auto outcome = Sized<kvguard_outcome>();
  outcome.events = events_.data();
  outcome.num_events = events_.size();
  Feed(KVGUARD_RECORD_OUTCOME, step.step, &outcome);
}

void GuardHook::DummyPlan(const PlanView& view, int32_t num_tokens) {
  std::array<kvguard_group_plan, kMaxGroups> groups;
  for (size_t g = 0; g < config_->groups.size(); ++g) {
    groups[g] = Sized<kvguard_group_plan>();
    groups[g].group = static_cast<uint32_t>(g);
    if (config_->groups[g].kind == GroupKind::kCross) continue;
    if (config_->groups[g].kind == GroupKind::kState) {
      groups[g].encoding = KVGUARD_READ_STATE;
      groups[g].reads.state.in = View32(view.state_in[g], 1);
      groups[g].reads.state.out = View32(view.state_out[g], 1);
      continue;
    }
    groups[g].slots = {view.slots[g], Ix(num_tokens),
                       static_cast<uint32_t>(config_->int32_slots ? KVGUARD_I32 : KVGUARD_I64), 0};
  }
  auto plan = Sized<kvguard_plan>();
  plan.pass = KVGUARD_PASS_DUMMY;
  plan.stage = KVGUARD_STAGE_PLANNED;
  plan.num_groups = static_cast<uint32_t>(config_->groups.size());
  plan.groups = groups.data();
  plan.padded_tokens = Ix(num_tokens);
  const int32_t zero = 0;
  plan.query_start = View32(&zero, 1);
  plan.seq_lens = View32(&zero, 0);
  Feed(KVGUARD_RECORD_PLAN, last_step_, &plan);
}

void GuardHook::Outcome(const StepOutput& output) {
  const std::vector<uint64_t>& keys = row_keys_[output.step % row_keys_.size()];
  rows_.clear();
  tokens_.clear();
  for (const StepOutput::Row& from : output.rows) {
    for (int32_t i = 0; i < from.num_sampled; ++i) tokens_.push_back(from.tokens[Ix(i)]);
  }
  size_t at = 0;
  for (size_t b = 0; b < output.rows.size(); ++b) {
    const StepOutput::Row& from = output.rows[b];
    auto row = Sized<kvguard_outcome_row>();
    row.request = keys[b];
    row.num_sampled = static_cast<uint32_t>(from.num_sampled);
    row.num_rejected = static_cast<uint32_t>(from.num_rejected);
    row.tokens = tokens_.data() + at;
    row.num_tokens = Ix(from.num_sampled);
    at += Ix(from.num_sampled);
    rows_.push_back(row);
  }
  auto outcome = Sized<kvguard_outcome>();
  outcome.rows = rows_.data();
  outcome.num_rows = rows_.size();
  Feed(KVGUARD_RECORD_OUTCOME, output.step, &outcome);
}

void GuardHook::End(uint64_t step, bool ran) {
  auto end = Sized<kvguard_end>();
  end.flags = ran ? 0u : static_cast<uint32_t>(KVGUARD_END_NO_FORWARD);
  Feed(KVGUARD_RECORD_END, step, &end);
}

std::vector<GuardFinding> GuardHook::Findings(size_t most) const {
  std::vector<kvguard_finding> findings(most, Sized<kvguard_finding>());
  size_t count = 0;
  (void)kvguard_findings(guard_.get(), 0, findings.data(), most, &count, nullptr);
  std::vector<GuardFinding> out;
  for (size_t i = 0; i < count && i < most; ++i) {
    std::string text(4096, '\0');
    size_t needed = 0;
    if (kvguard_explain(guard_.get(), &findings[i], text.data(), text.size(), &needed, nullptr) !=
        KVGUARD_OK) {
      needed = 1;
    }
    text.resize(needed - 1);
    out.push_back({findings[i], std::move(text)});
  }
  return out;
}

std::vector<kvguard_gap> GuardHook::Gaps() const {
  std::vector<kvguard_gap> gaps(64, Sized<kvguard_gap>());
  size_t count = 0;
  (void)kvguard_gaps(guard_.get(), gaps.data(), gaps.size(), &count, nullptr);
  gaps.resize(std::min(count, gaps.size()));
  return gaps;
}

}  // namespace kvguard::lab
