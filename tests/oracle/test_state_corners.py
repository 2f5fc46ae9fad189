# SPDX-License-Identifier: Apache-2.0
"""Recurrent groups: bindings, the schedule and what blocks hold, each beside its neighbour.

Corners of docs/judging.md, States. Blocks of 4 tokens: the state of c tokens is in column
ceil(c / 4) - 1.
"""

import pytest
from kvguard_oracle import UnreadableError, UnsupportedError
from kvguard_oracle.findings import PROOF, SUSPICION
from pass_scenario import FILLS_TOLD
from scenario import (
    ASYNC,
    CONNECTOR,
    NO_SLOTS,
    begin,
    end,
    event,
    found,
    geometry,
    group,
    judge,
    outcome,
    pool,
    scheduled,
)
from state_scenario import (
    ABANDONED,
    ALIGN,
    ALL,
    EIGHT,
    NO_FORWARD,
    NONE,
    STATES,
    binds,
    codes,
    copy,
    drafted,
    engine,
    more,
    new,
    runs,
    takes,
    transfer,
)

# What is refused


@pytest.mark.parametrize(
    "fields",
    [
        {"max_drafts": 1},
        {"groups": [group(kind="state", state_mode=NONE, kernel_block_size=2)]},
        {"groups": [group(kind="state", encoding="csr")]},
        {"pools": [pool(kind="cells")]},
        {"pools": [pool(kind="state")]},
    ],
)
def test_what_is_refused(fields):
    with pytest.raises(UnsupportedError):
        judge(geometry_line={**engine(ALL), **fields})


def test_an_unknown_mode_is_malformed():
    with pytest.raises(UnreadableError):
        judge(geometry_line=geometry([group(kind="state", state_mode=3)]))


def test_what_is_not_refused():
    judge(geometry_line=engine(ALL))
    judge(geometry_line=engine(NONE, max_drafts=1))
    judge(geometry_line=geometry([group(kind="state", encoding="table", flags=NO_SLOTS)]))


def test_states_are_never_sharded():
    # 8 tokens: one column of the sharded attention group, two of states; rank 1 has them whole
    described = engine(ALIGN, dcp_size=2, dcp_rank=1, interleave=1)
    ran = runs(1, 1, 8, 0, *new(1, [1]))
    assert found(judge(*ran, geometry_line=described)) == [(204, STATES, 1, 7)]
    # an interleave that does not divide a block of states says nothing
    described = engine(ALIGN, tokens=2, dcp_size=2, interleave=4)
    assert found(judge(*runs(1, 1, 4, 0, *new(1, [0, 1])), geometry_line=described)) == []


# What is needed


@pytest.mark.parametrize(
    ("mode", "tokens", "owned"),
    [
        # column 0 is needed as far as c - 1 <= 3
        (ALIGN, 4, True),
        (ALIGN, 5, False),
        (ALL, 4, True),
        (ALL, 5, False),
        (NONE, 5, True),
    ],
)
def test_claims_end_behind_the_state(mode, tokens, owned):
    expected = [(601, STATES, 2, 0)] if owned else []
    assert codes(*runs(1, 1, tokens, 0, *new(1, [1, 2])), takes(2, 1), mode=mode) == expected


def test_what_is_behind_open_drafts_may_be_given_away():
    # [4, 6] while two drafts are open: column 0 is needed at 4 and not at 6
    ran = runs(1, 1, 6, 0, *new(1, [1, 2, 3, 4]), drafts=2)
    assert codes(*ran, takes(2, 1), flags=ASYNC) == []
    assert codes(*ran, takes(2, 2), flags=ASYNC) == [(601, STATES, 2, 0)]
    # none was accepted
    told = outcome(1, (1, 2))
    assert codes(*ran, told, takes(2, 1), flags=ASYNC) == [(601, STATES, 2, 0)]
    assert codes(*ran, takes(2, 1), end(2), told, flags=ASYNC) == []


