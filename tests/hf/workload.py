# SPDX-License-Identifier: Apache-2.0
"""Workloads drawn from a seed: lengths around the edges of window, page and chunk, shared prefixes,
forks, cancels, small caches."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from tests.hf import engine
from tests.hf.driver import Arrival, Run, drive

MODELS = ("llama", "mistral", "qwen2", "gemma3")
_models: dict[tuple[str, int], Any] = {}
_plain: dict[tuple[str, int, tuple[int, ...]], list[int]] = {}


def model(name: str, window: int) -> Any:
    """One for each name and window: Llama has none."""
    window = 0 if name == "llama" else window
    if (name, window) not in _models:
        changes = {"sliding_window": window} if window else {}
        _models[name, window] = engine.model(name, **changes)
    return _models[name, window]


@dataclass
class Workload:
    """What a seed draws."""

    name: str
    window: int
    arrivals: list[Arrival]
    new: int
    sequences: int
    config: dict[str, Any]

    def expected(self, name: str) -> list[int]:
        """What plain generate() says of a request or a fork of it."""
        parent = name.split("__child")[0]
        tokens = next(a.tokens for a in self.arrivals if a.name == parent)
        key = (self.name, self.window, tuple(tokens))
        if len(_plain.get(key, ())) < self.new:
            made = model(self.name, self.window)
            _plain[key] = engine.plain(made, [tokens], engine.generation(self.new))[0]
        return _plain[key][: self.new]

    def run(self) -> Run:
        for arrival in self.arrivals:  # before the manager gives the model another attention
            self.expected(arrival.name)
        return drive(
            model(self.name, self.window),
            self.arrivals,
            engine.generation(self.new, self.sequences),
            engine.batching(**self.config),
            expected=self.expected,
        )


def draw(seed: int) -> Workload:
    rng = random.Random(seed)
    name = rng.choice(MODELS)
    window = rng.choice([16, 16, 12, 20, 24])  # multiples of the page, and not
    page = rng.choice([4, 8, 8, 16])
    edges = [page, 2 * page, window, 2 * window, 32]
    lengths = [
        max(2, rng.choice(edges) + rng.choice([-1, 0, 1, 2]))
        if rng.random() < 0.6
        else rng.randint(2, 60)
        for _ in range(rng.randint(2, 7))
    ]
    inputs = engine.prompts(lengths, seed, rng.choice([0, page, 2 * page, 2 * page + 3, 40]))
    arrivals = []
    for i, tokens in enumerate(inputs):
        again = list(rng.choice(inputs)) if rng.random() < 0.25 else tokens
        arrivals.append(
            Arrival(
                f"r{i}",
                again,
                step=rng.choice([1, 1, 1, 3, 6, 10]),
                cancel=rng.choice([None] * 5 + [4, 8]),
            )
        )
    return Workload(
        name=name,
        window=window,
        arrivals=arrivals,
        new=rng.choice([4, 12, 24]),
        sequences=rng.choice([1, 1, 2, 3]),
        config={
            "page": page,
            "blocks": rng.choice([128, 256, 512]) // page,
            "tokens": rng.choice([16, 32, 64, 128]),
            "allow_block_sharing": rng.random() < 0.8,
            "scheduler_type": rng.choice(["fifo", "prefill_first"]),
        },
    )
