// SPDX-License-Identifier: Apache-2.0
// The table of public bugs and the plays of it cannot drift apart.
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "tests/bugs/bug_test.h"

namespace kvguard::tests {
namespace {

// id | which layout or rule it waits for
std::map<std::string, std::string> Pending() {
  std::map<std::string, std::string> pending;
  std::ifstream in(std::string(KVGUARD_SOURCE_DIR) + "/tests/bugs/pending.txt");
  EXPECT_TRUE(in.good());
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t bar = line.find(" | ");
    if (bar == std::string::npos || line.size() < bar + 8) {
      ADD_FAILURE() << line << ": not of the form \"id | reason\"";
      continue;
    }
    EXPECT_TRUE(pending.emplace(line.substr(0, bar), line.substr(bar + 3)).second) << line;
  }
  return pending;
}

// The tests of this executable, by id: the rest of the name is the thread.
std::map<std::string, std::string> Played() {
  std::map<std::string, std::string> played;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *all.GetTestSuite(i);
    if (std::string(suite.name()) != "Bugs") continue;
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const std::string name = suite.GetTestInfo(j)->name();
      const size_t end = name.find('_');
      EXPECT_TRUE(played.emplace(name.substr(0, end), name.substr(end + 1)).second) << name;
    }
  }
  return played;
}

// "https://github.com/vllm-project/vllm/pull/32255" is thread "vllm_pull_32255".
std::string ThreadOf(const std::string& url) {
  std::smatch parts;
  if (!std::regex_search(url, parts, std::regex("([^/]+)/([^/]+)/([0-9]+)$"))) return "";
  return std::regex_replace(parts[1].str() + "_" + parts[2].str() + "_" + parts[3].str(),
                            std::regex("[^A-Za-z0-9]"), "_");
}

TEST(BugTable, EveryEntryThatCanBePlayedIsPlayedOrWaits) {
  const auto played = Played();
  const auto pending = Pending();
  for (const auto& [id, entry] : BugTable()) {
    const bool due = entry.answer == "fires" || entry.answer == "silent" || entry.answer == "trap";
    const size_t stands = played.count(id) + pending.count(id);
    EXPECT_EQ(stands, due ? 1u : 0u) << id << " (" << entry.answer << "): " << played.count(id)
                                     << " plays, " << pending.count(id) << " times pending";
  }
  for (const auto& [id, reason] : pending) EXPECT_EQ(BugTable().count(id), 1u) << id;
  for (const auto& [id, thread] : played) {
    ASSERT_EQ(BugTable().count(id), 1u) << id;
    const std::string& url = BugTable().at(id).url;
    if (url.empty()) continue;
    EXPECT_EQ(thread, ThreadOf(url)) << id;
  }
}

TEST(BugTable, TheFirstFindingHasTheFirstCode) {
  size_t fires = 0;
  for (const auto& [id, entry] : BugTable()) {
    if (entry.answer != "fires") continue;
    ++fires;
    EXPECT_EQ(entry.first.rfind("first: " + entry.code + " ", 0), 0u) << id;
  }
  EXPECT_GT(fires, 100u);
}

}  // namespace
}  // namespace kvguard::tests
