// SPDX-License-Identifier: Apache-2.0
// The one table of rules that code, docs and `kvguard rules` share.
#ifndef KVGUARD_SRC_RULES_CATALOG_H_
#define KVGUARD_SRC_RULES_CATALOG_H_

#include <cstdint>
#include <span>

#include "kvguard/kvguard.h"

namespace kvguard::rules {

// Codes: family * 100 + rule. Never reused.
enum Code : uint32_t {
  kRowUnknown = 101,
  kRowMissing = 102,
  kRowDuplicate = 103,
  kQueryLengthMismatch = 104,
  kQueryStartMalformed = 105,
  kMicroBatchMissing = 106,
  kBlockOutOfRange = 201,
  kBlockNull = 202,
  kBlockRepeated = 203,
  kCapacityShort = 204,
  kRequestUnknown = 205,
  kRowTooWide = 206,
  kTableMismatch = 301,
  kTableNull = 302,
  kTableOutOfRange = 303,
  kTableColumnsMismatch = 304,
  kPaddedRowNotNull = 305,
  kSlotMismatch = 401,
  kSlotNullBlock = 402,
  kSlotPad = 403,
  kSlotOutOfRange = 404,
  kSlotWrittenTwice = 405,
  kPadSlotReal = 406,
  kSlotNotLocal = 407,
  kSeqLenMismatch = 501,
  kPaddedSeqLen = 502,
  kBlockOwned = 601,
  kForeignWrite = 602,
  kTwoWriters = 603,
  kReadStale = 701,
  kFreedWhileHeld = 702,
  kFreedTwice = 703,
  kContentMismatch = 801,
  kDomainMismatch = 802,
  kContentUnwritten = 803,
  kContentMisplaced = 804,
  kLoadOverwrites = 805,
  kFrontierMismatch = 901,
  kCountAhead = 902,
  kPositionMismatch = 903,
  kCountBehind = 904,
  kRejectedTooMany = 905,
  kStateMismatch = 1001,
  kStateTargetMismatch = 1002,
  kStateUninitialised = 1003,
  kStateDiscarded = 1004,
  kStateNotCopied = 1005,
  kPadStateReal = 1006,
  kReadWhileLoading = 1101,
  kWriteWhilePinned = 1102,
  kPinnedRebound = 1103,
  kTransferUnknown = 1104,
  kTransferMisplaced = 1105,
  kFailedLoadUsed = 1106,
  kTransferReused = 1107,
  kUsedBeforeZeroed = 1201,
  kZeroLive = 1202,
  kUsedBeforeCopied = 1203,
  kCopyTargetHeld = 1204,
  kCopySourceZeroed = 1205,
  kCopyLost = 1206,
};

std::span<const kvguard_rule> Catalog();
const kvguard_rule* FindRule(uint32_t code);

// Where a finding stands among those of its step: a smaller rank explains a larger one. What the
// scheduler decided explains what the runner planned; a wrong table or frontier explains wrong
// lengths, slots and writes.
int CausalRank(uint32_t code);

}  // namespace kvguard::rules

#endif  // KVGUARD_SRC_RULES_CATALOG_H_
