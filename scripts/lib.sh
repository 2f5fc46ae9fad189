# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by the other scripts: where things are, and how they speak. stdout is a script's result, stderr its progress.

set -euo pipefail

KVGUARD_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
KVGUARD_CACHE=${KVGUARD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kvguard}
KVGUARD_JOBS=${KVGUARD_JOBS:-$(nproc)}
KVGUARD_PYTHON=${KVGUARD_PYTHON:-python3}
export KVGUARD_CACHE KVGUARD_JOBS KVGUARD_PYTHON
# A build folder that the caller names is found from every folder that a test works in.
[ -z "${KVGUARD_BUILD:-}" ] || { KVGUARD_BUILD=$(realpath "$KVGUARD_BUILD"); export KVGUARD_BUILD; }

say() { printf '%s: %s\n' "${KVGUARD_SCRIPT:-kvguard}" "$*" >&2; }
die() { say "$*"; exit 1; }

# venv_key PINS...: what names an environment: the interpreter, this machine's kind and the pins.
venv_key() {
  { "$KVGUARD_PYTHON" -c 'import os, platform, sys; print(sys.version, platform.machine(), os.path.realpath(sys.executable))'
    cat "$@"; } | sha256sum | cut -c1-12
}

# make_venv DIR LOG_NAME PIP_ARGUMENTS...: an environment at DIR. It is made beside DIR and renamed, so that one that was
# interrupted is never used, and two at once do not meet: who comes second takes the first one's.
make_venv() {
  local dir=$1 name=$2 temporary log
  shift 2
  mkdir -p "$KVGUARD_CACHE"
  temporary=$(mktemp -d "$KVGUARD_CACHE/.making-$name-XXXXXX")
  chmod 755 "$temporary"   # mktemp makes it private
  log=$temporary.log
  if ! { "$KVGUARD_PYTHON" -m venv "$temporary" &&
         "$temporary/bin/python" -m pip install --disable-pip-version-check --no-input "$@"; } >"$log" 2>&1; then
    tail -n 25 "$log" >&2
    rm -rf "$temporary" "$log"
    die "the environment $name could not be made (the lines above are the end of what pip said)"
  fi
  # An environment carries its own path in the first line of its scripts and in bin/activate*.
  grep -rIlF "$temporary" "$temporary/bin" "$temporary/pyvenv.cfg" | xargs -r sed -i "s|$temporary|$dir|g"
  rm -f "$log"
  if ! mv -T "$temporary" "$dir" 2>/dev/null; then
    rm -rf "$temporary"
    [ -x "$dir/bin/python" ] || die "$dir exists and is not an environment: remove it and try again"
  fi
}

# build_for_fuzzing DIR: everything but the Python module with clang, libFuzzer and the address and undefined sanitizers.
build_for_fuzzing() {
  "$KVGUARD_ROOT/scripts/setup.sh" fuzz >/dev/null
  CC=clang-19 CXX=clang++-19 "$KVGUARD_ROOT/scripts/build.sh" "$1" \
    -DKVGUARD_FUZZ=ON -DKVGUARD_PYTHON=OFF -DKVGUARD_SANITIZE=address,undefined >&2
}
