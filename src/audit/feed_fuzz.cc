// SPDX-License-Identifier: Apache-2.0
// Bytes become a life of a guard: right steps, steps with wrong values, and records in which every
// count, size, kind and pointer may be anything that still lies inside its buffer. Two guards get
// the same records and must give the same answers; a refused call says why; what is found prints.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "audit/scenario.h"

namespace {

using kvguard::audit::Scenario;
using kvguard::audit::ScenarioOptions;
using kvguard::audit::ScenarioPlan;

#define KVGUARD_MUST(condition)                               \
  do {                                                        \
    if (!(condition)) {                                       \
      std::fprintf(stderr, "%d: %s\n", __LINE__, #condition); \
      std::abort();                                           \
    }                                                         \
  } while (false)

class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool Empty() const { return at_ >= size_; }
  uint8_t Byte() { return Empty() ? 0 : data_[at_++]; }
  uint64_t Below(uint64_t bound) { return Byte() % bound; }
  bool OneIn(uint64_t n) { return Byte() % n == 0; }
  uint64_t Word() {
    uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value = value << 8 | Byte();
    return value;
  }
  // Mostly small, now and then at an edge, now and then anything.
  uint64_t Value(uint64_t small) {
    switch (Byte() % 16) {
      case 0:
        return Word();
      case 1:
        return UINT64_MAX;
      case 2:
        return uint64_t{1} << Byte() % 64;
      case 3:
        return INT64_MAX;
      default:
        return Below(small);
    }
  }
  int64_t Signed(uint64_t small) {
    const auto value = static_cast<int64_t>(Value(small));
    return OneIn(8) ? -(value / 2) - 1 : value;
  }

 private:
  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
};

constexpr size_t kRows = 8;        // max_rows of the geometry: what `requests` must hold
constexpr size_t kTokens = 32;     // max_tokens
constexpr size_t kElements = 256;  // of every buffer

struct Buffers {
  std::vector<uint64_t> requests = std::vector<uint64_t>(kRows);
  std::vector<int64_t> values = std::vector<int64_t>(kElements);
  std::vector<std::vector<uint64_t>> structs;  // arrays of versioned structs, at any stride

