// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal.h"

#include <unistd.h>

#include <gtest/gtest.h>

#include "cli/exit_codes.h"
#include "tools/replay.h"

namespace kvguard::cli {
namespace {

TEST(Terminal, NoColoursWhereNobodySeesThem) {
  // ctest's stdout is no terminal.
  if (isatty(1) != 0) GTEST_SKIP() << "stdout is a terminal here";
  EXPECT_EQ(Paint(Colour::kRed, "x"), "x");
  EXPECT_EQ(VerdictText(KVGUARD_CANNOT_JUDGE), "cannot_judge");
}

TEST(Terminal, ExitCodesOfBothRoomsAreTheSame) {
  EXPECT_EQ(kExitUnreadable, tools::kExitUnreadable);
  EXPECT_EQ(kExitInternal, tools::kExitInternal);
}

TEST(Terminal, AShortReplayShowsNoProgress) {
  testing::internal::CaptureStderr();
  {
    ProgressLine line("/dev/null");
    for (uint64_t i = 0; i < 1000; ++i) line.Update({i, i, i});
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace kvguard::cli
