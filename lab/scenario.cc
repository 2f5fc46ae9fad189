// SPDX-License-Identifier: Apache-2.0
#include "lab/scenario.h"

#include <algorithm>
#include <array>

#include "lab/random.h"

namespace kvguard::lab {
namespace {

// A pool that is too small for all, so that blocks are evicted and requests preempted.
Setup Dense(uint64_t) {
  Setup setup;
  setup.engine.num_blocks = 64;
  setup.engine.max_model_len = 320;
  setup.engine.max_batched_tokens = 128;
  setup.engine.max_chunk = 48;
  setup.engine.zeroing = true;
  setup.engine.dummy_every = 50;
  return setup;
}

Setup DenseAsync(uint64_t) {
  Setup setup = Dense(0);
  setup.engine.async = true;
  setup.engine.int32_slots = true;
  return setup;
}

// Blocks of two kernel blocks each.
Setup KernelBlocks(uint64_t) {
  Setup setup = Dense(0);
  setup.engine.groups = {{GroupKind::kFull, 32, 16, 0}};
  setup.engine.num_blocks = 36;
  return setup;
}

Setup Mla(uint64_t) {
  Setup setup = Dense(0);
  setup.engine.groups = {{GroupKind::kMla, 64, 64, 0}};
  setup.engine.num_blocks = 24;
  return setup;
}

Setup Window(uint64_t) {
  Setup setup = Dense(0);
  setup.engine.groups = {{GroupKind::kWindow, 16, 16, 40}};
  setup.engine.num_blocks = 40;
  return setup;
}

Setup Chunked(uint64_t) {
  Setup setup = Dense(0);
  setup.engine.groups = {{GroupKind::kChunked, 16, 8, 64}};
  setup.engine.num_blocks = 44;
  return setup;
}

// Three groups that take from one pool.
Setup Hybrid(uint64_t) {
  Setup setup = Dense(0);
  setup.engine.groups = {{GroupKind::kFull, 16, 16, 0},
                         {GroupKind::kWindow, 16, 16, 48},
                         {GroupKind::kChunked, 32, 16, 64}};
  setup.engine.num_blocks = 150;
  return setup;
}

Setup HybridAsync(uint64_t) {
  Setup setup = Hybrid(0);
  setup.engine.async = true;
  return setup;
}

Setup Ngram(uint64_t) {
  Setup setup = Dense(0);
  setup.engine.num_drafts = 3;
  setup.engine.repetitive = true;
  setup.engine.vocabulary = 12;
  setup.workload.min_output = 10;
  return setup;
}

// Drafts come from the device, counts are optimistic.
Setup NgramAsync(uint64_t) {
  Setup setup = Ngram(0);
  setup.engine.async = true;
  setup.engine.int32_slots = true;
  return setup;
}

Setup HybridNgram(uint64_t) {
  Setup setup = Ngram(0);
  setup.engine.groups = Hybrid(0).engine.groups;
  setup.engine.num_blocks = 150;
  return setup;
}

Setup HybridNgramAsync(uint64_t) {
  Setup setup = HybridNgram(0);
  setup.engine.async = true;
  return setup;
}

Setup StateNone(uint64_t) {
  Setup setup = Dense(0);
  setup.engine.groups = {{GroupKind::kState, 16, 16, 0, StateMode::kNone}};
  setup.engine.num_blocks = 7;
  return setup;
}

Setup StateAll(uint64_t) {
  Setup setup = Dense(0);
  setup.engine.groups = {{GroupKind::kState, 16, 16, 0, StateMode::kAll}};
  setup.engine.num_blocks = 40;
  return setup;
}

Setup StateAlign(uint64_t) {
  Setup setup = Dense(0);
  setup.engine.groups = {{GroupKind::kState, 16, 16, 0, StateMode::kAlign}};
  setup.engine.num_blocks = 20;
  return setup;
}

// Recurrent layers beside attention, over one pool, with drafts.
Setup StateHybrid(uint64_t) {
  Setup setup = Ngram(0);
  setup.engine.groups = {{GroupKind::kFull, 16, 16, 0},
                         {GroupKind::kState, 32, 32, 0, StateMode::kAlign}};
  setup.engine.num_blocks = 90;
  setup.engine.state_copies = true;
  return setup;
}

Setup StateHybridAsync(uint64_t) {
  Setup setup = StateHybrid(0);
  setup.engine.groups.push_back({GroupKind::kState, 16, 16, 0, StateMode::kNone});
  setup.engine.num_blocks = 130;
  setup.engine.async = true;
  setup.engine.state_copies = false;
  return setup;
}

// A draft model with a cache of its own.
Setup DraftModel(uint64_t) {
  Setup setup = Ngram(0);
  setup.engine.groups = {{GroupKind::kFull, 16, 16, 0},
                         {GroupKind::kFull, 16, 8, 0, StateMode::kNone, true}};
  setup.engine.num_blocks = 120;
  return setup;
}

// Requests that go on from others', in the middle of a block.
Setup Forks(uint64_t) {
  Setup setup = Dense(0);
  setup.engine.forks = true;
  setup.engine.num_blocks = 100;
  setup.engine.groups = {{GroupKind::kFull, 16, 16, 0}, {GroupKind::kMla, 32, 16, 0}};
  setup.workload.fork_one_in = 4;
  setup.workload.live = 6;
  return setup;
}

// An encoder's output that every token reads, written once.
Setup EncoderDecoder(uint64_t) {
  Setup setup = Dense(0);
  setup.engine.groups = {{GroupKind::kFull, 16, 16, 0}, {GroupKind::kCross, 8, 8, 0}};
  setup.engine.max_encoder = 50;
  setup.engine.num_blocks = 110;
  return setup;
}

Setup EncoderDecoderAsync(uint64_t) {
  Setup setup = EncoderDecoder(0);
  setup.engine.async = true;
  setup.engine.int32_slots = true;
  setup.engine.groups[1].kernel_block_size = 4;
  return setup;
}

// The public conversations at a thirty-second of their length.
Setup Mooncake(uint64_t) {
  Setup setup;
  setup.engine.num_blocks = 1400;
  setup.engine.max_model_len = 4096;
  setup.engine.max_requests = 16;
  setup.engine.max_batched_tokens = 256;
  setup.workload.trace = TraceKind::kMooncake;
  setup.workload.milliseconds_a_step = 100;
  return setup;
}

Setup Azure(uint64_t) {
  Setup setup;
  setup.engine.num_blocks = 160;
  setup.engine.max_model_len = 512;
  setup.engine.max_requests = 16;
  setup.engine.max_batched_tokens = 128;
  setup.engine.async = true;
  setup.workload.trace = TraceKind::kAzure;
  setup.workload.milliseconds_a_step = 80;
  return setup;
}

Setup Decode(uint64_t) {
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

// Any engine, as the seed wants it.
Setup Drawn(uint64_t seed) {
  Random random(Mix(seed, 0x647261));
  Setup setup;
  EngineConfig& engine = setup.engine;
  engine.groups.clear();
  int32_t blocks_of_one = 0;
  engine.max_model_len = random.Between(96, 320);
  engine.num_drafts = random.OneIn(2) ? random.Between(1, 4) : 0;
  const int32_t num_groups = random.OneIn(2) ? 1 : random.Between(2, 4);
  for (int32_t g = 0; g < num_groups; ++g) {
    GroupConfig group;
    group.kind = static_cast<GroupKind>(random.Below(g > 0 ? 6 : 5));
    group.block_size = 4 << random.Below(4);
    group.kernel_block_size = group.block_size >> (random.OneIn(3) ? random.Below(3) : 0);
    group.window = random.Between(5, 90);
    if (group.kind == GroupKind::kChunked && random.OneIn(2)) {
      group.window = group.block_size * random.Between(1, 4);
    }
    if (group.kind == GroupKind::kState) {
      group.state_mode = static_cast<StateMode>(random.Below(3));
      group.kernel_block_size = group.block_size;
      if (group.state_mode == StateMode::kAll && engine.num_drafts > 0) {
        group.state_mode = StateMode::kAlign;  // states of drafts have no columns there
      }
    }
    blocks_of_one += CeilDiv(engine.max_model_len + kMaxDrafts, group.block_size) + kMaxDrafts;
    engine.groups.push_back(group);
  }
  engine.max_encoder = random.Between(1, 60);
  engine.max_requests = random.Between(1, 12);
  engine.max_batched_tokens = std::max(engine.max_requests * 5, random.Between(24, 160));
  engine.max_chunk = random.OneIn(2) ? random.Between(5, 64) : 0;
  engine.repetitive = engine.num_drafts > 0 || random.OneIn(4);
  engine.vocabulary = engine.repetitive ? 12 : random.Between(20, 60000);
  engine.prefix_caching = !random.OneIn(5);
  engine.async = random.OneIn(2);
  engine.forks = std::all_of(engine.groups.begin(), engine.groups.end(), [](const auto& group) {
    return group.kind == GroupKind::kFull || group.kind == GroupKind::kMla;
  });
  setup.workload.fork_one_in = engine.forks ? 6 : 0;
  engine.state_copies = random.OneIn(2);
  engine.int32_slots = random.OneIn(2);
  engine.padding = !random.OneIn(3);
  engine.zeroing = random.OneIn(2);
  engine.dummy_every = random.OneIn(2) ? random.Between(5, 60) : 0;
  // At least one request fits, at most all do.
  engine.num_blocks = 1 + blocks_of_one * random.Between(10, 10 + 6 * engine.max_requests) / 10;
  WorkloadConfig& work = setup.workload;
  work.live = random.Between(1, engine.max_requests * 2);
  work.max_prompt = random.Between(10, engine.max_model_len - 10);
  work.min_prompt = random.Between(1, std::min(20, work.max_prompt));
  work.max_output = random.Between(2, 80);
  work.num_prefixes = random.Between(0, 8);
  work.max_prefix = random.Between(1, 160);
  work.repeat_one_in = random.Below(6);
  work.domain_one_in = random.Below(8);
  work.abort_one_in = random.OneIn(4) ? 0 : static_cast<uint32_t>(random.Between(5, 100));
  work.idle_one_in = random.OneIn(3) ? 0 : static_cast<uint32_t>(random.Between(20, 300));
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
    {"state-none", "recurrent states, one block a request", StateNone},
    {"state-all", "recurrent states, one a block of tokens", StateAll},
    {"state-align", "recurrent states, the running one, found again at the ends of blocks",
     StateAlign},
    {"state-hybrid", "full attention and recurrent states that are copied, with drafts",
     StateHybrid},
    {"state-hybrid-async", "full attention and two kinds of states, drafts, scheduled ahead",
     StateHybridAsync},
    {"draft-model", "drafts of a second model, with passes and a cache of its own", DraftModel},
    {"forks", "requests that go on from others', inside a block: copy-on-write", Forks},
    {"encoder-decoder", "self and cross groups over one pool", EncoderDecoder},
    {"encoder-decoder-async", "the same, scheduled ahead; cross blocks of two kernel blocks",
     EncoderDecoderAsync},
    {"mooncake", "the Mooncake conversation trace, lengths divided by 32", Mooncake},
    {"azure", "the Azure conversation trace, lengths divided by 32, scheduled ahead", Azure},
    {"decode", "eight requests that decode, contexts up to 512: what the engine's speed is told of",
     Decode},
    {"random", "any of these and in between, as the seed wants it", Drawn},
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
