# SPDX-License-Identifier: Apache-2.0
"""`make demo-vllm`: a real vLLM engine on this CPU under the guard, healthy and then not.

usage: demo_live.py [--requests N]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

# What the guard logs is shown below, once; vLLM's own log would show it a second time.
os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kvguard import KVGuardError

from rig import scene_49250, workload
from rig.engine import Engine

GUARD = "kvguard.vllm.GuardWorker"


def say(text: str = "") -> None:
    print(text, flush=True)


def config(folder: str, action: str = "raise") -> dict[str, Any]:
    return {"kv_guard_config": {"enabled": True, "action": action, "incident_dir": folder}}


def counts(verdict: dict[str, Any]) -> str:
    return (
        f"{verdict['verdict']}: {verdict['steps']} steps, {verdict['rows']} rows, "
        f"{verdict['slots']} write slots, {verdict['entries']} table entries"
    )


def healthy(folder: str, requests: int) -> bool:
    say("1  A healthy engine: requests of a public trace, 20 blocks, preemptions and prefix hits")
    with Engine(worker_cls=GUARD, additional_config=config(folder)) as engine:
        result = engine.run(workload.load(0, requests=requests))
        verdict = engine.runner.kvguard_session.guard.verdict()
    say(
        f"   {result.steps} steps, {result.preemptions} preemptions, {result.prefix_hits} prefix "
        f"hits, {result.aborts} aborts"
    )
    say(f"   {counts(verdict)}")
    return verdict["verdict"] == "clean"


def planted(folder: str, requests: int) -> bool:
    say()
    say("2  The same engine with a table entry zeroed below the guard, in step 12")
    environ = {"KVGUARD_FAULT": "table-entry-zeroed", "KVGUARD_FAULT_AFTER": "12"}
    worker = "slice.planting.FaultyGuardWorker"
    with Engine(worker_cls=worker, additional_config=config(folder), environ=environ) as engine:
        try:
            engine.run(workload.load(0, requests=requests))
        except KVGuardError as error:
            say("   the caller gets an error, never the tokens:")
            say("   " + str(error).replace("\n", "\n   "))
            return "KV0302" in str(error)
    say("   the fault was not found")
    return False


def real_fault(folder: str) -> bool:
    say()
    say("3  A real fault of this release, vllm #49250: a KV load fails (log mode)")
    found: list[str] = []

    def look(engine: Engine) -> None:
        findings = engine.runner.kvguard_session.guard.findings(0)
        found[:] = [f"{line}\n{prose}" for line, prose, _ in findings[:4]]

    scene_49250.run_scene(
        True, worker_cls=GUARD, additional_config=config(folder, "log"), observe=look
    )
    for text in found:
        say("   " + text.replace("\n", "\n   "))
    return bool(found) and found[0].startswith("kvguard KV0901 ")


def incidents(folder: str) -> None:
    command = os.environ.get("KVGUARD_COMMAND")
    files = sorted(Path(folder).glob("*.kvtrace"))
    if not command or not files:
        return
    say()
    say("4  The incident file that the last of them left, explained")
    text = subprocess.run(
        [command, "explain", str(files[-1])], capture_output=True, text=True, check=False
    ).stdout
    say("   " + "\n   ".join(text.splitlines()[:16]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=12, help="of the trace (default: 12)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kvguard-demo-") as folder:
        good = [
            healthy(folder, arguments.requests),
            planted(folder, arguments.requests),
            real_fault(folder),
        ]
        incidents(folder)
    say()
    say(f"{sum(good)} of {len(good)} as they should be")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
