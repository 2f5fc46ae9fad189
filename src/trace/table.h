// SPDX-License-Identifier: Apache-2.0
// Block tables as bytes. A row is written as the difference to the same request's row in this
// group's previous plan, whatever batch row that was, so a step costs what changed:
//
//     for each row with a change:
//       varint  rows without a change before it
//       varint  entries that differ, among those that both rows have
//       each:   varint gap to the one before, varint zigzag(new - old)
//       runs    the entries behind the previous row's end
//     and, where rows of padding hold entries, behind the last request's row: one sequence of runs
//     over all of them.
//
// How many entries of a row are kept is a column of its own (`judged`): those that a rule may read.
// What lies behind them is whatever the engine left there, and reads back as zero.
#ifndef KVGUARD_SRC_TRACE_TABLE_H_
#define KVGUARD_SRC_TRACE_TABLE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "mirror/key_map.h"
#include "trace/bytes.h"
#include "trace/column.h"

namespace kvguard::trace {

// The last known row of each request, for one group and element type.
template <typename T>
class RowStore {
 public:
  static constexpr uint32_t kNone = mirror::KeyMap::kNone;

  // kNone for key 0, which no request has.
  uint32_t FindOrAdd(uint64_t key) {
    if (key == 0) return kNone;
    uint32_t index = map_.Find(key);
    if (index != kNone) return index;
    if (free_.empty()) {
      index = static_cast<uint32_t>(rows_.size());
      rows_.emplace_back();
    } else {
      index = free_.back();
      free_.pop_back();
    }
    map_.Insert(key, index);
    return index;
  }

  void Erase(uint64_t key) {
    if (key == 0) return;
    const uint32_t index = map_.Find(key);
    if (index == kNone) return;
    map_.Erase(key);
    entries_ -= rows_[index].size();
    rows_[index].clear();
    rows_[index].shrink_to_fit();
    free_.push_back(index);
    ++generation_;
  }

  void Clear() {
    map_.Clear();
    rows_.clear();
    free_.clear();
    entries_ = 0;
    ++generation_;
  }

  const std::vector<T>& row(uint32_t index) const { return rows_[index]; }
  void Set(uint32_t index, size_t column, T value) { rows_[index][column] = value; }
  void Append(uint32_t index, std::span<const T> values) {
    rows_[index].insert(rows_[index].end(), values.begin(), values.end());
    entries_ += values.size();
  }

  // Indexes of an earlier generation may name another request.
  uint64_t generation() const { return generation_; }
  // What the store holds, roughly; a row without entries is not free.
  uint64_t HeldBytes() const { return entries_ * sizeof(T) + rows_.size() * kRowBytes; }

  static constexpr uint64_t kRowBytes = 96;

 private:
  mirror::KeyMap map_;
  std::vector<std::vector<T>> rows_;
  std::vector<uint32_t> free_;
  uint64_t entries_ = 0;
  uint64_t generation_ = 1;
};

// The rows of one group. The element types have stores of their own: a group that is presented in
// both (the runner's int32 table, the backend's int64 copy) must not lose its rows twice a step.
struct GroupRows {
  RowStore<int32_t> narrow;
  RowStore<int64_t> wide;

  void Erase(uint64_t key) {
    narrow.Erase(key);
    wide.Erase(key);
  }
  void Clear() {
    narrow.Clear();
    wide.Clear();
  }
  uint64_t HeldBytes() const { return narrow.HeldBytes() + wide.HeldBytes(); }
};

// A plan's rows in a store, kept while the same requests stand in the same rows.
struct RowIndexes {
  std::vector<uint32_t> rows;
  uint32_t group = 0;
  uint64_t generation = 0;  // of the group's store; 0: none
};

struct TableScratch {
  std::vector<int64_t> appended;
  std::vector<int64_t> loose;  // entries of rows without a request
  ByteBuffer loose_runs;
};

template <typename T>
struct TableSource {
  const T* data = nullptr;
  uint64_t row_stride = 0;
  std::span<const int64_t> judged;    // by row; at least `indexes` long
  std::span<const uint32_t> indexes;  // requests' rows in the store
};

template <typename T>
void PutTable(const TableSource<T>& table, RowStore<T>* store, TableScratch* scratch,
              ByteBuffer* out);

template <typename T>
struct TableTarget {
  T* data = nullptr;  // rows x columns; columns behind `judged` are the caller's to clear
  uint64_t columns = 0;
  std::span<const int64_t> judged;    // by row, each within columns
  std::span<const uint32_t> indexes;  // at most as many as `judged`
};

// False where the bytes do not describe such a table. max_entries bounds what the store may grow
// by.
template <typename T>
bool GetTable(std::span<const uint8_t> bytes, const TableTarget<T>& table, uint64_t max_entries,
              RowStore<T>* store, TableScratch* scratch);

}  // namespace kvguard::trace

#endif  // KVGUARD_SRC_TRACE_TABLE_H_
