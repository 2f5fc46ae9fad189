// SPDX-License-Identifier: Apache-2.0
// What kvguard knows about the fields of vLLM's scheduler output: the one table with version
// knowledge. Everything else asks the objects themselves.
#ifndef KVGUARD_BINDINGS_VLLM_FIELDS_H_
#define KVGUARD_BINDINGS_VLLM_FIELDS_H_

#include <cstdint>
#include <span>

namespace kvguard::python::vllm {

enum class Use : uint8_t {
  kNeeded,          // read; an engine without it is not guarded
  kRead,            // read where it is there
  kIgnored,         // holds nothing that decides an address
  kGapUnlessUnset,  // known, and not judged: a step in which it is set (true) has a gap
};

struct Field {
  const char* name;
  Use use;
  const char* note;
};

struct Type {
  const char* name;
  std::span<const Field> fields;
};

extern const Type kSchedulerOutput;
extern const Type kNewRequestData;
extern const Type kCachedRequestData;

const Field* FindField(const Type& type, const char* name);

}  // namespace kvguard::python::vllm

#endif  // KVGUARD_BINDINGS_VLLM_FIELDS_H_
