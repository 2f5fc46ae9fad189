// SPDX-License-Identifier: Apache-2.0
// What must be true: the guard's own account of requests and blocks, derived from bindings and
// outcomes alone. Nothing here is ever learnt from a plan.
#ifndef KVGUARD_SRC_MIRROR_MIRROR_H_
#define KVGUARD_SRC_MIRROR_MIRROR_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "geometry/layout.h"
#include "mirror/block_store.h"
#include "mirror/chain.h"
#include "mirror/key_map.h"
#include "mirror/transfers.h"
#include "step/status.h"

namespace kvguard::mirror {

inline constexpr uint32_t kNoRequest = KeyMap::kNone;
// In Row::claimed_in, beside the step: no claim (the column was bound behind its window), and a
// claim that ended because the block was bound to somebody else.
inline constexpr uint64_t kNoClaim = uint64_t{1} << 63;
inline constexpr uint64_t kLapsed = UINT64_MAX;

// A request's row in one group: entries in the table's own unit, as a right table must show them.
struct Row {
  std::vector<int32_t> entries;
  // Columns [hit_first, hit_end) were claimed as prefix hits in step hit_step.
  uint64_t hit_step = 0;
  int64_t hit_first = 0;
  int64_t hit_end = 0;
  bool IsHitOf(uint64_t step, int64_t column) const {
    return hit_step == step && column >= hit_first && column < hit_end;
  }
  // Groups that forget, by column: the step that the block was bound in, with kNoClaim, or kLapsed.
  std::vector<uint64_t> claimed_in;
  int64_t expired = 0;       // ... columns before this one, sinks aside, are claimed no more
  uint32_t last_append = 0;  // entries before the most recent binding; for explanations only
};

// The counts of computed tokens. valid_low..valid_high: how many tokens have valid KV; a range only
// while the outcome of a step with drafts is not known. `scheduler`: the most that the scheduler
// may say it counts.
struct Frontier {
  int64_t valid_low = 0;
  int64_t valid_high = 0;
  int64_t scheduler = 0;
};

struct PendingOutcome {
  uint64_t step = 0;
  int64_t drafts = 0;
};

struct Request {
  uint64_t key = 0;  // 0: a free place
  std::string name;
  std::vector<Row> rows;  // by group
  Frontier frontier;
  // Steps with drafts whose outcome is not known, oldest first.
  std::vector<PendingOutcome> pending;
  // Steps whose drafts were settled by the scheduler's count, oldest first: their outcome may still
  // arrive, says nothing new and moves nothing. Of steps before forgotten_before it is not known
  // any more.
  std::vector<PendingOutcome> settled;
  uint64_t forgotten_before = 0;
  uint64_t admitted_step = 0;
  int64_t known = 0;  // tokens at admission
  // The most tokens that ever had KV: what was taken back is still there until it is written anew.
  int64_t filled = 0;
  Chain chain;
  // Where the sampled tokens of the latest steps belong, while their outcome may still come.
  struct SampledAt {
    uint64_t step = 0;
    int64_t position = 0;
  };
  std::vector<SampledAt> sampled_at;
  // Starts that were taken from plans: what they should have been is known when the outcomes that
  // were open then have been told.
  struct Assumed {
    uint64_t step = 0;
    int64_t start = 0;
    int64_t low = 0;    // the right start, as far as the outcomes are told
    uint64_t open = 0;  // outcomes that are not
  };
  std::vector<Assumed> assumed;
  // This step's schedule, valid where Mirror::IsScheduled.
  uint64_t scheduled_serial = 0;
  int64_t start =
      0;  // position of the first scheduled token; KVGUARD_NONE while the stream leaves it open
  int64_t start_low = 0;  // bounds where it is open
  int64_t start_high = 0;
  int64_t num_tokens = 0;
  int64_t num_drafts = 0;
  // Where the last step with tokens that moved the request's states ended, before its rejected
  // drafts, and how many drafts it had; KVGUARD_NONE: not known. An admission counts as such a
  // step.
  int64_t states_end = KVGUARD_NONE;
  int64_t states_drafts = 0;
  // Rings: the positions that steps wrote, as runs in the order of writing. In a run of an
  // abandoned step it is not known which.
  struct Run {
    int64_t first = 0;
    int64_t end = 0;
    bool sure = true;
  };
  std::vector<Run> written;
  // Tokens of its encoder's output, and whether a step has written their KV.
  int64_t encoder = 0;
  bool encoder_written = false;
  // Tokens of this step that micro-batches have had, by stage.
  int64_t taken[KVGUARD_STAGE_FINAL + 1] = {};
  int64_t rejected = KVGUARD_NONE;  // of num_drafts, once an outcome inside the step said so
  uint64_t seen_plan = 0;           // serial of the last plan that had a row for it: finds doubles
  // Some column that a window of it needs may not hold its block: one was given away or is null, or
  // the count has gone back. Where this is not set, none is stale.
  bool maybe_stale = false;
};

// One row of a step that was executed, for "this row, one step ago".
struct ExecutedRow {
  uint64_t key = 0;
  int64_t start = 0;
  int64_t num_tokens = 0;
};

// A released request's rows, kept for explanations only.
struct Released {
  uint64_t key = 0;
  uint64_t step = 0;
  std::string name;
  std::vector<Row> rows;
};

// A block that moves to another place.
struct BlockMove {
  int64_t from = 0;
  int64_t to = 0;
};

// Who holds a block, and its tokens there: groups of one pool may have blocks of different sizes.
struct Holding {
  uint32_t request = kNoRequest;
  int64_t first = 0;  // position of the block's first token in that request
  int64_t block_size = 0;
};

class Mirror {
 public:
  void Init(const geometry::Layout* layout, uint32_t history_steps, uint64_t history_bytes);
  void Reset();

