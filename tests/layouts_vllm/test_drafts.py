# SPDX-License-Identifier: Apache-2.0
"""Drafts that are looked up in the text or come from a model, synchronous and asynchronous: what
was accepted and rejected is told, the next step starts there, and a model's passes are seen."""

from __future__ import annotations

import pytest
from rig.workload import load

from layouts_vllm import healthy
from layouts_vllm.layouts import (
    EAGLE,
    EAGLE_ASYNC,
    NGRAM,
    NGRAM_ASYNC,
    WINDOWS_NGRAM_ASYNC,
    Layout,
)

SEEDS = (0, 1, 2)
FEW = 30  # requests of a workload; enough where steps are slow
LAYOUTS = (NGRAM, NGRAM_ASYNC, WINDOWS_NGRAM_ASYNC, EAGLE, EAGLE_ASYNC)
WITH_MODEL = (EAGLE, EAGLE_ASYNC)
LEAST_DRAFTS = 21


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
@pytest.mark.parametrize("seed", SEEDS)
def test_clean_with_equal_tokens(layout: Layout, seed: int, figures: list[str]) -> None:
    workload = load(seed, FEW) if layout is WINDOWS_NGRAM_ASYNC else load(seed)
    off = healthy.run_off(layout, workload)
    on = healthy.run_on(layout, workload)
    healthy.check(layout, off, on)
    assert on.verdict["assumptions"] == 0  # every outcome was told before it was needed
    assert on.result.preemptions > 0
    assert on.result.prefix_hits > 0
    drafts = on.status["drafts"]
    assert drafts["scheduled"] >= LEAST_DRAFTS
    assert drafts["accepted"] > 0
    assert drafts["rejected"] > 0
    assert drafts["accepted"] + drafts["rejected"] == drafts["scheduled"]
    assert f"drafts {drafts['scheduled']}, accepted {drafts['accepted']}" in on.report
    passes = {
        family: sum(
            c["judged"]
            for c in on.coverage
            if (c["pass"], c["stage"], c["family"]) == ("draft", "final", family)
        )
        for family in ("table", "slot", "length")
    }
    if (
        layout in WITH_MODEL
    ):  # each step but the last drafts; the first pass has the target's tokens
        assert passes["slot"] > on.verdict["steps"] * 2
        assert passes["table"] > 0
        assert passes["length"] > 0
    figures.append(
        f"{layout.name} seed {seed}: {healthy.figures_of(on)}; drafts {drafts['scheduled']}, "
        f"accepted {drafts['accepted']}, rejected {drafts['rejected']}; slots of draft passes "
        f"{passes['slot']}"
    )


@pytest.mark.parametrize("layout", [NGRAM, EAGLE], ids=lambda layout: layout.name)
def test_tokens_are_those_without_drafts(layout: Layout, figures: list[str]) -> None:
    workload = load(SEEDS[0], FEW)
    with_drafts = healthy.run_off(layout, workload).tokens
    without = healthy.run_off(Layout("plain", "tiny_llama"), workload).tokens
    # An aborted request is as far as its step count lets it be.
    aborted = {r.name for r in workload.requests if r.abort_step is not None}
    assert {k: v for k, v in with_drafts.items() if k not in aborted} == {
        k: v for k, v in without.items() if k not in aborted
    }
    figures.append(f"{layout.name}: tokens equal to an engine without drafts")
