#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every fuzz target for an hour of processor time, in pieces, and writes what came of it.

    scripts/fuzz_hours.py [--minutes N] [--target-seconds N] [--jobs N]

Goes on where earlier runs of the same sources ended: the account is tests/fuzzing.toml, which is
committed and names the commit. Other sources (src/, include/) start it anew. --minutes bounds this
run; --target-seconds is what each target must reach (default 3600). Exit codes: 0 every target has
reached it and nothing was found, 1 something was found (the input is named), 2 not there yet.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "tests" / "fuzzing.toml"
PIECE = 120  # seconds of one run: what a stop loses at most


@dataclass
class Target:
    name: str
    seconds: int = 0
    inputs: int = 0
    coverage: int = 0


def git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def sources() -> str:
    """What the targets are made from, as one name. Uncommitted changes count as other sources."""
    trees = git("rev-parse", "HEAD:src", "HEAD:include").split()
    dirty = git("status", "--porcelain", "--", "src", "include")
    return "-".join(tree[:12] for tree in trees) + ("-dirty" if dirty else "")


def read(key: str) -> dict[str, Target]:
    if not RESULT.exists():
        return {}
    kept = tomllib.loads(RESULT.read_text())
    if kept.get("sources") != key:
        return {}
    return {entry["name"]: Target(**entry) for entry in kept.get("target", [])}


def write(key: str, targets: dict[str, Target]) -> None:
    lines = [
        "# SPDX-License-Identifier: Apache-2.0",
        "# Made by scripts/fuzz_hours.py: time of each fuzz target on these sources, in seconds.",
        f'commit = "{git("rev-parse", "HEAD")}"',
        f'sources = "{key}"',
    ]
    for target in sorted(targets.values(), key=lambda t: t.name):
        lines.append("\n[[target]]")
        for name, value in asdict(target).items():
            lines.append(f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {value}")
    RESULT.write_text("\n".join(lines) + "\n")


def run(name: str, seconds: int) -> tuple[str, subprocess.CompletedProcess[str]]:
    command = ["scripts/fuzz.sh", str(seconds), name]
    # Beside other work an input may wait for the processor longer than it runs.
    environment = {**os.environ, "KVGUARD_FUZZ_BUILT": "1", "KVGUARD_FUZZ_TIMEOUT": "100"}
    return name, subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=environment, check=False
    )


def names() -> list[str]:
    listed = (ROOT / "build-fuzz" / "fuzz_targets.txt").read_text().split("\n")
    return [line.split()[0] for line in listed if line.strip()]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=1e9, help="of this run")
    parser.add_argument(
        "--target-seconds", type=int, default=3600, help="of each target, over all runs"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="targets at once")
    options = parser.parse_args()
    built = subprocess.run(["scripts/fuzz.sh", "--build"], cwd=ROOT, stdout=sys.stderr, check=False)
    if built.returncode != 0:
        print("fuzz: the targets do not build", file=sys.stderr)
        return 70
    key = sources()
    targets = read(key)
    for name in names():
        targets.setdefault(name, Target(name))
    deadline = time.monotonic() + options.minutes * 60
    found = False
    while not found:
        behind = sorted(
            (t for t in targets.values() if t.seconds < options.target_seconds),
            key=lambda t: t.seconds,
        )
        left = int(deadline - time.monotonic())
        if not behind or left < 10:
            break
        batch = behind[: options.jobs]
        most = max(options.target_seconds - t.seconds for t in batch)
        piece = min(PIECE, left, max(10, most))
        with ThreadPoolExecutor(len(batch)) as pool:
            for name, done in pool.map(run, [t.name for t in batch], [piece] * len(batch)):
                seen = re.search(
                    rf"^{name}: (\d+) inputs, coverage (\d+), (\d+) processor seconds$",
                    done.stdout,
                    re.MULTILINE,
                )
                if done.returncode != 0 or seen is None:
                    print(done.stdout, done.stderr, sep="\n")
                    found = True
                    continue
                target = targets[name]
                target.seconds += int(seen[3])
                target.inputs += int(seen[1])
                target.coverage = max(target.coverage, int(seen[2]))
        write(key, targets)
        state = ", ".join(
            f"{t.name} {t.seconds} s" for t in sorted(targets.values(), key=lambda t: t.name)
        )
        print(f"fuzz: of {options.target_seconds} s each: {state}", file=sys.stderr)
    whole = all(t.seconds >= options.target_seconds for t in targets.values())
    for target in targets.values():
        print(
            f"{target.name}: {target.seconds} s, {target.inputs} inputs, coverage {target.coverage}"
        )
    print("found something" if found else "nothing found" + ("" if whole else "; not there yet"))
    return 1 if found else 0 if whole else 2


if __name__ == "__main__":
    sys.exit(main())
