// SPDX-License-Identifier: Apache-2.0
#include "audit/selftest.h"

#include <cstring>

#include <gtest/gtest.h>

namespace kvguard::audit {
namespace {

TEST(SelfTest, ThisBuildPasses) {
  const step::Status status = SelfTest();
  EXPECT_TRUE(status.ok()) << status.text();
}

TEST(SelfTest, ItsCallReportsOk) {
  kvguard_error error;
  std::memset(&error, 1, sizeof(error));
  error.size = sizeof(error);
  EXPECT_EQ(kvguard_selftest(&error), KVGUARD_OK) << error.text;
  EXPECT_EQ(error.status, KVGUARD_OK);
  EXPECT_STREQ(error.text, "");
  EXPECT_EQ(kvguard_selftest(nullptr), KVGUARD_OK);
}

}  // namespace
}  // namespace kvguard::audit
