// SPDX-License-Identifier: Apache-2.0
#include "tests/generate/options.h"

#include <algorithm>

namespace kvguard::generate {
namespace {

GroupOptions DrawGroup(Random& random, const std::vector<uint32_t>& kinds) {
  GroupOptions group;
  group.kind = random.Of(kinds);
  static const std::vector<int64_t> kSizes = {1, 2, 2, 3, 4, 4, 4, 6, 8, 8, 16};
  group.block_size = random.Of(kSizes);
  std::vector<int64_t> divisors;
  for (int64_t d = 1; d <= group.block_size; ++d) {
    if (group.block_size % d == 0) divisors.push_back(d);
  }
  group.kernel_block_size = random.OneIn(2) ? group.block_size : random.Of(divisors);
  group.unit = random.OneIn(2) ? KVGUARD_UNIT_BLOCK : KVGUARD_UNIT_KERNEL_BLOCK;
  if (group.is_window()) group.window = random.Range(1, 14);
  if (group.kind == KVGUARD_GROUP_WINDOW) {
    group.sink = random.OneIn(4) ? random.Range(1, 6) : 0;
    group.retained = random.OneIn(4) ? random.Range(1, 4) : 0;
  }
  group.columns_told = !random.OneIn(4);
  group.table_dtype = random.OneIn(4) ? KVGUARD_I64 : KVGUARD_I32;
  group.slots_dtype = random.OneIn(4) ? KVGUARD_I32 : KVGUARD_I64;
  group.extra_stride = random.OneIn(4) ? random.Range(1, 5) : 0;
  group.row_columns = random.OneIn(2);
  group.seq_lens = random.OneIn(5);
  if (group.is_state()) group.state_mode = static_cast<uint32_t>(random.Below(3));
  return group;
}

// Spreads a group over the ranks; all groups have one interleave, which divides their blocks.
void Shard(Random& random, const Options& o, GroupOptions* group) {
  if (group->block_size % o.interleave != 0) {
    group->block_size *= o.interleave;
    group->kernel_block_size *= o.interleave;
  }
  group->ranks = o.dcp_size;
  group->rank = o.dcp_rank;
  group->interleave = o.interleave;
  // The older formula counts in kernel blocks: it is right where these are the blocks.
  if (group->block_size == group->kernel_block_size && random.OneIn(2)) group->shard_formula = 1;
}

Length DrawLength(Random& random) { return static_cast<Length>(random.Below(3)); }

// A full group whose attention reads a list of its own.
void DrawList(Random& random, GroupOptions* group) {
  group->encoding = random.OneIn(2) ? KVGUARD_READ_CSR : KVGUARD_READ_FLAT;
  if (group->encoding == KVGUARD_READ_FLAT || random.OneIn(3)) group->unit = KVGUARD_UNIT_SLOT;
  group->row_columns = group->seq_lens = false;
  group->offsets_dtype = random.OneIn(4) ? KVGUARD_I64 : KVGUARD_I32;
  group->last_page = group->encoding == KVGUARD_READ_CSR && random.OneIn(2);
  if (group->encoding != KVGUARD_READ_FLAT) return;
  group->sentinels = random.OneIn(2);
  group->empty_at_start = random.OneIn(2);
  static const std::vector<int64_t> kSentinels = {-1, -1, -2, INT32_MAX};
  group->sentinel = random.Of(kSentinels);
}

// A ring goes with one scheduler's count, and finds nothing that others wrote.
void DrawRing(Random& random, Options* o, GroupOptions* group) {
  o->max_drafts = 0;
  o->draft_pass = o->prefix_cache = o->loads = o->copies = false;
  o->rolls_back = random.OneIn(2);
  group->window = random.Range(1, 14);
  group->all_columns = random.OneIn(4);
  if (group->unit == KVGUARD_UNIT_SLOT || random.OneIn(2)) {
    DrawList(random, group);
    group->encoding = KVGUARD_READ_FLAT;
    group->unit = KVGUARD_UNIT_SLOT;
    group->last_page = group->empty_at_start = false;
    group->sentinels = true;
  }
}

// A cache of single tokens in any order.
void DrawCells(Random& random, Options* o, GroupOptions* group) {
  o->connector_flag = o->loads = o->sends = false;
  group->cells = true;
  group->block_size = group->kernel_block_size = 1;
  DrawList(random, group);
  group->encoding = KVGUARD_READ_FLAT;
  group->unit = KVGUARD_UNIT_SLOT;
  group->last_page = false;
}

// What does not go together with a recurrence here: its states cannot be taken back, and where each
// block's end has one, drafts would leave them behind wrong tokens.
void Simplify(Options* o, GroupOptions* group) {
  group->kernel_block_size = group->block_size;
  group->unit = KVGUARD_UNIT_BLOCK;
  group->seq_lens = group->row_columns = false;
  if (group->state_mode == KVGUARD_STATE_ALL) o->max_drafts = 0;
  o->lookahead = 0;
  o->rolls_back = o->loads = o->sends = false;
  if (group->state_mode == KVGUARD_STATE_NONE) o->prefix_cache = false;
}

// An encoder-decoder model: one more group, whose blocks hold the encoder's output.
void DrawCross(Random& random, Options* o) {
  o->max_encoder = random.Range(1, 20);
  o->prefix_cache = o->loads = o->sends = false;
  GroupOptions group = DrawGroup(random, {KVGUARD_GROUP_CROSS});
  group.pool = static_cast<uint32_t>(random.Below(o->groups.back().pool + uint64_t{1}));
  group.columns = group.ColumnsFor(o->max_encoder) + random.Range(0, 2);
  group.seq_lens = false;
  o->groups.push_back(group);
}

void DrawMemory(Random& random, Options* o) {
  std::vector<uint32_t> kinds;
  if (o->has(kFull)) kinds.push_back(KVGUARD_GROUP_FULL);
  if (o->has(kWindow)) kinds.push_back(KVGUARD_GROUP_WINDOW);
  if (o->has(kChunked)) kinds.push_back(KVGUARD_GROUP_CHUNKED);
  if (o->has(kState)) kinds.push_back(KVGUARD_GROUP_STATE);
  // What shuts others out is drawn for a program, not for a group.
  const uint64_t rare = kinds.size() > 1 ? 5 : 2;
  o->cells = o->has(kCells) && ((kinds.empty() && !o->has(kRing)) || random.OneIn(rare));
  if (o->has(kRing) && (kinds.empty() || random.OneIn(rare))) {
    if (o->has(kFull) && random.OneIn(2)) kinds = {KVGUARD_GROUP_FULL};
    kinds.push_back(KVGUARD_GROUP_RING);
  } else if (o->has(kMove) && o->has(kFull) && random.OneIn(3)) {
    kinds = {KVGUARD_GROUP_FULL};  // blocks move where nothing forgets
  }
  if (o->cells) kinds = {KVGUARD_GROUP_FULL};
  const int64_t num_groups = random.OneIn(2) ? 1 : random.Range(2, 3);
  const int64_t num_pools = num_groups > 1 && random.OneIn(3) ? 2 : 1;
  const bool alike = random.OneIn(2);  // as an engine that unifies page sizes makes them
  for (int64_t g = 0; g < num_groups; ++g) {
    GroupOptions group = DrawGroup(random, kinds);
    if (g > 0 && alike) {
      group.block_size = o->groups[0].block_size;
      group.kernel_block_size = o->groups[0].kernel_block_size;
      group.unit = o->groups[0].unit;
      if (group.unit == KVGUARD_UNIT_SLOT) group.unit = KVGUARD_UNIT_BLOCK;
    }
    if (group.is_state()) Simplify(o, &group);
    if (group.is_ring()) DrawRing(random, o, &group);
    if (o->cells) DrawCells(random, o, &group);
    group.pool = g < num_pools
                     ? static_cast<uint32_t>(g)
                     : static_cast<uint32_t>(random.Below(static_cast<uint64_t>(num_pools)));
    if (o->dcp_size > 1 && !group.is_state() && !group.is_ring() && !group.cells &&
        !random.OneIn(4))
      Shard(random, *o, &group);
    if (o->has(kList) && !o->has(kPcp) && group.kind == KVGUARD_GROUP_FULL && !group.cells &&
        group.ranks == 1 && !random.OneIn(3))
      DrawList(random, &group);
    group.columns = group.ColumnsFor(o->max_model_len) + random.Range(0, 2);
    o->groups.push_back(group);
  }
  for (GroupOptions& group : o->groups) {
    if (!group.is_state()) continue;
    o->rolls_back = false;
    group.speculative = o->max_drafts;
    // A step of drafts enters one more block at most: what is moved on holds no live state.
    if (group.state_mode == KVGUARD_STATE_ALIGN && group.block_size < o->max_drafts + 2)
      group.block_size = group.kernel_block_size = o->max_drafts + 2;
    group.columns = group.ColumnsFor(o->max_model_len) + random.Range(0, 2);
  }
  if (o->has(kCross) && !o->cells && !random.OneIn(4)) DrawCross(random, o);
  for (int64_t p = 0; p < num_pools; ++p) {
    PoolOptions pool;
    pool.cells = o->cells;
    pool.null_block = o->cells ? random.OneIn(4) : !random.OneIn(5);
    int64_t one = 0;  // blocks that the longest request takes
    int64_t largest = 1;
    for (GroupOptions& group : o->groups) {
      if (group.pool != static_cast<uint32_t>(p)) continue;
      if (group.forgets()) pool.null_block = true;
      largest = std::max(largest, group.block_size);
      one += group.ColumnsFor(group.is_cross() ? o->max_encoder : o->max_model_len);
    }
    pool.num_blocks = one + (pool.null_block ? 1 : 0) + random.Range(0, one * 3 / 2 + 1);
    if (o->has(static_cast<Feature>(kRing | kList)) && !o->has(kPcp) && random.OneIn(2))
      pool.write_trash = pool.null_block ? 0 : pool.num_blocks * largest;
    for (GroupOptions& group : o->groups) {
      if (group.pool != static_cast<uint32_t>(p)) continue;
      group.pad_rows_null = pool.null_block && random.OneIn(2) && !group.reads_by_list();
      group.write_trash = pool.write_trash;
      if (pool.write_trash < 0) continue;
      group.clips_on_trash = random.OneIn(2);
      group.pads_on_trash = random.OneIn(2);
      // The slot that nothing is read from may stand for what is at hand.
      if (pool.null_block && random.OneIn(4)) group.sentinel = 0;
    }
    o->pools.push_back(pool);
  }
}

}  // namespace

const char* const kFaultNames[static_cast<size_t>(Fault::kCount)] = {"none",
                                                                     "prune-optimistic",
                                                                     "ignore-domain",
                                                                     "stale-frontier",
                                                                     "lost-rollback",
                                                                     "free-twice",
                                                                     "stale-index",
                                                                     "zero-hits",
                                                                     "append-to-old-row",
                                                                     "no-room-for-drafts",
                                                                     "kernel-formula",
                                                                     "state-same-step",
                                                                     "send-freed",
                                                                     "lost-move",
                                                                     "lost-shift"};

uint32_t FeaturesOf(Fault fault) {
  switch (fault) {
    case Fault::kPruneOptimistic:
      return kWindow | kChunked;
    case Fault::kIgnoreDomain:
      return kFull | kContent;
    case Fault::kZeroHits:
      return kFull | kZero;
    case Fault::kKernelFormula:
      return kFull | kDcp;
    case Fault::kStateSameStep:
      return kFull | kState;
    case Fault::kSendFreed:
      return kFull | kTransfer;
    case Fault::kLostMove:
      return kFull | kList | kMove;
    case Fault::kLostShift:
      return kCells;
    default:
      return kFull;
  }
}

const std::vector<FeatureName>& FeatureNames() {
  static const std::vector<FeatureName> kNames = {
      {kFull, "full"},  {kWindow, "window"}, {kChunked, "chunked"},   {kContent, "content"},
      {kZero, "zero"},  {kCopy, "copy"},     {kTransfer, "transfer"}, {kDraftPass, "draft-pass"},
      {kDcp, "dcp"},    {kState, "state"},   {kCross, "cross"},       {kMicro, "micro-batch"},
      {kPcp, "pcp"},    {kList, "list"},     {kRing, "ring"},         {kMove, "move"},
      {kCells, "cells"}};
  return kNames;
}

std::optional<uint32_t> ParseFeatures(const std::string& list, std::string* error) {
  uint32_t features = 0;
  size_t begin = 0;
  while (begin <= list.size()) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string name = list.substr(begin, end - begin);
    const auto& names = FeatureNames();
    const auto found = std::find_if(names.begin(), names.end(),
                                    [&](const FeatureName& f) { return name == f.name; });
    if (found == names.end()) {
      *error = "\"" + name + "\" is not a feature; there are";
      for (const FeatureName& known : names) *error += std::string(" ") + known.name;
      return std::nullopt;
    }
    features |= found->feature;
    begin = end + 1;
  }
  if ((features & kPcp) != 0 &&
      (features & (kWindow | kChunked | kState | kCross | kList | kRing | kCells)) != 0) {
    *error = "pcp goes with full groups alone";
    return std::nullopt;
  }
  if ((features & (kFull | kWindow | kChunked | kState | kRing | kCells)) == 0) {
    *error = "no kind of group: name at least one of full, window, chunked, state, ring, cells";
    return std::nullopt;
  }
  return features;
}

