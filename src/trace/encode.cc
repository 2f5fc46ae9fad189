// SPDX-License-Identifier: Apache-2.0
#include "trace/encode.h"

#include <algorithm>
#include <string>
#include <vector>

#include "step/structs.h"
#include "trace/codec_state.h"
#include "trace/kvtrace_generated.h"

namespace kvguard::trace {
namespace {

using BytesOffset = flatbuffers::Offset<flatbuffers::Vector<uint8_t>>;

// The guard has checked what it accepted against bounds of its own; these only keep a copy finite.
constexpr uint64_t kMostElements = uint64_t{1} << 32;

// Rows are forgotten when their request ends. One that never ends in the stream (a key that nobody
// admitted) must not grow the state without bound: above this everything is forgotten at once.
constexpr uint64_t kMostHeldBytes = uint64_t{64} << 20;
constexpr uint32_t kStepsBetweenChecks = 64;

struct EventColumns {
  std::vector<int64_t> kind, request, group, flags, first, number, other, value, num_blocks, blocks,
      num_tokens, tokens, name_size;
  std::string names;

  void Clear() {
    for (auto* column : {&kind, &request, &group, &flags, &first, &number, &other, &value,
                         &num_blocks, &blocks, &num_tokens, &tokens, &name_size}) {
      column->clear();
    }
    names.clear();
  }
};

bool AllZero(std::span<const int64_t> values) {
  return std::all_of(values.begin(), values.end(), [](int64_t value) { return value == 0; });
}

}  // namespace

struct StepEncoder::Impl {
  Impl(uint32_t num_groups, const TokenMapper* token_mapper)
      : state(num_groups), mapper(token_mapper) {}

  flatbuffers::FlatBufferBuilder fbb;
  std::vector<flatbuffers::Offset<wire::Record>> records;
  std::vector<flatbuffers::Offset<wire::GroupPlan>> group_offsets;
  CodecState state;
  const TokenMapper* mapper;
  TokenColumnWriter tokens;
  ColumnWriter columns;
  ByteBuffer buffer;
  TableScratch table_scratch;
  std::vector<int64_t> scratch;
  EventColumns events;
  bool fresh = true;        // of the open payload
  bool fresh_next = false;  // of the one after it
  bool finished = false;
  uint32_t steps_until_check = kStepsBetweenChecks;

  // Views of the records' arrays, kept so that reading one allocates nothing.
  step::StructArray<kvguard_event> event_array;
  step::StructArray<kvguard_scheduled> scheduled_array;
  step::StructArray<kvguard_group_plan> group_array;
  step::StructArray<kvguard_outcome_row> row_array;

  void StartPayload() {
    if (!finished) return;
    fbb.Clear();
    records.clear();
    fresh = fresh_next;
    fresh_next = false;
    finished = false;
  }

  void Close(uint64_t step, wire::Body type, flatbuffers::Offset<void> body) {
    records.push_back(wire::CreateRecord(fbb, step, type, body));
  }

  BytesOffset Bytes() { return fbb.CreateVector(buffer.data(), buffer.size()); }

  // A column of a table whose `same` bits are collected in *same.
  BytesOffset Offset(ColumnWriter::Result result, uint32_t bit, uint8_t* same) {
    if (result == ColumnWriter::Result::kPut) return Bytes();
    if (result == ColumnWriter::Result::kSame) *same = static_cast<uint8_t>(*same | 1u << bit);
    return 0;
  }
  template <typename T>
  BytesOffset Column(std::span<const T> values, ColumnMemory* memory, uint32_t bit, uint8_t* same) {
    buffer.Clear();
    return Offset(columns.Put(values, memory, &buffer), bit, same);
  }
  BytesOffset Column(const kvguard_array& array, uint64_t most, ColumnMemory* memory, uint32_t bit,
                     uint8_t* same) {
    buffer.Clear();
    return Offset(columns.Put(array, most, memory, &buffer), bit, same);
  }
  // Zeros are what an absent column reads back as.
  BytesOffset SparseColumn(std::span<const int64_t> values) {
    if (AllZero(values)) return 0;
    buffer.Clear();
    columns.Put(values, nullptr, &buffer);
    return Bytes();
  }
  BytesOffset Tokens(std::span<const int64_t> values) {
    if (values.empty()) return 0;
    buffer.Clear();
    if (mapper != nullptr) {
      tokens.PutMapped(values, *mapper, &buffer);
    } else {
      tokens.PutWide(values, &buffer);
    }
    return Bytes();
  }

