// SPDX-License-Identifier: Apache-2.0
// The self-test: faults that are planted in a scratch mirror, and the proof that each audit ran. It
// touches no other guard, reads no clock and writes nothing; one guard of a few kilobytes lives at
// a time.
#ifndef KVGUARD_SRC_AUDIT_SELFTEST_H_
#define KVGUARD_SRC_AUDIT_SELFTEST_H_

#include <cstdint>
#include <span>
#include <string>

#include "audit/scenario.h"
#include "geometry/equal.h"
#include "kvguard/kvguard.h"
#include "step/status.h"

namespace kvguard::audit {

// A fault that gives exactly one finding, and the nearest thing that is right.
struct Planted {
  uint32_t code;
  const char* fault;
  const char* request;  // that the finding names; "": none
  uint32_t group;       // KVGUARD_ALL_GROUPS: none
  int64_t pos;          // KVGUARD_NONE: none
  void (*plant)(Scenario&);
  const char* neighbour;
  // How many facts the neighbour gives the code's family to judge. Fewer judged ones: the audit
  // did not see them all.
  uint64_t facts;
  void (*legal)(Scenario&);
  void (*options)(ScenarioOptions&) = nullptr;
};

// At least one of every family that the catalog has rules for.
std::span<const Planted> PlantedFaults();

enum class Outcome {
  kFound,   // where it was planted, as what it is; silent on the neighbour
  kBlind,   // an audit that should have run judged nothing, or not all there was
  kBroken,  // it ran and judged wrongly
};

struct Trial {
  uint32_t code = 0;  // family: code / 100
  std::string fault;
  Outcome outcome = Outcome::kFound;
  std::string why;      // one sentence that names the family; empty where found
  uint64_t judged = 0;  // facts, by the family's counter, in the neighbour
};

Trial Try(const Planted& planted);

// A wrong value at every place of arrays, through one set of the comparisons that tables and slots
// are judged with. A guard runs the widest set of the processor alone, so each is tried for itself.
Trial TryKernels(const geometry::EqualKernels& kernels);

// A family of the catalog without a planted fault: kBlind, by name. Else kFound.
Trial TryCatalog(std::span<const kvguard_rule> catalog, std::span<const Planted> planted);

// All of it; KVGUARD_ERROR_INTERNAL with the first that was not found.
step::Status SelfTest();
step::Status SelfTest(std::span<const kvguard_rule> catalog, std::span<const Planted> planted);

}  // namespace kvguard::audit

#endif  // KVGUARD_SRC_AUDIT_SELFTEST_H_
