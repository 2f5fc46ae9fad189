// SPDX-License-Identifier: Apache-2.0
#include "tests/random/engine.h"

#include <algorithm>
#include <numeric>

#include "step/status.h"
#include "tests/support/plan_edit.h"

namespace kvguard::tests {

using audit::Scenario;
using audit::ScenarioOptions;
using audit::ScenarioPlan;

EngineOptions EngineOptions::Draw(uint64_t seed, uint32_t max_drafts, bool async) {
  std::mt19937_64 random(seed ^ 0x5eed);
  EngineOptions options;
  ScenarioOptions& s = options.scenario;
  s.groups.clear();
  const uint64_t num_groups = 1 + random() % 3;
  for (uint64_t g = 0; g < num_groups; ++g) {
    audit::ScenarioGroup group;
    group.block_size = 4u << random() % 2;
    group.kernel_block_size = group.block_size >> random() % 3;
    group.table_unit = random() % 2 == 0 ? KVGUARD_UNIT_BLOCK : KVGUARD_UNIT_KERNEL_BLOCK;
    group.pool =
        random() % 4 == 0 && g > 0 ? s.groups[g - 1].pool + 1 : (g > 0 ? s.groups[g - 1].pool : 0);
    s.groups.push_back(group);
  }
  s.num_blocks = 24 + random() % 40;
  s.columns = 24;
  s.max_drafts = max_drafts;
  s.wide_tables = random() % 2 == 0;
  s.narrow_slots = random() % 2 == 0;
  if (async) s.engine_flags |= KVGUARD_ENGINE_ASYNC;
  options.async = async;
  options.max_drafts = max_drafts;
  options.final_plans = random() % 3 == 0;
  return options;
}

RandomEngine::RandomEngine(uint64_t seed, EngineOptions options)
    : options_(std::move(options)), random_(seed) {
  uint32_t num_pools = 0;
  for (const auto& group : options_.scenario.groups)
    num_pools = std::max(num_pools, group.pool + 1);
  pools_.resize(num_pools);
  for (Pool& pool : pools_) {
    pool.holders.assign(options_.scenario.num_blocks, 0);
    for (uint64_t block = 1; block < options_.scenario.num_blocks; ++block)
      pool.free.push_back(static_cast<int64_t>(block));
    std::shuffle(pool.free.begin(), pool.free.end(), random_);
  }
}

int64_t RandomEngine::Take(size_t g) {
  Pool& pool = PoolOf(g);
  const int64_t block = pool.free.back();
  pool.free.pop_back();
  if (const auto it = pool.key_of.find(block); it != pool.key_of.end()) {  // evicted
    pool.cached.erase(it->second);
    pool.key_of.erase(it);
  }
  ++pool.holders[static_cast<size_t>(block)];
  return block;
}

void RandomEngine::Drop(size_t g, int64_t block) {
  Pool& pool = PoolOf(g);
  if (block <= 0 || block >= static_cast<int64_t>(pool.holders.size())) return;  // a planted one
  if (--pool.holders[static_cast<size_t>(block)] > 0) return;
  // Cached blocks go to the far end, so that they may be hit again before they are evicted.
  if (pool.key_of.count(block) != 0) {
    pool.free.insert(pool.free.begin(), block);
  } else {
    pool.free.push_back(block);
  }
}

std::vector<uint64_t> RandomEngine::PrefixKey(size_t g, const Request& request,
                                              size_t tokens) const {
  std::vector<uint64_t> key = {g};
  key.insert(key.end(), request.tokens.begin(),
             request.tokens.begin() + static_cast<std::ptrdiff_t>(tokens));
  return key;
}

bool RandomEngine::CanHold(const Request& request, int64_t tokens) {
  std::vector<size_t> wanted(pools_.size(), 0);
  for (size_t g = 0; g < options_.scenario.groups.size(); ++g) {
    const int64_t size = Group(g).block_size;
    const int64_t more =
        (tokens + size - 1) / size - static_cast<int64_t>(request.blocks[g].size());
    if (more > 0) wanted[Group(g).pool] += static_cast<size_t>(more);
    if ((tokens + size - 1) / size > static_cast<int64_t>(options_.scenario.columns)) return false;
  }
  for (size_t p = 0; p < pools_.size(); ++p) {
    if (wanted[p] > pools_[p].free.size()) return false;
  }
  return true;
}

std::vector<std::vector<int64_t>> RandomEngine::Grow(Request& request, int64_t tokens) {
  std::vector<std::vector<int64_t>> added(options_.scenario.groups.size());
  for (size_t g = 0; g < added.size(); ++g) {
    const int64_t size = Group(g).block_size;
    while (static_cast<int64_t>(request.blocks[g].size()) * size < tokens) {
      request.blocks[g].push_back(Take(g));
      added[g].push_back(request.blocks[g].back());
    }
  }
  return added;
}

// Blocks enter the prefix index when the step that fills them is scheduled, as engines do it.
void RandomEngine::Cache(const Request& request, int64_t tokens) {
  tokens = std::min(tokens, static_cast<int64_t>(request.tokens.size()));
  for (size_t g = 0; g < options_.scenario.groups.size(); ++g) {
    Pool& pool = PoolOf(g);
    const int64_t size = Group(g).block_size;
    for (int64_t column = 0; (column + 1) * size <= tokens; ++column) {
      const int64_t block = request.blocks[g][static_cast<size_t>(column)];
      if (pool.key_of.count(block) != 0) continue;
      const auto key = PrefixKey(g, request, static_cast<size_t>((column + 1) * size));
      if (pool.cached.emplace(key, block).second) pool.key_of[block] = key;
    }
  }
}

// Claims the longest prefix that every group holds; in tokens.
int64_t RandomEngine::Hit(Request& request) {
  int64_t unit = 1;
  for (const auto& group : options_.scenario.groups)
    unit = std::lcm(unit, int64_t{group.block_size});
  int64_t hit = (static_cast<int64_t>(request.tokens.size()) - 1) / unit * unit;
  for (size_t g = 0; g < options_.scenario.groups.size(); ++g) {
    const int64_t size = Group(g).block_size;
    for (int64_t tokens = size; tokens <= hit; tokens += size) {
      if (PoolOf(g).cached.count(PrefixKey(g, request, static_cast<size_t>(tokens))) == 0) {
        hit = (tokens - size) / unit * unit;
        break;
      }
    }
  }
  for (size_t g = 0; g < options_.scenario.groups.size(); ++g) {
    Pool& pool = PoolOf(g);
    const int64_t size = Group(g).block_size;
    for (int64_t tokens = size; tokens <= hit; tokens += size) {
      const int64_t block = pool.cached.at(PrefixKey(g, request, static_cast<size_t>(tokens)));
      if (pool.holders[static_cast<size_t>(block)]++ == 0)
        pool.free.erase(std::find(pool.free.begin(), pool.free.end(), block));
      request.blocks[g].push_back(block);
    }
  }
  return hit;
}

void RandomEngine::Release(size_t index) {
  Request& request = live_[index];
  for (size_t g = 0; g < request.blocks.size(); ++g) {
    for (const int64_t block : request.blocks[g]) Drop(g, block);
  }
  open_drafts_.erase(request.name);
  live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(index));
}