  void Fill(Input& in) {
    for (auto& request : requests) request = in.Value(12);
    for (size_t i = 0; i < 64; ++i) values[i] = in.Signed(70);
    for (size_t i = 64; i < kElements; ++i) values[i] = values[i % 64];
  }
  kvguard_array Array(Input& in) const {
    kvguard_array array{};
    array.dtype = static_cast<uint32_t>(in.OneIn(16) ? in.Byte() : 1 + in.Below(2));
    const size_t width = array.dtype == KVGUARD_I64 ? 8 : 4;
    const size_t offset = in.Below(16);  // a wrong alignment, or a part of the buffer
    array.count = (kElements * 8 - offset) / width;
    if (in.OneIn(3)) array.count = in.Below(40);
    if (!in.OneIn(16)) array.data = reinterpret_cast<const char*>(values.data()) + offset / 4 * 4;
    if (in.OneIn(32)) array.data = reinterpret_cast<const char*>(values.data()) + offset;
    return array;
  }
  // Copies structs into an array whose elements have the size that a caller of any version has.
  template <typename T>
  const T* Lay(Input& in, const std::vector<T>& from) {
    size_t size = sizeof(T);
    if (in.OneIn(12)) size = in.OneIn(2) ? in.Below(256) : sizeof(T) + 8 * in.Below(4);
    auto& words = structs.emplace_back((from.size() + 1) * (size + 8) / 8 + sizeof(T), 0);
    auto* bytes = reinterpret_cast<unsigned char*>(words.data());
    for (size_t i = 0; i < from.size(); ++i) {
      T value = from[i];
      value.size = static_cast<uint32_t>(in.OneIn(64) ? in.Value(300) % 5000 : size);
      std::memcpy(bytes + i * size, &value, size < sizeof(T) ? size : sizeof(T));
      if (value.size > size) words.resize(words.size() + value.size);  // it may be read as claimed
      bytes = reinterpret_cast<unsigned char*>(words.data());
    }
    return reinterpret_cast<const T*>(words.data());
  }
};

uint32_t EventKind(Input& in) {
  constexpr uint32_t kCommon[] = {
      KVGUARD_EVENT_ADMIT,  KVGUARD_EVENT_FINISH,  KVGUARD_EVENT_PREEMPT,  KVGUARD_EVENT_ROLLBACK,
      KVGUARD_EVENT_APPEND, KVGUARD_EVENT_REPLACE, KVGUARD_EVENT_TRUNCATE, KVGUARD_EVENT_REMAP,
      KVGUARD_EVENT_ERASE,  KVGUARD_EVENT_REBASE};
  return in.OneIn(8) ? in.Byte() : kCommon[in.Below(std::size(kCommon))];
}

std::vector<kvguard_event> Events(Input& in, const Buffers& buffers) {
  std::vector<kvguard_event> events(in.Below(6));
  for (kvguard_event& event : events) {
    event.size = sizeof(event);
    event.kind = EventKind(in);
    event.request = in.Value(12);
    event.group = static_cast<uint32_t>(in.OneIn(8) ? in.Value(4) : in.Below(2));
    event.flags = in.Byte() % 8;
    event.first = in.Signed(20);
    event.count = in.Signed(20);
    event.value = in.Signed(20);
    event.num_blocks = in.OneIn(16) ? in.Value(300) : in.Below(8);
    if (event.kind == KVGUARD_EVENT_REMAP && !in.OneIn(16)) {
      event.value = 1 + static_cast<int64_t>(in.Below(3));
      event.num_blocks &= ~uint64_t{1};
    }
    if (event.num_blocks <= kElements / 2) {
      if (!in.OneIn(32)) event.blocks = buffers.values.data() + in.Below(64);
    } else if (event.num_blocks <= (1u << 26)) {
      event.num_blocks = 0;  // a count that is believed must be true
    }
    if (in.OneIn(4)) {
      event.name = reinterpret_cast<const char*>(buffers.values.data());
      event.name_size = in.OneIn(8) ? in.Value(64) : in.Below(64);
      if (event.name_size > kElements * 8 && event.name_size <= 4096) event.name_size = 1;
    }
    if (in.OneIn(16)) event.num_tokens = in.Value(3) | 1u << 27;
  }
  return events;
}

struct Record {
  Buffers buffers;
  kvguard_begin begin{};
  kvguard_plan plan{};
  kvguard_outcome outcome{};
  kvguard_end end{};
  kvguard_reset reset{};
  std::vector<kvguard_event> events;
  std::vector<kvguard_scheduled> scheduled;
  std::vector<kvguard_outcome_row> rows;
  std::vector<kvguard_group_plan> groups;
};

const void* HostileBegin(Input& in, Record& r) {
  r.events = Events(in, r.buffers);
  r.scheduled.resize(in.Below(5));
  for (kvguard_scheduled& row : r.scheduled) {
    row.request = in.Value(12);
    row.num_tokens = in.Signed(12);
    row.num_computed = in.Signed(20);
    row.num_drafts = static_cast<uint32_t>(in.OneIn(4) ? in.Value(4) : 0);
  }
  r.begin = {sizeof(r.begin), in.OneIn(32) ? 1u : 0u,         r.buffers.Lay(in, r.events),
             r.events.size(), r.buffers.Lay(in, r.scheduled), r.scheduled.size()};
  return &r.begin;
}

const void* HostilePlan(Input& in, Record& r) {
  r.groups.resize(in.Below(4));
  for (kvguard_group_plan& group : r.groups) {
    group.group = static_cast<uint32_t>(in.Below(3));
    group.encoding = in.OneIn(8) ? in.Byte() : uint32_t{KVGUARD_READ_TABLE};
    group.flags = in.OneIn(32) ? 1u : 0u;
    group.slots = r.buffers.Array(in);
    kvguard_read_table& table = group.reads.table;
    const kvguard_array data = r.buffers.Array(in);
    table.data = data.data;
    table.dtype = data.dtype;
    table.row_stride = in.Below(13);
    table.columns = in.OneIn(16) ? in.Value(20) : in.Below(table.row_stride + 1);
    table.rows = in.Below(18);  // 17 rows of 12 entries of 8 bytes: inside the buffer
    if (in.OneIn(32)) table.rows = (1u << 20) + 1 + in.Word() % (uint64_t{1} << 40);
    if (in.OneIn(4)) table.seq_lens = r.buffers.Array(in);
    if (in.OneIn(4)) table.row_columns = r.buffers.Array(in);
    if (in.OneIn(3)) {
      group.encoding = in.OneIn(2) ? KVGUARD_READ_CSR : KVGUARD_READ_FLAT;
      const kvguard_array offsets = r.buffers.Array(in);
      const kvguard_array entries = r.buffers.Array(in);
      if (group.encoding == KVGUARD_READ_CSR) {
        group.reads.csr = {offsets, entries, in.OneIn(2) ? r.buffers.Array(in) : kvguard_array{}};
      } else {
        group.reads.flat = {entries, offsets, in.Signed(70)};
      }
    } else if (in.OneIn(4)) {
      group.encoding = KVGUARD_READ_STATE;
      group.reads.state = {r.buffers.Array(in), r.buffers.Array(in), r.buffers.Array(in)};
      if (in.OneIn(2)) group.reads.state.init.dtype = KVGUARD_U8;
    }
  }
  kvguard_plan& plan = r.plan;
  plan.size = sizeof(plan);
  plan.pass = in.OneIn(16)  ? in.Byte()
              : in.OneIn(4) ? uint32_t{KVGUARD_PASS_DUMMY}
              : in.OneIn(2) ? static_cast<uint32_t>(1 + in.Below(4))
                            : uint32_t{KVGUARD_PASS_TARGET};
  plan.pass_index = static_cast<uint32_t>(in.OneIn(16) ? in.Word() : in.Below(4));
  plan.stage = static_cast<uint32_t>(in.OneIn(16) ? in.Byte() : 1 + in.Below(2));
  plan.flags = in.OneIn(32) ? 1u : 0u;
  plan.num_rows = in.Value(kRows + 1);
  plan.padded_rows = plan.num_rows + (in.OneIn(4) ? in.Value(4) : 0);
  plan.num_tokens = in.Value(kTokens + 1);
  plan.padded_tokens = plan.num_tokens + (in.OneIn(4) ? in.Value(8) : 0);
  if (!in.OneIn(32)) plan.requests = r.buffers.requests.data();
  plan.query_start = r.buffers.Array(in);
  plan.seq_lens = r.buffers.Array(in);
  if (in.OneIn(2)) plan.positions = r.buffers.Array(in);
  if (in.OneIn(4)) plan.num_computed = r.buffers.Array(in);
  plan.num_groups = static_cast<uint32_t>(r.groups.size());
  plan.groups = r.buffers.Lay(in, r.groups);
  return &plan;
}

const void* HostileOutcome(Input& in, Record& r) {
  r.events = Events(in, r.buffers);
  r.rows.resize(in.Below(4));
  for (kvguard_outcome_row& row : r.rows) {
    row.request = in.Value(12);
    row.num_sampled = in.Byte();
    row.num_rejected = static_cast<uint32_t>(in.Value(4));
    if (in.OneIn(8)) row.num_tokens = in.Value(4);
  }
  r.outcome = {sizeof(r.outcome), in.OneIn(32) ? 1u : 0u,      r.buffers.Lay(in, r.rows),
               r.rows.size(),     r.buffers.Lay(in, r.events), r.events.size()};
  return &r.outcome;
}

class Life {
 public:
  // moves: blocks and positions do.
  Life(Input& in, const ScenarioOptions& options, bool moves)
      : in_(in), a_(options), b_(options), moves_(moves) {}

