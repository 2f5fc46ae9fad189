// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <unistd.h>

#include "report/account.h"
#include "step/status.h"

namespace kvguard::cli {
namespace {

using Ull = unsigned long long;
using std::chrono::milliseconds;

constexpr milliseconds kFirstInTerminal{500};
constexpr milliseconds kNextInTerminal{200};
constexpr milliseconds kFirstElsewhere{2000};
constexpr milliseconds kNextElsewhere{10000};

bool ShowsColours() {
  static const bool shows = [] {
    const char* none = std::getenv("NO_COLOR");
    const char* term = std::getenv("TERM");
    if (none != nullptr && none[0] != '\0') return false;
    return isatty(STDOUT_FILENO) != 0 && term != nullptr && std::string_view(term) != "dumb";
  }();
  return shows;
}

}  // namespace

void Out(std::string_view text) { (void)std::fwrite(text.data(), 1, text.size(), stdout); }

void Say(std::string_view text) {
  const std::string line = "kvguard: " + std::string(text) + "\n";
  (void)std::fwrite(line.data(), 1, line.size(), stderr);
}

bool FlushOut() { return std::fflush(stdout) == 0 && std::ferror(stdout) == 0; }

std::string Paint(Colour colour, std::string_view text) {
  if (!ShowsColours()) return std::string(text);
  const char* code = colour == Colour::kBold     ? "1"
                     : colour == Colour::kGreen  ? "32"
                     : colour == Colour::kRed    ? "31"
                     : colour == Colour::kYellow ? "33"
                                                 : "2";
  return step::Sprintf("\x1b[%sm%s\x1b[0m", code, std::string(text).c_str());
}

std::string VerdictText(uint32_t verdict) {
  return Paint(verdict == KVGUARD_CLEAN      ? Colour::kGreen
               : verdict == KVGUARD_VIOLATED ? Colour::kRed
                                             : Colour::kYellow,
               report::Name("verdict", verdict));
}

StatusLine::StatusLine() : terminal_(isatty(STDERR_FILENO) != 0) {
  next_ = Clock::now() + (terminal_ ? kFirstInTerminal : kFirstElsewhere);
}

bool StatusLine::Due() {
  const auto now = Clock::now();
  if (now < next_) return false;
  next_ = now + (terminal_ ? kNextInTerminal : kNextElsewhere);
  return true;
}

void StatusLine::Show(const std::string& text) {
  std::fprintf(stderr, terminal_ ? "\r\x1b[K%s" : "%s\n", text.c_str());
  shown_ = terminal_;
  std::fflush(stderr);
}

void StatusLine::Clear() {
  if (shown_) std::fputs("\r\x1b[K", stderr);
  shown_ = false;
}

ProgressLine::ProgressLine(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  total_ = error ? 0 : static_cast<uint64_t>(size);
}

void ProgressLine::Update(const tools::ReplayProgress& progress) {
  if (!line_.Due()) return;
  const double part =
      total_ > 0 ? static_cast<double>(progress.bytes) / static_cast<double>(total_) : 0.0;
  line_.Show(step::Sprintf("kvguard: %llu steps replayed, %.0f %% of the file",
                           static_cast<Ull>(progress.steps), 100.0 * std::min(part, 1.0)));
}

void StepsLine::Update(uint64_t steps) {
  if (!line_.Due()) return;
  constexpr size_t kWidth = 30;
  const double part = total_ > 0 ? static_cast<double>(steps) / static_cast<double>(total_) : 1.0;
  const auto full = static_cast<size_t>(std::min(part, 1.0) * kWidth);
  line_.Show(step::Sprintf("kvguard: [%s%s] %llu of %llu steps", std::string(full, '#').c_str(),
                           std::string(kWidth - full, '.').c_str(), static_cast<Ull>(steps),
                           static_cast<Ull>(total_)));
}

}  // namespace kvguard::cli
