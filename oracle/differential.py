#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the core's findings with the oracle's, program by program.

usage: kvguard_programs ... --jsonl | oracle/differential.py [--jobs N] [--save DIR]
       [--shrink DIR] [--require FILE]

Standard input, for each program: a {"program":...} line, the lines of `trace dump --jsonl`, a
{"core":...} line. Compared are the multiset of proofs (code, step, group, request, pos, pass,
stage), the suspicions per code, the verdict and the number of step gaps. What the oracle cannot
judge is a disagreement too: the judge of the judge was silent. --shrink makes each disagreement
that is shown as small as it goes (shrink.py; the library must be the one that wrote the stream).

Exit codes: 0 all equal, 1 a disagreement, 3 vacuous (a required situation was never reached, or
there was no program), 64 usage, 65 malformed stream.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import Pool
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from kvguard_oracle import Result, UnreadableError, UnsupportedError, judge_lines

Line = dict[str, Any]

EQUAL, DIFFERENT, MALFORMED, VACUOUS = 0, 1, 65, 3
SHOWN_DIFFERENCES = 20
SHOWN_DISAGREEMENTS = 20


@dataclass
class Program:
    # {"program":...}, the stream, {"core":...}, as they were printed
    head: str
    stream: list[str]
    core: str


@dataclass
class Comparison:
    seed: Any
    situations: list[str]
    mutation: Any
    # sentences; empty: equal
    differences: list[str]
    # step -> begin and plan lines, for the steps that differ
    records: list[str] = field(default_factory=list)
    # the stream itself was not readable
    malformed: str | None = None
    proofs: int = 0
    steps: int = 0
    verdict: str = ""


def split_programs(lines: Iterable[str]) -> Iterator[Program]:
    """Cuts the stream; the JSON inside is parsed by the workers."""
    head: str | None = None
    stream: list[str] = []
    for raw in lines:
        line = raw.rstrip("\n")
        if line.startswith('{"program"'):
            if head is not None:
                raise UnreadableError("a program starts inside another: its core line is missing")
            head, stream = line, []
        elif line.startswith('{"core"'):
            if head is None:
                raise UnreadableError("a core line without its program")
            yield Program(head, stream, line)
            head = None
        elif line.strip():
            if head is None:
                raise UnreadableError("a record outside every program")
            stream.append(line)
    if head is not None:
        raise UnreadableError("the stream ends inside a program")


def parse(line: str, key: str) -> Any:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise UnreadableError(f"the {key} line is not JSON: {error}") from error
    if not isinstance(value, dict) or not isinstance(value.get(key), dict):
        raise UnreadableError(f"no object under {key!r}")
    return value[key]


def none_if_absent(value: Any) -> Any:
    """Findings of BEGIN, OUTCOME and END have no pass and no stage, however that is spelled."""
    return None if value in ("", "none", 0) else value


def proof_key(finding: Line) -> tuple[Any, ...]:
    return (
        finding["code"],
        finding["step"],
        finding["group"],
        finding["request"],
        finding["pos"],
        none_if_absent(finding["pass"]),
        none_if_absent(finding["stage"]),
    )


def core_proofs(core: Line) -> Counter[tuple[Any, ...]]:
    return Counter(proof_key(f) for f in core["findings"] if f["grade"] == "proof")


def oracle_proofs(result: Result) -> Counter[tuple[Any, ...]]:
    return Counter(proof_key(finding.as_json()) for finding in result.proofs())


def show_key(key: tuple[Any, ...]) -> str:
    code, step, group, request, pos, pass_name, stage = key
    where = "all groups" if group is None else f"group {group}"
    plan = f", {pass_name} {stage}" if pass_name else ""
    return f"KV{code:04d} step {step}, {where}, request {request}, pos {pos}{plan}"


def suspicion_differences(core: Line, result: Result) -> list[str]:
    """By code; where the core stored each code once and counted all, the codes and the count."""
    ours = {str(code): count for code, count in result.suspicions().items()}
    theirs = {str(code): count for code, count in core["suspicions"].items() if count}
    total = core.get("num_suspicions", sum(theirs.values()))
    if sum(theirs.values()) == total:
        equal = theirs == ours
    else:
        equal = set(theirs) == set(ours) and total == sum(ours.values())
    return [] if equal else [f"suspicions: core {theirs} ({total}), oracle {ours}"]


def same_verdict(core: Line, result: Result) -> bool:
    """Where a family had nothing to judge (kvguard.h, coverage) the core does not say clean.

    What a family counts is not on the page.
    """
    if core.get("unreached") and core["verdict"] == "cannot_judge" and result.verdict() == "clean":
        return True
    return bool(core["verdict"] == result.verdict())


def differences(core: Line, result: Result) -> tuple[list[str], set[int]]:
    """Sentences, and the steps they are about."""
    found = []
    steps = set()
    theirs, ours = core_proofs(core), oracle_proofs(result)
    for who, only in (("core", theirs - ours), ("oracle", ours - theirs)):
        for key, count in sorted(only.items(), key=str):
            found.append(f"only the {who} ({count}x): {show_key(key)}")
            steps.add(key[1])
    found += suspicion_differences(core, result)
    if not same_verdict(core, result):
        found.append(f"verdict: core {core['verdict']}, oracle {result.verdict()}")
    if core["step_gaps"] != len(result.gap_steps()):
        gaps = {name: sorted(where) for name, where in sorted(result.gaps.items())}
        found.append(
            f"step gaps: core {core['step_gaps']} {core.get('gaps')}, "
            f"oracle {len(result.gap_steps())} {gaps}"
        )
    return found, steps


