// SPDX-License-Identifier: Apache-2.0
// One value of a healthy plan is changed: a proof of the right family at that row and position,
// unless it is what it was.
#include <algorithm>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/properties/engine.h"

namespace kvguard::properties {
namespace {

// An engine behind a few healthy steps, inside a step whose plan is not shown yet.
struct Scene {
  Engine engine;
  Guard guard = MakeGuard(engine);
  PlanValues plan;

  Scene() {
    for (int64_t steps = Draw(0, 3); steps > 0; --steps) {
      Feed(guard, engine.BeginStep());
      const PlanValues healthy = engine.DrawPlan();
      Feed(guard, Presented(healthy, engine.step(), KVGUARD_STAGE_PLANNED, Layout{}).record());
      Feed(guard, engine.EndStep());
    }
    Feed(guard, engine.BeginStep());
    plan = engine.DrawPlan();
    RC_ASSERT(Findings(guard).empty());
  }

  size_t DrawRow() const {
    return static_cast<size_t>(Draw(0, static_cast<int64_t>(plan.num_rows()) - 1));
  }
  size_t DrawGroup() const {
    return static_cast<size_t>(Draw(0, static_cast<int64_t>(engine.num_groups()) - 1));
  }
  // Of a row: (index of the token in the plan's arrays, its position).
  std::pair<size_t, int64_t> DrawToken(size_t row) const {
    const Request& request = engine.RowRequest(plan, row);
    const int64_t i = Draw(0, request.scheduled - 1);
    return {static_cast<size_t>(plan.query_start[row] + i), request.computed + i};
  }

