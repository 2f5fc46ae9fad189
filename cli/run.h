// SPDX-License-Identifier: Apache-2.0
// `kvguard run [OPTIONS] -- COMMAND...`: runs an engine under the guard and answers with the
// verdict.
#ifndef KVGUARD_CLI_RUN_H_
#define KVGUARD_CLI_RUN_H_

#include <string>
#include <vector>

namespace kvguard::cli {

// `arguments`: what stands behind "run" on the command line. The result goes to stdout, progress to
// stderr. Returns the exit code: the verdict (0 clean, 1 violated, 2 cannot judge) or 64 for wrong
// usage, 65 for unreadable input.
int Run(const std::vector<std::string>& arguments);

// One line for the command's overview.
inline constexpr const char* kRunSummary = "run an engine under the guard; exits with the verdict";

}  // namespace kvguard::cli

#endif  // KVGUARD_CLI_RUN_H_
