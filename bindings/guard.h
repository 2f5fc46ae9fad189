// SPDX-License-Identifier: Apache-2.0
// One guard as Python sees it, and what belongs to it for as long as it lives.
#ifndef KVGUARD_BINDINGS_GUARD_H_
#define KVGUARD_BINDINGS_GUARD_H_

#include <cstdint>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>

#include "kvguard/kvguard.h"

namespace kvguard::python {

namespace nb = nanobind;

class Guard {
 public:
  // geometry, config: dicts with the header's field names. Raises kvguard._core.Error.
  Guard(nb::handle geometry, nb::handle config);
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  // Feeds and keeps verdict and sentence. Never raises.
  kvguard_status Feed(const kvguard_record& record);
  const kvguard_verdict& verdict() const { return verdict_; }
  const std::string& sentence() const { return sentence_; }  // of the last feed that was refused
  kvguard_guard* handle() const { return guard_; }
  uint32_t num_groups() const { return num_groups_; }

  // Records from Python objects, for adapters without a walker of their own and for tests. Raise
  // where Feed refuses.
  nb::dict Begin(uint64_t step, nb::handle events, nb::handle scheduled);
  nb::dict Plan(uint64_t step, nb::handle plan);
  nb::dict Outcome(uint64_t step, nb::handle rows, nb::handle events);
  nb::dict End(uint64_t step, uint32_t flags);
  nb::dict Reset(nb::handle reason);

  nb::dict Verdict() const;
  nb::list Findings(uint64_t first, size_t most) const;  // of (line, prose, dict)
  nb::list Coverage() const;
  nb::list Gaps() const;
  nb::bytes Snapshot() const;
  void Restore(const nb::bytes& bytes);
  void RecordStart(const std::string& path, uint64_t max_bytes);
  void RecordStop();
  nb::object TakeIncident();  // bytes, once; None where there is none

 private:
  static void OnIncident(void* context, const void* bytes, size_t num_bytes);
  nb::dict FeedOrRaise(const kvguard_record& record);

  kvguard_guard* guard_ = nullptr;
  uint32_t num_groups_ = 0;
  kvguard_verdict verdict_;
  std::string sentence_;
  std::string incident_;
  bool has_incident_ = false;
};

nb::dict VerdictDict(const kvguard_verdict& verdict);

// Events of a record, with the memory that they point to.
struct EventStorage {
  std::vector<kvguard_event> events;
  std::vector<std::vector<int64_t>> blocks;
  std::vector<std::vector<int64_t>> tokens;
  std::vector<std::string> names;
};

void ReadEvents(nb::handle list, EventStorage* out);

}  // namespace kvguard::python

#endif  // KVGUARD_BINDINGS_GUARD_H_
