// SPDX-License-Identifier: Apache-2.0
// Named states of an engine that a campaign must have met, or it has shown nothing about them.
#ifndef KVGUARD_TESTS_GENERATE_SITUATIONS_H_
#define KVGUARD_TESTS_GENERATE_SITUATIONS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace kvguard::generate {

// One line each: the enumerator, its name in reports.
#define KVGUARD_SITUATIONS(X)                                 \
  X(kPrefixHit, "prefix-hit")                                 \
  X(kHitInSameStep, "hit-in-same-step")                       \
  X(kHitOnLiveBlocks, "hit-on-live-blocks")                   \
  X(kHitOnFreedBlocks, "hit-on-freed-blocks")                 \
  X(kHitAfterEviction, "hit-after-eviction")                  \
  X(kEviction, "eviction")                                    \
  X(kPreempt, "preempt")                                      \
  X(kPreemptResume, "preempt-resume")                         \
  X(kPreemptAndReuse, "preempt-and-reuse-in-one-output")      \
  X(kPreemptInFlight, "preempt-in-flight")                    \
  X(kFinishAndReuse, "finish-and-reuse-in-one-output")        \
  X(kFinishInFlight, "finish-in-flight")                      \
  X(kReplacedLive, "replaced-live-request")                   \
  X(kAbortUnknownKey, "abort-unknown-key")                    \
  X(kAbortLive, "abort-live-request")                         \
  X(kFinishTwice, "finish-twice")                             \
  X(kChunkedPrefill, "chunked-prefill")                       \
  X(kZeroTokenStep, "zero-token-step")                        \
  X(kSkippedRequest, "live-request-not-scheduled")            \
  X(kLookahead, "lookahead")                                  \
  X(kLengthLimit, "model-length-limit")                       \
  X(kDrafts, "drafts")                                        \
  X(kRejectedDraft, "rejected-draft")                         \
  X(kAcceptedDraft, "accepted-draft")                         \
  X(kOutcomeInStep, "outcome-in-step")                        \
  X(kOutcomeAfterEnd, "outcome-after-end")                    \
  X(kLateOutcome, "late-outcome")                             \
  X(kOutcomeOfDead, "outcome-of-dead-request")                \
  X(kOptimisticCount, "optimistic-count")                     \
  X(kRollback, "rollback")                                    \
  X(kResidue, "residue-behind-columns")                       \
  X(kPaddedRows, "padded-rows")                               \
  X(kPaddedTokens, "padded-tokens")                           \
  X(kDummyBetween, "dummy-between-steps")                     \
  X(kDummyInside, "dummy-in-step")                            \
  X(kRowOrderDiffers, "row-order-differs")                    \
  X(kRowIndexReused, "row-index-reused-in-one-output")        \
  X(kSeveralGroups, "several-groups")                         \
  X(kHybridOnePool, "hybrid-one-pool")                        \
  X(kSeveralPools, "several-pools")                           \
  X(kNoNullBlock, "no-null-block")                            \
  X(kKernelBlocks, "kernel-blocks")                           \
  X(kKernelBlocksBlockUnit, "kernel-blocks-in-block-unit")    \
  X(kInt32Slots, "int32-slots")                               \
  X(kInt64Table, "int64-table")                               \
  X(kWideStride, "wide-row-stride")                           \
  X(kFinalStage, "final-stage")                               \
  X(kFinalOnly, "final-stage-alone")                          \
  X(kDraftPass, "draft-pass")                                 \
  X(kDraftStep, "draft-step")                                 \
  X(kDraftAtLimit, "draft-at-the-length-limit")               \
  X(kPcpSplit, "prefill-split-over-ranks")                    \
  X(kPcpWhole, "row-whole-on-ranks")                          \
  X(kMicroBatch, "micro-batches")                             \
  X(kMicroInside, "micro-batch-inside-a-request")             \
  X(kStateDrafts, "state-drafts")                             \
  X(kStateBlockMoved, "speculative-state-block-moved")        \
  X(kWarmUp, "warm-up")                                       \
  X(kSleep, "sleep")                                          \
  X(kNoPositions, "no-positions")                             \
  X(kGroupLengths, "group-seq-lens")                          \
  X(kRowColumns, "row-columns")                               \
  X(kNullInFront, "null-columns-in-front")                    \
  X(kStaleColumns, "stale-columns-in-front")                  \
  X(kStaleColumnsReused, "stale-columns-owned-by-another")    \
  X(kWindowHit, "window-hit")                                 \
  X(kFullAndWindow, "full-and-window-in-one-pool")            \
  X(kTokensKnown, "tokens-known")                             \
  X(kTokensLearned, "tokens-learned-from-outcome")            \
  X(kDomainSplits, "equal-tokens-in-different-domains")       \
  X(kDomainHit, "hit-inside-a-domain")                        \
  X(kZeroed, "blocks-zeroed")                                 \
  X(kCopied, "partial-hit-copied")                            \
  X(kLoadAhead, "load-before-admission")                      \
  X(kLoadFailed, "load-failed")                               \
  X(kSendDelayed, "finished-while-sending")                   \
  X(kState, "recurrent-state")                                \
  X(kStateAndAttention, "state-and-attention-in-one-pool")    \
  X(kStateHit, "state-hit")                                   \
  X(kStateMoved, "state-moved-to-another-block")              \
  X(kStateCopied, "state-copied-to-another-block")            \
  X(kNullAppended, "null-columns-appended")                   \
  X(kCross, "cross-attention")                                \
  X(kCrossStep, "step-without-encoder-input")                 \
  X(kSharded, "sharded-over-ranks")                           \
  X(kShardedKernelBlocks, "sharded-kernel-blocks")            \
  X(kInterleaved, "interleaved-ranks")                        \
  X(kOldFormula, "sharded-by-kernel-formula")                 \
  X(kReplicated, "replicated-beside-ranks")                   \
  X(kEmptyShard, "step-without-a-local-token")                \
  X(kCsrBlocks, "csr-of-blocks")                              \
  X(kCsrKernelBlocks, "csr-of-kernel-blocks")                 \
  X(kCsrSlots, "csr-of-slots")                                \
  X(kCsrLastPage, "csr-last-page-lengths")                    \
  X(kFlatSlots, "flat-of-slots")                              \
  X(kFlatSentinel, "flat-sentinels")                          \
  X(kFlatEmpty, "flat-empty-at-the-start")                    \
  X(kListBehindOthers, "list-behind-others")                  \
  X(kListWithoutLookahead, "list-without-lookahead")          \
  X(kListOfPart, "list-of-a-micro-batch")                     \
  X(kListOfDraft, "list-of-a-draft-step")                     \
  X(kListOfDrafts, "list-with-drafts")                        \
  X(kRing, "ring")                                            \
  X(kRingAlone, "ring-alone")                                 \
  X(kRingBesideFull, "ring-beside-full")                      \
  X(kRingUneven, "ring-window-no-multiple")                   \
  X(kRingTable, "ring-by-table")                              \
  X(kRingList, "ring-by-list")                                \
  X(kRingWrapped, "ring-wrapped")                             \
  X(kRingClipped, "ring-clipped-to-the-pad-slot")             \
  X(kRingClippedToTrash, "ring-clipped-to-the-write-trash")   \
  X(kRingRollback, "ring-rollback")                           \
  X(kRingPreempted, "ring-preempted")                         \
  X(kPadsOnTrash, "pads-on-the-write-trash")                  \
  X(kLiveBlockMoved, "live-block-moved")                      \
  X(kSharedBlockMoved, "shared-block-moved")                  \
  X(kCachedBlockMoved, "cached-block-moved")                  \
  X(kEmptyBlockMoved, "empty-block-moved")                    \
  X(kLoadedBlockMoved, "loaded-block-moved-before-admission") \
  X(kMoveChain, "blocks-moved-onto-one-another")              \
  X(kBlocksSwapped, "blocks-swapped")                         \
  X(kDeduped, "blocks-deduped")                               \
  X(kMoveBehindBindings, "move-behind-the-bindings")          \
  X(kCopyOfMoved, "copy-of-a-moved-block")                    \
  X(kHitOnMoved, "hit-on-a-moved-block")                      \
  X(kCells, "cells")                                          \
  X(kErasedAtTheEnd, "cells-erased-at-the-end")               \
  X(kErasedInside, "cells-erased-inside")                     \
  X(kSharedCellErased, "shared-cell-erased")                  \
  X(kContextShift, "context-shift")                           \
  X(kShiftedWithLookahead, "context-shift-with-lookahead")    \
  X(kShiftedBelowZero, "positions-shifted-below-zero")        \
  X(kShiftedUp, "positions-shifted-up")                       \
  X(kCellsWentBack, "cells-went-back")                        \
  X(kCellTakenAgain, "erased-cell-taken-again")

