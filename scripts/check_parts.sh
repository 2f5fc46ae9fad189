#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: scripts/check_parts.sh [--all] [PYTEST_ARGUMENT...]
# Parts of a real vLLM, alone, in the rig's environment: its scheduler's streams hold no finding, and the slot kernels of two
# releases make the addresses that the guard expects, or the fault that is known of one of them. --all: the scheduler's streams
# of three seeds and 5,000 steps instead of one and 2,500, and nothing else.

KVGUARD_SCRIPT=check-parts
. "$(dirname "$0")/lib.sh"
if [ "${1:-}" = --all ]; then
  shift
  set -- -k test_scheduler --seeds 3 --steps 5000 "$@"
fi
build=${KVGUARD_BUILD:-$KVGUARD_ROOT/build}
[ -n "${KVGUARD_BUILD:-}" ] || "$KVGUARD_ROOT/scripts/build.sh" build >&2
venv=$("$KVGUARD_ROOT/scripts/setup_vllm.sh" | tail -n 1)
KVGUARD_OLD_VLLM=$("$KVGUARD_ROOT/scripts/setup_old_vllm.sh" | tail -n 1)
export KVGUARD_OLD_VLLM
cd "$KVGUARD_ROOT"
PYTHONPATH=$build/python:$KVGUARD_ROOT${PYTHONPATH:+:$PYTHONPATH} exec "$venv/bin/python" -m pytest tests/parts -s "$@"
