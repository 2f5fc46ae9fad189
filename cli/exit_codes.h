// SPDX-License-Identifier: Apache-2.0
#ifndef KVGUARD_CLI_EXIT_CODES_H_
#define KVGUARD_CLI_EXIT_CODES_H_

namespace kvguard::cli {

// 0, 1 and 2 are verdicts and nothing else; the others are those of sysexits.h.
inline constexpr int kExitOk = 0;
inline constexpr int kExitViolated = 1;
inline constexpr int kExitCannotJudge = 2;
inline constexpr int kExitUsage = 64;
inline constexpr int kExitUnreadable = 65;
inline constexpr int kExitInternal = 70;

}  // namespace kvguard::cli

#endif  // KVGUARD_CLI_EXIT_CODES_H_
