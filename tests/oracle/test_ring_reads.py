# SPDX-License-Identifier: Apache-2.0
"""What a ring still holds (0701), each sentence of docs/judging.md, Rings, read-stale.

A ring of 8 tokens in blocks of 4: position 8 stands where position 0 did.
"""

import pytest
from layout_scenario import Row, binds, engine, ring, ring_engine, ring_group, runs, shown, step
from scenario import ASYNC, admit, begin, end, event, found, group, judge, scheduled

ONE = [1, 2]
NO_FORWARD, ABANDONED = 1, 2


def codes(*records, line=None, **fields):
    result = judge(*records, geometry_line=line or ring_engine(**fields))
    assert not any(name.startswith("malformed") for name in result.gaps)
    return found(result)


def ran(tokens):
    return runs(1, 1, tokens, 0, *admit(1, ONE))


def back(computed, to, number=5):
    """What a decode at `to` finds after so many tokens, all but those behind `to` given back."""
    row = Row(1, ONE, to, 1)
    taken = event("rollback", 1, count=computed - to)
    return codes(*ran(computed), *step(number, [taken], [row], ring([row])))


@pytest.mark.parametrize(
    ("computed", "to", "expected"),
    [
        (8, 4, []),
        # nothing was written over: the ring turned just once
        (8, 1, []),
        # where position 3 stood there is 11
        (12, 12, []),
        (12, 11, []),
        (12, 10, [(701, 0, 1, 3)]),
        (12, 5, [(701, 0, 1, 0)]),
        # nothing is read
        (12, 0, []),
    ],
)
def test_a_count_that_went_back(computed, to, expected):
    assert back(computed, to) == expected


def stale(start, *runs_before, events=(), tokens=1, **fields):
    """(tokens, start) of the steps before, or events; then a step at `start`."""
    lines, flags = [binds(1, *admit(1, ONE)), end(1)], {"lost": ABANDONED, "none": NO_FORWARD}
    for number, (length, at, *how) in enumerate(runs_before, start=2):
        back = [event("rollback", 1, count=99)] if at == 0 else []
        row = scheduled(1, length, at)
        lines += [begin(number, back, [row]), end(number, flags[how[0]] if how else 0)]
    row = Row(1, ONE, start, tokens)
    shows = shown(90, [row])
    begun = begin(90, list(events), [scheduled(1, tokens, start)])
    result = codes(*lines, begun, shows, end(90), **fields)
    return [pos for code, _, _, pos in result if code == 701]


def test_what_is_written_again_is_there():
    # where positions 0 to 4 stood there are 8 to 12, until they are computed again
    assert stale(4, (13, 0)) == [0]
    assert stale(4, (13, 0), (4, 0)) == []
    assert stale(8, (13, 0), (8, 0)) == stale(8, (13, 0), (5, 0)) == []
    # in two steps, too
    assert stale(6, (13, 0), (2, 0), (4, 2)) == []
    # the last 7 are read
    assert stale(13, (16, 0)) == [6]
    assert stale(15, (16, 0)) == []


def test_what_is_not_known_is_not_gone():
    # of what an admission counts
    admitted = [begin(1, admit(1, ONE, first=16), []), end(1)]
    went = [*admitted, *step(2, [event("rollback", 1, count=8)], [Row(1, ONE, 8, 1)])]
    assert codes(*went) == []
    # an abandoned step may have written, or not
    assert stale(8, (8, 0), (3, 8, "lost")) == []
    assert stale(8, (11, 0), (3, 8, "lost")) == []
    # but only there: 3 stands where 11 did
    assert stale(8, (12, 0), (3, 8, "lost")) == [3]
    # what is written afterwards is known again
    assert stale(8, (8, 0), (3, 8, "lost"), (3, 8)) == [1]
    # one without a forward has written nothing
    assert stale(8, (8, 0), (3, 8, "none")) == []
    assert stale(8, (11, 0), (3, 8, "none")) == [1]


def test_a_start_that_is_not_known_writes_anywhere_it_may():
    """The step behind an abandoned one starts at 8 or at 11."""
    lost = [(13, 0), (3, 8, "lost")]
    assert stale(8, *lost, flags=ASYNC) == [3]
    # 8 to 11, or 8 to 12
    assert stale(8, *lost, (1, 11), flags=ASYNC) == [4]
    assert stale(8, *lost, (2, 11), flags=ASYNC) == []


@pytest.mark.parametrize(
    ("own", "event_", "expected"),
    [
        (0, event("truncate", 1, 0, first=2), [0]),
        (0, event("truncate", 1, 0, first=1), []),
        (0, event("replace", 1, 0, blocks=ONE), []),
        # of a group that is no ring
        (1, event("truncate", 1, 1, first=0), [0]),
        # in any ring of the request
        (2, event("truncate", 1, 2, first=0), []),
        # nothing was there to be taken
        (3, event("replace", 1, 3, blocks=[9]), [0]),
    ],
)
def test_what_a_row_loses_is_not_known(own, event_, expected):
    groups = [ring_group("table"), group(id=1), *(ring_group("table", id=i) for i in (2, 3))]
    bound = admit(1, ONE, [5, 6], [7])
    begun = begin(1, bound, [scheduled(1, 13, 0)])
    row = Row(1, ONE, 5, 1)
    taken = [event("rollback", 1, count=8), event_]
    lines = [begun, end(1), *step(2, taken, [row])]
    result = [f for f in codes(*lines, line=engine(*groups)) if f[0] == 701]
    assert [pos for _, group_, _, pos in result if group_ == 0] == expected


@pytest.mark.parametrize(("times", "expected"), [(0, [0]), (15, [0]), (16, []), (17, [])])
def test_sixteen_runs_are_remembered(times, expected):
    """8 stands where 0 did; then position 4 is computed again and again."""
    assert stale(4, (13, 0), *[(1, 4)] * times) == expected
    # steps that go on from one another are one
    assert stale(4, (5, 0), *[(1, at) for at in range(5, 40)], (1, 4)) == [0]


def test_one_for_the_row_whatever_is_shown():
    taken = event("rollback", 1, count=4)
    row = Row(1, ONE, 8, 1)
    for parts in ([], [ring([row])]):
        lines = [*ran(12), *step(2, [taken], [row], *parts)]
        assert codes(*lines) == [(701, 0, 1, 1)]
    # of a row with tokens
    empty = shown(2, [Row(1, ONE, 8, 0)], lengths=[9])
    begun = begin(2, [taken], [scheduled(1, 1, 8)])
    assert codes(*ran(12), begun, empty, end(2)) == [(104, None, 1, -1)]
