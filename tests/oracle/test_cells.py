# SPDX-License-Identifier: Apache-2.0
"""Pools of single cells, each sentence of docs/judging.md, Cells, beside its legal neighbour.

20 cells; request 1 has the cells 7, 3, 11, 5, 0 and 9, one token each.
"""

import pytest
from kvguard_oracle import UnsupportedError
from layout_scenario import (
    MOVE,
    Row,
    binds,
    cell_engine,
    engine,
    erase,
    flat,
    flat_group,
    flat_plan,
    known,
    rebase,
    remap,
    step,
)
from scenario import (
    ASYNC,
    CONNECTOR,
    admit,
    append,
    begin,
    end,
    event,
    found,
    judge,
    outcome,
    pool,
    scheduled,
    transfer,
)

SIX = [7, 3, 11, 5, 0, 9]
MOST = 2**40


def codes(*records, **fields):
    result = judge(*records, geometry_line=cell_engine(**fields))
    assert not any(name.startswith("malformed") for name in result.gaps)
    return found(result, unwritten=True)


def ran(tokens=6, cells=SIX, known_tokens=()):
    events = known(admit(1, cells, count=24), known_tokens)
    return [begin(1, events, [scheduled(1, tokens, 0)]), end(1)]


def decode(*events, cells, listed=None, slots=None, start=None, before=None, number=3):
    """The next token of request 1 behind these events. `cells`: its row, None for a hole."""
    holes = [column for column, cell in enumerate(cells) if cell is None]
    at = len(cells) if start is None else start
    row = Row(
        1, [*(0 if cell is None else cell for cell in cells), 17], at, 1, listed, slots, holes
    )
    part = flat([row], size=1)
    lines = step(number, [*events, append(1, 17)], [row], part)
    return codes(*(ran() if before is None else before), *lines)


# What is refused


def cells_of(**fields):
    return {**flat_group(block_size=1, kernel_block_size=1), **fields}


@pytest.mark.parametrize(
    ("group_line", "fields"),
    [
        (cells_of(kind="ring", window=8), {}),
        (cells_of(kind="window", window=8), {}),
        (cells_of(encoding="table", table_unit="block"), {}),
        (cells_of(encoding="csr"), {}),
        (cells_of(block_size=2), {}),
        (cells_of(placement="chosen"), {}),
        (cells_of(), {"flags": CONNECTOR}),
        (cells_of(), {"dcp_size": 2}),
    ],
)
def test_what_is_refused(group_line, fields):
    pools = [pool(kind="cells", num_blocks=20, null_block=-1)]
    with pytest.raises(UnsupportedError):
        judge(geometry_line=engine(group_line, pools=pools, **fields))
    assert judge(geometry_line=cell_engine()).findings == []


def test_other_pools_besides():
    pools = [pool(kind="cells", num_blocks=20, null_block=-1), pool(id=1)]
    for groups in ([cells_of()], [cells_of(), flat_group(id=1, pool=1)]):
        with pytest.raises(UnsupportedError):
            judge(geometry_line=engine(*groups, pools=pools))
    both = [{**pools[0], "id": index} for index in range(2)]
    line = engine(cells_of(), cells_of(id=1, pool=1), pools=both)
    assert judge(geometry_line=line).findings == []


# The rules for pages of one token


def test_pages_of_one_token():
    assert decode(cells=SIX) == []
    assert decode(cells=SIX, listed=[7, 3, 11, 5, 0, 8, 17]) == [(301, 0, 1, 5)]
    assert decode(cells=SIX, listed=[7, 3, 11, 5, 0, 20, 17]) == [(303, 0, 1, 5)]
    assert decode(cells=SIX, listed=SIX) == [(304, 0, 1, 6)]
    assert decode(cells=SIX, slots=[8]) == [(401, 0, 1, 6)]
    assert codes(binds(1, *admit(1, [7, 7]))) == [(203, 0, 1, 1)]
    assert codes(*ran(), binds(2, *admit(2, [7]))) == [(601, 0, 2, 0)]
    assert codes(*ran(), binds(2, *admit(2, [7, 3], first=2))) == []
    assert codes(*ran(), binds(2, *admit(2, [3], first=1))) == [(804, 0, 2, 0)]
    assert codes(begin(1, admit(1, SIX), [scheduled(1, 7, 0)])) == [(204, 0, 1, 6)]


