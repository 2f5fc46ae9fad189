// SPDX-License-Identifier: Apache-2.0
// What a recorder writes, and that a replay of it is the run.
#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <string>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "kvguard/kvguard.h"
#include "trace/header.h"
#include "trace/owned.h"
#include "trace/reader.h"
#include "trace/test_files.h"
#include "trace/test_stream.h"

namespace kvguard::trace {
namespace {

class TraceFile : public ::testing::Test, protected TraceFolder {};

TEST_F(TraceFile, RecordThenReplayGivesTheSameFindings) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    std::string findings;
    const std::string path = Record("a.kvtrace", 120, seed, 60 + seed, &findings);
    ASSERT_FALSE(findings.empty());
    const Replayed replayed = ReplayFile(path);
    EXPECT_TRUE(replayed.ended.ok()) << replayed.ended.text();
    EXPECT_EQ(replayed.findings, findings);
    EXPECT_EQ(replayed.steps, 120u);
  }
}

TEST_F(TraceFile, ACleanRunStaysCleanAndSmall) {
  ToyShape shape;
  shape.max_columns = 8;
  shape.max_prompt = 110;
  shape.max_output = 12;
  shape.arrivals = 1.0;
  const std::string path = Record("a.kvtrace", 160, 3, 0, nullptr, shape);
  const Replayed replayed = ReplayFile(path);
  EXPECT_TRUE(replayed.ended.ok()) << replayed.ended.text();
  EXPECT_EQ(replayed.verdict.verdict, uint32_t{KVGUARD_CLEAN});
  EXPECT_EQ(replayed.verdict.steps, 160u);
  EXPECT_GT(replayed.verdict.slots, 8000u);
  EXPECT_LT(std::filesystem::file_size(path), 100'000u);
}

TEST_F(TraceFile, NoTokenIdIsInTheFile) {
  // A vocabulary of one id that no hash, count or address of this run can be.
  ToyShape shape;
  shape.vocabulary = 1;
  ToyEngine engine(shape, 3);
  const Guard guard = MakeGuard(engine.geometry());
  ASSERT_EQ(kvguard_record_start(guard.get(), Path("a").c_str(), 0, nullptr), KVGUARD_OK);
  RecordView view;
  constexpr int64_t kToken = 0x5ec2e7;
  for (int i = 0; i < 30; ++i) {
    for (OwnedRecord& record : engine.Step()) {
      for (OwnedEvent& event : record.events)
        std::fill(event.tokens.begin(), event.tokens.end(), kToken);
      for (OwnedOutcomeRow& row : record.rows)
        std::fill(row.tokens.begin(), row.tokens.end(), kToken);
      Feed(guard.get(), view.Of(record));
    }
  }
  ASSERT_EQ(kvguard_record_stop(guard.get(), nullptr), KVGUARD_OK);
  TraceReader reader;
  ASSERT_TRUE(reader.Open(Path("a")).ok());
  int64_t seen = 0;
  uint64_t count = 0;
  for (;;) {
    const kvguard_record* record = nullptr;
    ASSERT_TRUE(reader.Next(&record).ok());
    if (record == nullptr) break;
    const OwnedRecord owned = OwnedRecord::Of(*record);
    for (const OwnedEvent& event : owned.events) {
      for (const int64_t token : event.tokens) {
        if (seen == 0) seen = token;
        EXPECT_EQ(token, seen);
        ++count;
      }
    }
  }
  EXPECT_GT(count, 100u);
  EXPECT_NE(seen, kToken);
}

TEST_F(TraceFile, ARecorderThatStartsInTheMiddleTakesASnapshot) {
  ToyEngine engine(ToyShape(), 4);
  const Guard guard = MakeGuard(engine.geometry());
  RecordView view;
  for (int i = 0; i < 50; ++i) {
    for (OwnedRecord& record : engine.Step()) Feed(guard.get(), view.Of(record));
  }
  ASSERT_EQ(kvguard_record_start(guard.get(), Path("a").c_str(), 0, nullptr), KVGUARD_OK);
  for (int i = 0; i < 50; ++i) {
    for (OwnedRecord& record : engine.Step()) {
      if (i == 30 && record.kind == KVGUARD_RECORD_PLAN) record.plan.groups[0].slots.values[0] += 1;
      Feed(guard.get(), view.Of(record));
    }
  }
  ASSERT_EQ(kvguard_record_stop(guard.get(), nullptr), KVGUARD_OK);
  const Replayed replayed = ReplayFile(Path("a"));
  EXPECT_TRUE(replayed.ended.ok());
  EXPECT_EQ(replayed.verdict.verdict, uint32_t{KVGUARD_VIOLATED});
  EXPECT_EQ(replayed.verdict.steps, 50u);
  EXPECT_EQ(replayed.findings, FindingsOf(guard.get()));
}

TEST_F(TraceFile, StartAndStopRefuseWhatMakesNoSense) {
  ToyEngine engine(ToyShape(), 5);
  const Guard guard = MakeGuard(engine.geometry());
  kvguard_error error{};
  error.size = sizeof(error);
  EXPECT_EQ(kvguard_record_stop(guard.get(), &error), KVGUARD_ERROR_ORDER);
  ASSERT_EQ(kvguard_record_start(guard.get(), Path("a").c_str(), 0, &error), KVGUARD_OK);
  EXPECT_EQ(kvguard_record_start(guard.get(), Path("b").c_str(), 0, &error), KVGUARD_ERROR_ORDER);
  ASSERT_EQ(kvguard_record_stop(guard.get(), &error), KVGUARD_OK);
  RecordView view;
  const std::vector<OwnedRecord> step = engine.Step();
  Feed(guard.get(), view.Of(step[0]));
  EXPECT_EQ(kvguard_record_start(guard.get(), Path("b").c_str(), 0, &error), KVGUARD_ERROR_ORDER);
  EXPECT_EQ(kvguard_record_start(guard.get(), "", 0, &error), KVGUARD_ERROR_ARGUMENT);
}

TEST_F(TraceFile, AForeignFileIsNotOverwritten) {
  ToyEngine engine(ToyShape(), 5);
  const Guard guard = MakeGuard(engine.geometry());
  kvguard_error error{};
  error.size = sizeof(error);
  WriteAll(Path("notes"), Bytes(100, 'x'));
  EXPECT_EQ(kvguard_record_start(guard.get(), Path("notes").c_str(), 0, &error), KVGUARD_ERROR_IO);
  EXPECT_NE(std::string(error.text).find("not a kvguard trace"), std::string::npos) << error.text;
  EXPECT_EQ(ReadAll(Path("notes")), Bytes(100, 'x'));
  EXPECT_EQ(kvguard_record_start(guard.get(), folder_.c_str(), 0, &error), KVGUARD_ERROR_IO);
  EXPECT_EQ(kvguard_record_start(guard.get(), Path("no/such/folder").c_str(), 0, &error),
            KVGUARD_ERROR_IO);
  // Nor is a trace that somebody is writing.
  const Guard other = MakeGuard(engine.geometry());
  ASSERT_EQ(kvguard_record_start(other.get(), Path("rank").c_str(), 0, &error), KVGUARD_OK);
  EXPECT_EQ(kvguard_record_start(guard.get(), Path("rank").c_str(), 0, &error), KVGUARD_ERROR_IO);
  EXPECT_NE(std::string(error.text).find("another recorder"), std::string::npos) << error.text;
  // A trace is: the same command a second time must work.
  const std::string trace = Record("a.kvtrace", 3, 1);
  EXPECT_EQ(kvguard_record_start(guard.get(), trace.c_str(), 0, &error), KVGUARD_OK) << error.text;
}

TEST_F(TraceFile, AKilledProcessLeavesEveryWholeStep) {
  ToyEngine engine(ToyShape(), 6);
  const std::string path = Path("a");
  Guard guard = MakeGuard(engine.geometry());
  ASSERT_EQ(kvguard_record_start(guard.get(), path.c_str(), 0, nullptr), KVGUARD_OK);
  RecordView view;
  for (int i = 0; i < 40; ++i) {
    for (OwnedRecord& record : engine.Step()) Feed(guard.get(), view.Of(record));
  }
  const std::vector<OwnedRecord> open = engine.Step();
  Feed(guard.get(), view.Of(open[0]));
  // The file as it is now, with the recorder still running.
  const Replayed replayed = ReplayFile(path);
  EXPECT_EQ(replayed.ended.code(), KVGUARD_ERROR_FORMAT);
  EXPECT_NE(replayed.ended.text().find("truncated"), std::string::npos) << replayed.ended.text();
  EXPECT_NE(replayed.ended.text().find("40 whole steps"), std::string::npos)
      << replayed.ended.text();
  EXPECT_EQ(replayed.steps, 40u);
  // Closing writes the open step as it is.
  guard.reset();
  const Replayed closed = ReplayFile(path);
  EXPECT_TRUE(closed.ended.ok()) << closed.ended.text();
  EXPECT_EQ(closed.steps, 40u);
}

TEST_F(TraceFile, AViolatedStepIsWrittenBeforeItsEnd) {
  ToyEngine engine(ToyShape(), 6);
  const std::string path = Path("a");
  const Guard guard = MakeGuard(engine.geometry());
  ASSERT_EQ(kvguard_record_start(guard.get(), path.c_str(), 0, nullptr), KVGUARD_OK);
  RecordView view;
  for (int i = 0; i < 20; ++i) {
    for (OwnedRecord& record : engine.Step()) Feed(guard.get(), view.Of(record));
  }
  std::vector<OwnedRecord> step = engine.Step();
  while (step.size() < 3) step = engine.Step();
  step[1].plan.groups[0].table.at(0, 0) += 1;
  Feed(guard.get(), view.Of(step[0]));
  EXPECT_EQ(Feed(guard.get(), view.Of(step[1])).step_verdict, uint32_t{KVGUARD_VIOLATED});
  const Replayed replayed = ReplayFile(path);
  EXPECT_EQ(replayed.verdict.verdict, uint32_t{KVGUARD_VIOLATED});
  EXPECT_EQ(replayed.findings, FindingsOf(guard.get()));
}

TEST_F(TraceFile, ABoundedFileEndsWithAMark) {
  ToyEngine engine(ToyShape(), 7);
  const std::string path = Path("a");
  const Guard guard = MakeGuard(engine.geometry());
  constexpr uint64_t kBound = 8000;
  ASSERT_EQ(kvguard_record_start(guard.get(), path.c_str(), kBound, nullptr), KVGUARD_OK);
  RecordView view;
  for (int i = 0; i < 200; ++i) {
    for (OwnedRecord& record : engine.Step()) Feed(guard.get(), view.Of(record));
  }
  kvguard_error error{};
  error.size = sizeof(error);
  EXPECT_EQ(kvguard_record_stop(guard.get(), &error), KVGUARD_ERROR_MEMORY);
  EXPECT_NE(std::string(error.text).find("bound of 8000 bytes"), std::string::npos) << error.text;
  EXPECT_LE(std::filesystem::file_size(path), kBound);
  EXPECT_GT(std::filesystem::file_size(path), kBound / 2);
  TraceReader reader;
  ASSERT_TRUE(reader.Open(path).ok());
  const kvguard_record* record = nullptr;
  do {
    ASSERT_TRUE(reader.Next(&record).ok());
  } while (record != nullptr);
  EXPECT_TRUE(reader.has_footer());
  EXPECT_GT(reader.steps(), 5u);
  EXPECT_EQ(reader.footer().steps, reader.steps());
  EXPECT_EQ(reader.footer().steps + reader.footer().lost_steps, 200u);
  EXPECT_NE(reader.LossSentence().find("were not recorded"), std::string::npos);
}

TEST_F(TraceFile, AFullDiskStopsTheRecorderAndFailsNoFeed) {
  // A process may write files of a limited size here; what is beyond fails as on a full disk.
  ToyEngine engine(ToyShape(), 8);
  const std::string path = Path("a");
  const Guard guard = MakeGuard(engine.geometry());
  ASSERT_EQ(kvguard_record_start(guard.get(), path.c_str(), 0, nullptr), KVGUARD_OK);
  struct rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  struct rlimit small = before;
  small.rlim_cur = 6000;
  const auto old = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  RecordView view;
  kvguard_verdict verdict{};
  for (int i = 0; i < 200; ++i) {
    for (OwnedRecord& record : engine.Step()) verdict = Feed(guard.get(), view.Of(record));
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old);
  kvguard_error error{};
  error.size = sizeof(error);
  EXPECT_EQ(verdict.verdict, uint32_t{KVGUARD_CLEAN});
  EXPECT_EQ(verdict.steps, 200u);
  EXPECT_EQ(kvguard_record_stop(guard.get(), &error), KVGUARD_ERROR_IO);
  EXPECT_NE(std::string(error.text).find("writing failed"), std::string::npos) << error.text;
  // Every whole step before it is there, and the end says what is not.
  TraceReader reader;
  ASSERT_TRUE(reader.Open(path).ok());
  const kvguard_record* record = nullptr;
  do {
    const step::Status status = reader.Next(&record);
    ASSERT_TRUE(status.ok()) << status.text();
  } while (record != nullptr);
  EXPECT_EQ(reader.footer().steps + reader.footer().lost_steps, 200u);
  EXPECT_GT(reader.steps(), 5u);
}

TEST_F(TraceFile, AFullDeviceIsSaidAtTheStart) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "this system has no /dev/full";
  ToyEngine engine(ToyShape(), 8);
  const Guard guard = MakeGuard(engine.geometry());
  kvguard_error error{};
  error.size = sizeof(error);
  EXPECT_EQ(kvguard_record_start(guard.get(), "/dev/full", 0, &error), KVGUARD_ERROR_IO);
  EXPECT_NE(std::string(error.text).find("No space left"), std::string::npos) << error.text;
}

