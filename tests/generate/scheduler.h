// SPDX-License-Identifier: Apache-2.0
// A legal scheduler: waiting and running requests, a token budget, chunked prefill, prefix hits,
// preemption by recompute, asynchronous counts. It decides steps; a runner carries them out.
#ifndef KVGUARD_TESTS_GENERATE_SCHEDULER_H_
#define KVGUARD_TESTS_GENERATE_SCHEDULER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/generate/options.h"
#include "tests/generate/pool.h"
#include "tests/generate/random.h"
#include "tests/generate/situations.h"

namespace kvguard::generate {

using Blocks = std::vector<std::vector<int64_t>>;  // by group

// What makes equal tokens unequal.
struct Domain {
  uint32_t kind = 0;
  uint64_t identity = 0;
  int64_t first = 0;
  int64_t count = 0;

  bool operator==(const Domain&) const = default;
};

// What the domains of a request add to its token at this position.
uint64_t DomainAt(const std::vector<Domain>& domains, int64_t position);

// What happens to a row of cells: positions are forgotten (ERASE), or counted anew (REBASE).
struct RowEdit {
  uint32_t kind = 0;
  int64_t first = 0;
  int64_t count = 0;
  int64_t value = 0;  // REBASE: what is added
};

// A step, as the scheduler hands it to the runner.
struct Decision {
  struct End {
    uint64_t key = 0;
    bool preempted = false;
    bool replaced = false;
  };
  struct Rollback {
    uint64_t key = 0;
    int64_t count = 0;
  };
  // Blocks of a group's pool in other places: (old, new).
  struct Remap {
    uint32_t group = 0;
    uint32_t reason = 0;
    std::vector<std::pair<int64_t, int64_t>> pairs;
  };
  // What happens to all rows of a request, one after another, and its tokens afterwards: those from
  // `changed` on are others than they were.
  struct Edit {
    uint64_t key = 0;
    std::vector<RowEdit> parts;
    std::vector<uint32_t> tokens;
    int64_t changed = 0;
    int64_t computed = 0;  // afterwards
  };
  struct Admission {
    uint64_t key = 0;
    std::string name;
    std::vector<uint32_t> tokens;  // known ones
    std::vector<Domain> domains;
    Domain encoder;  // of the encoder's output; count 0: none
    int64_t computed = 0;
    int64_t external = 0;  // of them, tokens that a connector brought
    Blocks blocks;
  };
  struct Append {
    uint64_t key = 0;
    Blocks blocks;
  };
  struct Slice {
    uint64_t key = 0;
    int64_t tokens = 0;
    int64_t computed = 0;  // the scheduler's count before the step
    uint32_t drafts = 0;
    bool samples = false;  // its last token is the last known one
  };
  struct Zero {
    uint32_t group = 0;
    std::vector<int64_t> blocks;
  };
  struct Copy {
    uint32_t group = 0;
    int64_t source = 0;
    int64_t target = 0;
    int64_t tokens = 0;  // 0: the whole block
  };
  // What a connector does: kvguard_event_kind of a transfer.
  struct Transfer {
    uint32_t kind = 0;
    uint64_t id = 0;
    uint64_t key = 0;
    uint32_t group = 0;
    std::vector<int64_t> blocks;
    int64_t first = 0;  // positions
    int64_t count = 0;
    // What arrives: the request's first tokens, for the runner's memory.
    std::vector<uint32_t> tokens;
    std::vector<Domain> domains;
  };
  std::vector<Transfer> sends;  // before the ends
  std::vector<End> ends;
  std::vector<Remap> moves;     // behind them
  std::vector<Edit> edits;      // behind them
  std::vector<Transfer> loads;  // behind the ends
  std::vector<Rollback> rollbacks;
  std::vector<Admission> admissions;
  std::vector<Append> appends;
  std::vector<Remap> late_moves;  // when everything is bound
  std::vector<Zero> zeros;        // before anything else of the step
  std::vector<Copy> copies;       // behind them
  std::vector<Slice> scheduled;
};

// What a step brought.
struct StepOutput {
  struct Row {
    Decision::Slice slice;
    uint32_t rejected = 0;
    std::vector<uint32_t> sampled;
  };
  uint64_t step = 0;
  std::vector<Row> rows;
};

// Outcomes that may be owed when a step begins.
inline constexpr int64_t kMostUntold = 3;

class Scheduler {
 public:
  Scheduler(const Options& options, Random* random, Situations* situations);

