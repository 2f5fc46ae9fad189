// SPDX-License-Identifier: Apache-2.0
// What a finding says beside its code: where, what was expected and shown, how many values agree
// with it, and whom it hits. Who reads a report has nothing else to go by.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "audit/scenario.h"
#include "rules/catalog.h"

namespace kvguard::tests {
namespace {

using audit::Scenario;
using audit::ScenarioGroup;
using audit::ScenarioOptions;
using audit::ScenarioPlan;

constexpr int64_t kNone = KVGUARD_NONE;
constexpr uint32_t kAll = KVGUARD_ALL_GROUPS;

struct Want {
  uint32_t code = 0;
  std::string request;  // "": 0
  uint32_t group = kAll;
  int64_t row = kNone;
  int64_t pos = kNone;
  int64_t expected = 0;  // both 0: the finding has no values
  int64_t observed = 0;
  uint64_t count = 1;
  std::string victim;  // "": none
  int64_t victim_block = kNone;
  int64_t first = 0;
  int64_t last = 0;
  uint64_t since = 0;
};

std::string Text(const kvguard_finding& f) {
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

std::string Text(const Scenario& s, const Want& want) {
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
kvguard_finding Only(const Scenario& s, uint32_t code) {
  std::vector<kvguard_finding> found = s.Findings();
  std::erase_if(found, [&](const kvguard_finding& f) { return f.code != code; });
  EXPECT_EQ(found.size(), 1u) << s.Report();
  return found.empty() ? kvguard_finding{} : found[0];
}

// These findings and no others; causes come before what they explain, which is not asked here.
void Expect(const Scenario& s, const std::vector<Want>& wanted) {
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

ScenarioOptions Window(uint32_t sink = 0) {
  ScenarioOptions options;
  options.groups[0].kind = KVGUARD_GROUP_WINDOW;
  options.groups[0].window = 8;
  options.groups[0].sink = sink;
  return options;
}

ScenarioOptions Connector() {
  ScenarioOptions options;
  options.engine_flags |= KVGUARD_ENGINE_CONNECTOR | KVGUARD_ENGINE_PARTIAL_HITS;
  return options;
}

// --- step ---

TEST(Values, ARowOfAnotherRequestAndOneThatIsMissing) {
  Scenario s;
  s.Admit("a", {{1}}).Schedule("a", 2).Admit("b", {{2}}).Schedule("b", 2);
  s.Step([](ScenarioPlan& p) { p.requests[1] = 99; });
  const kvguard_finding unknown = Only(s, rules::kRowUnknown);
  EXPECT_EQ(unknown.request, 99u);
  EXPECT_EQ(unknown.row, 1);
  EXPECT_EQ(Only(s, rules::kRowMissing).request, s.Key("b"));
}

TEST(Values, ARequestWithTwoRows) {
  Scenario s;
  s.Admit("a", {{1}}).Schedule("a", 2).Admit("b", {{2}}).Schedule("b", 2);
  s.Step([](ScenarioPlan& p) { p.requests[1] = p.requests[0]; });
  Expect(s, {{.code = rules::kRowDuplicate, .request = "a", .row = 1},
             {.code = rules::kRowMissing, .request = "b"}});
}

TEST(Values, ARowOfAnotherLength) {
  Scenario s;
  s.Admit("a", {{1}}).Schedule("a", 2).Admit("b", {{2}}).Schedule("b", 2);
  s.Step([](ScenarioPlan& p) {
    p.query_start = {0, 1, 4};
    p.positions = {0, 0, 1, 2};
    p.groups[0].slots = {4, 8, 9, 10};
  });
  Expect(s, {{.code = rules::kQueryLengthMismatch,
              .request = "a",
              .row = 0,
              .expected = 2,
              .observed = 1},
             {.code = rules::kQueryLengthMismatch,
              .request = "b",
              .row = 1,
              .expected = 2,
              .observed = 3}});
}

TEST(Values, QueryOffsetsThatCannotBeUsed) {
  struct Case {
    std::vector<int64_t> offsets;
    int64_t row, expected, observed;
  };
  const Case cases[] = {{{1, 2, 4}, 0, 0, 1},
                        {{0, 3, 2}, 2, 3, 2},
                        {{0, 5, 4}, 1, 4, 5},
                        {{0, 2, 3}, 2, 4, 3},
                        {{0, -1, 4}, 1, 0, -1}};
  for (const Case& c : cases) {
    Scenario s;
    s.Admit("a", {{1}}).Schedule("a", 2).Admit("b", {{2}}).Schedule("b", 2);
    s.Step([&](ScenarioPlan& p) { p.query_start = c.offsets; });
    Expect(s, {{.code = rules::kQueryStartMalformed,
                .row = c.row,
                .expected = c.expected,
                .observed = c.observed}});
  }
}

// A row without tokens is a row: nothing of it is malformed.
TEST(Values, AnEmptyRowIsOfAnotherLengthOnly) {
  Scenario s;
  s.Admit("a", {{1}}).Schedule("a", 2).Admit("b", {{2}}).Schedule("b", 2);
  s.Step([](ScenarioPlan& p) {
    p.query_start = {0, 0, 2};
    p.positions = {0, 1};
    p.groups[0].slots = {8, 9};
    p.padded_tokens = 2;
  });
  Expect(s, {{.code = rules::kQueryLengthMismatch,
              .request = "a",
              .row = 0,
              .expected = 2,
              .observed = 0}});
}

// --- frontier, length ---

TEST(Values, AnotherStartAndPositionsThatDoNotRise) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 3).Step();
  s.Admit("b", {{3}}).Schedule("b", 1).Schedule("a", 4).Step([](ScenarioPlan& p) {
    p.positions = {0, 5, 6, 8, 9};
  });
  Expect(s, {{.code = rules::kFrontierMismatch,
              .request = "a",
              .row = 1,
              .pos = 3,
              .expected = 3,
              .observed = 5,
              .count = 4},
             {.code = rules::kPositionMismatch,
              .request = "a",
              .row = 1,
              .pos = 7,
              .expected = 7,
              .observed = 8}});
}

TEST(Values, AnotherComputedCountIsToldOnce) {
  for (const bool both : {false, true}) {
    Scenario s;
    s.Admit("a", {{1, 2}}).Schedule("a", 3).Step();
    s.Schedule("a", 2).Step([&](ScenarioPlan& p) {
      p.num_computed = {2};
      if (both) p.positions = {4, 5};
    });
    Expect(s, {{.code = rules::kFrontierMismatch,
                .request = "a",
                .row = 0,
                .pos = 3,
                .expected = 3,
                .observed = both ? 4 : 2,
                .count = 2}});
  }
}

TEST(Values, LengthsOfRowsOfPaddingAndOfGroups) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 3).Step([](ScenarioPlan& p) {
    p.Pad(2, 1);
    p.seq_lens = {4, 0, 6};
    p.groups[0].seq_lens = {3, 7, 0};
  });
  Expect(s, {{.code = rules::kSeqLenMismatch,
              .request = "a",
              .row = 0,
              .pos = 3,
              .expected = 3,
              .observed = 4},
             {.code = rules::kPaddedSeqLen, .row = 2, .observed = 6},
             {.code = rules::kPaddedSeqLen, .group = 0, .row = 1, .observed = 7}});
}

// --- binding, ownership ---

TEST(Values, BlocksThatCannotBeBound) {
  Scenario s;
  s.Admit("a", {{64, 0, 3, 3}}).Schedule("a", 1).Begin();
  Expect(s, {{.code = rules::kBlockOutOfRange,
              .request = "a",
              .group = 0,
              .pos = 0,
              .expected = 63,
              .observed = 64},
             {.code = rules::kBlockNull,
              .request = "a",
              .group = 0,
              .pos = 1,
              .expected = kNone,
              .observed = 0},
             {.code = rules::kBlockRepeated,
              .request = "a",
              .group = 0,
              .pos = 3,
              .expected = kNone,
              .observed = 3}});
}

TEST(Values, ARowThatIsTooShortAndOneThatIsTooWide) {
  ScenarioOptions options;
  options.columns = 2;
  Scenario s(options);
  s.Admit("a", {{1}}).Schedule("a", 6).Admit("b", {{2, 3, 4}}).Schedule("b", 1).Begin();
  Expect(s, {{.code = rules::kRowTooWide, .request = "b", .group = 0, .expected = 2, .observed = 3},
             {.code = rules::kCapacityShort,
              .request = "a",
              .group = 0,
              .pos = 5,
              .expected = 2,
              .observed = 1}});
}

TEST(Values, CountsThatAreAheadAndBehind) {
  for (const int64_t computed : {5, 3}) {
    Scenario s;
    s.Admit("a", {{1, 2}}).Schedule("a", 4).Step();
    s.Schedule("a", 1, 0, computed).Begin();
    Expect(s, {{.code = computed == 5 ? rules::kCountAhead : rules::kCountBehind,
                .request = "a",
                .pos = computed,
                .expected = 4,
                .observed = computed}});
  }
}

TEST(Values, AFreshBlockThatSomebodyHolds) {
  Scenario s;
  s.Admit("x", {{9}}).Schedule("x", 1).Step();
  s.Admit("a", {{1, 2}}).Schedule("a", 4).Step();
  s.Admit("b", {{3, 2}}).Schedule("b", 1).Begin();
  Expect(s, {{.code = rules::kBlockOwned,
              .request = "b",
              .group = 0,
              .pos = 1,
              .expected = kNone,
              .observed = 2,
              .victim = "a",
              .victim_block = 2,
              .first = 4,
              .last = 7,
              .since = 2}});
}

// Both are told to write what the first one fills.
TEST(Values, TwoWritersOfOneBlock) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 6).Step();
  s.Admit("b", {{1, 2}}, 8).Schedule("a", 1);
  s.Computed("b") = 6;
  s.Schedule("b", 1).Begin();
  EXPECT_EQ(Text(Only(s, rules::kTwoWriters)), Text(s, {.code = rules::kTwoWriters,
                                                        .request = "b",
                                                        .group = 0,
                                                        .pos = 4,
                                                        .expected = kNone,
                                                        .observed = 2,
                                                        .victim = "a",
                                                        .victim_block = 2,
                                                        .first = 4,
                                                        .last = 7,
                                                        .since = 1}));
}

