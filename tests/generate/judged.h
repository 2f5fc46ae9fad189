// SPDX-License-Identifier: Apache-2.0
// What libkvguard says of a program.
#ifndef KVGUARD_TESTS_GENERATE_JUDGED_H_
#define KVGUARD_TESTS_GENERATE_JUDGED_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kvguard/kvguard.h"
#include "kvguard/kvguard.hpp"
#include "tests/generate/program.h"
#include "tests/generate/records.h"

namespace kvguard::generate {

struct Judged {
  std::string refused;  // the geometry was: why
  kvguard_verdict verdict{};
  std::vector<kvguard_finding> findings;
  std::vector<std::string> gaps;     // names of step gaps
  std::vector<bool> record_refused;  // by record
  std::string first_error;           // of a record that was
  std::string prose;                 // of the first finding
};

// A guard that keeps all findings and never asks to raise.
Judged Judge(Program* program, const std::vector<Record>& records);

}  // namespace kvguard::generate

#endif  // KVGUARD_TESTS_GENERATE_JUDGED_H_