  const geometry::Layout& layout() const { return *layout_; }

  // --- requests ---
  uint32_t Find(uint64_t key) const { return map_.Find(key); }
  Request& at(uint32_t index) { return requests_[index]; }
  const Request& at(uint32_t index) const { return requests_[index]; }
  const Request* FindRequest(uint64_t key) const {
    const uint32_t i = map_.Find(key);
    return i == kNoRequest ? nullptr : &requests_[i];
  }
  size_t num_live() const { return map_.size(); }
  // Places of the live requests, by ascending key.
  std::vector<uint32_t> ByKey() const;

  // The key is not live.
  uint32_t Admit(uint64_t key, std::string_view name, int64_t computed, uint64_t step);
  // Releases every row; the request is then known to explanations only.
  void Release(uint32_t index, uint64_t step);

  // --- tables ---
  // Columns (blocks) that are bound.
  int64_t BoundBlocks(const Request& request, const geometry::Group& group) const {
    return static_cast<int64_t>(request.rows[group.id].entries.size()) / group.EntriesPerBlock();
  }
  // The block in a column, in the scheduler's unit. The column is bound.
  int64_t BlockAt(const Request& request, const geometry::Group& group, int64_t column) const {
    const auto& entries = request.rows[group.id].entries;
    const int64_t first = entries[static_cast<size_t>(column * group.EntriesPerBlock())];
    return first < 0 ? first : first / group.EntriesPerBlock();
  }
  // Puts one block behind the row. Ids that no int32 table can hold are kept as -1. claimed_in: as
  // in Row.
  void Push(Request* request, const geometry::Group& group, int64_t block,
            uint64_t claimed_in = kNoClaim);
  // Whether the row's entry is a claim. The column is bound.
  bool IsClaimed(const Request& request, const geometry::Group& group, int64_t column) const {
    if (!group.Forgets()) return true;
    const Row& row = request.rows[group.id];
    return row.claimed_in[static_cast<size_t>(column)] < kNoClaim &&
           (column >= row.expired || column < group.SinkColumns());
  }
  // Ends the claims of columns that the request's windows have left behind for certain.
  void Expire(Request* request, uint64_t step) {
    if (layout_->forgets) ExpireWindows(request, step);
  }
  // The block is about to be bound as fresh: ends the claims of columns that are needed only while
  // drafts may turn out rejected, and marks every row whose window has claimed it.
  void Lapse(const geometry::Group& group, int64_t block, uint64_t step);
  // Whether a column that is needed holds what it held when it was bound.
  bool HoldsItsBlock(const Request& request, const geometry::Group& group, int64_t column) const;
  void Truncate(Request* request, const geometry::Group& group, int64_t columns, uint64_t step);
  // The claim of a column ends because its block is bound again further on in the same row.
  void MoveAway(Request* request, const geometry::Group& group, int64_t column, uint64_t step) {
    GiveBack(*request, group, column, step);
    request->rows[group.id].claimed_in[static_cast<size_t>(column)] |= kNoClaim;
  }
  // Puts another block into a bound column; the claims are the caller's.
  static void SetEntries(Request* request, const geometry::Group& group, int64_t column,
                         int64_t block);
  // Every block of the pool moves at once: what is known of it, and the entries that name it. No id
  // stands twice as `from` or as `to`.
  void MoveBlocks(uint32_t pool, const std::vector<BlockMove>& moves);
  // The open step's hits in a row become ordinary claims; forget: and are judged no more.
  void SettleHits(const Request& request, const geometry::Group& group, uint64_t step, bool forget);
  // Gives a bound column back; nothing is bound there then.
  void TakeOut(Request* request, const geometry::Group& group, int64_t column, uint64_t step);
  // Cells: positions that are forgotten, and positions that are counted anew. The row's end is the
  // frontier then.
  void Erase(Request* request, const geometry::Group& group, int64_t first, int64_t count,
             uint64_t step);
  void Rebase(Request* request, const geometry::Group& group, int64_t first, int64_t count,
              int64_t by, uint64_t step);
  void MarkAppend(Request* request, const geometry::Group& group) {
    request->rows[group.id].last_append =
        static_cast<uint32_t>(request->rows[group.id].entries.size());
  }

