#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: scripts/sanitize.sh address,undefined|thread [CTEST_ARGUMENT...]
# Builds everything but the Python module with the sanitizers and runs the C++ tests. address,undefined is the build of
# scripts/fuzz.sh: one build with clang serves both.

KVGUARD_SCRIPT=sanitize
. "$(dirname "$0")/lib.sh"
[ $# -gt 0 ] || { say "usage: scripts/sanitize.sh address,undefined|thread"; exit 64; }
kinds=$1
shift
if [ "$kinds" = address,undefined ]; then
  dir=$KVGUARD_ROOT/build-fuzz
  build_for_fuzzing "$dir"
else
  dir=$KVGUARD_ROOT/build-${kinds//,/-}
  "$KVGUARD_ROOT/scripts/build.sh" "$dir" -DKVGUARD_SANITIZE="$kinds" -DKVGUARD_PYTHON=OFF -DCMAKE_BUILD_TYPE=RelWithDebInfo >&2
fi
exec ctest --test-dir "$dir" -j "$KVGUARD_JOBS" --output-on-failure --no-tests=error "$@"
