// SPDX-License-Identifier: Apache-2.0
#include "tests/generate/scheduler.h"

#include <algorithm>
#include <numeric>

namespace kvguard::generate {
uint64_t DomainAt(const std::vector<Domain>& domains, int64_t position) {
  uint64_t extra = 0;
  for (const Domain& domain : domains) {
    if (position < domain.first || position >= domain.first + domain.count) continue;
    extra = Mix(extra, Mix(domain.kind, domain.identity));
    // Where in an image or in a prompt's embeddings a token stands is part of what it is.
    if (domain.kind != KVGUARD_DOMAIN_LORA && domain.kind != KVGUARD_DOMAIN_SALT)
      extra = Mix(extra, static_cast<uint64_t>(position - domain.first));
  }
  return extra;
}

Scheduler::Scheduler(const Options& options, Random* random, Situations* situations)
    : options_(options), random_(*random), situations_(*situations) {
  for (const PoolOptions& pool : options.pools) {
    pools_.emplace_back(pool.num_blocks, pool.null_block);
    freed_in_.emplace_back(static_cast<size_t>(pool.num_blocks));
    indexed_in_.emplace_back(static_cast<size_t>(pool.num_blocks), 0);
    described_.emplace_back(static_cast<size_t>(pool.num_blocks));
    moved_.emplace_back(static_cast<size_t>(pool.num_blocks), 0);
    if (pool.cells) pools_.back().Shuffle(random);
    being_sent_.emplace_back(static_cast<size_t>(pool.num_blocks), 0);
  }
  for (int s = 0; s < 2; ++s) {
    streams_.emplace_back();
    for (int64_t i = 0; i < options.max_model_len; ++i)
      streams_.back().push_back(static_cast<uint32_t>(1 + random_.Below(6)));
  }
}

std::vector<Domain> Scheduler::DrawDomains(int64_t length) {
  std::vector<Domain> domains;
  if (!options_.domains || random_.OneIn(3)) return domains;
  const auto whole = options_.max_model_len;
  if (random_.OneIn(2)) domains.push_back({KVGUARD_DOMAIN_LORA, 1 + random_.Below(2), 0, whole});
  if (random_.OneIn(3)) domains.push_back({KVGUARD_DOMAIN_SALT, 1 + random_.Below(2), 0, whole});
  if (length >= 4 && random_.OneIn(3)) {
    const int64_t first = random_.Range(0, length - 2);
    domains.push_back({KVGUARD_DOMAIN_MULTIMODAL, 1 + random_.Below(2), first,
                       random_.Range(1, length - 1 - first)});
  }
  return domains;
}

Scheduler::Owned Scheduler::NewRequest() {
  auto r = std::make_unique<Request>();
  r->key = next_key_++;
  r->name = std::to_string(next_name_++);
  const int64_t longest = options_.max_model_len - 1;
  const std::vector<uint32_t>* base = &random_.Of(streams_);
  size_t from_history = history_.size();
  if (!history_.empty() && random_.OneIn(2)) {
    from_history = static_cast<size_t>(random_.Below(history_.size()));
    base = &history_[from_history];
  }
  // A prefix that others have, then some tokens that perhaps nobody has.
  const int64_t shared = random_.Range(0, std::min(longest, static_cast<int64_t>(base->size())));
  r->tokens.assign(base->begin(), base->begin() + shared);
  const int64_t own =
      random_.OneIn(3) ? 0 : random_.Range(0, std::min<int64_t>(8, longest - shared));
  for (int64_t i = 0; i < own; ++i)
    r->tokens.push_back(static_cast<uint32_t>(1 + random_.Below(6)));
  if (r->tokens.empty()) r->tokens.push_back(static_cast<uint32_t>(1 + random_.Below(6)));
  if (from_history < history_.size() && random_.OneIn(2)) {
    r->domains = history_domains_[from_history];
  } else {
    r->domains = DrawDomains(Known(*r));
    if (from_history < history_.size() && shared > 0 &&
        !(r->domains == history_domains_[from_history]))
      situations_.Reach(Situation::kDomainSplits);
  }
  if (options_.max_encoder > 0) {
    r->encoder = {KVGUARD_DOMAIN_ENCODER, 1 + random_.Below(1000), 0,
                  random_.Range(1, options_.max_encoder)};
  }
  r->target = std::min(options_.max_model_len, Known(*r) + random_.Range(1, 20));
  r->blocks.assign(options_.groups.size(), {});
  r->hashes.assign(options_.groups.size(), {});
  r->indexed.assign(options_.groups.size(), 0);
  r->allocated.assign(options_.groups.size(), 0);
  return r;
}

void Scheduler::Traffic() {
  const auto wanted = static_cast<size_t>(options_.max_running) + 2;
  if (running_.size() + waiting_.size() < wanted && !random_.OneIn(3))
    waiting_.push_back(NewRequest());
  AbortSome();
}

void Scheduler::AbortSome() {
  if (!waiting_.empty() && random_.OneIn(40)) {
    // The worker is told of it, whether it was ever given this key or not.
    const auto index = static_cast<size_t>(random_.Below(waiting_.size()));
    ends_.push_back({waiting_[index]->key, false, false});
    Free(*waiting_[index], Freed::kFinished);
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(index));
    situations_.Reach(Situation::kAbortUnknownKey);
  }
  if (!running_.empty() && random_.OneIn(40)) {
    situations_.Reach(Situation::kAbortLive);
    Finish(static_cast<size_t>(random_.Below(running_.size())), false);
  }
  if (!dead_keys_.empty() && random_.OneIn(60)) {
    ends_.push_back({random_.Of(dead_keys_), false, false});
    situations_.Reach(Situation::kFinishTwice);
  }
}

