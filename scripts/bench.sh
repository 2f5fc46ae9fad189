#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: scripts/bench.sh [ARGUMENT of bench/run.py...]
# What judging a step costs (bench/run.py, with its bounds), instruction counts against the committed ones, then the rooms' own
# benchmarks. The last line counts the parts that held.

KVGUARD_SCRIPT=bench
. "$(dirname "$0")/lib.sh"
venv=$("$KVGUARD_ROOT/scripts/setup.sh" bench | tail -n 1)
"$KVGUARD_ROOT/scripts/build.sh" build >&2
cd "$KVGUARD_ROOT"
passed=0
failed=0
part() {
  local status=0
  "$@" || status=$?
  if [ "$status" -eq 0 ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1)); say "$1 ${2:-}: ended with $status"
  fi
}
part "$venv/bin/python" bench/run.py --no-build "$@"
part "$venv/bin/python" bench/check_instructions.py
part build/kvguard_bench --benchmark_min_time=0.1
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
