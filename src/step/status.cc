// SPDX-License-Identifier: Apache-2.0
#include "step/status.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace kvguard::step {
namespace {

std::string Vsprintf(const char* format, va_list args) {
  va_list again;
  va_copy(again, args);
  const int length = std::vsnprintf(nullptr, 0, format, args);
  std::string text;
  if (length > 0) {
    text.resize(static_cast<size_t>(length) + 1);
    std::vsnprintf(text.data(), text.size(), format, again);
    text.resize(static_cast<size_t>(length));
  }
  va_end(again);
  return text;
}

}  // namespace

std::string Sprintf(const char* format, ...) {
  va_list args;
  va_start(args, format);
  std::string text = Vsprintf(format, args);
  va_end(args);
  return text;
}

#define KVGUARD_DEFINE_STATUS(name, code)        \
  Status name(const char* format, ...) {         \
    va_list args;                                \
    va_start(args, format);                      \
    Status status(code, Vsprintf(format, args)); \
    va_end(args);                                \
    return status;                               \
  }
KVGUARD_DEFINE_STATUS(Malformed, KVGUARD_ERROR_ARGUMENT)
KVGUARD_DEFINE_STATUS(OutOfOrder, KVGUARD_ERROR_ORDER)
KVGUARD_DEFINE_STATUS(Unsupported, KVGUARD_ERROR_UNSUPPORTED)
#undef KVGUARD_DEFINE_STATUS

kvguard_status Report(const Status& status, kvguard_error* error) {
  if (error != nullptr && error->size >= sizeof(kvguard_error)) {
    error->status = status.code();
    size_t length = std::min(status.text().size(), sizeof(error->text) - 1);
    // Never cut inside a UTF-8 sequence: step back over continuation bytes.
    if (length < status.text().size()) {
      while (length > 0 && (static_cast<unsigned char>(status.text()[length]) & 0xC0u) == 0x80u) {
        --length;
      }
    }
    std::memcpy(error->text, status.text().data(), length);
    error->text[length] = '\0';
  }
  return status.code();
}

}  // namespace kvguard::step
