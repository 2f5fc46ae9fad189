// SPDX-License-Identifier: Apache-2.0
// The prefix cache of the scheduler: what is claimed by hits, whole blocks and parts of them.
#include <algorithm>
#include <numeric>

#include "tests/generate/scheduler.h"

namespace kvguard::generate {

uint64_t Scheduler::HashOf(Request& r, size_t g, int64_t column) {
  std::vector<uint64_t>& hashes = r.hashes[g];
  const int64_t size = Group(g).span();
  while (static_cast<int64_t>(hashes.size()) <= column) {
    const auto j = static_cast<int64_t>(hashes.size());
    uint64_t hash = hashes.empty() ? Mix(g, 0x68617368) : hashes.back();
    for (int64_t p = j * size; p < (j + 1) * size; ++p) {
      hash = Mix(hash, r.tokens[static_cast<size_t>(p)]);
      if (!Has(Fault::kIgnoreDomain)) hash = Mix(hash, DomainAt(r.domains, p));
    }
    hashes.push_back(hash | 1);
  }
  return hashes[static_cast<size_t>(column)];
}

// Whether the index has what a request that starts at `tokens` still needs of this group.
bool Scheduler::Holds(Request& r, size_t g, int64_t tokens) {
  for (int64_t j = 0; j < tokens / Group(g).span(); ++j) {
    if (!Group(g).Keeps(j, tokens)) continue;
    const int64_t block = PoolOf(g).Find(HashOf(r, g, j));
    if (block < 0) return false;
    // A state is read before the step writes it: not in the step that makes it.
    if (Group(g).is_state() && !Has(Fault::kStateSameStep) &&
        indexed_in_[Group(g).pool][static_cast<size_t>(block)] == schedules_)
      return false;
  }
  return true;
}

// Claims the longest prefix that every group has; in tokens.
int64_t Scheduler::Hit(Request& r) {
  if (!options_.prefix_cache) return 0;
  int64_t unit = 1;
  for (const GroupOptions& group : options_.groups) unit = std::lcm(unit, group.span());
  int64_t hit = (Known(r) - 1) / unit * unit;
  for (; hit > 0; hit -= unit) {
    bool all = true;
    for (size_t g = 0; all && g < options_.groups.size(); ++g) all = Holds(r, g, hit);
    if (all) break;
  }
  if (hit == 0) return 0;
  situations_.Reach(Situation::kPrefixHit);
  if (!r.domains.empty()) situations_.Reach(Situation::kDomainHit);
  for (size_t g = 0; g < options_.groups.size(); ++g) {
    BlockPool& pool = PoolOf(g);
    const int64_t size = Group(g).span();
    if (Group(g).is_window()) situations_.Reach(Situation::kWindowHit);
    if (Group(g).is_state()) situations_.Reach(Situation::kStateHit);
    for (int64_t j = 0; j < hit / size; ++j) {
      if (!Group(g).Keeps(j, hit)) {
        situations_.Reach(Situation::kNullInFront);
        r.blocks[g].push_back(pool.null_block());
        continue;
      }
      const uint64_t hash = HashOf(r, g, j);
      const int64_t block = pool.Find(hash);
      situations_.Reach(pool.refs(block) > 0 ? Situation::kHitOnLiveBlocks
                                             : Situation::kHitOnFreedBlocks);
      if (pool.CameBack(hash)) situations_.Reach(Situation::kHitAfterEviction);
      if (indexed_in_[Group(g).pool][static_cast<size_t>(block)] == schedules_)
        situations_.Reach(Situation::kHitInSameStep);
      if (moved_[Group(g).pool][static_cast<size_t>(block)] != 0)
        situations_.Reach(Situation::kHitOnMoved);
      pool.Touch(block);
      r.blocks[g].push_back(block);
    }
    r.indexed[g] = hit / size;
  }
  return hit;
}

// Full blocks of known tokens enter the index when the step that fills them is scheduled.
void Scheduler::Index(Request& r, int64_t tokens) {
  if (!options_.prefix_cache || r.edited) return;
  for (size_t g = 0; g < options_.groups.size(); ++g) {
    int64_t& j = r.indexed[g];
    if (OnlyLast(g)) {  // its state is that at a block's end only where the step ends there
      j = tokens / Group(g).span() - 1;
      if (tokens % Group(g).span() != 0 || tokens > Known(r)) continue;
    }
    for (; (j + 1) * Group(g).span() <= std::min(tokens, Known(r)); ++j) {
      const int64_t block = r.blocks[g][static_cast<size_t>(j)];
      if (block == PoolOf(g).null_block()) continue;
      const uint64_t hash = HashOf(r, g, j);
      if (PoolOf(g).Find(hash) >= 0) continue;
      PoolOf(g).Index(block, hash);
      if (options_.copies) Describe(r, g, j);
      indexed_in_[Group(g).pool][static_cast<size_t>(block)] = schedules_;
    }
  }
}

uint64_t Scheduler::ItemOf(const Request& r, int64_t position) {
  return Mix(r.tokens[static_cast<size_t>(position)], DomainAt(r.domains, position));
}

// Keeps what a block in the index holds, for hits that end inside it.
void Scheduler::Describe(Request& r, size_t g, int64_t column) {
  const int64_t size = Group(g).span();
  Described& described =
      described_[Group(g).pool][static_cast<size_t>(r.blocks[g][static_cast<size_t>(column)])];
  described.group = g;
  described.hash = HashOf(r, g, column);
  described.parent = column == 0 ? 0 : HashOf(r, g, column - 1);
  described.items.clear();
  for (int64_t p = column * size; p < (column + 1) * size; ++p)
    described.items.push_back(ItemOf(r, p));
}

// The block of this group that begins with most of the tokens behind the hit; how many, in tokens.
std::pair<int64_t, int64_t> Scheduler::BestPart(Request& r, size_t g, int64_t hit) {
  const int64_t size = Group(g).span();
  const uint64_t parent = hit == 0 ? 0 : HashOf(r, g, hit / size - 1);
  std::pair<int64_t, int64_t> best = {-1, 0};
  const auto& all = described_[Group(g).pool];
  for (size_t block = 0; block < all.size(); ++block) {
    const Described& d = all[block];
    const auto id = static_cast<int64_t>(block);
    if (d.hash == 0 || d.group != g || d.parent != parent || PoolOf(g).Find(d.hash) != id) continue;
    // A block that this very step fills cannot be copied before it.
    if (indexed_in_[Group(g).pool][block] == schedules_) continue;
    int64_t equal = 0;
    while (equal < size && hit + equal < Known(r) - 1 &&
           d.items[static_cast<size_t>(equal)] == ItemOf(r, hit + equal))
      ++equal;
    if (equal > best.second) best = {id, equal};
  }
  return best;
}

// A hit that ends inside a block: its part is copied into a block of the request's own. Only where
// all groups can do it alike.
int64_t Scheduler::PartialHit(Request& r, int64_t hit, std::vector<Decision::Copy>* copies) {
  if (!options_.copies) return 0;
  for (const GroupOptions& group : options_.groups) {
    if (group.forgets() || group.ranks > 1 || group.span() != Group(0).span()) return 0;
  }
  int64_t part = Known(r);
  for (size_t g = 0; g < options_.groups.size(); ++g) {
    const auto [block, tokens] = BestPart(r, g, hit);
    part = std::min({part, tokens, Group(g).span() - 1});
    if (part == 0) {
      copies->clear();
      return 0;
    }
    copies->push_back({static_cast<uint32_t>(g), block, -1, 0});
  }
  for (Decision::Copy& copy : *copies) {
    copy.tokens = options_.copies_whole ? 0 : part;
    PoolOf(copy.group).Touch(copy.source);  // stays as it is until the step is done
  }
  return part;
}

}  // namespace kvguard::generate
