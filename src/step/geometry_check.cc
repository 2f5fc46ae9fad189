// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "step/views.h"

namespace kvguard::step {
namespace {

// Block ids are kept as int32 in the mirror, as every engine's tables hold them.
constexpr uint64_t kMostPoolBlocks = std::numeric_limits<int32_t>::max();
constexpr uint64_t kMostCount = uint64_t{1} << 31;

Status CheckPool(const kvguard_pool& pool, size_t i, geometry::Pool* out) {
  if (pool.id != i)
    return Malformed("pools[%zu]: id is %u; pools are numbered by their index", i, pool.id);
  if (pool.kind < KVGUARD_POOL_PAGES || pool.kind > KVGUARD_POOL_STATE) {
    return Malformed("pools[%zu]: kind %u does not exist", i, pool.kind);
  }
  if (pool.num_blocks == 0 || pool.num_blocks > kMostPoolBlocks) {
    return Malformed("pools[%zu]: %llu blocks; 1 to %llu are possible", i,
                     static_cast<unsigned long long>(pool.num_blocks),
                     static_cast<unsigned long long>(kMostPoolBlocks));
  }
  if (pool.null_block != KVGUARD_NONE &&
      (pool.null_block < 0 || static_cast<uint64_t>(pool.null_block) >= pool.num_blocks)) {
    return Malformed("pools[%zu]: null block %lld is not in the pool; -1 if the engine has none", i,
                     static_cast<long long>(pool.null_block));
  }
  out->num_blocks = static_cast<int64_t>(pool.num_blocks);
  out->null_block = pool.null_block;
  out->write_trash = pool.write_trash < 0 ? KVGUARD_NONE : pool.write_trash;
  out->kind = pool.kind;
  out->memory = pool.memory;
  return {};
}

// Rings, cells and groups that read by lists: what of them this version has rules for.
Status CheckReads(const kvguard_geometry& in, const kvguard_group& group, size_t i,
                  const geometry::Pool& pool) {
  const bool list = group.encoding == KVGUARD_READ_CSR || group.encoding == KVGUARD_READ_FLAT;
  const bool state = group.kind == KVGUARD_GROUP_STATE;
  const bool ring = group.kind == KVGUARD_GROUP_RING;
  const bool cells = pool.kind == KVGUARD_POOL_CELLS;
  const auto unsupported = [i](const char* what) {
    return Unsupported("cannot judge: group %zu %s, which this version has no rules for", i, what);
  };
  if (group.encoding != KVGUARD_READ_TABLE && !list &&
      !(state && group.encoding == KVGUARD_READ_STATE)) {
    return Unsupported("cannot judge: encoding not implemented (group %zu reads by %s)", i,
                       kvguard_name("encoding", group.encoding));
  }
  const bool sharded = in.dcp_size > 1 && (group.flags & KVGUARD_GROUP_REPLICATED) == 0;
  if ((list || ring) && (sharded || in.pcp_size > 1))
    return unsupported("reads by lists or is a ring under context parallelism");
  if ((list || ring) && pool.memory == 1)
    return unsupported("reads by lists or is a ring on a host");
  if (list && group.kind != KVGUARD_GROUP_FULL && !(ring && group.encoding == KVGUARD_READ_FLAT)) {
    return Unsupported(
        "cannot judge: group %zu of kind %s reads by %s, which this version has no rules for", i,
        kvguard_name("group_kind", group.kind), kvguard_name("encoding", group.encoding));
  }
  if (ring && in.max_drafts > 0) return unsupported("is a ring while the engine drafts");
  const bool blocks =
      group.table_unit == KVGUARD_UNIT_BLOCK || group.table_unit == KVGUARD_UNIT_KERNEL_BLOCK;
  const bool slots = list && group.table_unit == KVGUARD_UNIT_SLOT;
  if (group.encoding == KVGUARD_READ_FLAT ? !slots : !blocks && !slots) {
    return Unsupported(
        "cannot judge: group %zu has its %s in unit %u; tables are in blocks (1) or kernel blocks "
        "(2), CSR also and FLAT always in slots (3)",
        i, list ? "lists" : "tables", group.table_unit);
  }
  if (cells && (group.kind != KVGUARD_GROUP_FULL || group.encoding != KVGUARD_READ_FLAT ||
                group.block_size != 1 || (in.flags & KVGUARD_ENGINE_CONNECTOR) != 0)) {
    return Unsupported(
        "cannot judge: group %zu lives in cells; this version judges kind full, reads by flat "
        "lists "
        "and blocks of one token there, without a connector",
        i);
  }
  if (!cells && pool.kind != KVGUARD_POOL_PAGES && !(state && pool.kind == KVGUARD_POOL_STATE)) {
    return Unsupported(
        "cannot judge: group %zu of kind %s lives in a pool of %s, which this version has no rules "
        "for",
        i, kvguard_name("group_kind", group.kind), kvguard_name("pool_kind", pool.kind));
  }
  return {};
}

Status CheckGroup(const kvguard_geometry& in, const kvguard_group& group, size_t i,
                  const geometry::Layout& layout, geometry::Group* out) {
  if (group.id != i)
    return Malformed("groups[%zu]: id is %u; groups are numbered by their index", i, group.id);
  if (group.pool >= layout.pools.size())
    return Malformed("groups[%zu]: pool %u does not exist", i, group.pool);
  if (group.kind < KVGUARD_GROUP_FULL || group.kind > KVGUARD_GROUP_NONE) {
    return Malformed("groups[%zu]: kind %u does not exist", i, group.kind);
  }
  if (group.block_size == 0 || group.kernel_block_size == 0 ||
      group.block_size % group.kernel_block_size != 0) {
    return Malformed("groups[%zu]: kernel block size %u does not divide block size %u", i,
                     group.kernel_block_size, group.block_size);
  }
  if (group.encoding < KVGUARD_READ_TABLE || group.encoding > KVGUARD_READ_STATE) {
    return Malformed("groups[%zu]: encoding %u does not exist", i, group.encoding);
  }
  const bool forgets = group.kind == KVGUARD_GROUP_WINDOW || group.kind == KVGUARD_GROUP_CHUNKED;
  const bool state = group.kind == KVGUARD_GROUP_STATE;
  const bool cross = group.kind == KVGUARD_GROUP_CROSS;
  const bool ring = group.kind == KVGUARD_GROUP_RING;
  if (group.kind != KVGUARD_GROUP_FULL && !forgets && !state && !cross && !ring) {
    return Unsupported("cannot judge: group %zu is of kind %s, which this version has no rules for",
                       i, kvguard_name("group_kind", group.kind));
  }
  if ((forgets || ring) && (group.window == 0 || group.window > kMostCount)) {
    return Malformed("groups[%zu]: window is %u; a group of kind %s needs one below 2^31", i,
                     group.window, kvguard_name("group_kind", group.kind));
  }
  const bool windowed = group.kind == KVGUARD_GROUP_WINDOW;
  if (!windowed && (group.sink != 0 || group.retained != 0)) {
    return Malformed("groups[%zu]: sink %u and retained %u belong to sliding windows alone", i,
                     group.sink, group.retained);
  }
  if (group.sink > kMostCount || group.retained > kMostCount) {
    return Malformed("groups[%zu]: sink %u and retained %u are not plausible", i, group.sink,
                     group.retained);
  }
  if (state && group.state_mode > KVGUARD_STATE_ALIGN)
    return Malformed("groups[%zu]: state mode %u does not exist", i, group.state_mode);
  if (state && group.state_mode == KVGUARD_STATE_ALL && in.max_drafts > 0) {
    return Unsupported(
        "cannot judge: group %zu keeps a state at the end of every block and the engine drafts up "
        "to %u tokens, which this version has no rules for",
        i, in.max_drafts);
  }
  if (state && group.kernel_block_size != group.block_size) {
    return Unsupported(
        "cannot judge: group %zu holds states in kernel blocks of %u tokens; this version judges "
        "one state a block",
        i, group.kernel_block_size);
  }
  if (Status s = CheckReads(in, group, i, layout.pools[group.pool]); !s.ok()) return s;
  if (group.placement != KVGUARD_PLACEMENT_ASSIGNED) {
    return Unsupported(
        "cannot judge: group %zu has placement %u; this version judges assigned placement (1)", i,
        group.placement);
  }
  const int64_t scale = std::max<uint32_t>(1, group.index_scale);
  const int64_t stride = std::max<uint32_t>(1, group.token_stride);
  const bool scaled = scale > 1 || stride > 1 || group.slot_base != 0;
  if (scaled && ((group.kind != KVGUARD_GROUP_FULL && !ring) || in.pcp_size > 1 ||
                 (in.dcp_size > 1 && (group.flags & KVGUARD_GROUP_REPLICATED) == 0))) {
    return Unsupported(
        "cannot judge: group %zu scales its slots (%u, %u, %lld); this version judges that in full "
        "groups and rings, without context parallelism",
        i, group.index_scale, group.token_stride, static_cast<long long>(group.slot_base));
  }
  constexpr int64_t kMostSlots = int64_t{1} << 60;
  const int64_t in_pool = layout.pools[group.pool].num_blocks * int64_t{group.block_size};
  if (stride > scale || group.slot_base < 0 || group.slot_base > kMostSlots ||
      in_pool > kMostSlots / scale) {
    return Malformed(
        "groups[%zu]: slots of %lld blocks scaled by %u with stride %u from %lld are not "
        "plausible; "
        "a stride beyond the scale makes blocks overlap",
        i, static_cast<long long>(layout.pools[group.pool].num_blocks), group.index_scale,
        group.token_stride, static_cast<long long>(group.slot_base));
  }
  uint32_t known = KVGUARD_GROUP_REPLICATED;
  if (group.encoding == KVGUARD_READ_TABLE || state) known |= KVGUARD_GROUP_PAD_ROWS_NULL;
  if (state) known |= KVGUARD_GROUP_NO_SLOTS;
  if ((group.flags & ~known) != 0) {
    return Unsupported("cannot judge: group %zu has flags %#x, which this version has no rules for",
                       i, group.flags);
  }
  if (group.max_columns > kMostCount)
    return Malformed("groups[%zu]: rows of that many columns are not plausible", i);
  out->id = group.id;
  out->pool = group.pool;
  out->kind = group.kind;
  out->placement = group.placement;
  out->encoding = group.encoding;
  out->table_unit = group.table_unit;
  out->flags = group.flags;
  out->slots_per_block = group.block_size;
  out->kernel_block_size = group.kernel_block_size;
  out->kernel_per_block = group.block_size / group.kernel_block_size;
  if (in.dcp_size > 1 && (group.flags & KVGUARD_GROUP_REPLICATED) == 0 && !state && !cross) {
    if (group.block_size % in.interleave != 0) {
      return Malformed("groups[%zu]: interleave %u does not divide block size %u", i, in.interleave,
                       group.block_size);
    }
    out->ranks = in.dcp_size;
    out->rank = in.dcp_rank;
    out->interleave = in.interleave;
  }
  out->block_size = out->slots_per_block * out->ranks;
  if (out->block_size > std::numeric_limits<uint32_t>::max()) {
    return Malformed("groups[%zu]: blocks of %u tokens on %u ranks are not plausible", i,
                     group.block_size, in.dcp_size);
  }
  out->max_columns = static_cast<int64_t>(group.max_columns);
  if (forgets) out->window = group.window;
  if (ring) out->ring = group.window;
  out->cells = layout.pools[group.pool].kind == KVGUARD_POOL_CELLS;
  if (state) out->state_mode = group.state_mode;
  if (windowed) {
    out->sink = group.sink;
    out->retained = group.retained;
  }
  const geometry::Pool& pool = layout.pools[group.pool];
  out->on_host = pool.memory == 1;
  out->block_stride = out->slots_per_block * scale;
  out->token_stride = stride;
  out->slot_base = group.slot_base;
  out->num_slots = pool.num_blocks * out->block_stride;
  out->plain = group.kind == KVGUARD_GROUP_FULL && !out->on_host && out->ranks == 1 && !scaled &&
               !out->cells;
  const int64_t entries = pool.num_blocks * out->EntriesPerBlock();
  if (entries > static_cast<int64_t>(kMostPoolBlocks)) {
    return Malformed("groups[%zu]: %lld kernel blocks do not fit an int32 table", i,
                     static_cast<long long>(entries));
  }
  return {};
}

}  // namespace

Status CheckGeometry(const kvguard_geometry* geometry, geometry::Layout* layout,
                     std::vector<std::string>* gaps) {
  kvguard_geometry in{};
  if (Status s = ReadStruct(geometry, &in, "geometry"); !s.ok()) return s;
  if (in.engine == nullptr) return Malformed("geometry: engine is NULL; name the engine");
  constexpr uint32_t kKnownFlags = KVGUARD_ENGINE_ASYNC | KVGUARD_ENGINE_CONNECTOR |
                                   KVGUARD_ENGINE_PARTIAL_HITS | KVGUARD_ENGINE_PREFIX_CACHE |
                                   KVGUARD_ENGINE_ENCODER | KVGUARD_ENGINE_FILLS_TOLD;
  if ((in.flags & ~kKnownFlags) != 0) {
    return Unsupported("geometry: flags %#x are not known to this version", in.flags);
  }
  StructArray<kvguard_pool> pools;
  StructArray<kvguard_group> groups;
  if (Status s = pools.Assign(in.pools, in.num_pools, 64, "pools"); !s.ok()) return s;
  if (Status s = groups.Assign(in.groups, in.num_groups, 256, "groups"); !s.ok()) return s;
  if (groups.size() == 0) return Malformed("geometry: no cache group; there is nothing to judge");
  if (in.max_rows == 0 || in.max_rows > kMostCount || in.max_tokens == 0 ||
      in.max_tokens > kMostCount) {
    return Malformed(
        "geometry: max_rows %llu and max_tokens %llu; both are at least 1 and below 2^31",
        static_cast<unsigned long long>(in.max_rows),
        static_cast<unsigned long long>(in.max_tokens));
  }
  if (in.dcp_size > 1 && in.interleave == 0)
    return Malformed("geometry: interleave is 0; 1 where ranks take turns token by token");
  constexpr uint32_t kMostRanks = 1u << 16;
  const bool parallel = in.pcp_size > 1;
  if (parallel && (in.pcp_size > kMostRanks || in.pcp_rank >= in.pcp_size || in.pcp_layout < 1 ||
                   in.pcp_layout > 3)) {
    return Malformed(
        "geometry: rank %u of %u in prefill context parallelism of layout %u; layouts are 1 to 3",
        in.pcp_rank, in.pcp_size, in.pcp_layout);
  }
  if (in.dcp_size > kMostRanks || (in.dcp_size > 1 && in.dcp_rank >= in.dcp_size)) {
    return Malformed("geometry: rank %u of %u in decode context parallelism", in.dcp_rank,
                     in.dcp_size);
  }
  *layout = geometry::Layout{};
  for (size_t i = 0; i < pools.size(); ++i) {
    if (Status s = CheckPool(pools[i], i, &layout->pools.emplace_back()); !s.ok()) return s;
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    Status s = CheckGroup(in, groups[i], i, *layout, &layout->groups.emplace_back());
    if (!s.ok()) return s;
  }
  for (size_t i = 0; i < layout->pools.size(); ++i) {
    if ((layout->pools[i].kind == KVGUARD_POOL_CELLS) ==
        (layout->pools[0].kind == KVGUARD_POOL_CELLS))
      continue;
    return Unsupported("cannot judge: pool %zu is of cells and pool 0 is not, or the reverse", i);
  }
  for (size_t i = 0; parallel && i < layout->groups.size(); ++i) {
    if (layout->groups[i].kind == KVGUARD_GROUP_FULL) continue;
    return Unsupported(
        "cannot judge: group %zu is of kind %s under prefill context parallelism, which this "
        "version has no rules for",
        i, kvguard_name("group_kind", layout->groups[i].kind));
  }
  layout->content_unit = layout->groups[0].block_size;
  for (const geometry::Group& group : layout->groups) {
    layout->forgets = layout->forgets || group.Forgets();
    layout->has_states = layout->has_states || group.IsState();
    layout->has_cross = layout->has_cross || group.IsCross();
    layout->has_rings = layout->has_rings || group.IsRing();
    layout->has_lists = layout->has_lists || group.ReadsByList();
    layout->has_cells = layout->has_cells || group.cells;
    layout->every_pass = layout->every_pass && !group.IsCross() && !group.IsState() &&
                         !group.IsRing() && !group.on_host;
    layout->content_unit = std::gcd(layout->content_unit, group.block_size);
  }
  layout->flags = in.flags;
  layout->max_rows = static_cast<int64_t>(in.max_rows);
  layout->max_tokens = static_cast<int64_t>(in.max_tokens);
  layout->max_model_len =
      in.max_model_len > kMostCount ? 0 : static_cast<int64_t>(in.max_model_len);
  layout->num_lookahead = in.num_lookahead;
  layout->max_drafts = in.max_drafts;
  layout->pad_slot = in.pad_slot;
  layout->rank = in.rank;
  layout->dcp_size = in.dcp_size > 1 ? in.dcp_size : 1;
  layout->pcp_size = parallel ? in.pcp_size : 1;
  layout->pcp_layout = parallel ? in.pcp_layout : 0;
  gaps->clear();
  if (in.num_standing_gaps > 0 && in.standing_gaps == nullptr) {
    return Malformed("geometry: standing_gaps is NULL but counts %u", in.num_standing_gaps);
  }
  if (in.num_standing_gaps > 256)
    return Malformed("geometry: %u standing gaps; at most 256", in.num_standing_gaps);
  for (uint32_t i = 0; i < in.num_standing_gaps; ++i) {
    if (in.standing_gaps[i] == nullptr) return Malformed("geometry: standing_gaps[%u] is NULL", i);
    gaps->emplace_back(in.standing_gaps[i]);
  }
  return {};
}

}  // namespace kvguard::step
