// SPDX-License-Identifier: Apache-2.0
// A record that owns everything it says, with arrays that can be changed: for tools and tests, not
// for engines.
#ifndef KVGUARD_SRC_TRACE_OWNED_H_
#define KVGUARD_SRC_TRACE_OWNED_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "kvguard/kvguard.h"

namespace kvguard::trace {

struct OwnedArray {
  uint32_t dtype = KVGUARD_DTYPE_NONE;  // none: absent
  std::vector<int64_t> values;

  bool present() const { return dtype != KVGUARD_DTYPE_NONE; }
  bool operator==(const OwnedArray&) const = default;
};

struct OwnedEvent {
  uint32_t kind = 0;
  uint64_t request = 0;
  uint32_t group = 0;
  uint32_t flags = 0;
  int64_t first = 0;
  int64_t count = 0;
  uint64_t other = 0;
  int64_t value = 0;
  std::vector<int64_t> blocks;
  std::vector<int64_t> tokens;
  std::string name;

  bool operator==(const OwnedEvent&) const = default;
};

struct OwnedScheduled {
  uint64_t request = 0;
  int64_t num_tokens = 0;
  int64_t num_computed = 0;
  uint32_t num_drafts = 0;

  bool operator==(const OwnedScheduled&) const = default;
};

struct OwnedTable {
  uint32_t dtype = KVGUARD_DTYPE_NONE;  // none: absent
  uint64_t rows = 0;
  uint64_t columns = 0;
  std::vector<int64_t> entries;  // row by row

  int64_t& at(uint64_t row, uint64_t column) {
    return entries[static_cast<size_t>(row * columns + column)];
  }
  int64_t at(uint64_t row, uint64_t column) const {
    return entries[static_cast<size_t>(row * columns + column)];
  }
  bool operator==(const OwnedTable&) const = default;
};

// a, b, c: as in kvtrace.fbs.
struct OwnedGroupPlan {
  uint32_t group = 0;
  uint32_t encoding = 0;
  OwnedArray slots;
  uint64_t slots_address = 0;
  uint64_t reads_address = 0;
  OwnedTable table;
  OwnedArray a;
  OwnedArray b;
  OwnedArray c;
  int64_t sentinel = 0;
  uint64_t cells = 0;
  uint64_t row_stride = 0;  // of a mask

  bool operator==(const OwnedGroupPlan&) const = default;
};

struct OwnedPlan {
  uint32_t pass = 0;
  uint32_t pass_index = 0;
  uint32_t stage = 0;
  uint64_t num_rows = 0;
  uint64_t padded_rows = 0;
  uint64_t num_tokens = 0;
  uint64_t padded_tokens = 0;
  std::vector<uint64_t> requests;
  OwnedArray query_start;
  OwnedArray seq_lens;
  OwnedArray positions;
  OwnedArray num_computed;
  std::vector<OwnedGroupPlan> groups;

  bool operator==(const OwnedPlan&) const = default;
};

struct OwnedOutcomeRow {
  uint64_t request = 0;
  uint32_t num_sampled = 0;
  uint32_t num_rejected = 0;
  bool known = false;  // the ids are
  uint64_t num_tokens = 0;
  std::vector<int64_t> tokens;

  bool operator==(const OwnedOutcomeRow&) const = default;
};

struct OwnedRecord {
  uint32_t kind = 0;
  uint64_t step = 0;
  std::vector<OwnedEvent> events;         // BEGIN, OUTCOME
  std::vector<OwnedScheduled> scheduled;  // BEGIN
  OwnedPlan plan;                         // PLAN
  std::vector<OwnedOutcomeRow> rows;      // OUTCOME
  uint32_t flags = 0;                     // END
  uint32_t reason = 0;                    // RESET
  bool refused =
      false;  // stands for a record that a guard refused; its view has no body, and is refused too

  bool operator==(const OwnedRecord&) const = default;

  // A well-formed record, as a guard has accepted it or a trace has delivered it.
  static OwnedRecord Of(const kvguard_record& record);
};

// The C record of an owned one. It points into this object and lives until the next call.
class RecordView {
 public:
  const kvguard_record& Of(const OwnedRecord& record);

 private:
  kvguard_array Array(const OwnedArray& array);
  void Typed(uint32_t dtype, const std::vector<int64_t>& values, const void** data);
  const kvguard_event* Events(const OwnedRecord& record);

  std::deque<std::vector<int64_t>> storage_;
  std::vector<kvguard_event> events_;
  std::vector<kvguard_scheduled> scheduled_;
  std::vector<kvguard_group_plan> groups_;
  std::vector<kvguard_outcome_row> rows_;
  kvguard_begin begin_{};
  kvguard_plan plan_{};
  kvguard_outcome outcome_{};
  kvguard_end end_{};
  kvguard_reset reset_{};
  kvguard_record record_{};
};

}  // namespace kvguard::trace

#endif  // KVGUARD_SRC_TRACE_OWNED_H_
