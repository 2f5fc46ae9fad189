// SPDX-License-Identifier: Apache-2.0
// The usual mistakes, made on purpose: each is named, with what it is about, and only where it
// gives all the values of its row.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "audit/scenario.h"
#include "rules/catalog.h"
#include "tests/support/plan_edit.h"

namespace kvguard::tests {
namespace {

using audit::Scenario;
using audit::ScenarioOptions;
using audit::ScenarioPlan;

// The first finding with this code (of this request, where one is given).
kvguard_finding Find(const Scenario& s, uint32_t code, const char* request = nullptr) {
  for (const kvguard_finding& f : s.Findings()) {
    if (f.code == code && (request == nullptr || f.request == s.Key(request))) return f;
  }
  ADD_FAILURE() << "no KV0" << code << " in\n" << s.Report();
  return {};
}

std::optional<uint64_t> Cause(const kvguard_finding& f, uint32_t kind) {
  for (uint32_t i = 0; i < f.num_causes; ++i) {
    if (f.causes[i].kind == kind) return f.causes[i].arg;
  }
  return std::nullopt;
}

bool Tried(const kvguard_finding& f, uint32_t kind) { return (f.causes_tried >> kind & 1u) != 0; }

// Three requests of five tokens: a in blocks 1 2 3, b in 4 5 6, c in 7 8 9.
void Three(Scenario& s) {
  s.Admit("a", {{1, 2, 3}}).Schedule("a", 5);
  s.Admit("b", {{4, 5, 6}}).Schedule("b", 5);
  s.Admit("c", {{7, 8, 9}}).Schedule("c", 5);
}

TEST(SlotCause, AnotherRowsSlots) {
  Scenario s;
  Three(s);
  s.Step([](ScenarioPlan& p) {
    for (size_t i = 0; i < 5; ++i) p.groups[0].slots[i] = p.groups[0].slots[10 + i];
  });
  const kvguard_finding f = Find(s, rules::kSlotMismatch);
  EXPECT_EQ(Cause(f, KVGUARD_CAUSE_ROW_OF), s.Key("c"));
  EXPECT_NE(s.Explain(f).find("cause=row-of:c"), std::string::npos) << s.Explain(f);
}

TEST(SlotCause, AnotherRowsTableWithTheOwnPosition) {
  Scenario s;
  Three(s);
  s.Step();
  s.Schedule("a", 2).Schedule("b", 1);
  s.Step([](ScenarioPlan& p) {
    p.groups[0].slots[0] = 5 * 4 + 1;  // b's table, a's positions 5 and 6
    p.groups[0].slots[1] = 5 * 4 + 2;
  });
  EXPECT_EQ(Cause(Find(s, rules::kSlotMismatch), KVGUARD_CAUSE_ROW_OF), s.Key("b"));
}

TEST(SlotCause, IsNotNamedForAllButOneToken) {
  Scenario s;
  Three(s);
  s.Step([](ScenarioPlan& p) {
    for (size_t i = 0; i < 4; ++i) p.groups[0].slots[i] = p.groups[0].slots[10 + i];
  });
  const kvguard_finding f = Find(s, rules::kSlotMismatch);
  EXPECT_EQ(f.num_causes, 0u) << s.Explain(f);
  EXPECT_TRUE(Tried(f, KVGUARD_CAUSE_ROW_OF));
  EXPECT_NE(s.Explain(f).find("cause=none"), std::string::npos);
  EXPECT_NE(s.Explain(f).find("None of the usual mistakes"), std::string::npos);
}

TEST(SlotCause, TheBufferOfTheStepBefore) {
  Scenario s;
  Three(s);
  s.Step();
  s.Schedule("c", 1).Schedule("a", 1);
  s.Step([](ScenarioPlan& p) { p.groups[0].slots = {4, 5}; });  // as step 1 began
  const kvguard_finding f = Find(s, rules::kSlotMismatch, "c");
  EXPECT_EQ(Cause(f, KVGUARD_CAUSE_PREVIOUS_STEP), 1u) << s.Explain(f);
}

TEST(SlotCause, TheStepBeforeIsNotTriedWhereThereIsNone) {
  Scenario s;
  Three(s);
  s.Step([](ScenarioPlan& p) { ++p.groups[0].slots[0]; });
  EXPECT_FALSE(Tried(Find(s, rules::kSlotMismatch), KVGUARD_CAUSE_PREVIOUS_STEP));
}

TEST(SlotCause, TheColumnBesideTheRightOne) {
  for (const int64_t by : {1, -1}) {
    Scenario s;
    Three(s);
    s.Step();
    s.Schedule("b", 2);
    s.Step([&](ScenarioPlan& p) {
      for (int64_t& slot : p.groups[0].slots) slot += 4 * by;  // b's blocks are neighbours
    });
    EXPECT_EQ(Cause(Find(s, rules::kSlotMismatch), KVGUARD_CAUSE_OFF_BY_ONE_BLOCK),
              static_cast<uint64_t>(by));
  }
}

TEST(SlotCause, AnotherBlockSize) {
  ScenarioOptions options;
  options.groups = {{8, 4, KVGUARD_UNIT_BLOCK, 0}};
  Scenario s(options);
  s.Admit("a", {{3, 7, 5, 9}}).Schedule("a", 14);
  s.Step([](ScenarioPlan& p) {
    const int64_t blocks[] = {3, 7, 5, 9};
    for (int64_t i = 0; i < 14; ++i)
      p.groups[0].slots[static_cast<size_t>(i)] = blocks[i / 4] * 4 + i % 4;
  });
  const kvguard_finding f = Find(s, rules::kSlotMismatch);
  EXPECT_EQ(Cause(f, KVGUARD_CAUSE_BLOCK_SIZE), 4u) << s.Explain(f);
}

TEST(SlotCause, AnEarlierOwner) {
  Scenario s;
  s.Admit("x", {{10, 11}}).Schedule("x", 6).Step();
  s.Finish("x").Admit("a", {{1, 2}}).Schedule("a", 6);
  s.Step([](ScenarioPlan& p) {
    p.groups[0].slots[4] = 11 * 4;
    p.groups[0].slots[5] = 11 * 4 + 1;
  });
  const kvguard_finding f = Find(s, rules::kSlotMismatch);
  EXPECT_EQ(Cause(f, KVGUARD_CAUSE_EARLIER_OWNER), s.Key("x"));
  EXPECT_NE(s.Explain(f).find("cause=earlier-owner:x"), std::string::npos) << "a released name";
}

TEST(SlotCause, AStaleAndAnOptimisticFrontier) {
  Scenario s;
  Three(s);
  s.Step();
  s.Schedule("a", 1).Schedule("b", 2);
  s.Step([](ScenarioPlan& p) {
    p.groups[0].slots[0] = 2 * 4;      // a's position 4, not 5
    p.groups[0].slots[1] = 5 * 4 + 3;  // b's positions 7 and 8, not 5 and 6
    p.groups[0].slots[2] = 6 * 4;
  });
  EXPECT_EQ(Cause(Find(s, rules::kSlotMismatch, "a"), KVGUARD_CAUSE_STALE_FRONTIER), 4u);
  EXPECT_EQ(Cause(Find(s, rules::kSlotMismatch, "b"), KVGUARD_CAUSE_OPTIMISTIC_FRONTIER), 7u);
}

TEST(TableCause, AnotherRowsTable) {
  Scenario s;
  Three(s);
  s.Step([](ScenarioPlan& p) {
    for (size_t j = 0; j < 3; ++j) p.Table(0, 1, j) = p.Table(0, 0, j);
  });
  const kvguard_finding f = Find(s, rules::kTableMismatch, "b");
  EXPECT_EQ(Cause(f, KVGUARD_CAUSE_ROW_OF), s.Key("a"));
  EXPECT_EQ(f.count, 3u);
  EXPECT_NE(f.flags & KVGUARD_FINDING_HAS_VICTIM, 0u);
  EXPECT_EQ(f.victim, s.Key("a"));
}

// Rows change places from one step to the next, and the gathered table does not follow.
TEST(TableCause, TheRowOfTheStepBefore) {
  Scenario s;
  Three(s);
  s.Step();
  s.Schedule("b", 1).Schedule("c", 1);
  s.Step([](ScenarioPlan& p) {
    for (size_t j = 0; j < 3; ++j) p.Table(0, 0, j) = static_cast<int64_t>(1 + j);  // a's, then
  });
  const kvguard_finding f = Find(s, rules::kTableMismatch, "b");
  EXPECT_EQ(Cause(f, KVGUARD_CAUSE_PREVIOUS_STEP), 1u) << s.Explain(f);
  EXPECT_FALSE(Cause(f, KVGUARD_CAUSE_ROW_OF)) << "a has no row in this step";
}

TEST(TableCause, TheColumnBesideTheRightOne) {
  Scenario s;
  s.Admit("a", {{11, 5, 8, 2}}).Schedule("a", 5);
  s.Step([](ScenarioPlan& p) {
    for (size_t j = 0; j < 3; ++j) p.Table(0, 0, j) = p.Table(0, 0, j + 1);
  });
  EXPECT_EQ(Cause(Find(s, rules::kTableMismatch), KVGUARD_CAUSE_OFF_BY_ONE_BLOCK), 1u);
}

TEST(TableCause, BlocksWhereKernelBlocksBelong) {
  ScenarioOptions options;
  options.groups = {{8, 4, KVGUARD_UNIT_KERNEL_BLOCK, 0}};
  Scenario s(options);
  s.Admit("a", {{11, 5, 8, 2}}).Schedule("a", 5);
  s.Step([](ScenarioPlan& p) {
    const int64_t blocks[] = {11, 5, 8, 2, 0, 0, 0, 0};
    for (size_t j = 0; j < 8; ++j) p.Table(0, 0, j) = blocks[j];
  });
  EXPECT_EQ(Cause(Find(s, rules::kTableMismatch), KVGUARD_CAUSE_BLOCK_SIZE), 8u);
}

TEST(TableCause, KernelBlocksWhereBlocksBelong) {
  ScenarioOptions options;
  options.groups = {{8, 4, KVGUARD_UNIT_BLOCK, 0}};
  Scenario s(options);
  s.Admit("a", {{11, 5, 8, 2}}).Schedule("a", 5);
  s.Step([](ScenarioPlan& p) {
    const int64_t kernel[] = {22, 23, 10, 11};
    for (size_t j = 0; j < 4; ++j) p.Table(0, 0, j) = kernel[j];
  });
  EXPECT_EQ(Cause(Find(s, rules::kTableMismatch), KVGUARD_CAUSE_BLOCK_SIZE), 4u);
}

TEST(TableCause, AnEarlierOwnersResidue) {
  Scenario s;
  s.Admit("x", {{10, 11}}).Schedule("x", 6).Step();
  s.Finish("x").Admit("a", {{1, 2}}).Schedule("a", 5);
  s.Step([](ScenarioPlan& p) { p.Table(0, 0, 1) = 11; });
  EXPECT_EQ(Cause(Find(s, rules::kTableMismatch), KVGUARD_CAUSE_EARLIER_OWNER), s.Key("x"));
}

TEST(TableCause, ALostAppend) {
  Scenario s;
  s.Admit("a", {{1}}).Schedule("a", 4).Step();
  s.Append("a", {2}).Schedule("a", 1);
  s.Step([](ScenarioPlan& p) { p.Table(0, 0, 1) = 0; });
  const kvguard_finding f = Find(s, rules::kTableNull);
  EXPECT_EQ(Cause(f, KVGUARD_CAUSE_LOST_APPEND), 1u) << s.Explain(f);
}

TEST(TableCause, NoneOfThem) {
  Scenario s;
  Three(s);
  s.Step([](ScenarioPlan& p) { p.Table(0, 1, 2) = 33; });
  const kvguard_finding f = Find(s, rules::kTableMismatch);
  EXPECT_EQ(f.num_causes, 0u) << s.Explain(f);
  EXPECT_TRUE(Tried(f, KVGUARD_CAUSE_ROW_OF));
  EXPECT_TRUE(Tried(f, KVGUARD_CAUSE_LOST_APPEND));
}

TEST(FrontierCause, StaleOrOptimistic) {
  Scenario s;
  Three(s);
  s.Step();
  s.Computed("a") = 4;
  s.Computed("b") = 7;
  s.Schedule("a", 1, 0, 5).Schedule("b", 1, 0, 5).Step();
  const kvguard_finding a = Find(s, rules::kFrontierMismatch, "a");
  EXPECT_EQ(Cause(a, KVGUARD_CAUSE_STALE_FRONTIER), 4u);
  EXPECT_EQ(a.expected, 5);
  EXPECT_EQ(a.observed, 4);
  EXPECT_EQ(Cause(Find(s, rules::kFrontierMismatch, "b"), KVGUARD_CAUSE_OPTIMISTIC_FRONTIER), 7u);
}

// The index map gives a row to another request as a whole: table, positions, length.
TEST(FrontierCause, AnotherRequestsRow) {
  Scenario s;
  s.Admit("a", {{1, 2, 3}}).Schedule("a", 5);
  s.Admit("b", {{4, 5, 6}}).Schedule("b", 7).Step();
  s.Schedule("a", 1).Schedule("b", 1);
  s.Step([](ScenarioPlan& p) {
    const ScenarioPlan right = p;
    p = WithRows(right, {1, 1});
    p.requests = right.requests;
  });
  const auto findings = s.Findings();
  ASSERT_FALSE(findings.empty());
  EXPECT_EQ(findings[0].code, static_cast<uint32_t>(rules::kTableMismatch)) << s.Report();
  EXPECT_EQ(Cause(findings[0], KVGUARD_CAUSE_ROW_OF), s.Key("b"));
  const kvguard_finding f = Find(s, rules::kFrontierMismatch);
  EXPECT_EQ(Cause(f, KVGUARD_CAUSE_ROW_OF), s.Key("b"));
  EXPECT_EQ(f.because_of, static_cast<uint32_t>(rules::kTableMismatch));
}

// The public fault that the README leads with, in small: after a failed load the scheduler goes
// back, the runner's counter stays, and the row's residue makes it write a live neighbour's blocks.
TEST(FirstCause, AFailedLoadThatTheRunnerDidNotRewind) {
  ScenarioOptions options;
  options.engine_flags |= KVGUARD_ENGINE_CONNECTOR;
  Scenario s(options);
  s.Admit("b", {{8, 9, 10}}).Schedule("b", 9).Step();
  s.Admit("a", {{4, 5, 6}}, 8).Schedule("a", 4).Schedule("b", 1).Step();
  s.Computed("a") = 12;
  s.Schedule("a", 8, 0, 4).Schedule("b", 1);  // computed again from position 4 on
  s.Step([](ScenarioPlan& p) {
    for (size_t i = 0; i < 8; ++i)  // columns 3 and 4 hold residue: blocks 8 and 9
      p.groups[0].slots[i] = (8 + static_cast<int64_t>(i) / 4) * 4 + static_cast<int64_t>(i) % 4;
  });
  const auto findings = s.Findings();
  ASSERT_FALSE(findings.empty());
  EXPECT_EQ(findings[0].code, static_cast<uint32_t>(rules::kFrontierMismatch)) << s.Report();
  EXPECT_EQ(findings[0].expected, 4);
  EXPECT_EQ(findings[0].observed, 12);
  const kvguard_finding foreign = Find(s, rules::kForeignWrite);
  EXPECT_EQ(foreign.victim, s.Key("b"));
  EXPECT_EQ(foreign.victim_block, 8);
  EXPECT_EQ(foreign.victim_first, 0);
  EXPECT_EQ(foreign.victim_last, 3);
  EXPECT_EQ(foreign.because_of, static_cast<uint32_t>(rules::kFrontierMismatch));
}

// A victim's tokens are counted in the blocks of its own group.
TEST(Victim, OfAnotherGroupHasBlocksOfItsOwnSize) {
  ScenarioOptions options;
  options.groups = {{4, 4, KVGUARD_UNIT_BLOCK, 0}, {8, 8, KVGUARD_UNIT_BLOCK, 0}};
  Scenario s(options);
  s.Admit("a", {{1, 2}, {3}}).Schedule("a", 8);
  s.Admit("b", {{4, 5, 6}, {7, 8}}).Schedule("b", 12).Step();
  s.Append("a", {9}, 0).Append("a", {10}, 1).Schedule("a", 2);
  s.Step([](ScenarioPlan& p) {
    p.groups[0].slots = {8 * 4 + 2, 8 * 4 + 3};  // block 8: b's tokens 8..15 in the other group
  });
  const kvguard_finding slot = Find(s, rules::kSlotMismatch);
  EXPECT_EQ(slot.victim, s.Key("b"));
  EXPECT_EQ(slot.victim_first, 8);
  EXPECT_EQ(slot.victim_last, 15);
  const kvguard_finding foreign = Find(s, rules::kForeignWrite);
  EXPECT_EQ(foreign.victim_first, 12) << "the second half of its bytes";
  EXPECT_EQ(foreign.victim_last, 14);
}

// However many findings a step has, the stored ones begin with what explains the others.
TEST(FirstCause, StaysWhereFindingsAreCutOff) {
  Scenario s;
  for (int64_t i = 0; i < 40; ++i) {
    const std::string name(1, static_cast<char>('0' + i));
    s.Admit(name, {{1 + i}}).Schedule(name, 1);
  }
  s.Step([](ScenarioPlan& p) {  // the whole batch is one row off
    const ScenarioPlan right = p;
    std::vector<size_t> rows;
    for (size_t i = 0; i < 40; ++i) rows.push_back((i + 1) % 40);
    p = WithRows(right, rows);
    p.requests = right.requests;
    for (int64_t& position : p.positions) position += 1;
    for (int64_t& length : p.seq_lens) length += 1;
  });
  const auto findings = s.Findings();
  EXPECT_EQ(findings.size(), 32u);
  EXPECT_EQ(findings[0].code, static_cast<uint32_t>(rules::kTableMismatch)) << s.Report();
  EXPECT_GT(s.verdict().proofs, 100u) << "what is not stored is counted";
}

}  // namespace
}  // namespace kvguard::tests
