// SPDX-License-Identifier: Apache-2.0
// No exception crosses the ABI: every exported function runs its body through this.
#ifndef KVGUARD_SRC_STEP_GUARDED_H_
#define KVGUARD_SRC_STEP_GUARDED_H_

#include <exception>
#include <new>
#include <string>

#include "step/status.h"

namespace kvguard::step {

// Runs a body that returns a Status; what it throws becomes a status.
template <typename Body>
kvguard_status Guarded(kvguard_error* error, Body body) {
  try {
    return Report(body(), error);
  } catch (const std::bad_alloc&) {
    return Report(Status(KVGUARD_ERROR_MEMORY, "out of memory"), error);
  } catch (const std::exception& e) {
    return Report(Status(KVGUARD_ERROR_INTERNAL,
                         std::string("a bug in kvguard; please report it: ") + e.what()),
                  error);
  }
}

}  // namespace kvguard::step

#endif  // KVGUARD_SRC_STEP_GUARDED_H_
