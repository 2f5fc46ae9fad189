// SPDX-License-Identifier: Apache-2.0
#include "trace/owned.h"

#include <cstring>

#include "step/structs.h"

namespace kvguard::trace {
namespace {

OwnedArray CopyOf(const kvguard_array& array) {
  OwnedArray out;
  if (array.data == nullptr || array.dtype == KVGUARD_DTYPE_NONE) return out;
  out.dtype = array.dtype;
  const auto count = static_cast<size_t>(array.count);
  out.values.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    switch (array.dtype) {
      case KVGUARD_I32:
        out.values.push_back(static_cast<const int32_t*>(array.data)[i]);
        break;
      case KVGUARD_I64:
        out.values.push_back(static_cast<const int64_t*>(array.data)[i]);
        break;
      default:
        out.values.push_back(static_cast<const uint8_t*>(array.data)[i]);
        break;
    }
  }
  return out;
}

OwnedTable CopyOf(const kvguard_read_table& table) {
  OwnedTable out;
  if (table.data == nullptr || table.dtype == KVGUARD_DTYPE_NONE) return out;
  out.dtype = table.dtype;
  out.rows = table.rows;
  out.columns = table.columns;
  out.entries.reserve(static_cast<size_t>(table.rows * table.columns));
  for (uint64_t r = 0; r < table.rows; ++r) {
    for (uint64_t c = 0; c < table.columns; ++c) {
      const uint64_t at = r * table.row_stride + c;
      out.entries.push_back(table.dtype == KVGUARD_I64
                                ? static_cast<const int64_t*>(table.data)[at]
                                : static_cast<const int32_t*>(table.data)[at]);
    }
  }
  return out;
}

// Elements have a size of their own; what an accepted record holds has passed the same reading
// before.
template <typename T>
step::StructArray<T> ArrayOf(const T* data, uint64_t count) {
  step::StructArray<T> array;
  if (!array.Assign(data, count, UINT64_MAX, "records").ok()) return {};
  return array;
}

std::vector<OwnedEvent> EventsOf(const kvguard_event* events, uint64_t count) {
  std::vector<OwnedEvent> out;
  const auto array = ArrayOf(events, count);
  out.reserve(array.size());
  for (size_t i = 0; i < array.size(); ++i) {
    const kvguard_event& event = array[i];
    OwnedEvent& copy = out.emplace_back();
    copy.kind = event.kind;
    copy.request = event.request;
    copy.group = event.group;
    copy.flags = event.flags;
    copy.first = event.first;
    copy.count = event.count;
    copy.other = event.other;
    copy.value = event.value;
    if (event.num_blocks > 0) copy.blocks.assign(event.blocks, event.blocks + event.num_blocks);
    if (event.num_tokens > 0) copy.tokens.assign(event.tokens, event.tokens + event.num_tokens);
    if (event.name_size > 0) copy.name.assign(event.name, event.name_size);
  }
  return out;
}

OwnedGroupPlan CopyOf(const kvguard_group_plan& group) {
  OwnedGroupPlan out;
  out.group = group.group;
  out.encoding = group.encoding;
  out.slots = CopyOf(group.slots);
  out.slots_address = group.slots_address;
  out.reads_address = group.reads_address;
  switch (group.encoding) {
    case KVGUARD_READ_TABLE:
      out.table = CopyOf(group.reads.table);
      out.a = CopyOf(group.reads.table.seq_lens);
      out.b = CopyOf(group.reads.table.row_columns);
      break;
    case KVGUARD_READ_CSR:
      out.a = CopyOf(group.reads.csr.indptr);
      out.b = CopyOf(group.reads.csr.indices);
      out.c = CopyOf(group.reads.csr.last_page_len);
      break;
    case KVGUARD_READ_FLAT:
      out.a = CopyOf(group.reads.flat.slots);
      out.b = CopyOf(group.reads.flat.starts);
      out.sentinel = group.reads.flat.sentinel;
      break;
    case KVGUARD_READ_MASK:
      out.a = CopyOf(group.reads.mask.mask);
      out.cells = group.reads.mask.cells;
      out.row_stride = group.reads.mask.row_stride;
      break;
    case KVGUARD_READ_STATE:
      out.a = CopyOf(group.reads.state.in);
      out.b = CopyOf(group.reads.state.out);
      out.c = CopyOf(group.reads.state.init);
      break;
    default:
      break;
  }
  return out;
}

OwnedPlan CopyOf(const kvguard_plan& plan) {
  OwnedPlan out;
  out.pass = plan.pass;
  out.pass_index = plan.pass_index;
  out.stage = plan.stage;
  out.num_rows = plan.num_rows;
  out.padded_rows = plan.padded_rows;
  out.num_tokens = plan.num_tokens;
  out.padded_tokens = plan.padded_tokens;
  if (plan.num_rows > 0) out.requests.assign(plan.requests, plan.requests + plan.num_rows);
  out.query_start = CopyOf(plan.query_start);
  out.seq_lens = CopyOf(plan.seq_lens);
  out.positions = CopyOf(plan.positions);
  out.num_computed = CopyOf(plan.num_computed);
  const auto groups = ArrayOf(plan.groups, plan.num_groups);
  for (size_t i = 0; i < groups.size(); ++i) out.groups.push_back(CopyOf(groups[i]));
  return out;
}

}  // namespace