// --- table ---

TEST(Values, WrongEntriesOfEachKind) {
  Scenario s;
  s.Admit("a", {{1, 2, 3, 4, 5}}).Schedule("a", 4).Admit("b", {{6}}).Schedule("b", 1);
  s.Step([](ScenarioPlan& p) {
    p.Table(0, 0, 0) = 6;
    p.Table(0, 0, 1) = 0;
    p.Table(0, 0, 2) = 64;
    p.Table(0, 0, 3) = -1;
    p.Table(0, 0, 4) = 9;
  });
  Expect(s, {{.code = rules::kTableMismatch,
              .request = "a",
              .group = 0,
              .row = 0,
              .pos = 0,
              .expected = 1,
              .observed = 6,
              .count = 2,
              .victim = "b",
              .victim_block = 6,
              .first = 0,
              .last = 3,
              .since = 1},
             {.code = rules::kTableNull,
              .request = "a",
              .group = 0,
              .row = 0,
              .pos = 1,
              .expected = 2,
              .observed = 0},
             {.code = rules::kTableOutOfRange,
              .request = "a",
              .group = 0,
              .row = 0,
              .pos = 2,
              .expected = 3,
              .observed = 64,
              .count = 2}});
}

TEST(Values, ColumnsThatAreCountedAndPaddingRows) {
  Scenario s;
  s.Admit("a", {{1, 2, 3}}).Schedule("a", 4).Step([](ScenarioPlan& p) {
    p.Pad(2, 0);
    p.groups[0].row_columns = {2, 0, 0};
    p.Table(0, 2, 1) = 7;
    p.Table(0, 2, 3) = 8;
  });
  Expect(s, {{.code = rules::kTableColumnsMismatch,
              .request = "a",
              .group = 0,
              .row = 0,
              .pos = 2,
              .expected = 3,
              .observed = 2},
             {.code = rules::kPaddedRowNotNull,
              .group = 0,
              .row = 2,
              .pos = 1,
              .expected = 0,
              .observed = 7}});
}

