// SPDX-License-Identifier: Apache-2.0
// A small right engine as a stream of records, for tests and benchmarks: a scheduler with
// admission, growth, preemption and finishing over one pool, and a runner that plans what was
// scheduled.
#ifndef KVGUARD_SRC_TRACE_TEST_STREAM_H_
#define KVGUARD_SRC_TRACE_TEST_STREAM_H_

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kvguard/kvguard.h"
#include "trace/owned.h"

namespace kvguard::trace {

struct ToyShape {
  uint32_t num_groups = 1;
  uint32_t block_size = 16;
  uint64_t num_blocks = 64;
  uint64_t max_rows = 8;
  uint64_t max_columns = 16;
  int64_t max_prompt = 60;
  int64_t max_output = 40;
  uint64_t max_tokens = 256;
  bool pad_rows = true;     // table of max_rows rows, padded with the null block
  bool final_stage = true;  // a second plan of the pass, as the backend sees it
  bool tokens = true;       // ADMIT and OUTCOME carry ids
  int64_t vocabulary = 500;
  double arrivals = 0.4;  // chance of a new request in each step
};

class ToyEngine {
 public:
  ToyEngine(const ToyShape& shape, uint64_t seed) : shape_(shape), random_(seed) {
    for (uint64_t block = 1; block < shape.num_blocks; ++block)
      free_.push_back(static_cast<int64_t>(block));
    pool_.size = sizeof(pool_);
    pool_.kind = KVGUARD_POOL_PAGES;
    pool_.num_blocks = shape.num_blocks;
    pool_.null_block = 0;
    pool_.read_trash = KVGUARD_NONE;
    pool_.write_trash = KVGUARD_NONE;
    for (uint32_t i = 0; i < shape.num_groups; ++i) {
      kvguard_group group{};
      group.size = sizeof(group);
      group.id = i;
      group.kind = KVGUARD_GROUP_FULL;
      group.placement = KVGUARD_PLACEMENT_ASSIGNED;
      group.encoding = KVGUARD_READ_TABLE;
      group.table_unit = KVGUARD_UNIT_BLOCK;
      group.flags = shape.pad_rows ? uint32_t{KVGUARD_GROUP_PAD_ROWS_NULL} : 0u;
      group.block_size = shape.block_size;
      group.kernel_block_size = shape.block_size;
      group.index_scale = 1;
      group.token_stride = 1;
      group.max_columns = shape.max_columns;
      groups_.push_back(group);
    }
    gaps_[0] = "toy-gap";
    geometry_.size = sizeof(geometry_);
    geometry_.flags = KVGUARD_ENGINE_PREFIX_CACHE;
    geometry_.engine = "toy";
    geometry_.engine_version = "1";
    geometry_.pools = &pool_;
    geometry_.num_pools = 1;
    geometry_.groups = groups_.data();
    geometry_.num_groups = shape.num_groups;
    geometry_.max_rows = shape.max_rows;
    geometry_.max_tokens = shape.max_tokens;
    geometry_.max_model_len = shape.max_columns * shape.block_size;
    geometry_.pad_slot = -1;
    geometry_.num_ranks = 1;
    geometry_.standing_gaps = gaps_;
    geometry_.num_standing_gaps = 1;
  }
  ToyEngine(const ToyEngine&) = delete;
  ToyEngine& operator=(const ToyEngine&) = delete;

  const kvguard_geometry& geometry() const { return geometry_; }
  uint64_t preemptions() const { return preemptions_; }

  // The records of the next step, BEGIN to END.
  std::vector<OwnedRecord> Step() {
    ++step_;
    OwnedRecord begin;
    begin.kind = KVGUARD_RECORD_BEGIN;
    begin.step = step_;
    Finish(&begin);
    if (Chance(shape_.arrivals)) Arrive();
    Schedule(&begin);
    std::vector<OwnedRecord> out;
    out.push_back(begin);
    if (!begin.scheduled.empty()) {
      out.push_back(Plan(begin, KVGUARD_STAGE_PLANNED));
      if (shape_.final_stage) out.push_back(Plan(begin, KVGUARD_STAGE_FINAL));
      out.push_back(Outcome(begin));
    }
    OwnedRecord end;
    end.kind = KVGUARD_RECORD_END;
    end.step = step_;
    out.push_back(end);
    for (const OwnedScheduled& row : begin.scheduled) Find(row.request)->computed += row.num_tokens;
    return out;
  }