def records_of(stream: list[str], steps: set[int], mutation: Any) -> list[str]:
    """The lines of the differing steps; of the mutated record where no step differs."""
    if steps:
        first = min(steps)
        return [line for line in stream if json.loads(line).get("step") == first]
    if isinstance(mutation, dict) and isinstance(mutation.get("record"), int):
        # the geometry is line 0 of the stream, records are counted from 0 behind it
        return stream[mutation["record"] + 1 : mutation["record"] + 2]
    return []


def compare(program: Program) -> Comparison:
    seed: Any = None
    try:
        head = parse(program.head, "program")
        seed = head.get("seed")
        core = parse(program.core, "core")
        comparison = Comparison(seed, head.get("situations", []), head.get("mutation"), [])
        lines = [json.loads(line) for line in program.stream]
        try:
            result = judge_lines(lines)
        except UnsupportedError as error:
            comparison.differences = [
                f"the oracle cannot judge: {error}; core: {core['verdict']}, {core.get('gaps')}"
            ]
            return comparison
        comparison.differences, steps = differences(core, result)
        if comparison.differences:
            comparison.records = records_of(program.stream, steps, comparison.mutation)
        comparison.proofs = len(result.proofs())
        comparison.steps = result.steps
        comparison.verdict = result.verdict()
        return comparison
    except (UnreadableError, ValueError, KeyError, TypeError, AttributeError) as error:
        sentence = f"program {seed}: {type(error).__name__} {error}"
        return Comparison(seed, [], None, [], malformed=sentence)


def comparisons(programs: Iterator[Program], jobs: int) -> Iterator[tuple[Comparison, Program]]:
    if jobs <= 1:
        for program in programs:
            yield compare(program), program
        return
    with Pool(jobs) as pool:
        # in batches: Pool.imap would read the whole of a long stream into memory first
        while batch := list(islice(programs, jobs * 16)):
            yield from zip(pool.map(compare, batch), batch, strict=True)


def save(folder: Path, comparison: Comparison, program: Program) -> Path:
    """One file a program, with its first and last line: it can be fed to this script again."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{comparison.seed}.jsonl"
    lines = [program.head, *program.stream, program.core]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def shrunk(folder: Path, comparison: Comparison, program: Program) -> str:
    """Makes it smaller; a sentence that says where it is."""
    # only here: everything else needs no library
    import core_bridge
    import shrink

    lines = [json.loads(line) for line in program.stream]
    path = shrink.shrink_into(folder, str(comparison.seed), lines)
    if path is None:
        return f"not shrunk: {core_bridge.library_path()} does not show this difference"
    return f"shrunk {path}: {shrink.read_programs(path)[0].about}"


def print_disagreement(comparison: Comparison) -> None:
    print(f"seed {comparison.seed}: disagreement; mutation {json.dumps(comparison.mutation)}")
    for sentence in comparison.differences[:SHOWN_DIFFERENCES]:
        print(f"  {sentence}")
    if len(comparison.differences) > SHOWN_DIFFERENCES:
        print(f"  ... and {len(comparison.differences) - SHOWN_DIFFERENCES} more")
    for record in comparison.records:
        print(f"  record {record}")


def read_required(path: Path) -> list[str]:
    """One situation a line; '#' starts a comment."""
    lines = path.read_text(encoding="utf-8").splitlines()
    names = [line.split("#", 1)[0].strip() for line in lines]
    return [name for name in names if name]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compares core and oracle on generated programs.")
    parser.add_argument("--jobs", type=int, default=1, help="processes that judge (default 1)")
    parser.add_argument("--save", type=Path, metavar="DIR", help="keep disagreeing programs there")
    parser.add_argument(
        "--shrink", type=Path, metavar="DIR", help="and keep them there, made small"
    )
    parser.add_argument(
        "--require", type=Path, metavar="FILE", help="situations that must all have been reached"
    )
    return parser.parse_args()


def main() -> int:
    try:
        options = arguments()
    except SystemExit as exit_:
        return 64 if exit_.code else 0
    required = read_required(options.require) if options.require else []
    programs = disagreements = mutated = violated = steps = proofs = 0
    reached: Counter[str] = Counter()
    try:
        for comparison, program in comparisons(split_programs(sys.stdin), options.jobs):
            if comparison.malformed is not None:
                raise UnreadableError(comparison.malformed)
            programs += 1
            steps += comparison.steps
            proofs += comparison.proofs
            mutated += comparison.mutation is not None
            violated += comparison.verdict == "violated"
            reached.update(set(comparison.situations))
            if comparison.differences:
                disagreements += 1
                if disagreements <= SHOWN_DISAGREEMENTS:
                    print_disagreement(comparison)
                if options.shrink and disagreements <= SHOWN_DISAGREEMENTS:
                    print(f"  {shrunk(options.shrink, comparison, program)}")
                if options.save:
                    print(f"  saved {save(options.save, comparison, program)}")
    except UnreadableError as error:
        print(f"malformed stream: {error}", file=sys.stderr)
        return MALFORMED
    print(
        f"{programs} programs ({mutated} mutated), {steps} steps, {proofs} proofs in {violated} "
        f"violated programs, {len(reached)} situations, {disagreements} disagreements"
    )
    if disagreements:
        return DIFFERENT
    missing = [name for name in required if name not in reached]
    if missing or programs == 0:
        print("vacuous: never reached: " + (", ".join(missing) or "any program"))
        return VACUOUS
    return EQUAL


if __name__ == "__main__":
    sys.exit(main())
