// SPDX-License-Identifier: Apache-2.0
// What an engine of a program is like: drawn from a seed, so that a campaign meets every mixture.
#ifndef KVGUARD_TESTS_GENERATE_OPTIONS_H_
#define KVGUARD_TESTS_GENERATE_OPTIONS_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kvguard/kvguard.h"
#include "kvguard/kvguard.hpp"
#include "tests/generate/random.h"

namespace kvguard::generate {

// What a program may use; a guard without rules for one of them refuses the geometry.
enum Feature : uint32_t {
  kFull = 1u << 0,
  kWindow = 1u << 1,
  kChunked = 1u << 2,
  kContent = 1u << 3,    // token ids and domains in the stream
  kZero = 1u << 4,       // blocks are zeroed before they are used
  kCopy = 1u << 5,       // hits that end inside a block
  kTransfer = 1u << 6,   // a connector loads and sends
  kDraftPass = 1u << 7,  // the draft model's passes are shown
  kDcp = 1u << 8,        // decode context parallel
  kState = 1u << 9,      // recurrent groups
  kCross = 1u << 10,     // cross-attention over an encoder's output
  kMicro = 1u << 11,     // the target pass comes in micro-batches
  kPcp = 1u << 12,       // prefill context parallel: alone with full groups
  kList = 1u << 13,      // full groups that are read by lists
  kRing = 1u << 14,      // groups that write over their oldest tokens
  kMove = 1u << 15,      // blocks change places
  kCells = 1u << 16,     // pools of single tokens, whose positions are erased and shifted
};

struct FeatureName {
  Feature feature;
  const char* name;
};
const std::vector<FeatureName>& FeatureNames();
// "full,window"; nullopt: *error names what is not a feature.
std::optional<uint32_t> ParseFeatures(const std::string& list, std::string* error);

struct PoolOptions {
  int64_t num_blocks = 0;
  bool null_block = true;  // block 0, never handed out
  bool cells = false;
  int64_t write_trash = -1;  // slot that padding and clipped tokens may be written to; -1: none
};

struct GroupOptions {
  uint32_t kind = KVGUARD_GROUP_FULL;
  uint32_t pool = 0;
  int64_t block_size = 4;
  int64_t kernel_block_size = 4;
  uint32_t unit = KVGUARD_UNIT_BLOCK;
  // Context parallel: ranks that share a block's tokens, this one, and how many tokens in a row
  // each gets. One where the group is whole on every rank.
  int64_t ranks = 1;
  int64_t rank = 0;
  int64_t interleave = 1;
  uint32_t shard_formula = 0;
  uint32_t state_mode = KVGUARD_STATE_NONE;
  int64_t speculative = 0;  // blocks of states behind the running one, for drafts
  int64_t window = 0;
  int64_t sink = 0;      // first tokens that a window keeps for ever
  int64_t retained = 0;  // tokens that a window keeps beyond what it reads
  int64_t columns = 0;   // width of a row, in blocks
  bool columns_told = true;
  bool pad_rows_null = false;
  // How its arrays are shown.
  uint32_t table_dtype = KVGUARD_I32;
  uint32_t slots_dtype = KVGUARD_I64;
  int64_t extra_stride = 0;
  bool row_columns = false;
  bool seq_lens = false;
  // How its reads are shown.
  uint32_t encoding = KVGUARD_READ_TABLE;
  uint32_t offsets_dtype = KVGUARD_I32;
  bool last_page = false;       // CSR
  bool sentinels = false;       // FLAT: tokens of the step stand as the sentinel
  bool empty_at_start = false;  // FLAT: no list where every row begins at 0
  int64_t sentinel = -1;
  bool all_columns = false;  // RING: the whole ring is bound at once
  bool cells = false;
  int64_t write_trash = -1;     // of its pool
  bool clips_on_trash = false;  // RING: tokens that the step writes over go there
  bool pads_on_trash = false;

