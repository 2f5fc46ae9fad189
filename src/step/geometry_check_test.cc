// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "step/views.h"

namespace kvguard::step {
namespace {

struct Engine {
  std::vector<kvguard_pool> pools = std::vector<kvguard_pool>(2);
  std::vector<kvguard_group> groups = std::vector<kvguard_group>(2);
  std::vector<const char*> gaps = {"external-unproved"};
  kvguard_geometry geometry{};

  Engine() {
    for (uint32_t i = 0; i < 2; ++i) {
      pools[i].size = sizeof(kvguard_pool);
      pools[i].id = i;
      pools[i].kind = KVGUARD_POOL_PAGES;
      pools[i].num_blocks = 20;
      pools[i].null_block = 0;
      groups[i].size = sizeof(kvguard_group);
      groups[i].id = i;
      groups[i].pool = i;
      groups[i].kind = KVGUARD_GROUP_FULL;
      groups[i].placement = KVGUARD_PLACEMENT_ASSIGNED;
      groups[i].encoding = KVGUARD_READ_TABLE;
      groups[i].table_unit = KVGUARD_UNIT_KERNEL_BLOCK;
      groups[i].block_size = 64;
      groups[i].kernel_block_size = 16;
      groups[i].index_scale = groups[i].token_stride = 1;
    }
    geometry.size = sizeof(geometry);
    geometry.engine = "test";
    geometry.pools = pools.data();
    geometry.groups = groups.data();
    geometry.num_pools = geometry.num_groups = 2;
    geometry.max_rows = 4;
    geometry.max_tokens = 64;
    geometry.max_model_len = 128;
    geometry.pad_slot = -1;
    geometry.standing_gaps = gaps.data();
    geometry.num_standing_gaps = 1;
  }