def test_moved_cells():
    assert decode(remap(MOVE, 11, 1), cells=[7, 3, 1, 5, 0, 9]) == []
    assert decode(remap(MOVE, 11, 1), cells=SIX) == [(301, 0, 1, 2)]


# Holes


def test_a_negative_id_is_a_hole():
    bound = [begin(1, admit(1, [7, -1, 11]), [scheduled(1, 3, 0)])]
    assert codes(*bound) == [(201, 0, 1, 1)]
    row = Row(1, [7, 0, 11], 0, 3, holes=[1])
    # its slot is wrong whatever it is, and the list leaves it out
    for slot in (3, -1):
        part = flat_plan([[7, 11]], [7, slot, 11])
        lines = step(1, admit(1, [7, -1, 11]), [row], part)
        code = 403 if slot == -1 else 401
        assert codes(*lines) == [(201, 0, 1, 1), (code, 0, 1, 1)]
    # an id beyond the pool is none
    part = flat_plan([[7, 30, 11]], [7, 30, 11])
    lines = step(1, admit(1, [7, 30, 11]), [row], part)
    assert codes(*lines) == [(201, 0, 1, 1)]


def test_in_pages_a_negative_id_is_bound():
    line = engine(flat_group())
    row = Row(1, [1, 2], 0, 5)
    part = flat_plan([[4, 5, 6, 7, 99]], [4, 5, 6, 7, 99])
    lines = step(1, admit(1, [1, -1]), [row], part)
    assert found(judge(*lines, geometry_line=line)) == [(201, 0, 1, 1)]


# ERASE


def test_erased_columns_are_given_back():
    assert codes(*ran(), binds(2, erase(1, 1, 2), *admit(2, [3, 11]))) == []
    assert codes(*ran(), binds(2, erase(1, 1, 2), *admit(2, [7, 5]))) == [
        (601, 0, 2, 0),
        (601, 0, 2, 1),
    ]
    free = event("free", 0, 0, blocks=[3])
    assert codes(*ran(), binds(2, erase(1, 1, 2), free)) == []
    assert codes(*ran(), binds(2, free)) == [(702, 0, 1, 1)]


def test_erased_columns_are_holes():
    assert decode(erase(1, 1, 2), cells=[7, None, None, 5, 0, 9]) == []
    assert decode(erase(1, 0, 1), cells=[None, *SIX[1:]]) == []
    # what the list still has
    listed = [*SIX, 17]
    assert decode(erase(1, 1, 2), cells=[7, None, None, 5, 0, 9], listed=listed) == [
        (301, 0, 1, 3), (304, 0, 1, 5)
    ]  # fmt: skip
    assert decode(erase(1, 1, 2), cells=[7, None, None, 5, 0, 9], listed=[7, 5, 0, 9]) == [
        (304, 0, 1, 4)
    ]
    # positions are the tokens'
    wrong = [7, 5, 0, 8, 17]
    cells = [7, None, None, 5, 0, 9]
    assert decode(erase(1, 1, 2), cells=cells, listed=wrong) == [(301, 0, 1, 5)]


def test_a_row_ends_behind_its_last_column():
    assert decode(erase(1, 4, 2), cells=SIX[:4]) == []
    assert decode(erase(1, 4, 100), cells=SIX[:4]) == []
    assert decode(erase(1, 2, 2), erase(1, 4, 2), cells=SIX[:2]) == []
    assert decode(erase(1, 0, 100), cells=[]) == []
    # nothing is erased behind it, and the row ends where it did
    assert decode(erase(1, 6, 10), cells=SIX) == []
    assert decode(erase(1, 2, 0), cells=SIX) == []


def test_the_count_is_what_is_left():
    def counts(computed, *events):
        told = [*events, append(1, 17, 18, 19)]
        return codes(*ran(), begin(3, told, [scheduled(1, 1, computed)]))

    assert counts(4, erase(1, 4, 2)) == []
    assert counts(5, erase(1, 4, 2)) == [(902, None, 1, 5)]
    # a hole in the middle takes nothing away
    assert counts(6, erase(1, 1, 2)) == []
    assert counts(4, erase(1, 1, 2)) == [(904, None, 1, 4)]