// Entries of kernel blocks: the pool ends where its last block's last entry does.
TEST(Values, KernelBlocksOfTheNullBlockAndBehindThePool) {
  ScenarioOptions options;
  options.groups[0].block_size = 8;
  options.groups[0].kernel_block_size = 4;
  options.groups[0].table_unit = KVGUARD_UNIT_KERNEL_BLOCK;
  Scenario s(options);
  s.Admit("a", {{1, 2}}).Schedule("a", 4).Admit("b", {{3}}).Schedule("b", 1);
  s.Step([](ScenarioPlan& p) {
    p.Table(0, 0, 0) = 7;    // the second half of block 3
    p.Table(0, 0, 1) = 1;    // of the null block
    p.Table(0, 0, 2) = 128;  // behind the pool
    p.Table(0, 0, 3) = 127;  // its last entry
  });
  Expect(s, {{.code = rules::kTableMismatch,
              .request = "a",
              .group = 0,
              .row = 0,
              .pos = 0,
              .expected = 2,
              .observed = 7,
              .count = 2,
              .victim = "b",
              .victim_block = 3,
              .first = 0,
              .last = 7,
              .since = 1},
             {.code = rules::kTableNull,
              .request = "a",
              .group = 0,
              .row = 0,
              .pos = 1,
              .expected = 3,
              .observed = 1},
             {.code = rules::kTableOutOfRange,
              .request = "a",
              .group = 0,
              .row = 0,
              .pos = 2,
              .expected = 4,
              .observed = 128}});
}

