# SPDX-License-Identifier: Apache-2.0
"""Recurrent groups: each line of tests/layouts/state_faults.txt, each beside its neighbour.

Blocks of 4 tokens where a scenario says nothing else.
"""

from pathlib import Path

import pytest
from scenario import found, group_plan, judge, plan, pool
from state_scenario import (
    ALIGN,
    ALL,
    EIGHT,
    NONE,
    STATES,
    Row,
    copy,
    engine,
    more,
    new,
    padded,
    step,
)

LIST = Path(__file__).resolve().parents[1] / "layouts" / "state_faults.txt"

# The scenarios of the list: name -> geometry, records, findings


def prefill_and_decode(third=None, second=None, states=(1,), first=None):
    first = first or Row(1, 0, 5, states[0], states[0])
    return [
        *step(1, first, events=new(1, states)),
        *step(2, second or Row(1, 5, 1, states[0], states[0])),
        *step(3, third or Row(1, 6, 1, states[0], states[0])),
    ]


def beside_another(*row):
    """Request 2 has its state in block 2; what request 1 shows in step 2."""
    both = [Row(1, 0, 4, 1, 1), Row(2, 0, 4, 2, 2)]
    return [
        *step(1, *both, events=[*new(1, [1]), *new(2, [2])]),
        *step(2, Row(1, 4, 1, *row), Row(2, 4, 1, 2, 2)),
    ]


def none_drafts(starts=2, ends=3, states=(1, 2, 3)):
    """Two drafts, one accepted: 6 tokens."""
    return [
        *step(1, Row(1, 0, 4, 1, 1), events=new(1, states)),
        *step(2, Row(1, 4, 3, 1, ends, drafts=2), outcomes=[(1, 1)]),
        *step(3, Row(1, 6, 1, starts, 1)),
    ]


def align_one_column():
    return [*step(1, Row(1, 0, 6, 1, 1), events=new(1, [0, 1])), *step(2, Row(1, 6, 1, 1, 1))]


def crossing(starts, ends, events=(), told=(), before=()):
    """8 tokens in column 1 (block 1); the 9th enters column 2 (block 2)."""
    return [
        *before,
        *step(1, Row(1, 0, 8, 1, 1), events=new(1, [0, 1])),
        *step(2, Row(1, 8, 1, starts, ends), events=[more(1, 2), *events], told=told),
    ]


def align_drafts(starts, start, rejected, states=(2, 3, 4)):
    """4 tokens in column 0, then 3 with two drafts: states in columns 1, 2 and 3."""
    return [
        *step(1, Row(1, 0, 4, 1, 1), events=new(1, [1])),
        *step(2, Row(1, 4, 3, 1, 4, 2), events=[more(1, *states)], outcomes=[(1, rejected)]),
        *step(3, Row(1, start, 1, starts, 2)),
    ]


def to_a_boundary(starts):
    """5 tokens, then 3 with two drafts up to 8: columns 1, 2 and 3; that of 8 is in 3, and in 1."""
    return [
        *step(1, Row(1, 0, 5, 2, 2), events=new(1, [1, 2, 3, 4])),
        *step(2, Row(1, 5, 3, 2, 4, 2), outcomes=[(1, 0)]),
        *step(3, Row(1, 8, 1, starts, 3)),
    ]


def moved(*states, ends=4):
    """A running state in block 1 and two speculative ones; a chunk of 16 ends in column 4."""
    return [
        *step(1, Row(1, 0, 4, 1, 1), events=new(1, [1, 2, 3])),
        *step(2, Row(1, 4, 16, 1, ends), events=[more(1, *states)]),
        *step(3, Row(1, 20, 1, ends, 2)),
    ]


def given_away(block):
    """5 tokens: block 1 in column 0 is behind, block 2 in column 1 is the state."""
    return [
        *step(1, Row(1, 0, 4, 1, 1), events=new(1, [1])),
        *step(2, Row(1, 4, 1, 1, 2), events=[more(1, 2)]),
        *step(3, Row(2, 0, 1, block, block), events=new(2, [block])),
    ]


def hit(states, first=8, starts=1, ends=2, tokens=EIGHT, own=(0, 1), count=1):
    """Request 1 leaves the state of 8 tokens in block 1, request 2 comes with `first` tokens."""
    return [
        *step(1, Row(1, 0, 8, own[-1], own[-1]), events=new(1, own, tokens=EIGHT)),
        *step(2, Row(2, first, count, starts, ends), events=new(2, states, first, tokens)),
    ]


def hit_in_the_same_step():
    """The state of 8 tokens is shared in the BEGIN that schedules what makes it."""
    events = [*new(1, [0, 1], tokens=EIGHT), *new(2, [0, 1, 2], 8, EIGHT)]
    return step(1, Row(1, 0, 8, 1, 1), Row(2, 8, 2, 1, 2), events=events)


