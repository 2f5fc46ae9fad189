# SPDX-License-Identifier: Apache-2.0
"""Random streams: both judges agree, counts of assumptions and ignored events included."""

import copy

import core_bridge
import pytest
from hit_streams import draw_hits
from kvguard_oracle import judge_lines
from layout_scenario import DEDUPE
from layout_streams import draw_layouts, draw_ring_turns
from pass_streams import draw_passes
from random_streams import draw

MODES = {
    "full": {},
    "windows": {"windows": True},
    "transfers": {"windows": True, "transfers": True},
    "contents": {"windows": True, "contents": True},
    "sharded": {"windows": True, "transfers": True, "contents": True, "sharded": True},
}
NUM_STREAMS = {"full": 150, "windows": 150, "transfers": 100, "contents": 150, "sharded": 150}

DENSE_CODES = {
    101, 102, 103, 104, 105, 201, 202, 203, 204, 205, 206, 301, 302, 303, 304, 305,
    401, 402, 403, 404, 405, 406, 501, 502, 601, 602, 603, 901, 902, 903, 904, 905,
}  # fmt: skip
TRANSFER_CODES = {702, 703, 805, 1101, 1102, 1103, 1104, 1105, 1106, 1107}
# without tokens
HIT_CODES = {803, 804}
CONTENT_CODES = {801, 802}
# what they are drawn for happens in one of some hundred
NUM_HIT_STREAMS = 1000
# each has many passes
NUM_PASS_STREAMS = 100
NUM_LAYOUT_STREAMS = 150
# of 60 steps each
NUM_RING_STREAMS = 100
STATE_CODES = {1001, 1002, 1003, 1004, 1006}
PASSES = {"target", "micro-batch", "draft", "cross", "dummy"}
# whether these are reached where no block is bound twice hangs on the seeds
RARE_CODES = {202, 603}
COPY_CODES = {1201, 1202, 1203, 1204, 1205, 1206}

needs_library = pytest.mark.skipif(
    not core_bridge.library_path().is_file(), reason="libkvguard.so is not built"
)


def test_the_same_seed_draws_the_same_stream():
    assert draw(5) == draw(5)
    assert draw(5) != draw(6)
    assert draw_hits(5) == draw_hits(5)
    assert draw_hits(5) != draw_hits(6)
    assert draw_passes(5) == draw_passes(5)
    assert draw_passes(5) != draw_passes(6)
    assert draw_layouts(5) == draw_layouts(5)
    assert draw_layouts(5) != draw_layouts(6)
    assert draw_ring_turns(5) == draw_ring_turns(5)
    assert draw_ring_turns(5) != draw_ring_turns(6)


@pytest.mark.parametrize("mode", MODES)
def test_every_code_is_reached(mode):
    reached = set()
    for seed in range(120):
        reached |= {finding.code for finding in judge_lines(draw(seed, **MODES[mode])).findings}
    expected = set(DENSE_CODES)
    if mode != "full":
        expected.add(701)
    if mode in ("transfers", "sharded"):
        expected |= TRANSFER_CODES | COPY_CODES
    if mode == "sharded":
        expected.add(407)
    if mode in ("contents", "sharded"):
        expected = (expected | CONTENT_CODES) - RARE_CODES
        reached -= RARE_CODES
    assert reached == expected | HIT_CODES


def test_hits_reach_what_a_hit_may_find():
    reached, assumptions = set(), 0
    for seed in range(120):
        result = judge_lines(draw_hits(seed))
        reached |= {finding.code for finding in result.findings}
        assumptions += result.assumptions
    assert reached >= {601, *HIT_CODES, *CONTENT_CODES}
    assert assumptions > 0


