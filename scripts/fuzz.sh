#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: scripts/fuzz.sh [SECONDS [TARGET...]] | --build
# Builds the fuzz targets with clang, libFuzzer and the sanitizers, and runs each for SECONDS (default 60), from its committed
# corpus. New inputs stay in the cache, so that runs go on where earlier ones ended; an input that fails is named.
# KVGUARD_FUZZ_TIMEOUT: seconds on the clock that one input may take (default 10).

KVGUARD_SCRIPT=fuzz
. "$(dirname "$0")/lib.sh"
seconds=${1:-60}
[ $# -eq 0 ] || shift
dir=$KVGUARD_ROOT/build-fuzz
# KVGUARD_FUZZ_BUILT: the caller has built the targets, and runs several at once.
[ -n "${KVGUARD_FUZZ_BUILT:-}" ] || build_for_fuzzing "$dir"
[ "$seconds" != --build ] || exit 0

passed=0
failed=0
while read -r name target corpus; do
  if [ $# -gt 0 ]; then
    case " $* " in *" $name "*) ;; *) continue ;; esac
  fi
  found=$KVGUARD_CACHE/corpus/$name
  mkdir -p "$found"
  corpora=("$found")
  [ -z "$corpus" ] || corpora+=("$corpus")
  log=$(mktemp)
  TIMEFORMAT='%U %S'
  if { time "$target" -max_total_time="$seconds" -timeout="${KVGUARD_FUZZ_TIMEOUT:-10}" -rss_limit_mb=2048 -print_final_stats=1 \
       -artifact_prefix="$found/../$name-" "${corpora[@]}" </dev/null >"$log" 2>&1; } 2>"$log.time"; then
    passed=$((passed + 1))
    printf '%s: %s inputs, coverage %s, %d processor seconds\n' "$name" \
      "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" \
      "$(grep -o 'cov: [0-9]*' "$log" | tail -n 1 | cut -d' ' -f2)" "$(awk '{ print int($1 + $2) }' "$log.time")"
  else
    failed=$((failed + 1))
    printf '%s: FAILED\n' "$name"
    tail -n 60 "$log"
  fi
  rm -f "$log" "$log.time"
done <"$dir/fuzz_targets.txt"
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
