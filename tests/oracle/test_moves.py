# SPDX-License-Identifier: Apache-2.0
"""REMAP, each sentence of docs/judging.md, Moves, beside its legal neighbour.

Blocks of 4 tokens, 20 of them; block 0 is null. Request 1 has the blocks 1 and 2, request 2 the
blocks 3 and 4.
"""

import pytest
from layout_scenario import (
    DEDUPE,
    MOVE,
    SWAP,
    TOKENS,
    Row,
    binds,
    cell_engine,
    csr,
    engine,
    known,
    list_group,
    remap,
    ring_group,
    runs,
    step,
    table,
)
from scenario import (
    CONNECTOR,
    admit,
    append,
    begin,
    end,
    event,
    found,
    group,
    group_plan,
    judge,
    outcome,
    pool,
    reset,
    scheduled,
    transfer,
)

ONE, TWO = [1, 2], [3, 4]
FILLS_TOLD = 32


def pages(**fields):
    return engine(group(max_columns=8), **fields)


def judged(*records, line=None, **fields):
    return judge(*records, geometry_line=line or pages(**fields))


def codes(*records, **fields):
    result = judged(*records, **fields)
    assert not any(name.startswith("malformed") for name in result.gaps)
    return found(result, unwritten=True)


def ran(tokens=8, others=8, key=1):
    """Requests 1 and 2 have computed so many tokens."""
    first, second = known(admit(1, ONE, count=24), TOKENS), known(admit(2, TWO, count=24), TOKENS)
    rows = [scheduled(1, tokens, 0), scheduled(2, others, 0)]
    return [begin(key, [*first, *second], rows), end(key)]


def told(*events, before=None, **fields):
    """What step 3 finds."""
    before = ran() if before is None else before
    return codes(*before, begin(3, list(events), []), end(3), **fields)


def rows_are(*rows, events, before=None, line=None):
    """Each request's row is shown as `rows` (key, blocks); only differences are told."""
    own = [Row(key, [*blocks, 17 + key], 8, 1) for key, blocks in rows]
    more = [append(key, 17 + key) for key, _ in rows]
    lines = step(3, [*events, *more], own, table(own))
    return codes(*(ran() if before is None else before), *lines, line=line)


# Malformed


@pytest.mark.parametrize(
    ("reason", "blocks", "right"),
    [
        (MOVE, [1, 5, 2, 6], True),
        (MOVE, [1, 5, 1, 6], False),
        (MOVE, [1, 5, 2, 5], False),
        (MOVE, [1, 5, 5, 6], True),
        (SWAP, [1, 5, 2, 6], True),
        (SWAP, [1, 5, 5, 6], False),
        (SWAP, [1, 5, 6, 1], False),
        (DEDUPE, [1, 5, 2, 5], True),
        (DEDUPE, [1, 5, 5, 6], True),
        (DEDUPE, [1, 5, 1, 6], False),
        (0, [1, 5], False),
        (4, [1, 5], False),
        (MOVE, [1, 5, 2], False),
        # such a pair has no effect, and does not count
        (MOVE, [1, 20, 1, 6], True),
        (MOVE, [1, 0, 1, 6], True),
        (MOVE, [1, 1, 1, 6], True),
        (MOVE, [9, 6, 0, 6], True),
        (SWAP, [1, 5, 5, 5], True),
    ],
)
def test_what_is_malformed(reason, blocks, right):
    result = judged(*ran(), binds(3, remap(reason, *blocks)))
    assert ("bindings-lost" in judged(*ran(), binds(3, remap(reason, *blocks)), end(3),
                                      binds(4)).gaps) == (not right)  # fmt: skip
    assert any(name.startswith("malformed") for name in result.gaps) == (not right)


def test_a_remap_names_its_group_and_belongs_to_a_begin():
    everywhere = event("remap", 0, None, value=MOVE, blocks=[1, 5])
    assert any(name.startswith("malformed") for name in judged(*ran(), binds(3, everywhere)).gaps)
    late = outcome(1, events=[remap(MOVE, 1, 5)])
    assert any(name.startswith("malformed") for name in judged(*ran(), late).gaps)