TEST_F(TraceFile, WhatAGuardRefusedIsRefusedAgain) {
  struct Case {
    const char* name;
    void (*change)(kvguard_record*, kvguard_begin*, kvguard_plan*);
    uint32_t kind;
  };
  const Case cases[] = {
      {"begin without a body",
       [](kvguard_record* r, kvguard_begin*, kvguard_plan*) { r->body.begin = nullptr; },
       KVGUARD_RECORD_BEGIN},
      {"begin with unknown flags",
       [](kvguard_record*, kvguard_begin* b, kvguard_plan*) { b->flags = 4; },
       KVGUARD_RECORD_BEGIN},
      {"begin with a lying count",
       [](kvguard_record*, kvguard_begin* b, kvguard_plan*) {
         b->num_scheduled = uint64_t{1} << 60;
       },
       KVGUARD_RECORD_BEGIN},
      {"plan with a lying count",
       [](kvguard_record*, kvguard_begin*, kvguard_plan* p) {
         p->num_rows = p->padded_rows = uint64_t{1} << 60;
       },
       KVGUARD_RECORD_PLAN},
      {"plan of an unjudged pass",
       [](kvguard_record*, kvguard_begin*, kvguard_plan* p) {
         p->pass = KVGUARD_PASS_GRAPH_REPLAY;
       },
       KVGUARD_RECORD_PLAN},
      {"plan of another step",
       [](kvguard_record* r, kvguard_begin*, kvguard_plan*) { r->step += 1000; },
       KVGUARD_RECORD_PLAN},
      {"end of another step",
       [](kvguard_record* r, kvguard_begin*, kvguard_plan*) { r->step += 1000; },
       KVGUARD_RECORD_END},
      {"a record of no kind",
       [](kvguard_record* r, kvguard_begin*, kvguard_plan*) { r->kind = 99; },
       KVGUARD_RECORD_OUTCOME},
      {"a record of no size", [](kvguard_record* r, kvguard_begin*, kvguard_plan*) { r->size = 3; },
       KVGUARD_RECORD_OUTCOME},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    ToyEngine engine(ToyShape(), 9);
    const Guard guard = MakeGuard(engine.geometry());
    ASSERT_EQ(kvguard_record_start(guard.get(), Path("a").c_str(), 0, nullptr), KVGUARD_OK);
    RecordView view;
    kvguard_verdict verdict{};
    bool changed = false;
    for (int i = 0; i < 30; ++i) {
      for (OwnedRecord& owned : engine.Step()) {
        kvguard_record record = view.Of(owned);
        kvguard_begin begin{};
        kvguard_plan plan{};
        if (i >= 12 && !changed && record.kind == c.kind) {
          changed = true;
          if (record.kind == KVGUARD_RECORD_BEGIN) begin = *record.body.begin;
          if (record.kind == KVGUARD_RECORD_PLAN) plan = *record.body.plan;
          if (record.kind == KVGUARD_RECORD_BEGIN) record.body.begin = &begin;
          if (record.kind == KVGUARD_RECORD_PLAN) record.body.plan = &plan;
          c.change(&record, &begin, &plan);
        }
        verdict = Feed(guard.get(), record);
      }
    }
    ASSERT_TRUE(changed);
    EXPECT_EQ(verdict.verdict, uint32_t{KVGUARD_CANNOT_JUDGE});
    EXPECT_EQ(kvguard_record_stop(guard.get(), nullptr), KVGUARD_OK);
    const Replayed replayed = ReplayFile(Path("a"));
    EXPECT_TRUE(replayed.ended.ok()) << replayed.ended.text();
    EXPECT_EQ(replayed.verdict.verdict, uint32_t{KVGUARD_CANNOT_JUDGE});
    EXPECT_EQ(replayed.findings, FindingsOf(guard.get()));
    EXPECT_EQ(replayed.verdict.steps_judged, verdict.steps_judged);
  }
}

