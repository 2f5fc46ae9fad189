// SPDX-License-Identifier: Apache-2.0
// A drawn engine: its geometry, its requests, and the plans that the formula of kvguard.h gives.
#ifndef KVGUARD_TESTS_PROPERTIES_ENGINE_H_
#define KVGUARD_TESTS_PROPERTIES_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <rapidcheck.h>
#include <string>
#include <vector>

#include "kvguard/kvguard.hpp"

namespace kvguard::properties {

/* ---- Draws. Each is a value of its own to RapidCheck, which makes it smaller. ---- */

// Both ends included; smaller is nearer to `least`.
int64_t Draw(int64_t least, int64_t most);
bool Flip();
template <typename T>
T Pick(const std::vector<T>& values) {
  return values[static_cast<size_t>(Draw(0, static_cast<int64_t>(values.size()) - 1))];
}

/* ---- A plan as values ---- */

struct GroupValues {
  std::vector<int64_t> slots;
  std::vector<int64_t> table;  // rows * columns
  size_t columns = 0;
  std::vector<int64_t> seq_lens;     // empty: not presented
  std::vector<int64_t> row_columns;  // empty: not presented
};

struct PlanValues {
  std::vector<uint64_t> requests;
  std::vector<int64_t> query_start;
  std::vector<int64_t> seq_lens;
  std::vector<int64_t> positions;     // empty: not presented
  std::vector<int64_t> num_computed;  // empty: not presented
  std::vector<GroupValues> groups;
  size_t padded_rows = 0;
  size_t padded_tokens = 0;

  size_t num_rows() const { return requests.size(); }
  size_t num_tokens() const { return static_cast<size_t>(query_start.back()); }
};

// How the same values lie in memory.
struct Layout {
  bool narrow = false;  // int32 instead of int64
  size_t shift = 0;     // elements in front of each array: other alignments
  size_t stride = 0;    // elements between two rows of a table
};

// The record of a plan, and the arrays that it points to.
class Presented {
 public:
  Presented(const PlanValues& values, uint64_t step, kvguard_stage stage, const Layout& layout);
  Presented(const Presented&) = delete;  // the record points into it
  Presented& operator=(const Presented&) = delete;

  const kvguard_record& record() const { return record_; }

 private:
  kvguard_array Array(const std::vector<int64_t>& values, const Layout& layout);

  std::deque<std::vector<int32_t>> narrow_;
  std::deque<std::vector<int64_t>> wide_;
  std::vector<uint64_t> requests_;
  std::vector<kvguard_group_plan> groups_;
  kvguard_plan plan_;
  kvguard_record record_;
};

/* ---- The engine ---- */

struct Request {
  uint64_t key = 0;
  int64_t computed = 0;
  int64_t scheduled = 0;                   // tokens of this step; 0: it has none
  std::vector<std::vector<int64_t>> rows;  // blocks of each group
};

class Engine {
 public:
  Engine();  // drawn

  const kvguard_geometry& geometry() { return builder_.Build(); }
  std::string ToString();

  // Draws events and a schedule, binds what it needs; valid until the next one.
  const kvguard_record& BeginStep();
  // What the runner of a healthy engine shows of this step.
  PlanValues DrawPlan();
  const kvguard_record& EndStep();
  uint64_t step() const { return step_; }

  // Of this step's row: the request that the plan names there.
  const Request& RowRequest(const PlanValues& plan, size_t row) const;
  size_t num_groups() const { return groups_.size(); }
  const kvguard_group& group(size_t index) const { return groups_[index]; }
  int64_t num_blocks() const { return kNumBlocks; }

  // The address formula of kvguard.h; the pad slot for a position of another rank.
  int64_t Slot(const Request& request, size_t group, int64_t position) const;
  // Table entries for one block.
  int64_t EntriesPerBlock(size_t group) const;
  // Positions that a column stands for.
  int64_t ColumnTokens(size_t group) const;
  // Windowed groups: the column is compared and read by a row that starts at `start`.
  bool IsNeeded(size_t group, int64_t column, int64_t start) const;
  // Of `tokens` tokens, those on this rank.
  int64_t LocalLength(size_t group, int64_t tokens) const;

 private:
  static constexpr int64_t kNumBlocks = 1021;  // prime: every stride visits every block

  void DrawGroup(uint32_t pool);
  int64_t Ranks(size_t group) const;
  int64_t NewBlock(size_t group);
  void Admit();
  void Finish(size_t index);
  void ScheduleRow(Request& request);
  void AddRow(PlanValues& plan, const Request& request) const;
  void AddGroupRow(GroupValues& values, size_t group, const Request& request) const;
  void AddPadding(PlanValues& plan) const;

  GeometryBuilder builder_;
  std::vector<kvguard_group> groups_;
  std::vector<int64_t> null_blocks_;       // of each pool
  std::vector<std::deque<int64_t>> free_;  // of each pool
  int64_t ranks_ = 1;
  int64_t rank_ = 0;
  int64_t interleave_ = 1;
  uint64_t step_ = 0;
  uint64_t next_key_ = 1;
  std::vector<Request> live_;
  StepBuilder records_{0};
};

// A guard that keeps all findings.
Guard MakeGuard(Engine& engine);
// Feeds a record that must be taken.
void Feed(Guard& guard, const kvguard_record& record);
std::vector<kvguard_finding> Findings(const Guard& guard, uint64_t first = 0);
// For the log of a case that failed.
std::string ToString(const std::vector<kvguard_finding>& findings);

}  // namespace kvguard::properties

#endif  // KVGUARD_TESTS_PROPERTIES_ENGINE_H_