  // What happens between steps: requests come, are aborted, replaced.
  void Traffic();
  Decision Schedule();
  // The output of the oldest step that was scheduled and not told yet.
  void Process(const StepOutput& output);
  // Transfers that came to their end after this step.
  std::vector<Decision::Transfer> EndTransfers();
  // Everything cached is void; what runs starts again under new keys.
  void Reset();
  bool idle() const { return running_.empty() && waiting_.empty(); }

 private:
  struct Request {
    uint64_t key = 0;
    std::string name;
    std::vector<uint32_t> tokens;  // prompt, and output as far as it is known
    std::vector<Domain> domains;
    Domain encoder;
    int64_t target = 0;    // tokens in the end
    int64_t computed = 0;  // optimistic: as if every draft in flight were accepted
    int64_t in_flight = 0;
    int64_t placeholders = 0;  // sampled in flight, drafts included
    bool decoding = false;
    bool preempted = false;
    bool edited = false;   // what its blocks hold has no name any more
    int64_t most = 0;      // that was ever computed of this incarnation
    int64_t external = 0;  // tokens that a connector brought for this incarnation
    Blocks blocks;
    std::vector<std::vector<uint64_t>> hashes;  // by group, of full blocks, as far as asked for
    std::vector<int64_t> indexed;               // by group: columns that were offered to the index
    std::vector<char> allocated;                // by group: it has fresh blocks, not hits alone
  };
  using Owned = std::unique_ptr<Request>;
  enum class Freed { kNever, kFinished, kPreempted, kErased };

  struct Load {
    Owned request;
    std::vector<Decision::Transfer> parts;  // one for each group
    int64_t hit = 0;                        // tokens that were there already
    int64_t end = 0;                        // tokens that are there when it is complete
    bool announced = false;                 // else its blocks are only reserved
    bool aborted = false;
  };
  struct Send {
    std::vector<Decision::Transfer> parts;
  };

  const GroupOptions& Group(size_t g) const { return options_.groups[g]; }
  // Whether only the last of new columns gets a block.
  bool OnlyLast(size_t g) const {
    return Group(g).is_state() && Group(g).state_mode == KVGUARD_STATE_ALIGN;
  }
  int64_t ColumnsFor(const Request& r, size_t g, int64_t tokens) const {
    return Group(g).ColumnsFor(Group(g).is_cross() ? r.encoder.count : tokens);
  }
  bool Has(Fault fault) const { return options_.fault == fault; }
  BlockPool& PoolOf(size_t g) { return pools_[Group(g).pool]; }
  int64_t Known(const Request& r) const { return static_cast<int64_t>(r.tokens.size()); }

