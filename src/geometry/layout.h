// SPDX-License-Identifier: Apache-2.0
// A validated geometry and its address arithmetic. Pure: no state, no I/O.
#ifndef KVGUARD_SRC_GEOMETRY_LAYOUT_H_
#define KVGUARD_SRC_GEOMETRY_LAYOUT_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "kvguard/kvguard.h"

namespace kvguard::geometry {

struct Pool {
  int64_t num_blocks = 0;
  int64_t null_block = KVGUARD_NONE;
  uint32_t kind = 0;
  uint32_t memory = 0;
  int64_t write_trash = KVGUARD_NONE;  // a slot that takes what is not kept
};

struct Group {
  uint32_t id = 0;
  uint32_t pool = 0;
  uint32_t kind = 0;
  uint32_t placement = 0;
  uint32_t encoding = 0;
  uint32_t table_unit = 0;
  uint32_t flags = 0;
  int64_t block_size = 0;       // positions that one column stands for, over all ranks
  int64_t slots_per_block = 0;  // of these, what this rank holds: block_size / ranks
  int64_t kernel_block_size = 0;
  int64_t kernel_per_block = 1;  // slots_per_block / kernel_block_size
  int64_t ranks = 1;             // that share each column's positions; 1: not sharded
  int64_t rank = 0;
  int64_t interleave = 1;    // positions in a row that are one rank's
  int64_t max_columns = 0;   // in blocks; 0: not known
  int64_t window = 0;        // WINDOW: tokens; CHUNKED: tokens per chunk; else 0
  int64_t sink = 0;          // WINDOW: first tokens that are kept for ever
  int64_t retained = 0;      // WINDOW: tokens kept beyond the window
  int64_t ring = 0;          // RING: tokens; else 0
  bool cells = false;        // single tokens: columns may be holes
  uint32_t state_mode = 0;   // STATE: kvguard_state_mode
  bool on_host = false;      // no forward reads or writes it
  bool plain = false;        // kind FULL, whole on this rank and on the device: the common case
  int64_t block_stride = 0;  // slots between consecutive ids: slots_per_block * index_scale
  int64_t token_stride = 1;  // slots between consecutive tokens of a block
  int64_t slot_base = 0;     // of id 0
  int64_t num_slots = 0;     // from slot_base on, in all ids of the pool

