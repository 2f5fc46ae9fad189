// SPDX-License-Identifier: Apache-2.0
// Family slot under prefill context parallelism: a plan's slots are those of all ranks, one rank
// behind the other (mrv2.md 3.8).
#include <algorithm>
#include <tuple>

#include "rules/context.h"

namespace kvguard::rules {
namespace {

using geometry::Group;

// Consecutive tokens of a row, on one rank.
struct Piece {
  uint64_t row = 0;
  int64_t first = 0;  // token of the row
  int64_t last = 0;   // exclusive
  bool written = true;
};

// What each rank gets of the plan's batch.
class Shares {
 public:
  explicit Shares(const Context& context) : context_(context), layout_(context.layout()) {
    pieces_.resize(static_cast<size_t>(layout_.pcp_size));
    int64_t decodes = 0;
    for (uint64_t b = 0; b < context.rows->size(); ++b) {
      const RowState& row = (*context.rows)[b];
      if (row.num_tokens == 0) continue;
      Share(b, row, decodes);
      if (!IsPrefilling(b)) ++decodes;
    }
    for (auto& pieces : pieces_) Order(pieces);
  }

  const std::vector<Piece>& of(size_t rank) const { return pieces_[rank]; }

 private:
  bool IsPrefilling(uint64_t b) const {
    const RowState& row = (*context_.rows)[b];
    return row.start < context_.mirror->at(row.request).known;
  }

  void Share(uint64_t b, const RowState& row, int64_t decodes) {
    const int64_t n = layout_.pcp_size;
    const int64_t q = row.num_tokens;
    const int64_t chunk = (q + 2 * n - 1) / (2 * n);
    const bool leaves_one_empty = (2 * n - 1) * chunk >= q;
    const bool is_sharded = layout_.dcp_size > 1;
    if (IsPrefilling(b) && !(layout_.pcp_layout > 1 && is_sharded && leaves_one_empty)) {
      for (int64_t rank = 0; rank < n; ++rank) {
        for (const int64_t k : {rank, 2 * n - 1 - rank}) {
          const Piece piece = {b, k * chunk, std::min((k + 1) * chunk, q), true};
          if (piece.first < piece.last) pieces_[static_cast<size_t>(rank)].push_back(piece);
        }
      }
    } else if (layout_.pcp_layout == 3 && !is_sharded && !IsPrefilling(b)) {
      pieces_[static_cast<size_t>(decodes % n)].push_back({b, 0, q, true});
    } else {
      for (int64_t rank = 0; rank < n; ++rank)
        pieces_[static_cast<size_t>(rank)].push_back({b, 0, q, rank == 0});
    }
  }

  void Order(std::vector<Piece>& pieces) const {
    if (layout_.pcp_layout == 1) {
      std::stable_partition(pieces.begin(), pieces.end(), [&](const Piece& piece) {
        return (*context_.rows)[piece.row].start + piece.first > 0;
      });
      return;
    }
    std::stable_sort(pieces.begin(), pieces.end(), [&](const Piece& a, const Piece& b) {
      return std::tuple(IsPrefilling(a.row), a.row, a.first) <
             std::tuple(IsPrefilling(b.row), b.row, b.first);
    });
  }

  const Context& context_;
  const geometry::Layout& layout_;
  std::vector<std::vector<Piece>> pieces_;  // by rank
};

// What is wrong with one row so far.
struct RowFindings {
  bool said[5] = {};
  bool foreign = false;
};
constexpr uint32_t kCodes[5] = {kSlotMismatch, kSlotNullBlock, kSlotPad, kSlotOutOfRange,
                                kSlotNotLocal};

class Judge {
 public:
  Judge(Context& context, const step::GroupPlanView& view)
      : context_(context), group_(*view.group), slots_(view.slots), rows_(context.rows->size()) {}

  uint64_t Run() {
    const auto ranks = static_cast<uint64_t>(context_.layout().pcp_size);
    const uint64_t slab = slots_.count / ranks;
    const Shares shares(context_);
    for (uint64_t rank = 0; rank < ranks; ++rank) {
      uint64_t at = 0;
      for (const Piece& piece : shares.of(rank)) {
        for (int64_t i = piece.first; i < piece.last; ++i, ++at) {
          if (at < slab) {
            Token(piece, i, slots_[rank * slab + at]);
          } else {
            Say(piece.row, i, kSlotPad, ExpectedOf(piece, i), KVGUARD_NONE);
          }
        }
      }
      for (; at < slab; ++at) Pad(rank * slab + at);
    }
    return slots_.count;
  }

