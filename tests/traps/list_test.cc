// SPDX-License-Identifier: Apache-2.0
// traps.txt and the tests that it names cannot drift apart.
#include <algorithm>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace kvguard::tests {
namespace {

struct Trap {
  std::string title;
  std::string not_shown;
  std::vector<std::string> tests;
};

std::string Root() { return std::string(KVGUARD_SOURCE_DIR) + "/"; }

std::string TextOf(const std::string& path) {
  std::ifstream in(path);
  EXPECT_TRUE(in.good()) << path;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::map<std::string, Trap> ReadTraps() {
  std::map<std::string, Trap> traps;
  std::istringstream in(TextOf(Root() + "tests/traps/traps.txt"));
  Trap* trap = nullptr;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    if (line.rfind("  ", 0) == 0) {
      if (trap == nullptr) {
        ADD_FAILURE() << line << ": of no trap";
      } else {
        trap->tests.push_back(line.substr(2));
      }
      continue;
    }
    std::smatch parts;
    if (!std::regex_match(line, parts, std::regex("(\\S+) \\| ([^|]+) \\| ([^|]+)"))) {
      ADD_FAILURE() << line << ": not of the form \"number | trap | what is not shown\"";
      continue;
    }
    const auto [place, added] = traps.emplace(parts[1], Trap{parts[2], parts[3], {}});
    EXPECT_TRUE(added) << line << ": stands twice";
    trap = &place->second;
  }
  return traps;
}

// The tests of this executable.
std::set<std::string> OwnTests() {
  std::set<std::string> names;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j)
      names.insert(std::string(suite.name()) + "." + suite.GetTestInfo(j)->name());
  }
  return names;
}

bool Matches(const std::string& text, const std::string& pattern) {
  return std::regex_search(text, std::regex(pattern));
}

// A GoogleTest of another folder, a play of tests/bugs, a function of pytest or the legal entry of
// a planted list.
bool Exists(const std::string& file, const std::string& name) {
  const std::string text = TextOf(Root() + file);
  if (file.ends_with(".py")) return Matches(text, "\\ndef " + name + "\\(");
  if (file.ends_with(".txt")) return Matches(text, "\\n" + name + " +\\| 0 +\\|");
  std::smatch parts;
  if (std::regex_match(name, parts, std::regex("Bugs\\.([BT][0-9]+)_(\\w+)")))
    return Matches(text, "\\nBUG\\(" + parts[1].str() + ", " + parts[2].str() + ",");
  if (!std::regex_match(name, parts, std::regex("(\\w+)\\.(\\w+)"))) return false;
  return Matches(text, "\\nTEST(_F|_P)?\\(" + parts[1].str() + ", " + parts[2].str() + "\\)");
}

TEST(TrapList, HasEachTrapOnce) {
  const std::map<std::string, Trap> traps = ReadTraps();
  std::set<std::string> numbers;
  for (int i = 1; i <= 35; ++i) numbers.insert(std::to_string(i));
  for (int i = 1; i <= 7; ++i) numbers.insert(std::string("T").append(std::to_string(i)));
  for (const std::string& number : numbers) EXPECT_EQ(traps.count(number), 1u) << number;
  EXPECT_EQ(traps.size(), numbers.size());
  for (const auto& [number, trap] : traps)
    EXPECT_TRUE(!trap.tests.empty() || trap.not_shown != "-") << number << ": shown by nothing";
}

TEST(TrapList, NamesTestsThatExist) {
  const std::set<std::string> own = OwnTests();
  for (const auto& [number, trap] : ReadTraps()) {
    std::set<std::string> seen;
    for (const std::string& test : trap.tests) {
      EXPECT_TRUE(seen.insert(test).second) << number << ": " << test << " stands twice";
      const size_t blank = test.find(' ');
      const bool exists = blank == std::string::npos
                              ? own.count(test) == 1
                              : Exists(test.substr(0, blank), test.substr(blank + 1));
      EXPECT_TRUE(exists) << number << ": there is no " << test;
    }
  }
}

TEST(TrapList, NamesEachTestOfThisFolder) {
  const std::map<std::string, Trap> traps = ReadTraps();
  for (const std::string& test : OwnTests()) {
    std::smatch parts;
    if (!std::regex_search(test, parts, std::regex("^Trap([0-9]+)"))) continue;
    const auto trap = traps.find(parts[1]);
    ASSERT_NE(trap, traps.end()) << test;
    const std::vector<std::string>& tests = trap->second.tests;
    EXPECT_EQ(std::count(tests.begin(), tests.end(), test), 1) << test;
  }
}

}  // namespace
}  // namespace kvguard::tests
