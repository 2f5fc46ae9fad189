// SPDX-License-Identifier: Apache-2.0
// Incidents: what a guard hands out at the first violation can be replayed to the same finding.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "audit/guard.h"
#include "kvguard/kvguard.h"
#include "trace/reader.h"
#include "trace/recorder.h"
#include "trace/test_stream.h"

namespace kvguard::trace {
namespace {

struct GuardDeleter {
  void operator()(kvguard_guard* guard) const { kvguard_destroy(guard); }
};
using Guard = std::unique_ptr<kvguard_guard, GuardDeleter>;

struct Incidents {
  std::vector<std::vector<uint8_t>> files;
};

void Receive(void* context, const void* bytes, size_t size) {
  const auto* at = static_cast<const uint8_t*>(bytes);
  static_cast<Incidents*>(context)->files.emplace_back(at, at + size);
}

Guard MakeGuard(const kvguard_geometry& geometry, uint64_t history_bytes, Incidents* incidents) {
  kvguard_config config{};
  config.size = sizeof(config);
  config.action = KVGUARD_ACTION_LOG;
  config.history_bytes = history_bytes;
  config.incident = incidents == nullptr ? nullptr : &Receive;
  config.incident_context = incidents;
  kvguard_guard* guard = nullptr;
  kvguard_error error{};
  error.size = sizeof(error);
  EXPECT_EQ(kvguard_create(&geometry, &config, &guard, &error), KVGUARD_OK) << error.text;
  return Guard(guard);
}

kvguard_verdict Feed(kvguard_guard* guard, const kvguard_record& record) {
  kvguard_verdict verdict{};
  verdict.size = sizeof(verdict);
  kvguard_feed(guard, &record, &verdict, nullptr);
  return verdict;
}

std::vector<std::string> Lines(const kvguard_guard& guard) {
  std::vector<std::string> lines;
  for (const kvguard_finding& finding : guard.findings) {
    lines.push_back(Explain(guard, finding));
    lines.back().pop_back();
  }
  return lines;
}

// Runs the toy engine with a swapped pair of slots in one step.
struct Story {
  Incidents incidents;
  std::vector<std::string> lines_at_incident;
  Guard guard;
  uint64_t steps_before = 0;
};

void Violate(Story* run, uint64_t history_bytes, int steps_before, uint64_t seed,
             ToyShape shape = {}) {
  ToyEngine engine(shape, seed);
  run->guard = MakeGuard(engine.geometry(), history_bytes, &run->incidents);
  RecordView view;
  bool broken = false;
  for (int i = 0; i < steps_before + 20; ++i) {
    for (OwnedRecord& record : engine.Step()) {
      if (i >= steps_before && !broken && record.kind == KVGUARD_RECORD_PLAN) {
        record.plan.groups[0].slots.values[0] += 1;
        broken = true;
      }
      Feed(run->guard.get(), view.Of(record));
      if (broken && run->lines_at_incident.empty()) run->lines_at_incident = Lines(*run->guard);
    }
  }
  ASSERT_TRUE(broken);
  ASSERT_EQ(run->incidents.files.size(), 1u) << "exactly one, at the first violation";
}

void Check(const Story& run, bool expect_snapshot) {
  TraceReader reader;
  const step::Status opened = reader.OpenMemory(run.incidents.files[0], "incident");
  ASSERT_TRUE(opened.ok()) << opened.text();
  EXPECT_TRUE(reader.header().incident);
  EXPECT_NE(reader.header().sentence.find("kvguard incident"), std::string::npos);
  EXPECT_NE(reader.header().config.find("\"action\":\"log\""), std::string::npos);
  EXPECT_EQ(!reader.snapshot().empty(), expect_snapshot);
  const Guard guard = MakeGuard(reader.geometry(), 0, nullptr);
  if (expect_snapshot) {
    kvguard_error error{};
    error.size = sizeof(error);
    ASSERT_EQ(
        kvguard_restore(guard.get(), reader.snapshot().data(), reader.snapshot().size(), &error),
        KVGUARD_OK)
        << error.text;
  }
  kvguard_verdict verdict{};
  uint64_t records = 0;
  for (;;) {
    const kvguard_record* record = nullptr;
    const step::Status status = reader.Next(&record);
    ASSERT_TRUE(status.ok()) << status.text();
    if (record == nullptr) break;
    EXPECT_NE(verdict.verdict, uint32_t{KVGUARD_VIOLATED}) << "the violation is the last record";
    verdict = Feed(guard.get(), *record);
    ++records;
  }
  EXPECT_EQ(verdict.verdict, uint32_t{KVGUARD_VIOLATED});
  EXPECT_EQ(reader.footer().records, records);
  EXPECT_EQ(reader.footer().steps, reader.steps());
  EXPECT_TRUE(reader.LossSentence().empty());
  EXPECT_EQ(reader.findings(), run.lines_at_incident);
  EXPECT_EQ(Lines(*guard), run.lines_at_incident);
}

TEST(Incident, OfAShortRunHoldsAllOfIt) {
  Story run;
  Violate(&run, 0, 30, 1);
  Check(run, false);
}

TEST(Incident, InTheVeryFirstStep) {
  ToyShape shape;
  shape.arrivals = 1;
  Story run;
  Violate(&run, 0, 0, 1, shape);
  Check(run, false);
}

TEST(Incident, OfALongRunStartsFromASnapshot) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    Story run;
    Violate(&run, 64 << 10, 800, seed);
    Check(run, true);
    TraceReader reader;
    ASSERT_TRUE(reader.OpenMemory(run.incidents.files[0], "incident").ok());
    const kvguard_record* record = nullptr;
    do {
      ASSERT_TRUE(reader.Next(&record).ok());
    } while (record != nullptr);
    EXPECT_GT(reader.steps(), 5u) << "some steps before it, wherever the turn was";
  }
}