  void Run() {
    while (!in_.Empty()) {
      switch (in_.Byte() % 8) {
        case 0:
        case 1:
          HostileRecord();
          break;
        case 2:
          Snapshots();
          break;
        case 3:
          Answers();
          break;
        default:
          Step();
          break;
      }
      Compare();
    }
    Answers();
  }

 private:
  void HostileRecord() {
    Record r;
    r.buffers.Fill(in_);
    const auto kind = static_cast<uint32_t>(in_.OneIn(32) ? in_.Byte() : 1 + in_.Below(5));
    const void* body = nullptr;
    switch (kind) {
      case KVGUARD_RECORD_BEGIN:
        body = HostileBegin(in_, r);
        break;
      case KVGUARD_RECORD_PLAN:
        body = HostilePlan(in_, r);
        break;
      case KVGUARD_RECORD_OUTCOME:
        body = HostileOutcome(in_, r);
        break;
      case KVGUARD_RECORD_END:
        r.end = {sizeof(r.end), static_cast<uint32_t>(in_.Below(5))};
        body = &r.end;
        break;
      default:
        r.reset = {sizeof(r.reset), static_cast<uint32_t>(in_.Below(6))};
        body = &r.reset;
        break;
    }
    if (in_.OneIn(64)) body = nullptr;
    const uint64_t step = in_.OneIn(16) ? in_.Value(100) : a_.step() + in_.Below(3);
    const kvguard_status status = a_.Feed(kind, step, body);
    KVGUARD_MUST(b_.Feed(kind, step, body) == status);
    KVGUARD_MUST(status == KVGUARD_OK || !a_.error().empty());
    if (kind == KVGUARD_RECORD_BEGIN && step > a_.step() && step < 1'000'000) {
      a_.SkipTo(step + 1);
      b_.SkipTo(step + 1);
    }
  }

