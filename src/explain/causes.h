// SPDX-License-Identifier: Apache-2.0
// From a finding to its cause: observed addresses are recomputed under the usual mistakes. A pure
// reader over mirror, record and recent history; a hypothesis that lacks its history is not tried,
// and the finding says which were.
#ifndef KVGUARD_SRC_EXPLAIN_CAUSES_H_
#define KVGUARD_SRC_EXPLAIN_CAUSES_H_

#include "rules/context.h"

namespace kvguard::explain {

// Names, in every table, slot, state and frontier finding of the plan just judged, each hypothesis
// that reproduces all the values of its row.
void NameCauses(rules::Context& context);

}  // namespace kvguard::explain

#endif  // KVGUARD_SRC_EXPLAIN_CAUSES_H_