def all_every_boundary(states=(1, 2, 3)):
    return [
        *step(1, Row(1, 0, 10, 9, states[2], init=1), events=new(1, states, tokens=EIGHT)),
        *step(2, Row(2, 8, 1, 2, 4), events=new(2, [0, 2, 4], 8, EIGHT)),
    ]


def through_another_row():
    """Both rows enter column 2 (blocks 3 and 4); their states were copied to each other's."""
    both = [Row(1, 0, 8, 1, 1), Row(2, 0, 8, 2, 2)]
    return [
        *step(1, *both, events=[*new(1, [0, 1]), *new(2, [0, 2])]),
        *step(
            2, Row(1, 8, 1, 3, 3), Row(2, 8, 1, 2, 4), events=[more(1, 3), more(2, 4)],
            told=[copy("copy-done", 2, 3)],
        ),
    ]  # fmt: skip


def one_state_for_two():
    return [
        *step(1, Row(1, 0, 4, 1, 1), events=new(1, [1])),
        *step(2, Row(2, 0, 4, 1, 1), events=new(2, [1])),
    ]


def by_another_block_size(starts):
    """States every 2 tokens: that of 8 is in column 3; in blocks of 4 it would be in column 1."""
    return [
        *step(1, Row(1, 0, 8, 1, 1), events=new(1, [0, 0, 0, 1])),
        *step(2, Row(2, 8, 1, starts, 2), events=new(2, [0, 0, 0, 1, 2], 8)),
    ]


def table_shown(row):
    """In place of states; 8 tokens in column 1, the 9th enters column 2."""
    first = group_plan([[0, 1]], None, STATES, 8, row_columns=[2])
    second = group_plan([row], None, STATES, 8, row_columns=[3])
    return [
        *step(1, Row(1, 0, 8, 0, 0), events=new(1, [0, 1]), part=first),
        *step(2, Row(1, 8, 1, 0, 0), events=[more(1, 2)], part=second),
    ]


def padding(starts, ends):
    return step(1, Row(1, 0, 4, 1, 1), events=new(1, [1]), **padded(starts, ends, 1))


def dummy(starts, ends):
    shape = padded(starts, ends)
    idle = plan(0, [], [0], [], shape["part"], pass_name="dummy", padded_rows=2)
    return [idle, *step(1, Row(1, 0, 4, 1, 1), events=new(1, [1])), idle]


COPIED = {"events": [copy("copy", 1, 2)], "told": [copy("copy-done", 1, 2)]}
MOVED = [0, 4, 2, 3]