TEST_F(TraceFile, TheCInterfaceReadsWhatItWrote) {
  const std::string path = Record("a.kvtrace", 25, 3);
  kvguard_error error{};
  error.size = sizeof(error);
  kvguard_trace* trace = nullptr;
  const kvguard_geometry* geometry = nullptr;
  ASSERT_EQ(kvguard_trace_open(path.c_str(), &trace, &geometry, &error), KVGUARD_OK) << error.text;
  ASSERT_NE(geometry, nullptr);
  EXPECT_STREQ(geometry->engine, "toy");
  const void* snapshot = &error;
  size_t size = 1;
  EXPECT_EQ(kvguard_trace_snapshot(trace, &snapshot, &size, &error), KVGUARD_OK);
  EXPECT_EQ(snapshot, nullptr);
  EXPECT_EQ(size, 0u);
  const Guard guard = MakeGuard(*geometry);
  const kvguard_record* record = nullptr;
  kvguard_status status = KVGUARD_OK;
  kvguard_verdict verdict{};
  while ((status = kvguard_trace_next(trace, &record, &error)) == KVGUARD_OK) {
    verdict = Feed(guard.get(), *record);
  }
  EXPECT_EQ(status, KVGUARD_END_OF_TRACE) << error.text;
  EXPECT_EQ(kvguard_trace_next(trace, &record, &error), KVGUARD_END_OF_TRACE) << "again";
  EXPECT_EQ(record, nullptr);
  EXPECT_EQ(verdict.steps, 25u);
  EXPECT_EQ(verdict.verdict, uint32_t{KVGUARD_CLEAN});
  kvguard_trace_close(trace);
  kvguard_trace_close(nullptr);

  EXPECT_EQ(kvguard_trace_open(nullptr, &trace, &geometry, &error), KVGUARD_ERROR_ARGUMENT);
  EXPECT_EQ(kvguard_trace_open(path.c_str(), nullptr, &geometry, &error), KVGUARD_ERROR_ARGUMENT);
  EXPECT_EQ(kvguard_trace_open(Path("missing").c_str(), &trace, &geometry, &error),
            KVGUARD_ERROR_IO);
  EXPECT_EQ(trace, nullptr);
  EXPECT_EQ(kvguard_trace_next(nullptr, &record, &error), KVGUARD_ERROR_ARGUMENT);
}