void Scheduler::Free(Request& r, Freed why) {
  const uint64_t schedule = deciding_ ? schedules_ : schedules_ + 1;
  for (size_t g = r.blocks.size(); g-- > 0;) {
    // From the end, so that the first blocks of a prefix are evicted last.
    for (size_t j = r.blocks[g].size(); j-- > 0;) {
      const int64_t block = r.blocks[g][j];
      if (block < 0 || block == PoolOf(g).null_block()) continue;
      if (Has(Fault::kFreeTwice) && PoolOf(g).refs(block) > 1) PoolOf(g).Drop(block);
      PoolOf(g).Drop(block);
      freed_in_[Group(g).pool][static_cast<size_t>(block)] = {schedule, why};
    }
    r.blocks[g].clear();
    r.indexed[g] = 0;
    r.allocated[g] = 0;
  }
}

void Scheduler::Finish(size_t index, bool keep) {
  Request& r = *running_[index];
  if (r.in_flight > 0) situations_.Reach(Situation::kFinishInFlight);
  if (keep && options_.sends && random_.OneIn(2)) StartSend(r);
  Free(r, Freed::kFinished);
  ends_.push_back({r.key, false, false});
  dead_keys_.push_back(r.key);
  if (keep) {
    history_.push_back(std::move(r.tokens));
    history_domains_.push_back(std::move(r.domains));
    if (history_.size() > 8) {
      history_.erase(history_.begin());
      history_domains_.erase(history_domains_.begin());
    }
  }
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(index));
}

void Scheduler::Preempt(Decision* decision) {
  Owned r = std::move(running_.back());
  running_.pop_back();
  situations_.Reach(Situation::kPreempt);
  for (const GroupOptions& group : options_.groups) {
    if (group.is_ring() && r->computed > group.window) situations_.Reach(Situation::kRingPreempted);
  }
  if (r->in_flight > 0) situations_.Reach(Situation::kPreemptInFlight);
  Free(*r, Freed::kPreempted);
  decision->ends.push_back({r->key, true, false});
  std::erase_if(decision->rollbacks,
                [&](const Decision::Rollback& rollback) { return rollback.key == r->key; });
  std::erase_if(decision->edits, [&](const Decision::Edit& edit) { return edit.key == r->key; });
  dead_keys_.push_back(r->key);
  r->key = next_key_++;
  r->computed = r->in_flight = r->placeholders = 0;
  r->decoding = false;
  r->external = r->most = 0;
  r->edited = false;
  r->preempted = true;
  waiting_.push_front(std::move(r));
}