  Owned NewRequest();
  std::vector<Domain> DrawDomains(int64_t length);
  void AbortSome();
  void ReplaceSome(Decision* decision, int64_t* budget);
  void RollBackSome(Decision* decision);
  bool CanRollBack(const Request& r, int64_t count);
  bool Want(Request& r, int64_t budget, Decision::Slice* slice);
  void ScheduleRunning(Decision* decision, int64_t* budget, bool* preempted);
  void ScheduleWaiting(Decision* decision, int64_t* budget);
  // False: no room; the request stays where it was.
  bool Admit(Request& r, Decision* decision, int64_t* budget);
  bool Allocate(Request& r, int64_t tokens, Blocks* fresh);
  int64_t FreshStates(const Request& r, size_t g, int64_t columns) const;
  void AllocateStates(Request& r, size_t g, int64_t columns, Blocks* fresh);
  int64_t TakeBlock(size_t g);
  void Zero(const Blocks& fresh, Decision* decision);
  void DropSkipped(Request& r);
  int64_t Hit(Request& r);
  bool Holds(Request& r, size_t g, int64_t tokens);
  uint64_t HashOf(Request& r, size_t g, int64_t column);
  void Index(Request& r, int64_t tokens);
  static uint64_t ItemOf(const Request& r, int64_t position);
  void Describe(Request& r, size_t g, int64_t column);
  std::pair<int64_t, int64_t> BestPart(Request& r, size_t g, int64_t hit);
  int64_t PartialHit(Request& r, int64_t hit, std::vector<Decision::Copy>* copies);
  void DropRetained();
  bool Pinned(uint32_t pool, int64_t block) const;
  void MoveSome(Decision* decision, bool late);
  Decision::Remap DrawMove(size_t g, bool swap, const std::vector<int64_t>& first);
  Decision::Remap Dedupe(size_t g);
  int64_t Certain(const Request& r) const;
  bool HoldersMayShare(size_t g, int64_t block);
  void Rename(uint32_t pool, const std::vector<std::pair<int64_t, int64_t>>& pairs,
              Decision* decision);
  std::vector<Request*> Everybody();
  void EditSome(Decision* decision);
  void Erase(Request& r, int64_t first, int64_t count, Decision::Edit* edit);
  void Rebase(Request& r, int64_t first, int64_t by, Decision::Edit* edit);
  bool Alone(const Request& r, int64_t first);
  bool StartLoad(Decision* decision);
  bool AllocateLoad(Request& r, int64_t end);
  void AddParts(const Request& r, size_t g, int64_t hit, int64_t end,
                std::vector<Decision::Transfer>* parts);
  void Announce(Load* load, bool only_reserve, Decision* decision);
  void EndLoad(size_t index, std::vector<Decision::Transfer>* ended);
  void AnnounceLoads(Decision* decision);
  void StartSend(Request& r);
  void Release(const Send& send);
  bool WritesWhatIsSent(const Request& r);
  int64_t EndOf(const Decision::Slice& slice);
  void Commit(Request& r, const Decision::Slice& slice, Decision* decision);
  void Free(Request& r, Freed why);
  Decision Decide();
  void Preempt(Decision* decision);
  void Finish(size_t index, bool keep);

  // What a block in the index holds, token by token.
  struct Described {
    size_t group = 0;
    uint64_t hash = 0;
    uint64_t parent = 0;
    std::vector<uint64_t> items;
  };

  const Options& options_;
  Random& random_;
  Situations& situations_;
  std::vector<BlockPool> pools_;
  std::vector<Owned> running_;
  std::deque<Owned> waiting_;
  std::vector<Decision::End> ends_;             // since the last decision
  std::vector<std::vector<uint32_t>> streams_;  // tokens that prompts begin with
  std::vector<std::vector<uint32_t>> history_;  // of finished requests
  std::vector<std::vector<Domain>> history_domains_;
  std::vector<uint64_t> dead_keys_;
  // By pool and block: the schedule whose decision tells of its being freed, and the one in which
  // it entered the index.
  std::vector<std::vector<std::pair<uint64_t, Freed>>> freed_in_;
  std::vector<std::vector<uint64_t>> indexed_in_;
  std::vector<std::vector<Described>> described_;
  std::vector<std::vector<char>> moved_;  // by pool and block: in this step or an earlier one
  // Sources of copies, by step that is not processed yet: (group, block).
  std::deque<std::vector<std::pair<size_t, int64_t>>> retained_;
  std::vector<Load> loads_;
  std::vector<Send> sends_;
  std::vector<Decision::Transfer> new_sends_;      // since the last decision
  std::vector<std::vector<uint32_t>> being_sent_;  // by pool and block: how often
  uint64_t next_transfer_ = 1;
  uint64_t schedules_ = 0;
  bool deciding_ = false;
  uint64_t next_key_ = 1;
  uint64_t next_name_ = 0;
};

}  // namespace kvguard::generate

#endif  // KVGUARD_TESTS_GENERATE_SCHEDULER_H_
