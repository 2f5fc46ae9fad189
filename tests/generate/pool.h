// SPDX-License-Identifier: Apache-2.0
// A scheduler's pool of blocks: reference counts, a queue of free blocks, an index of full blocks
// by the hash of what they hold. Freed blocks stay in the index until they are handed out again.
#ifndef KVGUARD_TESTS_GENERATE_POOL_H_
#define KVGUARD_TESTS_GENERATE_POOL_H_

#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "tests/generate/random.h"
#include "tests/generate/situations.h"

namespace kvguard::generate {

class BlockPool {
 public:
  BlockPool(int64_t num_blocks, bool null_block);
  // Blocks that nobody ever held are handed out in this order.
  void Shuffle(Random* random);

  int64_t free() const { return free_; }
  int64_t null_block() const { return null_block_ ? 0 : -1; }
  int64_t refs(int64_t block) const { return Of(block).refs; }

  // A block that nobody holds, the one that was freed first; what the index said of it is gone.
  int64_t Take(Situations* situations, bool stays_in_index = false);
  // One more holder of a block; a free one leaves the queue.
  void Touch(int64_t block);
  void Drop(int64_t block);

  // The block that holds this, or -1.
  int64_t Find(uint64_t hash) const;
  // Whether this hash was in the index, lost by an eviction, and put there again.
  bool CameBack(uint64_t hash) const { return came_back_.count(hash) != 0; }
  void Index(int64_t block, uint64_t hash);
  bool indexed(int64_t block) const { return Of(block).hash != 0; }
  // This block is not in the index any more.
  void Forget(int64_t block);
  // Blocks take the places of others, all pairs (old, new) at once: what the new ones were is gone
  // where they do not move on.
  void Move(const std::vector<std::pair<int64_t, int64_t>>& pairs);
  // No block is in the index any more.
  void Forget();

 private:
  struct Block {
    int64_t refs = 0;
    int64_t previous = -1;  // in the queue of free blocks; the sentinel is the last element
    int64_t next = -1;
    uint64_t hash = 0;  // 0: not in the index
  };
  Block& Of(int64_t block) { return blocks_[static_cast<size_t>(block)]; }
  const Block& Of(int64_t block) const { return blocks_[static_cast<size_t>(block)]; }
  void Unlink(int64_t block);
  void PushBack(int64_t block);

  bool null_block_;
  int64_t free_ = 0;
  std::vector<Block> blocks_;
  int64_t sentinel_;
  std::unordered_map<uint64_t, int64_t> index_;
  std::unordered_set<uint64_t> evicted_;
  std::unordered_set<uint64_t> came_back_;
};

}  // namespace kvguard::generate

#endif  // KVGUARD_TESTS_GENERATE_POOL_H_
