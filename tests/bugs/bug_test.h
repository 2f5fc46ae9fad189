// SPDX-License-Identifier: Apache-2.0
// Plays the public bugs of the table beside this file: each as it was, and as it should have been.
#ifndef KVGUARD_TESTS_BUGS_BUG_TEST_H_
#define KVGUARD_TESTS_BUGS_BUG_TEST_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "audit/scenario.h"
#include "tests/support/passes.h"

namespace kvguard::tests {

using audit::ScenarioPlan;
using Ints = std::vector<int64_t>;
using PlanEdit = std::function<void(ScenarioPlan&)>;

inline constexpr uint32_t kAsync = KVGUARD_ENGINE_ASYNC;
inline constexpr uint32_t kConnector = KVGUARD_ENGINE_CONNECTOR;
inline constexpr uint32_t kEncoder = KVGUARD_ENGINE_ENCODER;
inline constexpr uint32_t kFillsTold = KVGUARD_ENGINE_FILLS_TOLD;
inline constexpr uint32_t kPrefix = KVGUARD_ENGINE_PREFIX_CACHE;
inline constexpr uint32_t kFull = KVGUARD_GROUP_FULL;
inline constexpr uint32_t kCross = KVGUARD_GROUP_CROSS;
inline constexpr uint32_t kStateNone = KVGUARD_STATE_NONE;
inline constexpr uint32_t kStateAlign = KVGUARD_STATE_ALIGN;
inline constexpr uint32_t kFree = KVGUARD_EVENT_FREE;
inline constexpr uint32_t kZero = KVGUARD_EVENT_ZERO;
inline constexpr uint32_t kZeroDone = KVGUARD_EVENT_ZERO_DONE;
inline constexpr uint32_t kCopy = KVGUARD_EVENT_COPY;
inline constexpr uint32_t kCopyDone = KVGUARD_EVENT_COPY_DONE;
inline constexpr uint32_t kReserve = KVGUARD_EVENT_RESERVE;
inline constexpr uint32_t kLoad = KVGUARD_EVENT_LOAD;
inline constexpr uint32_t kLoadDone = KVGUARD_EVENT_LOAD_DONE;
inline constexpr uint32_t kLoadFailed = KVGUARD_EVENT_LOAD_FAILED;
inline constexpr uint32_t kSend = KVGUARD_EVENT_SEND_PENDING;
inline constexpr uint32_t kSendDone = KVGUARD_EVENT_SEND_DONE;
inline constexpr uint32_t kMove = KVGUARD_REMAP_MOVE;
inline constexpr uint32_t kCsr = KVGUARD_READ_CSR;
inline constexpr uint32_t kFlat = KVGUARD_READ_FLAT;
inline constexpr uint32_t kCancel = KVGUARD_EVENT_CANCEL;
inline constexpr uint32_t kDrain = KVGUARD_EVENT_DRAIN;

// "[first..last]" of a sketch.
Ints Range(int64_t first, int64_t last);
// "a(first..last)" of a sketch: sequences of different letters differ everywhere.
Ints Seq(char letter, int64_t first, int64_t last);
Ints operator+(Ints left, const Ints& right);

// No target pass reads G1: it is on the host, or of kind CROSS.
void HideGroup1(ScenarioPlan& plan);

// "G0 full block 16 pool 64; flags prefix" of a sketch. Rows are as wide as the pool unless said.
class Geometry {
 public:
  static Geometry Full(uint32_t block, uint64_t pool);
  static Geometry Window(uint32_t window, uint32_t block, uint64_t pool);
  static Geometry Chunked(uint32_t chunk, uint32_t block, uint64_t pool);
  static Geometry Ring(uint32_t window, uint32_t block, uint64_t pool);
  // A pool of single tokens, read by flat lists.
  static Geometry Cells(uint64_t pool);
  // The last group reads by lists; unit: a KVGUARD_UNIT_*.
  Geometry& Lists(uint32_t encoding, uint32_t unit);
  Geometry& And(uint32_t kind, uint32_t window, uint32_t block, uint32_t pool);
  // "G1 state align block 16 on pool 1"; `mode` is a KVGUARD_STATE_*.
  Geometry& State(uint32_t mode, uint32_t block, uint32_t pool);
  Geometry& Kernel(uint32_t tokens, uint32_t unit);
  Geometry& Flags(uint32_t flags);
  // The pool of the last group is one of the host.
  Geometry& Host();
  // "rank 0 of DCP 2, interleave 1"; the last group kept whole by every rank.
  Geometry& Ranks(uint32_t rank, uint32_t size, uint32_t interleave);
  Geometry& Replicated();
  // "PCP 2, layout 2".
  Geometry& Prefill(uint32_t size, uint32_t layout);
  Geometry& NoNull();
  Geometry& Columns(uint64_t columns);
  // 8192 unless said; a step may have as many tokens.
  Geometry& ModelLen(uint64_t tokens);
  Geometry& Drafts(uint32_t drafts);
  Geometry& NarrowSlots();
  Geometry& StandingGap(const std::string& name);
  const audit::ScenarioOptions& options() const { return options_; }

