// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "step/views.h"

namespace kvguard::step {
namespace {

geometry::Layout TwoGroups() {
  geometry::Layout layout;
  layout.pools.push_back({64, 0, KVGUARD_POOL_PAGES, 0});
  for (uint32_t id = 0; id < 2; ++id) {
    geometry::Group group;
    group.id = id;
    group.kind = KVGUARD_GROUP_FULL;
    group.table_unit = KVGUARD_UNIT_BLOCK;
    group.block_size = group.kernel_block_size = 4;
    group.num_slots = 256;
    layout.groups.push_back(group);
  }
  layout.max_rows = 8;
  layout.max_tokens = 32;
  return layout;
}

// A well-formed record of each kind, to be spoilt.
struct Records {
  std::vector<int64_t> blocks = {1, 2};
  std::vector<int64_t> tokens = {7};
  std::string name = "a";
  std::vector<kvguard_event> events = std::vector<kvguard_event>(2);
  std::vector<kvguard_scheduled> scheduled = std::vector<kvguard_scheduled>(2);
  kvguard_begin begin{};

  std::vector<uint64_t> requests = {1, 2};
  std::vector<int32_t> query_start = {0, 2, 3};
  std::vector<int32_t> seq_lens = {2, 1};
  std::vector<int64_t> positions = {0, 1, 0};
  std::vector<int64_t> slots = {4, 5, 8};
  std::vector<int32_t> table = std::vector<int32_t>(8);
  std::vector<kvguard_group_plan> groups = std::vector<kvguard_group_plan>(2);
  kvguard_plan plan{};

  std::vector<kvguard_outcome_row> rows = std::vector<kvguard_outcome_row>(1);
  std::vector<kvguard_event> results = std::vector<kvguard_event>(1);
  kvguard_outcome outcome{};

