// SPDX-License-Identifier: Apache-2.0
// Family ownership: a block has one writing owner, over all groups of its pool.
#include <algorithm>

#include "rules/context.h"

namespace kvguard::rules {
namespace {

using geometry::Group;

// With a connector blocks change hands in ways the stream does not show (mrv2.md 6.2, traps 7, 8,
// 10, 11).
uint32_t OwnershipGrade(const Context& context) {
  return context.layout().Has(KVGUARD_ENGINE_CONNECTOR) ? KVGUARD_GRADE_SUSPICION
                                                        : KVGUARD_GRADE_PROOF;
}

}  // namespace

bool IsRecomputed(const Context& context, const mirror::Request& request, const Group& group,
                  int64_t column) {
  return !group.IsState() && request.rows[group.id].IsHitOf(context.step, column) &&
         request.admitted_step == context.step && request.start_low == request.known - 1 &&
         (column + 1) * group.block_size <= request.known;
}

void JudgeFreshOwner(Context& context, const mirror::Request& request, const Group& group,
                     int64_t column, int64_t block) {
  if (context.layout().forgets) {
    context.mirror->Lapse(group, block, context.step);
    const mirror::Block& b = context.mirror->BlockOf(group, block);
    if (mirror::Mirror::EarlierClaims(b, context.step) == 0) return;
  }
  // What a running request is given comes from the free blocks, connector or not.
  const bool running = context.appending && request.admitted_step != context.step;
  kvguard_finding& finding =
      Emit(context, kBlockOwned, running ? uint32_t{KVGUARD_GRADE_PROOF} : OwnershipGrade(context));
  finding.request = request.key;
  finding.group = group.id;
  finding.pos = column;
  SetValues(finding, KVGUARD_NONE, block);
  SetVictim(context, finding, group, block, request.key);
}

void JudgeWriters(Context& context, const mirror::Request& request) {
  for (const Group& group : context.layout().groups) {
    const int64_t bound = context.mirror->BoundBlocks(request, group);
    const Group::Columns written = mirror::Mirror::WrittenBy(request, group);
    const int64_t last = std::min(bound - 1, written.last);
    for (int64_t column = written.first; column <= last; ++column) {
      if (!group.plain && written.Skips(column)) continue;
      const int64_t block = context.mirror->BlockAt(request, group, column);
      if (!context.mirror->InPool(group, block) ||
          block == context.layout().PoolOf(group).null_block ||
          (!group.plain && !context.mirror->IsClaimed(request, group, column))) {
        continue;
      }
      if (IsRecomputed(context, request, group, column)) continue;
      mirror::Block& b = context.mirror->TouchBlock(group, block);
      if (b.write_step == context.step && b.writer != 0 && b.writer != request.key) {
        kvguard_finding& finding = Emit(context, kTwoWriters, OwnershipGrade(context));
        finding.request = request.key;
        finding.group = group.id;
        finding.pos = column * group.block_size;
        SetValues(finding, KVGUARD_NONE, block);
        SetVictim(context, finding, group, block,
                  context.mirror->HoldingOf(context.mirror->Find(b.writer), group, block));
      }
      b.write_step = context.step;
      b.writer = request.key;
    }
  }
}

void JudgeForeignWrites(Context& context, const step::GroupPlanView& view, uint64_t row_index) {
  const Group& group = *view.group;
  const RowState& row = (*context.rows)[row_index];
  const mirror::Request& request = context.mirror->at(row.request);
  const int64_t null_block = context.layout().PoolOf(group).null_block;
  const int64_t write_trash = context.layout().PoolOf(group).write_trash;
  constexpr size_t kMostVictims = 8;
  size_t victims = 0;
  int64_t previous_block = KVGUARD_NONE;
  mirror::Holding holding;
  kvguard_finding* finding = nullptr;
  int64_t tokens = row.num_tokens;
  if (context.plan->pass == KVGUARD_PASS_DRAFT && context.layout().max_model_len > 0)
    tokens = std::min(tokens, context.layout().max_model_len - row.start);
  for (int64_t i = 0; i < tokens && victims <= kMostVictims; ++i) {
    const int64_t slot = view.slots[row.first_token + static_cast<uint64_t>(i)];
    const bool real = group.IsSlot(slot);
    const int64_t block = real ? group.BlockOfSlot(slot) : KVGUARD_NONE;
    if (!real || block == null_block || slot == write_trash) {
      previous_block = KVGUARD_NONE;  // ends a run
      continue;
    }
    const int64_t offset = group.WithinColumn(slot);
    if (block != previous_block) {
      previous_block = block;
      finding = nullptr;
      holding = context.mirror->Holder(group, block, request.key);
      if (holding.request == mirror::kNoRequest) continue;
      // The row's own block, shared as a prefix: whether it may be rewritten is not an address
      // question.
      const int64_t column = group.ColumnOf(row.start + i);
      if (column < context.mirror->BoundBlocks(request, group) &&
          context.mirror->BlockAt(request, group, column) == block) {
        continue;
      }
      if (++victims > kMostVictims) return;
      finding = &EmitRow(context, kForeignWrite, row_index, group.id);
      SetVictim(context, *finding, group, block, holding);
      finding->pos = row.start + i;
      SetValues(*finding, KVGUARD_NONE, slot);
      finding->count = 0;
      finding->victim_first = INT64_MAX;
      finding->victim_last = 0;
    }
    if (finding == nullptr) continue;
    ++finding->count;
    // The same bytes of the block, in the tokens of whoever holds it.
    const int64_t token = holding.first + offset * holding.block_size / group.block_size;
    finding->victim_first = std::min(finding->victim_first, token);
    finding->victim_last = std::max(finding->victim_last, token);
  }
}

}  // namespace kvguard::rules
