// SPDX-License-Identifier: Apache-2.0
// Traps of what requests share and hand on to each other.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "rules/catalog.h"
#include "tests/traps/trap_test.h"

namespace kvguard::tests {
namespace {

using audit::Scenario;
using audit::ScenarioOptions;
using audit::ScenarioPlan;

// --- 1: sharing a prefix; only writers are exclusive ---

TEST(Trap1Sharing, ManyRowsShowOneBlock) {
  Scenario s;
  s.Admit("a", {{1, 2, 3}}).Schedule("a", 9).Step();
  for (int64_t i = 0; i < 10; ++i) {
    const std::string name = Nth("b", i);
    s.Admit(name, {{1, 2, 10 + i}}, 8).Schedule(name, 1);
  }
  s.Step();
  for (int64_t i = 0; i < 10; ++i) s.Schedule(Nth("b", i), 1);
  s.Schedule("a", 1).Step();
  ExpectClean(s);
}

TEST(Trap1Sharing, StartsInTheStepThatWritesTheBlockWriterFirst) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 6);
  s.Admit("b", {{1, 3}}, 4).Schedule("b", 3).Step();
  ExpectClean(s);
}

TEST(Trap1Sharing, StartsInTheStepThatWritesTheBlockReaderFirst) {
  Scenario s;
  s.Admit("b", {{1, 3}}, 4).Schedule("b", 3);
  s.Admit("a", {{1, 2}}).Schedule("a", 6).Step();
  s.Schedule("a", 1).Schedule("b", 1).Step();
  ExpectClean(s);
}

TEST(Trap1Sharing, ManyReadersStandOnBothSidesOfTheWriter) {
  Scenario s;
  s.Admit("r1", {{1, 2, 11}}, 8).Schedule("r1", 1);
  s.Admit("r2", {{1, 12}}, 4).Schedule("r2", 2);
  s.Admit("w", {{1, 2, 3}}).Schedule("w", 9);
  s.Admit("r3", {{1, 2, 13}}, 8).Schedule("r3", 1);
  s.Step();
  ExpectClean(s);
}

// A new request hits the block that a running one gets and fills in this very step. A scheduler's
// output lists new requests before the blocks of running ones.
TEST(Trap1Sharing, ANewRequestHitsTheAppendOfTheSameStep) {
  for (const bool append_first : {false, true}) {
    Scenario s;
    s.Admit("a", {{1}}).Schedule("a", 4).Step();
    if (append_first) s.Append("a", {2});
    s.Admit("b", {{1, 2, 3}}, 8);
    if (!append_first) s.Append("a", {2});
    s.Schedule("a", 4).Schedule("b", 2).Step();
    ExpectClean(s);
  }
}

// The writer of a shared block ends; the readers go on, and later readers come.
TEST(Trap1Sharing, OutlivesTheWriter) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 6).Step();
  s.Admit("b", {{1, 3}}, 4).Schedule("b", 1).Finish("a").Step();
  s.Admit("c", {{1, 2}}, 4).Schedule("c", 1).Schedule("b", 1).Step();  // block 2: free, so fresh
  s.Finish("b").Finish("c").Admit("d", {{1, 3}}, 4).Schedule("d", 1).Step();
  s.Finish("d").Admit("e", {{3, 1}}).Schedule("e", 8).Step();  // and at last nobody holds it
  ExpectClean(s);
}

TEST(Trap1Sharing, AReaderThatEndsTakesNothingFromTheWriter) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 5).Step();
  s.Admit("b", {{1, 3}}, 4).Schedule("b", 1).Schedule("a", 1).Step();
  s.Preempt("b").Schedule("a", 1).Step();
  s.Admit("b", {{1, 3}}, 4).Schedule("b", 2).Schedule("a", 1).Step();
  ExpectClean(s);
}

TEST(Trap1Sharing, WritersAreExclusive) {
  CheckTrap(ScenarioOptions{}, rules::kBlockOwned, [](Scenario& s, bool wrong) {
    s.Admit("a", {{1, 2}}).Schedule("a", 6).Step();
    s.Admit("b", {{1, wrong ? 2 : 3}}, 4).Schedule("b", 3).Schedule("a", 1).Step();
  });
}