TEST(Incident, HoldsTheBoundWhateverHappens) {
  ToyEngine engine(ToyShape(), 9);
  const Guard guard = MakeGuard(engine.geometry(), 32 << 10, nullptr);
  FlightRecorder recorder(*guard);
  RecordView view;
  size_t largest_snapshot = 0;
  std::vector<uint8_t> snapshot;
  for (int i = 0; i < 1500; ++i) {
    for (OwnedRecord& owned : engine.Step()) {
      const kvguard_record& record = view.Of(owned);
      const kvguard_verdict verdict = Feed(guard.get(), record);
      recorder.OnRecord(*guard, record, KVGUARD_OK, verdict);
    }
    ASSERT_TRUE(SnapshotOf(*guard, &snapshot).ok());
    largest_snapshot = std::max(largest_snapshot, snapshot.size());
    ASSERT_LE(recorder.HeldBytes(), (32u << 10) + 2 * largest_snapshot);
  }
}

TEST(Incident, AStepThatIsLargerThanTheBoundIsLeftOut) {
  // History of two hundred bytes holds no step at all: the incident then starts from the snapshot
  // before its own step.
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    Story run;
    Violate(&run, 200, 60, seed);
    Check(run, true);
  }
}

TEST(Incident, HoldsNoTokenId) {
  ToyEngine engine(ToyShape(), 3);
  Incidents incidents;
  const Guard guard = MakeGuard(engine.geometry(), 0, &incidents);
  RecordView view;
  constexpr int64_t kToken = 0x5ec2e7;
  for (int i = 0; i < 40; ++i) {
    for (OwnedRecord& record : engine.Step()) {
      for (OwnedEvent& event : record.events)
        std::fill(event.tokens.begin(), event.tokens.end(), kToken);
      for (OwnedOutcomeRow& row : record.rows)
        std::fill(row.tokens.begin(), row.tokens.end(), kToken);
      if (i == 39 && record.kind == KVGUARD_RECORD_PLAN) record.plan.groups[0].slots.values[0] += 1;
      Feed(guard.get(), view.Of(record));
    }
  }
  ASSERT_EQ(incidents.files.size(), 1u);
  TraceReader reader;
  ASSERT_TRUE(reader.OpenMemory(incidents.files[0], "incident").ok());
  int64_t seen = 0;
  uint64_t count = 0;
  for (;;) {
    const kvguard_record* record = nullptr;
    ASSERT_TRUE(reader.Next(&record).ok());
    if (record == nullptr) break;
    const OwnedRecord owned = OwnedRecord::Of(*record);
    const auto look = [&](const std::vector<int64_t>& tokens) {
      for (const int64_t token : tokens) {
        if (seen == 0) seen = token;
        EXPECT_EQ(token, seen);
        ++count;
      }
    };
    for (const OwnedEvent& event : owned.events) look(event.tokens);
    for (const OwnedOutcomeRow& row : owned.rows) look(row.tokens);
  }
  EXPECT_GT(count, 100u);
  EXPECT_NE(seen, kToken);
}

TEST(Incident, LostBindingsAreLostInTheReplayToo) {
  // A malformed BEGIN, then a long time, then a plan that contradicts a mirror that nobody believes
  // any more.
  ToyEngine engine(ToyShape(), 4);
  Incidents incidents;
  const Guard guard = MakeGuard(engine.geometry(), 16 << 10, &incidents);
  RecordView view;
  const auto run = [&](int steps, bool lose) {
    for (int i = 0; i < steps; ++i) {
      for (OwnedRecord& owned : engine.Step()) {
        kvguard_record record = view.Of(owned);
        kvguard_begin begin{};
        if (lose && record.kind == KVGUARD_RECORD_BEGIN) {
          begin = *record.body.begin;
          begin.flags = 8;
          record.body.begin = &begin;
          lose = false;
        }
        Feed(guard.get(), record);
      }
    }
  };
  run(40, false);
  run(200, true);
  EXPECT_TRUE(incidents.files.empty()) << "a guard that lost bindings finds nothing";
}

TEST(Incident, NobodyWantsOneNothingIsKept) {
  ToyEngine engine(ToyShape(), 4);
  const Guard guard = MakeGuard(engine.geometry(), 0, nullptr);
  EXPECT_TRUE(guard->taps.empty());
}

}  // namespace
}  // namespace kvguard::trace
