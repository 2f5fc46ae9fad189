// SPDX-License-Identifier: Apache-2.0
// Faults in lists of reads, and in blocks that move.
#include <algorithm>
#include <iterator>
#include <utility>

#include "tests/generate/mutate.h"

namespace kvguard::generate {

std::optional<Mutation> ChangePair(Random* random, std::vector<Event>* events, Mutation m) {
  std::vector<Event*> remaps;
  for (Event& event : *events) {
    if (event.kind == KVGUARD_EVENT_REMAP && event.blocks.size() > 1) remaps.push_back(&event);
  }
  if (remaps.empty()) return std::nullopt;
  std::vector<int64_t>& blocks = random->Of(remaps)->blocks;
  const auto pair = static_cast<size_t>(random->Below(blocks.size() / 2));
  const auto at = blocks.begin() + 2 * static_cast<std::ptrdiff_t>(pair);
  m.field = "event.pair";
  m.element = static_cast<int64_t>(pair);
  m.old_value = at[0];
  m.new_value = at[1];
  switch (random->Below(4)) {
    case 0:
      m.kind = "dropped";
      blocks.erase(at, at + 2);
      return m;
    case 1: {
      m.kind = "doubled";
      const int64_t copy[] = {at[0], at[1]};
      blocks.insert(at, std::begin(copy), std::end(copy));
      return m;
    }
    case 2:
      m.kind = "reversed";
      std::swap(at[0], at[1]);
      return m;
    default: {  // one goes where the other should
      const auto other =
          blocks.begin() + 2 * static_cast<std::ptrdiff_t>(random->Below(blocks.size() / 2));
      if (other == at) return std::nullopt;
      m.kind = "swapped";
      std::swap(at[1], other[1]);
      return m;
    }
  }
}

std::optional<Mutation> ChangeList(Random* random, Plan* plan, Mutation m) {
  std::vector<GroupPlan*> lists;
  for (GroupPlan& group : plan->groups) {
    if (group.offsets.present() && plan->num_rows > 0 && !group.entries.values.empty())
      lists.push_back(&group);
  }
  if (lists.empty()) return std::nullopt;
  GroupPlan& group = *random->Of(lists);
  std::vector<int64_t>& offsets = group.offsets.values;
  std::vector<int64_t>& entries = group.entries.values;
  const auto b = static_cast<size_t>(random->Below(plan->num_rows));
  m.group = group.group;
  m.element = static_cast<int64_t>(b);
  m.field = "plan.list";
  const GroupPlan before = group;
  const auto first =
      static_cast<size_t>(std::clamp<int64_t>(offsets[b], 0, int64_t(entries.size())));
  const auto last = static_cast<size_t>(
      std::clamp<int64_t>(offsets[b + 1], int64_t(first), int64_t(entries.size())));
  switch (random->Below(6)) {
    case 0: {  // the list of another row
      const auto c = static_cast<size_t>(random->Below(plan->num_rows));
      m.kind = "other-row";
      for (size_t i = first; i < last; ++i) {
        const size_t from = static_cast<size_t>(std::max<int64_t>(0, offsets[c])) + (i - first);
        if (from < entries.size()) entries[i] = before.entries.values[from];
      }
      break;
    }
    case 1:
      m.kind = "sentinel";
      if (group.encoding != KVGUARD_READ_FLAT || first == last) return std::nullopt;
      entries[first + static_cast<size_t>(random->Below(last - first))] = group.sentinel;
      break;
    case 2:
      m.kind = "rotated";
      if (first == last) return std::nullopt;
      std::rotate(entries.begin() + static_cast<std::ptrdiff_t>(first),
                  entries.begin() + static_cast<std::ptrdiff_t>(first) + 1,
                  entries.begin() + static_cast<std::ptrdiff_t>(last));
      break;
    case 3:  // a list ends with the row before it
      m.kind = "dropped";
      if (first == last) return std::nullopt;
      entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(last) - 1);
      for (size_t c = b + 1; c < offsets.size(); ++c) --offsets[c];
      break;
    case 4:
      m.kind = "doubled";
      if (first == last) return std::nullopt;
      entries.insert(entries.begin() + static_cast<std::ptrdiff_t>(last), entries[last - 1]);
      for (size_t c = b + 1; c < offsets.size(); ++c) ++offsets[c];
      break;
    default:
      m.kind = "emptied";
      if (random->OneIn(2)) {
        entries.clear();
      } else if (random->OneIn(2)) {
        std::fill(offsets.begin(), offsets.end(), offsets.front());
      } else {
        group.offsets = {};
      }
      break;
  }
  if (group == before) return std::nullopt;
  return m;
}

}  // namespace kvguard::generate
