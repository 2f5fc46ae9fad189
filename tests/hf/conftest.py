# SPDX-License-Identifier: Apache-2.0
"""What `make check-transformers` runs: Hugging Face transformers on a CPU, with the guard in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hf import environment

environment.activate()  # before anything imports torch


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Incident files go to the current folder unless configured: not into the source tree."""
    monkeypatch.chdir(tmp_path)