  // What an engine does, with up to three values changed.
  void Step() {
    for (Scenario* s : {&a_, &b_}) Decide(*s);
    const auto begin = a_.Begin();
    KVGUARD_MUST(b_.Begin() == begin);
    ScenarioPlan plan = a_.RightPlan();
    for (uint64_t n = in_.Below(4); n > 0; --n) Spoil(plan);
    a_.Plan(plan);
    b_.Plan(plan);
    const uint32_t flags = in_.OneIn(16) ? static_cast<uint32_t>(in_.Below(4)) : 0;
    a_.End(flags);
    b_.End(flags);
    if (in_.OneIn(3) && !names_.empty()) {
      const std::string& name = names_[in_.Below(names_.size())];
      const auto rejected = static_cast<uint32_t>(in_.Below(5));
      const uint64_t step = a_.step() - in_.Below(2);
      KVGUARD_MUST(a_.Outcome(step, name, 1, rejected) == b_.Outcome(step, name, 1, rejected));
    }
    decided_.clear();
  }

  // The first scenario's decisions are drawn, the second's are the same.
  void Decide(Scenario& s) {
    if (&s == &a_) Draw();
    for (const auto& decide : decided_) decide(s);
  }

  void Draw() {
    if (!names_.empty() && in_.OneIn(4)) {
      const size_t i = in_.Below(names_.size());
      const std::string name = names_[i];
      names_.erase(names_.begin() + static_cast<std::ptrdiff_t>(i));
      decided_.push_back([name](Scenario& s) { s.Finish(name); });
    }
    if (names_.size() < 6 && in_.OneIn(2)) {
      const std::string name(1, static_cast<char>('a' + next_++ % 26));
      std::vector<int64_t> blocks(1 + in_.Below(4));
      for (int64_t& block : blocks) block = static_cast<int64_t>(in_.Below(32));
      const auto computed = static_cast<int64_t>(in_.OneIn(3) ? in_.Below(9) : 0);
      bool known = false;
      for (const std::string& n : names_) known = known || n == name;
      if (!known) {
        names_.push_back(name);
        decided_.push_back([=](Scenario& s) { s.Admit(name, {blocks}, computed); });
      }
    }
    if (moves_ && in_.OneIn(3)) {
      const auto reason = static_cast<uint32_t>(1 + in_.Below(3));
      std::vector<int64_t> pairs(2 * (1 + in_.Below(3)));
      for (int64_t& block : pairs) block = static_cast<int64_t>(in_.Below(33));
      decided_.push_back([=](Scenario& s) { s.Remap(reason, pairs); });
    }
    for (const std::string& name : names_) {
      if (moves_ && in_.OneIn(3)) {
        const auto first = static_cast<int64_t>(in_.Below(16));
        const auto count = static_cast<int64_t>(in_.Below(16));
        const int64_t by = static_cast<int64_t>(in_.Below(16)) - 8;
        decided_.push_back([=](Scenario& s) {
          by == 0 ? s.Erase(name, first, count) : s.Rebase(name, first, count, by);
        });
      }
      const uint64_t what = in_.Below(8);
      if (what == 0) continue;
      if (what == 1) {
        const auto block = static_cast<int64_t>(in_.Below(33));
        decided_.push_back([=](Scenario& s) { s.Append(name, {block}); });
      }
      const auto tokens = static_cast<int64_t>(1 + in_.Below(4));
      const auto drafts =
          static_cast<uint32_t>(in_.OneIn(4) ? in_.Below(static_cast<uint64_t>(tokens)) : 0);
      const int64_t counted = in_.OneIn(8) ? static_cast<int64_t>(in_.Below(20)) : -1;
      decided_.push_back([=](Scenario& s) { s.Schedule(name, tokens, drafts, counted); });
    }
  }

