# SPDX-License-Identifier: Apache-2.0
"""Random streams: both judges agree, counts of assumptions and ignored events included."""

import copy

import core_bridge
import pytest
from differential import differences
from kvguard_oracle import judge_lines
from random_streams import draw

NUM_STREAMS = 300

# (a part of the sentence, why it is not decided)
UNDECIDED = [
    (
        "only the core (1x): KV0701",
        "a column that was not needed when it was bound, and is after going back: docs/judging.md "
        "calls it stale only where its block was bound fresh since",
    ),
]

needs_library = pytest.mark.skipif(
    not core_bridge.library_path().is_file(), reason="libkvguard.so is not built"
)


def decided(sentences):
    """Without the undecided ones, and without the verdict that hangs on them."""
    left = [s for s in sentences if not any(part in s for part, _ in UNDECIDED)]
    if len(left) < len(sentences):
        left = [s for s in left if not s.startswith("verdict")]
    return left


def test_the_same_seed_draws_the_same_stream():
    assert draw(5) == draw(5)
    assert draw(5) != draw(6)


@pytest.mark.parametrize("windows", [False, True])
def test_every_code_is_reached(windows):
    reached = set()
    for seed in range(120):
        reached |= {finding.code for finding in judge_lines(draw(seed, windows=windows)).findings}
    assert reached - ({701} if windows else set()) == {
        101, 102, 103, 104, 105, 201, 202, 203, 204, 205, 206, 301, 302, 303, 304, 305,
        401, 402, 403, 404, 405, 406, 501, 502, 601, 602, 603, 901, 902, 903, 904, 905,
    }  # fmt: skip
    assert (701 in reached) == windows


@needs_library
@pytest.mark.parametrize("windows", [False, True])
def test_both_judges_agree(windows):
    different = []
    for seed in range(NUM_STREAMS):
        lines = draw(seed, windows=windows)
        result = judge_lines(copy.deepcopy(lines))
        core = core_bridge.judge(lines)
        sentences, _ = differences(core, result)
        found = decided(sentences) if windows else sentences
        for name, ours in (("assumptions", result.assumptions), ("ignored", result.ignored)):
            if core[name] != ours:
                found.append(f"{name}: core {core[name]}, oracle {ours}")
        if found:
            different.append((seed, found[:3]))
    assert different == []
