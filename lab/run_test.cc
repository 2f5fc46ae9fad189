// SPDX-License-Identifier: Apache-2.0
#include "lab/run.h"

#include <string>

#include <gtest/gtest.h>

namespace kvguard::lab {
namespace {

RunOptions Of(const char* scenario, uint64_t seed, uint64_t steps) {
  RunOptions options;
  options.setup = FindScenario(scenario)->make();
  options.seed = seed;
  options.steps = steps;
  return options;
}

std::string Text(const RunResult& result) {
  std::string text = result.error + result.not_armed;
  for (const GuardFinding& finding : result.findings) text += finding.text;
  for (const kvguard_gap& gap : result.gaps) text += std::string("gap ") + gap.name + "\n";
  for (const Wrong& wrong : result.wrongs) {
    text += "wrong " + std::to_string(static_cast<int>(wrong.kind)) + " step " +
            std::to_string(wrong.step) + " request " + std::to_string(wrong.serial) + " group " +
            std::to_string(wrong.group) + " position " + std::to_string(wrong.position) + " slot " +
            std::to_string(wrong.slot) + " expected " + std::to_string(wrong.expected) + " found " +
            std::to_string(wrong.found) + "\n";
  }
  return text.substr(0, 4000);
}

class HealthyRun : public testing::TestWithParam<Scenario> {};

TEST_P(HealthyRun, IsCleanAndItsTokensAreThoseOfAComputationWithoutACache) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    RunOptions options = Of(GetParam().name.data(), seed, 4000);
    options.guard = GuardMode::kLog;
    const RunResult result = lab::Run(options);
    ASSERT_EQ(result.wrong_reads.count, 0u) << "seed " << seed << "\n" << Text(result);
    ASSERT_EQ(result.wrong_writes.count, 0u) << "seed " << seed << "\n" << Text(result);
    ASSERT_EQ(result.wrong_tokens.count, 0u) << "seed " << seed << "\n" << Text(result);
    ASSERT_EQ(result.wrong_requests, 0u) << "seed " << seed;
    ASSERT_GT(result.requests, 20u);
    ASSERT_EQ(result.verdict.verdict, static_cast<uint32_t>(KVGUARD_CLEAN))
        << "seed " << seed << "\n"
        << Text(result);
    ASSERT_EQ(result.verdict.suspicions, 0u) << "seed " << seed << "\n" << Text(result);
  }
}

TEST_P(HealthyRun, TokensOfTheTransformerAreThoseOfOnePassWithoutACache) {
  RunOptions options = Of(GetParam().name.data(), 1, 250);
  options.model = ModelKind::kTransformer;
  options.guard = GuardMode::kLog;
  const RunResult result = lab::Run(options);
  EXPECT_GT(result.requests, 0u);
  EXPECT_EQ(result.wrong_requests, 0u);
  EXPECT_EQ(result.verdict.verdict, static_cast<uint32_t>(KVGUARD_CLEAN)) << Text(result);
}

TEST(Transformer, AFaultShowsInItsTokens) {
  RunOptions options = Of("dense", 1, 400);
  options.model = ModelKind::kTransformer;
  options.guard = GuardMode::kLog;
  options.fault = FaultKind::kTableOtherRow;
  options.fault_at = 50;
  const RunResult result = lab::Run(options);
  EXPECT_EQ(result.first_proof, result.fault_struck);
  EXPECT_GT(result.wrong_requests, 0u);
}

INSTANTIATE_TEST_SUITE_P(All, HealthyRun, testing::ValuesIn(Scenarios().begin(), Scenarios().end()),
                         [](const auto& scenario) {
                           std::string name(scenario.param.name);
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace kvguard::lab
