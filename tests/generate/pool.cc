// SPDX-License-Identifier: Apache-2.0
#include "tests/generate/pool.h"

#include <algorithm>

namespace kvguard::generate {

BlockPool::BlockPool(int64_t num_blocks, bool null_block)
    : null_block_(null_block), blocks_(static_cast<size_t>(num_blocks) + 1), sentinel_(num_blocks) {
  Of(sentinel_).previous = Of(sentinel_).next = sentinel_;
  for (int64_t block = null_block ? 1 : 0; block < num_blocks; ++block) PushBack(block);
}

void BlockPool::Unlink(int64_t block) {
  Of(Of(block).previous).next = Of(block).next;
  Of(Of(block).next).previous = Of(block).previous;
  --free_;
}

void BlockPool::PushBack(int64_t block) {
  Of(block).previous = Of(sentinel_).previous;
  Of(block).next = sentinel_;
  Of(Of(block).previous).next = block;
  Of(sentinel_).previous = block;
  ++free_;
}

int64_t BlockPool::Take(Situations* situations, bool stays_in_index) {
  const int64_t block = Of(sentinel_).next;
  Unlink(block);
  Of(block).refs = 1;
  if (Of(block).hash != 0 && !stays_in_index) {
    situations->Reach(Situation::kEviction);
    evicted_.insert(Of(block).hash);
    index_.erase(Of(block).hash);
    Of(block).hash = 0;
  }
  return block;
}

void BlockPool::Touch(int64_t block) {
  if (Of(block).refs++ == 0) Unlink(block);
}

void BlockPool::Drop(int64_t block) {
  if (--Of(block).refs == 0) PushBack(block);
}

int64_t BlockPool::Find(uint64_t hash) const {
  const auto found = index_.find(hash);
  return found == index_.end() ? -1 : found->second;
}

void BlockPool::Index(int64_t block, uint64_t hash) {
  if (Of(block).hash != 0 || !index_.emplace(hash, block).second) return;
  Of(block).hash = hash;
  if (evicted_.count(hash) != 0) came_back_.insert(hash);
}

void BlockPool::Shuffle(Random* random) {
  std::vector<int64_t> blocks;
  while (Of(sentinel_).next != sentinel_) {
    blocks.push_back(Of(sentinel_).next);
    Unlink(blocks.back());
  }
  random->Shuffle(&blocks);
  for (const int64_t block : blocks) PushBack(block);
}

void BlockPool::Forget(int64_t block) {
  if (Of(block).hash != 0) index_.erase(Of(block).hash);
  Of(block).hash = 0;
}

void BlockPool::Move(const std::vector<std::pair<int64_t, int64_t>>& pairs) {
  std::vector<Block> before;
  std::vector<int64_t> all;
  for (const auto& [from, to] : pairs) {
    before.push_back(Of(from));
    all.push_back(from);
    all.push_back(to);
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  for (const int64_t block : all) {
    if (Of(block).refs == 0) Unlink(block);
    Forget(block);
    Of(block).refs = 0;
  }
  for (size_t i = 0; i < pairs.size(); ++i) {
    Block& to = Of(pairs[i].second);
    to.refs = before[i].refs;
    to.hash = before[i].hash;
    if (to.hash != 0) index_[to.hash] = pairs[i].second;
  }
  for (const int64_t block : all) {
    if (Of(block).refs == 0) PushBack(block);
  }
}

void BlockPool::Forget() {
  for (Block& block : blocks_) block.hash = 0;
  index_.clear();
}

}  // namespace kvguard::generate