  // One field of an array of structs.
  template <typename T, typename Field>
  BytesOffset FieldColumn(const step::StructArray<T>& array, Field T::* field, ColumnMemory* memory,
                          uint32_t bit, uint8_t* same) {
    scratch.resize(array.size());
    for (size_t i = 0; i < array.size(); ++i) scratch[i] = static_cast<int64_t>(array[i].*field);
    return Column(std::span<const int64_t>(scratch), memory, bit, same);
  }

  bool Events(const kvguard_event* data, uint64_t count, flatbuffers::Offset<wire::Events>* out);
  bool Begin(const kvguard_record& record);
  bool Plan(const kvguard_record& record, const JudgedColumns& judged);
  bool Outcome(const kvguard_record& record);
  flatbuffers::Offset<wire::GroupPlan> Group(const kvguard_plan& plan,
                                             const kvguard_group_plan& group,
                                             const JudgedColumns& judged, bool same_requests,
                                             const ColumnMemory& requests, GroupMemory* memory);
  template <typename T>
  BytesOffset Entries(const kvguard_plan& plan, const kvguard_group_plan& group,
                      const JudgedColumns& judged, bool same_requests, const ColumnMemory& requests,
                      RowStore<T>* store, RowIndexes* indexes, ColumnMemory* judged_memory,
                      BytesOffset* judged_column, uint8_t* same);
};

bool StepEncoder::Impl::Events(const kvguard_event* data, uint64_t count,
                               flatbuffers::Offset<wire::Events>* out) {
  *out = 0;
  if (!event_array.Assign(data, count, kMostElements, "events").ok()) return false;
  if (count == 0) return true;
  EventColumns& e = events;
  e.Clear();
  for (size_t i = 0; i < event_array.size(); ++i) {
    const kvguard_event& event = event_array[i];
    e.kind.push_back(event.kind);
    e.request.push_back(static_cast<int64_t>(event.request));
    e.group.push_back(event.group);
    e.flags.push_back(event.flags);
    e.first.push_back(event.first);
    e.number.push_back(event.count);
    e.other.push_back(static_cast<int64_t>(event.other));
    e.value.push_back(event.value);
    e.num_blocks.push_back(static_cast<int64_t>(event.num_blocks));
    e.blocks.insert(e.blocks.end(), event.blocks, event.blocks + event.num_blocks);
    e.num_tokens.push_back(static_cast<int64_t>(event.num_tokens));
    e.tokens.insert(e.tokens.end(), event.tokens, event.tokens + event.num_tokens);
    e.name_size.push_back(static_cast<int64_t>(event.name_size));
    if (event.name_size > 0) e.names.append(event.name, event.name_size);
    if (event.kind == KVGUARD_EVENT_FINISH || event.kind == KVGUARD_EVENT_PREEMPT) {
      state.Forget(event.request);
    }
  }
  const auto kind = SparseColumn(e.kind);
  const auto request = SparseColumn(e.request);
  const auto group = SparseColumn(e.group);
  const auto flags = SparseColumn(e.flags);
  const auto first = SparseColumn(e.first);
  const auto number = SparseColumn(e.number);
  const auto other = SparseColumn(e.other);
  const auto value = SparseColumn(e.value);
  const auto num_blocks = SparseColumn(e.num_blocks);
  const auto blocks = SparseColumn(e.blocks);
  const auto num_tokens = SparseColumn(e.num_tokens);
  const auto token_bytes = Tokens(e.tokens);
  const auto name_size = SparseColumn(e.name_size);
  const auto names =
      e.names.empty()
          ? BytesOffset(0)
          : fbb.CreateVector(reinterpret_cast<const uint8_t*>(e.names.data()), e.names.size());
  *out = wire::CreateEvents(fbb, static_cast<uint32_t>(count), kind, request, group, flags, first,
                            number, other, value, num_blocks, blocks, num_tokens, token_bytes,
                            name_size, names);
  return true;
}

bool StepEncoder::Impl::Begin(const kvguard_record& record) {
  kvguard_begin in{};
  if (!step::ReadStruct(record.body.begin, &in, "begin").ok()) return false;
  if (!scheduled_array.Assign(in.scheduled, in.num_scheduled, kMostElements, "scheduled").ok()) {
    return false;
  }
  flatbuffers::Offset<wire::Events> event_offset = 0;
  if (!Events(in.events, in.num_events, &event_offset)) return false;
  BytesOffset request = 0;
  BytesOffset num_tokens = 0;
  BytesOffset num_computed = 0;
  BytesOffset num_drafts = 0;
  uint8_t same = 0;
  const size_t count = scheduled_array.size();
  if (count > 0) {
    const auto column = [&](auto field, ColumnMemory* memory, uint32_t bit) {
      return FieldColumn(scheduled_array, field, memory, bit, &same);
    };
    request = column(&kvguard_scheduled::request, &state.scheduled.request, 0);
    num_tokens = column(&kvguard_scheduled::num_tokens, &state.scheduled.num_tokens, 1);
    num_computed = column(&kvguard_scheduled::num_computed, &state.scheduled.num_computed, 2);
    num_drafts = column(&kvguard_scheduled::num_drafts, &state.scheduled.num_drafts, 3);
  }
  const auto body = wire::CreateBegin(fbb, event_offset, static_cast<uint32_t>(count), request,
                                      num_tokens, num_computed, num_drafts, same);
  Close(record.step, wire::Body::Begin, body.Union());
  return true;
}

template <typename T>
BytesOffset StepEncoder::Impl::Entries(const kvguard_plan& plan, const kvguard_group_plan& group,
                                       const JudgedColumns& judged, bool same_requests,
                                       const ColumnMemory& requests, RowStore<T>* store,
                                       RowIndexes* indexes, ColumnMemory* judged_memory,
                                       BytesOffset* judged_column, uint8_t* same) {
  const kvguard_read_table& table = group.reads.table;
  // Rows behind the padding are nobody's.
  const uint64_t rows = std::min(table.rows, plan.padded_rows);
  std::vector<int64_t>& kept = scratch;
  kept.clear();
  for (uint64_t row = 0; row < rows; ++row) {
    const uint64_t columns_kept =
        judged.columns == nullptr
            ? table.columns
            : std::min(table.columns, judged.columns(judged.context, plan, group, row));
    kept.push_back(static_cast<int64_t>(columns_kept));
  }
  *judged_column = Column(std::span<const int64_t>(kept), judged_memory, 4, same);
  TableSource<T> source;
  source.data = static_cast<const T*>(table.data);
  source.row_stride = table.row_stride;
  source.judged = kept;
  source.indexes =
      CodecState::IndexesOf(requests.values, same_requests, group.group, store, indexes);
  buffer.Clear();
  PutTable(source, store, &table_scratch, &buffer);
  return buffer.size() == 0 ? BytesOffset(0) : Bytes();
}

flatbuffers::Offset<wire::GroupPlan> StepEncoder::Impl::Group(
    const kvguard_plan& plan, const kvguard_group_plan& group, const JudgedColumns& judged,
    bool same_requests, const ColumnMemory& requests, GroupMemory* memory) {
  const uint64_t tokens_kept = std::max(plan.num_tokens, plan.padded_tokens);
  uint8_t same = 0;
  const auto slots = Column(group.slots, tokens_kept, &memory->slots, 0, &same);
  BytesOffset a = 0;
  BytesOffset b = 0;
  BytesOffset c = 0;
  BytesOffset judged_column = 0;
  BytesOffset entries = 0;
  uint32_t table_dtype = 0;
  switch (group.encoding) {
    case KVGUARD_READ_TABLE: {
      const kvguard_read_table& table = group.reads.table;
      a = Column(table.seq_lens, plan.padded_rows, &memory->a, 1, &same);
      b = Column(table.row_columns, plan.padded_rows, &memory->b, 2, &same);
      if (table.data == nullptr) break;
      if (table.dtype == KVGUARD_I32) {
        table_dtype = table.dtype;
        entries = Entries<int32_t>(plan, group, judged, same_requests, requests,
                                   &state.rows[group.group].narrow, &memory->narrow,
                                   &memory->judged, &judged_column, &same);
      } else if (table.dtype == KVGUARD_I64) {
        table_dtype = table.dtype;
        entries = Entries<int64_t>(plan, group, judged, same_requests, requests,
                                   &state.rows[group.group].wide, &memory->wide, &memory->judged,
                                   &judged_column, &same);
      }
      break;
    }
    case KVGUARD_READ_CSR:
      a = Column(group.reads.csr.indptr, kMostElements, &memory->a, 1, &same);
      b = Column(group.reads.csr.indices, kMostElements, &memory->b, 2, &same);
      c = Column(group.reads.csr.last_page_len, kMostElements, &memory->c, 3, &same);
      break;
    case KVGUARD_READ_FLAT:
      a = Column(group.reads.flat.slots, kMostElements, &memory->a, 1, &same);
      b = Column(group.reads.flat.starts, kMostElements, &memory->b, 2, &same);
      break;
    case KVGUARD_READ_MASK:
      a = Column(group.reads.mask.mask, kMostElements, &memory->a, 1, &same);
      break;
    case KVGUARD_READ_STATE:
      a = Column(group.reads.state.in, kMostElements, &memory->a, 1, &same);
      b = Column(group.reads.state.out, kMostElements, &memory->b, 2, &same);
      c = Column(group.reads.state.init, kMostElements, &memory->c, 3, &same);
      break;
    default:
      break;
  }
  wire::GroupPlanBuilder out(fbb);
  out.add_slots_address(group.slots_address);
  out.add_reads_address(group.reads_address);
  if (group.encoding == KVGUARD_READ_TABLE && table_dtype != 0) {
    out.add_table_rows(group.reads.table.rows);
    out.add_table_columns(group.reads.table.columns);
    out.add_table_dtype(table_dtype);
    if (!judged_column.IsNull()) out.add_judged(judged_column);
    if (!entries.IsNull()) out.add_entries(entries);
  }
  if (group.encoding == KVGUARD_READ_FLAT) out.add_sentinel(group.reads.flat.sentinel);
  if (group.encoding == KVGUARD_READ_MASK) {
    out.add_cells(group.reads.mask.cells);
    out.add_row_stride(group.reads.mask.row_stride);
  }
  if (!slots.IsNull()) out.add_slots(slots);
  if (!a.IsNull()) out.add_a(a);
  if (!b.IsNull()) out.add_b(b);
  if (!c.IsNull()) out.add_c(c);
  out.add_same(same);
  out.add_group(group.group);
  out.add_encoding(group.encoding);
  return out.Finish();
}

bool StepEncoder::Impl::Plan(const kvguard_record& record, const JudgedColumns& judged) {
  kvguard_plan in{};
  if (!step::ReadStruct(record.body.plan, &in, "plan").ok()) return false;
  if (!group_array.Assign(in.groups, in.num_groups, state.rows.size(), "groups").ok()) return false;
  if (in.num_rows > 0 && in.requests == nullptr) return false;
  for (size_t i = 0; i < group_array.size(); ++i) {
    if (group_array[i].group >= state.rows.size()) return false;
  }
  PlanMemory& memory = state.PlanOf(in.pass, in.pass_index);
  const std::span<const uint64_t> keys(in.requests, static_cast<size_t>(in.num_rows));
  const bool same_requests = std::equal(
      keys.begin(), keys.end(), memory.requests.values.begin(), memory.requests.values.end(),
      [](uint64_t key, int64_t known) { return key == static_cast<uint64_t>(known); });
  uint8_t same = 0;
  const auto requests = Column(keys, &memory.requests, 0, &same);
  const uint64_t rows = std::max(in.num_rows, in.padded_rows);
  const uint64_t tokens_kept = std::max(in.num_tokens, in.padded_tokens);
  const auto query_start = Column(in.query_start, rows + 1, &memory.query_start, 1, &same);
  const auto seq_lens = Column(in.seq_lens, rows, &memory.seq_lens, 2, &same);
  const auto positions = Column(in.positions, tokens_kept, &memory.positions, 3, &same);
  const auto num_computed = Column(in.num_computed, rows, &memory.num_computed, 4, &same);
  group_offsets.clear();
  if (memory.groups.size() < group_array.size()) memory.groups.resize(group_array.size());
  for (size_t i = 0; i < group_array.size(); ++i) {
    group_offsets.push_back(
        Group(in, group_array[i], judged, same_requests, memory.requests, &memory.groups[i]));
  }
  const auto groups =
      group_offsets.empty()
          ? flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<wire::GroupPlan>>>(0)
          : fbb.CreateVector(group_offsets);
  const auto body = wire::CreatePlan(fbb, in.pass, in.pass_index, in.stage, in.num_rows,
                                     in.padded_rows, in.num_tokens, in.padded_tokens, requests,
                                     query_start, seq_lens, positions, num_computed, groups, same);
  Close(record.step, wire::Body::Plan, body.Union());
  return true;
}

bool StepEncoder::Impl::Outcome(const kvguard_record& record) {
  kvguard_outcome in{};
  if (!step::ReadStruct(record.body.outcome, &in, "outcome").ok()) return false;
  if (!row_array.Assign(in.rows, in.num_rows, kMostElements, "rows").ok()) return false;
  flatbuffers::Offset<wire::Events> event_offset = 0;
  if (!Events(in.events, in.num_events, &event_offset)) return false;
  BytesOffset request = 0;
  BytesOffset num_sampled = 0;
  BytesOffset num_rejected = 0;
  BytesOffset num_tokens = 0;
  BytesOffset token_bytes = 0;
  BytesOffset no_tokens = 0;
  uint8_t same = 0;
  const size_t count = row_array.size();
  if (count > 0) {
    const auto column = [&](auto field, ColumnMemory* memory, uint32_t bit) {
      return FieldColumn(row_array, field, memory, bit, &same);
    };
    request = column(&kvguard_outcome_row::request, &state.outcome.request, 0);
    num_sampled = column(&kvguard_outcome_row::num_sampled, &state.outcome.num_sampled, 1);
    num_rejected = column(&kvguard_outcome_row::num_rejected, &state.outcome.num_rejected, 2);
    num_tokens = column(&kvguard_outcome_row::num_tokens, &state.outcome.num_tokens, 3);
    scratch.clear();
    for (size_t i = 0; i < count; ++i) scratch.push_back(row_array[i].tokens == nullptr ? 1 : 0);
    no_tokens = SparseColumn(scratch);
    scratch.clear();
    for (size_t i = 0; i < count; ++i) {
      const kvguard_outcome_row& row = row_array[i];
      if (row.tokens != nullptr) {
        scratch.insert(scratch.end(), row.tokens, row.tokens + row.num_tokens);
      }
    }
    token_bytes = Tokens(scratch);
  }
  const auto body =
      wire::CreateOutcome(fbb, event_offset, static_cast<uint32_t>(count), request, num_sampled,
                          num_rejected, num_tokens, token_bytes, no_tokens, same);
  Close(record.step, wire::Body::Outcome, body.Union());
  return true;
}

StepEncoder::StepEncoder(uint32_t num_groups, const TokenMapper* mapper)
    : impl_(std::make_unique<Impl>(num_groups, mapper)) {}
StepEncoder::~StepEncoder() = default;

bool StepEncoder::Add(const kvguard_record& in, const JudgedColumns& judged) {
  Impl& impl = *impl_;
  impl.StartPayload();
  kvguard_record record;
  if (!step::ReadStruct(&in, &record, "record").ok()) return false;
  switch (record.kind) {
    case KVGUARD_RECORD_BEGIN:
      return impl.Begin(record);
    case KVGUARD_RECORD_PLAN:
      return impl.Plan(record, judged);
    case KVGUARD_RECORD_OUTCOME:
      return impl.Outcome(record);
    case KVGUARD_RECORD_END: {
      kvguard_end end;
      if (!step::ReadStruct(record.body.end, &end, "end").ok()) return false;
      impl.Close(record.step, wire::Body::End, wire::CreateEnd(impl.fbb, end.flags).Union());
      return true;
    }
    case KVGUARD_RECORD_RESET: {
      kvguard_reset reset;
      if (!step::ReadStruct(record.body.reset, &reset, "reset").ok()) return false;
      impl.state.ForgetRows();
      impl.Close(record.step, wire::Body::Reset, wire::CreateReset(impl.fbb, reset.reason).Union());
      return true;
    }
    default:
      return false;
  }
}

void StepEncoder::AddRefused(const kvguard_record& record, kvguard_status status) {
  Impl& impl = *impl_;
  impl.StartPayload();
  kvguard_record in{};
  // Not even the record itself can be read: kind 0.
  if (!step::ReadStruct(&record, &in, "record").ok()) in = kvguard_record{};
  impl.Close(in.step, wire::Body::Refused,
             wire::CreateRefused(impl.fbb, in.kind, status, in.body.begin == nullptr).Union());
}

uint32_t StepEncoder::num_records() const {
  return impl_->finished ? 0 : static_cast<uint32_t>(impl_->records.size());
}

size_t StepEncoder::size() const { return impl_->finished ? 0 : impl_->fbb.GetSize(); }

std::span<const uint8_t> StepEncoder::Finish() {
  Impl& impl = *impl_;
  impl.StartPayload();
  const auto records = impl.fbb.CreateVector(impl.records);
  impl.fbb.Finish(wire::CreateStep(impl.fbb, records, impl.fresh));
  impl.finished = true;
  if (impl.steps_until_check-- == 0) {
    impl.steps_until_check = kStepsBetweenChecks;
    if (impl.state.HeldBytes() > kMostHeldBytes) Forget();
  }
  return {impl.fbb.GetBufferPointer(), impl.fbb.GetSize()};
}

void MapPayloadTokens(std::span<uint8_t> payload, const TokenMapper& mapper) {
  const auto map = [&](const flatbuffers::Vector<uint8_t>* column) {
    if (column == nullptr) return;
    const size_t at = static_cast<size_t>(column->data() - payload.data());
    MapWideTokens(payload.subspan(at, column->size()), mapper);
  };
  const auto* step = flatbuffers::GetRoot<wire::Step>(payload.data());
  for (const wire::Record* record : *step->records()) {
    if (const auto* begin = record->body_as_Begin()) {
      if (begin->events() != nullptr) map(begin->events()->tokens());
    } else if (const auto* outcome = record->body_as_Outcome()) {
      if (outcome->events() != nullptr) map(outcome->events()->tokens());
      map(outcome->tokens());
    }
  }
}

void StepEncoder::Forget() {
  Impl& impl = *impl_;
  impl.state.Clear();
  impl.tokens.Clear();
  (impl.finished ? impl.fresh_next : impl.fresh) = true;
}

}  // namespace kvguard::trace
