// SPDX-License-Identifier: Apache-2.0
// Family content: what a prefix hit reads must be what its reader means.
#include <algorithm>

#include "rules/context.h"

namespace kvguard::rules {
namespace {

using geometry::Group;
using mirror::Block;
using mirror::ContentName;
using mirror::kNoRequest;
using mirror::Mirror;
using mirror::Request;

// Tokens that a live request's KV will cover when the open step has run.
int64_t Covers(const Mirror& mirror, const Request& request) {
  const int64_t scheduled =
      mirror.IsScheduled(request) ? request.start_high + request.num_tokens : 0;
  return std::max({request.filled, request.frontier.valid_high, scheduled});
}

// One for each request, group and code.
void EmitOnce(Context& context, uint32_t code, uint32_t grade, const Mirror::Hit& hit,
              int64_t block) {
  for (const kvguard_finding& finding : *context.findings) {
    if (finding.code == code && finding.request == hit.key && finding.group == hit.group) return;
  }
  kvguard_finding& finding = Emit(context, code, grade);
  finding.request = hit.key;
  finding.group = hit.group;
  finding.pos = hit.column;
  SetValues(finding, KVGUARD_NONE, block);
}

void JudgeHit(Context& context, const Mirror::Hit& hit) {
  Mirror& mirror = *context.mirror;
  const Request* reader = mirror.FindRequest(hit.key);
  const Group& group = context.layout().groups[hit.group];
  if (reader == nullptr || hit.column >= mirror.BoundBlocks(*reader, group)) return;
  const int64_t block = mirror.BlockAt(*reader, group, hit.column);
  if (!mirror.InPool(group, block) || !mirror.IsClaimed(*reader, group, hit.column)) return;
  Block& b = mirror.TouchBlock(group, block);
  if (b.loading > 0) return;  // what it will hold is not there yet
  const bool told = context.layout().Has(KVGUARD_ENGINE_FILLS_TOLD);
  if (told && !b.ever_home && !b.ever_filled &&
      (!group.IsState() || (hit.column + 1) * group.block_size == hit.computed)) {
    EmitOnce(context, kContentUnwritten, KVGUARD_GRADE_PROOF, hit, block);
    return;
  }
  if (!Mirror::IsAtHome(b, group.id, hit.column)) return;
  const int64_t end = (hit.column + 1) * group.block_size;
  if (group.IsState() && end != hit.computed) return;
  ContentName held = b.content;
  if (b.bound) {
    const Request* writer = b.owner != 0 ? mirror.FindRequest(b.owner) : nullptr;
    if (writer == reader) return;
    // A step reads states before it leaves any.
    const bool written_now =
        b.write_step == context.step && b.writer != 0 && b.writer != reader->key;
    const bool too_soon = group.IsState() && (b.since_step == context.step || written_now);
    const bool filled =
        !too_soon && (writer != nullptr ? end <= Covers(mirror, *writer) : b.written);
    if (!filled) {
      const bool connector = context.layout().Has(KVGUARD_ENGINE_CONNECTOR) && !told;
      EmitOnce(context, kContentUnwritten,
               connector ? KVGUARD_GRADE_SUSPICION : KVGUARD_GRADE_PROOF, hit, block);
      return;
    }
    if (writer != nullptr) held = writer->chain.NameAt(end, context.layout().content_unit);
  }
  const ContentName wanted = reader->chain.NameAt(end, context.layout().content_unit);
  if (wanted.tokens == 0) return;
  if (held.tokens == 0) {
    if (b.owner != 0) return;  // its binder may still tell
    b.content = wanted;
    ++context.counters->assumptions;
    return;
  }
  if (held.tokens != wanted.tokens) {
    EmitOnce(context, kContentMismatch, 0, hit, block);
  } else if (held.domain != wanted.domain) {
    EmitOnce(context, kDomainMismatch, 0, hit, block);
  }
}

}  // namespace

void LearnTokens(Context& context) {
  for (const kvguard_event* event : context.admitted) {
    const uint32_t index = context.mirror->Find(event->request);
    if (index == kNoRequest) continue;
    context.mirror->at(index).chain.Append(0, event->tokens, event->num_tokens,
                                           context.layout().content_unit);
  }
}

void LearnSampled(Context& context, Request& request, const kvguard_outcome_row& row,
                  uint64_t step) {
  int64_t position = KVGUARD_NONE;
  if (context.mirror->IsOpen(step) && context.mirror->IsScheduled(request)) {
    if (request.start != KVGUARD_NONE)
      position = request.start + request.num_tokens - request.num_drafts;
  } else {
    for (const Request::SampledAt& at : request.sampled_at) {
      if (at.step == step) position = at.position;
    }
  }
  if (position == KVGUARD_NONE || row.num_tokens < row.num_sampled || row.tokens == nullptr) {
    request.chain.Close();
    return;
  }
  request.chain.Append(position, row.tokens, row.num_sampled, context.layout().content_unit);
}

void JudgeContents(Context& context) {
  for (const Mirror::Hit& hit : context.mirror->hits()) JudgeHit(context, hit);
  context.coverage->Add(KVGUARD_ALL_GROUPS, 0, 0, KVGUARD_FAMILY_CONTENT,
                        context.mirror->hits().size());
}

void JudgeStrayed(Context& context) {
  const Mirror& mirror = *context.mirror;
  for (const auto& strayed : context.mirror->hits()) {
    const mirror::Request* request = mirror.FindRequest(strayed.key);
    const geometry::Group& group = context.layout().groups[strayed.group];
    if (request == nullptr || strayed.column >= mirror.BoundBlocks(*request, group)) continue;
    const int64_t block = mirror.BlockAt(*request, group, strayed.column);
    if (!mirror.InPool(group, block) || !mirror.IsClaimed(*request, group, strayed.column))
      continue;
    const mirror::Block& b = mirror.BlockOf(group, block);
    if (b.loading > 0) continue;
    const bool other_state =
        group.IsState() && b.state_tokens != 0 && b.state_tokens != strayed.computed;
    if (mirror::Mirror::IsAtHome(b, group.id, strayed.column) && !other_state) continue;
    const bool said = std::any_of(
        context.findings->begin(), context.findings->end(), [&](const kvguard_finding& f) {
          return f.code == kContentMisplaced && f.request == strayed.key &&
                 f.group == strayed.group && f.pos == strayed.column;
        });
    if (said) continue;  // given back and made anew
    kvguard_finding& finding = Emit(context, kContentMisplaced);
    finding.request = request->key;
    finding.group = group.id;
    finding.pos = strayed.column;
    if (group.IsState()) {
      SetValues(finding, strayed.computed, other_state ? b.state_tokens : KVGUARD_NONE);
    } else {
      SetValues(finding, static_cast<int64_t>(b.home) - 1, block);
    }
  }
}

}  // namespace kvguard::rules
