// SPDX-License-Identifier: Apache-2.0
// What an engine of the lab is made of. Lengths are tokens, `block` is the scheduler's unit.
#ifndef KVGUARD_LAB_CONFIG_H_
#define KVGUARD_LAB_CONFIG_H_

#include <cstdint>
#include <vector>

namespace kvguard::lab {

inline constexpr int32_t kMaxGroups = 8;
inline constexpr int32_t kMaxDrafts = 8;
inline constexpr int32_t kNullBlock = 0;  // never handed out; stands for "no block" in tables
inline constexpr int64_t kPadSlot = -1;   // a token with this slot is not written

enum class GroupKind : uint8_t { kFull, kMla, kWindow, kChunked };

// Layers that share one table. All groups take their blocks from one pool: an id names the same
// bytes in each of them.
struct GroupConfig {
  GroupKind kind = GroupKind::kFull;
  int32_t block_size = 16;
  int32_t kernel_block_size = 16;  // the device tables' unit; divides block_size
  int32_t window = 0;              // kWindow: tokens seen; kChunked: tokens a chunk
};

enum class ModelKind : uint8_t { kTags, kTransformer };

struct EngineConfig {
  ModelKind model = ModelKind::kTags;
  std::vector<GroupConfig> groups = {GroupConfig{}};
  int32_t num_blocks = 512;  // the null block included
  int32_t max_requests = 8;
  int32_t max_batched_tokens = 256;
  int32_t max_model_len = 1024;
  int32_t max_chunk = 0;  // most tokens of one request in one step; 0: the budget
  int32_t num_drafts = 0;
  int32_t vocabulary = 50000;
  bool prefix_caching = true;
  bool async = false;        // a step is scheduled before the output of the one before is known
  bool int32_slots = false;  // else int64
  bool padding = true;       // decode-only batches are padded to a power of two
  bool zeroing = false;      // fresh blocks are zeroed before the forward
  bool repetitive = false;   // the model's text repeats itself, so that drafts can be right
  int32_t dummy_every = 0;   // a dummy run between steps, once in so many; 0: never
  uint64_t seed = 1;

  // First position that a query at `position` reads.
  static int32_t FirstRead(const GroupConfig& group, int32_t position) {
    switch (group.kind) {
      case GroupKind::kWindow:
        return position - group.window + 1 > 0 ? position - group.window + 1 : 0;
      case GroupKind::kChunked:
        return position / group.window * group.window;
      case GroupKind::kFull:
      case GroupKind::kMla:
        break;
    }
    return 0;
  }
};

}  // namespace kvguard::lab

#endif  // KVGUARD_LAB_CONFIG_H_