def test_nothing_of_a_malformed_record_is_applied():
    wrong = binds(3, event("finish", 1), remap(MOVE, 1, 5, 1, 6))
    result = judged(*ran(), wrong, end(3), reset(), binds(4, *admit(3, [1])))
    assert result.findings == []


# Pairs without an effect


def test_ids_out_of_the_pool():
    assert told(remap(MOVE, 1, 20, -1, 5)) == [(201, 0, 0, 1), (201, 0, 0, 2)]
    events = [remap(MOVE, 1, 20, 2, 0, 3, 3)]
    assert rows_are((1, ONE), (2, TWO), events=events) == [(201, 0, 0, 1)]
    assert rows_are((1, [1, 6]), (2, TWO), events=[remap(MOVE, 0, 5, 2, 6)]) == []


# MOVE


def test_every_entry_moves():
    assert rows_are((1, [5, 6]), (2, TWO), events=[remap(MOVE, 1, 5, 2, 6)]) == []
    assert rows_are((1, [5, 2]), (2, TWO), events=[remap(MOVE, 1, 5, 2, 6)]) == [(301, 0, 1, 1)]
    # of every request that has it
    shared = [*ran(), *runs(2, 3, 1, 4, *admit(3, [1, 9], first=4))]
    row = Row(3, [5, 9], 5, 1)
    lines = step(3, [remap(MOVE, 1, 5)], [row], table([row]))
    assert codes(*shared, *lines) == []


def test_the_rows_of_every_group_of_the_pool():
    line = engine(group(max_columns=8), group(id=1, max_columns=8))
    row = Row(1, [1, 2], 4, 1)
    before = runs(1, 1, 4, 0, *admit(1, ONE, TWO))

    def shows(first, second, own):
        parts = [
            group_plan([first], [8], 0, 2),
            group_plan([second], [second[1] * 4], 1, 2),
        ]
        events = [remap(MOVE, 3, 5, own=own)]
        return codes(*before, *step(2, events, [row], *parts), line=line)

    assert shows([1, 2], [5, 4], own=0) == shows([1, 2], [5, 4], own=1) == []
    assert shows([1, 2], [3, 4], own=0) == [(301, 1, 1, 0)]
    # another pool's ids are others
    pools = [pool(num_blocks=20), pool(id=1, num_blocks=20)]
    line = engine(group(max_columns=8), group(id=1, pool=1, max_columns=8), pools=pools)
    assert shows([1, 2], [3, 4], own=0) == shows([1, 2], [5, 4], own=1) == []


def test_all_pairs_apply_at_once():
    assert rows_are((1, [2, 5]), (2, TWO), events=[remap(MOVE, 1, 2, 2, 5)]) == []
    assert rows_are((1, [2, 5]), (2, TWO), events=[remap(MOVE, 2, 5, 1, 2)]) == []
    assert rows_are((1, [3, 2]), (2, [1, 4]), events=[remap(MOVE, 1, 3, 3, 1)]) == []


def test_a_claim_goes_along():
    # the old block is nobody's, the new one is request 1's
    assert told(remap(MOVE, 1, 5), *admit(3, [1])) == []
    assert told(remap(MOVE, 1, 5), *admit(3, [5])) == [(601, 0, 3, 0)]
    assert told(event("free", 0, 0, blocks=[1]), remap(MOVE, 2, 5)) == [(702, 0, 1, 0)]
    assert told(remap(MOVE, 1, 5), event("free", 0, 0, blocks=[1])) == []
    assert told(remap(MOVE, 1, 5), event("free", 0, 0, blocks=[5])) == [(702, 0, 1, 0)]


def test_a_hit_of_this_step_stays_one():
    """Its writer may be bound in the same step."""
    hit = admit(3, [9, 10], first=4)
    # (nobody fills it: 0803)
    assert told(*hit, remap(MOVE, 9, 11), *admit(4, [11])) == [(803, 0, 3, 0)]
    # one of an earlier step is a claim
    earlier = [*ran(), binds(2, *hit), end(2)]
    assert told(remap(MOVE, 9, 11), *admit(4, [11]), before=earlier) == [(601, 0, 4, 0)]


