// SPDX-License-Identifier: Apache-2.0
// A program that is run for its answer.
#ifndef KVGUARD_CLI_CHILD_H_
#define KVGUARD_CLI_CHILD_H_

#include <chrono>
#include <string>
#include <vector>

namespace kvguard::cli {

struct ChildResult {
  int status = 127;        // its exit code; 128 + n where signal n ended it
  bool timed_out = false;  // and was ended
  std::string error;       // why it could not be started; empty where it was
  std::string out;         // its stdout, at most a megabyte
};

// stdin is empty, stderr is this process's own. `command[0]` is looked for in PATH.
ChildResult RunChild(const std::vector<std::string>& command, std::chrono::seconds limit);

}  // namespace kvguard::cli

#endif  // KVGUARD_CLI_CHILD_H_
