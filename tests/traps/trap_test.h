// SPDX-License-Identifier: Apache-2.0
// Legal situations that look like faults, numbered as traps.txt numbers them. Each must be clean: a
// false alarm is the worst bug there is.
#ifndef KVGUARD_TESTS_TRAPS_TRAP_TEST_H_
#define KVGUARD_TESTS_TRAPS_TRAP_TEST_H_

#include <cstdint>
#include <functional>
#include <string>

#include "audit/scenario.h"

namespace kvguard::tests {

audit::ScenarioOptions Engine(uint32_t flags, uint32_t max_drafts = 0);

// Attention in blocks of 4 beside states in blocks of `block_size`, in one pool; running states
// (mode none) have a pool of their own. Up to two drafts where the mode allows any.
audit::ScenarioOptions WithStates(uint32_t mode, uint32_t block_size = 4);

// One group that forgets, in blocks of 4 with a window (or chunks) of 8.
audit::ScenarioOptions Forgetting(uint32_t kind, uint32_t retained = 0);

// name and number in one
std::string Nth(const char* name, uint64_t i);

// No finding of either grade, and no step that was not judged.
void ExpectClean(const audit::Scenario& s);

// The trap has teeth: played as it is it must be clean, and with the nearest fault in its last step
// the first finding is that fault, as a proof.
void CheckTrap(const audit::ScenarioOptions& options, uint32_t code,
               const std::function<void(audit::Scenario& s, bool wrong)>& play);

}  // namespace kvguard::tests

#endif  // KVGUARD_TESTS_TRAPS_TRAP_TEST_H_
