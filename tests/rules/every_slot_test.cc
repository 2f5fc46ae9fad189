// SPDX-License-Identifier: Apache-2.0
// Every number in every place: of a row's tokens one shows each slot of the pool and some beside
// it. The right one is silent and every other is found, from every start, in every kind of group.
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "audit/scenario.h"

namespace kvguard::tests {
namespace {

using audit::Scenario;
using audit::ScenarioOptions;
using audit::ScenarioPlan;

void TryEverySlot(const ScenarioOptions& options, const std::vector<int64_t>& row, int64_t start,
                  int64_t tokens) {
  Scenario s(options);
  s.Admit("a", {row}).Schedule("a", start == 0 ? tokens : start);
  if (start > 0) s.Step();
  if (start > 0) s.Schedule("a", tokens);
  ASSERT_EQ(s.Begin(), KVGUARD_OK);
  const int64_t slots = static_cast<int64_t>(options.num_blocks) * 4;
  const ScenarioPlan right = s.RightPlan();
  // Counted, since no more than some of a step are kept.
  const auto silent = [&](const ScenarioPlan& plan) {
    const uint64_t before = s.verdict().proofs;
    EXPECT_EQ(s.Plan(plan), KVGUARD_OK);
    return s.verdict().proofs == before;
  };
  const int64_t columns = static_cast<int64_t>(row.size());
  const bool bound = start + tokens <= columns * 4 * options.dcp_size;
  EXPECT_EQ(silent(right), bound) << start << " " << tokens;
  for (size_t i = 0; i < static_cast<size_t>(tokens); ++i) {
    for (int64_t slot = -2; slot <= slots; ++slot) {
      ScenarioPlan plan = right;
      plan.groups[0].slots[i] = slot;
      ASSERT_EQ(silent(plan), bound && slot == right.groups[0].slots[i])
          << "start " << start << " token " << i << " of " << tokens << " slot " << slot << " rank "
          << options.dcp_rank << " interleave " << options.interleave;
    }
  }
}

ScenarioOptions NoNullBlock() {
  ScenarioOptions options;
  options.num_blocks = 6;
  options.columns = 3;
  options.null_block = KVGUARD_NONE;
  options.group_flags = 0;
  return options;
}

TEST(EverySlot, OfAFullGroup) {
  for (const bool narrow : {false, true}) {
    ScenarioOptions options = NoNullBlock();
    options.narrow_slots = narrow;
    for (int64_t start = 0; start < 12; ++start) {
      TryEverySlot(options, {0, 5, 2}, start, 1);
      if (start + 6 <= 12) TryEverySlot(options, {0, 5, 2}, start, 6);
    }
    TryEverySlot(options, {0}, 2, 4);  // two tokens too many
  }
}

TEST(EverySlot, OfOneRankOfTwo) {
  for (const uint32_t rank : {0u, 1u}) {
    for (const uint32_t interleave : {1u, 2u, 4u}) {
      ScenarioOptions options = NoNullBlock();
      options.dcp_size = 2;
      options.dcp_rank = rank;
      options.interleave = interleave;
      for (int64_t start = 0; start < 16; ++start) {
        TryEverySlot(options, {0, 5}, start, 1);
        if (start + 5 <= 16) TryEverySlot(options, {0, 5}, start, 5);
      }
    }
  }
}

}  // namespace
}  // namespace kvguard::tests
