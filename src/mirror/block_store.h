// SPDX-License-Identifier: Apache-2.0
// The blocks of one pool. Memory is taken for blocks that were touched, not for blocks that exist:
// a file may claim any pool.
#ifndef KVGUARD_SRC_MIRROR_BLOCK_STORE_H_
#define KVGUARD_SRC_MIRROR_BLOCK_STORE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "mirror/chain.h"

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
  // Where its content belongs: the column that it was bound in as fresh or loaded for, plus 1 (0:
  // not known), and that column's group.
  uint32_t home = 0;
  uint32_t home_group = 0;
  // What it holds, once its binder has given it back or a load was done into it.
  ContentName content;
  // Groups of states: of how many tokens it holds the state; 0: not known.
  int64_t state_tokens = 0;
  // Transfers that pin it: all incoming ones, of these the loads, and the outgoing ones.
  uint32_t pins_in = 0;
  uint32_t loading = 0;
  uint32_t pins_out = 0;
  uint64_t loaded_for = 0;   // key that the last load done into it named
  bool keeps_load = false;   // bound as fresh where that load had filled it for
  bool lost = false;         // a failed load left it without content
  bool ever_home = false;    // its home was known once
  bool ever_filled = false;  // it was the target of a copy once
  bool bound = false;        // as fresh, since it was last loaded
  bool written = false;      // its binder had filled it when it gave it back
  bool freed = false;        // the engine said so, and nobody has claimed it since
};

struct UnmapBlocks {
  size_t bytes = 0;
  void operator()(Block* blocks) const;
};

class BlockStore {
 public:
  // Reserves addresses, not memory. Throws std::bad_alloc where the system has none left.
  void Init(size_t num_blocks);
  size_t size() const { return num_blocks_; }

  // block < size(), in both. A block that was never touched reads as Block{}.
  const Block& At(size_t block) const { return blocks_.get()[block]; }
  Block& Touch(size_t block) {
    touched_[block / kSpan] = 1;
    return blocks_.get()[block];
  }

  // visit(index, block) for every block that may have been touched, by index.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (size_t span = 0; span < touched_.size(); ++span) {
      if (touched_[span] == 0) continue;
      const size_t end = std::min(num_blocks_, (span + 1) * kSpan);
      for (size_t i = span * kSpan; i < end; ++i) visit(i, blocks_.get()[i]);
    }
  }

 private:
  static constexpr size_t kSpan = 1024;  // blocks that are visited together
  size_t num_blocks_ = 0;
  std::unique_ptr<Block, UnmapBlocks> blocks_;
  std::vector<uint8_t> touched_;
};

}  // namespace kvguard::mirror

#endif  // KVGUARD_SRC_MIRROR_BLOCK_STORE_H_
