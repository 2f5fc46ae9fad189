// SPDX-License-Identifier: Apache-2.0
#ifndef KVGUARD_SRC_STEP_STATUS_H_
#define KVGUARD_SRC_STEP_STATUS_H_

#include <string>
#include <utility>

#include "kvguard/kvguard.h"

namespace kvguard::step {

// What a call came to, with one sentence where it is not KVGUARD_OK. An OK status allocates
// nothing.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(kvguard_status code, std::string text) : code_(code), text_(std::move(text)) {}

  bool ok() const { return code_ == KVGUARD_OK; }
  kvguard_status code() const { return code_; }
  const std::string& text() const { return text_; }

 private:
  kvguard_status code_ = KVGUARD_OK;
  std::string text_;
};

// printf-style: the core links the C++ runtime alone, and g++ 12 has no <format>.
__attribute__((format(printf, 1, 2))) std::string Sprintf(const char* format, ...);
__attribute__((format(printf, 1, 2))) Status Malformed(const char* format, ...);
__attribute__((format(printf, 1, 2))) Status OutOfOrder(const char* format, ...);
__attribute__((format(printf, 1, 2))) Status Unsupported(const char* format, ...);

// Fills a caller's kvguard_error (may be null) and hands the code through.
kvguard_status Report(const Status& status, kvguard_error* error);

}  // namespace kvguard::step

#endif  // KVGUARD_SRC_STEP_STATUS_H_
