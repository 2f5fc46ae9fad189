// SPDX-License-Identifier: Apache-2.0
// One vLLM runner's records into one guard: walks, numbers the steps, and keeps the account honest
// where something could not be read. Nothing here raises into the engine: every call answers with
// flags.
#ifndef KVGUARD_BINDINGS_VLLM_STREAM_H_
#define KVGUARD_BINDINGS_VLLM_STREAM_H_

#include <cstdint>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>

#include "bindings/guard.h"
#include "bindings/vllm/walker.h"

namespace kvguard::python::vllm {

// The answer to every call.
enum Flag : uint32_t {
  kMustRaise = 1u << 0,    // hold this step's output
  kNewFindings = 1u << 1,  // this record has findings: [first_sequence, ...)
  kNotFed = 1u << 2,       // the record was refused or could not be made: see Sentence()
  kUnjudged = 1u << 3,     // the step is open, but its plan is not to be judged
};

class Stream {
 public:
  explicit Stream(Guard* guard) : guard_(guard), walker_(guard->num_groups()) {}

  uint32_t Begin(nb::handle scheduler_output);
  // groups: tuples (group, slots address, count, dtype, table address, dtype, rows, columns, row
  // stride, address of the rows' live columns, count, dtype). An address of 0 is an absent array.
  // dtypes: kvguard_dtype.
  // pass: of the target, or of the draft model, with its number.
  uint32_t Plan(uint32_t stage, nb::handle req_ids, uint64_t padded_rows, uint64_t num_tokens,
                uint64_t padded_tokens, nb::handle query_start, nb::handle seq_lens,
                nb::handle positions, nb::handle groups, uint32_t pass, uint32_t pass_index);
  // What the open step's rows sampled and rejected, before it ends: (address, count, dtype), one
  // value a row.
  uint32_t Outcome(nb::handle req_ids, nb::handle sampled, nb::handle rejected);
  uint32_t End(uint32_t flags);
  uint32_t Reset(uint32_t reason);
  // Something that was declared as judged is not judged in the open step, or in the next one where
  // none is open.
  uint32_t Gap(const std::string& name);

  bool open() const { return open_; }
  uint64_t step() const { return step_; }
  // Of the outcomes told so far.
  uint64_t num_drafts() const { return num_drafts_; }
  uint64_t num_rejected() const { return num_rejected_; }
  const std::string& sentence() const { return sentence_; }
  Walker& walker() { return walker_; }
  Guard& guard() { return *guard_; }

 private:
  uint32_t Feed(const kvguard_record& record);
  uint32_t FeedReset(uint32_t reason);
  // The mirror may not be what the engine has: everything is forgotten, and the step is a gap by
  // these names.
  uint32_t StartOver(const std::vector<std::string>& names);
  uint32_t FeedBegin();

  Guard* guard_;
  Walker walker_;
  vllm::Begin begin_;
  uint64_t step_ = 0;
  bool open_ = false;
  bool judged_ = true;  // whether the open step's plans are fed
  bool lost_ = false;   // the core could not keep its account (out of memory, a bug): start over at
                        // the next step
  std::vector<std::string> pending_gaps_;
  std::string sentence_;
  std::vector<uint64_t> keys_;
  std::vector<kvguard_group_plan> groups_;
  std::vector<kvguard_outcome_row> rows_;
  uint64_t num_drafts_ = 0;
  uint64_t num_rejected_ = 0;
};

void Bind(nb::module_& module);

}  // namespace kvguard::python::vllm

#endif  // KVGUARD_BINDINGS_VLLM_STREAM_H_