SCENARIOS = {
    "none-prefill-and-decode": (engine(NONE), prefill_and_decode(), []),
    "none-drafts": (engine(NONE), none_drafts(), []),
    "align-one-column": (engine(ALIGN), align_one_column(), []),
    "align-crossing-copied": (engine(ALIGN), crossing(2, 2, **COPIED), []),
    "align-crossing-uncopied": (engine(ALIGN), crossing(1, 2), []),
    "align-crossing-unsaid": (engine(ALIGN), crossing(2, 2), []),
    "align-drafts": (engine(ALIGN), align_drafts(4, 7, 0), []),
    "align-drafts-to-a-boundary": (engine(ALIGN), to_a_boundary(2), []),
    "align-moved-speculative-blocks": (engine(ALIGN), moved(*MOVED), []),
    "align-given-away-behind": (engine(ALIGN), given_away(1), []),
    "align-hit-at-its-boundary": (engine(ALIGN), hit([0, 1, 2]), []),
    "all-every-boundary": (engine(ALL), all_every_boundary(), []),
    "pads-on-the-null-block": (engine(NONE), padding([1, 0, -1], [1, -1, 0]), []),
    "dummy-on-the-null-block": (engine(NONE), dummy([0, -1], [-1, 0]), []),
    "state-of-another-request": (engine(NONE), beside_another(2, 1), [(1001, 1, 1, 4)]),
    "state-of-the-column-before": (
        engine(ALIGN),
        [*crossing(1, 2), *step(3, Row(1, 9, 1, 1, 2))],
        [(1001, 1, 1, 9)],
    ),
    "accepted-drafts-ignored": (engine(NONE), none_drafts(starts=1), [(1001, 1, 1, 6)]),
    "accepted-drafts-counted-twice": (engine(ALIGN), align_drafts(4, 6, 1), [(1001, 1, 1, 6)]),
    "B098-column-by-another-block-size": (
        engine(ALIGN, tokens=2),
        by_another_block_size(0),
        [(1001, 1, 2, 8)],
    ),
    "left-in-another-request": (
        engine(NONE),
        beside_another(1, 2),
        [(602, 1, 1, 5), (1002, 1, 1, 5)],
    ),
    "left-in-the-column-before": (engine(ALIGN), crossing(1, 1), [(1002, 1, 1, 9)]),
    "left-in-the-null-block": (engine(NONE), beside_another(1, 0), [(1002, 1, 1, 5)]),
    "drafts-left-in-column-0": (engine(NONE), none_drafts(ends=1), [(1002, 1, 1, 7)]),
    "not-initialised": (
        engine(NONE),
        prefill_and_decode(first=Row(1, 0, 5, 1, 1, init=0)),
        [(1003, 1, 1, 0)],
    ),
    "thrown-away": (
        engine(NONE),
        prefill_and_decode(third=Row(1, 6, 1, 9, 1, init=1)),
        [(1004, 1, 1, 6)],
    ),
    "B146-copied-through-another-row": (engine(ALIGN), through_another_row(), [(1005, 1, 1, 8)]),
    "B025-padding-row-on-a-live-state": (
        engine(NONE),
        padding([1, 0, 0], [1, 0, 1]),
        [(1006, 1, 0, -1)],
    ),
    "dummy-on-a-live-state": (
        engine(NONE),
        dummy([1, 0], [0, 0]),
        [(1006, 1, 0, -1), (1006, 1, 0, -1)],
    ),
    "B024-the-null-state-is-bound": (
        engine(NONE),
        prefill_and_decode(states=[0]),
        [(202, 1, 1, 0)],
    ),
    "running-state-in-the-null-block": (
        engine(ALIGN),
        step(1, Row(1, 0, 6, 0, 0), events=new(1, [1, 0])),
        [(202, 1, 1, 1)],
    ),
    "hit-state-in-the-null-block": (engine(ALIGN), hit([0, 0, 2], starts=0), [(202, 1, 2, 1)]),
    "the-place-moves-on": (engine(ALIGN), moved(0, 1, 2, 3, ends=1), [(203, 1, 1, 4)]),
    "all-block-twice": (engine(ALL), all_every_boundary([1, 2, 2])[:3], [(203, 1, 1, 2)]),
    "drafts-without-columns": (engine(NONE), none_drafts(states=[1])[:-3], [(204, 1, 1, 6)]),
    "align-short-by-a-speculative-column": (
        engine(ALIGN),
        align_drafts(3, 6, 1, states=(2, 3)),
        [(204, 1, 1, 6)],
    ),
    "B081-row-too-wide": (engine(ALIGN, columns=6), moved(*MOVED), [(206, 1, 1, -1)]),
    "align-given-away-while-needed": (engine(ALIGN), given_away(2), [(601, 1, 2, 0)]),
    "one-state-for-two": (engine(NONE), one_state_for_two(), [(601, 1, 2, 0)]),
    "B099-state-behind-the-hit": (
        engine(ALIGN),
        hit([1, 2], first=4),
        [(804, 1, 2, 0)],
    ),
    "B100-no-state-at-that-boundary": (
        engine(ALIGN),
        hit([0, 1], first=6, ends=1),
        [(804, 1, 2, 1)],
    ),
    "state-of-the-same-step": (engine(ALIGN), hit_in_the_same_step(), [(803, 1, 2, 1)]),
    "content-of-another-prompt": (
        engine(ALIGN),
        hit([0, 1, 2], tokens=[*EIGHT[:-1], 999]),
        [(801, 1, 2, 1)],
    ),
    "table-place-wrong": (engine(ALIGN), table_shown([7, 9, 2]), [(301, 1, 1, 1)]),
    "table-shown": (engine(ALIGN), table_shown([7, 1, 2]), []),
}

LINES = [
    [cell.strip() for cell in line.split("|")]
    for line in LIST.read_text(encoding="utf-8").splitlines()
    if line.strip() and not line.startswith("#")
]


def test_every_line_has_a_scenario():
    assert [line[0] for line in LINES] == list(SCENARIOS)


@pytest.mark.parametrize("line", LINES, ids=lambda line: line[0])
@pytest.mark.parametrize("shared", [True, False], ids=["one-pool", "own-pool"])
def test_planted(line, shared):
    name, code = line[0], int(line[1])
    described, records, expected = SCENARIOS[name]
    if not shared:
        described = own_pool(described)
    result = judge(*records, geometry_line=described)
    assert found(result, unwritten=True) == expected
    assert [finding.code for finding in result.findings][:1] == ([code] if code else [])
    assert result.gaps == {}
    assert result.verdict() == ("violated" if expected else "clean")
    if len(line) > 3:
        assert int(next(other[1] for other in LINES if other[0] == line[3])) == 0


def own_pool(described):
    pools = [*described["pools"], pool(id=1, kind="state")]
    groups = [described["groups"][0], {**described["groups"][1], "pool": 1}]
    return {**described, "pools": pools, "groups": groups}
