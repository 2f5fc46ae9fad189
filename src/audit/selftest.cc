// SPDX-License-Identifier: Apache-2.0
#include "audit/selftest.h"

#include <algorithm>
#include <array>
#include <vector>

#include "rules/catalog.h"

namespace kvguard::audit {
namespace {

using step::Sprintf;
using Ull = unsigned long long;

constexpr uint64_t kHistoryBytes = 64 << 10;

ScenarioOptions OptionsOf(const Planted& planted) {
  ScenarioOptions options;
  options.may_fail = true;
  options.config.history_steps = 4;
  options.config.history_bytes = kHistoryBytes;
  if (planted.options != nullptr) planted.options(options);
  return options;
}

std::string FamilyName(uint32_t family) {
  const char* name = kvguard_name("family", family);
  return name != nullptr ? name : Sprintf("%u", family);
}

std::string Place(const char* request, uint32_t group, int64_t pos) {
  std::string out = *request != '\0' ? std::string("request ") + request : "no request";
  out += group != KVGUARD_ALL_GROUPS ? Sprintf(", group %u", group) : ", no group";
  out += pos != KVGUARD_NONE ? Sprintf(", position %lld", static_cast<long long>(pos))
                             : ", no position";
  return out;
}

std::vector<kvguard_coverage_row> CoverageOf(const Scenario& s) {
  size_t count = 0;
  if (kvguard_coverage(s.guard(), nullptr, 0, &count, nullptr) != KVGUARD_OK || count == 0)
    return {};
  std::vector<kvguard_coverage_row> rows(count);
  rows[0].size = sizeof(kvguard_coverage_row);
  if (kvguard_coverage(s.guard(), rows.data(), rows.size(), &count, nullptr) != KVGUARD_OK)
    return {};
  return rows;
}

uint64_t Judged(const std::vector<kvguard_coverage_row>& rows, uint32_t family) {
  uint64_t sum = 0;
  for (const kvguard_coverage_row& row : rows) sum += row.family == family ? row.judged : 0;
  return sum;
}

// The one judging of a trial's two runs: `trial` is what is known so far, and the first thing that
// is wrong ends it.
class Judging {
 public:
  explicit Judging(const Planted& planted) : planted_(planted), family_(planted.code / 100) {
    trial_.code = planted.code;
    trial_.fault = planted.fault;
  }

  Trial Run() && {
    Neighbour();
    if (trial_.outcome == Outcome::kFound) Fault();
    return std::move(trial_);
  }

 private:
  void Fail(Outcome outcome, uint32_t family, const std::string& what) {
    trial_.outcome = outcome;
    trial_.why = (outcome == Outcome::kBlind ? "armed but blind: family " : "family ") +
                 FamilyName(family) + ": " + what;
  }

  bool Made(const Scenario& s) {
    if (s.guard() != nullptr) return true;
    Fail(Outcome::kBroken, family_, "no guard could be made: " + s.error());
    return false;
  }

  void Blind(uint32_t family, const char* where) {
    Fail(Outcome::kBlind, family, Sprintf("nothing was judged of '%s'", where));
  }

  // What a clean verdict rests on: every count that a step with tokens must have moved.
  bool AllRan(const Scenario& s, const std::vector<kvguard_coverage_row>& coverage) {
    const kvguard_verdict& v = s.verdict();
    for (const kvguard_coverage_row& row : coverage) {
      if (row.expected != 0 && row.judged == 0) {
        Blind(row.family, planted_.neighbour);
        return false;
      }
    }
    const struct {
      uint64_t count;
      uint32_t family;
    } counts[] = {{v.rows, KVGUARD_FAMILY_STEP},
                  {v.entries, KVGUARD_FAMILY_TABLE},
                  {v.slots, KVGUARD_FAMILY_SLOT}};
    for (const auto& each : counts) {
      if (each.count == 0) {
        Blind(each.family, planted_.neighbour);
        return false;
      }
    }
    if (trial_.judged < planted_.facts) {
      Fail(Outcome::kBlind, family_,
           Sprintf("%llu of %llu facts of '%s' were judged", static_cast<Ull>(trial_.judged),
                   static_cast<Ull>(planted_.facts), planted_.neighbour));
      return false;
    }
    return true;
  }

