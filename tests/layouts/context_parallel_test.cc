// SPDX-License-Identifier: Apache-2.0
// Groups that are sharded over the ranks of decode context parallelism.
#include <cstdint>
#include <functional>
#include <map>
#include <string>
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
using Edit = std::function<void(ScenarioPlan&)>;
using Run = std::function<void(Scenario&)>;

// Two ranks, blocks of 4 tokens a rank, interleave 2.
ScenarioOptions Options(uint32_t rank = 0, std::vector<ScenarioGroup> groups = {ScenarioGroup{}}) {
  ScenarioOptions options;
  options.groups = std::move(groups);
  options.dcp_size = 2;
  options.dcp_rank = rank;
  options.interleave = 2;
  return options;
}

ScenarioOptions KernelBlocks() {
  ScenarioGroup group;
  group.kernel_block_size = 2;
  group.table_unit = KVGUARD_UNIT_KERNEL_BLOCK;
  ScenarioOptions options = Options(0, {group});
  options.interleave = 4;
  return options;
}

ScenarioOptions Beside() {
  ScenarioGroup replicated;
  replicated.flags = KVGUARD_GROUP_REPLICATED;
  return Options(0, {ScenarioGroup{}, replicated});
}

// Blocks 3 and 5: 13 tokens.
Run Prefill(const Edit& edit = nullptr) {
  return [=](Scenario& s) {
    s.Admit("other", {{9, 10}}).Schedule("other", 16).Step();
    s.Admit("a", {{3, 5}}).Schedule("a", 13).Step(edit);
  };
}

// And 2 more, which are positions 13 and 14.
Run AndOn(const Run& run) {
  return [=](Scenario& s) {
    run(s);
    s.Schedule("a", 2).Step();
  };
}

// The slots of a's prefill as they are on this rank, one by one.
Run PrefillShows(std::vector<int64_t> slots) {
  return Prefill([=](ScenarioPlan& p) { p.groups[0].slots = slots; });
}

Run WithSlot(size_t token, int64_t slot) {
  return Prefill([=](ScenarioPlan& p) { p.groups[0].slots[token] = slot; });
}

Run OwnLength(int64_t length) {
  return Prefill([=](ScenarioPlan& p) { p.groups[0].seq_lens = {length}; });
}

// c shares the first column of a, whose 8 positions were computed.
Run SharesAfter(int64_t computed, std::vector<int64_t> blocks, int64_t tokens) {
  return [=](Scenario& s) {
    s.Admit("a", {{3, 5}}).Schedule("a", 13).Step();
    s.Schedule("a", 1).Admit("c", {blocks}, computed).Schedule("c", tokens).Step();
  };
}

// Window 16: at position 32 positions from 17 on are needed, column 2 begins at 16.
Run WindowColumn(int64_t block) {
  return [=](Scenario& s) {
    s.Admit("a", {{1, 2, 3, 4, 5}}).Schedule("a", 32).Step();
    s.Schedule("a", 1).Admit("b", {{block}}).Schedule("b", 1).Step();
  };
}

const std::map<std::string, PlantedScenario>& All() {
  ScenarioGroup windowed;
  windowed.kind = KVGUARD_GROUP_WINDOW;
  windowed.window = 16;
  const ScenarioOptions window = Options(0, {windowed});
  static const std::map<std::string, PlantedScenario> all = {
      {"right-on-rank-0",
       {Options(), AndOn(PrefillShows({12, 13, -1, -1, 14, 15, -1, -1, 20, 21, -1, -1, 22}))}},
      {"right-on-rank-1",
       {Options(1), AndOn(PrefillShows({-1, -1, 12, 13, -1, -1, 14, 15, -1, -1, 20, 21, -1}))}},
      {"token-of-the-other-rank-is-written", {Options(), WithSlot(2, 30)}},
      {"token-of-the-other-rank-into-the-null-block", {Options(), WithSlot(2, 1)}},
      {"token-of-the-other-rank-out-of-range", {Options(), WithSlot(2, 256)}},
      {"own-token-is-padded", {Options(), WithSlot(8, -1)}},
      {"own-token-at-the-replicated-address", {Options(), WithSlot(5, 21)}},
      {"whole-row-of-the-other-rank",
       {Options(), PrefillShows({-1, -1, 12, 13, -1, -1, 14, 15, -1, -1, 20, 21, -1})}},
      {"another-interleave",
       {Options(), PrefillShows({12, -1, 13, -1, 14, -1, 15, -1, 20, -1, 21, -1, 22})}},
      {"not-sharded-at-all",
       {Options(),
        [](Scenario& s) {
          s.Admit("a", {{3, 5}}).Schedule("a", 8).Step([](ScenarioPlan& p) {
            p.groups[0].slots = {12, 13, 14, 15, 20, 21, 22, 23};
          });
        }}},
      {"replicated-beside-ranks",
       {Beside(),
        [](Scenario& s) {
          s.Admit("a", {{3, 5}, {11, 12, 13, 14}}).Schedule("a", 13).Step([](ScenarioPlan& p) {
            p.groups[0].slots = {12, 13, -1, -1, 14, 15, -1, -1, 20, 21, -1, -1, 22};
            p.groups[1].slots = {44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56};
          });
          s.Schedule("a", 2).Step();
        }}},
      // vllm #51031, as its witness stands in the engine's own terms: 44 to 47 twice, and 48 to 51
      // in a foreign block.
      {"B114-kernel-blocks-instead-of-blocks",
       {KernelBlocks(),
        [](Scenario& s) {
          s.Admit("a", {{5, 2}}).Schedule("a", 8).Step([](ScenarioPlan& p) {
            p.groups[0].slots = {20, 21, 22, 23, 22, 23, 24, 25};
          });
        }}},
      {"kernel-blocks",
       {KernelBlocks(),
        [](Scenario& s) {
          s.Admit("a", {{5, 2}}).Schedule("a", 10).Step([](ScenarioPlan& p) {
            p.groups[0].slots = {20, 21, 22, 23, -1, -1, -1, -1, 8, 9};
          });
          s.Schedule("a", 4).Step();
        }}},
      {"short-by-a-column",
       {Options(), [](Scenario& s) { s.Admit("a", {{3, 5}}).Schedule("a", 17).Step(); }}},
      {"exactly-two-columns",
       {Options(), [](Scenario& s) { s.Admit("a", {{3, 5}}).Schedule("a", 16).Step(); }}},
      {"two-columns-of-the-scheduler-count-once",
       {Options(1), [](Scenario& s) { s.Admit("a", {{3, 5}}).Schedule("a", 9).Step(); }}},
      {"foreign-write", {Options(), WithSlot(0, 9 * 4 + 1)}},
      {"same-slot-twice", {Options(), WithSlot(1, 12)}},
      {"local-length", {Options(), AndOn(OwnLength(7))}},
      {"whole-length-as-local", {Options(), OwnLength(13)}},
      {"local-length-of-the-other-rank", {Options(), OwnLength(6)}},
      {"prefix-hit-of-one-column", {Options(), SharesAfter(8, {3, 6}, 3)}},
      {"prefix-hit-of-half-a-column", {Options(), SharesAfter(4, {3, 6}, 3)}},
      {"window-column-given-away", {window, WindowColumn(3)}},
      {"window-column-behind", {window, WindowColumn(2)}},
  };
  return all;
}