void Scheduler::Reset() {
  ends_.clear();
  new_sends_.clear();
  for (Load& load : loads_) {
    Free(*load.request, Freed::kNever);
    if (!load.aborted) waiting_.push_back(std::move(load.request));
  }
  loads_.clear();
  for (const Send& send : sends_) Release(send);
  sends_.clear();
  for (Owned& r : waiting_) {
    Free(*r, Freed::kNever);  // what was loaded for it
    r->computed = r->external = 0;
  }
  while (!running_.empty()) {
    Decision unsaid;  // a reset needs no word about what it ends
    Preempt(&unsaid);
  }
  for (BlockPool& pool : pools_) pool.Forget();
}

// Blocks that no token still to be computed needs go back; the worker's rows keep their ids. What
// is certain counts, not what an asynchronous schedule hopes for.
void Scheduler::DropSkipped(Request& r) {
  const int64_t basis =
      Has(Fault::kPruneOptimistic) ? r.computed : std::max<int64_t>(0, r.computed - r.in_flight);
  for (size_t g = 0; g < options_.groups.size(); ++g) {
    if (!Group(g).forgets()) continue;
    for (size_t j = r.blocks[g].size(); j-- > 0;) {
      int64_t& block = r.blocks[g][j];
      if (block == PoolOf(g).null_block() || Group(g).Keeps(static_cast<int64_t>(j), basis))
        continue;
      PoolOf(g).Drop(block);
      block = PoolOf(g).null_block();
      situations_.Reach(Situation::kStaleColumns);
    }
  }
}

bool Scheduler::Allocate(Request& r, int64_t tokens, Blocks* fresh) {
  DropSkipped(r);
  std::vector<int64_t> wanted(pools_.size(), 0);
  for (size_t g = 0; g < options_.groups.size(); ++g) {
    const int64_t more = ColumnsFor(r, g, tokens) - static_cast<int64_t>(r.blocks[g].size());
    if (more > 0)
      wanted[Group(g).pool] += OnlyLast(g) ? FreshStates(r, g, ColumnsFor(r, g, tokens)) : more;
  }
  for (size_t p = 0; p < pools_.size(); ++p) {
    if (wanted[p] > pools_[p].free()) return false;
  }
  fresh->assign(options_.groups.size(), {});
  for (size_t g = 0; g < options_.groups.size(); ++g) {
    const int64_t columns = ColumnsFor(r, g, tokens);
    if (OnlyLast(g)) {
      AllocateStates(r, g, columns, fresh);
      continue;
    }
    while (static_cast<int64_t>(r.blocks[g].size()) < columns) {
      r.blocks[g].push_back(TakeBlock(g));
      (*fresh)[g].push_back(r.blocks[g].back());
    }
  }
  return true;
}

int64_t Scheduler::TakeBlock(size_t g) {
  const int64_t block = PoolOf(g).Take(&situations_, Has(Fault::kStaleIndex));
  const auto [schedule, why] = freed_in_[Group(g).pool][static_cast<size_t>(block)];
  if (schedule == schedules_ && why == Freed::kFinished)
    situations_.Reach(Situation::kFinishAndReuse);
  if (schedule == schedules_ && why == Freed::kPreempted)
    situations_.Reach(Situation::kPreemptAndReuse);
  if (why == Freed::kErased) situations_.Reach(Situation::kCellTakenAgain);
  freed_in_[Group(g).pool][static_cast<size_t>(block)] = {};
  moved_[Group(g).pool][static_cast<size_t>(block)] = 0;
  return block;
}

