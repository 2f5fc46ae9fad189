// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <gtest/gtest.h>

#include "cli/test_command.h"
#include "lab/faults.h"
#include "lab/scenario.h"

namespace kvguard::cli {
namespace {

bool Has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST(LabCommand, ListsEveryScenarioAndFault) {
  const Ran ran = RunCommand("lab --list");
  EXPECT_EQ(ran.code, 0);
  for (const lab::Scenario& scenario : lab::Scenarios()) {
    EXPECT_TRUE(Has(ran.out, scenario.name)) << scenario.name;
  }
  for (const lab::FaultInfo& fault : lab::AllFaults()) {
    EXPECT_TRUE(Has(ran.out, fault.name)) << fault.name;
  }
}

TEST(LabCommand, AHealthyRunExitsCleanAndCanBeReplayed) {
  const tools::TestFolder folder;
  std::string file = folder / "lab.kvtrace";
  file.insert(0, 1, '\'').push_back('\'');
  const Ran ran = RunCommand("lab hybrid --steps 500 --seed 3 --record " + file);
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(Has(ran.out, "tokens of 0 differ")) << ran.out;
  EXPECT_TRUE(Has(ran.out, "no wrong read")) << ran.out;
  const Ran replay = RunCommand("replay " + file);
  EXPECT_EQ(replay.code, 0) << replay.out;
}

TEST(LabCommand, AFaultIsCaughtBeforeItDoesHarm) {
  const Ran ran = RunCommand("lab dense --steps 1000 --fault slot-other-row@200");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(Has(ran.out, "kvguard KV04")) << ran.out;
  EXPECT_TRUE(Has(ran.out, "before anything wrong was read")) << ran.out;
}

TEST(LabCommand, WithoutARaiseTheTruthTellsTheHarm) {
  const Ran ran = RunCommand("lab dense --steps 1000 --fault slot-other-row@200 --guard log");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(Has(ran.out, "struck in step 200")) << ran.out;
  EXPECT_TRUE(Has(ran.out, "first wrong read or token in step 200")) << ran.out;
  const Ran off = RunCommand("lab dense --steps 1000 --fault slot-other-row@200 --guard off");
  EXPECT_EQ(off.code, 0);
  EXPECT_FALSE(Has(off.out, "no wrong read")) << off.out;
}

TEST(LabCommand, MistakesAreNamed) {
  for (const auto& [arguments, part] :
       {std::pair{"lab", "a scenario is needed"},
        {"lab nothing", "there is no scenario 'nothing'"},
        {"lab dense --fault slot-other-rows", "did you mean 'slot-other-row'?"},
        {"lab dense --fault slot-null@x", "KIND@STEP"},
        {"lab dense --steps -1", "--steps"},
        {"lab dense --guard off --record x.kvtrace", "--record needs a guard"}}) {
    const Ran ran = RunCommand(arguments);
    EXPECT_EQ(ran.code, 64) << arguments << ran.out;
    EXPECT_TRUE(Has(ran.err, part)) << arguments << "\n" << ran.err;
  }
}

}  // namespace
}  // namespace kvguard::cli
