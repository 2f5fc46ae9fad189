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

// Blocks of two kernel blocks each.
Setup KernelBlocks() {
  Setup setup = Dense();
  setup.engine.groups = {{GroupKind::kFull, 32, 16, 0}};
  setup.engine.num_blocks = 36;
  return setup;
}

Setup Mla() {
  Setup setup = Dense();
  setup.engine.groups = {{GroupKind::kMla, 64, 64, 0}};
  setup.engine.num_blocks = 24;
  return setup;
}

Setup Window() {
  Setup setup = Dense();
  setup.engine.groups = {{GroupKind::kWindow, 16, 16, 40}};
  setup.engine.num_blocks = 40;
  return setup;
}

Setup Chunked() {
  Setup setup = Dense();
  setup.engine.groups = {{GroupKind::kChunked, 16, 8, 64}};
  setup.engine.num_blocks = 44;
  return setup;
}

// Three groups that take from one pool.
Setup Hybrid() {
  Setup setup = Dense();
  setup.engine.groups = {{GroupKind::kFull, 16, 16, 0},
                         {GroupKind::kWindow, 16, 16, 48},
                         {GroupKind::kChunked, 32, 16, 64}};
  setup.engine.num_blocks = 150;
  return setup;
}

Setup HybridAsync() {
  Setup setup = Hybrid();
  setup.engine.async = true;
  return setup;
}

Setup Ngram() {
  Setup setup = Dense();
  setup.engine.num_drafts = 3;
  setup.engine.repetitive = true;
  setup.engine.vocabulary = 12;
  setup.workload.min_output = 10;
  return setup;
}

// Drafts come from the device, counts are optimistic.
Setup NgramAsync() {
  Setup setup = Ngram();
  setup.engine.async = true;
  setup.engine.int32_slots = true;
  return setup;
}

Setup HybridNgram() {
  Setup setup = Ngram();
  setup.engine.groups = Hybrid().engine.groups;
  setup.engine.num_blocks = 150;
  return setup;
}

Setup HybridNgramAsync() {
  Setup setup = HybridNgram();
  setup.engine.async = true;
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
    {"kernel-blocks", "blocks of two kernel blocks", KernelBlocks},
    {"mla", "latent vectors in blocks of 64", Mla},
    {"window", "a sliding window of 40 tokens", Window},
    {"chunked", "chunked local attention of 64 tokens a chunk", Chunked},
    {"hybrid", "full, window and chunked groups over one pool", Hybrid},
    {"hybrid-async", "the same, scheduled ahead", HybridAsync},
    {"ngram", "up to three N-gram drafts a step", Ngram},
    {"ngram-async", "drafts from the device, optimistic counts", NgramAsync},
    {"hybrid-ngram", "drafts over three groups", HybridNgram},
    {"hybrid-ngram-async", "drafts over three groups, scheduled ahead", HybridNgramAsync},
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
