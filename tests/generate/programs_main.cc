// SPDX-License-Identifier: Apache-2.0
// Generated programs, and what libkvguard says of them.
//
// --jsonl: for each program a line {"program": seed, options, situations, fault, truth, mutation},
// its geometry and records as `kvguard trace dump --jsonl` prints them, and a line {"core":
// findings, suspicions, num_proofs, num_suspicions, verdict, steps, step_gaps, gaps}. A record that
// the guard did not take is printed as a recorder writes it: refused, without its body. A suspicion
// is stored once for its code, so "suspicions" counts the stored findings of each code, and
// "num_suspicions" is the verdict's count of all of them.
//
// --healthy: a summary of many programs that must be clean; exit 1 where one is not (the first one
// is told on stderr), 3 where a situation that --require asks for was not reached.
//
// --faults: for each fault of an engine, in how many programs the modelled memory showed it, what
// the guard had said by then, and the first seeds where it had said nothing.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string>

#include "report/json.h"
#include "tests/generate/judged.h"
#include "tests/generate/mutate.h"
#include "tests/generate/program.h"
#include "tools/dump.h"

namespace kvguard::generate {
namespace {

using report::Json;

struct Arguments {
  uint64_t first = 1;
  uint64_t count = 1;
  uint64_t steps = 0;  // 0: drawn by the seed, 20..60
  uint32_t features = kFull;
  bool mutate = false;
  bool jsonl = false;
  bool healthy = false;
  bool faults = false;
  Fault fault = Fault::kNone;
  std::string require;
};

constexpr char kUsage[] =
    "usage: kvguard_programs --jsonl [--mutate] [--fault NAME] [OPTIONS]\n"
    "       kvguard_programs --healthy [--require FILE] [OPTIONS]\n"
    "       kvguard_programs --faults [OPTIONS]\n"
    "OPTIONS: [--first SEED] [--count N] [--steps N] [--features LIST]\n";

std::optional<Arguments> Parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--mutate") {
      arguments.mutate = true;
      continue;
    }
    if (name == "--jsonl") {
      arguments.jsonl = true;
      continue;
    }
    if (name == "--healthy") {
      arguments.healthy = true;
      continue;
    }
    if (name == "--faults") {
      arguments.faults = true;
      continue;
    }
    if (i + 1 == argc) return std::nullopt;
    const char* value = argv[++i];
    char* end = nullptr;
    const uint64_t number = std::strtoull(value, &end, 10);
    const bool is_number = *value != '\0' && *end == '\0';
    if (name == "--features") {
      std::string error;
      const auto features = ParseFeatures(value, &error);
      if (!features) {
        std::fprintf(stderr, "kvguard_programs: %s\n", error.c_str());
        return std::nullopt;
      }
      arguments.features = *features;
    } else if (name == "--fault") {
      const auto found =
          std::find_if(std::begin(kFaultNames), std::end(kFaultNames),
                       [&](const char* known) { return std::string(known) == value; });
      if (found == std::end(kFaultNames)) {
        std::fprintf(stderr, "kvguard_programs: \"%s\" is not a fault of an engine\n", value);
        return std::nullopt;
      }
      arguments.fault = static_cast<Fault>(found - std::begin(kFaultNames));
    } else if (name == "--require") {
      arguments.require = value;
    } else if (name == "--first" && is_number) {
      arguments.first = number;
    } else if (name == "--count" && is_number) {
      arguments.count = number;
    } else if (name == "--steps" && is_number) {
      arguments.steps = number;
    } else {
      return std::nullopt;
    }
  }
  if (arguments.jsonl + arguments.healthy + arguments.faults != 1) return std::nullopt;
  return arguments;
}

Program Make(const Arguments& arguments, uint64_t seed) {
  const uint64_t steps = arguments.steps > 0 ? arguments.steps : 20 + Mix(seed, 0x73746570) % 41;
  Options options = Options::Draw(seed, arguments.features);
  options.fault = arguments.fault;
  return Generate(options, steps);
}

void Print(const Json& json) {
  const std::string line = report::Dump(json, -1);
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fputc('\n', stdout);
}

Json MutationJson(const std::optional<Mutation>& mutation) {
  if (!mutation) return nullptr;
  return {{"kind", mutation->kind},
          {"record", mutation->record},
          {"step", mutation->step},
          {"field", mutation->field},
          {"group", mutation->group < 0 ? Json(nullptr) : Json(mutation->group)},
          {"element", mutation->element < 0 ? Json(nullptr) : Json(mutation->element)},
          {"old", mutation->old_value},
          {"new", mutation->new_value}};
}

