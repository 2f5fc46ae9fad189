#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: scripts/build.sh [DIR [CMAKE_OPTION...]]
# Sets up what is missing, then configures and builds everything into DIR (default: build) as a developer: libraries, command,
# extension module, tests, benchmarks, examples.

KVGUARD_SCRIPT=build
. "$(dirname "$0")/lib.sh"

dir=${1:-build}
[ $# -eq 0 ] || shift
venv=$("$KVGUARD_ROOT/scripts/setup.sh" | tail -n 1)
case $dir in /*) ;; *) dir=$KVGUARD_ROOT/$dir ;; esac

# A second build of the same sources is quick where a developer has ccache; nothing needs it.
if command -v ccache >/dev/null; then
  export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! cmake -S "$KVGUARD_ROOT" -B "$dir" -G Ninja -DKVGUARD_DEVELOPER_MODE=ON -DKVGUARD_PYTHON=ON \
     -DPython_EXECUTABLE="$venv/bin/python" "$@" >"$log" 2>&1; then
  cat "$log" >&2
  die "configuring $dir failed"
fi
# KVGUARD_TARGETS: only these, for who needs no more.
cmake --build "$dir" -j "$KVGUARD_JOBS" ${KVGUARD_TARGETS:+--target $KVGUARD_TARGETS}
