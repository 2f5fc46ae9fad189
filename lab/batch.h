// SPDX-License-Identifier: Apache-2.0
// What a model's kernels get: the attention metadata of one step in device memory, the KV memory,
// and, beside it and for the truth alone, whose rows these are.
#ifndef KVGUARD_LAB_BATCH_H_
#define KVGUARD_LAB_BATCH_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "lab/config.h"
#include "lab/truth.h"

namespace kvguard::lab {

// The truth's side of a row: as it was scheduled.
struct RowTruth {
  TruthRequest* request = nullptr;
  int32_t known = -1;  // tokens at admission in this step; -1: not admitted in it
  int32_t num_tokens = 0;
  int32_t num_drafts = 0;
  bool samples = false;
  bool encodes = false;                            // the encoder's output is written in this step
  int32_t base = 0;                                // tokens before the step's drafts
  std::array<int32_t, kMaxDrafts + 1> expected{};  // next tokens, were all reads right
  // The blocks that are bound where this step writes: column bound_first[g] on.
  std::array<int32_t, kMaxGroups> bound_first{};
  std::array<std::vector<int32_t>, kMaxGroups> bound;
};

struct Batch {
  uint64_t step = 0;
  int32_t num_rows = 0;
  int32_t num_tokens = 0;
  const int32_t* query_start = nullptr;             // [num_rows + 1]
  const int32_t* seq_lens = nullptr;                // [num_rows]
  const int32_t* positions = nullptr;               // [num_tokens]
  const int32_t* input_ids = nullptr;               // [num_tokens]
  std::array<const int32_t*, kMaxGroups> tables{};  // [num_rows, table_width], in kernel blocks
  std::array<int32_t, kMaxGroups> table_width{};
  std::array<const void*, kMaxGroups> slots{};          // [num_tokens], int32 or int64
  std::array<const int32_t*, kMaxGroups> state_in{};    // [num_rows] blocks
  std::array<const int32_t*, kMaxGroups> state_out{};   // [num_rows] of the last token's state
  std::array<const int32_t*, kMaxGroups> state_base{};  // [num_rows] the first written column
  const uint8_t* state_init = nullptr;                  // [num_rows]
  const int32_t* cross_start = nullptr;  // [num_rows + 1] encoder tokens that are written
  const int32_t* cross_lens = nullptr;   // [num_rows] that are read
  bool int32_slots = false;
  uint8_t* memory = nullptr;  // num_blocks pages
  size_t page_bytes = 0;
  // The most likely next token behind each of a row's last drafts + 1 tokens.
  int32_t* next_tokens = nullptr;  // [num_rows, kMaxDrafts + 1]

  std::vector<RowTruth>* rows = nullptr;
  Truth* truth = nullptr;

  // Where the state after a row's token goes that stands at `index` of `length`.
  struct StatePlace {
    int32_t column = -1;  // -1: nowhere
    int32_t block = kNullBlock;
  };
  StatePlace StatePlaceOf(const GroupConfig& config, size_t group, int32_t row, int32_t index,
                          int32_t length) const {
    const int32_t* table = tables[group] + Ix(row) * Ix(table_width[group]);
    const int32_t count = seq_lens[row] - length + index + 1;
    const bool is_last = index + 1 == length;
    int32_t column = -1;
    if (config.state_mode == StateMode::kAll) {
      if (is_last || count % config.block_size == 0) column = (count - 1) / config.block_size;
    } else {
      const int32_t ahead = (*rows)[Ix(row)].num_drafts - (length - 1 - index);
      if (ahead >= 0) column = state_base[group][row] + ahead;
    }
    if (column < 0 || column >= table_width[group]) return {};
    return {column, is_last ? state_out[group][row] : table[column]};
  }

  int64_t SlotOf(size_t group, int32_t token) const {
    return int32_slots ? static_cast<const int32_t*>(slots[group])[token]
                       : static_cast<const int64_t*>(slots[group])[token];
  }
};

}  // namespace kvguard::lab

#endif  // KVGUARD_LAB_BATCH_H_
