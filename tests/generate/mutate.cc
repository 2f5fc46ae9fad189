// SPDX-License-Identifier: Apache-2.0
#include "tests/generate/mutate.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

namespace kvguard::generate {
namespace {

// A number of a record that may be changed.
struct Site {
  const char* field = "";
  int64_t group = -1;
  int64_t element = -1;
  int64_t value = 0;
  uint32_t dtype = KVGUARD_I64;  // what it must fit into
  int64_t block = 1;             // what a block counts here
  int64_t bound = 0;             // first value out of range; 0: none
  int64_t other_unit = 0;        // the value in the other unit; 0: the same
  int64_t* wide = nullptr;       // one of these three is where it lives
  uint64_t* key = nullptr;
  uint32_t* narrow = nullptr;

  void Set(int64_t to) const {
    if (wide != nullptr) *wide = to;
    if (key != nullptr) *key = static_cast<uint64_t>(to);
    if (narrow != nullptr) *narrow = static_cast<uint32_t>(to);
  }
  bool IsUnsigned() const { return wide == nullptr; }
};

class Sites {
 public:
  Sites(const Options& options, Record* record) : options_(options), record_(*record) {
    if (record_.kind == KVGUARD_RECORD_BEGIN) Begin();
    if (record_.kind == KVGUARD_RECORD_PLAN) OfPlan();
    if (record_.kind == KVGUARD_RECORD_OUTCOME) Outcome();
  }
  std::vector<Site>& all() { return sites_; }

 private:
  void Wide(const char* field, int64_t* value, int64_t element, int64_t block = 1,
            int64_t bound = 0, uint32_t dtype = KVGUARD_I64, int64_t group = -1,
            int64_t other_unit = 0) {
    Site site;
    site.field = field;
    site.group = group;
    site.element = element;
    site.value = *value;
    site.dtype = dtype;
    site.block = block;
    site.bound = bound;
    site.other_unit = other_unit;
    site.wide = value;
    sites_.push_back(site);
  }
  void Key(const char* field, uint64_t* value, int64_t element) {
    Site site;
    site.field = field;
    site.element = element;
    site.value = static_cast<int64_t>(*value);
    site.key = value;
    sites_.push_back(site);
  }
  void Narrow(const char* field, uint32_t* value, int64_t element, int64_t bound) {
    Site site;
    site.field = field;
    site.element = element;
    site.value = *value;
    site.bound = bound;
    site.narrow = value;
    sites_.push_back(site);
  }
  void All(const char* field, Array* array, int64_t block = 1, int64_t bound = 0,
           int64_t group = -1, int64_t unit = 1) {
    for (size_t i = 0; i < array->values.size(); ++i) {
      Wide(field, &array->values[i], static_cast<int64_t>(i), block, bound, array->dtype, group,
           unit > 1 ? array->values[i] / unit : 0);
    }
  }
  const GroupOptions& Group(uint32_t group) const {
    return options_.groups[std::min<size_t>(group, options_.groups.size() - 1)];
  }
  int64_t BlockSize() const { return options_.groups[0].block_size; }