// Blocks that a row of states takes to have so many columns: those that are not moved on.
int64_t Scheduler::FreshStates(const Request& r, size_t g, int64_t columns) const {
  const auto had = static_cast<int64_t>(r.blocks[g].size());
  const int64_t spare = Group(g).speculative;
  const int64_t running = columns - 1 - spare;
  if (r.allocated[g] == 0) return columns - std::max(had, running);
  const int64_t moved = std::clamp<int64_t>(running - (had - spare), 0, spare);
  return columns - std::max(had, running) - moved;
}

// The running state and those of drafts stand at the end; columns between are null, and blocks of
// drafts that the running state passes by move on (mrv2.md 3.5).
void Scheduler::AllocateStates(Request& r, size_t g, int64_t columns, Blocks* fresh) {
  std::vector<int64_t>& row = r.blocks[g];
  const auto had = static_cast<int64_t>(row.size());
  if (had >= columns) return;
  const int64_t spare = Group(g).speculative;
  const int64_t running = columns - 1 - spare;
  const auto push = [&](int64_t block) {
    row.push_back(block);
    (*fresh)[g].push_back(block);
  };
  while (static_cast<int64_t>(row.size()) < running) {
    push(PoolOf(g).null_block());
    situations_.Reach(Situation::kNullAppended);
  }
  for (int64_t j = had - spare; r.allocated[g] != 0 && j < std::min(had, running); ++j) {
    const auto at = static_cast<size_t>(j);
    push(row[at]);
    row[at] = PoolOf(g).null_block();
    situations_.Reach(Situation::kStateBlockMoved);
  }
  while (static_cast<int64_t>(row.size()) < columns) push(TakeBlock(g));
  r.allocated[g] = 1;
}

bool Scheduler::Want(Request& r, int64_t budget, Decision::Slice* slice) {
  const int64_t known = Known(r) + r.placeholders;
  const int64_t left = known - r.computed;
  // Enough may be in flight to end it.
  if (left <= 0 || (r.placeholders > 0 && known >= r.target)) return false;
  int64_t tokens = std::min(left, budget);
  if (options_.chunk > 0) tokens = std::min(tokens, options_.chunk);
  uint32_t drafts = 0;
  if (r.decoding && left == 1 && options_.max_drafts > 0)
    drafts = static_cast<uint32_t>(random_.Below(options_.max_drafts + 1));
  const int64_t room = options_.max_model_len - r.computed;
  if (tokens + drafts > room) {
    situations_.Reach(Situation::kLengthLimit);
    if (room < tokens) return false;
    drafts = static_cast<uint32_t>(room - tokens);
  }
  drafts = static_cast<uint32_t>(std::min<int64_t>(drafts, budget - tokens));
  if (tokens < left) situations_.Reach(Situation::kChunkedPrefill);
  if (drafts > 0) situations_.Reach(Situation::kDrafts);
  if (r.computed > Known(r) - 1 && r.placeholders > 1 && options_.max_drafts > 0)
    situations_.Reach(Situation::kOptimisticCount);
  slice->key = r.key;
  slice->tokens = tokens + drafts;
  slice->computed = r.computed;
  slice->drafts = drafts;
  slice->samples = tokens == left;
  return true;
}

// Tokens that blocks are bound for.
int64_t Scheduler::EndOf(const Decision::Slice& slice) {
  const int64_t needed = slice.computed + slice.tokens;
  if (Has(Fault::kNoRoomForDrafts)) return needed - slice.drafts;
  const int64_t end = std::min(needed + options_.lookahead, options_.max_model_len);
  if (end > needed) situations_.Reach(Situation::kLookahead);
  return end;
}

// Fresh blocks of groups that keep everything are zeroed before the step.
void Scheduler::Zero(const Blocks& fresh, Decision* decision) {
  if (!options_.zeroes) return;
  for (size_t g = 0; g < fresh.size(); ++g) {
    if (fresh[g].empty() || Group(g).forgets()) continue;
    situations_.Reach(Situation::kZeroed);
    decision->zeros.push_back({static_cast<uint32_t>(g), fresh[g]});
  }
}

