// SPDX-License-Identifier: Apache-2.0
#include "tests/bugs/bug_test.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace kvguard::tests {
namespace {

using audit::ScenarioGroup;
using audit::ScenarioOptions;

// What stands between the first pair of quotes.
std::string Quoted(const std::string& line) {
  const size_t first = line.find('"');
  const size_t last = line.find('"', first + 1);
  return last == std::string::npos ? "" : line.substr(first + 1, last - first - 1);
}

bool StartsWith(const std::string& line, const char* prefix) { return line.rfind(prefix, 0) == 0; }

// "key=value" fields of a `first:` line, and the code by the name of "code".
std::map<std::string, std::string> FieldsOf(const std::string& first) {
  std::map<std::string, std::string> fields;
  std::istringstream words(first);
  for (std::string word; words >> word;) {
    const size_t equal = word.find('=');
    if (equal != std::string::npos) {
      fields[word.substr(0, equal)] = word.substr(equal + 1);
    } else if (StartsWith(word, "KV")) {
      fields["code"] = word;
    }
  }
  return fields;
}

std::string CodeName(uint32_t code) {
  std::string digits = std::to_string(code);
  return "KV" + std::string(4 - std::min<size_t>(4, digits.size()), '0') + digits;
}

// A finding in the words of the table, field by field as `expected` asks; values that the table
// leaves at "none" are not compared.
std::map<std::string, std::string> InTableWords(
    const Play& p, const kvguard_finding& finding,
    const std::map<std::string, std::string>& expected) {
  std::map<std::string, std::string> fields;
  const auto number = [&](const char* field, int64_t value) {
    if (expected.at(field) == "none") {
      fields[field] = "none";
    } else {
      fields[field] = std::to_string(value);
    }
  };
  const auto request = [&](const char* field, uint64_t key) {
    const std::string& name = expected.at(field);
    const bool same = name == "none" ? key == 0 : p.s.Key(name) == key;
    fields[field] = same ? name : "key " + std::to_string(key);
  };
  const auto pass = [&] {
    std::string name = kvguard_name("pass", finding.pass);
    if (finding.pass == KVGUARD_PASS_DRAFT || finding.pass == KVGUARD_PASS_MICRO_BATCH)
      name.append(":").append(std::to_string(finding.pass_index));
    return name;
  };
  fields["code"] = CodeName(finding.code);
  fields["at"] = p.first_at();
  fields["step"] = std::to_string(finding.step);
  fields["group"] = finding.group == KVGUARD_ALL_GROUPS ? "all" : std::to_string(finding.group);
  request("request", finding.request);
  fields["pos"] = finding.pos == KVGUARD_NONE ? "none" : std::to_string(finding.pos);
  number("expected", finding.expected);
  number("observed", finding.observed);
  if (expected.count("victim") != 0) request("victim", finding.victim);
  if (expected.count("rank") != 0) fields["rank"] = std::to_string(finding.rank);
  if (expected.count("row") != 0) fields["row"] = std::to_string(finding.row);
  if (expected.count("stage") != 0) fields["stage"] = kvguard_name("stage", finding.stage);
  if (expected.count("pass") != 0) fields["pass"] = pass();
  return fields;
}

}  // namespace

Ints Range(int64_t first, int64_t last) {
  Ints values;
  for (int64_t value = first; value <= last; ++value) values.push_back(value);
  return values;
}

Ints Seq(char letter, int64_t first, int64_t last) {
  const int64_t base = (letter - 'a' + 1) * 100'000;
  return Range(base + first, base + last);
}

