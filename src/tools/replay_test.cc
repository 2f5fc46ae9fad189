// SPDX-License-Identifier: Apache-2.0
#include "tools/replay.h"

#include <gtest/gtest.h>

#include "report/text.h"
#include "tools/inspect.h"
#include "tools/test_trace.h"
#include "trace/reader.h"

namespace kvguard::tools {
namespace {

std::string FindingsOf(const std::string& path, ReplayResult* result) {
  std::string out;
  ReplayHooks hooks;
  hooks.judged = [&](const Judged& judged) {
    for (const kvguard_finding& finding : judged.findings) {
      out += report::FindingText(report::Render(judged.guard, finding));
    }
    return true;
  };
  *result = Replay(path, hooks);
  return out;
}

int ExitOf(const std::string& path) { return Replay(path).exit_code; }

TEST(Replay, ARightRunIsCleanWithItsCounts) {
  TestFolder folder;
  RecordHealthy(folder / "run.kvtrace");
  const ReplayResult result = Replay(folder / "run.kvtrace");
  EXPECT_EQ(result.exit_code, 0) << report::Join(result.reasons);
  EXPECT_EQ(result.verdict, uint32_t{KVGUARD_CLEAN});
  EXPECT_EQ(result.account.verdict.steps, 40u);
  EXPECT_EQ(result.account.verdict.steps_judged, 40u);
  EXPECT_EQ(result.first_step, 1u);
  EXPECT_EQ(result.last_step, 40u);
  EXPECT_EQ(result.engine, "scenario");
  EXPECT_TRUE(result.reasons.empty());
  EXPECT_TRUE(result.damage.empty());
}

TEST(Replay, FindingsAreTheBytesOfTheRun) {
  TestFolder folder;
  const std::string reported = RecordViolated(folder / "run.kvtrace");
  ASSERT_FALSE(reported.empty());
  ReplayResult result;
  EXPECT_EQ(FindingsOf(folder / "run.kvtrace", &result), reported);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.account.verdict.first_violated_step, 20u);
  EXPECT_TRUE(result.reasons.empty());
  ReplayResult again;
  EXPECT_EQ(FindingsOf(folder / "run.kvtrace", &again), reported);
}

TEST(Replay, TheBoundsOfTheRunHoldInTheReplay) {
  TestFolder folder;
  audit::ScenarioOptions options;
  options.config.max_findings_per_step = 1;
  const std::string reported = RecordTrace(
      folder / "run.kvtrace",
      [](SmallEngine& engine) {
        engine.Run([](audit::ScenarioPlan& plan) {
          for (int64_t& length : plan.seq_lens) ++length;
        });
      },
      options);
  ReplayResult result;
  EXPECT_EQ(FindingsOf(folder / "run.kvtrace", &result), reported);
  EXPECT_GT(result.account.verdict.proofs, 1u);
}

TEST(Replay, UnreadableFilesAre65WithASentence) {
  TestFolder folder;
  WriteBytes(folder / "empty", "");
  WriteBytes(folder / "text", "this is no trace\n");
  WriteBytes(folder / "long", std::string(100000, 'x'));
  RecordHealthy(folder / "run.kvtrace");
  const std::string bytes = ReadBytes(folder / "run.kvtrace");
  WriteBytes(folder / "cut", bytes.substr(0, 60));
  std::string damaged = bytes;
  damaged[100] = static_cast<char>(damaged[100] ^ 0x20);
  WriteBytes(folder / "damaged", damaged);
  for (const std::string& path :
       {folder / "empty", folder / "text", folder / "long", folder / "cut", folder / "damaged",
        folder / "missing", folder.path(), std::string("/dev/null"), std::string()}) {
    const ReplayResult result = Replay(path);
    EXPECT_EQ(result.exit_code, kExitUnreadable) << path;
    EXPECT_FALSE(result.error.empty()) << path;
  }
}

TEST(Replay, WithoutAStepNothingCanBeJudged) {
  TestFolder folder;
  RecordTrace(folder / "run.kvtrace", [](SmallEngine&) {});
  const ReplayResult result = Replay(folder / "run.kvtrace");
  EXPECT_EQ(result.exit_code, 2);
  ASSERT_EQ(result.reasons.size(), 1u);
  EXPECT_NE(result.reasons[0].find("no step"), std::string::npos);
}

TEST(Replay, AGapIsNamed) {
  TestFolder folder;
  RecordTrace(folder / "run.kvtrace", [](SmallEngine& engine) {
    engine.Admit("a", 5);
    engine.Step();
    engine.scenario().Gap("unknown-field");
    engine.Step();
  });
  const ReplayResult result = Replay(folder / "run.kvtrace");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(report::Join(result.reasons).find("unknown-field"), std::string::npos);
}

TEST(Replay, AnOpenStepAtTheEndIsNoPass) {
  TestFolder folder;
  RecordTrace(folder / "run.kvtrace", [](SmallEngine& engine) {
    engine.Admit("a", 5);
    engine.Step();
    engine.scenario().Schedule("a", 1).Begin();
  });
  const ReplayResult result = Replay(folder / "run.kvtrace");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(report::Join(result.reasons).find("step 2 has no end"), std::string::npos);
}

TEST(Replay, ARecordingThatReachedItsBoundCannotBeJudged) {
  TestFolder folder;
  RecordTrace(folder / "run.kvtrace", [](SmallEngine& engine) { engine.Run(); }, {}, 6000);
  const ReplayResult result = Replay(folder / "run.kvtrace");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_GT(result.account.verdict.steps_judged, 0u);
  EXPECT_NE(report::Join(result.reasons).find("were not recorded"), std::string::npos);
}

// Damage of every kind, at many places: a right run never becomes clean or violated by it, and a
// violated one is violated exactly where the violation comes before the damage.
TEST(Replay, DamageNeverGivesAWrongVerdict) {
  TestFolder folder;
  RecordHealthy(folder / "right.kvtrace");
  RecordViolated(folder / "wrong.kvtrace");
  const std::string right = ReadBytes(folder / "right.kvtrace");
  const std::string wrong = ReadBytes(folder / "wrong.kvtrace");
  const std::string path = folder / "damaged.kvtrace";
  size_t violated = 0;
  size_t cut_off = 0;
  for (size_t i = 0; i < 150; ++i) {
    const size_t at = right.size() * i / 150;
    std::string damaged = right;
    if (i % 2 == 0) {
      damaged.resize(at);
    } else {
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << i % 8));
    }
    WriteBytes(path, damaged);
    const int code = ExitOf(path);
    EXPECT_TRUE(code == 2 || code == kExitUnreadable) << "damage at " << at << " gave " << code;

