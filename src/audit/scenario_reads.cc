// SPDX-License-Identifier: Apache-2.0
// What a scenario's engine reads by lists, and how its rows follow blocks that move.
#include <algorithm>

#include "audit/scenario.h"

namespace kvguard::audit {

// As an engine of each encoding builds it: every token that the row reads, in order.
void Scenario::PlanList(const ScenarioGroup& group, const Live& live,
                        const std::vector<int64_t>& blocks, int64_t tokens,
                        ScenarioPlan::Group* out) const {
  const auto size = static_cast<int64_t>(group.block_size);
  const int64_t end = live.computed + tokens;
  if (out->starts.empty()) out->starts.push_back(0);
  const auto block_in = [&](int64_t column) {
    return column < static_cast<int64_t>(blocks.size()) ? blocks[static_cast<size_t>(column)] : 0;
  };
  if (group.kind == KVGUARD_GROUP_RING) {
    const auto window = static_cast<int64_t>(group.window);
    for (int64_t p = std::max<int64_t>(0, live.computed - window + 1); p < live.computed; ++p)
      out->list.push_back(SlotOf(group, blocks, p));
    out->list.insert(out->list.end(), static_cast<size_t>(tokens), KVGUARD_NONE);
  } else if (group.table_unit == KVGUARD_UNIT_SLOT) {
    for (int64_t p = 0; p < end; ++p) {
      const bool hole = group.pool_kind == KVGUARD_POOL_CELLS && block_in(p) < 0;
      if (hole) continue;
      out->list.push_back(group.sentinels && p >= live.computed ? KVGUARD_NONE
                                                                : SlotOf(group, blocks, p));
    }
  } else {
    const bool kernel = group.table_unit == KVGUARD_UNIT_KERNEL_BLOCK;
    const int64_t per_entry = kernel ? static_cast<int64_t>(group.kernel_block_size) : size;
    for (int64_t p = 0; p < end; p += per_entry)
      out->list.push_back(block_in(p / size) * (size / per_entry) + p % size / per_entry);
    const int64_t rest = end % per_entry;
    out->last_page.push_back(rest == 0 ? per_entry : rest);
  }
  out->starts.push_back(static_cast<int64_t>(out->list.size()));
}

Scenario& Scenario::Remap(uint32_t reason, std::vector<int64_t> pairs, uint32_t group) {
  for (auto& [name, live] : live_) {
    for (size_t g = 0; g < live.blocks.size(); ++g) {
      if (options_.groups[g].pool != options_.groups[group].pool) continue;
      for (int64_t& block : live.blocks[g]) {
        for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
          const bool back = reason == KVGUARD_REMAP_SWAP && block == pairs[i + 1];
          if (block != pairs[i] && !back) continue;
          block = back ? pairs[i] : pairs[i + 1];
          break;
        }
      }
    }
  }
  return Blocks(KVGUARD_EVENT_REMAP, "", std::move(pairs), reason, 0, group);
}

Scenario& Scenario::Erase(const std::string& name, int64_t first, int64_t count) {
  Event_& event = Push(KVGUARD_EVENT_ERASE, Key(name));
  event.event.group = 0;
  event.event.first = first;
  event.event.count = count;
  Live& live = live_.at(name);
  auto& cells = live.blocks[0];
  for (int64_t p = first; p < first + count && p < static_cast<int64_t>(cells.size()); ++p)
    cells[static_cast<size_t>(p)] = KVGUARD_NONE;
  while (!cells.empty() && cells.back() < 0) cells.pop_back();
  live.computed = static_cast<int64_t>(cells.size());
  return *this;
}

Scenario& Scenario::Rebase(const std::string& name, int64_t first, int64_t count, int64_t by) {
  Event_& event = Push(KVGUARD_EVENT_REBASE, Key(name));
  event.event.group = 0;
  event.event.first = first;
  event.event.count = count;
  event.event.value = by;
  Live& live = live_.at(name);
  auto& cells = live.blocks[0];
  std::vector<int64_t> moved;
  for (int64_t p = first; p < first + count && p < static_cast<int64_t>(cells.size()); ++p) {
    moved.push_back(cells[static_cast<size_t>(p)]);
    cells[static_cast<size_t>(p)] = KVGUARD_NONE;
  }
  for (size_t i = 0; i < moved.size(); ++i) {
    const int64_t to = first + by + static_cast<int64_t>(i);
    if (to < 0) continue;
    if (to >= static_cast<int64_t>(cells.size()))
      cells.resize(static_cast<size_t>(to) + 1, KVGUARD_NONE);
    cells[static_cast<size_t>(to)] = moved[i];
  }
  while (!cells.empty() && cells.back() < 0) cells.pop_back();
  live.computed = static_cast<int64_t>(cells.size());
  return *this;
}

}  // namespace kvguard::audit
