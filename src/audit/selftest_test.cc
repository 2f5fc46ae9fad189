// SPDX-License-Identifier: Apache-2.0
#include "audit/selftest.h"

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "rules/catalog.h"

namespace kvguard::audit {
namespace {

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string Family(uint32_t code) { return kvguard_name("family", code / 100); }

// The first planted fault of each family.
std::vector<Planted> OneOfEach() {
  std::set<uint32_t> families;
  std::vector<Planted> out;
  for (const Planted& planted : PlantedFaults()) {
    if (families.insert(planted.code / 100).second) out.push_back(planted);
  }
  return out;
}

// The self-test of the whole table with one entry changed.
std::string Verdict(const Planted& from, const Planted& changed) {
  std::vector<Planted> all(PlantedFaults().begin(), PlantedFaults().end());
  for (Planted& each : all) {
    if (each.fault == from.fault) each = changed;
  }
  const step::Status status = SelfTest(rules::Catalog(), all);
  EXPECT_EQ(status.code(), status.ok() ? KVGUARD_OK : KVGUARD_ERROR_INTERNAL);
  return status.text();
}

TEST(SelfTest, ThisBuildPasses) {
  const step::Status status = SelfTest();
  EXPECT_TRUE(status.ok()) << status.text();
}

TEST(SelfTest, ItsCallReportsOk) {
  kvguard_error error;
  std::memset(&error, 1, sizeof(error));
  error.size = sizeof(error);
  EXPECT_EQ(kvguard_selftest(&error), KVGUARD_OK) << error.text;
  EXPECT_EQ(error.status, KVGUARD_OK);
  EXPECT_STREQ(error.text, "");
  EXPECT_EQ(kvguard_selftest(nullptr), KVGUARD_OK);
}

TEST(SelfTest, EveryFaultIsFoundAndItsNeighbourIsSilent) {
  for (const Planted& planted : PlantedFaults()) {
    const Trial trial = Try(planted);
    EXPECT_EQ(trial.outcome, Outcome::kFound) << planted.fault << "\n" << trial.why;
    EXPECT_EQ(trial.why, "");
    EXPECT_EQ(trial.code, planted.code);
    EXPECT_EQ(trial.judged, planted.facts) << planted.fault << ": state all the facts there are";
  }
}

// A family that is new in the catalog has to bring a planted fault: see planted.cc.
TEST(SelfTest, EveryFamilyOfTheCatalogIsPlanted) {
  std::set<uint32_t> planted;
  for (const Planted& each : PlantedFaults()) {
    ASSERT_NE(rules::FindRule(each.code), nullptr) << each.code;
    EXPECT_EQ(rules::FindRule(each.code)->grade, static_cast<uint32_t>(KVGUARD_GRADE_PROOF));
    planted.insert(each.code / 100);
  }
  for (const kvguard_rule& rule : rules::Catalog()) {
    EXPECT_EQ(planted.count(rule.family), 1u)
        << "family " << rule.family_name << " has no planted fault in src/audit/planted.cc";
  }
  EXPECT_EQ(TryCatalog(rules::Catalog(), PlantedFaults()).outcome, Outcome::kFound);
}

TEST(SelfTest, AFamilyWithoutAPlantedFaultIsNamed) {
  for (const Planted& gone : OneOfEach()) {
    std::vector<Planted> rest;
    for (const Planted& each : PlantedFaults()) {
      if (each.code / 100 != gone.code / 100) rest.push_back(each);
    }
    const Trial trial = TryCatalog(rules::Catalog(), rest);
    EXPECT_EQ(trial.outcome, Outcome::kBlind);
    EXPECT_TRUE(Has(trial.why, "family " + Family(gone.code) + " has rules")) << trial.why;
    EXPECT_EQ(SelfTest(rules::Catalog(), rest).code(), KVGUARD_ERROR_INTERNAL);
  }
}

// Each of what a trial compares, changed in one entry of each family.
TEST(SelfTest, AnotherCodeIsNamed) {
  for (const Planted& planted : OneOfEach()) {
    Planted changed = planted;
    changed.code = planted.code / 100 * 100 + 99;
    const std::string text = Verdict(planted, changed);
    EXPECT_TRUE(Has(text, "family " + Family(planted.code))) << text;
    EXPECT_TRUE(Has(text, std::string("'") + planted.fault + "'")) << text;
    EXPECT_TRUE(Has(text, "this build is broken")) << text;
  }
}

TEST(SelfTest, AnotherPlaceIsNamed) {
  for (const Planted& planted : OneOfEach()) {
    for (int what = 0; what < 3; ++what) {
      Planted changed = planted;
      if (what == 0) changed.pos = planted.pos + 1;
      if (what == 1) changed.group = planted.group == 0 ? 1 : 0;
      if (what == 2) changed.request = *planted.request == 'a' ? "b" : "a";
      const std::string text = Verdict(planted, changed);
      EXPECT_TRUE(Has(text, "family " + Family(planted.code))) << what << text;
      EXPECT_TRUE(Has(text, "right is")) << text;
    }
  }
}

TEST(SelfTest, AFaultThatIsNotThereIsNamed) {
  for (const Planted& planted : OneOfEach()) {
    Planted changed = planted;
    changed.plant = planted.legal;
    const std::string text = Verdict(planted, changed);
    EXPECT_TRUE(Has(text, "family " + Family(planted.code))) << text;
    EXPECT_TRUE(Has(text, "gave nothing")) << text;
  }
}

TEST(SelfTest, ANeighbourThatIsNotSilentIsNamed) {
  for (const Planted& planted : PlantedFaults()) {
    Planted changed = planted;
    changed.facts = 0;
    changed.legal = planted.plant;
    const Trial trial = Try(changed);
    // Where the fault is held before any plan, what judges plans has not run.
    EXPECT_NE(trial.outcome, Outcome::kFound) << planted.fault;
    EXPECT_TRUE(Has(trial.why, "family ")) << trial.why;
    if (trial.outcome == Outcome::kBroken) {
      EXPECT_TRUE(Has(trial.why, "which is right")) << trial.why;
      EXPECT_TRUE(Has(trial.why, "family " + Family(planted.code))) << trial.why;
    }
  }
}

TEST(SelfTest, AFamilyThatDidNotSeeEveryFactIsBlind) {
  for (const Planted& planted : OneOfEach()) {
    Planted changed = planted;
    changed.facts = planted.facts + 1;
    const Trial trial = Try(changed);
    EXPECT_EQ(trial.outcome, Outcome::kBlind);
    EXPECT_TRUE(Has(trial.why, "armed but blind: family " + Family(planted.code))) << trial.why;
    EXPECT_TRUE(Has(trial.why, std::to_string(planted.facts) + " of ")) << trial.why;
    EXPECT_EQ(trial.judged, planted.facts);
  }
}

// A step in which a family has nothing to do is no proof that it works.
TEST(SelfTest, AFamilyThatDidNotRunIsBlind) {
  for (const uint32_t code : {uint32_t{rules::kReadStale}, uint32_t{rules::kContentMismatch},
                              uint32_t{rules::kReadWhileLoading}, uint32_t{rules::kZeroLive}}) {
    Planted planted{};
    planted.code = code;
    planted.fault = planted.neighbour = "one request";
    planted.request = "";
    planted.facts = 1;
    planted.plant =
        planted.legal = [](Scenario& s) { s.Admit("a", {{1}}).Schedule("a", 3).Step(); };
    Trial trial = Try(planted);
    EXPECT_EQ(trial.outcome, Outcome::kBlind);
    EXPECT_TRUE(Has(trial.why, "armed but blind: family " + Family(code))) << trial.why;
    planted.facts = 0;  // and the fault's own run is looked at too
    trial = Try(planted);
    EXPECT_EQ(trial.outcome, Outcome::kBlind) << trial.why;
    EXPECT_TRUE(Has(trial.why, "armed but blind: family " + Family(code))) << trial.why;
  }
}

TEST(SelfTest, PlansThatAreNotJudgedAreBlind) {
  const struct {
    const char* family;
    void (*legal)(Scenario&);
  } cases[] = {
      {"step", [](Scenario& s) { s.Admit("a", {{1}}).Schedule("a", 3).Begin(); }},
      {"table",
       [](Scenario& s) {
         s.Admit("a", {{1}}).Schedule("a", 3);
         s.Step([](ScenarioPlan& p) { p.groups[0].table_present = false; });
       }},
      {"slot",
       [](Scenario& s) {
         s.Admit("a", {{1}}).Schedule("a", 3);
         s.Step([](ScenarioPlan& p) { p.groups[0].slots_present = false; });
       }},
  };
  for (const auto& each : cases) {
    Planted planted = PlantedFaults()[0];
    planted.legal = each.legal;
    const Trial trial = Try(planted);
    EXPECT_EQ(trial.outcome, Outcome::kBlind) << each.family << trial.why;
    EXPECT_TRUE(Has(trial.why, std::string("armed but blind: family ") + each.family)) << trial.why;
  }
}

TEST(SelfTest, AGuardThatCannotBeMadeIsAReason) {
  Planted planted = PlantedFaults()[0];
  planted.options = [](ScenarioOptions& options) { options.groups[0].block_size = 0; };
  const Trial trial = Try(planted);
  EXPECT_EQ(trial.outcome, Outcome::kBroken);
  EXPECT_TRUE(Has(trial.why, "no guard could be made: ")) << trial.why;
}

// --- comparisons ---

using geometry::EqualKernels;

TEST(SelfTest, BothSetsOfComparisonsAreTried) {
  EXPECT_EQ(TryKernels(geometry::kPortableEqualKernels).outcome, Outcome::kFound);
  if (const EqualKernels* wide = geometry::Avx2EqualKernels(); wide != nullptr) {
    const Trial trial = TryKernels(*wide);
    EXPECT_EQ(trial.outcome, Outcome::kFound) << trial.why;
    EXPECT_TRUE(Has(trial.fault, "avx2")) << trial.fault;
  }
}

TEST(SelfTest, AComparisonThatSeesNothingIsNamed) {
  EqualKernels broken = geometry::kPortableEqualKernels;
  broken.run64 = [](const int64_t*, size_t n, int64_t) { return n; };
  EXPECT_TRUE(Has(TryKernels(broken).why, "family slot: the portable comparison run64"));
  broken = geometry::kPortableEqualKernels;
  broken.run32 = [](const int32_t*, size_t n, int32_t) { return n; };
  EXPECT_TRUE(Has(TryKernels(broken).why, "run32"));
  broken = geometry::kPortableEqualKernels;
  broken.equal64 = [](const int64_t*, const int32_t*, size_t n) { return n; };
  EXPECT_TRUE(Has(TryKernels(broken).why, "equal64"));
  broken = geometry::kPortableEqualKernels;
  broken.equal32 = [](const int32_t*, const int32_t*, size_t n) { return n; };
  EXPECT_TRUE(Has(TryKernels(broken).why, "equal32"));
  broken = geometry::kPortableEqualKernels;
  broken.value64 = [](const int64_t*, size_t n, int64_t) { return n; };
  EXPECT_TRUE(Has(TryKernels(broken).why, "value64"));
  broken = geometry::kPortableEqualKernels;
  broken.value32 = [](const int32_t*, size_t n, int32_t) { return n; };
  EXPECT_TRUE(Has(TryKernels(broken).why, "value32"));
  broken = geometry::kPortableEqualKernels;
  broken.blocks64 = [](const int64_t*, size_t n, const int32_t*, size_t, size_t) { return n; };
  EXPECT_TRUE(Has(TryKernels(broken).why, "blocks64"));
}

// Slips of a wide kernel: half of an element, the ragged end, one place too far, an alarm where
// all is right.
TEST(SelfTest, AComparisonThatSeesNearlyAllIsNamed) {
  EqualKernels broken = geometry::kPortableEqualKernels;
  broken.run64 = [](const int64_t* slots, size_t n, int64_t first) {
    size_t i = 0;
    while (i < n &&
           static_cast<int32_t>(slots[i]) == static_cast<int32_t>(first) + static_cast<int32_t>(i))
      ++i;
    return i;
  };
  EXPECT_EQ(TryKernels(broken).outcome, Outcome::kBroken);
  broken = geometry::kPortableEqualKernels;
  broken.equal32 = [](const int32_t* a, const int32_t* b, size_t n) {
    const size_t whole = n / 8 * 8;
    const size_t good = geometry::kPortableEqualKernels.equal32(a, b, whole);
    return good == whole ? n : good;
  };
  EXPECT_EQ(TryKernels(broken).outcome, Outcome::kBroken);
  broken = geometry::kPortableEqualKernels;
  broken.value64 = [](const int64_t* a, size_t n, int64_t value) {
    const size_t good = geometry::kPortableEqualKernels.value64(a, n, value);
    return good == n ? n : good / 4 * 4;
  };
  EXPECT_EQ(TryKernels(broken).outcome, Outcome::kBroken);
  broken = geometry::kPortableEqualKernels;
  broken.blocks64 = [](const int64_t* slots, size_t n, const int32_t* entries, size_t offset,
                       size_t per_entry) {
    const size_t good =
        geometry::kPortableEqualKernels.blocks64(slots, n, entries, offset, per_entry);
    return good == 64 ? size_t{63} : good;
  };
  EXPECT_EQ(TryKernels(broken).outcome, Outcome::kBroken);
}

// --- beside other guards ---

TEST(SelfTest, LeavesOtherGuardsAlone) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 5).Step();
  s.Schedule("a", 1).Begin();
  const kvguard_verdict before = s.verdict();
  EXPECT_TRUE(SelfTest().ok());
  s.Plan(s.RightPlan());
  s.End();
  EXPECT_EQ(s.Report(), "");
  EXPECT_EQ(s.verdict().verdict, static_cast<uint32_t>(KVGUARD_CLEAN));
  EXPECT_EQ(s.verdict().steps, before.steps + 1);
  EXPECT_EQ(s.verdict().slots, before.slots + 1);
}

}  // namespace
}  // namespace kvguard::audit
