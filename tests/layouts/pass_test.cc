// SPDX-License-Identifier: Apache-2.0
// Micro-batches, draft passes, cross-attention; groups on host pools; who has filled a block.
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "rules/catalog.h"
#include "tests/layouts/planted.h"
#include "tests/support/passes.h"

namespace kvguard::tests {
namespace {

using audit::Scenario;
using audit::ScenarioGroup;
using audit::ScenarioOptions;
using audit::ScenarioPlan;
using Edit = std::function<void(ScenarioPlan&)>;
using Run = std::function<void(Scenario&)>;

constexpr int64_t kBlock = 4;

// a has 6 tokens, b has 3.
Run MicroBatches(const std::vector<std::vector<Cut>>& batches, const Edit& last = nullptr) {
  return [=](Scenario& s) {
    s.Admit("a", {{1, 2}}).Schedule("a", 6).Admit("b", {{3}}).Schedule("b", 3).Begin();
    const ScenarioPlan whole = s.RightPlan();
    for (size_t i = 0; i < batches.size(); ++i) {
      ScenarioPlan plan = MicroBatch(whole, static_cast<uint32_t>(i), batches[i]);
      if (last && i + 1 == batches.size()) last(plan);
      s.Plan(plan);
    }
    s.End();
  };
}

// An attention group and states (mode none) beside it. a goes on from 4 tokens with 6 more, in two
// parts; b is new. `shown`: states, or their table.
Run SplitStates(bool fresh, bool table, const std::function<void(ScenarioPlan&, int)>& edit) {
  return [=](Scenario& s) {
    s.Admit("a", {{1, 2, 3}, {11}}).Admit("b", {{4, 5}, {12}});
    if (!fresh) s.Schedule("a", 4).Schedule("b", 1).Step();
    s.Schedule("a", 6).Schedule("b", 1).Begin();
    const ScenarioPlan whole = s.RightPlan();
    const std::vector<std::vector<Cut>> parts = {{{0, 0, 4}}, {{0, 4, 2}, {1, 0, 1}}};
    for (int i = 0; i < 2; ++i) {
      ScenarioPlan plan =
          MicroBatch(whole, static_cast<uint32_t>(i), parts[static_cast<size_t>(i)]);
      if (!table) {
        // Between two parts the state stands wherever the engine keeps it.
        plan.groups[1].in = i == 0 ? std::vector<int64_t>{11} : std::vector<int64_t>{40, 12};
        plan.groups[1].out = i == 0 ? std::vector<int64_t>{40} : std::vector<int64_t>{11, 12};
        plan.groups[1].init = {static_cast<uint8_t>(fresh && i == 0), fresh};
        plan.groups[1].init.resize(plan.requests.size());
      }
      if (edit) edit(plan, i);
      s.Plan(plan);
    }
    s.End();
  };
}

const std::vector<std::vector<Cut>> kByRequest = {{{0, 0, 6}}, {{1, 0, 3}}};
const std::vector<std::vector<Cut>> kInside = {{{0, 0, 4}}, {{0, 4, 2}, {1, 0, 3}}};

// a has 7 tokens and 2 drafts behind them, of which one is rejected: 9 are valid. b has 3.
Run Drafts(const std::vector<std::vector<int64_t>>& steps, bool told, const Edit& last = nullptr) {
  return [=](Scenario& s) {
    s.Admit("a", {{1, 2, 3, 4}}).Schedule("a", 7).Admit("b", {{5, 6}}).Schedule("b", 2).Step();
    s.Schedule("a", 3, 2).Schedule("b", 1).Begin();
    const ScenarioPlan whole = s.RightPlan();
    s.Plan(whole);
    ScenarioPlan zero = whole;
    zero.pass = KVGUARD_PASS_DRAFT;
    s.Plan(zero);
    if (told) s.Outcome(s.step(), "a", 2, 1);
    for (size_t k = 0; k < steps.size(); ++k) {
      ScenarioPlan plan = Draft(whole, static_cast<uint32_t>(k) + 1, steps[k]);
      if (last && k + 1 == steps.size()) last(plan);
      s.Plan(plan);
    }
    s.End();
  };
}

ScenarioOptions DraftOptions(int64_t max_model_len = 64) {
  ScenarioOptions options;
  options.max_drafts = 2;
  options.max_model_len = static_cast<uint64_t>(max_model_len);
  return options;
}

// The model ends with position 11: a is valid up to 11, and its draft stays on its last position.
Run AtTheLimit(const Edit& edit) {
  return [=](Scenario& s) {
    s.Admit("a", {{1, 2, 3}}).Schedule("a", 11).Step();
    s.Schedule("a", 1).Begin();
    const ScenarioPlan whole = s.RightPlan();
    s.Plan(whole);
    ScenarioPlan plan = Draft(whole, 2, {11});
    if (edit) edit(plan);
    s.Plan(plan);
    s.End();
  };
}

ScenarioOptions CrossOptions() {
  ScenarioGroup cross;
  cross.kind = KVGUARD_GROUP_CROSS;
  ScenarioOptions options;
  options.groups = {ScenarioGroup{}, cross};
  options.engine_flags |= KVGUARD_ENGINE_ENCODER;
  return options;
}

// a has an encoder of `tokens`, other one of 5 or none.
Run Encoded(int64_t tokens, std::vector<int64_t> blocks, bool again, const Edit& first = nullptr,
            int64_t others = 5) {
  return [=](Scenario& s) {
    s.Admit("other", {{10}, {20, 21}});
    if (others > 0) s.Domain(KVGUARD_DOMAIN_ENCODER, 7, 0, others);
    s.Schedule("other", 2).Begin();
    s.Plan(s.RightPlan());
    s.Plan(Cross(s.RightPlan(), {others}, {true}));
    s.End();
    s.Admit("a", {{1, 2}, blocks}).Domain(KVGUARD_DOMAIN_ENCODER, 8, 0, tokens);
    s.Schedule("a", 5).Schedule("other", 1).Begin();
    s.Plan(s.RightPlan());
    ScenarioPlan plan = Cross(s.RightPlan(), {tokens, others}, {true, again});
    if (first) first(plan);
    s.Plan(plan);
    s.End();
    if (first || blocks.size() != 2) return;
    s.Schedule("a", 1).Begin();
    s.Plan(s.RightPlan());
    s.Plan(Cross(s.RightPlan(), {tokens}, {again}));
    s.End();
  };
}

Run EncodedEdit(const Edit& edit) { return Encoded(6, {8, 9}, false, edit); }

ScenarioOptions HostOptions() {
  ScenarioGroup host;
  host.pool = 1;
  host.host = true;
  ScenarioOptions options;
  options.groups = {ScenarioGroup{}, host};
  options.engine_flags |= KVGUARD_ENGINE_CONNECTOR;
  return options;
}

// The host group has no blocks; 5 is read for a load into the device, then `blocks` are reserved.
Run Host(std::vector<int64_t> blocks) {
  return [=](Scenario& s) {
    s.Admit("a", {{1, 2}, {}}).Schedule("a", 6).Step([](ScenarioPlan& p) {
      p.groups[1].present = false;
    });
    s.Blocks(KVGUARD_EVENT_SEND_PENDING, "", {5}, 1, 0, 1);
    s.Schedule("a", 1).Step([](ScenarioPlan& p) { p.groups[1].present = false; });
    if (blocks.empty()) return;
    s.Blocks(KVGUARD_EVENT_RESERVE, "", blocks, 2, 0, 1);
    s.Schedule("a", 1).Step([](ScenarioPlan& p) { p.groups[1].present = false; });
  };
}

ScenarioOptions FillsTold(uint32_t flags = 0) {
  ScenarioOptions options;
  options.engine_flags |= KVGUARD_ENGINE_FILLS_TOLD | flags;
  return options;
}

// Claims `computed` tokens in blocks 5, 6, ...; loads fill the first so many of them.
Run Claims(int64_t computed, std::vector<int64_t> loaded) {
  return [=](Scenario& s) {
    s.Expect("r");
    if (!loaded.empty()) {
      s.Blocks(KVGUARD_EVENT_LOAD, "r", loaded, 1, 0, 0);
      s.Blocks(KVGUARD_EVENT_LOAD_DONE, "", {}, 1);
    }
    s.Admit("q", {{30}}).Schedule("q", 1).Step();
    std::vector<int64_t> blocks;
    for (int64_t c = 0; c <= computed / kBlock; ++c) blocks.push_back(5 + c);
    s.Admit("r", {blocks}, computed).Schedule("r", 1).Step();
  };
}

// v has 8 tokens in 1, 2; r shares them, and what follows is loaded from position `first` on.
Run LoadsFrom(int64_t first, std::vector<int64_t> blocks) {
  return [=](Scenario& s) {
    s.Admit("v", {{1, 2, 8}}).Schedule("v", 8).Step();
    s.Admit("r", {{1, 2, 3, 4}}, 12).Schedule("r", 1).Schedule("v", 1);
    s.Blocks(KVGUARD_EVENT_LOAD, "r", blocks, 1, first, 0);
    s.Blocks(KVGUARD_EVENT_LOAD_DONE, "", {}, 1);
    s.Step();
  };
}

const std::map<std::string, PlantedScenario>& All() {
  const ScenarioOptions plain;
  const ScenarioOptions draft = DraftOptions();
  const ScenarioOptions limit = DraftOptions(12);
  const ScenarioOptions cross = CrossOptions();
  const ScenarioOptions connector = FillsTold(KVGUARD_ENGINE_CONNECTOR);
  ScenarioOptions states;
  states.groups.push_back({});
  states.groups[1].kind = KVGUARD_GROUP_STATE;
  states.groups[1].pool = 1;
  ScenarioOptions tables = states;
  tables.groups[1].shows_states = false;
  ScenarioOptions loads;
  loads.engine_flags |= KVGUARD_ENGINE_CONNECTOR;
  const std::vector<std::vector<int64_t>> steps = {{9, 3}, {10, 4}};
  static const std::map<std::string, PlantedScenario> all = {
      {"micro-batches-by-request", {plain, MicroBatches(kByRequest)}},
      {"micro-batches-inside-a-request", {plain, MicroBatches(kInside)}},
      {"micro-batch-without-tokens", {plain, MicroBatches({{{0, 0, 6}, {1, 0, 3}}, {{1, 3, 0}}})}},
      {"micro-batch-left-out", {plain, MicroBatches({{{0, 0, 6}}})}},
      {"micro-batch-drops-tokens", {plain, MicroBatches({{{0, 0, 4}}, {{0, 4, 1}, {1, 0, 3}}})}},
      {"micro-batch-twice", {plain, MicroBatches({{{0, 0, 4}}, {{0, 0, 4}, {1, 0, 3}}})}},
      {"micro-batch-starts-over",
       {plain, MicroBatches(kInside,
                            [](ScenarioPlan& p) {
                              p.groups[0].slots[0] = 4;
                              p.groups[0].slots[1] = 5;
                            })}},
      {"B141-lengths-of-the-other-micro-batch",
       {plain, MicroBatches(kByRequest, [](ScenarioPlan& p) { p.seq_lens = {6}; })}},
      {"micro-batch-length-of-the-whole-request",
       {plain,
        [](Scenario& s) {
          s.Admit("a", {{1, 2}}).Schedule("a", 6).Begin();
          ScenarioPlan first = MicroBatch(s.RightPlan(), 0, {{0, 0, 4}});
          first.seq_lens = {6};
          s.Plan(first);
          s.Plan(MicroBatch(s.RightPlan(), 1, {{0, 4, 2}}));
          s.End();
        }}},
      {"states-inside-a-request", {states, SplitStates(false, false, nullptr)}},
      {"first-part-from-another-state",
       {states, SplitStates(false, false,
                            [](ScenarioPlan& p, int part) {
                              if (part == 0) p.groups[1].in[0] = 12;
                            })}},
      {"first-part-not-initialised",
       {states, SplitStates(true, false,
                            [](ScenarioPlan& p, int part) {
                              if (part == 0) p.groups[1].init[0] = 0;
                            })}},
      {"last-part-leaves-its-state-elsewhere",
       {states, SplitStates(false, false,
                            [](ScenarioPlan& p, int part) {
                              if (part == 1) p.groups[1].out[0] = 12;
                            })}},
      {"last-part-table-of-another",
       {tables, SplitStates(false, true,
                            [](ScenarioPlan& p, int part) {
                              if (part == 1) p.Table(1, 0, 0) = 12;
                            })}},
      {"draft-reuses-the-target", {draft, Drafts({}, false)}},
      {"draft-steps", {draft, Drafts(steps, true)}},
      {"draft-steps-before-the-outcome", {draft, Drafts(steps, false)}},
      {"draft-at-the-length-limit", {limit, AtTheLimit(nullptr)}},
      {"draft-pads-rejected-tokens",
       {draft,
        [](Scenario& s) {
          s.Admit("a", {{1, 2, 3}}).Schedule("a", 7).Step();
          s.Schedule("a", 3, 2).Begin();
          ScenarioPlan plan = s.RightPlan();
          s.Plan(plan);
          plan.pass = KVGUARD_PASS_DRAFT;
          plan.groups[0].slots[2] = -1;
          s.Plan(plan);
          s.End();
        }}},
      {"draft-in-a-foreign-block",
       {draft, Drafts(steps, true, [](ScenarioPlan& p) { p.groups[0].slots[0] = 5 * 4 + 2; })}},
      {"draft-one-step-back", {draft, Drafts({{8, 3}}, true)}},
      {"draft-beyond-the-accepted", {draft, Drafts({{10, 3}}, true)}},
      {"B009-rope-coordinate-as-position", {draft, Drafts({{4, 3}}, false)}},
      {"B074-length-beyond-the-model",
       {limit, AtTheLimit([](ScenarioPlan& p) { p.seq_lens = {13}; })}},
      {"draft-table-of-another",
       {draft, Drafts(steps, true, [](ScenarioPlan& p) { p.Table(0, 0, 0) = 5; })}},
      {"cross-written-once", {cross, Encoded(6, {8, 9}, false)}},
      {"cross-written-again", {cross, Encoded(6, {8, 9}, true)}},
      {"cross-without-encoder", {cross, Encoded(6, {8, 9}, false, nullptr, 0)}},
      {"cross-wrong-slot",
       {cross, EncodedEdit([](ScenarioPlan& p) { p.groups[1].slots[5] = 20 * 4; })}},
      {"B015-slots-of-a-pool-of-its-own", {cross, EncodedEdit([](ScenarioPlan& p) {
                                             for (int64_t i = 0; i < 6; ++i)
                                               p.groups[1].slots[static_cast<size_t>(i)] =
                                                   40 * 4 + i;
                                           })}},
      {"cross-not-written",
       {cross,
        [](Scenario& s) {
          s.Admit("a", {{1}, {8, 9}}).Domain(KVGUARD_DOMAIN_ENCODER, 8, 0, 6);
          s.Schedule("a", 2).Begin();
          s.Plan(s.RightPlan());
          s.Plan(Cross(s.RightPlan(), {6}, {false}));
          s.End();
        }}},
      {"B077-length-of-the-models-maximum",
       {cross, EncodedEdit([](ScenarioPlan& p) { p.seq_lens[0] = 64; })}},
      {"cross-table-of-another",
       {cross, EncodedEdit([](ScenarioPlan& p) { p.Table(1, 0, 0) = 20; })}},
      {"cross-short-by-a-block", {cross, Encoded(6, {8}, false)}},
      {"cross-block-of-another", {cross, Encoded(6, {8, 20, 9}, false)}},
      {"cross-positions-of-the-decoder", {cross, EncodedEdit([](ScenarioPlan& p) {
                                            for (size_t i = 0; i < 6; ++i) p.positions[i] += 3;
                                          })}},
      {"host-group-without-blocks", {HostOptions(), Host({})}},
      {"host-block-reserved-while-sent", {HostOptions(), Host({5})}},
      {"host-block-out-of-range", {HostOptions(), Host({63, 64})}},
      {"fills-told-hit",
       {FillsTold(),
        [](Scenario& s) {
          s.Admit("p", {{1, 2}}).Schedule("p", 8).Step();
          s.Finish("p").Admit("r", {{1, 2, 3}}, 8).Schedule("r", 1).Step();
        }}},
      {"fills-told-loaded", {connector, Claims(24, {5, 6, 7, 8, 9, 10})}},
      {"B065-hit-on-what-nobody-wrote", {FillsTold(), Claims(4, {})}},
      {"B128-loads-cover-too-little", {connector, Claims(24, {5, 6, 7, 8})}},
      {"B135-hit-without-a-load", {connector, Claims(8, {})}},
      {"load-behind-the-shared-prefix", {loads, LoadsFrom(8, {3})}},
      {"B125-load-over-a-shared-prefix", {loads, LoadsFrom(4, {2, 3})}},
  };
  return all;
}

TEST(Passes, EachPlantedFaultIsFoundAndNothingElse) { CheckPlantedList("pass_faults.txt", All()); }

TEST(Passes, MicroBatchesAloneAreEnough) {
  Scenario s{ScenarioOptions{}};
  MicroBatches(kInside)(s);
  EXPECT_EQ(s.verdict().verdict, static_cast<uint32_t>(KVGUARD_CLEAN)) << s.Report();
}

TEST(Passes, ADraftBeyondWhatIsBoundIsASuspicion) {
  Scenario s(DraftOptions());
  s.Admit("a", {{1}}).Schedule("a", 3).Step();
  s.Schedule("a", 1).Begin();
  const ScenarioPlan whole = s.RightPlan();
  s.Plan(whole);
  s.Plan(Draft(whole, 1, {4}));
  s.End();
  EXPECT_EQ(s.verdict().verdict, static_cast<uint32_t>(KVGUARD_CLEAN)) << s.Report();
  EXPECT_EQ(s.verdict().suspicions, 1u);
  EXPECT_EQ(s.Codes(), std::vector<uint32_t>{rules::kSlotMismatch});
}

TEST(Passes, AnEncodersOutputThatIsNeverShownIsAGap) {
  Scenario s(CrossOptions());
  s.Admit("a", {{1}, {8, 9}}).Domain(KVGUARD_DOMAIN_ENCODER, 8, 0, 6).Schedule("a", 2).Step();
  EXPECT_EQ(s.verdict().verdict, static_cast<uint32_t>(KVGUARD_CANNOT_JUDGE)) << s.Report();
}

TEST(Passes, ALoadOverSharedBlocksNamesWhoReadsThem) {
  const PlantedScenario& planted = All().at("B125-load-over-a-shared-prefix");
  Scenario s(planted.options);
  planted.run(s);
  const std::vector<kvguard_finding> findings = s.Findings();
  ASSERT_EQ(findings.size(), 1u) << s.Report();
  EXPECT_EQ(findings[0].victim, s.Key("v"));
  EXPECT_EQ(findings[0].pos, 4);
}

}  // namespace
}  // namespace kvguard::tests
