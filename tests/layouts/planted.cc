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

std::map<std::string, uint32_t> ReadPlantedList(const std::string& file) {
  std::map<std::string, uint32_t> expected;
  std::ifstream in(std::string(KVGUARD_SOURCE_DIR) + "/tests/layouts/" + file);
  EXPECT_TRUE(in.good()) << file;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream fields(line);
    std::string name;
    std::string code;
    std::string sentence;
    std::getline(fields, name, '|');
    std::getline(fields, code, '|');
    std::getline(fields, sentence);
    EXPECT_FALSE(Trimmed(sentence).empty()) << line;
    EXPECT_TRUE(expected.emplace(Trimmed(name), std::stoul(code)).second) << line;
  }
  return expected;
}

void CheckPlantedList(const std::string& file,
                      const std::map<std::string, PlantedScenario>& scenarios) {
  const std::map<std::string, uint32_t> expected = ReadPlantedList(file);
  for (const auto& [name, code] : expected) EXPECT_EQ(scenarios.count(name), 1u) << name;
  for (const auto& [name, scenario] : scenarios) {
    SCOPED_TRACE(name);
    ASSERT_EQ(expected.count(name), 1u);
    const uint32_t code = expected.at(name);
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
    }
    EXPECT_EQ(s.Restore(s.Snapshot()), KVGUARD_OK) << s.error();
  }
}

}  // namespace kvguard::tests