  void Spoil(ScenarioPlan& plan) {
    std::vector<int64_t>* arrays[] = {
        &plan.query_start,     &plan.seq_lens,         &plan.positions,
        &plan.groups[0].table, &plan.groups[0].slots,  &plan.groups.back().slots,
        &plan.groups[0].list,  &plan.groups[0].starts, &plan.groups[0].last_page};
    if (in_.OneIn(4)) plan.pass = static_cast<uint32_t>(1 + in_.Below(4));
    if (in_.OneIn(4)) plan.pass_index = static_cast<uint32_t>(in_.Below(3));
    for (auto* states : {&plan.groups.back().in, &plan.groups.back().out}) {
      if (!states->empty() && in_.OneIn(2)) (*states)[in_.Byte() % states->size()] = in_.Signed(40);
    }
    auto& array = *arrays[in_.Below(std::size(arrays))];
    if (!array.empty()) array[in_.Byte() % array.size()] = in_.Signed(130);
    if (in_.OneIn(8)) plan.Pad(in_.Below(2), in_.Below(4));
    if (in_.OneIn(16)) plan.stage = KVGUARD_STAGE_FINAL;
  }

  void Snapshots() {
    std::vector<uint8_t> bytes = a_.Snapshot();
    KVGUARD_MUST(bytes == b_.Snapshot());
    if (bytes.empty()) return;  // a step is open
    if (in_.OneIn(2)) {
      KVGUARD_MUST(a_.Restore(bytes) == KVGUARD_OK);
      KVGUARD_MUST(a_.Snapshot() == bytes);
      return;
    }
    bytes[in_.Word() % bytes.size()] ^= static_cast<uint8_t>(1 + in_.Below(255));
    KVGUARD_MUST(a_.Restore(bytes) != KVGUARD_OK);
  }

  void Answers() {
    KVGUARD_MUST(a_.Report() == b_.Report());
    KVGUARD_MUST(a_.Report().find("(null)") == std::string::npos);
    size_t count = 0;
    KVGUARD_MUST(kvguard_coverage(a_.guard(), nullptr, 0, &count, nullptr) == KVGUARD_OK);
    KVGUARD_MUST(kvguard_gaps(a_.guard(), nullptr, 0, &count, nullptr) == KVGUARD_OK);
    kvguard_finding finding{};
    auto* bytes = reinterpret_cast<unsigned char*>(&finding);
    for (size_t i = 4; i < sizeof(finding); ++i) bytes[i] = in_.Byte();
    finding.size = sizeof(finding);
    KVGUARD_MUST(!a_.Explain(finding).empty());
  }

  void Compare() {
    kvguard_verdict v{};
    kvguard_verdict w{};
    v.size = w.size = sizeof(v);
    KVGUARD_MUST(kvguard_verdict_now(a_.guard(), &v, nullptr) == KVGUARD_OK);
    KVGUARD_MUST(kvguard_verdict_now(b_.guard(), &w, nullptr) == KVGUARD_OK);
    KVGUARD_MUST(std::memcmp(&v, &w, sizeof(v)) == 0);
    KVGUARD_MUST((v.proofs > 0) == (v.verdict == KVGUARD_VIOLATED));
    KVGUARD_MUST(v.proofs > 0 || v.must_raise == 0);
    KVGUARD_MUST(v.step_gaps == 0 || v.verdict != KVGUARD_CLEAN);
    KVGUARD_MUST(v.verdict != KVGUARD_CLEAN || v.steps_judged > 0);
    KVGUARD_MUST(v.steps_judged <= v.steps);
    KVGUARD_MUST(a_.Findings().size() <= 24);
  }

  Input& in_;
  Scenario a_;
  Scenario b_;
  bool moves_;
  std::vector<std::function<void(Scenario&)>> decided_;
  std::vector<std::string> names_;
  int next_ = 0;
};

}  // namespace

