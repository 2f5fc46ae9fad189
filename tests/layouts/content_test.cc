// SPDX-License-Identifier: Apache-2.0
// Content: what a prefix hit reads must be what its reader means.
#include <vector>

#include <gtest/gtest.h>

#include "rules/catalog.h"
#include "tests/layouts/planted.h"

namespace kvguard::tests {
namespace {

using audit::Scenario;
using audit::ScenarioOptions;
using Run = std::function<void(Scenario&)>;
using Tokens = std::vector<int64_t>;

ScenarioOptions Options(uint32_t flags) {
  ScenarioOptions options;
  options.engine_flags |= flags;
  return options;
}

const Tokens kEight = {11, 12, 13, 14, 15, 16, 17, 18};

// What makes a request's equal tokens unequal; kind 0: nothing.
struct Mark {
  uint32_t kind = 0;
  int64_t value = 0;
  int64_t first = 0;
  int64_t count = 9;
};

void Add(Scenario& s, const Mark& mark) {
  if (mark.kind != 0) s.Domain(mark.kind, mark.value, mark.first, mark.count);
}

// a writes eight tokens to blocks 1 and 2, and ends if `ends`; then b hits both with these tokens.
Run Hit(Tokens tokens, Mark of_a = {}, Mark of_b = {}, bool ends = false) {
  return [=](Scenario& s) {
    s.Admit("a", {{1, 2, 3}}).Tokens(kEight);
    Add(s, of_a);
    s.Schedule("a", 8).Step();
    if (ends) s.Finish("a").Step();
    Tokens known = tokens;
    known.push_back(99);
    s.Admit("b", {{1, 2, 4}}, 8).Tokens(known);
    Add(s, of_b);
    s.Schedule("b", 1).Step();
  };
}

Tokens With(size_t index, int64_t token) {
  Tokens tokens = kEight;
  tokens[index] = token;
  return tokens;
}

// a is bound to blocks 1 and 2 and is scheduled for `tokens` in the step in which b hits block 1,
// or ends before.
Run Unfilled(int64_t tokens, bool ends) {
  return [=](Scenario& s) {
    s.Admit("a", {{1, 2}}).Tokens(kEight);
    if (ends && tokens > 0) s.Schedule("a", tokens);
    if (ends) s.Step();
    if (ends) s.Finish("a");
    if (!ends && tokens > 0) s.Schedule("a", tokens);
    s.Admit("b", {{1, 4}}, 4).Tokens({11, 12, 13, 14, 99}).Schedule("b", 1).Step();
  };
}

// a has six tokens and samples two; b hits the block that they complete.
Run Sampled(Tokens told, Tokens tokens) {
  return [=](Scenario& s) {
    s.Admit("a", {{1, 2, 3}}).Tokens({11, 12, 13, 14, 15, 16}).Schedule("a", 6).Step();
    for (int i = 0; i < 2; ++i) {
      const Tokens one = told.empty() ? Tokens{} : Tokens{told[static_cast<size_t>(i)]};
      s.Outcome(s.step(), "a", 1, 0, one);
      s.Schedule("a", 1).Step();
    }
    Tokens known = tokens;
    known.push_back(99);
    s.Admit("b", {{1, 2, 4}}, 8).Tokens(known).Schedule("b", 1).Step();
  };
}

// Block 1 was filled before the stream began.
Run Readers(Tokens second) {
  return [=](Scenario& s) {
    s.Admit("b", {{1, 4}}, 4).Tokens({11, 12, 13, 14, 99}).Schedule("b", 1).Step();
    s.Admit("c", {{1, 5}}, 4).Tokens(second).Schedule("c", 1).Step();
  };
}

Run LoadedFor(Tokens tokens) {
  return [=](Scenario& s) {
    s.Admit("a", {{1, 2, 3}}).Tokens(kEight).Schedule("a", 1).Step();
    s.Blocks(KVGUARD_EVENT_LOAD, "a", {2}, 7, 4).Blocks(KVGUARD_EVENT_LOAD_DONE, "a", {}, 7);
    s.Computed("a") = 8;
    s.Schedule("a", 1, 0, 1).Begin();
    s.Computed("a") = 1;
    s.Plan(s.RightPlan());
    s.End();
    Tokens known = tokens;
    known.push_back(99);
    s.Admit("b", {{6, 2, 4}}, 8).Tokens(known).Schedule("b", 1).Step();
  };
}

const std::map<std::string, PlantedScenario>& All() {
  const ScenarioOptions o = Options(0);
  const ScenarioOptions connector = Options(KVGUARD_ENGINE_CONNECTOR);
  const auto marked = [](uint32_t kind, int64_t value, int64_t first = 0, int64_t count = 9) {
    return Mark{kind, value, first, count};
  };
  constexpr uint32_t kLora = KVGUARD_DOMAIN_LORA;
  constexpr uint32_t kImage = KVGUARD_DOMAIN_MULTIMODAL;
  static const std::map<std::string, PlantedScenario> all = {
      {"same-tokens", {o, Hit(kEight)}},
      {"other-tokens", {o, Hit(With(2, 77))}},
      {"other-token-before-the-block",
       {o,
        [](Scenario& s) {
          s.Admit("a", {{1, 2, 3}}).Tokens(kEight).Schedule("a", 8).Step();
          s.Admit("c", {{6, 7}}).Tokens(With(0, 77)).Schedule("c", 8).Step();
          Tokens known = With(0, 77);
          known.push_back(99);
          s.Admit("b", {{6, 2, 4}}, 8).Tokens(known).Schedule("b", 1).Step();
        }}},
      {"other-token-behind-the-block",
       {o,
        [](Scenario& s) {
          s.Admit("a", {{1, 2, 3}}).Tokens(kEight).Schedule("a", 8).Step();
          s.Admit("b", {{1, 4}}, 4).Tokens({11, 12, 13, 14, 77}).Schedule("b", 1).Step();
        }}},
      {"other-lora", {o, Hit(kEight, marked(kLora, 1), marked(kLora, 2))}},
      {"same-lora", {o, Hit(kEight, marked(kLora, 1), marked(kLora, 1))}},
      {"other-image", {o, Hit(kEight, marked(kImage, 1, 5, 3), marked(kImage, 2, 5, 3))}},
      {"image-elsewhere", {o, Hit(kEight, marked(kImage, 1, 4, 4), marked(kImage, 1, 5, 3))}},
      {"image-behind-the-block",
       {o, Hit(kEight, marked(kImage, 1, 8, 3), marked(kImage, 2, 8, 3))}},
      {"other-embedding",
       {o, Hit(kEight, marked(KVGUARD_DOMAIN_PROMPT_EMBEDS, 1, 0, 8),
               marked(KVGUARD_DOMAIN_PROMPT_EMBEDS, 2, 0, 8))}},
      {"other-salt",
       {o, Hit(kEight, marked(KVGUARD_DOMAIN_SALT, 1), marked(KVGUARD_DOMAIN_SALT, 2))}},
      {"after-the-writer", {o, Hit(kEight, {}, {}, true)}},
      {"after-the-writer-other-token", {o, Hit(With(7, 77), {}, {}, true)}},
      {"unwritten", {o, Unfilled(0, true)}},
      {"half-written", {o, Unfilled(2, true)}},
      {"written-in-this-step", {o, Unfilled(4, false)}},
      {"not-filled-by-this-step", {o, Unfilled(3, false)}},
      {"sampled-tokens", {o, Sampled({17, 18}, kEight)}},
      {"other-sampled-token", {o, Sampled({17, 18}, With(7, 77))}},
      {"sampled-tokens-not-told", {o, Sampled({}, With(7, 77))}},
      {"second-reader-disagrees", {o, Readers({11, 12, 13, 77, 99})}},
      {"second-reader-agrees", {o, Readers({11, 12, 13, 14, 98})}},
      {"loaded-for-others", {connector, LoadedFor(With(6, 77))}},
      {"loaded-for-the-same", {connector, LoadedFor(kEight)}},
  };
  return all;
}

TEST(Content, EveryPlantedFaultIsFoundAtItsFirstBadStep) {
  CheckPlantedList("content_faults.txt", All());
}

TEST(Content, WhatTheFirstReaderSaysIsAnAssumption) {
  Scenario s;
  Readers({11, 12, 13, 14, 98})(s);
  EXPECT_EQ(s.verdict().assumptions, 1u);
}

// A snapshot taken by the engine keeps what blocks hold.
TEST(Content, ASnapshotKeepsNames) {
  Scenario s;
  s.Admit("a", {{1, 2, 3}}).Tokens(kEight).Schedule("a", 8).Step();
  s.Admit("d", {{5, 6}}).Tokens({31, 32, 33, 34}).Schedule("d", 4).Step();
  s.Finish("d").Step();
  ASSERT_EQ(s.Restore(s.Snapshot()), KVGUARD_OK) << s.error();
  Tokens known = With(2, 77);
  known.push_back(99);
  s.Admit("b", {{1, 2, 4}}, 8).Tokens(known).Schedule("b", 1);
  s.Admit("c", {{5, 7}}, 4).Tokens({31, 32, 33, 35, 36}).Schedule("c", 1).Step();
  const std::vector<uint32_t> codes = s.Codes();
  EXPECT_EQ(codes, (std::vector<uint32_t>{rules::kContentMismatch, rules::kContentMismatch}))
      << s.Report();
}

}  // namespace
}  // namespace kvguard::tests
