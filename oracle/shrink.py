#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a program smaller as long as it still shows what it is kept for.

usage: oracle/shrink.py FILE... --into DIR [--fires CODE] [--tries N] [--seconds S]

FILE: programs as kvguard_programs --jsonl prints and differential.py --save keeps them, or one
stream of `kvguard trace dump --jsonl`. Kept is the first difference between core and oracle (who
finds it, and its code; not where: steps, requests and positions become smaller), or with --fires
that core and oracle agree and both find this code. Each is written as DIR/<name>.jsonl, which
tests/oracle/differences may take as it is. The core is the library that KVGUARD_LIBRARY names, else
build/libkvguard.so.

Exit codes: 0 all shrunk, 3 a program shows nothing to keep, 64 usage, 65 malformed input.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parent))

import core_bridge
import shrink_edits as edits
from differential import (
    core_proofs,
    differences,
    oracle_proofs,
    same_verdict,
    split_programs,
    suspicion_differences,
)
from kvguard_oracle import Result, UnreadableError, UnsupportedError, judge_lines
from kvguard_oracle.records import read_lines
from shrink_edits import Edit, Line, Program

T = TypeVar("T")
Predicate = Callable[[Program], bool]
# who finds it and what it is, without where
Signature = tuple[str, Any]

NOTHING_TO_KEEP, USAGE, MALFORMED = 3, 64, 65
MOST_TRIES = 6000
MOST_SECONDS = 300.0
SECONDS_BETWEEN_PROGRESS = 5.0


# what two judges say of a program


@dataclass
class Judged:
    core: Line
    # None: the oracle cannot judge it, and says why
    result: Result | None
    silence: str = ""

    def refused(self) -> int:
        """Records that one of the two did not take."""
        gaps = self.result.gaps.items() if self.result else []
        malformed = sum(len(steps) for name, steps in gaps if name.startswith("malformed"))
        return max(len(self.core["errors"]), malformed)


def judge_both(program: Program) -> Judged | None:
    """None: not a program to one of them."""
    try:
        core = core_bridge.judge(program)
    except (RuntimeError, KeyError, TypeError, ValueError, OverflowError):
        return None
    try:
        return Judged(core, judge_lines(edits.clone(program)))
    except UnsupportedError as error:
        return Judged(core, None, str(error))
    except UnreadableError:
        return None


def signatures(judged: Judged) -> list[Signature]:
    """Every difference, those of the earliest step first, then what follows from findings."""
    core, result = judged.core, judged.result
    if result is None:
        return [("the oracle cannot judge", judged.silence)]
    theirs, ours = core_proofs(core), oracle_proofs(result)
    found = [("only the core finds", key) for key in theirs - ours]
    found += [("only the oracle finds", key) for key in ours - theirs]
    found.sort(key=lambda item: (item[1][1], str(item)))
    named = [(who, key[0]) for who, key in found]
    if suspicion_differences(core, result):
        # where the core stores each code once only the codes can say which
        codes = {int(code) for code in core["suspicions"]} ^ set(result.suspicions())
        named += [("suspicions differ", code) for code in sorted(codes) or [None]]
    for name, one, other in (
        ("step gaps", core["step_gaps"], len(result.gap_steps())),
        ("verdict", True, same_verdict(core, result)),
        ("assumptions", core["assumptions"], result.assumptions),
        ("ignored", core["ignored"], result.ignored),
    ):
        if one != other:
            named.append((f"{name} differ", None))
    return named


def agree(judged: Judged) -> bool:
    return not signatures(judged)


def fired(judged: Judged) -> set[int]:
    """Codes that the core has found."""
    return {f["code"] for f in judged.core["findings"]} | {
        int(c) for c in judged.core["suspicions"]
    }


def keeps_disagreement(program: Program) -> Predicate | None:
    """Still differs in what the program's first difference is; None where there is none.

    No more records are refused than now, so that a record is not broken to keep a difference.
    """
    judged = judge_both(program)
    if judged is None or agree(judged):
        return None
    kept, refused = signatures(judged)[0], judged.refused()

    def keeps(smaller: Program) -> bool:
        now = judge_both(smaller)
        return now is not None and now.refused() <= refused and kept in signatures(now)

    return keeps


def keeps_code(program: Program, code: int) -> Predicate | None:
    """Both find the code, nothing that they do not find now, and agree; None where they do not."""
    judged = judge_both(program)
    if judged is None or code not in fired(judged) or not agree(judged):
        return None
    refused, allowed = judged.refused(), fired(judged)

    def keeps(smaller: Program) -> bool:
        now = judge_both(smaller)
        if now is None or now.refused() > refused or not agree(now):
            return False
        return code in fired(now) and fired(now) <= allowed

    return keeps


