// SPDX-License-Identifier: Apache-2.0
// Runs the built command as a user does: through a shell, with its exit code, stdout and stderr.
#ifndef KVGUARD_CLI_TEST_COMMAND_H_
#define KVGUARD_CLI_TEST_COMMAND_H_

#include <cstdlib>
#include <string>

#include <sys/wait.h>

#include "tools/test_trace.h"

namespace kvguard::cli {

struct Ran {
  int code = -1;  // 128 + n where signal n ended it
  std::string out;
  std::string err;
};

// `arguments` as a shell reads them.
inline Ran RunCommand(const std::string& arguments, const std::string& environment = "") {
  const tools::TestFolder folder;
  const std::string line = environment + " '" + KVGUARD_COMMAND + "' " + arguments + " >'" +
                           (folder / "out") + "' 2>'" + (folder / "err") + "' </dev/null";
  const int status = std::system(line.c_str());  // NOLINT(cert-env33-c): what a shell would run
  Ran ran;
  ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  ran.out = tools::ReadBytes(folder / "out");
  ran.err = tools::ReadBytes(folder / "err");
  return ran;
}

}  // namespace kvguard::cli

#endif  // KVGUARD_CLI_TEST_COMMAND_H_
