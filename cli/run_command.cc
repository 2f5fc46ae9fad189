// SPDX-License-Identifier: Apache-2.0
#include "cli/run_command.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "kvguard/kvguard.h"

namespace kvguard::cli {
namespace {

using nlohmann::json;

constexpr int kUsage = 64;
constexpr int kUnreadable = 65;
constexpr char kWorkerClass[] = "kvguard.vllm.GuardWorker";
constexpr char kConfigKey[] = "kv_guard_config";

std::string BaseName(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

json ParseObject(const std::string& text, const std::string& what, int exit_code) {
  json value = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded())
    throw UsageError(exit_code,
                     what + " is no JSON: give one object, for example '{\"action\": \"log\"}'");
  if (!value.is_object()) throw UsageError(exit_code, what + " is JSON, but no object");
  return value;
}

json ReadConfig(const std::string& given) {
  if (given.empty()) return json::object();
  if (given[0] != '@') return ParseObject(given, "--config", kUsage);
  const std::string path = given.substr(1);
  std::ifstream file(path);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    throw UsageError(kUnreadable,
                     "--config: the file '" + path + "' cannot be read: " + std::strerror(errno));
  }
  return ParseObject(text.str(), "--config: the file '" + path + "'", kUnreadable);
}

// vLLM takes option names with dashes and with underscores, and values behind a blank or "=".
bool IsOption(const std::string& argument, const std::string& name, std::string* inline_value,
              bool* has_inline) {
  const size_t equals = argument.find('=');
  std::string given = argument.substr(0, equals);
  if (given.rfind("--", 0) != 0) return false;
  std::replace(given.begin() + 2, given.end(), '_', '-');
  if (given != name) return false;
  *has_inline = equals != std::string::npos;
  if (*has_inline) *inline_value = argument.substr(equals + 1);
  return true;
}

// Where an option's value stands: command[index] from `offset` on. False where the option is not
// given.
bool FindValue(const std::vector<std::string>& command, const std::string& name, size_t* index,
               std::string* value) {
  bool found = false;
  for (size_t i = 0; i < command.size(); ++i) {
    std::string inline_value;
    bool has_inline = false;
    if (!IsOption(command[i], name, &inline_value, &has_inline)) continue;
    if (!has_inline && i + 1 >= command.size())
      throw UsageError(kUsage, name + " in the command has no value");
    found = true;  // of two, the last one counts
    *index = i;
    *value = has_inline ? inline_value : command[i + 1];
  }
  return found;
}

}  // namespace

const char kRunUsage[] =
    "usage: kvguard run [OPTIONS] -- COMMAND...\n"
    "Runs an engine under the guard. A vLLM server (vllm serve, python -m "
    "vllm.entrypoints.openai.api_server) gets the\n"
    "guard's worker class and configuration, and --shutdown-timeout 20 unless it has one; any "
    "other "
    "command gets them through its environment "
    "(KVGUARD_CONFIG).\n"
    "\n"
    "  --action raise|log   hold a violated step's output, or report it and let it pass (default: "
    "raise)\n"
    "  --config JSON|@FILE  more of the configuration; `kvguard config --schema` shows what there "
    "is\n"
    "  --status-dir DIR     where the engine's status files go (default: a fresh directory)\n"
    "  --record FILE        record the run; %r stands for the rank, %p for the process\n"
    "  --json               the result as JSON; the command's own output then goes to stderr\n"
    "\n"
    "Exits with the verdict: 0 clean, 1 violated, 2 cannot judge. A command that fails gives at "
    "least 2 unless the\n"
    "verdict is violated. SIGINT and SIGTERM are handed to the command.\n";

RunOptions ParseRunOptions(const std::vector<std::string>& arguments) {
  RunOptions options;
  size_t i = 0;
  for (; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") {
      options.command.assign(arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                             arguments.end());
      break;
    }
    if (argument == "--help" || argument == "-h") {
      options.help = true;
      return options;
    }
    if (argument == "--json") {
      options.json = true;
      continue;
    }
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    std::string* target = name == "--action"       ? &options.action
                          : name == "--config"     ? &options.config
                          : name == "--status-dir" ? &options.status_dir
                          : name == "--record"     ? &options.record
                                                   : nullptr;
    if (target == nullptr) {
      throw UsageError(kUsage, "'" + argument +
                                   "' is no option of `kvguard run`; the command comes behind --: "
                                   "kvguard run -- vllm serve MODEL");
    }
    if (equals != std::string::npos) {
      *target = argument.substr(equals + 1);
    } else if (i + 1 < arguments.size() && arguments[i + 1] != "--") {
      *target = arguments[++i];
    } else {
      throw UsageError(kUsage, name + " needs a value");
    }
  }
  if (options.command.empty()) {
    throw UsageError(kUsage,
                     "no command is given; it comes behind --: kvguard run -- vllm serve MODEL");
  }
  if (!options.action.empty() && options.action != "raise" && options.action != "log") {
    throw UsageError(kUsage, "--action is 'raise' or 'log', not '" + options.action + "'");
  }
  return options;
}

