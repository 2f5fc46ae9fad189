// SPDX-License-Identifier: Apache-2.0
#include "trace/file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <system_error>
#include <unistd.h>

#include <sys/file.h>
#include <sys/stat.h>

#include "trace/frame.h"

namespace kvguard::trace {
namespace {

using step::Status;

// strerror is not safe in a process with other threads.
std::string Reason(int error) { return std::generic_category().message(error); }

Status Refused(const std::string& path, const char* what, int error) {
  return {KVGUARD_ERROR_IO, path + ": " + what + ": " + Reason(error)};
}

// Interrupted and short writes go on; -1 with errno otherwise.
bool WriteAll(int fd, const uint8_t* at, size_t count, uint64_t* written) {
  *written = 0;
  while (*written < count) {
    const ssize_t n = ::write(fd, at + *written, count - static_cast<size_t>(*written));
    if (n < 0) {
      if (errno == EINTR) continue;
      return false;
    }
    *written += static_cast<uint64_t>(n);
  }
  return true;
}

}  // namespace

Status OutputFile::Create(const std::string& path) {
  path_ = path;
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY, 0644);
  if (fd < 0) return Refused(path, "cannot be written", errno);
  struct stat info{};
  if (::fstat(fd, &info) != 0) {
    const int error = errno;
    ::close(fd);
    return Refused(path, "cannot be written", error);
  }
  if (S_ISREG(info.st_mode)) {
    // Two ranks that were given one path must not empty each other's file.
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      ::close(fd);
      return {KVGUARD_ERROR_IO,
              path + ": another recorder is writing it; give each rank a path of its own"};
    }
    uint8_t head[kPreludeBytes];
    const ssize_t got = ::pread(fd, head, sizeof(head), 0);
    const size_t magic = Prelude().size() / 2;
    if (got != 0 &&
        (got < static_cast<ssize_t>(magic) || std::memcmp(head, Prelude().data(), magic) != 0)) {
      ::close(fd);
      return {KVGUARD_ERROR_IO,
              path + ": exists and is not a kvguard trace; choose another path, or remove it"};
    }
    if (::ftruncate(fd, 0) != 0) {
      const int error = errno;
      ::close(fd);
      return Refused(path, "cannot be emptied", error);
    }
  }
  fd_ = fd;
  size_ = 0;
  return {};
}

Status OutputFile::Write(std::span<const uint8_t> bytes) {
  uint64_t written = 0;
  if (!WriteAll(fd_, bytes.data(), bytes.size(), &written)) {
    const int error = errno;
    if (written > 0) {
      // Failing to cut it off leaves a truncated frame, which readers find.
      if (::ftruncate(fd_, static_cast<off_t>(size_)) == 0) {
        (void)::lseek(fd_, static_cast<off_t>(size_), SEEK_SET);
      }
    }
    return Refused(path_, "writing failed", error);
  }
  size_ += written;
  return {};
}

Status OutputFile::Close() {
  if (fd_ < 0) return {};
  const int fd = fd_;
  fd_ = -1;
  // Delayed allocation and network file systems report a full disk only now.
  if (::close(fd) != 0 && errno != EINTR) return Refused(path_, "closing failed", errno);
  return {};
}

Input::~Input() {
  if (fd_ >= 0) ::close(fd_);
}

Status Input::Open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY |
                                          O_NONBLOCK);  // a pipe without a writer must not hang
  if (fd < 0) return Refused(path, "cannot be read", errno);
  struct stat info{};
  if (::fstat(fd, &info) != 0) {
    const int error = errno;
    ::close(fd);
    return Refused(path, "cannot be read", error);
  }
  if (S_ISDIR(info.st_mode)) {
    ::close(fd);
    return {KVGUARD_ERROR_IO, path + ": is a directory; name a .kvtrace file in it"};
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(fd);
    return {KVGUARD_ERROR_IO, path + ": is not a regular file"};
  }
  fd_ = fd;
  return {};
}

void Input::OpenMemory(std::span<const uint8_t> bytes) { memory_ = bytes; }

Status Input::Read(void* bytes, size_t count, size_t* got) {
  *got = 0;
  if (fd_ < 0) {
    *got = std::min(count, memory_.size());
    if (*got > 0) std::memcpy(bytes, memory_.data(), *got);
    memory_ = memory_.subspan(*got);
    return {};
  }
  auto* at = static_cast<uint8_t*>(bytes);
  while (*got < count) {
    const ssize_t n = ::read(fd_, at + *got, count - *got);
    if (n < 0) {
      if (errno == EINTR) continue;
      return {KVGUARD_ERROR_IO, "reading failed: " + Reason(errno)};
    }
    if (n == 0) break;
    *got += static_cast<size_t>(n);
  }
  return {};
}

}  // namespace kvguard::trace
