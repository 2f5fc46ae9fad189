// SPDX-License-Identifier: Apache-2.0
#include "mirror/mirror.h"

#include <algorithm>

namespace kvguard::mirror {
namespace {

uint64_t BytesOf(const Released& released) {
  uint64_t bytes = sizeof(Released) + released.name.size();
  for (const Row& row : released.rows) bytes += sizeof(Row) + row.entries.size() * sizeof(int32_t);
  return bytes;
}

}  // namespace

void Mirror::Init(const geometry::Layout* layout, uint32_t history_steps, uint64_t history_bytes) {
  layout_ = layout;
  history_steps_ = history_steps;
  history_bytes_ = history_bytes;
  Reset();
}

void Mirror::Reset() {
  blocks_.resize(layout_->pools.size());
  for (size_t i = 0; i < layout_->pools.size(); ++i)
    blocks_[i].Init(static_cast<size_t>(layout_->pools[i].num_blocks));
  transfers_.Reset();
  zeroing_.NewStep();
  copying_.NewStep();
  state_copies_.clear();
  num_loading_ = num_out_ = 0;
  lost_.clear();
  lost_claim_ = false;
  requests_.clear();
  free_.clear();
  map_.Clear();
  scheduled_.clear();
  released_.clear();
  released_bytes_ = 0;
  executing_.clear();
  previous_.clear();
  previous_step_ = 0;
  open_step_ = 0;
  open_ = false;
}

uint32_t Mirror::Admit(uint64_t key, std::string_view name, int64_t computed, uint64_t step) {
  uint32_t index;
  if (free_.empty()) {
    index = static_cast<uint32_t>(requests_.size());
    requests_.emplace_back();
  } else {
    index = free_.back();
    free_.pop_back();
  }
  Request& request = requests_[index];
  request = Request{};
  request.key = key;
  request.name = name;
  request.rows.resize(layout_->groups.size());
  request.frontier = {computed, computed, computed};
  request.admitted_step = step;
  request.states_end = computed;
  map_.Insert(key, index);
  return index;
}

void Mirror::Release(uint32_t index, uint64_t step) {
  Request& request = requests_[index];
  for (const geometry::Group& group : layout_->groups) {
    const int64_t columns = BoundBlocks(request, group);
    for (int64_t column = 0; column < columns; ++column) {
      GiveBack(request, group, column, step);
    }
  }
  map_.Erase(request.key);
  Released released;
  released.key = request.key;
  released.step = step;
  released.name = std::move(request.name);
  released.rows = std::move(request.rows);
  AddReleased(std::move(released));
  request = Request{};
  free_.push_back(index);
  TrimHistory(step);
}

void Mirror::Push(Request* request, const geometry::Group& group, int64_t block,
                  uint64_t claimed_in) {
  auto& entries = request->rows[group.id].entries;
  const int64_t per_block = group.EntriesPerBlock();
  const bool fits = block >= 0 && block <= INT32_MAX && (block + 1) * per_block - 1 <= INT32_MAX;
  for (int64_t j = 0; j < per_block; ++j) {
    entries.push_back(fits ? static_cast<int32_t>(block * per_block + j) : -1);
  }
  if (group.Forgets()) request->rows[group.id].claimed_in.push_back(claimed_in);
}

void Mirror::ExpireWindows(Request* request, uint64_t step) {
  for (const geometry::Group& group : layout_->groups) {
    if (!group.Forgets()) continue;
    Row& row = request->rows[group.id];
    const int64_t end = std::min(group.FirstNeededColumn(request->frontier.valid_low),
                                 static_cast<int64_t>(row.claimed_in.size()));
    for (int64_t column = std::max(row.expired, group.SinkColumns()); column < end; ++column) {
      GiveBack(*request, group, column, step);
    }
    row.expired = std::max(row.expired, end);
  }
}

void Mirror::Lapse(const geometry::Group& group, int64_t block, uint64_t step) {
  if (BlockOf(group, block).claims == 0) return;  // nobody to search for
  for (Request& request : requests_) {
    if (request.key == 0) continue;
    for (const geometry::Group& other : layout_->groups) {
      if (other.pool != group.pool || !other.Forgets()) continue;
      const int64_t end = BoundBlocks(request, other);
      for (int64_t column = 0; column < end; ++column) {
        if (BlockAt(request, other, column) != block || !IsClaimed(request, other, column))
          continue;
        request.maybe_stale = true;
        const Row& row = request.rows[other.id];
        if (row.IsHitOf(step, column) || other.Needs(column, request.frontier.valid_high)) continue;
        GiveBack(request, other, column, step);
        request.rows[other.id].claimed_in[static_cast<size_t>(column)] = kLapsed;
      }
    }
  }
}

bool Mirror::HoldsItsBlock(const Request& request, const geometry::Group& group,
                           int64_t column) const {
  const int64_t block = BlockAt(request, group, column);
  if (!InPool(group, block)) return true;  // a finding when it was bound
  const uint64_t claimed_in = request.rows[group.id].claimed_in[static_cast<size_t>(column)];
  // A hit may be bound in the very step that its writer is.
  return claimed_in != kLapsed && block != layout_->pools[group.pool].null_block &&
         BlockOf(group, block).since_step <= (claimed_in & ~kNoClaim);
}

void Mirror::Truncate(Request* request, const geometry::Group& group, int64_t columns,
                      uint64_t step) {
  const int64_t bound = BoundBlocks(*request, group);
  for (int64_t column = columns; column < bound; ++column) {
    GiveBack(*request, group, column, step);
  }
  if (columns < bound) {
    Row& row = request->rows[group.id];
    // Hits that are given back are none, whatever is bound in their columns next.
    std::erase_if(hits_, [&](const Hit& hit) {
      return hit.key == request->key && hit.group == group.id && hit.column >= columns;
    });
    row.hit_end = std::min(row.hit_end, columns);
    row.hit_first = std::min(row.hit_first, row.hit_end);
    row.entries.resize(static_cast<size_t>(columns * group.EntriesPerBlock()));
    if (group.IsRing()) request->written.clear();
    row.last_append = std::min(row.last_append, static_cast<uint32_t>(row.entries.size()));
    if (group.Forgets()) {
      row.claimed_in.resize(static_cast<size_t>(columns));
      row.expired = std::min(row.expired, columns);
    }
  }
}

uint64_t Mirror::StampRow(const Request& request, const geometry::Group& group) {
  ++stamp_;
  const int64_t columns = BoundBlocks(request, group);
  for (int64_t column = 0; column < columns; ++column) {
    const int64_t block = BlockAt(request, group, column);
    // An undecided column may come back as a new one: the engine may know more than the stream.
    if (InPool(group, block) && IsClaimed(request, group, column) &&
        group.Needs(column, request.frontier.valid_high)) {
      TouchBlock(group, block).stamp = stamp_;
    }
  }
  return stamp_;
}

void Mirror::GiveBack(const Request& request, const geometry::Group& group, int64_t column,
                      uint64_t step) {
  if (!IsClaimed(request, group, column)) return;
  const int64_t block = BlockAt(request, group, column);
  if (!InPool(group, block) || block == layout_->pools[group.pool].null_block) return;
  Block& b = TouchBlock(group, block);
  if (b.claims > 0) --b.claims;
  const Row& row = request.rows[group.id];
  if (row.IsHitOf(step, column) && b.hit_step == step && b.hit_claims > 0) --b.hit_claims;
  // Of a request that holds the block more than once, the column that it was last bound in as
  // fresh.
  if (b.owner == request.key && (!b.bound || IsAtHome(b, group.id, column))) {
    const int64_t end = (column + 1) * group.block_size;
    b.written = b.written || end <= std::max(request.filled, request.frontier.valid_high);
    if (b.bound && request.chain.active())
      b.content = request.chain.NameAt(end, layout_->content_unit);
    b.last_owner = request.key;
    b.released_step = step;
    b.owner = 0;
  }
}

Holding Mirror::Holder(const geometry::Group& group, int64_t block, uint64_t but) const {
  const Block& b = BlockOf(group, block);
  // Places in requests_ differ after a restore: the answer must not depend on them.
  const auto before = [&](const Request& a, const Request& c) {
    if ((a.key == b.owner) != (c.key == b.owner)) return a.key == b.owner;
    return a.key < c.key;
  };
  Holding found;
  for (uint32_t i = 0; i < requests_.size(); ++i) {
    const Request& request = requests_[i];
    if (request.key == 0 || request.key == but) continue;
    if (found.request != kNoRequest && !before(request, requests_[found.request])) continue;
    if (const Holding holding = HoldingOf(i, group, block); holding.request != kNoRequest)
      found = holding;
  }
  return found;
}

Holding Mirror::HoldingOf(uint32_t index, const geometry::Group& group, int64_t block) const {
  if (index == kNoRequest) return {};
  const Request& request = requests_[index];
  for (const geometry::Group& other : layout_->groups) {
    if (other.pool != group.pool) continue;
    const int64_t columns = BoundBlocks(request, other);
    for (int64_t column = 0; column < columns; ++column) {
      if (BlockAt(request, other, column) == block && IsClaimed(request, other, column))
        return {index, column * other.block_size, other.block_size};
    }
  }
  return {};
}

void Mirror::Pin(const Transfer& transfer, int by) {
  const geometry::Group& group = layout_->groups[transfer.group];
  const bool load = transfer.kind == TransferKind::kLoad;
  const auto add = [by](uint32_t* pins) { *pins += static_cast<uint32_t>(by); };
  for (const int64_t block : transfer.blocks) {
    if (!InPool(group, block) || block == layout_->PoolOf(group).null_block) continue;
    Block& b = TouchBlock(group, block);
    if (transfer.kind == TransferKind::kSend) {
      add(&b.pins_out);
      num_out_ += by;
    } else {
      add(&b.pins_in);
      if (load) add(&b.loading);
      if (load) num_loading_ += by;
    }
  }
}

void Mirror::ContentWritten(const Request& request) {
  for (const geometry::Group& group : layout_->groups) {
    // Whatever the start, it is written. A state goes on from the one before, unless it is the
    // first.
    if (group.IsState() && request.start_high > 0) continue;
    const bool by_tokens =
        !group.IsState() && !group.IsCross() && !group.IsRing() && !group.on_host;
    const geometry::Group::Columns written = WrittenBy(request, group);
    const int64_t first =
        by_tokens ? geometry::BlocksFor(request.start_high, group.block_size) : written.first;
    const int64_t last =
        by_tokens
            ? geometry::BlocksFor(request.start_low + request.num_tokens, group.block_size) - 1
            : written.last;
    const int64_t end = std::min(BoundBlocks(request, group), last + 1);
    for (int64_t column = first; column < end; ++column) {
      if (group.IsRing() && !FillsFromFirst(request, group, column)) continue;
      const int64_t block = BlockAt(request, group, column);
      if (InPool(group, block)) SetLost(group, block, false);
    }
  }
}

bool Mirror::AnyLostClaimed() {
  if (!lost_claim_) return false;
  lost_claim_ = std::any_of(lost_.begin(), lost_.end(), [this](const auto& lost) {
    return blocks_[lost.first].At(static_cast<size_t>(lost.second)).claims > 0;
  });
  return lost_claim_;
}

void Mirror::NoteSampled(Request* request, uint64_t step) {
  constexpr size_t kMostSteps = 16;  // more than any engine has in flight
  if (request->sampled_at.size() == kMostSteps)
    request->sampled_at.erase(request->sampled_at.begin());
  request->sampled_at.push_back(
      {step, request->start == KVGUARD_NONE
                 ? int64_t{KVGUARD_NONE}
                 : request->start + request->num_tokens - request->num_drafts});
}

void Mirror::OthersWritten(Request* request, bool abandoned) {
  if (layout_->has_states) StatesWritten(request, abandoned);
  if (layout_->has_rings) RingsWritten(request, abandoned);
  if (layout_->has_cross && !abandoned) request->encoder_written = true;
}

void Mirror::EndStep(uint64_t step, bool forward, bool abandoned) {
  const bool forgets = layout_->forgets;
  const bool others = layout_->has_states || layout_->has_rings || layout_->has_cross;
  for (const uint32_t index : scheduled_) {
    Request& request = requests_[index];
    if (request.key == 0 || request.scheduled_serial != serial_) continue;
    Frontier& f = request.frontier;
    if (!forward) continue;
    if (request.chain.active()) NoteSampled(&request, step);
    if (!lost_.empty()) ContentWritten(request);
    if (others) OthersWritten(&request, abandoned);
    if (request.start != KVGUARD_NONE) {
      f.valid_low = f.valid_high = request.start;
      Settle(&request);
    }
    // Drafts may turn out rejected, and an abandoned step may have stopped anywhere.
    const bool known = request.rejected != KVGUARD_NONE;
    const int64_t rejected = known ? request.rejected : 0;
    const int64_t unsure = abandoned ? request.num_tokens : known ? rejected : request.num_drafts;
    f.valid_low += request.num_tokens - unsure;
    f.valid_high += request.num_tokens - (abandoned ? 0 : rejected);
    request.filled = std::max(request.filled, f.valid_high);
    f.scheduler +=
        request
            .num_tokens;  // an asynchronous scheduler counts rejected drafts until it hears of them
    if (abandoned) {
      AddSettled(&request, {step, request.num_tokens});
    } else if (!known && request.num_drafts > 0) {
      request.pending.push_back({step, request.num_drafts});
    }
    if (forgets) ExpireWindows(&request, step);
  }
  open_ = false;
  if (forward && !abandoned && !executing_.empty()) {
    previous_.swap(executing_);
    previous_step_ = step;
  }
  executing_.clear();
  TrimHistory(step);
}

bool Mirror::Outcome(Request* request, uint64_t step, int64_t rejected, int64_t* drafts) {
  *drafts = 0;
  for (auto it = request->pending.begin(); it != request->pending.end(); ++it) {
    if (it->step != step) continue;
    *drafts = it->drafts;
    if (rejected > it->drafts) return false;
    Frontier& f = request->frontier;
    f.valid_low += it->drafts - rejected;
    f.valid_high = std::max(f.valid_low, f.valid_high - rejected);
    for (Request::Assumed& assumed : request->assumed) {
      if (assumed.step <= step) continue;
      assumed.low += it->drafts - rejected;
      --assumed.open;
    }
    request->pending.erase(it);
    Expire(request, step);
    return true;
  }
  for (auto it = request->settled.begin(); it != request->settled.end(); ++it) {
    if (it->step != step) continue;
    *drafts = it->drafts;
    if (rejected > it->drafts) return false;
    request->settled.erase(it);
    return true;
  }
  return rejected == 0 || step < request->forgotten_before;
}

void Mirror::Assume(Request* request, int64_t start) const {
  constexpr size_t kMostAssumed = 16;
  // Only open drafts explain the range: what they come to then decides.
  int64_t drafts = 0;
  for (const PendingOutcome& pending : request->pending) drafts += pending.drafts;
  if (drafts == 0 || drafts != request->frontier.valid_high - request->frontier.valid_low) return;
  for (const Request::Assumed& assumed : request->assumed) {
    if (assumed.step == open_step_ && assumed.start == start) return;
  }
  if (request->assumed.size() == kMostAssumed) request->assumed.erase(request->assumed.begin());
  request->assumed.push_back(
      {open_step_, start, request->frontier.valid_low, request->pending.size()});
}

void Mirror::AddSettled(Request* request, const PendingOutcome& outcome) {
  constexpr size_t kMostSettled = 16;  // more than any engine has steps in flight
  if (request->settled.size() == kMostSettled) {
    request->forgotten_before = request->settled.front().step + 1;
    request->settled.erase(request->settled.begin());
  }
  request->settled.push_back(outcome);
}

void Mirror::AddReleased(Released released) {
  released_bytes_ += BytesOf(released);
  released_.push_back(std::move(released));
}

void Mirror::TrimHistory(uint64_t step) {
  while (!released_.empty() &&
         (released_bytes_ > history_bytes_ || released_.front().step + history_steps_ < step)) {
    released_bytes_ -= BytesOf(released_.front());
    released_.pop_front();
  }
}

const Released* Mirror::FindReleased(uint64_t key) const {
  for (auto it = released_.rbegin(); it != released_.rend(); ++it) {
    if (it->key == key) return &*it;
  }
  return nullptr;
}

const std::vector<Row>* Mirror::RowsOf(uint64_t key) const {
  if (const Request* request = FindRequest(key)) return &request->rows;
  if (const Released* released = FindReleased(key)) return &released->rows;
  return nullptr;
}

}  // namespace kvguard::mirror
