#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: scripts/newcomer.sh
# What somebody meets who has just cloned the project: a fresh clone of what is committed, no caches, `make demo` within 10 minutes,
# `make test` within 45, and `pip install .` in an empty environment. Debian packages that this system has are not removed.

KVGUARD_SCRIPT=newcomer
. "$(dirname "$0")/lib.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0
within() {  # within MINUTES NAME COMMAND...
  local limit=$1 name=$2 start=$SECONDS status=0 minutes
  shift 2
  timeout --kill-after=30 "$((limit * 60))" "$@" </dev/null 2>&1 | tee "$work/last" || status=$?
  minutes=$(awk -v s=$((SECONDS - start)) 'BEGIN { printf "%.1f", s / 60 }')
  if [ "$status" -eq 0 ]; then
    passed=$((passed + 1)); summary+="ok      $name: $minutes of $limit minutes"$'\n'
  elif [ "$status" -eq 124 ] || [ "$status" -eq 137 ]; then
    failed=$((failed + 1)); summary+="FAILED  $name: not done after $limit minutes"$'\n'
  else
    failed=$((failed + 1)); summary+="FAILED  $name: ended with $status after $minutes minutes"$'\n'
  fi
}
summary=""

git -C "$KVGUARD_ROOT" diff --quiet HEAD 2>/dev/null || say "what is not committed is not part of the clone"
git clone --quiet "$KVGUARD_ROOT" "$work/kvguard"
export KVGUARD_CACHE=$work/cache XDG_CACHE_HOME=$work/xdg PIP_NO_CACHE_DIR=1
unset KVGUARD_BUILD
cd "$work/kvguard"
within 10 "make demo" make demo
within 45 "make test" make test
within 10 "pip install ." scripts/check_wheel.sh
printf '\n%s%d passed, %d failed\n' "$summary" "$passed" "$failed"
[ "$failed" -eq 0 ]
