// SPDX-License-Identifier: Apache-2.0
#include "step/status.h"

#include <cstring>
#include <string>

#include <gtest/gtest.h>

namespace kvguard::step {
namespace {

kvguard_error Fresh() {
  kvguard_error error;
  std::memset(&error, 0x5a, sizeof(error));
  error.size = sizeof(error);
  return error;
}

TEST(Status, IsOkUnlessToldOtherwise) {
  EXPECT_TRUE(Status().ok());
  EXPECT_EQ(Status().code(), KVGUARD_OK);
  EXPECT_TRUE(Status().text().empty());
  EXPECT_EQ(Malformed("%d of %s", 3, "x").code(), KVGUARD_ERROR_ARGUMENT);
  EXPECT_EQ(Malformed("%d of %s", 3, "x").text(), "3 of x");
  EXPECT_EQ(OutOfOrder("late").code(), KVGUARD_ERROR_ORDER);
  EXPECT_EQ(Unsupported("new").code(), KVGUARD_ERROR_UNSUPPORTED);
}

TEST(Status, SprintfKeepsLongText) {
  const std::string name(5000, 'n');
  EXPECT_EQ(Sprintf("<%s>", name.c_str()), "<" + name + ">");
  EXPECT_EQ(Sprintf("%s", ""), "");
}

TEST(Report, FillsTheCallersErrorAndHandsTheCodeThrough) {
  kvguard_error error = Fresh();
  EXPECT_EQ(Report(Malformed("count is %d", 7), &error), KVGUARD_ERROR_ARGUMENT);
  EXPECT_EQ(error.status, KVGUARD_ERROR_ARGUMENT);
  EXPECT_STREQ(error.text, "count is 7");
  EXPECT_EQ(Report(Status(), &error), KVGUARD_OK);
  EXPECT_EQ(error.status, KVGUARD_OK);
  EXPECT_STREQ(error.text, "");
}

TEST(Report, WritesNothingWhereThereIsNoRoom) {
  EXPECT_EQ(Report(Malformed("x"), nullptr), KVGUARD_ERROR_ARGUMENT);
  kvguard_error error = Fresh();
  error.size = sizeof(error) - 4;
  const kvguard_error before = error;
  EXPECT_EQ(Report(Malformed("x"), &error), KVGUARD_ERROR_ARGUMENT);
  EXPECT_EQ(std::memcmp(&before, &error, sizeof(error)), 0);
}

TEST(Report, CutsLongTextOutsideUtf8Sequences) {
  // Every phase of a three-byte sequence at the cut.
  for (size_t lead = 0; lead < 3; ++lead) {
    std::string text(lead, 'x');
    while (text.size() < 600) text += "\xe2\x82\xac";  // the euro sign
    kvguard_error error = Fresh();
    Report(Status(KVGUARD_ERROR_IO, text), &error);
    const size_t length = std::strlen(error.text);
    EXPECT_LT(length, sizeof(error.text));
    EXPECT_GE(length, sizeof(error.text) - 4);
    EXPECT_EQ((length - lead) % 3, 0u) << lead;
    EXPECT_EQ(text.compare(0, length, error.text), 0);
  }
}

TEST(Report, TextThatJustFitsIsWhole) {
  const std::string text(sizeof(kvguard_error::text) - 1, 'y');
  kvguard_error error = Fresh();
  Report(Status(KVGUARD_ERROR_IO, text), &error);
  EXPECT_EQ(text, error.text);
}

}  // namespace
}  // namespace kvguard::step
