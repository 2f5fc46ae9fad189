// SPDX-License-Identifier: Apache-2.0
// Runs a committed list of planted faults: each name of the list has a scenario, each scenario a
// name, and the first finding of each is the one that the list expects.
#ifndef KVGUARD_TESTS_LAYOUTS_PLANTED_H_
#define KVGUARD_TESTS_LAYOUTS_PLANTED_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "audit/scenario.h"

namespace kvguard::tests {

struct PlantedScenario {
  audit::ScenarioOptions options;
  std::function<void(audit::Scenario&)> run;
};

// One line of a list. code 0: legal. neighbour: the legal entry that is nearest to a fault.
struct PlantedLine {
  uint32_t code = 0;
  std::string neighbour;
};

std::map<std::string, PlantedLine> ReadPlantedList(const std::string& file);

// Codes that the lists plant together with a legal neighbour.
std::set<uint32_t> CodesOfPlantedLists();

// Asserts the above of every entry, and that each snapshot taken at the end restores.
void CheckPlantedList(const std::string& file,
                      const std::map<std::string, PlantedScenario>& scenarios);

}  // namespace kvguard::tests

#endif  // KVGUARD_TESTS_LAYOUTS_PLANTED_H_
