// SPDX-License-Identifier: Apache-2.0
// The functions of kvguard.h about configuration.
#include <cstring>
#include <exception>
#include <new>
#include <string>

#include "config/config.h"
#include "step/guarded.h"

namespace {

using kvguard::step::Guarded;
using kvguard::step::Malformed;
using kvguard::step::Status;

}  // namespace

extern "C" {

kvguard_status kvguard_config_parse(const char* json, size_t json_size, kvguard_config* config,
                                    kvguard_error* error) {
  return Guarded(error, [&]() -> Status {
    if (json == nullptr) return Malformed("config_parse: json is NULL");
    if (config == nullptr || config->size < sizeof(kvguard_config)) {
      return Malformed("config_parse: set size = sizeof(kvguard_config)");
    }
    return kvguard::config::Parse({json, json_size}, config);
  });
}

kvguard_status kvguard_schema(char* text, size_t capacity, size_t* needed, kvguard_error* error) {
  return Guarded(error, [&]() -> Status {
    if (needed == nullptr) return Malformed("schema: needed is NULL");
    const std::string schema = kvguard::config::Schema();
    *needed = schema.size() + 1;
    if (text == nullptr || capacity < *needed) {
      return Status(KVGUARD_ERROR_CAPACITY,
                    kvguard::step::Sprintf("schema: %zu bytes are needed", *needed));
    }
    std::memcpy(text, schema.c_str(), *needed);
    return {};
  });
}

}  // extern "C"