# the search


class SpentError(Exception):
    """The bound on tries or seconds is reached."""


class Shrinker:
    """Holds the smallest program that was kept so far. The same input, the same result."""

    def __init__(
        self,
        program: Program,
        keeps: Predicate,
        most_tries: int = MOST_TRIES,
        most_seconds: float = MOST_SECONDS,
        progress: TextIO | None = sys.stderr,
    ) -> None:
        self.best = edits.clone(program)
        self.keeps = keeps
        self.most_tries = most_tries
        self.deadline = time.monotonic() + most_seconds
        self.progress = progress
        self.next_progress = time.monotonic() + SECONDS_BETWEEN_PROGRESS
        self.tries = 0
        self.spent = False
        self.seen: set[bytes] = set()
        self.pass_name = ""

    def run(self) -> Program:
        try:
            before = None
            while before != self.best:
                before = self.best
                for one in PASSES:
                    self.pass_name = one.__name__
                    one(self)
        except SpentError:
            self.spent = True
        self.tell("done" if not self.spent else "out of tries or time")
        return self.best

    def tell(self, what: str) -> None:
        if self.progress is not None:
            size = f"{len(self.best) - 1} records, {len(json.dumps(self.best))} bytes"
            print(f"shrink: {what}: {size} after {self.tries} tries", file=self.progress)

    def attempt(self, candidate: Program | None) -> bool:
        """Takes the candidate where it keeps what is to be kept; each is judged once."""
        if candidate is None or candidate == self.best:
            return False
        digest = hashlib.sha256(json.dumps(candidate).encode()).digest()
        if digest in self.seen:
            return False
        if self.tries >= self.most_tries or time.monotonic() > self.deadline:
            raise SpentError
        self.seen.add(digest)
        self.tries += 1
        if time.monotonic() > self.next_progress:
            self.next_progress = time.monotonic() + SECONDS_BETWEEN_PROGRESS
            self.tell(self.pass_name.replace("_", " "))
        if not self.keeps(candidate):
            return False
        self.best = candidate
        return True

    def minimize(self, items: Sequence[T], rebuild: Callable[[list[T]], Program]) -> None:
        """Delta debugging: which of the items are left out; `rebuild` gets those from the program
        as it is when this starts."""
        kept = list(items)
        size = len(kept)
        while size >= 1:
            start = 0
            while start < len(kept):
                gone = kept[start : start + size]
                rest = kept[:start] + kept[start + size :]
                if self.attempt(rebuild([item for item in items if item not in rest])):
                    kept = rest
                else:
                    start += len(gone)
            size = min(size, len(kept)) // 2

    def each(self, listed: Callable[[Program], Iterator[Edit]]) -> None:
        """One edit after another; a list of edits is made anew once one was taken."""
        index = 0
        while True:
            available = list(listed(self.best))
            while index < len(available) and not self.attempt(available[index](self.best)):
                index += 1
            if index >= len(available):
                return


def cut_end(shrinker: Shrinker) -> None:
    """Most differences are there as soon as they are found: halves first."""
    low, high = 0, len(shrinker.best) - 1
    program = shrinker.best
    while low < high:
        middle = (low + high) // 2
        if shrinker.attempt(program[: middle + 1]):
            high = middle
        else:
            low = middle + 1


def drop_steps(shrinker: Shrinker) -> None:
    program = shrinker.best
    steps = list(dict.fromkeys(line["step"] for line in program[1:] if "step" in line))
    shrinker.minimize(steps, lambda gone: edits.without_steps(program, set(gone)))


def drop_requests(shrinker: Shrinker) -> None:
    program = shrinker.best
    keys = edits.requests(program)
    shrinker.minimize(keys, lambda gone: edits.without_requests(program, set(gone)))


def squash_steps(shrinker: Shrinker) -> None:
    place = 0
    while place < len(edits.begins(shrinker.best)):
        index = edits.begins(shrinker.best)[place]
        if not shrinker.attempt(edits.squashed(shrinker.best, index)):
            place += 1


def drop_groups(shrinker: Shrinker) -> None:
    for group in reversed(range(len(shrinker.best[0]["groups"]))):
        shrinker.attempt(edits.without_group(shrinker.best, group))


def drop_records(shrinker: Shrinker) -> None:
    program = shrinker.best
    indexes = list(range(1, len(program)))

    def rebuild(gone: list[int]) -> Program:
        return [line for index, line in enumerate(program) if index not in set(gone)]

    shrinker.minimize(indexes, rebuild)


