// SPDX-License-Identifier: Apache-2.0
// One array of integers as bytes:
//
//     byte     mode | dtype << 2
//     varint   count
//     runs     until `count` elements are there
//
// A run is a difference to the element before it (zero before the first) and how often it is
// applied: consecutive slots are one run, so are equal values. In kResidual the runs hold the
// elements minus those of the column's previous array. An array that equals its previous one is not
// written at all: the record that it belongs to says so in a bit.
#ifndef KVGUARD_SRC_TRACE_COLUMN_H_
#define KVGUARD_SRC_TRACE_COLUMN_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvguard/kvguard.h"
#include "trace/bytes.h"

namespace kvguard::trace {

enum class ColumnMode : uint8_t {
  kLiteral = 0,
  kResidual = 1,
};

// The previous array of a column. Writer and reader each keep one and move it alike.
struct ColumnMemory {
  std::vector<int64_t> values;
  uint32_t dtype = KVGUARD_DTYPE_NONE;  // none: there was none yet
};

// Writes runs of differences of one sequence that arrives in pieces. Decoding needs the number of
// elements.
class RunWriter {
 public:
  explicit RunWriter(ByteBuffer* out) : out_(out) {}

  template <typename T>
  void Put(const T* values, size_t count);
  // After the last piece.
  void Flush();

 private:
  ByteBuffer* out_;
  int64_t last_ = 0;
  int64_t difference_ = 0;
  size_t times_ = 0;
};

inline void PutRuns(std::span<const int64_t> values, ByteBuffer* out) {
  RunWriter runs(out);
  runs.Put(values.data(), values.size());
  runs.Flush();
}

// False where the bytes end early or a run passes the end of `values`.
bool GetRuns(ByteReader* in, std::span<int64_t> values);

// Writes columns; holds scratch memory, so that a column allocates nothing once shapes repeat.
class ColumnWriter {
 public:
  enum class Result { kAbsent, kSame, kPut };

  // Each puts one column behind `out`, unless it is as it was. memory may be null: then the column
  // stands for itself.
  Result Put(std::span<const int64_t> values, ColumnMemory* memory, ByteBuffer* out);
  Result Put(std::span<const uint64_t> values, ColumnMemory* memory, ByteBuffer* out);
  // The first `most` elements of an array of any dtype.
  Result Put(const kvguard_array& array, uint64_t most, ColumnMemory* memory, ByteBuffer* out);

 private:
  template <typename T>
  Result PutAny(const T* values, size_t count, uint32_t dtype, ColumnMemory* memory,
                ByteBuffer* out);

  std::vector<int64_t> scratch_;
};

struct DecodedColumn {
  uint32_t dtype = KVGUARD_DTYPE_NONE;
  std::span<const int64_t> values;  // in the memory or the scratch that Get was given
};

enum class ColumnResult { kOk, kDamaged, kTooLarge };

// Reads one column that fills `bytes` whole. Every value fits the dtype.
ColumnResult GetColumn(std::span<const uint8_t> bytes, uint64_t max_count, ColumnMemory* memory,
                       std::vector<int64_t>* scratch, DecodedColumn* out);

// The column that is as it was. False where there was none.
bool GetSameColumn(uint64_t max_count, const ColumnMemory& memory, DecodedColumn* out);

}  // namespace kvguard::trace

#endif  // KVGUARD_SRC_TRACE_COLUMN_H_
