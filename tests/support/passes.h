// SPDX-License-Identifier: Apache-2.0
// Plans of passes besides the target's, made of the target's right plan.
#ifndef KVGUARD_TESTS_SUPPORT_PASSES_H_
#define KVGUARD_TESTS_SUPPORT_PASSES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "audit/scenario.h"

namespace kvguard::tests {

// Of a row of the whole plan, so many tokens from `first` on.
struct Cut {
  size_t row = 0;
  size_t first = 0;
  size_t count = 0;
};

// 0 beyond what the table shows: a slot of the null block, as an engine's own arithmetic gives it.
inline int64_t SlotAt(const audit::ScenarioPlan& whole, size_t group, size_t row, int64_t position,
                      int64_t block) {
  const audit::ScenarioPlan::Group& from = whole.groups[group];
  const auto column = static_cast<size_t>(position / block);
  const int64_t id = column < from.columns ? from.table[row * from.columns + column] : 0;
  return id * block + position % block;
}

inline void AddRow(const audit::ScenarioPlan& whole, size_t row, audit::ScenarioPlan* plan) {
  plan->requests.push_back(whole.requests[row]);
  for (size_t g = 0; g < whole.groups.size(); ++g) {
    const audit::ScenarioPlan::Group& from = whole.groups[g];
    const auto first = from.table.begin() + static_cast<std::ptrdiff_t>(row * from.columns);
    plan->groups[g].table.insert(plan->groups[g].table.end(), first,
                                 first + static_cast<std::ptrdiff_t>(from.columns));
  }
}

inline audit::ScenarioPlan EmptyPass(const audit::ScenarioPlan& whole, uint32_t pass,
                                     uint32_t index) {
  audit::ScenarioPlan plan;
  plan.pass = pass;
  plan.pass_index = index;
  plan.query_start = {0};
  plan.groups.resize(whole.groups.size());
  for (size_t g = 0; g < whole.groups.size(); ++g) plan.groups[g].columns = whole.groups[g].columns;
  return plan;
}

inline void ClosePass(audit::ScenarioPlan* plan) {
  plan->padded_rows = plan->requests.size();
  plan->padded_tokens = plan->positions.size();
}

// With the slots of group 0.
inline audit::ScenarioPlan MicroBatch(const audit::ScenarioPlan& whole, uint32_t index,
                                      const std::vector<Cut>& cuts) {
  audit::ScenarioPlan plan = EmptyPass(whole, KVGUARD_PASS_MICRO_BATCH, index);
  for (const Cut& cut : cuts) {
    AddRow(whole, cut.row, &plan);
    const size_t first = static_cast<size_t>(whole.query_start[cut.row]) + cut.first;
    const int64_t start =
        first < whole.positions.size() ? whole.positions[first] : whole.seq_lens[cut.row];
    for (size_t i = 0; i < cut.count; ++i) {
      plan.positions.push_back(whole.positions[first + i]);
      plan.groups[0].slots.push_back(whole.groups[0].slots[first + i]);
    }
    plan.query_start.push_back(static_cast<int64_t>(plan.positions.size()));
    plan.seq_lens.push_back(start + static_cast<int64_t>(cut.count));
  }
  ClosePass(&plan);
  return plan;
}

// One token of each row, behind what is valid; `block` is the block size of group 0.
inline audit::ScenarioPlan Draft(const audit::ScenarioPlan& whole, uint32_t k,
                                 const std::vector<int64_t>& positions, int64_t block = 4) {
  audit::ScenarioPlan plan = EmptyPass(whole, KVGUARD_PASS_DRAFT, k);
  for (size_t row = 0; row < positions.size(); ++row) {
    AddRow(whole, row, &plan);
    plan.positions.push_back(positions[row]);
    plan.groups[0].slots.push_back(SlotAt(whole, 0, row, positions[row], block));
    plan.query_start.push_back(static_cast<int64_t>(row) + 1);
    plan.seq_lens.push_back(positions[row] + 1);
  }
  ClosePass(&plan);
  return plan;
}

// Group 1 is the one of kind CROSS, of blocks of `block` tokens. encoders: by row, how many tokens
// it has; written: by row, whether the plan writes them.
inline audit::ScenarioPlan Cross(const audit::ScenarioPlan& whole,
                                 const std::vector<int64_t>& encoders,
                                 const std::vector<bool>& written, int64_t block = 4) {
  audit::ScenarioPlan plan = EmptyPass(whole, KVGUARD_PASS_CROSS, 0);
  plan.groups[0].present = false;
  for (size_t row = 0; row < encoders.size(); ++row) {
    AddRow(whole, row, &plan);
    for (int64_t i = 0; written[row] && i < encoders[row]; ++i) {
      plan.positions.push_back(i);
      plan.groups[1].slots.push_back(SlotAt(whole, 1, row, i, block));
    }
    plan.query_start.push_back(static_cast<int64_t>(plan.positions.size()));
    plan.seq_lens.push_back(encoders[row]);
  }
  ClosePass(&plan);
  return plan;
}

}  // namespace kvguard::tests

#endif  // KVGUARD_TESTS_SUPPORT_PASSES_H_