Json NameOrNull(const char* what, uint32_t value) {
  const char* name = value == 0 ? nullptr : kvguard_name(what, value);
  return name == nullptr ? Json(nullptr) : Json(name);
}

Json CoreJson(const Judged& judged) {
  Json findings = Json::array();
  std::map<uint32_t, uint64_t> suspicions;
  for (const kvguard_finding& finding : judged.findings) {
    if (finding.grade == KVGUARD_GRADE_SUSPICION) ++suspicions[finding.code];
    findings.push_back(
        {{"code", finding.code},
         {"grade", kvguard_name("grade", finding.grade)},
         {"step", finding.step},
         {"group", finding.group == KVGUARD_ALL_GROUPS ? Json(nullptr) : Json(finding.group)},
         {"request", finding.request},
         {"pos", finding.pos},
         {"pass", NameOrNull("pass", finding.pass)},
         {"pass_index", finding.pass_index},
         {"stage", NameOrNull("stage", finding.stage)},
         {"row", finding.row}});
  }
  Json by_code = Json::object();
  for (const auto& [code, times] : suspicions) by_code[std::to_string(code)] = times;
  return {{"findings", std::move(findings)},
          {"suspicions", std::move(by_code)},
          {"num_proofs", judged.verdict.proofs},
          {"num_suspicions", judged.verdict.suspicions},
          {"verdict", kvguard_name("verdict", judged.verdict.verdict)},
          {"steps", judged.verdict.steps},
          {"step_gaps", judged.verdict.step_gaps},
          {"gaps", judged.gaps}};
}

int PrintPrograms(const Arguments& arguments) {
  for (uint64_t i = 0; i < arguments.count; ++i) {
    const uint64_t seed = arguments.first + i;
    Program program = Make(arguments, seed);
    if (!program.error.empty() && arguments.fault == Fault::kNone) {
      std::fprintf(stderr, "kvguard_programs: the generator broke its own rules, seed %llu: %s\n",
                   static_cast<unsigned long long>(seed), program.error.c_str());
      return 70;
    }
    std::optional<Mutation> mutation;
    if (arguments.mutate) mutation = Mutate(program.options, seed, &program.records);
    const Judged judged = Judge(&program, program.records);
    if (!judged.refused.empty()) {
      std::fprintf(stderr, "kvguard_programs: the guard refuses seed %llu: %s\n",
                   static_cast<unsigned long long>(seed), judged.refused.c_str());
      return 2;
    }
    Json options = Json::object();
    for (const auto& [name, value] : program.options.Told()) options[name] = value;
    Print({{"program",
            {{"seed", seed},
             {"options", std::move(options)},
             {"situations", program.situations.names()},
             {"fault", kFaultNames[static_cast<size_t>(arguments.fault)]},
             {"truth", program.error.empty()
                           ? Json(nullptr)
                           : Json({{"step", program.error_step}, {"error", program.error}})},
             {"mutation", MutationJson(mutation)}}}});
    Json geometry = {
        {"record", "geometry"}, {"kvguard_version", kvguard_version()}, {"incident", false}};
    geometry.update(tools::GeometryJson(program.geometry.Build()));
    Print(geometry);
    RecordView view;
    for (size_t r = 0; r < program.records.size(); ++r) {
      kvguard_record record = view.Of(program.records[r]);
      // As a recorder writes it: of a record that the guard did not take only that it was there.
      if (judged.record_refused[r]) record.body.begin = nullptr;
      Print(tools::RecordJson(record));
    }
    Print({{"core", CoreJson(judged)}});
  }
  return 0;
}

// Names that no program reached, of those that a file asks for; a line is a name or a comment.
std::vector<std::string> Missing(const std::string& path, const Situations& reached) {
  const std::vector<std::string> names = reached.names();
  std::vector<std::string> missing;
  std::ifstream file(path);
  if (!file) missing.push_back("(" + path + " cannot be read)");
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    if (std::find(names.begin(), names.end(), line) == names.end()) missing.push_back(line);
  }
  return missing;
}

