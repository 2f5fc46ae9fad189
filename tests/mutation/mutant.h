// SPDX-License-Identifier: Apache-2.0
// What scripts/mutate.py puts into the sources in place of an operator, a constant or a statement:
// the original, and beside it what a mutant does instead. KVGUARD_MUTANT in the environment names
// the mutant that is switched on (0 or none: the original program). Where KVGUARD_MUTANT_HITS names
// a file, the process appends to it at its end every mutant whose place it came by: "id 1", or
// "id 2" where the types at that place have no such operator.
//
// All of it is constexpr, so that a mutated function may still be used in a constant expression;
// what a compiler computes is always the original.
#ifndef KVGUARD_TESTS_MUTATION_MUTANT_H_
#define KVGUARD_TESTS_MUTATION_MUTANT_H_

#if defined(__cplusplus) && __cplusplus >= 202002L  // the C++17 and C sources hold no mutants

#include <cstdio>
#include <cstdlib>
#include <type_traits>

namespace kvguard_mutant {

inline constexpr unsigned kMaxMutants = 1u << 17;
inline unsigned char came_by[kMaxMutants];  // zero before anything runs

struct Switch {
  unsigned active = 0;
  const char* hits = nullptr;

  Switch() {
    if (const char* id = std::getenv("KVGUARD_MUTANT"))
      active = static_cast<unsigned>(std::strtoul(id, nullptr, 10));
    hits = std::getenv("KVGUARD_MUTANT_HITS");
  }
  ~Switch() {
    std::FILE* file = hits == nullptr ? nullptr : std::fopen(hits, "ab");
    if (file == nullptr) return;
    for (unsigned id = 0; id < kMaxMutants; ++id) {
      if (came_by[id] != 0) std::fprintf(file, "%u %u\n", id, static_cast<unsigned>(came_by[id]));
    }
    std::fclose(file);
  }
};
// Defined before whatever a source defines, in each of them, so that it is made first and goes
// last.
inline Switch chosen;

constexpr bool Is(unsigned id) {
  if (std::is_constant_evaluated()) return false;
  came_by[id] |= 1;
  return chosen.active == id;
}

constexpr void Cannot(unsigned id) {
  if (!std::is_constant_evaluated()) came_by[id] = 2;
}

// A statement is kept, a truth value is what it is.
constexpr bool Keep(unsigned id) { return !Is(id); }
constexpr bool Flip(unsigned id, bool value) { return Is(id) != value; }

// Ids in a row: id, id + 1.
template <typename T>
constexpr T Int(unsigned id, T value) {
  if (Is(id)) return static_cast<T>(value == 1 ? 0 : value + 1);
  if (value > 1 && Is(id + 1)) return static_cast<T>(value - 1);
  return value;
}

template <typename A, typename B>
constexpr bool Eq(unsigned id, const A& a, const B& b) {
  return Is(id) ? !(a == b) : a == b;
}

template <typename A, typename B>
constexpr bool Ne(unsigned id, const A& a, const B& b) {
  return Is(id) ? !(a != b) : a != b;
}

#define KVGUARD_MUTANT_RELATION(NAME, OP, BOUNDARY)          \
  template <typename A, typename B>                          \
  constexpr bool NAME(unsigned id, const A& a, const B& b) { \
    if (Is(id)) return a BOUNDARY b;                         \
    return Is(id + 1) ? !(a OP b) : a OP b;                  \
  }
KVGUARD_MUTANT_RELATION(Lt, <, <=)
KVGUARD_MUTANT_RELATION(Le, <=, <)
KVGUARD_MUTANT_RELATION(Gt, >, >=)
KVGUARD_MUTANT_RELATION(Ge, >=, >)
#undef KVGUARD_MUTANT_RELATION

#define KVGUARD_MUTANT_ARITHMETIC(NAME, OP, OTHER)                \
  template <typename A, typename B>                               \
  constexpr auto NAME(unsigned id, const A& a, const B& b) {      \
    using Result = std::decay_t<decltype(a OP b)>;                \
    if constexpr (requires { static_cast<Result>(a OTHER b); }) { \
      if (Is(id)) return static_cast<Result>(a OTHER b);          \
    } else {                                                      \
      Cannot(id);                                                 \
    }                                                             \
    return static_cast<Result>(a OP b);                           \
  }
KVGUARD_MUTANT_ARITHMETIC(Add, +, -)
KVGUARD_MUTANT_ARITHMETIC(Sub, -, +)
KVGUARD_MUTANT_ARITHMETIC(Mul, *, /)
KVGUARD_MUTANT_ARITHMETIC(Div, /, *)
KVGUARD_MUTANT_ARITHMETIC(Mod, %, *)
#undef KVGUARD_MUTANT_ARITHMETIC

// The right side of += and -=.
template <typename B>
constexpr decltype(auto) Negate(unsigned id, const B& b) {
  if constexpr (std::is_arithmetic_v<B>) {
    return Is(id) ? static_cast<B>(0 - b) : static_cast<B>(b);
  } else {
    Cannot(id);
    return (b);
  }
}

#define KVGUARD_MUTANT_STEP(NAME, OP, OTHER)      \
  template <typename T>                           \
  constexpr T& Pre##NAME(unsigned id, T& value) { \
    if constexpr (requires { OTHER value; }) {    \
      if (Is(id)) return OTHER value;             \
    } else {                                      \
      Cannot(id);                                 \
    }                                             \
    return OP value;                              \
  }                                               \
  template <typename T>                           \
  constexpr T Post##NAME(unsigned id, T& value) { \
    T old = value;                                \
    Pre##NAME(id, value);                         \
    return old;                                   \
  }
KVGUARD_MUTANT_STEP(Inc, ++, --)
KVGUARD_MUTANT_STEP(Dec, --, ++)
#undef KVGUARD_MUTANT_STEP

}  // namespace kvguard_mutant

#endif  // C++20

#endif  // KVGUARD_TESTS_MUTATION_MUTANT_H_
