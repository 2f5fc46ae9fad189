// SPDX-License-Identifier: Apache-2.0
// The generator itself: programs depend on their seed alone, keep to their own truth, reach what
// they are for, and are clean under the guard; mutations change what they say.
#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/generate/judged.h"
#include "tests/generate/mutate.h"
#include "tests/generate/program.h"

namespace kvguard::generate {
namespace {

constexpr uint64_t kSteps = 40;

Program Make(uint64_t seed, uint32_t features = kFull) {
  return Generate(Options::Draw(seed, features), kSteps);
}

// Those that the guard of this build judges, and all that the generator knows.
constexpr uint32_t kEveryFeature = kFull | kWindow | kChunked | kContent | kZero | kCopy |
                                   kTransfer | kDraftPass | kDcp | kState | kCross;
constexpr uint32_t kMoving = kFull | kList | kRing | kMove | kCells | kContent | kZero | kCopy |
                             kTransfer | kDraftPass | kMicro;

TEST(GenerateTest, EqualSeedsGiveEqualPrograms) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const Program a = Make(seed, kEveryFeature);
    const Program b = Make(seed, kEveryFeature);
    ASSERT_EQ(a.records, b.records) << seed;
    EXPECT_EQ(a.situations, b.situations) << seed;
  }
  for (uint64_t seed = 1; seed <= 50; ++seed)
    ASSERT_EQ(Make(seed, kMoving).records, Make(seed, kMoving).records) << seed;
  EXPECT_NE(Make(1).records, Make(2).records);
}

TEST(GenerateTest, ProgramsKeepToTheirOwnTruth) {
  const uint32_t mixtures[] = {kFull,
                               kWindow,
                               kChunked,
                               kFull | kWindow,
                               kFull | kWindow | kChunked,
                               kFull | kContent,
                               kFull | kContent | kZero | kCopy,
                               kFull | kTransfer,
                               kFull | kWindow | kDcp,
                               kState,
                               kFull | kState,
                               kFull | kCross,
                               kFull | kWindow | kState,
                               kFull | kList,
                               kRing,
                               kFull | kWindow | kRing,
                               kFull | kMove,
                               kCells,
                               kCells | kMove,
                               kMoving,
                               kEveryFeature};
  for (const uint32_t features : mixtures) {
    for (uint64_t seed = 1; seed <= 300; ++seed) {
      const Program program = Make(seed, features);
      ASSERT_EQ(program.error, "") << "seed " << seed << ", features " << features;
      EXPECT_EQ(program.steps, kSteps);
    }
  }
}

TEST(GenerateTest, HealthyProgramsAreCleanUnderTheGuard) {
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    Program program = Make(seed);
    const Judged judged = Judge(&program, program.records);
    ASSERT_EQ(judged.refused, "") << seed;
    EXPECT_EQ(judged.verdict.proofs, 0u) << "seed " << seed << ": " << judged.prose;
    EXPECT_EQ(judged.verdict.verdict, static_cast<uint32_t>(KVGUARD_CLEAN))
        << "seed " << seed << ": " << judged.first_error;
    EXPECT_EQ(judged.verdict.step_gaps, 0u) << seed;
    EXPECT_GT(judged.verdict.slots, 0u) << seed;
    EXPECT_GT(judged.verdict.entries, 0u) << seed;
  }
}

TEST(GenerateTest, ProgramsOfListsRingsMovesAndCellsAreCleanUnderTheGuard) {
  for (const uint32_t features :
       {kFull | kList | kDraftPass | kMicro, kFull | kRing | kTransfer | kZero,
        kFull | kMove | kContent | kCopy | kTransfer, kCells | kMove | kContent}) {
    for (uint64_t seed = 1; seed <= 200; ++seed) {
      Program program = Make(seed, features);
      const Judged judged = Judge(&program, program.records);
      ASSERT_EQ(judged.refused, "") << seed;
      EXPECT_EQ(judged.verdict.verdict, static_cast<uint32_t>(KVGUARD_CLEAN))
          << "features " << features << ", seed " << seed << ": " << judged.first_error
          << judged.prose;
      EXPECT_EQ(judged.verdict.suspicions, 0u) << seed;
    }
  }
}

