#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: scripts/mutate.sh [--environment] [MUTATE.PY_ARGUMENT...]
# Mutation testing (scripts/mutate.py) in an environment of its own; --environment prints that environment's path, and no more.
#
# Why no kept tool: mull needs LLVM packages of its own and is in neither Debian nor PyPI; dextool is in neither; universalmutator
# (PyPI) rewrites by regular expression and compiles each mutant apart, thousands of builds here; mutmut and cosmic-ray are for
# Python. What is used is kept: tree-sitter's C++ parser, GoogleTest, the oracle.

KVGUARD_SCRIPT=mutate
. "$(dirname "$0")/lib.sh"

pins=$KVGUARD_ROOT/requirements/mutate.txt
venv=$KVGUARD_CACHE/mutate-$(venv_key "$pins")
if ! "$venv/bin/python" -c '' 2>/dev/null; then
  rm -rf "$venv"
  say "making the environment $venv"
  make_venv "$venv" mutate --no-deps -r "$pins"
fi
if [ "${1:-}" = --environment ]; then
  printf '%s\n' "$venv"
  exit 0
fi
"$KVGUARD_ROOT/scripts/setup.sh" >/dev/null
exec "$venv/bin/python" "$KVGUARD_ROOT/scripts/mutate.py" "$@"