def test_what_is_known_goes_along():
    gone = event("finish", 1)
    told_ = known(admit(3, [5, 9], first=4, count=24), TOKENS)
    other = known(admit(3, [5, 9], first=4, count=24), [7] * 24)
    assert told(gone, remap(MOVE, 1, 5), *told_) == []
    assert told(gone, remap(MOVE, 1, 5), *other) == [(801, 0, 3, 0)]
    # home, too: block 2 is of the second column
    assert told(gone, remap(MOVE, 2, 5), *told_) == [(804, 0, 3, 0)]
    # the old one is as if it had never been used
    old = known(admit(3, [1, 9], first=4, count=24), [7] * 24)
    assert told(gone, remap(MOVE, 1, 5), *old) == []
    assert told(gone, remap(MOVE, 1, 5), *old, flags=FILLS_TOLD) == [(803, 0, 3, 0)]
    assert told(gone, remap(MOVE, 1, 5), *told_, flags=FILLS_TOLD) == []


def test_what_was_in_the_new_place_is_forgotten():
    gone = [event("finish", 1), event("finish", 2)]
    hit = known(admit(3, [3, 9], first=4, count=24), TOKENS)
    # block 19 was never used: of block 3 nothing is known then
    assert told(*gone, remap(MOVE, 19, 3), *hit, flags=FILLS_TOLD) == [(803, 0, 3, 0)]
    assert told(*gone, *hit, flags=FILLS_TOLD) == []


def test_content_that_is_still_written_goes_along():
    """Request 1 has half of its second block, which moves; it is filled behind the move."""
    before = ran(tokens=6)
    hit = known(admit(3, [1, 6, 9], first=8, count=24), TOKENS)
    events = [remap(MOVE, 2, 6), *hit]
    assert codes(*before, begin(3, events, [])) == [(803, 0, 3, 1)]
    assert codes(*before, begin(3, events, [scheduled(1, 2, 6)])) == []


def test_who_bound_it_as_fresh_and_when_goes_along():
    new = [*admit(3, [9])]
    zero = event("zero", 0, 0, blocks=[11])
    copy = event("copy", 0, 0, blocks=[1, 11])
    # bound in this step, and moved: it is new
    assert told(*new, remap(MOVE, 9, 11), zero, copy) == []
    before = [*ran(), *runs(2, 3, 1, 0, *new)]
    assert told(remap(MOVE, 9, 11), copy, before=before) == [(1204, 0, 3, -1)]
    assert told(remap(MOVE, 9, 11), zero, before=before) == [(1202, 0, 3, 0)]


def test_what_was_freed_and_lost_goes_along():
    gone = [event("finish", 1), event("free", 0, 0, blocks=[1])]
    assert told(*gone, remap(MOVE, 1, 5), event("free", 0, 0, blocks=[5])) == [(703, 0, 0, -1)]
    assert told(*gone, remap(MOVE, 1, 5), event("free", 0, 0, blocks=[1])) == []
    lost = [transfer("load", 1, 1, request=1), transfer("load-failed", 1, 1, request=1)]

    def starts(*events):
        return codes(*ran(), begin(3, list(events), [scheduled(1, 1, 8)]), flags=CONNECTOR)

    failed = [f for f in starts(*lost, remap(MOVE, 1, 5)) if f[0] == 1106]
    assert failed == [(1106, 0, 1, 0)]
    # pairs with the block that was lost keep what they have
    assert [f for f in starts(*lost, remap(MOVE, 2, 5)) if f[0] == 1106] == [(1106, 0, 1, 0)]


def test_pins_stay_with_their_ids():
    send = transfer("send-pending", 1, 1, request=1)
    assert told(send, remap(MOVE, 1, 5), *admit(3, [1])) == [(1103, 0, 3, 0)]
    before = ran(tokens=6)

    def writes(*events):
        return codes(*before, begin(3, list(events), [scheduled(1, 1, 6)]))

    send = transfer("send-pending", 1, 2, request=1)
    assert writes(send) == [(1102, 0, 1, 4)]
    assert writes(send, remap(MOVE, 2, 5)) == []
    # told behind the move it must name the new one
    assert told(remap(MOVE, 1, 5), transfer("send-pending", 1, 1, request=1)) == [(1105, 0, 1, -1)]
    assert told(remap(MOVE, 1, 5), transfer("send-pending", 1, 5, request=1)) == []


