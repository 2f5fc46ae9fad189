// SPDX-License-Identifier: Apache-2.0
// Blocks that move, and positions of cells that are forgotten or counted anew.
#include <algorithm>
#include <utility>

#include "mirror/mirror.h"

namespace kvguard::mirror {
namespace {

// What is known of a block's content and claims; pins and stamps belong to the id.
Block WithIdsOf(const Block& content, const Block& place) {
  Block block = content;
  block.pins_in = place.pins_in;
  block.loading = place.loading;
  block.pins_out = place.pins_out;
  block.stamp = place.stamp;
  return block;
}

}  // namespace

std::vector<uint32_t> Mirror::ByKey() const {
  std::vector<uint32_t> live;
  for (uint32_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i].key != 0) live.push_back(i);
  }
  std::sort(live.begin(), live.end(),
            [this](uint32_t a, uint32_t b) { return requests_[a].key < requests_[b].key; });
  return live;
}

void Mirror::SetEntries(Request* request, const geometry::Group& group, int64_t column,
                        int64_t block) {
  const int64_t per_block = group.EntriesPerBlock();
  int32_t* entries = request->rows[group.id].entries.data() + column * per_block;
  const bool fits = block >= 0 && block <= INT32_MAX && (block + 1) * per_block - 1 <= INT32_MAX;
  for (int64_t j = 0; j < per_block; ++j)
    entries[j] = fits ? static_cast<int32_t>(block * per_block + j) : -1;
}

void Mirror::MoveBlocks(uint32_t pool, const std::vector<BlockMove>& moves) {
  // By old id: there is one place for each.
  std::vector<BlockMove> sorted = moves;
  std::sort(sorted.begin(), sorted.end(),
            [](const BlockMove& a, const BlockMove& b) { return a.from < b.from; });
  const auto find = [&sorted](int64_t block) {
    const auto at =
        std::lower_bound(sorted.begin(), sorted.end(), block,
                         [](const BlockMove& move, int64_t id) { return move.from < id; });
    return at != sorted.end() && at->from == block ? &*at : nullptr;
  };
  for (Request& request : requests_) {
    if (request.key == 0) continue;
    for (const geometry::Group& group : layout_->groups) {
      if (group.pool != pool) continue;
      const int64_t columns = BoundBlocks(request, group);
      for (int64_t column = 0; column < columns; ++column) {
        if (const BlockMove* move = find(BlockAt(request, group, column)))
          SetEntries(&request, group, column, move->to);
      }
    }
  }
  BlockStore& store = blocks_[pool];
  std::vector<Block> before;
  before.reserve(sorted.size());
  for (const BlockMove& move : sorted)
    before.push_back(store.Touch(static_cast<size_t>(move.from)));
  for (size_t i = 0; i < sorted.size(); ++i) {
    const auto to = static_cast<size_t>(sorted[i].to);
    Block& target = store.Touch(to);
    const bool moves_on = find(sorted[i].to) != nullptr;
    Block moved = WithIdsOf(before[i], target);
    if (!moves_on) {  // whoever names it still does
      const bool hits = moved.hit_step == target.hit_step;
      moved.claims += target.claims;
      if (hits) moved.hit_claims += target.hit_claims;
    }
    target = moved;
  }
  for (const BlockMove& move : sorted) {
    const bool filled = std::any_of(sorted.begin(), sorted.end(), [&move](const BlockMove& other) {
      return other.to == move.from;
    });
    Block& source = store.Touch(static_cast<size_t>(move.from));
    if (!filled) source = WithIdsOf(Block{}, source);
  }
  for (const BlockMove& move : sorted) {
    for (const int64_t id : {move.from, move.to}) {
      lost_.erase({pool, id});
      if (store.At(static_cast<size_t>(id)).lost) lost_.emplace(pool, id);
    }
  }
  lost_claim_ = lost_claim_ || !lost_.empty();
}

void Mirror::SettleHits(const Request& request, const geometry::Group& group, uint64_t step,
                        bool forget) {
  Row& row = requests_[Find(request.key)].rows[group.id];
  if (row.hit_step == step) {
    for (int64_t column = row.hit_first; column < row.hit_end; ++column) {
      const int64_t block = BlockAt(request, group, column);
      if (!InPool(group, block)) continue;
      Block& b = TouchBlock(group, block);
      if (b.hit_step == step && b.hit_claims > 0) --b.hit_claims;
    }
  }
  row.hit_first = row.hit_end = 0;
  if (!forget) return;
  std::erase_if(hits_,
                [&](const Hit& hit) { return hit.key == request.key && hit.group == group.id; });
}

