#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the steps of a tier, ends with a time table and 'N passed, N failed'.

usage: tier.py NAME [--file tiers.toml]

A tier is what `make test` or `make test-all` runs; scripts/tiers.toml declares its steps. Each step
has a share (the row of the time table it belongs to), a budget in minutes and a way to count its
tests. The run fails if a step fails, counts no test although it should, or takes more than
HANG_FACTOR times its budget (it is then stopped). A step over its budget is marked in the table.
"""

from __future__ import annotations

import argparse
import os
import re
import selectors
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HANG_FACTOR = 2.0  # a budget is what a step may take on two cores; at twice that it hangs
LEFT_BEHIND_SECONDS = 15.0  # what a step's own processes get to end after it
STOP_SECONDS = 10.0  # what a process gets between being asked to end and being killed


@dataclass(frozen=True)
class Step:
    name: str
    share: str
    budget_minutes: float
    command: str
    count: str  # ctest, pytest, plain ('N passed, N failed') or none (a build: no tests of its own)
    needed: bool = False  # later steps make no sense where this one failed


@dataclass
class Count:
    passed: int = 0
    failed: int = 0
    skipped: int = 0


@dataclass
class Result:
    step: Step
    count: Count
    seconds: float = 0.0
    note: str = ""  # why it failed, beyond the failures counted

    @property
    def failed(self) -> bool:
        return bool(self.count.failed or self.note)

    @property
    def over_budget(self) -> bool:
        return self.seconds > self.step.budget_minutes * 60


_PYTEST = re.compile(r"(\d+) (passed|failed|skipped|errors?)\b")
_PYTEST_LINE = re.compile(r"^=*\s*\d+ \w+.* in \d+(\.\d+)?s")
_CTEST = re.compile(r"^\d+% tests passed(?:, (\d+) tests? failed)? out of (\d+)")
_CTEST_SKIPPED = re.compile(r"^\s+\d+ - .* \(Skipped\)")
_PLAIN = re.compile(r"^(?:\w+: )?(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$")


def count_tests(kind: str, lines: Iterable[str]) -> Count:
    """What the closing lines of a runner say. Of several closing lines of one kind all count."""
    total = Count()
    for line in lines:
        if kind == "pytest" and _PYTEST_LINE.match(line):
            for number, word in _PYTEST.findall(line):
                field = "failed" if word.startswith("error") else word
                setattr(total, field, getattr(total, field) + int(number))
        elif kind == "ctest":
            if match := _CTEST.match(line):
                failed = int(match[1] or 0)
                total.failed += failed
                total.passed += int(match[2]) - failed
            elif _CTEST_SKIPPED.match(line):  # ctest counts them among the passed
                total.skipped += 1
                total.passed -= 1
        elif kind == "plain" and (match := _PLAIN.match(line)):
            total.passed += int(match[1])
            total.failed += int(match[2])
            total.skipped += int(match[3] or 0)
    return total


def alive(group: int) -> bool:
    """Whether a process of the group runs. Zombies do not: they wait for another parent."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # pid (name) state ppid pgrp ...; the name may hold anything, so count from its end.
            state, _, pgrp = (entry / "stat").read_text().rsplit(")", 1)[1].split()[:3]
        except (OSError, ValueError):
            continue
        if int(pgrp) == group and state not in "ZX":
            return True
    return False


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends the step's process group, politely first. Its leader may have ended already."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        if not alive(process.pid):
            break
        os.killpg(process.pid, sign)
        patience = time.monotonic() + STOP_SECONDS
        while alive(process.pid) and time.monotonic() < patience:
            process.poll()
            time.sleep(0.1)
    process.wait()


def stream(command: str, limit: float) -> tuple[int | None, list[str], str]:
    """Runs a command line, printing its lines as they come: its status, its lines, what went wrong.

    Status None: it was stopped at the limit.
    """
    process = subprocess.Popen(
        ["bash", "-c", command],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # one group, so that a step ends with all that it started
    )
    try:
        lines: list[str] = []
        note = follow(process, time.monotonic() + limit, lines)
        if note == "stopped":
            return None, lines, f"stopped after {limit / 60:.1f} minutes"
        patience = time.monotonic() + LEFT_BEHIND_SECONDS
        while not note and alive(process.pid):
            if time.monotonic() > patience:
                note = "left processes behind"
            time.sleep(0.1)
    finally:
        stop(process)  # also where this process is told to end
    return process.returncode, lines, note


