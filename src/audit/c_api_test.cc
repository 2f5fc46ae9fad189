// SPDX-License-Identifier: Apache-2.0
// The functions of kvguard.h, as a careless caller would use them.
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "audit/guard.h"
#include "audit/scenario.h"
#include "rules/catalog.h"

namespace kvguard::audit {
namespace {

kvguard_error Error() {
  kvguard_error error{};
  error.size = sizeof(error);
  return error;
}

void Violate(Scenario& s) {
  s.Admit("a", {{1, 2}}).Schedule("a", 6).Admit("b", {{3, 4}}).Schedule("b", 5);
  s.Step([](ScenarioPlan& p) {
    p.groups[0].slots[0] = 12;
    p.Table(0, 1, 0) = 9;
  });
}

TEST(CApi, VersionIsTheHeaders) {
  EXPECT_EQ(std::string(kvguard_version()), std::to_string(KVGUARD_VERSION_MAJOR) + "." +
                                                std::to_string(KVGUARD_VERSION_MINOR) + "." +
                                                std::to_string(KVGUARD_VERSION_PATCH));
}

TEST(CApi, NothingNeedsAnErrorAndEveryRefusalIsASentence) {
  kvguard_error error = Error();
  kvguard_verdict verdict{};
  verdict.size = sizeof(verdict);
  size_t count = 0;
  const auto refused = [&](kvguard_status status) {
    EXPECT_EQ(status, KVGUARD_ERROR_ARGUMENT);
    EXPECT_EQ(error.status, KVGUARD_ERROR_ARGUMENT);
    EXPECT_GT(std::strlen(error.text), 8u);
    error = Error();
  };
  kvguard_guard* guard = nullptr;
  refused(kvguard_create(nullptr, nullptr, &guard, &error));
  EXPECT_EQ(guard, nullptr);
  refused(kvguard_create(nullptr, nullptr, nullptr, &error));
  refused(kvguard_feed(nullptr, nullptr, &verdict, &error));
  refused(kvguard_wait(nullptr, 0, 0, &verdict, &error));
  refused(kvguard_verdict_now(nullptr, &verdict, &error));
  refused(kvguard_findings(nullptr, 0, nullptr, 0, &count, &error));
  refused(kvguard_explain(nullptr, nullptr, nullptr, 0, &count, &error));
  refused(kvguard_coverage(nullptr, nullptr, 0, &count, &error));
  refused(kvguard_gaps(nullptr, nullptr, 0, &count, &error));
  refused(kvguard_rules(nullptr, 0, nullptr, &error));
  refused(kvguard_snapshot(nullptr, nullptr, 0, &count, &error));
  refused(kvguard_restore(nullptr, nullptr, 0, &error));
  Scenario s;
  refused(kvguard_verdict_now(s.guard(), nullptr, &error));
  refused(kvguard_findings(s.guard(), 0, nullptr, 0, nullptr, &error));
  refused(kvguard_findings(s.guard(), 0, nullptr, 4, &count, &error));
  refused(kvguard_explain(s.guard(), nullptr, nullptr, 0, &count, &error));
  refused(kvguard_snapshot(s.guard(), nullptr, 0, nullptr, &error));
  refused(kvguard_restore(s.guard(), nullptr, 0, &error));
  refused(kvguard_wait(s.guard(), 0, 0, &verdict, &error));
  verdict.size = 8;
  refused(kvguard_verdict_now(s.guard(), &verdict, &error));
  kvguard_destroy(nullptr);
  EXPECT_EQ(kvguard_create(nullptr, nullptr, &guard, nullptr), KVGUARD_ERROR_ARGUMENT);
}

TEST(CApi, ConfigurationIsChecked) {
  const Scenario s;
  const kvguard_geometry& geometry = GeometryOf(*s.guard());
  for (int i = 0; i < 3; ++i) {
    kvguard_config config{};
    config.size = i == 0 ? 2 : sizeof(config);
    if (i == 1) config.action = 2;
    if (i == 2) config.latch = 2;
    kvguard_guard* guard = nullptr;
    kvguard_error error = Error();
    EXPECT_EQ(kvguard_create(&geometry, &config, &guard, &error), KVGUARD_ERROR_ARGUMENT);
    EXPECT_EQ(guard, nullptr);
  }
  kvguard_guard* guard = nullptr;
  ASSERT_EQ(kvguard_create(&geometry, nullptr, &guard, nullptr), KVGUARD_OK);
  EXPECT_EQ(ConfigOf(*guard).max_findings, 1024u);
  EXPECT_EQ(ConfigOf(*guard).history_steps, 64u);
  kvguard_destroy(guard);
}

TEST(CApi, TheGeometryIsCopied) {
  std::string engine = "engine-one";
  std::string gap = "external-unproved";
  kvguard_guard* guard = nullptr;
  {
    const Scenario s;
    std::vector<kvguard_pool> pools(GeometryOf(*s.guard()).pools, GeometryOf(*s.guard()).pools + 1);
    std::vector<kvguard_group> groups(GeometryOf(*s.guard()).groups,
                                      GeometryOf(*s.guard()).groups + 1);
    const char* gaps[] = {gap.c_str()};
    kvguard_geometry geometry = GeometryOf(*s.guard());
    geometry.engine = engine.c_str();
    geometry.engine_version = nullptr;
    geometry.pools = pools.data();
    geometry.groups = groups.data();
    geometry.standing_gaps = gaps;
    geometry.num_standing_gaps = 1;
    ASSERT_EQ(kvguard_create(&geometry, nullptr, &guard, nullptr), KVGUARD_OK);
  }
  engine.assign(engine.size(), 'x');
  gap.assign(gap.size(), 'x');
  EXPECT_STREQ(GeometryOf(*guard).engine, "engine-one");
  EXPECT_STREQ(GeometryOf(*guard).engine_version, "");
  EXPECT_STREQ(GeometryOf(*guard).standing_gaps[0], "external-unproved");
  EXPECT_EQ(GeometryOf(*guard).groups[0].block_size, 4u);
  kvguard_destroy(guard);
}

// An output array of any element size, as a later header's caller would have it.
template <typename T>
class Strided {
 public:
  Strided(size_t count, uint32_t size) : size_(size), words_(count * size / 8 + 1, ~uint64_t{0}) {
    std::memcpy(words_.data(), &size, sizeof(size));
  }
  T* data() { return reinterpret_cast<T*>(words_.data()); }
  const T& operator[](size_t i) const {
    return *reinterpret_cast<const T*>(reinterpret_cast<const char*>(words_.data()) + i * size_);
  }
  bool TailIsZero(size_t i) const {
    const char* at = reinterpret_cast<const char*>(words_.data()) + i * size_;
    for (size_t k = sizeof(T); k < size_; ++k) {
      if (at[k] != 0) return false;
    }
    return true;
  }

