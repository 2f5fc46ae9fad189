// SPDX-License-Identifier: Apache-2.0
// How the command speaks: the result to stdout, everything else to stderr.
#ifndef KVGUARD_CLI_TERMINAL_H_
#define KVGUARD_CLI_TERMINAL_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "tools/replay.h"

namespace kvguard::cli {

void Out(std::string_view text);  // to stdout
void Say(std::string_view text);  // "kvguard: ..." to stderr

// False where something of stdout could not be written: a result that was lost is no result.
bool FlushOut();

// Colours, where stdout is a terminal that shows them and nobody asked for none (NO_COLOR).
enum class Colour { kBold, kGreen, kRed, kYellow, kDim };
std::string Paint(Colour colour, std::string_view text);

// A verdict as it is printed for people.
std::string VerdictText(uint32_t verdict);

// How far something long is, on stderr: in a terminal one line that goes away again, elsewhere a
// line now and then once it has taken two seconds.
class StatusLine {
 public:
  StatusLine();
  ~StatusLine() { Clear(); }
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;
  // Whether it is time for another text.
  bool Due();
  void Show(const std::string& text);
  void Clear();

 private:
  using Clock = std::chrono::steady_clock;
  bool terminal_ = false;
  bool shown_ = false;
  Clock::time_point next_;
};

// Of a replay.
class ProgressLine {
 public:
  explicit ProgressLine(const std::string& path);
  void Update(const tools::ReplayProgress& progress);
  void Clear() { line_.Clear(); }

 private:
  uint64_t total_ = 0;  // bytes; 0 not known
  StatusLine line_;
};

// Of a run of so many steps: with a bar.
class StepsLine {
 public:
  explicit StepsLine(uint64_t steps) : total_(steps) {}
  void Update(uint64_t steps);
  void Clear() { line_.Clear(); }

 private:
  uint64_t total_;
  StatusLine line_;
};

}  // namespace kvguard::cli

#endif  // KVGUARD_CLI_TERMINAL_H_
