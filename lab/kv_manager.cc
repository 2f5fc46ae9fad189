// SPDX-License-Identifier: Apache-2.0
#include "lab/kv_manager.h"

#include <algorithm>
#include <numeric>

#include "lab/random.h"

namespace kvguard::lab {
namespace {

int32_t UnitOf(const EngineConfig& config) {
  int32_t unit = 0;
  for (const GroupConfig& group : config.groups) {
    if (group.kind != GroupKind::kCross) unit = std::gcd(unit, group.block_size);
  }
  return unit;
}

}  // namespace

KvManager::KvManager(const EngineConfig& config, FaultSwitch* faults, StateCounts* states)
    : config_(config),
      faults_(faults),
      states_(states),
      pool_(config.num_blocks),
      unit_(UnitOf(config)),
      entered_(Ix(config.num_blocks)),
      released_(Ix(config.num_blocks)) {}

void KvManager::StartStep(uint64_t step) {
  step_ = step;
  fresh_.clear();
  to_zero_.clear();
  for (const Entry& entry : entering_) pool_.Enter(entry.id, entry.key);
  entering_.clear();
  copies_.clear();
}

void KvManager::HashTokens(Request* request, const Domain& d) const {
  if (request->hashed == 0) {
    request->running_hash = Mix(Mix(d.lora, d.salt), d.encoder);
    request->hashes.clear();
  }
  for (; request->hashed < request->num_tokens(); ++request->hashed) {
    const int32_t p = request->hashed;
    uint64_t hash = Mix(request->running_hash, static_cast<uint64_t>(request->tokens[Ix(p)]) + 1);
    if (d.image != 0 && p >= d.image_first && p < d.image_first + d.image_count) {
      hash = Mix(hash, d.image + static_cast<uint64_t>(p - d.image_first));
    }
    request->running_hash = hash;
    if ((p + 1) % unit_ == 0) request->hashes.push_back(hash);
  }
}

uint64_t KvManager::KeyOf(const Request& request, size_t group, int32_t column) const {
  const int32_t index = (column + 1) * config_.groups[group].block_size / unit_ - 1;
  return Mix(request.hashes[Ix(index)], group + 1) | 1;
}

// The columns that a request with `end` valid tokens needs of a group.
bool KvManager::FindColumns(const Request& request, size_t group, int32_t end) {
  const GroupConfig& g = config_.groups[group];
  std::vector<int32_t>& hits = hits_[group];
  hits.assign(Ix(end / g.block_size), kNullBlock);
  for (int32_t j = EngineConfig::FirstRead(g, end) / g.block_size; j < end / g.block_size; ++j) {
    hits[Ix(j)] = pool_.Find(KeyOf(request, group, j));
    if (hits[Ix(j)] == kNullBlock) return false;
  }
  return true;
}

int32_t KvManager::FindFork(const Request& request, const Request& parent, int32_t num_hit) {
  // What the parent has for certain, and both know.
  const int32_t most = std::min(
      {parent.num_computed - parent.in_flight, parent.num_tokens(), request.num_tokens() - 1});
  int32_t common = 0;
  while (common < most && request.tokens[Ix(common)] == parent.tokens[Ix(common)]) ++common;
  if (common <= num_hit || request.domain != parent.domain) return num_hit;
  for (size_t g = 0; g < config_.groups.size(); ++g) {
    const int32_t size = config_.groups[g].block_size;
    const std::vector<int32_t>& row = parent.blocks[g];
    hits_[g].resize(Ix(std::min(num_hit / size, common / size)));
    while (static_cast<int32_t>(hits_[g].size()) < common / size) {
      hits_[g].push_back(row[hits_[g].size()]);
    }
    partial_[g] = common % size == 0 ? kNullBlock : row[Ix(common / size)];
  }
  states_->Add(State::kFork);
  return common;
}

int32_t KvManager::FindHits(Request* request) {
  partial_.fill(kNullBlock);
  if (!config_.prefix_caching ||
      std::any_of(config_.groups.begin(), config_.groups.end(), [](const GroupConfig& group) {
        return group.kind == GroupKind::kState && group.state_mode == StateMode::kNone;
      })) {
    for (std::vector<int32_t>& hits : hits_) hits.clear();
    return 0;
  }
  HashTokens(request, request->domain);
  const int32_t length = Lookup(request);
  if (request->domain == Domain{} || !faults_->Waits(FaultKind::kHitOtherDomain)) return length;
  const auto again = [&](const Domain& domain) {
    request->hashed = 0;
    HashTokens(request, domain);
    return Lookup(request);
  };
  if (again(Domain{}) > length) {
    (void)faults_->Strikes(FaultKind::kHitOtherDomain);
    return Lookup(request);
  }
  return again(request->domain);
}

int32_t KvManager::Lookup(Request* request) {
  for (std::vector<int32_t>& hits : hits_) hits.clear();
  // A first guess by the groups that need every column, then shorter until all agree.
  int32_t length = (request->num_tokens() - 1) / unit_ * unit_;
  for (size_t g = 0; g < config_.groups.size(); ++g) {
    const GroupConfig& group = config_.groups[g];
    if (group.kind != GroupKind::kFull && group.kind != GroupKind::kMla) continue;
    int32_t j = 0;
    while ((j + 1) * group.block_size <= length &&
           pool_.Find(KeyOf(*request, g, j)) != kNullBlock) {
      ++j;
    }
    length = j * group.block_size;
  }
  for (size_t agreed = 0, g = 0; agreed < config_.groups.size() && length > 0;
       g = (g + 1) % config_.groups.size()) {
    const int32_t size = config_.groups[g].block_size;
    if (config_.groups[g].kind == GroupKind::kCross) {  // written anew by whoever comes
      ++agreed;
      continue;
    }
    const int32_t before = length;
    length = length / size * size;
    while (length > 0 && !FindColumns(*request, g, length)) length -= size;
    agreed = length == before ? agreed + 1 : 1;
  }
  if (length <= 0) {
    for (std::vector<int32_t>& hits : hits_) hits.clear();
    return 0;
  }
  for (size_t g = 0; g < config_.groups.size(); ++g) {
    hits_[g].resize(config_.groups[g].kind == GroupKind::kCross
                        ? 0
                        : Ix(length / config_.groups[g].block_size));
  }
  return length;
}

void KvManager::Reveal(const Request& request) {
  states_->Add(State::kPrefixHit);
  bool same_step = false;
  bool after_eviction = false;
  for (size_t g = 0; g < config_.groups.size(); ++g) {
    for (size_t j = 0; j < hits_[g].size(); ++j) {
      const int32_t id = hits_[g][j];
      if (id == kNullBlock) continue;
      same_step = same_step || entered_[Ix(id)] == step_;
      after_eviction =
          after_eviction || pool_.WasEvicted(KeyOf(request, g, static_cast<int32_t>(j)));
    }
  }
  if (same_step) states_->Add(State::kSameStepHit);
  if (after_eviction) states_->Add(State::kHitAfterEviction);
}

KvManager::Columns KvManager::ColumnsOf(const Request& request, size_t group,
                                        int32_t num_tokens) const {
  const GroupConfig& g = config_.groups[group];
  if (g.kind == GroupKind::kCross) {
    return {0, CeilDiv(request.domain.encoder_count, g.block_size)};
  }
  const int32_t end = std::min(request.num_computed + num_tokens, config_.max_model_len);
  if (g.kind != GroupKind::kState || g.state_mode == StateMode::kAll) {
    // Drafts of the step after this one find their blocks bound already.
    return {0, CeilDiv(std::min(end + config_.num_drafts, config_.max_model_len), g.block_size)};
  }
  // Of drafts in flight some may be rejected, and the step leave its state further left.
  const int32_t least = std::max(1, end - request.drafts_in_flight);
  return {EngineConfig::StateColumn(g, least),
          EngineConfig::StateColumn(g, end) + 1 + config_.num_drafts};
}

int32_t KvManager::Missing(const Columns& columns, size_t have) {
  return std::max(0, columns.end - std::max(columns.first, static_cast<int32_t>(have)));
}

void KvManager::Grow(Request* request, size_t group, const Columns& columns) {
  std::vector<int32_t>& row = request->blocks[group];
  while (static_cast<int32_t>(row.size()) < columns.end) {
    row.push_back(static_cast<int32_t>(row.size()) < columns.first ? kNullBlock
                                                                   : TakeFresh(*request, group));
  }
}

int32_t KvManager::TakeFresh(const Request& request, size_t group) {
  if (faults_->Waits(FaultKind::kTakeHeldBlock)) {
    for (int32_t id = 1; id < pool_.num_blocks(); ++id) {
      const std::vector<int32_t>& own = request.blocks[0];
      if (pool_.references(id) == 0 || std::find(own.begin(), own.end(), id) != own.end() ||
          std::find(fresh_.begin(), fresh_.end(), id) != fresh_.end()) {
        continue;
      }
      if (!faults_->Strikes(FaultKind::kTakeHeldBlock)) break;
      pool_.Touch(id);
      return id;
    }
  }
  const uint64_t evictions = pool_.evictions();
  const int32_t id = pool_.Take();
  states_->Add(State::kEviction, pool_.evictions() - evictions);
  if (released_[Ix(id)] == step_) states_->Add(State::kFinishReuse);
  entered_[Ix(id)] = 0;
  fresh_.push_back(id);
  if (config_.groups[group].kind != GroupKind::kState) to_zero_.push_back(id);
  return id;
}

bool KvManager::Admit(Request* request, int32_t num_hit, int32_t num_tokens) {
  request->num_computed = num_hit;
  int32_t needed = 0;
  for (size_t g = 0; g < config_.groups.size(); ++g) {
    needed += Missing(ColumnsOf(*request, g, num_tokens), hits_[g].size());
    for (const int32_t id : hits_[g]) {
      if (id != kNullBlock && pool_.references(id) == 0) ++needed;
    }
  }
  if (needed > pool_.num_free()) return false;
  if (num_hit > 0 && config_.prefix_caching) Reveal(*request);
  const bool touch =
      !(num_hit > 0 && faults_->Waits(FaultKind::kHitNotTouched) &&
        std::any_of(hits_[0].begin(), hits_[0].end(),
                    [&](int32_t id) { return id != kNullBlock && pool_.references(id) == 0; }) &&
        faults_->Strikes(FaultKind::kHitNotTouched));
  for (size_t g = 0; touch && g < config_.groups.size(); ++g) {
    for (const int32_t id : hits_[g]) {
      if (id != kNullBlock) pool_.Touch(id);
    }
  }
  for (size_t g = 0; g < config_.groups.size(); ++g) {
    std::vector<int32_t>& row = request->blocks[g];
    row.assign(hits_[g].begin(), hits_[g].end());
    request->cached_columns[g] = static_cast<int32_t>(row.size());
    request->passed_columns[g] =
        EngineConfig::FirstRead(config_.groups[g], num_hit) / config_.groups[g].block_size;
    const size_t shared = row.size();
    Grow(request, g, ColumnsOf(*request, g, num_tokens));
    if (partial_[g] != kNullBlock) {
      copies_.push_back({static_cast<uint32_t>(g), partial_[g], row[shared]});
      states_->Add(State::kCopyOnWrite);
    }
    if (std::find(row.begin(), row.end(), kNullBlock) != row.end()) {
      states_->Add(State::kNullInRow);
    }
  }
  if (!touch) {  // too late: what was taken in between is held twice
    for (size_t g = 0; g < config_.groups.size(); ++g) {
      for (const int32_t id : hits_[g]) {
        if (id != kNullBlock) pool_.Touch(id);
      }
    }
  }
  return true;
}

void KvManager::PassWindow(Request* request) {
  int32_t processed = std::max(0, request->num_computed - request->in_flight);
  for (size_t g = 0; g < config_.groups.size(); ++g) {
    const GroupConfig& group = config_.groups[g];
    if (group.kind == GroupKind::kFull || group.kind == GroupKind::kMla ||
        group.kind == GroupKind::kCross) {
      continue;
    }
    int32_t end = EngineConfig::FirstRead(group, processed) / group.block_size;
    if (group.kind != GroupKind::kState && end + 1 < processed / group.block_size &&
        faults_->Strikes(FaultKind::kWindowEarly))
      ++end;
    std::vector<int32_t>& row = request->blocks[g];
    for (int32_t j = std::min(end, static_cast<int32_t>(row.size())) - 1;
         j >= request->passed_columns[g]; --j) {
      if (row[Ix(j)] == kNullBlock) continue;
      pool_.Release(row[Ix(j)], faults_->struck() == step_ && !pool_.cached(row[Ix(j)]));
      row[Ix(j)] = kNullBlock;
      states_->Add(group.kind == GroupKind::kState ? State::kStatePassed : State::kWindowPassed);
    }
    request->passed_columns[g] = std::max(request->passed_columns[g], end);
  }
}

bool KvManager::Extend(Request* request, int32_t num_tokens) {
  PassWindow(request);
  int32_t needed = 0;
  for (size_t g = 0; g < config_.groups.size(); ++g) {
    needed += Missing(ColumnsOf(*request, g, num_tokens), request->blocks[g].size());
  }
  if (needed > pool_.num_free()) return false;
  if (needed > 0 && faults_->Strikes(FaultKind::kCapacityShort)) return true;
  for (size_t g = 0; g < config_.groups.size(); ++g) {
    Grow(request, g, ColumnsOf(*request, g, num_tokens));
  }
  return true;
}

void KvManager::EnterCache(Request* request, int32_t num_computed, bool has_drafts) {
  if (!config_.prefix_caching) return;
  HashTokens(request, request->domain);
  int32_t valid = std::min(num_computed, request->num_tokens());
  for (size_t g = 0; g < config_.groups.size(); ++g) {
    const int32_t size = config_.groups[g].block_size;
    if (config_.groups[g].kind == GroupKind::kCross) continue;
    if (config_.groups[g].kind == GroupKind::kState) {
      // Only a state that stands at the end of a block, and is there for certain.
      const int32_t first = config_.groups[g].state_mode == StateMode::kAll
                                ? request->cached_columns[g]
                                : num_computed / size - 1;
      if (config_.groups[g].state_mode == StateMode::kNone || has_drafts ||
          (config_.groups[g].state_mode == StateMode::kAlign &&
           (num_computed % size != 0 || num_computed > request->num_tokens()))) {
        continue;
      }
      for (int32_t j = std::max(0, first);
           j < std::min(valid / size, static_cast<int32_t>(request->blocks[g].size())); ++j) {
        const int32_t id = request->blocks[g][Ix(j)];
        if (id != kNullBlock) entering_.push_back({id, KeyOf(*request, g, j)});
        request->cached_columns[g] = j + 1;
      }
      continue;
    }
    int32_t columns = std::min(valid / size, static_cast<int32_t>(request->blocks[g].size()));
    if ((columns + 1) * size <= request->num_tokens() &&
        columns + 1 <= static_cast<int32_t>(request->blocks[g].size()) &&
        faults_->Strikes(FaultKind::kCacheUnfilled)) {
      ++columns;
      unfilled_ = request->name;
    }
    for (int32_t j = request->cached_columns[g]; j < columns; ++j) {
      const int32_t id = request->blocks[g][Ix(j)];
      if (id == kNullBlock) continue;
      pool_.Enter(id, KeyOf(*request, g, j));
      entered_[Ix(id)] = step_;
    }
    request->cached_columns[g] = std::max(request->cached_columns[g], columns);
  }
}

void KvManager::Free(Request* request) {
  for (size_t g = 0; g < config_.groups.size(); ++g) {
    std::vector<int32_t>& row = request->blocks[g];
    for (size_t j = row.size(); j-- > 0;) {
      if (row[j] == kNullBlock) continue;
      if (pool_.references(row[j]) > 1 && faults_->Strikes(FaultKind::kReleaseTwice)) {
        pool_.Release(row[j]);
      }
      if (pool_.references(row[j]) == 0) continue;  // only after a fault
      released_[Ix(row[j])] = step_ + 1;
      pool_.Release(row[j]);
    }
    row.clear();
    request->cached_columns[g] = request->passed_columns[g] = 0;
  }
}

}  // namespace kvguard::lab
