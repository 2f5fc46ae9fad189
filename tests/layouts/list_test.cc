// SPDX-License-Identifier: Apache-2.0
// Reads by lists: CSR in blocks, kernel blocks and slots, FLAT in slots.
#include <gtest/gtest.h>

#include "tests/layouts/planted.h"
#include "tests/support/passes.h"

namespace kvguard::tests {
namespace {

using audit::Scenario;
using audit::ScenarioOptions;
using audit::ScenarioPlan;
using Edit = std::function<void(ScenarioPlan&)>;
using Ints = std::vector<int64_t>;

ScenarioOptions Lists(uint32_t encoding, uint32_t unit, bool sentinels = false) {
  ScenarioOptions options;
  options.groups[0].encoding = encoding;
  options.groups[0].table_unit = unit;
  options.groups[0].sentinels = sentinels;
  if (unit == KVGUARD_UNIT_KERNEL_BLOCK) options.groups[0].kernel_block_size = 2;
  options.max_drafts = 2;
  return options;
}

ScenarioOptions Csr(uint32_t unit = KVGUARD_UNIT_BLOCK) { return Lists(KVGUARD_READ_CSR, unit); }
ScenarioOptions Flat(bool sentinels = false) {
  return Lists(KVGUARD_READ_FLAT, KVGUARD_UNIT_SLOT, sentinels);
}

ScenarioOptions Scaled(uint32_t scale, uint32_t stride, int64_t base) {
  ScenarioOptions options = Flat();
  options.groups[0].index_scale = scale;
  options.groups[0].token_stride = stride;
  options.groups[0].slot_base = base;
  return options;
}

// a of 6 tokens in blocks 1, 2 and b of 9 in 4, 5, 6 take a token each. edit: of the second step.
std::function<void(Scenario&)> TwoRows(const Edit& edit = nullptr, bool lookahead = false) {
  return [=](Scenario& s) {
    s.Admit("a", {lookahead ? Ints{1, 2, 3} : Ints{1, 2}}).Admit("b", {{4, 5, 6}});
    s.Schedule("a", 6).Schedule("b", 9).Step();
    s.Schedule("a", 1).Schedule("b", 1).Step(edit);
  };
}

ScenarioPlan::Group& Of(ScenarioPlan& plan) { return plan.groups[0]; }

void Without(ScenarioPlan& plan) {
  Of(plan).list.clear();
  Of(plan).starts.assign(Of(plan).starts.size(), 0);
}

// Two parts of a chunk of 7 tokens, and one token of a row beside it.
void InParts(Scenario& s) {
  s.Admit("a", {{1, 2}}).Admit("b", {{4}}).Schedule("a", 7).Schedule("b", 1).Begin();
  const ScenarioPlan whole = s.RightPlan();
  ScenarioPlan first = MicroBatch(whole, 0, {{0, 0, 3}});
  Of(first).list = {1};
  Of(first).starts = {0, 1};
  Of(first).last_page = {3};
  s.Plan(first);
  ScenarioPlan second = MicroBatch(whole, 1, {{0, 3, 4}, {1, 0, 1}});
  Of(second).list = {1, 2, 4};
  Of(second).starts = {0, 2, 3};
  Of(second).last_page = {3, 1};
  s.Plan(second);
  s.End();
}

// B018: lengths 17 and 20 in pages of 4 here, so that the draft's token needs a page more.
std::function<void(Scenario&)> Drafted(const Ints& starts, const Ints& list, const Ints& last) {
  return [=](Scenario& s) {
    s.Admit("a", {{1, 2}}).Admit("b", {{4, 5}}).Schedule("a", 4).Schedule("b", 6).Begin();
    const ScenarioPlan whole = s.RightPlan();
    s.Plan(whole);
    ScenarioPlan draft = Draft(whole, 1, {4, 6});
    Of(draft).slots = {8, 22};
    Of(draft).starts = starts;
    Of(draft).list = list;
    Of(draft).last_page = last;
    s.Plan(draft);
    s.End();
  };
}

TEST(Lists, PlantedFaultsAreFoundAndTheirNeighboursAreNot) {
  const ScenarioOptions slots = Csr(KVGUARD_UNIT_SLOT);
  const ScenarioOptions kernel = Csr(KVGUARD_UNIT_KERNEL_BLOCK);
  CheckPlantedList(
      "list_faults.txt",
      {
          {"csr-of-blocks", {Csr(), TwoRows()}},
          {"csr-of-kernel-blocks", {kernel, TwoRows()}},
          {"csr-of-slots", {slots, TwoRows()}},
          {"csr-of-a-list-that-begins-behind-others", {Csr(), TwoRows([](ScenarioPlan& plan) {
                                                         Of(plan).list.insert(Of(plan).list.begin(),
                                                                              {63, 62});
                                                         for (int64_t& start : Of(plan).starts)
                                                           start += 2;
                                                       })}},
          {"csr-without-lookahead", {Csr(), TwoRows(nullptr, true)}},
          {"csr-in-micro-batches", {Csr(), InParts}},
          {"csr-of-a-draft-pass", {Csr(), Drafted({0, 2, 4}, {1, 2, 4, 5}, {1, 3})}},
          {"flat-of-slots", {Flat(), TwoRows()}},
          {"flat-with-sentinels", {Flat(true), TwoRows()}},
          {"flat-empty-at-the-first-step",
           {Flat(),
            [](Scenario& s) {
              s.Admit("a", {{1, 2}}).Admit("b", {{4}}).Schedule("a", 6).Schedule("b", 3);
              s.Step(Without);
            }}},
          {"flat-of-scaled-slots", {Scaled(6, 1, 100), TwoRows([](ScenarioPlan& plan) {
                                      EXPECT_EQ(Of(plan).slots, (Ints{150, 245}));
                                    })}},
          {"flat-of-strided-slots", {Scaled(3, 3, 0), TwoRows([](ScenarioPlan& plan) {
                                       EXPECT_EQ(Of(plan).slots, (Ints{30, 75}));
                                     })}},
          {"scaled-slot-of-another-layer",
           {Scaled(6, 1, 100), TwoRows([](ScenarioPlan& plan) { Of(plan).slots[0] += 4; })}},
          {"scaled-slot-of-another-request",
           {Scaled(6, 1, 100), TwoRows([](ScenarioPlan& plan) { Of(plan).slots[0] = 246; })}},
          {"strided-slot-between-tokens",
           {Scaled(3, 3, 0), TwoRows([](ScenarioPlan& plan) { ++Of(plan).slots[1]; })}},
          {"scaled-slot-before-the-pool",
           {Scaled(6, 1, 100), TwoRows([](ScenarioPlan& plan) { Of(plan).slots[0] = 99; })}},
          {"scaled-list-not-scaled", {Scaled(6, 1, 100), TwoRows([](ScenarioPlan& plan) {
                                        for (int64_t& slot : Of(plan).list)
                                          slot = (slot - 100) / 24 * 4 + (slot - 100) % 24 + 100;
                                      })}},
          {"csr-entry-of-another-request",
           {Csr(), TwoRows([](ScenarioPlan& plan) { Of(plan).list[1] = 5; })}},
          {"csr-two-entries-swapped", {Csr(), TwoRows([](ScenarioPlan& plan) {
                                         std::swap(Of(plan).list[2], Of(plan).list[3]);
                                       })}},
          {"csr-in-the-wrong-unit", {kernel, TwoRows([](ScenarioPlan& plan) {
                                       for (int64_t& entry : Of(plan).list) entry /= 2;
                                     })}},
          {"csr-null-entry", {Csr(), TwoRows([](ScenarioPlan& plan) { Of(plan).list[4] = 0; })}},
          {"csr-entry-out-of-range",
           {Csr(), TwoRows([](ScenarioPlan& plan) { Of(plan).list[4] = 64; })}},
          {"csr-row-too-short", {Csr(), TwoRows([](ScenarioPlan& plan) {
                                   Of(plan).list.pop_back();
                                   --Of(plan).starts[2];
                                 })}},
          {"csr-row-too-long",
           {Csr(), TwoRows(
                       [](ScenarioPlan& plan) {
                         Of(plan).list.insert(Of(plan).list.begin() + 2, 3);
                         ++Of(plan).starts[1];
                         ++Of(plan).starts[2];
                       },
                       true)}},
          {"csr-offsets-fall",
           {Csr(), TwoRows([](ScenarioPlan& plan) { Of(plan).starts[2] = 1; })}},
          {"csr-offsets-leave-the-list",
           {Csr(), TwoRows([](ScenarioPlan& plan) { Of(plan).starts[2] = 99; })}},
          {"B106-offsets-counted-in-pages",
           {slots, TwoRows([](ScenarioPlan& plan) { Of(plan).starts = {0, 2, 5}; })}},
          {"B018-draft-list-of-the-target", {Csr(), Drafted({0, 1, 3}, {1, 4, 5}, {4, 3})}},
          {"csr-last-page-off-by-one",
           {Csr(), TwoRows([](ScenarioPlan& plan) { --Of(plan).last_page[0]; })}},
          {"csr-last-page-zero",
           {Csr(),
            [](Scenario& s) {
              s.Admit("a", {{1, 2}}).Schedule("a", 8).Step([](ScenarioPlan& plan) {
                EXPECT_EQ(Of(plan).last_page, Ints{4});
                Of(plan).last_page = {0};
              });
            }}},
          {"flat-slot-of-another-request",
           {Flat(), TwoRows([](ScenarioPlan& plan) { Of(plan).list[5] = 21; })}},
          {"flat-sentinel-for-an-old-token",
           {Flat(true), TwoRows([](ScenarioPlan& plan) { Of(plan).list[5] = -1; })}},
          {"flat-one-token-missing", {Flat(), TwoRows([](ScenarioPlan& plan) {
                                        Of(plan).list.pop_back();
                                        --Of(plan).starts[2];
                                      })}},
          {"flat-empty-at-a-later-step", {Flat(), TwoRows(Without)}},
      });
}

TEST(Lists, APlanThatShowsNoneIsAGap) {
  Scenario s(Csr());
  s.Admit("a", {{1}}).Schedule("a", 3).Step([](ScenarioPlan& plan) {
    Of(plan).starts.clear();
    Of(plan).table_present = false;
  });
  EXPECT_EQ(s.verdict().verdict, static_cast<uint32_t>(KVGUARD_CANNOT_JUDGE));
  EXPECT_TRUE(s.Findings().empty());
}

TEST(Lists, ATableInTheirPlaceIsRefused) {
  Scenario s(Csr());
  s.Admit("a", {{1}}).Schedule("a", 3).Begin();
  ScenarioPlan plan = s.RightPlan();
  Of(plan).starts.clear();
  EXPECT_EQ(s.Plan(plan), KVGUARD_ERROR_UNSUPPORTED);
  EXPECT_NE(s.error().find("group 0 reads by table"), std::string::npos) << s.error();
}

// The row's own block holds other layers beside: what is written there overwrites nobody else.
TEST(Lists, AScaledSlotNamesWhomItOverwrites) {
  Scenario s(Scaled(6, 1, 100));
  s.Admit("a", {{1, 2}}).Admit("b", {{4, 5, 6}}).Schedule("a", 6).Schedule("b", 9).Step();
  s.Schedule("a", 1).Schedule("b", 1).Step([](ScenarioPlan& plan) { Of(plan).slots[0] = 222; });
  ASSERT_EQ(s.Codes(), (std::vector<uint32_t>{401, 602})) << s.Report();
  EXPECT_EQ(s.Findings()[1].victim_block, 5);
  EXPECT_EQ(s.Findings()[1].victim_first, 6);
}

// The sentinel is no slot, whichever block its number would be in.
TEST(Lists, ASentinelInAWrongPlaceNamesNobody) {
  ScenarioOptions options = Flat(true);
  options.null_block = KVGUARD_NONE;
  Scenario s(options);
  s.Admit("a", {{1, 2}}).Admit("b", {{0}}).Schedule("a", 6).Schedule("b", 2).Step();
  s.Schedule("a", 1).Schedule("b", 1).Step([](ScenarioPlan& plan) { Of(plan).list[2] = -1; });
  ASSERT_EQ(s.Codes(), std::vector<uint32_t>{301}) << s.Report();
  EXPECT_EQ(s.Findings()[0].victim, 0u);
}

// An entry that is wrong in one way and one that is wrong in another are two findings.
TEST(Lists, EachKindOfWrongEntryIsFoundOnceWithItsNumbers) {
  Scenario s(Lists(KVGUARD_READ_FLAT, KVGUARD_UNIT_SLOT));
  s.Admit("a", {{1, 2}}).Admit("b", {{4, 5, 6}}).Schedule("a", 6).Schedule("b", 9).Step();
  s.Schedule("a", 1).Schedule("b", 1).Step([](ScenarioPlan& plan) {
    Of(plan).list[2] = 23;
    Of(plan).list[3] = 24;
    Of(plan).list[5] = 0;
    Of(plan).list[6] = 4096;
  });
  const auto findings = s.Findings();
  ASSERT_EQ(findings.size(), 3u) << s.Report();
  EXPECT_EQ(findings[2].code, 303u);
  EXPECT_EQ(findings[2].pos, 6);
  EXPECT_EQ(findings[1].code, 302u);
  EXPECT_EQ(findings[1].pos, 5);
  EXPECT_EQ(findings[0].code, 301u);
  EXPECT_EQ(findings[0].pos, 2);
  EXPECT_EQ(findings[0].count, 2u);
  EXPECT_EQ(findings[0].expected, 6);
  EXPECT_EQ(findings[0].observed, 23);
  EXPECT_EQ(findings[0].victim, s.Key("b"));
  EXPECT_EQ(findings[0].victim_block, 5);
}

}  // namespace
}  // namespace kvguard::tests
