// SPDX-License-Identifier: Apache-2.0
// The commands behind the command line. Each returns the exit code; what is wrong with the
// arguments or the input is thrown as a UsageError.
#ifndef KVGUARD_CLI_COMMANDS_H_
#define KVGUARD_CLI_COMMANDS_H_

#include <cstdint>
#include <optional>
#include <string>

namespace kvguard::cli {

struct ReplayArguments {
  std::string file;
  bool json = false;
  bool coverage = false;
};
int ReplayCommand(const ReplayArguments& arguments);

struct ExplainArguments {
  std::string file;
  std::optional<uint64_t> step;
  std::optional<uint64_t> sequence;
  bool json = false;
};
int ExplainCommand(const ExplainArguments& arguments);

int TraceDumpCommand(const std::string& file);
int TraceInfoCommand(const std::string& file, bool json);

int RulesCommand(const std::string& code, bool json);

struct ConfigArguments {
  bool schema = false;
  bool docs = false;
  std::optional<std::string> check;  // JSON, or @ and a file
};
int ConfigCommand(const ConfigArguments& arguments);

int SelfTestCommand();

struct DoctorArguments {
  std::optional<std::string> config;  // JSON, or @ and a file
  std::string engine;                 // "vllm", or empty: none is asked for
  std::string python;                 // an interpreter; empty: the one at hand
  bool json = false;
};
int DoctorCommand(const DoctorArguments& arguments);
int VersionCommand();

struct LabArguments {
  std::string scenario;
  bool list = false;
  std::optional<uint64_t> seed;
  std::optional<uint64_t> steps;
  std::string model = "tags";   // "tags", "transformer"
  std::string guard = "raise";  // "off", "log", "raise"
  std::string fault;            // KIND or KIND@STEP
  std::string record;           // a file
};
int LabCommand(const LabArguments& arguments);

// `folder`: of recorded runs; empty: the ones that come with kvguard.
int DemoCommand(const std::string& folder);

// The whole command. Never throws.
int Main(int argc, const char* const* argv);

}  // namespace kvguard::cli

#endif  // KVGUARD_CLI_COMMANDS_H_
