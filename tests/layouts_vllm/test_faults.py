# SPDX-License-Identifier: Apache-2.0
"""Each fault of faults_*.toml on a real engine of its layout: found at its first bad step."""

from __future__ import annotations

import re
from typing import Any

import pytest
from kvguard import KVGuardError
from rig.engine import Engine
from rig.workload import load

from layouts_vllm.layouts import (
    ASYNC,
    EAGLE,
    EAGLE_ASYNC,
    MLA,
    NGRAM,
    NGRAM_ASYNC,
    POOLING,
    WINDOWS,
    Layout,
)

AFTER = 12  # steps: several requests are alive by then
MOST_STEPS = 300  # a fault whose situation does not come by then is a broken test
STEPS_BEHIND = 3  # that a run goes on behind a fault which must stay silent
WORKLOAD_SEED = 1
WORKER = "layouts_vllm.planting.FaultyGuardWorker"
FIELDS = re.compile(r"(\S+?)=(\S+)")
LAYOUTS = (WINDOWS, NGRAM, NGRAM_ASYNC, EAGLE, EAGLE_ASYNC, ASYNC, MLA, POOLING)
CASES = [(layout, fault) for layout in LAYOUTS for fault in layout.faults()]


def arrive(engine: Engine, pending: list[Any], clock: int) -> None:
    while pending and pending[0].step <= clock:
        request = pending.pop(0)
        engine.add(request.name, request.prompt, request.max_tokens)


def tokens_without(layout: Layout, steps: int) -> dict[str, tuple[int, ...]]:
    """Of an engine without guard and fault, as far as they are after some steps."""
    pending = list(load(WORKLOAD_SEED).requests)
    with layout.engine("auto", {"enabled": False}) as engine:
        for clock in range(steps):
            arrive(engine, pending, clock)
            if engine.busy:
                engine.step()
        return dict(engine.tokens)


class Run:
    """One guarded engine with one planted fault, driven until it ends or raises."""

    def __init__(self, layout: Layout, fault: str) -> None:
        guard = {"enabled": True, "action": "raise", "latch": True}
        environ = {"KVGUARD_FAULT": fault, "KVGUARD_FAULT_AFTER": str(AFTER)}
        self.error: BaseException | None = None
        self.bytes_changed = self.tokens_released = 0
        self.tokens: dict[str, tuple[int, ...]] = {}
        with layout.engine(WORKER, guard, **environ) as engine:
            session = getattr(engine.runner, "kvguard_session", None)
            assert session is not None and session.active, "the guard is not armed"
            self._drive(engine, engine.worker.kvguard_plan, session)
            self.planted = engine.worker.kvguard_plan.planted
            self.step = session.stream.step
            self.findings = session.guard.findings(0)
            self.verdict = session.guard.verdict()
            self.tokens = dict(engine.tokens)

    def _drive(self, engine: Engine, plan: Any, session: Any) -> None:
        pending = list(load(WORKLOAD_SEED).requests)
        behind = 0
        for clock in range(MOST_STEPS):
            arrive(engine, pending, clock)
            self.clock = clock
            if not engine.busy:
                continue
            before = engine.kv_snapshot() if plan.step + 1 >= AFTER else None
            tokens = sum(map(len, engine.tokens.values()))
            stood = plan.planted is not None
            found = session.guard.verdict()["violated_steps"]
            try:
                engine.step()
            except Exception as error:  # noqa: BLE001  whatever the engine raises is a result
                self.error = error
            if before is not None and session.guard.verdict()["violated_steps"] > found:
                self.bytes_changed = before.changed_bytes(engine.kv_snapshot())
            if self.error is not None:
                self.tokens_released = sum(map(len, engine.tokens.values())) - tokens
            behind += stood
            if self.error is not None or behind == STEPS_BEHIND:
                return


@pytest.mark.parametrize(
    ("layout", "fault"), CASES, ids=[f"{la.name}-{f['point']}-{f['name']}" for la, f in CASES]
)
def test_planted(layout: Layout, fault: dict[str, Any], figures: list[str]) -> None:
    run = Run(layout, fault["name"])
    what = f"fault {layout.name} {fault['point']} {fault['name']}"
    assert run.planted is not None, "the situation for this fault did not come"
    if fault["code"] == "none":
        assert run.error is None
        assert run.findings == []
        figures.append(f"{what}: step {run.planted.step}, silent, as listed")
        return
    assert isinstance(run.error, KVGuardError), f"no error reached the caller: {run.error!r}"
    line = str(run.error).splitlines()[0]
    fields = dict(FIELDS.findall(line))
    first = next(f for _, _, f in run.findings if f["first_cause"])
    assert line.startswith(f"kvguard {fault['code']} "), line
    assert f"KV{first['code']:04d}" == fault["code"]
    behind = fault.get("behind", 0)
    assert run.step == int(fields["step"]) == run.planted.step + behind, (run.planted, line)
    assert (-1 if first["group"] is None else first["group"]) == fault["group"], line
    if fault["cause"]:
        assert fault["cause"] in [kind for kind, _ in first["causes"]], line
    assert {"none": "begin"}.get(first["stage"], first["stage"]) == fault["stage"], line
    if fault.get("wrote"):
        assert run.bytes_changed > 0, "the step did not run"
        right = tokens_without(layout, run.clock + 2)
        wrong = [r for r, got in run.tokens.items() if right.get(r, ())[: len(got)] != got]
        assert wrong == [], "what was released is not from steps before it"
    else:
        assert run.bytes_changed == 0, f"{run.bytes_changed} KV bytes were written"
    assert run.tokens_released == 0, f"{run.tokens_released} tokens were released"
    assert run.verdict["verdict"] == "violated"
    figures.append(
        f"{what}: {fault['code']} at step {run.step}, steps to detection "
        f"{run.step - run.planted.step - behind}, KV bytes changed {run.bytes_changed}, "
        f"tokens released {run.tokens_released}"
    )
