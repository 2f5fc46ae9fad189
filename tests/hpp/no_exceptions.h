// SPDX-License-Identifier: Apache-2.0
#ifndef KVGUARD_TESTS_HPP_NO_EXCEPTIONS_H_
#define KVGUARD_TESTS_HPP_NO_EXCEPTIONS_H_

#include <string>

// A guarded step in a program that has no exceptions: "clean", "violated" with the finding's lines
// behind it, or the sentence of the first error. `slot`: where the plan writes the request's only
// token (16 is right).
std::string JudgeWithoutExceptions(int slot);

#endif  // KVGUARD_TESTS_HPP_NO_EXCEPTIONS_H_