// --- slot ---

TEST(Values, WrongSlotsOfEachKind) {
  Scenario s;
  s.Admit("b", {{5, 6}}).Schedule("b", 6).Step();
  s.Admit("a", {{1, 2, 3}}).Schedule("a", 9).Step([](ScenarioPlan& p) {
    p.groups[0].slots = {4, 25, 26, 0, 8, -1, 256, -1, 12};
  });
  Expect(s, {{.code = rules::kSlotMismatch,
              .request = "a",
              .group = 0,
              .row = 0,
              .pos = 1,
              .expected = 5,
              .observed = 25,
              .count = 2,
              .victim = "b",
              .victim_block = 6,
              .first = 4,
              .last = 7,
              .since = 1},
             {.code = rules::kSlotNullBlock,
              .request = "a",
              .group = 0,
              .row = 0,
              .pos = 3,
              .expected = 7,
              .observed = 0},
             {.code = rules::kSlotPad,
              .request = "a",
              .group = 0,
              .row = 0,
              .pos = 5,
              .expected = 9,
              .observed = -1,
              .count = 2},
             {.code = rules::kSlotOutOfRange,
              .request = "a",
              .group = 0,
              .row = 0,
              .pos = 6,
              .expected = 10,
              .observed = 256},
             {.code = rules::kForeignWrite,
              .request = "a",
              .group = 0,
              .row = 0,
              .pos = 1,
              .expected = kNone,
              .observed = 25,
              .count = 2,
              .victim = "b",
              .victim_block = 6,
              .first = 5,
              .last = 6,
              .since = 1}});
}

// The first and the last slot of the pool are slots like any other.
TEST(Values, TheEndsOfThePool) {
  ScenarioOptions options;
  options.null_block = kNone;
  options.group_flags = 0;
  Scenario s(options);
  s.Admit("b", {{0}}).Schedule("b", 4).Admit("c", {{63}}).Schedule("c", 4).Step();
  s.Admit("a", {{1}}).Schedule("a", 3).Step([](ScenarioPlan& p) {
    p.groups[0].slots = {0, 255, 256};
  });
  Expect(s, {{.code = rules::kSlotMismatch,
              .request = "a",
              .group = 0,
              .row = 0,
              .pos = 0,
              .expected = 4,
              .observed = 0,
              .count = 2,
              .victim = "b",
              .victim_block = 0,
              .first = 0,
              .last = 3,
              .since = 1},
             {.code = rules::kSlotOutOfRange,
              .request = "a",
              .group = 0,
              .row = 0,
              .pos = 2,
              .expected = 6,
              .observed = 256},
             {.code = rules::kForeignWrite,
              .request = "a",
              .group = 0,
              .row = 0,
              .pos = 0,
              .expected = kNone,
              .observed = 0,
              .victim = "b",
              .victim_block = 0,
              .first = 0,
              .last = 0,
              .since = 1},
             {.code = rules::kForeignWrite,
              .request = "a",
              .group = 0,
              .row = 0,
              .pos = 1,
              .expected = kNone,
              .observed = 255,
              .victim = "c",
              .victim_block = 63,
              .first = 3,
              .last = 3,
              .since = 1}});
}

