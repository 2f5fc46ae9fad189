// SPDX-License-Identifier: Apache-2.0
// A trace through a guard: what was recorded is judged again, by the same fold.
#ifndef KVGUARD_SRC_TOOLS_REPLAY_H_
#define KVGUARD_SRC_TOOLS_REPLAY_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kvguard/kvguard.h"
#include "report/account.h"

namespace kvguard::tools {

inline constexpr int kExitUnreadable = 65;
inline constexpr int kExitInternal = 70;

// One record that was fed, with what it was answered.
struct Judged {
  const kvguard_guard& guard;
  const kvguard_record& record;
  kvguard_status status;
  const kvguard_verdict& verdict;
  std::span<const kvguard_finding> findings;  // of this record
};

struct ReplayProgress {
  uint64_t records = 0;
  uint64_t steps = 0;
  uint64_t bytes = 0;  // of the file, read so far
};

// All may be empty.
struct ReplayHooks {
  // The record to feed in place of the recorded one. The answer lives until the next call.
  std::function<const kvguard_record&(const kvguard_record&)> replace;
  // After each record; false ends the replay there, as if the file were no longer.
  std::function<bool(const Judged&)> judged;
  // Now and then.
  std::function<void(const ReplayProgress&)> progress;
};

struct ReplayResult {
  int exit_code = kExitInternal;
  // Why nothing could be read at all; else empty.
  std::string error;
  // kvguard_verdict_kind over what the file holds and what it says it has lost.
  uint32_t verdict = KVGUARD_CANNOT_JUDGE;
  report::Account account;
  std::vector<std::string> reasons;  // why it is not clean; of a violated trace, what it lost
  std::string damage;                // the reader's sentence, where the file is damaged

  std::string engine;
  std::string engine_version;
  std::string written_by;  // version of kvguard
  bool incident = false;
  uint32_t rank = 0;
  uint32_t num_ranks = 0;
  uint64_t records = 0;
  uint64_t first_step = 0;
  uint64_t last_step = 0;
  bool stopped = false;  // a hook ended it
};

ReplayResult Replay(const std::string& path, const ReplayHooks& hooks = {});

}  // namespace kvguard::tools

#endif  // KVGUARD_SRC_TOOLS_REPLAY_H_
