# SPDX-License-Identifier: Apache-2.0
"""What is believed of prefill context parallelism, against the real managers of two vLLM releases.

0.28.0 makes layout 1 (its sources come from scripts/setup_old_vllm.sh), 0.32.0 makes layout 3. Of
0.30, which layout 2 is named after, no sources are at hand: layout 2 is what 0.32.0's manager makes
where it is told to give no row to one rank, and whether 0.30 made the same is not shown here.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import pytest

Line = dict[str, Any]
BATCHES = 150
# What the batches of each layout must hold at least of.
HELD = {
    "prefills": 200,
    "with context": 60,
    "chunked": 60,
    "with an empty chunk": 60,
    "without an empty chunk": 60,
    "decodes": 300,
    "dummies": 15,
}
# 0.28.0 refuses drafts and graphs beside this.
HELD_BY_THE_CURRENT = HELD | {"with drafts": 200, "padded for a graph": 30}


@pytest.fixture(scope="module")
def current(run_part: Any) -> list[Line]:
    return run_part("drive_pcp.py")


@pytest.fixture(scope="module")
def old(run_part: Any) -> list[Line]:
    sources = os.environ.get("KVGUARD_OLD_VLLM")
    if sources is None:
        pytest.skip("KVGUARD_OLD_VLLM is not set: scripts/check_parts.sh sets it")
    return run_part("drive_pcp.py", sources=sources)


@pytest.fixture(params=[1, 2, 3], ids=lambda layout: f"layout-{layout}")
def lines(request: pytest.FixtureRequest) -> list[Line]:
    made = request.getfixturevalue("old" if request.param == 1 else "current")
    return [line for line in made if line["case"]["layout"] == request.param]


def judge_batches(line: Line, judge: str) -> None:
    """The real slots have no finding; where one of a batch is changed, the batch has one."""
    told = line[judge]
    assert (told["findings"], told["verdict"]) == ([], "clean"), (line["case"], told)
    assert told["missed"] == [], line["case"]


def test_batches(lines: list[Line]) -> None:
    seen: Counter[str] = Counter()
    for line in lines:
        seen.update(line["seen"])
    batches = sum(line["batches"] for line in lines)
    layout = lines[0]["case"]["layout"]
    print(f"layout {layout}: {batches} batches, {len(lines)} engines, {dict(seen)}")
    assert batches >= BATCHES
    held = HELD if layout == 1 else HELD_BY_THE_CURRENT
    assert {name: seen[name] for name, most in held.items() if seen[name] < most} == {}
    shapes = {(c["ranks"], c["dcp"], c["interleave"]) for c in (line["case"] for line in lines)}
    assert shapes == {(r, d, i) for r in (2, 3, 4) for d, i in ((1, 1), (2, 1), (2, 4))}


def test_the_oracle_agrees(lines: list[Line]) -> None:
    for line in lines:
        judge_batches(line, "oracle")


def test_the_core_agrees(lines: list[Line]) -> None:
    if all(line["core"] is None for line in lines):
        pytest.skip("this build of the core has no rules for pcp_size above 1")
    for line in lines:
        judge_batches(line, "core")
        # of the changed batches too: the same findings as the oracle's
        assert (line["core"]["errors"], line["core"]["differences"]) == ([], []), line["case"]


def test_layouts_are_told_apart(lines: list[Line]) -> None:
    """Declared as another layout the same slots are wrong, but where ranks of both kinds make 2 and
    3 equal."""
    for line in lines:
        case = line["case"]
        for other, steps in line["as_another"].items():
            if case["dcp"] > 1 and {case["layout"], int(other)} == {2, 3}:
                assert steps == 0, (case, other)
            else:
                assert steps > 0, (case, other)
