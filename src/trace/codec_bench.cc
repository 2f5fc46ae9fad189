// SPDX-License-Identifier: Apache-2.0
// What recording costs a step: encoding alone (the flight recorder of every guarded engine), with
// framing and compression (the recorder), and decoding.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "kvguard/kvguard.h"
#include "trace/decode.h"
#include "trace/encode.h"
#include "trace/frame.h"
#include "trace/owned.h"
#include "trace/test_stream.h"

namespace kvguard::trace {
namespace {

struct Shape {
  int64_t rows;
  int64_t context;  // tokens before the first step
  int64_t block_size;
  int64_t prefill;  // tokens of the first row; 0: every row decodes
};

// Steps of a steady batch, as records whose memory stays.
class Steady {
 public:
  explicit Steady(const Shape& shape) {
    constexpr int kSteps = 64;
    const auto columns = (shape.context + kSteps + shape.prefill) / shape.block_size + 2;
    std::vector<std::vector<int64_t>> blocks(static_cast<size_t>(shape.rows));
    int64_t next_block = 1;
    for (auto& row : blocks) {
      for (int64_t c = 0; c < columns; ++c) row.push_back(next_block += 3);  // not consecutive
    }
    for (int s = 0; s < kSteps; ++s) {
      const auto step = static_cast<uint64_t>(s) + 1;
      OwnedRecord begin;
      begin.kind = KVGUARD_RECORD_BEGIN;
      begin.step = step;
      OwnedRecord planned;
      planned.kind = KVGUARD_RECORD_PLAN;
      planned.step = step;
      OwnedPlan& plan = planned.plan;
      plan.pass = KVGUARD_PASS_TARGET;
      plan.stage = KVGUARD_STAGE_PLANNED;
      plan.num_rows = plan.padded_rows = static_cast<uint64_t>(shape.rows);
      OwnedGroupPlan group;
      group.encoding = KVGUARD_READ_TABLE;
      group.table.dtype = KVGUARD_I32;
      group.table.rows = plan.padded_rows;
      group.table.columns = static_cast<uint64_t>(columns);
      group.slots.dtype = KVGUARD_I64;
      plan.query_start = {KVGUARD_I32, {0}};
      plan.seq_lens.dtype = KVGUARD_I32;
      plan.num_computed.dtype = KVGUARD_I32;
      OwnedRecord outcome;
      outcome.kind = KVGUARD_RECORD_OUTCOME;
      outcome.step = step;
      for (int64_t r = 0; r < shape.rows; ++r) {
        const auto& row = blocks[static_cast<size_t>(r)];
        const auto key = static_cast<uint64_t>(r + 1);
        const int64_t tokens = r == 0 && shape.prefill > 0 ? shape.prefill : 1;
        // A prefilling row is another request each step; its blocks are the same memory.
        const uint64_t request = r == 0 && shape.prefill > 0 ? 1000 + step : key;
        const int64_t start = r == 0 && shape.prefill > 0 ? 0 : shape.context + s + r % 16;
        if (r == 0 && shape.prefill > 0) {
          if (s > 0) {
            OwnedEvent finish;
            finish.kind = KVGUARD_EVENT_FINISH;
            finish.request = request - 1;
            begin.events.push_back(finish);
          }
          OwnedEvent admit;
          admit.kind = KVGUARD_EVENT_ADMIT;
          admit.request = request;
          admit.name = "cmpl-0123456789abcdef";
          begin.events.push_back(admit);
          OwnedEvent append;
          append.kind = KVGUARD_EVENT_APPEND;
          append.request = request;
          append.blocks.assign(row.begin(),
                               row.begin() + (tokens + shape.block_size - 1) / shape.block_size);
          begin.events.push_back(append);
        }
        begin.scheduled.push_back({request, tokens, start, 0});
        plan.requests.push_back(request);
        plan.num_tokens += static_cast<uint64_t>(tokens);
        plan.query_start.values.push_back(static_cast<int64_t>(plan.num_tokens));
        plan.seq_lens.values.push_back(start + tokens);
        plan.num_computed.values.push_back(start);
        for (int64_t i = 0; i < tokens; ++i) {
          const int64_t p = start + i;
          group.slots.values.push_back(row[static_cast<size_t>(p / shape.block_size)] *
                                           shape.block_size +
                                       p % shape.block_size);
        }
        group.table.entries.insert(group.table.entries.end(), row.begin(), row.end());
        OwnedOutcomeRow out;
        out.request = request;
        out.num_sampled = 1;
        outcome.rows.push_back(out);
      }
      plan.padded_tokens = plan.num_tokens;
      plan.groups.push_back(std::move(group));
      OwnedRecord final_plan = planned;
      final_plan.plan.stage = KVGUARD_STAGE_FINAL;
      OwnedRecord end;
      end.kind = KVGUARD_RECORD_END;
      end.step = step;
      steps_.emplace_back();
      for (OwnedRecord* record : {&begin, &planned, &final_plan, &outcome, &end}) {
        owned_.push_back(std::make_unique<OwnedRecord>(std::move(*record)));
        views_.push_back(std::make_unique<RecordView>());
        steps_.back().push_back(&views_.back()->Of(*owned_.back()));
        ShareTable(steps_.back().back());
      }
    }
  }

