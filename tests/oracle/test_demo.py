# SPDX-License-Identifier: Apache-2.0
"""The recorded runs of a real engine are clean, and a seeded fault in one of them is not.

Both judges see each edited stream where the shared library is built; the core reads it through
kvguard.h alone (core_bridge.py).
"""

import copy
import json
import subprocess
from pathlib import Path

import core_bridge
import pytest
from edits import ANY, NOT_CLEAN, VIOLATED, edit
from kvguard_oracle import judge_lines

CHECKOUT = Path(__file__).resolve().parents[2]
COMMAND = CHECKOUT / "build" / "kvguard"
TRACES = sorted((CHECKOUT / "demo").glob("*.kvtrace"))
NUM_EDITS = 200
STEPS_PER_EDIT = 40

needs_command = pytest.mark.skipif(
    not COMMAND.is_file(), reason="build/kvguard is not built: recorded traces cannot be dumped"
)
needs_library = pytest.mark.skipif(
    not core_bridge.library_path().is_file(), reason="libkvguard.so is not built"
)


def dump(trace):
    command = [str(COMMAND), "trace", "dump", "--jsonl", str(trace)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def beginnings():
    """The first steps of each recorded run, without its footer: short, and edited often."""
    return [
        [
            line
            for line in dump(trace)
            if line["record"] == "geometry"
            or (line["record"] != "footer" and line["step"] <= STEPS_PER_EDIT)
        ]
        for trace in TRACES
    ]


def test_there_are_recorded_runs():
    assert len(TRACES) >= 3


@needs_command
@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.stem)
def test_a_recorded_run_is_clean(trace):
    result = judge_lines(dump(trace))
    assert (result.findings, result.gaps, result.verdict()) == ([], {}, "clean")
    assert result.steps_judged == result.steps > 20


def edited(beginnings, seed):
    return edit(beginnings[seed % len(beginnings)], seed)


@needs_command
def test_edits_are_found(beginnings):
    wrong = []
    seen = set()
    for seed in range(NUM_EDITS):
        fault = edited(beginnings, seed)
        verdict = judge_lines(copy.deepcopy(fault.lines)).verdict()
        as_expected = {
            VIOLATED: verdict == "violated",
            NOT_CLEAN: verdict != "clean",
            ANY: True,
        }[fault.expected]
        seen.add(fault.expected)
        if not as_expected:
            wrong.append(f"seed {seed}: {fault.what}: {verdict}")
    assert wrong == []
    assert seen == {VIOLATED, NOT_CLEAN, ANY}


@needs_command
@needs_library
def test_both_judges_agree_on_edits(beginnings):
    different = []
    for seed in range(NUM_EDITS):
        fault = edited(beginnings, seed)
        core = core_bridge.judge(fault.lines)
        result = judge_lines(copy.deepcopy(fault.lines))
        sentences = core_bridge.compare(core, result)
        if sentences:
            different.append((seed, fault.what, sentences[:3], core["errors"][:2]))
    assert different == []
