# SPDX-License-Identifier: Apache-2.0
"""A healthy engine under the guard: clean, with the same tokens as without it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rig.engine import Engine, RunResult
from rig.workload import load

SEEDS = (0, 1, 2)
GUARD = "kvguard.vllm.GuardWorker"
STANDING_GAPS = Path(__file__).parent / "standing_gaps.json"


def run(seed: int, guarded: bool, record: Path | None = None) -> tuple[RunResult, dict[str, Any]]:
    config: dict[str, Any] = {"enabled": guarded, "action": "raise"}
    if record is not None:
        config["record"] = str(record)
    worker = GUARD if guarded else "auto"
    with Engine(worker_cls=worker, additional_config={"kv_guard_config": config}) as engine:
        result = engine.run(load(seed))
        if not guarded:
            return result, {}
        guard = engine.runner.kvguard_session.guard
        account = {
            "verdict": guard.verdict(),
            "gaps": guard.gaps(),
            "findings": guard.findings(0),
            "coverage": guard.coverage(),
        }
    return result, account


@pytest.mark.parametrize("seed", SEEDS)
def test_clean_with_equal_tokens(seed: int, tmp_path: Path, figures: list[str]) -> None:
    off, _ = run(seed, guarded=False)
    on, account = run(seed, guarded=True, record=tmp_path / "run.kvtrace")
    verdict = account["verdict"]
    assert account["findings"] == []
    assert verdict["verdict"] == "clean", (verdict, account["gaps"])
    assert on.tokens == off.tokens
    assert on.steps == off.steps >= 150
    assert on.preemptions >= 8
    assert on.prefix_hits > 0
    assert on.aborts > 0
    standing = sorted(g["name"] for g in account["gaps"] if g["standing"])
    assert standing == json.loads(STANDING_GAPS.read_text(encoding="utf-8"))
    assert [g for g in account["gaps"] if not g["standing"]] == []
    assert verdict["suspicions"] == 0
    judged = {(c["stage"], c["family"]) for c in account["coverage"] if c["judged"]}
    for family in ("step", "table", "slot", "length"):
        assert ("planned", family) in judged
        assert ("final", family) in judged
    figures.append(
        f"healthy seed {seed}: {on.steps} steps, {on.preemptions} preemptions, "
        f"{on.prefix_hits} prefix hits, "
        f"{on.aborts} aborts; clean, {verdict['rows']} rows, "
        f"{verdict['slots']} slots, {verdict['entries']} entries; "
        f"tokens equal to guard off; ms/step off {off.ms_per_step:.1f}, on {on.ms_per_step:.1f}; "
        f"trace {(tmp_path / 'run.kvtrace').stat().st_size} bytes"
    )