TEST_F(TraceFile, DamageIsSaidAgainAtEveryFurtherCall) {
  Bytes bytes = ReadAll(Record("a.kvtrace", 25, 3));
  bytes[bytes.size() / 2] ^= 1;
  WriteAll(Path("damaged"), bytes);
  kvguard_error error{};
  error.size = sizeof(error);
  kvguard_trace* trace = nullptr;
  const kvguard_geometry* geometry = nullptr;
  ASSERT_EQ(kvguard_trace_open(Path("damaged").c_str(), &trace, &geometry, &error), KVGUARD_OK);
  const kvguard_record* record = nullptr;
  int records = 0;
  while (kvguard_trace_next(trace, &record, &error) == KVGUARD_OK) ++records;
  EXPECT_GT(records, 10);
  const std::string first = error.text;
  EXPECT_NE(first.find("damaged at byte"), std::string::npos) << first;
  EXPECT_EQ(kvguard_trace_next(trace, &record, &error), KVGUARD_ERROR_FORMAT);
  EXPECT_EQ(error.text, first);
  kvguard_trace_close(trace);
}

TEST_F(TraceFile, ARecorderAndAFlightRecorderListenToOneGuard) {
  ToyEngine engine(ToyShape(), 6);
  Bytes incident;
  kvguard_config config{};
  config.size = sizeof(config);
  config.incident_context = &incident;
  config.incident = [](void* context, const void* bytes, size_t size) {
    const auto* at = static_cast<const uint8_t*>(bytes);
    static_cast<Bytes*>(context)->assign(at, at + size);
  };
  const Guard guard = MakeGuard(engine.geometry(), &config);
  ASSERT_EQ(kvguard_record_start(guard.get(), Path("a").c_str(), 0, nullptr), KVGUARD_OK);
  RecordView view;
  for (int i = 0; i < 30; ++i) {
    for (OwnedRecord& record : engine.Step()) {
      if (i == 20 && record.kind == KVGUARD_RECORD_PLAN) record.plan.groups[0].slots.values[0] += 1;
      Feed(guard.get(), view.Of(record));
    }
  }
  ASSERT_EQ(kvguard_record_stop(guard.get(), nullptr), KVGUARD_OK);
  const Replayed whole = ReplayFile(Path("a"));
  EXPECT_EQ(whole.findings, FindingsOf(guard.get()));
  EXPECT_EQ(whole.steps, 30u);
  const Replayed last = ReplayBytes(incident);
  EXPECT_TRUE(last.ended.ok()) << last.ended.text();
  EXPECT_EQ(last.verdict.verdict, uint32_t{KVGUARD_VIOLATED});
  EXPECT_EQ(whole.findings.rfind(last.findings, 0), 0u) << "the same first findings";
}

}  // namespace
}  // namespace kvguard::trace
