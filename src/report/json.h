// SPDX-License-Identifier: Apache-2.0
// An account as JSON: every field of the C structs by its name, enumerations by their printed
// names.
#ifndef KVGUARD_SRC_REPORT_JSON_H_
#define KVGUARD_SRC_REPORT_JSON_H_

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "report/account.h"

namespace kvguard::report {

using Json = nlohmann::ordered_json;

Json CountsJson(const kvguard_verdict& verdict);
Json CoverageJson(const std::vector<kvguard_coverage_row>& coverage);
Json GapsJson(const std::vector<kvguard_gap>& gaps);
Json FindingJson(const RenderedFinding& finding);
Json RuleJson(const kvguard_rule& rule);

// Never throws for the bytes in strings: what is no UTF-8 is replaced. indent < 0: one line.
std::string Dump(const Json& json, int indent);

}  // namespace kvguard::report

#endif  // KVGUARD_SRC_REPORT_JSON_H_
