// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string>

#include "lab/random.h"
#include "lab/traces.h"

namespace kvguard::lab {
namespace {

constexpr int32_t kShrinks = 32;

int32_t Small(int64_t tokens) {
  return static_cast<int32_t>(CeilDiv<int64_t>(tokens > 0 ? tokens : 1, kShrinks));
}

std::optional<int64_t> NumberAt(std::string_view text, size_t at) {
  while (at < text.size() && text[at] == ' ') ++at;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

// The number behind "name":
std::optional<int64_t> Field(std::string_view line, std::string_view name) {
  const size_t at = line.find(name);
  return at == std::string_view::npos ? std::nullopt : NumberAt(line, at + name.size());
}

template <typename Line>
void ForLines(std::string_view text, Line line) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    line(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

std::vector<TraceRequest> ReadMooncake(std::string_view text) {
  std::vector<TraceRequest> requests;
  ForLines(text, [&](std::string_view line) {
    const auto time = Field(line, "\"timestamp\":");
    const auto input = Field(line, "\"input_length\":");
    const auto output = Field(line, "\"output_length\":");
    size_t at = line.find("\"hash_ids\": [");
    if (!time || !input || !output || at == std::string_view::npos) return;
    TraceRequest request{*time, Small(*input), Small(*output), {}};
    for (at = line.find('[', at); at != std::string_view::npos && line[at] != ']';
         at = line.find_first_of(",]", at + 1)) {
      if (const auto id = NumberAt(line, at + 1)) request.pages.push_back(*id);
    }
    requests.push_back(std::move(request));
  });
  return requests;
}

std::vector<TraceRequest> ReadAzure(std::string_view text) {
  std::vector<TraceRequest> requests;
  int64_t begin = -1;
  ForLines(text, [&](std::string_view line) {
    // 2023-11-16 18:15:46.6805900,374,44; the cut lies within one day.
    const size_t comma = line.find(',');
    if (comma == std::string_view::npos || comma < 23 || line[10] != ' ') return;
    const auto hours = NumberAt(line, 11);
    const auto minutes = NumberAt(line, 14);
    const auto seconds = NumberAt(line, 17);
    const auto milliseconds = NumberAt(line.substr(0, 23), 20);
    const size_t second = line.find(',', comma + 1);
    if (!hours || !minutes || !seconds || !milliseconds || second == std::string_view::npos) return;
    const auto input = NumberAt(line, comma + 1);
    const auto output = NumberAt(line, second + 1);
    if (!input || !output) return;
    const int64_t time = ((*hours * 60 + *minutes) * 60 + *seconds) * 1000 + *milliseconds;
    if (begin < 0) begin = time;
    requests.push_back({time - begin, Small(*input), Small(*output), {}});
  });
  return requests;
}

}  // namespace kvguard::lab
