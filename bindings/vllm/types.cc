// SPDX-License-Identifier: Apache-2.0
#include "bindings/vllm/types.h"

#include <algorithm>
#include <utility>

#include "bindings/convert.h"
#include "bindings/vllm/objects.h"

namespace kvguard::python::vllm {
namespace {

// Whether a field that the table does not know is as its type leaves it.
bool AtDefault(PyObject* value, const nb::object& otherwise) {
  if (!otherwise.is_valid()) return value == Py_None || !Truth(value);
  if (value == otherwise.ptr()) return true;
  const int equal = PyObject_RichCompareBool(value, otherwise.ptr(), Py_EQ);
  if (equal < 0) PyErr_Clear();
  return equal == 1;
}

// The names of a type's fields with their defaults: of a dataclass, else what an instance holds.
std::vector<std::pair<std::string, nb::object>> FieldsOf(nb::handle type, nb::handle instance) {
  std::vector<std::pair<std::string, nb::object>> out;
  const nb::module_ dataclasses = nb::module_::import_("dataclasses");
  if (nb::cast<bool>(dataclasses.attr("is_dataclass")(type))) {
    const nb::object missing = dataclasses.attr("MISSING");
    for (nb::handle field : nb::borrow<nb::iterable>(dataclasses.attr("fields")(type))) {
      nb::object otherwise = nb::borrow(field.attr("default"));
      if (otherwise.is(missing)) {
        nb::object factory = nb::borrow(field.attr("default_factory"));
        otherwise = factory.is(missing) ? nb::object() : factory();
      }
      out.emplace_back(nb::cast<std::string>(field.attr("name")), otherwise);
    }
    return out;
  }
  if (instance.is_valid() && nb::hasattr(instance, "__dict__")) {
    for (nb::handle name : nb::borrow<nb::iterable>(instance.attr("__dict__"))) {
      out.emplace_back(nb::cast<std::string>(nb::str(name)), nb::object());
    }
  }
  return out;
}

}  // namespace

namespace {

void Note(const char* what, const Type& table, const std::string& field,
          std::vector<std::string>* names) {
  std::string name = what;
  name += table.name;
  name += '.';
  name += field;
  if (std::find(names->begin(), names->end(), name) == names->end())
    names->push_back(std::move(name));
}

}  // namespace

void TypeView::FindUsed(PyObject* object, std::vector<std::string>* names) const {
  for (const Unknown& field : unknown_) {
    if (!AtDefault(OptionalAttribute(object, field.name).ptr(), field.otherwise)) {
      Note("unknown-field-in-use:", table_, field.text, names);
    }
  }
  for (const Unknown& field : unjudged_) {
    if (Truth(OptionalAttribute(object, field.name).ptr())) {
      Note("unjudged-field-in-use:", table_, field.text, names);
    }
  }
  FindExtra(object, names);
}

void TypeView::FindExtra(PyObject* object, std::vector<std::string>* names) const {
  static const nb::object* const dict_name =
      new nb::object(nb::steal(PyUnicode_InternFromString("__dict__")));
  const nb::object dict = OptionalAttribute(object, *dict_name);
  if (!PyDict_Check(dict.ptr()) || PyDict_Size(dict.ptr()) == num_fields_) return;
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(dict.ptr(), &at, &key, &value) != 0) {
    if (!PyUnicode_Check(key) || value == Py_None) continue;
    const char* text = PyUnicode_AsUTF8AndSize(key, nullptr);
    if (text == nullptr) {
      PyErr_Clear();
      continue;
    }
    if (text[0] == '_' || FindField(table_, text) != nullptr)
      continue;  // _: private to the engine, as its caches are
    const bool is_field = std::any_of(unknown_.begin(), unknown_.end(),
                                      [&](const Unknown& u) { return u.text == text; });
    if (!is_field) Note("unknown-field-in-use:", table_, text, names);
  }
}

void TypeView::LookAnew(PyObject* object) {
  try {
    unknown_.clear();
    unjudged_.clear();
    num_fields_ = 0;
    const nb::handle type = reinterpret_cast<PyObject*>(Py_TYPE(object));
    for (auto& [name, otherwise] : FieldsOf(type, object)) {
      ++num_fields_;
      if (FindField(table_, name.c_str()) != nullptr) continue;
      unknown_.push_back({nb::steal(PyUnicode_InternFromString(name.c_str())), otherwise, name});
    }
    for (const Field& field : table_.fields) {
      if (field.use != Use::kGapUnlessUnset) continue;
      unjudged_.push_back(
          {nb::steal(PyUnicode_InternFromString(field.name)), nb::object(), field.name});
    }
    hold_ = nb::borrow(type);
    type_ = Py_TYPE(object);
  } catch (const nb::python_error& error) {
    throw WalkError(std::string(table_.name) + ": its fields cannot be read: " + error.what());
  }
}

nb::dict ProbeTypes(nb::handle scheduler_output, nb::handle new_request,
                    nb::handle cached_requests) {
  nb::list missing;
  nb::list unknown;
  const std::pair<nb::handle, const Type*> types[] = {{scheduler_output, &kSchedulerOutput},
                                                      {new_request, &kNewRequestData},
                                                      {cached_requests, &kCachedRequestData}};
  for (const auto& [type, table] : types) {
    const auto fields = FieldsOf(type, nb::handle());
    auto has = [&](const char* name) {
      return std::any_of(fields.begin(), fields.end(),
                         [&](const auto& f) { return f.first == name; });
    };
    for (const Field& field : table->fields) {
      if (field.use == Use::kNeeded && !has(field.name))
        missing.append(std::string(table->name) + "." + field.name);
    }
    for (const auto& [name, otherwise] : fields) {
      if (FindField(*table, name.c_str()) == nullptr)
        unknown.append(std::string(table->name) + "." + name);
    }
  }
  nb::dict out;
  out["missing"] = missing;
  out["unknown"] = unknown;
  return out;
}

}  // namespace kvguard::python::vllm
