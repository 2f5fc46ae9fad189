// SPDX-License-Identifier: Apache-2.0
// How a step's staged data lies in its one upload, in 32-bit words.
#ifndef KVGUARD_LAB_PACKED_H_
#define KVGUARD_LAB_PACKED_H_

#include <cstdint>

#include "lab/config.h"

namespace kvguard::lab {

// Of the header. Sections: their number of entries, then where they begin.
enum PackedWord : int32_t {
  kStagedBlocks = 0,  // entries: group, row, column, count, then as many ids
  kStagedCounts = 2,  // entries: row, count
  kStagedTokens = 4,  // entries: row, count, then as many tokens
  kRows = 6,          // entries of kRowWords
  kPaddedRows = 8,
  kNumTokens = 9,
  kPaddedTokens = 10,
  kHeaderWords = 12,
};

// Of a row's entry.
enum RowWord : int32_t {
  kRowIndex = 0,
  kRowTokens = 1,
  kRowDrafts = 2,
  kRowSamples = 3,
  kRowEncoder = 4,  // tokens that cross-attention reads
  kRowEncodes = 5,  // and this step writes
  kRowFirstDraft = 6,
  kRowWords = 6 + kMaxDrafts,
};

}  // namespace kvguard::lab

#endif  // KVGUARD_LAB_PACKED_H_
