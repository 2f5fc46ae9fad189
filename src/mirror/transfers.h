// SPDX-License-Identifier: Apache-2.0
// Transfers under way: what a connector reads or fills behind the engine's back. Blocks carry the
// number of their pins themselves; who pins them is told here.
#ifndef KVGUARD_SRC_MIRROR_TRANSFERS_H_
#define KVGUARD_SRC_MIRROR_TRANSFERS_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace kvguard::mirror {

enum class TransferKind : uint8_t { kReserve, kLoad, kSend };

struct Transfer {
  TransferKind kind = TransferKind::kReserve;
  bool cancelled = false;
  uint32_t group = 0;
  uint64_t request = 0;         // 0: not known
  int64_t first = 0;            // LOAD: the first position that is filled
  std::vector<int64_t> blocks;  // as they came
  int64_t count = 0;            // LOAD: positions; known in the step that announced it
  uint64_t since = 0;           // the last step that had begun when it was announced
};

// A load whose request was not live yet: where it was filled is compared when the request comes.
struct Unplaced {
  uint64_t id = 0;
  Transfer load;
};

class Transfers {
 public:
  static constexpr size_t kMostEnded = 4096;

  // Announced and not ended, by id.
  const std::map<uint64_t, Transfer>& open() const { return open_; }
  Transfer* Find(uint64_t id) {
    const auto it = open_.find(id);
    return it == open_.end() ? nullptr : &it->second;
  }
  bool WasEnded(uint64_t id) const { return ended_.count(id) != 0; }
  // The id is not open.
  Transfer& Open(uint64_t id) { return open_[id]; }
  void End(uint64_t id) {
    open_.erase(id);
    Remember(id);
  }
  void Remember(uint64_t id) {
    if (!ended_.insert(id).second) return;
    order_.push_back(id);
    if (order_.size() <= kMostEnded) return;
    ended_.erase(order_.front());
    order_.pop_front();
  }
  // Ended ids, oldest first.
  const std::deque<uint64_t>& ended() const { return order_; }

  std::deque<Unplaced>& unplaced() { return unplaced_; }
  const std::deque<Unplaced>& unplaced() const { return unplaced_; }

  // The request ended before it was admitted: its loads are compared with nothing.
  void DropUnplaced(uint64_t request) {
    unplaced_.erase(
        std::remove_if(unplaced_.begin(), unplaced_.end(),
                       [request](const Unplaced& u) { return u.load.request == request; }),
        unplaced_.end());
  }

  // A RESET forgot transfers: their ends may still be told.
  bool forgot() const { return forgot_; }
  void set_forgot(bool forgot) { forgot_ = forgot; }
  void Reset() {
    const bool forgot = forgot_ || !open_.empty() || !order_.empty();
    *this = Transfers{};
    forgot_ = forgot;
  }

 private:
  std::map<uint64_t, Transfer> open_;
  std::unordered_set<uint64_t> ended_;
  std::deque<uint64_t> order_;
  std::deque<Unplaced> unplaced_;
  bool forgot_ = false;
};

// What the worker announced for the open step and did not say it had done. Found by block, however
// many there are.
class Announced {
 public:
  struct Entry {
    uint32_t group = 0;
    uint32_t pool = 0;
    int64_t block = 0;   // the target, of a copy
    int64_t source = 0;  // of a copy
    bool done = false;
  };

  void Add(const Entry& entry) {
    at_.emplace(Key{entry.pool, entry.block}, entries_.size());
    entries_.push_back(entry);
    ++num_open_;
  }
  // Says that it was done, however often it was announced.
  void Done(const Entry& what) {
    const auto [first, last] = at_.equal_range(Key{what.pool, what.block});
    for (auto it = first; it != last;) {
      Entry& entry = entries_[it->second];
      if (entry.group != what.group || entry.source != what.source) {
        ++it;
        continue;
      }
      entry.done = true;
      --num_open_;
      it = at_.erase(it);
    }
  }
  const std::vector<Entry>& entries() const { return entries_; }
  // Whether some entry of the block is not done.
  bool IsOpen(uint32_t pool, int64_t block) const { return at_.count(Key{pool, block}) != 0; }
  // Whether this engine ever says DONE: else nothing is known about it.
  bool says_done() const { return says_done_; }
  void set_says_done(bool says) { says_done_ = says; }
  bool AnyOpen() const { return says_done_ && num_open_ > 0; }
  void NewStep() {
    entries_.clear();
    at_.clear();
    num_open_ = 0;
  }

 private:
  struct Key {
    uint32_t pool = 0;
    int64_t block = 0;  // any number: ids out of the pool are announced too
    bool operator==(const Key&) const = default;
  };
  struct HashOfKey {
    size_t operator()(const Key& key) const {
      return std::hash<uint64_t>()(static_cast<uint64_t>(key.block) ^ uint64_t{key.pool} << 48);
    }
  };

  std::vector<Entry> entries_;
  std::unordered_multimap<Key, size_t, HashOfKey> at_;  // entries that are not done
  size_t num_open_ = 0;
  bool says_done_ = false;
};

}  // namespace kvguard::mirror

#endif  // KVGUARD_SRC_MIRROR_TRANSFERS_H_