void Mirror::TakeOut(Request* request, const geometry::Group& group, int64_t column,
                     uint64_t step) {
  GiveBack(*request, group, column, step);
  std::erase_if(hits_, [&](const Hit& hit) {
    return hit.key == request->key && hit.group == group.id && hit.column == column;
  });
  SetEntries(request, group, column, KVGUARD_NONE);
}

void Mirror::Erase(Request* request, const geometry::Group& group, int64_t first, int64_t count,
                   uint64_t step) {
  SettleHits(*request, group, step, true);
  const int64_t bound = BoundBlocks(*request, group);
  const int64_t end = first < bound && count < bound - first ? first + count : bound;
  for (int64_t column = first; column < end; ++column) TakeOut(request, group, column, step);
  EndRow(request, group, LastCounted(*request, group));
}

void Mirror::Rebase(Request* request, const geometry::Group& group, int64_t first, int64_t count,
                    int64_t by, uint64_t step) {
  SettleHits(*request, group, step, true);
  const int64_t bound = BoundBlocks(*request, group);
  if (first >= bound || by == 0) return EndRow(request, group, LastCounted(*request, group));
  const int64_t end = count < bound - first ? first + count : bound;
  constexpr int64_t kMost = int64_t{1} << 24;  // a row that one event may ask for
  const geometry::Pool& pool = layout_->PoolOf(group);
  const int64_t most =
      std::min(kMost, layout_->max_model_len > 0 ? layout_->max_model_len : pool.num_blocks);
  std::vector<int32_t>& entries = request->rows[group.id].entries;
  // Whole sums stay in range: |by| is at most 2^40 (CheckEvents).
  std::vector<int64_t> taken;
  std::vector<bool> at_home;  // as it was before any of them moved
  int64_t counted = 0;
  for (int64_t column = first; column < end; ++column) {
    const int64_t to = column + by;
    const bool counts = column < request->frontier.valid_low && to >= 0 && to < most;
    if (counts && BlockAt(*request, group, column) >= 0) counted = std::max(counted, to + 1);
    if (to < 0 || to >= most) GiveBack(*request, group, column, step);
    taken.push_back(to < 0 || to >= most ? int64_t{KVGUARD_NONE}
                                         : BlockAt(*request, group, column));
    at_home.push_back(taken.back() >= 0 && InPool(group, taken.back()) &&
                      BlockOf(group, taken.back()).home == static_cast<uint32_t>(column + 1) &&
                      BlockOf(group, taken.back()).home_group == group.id);
    SetEntries(request, group, column, KVGUARD_NONE);
  }
  // A row may be wider than it should be.
  const int64_t beyond = std::min(end + by, static_cast<int64_t>(entries.size()));
  for (int64_t column = std::max(most, first + by); column < beyond; ++column)
    TakeOut(request, group, column, step);
  const int64_t last = std::min(end + by, most);
  if (last > static_cast<int64_t>(entries.size())) entries.resize(static_cast<size_t>(last), -1);
  for (int64_t column = std::max<int64_t>(0, first + by); column < last; ++column) {
    const int64_t block = taken[static_cast<size_t>(column - by - first)];
    GiveBack(*request, group, column, step);
    SetEntries(request, group, column, block);
    if (at_home[static_cast<size_t>(column - by - first)])
      SetHome(&TouchBlock(group, block), group.id, column);
  }
  // Of the others, those that were counted and are not covered.
  const int64_t others = std::min(request->frontier.valid_low, BoundBlocks(*request, group));
  for (int64_t column = others - 1; column >= counted; --column) {
    const bool moved = column >= first + by && column < last;
    if (!moved && BlockAt(*request, group, column) >= 0) counted = column + 1;
  }
  EndRow(request, group, counted);
}

int64_t Mirror::LastCounted(const Request& request, const geometry::Group& group) const {
  int64_t columns = std::min(request.frontier.valid_low, BoundBlocks(request, group));
  while (columns > 0 && BlockAt(request, group, columns - 1) < 0) --columns;
  return columns;
}

void Mirror::EndRow(Request* request, const geometry::Group& group, int64_t counted) {
  Row& row = request->rows[group.id];
  while (!row.entries.empty() && row.entries.back() < 0) row.entries.pop_back();
  row.last_append = std::min(row.last_append, static_cast<uint32_t>(row.entries.size()));
  for (const geometry::Group& other : layout_->groups) {
    if (other.id != group.id) counted = std::max(counted, LastCounted(*request, other));
  }
  request->frontier = {counted, counted, counted};
  Settle(request);
  request->chain.Forget();
}

}  // namespace kvguard::mirror
