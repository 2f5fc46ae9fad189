# SPDX-License-Identifier: Apache-2.0
"""What `make check-slice` runs: a real vLLM V2 engine on a CPU, with the guard in it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parents[1]
if str(TESTS) not in sys.path:
    sys.path.insert(0, str(TESTS))

from rig import engine as _rig_engine  # noqa: E402,F401  prepares the process, before anything imports vllm


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Incident files go to the current folder unless configured: not into the source tree."""
    monkeypatch.chdir(tmp_path)


LINES = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def figures(request: pytest.FixtureRequest) -> list[str]:
    """Lines that a test wants to be read: printed together at the end, whatever is captured."""
    return request.config.stash.setdefault(LINES, [])


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    lines = config.stash.get(LINES, [])
    if lines:
        terminalreporter.section("figures")
        for line in lines:
            terminalreporter.write_line(line)
