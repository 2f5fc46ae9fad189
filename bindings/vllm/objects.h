// SPDX-License-Identifier: Apache-2.0
// Reading objects that may be anything: each look either gives a value or throws one sentence about
// it.
#ifndef KVGUARD_BINDINGS_VLLM_OBJECTS_H_
#define KVGUARD_BINDINGS_VLLM_OBJECTS_H_

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>

namespace kvguard::python::vllm {

namespace nb = nanobind;

// What could not be read, in one sentence.
class WalkError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Where in the scheduler output something stands; made into text only when something is wrong
// there.
struct Where {
  const char* list;
  Py_ssize_t item = -1;
  const char* field = nullptr;
  Py_ssize_t group = -1;
  Py_ssize_t element = -1;

  std::string Text() const;
};

[[noreturn]] void Wrong(const Where& where, PyObject* found, const char* wanted);

nb::object Attribute(PyObject* object, const nb::object& name, const char* where);

// An attribute that may be absent; None where it is.
nb::object OptionalAttribute(PyObject* object, const nb::object& name);

int64_t Integer(PyObject* value, const Where& where);

// A list or tuple, looked at in place.
class Items {
 public:
  Items(PyObject* object, const Where& where);
  Py_ssize_t size() const { return size_; }
  // Borrowed. A list could only shrink under us through code that an attribute runs; then this
  // throws.
  PyObject* operator[](Py_ssize_t i) const {
    PyObject* item = tuple_ ? PyTuple_GetItem(object_, i) : PyList_GetItem(object_, i);
    if (item == nullptr) Changed();
    return item;
  }

 private:
  [[noreturn]] static void Changed();

  PyObject* object_;
  bool tuple_ = false;
  Py_ssize_t size_ = 0;
};

void CheckId(PyObject* id, const Where& where);

// The bytes live as long as the string; a longer text than a record may hold is cut.
std::pair<const char*, size_t> Utf8(PyObject* text);

void ReadBlocks(PyObject* list, Where where, std::vector<int64_t>* out);

// Whether a value counts as true; what cannot even say so does.
bool Truth(PyObject* value);

}  // namespace kvguard::python::vllm

#endif  // KVGUARD_BINDINGS_VLLM_OBJECTS_H_
