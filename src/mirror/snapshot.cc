// SPDX-License-Identifier: Apache-2.0
// The mirror as bytes. Little-endian, length-checked, hashed; nothing in the mirror changes before
// all of it is proved consistent, since snapshots arrive from files.
#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "mirror/mirror.h"
#include "mirror/snapshot_bytes.h"

namespace kvguard::mirror {
namespace {

constexpr char kMagic[4] = {'K', 'V', 'G', 'S'};
constexpr uint32_t kVersion = 2;
constexpr uint8_t kLoaded = 16;  // a block's flag: the request that it was loaded for follows

uint64_t Fingerprint(const geometry::Layout& layout) {
  std::string bytes;
  Writer writer(&bytes);
  for (const geometry::Pool& pool : layout.pools) {
    writer.Put(pool.num_blocks);
    writer.Put(pool.null_block);
  }
  if (layout.pcp_size > 1) writer.Put(layout.pcp_size);
  for (const geometry::Group& group : layout.groups) {
    writer.Put(group.pool);
    writer.Put(group.kind);
    writer.Put(group.table_unit);
    writer.Put(group.block_size);
    writer.Put(group.kernel_block_size);
    if (group.Forgets()) {
      writer.Put(group.window);
      writer.Put(group.sink);
      writer.Put(group.retained);
    }
    if (group.IsState()) writer.Put(group.state_mode);
    if (group.IsRing()) writer.Put(group.ring);
    if (group.cells) writer.Put(uint8_t{1});
    if (group.IsScaled()) {
      writer.Put(group.block_stride);
      writer.Put(group.slot_base);
    }
    if (group.IsSharded()) {
      writer.Put(group.ranks);
      writer.Put(group.rank);
      writer.Put(group.interleave);
    }
  }
  return Fnv1a(bytes);
}

void PutRows(Writer& writer, const std::vector<Row>& rows, const geometry::Layout& layout) {
  for (size_t g = 0; g < rows.size(); ++g) {
    const Row& row = rows[g];
    writer.Put(row.last_append);
    writer.Put(static_cast<uint32_t>(row.entries.size()));
    for (const int32_t entry : row.entries) writer.Put(entry);
    if (!layout.groups[g].Forgets()) continue;
    writer.Put(row.expired);
    for (const uint64_t step : row.claimed_in) writer.Put(step);
  }
}

bool GetRows(Reader& reader, const geometry::Layout& layout, std::vector<Row>* rows) {
  rows->resize(layout.groups.size());
  for (size_t g = 0; g < rows->size(); ++g) {
    Row& row = (*rows)[g];
    uint32_t count;
    if (!reader.Get(&row.last_append) || !reader.Count(&count, sizeof(int32_t))) return false;
    if (count % static_cast<uint32_t>(layout.groups[g].EntriesPerBlock()) != 0 ||
        row.last_append > count)
      return false;
    row.entries.resize(count);
    for (int32_t& entry : row.entries) {
      if (!reader.Get(&entry) || entry < -1) return false;
    }
    if (!layout.groups[g].Forgets()) continue;
    const int64_t columns = count / static_cast<uint32_t>(layout.groups[g].EntriesPerBlock());
    if (!reader.Get(&row.expired) || row.expired < 0 || row.expired > columns) return false;
    row.claimed_in.resize(static_cast<size_t>(columns));
    for (uint64_t& step : row.claimed_in) {
      if (!reader.Get(&step)) return false;
    }
  }
  return true;
}

void PutChain(Writer& writer, const Request& request) {
  const ChainState& chain = request.chain.state();
  writer.Put(chain.tokens);
  writer.Put(chain.domain);
  writer.Put(chain.size);
  writer.Put(static_cast<uint8_t>((chain.active ? 1 : 0) + (chain.closed ? 2 : 0)));
  writer.Put(static_cast<uint32_t>(chain.names.size()));
  for (const ContentName& name : chain.names) {
    writer.Put(name.tokens);
    writer.Put(name.domain);
  }
  writer.Put(static_cast<uint32_t>(chain.domains.size()));
  for (const Domain& domain : chain.domains) {
    writer.Put(domain.kind);
    writer.Put(domain.value);
    writer.Put(domain.first);
    writer.Put(domain.count);
  }
  writer.Put(static_cast<uint32_t>(request.sampled_at.size()));
  for (const Request::SampledAt& at : request.sampled_at) {
    writer.Put(at.step);
    writer.Put(at.position);
  }
}

bool GetChain(Reader& reader, Request* request) {
  ChainState chain;
  uint8_t flags = 0;
  uint32_t count = 0;
  if (!reader.Get(&chain.tokens) || !reader.Get(&chain.domain) || !reader.Get(&chain.size) ||
      chain.size < 0 || !reader.Get(&flags) || flags > 3 || !reader.Count(&count, 16)) {
    return false;
  }
  chain.active = (flags & 1) != 0;
  chain.closed = (flags & 2) != 0;
  chain.names.resize(count);
  for (ContentName& name : chain.names) {
    if (!reader.Get(&name.tokens) || !reader.Get(&name.domain)) return false;
  }
  if (!reader.Count(&count, 32)) return false;
  chain.domains.resize(count);
  for (Domain& domain : chain.domains) {
    if (!reader.Get(&domain.kind) || !reader.Get(&domain.value) || !reader.Get(&domain.first) ||
        domain.first < 0 || !reader.Get(&domain.count) || domain.count < 0) {
      return false;
    }
  }
  if (!reader.Count(&count, 16)) return false;
  request->sampled_at.resize(count);
  for (Request::SampledAt& at : request->sampled_at) {
    if (!reader.Get(&at.step) || !reader.Get(&at.position)) return false;
  }
  request->chain.set_state(std::move(chain));
  return true;
}

bool GetTransfers(Reader& reader, const geometry::Layout& layout, Transfers* transfers,
                  Announced* zeroing, Announced* copying) {
  constexpr int64_t kMost = int64_t{1} << 41;
  const auto get = [&](uint64_t* id, Transfer* transfer) {
    uint8_t kind = 0;
    uint8_t cancelled = 0;
    uint32_t count = 0;
    if (!reader.Get(id) || !reader.Get(&kind) || kind > 2 || !reader.Get(&cancelled) ||
        cancelled > 1 || !reader.Get(&transfer->group) || transfer->group >= layout.groups.size() ||
        !reader.Get(&transfer->request) || !reader.Get(&transfer->first) || transfer->first < 0 ||
        transfer->first > kMost || !reader.Count(&count, sizeof(int64_t))) {
      return false;
    }
    transfer->kind = static_cast<TransferKind>(kind);
    transfer->cancelled = cancelled != 0;
    transfer->blocks.resize(count);
    for (int64_t& block : transfer->blocks) {
      if (!reader.Get(&block)) return false;
    }
    return true;
  };
  uint8_t forgot = 0;
  uint8_t zeroes = 0;
  uint8_t copies = 0;
  uint32_t count = 0;
  if (!reader.Get(&forgot) || forgot > 1 || !reader.Get(&zeroes) || zeroes > 1 ||
      !reader.Get(&copies) || copies > 1 || !reader.Count(&count, 30)) {
    return false;
  }
  transfers->set_forgot(forgot != 0);
  zeroing->set_says_done(zeroes != 0);
  copying->set_says_done(copies != 0);
  for (uint32_t i = 0; i < count; ++i) {
    uint64_t id = 0;
    Transfer transfer;
    if (!get(&id, &transfer) || transfers->Find(id) != nullptr) return false;
    transfers->Open(id) = std::move(transfer);
  }
  if (!reader.Count(&count, 30)) return false;
  for (uint32_t i = 0; i < count; ++i) {
    Unplaced unplaced;
    if (!get(&unplaced.id, &unplaced.load)) return false;
    transfers->unplaced().push_back(std::move(unplaced));
  }
  if (!reader.Count(&count, sizeof(uint64_t)) || count > Transfers::kMostEnded) return false;
  for (uint32_t i = 0; i < count; ++i) {
    uint64_t id = 0;
    if (!reader.Get(&id)) return false;
    transfers->Remember(id);
  }
  return true;
}

}  // namespace

void Mirror::Serialize(std::string* out, bool with_content) const {
  std::string payload;
  Writer writer(&payload);
  writer.Put(Fingerprint(*layout_));
  writer.Put(static_cast<uint32_t>(map_.size()));
  // By key: places in requests_ are an accident, and equal mirrors have equal bytes.
  std::vector<const Request*> live;
  for (const Request& request : requests_) {
    if (request.key != 0) live.push_back(&request);
  }
  std::sort(live.begin(), live.end(),
            [](const Request* a, const Request* b) { return a->key < b->key; });
  for (const Request* each : live) {
    const Request& request = *each;
    writer.Put(request.key);
    writer.Bytes(request.name);
    writer.Put(request.frontier.valid_low);
    writer.Put(request.frontier.valid_high);
    writer.Put(request.frontier.scheduler);
    writer.Put(request.admitted_step);
    writer.Put(request.forgotten_before);
    writer.Put(request.filled);
    writer.Put(static_cast<uint32_t>(request.pending.size()));
    for (const PendingOutcome& pending : request.pending) {
      writer.Put(pending.step);
      writer.Put(pending.drafts);
    }
    writer.Put(static_cast<uint32_t>(request.settled.size()));
    for (const PendingOutcome& settled : request.settled) {
      writer.Put(settled.step);
      writer.Put(settled.drafts);
    }
    writer.Put(static_cast<uint32_t>(request.assumed.size()));
    for (const Request::Assumed& assumed : request.assumed) {
      writer.Put(assumed.step);
      writer.Put(assumed.start);
      writer.Put(assumed.low);
      writer.Put(assumed.open);
    }
    PutChain(writer, with_content ? request : Request{});
    PutRows(writer, request.rows, *layout_);
    if (layout_->pcp_size > 1) writer.Put(request.known);
    if (layout_->has_states) {
      writer.Put(request.states_end);
      writer.Put(request.states_drafts);
    }
    if (layout_->has_rings) {
      writer.Put(static_cast<uint32_t>(request.written.size()));
      for (const Request::Run& run : request.written) {
        writer.Put(run.first);
        writer.Put(run.end);
        writer.Put(static_cast<uint8_t>(run.sure));
      }
    }
    if (layout_->has_cross) {
      writer.Put(request.encoder);
      writer.Put(static_cast<uint8_t>(request.encoder_written));
    }
  }
  const auto told = [](const Block& block) {
    return block.owner != 0 || block.last_owner != 0 || block.claims != 0 || block.lost ||
           block.freed || block.ever_home || block.ever_filled || block.content.tokens != 0 ||
           block.state_tokens != 0;
  };
  for (const BlockStore& pool : blocks_) {
    uint32_t used = 0;
    pool.ForEach([&](size_t, const Block& block) {
      if (told(block)) ++used;
    });
    writer.Put(used);
    pool.ForEach([&](size_t i, const Block& block) {
      if (!told(block)) return;
      writer.Put(static_cast<uint32_t>(i));
      writer.Put(block.owner);
      writer.Put(block.last_owner);
      writer.Put(block.since_step);
      writer.Put(block.released_step);
      writer.Put(block.home);
      writer.Put(block.home_group);
      writer.Put(with_content ? block.content.tokens : 0);
      writer.Put(with_content ? block.content.domain : 0);
      writer.Put(static_cast<uint8_t>((block.bound ? 1 : 0) + (block.written ? 2 : 0) +
                                      (block.ever_home ? 4 : 0) + (block.ever_filled ? 8 : 0) +
                                      (block.loaded_for != 0 ? kLoaded : 0)));
      writer.Put(static_cast<uint8_t>(block.lost ? 1 : 0));
      writer.Put(static_cast<uint8_t>(block.freed ? 1 : 0));
      if (layout_->has_states) writer.Put(block.state_tokens);
      if (block.loaded_for != 0) writer.Put(block.loaded_for);
    });
  }
  writer.Put(static_cast<uint32_t>(released_.size()));
  for (const Released& released : released_) {
    writer.Put(released.key);
    writer.Put(released.step);
    writer.Bytes(released.name);
    PutRows(writer, released.rows, *layout_);
  }
  const auto put = [&](uint64_t id, const Transfer& transfer) {
    writer.Put(id);
    writer.Put(static_cast<uint8_t>(transfer.kind));
    writer.Put(static_cast<uint8_t>(transfer.cancelled));
    writer.Put(transfer.group);
    writer.Put(transfer.request);
    writer.Put(transfer.first);
    writer.Put(static_cast<uint32_t>(transfer.blocks.size()));
    for (const int64_t block : transfer.blocks) writer.Put(block);
  };
  writer.Put(static_cast<uint8_t>(transfers_.forgot()));
  writer.Put(static_cast<uint8_t>(zeroing_.says_done()));
  writer.Put(static_cast<uint8_t>(copying_.says_done()));
  writer.Put(static_cast<uint32_t>(transfers_.open().size()));
  for (const auto& [id, transfer] : transfers_.open()) put(id, transfer);
  writer.Put(static_cast<uint32_t>(transfers_.unplaced().size()));
  for (const Unplaced& unplaced : transfers_.unplaced()) put(unplaced.id, unplaced.load);
  writer.Put(static_cast<uint32_t>(transfers_.ended().size()));
  for (const uint64_t id : transfers_.ended()) writer.Put(id);
  if (layout_->has_states) writer.Put(static_cast<uint8_t>(says_state_copies_));
  writer.Put(open_step_);
  writer.Put(previous_step_);
  writer.Put(static_cast<uint32_t>(previous_.size()));
  for (const ExecutedRow& row : previous_) {
    writer.Put(row.key);
    writer.Put(row.start);
    writer.Put(row.num_tokens);
  }
  out->assign(kMagic, sizeof(kMagic));
  Writer header(out);
  header.Put(kVersion);
  header.Put(Fnv1a(payload));
  out->append(payload);
}

bool Mirror::OwnersHoldTheirBlocks() const {
  // By pool: the blocks whose owner's rows name them.
  std::vector<std::unordered_set<int64_t>> held(blocks_.size());
  for (const Request& request : requests_) {  // all live: none has ended since the restore
    for (const geometry::Group& group : layout_->groups) {
      const int64_t columns = BoundBlocks(request, group);
      for (int64_t column = 0; column < columns; ++column) {
        const int64_t block = BlockAt(request, group, column);
        if (InPool(group, block) && block != layout_->pools[group.pool].null_block &&
            BlockOf(group, block).owner == request.key && IsClaimed(request, group, column))
          held[group.pool].insert(block);
      }
    }
  }
  bool all = true;
  for (size_t pool = 0; pool < blocks_.size(); ++pool) {
    blocks_[pool].ForEach([&](size_t i, const Block& block) {
      all = all && (block.owner == 0 || held[pool].count(static_cast<int64_t>(i)) != 0);
    });
  }
  return all;
}

step::Status Mirror::Restore(std::string_view bytes) {
  constexpr size_t kHeader = sizeof(kMagic) + sizeof(uint32_t) + sizeof(uint64_t);
  const auto damaged = [] {
    return step::Status(KVGUARD_ERROR_FORMAT,
                        "snapshot: damaged; take it again, or replay from the beginning");
  };
  if (bytes.size() < kHeader || std::memcmp(bytes.data(), kMagic, sizeof(kMagic)) != 0) {
    return step::Status(KVGUARD_ERROR_FORMAT, "snapshot: not a kvguard snapshot");
  }
  Reader header(bytes.substr(sizeof(kMagic), kHeader - sizeof(kMagic)));
  uint32_t version = 0;
  uint64_t hash = 0;
  if (!header.Get(&version) || !header.Get(&hash)) return damaged();
  if (version > kVersion) {
    return step::Status(KVGUARD_ERROR_VERSION,
                        "snapshot: written by a later kvguard; update this one");
  }
  const std::string_view payload = bytes.substr(kHeader);
  if (version < kVersion) {
    return step::Status(KVGUARD_ERROR_VERSION,
                        "snapshot: of an earlier kvguard, which this one does not read; take it "
                        "again, or replay from the beginning");
  }
  if (Fnv1a(payload) != hash) return damaged();

  Reader reader(payload);
  uint64_t fingerprint = 0;
  if (!reader.Get(&fingerprint)) return damaged();
  if (fingerprint != Fingerprint(*layout_)) {
    return step::Malformed("snapshot: taken with another geometry (pools or groups differ)");
  }
  Mirror fresh;
  fresh.Init(layout_, history_steps_, history_bytes_);
  uint32_t num_requests = 0;
  if (!reader.Count(&num_requests, sizeof(uint64_t))) return damaged();
  for (uint32_t i = 0; i < num_requests; ++i) {
    uint64_t key = 0;
    std::string name;
    if (!reader.Get(&key) || key == 0 || fresh.Find(key) != kNoRequest || !reader.Bytes(&name))
      return damaged();
    Request& request = fresh.at(fresh.Admit(key, name, 0, 0));
    uint32_t num_pending = 0;
    if (!reader.Get(&request.frontier.valid_low) || !reader.Get(&request.frontier.valid_high) ||
        !reader.Get(&request.frontier.scheduler) || !reader.Get(&request.admitted_step) ||
        !reader.Get(&request.forgotten_before) || !reader.Get(&request.filled) ||
        !reader.Count(&num_pending, 16)) {
      return damaged();
    }
    constexpr int64_t kMost = int64_t{1} << 41;
    const Frontier& f = request.frontier;
    if (f.valid_low < 0 || f.valid_high < f.valid_low || f.scheduler < 0 || f.valid_high > kMost ||
        f.scheduler > kMost) {
      return damaged();
    }
    request.pending.resize(num_pending);
    int64_t open = f.valid_high - f.valid_low;  // open drafts are what makes the frontier a range
    for (PendingOutcome& pending : request.pending) {
      if (!reader.Get(&pending.step) || !reader.Get(&pending.drafts) || pending.drafts < 0 ||
          pending.drafts > open) {
        return damaged();
      }
      open -= pending.drafts;
    }
    uint32_t num_settled = 0;
    if (!reader.Count(&num_settled, 16)) return damaged();
    request.settled.resize(num_settled);
    for (PendingOutcome& settled : request.settled) {
      if (!reader.Get(&settled.step) || !reader.Get(&settled.drafts) || settled.drafts < 0)
        return damaged();
    }
    uint32_t num_assumed = 0;
    if (!reader.Count(&num_assumed, 32)) return damaged();
    request.assumed.resize(num_assumed);
    for (Request::Assumed& assumed : request.assumed) {
      if (!reader.Get(&assumed.step) || !reader.Get(&assumed.start) || !reader.Get(&assumed.low) ||
          !reader.Get(&assumed.open) || assumed.open > num_pending || assumed.low < 0 ||
          assumed.low > kMost) {
        return damaged();
      }
    }
    if (!GetChain(reader, &request)) return damaged();
    if (!GetRows(reader, *layout_, &request.rows)) return damaged();
    if (layout_->pcp_size > 1 && (!reader.Get(&request.known) || request.known < 0))
      return damaged();
    if (layout_->has_states &&
        (!reader.Get(&request.states_end) || !reader.Get(&request.states_drafts) ||
         request.states_end < KVGUARD_NONE || request.states_end > kMost ||
         request.states_drafts < 0 || request.states_drafts > kMost)) {
      return damaged();
    }
    uint32_t num_runs = 0;
    if (layout_->has_rings && !reader.Count(&num_runs, 17)) return damaged();
    request.written.resize(num_runs);
    for (Request::Run& run : request.written) {
      uint8_t sure = 0;
      if (!reader.Get(&run.first) || run.first < 0 || !reader.Get(&run.end) ||
          run.end < run.first || run.end > kMost || !reader.Get(&sure) || sure > 1) {
        return damaged();
      }
      run.sure = sure != 0;
    }
    uint8_t written = 0;
    if (layout_->has_cross && (!reader.Get(&request.encoder) || request.encoder < 0 ||
                               request.encoder > kMost || !reader.Get(&written) || written > 1)) {
      return damaged();
    }
    request.encoder_written = written != 0;
    request.maybe_stale =
        layout_->forgets || layout_->has_rings;  // looked at once more, at its next row
    // Claims are what the rows say: they are counted anew, not read.
    for (const geometry::Group& group : layout_->groups) {
      const int64_t columns = fresh.BoundBlocks(request, group);
      for (int64_t column = 0; column < columns; ++column) {
        const int64_t block = fresh.BlockAt(request, group, column);
        if (!fresh.InPool(group, block) || block == layout_->pools[group.pool].null_block ||
            !fresh.IsClaimed(request, group, column)) {
          continue;
        }
        ++fresh.TouchBlock(group, block).claims;
      }
    }
  }
  for (uint32_t p = 0; p < fresh.blocks_.size(); ++p) {
    BlockStore& pool = fresh.blocks_[p];
    uint32_t used = 0;
    if (!reader.Count(&used, 63)) return damaged();
    for (uint32_t i = 0; i < used; ++i) {
      uint32_t index = 0;
      if (!reader.Get(&index) || index >= pool.size()) return damaged();
      Block& block = pool.Touch(index);
      uint8_t filled = 0;
      uint8_t lost = 0;
      uint8_t freed = 0;
      if (!reader.Get(&block.owner) || !reader.Get(&block.last_owner) ||
          !reader.Get(&block.since_step) || !reader.Get(&block.released_step) ||
          !reader.Get(&block.home) || !reader.Get(&block.home_group) ||
          !reader.Get(&block.content.tokens) || !reader.Get(&block.content.domain) ||
          !reader.Get(&filled) || filled >= 2 * kLoaded || !reader.Get(&lost) || lost > 1 ||
          !reader.Get(&freed) || freed > 1) {
        return damaged();
      }
      if (layout_->has_states && (!reader.Get(&block.state_tokens) || block.state_tokens < 0))
        return damaged();
      if ((filled & kLoaded) != 0 && !reader.Get(&block.loaded_for)) return damaged();
      block.lost = lost != 0;
      block.freed = freed != 0;
      block.bound = (filled & 1) != 0;
      block.written = (filled & 2) != 0;
      block.ever_home = (filled & 4) != 0;
      block.ever_filled = (filled & 8) != 0;
      if (block.lost) {
        fresh.lost_.emplace(p, index);
        fresh.lost_claim_ = true;
      }
    }
  }
  if (!fresh.OwnersHoldTheirBlocks()) return damaged();
  uint32_t num_released = 0;
  if (!reader.Count(&num_released, 20)) return damaged();
  for (uint32_t i = 0; i < num_released; ++i) {
    Released released;
    if (!reader.Get(&released.key) || !reader.Get(&released.step) ||
        !reader.Bytes(&released.name) || !GetRows(reader, *layout_, &released.rows)) {
      return damaged();
    }
    fresh.AddReleased(std::move(released));
  }
  if (!GetTransfers(reader, *layout_, &fresh.transfers_, &fresh.zeroing_, &fresh.copying_))
    return damaged();
  for (const auto& [id, transfer] : fresh.transfers_.open()) fresh.Pin(transfer, 1);
  uint8_t says = 0;
  if (layout_->has_states && (!reader.Get(&says) || says > 1)) return damaged();
  fresh.says_state_copies_ = says != 0;
  uint32_t num_previous = 0;
  if (!reader.Get(&fresh.open_step_) || !reader.Get(&fresh.previous_step_) ||
      !reader.Count(&num_previous, 24))
    return damaged();
  fresh.previous_.resize(num_previous);
  for (ExecutedRow& row : fresh.previous_) {
    if (!reader.Get(&row.key) || !reader.Get(&row.start) || !reader.Get(&row.num_tokens) ||
        row.num_tokens < 0 || row.start < KVGUARD_NONE) {
      return damaged();
    }
  }
  if (!reader.AtEnd()) return damaged();
  *this = std::move(fresh);
  return {};
}

}  // namespace kvguard::mirror
