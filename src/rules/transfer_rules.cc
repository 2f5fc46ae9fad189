// SPDX-License-Identifier: Apache-2.0
// Family transfer: blocks that a connector fills or reads behind the engine's back.
#include <algorithm>

#include "rules/context.h"

namespace kvguard::rules {
namespace {

using geometry::Group;
using mirror::kNoRequest;
using mirror::Request;
using mirror::Transfer;
using mirror::TransferKind;
using mirror::Transfers;

constexpr size_t kMostUnplaced = 4096;  // a stream that never admits must not grow memory

kvguard_finding& EmitEvent(Context& context, uint32_t code, const kvguard_event& event) {
  kvguard_finding& finding = Emit(context, code);
  finding.request = event.request;
  if (event.group != KVGUARD_ALL_GROUPS) finding.group = event.group;
  return finding;
}

void UnknownTransfer(Context& context, const kvguard_event& event) {
  const auto id = static_cast<uint64_t>(event.value);
  Transfers& transfers = context.mirror->transfers();
  if (transfers.forgot() && !transfers.WasEnded(id) && transfers.Find(id) == nullptr) {
    ++context.counters->ignored;
    return;
  }
  SetValues(EmitEvent(context, kTransferUnknown, event), KVGUARD_NONE, event.value);
}

// Where a load fills a request's columns: they must be the ones bound at its positions. late: the
// request came after the load, and may have found other blocks that hold the same.
void JudgePlacement(Context& context, const Request& request, const Transfer& load, bool late) {
  const Group& group = context.layout().groups[load.group];
  if (group.IsCross()) return;  // its columns are not of the request's tokens
  if (group.IsRing()) return;   // nor of one turn alone
  if (group.IsState()) return;  // which columns a transfer of states names differs by engine
  const int64_t bound = context.mirror->BoundBlocks(request, group);
  for (size_t i = 0; i < load.blocks.size(); ++i) {
    const int64_t column = load.first / group.block_size + static_cast<int64_t>(i);
    const int64_t expected =
        column < bound ? context.mirror->BlockAt(request, group, column) : KVGUARD_NONE;
    const bool hole = group.cells && expected < 0;
    if (expected == load.blocks[i] && column < bound && !hole) continue;
    if (group.Forgets() && load.blocks[i] == context.layout().PoolOf(group).null_block &&
        !group.Needs(column, request.frontier.valid_low)) {
      continue;  // stands for a column that is not kept
    }
    if (late) {
      const bool counted = column < bound && context.mirror->InPool(group, expected) &&
                           context.mirror->IsClaimed(request, group, column) &&
                           (column + 1) * group.block_size <= request.frontier.valid_low;
      if (!counted || expected == context.layout().PoolOf(group).null_block ||
          context.mirror->BlockOf(group, expected).ever_home) {
        continue;
      }
    }
    kvguard_finding& finding = Emit(context, kTransferMisplaced);
    finding.request = request.key;
    finding.group = group.id;
    finding.pos = column * group.block_size;
    SetValues(finding, expected, load.blocks[i]);
    SetVictim(context, finding, group, load.blocks[i], request.key);
    return;
  }
}

void JudgeSend(Context& context, const Request& request, const Transfer& send) {
  const Group& group = context.layout().groups[send.group];
  if (group.IsState() || group.IsCross() || group.IsRing()) return;
  for (const int64_t block : send.blocks) {
    // In a windowed group the null block stands for a column that is not kept.
    bool held = group.Forgets() && block == context.layout().PoolOf(group).null_block;
    const int64_t bound = context.mirror->BoundBlocks(request, group);
    const bool is_hole = group.cells && block < 0;
    for (int64_t column = 0; column < bound && !held && !is_hole; ++column)
      held = context.mirror->BlockAt(request, group, column) == block;
    if (held) continue;
    kvguard_finding& finding = Emit(context, kTransferMisplaced);
    finding.request = request.key;
    finding.group = group.id;
    SetValues(finding, KVGUARD_NONE, block);
    SetVictim(context, finding, group, block, request.key);
    return;
  }
}

// Whether a transfer still reads the block, or fills it for another request than this one. 0: not
// known which.
bool IsPinnedForOther(const Context& context, const Group& group, int64_t block, uint64_t request) {
  const mirror::Block& b = context.mirror->BlockOf(group, block);
  if (b.pins_out > 0) return true;
  if (b.pins_in == 0 || request == 0) return false;
  const auto& open = context.mirror->transfers().open();
  return std::any_of(open.begin(), open.end(), [&](const auto& entry) {
    const Transfer& transfer = entry.second;
    return transfer.request != 0 && transfer.request != request &&
           context.layout().groups[transfer.group].pool == group.pool &&
           std::find(transfer.blocks.begin(), transfer.blocks.end(), block) !=
               transfer.blocks.end();
  });
}

// A block that nobody holds is handed to a transfer while another one pins it.
void JudgeHandedOut(Context& context, const kvguard_event& event, const Group& group,
                    const Transfer& transfer) {
  for (const int64_t block : transfer.blocks) {
    if (!context.mirror->InPool(group, block) || context.mirror->BlockOf(group, block).claims > 0 ||
        !IsPinnedForOther(context, group, block, event.request)) {
      continue;
    }
    kvguard_finding& finding = EmitEvent(context, kPinnedRebound, event);
    finding.group = group.id;
    SetValues(finding, KVGUARD_NONE, block);
    return;
  }
}

// A block that somebody else reads is filled anew.
void JudgeOverwritten(Context& context, const kvguard_event& event, const Group& group,
                      const Transfer& transfer) {
  if (group.IsState() || group.IsCross() || group.on_host || event.request == 0) return;
  mirror::Mirror& mirror = *context.mirror;
  for (const int64_t block : transfer.blocks) {
    if (!mirror.InPool(group, block) || block == context.layout().PoolOf(group).null_block ||
        mirror.BlockOf(group, block).claims == 0 || mirror.BlockOf(group, block).lost) {
      continue;
    }
    const auto valid = [&](const Request& request, const Group& other, int64_t column) {
      return request.key != event.request && request.admitted_step != mirror.last_begun() &&
             !other.IsState() && !other.IsCross() &&
             column * other.block_size < other.Kept(request.frontier.valid_low);
    };
    const uint32_t index = mirror.FindClaim(group, block, valid);
    if (index == kNoRequest) continue;
    kvguard_finding& finding = EmitEvent(context, kLoadOverwrites, event);
    (void)mirror.HasClaim(mirror.at(index), group, block,
                          [&](const Request& request, const Group& other, int64_t column) {
                            if (!valid(request, other, column)) return false;
                            finding.pos = column * other.block_size;
                            return true;
                          });
    finding.group = group.id;
    SetValues(finding, KVGUARD_NONE, block);
    SetVictim(context, finding, group, block, mirror.HoldingOf(index, group, block));
    return;
  }
}

void Announce(Context& context, const kvguard_event& event) {
  mirror::Mirror& mirror = *context.mirror;
  Transfers& transfers = mirror.transfers();
  const auto id = static_cast<uint64_t>(event.value);
  const TransferKind kind = event.kind == KVGUARD_EVENT_RESERVE ? TransferKind::kReserve
                            : event.kind == KVGUARD_EVENT_LOAD  ? TransferKind::kLoad
                                                                : TransferKind::kSend;
  Transfer* known = transfers.Find(id);
  const bool follows = known != nullptr && known->kind == TransferKind::kReserve &&
                       kind != TransferKind::kReserve && !known->cancelled;
  if (transfers.WasEnded(id) || (known != nullptr && !follows)) {
    SetValues(EmitEvent(context, kTransferReused, event), KVGUARD_NONE, event.value);
    return;
  }
  if (follows) mirror.Pin(*known, -1);
  Transfer& transfer = known != nullptr ? *known : transfers.Open(id);
  transfer = Transfer{};
  transfer.kind = kind;
  transfer.group = event.group;
  transfer.request = event.request;
  transfer.first = event.first;
  transfer.count = event.count;
  transfer.since = mirror.last_begun();
  if (event.num_blocks > 0) transfer.blocks.assign(event.blocks, event.blocks + event.num_blocks);
  const Group& group = context.layout().groups[event.group];
  JudgeEventBlocks(context, event, group);
  if (kind != TransferKind::kSend && context.layout().forgets) {
    // Handed out: what a window may have left behind is not claimed any more.
    for (const int64_t block : transfer.blocks) {
      if (mirror.InPool(group, block)) mirror.Lapse(group, block, context.step);
    }
  }
  if (kind != TransferKind::kSend) JudgeHandedOut(context, event, group, transfer);
  mirror.Pin(transfer, 1);
  const uint32_t index = mirror.Find(transfer.request);
  if (kind == TransferKind::kSend && index != kNoRequest)
    JudgeSend(context, mirror.at(index), transfer);
  if (kind != TransferKind::kLoad) return;
  if (index != kNoRequest) JudgePlacement(context, mirror.at(index), transfer, false);
  JudgeOverwritten(context, event, group, transfer);
  if (index != kNoRequest || transfer.request == 0) return;
  if (transfers.unplaced().size() == kMostUnplaced) transfers.unplaced().pop_front();
  transfers.unplaced().push_back({id, transfer});
}

void DropUnplaced(Transfers& transfers, uint64_t id) {
  auto& unplaced = transfers.unplaced();
  unplaced.erase(std::remove_if(unplaced.begin(), unplaced.end(),
                                [id](const mirror::Unplaced& u) { return u.id == id; }),
                 unplaced.end());
}

// The transfer's block was filled with what belongs to its positions.
void Filled(Context& context, const Transfer& transfer, size_t i) {
  mirror::Mirror& mirror = *context.mirror;
  const Group& group = context.layout().groups[transfer.group];
  const int64_t block = transfer.blocks[i];
  if (!mirror.InPool(group, block)) return;
  mirror.SetLost(group, block, false);
  if (transfer.kind != TransferKind::kLoad) return;
  const int64_t column = transfer.first / group.block_size + static_cast<int64_t>(i);
  mirror::Block& b = mirror.TouchBlock(group, block);
  mirror::Mirror::SetHome(&b, group.id, column);
  b.bound = false;
  b.loaded_for = transfer.request;
  if (group.IsState() || group.IsRing()) {  // of how many tokens the state is, is not told
    mirror::Mirror::ForgetContent(&b);
    return;
  }
  const uint32_t index = mirror.Find(transfer.request);
  b.content = index == kNoRequest ? mirror::ContentName{}
                                  : mirror.at(index).chain.NameAt((column + 1) * group.block_size,
                                                                  context.layout().content_unit);
}

void End(Context& context, const kvguard_event& event) {
  mirror::Mirror& mirror = *context.mirror;
  Transfers& transfers = mirror.transfers();
  const auto id = static_cast<uint64_t>(event.value);
  Transfer* transfer = transfers.Find(id);
  if (transfer == nullptr) return UnknownTransfer(context, event);
  const Group& group = context.layout().groups[transfer->group];
  if (event.kind == KVGUARD_EVENT_LOAD_DONE) {
    for (size_t i = 0; i < transfer->blocks.size(); ++i) Filled(context, *transfer, i);
  } else if (event.kind == KVGUARD_EVENT_LOAD_FAILED) {
    JudgeEventBlocks(context, event, group);
    const int64_t* end = event.blocks + event.num_blocks;
    const bool partly = transfer->kind == TransferKind::kLoad && event.num_blocks > 0;
    for (size_t i = 0; partly && i < transfer->blocks.size(); ++i) {
      if (std::find(event.blocks, end, transfer->blocks[i]) == end) Filled(context, *transfer, i);
    }
    for (uint64_t i = 0; i < event.num_blocks; ++i) {
      if (mirror.InPool(group, event.blocks[i]) &&
          event.blocks[i] != context.layout().PoolOf(group).null_block) {
        mirror.SetLost(group, event.blocks[i], true);
      }
    }
    DropUnplaced(transfers, id);
  } else if (event.kind == KVGUARD_EVENT_DRAIN) {
    DropUnplaced(transfers, id);
  }
  mirror.Pin(*transfer, -1);
  transfers.End(id);
}

// Whether all loads that fill the block are this request's own, of this step, and end before what
// it writes: its forward waits for them.
bool IsLoadedBefore(const Context& context, const Request& request, const Group& group,
                    int64_t block) {
  for (const auto& [id, transfer] : context.mirror->transfers().open()) {
    if (transfer.kind != TransferKind::kLoad ||
        context.layout().groups[transfer.group].pool != group.pool ||
        std::find(transfer.blocks.begin(), transfer.blocks.end(), block) == transfer.blocks.end()) {
      continue;
    }
    const bool before = transfer.request == request.key && transfer.since == context.step &&
                        transfer.first <= request.start_low - transfer.count;
    if (!before) return false;
  }
  return true;
}

}  // namespace

void JudgeEventBlocks(Context& context, const kvguard_event& event, const Group& group) {
  for (uint64_t i = 0; i < event.num_blocks; ++i) {
    if (context.mirror->InPool(group, event.blocks[i])) continue;
    kvguard_finding& finding = EmitEvent(context, kBlockOutOfRange, event);
    if (event.kind < KVGUARD_EVENT_RESERVE) finding.request = 0;
    finding.group = group.id;
    finding.pos = static_cast<int64_t>(i);
    SetValues(finding, context.layout().PoolOf(group).num_blocks - 1, event.blocks[i]);
  }
}

void ApplyTransfer(Context& context, const kvguard_event& event) {
  switch (event.kind) {
    case KVGUARD_EVENT_RESERVE:
    case KVGUARD_EVENT_LOAD:
    case KVGUARD_EVENT_SEND_PENDING:
      Announce(context, event);
      break;
    case KVGUARD_EVENT_CANCEL: {
      Transfer* transfer = context.mirror->transfers().Find(static_cast<uint64_t>(event.value));
      if (transfer == nullptr || transfer->cancelled) return UnknownTransfer(context, event);
      transfer->cancelled = true;
      break;
    }
    default:
      End(context, event);
      break;
  }
  context.coverage->Add(KVGUARD_ALL_GROUPS, 0, 0, KVGUARD_FAMILY_TRANSFER, 1);
}

void JudgePlacements(Context& context) {
  Transfers& transfers = context.mirror->transfers();
  auto& unplaced = transfers.unplaced();
  if (unplaced.empty()) return;
  for (const mirror::Unplaced& u : unplaced) {
    const uint32_t index = context.mirror->Find(u.load.request);
    if (index != kNoRequest) JudgePlacement(context, context.mirror->at(index), u.load, true);
  }
  unplaced.erase(std::remove_if(unplaced.begin(), unplaced.end(),
                                [&](const mirror::Unplaced& u) {
                                  return context.mirror->Find(u.load.request) != kNoRequest;
                                }),
                 unplaced.end());
}

void JudgePinned(Context& context, const Request& request, const Group& group, int64_t column,
                 int64_t block) {
  if (!IsPinnedForOther(context, group, block, request.key)) return;
  kvguard_finding& finding = Emit(context, kPinnedRebound);
  finding.request = request.key;
  finding.group = group.id;
  finding.pos = column;
  SetValues(finding, KVGUARD_NONE, block);
}

void JudgeWritesToPinned(Context& context, const Request& request) {
  if (!context.mirror->AnyPinned()) return;
  for (const Group& group : context.layout().groups) {
    const Group::Columns written = mirror::Mirror::WrittenBy(request, group);
    const int64_t last = std::min(context.mirror->BoundBlocks(request, group) - 1, written.last);
    for (int64_t column = written.first; column <= last; ++column) {
      if (written.Skips(column)) continue;
      const int64_t block = context.mirror->BlockAt(request, group, column);
      if (!context.mirror->InPool(group, block) ||
          block == context.layout().PoolOf(group).null_block ||
          !context.mirror->IsClaimed(request, group, column) ||
          IsRecomputed(context, request, group, column)) {
        continue;
      }
      const mirror::Block& b = context.mirror->BlockOf(group, block);
      if (b.pins_out == 0 && (b.loading == 0 || IsLoadedBefore(context, request, group, block)))
        continue;
      kvguard_finding& finding = Emit(context, kWriteWhilePinned);
      finding.request = request.key;
      finding.group = group.id;
      finding.pos = column * group.block_size;
      SetValues(finding, KVGUARD_NONE, block);
      break;
    }
  }
}

void JudgeLost(Context& context) {
  mirror::Mirror& mirror = *context.mirror;
  if (!mirror.AnyLostClaimed()) return;
  const auto rewritten = [&](const Group& group, int64_t block) {
    for (const uint32_t index : mirror.scheduled()) {
      const Request& writer = mirror.at(index);
      const bool writes = mirror.HasClaim(
          writer, group, block, [&](const Request&, const Group& other, int64_t column) {
            const int64_t first = column * other.block_size;
            if (other.on_host) return false;
            if (other.IsCross()) return !writer.encoder_written && first < writer.encoder;
            if (other.IsState()) {  // a state goes on from the one before, unless it is the first
              const Group::Columns written =
                  other.Written(0, 0, writer.num_tokens, writer.num_drafts);
              return writer.start_high == 0 && column >= written.first && column <= written.last;
            }
            if (other.IsRing()) return mirror::Mirror::FillsFromFirst(writer, other, column);
            return first >= writer.start_high && first < writer.start_low + writer.num_tokens;
          });
      if (writes) return true;
    }
    return false;
  };
  for (const uint32_t index : mirror.scheduled()) {
    const Request& request = mirror.at(index);
    for (const Group& group : context.layout().groups) {
      if (group.IsCross() || group.on_host) continue;
      const int64_t end =
          std::min(mirror.BoundBlocks(request, group),
                   geometry::BlocksFor(group.Kept(request.start_low), group.block_size));
      for (int64_t column = 0; column < end; ++column) {
        const int64_t block = mirror.BlockAt(request, group, column);
        if (!mirror.InPool(group, block) || !mirror.IsClaimed(request, group, column) ||
            !mirror.BlockOf(group, block).lost || mirror.BlockOf(group, block).loading > 0 ||
            rewritten(group, block)) {
          continue;
        }
        kvguard_finding& finding = Emit(context, kFailedLoadUsed);
        finding.request = request.key;
        finding.group = group.id;
        finding.pos = column * group.block_size;
        SetValues(finding, KVGUARD_NONE, block);
        break;
      }
    }
  }
}

}  // namespace kvguard::rules
