// SPDX-License-Identifier: Apache-2.0
// Commands that show what a trace file holds: trace dump, trace info.
#include <string>

#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/run_command.h"
#include "cli/terminal.h"
#include "report/json.h"
#include "report/text.h"
#include "step/status.h"
#include "tools/dump.h"
#include "trace/reader.h"

namespace kvguard::cli {
namespace {

using step::Sprintf;
using Ull = unsigned long long;

void Open(trace::TraceReader* reader, const std::string& file) {
  if (const step::Status s = reader->Open(file); !s.ok()) {
    throw UsageError(s.code() == KVGUARD_ERROR_INTERNAL ? kExitInternal : kExitUnreadable,
                     s.text());
  }
}

std::string GroupText(const kvguard_geometry& geometry, const kvguard_group& group) {
  std::string text =
      Sprintf("%s, blocks of %u tokens", report::Name("group_kind", group.kind), group.block_size);
  if (group.kernel_block_size != group.block_size) {
    text += Sprintf(" (kernel blocks of %u)", group.kernel_block_size);
  }
  text += Sprintf(", table of %ss as %s", report::Name("unit", group.table_unit),
                  report::Name("encoding", group.encoding));
  if (group.pool < geometry.num_pools) {
    text += Sprintf(", pool %u of %llu blocks", group.pool,
                    static_cast<Ull>(geometry.pools[group.pool].num_blocks));
  }
  if (group.num_layers > 0) text += ", " + report::Count(group.num_layers, "layer");
  return text;
}

}  // namespace

int TraceDumpCommand(const std::string& file) {
  trace::TraceReader reader;
  Open(&reader, file);
  const step::Status end =
      tools::DumpTrace(&reader, [](const std::string& line) { Out(line + "\n"); });
  if (!end.ok()) throw UsageError(kExitUnreadable, end.text());
  if (const std::string loss = reader.LossSentence(); !loss.empty()) Say(loss);
  return kExitOk;
}

int TraceInfoCommand(const std::string& file, bool json) {
  trace::TraceReader reader;
  Open(&reader, file);
  uint64_t first_step = 0;
  bool any = false;
  step::Status end;
  for (;;) {
    const kvguard_record* record = nullptr;
    end = reader.Next(&record);
    if (!end.ok() || record == nullptr) break;
    if (record->kind == KVGUARD_RECORD_BEGIN && !any) {
      any = true;
      first_step = record->step;
    }
  }
  const kvguard_geometry& g = reader.geometry();
  if (json) {
    report::Json out = tools::InfoJson(reader);
    out["first_step"] = any ? report::Json(first_step) : report::Json(nullptr);
    out["last_step"] = any ? report::Json(reader.last_step()) : report::Json(nullptr);
    out["damage"] = end.ok() ? report::Json(nullptr) : report::Json(end.text());
    Out(report::Dump(out, 1) + "\n");
  } else {
    report::Table table("ll");
    table.Row({reader.header().incident ? "incident" : "trace", file});
    std::string engine = g.engine;
    if (g.engine_version != nullptr && g.engine_version[0] != '\0') {
      engine += std::string(" ") + g.engine_version;
    }
    table.Row({"engine", engine + Sprintf(", rank %u of %u", g.rank, g.num_ranks)});
    table.Row({"recorded by", "kvguard " + reader.header().kvguard_version});
    for (uint32_t i = 0; i < g.num_groups; ++i) {
      table.Row({Sprintf("group %u", i), GroupText(g, g.groups[i])});
    }
    std::vector<std::string> gaps;
    for (uint32_t i = 0; i < g.num_standing_gaps; ++i) gaps.emplace_back(g.standing_gaps[i]);
    table.Row({"not judged", gaps.empty() ? "nothing was declared" : report::Join(gaps)});
    table.Row({"starts from", reader.snapshot().empty()
                                  ? std::string("an empty mirror")
                                  : Sprintf("a snapshot of %zu bytes", reader.snapshot().size())});
    std::string steps = Sprintf("%llu", static_cast<Ull>(reader.steps()));
    if (any) {
      steps += Sprintf(", from %llu to %llu", static_cast<Ull>(first_step),
                       static_cast<Ull>(reader.last_step()));
    }
    table.Row({"steps", steps});
    table.Row({"records", Sprintf("%llu", static_cast<Ull>(reader.records()))});
    table.Row({"bytes", Sprintf("%llu", static_cast<Ull>(reader.bytes()))});
    if (reader.header().incident) {
      table.Row({"findings", Sprintf("%zu", reader.findings().size())});
    }
    Out(table.Text());
  }
  if (!end.ok()) throw UsageError(kExitUnreadable, end.text());
  if (const std::string loss = reader.LossSentence(); !loss.empty()) Say(loss);
  return kExitOk;
}

}  // namespace kvguard::cli
