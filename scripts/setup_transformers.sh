#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: scripts/setup_transformers.sh [RELEASE]
# Makes the environment of tests/hf where it is missing (1.2 GB): torch for a CPU and transformers. With a RELEASE, a
# folder of tests/hf/releases/RELEASE.txt besides, which a test puts in front on PYTHONPATH. The last line of stdout is
# the path of what was asked for: the environment, or that folder. Where nothing is missing it says nothing.

KVGUARD_SCRIPT=setup-transformers
. "$(dirname "$0")/lib.sh"

pins=$KVGUARD_ROOT/tests/hf/requirements.txt
venv=$KVGUARD_CACHE/transformers-$(venv_key "$pins")
if ! "$venv/bin/python" -c '' 2>/dev/null; then
  rm -rf "$venv"
  say "making the environment $venv"
  make_venv "$venv" transformers --no-deps -r "$pins"
  # Read, not imported: without the CUDA libraries, which --no-deps leaves out, such a torch does not import.
  cuda=$("$venv/bin/python" -c '
import runpy, sysconfig
print(runpy.run_path(sysconfig.get_path("platlib") + "/torch/version.py")["cuda"] or "")')
  if [ -n "$cuda" ]; then
    rm -rf "$venv"
    die "pip chose a torch for CUDA $cuda; these tests run on a CPU and take the CPU build of the same version." \
        "Tell pip where CPU builds are, by PIP_EXTRA_INDEX_URL=<an index of CPU builds> or PIP_FIND_LINKS=<a folder with that wheel>, and run this again"
  fi
fi
if [ $# -eq 0 ]; then
  printf '%s\n' "$venv"
  exit 0
fi

release=$KVGUARD_ROOT/tests/hf/releases/$1.txt
[ -f "$release" ] || die "there is no $release"
folder=$KVGUARD_CACHE/transformers-$1-$(venv_key "$pins" "$release")
if [ ! -d "$folder" ]; then
  say "fetching transformers $1 into $folder"
  temporary=$(mktemp -d "$KVGUARD_CACHE/.making-transformers-XXXXXX")
  trap 'rm -rf "$temporary"' EXIT
  if ! "$venv/bin/python" -m pip install --disable-pip-version-check --no-input --no-deps --target "$temporary/sources" \
      -r "$release" >"$temporary/log" 2>&1; then
    tail -n 25 "$temporary/log" >&2
    die "release $1 could not be fetched (the lines above are the end of what pip said)"
  fi
  chmod 755 "$temporary/sources"
  mv -T "$temporary/sources" "$folder" 2>/dev/null || [ -d "$folder" ]   # who comes second takes the first one's
fi
printf '%s\n' "$folder"
