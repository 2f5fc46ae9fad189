# SPDX-License-Identifier: Apache-2.0
"""Requests for the rig from a cut of a public trace: arrivals, lengths, shared prefixes, aborts.

The trace names a prompt by one id per 512-token block. A block becomes a page of 16 tokens and
every length is divided by 32, rounded up; token j of block h is a fixed mix of (h, j), so equal
ids give equal tokens and the trace's sharing survives. A seed picks the window of the cut, the
requests that are aborted and when. Nothing else is random.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

CUT = Path(__file__).resolve().parent / "trace" / "mooncake_conversation_cut.jsonl"

VOCABULARY = 256
SCALE = 32  # tokens of the trace per token here
PAGE = 16  # tokens here per block of the trace (512 / SCALE)
_FIRST_TOKEN = 3  # ids below are padding, begin and end

# Chosen by measurement on the engine of rig.engine.OPTIONS: seeds 0, 1 and 2 each give more than
# 150 steps, 8 preemptions, 8 prefix hits and 6 aborts (selfcheck.py asserts it).
REQUESTS = 56
MS_PER_STEP = 30_000
ABORT_ONE_IN = 6

_MASK = (1 << 64) - 1


def mix(value: int) -> int:
    """The finaliser of splitmix64: a fixed, well spread map of 64-bit integers."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def scaled(length: int) -> int:
    """A length of the trace in tokens of the rig."""
    return -(-length // SCALE)


def token(block: int, offset: int) -> int:
    """Token `offset` of trace block `block`."""
    return _FIRST_TOKEN + mix(block * PAGE + offset) % (VOCABULARY - _FIRST_TOKEN)


@dataclass(frozen=True)
class Request:
    """One request of a workload; steps are counted from the workload's start."""

    name: str
    step: int
    prompt: tuple[int, ...]
    max_tokens: int
    abort_step: int | None = None


@dataclass(frozen=True)
class Workload:
    """Requests in the order of their arrival."""

    seed: int
    requests: tuple[Request, ...]

    @property
    def aborts(self) -> int:
        """How many requests are aborted; each of them is still alive at its step."""
        return sum(r.abort_step is not None for r in self.requests)


def _abort_step(seed: int, index: int, step: int, max_tokens: int) -> int | None:
    """A step at which the request cannot have finished: a step gives one token at most."""
    if max_tokens < 2:
        return None
    draw = mix(mix(seed) + index)
    if draw % ABORT_ONE_IN:
        return None
    return step + 1 + (draw // ABORT_ONE_IN) % (max_tokens - 1)


def load(
    seed: int, requests: int = REQUESTS, ms_per_step: int = MS_PER_STEP, path: Path = CUT
) -> Workload:
    """Builds the workload of a seed.

    Args:
        seed: picks the window and the aborts.
        requests: length of the window in requests.
        ms_per_step: how many milliseconds of the trace pass in one engine step.
        path: the cut.
    """
    rows = [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]
    if not 0 < requests <= len(rows):
        raise ValueError(f"requests must be 1 to {len(rows)}, the length of {path.name}")
    start = mix(seed) % (len(rows) - requests + 1)
    window = rows[start : start + requests]
    built = []
    for index, row in enumerate(window):
        length, max_tokens = scaled(row["input_length"]), scaled(row["output_length"])
        blocks = row["hash_ids"]
        prompt = tuple(token(blocks[i // PAGE], i % PAGE) for i in range(length))
        step = (row["timestamp"] - window[0]["timestamp"]) // ms_per_step
        abort = _abort_step(seed, index, step, max_tokens)
        built.append(Request(f"r{index}", step, prompt, max_tokens, abort))
    return Workload(seed, tuple(built))
