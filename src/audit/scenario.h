// SPDX-License-Identifier: Apache-2.0
// A hand-driven engine for tests and the self-test: it says what the scheduler decided and, unless
// told otherwise, plans exactly that. Only the public header is used to talk to the guard.
#ifndef KVGUARD_SRC_AUDIT_SCENARIO_H_
#define KVGUARD_SRC_AUDIT_SCENARIO_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kvguard/kvguard.h"

namespace kvguard::audit {

struct ScenarioGroup {
  uint32_t block_size = 4;
  uint32_t kernel_block_size = 4;
  uint32_t table_unit = KVGUARD_UNIT_BLOCK;
  uint32_t pool = 0;
  uint32_t kind = KVGUARD_GROUP_FULL;
  uint32_t window = 0;
  uint32_t sink = 0;
  uint32_t retained = 0;
  uint32_t flags = 0;  // besides those of the options
  uint32_t state_mode = 0;
  bool host = false;         // its pool is one of the host
  bool shows_states = true;  // groups of states: their states, not their table
  // CSR and FLAT: lists in place of tables, in table_unit; 0: what the kind asks for.
  uint32_t encoding = 0;
  bool sentinels = false;              // FLAT: tokens of the step stand as -1 (in rings always)
  int64_t write_trash = KVGUARD_NONE;  // of its pool
  uint32_t pool_kind = KVGUARD_POOL_PAGES;
  uint32_t index_scale = 1;
  uint32_t token_stride = 1;
  int64_t slot_base = 0;
};

struct ScenarioOptions {
  std::vector<ScenarioGroup> groups = std::vector<ScenarioGroup>(1);
  uint64_t num_blocks = 64;
  uint64_t columns = 16;  // of a table row, in blocks
  uint32_t engine_flags = KVGUARD_ENGINE_PREFIX_CACHE;
  uint32_t max_drafts = 0;
  uint64_t max_rows = 64;
  uint64_t max_tokens = 1024;
  uint64_t max_model_len = 1024;
  int64_t null_block = 0;
  int64_t pad_slot = -1;
  uint32_t group_flags = KVGUARD_GROUP_PAD_ROWS_NULL;
  uint32_t action = KVGUARD_ACTION_RAISE;
  uint32_t latch = 0;
  uint32_t dcp_rank = 0;
  uint32_t dcp_size = 1;
  uint32_t interleave = 1;
  uint32_t pcp_size = 1;
  uint32_t pcp_layout = 0;
  bool wide_tables = false;   // int64 instead of int32
  bool narrow_slots = false;  // int32 instead of int64
  std::vector<std::string> standing_gaps;
  kvguard_config config{};
  // Where the guard cannot be made: false ends the process, for a broken fixture is a broken test;
  // true leaves guard() null and the reason in error(), for who runs in somebody else's process.
  bool may_fail = false;
};

// A plan's buffers; the test may change anything before they are fed.
struct ScenarioPlan {
  std::vector<uint64_t> requests;
  std::vector<int64_t> query_start;
  std::vector<int64_t> seq_lens;
  std::vector<int64_t> positions;
  std::vector<int64_t> num_computed;  // empty: not presented
  bool positions_present = true;
  uint64_t padded_rows = 0;
  uint64_t padded_tokens = 0;
  struct Group {
    std::vector<int64_t> table;        // padded_rows x columns
    std::vector<int64_t> slots;        // padded_tokens
    std::vector<int64_t> row_columns;  // empty: not presented
    std::vector<int64_t> seq_lens;     // empty: not presented
    uint64_t columns = 0;
    bool present = true;
    // Groups of states, padded_rows each; shown in place of the table where any is not empty.
    std::vector<int64_t> in;
    std::vector<int64_t> out;
    std::vector<uint8_t> init;
    // Groups that read by lists; shown in place of the table where starts is not empty.
    std::vector<int64_t> list;
    std::vector<int64_t> starts;
    int64_t sentinel = KVGUARD_NONE;
    std::vector<int64_t> last_page;  // empty: not presented
    bool table_present = true;
    bool slots_present = true;
  };
  std::vector<Group> groups;
  uint32_t pass = KVGUARD_PASS_TARGET;
  uint32_t pass_index = 0;
  uint32_t stage = KVGUARD_STAGE_PLANNED;

  int64_t& Table(size_t group, size_t row, size_t column) {
    return groups[group].table[row * groups[group].columns + column];
  }
  // Pads as a captured graph does: null rows, zero lengths, pad slots.
  void Pad(uint64_t rows, uint64_t tokens, int64_t pad_slot = -1);
};

// The plan as the guard gets it, for tests of what only a broken engine would send. Pointers are
// those of the ScenarioPlan and live as long as the call.
using RawEdit = std::function<void(kvguard_plan& plan, kvguard_group_plan* groups)>;

class Scenario {
 public:
  explicit Scenario(ScenarioOptions options = {});
  ~Scenario();
  Scenario(const Scenario&) = delete;
  Scenario& operator=(const Scenario&) = delete;