def test_announcements_stay_with_their_ids():
    zero = event("zero", 0, 0, blocks=[1])
    assert told(zero, remap(MOVE, 1, 5)) == []
    assert told(event("zero", 0, 0, blocks=[5]), remap(MOVE, 1, 5)) == [(1202, 0, 1, 0)]


def test_moves_onto_what_is_held():
    assert told(remap(MOVE, 1, 3)) == [(1204, 0, 2, -1)]
    assert told(remap(MOVE, 1, 5)) == []
    # two of them are two
    assert told(remap(MOVE, 1, 3, 2, 4)) == [(1204, 0, 2, -1)] * 2
    # it moves on itself
    assert told(remap(MOVE, 1, 3, 3, 5)) == []
    # it is new
    assert told(*admit(3, [9]), remap(MOVE, 1, 9)) == []
    assert told(remap(MOVE, 1, 9), before=[*ran(), binds(2, *admit(3, [9])), end(2)]) == [
        (1204, 0, 3, -1)
    ]
    # the smallest key
    both = [*ran(), binds(2, *admit(9, [3], first=4)), end(2)]
    assert told(remap(MOVE, 1, 3), before=both) == [(1204, 0, 2, -1)]


def test_those_who_held_it_keep_their_claims():
    assert told(remap(MOVE, 1, 3), event("finish", 1), *admit(3, [3])) == [
        (601, 0, 3, 0),
        (1204, 0, 2, -1),
    ]
    both = [remap(MOVE, 1, 3), event("finish", 1), event("finish", 2), *admit(3, [3])]
    assert told(*both) == [(1204, 0, 2, -1)]


def test_what_a_load_had_filled_goes_along():
    """zero-live of a new block knows whom the load was for."""
    load = event("load", 3, 0, value=1, count=6, blocks=[9, 10])
    done = outcome(1, events=[event("load-done", 3, value=1)])
    before = [*ran(), binds(2, load), end(2), done]
    new = admit(3, [9, 11], first=6)
    zero = event("zero", 0, 0, blocks=[11])
    assert told(remap(MOVE, 10, 11), *new, zero, before=before) == [(1202, 0, 3, 4)]
    assert told(*new, zero, before=before) == []


# SWAP


def test_blocks_change_places():
    assert rows_are((1, TWO), (2, ONE), events=[remap(SWAP, 1, 3, 4, 2)]) == []
    assert rows_are((1, [3, 2]), (2, [1, 4]), events=[remap(SWAP, 1, 3)]) == []
    # with one that is free
    assert rows_are((1, [5, 2]), (2, TWO), events=[remap(SWAP, 1, 5)]) == []
    assert told(remap(SWAP, 1, 5), *admit(3, [1])) == []
    assert told(remap(SWAP, 1, 5), *admit(3, [5])) == [(601, 0, 3, 0)]


def test_what_is_known_changes_places():
    gone = [event("finish", 1), event("finish", 2)]
    hit = known(admit(3, [3, 9], first=4, count=24), TOKENS)
    # block 3 then holds what block 2 did: another column's
    assert told(*gone, remap(SWAP, 2, 3), *hit) == [(804, 0, 3, 0)]
    assert told(*gone, remap(SWAP, 1, 3), *hit) == []


# DEDUPE


def test_a_row_names_the_new_block():
    assert rows_are((1, ONE), (2, ONE), events=[remap(DEDUPE, 3, 1, 4, 2)]) == []
    assert rows_are((1, ONE), (2, TWO), events=[remap(DEDUPE, 3, 1, 4, 2)]) == [(301, 0, 2, 0)]
    # the old one is nobody's, the new one has two
    assert told(remap(DEDUPE, 3, 1), *admit(3, [3])) == []
    assert told(remap(DEDUPE, 3, 1), event("finish", 1), *admit(3, [5])) == []
    taken = told(remap(DEDUPE, 3, 1), event("finish", 1), *admit(3, [1]))
    assert (601, 0, 3, 0) in taken
    gone = [event("finish", 1), event("finish", 2)]
    assert told(remap(DEDUPE, 3, 1), *gone, *admit(3, [1])) == []


