// SPDX-License-Identifier: Apache-2.0
#include "tests/traps/trap_test.h"

#include <vector>

#include <gtest/gtest.h>

#include "step/status.h"

namespace kvguard::tests {

using audit::Scenario;
using audit::ScenarioGroup;
using audit::ScenarioOptions;

ScenarioOptions Engine(uint32_t flags, uint32_t max_drafts) {
  ScenarioOptions options;
  options.engine_flags = KVGUARD_ENGINE_PREFIX_CACHE | flags;
  options.max_drafts = max_drafts;
  return options;
}

ScenarioOptions WithStates(uint32_t mode, uint32_t block_size) {
  ScenarioGroup states;
  states.kind = KVGUARD_GROUP_STATE;
  states.state_mode = mode;
  states.block_size = states.kernel_block_size = block_size;
  states.pool = mode == KVGUARD_STATE_NONE ? 1 : 0;
  ScenarioOptions options;
  options.groups = {ScenarioGroup{}, states};
  options.max_drafts = mode == KVGUARD_STATE_ALL ? 0 : 2;
  return options;
}

ScenarioOptions Forgetting(uint32_t kind, uint32_t retained) {
  ScenarioOptions options;
  options.groups[0].kind = kind;
  options.groups[0].window = 8;
  options.groups[0].retained = retained;
  return options;
}

std::string Nth(const char* name, uint64_t i) {
  return step::Sprintf("%s%llu", name, static_cast<unsigned long long>(i));
}

void ExpectClean(const Scenario& s) {
  EXPECT_EQ(s.Report(), "");
  EXPECT_EQ(s.verdict().verdict, static_cast<uint32_t>(KVGUARD_CLEAN)) << s.error();
  EXPECT_EQ(s.verdict().step_gaps, 0u);
  EXPECT_EQ(s.verdict().suspicions, 0u);
  EXPECT_EQ(s.verdict().steps_judged > 0, true);
}

void CheckTrap(const ScenarioOptions& options, uint32_t code,
               const std::function<void(Scenario& s, bool wrong)>& play) {
  {
    SCOPED_TRACE("the trap");
    Scenario s(options);
    play(s, false);
    ExpectClean(s);
  }
  SCOPED_TRACE("the nearest fault");
  Scenario s(options);
  play(s, true);
  const std::vector<kvguard_finding> findings = s.Findings();
  ASSERT_FALSE(findings.empty()) << s.error();
  EXPECT_EQ(findings[0].code, code) << s.Report();
  EXPECT_EQ(findings[0].step, s.step()) << s.Report();
  EXPECT_EQ(findings[0].grade, static_cast<uint32_t>(KVGUARD_GRADE_PROOF)) << s.Report();
}

}  // namespace kvguard::tests
