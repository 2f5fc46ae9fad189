#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: scripts/demo.sh [ARGUMENT of `kvguard demo`...]
# Sets up, builds, and replays the recorded runs in demo/ with and without planted faults; then runs the reference engine (lab/) on a
# public trace of conversations, healthy and with three faults, whose harm it knows. Needs no other engine.

KVGUARD_SCRIPT=demo
. "$(dirname "$0")/lib.sh"
KVGUARD_TARGETS=kvguard_command "$KVGUARD_ROOT/scripts/build.sh" build >&2
cd "$KVGUARD_ROOT"
build/kvguard demo "$@"

printf '\nThe reference engine on the Mooncake conversation trace, guarded\n\n'
build/kvguard lab mooncake
for fault in slot-other-row hit-collision table-stale; do
  printf '\nThe same with a fault that the guard reports and lets pass, and the harm that it does\n\n'
  status=0
  build/kvguard lab mooncake --steps 8000 --guard log --fault "$fault" | sed '/^reached/,/^$/d' || status=$?
  [ "$status" -eq 1 ] || die "the fault $fault was not found (exit code $status)"
done
