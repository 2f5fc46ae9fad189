// SPDX-License-Identifier: Apache-2.0
// What `kvguard run` makes of its arguments: the command line and environment of the engine.
#ifndef KVGUARD_CLI_RUN_COMMAND_H_
#define KVGUARD_CLI_RUN_COMMAND_H_

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace kvguard::cli {

// A mistake of the caller, with the exit code that it deserves.
class UsageError : public std::runtime_error {
 public:
  UsageError(int exit_code, const std::string& sentence)
      : std::runtime_error(sentence), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

struct RunOptions {
  std::string action;      // "raise", "log" or empty: the configuration's
  std::string config;      // JSON or @file
  std::string status_dir;  // empty: a fresh one
  std::string record;      // path of a trace; may hold %r and %p
  bool json = false;
  bool help = false;
  std::vector<std::string> command;
};

// Throws UsageError.
RunOptions ParseRunOptions(const std::vector<std::string>& arguments);

// The guard's configuration that the options come to, as one JSON object: checked by the library.
std::string GuardConfig(const RunOptions& options);

// Whether the command starts a vLLM server, so that it takes vLLM's options.
bool IsVllmServer(const std::vector<std::string>& command);

// The command line to run: a vLLM server's gets the worker class and the configuration, merged into
// what it has.
std::vector<std::string> GuardedCommand(const std::vector<std::string>& command,
                                        const std::string& guard_config);

// Variables to set for the command; what the caller has set stays as it is.
std::map<std::string, std::string> GuardedEnvironment(
    const std::vector<std::string>& command, const std::string& guard_config,
    const std::string& status_dir, const std::map<std::string, std::string>& present);

extern const char kRunUsage[];

}  // namespace kvguard::cli

#endif  // KVGUARD_CLI_RUN_COMMAND_H_
