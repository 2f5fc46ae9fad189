#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: scripts/check_wheel.sh
# `pip install .` in an empty environment gives the command and the typed package; where a Debian package is missing, the error
# names it.

KVGUARD_SCRIPT=wheel
. "$(dirname "$0")/lib.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0
check() {  # check NAME COMMAND...: its output is shown where it fails
  local name=$1
  shift
  if "$@" >"$work/log" 2>&1; then
    passed=$((passed + 1)); printf 'ok      %s\n' "$name"
  else
    failed=$((failed + 1)); printf 'FAILED  %s\n' "$name"; tail -n 30 "$work/log"
  fi
}
finish() { printf '%d passed, %d failed\n' "$passed" "$failed"; [ "$failed" -eq 0 ]; exit; }

names_the_package() {  # headers hidden from CMake: what a system without the packages looks like
  ! CMAKE_ARGS=-DCMAKE_IGNORE_PATH=/usr/include "$work/venv/bin/python" -m pip install --no-input "$KVGUARD_ROOT" >"$work/missing" 2>&1 || return 1
  cat "$work/missing"
  tr -s ' \n' ' ' <"$work/missing" | grep -q 'Debian packages are missing: .*libzstd-dev'
}
typed_and_versioned() {
  "$work/venv/bin/python" - "$("$work/venv/bin/kvguard" --version)" <<'PYTHON'
import importlib.metadata, pathlib, sys
import kvguard
version = importlib.metadata.version("kvguard")
assert version == kvguard.__version__, (version, kvguard.__version__)
assert version in sys.argv[1], (version, sys.argv[1])
folder = pathlib.Path(kvguard.__file__).parent
assert (folder / "py.typed").is_file()
assert pathlib.Path(kvguard._core.__file__).parent == folder
PYTHON
}

cd "$work"
"$KVGUARD_PYTHON" -m venv "$work/venv"
check "without the Debian packages: the error names them" names_the_package
check "pip install . in an empty environment" "$work/venv/bin/python" -m pip install --no-input "$KVGUARD_ROOT"
check "the command answers" "$work/venv/bin/kvguard" --version
check "the package has its module, types and version" typed_and_versioned
check "exported symbols" "$KVGUARD_ROOT/scripts/check_symbols.sh" "$work"/venv/lib/python3*/site-packages/kvguard/_core*.so
finish