    damaged = wrong.substr(0, wrong.size() * i / 150);
    WriteBytes(path, damaged);
    const ReplayResult result = Replay(path);
    // Steps before the damage were delivered whole: the verdict says whether step 20 was among
    // them.
    const bool before = result.error.empty() && result.last_step >= 20;
    EXPECT_EQ(result.exit_code == 1, before) << "cut at " << damaged.size();
    if (result.exit_code == 1) {
      ++violated;
      EXPECT_FALSE(result.damage.empty());
      EXPECT_FALSE(result.reasons.empty()) << "a damaged file says that it is damaged";
    } else {
      ++cut_off;
    }
  }
  EXPECT_GT(violated, 10u);
  EXPECT_GT(cut_off, 10u);
}

TEST(Replay, AnIncidentIsReplayedFromItsSnapshot) {
  TestFolder folder;
  std::string bytes;
  audit::ScenarioOptions options;
  options.config.incident = [](void* context, const void* data, size_t size) {
    static_cast<std::string*>(context)->assign(static_cast<const char*>(data), size);
  };
  options.config.incident_context = &bytes;
  options.config.history_bytes = 65536;
  const std::string reported = RecordTrace(
      folder / "run.kvtrace",
      [](SmallEngine& engine) {
        engine.Run([](audit::ScenarioPlan& plan) { plan.groups[0].slots[0] += 4; }, 20);
      },
      options);
  ASSERT_FALSE(bytes.empty());
  WriteBytes(folder / "incident.kvtrace", bytes);
  ReplayResult result;
  const std::string replayed = FindingsOf(folder / "incident.kvtrace", &result);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(result.incident);
  EXPECT_EQ(replayed, reported);
}

TEST(Inspect, ShowsWhatDiffersFromWhatIsBound) {
  TestFolder folder;
  RecordViolated(folder / "run.kvtrace");
  std::string plan;
  std::string hypotheses;
  std::string schedule;
  ReplayHooks hooks;
  hooks.judged = [&](const Judged& judged) {
    if (judged.record.kind == KVGUARD_RECORD_BEGIN) {
      schedule = ScheduleText(judged.guard, judged.record);
    }
    if (judged.findings.empty()) return true;
    plan = PlanText(judged.guard, judged.record);
    hypotheses = HypothesesText(judged.guard, judged.findings[0]);
    return false;
  };
  EXPECT_TRUE(Replay(folder / "run.kvtrace", hooks).stopped);
  EXPECT_NE(plan.find("plan of step 20"), std::string::npos) << plan;
  EXPECT_NE(plan.find("request a%20b"), std::string::npos) << plan;
  EXPECT_NE(plan.find("expected"), std::string::npos) << plan;
  EXPECT_NE(hypotheses.find("tried: row-of"), std::string::npos) << hypotheses;
  EXPECT_NE(schedule.find("schedule"), std::string::npos) << schedule;
}

}  // namespace
}  // namespace kvguard::tools
