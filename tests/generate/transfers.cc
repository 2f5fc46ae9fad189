// SPDX-License-Identifier: Apache-2.0
// The connector's side of the scheduler: blocks that are filled before their request is admitted,
// blocks that stay taken after it has ended.
#include <algorithm>
#include <utility>

#include "tests/generate/scheduler.h"

namespace kvguard::generate {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

// The first waiting request may have a part of its prompt somewhere else: blocks are taken for it,
// and it comes back when they are full.
bool Scheduler::StartLoad(Decision* decision) {
  Request& r = *waiting_.front();
  if (!options_.loads || r.external > 0 || r.preempted || Known(r) < 3 || loads_.size() >= 2 ||
      !random_.OneIn(4))
    return false;
  const int64_t hit = Hit(r);
  // A whole prompt, or whole blocks of it.
  int64_t end = random_.OneIn(3) ? Known(r) : random_.Range(hit + 1, Known(r));
  if (end < Known(r)) {
    for (const GroupOptions& group : options_.groups) end = end / group.span() * group.span();
  }
  for (const GroupOptions& group : options_.groups) {
    if (end < Known(r) && end % group.span() != 0) end = 0;
  }
  if (end <= hit || !AllocateLoad(r, end)) {
    Free(r, Freed::kNever);
    return false;
  }
  Load load;
  load.hit = hit;
  load.end = end;
  for (size_t g = 0; g < options_.groups.size(); ++g) AddParts(r, g, hit, end, &load.parts);
  load.request = std::move(waiting_.front());
  waiting_.pop_front();
  loads_.push_back(std::move(load));
  situations_.Reach(Situation::kLoadAhead);
  Announce(&loads_.back(), random_.OneIn(2), decision);
  return true;
}

// One transfer for each run of columns of this group.
void Scheduler::AddParts(const Request& r, size_t g, int64_t hit, int64_t end,
                         std::vector<Decision::Transfer>* parts) {
  const int64_t size = Group(g).span();
  bool open = false;
  for (int64_t j = hit / size; j < CeilDiv(end, size); ++j) {
    const int64_t block = r.blocks[g][static_cast<size_t>(j)];
    const bool holds = block != PoolOf(g).null_block();
    if (holds && !open) {
      Decision::Transfer part;
      part.id = next_transfer_++;
      part.key = r.key;
      part.group = static_cast<uint32_t>(g);
      part.first = j * size;
      part.tokens = r.tokens;
      part.domains = r.domains;
      parts->push_back(std::move(part));
    }
    open = holds;
    if (!holds) continue;
    parts->back().blocks.push_back(block);
    parts->back().count = std::min((j + 1) * size, end) - parts->back().first;
  }
}

// Blocks for the tokens [hit, end); of a group that forgets only those that are still needed then.
bool Scheduler::AllocateLoad(Request& r, int64_t end) {
  const int64_t next = std::min(end, Known(r) - 1);  // the first token that it will compute
  std::vector<int64_t> wanted(pools_.size(), 0);
  for (size_t g = 0; g < options_.groups.size(); ++g) {
    for (auto j = static_cast<int64_t>(r.blocks[g].size()); j < CeilDiv(end, Group(g).span()); ++j)
      wanted[Group(g).pool] += Group(g).Keeps(j, next) ? 1 : 0;
  }
  for (size_t p = 0; p < pools_.size(); ++p) {
    if (wanted[p] > pools_[p].free()) return false;
  }
  for (size_t g = 0; g < options_.groups.size(); ++g) {
    for (auto j = static_cast<int64_t>(r.blocks[g].size()); j < CeilDiv(end, Group(g).span());
         ++j) {
      const bool keeps = Group(g).Keeps(j, next);
      r.blocks[g].push_back(keeps ? PoolOf(g).Take(&situations_) : PoolOf(g).null_block());
    }
  }
  return true;
}

// Its blocks may be reserved a step before the transfer begins.
void Scheduler::Announce(Load* load, bool only_reserve, Decision* decision) {
  for (const Decision::Transfer& part : load->parts) {
    decision->loads.push_back(part);
    decision->loads.back().kind = only_reserve ? KVGUARD_EVENT_RESERVE : KVGUARD_EVENT_LOAD;
  }
  load->announced = !only_reserve;
}

void Scheduler::AnnounceLoads(Decision* decision) {
  for (Load& load : loads_) {
    if (!load.announced) Announce(&load, false, decision);
    if (load.aborted || !random_.OneIn(30)) continue;
    // The worker was never given this request; its blocks are free when the transfer has ended.
    load.aborted = true;
    decision->ends.push_back({load.request->key, false, false});
    situations_.Reach(Situation::kAbortUnknownKey);
  }
}

void Scheduler::EndLoad(size_t index, std::vector<Decision::Transfer>* ended) {
  Load load = std::move(loads_[index]);
  loads_.erase(loads_.begin() + static_cast<std::ptrdiff_t>(index));
  const bool failed = !load.aborted && random_.OneIn(5);
  for (Decision::Transfer& part : load.parts) {
    part.kind = failed ? KVGUARD_EVENT_LOAD_FAILED : KVGUARD_EVENT_LOAD_DONE;
    ended->push_back(std::move(part));
  }
  Request& r = *load.request;
  if (load.aborted || failed) {
    if (failed) situations_.Reach(Situation::kLoadFailed);
    Free(r, Freed::kNever);
    r.computed = 0;
    if (!load.aborted) waiting_.push_front(std::move(load.request));  // computes it itself
    return;
  }
  // Where everything came, the last token is computed again for its logits.
  r.computed = std::min(load.end, Known(r) - 1);
  r.external = load.end - load.hit;
  Index(r, load.end);
  waiting_.push_front(std::move(load.request));
}

std::vector<Decision::Transfer> Scheduler::EndTransfers() {
  std::vector<Decision::Transfer> ended;
  for (size_t i = loads_.size(); i-- > 0;) {
    if (loads_[i].announced && random_.OneIn(2)) EndLoad(i, &ended);
  }
  for (size_t i = sends_.size(); i-- > 0;) {
    if (!random_.OneIn(3)) continue;
    for (const Decision::Transfer& part : sends_[i].parts) {
      ended.push_back(part);
      ended.back().kind = KVGUARD_EVENT_SEND_DONE;
    }
    Release(sends_[i]);
    sends_.erase(sends_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return ended;
}

// What a finished request leaves behind is read by the connector for a while.
void Scheduler::StartSend(Request& r) {
  const int64_t tokens = r.computed - r.in_flight;
  if (tokens <= 0 || r.in_flight > 0 || sends_.size() >= 2) return;
  Send send;
  for (size_t g = 0; g < options_.groups.size(); ++g) {
    Decision::Transfer part;
    part.kind = KVGUARD_EVENT_SEND_PENDING;
    part.id = next_transfer_++;
    part.key = r.key;
    part.group = static_cast<uint32_t>(g);
    // A row that a fault left too short is sent as far as it goes.
    const int64_t columns =
        std::min(CeilDiv(tokens, Group(g).span()), static_cast<int64_t>(r.blocks[g].size()));
    for (int64_t j = 0; j < columns; ++j) {
      const int64_t block = r.blocks[g][static_cast<size_t>(j)];
      if (block == PoolOf(g).null_block() || !Group(g).Keeps(j, tokens)) continue;
      part.blocks.push_back(block);
      if (!Has(Fault::kSendFreed)) PoolOf(g).Touch(block);
      ++being_sent_[Group(g).pool][static_cast<size_t>(block)];
    }
    if (!part.blocks.empty()) send.parts.push_back(std::move(part));
  }
  situations_.Reach(Situation::kSendDelayed);
  for (const Decision::Transfer& part : send.parts) new_sends_.push_back(part);
  sends_.push_back(std::move(send));
}

void Scheduler::Release(const Send& send) {
  for (const Decision::Transfer& part : send.parts) {
    for (const int64_t block : part.blocks) {
      if (!Has(Fault::kSendFreed)) PoolOf(part.group).Drop(block);
      --being_sent_[Group(part.group).pool][static_cast<size_t>(block)];
    }
  }
}

// The token that is computed again would be written under the connector's eyes.
bool Scheduler::WritesWhatIsSent(const Request& r) {
  for (size_t g = 0; g < options_.groups.size(); ++g) {
    for (auto j = static_cast<size_t>(r.computed / Group(g).span()); j < r.blocks[g].size(); ++j) {
      const int64_t block = r.blocks[g][j];
      if (being_sent_[Group(g).pool][static_cast<size_t>(block)] > 0) return true;
    }
  }
  return false;
}

}  // namespace kvguard::generate