def test_frees():
    free = event("free", 0, STATES, blocks=[1])
    ran = runs(1, 1, 4, 0, *new(1, [1]))
    assert codes(*ran, binds(2, free)) == [(702, STATES, 1, 0)]
    assert codes(*ran, *runs(2, 1, 1, 4, more(1, 2)), binds(3, free)) == []


# Binding


@pytest.mark.parametrize(
    ("mode", "first", "states", "expected"),
    [
        # behind: nothing, whatever it is, out of the pool aside
        (ALIGN, 8, [7, 1], []),
        (ALIGN, 8, [0, 1], []),
        (ALIGN, 8, [60, 1], [(201, STATES, 1, 0)]),
        # the column of the state, and those behind it
        (ALIGN, 8, [0, 0], [(202, STATES, 1, 1)]),
        (ALL, 8, [0, 0], [(202, STATES, 1, 1)]),
        (ALIGN, 8, [0, 1, 0, 0], []),
        (ALL, 5, [0, 1, 0], []),
        (ALIGN, 0, [0, 0], []),
        # 5 tokens: the state stands in column 1
        (ALIGN, 5, [0, 1], []),
        (ALIGN, 5, [1, 0], [(202, STATES, 1, 1)]),
        # one running state
        (NONE, 0, [0], [(202, STATES, 1, 0)]),
        (NONE, 0, [1, 0], [(202, STATES, 1, 1)]),
        (NONE, 8, [1, 2, 1], [(203, STATES, 1, 2)]),
        # a column that claims nothing holds nothing
        (ALIGN, 8, [1, 1], []),
        (ALL, 8, [1, 1, 2], []),
        (ALL, 8, [0, 1, 1], [(203, STATES, 1, 2)]),
        (ALL, 0, [1, 1], [(203, STATES, 1, 1)]),
        # in mode align the column of `first` is the place
        (ALIGN, 8, [0, 1, 1], [(203, STATES, 1, 2)]),
        (ALIGN, 8, [0, 1, 2, 2], []),
        # of 0 tokens there is none
        (ALIGN, 0, [1, 1], []),
    ],
)
def test_binding(mode, first, states, expected):
    assert codes(binds(1, *new(1, states, first)), mode=mode) == expected


@pytest.mark.parametrize(
    ("mode", "states", "first", "expected"),
    [
        # block 1 is the state of request 1 in column 1
        (ALIGN, [0, 1], 8, []),
        (ALIGN, [0, 1], 5, [(804, STATES, 2, 1)]),
        # the column before claims nothing; those behind are new
        (ALIGN, [1, 2], 8, []),
        (ALIGN, [0, 2, 1], 8, [(601, STATES, 2, 2)]),
        # the last token of 8 is computed again: no hit where the state of 7 tokens is asked for
        (ALIGN, [0, 1], 7, [(804, STATES, 2, 1)]),
        (ALL, [0, 1], 8, []),
        (NONE, [2, 1], 8, [(601, STATES, 2, 1)]),
    ],
)
def test_what_a_hit_is(mode, states, first, expected):
    admitted = new(2, states, first)
    admitted[0]["count"] = first + 1
    ran = runs(1, 1, 8, 0, *new(1, [3, 1]))
    assert codes(*ran, binds(2, *admitted), mode=mode) == expected


@pytest.mark.parametrize(
    ("told", "held"),
    [
        ((), [2, 3, 4]),
        (([(1, 0)],), [4]),
        (([(1, 1)],), [3]),
        (([(1, 2)],), [2]),
    ],
)
def test_speculative_blocks_move_on_and_the_place_does_not(told, held):
    outcomes = [outcome(2, *rows) for rows in told]
    for block in (2, 3, 4):
        expected = [(203, STATES, 1, 4)] if block in held else []
        assert codes(*drafted(*outcomes), binds(3, more(1, block)), flags=ASYNC) == expected
    # what the row has left behind may come again
    assert codes(*drafted(*outcomes), binds(3, more(1, 1)), flags=ASYNC) == []