RandomEngine::Request RandomEngine::NewRequest() {
  Request request;
  // Few first tokens and few choices behind them, so that prefixes are often shared.
  const size_t prompt = 1 + Below(30);
  const auto family = static_cast<uint32_t>(Below(2));
  for (size_t i = 0; i < prompt; ++i) {
    request.tokens.push_back(family * 100 + static_cast<uint32_t>(i) +
                             (i >= 12 ? static_cast<uint32_t>(Below(2)) * 50 : 0));
  }
  request.prompt = prompt;
  request.length = prompt + 1 + Below(20);
  return request;
}

void RandomEngine::DecideEnds(const std::vector<Scenario*>& scenarios) {
  for (size_t i = live_.size(); i-- > 0;) {
    const bool done = live_[i].computed >= static_cast<int64_t>(live_[i].length);
    const bool preempt = !done && OneIn(live_.size() > 1 ? 12 : 60);
    if (!done && !preempt && !OneIn(60)) continue;
    if (preempt) {
      Request again = live_[i];
      again.computed = again.counted = 0;
      for (auto& row : again.blocks) row.clear();
      waiting_.push_back(std::move(again));
    }
    for (Scenario* s : scenarios) preempt ? s->Preempt(live_[i].name) : s->Finish(live_[i].name);
    Release(i);
  }
}

void RandomEngine::DecideRunning(std::vector<Decision>* decisions) {
  for (size_t i = 0; i < live_.size(); ++i) {
    Request& request = live_[i];
    if (OneIn(8)) continue;
    Decision decision;
    decision.request = i;
    const auto known = static_cast<int64_t>(request.tokens.size());
    if (request.computed + 1 < known) {
      decision.tokens =
          1 + static_cast<int64_t>(Below(static_cast<uint64_t>(known - request.computed)));
    } else {
      decision.drafts =
          options_.max_drafts > 0 ? static_cast<uint32_t>(Below(options_.max_drafts + 1)) : 0;
      decision.tokens = 1 + decision.drafts;
    }
    // What the scheduler believes needs room, too.
    const int64_t end = std::max(request.computed, request.counted) + decision.tokens;
    if (!CanHold(request, end)) continue;
    decision.fresh = Grow(request, end);
    Cache(request, request.computed + decision.tokens - decision.drafts);
    decisions->push_back(std::move(decision));
  }
}