Ints operator+(Ints left, const Ints& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

void HideGroup1(ScenarioPlan& plan) { plan.groups[1].present = false; }

Geometry Geometry::Full(uint32_t block, uint64_t pool) {
  Geometry g;
  g.options_.groups.clear();
  g.options_.num_blocks = g.options_.columns = pool;
  g.options_.engine_flags = 0;
  g.options_.max_tokens = 8192;
  g.options_.max_model_len = 8192;
  return g.And(KVGUARD_GROUP_FULL, 0, block, 0);
}

Geometry Geometry::Window(uint32_t window, uint32_t block, uint64_t pool) {
  Geometry g = Full(block, pool);
  g.options_.groups[0].kind = KVGUARD_GROUP_WINDOW;
  g.options_.groups[0].window = window;
  return g;
}

Geometry Geometry::Chunked(uint32_t chunk, uint32_t block, uint64_t pool) {
  Geometry g = Window(chunk, block, pool);
  g.options_.groups[0].kind = KVGUARD_GROUP_CHUNKED;
  return g;
}

Geometry Geometry::Ring(uint32_t window, uint32_t block, uint64_t pool) {
  Geometry g = Window(window, block, pool);
  g.options_.groups[0].kind = KVGUARD_GROUP_RING;
  return g;
}

Geometry Geometry::Cells(uint64_t pool) {
  Geometry g = Full(1, pool).NoNull().ModelLen(1 << 15).Lists(kFlat, KVGUARD_UNIT_SLOT);
  g.options_.groups[0].pool_kind = KVGUARD_POOL_CELLS;
  return g;
}

Geometry& Geometry::Lists(uint32_t encoding, uint32_t unit) {
  options_.groups.back().encoding = encoding;
  options_.groups.back().table_unit = unit;
  return *this;
}

Geometry& Geometry::And(uint32_t kind, uint32_t window, uint32_t block, uint32_t pool) {
  ScenarioGroup group;
  group.kind = kind;
  group.window = window;
  group.block_size = group.kernel_block_size = block;
  group.pool = pool;
  options_.groups.push_back(group);
  return *this;
}

Geometry& Geometry::State(uint32_t mode, uint32_t block, uint32_t pool) {
  And(KVGUARD_GROUP_STATE, 0, block, pool);
  options_.groups.back().state_mode = mode;
  return *this;
}

Geometry& Geometry::Kernel(uint32_t tokens, uint32_t unit) {
  options_.groups.back().kernel_block_size = tokens;
  options_.groups.back().table_unit = unit;
  return *this;
}

Geometry& Geometry::Flags(uint32_t flags) {
  options_.engine_flags = flags;
  return *this;
}

Geometry& Geometry::Host() {
  options_.groups.back().host = true;
  return *this;
}

Geometry& Geometry::Ranks(uint32_t rank, uint32_t size, uint32_t interleave) {
  options_.dcp_rank = rank;
  options_.dcp_size = size;
  options_.interleave = interleave;
  return *this;
}

Geometry& Geometry::Prefill(uint32_t size, uint32_t layout) {
  options_.pcp_size = size;
  options_.pcp_layout = layout;
  return *this;
}

Geometry& Geometry::Replicated() {
  options_.groups.back().flags = KVGUARD_GROUP_REPLICATED;
  return *this;
}

Geometry& Geometry::NoNull() {
  options_.null_block = KVGUARD_NONE;
  options_.group_flags = 0;
  return *this;
}

Geometry& Geometry::Columns(uint64_t columns) {
  options_.columns = columns;
  return *this;
}

Geometry& Geometry::ModelLen(uint64_t tokens) {
  options_.max_model_len = options_.max_tokens = tokens;
  return *this;
}

Geometry& Geometry::Drafts(uint32_t drafts) {
  options_.max_drafts = drafts;
  return *this;
}

Geometry& Geometry::NarrowSlots() {
  options_.narrow_slots = true;
  return *this;
}

Geometry& Geometry::StandingGap(const std::string& name) {
  options_.standing_gaps.push_back(name);
  return *this;
}

Play::Play(const ScenarioOptions& options, bool is_wrong, size_t right_variant)
    : s(options), wrong(is_wrong), right_(right_variant) {}

size_t Play::RightOf(size_t count) {
  rights_ = count;
  return right_;
}

void Play::Fed(const char* what) {
  EXPECT_EQ(s.error(), "") << "a record of step " << s.step() << " was refused";
  if (first_at_.empty() && !s.Findings().empty()) first_at_ = what;
}

void Play::Begin(const std::vector<Row>& rows) {
  for (const Row& row : rows) s.Schedule(row.name, row.tokens, row.drafts, row.computed);
  s.Begin();
  rows_ = rows;
  for (const Row& row : rows) drafts_[s.step()][row.name] = row.drafts;
  Fed("begin");
}

void Play::Show(const PlanEdit& edit, uint32_t stage) {
  ScenarioPlan plan = s.RightPlan();
  plan.stage = stage;
  if (edit) edit(plan);
  s.Plan(plan);
  Fed("plan");
}

void Play::Pass(const ScenarioPlan& plan) {
  s.Plan(plan);
  Fed("plan");
}

void Play::End() {
  s.End();
  Fed("end");
}

void Play::Told(uint64_t step, const std::string& name, uint32_t rejected) {
  s.Outcome(step, name, 1 + drafts_.at(step).at(name) - rejected, rejected);
  Fed("outcome");
}

void Play::Told(uint32_t kind, const std::string& name, const Ints& blocks, int64_t id,
                uint32_t group) {
  kvguard_event event{};
  event.size = sizeof(event);
  event.kind = kind;
  event.request = name.empty() ? 0 : s.Key(name);
  event.group = group;
  event.value = id;
  event.blocks = blocks.empty() ? nullptr : blocks.data();
  event.num_blocks = blocks.size();
  kvguard_outcome outcome{};
  outcome.size = sizeof(outcome);
  outcome.events = &event;
  outcome.num_events = 1;
  s.Feed(KVGUARD_RECORD_OUTCOME, s.step(), &outcome);
  Fed("outcome");
}

void Play::Dummy(const Ints& slots, uint32_t stage) {
  ScenarioPlan plan;
  plan.pass = KVGUARD_PASS_DUMMY;
  plan.stage = stage;
  plan.query_start = {0};
  plan.padded_tokens = slots.size();
  plan.groups.resize(1);
  plan.groups[0].slots = slots;
  plan.groups[0].table_present = false;
  s.Plan(plan);
  Fed("plan");
}

void Play::Run(const std::vector<Row>& rows, const PlanEdit& planned, const PlanEdit& final_edit) {
  Begin(rows);
  if (!rows.empty()) Show(planned);
  if (final_edit) Show(final_edit, KVGUARD_STAGE_FINAL);
  End();
  for (const Row& row : rows) Told(s.step(), row.name);
}

const std::map<std::string, TableEntry>& BugTable() {
  static const std::map<std::string, TableEntry> table = [] {
    std::map<std::string, TableEntry> entries;
    const std::string folder = std::string(KVGUARD_SOURCE_DIR) + "/tests/bugs";
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      if (file.path().extension() != ".toml") continue;
      std::ifstream in(file.path());
      TableEntry* entry = nullptr;
      for (std::string line; std::getline(in, line);) {
        if (StartsWith(line, "id = ")) {
          const auto [place, added] = entries.emplace(Quoted(line), TableEntry{});
          EXPECT_TRUE(added) << line;
          entry = &place->second;
          if (file.path().filename() == "traps.toml") entry->answer = "trap";
        }
        if (entry == nullptr) continue;
        if (StartsWith(line, "answer = ")) entry->answer = Quoted(line);
        if (StartsWith(line, "codes = ")) entry->code = Quoted(line);
        if (StartsWith(line, "url = ")) entry->url = Quoted(line);
        if (StartsWith(line, "first: ")) entry->first = line;
      }
    }
    return entries;
  }();
  return table;
}

