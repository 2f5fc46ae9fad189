// SPDX-License-Identifier: Apache-2.0
// Family copy: what the worker zeroes and copies before the forward.
#include <algorithm>
#include <utility>
#include <vector>

#include "rules/context.h"

namespace kvguard::rules {
namespace {

using geometry::Group;
using mirror::Announced;
using mirror::kNoRequest;
using mirror::Request;

// Whether the block was bound as fresh in this step.
bool NewInStep(const mirror::Block& block, uint64_t step) {
  return block.since_step == step && (block.owner != 0 || block.last_owner != 0);
}

}  // namespace

void JudgeCopyTarget(Context& context, const Group& group, int64_t target) {
  if (group.IsState()) return;  // states move within their request's row
  const mirror::Mirror& mirror = *context.mirror;
  uint64_t holder = 0;
  if (target != context.layout().PoolOf(group).null_block) {
    const mirror::Block& b = mirror.BlockOf(group, target);
    if (b.claims == 0 || NewInStep(b, context.step)) return;
    const uint32_t index =
        mirror.FindClaim(group, target, [](const Request&, const Group&, int64_t) { return true; });
    if (index == kNoRequest) return;
    holder = mirror.at(index).key;
  }
  kvguard_finding& finding = Emit(context, kCopyTargetHeld);
  finding.request = holder;
  finding.group = group.id;
  SetValues(finding, KVGUARD_NONE, target);
}

namespace {

// Whether a load that was announced before this step still fills the block. Those of the step
// itself may be waited for in its forward.
bool LoadingSinceBefore(const Context& context, const Group& group, int64_t block) {
  const auto& open = context.mirror->transfers().open();
  return std::any_of(open.begin(), open.end(), [&](const auto& entry) {
    const mirror::Transfer& transfer = entry.second;
    return transfer.kind == mirror::TransferKind::kLoad && transfer.since < context.step &&
           context.layout().groups[transfer.group].pool == group.pool &&
           std::find(transfer.blocks.begin(), transfer.blocks.end(), block) !=
               transfer.blocks.end();
  });
}

// The first announced block that the row uses and that is not done: one finding.
void JudgeUse(Context& context, const Announced& announced, uint32_t code, const Group& group,
              uint64_t b) {
  if (group.IsState() || !IsJudgedIn(context.plan->pass, group)) return;
  const RowState& row = (*context.rows)[b];
  const mirror::Mirror& mirror = *context.mirror;
  const Request& request = mirror.at(row.request);
  const int64_t end =
      std::min(mirror.BoundBlocks(request, group),
               geometry::BlocksFor(group.Kept(row.start + row.num_tokens), group.block_size));
  for (int64_t column = 0; column < end; ++column) {
    if (!group.Needs(column, row.start)) continue;
    const int64_t block = mirror.BlockAt(request, group, column);
    if (!announced.IsOpen(group.pool, block)) continue;
    kvguard_finding& finding = EmitRow(context, code, b, group.id);
    finding.pos = column * group.block_size;
    if (column >= group.SinkColumns())
      finding.pos = std::max(finding.pos, group.FirstNeeded(row.start));
    SetValues(finding, KVGUARD_NONE, block);
    return;
  }
}

// Whether a copy of this record fills the block behind its zeroing.
bool IsCopied(const mirror::Mirror& mirror, const Announced::Entry& zero) {
  const auto& copies = mirror.copying().entries();
  return std::any_of(copies.begin(), copies.end(), [&zero](const Announced::Entry& copy) {
    return copy.pool == zero.pool && copy.block == zero.block;
  });
}

// A block that is zeroed before it is copied from.
void JudgeSources(Context& context) {
  const auto& zeroing = context.mirror->zeroing().entries();
  const auto& copying = context.mirror->copying().entries();
  if (zeroing.empty() || copying.empty()) return;
  std::vector<std::pair<uint32_t, int64_t>> zeroed;
  zeroed.reserve(zeroing.size());
  for (const Announced::Entry& zero : zeroing) zeroed.emplace_back(zero.pool, zero.block);
  std::sort(zeroed.begin(), zeroed.end());
  for (const Announced::Entry& copy : copying) {
    if (!std::binary_search(zeroed.begin(), zeroed.end(), std::pair(copy.pool, copy.source)))
      continue;
    kvguard_finding& finding = Emit(context, kCopySourceZeroed);
    finding.group = copy.group;
    SetValues(finding, KVGUARD_NONE, copy.source);
  }
}

}  // namespace

void ApplyCopy(Context& context, const kvguard_event& event) {
  mirror::Mirror& mirror = *context.mirror;
  const Group& group = context.layout().groups[event.group];
  const bool pairs = event.kind == KVGUARD_EVENT_COPY || event.kind == KVGUARD_EVENT_COPY_DONE;
  const bool done = event.kind == KVGUARD_EVENT_ZERO_DONE || event.kind == KVGUARD_EVENT_COPY_DONE;
  Announced& announced = pairs ? mirror.copying() : mirror.zeroing();
  if (done) announced.set_says_done(true);
  JudgeEventBlocks(context, event, group);
  for (uint64_t i = 0; i < event.num_blocks; i += pairs ? 2 : 1) {
    const int64_t source = pairs ? event.blocks[i] : KVGUARD_NONE;
    const int64_t block = pairs ? event.blocks[i + 1] : event.blocks[i];
    const Announced::Entry entry = {event.group, group.pool, block, source, done};
    // A copy brings a state of as many tokens as its source's; that is not followed.
    if (pairs && mirror.InPool(group, block)) {
      mirror::Block& b = mirror.TouchBlock(group, block);
      b.state_tokens = 0;
      b.ever_filled = b.ever_filled || !done;
    }
    if (done && pairs && group.IsState()) mirror.AddStateCopy({group.id, source, block});
    if (done) {
      announced.Done(entry);
      continue;
    }
    announced.Add(entry);
    if (pairs && mirror.InPool(group, block)) JudgeCopyTarget(context, group, block);
  }
  context.coverage->Add(event.group, 0, 0, KVGUARD_FAMILY_COPY, event.num_blocks);
}

void JudgeZeroing(Context& context) {
  const mirror::Mirror& mirror = *context.mirror;
  const auto& zeroing = context.mirror->zeroing().entries();
  for (const Announced::Entry& entry : zeroing) {
    const Group& group = context.layout().groups[entry.group];
    if (group.IsState() || group.IsCross() || group.on_host || !mirror.InPool(group, entry.block) ||
        entry.block == context.layout().PoolOf(group).null_block) {
      continue;
    }
    const mirror::Block& b = mirror.BlockOf(group, entry.block);
    const bool fresh = NewInStep(b, context.step);
    if (b.claims == 0 || (fresh && (!b.keeps_load || IsCopied(mirror, entry)))) continue;
    const auto live = [&](const Request& request, const Group& other, int64_t column) {
      if (other.IsState() || other.IsCross()) return false;
      // What a load had filled for the very column that it is bound in now.
      if (fresh && (request.key != b.owner || !mirror::Mirror::IsAtHome(b, other.id, column)))
        return false;
      const int64_t valid =
          mirror.IsScheduled(request) ? request.start_low : request.frontier.valid_low;
      return column * other.block_size < other.Kept(valid);
    };
    const uint32_t index = mirror.FindClaim(group, entry.block, live);
    if (index == kNoRequest) continue;
    int64_t position = INT64_MAX;  // the first token, over all groups of the pool
    (void)mirror.HasClaim(mirror.at(index), group, entry.block,
                          [&](const Request& request, const Group& other, int64_t column) {
                            if (live(request, other, column))
                              position = std::min(position, column * other.block_size);
                            return false;
                          });
    kvguard_finding& finding = Emit(context, kZeroLive);
    finding.request = mirror.at(index).key;
    finding.group = group.id;
    finding.pos = position;
    SetValues(finding, KVGUARD_NONE, entry.block);
  }
  JudgeSources(context);
}

void JudgeUseBeforeDone(Context& context) {
  const Announced& zeroing = context.mirror->zeroing();
  const Announced& copying = context.mirror->copying();
  const bool zero = zeroing.AnyOpen();
  const bool copy = copying.AnyOpen();
  const bool loading = context.mirror->AnyLoading();
  if (!zero && !copy && !loading) return;
  const mirror::Mirror& mirror = *context.mirror;
  for (uint64_t b = 0; b < context.plan->num_rows; ++b) {
    const RowState& row = (*context.rows)[b];
    if (row.request == kNoRequest || !row.tokens_usable || row.num_tokens == 0 ||
        row.start == KVGUARD_NONE) {
      continue;
    }
    const Request& request = mirror.at(row.request);
    for (const Group& group : context.layout().groups) {
      const bool read = loading && !group.IsState() && IsJudgedIn(context.plan->pass, group);
      const int64_t end =
          read ? std::min(mirror.BoundBlocks(request, group),
                          geometry::BlocksFor(group.Kept(row.start), group.block_size))
               : 0;
      for (int64_t column = 0; column < end; ++column) {
        const int64_t block = mirror.BlockAt(request, group, column);
        if (!group.Needs(column, row.start) || !mirror.InPool(group, block) ||
            mirror.BlockOf(group, block).loading == 0 ||
            !LoadingSinceBefore(context, group, block)) {
          continue;
        }
        kvguard_finding& finding = EmitRow(context, kReadWhileLoading, b, group.id);
        finding.pos = column * group.block_size;
        if (column >= group.SinkColumns())
          finding.pos = std::max(finding.pos, group.FirstNeeded(row.start));
        SetValues(finding, KVGUARD_NONE, block);
        break;
      }
      if (zero) JudgeUse(context, zeroing, kUsedBeforeZeroed, group, b);
      if (copy) JudgeUse(context, copying, kUsedBeforeCopied, group, b);
    }
  }
}

void JudgeAnnouncedAtEnd(Context& context) {
  for (const Announced* announced : {&context.mirror->zeroing(), &context.mirror->copying()}) {
    if (!announced->AnyOpen()) continue;
    for (const Group& group : context.layout().groups) {
      const auto& entries = announced->entries();
      const auto lost = [&](const Announced::Entry& e) { return !e.done && e.group == group.id; };
      const auto first = std::find_if(entries.begin(), entries.end(), lost);
      if (first == entries.end()) continue;
      kvguard_finding& finding = Emit(context, kCopyLost);
      finding.group = group.id;
      finding.count = static_cast<uint64_t>(std::count_if(entries.begin(), entries.end(), lost));
      SetValues(finding, KVGUARD_NONE, first->block);
    }
  }
}

}  // namespace kvguard::rules
