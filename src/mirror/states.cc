// SPDX-License-Identifier: Apache-2.0
// Where the states of recurrent groups stand, and of how many tokens each is.
#include <algorithm>

#include "mirror/mirror.h"

namespace kvguard::mirror {

int64_t Mirror::PlaceOf(const Request& request, const geometry::Group& group, int64_t tokens) {
  if (tokens <= 0) return KVGUARD_NONE;
  if (group.state_mode == KVGUARD_STATE_ALL) return group.StateColumn(tokens);
  const int64_t origin = request.states_end - request.states_drafts;
  if (tokens < origin || tokens > request.states_end) return KVGUARD_NONE;
  // Each accepted draft has left its state one column further.
  return group.StateColumn(request.states_end) + (tokens - origin);
}

int64_t Mirror::StoreOf(const Request& request, const geometry::Group& group, int64_t tokens) {
  if (group.state_mode != KVGUARD_STATE_ALIGN || tokens % group.block_size != 0 ||
      PlaceOf(request, group, tokens) == KVGUARD_NONE) {
    return KVGUARD_NONE;
  }
  return tokens / group.block_size - 1;
}

bool Mirror::MayBePlace(const Request& request, const geometry::Group& group, int64_t column) {
  const int64_t stored = (column + 1) * group.block_size;
  if (stored >= request.frontier.valid_low && stored <= request.frontier.valid_high &&
      StoreOf(request, group, stored) == column) {
    return true;
  }
  const int64_t origin = request.states_end - request.states_drafts;
  const int64_t tokens = origin + column - group.StateColumn(request.states_end);
  const Frontier& f = request.frontier;
  return tokens > 0 && tokens >= std::max(origin, f.valid_low) &&
         tokens <= std::min(request.states_end, f.valid_high);
}

void Mirror::StatesWritten(Request* request, bool abandoned) {
  const bool known = request->start != KVGUARD_NONE && !abandoned;
  const int64_t end = request->start_high + request->num_tokens;
  for (const geometry::Group& group : layout_->groups) {
    if (!group.IsState() || group.on_host) continue;
    const int64_t bound = BoundBlocks(*request, group);
    const auto set = [&](int64_t column, int64_t tokens) {
      if (column < 0 || column >= bound) return;
      if (!IsClaimed(*request, group, column)) return;
      const int64_t block = BlockAt(*request, group, column);
      if (InPool(group, block) && block != layout_->PoolOf(group).null_block)
        TouchBlock(group, block).state_tokens = tokens;
    };
    const int64_t size = group.block_size;
    // The state at a boundary within the step may be stored afterwards where the step came from.
    if (group.state_mode == KVGUARD_STATE_ALIGN) {
      const int64_t first =
          std::max(request->start_low, request->states_end - request->states_drafts);
      for (int64_t s = first; s <= std::min(request->start_high, request->states_end); ++s) {
        if ((s / size + 1) * size < s + request->num_tokens) set(PlaceOf(*request, group, s), 0);
      }
    }
    const bool all = group.state_mode == KVGUARD_STATE_ALL;
    const bool told = known && request->num_drafts == 0;
    const geometry::Group::Columns written = group.Written(
        request->start_low, request->start_high, request->num_tokens, request->num_drafts);
    const int64_t last = std::min(written.last, bound - 1);
    for (int64_t column = written.first; column <= last; ++column)
      set(column, all && told ? std::min(end, (column + 1) * size) : 0);
    if (told) set(group.StateColumn(end), end);
  }
  request->states_end = known ? end : KVGUARD_NONE;
  request->states_drafts = known ? request->num_drafts : 0;
}

}  // namespace kvguard::mirror