@pytest.mark.parametrize(
    ("rejected", "held"),
    [
        # 8 tokens: their state stands behind the drafts (block 4), and in column 1 (block 2)
        ([0], [2, 4]),
        # 7 tokens stand in column 2 alone, 6 in column 1
        ([1], [3]),
        ([2], [2]),
        # [6, 8]
        ([], [2, 3, 4]),
    ],
)
def test_a_stored_state_does_not_move(rejected, held):
    before = runs(1, 1, 5, 0, *new(1, [1, 2, 3, 4]))
    before += runs(2, 1, 3, 5, drafts=2)
    told = [outcome(2, (1, count)) for count in rejected]
    for block in (2, 3, 4):
        expected = [(203, STATES, 1, 4)] if block in held else []
        assert codes(*before, *told, binds(3, more(1, block)), flags=ASYNC) == expected


def test_a_stored_state_of_an_abandoned_step_is_not_known():
    before = runs(1, 1, 5, 0, *new(1, [1, 2]))
    for flags, expected in ((0, [(203, STATES, 1, 2)]), (ABANDONED, [])):
        ran = runs(2, 1, 3, 5, flags=flags)
        assert codes(*before, *ran, binds(3, more(1, 2))) == expected


def test_a_moved_block_is_new():
    # block 4 has gone from column 3 to 4 and is owned there, once
    records = [*drafted(outcome(2, (1, 2))), binds(3, more(1, 4)), end(3), takes(4, 4)]
    assert codes(*records, flags=ASYNC) == [(601, STATES, 2, 0)]
    # in mode all it would be there twice
    ran = runs(1, 1, 4, 0, *new(1, [1, 2]))
    assert codes(*ran, binds(2, more(1, 2))) == []
    assert codes(*ran, binds(2, more(1, 2)), mode=ALL) == [(203, STATES, 1, 2)]


def test_a_place_that_is_not_known_is_none():
    assert codes(*drafted(flags=ABANDONED), binds(3, more(1, 1))) == []
    assert codes(*drafted()[:2], binds(3, more(1, 1))) == [(203, STATES, 1, 1)]
    # 4 tokens, one taken back
    back = event("rollback", 1, count=1)
    assert codes(*drafted()[:2], binds(3, back, more(1, 1))) == []


# The schedule


@pytest.mark.parametrize(
    ("mode", "states", "tokens", "drafts", "short"),
    [
        (NONE, 1, 9, 0, False),
        (NONE, 0, 1, 0, True),
        (NONE, 2, 3, 1, False),
        (NONE, 2, 3, 2, True),
        (ALIGN, 2, 8, 0, False),
        (ALIGN, 2, 9, 0, True),
        (ALIGN, 4, 8, 2, False),
        (ALIGN, 3, 8, 2, True),
        (ALL, 2, 8, 0, False),
        (ALL, 2, 9, 0, True),
    ],
)
def test_capacity(mode, states, tokens, drafts, short):
    ran = runs(1, 1, tokens, 0, *new(1, range(1, states + 1)), drafts=drafts)
    assert codes(*ran, mode=mode) == ([(204, STATES, 1, tokens - 1)] if short else [])


@pytest.mark.parametrize(
    ("mode", "states", "tokens", "drafts", "column"),
    [
        # 6 tokens end in column 1; two drafts stand in 2 and 3
        (ALIGN, [1, 2, 3, 4], 6, 2, None),
        (ALIGN, [0, 2, 3, 4], 6, 2, None),
        (ALIGN, [1, 2, 0, 4], 6, 2, 2),
        (ALIGN, [1, 2, 3, 0], 6, 2, 3),
        (ALIGN, [1, 0, 0, 4], 6, 2, 1),
        (ALIGN, [1, 2, 3, 0], 6, 1, None),
        # the states at the boundaries may be left nowhere
        (ALL, [0, 2], 6, 0, None),
        (ALL, [1, 0], 6, 0, 1),
    ],
)
def test_the_null_block_at_the_end(mode, states, tokens, drafts, column):
    ran = runs(1, 1, tokens, 0, *new(1, states), drafts=drafts)
    assert codes(*ran, mode=mode) == ([] if column is None else [(202, STATES, 1, column)])


