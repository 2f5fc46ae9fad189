// SPDX-License-Identifier: Apache-2.0
#include "lab/block_pool.h"

#include <bit>

#include "lab/config.h"
#include "lab/random.h"

namespace kvguard::lab {

BlockPool::BlockPool(int32_t num_blocks) : blocks_(Ix(num_blocks) + 1) {
  const size_t places = std::bit_ceil(Ix(num_blocks) * 4);
  index_.resize(places);
  evicted_.resize(places);
  shift_ = 64 - std::countr_zero(places);
  At(end()).next = At(end()).previous = end();
  for (int32_t id = 1; id < num_blocks; ++id) Link(id, end());
}

void BlockPool::Link(int32_t id, int32_t before) {
  Block& block = At(id);
  block.next = before;
  block.previous = At(before).previous;
  At(block.previous).next = id;
  At(before).previous = id;
  ++num_free_;
}

void BlockPool::Unlink(int32_t id) {
  Block& block = At(id);
  At(block.previous).next = block.next;
  At(block.next).previous = block.previous;
  --num_free_;
}

int32_t BlockPool::Take() {
  const int32_t id = At(end()).next;
  Unlink(id);
  if (At(id).key != 0) {
    evicted_[Home(At(id).key)] = At(id).key;
    ++evictions_;
    Forget(id);
  }
  At(id).references = 1;
  return id;
}

void BlockPool::Touch(int32_t id) {
  if (At(id).references++ == 0) Unlink(id);
}

void BlockPool::Release(int32_t id, bool first) {
  if (--At(id).references == 0) Link(id, first ? At(end()).next : end());
}

int32_t BlockPool::Find(uint64_t key) const {
  for (size_t i = Home(key); index_[i].key != 0; i = (i + 1) & (index_.size() - 1)) {
    if (index_[i].key == key) return index_[i].id;
  }
  return kNullBlock;
}

void BlockPool::Enter(int32_t id, uint64_t key) {
  if (At(id).key != 0) return;
  size_t i = Home(key);
  for (; index_[i].key != 0; i = (i + 1) & (index_.size() - 1)) {
    if (index_[i].key == key) return;
  }
  index_[i] = {key, id};
  At(id).key = key;
}

void BlockPool::Forget(int32_t id) {
  const uint64_t key = At(id).key;
  if (key == 0) return;
  At(id).key = 0;
  const size_t mask = index_.size() - 1;
  size_t hole = Home(key);
  while (index_[hole].key != key) hole = (hole + 1) & mask;
  // What stands behind the hole moves up, unless its home lies behind the hole.
  for (size_t i = (hole + 1) & mask; index_[i].key != 0; i = (i + 1) & mask) {
    if (((i - Home(index_[i].key)) & mask) >= ((i - hole) & mask)) {
      index_[hole] = index_[i];
      hole = i;
    }
  }
  index_[hole] = {};
}

bool BlockPool::WasEvicted(uint64_t key) const { return evicted_[Home(key)] == key; }

}  // namespace kvguard::lab