  // Feeds the plan and the rest of the step.
  std::vector<kvguard_finding> Judge() {
    Feed(guard, Presented(plan, engine.step(), KVGUARD_STAGE_PLANNED, Layout{}).record());
    Feed(guard, engine.EndStep());
    std::vector<kvguard_finding> findings = Findings(guard);
    RC_LOG() << engine.ToString() << "\n" << ToString(findings);
    return findings;
  }
};

struct Where {
  std::vector<uint32_t> codes;
  uint32_t group;
  uint64_t request;
  int64_t row;
  int64_t pos;
};

bool IsAt(const kvguard_finding& finding, const Where& where) {
  return finding.grade == KVGUARD_GRADE_PROOF && finding.group == where.group &&
         finding.request == where.request && finding.row == where.row && finding.pos == where.pos &&
         std::find(where.codes.begin(), where.codes.end(), finding.code) != where.codes.end();
}

// Exactly where the fault is; nothing at all where the value is what it was.
void AssertFound(Scene& scene, bool changed, const Where& where) {
  const auto findings = scene.Judge();
  RC_CLASSIFY(!changed, "the same value");
  if (!changed) {
    RC_ASSERT(findings.empty());
    return;
  }
  RC_LOG() << "wanted: group " << static_cast<int32_t>(where.group) << " request " << where.request
           << " row " << where.row << " pos " << where.pos << "\n";
  RC_ASSERT(std::any_of(findings.begin(), findings.end(),
                        [&](const kvguard_finding& f) { return IsAt(f, where); }));
  // other rows are right: what is found beside is about this one (a slot written twice may stand at
  // another)
  for (const kvguard_finding& f : findings) RC_ASSERT(f.row == where.row || f.code == 405U);
}

// Near to what is right, or anything that 31 bits hold.
int64_t DrawWrong(int64_t right, int64_t step) {
  return Pick<int64_t>({right, right + 1, right - 1, right + step, right - step, -1, 0, -2,
                        Draw(0, 20000), (int64_t{1} << 31) - 1});
}

Where At(const Scene& scene, size_t row, std::vector<uint32_t> codes, uint32_t group, int64_t pos) {
  return {std::move(codes), group, scene.plan.requests[row], static_cast<int64_t>(row), pos};
}

RC_GTEST_PROP(OneFault, ASlot, ()) {
  Scene scene;
  const size_t row = scene.DrawRow();
  const size_t group = scene.DrawGroup();
  const auto [index, position] = scene.DrawToken(row);
  int64_t& slot = scene.plan.groups[group].slots[index];
  const int64_t right = slot;
  slot = DrawWrong(right, scene.engine.group(group).block_size);
  AssertFound(scene, slot != right,
              At(scene, row, {401, 402, 403, 404, 407}, static_cast<uint32_t>(group), position));
}

RC_GTEST_PROP(OneFault, ASlotOfAnotherToken, ()) {
  Scene scene;
  const size_t row = scene.DrawRow();
  const size_t group = scene.DrawGroup();
  const auto [index, position] = scene.DrawToken(row);
  const auto other = scene.DrawToken(scene.DrawRow());
  std::vector<int64_t>& slots = scene.plan.groups[group].slots;
  const bool changed = slots[index] != slots[other.first];
  const bool real = slots[other.first] != -1;
  slots[index] = slots[other.first];
  AssertFound(scene, changed,
              At(scene, row, {real ? 401U : 403U, 407U}, static_cast<uint32_t>(group), position));
  const auto findings = Findings(scene.guard);
  const bool twice = std::any_of(findings.begin(), findings.end(),
                                 [](const kvguard_finding& f) { return f.code == 405U; });
  RC_ASSERT(twice == (changed && real));
}

RC_GTEST_PROP(OneFault, ATableEntry, ()) {
  Scene scene;
  const size_t row = scene.DrawRow();
  const size_t group = scene.DrawGroup();
  const Request& request = scene.engine.RowRequest(scene.plan, row);
  GroupValues& values = scene.plan.groups[group];
  const int64_t per_block = scene.engine.EntriesPerBlock(group);
  const auto bound = static_cast<int64_t>(request.rows[group].size());
  const int64_t column = Draw(0, static_cast<int64_t>(values.columns) - 1);
  int64_t& entry = values.table[row * values.columns + static_cast<size_t>(column)];
  const int64_t block = column / per_block;
  const bool compared = block < bound && scene.engine.IsNeeded(group, block, request.computed);
  RC_CLASSIFY(!compared, "not compared");
  const int64_t right = entry;
  entry = DrawWrong(right, per_block);
  AssertFound(scene, compared && entry != right,
              At(scene, row, {301, 302, 303}, static_cast<uint32_t>(group), column));
}

RC_GTEST_PROP(OneFault, ALength, ()) {
  Scene scene;
  const size_t row = scene.DrawRow();
  const Request& request = scene.engine.RowRequest(scene.plan, row);
  int64_t& length = scene.plan.seq_lens[row];
  const int64_t right = length;
  length = DrawWrong(right, request.scheduled);
  AssertFound(scene, length != right, At(scene, row, {501}, KVGUARD_ALL_GROUPS, right));
}

RC_GTEST_PROP(OneFault, ALengthOfAGroup, ()) {
  Scene scene;
  const size_t row = scene.DrawRow();
  const size_t group = scene.DrawGroup();
  RC_PRE(!scene.plan.groups[group].seq_lens.empty());
  int64_t& length = scene.plan.groups[group].seq_lens[row];
  const int64_t right = length;
  length = DrawWrong(right, 16);
  AssertFound(scene, length != right,
              At(scene, row, {501}, static_cast<uint32_t>(group), scene.plan.seq_lens[row]));
}

RC_GTEST_PROP(OneFault, APosition, ()) {
  Scene scene;
  RC_PRE(!scene.plan.positions.empty());
  const size_t row = scene.DrawRow();
  const auto [index, position] = scene.DrawToken(row);
  const bool first = position == scene.engine.RowRequest(scene.plan, row).computed;
  int64_t& told = scene.plan.positions[index];
  told = DrawWrong(position, 16);
  AssertFound(scene, told != position,
              At(scene, row, {first ? 901U : 903U}, KVGUARD_ALL_GROUPS, position));
}

RC_GTEST_PROP(OneFault, ACountOfComputedTokens, ()) {
  Scene scene;
  RC_PRE(!scene.plan.num_computed.empty());
  const size_t row = scene.DrawRow();
  int64_t& told = scene.plan.num_computed[row];
  const int64_t right = told;
  told = DrawWrong(right, 16);
  AssertFound(scene, told != right, At(scene, row, {901}, KVGUARD_ALL_GROUPS, right));
}

RC_GTEST_PROP(OneFault, APadSlot, ()) {
  Scene scene;
  const size_t group = scene.DrawGroup();
  RC_PRE(scene.plan.padded_tokens > scene.plan.num_tokens());
  const auto index = static_cast<size_t>(Draw(static_cast<int64_t>(scene.plan.num_tokens()),
                                              static_cast<int64_t>(scene.plan.padded_tokens) - 1));
  int64_t& slot = scene.plan.groups[group].slots[index];
  slot = DrawWrong(-1, 16);
  AssertFound(scene, slot != -1,
              {{406}, static_cast<uint32_t>(group), 0, -1, static_cast<int64_t>(index)});
}

}  // namespace
}  // namespace kvguard::properties
