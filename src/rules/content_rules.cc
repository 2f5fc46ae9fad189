// SPDX-License-Identifier: Apache-2.0
// Family content: what a prefix hit reads must be what its reader means.
#include "rules/context.h"

namespace kvguard::rules {

void JudgeStrayed(Context& context) {
  const mirror::Mirror& mirror = *context.mirror;
  for (const auto& strayed : context.mirror->strayed()) {
    const mirror::Request* request = mirror.FindRequest(strayed.key);
    const geometry::Group& group = context.layout().groups[strayed.group];
    if (request == nullptr || strayed.column >= mirror.BoundBlocks(*request, group)) continue;
    const int64_t block = mirror.BlockAt(*request, group, strayed.column);
    if (!mirror.InPool(group, block) || !mirror.IsClaimed(*request, group, strayed.column))
      continue;
    const mirror::Block& b = mirror.BlockOf(group, block);
    if (mirror::Mirror::IsAtHome(b, group.id, strayed.column)) continue;
    kvguard_finding& finding = Emit(context, kContentMisplaced);
    finding.request = request->key;
    finding.group = group.id;
    finding.pos = strayed.column;
    SetValues(finding, static_cast<int64_t>(b.home) - 1, block);
  }
}

}  // namespace kvguard::rules