// Lists in place of tables, rings in place of whole rows, single cells in place of blocks.
void DrawReads(Input& in, ScenarioOptions* options) {
  const uint8_t reads = in.Byte();
  const bool cells = (reads & 64) != 0;
  if (cells) options->engine_flags &= ~uint32_t{KVGUARD_ENGINE_CONNECTOR};
  for (size_t g = 0; g < options->groups.size(); ++g) {
    kvguard::audit::ScenarioGroup& group = options->groups[g];
    const unsigned what = cells ? 4u : reads >> 3 * g & 7;
    if ((reads & 128) != 0) group.write_trash = 130;
    if (what == 0 || (group.kind != KVGUARD_GROUP_FULL && !cells)) continue;
    if (what >= 6) {
      group.kind = KVGUARD_GROUP_RING;
      group.window = 1u + in.Byte() % 16;
      options->max_drafts = 0;
    }
    if (what < 4) {
      constexpr uint32_t kUnits[] = {KVGUARD_UNIT_BLOCK, KVGUARD_UNIT_KERNEL_BLOCK,
                                     KVGUARD_UNIT_SLOT};
      group.encoding = KVGUARD_READ_CSR;
      group.table_unit = kUnits[what - 1];
    } else if (what != 6) {
      group.encoding = KVGUARD_READ_FLAT;
      group.table_unit = KVGUARD_UNIT_SLOT;
      group.sentinels = what == 5;
    }
    if (!cells) continue;
    group.kind = KVGUARD_GROUP_FULL;
    group.window = group.sink = group.retained = 0;
    group.block_size = group.kernel_block_size = 1;
    group.pool_kind = KVGUARD_POOL_CELLS;
    group.sentinels = (reads & 1) != 0;
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in(data, size);
  ScenarioOptions options;
  options.num_blocks = 32;
  options.columns = 8;
  options.max_rows = kRows;
  options.max_tokens = kTokens;
  options.max_drafts = 3;
  options.config.max_findings_per_step = 8;
  options.config.max_findings = 24;
  options.config.history_steps = 4;
  options.config.history_bytes = 2000;
  const uint8_t shape = in.Byte();
  if ((shape & 1) != 0) options.engine_flags |= KVGUARD_ENGINE_ASYNC;
  if ((shape & 2) != 0) options.engine_flags |= KVGUARD_ENGINE_CONNECTOR;
  if ((shape & 4) != 0) options.groups = {{8, 4, KVGUARD_UNIT_KERNEL_BLOCK, 0}};
  if ((shape & 8) != 0)
    options.groups.push_back({4, 4, KVGUARD_UNIT_BLOCK, (shape & 16) != 0 ? 1u : 0u});
  if ((shape & 32) != 0) options.null_block = KVGUARD_NONE;
  if ((shape & 64) != 0) options.pad_slot = 3;
  options.latch = shape >> 7;
  const uint8_t forgets = in.Byte();
  for (size_t g = 0; g < options.groups.size(); ++g) {
    if ((forgets >> g & 1) == 0) continue;
    options.groups[g].kind = (forgets & 4) != 0 ? KVGUARD_GROUP_CHUNKED : KVGUARD_GROUP_WINDOW;
    options.groups[g].window = 1u + (forgets >> 4);
    if ((forgets & 12) == 8) options.groups[g].sink = options.groups[g].retained = 3;
  }
  // One more group, of a kind that has no tokens of the request's.
  const uint8_t other = in.Byte();
  const bool moves = (other & 64) != 0;
  if (moves) DrawReads(in, &options);
  const bool cells = options.groups[0].pool_kind == KVGUARD_POOL_CELLS;
  if ((other & 3) != 0 && !cells) {
    kvguard::audit::ScenarioGroup group;
    group.kind = (other & 3) == 1   ? KVGUARD_GROUP_CROSS
                 : (other & 3) == 2 ? KVGUARD_GROUP_STATE
                                    : KVGUARD_GROUP_FULL;
    group.pool = (other & 4) != 0 || (other & 3) == 3 ? 2 : 0;
    group.host = (other & 3) == 3;
    if (group.kind == KVGUARD_GROUP_STATE) {
      group.state_mode = (other >> 4) % 3u;
      group.shows_states = (other & 8) == 0;
      if (group.state_mode == KVGUARD_STATE_ALL) options.max_drafts = 0;
    }
    options.groups.push_back(group);
  }
  if ((other & 128) != 0) options.engine_flags |= KVGUARD_ENGINE_FILLS_TOLD;
  Life(in, options, moves).Run();
  return 0;
}