  // --- blocks ---
  bool InPool(const geometry::Group& group, int64_t block) const {
    return block >= 0 && block < layout_->pools[group.pool].num_blocks;
  }
  // block lies in the pool, in all of these.
  Block& TouchBlock(const geometry::Group& group, int64_t block) {
    return blocks_[group.pool].Touch(static_cast<size_t>(block));
  }
  const Block& BlockOf(const geometry::Group& group, int64_t block) const {
    return blocks_[group.pool].At(static_cast<size_t>(block));
  }
  static void SetHome(Block* block, uint32_t group, int64_t column) {
    block->home = static_cast<uint32_t>(column + 1);
    block->home_group = group;
    block->ever_home = true;
  }
  static void ForgetContent(Block* block) {
    block->home = 0;
    block->bound = block->written = false;
    block->content = {};
    block->state_tokens = 0;
  }
  // Whether a prefix hit in that column reads what belongs there, as far as is known.
  static bool IsAtHome(const Block& block, uint32_t group, int64_t column) {
    return block.home == 0 ||
           (block.home == static_cast<uint32_t>(column + 1) && block.home_group == group);
  }
  static void ClaimFresh(Block* block, uint64_t key, uint64_t step) {
    if (block->owner != 0 && block->owner != key) {
      block->last_owner = block->owner;
      block->released_step = step;
    }
    block->owner = key;
    block->since_step = step;
    block->freed = false;
    block->bound = true;
    block->written = false;
    block->content = {};
    block->state_tokens = 0;
    ++block->claims;
  }
  static void ClaimHit(Block* block, uint64_t step) {
    if (block->hit_step != step) {
      block->hit_step = step;
      block->hit_claims = 0;
    }
    ++block->hit_claims;
    ++block->claims;
    block->freed = false;
  }
  // Marks the blocks of a row, so that a binding finds a block that stands in it already without
  // searching. Never zero, and never the same twice.
  uint64_t StampRow(const Request& request, const geometry::Group& group);
  // Live claims that were not made as prefix hits in `step`.
  static uint32_t EarlierClaims(const Block& block, uint64_t step) {
    return block.claims - (block.hit_step == step ? block.hit_claims : 0);
  }
  // A live request other than `but` whose rows name the block: its owner, else the one with the
  // smallest key. Searches: for findings only.
  Holding Holder(const geometry::Group& group, int64_t block, uint64_t but) const;
  // The same of one request; kNoRequest if its rows do not name the block.
  Holding HoldingOf(uint32_t index, const geometry::Group& group, int64_t block) const;

  // Prefix hits of the open step: whoever writes the block may come later in the same record.
  struct Hit {
    uint64_t key = 0;
    uint32_t group = 0;
    int64_t column = 0;
    int64_t computed = 0;  // tokens that the request counted as valid then
  };
  std::vector<Hit>& hits() { return hits_; }