enum class Situation : size_t {
#define KVGUARD_SITUATION(id, name) id,
  KVGUARD_SITUATIONS(KVGUARD_SITUATION)
#undef KVGUARD_SITUATION
      kCount
};

inline constexpr size_t kNumSituations = static_cast<size_t>(Situation::kCount);

inline constexpr std::array<const char*, kNumSituations> kSituationNames = {
#define KVGUARD_SITUATION(id, name) name,
    KVGUARD_SITUATIONS(KVGUARD_SITUATION)
#undef KVGUARD_SITUATION
};

// How often each was met.
class Situations {
 public:
  void Reach(Situation situation, uint64_t times = 1) {
    counts_[static_cast<size_t>(situation)] += times;
  }
  uint64_t count(Situation situation) const { return counts_[static_cast<size_t>(situation)]; }
  void Add(const Situations& other) {
    for (size_t i = 0; i < kNumSituations; ++i) counts_[i] += other.counts_[i];
  }
  std::vector<std::string> names() const {
    std::vector<std::string> reached;
    for (size_t i = 0; i < kNumSituations; ++i) {
      if (counts_[i] > 0) reached.emplace_back(kSituationNames[i]);
    }
    return reached;
  }
  bool operator==(const Situations&) const = default;

 private:
  std::array<uint64_t, kNumSituations> counts_{};
};

}  // namespace kvguard::generate

#endif  // KVGUARD_TESTS_GENERATE_SITUATIONS_H_
