# SPDX-License-Identifier: Apache-2.0
"""Before the engine runs: the doctor's probes on the real classes, and the self-test at arming."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from rig import environment
from rig.engine import Engine

from slice import command


def test_the_doctor_finds_a_vllm_that_can_be_guarded(figures: list[str]) -> None:
    done = subprocess.run(
        [command.path(), "doctor", "--json", "--engine", "vllm", "--python", sys.executable],
        env=environment.child_environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)["python"]["answer"]
    assert answer["kvguard"]["self_test"] == "passed"
    probes = {probe["name"]: probe["passed"] for probe in answer["vllm"]["probes"]}
    assert len(probes) == 8
    assert all(probes.values()), answer["vllm"]["probes"]
    figures.append(f"doctor: vllm {answer['vllm']['version']}, {len(probes)} probes pass")


def test_the_self_test_at_arming(capfd: pytest.CaptureFixture[str], figures: list[str]) -> None:
    guard = {"enabled": True, "action": "raise", "self_test": True}
    with Engine(
        worker_cls="kvguard.vllm.GuardWorker", additional_config={"kv_guard_config": guard}
    ) as engine:
        engine.add("r", list(range(5, 45)), 4)
        while engine.busy:
            engine.step()
        verdict = engine.runner.kvguard_session.guard.verdict()
    said = [line for line in capfd.readouterr().err.splitlines() if "kvguard: armed" in line]
    assert said and " self-test=planted faults of " in said[0], said
    assert verdict["verdict"] == "clean"
    figures.append(said[0].partition(" gaps=")[2])
