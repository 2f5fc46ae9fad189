// SPDX-License-Identifier: Apache-2.0
// The truth of a program: what each slot of each pool holds, as the modelled kernels wrote it. A
// read that meets anything else is a bug of the generator, never of the guard.
#ifndef KVGUARD_TESTS_GENERATE_MEMORY_H_
#define KVGUARD_TESTS_GENERATE_MEMORY_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/generate/options.h"

namespace kvguard::generate {

struct Tag {
  uint64_t content = 0;  // of the chain of tokens up to this one; 0: nothing
  int64_t position = -1;
  uint32_t group = 0;  // groups of one pool share bytes

  bool operator==(const Tag&) const = default;
};

class Memory {
 public:
  explicit Memory(const Options& options) : options_(options) {
    for (size_t p = 0; p < options.pools.size(); ++p) {
      size_t largest = 1;
      for (const GroupOptions& group : options.groups) {
        if (group.pool == p && static_cast<size_t>(group.block_size) > largest)
          largest = static_cast<size_t>(group.block_size);
      }
      sizes_.push_back(largest);
      pools_.emplace_back(static_cast<size_t>(options.pools[p].num_blocks) * largest);
    }
  }

  // Null where there is no such slot.
  Tag* At(uint32_t group, int64_t slot) {
    const GroupOptions& g = options_.groups[group];
    if (slot < 0 || slot >= options_.pools[g.pool].num_blocks * g.block_size) return nullptr;
    const auto block = static_cast<size_t>(slot / g.block_size);
    return &pools_[g.pool][block * sizes_[g.pool] + static_cast<size_t>(slot % g.block_size)];
  }
  void Wipe() {
    for (auto& pool : pools_) pool.assign(pool.size(), Tag{});
  }
  // Blocks are copied to other places, all pairs (old, new) at once.
  void MoveBlocks(uint32_t pool, const std::vector<std::pair<int64_t, int64_t>>& pairs) {
    const std::vector<Tag> before = pools_[pool];
    const size_t size = sizes_[pool];
    for (const auto& [from, to] : pairs) {
      for (size_t i = 0; i < size; ++i) {
        pools_[pool][static_cast<size_t>(to) * size + i] =
            before[static_cast<size_t>(from) * size + i];
      }
    }
  }
  void WipeBlock(uint32_t pool, int64_t block) {
    for (size_t i = 0; i < sizes_[pool]; ++i)
      pools_[pool][static_cast<size_t>(block) * sizes_[pool] + i] = Tag{};
  }

 private:
  const Options& options_;
  std::vector<size_t> sizes_;  // slots of a block, by pool
  std::vector<std::vector<Tag>> pools_;
};

}  // namespace kvguard::generate

#endif  // KVGUARD_TESTS_GENERATE_MEMORY_H_
