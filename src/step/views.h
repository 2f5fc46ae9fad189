// SPDX-License-Identifier: Apache-2.0
// Checked views of records. What a view shows has been proved safe to read; whether it is *right*
// is the rules' matter.
#ifndef KVGUARD_SRC_STEP_VIEWS_H_
#define KVGUARD_SRC_STEP_VIEWS_H_

#include <cstdint>
#include <vector>

#include "geometry/layout.h"
#include "step/structs.h"

namespace kvguard::step {

// An int32, int64 or (flags alone) uint8 array of a plan, or an absent one.
struct Ints {
  const void* data = nullptr;
  uint64_t count = 0;
  uint32_t dtype = KVGUARD_DTYPE_NONE;

  bool present() const { return data != nullptr; }
  bool wide() const { return dtype == KVGUARD_I64; }
  const int32_t* i32() const { return static_cast<const int32_t*>(data); }
  const int64_t* i64() const { return static_cast<const int64_t*>(data); }
  int64_t operator[](uint64_t i) const { return wide() ? i64()[i] : i32()[i]; }
};

// What the rows of a plan start from and leave behind in a group of states.
struct StateView {
  Ints in;
  Ints out;
  const uint8_t* init = nullptr;  // by row, or absent

  bool present() const { return in.present() || out.present() || init != nullptr; }
};

struct TableView {
  const void* data = nullptr;
  uint32_t dtype = KVGUARD_DTYPE_NONE;
  uint64_t rows = 0;
  uint64_t columns = 0;
  uint64_t row_stride = 0;
  Ints seq_lens;
  Ints row_columns;

  bool present() const { return data != nullptr; }
  Ints Row(uint64_t row) const {
    const uint64_t offset = row * row_stride;
    if (dtype == KVGUARD_I64) return {static_cast<const int64_t*>(data) + offset, columns, dtype};
    return {static_cast<const int32_t*>(data) + offset, columns, dtype};
  }
};

// What each row of a group reads, entry by entry.
struct ListView {
  Ints offsets;  // absent: no row reads anything
  Ints entries;
  Ints last_page;
  int64_t sentinel = 0;
  bool shown = false;

  bool present() const { return shown; }
};

struct GroupPlanView {
  const geometry::Group* group = nullptr;
  Ints slots;
  TableView table;
  StateView states;
  ListView list;
};

struct PlanView {
  uint32_t pass = 0;
  uint32_t pass_index = 0;
  uint32_t stage = 0;
  uint64_t num_rows = 0;
  uint64_t padded_rows = 0;
  uint64_t num_tokens = 0;
  uint64_t padded_tokens = 0;
  const uint64_t* requests = nullptr;
  Ints query_start;
  Ints seq_lens;
  Ints positions;
  Ints num_computed;
  std::vector<GroupPlanView> groups;
};

struct BeginView {
  StructArray<kvguard_event> events;
  StructArray<kvguard_scheduled> scheduled;
};

struct OutcomeView {
  StructArray<kvguard_outcome_row> rows;
  StructArray<kvguard_event> events;
};

// Each check fills its view from an untrusted record, or says in one sentence what is malformed.
// Views keep pointers into the record: they live as long as it does.
Status CheckBegin(const kvguard_begin* begin, const geometry::Layout& layout, BeginView* view);
Status CheckPlan(const kvguard_plan* plan, const geometry::Layout& layout, PlanView* view);
Status CheckOutcome(const kvguard_outcome* outcome, const geometry::Layout& layout,
                    OutcomeView* view);
Status CheckEnd(const kvguard_end* end, kvguard_end* out);
Status CheckReset(const kvguard_reset* reset, kvguard_reset* out);

// Checks a geometry as a whole and takes what the core needs. Groups that this build has no rules
// for are KVGUARD_ERROR_UNSUPPORTED by name.
Status CheckGeometry(const kvguard_geometry* geometry, geometry::Layout* layout,
                     std::vector<std::string>* gaps);

}  // namespace kvguard::step

#endif  // KVGUARD_SRC_STEP_VIEWS_H_
