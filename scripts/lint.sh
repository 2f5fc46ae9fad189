#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: scripts/lint.sh [--fix] [--tidy changed|all] [--build DIR] [FILE...]
# clang-format, ruff, include direction, licence lines, file length and the like on the given files, or on all.

KVGUARD_SCRIPT=lint
. "$(dirname "$0")/lib.sh"
venv=$("$KVGUARD_ROOT/scripts/setup.sh" | tail -n 1)
exec "$venv/bin/python" "$KVGUARD_ROOT/scripts/lint.py" "$@"
