// SPDX-License-Identifier: Apache-2.0
// Memory for one decoded record: bump allocation under a budget, kept and reused from record to
// record.
#ifndef KVGUARD_SRC_TRACE_ARENA_H_
#define KVGUARD_SRC_TRACE_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace kvguard::trace {

class Arena {
 public:
  // Forgets everything allocated; `budget` bounds what is allocated from now on.
  void Reset(uint64_t budget) {
    budget_ = budget;
    if (chunks_.size() > 1) {
      // One chunk as large as all of them: a repeated shape then needs no second one.
      size_t total = 0;
      for (const Chunk& chunk : chunks_) total += chunk.size;
      chunks_.clear();
      AddChunk(total);
    }
    used_ = 0;
  }

  uint64_t budget() const { return budget_; }

  // Takes bytes from the budget that are allocated elsewhere.
  bool Charge(uint64_t bytes) {
    if (bytes > budget_) return false;
    budget_ -= bytes;
    return true;
  }

  // Uninitialised; nullptr where the budget does not allow it. Never nullptr for count 0.
  template <typename T>
  T* Allocate(uint64_t count) {
    static_assert(alignof(T) <= kAlignment);
    if (count > budget_ / sizeof(T)) return nullptr;
    const size_t bytes =
        (static_cast<size_t>(count) * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    budget_ -= count * sizeof(T);
    if (chunks_.empty() || chunks_.back().size - used_ < bytes) {
      AddChunk(bytes < kChunk ? kChunk : bytes);
      used_ = 0;
    }
    auto* at = chunks_.back().data.get() + used_;
    used_ += bytes;
    return reinterpret_cast<T*>(at);
  }

 private:
  static constexpr size_t kAlignment = 16;
  static constexpr size_t kChunk = size_t{64} << 10;

  struct Chunk {
    std::unique_ptr<std::byte[]> data;
    size_t size = 0;
  };

  void AddChunk(size_t size) {
    chunks_.push_back({std::make_unique_for_overwrite<std::byte[]>(size), size});
  }

  std::vector<Chunk> chunks_;
  size_t used_ = 0;  // of the last chunk
  uint64_t budget_ = 0;
};

}  // namespace kvguard::trace

#endif  // KVGUARD_SRC_TRACE_ARENA_H_