def drop_parts(shrinker: Shrinker) -> None:
    for kind in (
        "groups",
        *edits.PLAN_COUNTS,
        "events",
        "scheduled",
        "rows",
        "blocks",
        edits.LIST_ENTRIES,
    ):
        program = shrinker.best
        shrinker.minimize(
            edits.parts(program, kind), lambda gone, p=program: edits.without(p, gone)
        )


def make_plainer(shrinker: Shrinker) -> None:
    for listed in (
        edits.optional_fields, edits.paddings, edits.shorter_rows, edits.block_sizes
    ):  # fmt: skip
        shrinker.each(listed)


def lower_numbers(shrinker: Shrinker) -> None:
    for path in edits.numbers(shrinker.best):
        for value in edits.lower(edits.at(shrinker.best, path), path[-1]):
            if shrinker.attempt(edits.setting(path, value)(shrinker.best)):
                break


def renumber(shrinker: Shrinker) -> None:
    shrinker.attempt(edits.renumbered_steps(shrinker.best))
    shrinker.attempt(edits.renumbered_requests(shrinker.best))
    for pool in range(len(shrinker.best[0]["pools"])):
        shrinker.attempt(edits.compacted_blocks(shrinker.best, pool))


PASSES = [
    cut_end, drop_steps, drop_requests, squash_steps, drop_groups, drop_records, drop_parts,
    make_plainer, renumber, lower_numbers,
]  # fmt: skip


def shrink(program: Program, keeps: Predicate, **bounds: Any) -> Program:
    return Shrinker(program, keeps, **bounds).run()


# files


@dataclass
class Saved:
    name: str
    program: Program
    # what it was kept for, and the codes that both find
    about: str = ""
    fires: Sequence[int] = ()


def read_programs(path: Path) -> list[Saved]:
    text = path.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise UnreadableError("nothing to read")
    if not lines[0].startswith('{"program"'):
        return [Saved(path.stem, list(read_lines(lines)))]
    found = []
    for program in split_programs(lines):
        head = json.loads(program.head)["program"]
        stream = list(read_lines(program.stream))
        name = str(head.get("seed") or path.stem)
        found.append(Saved(name, stream, head.get("about", ""), head.get("fires", ())))
    return found


def write_program(path: Path, program: Program, about: str) -> None:
    """As differential.py reads it; `fires` says what both find, and so what a test may demand."""
    judged = judge_both(program)
    core = dict(judged.core) if judged else {}
    core.pop("errors", None)
    fires = sorted(fired(judged)) if judged and agree(judged) else []
    head = {"seed": path.stem, "situations": [], "mutation": None, "about": about, "fires": fires}
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [{"program": head}, *program, {"core": core}]
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    path.write_text(text, encoding="utf-8")


def about_disagreement(program: Program) -> str:
    judged = judge_both(program)
    if judged is None or judged.result is None:
        return "the oracle cannot judge"
    sentences = differences(judged.core, judged.result)[0]
    return "; ".join(sentences[:3]) or "; ".join(name for name, _ in signatures(judged))


def shrink_into(
    folder: Path, name: str, program: Program, code: int | None = None, **bounds: Any
) -> Path | None:
    """The shrunk program's file; None where the program shows nothing to keep."""
    keeps = keeps_disagreement(program) if code is None else keeps_code(program, code)
    if keeps is None:
        return None
    smaller = shrink(program, keeps, **bounds)
    path = folder / f"{name}.jsonl"
    about = about_disagreement(smaller) if code is None else f"both find KV{code:04d}"
    write_program(path, smaller, about)
    return path


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Makes a program smaller that shows something.")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--into", required=True, type=Path, metavar="DIR", help="is written there")
    parser.add_argument("--fires", type=int, metavar="CODE", help="keep that both find this code")
    parser.add_argument("--tries", type=int, default=MOST_TRIES, help="most programs judged")
    parser.add_argument("--seconds", type=float, default=MOST_SECONDS, help="most time for each")
    return parser.parse_args()


def main() -> int:
    try:
        options = arguments()
    except SystemExit as exit_:
        return USAGE if exit_.code else 0
    status = 0
    bounds = {"most_tries": options.tries, "most_seconds": options.seconds}
    for file in options.files:
        try:
            programs = read_programs(file)
            for saved in programs:
                path = shrink_into(options.into, saved.name, saved.program, options.fires, **bounds)
                if path is None:
                    print(f"{file}: {saved.name} shows nothing to keep", file=sys.stderr)
                    status = NOTHING_TO_KEEP
                else:
                    print(path)
        except (OSError, ValueError, KeyError, TypeError, UnreadableError) as error:
            print(f"{file}: {type(error).__name__} {error}", file=sys.stderr)
            return MALFORMED
    return status


if __name__ == "__main__":
    sys.exit(main())
