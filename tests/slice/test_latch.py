# SPDX-License-Identifier: Apache-2.0
"""After the first violation in raise mode every step fails the same way and costs no memory."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from kvguard import KVGuardError
from rig.engine import Engine
from rig.workload import load

REPEATS = 10_000
SETTLED = 1_000
MOST_GROWTH = 1 << 20  # bytes between repeat SETTLED and REPEATS


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096


def drive_until_violated(engine: Engine, outputs: list[bytes]) -> KVGuardError:
    """Plays the workload; keeps every SchedulerOutput as the worker got it."""
    worker = engine.worker
    inner = worker.execute_model

    def keep(output: Any) -> Any:
        outputs.append(pickle.dumps(output))
        return inner(output)

    worker.execute_model = keep  # of this instance
    try:
        with pytest.raises(KVGuardError) as caught:
            engine.run(load(0))
    finally:
        del worker.execute_model
    return caught.value


def test_latched_for_good(figures: list[str]) -> None:
    environ = {"KVGUARD_FAULT": "table-entry-zeroed", "KVGUARD_FAULT_AFTER": "12"}
    config = {"kv_guard_config": {"enabled": True, "action": "raise", "latch": True}}
    worker_cls = "slice.planting.FaultyGuardWorker"
    outputs: list[bytes] = []
    with Engine(worker_cls=worker_cls, additional_config=config, environ=environ) as engine:
        first = drive_until_violated(engine, outputs)
        assert len(outputs) >= 12
        verdict = engine.runner.kvguard_session.guard.verdict()
        pool = engine.kv_snapshot()
        settled = 0
        for repeat in range(REPEATS):
            output = pickle.loads(outputs[repeat % len(outputs)])
            with pytest.raises(KVGuardError) as caught:
                engine.worker.execute_model(output)
            assert str(caught.value) == str(first)
            if repeat + 1 == SETTLED:
                settled = resident_bytes()
        growth = resident_bytes() - settled
        assert growth < MOST_GROWTH, (
            f"{growth} bytes more after {REPEATS} repeats than after {SETTLED}"
        )
        assert pool.changed_bytes(engine.kv_snapshot()) == 0
        after = engine.runner.kvguard_session.guard.verdict()
    assert after["violated_steps"] == verdict["violated_steps"] == 1
    figures.append(
        f"latch: {REPEATS} steps after the first violation failed the same way; "
        f"RSS grew {growth} bytes between "
        f"repeat {SETTLED} and {REPEATS}"
    )
