// SPDX-License-Identifier: Apache-2.0
// Named engines with the work they are given.
#ifndef KVGUARD_LAB_SCENARIO_H_
#define KVGUARD_LAB_SCENARIO_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "lab/config.h"
#include "lab/workload.h"

namespace kvguard::lab {

struct Setup {
  EngineConfig engine;
  WorkloadConfig workload;
};

struct Scenario {
  std::string_view name;
  std::string_view sentence;
  Setup (*make)(uint64_t seed);
};

std::span<const Scenario> Scenarios();
const Scenario* FindScenario(std::string_view name);

}  // namespace kvguard::lab

#endif  // KVGUARD_LAB_SCENARIO_H_
