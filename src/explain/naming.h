// SPDX-License-Identifier: Apache-2.0
// What the hypotheses of every family share.
#ifndef KVGUARD_SRC_EXPLAIN_NAMING_H_
#define KVGUARD_SRC_EXPLAIN_NAMING_H_

#include <cstdint>

#include "rules/context.h"

namespace kvguard::explain {

inline void Tried(kvguard_finding& finding, uint32_t kind) { finding.causes_tried |= 1u << kind; }

inline void Name(kvguard_finding& finding, uint32_t kind, uint64_t arg) {
  for (uint32_t i = 0; i < finding.num_causes; ++i) {
    if (finding.causes[i].kind == kind) return;  // its first match is the nearest
  }
  if (finding.num_causes < KVGUARD_MAX_CAUSES)
    finding.causes[finding.num_causes++] = {kind, 0, arg};
}

// Why a row goes on from, or leaves, another state than its own.
void ExplainStates(rules::Context& context, kvguard_finding& finding, const rules::RowState& row,
                   const geometry::Group& group);

// Why a row's list is another than its own.
void ExplainList(rules::Context& context, kvguard_finding& finding, const rules::RowState& row,
                 const step::GroupPlanView& view);

}  // namespace kvguard::explain

#endif  // KVGUARD_SRC_EXPLAIN_NAMING_H_