// Recurrent groups: the state at a boundary is shared, what each leaves behind is its own.
TEST(Trap1Sharing, ManyRequestsGoOnFromOneState) {
  for (const uint32_t mode : {KVGUARD_STATE_ALL, KVGUARD_STATE_ALIGN}) {
    CheckTrap(WithStates(mode), rules::kStateTargetMismatch, [](Scenario& s, bool wrong) {
      s.Admit("p", {{1, 2, 3}, {6, 7}}).Schedule("p", 8).Step();
      s.Append("p", {8}, 1).Schedule("p", 1);
      for (int64_t i = 0; i < 4; ++i) {
        s.Admit(Nth("r", i), {{1, 2, 10 + i}, {0, 7, 20 + i}}, 8).Schedule(Nth("r", i), 2);
      }
      s.Step([=](ScenarioPlan& p) {
        EXPECT_EQ(p.groups[1].in, std::vector<int64_t>(5, 7));
        if (wrong) p.groups[1].out[3] = 7;
      });
      if (wrong) return;
      for (int64_t i = 0; i < 4; ++i) s.Schedule(Nth("r", i), 1);
      s.Finish("p").Step();
    });
  }
}

// --- 5: what ends in a step gives its blocks to what starts in it ---

TEST(Trap5Reuse, AFinishedRequestsBlocksGoToANewOne) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 6).Step();
  s.Finish("a").Admit("b", {{2, 1}}).Schedule("b", 7).Step();
  ExpectClean(s);
}

TEST(Trap5Reuse, APreemptedRequestsBlocksGoToARunningOne) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 6).Admit("b", {{3}}).Schedule("b", 4).Step();
  s.Preempt("a").Append("b", {2}).Schedule("b", 1).Step();
  ExpectClean(s);
}

TEST(Trap5Reuse, APreemptedRequestComesBackInTheSameStep) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 6).Step();
  s.Preempt("a").Admit("a", {{2, 1}}).Schedule("a", 7).Step();
  ExpectClean(s);
}

TEST(Trap5Reuse, AResumedRequestHitsWhatItWroteItself) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 6).Admit("b", {{3}}).Schedule("b", 1).Step();
  s.Preempt("a").Schedule("b", 1).Step();
  s.Admit("a", {{1, 4}}, 4).Schedule("a", 3).Schedule("b", 1).Step();
  s.Schedule("a", 1).Step();
  ExpectClean(s);
}

TEST(Trap5Reuse, ABlockChangesHandsInEveryStep) {
  Scenario s;
  for (int i = 0; i < 50; ++i) {
    if (i > 0) s.Finish("r");
    s.Admit("r", {{1, 2}}).Schedule("r", 5 + i % 4).Step();
  }
  ExpectClean(s);
}

TEST(Trap5Reuse, WhatHasNotEndedGivesNothing) {
  for (const bool late : {false, true}) {
    CheckTrap(ScenarioOptions{}, rules::kBlockOwned, [=](Scenario& s, bool wrong) {
      s.Admit("a", {{1, 2}}).Schedule("a", 6).Step();
      if (!wrong) s.Finish("a");
      s.Admit("b", {{2, 1}}).Schedule("b", 7);
      if (wrong && late) s.Finish("a");
      s.Step();
    });
  }
}

TEST(Trap5Reuse, APreemptedRequestsStateStartsAnew) {
  for (const uint32_t mode : {KVGUARD_STATE_NONE, KVGUARD_STATE_ALL, KVGUARD_STATE_ALIGN}) {
    CheckTrap(WithStates(mode), rules::kStateUninitialised, [](Scenario& s, bool wrong) {
      s.Admit("a", {{1, 2}, {6, 7}}).Schedule("a", 6).Step();
      s.Preempt("a").Admit("b", {{2}, {7}}).Schedule("b", 3).Step();
      s.Finish("b").Admit("a", {{2, 1}, {7, 6}}).Schedule("a", 7).Step([=](ScenarioPlan& p) {
        EXPECT_EQ(p.groups[1].init[0], 1);
        if (wrong) p.groups[1].init[0] = 0;
      });
      if (!wrong) s.Schedule("a", 1).Step();
    });
  }
}

// --- 9: keys and names ---

TEST(Trap9Keys, AnAbortBeforeTheFirstScheduleIsCounted) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 6).Finish("never-seen").Preempt("nor-this").Step();
  ExpectClean(s);
  EXPECT_EQ(s.verdict().ignored, 2u);
}

TEST(Trap9Keys, FinishedTwiceIsCounted) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 6).Step();
  s.Finish("a").Finish("a").Admit("b", {{1}}).Schedule("b", 1).Step();
  ExpectClean(s);
  EXPECT_EQ(s.verdict().ignored, 1u);
}