void Scheduler::Commit(Request& r, const Decision::Slice& slice, Decision* decision) {
  Index(r, slice.computed + slice.tokens);
  r.computed += slice.tokens;
  r.in_flight += slice.tokens;
  r.most = std::max(r.most, r.computed);
  if (slice.samples) {
    r.placeholders += 1 + slice.drafts;
    r.decoding = true;
  }
  decision->scheduled.push_back(slice);
}

void Scheduler::ScheduleRunning(Decision* decision, int64_t* budget, bool* preempted) {
  for (size_t i = 0; i < running_.size() && *budget > 0; ++i) {
    Request& r = *running_[i];
    bool done = false;
    for (const Decision::Slice& slice : decision->scheduled) done = done || slice.key == r.key;
    if (done) continue;
    Decision::Slice slice;
    if (random_.OneIn(14) || !Want(r, *budget, &slice)) {
      situations_.Reach(Situation::kSkippedRequest);
      continue;
    }
    const int64_t end = EndOf(slice);
    Decision::Append append{r.key, {}};
    bool fits = Allocate(r, end, &append.blocks);
    while (!fits && running_.size() > i + 1) {
      // A replacement that came in this step stands last and is scheduled already.
      if (!decision->scheduled.empty() && decision->scheduled.front().key == running_.back()->key)
        break;
      Preempt(decision);
      *preempted = true;
      fits = Allocate(r, end, &append.blocks);
    }
    if (!fits) {
      if (i + 1 == running_.size()) {
        Preempt(decision);
        *preempted = true;
      }
      return;
    }
    *budget -= slice.tokens;
    Zero(append.blocks, decision);
    bool any = false;
    for (const auto& blocks : append.blocks) any = any || !blocks.empty();
    if (any) decision->appends.push_back(std::move(append));
    Commit(r, slice, decision);
  }
}

bool Scheduler::Admit(Request& r, Decision* decision, int64_t* budget) {
  std::vector<Decision::Copy> copies;
  if (r.external == 0) {
    const int64_t hit = Hit(r);
    r.computed = hit + PartialHit(r, hit, &copies);
  } else if (WritesWhatIsSent(r)) {
    return false;
  }
  Decision::Slice slice;
  Blocks fresh;
  if (!Want(r, *budget, &slice) || !Allocate(r, EndOf(slice), &fresh)) {
    for (const Decision::Copy& copy : copies) PoolOf(copy.group).Drop(copy.source);
    // What was loaded for it waits with it, unless nothing else runs that could make room.
    if (r.external > 0 && !running_.empty()) return false;
    r.external = 0;
    Free(r, Freed::kNever);
    r.computed = 0;
    return false;
  }
  for (Decision::Copy& copy : copies) {
    copy.target = fresh[copy.group].front();
    decision->copies.push_back(copy);
    situations_.Reach(Situation::kCopied);
  }
  Zero(Has(Fault::kZeroHits) ? r.blocks : fresh, decision);
  if (r.preempted) situations_.Reach(Situation::kPreemptResume);
  r.preempted = false;
  decision->admissions.push_back(
      {r.key, r.name, r.tokens, r.domains, r.encoder, r.computed, r.external, r.blocks});
  *budget -= slice.tokens;
  Commit(r, slice, decision);
  return true;
}

