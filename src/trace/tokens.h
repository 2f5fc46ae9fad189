// SPDX-License-Identifier: Apache-2.0
// Token ids. What a trace holds instead of an id is a keyed hash of it: equal ids of one recording
// are equal values, and nobody can go back once the key is gone. XXH3 would not do: on one word it
// can be inverted.
#ifndef KVGUARD_SRC_TRACE_TOKENS_H_
#define KVGUARD_SRC_TRACE_TOKENS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "mirror/key_map.h"
#include "trace/bytes.h"

namespace kvguard::trace {

// SipHash-2-4 of one 64-bit word.
uint64_t SipHash(uint64_t key0, uint64_t key1, uint64_t word);

// Random bytes of the operating system; false where it has none to give.
bool RandomBytes(void* bytes, size_t count);

class TokenMapper {
 public:
  TokenMapper() = default;
  TokenMapper(const TokenMapper&) = delete;
  TokenMapper& operator=(const TokenMapper&) = delete;
  ~TokenMapper() { Forget(); }

  // A new random key.
  bool Start();
  void SetKeyForTest(uint64_t key0, uint64_t key1);
  void Forget();

  // A negative number is no id but a place that is not filled yet; it stays what it is.
  int64_t Map(int64_t id) const;

 private:
  uint64_t key_[2] = {0, 0};
};

// Hashes do not compress, so a token column names one that the recording has seen by its number:
//
//     byte     0 wide | 1 numbered
//     varint   count
//     wide     eight bytes each
//     numbered varint n: 0 a new value, eight bytes, which gets the next number; else the value
//     with number n - 1
//
// The list of numbers is bounded: what is new after it is full is written whole each time.
inline constexpr uint32_t kMaxNumberedTokens = 1u << 16;

class TokenColumnWriter {
 public:
  // `tokens` as they are, for memory of this process only. MapWideTokens makes them fit to leave
  // it.
  void PutWide(std::span<const int64_t> tokens, ByteBuffer* out);
  void PutMapped(std::span<const int64_t> tokens, const TokenMapper& mapper, ByteBuffer* out);
  void Clear();

 private:
  mirror::KeyMap numbers_;
};

// Replaces the ids of a wide column where they stand. Other columns are mapped already.
void MapWideTokens(std::span<uint8_t> column, const TokenMapper& mapper);

class TokenColumnReader {
 public:
  // False where the bytes are not a column of at most max_count tokens.
  bool Get(std::span<const uint8_t> bytes, uint64_t max_count, std::vector<int64_t>* out);
  void Clear() { values_.clear(); }

 private:
  std::vector<int64_t> values_;
};

}  // namespace kvguard::trace

#endif  // KVGUARD_SRC_TRACE_TOKENS_H_