TEST(Values, OneSlotForTwoTokens) {
  for (const bool same_row : {false, true}) {
    Scenario s;
    s.Admit("x", {{9}}).Schedule("x", 1).Admit("a", {{1}}).Schedule("a", 2);
    s.Admit("b", {{2}}).Schedule("b", 3).Step([&](ScenarioPlan& p) {
      p.groups[0].slots = same_row ? std::vector<int64_t>{36, 4, 5, 8, 9, 8}
                                   : std::vector<int64_t>{36, 4, 5, 5, 9, 5};
    });
    Want want = {.code = rules::kSlotWrittenTwice,
                 .request = "b",
                 .group = 0,
                 .row = 2,
                 .pos = same_row ? 2 : 0,
                 .expected = kNone,
                 .observed = same_row ? 8 : 5,
                 .count = same_row ? 1u : 2u};
    if (!same_row) {
      want.victim = "a";
      want.first = want.last = 1;
    }
    EXPECT_EQ(Text(Only(s, rules::kSlotWrittenTwice)), Text(s, want));
  }
}

TEST(Values, PadSlotsThatAreReal) {
  Scenario s;
  s.Admit("b", {{5}}).Schedule("b", 4).Step();
  s.Admit("a", {{1}}).Schedule("a", 2).Step([](ScenarioPlan& p) {
    p.Pad(0, 3);
    p.groups[0].slots[3] = 21;
  });
  Expect(s, {{.code = rules::kPadSlotReal,
              .group = 0,
              .pos = 3,
              .expected = -1,
              .observed = 21,
              .victim = "b",
              .victim_block = 5,
              .first = 0,
              .last = 3,
              .since = 1}});
}

// --- lifetime ---

// Window 8 at 16: columns 2 and 3 are read, and 0 is a sink.
TEST(Values, WhatIsStaleInAWindow) {
  for (const uint32_t sink : {0u, 1u}) {
    Scenario s(Window(sink));
    s.Admit("a", {{1, 2, 3, 4, 5}}).Schedule("a", 17).Step();
    s.Admit("b", {{sink == 0 ? 3 : 1, 4}}).Schedule("b", 1).Begin();
    ASSERT_FALSE(s.Findings().empty());
    s.Plan(s.RightPlan());
    s.End();
    s.Schedule("a", 1).Step();
    const std::vector<kvguard_finding> found = s.Findings();
    ASSERT_EQ(found.back().code, static_cast<uint32_t>(rules::kReadStale)) << s.Report();
    EXPECT_EQ(Text(found.back()), Text(s, {.code = rules::kReadStale,
                                           .request = "a",
                                           .group = 0,
                                           .row = 0,
                                           .pos = sink == 0 ? 10 : 0,
                                           .expected = kNone,
                                           .observed = sink == 0 ? 3 : 1,
                                           .count = 2,
                                           .victim = "b",
                                           .victim_block = sink == 0 ? 3 : 1,
                                           .first = 0,
                                           .last = 3,
                                           .since = 2}));
  }
}

TEST(Values, FreesOfWhatIsHeldAndOfWhatIsFree) {
  Scenario s;
  s.Admit("x", {{9}}).Admit("a", {{1, 2}}).Schedule("a", 6).Step();
  s.Blocks(KVGUARD_EVENT_FREE, "", {2, 7, 64, 7}).Schedule("a", 1).Begin();
  Expect(s,
         {{.code = rules::kBlockOutOfRange, .group = 0, .pos = 2, .expected = 63, .observed = 64},
          {.code = rules::kFreedWhileHeld,
           .request = "a",
           .group = 0,
           .pos = 1,
           .expected = kNone,
           .observed = 2},
          {.code = rules::kFreedTwice, .group = 0, .expected = kNone, .observed = 7}});
}