// Streaming input: the request comes again as new, with the row that it had.
TEST(Trap9Keys, ALiveNameIsAdmittedAgainWithItsOwnBlocks) {
  Scenario s;
  s.Admit("a", {{1, 2}}).Schedule("a", 6).Admit("b", {{7}}).Schedule("b", 1).Step();
  s.Finish("a").Admit("a", {{1, 2, 3}}, 6).Schedule("a", 5).Schedule("b", 1).Step();
  s.Schedule("a", 1).Step();
  ExpectClean(s);
}

TEST(Trap9Keys, AKeyThatIsNotKnownMayOnlyEnd) {
  CheckTrap(ScenarioOptions{}, rules::kRequestUnknown, [](Scenario& s, bool wrong) {
    s.Admit("a", {{1, 2}}).Schedule("a", 6).Step();
    s.Finish("a").Finish("never-seen").Admit("b", {{1}}).Schedule("b", 1);
    if (wrong) s.Schedule("a", 1);
    s.Step();
  });
}

TEST(Trap9Keys, ALiveNameIsAdmittedAgainWithItsState) {
  for (const uint32_t mode : {KVGUARD_STATE_NONE, KVGUARD_STATE_ALL, KVGUARD_STATE_ALIGN}) {
    CheckTrap(WithStates(mode), rules::kStateMismatch, [](Scenario& s, bool wrong) {
      s.Admit("a", {{1, 2}, {6, 7}}).Schedule("a", 6).Admit("b", {{5}, {8}}).Schedule("b", 1);
      s.Step();
      s.Finish("a").Admit("a", {{1, 2, 3}, {6, 7, 9}}, 6).Schedule("a", 5).Schedule("b", 1);
      s.Step([=](ScenarioPlan& p) {
        if (wrong) p.groups[1].in[0] = 8;
      });
      if (!wrong) s.Schedule("a", 1).Step();
    });
  }
}

// --- 10: the last token is computed again ---

// All of the prompt was loaded: its last token is computed again, in a block that others share.
TEST(Trap10LastToken, IsWrittenAgainIntoASharedBlock) {
  Scenario s(Engine(KVGUARD_ENGINE_CONNECTOR));
  s.Admit("a", {{1, 2}}, 7).Schedule("a", 1).Step();
  s.Admit("b", {{1, 2}}, 7).Schedule("b", 1).Append("a", {3}).Schedule("a", 1).Step();
  EXPECT_EQ(s.verdict().verdict, static_cast<uint32_t>(KVGUARD_CLEAN)) << s.Report();
  EXPECT_EQ(s.verdict().must_raise, 0u);
  EXPECT_EQ(s.verdict().proofs, 0u);
  for (const kvguard_finding& finding : s.Findings())
    EXPECT_EQ(finding.grade, static_cast<uint32_t>(KVGUARD_GRADE_SUSPICION));
}

// The same of a block that a connector filled unsaid: where it belongs, its holder says.
TEST(Trap10LastToken, IsWrittenAgainIntoABlockThatAConnectorFilled) {
  Scenario s(Engine(KVGUARD_ENGINE_CONNECTOR));
  s.Admit("a", {{1, 2, 3}}).Schedule("a", 8).Step();
  s.Finish("a").Admit("b", {{1, 2, 4}}, 8).Tokens({1, 2, 3, 4, 5, 6, 7, 8, 9}).Schedule("b", 1);
  s.Step();
  s.Admit("c", {{1, 2}}, 7).Tokens({1, 2, 3, 4, 5, 6, 7, 8}).Schedule("c", 1).Step();
  ExpectClean(s);
}

// ... and a fault all the same where nobody holds it in that column.
TEST(Trap10LastToken, InABlockOfAnotherColumnIsAFault) {
  Scenario s(Engine(KVGUARD_ENGINE_CONNECTOR));
  s.Admit("a", {{2, 1, 3}}).Schedule("a", 8).Step();
  s.Finish("a").Admit("b", {{2, 1, 4}}, 8).Tokens({1, 2, 3, 4, 5, 6, 7, 8, 9}).Schedule("b", 1);
  s.Step();
  s.Admit("c", {{7, 2}}, 7).Tokens({9, 9, 9, 9, 5, 6, 7, 8}).Schedule("c", 1).Step();
  EXPECT_NE(s.Report(), "");
  EXPECT_EQ(s.verdict().suspicions > 0, true);
}

// --- 12: copies on write ---

