// SPDX-License-Identifier: Apache-2.0
#include "trace/tokens.h"

#include <bit>
#include <cerrno>
#include <limits>
#include <string.h>  // NOLINT(modernize-deprecated-headers): explicit_bzero

#include <sys/random.h>

namespace kvguard::trace {
namespace {

inline void SipRound(uint64_t* v) {
  v[0] += v[1];
  v[2] += v[3];
  v[1] = std::rotl(v[1], 13) ^ v[0];
  v[3] = std::rotl(v[3], 16) ^ v[2];
  v[0] = std::rotl(v[0], 32);
  v[2] += v[1];
  v[0] += v[3];
  v[1] = std::rotl(v[1], 17) ^ v[2];
  v[3] = std::rotl(v[3], 21) ^ v[0];
  v[2] = std::rotl(v[2], 32);
}

// KeyMap's keys are non-zero, so a value is found under itself with the top bit flipped; one value
// has no such key.
constexpr int64_t kNoNumber = std::numeric_limits<int64_t>::min();
constexpr uint64_t NumberKey(int64_t value) {
  return static_cast<uint64_t>(value) ^ (uint64_t{1} << 63);
}

enum : uint8_t { kWide = 0, kNumbered = 1 };

}  // namespace

uint64_t SipHash(uint64_t key0, uint64_t key1, uint64_t word) {
  uint64_t v[4] = {key0 ^ 0x736f6d6570736575u, key1 ^ 0x646f72616e646f6du,
                   key0 ^ 0x6c7967656e657261u, key1 ^ 0x7465646279746573u};
  const uint64_t blocks[2] = {word, uint64_t{8} << 56};  // the last holds the message's length
  for (const uint64_t block : blocks) {
    v[3] ^= block;
    SipRound(v);
    SipRound(v);
    v[0] ^= block;
  }
  v[2] ^= 0xff;
  for (int i = 0; i < 4; ++i) SipRound(v);
  return v[0] ^ v[1] ^ v[2] ^ v[3];
}

bool RandomBytes(void* bytes, size_t count) {
  auto* at = static_cast<uint8_t*>(bytes);
  while (count > 0) {
    const ssize_t got = getrandom(at, count, 0);
    if (got < 0) {
      if (errno == EINTR) continue;
      return false;
    }
    at += got;
    count -= static_cast<size_t>(got);
  }
  return true;
}

bool TokenMapper::Start() { return RandomBytes(key_, sizeof(key_)); }

void TokenMapper::SetKeyForTest(uint64_t key0, uint64_t key1) {
  key_[0] = key0;
  key_[1] = key1;
}

void TokenMapper::Forget() { explicit_bzero(key_, sizeof(key_)); }

int64_t TokenMapper::Map(int64_t id) const {
  if (id < 0) return id;
  return static_cast<int64_t>(SipHash(key_[0], key_[1], static_cast<uint64_t>(id)) >> 1);
}

void TokenColumnWriter::PutWide(std::span<const int64_t> tokens, ByteBuffer* out) {
  out->Reserve(1 + ByteBuffer::kMaxVarint);
  out->PutByte(kWide);
  out->PutVarint(tokens.size());
  out->Append(tokens.data(), tokens.size_bytes());
}

void MapWideTokens(std::span<uint8_t> column, const TokenMapper& mapper) {
  ByteReader in(column);
  uint8_t mode = 0;
  uint64_t count = 0;
  if (!in.Byte(&mode) || mode != kWide || !in.Varint(&count)) return;
  for (size_t at = column.size() - in.left(); at + sizeof(int64_t) <= column.size();
       at += sizeof(int64_t)) {
    int64_t token = 0;
    std::memcpy(&token, column.data() + at, sizeof(token));
    token = mapper.Map(token);
    std::memcpy(column.data() + at, &token, sizeof(token));
  }
}

void TokenColumnWriter::PutMapped(std::span<const int64_t> tokens, const TokenMapper& mapper,
                                  ByteBuffer* out) {
  out->Reserve(1 + ByteBuffer::kMaxVarint + tokens.size() * ByteBuffer::kMaxVarint);
  out->PutByte(kNumbered);
  out->PutVarint(tokens.size());
  for (const int64_t token : tokens) {
    const int64_t value = mapper.Map(token);
    const uint32_t number =
        value == kNoNumber ? mirror::KeyMap::kNone : numbers_.Find(NumberKey(value));
    if (number != mirror::KeyMap::kNone) {
      out->PutVarint(uint64_t{number} + 1);
      continue;
    }
    out->PutVarint(0);
    out->Append(&value, sizeof(value));
    if (value != kNoNumber && numbers_.size() < kMaxNumberedTokens) {
      numbers_.Insert(NumberKey(value), static_cast<uint32_t>(numbers_.size()));
    }
  }
}

void TokenColumnWriter::Clear() { numbers_.Clear(); }

bool TokenColumnReader::Get(std::span<const uint8_t> bytes, uint64_t max_count,
                            std::vector<int64_t>* out) {
  ByteReader in(bytes);
  uint8_t mode = 0;
  uint64_t count = 0;
  if (!in.Byte(&mode) || !in.Varint(&count) || count > max_count) return false;
  if (count > in.left()) return false;  // at least one byte each
  out->resize(static_cast<size_t>(count));
  if (mode == kWide) {
    if (in.left() != count * sizeof(int64_t)) return false;
    for (int64_t& token : *out) {
      uint64_t value = 0;
      if (!in.Fixed64(&value)) return false;
      token = static_cast<int64_t>(value);
    }
    return true;
  }
  if (mode != kNumbered) return false;
  for (int64_t& token : *out) {
    uint64_t number = 0;
    if (!in.Varint(&number)) return false;
    if (number > 0) {
      if (number > values_.size()) return false;
      token = values_[static_cast<size_t>(number - 1)];
      continue;
    }
    uint64_t value = 0;
    if (!in.Fixed64(&value)) return false;
    token = static_cast<int64_t>(value);
    if (token != kNoNumber && values_.size() < kMaxNumberedTokens) values_.push_back(token);
  }
  return in.AtEnd();
}

}  // namespace kvguard::trace
