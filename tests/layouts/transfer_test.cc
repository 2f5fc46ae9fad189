// SPDX-License-Identifier: Apache-2.0
// Transfers, zeroing, copies and frees: what happens to blocks beside the forward.
#include <gtest/gtest.h>

#include "rules/catalog.h"
#include "tests/layouts/planted.h"

namespace kvguard::tests {
namespace {

using audit::Scenario;
using audit::ScenarioOptions;
using Run = std::function<void(Scenario&)>;

constexpr uint32_t kReserve = KVGUARD_EVENT_RESERVE;
constexpr uint32_t kLoad = KVGUARD_EVENT_LOAD;
constexpr uint32_t kLoadDone = KVGUARD_EVENT_LOAD_DONE;
constexpr uint32_t kLoadFailed = KVGUARD_EVENT_LOAD_FAILED;
constexpr uint32_t kSend = KVGUARD_EVENT_SEND_PENDING;
constexpr uint32_t kSendDone = KVGUARD_EVENT_SEND_DONE;
constexpr uint32_t kZero = KVGUARD_EVENT_ZERO;
constexpr uint32_t kZeroDone = KVGUARD_EVENT_ZERO_DONE;
constexpr uint32_t kCopy = KVGUARD_EVENT_COPY;
constexpr uint32_t kCopyDone = KVGUARD_EVENT_COPY_DONE;

ScenarioOptions Options() {
  ScenarioOptions options;
  options.engine_flags |= KVGUARD_ENGINE_CONNECTOR | KVGUARD_ENGINE_PARTIAL_HITS;
  return options;
}

// Request a of 9 tokens, 8 of them loaded into blocks 1 and 2; done says when that was complete.
Run Loaded(bool done, uint32_t kind = kLoad) {
  return [=](Scenario& s) {
    s.Expect("a").Blocks(kind, "a", {1, 2}, 7).Step();
    if (done) s.Blocks(kLoadDone, "a", {}, 7);
    s.Admit("a", {{1, 2, 3}}, 8).Schedule("a", 1).Step();
  };
}

// a has 4 computed tokens in block 1 and goes on in `next`; block 1 and what else is being sent.
Run Sent(std::vector<int64_t> blocks, std::vector<int64_t> row, int64_t tokens) {
  return [=](Scenario& s) {
    s.Admit("a", {row}).Schedule("a", tokens).Step();
    s.Blocks(kSend, "a", blocks, 7).Schedule("a", 1).Step();
  };
}

// a ends, its block 1 is (or is not) released by the transfer, and b gets it.
Run HandedOut(bool released) {
  return [=](Scenario& s) {
    s.Admit("a", {{1}}).Schedule("a", 4).Step();
    s.Blocks(kSend, "a", {1}, 7).Finish("a").Step();
    if (released) s.Blocks(kSendDone, "", {}, 7);
    s.Admit("b", {{1}}).Schedule("b", 1).Step();
  };
}

// The same, handed to a transfer for b.
Run HandedToATransfer(uint32_t kind, bool released) {
  return [=](Scenario& s) {
    s.Admit("a", {{1}}).Schedule("a", 4).Step();
    s.Blocks(kSend, "a", {1}, 7).Finish("a").Step();
    if (released) s.Blocks(kSendDone, "", {}, 7);
    s.Expect("b").Blocks(kind, "b", {1}, 8).Step();
  };
}

// Window 8: of 16 computed tokens the columns before the third are not kept.
Run LoadedIntoAWindow(std::vector<int64_t> blocks) {
  return [=](Scenario& s) {
    s.Admit("a", {{1, 2, 3, 4, 5}}).Schedule("a", 16).Step();
    s.Blocks(kSend, "a", {0, 0, 3, 4}, 7).Schedule("a", 1).Step();
    s.Finish("a").Admit("b", {{0, 0, 3, 4, 6}}, 16).Step();
    s.Blocks(kLoad, "b", blocks, 8).Step();
  };
}

Run Cancelled(bool drained) {
  return [=](Scenario& s) {
    s.Expect("a").Blocks(kLoad, "a", {1}, 7).Step();
    s.Blocks(KVGUARD_EVENT_CANCEL, "a", {}, 7).Finish("a").Step();
    if (drained) s.Blocks(KVGUARD_EVENT_DRAIN, "", {}, 7);
    s.Admit("b", {{1}}).Schedule("b", 1).Step();
  };
}

Run LoadInto(std::vector<int64_t> blocks) {
  return [=](Scenario& s) {
    s.Admit("a", {{1, 2, 3}}).Blocks(kLoad, "a", blocks, 7).Blocks(kLoadDone, "a", {}, 7);
    s.Schedule("a", 9).Step();
  };
}

// 8 tokens of a are loaded, block 2 fails, and the scheduler goes on at `computed`.
Run Failed(int64_t computed) {
  return [=](Scenario& s) {
    s.Admit("a", {{1, 2, 3}}, 8).Blocks(kLoad, "a", {1, 2}, 7).Blocks(kLoadFailed, "a", {2}, 7);
    s.Computed("a") = computed;
    s.Schedule("a", 9 - computed, 0, computed).Step();
    s.Schedule("a", 1).Step();
  };
}

// 10 tokens were loaded into blocks 1, 2 and 3 for a or somebody who never came; then a counts
// them.
Run LoadedTail(const char* whose, int64_t zeroed, bool copied = false) {
  return [=](Scenario& s) {
    s.Expect("a").Expect("b").Blocks(kLoad, whose, {1, 2, 3}, 7).Step();
    s.Blocks(kLoadDone, "", {}, 7).Step();
    s.Admit("a", {{1, 2, 3, 4}}, 10);
    s.Blocks(kZero, "", {zeroed}).Blocks(kZeroDone, "", {zeroed});
    if (copied) s.Blocks(kCopy, "", {9, zeroed}).Blocks(kCopyDone, "", {9, zeroed});
    s.Schedule("a", 4).Step();
  };
}

Run Zeroed(bool done) {
  return [=](Scenario& s) {
    s.Admit("x", {{9}}).Blocks(kZero, "", {9}).Blocks(kZeroDone, "", {9}).Schedule("x", 1).Step();
    s.Admit("a", {{1, 2}}).Blocks(kZero, "", {1, 2}).Blocks(kZeroDone, "", {1});
    if (done) s.Blocks(kZeroDone, "", {2});
    s.Schedule("a", 5).Step();
  };
}

// a has 6 tokens in blocks 1 and 2; b shares block 1 and the first two tokens of block 2, which are
// copied to block 3.
Run Copied(std::vector<int64_t> row, std::vector<int64_t> pair, bool done) {
  return [=](Scenario& s) {
    s.Admit("x", {{9}}).Blocks(kCopy, "", {8, 9}).Blocks(kCopyDone, "", {8, 9});
    s.Schedule("x", 1).Step();
    s.Admit("a", {{1, 2}}).Schedule("a", 6).Step();
    s.Admit("b", {row}, 6).Blocks(kCopy, "", pair);
    if (done) s.Blocks(kCopyDone, "", pair);
    s.Schedule("b", 1).Step();
  };
}

Run Freed(bool finish, int times) {
  return [=](Scenario& s) {
    s.Admit("a", {{1, 2}}).Schedule("a", 6).Step();
    if (finish) s.Finish("a");
    for (int i = 0; i < times; ++i) s.Blocks(KVGUARD_EVENT_FREE, "", {1, 2});
    s.Admit("z", {{9}}).Schedule("z", 1).Step();
  };
}

const std::map<std::string, PlantedScenario>& All() {
  const ScenarioOptions o = Options();
  ScenarioOptions window = Options();
  window.groups[0].kind = KVGUARD_GROUP_WINDOW;
  window.groups[0].window = 8;
  static const std::map<std::string, PlantedScenario> all = {
      {"load-then-read", {o, Loaded(true)}},
      {"read-before-the-load-is-done", {o, Loaded(false)}},
      {"reserved-and-read", {o, Loaded(false, kReserve)}},
      {"write-into-a-sent-block", {o, Sent({1}, {1, 2}, 3)}},
      {"write-behind-a-sent-block", {o, Sent({1}, {1, 2}, 4)}},
      {"sent-block-handed-out", {o, HandedOut(false)}},
      {"sent-and-handed-out", {o, HandedOut(true)}},
      {"cancelled-block-handed-out", {o, Cancelled(false)}},
      {"drained-block-handed-out", {o, Cancelled(true)}},
      {"loading-block-for-its-own-request",
       {o,
        [](Scenario& s) {
          s.Expect("a").Blocks(kLoad, "a", {1, 2}, 7).Step();
          s.Admit("a", {{1, 2}}).Blocks(kLoadDone, "a", {}, 7).Schedule("a", 5).Step();
        }}},
      {"done-of-an-unknown-id",
       {o,
        [](Scenario& s) {
          s.Admit("a", {{1}}).Blocks(kLoadDone, "a", {}, 7).Schedule("a", 1).Step();
        }}},
      {"done-twice",
       {o,
        [](Scenario& s) {
          Sent({1}, {1, 2}, 4)(s);
          s.Blocks(kSendDone, "a", {}, 7).Blocks(kSendDone, "a", {}, 7).Schedule("a", 1).Step();
        }}},
      {"unknown-after-a-reset",
       {o,
        [](Scenario& s) {
          Sent({1}, {1, 2}, 4)(s);
          s.Reset(KVGUARD_RESET_SLEEP);
          s.Admit("b", {{1}}).Blocks(kSendDone, "", {}, 7).Schedule("b", 1).Step();
        }}},
      {"load-into-other-blocks", {o, LoadInto({2, 1})}},
      {"load-into-its-columns", {o, LoadInto({1, 2})}},
      {"load-before-admission-misplaced",
       {o,
        [](Scenario& s) {
          s.Expect("a").Blocks(kLoad, "a", {4, 5}, 7).Blocks(kLoadDone, "a", {}, 7).Step();
          s.Admit("a", {{1, 2, 3}}, 8).Schedule("a", 1).Step();
        }}},
      {"send-of-a-foreign-block",
       {o,
        [](Scenario& s) {
          s.Admit("b", {{5}}).Schedule("b", 1);
          s.Admit("a", {{1, 2}}).Schedule("a", 4).Step();
          s.Blocks(kSend, "a", {1, 5}, 7).Schedule("a", 1).Step();
        }}},
      {"failed-load-counted",
       {o,
        [](Scenario& s) {
          s.Admit("a", {{1, 2, 3}}, 8).Blocks(kLoad, "a", {1, 2}, 7);
          s.Blocks(kLoadFailed, "a", {2}, 7).Schedule("a", 1).Step();
        }}},
      {"failed-load-taken-back", {o, Failed(4)}},
      {"sent-block-reserved", {o, HandedToATransfer(kReserve, false)}},
      {"sent-and-reserved", {o, HandedToATransfer(kReserve, true)}},
      {"sent-block-loaded", {o, HandedToATransfer(kLoad, false)}},
      {"reserved-for-two",
       {o,
        [](Scenario& s) {
          s.Expect("a").Expect("b").Blocks(kReserve, "a", {1, 2}, 7).Step();
          s.Blocks(kLoad, "b", {2, 3}, 8).Step();
        }}},
      {"reserved-then-loaded",
       {o,
        [](Scenario& s) {
          s.Expect("a").Blocks(kReserve, "", {1, 2}, 7).Step();
          s.Blocks(kLoad, "a", {1, 2}, 7).Step();
          s.Blocks(kLoadDone, "a", {}, 7).Admit("a", {{1, 2, 3}}, 8).Schedule("a", 1).Step();
        }}},
      {"null-behind-the-window-in-transfers", {window, LoadedIntoAWindow({0, 0, 3, 4})}},
      {"null-block-loaded-in-a-needed-column", {window, LoadedIntoAWindow({0, 0, 0, 4})}},
      {"null-block-sent-and-loaded",
       {o,
        [](Scenario& s) {
          s.Admit("a", {{1, 2}}).Schedule("a", 8).Step();
          s.Blocks(kSend, "", {0, 2}, 7).Finish("a").Step();
          s.Expect("b").Blocks(kLoad, "b", {0, 3}, 8).Step();
        }}},
      {"sent-block-loaded-again-by-its-holder",
       {o,
        [](Scenario& s) {
          Sent({1}, {1, 2}, 4)(s);
          s.Finish("a").Admit("b", {{1, 3, 4}}, 8);
          s.Blocks(kLoad, "b", {1, 3}, 8).Blocks(kLoadDone, "b", {}, 8).Schedule("b", 1).Step();
        }}},
      {"id-used-twice",
       {o,
        [](Scenario& s) {
          Loaded(true)(s);
          s.Admit("b", {{4, 5}}).Blocks(kLoad, "b", {4}, 7).Schedule("b", 5).Step();
        }}},
      {"zeroed-and-used", {o, Zeroed(true)}},
      {"used-before-zeroed", {o, Zeroed(false)}},
      {"live-block-zeroed",
       {o,
        [](Scenario& s) {
          s.Admit("a", {{1, 2}}).Schedule("a", 4).Step();
          s.Blocks(kZero, "", {1}).Blocks(kZeroDone, "", {1}).Schedule("a", 1).Step();
        }}},
      {"loaded-tail-zeroed", {o, LoadedTail("a", 3)}},
      {"loaded-tail-kept", {o, LoadedTail("a", 4)}},
      {"loaded-tail-copied", {o, LoadedTail("a", 3, true)}},
      {"loaded-for-another-zeroed", {o, LoadedTail("b", 3)}},
      {"block-zeroed-again-after-failure",
       {o,
        [](Scenario& s) {
          s.Admit("a", {{1, 2, 3}}).Schedule("a", 8).Step();
          s.Computed("a") = 4;
          s.Blocks(kZero, "", {2}).Blocks(kZeroDone, "", {2}).Schedule("a", 4, 0, 4).Step();
        }}},
      {"copied-and-used", {o, Copied({1, 3}, {2, 3}, true)}},
      {"used-before-copied", {o, Copied({1, 3}, {2, 3}, false)}},
      {"copy-onto-a-live-block", {o, Copied({1, 3}, {3, 2}, true)}},
      {"copy-of-a-zeroed-block",
       {o,
        [](Scenario& s) {
          s.Blocks(kZero, "", {2});
          Copied({1, 3}, {2, 3}, true)(s);
          s.Admit("c", {{5}}).Blocks(kZero, "", {6}).Blocks(kZeroDone, "", {6});
          s.Blocks(kCopy, "", {6, 5}).Blocks(kCopyDone, "", {6, 5}).Schedule("c", 1).Step();
        }}},
      {"copy-lost",
       {o,
        [](Scenario& s) {
          Copied({1, 3}, {2, 3}, true)(s);
          s.Admit("c", {{5}}).Blocks(kCopy, "", {2, 5}).Admit("d", {{6}}).Schedule("d", 1).Step();
        }}},
      {"copy-for-nobody-in-this-step",
       {o,
        [](Scenario& s) {
          Copied({1, 3}, {2, 3}, true)(s);
          s.Admit("c", {{5}}).Blocks(kCopy, "", {2, 5}).Blocks(kCopyDone, "", {2, 5});
          s.Admit("d", {{6}}).Schedule("d", 1).Step();
        }}},
      {"transfer-block-out-of-range",
       {o,
        [](Scenario& s) {
          s.Admit("a", {{1}}).Blocks(kLoad, "", {64}, 7).Schedule("a", 1).Step();
        }}},
      {"freed-while-held", {o, Freed(false, 1)}},
      {"freed-after-the-end", {o, Freed(true, 1)}},
      {"freed-twice", {o, Freed(true, 2)}},
      {"freed-handed-out-and-freed",
       {o,
        [](Scenario& s) {
          Freed(true, 1)(s);
          s.Admit("b", {{1}}).Schedule("b", 1).Step();
          s.Finish("b").Blocks(KVGUARD_EVENT_FREE, "", {1}).Admit("c", {{3}}).Schedule("c", 1);
          s.Step();
        }}},
  };
  return all;
}

TEST(Transfers, EveryPlantedFaultIsFoundAtItsFirstBadStep) {
  CheckPlantedList("transfer_faults.txt", All());
}

// What every new finding says, once, as a person reads it.
TEST(Transfers, EveryFindingNamesItsBlock) {
  for (const auto& [name, scenario] : All()) {
    Scenario s(scenario.options);
    scenario.run(s);
    for (const kvguard_finding& finding : s.Findings()) {
      const std::string text = s.Explain(finding);
      EXPECT_NE(text.find("observed="), std::string::npos) << text;
      const std::string prose = text.substr(text.find('\n') + 1);
      EXPECT_NE(prose.find(std::to_string(finding.observed)), std::string::npos) << text;
    }
  }
}

// An engine that never says DONE is not judged by what it does not say.
TEST(Transfers, AnEngineThatNeverSaysDoneIsNotBlamed) {
  Scenario s(Options());
  for (int i = 0; i < 3; ++i) {
    std::string name = "r";
    name += std::to_string(i);
    s.Admit(name, {{1 + i}}).Blocks(kZero, "", {1 + i}).Schedule(name, 3).Step();
  }
  EXPECT_EQ(s.Report(), "");
}

// A shared block whose load failed is computed again by one of its holders: the others may count
// on it in the same step.
TEST(Transfers, OneHolderComputesALostBlockForAll) {
  Scenario s(Options());
  s.Admit("a", {{1, 2, 3}}, 8).Admit("b", {{1, 2, 4}}, 8);
  s.Blocks(kLoad, "", {1, 2}, 7).Blocks(kLoadFailed, "", {2}, 7);
  s.Computed("a") = 4;
  s.Schedule("a", 5, 0, 4).Schedule("b", 1).Step();
  EXPECT_EQ(s.Report(), "");
  s.Schedule("b", 1).Step();
  EXPECT_EQ(s.Report(), "") << "and later on";
}

// A load that failed in part has filled what it does not name.
TEST(Transfers, ALoadThatFailsInPartHasFilledTheRest) {
  for (const bool named : {false, true}) {
    Scenario s(Options());
    s.Blocks(kLoad, "", {3}, 1).Blocks(kLoadFailed, "", {3}, 1).Step();
    s.Blocks(kLoad, "", {3, 4}, 2).Blocks(kLoadFailed, "", {named ? 3 : 4}, 2).Step();
    s.Admit("a", {{3, 4, 5}}, 4).Schedule("a", 5).Step();
    EXPECT_EQ(s.Codes().size(), named ? 1u : 0u);
    EXPECT_EQ(s.Codes().empty() ? rules::kFailedLoadUsed : s.Codes()[0], rules::kFailedLoadUsed);
  }
}

// A load that its own step waits for, layer by layer, ends behind the step's plan.
TEST(Transfers, ASynchronousLoadMayBeReadInItsOwnStep) {
  for (const bool later : {false, true}) {
    Scenario s(Options());
    s.Expect("a").Blocks(kLoad, "a", {3}, 1).Blocks(kLoadFailed, "", {3}, 1).Step();
    if (later) s.Blocks(kLoad, "a", {3}, 2).Step();
    s.Admit("a", {{3, 5}}, 4);
    if (!later) s.Blocks(kLoad, "a", {3}, 2);
    s.Schedule("a", 1).Step();
    EXPECT_EQ(s.Codes().size(), later ? 1u : 0u);
    EXPECT_EQ(s.Codes().empty() ? rules::kReadWhileLoading : s.Codes()[0],
              rules::kReadWhileLoading);
  }
}

// A step may load into a block and write behind what was loaded; what the block held before says
// nothing then.
TEST(Transfers, ASynchronousLoadMayEndInsideTheBlockThatItsStepWrites) {
  for (const int64_t loaded : {3, 4}) {
    ScenarioOptions options = Options();
    options.engine_flags |= KVGUARD_ENGINE_FILLS_TOLD;
    Scenario s(options);
    s.Admit("p", {{1, 2}}).Schedule("p", 8).Step();
    s.Finish("p").Admit("a", {{2, 3}}, 3).Blocks(kLoad, "a", {2}, 7);
    kvguard_event load{};
    load.size = sizeof(load);
    load.kind = kLoad;
    load.request = s.Key("a");
    load.value = 8;
    load.count = loaded;
    const int64_t block = 2;
    load.blocks = &block;
    load.num_blocks = 1;
    s.Blocks(KVGUARD_EVENT_LOAD_DONE, "", {}, 7).Event(load).Schedule("a", 2).Step();
    EXPECT_EQ(s.Codes().size(), loaded == 3 ? 0u : 1u) << s.Report();
    EXPECT_EQ(s.Codes().empty() ? rules::kWriteWhilePinned : s.Codes()[0],
              rules::kWriteWhilePinned);
  }
  ScenarioOptions options = Options();
  options.engine_flags |= KVGUARD_ENGINE_FILLS_TOLD;
  Scenario s(options);
  s.Admit("p", {{1, 2}}).Schedule("p", 8).Step();
  s.Finish("p").Admit("a", {{2, 3}}, 4).Blocks(kLoad, "a", {2}, 7).Schedule("a", 1).Step();
  EXPECT_EQ(s.Report(), "") << "its old place says nothing";
}

// What a transfer pins is still pinned after a restore.
TEST(Transfers, ASnapshotKeepsThePins) {
  Scenario s(Options());
  s.Admit("a", {{1}}).Schedule("a", 4).Step();
  s.Blocks(kSend, "a", {1}, 7).Finish("a").Step();
  ASSERT_EQ(s.Restore(s.Snapshot()), KVGUARD_OK) << s.error();
  s.Admit("b", {{1}}).Schedule("b", 1).Step();
  ASSERT_FALSE(s.Findings().empty());
  EXPECT_EQ(s.Findings()[0].code, static_cast<uint32_t>(rules::kPinnedRebound));
}

// So is for whom a block was loaded.
TEST(Transfers, ASnapshotKeepsWhatWasLoadedForWhom) {
  Scenario s(Options());
  s.Expect("a").Blocks(kLoad, "a", {1, 2, 3}, 7).Step();
  s.Blocks(kLoadDone, "", {}, 7).Step();
  ASSERT_EQ(s.Restore(s.Snapshot()), KVGUARD_OK) << s.error();
  s.Admit("a", {{1, 2, 3, 4}}, 10).Blocks(kZero, "", {3}).Schedule("a", 4).Begin();
  ASSERT_EQ(s.Codes(), std::vector<uint32_t>{rules::kZeroLive}) << s.Report();
  EXPECT_EQ(s.Findings()[0].pos, 8);
}

// What a running request is given was free, connector or not.
TEST(Transfers, AHeldBlockGivenToARunningRequestIsAProof) {
  for (const bool running : {false, true}) {
    Scenario s(Options());
    s.Admit("a", {{1, 2}}).Schedule("a", 8).Step();
    if (running) s.Admit("b", {{3}}).Schedule("b", 4).Step();
    running ? s.Append("b", {2}) : s.Admit("b", {{3, 2}});
    s.Schedule("b", 1).Begin();
    ASSERT_EQ(s.Codes(), std::vector<uint32_t>{rules::kBlockOwned}) << s.Report();
    EXPECT_EQ(s.Findings()[0].grade,
              static_cast<uint32_t>(running ? KVGUARD_GRADE_PROOF : KVGUARD_GRADE_SUSPICION));
  }
}

}  // namespace
}  // namespace kvguard::tests
