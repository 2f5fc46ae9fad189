// SPDX-License-Identifier: Apache-2.0
// Faults to plant into a right stream: the mistakes that engines make, each with the finding that
// it deserves. They change plans only, never what the scheduler decided.
#ifndef KVGUARD_SRC_TOOLS_PLANT_H_
#define KVGUARD_SRC_TOOLS_PLANT_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvguard/kvguard.h"
#include "trace/owned.h"

namespace kvguard::tools {

enum class FaultKind {
  kSwappedRows,
  kOffByOneBlock,
  kStaleSlots,
  kLostAppend,
  kWrongFrontier,
  kForeignBlock,
  kZeroedEntry,
};

struct Fault {
  FaultKind kind;
  const char* name;      // kebab-case
  const char* sentence;  // what goes wrong in the engine
};

std::span<const Fault> Faults();
const Fault* FindFault(std::string_view name);

// What was planted, and what must be found: the first finding's code, and a cause among those that
// it names (KVGUARD_CAUSE_NONE: any or none).
struct Planted {
  uint64_t step = 0;
  uint32_t group = 0;
  uint64_t row = 0;
  uint32_t code = 0;
  uint32_t cause = KVGUARD_CAUSE_NONE;
  std::string what;  // one sentence: what was changed to what
};

// Watches a right stream, and changes one plan of it: the first one, at or after `from_step`, in
// which the fault can happen and is certain to be one.
class Planter {
 public:
  Planter(const kvguard_geometry& geometry, FaultKind kind, uint64_t from_step = 0);

  // True where *record was changed, once.
  bool Offer(trace::OwnedRecord* record);

  bool done() const { return done_; }
  const Planted& planted() const { return planted_; }

 private:
  struct Group {
    uint32_t id;
    int64_t block_size;
    int64_t per_block;  // table entries
    int64_t index_scale;
    int64_t token_stride;
    int64_t slot_base;
    int64_t null_block;
    bool plain;  // an unsharded full-attention table: the formula of SlotAt holds
  };
  // What one plan shows of one group.
  struct Shown {
    const Group& group;
    trace::OwnedPlan& plan;
    trace::OwnedGroupPlan& part;
  };

  int64_t BlockAt(const Shown& shown, uint64_t row, int64_t column) const;
  int64_t SlotAt(const Group& group, int64_t block, int64_t position) const;
  void SetBlock(const Shown& shown, uint64_t row, int64_t column, int64_t block) const;
  // Write slots of a row as the shown table gives them.
  void Rewrite(const Shown& shown, uint64_t row) const;
  bool IsRight(const Shown& shown) const;

  bool SwapRows(const Shown& shown);
  bool ShiftBlock(const Shown& shown);
  bool KeepSlots(const Shown& shown);
  bool LoseAppend(const Shown& shown);
  bool HoldFrontier(const Shown& shown);
  bool TakeForeignBlock(const Shown& shown);
  bool ZeroEntry(const Shown& shown);
  bool Plant(const Shown& shown);

  FaultKind kind_;
  uint64_t from_step_;
  std::vector<Group> groups_;
  bool done_ = false;
  Planted planted_;

  uint64_t step_ = 0;
  bool planned_ = false;  // the open step's first plan was seen
  // Blocks that the open step's BEGIN appended last, by request and group.
  std::map<std::pair<uint64_t, uint32_t>, size_t> appended_;
  // The last executed step's slots, by group.
  std::map<uint32_t, std::vector<int64_t>> previous_slots_;
  std::map<uint32_t, std::vector<int64_t>> open_slots_;
};

}  // namespace kvguard::tools

#endif  // KVGUARD_SRC_TOOLS_PLANT_H_
