// SPDX-License-Identifier: Apache-2.0
// What stands in the rings of a request: position p at p mod window, until another is written
// there.
#include <algorithm>

#include "mirror/mirror.h"

namespace kvguard::mirror {

void Mirror::RingsWritten(Request* request, bool abandoned) {
  constexpr size_t kMostRuns = 16;  // a count goes back now and then
  const bool sure = !abandoned && request->start != KVGUARD_NONE;
  const Request::Run run = {request->start_low, request->start_high + request->num_tokens, sure};
  std::vector<Request::Run>& runs = request->written;
  if (!runs.empty() && sure && runs.back().sure && runs.back().end == run.first) {
    runs.back().end = run.end;
  } else {
    runs.push_back(run);
  }
  int64_t most = 0;
  for (const geometry::Group& group : layout_->groups) most = std::max(most, group.ring);
  if (runs.size() > 1 && runs.back().sure && runs.back().end - runs.back().first >= most) {
    runs.erase(runs.begin(), runs.end() - 1);  // nothing of them is left in any ring
  } else if (runs.size() > kMostRuns) {
    runs.erase(runs.begin());
  }
}

bool Mirror::IsOverwritten(const Request& request, const geometry::Group& group, int64_t position) {
  for (auto run = request.written.rbegin(); run != request.written.rend(); ++run) {
    // The last position of the run that stands where this one does.
    const int64_t behind = run->end - 1 - position;
    const int64_t turns = behind >= 0 ? behind / group.ring : -((-behind - 1) / group.ring) - 1;
    const int64_t last = position + turns * group.ring;
    if (last < run->first) continue;
    return run->sure && last != position;
  }
  return false;
}

}  // namespace kvguard::mirror
