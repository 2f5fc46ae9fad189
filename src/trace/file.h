// SPDX-License-Identifier: Apache-2.0
// Files as the trace needs them: whole writes, bounded reads, and sentences that say what the
// system refused.
#ifndef KVGUARD_SRC_TRACE_FILE_H_
#define KVGUARD_SRC_TRACE_FILE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "step/status.h"

namespace kvguard::trace {

class OutputFile {
 public:
  OutputFile() = default;
  ~OutputFile() { (void)Close(); }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // A new file, or one that held a trace before: anything else at this path is left alone and
  // refused.
  step::Status Create(const std::string& path);

  // All of it or none: what a failed write left is cut off again.
  step::Status Write(std::span<const uint8_t> bytes);

  uint64_t size() const { return size_; }
  bool open() const { return fd_ >= 0; }
  step::Status Close();

 private:
  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

// Bytes in order, from a file or from memory.
class Input {
 public:
  Input() = default;
  ~Input();
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  step::Status Open(const std::string& path);
  void OpenMemory(std::span<const uint8_t> bytes);

  // As many of `count` bytes as there are.
  step::Status Read(void* bytes, size_t count, size_t* got);

 private:
  int fd_ = -1;
  std::span<const uint8_t> memory_;
};

}  // namespace kvguard::trace

#endif  // KVGUARD_SRC_TRACE_FILE_H_
