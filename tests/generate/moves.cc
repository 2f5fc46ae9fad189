// SPDX-License-Identifier: Apache-2.0
// What the scheduler does with blocks that are in use: it moves them to other places, changes two,
// shares equal ones, and erases or shifts positions of cells.
#include <algorithm>
#include <map>
#include <utility>

#include "tests/generate/scheduler.h"

namespace kvguard::generate {

std::vector<Scheduler::Request*> Scheduler::Everybody() {
  std::vector<Request*> all;
  for (const Owned& r : running_) all.push_back(r.get());
  for (const Owned& r : waiting_) all.push_back(r.get());
  for (const Load& load : loads_) all.push_back(load.request.get());
  return all;
}

// A connector reads or writes it where it is.
bool Scheduler::Pinned(uint32_t pool, int64_t block) const {
  if (being_sent_[pool][static_cast<size_t>(block)] > 0) return true;
  for (const Load& load : loads_) {
    for (const Decision::Transfer& part : load.parts) {
      if (Group(part.group).pool == pool &&
          std::find(part.blocks.begin(), part.blocks.end(), block) != part.blocks.end())
        return true;
    }
  }
  return false;
}

// Before anything of the step is decided, or when all of it is.
void Scheduler::MoveSome(Decision* decision, bool late) {
  // What happens seldom is met with more often.
  std::vector<std::pair<uint32_t, int64_t>> wanted;  // group, block
  for (const Owned& r : waiting_) {
    for (size_t g = 0; g < r->blocks.size(); ++g) {
      for (const int64_t block : r->blocks[g]) wanted.emplace_back(static_cast<uint32_t>(g), block);
    }
  }
  for (const Decision::Copy& copy : decision->copies) wanted.emplace_back(copy.group, copy.source);
  if (!options_.moves || !random_.OneIn(wanted.empty() ? 4 : 2)) return;
  const bool seldom = !wanted.empty() && random_.OneIn(2);
  const auto g = seldom ? wanted[random_.Below(wanted.size())].first
                        : static_cast<size_t>(random_.Below(options_.groups.size()));
  const uint32_t pool = Group(g).pool;
  for (const GroupOptions& group : options_.groups) {
    if (group.pool == pool && (group.forgets() || group.is_cross())) return;
  }
  const uint64_t what = random_.Below(4);
  std::vector<int64_t> first;
  for (const auto& [group, block] : wanted) {
    if (seldom && Group(group).pool == pool) first.push_back(block);
  }
  Decision::Remap move = what == 0 ? Dedupe(g) : DrawMove(g, what == 1, first);
  if (move.pairs.empty()) return;
  if (move.reason != KVGUARD_REMAP_DEDUPE) {
    auto pairs = move.pairs;
    if (move.reason == KVGUARD_REMAP_SWAP) {
      for (const auto& [from, to] : move.pairs) pairs.emplace_back(to, from);
      situations_.Reach(Situation::kBlocksSwapped);
    }
    Rename(pool, pairs, decision);
    random_.Shuffle(&move.pairs);
  }
  if (late) {
    situations_.Reach(Situation::kMoveBehindBindings);
    decision->late_moves.push_back(std::move(move));
  } else {
    decision->moves.push_back(std::move(move));
  }
}

Decision::Remap Scheduler::DrawMove(size_t g, bool swap, const std::vector<int64_t>& first) {
  const uint32_t pool = Group(g).pool;
  std::vector<int64_t> held;
  std::vector<int64_t> free;
  for (int64_t block = 0; block < options_.pools[pool].num_blocks; ++block) {
    if (block == pools_[pool].null_block() || Pinned(pool, block)) continue;
    (pools_[pool].refs(block) > 0 ? held : free).push_back(block);
  }
  random_.Shuffle(&held);
  std::stable_partition(held.begin(), held.end(), [&](int64_t block) {
    return std::find(first.begin(), first.end(), block) == first.end();
  });
  random_.Shuffle(&free);
  Decision::Remap move{static_cast<uint32_t>(g), KVGUARD_REMAP_MOVE, {}};
  const auto take = [](std::vector<int64_t>* from) {
    const int64_t block = from->back();
    from->pop_back();
    return block;
  };
  const auto any = [&] {
    return take(free.empty() || (!held.empty() && !random_.OneIn(4)) ? &held : &free);
  };
  if (swap) {
    move.reason = KVGUARD_REMAP_SWAP;
    for (uint64_t n = 1 + random_.Below(2); n > 0 && held.size() + free.size() >= 2; --n) {
      const int64_t one = any();
      move.pairs.emplace_back(one, any());
    }
    return move;
  }
  for (uint64_t n = 1 + random_.Below(2); n > 0 && !free.empty(); --n) {
    int64_t to = take(&free);
    for (uint64_t length = 1 + random_.Below(3); length > 0 && held.size() + free.size() > 0;
         --length) {
      const int64_t from = any();
      situations_.Reach(pools_[pool].refs(from) > 0  ? Situation::kLiveBlockMoved
                        : pools_[pool].indexed(from) ? Situation::kCachedBlockMoved
                                                     : Situation::kEmptyBlockMoved);
      if (pools_[pool].refs(from) > 1) situations_.Reach(Situation::kSharedBlockMoved);
      for (const Owned& r : waiting_) {
        for (const int64_t block : r->blocks[g]) {
          if (block == from) situations_.Reach(Situation::kLoadedBlockMoved);
        }
      }
      move.pairs.emplace_back(from, to);
      if (length > 1) situations_.Reach(Situation::kMoveChain);
      to = from;
    }
  }
  return move;
}

// Tokens that are computed, as far as every outcome has been told.
int64_t Scheduler::Certain(const Request& r) const {
  const bool late =
      options_.outcome_time == OutcomeTime::kLate || options_.outcome_time == OutcomeTime::kMixed;
  return r.computed - r.in_flight - (late ? kMostUntold * int64_t{options_.max_drafts} : 0);
}

// Whoever has this block has computed what it holds.
bool Scheduler::HoldersMayShare(size_t g, int64_t block) {
  for (const Request* r : Everybody()) {
    for (size_t h = 0; h < options_.groups.size(); ++h) {
      if (Group(h).pool != Group(g).pool) continue;
      for (size_t j = 0; j < r->blocks[h].size(); ++j) {
        if (r->blocks[h][j] == block &&
            (static_cast<int64_t>(j) + 1) * Group(h).span() > Certain(*r))
          return false;
      }
    }
  }
  return true;
}

// Requests that computed the same share one block of it.
Decision::Remap Scheduler::Dedupe(size_t g) {
  Decision::Remap move{static_cast<uint32_t>(g), KVGUARD_REMAP_DEDUPE, {}};
  if (Group(g).is_ring() || !options_.prefix_cache) return move;
  const uint32_t pool = Group(g).pool;
  std::map<int64_t, int64_t> to;
  for (const Owned& r : running_) {
    if (r->edited) continue;
    const int64_t whole = std::min(Certain(*r), Known(*r)) / Group(g).span();
    for (int64_t j = 0; j < whole; ++j) {
      const int64_t block = r->blocks[g][static_cast<size_t>(j)];
      const int64_t twin = PoolOf(g).Find(HashOf(*r, g, j));
      if (twin < 0 || twin == block || Pinned(pool, block) || to.size() == 3 ||
          indexed_in_[pool][static_cast<size_t>(twin)] == schedules_ || !HoldersMayShare(g, block))
        continue;
      to[block] = twin;
    }
  }
  for (Request* r : Everybody()) {
    for (int64_t& block : r->blocks[g]) {
      const auto found = to.find(block);
      if (found == to.end()) continue;
      PoolOf(g).Touch(found->second);
      PoolOf(g).Drop(block);
      block = found->second;
      situations_.Reach(Situation::kDeduped);
    }
  }
  move.pairs.assign(to.begin(), to.end());
  return move;
}

// Every block has the name of its new place.
void Scheduler::Rename(uint32_t pool, const std::vector<std::pair<int64_t, int64_t>>& pairs,
                       Decision* decision) {
  const std::map<int64_t, int64_t> to(pairs.begin(), pairs.end());
  const auto rename = [&](int64_t* block) {
    const auto found = to.find(*block);
    if (found != to.end()) *block = found->second;
  };
  pools_[pool].Move(pairs);
  for (Request* r : Everybody()) {
    for (size_t g = 0; g < options_.groups.size(); ++g) {
      if (Group(g).pool != pool) continue;
      for (int64_t& block : r->blocks[g]) rename(&block);
    }
  }
  const auto move_all = [&](auto* of_blocks, const auto& nothing) {
    const auto before = *of_blocks;
    for (const auto& [from, unused] : pairs) (*of_blocks)[static_cast<size_t>(from)] = nothing;
    for (const auto& [from, target] : pairs)
      (*of_blocks)[static_cast<size_t>(target)] = before[static_cast<size_t>(from)];
  };
  move_all(&freed_in_[pool], std::pair<uint64_t, Freed>{});
  move_all(&indexed_in_[pool], uint64_t{0});
  move_all(&described_[pool], Described{});
  for (const auto& [from, target] : pairs) moved_[pool][static_cast<size_t>(target)] = 1;
  for (auto& step : retained_) {
    for (auto& [group, block] : step) {
      if (Group(group).pool == pool) rename(&block);
    }
  }
  for (Decision::Zero& zero : decision->zeros) {
    if (Group(zero.group).pool != pool) continue;
    for (int64_t& block : zero.blocks) rename(&block);
  }
  for (Decision::Copy& copy : decision->copies) {
    if (Group(copy.group).pool != pool) continue;
    rename(&copy.source);
    rename(&copy.target);
    situations_.Reach(Situation::kCopyOfMoved);
  }
}

// The cells from this position on are nobody else's.
bool Scheduler::Alone(const Request& r, int64_t first) {
  for (size_t g = 0; g < options_.groups.size(); ++g) {
    for (auto j = static_cast<size_t>(first); j < r.blocks[g].size(); ++j) {
      const int64_t block = r.blocks[g][j];
      if (block >= 0 && PoolOf(g).refs(block) > 1) return false;
    }
  }
  return true;
}

void Scheduler::Erase(Request& r, int64_t first, int64_t count, Decision::Edit* edit) {
  const uint64_t schedule = deciding_ ? schedules_ : schedules_ + 1;
  edit->parts.push_back({KVGUARD_EVENT_ERASE, first, count, 0});
  for (size_t g = 0; g < options_.groups.size(); ++g) {
    std::vector<int64_t>& row = r.blocks[g];
    const int64_t end = std::min(first + count, static_cast<int64_t>(row.size()));
    for (int64_t j = first; j < end; ++j) {
      int64_t& block = row[static_cast<size_t>(j)];
      if (block < 0) continue;
      if (PoolOf(g).refs(block) > 1) situations_.Reach(Situation::kSharedCellErased);
      PoolOf(g).Drop(block);
      freed_in_[Group(g).pool][static_cast<size_t>(block)] = {schedule, Freed::kErased};
      block = -1;
    }
    while (!row.empty() && row.back() < 0) row.pop_back();
  }
}

void Scheduler::Rebase(Request& r, int64_t first, int64_t by, Decision::Edit* edit) {
  const int64_t size = static_cast<int64_t>(r.blocks[0].size());
  // Some engines say "to the end" with a number that is larger than any row.
  const int64_t count = random_.OneIn(3) ? 4 * options_.max_model_len : size - first;
  edit->parts.push_back({KVGUARD_EVENT_REBASE, first, count, by});
  for (size_t g = 0; g < options_.groups.size(); ++g) {
    std::vector<int64_t>& row = r.blocks[g];
    for (auto j = static_cast<size_t>(first); j < row.size(); ++j) {
      if (row[j] >= 0) PoolOf(g).Forget(row[j]);
    }
    if (by > 0) {
      row.insert(row.begin() + static_cast<std::ptrdiff_t>(first), static_cast<size_t>(by), -1);
      continue;
    }
    const int64_t gone = std::max<int64_t>(0, -by - first);
    for (int64_t j = 0; j < gone; ++j) {
      if (row[static_cast<size_t>(j)] >= 0) PoolOf(g).Drop(row[static_cast<size_t>(j)]);
    }
    const auto at = row.begin() + static_cast<std::ptrdiff_t>(first);
    row.erase(at + (gone > 0 ? 0 : by), at + gone);
  }
}

// Cells: positions are erased at the end or inside, and later ones move to where they were.
void Scheduler::EditSome(Decision* decision) {
  if (!options_.cells || running_.empty() || !random_.OneIn(5)) return;
  Request& r = *random_.Of(running_);
  // Drafts of which the stream does not know yet whether they count.
  if (r.in_flight > 0 || r.computed < 2 || Certain(r) < r.computed) return;
  const auto bound = [&] { return static_cast<int64_t>(r.blocks[0].size()); };
  Decision::Edit edit{r.key, {}, {}, 0, 0};
  const uint64_t what = random_.Below(6);
  const int64_t first = random_.Range(0, r.computed - 2);
  const int64_t n = random_.Range(1, r.computed - 1 - first);
  const auto at = static_cast<std::ptrdiff_t>(first);
  edit.changed = Known(r);
  // What is bound behind the last token goes first, or stays for the next ones. Of several rows one
  // moves before the others: what is bound there would then stand before the last token.
  if (what >= 2 && bound() > r.computed && (r.blocks.size() > 1 || random_.OneIn(2)))
    Erase(r, r.computed, bound() - r.computed, &edit);
  if (what < 2) {
    situations_.Reach(Situation::kErasedAtTheEnd);
    Erase(r, first, random_.OneIn(2) ? bound() - first : 4 * options_.max_model_len, &edit);
    for (size_t g = 0; !r.edited && g < options_.groups.size(); ++g) {
      r.hashes[g].resize(std::min(r.hashes[g].size(), static_cast<size_t>(first)));
      r.indexed[g] = std::min(r.indexed[g], first);
    }
    if (random_.OneIn(2)) {  // another continuation
      r.tokens.resize(static_cast<size_t>(first));
      for (int64_t i = random_.Range(1, 3); i > 0 && Known(r) < options_.max_model_len; --i)
        r.tokens.push_back(static_cast<uint32_t>(1 + random_.Below(6)));
      edit.changed = first;
    }
    r.computed = bound();  // less than `first` where there was a hole
    situations_.Reach(Situation::kCellsWentBack);
  } else if (what == 2) {
    situations_.Reach(Situation::kErasedInside);
    Erase(r, first, n, &edit);
    r.edited = true;
  } else if (what < 5 && Alone(r, first + n)) {
    const bool drops = first == 0 && random_.OneIn(2);  // positions below 0 are forgotten
    situations_.Reach(drops ? Situation::kShiftedBelowZero : Situation::kContextShift);
    if (bound() > r.computed) situations_.Reach(Situation::kShiftedWithLookahead);
    if (!drops) Erase(r, first, n, &edit);
    Rebase(r, drops ? 0 : first + n, -n, &edit);
    r.tokens.erase(r.tokens.begin() + at, r.tokens.begin() + at + static_cast<std::ptrdiff_t>(n));
    r.computed -= n;
    r.edited = true;
  } else if (what == 5 && Alone(r, first)) {
    const int64_t by = random_.Range(1, 3);
    if (std::max(Known(r) + 1, bound()) + by <= options_.max_model_len) {
      situations_.Reach(Situation::kShiftedUp);
      Rebase(r, first, by, &edit);
      r.tokens.insert(r.tokens.begin() + at, static_cast<size_t>(by), 1);
      r.computed += by;
      r.edited = true;
    }
  }
  if (edit.parts.empty()) return;
  if (r.edited) {
    for (auto& hashes : r.hashes) hashes.clear();
  }
  if (what >= 2) edit.changed = Known(r);
  r.target = std::max(r.target, std::min(Known(r) + 1, options_.max_model_len));
  edit.tokens = r.tokens;
  edit.computed = r.computed;
  decision->edits.push_back(std::move(edit));
}

}  // namespace kvguard::generate
