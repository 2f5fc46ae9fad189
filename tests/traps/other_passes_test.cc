// SPDX-License-Identifier: Apache-2.0
// Traps of the passes beside the target's: drafts, cross-attention, micro-batches.
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "rules/catalog.h"
#include "tests/support/passes.h"
#include "tests/traps/trap_test.h"

namespace kvguard::tests {
namespace {

using audit::Scenario;
using audit::ScenarioGroup;
using audit::ScenarioOptions;
using audit::ScenarioPlan;

// --- 14: the draft model writes beyond what is valid ---

// 10 tokens are valid; of four draft steps the last three stand on position 11, in one slot.
TEST(Trap14Drafts, StayOnTheModelsLastPosition) {
  for (const uint32_t code : {rules::kSeqLenMismatch, rules::kSlotMismatch}) {
    ScenarioOptions options = Engine(0, 4);
    options.max_model_len = 12;
    CheckTrap(options, code, [=](Scenario& s, bool wrong) {
      s.Admit("a", {{1, 2, 3}}).Schedule("a", 9).Step();
      s.Schedule("a", 1).Begin();
      const ScenarioPlan whole = s.RightPlan();
      s.Plan(whole);
      const std::vector<int64_t> positions = {10, 11, 11, 11};
      for (uint32_t k = 1; k <= 4; ++k) {
        ScenarioPlan plan = Draft(whole, k, {positions[k - 1]});
        if (wrong && k == 4 && code == rules::kSeqLenMismatch) plan.seq_lens = {13};
        if (wrong && k == 4 && code == rules::kSlotMismatch) plan.groups[0].slots = {16};
        s.Plan(plan);
      }
      s.End();
    });
  }
}

// How many drafts were accepted is on the device only: the draft model goes on behind any of them.
TEST(Trap14Drafts, GoOnBehindWhateverWasAccepted) {
  for (uint32_t rejected = 0; rejected <= 2; ++rejected) {
    for (const bool told : {false, true}) {
      CheckTrap(Engine(KVGUARD_ENGINE_ASYNC, 2), rules::kFrontierMismatch,
                [=](Scenario& s, bool wrong) {
                  s.Admit("a", {{1, 2, 3, 4}}).Schedule("a", 6).Step();
                  s.Schedule("a", 3, 2).Begin();
                  const ScenarioPlan whole = s.RightPlan();
                  s.Plan(whole);
                  ScenarioPlan zero = whole;  // the same tokens, in the same slots
                  zero.pass = KVGUARD_PASS_DRAFT;
                  s.Plan(zero);
                  if (told) s.Outcome(s.step(), "a", 3 - rejected, rejected);
                  const int64_t valid = 9 - static_cast<int64_t>(rejected);
                  // told: one further than what was accepted; else one further than all drafts
                  const int64_t next = told ? valid + 1 : 10;
                  s.Plan(Draft(whole, 1, {wrong ? next : valid}));
                  if (!wrong) s.Plan(Draft(whole, 2, {valid + 1}));
                  s.End();
                  if (wrong) return;
                  if (!told) s.Outcome(s.step(), "a", 3 - rejected, rejected);
                  s.Schedule("a", 1).Step();
                });
    }
  }
}

TEST(Trap14Drafts, PadWhatWasRejected) {
  CheckTrap(Engine(0, 2), rules::kSlotMismatch, [](Scenario& s, bool wrong) {
    s.Admit("a", {{1, 2, 3}}).Schedule("a", 7).Admit("b", {{4}}).Schedule("b", 1).Step();
    s.Schedule("a", 3, 2).Schedule("b", 1).Begin();
    ScenarioPlan plan = s.RightPlan();
    s.Plan(plan);
    plan.pass = KVGUARD_PASS_DRAFT;
    plan.groups[0].slots[1] = plan.groups[0].slots[2] = -1;
    if (wrong) plan.groups[0].slots[2] = 17;  // in b's block
    s.Plan(plan);
    s.Outcome(s.step(), "a", 1, 2);
    s.End();
  });
}

// A column that was not bound: the draft model writes through whatever its table holds there, which
// is the null block or residue. The engine's known weak spot is no proof, but the residue of a
// column that another request has is one.
TEST(Trap14Drafts, BeyondWhatIsBoundTheyAreASuspicion) {
  for (const bool loaded : {false, true}) {
    for (const bool foreign : {false, true}) {
      Scenario s(Engine(KVGUARD_ENGINE_CONNECTOR, 2));
      s.Expect("a").Admit("b", {{9}}).Schedule("b", 1);
      if (loaded) s.Blocks(KVGUARD_EVENT_LOAD, "a", {1}, 1);
      s.Step();
      if (loaded) s.Blocks(KVGUARD_EVENT_LOAD_DONE, "", {}, 1);
      s.Admit("a", {{1, 2}}, loaded ? 4 : 0).Schedule("a", loaded ? 4 : 8);
      s.Begin();
      const ScenarioPlan whole = s.RightPlan();
      s.Plan(whole);
      ScenarioPlan draft = Draft(whole, 1, {8});
      EXPECT_EQ(draft.groups[0].slots[0], 0) << "the null block";
      if (foreign) draft.groups[0].slots[0] = 9 * 4;
      s.Plan(draft);
      s.End();
      const std::vector<uint32_t> slot = {rules::kSlotMismatch};
      const std::vector<uint32_t> both = {rules::kSlotMismatch, rules::kForeignWrite};
      EXPECT_EQ(s.Codes(), foreign ? both : slot) << s.Report();
      EXPECT_EQ(s.verdict().suspicions, 1u);
      EXPECT_EQ(s.verdict().verdict,
                static_cast<uint32_t>(foreign ? KVGUARD_VIOLATED : KVGUARD_CLEAN));
    }
  }
}

// Directly after an asynchronous load there are no blocks for drafts: they pad, or stay in what the
// last block has left.
TEST(Trap14Drafts, PadWhereLookaheadIsAbsentAfterALoad) {
  CheckTrap(Engine(KVGUARD_ENGINE_CONNECTOR, 3), rules::kSlotMismatch, [](Scenario& s, bool wrong) {
    s.Expect("a").Blocks(KVGUARD_EVENT_LOAD, "a", {5, 6}, 1).Admit("b", {{1}});
    s.Schedule("b", 1).Step();
    s.Blocks(KVGUARD_EVENT_LOAD_DONE, "", {}, 1).Admit("a", {{5, 6, 7}}, 8);
    s.Schedule("a", 2).Begin();
    const ScenarioPlan whole = s.RightPlan();
    s.Plan(whole);
    for (uint32_t k = 1; k <= 3; ++k) {
      ScenarioPlan draft = Draft(whole, k, {9 + static_cast<int64_t>(k)});
      if (k == 3) draft.groups[0].slots = {-1};
      if (wrong && k == 2) draft.groups[0].slots = {6};  // of b
      if (!wrong || k < 3) s.Plan(draft);
    }
    s.End();
  });
}

// --- 20: cross-attention ---

ScenarioOptions WithCross() {
  ScenarioGroup cross;
  cross.kind = KVGUARD_GROUP_CROSS;
  ScenarioOptions options = Engine(KVGUARD_ENGINE_ENCODER);
  options.groups = {ScenarioGroup{}, cross};
  return options;
}

// The decoder's tokens have no slots in a cross group; a runner's buffer holds anything there.
TEST(Trap20Cross, TheTargetsSlotsAreNotUsed) {
  struct Residue {
    int64_t slot;
    uint32_t code;
  };
  for (const Residue& residue :
       {Residue{-1, rules::kSlotPad}, Residue{0, rules::kSlotNullBlock},
        Residue{5 * 4, rules::kSlotMismatch}, Residue{1'000'000, rules::kSlotOutOfRange}}) {
    CheckTrap(WithCross(), residue.code, [=](Scenario& s, bool wrong) {
      s.Admit("other", {{3}, {5, 6}}).Domain(KVGUARD_DOMAIN_ENCODER, 1, 0, 7);
      s.Admit("a", {{1}, {8, 9}}).Domain(KVGUARD_DOMAIN_ENCODER, 2, 0, 6);
      s.Schedule("other", 2).Schedule("a", 3).Begin();
      ScenarioPlan target = s.RightPlan();
      target.groups[1].slots.assign(5, residue.slot);
      for (int64_t& entry : target.groups[1].table) entry = 63;
      s.Plan(target);
      ScenarioPlan cross = Cross(s.RightPlan(), {7, 6}, {true, true});
      if (wrong) cross.groups[1].slots[7 + 4] = residue.slot;
      s.Plan(cross);
      s.End();
      if (wrong) return;
      s.Schedule("other", 1).Schedule("a", 1).Begin();
      target = s.RightPlan();
      target.groups[1].slots_present = target.groups[1].table_present = false;
      s.Plan(target);
      s.Plan(Cross(s.RightPlan(), {7, 6}, {false, false}));
      s.End();
    });
  }
}

// The encoder's length stands while the decoder's grows, whether its output is kept or written
// anew.
TEST(Trap20Cross, IsReadWholeInEachStep) {
  for (const bool again : {false, true}) {
    for (const uint32_t code : {rules::kSeqLenMismatch, rules::kTableMismatch}) {
      CheckTrap(WithCross(), code, [=](Scenario& s, bool wrong) {
        s.Admit("a", {{1, 2}, {8, 9}}).Domain(KVGUARD_DOMAIN_ENCODER, 2, 0, 6).Schedule("a", 2);
        for (int step = 0; step < 4; ++step) {
          s.Begin();
          s.Plan(s.RightPlan());
          ScenarioPlan cross = Cross(s.RightPlan(), {6}, {step == 0 || again});
          if (wrong && step == 3 && code == rules::kSeqLenMismatch) cross.seq_lens = {5};
          if (wrong && step == 3 && code == rules::kTableMismatch) cross.Table(1, 0, 1) = 2;
          s.Plan(cross);
          s.End();
          if (step < 3) s.Schedule("a", 1);
        }
      });
    }
  }
}

TEST(Trap20Cross, ARequestWithoutEncoderHasNoTokensThere) {
  CheckTrap(WithCross(), rules::kQueryLengthMismatch, [](Scenario& s, bool wrong) {
    s.Admit("text", {{3}, {}});
    s.Admit("a", {{1}, {8, 9}}).Domain(KVGUARD_DOMAIN_ENCODER, 2, 0, 6);
    s.Schedule("text", 2).Schedule("a", 3).Begin();
    s.Plan(s.RightPlan());
    s.Plan(Cross(s.RightPlan(), {wrong ? 3 : 0, 6}, {true, true}));
    s.End();
    if (wrong) return;
    s.Schedule("text", 1).Schedule("a", 1).Begin();
    s.Plan(s.RightPlan());
    s.Plan(Cross(s.RightPlan(), {0, 6}, {false, false}));
    s.End();
  });
}

// --- 23: micro-batches ---

// a has 6 tokens, b 3 and c 1.
using Slices = std::vector<std::vector<Cut>>;

void InSlices(Scenario& s, const Slices& slices, uint32_t stage = KVGUARD_STAGE_PLANNED,
              uint32_t wrong_code = 0) {
  s.Admit("a", {{1, 2}}).Schedule("a", 6).Admit("b", {{3}}).Schedule("b", 3);
  s.Admit("c", {{4}}).Schedule("c", 1).Begin();
  const ScenarioPlan whole = s.RightPlan();
  if (stage == KVGUARD_STAGE_FINAL) s.Plan(whole);
  for (size_t i = 0; i < slices.size(); ++i) {
    ScenarioPlan plan = MicroBatch(whole, static_cast<uint32_t>(i), slices[i]);
    plan.stage = stage;
    const bool is_last = i + 1 == slices.size();
    if (is_last && wrong_code == rules::kMicroBatchMissing) continue;
    if (is_last && wrong_code == rules::kSeqLenMismatch) plan.seq_lens[0] += 1;
    if (is_last && wrong_code == rules::kSlotMismatch) plan.groups[0].slots[0] = 4;
    if (is_last && wrong_code == rules::kTableMismatch) plan.Table(0, 0, 0) = 9;
    plan.Pad(1, 2);  // each is padded by itself
    s.Plan(plan);
  }
  s.End();
}

const std::vector<uint32_t> kSliceFaults = {rules::kMicroBatchMissing, rules::kSeqLenMismatch,
                                            rules::kSlotMismatch, rules::kTableMismatch};

TEST(Trap23Slices, EachHasRequestsOfItsOwn) {
  for (const uint32_t code : kSliceFaults) {
    CheckTrap(ScenarioOptions{}, code, [=](Scenario& s, bool wrong) {
      InSlices(s, {{{0, 0, 6}}, {{1, 0, 3}, {2, 0, 1}}}, KVGUARD_STAGE_PLANNED, wrong ? code : 0);
    });
  }
}

TEST(Trap23Slices, CutARequestAnywhere) {
  for (const uint32_t code : kSliceFaults) {
    for (size_t first = 1; first < 6; ++first) {
      CheckTrap(ScenarioOptions{}, code, [=](Scenario& s, bool wrong) {
        InSlices(s, {{{0, 0, first}}, {{0, first, 6 - first}, {1, 0, 3}, {2, 0, 1}}},
                 KVGUARD_STAGE_PLANNED, wrong ? code : 0);
      });
    }
  }
}

TEST(Trap23Slices, CutARequestIntoMany) {
  const Slices slices = {{{0, 0, 2}}, {{0, 2, 2}}, {{0, 4, 1}}, {{0, 5, 1}, {1, 0, 3}, {2, 0, 1}}};
  for (const uint32_t code : kSliceFaults) {
    CheckTrap(ScenarioOptions{}, code, [=](Scenario& s, bool wrong) {
      InSlices(s, slices, KVGUARD_STAGE_PLANNED, wrong ? code : 0);
    });
  }
}

// All tokens stand in the first one. What another rank has to run there runs here without any.
TEST(Trap23Slices, TheSecondHasNoTokens) {
  const std::vector<Cut> all = {{0, 0, 6}, {1, 0, 3}, {2, 0, 1}};
  for (const std::vector<Cut>& second : {std::vector<Cut>{}, std::vector<Cut>{{2, 1, 0}}}) {
    CheckTrap(ScenarioOptions{}, rules::kMicroBatchMissing, [=](Scenario& s, bool wrong) {
      std::vector<Cut> first = all;
      if (wrong) first[1].count = 2;
      InSlices(s, {first, second});
    });
  }
}

// The scheduler's plan is whole, what reaches the kernels is cut.
TEST(Trap23Slices, OnlyTheFinalPlansAreCut) {
  for (const uint32_t code : kSliceFaults) {
    CheckTrap(ScenarioOptions{}, code, [=](Scenario& s, bool wrong) {
      InSlices(s, {{{0, 0, 4}}, {{0, 4, 2}, {1, 0, 3}, {2, 0, 1}}}, KVGUARD_STAGE_FINAL,
               wrong ? code : 0);
    });
  }
}

// The start of a request is not known before the outcome of its drafts is; its slices follow it.
void SlicesBeforeTheOutcome(Scenario& s, uint32_t rejected,
                            const std::function<void(ScenarioPlan&)>& second_edit = nullptr) {
  s.Admit("a", {{1, 2, 3, 4}}).Schedule("a", 5, 2).Step();
  s.Computed("a") -= rejected;
  s.Schedule("a", 3, 2, 5).Begin();
  const ScenarioPlan whole = s.RightPlan();
  s.Plan(MicroBatch(whole, 0, {{0, 0, 2}}));
  ScenarioPlan second = MicroBatch(whole, 1, {{0, 2, 1}});
  if (second_edit) second_edit(second);
  s.Plan(second);
  s.End();
}

TEST(Trap23Slices, FollowAStartThatIsNotKnown) {
  for (uint32_t rejected = 0; rejected <= 2; ++rejected) {
    for (const uint32_t code : {rules::kSlotMismatch, rules::kSeqLenMismatch}) {
      CheckTrap(Engine(KVGUARD_ENGINE_ASYNC, 2), code, [=](Scenario& s, bool wrong) {
        if (wrong) {
          SlicesBeforeTheOutcome(s, rejected, [=](ScenarioPlan& p) {
            if (code == rules::kSlotMismatch) p.groups[0].slots[0] += 1;
            if (code == rules::kSeqLenMismatch) p.seq_lens[0] += 1;
          });
          return;
        }
        SlicesBeforeTheOutcome(s, rejected);
        s.Computed("a") += rejected;
        s.Outcome(1, "a", 3 - rejected, rejected);
        s.Outcome(2, "a", 3, 0);
        s.Schedule("a", 1).Step();
      });
    }
  }
}

// Each slice of such a request may stand at a start of its own, until the outcome tells the one.
TEST(Trap23Slices, ThatDisagreeAboutTheStartAreFoundWhenTheOutcomeIsTold) {
  Scenario s(Engine(KVGUARD_ENGINE_ASYNC, 2));
  SlicesBeforeTheOutcome(s, 1, [](ScenarioPlan& p) {
    p.positions[0] += 1;
    p.seq_lens[0] += 1;
    p.groups[0].slots[0] += 1;
  });
  EXPECT_EQ(s.Report(), "");
  s.Computed("a") += 1;
  s.Outcome(1, "a", 2, 1);
  EXPECT_EQ(s.Codes(), std::vector<uint32_t>{rules::kFrontierMismatch}) << s.Report();
}

}  // namespace
}  // namespace kvguard::tests
