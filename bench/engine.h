// SPDX-License-Identifier: Apache-2.0
//
// An engine without a model: it schedules a scenario, keeps tables and a free list, fills
// persistent buffers as a runner does, and hands out the records of each step.
#ifndef KVGUARD_BENCH_ENGINE_H_
#define KVGUARD_BENCH_ENGINE_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "bench/scenario.h"
#include "kvguard/kvguard.h"

namespace kvguard::bench {

// The engine's attention metadata of one step, in its own buffers.
struct Metadata {
  uint64_t rows = 0;
  uint64_t tokens = 0;
  uint64_t stride = 0;                // table columns
  const int64_t* slots = nullptr;     // [tokens]
  const int32_t* table = nullptr;     // [rows][stride], live in [0, columns[row])
  const uint64_t* columns = nullptr;  // [rows]
};

class Engine {
 public:
  explicit Engine(const Scenario& scenario);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Valid as long as the engine.
  const kvguard_geometry& geometry() const { return geometry_; }

  // A cycle: for each decoding request a step that prefills it, then kCycle steps of the scenario.
  // Each call makes one step; measured() says which kind it was.
  void NextStep();
  bool measured() const { return measured_; }
  uint32_t steps_per_cycle() const { return static_cast<uint32_t>(decoders_.size()) + kCycle; }

  // Records of the step, in the order in which they are fed: begin, plan, outcome, end. Valid until
  // the next step.
  const kvguard_record& begin() const { return begin_record_; }
  const kvguard_record& plan() const { return plan_record_; }
  const kvguard_record& outcome() const { return outcome_record_; }
  const kvguard_record& end() const { return end_record_; }

  Metadata metadata() const;

  // The step as one JSON object, for the lanes that are written in Python.
  std::string Json() const;

 private:
  struct Request {
    uint64_t key = 0;  // 0: none
    uint32_t computed = 0;
    std::string name;
    std::vector<int64_t> blocks;
  };
  struct Row {
    Request* request;
    uint32_t query;
  };

  void Finish(Request& request);
  void Admit(Request& request, uint32_t tokens);
  void Grow(Request& request, uint32_t tokens);
  void Schedule();
  void FillBuffers();
  void BuildRecords();

  const uint32_t block_size_;
  uint64_t stride_;
  std::vector<Request> decoders_;
  std::vector<uint32_t> decoder_starts_;
  std::vector<Request> prefillers_;
  std::vector<uint32_t> prefiller_queries_;
  std::deque<int64_t> free_;  // first in, first out, as a prefix cache wants it
  uint64_t next_key_ = 1;
  uint64_t step_ = 0;
  uint32_t step_of_cycle_ = 0;
  bool measured_ = false;

  // This step.
  std::vector<Row> rows_;
  std::vector<kvguard_event> events_;
  std::deque<std::vector<int64_t>> event_blocks_;  // a deque: events point into its elements

  // The runner's persistent buffers.
  std::vector<int64_t> slots_;
  std::vector<int32_t> table_;
  std::vector<uint64_t> columns_;
  std::vector<int32_t> query_start_;
  std::vector<int32_t> seq_lens_;
  std::vector<uint64_t> keys_;
  std::vector<kvguard_scheduled> scheduled_;
  std::vector<kvguard_outcome_row> outcome_rows_;

  kvguard_pool pool_{};
  kvguard_group group_{};
  kvguard_geometry geometry_{};
  kvguard_begin begin_{};
  kvguard_group_plan group_plan_{};
  kvguard_plan plan_{};
  kvguard_outcome outcome_{};
  kvguard_end end_{};
  kvguard_record begin_record_{};
  kvguard_record plan_record_{};
  kvguard_record outcome_record_{};
  kvguard_record end_record_{};
};

}  // namespace kvguard::bench

#endif  // KVGUARD_BENCH_ENGINE_H_
