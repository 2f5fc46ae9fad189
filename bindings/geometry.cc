// SPDX-License-Identifier: Apache-2.0
#include "bindings/geometry.h"

#include <cstring>

#include "bindings/convert.h"

namespace kvguard::python {
namespace {

template <typename T>
T Zeroed() {
  T value;
  std::memset(&value, 0, sizeof(value));
  value.size = sizeof(value);
  return value;
}

kvguard_pool ReadPool(nb::handle dict, size_t i) {
  const Fields fields(dict, "pools[" + std::to_string(i) + "]");
  fields.RefuseOthers({"kind", "memory", "num_blocks", "null_block", "read_trash", "write_trash",
                       "arena", "byte_base", "byte_stride"});
  auto pool = Zeroed<kvguard_pool>();
  pool.id = static_cast<uint32_t>(i);
  pool.kind = fields.Enum("kind", "pool_kind", KVGUARD_POOL_PAGES);
  pool.memory = fields.U32("memory", 0);
  pool.num_blocks = fields.U64("num_blocks", 0);
  pool.null_block = fields.Int("null_block", KVGUARD_NONE);
  pool.read_trash = fields.Int("read_trash", KVGUARD_NONE);
  pool.write_trash = fields.Int("write_trash", KVGUARD_NONE);
  pool.arena = fields.U32("arena", 0);
  pool.byte_base = fields.U64("byte_base", 0);
  pool.byte_stride = fields.U64("byte_stride", 0);
  return pool;
}

kvguard_group ReadGroup(nb::handle dict, size_t i) {
  const Fields fields(dict, "groups[" + std::to_string(i) + "]");
  fields.RefuseOthers({"pool", "kind", "placement", "encoding", "table_unit", "flags", "block_size",
                       "kernel_block_size", "index_scale", "token_stride", "slot_base",
                       "max_columns", "window", "sink", "state_mode", "retained", "num_layers",
                       "shard_formula"});
  auto group = Zeroed<kvguard_group>();
  group.id = static_cast<uint32_t>(i);
  group.pool = fields.U32("pool", 0);
  group.kind = fields.Enum("kind", "group_kind");
  group.placement = fields.U32("placement", KVGUARD_PLACEMENT_ASSIGNED);
  group.encoding = fields.Enum("encoding", "encoding", KVGUARD_READ_TABLE);
  group.table_unit = fields.Enum("table_unit", "unit", KVGUARD_UNIT_BLOCK);
  group.flags = fields.U32("flags", 0);
  group.block_size = fields.U32("block_size", 0);
  group.kernel_block_size = fields.U32("kernel_block_size", group.block_size);
  group.index_scale = fields.U32("index_scale", 1);
  group.token_stride = fields.U32("token_stride", 1);
  group.slot_base = fields.Int("slot_base", 0);
  group.max_columns = fields.U64("max_columns", 0);
  group.window = fields.U32("window", 0);
  group.sink = fields.U32("sink", 0);
  group.state_mode = fields.U32("state_mode", 0);
  group.retained = fields.U32("retained", 0);
  group.num_layers = fields.U32("num_layers", 0);
  group.shard_formula = fields.U32("shard_formula", 0);
  return group;
}

}  // namespace

void ReadGeometry(nb::handle dict, GeometryStorage* out) {
  const Fields fields(dict, "geometry");
  fields.RefuseOthers({"flags",    "engine",     "engine_version", "pools",         "groups",
                       "max_rows", "max_tokens", "max_model_len",  "num_lookahead", "max_drafts",
                       "pad_slot", "rank",       "num_ranks",      "tp_rank",       "tp_size",
                       "pp_rank",  "pp_size",    "dcp_rank",       "dcp_size",      "pcp_rank",
                       "pcp_size", "interleave", "pcp_layout",     "standing_gaps"});
  auto text = [out](std::string value) {
    return out->texts.emplace_back(std::move(value)).c_str();
  };

  *out = GeometryStorage{};
  kvguard_geometry& g = out->geometry;
  g = Zeroed<kvguard_geometry>();
  size_t i = 0;
  for (nb::handle pool : nb::borrow<nb::iterable>(fields.Get("pools")))
    out->pools.push_back(ReadPool(pool, i++));
  i = 0;
  for (nb::handle group : nb::borrow<nb::iterable>(fields.Get("groups"))) {
    out->groups.push_back(ReadGroup(group, i++));
  }
  if (nb::object gaps = fields.Find("standing_gaps"); gaps.is_valid()) {
    for (nb::handle gap : nb::borrow<nb::iterable>(gaps)) {
      if (!PyUnicode_Check(gap.ptr()))
        Raise(KVGUARD_ERROR_ARGUMENT, "geometry.standing_gaps: names are text");
      out->gaps.push_back(text(nb::cast<std::string>(gap)));
    }
  }
  g.flags = fields.U32("flags", 0);
  g.engine = text(fields.Text("engine", ""));
  g.engine_version = text(fields.Text("engine_version", ""));
  g.pools = out->pools.data();
  g.groups = out->groups.data();
  g.num_pools = static_cast<uint32_t>(out->pools.size());
  g.num_groups = static_cast<uint32_t>(out->groups.size());
  g.max_rows = fields.U64("max_rows", 0);
  g.max_tokens = fields.U64("max_tokens", 0);
  g.max_model_len = fields.U64("max_model_len", 0);
  g.num_lookahead = fields.U32("num_lookahead", 0);
  g.max_drafts = fields.U32("max_drafts", 0);
  g.pad_slot = fields.Int("pad_slot", KVGUARD_NONE);
  g.rank = fields.U32("rank", 0);
  g.num_ranks = fields.U32("num_ranks", 1);
  g.tp_rank = fields.U32("tp_rank", 0);
  g.tp_size = fields.U32("tp_size", 1);
  g.pp_rank = fields.U32("pp_rank", 0);
  g.pp_size = fields.U32("pp_size", 1);
  g.dcp_rank = fields.U32("dcp_rank", 0);
  g.dcp_size = fields.U32("dcp_size", 1);
  g.pcp_rank = fields.U32("pcp_rank", 0);
  g.pcp_size = fields.U32("pcp_size", 1);
  g.interleave = fields.U32("interleave", 1);
  g.pcp_layout = fields.U32("pcp_layout", 0);
  g.standing_gaps = out->gaps.empty() ? nullptr : out->gaps.data();
  g.num_standing_gaps = static_cast<uint32_t>(out->gaps.size());
}

}  // namespace kvguard::python
