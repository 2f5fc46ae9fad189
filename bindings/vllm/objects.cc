// SPDX-License-Identifier: Apache-2.0
#include "bindings/vllm/objects.h"

#include <algorithm>

#include "bindings/convert.h"

namespace kvguard::python::vllm {
namespace {

constexpr size_t kMostName = 4096;  // what a record may hold

std::string TypeName(PyObject* object) {
  nb::object name =
      nb::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(object)), "__name__"));
  if (!name.is_valid()) {
    PyErr_Clear();
    return "?";
  }
  return nb::cast<std::string>(nb::str(name));
}

}  // namespace

std::string Where::Text() const {
  std::string text = list;
  const auto index = [&text](Py_ssize_t i) {
    if (i < 0) return;
    text += '[';
    text += std::to_string(i);
    text += ']';
  };
  index(item);
  if (field != nullptr) {
    text += '.';
    text += field;
  }
  index(group);
  index(element);
  return text;
}

void Wrong(const Where& where, PyObject* found, const char* wanted) {
  std::string text = where.Text();
  text += found == Py_None ? " is None" : " is a " + TypeName(found);
  text += ", not ";
  text += wanted;
  throw WalkError(text);
}

nb::object Attribute(PyObject* object, const nb::object& name, const char* where) {
  nb::object value = nb::steal(PyObject_GetAttr(object, name.ptr()));
  if (!value.is_valid()) throw WalkError(std::string(where) + ": " + TakePythonError());
  return value;
}

nb::object OptionalAttribute(PyObject* object, const nb::object& name) {
  nb::object value = nb::steal(PyObject_GetAttr(object, name.ptr()));
  if (!value.is_valid()) {
    if (PyErr_ExceptionMatches(PyExc_AttributeError) == 0) throw WalkError(TakePythonError());
    PyErr_Clear();
    return nb::none();
  }
  return value;
}

int64_t Integer(PyObject* value, const Where& where) {
  nb::object held;
  if (!PyLong_Check(value) || PyBool_Check(value)) {
    if (PyBool_Check(value) || PyIndex_Check(value) == 0) Wrong(where, value, "an integer");
    held = nb::steal(PyNumber_Index(value));
    if (!held.is_valid()) throw WalkError(where.Text() + ": " + TakePythonError());
    value = held.ptr();
  }
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (overflow != 0) throw WalkError(where.Text() + " does not fit 64 bits");
  if (number == -1 && PyErr_Occurred() != nullptr)
    throw WalkError(where.Text() + ": " + TakePythonError());
  return number;
}

Items::Items(PyObject* object, const Where& where) : object_(object) {
  if (PyList_Check(object)) {
    size_ = PyList_Size(object);
  } else if (PyTuple_Check(object)) {
    tuple_ = true;
    size_ = PyTuple_Size(object);
  } else {
    Wrong(where, object, "a list");
  }
}

void Items::Changed() { throw WalkError("a list changed while it was read: " + TakePythonError()); }

void CheckId(PyObject* id, const Where& where) {
  if (!PyUnicode_Check(id)) Wrong(where, id, "a request id (str)");
}

std::pair<const char*, size_t> Utf8(PyObject* text) {
  Py_ssize_t size = 0;
  const char* bytes = PyUnicode_AsUTF8AndSize(text, &size);
  if (bytes == nullptr) throw WalkError("a request id is no valid text: " + TakePythonError());
  return {bytes, std::min(static_cast<size_t>(size), kMostName)};
}

void ReadBlocks(PyObject* list, Where where, std::vector<int64_t>* out) {
  const Items ids(list, where);
  for (Py_ssize_t i = 0; i < ids.size(); ++i) {
    where.element = i;
    out->push_back(Integer(ids[i], where));
  }
}

bool Truth(PyObject* value) {
  const int truth = PyObject_IsTrue(value);
  if (truth < 0) {
    PyErr_Clear();
    return true;  // what cannot even say whether it is empty is in use
  }
  return truth != 0;
}

}  // namespace kvguard::python::vllm
