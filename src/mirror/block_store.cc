// SPDX-License-Identifier: Apache-2.0
#include "mirror/block_store.h"

#include <new>
#include <type_traits>

#include <sys/mman.h>

namespace kvguard::mirror {

// Pages that were never written are zero, and so must be a block that was never touched.
static_assert(std::is_trivially_destructible_v<Block> && std::is_trivially_copyable_v<Block>);

void UnmapBlocks::operator()(Block* blocks) const { munmap(blocks, bytes); }

void BlockStore::Init(size_t num_blocks) {
  blocks_.reset();
  touched_.clear();
  num_blocks_ = 0;
  if (num_blocks == 0) return;
  const size_t bytes = num_blocks * sizeof(Block);
  void* memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS |
               MAP_NORESERVE,  // NORESERVE: a pool may be larger than what the machine has
           -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  blocks_ = std::unique_ptr<Block, UnmapBlocks>(static_cast<Block*>(memory), UnmapBlocks{bytes});
  touched_.assign((num_blocks + kSpan - 1) / kSpan, 0);
  num_blocks_ = num_blocks;
}

}  // namespace kvguard::mirror
