// SPDX-License-Identifier: Apache-2.0
#include "bindings/convert.h"

#include <cstring>
#include <limits>

namespace kvguard::python {

void Raise(kvguard_status status, const std::string& sentence) {
  nb::object type = nb::module_::import_("kvguard._core").attr("Error");
  nb::object error = type(sentence);
  error.attr("status") = NameOf("status", status);
  PyErr_SetObject(type.ptr(), error.ptr());
  throw nb::python_error();
}

void Check(kvguard_status status, const kvguard_error& error) {
  if (status < 0) Raise(status, error.text);
}

kvguard_error MakeError() {
  kvguard_error error;
  std::memset(&error, 0, sizeof(error));
  error.size = sizeof(error);
  return error;
}

std::string TakePythonError() {
  if (PyErr_Occurred() == nullptr) return "unknown error";
  const nb::python_error raised;  // fetches the pending exception
  std::string text = nb::cast<std::string>(nb::str(raised.type().attr("__name__")));
  nb::object message = nb::steal(PyObject_Str(raised.value().ptr()));
  if (message.is_valid()) {
    const char* bytes = PyUnicode_AsUTF8AndSize(message.ptr(), nullptr);
    if (bytes != nullptr) text += std::string(": ") + bytes;
  }
  PyErr_Clear();
  return text;
}

std::string NameOf(const char* what, int64_t value) {
  const char* name = kvguard_name(what, value);
  return name != nullptr ? std::string(name) : std::to_string(value);
}

uint32_t Enumerator(const char* what, nb::handle value, const char* where) {
  if (PyLong_Check(value.ptr())) return static_cast<uint32_t>(ToInt64(value, where));
  if (!PyUnicode_Check(value.ptr())) {
    Raise(KVGUARD_ERROR_ARGUMENT, std::string(where) + ": a name or a number is wanted");
  }
  const std::string text = nb::cast<std::string>(value);
  constexpr int64_t kMostEnumerators = 256;  // above every value of the header's enumerations
  for (int64_t i = 0; i < kMostEnumerators; ++i) {
    const char* name = kvguard_name(what, i);
    if (name != nullptr && text == name) return static_cast<uint32_t>(i);
  }
  Raise(KVGUARD_ERROR_ARGUMENT, std::string(where) + ": '" + text + "' is no " + what);
}

int64_t ToInt64(nb::handle value, const std::string& where) {
  nb::object number = nb::borrow(value);
  if (PyBool_Check(value.ptr()) || PyIndex_Check(value.ptr()) == 0) {
    Raise(KVGUARD_ERROR_ARGUMENT,
          where + ": an integer is wanted, not " + Py_TYPE(value.ptr())->tp_name);
  }
  if (!PyLong_Check(value.ptr())) {
    number = nb::steal(PyNumber_Index(value.ptr()));
    if (!number.is_valid()) Raise(KVGUARD_ERROR_ARGUMENT, where + ": " + TakePythonError());
  }
  int overflow = 0;
  const long long result = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow != 0) Raise(KVGUARD_ERROR_ARGUMENT, where + ": does not fit 64 bits");
  if (result == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  return result;
}

Fields::Fields(nb::handle dict, std::string where) : where_(std::move(where)) {
  if (!PyDict_Check(dict.ptr())) Raise(KVGUARD_ERROR_ARGUMENT, where_ + ": a dict is wanted");
  dict_ = nb::borrow<nb::dict>(dict);
}

bool Fields::Has(const char* name) const { return dict_.contains(name); }

nb::object Fields::Find(const char* name) const {
  if (!dict_.contains(name)) return {};
  nb::object value = nb::borrow(dict_[name]);
  return value.is_none() ? nb::object() : value;
}

nb::object Fields::Get(const char* name) const {
  nb::object value = Find(name);
  if (!value.is_valid()) Raise(KVGUARD_ERROR_ARGUMENT, where_ + ": '" + name + "' is missing");
  return value;
}

int64_t Fields::Int(const char* name, int64_t otherwise) const {
  nb::object value = Find(name);
  return value.is_valid() ? ToInt64(value, where_ + "." + name) : otherwise;
}

int64_t Fields::Int(const char* name) const { return ToInt64(Get(name), where_ + "." + name); }

uint64_t Fields::U64(const char* name, uint64_t otherwise) const {
  nb::object value = Find(name);
  if (!value.is_valid()) return otherwise;
  const int64_t number = ToInt64(value, where_ + "." + name);
  if (number < 0) Raise(KVGUARD_ERROR_ARGUMENT, where_ + "." + name + ": is negative");
  return static_cast<uint64_t>(number);
}

uint32_t Fields::U32(const char* name, uint32_t otherwise) const {
  const uint64_t number = U64(name, otherwise);
  if (number > std::numeric_limits<uint32_t>::max()) {
    Raise(KVGUARD_ERROR_ARGUMENT, where_ + "." + name + ": does not fit 32 bits");
  }
  return static_cast<uint32_t>(number);
}

std::string Fields::Text(const char* name, const char* otherwise) const {
  nb::object value = Find(name);
  if (!value.is_valid()) return otherwise;
  if (!PyUnicode_Check(value.ptr()))
    Raise(KVGUARD_ERROR_ARGUMENT, where_ + "." + name + ": text is wanted");
  return nb::cast<std::string>(value);
}

uint32_t Fields::Enum(const char* name, const char* what) const {
  return Enumerator(what, Get(name), (where_ + "." + name).c_str());
}

uint32_t Fields::Enum(const char* name, const char* what, uint32_t otherwise) const {
  nb::object value = Find(name);
  return value.is_valid() ? Enumerator(what, value, (where_ + "." + name).c_str()) : otherwise;
}

void Fields::RefuseOthers(std::initializer_list<const char*> known) const {
  for (auto [key, value] : dict_) {
    const std::string name = nb::cast<std::string>(nb::str(key));
    bool found = false;
    for (const char* k : known) found = found || name == k;
    if (!found) Raise(KVGUARD_ERROR_ARGUMENT, where_ + ": '" + name + "' is not a field of it");
  }
}

}  // namespace kvguard::python