 private:
  audit::ScenarioOptions options_;
};

// "R 32+16 drafts 2" of a sketch.
struct Row {
  std::string name;
  int64_t computed = 0;
  int64_t tokens = 1;
  uint32_t drafts = 0;
};

// One engine that plays a sketch. What the scheduler decides goes to `s`, what it feeds comes from
// here.
class Play {
 public:
  Play(const audit::ScenarioOptions& options, bool is_wrong, size_t right_variant);

  audit::Scenario s;
  const bool wrong;
  // Which of `count` right plays this is.
  size_t RightOf(size_t count);

  // A whole step: BEGIN, the right plan after `planned` (and after `final_edit`, as a second plan
  // of stage FINAL), END, and for each row an outcome of one sampled token and no rejected one.
  void Run(const std::vector<Row>& rows, const PlanEdit& planned = nullptr,
           const PlanEdit& final_edit = nullptr);
  void Idle() { Run({}); }

  // The same, record by record.
  void Begin(const std::vector<Row>& rows);
  void Show(const PlanEdit& edit = nullptr, uint32_t stage = KVGUARD_STAGE_PLANNED);
  // A plan of another pass.
  void Pass(const ScenarioPlan& plan);
  void End();
  void Told(uint64_t step, const std::string& name, uint32_t rejected = 0);
  // An event in an OUTCOME of the last step.
  void Told(uint32_t kind, const std::string& name, const Ints& blocks, int64_t id,
            uint32_t group = 0);
  void Dummy(const Ints& slots, uint32_t stage = KVGUARD_STAGE_PLANNED);

  // The record that had the first finding: begin, plan, outcome or end.
  const std::string& first_at() const { return first_at_; }
  size_t rights() const { return rights_; }

 private:
  void Fed(const char* what);

  size_t right_;
  size_t rights_ = 1;
  std::vector<Row> rows_;
  std::map<uint64_t, std::map<std::string, uint32_t>> drafts_;  // by step and name
  std::string first_at_;
};

// One entry of the table, as far as a play needs it.
struct TableEntry {
  std::string answer;  // of a trap: "trap"
  std::string code;    // the first of `codes`
  std::string url;
  std::string first;  // the line of `wrong`
};
const std::map<std::string, TableEntry>& BugTable();

// Plays what the table says: "fires" is wrong once and right in all its variants, else only right.
void CheckBug(const std::string& id, const std::function<Geometry(bool wrong)>& geometry,
              const std::function<void(Play&)>& play);

}  // namespace kvguard::tests

// BUG(B003, vllm_issues_39589, Geometry::Full(16, 64)) { plays it with p, as it was if p.wrong }
// `thread` is the end of the entry's url; the geometry may depend on `wrong`.
#define BUG(id, thread, geometry)                                                                \
  static void Play##id(Play& p);                                                                 \
  TEST(Bugs, id##_##thread) {                                                                    \
    CheckBug(#id, []([[maybe_unused]] bool wrong) -> Geometry { return (geometry); }, Play##id); \
  }                                                                                              \
  static void Play##id(Play& p)

#endif  // KVGUARD_TESTS_BUGS_BUG_TEST_H_