  void Neighbour() {
    Scenario s(OptionsOf(planted_));
    if (!Made(s)) return;
    planted_.legal(s);
    const std::vector<kvguard_coverage_row> coverage = CoverageOf(s);
    trial_.judged = Judged(coverage, family_);
    if (!AllRan(s, coverage)) return;
    const kvguard_verdict& v = s.verdict();
    if (const std::vector<uint32_t> codes = s.Codes(); !codes.empty()) {
      Fail(Outcome::kBroken, family_,
           Sprintf("KV%04u was found in '%s', which is right", codes[0], planted_.neighbour));
    } else if (v.verdict != KVGUARD_CLEAN || v.suspicions != 0) {
      const char* name = kvguard_name("verdict", v.verdict);
      Fail(
          Outcome::kBroken, family_,
          Sprintf("'%s', which is right, is %s with %llu suspicions %s", planted_.neighbour,
                  name != nullptr ? name : "?", static_cast<Ull>(v.suspicions), s.error().c_str()));
    }
  }

  void Fault() {
    Scenario s(OptionsOf(planted_));
    if (!Made(s)) return;
    planted_.plant(s);
    if (Judged(CoverageOf(s), family_) == 0) return Blind(family_, planted_.fault);
    const std::string right = Sprintf(
        "KV%04u, %s", planted_.code, Place(planted_.request, planted_.group, planted_.pos).c_str());
    const auto wrong = [&](const std::string& got) {
      Fail(Outcome::kBroken, family_,
           Sprintf("'%s' gave %s; right is %s", planted_.fault, got.c_str(), right.c_str()));
    };
    const std::vector<kvguard_finding> findings = s.Findings();
    if (findings.empty()) return wrong("nothing");
    const kvguard_finding& first = findings[0];
    const uint64_t key = *planted_.request != '\0' ? s.Key(planted_.request) : 0;
    if (first.code != planted_.code || first.request != key || first.group != planted_.group ||
        first.pos != planted_.pos) {
      const std::string other = first.request == key
                                    ? std::string(planted_.request)
                                    : Sprintf("key:%llu", static_cast<Ull>(first.request));
      return wrong(
          Sprintf("KV%04u, %s", first.code,
                  Place(first.request != 0 ? other.c_str() : "", first.group, first.pos).c_str()));
    }
    if (findings.size() > 1) return wrong(Sprintf("that and KV%04u", findings[1].code));
    if (first.step != s.step()) return wrong("it in another step");
    if (first.grade != KVGUARD_GRADE_PROOF) return wrong("no proof");
    const kvguard_verdict& v = s.verdict();
    if (v.verdict != KVGUARD_VIOLATED || v.step_verdict != KVGUARD_VIOLATED || v.must_raise != 1)
      return wrong("it and a verdict that holds nothing");
  }

  const Planted& planted_;
  const uint32_t family_;
  Trial trial_;
};

// --- the comparisons ---

constexpr size_t kMostElements = 67;
// Below, at and above what the widest loop takes at once, and lengths with a ragged end.
constexpr size_t kLengths[] = {1, 3, 8, 16, 31, 64, kMostElements};

// Calls `match`(n) with a wrong value at each place of an array that is right, and with none: it
// answers how far the array is right. `flip`(i) changes the value at i, and changes it back.
template <typename Match, typename Flip>
bool FindsEveryPlace(Match match, Flip flip) {
  for (const size_t n : kLengths) {
    if (match(n) != n) return false;
    for (size_t i = 0; i < n; ++i) {
      flip(i);
      const size_t good = match(n);
      flip(i);
      if (good != i) return false;
    }
  }
  return true;
}

template <typename T>
struct Arrays {
  static constexpr size_t kPerEntry = 16;
  static constexpr size_t kOffset = 5;  // the first token stands inside a block
  static constexpr T kFirst = 1000;
  static constexpr T kValue = -1;
  std::array<T, kMostElements> run;
  std::array<T, kMostElements> row;
  std::array<T, kMostElements> value;
  std::array<T, kMostElements> blocks;
  std::array<int32_t, kMostElements> bound;
  std::array<int32_t, kMostElements> entries;

