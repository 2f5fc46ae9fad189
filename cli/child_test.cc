// SPDX-License-Identifier: Apache-2.0
#include "cli/child.h"

#include <gtest/gtest.h>

namespace kvguard::cli {
namespace {

using std::chrono::seconds;

TEST(Child, AnswersWithStatusAndOutput) {
  const ChildResult result = RunChild({"sh", "-c", "echo one; echo two; exit 7"}, seconds(20));
  EXPECT_EQ(result.status, 7);
  EXPECT_EQ(result.out, "one\ntwo\n");
  EXPECT_EQ(result.error, "");
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(RunChild({"sh", "-c", "kill -9 $$"}, seconds(20)).status, 128 + 9);
  EXPECT_EQ(RunChild({"cat"}, seconds(20)).status, 0) << "stdin is empty";
}

TEST(Child, WhatCannotBeStartedIsAReason) {
  const ChildResult result = RunChild({"/nonexistent/program"}, seconds(20));
  EXPECT_NE(result.error, "");
  EXPECT_NE(result.status, 0);
}

TEST(Child, IsEndedWithWhatItStarted) {
  // The inner sleep holds the pipe open; it has to go with the shell.
  const auto begin = std::chrono::steady_clock::now();
  const ChildResult result = RunChild({"sh", "-c", "echo x; sleep 600 & wait"}, seconds(1));
  EXPECT_TRUE(result.timed_out);
  EXPECT_EQ(result.out, "x\n");
  EXPECT_EQ(result.status, 128 + 9);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(60));
}

TEST(Child, OutputIsBounded) {
  const ChildResult result =
      RunChild({"sh", "-c", "head -c 3000000 /dev/zero; echo end"}, seconds(60));
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out.size(), size_t{1} << 20);
}

}  // namespace
}  // namespace kvguard::cli
