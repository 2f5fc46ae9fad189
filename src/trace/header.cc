// SPDX-License-Identifier: Apache-2.0
#include "trace/header.h"

#include <algorithm>
#include <cstring>

#include "step/structs.h"
#include "trace/kvtrace_generated.h"

namespace kvguard::trace {
namespace {

using step::Sprintf;
using step::Status;

constexpr uint64_t kKnownNeeds = 0;  // no feature of this version has to be announced
constexpr uint32_t kMostPools = 4096;
constexpr uint32_t kMostGroups = 4096;
constexpr uint32_t kMostGaps = 4096;
// Strings of one file may all be one string, so their number alone bounds nothing.
constexpr size_t kMostGapBytes = size_t{1} << 20;
constexpr size_t kMostLineBytes = size_t{64} << 20;

std::vector<uint8_t> Bytes(const flatbuffers::FlatBufferBuilder& fbb) {
  return {fbb.GetBufferPointer(), fbb.GetBufferPointer() + fbb.GetSize()};
}

template <typename T>
const T* Root(std::span<const uint8_t> payload) {
  flatbuffers::Verifier verifier(payload.data(), payload.size());
  return verifier.VerifyBuffer<T>(nullptr) ? flatbuffers::GetRoot<T>(payload.data()) : nullptr;
}

std::string Text(const flatbuffers::String* text) {
  return text == nullptr ? std::string() : text->str();
}

}  // namespace

OwnedGeometry::OwnedGeometry(const kvguard_geometry& geometry) {
  if (!step::ReadStruct(&geometry, &view_, "geometry").ok()) return;
  engine_ = view_.engine == nullptr ? "" : view_.engine;
  engine_version_ = view_.engine_version == nullptr ? "" : view_.engine_version;
  step::StructArray<kvguard_pool> pools;
  step::StructArray<kvguard_group> groups;
  if (pools.Assign(view_.pools, view_.num_pools, kMostPools, "pools").ok()) {
    for (size_t i = 0; i < pools.size(); ++i) pools_.push_back(pools[i]);
  }
  if (groups.Assign(view_.groups, view_.num_groups, kMostGroups, "groups").ok()) {
    for (size_t i = 0; i < groups.size(); ++i) groups_.push_back(groups[i]);
  }
  for (uint32_t i = 0; view_.standing_gaps != nullptr && i < view_.num_standing_gaps; ++i) {
    gap_names_.emplace_back(view_.standing_gaps[i] == nullptr ? "" : view_.standing_gaps[i]);
  }
  Link();
}

void OwnedGeometry::Link() {
  view_.size = sizeof(view_);
  for (kvguard_pool& pool : pools_) pool.size = sizeof(pool);
  for (kvguard_group& group : groups_) group.size = sizeof(group);
  gap_pointers_.clear();
  for (const std::string& name : gap_names_) gap_pointers_.push_back(name.c_str());
  view_.engine = engine_.c_str();
  view_.engine_version = engine_version_.c_str();
  view_.pools = pools_.data();
  view_.groups = groups_.data();
  view_.num_pools = static_cast<uint32_t>(pools_.size());
  view_.num_groups = static_cast<uint32_t>(groups_.size());
  view_.standing_gaps = gap_pointers_.empty() ? nullptr : gap_pointers_.data();
  view_.num_standing_gaps = static_cast<uint32_t>(gap_pointers_.size());
}

std::string ConfigJson(const kvguard_config& config) {
  return Sprintf(
      "{\"action\":\"%s\",\"latch\":%s,\"history_steps\":%u,\"history_bytes\":%llu,"
      "\"max_findings_per_step\":%u,\"max_findings\":%u}",
      config.action == KVGUARD_ACTION_LOG ? "log" : "raise", config.latch != 0 ? "true" : "false",
      config.history_steps, static_cast<unsigned long long>(config.history_bytes),
      config.max_findings_per_step, config.max_findings);
}

std::string HeaderSentence(const kvguard_geometry& geometry, bool incident) {
  const bool versioned = geometry.engine_version != nullptr && geometry.engine_version[0] != '\0';
  return Sprintf(
      "This is a kvguard %s of rank %u of %s%s%s, written by kvguard %s. Read it with: kvguard %s "
      "FILE\n",
      incident ? "incident" : "trace", geometry.rank, geometry.engine, versioned ? " " : "",
      versioned ? geometry.engine_version : "", kvguard_version(), incident ? "explain" : "replay");
}

std::vector<uint8_t> EncodeHeader(const kvguard_geometry& geometry, const HeaderInfo& info,
                                  uint64_t nonce) {
  const OwnedGeometry owned(geometry);
  const kvguard_geometry& g = owned.view();
  flatbuffers::FlatBufferBuilder fbb;
  std::vector<flatbuffers::Offset<wire::Pool>> pools;
  pools.reserve(g.num_pools);
  for (uint32_t i = 0; i < g.num_pools; ++i) {
    const kvguard_pool& p = g.pools[i];
    pools.push_back(wire::CreatePool(fbb, p.id, p.kind, p.memory, p.num_blocks, p.null_block,
                                     p.read_trash, p.write_trash, p.arena, p.byte_base,
                                     p.byte_stride));
  }
  std::vector<flatbuffers::Offset<wire::Group>> groups;
  groups.reserve(g.num_groups);
  for (uint32_t i = 0; i < g.num_groups; ++i) {
    const kvguard_group& x = g.groups[i];
    groups.push_back(wire::CreateGroup(
        fbb, x.id, x.pool, x.kind, x.placement, x.encoding, x.table_unit, x.flags, x.block_size,
        x.kernel_block_size, x.index_scale, x.token_stride, x.slot_base, x.max_columns, x.window,
        x.sink, x.state_mode, x.retained, x.num_layers, x.shard_formula));
  }
  std::vector<flatbuffers::Offset<flatbuffers::String>> gaps;
  gaps.reserve(g.num_standing_gaps);
  for (uint32_t i = 0; i < g.num_standing_gaps; ++i)
    gaps.push_back(fbb.CreateString(g.standing_gaps[i]));
  const auto engine = fbb.CreateString(g.engine);
  const auto engine_version = fbb.CreateString(g.engine_version);
  const auto pool_vector = fbb.CreateVector(pools);
  const auto group_vector = fbb.CreateVector(groups);
  const auto gap_vector = fbb.CreateVector(gaps);
  const auto geometry_offset = wire::CreateGeometry(
      fbb, g.flags, engine, engine_version, pool_vector, group_vector, g.max_rows, g.max_tokens,
      g.max_model_len, g.num_lookahead, g.max_drafts, g.pad_slot, g.rank, g.num_ranks, g.tp_rank,
      g.tp_size, g.pp_rank, g.pp_size, g.dcp_rank, g.dcp_size, g.pcp_rank, g.pcp_size, g.interleave,
      g.pcp_layout, gap_vector);
  const auto version = fbb.CreateString(info.kvguard_version);
  const auto config = fbb.CreateString(info.config);
  const auto sentence = fbb.CreateString(info.sentence);
  fbb.Finish(wire::CreateHeader(fbb, sentence, kKnownNeeds, nonce, version, config, info.incident,
                                geometry_offset));
  return Bytes(fbb);
}

Status HeaderReader::Decode(std::span<const uint8_t> payload, OwnedGeometry* geometry,
                            HeaderInfo* info) {
  const auto* in = Root<wire::Header>(payload);
  if (in == nullptr) return {KVGUARD_ERROR_FORMAT, "its header has no geometry"};
  if ((in->needs() & ~kKnownNeeds) != 0) {
    return {KVGUARD_ERROR_VERSION, "it was written by kvguard " + Text(in->kvguard_version()) +
                                       " with something that this kvguard (" + kvguard_version() +
                                       ") cannot read; read it with that one"};
  }
  info->sentence = Text(in->sentence());
  info->kvguard_version = Text(in->kvguard_version());
  info->config = Text(in->config());
  info->incident = in->incident();
  const wire::Geometry& g = *in->geometry();
  kvguard_geometry& out = geometry->view_;
  out = kvguard_geometry{};
  out.flags = g.flags();
  geometry->engine_ = Text(g.engine());
  geometry->engine_version_ = Text(g.engine_version());
  const auto too_many = [](uint64_t count, uint32_t most) { return count > most; };
  if (g.pools() != nullptr) {
    if (too_many(g.pools()->size(), kMostPools))
      return {KVGUARD_ERROR_FORMAT, "its header has too many pools"};
    for (const wire::Pool* p : *g.pools()) {
      kvguard_pool& pool = geometry->pools_.emplace_back();
      pool = kvguard_pool{};
      pool.id = p->id();
      pool.kind = p->kind();
      pool.memory = p->memory();
      pool.num_blocks = p->num_blocks();
      pool.null_block = p->null_block();
      pool.read_trash = p->read_trash();
      pool.write_trash = p->write_trash();
      pool.arena = p->arena();
      pool.byte_base = p->byte_base();
      pool.byte_stride = p->byte_stride();
    }
  }
  if (g.groups() != nullptr) {
    if (too_many(g.groups()->size(), kMostGroups))
      return {KVGUARD_ERROR_FORMAT, "its header has too many groups"};
    for (const wire::Group* x : *g.groups()) {
      kvguard_group& group = geometry->groups_.emplace_back();
      group = kvguard_group{};
      group.id = x->id();
      group.pool = x->pool();
      group.kind = x->kind();
      group.placement = x->placement();
      group.encoding = x->encoding();
      group.table_unit = x->table_unit();
      group.flags = x->flags();
      group.block_size = x->block_size();
      group.kernel_block_size = x->kernel_block_size();
      group.index_scale = x->index_scale();
      group.token_stride = x->token_stride();
      group.slot_base = x->slot_base();
      group.max_columns = x->max_columns();
      group.window = x->window();
      group.sink = x->sink();
      group.state_mode = x->state_mode();
      group.retained = x->retained();
      group.num_layers = x->num_layers();
      group.shard_formula = x->shard_formula();
    }
  }
  if (g.standing_gaps() != nullptr) {
    if (too_many(g.standing_gaps()->size(), kMostGaps))
      return {KVGUARD_ERROR_FORMAT, "its header has too many gaps"};
    size_t bytes = 0;
    for (const flatbuffers::String* name : *g.standing_gaps()) {
      bytes += name->size();
      if (bytes > kMostGapBytes)
        return {KVGUARD_ERROR_FORMAT, "its header has too long names of gaps"};
      geometry->gap_names_.push_back(Text(name));
    }
  }
  out.max_rows = g.max_rows();
  out.max_tokens = g.max_tokens();
  out.max_model_len = g.max_model_len();
  out.num_lookahead = g.num_lookahead();
  out.max_drafts = g.max_drafts();
  out.pad_slot = g.pad_slot();
  out.rank = g.rank();
  out.num_ranks = g.num_ranks();
  out.tp_rank = g.tp_rank();
  out.tp_size = g.tp_size();
  out.pp_rank = g.pp_rank();
  out.pp_size = g.pp_size();
  out.dcp_rank = g.dcp_rank();
  out.dcp_size = g.dcp_size();
  out.pcp_rank = g.pcp_rank();
  out.pcp_size = g.pcp_size();
  out.interleave = g.interleave();
  out.pcp_layout = g.pcp_layout();
  geometry->Link();
  return {};
}

std::vector<uint8_t> EncodeSnapshotPart(std::span<const uint8_t> snapshot, size_t offset) {
  const size_t count = std::min(snapshot.size() - offset, kSnapshotPartBytes);
  flatbuffers::FlatBufferBuilder fbb(count + 256);
  const auto bytes = fbb.CreateVector(snapshot.data() + offset, count);
  fbb.Finish(wire::CreateSnapshot(fbb, offset, snapshot.size(), bytes));
  return Bytes(fbb);
}

Status DecodeSnapshotPart(std::span<const uint8_t> payload, std::vector<uint8_t>* snapshot,
                          bool* whole) {
  const auto* in = Root<wire::Snapshot>(payload);
  if (in == nullptr || in->bytes() == nullptr || in->total() > kMaxSnapshotBytes ||
      in->offset() != snapshot->size() || in->offset() > in->total() ||
      in->bytes()->size() > in->total() - in->offset() ||
      (in->offset() > 0 && in->bytes()->size() == 0)) {
    return {KVGUARD_ERROR_FORMAT, "its snapshot is inconsistent"};
  }
  snapshot->insert(snapshot->end(), in->bytes()->begin(), in->bytes()->end());
  *whole = snapshot->size() == in->total();
  return {};
}

std::vector<uint8_t> EncodeFindings(const std::vector<std::string>& lines) {
  flatbuffers::FlatBufferBuilder fbb;
  fbb.Finish(wire::CreateFindings(fbb, fbb.CreateVectorOfStrings(lines)));
  return Bytes(fbb);
}

Status DecodeFindings(std::span<const uint8_t> payload, std::vector<std::string>* lines) {
  const auto* in = Root<wire::Findings>(payload);
  if (in == nullptr) return {KVGUARD_ERROR_FORMAT, "its findings are inconsistent"};
  if (in->lines() == nullptr) return {};
  size_t bytes = 0;
  for (const flatbuffers::String* line : *in->lines()) {
    bytes += line->size();
    if (bytes > kMostLineBytes) return {KVGUARD_ERROR_FORMAT, "its findings are too long"};
    lines->push_back(Text(line));
  }
  return {};
}

std::vector<uint8_t> EncodeFooter(const FooterInfo& footer) {
  flatbuffers::FlatBufferBuilder fbb;
  const auto reason = fbb.CreateString(footer.reason);
  wire::FooterBuilder out(fbb);
  out.add_steps(footer.steps);
  out.add_records(footer.records);
  out.add_lost_steps(footer.lost_steps);
  out.add_lost_records(footer.lost_records);
  out.add_reason(reason);
  fbb.Finish(out.Finish());
  return Bytes(fbb);
}

Status DecodeFooter(std::span<const uint8_t> payload, FooterInfo* footer) {
  const auto* in = Root<wire::Footer>(payload);
  if (in == nullptr) return {KVGUARD_ERROR_FORMAT, "its footer is inconsistent"};
  footer->steps = in->steps();
  footer->records = in->records();
  footer->lost_steps = in->lost_steps();
  footer->lost_records = in->lost_records();
  footer->reason = Text(in->reason());
  return {};
}

}  // namespace kvguard::trace
