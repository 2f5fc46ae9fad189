// SPDX-License-Identifier: Apache-2.0
#include "cli/run.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/run_command.h"
#include "cli/run_status.h"

namespace kvguard::cli {
namespace {

using nlohmann::json;
using Strings = std::vector<std::string>;

int ExitCodeOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.exit_code();
  }
  return 0;
}

json ConfigIn(const Strings& command) {
  for (size_t i = 0; i < command.size(); ++i) {
    if (command[i] == "--additional-config" || command[i] == "--additional_config")
      return json::parse(command[i + 1]);
    if (command[i].rfind("--additional-config=", 0) == 0) return json::parse(command[i].substr(20));
  }
  return {};
}

json Status(const std::string& state, const std::string& verdict) {
  return {{"schema", "kvguard.status.v1"},
          {"state", state},
          {"verdict", verdict},
          {"rank", 0},
          {"pid", 4242},
          {"reason", nullptr},
          {"counts",
           {{"steps", 7},
            {"steps_judged", 7},
            {"rows", 20},
            {"slots", 90},
            {"suspicions", 1},
            {"assumptions", 2}}},
          {"coverage", json::array()},
          {"gaps",
           {{{"name", "prefix-content-unproved"},
             {"standing", true},
             {"count", 0},
             {"first_step", 0}}}},
          {"findings", json::array()}};
}

TEST(RunOptions, CommandComesBehindTwoDashes) {
  const RunOptions options =
      ParseRunOptions({"--action", "log", "--json", "--", "vllm", "serve", "--action", "x"});
  EXPECT_EQ(options.action, "log");
  EXPECT_TRUE(options.json);
  EXPECT_EQ(options.command, (Strings{"vllm", "serve", "--action", "x"}));
}

TEST(RunOptions, WrongUsageIs64) {
  EXPECT_EQ(ExitCodeOf([] { ParseRunOptions({}); }), 64);
  EXPECT_EQ(ExitCodeOf([] { ParseRunOptions({"--"}); }), 64);
  EXPECT_EQ(ExitCodeOf([] { ParseRunOptions({"vllm", "serve"}); }), 64);
  EXPECT_EQ(ExitCodeOf([] { ParseRunOptions({"--action", "--", "x"}); }), 64);
  EXPECT_EQ(ExitCodeOf([] { ParseRunOptions({"--action=stop", "--", "x"}); }), 64);
}

TEST(RunConfig, OptionsStandInTheConfiguration) {
  RunOptions options;
  options.config = R"({"history_steps": 8, "action": "raise"})";
  options.action = "log";
  options.record = "/tmp/%p.kvtrace";
  const json config = json::parse(GuardConfig(options));
  EXPECT_EQ(config, (json{{"enabled", true},
                          {"history_steps", 8},
                          {"action", "log"},
                          {"record", "/tmp/%p.kvtrace"}}));
}

TEST(RunConfig, MistakesAreNamed) {
  RunOptions options;
  options.config = R"({"actoin": "log"})";
  try {
    GuardConfig(options);
    FAIL() << "an unknown key was taken";
  } catch (const UsageError& error) {
    EXPECT_EQ(error.exit_code(), 64);
    EXPECT_NE(std::string(error.what()).find("action"), std::string::npos) << error.what();
  }
  options.config = "[]";
  EXPECT_EQ(ExitCodeOf([&] { GuardConfig(options); }), 64);
  options.config = "{";
  EXPECT_EQ(ExitCodeOf([&] { GuardConfig(options); }), 64);
  options.config = R"({"enabled": false})";
  EXPECT_EQ(ExitCodeOf([&] { GuardConfig(options); }), 64);
  options.config = "@/nonexistent/kvguard.json";
  EXPECT_EQ(ExitCodeOf([&] { GuardConfig(options); }), 65);
}