OwnedRecord OwnedRecord::Of(const kvguard_record& record) {
  OwnedRecord out;
  out.kind = record.kind;
  out.step = record.step;
  switch (record.kind) {
    case KVGUARD_RECORD_BEGIN: {
      kvguard_begin in{};
      out.refused = !step::ReadStruct(record.body.begin, &in, "begin").ok() || in.flags != 0;
      if (out.refused) break;
      out.events = EventsOf(in.events, in.num_events);
      const auto scheduled = ArrayOf(in.scheduled, in.num_scheduled);
      for (size_t i = 0; i < scheduled.size(); ++i) {
        out.scheduled.push_back({scheduled[i].request, scheduled[i].num_tokens,
                                 scheduled[i].num_computed, scheduled[i].num_drafts});
      }
      break;
    }
    case KVGUARD_RECORD_PLAN: {
      kvguard_plan in{};
      out.refused = !step::ReadStruct(record.body.plan, &in, "plan").ok() || in.flags != 0;
      if (!out.refused) out.plan = CopyOf(in);
      break;
    }
    case KVGUARD_RECORD_OUTCOME: {
      kvguard_outcome in{};
      out.refused = !step::ReadStruct(record.body.outcome, &in, "outcome").ok() || in.flags != 0;
      if (out.refused) break;
      out.events = EventsOf(in.events, in.num_events);
      const auto rows = ArrayOf(in.rows, in.num_rows);
      for (size_t i = 0; i < rows.size(); ++i) {
        OwnedOutcomeRow& row = out.rows.emplace_back();
        row.request = rows[i].request;
        row.num_sampled = rows[i].num_sampled;
        row.num_rejected = rows[i].num_rejected;
        row.known = rows[i].tokens != nullptr;
        row.num_tokens = rows[i].num_tokens;
        if (row.known) row.tokens.assign(rows[i].tokens, rows[i].tokens + rows[i].num_tokens);
      }
      break;
    }
    case KVGUARD_RECORD_END: {
      kvguard_end in{};
      out.refused = !step::ReadStruct(record.body.end, &in, "end").ok();
      if (!out.refused) out.flags = in.flags;
      break;
    }
    case KVGUARD_RECORD_RESET: {
      kvguard_reset in{};
      out.refused = !step::ReadStruct(record.body.reset, &in, "reset").ok();
      if (!out.refused) out.reason = in.reason;
      break;
    }
    default:
      out.refused = true;
      break;
  }
  return out;
}

// Elements of any type are kept in vectors of int64_t, which are aligned for all of them. One more
// element than needed: an empty array has an address too.
void RecordView::Typed(uint32_t dtype, const std::vector<int64_t>& values, const void** data) {
  std::vector<int64_t>& store = storage_.emplace_back(values.size() + 1);
  auto* bytes = reinterpret_cast<unsigned char*>(store.data());
  size_t at = 0;
  for (const int64_t value : values) {
    switch (dtype) {
      case KVGUARD_I32: {
        const auto narrow = static_cast<int32_t>(value);
        std::memcpy(bytes + at, &narrow, sizeof(narrow));
        at += sizeof(narrow);
        break;
      }
      case KVGUARD_U8:
        bytes[at++] = static_cast<uint8_t>(value);
        break;
      default:
        std::memcpy(bytes + at, &value, sizeof(value));
        at += sizeof(value);
        break;
    }
  }
  *data = store.data();
}

kvguard_array RecordView::Array(const OwnedArray& array) {
  kvguard_array out{};
  if (!array.present()) return out;
  Typed(array.dtype, array.values, &out.data);
  out.count = array.values.size();
  out.dtype = array.dtype;
  return out;
}

const kvguard_event* RecordView::Events(const OwnedRecord& record) {
  for (const OwnedEvent& event : record.events) {
    kvguard_event out{};
    out.size = sizeof(out);
    out.kind = event.kind;
    out.request = event.request;
    out.group = event.group;
    out.flags = event.flags;
    out.first = event.first;
    out.count = event.count;
    out.other = event.other;
    out.value = event.value;
    out.num_blocks = event.blocks.size();
    out.blocks = event.blocks.empty() ? nullptr : event.blocks.data();
    out.num_tokens = event.tokens.size();
    out.tokens = event.tokens.empty() ? nullptr : event.tokens.data();
    out.name_size = event.name.size();
    out.name = event.name.empty() ? nullptr : event.name.data();
    events_.push_back(out);
  }
  return events_.empty() ? nullptr : events_.data();
}

