// SPDX-License-Identifier: Apache-2.0
#include "lab/run.h"

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kvguard/kvguard.hpp"

namespace kvguard::lab {
namespace {

RunOptions Of(const char* scenario, uint64_t seed, uint64_t steps) {
  RunOptions options;
  options.setup = FindScenario(scenario)->make(seed);
  options.seed = seed;
  options.steps = steps;
  return options;
}

std::string Text(const RunResult& result) {
  std::string text = result.error + result.not_armed;
  for (const GuardFinding& finding : result.findings) text += finding.text;
  for (const kvguard_gap& gap : result.gaps) text += std::string("gap ") + gap.name + "\n";
  for (const Wrong& wrong : result.wrongs) {
    text += "wrong " + std::to_string(static_cast<int>(wrong.kind)) + " step " +
            std::to_string(wrong.step) + " request " + std::to_string(wrong.serial) + " group " +
            std::to_string(wrong.group) + " position " + std::to_string(wrong.position) + " slot " +
            std::to_string(wrong.slot) + " expected " + std::to_string(wrong.expected) + " found " +
            std::to_string(wrong.found) + "\n";
  }
  return text.substr(0, 4000);
}

class HealthyRun : public testing::TestWithParam<Scenario> {};

TEST_P(HealthyRun, IsCleanAndItsTokensAreThoseOfAComputationWithoutACache) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    RunOptions options = Of(GetParam().name.data(), seed, 8000);  // a million in all
    options.guard = GuardMode::kLog;
    const RunResult result = lab::Run(options);
    ASSERT_EQ(result.wrong_reads.count, 0u) << "seed " << seed << "\n" << Text(result);
    ASSERT_EQ(result.wrong_writes.count, 0u) << "seed " << seed << "\n" << Text(result);
    ASSERT_EQ(result.wrong_tokens.count, 0u) << "seed " << seed << "\n" << Text(result);
    ASSERT_EQ(result.wrong_requests, 0u) << "seed " << seed;
    ASSERT_GT(result.requests, 20u);
    ASSERT_EQ(result.verdict.verdict, static_cast<uint32_t>(KVGUARD_CLEAN))
        << "seed " << seed << "\n"
        << Text(result);
    ASSERT_EQ(result.verdict.suspicions, 0u) << "seed " << seed << "\n" << Text(result);
  }
}

TEST_P(HealthyRun, TokensOfTheTransformerAreThoseOfOnePassWithoutACache) {
  RunOptions options = Of(GetParam().name.data(), 1, 250);
  options.model = ModelKind::kTransformer;
  options.guard = GuardMode::kLog;
  const RunResult result = lab::Run(options);
  EXPECT_GT(result.requests, 0u);
  EXPECT_EQ(result.wrong_requests, 0u);
  EXPECT_EQ(result.verdict.verdict, static_cast<uint32_t>(KVGUARD_CLEAN)) << Text(result);
}

TEST(Transformer, AFaultShowsInItsTokens) {
  RunOptions options = Of("dense", 1, 400);
  options.model = ModelKind::kTransformer;
  options.guard = GuardMode::kLog;
  options.fault = FaultKind::kTableOtherRow;
  options.fault_at = 50;
  const RunResult result = lab::Run(options);
  EXPECT_EQ(result.first_proof, result.fault_struck);
  EXPECT_GT(result.wrong_requests, 0u);
}

TEST(RandomEngines, AreCleanAndTheirTokensRight) {
  StateCounts reached;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    RunOptions options = Of("random", seed, 600);
    options.guard = GuardMode::kLog;
    const RunResult result = lab::Run(options);
    ASSERT_EQ(result.wrong_reads.count, 0u) << "seed " << seed << "\n" << Text(result);
    ASSERT_EQ(result.wrong_writes.count, 0u) << "seed " << seed << "\n" << Text(result);
    ASSERT_EQ(result.wrong_tokens.count, 0u) << "seed " << seed << "\n" << Text(result);
    ASSERT_EQ(result.wrong_requests, 0u) << "seed " << seed;
    ASSERT_EQ(result.verdict.verdict, static_cast<uint32_t>(KVGUARD_CLEAN))
        << "seed " << seed << "\n"
        << Text(result);
    ASSERT_EQ(result.verdict.suspicions, 0u) << "seed " << seed << "\n" << Text(result);
    for (size_t i = 0; i < kNumStates; ++i) reached.counts[i] += result.states.counts[i];
  }
  for (size_t i = 0; i < kNumStates; ++i) {
    EXPECT_GT(reached.counts[i], 0u) << "no run came through: " << kStateNames[i];
  }
}

