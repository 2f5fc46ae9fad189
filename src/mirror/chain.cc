// SPDX-License-Identifier: Apache-2.0
#include "mirror/chain.h"

#include <algorithm>
#include <cstdint>

#include "kvguard/kvguard.h"

namespace kvguard::mirror {
namespace {

// splitmix64's finaliser over a running value: one bit of either input moves every bit.
uint64_t Mix(uint64_t hash, uint64_t value) {
  uint64_t x = (hash ^ value) * 0x9e3779b97f4a7c15u + hash;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

void Chain::FindMarks(int64_t position) {
  marks_.clear();
  marks_until_ = INT64_MAX;
  for (const Domain& domain : s_.domains) {
    const int64_t end =
        domain.count > INT64_MAX - domain.first ? INT64_MAX : domain.first + domain.count;
    if (position < domain.first) marks_until_ = std::min(marks_until_, domain.first);
    if (position < domain.first || position >= end) continue;
    marks_until_ = std::min(marks_until_, end);
    const bool whole = domain.kind == KVGUARD_DOMAIN_LORA || domain.kind == KVGUARD_DOMAIN_SALT;
    const Mark mark = {Mix(Mix(1, domain.kind), static_cast<uint64_t>(domain.value)),
                       whole ? kEverywhere : domain.first};
    if (std::find(marks_.begin(), marks_.end(), mark) == marks_.end()) marks_.push_back(mark);
  }
}

uint64_t Chain::DomainAt(int64_t position) {
  if (position >= marks_until_) FindMarks(position);
  uint64_t sum = 1;  // a sum: a position's marks are a set, in no order
  for (const Mark& mark : marks_) {
    sum += mark.first == kEverywhere ? mark.hash
                                     : Mix(mark.hash, static_cast<uint64_t>(position - mark.first));
  }
  return sum;
}

void Chain::Append(int64_t first, const int64_t* tokens, uint64_t count, int64_t unit) {
  if (s_.closed) return;
  if (first != s_.size) return Close();
  s_.active = true;
  for (uint64_t i = 0; i < count; ++i) {
    s_.tokens = Mix(s_.tokens, static_cast<uint64_t>(tokens[i]));
    s_.domain = Mix(s_.domain, s_.domains.empty() ? 1 : DomainAt(s_.size));
    if (++s_.size % unit == 0) s_.names.push_back({s_.tokens | 1, s_.domain | 1});
  }
}

}  // namespace kvguard::mirror
