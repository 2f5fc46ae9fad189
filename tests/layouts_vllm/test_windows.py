# SPDX-License-Identifier: Apache-2.0
"""Sliding windows beside full attention, two groups of one and one of the other, in one pool."""

from __future__ import annotations

import pytest
from rig.engine import Engine
from rig.workload import load

from layouts_vllm import healthy
from layouts_vllm.layouts import WINDOWS

SEEDS = (0, 1, 2)
WINDOW_GROUPS = (0, 1)


class Freed:
    """Blocks that the scheduler frees behind a window while their request lives, and those of them
    that another request has while it still lives."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, int], list[int]] = {}  # every block that a column ever had
        self.freed: set[tuple[str, int, int]] = set()
        self.reused: set[tuple[str, int, int]] = set()

    def __call__(self, engine: Engine) -> None:
        manager = engine.scheduler.kv_cache_manager
        live = [r.request_id for r in engine.scheduler.running]
        tables = {name: manager.get_block_ids(name) for name in live}
        self.rows = {key: row for key, row in self.rows.items() if key[0] in tables}
        for name, groups in tables.items():
            others = {b for o, t in tables.items() if o != name for ids in t for b in ids if b}
            for group in WINDOW_GROUPS:
                row = self.rows.setdefault((name, group), [])
                row.extend(groups[group][len(row) :])
                for column, now in enumerate(groups[group]):
                    if now:
                        row[column] = now
                    elif row[column]:
                        self.freed.add((name, group, column))
                        if row[column] in others:
                            self.reused.add((name, group, column))


@pytest.mark.parametrize("seed", SEEDS)
def test_clean_with_equal_tokens(seed: int, figures: list[str]) -> None:
    workload = load(seed)
    off = healthy.run_off(WINDOWS, workload)
    freed = Freed()
    on = healthy.run_on(WINDOWS, workload, freed)
    healthy.check(WINDOWS, off, on)
    assert on.judged("planned", "lifetime") > 0
    assert on.result.preemptions > 0
    assert on.result.prefix_hits > 0
    assert len(freed.freed) >= 50
    assert len(freed.reused) >= 20
    figures.append(
        f"windows seed {seed}: {healthy.figures_of(on)}; {len(freed.freed)} blocks freed behind a "
        f"window of a running request, {len(freed.reused)} of them another's while it ran"
    )
