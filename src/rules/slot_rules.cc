// SPDX-License-Identifier: Apache-2.0
// Family slot: where each token's KV is written. Large rows are compared by runs of one block, so
// that a long prefill costs one division a block, not one a token.
#include <algorithm>
#include <tuple>
#include <vector>

#include "geometry/equal.h"
#include "rules/context.h"

namespace kvguard::rules {
namespace {

using geometry::Group;

size_t MatchSlots(const step::Ints& slots, uint64_t first, size_t n, int64_t expected) {
  return slots.wide() ? geometry::MatchRun(slots.i64() + first, n, expected)
                      : geometry::MatchRun(slots.i32() + first, n, expected);
}

// Whether every write slot of the row is what its bound entries give, in one comparison. No where a
// bound id has no entry: BlockByBlock leaves such a block out.
bool WholeRowMatches(const Context& context, const Group& group, const step::Ints& slots,
                     const RowState& row) {
  const std::vector<int32_t>& entries = context.mirror->at(row.request).rows[group.id].entries;
  const auto per_entry = static_cast<size_t>(group.TokensPerEntry());
  const auto start = static_cast<size_t>(row.start);
  const auto n = static_cast<size_t>(row.num_tokens);
  const size_t column = start / per_entry;
  const size_t offset = start - column * per_entry;
  const size_t columns = offset + n <= per_entry ? 1 : (offset + n + per_entry - 1) / per_entry;
  if (column >= entries.size() || columns > entries.size() - column) return false;
  const int32_t* from = entries.data() + column;
  const uint64_t first = row.first_token;
  const size_t good = slots.wide()
                          ? geometry::MatchBlocks(slots.i64() + first, n, from, offset, per_entry)
                          : geometry::MatchBlocks(slots.i32() + first, n, from, offset, per_entry);
  return good == n;
}

// The same, where the whole row does not match.
bool BlockByBlock(const Context& context, const Group& group, const step::Ints& slots,
                  const RowState& row) {
  const mirror::Request& request = context.mirror->at(row.request);
  const int64_t bound = context.mirror->BoundBlocks(request, group);
  const int64_t block_size = group.block_size;
  int64_t column = row.start / block_size;
  int64_t offset = row.start - column * block_size;
  for (int64_t i = 0; i < row.num_tokens; ++column, offset = 0) {
    if (column >= bound) return false;
    const int64_t n = std::min(block_size - offset, row.num_tokens - i);
    const int64_t block = context.mirror->BlockAt(request, group, column);
    if (block < 0 && group.cells) return false;
    if (block >= 0) {  // else ExpectedSlot gives kNotJudged
      const auto first = row.first_token + static_cast<uint64_t>(i);
      if (MatchSlots(slots, first, static_cast<size_t>(n),
                     group.SlotOf(block, column * block_size + offset)) != static_cast<size_t>(n)) {
        return false;
      }
    }
    i += n;
  }
  return true;
}

// A sharded group: runs of `interleave` slots, and pad slots between them.
bool TokenByToken(const Context& context, const Group& group, const step::Ints& slots,
                  const RowState& row) {
  const mirror::Request& request = context.mirror->at(row.request);
  const int64_t bound = context.mirror->BoundBlocks(request, group);
  const int64_t pad = context.layout().pad_slot;
  int64_t column = row.start / group.block_size;
  int64_t within = row.start - column * group.block_size;
  const auto block_of = [&] {
    return column < bound ? context.mirror->BlockAt(request, group, column) : KVGUARD_NONE;
  };
  int64_t block = block_of();
  int64_t turn = within / group.interleave % group.ranks;  // whose run it is
  int64_t left = group.interleave - within % group.interleave;
  int64_t slot = block * group.slots_per_block +
                 within / (group.interleave * group.ranks) * group.interleave +
                 (turn == group.rank  ? within % group.interleave
                  : turn > group.rank ? group.interleave
                                      : 0);
  for (int64_t i = 0; i < row.num_tokens; ++i) {
    const int64_t shown = slots[row.first_token + static_cast<uint64_t>(i)];
    if (turn != group.rank) {
      if (shown != pad) return false;
    } else {
      if (column >= bound || (block >= 0 && shown != slot)) return false;
      ++slot;
    }
    if (--left == 0) {
      left = group.interleave;
      if (++turn == group.ranks) turn = 0;
    }
    if (++within == group.block_size) {
      within = 0;
      ++column;
      block = block_of();
      slot = block * group.slots_per_block;
    }
  }
  return true;
}

// The first tokens of a step that is longer than its ring are written over by the last ones.
bool IsClipped(const Group& group, const RowState& row, int64_t i) {
  return group.IsRing() && i + group.ring < row.num_tokens;
}

// Where such a token goes: nowhere, or where nothing is read.
bool IsThrownAway(const Context& context, const Group& group, int64_t slot) {
  return slot == context.layout().pad_slot ||
         (slot != KVGUARD_NONE && slot == context.layout().PoolOf(group).write_trash);
}

// Token by token: rings, and slots that are not one behind the other.
bool EachMatches(const Context& context, const Group& group, const step::Ints& slots,
                 const RowState& row) {
  const mirror::Request& request = context.mirror->at(row.request);
  for (int64_t i = 0; i < row.num_tokens; ++i) {
    const int64_t shown = slots[row.first_token + static_cast<uint64_t>(i)];
    const bool right =
        IsClipped(group, row, i)
            ? IsThrownAway(context, group, shown)
            : IsRightSlot(ExpectedSlot(context, request, group, row.start + i), shown, true);
    if (!right) return false;
  }
  return true;
}

bool RowMatches(const Context& context, const Group& group, const step::Ints& slots,
                const RowState& row) {
  if (!group.plain) {
    if (group.IsSharded()) return TokenByToken(context, group, slots, row);
    if (group.IsRing() || group.token_stride > 1) return EachMatches(context, group, slots, row);
    if (group.IsScaled() || group.cells) return BlockByBlock(context, group, slots, row);
  }
  return WholeRowMatches(context, group, slots, row) || BlockByBlock(context, group, slots, row);
}

// One finding for each kind of wrong slot in the row, at its first token.
void Diagnose(Context& context, uint64_t b, const Group& group, const step::Ints& slots,
              const RowState& row) {
  const mirror::Request& request = context.mirror->at(row.request);
  for (const uint32_t code :
       {kSlotNotLocal, kSlotMismatch, kSlotNullBlock, kSlotPad, kSlotOutOfRange}) {
    if (code == kSlotNotLocal && !group.IsSharded()) continue;
    kvguard_finding* finding = nullptr;
    for (int64_t i = 0; i < row.num_tokens; ++i) {
      const bool local = group.IsLocal(row.start + i);
      int64_t expected = ExpectedSlot(context, request, group, row.start + i);
      const int64_t observed = slots[row.first_token + static_cast<uint64_t>(i)];
      if (IsClipped(group, row, i)) {
        if (code != kSlotMismatch || IsThrownAway(context, group, observed)) continue;
        const int64_t trash = context.layout().PoolOf(group).write_trash;
        expected = trash == KVGUARD_NONE ? context.layout().pad_slot : trash;
      } else if (IsRightSlot(expected, observed, local) ||
                 CodeForSlot(context, group, observed, local) != code) {
        continue;
      }
      if (finding == nullptr) {
        finding = &EmitRow(context, code, b, group.id);
        finding->pos = row.start + i;
        SetValues(*finding, expected, observed);
        finding->count = 0;
      }
      ++finding->count;
    }
    if (finding == nullptr || (code != kSlotMismatch && code != kSlotNotLocal)) continue;
    if (!group.IsSlot(finding->observed)) continue;
    const int64_t block = group.BlockOfSlot(finding->observed);
    if (block != context.layout().PoolOf(group).null_block)
      SetVictim(context, *finding, group, block, request.key);
  }
}

// Two tokens of the plan on one slot. With every slot as expected and one writer a block there can
// be none, so this is looked at only when something else is wrong already.
void JudgeDoubles(Context& context, const step::GroupPlanView& group) {
  struct Write {
    int64_t slot;
    uint64_t row;
    int64_t position;
  };
  std::vector<Write> writes;
  const int64_t pad = context.layout().pad_slot;
  for (uint64_t b = 0; b < context.rows->size(); ++b) {
    const RowState& row = (*context.rows)[b];
    if (row.request == mirror::kNoRequest || !row.tokens_usable) continue;
    for (int64_t i = 0; i < row.num_tokens; ++i) {
      const int64_t slot = group.slots[row.first_token + static_cast<uint64_t>(i)];
      if (slot != pad && !IsThrownAway(context, *group.group, slot))
        writes.push_back({slot, b, row.start + i});
    }
  }
  std::sort(writes.begin(), writes.end(), [](const Write& a, const Write& c) {
    return std::tie(a.slot, a.row, a.position) < std::tie(c.slot, c.row, c.position);
  });
  for (size_t i = 0; i + 1 < writes.size();) {
    size_t j = i + 1;
    while (j < writes.size() && writes[j].slot == writes[i].slot) ++j;
    if (j > i + 1) {
      kvguard_finding& finding =
          EmitRow(context, kSlotWrittenTwice, writes[i + 1].row, group.group->id);
      finding.pos = writes[i + 1].position;
      SetValues(finding, KVGUARD_NONE, writes[i].slot);
      finding.count = j - i - 1;
      const uint64_t other = context.plan->requests[writes[i].row];
      if (other != finding.request) {
        finding.victim = other;
        finding.victim_first = finding.victim_last = writes[i].position;
        finding.flags |= KVGUARD_FINDING_HAS_VICTIM;
      }
      return;  // one finding says it; the slots themselves are findings already
    }
    i = j;
  }
}

void JudgePads(Context& context, const step::GroupPlanView& group, uint64_t* judged) {
  const step::PlanView& plan = *context.plan;
  const Group& g = *group.group;
  const uint64_t end = std::min(plan.padded_tokens, group.slots.count);
  if (end > plan.num_tokens) {
    const size_t n = end - plan.num_tokens;
    const int64_t pad = context.layout().pad_slot;
    const size_t good = MatchPads(context, group, plan.num_tokens, n);
    if (good < n) {
      kvguard_finding& finding = Emit(context, kPadSlotReal);
      finding.group = g.id;
      finding.pos = static_cast<int64_t>(plan.num_tokens + good);
      SetValues(finding, pad, group.slots[plan.num_tokens + good]);
      const int64_t slot = finding.observed;
      if (g.IsSlot(slot)) SetVictim(context, finding, g, g.BlockOfSlot(slot), 0);
    }
    *judged += n;
  }
}

// A draft pass may leave out what was rejected, stops at the model's length, and may stand beyond
// what is bound (mrv2.md 6.2, trap 14). True if some token of the row is wrong.
bool DiagnoseDraft(Context& context, uint64_t b, const Group& group, const step::Ints& slots,
                   const RowState& row) {
  const mirror::Request& request = context.mirror->at(row.request);
  const int64_t most = context.layout().max_model_len;
  bool wrong = false;
  const auto each = [&](uint32_t code, bool beyond) {
    kvguard_finding* finding = nullptr;
    for (int64_t i = 0; i < row.num_tokens; ++i) {
      const int64_t position = row.start + i;
      if (most > 0 && position >= most) break;
      const int64_t observed = slots[row.first_token + static_cast<uint64_t>(i)];
      if (IsThrownAway(context, group, observed)) continue;
      const bool local = group.IsLocal(position);
      const int64_t expected = ExpectedSlot(context, request, group, position);
      const bool unbound = local && expected == KVGUARD_NONE;
      if (unbound != beyond || IsRightSlot(expected, observed, local)) continue;
      if (!beyond && CodeForSlot(context, group, observed, local) != code) continue;
      wrong = true;
      if (finding == nullptr) {
        finding =
            &EmitRow(context, code, b, group.id, beyond ? uint32_t{KVGUARD_GRADE_SUSPICION} : 0u);
        finding->pos = position;
        SetValues(*finding, expected, observed);
        finding->count = 0;
        const bool real = group.IsSlot(observed);
        if (real && (code == kSlotMismatch || code == kSlotNotLocal))
          SetVictim(context, *finding, group, group.BlockOfSlot(observed), request.key);
      }
      ++finding->count;
    }
  };
  for (const uint32_t code : {kSlotNotLocal, kSlotMismatch, kSlotNullBlock, kSlotOutOfRange})
    each(code, false);
  each(kSlotMismatch, true);
  return wrong;
}

void JudgeDraftSlots(Context& context, const step::GroupPlanView& group) {
  const step::PlanView& plan = *context.plan;
  uint64_t judged = 0;
  for (uint64_t b = 0; b < plan.num_rows; ++b) {
    const RowState& row = (*context.rows)[b];
    if (row.request == mirror::kNoRequest || !row.tokens_usable || row.start == KVGUARD_NONE)
      continue;
    judged += static_cast<uint64_t>(row.num_tokens);
    if (row.num_tokens == 0 || RowMatches(context, *group.group, group.slots, row)) continue;
    if (DiagnoseDraft(context, b, *group.group, group.slots, row))
      JudgeForeignWrites(context, group, b);
  }
  JudgePads(context, group, &judged);
  context.counters->slots += judged;
  context.coverage->Add(group.group->id, plan.pass, plan.stage, KVGUARD_FAMILY_SLOT, judged);
}

}  // namespace

// The slot that a position has, or KVGUARD_NONE where nothing is bound for it, or kNotJudged. Of a
// position of another rank: the pad slot, whatever is bound.
int64_t ExpectedSlot(const Context& context, const mirror::Request& request, const Group& group,
                     int64_t position) {
  if (!group.IsLocal(position)) return context.layout().pad_slot;
  const int64_t column = group.ColumnOf(position);
  if (column >= context.mirror->BoundBlocks(request, group)) return KVGUARD_NONE;
  const int64_t block = context.mirror->BlockAt(request, group, column);
  if (block < 0 && group.cells) return KVGUARD_NONE;  // a hole
  return block < 0 ? kNotJudged : group.SlotOf(block, position);
}

// A position that is not bound has no right slot; one of another rank needs no binding.
bool IsRightSlot(int64_t expected, int64_t observed, bool here) {
  // An engine's pad slot may be any number, those that mean something else here included.
  if (!here) return expected == observed;
  return expected == kNotJudged || (expected == observed && expected != KVGUARD_NONE);
}

// Of a wrong slot. local: whether the token's position is this rank's.
uint32_t CodeForSlot(const Context& context, const Group& group, int64_t slot, bool here) {
  if (slot == context.layout().pad_slot) return kSlotPad;
  const int64_t trash = context.layout().PoolOf(group).write_trash;
  if (trash != KVGUARD_NONE && slot == trash) return kSlotPad;
  if (!group.IsSlot(slot)) return kSlotOutOfRange;
  if (!here) return kSlotNotLocal;
  if (group.BlockOfSlot(slot) == context.layout().PoolOf(group).null_block) return kSlotNullBlock;
  return kSlotMismatch;
}

size_t MatchPads(const Context& context, const step::GroupPlanView& group, uint64_t first,
                 size_t n) {
  const int64_t pad = context.layout().pad_slot;
  const auto match = [&](uint64_t from, size_t count, int64_t value) {
    return group.slots.wide() ? geometry::MatchValue(group.slots.i64() + from, count, value)
                              : geometry::MatchValue(group.slots.i32() + from, count, value);
  };
  size_t good = match(first, n, pad);
  const int64_t trash = context.layout().PoolOf(*group.group).write_trash;
  if (trash == KVGUARD_NONE) return good;
  while (good < n && (group.slots[first + good] == trash || group.slots[first + good] == pad))
    ++good;
  return good;
}

void JudgeSlots(Context& context, const step::GroupPlanView& group) {
  // An engine may compute slots of states like any other; nothing is written there (mrv2.md 3.5).
  if (!group.slots.present() || group.group->IsState()) return;
  if (context.layout().pcp_size > 1) return JudgeParallelSlots(context, group);
  if (context.plan->pass == KVGUARD_PASS_DRAFT) return JudgeDraftSlots(context, group);
  const step::PlanView& plan = *context.plan;
  const Group& g = *group.group;
  uint64_t judged = 0;
  bool wrong = false;
  for (uint64_t b = 0; b < plan.num_rows; ++b) {
    const RowState& row = (*context.rows)[b];
    if (row.request == mirror::kNoRequest || !row.tokens_usable || row.start == KVGUARD_NONE)
      continue;
    judged += static_cast<uint64_t>(row.num_tokens);
    if (row.num_tokens == 0 || RowMatches(context, g, group.slots, row)) continue;
    wrong = true;
    Diagnose(context, b, g, group.slots, row);
    JudgeForeignWrites(context, group, b);
  }
  if (wrong) JudgeDoubles(context, group);
  JudgePads(context, group, &judged);
  context.counters->slots += judged;
  context.coverage->Add(g.id, plan.pass, plan.stage, KVGUARD_FAMILY_SLOT, judged);
}

}  // namespace kvguard::rules