void RandomEngine::DecideWaiting(std::vector<Decision>* decisions) {
  for (int tries = 0; tries < 2 && live_.size() < options_.max_live; ++tries) {
    const bool resume = !waiting_.empty() && !OneIn(3);
    Request request = resume ? waiting_.back() : NewRequest();
    request.name = step::Sprintf("r%llu", static_cast<unsigned long long>(next_name_));
    request.blocks.assign(options_.scenario.groups.size(), {});
    request.computed = request.counted = Hit(request);
    Decision decision;
    decision.admit = true;
    const auto left = static_cast<int64_t>(request.tokens.size()) - request.computed;
    decision.tokens = 1 + static_cast<int64_t>(Below(static_cast<uint64_t>(left)));
    if (!CanHold(request, request.computed + decision.tokens)) {
      for (size_t g = 0; g < request.blocks.size(); ++g) {
        for (const int64_t block : request.blocks[g]) Drop(g, block);
      }
      return;
    }
    if (resume) waiting_.pop_back();
    ++next_name_;
    decision.fresh = Grow(request, request.computed + decision.tokens);
    Cache(request, request.computed + decision.tokens);
    decision.request = live_.size();
    live_.push_back(std::move(request));
    decisions->push_back(std::move(decision));
  }
}

bool RandomEngine::Spoil(BindingFault fault, std::vector<Decision>* decisions) {
  if (fault == BindingFault::kCountAhead) {
    if (decisions->empty()) return false;
    ahead_ = live_[(*decisions)[Below(decisions->size())].request].name;
    return true;
  }
  // A fresh block of some request, from the last one on: its row then ends with the fault.
  for (Decision& decision : *decisions) {
    Request& request = live_[decision.request];
    for (size_t g = 0; g < decision.fresh.size(); ++g) {
      if (decision.fresh[g].empty()) continue;
      int64_t wrong = 0;
      switch (fault) {
        case BindingFault::kForeignBlock: {
          std::vector<int64_t> held;
          for (const Request& other : live_) {
            if (&other == &request) continue;
            bool new_here = false;  // hits of this very step are no earlier claims
            for (const Decision& d : *decisions)
              new_here = new_here || (d.admit && &live_[d.request] == &other);
            if (new_here) continue;
            for (size_t h = 0; h < other.blocks.size(); ++h) {
              if (Group(h).pool != Group(g).pool) continue;
              held.insert(held.end(), other.blocks[h].begin(), other.blocks[h].end());
            }
          }
          for (const Decision& d : *decisions) {  // and blocks of running ones that are new are not
            for (const auto& row : d.fresh) {
              for (const int64_t block : row) std::erase(held, block);
            }
          }
          for (const int64_t block : request.blocks[g])
            std::erase(held, block);  // shared: repeated
          if (held.empty()) continue;
          wrong = held[Below(held.size())];
          break;
        }
        case BindingFault::kOutOfRange:
          wrong = OneIn(2) ? -1 - static_cast<int64_t>(Below(5))
                           : static_cast<int64_t>(options_.scenario.num_blocks + Below(1000));
          break;
        case BindingFault::kNull:
          wrong = 0;
          break;
        case BindingFault::kRepeated:
          if (request.blocks[g].size() < 2) continue;
          wrong = request.blocks[g][Below(request.blocks[g].size() - 1)];
          break;
        case BindingFault::kShort:
          Drop(g, request.blocks[g].back());
          decision.fresh[g].pop_back();
          request.blocks[g].pop_back();
          return true;
        default:
          return false;
      }
      // The engine itself goes on with consistent books.
      Drop(g, request.blocks[g].back());
      Pool& pool = PoolOf(g);
      if (wrong > 0 && wrong < static_cast<int64_t>(pool.holders.size()))
        ++pool.holders[static_cast<size_t>(wrong)];
      decision.fresh[g].back() = request.blocks[g].back() = wrong;
      return true;
    }
  }
  return false;
}