  // --- transfers, zeroing, copies ---
  Transfers& transfers() { return transfers_; }
  const Transfers& transfers() const { return transfers_; }
  Announced& zeroing() { return zeroing_; }
  Announced& copying() { return copying_; }
  const Announced& copying() const { return copying_; }
  // Adds or ends the pins of a transfer. Ids outside the pool pin nothing.
  void Pin(const Transfer& transfer, int by);
  // Whether any block is pinned by a load or a send.
  bool AnyLoading() const { return num_loading_ > 0; }
  bool AnyPinned() const { return num_loading_ > 0 || num_out_ > 0; }
  void SetLost(const geometry::Group& group, int64_t block, bool lost) {
    Block& b = TouchBlock(group, block);
    if (b.lost == lost) return;
    b.lost = lost;
    if (lost) {
      lost_.emplace(group.pool, block);
      lost_claim_ = true;
    } else {
      lost_.erase({group.pool, block});
    }
  }
  // A hit on a block that has lost its content.
  void NoteLostClaim() { lost_claim_ = true; }
  // Whether any claim is left to a block that has lost its content. Such blocks may lie in the free
  // pool for hours: they are looked through only after one of them was claimed.
  bool AnyLostClaimed();
  // A live request with a claim to the block for which `want` holds: the one with the smallest key.
  // want(request, group, column). Searches: for rare events only.
  template <typename Want>
  uint32_t FindClaim(const geometry::Group& group, int64_t block, Want want) const {
    uint32_t found = kNoRequest;
    for (uint32_t i = 0; i < requests_.size(); ++i) {
      const Request& request = requests_[i];
      if (request.key == 0 || (found != kNoRequest && requests_[found].key < request.key)) continue;
      if (HasClaim(request, group, block, want)) found = i;
    }
    return found;
  }
  template <typename Want>
  bool HasClaim(const Request& request, const geometry::Group& group, int64_t block,
                Want want) const {
    for (const geometry::Group& other : layout_->groups) {
      if (other.pool != group.pool) continue;
      const int64_t columns = BoundBlocks(request, other);
      for (int64_t column = 0; column < columns; ++column) {
        if (BlockAt(request, other, column) == block && IsClaimed(request, other, column) &&
            want(request, other, column)) {
          return true;
        }
      }
    }
    return false;
  }

  // The columns that the step's schedule writes of a request.
  static geometry::Group::Columns WrittenBy(const Request& request, const geometry::Group& group) {
    if (group.plain) {
      return {request.start_low / group.block_size,
              (request.start_high + request.num_tokens - 1) / group.block_size};
    }
    if (group.on_host) return {0, -1};
    if (group.IsCross()) {
      if (request.encoder_written) return {0, -1};
      return {0, geometry::BlocksFor(request.encoder, group.block_size) - 1};
    }
    return group.Written(request.start_low, request.start_high, request.num_tokens,
                         request.num_drafts);
  }

  // RING, with a known start: whether the step writes a column's block from its first token on.
  static bool FillsFromFirst(const Request& request, const geometry::Group& group, int64_t column) {
    if (request.start_low != request.start_high) return false;
    const int64_t ahead = column * group.block_size - request.start_low % group.ring;
    return (ahead < 0 ? ahead + group.ring : ahead) < request.num_tokens;
  }

  // Whether something else stands in a ring where a position stood.
  static bool IsOverwritten(const Request& request, const geometry::Group& group, int64_t position);

  // --- states ---
  // The column that holds the state of so many tokens; KVGUARD_NONE where it is not known.
  static int64_t PlaceOf(const Request& request, const geometry::Group& group, int64_t tokens);
  // Where an engine that stores states at block boundaries keeps it besides; KVGUARD_NONE: nowhere.
  static int64_t StoreOf(const Request& request, const geometry::Group& group, int64_t tokens);
  // Whether the state of any count of tokens that the request may have stands in that column.
  static bool MayBePlace(const Request& request, const geometry::Group& group, int64_t column);
  // Copies of states that were done in the open step.
  struct StateCopy {
    uint32_t group = 0;
    int64_t source = 0;
    int64_t target = 0;
  };
  const std::vector<StateCopy>& state_copies() const { return state_copies_; }
  void AddStateCopy(const StateCopy& copy) {
    state_copies_.push_back(copy);
    says_state_copies_ = true;
  }
  // Whether this engine ever says that it copied a state: else it may do so unsaid.
  bool says_state_copies() const { return says_state_copies_; }

