// SPDX-License-Identifier: Apache-2.0
// Reading the versioned structs of kvguard.h: a caller's struct may be smaller (an older header:
// absent fields are zero) or larger (a newer header: additional bytes must be zero) than ours.
#ifndef KVGUARD_SRC_STEP_STRUCTS_H_
#define KVGUARD_SRC_STEP_STRUCTS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "step/status.h"

namespace kvguard::step {

// No struct of kvguard.h is nearly as large: a larger `size` is garbage, not a later version.
inline constexpr uint32_t kMaxStructSize = 4096;

inline uint32_t SizeOf(const void* data) {
  uint32_t size;
  std::memcpy(&size, data, sizeof(size));
  return size;
}

// Checks the size of the struct at `data` against ours (`known`) and the fields every version had
// (`least`).
inline Status CheckSize(const void* data, size_t known, size_t least, const char* what) {
  const uint32_t size = SizeOf(data);
  if (size < least || size > kMaxStructSize || size % 4 != 0) {
    return Malformed(
        "%s: size is %u, but this struct has at least %zu bytes; set size = sizeof(...)", what,
        size, least);
  }
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (size_t i = known; i < size; ++i) {
    if (bytes[i] != 0) {
      return Unsupported(
          "%s: byte %zu is set, which this version (struct of %zu bytes) does not know; update "
          "kvguard",
          what, i, known);
    }
  }
  return {};
}

// Copies a versioned struct into ours, absent fields zero.
template <typename T>
Status ReadStruct(const T* in, T* out, const char* what) {
  if (in == nullptr) return Malformed("%s is NULL", what);
  if (reinterpret_cast<uintptr_t>(in) % alignof(T) != 0)
    return Malformed("%s is not aligned", what);
  if (Status status = CheckSize(in, sizeof(T), sizeof(uint32_t), what); !status.ok()) return status;
  *out = T{};
  const uint32_t size = in->size;
  std::memcpy(out, in, size < sizeof(T) ? size : sizeof(T));
  out->size = sizeof(T);
  return {};
}

// A checked view of an array of versioned structs. Where the caller's elements are ours or larger
// it views them in place; where they are smaller it owns widened copies.
template <typename T>
class StructArray {
 public:
  size_t size() const { return count_; }
  const T& operator[](size_t i) const { return *reinterpret_cast<const T*>(base_ + i * stride_); }

  Status Assign(const T* data, uint64_t count, uint64_t most, const char* what) {
    base_ = nullptr;
    count_ = 0;
    if (count == 0) return {};
    if (data == nullptr)
      return Malformed("%s is NULL but counts %llu", what, static_cast<unsigned long long>(count));
    if (count > most) {
      return Malformed("%s counts %llu, more than the %llu this engine can have", what,
                       static_cast<unsigned long long>(count),
                       static_cast<unsigned long long>(most));
    }
    if (reinterpret_cast<uintptr_t>(data) % alignof(T) != 0)
      return Malformed("%s is not aligned", what);
    const auto* bytes = reinterpret_cast<const unsigned char*>(data);
    const uint32_t stride = SizeOf(bytes);
    if (stride < sizeof(uint32_t) || stride > kMaxStructSize || stride % alignof(T) != 0) {
      return Malformed("%s[0].size is %u; set size = sizeof(...) in every element", what, stride);
    }
    for (uint64_t i = 0; i < count; ++i) {
      const unsigned char* element = bytes + i * stride;
      if (SizeOf(element) != stride) {
        return Malformed("%s[%llu].size is %u, but %s[0].size is %u; all elements have one size",
                         what, static_cast<unsigned long long>(i), SizeOf(element), what, stride);
      }
      if (stride > sizeof(T)) {
        if (Status status = CheckSize(element, sizeof(T), sizeof(uint32_t), what); !status.ok())
          return status;
      }
    }
    if (stride >= sizeof(T)) {
      base_ = bytes;
      stride_ = stride;
    } else {
      widened_.assign(count, T{});
      for (uint64_t i = 0; i < count; ++i) std::memcpy(&widened_[i], bytes + i * stride, stride);
      base_ = reinterpret_cast<const unsigned char*>(widened_.data());
      stride_ = sizeof(T);
    }
    count_ = count;
    return {};
  }

 private:
  const unsigned char* base_ = nullptr;
  size_t count_ = 0;
  size_t stride_ = sizeof(T);
  std::vector<T> widened_;
};

}  // namespace kvguard::step

#endif  // KVGUARD_SRC_STEP_STRUCTS_H_
