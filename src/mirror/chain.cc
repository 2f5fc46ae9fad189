// SPDX-License-Identifier: Apache-2.0
#include "mirror/chain.h"

#include <algorithm>

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

uint64_t Chain::DomainAt(int64_t position) const {
  uint64_t marks = 1;  // a sum: a position's marks are a set, in no order
  for (size_t i = 0; i < s_.domains.size(); ++i) {
    const Domain& domain = s_.domains[i];
    const auto covers = [position](const Domain& d) {
      return position >= d.first && position - d.first < d.count;
    };
    const bool whole = domain.kind == KVGUARD_DOMAIN_LORA || domain.kind == KVGUARD_DOMAIN_SALT;
    const auto marks_the_same = [&](const Domain& d) {
      return covers(d) && d.kind == domain.kind && d.value == domain.value &&
             (whole || d.first == domain.first);
    };
    const auto before = s_.domains.begin() + static_cast<ptrdiff_t>(i);
    if (!covers(domain) || std::any_of(s_.domains.begin(), before, marks_the_same)) continue;
    uint64_t mark = Mix(Mix(1, domain.kind), static_cast<uint64_t>(domain.value));
    if (!whole) mark = Mix(mark, static_cast<uint64_t>(position - domain.first));
    marks += mark;
  }
  return marks;
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
