// SPDX-License-Identifier: Apache-2.0
#ifndef KVGUARD_SRC_AUDIT_SELFTEST_H_
#define KVGUARD_SRC_AUDIT_SELFTEST_H_

#include "step/status.h"

namespace kvguard::audit {

// A right plan must be clean and each built-in wrong one must give its code; else
// KVGUARD_ERROR_INTERNAL by name.
step::Status SelfTest();

}  // namespace kvguard::audit

#endif  // KVGUARD_SRC_AUDIT_SELFTEST_H_