  Records() {
    for (kvguard_event& event : events) {
      event.size = sizeof(event);
      event.request = 1;
    }
    events[0].kind = KVGUARD_EVENT_ADMIT;
    events[0].name = name.data();
    events[0].name_size = name.size();
    events[1].kind = KVGUARD_EVENT_APPEND;
    events[1].blocks = blocks.data();
    events[1].num_blocks = blocks.size();
    for (kvguard_scheduled& row : scheduled) {
      row.size = sizeof(row);
      row.request = 1;
      row.num_tokens = 2;
    }
    begin = {sizeof(begin), 0, events.data(), events.size(), scheduled.data(), scheduled.size()};

    plan.size = sizeof(plan);
    plan.pass = KVGUARD_PASS_TARGET;
    plan.stage = KVGUARD_STAGE_PLANNED;
    plan.num_rows = plan.padded_rows = 2;
    plan.num_tokens = plan.padded_tokens = 3;
    plan.requests = requests.data();
    plan.query_start = {query_start.data(), query_start.size(), KVGUARD_I32, 0};
    plan.seq_lens = {seq_lens.data(), seq_lens.size(), KVGUARD_I32, 0};
    plan.positions = {positions.data(), positions.size(), KVGUARD_I64, 0};
    plan.groups = groups.data();
    plan.num_groups = 2;
    for (uint32_t g = 0; g < 2; ++g) {
      groups[g].size = sizeof(kvguard_group_plan);
      groups[g].group = g;
      groups[g].encoding = KVGUARD_READ_TABLE;
      groups[g].slots = {slots.data(), slots.size(), KVGUARD_I64, 0};
      groups[g].reads.table.data = table.data();
      groups[g].reads.table.dtype = KVGUARD_I32;
      groups[g].reads.table.rows = 2;
      groups[g].reads.table.columns = groups[g].reads.table.row_stride = 4;
    }

    rows[0].size = sizeof(kvguard_outcome_row);
    rows[0].request = 1;
    results[0].size = sizeof(kvguard_event);
    results[0].kind = KVGUARD_EVENT_LOAD_DONE;
    outcome = {sizeof(outcome), 0, rows.data(), rows.size(), results.data(), results.size()};
  }
};

struct Spoilt {
  const char* what;
  kvguard_status status;
  std::function<void(Records&)> edit;
};

constexpr kvguard_status kBad = KVGUARD_ERROR_ARGUMENT;
constexpr kvguard_status kNew = KVGUARD_ERROR_UNSUPPORTED;
void* const kOdd = reinterpret_cast<void*>(uintptr_t{0x1001});  // never to be read through

const Spoilt kBegins[] = {
    {"flags", kNew, [](Records& r) { r.begin.flags = 1; }},
    {"size", kBad, [](Records& r) { r.begin.size = 3; }},
    {"events missing", kBad, [](Records& r) { r.begin.events = nullptr; }},
    {"events beyond counting", kBad, [](Records& r) { r.begin.num_events = UINT64_MAX; }},
    {"scheduled missing", kBad, [](Records& r) { r.begin.scheduled = nullptr; }},
    {"scheduled beyond counting", kBad, [](Records& r) { r.begin.num_scheduled = 1u << 21; }},
    {"unknown event", kNew, [](Records& r) { r.events[0].kind = 99; }},
    {"event 0", kNew, [](Records& r) { r.events[0].kind = 0; }},
    {"unknown group", kBad, [](Records& r) { r.events[1].group = 2; }},
    {"a table event for all groups", kBad,
     [](Records& r) { r.events[1].group = KVGUARD_ALL_GROUPS; }},
    {"blocks missing", kBad, [](Records& r) { r.events[1].blocks = nullptr; }},
    {"blocks beyond counting", kBad, [](Records& r) { r.events[1].num_blocks = UINT64_MAX; }},
    {"blocks not aligned", kBad,
     [](Records& r) { r.events[1].blocks = static_cast<int64_t*>(kOdd); }},
    {"tokens missing", kBad, [](Records& r) { r.events[0].num_tokens = 1; }},
    {"tokens not aligned", kBad,
     [](Records& r) { r.events[0].tokens = static_cast<int64_t*>(kOdd); }},
    {"name missing", kBad, [](Records& r) { r.events[0].name = nullptr; }},
    {"name too long", kBad, [](Records& r) { r.events[0].name_size = 5000; }},
    {"admit key 0", kBad, [](Records& r) { r.events[0].request = 0; }},
    {"admit negative", kBad, [](Records& r) { r.events[0].first = -1; }},
    {"admit known negative", kBad, [](Records& r) { r.events[0].count = -1; }},
    {"admit huge", kBad, [](Records& r) { r.events[0].first = INT64_MAX; }},
    {"admit known huge", kBad, [](Records& r) { r.events[0].count = INT64_MAX; }},
    {"append key 0", kBad, [](Records& r) { r.events[1].request = 0; }},
    {"finish key 0", kBad,
     [](Records& r) {
       r.events[1].kind = KVGUARD_EVENT_FINISH;
       r.events[1].request = 0;
     }},
    {"rollback negative", kBad,
     [](Records& r) {
       r.events[1].kind = KVGUARD_EVENT_ROLLBACK;
       r.events[1].count = -1;
     }},
    {"truncate negative", kBad,
     [](Records& r) {
       r.events[1].kind = KVGUARD_EVENT_TRUNCATE;
       r.events[1].first = -1;
     }},
    {"copy of half a pair", kBad,
     [](Records& r) {
       r.events[1].kind = KVGUARD_EVENT_COPY;
       r.events[1].num_blocks = 1;
     }},
    {"remap of half a pair", kBad,
     [](Records& r) {
       r.events[1].kind = KVGUARD_EVENT_REMAP;
       r.events[1].num_blocks = 1;
     }},
    {"gap without a name", kBad,
     [](Records& r) {
       r.events[0].kind = KVGUARD_EVENT_GAP;
       r.events[0].name_size = 0;
     }},
    {"scheduled key 0", kBad, [](Records& r) { r.scheduled[1].request = 0; }},
    {"no tokens", kBad, [](Records& r) { r.scheduled[1].num_tokens = 0; }},
    {"negative tokens", kBad, [](Records& r) { r.scheduled[1].num_tokens = -1; }},
    {"huge tokens", kBad, [](Records& r) { r.scheduled[1].num_tokens = INT64_MAX; }},
    {"negative computed", kBad, [](Records& r) { r.scheduled[1].num_computed = -1; }},
    {"huge computed", kBad, [](Records& r) { r.scheduled[1].num_computed = INT64_MAX; }},
    {"more drafts than tokens", kBad, [](Records& r) { r.scheduled[1].num_drafts = 3; }},
    {"element size", kBad, [](Records& r) { r.scheduled[1].size = 8; }},
};

const Spoilt kPlans[] = {
    {"flags", kNew, [](Records& r) { r.plan.flags = 1; }},
    {"pass 0", kBad, [](Records& r) { r.plan.pass = 0; }},
    {"pass 7", kBad, [](Records& r) { r.plan.pass = 7; }},
    {"a pass without rules", kNew, [](Records& r) { r.plan.pass = KVGUARD_PASS_GRAPH_REPLAY; }},
    {"stage 0", kBad, [](Records& r) { r.plan.stage = 0; }},
    {"stage 3", kBad, [](Records& r) { r.plan.stage = 3; }},
    {"rows beyond padding", kBad, [](Records& r) { r.plan.padded_rows = 1; }},
    {"rows beyond the engine", kBad, [](Records& r) { r.plan.padded_rows = 9; }},
    {"rows beyond counting", kBad,
     [](Records& r) { r.plan.num_rows = r.plan.padded_rows = UINT64_MAX; }},
    {"tokens beyond padding", kBad, [](Records& r) { r.plan.padded_tokens = 2; }},
    {"tokens beyond the engine", kBad, [](Records& r) { r.plan.padded_tokens = 33; }},
    {"tokens beyond counting", kBad,
     [](Records& r) { r.plan.num_tokens = r.plan.padded_tokens = UINT64_MAX; }},
    {"requests missing", kBad, [](Records& r) { r.plan.requests = nullptr; }},
    {"requests not aligned", kBad,
     [](Records& r) { r.plan.requests = static_cast<uint64_t*>(kOdd); }},
    {"query_start missing", kBad, [](Records& r) { r.plan.query_start.data = nullptr; }},
    {"query_start of no type", kBad,
     [](Records& r) { r.plan.query_start.dtype = KVGUARD_DTYPE_NONE; }},
    {"query_start of bytes", kBad, [](Records& r) { r.plan.query_start.dtype = KVGUARD_U8; }},
    {"query_start short", kBad, [](Records& r) { r.plan.query_start.count = 2; }},
    {"query_start not aligned", kBad, [](Records& r) { r.plan.query_start.data = kOdd; }},
    {"seq_lens missing", kBad, [](Records& r) { r.plan.seq_lens.data = nullptr; }},
    {"seq_lens short", kBad, [](Records& r) { r.plan.seq_lens.count = 1; }},
    {"positions short", kBad, [](Records& r) { r.plan.positions.count = 2; }},
    {"positions of type 9", kBad, [](Records& r) { r.plan.positions.dtype = 9; }},
    {"num_computed short", kBad,
     [](Records& r) { r.plan.num_computed = {r.seq_lens.data(), 1, KVGUARD_I32, 0}; }},
    {"groups missing", kBad, [](Records& r) { r.plan.groups = nullptr; }},
    {"groups beyond the engine", kBad, [](Records& r) { r.plan.num_groups = 3; }},
    {"unknown group", kBad, [](Records& r) { r.groups[1].group = 2; }},
    {"a group twice", kBad, [](Records& r) { r.groups[1].group = 0; }},
    {"group flags", kNew, [](Records& r) { r.groups[1].flags = 1; }},
    {"encoding 6", kBad, [](Records& r) { r.groups[1].encoding = 6; }},
    {"encoding CSR", kNew, [](Records& r) { r.groups[1].encoding = KVGUARD_READ_CSR; }},
    {"slots short", kBad, [](Records& r) { r.groups[1].slots.count = 2; }},
    {"slots not aligned", kBad, [](Records& r) { r.groups[1].slots.data = kOdd; }},
    {"table of bytes", kBad, [](Records& r) { r.groups[1].reads.table.dtype = KVGUARD_U8; }},
    {"table not aligned", kBad, [](Records& r) { r.groups[1].reads.table.data = kOdd; }},
    {"table short", kBad, [](Records& r) { r.groups[1].reads.table.rows = 1; }},
    {"table stride", kBad, [](Records& r) { r.groups[1].reads.table.row_stride = 3; }},
    {"table beyond counting", kBad, [](Records& r) { r.groups[1].reads.table.rows = UINT64_MAX; }},
    {"table stride beyond counting", kBad,
     [](Records& r) { r.groups[1].reads.table.row_stride = UINT64_MAX; }},
    {"the group's seq_lens short", kBad,
     [](Records& r) { r.groups[1].reads.table.seq_lens = {r.seq_lens.data(), 1, KVGUARD_I32, 0}; }},
    {"row_columns short", kBad,
     [](Records& r) {
       r.groups[1].reads.table.row_columns = {r.seq_lens.data(), 1, KVGUARD_I32, 0};
     }},
};

const Spoilt kOutcomes[] = {
    {"flags", kNew, [](Records& r) { r.outcome.flags = 1; }},
    {"rows missing", kBad, [](Records& r) { r.outcome.rows = nullptr; }},
    {"rows beyond counting", kBad, [](Records& r) { r.outcome.num_rows = UINT64_MAX; }},
    {"key 0", kBad, [](Records& r) { r.rows[0].request = 0; }},
    {"tokens missing", kBad, [](Records& r) { r.rows[0].num_tokens = 1; }},
    {"events missing", kBad, [](Records& r) { r.outcome.events = nullptr; }},
    {"unknown event", kNew, [](Records& r) { r.results[0].kind = 99; }},
};

void ExpectRefused(const Spoilt& spoilt, const Status& status) {
  EXPECT_EQ(status.code(), spoilt.status) << spoilt.what << ": " << status.text();
  EXPECT_GT(status.text().size(), 10u) << spoilt.what;
}

TEST(CheckBegin, AWellFormedOneIsViewed) {
  const Records records;
  BeginView view;
  ASSERT_TRUE(CheckBegin(&records.begin, TwoGroups(), &view).ok());
  EXPECT_EQ(view.events.size(), 2u);
  EXPECT_EQ(view.scheduled[1].num_tokens, 2);
}

TEST(CheckBegin, EverySpoiltFieldIsNamed) {
  for (const Spoilt& spoilt : kBegins) {
    Records records;
    spoilt.edit(records);
    BeginView view;
    ExpectRefused(spoilt, CheckBegin(&records.begin, TwoGroups(), &view));
  }
  BeginView view;
  EXPECT_EQ(CheckBegin(nullptr, TwoGroups(), &view).code(), kBad);
}

TEST(CheckPlan, AWellFormedOneIsViewed) {
  const Records records;
  PlanView view;
  const geometry::Layout layout = TwoGroups();
  ASSERT_TRUE(CheckPlan(&records.plan, layout, &view).ok());
  ASSERT_EQ(view.groups.size(), 2u);
  EXPECT_EQ(view.groups[1].group, &layout.groups[1]);
  EXPECT_EQ(view.query_start[2], 3);
  EXPECT_EQ(view.positions[1], 1);
  EXPECT_FALSE(view.num_computed.present());
  EXPECT_EQ(view.groups[0].table.Row(1).count, 4u);
  EXPECT_EQ(view.groups[0].table.Row(1).data, records.table.data() + 4);
}

TEST(CheckPlan, EverySpoiltFieldIsNamed) {
  const geometry::Layout layout = TwoGroups();
  for (const Spoilt& spoilt : kPlans) {
    Records records;
    spoilt.edit(records);
    PlanView view;
    ExpectRefused(spoilt, CheckPlan(&records.plan, layout, &view));
  }
}

TEST(CheckPlan, WhatIsNotPresentedIsAbsent) {
  Records records;
  records.plan.positions.data = nullptr;
  records.groups[0].slots.dtype = KVGUARD_DTYPE_NONE;
  records.groups[0].encoding = 0;
  records.groups[1].reads.table.data = nullptr;
  PlanView view;
  const geometry::Layout layout = TwoGroups();
  ASSERT_TRUE(CheckPlan(&records.plan, layout, &view).ok());
  EXPECT_FALSE(view.positions.present());
  EXPECT_FALSE(view.groups[0].slots.present());
  EXPECT_FALSE(view.groups[0].table.present());
  EXPECT_FALSE(view.groups[1].table.present());
  EXPECT_TRUE(view.groups[1].slots.present());
}

TEST(CheckPlan, ADummyNeedsNoRows) {
  Records records;
  records.plan.pass = KVGUARD_PASS_DUMMY;
  records.plan.num_rows = 0;
  records.plan.num_tokens = 0;
  records.plan.requests = nullptr;
  records.plan.query_start.data = records.plan.seq_lens.data = nullptr;
  PlanView view;
  const geometry::Layout layout = TwoGroups();
  EXPECT_TRUE(CheckPlan(&records.plan, layout, &view).ok());
}

TEST(CheckOutcome, EverySpoiltFieldIsNamed) {
  const Records right;
  OutcomeView view;
  ASSERT_TRUE(CheckOutcome(&right.outcome, TwoGroups(), &view).ok());
  EXPECT_EQ(view.rows.size(), 1u);
  for (const Spoilt& spoilt : kOutcomes) {
    Records records;
    spoilt.edit(records);
    ExpectRefused(spoilt, CheckOutcome(&records.outcome, TwoGroups(), &view));
  }
}

TEST(CheckEnd, KnowsItsFlags) {
  kvguard_end out{};
  const kvguard_end both{sizeof(kvguard_end), KVGUARD_END_NO_FORWARD | KVGUARD_END_ABANDONED};
  EXPECT_TRUE(CheckEnd(&both, &out).ok());
  EXPECT_EQ(out.flags, both.flags);
  const kvguard_end later{sizeof(kvguard_end), 4};
  EXPECT_EQ(CheckEnd(&later, &out).code(), kNew);
  EXPECT_EQ(CheckEnd(nullptr, &out).code(), kBad);
}

TEST(CheckReset, KnowsItsReasons) {
  kvguard_reset out{};
  for (uint32_t reason = 0; reason < 6; ++reason) {
    const kvguard_reset in{sizeof(kvguard_reset), reason};
    const bool known = reason >= KVGUARD_RESET_ARM && reason <= KVGUARD_RESET_LAYOUT;
    EXPECT_EQ(CheckReset(&in, &out).ok(), known) << reason;
  }
}

}  // namespace
}  // namespace kvguard::step
