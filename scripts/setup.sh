#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: scripts/setup.sh [fuzz] [bench]
# Installs what is missing to build and test: Debian packages (requirements/apt.txt) and the tools environment
# (requirements/tools.txt). The last line of stdout is the path of that environment. Where nothing is missing it says nothing.

KVGUARD_SCRIPT=setup
. "$(dirname "$0")/lib.sh"

groups=(build)
for group in "$@"; do
  case $group in
    fuzz|bench) groups+=("$group") ;;
    *) say "unknown group '$group': fuzz and bench are the ones there are"; exit 64 ;;
  esac
done

# A python3 of one's own (pyenv, conda) brings headers and venv along.
if ! "$KVGUARD_PYTHON" -c '
import ensurepip, os, sys, sysconfig, venv
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' 2>/dev/null; then
  groups+=(python)
fi

# One dpkg query for all packages: the usual run finds nothing missing and must cost nothing.
wanted=()
section=""
while read -r first rest; do
  case $first in
    ''|'#'*) continue ;;
    '['*) section=${first//[][]/}; continue ;;
  esac
  case " ${groups[*]} " in *" $section "*) ;; *) continue ;; esac
  case $rest in
    cmd=*) program=${rest#cmd=}; program=${program%% *}
           command -v "$program" >/dev/null && continue ;;
  esac
  wanted+=("$first")
done <"$KVGUARD_ROOT/requirements/apt.txt"

missing=()
if [ ${#wanted[@]} -gt 0 ]; then
  if ! command -v dpkg-query >/dev/null; then
    say "this is not a Debian system; make sure that it has what these packages give: ${wanted[*]}"
  else
    installed=$(dpkg-query -W -f '${Package} ${Status}\n' "${wanted[@]}" 2>/dev/null | sed -n 's/ install ok installed$//p') || true
    for package in "${wanted[@]}"; do
      grep -qxF "$package" <<<"$installed" || missing+=("$package")
    done
  fi
fi
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" -ne 0 ]; then
    die "these Debian packages are missing: ${missing[*]}. Install them as root: apt-get install --no-install-recommends ${missing[*]}"
  fi
  say "installing Debian packages: ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  log=$(mktemp)
  if ! { apt-get update && apt-get install -y --no-install-recommends "${missing[@]}"; } </dev/null >"$log" 2>&1; then
    tail -n 25 "$log" >&2
    rm -f "$log"
    die "apt-get could not install: ${missing[*]} (the lines above are the end of what it said)"
  fi
  rm -f "$log"
fi

"$KVGUARD_PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  die "$KVGUARD_PYTHON is $("$KVGUARD_PYTHON" --version 2>&1); kvguard needs 3.11 or newer. Set KVGUARD_PYTHON to another one"

pins=$KVGUARD_ROOT/requirements/tools.txt
venv=$KVGUARD_CACHE/tools-$(venv_key "$pins")
if ! "$venv/bin/python" -c '' 2>/dev/null; then
  if [ -e "$venv" ]; then
    say "the tools environment's interpreter is gone; making it again"
    rm -rf "$venv"
  fi
  say "making the tools environment $venv"
  make_venv "$venv" tools --no-deps -r "$pins"
fi
printf '%s\n' "$venv"