def test_the_null_block_where_the_start_is_open():
    # [5, 7]; 10 tokens more end in column 3 or, from 7 on, in column 4, which is null
    ten = begin(3, [more(1, 0)], [scheduled(1, 10, 7)])
    assert codes(*drafted(), ten, end(3), flags=ASYNC) == []
    # 12 end there wherever they start, but that is not known
    assert codes(*drafted(), *runs(3, 1, 12, 7, more(1, 0)), flags=ASYNC) == []
    told = outcome(2, (1, 0))
    assert codes(*drafted(told), ten, end(3), flags=ASYNC) == [(202, STATES, 1, 4)]


def test_two_writers():
    # both hit the state of so many tokens
    def both(mode, start, first, second, tokens=1):
        rows = [scheduled(1, tokens, start), scheduled(2, tokens, start)]
        events = [*new(1, first, start), *new(2, second, start)]
        return codes(begin(1, events, rows), end(1), mode=mode)

    assert both(ALIGN, 8, [0, 1, 2], [0, 1, 3]) == []
    assert both(ALIGN, 8, [0, 1, 2], [0, 1, 2]) == [(601, 1, 2, 2), (603, 1, 2, 8)]
    # a state inside its block is left where it stood
    assert both(ALIGN, 6, [0, 1], [0, 1]) == [(603, 1, 2, 4)]
    # up to 12 tokens: it stays as it was; in mode all it becomes that of 8
    assert both(ALIGN, 6, [0, 1, 2], [0, 1, 3], tokens=6) == []
    assert both(ALL, 6, [0, 1, 2], [0, 1, 3], tokens=6) == [(603, 1, 2, 4)]
    assert both(NONE, 6, [1], [2]) == []
    assert both(NONE, 6, [1], [1]) == [(601, 1, 2, 0), (603, 1, 2, 0)]


def test_writers_where_the_start_is_open():
    # [5, 7] and two tokens more: 7 or 9, in column 1 or 2 (blocks 2 and 3)
    def writes(block):
        events = [event("send-pending", 1, STATES, value=7, blocks=[block])]
        return codes(*drafted(), *runs(3, 1, 2, 7, *events), flags=ASYNC)

    assert writes(2) == [(1102, STATES, 1, 4)]
    assert writes(3) == [(1102, STATES, 1, 8)]
    assert writes(4) == []


@pytest.mark.parametrize(
    ("mode", "pinned", "position"),
    [(ALIGN, 1, None), (ALIGN, 2, 4), (ALL, 1, 0), (ALL, 2, 4), (NONE, 1, 0), (NONE, 2, None)],
)
def test_pinned_writes(mode, pinned, position):
    # 3 tokens, then 2: columns 0 and 1
    ran = runs(1, 1, 3, 0, *new(1, [1, 2]))
    sends = transfer("send-pending", 7, pinned, request=1)
    expected = [] if position is None else [(1102, STATES, 1, position)]
    assert codes(*ran, *runs(2, 1, 2, 3, sends), mode=mode) == expected


def test_a_failed_load_is_mended_by_a_start_from_nothing():
    # 4 tokens are loaded into block 1, in vain
    loads = transfer("load", 7, 1, request=1)
    failed = transfer("load-failed", 7, 1, request=1)
    came = binds(1, *new(1, [1, 2], 4), loads)
    lost = outcome(1, events=[failed])
    # used
    used = runs(2, 1, 1, 4)
    assert codes(came, end(1), lost, *used, flags=CONNECTOR) == [(1106, STATES, 1, 0)]
    # computed anew, in the step that asks or in one before it
    anew = runs(2, 1, 4, 0)
    assert codes(came, end(1), lost, *anew, *runs(3, 1, 1, 4), flags=CONNECTOR) == []
    # a start inside the block takes the state as it is, also in a step that mended nothing
    inside = [(1106, STATES, 1, 0)]
    assert codes(came, end(1), lost, *runs(2, 1, 2, 2), flags=CONNECTOR) == inside
    some = runs(2, 1, 1, 2)
    assert codes(came, end(1), lost, *some, *runs(3, 1, 1, 3), flags=CONNECTOR) == 2 * inside


