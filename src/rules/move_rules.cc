// SPDX-License-Identifier: Apache-2.0
// Events that move what is bound: blocks to other places, cells to other positions.
#include <algorithm>
#include <map>
#include <vector>

#include "rules/context.h"

namespace kvguard::rules {
namespace {

using geometry::Group;
using mirror::Mirror;
using mirror::Request;

// One column of a duplicate now names the block that holds the same.
void Dedupe(Context& context, Request& request, const Group& group, int64_t column, int64_t block) {
  Mirror& mirror = *context.mirror;
  const int64_t columns = mirror.BoundBlocks(request, group);
  bool named = false;
  for (int64_t other = 0; other < columns && !named; ++other)
    named = other != column && mirror.BlockAt(request, group, other) == block;
  mirror.TakeOut(&request, group, column, context.step);
  mirror.SetEntries(&request, group, column, block);
  mirror::Block& b = mirror.TouchBlock(group, block);
  const bool whole =
      !group.IsRing() && (column + 1) * group.block_size <= request.frontier.valid_low;
  if (named || !whole) {
    kvguard_finding& finding =
        named ? Emit(context, kBlockRepeated) : Emit(context, kBlockOwned, KVGUARD_GRADE_PROOF);
    finding.request = request.key;
    finding.group = group.id;
    finding.pos = column;
    SetValues(finding, KVGUARD_NONE, block);
    if (!named) SetVictim(context, finding, group, block, request.key);
  } else {
    mirror.hits().push_back({request.key, group.id, column, request.frontier.valid_low});
  }
  ++b.claims;
  b.freed = false;
}

void DedupeAll(Context& context, uint32_t pool, const std::vector<mirror::BlockMove>& moves) {
  Mirror& mirror = *context.mirror;
  std::map<int64_t, int64_t> to;
  for (const mirror::BlockMove& move : moves) to[move.from] = move.to;
  for (const uint32_t index : mirror.ByKey()) {
    Request& request = mirror.at(index);
    for (const Group& group : context.layout().groups) {
      if (group.pool != pool) continue;
      const int64_t columns = mirror.BoundBlocks(request, group);
      bool settled = false;
      for (int64_t column = 0; column < columns; ++column) {
        const auto at = to.find(mirror.BlockAt(request, group, column));
        if (at == to.end()) continue;
        if (!settled) mirror.SettleHits(request, group, context.step, false);
        settled = true;
        Dedupe(context, request, group, column, at->second);
      }
    }
  }
}

bool ApplyRemap(Context& context, const kvguard_event& event) {
  Mirror& mirror = *context.mirror;
  const Group& named = context.layout().groups[event.group];
  for (const Group& group : context.layout().groups) {
    if (group.pool == named.pool && (group.IsState() || group.IsCross() || group.Forgets()))
      return false;
  }
  JudgeEventBlocks(context, event, named);
  std::vector<mirror::BlockMove> moves;
  for (uint64_t i = 0; i + 1 < event.num_blocks; i += 2) {
    if (geometry::Moves(context.layout().PoolOf(named), event.blocks[i], event.blocks[i + 1]))
      moves.push_back({event.blocks[i], event.blocks[i + 1]});
  }
  if (moves.empty()) return true;
  if (event.value == KVGUARD_REMAP_DEDUPE) {
    DedupeAll(context, named.pool, moves);
    return true;
  }
  if (event.value == KVGUARD_REMAP_MOVE) {
    for (const mirror::BlockMove& move : moves) {
      const bool moves_on =
          std::any_of(moves.begin(), moves.end(),
                      [&move](const mirror::BlockMove& other) { return other.from == move.to; });
      if (!moves_on) JudgeCopyTarget(context, named, move.to);
    }
  } else {
    const size_t pairs = moves.size();
    for (size_t i = 0; i < pairs; ++i) moves.push_back({moves[i].to, moves[i].from});
  }
  mirror.MoveBlocks(named.pool, moves);
  return true;
}

}  // namespace

bool ApplyMove(Context& context, const kvguard_event& event) {
  Mirror& mirror = *context.mirror;
  bool followed = true;
  if (event.kind == KVGUARD_EVENT_REMAP) {
    followed = ApplyRemap(context, event);
  } else if (!context.layout().has_cells) {
    return false;
  } else {
    const Group& group = context.layout().groups[event.group];
    Request& request = mirror.at(mirror.Find(event.request));
    if (event.kind == KVGUARD_EVENT_ERASE) {
      mirror.Erase(&request, group, event.first, event.count, context.step);
    } else {
      mirror.Rebase(&request, group, event.first, event.count, event.value, context.step);
    }
  }
  if (followed) {
    context.coverage->Add(event.group, 0, 0, KVGUARD_FAMILY_BINDING,
                          std::max<uint64_t>(1, event.num_blocks / 2));
  }
  return followed;
}

}  // namespace kvguard::rules
