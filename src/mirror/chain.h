// SPDX-License-Identifier: Apache-2.0
// What a request's tokens are, as far as the stream told: named by a hash at every boundary that a
// block of some group may end on. Equal names mean equal tokens from the first one on.
#ifndef KVGUARD_SRC_MIRROR_CHAIN_H_
#define KVGUARD_SRC_MIRROR_CHAIN_H_

#include <cstdint>
#include <utility>
#include <vector>

namespace kvguard::mirror {

// A name of content. tokens 0: not known.
struct ContentName {
  uint64_t tokens = 0;
  uint64_t domain = 0;  // of what makes equal tokens unequal: never 0 where tokens are known
};

// What marks positions [first, first + count) of a request: kvguard_domain_kind and identity.
struct Domain {
  uint64_t kind = 0;
  int64_t value = 0;
  int64_t first = 0;
  int64_t count = 0;
};

// As plain values, for snapshots.
struct ChainState {
  std::vector<ContentName> names;
  std::vector<Domain> domains;
  uint64_t tokens = 0x6b766775617264u;  // running hashes
  uint64_t domain = 0x646f6d61696eu;
  int64_t size = 0;
  bool active = false;
  bool closed = false;
};

class Chain {
 public:
  const ChainState& state() const { return s_; }
  void set_state(ChainState state) {
    s_ = std::move(state);
    marks_until_ = 0;
  }

  // Some token was told.
  bool active() const { return s_.active; }
  // Nothing more will be learnt: what is known stays.
  void Close() { s_.closed = true; }

  void AddDomain(const Domain& domain) {
    if (s_.size > domain.first) {
      Forget();
    } else {
      s_.domains.push_back(domain);
      marks_until_ = 0;
    }
  }
  // Tokens from position `first` on. Such as do not continue the known ones end what is known.
  // unit: a boundary is every multiple of it.
  void Append(int64_t first, const int64_t* tokens, uint64_t count, int64_t unit);

  // The name of positions [0, end). end is a multiple of the unit.
  ContentName NameAt(int64_t end, int64_t unit) const {
    const auto index = static_cast<uint64_t>(end / unit);
    return index == 0 || index > s_.names.size() ? ContentName{} : s_.names[index - 1];
  }
  // Nothing is known, and nothing will be.
  void Forget() {
    s_.names.clear();
    s_.closed = true;
  }

 private:
  // What marks a position. first: where the domain begins, from which a place in it is counted.
  struct Mark {
    uint64_t hash = 0;
    int64_t first = 0;
    bool operator==(const Mark&) const = default;
  };
  static constexpr int64_t kEverywhere = -1;  // the place does not count

  uint64_t DomainAt(int64_t position);
  void FindMarks(int64_t position);

  ChainState s_;
  // The marks of every position up to marks_until_, from the one they were last found for on.
  std::vector<Mark> marks_;
  int64_t marks_until_ = 0;
};

}  // namespace kvguard::mirror

#endif  // KVGUARD_SRC_MIRROR_CHAIN_H_
