// SPDX-License-Identifier: Apache-2.0
// Family frontier: where each row starts, against where the request's computed tokens end. The
// start is never taken from the plan itself (seq_len - query length agrees with any start): it
// comes from the mirror.
#include <algorithm>

#include "geometry/equal.h"
#include "rules/context.h"

namespace kvguard::rules {
namespace {

size_t MatchPositions(const step::Ints& positions, uint64_t first, uint64_t n, int64_t start) {
  if (positions.wide()) return geometry::MatchRun(positions.i64() + first, n, start);
  return geometry::MatchRun(positions.i32() + first, n, start);
}

void Mismatch(Context& context, uint64_t b, const RowState& row) {
  kvguard_finding& finding = EmitRow(context, kFrontierMismatch, b);
  finding.pos = row.start;
  finding.count = static_cast<uint64_t>(row.num_tokens > 0 ? row.num_tokens : 1);
  SetValues(finding, row.start, row.seen_start);
}

// While the outcome of drafts is open, the stream bounds the start and the plan's choice inside the
// bounds is taken.
void Assume(Context& context, RowState* row, int64_t shown) {
  mirror::Request& request = context.mirror->at(row->request);
  ++context.counters->assumptions;
  shown -= row->taken;
  row->start = shown < request.start_low    ? request.start_low
               : shown > request.start_high ? request.start_high
                                            : shown;
  if (row->start == shown) context.mirror->Assume(&request, shown);  // else it is a finding now
  row->start += row->taken;
}

}  // namespace

void JudgeFrontiers(Context& context) {
  const step::PlanView& plan = *context.plan;
  // The runner's count is that before the whole step.
  const bool counts = plan.num_computed.present() && plan.pass == KVGUARD_PASS_TARGET;
  uint64_t judged = 0;
  for (uint64_t b = 0; b < plan.num_rows; ++b) {
    RowState& row = (*context.rows)[b];
    if (row.request == mirror::kNoRequest || !row.tokens_usable || row.num_tokens == 0) continue;
    const auto n = static_cast<uint64_t>(row.num_tokens);
    if (row.start == KVGUARD_NONE) {
      Assume(context, &row,
             plan.positions.present() ? plan.positions[row.first_token]
                                      : std::max<int64_t>(plan.seq_lens[b], 0) - row.num_tokens);
      row.seen_start = row.start;
    }
    if (plan.positions.present()) {
      ++judged;
      const size_t good = MatchPositions(plan.positions, row.first_token, n, row.start);
      if (good < n) {
        const int64_t first = plan.positions[row.first_token];
        if (first != row.start) {
          row.seen_start = first;
          Mismatch(context, b, row);
        }
        const size_t run =
            first == row.start ? good : MatchPositions(plan.positions, row.first_token, n, first);
        if (run < n) {
          kvguard_finding& finding = EmitRow(context, kPositionMismatch, b);
          const auto steps = static_cast<int64_t>(run);
          finding.pos = first <= INT64_MAX - steps ? first + steps : INT64_MAX;
          SetValues(finding, finding.pos, plan.positions[row.first_token + run]);
        }
      }
    }
    if (counts) {
      ++judged;
      const int64_t counted = plan.num_computed[b];
      if (counted != row.start && row.seen_start == row.start) {
        row.seen_start = counted;
        Mismatch(context, b, row);
      }
    }
  }
  context.coverage->Add(KVGUARD_ALL_GROUPS, plan.pass, plan.stage, KVGUARD_FAMILY_FRONTIER, judged);
}

}  // namespace kvguard::rules
