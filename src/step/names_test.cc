// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kvguard/kvguard.h"

namespace {

struct Range {
  const char* what;
  std::vector<int64_t> values;  // all that the header defines
};

std::vector<int64_t> From(int64_t first, int64_t last) {
  std::vector<int64_t> values;
  for (int64_t v = first; v <= last; ++v) values.push_back(v);
  return values;
}

std::vector<Range> All() {
  std::vector<int64_t> events = From(KVGUARD_EVENT_ADMIT, KVGUARD_EVENT_DOMAIN);
  for (const auto& more : {From(KVGUARD_EVENT_APPEND, KVGUARD_EVENT_FREE),
                           From(KVGUARD_EVENT_ERASE, KVGUARD_EVENT_COPY_DONE),
                           From(KVGUARD_EVENT_RESERVE, KVGUARD_EVENT_DRAIN),
                           From(KVGUARD_EVENT_GAP, KVGUARD_EVENT_GAP)}) {
    events.insert(events.end(), more.begin(), more.end());
  }
  return {{"status", From(KVGUARD_ERROR_INTERNAL, KVGUARD_END_OF_TRACE)},
          {"verdict", From(KVGUARD_CLEAN, KVGUARD_CANNOT_JUDGE)},
          {"family", From(KVGUARD_FAMILY_STEP, KVGUARD_FAMILY_RANK)},
          {"pass", From(0, KVGUARD_PASS_DUMMY)},
          {"stage", From(0, KVGUARD_STAGE_FINAL)},
          {"cause", From(KVGUARD_CAUSE_NONE, KVGUARD_CAUSE_LOST_APPEND)},
          {"grade", From(KVGUARD_GRADE_PROOF, KVGUARD_GRADE_SUSPICION)},
          {"encoding", From(KVGUARD_READ_TABLE, KVGUARD_READ_STATE)},
          {"group_kind", From(KVGUARD_GROUP_FULL, KVGUARD_GROUP_NONE)},
          {"pool_kind", From(KVGUARD_POOL_PAGES, KVGUARD_POOL_STATE)},
          {"unit", From(KVGUARD_UNIT_BLOCK, KVGUARD_UNIT_ROW)},
          {"action", From(KVGUARD_ACTION_RAISE, KVGUARD_ACTION_LOG)},
          {"record_kind", From(KVGUARD_RECORD_BEGIN, KVGUARD_RECORD_RESET)},
          {"event_kind", events},
          {"reset_reason", From(KVGUARD_RESET_ARM, KVGUARD_RESET_LAYOUT)}};
}

TEST(Name, EveryValueOfTheHeaderHasOneOfItsOwn) {
  for (const Range& range : All()) {
    std::set<std::string> seen;
    for (const int64_t value : range.values) {
      const char* name = kvguard_name(range.what, value);
      ASSERT_NE(name, nullptr) << range.what << " " << value;
      EXPECT_TRUE(seen.insert(name).second) << range.what << ": " << name << " stands twice";
      for (const char* c = name; *c != '\0'; ++c) {
        EXPECT_TRUE((*c >= 'a' && *c <= 'z') || *c == '-' || *c == '_') << name;
      }
    }
    EXPECT_EQ(kvguard_name(range.what, range.values.front() - 1), nullptr) << range.what;
    EXPECT_EQ(kvguard_name(range.what, range.values.back() + 1), nullptr) << range.what;
  }
}

TEST(Name, WhatMachinesReadIsFixed) {
  EXPECT_STREQ(kvguard_name("verdict", KVGUARD_CLEAN), "clean");
  EXPECT_STREQ(kvguard_name("verdict", KVGUARD_VIOLATED), "violated");
  EXPECT_STREQ(kvguard_name("verdict", KVGUARD_CANNOT_JUDGE), "cannot_judge");
  EXPECT_STREQ(kvguard_name("cause", KVGUARD_CAUSE_ROW_OF), "row-of");
}

TEST(Name, WhatIsNoneHasNone) {
  EXPECT_EQ(kvguard_name("verdict", 3), nullptr);
  EXPECT_EQ(kvguard_name("verdict", -1), nullptr);
  EXPECT_EQ(kvguard_name("verdict", INT64_MIN), nullptr);
  EXPECT_EQ(kvguard_name("no-such-enum", 1), nullptr);
  EXPECT_EQ(kvguard_name("", 0), nullptr);
  EXPECT_EQ(kvguard_name(nullptr, 0), nullptr);
}

}  // namespace