void Scheduler::ScheduleWaiting(Decision* decision, int64_t* budget) {
  while (!waiting_.empty() && *budget > 0 &&
         static_cast<int64_t>(running_.size()) < options_.max_running) {
    if (StartLoad(decision)) continue;
    if (!Admit(*waiting_.front(), decision, budget)) return;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

// An admission that takes the place of a live request of the same name.
void Scheduler::ReplaceSome(Decision* decision, int64_t* budget) {
  if (running_.empty() || !random_.OneIn(50)) return;
  const auto index = static_cast<size_t>(random_.Below(running_.size()));
  Owned fresh = NewRequest();
  fresh->name = running_[index]->name;
  std::erase_if(decision->edits,
                [&](const Decision::Edit& edit) { return edit.key == running_[index]->key; });
  Finish(index, false);
  Decision::End end = ends_.back();
  ends_.pop_back();
  if (Admit(*fresh, decision, budget)) {
    situations_.Reach(Situation::kReplacedLive);
    end.replaced = true;
    running_.push_back(std::move(fresh));
  } else {
    waiting_.push_back(std::move(fresh));
  }
  decision->ends.push_back(end);
}

bool Scheduler::CanRollBack(const Request& r, int64_t count) {
  if (r.in_flight > 0 || r.computed < count || r.computed == 0) return false;
  const int64_t start = r.computed - count;
  for (size_t g = 0; g < options_.groups.size(); ++g) {
    // Later tokens stand in the places of those that a ring would have to read again.
    const int64_t first = std::max<int64_t>(0, start - (Group(g).window - 1));
    if (Group(g).is_ring() && first < start && first + Group(g).window < r.most) return false;
    if (Group(g).is_ring()) situations_.Reach(Situation::kRingRollback);
    for (size_t j = 0; j < r.blocks[g].size(); ++j) {
      const auto column = static_cast<int64_t>(j);
      const int64_t block = r.blocks[g][j];
      if (!Group(g).Keeps(column, start)) continue;
      if (block < 0 || block == PoolOf(g).null_block()) return false;
      // What it computes again, it writes again: nobody else may be reading there.
      if (column >= start / Group(g).span() && PoolOf(g).refs(block) > 1) return false;
    }
  }
  return true;
}

void Scheduler::RollBackSome(Decision* decision) {
  if (!options_.rolls_back || running_.empty() || !random_.OneIn(8)) return;
  Request& r = *random_.Of(running_);
  const int64_t count = random_.Range(1, 5);
  if (!CanRollBack(r, count)) return;
  situations_.Reach(Situation::kRollback);
  r.computed -= count;
  decision->rollbacks.push_back({r.key, count});
}

Decision Scheduler::Schedule() {
  ++schedules_;
  deciding_ = true;
  Decision decision = Decide();
  deciding_ = false;
  if (decision.scheduled.empty()) {
    situations_.Reach(Situation::kZeroTokenStep);
    return decision;
  }
  retained_.emplace_back();
  for (const Decision::Copy& copy : decision.copies)
    retained_.back().emplace_back(copy.group, copy.source);
  return decision;
}

void Scheduler::DropRetained() {
  for (const auto& [group, block] : retained_.front()) PoolOf(group).Drop(block);
  retained_.pop_front();
}

Decision Scheduler::Decide() {
  Decision decision;
  int64_t budget = options_.budget;
  bool preempted = false;
  decision.ends = std::move(ends_);
  ends_.clear();
  decision.sends = std::move(new_sends_);
  new_sends_.clear();
  AnnounceLoads(&decision);
  MoveSome(&decision, false);
  EditSome(&decision);
  if (random_.OneIn(25)) return decision;  // a step that is for the ends alone
  ReplaceSome(&decision, &budget);
  RollBackSome(&decision);
  ScheduleRunning(&decision, &budget, &preempted);
  if (!preempted || random_.OneIn(2)) ScheduleWaiting(&decision, &budget);
  MoveSome(&decision, true);
  return decision;
}

void Scheduler::Process(const StepOutput& output) {
  DropRetained();
  for (const StepOutput::Row& row : output.rows) {
    const auto found = std::find_if(running_.begin(), running_.end(),
                                    [&](const Owned& r) { return r->key == row.slice.key; });
    if (found == running_.end())
      continue;  // finished or preempted meanwhile: its output is dropped
    Request& r = **found;
    r.in_flight -= row.slice.tokens;
    if (!row.slice.samples) continue;
    r.placeholders -= 1 + row.slice.drafts;
    r.computed -= row.rejected;
    for (const uint32_t token : row.sampled) {
      if (Known(r) < r.target) r.tokens.push_back(token);
    }
    if (Known(r) >= r.target || random_.OneIn(40))
      Finish(static_cast<size_t>(found - running_.begin()), true);
  }
}

}  // namespace kvguard::generate