def test_the_count_is_that_of_the_longest_row():
    groups = [cells_of(max_columns=0), cells_of(id=1, max_columns=0)]
    line = engine(*groups, pools=[pool(kind="cells", num_blocks=20, null_block=-1)])
    other = [12, 13, 14, 15, 16, 17]
    first = [begin(1, admit(1, SIX, other), [scheduled(1, 6, 0)]), end(1)]

    def counts(computed, *events):
        rows = [scheduled(1, 1, computed)]
        result = judge(*first, begin(2, list(events), rows), geometry_line=line)
        return [f for f in found(result) if f[0] != 204]

    assert counts(6, erase(1, 3, 3)) == []
    both = [erase(1, 3, 3), erase(1, 4, 2, own=1)]
    assert counts(4, *both) == []
    assert counts(5, *both) == [(902, None, 1, 5)]


def test_columns_that_are_bound_ahead_do_not_count():
    """Of the row's 8 columns 6 were computed."""
    ahead = [*ran(), binds(2, append(1, 17, 18)), end(2)]

    def counts(computed, *events):
        return codes(*ahead, begin(3, [*events, append(1, 19)], [scheduled(1, 1, computed)]))

    assert counts(6, erase(1, 7, 1)) == counts(6, erase(1, 1, 1)) == []
    assert counts(7, erase(1, 7, 1)) == counts(7, erase(1, 1, 1)) == [(902, None, 1, 7)]
    assert counts(5, erase(1, 5, 1)) == []
    assert counts(6, erase(1, 5, 1)) == [(902, None, 1, 6)]
    # where they stand afterwards does not matter: the two take the place of 11 and 5
    assert counts(6, rebase(1, 6, 2, -4)) == []
    # to the next event they are what was counted
    assert counts(4, rebase(1, 6, 2, -4), erase(1, 4, 2)) == []
    further = counts(5, rebase(1, 6, 2, -4), erase(1, 4, 2))
    assert further == [(204, 0, 1, 5), (902, None, 1, 5)]


def test_columns_that_have_moved_count_where_they_are():
    def counts(computed, *events):
        told = [*events, append(1, 12, 13)]
        return codes(*ran(), begin(2, told, [scheduled(1, 1, computed)]))

    up = rebase(1, 4, 2, 3)
    assert counts(9, up) == []
    assert counts(10, up) == [(902, None, 1, 10)]
    # of those that a record moves twice the last place
    assert counts(7, up, rebase(1, 7, 2, -2)) == []
    # without one there is nothing
    assert counts(0, erase(1, 0, 6)) == []
    assert counts(1, erase(1, 0, 6)) == [(902, None, 1, 1)]


def test_open_outcomes_are_forgotten():
    line = cell_engine(flags=ASYNC, max_drafts=2)
    cells = [*SIX, 17, 18]
    first = [begin(1, admit(1, cells), [scheduled(1, 6, 0, 2)]), end(1)]

    def later(computed, *events):
        rows = [begin(2, list(events), []), end(2), outcome(1, (1, 0))]
        next_ = begin(3, [], [scheduled(1, 1, computed)])
        return found(judge(*first, *rows, next_, geometry_line=line))

    # the tokens that are certain are left; the outcome has no effect
    assert later(6) == later(4, erase(1, 1, 1)) == []
    assert later(6, erase(1, 1, 1)) == [(902, None, 1, 6)]


def test_what_is_known_of_the_tokens_ends():
    tokens = list(range(100, 124))

    def hit(*events):
        other = known(admit(2, [7], first=1, count=24), [5] * 24)
        return codes(*ran(known_tokens=tokens), binds(2, *events, *other))

    assert hit() == [(801, 0, 2, 0)]
    assert hit(erase(1, 4, 2)) == []
    assert hit(rebase(1, 4, 2, 1)) == []


def test_an_unknown_request():
    assert codes(binds(1, erase(5, 0, 1))) == [(205, 0, 5, -1)]
    assert codes(binds(1, rebase(5, 0, 1, 1))) == [(205, 0, 5, -1)]


@pytest.mark.parametrize(
    "wrong",
    [
        erase(0, 0, 1),
        erase(1, -1, 1),
        erase(1, 0, -1),
        erase(1, 0, 1, own=None),
        rebase(0, 0, 1, 1),
        rebase(1, -1, 1, 1),
        rebase(1, 0, -1, 1),
        rebase(1, 0, 1, 1, own=None),
        rebase(1, 0, 1, MOST + 1),
        rebase(1, 0, 1, -MOST - 1),
    ],
)
def test_what_is_malformed(wrong):
    result = judge(*ran(), binds(2, wrong), geometry_line=cell_engine())
    assert any(name.startswith("malformed") for name in result.gaps)


