// SPDX-License-Identifier: Apache-2.0
// From a SchedulerOutput to a BEGIN record, in one pass through the C API.
#ifndef KVGUARD_BINDINGS_VLLM_WALKER_H_
#define KVGUARD_BINDINGS_VLLM_WALKER_H_

#include <cstdint>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>

#include "bindings/vllm/begin.h"
#include "bindings/vllm/types.h"
#include "kvguard/kvguard.h"

namespace kvguard::python::vllm {

namespace nb = nanobind;

class Walker {
 public:
  explicit Walker(uint32_t num_groups);

  // Throws WalkError where the object is not what this version reads; the walker has then forgotten
  // every request.
  void Walk(nb::handle scheduler_output, Begin* out);

  // The key of a live request, or a key that was never admitted: such a row is for the rules to
  // find.
  uint64_t KeyOf(PyObject* req_id);

  // The drafts among the tokens of the request that were scheduled last.
  uint32_t DraftsOf(PyObject* req_id);

  // Every live request becomes one that is known by name alone: what is said about it is skipped
  // and is a gap.
  void Forget();

  // Fields of the walked output that are in use and not understood: they may have moved bindings.
  const std::vector<std::string>& not_understood() const { return not_understood_; }

  // Requests of the walked step that were live before everything was forgotten: the step's plan
  // cannot be judged.
  uint64_t num_forgotten_rows() const { return num_forgotten_rows_; }
  uint64_t num_live() const { return static_cast<uint64_t>(PyDict_Size(ids_.ptr())); }

 private:
  struct Entry {
    uint64_t key = 0;
    int64_t num_computed = 0;  // the scheduler's count before the step last walked
    int64_t num_scheduled = 0;
    uint32_t num_drafts = 0;
    uint64_t counted_in = 0;  // the walk that gave num_computed
  };
  void WalkReleased(PyObject* output, PyObject* name, bool required, uint32_t kind, Begin* out);
  void WalkNew(PyObject* output, Begin* out);
  void WalkCached(PyObject* output, Begin* out);
  void WalkScheduled(PyObject* output, Begin* out);
  void WalkZeroAndCopies(PyObject* output, Begin* out);

  Entry* Find(PyObject* id);
  Entry* Admit(PyObject* id, int64_t first, int64_t count, Begin* out);
  bool IsForgotten(PyObject* id);
  bool DropForgotten(PyObject* id);
  uint64_t UnknownKey(PyObject* id);
  void Release(PyObject* id);

  uint32_t num_groups_;
  uint64_t next_key_ = 1;
  uint64_t walk_ = 0;
  uint64_t num_forgotten_rows_ = 0;
  nb::dict
      ids_;  // live: id -> index of an entry. A dict: the ids' hashes are cached in the strings
  nb::dict forgotten_;  // id -> None
  nb::dict strangers_;  // of the walked step: id -> key that was never admitted
  // An output could not be read to its end, so that an unknown id may be a request that it
  // admitted.
  bool unread_admissions_ = false;
  std::vector<std::string> not_understood_;
  std::vector<Entry> entries_;
  std::vector<size_t> free_entries_;
  TypeView output_type_{kSchedulerOutput};
  TypeView new_type_{kNewRequestData};
  TypeView cached_type_{kCachedRequestData};
};

}  // namespace kvguard::python::vllm

#endif  // KVGUARD_BINDINGS_VLLM_WALKER_H_