 private:
  struct Request {
    uint64_t key = 0;
    std::string name;
    int64_t prompt = 0;
    int64_t target = 0;  // tokens at its end
    int64_t computed = 0;
    bool admitted = false;
    std::vector<std::vector<int64_t>> blocks;  // by group
  };

  bool Chance(double p) { return std::uniform_real_distribution<double>(0, 1)(random_) < p; }
  int64_t Draw(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }

  Request* Find(uint64_t key) {
    for (Request& request : live_) {
      if (request.key == key) return &request;
    }
    return nullptr;
  }

  void Arrive() {
    Request request;
    request.name = "request " + std::to_string(++names_);
    request.prompt = Draw(1, shape_.max_prompt);
    request.target = request.prompt + Draw(1, shape_.max_output);
    waiting_.push_back(std::move(request));
  }

  void Release(Request* request) {
    for (auto& row : request->blocks) free_.insert(free_.end(), row.begin(), row.end());
    request->blocks.clear();
  }

  void Finish(OwnedRecord* begin) {
    for (size_t i = 0; i < live_.size();) {
      if (live_[i].computed < live_[i].target) {
        ++i;
        continue;
      }
      OwnedEvent event;
      event.kind = KVGUARD_EVENT_FINISH;
      event.request = live_[i].key;
      begin->events.push_back(event);
      Release(&live_[i]);
      live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  int64_t Needed(int64_t tokens, const Request& request) const {
    const int64_t columns =
        (tokens + shape_.block_size - 1) / static_cast<int64_t>(shape_.block_size);
    const int64_t bound =
        request.blocks.empty() ? 0 : static_cast<int64_t>(request.blocks[0].size());
    return std::max<int64_t>(0, columns - bound) * shape_.num_groups;
  }

  void Grow(Request* request, int64_t tokens, OwnedRecord* begin) {
    const int64_t more = Needed(tokens, *request) / shape_.num_groups;
    if (more == 0) return;
    request->blocks.resize(shape_.num_groups);
    for (uint32_t g = 0; g < shape_.num_groups; ++g) {
      OwnedEvent event;
      event.kind = KVGUARD_EVENT_APPEND;
      event.request = request->key;
      event.group = g;
      for (int64_t i = 0; i < more; ++i) {
        event.blocks.push_back(free_.front());
        request->blocks[g].push_back(free_.front());
        free_.erase(free_.begin());
      }
      begin->events.push_back(event);
    }
  }

  void Schedule(OwnedRecord* begin) {
    auto budget = static_cast<int64_t>(shape_.max_tokens);
    for (size_t i = 0; i < live_.size(); ++i) {
      while (Needed(live_[i].computed + 1, live_[i]) > static_cast<int64_t>(free_.size()) &&
             live_.size() > i + 1) {
        Preempt(begin);
      }
      if (Needed(live_[i].computed + 1, live_[i]) > static_cast<int64_t>(free_.size())) break;
      Grow(&live_[i], live_[i].computed + 1, begin);
      begin->scheduled.push_back({live_[i].key, 1, live_[i].computed, 0});
      --budget;
    }
    while (!waiting_.empty() && live_.size() < shape_.max_rows) {
      Request& request = waiting_.front();
      if (request.prompt > budget ||
          Needed(request.prompt, request) > static_cast<int64_t>(free_.size()))
        break;
      request.key = ++keys_;
      OwnedEvent event;
      event.kind = KVGUARD_EVENT_ADMIT;
      event.request = request.key;
      event.count = request.prompt;
      event.name = request.name;
      if (shape_.tokens) {
        for (int64_t i = 0; i < request.prompt; ++i)
          event.tokens.push_back(Draw(0, shape_.vocabulary - 1));
      }
      begin->events.push_back(event);
      Grow(&request, request.prompt, begin);
      begin->scheduled.push_back({request.key, request.prompt, 0, 0});
      budget -= request.prompt;
      live_.push_back(std::move(request));
      waiting_.erase(waiting_.begin());
    }
  }

  void Preempt(OwnedRecord* begin) {
    Request victim = std::move(live_.back());
    live_.pop_back();
    ++preemptions_;
    OwnedEvent event;
    event.kind = KVGUARD_EVENT_PREEMPT;
    event.request = victim.key;
    begin->events.push_back(event);
    Release(&victim);
    victim.prompt = std::min<int64_t>(std::max(victim.prompt, victim.computed), shape_.max_prompt);
    victim.computed = 0;
    waiting_.insert(waiting_.begin(), std::move(victim));
  }

  static OwnedArray Array(uint32_t dtype, std::vector<int64_t> values) {
    return {dtype, std::move(values)};
  }

  OwnedRecord Plan(const OwnedRecord& begin, uint32_t stage) {
    OwnedRecord record;
    record.kind = KVGUARD_RECORD_PLAN;
    record.step = step_;
    OwnedPlan& plan = record.plan;
    plan.pass = KVGUARD_PASS_TARGET;
    plan.stage = stage;
    plan.num_rows = begin.scheduled.size();
    plan.padded_rows = shape_.pad_rows ? shape_.max_rows : plan.num_rows;
    std::vector<int64_t> query_start = {0};
    std::vector<int64_t> seq_lens;
    std::vector<int64_t> positions;
    std::vector<int64_t> num_computed;
    for (const OwnedScheduled& row : begin.scheduled) {
      plan.requests.push_back(row.request);
      plan.num_tokens += static_cast<uint64_t>(row.num_tokens);
      query_start.push_back(static_cast<int64_t>(plan.num_tokens));
      seq_lens.push_back(row.num_computed + row.num_tokens);
      num_computed.push_back(row.num_computed);
      for (int64_t i = 0; i < row.num_tokens; ++i) positions.push_back(row.num_computed + i);
    }
    plan.padded_tokens = std::min<uint64_t>((plan.num_tokens + 7) / 8 * 8, shape_.max_tokens);
    seq_lens.resize(static_cast<size_t>(plan.padded_rows), 0);
    plan.query_start = Array(KVGUARD_I32, query_start);
    plan.seq_lens = Array(KVGUARD_I32, seq_lens);
    plan.positions = Array(KVGUARD_I64, positions);
    plan.num_computed = Array(KVGUARD_I32, num_computed);
    for (uint32_t g = 0; g < shape_.num_groups; ++g) {
      OwnedGroupPlan group;
      group.group = g;
      group.encoding = KVGUARD_READ_TABLE;
      group.slots_address = 0x7f0000001000;
      group.reads_address = 0x7f0000002000;
      group.table.dtype = KVGUARD_I32;
      group.table.rows = plan.padded_rows;
      group.table.columns = shape_.max_columns;
      group.table.entries.assign(static_cast<size_t>(plan.padded_rows * shape_.max_columns), 0);
      std::vector<int64_t> slots;
      for (uint64_t b = 0; b < plan.num_rows; ++b) {
        const Request& request = *Find(plan.requests[static_cast<size_t>(b)]);
        const OwnedScheduled& row = begin.scheduled[static_cast<size_t>(b)];
        for (size_t c = 0; c < request.blocks[g].size(); ++c)
          group.table.at(b, c) = request.blocks[g][c];
        for (int64_t i = 0; i < row.num_tokens; ++i) {
          const int64_t position = row.num_computed + i;
          const auto size = static_cast<int64_t>(shape_.block_size);
          slots.push_back(request.blocks[g][static_cast<size_t>(position / size)] * size +
                          position % size);
        }
      }
      slots.resize(static_cast<size_t>(plan.padded_tokens), -1);
      group.slots = Array(KVGUARD_I64, slots);
      plan.groups.push_back(std::move(group));
    }
    return record;
  }

  OwnedRecord Outcome(const OwnedRecord& begin) {
    OwnedRecord record;
    record.kind = KVGUARD_RECORD_OUTCOME;
    record.step = step_;
    for (const OwnedScheduled& row : begin.scheduled) {
      OwnedOutcomeRow out;
      out.request = row.request;
      out.num_sampled = 1;
      out.known = shape_.tokens;
      if (shape_.tokens) {
        out.num_tokens = 1;
        out.tokens = {Draw(0, shape_.vocabulary - 1)};
      }
      record.rows.push_back(out);
    }
    return record;
  }

  ToyShape shape_;
  std::mt19937_64 random_;
  kvguard_pool pool_{};
  std::vector<kvguard_group> groups_;
  kvguard_geometry geometry_{};
  const char* gaps_[1];
  std::vector<int64_t> free_;
  std::vector<Request> live_;
  std::vector<Request> waiting_;
  uint64_t step_ = 0;
  uint64_t keys_ = 0;
  uint64_t names_ = 0;
  uint64_t preemptions_ = 0;
};

// A random record of any kind with any contents that the structs can hold: for the codec, not for a
// guard.
class RandomRecords {
 public:
  RandomRecords(uint32_t num_groups, uint64_t seed) : num_groups_(num_groups), random_(seed) {}

  OwnedRecord Next() {
    OwnedRecord record;
    record.kind = 1 + Below(5);
    record.step = random_();
    switch (record.kind) {
      case KVGUARD_RECORD_BEGIN: {
        Events(&record);
        const uint64_t rows = Below(12);
        for (uint64_t i = 0; i < rows; ++i) {
          record.scheduled.push_back({Key(), Value(), Value(), static_cast<uint32_t>(random_())});
        }
        break;
      }
      case KVGUARD_RECORD_PLAN:
        Plan(&record.plan);
        break;
      case KVGUARD_RECORD_OUTCOME: {
        const uint64_t rows = Below(8);
        for (uint64_t i = 0; i < rows; ++i) {
          OwnedOutcomeRow row;
          row.request = Key();
          row.num_sampled = static_cast<uint32_t>(random_());
          row.num_rejected = Below(3);
          row.known = Below(2) != 0;
          if (row.known) {
            row.num_tokens = Below(6);
            for (uint64_t t = 0; t < row.num_tokens; ++t) row.tokens.push_back(Value());
          }
          record.rows.push_back(std::move(row));
        }
        Events(&record);
        break;
      }
      case KVGUARD_RECORD_END:
        record.flags = static_cast<uint32_t>(random_());
        break;
      default:
        record.reason = static_cast<uint32_t>(random_());
        break;
    }
    return record;
  }

 private:
  uint32_t Below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  uint64_t Key() { return Below(8) == 0 ? random_() : Below(20); }
  // Small, large, extreme.
  int64_t Value() {
    switch (Below(6)) {
      case 0:
        return static_cast<int64_t>(random_());
      case 1:
        return INT64_MIN;
      case 2:
        return INT64_MAX;
      default:
        return static_cast<int64_t>(Below(4000)) - 100;
    }
  }
  int64_t ValueOf(uint32_t dtype) {
    if (dtype == KVGUARD_I64) return Value();
    if (dtype == KVGUARD_U8) return Below(256);
    return Below(5) == 0 ? static_cast<int32_t>(random_()) : static_cast<int64_t>(Below(3000)) - 10;
  }

  OwnedArray Array(uint64_t count, bool flags = false) {
    OwnedArray array;
    if (Below(5) == 0) return array;
    array.dtype = flags ? KVGUARD_U8 : Below(2) == 0 ? KVGUARD_I32 : KVGUARD_I64;
    const uint32_t shape = Below(3);
    int64_t run = ValueOf(array.dtype) / 2;
    for (uint64_t i = 0; i < count; ++i) {
      if (shape == 0) {
        array.values.push_back(ValueOf(array.dtype));
      } else if (shape == 1) {  // runs
        if (Below(9) == 0) run = ValueOf(array.dtype) / 2;
        array.values.push_back(flags ? run & 0xff : run++);
      } else {
        array.values.push_back(run);
      }
    }
    return array;
  }

  void Events(OwnedRecord* record) {
    const uint64_t count = Below(6);
    for (uint64_t i = 0; i < count; ++i) {
      OwnedEvent event;
      event.kind = Below(3) == 0 ? static_cast<uint32_t>(KVGUARD_EVENT_FINISH) : Below(70);
      event.request = Key();
      event.group = Below(2) == 0 ? KVGUARD_ALL_GROUPS : Below(5);
      event.flags = Below(4);
      event.first = Below(2) == 0 ? 0 : Value();
      event.count = Below(2) == 0 ? 0 : Value();
      event.other = Below(2) == 0 ? 0 : random_();
      event.value = Below(2) == 0 ? 0 : Value();
      for (uint64_t n = Below(7); n > 0; --n) event.blocks.push_back(Value());
      for (uint64_t n = Below(9); n > 0; --n) event.tokens.push_back(Value());
      for (uint64_t n = Below(12); n > 0; --n) event.name += static_cast<char>(Below(256));
      record->events.push_back(std::move(event));
    }
  }

  void Plan(OwnedPlan* plan) {
    plan->pass = 1 + Below(6);
    plan->pass_index = Below(6);
    plan->stage = 1 + Below(2);
    plan->num_rows = Below(10);
    plan->padded_rows = plan->num_rows + Below(4);
    plan->num_tokens = Below(60);
    plan->padded_tokens = plan->num_tokens + Below(9);
    for (uint64_t i = 0; i < plan->num_rows; ++i) plan->requests.push_back(Key());
    plan->query_start = Array(plan->num_rows + 1);
    plan->seq_lens = Array(plan->padded_rows);
    plan->positions = Array(plan->num_tokens);
    plan->num_computed = Array(plan->num_rows);
    const uint32_t count = Below(num_groups_ + 1);
    for (uint32_t i = 0; i < count; ++i) {
      OwnedGroupPlan group;
      group.group = Below(num_groups_);
      group.encoding = Below(6);
      group.slots = Array(plan->padded_tokens);
      group.slots_address = random_();
      group.reads_address = Below(2) == 0 ? 0 : random_();
      switch (group.encoding) {
        case KVGUARD_READ_TABLE:
          if (Below(6) != 0) {
            group.table.dtype = Below(2) == 0 ? KVGUARD_I32 : KVGUARD_I64;
            // A recorder drops what lies behind the padding, so there is nothing.
            group.table.rows = plan->padded_rows;
            group.table.columns = Below(40);
            for (uint64_t e = 0; e < group.table.rows * group.table.columns; ++e) {
              group.table.entries.push_back(Below(3) == 0 ? ValueOf(group.table.dtype)
                                                          : 7 + static_cast<int64_t>(e));
            }
          }
          group.a = Array(plan->padded_rows);
          group.b = Array(plan->padded_rows);
          break;
        case KVGUARD_READ_CSR:
          group.a = Array(plan->num_rows + 1);
          group.b = Array(Below(80));
          group.c = Array(plan->num_rows);
          break;
        case KVGUARD_READ_FLAT:
          group.a = Array(Below(90));
          group.b = Array(plan->num_rows + 1);
          group.sentinel = Value();
          break;
        case KVGUARD_READ_MASK:
          group.cells = Below(20);
          group.row_stride = group.cells + Below(3);
          group.a = Array(group.row_stride * Below(6), true);
          break;
        case KVGUARD_READ_STATE:
          group.a = Array(plan->num_rows);
          group.b = Array(plan->num_rows);
          group.c = Array(plan->num_rows, true);
          break;
        default:
          break;
      }
      plan->groups.push_back(std::move(group));
    }
  }

  uint32_t num_groups_;
  std::mt19937_64 random_;
};

}  // namespace kvguard::trace

#endif  // KVGUARD_SRC_TRACE_TEST_STREAM_H_