  Arrays() {
    for (size_t i = 0; i < kMostElements; ++i) {
      bound[i] = static_cast<int32_t>(i * 37 % 101);
      entries[i] = static_cast<int32_t>(i * 5 % 31 + 1);
    }
    for (size_t i = 0; i < kMostElements; ++i) {
      run[i] = static_cast<T>(kFirst + static_cast<T>(i));
      row[i] = bound[i];
      value[i] = kValue;
      const size_t at = kOffset + i;
      blocks[i] = static_cast<T>(entries[at / kPerEntry]) * static_cast<T>(kPerEntry) +
                  static_cast<T>(at % kPerEntry);
    }
  }
};

template <typename T, size_t kSize>
auto Flip(std::array<T, kSize>& values) {
  // The highest bit but the sign: what a comparison of half the width would miss.
  return [&values](size_t i) { values[i] ^= T{1} << (sizeof(T) * 8 - 2); };
}

const char* WrongKernel(const geometry::EqualKernels& k) {
  Arrays<int64_t> wide;
  Arrays<int32_t> narrow;
  using Wide = Arrays<int64_t>;
  using Narrow = Arrays<int32_t>;
  if (!FindsEveryPlace([&](size_t n) { return k.run64(wide.run.data(), n, Wide::kFirst); },
                       Flip(wide.run)))
    return "run64";
  if (!FindsEveryPlace([&](size_t n) { return k.run32(narrow.run.data(), n, Narrow::kFirst); },
                       Flip(narrow.run)))
    return "run32";
  if (!FindsEveryPlace([&](size_t n) { return k.equal64(wide.row.data(), wide.bound.data(), n); },
                       Flip(wide.row)))
    return "equal64";
  if (!FindsEveryPlace(
          [&](size_t n) { return k.equal32(narrow.row.data(), narrow.bound.data(), n); },
          Flip(narrow.row)))
    return "equal32";
  if (!FindsEveryPlace([&](size_t n) { return k.value64(wide.value.data(), n, Wide::kValue); },
                       Flip(wide.value)))
    return "value64";
  if (!FindsEveryPlace([&](size_t n) { return k.value32(narrow.value.data(), n, Narrow::kValue); },
                       Flip(narrow.value)))
    return "value32";
  if (!FindsEveryPlace(
          [&](size_t n) {
            return k.blocks64(wide.blocks.data(), n, wide.entries.data(), Wide::kOffset,
                              Wide::kPerEntry);
          },
          Flip(wide.blocks)))
    return "blocks64";
  return nullptr;
}

step::Status StatusOf(const Trial& trial) {
  if (trial.outcome == Outcome::kFound) return {};
  const char* end = trial.outcome == Outcome::kBroken ? ": this build is broken" : "";
  return step::Status(KVGUARD_ERROR_INTERNAL, "self-test: " + trial.why + end);
}

}  // namespace

Trial Try(const Planted& planted) { return Judging(planted).Run(); }

Trial TryKernels(const geometry::EqualKernels& kernels) {
  Trial trial;
  trial.code = rules::kSlotMismatch;
  trial.fault = std::string("a wrong value at every place, ") + kernels.name + " comparisons";
  for (const size_t n : kLengths) trial.judged += n;
  if (const char* wrong = WrongKernel(kernels); wrong != nullptr) {
    trial.outcome = Outcome::kBroken;
    trial.why = Sprintf("family %s: the %s comparison %s misses a wrong value or invents one",
                        FamilyName(KVGUARD_FAMILY_SLOT).c_str(), kernels.name, wrong);
  }
  return trial;
}

Trial TryCatalog(std::span<const kvguard_rule> catalog, std::span<const Planted> planted) {
  Trial trial;
  for (const kvguard_rule& rule : catalog) {
    const bool found = std::any_of(planted.begin(), planted.end(), [&](const Planted& each) {
      return each.code / 100 == rule.family;
    });
    if (found) continue;
    trial.code = rule.code;
    trial.outcome = Outcome::kBlind;
    trial.why = "family " + FamilyName(rule.family) +
                " has rules and no planted fault: nobody knows whether they run";
    break;
  }
  return trial;
}

step::Status SelfTest(std::span<const kvguard_rule> catalog, std::span<const Planted> planted) {
  if (step::Status s = StatusOf(TryCatalog(catalog, planted)); !s.ok()) return s;
  for (const Planted& each : planted) {
    if (step::Status s = StatusOf(Try(each)); !s.ok()) return s;
  }
  if (step::Status s = StatusOf(TryKernels(geometry::kPortableEqualKernels)); !s.ok()) return s;
  if (const geometry::EqualKernels* wide = geometry::Avx2EqualKernels(); wide != nullptr) {
    if (step::Status s = StatusOf(TryKernels(*wide)); !s.ok()) return s;
  }
  return {};
}

step::Status SelfTest() { return SelfTest(rules::Catalog(), PlantedFaults()); }

}  // namespace kvguard::audit
