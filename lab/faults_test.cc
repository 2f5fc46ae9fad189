// SPDX-License-Identifier: Apache-2.0
#include "lab/faults.h"

#include <array>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kvguard/kvguard.h"

namespace kvguard::lab {
namespace {

std::vector<std::string> Words(std::string_view text) {
  std::istringstream stream{std::string(text)};
  return {std::istream_iterator<std::string>(stream), {}};
}

TEST(Faults, AreSixtyOrMoreAndEachHasAName) {
  std::set<std::string_view> names;
  for (const FaultInfo& fault : AllFaults()) {
    EXPECT_TRUE(names.insert(fault.name).second) << fault.name;
    EXPECT_EQ(FindFault(fault.name), &fault);
    EXPECT_EQ(&InfoOf(fault.kind), &fault);
    EXPECT_GT(fault.sentence.size(), 20u) << fault.name;
  }
  EXPECT_GE(names.size(), 60u);
}

TEST(Faults, TheirCodesAreRules) {
  std::vector<kvguard_rule> rules(256);
  for (kvguard_rule& rule : rules) rule.size = sizeof(kvguard_rule);
  size_t count = 0;
  ASSERT_EQ(kvguard_rules(rules.data(), rules.size(), &count, nullptr), KVGUARD_OK);
  std::set<std::string> known;
  for (size_t i = 0; i < count; ++i) {
    std::array<char, 16> code{};
    std::snprintf(code.data(), code.size(), "%04u", rules[i].code);
    known.insert(code.data());
  }
  for (const FaultInfo& fault : AllFaults()) {
    for (const std::string& code : Words(fault.codes)) {
      EXPECT_TRUE(known.contains(code)) << fault.name << " " << code;
    }
  }
}

TEST(Faults, TheirPublicBugsAreOnThePageOfPublicBugs) {
  std::ifstream file(std::string(KVGUARD_SOURCE_DIR) + "/docs/public-bugs.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  ASSERT_GT(page.size(), 10000u);
  for (const FaultInfo& fault : AllFaults()) {
    for (const std::string& bug : Words(fault.bugs)) {
      EXPECT_NE(page.find(std::string("[").append(bug).append("]")), std::string::npos)
          << fault.name << " " << bug;
    }
  }
}

TEST(FaultSwitch, StrikesOnceAndNotBeforeItsStep) {
  FaultSwitch faults(FaultKind::kSlotNull, 5);
  faults.StartStep(4);
  EXPECT_FALSE(faults.Strikes(FaultKind::kSlotNull));
  faults.StartStep(6);
  EXPECT_FALSE(faults.Strikes(FaultKind::kSlotRealPad));
  EXPECT_TRUE(faults.Waits(FaultKind::kSlotNull));
  EXPECT_TRUE(faults.Strikes(FaultKind::kSlotNull));
  EXPECT_FALSE(faults.Strikes(FaultKind::kSlotNull));
  EXPECT_EQ(faults.struck(), 6u);
}

}  // namespace
}  // namespace kvguard::lab
