// SPDX-License-Identifier: Apache-2.0
// `kvguard doctor`: whether a guard of this environment would see, and could tell what it saw.
#include "cli/doctor.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/run_command.h"
#include "cli/terminal.h"
#include "config/config.h"
#include "geometry/equal.h"
#include "report/json.h"
#include "report/text.h"
#include "rules/catalog.h"
#include "step/status.h"

namespace kvguard::cli {
namespace {

namespace fs = std::filesystem;
using audit::Outcome;
using audit::Trial;
using report::Json;
using step::Sprintf;
using Clock = std::chrono::steady_clock;

constexpr char kEnvironmentConfig[] = "KVGUARD_CONFIG";
constexpr char kStatusFolder[] = "KVGUARD_STATUS_DIR";
// Less than this is no place for evidence: the bound on an incident's records, with a snapshot.
constexpr uint64_t kLeastFree = 16u << 20;

template <typename Test>
TimedTrial Timed(Test test) {
  const auto begin = Clock::now();
  TimedTrial timed;
  timed.trial = test();
  timed.microseconds = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  return timed;
}

// JSON, or @ and a file's name.
std::string TextOf(const std::string& given, std::string* error) {
  if (!given.starts_with('@')) return given;
  std::ifstream file(given.substr(1), std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    *error = "the file '" + given.substr(1) + "' cannot be read: " + std::strerror(errno);
  }
  return text.str();
}

std::string Validate(const std::string& text) {
  kvguard_config config{};
  config.size = sizeof(config);
  const step::Status status = config::Parse(text, &config);
  return status.ok() ? "" : status.text();
}

// Every key with its default, and over it what is given; null asks for the default.
Json Values(const std::string& text) {
  Json values;
  const Json schema = Json::parse(config::Schema());
  for (const auto& [name, property] : schema.at("properties").items())
    values[name] = property.at("default");
  const Json given = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!given.is_object()) return values;
  for (const auto& [name, value] : given.items()) {
    if (!value.is_null()) values[name] = value;
  }
  return values;
}

std::string StringOf(const Json& values, const char* key) {
  const auto it = values.find(key);
  return it != values.end() && it->is_string() ? it->get<std::string>() : "";
}

// What the guard does there is done: a file is made, and taken away.
PlaceCheck CheckFolder(const std::string& what, const std::string& folder) {
  PlaceCheck place;
  place.what = what;
  std::error_code error;
  const fs::path absolute = fs::absolute(folder.empty() ? "." : folder, error);
  place.folder = error ? folder : absolute.lexically_normal().string();
  if (place.folder.size() > 1 && place.folder.back() == '/') place.folder.pop_back();
  std::string name = place.folder + "/.kvguard-doctor-XXXXXX";
  const int file = ::mkstemp(name.data());
  if (file < 0) {
    place.error = std::strerror(errno);
    return place;
  }
  ::close(file);
  ::unlink(name.c_str());
  if (const auto space = fs::space(place.folder, error); !error) place.free_bytes = space.available;
  if (place.free_bytes && *place.free_bytes < kLeastFree) {
    place.error = Sprintf("%llu bytes are free, which an incident does not fit into",
                          static_cast<unsigned long long>(*place.free_bytes));
  }
  return place;
}

// The folder of a path that may hold %r (the rank) and %p (the process).
std::string FolderOf(std::string path) {
  const auto replace = [&](const std::string& mark, const std::string& value) {
    for (size_t at = path.find(mark); at != std::string::npos; at = path.find(mark, at))
      path.replace(at, mark.size(), value);
  };
  replace("%r", "0");
  replace("%p", std::to_string(::getpid()));
  return fs::path(path).parent_path().string();
}

const char* OutcomeName(Outcome outcome) {
  return outcome == Outcome::kFound ? "found" : outcome == Outcome::kBlind ? "blind" : "broken";
}

std::string FamilyOf(const Trial& trial) { return report::Name("family", trial.code / 100); }

const char* Instructions() {
  const geometry::EqualKernels* wide = geometry::Avx2EqualKernels();
  return wide != nullptr ? wide->name : geometry::kPortableEqualKernels.name;
}

std::string Space(uint64_t bytes) {
  constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
  const double gib = static_cast<double>(bytes) / kGiB;
  return gib >= 1 ? Sprintf("%.1f GiB free", gib) : Sprintf("%.0f MiB free", gib * 1024);
}

std::string PlaceText(const PlaceCheck& place) {
  if (place.folder.empty()) return "none is written";
  if (!place.error.empty()) return place.folder + ": " + place.error;
  return place.folder + ": writable" +
         (place.free_bytes ? ", " + Space(*place.free_bytes) : std::string());
}

std::string ConfigText(const ConfigCheck& config) {
  if (!config.error.empty()) return config.source + ": invalid: " + config.error;
  const auto flag = [&](const char* key) {
    return config.values.value(key, false) ? std::string("yes") : std::string("no");
  };
  return config.source + ": valid; enabled " + flag("enabled") + ", action " +
         StringOf(config.values, "action") + ", self_test " + flag("self_test");
}

bool Truth(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_boolean() && it->get<bool>();
}

const Json& Part(const Json& object, const char* key) {
  static const Json nothing = Json::object();
  const auto it = object.find(key);
  return it != object.end() && it->is_object() ? *it : nothing;
}

std::string PythonText(const PythonCheck& python) {
  if (python.interpreter.empty()) return python.missing;
  if (!python.missing.empty()) return python.interpreter + ": " + python.missing;
  const Json& package = Part(python.answer, "kvguard");
  std::string text = python.interpreter + ": Python " + StringOf(python.answer, "python");
  if (!Truth(package, "core")) return text + ", " + StringOf(package, "reason");
  const std::string version = StringOf(package, "version");
  text += ", kvguard " + version + ", self-test " + StringOf(package, "self_test");
  if (version != kvguard_version()) text += std::string("; this command is ") + kvguard_version();
  return text;
}

std::string EngineText(const Json& vllm) {
  const std::string version = StringOf(vllm, "version");
  if (!Truth(vllm, "installed")) return "not installed there";
  if (!Truth(vllm, "probed"))
    return version + " is installed; --engine vllm runs the adapter's probes on it";
  if (!Truth(vllm, "importable"))
    return (version.empty() ? "" : version + ": ") + StringOf(vllm, "reason");
  return version + " from " + StringOf(vllm, "path") + ", platform " + StringOf(vllm, "platform");
}

std::vector<std::string> PythonProblems(const DoctorReport& report) {
  const PythonCheck& python = report.python;
  const bool asked = !report.engine.empty();
  if (!python.missing.empty()) {
    if (!asked) return {};
    return {"the engine's Python side was not checked: " + PythonText(python)};
  }
  std::vector<std::string> out;
  const Json& package = Part(python.answer, "kvguard");
  if (!Truth(package, "core")) {
    out.push_back("the guard could not arm: " + StringOf(package, "reason"));
  } else if (StringOf(package, "self_test") != "passed") {
    out.push_back("the Python module's self-test failed: " + StringOf(package, "self_test"));
  }
  if (!asked) return out;
  const Json& vllm = Part(python.answer, "vllm");
  if (!Truth(vllm, "installed") || !Truth(vllm, "importable")) {
    out.push_back("vLLM cannot be guarded: " + EngineText(vllm));
    return out;
  }
  for (const Json& probe : vllm.value("probes", Json::array())) {
    if (!Truth(probe, "passed"))
      out.push_back("the guard would not arm: " + StringOf(probe, "name") + ": " +
                    StringOf(probe, "reason"));
  }
  return out;
}

}  // namespace

