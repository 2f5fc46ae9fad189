// SPDX-License-Identifier: Apache-2.0
// Corners of transfers: states, encoders and hosts among them, loads that fail in part, blocks that
// others hold or write.
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "audit/scenario.h"
#include "rules/catalog.h"
#include "tests/rules/values.h"

namespace kvguard::tests {
namespace {

using audit::Scenario;
using audit::ScenarioGroup;
using audit::ScenarioOptions;

size_t Count(const Scenario& s, uint32_t code) {
  const std::vector<kvguard_finding> found = s.Findings();
  return static_cast<size_t>(std::count_if(
      found.begin(), found.end(), [&](const kvguard_finding& f) { return f.code == code; }));
}

ScenarioOptions Connector() {
  ScenarioOptions options;
  options.engine_flags |= KVGUARD_ENGINE_CONNECTOR | KVGUARD_ENGINE_FILLS_TOLD;
  return options;
}

enum class Other { kStates, kCross, kHost };

// Attention beside a group of another kind; both may share a pool.
ScenarioOptions Beside(Other other, uint32_t pool = 1) {
  ScenarioGroup group;
  group.pool = pool;
  if (other == Other::kStates) {
    group.kind = KVGUARD_GROUP_STATE;
    group.state_mode = KVGUARD_STATE_ALIGN;
  } else if (other == Other::kCross) {
    group.kind = KVGUARD_GROUP_CROSS;
  } else {
    group.host = true;
  }
  ScenarioOptions options = Connector();
  options.groups.push_back(group);
  options.max_drafts = 2;
  if (other == Other::kCross) options.engine_flags |= KVGUARD_ENGINE_ENCODER;
  return options;
}

// --- where transfers are placed ---

// Which columns a transfer of states or of an encoder's output names differs by engine.
TEST(TransferCorners, TransfersOfStatesAndEncodersAreNotPlaced) {
  for (const Other other : {Other::kStates, Other::kCross, Other::kHost}) {
    for (const uint32_t kind : {KVGUARD_EVENT_LOAD, KVGUARD_EVENT_SEND_PENDING}) {
      for (const bool late : {false, true}) {
        Scenario s(Beside(other));
        s.Expect("a");
        if (late) s.Blocks(kind, "a", {50}, 7, 0, 1).Step();
        s.Admit("a", {{1, 2}, {31, 32}}, 4);
        if (!late) s.Blocks(kind, "a", {50}, 7, 0, 1);
        s.Begin();
        const bool found = other == Other::kHost && !(late && kind == KVGUARD_EVENT_SEND_PENDING);
        EXPECT_EQ(Count(s, rules::kTransferMisplaced), found ? 1u : 0u)
            << kind << late << s.Report();
      }
    }
  }
}

// --- loads over what others hold ---

// What somebody else has computed is not loaded over; the first of his columns, and of the load's
// blocks, is told.
TEST(TransferCorners, ALoadOverWhatAnotherHasComputedSaysWhere) {
  Scenario s(Connector());
  s.Admit("a", {{1}}).Admit("b", {{5, 6, 5, 9}}).Schedule("b", 12).Step();  // 0203: 5 stands twice
  s.Blocks(KVGUARD_EVENT_LOAD, "a", {1, 6, 5}, 7).Step();
  EXPECT_EQ(Only(s, rules::kLoadOverwrites).pos, 4);
  s.Blocks(KVGUARD_EVENT_LOAD, "a", {1, 5}, 8).Begin();
  const auto found = s.Findings();
  const auto last = std::find_if(found.rbegin(), found.rend(), [](const kvguard_finding& f) {
    return f.code == rules::kLoadOverwrites;
  });
  ASSERT_NE(last, found.rend());
  EXPECT_EQ(last->request, s.Key("a"));
  EXPECT_EQ(last->group, 0u);
  EXPECT_EQ(last->pos, 0);
  EXPECT_EQ(last->observed, 5);
  EXPECT_EQ(last->victim, s.Key("b"));
}

// A column from which on nothing is computed holds nothing, nor does the null block or what is out
// of the pool.
TEST(TransferCorners, WhatHoldsNothingIsLoadedOver) {
  struct {
    std::vector<int64_t> row;
    int64_t computed;
    int64_t block;
    bool found;
  } const cases[] = {{{5, 6}, 8, 6, true},  {{5, 6}, 5, 6, true},  {{5, 6}, 4, 6, false},
                     {{5, 6}, 1, 5, true},  {{5, 0}, 8, 0, false}, {{5, 64}, 8, 64, false},
                     {{5, 6}, 8, 20, false}};
  for (const auto& [row, computed, block, found] : cases) {
    Scenario s(Connector());
    s.Admit("a", {{1}}).Admit("b", {row}).Schedule("b", computed).Step();
    s.Blocks(KVGUARD_EVENT_LOAD, "a", {block}, 7).Begin();
    EXPECT_EQ(Count(s, rules::kLoadOverwrites), found ? 1u : 0u) << block << s.Report();
  }
}

TEST(TransferCorners, OnlyALoadThatNamesItsRequestLoadsOverOthers) {
  for (const bool named : {true, false}) {
    Scenario s(Connector());
    s.Admit("a", {{1}}).Admit("b", {{5}}).Schedule("b", 4).Step();
    s.Blocks(KVGUARD_EVENT_LOAD, named ? "a" : "", {5}, 7).Begin();
    EXPECT_EQ(Count(s, rules::kLoadOverwrites), named ? 1u : 0u) << s.Report();
  }
}

// Loads of states, of an encoder's output and of the host are not judged, whoever holds the block
// as tokens.
TEST(TransferCorners, LoadsOfOtherGroupsOverTokensAreNotJudged) {
  for (const Other other : {Other::kStates, Other::kCross}) {
    for (const uint32_t group : {0u, 1u}) {
      Scenario s(Beside(other, 0));
      s.Admit("a", {{1}, {31}}).Admit("b", {{5}, {32}}).Schedule("b", 4).Step();
      s.Blocks(KVGUARD_EVENT_LOAD, "a", {5}, 7, 0, group).Begin();
      EXPECT_EQ(Count(s, rules::kLoadOverwrites), group == 0 ? 1u : 0u) << s.Report();
    }
  }
  Scenario s(Beside(Other::kHost));
  s.Admit("a", {{1}, {31}}).Admit("b", {{5}, {32}}).Schedule("b", 4).Step();
  s.Blocks(KVGUARD_EVENT_LOAD, "a", {32}, 7, 0, 1).Begin();
  EXPECT_EQ(Count(s, rules::kLoadOverwrites), 0u) << s.Report();
}

// A block that its holder has as a state besides is told where it stands as tokens.
TEST(TransferCorners, ALoadOverABlockThatIsAStateTooSaysWhereItsTokensAre) {
  ScenarioOptions options = Beside(Other::kStates, 0);
  std::swap(options.groups[0], options.groups[1]);
  options.groups[0].state_mode = KVGUARD_STATE_NONE;
  Scenario s(options);
  s.Admit("a", {{31}, {1}}).Admit("b", {{5}, {6, 5}}).Schedule("b", 8).Step();
  s.Blocks(KVGUARD_EVENT_LOAD, "a", {5}, 7, 0, 1).Begin();
  EXPECT_EQ(Only(s, rules::kLoadOverwrites).pos, 4);
}

// --- what a transfer leaves ---

// Of 5, 6 and 7, which are loaded for columns 0 to 2, a load that fails names `failed`. A filled
// block belongs where it was loaded for.
TEST(TransferCorners, WhatAFailedLoadDoesNotNameIsFilled) {
  struct {
    std::vector<int64_t> failed;
    std::vector<int64_t> filled;
  } const cases[] = {{{5}, {6, 7}}, {{6}, {5, 7}}, {{7, 5}, {6}}, {{5, 6, 7}, {}}, {{}, {}}};
  for (const auto& [failed, filled] : cases) {
    for (const int64_t block : {5, 6, 7}) {
      ScenarioOptions options;
      options.engine_flags |= KVGUARD_ENGINE_FILLS_TOLD;
      Scenario s(options);
      s.Blocks(KVGUARD_EVENT_LOAD, "", {5, 6, 7}, 1);
      s.Blocks(KVGUARD_EVENT_LOAD_FAILED, "", failed, 1).Step();
      s.Admit("b", {{20, 21, 22, block}}, 16).Begin();
      const bool is_filled = std::find(filled.begin(), filled.end(), block) != filled.end();
      EXPECT_EQ(Count(s, rules::kContentMisplaced), is_filled ? 1u : 0u) << block << s.Report();
    }
  }
}

// A reservation fills nothing, however it ends.
TEST(TransferCorners, AReservationFillsNothing) {
  for (const bool load : {true, false}) {
    ScenarioOptions options;
    Scenario s(options);
    s.Blocks(load ? KVGUARD_EVENT_LOAD : KVGUARD_EVENT_RESERVE, "", {5}, 1);
    s.Blocks(KVGUARD_EVENT_LOAD_DONE, "", {}, 1).Step();
    s.Admit("b", {{20, 5}}, 8).Begin();
    EXPECT_EQ(Count(s, rules::kContentMisplaced), load ? 1u : 0u) << s.Report();
  }
  for (const bool load : {true, false}) {
    Scenario s(Connector());
    s.Blocks(KVGUARD_EVENT_LOAD, "", {6}, 1);
    s.Blocks(KVGUARD_EVENT_LOAD_FAILED, "", {6}, 1).Step();  // 6 has lost its content
    s.Blocks(load ? KVGUARD_EVENT_LOAD : KVGUARD_EVENT_RESERVE, "", {5, 6}, 2);
    s.Blocks(KVGUARD_EVENT_LOAD_FAILED, "", {5}, 2).Step();
    s.Admit("b", {{20, 6, 7}}, 8).Schedule("b", 1).Begin();
    EXPECT_EQ(Count(s, rules::kFailedLoadUsed), load ? 0u : 1u) << s.Report();
  }
}

// A load of blocks that are none ends like any other.
TEST(TransferCorners, BlocksOutOfThePoolAreNotFilled) {
  Scenario s(Connector());
  s.Blocks(KVGUARD_EVENT_LOAD, "", {64, int64_t{1} << 40, -1}, 1);
  s.Blocks(KVGUARD_EVENT_LOAD_DONE, "", {}, 1);
  s.Begin();
  EXPECT_EQ(Count(s, rules::kBlockOutOfRange), 3u) << s.Report();
  EXPECT_EQ(s.Findings().size(), 3u) << s.Report();
}

// Where a loaded state belongs, of how many tokens it is and of which is not known.
TEST(TransferCorners, OfALoadedStateNothingIsKnown) {
  for (const bool loaded : {true, false}) {
    Scenario s(Beside(Other::kStates));
    s.Admit("a", {{1}, {31}}).Tokens({1, 2, 3, 4}).Schedule("a", 3).Step();
    if (loaded) {
      s.Blocks(KVGUARD_EVENT_LOAD, "a", {31}, 7, 0, 1).Step();
      s.Blocks(KVGUARD_EVENT_LOAD_DONE, "", {}, 7).Step();
    }
    s.Admit("b", {{1, 2, 3}, {0, 31}}, 8).Tokens({9, 9, 9, 9, 9, 9, 9, 9, 9}).Begin();
    size_t states = 0;
    for (const kvguard_finding& f : s.Findings()) states += f.group == 1;
    EXPECT_EQ(states, loaded ? 0u : 1u) << s.Report();
  }
  Scenario s(Beside(Other::kStates));
  s.Admit("a", {{1}, {31}}).Tokens({1, 2, 3, 4}).Schedule("a", 4).Step();
  s.Blocks(KVGUARD_EVENT_LOAD, "a", {40}, 7, 0, 1).Step();
  s.Blocks(KVGUARD_EVENT_LOAD_DONE, "", {}, 7).Step();
  s.Admit("b", {{20, 21}, {40, 41}}, 4).Tokens({9, 9, 9, 9, 9}).Begin();
  for (const kvguard_finding& f : s.Findings()) EXPECT_EQ(f.group, 0u) << s.Report();
}

// --- writes behind loads ---

// A step waits for its own loads and writes behind them, whatever else is being transferred.
TEST(TransferCorners, OtherTransfersDoNotKeepAStepFromWritingBehindItsLoad) {
  ScenarioOptions options = Connector();
  options.groups.push_back(ScenarioGroup{});
  options.groups[1].pool = 1;
  const auto load = [](Scenario& s, const char* who, int64_t block, int64_t id, uint32_t group,
                       uint32_t kind = KVGUARD_EVENT_LOAD) {
    s.Blocks(kind, who, {block}, id, 0, group);
  };
  for (const int others : {0, 1, 2, 3, 4}) {
    Scenario s(options);
    s.Expect("a").Expect("x");
    if (others == 1) load(s, "x", 9, 1, 0);                         // another block
    if (others == 2) load(s, "x", 1, 1, 1);                         // the same id in another pool
    if (others == 3) load(s, "a", 1, 1, 0, KVGUARD_EVENT_RESERVE);  // which forbids nothing
    if (others == 4) load(s, "x", 1, 1, 0);
    s.Step();
    load(s, "a", 1, 2, 0);
    s.Admit("a", {{1, 2}, {1, 2}}, 2);
    if (others == 2) s.Truncate("a", 0, 1).Append("a", {3, 4}, 1);
    s.Schedule("a", 1).Begin();
    size_t first = 0;
    for (const kvguard_finding& f : s.Findings())
      first += f.code == rules::kWriteWhilePinned && f.group == 0;
    EXPECT_EQ(first, others == 4 ? 1u : 0u) << others << s.Report();
  }
}

// --- who writes a block anew that has lost its content ---

// b counts on block 5, which has lost its content, as tokens; the encoder of w stands there too.
TEST(TransferCorners, AnEncoderThatIsWrittenInThisStepFillsItsBlocks) {
  struct {
    int64_t encoder;
    std::vector<int64_t> row;
    bool written;  // by an earlier step
    bool found;
  } const cases[] = {{4, {5}, false, false},   {1, {5}, false, false},    {4, {5}, true, true},
                     {4, {6, 5}, false, true}, {5, {6, 5}, false, false}, {4, {6}, false, true}};
  for (const auto& [encoder, row, written, found] : cases) {
    Scenario s(Beside(Other::kCross, 0));
    s.Admit("w", {{1, 2}, row}).Domain(KVGUARD_DOMAIN_ENCODER, 7, 0, encoder);
    if (written) s.Schedule("w", 1);
    s.Step([](audit::ScenarioPlan& p) { p.groups[1].present = false; });
    s.Blocks(KVGUARD_EVENT_LOAD, "", {5}, 1).Blocks(KVGUARD_EVENT_LOAD_FAILED, "", {5}, 1).Step();
    s.Admit("b", {{5, 9}, {}}, 4).Schedule("b", 1).Schedule("w", 1).Begin();
    EXPECT_EQ(Count(s, rules::kFailedLoadUsed), found ? 1u : 0u)
        << encoder << row.size() << written << s.Report();
  }
}

// A cross-attention group's own blocks are not judged, nor those of the host.
TEST(TransferCorners, WhatAnEncoderOrAHostLostIsNotJudged) {
  for (const Other other : {Other::kCross, Other::kHost}) {
    Scenario s(Beside(other));
    s.Admit("b", {{1, 2}, {31}}, 4);
    if (other == Other::kCross) s.Domain(KVGUARD_DOMAIN_ENCODER, 7, 0, 4);
    s.Step([](audit::ScenarioPlan& p) { p.groups[1].present = false; });
    s.Blocks(KVGUARD_EVENT_LOAD, "", {31}, 1, 0, 1);
    s.Blocks(KVGUARD_EVENT_LOAD_FAILED, "", {31}, 1).Schedule("b", 1).Begin();
    EXPECT_EQ(Count(s, rules::kFailedLoadUsed), 0u) << s.Report();
  }
}

// A request that starts from nothing leaves its states anew, in the columns that it writes; one
// that goes on does not.
TEST(TransferCorners, OnlyAFirstStateIsWrittenFromItsFirstToken) {
  struct {
    std::vector<int64_t> row;
    int64_t ran;  // tokens before
    int64_t tokens;
    uint32_t drafts;
    bool found;
  } const cases[] = {
      {{31, 32, 33}, 0, 3, 0, false}, {{31, 32, 33}, 0, 4, 0, false},
      {{31, 32, 33}, 0, 5, 0, true},  {{32, 31, 33}, 0, 5, 0, false},
      {{32, 31, 33}, 0, 4, 0, true},  {{31, 32, 33}, 1, 2, 0, true},
      {{32, 33, 31}, 0, 3, 2, false}, {{32, 33, 31}, 0, 3, 1, true},
      {{32, 31, 33}, 0, 3, 2, false},
  };
  for (const auto& [row, ran, tokens, drafts, found] : cases) {
    Scenario s(Beside(Other::kStates));
    s.Admit("w", {{1, 2}, row});
    if (ran > 0) s.Schedule("w", ran);
    s.Step();
    s.Blocks(KVGUARD_EVENT_LOAD, "", {31}, 1, 0, 1).Blocks(KVGUARD_EVENT_LOAD_FAILED, "", {31}, 1);
    s.Step();
    s.Admit("b", {{5, 9}, {31, 40}}, 4).Schedule("b", 1).Schedule("w", tokens, drafts).Begin();
    size_t of_b = 0;
    for (const kvguard_finding& f : s.Findings())
      of_b += f.code == rules::kFailedLoadUsed && f.request == s.Key("b");
    EXPECT_EQ(of_b, found ? 1u : 0u) << row[0] << ran << tokens << drafts << s.Report();
  }
}

}  // namespace
}  // namespace kvguard::tests
