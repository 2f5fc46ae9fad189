// SPDX-License-Identifier: Apache-2.0
#include "bindings/guard.h"

#include <algorithm>
#include <cstring>

#include "bindings/convert.h"
#include "bindings/geometry.h"

namespace kvguard::python {
namespace {

template <typename T>
T Zeroed() {
  T value;
  std::memset(&value, 0, sizeof(value));
  value.size = sizeof(value);
  return value;
}

kvguard_record Record(uint32_t kind, uint64_t step) {
  auto record = Zeroed<kvguard_record>();
  record.kind = kind;
  record.step = step;
  return record;
}

// A list of integers; none where the field is absent.
std::vector<int64_t> ReadInts(const Fields& fields, const char* name) {
  std::vector<int64_t> ints;
  const nb::object list = fields.Find(name);
  if (!list.is_valid()) return ints;
  const std::string where = fields.where() + "." + name;
  for (nb::handle item : nb::borrow<nb::iterable>(list)) ints.push_back(ToInt64(item, where));
  return ints;
}

const int64_t* DataOf(const std::vector<int64_t>& ints) {
  return ints.empty() ? nullptr : ints.data();
}

// (address, count, dtype), or None for an absent array.
kvguard_array ReadArray(const Fields& fields, const char* name) {
  kvguard_array array = {nullptr, 0, KVGUARD_DTYPE_NONE, 0};
  nb::object value = fields.Find(name);
  if (!value.is_valid()) return array;
  const std::string where = fields.where() + "." + name;
  if (!PyTuple_Check(value.ptr()) || PyTuple_Size(value.ptr()) != 3) {
    Raise(KVGUARD_ERROR_ARGUMENT, where + ": (address, count, dtype) is wanted");
  }
  array.data = reinterpret_cast<const void*>(ToInt64(PyTuple_GetItem(value.ptr(), 0), where));
  array.count = static_cast<uint64_t>(ToInt64(PyTuple_GetItem(value.ptr(), 1), where));
  array.dtype = static_cast<uint32_t>(ToInt64(PyTuple_GetItem(value.ptr(), 2), where));
  return array;
}

kvguard_group_plan ReadGroupPlan(nb::handle dict, size_t i) {
  const Fields fields(dict, "plan.groups[" + std::to_string(i) + "]");
  fields.RefuseOthers({"group", "slots", "table", "rows", "columns", "row_stride", "seq_lens",
                       "row_columns", "states_in", "states_out", "states_init", "flat_slots",
                       "flat_starts", "flat_sentinel", "csr_indptr", "csr_indices",
                       "csr_last_page_len"});
  const auto encoding = [&fields](kvguard_group_plan& plan, uint32_t reads) {
    if (plan.encoding != 0)
      Raise(KVGUARD_ERROR_ARGUMENT, fields.where() + ": reads are shown in one encoding");
    plan.encoding = reads;
  };
  auto group = Zeroed<kvguard_group_plan>();
  group.group = fields.U32("group", 0);
  group.slots = ReadArray(fields, "slots");
  group.slots_address = reinterpret_cast<uint64_t>(group.slots.data);
  const kvguard_array table = ReadArray(fields, "table");
  if (table.data != nullptr) {
    encoding(group, KVGUARD_READ_TABLE);
    kvguard_read_table& reads = group.reads.table;
    reads.data = table.data;
    reads.dtype = table.dtype;
    reads.rows = fields.U64("rows", 0);
    reads.columns = fields.U64("columns", 0);
    reads.row_stride = fields.U64("row_stride", reads.columns);
    reads.seq_lens = ReadArray(fields, "seq_lens");
    reads.row_columns = ReadArray(fields, "row_columns");
    group.reads_address = reinterpret_cast<uint64_t>(table.data);
  }
  const kvguard_read_state states = {ReadArray(fields, "states_in"),
                                     ReadArray(fields, "states_out"),
                                     ReadArray(fields, "states_init")};
  if (states.in.data != nullptr || states.out.data != nullptr || states.init.data != nullptr) {
    encoding(group, KVGUARD_READ_STATE);
    group.reads.state = states;
  }
  // An array of no element is shown all the same: a kernel that reads what it has at hand.
  const kvguard_array slots = ReadArray(fields, "flat_slots");
  if (slots.dtype != KVGUARD_DTYPE_NONE) {
    encoding(group, KVGUARD_READ_FLAT);
    group.reads.flat = {slots, ReadArray(fields, "flat_starts"), fields.Int("flat_sentinel")};
    group.reads_address = reinterpret_cast<uint64_t>(slots.data);
  }
  const kvguard_array indptr = ReadArray(fields, "csr_indptr");
  if (indptr.dtype != KVGUARD_DTYPE_NONE) {
    encoding(group, KVGUARD_READ_CSR);
    group.reads.csr = {indptr, ReadArray(fields, "csr_indices"),
                       ReadArray(fields, "csr_last_page_len")};
    group.reads_address = reinterpret_cast<uint64_t>(group.reads.csr.indices.data);
  }
  return group;
}

// (request, num_tokens, num_computed): a step has many of them, and they must cost little.
kvguard_scheduled ReadScheduledTuple(nb::handle tuple) {
  if (PyTuple_Size(tuple.ptr()) != 3)
    Raise(KVGUARD_ERROR_ARGUMENT, "scheduled: (request, num_tokens, num_computed) is wanted");
  const auto at = [&tuple](Py_ssize_t i) {
    return ToInt64(PyTuple_GetItem(tuple.ptr(), i), "scheduled");
  };
  auto row = Zeroed<kvguard_scheduled>();
  row.request = static_cast<uint64_t>(at(0));
  row.num_tokens = at(1);
  row.num_computed = at(2);
  return row;
}

std::vector<uint64_t> ReadKeys(nb::handle list, const std::string& where) {
  std::vector<uint64_t> keys;
  for (nb::handle key : nb::borrow<nb::iterable>(list)) {
    keys.push_back(static_cast<uint64_t>(ToInt64(key, where)));
  }
  return keys;
}

nb::dict FindingDict(const kvguard_finding& f) {
  nb::dict d;
  d["code"] = f.code;
  d["grade"] = NameOf("grade", f.grade);
  d["sequence"] = f.sequence;
  d["step"] = f.step;
  d["rank"] = f.rank;
  d["group"] =
      f.group == KVGUARD_ALL_GROUPS ? nb::object(nb::none()) : nb::object(nb::int_(f.group));
  d["pass"] = NameOf("pass", f.pass);
  d["pass_index"] = f.pass_index;
  d["stage"] = NameOf("stage", f.stage);
  d["because_of"] = f.because_of;
  d["first_cause"] = (f.flags & KVGUARD_FINDING_FIRST_CAUSE) != 0;
  d["request"] = f.request;
  d["row"] = f.row;
  d["pos"] = f.pos;
  if ((f.flags & KVGUARD_FINDING_HAS_VALUES) != 0) {
    d["expected"] = f.expected;
    d["observed"] = f.observed;
  }
  d["count"] = f.count;
  if ((f.flags & KVGUARD_FINDING_HAS_VICTIM) != 0) {
    d["victim"] = f.victim;
    d["victim_block"] = f.victim_block;
    d["victim_first"] = f.victim_first;
    d["victim_last"] = f.victim_last;
    d["victim_since"] = f.victim_since;
  }
  nb::list causes;
  for (uint32_t i = 0; i < std::min<uint32_t>(f.num_causes, KVGUARD_MAX_CAUSES); ++i) {
    causes.append(nb::make_tuple(NameOf("cause", f.causes[i].kind), f.causes[i].arg));
  }
  d["causes"] = causes;
  return d;
}

}  // namespace

nb::dict VerdictDict(const kvguard_verdict& v) {
  nb::dict d;
  d["verdict"] = NameOf("verdict", v.verdict);
  d["step_verdict"] = NameOf("verdict", v.step_verdict);
  d["must_raise"] = v.must_raise;
  d["step"] = v.step;
  d["first_sequence"] = v.first_sequence;
  d["num_findings"] = v.num_findings;
  d["steps"] = v.steps;
  d["steps_judged"] = v.steps_judged;
  d["plans"] = v.plans;
  d["rows"] = v.rows;
  d["slots"] = v.slots;
  d["entries"] = v.entries;
  d["proofs"] = v.proofs;
  d["suspicions"] = v.suspicions;
  d["assumptions"] = v.assumptions;
  d["step_gaps"] = v.step_gaps;
  d["ignored"] = v.ignored;
  d["violated_steps"] = v.violated_steps;
  d["first_violated_step"] = v.first_violated_step;
  return d;
}

void ReadEvents(nb::handle list, EventStorage* out) {
  // Two passes over the storage: pointers are taken only when nothing moves any more.
  size_t i = 0;
  for (nb::handle item : nb::borrow<nb::iterable>(list)) {
    const Fields fields(item, "events[" + std::to_string(i) + "]");
    fields.RefuseOthers({"kind", "request", "group", "flags", "first", "count", "other", "value",
                         "blocks", "tokens", "name"});
    auto event = Zeroed<kvguard_event>();
    event.kind = fields.Enum("kind", "event_kind");
    event.request = fields.U64("request", 0);
    event.group = fields.U32("group", KVGUARD_ALL_GROUPS);
    event.flags = fields.U32("flags", 0);
    event.first = fields.Int("first", 0);
    event.count = fields.Int("count", 0);
    event.other = fields.U64("other", 0);
    event.value = fields.Int("value", 0);
    out->events.push_back(event);
    out->blocks.push_back(ReadInts(fields, "blocks"));
    out->tokens.push_back(ReadInts(fields, "tokens"));
    out->names.push_back(fields.Text("name", ""));
    ++i;
  }
  for (i = 0; i < out->events.size(); ++i) {
    kvguard_event& event = out->events[i];
    event.blocks = DataOf(out->blocks[i]);
    event.num_blocks = out->blocks[i].size();
    event.tokens = DataOf(out->tokens[i]);
    event.num_tokens = out->tokens[i].size();
    event.name = out->names[i].empty() ? nullptr : out->names[i].data();
    event.name_size = out->names[i].size();
  }
}

Guard::Guard(nb::handle geometry, nb::handle config) : verdict_(Zeroed<kvguard_verdict>()) {
  GeometryStorage storage;
  ReadGeometry(geometry, &storage);
  auto c = Zeroed<kvguard_config>();
  if (!config.is_none()) {
    const Fields fields(config, "config");
    fields.RefuseOthers({"action", "latch", "history_steps", "history_bytes",
                         "max_findings_per_step", "max_findings"});
    c.action = fields.Enum("action", "action", KVGUARD_ACTION_RAISE);
    c.latch = fields.U32("latch", 0);
    c.history_steps = fields.U32("history_steps", 0);
    c.history_bytes = fields.U64("history_bytes", 0);
    c.max_findings_per_step = fields.U32("max_findings_per_step", 0);
    c.max_findings = fields.U32("max_findings", 0);
  }
  c.incident = &Guard::OnIncident;
  c.incident_context = this;
  kvguard_error error = MakeError();
  Check(kvguard_create(&storage.geometry, &c, &guard_, &error), error);
  num_groups_ = storage.geometry.num_groups;
}

Guard::~Guard() { kvguard_destroy(guard_); }

void Guard::OnIncident(void* context, const void* bytes, size_t num_bytes) {
  auto* self = static_cast<Guard*>(context);
  self->incident_.assign(static_cast<const char*>(bytes), num_bytes);
  self->has_incident_ = true;
}

nb::object Guard::TakeIncident() {
  if (!has_incident_) return nb::none();
  nb::bytes bytes(incident_.data(), incident_.size());
  has_incident_ = false;
  incident_.clear();
  incident_.shrink_to_fit();
  return bytes;
}

kvguard_status Guard::Feed(const kvguard_record& record) {
  kvguard_error error = MakeError();
  const kvguard_status status = kvguard_feed(guard_, &record, &verdict_, &error);
  if (status < 0) sentence_ = error.text;
  return status;
}

nb::dict Guard::FeedOrRaise(const kvguard_record& record) {
  const kvguard_status status = Feed(record);
  if (status < 0) Raise(status, sentence_);
  return VerdictDict(verdict_);
}

nb::dict Guard::Begin(uint64_t step, nb::handle events, nb::handle scheduled) {
  EventStorage storage;
  ReadEvents(events, &storage);
  std::vector<kvguard_scheduled> rows;
  for (nb::handle item : nb::borrow<nb::iterable>(scheduled)) {
    if (PyTuple_Check(item.ptr())) {
      rows.push_back(ReadScheduledTuple(item));
      continue;
    }
    const Fields fields(item, "scheduled[" + std::to_string(rows.size()) + "]");
    fields.RefuseOthers({"request", "num_tokens", "num_computed", "num_drafts"});
    auto row = Zeroed<kvguard_scheduled>();
    row.request = fields.U64("request", 0);
    row.num_tokens = fields.Int("num_tokens");
    row.num_computed = fields.Int("num_computed");
    row.num_drafts = fields.U32("num_drafts", 0);
    rows.push_back(row);
  }
  auto begin = Zeroed<kvguard_begin>();
  begin.events = storage.events.data();
  begin.num_events = storage.events.size();
  begin.scheduled = rows.data();
  begin.num_scheduled = rows.size();
  kvguard_record record = Record(KVGUARD_RECORD_BEGIN, step);
  record.body.begin = &begin;
  return FeedOrRaise(record);
}

nb::dict Guard::Plan(uint64_t step, nb::handle dict) {
  const Fields fields(dict, "plan");
  fields.RefuseOthers({"pass", "pass_index", "stage", "requests", "padded_rows", "num_tokens",
                       "padded_tokens", "query_start", "seq_lens", "positions", "num_computed",
                       "groups"});
  const std::vector<uint64_t> keys = ReadKeys(fields.Get("requests"), "plan.requests");
  std::vector<kvguard_group_plan> groups;
  for (nb::handle group : nb::borrow<nb::iterable>(fields.Get("groups"))) {
    groups.push_back(ReadGroupPlan(group, groups.size()));
  }
  auto plan = Zeroed<kvguard_plan>();
  plan.pass = fields.Enum("pass", "pass", KVGUARD_PASS_TARGET);
  plan.pass_index = fields.U32("pass_index", 0);
  plan.stage = fields.Enum("stage", "stage", KVGUARD_STAGE_PLANNED);
  plan.num_rows = keys.size();
  plan.padded_rows = fields.U64("padded_rows", keys.size());
  plan.num_tokens = fields.U64("num_tokens", 0);
  plan.padded_tokens = fields.U64("padded_tokens", plan.num_tokens);
  plan.requests = keys.data();
  plan.query_start = ReadArray(fields, "query_start");
  plan.seq_lens = ReadArray(fields, "seq_lens");
  plan.positions = ReadArray(fields, "positions");
  plan.num_computed = ReadArray(fields, "num_computed");
  plan.groups = groups.data();
  plan.num_groups = static_cast<uint32_t>(groups.size());
  kvguard_record record = Record(KVGUARD_RECORD_PLAN, step);
  record.body.plan = &plan;
  return FeedOrRaise(record);
}

nb::dict Guard::Outcome(uint64_t step, nb::handle list, nb::handle events) {
  EventStorage storage;
  ReadEvents(events, &storage);
  std::vector<kvguard_outcome_row> rows;
  std::vector<std::vector<int64_t>> tokens;
  for (nb::handle item : nb::borrow<nb::iterable>(list)) {
    if (PyTuple_Check(item.ptr())) {  // (request, token): one sampled, as most rows are
      if (PyTuple_Size(item.ptr()) != 2)
        Raise(KVGUARD_ERROR_ARGUMENT, "rows: (request, token) is wanted");
      auto row = Zeroed<kvguard_outcome_row>();
      row.request = static_cast<uint64_t>(ToInt64(PyTuple_GetItem(item.ptr(), 0), "rows"));
      row.num_sampled = 1;
      rows.push_back(row);
      tokens.push_back({ToInt64(PyTuple_GetItem(item.ptr(), 1), "rows")});
      continue;
    }
    const Fields fields(item, "rows[" + std::to_string(rows.size()) + "]");
    fields.RefuseOthers({"request", "num_sampled", "num_rejected", "tokens"});
    auto row = Zeroed<kvguard_outcome_row>();
    row.request = fields.U64("request", 0);
    row.num_sampled = fields.U32("num_sampled", 0);
    row.num_rejected = fields.U32("num_rejected", 0);
    rows.push_back(row);
    tokens.push_back(ReadInts(fields, "tokens"));
  }
  for (size_t i = 0; i < rows.size(); ++i) {  // nothing moves any more
    rows[i].tokens = DataOf(tokens[i]);
    rows[i].num_tokens = tokens[i].size();
  }
  auto outcome = Zeroed<kvguard_outcome>();
  outcome.rows = rows.data();
  outcome.num_rows = rows.size();
  outcome.events = storage.events.data();
  outcome.num_events = storage.events.size();
  kvguard_record record = Record(KVGUARD_RECORD_OUTCOME, step);
  record.body.outcome = &outcome;
  return FeedOrRaise(record);
}

nb::dict Guard::End(uint64_t step, uint32_t flags) {
  auto end = Zeroed<kvguard_end>();
  end.flags = flags;
  kvguard_record record = Record(KVGUARD_RECORD_END, step);
  record.body.end = &end;
  return FeedOrRaise(record);
}

nb::dict Guard::Reset(nb::handle reason) {
  auto reset = Zeroed<kvguard_reset>();
  reset.reason = Enumerator("reset_reason", reason, "reason");
  kvguard_record record = Record(KVGUARD_RECORD_RESET, 0);
  record.body.reset = &reset;
  return FeedOrRaise(record);
}

nb::dict Guard::Verdict() const {
  auto verdict = Zeroed<kvguard_verdict>();
  kvguard_error error = MakeError();
  Check(kvguard_verdict_now(guard_, &verdict, &error), error);
  return VerdictDict(verdict);
}

nb::list Guard::Findings(uint64_t first, size_t most) const {
  kvguard_error error = MakeError();
  size_t count = 0;
  kvguard_status status = kvguard_findings(guard_, first, nullptr, 0, &count, &error);
  if (status != KVGUARD_ERROR_CAPACITY) Check(status, error);
  std::vector<kvguard_finding> findings(std::min(count, most), Zeroed<kvguard_finding>());
  nb::list out;
  if (findings.empty()) return out;
  status = kvguard_findings(guard_, first, findings.data(), findings.size(), &count, &error);
  if (status != KVGUARD_ERROR_CAPACITY) Check(status, error);
  std::string text;
  for (const kvguard_finding& finding : findings) {
    size_t needed = 0;
    status = kvguard_explain(guard_, &finding, nullptr, 0, &needed, &error);
    if (status != KVGUARD_ERROR_CAPACITY) Check(status, error);
    text.assign(needed, '\0');
    Check(kvguard_explain(guard_, &finding, text.data(), text.size(), &needed, &error), error);
    text.resize(std::strlen(text.c_str()));
    while (!text.empty() && text.back() == '\n') text.pop_back();
    const size_t line_end = std::min(text.find('\n'), text.size());
    const std::string prose = line_end < text.size() ? text.substr(line_end + 1) : std::string();
    out.append(nb::make_tuple(text.substr(0, line_end), prose, FindingDict(finding)));
  }
  return out;
}

nb::list Guard::Coverage() const {
  kvguard_error error = MakeError();
  size_t count = 0;
  kvguard_status status = kvguard_coverage(guard_, nullptr, 0, &count, &error);
  if (status != KVGUARD_ERROR_CAPACITY) Check(status, error);
  std::vector<kvguard_coverage_row> rows(count, Zeroed<kvguard_coverage_row>());
  if (count > 0) Check(kvguard_coverage(guard_, rows.data(), rows.size(), &count, &error), error);
  nb::list out;
  for (const kvguard_coverage_row& row : rows) {
    nb::dict d;
    d["group"] =
        row.group == KVGUARD_ALL_GROUPS ? nb::object(nb::none()) : nb::object(nb::int_(row.group));
    d["pass"] = NameOf("pass", row.pass);
    d["stage"] = NameOf("stage", row.stage);
    d["family"] = NameOf("family", row.family);
    d["expected"] = row.expected != 0;
    d["judged"] = row.judged;
    out.append(d);
  }
  return out;
}

nb::list Guard::Gaps() const {
  kvguard_error error = MakeError();
  size_t count = 0;
  kvguard_status status = kvguard_gaps(guard_, nullptr, 0, &count, &error);
  if (status != KVGUARD_ERROR_CAPACITY) Check(status, error);
  std::vector<kvguard_gap> gaps(count, Zeroed<kvguard_gap>());
  if (count > 0) Check(kvguard_gaps(guard_, gaps.data(), gaps.size(), &count, &error), error);
  nb::list out;
  for (const kvguard_gap& gap : gaps) {
    nb::dict d;
    d["name"] = std::string(gap.name, strnlen(gap.name, sizeof(gap.name)));
    d["standing"] = gap.standing != 0;
    d["count"] = gap.count;
    d["first_step"] = gap.first_step;
    out.append(d);
  }
  return out;
}

nb::bytes Guard::Snapshot() const {
  kvguard_error error = MakeError();
  size_t needed = 0;
  const kvguard_status status = kvguard_snapshot(guard_, nullptr, 0, &needed, &error);
  if (status != KVGUARD_ERROR_CAPACITY) Check(status, error);
  std::string bytes(needed, '\0');
  Check(kvguard_snapshot(guard_, bytes.data(), bytes.size(), &needed, &error), error);
  return nb::bytes(bytes.data(), needed);
}

void Guard::Restore(const nb::bytes& bytes) {
  kvguard_error error = MakeError();
  Check(kvguard_restore(guard_, bytes.c_str(), bytes.size(), &error), error);
}

void Guard::RecordStart(const std::string& path, uint64_t max_bytes) {
  kvguard_error error = MakeError();
  Check(kvguard_record_start(guard_, path.c_str(), max_bytes, &error), error);
}

void Guard::RecordStop() {
  kvguard_error error = MakeError();
  Check(kvguard_record_stop(guard_, &error), error);
}

}  // namespace kvguard::python