def follow(process: subprocess.Popen[bytes], deadline: float, lines: list[str]) -> str:
    """Prints and keeps the lines until the pipe ends. Not always with the step: one that hangs
    prints nothing, and a process that it left behind keeps the pipe open after it."""
    assert process.stdout is not None
    rest = b""
    patience = 0.0
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            if selector.select(0.5):
                chunk = os.read(process.stdout.fileno(), 65536)
                *whole, rest = (rest + chunk).split(b"\n")
                if not chunk and rest:
                    whole.append(rest)
                for raw in whole:
                    lines.append(raw.decode(errors="replace").rstrip("\r"))
                    print(lines[-1], flush=True)
                if not chunk:
                    break
            now = time.monotonic()
            if now > deadline:
                return "stopped"
            if process.poll() is not None:
                patience = patience or now + LEFT_BEHIND_SECONDS
                if now > patience:
                    return "left processes behind"
    # The pipe is closed, the step may go on.
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return "stopped"
    return ""


def run_step(step: Step) -> Result:
    print(f"\n== {step.name}: {step.command}", flush=True)
    start = time.monotonic()
    limit = step.budget_minutes * 60 * HANG_FACTOR
    status, lines, note = stream(step.command, limit)
    result = Result(step, count_tests(step.count, lines), time.monotonic() - start, note)
    if result.note:
        pass
    elif step.count != "none" and not (result.count.passed or result.count.failed):
        result.note = f"ran no test (status {status})"
    elif status != 0 and not result.count.failed:
        result.note = f"ended with status {status}"
    elif status == 0 and result.count.failed:
        result.note = "ended with status 0 although tests failed"
    if result.note:
        result.count.failed = max(result.count.failed, 1)
    return result


def run_steps(steps: list[Step]) -> list[Result]:
    results: list[Result] = []
    broken = ""
    for step in steps:
        if broken:
            results.append(Result(step, Count(failed=1), note=f"not run: {broken} failed"))
            continue
        results.append(run_step(step))
        if step.needed and results[-1].failed:
            broken = step.name
    return results


def table(results: list[Result]) -> str:
    rows = [("share", "minutes", "budget", "passed", "failed", "skipped", "")]
    shares = list(dict.fromkeys(r.step.share for r in results))
    for share in shares:
        mine = [r for r in results if r.step.share == share]
        rows.append(
            (
                share,
                f"{sum(r.seconds for r in mine) / 60:.1f}",
                f"{sum(r.step.budget_minutes for r in mine):.1f}",
                str(sum(r.count.passed for r in mine)),
                str(sum(r.count.failed for r in mine)),
                str(sum(r.count.skipped for r in mine)),
                "; ".join(f"{r.step.name} over its budget" for r in mine if r.over_budget),
            )
        )
    rows.append(
        (
            "all",
            f"{sum(r.seconds for r in results) / 60:.1f}",
            f"{sum(r.step.budget_minutes for r in results):.1f}",
            *(
                str(sum(getattr(r.count, f) for r in results))
                for f in ("passed", "failed", "skipped")
            ),
            "",
        )
    )
    widths = [max(len(row[i]) for row in rows) for i in range(6)]
    lines = []
    for row in rows:
        numbers = "  ".join(
            cell.rjust(width) for cell, width in zip(row[1:6], widths[1:], strict=True)
        )
        lines.append(f"{row[0].ljust(widths[0])}  {numbers}  {row[6]}".rstrip())
    return "\n".join(lines)


def load(file: Path, name: str) -> list[Step]:
    """The steps of a tier. `extends = "other"` puts the other tier's steps first."""
    tiers = tomllib.loads(file.read_text(encoding="utf-8"))
    if name not in tiers:
        raise SystemExit(f"tier: {file.name} has no tier '{name}'; it has {', '.join(tiers)}")
    tier = tiers[name]
    steps = load(file, tier["extends"]) if "extends" in tier else []
    for entry in tier["steps"]:
        step = Step(**entry)
        if step.count not in ("ctest", "pytest", "plain", "none"):
            raise SystemExit(f"tier: step '{step.name}' counts by '{step.count}', which is unknown")
        steps.append(step)
    return steps


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs the steps of a tier.")
    parser.add_argument("tier")
    parser.add_argument("--file", type=Path, default=ROOT / "scripts" / "tiers.toml")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # through `finally`
    results = run_steps(load(arguments.file, arguments.tier))
    print()
    for result in results:
        if result.failed:
            print(f"FAILED {result.step.name}: {result.note or f'{result.count.failed} tests'}")
    print(table(results))
    passed = sum(r.count.passed for r in results)
    failed = sum(r.count.failed for r in results)
    skipped = sum(r.count.skipped for r in results)
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
