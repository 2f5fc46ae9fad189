#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: scripts/check_belief.sh [--all]
# The judge of the judge: the table of public bugs, the oracle's own tests, the core against the oracle on generated programs, and
# generated healthy steps. --all: ten times the programs, and 5,000,000 healthy steps. The last line counts the parts that held.

KVGUARD_SCRIPT=belief
. "$(dirname "$0")/lib.sh"
cd "$KVGUARD_ROOT"
programs=500  # of each of seven campaigns: 3,500
healthy=2500  # programs of about 40 steps, of each of two campaigns: 200,000 steps
if [ "${1:-}" = --all ]; then
  programs=5000
  healthy=62500
  export HYPOTHESIS_PROFILE=deep  # properties on more streams, and other ones in each run
  shift
fi
[ $# -eq 0 ] || { say "usage: scripts/check_belief.sh [--all]"; exit 64; }
venv=$(scripts/setup.sh | tail -n 1)
[ -n "${KVGUARD_BUILD:-}" ] || scripts/build.sh build >&2
build=${KVGUARD_BUILD:-build}
tool=$build/tests/generate/kvguard_programs
more=full,window,chunked,zero,copy,transfer,content,dcp,state,cross,draft-pass,micro-batch,list,ring,move,cells

passed=0
failed=0
part() {  # part NAME COMMAND...: its output, and whether it held
  local name=$1 status=0
  shift
  say "$name"
  "$@" || status=$?
  if [ "$status" -eq 0 ]; then
    passed=$((passed + 1)); say "$name: ok"
  else
    failed=$((failed + 1)); say "$name: FAILED, ended with $status"
  fi
}
differential() {  # differential FIRST [TOOL_ARGUMENT...]
  local first=$1
  shift
  set -o pipefail
  "$tool" --jsonl --first "$first" --count "$programs" "$@" |
    "$venv/bin/python" oracle/differential.py --jobs "$(nproc)" ${require:+--require "$require"}
}

part "public bugs: the table" "$venv/bin/python" tests/bugs/check_cases.py
part "pages made from tables" "$venv/bin/python" scripts/make_docs.py --check --command "$build/kvguard"
part "the oracle's own tests" env KVGUARD_LIBRARY="$build/libkvguard.so" "$venv/bin/python" -m pytest -q tests/oracle
require=tests/generate/situations.txt
part "core against oracle: healthy" differential 1000000
part "core against oracle: one fault in each" differential 2000000 --mutate
require=tests/generate/situations_all.txt
part "core against oracle: every layout, healthy" differential 3000000 --features "$more"
part "core against oracle: every layout, one fault in each" differential 4000000 --mutate --features "$more"
require=
part "core against oracle: prefill context parallel, one fault in each" differential 8000000 --mutate \
  --features full,dcp,pcp
part "core against oracle: lists, rings, moves and cells, one fault in each" differential 10000000 --mutate \
  --features full,list,ring,move,cells,copy,zero,transfer,content,draft-pass,micro-batch
part "core against oracle: recurrent states, one fault in each" differential 7000000 --mutate --features full,state,content
part "healthy steps" "$tool" --healthy --first 5000000 --count "$healthy" --require tests/generate/situations.txt
part "healthy steps: prefill context parallel" "$tool" --healthy --first 9000000 --count "$((healthy / 5))" --features full,dcp,pcp
part "healthy steps: every layout" "$tool" --healthy --first 6000000 --count "$healthy" --features "$more" \
  --require tests/generate/situations_all.txt
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