// Each line of the committed list is a situation that exists, and is reached.
TEST(GenerateTest, EverySituationOfTheListIsReached) {
  Situations reached;
  for (uint64_t seed = 1; seed <= 300; ++seed) reached.Add(Make(seed).situations);
  const std::vector<std::string> names = reached.names();
  std::ifstream list(std::string(KVGUARD_SOURCE_DIR) + "/tests/generate/situations.txt");
  ASSERT_TRUE(list);
  size_t asked = 0;
  for (std::string line; std::getline(list, line);) {
    if (line.empty() || line[0] == '#') continue;
    ++asked;
    EXPECT_NE(std::find(kSituationNames.begin(), kSituationNames.end(), line),
              kSituationNames.end())
        << line << " is not a situation";
    EXPECT_NE(std::find(names.begin(), names.end(), line), names.end()) << line << " not reached";
  }
  EXPECT_GT(asked, 40u);
}

TEST(GenerateTest, OtherFeaturesReachTheirSituations) {
  Situations reached;
  for (uint64_t seed = 1; seed <= 600; ++seed) reached.Add(Make(seed, kEveryFeature).situations);
  for (const Situation situation : {Situation::kNullInFront,
                                    Situation::kStaleColumns,
                                    Situation::kStaleColumnsReused,
                                    Situation::kWindowHit,
                                    Situation::kFullAndWindow,
                                    Situation::kTokensKnown,
                                    Situation::kTokensLearned,
                                    Situation::kDomainSplits,
                                    Situation::kDomainHit,
                                    Situation::kZeroed,
                                    Situation::kCopied,
                                    Situation::kLoadAhead,
                                    Situation::kLoadFailed,
                                    Situation::kSendDelayed,
                                    Situation::kSharded,
                                    Situation::kShardedKernelBlocks,
                                    Situation::kInterleaved,
                                    Situation::kOldFormula,
                                    Situation::kReplicated,
                                    Situation::kEmptyShard,
                                    Situation::kStateAndAttention,
                                    Situation::kStateHit,
                                    Situation::kStateMoved,
                                    Situation::kStateCopied,
                                    Situation::kNullAppended,
                                    Situation::kCross,
                                    Situation::kCrossStep}) {
    EXPECT_GT(reached.count(situation), 0u) << kSituationNames[static_cast<size_t>(situation)];
  }
}

// All that stand behind the first of them.
TEST(GenerateTest, ListsRingsMovesAndCellsReachTheirSituations) {
  Situations reached;
  for (uint64_t seed = 1; seed <= 800; ++seed) reached.Add(Make(seed, kMoving).situations);
  for (auto s = static_cast<size_t>(Situation::kCsrBlocks); s < kNumSituations; ++s)
    EXPECT_GT(reached.count(static_cast<Situation>(s)), 0u) << kSituationNames[s];
}

// A memory that could not contradict the engine would prove nothing.
TEST(FaultTest, TheTruthShowsEveryFault) {
  for (size_t f = 1; f < static_cast<size_t>(Fault::kCount); ++f) {
    size_t shown = 0;
    for (uint64_t seed = 1; seed <= 400; ++seed) {
      Options options = Options::Draw(seed, FeaturesOf(static_cast<Fault>(f)));
      options.fault = static_cast<Fault>(f);
      const Program program = Generate(options, kSteps);
      if (program.error.empty()) continue;
      ++shown;
      // The program ends with the step that showed it.
      uint64_t last = 0;
      for (const Record& record : program.records) last = std::max(last, record.step);
      ASSERT_EQ(last, program.error_step) << kFaultNames[f] << " " << seed;
    }
    EXPECT_GT(shown, 0u) << kFaultNames[f];
  }
}

