# SPDX-License-Identifier: Apache-2.0
"""Loads that a step waits for, and loads that fail, in whole or in part.

Blocks hold 4 tokens, the pool has blocks 0..9, block 0 is null (scenario.py). Numbers by hand from
docs/judging.md, Transfers.
"""

import pytest
from scenario import (
    CONNECTOR,
    admit,
    append,
    begin,
    end,
    event,
    found,
    geometry,
    group,
    group_plan,
    judge,
    outcome,
    plan,
    scheduled,
    transfer,
)
from test_transfers import WINDOW, codes

FILLS_TOLD = 32

# read-while-loading


def test_loads_that_a_step_waits_for():
    """Layer by layer: announced in the step, done after its plan."""
    row, load = admit(1, [3, 5], first=4), transfer("load", 7, 3, request=1)

    def waits(own, *before):
        line = plan(2, [1], [0, 1], [5], group_plan([[3, 5]], [20]))
        return codes(*before, begin(2, own, [scheduled(1, 1, 4)]), line, end(2))

    came = [begin(1, row, []), end(1)]
    assert waits([*row, load]) == []
    assert waits([load], *came) == []
    # announced between the steps, or at an END's place in an earlier one
    assert waits([], *came, outcome(1, events=[load])) == [(1101, 0, 1, 0)]
    assert waits([], came[0], outcome(1, events=[load]), came[1]) == [(1101, 0, 1, 0)]
    # reserved before, loaded by the step
    assert waits([load], *came, outcome(1, events=[transfer("reserve", 7, 3)])) == []
    # told while the step is open, whatever step it is told of
    line = plan(2, [1], [0, 1], [5], group_plan([[3, 5]], [20]))
    late = [begin(2, [], [scheduled(1, 1, 4)]), outcome(1, events=[load]), line, end(2)]
    assert codes(*came, *late) == []
    # the next step finds it loading
    next_line = plan(3, [1], [0, 1], [6], group_plan([[3, 5]], [21]))
    again = [begin(3, [], [scheduled(1, 1, 5)]), next_line, end(3)]
    assert codes(*came, *late, *again) == [(1101, 0, 1, 0)]


def test_writes_behind_a_load_of_the_step():
    """write-while-pinned: the step waits for its own load, which ends where its row starts."""
    row = admit(1, [3, 5], first=6)

    def load(first=4, count=2, request=1):
        return {**transfer("load", 7, 5, request=request, first=first), "count": count}

    def writes(*events, before=()):
        came = [begin(1, [*row, *before], []), end(1)]
        return codes(*came, begin(2, list(events), [scheduled(1, 1, 6)]))

    wrong = [(1102, 0, 1, 4)]
    assert writes(load()) == []
    assert writes(load(count=1)) == []
    assert writes(load(count=3)) == wrong
    # of another request, or of one that is not known
    assert writes(load(request=2)) == [(805, 0, 2, 4), *wrong]
    assert writes(load(request=0)) == wrong
    # announced in an earlier step, or reserved there and loaded by this one
    assert writes(before=[load()]) == wrong
    assert writes(load(), before=[transfer("reserve", 7, 5)]) == []
    # it says nothing of another pin of the block
    assert writes(load(), transfer("send-pending", 8, 5, request=1)) == wrong
    assert writes(load(), {**load(count=3), "value": 8}) == wrong


# hits on what is being loaded


