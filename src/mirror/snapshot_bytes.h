// SPDX-License-Identifier: Apache-2.0
// Little-endian integers and counted strings, written and read with every length checked.
#ifndef KVGUARD_SRC_MIRROR_SNAPSHOT_BYTES_H_
#define KVGUARD_SRC_MIRROR_SNAPSHOT_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace kvguard::mirror {

inline uint64_t Fnv1a(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

class Writer {
 public:
  explicit Writer(std::string* out) : out_(out) {}
  template <typename T>
  void Put(T value) {
    static_assert(std::is_integral_v<T>);
    for (size_t i = 0; i < sizeof(T); ++i) {
      out_->push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
    }
  }
  void Bytes(std::string_view bytes) {
    Put<uint32_t>(static_cast<uint32_t>(bytes.size()));
    out_->append(bytes);
  }

 private:
  std::string* out_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  template <typename T>
  bool Get(T* value) {
    if (bytes_.size() - at_ < sizeof(T)) return false;
    uint64_t v = 0;
    for (size_t i = 0; i < sizeof(T); ++i) {
      v |= static_cast<uint64_t>(static_cast<unsigned char>(bytes_[at_ + i])) << (8 * i);
    }
    at_ += sizeof(T);
    *value = static_cast<T>(v);
    return true;
  }
  bool Bytes(std::string* out) {
    uint32_t size;
    if (!Get(&size) || bytes_.size() - at_ < size) return false;
    out->assign(bytes_.substr(at_, size));
    at_ += size;
    return true;
  }
  // A count of elements that take at least `least` bytes each: more than what is left cannot be
  // true.
  bool Count(uint32_t* count, size_t least) {
    return Get(count) && *count <= (bytes_.size() - at_) / least;
  }
  bool AtEnd() const { return at_ == bytes_.size(); }

 private:
  std::string_view bytes_;
  size_t at_ = 0;
};

}  // namespace kvguard::mirror

#endif  // KVGUARD_SRC_MIRROR_SNAPSHOT_BYTES_H_
