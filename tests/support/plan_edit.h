// SPDX-License-Identifier: Apache-2.0
// Edits of whole rows of a plan, as a runner's mistakes (or its liberties) make them.
#ifndef KVGUARD_TESTS_SUPPORT_PLAN_EDIT_H_
#define KVGUARD_TESTS_SUPPORT_PLAN_EDIT_H_

#include <cstdint>
#include <vector>

#include "audit/scenario.h"

namespace kvguard::tests {

// The same plan with these of its rows, in this order; a row may stand twice. Padding is dropped.
inline audit::ScenarioPlan WithRows(const audit::ScenarioPlan& from,
                                    const std::vector<size_t>& rows) {
  audit::ScenarioPlan plan = from;
  plan.requests.clear();
  plan.query_start = {0};
  plan.seq_lens.clear();
  plan.positions.clear();
  plan.num_computed.clear();
  for (auto& group : plan.groups) {
    group.table.clear();
    group.slots.clear();
    group.row_columns.clear();
    group.seq_lens.clear();
    group.in.clear();
    group.out.clear();
    group.init.clear();
  }
  for (const size_t row : rows) {
    const auto first = static_cast<size_t>(from.query_start[row]);
    const auto last = static_cast<size_t>(from.query_start[row + 1]);
    plan.requests.push_back(from.requests[row]);
    plan.query_start.push_back(plan.query_start.back() + from.query_start[row + 1] -
                               from.query_start[row]);
    plan.seq_lens.push_back(from.seq_lens[row]);
    if (!from.num_computed.empty()) plan.num_computed.push_back(from.num_computed[row]);
    for (size_t i = first; i < last; ++i) plan.positions.push_back(from.positions[i]);
    for (size_t g = 0; g < plan.groups.size(); ++g) {
      const auto& in = from.groups[g];
      auto& out = plan.groups[g];
      for (size_t i = first; i < last; ++i) out.slots.push_back(in.slots[i]);
      for (uint64_t j = 0; j < in.columns; ++j) out.table.push_back(in.table[row * in.columns + j]);
      if (!in.row_columns.empty()) out.row_columns.push_back(in.row_columns[row]);
      if (!in.seq_lens.empty()) out.seq_lens.push_back(in.seq_lens[row]);
      if (!in.in.empty()) out.in.push_back(in.in[row]);
      if (!in.out.empty()) out.out.push_back(in.out[row]);
      if (!in.init.empty()) out.init.push_back(in.init[row]);
    }
  }
  plan.padded_rows = plan.requests.size();
  plan.padded_tokens = plan.positions.size();
  return plan;
}

// A row without tokens behind the others.
inline void AddEmptyRow(audit::ScenarioPlan& plan, uint64_t key) {
  plan.requests.push_back(key);
  plan.query_start.push_back(plan.query_start.back());
  plan.seq_lens.push_back(0);
  for (auto& group : plan.groups) group.table.resize(group.table.size() + group.columns, 0);
  ++plan.padded_rows;
}

}  // namespace kvguard::tests

#endif  // KVGUARD_TESTS_SUPPORT_PLAN_EDIT_H_
