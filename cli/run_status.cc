// SPDX-License-Identifier: Apache-2.0
#include "cli/run_status.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace kvguard::cli {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr char kSchema[] = "kvguard.status.v1";
constexpr const char* kSummed[] = {"steps", "rows", "slots", "suspicions", "assumptions"};

std::string Text(const json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

uint64_t Number(const json& object, const char* key) {
  const auto it = object.find(key);
  const bool usable = it != object.end() && it->is_number_integer() && it->get<int64_t>() >= 0;
  return usable ? it->get<uint64_t>() : 0;
}

bool IsZombie(int64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return true;
  const size_t end = line.rfind(')');
  return end != std::string::npos && end + 2 < line.size() &&
         (line[end + 2] == 'Z' || line[end + 2] == 'X');
}

json ReadOne(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf()))
    return {{"unreadable", "the status file " + path.string() + " cannot be read"}};
  json status = json::parse(text.str(), nullptr, /*allow_exceptions=*/false);
  if (!status.is_object() || Text(status, "schema") != kSchema) {
    return {{"unreadable", "the status file " + path.string() + " is not of schema " + kSchema}};
  }
  return status;
}

std::string RankName(const json& status) {
  const auto rank = status.find("rank");
  const auto pid = status.find("pid");
  return "rank " + (rank != status.end() ? rank->dump() : "?") + " (process " +
         (pid != status.end() ? pid->dump() : "?") + ")";
}

// Families that should have judged something and did not: "family table of group 0, family slot of
// group 0".
std::string BlindFamilies(const json& status) {
  std::string names;
  for (const json& row : status.value("coverage", json::array())) {
    if (!row.is_object() || !row.value("expected", false) || Number(row, "judged") > 0) continue;
    names += (names.empty() ? "family " : ", family ") + Text(row, "family");
    const auto group = row.find("group");
    if (group != row.end() && group->is_number_integer()) names += " of group " + group->dump();
  }
  return names;
}

// Why this rank's account is not whole; empty where it is.
std::string WhyNotJudged(const json& status) {
  if (status.contains("unreadable")) return Text(status, "unreadable");
  const std::string state = Text(status, "state");
  const std::string reason = Text(status, "reason");
  const std::string who = RankName(status);
  if (state == "armed") return who + " ended without a shutdown: what it did last is not known";
  if (state == "starting") return who + " ended before the guard was armed";
  if (state == "not_armed")
    return who + " was not guarded: " + (reason.empty() ? "no reason is given" : reason);
  if (state == "failed")
    return who + ": the guard gave up: " + (reason.empty() ? "no reason is given" : reason);
  if (state != "stopped")
    return who + " has the state '" + state + "', which this kvguard does not know";
  if (Text(status, "verdict") == "clean") return {};
  const auto counts = status.find("counts");
  if (counts == status.end() || !counts->is_object() || Number(*counts, "steps_judged") == 0) {
    return who + " judged no step";
  }
  std::string names;
  for (const json& gap : status.value("gaps", json::array())) {
    if (!gap.is_object() || gap.value("standing", false)) continue;
    names += (names.empty() ? "" : ", ") + Text(gap, "name");
  }
  std::string why;
  if (!names.empty()) why = who + " has steps that were not judged: " + names;
  if (const std::string blind = BlindFamilies(status); !blind.empty()) {
    why += why.empty() ? who + ": armed but blind: " : "; armed but blind: ";
    why += "nothing was judged by " + blind;
  }
  return why.empty() ? who + " cannot judge" : why;
}

void AddGaps(const json& status, std::map<std::string, std::pair<bool, uint64_t>>* gaps) {
  for (const json& gap : status.value("gaps", json::array())) {
    if (!gap.is_object()) continue;
    auto& [standing, count] = (*gaps)[Text(gap, "name")];
    standing = gap.value("standing", false);
    count += Number(gap, "count");
  }
}

}  // namespace

std::set<std::string> ListStatusFiles(const std::string& directory) {
  std::set<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    if (entry.path().extension() == ".json") names.insert(entry.path().filename().string());
  }
  return names;
}

std::vector<json> ReadStatusFiles(const std::string& directory,
                                  const std::set<std::string>& before) {
  std::vector<json> out;
  for (const std::string& name : ListStatusFiles(directory)) {
    if (before.count(name) == 0) out.push_back(ReadOne(fs::path(directory) / name));
  }
  return out;
}

bool MayStillWrite(const json& status) {
  const std::string state = Text(status, "state");
  if (state != "armed" && state != "starting") return false;
  const auto pid = status.find("pid");
  if (pid == status.end() || !pid->is_number_integer()) return false;
  const auto number = pid->get<int64_t>();
  return number > 1 && ::kill(static_cast<pid_t>(number), 0) == 0 && !IsZombie(number);
}

RunResult Conclude(const std::vector<json>& statuses, int command_status) {
  RunResult result;
  result.command_status = command_status;
  bool violated = false;
  std::map<std::string, std::pair<bool, uint64_t>> gaps;
  for (const char* name : kSummed) result.counts[name] = 0;
  for (const json& status : statuses) {
    result.ranks.push_back(status);
    if (Text(status, "verdict") == "violated") {
      violated = true;
    } else if (std::string why = WhyNotJudged(status); !why.empty()) {
      result.reasons.push_back(std::move(why));
    }
    if (const auto counts = status.find("counts"); counts != status.end() && counts->is_object()) {
      for (const char* name : kSummed) result.counts[name] += Number(*counts, name);
    }
    AddGaps(status, &gaps);
    for (const json& finding : status.value("findings", json::array())) {
      if (finding.is_object())
        result.findings.emplace_back(Text(finding, "line"), Text(finding, "prose"));
    }
  }
  for (const auto& [name, gap] : gaps) {
    result.gaps.push_back(gap.first ? name : name + "(" + std::to_string(gap.second) + ")");
  }
  if (statuses.empty()) {
    result.reasons.push_back(
        "no engine told its status: the command started none, it ended before its worker was made, "
        "or the worker is not "
        "kvguard.vllm.GuardWorker");
  }
  if (command_status != 0 && !violated) {
    result.reasons.push_back("the command failed with status " + std::to_string(command_status));
  }
  result.verdict = violated ? "violated" : result.reasons.empty() ? "clean" : "cannot_judge";
  result.exit_code = violated ? 1 : result.reasons.empty() ? 0 : 2;
  return result;
}

std::string ResultText(const RunResult& result) {
  std::ostringstream out;
  out << "kvguard: " << result.verdict;
  for (const char* name : kSummed) out << ' ' << name << '=' << result.counts.at(name);
  out << " gaps=[";
  for (size_t i = 0; i < result.gaps.size(); ++i) out << (i == 0 ? "" : ", ") << result.gaps[i];
  out << "] command-status=" << result.command_status << '\n';
  for (const std::string& reason : result.reasons) out << "kvguard: " << reason << '\n';
  for (const auto& [line, prose] : result.findings) out << line << '\n' << prose << '\n';
  return out.str();
}

std::string ResultJson(const RunResult& result) {
  json findings = json::array();
  for (const auto& [line, prose] : result.findings)
    findings.push_back({{"line", line}, {"prose", prose}});
  json out = {{"verdict", result.verdict},
              {"exit_code", result.exit_code},
              {"command_status", result.command_status},
              {"reasons", result.reasons},
              {"counts", result.counts},
              {"gaps", result.gaps},
              {"findings", findings},
              {"ranks", result.ranks}};
  // A status file may hold bytes that are no UTF-8 only if somebody else wrote it; they must not
  // end the command.
  return out.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace kvguard::cli
