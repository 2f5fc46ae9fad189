# SPDX-License-Identifier: Apache-2.0
"""A latent cache: one vector a token, and metadata that keep decodes apart from prefills."""

from __future__ import annotations

import pytest
from rig.workload import load

from layouts_vllm import healthy
from layouts_vllm.layouts import MLA

SEEDS = (0, 1, 2)


@pytest.mark.parametrize("seed", SEEDS)
def test_clean_with_equal_tokens(seed: int, figures: list[str]) -> None:
    workload = load(seed)
    off = healthy.run_off(MLA, workload)
    on = healthy.run_on(MLA, workload)
    healthy.check(MLA, off, on)
    assert on.result.preemptions > 0
    figures.append(f"mla seed {seed}: {healthy.figures_of(on)}")