def test_hits_on_what_is_being_loaded():
    tokens = [1, 2, 3, 4, 5, 6, 7, 8]
    first = admit(1, [3, 5])
    first[0]["tokens"] = tokens
    ran = [
        begin(1, first, [scheduled(1, 8, 0)]),
        end(1),
        begin(2, [event("finish", 1)], []),
        end(2),
    ]

    def hits(row, told, *events, flags=0):
        reader = admit(2, row, first=4 * len(row))
        reader[0]["tokens"] = told
        came = begin(3, [*reader, *events], [])
        return found(judge(*ran, came, geometry_line=geometry(flags=flags)), unwritten=True)

    def load(*blocks, id_=7):
        return transfer("load", id_, *blocks, request=2)

    # 0801; its block is filled again
    assert hits([3], [9] * 4) == [(801, 0, 2, 0)]
    assert hits([3], [9] * 4, load(3)) == []
    assert hits([3], [9] * 4, load(3), transfer("cancel", 7)) == []
    assert hits([3], [9] * 4, transfer("reserve", 7, 3, request=2)) == [(801, 0, 2, 0)]
    assert hits([3], [9] * 4, load(3), transfer("drain", 7)) == [(801, 0, 2, 0)]
    # the next column is judged
    assert hits([3, 5], [9] * 8, load(3)) == [(801, 0, 2, 1)]
    # 0804
    assert hits([5], tokens[4:]) == [(804, 0, 2, 0)]
    assert hits([5], tokens[4:], load(5)) == []
    # 0803 of fills told
    assert hits([8], tokens[:4], flags=FILLS_TOLD) == [(803, 0, 2, 0)]
    assert hits([8], tokens[:4], load(8), flags=FILLS_TOLD) == []


# failed-load-used


def failed(*blocks, other=8):
    """Another block was loaded, of nobody; the event says which were not filled."""
    return [transfer("load", 7, other), transfer("load-failed", 7, *blocks)]


def used_at(start, blocks, *events, rows=(), more=(), kind=None, flags=0):
    """Request 9 runs one token at `start`; the findings of the schedule alone."""
    own = [*admit(9, list(blocks), first=start), *more, *events]
    first = begin(1, own, [scheduled(9, 1, start), *rows])
    return codes(first, groups=[group(**(kind or {}))], flags=flags)


def test_tokens_that_a_failed_load_left_empty():
    assert used_at(4, [3, 5], *failed(3)) == [(1106, 0, 9, 0)]
    assert used_at(4, [3, 5], *failed(5)) == []
    assert used_at(5, [3, 5], *failed(5)) == [(1106, 0, 9, 4)]
    assert used_at(8, [3, 5, 6], *failed(5, 3)) == [(1106, 0, 9, 0)]
    assert used_at(8, [3, 5, 6], *failed(7)) == []
    # what the event names, whatever the LOAD named
    named = [transfer("load", 7, 3, request=9), transfer("load-failed", 7, 5)]
    assert used_at(8, [3, 5, 6], *named) == [(1106, 0, 9, 4)]


def test_a_failed_block_that_was_loaded_again():
    again = transfer("load", 8, 3, request=9)
    assert used_at(4, [3, 5], *failed(3), again, transfer("load-done", 8)) == []
    assert used_at(4, [3, 5], *failed(3), again, transfer("send-done", 8)) == [(1106, 0, 9, 0)]


def test_a_failed_block_that_is_new():
    assert used_at(4, [3, 5], *failed(3), more=admit(2, [3])) == [(1106, 0, 9, 0)]
    events = [*failed(3), *admit(2, [3])]
    assert used_at(4, [3, 5], *events) == []


def test_a_failed_load_and_the_count():
    # the scheduler took the tokens back: the frontier is 0 when the row is judged
    ran = [begin(1, admit(1, [3, 5]), [scheduled(1, 6, 0)]), end(1)]
    lost = outcome(1, events=failed(3))

    def counted(tokens):
        second = begin(2, [], [scheduled(1, 1, tokens)])
        return codes(*ran, lost, second, flags=CONNECTOR)

    assert counted(6) == [(1106, 0, 1, 0)]
    assert counted(1) == [(1106, 0, 1, 0)]
    assert counted(0) == []


def test_another_row_writes_it_in_this_step():
    reader, writer = admit(9, [3, 5], first=4), admit(2, [3])
    rows = [scheduled(9, 1, 4), scheduled(2, 2, 0)]
    for order in (rows, rows[::-1]):
        both = begin(1, [*reader, *writer, *failed(3)], order)
        assert codes(both) == []
    # from its second token on
    late = [scheduled(9, 1, 4), scheduled(2, 2, 1)]
    both = begin(1, [*reader, *admit(2, [3], first=1), *failed(3)], late)
    assert (1106, 0, 9, 0) in codes(both)


