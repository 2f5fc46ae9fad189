// SPDX-License-Identifier: Apache-2.0
#include "lab/scenario.h"

#include <array>

namespace kvguard::lab {
namespace {

// A pool that is too small for all, so that blocks are evicted and requests preempted.
Setup Dense() {
  Setup setup;
  setup.engine.num_blocks = 64;
  setup.engine.max_model_len = 320;
  setup.engine.max_batched_tokens = 128;
  setup.engine.max_chunk = 48;
  setup.engine.zeroing = true;
  setup.engine.dummy_every = 50;
  return setup;
}

Setup DenseAsync() {
  Setup setup = Dense();
  setup.engine.async = true;
  setup.engine.int32_slots = true;
  return setup;
}

Setup Decode() {
  Setup setup;
  setup.engine.num_blocks = 520;
  setup.engine.max_model_len = 512;
  setup.workload.live = 8;
  setup.workload.min_prompt = 64;
  setup.workload.max_prompt = 128;
  setup.workload.min_output = 200;
  setup.workload.max_output = 380;
  setup.workload.idle_one_in = 0;
  setup.workload.abort_one_in = 2000;
  return setup;
}

constexpr auto kScenarios = std::to_array<Scenario>({
    {"dense", "full attention in a small pool: chunks, prefix hits, evictions, preemptions, aborts",
     Dense},
    {"dense-async",
     "the same, each step scheduled before the output of the one before; int32 slots", DenseAsync},
    {"decode", "eight requests that decode, contexts up to 512: what the engine's speed is told of",
     Decode},
});

}  // namespace

std::span<const Scenario> Scenarios() { return kScenarios; }

const Scenario* FindScenario(std::string_view name) {
  for (const Scenario& scenario : kScenarios) {
    if (scenario.name == name) return &scenario;
  }
  return nullptr;
}

}  // namespace kvguard::lab
