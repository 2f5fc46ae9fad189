# SPDX-License-Identifier: Apache-2.0
"""Every planted fault is found in its step, before the forward, with its code; without it the same
run is clean and says what plain generate() says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from kvguard.errors import KVGuardError
from kvguard.transformers import guard

from tests.hf import driver, engine, faults

LIST = tomllib.loads((Path(__file__).parent / "faults.toml").read_text())["fault"]
SECTORS = tuple(int(n) for n in engine.VERSION.split(".")[:2]) >= (5, 18)
pytestmark = pytest.mark.skipif(not SECTORS, reason="faults are planted in the layout of 5.18 on")


def run(scene: str, plant: Any = None) -> tuple[driver.Run, Any, list[tuple[int, str]]]:
    model, arrivals, generation, config = faults.scene(scene)
    planted: list[tuple[int, str]] = []
    with guard(model, action="raise") as g:

        def before(processor: Any, step: int) -> None:
            if step > 1 or plant is None:
                return
            session = g._sessions[0]

            def once(what: str) -> bool:
                if planted:
                    return False
                # Inside a step's forward that step is begun, elsewhere the next one will be.
                planted.append((session._step + (not session._open), what))
                return True

            plant(processor, once)

        made = driver.drive(model, arrivals, generation, config, before=before)
        g._delivered += g._sessions  # the error is in the run
    return made, g, planted


def test_the_list_is_what_is_planted():
    assert {f["name"] for f in LIST} == set(faults.FAULTS) | {"ring-fork-copy-not-done"}
    assert len(LIST) >= 18


@pytest.mark.parametrize("scene", sorted({f["scene"] for f in LIST}))
def test_without_a_fault_the_scene_is_clean_and_right(scene):
    made, g, _ = run(scene)
    assert made.error is None
    assert g.verdict == "clean", g.report()
    assert g.findings == []
    model, arrivals, generation, _ = faults.scene(scene)
    expected = engine.plain(model, [a.tokens for a in arrivals], engine.generation(20))
    for arrival, tokens in zip(arrivals, expected, strict=True):
        for i in range(generation.num_return_sequences):
            name = arrival.name if i == 0 else f"{arrival.name}__child#{i - 1}"
            assert made.outputs[name] == tokens, name


@pytest.mark.parametrize("fault", LIST, ids=[f["name"] for f in LIST])
def test_a_planted_fault_is_found_in_its_step(fault):
    made, g, planted = run(fault["scene"], faults.FAULTS[fault["name"]])
    assert planted, "the scene never allowed it"
    assert isinstance(made.error, KVGuardError), made.error
    line = str(made.error).splitlines()[0]
    code, step = re.match(r"kvguard (KV\d{4}) \S+ step=(\d+)", line).groups()
    assert (code, int(step)) == (fault["code"], planted[0][0]), (line, planted)
    assert g.verdict == "violated"
    assert made.steps == int(step), "its forward was to be held"