// Every record of a trace as bytes. Without token ids: a recorder replaces them by other ones in
// each recording.
std::string RecordsOf(const std::string& path) {
  std::string bytes;
  const auto put = [&bytes](const void* data, size_t size) {
    bytes.append(static_cast<const char*>(data), size);
  };
  const auto array = [&](const kvguard_array& view) {
    put(view.data, view.count * (view.dtype == KVGUARD_I64 ? 8 : 4));
  };
  auto trace = Trace::Open(path).OrThrow();
  for (const kvguard_record* record = trace.Next().OrThrow(); record != nullptr;
       record = trace.Next().OrThrow()) {
    put(&record->kind, sizeof record->kind);
    put(&record->step, sizeof record->step);
    if (record->kind == KVGUARD_RECORD_BEGIN) {
      const kvguard_begin& begin = *record->body.begin;
      for (uint64_t i = 0; i < begin.num_events; ++i) {
        const kvguard_event& event = begin.events[i];
        put(&event.kind, offsetof(kvguard_event, blocks) - offsetof(kvguard_event, kind));
        put(event.blocks, event.num_blocks * sizeof(int64_t));
        put(event.name, event.name_size);
      }
      put(begin.scheduled, begin.num_scheduled * sizeof(kvguard_scheduled));
    } else if (record->kind == KVGUARD_RECORD_PLAN) {
      const kvguard_plan& plan = *record->body.plan;
      put(plan.requests, plan.num_rows * sizeof(uint64_t));
      for (const kvguard_array& view : {plan.query_start, plan.seq_lens, plan.positions}) {
        array(view);
      }
      for (uint32_t g = 0; g < plan.num_groups; ++g) {
        array(plan.groups[g].slots);
        const kvguard_read_table& table = plan.groups[g].reads.table;
        for (uint64_t row = 0; row < plan.num_rows; ++row) {
          put(static_cast<const int32_t*>(table.data) + row * table.row_stride,
              Ix(static_cast<const int32_t*>(table.row_columns.data)[row]) * sizeof(int32_t));
        }
      }
    } else if (record->kind == KVGUARD_RECORD_OUTCOME) {
      const kvguard_outcome& outcome = *record->body.outcome;
      for (uint64_t i = 0; i < outcome.num_rows; ++i) {
        put(&outcome.rows[i].num_sampled, 2 * sizeof(uint32_t));
        put(&outcome.rows[i].request, sizeof(uint64_t));
      }
    }
  }
  return bytes;
}

TEST(OneSeed, HasOneHistory) {
  const std::string folder = testing::TempDir();
  for (const char* scenario : {"dense", "hybrid-ngram-async"}) {
    std::set<uint64_t> histories;
    for (const uint64_t seed : {1u, 2u}) {
      std::vector<std::string> traces;
      std::vector<uint64_t> hashes;
      for (const char* name : {"lab_first.kvtrace", "lab_second.kvtrace"}) {
        RunOptions options = Of(scenario, seed, 800);
        options.record = folder + name;
        const RunResult result = lab::Run(options);
        EXPECT_EQ(result.error, "");
        hashes.push_back(result.history);
        traces.push_back(RecordsOf(options.record));
      }
      EXPECT_GT(traces[0].size(), 100000u);
      EXPECT_TRUE(traces[0] == traces[1]);
      EXPECT_EQ(hashes[0], hashes[1]);
      histories.insert(hashes[0]);
    }
    EXPECT_EQ(histories.size(), 2u);
  }
}

TEST(Guard, DoesNotChangeWhatTheEngineDoes) {
  for (const char* scenario : {"dense", "ngram-async"}) {
    std::vector<RunResult> results;
    for (const GuardMode mode : {GuardMode::kOff, GuardMode::kLog, GuardMode::kRaise}) {
      RunOptions options = Of(scenario, 7, 2000);
      options.guard = mode;
      results.push_back(lab::Run(options));
    }
    for (const RunResult& result : results) {
      EXPECT_EQ(result.states.counts, results[0].states.counts);
      EXPECT_EQ(result.history, results[0].history);
    }
  }
}

TEST(Guard, StopsASynchronousEngineBeforeAnythingWrongIsRead) {
  RunOptions options = Of("dense", 1, 2000);
  options.fault = FaultKind::kSlotOtherRow;
  options.fault_at = 500;
  const RunResult result = lab::Run(options);
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(result.first_proof, result.fault_struck);
  EXPECT_EQ(result.wrong_reads.count + result.wrong_writes.count + result.wrong_tokens.count, 0u);
}

INSTANTIATE_TEST_SUITE_P(All, HealthyRun, testing::ValuesIn(Scenarios().begin(), Scenarios().end()),
                         [](const auto& scenario) {
                           std::string name(scenario.param.name);
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace kvguard::lab
