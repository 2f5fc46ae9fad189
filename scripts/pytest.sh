#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: scripts/pytest.sh [PYTEST_ARGUMENT...]
# The unit tests of Python code (tests/python, scripts) against the package in build/ (or $KVGUARD_BUILD).

KVGUARD_SCRIPT=pytest
. "$(dirname "$0")/lib.sh"
venv=$("$KVGUARD_ROOT/scripts/setup.sh" | tail -n 1)
cd "$KVGUARD_ROOT"
PYTHONPATH=${KVGUARD_BUILD:-$KVGUARD_ROOT/build}/python${PYTHONPATH:+:$PYTHONPATH} exec "$venv/bin/python" -m pytest "$@"
