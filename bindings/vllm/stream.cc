// SPDX-License-Identifier: Apache-2.0
#include "bindings/vllm/stream.h"

#include <cstring>
#include <new>

#include "bindings/convert.h"
#include "bindings/vllm/objects.h"

namespace kvguard::python::vllm {
namespace {

kvguard_record Record(uint32_t kind, uint64_t step) {
  kvguard_record record;
  std::memset(&record, 0, sizeof(record));
  record.size = sizeof(record);
  record.kind = kind;
  record.step = step;
  return record;
}

class PlanError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

int64_t Number(PyObject* tuple, Py_ssize_t i) {
  PyObject* item = PyTuple_GetItem(tuple, i);
  if (item == nullptr || !PyLong_Check(item)) {
    PyErr_Clear();
    throw PlanError("a plan's arrays are described by tuples of integers");
  }
  const long long value = PyLong_AsLongLong(item);
  if (value == -1 && PyErr_Occurred() != nullptr) throw PlanError(TakePythonError());
  return value;
}

const void* Address(PyObject* tuple, Py_ssize_t i) {
  return reinterpret_cast<const void*>(Number(tuple, i));
}

// (address, count, dtype) or None.
kvguard_array Array(nb::handle value) {
  kvguard_array array = {nullptr, 0, KVGUARD_DTYPE_NONE, 0};
  if (value.is_none()) return array;
  if (!PyTuple_Check(value.ptr()))
    throw PlanError("a plan's arrays are described by tuples of integers");
  array.data = Address(value.ptr(), 0);
  array.count = static_cast<uint64_t>(Number(value.ptr(), 1));
  array.dtype = static_cast<uint32_t>(Number(value.ptr(), 2));
  return array;
}

// An array's i-th value, which must be a number of tokens.
uint32_t Count(const kvguard_array& array, Py_ssize_t i) {
  int64_t value = -1;
  if (array.dtype == KVGUARD_I32) value = static_cast<const int32_t*>(array.data)[i];
  if (array.dtype == KVGUARD_I64) value = static_cast<const int64_t*>(array.data)[i];
  if (value < 0 || value > INT32_MAX) throw PlanError("an outcome's counts are numbers of tokens");
  return static_cast<uint32_t>(value);
}

kvguard_group_plan GroupPlan(PyObject* tuple) {
  if (!PyTuple_Check(tuple)) throw PlanError("a plan's groups are described by tuples of integers");
  kvguard_group_plan group;
  std::memset(&group, 0, sizeof(group));
  group.size = sizeof(group);
  group.group = static_cast<uint32_t>(Number(tuple, 0));
  group.slots.data = Address(tuple, 1);
  group.slots.count = static_cast<uint64_t>(Number(tuple, 2));
  group.slots.dtype = static_cast<uint32_t>(Number(tuple, 3));
  group.slots_address = reinterpret_cast<uint64_t>(group.slots.data);
  const void* table = Address(tuple, 4);
  if (table != nullptr) {
    group.encoding = KVGUARD_READ_TABLE;
    group.reads.table.data = table;
    group.reads.table.dtype = static_cast<uint32_t>(Number(tuple, 5));
    group.reads.table.rows = static_cast<uint64_t>(Number(tuple, 6));
    group.reads.table.columns = static_cast<uint64_t>(Number(tuple, 7));
    group.reads.table.row_stride = static_cast<uint64_t>(Number(tuple, 8));
    group.reads.table.row_columns.data = Address(tuple, 9);
    group.reads.table.row_columns.count = static_cast<uint64_t>(Number(tuple, 10));
    group.reads.table.row_columns.dtype = static_cast<uint32_t>(Number(tuple, 11));
    group.reads_address = reinterpret_cast<uint64_t>(table);
  }
  return group;
}

}  // namespace

uint32_t Stream::Feed(const kvguard_record& record) {
  const kvguard_status status = guard_->Feed(record);
  const kvguard_verdict& verdict = guard_->verdict();
  uint32_t flags = 0;
  if (verdict.must_raise != 0) flags |= kMustRaise;
  if (status < 0) {
    sentence_ = guard_->sentence();
    flags |= kNotFed;
    if (status == KVGUARD_ERROR_MEMORY || status == KVGUARD_ERROR_INTERNAL) lost_ = true;
  } else if (verdict.num_findings > 0) {
    flags |= kNewFindings;
  }
  return flags;
}

uint32_t Stream::FeedReset(uint32_t reason) {
  kvguard_reset reset;
  std::memset(&reset, 0, sizeof(reset));
  reset.size = sizeof(reset);
  reset.reason = reason;
  kvguard_record record = Record(KVGUARD_RECORD_RESET, step_);
  record.body.reset = &reset;
  open_ = false;
  return Feed(record);
}

uint32_t Stream::FeedBegin() {
  for (std::string& name : pending_gaps_) begin_.AddGap(std::move(name));
  pending_gaps_.clear();
  kvguard_record record = Record(KVGUARD_RECORD_BEGIN, ++step_);
  record.body.begin = begin_.View();
  const uint32_t flags = Feed(record);
  open_ = (flags & kNotFed) == 0;
  return flags;
}

uint32_t Stream::StartOver(const std::vector<std::string>& names) {
  const std::string sentence = sentence_;
  walker_.Forget();
  FeedReset(KVGUARD_RESET_ARM);
  lost_ = false;
  begin_.Clear();
  for (const std::string& name : names) begin_.AddGap(name);
  const uint32_t flags = FeedBegin();
  judged_ = false;
  sentence_ = sentence;
  return flags | kNotFed | kUnjudged;
}

uint32_t Stream::Begin(nb::handle scheduler_output) {
  judged_ = true;
  try {
    walker_.Walk(scheduler_output, &begin_);
  } catch (const WalkError& error) {
    sentence_ = error.what();
    return StartOver({"scheduler-output-unreadable"});
  } catch (const std::bad_alloc&) {
    sentence_ = "out of memory while the scheduler output was read";
    return StartOver({"scheduler-output-unreadable"});
  }
  if (!walker_.not_understood().empty()) {
    const std::vector<std::string> names = walker_.not_understood();
    sentence_ = "the scheduler output uses what this version does not understand: " + names.front();
    return StartOver(names);
  }
  if (lost_) return StartOver({"bindings-lost"});
  const uint32_t flags = FeedBegin();
  if ((flags & kNotFed) != 0) return StartOver({"record-refused"});
  judged_ = walker_.num_forgotten_rows() == 0;
  return judged_ ? flags : flags | kUnjudged;
}

uint32_t Stream::Plan(uint32_t stage, nb::handle req_ids, uint64_t padded_rows, uint64_t num_tokens,
                      uint64_t padded_tokens, nb::handle query_start, nb::handle seq_lens,
                      nb::handle positions, nb::handle groups, uint32_t pass, uint32_t pass_index) {
  if (!open_ || !judged_) return kUnjudged;
  kvguard_plan plan;
  std::memset(&plan, 0, sizeof(plan));
  plan.size = sizeof(plan);
  try {
    if (!PyList_Check(req_ids.ptr())) throw PlanError("the batch's request ids are no list");
    const Py_ssize_t num_rows = PyList_Size(req_ids.ptr());
    keys_.clear();
    for (Py_ssize_t i = 0; i < num_rows; ++i)
      keys_.push_back(walker_.KeyOf(PyList_GetItem(req_ids.ptr(), i)));
    groups_.clear();
    if (!PyTuple_Check(groups.ptr())) throw PlanError("a plan's groups are a tuple");
    for (Py_ssize_t g = 0; g < PyTuple_Size(groups.ptr()); ++g) {
      groups_.push_back(GroupPlan(PyTuple_GetItem(groups.ptr(), g)));
    }
    plan.query_start = Array(query_start);
    plan.seq_lens = Array(seq_lens);
    plan.positions = Array(positions);
  } catch (const std::runtime_error& error) {  // PlanError or WalkError
    sentence_ = error.what();
    const std::string sentence = sentence_;
    const uint32_t flags = Gap("plan-unreadable");
    sentence_ = sentence;
    return flags | kNotFed;
  }
  plan.pass = pass;
  plan.pass_index = pass_index;
  plan.stage = stage;
  plan.num_rows = keys_.size();
  plan.padded_rows = padded_rows;
  plan.num_tokens = num_tokens;
  plan.padded_tokens = padded_tokens;
  plan.requests = keys_.data();
  plan.groups = groups_.data();
  plan.num_groups = static_cast<uint32_t>(groups_.size());
  kvguard_record record = Record(KVGUARD_RECORD_PLAN, step_);
  record.body.plan = &plan;
  return Feed(record);
}

uint32_t Stream::Outcome(nb::handle req_ids, nb::handle sampled, nb::handle rejected) {
  if (!open_) return kUnjudged;
  uint64_t drafts = 0;
  uint64_t in_vain = 0;
  try {
    if (!PyList_Check(req_ids.ptr())) throw PlanError("the batch's request ids are no list");
    const Py_ssize_t num_rows = PyList_Size(req_ids.ptr());
    const kvguard_array num_sampled = Array(sampled);
    const kvguard_array num_rejected = Array(rejected);
    const auto least = static_cast<uint64_t>(num_rows);
    if (num_sampled.count < least || num_rejected.count < least)
      throw PlanError("an outcome has fewer counts than the batch has rows");
    rows_.clear();
    for (Py_ssize_t i = 0; i < num_rows; ++i) {
      PyObject* id = PyList_GetItem(req_ids.ptr(), i);
      kvguard_outcome_row& row = rows_.emplace_back();
      std::memset(&row, 0, sizeof(row));
      row.size = sizeof(row);
      row.request = walker_.KeyOf(id);
      row.num_sampled = Count(num_sampled, i);
      row.num_rejected = Count(num_rejected, i);
      drafts += walker_.DraftsOf(id);
      in_vain += row.num_rejected;
    }
  } catch (const std::runtime_error& error) {  // PlanError or WalkError
    const std::string sentence = error.what();
    const uint32_t flags = Gap("outcome-unreadable");
    sentence_ = sentence;
    return flags | kNotFed;
  }
  num_drafts_ += drafts;
  num_rejected_ += in_vain;
  kvguard_outcome outcome;
  std::memset(&outcome, 0, sizeof(outcome));
  outcome.size = sizeof(outcome);
  outcome.rows = rows_.data();
  outcome.num_rows = rows_.size();
  kvguard_record record = Record(KVGUARD_RECORD_OUTCOME, step_);
  record.body.outcome = &outcome;
  return Feed(record);
}

uint32_t Stream::End(uint32_t flags) {
  if (!open_) return kNotFed;
  kvguard_end end;
  std::memset(&end, 0, sizeof(end));
  end.size = sizeof(end);
  end.flags = flags;
  kvguard_record record = Record(KVGUARD_RECORD_END, step_);
  record.body.end = &end;
  open_ = false;
  return Feed(record);
}

uint32_t Stream::Reset(uint32_t reason) {
  walker_.Forget();
  return FeedReset(reason);
}

uint32_t Stream::Gap(const std::string& name) {
  if (!open_) {
    constexpr size_t kMostPending =
        64;  // the same few names repeat; what is beyond is told by these
    if (pending_gaps_.size() < kMostPending) pending_gaps_.push_back(name);
    return 0;
  }
  vllm::Begin gap;
  gap.AddGap(name);
  const kvguard_begin* view = gap.View();
  kvguard_outcome outcome;
  std::memset(&outcome, 0, sizeof(outcome));
  outcome.size = sizeof(outcome);
  outcome.events = view->events;
  outcome.num_events = view->num_events;
  kvguard_record record = Record(KVGUARD_RECORD_OUTCOME, step_);
  record.body.outcome = &outcome;
  return Feed(record);
}

}  // namespace kvguard::python::vllm
