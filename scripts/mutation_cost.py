# SPDX-License-Identifier: Apache-2.0
"""What a mutant costs: instructions per record, by the rules of bench/check_instructions.py.

A change that only makes a fast path say no is no change of any answer. It is noticed where that
path is counted.
"""

from __future__ import annotations

import importlib.util
import shutil
from types import ModuleType

from repo_files import ROOT

BENCH = "kvguard_plan_bench"
# Cycles as few as the counts are told apart by.
SCENARIOS = {
    f"instructions: {scenario}": ["count", scenario, "1"]
    for scenario in ("prefill_c1", "mixed_c8", "decode_c8", "decode_c256")
}


def available() -> bool:
    return shutil.which("valgrind") is not None


def _rules() -> ModuleType:
    """bench/check_instructions.py; it is no part of a package."""
    spec = importlib.util.spec_from_file_location(
        "check_instructions", ROOT / "bench/check_instructions.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Costs:
    """By scenario, what the original costs, and whether something else costs more."""

    def __init__(self) -> None:
        self._rules = _rules()
        self._originals: dict[str, dict[str, int]] = {}

    def command(self, out: str) -> list[str]:
        """What a program is run under so that `out` holds its counts."""
        toggles = [f"--toggle-collect=kvguard_bench_{record}" for record in self._rules.RECORDS]
        return ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", *toggles]

    def learn(self, scenario: str, steps: int, dump: str) -> None:
        self._originals[scenario] = self._per_step(steps, dump)

    def grew(self, scenario: str, steps: int, dump: str) -> bool:
        """Whether check_instructions.py would fail."""
        return any(
            now > then * (1 + self._rules.GROWTH) and now > then + self._rules.FEW
            for now, then in zip(
                self._per_step(steps, dump).values(),
                self._originals[scenario].values(),
                strict=True,
            )
        )

    def _per_step(self, steps: int, dump: str) -> dict[str, int]:
        counts = self._rules.inclusive(dump)
        return {
            record: round(counts.get(f"kvguard_bench_{record}", 0) / steps)
            for record in self._rules.RECORDS
        }
