// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "kvguard/kvguard.h"

// Any bytes are either a configuration or an error with a sentence.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kvguard_config config{};
  config.size = sizeof(config);
  kvguard_error error{};
  error.size = sizeof(error);
  const auto* json = reinterpret_cast<const char*>(data);
  const kvguard_status status = kvguard_config_parse(size == 0 ? "" : json, size, &config, &error);
  if (status != KVGUARD_OK && (status != KVGUARD_ERROR_CONFIG || error.text[0] == '\0'))
    std::abort();
  return 0;
}
