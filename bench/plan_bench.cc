// SPDX-License-Identifier: Apache-2.0
//
// The guard and the bare loop on the scenarios. bench/run.py drives it and holds the Python lanes
// beside it; bench/check_instructions.py counts its instructions.
//
//   plan_bench serve                   a round for every line on stdin, as a line of JSON: medians
//   in ns for each lane plan_bench dump                    four consecutive steps of each scenario,
//   JSON plan_bench count SCENARIO CYCLES   feeds CYCLES cycles through kvguard_bench_begin, _plan,
//   ... and measures nothing
#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "bench/bare.h"
#include "bench/engine.h"
#include "bench/scenario.h"
#include "kvguard/kvguard.h"

// The measured calls, under names that callgrind can be told to count. The assembly comment keeps
// the four apart for the compiler, which would fold equal functions, and keeps each call from
// becoming a jump, which callgrind would not see end.
extern "C" {
#define KVGUARD_BENCH_FEED(name)                                                      \
  __attribute__((noinline)) kvguard_status name(                                      \
      kvguard_guard* guard, const kvguard_record* record, kvguard_verdict* verdict) { \
    const kvguard_status status = kvguard_feed(guard, record, verdict, nullptr);      \
    __asm__ volatile("# " #name ::: "memory");                                        \
    return status;                                                                    \
  }
KVGUARD_BENCH_FEED(kvguard_bench_begin)
KVGUARD_BENCH_FEED(kvguard_bench_plan)
KVGUARD_BENCH_FEED(kvguard_bench_outcome)
KVGUARD_BENCH_FEED(kvguard_bench_end)
}

namespace kvguard::bench {
namespace {

using Feed = kvguard_status (*)(kvguard_guard*, const kvguard_record*, kvguard_verdict*);
using Clock = std::chrono::steady_clock;

constexpr uint32_t kSettle =
    16;  // measured steps at the start of a cycle that are not counted: caches settle

[[noreturn]] void Die(const std::string& what) {
  std::cerr << "plan_bench: " << what << "\n";
  std::exit(70);
}

double Median(std::vector<double>* samples) {
  if (samples->empty()) Die("no sample was taken");
  const auto middle = samples->begin() + static_cast<std::ptrdiff_t>(samples->size() / 2);
  std::nth_element(samples->begin(), middle, samples->end());
  return *middle;
}

double Nanoseconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::nano>(to - from).count();
}

// What two readings of the clock cost with nothing between them; taken off every sample.
double ClockCost() {
  std::vector<double> samples(2001);
  for (double& sample : samples) {
    const Clock::time_point from = Clock::now();
    const Clock::time_point to = Clock::now();
    sample = Nanoseconds(from, to);
  }
  return Median(&samples);
}

constexpr const char* kRecords[4] = {"begin", "plan", "outcome", "end"};

// An engine and its guard. `flight_recorder`: with an incident handler, for which libkvguard keeps
// the latest records.
struct Guarded {
  Guarded(const Scenario& s, bool flight_recorder) : scenario(s), engine(s) {
    kvguard_config config{};
    config.size = sizeof config;
    if (flight_recorder) config.incident = [](void*, const void*, size_t) {};
    kvguard_error error{};
    error.size = sizeof error;
    if (kvguard_create(&engine.geometry(), &config, &guard, &error) != KVGUARD_OK) Die(error.text);
    verdict.size = sizeof verdict;
  }
  ~Guarded() { kvguard_destroy(guard); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  // One cycle; sample(k, from, to) gets the k-th record of every measured step that counts.
  template <typename Sample>
  void Cycle(Sample sample) {
    uint32_t measured = 0;
    for (uint32_t i = 0; i < engine.steps_per_cycle(); ++i) {
      engine.NextStep();
      const kvguard_record* records[4] = {&engine.begin(), &engine.plan(), &engine.outcome(),
                                          &engine.end()};
      const bool counts = engine.measured() && measured++ >= kSettle;
      for (int k = 0; k < 4; ++k) {
        const Clock::time_point from = Clock::now();
        const kvguard_status status = kvguard_feed(guard, records[k], &verdict, nullptr);
        const Clock::time_point to = Clock::now();
        if (status != KVGUARD_OK) Fail(records[k]);
        if (counts) sample(k, from, to);
      }
    }
    RequireClean();
  }

  // One cycle whose measured steps go through the functions that callgrind counts.
  void CountCycle() {
    static constexpr Feed kFeeds[4] = {kvguard_bench_begin, kvguard_bench_plan,
                                       kvguard_bench_outcome, kvguard_bench_end};
    for (uint32_t i = 0; i < engine.steps_per_cycle(); ++i) {
      engine.NextStep();
      const kvguard_record* records[4] = {&engine.begin(), &engine.plan(), &engine.outcome(),
                                          &engine.end()};
      for (int k = 0; k < 4; ++k) {
        const kvguard_status status = engine.measured()
                                          ? kFeeds[k](guard, records[k], &verdict)
                                          : kvguard_feed(guard, records[k], &verdict, nullptr);
        if (status != KVGUARD_OK) Fail(records[k]);
      }
    }
    RequireClean();
  }

  [[noreturn]] void Fail(const kvguard_record* record) {
    kvguard_error error{};
    error.size = sizeof error;
    kvguard_feed(guard, record, &verdict, &error);  // once more, for its sentence
    Die(std::string(scenario.name) + ": a record was refused: " + error.text);
  }

  // A guard that found something, or judged nothing, was not doing the work that is being timed.
  void RequireClean() {
    if (verdict.verdict == KVGUARD_CLEAN && verdict.suspicions == 0 &&
        verdict.steps_judged == verdict.steps)
      return;
    std::string what = std::string(scenario.name) + ": the verdict is " +
                       kvguard_name("verdict", static_cast<int64_t>(verdict.verdict));
    kvguard_finding finding{};
    finding.size = sizeof finding;
    size_t count = 0;
    kvguard_findings(guard, 0, &finding, 1, &count, nullptr);
    if (count > 0) {
      char text[1024];
      size_t needed = 0;
      kvguard_explain(guard, &finding, text, sizeof text, &needed, nullptr);
      what += std::string(": ") + text;
    }
    Die(what);
  }

  const Scenario& scenario;
  Engine engine;
  kvguard_guard* guard = nullptr;
  kvguard_verdict verdict{};
};

// The bare loop, with an engine of its own, so that no lane warms another one's buffers.
struct Bare {
  explicit Bare(const Scenario& s) : engine(s) {}

  template <typename Sample>
  void Cycle(Sample sample) {
    uint32_t measured = 0;
    for (uint32_t i = 0; i < engine.steps_per_cycle(); ++i) {
      engine.NextStep();
      if (!engine.measured()) continue;
      const Metadata metadata = engine.metadata();
      CopyExpected(metadata, &expected);
      const Clock::time_point from = Clock::now();
      const bool equal = BareEqual(metadata, expected);
      const Clock::time_point to = Clock::now();
      if (!equal) Die("the bare loop saw a difference");
      if (measured++ >= kSettle) sample(from, to);
    }
  }

  Engine engine;
  Expected expected;
};

struct Bench {
  explicit Bench(const Scenario& s) : scenario(s), bare(s), guarded(s, false), recorded(s, true) {}

  // One cycle of every lane: medians in nanoseconds, as a JSON object.
  std::string Round() {
    const double clock = ClockCost();
    std::string out;
    const auto add = [&](const std::string& lane, std::vector<double>* samples) {
      out += (out.empty() ? "{\"" : ",\"") + lane + "\":" + std::to_string(Median(samples) - clock);
    };
    if (BareAvailable()) {
      std::vector<double> samples;
      bare.Cycle([&](auto from, auto to) { samples.push_back(Nanoseconds(from, to)); });
      add("bare", &samples);
    }
    for (Guarded* lane : {&guarded, &recorded}) {
      std::vector<double> samples[4];
      lane->Cycle([&](int k, auto from, auto to) { samples[k].push_back(Nanoseconds(from, to)); });
      for (int k = 0; k < 4; ++k)
        add(std::string(lane == &recorded ? "recorded_" : "") + kRecords[k], &samples[k]);
    }
    return out + "}";
  }

  const Scenario& scenario;
  Bare bare;
  Guarded guarded;
  Guarded recorded;
};

void Serve() {
  std::vector<std::unique_ptr<Bench>> benches;
  for (const Scenario& scenario : Scenarios()) benches.push_back(std::make_unique<Bench>(scenario));
  std::string line;
  while (std::getline(std::cin, line)) {
    std::string out;
    for (const auto& bench : benches) {
      out += (out.empty() ? "{\"" : ",\"") + std::string(bench->scenario.name) +
             "\":" + bench->Round();
    }
    std::cout << out << "}\n" << std::flush;
  }
}

void Dump() {
  std::string out = "[";
  for (const Scenario& scenario : Scenarios()) {
    Engine engine(scenario);
    while (!engine.measured()) engine.NextStep();
    if (out.size() > 1) out += ",\n";
    out += std::string("{\"name\":\"") + scenario.name + "\",\"title\":\"" + scenario.title +
           "\",\"block_size\":" + std::to_string(scenario.block_size) + ",\"steps\":[";
    for (int i = 0; i < 4; ++i) {
      if (i > 0) out += ",\n";
      engine.NextStep();
      out += engine.Json();
    }
    out += "]}";
  }
  std::cout << out << "]\n";
}

void Count(const std::string& name, int cycles) {
  for (const Scenario& scenario : Scenarios()) {
    if (scenario.name != name) continue;
    Guarded guarded(scenario, false);
    for (int i = 0; i < cycles; ++i) guarded.CountCycle();
    std::cout << static_cast<uint64_t>(cycles) * kCycle << "\n";
    return;
  }
  Die("no scenario is called " + name);
}

}  // namespace
}  // namespace kvguard::bench

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  const long cycles = argc == 4 ? std::strtol(argv[3], nullptr, 10) : 0;
  if (mode == "serve" && argc == 2) {
    kvguard::bench::Serve();
  } else if (mode == "dump" && argc == 2) {
    kvguard::bench::Dump();
  } else if (mode == "count" && argc == 4 && cycles > 0 && cycles < INT_MAX) {
    kvguard::bench::Count(argv[2], static_cast<int>(cycles));
  } else {
    std::cerr << "usage: plan_bench serve | dump | count SCENARIO CYCLES\n";
    return 64;
  }
  return 0;
}