TEST(RunCommand, KnowsVllmServers) {
  EXPECT_TRUE(IsVllmServer({"vllm", "serve", "model"}));
  EXPECT_TRUE(IsVllmServer({"/opt/venv/bin/vllm", "serve", "model"}));
  EXPECT_TRUE(IsVllmServer({"env", "A=1", "vllm", "serve", "model"}));
  EXPECT_TRUE(IsVllmServer({"python", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"}));
  EXPECT_TRUE(
      IsVllmServer({"/usr/bin/python3.11", "-u", "-m", "vllm.entrypoints.openai.api_server"}));
  EXPECT_TRUE(IsVllmServer({"python3", "/opt/venv/bin/vllm", "serve", "model"}));
  EXPECT_FALSE(IsVllmServer({"vllm", "bench"}));
  EXPECT_FALSE(IsVllmServer({"python", "script.py", "vllm", "serve"}));
  EXPECT_FALSE(IsVllmServer({"python", "-c", "import vllm"}));
  EXPECT_FALSE(IsVllmServer({"sh", "-c", "vllm serve"}));
  EXPECT_FALSE(IsVllmServer({}));
}

TEST(RunCommand, AddsWorkerAndConfiguration) {
  const Strings command = GuardedCommand({"vllm", "serve", "m"}, R"({"enabled":true})");
  EXPECT_EQ(Strings(command.begin(), command.begin() + 5),
            (Strings{"vllm", "serve", "m", "--worker-cls", "kvguard.vllm.GuardWorker"}));
  EXPECT_EQ(ConfigIn(command), (json{{"kv_guard_config", {{"enabled", true}}}}));
}

TEST(RunCommand, MergesWhatTheCommandHas) {
  for (const Strings& form :
       {Strings{"--additional-config", R"({"a": 1, "kv_guard_config": {"latch": false}})"},
        Strings{R"(--additional-config={"a": 1, "kv_guard_config": {"latch": false}})"},
        Strings{"--additional_config", R"({"a": 1, "kv_guard_config": {"latch": false}})"}}) {
    Strings command = {"vllm", "serve", "m"};
    command.insert(command.end(), form.begin(), form.end());
    command.push_back("--port=1");
    const Strings guarded = GuardedCommand(command, R"({"enabled":true})");
    EXPECT_EQ(ConfigIn(guarded),
              (json{{"a", 1}, {"kv_guard_config", {{"enabled", true}, {"latch", false}}}}));
    EXPECT_EQ(std::count(guarded.begin(), guarded.end(), "--port=1"), 1);
  }
  const Strings guarded =
      GuardedCommand({"vllm", "serve", "--worker-cls", "kvguard.vllm.GuardWorker"}, "{}");
  EXPECT_EQ(std::count(guarded.begin(), guarded.end(), "--worker-cls"), 1);
}

TEST(RunCommand, LetsTheEngineEndInOrder) {
  const Strings added = GuardedCommand({"vllm", "serve", "m"}, "{}");
  EXPECT_EQ(Strings(added.end() - 2, added.end()), (Strings{"--shutdown-timeout", "20"}));
  const Strings kept = GuardedCommand({"vllm", "serve", "m", "--shutdown-timeout=3"}, "{}");
  EXPECT_EQ(std::count(kept.begin(), kept.end(), "--shutdown-timeout"), 0);
}

TEST(RunCommand, RefusesWhatItCannotMerge) {
  EXPECT_EQ(ExitCodeOf([] { GuardedCommand({"vllm", "serve", "--worker-cls", "a.B"}, "{}"); }), 64);
  EXPECT_EQ(ExitCodeOf([] { GuardedCommand({"vllm", "serve", "--worker_cls=a.B"}, "{}"); }), 64);
  EXPECT_EQ(ExitCodeOf([] { GuardedCommand({"vllm", "serve", "--additional-config", "{"}, "{}"); }),
            64);
  EXPECT_EQ(
      ExitCodeOf([] { GuardedCommand({"vllm", "serve", "--additional-config", "[]"}, "{}"); }), 64);
  EXPECT_EQ(ExitCodeOf([] { GuardedCommand({"vllm", "serve", "--additional-config"}, "{}"); }), 64);
  EXPECT_EQ(
      ExitCodeOf([] { GuardedCommand({"vllm", "serve", "--additional-config.a", "1"}, "{}"); }),
      64);
}

TEST(RunCommand, OtherCommandsGetTheEnvironment) {
  EXPECT_EQ(GuardedCommand({"python", "x.py"}, "{}"), (Strings{"python", "x.py"}));
  auto environment = GuardedEnvironment({"python", "x.py"}, "{}", "/d", {});
  EXPECT_EQ(environment, (std::map<std::string, std::string>{{"KVGUARD_CONFIG", "{}"},
                                                             {"KVGUARD_STATUS_DIR", "/d"},
                                                             {"VLLM_USE_V2_MODEL_RUNNER", "1"}}));
  environment =
      GuardedEnvironment({"vllm", "serve"}, "{}", "/d", {{"VLLM_USE_V2_MODEL_RUNNER", "0"}});
  EXPECT_EQ(environment, (std::map<std::string, std::string>{{"KVGUARD_STATUS_DIR", "/d"}}));
}

TEST(RunVerdict, CleanNeedsAStoppedRankAndASuccessfulCommand) {
  EXPECT_EQ(Conclude({Status("stopped", "clean")}, 0).exit_code, 0);
  EXPECT_EQ(Conclude({Status("stopped", "clean")}, 1).exit_code, 2);
  EXPECT_EQ(Conclude({Status("stopped", "cannot_judge")}, 0).exit_code, 2);
  for (const char* state : {"armed", "starting", "not_armed", "failed", "odd"}) {
    EXPECT_EQ(Conclude({Status(state, "clean")}, 0).exit_code, 2) << state;
  }
  EXPECT_EQ(Conclude({}, 0).exit_code, 2);
  EXPECT_EQ(Conclude({json{{"unreadable", "x"}}}, 0).exit_code, 2);
  EXPECT_EQ(Conclude({Status("stopped", "clean"), Status("armed", "clean")}, 0).exit_code, 2);
}

TEST(RunVerdict, ViolatedIsViolatedHoweverTheCommandEnded) {
  for (const char* state : {"armed", "stopped", "failed"}) {
    EXPECT_EQ(Conclude({Status(state, "violated")}, 137).exit_code, 1) << state;
  }
  EXPECT_EQ(Conclude({Status("armed", "clean"), Status("stopped", "violated")}, 0).verdict,
            "violated");
}

TEST(RunVerdict, Line) {
  json second = Status("stopped", "clean");
  second["gaps"].push_back(
      {{"name", "step-abandoned"}, {"standing", false}, {"count", 3}, {"first_step", 2}});
  second["findings"].push_back({{"line", "kvguard KV0401 slot-mismatch"}, {"prose", "Prose."}});
  EXPECT_EQ(ResultText(Conclude({Status("stopped", "clean"), second}, 0)),
            "kvguard: clean steps=14 rows=40 slots=180 suspicions=2 assumptions=4 "
            "gaps=[prefix-content-unproved, step-abandoned(3)] command-status=0\n"
            "kvguard KV0401 slot-mismatch\nProse.\n");
  const json result = json::parse(ResultJson(Conclude({}, 3)));
  EXPECT_EQ(result["verdict"], "cannot_judge");
  EXPECT_EQ(result["command_status"], 3);
  EXPECT_EQ(result["reasons"].size(), 2u);
}

TEST(RunVerdict, FamiliesThatJudgedNothingAreNamed) {
  json blind = Status("stopped", "cannot_judge");
  blind["coverage"] = {
      {{"family", "table"}, {"group", 0}, {"expected", true}, {"judged", 0}},
      {{"family", "slot"}, {"group", 0}, {"expected", true}, {"judged", 7}},
      {{"family", "length"}, {"group", nullptr}, {"expected", true}, {"judged", 0}},
      {{"family", "copy"}, {"group", nullptr}, {"expected", false}, {"judged", 0}},
  };
  const std::string sees =
      "armed but blind: nothing was judged by family table of group 0, "
      "family length";
  RunResult result = Conclude({blind}, 0);
  EXPECT_EQ(result.exit_code, 2);
  ASSERT_EQ(result.reasons.size(), 1u);
  EXPECT_NE(result.reasons[0].find(": " + sees), std::string::npos) << result.reasons[0];
  blind["gaps"].push_back(
      {{"name", "step-abandoned"}, {"standing", false}, {"count", 3}, {"first_step", 2}});
  result = Conclude({blind}, 0);
  EXPECT_NE(result.reasons[0].find("step-abandoned; " + sees), std::string::npos)
      << result.reasons[0];
}

// The command's part is played by a shell that writes a status file as an engine would.
class RunProcess : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ =
        std::filesystem::temp_directory_path() / ("kvguard-run-test-" + std::to_string(::getpid()));
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string File(const json& status) {
    const std::filesystem::path path = directory_ / "status";
    std::ofstream(path) << status.dump();
    return path.string();
  }

  int RunShell(const std::string& script, Strings options = {}) {
    options.insert(options.end(), {"--", "sh", "-c", script});
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = cli::Run(options);
    out_ = testing::internal::GetCapturedStdout();
    err_ = testing::internal::GetCapturedStderr();
    return code;
  }

  std::filesystem::path directory_;
  std::string out_;
  std::string err_;
};

TEST_F(RunProcess, CleanViolatedAndNoStatus) {
  const std::string clean = File(Status("stopped", "clean"));
  EXPECT_EQ(RunShell("cp " + clean + " $KVGUARD_STATUS_DIR/a.json"), 0) << out_;
  EXPECT_NE(out_.find("kvguard: clean steps=7"), std::string::npos) << out_;
  EXPECT_EQ(RunShell("cp " + clean + " $KVGUARD_STATUS_DIR/a.json; exit 5"), 2);
  EXPECT_NE(out_.find("command-status=5"), std::string::npos) << out_;
  EXPECT_EQ(RunShell("cp " + clean + " $KVGUARD_STATUS_DIR/a.json; kill -9 $$"), 2);
  EXPECT_NE(out_.find("command-status=137"), std::string::npos) << out_;
  const std::string violated = File(Status("armed", "violated"));
  EXPECT_EQ(RunShell("cp " + violated + " $KVGUARD_STATUS_DIR/a.json; exit 1"), 1);
  EXPECT_EQ(RunShell("true"), 2);
  EXPECT_NE(out_.find("no engine told its status"), std::string::npos) << out_;
}

TEST_F(RunProcess, TheCommandSeesItsConfiguration) {
  EXPECT_EQ(RunShell("echo \"$KVGUARD_CONFIG $VLLM_USE_V2_MODEL_RUNNER\"", {"--action", "log"}), 2);
  EXPECT_NE(out_.find(R"({"action":"log","enabled":true} 1)"), std::string::npos) << out_;
}

TEST_F(RunProcess, JsonKeepsStdoutToItself) {
  EXPECT_EQ(RunShell("echo noise", {"--json"}), 2);
  EXPECT_EQ(json::parse(out_)["exit_code"], 2);
  EXPECT_NE(err_.find("noise"), std::string::npos);
}

TEST_F(RunProcess, AGivenDirectoryKeepsItsFiles) {
  const std::string clean = File(Status("stopped", "clean"));
  const std::string statuses = (directory_ / "statuses").string();
  EXPECT_EQ(RunShell("cp " + clean + " $KVGUARD_STATUS_DIR/a.json", {"--status-dir", statuses}), 0);
  EXPECT_TRUE(std::filesystem::exists(statuses + "/a.json"));
  EXPECT_EQ(RunShell("true", {"--status-dir", statuses}), 2)
      << "a file of an earlier run is not this run's";
}

TEST_F(RunProcess, SignalsReachTheCommand) {
  const std::string clean = File(Status("stopped", "clean"));
  const std::string ready = (directory_ / "ready").string();
  std::thread sender([&] {
    sigset_t term;  // it is sent to the process; this thread must not be the one that takes it
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &term, nullptr);
    for (int i = 0; i < 200 && !std::filesystem::exists(ready); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    ::kill(::getpid(), SIGTERM);
  });
  const int code =
      RunShell("trap 'cp " + clean + " $KVGUARD_STATUS_DIR/a.json; exit 0' TERM; touch " + ready +
               "; while :; do sleep 0.05; done");
  sender.join();
  EXPECT_EQ(code, 0) << out_ << err_;
}

TEST_F(RunProcess, ACommandThatIsNotThere) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(cli::Run({"--", "/nonexistent/engine"}), 2);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("cannot be started"), std::string::npos);
}

}  // namespace
}  // namespace kvguard::cli