  bool kernel_unit() const { return unit == KVGUARD_UNIT_KERNEL_BLOCK; }
  bool reads_by_list() const { return encoding != KVGUARD_READ_TABLE; }
  // Tokens of one entry of a list.
  int64_t list_unit() const { return unit == KVGUARD_UNIT_SLOT ? 1 : unit_tokens(); }
  // Where a ring keeps a position.
  int64_t Place(int64_t position) const { return is_ring() ? position % window : position; }
  int64_t entries_per_block() const { return kernel_unit() ? block_size / kernel_block_size : 1; }
  // Tokens of one table entry, on this rank.
  int64_t unit_tokens() const { return kernel_unit() ? kernel_block_size : block_size; }
  // Tokens of one block over all ranks: what the scheduler counts in.
  int64_t span() const { return block_size * ranks; }
  bool IsLocal(int64_t position) const { return position % span() / interleave % ranks == rank; }
  // Of a local token, within its block.
  int64_t OffsetOf(int64_t position) const {
    const int64_t within = position % span();
    return within / (interleave * ranks) * interleave + within % interleave;
  }
  // The first position that a token at `position` still needs.
  int64_t FirstNeeded(int64_t position) const {
    if (kind == KVGUARD_GROUP_WINDOW) return position < window ? 0 : position - window + 1;
    if (kind == KVGUARD_GROUP_CHUNKED) return position / window * window;
    return 0;
  }
  // Whether a request whose next token is at `position` keeps this column.
  bool Keeps(int64_t column, int64_t position) const {
    if (kind == KVGUARD_GROUP_WINDOW && column * span() < sink) return true;
    // Of a recurrence only the state behind the last token; in mode NONE it never moves.
    if (is_state()) return state_mode == KVGUARD_STATE_NONE || (column + 1) * span() > position - 1;
    return (column + 1) * span() > FirstNeeded(position) - retained;
  }
  // The column of the state behind so many tokens.
  int64_t StateColumn(int64_t tokens) const {
    return state_mode == KVGUARD_STATE_NONE ? 0 : (tokens + block_size - 1) / block_size - 1;
  }
  // Columns of a row that holds so many tokens.
  int64_t ColumnsFor(int64_t tokens) const {
    if (is_state()) return StateColumn(tokens) + 1 + speculative;
    if (is_ring()) tokens = all_columns ? window : std::min(tokens, window);
    return (tokens + span() - 1) / span();
  }
  bool is_ring() const { return kind == KVGUARD_GROUP_RING; }
  bool is_cross() const { return kind == KVGUARD_GROUP_CROSS; }
  bool is_state() const { return kind == KVGUARD_GROUP_STATE; }
  bool is_window() const { return kind == KVGUARD_GROUP_WINDOW || kind == KVGUARD_GROUP_CHUNKED; }
  bool forgets() const { return is_window() || is_state(); }
};

// A bug of the engine itself, not of one record: the engine goes on with it until its memory shows
// it.
enum class Fault {
  kNone,
  kPruneOptimistic,  // windows are pruned by the optimistic count
  kIgnoreDomain,     // the prefix cache knows tokens alone
  kStaleFrontier,    // the runner does not take rejected drafts back
  kLostRollback,     // nor what the scheduler takes back
  kFreeTwice,        // a shared block is given back twice
  kStaleIndex,       // a block that is handed out stays in the prefix cache
  kZeroHits,         // claimed blocks are zeroed like fresh ones
  kAppendToOldRow,   // an admission does not overwrite the row
  kNoRoomForDrafts,  // blocks are bound for the one token that is certain
  kKernelFormula,    // context parallel slots counted in kernel blocks
  kStateSameStep,    // a state is claimed in the step that makes it
  kSendFreed,        // blocks are given back while they are sent
  kLostMove,         // the runner's rows name the places that blocks have left
  kLostShift,        // nor does it shift the positions of cells
  kCount,
};
extern const char* const kFaultNames[static_cast<size_t>(Fault::kCount)];
// What a program needs for this fault to matter.
uint32_t FeaturesOf(Fault fault);

// How long an array is.
enum class Length { kReal, kPadded, kBuffer };

// When the guard hears the outcome of a step.
enum class OutcomeTime { kInStep, kAfterEnd, kLate, kMixed };

enum class Stages { kPlanned, kBoth, kFinal, kFinalLater };

struct Options {
  uint64_t seed = 0;
  uint32_t features = kFull;
  Fault fault = Fault::kNone;
  std::vector<PoolOptions> pools;
  std::vector<GroupOptions> groups;

  // Scheduler.
  int64_t max_model_len = 32;
  int64_t max_running = 4;
  int64_t max_encoder = 0;  // tokens of an encoder's output; 0: there is none
  int64_t budget = 16;      // tokens of a step
  int64_t chunk = 0;        // most prompt tokens of one request in one step; 0: no bound
  uint32_t max_drafts = 0;
  int64_t lookahead = 0;
  uint32_t depth = 1;  // steps scheduled at once, 1: the outcome is known before the next schedule
  bool prefix_cache = true;
  bool connector_flag = false;
  bool zeroes = false;
  bool copies = false;
  bool copies_whole = false;  // blocks, not tokens
  bool loads = false;
  bool sends = false;
  int64_t dcp_size = 1;
  int64_t dcp_rank = 0;
  int64_t interleave = 1;

  // Stream.
  bool warm_up = false;
  bool sleeps = false;
  bool rolls_back = false;
  bool dummies = false;
  bool draft_pass = false;
  bool micro_batches = false;
  bool fills_told = false;
  bool moves = false;
  bool cells = false;
  int64_t pad_slot = -1;
  int64_t pcp_size = 1;
  uint32_t pcp_layout = 0;
  bool outcomes_without_drafts = true;
  bool tokens_told = false;  // ids at admission and in outcomes
  bool domains = false;
  bool copies_of_states_told = true;
  OutcomeTime outcome_time = OutcomeTime::kAfterEnd;
  Stages stages = Stages::kPlanned;

  // Runner.
  int64_t extra_rows = 0;  // padding at most
  int64_t extra_tokens = 0;
  bool shuffled_rows = false;  // else sorted by query length
  bool positions = true;
  bool num_computed = true;
  uint32_t lengths_dtype = KVGUARD_I32;
  Length slots_length = Length::kPadded;
  Length rows_length = Length::kPadded;
  Length table_rows = Length::kPadded;

  bool has(Feature feature) const { return (features & feature) != 0; }
  bool async() const { return depth > 1; }
  int64_t max_rows() const { return max_running + extra_rows; }
  int64_t max_tokens() const { return budget + extra_tokens; }

  static Options Draw(uint64_t seed, uint32_t features = kFull);
  GeometryBuilder Geometry() const;
  // Name and value of each, for reports.
  std::vector<std::pair<std::string, int64_t>> Told() const;
};

}  // namespace kvguard::generate

#endif  // KVGUARD_TESTS_GENERATE_OPTIONS_H_
