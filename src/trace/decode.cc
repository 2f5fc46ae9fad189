// SPDX-License-Identifier: Apache-2.0
#include "trace/decode.h"

#include "trace/decode_impl.h"

namespace kvguard::trace {

using step::Status;

Status StepDecoder::Impl::Events(const wire::Events* in, const kvguard_event** events,
                                 uint64_t* num_events) {
  *events = nullptr;
  *num_events = 0;
  if (in == nullptr || in->count() == 0) return {};
  const uint64_t count = in->count();
  uint32_t* kind = nullptr;
  uint64_t* request = nullptr;
  uint32_t* group = nullptr;
  uint32_t* flags = nullptr;
  int64_t* first = nullptr;
  int64_t* number = nullptr;
  uint64_t* other = nullptr;
  int64_t* value = nullptr;
  uint64_t* num_blocks = nullptr;
  uint64_t* num_tokens = nullptr;
  uint64_t* name_size = nullptr;
  if (Status s = Values(in->kind(), nullptr, count, "event kinds", &kind); !s.ok()) return s;
  if (Status s = Values(in->request(), nullptr, count, "event requests", &request); !s.ok())
    return s;
  if (Status s = Values(in->group(), nullptr, count, "event groups", &group); !s.ok()) return s;
  if (Status s = Values(in->flags(), nullptr, count, "event flags", &flags); !s.ok()) return s;
  if (Status s = Values(in->first(), nullptr, count, "event positions", &first); !s.ok()) return s;
  if (Status s = Values(in->number(), nullptr, count, "event counts", &number); !s.ok()) return s;
  if (Status s = Values(in->other(), nullptr, count, "event partners", &other); !s.ok()) return s;
  if (Status s = Values(in->value(), nullptr, count, "event values", &value); !s.ok()) return s;
  if (Status s = Values(in->num_blocks(), nullptr, count, "block counts", &num_blocks); !s.ok())
    return s;
  if (Status s = Values(in->num_tokens(), nullptr, count, "token counts", &num_tokens); !s.ok())
    return s;
  if (Status s = Values(in->name_size(), nullptr, count, "name sizes", &name_size); !s.ok())
    return s;

  uint64_t all_blocks = 0;
  uint64_t all_tokens = 0;
  uint64_t all_names = 0;
  if (!Total(num_blocks, count, &all_blocks)) return TooLarge("number of blocks");
  if (!Total(num_tokens, count, &all_tokens)) return TooLarge("number of tokens");
  if (!Total(name_size, count, &all_names)) return TooLarge("names");
  int64_t* blocks = nullptr;
  if (Status s = Values(in->blocks(), nullptr, all_blocks, "blocks", &blocks); !s.ok()) return s;
  const int64_t* token_values = nullptr;
  if (Status s = Tokens(in->tokens(), all_tokens, "tokens", &token_values); !s.ok()) return s;
  const char* names = nullptr;
  if (in->names() != nullptr) {
    if (in->names()->size() != all_names) return Inconsistent("names");
    names = reinterpret_cast<const char*>(in->names()->data());
  } else if (all_names != 0) {
    return Inconsistent("names");
  }

  kvguard_event* out = arena.Allocate<kvguard_event>(count);
  if (out == nullptr) return TooLarge("number of events");
  for (uint64_t i = 0; i < count; ++i) {
    kvguard_event& event = out[i];
    event = kvguard_event{};
    event.size = sizeof(event);
    event.kind = kind[i];
    event.request = request[i];
    event.group = group[i];
    event.flags = flags[i];
    event.first = first[i];
    event.count = number[i];
    event.other = other[i];
    event.value = value[i];
    event.num_blocks = num_blocks[i];
    event.blocks = num_blocks[i] > 0 ? blocks : nullptr;
    blocks += num_blocks[i];
    event.num_tokens = num_tokens[i];
    event.tokens = num_tokens[i] > 0 ? token_values : nullptr;
    if (num_tokens[i] > 0) token_values += num_tokens[i];
    event.name_size = name_size[i];
    event.name = name_size[i] > 0 ? names : nullptr;
    if (name_size[i] > 0) names += name_size[i];
    if (event.kind == KVGUARD_EVENT_FINISH || event.kind == KVGUARD_EVENT_PREEMPT) {
      state.Forget(event.request);
    }
  }
  *events = out;
  *num_events = count;
  return {};
}

Status StepDecoder::Impl::Begin(const wire::Begin& in) {
  kvguard_begin* out = arena.Allocate<kvguard_begin>(1);
  if (out == nullptr) return TooLarge("schedule");
  *out = kvguard_begin{};
  out->size = sizeof(*out);
  if (Status s = Events(in.events(), &out->events, &out->num_events); !s.ok()) return s;
  const uint64_t count = in.num_scheduled();
  if (count > 0) {
    uint64_t* request = nullptr;
    int64_t* num_tokens = nullptr;
    int64_t* num_computed = nullptr;
    uint32_t* num_drafts = nullptr;
    ScheduledMemory& memory = state.scheduled;
    if (Status s = Values(in.request(), &memory.request, count, "requests", &request, Same(in, 0));
        !s.ok())
      return s;
    if (Status s = Values(in.num_tokens(), &memory.num_tokens, count, "token counts", &num_tokens,
                          Same(in, 1));
        !s.ok()) {
      return s;
    }
    if (Status s = Values(in.num_computed(), &memory.num_computed, count, "computed counts",
                          &num_computed, Same(in, 2));
        !s.ok()) {
      return s;
    }
    if (Status s = Values(in.num_drafts(), &memory.num_drafts, count, "draft counts", &num_drafts,
                          Same(in, 3));
        !s.ok()) {
      return s;
    }
    kvguard_scheduled* scheduled = arena.Allocate<kvguard_scheduled>(count);
    if (scheduled == nullptr) return TooLarge("schedule");
    for (uint64_t i = 0; i < count; ++i) {
      scheduled[i] = kvguard_scheduled{};
      scheduled[i].size = sizeof(kvguard_scheduled);
      scheduled[i].request = request[i];
      scheduled[i].num_tokens = num_tokens[i];
      scheduled[i].num_computed = num_computed[i];
      scheduled[i].num_drafts = num_drafts[i];
    }
    out->scheduled = scheduled;
    out->num_scheduled = count;
  }
  record.kind = KVGUARD_RECORD_BEGIN;
  record.body.begin = out;
  return {};
}

Status StepDecoder::Impl::Outcome(const wire::Outcome& in) {
  kvguard_outcome* out = arena.Allocate<kvguard_outcome>(1);
  if (out == nullptr) return TooLarge("outcome");
  *out = kvguard_outcome{};
  out->size = sizeof(*out);
  if (Status s = Events(in.events(), &out->events, &out->num_events); !s.ok()) return s;
  const uint64_t count = in.num_rows();
  if (count > 0) {
    uint64_t* request = nullptr;
    uint32_t* num_sampled = nullptr;
    uint32_t* num_rejected = nullptr;
    uint64_t* num_tokens = nullptr;
    int64_t* no_tokens = nullptr;
    OutcomeMemory& memory = state.outcome;
    if (Status s = Values(in.request(), &memory.request, count, "requests", &request, Same(in, 0));
        !s.ok())
      return s;
    if (Status s = Values(in.num_sampled(), &memory.num_sampled, count, "sampled counts",
                          &num_sampled, Same(in, 1));
        !s.ok()) {
      return s;
    }
    if (Status s = Values(in.num_rejected(), &memory.num_rejected, count, "rejected counts",
                          &num_rejected, Same(in, 2));
        !s.ok()) {
      return s;
    }
    if (Status s = Values(in.num_tokens(), &memory.num_tokens, count, "token counts", &num_tokens,
                          Same(in, 3));
        !s.ok())
      return s;
    if (Status s = Values(in.no_tokens(), nullptr, count, "token flags", &no_tokens); !s.ok())
      return s;
    uint64_t all_tokens = 0;
    for (uint64_t i = 0; i < count; ++i) {
      if (no_tokens[i] != 0) continue;
      uint64_t row_total = 0;
      if (!Total(&num_tokens[i], 1, &row_total) || all_tokens > kMaxDecodeBytes)
        return TooLarge("number of tokens");
      all_tokens += row_total;
    }
    const int64_t* token_values = nullptr;
    if (Status s = Tokens(in.tokens(), all_tokens, "tokens", &token_values); !s.ok()) return s;
    kvguard_outcome_row* rows = arena.Allocate<kvguard_outcome_row>(count);
    // Known to be none is not the same as not known: such a row points somewhere.
    const int64_t* none = arena.Allocate<int64_t>(1);
    if (rows == nullptr || none == nullptr) return TooLarge("outcome");
    for (uint64_t i = 0; i < count; ++i) {
      rows[i] = kvguard_outcome_row{};
      rows[i].size = sizeof(kvguard_outcome_row);
      rows[i].request = request[i];
      rows[i].num_sampled = num_sampled[i];
      rows[i].num_rejected = num_rejected[i];
      rows[i].num_tokens = num_tokens[i];
      if (no_tokens[i] != 0) continue;
      rows[i].tokens = num_tokens[i] > 0 ? token_values : none;
      if (num_tokens[i] > 0) token_values += num_tokens[i];
    }
    out->rows = rows;
    out->num_rows = count;
  }
  record.kind = KVGUARD_RECORD_OUTCOME;
  record.body.outcome = out;
  return {};
}

// The smallest record that fails where the original failed: its arrays were never recorded.
Status StepDecoder::Impl::Refused(const wire::Refused& in) {
  constexpr uint32_t kUnknown = 0xffffffffu;
  const bool unsupported = in.status() == KVGUARD_ERROR_UNSUPPORTED;
  const bool order = in.status() == KVGUARD_ERROR_ORDER;
  record.kind = in.kind();
  // Out of memory, or a bug: a guard that met it judges nothing until a RESET, as after a BEGIN
  // without a body.
  if (in.status() == KVGUARD_ERROR_MEMORY || in.status() == KVGUARD_ERROR_INTERNAL) {
    record.kind = KVGUARD_RECORD_BEGIN;
    return {};
  }
  if (in.no_body()) return {};
  switch (in.kind()) {
    case KVGUARD_RECORD_BEGIN: {
      kvguard_begin* begin = arena.Allocate<kvguard_begin>(1);
      if (begin == nullptr) return TooLarge("mark");
      *begin = kvguard_begin{};
      begin->size = unsupported ? sizeof(*begin) : kUnknown;
      begin->flags = kUnknown;
      record.body.begin = begin;
      return {};
    }
    case KVGUARD_RECORD_PLAN: {
      kvguard_plan* plan = arena.Allocate<kvguard_plan>(1);
      int32_t* query_start = arena.Allocate<int32_t>(1);
      if (plan == nullptr || query_start == nullptr) return TooLarge("mark");
      *query_start = 0;
      *plan = kvguard_plan{};
      plan->size = unsupported || order ? sizeof(*plan) : kUnknown;
      plan->flags = unsupported ? kUnknown : 0;
      plan->pass = KVGUARD_PASS_TARGET;
      plan->stage = KVGUARD_STAGE_PLANNED;
      plan->query_start = {query_start, 1, KVGUARD_I32, 0};
      plan->seq_lens = {query_start, 0, KVGUARD_I32, 0};
      record.body.plan = plan;
      return {};
    }
    case KVGUARD_RECORD_OUTCOME: {
      kvguard_outcome* outcome = arena.Allocate<kvguard_outcome>(1);
      if (outcome == nullptr) return TooLarge("mark");
      *outcome = kvguard_outcome{};
      outcome->size = unsupported ? sizeof(*outcome) : kUnknown;
      outcome->flags = kUnknown;
      record.body.outcome = outcome;
      return {};
    }
    case KVGUARD_RECORD_RESET: {
      kvguard_reset* reset = arena.Allocate<kvguard_reset>(1);
      if (reset == nullptr) return TooLarge("mark");
      *reset = kvguard_reset{};
      reset->size = sizeof(*reset);
      reset->reason = kUnknown;
      record.body.reset = reset;
      return {};
    }
    default: {  // END, and kinds that do not exist
      kvguard_end* end = arena.Allocate<kvguard_end>(1);
      if (end == nullptr) return TooLarge("mark");
      *end = kvguard_end{};
      end->size = unsupported ? sizeof(*end) : kUnknown;
      end->flags = kUnknown;
      record.body.end = end;
      return {};
    }
  }
}

StepDecoder::StepDecoder(uint32_t num_groups) : impl_(std::make_unique<Impl>(num_groups)) {}
StepDecoder::~StepDecoder() = default;

Status StepDecoder::Open(std::span<const uint8_t> payload) {
  Impl& impl = *impl_;
  impl.records = nullptr;
  impl.num_records = impl.next = 0;
  flatbuffers::Verifier verifier(payload.data(), payload.size());
  if (!verifier.VerifyBuffer<wire::Step>(nullptr)) {
    return {KVGUARD_ERROR_FORMAT, "its content is not a step"};
  }
  const auto* step = flatbuffers::GetRoot<wire::Step>(payload.data());
  if (step->fresh()) {
    impl.state.Clear();
    impl.tokens.Clear();
  }
  impl.records = step->records();
  impl.num_records = impl.records == nullptr ? 0 : impl.records->size();
  return {};
}

uint32_t StepDecoder::left() const { return impl_->num_records - impl_->next; }

Status StepDecoder::Next(const kvguard_record** record) {
  Impl& impl = *impl_;
  *record = nullptr;
  if (left() == 0) return {KVGUARD_ERROR_ORDER, "no record is left in this step"};
  const wire::Record& in = *impl.records->Get(impl.next++);
  const uint64_t held = impl.HeldBytes();
  impl.arena.Reset(held < kMaxDecodeBytes ? kMaxDecodeBytes - held : 0);
  impl.record = kvguard_record{};
  impl.record.size = sizeof(impl.record);
  impl.record.step = in.step();
  // The verifier lets a union without a value pass.
  if (in.body_type() != wire::Body::NONE && in.body() == nullptr) {
    impl.num_records = impl.next = 0;
    return {KVGUARD_ERROR_FORMAT, "it has a record without content"};
  }
  Status status;
  switch (in.body_type()) {
    case wire::Body::Begin:
      status = impl.Begin(*in.body_as_Begin());
      break;
    case wire::Body::Plan:
      status = impl.Plan(*in.body_as_Plan());
      break;
    case wire::Body::Outcome:
      status = impl.Outcome(*in.body_as_Outcome());
      break;
    case wire::Body::End: {
      kvguard_end* end = impl.arena.Allocate<kvguard_end>(1);
      if (end == nullptr) {
        status = TooLarge("end");
        break;
      }
      *end = kvguard_end{};
      end->size = sizeof(*end);
      end->flags = in.body_as_End()->flags();
      impl.record.kind = KVGUARD_RECORD_END;
      impl.record.body.end = end;
      break;
    }
    case wire::Body::Reset: {
      kvguard_reset* reset = impl.arena.Allocate<kvguard_reset>(1);
      if (reset == nullptr) {
        status = TooLarge("reset");
        break;
      }
      *reset = kvguard_reset{};
      reset->size = sizeof(*reset);
      reset->reason = in.body_as_Reset()->reason();
      impl.state.ForgetRows();
      impl.record.kind = KVGUARD_RECORD_RESET;
      impl.record.body.reset = reset;
      break;
    }
    case wire::Body::Refused:
      status = impl.Refused(*in.body_as_Refused());
      break;
    case wire::Body::NONE:
      status = {KVGUARD_ERROR_FORMAT, "it has a record without content"};
      break;
    default:
      status = {KVGUARD_ERROR_VERSION, "it has a record of kind " +
                                           std::to_string(static_cast<int>(in.body_type())) +
                                           ", which this version does not know"};
      break;
  }
  if (!status.ok()) {
    impl.num_records = impl.next = 0;
    return status;
  }
  *record = &impl.record;
  return {};
}

}  // namespace kvguard::trace
