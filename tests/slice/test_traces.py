# SPDX-License-Identifier: Apache-2.0
"""Record -> replay gives the same bytes of findings; damage is never taken for a verdict."""

from __future__ import annotations

import concurrent.futures
import random
from pathlib import Path
from typing import Any

import pytest
from rig.engine import Engine
from rig.scene_49250 import run_scene
from rig.workload import load

from slice import command

DAMAGED = 1000
SEED = 20261130


def record_clean(path: Path) -> None:
    config = {"kv_guard_config": {"enabled": True, "record": str(path)}}
    with Engine(worker_cls="kvguard.vllm.GuardWorker", additional_config=config) as engine:
        engine.run(load(0, requests=8))


def record_violated(path: Path) -> str:
    """The scene of vllm #49250 in log mode; answers with what the live guard told."""
    told: list[str] = []
    config = {"kv_guard_config": {"enabled": True, "action": "log", "record": str(path)}}

    def look(engine: Engine) -> None:
        found: list[tuple[str, str, dict[str, Any]]] = engine.runner.kvguard_session.guard.findings(
            0
        )
        told[:] = [f"{line}\n{prose}\n" for line, prose, _ in found]

    run_scene(True, worker_cls="kvguard.vllm.GuardWorker", additional_config=config, observe=look)
    return "".join(told)


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("traces")
    clean, violated = folder / "clean.kvtrace", folder / "violated.kvtrace"
    record_clean(clean)
    told = record_violated(violated)
    return {"clean": clean, "violated": violated, "told": told}


def test_replay_gives_the_same_findings(traces: dict[str, Any]) -> None:
    clean = command.run("replay", str(traces["clean"]))
    assert clean.returncode == 0, clean.stdout.decode() + clean.stderr.decode()
    violated = command.run("replay", str(traces["violated"]))
    assert violated.returncode == 1
    assert traces["told"].encode() in violated.stdout
    assert traces["told"].startswith("kvguard KV0901 ")
    again = command.run("replay", str(traces["violated"]))
    assert again.stdout == violated.stdout


def test_no_token_ids_are_in_a_trace(traces: dict[str, Any]) -> None:
    dump = command.run("trace", "dump", str(traces["clean"]), "--jsonl")
    assert dump.returncode == 0
    assert b'"tokens":[' not in dump.stdout.replace(b'"tokens":[]', b"").replace(b" ", b"")


def damaged(data: bytes, draw: random.Random) -> bytes:
    """One of: a flipped byte, a cut, a hole, a doubled piece, noise over a piece."""
    kind = draw.randrange(5)
    at = draw.randrange(len(data))
    size = draw.randrange(1, 200)
    if kind == 0:
        return data[:at] + bytes([data[at] ^ (1 << draw.randrange(8))]) + data[at + 1 :]
    if kind == 1:
        return data[:at]
    if kind == 2:
        return data[:at] + data[at + size :]
    if kind == 3:
        return data[:at] + data[at : at + size] + data[at:]
    return data[:at] + draw.randbytes(size) + data[at + size :]


def outcomes(data: bytes, folder: Path, count: int) -> list[tuple[bytes, int]]:
    """Replays `count` damaged copies; the copies that happen to be undamaged are drawn anew."""
    draw = random.Random(SEED)
    copies = []
    while len(copies) < count:
        copy = damaged(data, draw)
        if copy != data:
            copies.append(copy)

    def replay(index: int) -> int:
        path = folder / f"damaged-{index}.kvtrace"
        path.write_bytes(copies[index])
        result = command.run("replay", str(path))
        path.unlink()
        assert b"Traceback" not in result.stderr
        assert result.returncode in (0, 1, 2, 65), (index, result.returncode, result.stderr[-500:])
        if result.returncode != 0:
            assert result.stdout or result.stderr
        return result.returncode

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        codes = list(pool.map(replay, range(count)))
    return list(zip(copies, codes, strict=True))


def counts(codes: list[int]) -> dict[int, int]:
    return {code: codes.count(code) for code in sorted(set(codes))}


def test_damaged_copies_of_a_clean_trace_are_never_judged(
    traces: dict[str, Any], tmp_path: Path, figures: list[str]
) -> None:
    results = outcomes(traces["clean"].read_bytes(), tmp_path, DAMAGED)
    codes = [code for _, code in results]
    assert set(codes) <= {2, 65}, {c: codes.count(c) for c in set(codes)}
    figures.append(f"traces: {DAMAGED} damaged copies of a clean one: exit codes {counts(codes)}")


def test_damaged_copies_of_a_violated_trace_are_violated_up_to_the_damage(
    traces: dict[str, Any], tmp_path: Path, figures: list[str]
) -> None:
    data = traces["violated"].read_bytes()
    # The shortest cut that still shows the violation: its frame's end.
    first = first_violating_length(data, tmp_path)
    results = outcomes(data, tmp_path, DAMAGED // 2)
    for copy, code in results:
        same = next(
            (i for i, (a, b) in enumerate(zip(copy, data, strict=False)) if a != b),
            min(len(copy), len(data)),
        )
        # The whole violating step lies before the first byte that differs, or it does not.
        assert (code == 1) == (same >= first), (code, same, first)
    codes = [code for _, code in results]
    figures.append(
        f"traces: {len(codes)} damaged copies of a violated one: {counts(codes)}, "
        f"1 exactly where the first violated step (up to byte {first}) is whole"
    )


def first_violating_length(data: bytes, folder: Path) -> int:
    """The least number of bytes whose replay is violated, by bisection over cuts."""
    low, high = 0, len(data)
    while low < high:
        middle = (low + high) // 2
        path = folder / "cut.kvtrace"
        path.write_bytes(data[:middle])
        if command.run("replay", str(path)).returncode == 1:
            high = middle
        else:
            low = middle + 1
    return low