  // --- steps ---
  // Stamps one plan; finds a request that has two rows in it.
  uint64_t NextPlanSerial() { return ++plan_serial_; }
  void BeginStep(uint64_t step) {
    open_step_ = step;
    open_ = true;
    ++serial_;
    scheduled_.clear();
    hits_.clear();
    zeroing_.NewStep();
    copying_.NewStep();
    state_copies_.clear();
  }
  // The last step that was begun, over restores; 0 if none was.
  uint64_t last_begun() const { return open_step_; }
  bool IsOpen(uint64_t step) const { return open_ && open_step_ == step; }
  void Schedule(uint32_t index) {
    requests_[index].scheduled_serial = serial_;
    requests_[index].rejected = KVGUARD_NONE;
    std::fill(std::begin(requests_[index].taken), std::end(requests_[index].taken), 0);
    scheduled_.push_back(index);
  }
  bool IsScheduled(const Request& request) const {
    return open_ && request.scheduled_serial == serial_;
  }
  const std::vector<uint32_t>& scheduled() const { return scheduled_; }
  // Whether the step writes the output of some request's encoder.
  bool WritesEncoder() const {
    return std::any_of(scheduled_.begin(), scheduled_.end(), [this](uint32_t index) {
      const Request& request = requests_[index];
      return IsScheduled(request) && request.key != 0 && request.encoder > 0 &&
             !request.encoder_written;
    });
  }
  // Moves the frontiers of what was scheduled, and remembers the step's rows in the order of its
  // plan.
  void EndStep(uint64_t step, bool forward, bool abandoned);
  // The open step's rows in the order of its plan; kept for the next step's explanations if it
  // runs.
  std::vector<ExecutedRow>& executing() { return executing_; }
  // An outcome: `rejected` of the drafts of `step` were taken back. False if that step had fewer
  // drafts (or none); *drafts says how many.
  bool Outcome(Request* request, uint64_t step, int64_t rejected, int64_t* drafts);
  // The frontier is known by other means: outcomes that are still open have no say in it.
  static void Settle(Request* request) {
    if (request->pending.empty()) return;
    for (const PendingOutcome& pending : request->pending) AddSettled(request, pending);
    request->pending.clear();
    request->assumed.clear();
  }
  static void AddSettled(Request* request, const PendingOutcome& outcome);
  // A start was taken from the open step's plan.
  void Assume(Request* request, int64_t start) const;

  // --- history (explanations only) ---
  const std::vector<ExecutedRow>& previous_rows() const { return previous_; }
  uint64_t previous_step() const { return previous_step_; }
  const Released* FindReleased(uint64_t key) const;
  const std::deque<Released>& released() const { return released_; }
  // Live or recently released rows of a request; nullptr if it is forgotten.
  const std::vector<Row>* RowsOf(uint64_t key) const;

  // --- bytes ---
  // with_content: what blocks hold, by name. Without it, readers of the bytes know nothing of it: a
  // recorder writes token ids under other names.
  void Serialize(std::string* out, bool with_content = true) const;
  // Checks everything before anything changes.
  step::Status Restore(std::string_view bytes);

 private:
  void ExpireWindows(Request* request, uint64_t step);
  static void NoteSampled(Request* request, uint64_t step);
  // The step left states behind, or may have.
  void StatesWritten(Request* request, bool abandoned);
  // The step wrote blocks from their first token on.
  void ContentWritten(const Request& request);
  bool OwnersHoldTheirBlocks() const;
  // Columns up to the last one that is counted and no hole.
  int64_t LastCounted(const Request& request, const geometry::Group& group) const;
  void EndRow(Request* request, const geometry::Group& group, int64_t counted);
  void RingsWritten(Request* request, bool abandoned);
  // What a step leaves in groups that are not of positions alone.
  void OthersWritten(Request* request, bool abandoned);
  // Ends the claim of a bound column, if it is one.
  void GiveBack(const Request& request, const geometry::Group& group, int64_t column,
                uint64_t step);
  void AddReleased(Released released);
  void TrimHistory(uint64_t step);

  const geometry::Layout* layout_ = nullptr;
  std::vector<BlockStore> blocks_;  // by pool
  uint64_t stamp_ = 0;
  std::vector<Hit> hits_;
  Transfers transfers_;
  Announced zeroing_;
  Announced copying_;
  std::vector<StateCopy> state_copies_;
  bool says_state_copies_ = false;
  int64_t num_loading_ = 0;  // pins of loads, of sends, and blocks without content
  int64_t num_out_ = 0;
  std::set<std::pair<uint32_t, int64_t>> lost_;  // pool, block
  bool lost_claim_ = false;                      // whether any of them may be claimed
  std::vector<Request> requests_;
  std::vector<uint32_t> free_;
  KeyMap map_;
  uint64_t open_step_ = 0;
  bool open_ = false;
  uint64_t plan_serial_ = 0;
  uint64_t serial_ = 0;  // of BEGINs; stamps what belongs to the open step
  std::vector<uint32_t> scheduled_;

  uint32_t history_steps_ = 64;
  uint64_t history_bytes_ = 4u << 20;
  uint64_t released_bytes_ = 0;
  std::deque<Released> released_;
  std::vector<ExecutedRow> executing_;
  std::vector<ExecutedRow> previous_;
  uint64_t previous_step_ = 0;
};

}  // namespace kvguard::mirror

#endif  // KVGUARD_SRC_MIRROR_MIRROR_H_
