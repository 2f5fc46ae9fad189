// SPDX-License-Identifier: Apache-2.0
#include "tools/dump.h"

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tools/test_trace.h"
#include "trace/test_stream.h"

namespace kvguard::tools {
namespace {

using Json = nlohmann::json;

std::vector<Json> DumpOf(const std::string& path) {
  trace::TraceReader reader;
  EXPECT_TRUE(reader.Open(path).ok());
  std::vector<Json> lines;
  const step::Status end = DumpTrace(&reader, [&](const std::string& line) {
    EXPECT_EQ(line.find('\n'), std::string::npos);
    lines.push_back(Json::parse(line));
  });
  EXPECT_TRUE(end.ok()) << end.text();
  return lines;
}

// An auditor of its own, over nothing but the dump: which steps have a wrong table entry or slot.
std::vector<uint64_t> WrongSteps(const std::vector<Json>& lines) {
  std::map<uint64_t, std::map<uint32_t, std::vector<int64_t>>> bound;
  std::vector<uint64_t> wrong;
  const Json& groups = lines.at(0).at("groups");
  for (const Json& line : lines) {
    if (line.at("record") == "begin") {
      for (const Json& event : line.at("events")) {
        const uint64_t key = event.at("request");
        const std::string kind = event.at("kind");
        if (kind == "finish" || kind == "preempt") bound.erase(key);
        if (kind != "append" && kind != "replace") continue;
        auto& row = bound[key][event.at("group").get<uint32_t>()];
        if (kind == "replace") row.clear();
        for (const Json& block : event.at("blocks")) row.push_back(block);
      }
    }
    if (line.at("record") != "plan") continue;
    bool bad = false;
    for (const Json& part : line.at("groups")) {
      const auto id = part.at("group").get<uint32_t>();
      const int64_t size = groups.at(id).at("block_size");
      const Json& rows = part.at("reads").at("table").at("rows");
      const Json& slots = part.at("slots").at("values");
      for (size_t b = 0; b < line.at("num_rows"); ++b) {
        const auto& row = bound.at(line.at("requests").at(b)).at(id);
        for (size_t j = 0; j < row.size(); ++j) {
          bad = bad || j >= rows.at(b).size() || rows.at(b).at(j) != row[j];
        }
        const int64_t first = line.at("query_start").at("values").at(b);
        const int64_t end = line.at("query_start").at("values").at(b + 1);
        const int64_t start = line.at("seq_lens").at("values").at(b).get<int64_t>() - (end - first);
        for (int64_t i = first; i < end; ++i) {
          const int64_t p = start + i - first;
          bad = bad || slots.at(static_cast<size_t>(i)) !=
                           row.at(static_cast<size_t>(p / size)) * size + p % size;
        }
      }
    }
    if (bad) wrong.push_back(line.at("step"));
  }
  return wrong;
}

TEST(Dump, IsCompleteEnoughForAnotherAuditor) {
  TestFolder folder;
  RecordHealthy(folder / "right.kvtrace");
  RecordViolated(folder / "wrong.kvtrace");
  EXPECT_TRUE(WrongSteps(DumpOf(folder / "right.kvtrace")).empty());
  EXPECT_EQ(WrongSteps(DumpOf(folder / "wrong.kvtrace")), std::vector<uint64_t>{20});
}

TEST(Dump, GeometryFirstAndTheEndLast) {
  TestFolder folder;
  RecordHealthy(folder / "run.kvtrace");
  const std::vector<Json> lines = DumpOf(folder / "run.kvtrace");
  EXPECT_EQ(lines.front().at("record"), "geometry");
  EXPECT_EQ(lines.front().at("engine"), "scenario");
  EXPECT_EQ(lines.front().at("pools").at(0).at("num_blocks"), 256);
  EXPECT_EQ(lines.front().at("pad_slot"), -1);
  EXPECT_EQ(lines.back().at("record"), "footer");
  EXPECT_EQ(lines.back().at("steps"), 40);
  EXPECT_EQ(lines.size(), 1 + 40 * 3 + 1u);
  EXPECT_EQ(lines[1].at("events").at(0).at("name"), "a%20b");
}

TEST(Dump, TableRowsKeepTheirLiveColumnsOnly) {
  TestFolder folder;
  RecordHealthy(folder / "run.kvtrace");
  for (const Json& line : DumpOf(folder / "run.kvtrace")) {
    if (line.at("record") != "plan") continue;
    const Json& table = line.at("groups").at(0).at("reads").at("table");
    EXPECT_EQ(table.at("columns"), 16);
    for (const Json& row : table.at("rows")) {
      ASSERT_FALSE(row.empty());
      EXPECT_NE(row.back(), 0);
    }
  }
}

// Records of every kind with any contents: each field's value is in the JSON.
TEST(Dump, AnyRecordIsOneValidObject) {
  trace::RandomRecords random(3, 7);
  trace::RecordView view;
  for (int i = 0; i < 3000; ++i) {
    const trace::OwnedRecord owned = random.Next();
    const Json json = Json::parse(report::Dump(RecordJson(view.Of(owned)), -1));
    ASSERT_EQ(json.at("step"), owned.step);
    if (owned.kind == KVGUARD_RECORD_BEGIN) {
      ASSERT_EQ(json.at("events").size(), owned.events.size());
      ASSERT_EQ(json.at("scheduled").size(), owned.scheduled.size());
      for (size_t e = 0; e < owned.events.size(); ++e) {
        ASSERT_EQ(json["events"][e]["blocks"], Json(owned.events[e].blocks));
        ASSERT_EQ(json["events"][e]["value"], owned.events[e].value);
        ASSERT_EQ(json["events"][e]["other"], owned.events[e].other);
      }
    }
    if (owned.kind == KVGUARD_RECORD_PLAN) {
      ASSERT_EQ(json.at("requests"), Json(owned.plan.requests));
      ASSERT_EQ(json.at("positions").is_null(), !owned.plan.positions.present());
      if (owned.plan.positions.present()) {
        ASSERT_EQ(json["positions"]["values"], Json(owned.plan.positions.values));
      }
      for (size_t g = 0; g < owned.plan.groups.size(); ++g) {
        const trace::OwnedGroupPlan& part = owned.plan.groups[g];
        if (part.encoding != KVGUARD_READ_TABLE || part.table.dtype == KVGUARD_DTYPE_NONE) continue;
        const Json& table = json["groups"][g]["reads"]["table"];
        ASSERT_EQ(table["rows"].size(), part.table.rows);
        for (uint64_t r = 0; r < part.table.rows; ++r) {
          for (uint64_t c = 0; c < part.table.columns; ++c) {
            const Json& row = table["rows"][r];
            ASSERT_EQ(c < row.size() ? row[c].get<int64_t>() : 0, part.table.at(r, c));
          }
        }
      }
    }
  }
}

TEST(Dump, ARefusedRecordSaysSo) {
  kvguard_record record{};
  record.size = sizeof(record);
  record.kind = KVGUARD_RECORD_PLAN;
  record.step = 9;
  const report::Json json = RecordJson(record);
  EXPECT_EQ(json.at("record"), "plan");
  EXPECT_EQ(json.at("refused"), true);
}

TEST(Dump, DamageEndsItWithTheReadersSentence) {
  TestFolder folder;
  RecordHealthy(folder / "run.kvtrace");
  const std::string bytes = ReadBytes(folder / "run.kvtrace");
  WriteBytes(folder / "cut.kvtrace", bytes.substr(0, bytes.size() / 2));
  trace::TraceReader reader;
  ASSERT_TRUE(reader.Open(folder / "cut.kvtrace").ok());
  size_t lines = 0;
  const step::Status end = DumpTrace(&reader, [&](const std::string& line) {
    ++lines;
    EXPECT_FALSE(Json::parse(line).is_discarded());
  });
  EXPECT_FALSE(end.ok());
  EXPECT_GT(lines, 10u);
}

}  // namespace
}  // namespace kvguard::tools
