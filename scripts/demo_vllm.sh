#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: scripts/demo_vllm.sh [ARGUMENT of tests/rig/demo_live.py...]
# The demonstration on a live engine: a real vLLM with its V2 model runner on this CPU, healthy and with a fault.

KVGUARD_SCRIPT=demo-vllm
. "$(dirname "$0")/lib.sh"
"$KVGUARD_ROOT/scripts/build.sh" build >&2
venv=$("$KVGUARD_ROOT/scripts/setup_vllm.sh" | tail -n 1)
cd "$KVGUARD_ROOT"
PYTHONPATH=$KVGUARD_ROOT/build/python:$KVGUARD_ROOT${PYTHONPATH:+:$PYTHONPATH} \
  KVGUARD_COMMAND=$KVGUARD_ROOT/build/kvguard exec "$venv/bin/python" tests/rig/demo_live.py "$@"
