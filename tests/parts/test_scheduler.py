# SPDX-License-Identifier: Apache-2.0
"""vLLM's own Scheduler decides, the guard folds: each layout without a finding that is not
expected, and a finding where one thing of the stream is wrong."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

Line = dict[str, Any]
STEPS = 5000
EVERYWHERE = {"preempted": 100, "prefix_hits": 100, "aborted": 50, "finished": 300}
SPEC = {"drafts": 30_000, "accepted": 15_000, "rejected": 15_000, "outcomes_late": 500}
CONNECTOR = {"external_hits": 150, "sync_loads": 80, "async_loads": 60, "async_failed": 15}
CONNECTOR |= {"sends": 40}
ALIGN = {"null_columns": 1000, "state_hits": 180, "copies": 1500}
STATE_SPEC = SPEC | {"states_behind": 8000}
# What each stream must hold at least of, beside EVERYWHERE, in 5,000 steps.
LAYOUTS: dict[str, dict[str, int]] = {
    "full": {},
    "async": {},
    "window": {},
    "chunked": {},
    "spec": SPEC,
    "spec-async": SPEC | {"outcomes_late": 3000},
    "spec-ahead": SPEC | {"outcomes_late": 3000},
    "hybrid-spec": SPEC,
    "hybrid-spec-async": SPEC | {"outcomes_late": 3000},
    "connector": CONNECTOR | {"sync_failed": 20, "taken_back": 20},
    "connector-async": CONNECTOR,
    "connector-window": CONNECTOR,
    "connector-spec": CONNECTOR | SPEC | {"outcomes_late": 3000},
    "connector-told": CONNECTOR | {"sync_loads": 0, "async_failed": 50},
    "connector-told-async": CONNECTOR | {"sync_loads": 0, "async_failed": 50},
    "told": {},
    "spec-told": SPEC,
    "state-none": {"prefix_hits": 0},
    "state-all": {"state_hits": 80, "null_columns": 150},
    "state-align": ALIGN,
    "state-align-async": ALIGN,
    "state-none-spec": STATE_SPEC | {"prefix_hits": 0},
    "state-none-spec-async": STATE_SPEC | {"prefix_hits": 0, "outcomes_late": 3000},
    "state-align-spec": STATE_SPEC | ALIGN | {"moved_blocks": 300},
    "state-align-spec-async": STATE_SPEC | ALIGN | {"moved_blocks": 300, "outcomes_late": 3000},
}
# The connector's seed is one whose stream holds trap 11; see StandIn._count_spoiled.
SEEDS = {"connector": 12}
UNHEALTHY = ("connector-told-sync", 6)  # and a seed with many such hits
# Layout, what is wrong in it, and the first finding: code, grade, and steps behind the fault.
FAULTS: list[tuple[str, str, int, str, int]] = [
    ("full", "block-twice", 601, "proof", 0),
    ("full", "block-missing", 204, "proof", 0),
    ("spec", "rejected-more", 902, "proof", 1),
    ("spec", "rejected-less", 904, "suspicion", 1),
    ("spec-async", "rejected-more", 901, "proof", 1),
    ("spec-async", "rejected-less", 901, "proof", 1),
    # Told when the next step has begun, and its plan is not shown yet.
    ("spec-async", "rejected-more-late", 901, "proof", 1),
    ("spec-async", "rejected-less-late", 901, "proof", 1),
    # The runner's start was taken by then; this outcome gives another.
    ("spec-ahead", "rejected-less-late", 901, "proof", 0),
    ("hybrid-spec", "block-twice", 601, "proof", 0),
    ("hybrid-spec-async", "rejected-less", 901, "proof", 1),
    ("hybrid-spec-async", "block-missing", 204, "proof", 0),
    ("connector", "block-twice", 601, "proof", 0),
    ("connector", "block-missing", 204, "proof", 0),
    ("connector", "not-taken-back", 901, "proof", 0),
    ("told", "hit-other", 801, "proof", 0),
    ("told", "hit-unwritten", 803, "proof", 0),
    ("connector-told", "hit-other", 801, "proof", 0),
    ("connector-told", "hit-unwritten", 803, "proof", 0),
    ("state-all", "state-twice", 601, "proof", 0),
    ("state-all", "hit-elsewhere", 804, "proof", 0),
    ("state-align", "state-twice", 601, "proof", 0),
    ("state-align", "state-null", 202, "proof", 0),
    ("state-align", "hit-elsewhere", 804, "proof", 0),
    ("state-none-spec", "accepted-ignored", 1001, "proof", 0),
    ("state-none-spec", "drafts-not-stored", 1002, "proof", 0),
    ("state-align-spec", "accepted-ignored", 1001, "proof", 0),
    ("state-align-spec", "accepted-not-copied", 1005, "proof", 0),
    ("state-align-spec", "drafts-not-stored", 1002, "proof", 0),
]


def case_of(layout: str, seed: int, fault: str = "") -> str:
    return f"{layout}:{seed}:{fault}" if fault else f"{layout}:{seed}"


@pytest.fixture(scope="module")
def lines(run_part: Any, num_seeds: int, num_steps: int) -> list[Line]:
    """Of all streams; two programs share them."""
    seeds = {name: [*range(1, num_seeds + 1)] for name in LAYOUTS}
    for name, seed in SEEDS.items():
        seeds[name][0] = seed
    cases = [case_of(name, seed) for name in LAYOUTS for seed in seeds[name]]
    cases += [case_of(layout, 1, fault) for layout, fault, *_ in FAULTS]
    cases.append(case_of(*UNHEALTHY))

    def run(share: list[str]) -> list[Line]:
        return run_part("schedule.py", "--steps", str(num_steps), *share)

    with ThreadPoolExecutor(2) as pool:
        return [line for part in pool.map(run, (cases[::2], cases[1::2])) for line in part]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_its_stream_holds_no_finding(
    lines: list[Line], num_seeds: int, num_steps: int, layout: str
) -> None:
    streams = [line for line in lines if line["layout"] == layout and "fault" not in line]
    assert len(streams) == num_seeds
    for line in streams:
        print(line)
        seen = Counter(line["seen"])
        assert line["proofs"] == 0, line["findings"]
        # Blocks that two requests compute again after a load of one of them failed: trap 11.
        expected = seen["spoiled_given"] + seen["spoiled_written"]
        assert line["suspicions"] == expected, line["findings"]
        assert expected == 0 or "taken_back" in LAYOUTS[layout]
        if line["seed"] == SEEDS.get(layout):
            assert expected > 0
        # No table and no slot is shown here, and nothing else may be missing.
        assert line["gaps"] == ["slots-not-presented", "table-not-presented"]
        assert line["verdict"] == "cannot_judge"
        assert line["steps"] == num_steps
        assert line["plans"] >= num_steps * 0.9
        assert line["frontiers"] >= 3 * num_steps  # rows
        # Where a start is known, so is the state that is read.
        assert line["states"] >= (3 * num_steps if layout.startswith("state-") else 0)
        for name, least in (EVERYWHERE | LAYOUTS[layout]).items():
            assert seen[name] >= least * num_steps // STEPS, f"{name}: {seen}"


def test_vllm_s_prefix_cache_keeps_what_a_failed_load_left(lines: list[Line]) -> None:
    """See StandIn._follow_unfilled: a fault of vLLM 0.32 that this stream came upon."""
    (line,) = [line for line in lines if line["layout"] == UNHEALTHY[0]]
    hits, found = line["unfilled_hits"], line["failed_loads_used"]
    print(hits, line["codes"], line["findings"][:1])
    assert len(hits) >= 3
    assert all(hit in found for hit in hits)
    assert {name for _, name in found} == {name for _, name in hits}
    # A load of all tokens but the last, which the same step writes behind them, is no fault.
    assert line["seen"]["written_behind_loads"] > 0
    assert line["codes"] == {"1106": len(found)}
    assert line["proofs"] == len(found)
    assert line["suspicions"] == 0


@pytest.mark.parametrize(("layout", "fault", "code", "grade", "behind"), FAULTS)
def test_one_wrong_thing_is_found(
    lines: list[Line], layout: str, fault: str, code: int, grade: str, behind: int
) -> None:
    streams = [line for line in lines if line["layout"] == layout and "fault" in line]
    (line,) = [line for line in streams if line["fault"]["name"] == fault]
    planted = line["fault"]
    print(planted, line["findings"][:1])
    assert planted["step"] > 0, "found no place"
    first = line["first"][0]
    assert (first["code"], first["grade"]) == (code, grade)
    assert first["request"] == planted["request"]
    assert first["step"] == planted["step"] + behind
    assert line["verdict"] == ("violated" if grade == "proof" else "cannot_judge")
