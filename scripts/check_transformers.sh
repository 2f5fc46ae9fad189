#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: scripts/check_transformers.sh [--releases "5.10.4 ..."] [PYTEST_ARGUMENT...]
# The guard on Hugging Face transformers' continuous batching: tests/hf with the package in build/ (or $KVGUARD_BUILD), for the
# release of tests/hf/requirements.txt and those of tests/hf/releases. Set-up: 1.2 GB, then 60 MB for each release.

KVGUARD_SCRIPT=check-transformers
. "$(dirname "$0")/lib.sh"
releases="default $(cd "$KVGUARD_ROOT/tests/hf/releases" && printf '%s ' *.txt)"
releases=${releases//.txt/}
if [ "${1:-}" = --releases ]; then
  releases=$2
  shift 2
fi
build=${KVGUARD_BUILD:-$KVGUARD_ROOT/build}
[ -n "${KVGUARD_BUILD:-}" ] || "$KVGUARD_ROOT/scripts/build.sh" build >&2
venv=$("$KVGUARD_ROOT/scripts/setup_transformers.sh" | tail -n 1)
cd "$KVGUARD_ROOT"
passed=0
failed=0
for release in $releases; do
  folder=""
  [ "$release" = default ] || folder=$("$KVGUARD_ROOT/scripts/setup_transformers.sh" "$release" | tail -n 1):
  say "transformers $release"
  if PYTHONPATH=$folder$build/python:$KVGUARD_ROOT${PYTHONPATH:+:$PYTHONPATH} "$venv/bin/python" -m pytest tests/hf "$@"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
  fi
done
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
