# SPDX-License-Identifier: Apache-2.0
"""One layout with the guard off and on: the same tokens, and an account without a hole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rig.engine import Engine, RunResult
from rig.workload import Workload

from layouts_vllm.layouts import Layout

GUARD = "kvguard.vllm.GuardWorker"
Watch = Callable[[Engine], None]


@dataclass
class Account:
    """What a guarded run came to."""

    result: RunResult
    verdict: dict[str, Any]
    gaps: list[dict[str, Any]]
    findings: list[Any]
    coverage: list[dict[str, Any]]
    status: dict[str, Any]
    report: str

    def judged(self, stage: str, family: str, group: int | None = None) -> int:
        """Facts of a family that were judged at a stage of the target pass."""
        rows = [c for c in self.coverage if c["group"] == group and c["pass"] == "target"]
        return sum(c["judged"] for c in rows if (c["stage"], c["family"]) == (stage, family))


def run_off(layout: Layout, workload: Workload) -> RunResult:
    with layout.engine("auto", {"enabled": False}) as engine:
        return engine.run(workload)


def run_on(layout: Layout, workload: Workload, after_step: Watch | None = None) -> Account:
    with layout.engine(GUARD, {"enabled": True, "action": "raise"}) as engine:
        session = getattr(engine.runner, "kvguard_session", None)
        assert session is not None and session.active, "the guard is not armed"
        result = engine.run(workload, after_step=after_step)
        guard = session.guard
        life = engine.worker._kvguard
        return Account(
            result,
            guard.verdict(),
            guard.gaps(),
            guard.findings(0),
            guard.coverage(),
            life.compose(),
            life.coverage_report(),
        )


def check(layout: Layout, off: RunResult, on: Account) -> None:
    """Clean, with equal tokens, the declared gaps and no other, and every group judged twice."""
    assert on.findings == []
    assert on.verdict["verdict"] == "clean", (on.verdict, on.gaps)
    assert on.verdict["suspicions"] == 0
    assert on.result.tokens == off.tokens
    assert on.result.steps == off.steps
    assert sorted(g["name"] for g in on.gaps if g["standing"]) == layout.standing_gaps
    assert [g for g in on.gaps if not g["standing"]] == []
    groups = {c["group"] for c in on.coverage if c["group"] is not None}
    for stage in ("planned", "final"):
        for family in ("step", "length", "frontier"):
            assert on.judged(stage, family) > 0, (stage, family)
        for group in groups:
            for family in ("table", "slot"):
                assert on.judged(stage, family, group) > 0, (stage, family, group)


def figures_of(on: Account) -> str:
    r, v = on.result, on.verdict
    return (
        f"{r.steps} steps, {r.preemptions} preemptions, {r.prefix_hits} prefix hits, "
        f"{r.aborts} aborts; clean, {v['rows']} rows, {v['slots']} slots, {v['entries']} entries, "
        f"suspicions {v['suspicions']}, assumptions {v['assumptions']}; tokens equal to guard off"
    )
