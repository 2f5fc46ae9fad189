// SPDX-License-Identifier: Apache-2.0
// What the table of fields says about a Python type that is met: which of its fields nobody knows.
#ifndef KVGUARD_BINDINGS_VLLM_TYPES_H_
#define KVGUARD_BINDINGS_VLLM_TYPES_H_

#include <string>
#include <vector>

#include <nanobind/nanobind.h>

#include "bindings/vllm/fields.h"

namespace kvguard::python::vllm {

namespace nb = nanobind;

// Remembers the type it looked at last; another one (another release, a test's fake) is looked at
// when it comes.
class TypeView {
 public:
  explicit TypeView(const Type& table) : table_(table) {}

  // Throws WalkError where the type's fields cannot be listed.
  void Look(PyObject* object) {
    if (Py_TYPE(object) != type_) LookAnew(object);
  }

  // Adds the names of fields of the object that are in use and not understood.
  void FindUsed(PyObject* object, std::vector<std::string>* names) const;

 private:
  struct Unknown {
    nb::object name;
    nb::object otherwise;  // the field's default; invalid where it has none
    std::string text;
  };

  void LookAnew(PyObject* object);
  // Attributes that an instance has beside its type's fields: a fork's scheduler may just set them.
  void FindExtra(PyObject* object, std::vector<std::string>* names) const;

  const Type& table_;
  PyTypeObject* type_ = nullptr;
  nb::object hold_;  // a type that went away could come back as another one at the same address
  Py_ssize_t num_fields_ = 0;
  std::vector<Unknown> unknown_;
  std::vector<Unknown> unjudged_;
};

// Fields of the three types that the table does not know, and needed ones that are missing.
nb::dict ProbeTypes(nb::handle scheduler_output, nb::handle new_request,
                    nb::handle cached_requests);

}  // namespace kvguard::python::vllm

#endif  // KVGUARD_BINDINGS_VLLM_TYPES_H_
