// SPDX-License-Identifier: Apache-2.0
// Plans and the parts of their groups.
#include <cstring>

#include "trace/decode_impl.h"

namespace kvguard::trace {

using step::Status;

template <typename T>
Status StepDecoder::Impl::Entries(const wire::GroupPlan& in, bool same_requests,
                                  const ColumnMemory& requests, RowStore<T>* store,
                                  RowIndexes* indexes, TableBuffer* buffer,
                                  kvguard_read_table* out) {
  const uint64_t rows = in.table_rows();
  const uint64_t columns = in.table_columns();
  // New rows of the store, for requests that it does not know.
  if (!arena.Charge(requests.values.size() * RowStore<T>::kRowBytes))
    return TooLarge("number of requests");
  if (!buffer->Has(rows, columns, sizeof(T))) {
    buffer->Drop();
    uint64_t reserved = 0;
    for (const TableBuffer& table : tables) reserved += table.ReservedBytes();
    const uint64_t most = kMaxTableBytes - std::min(reserved, kMaxTableBytes);
    if (columns > most / sizeof(T) || rows > most ||
        (columns > 0 && rows > most / (columns * sizeof(T)))) {
      return TooLarge("table");
    }
    if (!arena.Charge(rows * TableBuffer::RowBytes(columns, sizeof(T))) ||
        !buffer->Make(rows, columns, sizeof(T))) {
      return TooLarge("table");
    }
  }
  if (judged.size() > rows) return Inconsistent("table");
  uint64_t kept = 0;
  for (const int64_t value : judged) {
    if (value < 0 || static_cast<uint64_t>(value) > columns) return Inconsistent("table");
    kept += static_cast<uint64_t>(value);
  }
  // Twice: scratch, and what the store grows by.
  if (!arena.Charge(kept * 2 * sizeof(int64_t))) return TooLarge("table");
  std::span<const uint32_t> row_indexes =
      CodecState::IndexesOf(requests.values, same_requests, in.group(), store, indexes);
  row_indexes = row_indexes.first(std::min(row_indexes.size(), judged.size()));
  buffer->Clear(judged);
  TableTarget<T> target;
  target.data = static_cast<T*>(buffer->data());
  target.columns = columns;
  target.judged = judged;
  target.indexes = row_indexes;
  const std::span<const uint8_t> bytes =
      in.entries() == nullptr
          ? std::span<const uint8_t>()
          : std::span<const uint8_t>(in.entries()->data(), in.entries()->size());
  if (!GetTable(bytes, target, kept, store, &table_scratch)) return Inconsistent("table");
  out->data = buffer->data();
  out->dtype = sizeof(T) == sizeof(int32_t) ? KVGUARD_I32 : KVGUARD_I64;
  out->rows = rows;
  out->columns = columns;
  out->row_stride = columns;
  return {};
}

Status StepDecoder::Impl::Table(const wire::GroupPlan& in, bool same_requests, size_t place,
                                PlanMemory* plan_memory, kvguard_read_table* out) {
  GroupMemory& memory = plan_memory->groups[place];
  if (Status s = Array(in.a(), &memory.a, Same(in, 1), "lengths of the group", &out->seq_lens);
      !s.ok())
    return s;
  if (Status s = Array(in.b(), &memory.b, Same(in, 2), "live columns", &out->row_columns); !s.ok())
    return s;
  if (in.table_dtype() == KVGUARD_DTYPE_NONE) return {};
  if (in.judged() == nullptr && !Same(in, 4)) return Inconsistent("table");
  DecodedColumn column;
  if (Status s = Column(in.judged(), &memory.judged, "table", &column); !s.ok()) return s;
  judged.assign(column.values.begin(), column.values.end());
  GroupRows& rows = state.rows[in.group()];
  switch (in.table_dtype()) {
    case KVGUARD_I32:
      return Entries<int32_t>(in, same_requests, plan_memory->requests, &rows.narrow,
                              &memory.narrow, &tables[place], out);
    case KVGUARD_I64:
      return Entries<int64_t>(in, same_requests, plan_memory->requests, &rows.wide, &memory.wide,
                              &tables[place], out);
    default:
      return Inconsistent("table");
  }
}

Status StepDecoder::Impl::Group(const wire::GroupPlan& in, bool same_requests, size_t place,
                                PlanMemory* memory, kvguard_group_plan* out) {
  GroupMemory& group = memory->groups[place];
  if (in.group() >= state.rows.size()) return Inconsistent("group");
  std::memset(out, 0, sizeof(*out));
  out->size = sizeof(*out);
  out->group = in.group();
  out->encoding = in.encoding();
  out->slots_address = in.slots_address();
  out->reads_address = in.reads_address();
  if (Status s = Array(in.slots(), &group.slots, Same(in, 0), "slot mapping", &out->slots); !s.ok())
    return s;
  switch (in.encoding()) {
    case KVGUARD_READ_TABLE:
      return Table(in, same_requests, place, memory, &out->reads.table);
    case KVGUARD_READ_CSR: {
      kvguard_read_csr& csr = out->reads.csr;
      if (Status s = Array(in.a(), &group.a, Same(in, 1), "indptr", &csr.indptr); !s.ok()) return s;
      if (Status s = Array(in.b(), &group.b, Same(in, 2), "indices", &csr.indices); !s.ok())
        return s;
      return Array(in.c(), &group.c, Same(in, 3), "last page lengths", &csr.last_page_len);
    }
    case KVGUARD_READ_FLAT: {
      kvguard_read_flat& flat = out->reads.flat;
      flat.sentinel = in.sentinel();
      if (Status s = Array(in.a(), &group.a, Same(in, 1), "read slots", &flat.slots); !s.ok())
        return s;
      return Array(in.b(), &group.b, Same(in, 2), "row starts", &flat.starts);
    }
    case KVGUARD_READ_MASK: {
      kvguard_read_mask& mask = out->reads.mask;
      mask.cells = in.cells();
      mask.row_stride = in.row_stride();
      return Array(in.a(), &group.a, Same(in, 1), "mask", &mask.mask);
    }
    case KVGUARD_READ_STATE: {
      kvguard_read_state& read = out->reads.state;
      if (Status s = Array(in.a(), &group.a, Same(in, 1), "states in", &read.in); !s.ok()) return s;
      if (Status s = Array(in.b(), &group.b, Same(in, 2), "states out", &read.out); !s.ok())
        return s;
      return Array(in.c(), &group.c, Same(in, 3), "initialise flags", &read.init);
    }
    case 0:
      return {};
    default:
      return {KVGUARD_ERROR_VERSION, "it has reads in encoding " + std::to_string(in.encoding()) +
                                         ", which this version does not know"};
  }
}

Status StepDecoder::Impl::Plan(const wire::Plan& in) {
  kvguard_plan* out = arena.Allocate<kvguard_plan>(1);
  if (out == nullptr) return TooLarge("plan");
  *out = kvguard_plan{};
  out->size = sizeof(*out);
  out->pass = in.pass();
  out->pass_index = in.pass_index();
  out->stage = in.stage();
  out->num_rows = in.num_rows();
  out->padded_rows = in.padded_rows();
  out->num_tokens = in.num_tokens();
  out->padded_tokens = in.padded_tokens();
  PlanMemory& memory = state.PlanOf(in.pass(), in.pass_index());
  const bool same_requests = in.requests() == nullptr;
  if (same_requests && !Same(in, 0)) return Inconsistent("list of requests");
  DecodedColumn column;
  if (Status s = Column(in.requests(), &memory.requests, "list of requests", &column); !s.ok())
    return s;
  if (column.values.size() != in.num_rows()) return Inconsistent("list of requests");
  out->requests = Narrow<uint64_t>(column.values);
  if (out->requests == nullptr) return TooLarge("list of requests");
  if (Status s = Array(in.query_start(), &memory.query_start, Same(in, 1), "query_start",
                       &out->query_start);
      !s.ok())
    return s;
  if (Status s = Array(in.seq_lens(), &memory.seq_lens, Same(in, 2), "seq_lens", &out->seq_lens);
      !s.ok())
    return s;
  if (Status s =
          Array(in.positions(), &memory.positions, Same(in, 3), "positions", &out->positions);
      !s.ok())
    return s;
  if (Status s = Array(in.num_computed(), &memory.num_computed, Same(in, 4), "num_computed",
                       &out->num_computed);
      !s.ok()) {
    return s;
  }
  const uint32_t count = in.groups() == nullptr ? 0 : in.groups()->size();
  if (count > state.rows.size()) return Inconsistent("list of groups");
  if (memory.groups.size() < count) memory.groups.resize(count);
  if (tables.size() < count) tables.resize(count);
  kvguard_group_plan* groups = arena.Allocate<kvguard_group_plan>(count);
  if (groups == nullptr) return TooLarge("plan");
  for (uint32_t i = 0; i < count; ++i) {
    if (Status s = Group(*in.groups()->Get(i), same_requests, i, &memory, &groups[i]); !s.ok())
      return s;
  }
  out->groups = count > 0 ? groups : nullptr;
  out->num_groups = count;
  record.kind = KVGUARD_RECORD_PLAN;
  record.body.plan = out;
  return {};
}

}  // namespace kvguard::trace
