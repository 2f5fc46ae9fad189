// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "step/views.h"

namespace kvguard::step {
namespace {

// Bounds that only garbage exceeds; they keep what a lying count can make us read or allocate
// finite.
constexpr uint64_t kMostEvents = 1u << 22;
constexpr uint64_t kMostScheduled = 1u << 20;
constexpr uint64_t kMostBlocks = 1u << 26;
constexpr uint64_t kMostName = 4096;
constexpr int64_t kMostTokens = int64_t{1} << 40;  // sums of counts cannot overflow

using Ull = unsigned long long;

Status CheckInts(const kvguard_array& array, uint64_t least, bool required, const char* what,
                 Ints* out) {
  *out = Ints{};
  if (array.dtype == KVGUARD_DTYPE_NONE || array.data == nullptr) {
    if (required && least > 0) return Malformed("plan: %s is absent; it is required", what);
    return {};
  }
  if (array.dtype != KVGUARD_I32 && array.dtype != KVGUARD_I64) {
    return Malformed("plan: %s has dtype %u; int32 (1) or int64 (2) is wanted", what, array.dtype);
  }
  const uintptr_t alignment = array.dtype == KVGUARD_I64 ? 8 : 4;
  if (reinterpret_cast<uintptr_t>(array.data) % alignment != 0)
    return Malformed("plan: %s is not aligned", what);
  if (array.count < least) {
    return Malformed("plan: %s has %llu elements, but %llu are needed", what,
                     static_cast<Ull>(array.count), static_cast<Ull>(least));
  }
  *out = Ints{array.data, array.count, array.dtype};
  return {};
}

Status CheckTable(const kvguard_read_table& table, uint64_t num_rows, uint32_t group,
                  TableView* out) {
  *out = TableView{};
  if (table.data == nullptr || table.dtype == KVGUARD_DTYPE_NONE) return {};
  if (table.dtype != KVGUARD_I32 && table.dtype != KVGUARD_I64) {
    return Malformed("plan: group %u: table has dtype %u; int32 (1) or int64 (2) is wanted", group,
                     table.dtype);
  }
  const uintptr_t alignment = table.dtype == KVGUARD_I64 ? 8 : 4;
  if (reinterpret_cast<uintptr_t>(table.data) % alignment != 0) {
    return Malformed("plan: group %u: table is not aligned", group);
  }
  if (table.rows < num_rows) {
    return Malformed("plan: group %u: table has %llu rows for %llu requests", group,
                     static_cast<Ull>(table.rows), static_cast<Ull>(num_rows));
  }
  if (table.row_stride < table.columns) {
    return Malformed("plan: group %u: row stride %llu is smaller than %llu columns", group,
                     static_cast<Ull>(table.row_stride), static_cast<Ull>(table.columns));
  }
  if (table.rows > kMostScheduled || table.row_stride > kMostBlocks) {
    return Malformed("plan: group %u: a table of %llu rows with stride %llu is not plausible",
                     group, static_cast<Ull>(table.rows), static_cast<Ull>(table.row_stride));
  }
  out->data = table.data;
  out->dtype = table.dtype;
  out->rows = table.rows;
  out->columns = table.columns;
  out->row_stride = table.row_stride;
  if (Status s = CheckInts(table.seq_lens, num_rows, false, "the group's seq_lens", &out->seq_lens);
      !s.ok())
    return s;
  return CheckInts(table.row_columns, num_rows, false, "row_columns", &out->row_columns);
}

Status CheckStates(const kvguard_read_state& state, uint64_t num_rows, StateView* out) {
  *out = StateView{};
  if (Status s = CheckInts(state.in, num_rows, false, "states in", &out->in); !s.ok()) return s;
  if (Status s = CheckInts(state.out, num_rows, false, "states out", &out->out); !s.ok()) return s;
  const kvguard_array& init = state.init;
  if (init.dtype == KVGUARD_DTYPE_NONE || init.data == nullptr) return {};
  if (init.dtype != KVGUARD_U8)
    return Malformed("plan: states init has dtype %u; uint8 (3) is wanted", init.dtype);
  if (init.count < num_rows) {
    return Malformed("plan: states init has %llu elements, but %llu are needed",
                     static_cast<Ull>(init.count), static_cast<Ull>(num_rows));
  }
  out->init = static_cast<const uint8_t*>(init.data);
  return {};
}

Status CheckList(const kvguard_group_plan& group, uint64_t num_rows, ListView* out) {
  *out = ListView{};
  const bool csr = group.encoding == KVGUARD_READ_CSR;
  const kvguard_array& offsets = csr ? group.reads.csr.indptr : group.reads.flat.starts;
  const kvguard_array& entries = csr ? group.reads.csr.indices : group.reads.flat.slots;
  if (Status s = CheckInts(offsets, num_rows + 1, false, csr ? "indptr" : "starts", &out->offsets);
      !s.ok())
    return s;
  if (Status s = CheckInts(entries, 0, false, csr ? "indices" : "read slots", &out->entries);
      !s.ok())
    return s;
  if (csr) {
    if (Status s = CheckInts(group.reads.csr.last_page_len, num_rows, false, "last_page_len",
                             &out->last_page);
        !s.ok())
      return s;
  } else {
    out->sentinel = group.reads.flat.sentinel;
  }
  if (!out->offsets.present() && out->entries.present() && (csr || out->entries.count > 0)) {
    return Malformed("plan: group %u: %llu read entries without offsets of the rows", group.group,
                     static_cast<Ull>(out->entries.count));
  }
  // A list without entries may have no address.
  const bool empty = !csr && entries.dtype != KVGUARD_DTYPE_NONE && entries.count == 0;
  out->shown = out->offsets.present() || out->entries.present() || empty;
  return {};
}

// Pairs that move blocks must say one place for each.
Status CheckRemap(const kvguard_event& event, size_t i, const geometry::Layout& layout) {
  if (event.value < KVGUARD_REMAP_DEDUPE || event.value > KVGUARD_REMAP_SWAP) {
    return Malformed("events[%zu]: remap reason %lld does not exist", i,
                     static_cast<long long>(event.value));
  }
  const geometry::Pool& pool = layout.PoolOf(layout.groups[event.group]);
  std::vector<int64_t> olds;
  std::vector<int64_t> news;
  for (uint64_t k = 0; k < event.num_blocks; k += 2) {
    if (!geometry::Moves(pool, event.blocks[k], event.blocks[k + 1])) continue;
    olds.push_back(event.blocks[k]);
    news.push_back(event.blocks[k + 1]);
  }
  const auto twice = [](std::vector<int64_t> ids) {
    std::sort(ids.begin(), ids.end());
    return std::adjacent_find(ids.begin(), ids.end()) != ids.end();
  };
  bool bad = twice(olds);
  if (event.value == KVGUARD_REMAP_MOVE) bad = bad || twice(news);
  if (event.value == KVGUARD_REMAP_SWAP) {
    olds.insert(olds.end(), news.begin(), news.end());
    bad = bad || twice(olds);
  }
  if (bad) return Malformed("events[%zu]: a block is moved twice in one remap", i);
  return {};
}

Status CheckEvents(const kvguard_event* data, uint64_t count, const geometry::Layout& layout,
                   StructArray<kvguard_event>* out) {
  if (Status s = out->Assign(data, count, kMostEvents, "events"); !s.ok()) return s;
  for (size_t i = 0; i < out->size(); ++i) {
    const kvguard_event& event = (*out)[i];
    const bool whole = event.group == KVGUARD_ALL_GROUPS;
    if (!whole && event.group >= layout.groups.size()) {
      return Malformed("events[%zu]: group %u does not exist; this engine has %zu", i, event.group,
                       layout.groups.size());
    }
    if (reinterpret_cast<uintptr_t>(event.blocks) % alignof(int64_t) != 0 ||
        reinterpret_cast<uintptr_t>(event.tokens) % alignof(int64_t) != 0) {
      return Malformed("events[%zu]: blocks or tokens are not aligned", i);
    }
    if (event.num_blocks > kMostBlocks || (event.num_blocks > 0 && event.blocks == nullptr)) {
      return Malformed("events[%zu]: %llu blocks with%s a pointer", i,
                       static_cast<Ull>(event.num_blocks), event.blocks == nullptr ? "out" : "");
    }
    if (event.num_tokens > kMostBlocks || (event.num_tokens > 0 && event.tokens == nullptr)) {
      return Malformed("events[%zu]: %llu tokens with%s a pointer", i,
                       static_cast<Ull>(event.num_tokens), event.tokens == nullptr ? "out" : "");
    }
    if (event.name_size > kMostName || (event.name_size > 0 && event.name == nullptr)) {
      return Malformed("events[%zu]: a name of %llu bytes with%s a pointer; at most %llu bytes", i,
                       static_cast<Ull>(event.name_size), event.name == nullptr ? "out" : "",
                       static_cast<Ull>(kMostName));
    }
    switch (event.kind) {
      case KVGUARD_EVENT_ADMIT:
        if (event.request == 0)
          return Malformed("events[%zu]: ADMIT with request key 0; keys are non-zero", i);
        if (event.first < 0 || event.count < 0 || event.first > kMostTokens ||
            event.count > kMostTokens) {
          return Malformed("events[%zu]: ADMIT with impossible counts (%lld computed, %lld known)",
                           i, static_cast<long long>(event.first),
                           static_cast<long long>(event.count));
        }
        break;
      case KVGUARD_EVENT_FINISH:
      case KVGUARD_EVENT_PREEMPT:
      case KVGUARD_EVENT_ROLLBACK:
      case KVGUARD_EVENT_DOMAIN:
        if (event.request == 0)
          return Malformed("events[%zu]: request key 0; keys are non-zero", i);
        if (event.first < 0 || event.count < 0)
          return Malformed("events[%zu]: a negative position or count", i);
        break;
      case KVGUARD_EVENT_APPEND:
      case KVGUARD_EVENT_REPLACE:
      case KVGUARD_EVENT_TRUNCATE:
      case KVGUARD_EVENT_SHARE:
      case KVGUARD_EVENT_ERASE:
      case KVGUARD_EVENT_REBASE:
        if (event.request == 0)
          return Malformed("events[%zu]: request key 0; keys are non-zero", i);
        if (whole) return Malformed("events[%zu]: a table event names one group", i);
        if (event.first < 0 || event.count < 0)
          return Malformed("events[%zu]: a negative position or count", i);
        if (event.kind == KVGUARD_EVENT_REBASE &&
            (event.value < -kMostTokens || event.value > kMostTokens)) {
          return Malformed("events[%zu]: positions move by %lld, which is not plausible", i,
                           static_cast<long long>(event.value));
        }
        break;
      case KVGUARD_EVENT_REMAP:
      case KVGUARD_EVENT_COPY:
      case KVGUARD_EVENT_COPY_DONE:
        if (event.num_blocks % 2 != 0)
          return Malformed("events[%zu]: pairs of blocks, but an odd number", i);
        if (event.count < 0) return Malformed("events[%zu]: a negative count", i);
        if (whole) return Malformed("events[%zu]: an event with blocks names one group", i);
        if (event.kind == KVGUARD_EVENT_REMAP) {
          if (Status s = CheckRemap(event, i, layout); !s.ok()) return s;
        }
        break;
      case KVGUARD_EVENT_FREE:
      case KVGUARD_EVENT_ZERO:
      case KVGUARD_EVENT_ZERO_DONE:
      case KVGUARD_EVENT_RESERVE:
      case KVGUARD_EVENT_LOAD:
      case KVGUARD_EVENT_SEND_PENDING:
        if (whole) return Malformed("events[%zu]: an event with blocks names one group", i);
        if (event.first < 0 || event.first > kMostTokens || event.count < 0)
          return Malformed("events[%zu]: a position or count that is not possible", i);
        break;
      case KVGUARD_EVENT_LOAD_DONE:
      case KVGUARD_EVENT_LOAD_FAILED:
      case KVGUARD_EVENT_SEND_DONE:
      case KVGUARD_EVENT_CANCEL:
      case KVGUARD_EVENT_DRAIN:
        break;
      case KVGUARD_EVENT_GAP:
        if (event.name_size == 0) return Malformed("events[%zu]: GAP without a name", i);
        break;
      default:
        return Unsupported("events[%zu]: kind %u is not known to this version; update kvguard", i,
                           event.kind);
    }
  }
  return {};
}

}  // namespace

Status CheckBegin(const kvguard_begin* begin, const geometry::Layout& layout, BeginView* view) {
  kvguard_begin in{};
  if (Status s = ReadStruct(begin, &in, "begin"); !s.ok()) return s;
  if (in.flags != 0) return Unsupported("begin: flags %#x are not known to this version", in.flags);
  if (Status s = CheckEvents(in.events, in.num_events, layout, &view->events); !s.ok()) return s;
  if (Status s =
          view->scheduled.Assign(in.scheduled, in.num_scheduled, kMostScheduled, "scheduled");
      !s.ok()) {
    return s;
  }
  for (size_t i = 0; i < view->scheduled.size(); ++i) {
    const kvguard_scheduled& row = view->scheduled[i];
    if (row.request == 0) return Malformed("scheduled[%zu]: request key 0; keys are non-zero", i);
    if (row.num_tokens < 1 || row.num_tokens > kMostTokens || row.num_computed < 0 ||
        row.num_computed > kMostTokens) {
      return Malformed(
          "scheduled[%zu]: %lld tokens after %lld computed ones; at least 1 and 0 are possible", i,
          static_cast<long long>(row.num_tokens), static_cast<long long>(row.num_computed));
    }
    if (row.num_drafts > row.num_tokens) {
      return Malformed("scheduled[%zu]: %u drafts among %lld tokens", i, row.num_drafts,
                       static_cast<long long>(row.num_tokens));
    }
  }
  return {};
}

Status CheckPlan(const kvguard_plan* plan, const geometry::Layout& layout, PlanView* view) {
  kvguard_plan in{};
  if (Status s = ReadStruct(plan, &in, "plan"); !s.ok()) return s;
  if (in.flags != 0) return Unsupported("plan: flags %#x are not known to this version", in.flags);
  if (in.pass < KVGUARD_PASS_TARGET || in.pass > KVGUARD_PASS_DUMMY) {
    return Malformed("plan: pass %u does not exist", in.pass);
  }
  if (in.stage != KVGUARD_STAGE_PLANNED && in.stage != KVGUARD_STAGE_FINAL) {
    return Malformed("plan: stage %u does not exist", in.stage);
  }
  if (in.pass == KVGUARD_PASS_GRAPH_REPLAY) {
    return Unsupported("plan: pass %s is not judged by this version",
                       kvguard_name("pass", in.pass));
  }
  if (layout.pcp_size > 1 && in.pass != KVGUARD_PASS_TARGET && in.pass != KVGUARD_PASS_DUMMY) {
    return Unsupported("plan: pass %s is not judged under prefill context parallelism",
                       kvguard_name("pass", in.pass));
  }
  const auto most_rows = static_cast<uint64_t>(layout.max_rows);
  const auto most_tokens = static_cast<uint64_t>(layout.max_tokens);
  if (in.padded_rows < in.num_rows || in.padded_rows > most_rows) {
    return Malformed("plan: %llu rows padded to %llu; this engine has at most %llu",
                     static_cast<Ull>(in.num_rows), static_cast<Ull>(in.padded_rows),
                     static_cast<Ull>(most_rows));
  }
  if (in.padded_tokens < in.num_tokens || in.padded_tokens > most_tokens) {
    return Malformed("plan: %llu tokens padded to %llu; this engine has at most %llu",
                     static_cast<Ull>(in.num_tokens), static_cast<Ull>(in.padded_tokens),
                     static_cast<Ull>(most_tokens));
  }
  if (in.num_rows > 0 && in.requests == nullptr) return Malformed("plan: requests is NULL");
  if (reinterpret_cast<uintptr_t>(in.requests) % alignof(uint64_t) != 0)
    return Malformed("plan: requests is not aligned");
  view->pass = in.pass;
  view->pass_index = in.pass_index;
  view->stage = in.stage;
  view->num_rows = in.num_rows;
  view->padded_rows = in.padded_rows;
  view->num_tokens = in.num_tokens;
  view->padded_tokens = in.padded_tokens;
  view->requests = in.requests;
  const bool real = in.pass != KVGUARD_PASS_DUMMY;
  if (Status s =
          CheckInts(in.query_start, in.num_rows + 1, real, "query_start", &view->query_start);
      !s.ok())
    return s;
  if (Status s = CheckInts(in.seq_lens, in.num_rows, real, "seq_lens", &view->seq_lens); !s.ok())
    return s;
  if (Status s = CheckInts(in.positions, in.num_tokens, false, "positions", &view->positions);
      !s.ok())
    return s;
  if (Status s =
          CheckInts(in.num_computed, in.num_rows, false, "num_computed", &view->num_computed);
      !s.ok())
    return s;

  StructArray<kvguard_group_plan> groups;
  if (Status s = groups.Assign(in.groups, in.num_groups, layout.groups.size(), "groups"); !s.ok())
    return s;
  view->groups.clear();
  for (size_t i = 0; i < groups.size(); ++i) {
    const kvguard_group_plan& group = groups[i];
    if (group.group >= layout.groups.size()) {
      return Malformed("groups[%zu]: group %u does not exist; this engine has %zu", i, group.group,
                       layout.groups.size());
    }
    if (group.flags != 0)
      return Unsupported("groups[%zu]: flags %#x are not known to this version", i, group.flags);
    GroupPlanView out;
    out.group = &layout.groups[group.group];
    for (const GroupPlanView& other : view->groups) {
      if (other.group == out.group)
        return Malformed("groups[%zu]: group %u stands twice in one plan", i, group.group);
    }
    if (Status s = CheckInts(group.slots, in.num_tokens, false, "slots", &out.slots); !s.ok())
      return s;
    if (out.slots.present() && out.slots.count % static_cast<uint64_t>(layout.pcp_size) != 0) {
      return Malformed("plan: %llu slots of group %u do not spread over %lld ranks",
                       static_cast<Ull>(out.slots.count), group.group,
                       static_cast<long long>(layout.pcp_size));
    }
    if (group.encoding == KVGUARD_READ_TABLE && !out.group->ReadsByList()) {
      if (Status s = CheckTable(group.reads.table, in.num_rows, group.group, &out.table); !s.ok())
        return s;
    } else if (group.encoding == KVGUARD_READ_STATE && out.group->IsState()) {
      if (Status s = CheckStates(group.reads.state, in.num_rows, &out.states); !s.ok()) return s;
    } else if (group.encoding == out.group->encoding && out.group->ReadsByList()) {
      if (Status s = CheckList(group, in.num_rows, &out.list); !s.ok()) return s;
    } else if (group.encoding != 0) {
      if (group.encoding > KVGUARD_READ_STATE) {
        return Malformed("groups[%zu]: encoding %u does not exist", i, group.encoding);
      }
      return Unsupported("cannot judge: encoding not implemented (group %u reads by %s)",
                         group.group, kvguard_name("encoding", group.encoding));
    }
    view->groups.push_back(out);
  }
  return {};
}

Status CheckOutcome(const kvguard_outcome* outcome, const geometry::Layout& layout,
                    OutcomeView* view) {
  kvguard_outcome in{};
  if (Status s = ReadStruct(outcome, &in, "outcome"); !s.ok()) return s;
  if (in.flags != 0)
    return Unsupported("outcome: flags %#x are not known to this version", in.flags);
  if (Status s = view->rows.Assign(in.rows, in.num_rows, kMostScheduled, "outcome rows"); !s.ok())
    return s;
  for (size_t i = 0; i < view->rows.size(); ++i) {
    const kvguard_outcome_row& row = view->rows[i];
    if (row.request == 0)
      return Malformed("outcome rows[%zu]: request key 0; keys are non-zero", i);
    if (row.num_tokens > kMostBlocks || (row.num_tokens > 0 && row.tokens == nullptr)) {
      return Malformed("outcome rows[%zu]: %llu tokens with%s a pointer", i,
                       static_cast<Ull>(row.num_tokens), row.tokens == nullptr ? "out" : "");
    }
  }
  return CheckEvents(in.events, in.num_events, layout, &view->events);
}

Status CheckEnd(const kvguard_end* end, kvguard_end* out) {
  if (Status s = ReadStruct(end, out, "end"); !s.ok()) return s;
  if ((out->flags & ~static_cast<uint32_t>(KVGUARD_END_NO_FORWARD | KVGUARD_END_ABANDONED)) != 0) {
    return Unsupported("end: flags %#x are not known to this version", out->flags);
  }
  return {};
}

Status CheckReset(const kvguard_reset* reset, kvguard_reset* out) {
  if (Status s = ReadStruct(reset, out, "reset"); !s.ok()) return s;
  if (out->reason < KVGUARD_RESET_ARM || out->reason > KVGUARD_RESET_LAYOUT) {
    return Malformed("reset: reason %u does not exist", out->reason);
  }
  return {};
}

}  // namespace kvguard::step
