# SPDX-License-Identifier: Apache-2.0
"""Asynchronous scheduling: the next step is scheduled before this one's tokens are known."""

from __future__ import annotations

import pytest
from rig.workload import load

from layouts_vllm import healthy
from layouts_vllm.layouts import ASYNC, Layout

SEEDS = (0, 1, 2)


@pytest.mark.parametrize("seed", SEEDS)
def test_clean_with_equal_tokens(seed: int, figures: list[str]) -> None:
    workload = load(seed)
    off = healthy.run_off(ASYNC, workload)
    in_flight: list[int] = []
    on = healthy.run_on(ASYNC, workload, lambda e: in_flight.append(len(e.core.batch_queue)))
    healthy.check(ASYNC, off, on)
    assert on.verdict["assumptions"] == 0
    assert on.result.preemptions > 0
    assert on.result.prefix_hits > 0
    assert sum(n > 0 for n in in_flight) > len(in_flight) // 2  # one step is under way
    aborted = {r.name for r in workload.requests if r.abort_step is not None}
    synchronous = healthy.run_off(Layout("plain", "tiny_llama"), workload).tokens
    assert all(on.result.tokens[r] == synchronous[r] for r in synchronous if r not in aborted)
    figures.append(
        f"async seed {seed}: {healthy.figures_of(on)} and to synchronous scheduling; a step in "
        f"flight after {sum(n > 0 for n in in_flight)} of {len(in_flight)} steps"
    )
