# SPDX-License-Identifier: Apache-2.0
"""Parts of a real vLLM, alone: each program of this folder runs in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

Line = dict[str, Any]


def run(program: str, *arguments: str, sources: str | None = None) -> list[Line]:
    """The JSON lines that a program prints. sources: a folder in front on PYTHONPATH."""
    folders = [sources, os.environ.get("PYTHONPATH")]
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(f for f in folders if f))
    env["PYTHONHASHSEED"] = "0"  # vLLM frees blocks in the order of a set of names
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name(program)), *arguments],
        env=env,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seeds", type=int, default=1, help="streams of each layout of a scheduler")
    parser.addoption("--steps", type=int, default=2500, help="of each of these streams")


@pytest.fixture(scope="session")
def num_seeds(request: pytest.FixtureRequest) -> int:
    return request.config.getoption("--seeds")


@pytest.fixture(scope="session")
def num_steps(request: pytest.FixtureRequest) -> int:
    return request.config.getoption("--steps")


@pytest.fixture(scope="session")
def run_part() -> Any:
    return run
