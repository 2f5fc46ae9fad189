// SPDX-License-Identifier: Apache-2.0
// Cuts of public request traces, see lab/data/README.md.
#ifndef KVGUARD_LAB_TRACES_H_
#define KVGUARD_LAB_TRACES_H_

#include <cstdint>
#include <string_view>
#include <vector>

namespace kvguard::lab {

// The files as they were published.
std::string_view MooncakeConversation();
std::string_view AzureConversation();

// One request, made small.
struct TraceRequest {
  int64_t milliseconds = 0;  // since the first
  int32_t prompt = 0;        // tokens
  int32_t output = 0;
  std::vector<int64_t> pages;  // identities of the prompt's pages of 16 tokens; empty: its own
};

inline constexpr int32_t kTracePage = 16;

// Lines that are not requests are left out.
std::vector<TraceRequest> ReadMooncake(std::string_view text);
std::vector<TraceRequest> ReadAzure(std::string_view text);

}  // namespace kvguard::lab

#endif  // KVGUARD_LAB_TRACES_H_
