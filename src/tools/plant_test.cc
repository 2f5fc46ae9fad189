// SPDX-License-Identifier: Apache-2.0
#include "tools/plant.h"

#include <optional>
#include <set>

#include <gtest/gtest.h>

#include "rules/catalog.h"
#include "tools/replay.h"
#include "tools/test_trace.h"
#include "trace/reader.h"

namespace kvguard::tools {
namespace {

struct Outcome {
  bool planted = false;
  Planted plan;
  size_t changed_records = 0;
  std::vector<kvguard_finding> findings;  // of the changed record
  std::vector<kvguard_finding> before;
  uint32_t verdict = KVGUARD_CANNOT_JUDGE;
};

// The whole trace with one fault in it.
Outcome Plant(const std::string& path, FaultKind kind, uint64_t from_step = 0) {
  Outcome out;
  trace::TraceReader reader;
  EXPECT_TRUE(reader.Open(path).ok());
  Planter planter(reader.geometry(), kind, from_step);
  trace::OwnedRecord owned;
  trace::RecordView view;
  bool now = false;
  ReplayHooks hooks;
  hooks.replace = [&](const kvguard_record& record) -> const kvguard_record& {
    owned = trace::OwnedRecord::Of(record);
    const trace::OwnedRecord before = owned;
    now = planter.Offer(&owned);
    EXPECT_EQ(now, !(before == owned)) << "a record changes exactly where the planter says so";
    out.changed_records += now ? 1 : 0;
    return view.Of(owned);
  };
  hooks.judged = [&](const Judged& judged) {
    auto& list = now ? out.findings : out.before;
    if (now || !planter.done()) list.assign(judged.findings.begin(), judged.findings.end());
    return true;
  };
  const ReplayResult result = Replay(path, hooks);
  out.planted = planter.done();
  out.plan = planter.planted();
  out.verdict = result.verdict;
  return out;
}

bool Names(const kvguard_finding& finding, uint32_t cause) {
  for (uint32_t i = 0; i < finding.num_causes; ++i) {
    if (finding.causes[i].kind == cause) return true;
  }
  return cause == KVGUARD_CAUSE_NONE;
}

void ExpectAllFound(const std::string& path) {
  for (const Fault& fault : Faults()) {
    for (const uint64_t from : {0, 10, 18, 33}) {
      const Outcome out = Plant(path, fault.kind, from);
      SCOPED_TRACE(std::string(fault.name) + " from step " + std::to_string(from) + ": " +
                   out.plan.what);
      ASSERT_TRUE(out.planted);
      EXPECT_GE(out.plan.step, from);
      EXPECT_EQ(out.changed_records, 1u);
      EXPECT_TRUE(out.before.empty());
      EXPECT_EQ(out.verdict, uint32_t{KVGUARD_VIOLATED});
      ASSERT_FALSE(out.findings.empty());
      const kvguard_finding& first = out.findings[0];
      EXPECT_EQ(first.code, out.plan.code);
      EXPECT_EQ(first.step, out.plan.step);
      EXPECT_EQ(first.row, static_cast<int64_t>(out.plan.row));
      EXPECT_NE(first.flags & KVGUARD_FINDING_FIRST_CAUSE, 0u);
      EXPECT_TRUE(Names(first, out.plan.cause)) << report::Name("cause", out.plan.cause);
    }
  }
}

TEST(Plant, EveryFaultIsFoundAtItsStepWithItsCodeAndCause) {
  TestFolder folder;
  RecordHealthy(folder / "run.kvtrace");
  ExpectAllFound(folder / "run.kvtrace");
}

TEST(Plant, KernelBlocks) {
  TestFolder folder;
  audit::ScenarioOptions options;
  options.groups = {{8, 4, KVGUARD_UNIT_KERNEL_BLOCK, 0}};
  options.columns = 12;
  RecordTrace(
      folder / "run.kvtrace", [](SmallEngine& engine) { engine.Run(nullptr, 48); }, options);
  ExpectAllFound(folder / "run.kvtrace");
}

TEST(Plant, WideTablesAndNarrowSlots) {
  TestFolder folder;
  audit::ScenarioOptions options;
  options.wide_tables = true;
  options.narrow_slots = true;
  RecordHealthy(folder / "run.kvtrace", options);
  ExpectAllFound(folder / "run.kvtrace");
}

TEST(Plant, TwoGroups) {
  TestFolder folder;
  audit::ScenarioOptions options;
  options.groups = {audit::ScenarioGroup{}, audit::ScenarioGroup{}};
  RecordHealthy(folder / "run.kvtrace", options);
  ExpectAllFound(folder / "run.kvtrace");
}

TEST(Plant, AnEngineThatCountsItsColumnsLosesThemToo) {
  TestFolder folder;
  RecordTrace(folder / "run.kvtrace", [](SmallEngine& engine) {
    engine.Admit("a", 6);
    engine.Admit("b", 7);
    for (int i = 0; i < 12; ++i) {
      engine.Step([](audit::ScenarioPlan& plan) {
        auto& group = plan.groups[0];
        for (size_t b = 0; b < plan.requests.size(); ++b) {
          int64_t live = 0;
          while (plan.Table(0, b, static_cast<size_t>(live)) != 0) ++live;
          group.row_columns.push_back(live);
        }
      });
    }
  });
  const Outcome out = Plant(folder / "run.kvtrace", FaultKind::kLostAppend);
  ASSERT_TRUE(out.planted);
  EXPECT_EQ(out.plan.code, uint32_t{rules::kTableColumnsMismatch});
  ASSERT_FALSE(out.findings.empty());
  EXPECT_EQ(out.findings[0].code, out.plan.code);
  EXPECT_TRUE(Names(out.findings[0], KVGUARD_CAUSE_LOST_APPEND));
}

TEST(Plant, AForeignBlockNamesItsVictim) {
  TestFolder folder;
  RecordHealthy(folder / "run.kvtrace");
  const Outcome out = Plant(folder / "run.kvtrace", FaultKind::kForeignBlock);
  ASSERT_FALSE(out.findings.empty());
  EXPECT_NE(out.findings[0].flags & KVGUARD_FINDING_HAS_VICTIM, 0u);
  std::set<uint32_t> codes;
  for (const kvguard_finding& finding : out.findings) codes.insert(finding.code);
  EXPECT_EQ(codes.count(rules::kForeignWrite), 1u);
}

TEST(Plant, NothingIsPlantedWhereTheSituationDoesNotExist) {
  TestFolder folder;
  // One request that stays in its first block: nothing to swap, to append, or to be beside.
  RecordTrace(folder / "run.kvtrace", [](SmallEngine& engine) {
    engine.Admit("a", 2);
    engine.Step();
  });
  for (const Fault& fault : Faults()) {
    const Outcome out = Plant(folder / "run.kvtrace", fault.kind);
    EXPECT_FALSE(out.planted) << fault.name;
    EXPECT_EQ(out.verdict, uint32_t{KVGUARD_CLEAN}) << fault.name;
  }
}

TEST(Plant, NamesAreUniqueAndFound) {
  std::set<std::string> names;
  for (const Fault& fault : Faults()) {
    EXPECT_TRUE(names.insert(fault.name).second);
    ASSERT_NE(FindFault(fault.name), nullptr);
    EXPECT_EQ(FindFault(fault.name)->kind, fault.kind);
  }
  EXPECT_EQ(FindFault("no-such-fault"), nullptr);
}

}  // namespace
}  // namespace kvguard::tools