# Tokens of a state


def asks(block, column, first, *before, mode=ALIGN, number=9, flags=0):
    """A hit of `first` tokens on a block in their column; True: it is another state's."""
    states = [*[0] * column, block]
    findings = codes(*before, binds(number, *new(5, states, first)), mode=mode, flags=flags)
    return (804, STATES, 5, column) in findings


def test_tokens_of_the_running_state():
    ran = runs(1, 1, 6, 0, *new(1, [0, 1, 2, 3]))
    assert not asks(1, 1, 6, *ran)
    assert asks(1, 1, 7, *ran)
    assert asks(1, 1, 8, *ran)
    assert not asks(1, 1, 7, *ran, *runs(2, 1, 1, 6))
    # drafts, an abandoned step and an open start say nothing
    assert not asks(1, 1, 8, *runs(1, 1, 6, 0, *new(1, [0, 1, 2, 3]), drafts=1))
    assert not asks(1, 1, 8, *ran, *runs(2, 1, 1, 6, flags=ABANDONED))
    assert not asks(2, 2, 12, *ran, *runs(2, 1, 3, 6, flags=NO_FORWARD))
    # the request may be gone
    gone = binds(2, event("finish", 1))
    assert asks(1, 1, 8, *ran, gone, end(2))
    assert not asks(1, 1, 6, *ran, gone, end(2))


def test_tokens_in_mode_all():
    ran = runs(1, 1, 10, 0, *new(1, [1, 2, 3]))
    for block, column, right in ((1, 0, 4), (2, 1, 8), (3, 2, 10)):
        for first in range(4 * column + 1, 4 * column + 5):
            assert asks(block, column, first, *ran, mode=ALL) == (first != right)
    # columns that a step does not write stay as they are; the one of the end is filled now
    more_tokens = runs(2, 1, 2, 10)
    assert not asks(2, 1, 8, *ran, *more_tokens, mode=ALL)
    assert not asks(3, 2, 12, *ran, *more_tokens, mode=ALL)
    assert asks(3, 2, 10, *ran, *more_tokens, mode=ALL)


def test_a_boundary_inside_a_step_is_stored_where_the_start_stood():
    # 6 tokens in block 1; 5 more pass the boundary at 8: block 1 may hold the state of 8 now
    ran = runs(1, 1, 6, 0, *new(1, [0, 1, 2]))
    assert not asks(1, 1, 8, *ran, *runs(2, 1, 5, 6))
    assert not asks(1, 1, 6, *ran, *runs(2, 1, 5, 6))
    # up to the boundary it is the block of the end; from there on none lies between
    assert asks(1, 1, 6, *ran, *runs(2, 1, 2, 6))
    eight = [*ran, *runs(2, 1, 2, 6)]
    assert asks(1, 1, 6, *eight, *runs(3, 1, 4, 8))
    assert not asks(1, 1, 8, *eight, *runs(3, 1, 4, 8))
    assert not asks(1, 1, 6, *eight, *runs(3, 1, 5, 8, more(1, 3)))


def test_a_boundary_inside_an_abandoned_step():
    ran = runs(1, 1, 6, 0, *new(1, [0, 1, 2]))
    for first in (6, 8):
        assert not asks(1, 1, first, *ran, *runs(2, 1, 5, 6, flags=ABANDONED))
    # none lies between 8 and 12 tokens
    eight = [*ran, *runs(2, 1, 2, 6)]
    assert asks(1, 1, 6, *eight, *runs(3, 1, 4, 8, flags=ABANDONED))
    assert not asks(1, 1, 6, *eight, *runs(3, 1, 5, 8, more(1, 3), flags=ABANDONED))


