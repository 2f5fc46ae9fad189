// SPDX-License-Identifier: Apache-2.0
// What the device's kernels do where they have a fault. Each strikes where it changes something.
#include <algorithm>
#include <utility>

#include "lab/packed.h"
#include "lab/runner.h"

namespace kvguard::lab {

template <typename Slot>
void Runner::BreakSlots(size_t group, std::vector<Slot>* slots) {
  const int32_t* words = packed_.data();
  const GroupConfig& g = config_.groups[group];
  const int32_t unit = g.kernel_block_size;
  const int32_t parts = g.block_size / unit;
  const int32_t num_rows = words[kRows];
  const auto through = [&](size_t table_group, int32_t b, int32_t column, int32_t block,
                           int32_t offset) {
    column = std::clamp(column, 0, width_[table_group] - 1);
    const int32_t entry = tables_[table_group][Ix(b) * Ix(width_[table_group]) + Ix(column)];
    return static_cast<int64_t>(entry) * block + offset;
  };
  // The wrong slot of token t of row b, whose tokens begin at `begin`.
  const auto wrong = [&](FaultKind kind, int32_t b, int32_t begin, int32_t end,
                         int32_t t) -> int64_t {
    const int32_t p = positions_[Ix(t)];
    const int64_t right = (*slots)[Ix(t)];
    switch (kind) {
      case FaultKind::kSlotRowStale:
        return stale_slots_[Ix(t)];
      case FaultKind::kSlotBlockSize:
        return through(group, b, p / (2 * unit), 2 * unit, p % (2 * unit));
      case FaultKind::kSlotOffByOne:
        return through(group, b, (p + 1) / unit, unit, (p + 1) % unit);
      case FaultKind::kSlotColumnBefore:
        return p < unit ? right : through(group, b, p / unit - 1, unit, p % unit);
      case FaultKind::kSlotOtherRow:
        return b + 1 < num_rows ? through(group, b + 1, p / unit, unit, p % unit) : right;
      case FaultKind::kSlotOtherGroup:
        return group > 0 ? through(0, b, p / unit, unit, p % unit) : right;
      case FaultKind::kSlotConsecutive:
        return (*slots)[Ix(begin)] + (t - begin);
      case FaultKind::kSlotNarrow:
        return right & 0x3ff;
      case FaultKind::kSlotRealPad:
        return t == end - 1 ? kPadSlot : right;
      case FaultKind::kSlotNull:
        return t == end - 1 ? p % unit : right;
      case FaultKind::kSlotOutOfRange:
        return t == end - 1 ? int64_t{config_.num_blocks} * parts * unit + 1 : right;
      case FaultKind::kSlotRepeated:
        return t == begin + 1 ? (*slots)[Ix(begin)] : right;
      default:
        return right;
    }
  };
  const FaultKind kind = faults_->kind();
  if (InfoOf(kind).place != FaultPlace::kSlots || !faults_->Waits(kind)) return;
  for (int32_t b = 0; b < num_rows; ++b) {
    const int32_t begin = query_start_[Ix(b)];
    const int32_t end = query_start_[Ix(b) + 1];
    bool differs = false;
    broken_slots_.clear();
    for (int32_t t = begin; t < end; ++t) {
      broken_slots_.push_back(wrong(kind, b, begin, end, t));
      differs = differs || broken_slots_.back() != (*slots)[Ix(t)];
    }
    if (!differs || !faults_->Strikes(kind)) continue;
    for (int32_t t = begin; t < end; ++t) {
      (*slots)[Ix(t)] = static_cast<Slot>(broken_slots_[Ix(t - begin)]);
    }
    return;
  }
}

template void Runner::BreakSlots<int32_t>(size_t group, std::vector<int32_t>* slots);
template void Runner::BreakSlots<int64_t>(size_t group, std::vector<int64_t>* slots);

void Runner::BreakTables() {
  const FaultKind kind = faults_->kind();
  if (InfoOf(kind).place != FaultPlace::kBuffer || !faults_->Waits(kind)) return;
  const int32_t* words = packed_.data();
  const int32_t num_rows = words[kRows];
  const GroupConfig& g = config_.groups[0];
  const int32_t unit = g.kernel_block_size;
  const int32_t parts = g.block_size / unit;
  const size_t width = Ix(width_[0]);
  for (int32_t b = 0; b < num_rows; ++b) {
    int32_t* table = tables_[0].data() + Ix(b) * width;
    const int32_t begin = query_start_[Ix(b)];
    const int32_t end = query_start_[Ix(b) + 1];
    if (begin == end) continue;
    const int32_t last = std::min(positions_[Ix(end - 1)] / unit, width_[0] - 1);
    const int32_t live = live_[0][Ix(b)];
    const int32_t needed = EngineConfig::FirstRead(g, positions_[Ix(begin)]) / unit;
    switch (kind) {
      case FaultKind::kTableNull:
        if (faults_->Strikes(kind)) table[last] = kNullBlock;
        return;
      case FaultKind::kTableOutOfRange:
        if (faults_->Strikes(kind)) table[last] = config_.num_blocks * parts + 1;
        return;
      case FaultKind::kTableOtherRow:
        if (b + 1 < num_rows && table[last] != table[width + Ix(last)] && faults_->Strikes(kind)) {
          std::copy_n(table + width, live, table);
          return;
        }
        break;
      case FaultKind::kTableStale:
        if (table[last] != stale_table_[Ix(b) * width + Ix(last)] && faults_->Strikes(kind)) {
          std::copy_n(stale_table_.data() + Ix(b) * width, live, table);
          return;
        }
        break;
      case FaultKind::kTableLastColumn:
        if (table[last] != stale_table_[Ix(b) * width + Ix(last)] && faults_->Strikes(kind)) {
          table[last] = stale_table_[Ix(b) * width + Ix(last)];
          return;
        }
        break;
      case FaultKind::kTableSwapped:
        if (last > needed && faults_->Strikes(kind)) {
          std::swap(table[last], table[last - 1]);
          return;
        }
        break;
      case FaultKind::kTableUnit:
        if (parts > 1 && faults_->Strikes(kind)) {
          for (int32_t j = 0; j < live / parts; ++j) table[j] = table[j * parts] / parts;
          return;
        }
        break;
      case FaultKind::kPadRowReal:
        if (words[kPaddedRows] > num_rows && faults_->Strikes(kind)) {
          std::copy_n(table, live, tables_[0].data() + Ix(num_rows) * width);
          return;
        }
        break;
      case FaultKind::kSeqLenShort:
        if (seq_lens_[Ix(b)] > g.block_size + (end - begin) && faults_->Strikes(kind)) {
          seq_lens_[Ix(b)] -= g.block_size;
          return;
        }
        break;
      case FaultKind::kSeqLenLong:
        if (faults_->Strikes(kind)) ++seq_lens_[Ix(b)];
        return;
      case FaultKind::kSeqLenPad:
        if (words[kPaddedRows] > num_rows && faults_->Strikes(kind)) {
          seq_lens_[Ix(num_rows)] = seq_lens_[Ix(b)];
          return;
        }
        break;
      case FaultKind::kPositionShifted:
        if (!faults_->Strikes(kind)) return;
        for (int32_t t = begin; t < end; ++t) ++positions_[Ix(t)];
        return;
      case FaultKind::kPositionGap:
        if (end - begin > 1 && faults_->Strikes(kind)) {
          ++positions_[Ix(end - 1)];
          return;
        }
        break;
      default:
        return;
    }
  }
}

void Runner::BreakStates(size_t group) {
  const FaultKind kind = faults_->kind();
  if (InfoOf(kind).place != FaultPlace::kBuffer || !faults_->Waits(kind)) return;
  const int32_t* words = packed_.data();
  const int32_t num_rows = words[kRows];
  std::vector<int32_t>& in = state_in_[group];
  std::vector<int32_t>& out = state_out_[group];
  for (int32_t b = 0; b < num_rows; ++b) {
    const int32_t* entry = words + words[kRows + 1] + b * kRowWords;
    const size_t row = Ix(b);
    const bool begins = state_init_[row] != 0;
    const int32_t place = places_[group][Ix(entry[kRowIndex])];
    switch (kind) {
      case FaultKind::kStateOtherRow:
        if (begins || b + 1 >= num_rows || in[row] == in[row + 1] || !faults_->Strikes(kind)) break;
        in[row] = in[row + 1];
        return;
      case FaultKind::kStateStaleColumn: {
        const int32_t first = tables_[group][row * Ix(width_[group]) + Ix(state_base_[group][row])];
        if (begins || place <= state_base_[group][row] || first == in[row] ||
            !faults_->Strikes(kind)) {
          break;
        }
        in[row] = first;
        return;
      }
      case FaultKind::kStateOutNull:
        if (faults_->Strikes(kind)) out[row] = kNullBlock;
        return;
      case FaultKind::kStateOutOtherRow:
        if (b + 1 >= num_rows || !faults_->Strikes(kind)) break;
        out[row] = out[row + 1];
        return;
      case FaultKind::kStateNotInitialised:
        if (!begins || !faults_->Strikes(kind)) break;
        state_init_[row] = 0;
        return;
      case FaultKind::kStateDiscarded:
        if (begins || !faults_->Strikes(kind)) break;
        state_init_[row] = 1;
        return;
      case FaultKind::kStatePadReal:
        if (words[kPaddedRows] <= num_rows || !faults_->Strikes(kind)) break;
        out[Ix(num_rows)] = out[row];
        return;
      default:
        return;
    }
  }
}

template <typename Slot>
void Runner::BreakCross(size_t group, std::vector<Slot>* slots) {
  const int32_t* words = packed_.data();
  const int32_t width = width_[group];
  for (int32_t b = 0; b + 1 < words[kRows]; ++b) {
    int32_t* table = tables_[group].data() + Ix(b) * Ix(width);
    const int32_t begin = cross_start_[Ix(b)];
    if (cross_lens_[Ix(b)] > 0 && table[0] != table[width] &&
        faults_->Strikes(FaultKind::kCrossOtherRow)) {
      std::copy_n(table + width, width, table);
    }
    if (begin < cross_start_[Ix(b) + 1] && faults_->Strikes(FaultKind::kCrossSlotShifted)) {
      for (int32_t t = begin; t < cross_start_[Ix(b) + 1]; ++t) ++(*slots)[Ix(t)];
    }
  }
}

template void Runner::BreakCross<int32_t>(size_t group, std::vector<int32_t>* slots);
template void Runner::BreakCross<int64_t>(size_t group, std::vector<int64_t>* slots);

// Between the last look at the plan and the kernels that use it.
void Runner::BreakForward(const InFlight& step) {
  if (!faults_->Waits(FaultKind::kPlanChangedLate) && !faults_->Waits(FaultKind::kMemoryFlips)) {
    return;
  }
  const int32_t rows = static_cast<int32_t>(step.rows.size());
  for (int32_t b = 0; b < rows; ++b) {
    const int32_t end = query_start_[Ix(b) + 1];
    if (b + 1 < rows && query_start_[Ix(b) + 2] > end &&
        faults_->Strikes(FaultKind::kPlanChangedLate)) {
      if (config_.int32_slots) {
        slots32_[0][Ix(end - 1)] = slots32_[0][Ix(end)];
      } else {
        slots64_[0][Ix(end - 1)] = slots64_[0][Ix(end)];
      }
    }
    const int32_t first = positions_[Ix(query_start_[Ix(b)])];
    const GroupConfig& g = config_.groups[0];
    const int32_t read = EngineConfig::FirstRead(g, first);
    if (first > read && faults_->Strikes(FaultKind::kMemoryFlips)) {
      const int32_t parts = g.block_size / g.kernel_block_size;
      const int32_t entry = tables_[0][Ix(b) * Ix(width_[0]) + Ix(read / g.kernel_block_size)];
      memory_[Ix(entry / parts) * page_bytes_ +
              Ix(read % g.block_size) * (page_bytes_ / Ix(g.block_size))] ^= 4;
    }
  }
}

}  // namespace kvguard::lab
