// SPDX-License-Identifier: Apache-2.0
#include "audit/selftest.h"

#include <functional>

#include "audit/scenario.h"
#include "rules/catalog.h"

namespace kvguard::audit {
namespace {

struct Case {
  const char* name;
  uint32_t code;  // of the first cause; 0: clean
  std::function<void(Scenario&)> run;
};

// Two requests, one step of prefill each: the smallest plan in which every address rule can go
// wrong.
void TwoRequests(Scenario& s, const std::function<void(ScenarioPlan&)>& edit) {
  s.Admit("a", {{1, 2}}).Schedule("a", 6).Admit("b", {{3, 4}}).Schedule("b", 5).Step(edit);
}

const Case kCases[] = {
    {"a right plan", 0, [](Scenario& s) { TwoRequests(s, nullptr); }},
    {"a wrong slot", rules::kSlotMismatch,
     [](Scenario& s) { TwoRequests(s, [](ScenarioPlan& p) { p.groups[0].slots[2] += 8; }); }},
    {"a wrong table entry", rules::kTableMismatch,
     [](Scenario& s) { TwoRequests(s, [](ScenarioPlan& p) { p.Table(0, 1, 0) = 2; }); }},
    {"a null table entry", rules::kTableNull,
     [](Scenario& s) { TwoRequests(s, [](ScenarioPlan& p) { p.Table(0, 0, 1) = 0; }); }},
    {"a wrong length", rules::kSeqLenMismatch,
     [](Scenario& s) { TwoRequests(s, [](ScenarioPlan& p) { p.seq_lens[0] += 1; }); }},
    {"a wrong frontier", rules::kFrontierMismatch,
     [](Scenario& s) {
       s.Admit("a", {{1, 2}}).Schedule("a", 4).Step();
       s.Computed("a") = 3;
       s.Schedule("a", 1, 0, 4).Step();
     }},
    {"a block with two owners", rules::kBlockOwned,
     [](Scenario& s) {
       s.Admit("a", {{1, 2}}).Schedule("a", 6).Step();
       s.Admit("b", {{2}}).Schedule("b", 3).Begin();
     }},
};

}  // namespace

step::Status SelfTest() {
  for (const Case& test : kCases) {
    Scenario s;
    test.run(s);
    const std::vector<uint32_t> codes = s.Codes();
    const uint32_t got = codes.empty() ? 0 : codes[0];
    if (got != test.code) {
      return step::Status(
          KVGUARD_ERROR_INTERNAL,
          step::Sprintf("self-test '%s' gave KV%04u where KV%04u is right: this build is broken",
                        test.name, got, test.code));
    }
  }
  return {};
}

}  // namespace kvguard::audit