TEST(ContextParallel, EachPlantedFaultIsFoundAndNothingElse) {
  CheckPlantedList("context_parallel_faults.txt", All());
}

TEST(ContextParallel, ThePadSlotMayBeAnyNumber) {
  for (const int64_t pad : {int64_t{-1}, int64_t{-2}, int64_t{INT32_MAX}}) {
    for (const bool wrong : {false, true}) {
      ScenarioOptions options = Options();
      options.pad_slot = pad;
      Scenario s(options);
      s.Admit("a", {{3, 5}}).Schedule("a", 13).Step([=](ScenarioPlan& p) {
        if (wrong) p.groups[0].slots[2] = 30;
      });
      const std::vector<uint32_t> expected(wrong ? 1 : 0, rules::kSlotNotLocal);
      EXPECT_EQ(s.Codes(), expected) << pad << "\n" << s.Report();
    }
  }
}

uint32_t FirstCauseOf(ScenarioOptions options, const Run& run, uint64_t* arg) {
  Scenario s(std::move(options));
  run(s);
  for (const kvguard_finding& finding : s.Findings()) {
    if (finding.num_causes == 0) continue;
    *arg = finding.causes[0].arg;
    return finding.causes[0].kind;
  }
  return KVGUARD_CAUSE_NONE;
}

TEST(ContextParallel, SaysWhatTheSlotsAreInstead) {
  uint64_t arg = 0;
  EXPECT_EQ(FirstCauseOf(Options(), All().at("whole-row-of-the-other-rank").run, &arg),
            static_cast<uint32_t>(KVGUARD_CAUSE_OTHER_RANK));
  EXPECT_EQ(arg, 1u);
  EXPECT_EQ(FirstCauseOf(Options(), All().at("another-interleave").run, &arg),
            static_cast<uint32_t>(KVGUARD_CAUSE_INTERLEAVE));
  EXPECT_EQ(arg, 1u);
  EXPECT_EQ(FirstCauseOf(Options(), All().at("not-sharded-at-all").run, &arg),
            static_cast<uint32_t>(KVGUARD_CAUSE_INTERLEAVE));
  EXPECT_EQ(arg, 0u);
  const PlantedScenario& kernel = All().at("B114-kernel-blocks-instead-of-blocks");
  EXPECT_EQ(FirstCauseOf(kernel.options, kernel.run, &arg),
            static_cast<uint32_t>(KVGUARD_CAUSE_BLOCK_SIZE));
  EXPECT_EQ(arg, 2u);
}

// Each position is one rank's alone, and the ranks fill a block each without a gap.
TEST(ContextParallel, TheRanksShareEveryPositionOnce) {
  for (const uint32_t ranks : {2u, 3u, 4u}) {
    for (const uint32_t interleave : {1u, 2u, 4u}) {
      std::vector<int> owners(60);
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        ScenarioOptions options = Options(rank);
        options.dcp_size = ranks;
        options.interleave = interleave;
        Scenario s(options);
        std::vector<int64_t> blocks;
        for (int64_t block = 1; block <= 8; ++block) blocks.push_back(block);
        s.Admit("a", {blocks}).Schedule("a", 60);
        ASSERT_EQ(s.Begin(), KVGUARD_OK);
        const ScenarioPlan plan = s.RightPlan();
        int64_t last = 3;
        int64_t held = 0;
        for (size_t i = 0; i < 60; ++i) {
          const int64_t slot = plan.groups[0].slots[i];
          if (slot < 0) continue;
          EXPECT_EQ(slot, last + 1);
          last = slot;
          ++owners[i];
          ++held;
        }
        ScenarioPlan lengths = plan;
        lengths.groups[0].seq_lens = {held};
        EXPECT_EQ(s.Plan(lengths), KVGUARD_OK);
        EXPECT_EQ(s.Report(), "") << ranks << " " << interleave << " " << rank;
      }
      EXPECT_EQ(owners, std::vector<int>(60, 1));
    }
  }
}

}  // namespace
}  // namespace kvguard::tests
