// SPDX-License-Identifier: Apache-2.0
// What a plan shows beside what is bound: the picture that belongs to a finding.
#ifndef KVGUARD_SRC_TOOLS_INSPECT_H_
#define KVGUARD_SRC_TOOLS_INSPECT_H_

#include <cstdint>
#include <string>

#include "kvguard/kvguard.h"
#include "report/account.h"

namespace kvguard::tools {

// The rows of a plan as lines of text, with what the guard expects where it differs; right after
// the plan was judged.
std::string PlanText(const kvguard_guard& guard, const kvguard_record& record);

// The schedule of a BEGIN as lines of text.
std::string ScheduleText(const kvguard_guard& guard, const kvguard_record& record);

// "row-of b, stale-frontier 17" of a finding's causes; empty where none is named.
std::string CausesText(const kvguard_guard& guard, const kvguard_finding& finding);
// How many hypotheses were tried.
uint32_t NumTried(const kvguard_finding& finding);

// "tried: row-of, previous-step; named: row-of request b", or why none was tried.
std::string HypothesesText(const kvguard_guard& guard, const kvguard_finding& finding);

}  // namespace kvguard::tools

#endif  // KVGUARD_SRC_TOOLS_INSPECT_H_