std::vector<TimedTrial> TryAll(std::span<const kvguard_rule> catalog,
                               std::span<const audit::Planted> planted) {
  std::vector<TimedTrial> trials;
  for (const audit::Planted& each : planted)
    trials.push_back(Timed([&] { return audit::Try(each); }));
  trials.push_back(Timed([] { return audit::TryKernels(geometry::kPortableEqualKernels); }));
  if (const geometry::EqualKernels* wide = geometry::Avx2EqualKernels(); wide != nullptr)
    trials.push_back(Timed([&] { return audit::TryKernels(*wide); }));
  std::stable_sort(trials.begin(), trials.end(), [](const TimedTrial& a, const TimedTrial& b) {
    return a.trial.code / 100 < b.trial.code / 100;
  });
  TimedTrial missing = Timed([&] { return audit::TryCatalog(catalog, planted); });
  if (missing.trial.outcome != Outcome::kFound) {
    missing.trial.fault = "nothing";
    trials.push_back(std::move(missing));
  }
  return trials;
}

ConfigCheck CheckConfig(const std::optional<std::string>& given, const Environment& environment) {
  ConfigCheck config;
  std::string text = "{}";
  if (given) {
    config.source = "--config";
    std::string unreadable;
    text = TextOf(*given, &unreadable);
    if (!unreadable.empty()) throw UsageError(kExitUnreadable, "--config: " + unreadable);
    if (const std::string error = Validate(text); !error.empty())
      throw UsageError(kExitUsage, "--config: " + error);
  } else if (const std::string value = environment(kEnvironmentConfig);
             value.find_first_not_of(" \t\r\n") != std::string::npos) {
    config.source = kEnvironmentConfig;
    text = TextOf(value, &config.error);
    if (config.error.empty()) config.error = Validate(text);
  } else {
    config.source = "the defaults";
  }
  config.values = Values(config.error.empty() ? text : "{}");
  return config;
}

