// SPDX-License-Identifier: Apache-2.0
// What a finding says beside its code: where, what was expected and shown, how many values agree
// with it, and whom it hits. Who reads a report has nothing else to go by.
#ifndef KVGUARD_TESTS_RULES_VALUES_H_
#define KVGUARD_TESTS_RULES_VALUES_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "audit/scenario.h"

namespace kvguard::tests {

inline constexpr int64_t kNone = KVGUARD_NONE;
inline constexpr uint32_t kAll = KVGUARD_ALL_GROUPS;

struct Want {
  uint32_t code = 0;
  std::string request = {};  // "": 0; initialised, so that a test may leave it out
  uint32_t group = kAll;
  int64_t row = kNone;
  int64_t pos = kNone;
  int64_t expected = 0;  // both 0: the finding has no values
  int64_t observed = 0;
  uint64_t count = 1;
  std::string victim = {};  // "": none
  int64_t victim_block = kNone;
  int64_t first = 0;
  int64_t last = 0;
  uint64_t since = 0;
};

inline std::string Text(const kvguard_finding& f) {
  std::string text = "code " + std::to_string(f.code);
  const auto add = [&](const char* name, int64_t value) {
    text += std::string(" ") + name + " " + std::to_string(value);
  };
  add("request", static_cast<int64_t>(f.request));
  add("group", f.group == kAll ? -1 : static_cast<int64_t>(f.group));
  add("row", f.row);
  add("pos", f.pos);
  if ((f.flags & KVGUARD_FINDING_HAS_VALUES) != 0) {
    add("expected", f.expected);
    add("observed", f.observed);
  }
  add("count", static_cast<int64_t>(f.count));
  if ((f.flags & KVGUARD_FINDING_HAS_VICTIM) != 0) {
    add("victim", static_cast<int64_t>(f.victim));
    add("first", f.victim_first);
    add("last", f.victim_last);
    add("since", static_cast<int64_t>(f.victim_since));
  }
  add("block", f.victim_block);
  return text;
}

inline std::string Text(const audit::Scenario& s, const Want& want) {
  kvguard_finding f{};
  f.code = want.code;
  f.request = want.request.empty() ? 0 : s.Key(want.request);
  f.group = want.group;
  f.row = want.row;
  f.pos = want.pos;
  f.expected = want.expected;
  f.observed = want.observed;
  if (want.expected != 0 || want.observed != 0) f.flags |= KVGUARD_FINDING_HAS_VALUES;
  f.count = want.count;
  f.victim_block = want.victim_block;
  if (!want.victim.empty()) {
    f.flags |= KVGUARD_FINDING_HAS_VICTIM;
    f.victim = s.Key(want.victim);
    f.victim_first = want.first;
    f.victim_last = want.last;
    f.victim_since = want.since;
  }
  return Text(f);
}

// The finding with that code; there is one.
inline kvguard_finding Only(const audit::Scenario& s, uint32_t code) {
  std::vector<kvguard_finding> found = s.Findings();
  std::erase_if(found, [&](const kvguard_finding& f) { return f.code != code; });
  EXPECT_EQ(found.size(), 1u) << s.Report();
  return found.empty() ? kvguard_finding{} : found[0];
}

// These findings and no others; causes come before what they explain, which is not asked here.
inline void Expect(const audit::Scenario& s, const std::vector<Want>& wanted) {
  std::vector<std::string> found;
  for (const kvguard_finding& f : s.Findings()) {
    EXPECT_EQ(f.size, sizeof(kvguard_finding));
    EXPECT_EQ(f.step, s.step());
    found.push_back(Text(f));
  }
  std::vector<std::string> texts;
  for (const Want& want : wanted) texts.push_back(Text(s, want));
  std::sort(found.begin(), found.end());
  std::sort(texts.begin(), texts.end());
  EXPECT_EQ(found, texts) << s.Report();
}

}  // namespace kvguard::tests

#endif  // KVGUARD_TESTS_RULES_VALUES_H_
