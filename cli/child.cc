// SPDX-License-Identifier: Apache-2.0
#include "cli/child.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <unistd.h>

#include <sys/wait.h>

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX declares it nowhere

namespace kvguard::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostOutput = 1 << 20;

// What the pipe gives until it is closed or the time is over; false where it is over.
bool ReadUntil(int fd, Clock::time_point deadline, std::string* out) {
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return false;
    pollfd wait{fd, POLLIN, 0};
    const int ready = poll(&wait, 1, static_cast<int>(std::min<int64_t>(left.count(), 1000)));
    if (ready < 0 && errno != EINTR) return true;
    if (ready <= 0) continue;
    char buffer[4096];
    const ssize_t n = read(fd, buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return true;
    const size_t room = kMostOutput - std::min(kMostOutput, out->size());
    out->append(buffer, std::min(room, static_cast<size_t>(n)));
  }
}

int StatusOf(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return 127;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

ChildResult RunChild(const std::vector<std::string>& command, std::chrono::seconds limit) {
  ChildResult result;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    result.error = std::strerror(errno);
    return result;
  }
  std::vector<std::string> arguments = command;
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // A group of its own: what it starts itself is ended with it.
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    result.error = std::strerror(error);
    return result;
  }
  result.timed_out = !ReadUntil(ends[0], Clock::now() + limit, &result.out);
  close(ends[0]);
  if (result.timed_out) ::kill(-pid, SIGKILL);
  result.status = StatusOf(pid);
  return result;
}

}  // namespace kvguard::cli