void CheckBug(const std::string& id, const std::function<Geometry(bool wrong)>& geometry,
              const std::function<void(Play&)>& play) {
  ASSERT_EQ(BugTable().count(id), 1u) << id << " is not in the table";
  const TableEntry& entry = BugTable().at(id);
  if (entry.answer == "fires") {
    SCOPED_TRACE("as it was");
    const auto expected = FieldsOf(entry.first);
    ASSERT_FALSE(expected.empty()) << id << ": no line `first:`";
    Play p(geometry(true).options(), true, 0);
    play(p);
    const auto findings = p.s.Findings();
    ASSERT_FALSE(findings.empty()) << "nothing was found";
    EXPECT_EQ(CodeName(findings[0].code), entry.code) << p.s.Report();
    EXPECT_EQ(findings[0].grade, static_cast<uint32_t>(KVGUARD_GRADE_PROOF)) << p.s.Report();
    auto found = InTableWords(p, findings[0], expected);
    for (const auto& [field, value] : expected) EXPECT_EQ(found[field], value) << field;
    if (testing::Test::HasFailure()) ADD_FAILURE() << p.s.Report();
    EXPECT_EQ(p.s.verdict().verdict, static_cast<uint32_t>(KVGUARD_VIOLATED));
  }
  for (size_t right = 0, rights = 1; right < rights; ++right) {
    SCOPED_TRACE("as it should be, " + std::to_string(right));
    Play p(geometry(false).options(), false, right);
    play(p);
    rights = p.rights();
    EXPECT_EQ(p.s.Report(), "");
    EXPECT_EQ(p.s.verdict().verdict, static_cast<uint32_t>(KVGUARD_CLEAN));
  }
}

}  // namespace kvguard::tests
