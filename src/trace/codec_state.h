// SPDX-License-Identifier: Apache-2.0
// What writer and reader of a trace both remember of the records before: each predicts with it,
// both move it alike. It needs no mirror: a trace can be read by something that knows no rule.
#ifndef KVGUARD_SRC_TRACE_CODEC_STATE_H_
#define KVGUARD_SRC_TRACE_CODEC_STATE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kvguard/kvguard.h"
#include "trace/column.h"
#include "trace/table.h"

namespace kvguard::trace {

struct GroupMemory {
  ColumnMemory slots;
  ColumnMemory a;
  ColumnMemory b;
  ColumnMemory c;
  ColumnMemory judged;
  RowIndexes narrow;
  RowIndexes wide;
};

// The previous plan of one pass. Both stages share it, so that a FINAL plan that equals its PLANNED
// one costs nothing.
struct PlanMemory {
  uint32_t pass = 0;
  uint32_t pass_index = 0;
  ColumnMemory requests;
  ColumnMemory query_start;
  ColumnMemory seq_lens;
  ColumnMemory positions;
  ColumnMemory num_computed;
  std::vector<GroupMemory> groups;  // by their place in the plan
};

struct ScheduledMemory {
  ColumnMemory request;
  ColumnMemory num_tokens;
  ColumnMemory num_computed;
  ColumnMemory num_drafts;
};

struct OutcomeMemory {
  ColumnMemory request;
  ColumnMemory num_sampled;
  ColumnMemory num_rejected;
  ColumnMemory num_tokens;
};

class CodecState {
 public:
  explicit CodecState(uint32_t num_groups) : rows(num_groups) {}

  ScheduledMemory scheduled;
  OutcomeMemory outcome;
  std::vector<GroupRows> rows;  // by group

  // The memory of a pass, or a scratch one that is empty where there are more passes than are
  // remembered.
  PlanMemory& PlanOf(uint32_t pass, uint32_t pass_index) {
    for (PlanMemory& plan : plans_) {
      if (plan.pass == pass && plan.pass_index == pass_index) return plan;
    }
    if (plans_.size() < kMaxPlans) {
      plans_.emplace_back();
      plans_.back().pass = pass;
      plans_.back().pass_index = pass_index;
      return plans_.back();
    }
    other_ = PlanMemory{};
    return other_;
  }

  // A finished or preempted key never comes back.
  void Forget(uint64_t request) {
    for (GroupRows& group : rows) group.Erase(request);
  }
  void ForgetRows() {
    for (GroupRows& group : rows) group.Clear();
  }
  void Clear() {
    scheduled = {};
    outcome = {};
    plans_.clear();
    ForgetRows();
  }

  // Memory that the state holds, roughly; what an untrusted file can make a reader keep is bounded
  // by it.
  uint64_t HeldBytes() const {
    uint64_t elements = Elements(scheduled.request) + Elements(scheduled.num_tokens) +
                        Elements(scheduled.num_computed) + Elements(scheduled.num_drafts) +
                        Elements(outcome.request) + Elements(outcome.num_sampled) +
                        Elements(outcome.num_rejected) + Elements(outcome.num_tokens);
    for (const PlanMemory& plan : plans_) elements += Elements(plan);
    elements += Elements(other_);
    uint64_t bytes = elements * sizeof(int64_t);
    for (const GroupRows& group : rows) bytes += group.HeldBytes();
    return bytes;
  }

  // Indexes of a plan's requests in a store, looked up anew only where the requests or the store
  // changed.
  template <typename T>
  static std::span<const uint32_t> IndexesOf(std::span<const int64_t> requests, bool same_requests,
                                             uint32_t group, RowStore<T>* store,
                                             RowIndexes* indexes) {
    if (!same_requests || indexes->group != group || indexes->generation != store->generation() ||
        indexes->rows.size() != requests.size()) {
      indexes->rows.clear();
      for (const int64_t key : requests) {
        indexes->rows.push_back(store->FindOrAdd(static_cast<uint64_t>(key)));
      }
      indexes->group = group;
      indexes->generation = store->generation();
    }
    return indexes->rows;
  }

 private:
  static constexpr size_t kMaxPlans = 16;

  static uint64_t Elements(const ColumnMemory& memory) { return memory.values.capacity(); }
  static uint64_t Elements(const PlanMemory& plan) {
    uint64_t elements = Elements(plan.requests) + Elements(plan.query_start) +
                        Elements(plan.seq_lens) + Elements(plan.positions) +
                        Elements(plan.num_computed);
    for (const GroupMemory& group : plan.groups) {
      elements += Elements(group.slots) + Elements(group.a) + Elements(group.b) +
                  Elements(group.c) + Elements(group.judged) +
                  (group.narrow.rows.capacity() + group.wide.rows.capacity()) / 2 + 1;
    }
    return elements;
  }

  std::vector<PlanMemory> plans_;
  PlanMemory other_;
};

}  // namespace kvguard::trace

#endif  // KVGUARD_SRC_TRACE_CODEC_STATE_H_
