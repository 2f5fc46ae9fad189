# SPDX-License-Identifier: Apache-2.0
"""vLLM's own Scheduler decides, the guard folds: 5,000 steps of each layout without a finding."""

from __future__ import annotations

from typing import Any

import pytest

STEPS = 5000
LAYOUTS = ["full", "async", "window", "chunked", "connector"]


@pytest.fixture(scope="module")
def lines(run_part: Any) -> dict[str, dict[str, Any]]:
    return {line["layout"]: line for line in run_part("schedule.py", "--steps", str(STEPS))}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_its_stream_holds_no_finding(lines: dict[str, dict[str, Any]], layout: str) -> None:
    line = lines[layout]
    print(line)
    assert (line["proofs"], line["suspicions"], line["findings"]) == (0, 0, [])
    assert line["steps"] == STEPS
    # No plan is shown here, and nothing else may be missing.
    assert line["gaps"] == ["slots-not-presented", "table-not-presented"]
    seen = line["seen"]
    assert seen["preempted"] >= 50, seen
    assert seen["prefix_hits"] >= 200, seen
    assert seen["aborted"] >= 50, seen
    assert seen["finished"] >= 500, seen