// Faults that no stream can hide: the guard has spoken when the memory shows them.
TEST(FaultTest, TheGuardIsThereInTime) {
  for (const Fault fault : {Fault::kLostRollback, Fault::kAppendToOldRow, Fault::kNoRoomForDrafts,
                            Fault::kLostMove, Fault::kLostShift}) {
    size_t shown = 0;
    for (uint64_t seed = 1; seed <= 200; ++seed) {
      Options options = Options::Draw(seed, FeaturesOf(fault));
      options.fault = fault;
      Program program = Generate(options, kSteps);
      if (program.error.empty()) continue;
      ++shown;
      const Judged judged = Judge(&program, program.records);
      EXPECT_EQ(judged.verdict.verdict, static_cast<uint32_t>(KVGUARD_VIOLATED))
          << kFaultNames[static_cast<size_t>(fault)] << ", seed " << seed << ": " << program.error;
    }
    EXPECT_GT(shown, 10u) << kFaultNames[static_cast<size_t>(fault)];
  }
}

TEST(MutateTest, ChangesWhatItSays) {
  std::set<std::string> kinds;
  std::set<std::string> fields;
  size_t violated = 0;
  for (uint64_t seed = 1; seed <= 600; ++seed) {
    Program program = Make(seed);
    std::vector<Record> records = program.records;
    const auto mutation = Mutate(program.options, seed, &records);
    if (!mutation) FAIL() << seed;
    ASSERT_NE(records, program.records) << seed << " " << mutation->kind << " " << mutation->field;
    ASSERT_LT(mutation->record, program.records.size());
    kinds.insert(mutation->kind);
    fields.insert(mutation->field);
    // Records before it are as they were.
    for (size_t i = 0; i < mutation->record; ++i) ASSERT_EQ(records[i], program.records[i]);
    const Judged judged = Judge(&program, records);
    violated += judged.verdict.verdict == static_cast<uint32_t>(KVGUARD_VIOLATED);
  }
  for (const char* kind :
       {"off-by-one", "by-a-block", "swapped", "stale", "wrong-unit", "zeroed", "minus-one",
        "out-of-range", "huge", "dropped", "doubled", "stale-array"}) {
    EXPECT_EQ(kinds.count(kind), 1u) << kind;
  }
  for (const char* field :
       {"plan.slots", "plan.table", "plan.seq_lens", "plan.positions", "plan.query_start",
        "plan.requests", "event.blocks", "scheduled.num_computed", "scheduled.num_tokens"}) {
    EXPECT_EQ(fields.count(field), 1u) << field;
  }
  EXPECT_GT(violated, 200u);  // many land where nothing is judged
}

TEST(MutateTest, ListsAndMovesAreChangedToo) {
  std::set<std::string> changed;
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    Program program = Make(seed, kMoving);
    const auto mutation = Mutate(program.options, seed, &program.records);
    if (mutation) changed.insert(mutation->field + " " + mutation->kind);
  }
  for (const char* change : {"plan.list_offsets off-by-one",
                             "plan.list_offsets wrong-unit",
                             "plan.list_entries stale",
                             "plan.list_entries by-a-block",
                             "plan.list_entries wrong-unit",
                             "plan.last_page_len off-by-one",
                             "plan.sentinel off-by-one",
                             "plan.list other-row",
                             "plan.list sentinel",
                             "plan.list rotated",
                             "plan.list dropped",
                             "plan.list doubled",
                             "plan.list emptied",
                             "event.pair dropped",
                             "event.pair reversed",
                             "event.pair doubled",
                             "event.pair swapped",
                             "event.first off-by-one",
                             "event.count off-by-one",
                             "event.value off-by-one"}) {
    EXPECT_EQ(changed.count(change), 1u) << change;
  }
}

TEST(MutateTest, EqualSeedsGiveEqualFaults) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const Program program = Make(seed);
    std::vector<Record> a = program.records;
    std::vector<Record> b = program.records;
    Mutate(program.options, seed, &a);
    Mutate(program.options, seed, &b);
    EXPECT_EQ(a, b) << seed;
  }
}

TEST(OptionsTest, FeaturesByName) {
  std::string error;
  EXPECT_EQ(ParseFeatures("full,window", &error), kFull | kWindow);
  EXPECT_FALSE(ParseFeatures("full,windo", &error));
  EXPECT_NE(error.find("\"windo\" is not a feature"), std::string::npos) << error;
  EXPECT_FALSE(ParseFeatures("content", &error));
  EXPECT_FALSE(ParseFeatures("", &error));
}

}  // namespace
}  // namespace kvguard::generate
