// SPDX-License-Identifier: Apache-2.0
// Recurrent groups: one block, one state.
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "rules/catalog.h"
#include "tests/layouts/planted.h"

namespace kvguard::tests {
namespace {

using audit::Scenario;
using audit::ScenarioGroup;
using audit::ScenarioOptions;
using audit::ScenarioPlan;
using Edit = std::function<void(ScenarioPlan&)>;
using Run = std::function<void(Scenario&)>;

// Attention in blocks of 4 beside states; a running state alone has a pool of its own.
ScenarioOptions Options(uint32_t mode, uint32_t block_size = 4) {
  ScenarioGroup states;
  states.kind = KVGUARD_GROUP_STATE;
  states.state_mode = mode;
  states.block_size = states.kernel_block_size = block_size;
  states.pool = mode == KVGUARD_STATE_NONE ? 1 : 0;
  ScenarioOptions options;
  options.groups = {ScenarioGroup{}, states};
  options.max_drafts = mode == KVGUARD_STATE_ALL ? 0 : 2;
  return options;
}

ScenarioOptions Tables() {
  ScenarioOptions options = Options(KVGUARD_STATE_ALIGN);
  options.groups[1].shows_states = false;
  return options;
}

ScenarioOptions Narrow() {
  ScenarioOptions options = Options(KVGUARD_STATE_ALIGN);
  options.columns = 6;
  return options;
}

Edit In(int64_t block) {
  return [=](ScenarioPlan& p) { p.groups[1].in[0] = block; };
}
Edit Out(int64_t block) {
  return [=](ScenarioPlan& p) { p.groups[1].out[0] = block; };
}
Edit InAndOut(int64_t in, int64_t out) {
  return [=](ScenarioPlan& p) {
    p.groups[1].in[0] = in;
    p.groups[1].out[0] = out;
  };
}
Edit Init(uint8_t init) {
  return [=](ScenarioPlan& p) { p.groups[1].init[0] = init; };
}

// Mode none: a has the state 7, other the state 20; a's row stands first.
Run Two(const Edit& decode, const Edit& prefill = nullptr) {
  return [=](Scenario& s) {
    s.Admit("other", {{10, 11, 12}, {20}}).Schedule("other", 5).Step();
    s.Admit("a", {{1, 2}, {7}}).Schedule("a", 5).Schedule("other", 1).Step(prefill);
    s.Schedule("a", 1).Schedule("other", 1).Step(decode);
  };
}

// A prefill of so many tokens, and a step with two drafts.
Run Drafts(int64_t tokens, std::vector<int64_t> states, const Edit& edit = nullptr) {
  return [=](Scenario& s) {
    s.Admit("a", {{1, 2, 3}, states}).Schedule("a", tokens).Step();
    s.Schedule("a", 3, 2).Step(edit);
  };
}

// Mode none: two drafts, one accepted.
Run NoneDrafts(const Edit& drafts, const Edit& after) {
  return [=](Scenario& s) {
    Drafts(3, {7, 8, 9}, drafts)(s);
    s.Outcome(s.step(), "a", 2, 1);
    s.Schedule("a", 1).Step(after);
  };
}

// Mode align: 8 tokens, and one more in the next column.
Run Crossing(const Edit& edit, std::vector<int64_t> copies = {}) {
  return [=](Scenario& s) {
    s.Admit("a", {{1, 2, 3}, {0, 7}}).Schedule("a", 8).Step();
    s.Admit("b", {{10}, {30}}).Schedule("b", 4).Step();
    s.Append("a", {8}, 1).Schedule("a", 1);
    if (!copies.empty()) {
      s.Blocks(KVGUARD_EVENT_COPY, "", copies, 0, 0, 1);
      s.Blocks(KVGUARD_EVENT_COPY_DONE, "", copies, 0, 0, 1);
    }
    s.Step(edit);
  };
}

// Mode align: two drafts after 5 tokens, of which `rejected` are not accepted.
Run AlignDrafts(uint32_t rejected, const Edit& after) {
  return [=](Scenario& s) {
    Drafts(5, {0, 7, 8, 9})(s);
    s.Outcome(s.step(), "a", 3 - rejected, rejected);
    s.Schedule("a", 1).Step(after);
  };
}

// Mode align with two speculative blocks: 3 tokens, then 17, then drafts.
Run LongChunk(std::vector<int64_t> appended, bool decodes = true) {
  return [=](Scenario& s) {
    s.Admit("a", {{1, 2, 3, 4, 5, 6}, {7, 8, 9}}).Schedule("a", 3).Step();
    s.Append("a", appended, 1).Schedule("a", 17).Step();
    if (!decodes) return;
    s.Append("a", {13}, 1).Schedule("a", 3, 2).Step();
    s.Outcome(s.step(), "a", 1, 2);
    s.Schedule("a", 1).Step();
  };
}

// Mode align: another request binds the block of the state of 8 tokens.
Run GivenAway(bool behind) {
  return [=](Scenario& s) {
    s.Admit("a", {{1, 2, 3}, {0, 7}}).Schedule("a", 8).Step();
    if (behind) s.Append("a", {8}, 1).Schedule("a", 1).Step();
    s.Admit("b", {{10}, {7}}).Schedule("b", 4).Step();
  };
}

// A prompt of `prompt` tokens leaves its states, and ends; r goes on from `computed` of them.
Run Hit(int64_t prompt, std::vector<int64_t> left, int64_t computed,
        std::vector<std::vector<int64_t>> bound, int64_t tokens, const Edit& edit = nullptr) {
  return [=](Scenario& s) {
    s.Admit("p", {{1, 2, 3, 4}, left}).Schedule("p", prompt).Step();
    s.Finish("p").Admit("r", bound, computed).Schedule("r", tokens).Step(edit);
  };
}

Run ContentHit(int64_t first_token) {
  return [=](Scenario& s) {
    const auto prompt = [](int64_t first) {
      std::vector<int64_t> tokens;
      for (int64_t i = 0; i < 10; ++i) tokens.push_back(first + i);
      return tokens;
    };
    s.Admit("p", {{1, 2, 3}, {0, 7}}).Tokens(prompt(100)).Schedule("p", 8).Step();
    s.Finish("p").Admit("r", {{5, 6, 9}, {0, 7, 9 + 20}}, 8).Tokens(prompt(first_token));
    s.Schedule("r", 2).Step();
  };
}

Run Dummy(std::vector<int64_t> states) {
  return [=](Scenario& s) {
    Two(nullptr)(s);
    s.Schedule("a", 1).Step();
    ScenarioPlan p;
    p.pass = KVGUARD_PASS_DUMMY;
    p.query_start = {0, 0, 0};
    p.seq_lens = {0, 0};
    p.padded_rows = 2;
    p.padded_tokens = 2;
    p.groups.resize(2);
    for (ScenarioPlan::Group& group : p.groups) {
      group.slots = {-1, -1};
      group.table_present = false;
    }
    p.groups[1].slots = {28, 29};  // of states: never looked at
    p.groups[1].in = p.groups[1].out = states;
    s.Plan(p);
  };
}

Run Padded(std::vector<int64_t> states) {
  return Two([=](ScenarioPlan& p) {
    p.Pad(2, 2);
    p.groups[1].in = {7, 20, states[0], states[1]};
    p.groups[1].out = p.groups[1].in;
  });
}

Run TableShown(size_t column, int64_t block) {
  return [=](Scenario& s) {
    s.Admit("a", {{1, 2, 3}, {0, 7}}).Schedule("a", 6).Step();
    s.Schedule("a", 1).Step([=](ScenarioPlan& p) {
      p.Table(1, 0, 0) = 33;
      p.Table(1, 0, column) = block;
    });
  };
}

const std::map<std::string, PlantedScenario>& All() {
  const ScenarioOptions none = Options(KVGUARD_STATE_NONE);
  const ScenarioOptions all_mode = Options(KVGUARD_STATE_ALL);
  const ScenarioOptions align = Options(KVGUARD_STATE_ALIGN);
  const std::vector<std::vector<int64_t>> hit = {{1, 2, 9}, {0, 7, 29}};
  static const std::map<std::string, PlantedScenario> all = {
      {"none-prefill-and-decode", {none, Two(nullptr)}},
      {"none-drafts", {none, NoneDrafts(InAndOut(7, 9), InAndOut(8, 7))}},
      {"align-one-column",
       {align,
        [](Scenario& s) {
          s.Admit("a", {{1, 2}, {0, 7}}).Schedule("a", 6).Step();
          s.Schedule("a", 1).Step(InAndOut(7, 7));
        }}},
      {"align-crossing-copied", {align, Crossing(InAndOut(8, 8), {7, 8})}},
      {"align-crossing-uncopied", {align, Crossing(InAndOut(7, 8))}},
      {"align-crossing-unsaid", {align, Crossing(InAndOut(8, 8))}},
      {"align-drafts", {align, AlignDrafts(0, InAndOut(9, 8))}},
      {"align-drafts-to-a-boundary", {align, AlignDrafts(0, InAndOut(7, 8))}},
      {"align-moved-speculative-blocks", {align, LongChunk({0, 8, 9, 12})}},
      {"align-given-away-behind", {align, GivenAway(true)}},
      {"align-hit-at-its-boundary", {align, Hit(8, {0, 7}, 8, hit, 2, InAndOut(7, 29))}},
      {"all-every-boundary",
       {all_mode, Hit(10, {7, 8, 9}, 8, {{1, 2, 9}, {0, 8, 29}}, 2, InAndOut(8, 29))}},
      {"pads-on-the-null-block", {none, Padded({0, -1})}},
      {"dummy-on-the-null-block", {none, Dummy({0, -1})}},
      {"state-of-another-request", {none, Two(In(20))}},
      {"state-of-the-column-before",
       {align,
        [](Scenario& s) {
          s.Admit("a", {{1, 2}, {6, 7}}).Schedule("a", 4).Step();
          s.Schedule("a", 1).Step();
          s.Schedule("a", 1).Step(In(6));
        }}},
      {"accepted-drafts-ignored", {none, NoneDrafts(nullptr, In(7))}},
      {"accepted-drafts-counted-twice", {align, AlignDrafts(1, In(9))}},
      // 15 / 4 = 3, and the row has 3 columns of 8: what stands behind it.
      {"B098-column-by-another-block-size",
       {Options(KVGUARD_STATE_ALIGN, 8),
        Hit(16, {0, 7}, 16, {{1, 2, 3, 4, 9}, {0, 7, 29}}, 2, In(12))}},
      {"left-in-another-request", {none, Two(Out(20))}},
      {"left-in-the-column-before", {align, Crossing(Out(7))}},
      {"left-in-the-null-block", {none, Two(Out(0))}},
      {"drafts-left-in-column-0", {none, Drafts(3, {7, 8, 9}, Out(7))}},
      {"not-initialised",
       {none, [](Scenario& s) { s.Admit("a", {{1, 2}, {7}}).Schedule("a", 5).Step(Init(0)); }}},
      {"thrown-away", {none, Two(Init(1))}},
      {"B146-copied-through-another-row", {align, Crossing(InAndOut(8, 8), {30, 31})}},
      {"B025-padding-row-on-a-live-state", {none, Padded({-1, 20})}},
      {"dummy-on-a-live-state", {none, Dummy({0, 20})}},
      {"B024-the-null-state-is-bound",
       {none, [](Scenario& s) { s.Admit("a", {{1}, {0}}).Schedule("a", 3).Step(); }}},
      {"running-state-in-the-null-block",
       {align, [](Scenario& s) { s.Admit("a", {{1, 2}, {0, 0}}).Schedule("a", 6).Step(); }}},
      {"hit-state-in-the-null-block", {align, Hit(8, {0, 7}, 8, {{1, 2, 9}, {0, 0, 29}}, 2)}},
      {"the-place-moves-on", {align, LongChunk({0, 7, 9, 12}, false)}},
      {"all-block-twice",
       {all_mode, [](Scenario& s) { s.Admit("a", {{1, 2}, {7, 7}}).Schedule("a", 6).Step(); }}},
      {"drafts-without-columns", {none, Drafts(3, {7, 8})}},
      {"align-short-by-a-speculative-column", {align, Drafts(5, {0, 7, 8})}},
      {"B081-row-too-wide", {Narrow(), LongChunk({0, 8, 9, 12}, false)}},
      {"align-given-away-while-needed", {align, GivenAway(false)}},
      {"one-state-for-two",
       {none,
        [](Scenario& s) {
          s.Admit("a", {{1}, {7}}).Schedule("a", 3).Step();
          s.Admit("b", {{2}, {7}}).Schedule("b", 3).Step();
        }}},
      {"B099-state-behind-the-hit", {align, Hit(8, {0, 7}, 4, {{1, 9}, {7, 29}}, 4)}},
      {"B100-no-state-at-that-boundary", {align, Hit(8, {0, 7}, 6, {{1, 9, 10}, {0, 7, 29}}, 3)}},
      {"state-of-the-same-step",
       {align,
        [](Scenario& s) {
          s.Admit("p", {{1, 2}, {0, 7}}).Schedule("p", 8);
          s.Admit("r", {{1, 2, 9}, {0, 7, 29}}, 8).Schedule("r", 2).Step();
        }}},
      {"content-of-another-prompt", {align, ContentHit(500)}},
      {"table-place-wrong", {Tables(), TableShown(1, 8)}},
      {"table-shown", {Tables(), TableShown(1, 7)}},
  };
  return all;
}

TEST(States, EachPlantedFaultIsFoundAndNothingElse) { CheckPlantedList("state_faults.txt", All()); }

TEST(States, TheSamePromptMayShareItsState) {
  Scenario s(Options(KVGUARD_STATE_ALIGN));
  ContentHit(100)(s);
  EXPECT_EQ(s.Report(), "");
}

TEST(States, AForeignStateThatIsOverwrittenIsNamed) {
  const PlantedScenario& planted = All().at("left-in-another-request");
  Scenario s(planted.options);
  planted.run(s);
  const std::vector<kvguard_finding> findings = s.Findings();
  ASSERT_EQ(findings.size(), 2u) << s.Report();
  EXPECT_EQ(findings[1].code, rules::kForeignWrite);
  EXPECT_EQ(findings[1].victim, s.Key("other"));
  EXPECT_EQ(findings[1].because_of, rules::kStateTargetMismatch);
}

TEST(States, SaysWhatIsReadInstead) {
  const auto first_cause = [](const char* name) {
    const PlantedScenario& planted = All().at(name);
    Scenario s(planted.options);
    planted.run(s);
    const std::vector<kvguard_finding> findings = s.Findings();
    return findings.empty() ? kvguard_cause{} : findings[0].causes[0];
  };
  EXPECT_EQ(first_cause("state-of-another-request").kind, KVGUARD_CAUSE_ROW_OF);
  EXPECT_EQ(first_cause("left-in-another-request").kind, KVGUARD_CAUSE_ROW_OF);
  EXPECT_EQ(first_cause("accepted-drafts-ignored").kind, KVGUARD_CAUSE_STALE_FRONTIER);
  EXPECT_EQ(first_cause("accepted-drafts-ignored").arg, 4u);
  EXPECT_EQ(first_cause("accepted-drafts-counted-twice").kind, KVGUARD_CAUSE_OPTIMISTIC_FRONTIER);
  EXPECT_EQ(first_cause("left-in-the-column-before").kind, KVGUARD_CAUSE_OFF_BY_ONE_BLOCK);
  // Attention's blocks are of 4, and the row has a column 16 / 8 = 2 only.
  EXPECT_EQ(first_cause("B098-column-by-another-block-size").kind, KVGUARD_CAUSE_NONE);
}

TEST(States, AnEngineThatNeverShowsThemCannotBeJudged) {
  Scenario s(Options(KVGUARD_STATE_NONE));
  s.Admit("a", {{1}, {7}}).Schedule("a", 3);
  s.Begin();
  ScenarioPlan plan = s.RightPlan();
  plan.groups[1].present = false;
  s.Plan(plan);
  s.End();
  EXPECT_EQ(s.verdict().verdict, static_cast<uint32_t>(KVGUARD_CANNOT_JUDGE));
}

}  // namespace
}  // namespace kvguard::tests
