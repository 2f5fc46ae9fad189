// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include <gtest/gtest.h>

#include "cli/run_command.h"
#include "cli/test_command.h"
#include "geometry/equal.h"
#include "rules/catalog.h"
#include "tools/test_trace.h"

namespace kvguard::cli {
namespace {

using audit::Planted;
using nlohmann::json;
using tools::TestFolder;

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string Joined(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

Environment Of(std::map<std::string, std::string> variables) {
  return [variables](const char* name) {
    const auto it = variables.find(name);
    return it != variables.end() ? it->second : std::string();
  };
}

// A report in which all is well but what a test puts into it.
DoctorReport Healthy(const std::string& folder) {
  DoctorReport report;
  report.trials = TryAll(rules::Catalog(), audit::PlantedFaults());
  report.config = CheckConfig("{\"incident_dir\": \"" + folder + "\"}", Of({}));
  report.places = CheckPlaces(report.config, Of({}));
  report.python.missing = "has no kvguard";
  report.python.interpreter = "/bin/python3";
  return report;
}

PythonCheck Answered(const json& vllm) {
  PythonCheck python;
  python.interpreter = "/bin/python3";
  python.answer = {{"python", "3.12.1"},
                   {"kvguard",
                    {{"core", true},
                     {"version", kvguard_version()},
                     {"self_test", "passed"},
                     {"reason", nullptr}}},
                   {"vllm", vllm}};
  return python;
}

const json kProbed = {{"installed", true},
                      {"probed", true},
                      {"importable", true},
                      {"version", "0.32.0"},
                      {"path", "/x/vllm"},
                      {"platform", "cpu"},
                      {"probes",
                       {{{"name", "device"}, {"passed", true}, {"reason", nullptr}},
                        {{"name", "runner"}, {"passed", true}, {"reason", "a.Runner"}}}}};

// --- the self-test ---

TEST(Doctor, EveryFamilyOfTheCatalogIsInTheTable) {
  const TestFolder folder;
  const DoctorReport report = Healthy(folder.path());
  std::set<std::string> families;
  const json out = json::parse(DoctorJson(report));
  for (const json& trial : out.at("self_test")) {
    EXPECT_EQ(trial.at("outcome"), "found") << trial;
    EXPECT_GT(trial.at("facts"), 0) << trial;
    families.insert(trial.at("family"));
  }
  for (const kvguard_rule& rule : rules::Catalog()) {
    EXPECT_EQ(families.count(rule.family_name), 1u) << rule.family_name;
    EXPECT_TRUE(Has(DoctorText(report), std::string(rule.family_name) + " "));
  }
  const bool wide = geometry::Avx2EqualKernels() != nullptr;
  EXPECT_EQ(out.at("instructions"), wide ? "avx2" : "portable");
  EXPECT_TRUE(Has(DoctorText(report), "portable comparisons"));
  EXPECT_EQ(Has(DoctorText(report), "every place, avx2 comparisons"), wide);
  EXPECT_EQ(DoctorExitCode(report), 0);
  EXPECT_TRUE(Has(DoctorText(report), "all well\n"));
}

// The same table with one entry spoilt, family by family.
TEST(Doctor, AFaultThatIsNotFoundIsABrokenBuild) {
  const TestFolder folder;
  std::set<uint32_t> families;
  for (const Planted& planted : audit::PlantedFaults()) {
    if (!families.insert(planted.code / 100).second) continue;
    std::vector<Planted> all(audit::PlantedFaults().begin(), audit::PlantedFaults().end());
    for (Planted& each : all) {
      if (each.fault == planted.fault) each.pos += 1;
    }
    DoctorReport report = Healthy(folder.path());
    report.trials = TryAll(rules::Catalog(), all);
    EXPECT_EQ(DoctorExitCode(report), 70);
    const std::string name = kvguard_name("family", planted.code / 100);
    EXPECT_TRUE(Has(Joined(Problems(report)), "self-test: family " + name)) << name;
    EXPECT_TRUE(Has(DoctorText(report), "broken\n"));
    EXPECT_EQ(json::parse(DoctorJson(report)).at("exit_code"), 70);
  }
}

TEST(Doctor, AnAuditThatDidNotRunIsBlind) {
  const TestFolder folder;
  std::vector<Planted> all(audit::PlantedFaults().begin(), audit::PlantedFaults().end());
  for (Planted& each : all) {
    if (each.code == rules::kReadWhileLoading) each.facts += 1;
  }
  DoctorReport report = Healthy(folder.path());
  report.trials = TryAll(rules::Catalog(), all);
  EXPECT_EQ(DoctorExitCode(report), 2);
  EXPECT_TRUE(Has(Joined(Problems(report)), "armed but blind: family transfer"))
      << Joined(Problems(report));
  EXPECT_TRUE(Has(DoctorText(report), "cannot judge\n"));
}

TEST(Doctor, AFamilyWithoutAPlantedFaultIsBlind) {
  const TestFolder folder;
  std::vector<Planted> all(audit::PlantedFaults().begin(), audit::PlantedFaults().end());
  std::erase_if(all, [](const Planted& each) { return each.code / 100 == KVGUARD_FAMILY_COPY; });
  DoctorReport report = Healthy(folder.path());
  report.trials = TryAll(rules::Catalog(), all);
  EXPECT_EQ(DoctorExitCode(report), 2);
  EXPECT_TRUE(Has(Joined(Problems(report)), "family copy has rules and no planted fault"));
}

// --- configuration ---

TEST(DoctorConfig, ComesFromTheOptionThenTheEnvironmentThenTheDefaults) {
  const Environment environment = Of({{"KVGUARD_CONFIG", "{\"enabled\": true}"}});
  ConfigCheck config = CheckConfig("{\"action\": \"log\"}", environment);
  EXPECT_EQ(config.source, "--config");
  EXPECT_EQ(config.values.at("action"), "log");
  EXPECT_EQ(config.values.at("enabled"), false);
  config = CheckConfig(std::nullopt, environment);
  EXPECT_EQ(config.source, "KVGUARD_CONFIG");
  EXPECT_EQ(config.values.at("enabled"), true);
  EXPECT_EQ(config.values.at("self_test"), false);
  config = CheckConfig(std::nullopt, Of({{"KVGUARD_CONFIG", " \n"}}));
  EXPECT_EQ(config.source, "the defaults");
  EXPECT_EQ(config.error, "");
}

TEST(DoctorConfig, WhatTheCallerTypedIsAMistake) {
  try {
    CheckConfig("{\"actoin\": \"log\"}", Of({}));
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_EQ(error.exit_code(), 64);
    EXPECT_TRUE(Has(error.what(), "\"action\"")) << error.what();
  }
  try {
    CheckConfig("@/nonexistent.json", Of({}));
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_EQ(error.exit_code(), 65);
  }
}

TEST(DoctorConfig, WhatTheEnvironmentHoldsKeepsTheGuardFromArming) {
  const TestFolder folder;
  for (const char* text : {"{\"actoin\": \"log\"}", "{", "@/nonexistent.json"}) {
    DoctorReport report = Healthy(folder.path());
    report.config = CheckConfig(std::nullopt, Of({{"KVGUARD_CONFIG", text}}));
    EXPECT_EQ(DoctorExitCode(report), 2) << text;
    EXPECT_TRUE(Has(Joined(Problems(report)), "the guard could not arm: KVGUARD_CONFIG: "));
    EXPECT_EQ(json::parse(DoctorJson(report)).at("configuration").at("valid"), false);
  }
}

// --- folders ---

TEST(DoctorPlaces, AreWhereTheGuardWouldWrite) {
  const TestFolder folder;
  std::filesystem::create_directory(folder / "traces");
  const std::string config = "{\"incident_dir\": \"" + folder.path() + "\", \"record\": \"" +
                             (folder / "traces/run-%r-%p.kvtrace") + "\"}";
  const auto places =
      CheckPlaces(CheckConfig(config, Of({})), Of({{"KVGUARD_STATUS_DIR", folder.path()}}));
  ASSERT_EQ(places.size(), 3u);
  EXPECT_EQ(places[0].what, "incidents");
  EXPECT_EQ(places[0].folder, std::filesystem::path(folder.path()).lexically_normal().string());
  EXPECT_EQ(places[1].folder, folder / "traces");
  EXPECT_EQ(places[2].folder, places[0].folder);
  for (const PlaceCheck& place : places) {
    EXPECT_EQ(place.error, "") << place.what;
    EXPECT_GT(place.free_bytes.value_or(0), 0u);
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1)
      << "nothing is left behind";
}

TEST(DoctorPlaces, ByDefaultIncidentsGoToTheWorkingFolderAndNothingElseIsWritten) {
  const auto places = CheckPlaces(CheckConfig(std::nullopt, Of({})), Of({}));
  EXPECT_EQ(places[0].folder, std::filesystem::current_path().string());
  EXPECT_EQ(places[1].folder, "");
  EXPECT_EQ(places[2].folder, "");
}

TEST(DoctorPlaces, AFolderThatCannotBeWrittenIsAProblem) {
  const TestFolder folder;
  DoctorReport report = Healthy(folder / "missing");
  EXPECT_EQ(DoctorExitCode(report), 2);
  EXPECT_TRUE(Has(Joined(Problems(report)), "incidents would be lost: " + (folder / "missing")))
      << Joined(Problems(report));
  EXPECT_EQ(json::parse(DoctorJson(report)).at("places").at(0).at("writable"), false);
}

// --- the Python side ---

TEST(DoctorPython, NobodyIsBlamedForAnEngineThatWasNotAskedFor) {
  const TestFolder folder;
  DoctorReport report = Healthy(folder.path());
  EXPECT_EQ(DoctorExitCode(report), 0) << "no package";
  report.python = Answered({{"installed", false}, {"probed", false}, {"version", ""}});
  EXPECT_EQ(DoctorExitCode(report), 0) << "no vLLM";
  EXPECT_TRUE(Has(DoctorText(report), "not installed there"));
  report.python = Answered({{"installed", true}, {"probed", false}, {"version", "0.32.0"}});
  EXPECT_EQ(DoctorExitCode(report), 0);
  EXPECT_TRUE(Has(DoctorText(report), "0.32.0 is installed; --engine vllm"));
}

TEST(DoctorPython, AnEngineThatWasAskedForHasToBeThere) {
  const TestFolder folder;
  DoctorReport report = Healthy(folder.path());
  report.engine = "vllm";
  EXPECT_EQ(DoctorExitCode(report), 2) << "no package";
  report.python = Answered({{"installed", false}, {"probed", false}, {"version", ""}});
  EXPECT_EQ(DoctorExitCode(report), 2);
  report.python = Answered({{"installed", true},
                            {"probed", true},
                            {"importable", false},
                            {"version", "0.32.0"},
                            {"reason", "it cannot be imported: ImportError: libcuda"}});
  EXPECT_EQ(DoctorExitCode(report), 2);
  EXPECT_TRUE(Has(Joined(Problems(report)), "0.32.0: it cannot be imported: ImportError: libcuda"));
  report.python = Answered(kProbed);
  EXPECT_EQ(DoctorExitCode(report), 0) << Joined(Problems(report));
  EXPECT_TRUE(Has(DoctorText(report), "0.32.0 from /x/vllm, platform cpu"));
}

TEST(DoctorPython, AProbeThatFailsIsNamed) {
  const TestFolder folder;
  DoctorReport report = Healthy(folder.path());
  report.engine = "vllm";
  json vllm = kProbed;
  vllm["probes"][0] = {{"name", "device"}, {"passed", false}, {"reason", "no staging"}};
  report.python = Answered(vllm);
  EXPECT_EQ(DoctorExitCode(report), 2);
  EXPECT_EQ(Joined(Problems(report)), "the guard would not arm: device: no staging\n");
  EXPECT_TRUE(Has(DoctorText(report), "fails: no staging"));
  EXPECT_TRUE(Has(DoctorText(report), "passes: a.Runner"));
}

TEST(DoctorPython, AModuleThatDoesNotLoadOrJudgesWronglyIsAProblem) {
  const TestFolder folder;
  DoctorReport report = Healthy(folder.path());
  report.python = Answered({{"installed", false}});
  report.python.answer["kvguard"]["self_test"] = "family slot: ...";
  EXPECT_EQ(DoctorExitCode(report), 2);
  report.python.answer["kvguard"] = {{"core", false}, {"reason", "the extension module ..."}};
  EXPECT_EQ(DoctorExitCode(report), 2);
  EXPECT_TRUE(Has(Joined(Problems(report)), "could not arm: the extension module"));
}

// --- the command ---

// What is asked is played by a shell in the interpreter's place.
std::string Interpreter(const TestFolder& folder, const std::string& body) {
  const std::string path = folder / "python3";
  tools::WriteBytes(path, "#!/bin/sh\n" + body + "\n");
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return "--python '" + path + "'";
}

TEST(DoctorCommand, AllWell) {
  const TestFolder folder;
  const std::string config = "--config '{\"incident_dir\": \"" + folder.path() + "\"}' ";
  const std::string python = Interpreter(folder, "echo 'no module'; exit 3");
  const Ran ran = RunCommand("doctor " + config + python);
  EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
  EXPECT_EQ(ran.err, "");
  for (const char* part : {"family", "KV0401", "KV1101", "library", "comparisons", "configuration",
                           "writable", "GiB free", "has no kvguard: no module", "all well"}) {
    EXPECT_TRUE(Has(ran.out, part)) << part << "\n" << ran.out;
  }
  const Ran asked = RunCommand("doctor --json " + config + python);
  EXPECT_EQ(asked.code, 0);
  const json out = json::parse(asked.out);
  EXPECT_EQ(out.at("schema"), "kvguard.doctor.v1");
  EXPECT_EQ(out.at("exit_code"), 0);
  EXPECT_TRUE(out.at("problems").empty());
  EXPECT_GE(out.at("self_test").size(), 22u);
}

TEST(DoctorCommand, AsksTheInterpreter) {
  const TestFolder folder;
  const std::string config = "--config '{\"incident_dir\": \"" + folder.path() + "\"}' ";
  tools::WriteBytes(folder / "answer", Answered(kProbed).answer.dump());
  const std::string python = Interpreter(folder, "cat '" + (folder / "answer") + "'");
  const Ran ran = RunCommand("doctor --engine vllm " + config + python);
  EXPECT_EQ(ran.code, 0) << ran.out;
  EXPECT_TRUE(Has(ran.out, "passes: a.Runner")) << ran.out;
  EXPECT_TRUE(Has(ran.err, "kvguard: asking ")) << ran.err;
  for (const std::string body : {"echo x", "exit 1", "exit 3"}) {
    const std::string odd = Interpreter(folder, body);
    EXPECT_EQ(RunCommand("doctor " + config + odd).code, 0) << body;
    const Ran engine = RunCommand("doctor --engine vllm " + config + odd);
    EXPECT_EQ(engine.code, 2) << body;
    EXPECT_TRUE(Has(engine.out, "Python side was not checked")) << engine.out;
  }
  EXPECT_EQ(RunCommand("doctor --engine vllm --python /nonexistent " + config).code, 2);
}

TEST(DoctorCommand, TellsWhatIsWrong) {
  const TestFolder folder;
  const std::string python = Interpreter(folder, "exit 3");
  Ran ran = RunCommand("doctor --config '{\"incident_dir\": \"/nonexistent\"}' " + python);
  EXPECT_EQ(ran.code, 2);
  EXPECT_TRUE(Has(ran.out, "incidents would be lost")) << ran.out;
  ran = RunCommand("doctor " + python, "KVGUARD_CONFIG='{\"actoin\": 1}'");
  EXPECT_EQ(ran.code, 2);
  EXPECT_TRUE(Has(ran.out, "the guard could not arm: KVGUARD_CONFIG: unknown key")) << ran.out;
  ran = RunCommand("doctor --config '{\"actoin\": 1}' " + python);
  EXPECT_EQ(ran.code, 64);
  EXPECT_EQ(ran.out, "");
  EXPECT_EQ(RunCommand("doctor --config @/nonexistent " + python).code, 65);
  ran = RunCommand("doctor --engine sglang " + python);
  EXPECT_EQ(ran.code, 64);
  EXPECT_TRUE(Has(ran.err, "vllm")) << ran.err;
  EXPECT_EQ(RunCommand("doctor now").code, 64);
  ran = RunCommand("doctor --help");
  EXPECT_EQ(ran.code, 0);
  for (const char* part : {"--engine", "--config", "--json", "--python", "exit codes", "70"})
    EXPECT_TRUE(Has(ran.out, part)) << part;
}

}  // namespace
}  // namespace kvguard::cli
