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

enum class GroupKind : uint8_t { kFull, kMla, kWindow, kChunked, kState, kCross };

// Which column of a row holds a recurrent state.
enum class StateMode : uint8_t {
  kNone,   // column 0, and one more for each draft
  kAll,    // column j: at the end of block j
  kAlign,  // the running one, in column ceil(tokens / block_size) - 1
};

// Layers that share one table. All groups take their blocks from one pool: an id names the same
// bytes in each of them.
struct GroupConfig {
  GroupKind kind = GroupKind::kFull;
  int32_t block_size = 16;
  int32_t kernel_block_size = 16;           // the device tables' unit; divides block_size
  int32_t window = 0;                       // kWindow: tokens seen; kChunked: tokens a chunk
  StateMode state_mode = StateMode::kNone;  // kState
  bool draft = false;                       // of the draft model's layers; kFull alone
};

enum class ModelKind : uint8_t { kTags, kTransformer };

struct EngineConfig {
  ModelKind model = ModelKind::kTags;
  std::vector<GroupConfig> groups = std::vector<GroupConfig>(1);
  int32_t num_blocks = 512;  // the null block included
  int32_t max_requests = 8;
  int32_t max_batched_tokens = 256;
  int32_t max_model_len = 1024;
  int32_t max_chunk = 0;  // most tokens of one request in one step; 0: the budget
  int32_t num_drafts = 0;
  int32_t max_encoder = 0;  // most encoder tokens of a request, which cross-attention reads
  int32_t vocabulary = 50000;
  bool prefix_caching = true;
  bool forks = false;         // a request may go on from another's tokens, inside a block too
  bool async = false;         // a step is scheduled before the output of the one before is known
  bool int32_slots = false;   // else int64
  bool padding = true;        // decode-only batches are padded to a power of two
  bool zeroing = false;       // fresh blocks are zeroed before the forward
  bool state_copies = false;  // kAlign: a state is copied when its column changes, before the step
  bool repetitive = false;    // the model's text repeats itself, so that drafts can be right
  int32_t dummy_every = 0;    // a dummy run between steps, once in so many; 0: never
  uint64_t seed = 1;

  bool has_cross() const {
    for (const GroupConfig& group : groups) {
      if (group.kind == GroupKind::kCross) return true;
    }
    return false;
  }

  bool has_draft_model() const {
    for (const GroupConfig& group : groups) {
      if (group.draft) return true;
    }
    return false;
  }

  // First position that a query at `position` reads.
  static int32_t FirstRead(const GroupConfig& group, int32_t position) {
    switch (group.kind) {
      case GroupKind::kWindow:
        return position - group.window + 1 > 0 ? position - group.window + 1 : 0;
      case GroupKind::kChunked:
        return position / group.window * group.window;
      case GroupKind::kState:
        // The state that the token before has left.
        if (group.state_mode != StateMode::kNone) return position > 1 ? position - 1 : 0;
        break;
      case GroupKind::kFull:
      case GroupKind::kMla:
      case GroupKind::kCross:
        break;
    }
    return 0;
  }

  // The column of the state of `count` tokens (> 0).
  static int32_t StateColumn(const GroupConfig& group, int32_t count) {
    return group.state_mode == StateMode::kNone ? 0 : (count - 1) / group.block_size;
  }

  // Of a row, in blocks.
  int32_t MaxColumns(const GroupConfig& group) const {
    if (group.kind == GroupKind::kCross) {
      return (max_encoder + group.block_size - 1) / group.block_size;
    }
    if (group.kind != GroupKind::kState) {
      return (max_model_len + group.block_size - 1) / group.block_size;
    }
    return 1 + num_drafts +
           (group.state_mode == StateMode::kNone ? 0 : StateColumn(group, max_model_len));
  }
};

}  // namespace kvguard::lab

#endif  // KVGUARD_LAB_CONFIG_H_
