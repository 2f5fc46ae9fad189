# SPDX-License-Identifier: Apache-2.0
"""vLLM #49250 on a real engine: after a failed load a request writes a live neighbour's blocks.

With a failed synchronous load and the policy "recompute" the scheduler sets the request back, and
Model Runner V2 of vLLM 0.32.0 does not: the device's count of computed tokens stays where it was.
The recomputed tokens get later positions, beyond the request's blocks, and the row's columns there
still hold the block ids of whoever had the row before.

The parts, in a pool of 12 blocks (11 usable) without prefix caching:
  S  runs alone and leaves its KV in the connector's store
  X  runs alone with 200 tokens: seven block ids stay behind in its row of the block table
  P  takes X's row for a moment, so that Y, which comes with it, gets another one
  Y  the neighbour, with 170 tokens, gets the blocks of X's last columns, and goes on decoding
  L  has S's prompt and, P being done, X's row; its load fails; its recomputed tokens run past its
     four columns into X's old ones, which are Y's now
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rig.engine import Engine

NEIGHBOUR = "Y"
LOADER = "L"
BLOCK_SIZE = 32
FAILED_BLOCK = 1  # the second of the three blocks that L loads
_MOST_STEPS = 60


@dataclass(frozen=True)
class SceneStep:
    """What one engine step did to the KV pool."""

    index: int
    changed: tuple[int, ...]  # blocks
    damage: tuple[int, ...]  # those among them that the neighbour held and did not write itself


@dataclass
class SceneResult:
    """The course of the scene. Steps are counted from 0, over all parts."""

    tokens: dict[str, tuple[int, ...]] = field(default_factory=dict)  # of L and Y, as sent
    steps: list[SceneStep] = field(default_factory=list)
    load_step: int | None = None  # the step in which L was first scheduled, and its load ran
    error: Exception | None = None  # what the engine raised, in the last of `steps`

    @property
    def damage(self) -> dict[int, tuple[int, ...]]:
        """Step to the neighbour's blocks that somebody else wrote in it."""
        return {step.index: step.damage for step in self.steps if step.damage}


def first_difference(left: tuple[int, ...], right: tuple[int, ...]) -> int | None:
    """The index of the first token in which two outputs differ; None when they are equal."""
    for index, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return index
    return None if len(left) == len(right) else min(len(left), len(right))


class _Scene:
    def __init__(self, engine: Engine, observe: Callable[[Engine], None] | None) -> None:
        self.engine = engine
        self.observe = observe
        self.result = SceneResult()

    def step(self) -> bool:
        """Runs one step and takes it down; False when the engine raised."""
        engine, index = self.engine, len(self.result.steps)
        if index >= _MOST_STEPS:
            raise RuntimeError(f"the scene did not end within {_MOST_STEPS} steps")
        before = engine.kv_snapshot()
        neighbour = engine.request(NEIGHBOUR)
        held = engine.table(NEIGHBOUR)
        computed = neighbour.num_computed_tokens if neighbour is not None else 0
        try:
            engine.step()
        except Exception as error:  # noqa: BLE001  whatever the engine raises is a result here
            self.result.error = error
        if self.result.load_step is None and engine.table(LOADER):
            self.result.load_step = index
        changed = before.changed_blocks(engine.kv_snapshot())
        # The neighbour writes from its count of computed tokens on.
        untouchable = set(held[: computed // BLOCK_SIZE])
        damage = tuple(block for block in changed if block in untouchable)
        self.result.steps.append(SceneStep(index, tuple(changed), damage))
        if self.observe is not None:
            self.observe(engine)
        return self.result.error is None

    def until_done(self, name: str) -> bool:
        """Steps until a request is finished; False when the engine raised."""
        while name not in self.engine.finished:
            if not self.step():
                return False
        return True

    def play(self) -> None:
        draw = random.Random(5)
        shared, left, neighbour, other = (
            [draw.randrange(3, 256) for _ in range(length)] for length in (100, 200, 170, 16)
        )
        add = self.engine.add
        add("S", shared, 1)
        if not self.until_done("S"):
            return
        add("X", left, 2)
        if not self.until_done("X"):
            return
        add("P", other, 4)
        add(NEIGHBOUR, neighbour, 20)
        if not self.until_done("P"):
            return
        add(LOADER, shared, 10)
        if self.until_done(LOADER):
            self.until_done(NEIGHBOUR)


def run_scene(
    fail: bool,
    worker_cls: str = "auto",
    additional_config: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    observe: Callable[[Engine], None] | None = None,
) -> SceneResult:
    """Plays the scene once on an engine of its own.

    Args:
        fail: whether L's load fails; without a failure everything is healthy.
        worker_cls: as vLLM's option of that name.
        additional_config: as vLLM's option of that name.
        environ: variables for the life of the engine.
        observe: called after every step, also after the one that raised, with the open engine.
    """
    store = tempfile.mkdtemp(prefix="kvguard-scene-")
    transfer = {
        "kv_connector": "FailConnector",
        "kv_connector_module_path": "rig.fail_connector",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {
            "shared_storage_path": store,
            "fail_blocks": [FAILED_BLOCK] if fail else [],
        },
    }
    try:
        with Engine(
            worker_cls=worker_cls,
            additional_config=additional_config,
            environ=environ,
            num_gpu_blocks_override=12,
            enable_prefix_caching=False,
            kv_transfer_config=transfer,
        ) as engine:
            scene = _Scene(engine, observe)
            scene.play()
            scene.result.tokens = {
                name: engine.tokens.get(name, ()) for name in (LOADER, NEIGHBOUR)
            }
            return scene.result
    finally:
        shutil.rmtree(store, ignore_errors=True)