def test_passes_reach_what_they_are_drawn_for():
    reached, by_pass, shown = set(), {}, set()
    for seed in range(40):
        lines = draw_passes(seed)
        shown |= {(line["pass"], line["pass_index"]) for line in lines if line["record"] == "plan"}
        for finding in judge_lines(lines).findings:
            reached.add(finding.code)
            by_pass.setdefault(finding.pass_name, set()).add(finding.code)
    assert {name for name, _ in shown} == PASSES
    assert {("draft", index) for index in range(4)} <= shown
    assert reached >= STATE_CODES | {803, 804, 805, 1101, 1102, 1103, 1202}
    for name in ("target", "micro-batch", "draft", "cross"):
        assert by_pass[name] >= {101, 105, 301, 404, 501, 903}
    # tokens that no part has
    assert 106 in reached


def num_deduplications(line):
    events = line.get("events", [])
    return sum(told["kind"] == "remap" and told["value"] == DEDUPE for told in events)


def test_layouts_reach_what_they_are_drawn_for():
    reached, drawn = set(), set()
    for seed in range(120):
        lines = draw_layouts(seed)
        drawn |= {(part["kind"], part["encoding"]) for part in lines[0]["groups"]}
        drawn |= {described["kind"] for described in lines[0]["pools"]}
        events = [told for line in lines for told in line.get("events", [])]
        drawn |= {(told["kind"], told["value"]) for told in events if told["kind"] == "remap"}
        drawn |= {told["kind"] for told in events}
        drawn |= {"more than one DEDUPE" for line in lines if num_deduplications(line) > 1}
        if "ring" in {part["kind"] for part in lines[0]["groups"]}:
            drawn |= {"DEDUPE beside a ring" for line in lines if num_deduplications(line)}
        reached |= {finding.code for finding in judge_lines(lines).findings}
    lists = {("full", "csr"), ("full", "flat"), ("ring", "table"), ("ring", "flat")}
    assert drawn >= {
        *lists,
        "cells",
        "erase",
        "rebase",
        "more than one DEDUPE",
        "DEDUPE beside a ring",
        *(("remap", reason) for reason in (1, 2, 3)),
    }
    assert reached >= {203, 301, 302, 303, 304, 403, 406, 501, 601, 602, 803, 804, 1202, 1204}


def test_rings_that_turn_reach_what_is_gone_and_what_is_not_known():
    with_stale = [
        {finding.code for finding in judge_lines(draw_ring_turns(seed)).findings} >= {701}
        for seed in range(20)
    ]
    assert {True, False} == set(with_stale)


def differences(lines):
    """As far as anything differs: at most 3 sentences."""
    result = judge_lines(copy.deepcopy(lines))
    core = core_bridge.judge(lines)
    found = core_bridge.compare(core, result)
    for name, ours in (("assumptions", result.assumptions), ("ignored", result.ignored)):
        if core[name] != ours:
            found.append(f"{name}: core {core[name]}, oracle {ours}")
    return found[:3]


@needs_library
@pytest.mark.parametrize("mode", MODES)
def test_both_judges_agree(mode):
    found = {seed: differences(draw(seed, **MODES[mode])) for seed in range(NUM_STREAMS[mode])}
    assert {seed: sentences for seed, sentences in found.items() if sentences} == {}


@needs_library
def test_both_judges_agree_on_hits():
    found = {seed: differences(draw_hits(seed)) for seed in range(NUM_HIT_STREAMS)}
    assert {seed: sentences for seed, sentences in found.items() if sentences} == {}


@needs_library
def test_both_judges_agree_on_passes():
    found = {seed: differences(draw_passes(seed)) for seed in range(NUM_PASS_STREAMS)}
    assert {seed: sentences for seed, sentences in found.items() if sentences} == {}


@needs_library
def test_both_judges_agree_on_layouts():
    found = {seed: differences(draw_layouts(seed)) for seed in range(NUM_LAYOUT_STREAMS)}
    assert {seed: sentences for seed, sentences in found.items() if sentences} == {}


@needs_library
def test_both_judges_agree_on_rings_that_turn():
    found = {seed: differences(draw_ring_turns(seed)) for seed in range(NUM_RING_STREAMS)}
    assert {seed: sentences for seed, sentences in found.items() if sentences} == {}
