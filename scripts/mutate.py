#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mutation testing of src/geometry, src/rules and src/mirror (`make mutate`).

usage: mutate.py [--minutes N] [--jobs N] [--again] [FILE...]
       mutate.py --report
       mutate.py --list [FILE...]

Every small change that is tried (a mutant) is compiled in at once and switched on by its number at
run time (mutation_rewrite.py, tests/mutation/mutant.h). Each is judged by the tests that come by
its place (mutation_run.py). Results are appended to build-mutate/results.jsonl by the source file's
hash and the place, so that a run goes on where the last one ended; survivors are judged again by
tests that have changed, or, with --again, by all.

--report writes docs/mutation.md from the results and from tests/mutation/survivors_*.toml, which
say of survivors why they are harmless. A mutant that changes nothing that can be observed is no
evidence about tests: the score is killed / (mutants - harmless survivors). It ends with 1 if the
score is below 90 %, a survivor has no reason (is open), or a mutant was not run.

Exit codes: 0, 1 (--report: see above), 64 usage, 70 the tree does not build or its tests fail.
"""

from __future__ import annotations

import argparse
import functools
import json
import subprocess
import sys
import threading
import time
import tomllib
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mutation_build import BuildError, Source, Work, default_folder
from mutation_rewrite import Mutant
from mutation_run import (
    IMPOSSIBLE,
    KILLED,
    STAGES,
    SURVIVED,
    TIMED_OUT,
    UNREACHED,
    Batch,
    Judges,
    Outcome,
)
from repo_files import ROOT

TARGET = 90.0  # percent
PROGRESS = 30.0  # seconds
PAGE = "docs/mutation.md"
REASONS = "tests/mutation"  # survivors_*.toml
DEAD = (KILLED, TIMED_OUT)
ALIVE = (SURVIVED, UNREACHED)


Result = dict[str, Any]


def say(text: str) -> None:
    print(f"mutate: {text}", file=sys.stderr, flush=True)


# ---- results


def read_results(path: Path) -> dict[str, Result]:
    """Source.key -> the last result."""
    results: dict[str, Result] = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                result = json.loads(line)
                results[result["key"]] = result
            except (json.JSONDecodeError, KeyError):
                continue  # a run that was ended while it wrote
    return results


@dataclass
class Todo:
    source: Source
    mutant: Mutant
    batches: list[Batch]  # that have not judged it yet, in order
    judged: list[str]  # Batch.judge of those that it survived


class Run:
    def __init__(self, judges: Judges, results_path: Path) -> None:
        self._judges = judges
        self._path = results_path
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        # A stage is over before the next begins: most mutants are killed by what is quick.
        self._queues: dict[str, deque[Todo]] = {stage: deque() for stage in STAGES}
        self._started = time.monotonic()

    def plan(self, mutants: list[tuple[Source, Mutant]], again: bool = False) -> None:
        results = read_results(self._path)
        for source, mutant in mutants:
            result = results.get(source.key(mutant), {})
            if result.get("status") in (*DEAD, IMPOSSIBLE) and not again:
                continue
            judged = [] if again else result.get("judged", [])
            everything = self._judges.batches(mutant.id, source.name.split("/")[1])
            left = [batch for batch in everything if batch.judge not in judged]
            if left:
                todo = Todo(source, mutant, left, judged)
                self._queues[left[0].stage].append(todo)
            elif not everything and result.get("status") != UNREACHED:
                self._write(Todo(source, mutant, [], []), Outcome(self._judges.unrun(mutant.id)))

    def left(self) -> int:
        return sum(len(queue) for queue in self._queues.values())

    def go(self, jobs: int, minutes: float | None) -> None:
        say(f"{self.left()} mutants to judge")
        self._started = time.monotonic()
        end = None if minutes is None else self._started + 60 * minutes
        with ThreadPoolExecutor(jobs) as pool:
            workers = [pool.submit(self._work, end) for _ in range(jobs)]
            last = time.monotonic()
            while not all(worker.done() for worker in workers):
                time.sleep(0.5)
                if time.monotonic() - last >= PROGRESS:
                    last = time.monotonic()
                    self._progress()
            for worker in workers:
                worker.result()  # an error of a judge ends the run
        self._progress()

    def _next(self, end: float | None) -> Todo | None:
        with self._lock:
            if end is None or time.monotonic() < end:
                for queue in self._queues.values():
                    if queue:
                        return queue.popleft()
        return None

    def _work(self, end: float | None) -> None:
        while todo := self._next(end):
            stage = todo.batches[0].stage
            now = [batch for batch in todo.batches if batch.stage == stage]
            todo.batches = todo.batches[len(now) :]
            outcome = self._judges.judge(todo.mutant.id, now)
            if outcome.status == SURVIVED:
                todo.judged = sorted({*todo.judged, *(batch.judge for batch in now)})
            self._write(todo, outcome)

    def _write(self, todo: Todo, outcome: Outcome) -> None:
        result = {
            "key": todo.source.key(todo.mutant),
            "file": todo.mutant.file,
            "line": todo.mutant.line,
            "column": todo.mutant.column,
            "operator": todo.mutant.operator,
            "change": todo.mutant.change,
            "status": outcome.status,
            "by": outcome.by,
            "seconds": outcome.seconds,
            "judged": todo.judged,
            "left": len(todo.batches),
        }
        with self._lock:
            more = outcome.status == SURVIVED and todo.batches
            self._counts["more" if more else outcome.status] += 1
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(result) + "\n")
            if more:
                self._queues[todo.batches[0].stage].append(todo)

    def _progress(self) -> None:
        with self._lock:
            counts = self._counts.copy()
            queued = {stage: len(queue) for stage, queue in self._queues.items()}
        done = counts.total()
        left = sum(queued.values())
        minutes = (time.monotonic() - self._started) / done * left / 60 if done else 0.0
        waiting = ", ".join(f"{number} for {stage}" for stage, number in queued.items())
        say(
            f"{done}/{done + left}, {counts[KILLED]} killed, {counts[TIMED_OUT]} timed out, "
            f"{counts[SURVIVED] + counts[UNREACHED]} survived; waiting: {waiting}; "
            f"about {minutes:.0f} min left"
        )


# ---- report


# File, the line before (None: whatever it is), the line, the change.
Which = tuple[str, str | None, str, str]


def read_reasons(folder: Path) -> dict[Which, str]:
    """Why mutants are harmless. Their entries are [line, change], or [line before, line, change]
    where the line alone says too little."""
    return {
        (group["file"], None if len(entry) == 2 else entry[0], entry[-2], entry[-1]): group[
            "reason"
        ]
        for path in sorted(folder.glob("survivors_*.toml"))
        for group in tomllib.loads(path.read_text(encoding="utf-8")).get("survivors", [])
        for entry in group["mutants"]
    }


def which(mutant: Mutant) -> list[Which]:
    """What a reason may name it by."""
    return [(mutant.file, before, mutant.text, mutant.change) for before in (mutant.before, None)]


@dataclass
class Score:
    """Of some mutants. harmless: survivors with a committed reason; open: those without one."""

    counts: Counter[str] = field(default_factory=Counter)  # by status
    harmless: int = 0
    open: int = 0

    @property
    def total(self) -> int:
        return sum(self.counts[status] for status in (*DEAD, *ALIVE, "not run"))

    @property
    def killed(self) -> int:
        return sum(self.counts[status] for status in DEAD)

    @property
    def raw(self) -> float:
        return 100.0 * self.killed / self.total if self.total else 100.0

    @property
    def score(self) -> float:
        """A mutant that was not run counts as not killed."""
        judged = self.total - self.harmless
        return 100.0 * self.killed / judged if judged else 100.0

    @property
    def good(self) -> bool:
        return self.score >= TARGET and self.open == 0 and self.counts["not run"] == 0

    def plus(self, other: Score) -> Score:
        return Score(
            self.counts + other.counts, self.harmless + other.harmless, self.open + other.open
        )


def table_row(name: str, score: Score) -> str:
    counts = score.counts
    cells = [
        *(score.total, counts[KILLED], counts[TIMED_OUT], counts[SURVIVED], counts[UNREACHED]),
        *(score.harmless, score.open),
    ]
    return f"| {name} | {' | '.join(map(str, cells))} | {score.raw:.1f} % | {score.score:.1f} % |"


def code(text: str) -> str:
    return "`` " + text.replace("|", "\\|") + " ``"


def page(
    work: Work, results: dict[str, Result], reasons: dict[Which, str], commit: str
) -> tuple[str, Score]:
    """The page, and the score of all mutants."""
    by_file: dict[str, Score] = {}
    alive: list[tuple[Mutant, str, str]] = []
    unfinished = 0
    for source, mutant in work.mutants():
        result = results.get(source.key(mutant))
        status = result["status"] if result else "not run"
        score = by_file.setdefault(source.name, Score())
        score.counts[status] += 1
        if status in ALIVE:
            unfinished += bool(result and result.get("left"))
            reason = next((reasons[name] for name in which(mutant) if name in reasons), None)
            score.harmless += reason is not None
            score.open += reason is None
            alive.append((mutant, status, reason or "open"))
    total = functools.reduce(Score.plus, by_file.values(), Score())
    skipped = [mutant for source in work.sources.values() for mutant in source.left_out]
    lines = [
        "<!-- made by scripts/mutate.py --report: change the tests, not this page -->",
        "# Mutation testing",
        "",
        "How much the tests notice. Each mutant is one small change of `src/geometry`, `src/rules` "
        "or `src/mirror`: a comparison with another boundary or its opposite, another arithmetic "
        "or logical operator, the opposite of a condition or of a returned truth value, a constant "
        "that is off by one, a statement that is gone. A mutant is killed if a test fails, a "
        "generated program is judged otherwise than by the oracle (`oracle/`), or a record of the "
        "benchmark costs more instructions than `bench/check_instructions.py` lets pass. `make "
        "mutate` runs them and goes on where it ended; `tests/mutation/survivors_*.toml` hold the "
        "reasons.",
        "",
        "A mutant that changes nothing that can be observed is no evidence about tests. So the "
        "score is killed / (mutants - harmless), where *harmless* are the survivors with a reason "
        "below that says why nobody can see them; a survivor without a reason is *open*. The gate "
        f"(`scripts/mutate.sh --report` ends with 0) is a score of {TARGET:.0f} % and no open "
        "survivor and every mutant run. *Raw* is killed / mutants.",
        "",
        f"Commit {commit}: {total.total} mutants, {total.killed} killed: {total.raw:.1f} % raw; "
        f"without {total.harmless} harmless ones {total.score:.1f} % (target: {TARGET:.0f} %). "
        f"{len(alive)} survive: {total.harmless} harmless, {total.open} open. "
        f"{unfinished} survivors still wait for slow tests. "
        f"Not run: {total.counts['not run']}. Not counted: {len(skipped)} that do not compile, "
        f"{total.counts[IMPOSSIBLE]} at types without the other operator.",
        "",
        "A time-out (ten times the original's processor time, at least 5 s) is a kill. "
        "*Unreached* survive without a run: no test comes by their place.",
        "",
        "| file | mutants | killed | timed out | survived | unreached | harmless | open | raw "
        "| score |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
        *(table_row(f"`{name}`", by_file[name]) for name in sorted(by_file)),
        table_row("all", total),
        "",
        "## Survivors",
        "",
        "| place | change | why |",
        "|---|---|---|",
    ]
    for mutant, status, reason in sorted(alive, key=lambda row: (row[0].file, row[0].id)):
        why = reason if status == SURVIVED or reason != "open" else "open, unreached"
        lines.append(f"| {mutant.file}:{mutant.line} | {code(mutant.change)} | {why} |")
    if skipped:
        said = work.skipped()
        lines += ["", "## Left out", "", "| place | change | the compiler |", "|---|---|---|"]
        for mutant in sorted(skipped, key=lambda m: m.id):
            error = said.get(work.sources[mutant.file].key(mutant), "with its neighbour")
            lines.append(f"| {mutant.file}:{mutant.line} | {code(mutant.change)} | {error} |")
    return "\n".join(lines) + "\n", total


def report(work: Work, results: dict[str, Result]) -> int:
    commit = subprocess.run(
        ["git", "-C", work.root, "rev-parse", "--short=12", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    reasons = read_reasons(work.root / REASONS)
    text, score = page(work, results, reasons, commit or "unknown")
    (work.root / PAGE).write_text(text, encoding="utf-8")
    alive = {
        name
        for source, mutant in work.mutants()
        if results.get(source.key(mutant), {"status": SURVIVED})["status"] in ALIVE
        for name in which(mutant)
    }
    for file, _, line, change in sorted(set(reasons) - alive, key=str):
        say(f"{REASONS}: no such survivor any more: {file}: {line}: {change}")
    print(
        f"{score.raw:.1f} % killed raw, {score.score:.1f} % without {score.harmless} harmless ones "
        f"(target: {TARGET:.0f} %); open survivors: {score.open}; "
        f"not run: {score.counts['not run']}; {PAGE} is written"
    )
    return 0 if score.good else 1


# ---- command


def chosen(mutants: list[tuple[Source, Mutant]], files: list[str]) -> list[tuple[Source, Mutant]]:
    return [pair for pair in mutants if not files or any(pair[0].name.startswith(f) for f in files)]


def main() -> int:
    parser = argparse.ArgumentParser(description="Mutation testing.", usage=__doc__)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("files", nargs="*")
    try:
        options = parser.parse_args()
    except SystemExit as exit_:
        return 64 if exit_.code else 0
    work = Work(ROOT, default_folder(ROOT), options.jobs)
    results_path = work.folder / "results.jsonl"
    try:
        if options.report or options.list:
            work.rewrite()
        else:
            work.make()
        mutants = chosen(work.mutants(), options.files)
        if not mutants:
            say(f"no mutant in {' '.join(options.files)}")
            return 64
        if options.list:
            for _, mutant in mutants:
                print(f"{mutant.id} {mutant.place}: {mutant.change}")
            return 0
        if options.report:
            return report(work, read_results(results_path))
        judges = Judges(ROOT, work.folder, sys.executable, options.jobs)
        judges.survey(say)
        run = Run(judges, results_path)
        run.plan(mutants, options.again)
        run.go(options.jobs, options.minutes)
    except (BuildError, RuntimeError) as error:
        say(str(error))
        return 70
    return 0


if __name__ == "__main__":
    sys.exit(main())
