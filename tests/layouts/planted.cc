// SPDX-License-Identifier: Apache-2.0
#include "tests/layouts/planted.h"

#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "rules/catalog.h"

namespace kvguard::tests {
namespace {

std::string Trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(' ');
  const size_t last = text.find_last_not_of(' ');
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

}  // namespace

std::map<std::string, PlantedLine> ReadPlantedList(const std::string& file) {
  std::map<std::string, PlantedLine> expected;
  std::ifstream in(std::string(KVGUARD_SOURCE_DIR) + "/tests/layouts/" + file);
  EXPECT_TRUE(in.good()) << file;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream fields(line);
    std::string name;
    std::string code;
    std::string sentence;
    std::string neighbour;
    std::getline(fields, name, '|');
    std::getline(fields, code, '|');
    std::getline(fields, sentence, '|');
    std::getline(fields, neighbour);
    EXPECT_FALSE(Trimmed(sentence).empty()) << line;
    PlantedLine planted;
    planted.code = static_cast<uint32_t>(std::stoul(code));
    planted.neighbour = Trimmed(neighbour);
    EXPECT_TRUE(expected.emplace(Trimmed(name), planted).second) << line;
  }
  for (const auto& [name, line] : expected) {
    if (line.code == 0) continue;
    const auto legal = expected.find(line.neighbour);
    EXPECT_TRUE(legal != expected.end() && legal->second.code == 0) << name << ": no neighbour";
  }
  return expected;
}

std::set<uint32_t> CodesOfPlantedLists() {
  std::set<uint32_t> codes;
  for (const char* file : {"window_faults.txt", "transfer_faults.txt", "content_faults.txt",
                           "context_parallel_faults.txt", "state_faults.txt", "pass_faults.txt",
                           "prefill_parallel_faults.txt", "list_faults.txt", "ring_faults.txt",
                           "move_faults.txt", "cell_faults.txt"}) {
    for (const auto& [name, line] : ReadPlantedList(file)) codes.insert(line.code);
  }
  codes.erase(0);
  return codes;
}

void CheckPlantedList(const std::string& file,
                      const std::map<std::string, PlantedScenario>& scenarios) {
  const std::map<std::string, PlantedLine> expected = ReadPlantedList(file);
  for (const auto& [name, line] : expected) EXPECT_EQ(scenarios.count(name), 1u) << name;
  for (const auto& [name, scenario] : scenarios) {
    SCOPED_TRACE(name);
    ASSERT_EQ(expected.count(name), 1u);
    const uint32_t code = expected.at(name).code;
    audit::Scenario s(scenario.options);
    scenario.run(s);
    const auto findings = s.Findings();
    if (code == 0) {
      EXPECT_TRUE(findings.empty()) << s.Report();
      EXPECT_EQ(s.verdict().verdict, static_cast<uint32_t>(KVGUARD_CLEAN)) << s.error();
    } else {
      ASSERT_FALSE(findings.empty());
      EXPECT_EQ(findings[0].code, code) << s.Report();
      EXPECT_EQ(findings[0].step, s.step()) << "found at its first bad step\n" << s.Report();
      EXPECT_EQ(findings[0].grade, static_cast<uint32_t>(KVGUARD_GRADE_PROOF));
    }
    EXPECT_EQ(s.Restore(s.Snapshot()), KVGUARD_OK) << s.error();
  }
}

}  // namespace kvguard::tests
