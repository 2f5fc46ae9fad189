// SPDX-License-Identifier: Apache-2.0
// Between Python objects and the C API's values. Everything here needs the interpreter's lock.
#ifndef KVGUARD_BINDINGS_CONVERT_H_
#define KVGUARD_BINDINGS_CONVERT_H_

#include <cstdint>
#include <string>
#include <string_view>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "kvguard/kvguard.h"

namespace kvguard::python {

namespace nb = nanobind;

// Raises kvguard._core.Error(sentence) with the attribute `status`.
[[noreturn]] void Raise(kvguard_status status, const std::string& sentence);

// Raises where `status` is an error.
void Check(kvguard_status status, const kvguard_error& error);

kvguard_error MakeError();

// The sentence of the pending Python exception, which is cleared: "TypeError: ...".
std::string TakePythonError();

// A printed name of kvguard.h ("full", "admit") or the number itself.
uint32_t Enumerator(const char* what, nb::handle value, const char* where);
// The printed name, or the number as text.
std::string NameOf(const char* what, int64_t value);

// Field access of plain dicts, with a sentence that names the field.
class Fields {
 public:
  Fields(nb::handle dict, std::string where);

  bool Has(const char* name) const;
  nb::object Get(const char* name) const;   // an absent field is an error
  nb::object Find(const char* name) const;  // an absent field or None is an invalid object
  int64_t Int(const char* name, int64_t otherwise) const;  // an absent field is `otherwise`
  int64_t Int(const char* name) const;
  uint32_t U32(const char* name, uint32_t otherwise) const;
  uint64_t U64(const char* name, uint64_t otherwise) const;
  std::string Text(const char* name, const char* otherwise) const;
  uint32_t Enum(const char* name, const char* what) const;
  uint32_t Enum(const char* name, const char* what, uint32_t otherwise) const;
  const std::string& where() const { return where_; }
  // Refuses fields that were never asked for: a misspelt one must not pass in silence.
  void RefuseOthers(std::initializer_list<const char*> known) const;

 private:
  nb::dict dict_;
  std::string where_;
};

// An integer of any Python type with __index__, but no bool.
int64_t ToInt64(nb::handle value, const std::string& where);

}  // namespace kvguard::python

#endif  // KVGUARD_BINDINGS_CONVERT_H_