// --- content ---

TEST(Values, AHitOfWhatBelongsElsewhere) {
  Scenario s;
  s.Admit("a", {{1, 2, 3}}).Schedule("a", 12).Step();
  s.Admit("b", {{1, 3, 4}}, 8).Schedule("b", 1).Begin();
  Expect(s, {{.code = rules::kContentMisplaced,
              .request = "b",
              .group = 0,
              .pos = 1,
              .expected = 2,
              .observed = 3}});
}

TEST(Values, AHitOfOtherTokensOfOtherMarksAndOfNothing) {
  Scenario s;
  s.Admit("a", {{1, 2, 3}}).Tokens({1, 2, 3, 4, 5, 6, 7, 8, 9}).Schedule("a", 8).Step();
  s.Admit("b", {{1, 2, 3, 4}}, 12).Tokens({1, 2, 3, 4, 5, 6, 7, 0, 9, 9, 9, 9, 9});
  s.Schedule("b", 1);
  s.Admit("c", {{1, 5}}, 4).Tokens({1, 2, 3, 4, 5}).Domain(KVGUARD_DOMAIN_SALT, 3, 0, 5);
  s.Schedule("c", 1).Begin();
  Expect(s, {{.code = rules::kContentMismatch,
              .request = "b",
              .group = 0,
              .pos = 1,
              .expected = kNone,
              .observed = 2},
             {.code = rules::kContentUnwritten,
              .request = "b",
              .group = 0,
              .pos = 2,
              .expected = kNone,
              .observed = 3},
             {.code = rules::kDomainMismatch,
              .request = "c",
              .group = 0,
              .pos = 0,
              .expected = kNone,
              .observed = 1}});
}

// --- transfer ---

TEST(Values, TransfersThatNobodyKnowsOrKnowsAlready) {
  Scenario s(Connector());
  s.Expect("a").Blocks(KVGUARD_EVENT_LOAD, "a", {1}, 7).Step();
  s.Blocks(KVGUARD_EVENT_LOAD, "a", {2}, 7).Blocks(KVGUARD_EVENT_SEND_DONE, "a", {}, 8).Begin();
  Expect(s, {{.code = rules::kTransferReused,
              .request = "a",
              .group = 0,
              .expected = kNone,
              .observed = 7},
             {.code = rules::kTransferUnknown,
              .request = "a",
              .group = 0,
              .expected = kNone,
              .observed = 8}});
}

TEST(Values, ALoadIntoAnotherBlock) {
  Scenario s(Connector());
  s.Admit("b", {{9}}).Schedule("b", 4).Step();
  s.Admit("a", {{1, 2, 3}}).Blocks(KVGUARD_EVENT_LOAD, "a", {1, 9}, 7).Begin();
  Expect(s, {{.code = rules::kTransferMisplaced,
              .request = "a",
              .group = 0,
              .pos = 4,
              .expected = 2,
              .observed = 9,
              .victim = "b",
              .victim_block = 9,
              .first = 0,
              .last = 3,
              .since = 1}});
}

TEST(Values, ASendOfAnothersBlock) {
  Scenario s(Connector());
  s.Admit("b", {{9, 8}}).Schedule("b", 8).Admit("a", {{1, 2}}).Schedule("a", 4).Step();
  s.Blocks(KVGUARD_EVENT_SEND_PENDING, "a", {1, 9, 8}, 7).Begin();
  Expect(s, {{.code = rules::kTransferMisplaced,
              .request = "a",
              .group = 0,
              .expected = kNone,
              .observed = 9,
              .victim = "b",
              .victim_block = 9,
              .first = 0,
              .last = 3,
              .since = 1}});
}

TEST(Values, PinnedBlocksThatAreBoundOrHandedOut) {
  Scenario s(Connector());
  s.Admit("a", {{1, 2}}).Schedule("a", 8).Step();
  s.Blocks(KVGUARD_EVENT_SEND_PENDING, "a", {1, 2}, 7).Finish("a").Step();
  s.Admit("b", {{3, 1}}).Expect("c").Blocks(KVGUARD_EVENT_LOAD, "c", {4, 2, 2}, 8).Begin();
  Expect(s, {{.code = rules::kPinnedRebound,
              .request = "b",
              .group = 0,
              .pos = 1,
              .expected = kNone,
              .observed = 1},
             {.code = rules::kPinnedRebound,
              .request = "c",
              .group = 0,
              .expected = kNone,
              .observed = 2}});
}

