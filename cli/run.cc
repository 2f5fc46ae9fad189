// SPDX-License-Identifier: Apache-2.0
#include "cli/run.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <spawn.h>
#include <thread>
#include <unistd.h>

#include <sys/stat.h>
#include <sys/wait.h>

#include "cli/run_command.h"
#include "cli/run_status.h"

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX declares it nowhere

namespace kvguard::cli {
namespace {

constexpr int kUsage = 64;
constexpr int kUnreadable = 65;
constexpr int kCannotJudge = 2;
constexpr auto kPatience =
    std::chrono::seconds(15);  // for ranks that outlive the command's first process

std::map<std::string, std::string> PresentEnvironment() {
  std::map<std::string, std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) out.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return out;
}

// A directory that is removed with what the guard wrote there.
class StatusDirectory {
 public:
  explicit StatusDirectory(const std::string& given) : path_(given) {
    std::error_code error;
    if (!given.empty()) {
      std::filesystem::create_directories(given, error);
      if (error)
        throw UsageError(kUnreadable,
                         "--status-dir " + given + " cannot be made: " + error.message());
      return;
    }
    std::string pattern =
        (std::filesystem::temp_directory_path(error) / "kvguard-run-XXXXXX").string();
    if (error || ::mkdtemp(pattern.data()) == nullptr) {
      throw UsageError(kUnreadable, std::string("no directory for the status can be made: ") +
                                        std::strerror(errno) + "; name one with --status-dir");
    }
    path_ = pattern;
    fresh_ = true;
  }
  ~StatusDirectory() {
    std::error_code ignored;
    if (fresh_) std::filesystem::remove_all(path_, ignored);
  }
  StatusDirectory(const StatusDirectory&) = delete;
  StatusDirectory& operator=(const StatusDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool fresh_ = false;
};

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (std::string& s : strings) out.push_back(s.data());
  out.push_back(nullptr);
  return out;
}

// Signals are waited for, not handled: they are blocked from before the spawn, so none can be lost.
class Signals {
 public:
  Signals() {
    ::signal(SIGCHLD, SIG_DFL);  // inherited as ignored, it would never come
    sigemptyset(&set_);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&set_, signal);
    sigprocmask(SIG_BLOCK, &set_, &before_);
  }
  ~Signals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  const sigset_t& before() const { return before_; }

  // Hands signals on until the process ends; its status as a shell gives it.
  int WaitFor(pid_t pid) {
    for (;;) {
      int status = 0;
      const pid_t ended = waitpid(pid, &status, WNOHANG);
      if (ended == pid) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      if (ended < 0 && errno != EINTR) return 127;
      siginfo_t info;
      const int signal = sigwaitinfo(&set_, &info);
      if (signal <= 0 || signal == SIGCHLD) continue;
      // What a terminal sends goes to the command too, which is in the same process group.
      if (info.si_code != SI_KERNEL) ::kill(pid, signal);
    }
  }

 private:
  sigset_t set_;
  sigset_t before_;
};

// 0 or an errno.
int Spawn(std::vector<std::string> command, std::vector<std::string> variables,
          bool stdout_to_stderr, const sigset_t& mask, pid_t* pid) {
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, &mask);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (stdout_to_stderr) posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  std::vector<char*> argv = Pointers(command);
  std::vector<char*> envp = Pointers(variables);
  const int error = posix_spawnp(pid, argv[0], &actions, &attributes, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  return error;
}

std::vector<nlohmann::json> FinalStatuses(const std::string& directory,
                                          const std::set<std::string>& before) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    std::vector<nlohmann::json> statuses = ReadStatusFiles(directory, before);
    bool waiting = false;
    for (const auto& status : statuses) waiting = waiting || MayStillWrite(status);
    if (!waiting || std::chrono::steady_clock::now() > deadline) return statuses;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

// Where both streams are one terminal or file, the command may have left it in the middle of a
// line.
void StartOnALineOfItsOwn() {
  struct stat out;
  struct stat err;
  if (fstat(STDOUT_FILENO, &out) != 0 || fstat(STDERR_FILENO, &err) != 0) return;
  if (out.st_dev == err.st_dev && out.st_ino == err.st_ino) std::fputc('\n', stderr);
}

int RunChecked(const RunOptions& options) {
  const std::string config = GuardConfig(options);
  const std::vector<std::string> command = GuardedCommand(options.command, config);
  const StatusDirectory directory(options.status_dir);
  std::map<std::string, std::string> environment = PresentEnvironment();
  for (auto& [name, value] :
       GuardedEnvironment(options.command, config, directory.path(), environment)) {
    environment[name] = value;
  }
  std::vector<std::string> variables;
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  const std::set<std::string> before = ListStatusFiles(directory.path());

  Signals signals;
  std::fflush(stdout);
  pid_t pid = 0;
  if (const int error = Spawn(command, variables, options.json, signals.before(), &pid);
      error != 0) {
    std::fprintf(stderr, "kvguard: the command '%s' cannot be started: %s\n", command[0].c_str(),
                 std::strerror(error));
    return kCannotJudge;
  }
  const int status = signals.WaitFor(pid);
  const RunResult result = Conclude(FinalStatuses(directory.path(), before), status);
  const std::string text = options.json ? ResultJson(result) : ResultText(result);
  StartOnALineOfItsOwn();
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
  return result.exit_code;
}

}  // namespace

int Run(const std::vector<std::string>& arguments) {
  try {
    const RunOptions options = ParseRunOptions(arguments);
    if (options.help) {
      std::fputs(kRunUsage, stdout);
      return 0;
    }
    return RunChecked(options);
  } catch (const UsageError& error) {
    std::fprintf(stderr, "kvguard: %s\n", error.what());
    if (error.exit_code() == kUsage)
      std::fputs("kvguard: `kvguard run --help` shows the options\n", stderr);
    return error.exit_code();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kvguard: internal error in `run`: %s\n", error.what());
    return 70;
  }
}

}  // namespace kvguard::cli
