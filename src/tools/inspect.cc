// SPDX-License-Identifier: Apache-2.0
#include "tools/inspect.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "audit/guard.h"
#include "explain/prose.h"
#include "geometry/layout.h"
#include "report/text.h"
#include "step/status.h"
#include "trace/owned.h"

namespace kvguard::tools {
namespace {

using report::Runs;
using step::Sprintf;
using trace::OwnedArray;
using trace::OwnedGroupPlan;
using trace::OwnedRecord;
using Ll = long long;
using Ull = unsigned long long;

int64_t At(const OwnedArray& array, uint64_t index, int64_t otherwise) {
  return index < array.values.size() ? array.values[static_cast<size_t>(index)] : otherwise;
}

// A row's part of the slot mapping, and what it should be; the latter is empty where that is not
// known.
struct Slots {
  std::vector<int64_t> shown;
  std::vector<int64_t> right;
};

Slots SlotsOf(const kvguard_guard& guard, const mirror::Request* request,
              const OwnedGroupPlan& part, uint64_t first, uint64_t count) {
  Slots slots;
  for (uint64_t i = 0; i < count && first + i < part.slots.values.size(); ++i) {
    slots.shown.push_back(part.slots.values[static_cast<size_t>(first + i)]);
  }
  if (request == nullptr || request->start == KVGUARD_NONE) return slots;
  const geometry::Group& group = guard.layout.groups[part.group];
  for (size_t i = 0; i < slots.shown.size(); ++i) {
    const int64_t position = request->start + static_cast<int64_t>(i);
    const int64_t column = position / group.block_size;
    if (!group.IsLocal(position)) {
      slots.right.push_back(guard.layout.pad_slot);
      continue;
    }
    if (column >= guard.mirror.BoundBlocks(*request, group)) {
      slots.right.push_back(KVGUARD_NONE);
      continue;
    }
    const int64_t block = guard.mirror.BlockAt(*request, group, column);
    slots.right.push_back(block < 0 ? KVGUARD_NONE : group.SlotOf(block, position));
  }
  return slots;
}

std::vector<int64_t> TableRow(const OwnedGroupPlan& part, uint64_t row, size_t live) {
  std::vector<int64_t> out;
  if (row >= part.table.rows) return out;
  const auto columns = std::min<uint64_t>(part.table.columns, live);
  for (uint64_t c = 0; c < columns; ++c) out.push_back(part.table.at(row, c));
  return out;
}

void AddComparison(report::Table* table, const std::string& what, const std::vector<int64_t>& shown,
                   const std::vector<int64_t>& right) {
  table->Row({what, Runs(shown)});
  if (!right.empty() && right != shown) table->Row({"  expected", Runs(right)});
}

}  // namespace

std::string PlanText(const kvguard_guard& guard, const kvguard_record& record) {
  const OwnedRecord owned = OwnedRecord::Of(record);
  if (owned.kind != KVGUARD_RECORD_PLAN || owned.refused) return "";
  const trace::OwnedPlan& plan = owned.plan;
  std::string out = Sprintf(
      "plan of step %llu, pass %s, stage %s: %s, %s\n", static_cast<Ull>(owned.step),
      report::Name("pass", plan.pass), report::Name("stage", plan.stage),
      report::Count(plan.num_rows, "row").c_str(), report::Count(plan.num_tokens, "token").c_str());
  for (uint64_t b = 0; b < plan.num_rows && b < plan.requests.size(); ++b) {
    const uint64_t key = plan.requests[static_cast<size_t>(b)];
    const mirror::Request* request = guard.mirror.FindRequest(key);
    const int64_t first = At(plan.query_start, b, 0);
    const int64_t count = At(plan.query_start, b + 1, first) - first;
    const bool usable = first >= 0 && count >= 0;
    out += Sprintf("row %llu  request %s%s\n", static_cast<Ull>(b), guard.NameOf(key).c_str(),
                   request == nullptr ? "  (not live)" : "");
    report::Table table("ll", 2);
    const int64_t length = At(plan.seq_lens, b, KVGUARD_NONE);
    std::string tokens =
        Sprintf("%lld, KV length %lld", static_cast<Ll>(count), static_cast<Ll>(length));
    if (request != nullptr && request->start != KVGUARD_NONE) {
      const Ll kv_length = request->start + request->num_tokens;
      tokens +=
          Sprintf(" (expected: %lld from position %lld, KV length %lld)",
                  static_cast<Ll>(request->num_tokens), static_cast<Ll>(request->start), kv_length);
    }
    table.Row({"tokens", tokens});
    if (plan.positions.present() && usable) {
      std::vector<int64_t> positions;
      for (int64_t i = 0; i < count; ++i) {
        positions.push_back(At(plan.positions, static_cast<uint64_t>(first + i), KVGUARD_NONE));
      }
      table.Row({"positions", Runs(positions)});
    }
    for (const OwnedGroupPlan& part : plan.groups) {
      if (part.group >= guard.layout.groups.size()) continue;
      const std::string suffix =
          guard.layout.groups.size() > 1 ? Sprintf(" of group %u", part.group) : "";
      std::vector<int64_t> bound;
      if (request != nullptr) {
        const auto& entries = request->rows[part.group].entries;
        bound.assign(entries.begin(), entries.end());
      }
      if (part.encoding == KVGUARD_READ_TABLE && part.table.dtype != KVGUARD_DTYPE_NONE) {
        const int64_t per_entry = guard.layout.groups[part.group].TokensPerEntry();
        const size_t read = length > 0 ? static_cast<size_t>((length - 1) / per_entry + 1) : 0;
        AddComparison(&table, "table" + suffix, TableRow(part, b, std::max(bound.size(), read)),
                      bound);
      }
      if (part.slots.present() && usable) {
        const Slots slots = SlotsOf(guard, request, part, static_cast<uint64_t>(first),
                                    static_cast<uint64_t>(count));
        AddComparison(&table, "slots" + suffix, slots.shown, slots.right);
      }
    }
    out += table.Text();
  }
  return out;
}

std::string ScheduleText(const kvguard_guard& guard, const kvguard_record& record) {
  const OwnedRecord owned = OwnedRecord::Of(record);
  if (owned.kind != KVGUARD_RECORD_BEGIN || owned.refused) return "";
  std::string out = Sprintf("schedule of step %llu: %s, %s\n", static_cast<Ull>(owned.step),
                            report::Count(owned.scheduled.size(), "request").c_str(),
                            report::Count(owned.events.size(), "event").c_str());
  report::Table table("llll", 2);
  for (const trace::OwnedEvent& event : owned.events) {
    table.Row({report::Name("event_kind", event.kind),
               event.request != 0 ? guard.NameOf(event.request) : "",
               event.group != KVGUARD_ALL_GROUPS && !event.blocks.empty()
                   ? report::GroupName(event.group)
                   : "",
               event.blocks.empty() ? "" : "blocks " + Runs(event.blocks)});
  }
  for (const trace::OwnedScheduled& row : owned.scheduled) {
    table.Row({"schedule", guard.NameOf(row.request),
               report::Count(static_cast<uint64_t>(std::max<int64_t>(row.num_tokens, 0)), "token"),
               Sprintf("after %lld computed", static_cast<Ll>(row.num_computed))});
  }
  return out + table.Text();
}

uint32_t NumTried(const kvguard_finding& finding) {
  return static_cast<uint32_t>(std::popcount(finding.causes_tried));
}

std::string CausesText(const kvguard_guard& guard, const kvguard_finding& finding) {
  std::vector<std::string> named;
  for (uint32_t i = 0; i < std::min<uint32_t>(finding.num_causes, KVGUARD_MAX_CAUSES); ++i) {
    const kvguard_cause& cause = finding.causes[i];
    std::string text = report::Name("cause", cause.kind);
    if (cause.kind == KVGUARD_CAUSE_ROW_OF || cause.kind == KVGUARD_CAUSE_EARLIER_OWNER) {
      text += Sprintf(" %s", guard.NameOf(cause.arg).c_str());
    } else if (cause.kind == KVGUARD_CAUSE_OFF_BY_ONE_BLOCK) {
      text += Sprintf(" %+lld", static_cast<Ll>(cause.arg));
    } else {
      text += Sprintf(" %llu", static_cast<Ull>(cause.arg));
    }
    named.push_back(std::move(text));
  }
  return report::Join(named);
}

std::string HypothesesText(const kvguard_guard& guard, const kvguard_finding& finding) {
  std::vector<std::string> tried;
  for (uint32_t kind = 1; kind < 32; ++kind) {
    if ((finding.causes_tried >> kind & 1u) != 0) {
      tried.emplace_back(report::Name("cause", kind));
    }
  }
  if (tried.empty()) return "tried: none, this rule compares no addresses";
  const std::string named = CausesText(guard, finding);
  return "tried: " + report::Join(tried) + "; fits: " + (named.empty() ? "none of them" : named);
}

}  // namespace kvguard::tools
