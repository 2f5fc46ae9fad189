// SPDX-License-Identifier: Apache-2.0
// The Python side of `kvguard doctor`: an interpreter that has kvguard is asked what it finds.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <unistd.h>

#include "cli/child.h"
#include "cli/doctor.h"
#include "cli/terminal.h"
#include "report/json.h"

namespace kvguard::cli {
namespace {

namespace fs = std::filesystem;
using report::Json;

constexpr auto kPatience = std::chrono::seconds(30);
constexpr auto kPatienceWithEngine = std::chrono::seconds(300);  // importing vLLM is slow
constexpr int kNoPackage = 3;

// A package without this part is an older kvguard.
constexpr char kProgram[] =
    "import sys\n"
    "try:\n"
    "    from kvguard import preflight\n"
    "except ImportError as error:\n"
    "    print(error)\n"
    "    sys.exit(3)\n"
    "sys.exit(preflight.main(sys.argv[1:]))\n";

bool IsProgram(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
}

// The command is installed beside the interpreter of its environment.
std::string FindPython() {
  std::vector<fs::path> folders;
  std::error_code error;
  if (const fs::path self = fs::read_symlink("/proc/self/exe", error); !error)
    folders.push_back(self.parent_path());
  const char* path = std::getenv("PATH");
  std::istringstream list(path != nullptr ? path : "");
  for (std::string folder; std::getline(list, folder, ':');)
    folders.emplace_back(folder.empty() ? "." : folder);
  for (const fs::path& folder : folders) {
    for (const char* name : {"python3", "python"}) {
      if (IsProgram(folder / name)) return (folder / name).string();
    }
  }
  return "";
}

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

PythonCheck AskPython(const std::string& interpreter, const std::string& engine) {
  PythonCheck check;
  check.interpreter = interpreter.empty() ? FindPython() : interpreter;
  if (check.interpreter.empty()) {
    check.missing = "there is no python3 beside this command or in PATH";
    return check;
  }
  // -P: what lies in the folder that this is called from is not the engine's.
  std::vector<std::string> command = {check.interpreter, "-P", "-c", kProgram};
  if (!engine.empty()) {
    command.insert(command.end(), {"--engine", engine});
    Say("asking " + check.interpreter + " about " + engine + "; importing it takes a while");
  }
  const ChildResult child = RunChild(command, engine.empty() ? kPatience : kPatienceWithEngine);
  if (!child.error.empty()) {
    check.missing = "cannot be started: " + child.error;
  } else if (child.timed_out) {
    check.missing = "did not answer in time";
  } else if (child.status == kNoPackage) {
    check.missing = "has no kvguard: " + FirstLine(child.out);
  } else if (child.status != 0) {
    check.missing = "ended with status " + std::to_string(child.status) + " and no answer";
  } else {
    check.answer = Json::parse(child.out, nullptr, /*allow_exceptions=*/false);
    if (!check.answer.is_object()) {
      check.answer = nullptr;
      check.missing = "gave no answer that can be read";
    }
  }
  return check;
}

}  // namespace kvguard::cli
