# SPDX-License-Identifier: Apache-2.0
"""`kvguard run -- vllm serve`: an engine process, a real HTTP client, the verdict as exit code."""

from __future__ import annotations

import concurrent.futures
import re
from collections.abc import Mapping
from pathlib import Path

import kvguard
from rig.server import Completion, Server

from slice import command

PROMPTS = [tuple(range(5 + i, 45 + i)) for i in range(4)]
MAX_TOKENS = 16


def serve(environ: Mapping[str, str] | None = None) -> Server:
    package = Path(kvguard.__file__).absolute().parents[1]  # the engine's processes import it too
    return Server([command.path(), "run", "--"], environ=environ, pythonpath=[package])


def complete_all(server: Server) -> list[Completion]:
    with concurrent.futures.ThreadPoolExecutor(len(PROMPTS)) as pool:
        return list(pool.map(lambda p: server.complete(p, MAX_TOKENS), PROMPTS))


def verdict_line(server: Server) -> str:
    lines = [
        line
        for line in server.log().splitlines()
        if re.match(r"kvguard: (clean|violated|cannot.judge)", line)
    ]
    assert len(lines) == 1, server.log()[-4000:]
    return lines[0]


def test_healthy_ends_clean(figures: list[str]) -> None:
    with serve() as server:
        server.wait_ready()
        answers = complete_all(server)
        assert all(a.ok and len(a.tokens) == MAX_TOKENS for a in answers), answers
        status = server.stop()
        log = server.log()
        assert status == 0, log[-4000:]
        arming = [
            line for line in log.splitlines() if line.startswith("kvguard: armed before-write ")
        ]
        assert arming
        line = verdict_line(server)
        assert line.startswith("kvguard: clean ")
        figures.append(f"server healthy: exit {status}; {arming[0]} ... {line}")


def test_planted_fault_is_an_error_to_the_client(figures: list[str]) -> None:
    environ = {
        "KVGUARD_BASE_WORKER": "slice.planting.FaultyWorker",
        "KVGUARD_FAULT": "table-entry-zeroed",
        "KVGUARD_FAULT_AFTER": "6",
    }
    with serve(environ) as server:
        server.wait_ready()
        answers = complete_all(server)
        assert not any(a.ok for a in answers), "tokens of a violated step reached a client"
        status = server.wait()
        log = server.log()
        assert status == 1, log[-4000:]
        assert "kvguard KV0302 table-null " in log
        line = verdict_line(server)
        assert line.startswith("kvguard: violated ")
        figures.append(
            f"server with a planted fault: clients got {sorted({a.status for a in answers})}, "
            f"exit {status}; {line}"
        )


def test_killed_engine_cannot_be_judged(figures: list[str]) -> None:
    with serve() as server:
        server.wait_ready()
        assert server.complete(PROMPTS[0], MAX_TOKENS).ok
        server.kill_engine()
        status = server.wait()
        assert status == 2, server.log()[-4000:]
        line = verdict_line(server)
        figures.append(f"server with a killed engine: exit {status}; {line}")
