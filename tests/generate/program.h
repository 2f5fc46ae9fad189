// SPDX-License-Identifier: Apache-2.0
// A program: the record stream of a legal engine, made from a seed.
#ifndef KVGUARD_TESTS_GENERATE_PROGRAM_H_
#define KVGUARD_TESTS_GENERATE_PROGRAM_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "kvguard/kvguard.hpp"
#include "tests/generate/options.h"
#include "tests/generate/random.h"
#include "tests/generate/records.h"
#include "tests/generate/runner.h"
#include "tests/generate/scheduler.h"
#include "tests/generate/situations.h"

namespace kvguard::generate {

struct Program {
  Options options;
  GeometryBuilder geometry;
  std::vector<Record> records;
  Situations situations;
  uint64_t steps = 0;
  std::string error;  // the memory did not hold what a read expected: a bug of the engine
  uint64_t error_step = 0;
};

// The engine: lets the scheduler decide, the runner run, and writes down what an adapter would see.
class Engine {
 public:
  explicit Engine(const Options& options);
  Engine(const Engine&) = delete;  // its parts point at each other

  void Step();
  bool broken() const { return !runner_.error().empty(); }
  // Outcomes that are still owed.
  void Flush();
  Program Take();

 private:
  Record NewRecord(uint32_t kind, uint64_t step) const;
  void Begin(const Decision& decision);
  void AddEvents(const Decision& decision, std::vector<Event>* events);
  void AddAdmission(const Decision::Admission& admission, std::vector<Event>* events);
  void AddBlocks(uint32_t kind, uint64_t key, const Blocks& blocks, std::vector<Event>* events);
  void AddTransfers(const std::vector<Decision::Transfer>& transfers, std::vector<Event>* events);
  void EndTransfers();
  void AddRemaps(const std::vector<Decision::Remap>& moves, std::vector<Event>* events);
  void AddEdits(const std::vector<Decision::Edit>& edits, std::vector<Event>* events);
  // Zeroing and copies, announced or done.
  void AddMoves(const Decision& decision, bool done, std::vector<Event>* events);
  void MovesDone(const Decision& decision);
  void Plans(const Decision& decision);
  void DraftSteps(const Decision& decision);
  void NamePads();
  void MaybeDummy(bool inside);
  void TellOutcome(const StepOutput& output);
  void TellOutcomes(size_t keep);
  void ProcessOutputs(size_t keep);
  void MaybeReset();

  Program program_;
  Random random_;
  Scheduler scheduler_;
  Runner runner_;
  std::deque<StepOutput> unprocessed_;  // by the scheduler
  std::deque<StepOutput> untold_;       // to the guard
  std::vector<uint64_t> ended_;         // keys whose end was told
  uint64_t step_ = 0;
  uint64_t warm_up_steps_ = 0;
};

Program Generate(const Options& options, uint64_t steps);

}  // namespace kvguard::generate

#endif  // KVGUARD_TESTS_GENERATE_PROGRAM_H_
