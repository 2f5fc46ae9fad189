// SPDX-License-Identifier: Apache-2.0
#include "tests/generate/records.h"

#include "kvguard/kvguard.hpp"

namespace kvguard::generate {

const void* RecordView::Typed(uint32_t dtype, const std::vector<int64_t>& values) {
  if (dtype == KVGUARD_I64) return values.data();
  if (dtype == KVGUARD_U8) {
    if (used_bytes_ == bytes_.size()) bytes_.emplace_back();
    std::vector<uint8_t>& out = bytes_[used_bytes_++];
    out.assign(values.begin(), values.end());
    return out.data();
  }
  if (used_ == narrow_.size()) narrow_.emplace_back();
  std::vector<int32_t>& out = narrow_[used_++];
  out.resize(values.size());
  for (size_t i = 0; i < values.size(); ++i) out[i] = static_cast<int32_t>(values[i]);
  return out.data();
}

kvguard_array RecordView::View(const Array& array) {
  if (!array.present()) return {};
  return {Typed(array.dtype, array.values), array.values.size(), array.dtype, 0};
}

// An empty list is presented.
kvguard_array RecordView::ViewOfList(const Array& array) {
  static constexpr int64_t kNothing = 0;
  kvguard_array view = View(array);
  if (array.present() && array.values.empty()) view.data = &kNothing;
  return view;
}

const kvguard_event* RecordView::Events(const Record& record) {
  events_.clear();
  for (const Event& from : record.events) {
    kvguard_event event = Sized<kvguard_event>();
    event.kind = from.kind;
    event.request = from.request;
    event.group = from.group;
    event.flags = from.flags;
    event.first = from.first;
    event.count = from.count;
    event.other = from.other;
    event.value = from.value;
    event.blocks = from.blocks.empty() ? nullptr : from.blocks.data();
    event.num_blocks = from.blocks.size();
    event.tokens = from.tokens.empty() ? nullptr : from.tokens.data();
    event.num_tokens = from.tokens.size();
    event.name = from.name.empty() ? nullptr : from.name.data();
    event.name_size = from.name.size();
    events_.push_back(event);
  }
  return events_.data();
}

const kvguard_group_plan* RecordView::Groups(const Plan& plan) {
  groups_.clear();
  for (const GroupPlan& from : plan.groups) {
    kvguard_group_plan group = Sized<kvguard_group_plan>();
    group.group = from.group;
    group.encoding = from.encoding;
    group.slots = View(from.slots);
    group.slots_address = from.slots_address;
    group.reads_address = from.reads_address;
    if (from.encoding == KVGUARD_READ_TABLE) {
      kvguard_read_table& table = group.reads.table;
      table = {};
      if (from.table.present()) {
        table.data = Typed(from.table.dtype, from.table.entries);
        table.dtype = from.table.dtype;
        table.rows = from.table.rows;
        table.columns = from.table.columns;
        table.row_stride = from.table.row_stride;
      }
      table.seq_lens = View(from.seq_lens);
      table.row_columns = View(from.row_columns);
    } else if (from.encoding == KVGUARD_READ_STATE) {
      group.reads.state.in = View(from.in);
      group.reads.state.out = View(from.out);
      group.reads.state.init = View(from.init);
    } else if (from.encoding == KVGUARD_READ_CSR) {
      group.reads.csr = {};
      group.reads.csr.indptr = ViewOfList(from.offsets);
      group.reads.csr.indices = ViewOfList(from.entries);
      group.reads.csr.last_page_len = ViewOfList(from.last_page);
    } else if (from.encoding == KVGUARD_READ_FLAT) {
      group.reads.flat = {};
      group.reads.flat.slots = ViewOfList(from.entries);
      group.reads.flat.starts = ViewOfList(from.offsets);
      group.reads.flat.sentinel = from.sentinel;
    }
    groups_.push_back(group);
  }
  return groups_.data();
}

const kvguard_record& RecordView::Of(const Record& record) {
  used_ = used_bytes_ = 0;
  record_ = Sized<kvguard_record>();
  record_.kind = record.kind;
  record_.step = record.step;
  switch (record.kind) {
    case KVGUARD_RECORD_BEGIN:
      scheduled_.clear();
      for (const Scheduled& from : record.scheduled) {
        kvguard_scheduled row = Sized<kvguard_scheduled>();
        row.request = from.request;
        row.num_tokens = from.num_tokens;
        row.num_computed = from.num_computed;
        row.num_drafts = from.num_drafts;
        scheduled_.push_back(row);
      }
      begin_ = Sized<kvguard_begin>();
      begin_.events = Events(record);
      begin_.num_events = events_.size();
      begin_.scheduled = scheduled_.data();
      begin_.num_scheduled = scheduled_.size();
      record_.body.begin = &begin_;
      break;
    case KVGUARD_RECORD_PLAN:
      plan_ = Sized<kvguard_plan>();
      plan_.pass = record.plan.pass;
      plan_.pass_index = record.plan.pass_index;
      plan_.stage = record.plan.stage;
      plan_.num_rows = record.plan.num_rows;
      plan_.padded_rows = record.plan.padded_rows;
      plan_.num_tokens = record.plan.num_tokens;
      plan_.padded_tokens = record.plan.padded_tokens;
      plan_.requests = record.plan.requests.data();
      plan_.query_start = View(record.plan.query_start);
      plan_.seq_lens = View(record.plan.seq_lens);
      plan_.positions = View(record.plan.positions);
      plan_.num_computed = View(record.plan.num_computed);
      plan_.groups = Groups(record.plan);
      plan_.num_groups = static_cast<uint32_t>(groups_.size());
      record_.body.plan = &plan_;
      break;
    case KVGUARD_RECORD_OUTCOME:
      rows_.clear();
      for (const OutcomeRow& from : record.rows) {
        kvguard_outcome_row row = Sized<kvguard_outcome_row>();
        row.request = from.request;
        row.num_sampled = from.num_sampled;
        row.num_rejected = from.num_rejected;
        row.tokens = from.tokens.empty() ? nullptr : from.tokens.data();
        row.num_tokens = from.tokens.size();
        rows_.push_back(row);
      }
      outcome_ = Sized<kvguard_outcome>();
      outcome_.rows = rows_.data();
      outcome_.num_rows = rows_.size();
      outcome_.events = Events(record);
      outcome_.num_events = events_.size();
      record_.body.outcome = &outcome_;
      break;
    case KVGUARD_RECORD_END:
      end_ = Sized<kvguard_end>();
      end_.flags = record.flags;
      record_.body.end = &end_;
      break;
    default:
      reset_ = Sized<kvguard_reset>();
      reset_.reason = record.reason;
      record_.body.reset = &reset_;
      break;
  }
  return record_;
}

}  // namespace kvguard::generate