  Status Check(geometry::Layout* layout, std::vector<std::string>* names) {
    return CheckGeometry(&geometry, layout, names);
  }
};

struct Spoilt {
  const char* what;
  kvguard_status status;
  std::function<void(Engine&)> edit;
};

constexpr kvguard_status kBad = KVGUARD_ERROR_ARGUMENT;
constexpr kvguard_status kNew = KVGUARD_ERROR_UNSUPPORTED;

const Spoilt kSpoilt[] = {
    {"no engine", kBad, [](Engine& e) { e.geometry.engine = nullptr; }},
    {"unknown flags", kNew, [](Engine& e) { e.geometry.flags = 1u << 31; }},
    {"no groups", kBad, [](Engine& e) { e.geometry.num_groups = 0; }},
    {"groups missing", kBad, [](Engine& e) { e.geometry.groups = nullptr; }},
    {"pools missing", kBad, [](Engine& e) { e.geometry.pools = nullptr; }},
    {"too many groups", kBad, [](Engine& e) { e.geometry.num_groups = 257; }},
    {"no rows", kBad, [](Engine& e) { e.geometry.max_rows = 0; }},
    {"no tokens", kBad, [](Engine& e) { e.geometry.max_tokens = 0; }},
    {"rows beyond counting", kBad, [](Engine& e) { e.geometry.max_rows = UINT64_MAX; }},
    {"tokens beyond counting", kBad, [](Engine& e) { e.geometry.max_tokens = UINT64_MAX; }},
    {"a rank beyond its ranks", kBad,
     [](Engine& e) {
       e.geometry.dcp_size = e.geometry.dcp_rank = 2;
       e.geometry.interleave = 1;
     }},
    {"ranks beyond counting", kBad,
     [](Engine& e) {
       e.geometry.dcp_size = UINT32_MAX;
       e.geometry.interleave = 1;
     }},
    {"ranks without an interleave", kBad, [](Engine& e) { e.geometry.dcp_size = 2; }},
    {"an interleave that does not divide the block", kBad,
     [](Engine& e) {
       e.geometry.dcp_size = 2;
       e.geometry.interleave = 128;
     }},
    {"blocks beyond counting", kBad,
     [](Engine& e) {
       e.geometry.dcp_size = 64;
       e.geometry.interleave = 1;
       e.groups[1].block_size = 1u << 30;
       e.groups[1].table_unit = KVGUARD_UNIT_BLOCK;
     }},
    {"PCP of no layout", kBad, [](Engine& e) { e.geometry.pcp_size = 2; }},
    {"PCP of layout 4", kBad,
     [](Engine& e) {
       e.geometry.pcp_size = 2;
       e.geometry.pcp_layout = 4;
     }},
    {"PCP with windows", kNew,
     [](Engine& e) {
       e.geometry.pcp_size = 2;
       e.geometry.pcp_layout = 3;
       e.groups[0].kind = KVGUARD_GROUP_WINDOW;
       e.groups[0].window = 8;
     }},
    {"gaps missing", kBad, [](Engine& e) { e.geometry.standing_gaps = nullptr; }},
    {"a gap missing", kBad, [](Engine& e) { e.gaps[0] = nullptr; }},
    {"gaps beyond counting", kBad, [](Engine& e) { e.geometry.num_standing_gaps = 257; }},
    {"pool id", kBad, [](Engine& e) { e.pools[1].id = 0; }},
    {"pool kind", kBad, [](Engine& e) { e.pools[1].kind = 4; }},
    {"pool kind 0", kBad, [](Engine& e) { e.pools[1].kind = 0; }},
    {"an empty pool", kBad, [](Engine& e) { e.pools[1].num_blocks = 0; }},
    {"a pool beyond int32", kBad, [](Engine& e) { e.pools[1].num_blocks = 1ull << 31; }},
    {"null block behind the pool", kBad, [](Engine& e) { e.pools[1].null_block = 20; }},
    {"null block -2", kBad, [](Engine& e) { e.pools[1].null_block = -2; }},
    {"group id", kBad, [](Engine& e) { e.groups[1].id = 0; }},
    {"group's pool", kBad, [](Engine& e) { e.groups[1].pool = 2; }},
    {"group kind 0", kBad, [](Engine& e) { e.groups[1].kind = 0; }},
    {"group kind 8", kBad, [](Engine& e) { e.groups[1].kind = 8; }},
    {"a group of no kind", kNew, [](Engine& e) { e.groups[1].kind = KVGUARD_GROUP_NONE; }},
    {"a ring of nothing", kBad, [](Engine& e) { e.groups[1].kind = KVGUARD_GROUP_RING; }},
    {"a ring that drafts", kNew,
     [](Engine& e) {
       e.groups[1].kind = KVGUARD_GROUP_RING;
       e.groups[1].window = 64;
       e.geometry.max_drafts = 1;
     }},
    {"a ring that reads by CSR", kNew,
     [](Engine& e) {
       e.groups[1].kind = KVGUARD_GROUP_RING;
       e.groups[1].window = 64;
       e.groups[1].encoding = KVGUARD_READ_CSR;
     }},
    {"a ring on the host", kNew,
     [](Engine& e) {
       e.groups[1].kind = KVGUARD_GROUP_RING;
       e.groups[1].window = 64;
       e.pools[e.groups[1].pool].memory = 1;
     }},
    {"a window that reads by CSR", kNew,
     [](Engine& e) {
       e.groups[1].kind = KVGUARD_GROUP_WINDOW;
       e.groups[1].window = 64;
       e.groups[1].encoding = KVGUARD_READ_CSR;
     }},
    {"flat lists of blocks", kNew, [](Engine& e) { e.groups[1].encoding = KVGUARD_READ_FLAT; }},
    {"masks", kNew, [](Engine& e) { e.groups[1].encoding = KVGUARD_READ_MASK; }},
    {"padded rows of lists", kNew,
     [](Engine& e) {
       e.groups[1].encoding = KVGUARD_READ_CSR;
       e.groups[1].flags = KVGUARD_GROUP_PAD_ROWS_NULL;
     }},
    {"cells beside pages", kNew,
     [](Engine& e) { e.pools[e.groups[1].pool].kind = KVGUARD_POOL_CELLS; }},
    {"a window of nothing", kBad, [](Engine& e) { e.groups[1].kind = KVGUARD_GROUP_WINDOW; }},
    {"a chunk of nothing", kBad, [](Engine& e) { e.groups[1].kind = KVGUARD_GROUP_CHUNKED; }},
    {"a sink without a window", kBad, [](Engine& e) { e.groups[1].sink = 4; }},
    {"tokens retained without a window", kBad, [](Engine& e) { e.groups[1].retained = 4; }},
    {"a state", kNew, [](Engine& e) { e.groups[1].kind = KVGUARD_GROUP_STATE; }},
    {"block size 0", kBad, [](Engine& e) { e.groups[1].block_size = 0; }},
    {"kernel block size 0", kBad, [](Engine& e) { e.groups[1].kernel_block_size = 0; }},
    {"kernel block size 48", kBad, [](Engine& e) { e.groups[1].kernel_block_size = 48; }},
    {"encoding 0", kBad, [](Engine& e) { e.groups[1].encoding = 0; }},
    {"chosen placement", kNew, [](Engine& e) { e.groups[1].placement = KVGUARD_PLACEMENT_CHOSEN; }},
    {"tables of slots", kNew, [](Engine& e) { e.groups[1].table_unit = KVGUARD_UNIT_SLOT; }},
    {"slots whose stride makes blocks overlap", kBad,
     [](Engine& e) { e.groups[1].token_stride = 2; }},
    {"slots from below 0", kBad, [](Engine& e) { e.groups[1].slot_base = -1; }},
    {"slots scaled beyond counting", kBad,
     [](Engine& e) {
       e.groups[1].block_size = e.groups[1].kernel_block_size = 1u << 31;
       e.groups[1].index_scale = UINT32_MAX;
     }},
    {"scaled slots of a window", kNew,
     [](Engine& e) {
       e.groups[1].kind = KVGUARD_GROUP_WINDOW;
       e.groups[1].window = 64;
       e.groups[1].index_scale = 2;
     }},
    {"based slots of a shard", kNew,
     [](Engine& e) {
       e.groups[1].slot_base = 64;
       e.geometry.dcp_size = e.geometry.num_ranks = 2;
       e.geometry.interleave = 1;
     }},
    {"no slot mapping", kNew, [](Engine& e) { e.groups[1].flags = KVGUARD_GROUP_NO_SLOTS; }},
    {"unknown group flags", kNew, [](Engine& e) { e.groups[1].flags = 1u << 20; }},
    {"columns beyond counting", kBad, [](Engine& e) { e.groups[1].max_columns = UINT64_MAX; }},
    {"kernel blocks beyond int32", kBad,
     [](Engine& e) {
       e.pools[1].num_blocks = 1u << 30;
       e.groups[1].kernel_block_size = 1;
     }},
};

TEST(CheckGeometry, TakesWhatTheCoreNeeds) {
  Engine engine;
  engine.geometry.flags = KVGUARD_ENGINE_ASYNC | KVGUARD_ENGINE_CONNECTOR;
  engine.geometry.rank = 3;
  engine.groups[0].table_unit = KVGUARD_UNIT_BLOCK;
  geometry::Layout layout;
  std::vector<std::string> gaps;
  const Status status = engine.Check(&layout, &gaps);
  ASSERT_TRUE(status.ok()) << status.text();
  ASSERT_EQ(layout.groups.size(), 2u);
  EXPECT_EQ(layout.groups[0].EntriesPerBlock(), 1);
  EXPECT_EQ(layout.groups[0].TokensPerEntry(), 64);
  EXPECT_EQ(layout.groups[1].EntriesPerBlock(), 4);
  EXPECT_EQ(layout.groups[1].TokensPerEntry(), 16);
  EXPECT_EQ(layout.groups[1].num_slots, 20 * 64);
  EXPECT_EQ(layout.rank, 3u);
  EXPECT_TRUE(layout.Has(KVGUARD_ENGINE_CONNECTOR));
  EXPECT_FALSE(layout.Has(KVGUARD_ENGINE_PREFIX_CACHE));
  EXPECT_EQ(gaps, std::vector<std::string>{"external-unproved"});
}

// kvguard.h: P * n positions to a column; what is replicated is as without ranks.
TEST(CheckGeometry, AColumnOfAShardedGroupStandsForTheTokensOfAllRanks) {
  Engine engine;
  engine.geometry.dcp_size = 4;
  engine.geometry.dcp_rank = 3;
  engine.geometry.interleave = 16;
  engine.groups[1].flags = KVGUARD_GROUP_REPLICATED;
  geometry::Layout layout;
  std::vector<std::string> gaps;
  const Status status = engine.Check(&layout, &gaps);
  ASSERT_TRUE(status.ok()) << status.text();
  const geometry::Group& sharded = layout.groups[0];
  EXPECT_EQ(sharded.block_size, 256);
  EXPECT_EQ(sharded.TokensPerEntry(), 64);
  EXPECT_EQ(sharded.SlotsPerEntry(), 16);
  EXPECT_EQ(sharded.num_slots, 20 * 64);
  EXPECT_FALSE(sharded.IsLocal(47));
  EXPECT_TRUE(sharded.IsLocal(48));
  EXPECT_EQ(sharded.SlotOf(7, 256 + 64 + 50), 7 * 64 + 18);
  EXPECT_EQ(sharded.WithinColumn(7 * 64 + 18), 64 + 50);
  EXPECT_EQ(sharded.LocalLength(48), 0);
  EXPECT_EQ(sharded.LocalLength(50), 2);
  EXPECT_EQ(sharded.LocalLength(256 + 48), 64);
  const geometry::Group& replicated = layout.groups[1];
  EXPECT_EQ(replicated.block_size, 64);
  EXPECT_FALSE(replicated.IsSharded());
}

TEST(CheckGeometry, AnEngineWithoutANullBlockIsFine) {
  Engine engine;
  engine.pools[0].null_block = KVGUARD_NONE;
  geometry::Layout layout;
  std::vector<std::string> gaps;
  EXPECT_TRUE(engine.Check(&layout, &gaps).ok());
}

TEST(CheckGeometry, EverySpoiltFieldIsNamed) {
  for (const Spoilt& spoilt : kSpoilt) {
    Engine engine;
    spoilt.edit(engine);
    geometry::Layout layout;
    std::vector<std::string> gaps;
    const Status status = engine.Check(&layout, &gaps);
    EXPECT_EQ(status.code(), spoilt.status) << spoilt.what << ": " << status.text();
    EXPECT_GT(status.text().size(), 10u) << spoilt.what;
  }
  geometry::Layout layout;
  std::vector<std::string> gaps;
  EXPECT_EQ(CheckGeometry(nullptr, &layout, &gaps).code(), kBad);
}

TEST(CheckGeometry, WhatHasNoRulesSaysSoByName) {
  Engine engine;
  engine.groups[1].kind = KVGUARD_GROUP_NONE;
  geometry::Layout layout;
  std::vector<std::string> gaps;
  EXPECT_NE(
      engine.Check(&layout, &gaps).text().find(kvguard_name("group_kind", KVGUARD_GROUP_NONE)),
      std::string::npos);
}

}  // namespace
}  // namespace kvguard::step
