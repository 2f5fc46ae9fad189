// SPDX-License-Identifier: Apache-2.0
// What an engine's status files come to.
#ifndef KVGUARD_CLI_RUN_STATUS_H_
#define KVGUARD_CLI_RUN_STATUS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace kvguard::cli {

struct RunResult {
  int exit_code = 2;
  std::string verdict = "cannot_judge";
  int command_status = 0;            // the command's exit code; 128 + n where signal n ended it
  std::vector<std::string> reasons;  // why it is not clean, one sentence each
  std::map<std::string, uint64_t> counts;  // summed over ranks
  std::vector<std::string> gaps;           // a step gap carries how often it was met
  std::vector<std::pair<std::string, std::string>> findings;  // line, prose
  nlohmann::json ranks = nlohmann::json::array();             // the status files, whole
};

// Status files of a directory that are not in `before`. A file that cannot be read stands as
// {"unreadable": reason}.
std::vector<nlohmann::json> ReadStatusFiles(const std::string& directory,
                                            const std::set<std::string>& before);
std::set<std::string> ListStatusFiles(const std::string& directory);

// Whether a rank may still write: it is armed and its process runs.
bool MayStillWrite(const nlohmann::json& status);

RunResult Conclude(const std::vector<nlohmann::json>& statuses, int command_status);

// "kvguard: clean steps=156 rows=640 slots=3107 suspicions=0 assumptions=0 gaps=[]
// command-status=0", reasons, findings.
std::string ResultText(const RunResult& result);
std::string ResultJson(const RunResult& result);

}  // namespace kvguard::cli

#endif  // KVGUARD_CLI_RUN_STATUS_H_
