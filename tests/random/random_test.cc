// SPDX-License-Identifier: Apache-2.0
// What a legal engine does is clean, whatever it does; the same with one thing wrong is found in
// the very step, whatever is wrong. Seeds are printed: a failure is repeated by its seed alone.
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "audit/scenario.h"
#include "rules/catalog.h"
#include "tests/random/engine.h"
#include "tests/support/plan_edit.h"

namespace kvguard::tests {
namespace {

using audit::Scenario;
using audit::ScenarioPlan;

constexpr uint32_t kClean = KVGUARD_CLEAN;
constexpr uint32_t kViolated = KVGUARD_VIOLATED;

struct Kind {
  const char* name;
  uint32_t max_drafts;
  bool async;
};

constexpr Kind kKinds[] = {
    {"Plain", 0, false}, {"Drafts", 3, false}, {"Async", 0, true}, {"AsyncDrafts", 3, true}};

std::string NameOf(const testing::TestParamInfo<Kind>& kind) { return kind.param.name; }

// KVGUARD_TEST_SEEDS=10: ten times as many.
uint64_t Seeds(uint64_t usual) {
  const char* factor = std::getenv("KVGUARD_TEST_SEEDS");
  return factor == nullptr ? usual : usual * std::strtoull(factor, nullptr, 10);
}

class RandomTest : public testing::TestWithParam<Kind> {};

INSTANTIATE_TEST_SUITE_P(Kinds, RandomTest, testing::ValuesIn(kKinds), NameOf);

TEST_P(RandomTest, ALegalEngineIsClean) {
  uint64_t rows = 0;
  for (uint64_t seed = 1; seed <= Seeds(60); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const EngineOptions options =
        EngineOptions::Draw(seed, GetParam().max_drafts, GetParam().async);
    Scenario s(options.scenario);
    RandomEngine engine(seed, options);
    for (int step = 0; step < 150; ++step) {
      engine.Step({&s});
      ASSERT_TRUE(s.Findings().empty()) << s.Report();
      ASSERT_EQ(s.verdict().step_gaps, 0u) << s.error();
    }
    EXPECT_EQ(s.verdict().verdict, kClean);
    EXPECT_EQ(s.verdict().suspicions, 0u);
    rows += s.verdict().rows;
  }
  EXPECT_GT(rows, 20'000u) << "the engine hardly does anything";
}

// One change of a right plan. Returns false where it changes nothing that anybody would look at.
using Mutation = std::function<bool(RandomEngine&, const Scenario&, ScenarioPlan&)>;

// Sets a value to another one, near or far.
bool Change(RandomEngine& e, int64_t& value, int64_t low, int64_t high) {
  const int64_t before = value;
  value = e.OneIn(2) ? before + (e.OneIn(2) ? 1 : -1) * static_cast<int64_t>(1 + e.Below(9))
                     : low + static_cast<int64_t>(e.Below(static_cast<uint64_t>(high - low)));
  return value != before;
}

// Bound columns of a row are in front of its residue: those that its tokens reach at least.
size_t ReachedEntries(const ScenarioPlan& plan, size_t row, const audit::ScenarioGroup& group) {
  const uint32_t tokens =
      group.table_unit == KVGUARD_UNIT_KERNEL_BLOCK ? group.kernel_block_size : group.block_size;
  return (static_cast<size_t>(plan.seq_lens[row]) + tokens - 1) / tokens;
}

struct Named {
  const char* name;
  Mutation mutate;
};

std::vector<Named> Mutations(const EngineOptions& options) {
  const auto num_groups = options.scenario.groups.size();
  return {
      {"a slot",
       [=](RandomEngine& e, const Scenario&, ScenarioPlan& p) {
         auto& slots = p.groups[e.Below(num_groups)].slots;
         return Change(e, slots[e.Below(p.positions.size())], -3, 700);
       }},
      {"a table entry",
       [=](RandomEngine& e, const Scenario&, ScenarioPlan& p) {
         const size_t g = e.Below(num_groups);
         const size_t row = e.Below(p.requests.size());
         const size_t n = ReachedEntries(p, row, options.scenario.groups[g]);
         return Change(e, p.Table(g, row, e.Below(n)), -3, 300);
       }},
      {"a length",
       [](RandomEngine& e, const Scenario&, ScenarioPlan& p) {
         return Change(e, p.seq_lens[e.Below(p.requests.size())], 0, 100);
       }},
      {"a position",
       [](RandomEngine& e, const Scenario&, ScenarioPlan& p) {
         return Change(e, p.positions[e.Below(p.positions.size())], 0, 100);
       }},
      {"a query offset",
       [](RandomEngine& e, const Scenario&, ScenarioPlan& p) {
         return Change(e, p.query_start[e.Below(p.requests.size() + 1)], -1, 60);
       }},
      {"a row's request",
       [](RandomEngine& e, const Scenario& s, ScenarioPlan& p) {
         uint64_t& key = p.requests[e.Below(p.requests.size())];
         const uint64_t before = key;
         key = e.OneIn(2) ? p.requests[e.Below(p.requests.size())] : e.Below(s.step() + 3);
         return key != before;
       }},
      {"a row dropped",
       [](RandomEngine& e, const Scenario&, ScenarioPlan& p) {
         std::vector<size_t> rows;
         const size_t dropped = e.Below(p.requests.size());
         for (size_t i = 0; i < p.requests.size(); ++i) {
           if (i != dropped) rows.push_back(i);
         }
         p = WithRows(p, rows);
         return true;
       }},
      {"a row twice",
       [](RandomEngine& e, const Scenario&, ScenarioPlan& p) {
         std::vector<size_t> rows;
         for (size_t i = 0; i < p.requests.size(); ++i) rows.push_back(i);
         rows.push_back(e.Below(rows.size()));
         p = WithRows(p, rows);
         return true;
       }},
      {"two rows' tables exchanged",
       [=](RandomEngine& e, const Scenario&, ScenarioPlan& p) {
         const size_t g = e.Below(num_groups);
         const size_t a = e.Below(p.requests.size());
         const size_t b = e.Below(p.requests.size());
         const size_t n = std::min(ReachedEntries(p, a, options.scenario.groups[g]),
                                   ReachedEntries(p, b, options.scenario.groups[g]));
         bool differ = false;
         for (size_t j = 0; j < n; ++j) {
           differ = differ || p.Table(g, a, j) != p.Table(g, b, j);
           std::swap(p.Table(g, a, j), p.Table(g, b, j));
         }
         return differ;
       }},
      {"a runner's count",
       [](RandomEngine& e, const Scenario&, ScenarioPlan& p) {
         if (p.num_computed.empty()) return false;
         return Change(e, p.num_computed[e.Below(p.requests.size())], 0, 100);
       }},
      {"a number of columns",
       [=](RandomEngine& e, const Scenario&, ScenarioPlan& p) {
         auto& columns = p.groups[e.Below(num_groups)].row_columns;
         if (columns.empty()) return false;
         return Change(e, columns[e.Below(p.requests.size())], 0, 30);
       }},
      {"a pad slot",
       [=](RandomEngine& e, const Scenario&, ScenarioPlan& p) {
         if (p.padded_tokens == p.positions.size()) return false;
         auto& slots = p.groups[e.Below(num_groups)].slots;
         const size_t at = p.positions.size() + e.Below(p.padded_tokens - p.positions.size());
         return Change(e, slots[at], -3, 700);
       }},
      {"a padding row's table",
       [=](RandomEngine& e, const Scenario&, ScenarioPlan& p) {
         if (p.padded_rows == p.requests.size()) return false;
         const size_t g = e.Below(num_groups);
         const size_t row = p.requests.size() + e.Below(p.padded_rows - p.requests.size());
         // From the first block on: smaller kernel ids belong to the null block.
         const auto& group = options.scenario.groups[g];
         p.Table(g, row, e.Below(p.groups[g].columns)) =
             static_cast<int64_t>(group.block_size / group.kernel_block_size + e.Below(1000));
         return true;
       }},
      {"a padding row's length",
       [](RandomEngine& e, const Scenario&, ScenarioPlan& p) {
         if (p.padded_rows == p.requests.size()) return false;
         const size_t row = p.requests.size() + e.Below(p.padded_rows - p.requests.size());
         return Change(e, p.seq_lens[row], 0, 100);
       }},
  };
}

TEST_P(RandomTest, EveryChangeOfAPlanIsFoundInItsStepAndForgottenInTheNext) {
  std::vector<size_t> found;
  for (uint64_t seed = 1; seed <= Seeds(150); ++seed) {
    const EngineOptions options =
        EngineOptions::Draw(seed, GetParam().max_drafts, GetParam().async);
    const std::vector<Named> mutations = Mutations(options);
    found.resize(mutations.size());
    Scenario s(options.scenario);
    RandomEngine engine(seed, options);
    for (int step = 0; step < 40; ++step) {
      engine.Begin({&s});
      ASSERT_EQ(s.verdict().step_verdict, kClean) << "seed " << seed << "\n" << s.Report();
      ScenarioPlan plan = engine.Plan(s);
      const size_t which = engine.Below(mutations.size());
      const bool changed =
          !plan.positions.empty() && engine.OneIn(2) && mutations[which].mutate(engine, s, plan);
      engine.Finish({&s}, plan);
      ASSERT_EQ(s.verdict().step_gaps, 0u) << "seed " << seed << ": " << s.error();
      ASSERT_EQ(s.verdict().step_verdict, changed ? kViolated : kClean)
          << "seed " << seed << " step " << s.step() << ": "
          << (changed ? mutations[which].name : "nothing changed") << "\n"
          << s.Report();
      found[which] += changed;
    }
  }
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_GT(found[i], 10u) << "mutation " << i << " hardly ever applies";
}

// With open drafts a scheduler holds blocks beyond what its count says: one less may be enough.
class BindingTest : public testing::TestWithParam<Kind> {};

INSTANTIATE_TEST_SUITE_P(Kinds, BindingTest, testing::ValuesIn({kKinds[0], kKinds[1], kKinds[2]}),
                         NameOf);

TEST_P(BindingTest, EveryWrongBindingIsFoundInItsBegin) {
  struct Fault {
    BindingFault fault;
    uint32_t code;
  };
  constexpr Fault kFaults[] = {
      {BindingFault::kForeignBlock, rules::kBlockOwned},
      {BindingFault::kOutOfRange, rules::kBlockOutOfRange},
      {BindingFault::kNull, rules::kBlockNull},
      {BindingFault::kRepeated, rules::kBlockRepeated},
      {BindingFault::kShort, rules::kCapacityShort},
      {BindingFault::kCountAhead, rules::kCountAhead},
  };
  for (const Fault& fault : kFaults) {
    size_t found = 0;
    for (uint64_t seed = 1; seed <= Seeds(120); ++seed) {
      const EngineOptions options =
          EngineOptions::Draw(seed, GetParam().max_drafts, GetParam().async);
      Scenario s(options.scenario);
      RandomEngine engine(seed, options);
      const uint64_t faulty = 3 + engine.Below(15);
      for (uint64_t step = 0; step < faulty; ++step) engine.Step({&s});
      ASSERT_TRUE(s.Findings().empty()) << "seed " << seed << "\n" << s.Report();
      bool planted = false;
      for (int tries = 0; tries < 20 && !planted; ++tries) {
        planted = engine.Begin({&s}, fault.fault);
        if (!planted) {
          ASSERT_EQ(s.verdict().step_verdict, kClean) << "seed " << seed << "\n" << s.Report();
          engine.Finish({&s}, engine.Plan(s));
        }
      }
      if (!planted) continue;
      ASSERT_EQ(s.verdict().step_verdict, kViolated)
          << "seed " << seed << " step " << s.step() << " fault KV0" << fault.code;
      bool named = false;
      for (const uint32_t code : s.Codes()) named = named || code == fault.code;
      ASSERT_TRUE(named) << "seed " << seed << " fault KV0" << fault.code << "\n" << s.Report();
      ++found;
    }
    EXPECT_GT(found, 60u) << "fault KV0" << fault.code << " hardly ever applies";
  }
}

TEST_P(RandomTest, TheSameRecordsGiveTheSameBytes) {
  for (uint64_t seed = 1; seed <= Seeds(10); ++seed) {
    const EngineOptions options =
        EngineOptions::Draw(seed, GetParam().max_drafts, GetParam().async);
    const std::vector<Named> mutations = Mutations(options);
    Scenario a(options.scenario);
    Scenario b(options.scenario);
    RandomEngine engine(seed, options);
    for (int step = 0; step < 80; ++step) {
      engine.Begin({&a, &b});
      ScenarioPlan plan = engine.Plan(a);
      if (!plan.positions.empty() && engine.OneIn(3))
        mutations[engine.Below(mutations.size())].mutate(engine, a, plan);
      engine.Finish({&a, &b}, plan);
    }
    EXPECT_EQ(a.Report(), b.Report()) << "seed " << seed;
    EXPECT_TRUE(a.Snapshot() == b.Snapshot()) << "seed " << seed;
    EXPECT_FALSE(a.Findings().empty()) << "seed " << seed;
  }
}

// A guard that takes over in the middle, from a snapshot, judges as the one that saw it all.
TEST_P(RandomTest, ARestoredMirrorJudgesTheSame) {
  for (uint64_t seed = 1; seed <= Seeds(40); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const EngineOptions options =
        EngineOptions::Draw(seed, GetParam().max_drafts, GetParam().async);
    const std::vector<Named> mutations = Mutations(options);
    Scenario whole(options.scenario);
    RandomEngine engine(seed, options);
    for (int step = 0; step < 40; ++step) engine.Step({&whole});
    Scenario middle(options.scenario);
    ASSERT_EQ(middle.Restore(whole.Snapshot()), KVGUARD_OK) << middle.error();
    EXPECT_TRUE(middle.Snapshot() == whole.Snapshot());
    middle.Follow(whole);
    for (int step = 0; step < 60; ++step) {
      engine.Begin({&whole, &middle},
                   engine.OneIn(20) ? BindingFault::kForeignBlock : BindingFault::kNone);
      ScenarioPlan plan = engine.Plan(whole);
      if (!plan.positions.empty() && engine.OneIn(4))
        mutations[engine.Below(mutations.size())].mutate(engine, whole, plan);
      engine.Finish({&whole, &middle}, plan);
      ASSERT_EQ(whole.verdict().step_verdict, middle.verdict().step_verdict);
    }
    EXPECT_EQ(whole.Report(), middle.Report());
    EXPECT_TRUE(whole.Snapshot() == middle.Snapshot());
  }
}

}  // namespace
}  // namespace kvguard::tests
