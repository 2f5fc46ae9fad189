// SPDX-License-Identifier: Apache-2.0
// A small legal scheduler that draws its decisions from a seed: admissions with prefix hits,
// chunked prefill, decoding, drafts, preemption, reuse, several groups. It drives scenarios;
// whatever it does must be clean.
#ifndef KVGUARD_TESTS_RANDOM_ENGINE_H_
#define KVGUARD_TESTS_RANDOM_ENGINE_H_

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "audit/scenario.h"

namespace kvguard::tests {

struct EngineOptions {
  audit::ScenarioOptions scenario;
  bool async = false;  // outcomes of drafts may come late, and the scheduler may know them late
  uint32_t max_drafts = 0;
  bool final_plans = false;  // each plan is shown at both stages
  size_t max_live = 6;

  // Everything a seed may vary.
  static EngineOptions Draw(uint64_t seed, uint32_t max_drafts, bool async);
};

// A scheduler's decision that is wrong on purpose.
enum class BindingFault {
  kNone,
  kForeignBlock,  // a new column gets a block that a live request holds
  kOutOfRange,    // ... an id outside the pool
  kNull,          // ... the null block
  kRepeated,      // ... a block that stands in the row already
  kShort,         // ... nothing at all
  kCountAhead,    // the count of computed tokens is too large
};

class RandomEngine {
 public:
  RandomEngine(uint64_t seed, EngineOptions options);

  // Decides a step and feeds its BEGIN to every scenario. The fault is put where it can be; false
  // where this step offers no place for it.
  bool Begin(const std::vector<audit::Scenario*>& scenarios,
             BindingFault fault = BindingFault::kNone);
  // The right plan of the open step, with rows in some order, padding and residue: what a real
  // runner would show.
  audit::ScenarioPlan Plan(const audit::Scenario& scenario);
  // Feeds the plan (at both stages, where the engine shows both), the END and the outcomes.
  void Finish(const std::vector<audit::Scenario*>& scenarios, const audit::ScenarioPlan& plan);
  void Step(const std::vector<audit::Scenario*>& scenarios) {
    Begin(scenarios);
    Finish(scenarios, Plan(*scenarios[0]));
  }

  size_t num_scheduled() const { return scheduled_.size(); }
  // Whether this request's start in the open step follows from the stream alone.
  bool StartIsKnown(const std::string& name) const { return open_drafts_.count(name) == 0; }
  const std::vector<std::string>& scheduled() const { return scheduled_; }
  uint64_t Random() { return random_(); }
  uint64_t Below(uint64_t bound) { return random_() % bound; }
  bool OneIn(uint64_t n) { return Below(n) == 0; }

 private:
  struct Request {
    std::string name;
    std::vector<uint32_t> tokens;  // known ones; grows while decoding
    size_t prompt = 0;
    size_t length = 0;  // tokens in the end
    int64_t computed = 0;
    int64_t counted = 0;                       // the scheduler's count of them
    std::vector<std::vector<int64_t>> blocks;  // by group
  };
  struct Pool {
    std::vector<int64_t> free;
    std::vector<uint32_t> holders;                    // by block
    std::map<std::vector<uint64_t>, int64_t> cached;  // (group, tokens of the prefix) -> block
    std::map<int64_t, std::vector<uint64_t>> key_of;
  };
  // One request's events of this step, and what it is scheduled for.
  struct Decision {
    size_t request = 0;
    bool admit = false;
    std::vector<std::vector<int64_t>> fresh;  // by group
    int64_t tokens = 0;
    uint32_t drafts = 0;
  };
  struct Outcome {
    std::string name;
    uint64_t step = 0;
    uint32_t rejected = 0;
  };

  const audit::ScenarioGroup& Group(size_t g) const { return options_.scenario.groups[g]; }
  Pool& PoolOf(size_t g) { return pools_[Group(g).pool]; }
  int64_t Take(size_t g);
  void Drop(size_t g, int64_t block);
  bool CanHold(const Request& request, int64_t tokens);
  // Blocks for `tokens` tokens in every group; what was added, by group.
  std::vector<std::vector<int64_t>> Grow(Request& request, int64_t tokens);
  void Cache(const Request& request, int64_t tokens);
  int64_t Hit(Request& request);
  std::vector<uint64_t> PrefixKey(size_t g, const Request& request, size_t tokens) const;
  void Release(size_t index);
  Request NewRequest();
  void DecideEnds(const std::vector<audit::Scenario*>& scenarios);
  void DecideRunning(std::vector<Decision>* decisions);
  void DecideWaiting(std::vector<Decision>* decisions);
  bool Spoil(BindingFault fault, std::vector<Decision>* decisions);
  void FeedOutcomes(const std::vector<audit::Scenario*>& scenarios, bool all);

  EngineOptions options_;
  std::mt19937_64 random_;
  std::vector<Pool> pools_;
  std::vector<Request> live_;
  std::vector<Request> waiting_;  // preempted ones, which come back
  std::vector<std::string> scheduled_;
  std::map<std::string, Decision> decided_;
  std::map<std::string, uint32_t> open_drafts_;  // drafts whose outcome the guard has not heard of
  std::vector<Outcome> outcomes_;
  std::string ahead_;  // whose count is wrong on purpose
  uint64_t next_name_ = 0;
};

}  // namespace kvguard::tests

#endif  // KVGUARD_TESTS_RANDOM_ENGINE_H_
