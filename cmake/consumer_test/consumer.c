/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include <kvguard/kvguard.h>

int main(void) {
  kvguard_error error;
  char expected[64];
  memset(&error, 0, sizeof error);
  error.size = sizeof error;
  snprintf(expected, sizeof expected, "%d.%d.%d", KVGUARD_VERSION_MAJOR, KVGUARD_VERSION_MINOR,
           KVGUARD_VERSION_PATCH);
  if (strcmp(expected, kvguard_version()) != 0) {
    fprintf(stderr, "the header says %s, the library %s\n", expected, kvguard_version());
    return 1;
  }
  return kvguard_selftest(&error) == KVGUARD_OK ? 0 : 2;
}
