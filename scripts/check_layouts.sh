#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: scripts/check_layouts.sh [PYTEST_ARGUMENT...]
# The guard on layouts of a real engine (docs/layouts/), healthy and with planted faults: tests/layouts_vllm in the rig's
# environment, with the package in build/ (or $KVGUARD_BUILD). Each line at the end prints what it shows.

KVGUARD_SCRIPT=check-layouts
. "$(dirname "$0")/lib.sh"
build=${KVGUARD_BUILD:-$KVGUARD_ROOT/build}
[ -n "${KVGUARD_BUILD:-}" ] || "$KVGUARD_ROOT/scripts/build.sh" build >&2
venv=$("$KVGUARD_ROOT/scripts/setup_vllm.sh" | tail -n 1)
cd "$KVGUARD_ROOT"
PYTHONPATH=$build/python:$KVGUARD_ROOT${PYTHONPATH:+:$PYTHONPATH} exec "$venv/bin/python" -m pytest tests/layouts_vllm "$@"
