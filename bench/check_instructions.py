#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Instructions per record, counted by callgrind, against bench/instructions.json.

usage: check_instructions.py [--build DIR] [--update]

Times on a shared machine cannot guard a percent; instruction counts repeat. A count that grew by
more than 5 % (and by more than a few instructions) fails. The counts belong to one compiler and to
processors with AVX2: with another compiler, or without AVX2 or valgrind, nothing is compared, and
the line says so. --update stores the counts, to be committed with the change that explains them.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BASELINE = ROOT / "bench/instructions.json"
RECORDS = ("begin", "plan", "outcome", "end")
CYCLES = {"prefill_c1": 8, "mixed_c8": 4, "decode_c8": 4, "decode_c256": 1}
GROWTH = 0.05
FEW = 25  # a record of a few hundred instructions may move by these without a reason worth a test

Counts = dict[str, dict[str, int]]


def inclusive(dump: str) -> dict[str, int]:
    """Instructions of each kvguard_bench_* function with all that it calls, from a callgrind file.

    A function's block holds one line for each of its own source lines and one behind each 'calls='
    line, with the inclusive cost of that call: together they are the function's inclusive cost.
    """
    names: dict[str, str] = {}
    costs: dict[str, int] = {}
    function = ""
    for line in dump.splitlines():
        if match := re.match(r"c?fn=(\(\d+\))(?: (.*))?$", line):
            if match[2]:
                names[match[1]] = match[2]
            if line.startswith("fn="):
                function = names[match[1]]
        elif function.startswith("kvguard_bench_") and re.match(r"[+*\-\d]", line):
            fields = line.split()
            if len(fields) > 1:
                costs[function] = costs.get(function, 0) + int(fields[1])
    return costs


def count(program: Path) -> Counts:
    """Instructions per record and scenario, averaged over the steps of some cycles."""
    counts: Counts = {}
    with tempfile.TemporaryDirectory() as folder:
        for scenario, cycles in CYCLES.items():
            out = Path(folder) / scenario
            command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}"]
            command += [f"--toggle-collect=kvguard_bench_{record}" for record in RECORDS]
            command += [str(program), "count", scenario, str(cycles)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                sys.exit(f"check_instructions: {' '.join(command)} failed:\n{done.stderr}")
            steps = int(done.stdout)
            costs = inclusive(out.read_text())
            counts[scenario] = {
                record: round(costs[f"kvguard_bench_{record}"] / steps) for record in RECORDS
            }
    return counts


def compiler_of(build: Path) -> str:
    """The compiler of a build folder and the kind of build."""
    cache = (build / "CMakeCache.txt").read_text()
    compiler = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.*)$", cache, re.M)
    kind = re.search(r"^CMAKE_BUILD_TYPE:\w+=(.*)$", cache, re.M)
    assert compiler and kind, "a build folder made by CMake"
    version = subprocess.run([compiler[1], "--version"], capture_output=True, text=True, check=True)
    return f"{version.stdout.splitlines()[0].partition(' ')[2]}, {kind[1]}"


def why_not(build: Path, baseline: dict[str, Any] | None) -> str | None:
    """The reason for which nothing can be compared here."""
    if shutil.which("valgrind") is None:
        return "valgrind is not installed (apt-get install valgrind)"
    if "avx2" not in Path("/proc/cpuinfo").read_text():
        return "this processor has no AVX2"
    if baseline is not None and baseline["compiler"] != compiler_of(build):
        return f"counted with {baseline['compiler']}, this build is by {compiler_of(build)}"
    return None


def compare(counts: Counts, baseline: Counts) -> int:
    """Prints each count beside the stored one; the exit code."""
    passed = failed = 0
    for scenario, records in counts.items():
        for record, now in records.items():
            then = baseline.get(scenario, {}).get(record)
            if then is None:
                verdict, passed, failed = "FAIL not in the baseline", passed, failed + 1
            elif now > then * (1 + GROWTH) and now > then + FEW:
                verdict, passed, failed = "FAIL more than 5 % above", passed, failed + 1
            else:
                verdict, passed = "ok", passed + 1
                if now < then * (1 - GROWTH) and now < then - FEW:
                    verdict = "ok, less: store it with --update"
            change = f"{now / then - 1:+.1%}" if then else ""
            print(f"{scenario:12} {record:8} {now:9,} {then or 0:9,} {change:>8}  {verdict}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="default: build")
    parser.add_argument("--update", action="store_true", help="store the counts as the baseline")
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    program = build / "kvguard_plan_bench"
    if not program.is_file():
        sys.exit(f"check_instructions: {program} is missing: run make first")
    baseline = json.loads(BASELINE.read_text()) if BASELINE.is_file() else None
    if not arguments.update and baseline is None:
        sys.exit(f"check_instructions: {BASELINE} is missing: make it with --update")
    reason = why_not(build, None if arguments.update else baseline)
    if reason is not None:
        print(f"instructions are not compared: {reason}")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    counts = count(program)
    if arguments.update:
        stored = {"compiler": compiler_of(build), "instructions_per_record": counts}
        BASELINE.write_text(json.dumps(stored, indent=2) + "\n")
        print(f"stored in {BASELINE}")
        return 0
    assert baseline is not None
    return compare(counts, baseline["instructions_per_record"])


if __name__ == "__main__":
    sys.exit(main())
