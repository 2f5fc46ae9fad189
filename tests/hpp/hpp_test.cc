// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kvguard/kvguard.hpp"
#include "tests/hpp/no_exceptions.h"

#if __cplusplus >= 202002L
#error "this test is the proof that kvguard.hpp is C++17"
#endif

namespace {

using kvguard::GeometryBuilder;
using kvguard::Guard;
using kvguard::Result;
using kvguard::StepBuilder;

static_assert(!std::is_copy_constructible_v<Guard> && std::is_nothrow_move_constructible_v<Guard>);
static_assert(!std::is_copy_constructible_v<kvguard::Trace>);
static_assert(!std::is_copy_constructible_v<StepBuilder> &&
              !std::is_move_constructible_v<StepBuilder>);

Guard MakeGuard() {
  GeometryBuilder geometry("test", "1", 8, 256);
  geometry.AddGroup(geometry.AddPool(32, 0), 16);
  geometry.AddStandingGap("weights");
  return Guard::Create(geometry.Build()).OrThrow();
}

// Feeds a whole step; what each record answers is checked by the caller through the verdict.
kvguard_verdict FeedStep(Guard& guard, StepBuilder& step) {
  guard.Feed(step.Plan()).OrThrow();
  return guard.Feed(step.End()).OrThrow();
}

TEST(Hpp, BuildersFeedACleanStreamOfSteps) {
  Guard guard = MakeGuard();
  StepBuilder step(1);
  step.Admit(1, "a", 0, 18).Append(1, 0, {3, 7}).Schedule(1, 18, 0);
  step.Admit(2, std::string("b"), 0, 2).Append(2, 0, {5}).Schedule(2, 2, 0);
  guard.Feed(step.Begin()).OrThrow();
  step.Row(2, 2, 2).Slots(0, {80, 81}).TableRow(0, {5});
  std::vector<int64_t> slots;
  for (int64_t i = 0; i < 16; ++i) slots.push_back(48 + i);
  slots.push_back(112);
  slots.push_back(113);
  step.Row(1, 18, 18).Slots(0, slots).TableRow(0, {3, 7});
  kvguard_verdict verdict = FeedStep(guard, step);
  EXPECT_EQ(verdict.verdict, KVGUARD_CLEAN);
  EXPECT_EQ(verdict.rows, 2u);
  EXPECT_EQ(verdict.slots, 20u);
  EXPECT_EQ(verdict.entries, 3u);

  step.NewStep(2);
  step.Finish(1).Admit(3, "c", 0, 1).Append(3, 0, {3}).Schedule(3, 1, 0).Schedule(2, 1, 2);
  guard.Feed(step.Begin()).OrThrow();
  step.Row(3, 1, 1).Slots(0, {48}).TableRow(0, {3});
  step.Row(2, 1, 3).Slots(0, {82}).TableRow(0, {5});
  guard.Feed(step.Plan()).OrThrow();
  step.Sampled(3, 1).Sampled(2, 1);
  guard.Feed(step.Outcome()).OrThrow();
  verdict = guard.Feed(step.End()).OrThrow();
  EXPECT_EQ(verdict.verdict, KVGUARD_CLEAN);
  EXPECT_EQ(verdict.steps_judged, 2u);
  EXPECT_EQ(guard.Wait(2, 0).OrThrow().steps, 2u);
}

TEST(Hpp, AWrongSlotIsFoundAndExplained) {
  Guard guard = MakeGuard();
  StepBuilder step(7);
  step.Admit(1, "a", 0, 1).Append(1, 0, {3}).Schedule(1, 1, 0);
  step.Admit(2, "b", 0, 1).Append(2, 0, {5}).Schedule(2, 1, 0);
  guard.Feed(step.Begin()).OrThrow();
  step.Row(1, 1, 1).Slots(0, {80}).TableRow(0, {3});
  step.Row(2, 1, 1).Slots(0, {80}).TableRow(0, {5});
  const kvguard_verdict verdict = FeedStep(guard, step);
  EXPECT_EQ(verdict.verdict, KVGUARD_VIOLATED);
  EXPECT_EQ(verdict.must_raise, 1u);
  const std::vector<kvguard_finding> findings = guard.Findings().OrThrow();
  ASSERT_FALSE(findings.empty());
  const std::string text = guard.Explain(findings[0]).OrThrow();
  EXPECT_EQ(text.rfind("kvguard KV0401 slot-mismatch step=7 rank=0 group=0 req=a row=0 pos=0 "
                       "expected=48 observed=80",
                       0),
            0u)
      << text;
  EXPECT_EQ(text.back(), '\n');
  EXPECT_EQ(text.find('\0'), std::string::npos);
}

// More than the first guess of every list and buffer.
TEST(Hpp, LongListsAndTextsArriveWhole) {
  GeometryBuilder geometry("test", "1", 64, 256);
  geometry.AddGroup(geometry.AddPool(64, 0), 16);
  kvguard_config config = kvguard::Sized<kvguard_config>();
  config.max_findings_per_step = 200;
  Guard guard = Guard::Create(geometry.Build(), &config).OrThrow();
  StepBuilder step(1);
  const std::string long_name(700, 'n');
  for (uint64_t key = 1; key <= 40; ++key) {
    step.Admit(key, long_name + std::to_string(key), 0, 1).Schedule(key, 1, 0);
    step.Append(key, 0, {static_cast<int64_t>(key)});
  }
  guard.Feed(step.Begin()).OrThrow();
  for (uint64_t key = 1; key <= 40; ++key) {
    step.Row(key, 1, 2)
        .Slots(0, {static_cast<int64_t>(key * 16)})
        .TableRow(0, {static_cast<int64_t>(key)});
  }
  FeedStep(guard, step);
  const std::vector<kvguard_finding> findings = guard.Findings().OrThrow();
  EXPECT_EQ(findings.size(), 40u);
  EXPECT_EQ(guard.Findings(findings[37].sequence).OrThrow().size(), 3u);
  const std::string text = guard.Explain(findings[0]).OrThrow();
  EXPECT_NE(text.find(long_name), std::string::npos);
  EXPECT_GT(kvguard::Rules().OrThrow().size(), 16u);
  EXPECT_GT(guard.Coverage().OrThrow().size(), 3u);
}

TEST(Hpp, ErrorsAreValuesUnlessAskedFor) {
  GeometryBuilder geometry("test", "1", 0, 0);  // no rows: refused
  geometry.AddGroup(geometry.AddPool(32, 0), 16);
  Result<Guard> refused = Guard::Create(geometry.Build());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, KVGUARD_ERROR_ARGUMENT);
  EXPECT_NE(refused.error().message.find("max_rows"), std::string::npos) << refused.error().message;
  try {
    Guard::Create(geometry.Build()).OrThrow();
    FAIL() << "nothing was thrown";
  } catch (const kvguard::Exception& e) {
    EXPECT_EQ(e.status(), KVGUARD_ERROR_ARGUMENT);
    EXPECT_EQ(e.what(), refused.error().message);
  }