std::vector<PlaceCheck> CheckPlaces(const ConfigCheck& config, const Environment& environment) {
  std::vector<PlaceCheck> places;
  places.push_back(CheckFolder("incidents", StringOf(config.values, "incident_dir")));
  const std::string record = StringOf(config.values, "record");
  places.push_back(record.empty() ? PlaceCheck{"trace", "", "", {}}
                                  : CheckFolder("trace", FolderOf(record)));
  const std::string status = StringOf(config.values, "status");
  const std::string folder = status.empty() ? environment(kStatusFolder) : FolderOf(status);
  const bool written = !status.empty() || !folder.empty();
  places.push_back(written ? CheckFolder("status", folder) : PlaceCheck{"status", "", "", {}});
  return places;
}

std::vector<std::string> Problems(const DoctorReport& report) {
  std::vector<std::string> out;
  for (const TimedTrial& timed : report.trials) {
    if (timed.trial.outcome == Outcome::kFound) continue;
    const bool broken = timed.trial.outcome == Outcome::kBroken;
    out.push_back("self-test: " + timed.trial.why + (broken ? ": this build is broken" : ""));
  }
  if (!report.config.error.empty()) {
    out.push_back("the guard could not arm: " + report.config.source + ": " + report.config.error);
  }
  for (const PlaceCheck& place : report.places) {
    if (!place.error.empty())
      out.push_back(place.what + " would be lost: " + place.folder + ": " + place.error);
  }
  for (std::string& problem : PythonProblems(report)) out.push_back(std::move(problem));
  return out;
}

int DoctorExitCode(const DoctorReport& report) {
  for (const TimedTrial& timed : report.trials) {
    if (timed.trial.outcome == Outcome::kBroken) return kExitInternal;
  }
  return Problems(report).empty() ? kExitOk : kExitCannotJudge;
}