  void Events() {
    for (size_t e = 0; e < record_.events.size(); ++e) {
      Event& event = record_.events[e];
      const auto element = static_cast<int64_t>(e);
      Key("event.request", &event.request, element);
      if (!event.blocks.empty()) {
        Narrow("event.group", &event.group, element, static_cast<int64_t>(options_.groups.size()));
        const int64_t bound = options_.pools[Group(event.group).pool].num_blocks;
        const int64_t m = Group(event.group).block_size / Group(event.group).kernel_block_size;
        for (size_t j = 0; j < event.blocks.size(); ++j) {
          Wide("event.blocks", &event.blocks[j], static_cast<int64_t>(j), 1, bound, KVGUARD_I64,
               event.group, m > 1 ? event.blocks[j] * m : 0);
        }
      }
      if (event.kind == KVGUARD_EVENT_ADMIT || event.kind == KVGUARD_EVENT_ROLLBACK) {
        Wide("event.first", &event.first, element, BlockSize(), options_.max_model_len + 1);
        Wide("event.count", &event.count, element, BlockSize(), options_.max_model_len + 1);
      }
      if (event.kind == KVGUARD_EVENT_DOMAIN) {
        Wide("event.value", &event.value, element);
        Wide("event.first", &event.first, element, BlockSize());
        Wide("event.count", &event.count, element, BlockSize());
      }
      if (event.kind == KVGUARD_EVENT_ERASE || event.kind == KVGUARD_EVENT_REBASE) {
        Narrow("event.group", &event.group, element, static_cast<int64_t>(options_.groups.size()));
        Wide("event.first", &event.first, element, BlockSize(), options_.max_model_len + 1);
        Wide("event.count", &event.count, element, BlockSize(), options_.max_model_len + 1);
        if (event.kind == KVGUARD_EVENT_REBASE)
          Wide("event.value", &event.value, element, 1, options_.max_model_len + 1);
      }
      if (event.kind == KVGUARD_EVENT_REMAP) Wide("event.reason", &event.value, element, 1, 4);
      for (size_t t = 0; t < event.tokens.size(); ++t)
        Wide("event.tokens", &event.tokens[t], static_cast<int64_t>(t));
    }
  }
  void Begin() {
    Events();
    for (size_t s = 0; s < record_.scheduled.size(); ++s) {
      Scheduled& row = record_.scheduled[s];
      const auto element = static_cast<int64_t>(s);
      Key("scheduled.request", &row.request, element);
      Wide("scheduled.num_tokens", &row.num_tokens, element, BlockSize(),
           options_.max_tokens() + 1);
      Wide("scheduled.num_computed", &row.num_computed, element, BlockSize(),
           options_.max_model_len + 1);
      Narrow("scheduled.num_drafts", &row.num_drafts, element, options_.max_drafts + 1);
    }
  }
  void Lists(const GroupOptions& of, int64_t blocks, GroupPlan* group) {
    const auto g = static_cast<int64_t>(group->group);
    const int64_t unit = of.list_unit();
    const int64_t per_block = of.block_size / unit;
    All("plan.list_offsets", &group->offsets, per_block, 0, g, of.block_size);
    for (size_t i = 0; i < group->entries.values.size(); ++i) {
      int64_t& entry = group->entries.values[i];
      // Slots in place of blocks, and the reverse.
      const int64_t other = unit > 1 ? entry * unit : of.block_size > 1 ? entry / of.block_size : 0;
      Wide("plan.list_entries", &entry, static_cast<int64_t>(i), per_block, blocks * per_block,
           group->entries.dtype, g, other);
    }
    All("plan.last_page_len", &group->last_page, of.block_size, unit + 1, g);
    if (of.encoding == KVGUARD_READ_FLAT)
      Wide("plan.sentinel", &group->sentinel, -1, 1, blocks * of.block_size, KVGUARD_I64, g);
  }
  void OfPlan() {
    Plan& plan = record_.plan;
    for (size_t b = 0; b < plan.requests.size(); ++b)
      Key("plan.requests", &plan.requests[b], static_cast<int64_t>(b));
    All("plan.query_start", &plan.query_start, BlockSize(), options_.max_tokens() + 1);
    All("plan.seq_lens", &plan.seq_lens, BlockSize(), options_.max_model_len + 1);
    All("plan.positions", &plan.positions, BlockSize(), options_.max_model_len);
    All("plan.num_computed", &plan.num_computed, BlockSize(), options_.max_model_len + 1);
    for (GroupPlan& group : plan.groups) {
      const GroupOptions& of = Group(group.group);
      const int64_t blocks = options_.pools[of.pool].num_blocks;
      const int64_t m = of.block_size / of.kernel_block_size;
      const auto g = static_cast<int64_t>(group.group);
      All("plan.slots", &group.slots, of.block_size, blocks * of.block_size, g, of.block_size);
      All("plan.group_seq_lens", &group.seq_lens, of.block_size, options_.max_model_len + 1, g);
      All("plan.row_columns", &group.row_columns, of.entries_per_block(), 0, g, m);
      if (of.reads_by_list()) Lists(of, blocks, &group);
      All("plan.state_in", &group.in, 1, blocks, g);
      All("plan.state_out", &group.out, 1, blocks, g);
      All("plan.state_init", &group.init, 1, 2, g);
      for (uint64_t b = 0; b < group.table.rows; ++b) {
        for (uint64_t j = 0; j < group.table.columns; ++j) {
          int64_t* entry = &group.table.at(b, j);
          Wide("plan.table", entry, static_cast<int64_t>(b * group.table.columns + j),
               of.entries_per_block(), blocks * of.entries_per_block(), group.table.dtype, g,
               m > 1 ? (of.kernel_unit() ? *entry / m : *entry * m) : 0);
        }
      }
    }
  }
  void Outcome() {
    Events();
    for (size_t r = 0; r < record_.rows.size(); ++r) {
      OutcomeRow& row = record_.rows[r];
      const auto element = static_cast<int64_t>(r);
      Key("outcome.request", &row.request, element);
      Narrow("outcome.num_rejected", &row.num_rejected, element, options_.max_drafts + 1);
      Narrow("outcome.num_sampled", &row.num_sampled, element, 0);
      for (size_t t = 0; t < row.tokens.size(); ++t)
        Wide("outcome.tokens", &row.tokens[t], static_cast<int64_t>(t));
    }
    Key("outcome.step", &record_.step, -1);
  }

