# SPDX-License-Identifier: Apache-2.0
"""Each fault of faults.toml on the real engine: found at its first bad step."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from kvguard import KVGuardError
from rig.engine import Engine
from rig.workload import load

FAULTS = tomllib.loads((Path(__file__).parent / "faults.toml").read_text(encoding="utf-8"))["fault"]
AFTER = 12  # steps: several requests are alive by then
MOST_STEPS = 120  # a fault whose situation does not come by then is a broken test
WORKLOAD_SEED = 0
WORKER = "slice.planting.FaultyGuardWorker"

FIELDS = re.compile(r"(\S+?)=(\S+)")


def test_the_list_has_three_kinds_at_each_point() -> None:
    for point in "abcd":
        assert sum(f["point"] == point for f in FAULTS) >= 3
    assert sum(f["code"] != "none" for f in FAULTS) >= 12
    assert sum(f["code"] == "none" for f in FAULTS) == 1


class Run:
    """One engine with one planted fault, driven until it ends or raises."""

    def __init__(self, fault: dict[str, Any], guarded: bool, action: str = "raise") -> None:
        environ = {
            "KVGUARD_FAULT": fault["name"],
            "KVGUARD_FAULT_AFTER": str(fault.get("after", AFTER)),
        }
        config = {"kv_guard_config": {"enabled": guarded, "action": action, "latch": True}}
        self.error: BaseException | None = None
        self.bytes_changed = 0
        self.tokens_released = 0
        self.owner_blocks_hit = 0
        with Engine(worker_cls=WORKER, additional_config=config, environ=environ) as engine:
            plan = engine.worker.kvguard_plan
            assert not guarded or engine.runner.kvguard_session.active, "the guard is not armed"
            self._drive(engine, plan)
            self.planted = plan.planted
            session = getattr(engine.runner, "kvguard_session", None)
            self.step = session.stream.step if session is not None and guarded else plan.step
            guard = session.guard if session is not None and guarded else None
            self.findings = guard.findings(0) if guard is not None else []
            self.verdict = guard.verdict() if guard is not None else None

    def _drive(self, engine: Engine, plan: Any) -> None:
        """Runs to the end of the step with the fault, and three more where nothing raises."""
        workload = load(WORKLOAD_SEED)
        pending = list(workload.requests)
        left = 3
        for clock in range(MOST_STEPS):
            while pending and pending[0].step <= clock:
                request = pending.pop(0)
                engine.add(request.name, request.prompt, request.max_tokens)
            if not engine.busy:
                continue
            before = engine.kv_snapshot() if plan.step + 1 >= AFTER else None
            tokens = sum(map(len, engine.tokens.values()))
            hit = plan.planted is not None
            try:
                engine.step()
            except Exception as error:  # noqa: BLE001  whatever the engine raises is a result
                self.error = error
            if before is not None and plan.planted is not None and not hit:
                self.bytes_changed = before.changed_bytes(engine.kv_snapshot())
                self.tokens_released = sum(map(len, engine.tokens.values())) - tokens
            if self.error is not None:
                return
            if hit:
                left -= 1
                if left == 0:
                    return


@pytest.mark.parametrize("fault", FAULTS, ids=[f"{f['point']}-{f['name']}" for f in FAULTS])
def test_planted(fault: dict[str, Any], figures: list[str]) -> None:
    run = Run(fault, guarded=True)
    assert run.planted is not None, "the situation for this fault did not come"
    if fault["code"] == "none":
        assert run.error is None, f"an undecidable fault was reported: {run.error}"
        assert not run.findings
        figures.append(f"fault {fault['point']} {fault['name']}: undecidable, silent, as listed")
        return
    assert isinstance(run.error, KVGuardError), f"no error reached the caller: {run.error!r}"
    line = str(run.error).splitlines()[0]
    fields = dict(FIELDS.findall(line))
    first = run.findings[0][2]
    assert line.startswith(f"kvguard {fault['code']} "), line
    assert f"KV{first['code']:04d}" == fault["code"]
    assert int(fields["step"]) == run.planted.step, f"planted in step {run.planted.step}: {line}"
    assert run.step == run.planted.step
    if fault["cause"]:
        named = [c.split(":")[0] for c in fields.get("cause", "").split(",")]
        assert fault["cause"] in named, line
    stages = {0: "begin", 1: "planned", 2: "final", "none": "begin"}
    stage = first["stage"]
    assert stages.get(stage, stage) == fault["stage"], line
    assert run.bytes_changed == 0, f"{run.bytes_changed} KV bytes were written"
    assert run.tokens_released == 0, f"{run.tokens_released} tokens were released"
    assert run.verdict["verdict"] == "violated"
    figures.append(
        f"fault {fault['point']} {fault['name']}: {fault['code']} at step {run.planted.step}, "
        f"steps to detection {int(fields['step']) - run.planted.step}, "
        f"KV bytes changed {run.bytes_changed}, "
        f"tokens released {run.tokens_released}"
    )
