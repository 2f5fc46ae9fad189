// SPDX-License-Identifier: Apache-2.0
// The faults of the self-test: one table, at least one entry for every family of the catalog. The
// scenarios are in blocks of 4 tokens unless their options say otherwise; every fault gives exactly
// one finding, so that a second one is a failure too.
#include <functional>
#include <vector>

#include "audit/selftest.h"
#include "rules/catalog.h"

namespace kvguard::audit {
namespace {

using Edit = std::function<void(ScenarioPlan&)>;

constexpr uint32_t kNoGroup = KVGUARD_ALL_GROUPS;
constexpr int64_t kNoPos = KVGUARD_NONE;

// Request a with 6 tokens in blocks 1, 2 and b with 5 in blocks 3, 4, in one step.
void Two(Scenario& s, const Edit& edit = nullptr) {
  s.Admit("a", {{1, 2}}).Schedule("a", 6).Admit("b", {{3, 4}}).Schedule("b", 5).Step(edit);
}

void One(Scenario& s, std::vector<int64_t> blocks, int64_t tokens, const Edit& edit = nullptr) {
  s.Admit("a", {std::move(blocks)}).Schedule("a", tokens).Step(edit);
}

// Four tokens of a are computed, in blocks 1, 2.
Scenario& Four(Scenario& s) {
  s.Admit("a", {{1, 2}}).Schedule("a", 4).Step();
  return s;
}

// More than one register of every comparison: 192 tokens in 12 blocks of 16.
void Long(ScenarioOptions& options) {
  options.groups[0].block_size = options.groups[0].kernel_block_size = 16;
}
void LongAndWideTables(ScenarioOptions& options) {
  Long(options);
  options.wide_tables = true;
}
void LongAndNarrowSlots(ScenarioOptions& options) {
  Long(options);
  options.narrow_slots = true;
}
void OneLongRow(Scenario& s, const Edit& edit = nullptr) {
  One(s, {20, 21, 9, 33, 34, 35, 36, 2, 50, 40, 41, 42}, 192, edit);
}

// One running state for each request, in a pool of its own.
void States(ScenarioOptions& options) {
  ScenarioGroup states;
  states.kind = KVGUARD_GROUP_STATE;
  states.pool = 1;
  options.groups.push_back(states);
}
// a has its state in block 7, b in block 8; both have computed 3 tokens.
void TwoStates(Scenario& s, const Edit& edit = nullptr) {
  s.Admit("a", {{1}, {7}}).Schedule("a", 3).Admit("b", {{2}, {8}}).Schedule("b", 3).Step();
  s.Schedule("a", 1).Schedule("b", 1).Step(edit);
}

// Rank 0 of two; of positions 0..7 it holds 0, 1, 4 and 5.
void Sharded(ScenarioOptions& options) {
  options.dcp_size = 2;
  options.interleave = 2;
}

void Window8(ScenarioOptions& options) {
  options.engine_flags |= KVGUARD_ENGINE_CONNECTOR;
  options.groups[0].kind = KVGUARD_GROUP_WINDOW;
  options.groups[0].window = 8;
}
// 17 tokens of a are computed, b gets `block`, and a's count goes back to 8.
void GoBack(Scenario& s, int64_t block) {
  s.Admit("a", {{1, 2, 3, 4, 5}}).Schedule("a", 16).Step();
  s.Schedule("a", 1).Admit("b", {{block}}).Schedule("b", 1).Step();
  s.Computed("a") = 8;
  s.Schedule("a", 1, 0, 8).Step();
}

void Connector(ScenarioOptions& options) { options.engine_flags |= KVGUARD_ENGINE_CONNECTOR; }

// a's first four of five tokens are loaded into block 1.
Scenario& Load(Scenario& s) { return s.Expect("a").Blocks(KVGUARD_EVENT_LOAD, "a", {1}, 7); }

// a is sent from block 1 and ends.
Scenario& Send(Scenario& s) {
  s.Admit("a", {{1}}).Schedule("a", 4).Step();
  s.Blocks(KVGUARD_EVENT_SEND_PENDING, "a", {1}, 7).Finish("a").Step();
  return s;
}

// a writes tokens 11..14 to block 1, b hits it with `last` as the fourth.
void Hit(Scenario& s, int64_t last) {
  s.Admit("a", {{1, 2}}).Tokens({11, 12, 13, 14}).Schedule("a", 4).Step();
  s.Admit("b", {{1, 3}}, 4).Tokens({11, 12, 13, last, 15}).Schedule("b", 1).Step();
}

// a writes 8 tokens to blocks 1 and 2, b hits `block` as its first.
void HitAs(Scenario& s, int64_t block) {
  s.Admit("a", {{1, 2}}).Schedule("a", 8).Step();
  s.Admit("b", {{block, 3}}, 4).Schedule("b", 1).Step();
}

// Blocks 1 and 2 of a are zeroed before its first step; the engine says so of block 1 alone, or of
// both, before it plans.
void Zero(Scenario& s, std::vector<int64_t> done) {
  s.Admit("a", {{1, 2}}).Schedule("a", 5);
  s.Blocks(KVGUARD_EVENT_ZERO, "", {1, 2}).Blocks(KVGUARD_EVENT_ZERO_DONE, "", std::move(done));
  s.Begin();
  s.Plan(s.RightPlan());
}

constexpr Planted kPlanted[] = {
    // --- step ---
    {rules::kRowMissing, "the row of a scheduled request is left out", "b", kNoGroup, kNoPos,
     [](Scenario& s) {
       Two(s, [](ScenarioPlan& p) {
         p.requests.pop_back();
         p.query_start.pop_back();
         p.seq_lens.pop_back();
         p.positions.resize(6);
         p.groups[0].slots.resize(6);
         p.groups[0].table.resize(p.groups[0].columns);
         p.padded_rows = 1;
         p.padded_tokens = 6;
       });
     },
     "a request that waits has no row", 1,
     [](Scenario& s) { s.Admit("b", {{3, 4}}).Admit("a", {{1, 2}}).Schedule("a", 6).Step(); }},
    {rules::kRowUnknown, "a row belongs to a request that waits", "w", kNoGroup, kNoPos,
     [](Scenario& s) {
       s.Admit("w", {{9}});
       Two(s, [&](ScenarioPlan& p) {
         p.Pad(1, 0);
         p.requests.push_back(s.Key("w"));
       });
     },
     "the same row as padding", 2,
     [](Scenario& s) {
       s.Admit("w", {{9}});
       Two(s, [](ScenarioPlan& p) { p.Pad(1, 0); });
     }},
    // --- binding ---
    {rules::kBlockOutOfRange, "the block behind the pool is bound", "a", 0, 1,
     [](Scenario& s) { s.Admit("a", {{1, 64}}).Schedule("a", 6).Begin(); },
     "the last block of the pool is bound", 3, [](Scenario& s) { One(s, {1, 63}, 6); }},
    {rules::kCapacityShort, "five tokens for one block of four", "a", 0, 4,
     [](Scenario& s) { s.Admit("a", {{1}}).Schedule("a", 5).Begin(); },
     "four tokens for one block of four", 2, [](Scenario& s) { One(s, {1}, 4); }},
    // --- table ---
    {rules::kTableMismatch, "a column shows the neighbour's block", "b", 0, 0,
     [](Scenario& s) { Two(s, [](ScenarioPlan& p) { p.Table(0, 1, 0) = 2; }); },
     "a column behind the row shows it", 4,
     [](Scenario& s) { Two(s, [](ScenarioPlan& p) { p.Table(0, 1, 2) = 2; }); }},
    {rules::kTableNull, "a live column of a long row is zero, in 64-bit ids", "a", 0, 10,
     [](Scenario& s) { OneLongRow(s, [](ScenarioPlan& p) { p.Table(0, 0, 10) = 0; }); },
     "the column behind it is zero", 12,
     [](Scenario& s) { OneLongRow(s, [](ScenarioPlan& p) { p.Table(0, 0, 12) = 0; }); },
     LongAndWideTables},
    // --- slot ---
    {rules::kSlotMismatch, "a token is written to a free block", "a", 0, 2,
     [](Scenario& s) { Two(s, [](ScenarioPlan& p) { p.groups[0].slots[2] += 40; }); },
     "a right plan", 11, [](Scenario& s) { Two(s); }},
    {rules::kSlotPad, "the only token of a row has the pad slot", "a", 0, 4,
     [](Scenario& s) {
       Four(s).Schedule("a", 1).Step([](ScenarioPlan& p) { p.groups[0].slots[0] = -1; });
     },
     "it has its own", 5, [](Scenario& s) { Four(s).Schedule("a", 1).Step(); }},
    {rules::kSlotMismatch, "one token of a long row is written a block further", "a", 0, 100,
     [](Scenario& s) { OneLongRow(s, [](ScenarioPlan& p) { p.groups[0].slots[100] += 16; }); },
     "a right long row", 192, [](Scenario& s) { OneLongRow(s); }, Long},
    {rules::kSlotOutOfRange, "one token of a long row is written behind the pool, in 32 bits", "a",
     0, 191,
     [](Scenario& s) { OneLongRow(s, [](ScenarioPlan& p) { p.groups[0].slots[191] = 1024; }); },
     "a right long row, in 32 bits", 192, [](Scenario& s) { OneLongRow(s); }, LongAndNarrowSlots},
    {rules::kSlotNotLocal, "a token of the other rank is written", "a", 0, 2,
     [](Scenario& s) { One(s, {1, 2}, 13, [](ScenarioPlan& p) { p.groups[0].slots[2] = 40; }); },
     "it has the pad slot", 13, [](Scenario& s) { One(s, {1, 2}, 13); }, Sharded},
    {rules::kPadSlotReal, "a padding token has a slot of the pool", "", 0, 12,
     [](Scenario& s) {
       Two(s, [](ScenarioPlan& p) {
         p.Pad(0, 3);
         p.groups[0].slots[12] = 40;
       });
     },
     "padding tokens have the pad slot", 14,
     [](Scenario& s) { Two(s, [](ScenarioPlan& p) { p.Pad(0, 3); }); }},
    // --- length ---
    {rules::kSeqLenMismatch, "a row reads a token that nobody wrote", "a", kNoGroup, 6,
     [](Scenario& s) { Two(s, [](ScenarioPlan& p) { ++p.seq_lens[0]; }); },
     "rows read what they wrote", 2, [](Scenario& s) { Two(s); }},
    {rules::kPaddedSeqLen, "a padding row reads a token", "", kNoGroup, kNoPos,
     [](Scenario& s) {
       Two(s, [](ScenarioPlan& p) {
         p.Pad(2, 0);
         p.seq_lens[3] = 1;
       });
     },
     "padding rows read nothing", 2,
     [](Scenario& s) { Two(s, [](ScenarioPlan& p) { p.Pad(2, 0); }); }},
    // --- ownership ---
    {rules::kBlockOwned, "a live request's block is handed out as new", "b", 0, 0,
     [](Scenario& s) { Four(s).Admit("b", {{2}}).Schedule("b", 1).Begin(); },
     "a finished request's block is handed out", 5,
     [](Scenario& s) { Four(s).Finish("a").Admit("b", {{2}}).Schedule("b", 1).Step(); }},
    {rules::kTwoWriters, "a hit is taken back, and both requests write the block", "b", 0, 0,
     [](Scenario& s) {
       s.Admit("a", {{1, 2}}).Schedule("a", 6);
       s.Admit("b", {{1, 3}}, 4).Rollback("b", 4).Schedule("b", 6).Begin();
     },
     "the hit is kept", 6,
     [](Scenario& s) {
       s.Admit("a", {{1, 2}}).Schedule("a", 6);
       s.Admit("b", {{1, 3}}, 4).Schedule("b", 2).Step();
     }},
    // --- lifetime ---
    {rules::kReadStale, "a window goes back to a block that was given away", "a", 0, 4,
     [](Scenario& s) { GoBack(s, 2); }, "it goes back, and nobody has got the block", 4,
     [](Scenario& s) { GoBack(s, 9); }, Window8},
    {rules::kFreedWhileHeld, "a block of a live request is freed", "a", 0, 1,
     [](Scenario& s) { Four(s).Blocks(KVGUARD_EVENT_FREE, "", {2}).Schedule("a", 1).Begin(); },
     "a block of a finished request is freed", 1,
     [](Scenario& s) {
       Four(s).Finish("a").Blocks(KVGUARD_EVENT_FREE, "", {2}).Admit("b", {{3}});
       s.Schedule("b", 1).Step();
     }},
    // --- content ---
    {rules::kContentMismatch, "a prefix hit has another token than its block", "b", 0, 0,
     [](Scenario& s) { Hit(s, 77); }, "it has the same tokens", 1, [](Scenario& s) { Hit(s, 14); }},
    {rules::kContentMisplaced, "a prefix hit names the second block as its first", "b", 0, 0,
     [](Scenario& s) { HitAs(s, 2); }, "it names the first", 1, [](Scenario& s) { HitAs(s, 1); }},
    // --- frontier ---
    {rules::kFrontierMismatch, "a row starts one token early", "a", kNoGroup, 4,
     [](Scenario& s) {
       Four(s).Schedule("a", 1).Step([](ScenarioPlan& p) { p.positions[0] = 3; });
     },
     "it starts behind what was computed", 4, [](Scenario& s) { Four(s).Schedule("a", 1).Step(); }},
    {rules::kCountAhead, "the scheduler counts a token that no step computed", "a", kNoGroup, 5,
     [](Scenario& s) { Four(s).Schedule("a", 1, 0, 5).Begin(); }, "it counts those computed", 4,
     [](Scenario& s) { Four(s).Schedule("a", 1, 0, 4).Step(); }},
    // --- state ---
    {rules::kStateMismatch, "a row goes on from the state of the other", "a", 1, 3,
     [](Scenario& s) { TwoStates(s, [](ScenarioPlan& p) { p.groups[1].in[0] = 8; }); },
     "each goes on from its own", 4, [](Scenario& s) { TwoStates(s); }, States},
    {rules::kPadStateReal, "a padding row names the state of a request", "", 1, kNoPos,
     [](Scenario& s) {
       TwoStates(s, [](ScenarioPlan& p) {
         p.Pad(1, 1);
         p.groups[1].out[2] = 8;
       });
     },
     "it names none", 4, [](Scenario& s) { TwoStates(s, [](ScenarioPlan& p) { p.Pad(1, 1); }); },
     States},
    // --- transfer ---
    {rules::kReadWhileLoading, "a block is read while a transfer fills it", "a", 0, 0,
     [](Scenario& s) {
       Load(s).Step();
       s.Admit("a", {{1, 2}}, 4).Schedule("a", 1).Step();
     },
     "it is read when the transfer is done", 2,
     [](Scenario& s) {
       Load(s).Step();
       s.Blocks(KVGUARD_EVENT_LOAD_DONE, "a", {}, 7);
       s.Admit("a", {{1, 2}}, 4).Schedule("a", 1).Step();
     },
     Connector},
    {rules::kPinnedRebound, "a block is handed out while it is sent", "b", 0, 0,
     [](Scenario& s) { Send(s).Admit("b", {{1}}).Begin(); }, "it is handed out when it was sent", 2,
     [](Scenario& s) {
       Send(s).Blocks(KVGUARD_EVENT_SEND_DONE, "", {}, 7).Admit("b", {{1}}).Schedule("b", 1).Step();
     },
     Connector},
    // --- copy ---
    {rules::kUsedBeforeZeroed, "a block is written before it was zeroed as announced", "a", 0, 4,
     [](Scenario& s) { Zero(s, {1}); }, "it was zeroed", 4,
     [](Scenario& s) {
       Zero(s, {1, 2});
       s.End();
     }},
    {rules::kZeroLive, "a block with valid tokens is zeroed", "a", 0, 0,
     [](Scenario& s) { Four(s).Blocks(KVGUARD_EVENT_ZERO, "", {1}).Schedule("a", 1).Begin(); },
     "the block behind them is zeroed", 1,
     [](Scenario& s) { Four(s).Blocks(KVGUARD_EVENT_ZERO, "", {2}).Schedule("a", 1).Step(); }},
};

}  // namespace

std::span<const Planted> PlantedFaults() { return kPlanted; }

}  // namespace kvguard::audit