Options Options::Draw(uint64_t seed, uint32_t features) {
  Random random(Mix(seed, 0x6f7074));
  Options o;
  o.seed = seed;
  o.features = features;
  o.max_model_len = random.Range(12, 64);
  o.max_running = random.Range(1, 6);
  o.budget = random.Range(2, 40);
  o.chunk = random.OneIn(2) ? random.Range(2, 12) : 0;
  o.max_drafts = random.OneIn(2) ? static_cast<uint32_t>(random.Range(1, 4)) : 0;
  o.lookahead = random.OneIn(2) ? static_cast<int64_t>(o.max_drafts) : random.Range(0, 3);
  o.depth = random.OneIn(2) ? 1 : static_cast<uint32_t>(random.Range(2, 3));
  o.prefix_cache = !random.OneIn(6);
  o.connector_flag = random.OneIn(10);
  o.warm_up = random.OneIn(6);
  o.sleeps = random.OneIn(8);
  o.rolls_back = random.OneIn(5);
  o.dummies = random.OneIn(3);
  o.draft_pass = o.has(kDraftPass) && o.max_drafts > 0 && random.OneIn(2);
  o.outcomes_without_drafts = !random.OneIn(3);
  o.outcome_time = static_cast<OutcomeTime>(random.Below(4));
  o.stages = random.OneIn(2) ? Stages::kPlanned : static_cast<Stages>(random.Below(4));
  o.extra_rows = random.OneIn(2) ? random.Range(1, 4) : 0;
  o.extra_tokens = random.OneIn(2) ? random.Range(1, 9) : 0;
  o.shuffled_rows = random.OneIn(2);
  o.positions = !random.OneIn(4);
  o.num_computed = random.OneIn(2);
  o.lengths_dtype = random.OneIn(4) ? KVGUARD_I64 : KVGUARD_I32;
  o.slots_length = DrawLength(random);
  o.rows_length = DrawLength(random);
  o.table_rows = DrawLength(random);
  if (o.has(kContent)) {
    o.tokens_told = !random.OneIn(4);
    o.domains = random.OneIn(2);
  }
  o.zeroes = o.has(kZero) && !random.OneIn(3);
  o.copies = o.has(kCopy) && o.prefix_cache && !random.OneIn(3);
  o.copies_whole = random.OneIn(2);
  o.loads = o.has(kTransfer) && !random.OneIn(3);
  o.sends = o.has(kTransfer) && !random.OneIn(3);
  if (o.has(kDcp) && !random.OneIn(4)) {
    o.dcp_size = random.OneIn(2) ? 2 : random.Range(3, 4);
    o.dcp_rank = random.Range(0, o.dcp_size - 1);
    static const std::vector<int64_t> kInterleaves = {1, 1, 2, 4};
    o.interleave = random.Of(kInterleaves);
  }
  DrawMemory(random, &o);
  o.micro_batches = o.has(kMicro) && random.OneIn(2);
  for (const GroupOptions& group : o.groups) o.micro_batches = o.micro_batches && !group.is_ring();
  o.moves = o.has(kMove) && !random.OneIn(4);
  if (o.has(kDcp) && random.OneIn(4)) o.pad_slot = random.OneIn(2) ? -2 : INT32_MAX;
  if (o.has(kPcp)) {
    o.pcp_size = random.Range(2, 4);
    o.pcp_layout = static_cast<uint32_t>(random.Range(1, 3));
    o.draft_pass = o.micro_batches = false;
  }
  // Everything that the model's connector and its copies do is in the stream.
  o.fills_told = (o.has(kTransfer) || o.has(kCopy) || o.has(kContent)) && random.OneIn(2);
  if (o.has(kState)) o.copies_of_states_told = !random.OneIn(3);
  return o;
}

