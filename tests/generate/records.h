// SPDX-License-Identifier: Apache-2.0
// Records that own what they say, so that a whole program can be kept, changed and fed again.
#ifndef KVGUARD_TESTS_GENERATE_RECORDS_H_
#define KVGUARD_TESTS_GENERATE_RECORDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kvguard/kvguard.h"

namespace kvguard::generate {

struct Array {
  uint32_t dtype = KVGUARD_DTYPE_NONE;  // none: not presented
  std::vector<int64_t> values;

  bool present() const { return dtype != KVGUARD_DTYPE_NONE; }
  bool operator==(const Array&) const = default;
};

struct Event {
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

  bool operator==(const Event&) const = default;
};

struct Scheduled {
  uint64_t request = 0;
  int64_t num_tokens = 0;
  int64_t num_computed = 0;
  uint32_t num_drafts = 0;

  bool operator==(const Scheduled&) const = default;
};

struct Table {
  uint32_t dtype = KVGUARD_DTYPE_NONE;  // none: not presented
  uint64_t rows = 0;
  uint64_t columns = 0;
  uint64_t row_stride = 0;
  std::vector<int64_t> entries;  // rows of row_stride

  bool present() const { return dtype != KVGUARD_DTYPE_NONE; }
  int64_t& at(uint64_t row, uint64_t column) {
    return entries[static_cast<size_t>(row * row_stride + column)];
  }
  int64_t at(uint64_t row, uint64_t column) const {
    return entries[static_cast<size_t>(row * row_stride + column)];
  }
  bool operator==(const Table&) const = default;
};

struct GroupPlan {
  uint32_t group = 0;
  uint32_t encoding = 0;
  Array slots;
  Table table;        // encoding TABLE
  Array seq_lens;     // TABLE
  Array row_columns;  // TABLE
  Array in;           // STATE
  Array out;          // STATE
  Array init;         // STATE
  Array offsets;      // CSR, FLAT
  Array entries;      // CSR, FLAT
  Array last_page;    // CSR
  int64_t sentinel = 0;
  uint64_t slots_address = 0;
  uint64_t reads_address = 0;

  bool operator==(const GroupPlan&) const = default;
};

struct Plan {
  uint32_t pass = 0;
  uint32_t pass_index = 0;
  uint32_t stage = 0;
  uint64_t num_rows = 0;
  uint64_t padded_rows = 0;
  uint64_t num_tokens = 0;
  uint64_t padded_tokens = 0;
  std::vector<uint64_t> requests;
  Array query_start;
  Array seq_lens;
  Array positions;
  Array num_computed;
  std::vector<GroupPlan> groups;

  bool operator==(const Plan&) const = default;
};

struct OutcomeRow {
  uint64_t request = 0;
  uint32_t num_sampled = 0;
  uint32_t num_rejected = 0;
  std::vector<int64_t> tokens;  // empty: not known

  bool operator==(const OutcomeRow&) const = default;
};

struct Record {
  uint32_t kind = 0;
  uint64_t step = 0;
  std::vector<Event> events;         // BEGIN, OUTCOME
  std::vector<Scheduled> scheduled;  // BEGIN
  Plan plan;                         // PLAN
  std::vector<OutcomeRow> rows;      // OUTCOME
  uint32_t flags = 0;                // END
  uint32_t reason = 0;               // RESET

  bool operator==(const Record&) const = default;
};

// The C record of an owned one: it points into both and lives until the next call.
class RecordView {
 public:
  const kvguard_record& Of(const Record& record);

 private:
  const void* Typed(uint32_t dtype, const std::vector<int64_t>& values);
  kvguard_array View(const Array& array);
  kvguard_array ViewOfList(const Array& array);
  const kvguard_event* Events(const Record& record);
  const kvguard_group_plan* Groups(const Plan& plan);

  std::vector<std::vector<int32_t>> narrow_;  // reused from call to call
  size_t used_ = 0;
  std::vector<std::vector<uint8_t>> bytes_;
  size_t used_bytes_ = 0;
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

}  // namespace kvguard::generate

#endif  // KVGUARD_TESTS_GENERATE_RECORDS_H_
