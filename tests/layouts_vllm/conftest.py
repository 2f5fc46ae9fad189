# SPDX-License-Identifier: Apache-2.0
"""What `make check-layouts` runs: layouts of a real vLLM V2 engine, with the guard in it."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
if str(TESTS) not in sys.path:
    sys.path.insert(0, str(TESTS))

from slice.conftest import (  # noqa: E402,F401  the same folders and the same lines
    _own_folder,
    figures,
    pytest_terminal_summary,
)