# REBASE


def test_columns_move_down():
    assert decode(erase(1, 0, 2), rebase(1, 2, 4, -2), cells=SIX[2:]) == []
    # what stood there is given back
    assert decode(rebase(1, 2, 4, -2), cells=SIX[2:]) == []
    assert codes(*ran(), binds(2, rebase(1, 2, 4, -2), *admit(2, [7, 3]))) == []
    # what has moved is not
    assert codes(*ran(), binds(2, rebase(1, 2, 4, -2), *admit(2, [11, 9]))) == [
        (601, 0, 2, 0),
        (601, 0, 2, 1),
    ]


def test_columns_move_up():
    cells = [7, 3, None, None, 11, 5, 0, 9]
    assert decode(rebase(1, 2, 4, 2), cells=cells) == []
    # over others: 5 and 0 were behind them
    cells = [None, None, None, 7, 3, 9]
    assert decode(rebase(1, 0, 2, 3), cells=[None, None, 11, 7, 3, 9]) == []
    assert codes(*ran(), binds(2, rebase(1, 0, 2, 3), *admit(2, [5, 0]))) == []


def test_holes_move_as_holes():
    events = [erase(1, 3, 1), rebase(1, 2, 3, -2)]
    # 11, a hole and 0 stand at 0 to 2
    assert decode(*events, cells=[11, None, 0, None, None, 9]) == []
    # a hole takes the place of what stood there
    assert codes(*ran(), binds(2, *events, *admit(2, [7, 3]))) == []


def test_a_range_ends_with_the_row():
    """Cleared is as much as moves, whatever the count says."""
    for count in (2, 3, 100):
        assert decode(rebase(1, 4, count, -3), cells=[7, 0, 9, 5]) == []
    held = [rebase(1, 4, 100, -3), *admit(2, [3, 11])]
    assert codes(*ran(), binds(2, *held)) == []
    held = [rebase(1, 4, 100, -3), *admit(2, [5])]
    assert codes(*ran(), binds(2, *held)) == [(601, 0, 2, 0)]
    # behind the row there is nothing to move
    assert decode(rebase(1, 6, 3, -4), rebase(1, 9, 3, -4), cells=SIX) == []


def test_columns_that_would_stand_nowhere():
    assert decode(rebase(1, 0, 6, -2), cells=SIX[2:]) == []
    assert codes(*ran(), binds(2, rebase(1, 0, 6, -2), *admit(2, [7, 3]))) == []
    assert decode(rebase(1, 3, 3, MOST), cells=SIX[:3]) == []
    assert codes(*ran(), binds(2, rebase(1, 3, 3, MOST), *admit(2, [5, 0, 9]))) == []


def test_the_most_that_a_row_can_have():
    def still_held(added, **fields):
        """Whether the last cell still is request 1's."""
        events = [rebase(1, 5, 1, added), *admit(2, [9])]
        return codes(*ran(), binds(2, *events), **fields) == [(601, 0, 2, 0)]

    assert (still_held(26), still_held(27)) == (True, False)
    # without a model's length as many as there are cells
    assert (still_held(14, max_model_len=0), still_held(15, max_model_len=0)) == (True, False)


def test_a_row_may_end_earlier():
    assert decode(rebase(1, 4, 2, -4), cells=[0, 9, 11, 5]) == []
    assert decode(rebase(1, 0, 6, 0), cells=SIX) == []


def test_homes_move_along():
    down = rebase(1, 2, 4, -2)
    # the cell is then of the first column
    assert codes(*ran(), binds(2, down, *admit(2, [11], first=1))) == []
    assert codes(*ran(), binds(2, down, *admit(2, [9, 1, 0], first=3))) == [(804, 0, 2, 0)]
    assert codes(*ran(), binds(2, *admit(2, [11], first=1))) == [(804, 0, 2, 0)]


