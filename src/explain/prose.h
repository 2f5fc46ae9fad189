// SPDX-License-Identifier: Apache-2.0
#ifndef KVGUARD_SRC_EXPLAIN_PROSE_H_
#define KVGUARD_SRC_EXPLAIN_PROSE_H_

#include <functional>
#include <string>
#include <string_view>

#include "geometry/layout.h"
#include "kvguard/kvguard.h"

namespace kvguard::explain {

// Bytes outside [A-Za-z0-9._:-] become %XX, so that a name can stand in a line of space-separated
// fields.
std::string PercentEncode(std::string_view name);

// The name that a key was admitted under, encoded; "key:<n>" for one that is not known any more.
using NameOf = std::function<std::string(uint64_t key)>;

// The machine line, without its newline. Fields are only ever added at its end.
std::string MachineLine(const kvguard_finding& finding, const NameOf& name_of);

// One or two sentences for a person.
std::string Prose(const kvguard_finding& finding, const geometry::Layout& layout,
                  const NameOf& name_of);

}  // namespace kvguard::explain

#endif  // KVGUARD_SRC_EXPLAIN_PROSE_H_
