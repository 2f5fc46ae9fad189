// SPDX-License-Identifier: Apache-2.0
// What `kvguard doctor` looks at, each part for itself, and what it comes to.
#ifndef KVGUARD_CLI_DOCTOR_H_
#define KVGUARD_CLI_DOCTOR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "audit/selftest.h"

namespace kvguard::cli {

using Environment = std::function<std::string(const char* name)>;  // "": not set

struct TimedTrial {
  audit::Trial trial;
  double microseconds = 0;
};

// The configuration that a guard of this environment would have.
struct ConfigCheck {
  std::string source;             // "--config", "KVGUARD_CONFIG", "the defaults"
  std::string error;              // empty: valid
  nlohmann::ordered_json values;  // every key; the defaults where invalid
};

// A folder that files of the guard go to.
struct PlaceCheck {
  std::string what;    // "incidents", "trace", "status"
  std::string folder;  // absolute; empty: nothing is written
  std::string error;   // why nothing can be written there; empty: a file was made there
  std::optional<uint64_t> free_bytes;
};

// The Python side, as it answered.
struct PythonCheck {
  std::string interpreter;  // empty: none was found
  std::string missing;      // why there is no answer; empty where there is one
  nlohmann::ordered_json answer;
};

struct DoctorReport {
  std::vector<TimedTrial> trials;
  ConfigCheck config;
  std::vector<PlaceCheck> places;
  PythonCheck python;
  std::string engine;  // that was asked for; empty: none
};

// The self-test, one planted fault after another; a family without one stands last.
std::vector<TimedTrial> TryAll(std::span<const kvguard_rule> catalog,
                               std::span<const audit::Planted> planted);

// `given`: JSON or @file of --config. Throws a UsageError where that is wrong: it is what the
// caller typed. What the environment holds is only told.
ConfigCheck CheckConfig(const std::optional<std::string>& given, const Environment& environment);

std::vector<PlaceCheck> CheckPlaces(const ConfigCheck& config, const Environment& environment);

// `interpreter`: empty for the one beside this command, else the first in PATH.
PythonCheck AskPython(const std::string& interpreter, const std::string& engine);

// One sentence each; empty where all is well.
std::vector<std::string> Problems(const DoctorReport& report);
int DoctorExitCode(const DoctorReport& report);
std::string DoctorText(const DoctorReport& report);
std::string DoctorJson(const DoctorReport& report);

}  // namespace kvguard::cli

#endif  // KVGUARD_CLI_DOCTOR_H_