 private:
  size_t size_;
  std::vector<uint64_t> words_;
};

TEST(CApi, ArraysAreFilledAtTheCallersStride) {
  Scenario s;
  Violate(s);
  size_t count = 0;
  ASSERT_EQ(kvguard_findings(s.guard(), 0, nullptr, 0, &count, nullptr), KVGUARD_OK);
  ASSERT_GE(count, 2u);
  const uint32_t later = sizeof(kvguard_finding) + 24;
  Strided<kvguard_finding> findings(count, later);
  size_t again = 0;
  ASSERT_EQ(kvguard_findings(s.guard(), 0, findings.data(), count, &again, nullptr), KVGUARD_OK);
  EXPECT_EQ(again, count);
  for (size_t i = 0; i < count; ++i) {
    EXPECT_EQ(findings[i].size, later);
    EXPECT_EQ(findings[i].sequence, i);
    EXPECT_TRUE(findings.TailIsZero(i));
  }
}

TEST(CApi, AtMostCapacityElementsAreWritten) {
  Scenario s;
  Violate(s);
  std::vector<kvguard_finding> findings(3);
  findings[0].size = sizeof(kvguard_finding);
  findings[1].sequence = findings[2].sequence = 77;
  size_t count = 0;
  ASSERT_EQ(kvguard_findings(s.guard(), 0, findings.data(), 1, &count, nullptr), KVGUARD_OK);
  EXPECT_GE(count, 2u);
  EXPECT_EQ(findings[0].sequence, 0u);
  EXPECT_EQ(findings[1].sequence, 77u);
}

TEST(CApi, AForgottenElementSizeIsRefused) {
  Scenario s;
  Violate(s);
  size_t count = 0;
  kvguard_error error = Error();
  for (const uint32_t size : {0u, 4u, 0xfffffff0u}) {
    kvguard_finding finding{};
    finding.size = size;
    EXPECT_EQ(kvguard_findings(s.guard(), 0, &finding, 1, &count, &error), KVGUARD_ERROR_ARGUMENT);
    EXPECT_NE(std::string(error.text).find("size"), std::string::npos);
  }
  kvguard_gap gap{};
  EXPECT_EQ(kvguard_gaps(s.guard(), &gap, 1, &count, nullptr), KVGUARD_ERROR_ARGUMENT);
  kvguard_coverage_row row{};
  EXPECT_EQ(kvguard_coverage(s.guard(), &row, 1, &count, nullptr), KVGUARD_ERROR_ARGUMENT);
  kvguard_rule rule{};
  EXPECT_EQ(kvguard_rules(&rule, 1, &count, nullptr), KVGUARD_ERROR_ARGUMENT);
}

TEST(CApi, RulesAreTheCatalog) {
  size_t count = 0;
  ASSERT_EQ(kvguard_rules(nullptr, 0, &count, nullptr), KVGUARD_OK);
  std::vector<kvguard_rule> rules(count);
  rules[0].size = sizeof(kvguard_rule);
  ASSERT_EQ(kvguard_rules(rules.data(), count, &count, nullptr), KVGUARD_OK);
  ASSERT_EQ(count, rules::Catalog().size());
  for (size_t i = 0; i < count; ++i) {
    EXPECT_EQ(rules[i].code, rules::Catalog()[i].code);
    EXPECT_STREQ(rules[i].name, rules::Catalog()[i].name);
  }
}

TEST(CApi, GapsAndCoverageAreListed) {
  ScenarioOptions options;
  options.standing_gaps = {"kv-may-have-left"};
  Scenario s(options);
  s.Admit("a", {{1, 2}}).Schedule("a", 4).Gap("ring-full").Step();
  size_t count = 0;
  std::vector<kvguard_gap> gaps(2);
  gaps[0].size = sizeof(kvguard_gap);
  ASSERT_EQ(kvguard_gaps(s.guard(), gaps.data(), 2, &count, nullptr), KVGUARD_OK);
  ASSERT_EQ(count, 2u);
  EXPECT_STREQ(gaps[0].name, "kv-may-have-left");
  EXPECT_EQ(gaps[0].standing, 1u);
  EXPECT_STREQ(gaps[1].name, "ring-full");
  EXPECT_EQ(gaps[1].standing, 0u);
  ASSERT_EQ(kvguard_coverage(s.guard(), nullptr, 0, &count, nullptr), KVGUARD_OK);
  EXPECT_EQ(count, s.guard()->CoverageRows().size());
}

TEST(CApi, ExplainSaysHowMuchRoomItNeeds) {
  Scenario s;
  Violate(s);
  const kvguard_finding finding = s.Findings()[0];
  const std::string whole = s.Explain(finding);
  EXPECT_EQ(whole.substr(0, 8), "kvguard ");
  EXPECT_EQ(std::count(whole.begin(), whole.end(), '\n'), 2);
  EXPECT_EQ(whole.back(), '\n');
  std::vector<char> text(whole.size() + 1, '#');
  for (const size_t capacity : {size_t{0}, size_t{1}, whole.size()}) {
    size_t needed = 0;
    EXPECT_EQ(kvguard_explain(s.guard(), &finding, text.data(), capacity, &needed, nullptr),
              KVGUARD_ERROR_CAPACITY);
    EXPECT_EQ(needed, whole.size() + 1);
    EXPECT_EQ(text[0], '#');
  }
  size_t needed = 0;
  EXPECT_EQ(kvguard_explain(s.guard(), &finding, text.data(), text.size(), &needed, nullptr),
            KVGUARD_OK);
  EXPECT_EQ(whole, text.data());
}

TEST(CApi, ExplainTakesAnyFinding) {
  Scenario s;
  for (uint32_t i = 0; i < 2000; ++i) {
    kvguard_finding finding{};
    auto* words = reinterpret_cast<uint32_t*>(&finding);
    uint32_t state = i * 2654435761u + 1;
    for (size_t k = 1; k < sizeof(finding) / 4; ++k) {
      state = state * 1664525u + 1013904223u;
      words[k] = i % 3 == 0 ? state % 700 : state;
    }
    finding.size = sizeof(finding);
    const std::string text = s.Explain(finding);
    ASSERT_GT(text.size(), 20u);
    ASSERT_EQ(text.find("(null)"), std::string::npos) << text;
  }
}

TEST(CApi, ANamelessOrForgottenRequestPrintsAsItsKey) {
  Scenario s;
  s.Admit("", {{1, 1}}).Schedule("", 2).Begin();
  EXPECT_NE(s.Explain(s.Findings()[0]).find("req=key:1 "), std::string::npos)
      << s.Explain(s.Findings()[0]);
  kvguard_finding finding = s.Findings()[0];
  finding.request = 4711;
  EXPECT_NE(s.Explain(finding).find("req=key:4711 "), std::string::npos);
}

TEST(CApi, NamesAreEncodedWhole) {
  Scenario s;
  s.Admit("a b\n%", {{1, 1}}).Schedule("a b\n%", 2).Begin();
  EXPECT_NE(s.Explain(s.Findings()[0]).find("req=a%20b%0A%25 "), std::string::npos);
}

TEST(CApi, WaitAnswersForStepsThatWereBegun) {
  Scenario s;
  kvguard_verdict verdict{};
  verdict.size = sizeof(verdict);
  EXPECT_EQ(kvguard_wait(s.guard(), 1, 1000, &verdict, nullptr), KVGUARD_ERROR_ARGUMENT);
  s.Admit("a", {{1, 2}}).Schedule("a", 4).Step();
  EXPECT_EQ(kvguard_wait(s.guard(), 1, 0, &verdict, nullptr), KVGUARD_OK);
  EXPECT_EQ(verdict.step, 1u);
  EXPECT_EQ(kvguard_wait(s.guard(), 2, 0, &verdict, nullptr), KVGUARD_ERROR_ARGUMENT);
}

TEST(CApi, ASnapshotIsTakenBetweenSteps) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 4).Step();
  const std::vector<uint8_t> bytes = s.Snapshot();
  ASSERT_FALSE(bytes.empty());
  size_t needed = 0;
  std::vector<uint8_t> room(bytes.size(), 0xee);
  EXPECT_EQ(kvguard_snapshot(s.guard(), room.data(), room.size() - 1, &needed, nullptr),
            KVGUARD_ERROR_CAPACITY);
  EXPECT_EQ(needed, bytes.size());
  EXPECT_EQ(room[0], 0xee);
  s.Schedule("a", 1).Begin();
  EXPECT_EQ(kvguard_snapshot(s.guard(), room.data(), room.size(), &needed, nullptr),
            KVGUARD_ERROR_ORDER);
  EXPECT_EQ(s.Restore(bytes), KVGUARD_ERROR_ORDER);
  s.Plan(s.RightPlan());
  s.End();
  EXPECT_EQ(s.Restore(bytes), KVGUARD_OK);
}

TEST(CApi, LaterStructsAreAcceptedWhileTheirNewFieldsAreZero) {
  struct LaterVerdict {
    kvguard_verdict verdict;
    uint64_t more;
  } later{};
  later.verdict.size = sizeof(later);
  later.more = 5;
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 4).Step();
  EXPECT_EQ(kvguard_verdict_now(s.guard(), &later.verdict, nullptr), KVGUARD_OK);
  EXPECT_EQ(later.verdict.steps, 1u);
  EXPECT_EQ(later.more, 5u);
  struct LaterConfig {
    kvguard_config config;
    uint64_t more;
  } config{};
  config.config.size = sizeof(config);
  kvguard_guard* guard = nullptr;
  EXPECT_EQ(kvguard_create(&GeometryOf(*s.guard()), &config.config, &guard, nullptr), KVGUARD_OK);
  kvguard_destroy(guard);
  config.more = 1;
  EXPECT_EQ(kvguard_create(&GeometryOf(*s.guard()), &config.config, &guard, nullptr),
            KVGUARD_ERROR_UNSUPPORTED);
}

}  // namespace
}  // namespace kvguard::audit