TEST(Values, AWriteToWhatIsBeingSent) {
  Scenario s(Connector());
  s.Admit("a", {{1, 2, 3}}).Schedule("a", 6).Step();
  s.Blocks(KVGUARD_EVENT_SEND_PENDING, "a", {1, 2, 3}, 7).Schedule("a", 4).Begin();
  Expect(s, {{.code = rules::kWriteWhilePinned,
              .request = "a",
              .group = 0,
              .pos = 4,
              .expected = kNone,
              .observed = 2}});
}

TEST(Values, AReadOfWhatIsBeingLoadedAndOfWhatFailed) {
  Scenario s(Connector());
  s.Admit("x", {{9}}).Schedule("x", 1).Step();
  s.Admit("a", {{1, 2, 3}}, 8).Blocks(KVGUARD_EVENT_LOAD, "a", {1, 2}, 7).Schedule("x", 1);
  s.Schedule("a", 1).Step();
  Expect(s, {{.code = rules::kReadWhileLoading,
              .request = "a",
              .group = 0,
              .row = 1,
              .pos = 0,
              .expected = kNone,
              .observed = 1}});
  s.Blocks(KVGUARD_EVENT_LOAD_FAILED, "a", {2}, 7).Schedule("a", 1).Begin();
  EXPECT_EQ(Text(s.Findings().back()), Text(s, {.code = rules::kFailedLoadUsed,
                                                .request = "a",
                                                .group = 0,
                                                .pos = 4,
                                                .expected = kNone,
                                                .observed = 2}));
}

// --- copy ---

TEST(Values, ZeroingThatIsUsedLiveOrLost) {
  Scenario s;
  s.Admit("x", {{9}}).Blocks(KVGUARD_EVENT_ZERO, "", {9}).Blocks(KVGUARD_EVENT_ZERO_DONE, "", {9});
  s.Schedule("x", 1).Step();
  s.Admit("a", {{1, 2, 3}}).Schedule("a", 12).Step();
  s.Admit("b", {{4, 5, 6}}).Blocks(KVGUARD_EVENT_ZERO, "", {2, 5, 6}).Schedule("a", 1);
  s.Append("a", {7}).Schedule("b", 9).Step();
  Expect(s, {{.code = rules::kZeroLive,
              .request = "a",
              .group = 0,
              .pos = 4,
              .expected = kNone,
              .observed = 2},
             {.code = rules::kUsedBeforeZeroed,
              .request = "a",
              .group = 0,
              .row = 0,
              .pos = 4,
              .expected = kNone,
              .observed = 2},
             {.code = rules::kUsedBeforeZeroed,
              .request = "b",
              .group = 0,
              .row = 1,
              .pos = 4,
              .expected = kNone,
              .observed = 5},
             {.code = rules::kCopyLost, .group = 0, .expected = kNone, .observed = 2, .count = 3}});
}

TEST(Values, CopiesOntoWhatIsHeldAndFromWhatIsZeroed) {
  Scenario s;
  s.Admit("x", {{9}}).Schedule("x", 1).Admit("a", {{1, 2}}).Schedule("a", 8).Step();
  s.Blocks(KVGUARD_EVENT_COPY, "", {5, 2, 6, 0, 8, 7});
  s.Blocks(KVGUARD_EVENT_ZERO, "", {8, 4}).Schedule("x", 1).Begin();
  Expect(s, {{.code = rules::kCopyTargetHeld,
              .request = "a",
              .group = 0,
              .expected = kNone,
              .observed = 2},
             {.code = rules::kCopyTargetHeld, .group = 0, .expected = kNone, .observed = 0},
             {.code = rules::kCopySourceZeroed, .group = 0, .expected = kNone, .observed = 8}});
}

}  // namespace
}  // namespace kvguard::tests
