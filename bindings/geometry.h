// SPDX-License-Identifier: Apache-2.0
// A kvguard_geometry from a Python dict whose keys are the header's field names.
#ifndef KVGUARD_BINDINGS_GEOMETRY_H_
#define KVGUARD_BINDINGS_GEOMETRY_H_

#include <deque>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>

#include "kvguard/kvguard.h"

namespace kvguard::python {

struct GeometryStorage {
  kvguard_geometry geometry;
  std::vector<kvguard_pool> pools;
  std::vector<kvguard_group> groups;
  std::deque<std::string> texts;  // a deque: pointers into it stay
  std::vector<const char*> gaps;
};

// Raises kvguard._core.Error where a field is missing, unknown or of a wrong type; the values are
// kvguard_create's matter.
void ReadGeometry(nanobind::handle dict, GeometryStorage* out);

}  // namespace kvguard::python

#endif  // KVGUARD_BINDINGS_GEOMETRY_H_
