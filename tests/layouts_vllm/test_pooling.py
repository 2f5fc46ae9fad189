# SPDX-License-Identifier: Apache-2.0
"""A model that gives embeddings: output leaves through execute_model, and nothing is sampled."""

from __future__ import annotations

import pytest
from rig.workload import load

from layouts_vllm import healthy
from layouts_vllm.layouts import POOLING

SEEDS = (0, 1, 2)


@pytest.mark.parametrize("seed", SEEDS)
def test_clean_with_equal_embeddings(seed: int, figures: list[str]) -> None:
    workload = load(seed)
    off = healthy.run_off(POOLING, workload)
    on = healthy.run_on(POOLING, workload)
    healthy.check(POOLING, off, on)
    assert on.result.prefix_hits > 0
    given = [r for r in workload.requests if on.result.tokens[r.name]]
    assert len(given) >= len(workload.requests) - workload.aborts
    figures.append(f"pooling seed {seed}: {len(given)} embeddings, {healthy.figures_of(on)}")