bool RandomEngine::Begin(const std::vector<Scenario*>& scenarios, BindingFault fault) {
  scheduled_.clear();
  decided_.clear();
  ahead_.clear();
  DecideEnds(scenarios);
  std::vector<Decision> decisions;
  DecideRunning(&decisions);
  DecideWaiting(&decisions);
  const bool spoilt = fault == BindingFault::kNone || Spoil(fault, &decisions);
  std::shuffle(decisions.begin(), decisions.end(), random_);
  for (const Decision& decision : decisions) {
    Request& request = live_[decision.request];
    // An asynchronous scheduler may still count drafts that the runner knows to be rejected.
    int64_t counted = options_.async && OneIn(2) ? request.counted : request.computed;
    request.counted = counted;
    if (request.name == ahead_)
      counted = std::max(request.counted, request.computed + options_.max_drafts) + 1;
    for (Scenario* s : scenarios) {
      if (decision.admit) {
        s->Admit(request.name, request.blocks, request.computed);
      } else {
        for (size_t g = 0; g < decision.fresh.size(); ++g) {
          if (!decision.fresh[g].empty())
            s->Append(request.name, decision.fresh[g], static_cast<uint32_t>(g));
        }
      }
      s->Schedule(request.name, decision.tokens, decision.drafts, counted);
    }
    scheduled_.push_back(request.name);
    decided_[request.name] = decision;
  }
  for (Scenario* s : scenarios) s->Begin();
  if (options_.async && OneIn(3)) FeedOutcomes(scenarios, true);
  return spoilt;
}

ScenarioPlan RandomEngine::Plan(const Scenario& scenario) {
  ScenarioPlan plan = scenario.RightPlan();
  std::vector<size_t> rows(plan.requests.size());
  std::iota(rows.begin(), rows.end(), size_t{0});
  std::shuffle(rows.begin(), rows.end(), random_);
  plan = WithRows(plan, rows);
  if (OneIn(2)) {
    for (size_t b = 0; b < rows.size(); ++b)
      plan.num_computed.push_back(plan.positions[static_cast<size_t>(plan.query_start[b])]);
  }
  if (OneIn(2)) plan.Pad(Below(4), Below(9));
  for (auto& group : plan.groups) {
    const bool counted = OneIn(2);
    for (size_t b = 0; b < rows.size(); ++b) {
      size_t bound = 0;
      const size_t g = static_cast<size_t>(&group - plan.groups.data());
      for (const Request& request : live_) {
        if (scenario.Key(request.name) != plan.requests[b]) continue;
        const auto per_block = Group(g).table_unit == KVGUARD_UNIT_KERNEL_BLOCK
                                   ? Group(g).block_size / Group(g).kernel_block_size
                                   : 1;
        bound = request.blocks[g].size() * per_block;
      }
      for (size_t j = bound; j < group.columns; ++j) {
        if (OneIn(3)) plan.Table(g, b, j) = static_cast<int64_t>(Below(1000)) - 200;
      }
      if (counted) group.row_columns.push_back(static_cast<int64_t>(bound));
    }
  }
  return plan;
}

void RandomEngine::Finish(const std::vector<Scenario*>& scenarios, const ScenarioPlan& plan) {
  for (Scenario* s : scenarios) {
    s->Plan(plan);
    if (options_.final_plans) {
      ScenarioPlan final_plan = plan;
      final_plan.stage = KVGUARD_STAGE_FINAL;
      s->Plan(final_plan);
    }
    s->End();
  }
  for (const std::string& name : scheduled_) {
    const Decision& decision = decided_.at(name);
    for (Request& request : live_) {
      if (request.name != name) continue;
      const auto rejected = static_cast<uint32_t>(Below(decision.drafts + 1));
      request.computed += decision.tokens - rejected;
      request.counted = options_.async ? request.counted + decision.tokens : request.computed;
      while (static_cast<int64_t>(request.tokens.size()) < request.computed + 1)
        request.tokens.push_back(static_cast<uint32_t>(Below(1'000'000)));
      if (decision.drafts > 0) {
        // The runner knows at once; what the guard hears comes now or later.
        for (Scenario* s : scenarios) s->Computed(name) -= rejected;
        open_drafts_[name] += 1;
        outcomes_.push_back({name, scenarios[0]->step(), rejected});
      }
    }
  }
  FeedOutcomes(scenarios, !options_.async);
}

void RandomEngine::FeedOutcomes(const std::vector<Scenario*>& scenarios, bool all) {
  std::vector<Outcome> later;
  for (const Outcome& outcome : outcomes_) {
    if (!all && OneIn(2)) {
      later.push_back(outcome);
      continue;
    }
    const bool live = std::any_of(live_.begin(), live_.end(),
                                  [&](const Request& r) { return r.name == outcome.name; });
    for (Scenario* s : scenarios) {
      if (live) s->Computed(outcome.name) += outcome.rejected;  // taken off again by the outcome
      s->Outcome(outcome.step, outcome.name, 1, outcome.rejected);
    }
    if (live && --open_drafts_[outcome.name] == 0) open_drafts_.erase(outcome.name);
  }
  outcomes_ = std::move(later);
}

}  // namespace kvguard::tests
