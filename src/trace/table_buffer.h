// SPDX-License-Identifier: Apache-2.0
// The memory of one group's table while a trace is read.
#ifndef KVGUARD_SRC_TRACE_TABLE_BUFFER_H_
#define KVGUARD_SRC_TRACE_TABLE_BUFFER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

namespace kvguard::trace {

// Rows are wide and mostly zero, so what the last plan left is cleared instead of all.
class TableBuffer {
 public:
  ~TableBuffer() { std::free(data_); }
  TableBuffer() = default;
  TableBuffer(const TableBuffer&) = delete;
  TableBuffer& operator=(const TableBuffer&) = delete;
  TableBuffer(TableBuffer&& other) noexcept { *this = std::move(other); }
  TableBuffer& operator=(TableBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(rows_, other.rows_);
    std::swap(columns_, other.columns_);
    std::swap(element_, other.element_);
    std::swap(most_used_, other.most_used_);
    used_.swap(other.used_);
    return *this;
  }

  // Pages are only there once they were written to.
  uint64_t HeldBytes() const {
    return rows_ * RowBytes(columns_, element_) + most_used_ * element_;
  }
  uint64_t ReservedBytes() const { return rows_ * columns_ * element_; }
  static uint64_t RowBytes(uint64_t columns, uint64_t element) {
    return sizeof(uint64_t) + std::min<uint64_t>(columns * element, 4096);
  }

  void Drop() { *this = TableBuffer(); }
  bool Has(uint64_t rows, uint64_t columns, uint64_t element) const {
    return data_ != nullptr && rows == rows_ && columns == columns_ && element == element_;
  }

  // The product was checked against the budget.
  bool Make(uint64_t rows, uint64_t columns, uint64_t element) {
    Drop();
    data_ = std::calloc(static_cast<size_t>(std::max<uint64_t>(rows * columns, 1)),
                        static_cast<size_t>(element));
    if (data_ == nullptr) return false;
    rows_ = rows;
    columns_ = columns;
    element_ = element;
    used_.assign(static_cast<size_t>(rows), 0);
    return true;
  }

  // Row r will be filled up to judged[r], the rest reads as zero.
  void Clear(std::span<const int64_t> judged) {
    auto* bytes = static_cast<unsigned char*>(data_);
    uint64_t used = 0;
    for (size_t r = 0; r < used_.size(); ++r) {
      const uint64_t keep = r < judged.size() ? static_cast<uint64_t>(judged[r]) : 0;
      if (used_[r] > keep) {
        std::memset(bytes + (r * columns_ + keep) * element_, 0,
                    static_cast<size_t>((used_[r] - keep) * element_));
      }
      used_[r] = keep;
      used += keep;
    }
    most_used_ = std::max(most_used_, used);
  }

  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
  uint64_t rows_ = 0;
  uint64_t columns_ = 0;
  uint64_t element_ = 0;
  uint64_t most_used_ = 0;
  std::vector<uint64_t> used_;
};

}  // namespace kvguard::trace

#endif  // KVGUARD_SRC_TRACE_TABLE_BUFFER_H_