@pytest.mark.parametrize(
    ("events", "known"),
    [
        # what is being loaded is not judged; what was not loaded in the end is what it was
        ([transfer("load", 7, 1)], False),
        ([transfer("load", 7, 1), transfer("drain", 7)], True),
        ([transfer("load", 7, 1), transfer("load-done", 7)], False),
        ([copy("copy", 3, 1)], False),
        ([copy("copy", 1, 3)], True),
        ([copy("copy-done", 3, 1)], False),
        ([copy("copy-done", 1, 3)], True),
    ],
)
def test_what_ends_that_the_tokens_are_known(events, known):
    ran = runs(1, 1, 6, 0, *new(1, [0, 1]))
    assert asks(1, 1, 8, *ran, binds(2, *events), end(2)) == known


def test_a_load_that_is_done_and_a_new_binding_end_it_too():
    ran = [*runs(1, 1, 6, 0, *new(1, [0, 1])), binds(2, event("finish", 1)), end(2)]
    assert asks(1, 1, 8, *ran)
    # with a connector nothing is known of what nobody claims
    assert not asks(1, 1, 8, *ran, flags=CONNECTOR)
    loads = binds(3, transfer("load", 7, 1, first=4))
    assert not asks(1, 1, 8, *ran, loads, end(3), outcome(3, events=[transfer("load-done", 7)]))
    bound = binds(3, *new(2, [0, 1]), event("finish", 2))
    assert not asks(1, 1, 8, *ran, bound, end(3))


def test_a_load_leaves_home_and_content_not_known():
    ran = [*runs(1, 1, 8, 0, *new(1, [0, 1], tokens=EIGHT)), binds(2, event("finish", 1)), end(2)]
    other = [999] * 8
    assert codes(*ran, binds(3, *new(2, [0, 1], 8, other))) == [(801, STATES, 2, 1)]
    assert codes(*ran, binds(3, *new(2, [1], 4))) == [(804, STATES, 2, 0)]
    # whichever column it is for
    for first in (0, 4):
        load = transfer("load", 7, 1, request=5, first=first)
        came = [*ran, binds(3, load), end(3), outcome(3, events=[transfer("load-done", 7)])]
        assert codes(*came, binds(4, *new(2, [0, 1], 8, other))) == []
        assert codes(*came, binds(4, *new(2, [1], 4))) == []


def test_contents_are_compared_at_boundaries_alone():
    ran = runs(1, 1, 6, 0, *new(1, [0, 1], tokens=EIGHT))
    other = [999] * 8
    assert codes(*ran, binds(2, *new(2, [0, 1], 6, other))) == []
    # request 1 has come to 8 tokens, but what it sampled is not known
    assert codes(*ran, *runs(2, 1, 2, 6), binds(3, *new(2, [0, 1], 8, other))) == [
        (801, STATES, 2, 1)
    ]
    # nobody has filled block 1
    bound = binds(1, *new(1, [0, 1], tokens=EIGHT))
    assert codes(bound, end(1), binds(2, *new(2, [0, 1], 8, EIGHT))) == [(803, STATES, 2, 1)]
    assert codes(bound, end(1), binds(2, *new(2, [0, 1], 6, EIGHT))) == []


def test_a_state_is_read_before_its_step_leaves_it():
    # bound in step 1, which had no forward; made in step 2
    bound = runs(1, 1, 8, 0, *new(1, [0, 1], tokens=EIGHT), flags=NO_FORWARD)
    hit = new(2, [0, 1], 8, EIGHT)
    assert codes(*bound, *runs(2, 1, 8, 0), binds(3, *hit)) == []
    same = [*bound, begin(2, hit, [scheduled(1, 8, 0)])]
    assert codes(*same) == [(803, STATES, 2, 1)]
    # the state of 8 tokens is not what a hit of 6 reads
    short = new(2, [0, 1], 6, EIGHT)
    assert codes(*bound, begin(2, short, [scheduled(1, 8, 0)])) == []
    for flags, grade in ((0, PROOF), (CONNECTOR, SUSPICION), (CONNECTOR | FILLS_TOLD, PROOF)):
        result = judge(*same, geometry_line=engine(ALIGN, flags=flags))
        assert [f.grade for f in result.findings if (f.code, f.group) == (803, STATES)] == [grade]
