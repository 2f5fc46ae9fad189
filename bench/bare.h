// SPDX-License-Identifier: Apache-2.0
//
// The floor: what it costs to look at the metadata at all. One AVX2 equality pass over the slots
// and the live columns of the table against arrays that somebody else has filled with the right
// values. It knows no request, finds no place and explains nothing. It shares no code with the
// library, so that it stays where it is when the library moves.
#ifndef KVGUARD_BENCH_BARE_H_
#define KVGUARD_BENCH_BARE_H_

#include <vector>

#include "bench/engine.h"

namespace kvguard::bench {

// The right values, laid out like the metadata.
struct Expected {
  std::vector<int64_t> slots;
  std::vector<int32_t> table;
};

void CopyExpected(const Metadata& metadata, Expected* expected);

bool BareAvailable();  // false without AVX2

// True where everything is equal.
bool BareEqual(const Metadata& metadata, const Expected& expected);

}  // namespace kvguard::bench

#endif  // KVGUARD_BENCH_BARE_H_
