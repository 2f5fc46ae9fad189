# SPDX-License-Identifier: Apache-2.0
"""Verdict against truth: where a token differs from plain generate(), the guard has spoken by then;
where none does, it is clean, or the finding is one that docs/found.md explains."""

from __future__ import annotations

import pytest
from kvguard.transformers import guard

from tests.hf import engine, workload

SEEDS = 40
# Releases whose rings are wrong (docs/found.md): a finding there may come before, or without, a
# token that differs.
WRONG_RINGS = ("5.10.4", "5.15.1")
RING_CODES = {301, 401, 701}


@pytest.fixture(scope="module")
def seen() -> dict[str, int]:
    """What the seeds together have to have met."""
    return {}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_verdict_is_the_truth(seed, seen):
    work = workload.draw(seed)
    with guard(workload.model(work.name, work.window), action="log") as g:
        run = work.run()
    (session,) = g._sessions
    verdict = session.guard.verdict()
    rings = work.name != "llama" and engine.VERSION in WRONG_RINGS
    # 5.10 fails a fork for which there is no room; what it did until then is judged.
    no_room = run.error is not None and "Failed to fork" in str(run.error)
    assert run.error is None or (engine.VERSION == "5.10.4" and no_room), run.error
    assert g.reasons == []
    if run.first_wrong is None and not rings:
        assert g.verdict == "clean", g.report() + "\n".join(f.line for f in g.findings)
        assert verdict["suspicions"] == 0
    if run.first_wrong is not None:
        assert rings, (run.wrong, g.report())
        assert g.verdict == "violated", g.report()
        assert verdict["first_violated_step"] <= run.first_wrong
    assert {f.values["code"] for f in g.findings} <= (RING_CODES if rings else set()), g.findings
    assert verdict["step_gaps"] == 0
    for key, met in {
        "resets": run.resets > 0,
        "forks": any("__child" in name for name in run.outputs),
        "cancelled": len(run.outputs) < len(work.arrivals) * work.sequences,
        "shared": any(row["family"] == "content" and row["judged"] for row in g.coverage),
        "clean": g.verdict == "clean",
        "violated": g.verdict == "violated",
        work.name: True,
    }.items():
        seen[key] = seen.get(key, 0) + met


def test_the_seeds_have_met_everything(seen):
    wanted = {"resets", "forks", "cancelled", "shared", "clean", *workload.MODELS}
    if engine.VERSION in WRONG_RINGS:
        wanted.add("violated")
    if sum(seen.get(name, 0) for name in workload.MODELS) == SEEDS:  # not where some were chosen
        assert {name for name in wanted if not seen.get(name)} == set(), seen
