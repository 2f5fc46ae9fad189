# SPDX-License-Identifier: Apache-2.0
"""The kvguard command as a user runs it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def path() -> str:
    """The built command: KVGUARD_COMMAND, or build/kvguard of this tree."""
    return os.environ.get("KVGUARD_COMMAND") or str(ROOT / "build" / "kvguard")


def run(*arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[bytes]:
    """Runs the command to its end; bytes, because equal output means equal bytes."""
    return subprocess.run([path(), *arguments], capture_output=True, timeout=timeout, check=False)
