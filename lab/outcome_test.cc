// SPDX-License-Identifier: Apache-2.0
// The outcome property: whatever fault an engine has, no read and no token is wrong without a proof
// in that step or an earlier one.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "lab/faults.h"
#include "lab/run.h"
#include "lab/scenario.h"

namespace kvguard::lab {
namespace {

constexpr uint64_t kSeeds = 2;  // KVGUARD_LAB_SEEDS: more
constexpr uint64_t kSteps = 900;
constexpr uint64_t kFirst = 150;       // the fault strikes from here on
constexpr uint64_t kStepsAfter = 200;  // and harm is looked for that long

std::string Code(uint32_t code) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "%04u", code);
  return text.data();
}

RunResult RunWith(const Scenario& scenario, const FaultInfo& fault, uint64_t seed) {
  RunOptions options;
  options.setup = scenario.make(seed);
  options.seed = seed;
  options.steps = kSteps;
  options.guard = GuardMode::kLog;
  options.fault = fault.kind;
  options.fault_at = kFirst + seed;
  options.steps_after_fault = kStepsAfter;
  return lab::Run(options);
}

// Why harm may go unseen, where it may; each is a sentence of docs/judging.md.
std::string_view ReasonOfMiss(const FaultInfo& fault, const EngineConfig& engine) {
  if (fault.kind == FaultKind::kHitCollision && engine.async && engine.num_drafts > 0) {
    return "an outcome whose step had no known start ends what is known of a request's tokens, so "
           "that the content of what it sampled is not judged";
  }
  if ((fault.kind == FaultKind::kStateOtherRow || fault.kind == FaultKind::kStateStaleColumn) &&
      engine.async && engine.num_drafts > 0) {
    return "where a state stands is not known after a step whose start was not known, so that what "
           "the next one goes on from is not judged";
  }
  return "";
}

uint64_t NumSeeds() {
  const char* seeds = std::getenv("KVGUARD_LAB_SEEDS");
  return seeds == nullptr ? kSeeds : std::strtoull(seeds, nullptr, 10);
}

class Outcome : public testing::TestWithParam<FaultInfo> {};

TEST_P(Outcome, NothingIsWrongWithoutAProofInTimeAndTheProofIsOneOfTheExpected) {
  const FaultInfo& fault = GetParam();
  uint64_t struck = 0;
  uint64_t harmed = 0;
  uint64_t proved = 0;
  uint64_t alone = 0;  // proofs in runs in which nothing was read or written wrongly
  std::map<uint32_t, int> codes;
  for (const Scenario& scenario : Scenarios()) {
    for (uint64_t seed = 1; seed <= NumSeeds(); ++seed) {
      const RunResult result = RunWith(scenario, fault, seed);
      if (result.fault_struck == 0) continue;
      const std::string where = std::string(fault.name) + " in " + std::string(scenario.name) +
                                " seed " + std::to_string(seed) + ", struck in step " +
                                std::to_string(result.fault_struck);
      EXPECT_FALSE(result.alarm_before) << where;
      ++struck;
      if (result.first_harm != 0) ++harmed;
      if (result.first_proof != 0) {
        ++proved;
        ++codes[result.first_proof_code];
        if (result.first_harm == 0 && result.wrong_writes.count == 0) ++alone;
      }
      if (fault.codes.empty()) continue;
      if (result.first_harm != 0 &&
          (result.first_proof == 0 || result.first_proof > result.first_harm)) {
        const std::string_view reason = ReasonOfMiss(fault, scenario.make(seed).engine);
        if (!reason.empty()) {
          std::printf("%s: missed: %s\n", where.c_str(), std::string(reason).c_str());
          continue;
        }
      }
      if (result.first_harm != 0) {
        EXPECT_NE(result.first_proof, 0u) << where << ": harm in step " << result.first_harm;
        EXPECT_LE(result.first_proof, result.first_harm) << where;
      }
      if (result.first_proof != 0) {
        EXPECT_NE(fault.codes.find(Code(result.first_proof_code)), std::string_view::npos)
            << where << ": " << (result.findings.empty() ? "" : result.findings[0].text);
      }
    }
  }
  EXPECT_GT(struck, 0u) << fault.name << " found no room in any scenario";
  EXPECT_TRUE(proved > 0 || fault.codes.empty()) << fault.name;
  std::string seen;
  for (const auto& [code, count] : codes) {
    seen.append(" ").append(Code(code)).append("x").append(std::to_string(count));
  }
  std::printf("%-24s struck %3llu harmed %3llu proved %3llu alone %3llu:%s\n",
              std::string(fault.name).c_str(), static_cast<unsigned long long>(struck),
              static_cast<unsigned long long>(harmed), static_cast<unsigned long long>(proved),
              static_cast<unsigned long long>(alone), seen.c_str());
}

INSTANTIATE_TEST_SUITE_P(All, Outcome, testing::ValuesIn(AllFaults().begin(), AllFaults().end()),
                         [](const auto& fault) {
                           std::string name(fault.param.name);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace kvguard::lab
