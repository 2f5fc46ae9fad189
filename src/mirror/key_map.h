// SPDX-License-Identifier: Apache-2.0
// Request key -> index, open addressing with linear probing and backward-shift deletion. Keys are
// non-zero, so an empty cell is key 0. A plan looks every row up, so a lookup is one multiply and,
// nearly always, one cache line.
#ifndef KVGUARD_SRC_MIRROR_KEY_MAP_H_
#define KVGUARD_SRC_MIRROR_KEY_MAP_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvguard::mirror {

class KeyMap {
 public:
  static constexpr uint32_t kNone = 0xffffffffu;

  uint32_t Find(uint64_t key) const {
    if (cells_.empty()) return kNone;
    for (size_t i = Home(key);; i = (i + 1) & mask_) {
      if (cells_[i].key == 0) return kNone;  // first: key 0, which a plan may hold, is nobody's
      if (cells_[i].key == key) return cells_[i].value;
    }
  }

  // The key must not be present.
  void Insert(uint64_t key, uint32_t value) {
    if (cells_.empty() || (count_ + 1) * 2 > cells_.size()) Grow();
    size_t i = Home(key);
    while (cells_[i].key != 0) i = (i + 1) & mask_;
    cells_[i] = {key, value};
    ++count_;
  }

  void Erase(uint64_t key) {
    if (cells_.empty()) return;
    size_t hole = Home(key);
    for (; cells_[hole].key != key || key == 0; hole = (hole + 1) & mask_) {
      if (cells_[hole].key == 0) return;
    }
    // Move later members of the cluster back, so that no lookup stops early at the hole.
    for (size_t i = (hole + 1) & mask_; cells_[i].key != 0; i = (i + 1) & mask_) {
      const size_t home = Home(cells_[i].key);
      if (((i - home) & mask_) >= ((i - hole) & mask_)) {
        cells_[hole] = cells_[i];
        hole = i;
      }
    }
    cells_[hole] = {};
    --count_;
  }

  void Clear() {
    cells_.clear();
    mask_ = 0;
    count_ = 0;
  }

  size_t size() const { return count_; }

 private:
  struct Cell {
    uint64_t key = 0;
    uint32_t value = 0;
  };

  size_t Home(uint64_t key) const {
    return static_cast<size_t>((key * 0x9e3779b97f4a7c15u) >> shift_);
  }

  void Grow() {
    std::vector<Cell> old(cells_.empty() ? 64 : cells_.size() * 2);
    old.swap(cells_);
    mask_ = cells_.size() - 1;
    shift_ = 64 - std::countr_zero(cells_.size());  // at least 64 cells: a shift by less than 64
    for (const Cell& cell : old) {
      if (cell.key == 0) continue;
      size_t i = Home(cell.key);
      while (cells_[i].key != 0) i = (i + 1) & mask_;
      cells_[i] = cell;
    }
  }

  std::vector<Cell> cells_;
  size_t mask_ = 0;
  int shift_ = 63;
  size_t count_ = 0;
};

}  // namespace kvguard::mirror

#endif  // KVGUARD_SRC_MIRROR_KEY_MAP_H_
