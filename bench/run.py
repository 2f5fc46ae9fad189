#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make bench: what judging a step costs, beside what else could have been done.

Builds, then runs rounds. A round measures every lane of every scenario once: the guard and the bare
loop in one C++ process; plain Python, numpy and the guard from Python in this one. Times of one
binary move by far more between runs than between the lanes of a round, so every ratio is taken
within its round, and the median over the rounds is shown.

Exit code 0: no bound is broken (one that cannot be judged here is skipped, and its line says why).
1: one is.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
JSON = dict[str, Any]
Round = dict[str, dict[str, float]]  # scenario -> lane -> us

# Lanes, in the order of the table.
LANES = {
    "plan": "guard: PLAN",
    "begin": "guard: BEGIN",
    "outcome": "guard: OUTCOME",
    "end": "guard: END",
    "recorded_plan": "guard keeping an incident's records: PLAN",
    "recorded_begin": "guard keeping an incident's records: BEGIN",
    "python_plan": "the same from Python: PLAN",
    "python_walk": "the same from Python: walk and BEGIN",
    "bare": "bare loop (AVX2, expected values ready)",
    "numpy": "numpy, vectorised",
    "plain": "plain Python, by blocks",
    "plain_by_token": "plain Python, by tokens",
}
GATED = ("prefill_c1", "mixed_c8")  # where the bounds against Python are promised
WARM_UP_ROUNDS = 2


def set_up(build: Path, arguments: argparse.Namespace) -> None:
    """Builds, and goes on in the environment that has numpy."""
    if not arguments.no_build:
        subprocess.run([ROOT / "scripts/build.sh", build], check=True, stdout=sys.stderr)
    try:
        import numpy  # noqa: F401
    except ImportError:
        venv = subprocess.run(
            [ROOT / "scripts/setup.sh"], check=True, text=True, stdout=subprocess.PIPE
        ).stdout
        python = Path(venv.strip().splitlines()[-1]) / "bin/python"
        os.execv(python, [str(python), __file__, *sys.argv[1:], "--no-build"])


