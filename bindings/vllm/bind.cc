// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/string.h>

#include "bindings/convert.h"
#include "bindings/vllm/objects.h"
#include "bindings/vllm/stream.h"
#include "bindings/vllm/types.h"

namespace kvguard::python::vllm {
namespace {

nb::dict EventDict(const kvguard_event& event) {
  nb::dict d;
  d["kind"] = NameOf("event_kind", event.kind);
  d["request"] = event.request;
  d["group"] = event.group == KVGUARD_ALL_GROUPS ? nb::object(nb::none())
                                                 : nb::object(nb::int_(event.group));
  d["flags"] = event.flags;
  d["first"] = event.first;
  d["count"] = event.count;
  nb::list blocks;
  for (uint64_t i = 0; i < event.num_blocks; ++i) blocks.append(event.blocks[i]);
  d["blocks"] = blocks;
  d["name"] = event.name == nullptr ? nb::object(nb::none())
                                    : nb::object(nb::str(event.name, event.name_size));
  return d;
}

// The BEGIN of one scheduler output as plain data: what the tests compare, and what a person looks
// at.
nb::dict WalkToDict(Walker& walker, nb::handle scheduler_output) {
  Begin begin;
  try {
    walker.Walk(scheduler_output, &begin);
  } catch (const WalkError& error) {
    Raise(KVGUARD_ERROR_ARGUMENT, error.what());
  }
  for (const std::string& name : walker.not_understood()) begin.AddGap(name);
  const kvguard_begin* view = begin.View();
  nb::list events;
  for (uint64_t i = 0; i < view->num_events; ++i) events.append(EventDict(view->events[i]));
  nb::list scheduled;
  for (uint64_t i = 0; i < view->num_scheduled; ++i) {
    const kvguard_scheduled& row = view->scheduled[i];
    nb::dict d;
    d["request"] = row.request;
    d["num_tokens"] = row.num_tokens;
    d["num_computed"] = row.num_computed;
    d["num_drafts"] = row.num_drafts;
    scheduled.append(d);
  }
  nb::dict out;
  out["events"] = events;
  out["scheduled"] = scheduled;
  return out;
}

const char* UseName(Use use) {
  switch (use) {
    case Use::kNeeded:
      return "needed";
    case Use::kRead:
      return "read";
    case Use::kIgnored:
      return "ignored";
    case Use::kGapUnlessUnset:
      return "gap-unless-unset";
  }
  return "?";
}

nb::dict FieldTable() {
  nb::dict out;
  for (const Type* type : {&kSchedulerOutput, &kNewRequestData, &kCachedRequestData}) {
    nb::dict fields;
    for (const Field& field : type->fields)
      fields[field.name] = nb::make_tuple(UseName(field.use), field.note);
    out[type->name] = fields;
  }
  return out;
}

}  // namespace

void Bind(nb::module_& m) {
  nb::module_ v = m.def_submodule("vllm", "Reads vLLM's scheduler outputs.");
  nb::class_<Walker>(v, "Walker",
                     "Keeps request keys and turns scheduler outputs into BEGIN records.")
      .def(nb::init<uint32_t>(), nb::arg("num_groups"))
      .def("walk_to_dict", &WalkToDict, nb::arg("scheduler_output").none())
      .def(
          "key_of", [](Walker& w, nb::handle id) { return w.KeyOf(id.ptr()); }, nb::arg("req_id"))
      .def("forget", &Walker::Forget)
      .def_prop_ro("num_live", &Walker::num_live);
  v.def("probe_types", &ProbeTypes, nb::arg("scheduler_output"), nb::arg("new_request"),
        nb::arg("cached_requests"),
        "Needed fields that are missing, and fields that are not known.");
  v.def("field_table", &FieldTable, "The table of fields: type -> field -> (use, note).");

  nb::class_<Stream>(
      v, "Stream",
      "One runner's records into one guard. Answers with FLAG_* bits and never raises.")
      .def(nb::init<Guard*>(), nb::arg("guard"), nb::keep_alive<1, 2>())
      .def("begin", &Stream::Begin, nb::arg("scheduler_output").none())
      .def("plan", &Stream::Plan, nb::arg("stage"), nb::arg("req_ids").none(),
           nb::arg("padded_rows"), nb::arg("num_tokens"), nb::arg("padded_tokens"),
           nb::arg("query_start").none(), nb::arg("seq_lens").none(), nb::arg("positions").none(),
           nb::arg("groups").none(), nb::arg("pass_") = static_cast<uint32_t>(KVGUARD_PASS_TARGET),
           nb::arg("pass_index") = 0)
      .def("outcome", &Stream::Outcome, nb::arg("req_ids").none(), nb::arg("sampled").none(),
           nb::arg("rejected").none())
      .def("end", &Stream::End, nb::arg("flags") = 0)
      .def("reset", &Stream::Reset, nb::arg("reason"))
      .def("gap", &Stream::Gap, nb::arg("name"))
      .def(
          "key_of", [](Stream& s, nb::handle id) { return s.walker().KeyOf(id.ptr()); },
          nb::arg("req_id"), "A request's key as of now, by which an outcome names it later.")
      .def_prop_ro("open", &Stream::open)
      .def_prop_ro("step", &Stream::step)
      .def_prop_ro("sentence", &Stream::sentence)
      .def_prop_ro("num_drafts", &Stream::num_drafts)
      .def_prop_ro("num_rejected", &Stream::num_rejected)
      .def_prop_ro("num_live", [](Stream& s) { return s.walker().num_live(); })
      // The latest answer's range of findings, and whether a raise is asked for, without a dict.
      .def_prop_ro("first_sequence", [](Stream& s) { return s.guard().verdict().first_sequence; });
  v.attr("FLAG_MUST_RAISE") = static_cast<uint32_t>(kMustRaise);
  v.attr("FLAG_NEW_FINDINGS") = static_cast<uint32_t>(kNewFindings);
  v.attr("FLAG_NOT_FED") = static_cast<uint32_t>(kNotFed);
  v.attr("FLAG_UNJUDGED") = static_cast<uint32_t>(kUnjudged);
}

}  // namespace kvguard::python::vllm
