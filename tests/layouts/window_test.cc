// SPDX-License-Identifier: Apache-2.0
// Groups that forget: sliding windows and chunked local attention.
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "rules/catalog.h"
#include "tests/layouts/planted.h"

namespace kvguard::tests {
namespace {

using audit::Scenario;
using audit::ScenarioGroup;
using audit::ScenarioOptions;
using audit::ScenarioPlan;
using Run = std::function<void(Scenario&)>;

// Blocks of 4; window or chunk of 8.
ScenarioGroup Windowed(uint32_t kind = KVGUARD_GROUP_WINDOW, uint32_t sink = 0) {
  ScenarioGroup group;
  group.kind = kind;
  group.window = 8;
  group.sink = sink;
  return group;
}

ScenarioOptions Options(std::vector<ScenarioGroup> groups, uint32_t flags = 0) {
  ScenarioOptions options;
  options.groups = std::move(groups);
  options.engine_flags |= flags;
  options.max_drafts = 4;
  return options;
}

// Request a has 16 computed tokens in blocks 1 to 4 and one more column, 5: the window of position
// 16 begins at 9, in column 2; the chunk of position 16 is new.
void Sixteen(Scenario& s) { s.Admit("a", {{1, 2, 3, 4, 5}}).Schedule("a", 16).Step(); }

// a goes on by a token while b is admitted with these blocks.
Run GivenAway(std::vector<std::vector<int64_t>> blocks) {
  return [=](Scenario& s) {
    Sixteen(s);
    s.Schedule("a", 1).Admit("b", blocks).Schedule("b", 1).Step();
  };
}

Run WithTable(size_t column, int64_t shown) {
  return [=](Scenario& s) {
    Sixteen(s);
    s.Schedule("a", 1).Step([=](ScenarioPlan& p) { p.Table(0, 0, column) = shown; });
  };
}

// a has 15 computed tokens and 4 drafts after the 16th: at 20 its window begins in column 3, at 16
// in column 2. Block 3 (column 2) is given to b before the outcome is known.
Run Pruned(uint32_t rejected) {
  return [=](Scenario& s) {
    s.Admit("a", {{1, 2, 3, 4, 5, 6}}).Schedule("a", 15).Step();
    s.Schedule("a", 5, 4).Step();
    const uint64_t drafted = s.step();
    s.Schedule("a", 1, 0, 20).Admit("b", {{3}}).Schedule("b", 1).Begin();
    s.Outcome(drafted, "a", 5 - rejected, rejected);
    s.Plan(s.RightPlan());
    s.End();
  };
}

const std::map<std::string, PlantedScenario>& All() {
  const ScenarioOptions window = Options({Windowed()});
  const ScenarioOptions async = Options({Windowed()}, KVGUARD_ENGINE_ASYNC);
  const ScenarioOptions sink = Options({Windowed(KVGUARD_GROUP_WINDOW, 4)});
  const ScenarioOptions chunk = Options({Windowed(KVGUARD_GROUP_CHUNKED)});
  const ScenarioOptions hybrid = Options({ScenarioGroup{}, Windowed()});
  static const std::map<std::string, PlantedScenario> all = {
      {"B030-pruned-on-the-optimistic-count", {async, Pruned(4)}},
      {"pruned-and-accepted", {async, Pruned(0)}},
      {"needed-column-given-away", {window, GivenAway({{3}})}},
      {"expired-column-given-away", {window, GivenAway({{2}})}},
      {"expired-column-comes-back",
       {window,
        [](Scenario& s) {
          s.Admit("a", {{1, 2, 3, 4}}).Schedule("a", 16).Step();
          s.Append("a", {1}).Schedule("a", 1).Step();
          s.Schedule("a", 2).Step();
        }}},
      {"expired-column-is-stale-in-the-table", {window, WithTable(1, -7)}},
      {"needed-column-is-wrong-in-the-table", {window, WithTable(2, 9)}},
      {"needed-column-is-null-in-the-table", {window, WithTable(2, 0)}},
      {"null-before-the-window",
       {window, [](Scenario& s) { s.Admit("a", {{0, 0, 3, 4, 5}}, 16).Schedule("a", 1).Step(); }}},
      {"null-inside-the-window",
       {window, [](Scenario& s) { s.Admit("a", {{0, 0, 0, 4, 5}}, 16).Schedule("a", 1).Step(); }}},
      {"sink-column-given-away", {sink, GivenAway({{1}})}},
      {"chunk-column-given-away",
       {chunk,
        [](Scenario& s) {
          Sixteen(s);
          s.Schedule("a", 2).Step();
          s.Schedule("a", 1).Admit("b", {{5}}).Schedule("b", 1).Step();
        }}},
      {"earlier-chunk-given-away", {chunk, GivenAway({{4}})}},
      {"count-goes-back-behind-the-window",
       {Options({Windowed()}, KVGUARD_ENGINE_CONNECTOR),
        [](Scenario& s) {
          Sixteen(s);
          s.Schedule("a", 1).Admit("b", {{2}}).Schedule("b", 1).Step();
          s.Computed("a") = 8;
          s.Schedule("a", 1, 0, 8).Step();
        }}},
      {"rewritten-inside-a-hybrid",
       {hybrid,
        [](Scenario& s) {
          s.Admit("a", {{11, 12, 13, 14, 15}, {1, 2, 3, 4, 5}}).Schedule("a", 16).Step();
          s.Schedule("a", 1).Admit("b", {{3}, {6}}).Schedule("b", 1).Step();
        }}},
      {"released-into-a-hybrid",
       {hybrid,
        [](Scenario& s) {
          s.Admit("a", {{11, 12, 13, 14, 15}, {1, 2, 3, 4, 5}}).Schedule("a", 16).Step();
          s.Schedule("a", 1).Admit("b", {{2}, {6}}).Schedule("b", 1).Step();
        }}},
      {"foreign-write-into-the-window",
       {window,
        [](Scenario& s) {
          Sixteen(s);
          s.Schedule("a", 1).Admit("b", {{8}}).Schedule("b", 1).Step([](ScenarioPlan& p) {
            p.groups[0].slots[1] = 3 * 4 + 1;
          });
        }}},
  };
  return all;
}

TEST(Window, EveryPlantedFaultIsFoundAtItsFirstBadStep) {
  CheckPlantedList("window_faults.txt", All());
}

// The bug's own numbers say what is read: positions 9..12 of the window, whose block b has now.
TEST(Window, B030NamesTheColumnAndItsNewOwner) {
  Scenario s(All().at("B030-pruned-on-the-optimistic-count").options);
  All().at("B030-pruned-on-the-optimistic-count").run(s);
  const auto findings = s.Findings();
  ASSERT_EQ(findings.size(), 1u) << s.Report();
  EXPECT_EQ(findings[0].request, s.Key("a"));
  EXPECT_EQ(findings[0].pos, 9);
  EXPECT_EQ(findings[0].observed, 3);
  EXPECT_EQ(findings[0].victim, s.Key("b"));
}

// A released column is nobody's: a stray write into it is a wrong slot without a victim.
TEST(Window, NobodyIsTheVictimInAReleasedColumn) {
  Scenario s(Options({Windowed()}));
  Sixteen(s);
  s.Schedule("a", 1).Admit("b", {{8}}).Schedule("b", 1).Step([](ScenarioPlan& p) {
    p.groups[0].slots[1] = 1 * 4;
  });
  const auto findings = s.Findings();
  ASSERT_EQ(findings.size(), 1u) << s.Report();
  EXPECT_EQ(findings[0].code, static_cast<uint32_t>(rules::kSlotMismatch));
  EXPECT_EQ(findings[0].victim, 0u);
}

// What the window has left behind is still left behind after a restore.
TEST(Window, ASnapshotKeepsWhatHasExpired) {
  Scenario s(Options({Windowed()}));
  Sixteen(s);
  ASSERT_EQ(s.Restore(s.Snapshot()), KVGUARD_OK) << s.error();
  s.Schedule("a", 1).Admit("b", {{2}}).Schedule("b", 1).Step();
  EXPECT_EQ(s.Report(), "");
  ASSERT_EQ(s.Restore(s.Snapshot()), KVGUARD_OK) << s.error();
  s.Schedule("a", 1).Admit("c", {{4}}).Schedule("c", 1).Step();
  ASSERT_FALSE(s.Findings().empty());
  EXPECT_EQ(s.Findings()[0].code, static_cast<uint32_t>(rules::kBlockOwned));
}

// Table unit kernel block: the window's first column is compared whole, what lies before it is not.
TEST(Window, KernelBlocksAreComparedFromTheFirstNeededBlockOn) {
  ScenarioGroup group = Windowed();
  group.kernel_block_size = 2;
  group.table_unit = KVGUARD_UNIT_KERNEL_BLOCK;
  for (const size_t entry : {3u, 4u}) {
    Scenario s(Options({group}));
    Sixteen(s);
    s.Schedule("a", 1).Step([=](ScenarioPlan& p) { p.Table(0, 0, entry) = 40; });
    EXPECT_EQ(s.Findings().empty(), entry == 3) << s.Report();
  }
}

}  // namespace
}  // namespace kvguard::tests