  Guard guard = MakeGuard();
  StepBuilder step(1);
  const Result<kvguard_verdict> early = guard.Feed(step.End());
  ASSERT_FALSE(early);
  EXPECT_EQ(early.error().status, KVGUARD_ERROR_ORDER);
  EXPECT_EQ(guard.Verdict().OrThrow().verdict, static_cast<uint32_t>(KVGUARD_CANNOT_JUDGE));
}

TEST(Hpp, SnapshotsMoveAMirrorToAnotherGuard) {
  Guard guard = MakeGuard();
  StepBuilder step(1);
  step.Admit(1, "a", 0, 1).Append(1, 0, {3}).Schedule(1, 1, 0);
  guard.Feed(step.Begin()).OrThrow();
  step.Row(1, 1, 1).Slots(0, {48}).TableRow(0, {3});
  FeedStep(guard, step);
  const std::string bytes = guard.Snapshot().OrThrow();

  Guard other = MakeGuard();
  other.Restore(bytes).OrThrow();
  step.NewStep(2);
  step.Schedule(1, 1, 1);
  other.Feed(step.Begin()).OrThrow();
  step.Row(1, 1, 2).Slots(0, {49}).TableRow(0, {3});
  EXPECT_EQ(FeedStep(other, step).proofs, 0u);
  EXPECT_EQ(other.Snapshot().OrThrow().empty(), false);
  EXPECT_FALSE(other.Restore("not a snapshot"));
}

TEST(Hpp, ResetForgetsAndGapsAreNamed) {
  Guard guard = MakeGuard();
  StepBuilder step(1);
  guard.Feed(step.Reset(KVGUARD_RESET_ARM)).OrThrow();
  kvguard_event& gap = step.AddEvent(KVGUARD_EVENT_GAP);
  const std::string name = "a-field-nobody-knows";
  gap.name = name.data();
  gap.name_size = name.size();
  guard.Feed(step.Begin()).OrThrow();
  guard.Feed(step.End()).OrThrow();
  const std::vector<kvguard_gap> gaps = guard.Gaps().OrThrow();
  ASSERT_EQ(gaps.size(), 2u);
  EXPECT_STREQ(gaps[0].name, "weights");
  EXPECT_EQ(gaps[0].standing, 1u);
  EXPECT_STREQ(gaps[1].name, "a-field-nobody-knows");
  EXPECT_EQ(gaps[1].count, 1u);
}

TEST(Hpp, HandlesMove) {
  Guard guard = MakeGuard();
  kvguard_guard* handle = guard.get();
  Guard other = std::move(guard);
  EXPECT_EQ(other.get(), handle);
  // NOLINTNEXTLINE(bugprone-use-after-move,clang-analyzer-cplusplus.Move): it is promised
  EXPECT_EQ(guard.get(), nullptr);
  EXPECT_EQ(Guard().get(), nullptr);
}

TEST(Hpp, NamesAndVersion) {
  EXPECT_EQ(kvguard::Version(), kvguard_version());
  EXPECT_EQ(kvguard::Name("verdict", KVGUARD_CANNOT_JUDGE), "cannot_judge");
  EXPECT_TRUE(kvguard::Name("verdict", 77).empty());
  EXPECT_TRUE(kvguard::SelfTest());
}

TEST(Hpp, WorksWithoutExceptions) {
  EXPECT_EQ(JudgeWithoutExceptions(16), "clean");
  const std::string text = JudgeWithoutExceptions(32);
  EXPECT_EQ(text.rfind("violated\nkvguard KV04", 0), 0u) << text;
}

}  // namespace
