# SPDX-License-Identifier: Apache-2.0
"""Each test in a folder of its own, without the guard's variables."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the tests' own modules


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KVGUARD_CONFIG", raising=False)
    monkeypatch.delenv("KVGUARD_STATUS_DIR", raising=False)