std::string GuardConfig(const RunOptions& options) {
  json config = ReadConfig(options.config);
  if (config.contains("enabled") && config["enabled"] == false) {
    throw UsageError(
        kUsage,
        "--config disables the guard; leave 'enabled' out, or run the command without kvguard");
  }
  config["enabled"] = true;
  if (!options.action.empty()) config["action"] = options.action;
  if (!options.record.empty()) config["record"] = options.record;
  const std::string text = config.dump();
  kvguard_config parsed;
  std::memset(&parsed, 0, sizeof(parsed));
  parsed.size = sizeof(parsed);
  kvguard_error error;
  std::memset(&error, 0, sizeof(error));
  error.size = sizeof(error);
  if (kvguard_config_parse(text.data(), text.size(), &parsed, &error) < 0)
    throw UsageError(kUsage, error.text);
  return text;
}

bool IsVllmServer(const std::vector<std::string>& command) {
  size_t i = 0;
  if (!command.empty() && BaseName(command[0]) == "env") {
    for (i = 1; i < command.size() && command[i].find('=') != std::string::npos; ++i) {
    }
  }
  if (i >= command.size()) return false;
  const auto is = [&](size_t at, const char* text) {
    return at < command.size() && command[at] == text;
  };
  if (BaseName(command[i]) == "vllm") return is(i + 1, "serve");
  if (BaseName(command[i]).rfind("python", 0) != 0) return false;
  for (++i; i < command.size() && !command[i].empty() && command[i][0] == '-'; ++i) {
    if (command[i] == "-m") {
      return is(i + 1, "vllm.entrypoints.openai.api_server") ||
             (is(i + 1, "vllm.entrypoints.cli.main") && is(i + 2, "serve"));
    }
    if (command[i] == "-c") return false;
    if (command[i] == "-X" || command[i] == "-W") ++i;  // these take a value
  }
  return i < command.size() && BaseName(command[i]) == "vllm" && is(i + 1, "serve");
}

std::vector<std::string> GuardedCommand(const std::vector<std::string>& command,
                                        const std::string& guard_config) {
  std::vector<std::string> out = command;
  if (!IsVllmServer(command)) return out;
  size_t index = 0;
  std::string value;
  if (FindValue(command, "--worker-cls", &index, &value)) {
    if (value != kWorkerClass && value != "auto") {
      throw UsageError(kUsage, "the command has a worker class of its own (--worker-cls " + value +
                                   "); the guard is one, and an engine takes one");
    }
    if (value == "auto") {
      if (out[index].find('=') != std::string::npos) {
        out[index] = std::string("--worker-cls=") + kWorkerClass;
      } else {
        out[index + 1] = kWorkerClass;
      }
    }
  } else {
    out.insert(out.end(), {"--worker-cls", kWorkerClass});
  }
  for (const std::string& argument : command) {
    if (argument.rfind("--additional-config.", 0) == 0 ||
        argument.rfind("--additional_config.", 0) == 0) {
      throw UsageError(kUsage,
                       "the command sets parts of --additional-config by name (" + argument +
                           "); give it as one JSON object, so that the guard's part can be added");
    }
  }
  json additional = json::object();
  const bool present = FindValue(command, "--additional-config", &index, &value);
  if (present) additional = ParseObject(value, "the command's --additional-config", kUsage);
  json guard = json::parse(guard_config);
  if (additional.contains(kConfigKey)) {
    if (!additional[kConfigKey].is_object()) {
      throw UsageError(kUsage, std::string("the command's --additional-config: ") + kConfigKey +
                                   " is no object");
    }
    json merged = additional[kConfigKey];
    merged.update(guard);  // what was given to `kvguard run` is newer
    guard = merged;
  }
  additional[kConfigKey] = guard;
  if (!present) {
    out.insert(out.end(), {"--additional-config", additional.dump()});
  } else if (out[index].find('=') != std::string::npos) {
    out[index] = "--additional-config=" + additional.dump();
  } else {
    out[index + 1] = additional.dump();
  }
  // vLLM's default of 0 kills the engine at once when the server is asked to stop, so that nobody
  // could say what its last steps did.
  if (!FindValue(command, "--shutdown-timeout", &index, &value)) {
    out.insert(out.end(), {"--shutdown-timeout", "20"});
  }
  return out;
}

std::map<std::string, std::string> GuardedEnvironment(
    const std::vector<std::string>& command, const std::string& guard_config,
    const std::string& status_dir, const std::map<std::string, std::string>& present) {
  std::map<std::string, std::string> out;
  out["KVGUARD_STATUS_DIR"] = status_dir;
  if (present.count("VLLM_USE_V2_MODEL_RUNNER") == 0) out["VLLM_USE_V2_MODEL_RUNNER"] = "1";
  if (!IsVllmServer(command)) out["KVGUARD_CONFIG"] = guard_config;
  return out;
}

}  // namespace kvguard::cli