  // Positions that one table entry stands for, over all ranks, and slots that it stands for.
  int64_t TokensPerEntry() const { return SlotsPerEntry() * ranks; }
  int64_t SlotsPerEntry() const {
    return table_unit == KVGUARD_UNIT_KERNEL_BLOCK ? kernel_block_size : slots_per_block;
  }
  int64_t EntriesPerBlock() const {
    return table_unit == KVGUARD_UNIT_KERNEL_BLOCK ? kernel_per_block : 1;
  }
  // Whether the group forgets positions while their request lives.
  bool Forgets() const { return window > 0 || (IsState() && state_mode != KVGUARD_STATE_NONE); }
  bool IsRing() const { return ring > 0; }
  bool IsCross() const { return kind == KVGUARD_GROUP_CROSS; }
  // Whether blocks hold states, one each, in place of tokens.
  bool IsState() const { return kind == KVGUARD_GROUP_STATE; }
  // The first position, sinks aside, that a row reads whose next token stands at `position`
  // (mrv2.md 3.4).
  int64_t FirstNeeded(int64_t position) const {
    if (kind == KVGUARD_GROUP_WINDOW) {
      const int64_t first = position - window + 1 - retained;
      return first > 0 ? first : 0;
    }
    if (kind == KVGUARD_GROUP_CHUNKED) return position / window * window;
    if (IsState() && Forgets()) return position > 0 ? position - 1 : 0;
    return 0;
  }
  // Columns that hold sinks.
  int64_t SinkColumns() const { return (sink + block_size - 1) / block_size; }
  // Columns before this one, sinks aside, are not read any more.
  int64_t FirstNeededColumn(int64_t position) const { return FirstNeeded(position) / block_size; }
  bool Needs(int64_t column, int64_t position) const {
    return column >= FirstNeededColumn(position) || column < SinkColumns();
  }
  // STATE: the column of the state of so many tokens, at least one (mrv2.md 3.5).
  int64_t StateColumn(int64_t tokens) const {
    return state_mode == KVGUARD_STATE_NONE ? 0 : (tokens - 1) / block_size;
  }
  // The columns [first, last] that a step writes whose first token may be any of [low, high].
  struct Columns {
    int64_t first = 0;
    int64_t last = 0;
    // A ring's tokens may wrap around: the columns [skip_first, skip_end) are left out.
    int64_t skip_first = 0;
    int64_t skip_end = 0;
    bool Skips(int64_t column) const { return column >= skip_first && column < skip_end; }
  };
  Columns Written(int64_t low, int64_t high, int64_t tokens, int64_t drafts) const {
    if (IsRing()) return WrittenInRing(low, high + tokens - 1);
    if (!IsState() || state_mode == KVGUARD_STATE_ALL)
      return {low / block_size, (high + tokens - 1) / block_size};
    return {StateColumn(low + tokens), StateColumn(high + tokens) + drafts};
  }
  // Columns that a row needs for so many tokens, and a step with that many drafts.
  int64_t ColumnsFor(int64_t tokens, int64_t drafts) const {
    tokens = Kept(tokens);
    const int64_t columns = tokens / block_size + (tokens % block_size > 0 ? 1 : 0);
    if (plain) return columns;
    if (!IsState() || state_mode == KVGUARD_STATE_ALL) return columns;
    return (state_mode == KVGUARD_STATE_NONE ? 1 : columns) + drafts;
  }
  // The columns of positions [first, last], of which the last `ring` ones stay.
  Columns WrittenInRing(int64_t first, int64_t last) const {
    if (first <= last - ring) return {0, (ring - 1) / block_size};
    const int64_t from = ColumnOf(first);
    const int64_t to = ColumnOf(last);
    if (first % ring <= last % ring) return {from, to};
    return {0, (ring - 1) / block_size, to + 1, from};  // none is skipped where from <= to + 1
  }
  // The column of a position, and where in its row a ring keeps it.
  int64_t ColumnOf(int64_t position) const { return Place(position) / block_size; }
  int64_t Place(int64_t position) const { return IsRing() ? position % ring : position; }
  // Of so many tokens, those that stand in the first columns: a ring never has more.
  int64_t Kept(int64_t tokens) const { return IsRing() ? std::min(tokens, ring) : tokens; }
  // RING: the first position that a row reads whose next token stands at `position`.
  int64_t FirstInRing(int64_t position) const {
    return std::max<int64_t>(0, position - (ring - 1));
  }
  // Tokens that one entry of a list stands for, and entries that a block shows as.
  int64_t TokensPerListEntry() const {
    return table_unit == KVGUARD_UNIT_SLOT ? 1 : SlotsPerEntry();
  }
  int64_t ListEntriesPerBlock() const { return block_size / TokensPerListEntry(); }
  bool ReadsByList() const { return encoding == KVGUARD_READ_CSR || encoding == KVGUARD_READ_FLAT; }
  // The block that holds a valid slot.
  int64_t BlockOfSlot(int64_t slot) const { return (slot - slot_base) / block_stride; }
  bool IsSlot(int64_t slot) const { return slot >= slot_base && slot - slot_base < num_slots; }
  // Whether the slots of a block are not one behind the other, or ids not next to one another.
  bool IsScaled() const { return block_stride != slots_per_block || slot_base != 0; }
  bool IsSharded() const { return ranks > 1; }
  // Whether this rank holds the position (mrv2.md 3.7).
  bool IsLocal(int64_t position) const {
    return ranks == 1 || position % block_size / interleave % ranks == rank;
  }
  // The slot of a position of this rank in the block that is bound for it: the address formula of
  // kvguard.h.
  int64_t SlotOf(int64_t block, int64_t position) const {
    const int64_t within = Place(position) % block_size;
    const int64_t offset =
        ranks == 1 ? within : within / (interleave * ranks) * interleave + within % interleave;
    return slot_base + block * block_stride + offset * token_stride;
  }
  // The reverse: where in its column the position of a slot lies.
  int64_t WithinColumn(int64_t slot) const {
    const int64_t within = (slot - slot_base) % block_stride / token_stride;
    const int64_t offset = std::min(within, slots_per_block - 1);
    return ranks == 1
               ? offset
               : offset / interleave * interleave * ranks + rank * interleave + offset % interleave;
  }
  // Of so many tokens, those that this rank holds.
  int64_t LocalLength(int64_t tokens) const {
    const int64_t round = interleave * ranks;
    const int64_t rest = tokens % round - rank * interleave;
    return tokens / round * interleave + (rest < 0 ? 0 : rest > interleave ? interleave : rest);
  }
};

// One rank of one engine, with everything owned.
struct Layout {
  std::vector<Pool> pools;
  std::vector<Group> groups;
  uint32_t flags = 0;
  int64_t max_rows = 0;
  int64_t max_tokens = 0;
  int64_t max_model_len = 0;
  int64_t num_lookahead = 0;
  int64_t max_drafts = 0;
  int64_t pad_slot = -1;
  uint32_t rank = 0;
  int64_t dcp_size = 1;
  int64_t pcp_size = 1;     // ranks whose slots stand in one plan
  uint32_t pcp_layout = 0;  // how they share the batch

  bool forgets = false;      // some group does
  bool has_states = false;   // some group holds states
  bool has_cross = false;    // some group holds an encoder's output
  bool has_rings = false;    // some group is one
  bool has_lists = false;    // some group reads by lists
  bool has_cells = false;    // and its pool is one of cells
  bool every_pass = true;    // judges all groups: none is left out of some pass
  int64_t content_unit = 1;  // divides the block size of every group

  bool Has(uint32_t engine_flag) const { return (flags & engine_flag) != 0; }
  const Pool& PoolOf(const Group& group) const { return pools[group.pool]; }
};

// Whether a pair of a remap moves anything.
inline bool Moves(const Pool& pool, int64_t from, int64_t to) {
  const auto is_block = [&pool](int64_t id) {
    return id >= 0 && id < pool.num_blocks && id != pool.null_block;
  };
  return is_block(from) && is_block(to) && from != to;
}

// Columns (blocks) that hold `tokens` tokens.
inline int64_t BlocksFor(int64_t tokens, int64_t block_size) {
  return tokens / block_size +
         (tokens % block_size > 0 ? 1 : 0);  // any count: no sum that overflows
}

}  // namespace kvguard::geometry

#endif  // KVGUARD_SRC_GEOMETRY_LAYOUT_H_