  const std::vector<std::vector<const kvguard_record*>>& steps() const { return steps_; }

 private:
  // An engine's table is one buffer, warm because the guard has just read it.
  void ShareTable(const kvguard_record* record) {
    if (record->kind != KVGUARD_RECORD_PLAN) return;
    auto& table = const_cast<kvguard_group_plan*>(record->body.plan->groups)->reads.table;
    if (table_ == nullptr) table_ = table.data;
    table.data = table_;
  }

  const void* table_ = nullptr;
  std::vector<std::unique_ptr<OwnedRecord>> owned_;
  std::vector<std::unique_ptr<RecordView>> views_;
  std::vector<std::vector<const kvguard_record*>> steps_;
};

const Shape kShapes[] = {
    {8, 4096, 16, 0},     // C8 decode, 4k context
    {256, 4096, 16, 0},   // C256 decode
    {1, 0, 128, 2048},    // C1 prefill, block 128
    {8, 1024, 16, 2048},  // mixed C8
};
const char* const kNames[] = {"C8 decode 4k", "C256 decode 4k", "C1 prefill 2048", "mixed C8"};

uint64_t Live(const void*, const kvguard_plan& plan, const kvguard_group_plan&, uint64_t row) {
  return static_cast<uint64_t>(static_cast<const int32_t*>(plan.seq_lens.data)[row] + 15) / 16;
}

void BM_Encode(benchmark::State& state) {
  const Steady stream(kShapes[state.range(0)]);
  StepEncoder encoder(1, nullptr);
  const JudgedColumns judged{&Live, nullptr};
  size_t at = 0;
  size_t bytes = 0;
  for (auto _ : state) {
    for (const kvguard_record* record : stream.steps()[at]) encoder.Add(*record, judged);
    bytes += encoder.Finish().size();
    at = (at + 1) % stream.steps().size();
  }
  state.SetLabel(kNames[state.range(0)]);
  state.counters["bytes/step"] =
      benchmark::Counter(static_cast<double>(bytes), benchmark::Counter::kAvgIterations);
}
BENCHMARK(BM_Encode)->DenseRange(0, 3);

void BM_EncodeAndFrame(benchmark::State& state) {
  const Steady stream(kShapes[state.range(0)]);
  TokenMapper mapper;
  StepEncoder encoder(1, &mapper);
  FrameWriter frames;
  const JudgedColumns judged{&Live, nullptr};
  size_t at = 0;
  size_t bytes = 0;
  for (auto _ : state) {
    for (const kvguard_record* record : stream.steps()[at]) encoder.Add(*record, judged);
    bytes += frames.Next(FrameKind::kStep, encoder.Finish()).size();
    at = (at + 1) % stream.steps().size();
  }
  state.SetLabel(kNames[state.range(0)]);
  state.counters["bytes/step"] =
      benchmark::Counter(static_cast<double>(bytes), benchmark::Counter::kAvgIterations);
}
BENCHMARK(BM_EncodeAndFrame)->DenseRange(0, 3);

void BM_Decode(benchmark::State& state) {
  const Steady stream(kShapes[state.range(0)]);
  StepEncoder encoder(1, nullptr);
  const JudgedColumns judged{&Live, nullptr};
  std::vector<std::vector<uint8_t>> payloads;
  for (const auto& step : stream.steps()) {
    for (const kvguard_record* record : step) encoder.Add(*record, judged);
    const auto payload = encoder.Finish();
    payloads.emplace_back(payload.begin(), payload.end());
  }
  StepDecoder decoder(1);
  size_t at = 0;
  for (auto _ : state) {
    if (!decoder.Open(payloads[at]).ok()) state.SkipWithError("a payload cannot be opened");
    while (decoder.left() > 0) {
      const kvguard_record* record = nullptr;
      if (!decoder.Next(&record).ok()) state.SkipWithError("a record cannot be read");
      benchmark::DoNotOptimize(record);
    }
    at = (at + 1) %
         payloads.size();  // the first payload starts afresh, so the round can begin again
  }
  state.SetLabel(kNames[state.range(0)]);
}
BENCHMARK(BM_Decode)->DenseRange(0, 3);

// A guard over a run of the toy engine: 0 alone, 1 with a flight recorder, 2 with a recorder and a
// file.
void BM_Guarded(benchmark::State& state) {
  constexpr int kSteps = 2000;
  ToyShape shape;
  shape.max_rows = 8;
  shape.num_blocks = 4096;
  shape.max_columns = 256;
  shape.max_prompt = 2048;
  shape.max_output = 200;
  shape.max_tokens = 4096;
  shape.pad_rows = false;
  shape.tokens = false;
  ToyEngine engine(shape, 1);
  std::vector<std::unique_ptr<OwnedRecord>> owned;
  std::vector<std::unique_ptr<RecordView>> views;
  std::vector<const kvguard_record*> records;
  for (int i = 0; i < kSteps; ++i) {
    for (OwnedRecord& record : engine.Step()) {
      owned.push_back(std::make_unique<OwnedRecord>(std::move(record)));
      views.push_back(std::make_unique<RecordView>());
      records.push_back(&views.back()->Of(*owned.back()));
    }
  }
  kvguard_config config{};
  config.size = sizeof(config);
  if (state.range(0) == 1) config.incident = [](void*, const void*, size_t) {};
  const std::string path =
      (std::filesystem::temp_directory_path() / "kvguard-codec-bench.kvtrace").string();
  for (auto _ : state) {
    state.PauseTiming();
    kvguard_guard* guard = nullptr;
    if (kvguard_create(&engine.geometry(), &config, &guard, nullptr) != KVGUARD_OK) {
      state.SkipWithError("no guard");
      break;
    }
    if (state.range(0) == 2 &&
        kvguard_record_start(guard, path.c_str(), 0, nullptr) != KVGUARD_OK) {
      state.SkipWithError("no recorder");
    }
    state.ResumeTiming();
    for (const kvguard_record* record : records) kvguard_feed(guard, record, nullptr, nullptr);
    state.PauseTiming();
    kvguard_verdict verdict{};
    verdict.size = sizeof(verdict);
    kvguard_verdict_now(guard, &verdict, nullptr);
    if (verdict.verdict != KVGUARD_CLEAN) state.SkipWithError("the toy engine is not clean");
    kvguard_destroy(guard);
    state.ResumeTiming();
  }
  if (state.range(0) == 2) {
    std::error_code error;
    state.counters["bytes/step"] =
        static_cast<double>(std::filesystem::file_size(path, error)) / kSteps;
    std::filesystem::remove(path, error);
  }
  static constexpr const char* kLabels[] = {"alone", "flight recorder", "file recorder"};
  state.SetLabel(kLabels[state.range(0)]);
  state.counters["per_step"] = benchmark::Counter(
      kSteps, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK(BM_Guarded)->DenseRange(0, 2)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace kvguard::trace
