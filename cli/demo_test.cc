// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <gtest/gtest.h>

#include "cli/test_command.h"
#include "tools/plant.h"
#include "tools/test_trace.h"

namespace kvguard::cli {
namespace {

using tools::TestFolder;

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

constexpr char kLastLines[] =
    "  kvguard run -- vllm serve MODEL\n"
    "  vllm serve MODEL --worker-cls kvguard.vllm.GuardWorker --additional-config "
    "'{\"kv_guard_config\":{\"enabled\":true,\"action\":\"raise\"}}'\n";

TEST(Demo, CleanRunsAndFiveFaultsCaught) {
  const TestFolder folder;
  audit::ScenarioOptions options;
  options.standing_gaps = {"external-unproved"};
  tools::RecordHealthy(folder / "first.kvtrace", options);
  tools::RecordTrace(folder / "second.kvtrace", [](tools::SmallEngine& engine) {
    engine.Admit("only", 3);
    engine.Step();
  });
  const Ran ran = RunCommand("demo '" + folder.path() + "'");
  EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
  EXPECT_TRUE(Has(ran.out, "clean: 2 of 2 runs; caught: 5 of 5 faults")) << ran.out;
  EXPECT_TRUE(Has(ran.out, "The run 'first'")) << ran.out;
  EXPECT_TRUE(Has(ran.out, "external-unproved")) << ran.out;
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_TRUE(Has(ran.out, tools::Faults()[i].name)) << tools::Faults()[i].name;
  }
  for (const char* code : {"KV0301", "KV0302", "KV0401", "KV0901"}) {
    EXPECT_TRUE(Has(ran.out, std::string("kvguard ") + code)) << code << ran.out;
  }
  EXPECT_FALSE(Has(ran.out, "\x1b")) << "no colours in a file";
  ASSERT_GT(ran.out.size(), sizeof(kLastLines));
  EXPECT_EQ(ran.out.substr(ran.out.size() - sizeof(kLastLines) + 1), kLastLines);
  EXPECT_TRUE(ran.err.empty()) << ran.err;
  EXPECT_EQ(RunCommand("demo '" + folder.path() + "'").out, ran.out) << "equal bytes";
}

TEST(Demo, ARunThatIsNotCleanFailsIt) {
  const TestFolder folder;
  tools::RecordHealthy(folder / "right.kvtrace");
  tools::RecordViolated(folder / "wrong.kvtrace");
  const Ran ran = RunCommand("demo '" + folder.path() + "'");
  EXPECT_NE(ran.code, 0);
  EXPECT_TRUE(Has(ran.out, "clean: 1 of 2 runs; caught: 5 of 5 faults")) << ran.out;
}

TEST(Demo, ARunWithoutRoomForFiveFaultsFailsIt) {
  const TestFolder folder;
  tools::RecordTrace(folder / "only.kvtrace", [](tools::SmallEngine& engine) {
    engine.Admit("only", 3);
    engine.Step();
  });
  const Ran ran = RunCommand("demo '" + folder.path() + "'");
  EXPECT_NE(ran.code, 0);
  EXPECT_TRUE(Has(ran.out, "caught: 0 of 5 faults")) << ran.out;
}

TEST(Demo, ADamagedRunIsNotClean) {
  const TestFolder folder;
  tools::RecordHealthy(folder / "right.kvtrace");
  const std::string bytes = tools::ReadBytes(folder / "right.kvtrace");
  tools::WriteBytes(folder / "cut.kvtrace", bytes.substr(0, bytes.size() - 20));
  const Ran ran = RunCommand("demo '" + folder.path() + "'");
  EXPECT_NE(ran.code, 0);
  EXPECT_TRUE(Has(ran.out, "clean: 1 of 2 runs")) << ran.out;
  tools::WriteBytes(folder / "bad.kvtrace", "no trace");
  EXPECT_EQ(RunCommand("demo '" + folder.path() + "'").code, 65);
}

}  // namespace
}  // namespace kvguard::cli
