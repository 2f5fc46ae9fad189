// SPDX-License-Identifier: Apache-2.0
// A legal runner: persistent rows with the residue of earlier requests, a batch order of its own,
// gathered tables, slots computed from them, padding. It writes and reads the modelled memory
// through the very numbers that it shows.
#ifndef KVGUARD_TESTS_GENERATE_RUNNER_H_
#define KVGUARD_TESTS_GENERATE_RUNNER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/generate/memory.h"
#include "tests/generate/options.h"
#include "tests/generate/random.h"
#include "tests/generate/records.h"
#include "tests/generate/scheduler.h"
#include "tests/generate/situations.h"

namespace kvguard::generate {

class Runner {
 public:
  Runner(const Options& options, Random* random, Situations* situations);

  // Ends, admissions and appends of a step.
  void Apply(const Decision& decision, uint64_t step);
  // Running states whose column changes in this step go along.
  std::vector<Decision::Copy> CopyStates(const Decision& decision);
  // The plan of the step's target pass; Apply came before.
  const Plan& Prepare(const Decision& decision);
  // The same plan as another reader shows it.
  Plan Shown(uint32_t pass, uint32_t stage) const;
  // Prefill context parallel: the slots of every rank, one behind the other.
  void Spread(Plan* plan) const;
  // The target's plan of this stage, in parts of at least one token.
  std::vector<Plan> ShownParts(uint32_t stage) const;
  // The draft model's step k behind the forward: a token of each request that sampled and has a
  // block for it. No rows: there is none.
  Plan ShownDraft(uint32_t k, const Decision& decision) const;
  // That over the encoder's output.
  Plan ShownCross(uint32_t stage);
  // The forward and the sampling: writes, reads, advances.
  StepOutput Forward(const Decision& decision);
  // What a connector brought.
  void Receive(const Decision::Transfer& transfer);
  // What a connector reads, from its first word to its last.
  void StartSend(const Decision::Transfer& transfer);
  void EndSend(const Decision::Transfer& transfer);
  Plan Dummy();
  void Reset();

  // Empty while every read met what it expected.
  const std::string& error() const { return error_; }
  uint64_t error_step() const { return error_step_; }

 private:
  struct Row {
    uint64_t key = 0;  // 0: not in use
    std::vector<uint32_t> tokens;
    std::vector<uint64_t> chain;  // content up to each token; drafts of the open step behind
    std::vector<Domain> domains;
    Domain encoder;
    int64_t computed = 0;
    int64_t prompt = 0;      // tokens at its admission
    int64_t states_end = 0;  // tokens when its last step ended, before rejected drafts
    int64_t states_drafts = 0;
    std::vector<int64_t> columns;  // by group, in table units
    uint64_t freed_in = 0;
  };

  const GroupOptions& Group(size_t g) const { return options_.groups[g]; }
  size_t RowOf(uint64_t key) const;
  void Append(size_t row, const Blocks& blocks, bool overwrite);
  void ExtendChain(Row* row, uint32_t token, int64_t position);
  void ZeroAndCopy(const Decision& decision);
  void Order(const Decision& decision);
  void Gather(GroupPlan* plan, size_t g);
  // Where a row's token is by the gathered table; -1: on another rank.
  // What a list of reads is made for: a row of the batch, and the tokens [start, length) that this
  // pass computes.
  struct ListRow {
    size_t b = 0;
    int64_t start = 0;
    int64_t length = 0;
  };
  // The lists of a pass, in the arrays of *to.
  void MakeLists(GroupPlan* to, size_t g, const std::vector<ListRow>& rows, uint64_t padded) const;
  void AddToList(GroupPlan* to, size_t g, const ListRow& row) const;
  void ReadList(size_t b, size_t g);
  void ReadRing(size_t b, size_t g);
  void KeepRing(size_t b, size_t g);
  // What stands for a token that is not kept, and for padding.
  int64_t Thrown(size_t g) const;
  void Pads(Array* slots, size_t g, uint64_t first, uint64_t last) const;
  void Move(const std::vector<Decision::Remap>& moves);
  void Edit(const Decision::Edit& edit);
  void EditPart(size_t row, size_t g, const RowEdit& part);
  int64_t SlotOf(const GroupPlan& plan, size_t b, size_t g, int64_t position) const;
  Array LengthsOf(const GroupOptions& group, Array lengths) const;
  void ComputeSlots(GroupPlan* plan, size_t g);
  void PointStates(GroupPlan* plan, size_t g, const Decision& decision);
  int64_t BlockOf(size_t row, size_t g, int64_t column) const;
  int64_t PlaceOf(size_t row, size_t g) const;
  void ReadState(size_t b, size_t g);
  void WriteState(size_t b, size_t g, int64_t drafts);
  void RunCross(size_t b, size_t g);
  void Pad(const Decision& decision);
  void WriteAll();
  void ReadAll();
  void ReadRow(size_t b, size_t g);
  Tag Expected(size_t b, size_t g, int64_t position) const;
  std::vector<Tag> Contents(const Decision::Transfer& transfer);
  void Fail(const std::string& what, size_t b, size_t g, int64_t position);

  const Options& options_;
  Random& random_;
  Situations& situations_;
  Memory memory_;
  std::vector<Row> rows_;
  std::vector<size_t> free_rows_;             // the last one is taken first
  std::vector<std::vector<int64_t>> tables_;  // by group: max_running rows, persistent
  std::vector<int64_t> widths_;               // by group, in table units
  std::vector<size_t> order_;                 // of batch rows: index in the decision's schedule
  std::vector<size_t> batch_;                 // of batch rows: index in rows_
  std::vector<int64_t> starts_;               // of batch rows: their first position
  Plan plan_;  // persistent buffers of whole length; what is beyond the step is residue
  uint64_t steps_ = 0;
  std::map<uint64_t, std::vector<Tag>> sent_;  // by transfer: what its blocks held
  uint64_t step_ = 0;                          // of the records
  std::string error_;
  uint64_t error_step_ = 0;
};

}  // namespace kvguard::generate

#endif  // KVGUARD_TESTS_GENERATE_RUNNER_H_
