// SPDX-License-Identifier: Apache-2.0
// Passes besides the target's: which groups and which rows of their plans are judged, and from
// where. Micro-batches cut the target pass up, draft passes run behind it, cross-attention runs
// over the encoder's output.
#include <algorithm>

#include "rules/context.h"

namespace kvguard::rules {
namespace {

using geometry::Group;
using mirror::Request;

// The tokens that may be valid after the target pass.
struct Range {
  int64_t low = 0;
  int64_t high = 0;
};

Range ValidAfter(const Request& request) {
  if (request.start != KVGUARD_NONE && request.rejected != KVGUARD_NONE) {
    const int64_t valid = request.start + request.num_tokens - request.rejected;
    return {valid, valid};
  }
  return {request.start_low + request.num_tokens - request.num_drafts,
          request.start_high + request.num_tokens};
}

void LengthMismatch(Context& context, uint64_t b, int64_t expected, int64_t observed) {
  SetValues(EmitRow(context, kQueryLengthMismatch, b), expected, observed);
}

void PlaceMicroBatch(Context& context, uint64_t b, Request& request, RowState* row) {
  int64_t& taken = request.taken[context.plan->stage];
  row->taken = taken;
  row->length = row->tokens_usable ? row->num_tokens : KVGUARD_NONE;
  row->has_first = taken == 0 && row->num_tokens > 0;
  row->has_last = row->num_tokens > 0 && taken + row->num_tokens == request.num_tokens;
  if (row->start != KVGUARD_NONE) row->start = row->seen_start = row->start + taken;
  if (taken + row->num_tokens > request.num_tokens) {
    LengthMismatch(context, b, request.num_tokens - taken, row->num_tokens);
  } else {
    taken += row->num_tokens;
  }
}

// A draft step stands on the token behind the last accepted one, or as many further as it is late.
void PlaceDraft(Context& context, uint64_t b, const Request& request, RowState* row) {
  const step::PlanView& plan = *context.plan;
  row->length = row->tokens_usable && row->num_tokens > 0 ? row->num_tokens : KVGUARD_NONE;
  if (plan.pass_index == 0 || !row->tokens_usable || row->num_tokens == 0) return;
  const int64_t shown = plan.positions.present() ? plan.positions[row->first_token]
                                                 : plan.seq_lens[b] - row->num_tokens;
  const int64_t most =
      context.layout().max_model_len > 0 ? context.layout().max_model_len - 1 : INT64_MAX;
  const Range valid = ValidAfter(request);
  const int64_t on = int64_t{plan.pass_index} - 1;
  const int64_t low = std::min(valid.low + on, most);
  const int64_t high = std::min(valid.high + on, most);
  if (shown >= low && shown <= high) {
    row->start = row->seen_start = shown;
    return;
  }
  const int64_t expected = shown < low ? low : high;
  kvguard_finding& finding = EmitRow(context, kFrontierMismatch, b);
  finding.pos = expected;
  SetValues(finding, expected, shown);
  row->request = mirror::kNoRequest;
}

void PlaceCross(Context& context, uint64_t b, const Request& request, RowState* row) {
  row->start = row->seen_start = 0;
  row->length = request.encoder;
  const bool right =
      row->num_tokens == request.encoder || (request.encoder_written && row->num_tokens == 0);
  if (row->tokens_usable && !right)
    LengthMismatch(context, b, request.encoder_written ? 0 : request.encoder, row->num_tokens);
}

}  // namespace

bool IsJudgedIn(uint32_t pass, const Group& group) {
  if (group.on_host) return false;
  if (group.IsCross()) return pass == KVGUARD_PASS_CROSS;
  if (pass == KVGUARD_PASS_CROSS) return false;
  if (pass == KVGUARD_PASS_DRAFT) return !group.IsState() && !group.IsRing();
  return pass != KVGUARD_PASS_MICRO_BATCH || !group.IsRing();
}

void PlaceRow(Context& context, uint64_t b, RowState* row) {
  Request& request = context.mirror->at(row->request);
  row->start = row->seen_start = request.start;
  if (context.plan->pass == KVGUARD_PASS_MICRO_BATCH) {
    PlaceMicroBatch(context, b, request, row);
  } else if (context.plan->pass == KVGUARD_PASS_DRAFT) {
    PlaceDraft(context, b, request, row);
  } else {
    PlaceCross(context, b, request, row);
  }
}

void JudgeMicroBatches(Context& context, uint32_t stage) {
  for (const uint32_t index : context.mirror->scheduled()) {
    const Request& request = context.mirror->at(index);
    if (!context.mirror->IsScheduled(request)) continue;
    const int64_t taken = request.taken[stage];
    if (taken >= request.num_tokens) continue;
    kvguard_finding& finding = Emit(context, kMicroBatchMissing);
    finding.request = request.key;
    if (request.start != KVGUARD_NONE) finding.pos = request.start + taken;
    SetValues(finding, request.num_tokens, taken);
  }
}

}  // namespace kvguard::rules