def test_a_row_that_names_it_already():
    assert told(remap(DEDUPE, 1, 2)) == [(203, 0, 1, 0)]
    # before line 4 is asked
    assert told(remap(DEDUPE, 2, 1), before=ran(tokens=6)) == [(203, 0, 1, 1)]
    # one more claim: the other one's end leaves it
    cut = event("truncate", 1, 0, first=1)
    assert told(remap(DEDUPE, 2, 1), cut, *admit(3, [1])) == [(203, 0, 1, 1), (601, 0, 3, 0)]


def test_what_a_pair_finds_is_as_it_was_before():
    # the row names block 2, which itself becomes 5
    assert told(remap(DEDUPE, 1, 2, 2, 5)) == [(203, 0, 1, 0)]


def test_columns_are_judged_one_after_another():
    # two columns become one block: the second finds what the first has become
    assert (203, 0, 1, 1) in told(remap(DEDUPE, 1, 5, 2, 5))
    # the first was 1 and is 5: nothing names 1 any more
    assert 203 not in {code for code, *_ in told(remap(DEDUPE, 1, 5, 2, 1))}
    # the second is 2 still when the first becomes it, and is 5 afterwards
    assert [f for f in told(remap(DEDUPE, 1, 2, 2, 5)) if f[0] == 203] == [(203, 0, 1, 0)]


def test_another_event_finds_what_the_one_before_has_made():
    assert (203, 0, 1, 1) in told(remap(DEDUPE, 1, 5), remap(DEDUPE, 2, 5))
    twice = [remap(DEDUPE, 3, 1), remap(DEDUPE, 1, 5)]
    assert rows_are((1, [5, 2]), (2, [5, 4]), events=twice) == []
    # contents are judged at the first column, whichever event came first
    other = [*known(admit(1, ONE), TOKENS), *known(admit(2, TWO), [7] * 24)]
    before = [begin(1, other, [scheduled(1, 8, 0), scheduled(2, 8, 0)]), end(1)]
    for events in ([remap(DEDUPE, 3, 1), remap(DEDUPE, 4, 2)], [remap(DEDUPE, 4, 2, 3, 1)]):
        assert told(*events, before=before) == [(801, 0, 2, 0)]
        assert told(*reversed(events), before=before) == [(801, 0, 2, 0)]


def test_a_column_that_is_still_written():
    before = ran(others=7)
    assert told(remap(DEDUPE, 4, 2), before=before) == [(601, 0, 2, 1)]
    assert told(remap(DEDUPE, 3, 1), before=before) == []
    # a proof, connector or not
    result = judged(*before, binds(3, remap(DEDUPE, 4, 2)), flags=CONNECTOR)
    assert [(f.code, f.grade) for f in result.findings] == [(601, "proof")]


def test_contents_are_judged_as_of_a_hit():
    def other(tokens, *, first=()):
        events = [*known(admit(1, ONE), TOKENS), *known(admit(2, TWO), tokens), *first]
        rows = [scheduled(1, 8, 0), scheduled(2, 8, 0)]
        return told(remap(DEDUPE, 3, 1, 4, 2), before=[begin(1, events, rows), end(1)])

    assert other(TOKENS) == []
    assert other([*TOKENS[:7], 5, *TOKENS[8:]]) == [(801, 0, 2, 1)]
    lora = event("domain", 2, other=1, value=9, first=4, count=20)
    assert other(TOKENS, first=[lora]) == [(802, 0, 2, 1)]
    assert told(remap(DEDUPE, 3, 2)) == [(804, 0, 2, 0)]
    # a block that nobody has filled
    half = ran(tokens=6)
    assert told(remap(DEDUPE, 4, 2), before=half) == [(803, 0, 2, 1)]
    never = told(remap(DEDUPE, 3, 9), flags=FILLS_TOLD)
    assert never == [(803, 0, 2, 0)]