GeometryBuilder Options::Geometry() const {
  GeometryBuilder builder("generate", "1", static_cast<uint64_t>(max_rows()),
                          static_cast<uint64_t>(std::max(max_tokens(), max_running * max_encoder)));
  kvguard_geometry& fields = builder.fields();
  fields.flags = 0;
  if (async()) fields.flags |= KVGUARD_ENGINE_ASYNC;
  if (prefix_cache) fields.flags |= KVGUARD_ENGINE_PREFIX_CACHE;
  if (connector_flag || loads || sends) fields.flags |= KVGUARD_ENGINE_CONNECTOR;
  if (max_encoder > 0) fields.flags |= KVGUARD_ENGINE_ENCODER;
  if (copies) fields.flags |= KVGUARD_ENGINE_PARTIAL_HITS;
  if (fills_told) fields.flags |= KVGUARD_ENGINE_FILLS_TOLD;
  fields.max_model_len = static_cast<uint64_t>(max_model_len);
  fields.num_lookahead = static_cast<uint32_t>(lookahead);
  fields.max_drafts = max_drafts;
  fields.dcp_size = fields.num_ranks = static_cast<uint32_t>(dcp_size);
  fields.dcp_rank = fields.rank = static_cast<uint32_t>(dcp_rank);
  fields.interleave = static_cast<uint32_t>(interleave);
  fields.pad_slot = pad_slot;
  fields.pcp_size = static_cast<uint32_t>(pcp_size);
  fields.pcp_rank = 0;
  fields.pcp_layout = pcp_layout;
  if (pcp_size > 1) fields.num_ranks *= fields.pcp_size;
  for (const PoolOptions& pool : pools) {
    kvguard_pool& fields_of = builder.pool(builder.AddPool(static_cast<uint64_t>(pool.num_blocks),
                                                           pool.null_block ? 0 : KVGUARD_NONE));
    if (pool.cells) fields_of.kind = KVGUARD_POOL_CELLS;
    fields_of.write_trash = pool.write_trash;
  }
  for (const GroupOptions& from : groups) {
    kvguard_group& group =
        builder.group(builder.AddGroup(from.pool, static_cast<uint32_t>(from.block_size)));
    group.kind = from.kind;
    group.encoding = from.encoding;
    group.kernel_block_size = static_cast<uint32_t>(from.kernel_block_size);
    if (from.is_state()) {
      group.encoding = KVGUARD_READ_STATE;
      group.state_mode = from.state_mode;
      group.flags |= KVGUARD_GROUP_NO_SLOTS;
    }
    group.table_unit = from.unit;
    group.window = static_cast<uint32_t>(from.window);
    group.sink = static_cast<uint32_t>(from.sink);
    group.retained = static_cast<uint32_t>(from.retained);
    group.max_columns = from.columns_told ? static_cast<uint64_t>(from.columns) : 0;
    group.shard_formula = from.shard_formula;
    if (dcp_size > 1 && from.ranks == 1) group.flags |= KVGUARD_GROUP_REPLICATED;
    if (from.pad_rows_null) group.flags |= KVGUARD_GROUP_PAD_ROWS_NULL;
  }
  return builder;
}

