// SPDX-License-Identifier: Apache-2.0
#include "rules/catalog.h"

#include <algorithm>
#include <iterator>

namespace kvguard::rules {
namespace {

#define KVGUARD_RULE(code, family, grade, name, sentence) \
  {sizeof(kvguard_rule),                                  \
   code,                                                  \
   KVGUARD_FAMILY_##family,                               \
   KVGUARD_GRADE_##grade,                                 \
   nullptr,                                               \
   name,                                                  \
   sentence}

kvguard_rule kRules[] = {
    KVGUARD_RULE(kRowUnknown, STEP, PROOF, "row-unknown",
                 "A row of the plan belongs to a request that this step did not schedule."),
    KVGUARD_RULE(kRowMissing, STEP, PROOF, "row-missing",
                 "A scheduled request has no row in the plan."),
    KVGUARD_RULE(kRowDuplicate, STEP, PROOF, "row-duplicate",
                 "A request has two rows in one plan."),
    KVGUARD_RULE(kQueryLengthMismatch, STEP, PROOF, "query-length-mismatch",
                 "A row holds more or fewer tokens than the scheduler gave its request."),
    KVGUARD_RULE(kQueryStartMalformed, STEP, PROOF, "query-start-malformed",
                 "The query offsets do not start at zero, do not rise, or do not end at the number "
                 "of tokens."),
    KVGUARD_RULE(kMicroBatchMissing, STEP, PROOF, "micro-batch-missing",
                 "Scheduled tokens stand in no micro-batch of their step."),
    KVGUARD_RULE(kBlockOutOfRange, BINDING, PROOF, "block-out-of-range",
                 "A bound block id is not in its pool."),
    KVGUARD_RULE(kBlockNull, BINDING, PROOF, "block-null",
                 "The null block is bound where tokens live."),
    KVGUARD_RULE(kBlockRepeated, BINDING, PROOF, "block-repeated",
                 "A block is bound twice in one row."),
    KVGUARD_RULE(kCapacityShort, BINDING, PROOF, "capacity-short",
                 "A request is scheduled for more tokens than its bound blocks can hold."),
    KVGUARD_RULE(kRequestUnknown, BINDING, PROOF, "request-unknown",
                 "Blocks or tokens are given to a request that was never admitted or has ended."),
    KVGUARD_RULE(kRowTooWide, BINDING, PROOF, "row-too-wide",
                 "A row has more blocks than the engine's tables have columns."),
    KVGUARD_RULE(kTableMismatch, TABLE, PROOF, "table-mismatch",
                 "A block table shows another block than the scheduler bound in that column."),
    KVGUARD_RULE(kTableNull, TABLE, PROOF, "table-null",
                 "A block table shows the null block in a column that holds live tokens."),
    KVGUARD_RULE(kTableOutOfRange, TABLE, PROOF, "table-out-of-range",
                 "A block table shows an id outside the pool: attention would read memory that is "
                 "not its own."),
    KVGUARD_RULE(kTableColumnsMismatch, TABLE, PROOF, "table-columns-mismatch",
                 "The engine counts another number of live columns than the scheduler bound."),
    KVGUARD_RULE(kPaddedRowNotNull, TABLE, PROOF, "padded-row-not-null",
                 "A padding row of the block table is not the null block throughout."),
    KVGUARD_RULE(kSlotMismatch, SLOT, PROOF, "slot-mismatch",
                 "A token's write slot is not the one that its bound block and position give."),
    KVGUARD_RULE(kSlotNullBlock, SLOT, PROOF, "slot-null-block",
                 "A token is written into the null block."),
    KVGUARD_RULE(kSlotPad, SLOT, PROOF, "slot-pad",
                 "A real token has the pad slot: its KV is never written."),
    KVGUARD_RULE(kSlotOutOfRange, SLOT, PROOF, "slot-out-of-range",
                 "A token's write slot lies outside the pool."),
    KVGUARD_RULE(kSlotWrittenTwice, SLOT, PROOF, "slot-written-twice",
                 "Two tokens of one step are written to one slot."),
    KVGUARD_RULE(kPadSlotReal, SLOT, PROOF, "pad-slot-real",
                 "A padding token has a real slot: it overwrites live KV."),
    KVGUARD_RULE(kSlotNotLocal, SLOT, PROOF, "slot-not-local",
                 "A token that another context-parallel rank holds has a real slot on this one."),
    KVGUARD_RULE(kSeqLenMismatch, LENGTH, PROOF, "seq-len-mismatch",
                 "A row's KV length is not its computed tokens plus the tokens of this step."),
    KVGUARD_RULE(kPaddedSeqLen, LENGTH, PROOF, "padded-seq-len-nonzero",
                 "A padding row has a KV length that is not zero."),
    KVGUARD_RULE(kBlockOwned, OWNERSHIP, PROOF, "block-owned",
                 "A block is handed out as new while a live request holds it. A suspicion where a "
                 "KV connector is in use."),
    KVGUARD_RULE(kForeignWrite, OWNERSHIP, PROOF, "foreign-write",
                 "A token would be written into a block that another live request holds."),
    KVGUARD_RULE(kTwoWriters, OWNERSHIP, PROOF, "two-writers",
                 "Two requests are scheduled to write one block in one step. A suspicion where a "
                 "KV connector is in use."),
    KVGUARD_RULE(kReadStale, LIFETIME, PROOF, "read-stale",
                 "Attention reads a column whose block was handed to somebody else since it was "
                 "bound."),
    KVGUARD_RULE(kFreedWhileHeld, LIFETIME, PROOF, "freed-while-held",
                 "The engine says that nobody holds a block that a live request has."),
    KVGUARD_RULE(kFreedTwice, LIFETIME, PROOF, "freed-twice",
                 "A block is freed that was freed before and not handed out since."),
    KVGUARD_RULE(kContentMismatch, CONTENT, PROOF, "content-mismatch",
                 "A prefix hit names a block that holds the KV of other tokens."),
    KVGUARD_RULE(kDomainMismatch, CONTENT, PROOF, "domain-mismatch",
                 "A prefix hit names a block that holds the same tokens under another adapter, "
                 "image, embedding or salt."),
    KVGUARD_RULE(kContentUnwritten, CONTENT, PROOF, "content-unwritten",
                 "A prefix hit names a block that nobody filled. A suspicion where a KV connector "
                 "is in use."),
    KVGUARD_RULE(kContentMisplaced, CONTENT, PROOF, "content-misplaced",
                 "A prefix hit names a block whose content belongs in another column or group."),
    KVGUARD_RULE(kLoadOverwrites, CONTENT, PROOF, "load-overwrites",
                 "A transfer fills a block in which another live request has valid tokens."),
    KVGUARD_RULE(kFrontierMismatch, FRONTIER, PROOF, "frontier-mismatch",
                 "A row starts at another position than the request's computed tokens end."),
    KVGUARD_RULE(kCountAhead, FRONTIER, PROOF, "count-ahead",
                 "The scheduler counts tokens as computed that no step has computed."),
    KVGUARD_RULE(kPositionMismatch, FRONTIER, PROOF, "position-mismatch",
                 "The positions of a row are not consecutive from its first token on."),
    KVGUARD_RULE(kCountBehind, FRONTIER, SUSPICION, "count-behind",
                 "The scheduler takes computed tokens back although no connector could have failed "
                 "to load them."),
    KVGUARD_RULE(kRejectedTooMany, FRONTIER, PROOF, "rejected-more-than-drafted",
                 "An outcome rejects more drafts than its step had."),
    KVGUARD_RULE(kStateMismatch, STATE, PROOF, "state-mismatch",
                 "A row goes on from another recurrent state than the one its last step left."),
    KVGUARD_RULE(kStateTargetMismatch, STATE, PROOF, "state-target-mismatch",
                 "A row leaves its recurrent state in another block than the one bound for it."),
    KVGUARD_RULE(kStateUninitialised, STATE, PROOF, "state-uninitialised",
                 "A request's first tokens go on from whatever its state block held before."),
    KVGUARD_RULE(kStateDiscarded, STATE, PROOF, "state-discarded",
                 "The recurrent state of a row with computed tokens is initialised anew."),
    KVGUARD_RULE(kStateNotCopied, STATE, PROOF, "state-not-copied",
                 "A row goes on from the state block of its next column, and its state was not "
                 "copied there."),
    KVGUARD_RULE(kPadStateReal, STATE, PROOF, "pad-state-real",
                 "A padding row, or a dummy pass, names a real state block: it overwrites the "
                 "state there."),
    KVGUARD_RULE(kReadWhileLoading, TRANSFER, PROOF, "read-while-loading",
                 "Attention reads a block that a transfer is still filling."),
    KVGUARD_RULE(kWriteWhilePinned, TRANSFER, PROOF, "write-while-pinned",
                 "A step writes a block that a transfer is still reading or filling."),
    KVGUARD_RULE(kPinnedRebound, TRANSFER, PROOF, "pinned-rebound",
                 "A block is handed out as new while a transfer for somebody else pins it."),
    KVGUARD_RULE(kTransferUnknown, TRANSFER, PROOF, "transfer-unknown",
                 "The end of a transfer is told that was never announced or has ended."),
    KVGUARD_RULE(kTransferMisplaced, TRANSFER, PROOF, "transfer-misplaced",
                 "A transfer fills or sends other blocks than the request has at its positions."),
    KVGUARD_RULE(kFailedLoadUsed, TRANSFER, PROOF, "failed-load-used",
                 "Tokens count as computed whose block a failed load left empty."),
    KVGUARD_RULE(kTransferReused, TRANSFER, PROOF, "transfer-reused",
                 "A transfer has the id of an earlier one."),
    KVGUARD_RULE(kUsedBeforeZeroed, COPY, PROOF, "used-before-zeroed",
                 "A block is read or written in a step that has not zeroed it yet as announced."),
    KVGUARD_RULE(kZeroLive, COPY, PROOF, "zero-live",
                 "A block is zeroed that holds valid tokens of a live request."),
    KVGUARD_RULE(kUsedBeforeCopied, COPY, PROOF, "used-before-copied",
                 "A block is read or written in a step that has not copied to it yet as "
                 "announced."),
    KVGUARD_RULE(kCopyTargetHeld, COPY, PROOF, "copy-target-held",
                 "The target of a copy is a block that a live request holds already, or the null "
                 "block."),
    KVGUARD_RULE(kCopySourceZeroed, COPY, PROOF, "copy-source-zeroed",
                 "The source of a copy is zeroed in the same step."),
    KVGUARD_RULE(kCopyLost, COPY, PROOF, "copy-lost",
                 "A zeroing or copy was announced and not done by the end of its step."),
};
#undef KVGUARD_RULE

// family_name comes from the one list of names.
const bool kNamed = [] {
  for (kvguard_rule& rule : kRules) rule.family_name = kvguard_name("family", rule.family);
  return true;
}();

}  // namespace

std::span<const kvguard_rule> Catalog() {
  return kNamed ? std::span<const kvguard_rule>(kRules) : std::span<const kvguard_rule>();
}

const kvguard_rule* FindRule(uint32_t code) {
  const kvguard_rule* end = std::end(kRules);
  const kvguard_rule* begin = std::begin(kRules);
  const kvguard_rule* it = std::lower_bound(
      begin, end, code,
      [](const kvguard_rule& rule, uint32_t wanted) { return rule.code < wanted; });
  return it != end && it->code == code ? it : nullptr;
}

int CausalRank(uint32_t code) {
  switch (code / 100) {
    case KVGUARD_FAMILY_BINDING:
      return 0;
    case KVGUARD_FAMILY_STEP:
      return 2;
    case KVGUARD_FAMILY_TABLE:
      return 3;
    case KVGUARD_FAMILY_FRONTIER:
      return code == kCountAhead || code == kCountBehind ? 1 : 4;
    case KVGUARD_FAMILY_LENGTH:
      return 5;
    case KVGUARD_FAMILY_SLOT:
    case KVGUARD_FAMILY_STATE:
      return 6;
    case KVGUARD_FAMILY_LIFETIME:
    case KVGUARD_FAMILY_CONTENT:
    case KVGUARD_FAMILY_TRANSFER:
    case KVGUARD_FAMILY_COPY:
      return 1;
    case KVGUARD_FAMILY_OWNERSHIP:
      return code == kForeignWrite ? 7 : 1;
    default:
      return 8;
  }
}

}  // namespace kvguard::rules