def test_other_hits_of_the_row_are_ordinary_claims():
    """Request 3 hits the blocks 3 and 9 in this very record."""
    hit = admit(3, [3, 9, 10], first=8)
    new = admit(4, [9])
    assert (601, 0, 4, 0) not in told(*hit, *new)
    assert (601, 0, 4, 0) in told(*hit, remap(DEDUPE, 3, 1), *new)
    # of another row they stay what they are
    assert (601, 0, 4, 0) not in told(*hit, remap(DEDUPE, 4, 2), *new)
    # content judges them all the same, that column aside
    wrong = known(admit(3, [3, 2, 10], first=8, count=24), [7] * 24)
    assert told(*wrong) == [(801, 0, 3, 0)]
    other = known(admit(3, [3, 1, 10], first=8, count=24), TOKENS)
    assert told(*other, remap(DEDUPE, 3, 5)) == [(804, 0, 3, 1)]
    assert told(*known(admit(3, [4, 2, 10], first=8, count=24), TOKENS)) == [(804, 0, 3, 0)]
    moved = known(admit(3, [4, 2, 10], first=8, count=24), TOKENS)
    assert (804, 0, 3, 0) not in told(*moved, remap(DEDUPE, 4, 5))


def test_it_is_a_hit_to_no_other_rule():
    """Line 5 counts it as an earlier claim."""
    assert (601, 0, 3, 0) in told(remap(DEDUPE, 3, 9), *admit(3, [9]))
    hit = admit(4, [9, 10], first=4)
    assert (601, 0, 3, 0) not in told(*hit, *admit(3, [9]))


def test_every_column_of_every_request():
    shared = [*ran(), binds(2, *admit(3, [3, 9], first=4), *admit(4, [1, 10], first=4)), end(2)]
    # 2 and 3 had it; both are shown where they are
    row = Row(3, [5, 9], 4, 1)
    lines = step(3, [remap(DEDUPE, 3, 5)], [row], table([row]))
    assert codes(*shared, *lines) == []
    assert told(remap(DEDUPE, 1, 5, 3, 5), before=shared) == []


def test_a_ring_is_still_written():
    line = engine(ring_group("table"))
    before = [
        begin(1, [*admit(1, ONE), *admit(2, TWO)], [scheduled(1, 8, 0), scheduled(2, 8, 0)]),
        end(1),
    ]
    assert codes(*before, binds(2, remap(DEDUPE, 3, 1)), line=line) == [(601, 0, 2, 0)]
    # but what the row names already is found as that
    assert codes(*before, binds(2, remap(DEDUPE, 3, 4)), line=line) == [(203, 0, 2, 0)]


# Lists and rings follow


def test_lists_follow():
    line = engine(list_group())
    row, events = Row(1, [1, 6, 9], 8, 1), [remap(MOVE, 2, 6), append(1, 9)]
    assert codes(*ran(), *step(3, events, [row], csr([row])), line=line) == []
    row = Row(1, [1, 6, 9], 8, 1, listed=[1, 2, 9])
    assert codes(*ran(), *step(3, events, [row], csr([row])), line=line) == [(301, 0, 1, 1)]


# What is not followed


@pytest.mark.parametrize("kind", ["window", "chunked", "state", "cross"])
def test_pools_that_are_not_followed(kind):
    fields = {"window": 8} if kind in ("window", "chunked") else {}
    other = group(id=1, kind=kind, max_columns=8, **fields)
    line = engine(group(max_columns=8), other)
    lost = judged(binds(1, remap(MOVE, 1, 5)), end(1), binds(2), end(2), line=line)
    assert lost.gaps == {"table-event-not-followed": {1}, "bindings-lost": {1, 2}}
    # in a pool of its own it may be what it is
    apart = engine(
        group(max_columns=8), {**other, "pool": 1}, pools=[pool(num_blocks=20), pool(id=1)]
    )
    assert judged(binds(1, remap(MOVE, 1, 5)), end(1), line=apart).gaps == {}
    lost = judged(binds(1, remap(MOVE, 1, 5, own=1)), end(1), line=apart)
    assert lost.gaps == {"table-event-not-followed": {1}, "bindings-lost": {1}}


@pytest.mark.parametrize("kind", ["share", "erase", "rebase"])
def test_events_that_are_not_followed(kind):
    told_ = event(kind, 1, 0, count=1)
    lost = judged(binds(1, *admit(1, ONE), told_), end(1))
    assert lost.gaps == {"table-event-not-followed": {1}, "bindings-lost": {1}}
    assert lost.findings == []


def test_cells_share_nothing_either():
    lost = judged(binds(1, event("share", 1, 0, count=1)), end(1), line=cell_engine())
    assert "table-event-not-followed" in lost.gaps
