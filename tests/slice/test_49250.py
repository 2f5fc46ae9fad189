# SPDX-License-Identifier: Apache-2.0
"""vLLM #49250 in the current release: after a failed load one request writes another's blocks."""

from __future__ import annotations

from typing import Any

import pytest
from kvguard import KVGuardError
from rig.engine import Engine
from rig.scene_49250 import LOADER, NEIGHBOUR, SceneResult, first_difference, run_scene

GUARD = "kvguard.vllm.GuardWorker"
FRONTIER_MISMATCH, FOREIGN_WRITE = 901, 602


class Scene:
    """The scene under the guard, with what the guard said."""

    def __init__(self, fail: bool, action: str) -> None:
        self.findings: list[tuple[str, str, dict[str, Any]]] = []
        self.verdict: dict[str, Any] = {}
        self.gaps: list[dict[str, Any]] = []
        self.names: dict[str, str] = {}
        self.steps: list[int] = []  # the guard's step after each of the scene's
        config = {"kv_guard_config": {"enabled": True, "action": action}}
        self.result = run_scene(
            fail, worker_cls=GUARD, additional_config=config, observe=self._look
        )

    def _look(self, engine: Engine) -> None:
        session = engine.runner.kvguard_session
        self.steps.append(session.stream.step)
        self.findings = session.guard.findings(0)
        self.verdict = session.guard.verdict()
        self.gaps = session.guard.gaps()
        for request_id in engine.scheduler.requests:
            self.names.setdefault(request_id.rpartition("-")[0], request_id)


@pytest.fixture(scope="module")
def unguarded() -> dict[bool, SceneResult]:
    return {fail: run_scene(fail) for fail in (False, True)}


def test_the_same_scene_without_failure_is_clean(unguarded: dict[bool, SceneResult]) -> None:
    scene = Scene(fail=False, action="raise")
    assert scene.result.error is None
    assert scene.findings == []
    assert scene.verdict["verdict"] == "clean", (scene.verdict, scene.gaps)
    assert scene.result.tokens == unguarded[False].tokens
    assert scene.result.damage == {}


def test_log_mode_names_the_frontier_and_the_neighbour(
    unguarded: dict[bool, SceneResult], figures: list[str]
) -> None:
    scene = Scene(fail=True, action="log")
    result, right = scene.result, unguarded[False]
    assert result.error is None
    assert result.load_step is not None
    line, _, first = scene.findings[0]
    # The first step after the one in which the load failed.
    bad_step = scene.steps[result.load_step] + 1
    assert first["code"] == FRONTIER_MISMATCH
    assert first["step"] == bad_step == scene.verdict["first_violated_step"]
    assert first["first_cause"]
    assert scene.verdict["verdict"] == "violated"
    assert scene.names[LOADER] in line
    foreign = [
        f for f in scene.findings if f[2]["code"] == FOREIGN_WRITE and f[2]["step"] == bad_step
    ]
    assert foreign, "no finding says that the neighbour's blocks are written"
    assert any(f"victim={scene.names[NEIGHBOUR]}" in f[0] for f in foreign)
    assert all("because-of=KV0901" in f[0] for f in foreign)
    # And it is real: the neighbour's blocks changed, and both texts are others.
    assert scene.result.damage
    differences = {}
    for name in (LOADER, NEIGHBOUR):
        differences[name] = first_difference(right.tokens[name], result.tokens[name])
        assert differences[name] is not None, f"{name}'s tokens are the same"
    assert result.tokens == unguarded[True].tokens
    figures += [
        f"vllm #49250 (log): violated at step {bad_step}, the first after the failed "
        f"load; neighbour's blocks "
        f"written: {dict(result.damage)}; first different token: {differences}",
        *[part for f in scene.findings[:4] for part in (f"  {f[0]}", f"  {f[1]}")],
    ]


def test_raise_mode_leaves_the_neighbours_blocks_alone(figures: list[str]) -> None:
    scene = Scene(fail=True, action="raise")
    result = scene.result
    assert isinstance(result.error, KVGuardError)
    assert str(result.error).startswith("kvguard KV0901 frontier-mismatch ")
    assert result.damage == {}
    assert result.steps[-1].changed == (), "the violating step wrote KV"
    figures.append(
        f"vllm #49250 (raise): step {result.steps[-1].index} raised, no block changed in it"
    )
