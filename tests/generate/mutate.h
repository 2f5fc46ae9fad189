// SPDX-License-Identifier: Apache-2.0
// One fault in one record of a program, after the fact: what an engine's bug, an adapter's bug or a
// damaged buffer would have shown.
#ifndef KVGUARD_TESTS_GENERATE_MUTATE_H_
#define KVGUARD_TESTS_GENERATE_MUTATE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/generate/program.h"

namespace kvguard::generate {

struct Mutation {
  std::string kind;   // "off-by-one", "swapped", "dropped", ...
  size_t record = 0;  // in the program's records
  uint64_t step = 0;
  std::string field;  // "plan.slots", "begin.event.blocks", ...
  int64_t group = -1;
  int64_t element = -1;
  int64_t old_value = 0;
  int64_t new_value = 0;
};

// Of a BEGIN's events: a pair of blocks that move. m: what is known of the fault so far; nullopt
// where there is no place for one.
std::optional<Mutation> ChangePair(Random* random, std::vector<Event>* events, Mutation m);
// A row's list is another one's, out of order, without one of its entries, or gone.
std::optional<Mutation> ChangeList(Random* random, Plan* plan, Mutation m);
// Changes one of the records; nullopt where the draw found no place for its fault.
std::optional<Mutation> MutateOnce(const Options& options, Random* random,
                                   std::vector<Record>* records);
// Draws until a record has changed; the records are then no longer what they were.
std::optional<Mutation> Mutate(const Options& options, uint64_t seed, std::vector<Record>* records);

}  // namespace kvguard::generate

#endif  // KVGUARD_TESTS_GENERATE_MUTATE_H_
