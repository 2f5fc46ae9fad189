// SPDX-License-Identifier: Apache-2.0
#include "lab/traces.h"

#include <gtest/gtest.h>

namespace kvguard::lab {
namespace {

TEST(Traces, TheConversationIsReadWhole) {
  const auto requests = ReadMooncake(MooncakeConversation());
  ASSERT_EQ(requests.size(), 600u);
  EXPECT_EQ(requests[0].prompt, 212);  // 6,758 tokens
  EXPECT_EQ(requests[0].output, 16);   // 500
  ASSERT_EQ(requests[0].pages.size(), 14u);
  EXPECT_EQ(requests[0].pages[13], 13);
  for (const TraceRequest& request : requests) {
    EXPECT_EQ(request.pages.size(),
              (static_cast<size_t>(request.prompt) + kTracePage - 1) / kTracePage);
  }
}

TEST(Traces, TimeDoesNotGoBack) {
  for (const auto& requests :
       {ReadMooncake(MooncakeConversation()), ReadAzure(AzureConversation())}) {
    for (size_t i = 1; i < requests.size(); ++i) {
      EXPECT_GE(requests[i].milliseconds, requests[i - 1].milliseconds);
    }
  }
}

TEST(Traces, TheAzureCutIsReadWhole) {
  const auto requests = ReadAzure(AzureConversation());
  ASSERT_EQ(requests.size(), 1499u);
  EXPECT_EQ(requests[0].milliseconds, 0);
  EXPECT_EQ(requests[0].prompt, 12);  // 374 tokens
  EXPECT_EQ(requests[1].milliseconds, 4315);
}

TEST(Traces, WhatIsNoRequestIsLeftOut) {
  EXPECT_TRUE(ReadMooncake("").empty());
  EXPECT_TRUE(ReadMooncake("{}\n{\"timestamp\": 3}\n").empty());
  EXPECT_TRUE(ReadAzure("TIMESTAMP,ContextTokens,GeneratedTokens\nx,y\n").empty());
}

}  // namespace
}  // namespace kvguard::lab