std::string DoctorText(const DoctorReport& report) {
  report::Table faults("lllrr");
  faults.Row({"family", "planted fault", "result", "facts", "us"});
  for (const TimedTrial& timed : report.trials) {
    const Trial& trial = timed.trial;
    faults.Row({FamilyOf(trial), Sprintf("KV%04u ", trial.code) + trial.fault,
                OutcomeName(trial.outcome),
                Sprintf("%llu", static_cast<unsigned long long>(trial.judged)),
                Sprintf("%.0f", timed.microseconds)});
  }
  report::Table rest("ll");
  rest.Row({"library",
            std::string("kvguard ") + kvguard_version() + ", " + Instructions() + " comparisons"});
  rest.Row({"configuration", ConfigText(report.config)});
  for (const PlaceCheck& place : report.places) rest.Row({place.what, PlaceText(place)});
  rest.Row({"python", PythonText(report.python)});
  if (report.python.missing.empty()) {
    const Json& vllm = Part(report.python.answer, "vllm");
    rest.Row({"vllm", EngineText(vllm)});
    for (const Json& probe : vllm.value("probes", Json::array())) {
      const std::string reason = StringOf(probe, "reason");
      rest.Row({"  " + StringOf(probe, "name"), (Truth(probe, "passed") ? "passes" : "fails") +
                                                    (reason.empty() ? "" : ": " + reason)});
    }
  }
  const std::vector<std::string> problems = Problems(report);
  for (const std::string& problem : problems) rest.Row({"problem", problem});
  rest.Row({"result", problems.empty()                             ? "all well"
                      : DoctorExitCode(report) == kExitCannotJudge ? "cannot judge"
                                                                   : "broken"});
  return faults.Text() + "\n" + rest.Text();
}

std::string DoctorJson(const DoctorReport& report) {
  Json trials = Json::array();
  for (const TimedTrial& timed : report.trials) {
    const Trial& trial = timed.trial;
    trials.push_back({{"family", FamilyOf(trial)},
                      {"code", Sprintf("KV%04u", trial.code)},
                      {"fault", trial.fault},
                      {"outcome", OutcomeName(trial.outcome)},
                      {"facts", trial.judged},
                      {"microseconds", timed.microseconds},
                      {"why", trial.why.empty() ? Json(nullptr) : Json(trial.why)}});
  }
  Json places = Json::array();
  for (const PlaceCheck& place : report.places) {
    places.push_back({{"what", place.what},
                      {"folder", place.folder.empty() ? Json(nullptr) : Json(place.folder)},
                      {"writable", !place.folder.empty() && place.error.empty()},
                      {"free_bytes", place.free_bytes ? Json(*place.free_bytes) : Json(nullptr)},
                      {"error", place.error.empty() ? Json(nullptr) : Json(place.error)}});
  }
  const ConfigCheck& config = report.config;
  const PythonCheck& python = report.python;
  const Json out = {
      {"schema", "kvguard.doctor.v1"},
      {"kvguard_version", kvguard_version()},
      {"exit_code", DoctorExitCode(report)},
      {"instructions", Instructions()},
      {"self_test", trials},
      {"configuration",
       {{"source", config.source},
        {"valid", config.error.empty()},
        {"error", config.error.empty() ? Json(nullptr) : Json(config.error)},
        {"values", config.values}}},
      {"places", places},
      {"python",
       {{"interpreter", python.interpreter.empty() ? Json(nullptr) : Json(python.interpreter)},
        {"missing", python.missing.empty() ? Json(nullptr) : Json(python.missing)},
        {"answer", python.answer}}},
      {"problems", Problems(report)}};
  return report::Dump(out, 2) + "\n";
}

int DoctorCommand(const DoctorArguments& arguments) {
  const Environment environment = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  DoctorReport report;
  report.engine = arguments.engine;
  report.config = CheckConfig(arguments.config, environment);
  report.trials = TryAll(rules::Catalog(), audit::PlantedFaults());
  report.places = CheckPlaces(report.config, environment);
  report.python = AskPython(arguments.python, arguments.engine);
  Out(arguments.json ? DoctorJson(report) : DoctorText(report));
  return DoctorExitCode(report);
}

}  // namespace kvguard::cli
