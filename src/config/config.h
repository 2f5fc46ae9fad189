// SPDX-License-Identifier: Apache-2.0
// The configuration object kv_guard_config: one table drives parser, defaults, schema and
// documentation.
#ifndef KVGUARD_SRC_CONFIG_CONFIG_H_
#define KVGUARD_SRC_CONFIG_CONFIG_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "kvguard/kvguard.h"
#include "step/status.h"

namespace kvguard::config {

// Checks a whole JSON object and fills what concerns the core; the other keys are an adapter's.
// Every error is KVGUARD_ERROR_CONFIG and names the key; an unknown one is answered with the
// nearest known key.
step::Status Parse(std::string_view json, kvguard_config* config);

// JSON Schema (draft 2020-12), indented.
std::string Schema();

// Changes of one character that turn one word into the other: how a slip finds the word it meant.
size_t EditDistance(std::string_view a, std::string_view b);

// A markdown table of the keys.
std::string Documentation();

}  // namespace kvguard::config

#endif  // KVGUARD_SRC_CONFIG_CONFIG_H_
