// SPDX-License-Identifier: Apache-2.0
// The blocks of one pool. Memory is taken for blocks that were touched, not for blocks that exist:
// a file may claim any pool.
#ifndef KVGUARD_SRC_MIRROR_BLOCK_STORE_H_
#define KVGUARD_SRC_MIRROR_BLOCK_STORE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace kvguard::mirror {

// A block's place in the account of its pool. Blocks are judged when something is bound or
// released, so that a step costs what changed, not what exists.
struct Block {
  uint64_t owner = 0;          // key of the live request that writes it; 0: nobody
  uint64_t last_owner = 0;     // the writing owner before that; for explanations only
  uint64_t since_step = 0;     // step in which `owner` got it
  uint64_t released_step = 0;  // step in which `last_owner` gave it up
  uint32_t claims = 0;         // entries of live rows that name it, over all groups of the pool
  // Prefix claims made in `hit_step`. A prefix hit may name a block that its writer is bound to in
  // the same step, in whatever order the two stand in the record; only claims from before make a
  // fresh binding wrong.
  uint32_t hit_claims = 0;
  uint64_t hit_step = 0;
  uint64_t write_step = 0;  // last step whose schedule writes it, and by whom
  uint64_t writer = 0;
  uint64_t stamp = 0;  // the last Mirror::StampRow that met it
};

class BlockStore {
 public:
  void Init(size_t num_blocks) {
    num_blocks_ = num_blocks;
    directories_.clear();
    directories_.resize((num_blocks + kSpan - 1) / kSpan);
  }
  size_t size() const { return num_blocks_; }

  // block < size(), in both. A block that was never touched reads as Block{}.
  const Block& At(size_t block) const {
    static constexpr Block kUntouched{};
    const Directory* directory = directories_[block / kSpan].get();
    if (directory == nullptr) return kUntouched;
    const Chunk* chunk = (*directory)[block % kSpan / kChunk].get();
    return chunk == nullptr ? kUntouched : (*chunk)[block % kChunk];
  }
  Block& Touch(size_t block) {
    std::unique_ptr<Directory>& directory = directories_[block / kSpan];
    if (directory == nullptr) directory = std::make_unique<Directory>();
    std::unique_ptr<Chunk>& chunk = (*directory)[block % kSpan / kChunk];
    if (chunk == nullptr) chunk = std::make_unique<Chunk>();
    return (*chunk)[block % kChunk];
  }

  // visit(index, block) for every block that may have been touched, by index.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (size_t d = 0; d < directories_.size(); ++d) {
      if (directories_[d] == nullptr) continue;
      for (size_t c = 0; c < kChunks; ++c) {
        const Chunk* chunk = (*directories_[d])[c].get();
        if (chunk == nullptr) continue;
        for (size_t i = 0; i < kChunk; ++i) visit(d * kSpan + c * kChunk + i, (*chunk)[i]);
      }
    }
  }

 private:
  // Blocks that take memory together: few, since a file may name any of them.
  static constexpr size_t kChunk = 64;
  static constexpr size_t kChunks = 1024;            // of a directory
  static constexpr size_t kSpan = kChunk * kChunks;  // blocks of a directory
  using Chunk = std::array<Block, kChunk>;
  using Directory = std::array<std::unique_ptr<Chunk>, kChunks>;
  size_t num_blocks_ = 0;
  std::vector<std::unique_ptr<Directory>> directories_;
};

}  // namespace kvguard::mirror

#endif  // KVGUARD_SRC_MIRROR_BLOCK_STORE_H_