 private:
  const RowState& RowOf(uint64_t b) const { return (*context_.rows)[b]; }

  int64_t ExpectedOf(const Piece& piece, int64_t i) const {
    const int64_t position = RowOf(piece.row).start + i;
    if (!piece.written || !group_.IsLocal(position)) return context_.layout().pad_slot;
    return ExpectedSlot(context_, context_.mirror->at(RowOf(piece.row).request), group_, position);
  }

  void Token(const Piece& piece, int64_t i, int64_t shown) {
    const int64_t position = RowOf(piece.row).start + i;
    const bool here = piece.written && group_.IsLocal(position);
    const int64_t expected = ExpectedOf(piece, i);
    if (IsRightSlot(expected, shown, here)) return;
    Say(piece.row, i, CodeForSlot(context_, group_, shown, here), expected, shown);
    Foreign(piece.row, i, shown);
  }

  void Say(uint64_t b, int64_t i, uint32_t code, int64_t expected, int64_t shown) {
    const size_t which = static_cast<size_t>(std::find(kCodes, kCodes + 5, code) - kCodes);
    if (rows_[b].said[which]) return;
    rows_[b].said[which] = true;
    kvguard_finding& finding = EmitRow(context_, code, b, group_.id);
    finding.pos = RowOf(b).start + i;
    SetValues(finding, expected, shown);
    if (code == kSlotMismatch || code == kSlotNotLocal)
      SetVictim(context_, finding, group_, group_.BlockOfSlot(shown), finding.request);
  }

  void Foreign(uint64_t b, int64_t i, int64_t shown) {
    if (rows_[b].foreign || !group_.IsSlot(shown)) return;
    const int64_t block = group_.BlockOfSlot(shown);
    if (block == context_.layout().PoolOf(group_).null_block) return;
    const mirror::Request& request = context_.mirror->at(RowOf(b).request);
    const int64_t position = RowOf(b).start + i;
    const int64_t column = position / group_.block_size;
    if (column < context_.mirror->BoundBlocks(request, group_) &&
        context_.mirror->BlockAt(request, group_, column) == block) {
      return;
    }
    const mirror::Holding holding = context_.mirror->Holder(group_, block, request.key);
    if (holding.request == mirror::kNoRequest) return;
    rows_[b].foreign = true;
    kvguard_finding& finding = EmitRow(context_, kForeignWrite, b, group_.id);
    finding.pos = position;
    SetValues(finding, KVGUARD_NONE, shown);
    SetVictim(context_, finding, group_, block, holding);
  }

  void Pad(uint64_t index) {
    if (pad_said_ || slots_[index] == context_.layout().pad_slot) return;
    pad_said_ = true;
    kvguard_finding& finding = Emit(context_, kPadSlotReal);
    finding.group = group_.id;
    finding.pos = static_cast<int64_t>(index);
    SetValues(finding, context_.layout().pad_slot, slots_[index]);
    if (group_.IsSlot(slots_[index]))
      SetVictim(context_, finding, group_, group_.BlockOfSlot(slots_[index]), 0);
  }

  Context& context_;
  const Group& group_;
  const step::Ints& slots_;
  std::vector<RowFindings> rows_;
  bool pad_said_ = false;
};

}  // namespace

void JudgeParallelSlots(Context& context, const step::GroupPlanView& group) {
  const bool known =
      std::all_of(context.rows->begin(), context.rows->end(), [](const RowState& row) {
        return row.tokens_usable && (row.num_tokens == 0 || (row.request != mirror::kNoRequest &&
                                                             row.start != KVGUARD_NONE));
      });
  if (!known) return;
  const uint64_t judged = Judge(context, group).Run();
  context.counters->slots += judged;
  context.coverage->Add(group.group->id, context.plan->pass, context.plan->stage,
                        KVGUARD_FAMILY_SLOT, judged);
}

}  // namespace kvguard::rules
