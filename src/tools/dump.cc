// SPDX-License-Identifier: Apache-2.0
#include "tools/dump.h"

#include "explain/prose.h"
#include "trace/owned.h"

namespace kvguard::tools {
namespace {

using report::Json;
using report::Name;
using trace::OwnedArray;
using trace::OwnedEvent;
using trace::OwnedGroupPlan;
using trace::OwnedRecord;

const char* DtypeName(uint32_t dtype) {
  switch (dtype) {
    case KVGUARD_I32:
      return "i32";
    case KVGUARD_I64:
      return "i64";
    case KVGUARD_U8:
      return "u8";
    default:
      return "none";
  }
}

Json ArrayJson(const OwnedArray& array) {
  if (!array.present()) return nullptr;
  return {{"dtype", DtypeName(array.dtype)}, {"values", array.values}};
}

Json GroupIdJson(uint32_t group) {
  return group == KVGUARD_ALL_GROUPS ? Json(nullptr) : Json(group);
}

Json EventsJson(const std::vector<OwnedEvent>& events) {
  Json out = Json::array();
  for (const OwnedEvent& event : events) {
    out.push_back({{"kind", Name("event_kind", event.kind)},
                   {"kind_value", event.kind},
                   {"request", event.request},
                   {"group", GroupIdJson(event.group)},
                   {"flags", event.flags},
                   {"first", event.first},
                   {"count", event.count},
                   {"other", event.other},
                   {"value", event.value},
                   {"blocks", event.blocks},
                   {"tokens", event.tokens},
                   {"name", explain::PercentEncode(event.name)}});
  }
  return out;
}

Json TableJson(const trace::OwnedTable& table) {
  Json rows = Json::array();
  for (uint64_t r = 0; r < table.rows; ++r) {
    uint64_t live = table.columns;
    while (live > 0 && table.at(r, live - 1) == 0) --live;
    Json row = Json::array();
    for (uint64_t c = 0; c < live; ++c) row.push_back(table.at(r, c));
    rows.push_back(std::move(row));
  }
  return {{"dtype", DtypeName(table.dtype)}, {"columns", table.columns}, {"rows", std::move(rows)}};
}

Json ReadsJson(const OwnedGroupPlan& group) {
  switch (group.encoding) {
    case KVGUARD_READ_TABLE:
      return {{"table",
               group.table.dtype != KVGUARD_DTYPE_NONE ? TableJson(group.table) : Json(nullptr)},
              {"seq_lens", ArrayJson(group.a)},
              {"row_columns", ArrayJson(group.b)}};
    case KVGUARD_READ_CSR:
      return {{"indptr", ArrayJson(group.a)},
              {"indices", ArrayJson(group.b)},
              {"last_page_len", ArrayJson(group.c)}};
    case KVGUARD_READ_FLAT:
      return {{"slots", ArrayJson(group.a)},
              {"starts", ArrayJson(group.b)},
              {"sentinel", group.sentinel}};
    case KVGUARD_READ_MASK:
      return {
          {"mask", ArrayJson(group.a)}, {"cells", group.cells}, {"row_stride", group.row_stride}};
    case KVGUARD_READ_STATE:
      return {
          {"in", ArrayJson(group.a)}, {"out", ArrayJson(group.b)}, {"init", ArrayJson(group.c)}};
    default:
      return nullptr;
  }
}

Json GroupPlanJson(const OwnedGroupPlan& group) {
  return {
      {"group", group.group},
      {"encoding", group.encoding != 0 ? Json(Name("encoding", group.encoding)) : Json(nullptr)},
      {"slots", ArrayJson(group.slots)},
      {"reads", ReadsJson(group)},
      {"slots_address", group.slots_address},
      {"reads_address", group.reads_address}};
}

void AddBody(const OwnedRecord& record, Json* out) {
  switch (record.kind) {
    case KVGUARD_RECORD_BEGIN: {
      (*out)["events"] = EventsJson(record.events);
      Json scheduled = Json::array();
      for (const trace::OwnedScheduled& row : record.scheduled) {
        scheduled.push_back({{"request", row.request},
                             {"num_tokens", row.num_tokens},
                             {"num_computed", row.num_computed},
                             {"num_drafts", row.num_drafts}});
      }
      (*out)["scheduled"] = std::move(scheduled);
      break;
    }
    case KVGUARD_RECORD_PLAN: {
      const trace::OwnedPlan& plan = record.plan;
      (*out)["pass"] = Name("pass", plan.pass);
      (*out)["pass_index"] = plan.pass_index;
      (*out)["stage"] = Name("stage", plan.stage);
      (*out)["num_rows"] = plan.num_rows;
      (*out)["padded_rows"] = plan.padded_rows;
      (*out)["num_tokens"] = plan.num_tokens;
      (*out)["padded_tokens"] = plan.padded_tokens;
      (*out)["requests"] = plan.requests;
      (*out)["query_start"] = ArrayJson(plan.query_start);
      (*out)["seq_lens"] = ArrayJson(plan.seq_lens);
      (*out)["positions"] = ArrayJson(plan.positions);
      (*out)["num_computed"] = ArrayJson(plan.num_computed);
      Json groups = Json::array();
      for (const OwnedGroupPlan& group : plan.groups) groups.push_back(GroupPlanJson(group));
      (*out)["groups"] = std::move(groups);
      break;
    }
    case KVGUARD_RECORD_OUTCOME: {
      Json rows = Json::array();
      for (const trace::OwnedOutcomeRow& row : record.rows) {
        rows.push_back({{"request", row.request},
                        {"num_sampled", row.num_sampled},
                        {"num_rejected", row.num_rejected},
                        {"num_tokens", row.num_tokens},
                        {"tokens", row.known ? Json(row.tokens) : Json(nullptr)}});
      }
      (*out)["rows"] = std::move(rows);
      (*out)["events"] = EventsJson(record.events);
      break;
    }
    case KVGUARD_RECORD_END:
      (*out)["flags"] = record.flags;
      break;
    case KVGUARD_RECORD_RESET:
      (*out)["reason"] = Name("reset_reason", record.reason);
      break;
    default:
      break;
  }
}

std::string Hex(std::span<const uint8_t> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const uint8_t byte : bytes) {
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

}  // namespace

Json GeometryJson(const kvguard_geometry& g) {
  Json pools = Json::array();
  for (uint32_t i = 0; i < g.num_pools; ++i) {
    const kvguard_pool& pool = g.pools[i];
    pools.push_back({{"id", pool.id},
                     {"kind", Name("pool_kind", pool.kind)},
                     {"memory", pool.memory == 0 ? "device" : "host"},
                     {"num_blocks", pool.num_blocks},
                     {"null_block", pool.null_block},
                     {"read_trash", pool.read_trash},
                     {"write_trash", pool.write_trash},
                     {"arena", pool.arena},
                     {"byte_base", pool.byte_base},
                     {"byte_stride", pool.byte_stride}});
  }
  Json groups = Json::array();
  for (uint32_t i = 0; i < g.num_groups; ++i) {
    const kvguard_group& group = g.groups[i];
    groups.push_back(
        {{"id", group.id},
         {"pool", group.pool},
         {"kind", Name("group_kind", group.kind)},
         {"placement", group.placement == KVGUARD_PLACEMENT_ASSIGNED ? "assigned" : "chosen"},
         {"encoding", Name("encoding", group.encoding)},
         {"table_unit", Name("unit", group.table_unit)},
         {"flags", group.flags},
         {"block_size", group.block_size},
         {"kernel_block_size", group.kernel_block_size},
         {"index_scale", group.index_scale},
         {"token_stride", group.token_stride},
         {"slot_base", group.slot_base},
         {"max_columns", group.max_columns},
         {"window", group.window},
         {"sink", group.sink},
         {"state_mode", group.state_mode},
         {"retained", group.retained},
         {"num_layers", group.num_layers},
         {"shard_formula", group.shard_formula}});
  }
  Json gaps = Json::array();
  for (uint32_t i = 0; i < g.num_standing_gaps; ++i) gaps.push_back(g.standing_gaps[i]);
  return {{"engine", g.engine},
          {"engine_version", g.engine_version != nullptr && g.engine_version[0] != '\0'
                                 ? Json(g.engine_version)
                                 : Json(nullptr)},
          {"flags", g.flags},
          {"pools", std::move(pools)},
          {"groups", std::move(groups)},
          {"max_rows", g.max_rows},
          {"max_tokens", g.max_tokens},
          {"max_model_len", g.max_model_len},
          {"num_lookahead", g.num_lookahead},
          {"max_drafts", g.max_drafts},
          {"pad_slot", g.pad_slot},
          {"rank", g.rank},
          {"num_ranks", g.num_ranks},
          {"tp_rank", g.tp_rank},
          {"tp_size", g.tp_size},
          {"pp_rank", g.pp_rank},
          {"pp_size", g.pp_size},
          {"dcp_rank", g.dcp_rank},
          {"dcp_size", g.dcp_size},
          {"pcp_rank", g.pcp_rank},
          {"pcp_size", g.pcp_size},
          {"interleave", g.interleave},
          {"pcp_layout", g.pcp_layout},
          {"standing_gaps", std::move(gaps)}};
}

Json RecordJson(const kvguard_record& record) {
  const OwnedRecord owned = OwnedRecord::Of(record);
  Json out = {{"record", Name("record_kind", owned.kind)}, {"step", owned.step}};
  if (owned.refused) {
    out["refused"] = true;  // the guard did not take it when it was recorded
    return out;
  }
  AddBody(owned, &out);
  return out;
}

Json InfoJson(const trace::TraceReader& reader) {
  const trace::HeaderInfo& header = reader.header();
  Json config = Json::parse(header.config, nullptr, false);
  Json out = {{"incident", header.incident},
              {"kvguard_version", header.kvguard_version},
              {"config", config.is_discarded() ? Json(header.config) : config},
              {"snapshot_bytes", reader.snapshot().size()},
              {"geometry", GeometryJson(reader.geometry())},
              {"steps", reader.steps()},
              {"records", reader.records()},
              {"frames", reader.frames()},
              {"bytes", reader.bytes()},
              {"skipped_frames", reader.skipped_frames()},
              {"findings", reader.findings().size()},
              {"closed", reader.has_footer()}};
  out["lost_steps"] = reader.has_footer() ? Json(reader.footer().lost_steps) : Json(nullptr);
  out["lost_records"] = reader.has_footer() ? Json(reader.footer().lost_records) : Json(nullptr);
  out["lost_because"] = reader.has_footer() && !reader.footer().reason.empty()
                            ? Json(reader.footer().reason)
                            : Json(nullptr);
  return out;
}

step::Status DumpTrace(trace::TraceReader* reader,
                       const std::function<void(const std::string& line)>& write) {
  Json first = {{"record", "geometry"},
                {"kvguard_version", reader->header().kvguard_version},
                {"incident", reader->header().incident}};
  first.update(GeometryJson(reader->geometry()));
  write(report::Dump(first, -1));
  if (const auto snapshot = reader->snapshot(); !snapshot.empty()) {
    write(report::Dump({{"record", "snapshot"}, {"hex", Hex(snapshot)}}, -1));
  }
  for (;;) {
    const kvguard_record* record = nullptr;
    if (step::Status s = reader->Next(&record); !s.ok()) return s;
    if (record == nullptr) break;
    write(report::Dump(RecordJson(*record), -1));
  }
  if (!reader->findings().empty()) {
    write(report::Dump({{"record", "findings"}, {"lines", reader->findings()}}, -1));
  }
  write(report::Dump({{"record", "footer"},
                      {"steps", reader->steps()},
                      {"records", reader->records()},
                      {"lost_steps", reader->footer().lost_steps},
                      {"lost_records", reader->footer().lost_records},
                      {"reason", reader->footer().reason}},
                     -1));
  return {};
}

}  // namespace kvguard::tools