// Of an engine that never says that a copy was done.
TEST(Trap12Copy, APartialHitContinuesInItsPrivateCopy) {
  Scenario s(Engine(KVGUARD_ENGINE_PARTIAL_HITS));
  s.Admit("a", {{1, 2}}).Schedule("a", 7).Step();
  s.Blocks(KVGUARD_EVENT_COPY, "", {2, 3});
  s.Admit("b", {{1, 3}}, 6).Schedule("b", 1).Schedule("a", 1).Step();
  ExpectClean(s);
}

// Tokens before the frontier that the request never wrote: the copy brought them.
TEST(Trap12Copy, WhatNobodyWroteIsThereOnceItWasCopied) {
  CheckTrap(Engine(KVGUARD_ENGINE_PARTIAL_HITS), rules::kUsedBeforeCopied,
            [](Scenario& s, bool wrong) {
              s.Admit("a", {{1, 2}}).Schedule("a", 7).Step();
              s.Blocks(KVGUARD_EVENT_COPY, "", {2, 3}).Blocks(KVGUARD_EVENT_COPY_DONE, "", {2, 3});
              s.Admit("b", {{1, 3}}, 6).Schedule("b", 1).Schedule("a", 1).Step();
              s.Blocks(KVGUARD_EVENT_COPY, "", {2, 4});
              if (!wrong) s.Blocks(KVGUARD_EVENT_COPY_DONE, "", {2, 4});
              s.Admit("c", {{1, 4}}, 6).Schedule("c", 1).Schedule("b", 1).Step();
            });
}

TEST(Trap12Copy, TheSourceIsKeptOrGoesOn) {
  Scenario s(Engine(KVGUARD_ENGINE_PARTIAL_HITS));
  s.Admit("a", {{1, 2}}).Schedule("a", 7).Step();
  s.Finish("a").Blocks(KVGUARD_EVENT_COPY, "", {2, 3});
  s.Blocks(KVGUARD_EVENT_COPY_DONE, "", {2, 3}).Admit("b", {{1, 3}}, 6).Schedule("b", 1).Step();
  for (int i = 0; i < 5; ++i) s.Append("b", {5 + i}).Schedule("b", 4).Step();  // 2 stays away
  s.Admit("c", {{2}}).Schedule("c", 1).Step();
  ExpectClean(s);
}

// --- 32: siblings ---

TEST(Trap32Siblings, ChildrenOfOnePromptShareItsFullBlocksOnly) {
  Scenario s;
  s.Admit("0_p", {{1, 2}}).Schedule("0_p", 6);
  s.Admit("1_p", {{1, 3}}, 4).Schedule("1_p", 2);
  s.Admit("2_p", {{1, 4}}, 4).Schedule("2_p", 2).Step();
  for (int i = 0; i < 2; ++i) s.Schedule("0_p", 1).Schedule("1_p", 1).Schedule("2_p", 1).Step();
  s.Finish("0_p").Schedule("1_p", 1).Append("1_p", {5}).Step();
  s.Finish("1_p").Schedule("2_p", 1).Append("2_p", {3}).Step();
  ExpectClean(s);
}

TEST(Trap32Siblings, AForkedBeamWritesIntoABlockOfItsOwn) {
  CheckTrap(ScenarioOptions{}, rules::kBlockOwned, [](Scenario& s, bool wrong) {
    s.Admit("p", {{1, 2}}).Schedule("p", 6).Step();
    for (int i = 0; i < 3; ++i) {
      const std::string beam = Nth("beam", i);
      s.Admit(beam, {{1, wrong && i == 2 ? 2 : 3 + i}}, 4).Schedule(beam, 2);
    }
    s.Schedule("p", 1).Step();
    if (wrong) return;
    // The parent is pruned; one that goes on gets what it gives back.
    s.Finish("p").Finish("beam1").Schedule("beam0", 1).Admit("beam3", {{1, 2}}, 4);
    s.Schedule("beam3", 3).Step();
  });
}

TEST(Trap32Siblings, ChildrenGoOnFromTheStateOfTheirPrompt) {
  CheckTrap(WithStates(KVGUARD_STATE_ALIGN), rules::kBlockOwned, [](Scenario& s, bool wrong) {
    s.Admit("p", {{1, 2}, {6}}).Schedule("p", 4).Step();
    s.Append("p", {7}, 1).Schedule("p", 2).Step();
    s.Admit("c", {{1, 3}, {6, wrong ? 7 : 8}}, 4).Schedule("c", 2);
    s.Admit("d", {{1, 4}, {6, 9}}, 4).Schedule("d", 2).Schedule("p", 1).Step();
    if (!wrong) s.Finish("p").Schedule("c", 1).Schedule("d", 1).Step();
  });
}

}  // namespace
}  // namespace kvguard::tests
