// SPDX-License-Identifier: Apache-2.0
#include "trace/table.h"

#include <algorithm>
#include <limits>

#include "geometry/equal.h"

namespace kvguard::trace {
namespace {

size_t EqualPrefix(const int32_t* a, const int32_t* b, size_t count) {
  return geometry::MatchEqual(a, b, count);
}

size_t EqualPrefix(const int64_t* a, const int64_t* b, size_t count) {
  constexpr size_t kChunk = 16;  // without a branch inside, so that it is vectorised
  size_t i = 0;
  for (; i + kChunk <= count; i += kChunk) {
    uint64_t differs = 0;
    for (size_t k = 0; k < kChunk; ++k) differs |= static_cast<uint64_t>(a[i + k] ^ b[i + k]);
    if (differs != 0) break;
  }
  while (i < count && a[i] == b[i]) ++i;
  return i;
}

template <typename T>
bool Narrow(int64_t value, T* out) {
  if (value < std::numeric_limits<T>::min() || value > std::numeric_limits<T>::max()) return false;
  *out = static_cast<T>(value);
  return true;
}

template <typename T>
void PutChangedRow(std::span<const T> row, uint32_t index, size_t first_change, RowStore<T>* store,
                   ByteBuffer* out) {
  const size_t common = std::min(row.size(), store->row(index).size());
  size_t changes = 0;
  for (size_t i = first_change; i < common; ++i)
    changes += row[i] != store->row(index)[i] ? 1u : 0u;
  out->Reserve((2 * changes + 1) * ByteBuffer::kMaxVarint);
  out->PutVarint(changes);
  size_t last = 0;
  for (size_t i = first_change; changes > 0; ++i) {
    const T old = store->row(index)[i];
    if (row[i] == old) continue;
    out->PutVarint(i - last);
    out->PutVarint(ZigZag(WrapSub(int64_t{row[i]}, int64_t{old})));
    store->Set(index, i, row[i]);
    last = i;
    --changes;
  }
  if (row.size() > common) {
    const std::span<const T> appended = row.subspan(common);
    RunWriter runs(out);
    runs.Put(appended.data(), appended.size());
    runs.Flush();
    store->Append(index, appended);
  }
}

}  // namespace

template <typename T>
void PutTable(const TableSource<T>& table, RowStore<T>* store, TableScratch* scratch,
              ByteBuffer* out) {
  size_t unchanged = 0;
  scratch->loose_runs.Clear();
  RunWriter loose(&scratch->loose_runs);
  for (size_t r = 0; r < table.judged.size(); ++r) {
    const auto kept = static_cast<size_t>(table.judged[r]);
    const T* data = table.data + r * table.row_stride;
    const uint32_t index = r < table.indexes.size() ? table.indexes[r] : RowStore<T>::kNone;
    if (index == RowStore<T>::kNone) {
      loose.Put(data, kept);
      if (r < table.indexes.size()) ++unchanged;
      continue;
    }
    const std::vector<T>& known = store->row(index);
    const size_t common = std::min(kept, known.size());
    const size_t equal = EqualPrefix(data, known.data(), common);
    if (equal == common && kept <= known.size()) {
      ++unchanged;
      continue;
    }
    out->Reserve(ByteBuffer::kMaxVarint);
    out->PutVarint(unchanged);
    unchanged = 0;
    PutChangedRow<T>({data, kept}, index, equal, store, out);
  }
  loose.Flush();
  if (scratch->loose_runs.size() > 0) {
    out->Reserve(ByteBuffer::kMaxVarint);
    out->PutVarint(unchanged);  // up to the end of the requests' rows
    out->Append(scratch->loose_runs.data(), scratch->loose_runs.size());
  }
}

template <typename T>
bool GetTable(std::span<const uint8_t> bytes, const TableTarget<T>& table, uint64_t max_entries,
              RowStore<T>* store, TableScratch* scratch) {
  ByteReader in(bytes);
  // A request may stand in two rows, so each row is finished before the next one is looked at.
  uint64_t until_change = std::numeric_limits<uint64_t>::max();
  if (!in.AtEnd() && !in.Varint(&until_change)) return false;
  size_t num_loose = 0;
  for (size_t r = 0; r < table.judged.size(); ++r) {
    const auto kept = static_cast<size_t>(table.judged[r]);
    T* data = table.data + r * table.columns;
    const uint32_t index = r < table.indexes.size() ? table.indexes[r] : RowStore<T>::kNone;
    if (index == RowStore<T>::kNone) {
      num_loose += kept;
      if (r < table.indexes.size() && until_change-- == 0) return false;
      continue;
    }
    if (until_change > 0) {
      --until_change;
      if (kept > store->row(index).size()) return false;
      std::copy_n(store->row(index).begin(), kept, data);
      continue;
    }
    const size_t known = store->row(index).size();
    const size_t common = std::min(kept, known);
    uint64_t changes = 0;
    if (!in.Varint(&changes) || changes > common) return false;
    uint64_t at = 0;
    for (uint64_t i = 0; i < changes; ++i) {
      uint64_t gap = 0;
      uint64_t difference = 0;
      if (!in.Varint(&gap) || gap >= common || !in.Varint(&difference)) return false;
      at += gap;
      if (at >= common) return false;
      T value = 0;
      const int64_t old = store->row(index)[static_cast<size_t>(at)];
      if (!Narrow(WrapAdd(old, UnZigZag(difference)), &value)) return false;
      store->Set(index, static_cast<size_t>(at), value);
    }
    std::copy_n(store->row(index).begin(), common, data);
    if (kept > known) {
      const size_t appended = kept - known;
      if (appended > max_entries) return false;
      max_entries -= appended;
      scratch->appended.resize(appended);
      if (!GetRuns(&in, scratch->appended)) return false;
      for (size_t i = 0; i < appended; ++i) {
        if (!Narrow(scratch->appended[i], &data[known + i])) return false;
      }
      store->Append(index, {data + known, appended});
    }
    until_change = std::numeric_limits<uint64_t>::max();
    if (!in.AtEnd() && !in.Varint(&until_change)) return false;
  }
  if (num_loose > 0) {
    if (until_change != 0) return false;
    scratch->loose.resize(num_loose);
    if (!GetRuns(&in, scratch->loose)) return false;
    size_t next = 0;
    for (size_t r = 0; r < table.judged.size(); ++r) {
      const bool loose = r >= table.indexes.size() || table.indexes[r] == RowStore<T>::kNone;
      if (!loose) continue;
      T* data = table.data + r * table.columns;
      for (size_t i = 0; i < static_cast<size_t>(table.judged[r]); ++i) {
        if (!Narrow(scratch->loose[next++], &data[i])) return false;
      }
    }
  }
  return in.AtEnd();
}

template void PutTable<int32_t>(const TableSource<int32_t>&, RowStore<int32_t>*, TableScratch*,
                                ByteBuffer*);
template void PutTable<int64_t>(const TableSource<int64_t>&, RowStore<int64_t>*, TableScratch*,
                                ByteBuffer*);
template bool GetTable<int32_t>(std::span<const uint8_t>, const TableTarget<int32_t>&, uint64_t,
                                RowStore<int32_t>*, TableScratch*);
template bool GetTable<int64_t>(std::span<const uint8_t>, const TableTarget<int64_t>&, uint64_t,
                                RowStore<int64_t>*, TableScratch*);

}  // namespace kvguard::trace
