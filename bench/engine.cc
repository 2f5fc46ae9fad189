// SPDX-License-Identifier: Apache-2.0
#include "bench/engine.h"

#include <algorithm>
#include <numeric>

namespace kvguard::bench {
namespace {

uint64_t Ceil(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

template <typename T>
kvguard_array View(const std::vector<T>& values, uint64_t count) {
  kvguard_array array{};
  array.data = values.data();
  array.count = count;
  array.dtype = sizeof(T) == 8 ? KVGUARD_I64 : KVGUARD_I32;
  return array;
}

template <typename T>
void AppendJson(std::string* out, const char* name, const T* values, uint64_t count) {
  *out += "\"";
  *out += name;
  *out += "\":[";
  for (uint64_t i = 0; i < count; ++i) {
    if (i > 0) *out += ",";
    *out += std::to_string(values[i]);
  }
  *out += "]";
}

}  // namespace

Engine::Engine(const Scenario& scenario) : block_size_(scenario.block_size) {
  uint64_t longest = 0;
  uint64_t most_blocks = 0;
  for (const Rows& rows : scenario.rows) {
    for (uint32_t i = 0; i < rows.count; ++i) {
      const bool decodes = rows.query == 1;
      const uint32_t tokens = decodes ? rows.context + kCycle : rows.query;
      if (decodes) {
        decoders_.emplace_back();
        decoder_starts_.push_back(rows.context - kCycle / 2 + i % block_size_);
      } else {
        prefillers_.emplace_back();
        prefiller_queries_.push_back(rows.query);
      }
      longest = std::max<uint64_t>(longest, tokens);
      most_blocks += Ceil(tokens, block_size_);
    }
  }

  // Rows are wider than what is live in them, as they are where max_model_len exceeds the contexts
  // in use.
  stride_ = Ceil(2 * longest, block_size_);
  const uint64_t num_blocks = 2 * most_blocks + 2;
  // Block ids are handed out in a scattered order: an engine that has run for a while has no
  // consecutive ones.
  uint64_t pace = num_blocks * 5 / 8;
  while (std::gcd(pace, num_blocks - 1) != 1) ++pace;
  for (uint64_t i = 0; i + 1 < num_blocks; ++i) {
    free_.push_back(static_cast<int64_t>(1 + i * pace % (num_blocks - 1)));
  }

  const uint64_t max_rows = decoders_.size() + prefillers_.size();
  uint64_t max_tokens = max_rows + longest;
  slots_.resize(max_tokens);
  table_.assign(max_rows * stride_, 0);
  columns_.resize(max_rows);
  query_start_.resize(max_rows + 1);
  seq_lens_.resize(max_rows);

  pool_.size = sizeof pool_;
  pool_.kind = KVGUARD_POOL_PAGES;
  pool_.num_blocks = num_blocks;
  pool_.null_block = 0;
  pool_.read_trash = KVGUARD_NONE;
  pool_.write_trash = KVGUARD_NONE;

  group_.size = sizeof group_;
  group_.kind = KVGUARD_GROUP_FULL;
  group_.placement = KVGUARD_PLACEMENT_ASSIGNED;
  group_.encoding = KVGUARD_READ_TABLE;
  group_.table_unit = KVGUARD_UNIT_BLOCK;
  group_.block_size = block_size_;
  group_.kernel_block_size = block_size_;
  group_.index_scale = 1;
  group_.token_stride = 1;
  group_.max_columns = stride_;
  group_.num_layers = 32;

  geometry_.size = sizeof geometry_;
  geometry_.engine = "bench";
  geometry_.pools = &pool_;
  geometry_.num_pools = 1;
  geometry_.groups = &group_;
  geometry_.num_groups = 1;
  geometry_.max_rows = max_rows;
  geometry_.max_tokens = max_tokens;
  geometry_.max_model_len = 2 * longest;
  geometry_.pad_slot = -1;
  geometry_.num_ranks = 1;
  geometry_.tp_size = 1;
  geometry_.pp_size = 1;
  geometry_.dcp_size = 1;
  geometry_.pcp_size = 1;
  geometry_.interleave = 1;
}

void Engine::Finish(Request& request) {
  if (request.key == 0) return;
  kvguard_event event{};
  event.size = sizeof event;
  event.kind = KVGUARD_EVENT_FINISH;
  event.request = request.key;
  events_.push_back(event);
  free_.insert(free_.end(), request.blocks.begin(), request.blocks.end());
  request.blocks.clear();
  request.key = 0;
}

void Engine::Admit(Request& request, uint32_t tokens) {
  request.key = next_key_++;
  request.computed = 0;
  request.name = "cmpl-" + std::to_string(request.key * 0x9e3779b97f4a7c15u);
  kvguard_event event{};
  event.size = sizeof event;
  event.kind = KVGUARD_EVENT_ADMIT;
  event.request = request.key;
  event.count = tokens;
  event.name = request.name.data();
  event.name_size = request.name.size();
  events_.push_back(event);
}

// Binds blocks until `tokens` have a place.
void Engine::Grow(Request& request, uint32_t tokens) {
  const uint64_t want = Ceil(tokens, block_size_);
  if (request.blocks.size() >= want) return;
  std::vector<int64_t>& fresh = event_blocks_.emplace_back();
  while (request.blocks.size() < want) {
    fresh.push_back(free_.front());
    request.blocks.push_back(free_.front());
    free_.pop_front();
  }
  kvguard_event event{};
  event.size = sizeof event;
  event.kind = KVGUARD_EVENT_APPEND;
  event.request = request.key;
  event.blocks = fresh.data();
  event.num_blocks = fresh.size();
  events_.push_back(event);
}

void Engine::Schedule() {
  if (step_of_cycle_ == 0) {
    for (Request& request : decoders_) Finish(request);
  }
  measured_ = step_of_cycle_ >= decoders_.size();
  if (!measured_) {
    Request& request = decoders_[step_of_cycle_];
    const uint32_t start = decoder_starts_[step_of_cycle_];
    Admit(request, start);
    Grow(request, start);
    rows_.push_back({&request, start});
  } else {
    for (Request& request : decoders_) {
      Grow(request, request.computed + 1);
      rows_.push_back({&request, 1});
    }
    for (size_t i = 0; i < prefillers_.size(); ++i) {
      Finish(prefillers_[i]);
      Admit(prefillers_[i], prefiller_queries_[i]);
      Grow(prefillers_[i], prefiller_queries_[i]);
      rows_.push_back({&prefillers_[i], prefiller_queries_[i]});
    }
  }
  step_of_cycle_ = (step_of_cycle_ + 1) % steps_per_cycle();
}

void Engine::FillBuffers() {
  uint64_t token = 0;
  for (size_t b = 0; b < rows_.size(); ++b) {
    const Request& request = *rows_[b].request;
    query_start_[b] = static_cast<int32_t>(token);
    seq_lens_[b] = static_cast<int32_t>(request.computed + rows_[b].query);
    columns_[b] = request.blocks.size();
    int32_t* row = &table_[b * stride_];
    for (size_t j = 0; j < request.blocks.size(); ++j)
      row[j] = static_cast<int32_t>(request.blocks[j]);
    for (uint32_t i = 0; i < rows_[b].query; ++i) {
      const uint32_t position = request.computed + i;
      slots_[token++] =
          request.blocks[position / block_size_] * block_size_ + position % block_size_;
    }
  }
  query_start_[rows_.size()] = static_cast<int32_t>(token);
}

void Engine::BuildRecords() {
  keys_.clear();
  scheduled_.clear();
  outcome_rows_.clear();
  for (const Row& row : rows_) {
    keys_.push_back(row.request->key);
    kvguard_scheduled scheduled{};
    scheduled.size = sizeof scheduled;
    scheduled.request = row.request->key;
    scheduled.num_tokens = row.query;
    scheduled.num_computed = row.request->computed;
    scheduled_.push_back(scheduled);
    kvguard_outcome_row sampled{};
    sampled.size = sizeof sampled;
    sampled.request = row.request->key;
    sampled.num_sampled = 1;
    outcome_rows_.push_back(sampled);
  }

  begin_ = {};
  begin_.size = sizeof begin_;
  begin_.events = events_.data();
  begin_.num_events = events_.size();
  begin_.scheduled = scheduled_.data();
  begin_.num_scheduled = scheduled_.size();

  const uint64_t num_rows = rows_.size();
  const uint64_t num_tokens = static_cast<uint64_t>(query_start_[num_rows]);
  group_plan_ = {};
  group_plan_.size = sizeof group_plan_;
  group_plan_.encoding = KVGUARD_READ_TABLE;
  group_plan_.slots = View(slots_, num_tokens);
  group_plan_.reads.table.data = table_.data();
  group_plan_.reads.table.dtype = KVGUARD_I32;
  group_plan_.reads.table.rows = num_rows;
  group_plan_.reads.table.columns = stride_;
  group_plan_.reads.table.row_stride = stride_;

  plan_ = {};
  plan_.size = sizeof plan_;
  plan_.pass = KVGUARD_PASS_TARGET;
  plan_.stage = KVGUARD_STAGE_PLANNED;
  plan_.num_groups = 1;
  plan_.num_rows = num_rows;
  plan_.padded_rows = num_rows;
  plan_.num_tokens = num_tokens;
  plan_.padded_tokens = num_tokens;
  plan_.requests = keys_.data();
  plan_.query_start = View(query_start_, num_rows + 1);
  plan_.seq_lens = View(seq_lens_, num_rows);
  plan_.groups = &group_plan_;

  outcome_ = {};
  outcome_.size = sizeof outcome_;
  outcome_.rows = outcome_rows_.data();
  outcome_.num_rows = outcome_rows_.size();

  end_ = {};
  end_.size = sizeof end_;

  kvguard_record record{};
  record.size = sizeof record;
  record.step = step_;
  begin_record_ = plan_record_ = outcome_record_ = end_record_ = record;
  begin_record_.kind = KVGUARD_RECORD_BEGIN;
  begin_record_.body.begin = &begin_;
  plan_record_.kind = KVGUARD_RECORD_PLAN;
  plan_record_.body.plan = &plan_;
  outcome_record_.kind = KVGUARD_RECORD_OUTCOME;
  outcome_record_.body.outcome = &outcome_;
  end_record_.kind = KVGUARD_RECORD_END;
  end_record_.body.end = &end_;
}

void Engine::NextStep() {
  for (const Row& row : rows_) row.request->computed += row.query;  // the step before this one ran
  rows_.clear();
  events_.clear();
  event_blocks_.clear();
  ++step_;
  Schedule();
  FillBuffers();
  BuildRecords();
}

Metadata Engine::metadata() const {
  Metadata metadata;
  metadata.rows = plan_.num_rows;
  metadata.tokens = plan_.num_tokens;
  metadata.stride = stride_;
  metadata.slots = slots_.data();
  metadata.table = table_.data();
  metadata.columns = columns_.data();
  return metadata;
}

std::string Engine::Json() const {
  std::string out = "{\"rows\":[";
  for (size_t b = 0; b < rows_.size(); ++b) {
    const Request& request = *rows_[b].request;
    if (b > 0) out += ",";
    out += "{\"start\":" + std::to_string(request.computed) +
           ",\"query\":" + std::to_string(rows_[b].query) + ",";
    AppendJson(&out, "blocks", request.blocks.data(), request.blocks.size());
    out += "}";
  }
  out += "],";
  AppendJson(&out, "slots", slots_.data(), plan_.num_tokens);
  out += ",\"stride\":" + std::to_string(stride_) + ",";
  AppendJson(&out, "table", table_.data(), rows_.size() * stride_);
  out += ",";
  AppendJson(&out, "query_start", query_start_.data(), rows_.size() + 1);
  out += ",";
  AppendJson(&out, "seq_lens", seq_lens_.data(), rows_.size());
  return out + "}";
}

}  // namespace kvguard::bench