const kvguard_record& RecordView::Of(const OwnedRecord& record) {
  storage_.clear();
  events_.clear();
  scheduled_.clear();
  groups_.clear();
  rows_.clear();
  record_ = kvguard_record{};
  record_.size = sizeof(record_);
  record_.kind = record.kind;
  record_.step = record.step;
  if (record.refused) return record_;
  switch (record.kind) {
    case KVGUARD_RECORD_BEGIN:
      begin_ = kvguard_begin{};
      begin_.size = sizeof(begin_);
      begin_.events = Events(record);
      begin_.num_events = record.events.size();
      for (const OwnedScheduled& row : record.scheduled) {
        kvguard_scheduled out{};
        out.size = sizeof(out);
        out.request = row.request;
        out.num_tokens = row.num_tokens;
        out.num_computed = row.num_computed;
        out.num_drafts = row.num_drafts;
        scheduled_.push_back(out);
      }
      begin_.scheduled = scheduled_.empty() ? nullptr : scheduled_.data();
      begin_.num_scheduled = scheduled_.size();
      record_.body.begin = &begin_;
      break;
    case KVGUARD_RECORD_PLAN: {
      const OwnedPlan& plan = record.plan;
      plan_ = kvguard_plan{};
      plan_.size = sizeof(plan_);
      plan_.pass = plan.pass;
      plan_.pass_index = plan.pass_index;
      plan_.stage = plan.stage;
      plan_.num_rows = plan.num_rows;
      plan_.padded_rows = plan.padded_rows;
      plan_.num_tokens = plan.num_tokens;
      plan_.padded_tokens = plan.padded_tokens;
      plan_.requests = plan.requests.empty() ? nullptr : plan.requests.data();
      plan_.query_start = Array(plan.query_start);
      plan_.seq_lens = Array(plan.seq_lens);
      plan_.positions = Array(plan.positions);
      plan_.num_computed = Array(plan.num_computed);
      for (const OwnedGroupPlan& group : plan.groups) {
        kvguard_group_plan& out = groups_.emplace_back();
        std::memset(&out, 0, sizeof(out));
        out.size = sizeof(out);
        out.group = group.group;
        out.encoding = group.encoding;
        out.slots = Array(group.slots);
        out.slots_address = group.slots_address;
        out.reads_address = group.reads_address;
        switch (group.encoding) {
          case KVGUARD_READ_TABLE:
            if (group.table.dtype != KVGUARD_DTYPE_NONE) {
              Typed(group.table.dtype, group.table.entries, &out.reads.table.data);
              out.reads.table.dtype = group.table.dtype;
              out.reads.table.rows = group.table.rows;
              out.reads.table.columns = group.table.columns;
              out.reads.table.row_stride = group.table.columns;
            }
            out.reads.table.seq_lens = Array(group.a);
            out.reads.table.row_columns = Array(group.b);
            break;
          case KVGUARD_READ_CSR:
            out.reads.csr.indptr = Array(group.a);
            out.reads.csr.indices = Array(group.b);
            out.reads.csr.last_page_len = Array(group.c);
            break;
          case KVGUARD_READ_FLAT:
            out.reads.flat.slots = Array(group.a);
            out.reads.flat.starts = Array(group.b);
            out.reads.flat.sentinel = group.sentinel;
            break;
          case KVGUARD_READ_MASK:
            out.reads.mask.mask = Array(group.a);
            out.reads.mask.cells = group.cells;
            out.reads.mask.row_stride = group.row_stride;
            break;
          case KVGUARD_READ_STATE:
            out.reads.state.in = Array(group.a);
            out.reads.state.out = Array(group.b);
            out.reads.state.init = Array(group.c);
            break;
          default:
            break;
        }
      }
      plan_.groups = groups_.empty() ? nullptr : groups_.data();
      plan_.num_groups = static_cast<uint32_t>(groups_.size());
      record_.body.plan = &plan_;
      break;
    }
    case KVGUARD_RECORD_OUTCOME:
      outcome_ = kvguard_outcome{};
      outcome_.size = sizeof(outcome_);
      outcome_.events = Events(record);
      outcome_.num_events = record.events.size();
      for (const OwnedOutcomeRow& row : record.rows) {
        kvguard_outcome_row out{};
        out.size = sizeof(out);
        out.request = row.request;
        out.num_sampled = row.num_sampled;
        out.num_rejected = row.num_rejected;
        out.num_tokens = row.num_tokens;
        if (row.known) {
          const void* tokens = nullptr;
          Typed(KVGUARD_I64, row.tokens, &tokens);
          out.tokens = static_cast<const int64_t*>(tokens);
          out.num_tokens = row.tokens.size();
        }
        rows_.push_back(out);
      }
      outcome_.rows = rows_.empty() ? nullptr : rows_.data();
      outcome_.num_rows = rows_.size();
      record_.body.outcome = &outcome_;
      break;
    case KVGUARD_RECORD_END:
      end_ = kvguard_end{};
      end_.size = sizeof(end_);
      end_.flags = record.flags;
      record_.body.end = &end_;
      break;
    case KVGUARD_RECORD_RESET:
      reset_ = kvguard_reset{};
      reset_.size = sizeof(reset_);
      reset_.reason = record.reason;
      record_.body.reset = &reset_;
      break;
    default:
      break;
  }
  return record_;
}

}  // namespace kvguard::trace
