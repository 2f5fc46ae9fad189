// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <string>

#include <kvguard/kvguard.h>

int main() {
  const std::string expected = std::to_string(KVGUARD_VERSION_MAJOR) + "." +
                               std::to_string(KVGUARD_VERSION_MINOR) + "." +
                               std::to_string(KVGUARD_VERSION_PATCH);
  if (expected != kvguard_version()) {
    std::cerr << "the header says " << expected << ", the library " << kvguard_version() << "\n";
    return 1;
  }
  kvguard_error error{};
  error.size = sizeof error;
  return kvguard_selftest(&error) == KVGUARD_OK ? 0 : 2;
}
