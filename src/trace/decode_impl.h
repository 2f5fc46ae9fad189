// SPDX-License-Identifier: Apache-2.0
// What the parts of the decoder share.
#ifndef KVGUARD_SRC_TRACE_DECODE_IMPL_H_
#define KVGUARD_SRC_TRACE_DECODE_IMPL_H_

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trace/arena.h"
#include "trace/codec_state.h"
#include "trace/decode.h"
#include "trace/kvtrace_generated.h"
#include "trace/table_buffer.h"
#include "trace/tokens.h"

namespace kvguard::trace {

// Tables are reserved whole and filled up to their judged columns; this bounds what is reserved.
inline constexpr uint64_t kMaxTableBytes = uint64_t{512} << 20;

// What one element of a column costs at most while it is decoded: memory, scratch, result.
inline constexpr uint64_t kColumnElementBytes = 3 * sizeof(int64_t);

inline step::Status Inconsistent(const char* what) {
  return {KVGUARD_ERROR_FORMAT,
          std::string("its ") + what + " does not fit the rest of the record"};
}

inline step::Status TooLarge(const char* what) {
  return {KVGUARD_ERROR_FORMAT, std::string("its ") + what + " would need more than " +
                                    std::to_string(kMaxDecodeBytes >> 20) + " MiB"};
}

// Whether a column of a table is the previous one.
template <typename Table>
bool Same(const Table& table, uint32_t bit) {
  return (table.same() >> bit & 1) != 0;
}

struct StepDecoder::Impl {
  using Bytes = flatbuffers::Vector<uint8_t>;

  explicit Impl(uint32_t num_groups) : state(num_groups) {}

  CodecState state;
  TokenColumnReader tokens;
  Arena arena;
  std::vector<TableBuffer> tables;  // by place in the plan
  TableScratch table_scratch;
  std::vector<int64_t> scratch;
  std::vector<int64_t> judged;
  const flatbuffers::Vector<flatbuffers::Offset<wire::Record>>* records = nullptr;
  uint32_t num_records = 0;  // kept apart: a payload that is used up may be gone
  uint32_t next = 0;

  kvguard_record record{};

  uint64_t HeldBytes() const {
    uint64_t bytes = state.HeldBytes();
    for (const TableBuffer& table : tables) bytes += table.HeldBytes();
    return bytes;
  }

  // bytes null: the array that the memory holds.
  step::Status Column(const Bytes* bytes, ColumnMemory* memory, const char* what,
                      DecodedColumn* out) {
    const uint64_t most = arena.budget() / kColumnElementBytes;
    if (bytes == nullptr) {
      if (memory == nullptr || !GetSameColumn(most, *memory, out)) return Inconsistent(what);
      return arena.Charge(out->values.size() * sizeof(int64_t)) ? step::Status() : TooLarge(what);
    }
    switch (GetColumn({bytes->data(), bytes->size()}, most, memory, &scratch, out)) {
      case ColumnResult::kTooLarge:
        return TooLarge(what);
      case ColumnResult::kDamaged:
        return Inconsistent(what);
      case ColumnResult::kOk:
        break;
    }
    if (!arena.Charge(out->values.size() * 2 * sizeof(int64_t))) return TooLarge(what);
    return {};
  }

  // A column of `count` integers as T; absent and not the same: zeros.
  template <typename T>
  step::Status Values(const Bytes* bytes, ColumnMemory* memory, uint64_t count, const char* what,
                      T** out, bool same = false) {
    *out = nullptr;
    if (bytes == nullptr && !same) {
      *out = arena.Allocate<T>(count);
      if (*out == nullptr) return TooLarge(what);
      std::fill_n(*out, count, T{0});
      return {};
    }
    DecodedColumn column;
    if (step::Status s = Column(bytes, memory, what, &column); !s.ok()) return s;
    if (column.values.size() != count) return Inconsistent(what);
    *out = arena.Allocate<T>(count);
    if (*out == nullptr) return TooLarge(what);
    for (size_t i = 0; i < count; ++i) {
      const int64_t value = column.values[i];
      if constexpr (sizeof(T) < sizeof(int64_t)) {
        if (value < 0 || value > static_cast<int64_t>(UINT32_MAX)) return Inconsistent(what);
      }
      (*out)[i] = static_cast<T>(value);
    }
    return {};
  }

  template <typename T>
  const T* Narrow(std::span<const int64_t> values) {
    T* out = arena.Allocate<T>(values.size());
    if (out == nullptr) return nullptr;
    for (size_t i = 0; i < values.size(); ++i) out[i] = static_cast<T>(values[i]);
    return out;
  }

  step::Status Array(const Bytes* bytes, ColumnMemory* memory, bool same, const char* what,
                     kvguard_array* out) {
    *out = kvguard_array{};
    if (bytes == nullptr && !same) return {};
    DecodedColumn column;
    if (step::Status s = Column(bytes, memory, what, &column); !s.ok()) return s;
    switch (column.dtype) {
      case KVGUARD_I32:
        out->data = Narrow<int32_t>(column.values);
        break;
      case KVGUARD_I64:
        out->data = Narrow<int64_t>(column.values);
        break;
      default:  // GetColumn lets no other pass
        out->data = Narrow<uint8_t>(column.values);
        break;
    }
    if (out->data == nullptr) return TooLarge(what);
    out->count = column.values.size();
    out->dtype = column.dtype;
    return {};
  }

  step::Status Tokens(const Bytes* bytes, uint64_t count, const char* what, const int64_t** out) {
    *out = nullptr;
    if (count == 0 && bytes == nullptr) return {};
    if (bytes == nullptr) return Inconsistent(what);
    if (count > arena.budget() / (2 * sizeof(int64_t))) return TooLarge(what);
    if (!tokens.Get({bytes->data(), bytes->size()}, count, &scratch) || scratch.size() != count)
      return Inconsistent(what);
    int64_t* copy = arena.Allocate<int64_t>(count);
    if (copy == nullptr) return TooLarge(what);
    std::copy(scratch.begin(), scratch.end(), copy);
    *out = copy;
    return {};
  }

  // Sums counts that say how elements are dealt out; false on overflow or a total beyond any
  // budget.
  static bool Total(const uint64_t* counts, uint64_t n, uint64_t* total) {
    *total = 0;
    for (uint64_t i = 0; i < n; ++i) {
      if (counts[i] > kMaxDecodeBytes) return false;
      *total += counts[i];
      if (*total > kMaxDecodeBytes) return false;
    }
    return true;
  }

  step::Status Events(const wire::Events* in, const kvguard_event** events, uint64_t* num_events);
  step::Status Begin(const wire::Begin& in);
  step::Status Plan(const wire::Plan& in);
  step::Status Group(const wire::GroupPlan& in, bool same_requests, size_t place,
                     PlanMemory* memory, kvguard_group_plan* out);
  step::Status Table(const wire::GroupPlan& in, bool same_requests, size_t place,
                     PlanMemory* plan_memory, kvguard_read_table* out);
  template <typename T>
  step::Status Entries(const wire::GroupPlan& in, bool same_requests, const ColumnMemory& requests,
                       RowStore<T>* store, RowIndexes* indexes, TableBuffer* buffer,
                       kvguard_read_table* out);
  step::Status Outcome(const wire::Outcome& in);
  step::Status Refused(const wire::Refused& in);
};

}  // namespace kvguard::trace

#endif  // KVGUARD_SRC_TRACE_DECODE_IMPL_H_