def test_homes_move_at_once():
    """A cell that a row names twice moves from its home once."""
    twice = ran(4, [7, 3, 7, 5])
    events = [rebase(1, 0, 4, 2), event("finish", 1)]
    assert codes(*twice, binds(2, *events, *admit(2, [1, 2, 7], first=3))) == [(203, 0, 1, 2)]


def test_hits_of_a_row_that_is_changed_are_ordinary_claims():
    hit = known(admit(2, [7, 3, 1], first=3, count=24), [5] * 24)
    before = ran(known_tokens=range(100, 124))
    new = admit(3, [1])
    # without, content judges them, and a writer may have what is hit
    assert (801, 0, 2, 0) in codes(*before, binds(2, *hit, *new))
    assert (601, 0, 3, 0) not in codes(*before, binds(2, *hit, *new))
    for change in (erase(2, 0, 1), rebase(2, 0, 1, 4), erase(2, 9, 1)):
        assert codes(*before, binds(2, *hit, change, *new)) == [(601, 0, 3, 0)]


def test_a_home_that_is_another_column_stays():
    """Request 2 has the cell in a column that is not its home; its move changes nothing."""
    hit = [*ran(), binds(2, *admit(2, [1, 7], first=2)), end(2)]
    moved = rebase(2, 1, 1, 1)
    assert codes(*hit, binds(3, moved, *admit(3, [7], first=1))) == [(804, 0, 2, 1)]


def test_claims_move_along():
    """Of two who share a cell one moves; the other keeps it."""
    shared = [*ran(), binds(2, *admit(2, [7, 3], first=2)), end(2)]
    events = [rebase(1, 0, 2, 8), event("finish", 2)]
    assert codes(*shared, binds(3, *events, *admit(3, [7]))) == [(601, 0, 3, 0)]
    gone = [event("finish", 1), *events[1:]]
    assert codes(*shared, binds(3, *gone, *admit(3, [7]))) == []


def test_content_that_moves_is_filled_where_it_stands():
    """Cells 0 and 9 are bound ahead; they move to where tokens were."""
    ahead = ran(tokens=4)
    hit = admit(2, [0], first=1)
    assert codes(*ahead, binds(2, rebase(1, 4, 2, -4), *hit)) == []


# What a hole is not


def test_nothing_is_written_in_a_hole():
    first = [binds(1, *admit(1, [7, -1, 11])), end(1)]
    begun = begin(2, [], [scheduled(1, 3, 0)])
    other = [*admit(2, [3, 5, 9])]
    both = begin(2, other, [scheduled(1, 3, 0), scheduled(2, 3, 0)])
    assert codes(*first, begun) == codes(*first, both) == [(201, 0, 1, 1)]


def test_transfers_do_not_find_holes():
    holes = [*ran(), binds(2, erase(1, 1, 2)), end(2)]
    load = event("load", 1, 0, value=1, first=1, count=1, blocks=[-1])
    assert codes(*holes, binds(3, load)) == [(201, 0, 1, 0), (1105, 0, 1, 1)]
    send = transfer("send-pending", 1, -1, request=1)
    assert codes(*holes, binds(3, send)) == [(201, 0, 1, 0), (1105, 0, 1, -1)]
    assert codes(*holes, binds(3, transfer("send-pending", 1, 7, 5, request=1))) == []


def test_announcements_do_not_find_holes():
    zero = event("zero", 0, 0, blocks=[-1])
    done = [begin(0, [], []), outcome(0, events=[event("zero-done", 0, 0)]), end(0)]
    row = Row(1, [7, 0, 0, 5, 0, 9, 17], 6, 1, holes=[1, 2])
    lines = step(3, [erase(1, 1, 2), zero, append(1, 17)], [row], flat([row], size=1))
    before = [*done, *ran()]
    result = [f for f in codes(*before, *lines) if f[0] != 1206]
    assert result == [(201, 0, 0, 0)]


def test_columns_that_are_not_bound_yet_have_an_entry():
    row = Row(1, [*SIX, 17], 6, 1, [*SIX, 99])
    lines = step(3, [], [row], flat_plan([row.listed], [99]))
    expected = [(204, 0, 1, 6), (404, 0, 1, 6)]
    assert codes(*ran(), *lines) == expected
    short = flat_plan([SIX], [99])
    assert codes(*ran(), *step(3, [], [row], short)) == [
        (204, 0, 1, 6),
        (304, 0, 1, 6),
        expected[1],
    ]
