// SPDX-License-Identifier: Apache-2.0
// The command as a user meets it.
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/test_command.h"
#include "rules/catalog.h"
#include "tools/test_trace.h"

namespace kvguard::cli {
namespace {

using nlohmann::json;
using tools::TestFolder;

std::string Q(const std::string& path) { return "'" + path + "'"; }

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A mistake gives one sentence on stderr, and no result.
void ExpectMistake(const std::string& arguments, int code, const std::string& part) {
  const Ran ran = RunCommand(arguments);
  EXPECT_EQ(ran.code, code) << arguments << "\n" << ran.err;
  EXPECT_TRUE(ran.out.empty()) << arguments << "\n" << ran.out;
  EXPECT_TRUE(Has(ran.err, "kvguard: ")) << arguments << "\n" << ran.err;
  EXPECT_TRUE(Has(ran.err, part)) << arguments << "\n" << ran.err;
}

TEST(Command, HelpNamesEveryCommandAndExitCode) {
  for (const char* arguments : {"--help", "-h", "help"}) {
    const Ran ran = RunCommand(arguments);
    EXPECT_EQ(ran.code, 0);
    for (const char* word : {"run -- CMD", "demo", "replay", "explain", "trace dump", "trace info",
                             "rules", "config", "lab SCENARIO", "doctor", "selftest", "version",
                             "exit codes", "64", "65", "70", "vllm serve"}) {
      EXPECT_TRUE(Has(ran.out, word)) << word;
    }
  }
}

TEST(Command, EveryCommandHasHelp) {
  for (const char* name : {"run", "demo", "replay", "explain", "trace", "trace dump", "trace info",
                           "rules", "config", "lab", "doctor", "selftest", "version"}) {
    const Ran ran = RunCommand(std::string(name) + " --help");
    EXPECT_EQ(ran.code, 0) << name;
    EXPECT_GT(ran.out.size(), 40u) << name;
    EXPECT_TRUE(ran.err.empty()) << name << ran.err;
  }
  EXPECT_TRUE(Has(RunCommand("replay --help").out, "--coverage"));
  EXPECT_TRUE(Has(RunCommand("replay --help").out, "Usage: kvguard replay"));
  EXPECT_TRUE(Has(RunCommand("trace dump --help").out, "--jsonl"));
}

TEST(Command, Version) {
  for (const char* arguments : {"--version", "version", "-V"}) {
    const Ran ran = RunCommand(arguments);
    EXPECT_EQ(ran.code, 0);
    EXPECT_EQ(ran.out, std::string("kvguard ") + kvguard_version() + "\n");
  }
}

TEST(Command, SelfTest) {
  const Ran ran = RunCommand("selftest");
  EXPECT_EQ(ran.code, 0);
  EXPECT_TRUE(Has(ran.out, kvguard_version()));
}

TEST(Command, WrongUsageIs64) {
  ExpectMistake("", 64, "a command is needed");
  ExpectMistake("replya x", 64, "did you mean 'replay'?");
  ExpectMistake("--vresion", 64, "did you mean '--version'?");
  ExpectMistake("''", 64, "no command ''");
  ExpectMistake("replay", 64, "FILE");
  ExpectMistake("replay a b", 64, "'b'");
  ExpectMistake("replay a --jsno", 64, "did you mean '--json'?");
  ExpectMistake("trace", 64, "dump, info");
  ExpectMistake("trace dmup x", 64, "dmup");
  ExpectMistake("explain x --step abc", 64, "--step");
  ExpectMistake("explain x --step -1", 64, "--step");
  ExpectMistake("explain x --step 99999999999999999999999", 64, "--step");
  ExpectMistake("config --schema --docs", 64, "--");
  ExpectMistake("run", 64, "--");
  ExpectMistake("run vllm serve", 64, "--");
}

TEST(Command, UnreadableInputIs65) {
  const TestFolder folder;
  tools::WriteBytes(folder / "text", "no trace\n");
  tools::WriteBytes(folder / "empty", "");
  for (const std::string command :
       {"replay ", "replay --json ", "explain ", "trace dump ", "trace info "}) {
    ExpectMistake(command + Q(folder / "text"), 65, folder / "text");
    ExpectMistake(command + Q(folder / "empty"), 65, folder / "empty");
    ExpectMistake(command + Q(folder / "missing"), 65, folder / "missing");
    ExpectMistake(command + Q(folder.path()), 65, folder.path());
  }
  ExpectMistake("demo " + Q(folder / "missing"), 65, "does not exist");
  ExpectMistake("demo " + Q(folder / "text"), 65, "no folder");
  ExpectMistake("demo " + Q(folder.path()), 65, "holds no *.kvtrace");
  ExpectMistake("config --check @" + Q(folder / "missing"), 65, "cannot be read");
}

TEST(Command, ReplayOfARightRun) {
  const TestFolder folder;
  tools::RecordHealthy(folder / "run.kvtrace");
  const Ran ran = RunCommand("replay " + Q(folder / "run.kvtrace"));
  EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
  EXPECT_TRUE(Has(ran.out, "verdict      clean\n")) << ran.out;
  EXPECT_TRUE(Has(ran.out, "40, of which 40 with tokens and judged")) << ran.out;
  EXPECT_FALSE(Has(ran.out, "kvguard KV"));
  EXPECT_TRUE(ran.err.empty()) << ran.err;
  EXPECT_EQ(RunCommand("replay " + Q(folder / "run.kvtrace")).out, ran.out) << "equal bytes";
  const Ran coverage = RunCommand("replay --coverage " + Q(folder / "run.kvtrace"));
  EXPECT_TRUE(Has(coverage.out, "ownership")) << coverage.out;
}

TEST(Command, ReplayOfAViolatedRun) {
  const TestFolder folder;
  const std::string reported = tools::RecordViolated(folder / "run.kvtrace");
  const Ran ran = RunCommand("replay " + Q(folder / "run.kvtrace"));
  EXPECT_EQ(ran.code, 1);
  EXPECT_EQ(ran.out.substr(0, reported.size()), reported);
  EXPECT_TRUE(Has(ran.out, "the first is step 20")) << ran.out;
}

TEST(Command, ReplayOfDamagedRuns) {
  const TestFolder folder;
  tools::RecordHealthy(folder / "run.kvtrace");
  tools::RecordViolated(folder / "wrong.kvtrace");
  for (const std::string name : {"run", "wrong"}) {
    const std::string bytes = tools::ReadBytes(folder / (name + ".kvtrace"));
    tools::WriteBytes(folder / (name + "-cut.kvtrace"), bytes.substr(0, bytes.size() - 30));
  }
  const Ran right = RunCommand("replay " + Q(folder / "run-cut.kvtrace"));
  EXPECT_EQ(right.code, 2);
  EXPECT_TRUE(Has(right.out, "verdict      cannot_judge")) << right.out;
  EXPECT_TRUE(Has(right.out, "because")) << right.out;
  const Ran wrong = RunCommand("replay " + Q(folder / "wrong-cut.kvtrace"));
  EXPECT_EQ(wrong.code, 1);
  EXPECT_TRUE(Has(wrong.out, "truncated") || Has(wrong.out, "damaged")) << wrong.out;
}

TEST(Command, ReplayAsJson) {
  const TestFolder folder;
  tools::RecordViolated(folder / "run.kvtrace");
  const Ran ran = RunCommand("replay --json " + Q(folder / "run.kvtrace"));
  EXPECT_EQ(ran.code, 1);
  const json out = json::parse(ran.out);
  EXPECT_EQ(out.at("schema"), "kvguard.replay.v1");
  EXPECT_EQ(out.at("verdict"), "violated");
  EXPECT_EQ(out.at("exit_code"), 1);
  EXPECT_EQ(out.at("counts").at("steps"), 40);
  EXPECT_EQ(out.at("counts").at("first_violated_step"), 20);
  EXPECT_EQ(out.at("findings").at(0).at("code"), "KV0401");
  EXPECT_EQ(out.at("findings").at(0).at("step"), 20);
  EXPECT_FALSE(out.at("coverage").empty());
  EXPECT_EQ(out.at("damage"), nullptr);
}

TEST(Command, ExplainShowsTheFirstViolatedStep) {
  const TestFolder folder;
  tools::RecordViolated(folder / "run.kvtrace");
  const std::string file = Q(folder / "run.kvtrace");
  const Ran ran = RunCommand("explain " + file);
  EXPECT_EQ(ran.code, 1) << ran.err;
  for (const char* part : {"kvguard KV0401", "tried: row-of", "fits:", "plan of step 20",
                           "request a%20b", "expected", "verdict"}) {
    EXPECT_TRUE(Has(ran.out, part)) << part << "\n" << ran.out;
  }
  const Ran one = RunCommand("explain --sequence 0 " + file);
  EXPECT_EQ(one.code, 1);
  EXPECT_TRUE(Has(one.out, "kvguard KV0401")) << one.out;
  const Ran other = RunCommand("explain --step 7 " + file);
  EXPECT_EQ(other.code, 1);
  EXPECT_TRUE(Has(other.out, "plan of step 7")) << other.out;
  EXPECT_FALSE(Has(other.out, "kvguard KV")) << other.out;
  const json out = json::parse(RunCommand("explain --json " + file).out);
  EXPECT_EQ(out.at("records").at(0).at("record"), "plan");
  ExpectMistake("explain --step 4711 " + file, 64, "1..40");
  ExpectMistake("explain --sequence 4711 " + file, 64, "no finding 4711");
}

TEST(Command, ExplainOfARightRun) {
  const TestFolder folder;
  tools::RecordHealthy(folder / "run.kvtrace");
  const Ran ran = RunCommand("explain " + Q(folder / "run.kvtrace"));
  EXPECT_EQ(ran.code, 0);
  EXPECT_TRUE(Has(ran.out, "nothing was found")) << ran.out;
}

TEST(Command, TraceDumpIsOneObjectALine) {
  const TestFolder folder;
  tools::RecordHealthy(folder / "run.kvtrace");
  const Ran ran = RunCommand("trace dump --jsonl " + Q(folder / "run.kvtrace"));
  EXPECT_EQ(ran.code, 0) << ran.err;
  std::istringstream lines(ran.out);
  std::string line;
  size_t count = 0;
  while (std::getline(lines, line)) {
    const json object = json::parse(line);
    EXPECT_EQ(object.at("record") == "geometry", count == 0);
    ++count;
  }
  EXPECT_EQ(count, 122u);
  // What could be read of a damaged file is shown, but nobody takes it for the whole.
  const std::string bytes = tools::ReadBytes(folder / "run.kvtrace");
  tools::WriteBytes(folder / "cut.kvtrace", bytes.substr(0, bytes.size() / 2));
  const Ran cut = RunCommand("trace dump " + Q(folder / "cut.kvtrace"));
  EXPECT_EQ(cut.code, 65);
  EXPECT_FALSE(cut.out.empty());
  EXPECT_TRUE(Has(cut.err, "damaged") || Has(cut.err, "truncated")) << cut.err;
}

TEST(Command, TraceInfo) {
  const TestFolder folder;
  tools::RecordHealthy(folder / "run.kvtrace");
  const Ran ran = RunCommand("trace info " + Q(folder / "run.kvtrace"));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(Has(ran.out, "full, blocks of 4 tokens")) << ran.out;
  EXPECT_TRUE(Has(ran.out, "40, from 1 to 40")) << ran.out;
  const json out = json::parse(RunCommand("trace info --json " + Q(folder / "run.kvtrace")).out);
  EXPECT_EQ(out.at("steps"), 40);
  EXPECT_EQ(out.at("closed"), true);
  EXPECT_EQ(out.at("geometry").at("engine"), "scenario");
  EXPECT_EQ(out.at("config").at("action"), "raise");
}

TEST(Command, RulesListsEveryRule) {
  const Ran ran = RunCommand("rules");
  EXPECT_EQ(ran.code, 0);
  const json all = json::parse(RunCommand("rules --json").out);
  EXPECT_EQ(all.size(), rules::Catalog().size());
  for (const kvguard_rule& rule : rules::Catalog()) EXPECT_TRUE(Has(ran.out, rule.name));
}

TEST(Command, OneRule) {
  for (const char* word :
       {"KV0401", "kv0401", "0401", "401", "KV401", "slot-mismatch", "SLOT-MISMATCH"}) {
    const Ran ran = RunCommand(std::string("rules ") + word);
    EXPECT_EQ(ran.code, 0) << word;
    EXPECT_TRUE(Has(ran.out, "KV0401")) << word;
    EXPECT_TRUE(Has(ran.out, "slot-mismatch")) << word;
  }
  EXPECT_EQ(json::parse(RunCommand("rules 401 --json").out).at("family"), "slot");
  ExpectMistake("rules 409", 64, "KV0407 slot-not-local");
  ExpectMistake("rules slot-mismatsh", 64, "KV0401 slot-mismatch");
  ExpectMistake("rules nonsense-of-some-length", 64, "lists them all");
  ExpectMistake("rules KV04011", 64, "no rule");
  ExpectMistake("rules 0", 64, "no rule");
}

TEST(Command, Config) {
  const Ran docs = RunCommand("config --docs");
  EXPECT_EQ(docs.code, 0);
  EXPECT_TRUE(Has(docs.out, "| "));
  EXPECT_TRUE(Has(RunCommand("config").out, "kv_guard_config"));
  const json schema = json::parse(RunCommand("config --schema").out);
  EXPECT_TRUE(schema.at("properties").contains("action"));
  EXPECT_EQ(RunCommand("config --check '{\"enabled\":true,\"action\":\"log\"}'").code, 0);
  const TestFolder folder;
  tools::WriteBytes(folder / "good.json", "{\"enabled\": true}");
  tools::WriteBytes(folder / "bad.json", "{\"enabled\": ");
  EXPECT_EQ(RunCommand("config --check @" + Q(folder / "good.json")).code, 0);
  ExpectMistake("config --check @" + Q(folder / "bad.json"), 64, "");
  ExpectMistake("config --check '{\"acton\":\"log\"}'", 64, "action");
  ExpectMistake("config --check '[]'", 64, "");
  ExpectMistake("config --check ''", 64, "");
}

TEST(Command, AResultThatCannotBeWrittenIsNoSuccess) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "this system has no /dev/full";
  const TestFolder folder;
  const int status =
      // NOLINTNEXTLINE(cert-env33-c): what a shell would run
      std::system(("'" KVGUARD_COMMAND "' rules >/dev/full 2>'" + (folder / "err") + "'").c_str());
  EXPECT_EQ(WEXITSTATUS(status), 70);
  EXPECT_TRUE(Has(tools::ReadBytes(folder / "err"), "could not be written"));
}

}  // namespace
}  // namespace kvguard::cli