class PythonLanes:
    """The lanes of this process, on the steps that the C++ process dumped."""

    def __init__(self, scenarios: list[JSON]) -> None:
        import baselines
        import guard_python

        try:
            from kvguard import _core
        except ImportError as error:
            sys.exit(f"run.py: the build folder has no kvguard._core, run make first ({error})")

        self.guards = {s["name"]: guard_python.GuardLane(_core, s) for s in scenarios}
        self.lanes: dict[str, list[tuple[str, Callable[[Any], bool], list[Any], int]]] = {}
        for scenario in scenarios:
            size = scenario["block_size"]
            plain = [baselines.PlainStep.of(size, step) for step in scenario["steps"]]
            arrays = [baselines.NumpyStep.of(size, step) for step in scenario["steps"]]
            entries = sum(len(row["blocks"]) for row in scenario["steps"][0]["rows"])
            elements = entries + len(scenario["steps"][0]["slots"])
            repeats = max(5, min(25, 50_000 // elements))  # a large batch makes no long round
            self.lanes[scenario["name"]] = [
                ("plain", baselines.check_plain, plain, repeats),
                ("plain_by_token", baselines.check_plain_by_token, plain, repeats),
                ("numpy", baselines.check_numpy, arrays, 60),
            ]

    def round(self, out: Round) -> None:
        """Measures each lane once."""
        clock = time.perf_counter_ns
        for scenario, lanes in self.lanes.items():
            for lane, check, steps, repeats in lanes:
                samples = []
                for i in range(repeats):
                    step = steps[i % len(steps)]
                    start = clock()
                    right = check(step)
                    samples.append(clock() - start)
                    if not right:
                        sys.exit(f"run.py: {lane} finds a difference in {scenario}")
                out[scenario][lane] = statistics.median(samples) / 1000
        for scenario, guard in self.guards.items():
            out[scenario].update(guard.round())


def measure(program: Path, rounds: int) -> tuple[list[JSON], list[Round]]:
    """The scenarios, and for each round the median of each lane in microseconds."""
    dump = subprocess.run([program, "dump"], check=True, stdout=subprocess.PIPE).stdout
    scenarios: list[JSON] = json.loads(dump)
    python_lanes = PythonLanes(scenarios)
    results: list[Round] = []
    gc.disable()
    with subprocess.Popen(
        [program, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        for index in range(rounds + WARM_UP_ROUNDS):
            process.stdin.write("round\n")
            process.stdin.flush()
            line = process.stdout.readline()
            if not line:
                sys.exit(
                    "run.py: the guard's side of the benchmark ended; its last lines are above"
                )
            this = {
                name: {lane: ns / 1000 for lane, ns in lanes.items()}
                for name, lanes in json.loads(line).items()
            }
            python_lanes.round(this)
            gc.collect()
            if index >= WARM_UP_ROUNDS:
                results.append(this)
        process.stdin.close()
    gc.enable()
    return scenarios, results


def over_rounds(rounds: list[Round], value: Callable[[Round], float]) -> float:
    """The median over the rounds of something that is taken within a round."""
    return statistics.median(value(this) for this in rounds)


def ratio(rounds: list[Round], scenario: str, lane: str, to: str) -> float | None:
    """lane / to, each round for itself."""
    if any(lane not in this[scenario] or to not in this[scenario] for this in rounds):
        return None
    return over_rounds(rounds, lambda this: this[scenario][lane] / max(this[scenario][to], 1e-3))


def print_table(scenarios: list[JSON], rounds: list[Round]) -> None:
    """Medians, the middle 80 % of the rounds, and what each lane is to three of the others."""
    for scenario in scenarios:
        name = scenario["name"]
        print(f"\n{scenario['title']}")
        print(f"  {'':44} {'us':>10} {'10..90 %':>21} {'/ bare':>9} {'/ numpy':>9} {'/ Python':>9}")
        for lane, title in LANES.items():
            if lane not in rounds[0][name]:
                continue
            samples = sorted(this[name][lane] for this in rounds)
            low, high = samples[len(samples) // 10], samples[-1 - len(samples) // 10]
            ratios = (ratio(rounds, name, lane, to) for to in ("bare", "numpy", "plain"))
            cells = " ".join(f"{'-' if r is None else f'{r:.3g}':>9}" for r in ratios)
            spread = f"{low:.3f}..{high:.3f}"
            print(f"  {title:44} {statistics.median(samples):10.3f} {spread:>21} {cells}")


def bounds(scenarios: list[JSON], rounds: list[Round]) -> list[JSON]:
    """The promises, judged."""
    results: list[JSON] = []
    for scenario in scenarios:
        name = scenario["name"]
        title = f"{name}: PLAN at most 3x the bare loop plus 0.5 us"
        if "bare" in rounds[0][name]:
            over = over_rounds(
                rounds, lambda this, n=name: this[n]["plan"] - 3 * this[n]["bare"] - 0.5
            )
            results.append(
                {
                    "bound": title,
                    "holds": over <= 0,
                    "measured": f"{over:+.3f} us against the bound",
                }
            )
        else:
            results.append(
                {
                    "bound": title,
                    "holds": None,
                    "measured": "no bare loop: this processor has no AVX2",
                }
            )
    for name in GATED:
        for lane, factor in (("plain", 100), ("numpy", 10)):
            times = ratio(rounds, name, lane, "plan")
            assert times is not None
            results.append(
                {
                    "bound": f"{name}: PLAN at least {factor}x below {LANES[lane]}",
                    "holds": times >= factor,
                    "measured": f"{times:.1f}x",
                }
            )
    return results


def first_line(*command: str | Path) -> str:
    """What a tool says about itself, or that it cannot be asked."""
    try:
        done = subprocess.run(
            command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except OSError:
        return "not available"
    return (
        done.stdout.strip().splitlines()[0]
        if done.returncode == 0 and done.stdout.strip()
        else "not available"
    )


def circumstances(build: Path, load_before: tuple[float, float, float]) -> JSON:
    """What the figures depend on."""
    import numpy

    cache = {}
    for line in (build / "CMakeCache.txt").read_text().splitlines():
        key, separator, value = line.partition("=")
        if separator:
            cache[key.partition(":")[0]] = value
    compiler = cache.get("CMAKE_CXX_COMPILER", "c++")
    kind = cache.get("CMAKE_BUILD_TYPE", "")
    flags = (cache.get("CMAKE_CXX_FLAGS", ""), cache.get(f"CMAKE_CXX_FLAGS_{kind.upper()}", ""))
    tree = subprocess.run(
        ["git", "status", "--porcelain"], cwd=ROOT, text=True, capture_output=True, check=False
    )
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "machine": {
            "processor": models[0] if models else platform.machine(),
            "cores": os.cpu_count(),
        },
        "compiler": first_line(compiler, "--version"),
        "flags": " ".join(("-std=c++20", *filter(None, flags))),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "commit": first_line("git", "rev-parse", "HEAD"),
        "tree": "clean" if not tree.stdout.strip() else "changed since the commit",
        "load": {"before": load_before, "after": os.getloadavg()},
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--build", type=Path, default=ROOT / "build", help="the build folder (default: build)"
    )
    parser.add_argument("--no-build", action="store_true", help="the build folder is up to date")
    parser.add_argument("--rounds", type=int, default=31, help="default: 31")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "bench/results.json", help="default: bench/results.json"
    )
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error("--rounds: at least 1")
    build = arguments.build.resolve()
    set_up(build, arguments)
    sys.path.insert(0, str(build / "python"))

    load_before = os.getloadavg()
    scenarios, rounds = measure(build / "kvguard_plan_bench", arguments.rounds)
    print_table(scenarios, rounds)
    judged = bounds(scenarios, rounds)
    print()
    for bound in judged:
        word = {True: "PASS", False: "FAIL", None: "SKIP"}[bound["holds"]]
        print(f"{word} {bound['bound']} ({bound['measured']})")

    results = {
        "circumstances": circumstances(build, load_before),
        "rounds": arguments.rounds,
        "us": {
            s["name"]: {
                lane: round(statistics.median(this[s["name"]][lane] for this in rounds), 3)
                for lane in LANES
                if lane in rounds[0][s["name"]]
            }
            for s in scenarios
        },
        "bounds": judged,
    }
    arguments.out.write_text(json.dumps(results, indent=2) + "\n")
    load = f"load {load_before[0]:.1f} before and {os.getloadavg()[0]:.1f} after"
    print(f"\n{arguments.rounds} rounds, {load}: {arguments.out}")
    held = [bound["holds"] for bound in judged]
    counts = {"passed": held.count(True), "failed": held.count(False), "skipped": held.count(None)}
    print(", ".join(f"{n} {word}" for word, n in counts.items() if n or word != "skipped"))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
