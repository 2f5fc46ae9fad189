// SPDX-License-Identifier: Apache-2.0
// Bytes out and bytes in: variable-length integers, and a reader that cannot leave its span.
#ifndef KVGUARD_SRC_TRACE_BYTES_H_
#define KVGUARD_SRC_TRACE_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

namespace kvguard::trace {

// Signed to unsigned with small magnitudes small: 0, -1, 1, -2 become 0, 1, 2, 3.
constexpr uint64_t ZigZag(int64_t value) {
  return (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63);
}
constexpr int64_t UnZigZag(uint64_t value) {
  return static_cast<int64_t>((value >> 1) ^ (~(value & 1) + 1));
}

// Two's complement sums and differences: what wraps when it is written wraps back when it is read.
constexpr int64_t WrapAdd(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
constexpr int64_t WrapSub(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}

// A growing buffer that is cleared and reused. Writers reserve once for a whole loop and then write
// unchecked.
class ByteBuffer {
 public:
  static constexpr size_t kMaxVarint = 10;

  void Clear() { size_ = 0; }
  size_t size() const { return size_; }
  const uint8_t* data() const { return data_.get(); }
  std::span<const uint8_t> bytes() const { return {data_.get(), size_}; }

  // Makes room for `more` bytes behind the end.
  void Reserve(size_t more) {
    if (capacity_ - size_ < more) Grow(more);
  }

  // Each needs room for what it writes.
  void PutByte(uint8_t byte) { data_[size_++] = byte; }
  void PutVarint(uint64_t value) {
    while (value >= 0x80) {
      data_[size_++] = static_cast<uint8_t>(value | 0x80);
      value >>= 7;
    }
    data_[size_++] = static_cast<uint8_t>(value);
  }

  void Append(const void* bytes, size_t count) {
    if (count == 0) return;
    Reserve(count);
    std::memcpy(data_.get() + size_, bytes, count);
    size_ += count;
  }

 private:
  void Grow(size_t more) {
    size_t capacity = capacity_ < 64 ? 64 : capacity_;
    while (capacity - size_ < more) capacity *= 2;
    auto data = std::make_unique_for_overwrite<uint8_t[]>(capacity);
    if (size_ > 0) std::memcpy(data.get(), data_.get(), size_);
    data_ = std::move(data);
    capacity_ = capacity;
  }

  std::unique_ptr<uint8_t[]> data_;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

// Reads untrusted bytes. Every read says whether there was something to read.
class ByteReader {
 public:
  ByteReader() = default;
  explicit ByteReader(std::span<const uint8_t> bytes)
      : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  bool AtEnd() const { return at_ == end_; }
  size_t left() const { return static_cast<size_t>(end_ - at_); }

  bool Byte(uint8_t* out) {
    if (at_ == end_) return false;
    *out = *at_++;
    return true;
  }

  bool Varint(uint64_t* out) {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (at_ == end_) return false;
      const uint8_t byte = *at_++;
      if (shift == 63 && byte > 1) return false;  // a 65th bit
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) {
        *out = value;
        return true;
      }
    }
    return false;
  }

  bool Fixed64(uint64_t* out) {
    if (left() < sizeof(*out)) return false;
    std::memcpy(out, at_, sizeof(*out));
    at_ += sizeof(*out);
    return true;
  }

 private:
  const uint8_t* at_ = nullptr;
  const uint8_t* end_ = nullptr;
};

}  // namespace kvguard::trace

#endif  // KVGUARD_SRC_TRACE_BYTES_H_
