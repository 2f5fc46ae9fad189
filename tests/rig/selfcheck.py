# SPDX-License-Identifier: Apache-2.0
"""Checks the rig without any guard and prints the figures that the tests rely on.

usage: selfcheck.py [--server]

Every seed runs twice with equal tokens and with preemptions, prefix hits and aborts; the scene of
vllm #49250 damages the neighbour exactly when the load fails. With --server the HTTP server is
started too, answers like the engine in this process, and is stopped and killed.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rig import make_models, workload
from rig.engine import Engine, RunResult
from rig.scene_49250 import LOADER, NEIGHBOUR, first_difference, run_scene
from rig.server import Server

_BEGUN = psutil.Process().create_time()
SEEDS = (0, 1, 2)
MIN_STEPS, MIN_PREEMPTIONS, MIN_PREFIX_HITS, MIN_ABORTS = 150, 8, 8, 5
_PROMPT = tuple(range(5, 45))


class _Report:
    """Prints what holds and what does not, and remembers whether all did."""

    def __init__(self) -> None:
        self.failed = 0

    def expect(self, holds: bool, what: str) -> None:
        """One expectation."""
        print(f"  {'ok' if holds else 'FAILED'}: {what}", flush=True)
        self.failed += not holds


def _run(seed: int) -> tuple[RunResult, float]:
    started = time.perf_counter()
    with Engine() as engine:
        result = engine.run(workload.load(seed))
    return result, time.perf_counter() - started - result.seconds


def _seeds(report: _Report) -> None:
    for seed in SEEDS:
        first, start_and_close = _run(seed)
        second, _ = _run(seed)
        print(
            f"seed {seed}: {first.steps} steps, {first.preemptions} preemptions, "
            f"{first.prefix_hits} prefix hits ({first.prefix_hit_tokens} tokens), "
            f"{first.aborts} aborts, {sum(map(len, first.tokens.values()))} output tokens; "
            f"ms/step {first.ms_per_step:.1f} and {second.ms_per_step:.1f} "
            f"(processor {first.cpu_ms_per_step:.1f} and {second.cpu_ms_per_step:.1f}), "
            f"start and close {start_and_close:.1f} s"
        )
        report.expect(first.tokens == second.tokens, "the second run gave the same tokens")
        report.expect(first.steps == second.steps >= MIN_STEPS, f"{MIN_STEPS} steps or more")
        report.expect(first.preemptions >= MIN_PREEMPTIONS, f"{MIN_PREEMPTIONS} preemptions")
        report.expect(first.prefix_hits >= MIN_PREFIX_HITS, f"{MIN_PREFIX_HITS} prefix hits")
        planned = workload.load(seed).aborts
        report.expect(first.aborts == planned >= MIN_ABORTS, "every abort met a live request")
        full = all(
            len(first.tokens[r.name]) == r.max_tokens
            for r in workload.load(seed).requests
            if r.abort_step is None
        )
        report.expect(full, "every other request got all its tokens")


def _scene(report: _Report) -> None:
    started = time.perf_counter()
    healthy, failed = run_scene(fail=False), run_scene(fail=True)
    print(
        f"scene of #49250: {len(failed.steps)} steps, load fails in step {failed.load_step}, "
        f"blocks of {NEIGHBOUR} damaged by step: {failed.damage}, first differing token "
        f"{LOADER} {first_difference(healthy.tokens[LOADER], failed.tokens[LOADER])}, "
        f"{NEIGHBOUR} {first_difference(healthy.tokens[NEIGHBOUR], failed.tokens[NEIGHBOUR])}; "
        f"both runs {time.perf_counter() - started:.1f} s"
    )
    report.expect(healthy.error is None and failed.error is None, "neither run raised")
    report.expect(not healthy.damage, "without a failure nobody writes the neighbour's blocks")
    first = min(failed.damage, default=None)
    expected = None if failed.load_step is None else failed.load_step + 1
    report.expect(first is not None and first == expected, "damaged in the step after the load")
    for name in (LOADER, NEIGHBOUR):
        report.expect(healthy.tokens[name] != failed.tokens[name], f"{name}'s tokens differ")
        report.expect(
            len(healthy.tokens[name]) == len(failed.tokens[name]) > 0, f"{name} was answered"
        )


def _server(report: _Report) -> None:
    with Engine() as engine:
        engine.add("a", _PROMPT, 8)
        while engine.busy:
            engine.step()
        expected = engine.tokens["a"]
    started = time.perf_counter()
    with Server() as server:
        server.wait_ready()
        ready = time.perf_counter() - started
        answer = server.complete(_PROMPT, 8)
        started = time.perf_counter()
        status = server.stop()
        stopped = time.perf_counter() - started
    print(f"server: ready after {ready:.1f} s, stopped in {stopped:.1f} s with status {status}")
    report.expect(answer.tokens == expected, "the server gives the engine's tokens")
    report.expect(status == 0, "a server that is asked to stop ends with 0")
    with Server() as server:
        server.wait_ready()
        server.kill_engine()
        broken = server.complete(_PROMPT, 8)
        started = time.perf_counter()
        status = server.wait()
        stopped = time.perf_counter() - started
    print(f"server, engine killed: answer {broken.status}, ended after {stopped:.1f} s, {status}")
    report.expect(not broken.ok, "a client of a killed engine gets an error")


def main(arguments: list[str]) -> int:
    """Runs the checks; 0 when all of them hold."""
    if arguments not in ([], ["--server"]):
        print("usage: selfcheck.py [--server]", file=sys.stderr)
        return 64
    report = _Report()
    print(f"imports {time.time() - _BEGUN:.1f} s; model {make_models.build('tiny_llama')}")
    _seeds(report)
    _scene(report)
    if arguments:
        _server(report)
    print(f"{report.failed} failed; {time.time() - _BEGUN:.0f} s in all")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
