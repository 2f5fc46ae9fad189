#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: scripts/setup_old_vllm.sh
# Fetches the Python sources of the vLLM that tests/parts/requirements.txt names (a download of 113 MB, 36 MB are kept). Nothing of
# it is installed: a test puts the folder in front on PYTHONPATH. The last line of stdout is that folder.

KVGUARD_SCRIPT=setup-old-vllm
. "$(dirname "$0")/lib.sh"

if [ $# -gt 0 ]; then
  say "takes no argument, was given '$1'"
  exit 64
fi

pins=$KVGUARD_ROOT/tests/parts/requirements.txt
folder=$KVGUARD_CACHE/vllm-sources-$(venv_key "$pins")
if [ ! -d "$folder" ]; then
  say "fetching $(sed -n 's/^\([a-z][^ ]*\).*/\1/p' "$pins") for its sources (113 MB)"
  tools=$("$KVGUARD_ROOT/scripts/setup.sh" | tail -n 1)
  mkdir -p "$KVGUARD_CACHE"
  temporary=$(mktemp -d "$KVGUARD_CACHE/.making-old-vllm-XXXXXX")
  trap 'rm -rf "$temporary"' EXIT
  if ! "$tools/bin/python" -m pip download --disable-pip-version-check --no-input --no-deps --only-binary :all: \
      --dest "$temporary" -r "$pins" >"$temporary/log" 2>&1; then
    tail -n 15 "$temporary/log" >&2
    die "the wheel could not be fetched (the lines above are the end of what pip said)"
  fi
  "$tools/bin/python" - "$temporary" <<'PYTHON'
import sys, zipfile
from pathlib import Path

folder = Path(sys.argv[1])
(wheel,) = folder.glob("*.whl")
with zipfile.ZipFile(wheel) as archive:
    archive.extractall(
        folder / "sources", [n for n in archive.namelist() if n.startswith("vllm/") and n.endswith(".py")]
    )
PYTHON
  chmod 755 "$temporary/sources"
  mv -T "$temporary/sources" "$folder" 2>/dev/null || [ -d "$folder" ]   # who comes second takes the first one's
fi
printf '%s\n' "$folder"
