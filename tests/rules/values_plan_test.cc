// SPDX-License-Identifier: Apache-2.0
// What the findings of a plan say: step, frontier, length, table, slot.
#include <gtest/gtest.h>

#include "rules/catalog.h"
#include "tests/rules/values.h"

namespace kvguard::tests {
namespace {

using audit::Scenario;
using audit::ScenarioOptions;
using audit::ScenarioPlan;

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

}  // namespace
}  // namespace kvguard::tests
