#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: scripts/demo.sh [ARGUMENT of `kvguard demo`...]
# Sets up, builds, and replays the recorded runs in demo/ with and without planted faults. Needs no engine.

KVGUARD_SCRIPT=demo
. "$(dirname "$0")/lib.sh"
KVGUARD_TARGETS=kvguard_command "$KVGUARD_ROOT/scripts/build.sh" build >&2
cd "$KVGUARD_ROOT"
exec build/kvguard demo "$@"
