// SPDX-License-Identifier: Apache-2.0
// The extension module kvguard._core: the C API for Python, and the walker of vLLM's scheduler
// outputs.
#include <cstring>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "bindings/convert.h"
#include "bindings/guard.h"
#include "bindings/vllm/stream.h"
#include "kvguard/kvguard.h"

namespace kvguard::python {
namespace {

nb::dict ParseConfig(const std::string& json) {
  kvguard_config config;
  std::memset(&config, 0, sizeof(config));
  config.size = sizeof(config);
  kvguard_error error = MakeError();
  Check(kvguard_config_parse(json.data(), json.size(), &config, &error), error);
  nb::dict d;
  d["action"] = NameOf("action", config.action);
  d["latch"] = config.latch;
  d["history_steps"] = config.history_steps;
  d["history_bytes"] = config.history_bytes;
  d["max_findings_per_step"] = config.max_findings_per_step;
  d["max_findings"] = config.max_findings;
  return d;
}

std::string Schema() {
  kvguard_error error = MakeError();
  size_t needed = 0;
  const kvguard_status status = kvguard_schema(nullptr, 0, &needed, &error);
  if (status != KVGUARD_ERROR_CAPACITY) Check(status, error);
  std::string text(needed, '\0');
  Check(kvguard_schema(text.data(), text.size(), &needed, &error), error);
  text.resize(std::strlen(text.c_str()));
  return text;
}

nb::list Rules() {
  kvguard_error error = MakeError();
  size_t count = 0;
  const kvguard_status status = kvguard_rules(nullptr, 0, &count, &error);
  if (status != KVGUARD_ERROR_CAPACITY) Check(status, error);
  kvguard_rule empty;
  std::memset(&empty, 0, sizeof(empty));
  empty.size = sizeof(empty);
  std::vector<kvguard_rule> rules(count, empty);
  if (count > 0) Check(kvguard_rules(rules.data(), rules.size(), &count, &error), error);
  nb::list out;
  for (const kvguard_rule& rule : rules) {
    nb::dict d;
    d["code"] = rule.code;
    d["family"] = rule.family_name;
    d["grade"] = NameOf("grade", rule.grade);
    d["name"] = rule.name;
    d["sentence"] = rule.sentence;
    out.append(d);
  }
  return out;
}

void Selftest() {
  kvguard_error error = MakeError();
  Check(kvguard_selftest(&error), error);
}

}  // namespace

NB_MODULE(_core, m) {
  nb::set_leak_warnings(
      false);  // a guard lives as long as its engine: at exit some are alive, and that is no news
  m.doc() = "kvguard's core and libkvguard for Python. See kvguard.h, which is the specification.";
  m.attr("version") = kvguard_version();
  m.attr("Error") =
      nb::steal(PyErr_NewException("kvguard._core.Error", PyExc_RuntimeError, nullptr));

  nb::class_<Guard>(
      m, "Guard", "One rank's guard. Geometry, records and results have the header's field names.")
      .def(nb::init<nb::handle, nb::handle>(), nb::arg("geometry"), nb::arg("config") = nb::none())
      .def("begin", &Guard::Begin, nb::arg("step"), nb::arg("events"), nb::arg("scheduled"))
      .def("plan", &Guard::Plan, nb::arg("step"), nb::arg("plan"))
      .def("outcome", &Guard::Outcome, nb::arg("step"), nb::arg("rows"),
           nb::arg("events") = nb::make_tuple())
      .def("end", &Guard::End, nb::arg("step"), nb::arg("flags") = 0)
      .def("reset", &Guard::Reset, nb::arg("reason"))
      .def("verdict", &Guard::Verdict)
      .def("findings", &Guard::Findings, nb::arg("first") = 0, nb::arg("most") = 4096,
           "Stored findings from sequence `first` on, as (line, prose, dict).")
      .def("coverage", &Guard::Coverage)
      .def("gaps", &Guard::Gaps)
      .def("snapshot", &Guard::Snapshot)
      .def("restore", &Guard::Restore, nb::arg("bytes"))
      .def("record_start", &Guard::RecordStart, nb::arg("path"), nb::arg("max_bytes") = 0)
      .def("record_stop", &Guard::RecordStop)
      .def("take_incident", &Guard::TakeIncident,
           "The incident's bytes, once; None where there is none.");

  m.def("parse_config", &ParseConfig, nb::arg("json"),
        "Checks a configuration; returns the core's part of it.");
  m.def("schema", &Schema, "JSON Schema of the configuration.");
  m.def("rules", &Rules);
  m.def("selftest", &Selftest, "Raises where this build judges wrongly.");
  m.def("name", &NameOf, nb::arg("what"), nb::arg("value"));

  m.attr("I32") = static_cast<uint32_t>(KVGUARD_I32);
  m.attr("I64") = static_cast<uint32_t>(KVGUARD_I64);
  m.attr("U8") = static_cast<uint32_t>(KVGUARD_U8);
  m.attr("STAGE_PLANNED") = static_cast<uint32_t>(KVGUARD_STAGE_PLANNED);
  m.attr("PASS_TARGET") = static_cast<uint32_t>(KVGUARD_PASS_TARGET);
  m.attr("PASS_DRAFT") = static_cast<uint32_t>(KVGUARD_PASS_DRAFT);
  m.attr("STAGE_FINAL") = static_cast<uint32_t>(KVGUARD_STAGE_FINAL);
  m.attr("END_NO_FORWARD") = static_cast<uint32_t>(KVGUARD_END_NO_FORWARD);
  m.attr("END_ABANDONED") = static_cast<uint32_t>(KVGUARD_END_ABANDONED);
  m.attr("RESET_ARM") = static_cast<uint32_t>(KVGUARD_RESET_ARM);
  m.attr("RESET_SLEEP") = static_cast<uint32_t>(KVGUARD_RESET_SLEEP);
  m.attr("RESET_WEIGHTS") = static_cast<uint32_t>(KVGUARD_RESET_WEIGHTS);
  m.attr("RESET_LAYOUT") = static_cast<uint32_t>(KVGUARD_RESET_LAYOUT);
  m.attr("ENGINE_ASYNC") = static_cast<uint32_t>(KVGUARD_ENGINE_ASYNC);
  m.attr("ENGINE_CONNECTOR") = static_cast<uint32_t>(KVGUARD_ENGINE_CONNECTOR);
  m.attr("ENGINE_PARTIAL_HITS") = static_cast<uint32_t>(KVGUARD_ENGINE_PARTIAL_HITS);
  m.attr("ENGINE_PREFIX_CACHE") = static_cast<uint32_t>(KVGUARD_ENGINE_PREFIX_CACHE);
  m.attr("ENGINE_ENCODER") = static_cast<uint32_t>(KVGUARD_ENGINE_ENCODER);
  m.attr("ENGINE_FILLS_TOLD") = static_cast<uint32_t>(KVGUARD_ENGINE_FILLS_TOLD);
  m.attr("GROUP_PAD_ROWS_NULL") = static_cast<uint32_t>(KVGUARD_GROUP_PAD_ROWS_NULL);
  m.attr("GROUP_REPLICATED") = static_cast<uint32_t>(KVGUARD_GROUP_REPLICATED);
  m.attr("GROUP_NO_SLOTS") = static_cast<uint32_t>(KVGUARD_GROUP_NO_SLOTS);
  m.attr("STATE_NONE") = static_cast<uint32_t>(KVGUARD_STATE_NONE);
  m.attr("STATE_ALL") = static_cast<uint32_t>(KVGUARD_STATE_ALL);
  m.attr("STATE_ALIGN") = static_cast<uint32_t>(KVGUARD_STATE_ALIGN);
  m.attr("REMAP_DEDUPE") = static_cast<uint32_t>(KVGUARD_REMAP_DEDUPE);
  m.attr("REMAP_MOVE") = static_cast<uint32_t>(KVGUARD_REMAP_MOVE);
  m.attr("REMAP_SWAP") = static_cast<uint32_t>(KVGUARD_REMAP_SWAP);
  m.attr("EVENT_BINDINGS_LOST") = static_cast<uint32_t>(KVGUARD_EVENT_BINDINGS_LOST);
  m.attr("EVENT_REPLACED") = static_cast<uint32_t>(KVGUARD_EVENT_REPLACED);

  vllm::Bind(m);
}

}  // namespace kvguard::python