std::vector<std::pair<std::string, int64_t>> Options::Told() const {
  std::vector<std::pair<std::string, int64_t>> told = {
      {"features", features},
      {"max_model_len", max_model_len},
      {"max_running", max_running},
      {"budget", budget},
      {"chunk", chunk},
      {"max_drafts", max_drafts},
      {"lookahead", lookahead},
      {"depth", depth},
      {"prefix_cache", prefix_cache},
      {"warm_up", warm_up},
      {"sleeps", sleeps},
      {"rolls_back", rolls_back},
      {"dummies", dummies},
      {"draft_pass", draft_pass},
      {"micro_batches", micro_batches},
      {"fills_told", fills_told},
      {"moves", moves},
      {"cells", cells},
      {"pad_slot", pad_slot},
      {"outcome_time", static_cast<int64_t>(outcome_time)},
      {"stages", static_cast<int64_t>(stages)},
      {"tokens_told", tokens_told},
      {"domains", domains},
      {"zeroes", zeroes},
      {"copies", copies},
      {"loads", loads},
      {"sends", sends},
      {"dcp_size", dcp_size},
      {"dcp_rank", dcp_rank},
      {"interleave", interleave},
      {"max_encoder", max_encoder},
      {"num_pools", static_cast<int64_t>(pools.size())},
      {"num_groups", static_cast<int64_t>(groups.size())}};
  return told;
}

}  // namespace kvguard::generate
