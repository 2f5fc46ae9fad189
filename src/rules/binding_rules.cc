// SPDX-License-Identifier: Apache-2.0
// Family binding: what the scheduler decided, against itself. Also moves the mirror, event by
// event.
#include <algorithm>
#include <vector>

#include "rules/context.h"

namespace kvguard::rules {
namespace {

using geometry::Group;
using mirror::kNoRequest;
using mirror::Request;

// Columns in front of the frontier may be prefix hits: content that others wrote, which nobody owns
// by this binding.
bool IsHit(const Request& request, const Group& group, int64_t column) {
  if (group.plain) return (column + 1) * group.block_size <= request.frontier.valid_low;
  if (group.IsCross() || group.IsRing()) return false;
  if (group.IsState()) {  // the one state that the request goes on from
    const int64_t low = request.frontier.valid_low;
    return group.Forgets() && low > 0 && column == group.StateColumn(low);
  }
  return (column + 1) * group.block_size <= request.frontier.valid_low;
}

// The last token of a prompt is computed again although its KV is there: its slot is rewritten with
// what it holds (mrv2.md 6.2, trap 10).
bool IsRecomputedHit(const Context& context, const Request& request, const Group& group,
                     int64_t column, int64_t block, const mirror::Block& b) {
  if (group.IsState() || group.IsCross() || group.IsRing() ||
      request.admitted_step != context.step || request.frontier.valid_low != request.known - 1 ||
      (column + 1) * group.block_size > request.known ||
      mirror::Mirror::EarlierClaims(b, context.step) == 0) {
    return false;
  }
  if (b.home != 0) return mirror::Mirror::IsAtHome(b, group.id, column);
  // A connector may have filled it unsaid: whoever holds it here says where it belongs.
  const auto here = [&](const Request&, const Group& other, int64_t at) {
    return other.id == group.id && at == column;
  };
  return context.mirror->FindClaim(group, block, here) != kNoRequest;
}

// Speculative blocks of a row of states move on with it (mrv2.md 3.5): the row holds the block in
// columns where no state of it can stand. Ends the claims of these.
bool MovesOn(Context& context, Request& request, const Group& group, int64_t block) {
  if (group.state_mode != KVGUARD_STATE_ALIGN || !group.IsState()) return false;
  mirror::Mirror& mirror = *context.mirror;
  const int64_t columns = mirror.BoundBlocks(request, group);
  const auto holds = [&](int64_t column) {
    return mirror.BlockAt(request, group, column) == block &&
           mirror.IsClaimed(request, group, column) &&
           group.Needs(column, request.frontier.valid_high);
  };
  for (int64_t column = 0; column < columns; ++column) {
    if (holds(column) && mirror::Mirror::MayBePlace(request, group, column)) return false;
  }
  for (int64_t column = 0; column < columns; ++column) {
    if (holds(column)) mirror.MoveAway(&request, group, column, context.step);
  }
  return true;
}

// *stamp: of the row's blocks, or 0 while they have none.
void BindOne(Context& context, Request& request, const Group& group, int64_t block,
             uint64_t* stamp) {
  mirror::Mirror& mirror = *context.mirror;
  const int64_t column = mirror.BoundBlocks(request, group);
  const auto emit = [&](uint32_t code) -> kvguard_finding& {
    kvguard_finding& finding = Emit(context, code);
    finding.request = request.key;
    finding.group = group.id;
    finding.pos = column;
    SetValues(finding, KVGUARD_NONE, block);
    return finding;
  };
  if (!mirror.InPool(group, block)) {
    emit(kBlockOutOfRange).expected = context.layout().PoolOf(group).num_blocks - 1;
    mirror.Push(&request, group, block);
    return;
  }
  if (!group.plain && group.Forgets() && !group.Needs(column, request.frontier.valid_low)) {
    // Behind the window: nothing is read there.
    mirror.Push(&request, group, block, context.step | mirror::kNoClaim);
    return;
  }
  const bool is_null = block == context.layout().PoolOf(group).null_block;
  if (is_null && group.IsState() && group.Forgets() && !IsHit(request, group, column)) {
    // No state is kept there.
    mirror.Push(&request, group, block, context.step | mirror::kNoClaim);
    return;
  }
  if (is_null) {
    emit(kBlockNull);
    request.maybe_stale = true;
    mirror.Push(&request, group, block);
    return;
  }
  // Only a block that somebody claims can stand in this row already, so that a row of fresh blocks
  // costs one look a block, and the row of a long shared prefix one stamp more.
  mirror::Block& b = mirror.TouchBlock(group, block);
  if (b.claims > 0 && *stamp == 0) *stamp = mirror.StampRow(request, group);
  if (*stamp != 0 && b.stamp == *stamp && !MovesOn(context, request, group, block)) {
    emit(kBlockRepeated);
    ++b.claims;  // keeps the count of claims equal to the row entries
  } else if (IsHit(request, group, column) ||
             IsRecomputedHit(context, request, group, column, block, b)) {
    // A connector may have filled a block that nobody claims, without saying so.
    if (b.claims == 0 && context.layout().Has(KVGUARD_ENGINE_CONNECTOR) &&
        !context.layout().Has(KVGUARD_ENGINE_FILLS_TOLD))
      mirror::Mirror::ForgetContent(&b);
    if (b.lost) mirror.NoteLostClaim();
    mirror::Mirror::ClaimHit(&b, context.step);
    mirror.hits().push_back({request.key, group.id, column, request.frontier.valid_low});
    mirror::Row& row = request.rows[group.id];
    if (row.hit_step != context.step || row.hit_first == row.hit_end) {
      row.hit_step = context.step;
      row.hit_first = column;
    }
    row.hit_end = column + 1;
  } else {
    if (mirror::Mirror::EarlierClaims(b, context.step) > 0)
      JudgeFreshOwner(context, request, group, column, block);
    if (b.pins_in + b.pins_out > 0) JudgePinned(context, request, group, column, block);
    if (b.lost) mirror.SetLost(group, block, false);
    const bool loaded = b.loaded_for != 0 || b.keeps_load;
    const bool filled = loaded && b.loaded_for == request.key && !b.bound && b.home != 0 &&
                        mirror::Mirror::IsAtHome(b, group.id, column);
    mirror::Mirror::ClaimFresh(&b, request.key, context.step);
    mirror::Mirror::SetHome(&b, group.id, column);
    if (loaded) {
      b.loaded_for = 0;
      b.keeps_load = filled;
    }
  }
  if (*stamp != 0 && group.Needs(column, request.frontier.valid_high)) b.stamp = *stamp;
  mirror.Push(&request, group, block, context.step);
}

void Bind(Context& context, const kvguard_event& event, Request& request) {
  const Group& group = context.layout().groups[event.group];
  mirror::Mirror& mirror = *context.mirror;
  if (event.kind == KVGUARD_EVENT_REPLACE) mirror.Truncate(&request, group, 0, context.step);
  if (event.num_blocks > 0) mirror.MarkAppend(&request, group);
  context.appending = event.kind == KVGUARD_EVENT_APPEND;
  uint64_t stamp = 0;
  for (uint64_t i = 0; i < event.num_blocks; ++i)
    BindOne(context, request, group, event.blocks[i], &stamp);
  const int64_t columns = mirror.BoundBlocks(request, group);
  if (group.max_columns > 0 && columns > group.max_columns) {
    kvguard_finding& finding = Emit(context, kRowTooWide);
    finding.request = request.key;
    finding.group = group.id;
    SetValues(finding, group.max_columns, columns);
  }
  context.coverage->Add(group.id, 0, 0, KVGUARD_FAMILY_BINDING, event.num_blocks);
  context.coverage->Add(group.id, 0, 0, KVGUARD_FAMILY_OWNERSHIP, event.num_blocks);
}

void UnknownRequest(Context& context, uint64_t key, uint32_t group) {
  kvguard_finding& finding = Emit(context, kRequestUnknown);
  finding.request = key;
  finding.group = group;
}

bool HasGapNamed(const Context& context, const char* name) {
  return std::find(context.gaps->begin(), context.gaps->end(), name) != context.gaps->end();
}

void NoteGap(Context& context, const char* name) {
  if (!HasGapNamed(context, name)) context.gaps->emplace_back(name);
}

void Apply(Context& context, const kvguard_event& event, bool* lost, bool* gap_event) {
  mirror::Mirror& mirror = *context.mirror;
  switch (event.kind) {
    case KVGUARD_EVENT_ADMIT:
      if (mirror.Find(event.request) != kNoRequest) return;  // twice in one record: all is lost
      mirror.Admit(event.request,
                   std::string_view(event.name == nullptr ? "" : event.name, event.name_size),
                   event.first, context.step);
      mirror.at(mirror.Find(event.request)).known = event.count;
      if (event.num_tokens > 0) context.admitted.push_back(&event);
      return;
    case KVGUARD_EVENT_FINISH:
    case KVGUARD_EVENT_PREEMPT: {
      const uint32_t index = mirror.Find(event.request);
      if (index == kNoRequest) {
        ++context.counters->ignored;
        mirror.transfers().DropUnplaced(event.request);
      } else {
        mirror.Release(index, context.step);
      }
      return;
    }
    case KVGUARD_EVENT_ROLLBACK: {
      const uint32_t index = mirror.Find(event.request);
      if (index == kNoRequest) return UnknownRequest(context, event.request, KVGUARD_ALL_GROUPS);
      mirror.at(index).maybe_stale = true;
      mirror::Frontier& f = mirror.at(index).frontier;
      f.valid_low = std::max<int64_t>(0, f.valid_low - event.count);
      f.valid_high = std::max<int64_t>(0, f.valid_high - event.count);
      f.scheduler = f.valid_high;
      mirror::Mirror::Settle(&mirror.at(index));
      return;
    }
    case KVGUARD_EVENT_APPEND:
    case KVGUARD_EVENT_REPLACE: {
      const uint32_t index = mirror.Find(event.request);
      if (index == kNoRequest) return UnknownRequest(context, event.request, event.group);
      Bind(context, event, mirror.at(index));
      return;
    }
    case KVGUARD_EVENT_TRUNCATE: {
      const uint32_t index = mirror.Find(event.request);
      if (index == kNoRequest) return UnknownRequest(context, event.request, event.group);
      mirror.Truncate(&mirror.at(index), context.layout().groups[event.group], event.first,
                      context.step);
      return;
    }
    case KVGUARD_EVENT_ERASE:
    case KVGUARD_EVENT_REBASE:
      if (context.layout().has_cells && mirror.Find(event.request) == kNoRequest)
        return UnknownRequest(context, event.request, event.group);
      [[fallthrough]];
    case KVGUARD_EVENT_REMAP:
      if (ApplyMove(context, event)) return;
      [[fallthrough]];
    case KVGUARD_EVENT_SHARE:
      // They move tables or positions in ways this version does not follow: what it would expect
      // afterwards is wrong.
      NoteGap(context, "table-event-not-followed");
      *lost = true;
      return;
    case KVGUARD_EVENT_ZERO:
    case KVGUARD_EVENT_ZERO_DONE:
    case KVGUARD_EVENT_COPY:
    case KVGUARD_EVENT_COPY_DONE:
      ApplyCopy(context, event);
      return;
    case KVGUARD_EVENT_FREE:
      ApplyFree(context, event);
      return;
    case KVGUARD_EVENT_DOMAIN: {
      const uint32_t index = mirror.Find(event.request);
      if (index == kNoRequest) {
        ++context.counters->ignored;
        return;
      }
      Request& request = mirror.at(index);
      if (request.admitted_step == context.step) {
        if (event.other == KVGUARD_DOMAIN_ENCODER) {
          constexpr int64_t kMost = int64_t{1} << 40;
          const int64_t end = event.first < kMost - event.count ? event.first + event.count : kMost;
          request.encoder = std::max(request.encoder, end);
        }
        request.chain.AddDomain({event.other, event.value, event.first, event.count});
      } else {
        request.chain.Forget();
      }
      return;
    }
    case KVGUARD_EVENT_GAP:
      context.gaps->emplace_back(event.name, event.name_size);
      *gap_event = true;
      if ((event.flags & KVGUARD_EVENT_BINDINGS_LOST) != 0) *lost = true;
      return;
    default:
      ApplyTransfer(context, event);
      return;
  }
}

// Where the step's first token stands: behind the tokens with valid KV, of which there are never
// more than the scheduler counts.
void SetStart(Request& request, int64_t most) {
  const mirror::Frontier& f = request.frontier;
  request.start_low = f.valid_low;
  request.start_high = std::max(f.valid_low, std::min(f.valid_high, most));
  request.start = request.start_low == request.start_high ? request.start_low : KVGUARD_NONE;
}

// The scheduler's count against what was computed, and where this step's first token therefore
// stands.
void JudgeCount(Context& context, Request& request, const kvguard_scheduled& row) {
  mirror::Frontier& f = request.frontier;
  const bool async = context.layout().Has(KVGUARD_ENGINE_ASYNC);
  const auto emit = [&](uint32_t code, int64_t expected) {
    kvguard_finding& finding = Emit(context, code);
    finding.request = request.key;
    finding.pos = row.num_computed;
    SetValues(finding, expected, row.num_computed);
  };
  // An asynchronous scheduler counts drafts as accepted until it has heard of the rejected ones.
  const int64_t most = async ? f.scheduler : f.valid_high;
  if (row.num_computed > most) {
    emit(kCountAhead, most);
    request.start = f.valid_low;  // what was computed has not changed by being miscounted
    request.start_low = request.start_high = request.start;
    return;
  }
  if (row.num_computed < f.valid_low) {
    // A failed load takes computed tokens back; without a connector nothing that we know does.
    if (!context.layout().Has(KVGUARD_ENGINE_CONNECTOR)) emit(kCountBehind, f.valid_low);
    request.maybe_stale = true;
    f = {row.num_computed, row.num_computed, row.num_computed};
    mirror::Mirror::Settle(&request);
  } else if (!async) {
    f = {row.num_computed, row.num_computed, row.num_computed};
    mirror::Mirror::Settle(&request);
  } else {
    f.scheduler = row.num_computed;
  }
  context.mirror->Expire(&request, context.step);
  SetStart(request, row.num_computed);
}

// A step must have somewhere to leave its states.
void JudgeStateTargets(Context& context, const Request& request, const Group& group) {
  const int64_t null_block = context.layout().PoolOf(group).null_block;
  if (!group.Forgets() || request.start == KVGUARD_NONE || null_block == KVGUARD_NONE) return;
  const int64_t first = group.StateColumn(request.start + request.num_tokens);
  const int64_t bound = context.mirror->BoundBlocks(request, group);
  for (int64_t column = first; column < bound && column <= first + request.num_drafts; ++column) {
    if (context.mirror->BlockAt(request, group, column) != null_block) continue;
    kvguard_finding& finding = Emit(context, kBlockNull);
    finding.request = request.key;
    finding.group = group.id;
    finding.pos = column;
    SetValues(finding, KVGUARD_NONE, null_block);
    return;
  }
}

// Tokens that the request's blocks must hold in this step. What may still turn out rejected is
// never needed beyond the model's length.
int64_t Reach(const geometry::Layout& layout, const Request& request,
              const kvguard_scheduled& row) {
  int64_t most = std::max(row.num_computed, request.start_high) + row.num_tokens;
  if (layout.max_model_len > 0) most = std::min(most, layout.max_model_len);
  return std::max(most, request.start_low + row.num_tokens);
}

}  // namespace

step::Status JudgeBegin(Context& context, const step::BeginView& begin, bool* lost,
                        bool* gap_event) {
  mirror::Mirror& mirror = *context.mirror;
  std::vector<uint64_t> admitted;
  for (size_t i = 0; i < begin.events.size(); ++i) {
    const kvguard_event& event = begin.events[i];
    if (event.kind != KVGUARD_EVENT_ADMIT) continue;
    admitted.push_back(event.request);
    if (mirror.Find(event.request) != kNoRequest) {
      return step::Malformed("events[%zu]: key %llu is admitted twice; keys are never reused", i,
                             static_cast<unsigned long long>(event.request));
    }
  }
  std::sort(admitted.begin(), admitted.end());
  const bool twice = std::adjacent_find(admitted.begin(), admitted.end()) != admitted.end();
  mirror.BeginStep(context.step);
  if (twice) {
    NoteGap(context, "admitted-twice");
    *lost = true;
  }
  for (size_t i = 0; i < begin.events.size(); ++i) Apply(context, begin.events[i], lost, gap_event);
  LearnTokens(context);
  JudgePlacements(context);
  JudgeStrayed(context);

  for (size_t i = 0; i < begin.scheduled.size(); ++i) {
    const kvguard_scheduled& row = begin.scheduled[i];
    const uint32_t index = mirror.Find(row.request);
    if (index == kNoRequest) {
      UnknownRequest(context, row.request, KVGUARD_ALL_GROUPS);
      continue;
    }
    Request& request = mirror.at(index);
    if (mirror.IsScheduled(request)) {
      NoteGap(context, "scheduled-twice");
      continue;
    }
    JudgeCount(context, request, row);
    request.num_tokens = row.num_tokens;
    request.num_drafts = row.num_drafts;
    mirror.Schedule(index);
    const int64_t end = Reach(context.layout(), request, row);
    for (const Group& group : context.layout().groups) {
      if (group.on_host) continue;
      const int64_t tokens = !group.plain && group.IsCross() ? request.encoder : end;
      const int64_t needed = group.ColumnsFor(tokens, row.num_drafts);
      const int64_t bound = mirror.BoundBlocks(request, group);
      if (bound < needed) {
        kvguard_finding& finding = Emit(context, kCapacityShort);
        finding.request = request.key;
        finding.group = group.id;
        finding.pos = tokens - 1;
        SetValues(finding, needed, bound);
      }
      if (group.IsState()) JudgeStateTargets(context, request, group);
    }
    JudgeWriters(context, request);
    JudgeWritesToPinned(context, request);
  }
  JudgeContents(context);
  JudgeLost(context);
  JudgeZeroing(context);
  const uint64_t scheduled = begin.scheduled.size();
  context.coverage->Add(KVGUARD_ALL_GROUPS, 0, 0, KVGUARD_FAMILY_BINDING, scheduled);
  context.coverage->Add(KVGUARD_ALL_GROUPS, 0, 0, KVGUARD_FAMILY_OWNERSHIP, scheduled);
  context.coverage->Add(KVGUARD_ALL_GROUPS, 0, 0, KVGUARD_FAMILY_FRONTIER, scheduled);
  return {};
}

step::Status JudgeOutcome(Context& context, const step::OutcomeView& outcome, uint64_t for_step,
                          bool* lost) {
  mirror::Mirror& mirror = *context.mirror;
  for (size_t i = 0; i < outcome.events.size(); ++i) {
    const uint32_t kind = outcome.events[i].kind;
    if (kind < KVGUARD_EVENT_RESERVE && kind != KVGUARD_EVENT_ZERO_DONE &&
        kind != KVGUARD_EVENT_COPY_DONE)
      return step::Malformed("outcome events[%zu]: kind %u belongs into a BEGIN", i, kind);
  }
  for (size_t i = 0; i < outcome.rows.size(); ++i) {
    const kvguard_outcome_row& row = outcome.rows[i];
    const uint32_t index = mirror.Find(row.request);
    if (index == kNoRequest) {
      ++context.counters->ignored;  // it ended before its outcome was known
      continue;
    }
    Request& request = mirror.at(index);
    if (request.chain.active() && row.num_sampled > 0)
      LearnSampled(context, request, row, for_step);
    int64_t drafts = request.num_drafts;
    // An outcome that arrives inside its own step is applied to the step's own drafts.
    if (mirror.IsOpen(for_step) && mirror.IsScheduled(request)) {
      if (row.num_rejected <= request.num_drafts) {
        request.rejected = row.num_rejected;
        continue;
      }
    } else if (mirror.Outcome(&request, for_step, row.num_rejected, &drafts)) {
      for (const mirror::Request::Assumed& assumed : request.assumed) {
        if (assumed.open > 0 || assumed.low == assumed.start) continue;
        kvguard_finding& finding = Emit(context, kFrontierMismatch);
        finding.request = request.key;
        finding.pos = assumed.low;
        SetValues(finding, assumed.low, assumed.start);
      }
      request.assumed.erase(std::remove_if(request.assumed.begin(), request.assumed.end(),
                                           [](const auto& a) { return a.open == 0; }),
                            request.assumed.end());
      // A step that is already open starts where this one really ended.
      if (mirror.IsScheduled(request) && request.start == KVGUARD_NONE)
        SetStart(request, request.start_high);
      continue;
    }
    kvguard_finding& finding = Emit(context, kRejectedTooMany);
    finding.request = row.request;
    SetValues(finding, drafts, row.num_rejected);
  }
  bool gap_event = false;  // plans are judged as they came: an outcome says nothing about them
  for (size_t i = 0; i < outcome.events.size(); ++i) {
    Apply(context, outcome.events[i], lost, &gap_event);
  }
  return {};
}

}  // namespace kvguard::rules