@pytest.mark.parametrize(("flags", "expected"), [(0, []), (1, [(1106, 0, 9, 0)])])
def test_a_step_that_ended_has_written_it(flags, expected):
    events = [*admit(9, [3, 5], first=4), *admit(2, [3]), *failed(3)]
    first = [begin(1, events, [scheduled(2, 2, 0)]), end(1, flags=flags)]
    assert codes(*first, begin(2, [], [scheduled(9, 1, 4)])) == expected


def test_a_step_that_began_in_the_middle_has_not():
    events = [*admit(9, [3, 5], first=4), *admit(2, [3], first=1), *failed(3)]
    first = [begin(1, events, [scheduled(2, 2, 1)]), end(1)]
    assert (1106, 0, 9, 0) in codes(*first, begin(2, [], [scheduled(9, 1, 4)]))


def test_a_window_has_passed_what_failed():
    blocks = [3, 5, 2, 6]
    assert used_at(10, blocks, *failed(3), kind=WINDOW) == [(1106, 0, 9, 0)]
    assert used_at(11, blocks, *failed(3), kind=WINDOW) == []


def test_a_block_that_was_appended_after_the_load_failed():
    first = begin(1, [*admit(1, [3]), *failed(5)], [])
    second = begin(2, [append(1, 5)], [scheduled(1, 6, 0)])
    third = begin(3, [], [scheduled(1, 1, 6)])
    assert codes(first, end(1), second, end(2), third) == []


def test_a_failed_block_that_is_being_loaded_again():
    again = transfer("load", 8, 3, request=9)
    assert used_at(4, [3, 5], *failed(3), again) == []
    assert used_at(4, [3, 5], *failed(3), again, transfer("cancel", 8)) == []
    assert used_at(4, [3, 5], *failed(3), again, transfer("drain", 8)) == [(1106, 0, 9, 0)]
    assert used_at(4, [3, 5], *failed(3), transfer("reserve", 8, 3)) == [(1106, 0, 9, 0)]
    # the first that is not
    assert used_at(8, [3, 5, 6], *failed(5, 3), again) == [(1106, 0, 9, 4)]


@pytest.mark.parametrize(
    ("kind", "named", "lost"),
    [
        # 3 and 5 have lost their content, and are loaded again; that fails
        ("load", [3], [0]),
        ("load", [5], [4]),
        ("load", [3, 5], [0]),
        # it says of no block that it was filled
        ("load", [], [0]),
        # another block, the null block
        ("load", [6], []),
        ("load", [0], []),
        # what fills nothing
        ("reserve", [5], [0]),
        ("send-pending", [5], [0]),
    ],
)
def test_what_a_failed_load_does_not_name_was_filled(kind, named, lost):
    again = [transfer(kind, 8, 3, 5, request=9), transfer("load-failed", 8, *named)]
    findings = [(1106, 0, 9, position) for position in lost]
    assert used_at(8, [3, 5, 6], *failed(5, 3), *again) == findings


def test_what_was_filled_is_that_of_the_loads_request():
    # request 1 loads its first two columns; the second fails
    mine, other = [1, 2, 3, 4, 5, 6, 7, 8], [9] * 8
    row = admit(1, [3, 5])
    row[0]["tokens"] = mine
    load = transfer("load", 7, 3, 5, request=1)
    gone = [transfer("load-failed", 7, 5), event("finish", 1)]
    before = [begin(1, row, []), end(1), begin(2, [load], []), end(2), begin(3, gone, []), end(3)]

    def reads(tokens):
        hit = admit(2, [3], first=4)
        hit[0]["tokens"] = tokens
        return codes(*before, begin(4, hit, []))

    assert reads(mine) == []
    assert reads(other) == [(801, 0, 2, 0)]
    # a hit of the column that was not filled
    result = judge(*before, begin(4, admit(2, [3, 5], first=8), []))
    assert found(result, unwritten=True) == [(803, 0, 2, 1)]