  const Options& options_;
  Record& record_;
  std::vector<Site> sites_;
};

bool SamePass(const Record& a, const Record& b) {
  return a.kind == b.kind && a.plan.pass == b.plan.pass && a.plan.stage == b.plan.stage &&
         a.plan.groups.size() == b.plan.groups.size();
}

// What stood at this place in the record of the same kind before.
std::optional<int64_t> Earlier(const Options& options, std::vector<Record>* records, size_t index,
                               const Site& site) {
  for (size_t i = index; i-- > 0;) {
    Record& record = (*records)[i];
    if (!SamePass(record, (*records)[index])) continue;
    Sites earlier(options, &record);
    for (const Site& other : earlier.all()) {
      if (std::string(other.field) == site.field && other.group == site.group &&
          other.element == site.element)
        return other.value;
    }
    return std::nullopt;
  }
  return std::nullopt;
}

bool Fits(const Site& site, int64_t value) {
  if (site.IsUnsigned() && value < 0) return false;
  if (site.narrow != nullptr) return value <= std::numeric_limits<uint32_t>::max();
  if (site.dtype == KVGUARD_I64) return true;
  if (site.dtype == KVGUARD_U8) return value >= 0 && value <= 255;
  return value >= std::numeric_limits<int32_t>::min() &&
         value <= std::numeric_limits<int32_t>::max();
}

struct Change {
  const char* kind = "";
  std::optional<int64_t> to;
  const Site* swapped_with = nullptr;
};

Change DrawChange(const Options& options, Random* random, std::vector<Record>* records,
                  size_t index, const Site& site, const std::vector<const Site*>& alike) {
  const int64_t sign = random->OneIn(2) ? 1 : -1;
  switch (random->Below(10)) {
    case 0:
    case 1:
      return {"off-by-one", site.value + sign};
    case 2:
      return {"by-a-block", site.value + sign * site.block};
    case 3:
    case 4: {
      const Site* other = random->Of(alike);
      return {"swapped", other->value, other};
    }
    case 5:
      return {"stale", Earlier(options, records, index, site)};
    case 6:
      return {"wrong-unit", site.other_unit == 0 ? site.value * 2 : site.other_unit};
    case 7:
      return random->OneIn(2) ? Change{"zeroed", 0} : Change{"minus-one", -1};
    case 8:
      return {"out-of-range", site.bound > 0 ? site.bound + random->Range(0, 3) : site.value + 7};
    default:
      // Lengths that a step has to walk along stay walkable.
      if (std::string(site.field) == "scheduled.num_tokens") return {"huge", 1 << 16};
      return {"huge", site.dtype == KVGUARD_I64 && !site.IsUnsigned() && random->OneIn(2)
                          ? int64_t{1} << 40
                          : std::numeric_limits<int32_t>::max()};
  }
}

std::optional<Mutation> ChangeNumber(const Options& options, Random* random,
                                     std::vector<Record>* records, size_t index) {
  Sites sites(options, &(*records)[index]);
  if (sites.all().empty()) return std::nullopt;
  // A field first, so that a large array does not hide a small one.
  std::vector<std::string> fields;
  for (const Site& site : sites.all()) {
    if (std::find(fields.begin(), fields.end(), site.field) == fields.end())
      fields.emplace_back(site.field);
  }
  const std::string field = random->Of(fields);
  std::vector<const Site*> alike;
  for (const Site& site : sites.all()) {
    if (site.field == field) alike.push_back(&site);
  }
  const Site& site = *random->Of(alike);
  const Change change = DrawChange(options, random, records, index, site, alike);
  if (!change.to || *change.to == site.value || !Fits(site, *change.to)) return std::nullopt;
  if (change.swapped_with != nullptr) {
    if (!Fits(*change.swapped_with, site.value)) return std::nullopt;
    change.swapped_with->Set(site.value);
  }
  site.Set(*change.to);
  return Mutation{change.kind, index,     (*records)[index].step, field, site.group, site.element,
                  site.value,  *change.to};
}

template <typename T>
void Erase(std::vector<T>* from, size_t index) {
  from->erase(from->begin() + static_cast<std::ptrdiff_t>(index));
}

template <typename T>
void Double(std::vector<T>* in, size_t index) {
  in->insert(in->begin() + static_cast<std::ptrdiff_t>(index), (*in)[index]);
}

std::optional<Mutation> ChangeBegin(Random* random, Record* record, Mutation m) {
  std::vector<Event>& events = record->events;
  const bool moves = std::any_of(events.begin(), events.end(), [](const Event& event) {
    return event.kind == KVGUARD_EVENT_REMAP;
  });
  if (moves && random->OneIn(2)) return ChangePair(random, &events, m);
  const uint64_t what = random->Below(9);
  if (what < 6) {
    if (events.empty()) return std::nullopt;
    const auto e = static_cast<size_t>(random->Below(events.size()));
    Event& event = events[e];
    m.element = static_cast<int64_t>(e);
    m.old_value = event.kind;
    m.field = "event";
    if (what == 0) {
      m.kind = "dropped";
      Erase(&events, e);
      return m;
    }
    if (what == 1) {
      m.kind = "doubled";
      Double(&events, e);
      return m;
    }
    if (what == 2) {
      const auto f = static_cast<size_t>(random->Below(events.size()));
      if (events[e] == events[f]) return std::nullopt;
      m.kind = "swapped";
      m.new_value = static_cast<int64_t>(f);
      std::swap(events[e], events[f]);
      return m;
    }
    m.field = "event.blocks";
    if (event.blocks.empty()) return std::nullopt;
    const auto j = static_cast<size_t>(random->Below(event.blocks.size()));
    m.old_value = event.blocks[j];
    if (what == 3) {
      m.kind = "dropped";
      Erase(&event.blocks, j);
    } else if (what == 4) {
      m.kind = "doubled";
      Double(&event.blocks, j);
    } else {
      m.kind = "appended-for-replaced";
      event.kind =
          event.kind == KVGUARD_EVENT_APPEND ? KVGUARD_EVENT_REPLACE : KVGUARD_EVENT_APPEND;
    }
    return m;
  }
  if (what == 8) {
    m.kind = "added";
    m.field = "event.gap";
    Event gap;
    gap.kind = KVGUARD_EVENT_GAP;
    gap.name = "planted";
    events.push_back(std::move(gap));
    return m;
  }
  if (record->scheduled.empty()) return std::nullopt;
  const auto s = static_cast<size_t>(random->Below(record->scheduled.size()));
  m.field = "scheduled";
  m.element = static_cast<int64_t>(s);
  m.old_value = static_cast<int64_t>(record->scheduled[s].request);
  m.kind = what == 6 ? "dropped" : "doubled";
  if (what == 6) {
    Erase(&record->scheduled, s);
  } else {
    Double(&record->scheduled, s);
  }
  return m;
}

std::optional<Mutation> ChangePlan(Random* random, Record* record, Mutation m) {
  Plan& plan = record->plan;
  const bool lists = std::any_of(plan.groups.begin(), plan.groups.end(), [](const GroupPlan& g) {
    return g.encoding == KVGUARD_READ_CSR || g.encoding == KVGUARD_READ_FLAT;
  });
  if (lists && random->OneIn(2)) return ChangeList(random, &plan, m);
  const auto row = [&] { return static_cast<size_t>(random->Below(plan.num_rows)); };
  switch (random->Below(9)) {
    case 0: {  // a row's tokens are shown under another row's name
      if (plan.num_rows < 2) return std::nullopt;
      const size_t b = row();
      const size_t c = row();
      if (b == c) return std::nullopt;
      m.kind = "duplicated";
      m.field = "plan.requests";
      m.element = static_cast<int64_t>(b);
      m.old_value = static_cast<int64_t>(plan.requests[b]);
      m.new_value = static_cast<int64_t>(plan.requests[c]);
      plan.requests[b] = plan.requests[c];
      return m;
    }
    case 1:
      if (plan.num_rows == 0) return std::nullopt;
      m.kind = "off-by-one";
      m.field = "plan.num_rows";
      m.old_value = static_cast<int64_t>(plan.num_rows--);
      m.new_value = static_cast<int64_t>(plan.num_rows);
      return m;
    case 2:  // the last row is missing, with its tokens
      if (plan.num_rows == 0 || plan.query_start.values.size() < plan.num_rows) return std::nullopt;
      m.kind = "dropped";
      m.field = "plan.row";
      m.old_value = static_cast<int64_t>(plan.num_rows--);
      m.new_value = static_cast<int64_t>(plan.num_rows);
      plan.num_tokens = static_cast<uint64_t>(plan.query_start.values[plan.num_rows]);
      return m;
    case 3:
    case 4: {
      uint64_t* const fields[] = {&plan.num_tokens, &plan.padded_tokens, &plan.padded_rows};
      static const char* const kNames[] = {"plan.num_tokens", "plan.padded_tokens",
                                           "plan.padded_rows"};
      const uint64_t f = random->Below(3);
      if (*fields[f] == 0) return std::nullopt;
      m.kind = "off-by-one";
      m.field = kNames[f];
      m.old_value = static_cast<int64_t>(*fields[f]);
      *fields[f] += random->OneIn(2) ? 1 : -1;
      m.new_value = static_cast<int64_t>(*fields[f]);
      return m;
    }
    default:
      break;
  }
  if (plan.groups.empty()) return std::nullopt;
  const auto g = static_cast<size_t>(random->Below(plan.groups.size()));
  GroupPlan& group = plan.groups[g];
  m.group = group.group;
  switch (random->Below(5)) {
    case 0:
      m.kind = "dropped";
      m.field = "plan.group";
      Erase(&plan.groups, g);
      return m;
    case 1:
      m.kind = "dropped";
      m.field = "plan.slots";
      group.slots = {};
      return m;
    case 2:
      m.kind = "dropped";
      m.field = "plan.table";
      group.table = {};
      return m;
    case 3: {  // another group's numbers
      GroupPlan& other = plan.groups[static_cast<size_t>(random->Below(plan.groups.size()))];
      if (random->OneIn(2)) {
        if (group.slots == other.slots) return std::nullopt;
        m.field = "plan.slots";
        group.slots = other.slots;
      } else {
        if (group.table == other.table) return std::nullopt;
        m.field = "plan.table";
        group.table = other.table;
      }
      m.kind = "other-group";
      return m;
    }
    default:
      if (group.table.columns == 0) return std::nullopt;
      m.kind = "off-by-one";
      m.field = "plan.table.columns";
      m.old_value = static_cast<int64_t>(group.table.columns--);
      m.new_value = static_cast<int64_t>(group.table.columns);
      return m;
  }
}

// The arrays of the plan before, as a buffer that was not written again shows them.
std::optional<Mutation> StaleArray(Random* random, std::vector<Record>* records, size_t index,
                                   Mutation m) {
  Record& record = (*records)[index];
  for (size_t i = index; i-- > 0;) {
    const Record& earlier = (*records)[i];
    if (!SamePass(earlier, record)) continue;
    Plan& plan = record.plan;
    if (plan.groups.empty() || earlier.plan.groups.size() != plan.groups.size()) continue;
    const auto g = static_cast<size_t>(random->Below(plan.groups.size()));
    m.kind = "stale-array";
    Array* array = nullptr;
    const Array* from = nullptr;
    switch (random->Below(4)) {
      case 0:
        m.field = "plan.seq_lens";
        array = &plan.seq_lens;
        from = &earlier.plan.seq_lens;
        break;
      case 1:
        m.field = "plan.positions";
        array = &plan.positions;
        from = &earlier.plan.positions;
        break;
      case 2:
        m.field = "plan.slots";
        m.group = plan.groups[g].group;
        array = &plan.groups[g].slots;
        from = &earlier.plan.groups[g].slots;
        break;
      default: {
        m.group = plan.groups[g].group;
        if (!plan.groups[g].entries.values.empty()) {
          GroupPlan& group = plan.groups[g];
          const GroupPlan& old = earlier.plan.groups[g];
          const GroupPlan before = group;
          const bool offsets = random->OneIn(2);
          m.field = offsets ? "plan.list_offsets" : "plan.list_entries";
          std::vector<int64_t>& to = offsets ? group.offsets.values : group.entries.values;
          const auto& from_list = offsets ? old.offsets.values : old.entries.values;
          std::copy_n(from_list.begin(), std::min(to.size(), from_list.size()), to.begin());
          if (group == before) return std::nullopt;
          return m;
        }
        m.field = "plan.table";
        Table& table = plan.groups[g].table;
        const Table& old = earlier.plan.groups[g].table;
        const Table before = table;
        const size_t n = std::min(table.entries.size(), old.entries.size());
        std::copy_n(old.entries.begin(), n, table.entries.begin());
        if (table == before) return std::nullopt;
        return m;
      }
    }
    const Array before = *array;
    const size_t n = std::min(array->values.size(), from->values.size());
    std::copy_n(from->values.begin(), n, array->values.begin());
    if (*array == before) return std::nullopt;
    return m;
  }
  return std::nullopt;
}

std::optional<Mutation> ChangeRecord(Random* random, std::vector<Record>* records, size_t index,
                                     Mutation m) {
  Record& record = (*records)[index];
  m.field = "record";
  m.old_value = record.kind;
  if (record.kind == KVGUARD_RECORD_END && random->OneIn(2)) {
    m.kind = "off-by-one";
    m.field = "end.flags";
    m.old_value = record.flags;
    record.flags ^= random->OneIn(2) ? KVGUARD_END_NO_FORWARD : KVGUARD_END_ABANDONED;
    m.new_value = record.flags;
    return m;
  }
  if (random->OneIn(2)) {
    m.kind = "dropped";
    Erase(records, index);
  } else {
    m.kind = "doubled";
    Double(records, index);
  }
  return m;
}

}  // namespace

std::optional<Mutation> MutateOnce(const Options& options, Random* random,
                                   std::vector<Record>* records) {
  if (records->empty()) return std::nullopt;
  const auto index = static_cast<size_t>(random->Below(records->size()));
  Record& record = (*records)[index];
  Mutation m;
  m.record = index;
  m.step = record.step;
  const uint64_t what = random->Below(20);
  if (what == 0) return ChangeRecord(random, records, index, m);
  if (record.kind == KVGUARD_RECORD_BEGIN && what < 5) return ChangeBegin(random, &record, m);
  if (record.kind == KVGUARD_RECORD_PLAN) {
    if (what < 4) return ChangePlan(random, &record, m);
    if (what < 6) return StaleArray(random, records, index, m);
  }
  return ChangeNumber(options, random, records, index);
}

std::optional<Mutation> Mutate(const Options& options, uint64_t seed,
                               std::vector<Record>* records) {
  Random random(Mix(seed, 0x6d7574));
  for (int tries = 0; tries < 100; ++tries) {
    if (auto mutation = MutateOnce(options, &random, records)) return mutation;
  }
  return std::nullopt;
}

}  // namespace kvguard::generate
