// SPDX-License-Identifier: Apache-2.0
// The scheduler's pool of block ids: reference counts, a queue of free blocks in the order in which
// they will be taken, and the index of the prefix cache. A free block stays in the index until it
// is taken: that is what a later hit finds, and what an eviction ends.
#ifndef KVGUARD_LAB_BLOCK_POOL_H_
#define KVGUARD_LAB_BLOCK_POOL_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvguard::lab {

class BlockPool {
 public:
  explicit BlockPool(int32_t num_blocks);

  int32_t num_blocks() const { return static_cast<int32_t>(blocks_.size()) - 1; }
  int32_t num_free() const { return num_free_; }
  int32_t references(int32_t id) const { return At(id).references; }
  bool cached(int32_t id) const { return At(id).key != 0; }
  uint64_t evictions() const { return evictions_; }

  // The block at the head of the queue, with one reference. Its cached content is given up. Only
  // where num_free() > 0.
  int32_t Take();
  // One more reference; a free block leaves the queue.
  void Touch(int32_t id);
  // One reference less; at none the block goes to the end of the queue (to its head where `first`:
  // what it holds is worth nothing).
  void Release(int32_t id, bool first = false);

  // `key`: not 0, names content and group. The null block where nothing holds it.
  int32_t Find(uint64_t key) const;
  // Where no block has the key yet and this one has none.
  void Enter(int32_t id, uint64_t key);
  void Forget(int32_t id);
  // True where `key` was in the index once and its block was taken since.
  bool WasEvicted(uint64_t key) const;

 private:
  struct Block {
    uint64_t key = 0;
    int32_t references = 0;
    int32_t next = -1;
    int32_t previous = -1;
  };
  struct Entry {
    uint64_t key = 0;
    int32_t id = 0;
  };

  const Block& At(int32_t id) const { return blocks_[static_cast<size_t>(id)]; }
  Block& At(int32_t id) { return blocks_[static_cast<size_t>(id)]; }
  int32_t end() const { return num_blocks(); }  // the queue's sentinel
  void Link(int32_t id, int32_t before);
  void Unlink(int32_t id);
  size_t Home(uint64_t key) const { return static_cast<size_t>(key >> shift_); }

  std::vector<Block> blocks_;
  std::vector<Entry> index_;       // open addressing, linear
  std::vector<uint64_t> evicted_;  // the latest key of each place that was evicted
  int shift_ = 0;
  int32_t num_free_ = 0;
  uint64_t evictions_ = 0;
};

}  // namespace kvguard::lab

#endif  // KVGUARD_LAB_BLOCK_POOL_H_
