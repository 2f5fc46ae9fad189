// SPDX-License-Identifier: Apache-2.0
#include "trace/column.h"

#include <limits>

namespace kvguard::trace {
namespace {

// Elements that a run's end is looked for at once; a loop of fixed length without a branch is
// vectorised.
constexpr size_t kChunk = 16;

// Whether the chunk goes on with `difference` from the element before it.
template <typename T>
inline bool ChunkContinues(const T* values, int64_t difference) {
  uint64_t differs = 0;
  for (size_t i = 0; i < kChunk; ++i) {
    differs |= static_cast<uint64_t>(WrapSub(values[i], values[static_cast<ptrdiff_t>(i) - 1])) ^
               static_cast<uint64_t>(difference);
  }
  return differs == 0;
}

// First byte: bit 0 repeated, bits 1..6 the low bits of the difference, bit 7 more of it. So a
// single small difference costs one byte.
inline void PutRun(int64_t difference, size_t times, ByteBuffer* out) {
  const uint64_t value = ZigZag(difference);
  const uint64_t rest = value >> 6;
  out->PutByte(static_cast<uint8_t>((times > 1 ? 1u : 0u) | ((value & 0x3f) << 1) |
                                    (rest != 0 ? 0x80u : 0u)));
  if (rest != 0) out->PutVarint(rest);
  if (times > 1) out->PutVarint(times - 2);
}
constexpr size_t kMaxRun = 1 + 2 * ByteBuffer::kMaxVarint;

// How often the differences of `values` change: the price of writing it as runs.
inline size_t Changes(const int64_t* values, size_t count) {
  size_t changes = 0;
  for (size_t i = 2; i < count; ++i) {
    changes += WrapSub(values[i], values[i - 1]) != WrapSub(values[i - 1], values[i - 2]) ? 1u : 0u;
  }
  return changes;
}

bool Fits(std::span<const int64_t> values, uint32_t dtype) {
  int64_t low = 0;
  int64_t high = 0;
  switch (dtype) {
    case KVGUARD_I64:
      return true;
    case KVGUARD_I32:
      low = std::numeric_limits<int32_t>::min();
      high = std::numeric_limits<int32_t>::max();
      break;
    case KVGUARD_U8:
      high = std::numeric_limits<uint8_t>::max();
      break;
    default:
      return false;
  }
  for (const int64_t value : values) {
    if (value < low || value > high) return false;
  }
  return true;
}

}  // namespace

template <typename T>
void RunWriter::Put(const T* values, size_t count) {
  size_t i = 0;
  while (i < count) {
    const int64_t difference = WrapSub(values[i], last_);
    if (times_ == 0 || difference != difference_) {
      Flush();
      difference_ = difference;
    }
    const size_t first = i++;
    while (i + kChunk <= count && ChunkContinues(values + i, difference)) i += kChunk;
    while (i < count && WrapSub(values[i], values[i - 1]) == difference) ++i;
    times_ += i - first;
    last_ = values[i - 1];
  }
}

template void RunWriter::Put<int32_t>(const int32_t*, size_t);
template void RunWriter::Put<int64_t>(const int64_t*, size_t);

void RunWriter::Flush() {
  if (times_ == 0) return;
  out_->Reserve(kMaxRun);
  PutRun(difference_, times_, out_);
  times_ = 0;
}

bool GetRuns(ByteReader* in, std::span<int64_t> values) {
  int64_t last = 0;
  size_t i = 0;
  while (i < values.size()) {
    uint8_t head = 0;
    if (!in->Byte(&head)) return false;
    uint64_t value = (head >> 1) & 0x3f;
    if ((head & 0x80) != 0) {
      uint64_t rest = 0;
      if (!in->Varint(&rest) || rest >> 58 != 0) return false;
      value |= rest << 6;
    }
    const int64_t difference = UnZigZag(value);
    uint64_t times = 1;
    if ((head & 1) != 0) {
      if (!in->Varint(&times) || times > values.size()) return false;
      times += 2;
    }
    if (times > values.size() - i) return false;
    for (uint64_t k = 0; k < times; ++k) {
      last = WrapAdd(last, difference);
      values[i++] = last;
    }
  }
  return true;
}

template <typename T>
ColumnWriter::Result ColumnWriter::PutAny(const T* values, size_t count, uint32_t dtype,
                                          ColumnMemory* memory, ByteBuffer* out) {
  ColumnMode mode = ColumnMode::kLiteral;
  if (memory == nullptr) {
    scratch_.assign(values, values + count);
  } else if (memory->values.size() == count && count > 0) {
    scratch_.resize(count);
    uint64_t differs = 0;
    int64_t* previous = memory->values.data();
    for (size_t i = 0; i < count; ++i) {
      const auto value = static_cast<int64_t>(values[i]);
      scratch_[i] = WrapSub(value, previous[i]);
      differs |= static_cast<uint64_t>(scratch_[i]);
      previous[i] = value;
    }
    if (differs == 0 && memory->dtype == dtype) return Result::kSame;
    if (Changes(scratch_.data(), count) < Changes(previous, count)) mode = ColumnMode::kResidual;
  } else {
    if (count == 0 && memory->values.empty() && memory->dtype == dtype) return Result::kSame;
    memory->values.assign(values, values + count);
  }
  if (memory != nullptr) memory->dtype = dtype;
  out->Reserve(1 + ByteBuffer::kMaxVarint);
  out->PutByte(static_cast<uint8_t>(static_cast<uint32_t>(mode) | dtype << 2));
  out->PutVarint(count);
  PutRuns(memory == nullptr || mode == ColumnMode::kResidual ? scratch_ : memory->values, out);
  return Result::kPut;
}

ColumnWriter::Result ColumnWriter::Put(std::span<const int64_t> values, ColumnMemory* memory,
                                       ByteBuffer* out) {
  return PutAny(values.data(), values.size(), KVGUARD_I64, memory, out);
}
ColumnWriter::Result ColumnWriter::Put(std::span<const uint64_t> values, ColumnMemory* memory,
                                       ByteBuffer* out) {
  return PutAny(values.data(), values.size(), KVGUARD_I64, memory, out);
}

ColumnWriter::Result ColumnWriter::Put(const kvguard_array& array, uint64_t most,
                                       ColumnMemory* memory, ByteBuffer* out) {
  if (array.data == nullptr) return Result::kAbsent;
  const auto count = static_cast<size_t>(array.count < most ? array.count : most);
  switch (array.dtype) {
    case KVGUARD_I32:
      return PutAny(static_cast<const int32_t*>(array.data), count, KVGUARD_I32, memory, out);
    case KVGUARD_I64:
      return PutAny(static_cast<const int64_t*>(array.data), count, KVGUARD_I64, memory, out);
    case KVGUARD_U8:
      return PutAny(static_cast<const uint8_t*>(array.data), count, KVGUARD_U8, memory, out);
    default:
      return Result::kAbsent;
  }
}

ColumnResult GetColumn(std::span<const uint8_t> bytes, uint64_t max_count, ColumnMemory* memory,
                       std::vector<int64_t>* scratch, DecodedColumn* out) {
  ByteReader in(bytes);
  uint8_t head = 0;
  uint64_t count = 0;
  if (!in.Byte(&head) || !in.Varint(&count)) return ColumnResult::kDamaged;
  if (count > max_count) return ColumnResult::kTooLarge;
  const auto mode = static_cast<ColumnMode>(head & 3);
  out->dtype = head >> 2;
  std::vector<int64_t>* into = scratch;
  if (mode == ColumnMode::kLiteral) {
    if (memory != nullptr) into = &memory->values;
    into->resize(static_cast<size_t>(count));
    if (!GetRuns(&in, *into)) return ColumnResult::kDamaged;
  } else if (mode == ColumnMode::kResidual) {
    if (memory == nullptr || memory->values.size() != count) return ColumnResult::kDamaged;
    scratch->resize(static_cast<size_t>(count));
    if (!GetRuns(&in, *scratch)) return ColumnResult::kDamaged;
    into = &memory->values;
    for (size_t i = 0; i < into->size(); ++i) (*into)[i] = WrapAdd((*into)[i], (*scratch)[i]);
  } else {
    return ColumnResult::kDamaged;
  }
  if (!in.AtEnd() || !Fits(*into, out->dtype)) return ColumnResult::kDamaged;
  if (memory != nullptr) memory->dtype = out->dtype;
  out->values = *into;
  return ColumnResult::kOk;
}

bool GetSameColumn(uint64_t max_count, const ColumnMemory& memory, DecodedColumn* out) {
  if (memory.dtype == KVGUARD_DTYPE_NONE || memory.values.size() > max_count) return false;
  out->dtype = memory.dtype;
  out->values = memory.values;
  return true;
}

}  // namespace kvguard::trace
