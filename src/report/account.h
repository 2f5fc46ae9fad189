// SPDX-License-Identifier: Apache-2.0
// What a guard has to say, taken out of it once: the same account is then printed as text or JSON.
#ifndef KVGUARD_SRC_REPORT_ACCOUNT_H_
#define KVGUARD_SRC_REPORT_ACCOUNT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kvguard/kvguard.h"

namespace kvguard::report {

struct Account {
  kvguard_verdict verdict{};
  std::vector<kvguard_coverage_row> coverage;
  std::vector<kvguard_gap> gaps;
};

// A finding with its rendering, which needs names that only its guard knows.
struct RenderedFinding {
  kvguard_finding finding{};
  std::string line;
  std::string prose;
};

Account AccountOf(const kvguard_guard& guard);
RenderedFinding Render(const kvguard_guard& guard, const kvguard_finding& finding);

// Stored findings with sequence >= first.
std::vector<kvguard_finding> FindingsFrom(const kvguard_guard& guard, uint64_t first);

// Why an account without a violation is not clean, one sentence each. Empty where it is clean.
std::vector<std::string> Reasons(const Account& account);

// Names of enumerations; "unknown" for values of a later version.
const char* Name(const char* what, int64_t value);

// "group 0", or "all groups".
std::string GroupName(uint32_t group);

// 0, 1 or 2.
int ExitCode(uint32_t verdict);

}  // namespace kvguard::report

#endif  // KVGUARD_SRC_REPORT_ACCOUNT_H_