  // --- what the scheduler decides for the next step ---
  // blocks: per group; a single list serves every group.
  Scenario& Admit(const std::string& name, std::vector<std::vector<int64_t>> blocks,
                  int64_t computed = 0);
  Scenario& Append(const std::string& name, std::vector<int64_t> blocks, uint32_t group = 0);
  Scenario& Replace(const std::string& name, std::vector<int64_t> blocks, uint32_t group = 0);
  Scenario& Truncate(const std::string& name, int64_t columns, uint32_t group = 0);
  Scenario& Rollback(const std::string& name, int64_t tokens);
  // pairs: (old, new). Rows follow, as the engine's own do.
  Scenario& Remap(uint32_t reason, std::vector<int64_t> pairs, uint32_t group = 0);
  // Cells.
  Scenario& Erase(const std::string& name, int64_t first, int64_t count);
  Scenario& Rebase(const std::string& name, int64_t first, int64_t count, int64_t by);
  Scenario& Finish(const std::string& name);
  Scenario& Preempt(const std::string& name);
  // The count that the scheduler states is the engine's own unless given.
  Scenario& Schedule(const std::string& name, int64_t tokens, uint32_t drafts = 0,
                     int64_t computed = -1);
  Scenario& Event(const kvguard_event& event);
  // An event with blocks, for a request or (name "") for none. value: the id of a transfer.
  Scenario& Blocks(uint32_t kind, const std::string& name, std::vector<int64_t> blocks,
                   int64_t value = 0, int64_t first = 0, uint32_t group = 0);
  // The token ids of the request that was admitted last, and what marks them.
  Scenario& Tokens(std::vector<int64_t> tokens);
  Scenario& Domain(uint32_t kind, int64_t value, int64_t first, int64_t count);
  // A key for a request that is admitted later.
  Scenario& Expect(const std::string& name);
  Scenario& Gap(const std::string& name, uint32_t flags = 0);

  // --- feeding ---
  kvguard_status Begin();
  // The right plan of the open step.
  ScenarioPlan RightPlan() const;
  kvguard_status Plan(const ScenarioPlan& plan, const RawEdit& edit = nullptr);
  kvguard_status End(uint32_t flags = 0);
  kvguard_status Outcome(uint64_t step, const std::string& name, uint32_t sampled,
                         uint32_t rejected, const std::vector<int64_t>& tokens = {});
  kvguard_status Reset(uint32_t reason = KVGUARD_RESET_ARM);
  // Begin, the right plan after `edit`, End.
  kvguard_verdict Step(const std::function<void(ScenarioPlan&)>& edit = nullptr);
  // Any record, as it is. `body` is the struct that `kind` says.
  kvguard_status Feed(uint32_t kind, uint64_t step, const void* body);

  // --- answers ---
  kvguard_guard* guard() const { return guard_; }
  const kvguard_verdict& verdict() const { return verdict_; }
  const std::string& error() const { return error_text_; }
  uint64_t step() const { return step_; }
  // Takes over another scenario's engine as it is between two steps; the guard stays its own.
  void Follow(const Scenario& other);
  void SkipTo(uint64_t step) { step_ = step - 1; }  // the next BEGIN's
  uint64_t Key(const std::string& name) const;
  std::vector<kvguard_finding> Findings(uint64_t first = 0) const;
  // Codes of all findings, in order.
  std::vector<uint32_t> Codes() const;
  std::string Explain(const kvguard_finding& finding) const;
  // Everything that was found, as it is printed: equal runs give equal bytes.
  std::string Report() const;
  std::vector<uint8_t> Snapshot() const;
  kvguard_status Restore(const std::vector<uint8_t>& bytes);
  // The engine's own count of computed tokens; a test moves it to make the runner wrong.
  int64_t& Computed(const std::string& name);

 private:
  struct Live {
    uint64_t key = 0;
    std::vector<std::vector<int64_t>> blocks;  // by group
    int64_t computed = 0;
    int64_t states_end = 0;  // tokens when the last step ended, before its rejected drafts
    int64_t states_drafts = 0;
    int64_t rejected = 0;  // of the open step, already taken off
  };
  struct Event_ {
    kvguard_event event{};
    std::vector<int64_t> blocks;
    std::vector<int64_t> tokens;
    std::string name;
  };
  Event_& Push(uint32_t kind, uint64_t request);
  bool IsSharded(const ScenarioGroup& group) const {
    return options_.dcp_size > 1 && (group.flags & KVGUARD_GROUP_REPLICATED) == 0;
  }
  void PlanStates(const ScenarioGroup& group, const Live& live, const std::vector<int64_t>& blocks,
                  const kvguard_scheduled& row, ScenarioPlan::Group* out) const;
  void PlanList(const ScenarioGroup& group, const Live& live, const std::vector<int64_t>& blocks,
                int64_t tokens, ScenarioPlan::Group* out) const;
  static bool IsList(const ScenarioGroup& group) {
    return group.encoding == KVGUARD_READ_CSR || group.encoding == KVGUARD_READ_FLAT;
  }
  int64_t SlotOf(const ScenarioGroup& group, const std::vector<int64_t>& blocks,
                 int64_t position) const;

  ScenarioOptions options_;
  kvguard_guard* guard_ = nullptr;
  std::map<std::string, Live> live_;
  std::map<std::string, uint64_t> keys_;
  std::map<std::string, uint64_t> expected_;
  std::vector<Event_> events_;
  struct Scheduled {
    std::string name;
    kvguard_scheduled row;
  };
  std::vector<Scheduled> scheduled_;
  std::vector<Scheduled> open_;
  uint64_t step_ = 0;
  bool is_open_ = false;
  uint64_t next_key_ = 1;
  kvguard_verdict verdict_{};
  std::string error_text_;
};

}  // namespace kvguard::audit

#endif  // KVGUARD_SRC_AUDIT_SCENARIO_H_