int FeedHealthy(const Arguments& arguments) {
  uint64_t steps = 0;
  uint64_t proofs = 0;
  uint64_t bad = 0;
  uint64_t broken = 0;  // programs that violate their own truth
  std::map<std::string, uint64_t> verdicts;
  std::map<uint32_t, uint64_t> suspicions;
  Situations situations;
  const auto start = std::chrono::steady_clock::now();
  for (uint64_t i = 0; i < arguments.count; ++i) {
    const uint64_t seed = arguments.first + i;
    Program program = Make(arguments, seed);
    const Judged judged = Judge(&program, program.records);
    situations.Add(program.situations);
    steps += program.steps;
    proofs += judged.verdict.proofs;
    for (const kvguard_finding& finding : judged.findings) {
      if (finding.grade == KVGUARD_GRADE_SUSPICION) ++suspicions[finding.code];
    }
    if (!program.error.empty() && broken++ == 0) {
      std::fprintf(stderr, "the generator broke its own rules, seed %llu: %s\n",
                   static_cast<unsigned long long>(seed), program.error.c_str());
    }
    // A scheduler that found room for nothing has nothing to judge: cannot_judge is right then.
    const bool idle = std::none_of(program.records.begin(), program.records.end(),
                                   [](const Record& record) { return !record.scheduled.empty(); });
    const std::string verdict =
        !judged.refused.empty() ? "refused"
        : idle && judged.verdict.verdict == KVGUARD_CANNOT_JUDGE && judged.gaps.empty()
            ? "idle"
            : kvguard_name("verdict", judged.verdict.verdict);
    ++verdicts[verdict];
    if (verdict == "idle" && program.error.empty()) continue;
    if (program.error.empty() && verdict == "clean" && judged.verdict.proofs == 0) continue;
    if (bad++ > 0) continue;
    std::fprintf(stderr, "first offender: seed %llu, %s\n%s%s%s%s",
                 static_cast<unsigned long long>(seed), verdict.c_str(), program.error.c_str(),
                 judged.refused.c_str(), judged.prose.c_str(), judged.first_error.c_str());
    for (const std::string& gap : judged.gaps) std::fprintf(stderr, " gap %s", gap.c_str());
    std::fputc('\n', stderr);
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  Json counts = Json::object();
  for (size_t s = 0; s < kNumSituations; ++s)
    counts[kSituationNames[s]] = situations.count(static_cast<Situation>(s));
  Json by_code = Json::object();
  for (const auto& [code, times] : suspicions) by_code[std::to_string(code)] = times;
  const auto missing = arguments.require.empty() ? std::vector<std::string>{}
                                                 : Missing(arguments.require, situations);
  Print({{"programs", arguments.count},
         {"steps", steps},
         {"seconds", elapsed.count()},
         {"steps_per_second", static_cast<double>(steps) / elapsed.count()},
         {"proofs", proofs},
         {"suspicions", by_code},
         {"verdicts", verdicts},
         {"offenders", bad},
         {"generator_errors", broken},
         {"missing", missing},
         {"situations", counts}});
  if (!missing.empty()) return 3;
  return bad == 0 ? 0 : 1;
}

// For each fault of an engine: in how many programs its memory showed it, and whether the guard had
// spoken by then. A program ends with the step that showed it.
int FeedFaults(Arguments arguments) {
  const uint32_t features = arguments.features;
  for (size_t f = 1; f < static_cast<size_t>(Fault::kCount); ++f) {
    arguments.fault = static_cast<Fault>(f);
    arguments.features = features == kFull ? FeaturesOf(arguments.fault) : features;
    uint64_t shown = 0;
    uint64_t refused = 0;
    std::map<std::string, uint64_t> verdicts;
    std::map<std::string, uint64_t> first_codes;
    Json missed = Json::array();
    for (uint64_t i = 0; i < arguments.count; ++i) {
      const uint64_t seed = arguments.first + i;
      Program program = Make(arguments, seed);
      if (program.error.empty()) continue;
      ++shown;
      const Judged judged = Judge(&program, program.records);
      if (!judged.refused.empty()) {
        ++refused;
        continue;
      }
      const char* verdict = kvguard_name("verdict", judged.verdict.verdict);
      ++verdicts[verdict];
      if (judged.verdict.verdict == KVGUARD_VIOLATED) {
        ++first_codes[std::to_string(judged.findings.front().code)];
      } else if (missed.size() < 5) {
        missed.push_back({{"seed", seed}, {"error", program.error}});
      }
    }
    Print({{"fault", kFaultNames[f]},
           {"programs", arguments.count},
           {"shown", shown},
           {"refused", refused},
           {"verdicts", verdicts},
           {"first_codes", first_codes},
           {"missed", std::move(missed)}});
  }
  return 0;
}

int Main(int argc, char** argv) {
  const auto arguments = Parse(argc, argv);
  if (!arguments) {
    std::fputs(kUsage, stderr);
    return 64;
  }
  if (arguments->faults) return FeedFaults(*arguments);
  return arguments->healthy ? FeedHealthy(*arguments) : PrintPrograms(*arguments);
}

}  // namespace
}  // namespace kvguard::generate

int main(int argc, char** argv) { return kvguard::generate::Main(argc, argv); }
