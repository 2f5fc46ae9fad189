# SPDX-License-Identifier: Apache-2.0
"""Transfers, each finding beside its nearest legal neighbour.

Blocks hold 4 tokens, the pool has blocks 0..9, block 0 is null (scenario.py). Numbers by hand from
docs/judging.md, Transfers.
"""

import pytest
from kvguard_oracle.transfers import MOST_ENDED
from scenario import (
    ASYNC,
    CONNECTOR,
    admit,
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
    pool,
    reset,
    scheduled,
    transfer,
)

WINDOW = {"kind": "window", "window": 8}
ENDS = ["load-done", "load-failed", "send-done", "drain"]


def codes(*records, **fields):
    return found(judge(*records, geometry_line=geometry(**fields)))


def told(*events, **fields):
    """The events of one BEGIN."""
    return codes(begin(1, list(events), []), **fields)


def read_at(start, blocks, *events, kind=None, tokens=1):
    """Request 1 has `start` tokens in `blocks`, and runs some more behind the events' step."""
    came = begin(1, [*admit(1, blocks, first=start), *events], [])
    slots = [blocks[p // 4] * 4 + p % 4 for p in range(start, start + tokens)]
    line = plan(2, [1], [0, tokens], [start + tokens], group_plan([blocks], slots))
    ran = [begin(2, [], [scheduled(1, tokens, start)]), line, end(2)]
    return codes(came, end(1), *ran, groups=[group(**(kind or {}))])


# transfer-unknown


@pytest.mark.parametrize("kind", [*ENDS, "cancel"])
def test_the_end_of_what_was_never_announced(kind):
    assert told(transfer(kind, 7)) == [(1104, 0, 0, -1)]
    assert told(transfer(kind, 7, request=3)) == [(1104, 0, 3, -1)]
    for start in ("reserve", "load", "send-pending"):
        assert told(transfer(start, 7, 3, request=9), transfer(kind, 7)) == []


@pytest.mark.parametrize("kind", [*ENDS, "cancel"])
@pytest.mark.parametrize("last", ENDS)
def test_a_transfer_ends_once(kind, last):
    ended = [transfer("reserve", 7, 3), transfer(last, 7)]
    assert told(*ended, transfer(kind, 7)) == [(1104, 0, 0, -1)]


def test_a_cancelled_transfer_waits_for_its_drain():
    cancelled = [transfer("reserve", 7, 3), transfer("cancel", 7)]
    assert told(*cancelled, transfer("drain", 7)) == []
    assert told(*cancelled, transfer("cancel", 7)) == [(1104, 0, 0, -1)]
    assert told(*cancelled, transfer("load-done", 7), transfer("drain", 7)) == [(1104, 0, 0, -1)]


def test_ends_are_told_in_outcomes_too():
    first = begin(1, [transfer("reserve", 7, 3)], [])
    done = outcome(1, events=[transfer("drain", 7)])
    assert codes(first, done, end(1)) == []
    assert codes(first, done, end(1), done) == [(1104, 0, 0, -1)]


def after_reset(*events, before=(("reserve", 7),)):
    first = begin(1, [transfer(kind, id_, 3) for kind, id_ in before], [])
    result = judge(first, end(1), reset(), begin(2, list(events), []))
    return found(result), result.ignored


def test_ids_from_before_a_reset_are_ignored():
    assert after_reset(transfer("drain", 7)) == ([], 1)
    assert after_reset(transfer("cancel", 7), transfer("load-done", 8)) == ([], 2)
    # a RESET that forgot none
    assert after_reset(transfer("drain", 7), before=()) == ([(1104, 0, 0, -1)], 0)
    # an ended id is forgotten as well
    assert after_reset(transfer("drain", 7), before=[("reserve", 7), ("drain", 7)]) == ([], 1)


def test_ids_from_after_a_reset_are_known():
    again = [transfer("reserve", 9, 3), transfer("drain", 9)]
    assert after_reset(*again) == ([], 0)
    assert after_reset(*again, transfer("drain", 9)) == ([(1104, 0, 0, -1)], 0)
    # and one from before may be used again
    assert after_reset(transfer("reserve", 7, 3), transfer("drain", 7)) == ([], 0)


# transfer-reused


def test_a_load_or_send_may_follow_its_reserve():
    reserve = transfer("reserve", 7, 3)
    load = transfer("load", 7, 3, request=9)
    send = transfer("send-pending", 7, 3, request=9)
    assert told(reserve, load) == []
    assert told(reserve, send) == []
    assert told(reserve, reserve) == [(1107, 0, 0, -1)]
    assert told(reserve, load, load) == [(1107, 0, 9, -1)]
    assert told(reserve, load, send) == [(1107, 0, 9, -1)]
    assert told(load, reserve) == [(1107, 0, 0, -1)]
    assert told(reserve, transfer("drain", 7), load) == [(1107, 0, 9, -1)]
    # a cancelled one waits for its DRAIN
    assert told(reserve, transfer("cancel", 7), load) == [(1107, 0, 9, -1)]


def test_an_event_with_a_used_id_has_no_effect():
    # block 10 is out of the pool, and request 1 has 5 in column 1
    reused = transfer("load", 7, 10, request=1, first=4)
    started = [*admit(1, [3, 5]), transfer("send-pending", 7, 3, request=1)]
    assert told(*started, reused) == [(1107, 0, 1, -1)]
    fresh = transfer("load", 8, 10, request=1, first=4)
    assert told(*started, fresh) == [(201, 0, 1, 0), (1105, 0, 1, 4)]


def test_the_latest_ended_ids_are_remembered():
    events = []
    for id_ in range(1, MOST_ENDED + 2):
        events += [transfer("reserve", id_, 3), transfer("drain", id_)]
    assert told(*events, transfer("reserve", 2, 3)) == [(1107, 0, 0, -1)]
    assert told(*events, transfer("reserve", 1, 3)) == []


# ids out of the pool


def test_ids_out_of_the_pool_are_found_and_pin_nothing():
    assert told(transfer("reserve", 7, 3, 10)) == [(201, 0, 0, 1)]
    assert told(transfer("load", 7, -1, 3, request=4)) == [(201, 0, 4, 0)]
    assert told(transfer("send-pending", 7, 10, request=4)) == [(201, 0, 4, 0)]
    load = transfer("load", 7, 3, request=4)
    assert told(load, transfer("load-failed", 7, 3, 10)) == [(201, 0, 0, 1)]
    assert told(load, transfer("load-failed", 7, 3, 9)) == []


@pytest.mark.parametrize("kind", ["reserve", "load"])
@pytest.mark.parametrize("held", ["reserve", "load", "send-pending"])
def test_the_null_block_is_not_pinned(held, kind):
    pinned, handed = transfer(held, 7, 0, 3, request=1), transfer(kind, 8, 0, 5, request=9)
    assert told(pinned, handed) == []
    # in a pool without one, 0 is a block as any other
    assert told(pinned, handed, pools=[pool(null_block=-1)]) == [(1103, 0, 9, -1)]


def test_the_null_block_may_be_read_while_a_load_names_it():
    # bound as null: 0202 alone
    assert {code for code, *_ in read_at(4, [0, 5], transfer("load", 7, 0))} == {202}


def test_failed_blocks_are_of_the_transfers_group():
    pools = [pool(), pool(id=1, num_blocks=20)]
    groups = [group(), group(id=1, pool=1)]
    load = event("load", 4, 1, value=7, blocks=[15])
    failed = transfer("load-failed", 7, 15, 20)
    assert told(load, failed, groups=groups, pools=pools) == [(201, 1, 0, 1)]


# pinned-rebound


@pytest.mark.parametrize(
    ("pin", "rebound"),
    [
        (transfer("send-pending", 7, 3, request=1), True),
        (transfer("load", 7, 3, request=1), True),
        (transfer("load", 7, 3, request=2), False),
        (transfer("reserve", 7, 3, request=1), True),
        (transfer("reserve", 7, 3, request=2), False),
        # whose it is is not known
        (transfer("reserve", 7, 3), False),
    ],
)
def test_new_blocks_are_not_pinned_for_somebody_else(pin, rebound):
    # request 1 has block 3 and leaves; request 2 gets it as new, or as what others wrote
    pinned = [*admit(1, [3]), pin, event("finish", 1)]
    expected = [(1103, 0, 2, 0)] if rebound else []
    assert told(*pinned, *admit(2, [3])) == expected
    assert told(*pinned, transfer("cancel", 7), *admit(2, [3])) == expected
    assert told(*pinned, transfer("drain", 7), *admit(2, [3])) == []
    assert told(*pinned, *admit(2, [3], first=4)) == []


def test_pinned_and_owned():
    pinned = [*admit(1, [3]), transfer("send-pending", 7, 3, request=1)]
    assert told(*pinned, *admit(2, [7, 3])) == [(601, 0, 2, 1), (1103, 0, 2, 1)]
    # one finding, however many pin it
    again = transfer("send-pending", 8, 3, request=1)
    assert told(*pinned, again, event("finish", 1), *admit(2, [3])) == [(1103, 0, 2, 0)]


def test_a_load_names_what_its_reserve_held():
    # block 5 was reserved and is not loaded: the LOAD pins what it names
    held = [*admit(1, [3, 5], first=8), transfer("reserve", 7, 3, 5, request=1)]
    load, gone = transfer("load", 7, 3, request=1), event("finish", 1)
    assert told(*held, gone, *admit(2, [5])) == [(1103, 0, 2, 0)]
    assert told(*held, load, gone, *admit(2, [5])) == []
    assert told(*held, load, gone, *admit(2, [3])) == [(1103, 0, 2, 0)]


HANDING_OUT = pytest.mark.parametrize("kind", ["reserve", "load"])


@HANDING_OUT
def test_what_is_sent_is_not_handed_out(kind):
    sent = [*admit(1, [3, 5]), transfer("send-pending", 7, 3, 5, request=1)]
    gone, handed = event("finish", 1), transfer(kind, 8, 2, 5, 3, request=9)
    # one for the event, though both blocks are pinned
    assert told(*sent, gone, handed) == [(1103, 0, 9, -1)]
    assert told(*sent, gone, transfer(kind, 8, 3)) == [(1103, 0, 0, -1)]
    # its own request's send too
    assert told(*sent, gone, transfer(kind, 8, 3, request=1)) == [(1103, 0, 1, -1)]
    assert told(*sent, gone, transfer(kind, 8, 2, 6, request=9)) == []
    cancelled = [*sent, gone, transfer("cancel", 7)]
    assert told(*cancelled, handed) == [(1103, 0, 9, -1)]
    for last in ("send-done", "drain"):
        assert told(*sent, gone, transfer(last, 7), handed) == []
    # ids out of the pool are looked at by themselves
    out = transfer(kind, 8, 10, 3, request=9)
    assert told(*sent, gone, out) == [(201, 0, 9, 0), (1103, 0, 9, -1)]
    late = outcome(1, events=[handed])
    assert codes(begin(1, [*sent, gone], []), late, end(1)) == [(1103, 0, 9, -1)]


@HANDING_OUT
def test_what_is_sent_and_claimed_is_not_judged_when_it_is_handed_out(kind):
    sent = [*admit(1, [3, 5]), transfer("send-pending", 7, 3, 5, request=1)]
    handed = transfer(kind, 8, 5, 3, request=9)
    assert told(*sent, handed) == []
    # one is claimed by somebody else, the other by nobody
    one = admit(2, [3], first=4)
    assert told(*sent, event("finish", 1), *one, handed) == [(1103, 0, 9, -1)]
    both = admit(2, [3, 5], first=8)
    assert told(*sent, event("finish", 1), *both, handed) == []
    # given back by a row that lives on
    assert told(*sent, event("truncate", 1, 0, first=1), handed) == [(1103, 0, 9, -1)]


def test_a_block_is_claimed_in_any_group_of_its_pool():
    def handed(*rows, pool_of_other=0):
        pools, groups = [pool(), pool(id=1)], [group(), group(id=1, pool=pool_of_other)]
        events = [*admit(1, *rows), transfer("send-pending", 7, 3)]
        last = event("reserve", 9, 1, value=8, blocks=[3])
        return told(*events, last, pools=pools, groups=groups)

    assert handed([5], [6]) == [(1103, 1, 9, -1)]
    assert handed([3], [6]) == []
    assert handed([5], [3]) == []
    # the same id in another pool is another block
    assert handed([5], [6], pool_of_other=1) == []


@pytest.mark.parametrize(
    ("first", "second", "rebound"),
    [
        (("reserve", 1), ("load", 2), True),
        (("reserve", 1), ("reserve", 2), True),
        (("load", 1), ("reserve", 2), True),
        (("load", 1), ("load", 2), True),
        (("load", 2), ("load", 2), False),
        # whose it is is not known
        (("reserve", 0), ("load", 2), False),
        (("load", 1), ("reserve", 0), False),
        (("reserve", 0), ("reserve", 0), False),
        # what is sent is handed out to nobody
        (("reserve", 1), ("send-pending", 2), False),
    ],
)
def test_what_comes_in_for_one_is_not_handed_to_another(first, second, rebound):
    one = transfer(first[0], 7, 3, request=first[1])
    other = transfer(second[0], 8, 3, request=second[1])
    expected = [(1103, 0, second[1], -1)] if rebound else []
    assert told(one, other) == expected
    assert told(one, transfer("cancel", 7), other) == expected
    assert told(one, transfer("drain", 7), other) == []


def test_a_reserve_gives_way_to_its_own_load():
    reserve = transfer("reserve", 7, 3, 5, request=1)
    # its own pin is gone, whoever it was for; what others hold stays
    assert told(reserve, transfer("load", 7, 3, 5, request=1)) == []
    assert told(reserve, transfer("load", 7, 3, 3, request=2)) == []
    other = transfer("reserve", 8, 5, request=2)
    assert told(reserve, other) == [(1103, 0, 2, -1)]
    load = transfer("load", 7, 3, 5, request=1)
    assert told(other, reserve) == [(1103, 0, 1, -1)]
    assert told(other, reserve, load) == [(1103, 0, 1, -1), (1103, 0, 1, -1)]
    # an id that was used is not judged
    assert told(other, load, load) == [(1103, 0, 1, -1), (1107, 0, 1, -1)]


@HANDING_OUT
@pytest.mark.parametrize(("tokens", "rebound"), [(11, True), (10, False)])
def test_a_passed_claim_ends_before_its_block_is_handed_out(kind, tokens, rebound):
    # a window of 8: column 0 is not needed at 11, and is at 10; `low` is one less
    sent = transfer("send-pending", 7, 3, request=1)
    first = begin(1, admit(1, [3, 5, 2]), [scheduled(1, tokens, 0, 1)])
    done = outcome(1, (1, 0))
    handed = begin(2, [sent, transfer(kind, 8, 3, request=9)], [])
    fields = {"groups": [group(**WINDOW)], "flags": ASYNC}
    expected = [(1103, 0, 9, -1)] if rebound else []
    if kind == "load" and not rebound:
        # what request 1 needs is overwritten
        expected = [(805, 0, 9, 0)]
    # ended silently, or by `low` itself
    assert codes(first, end(1), handed, **fields) == expected
    assert codes(first, end(1), done, handed, **fields) == expected


def test_reserve_and_load_hand_their_blocks_out():
    # a window of 8, request 1 at [10, 11]: column 0 may be passed; it is freed without a finding
    def freed(tokens, drafts, *events):
        first = begin(1, admit(1, [3, 5, 2]), [scheduled(1, tokens, 0, drafts)])
        second = begin(2, [*events, event("copy", 0, 0, blocks=[9, 3])], [])
        fields = {"groups": [group(**WINDOW)], "flags": ASYNC}
        return codes(first, end(1), second, **fields)

    assert freed(11, 1) == [(1204, 0, 1, -1)]
    assert freed(11, 1, transfer("reserve", 7, 3)) == []
    assert freed(11, 1, transfer("load", 7, 3, request=9)) == []
    assert freed(11, 1, transfer("send-pending", 7, 3, request=9)) == [(1204, 0, 1, -1)]
    assert freed(10, 1, transfer("reserve", 7, 3)) == [(1204, 0, 1, -1)]


# transfer-misplaced


@pytest.mark.parametrize(
    ("blocks", "first", "expected"),
    [
        ([3, 5], 0, []),
        ([3, 6], 0, [(1105, 0, 1, 4)]),
        ([6, 7], 0, [(1105, 0, 1, 0)]),
        ([5], 4, []),
        # a position inside a block stands for its column
        ([5], 7, []),
        ([5], 3, [(1105, 0, 1, 0)]),
        # behind the last column
        ([3, 5, 6], 0, [(1105, 0, 1, 8)]),
        ([], 0, []),
    ],
)
def test_a_load_fills_what_its_request_has(blocks, first, expected):
    load = transfer("load", 7, *blocks, request=1, first=first)
    assert told(*admit(1, [3, 5]), load) == expected


@pytest.mark.parametrize(
    ("blocks", "first", "low", "expected"),
    [
        ([3, 5], 0, 8, []),
        ([3, 6], 0, 8, [(1105, 0, 1, 4)]),
        # column 1 does not count as computed
        ([3, 6], 0, 7, []),
        ([6, 7], 0, 7, [(1105, 0, 1, 0)]),
        ([6], 4, 8, [(1105, 0, 1, 4)]),
        # behind the last column, nothing is bound
        ([3, 5, 6], 0, 8, []),
    ],
)
def test_a_load_before_its_request(blocks, first, low, expected):
    load = transfer("load", 7, *blocks, request=1, first=first)
    admission = admit(1, [3, 5], first=low)
    assert told(load, *admission) == expected
    assert codes(begin(1, [load], []), end(1), begin(2, admission, [])) == expected
    # told in an OUTCOME
    early = outcome(1, events=[load])
    assert codes(begin(1, [], []), early, end(1), begin(2, admission, [])) == expected


def test_early_loads_that_are_not_judged():
    load, admission = transfer("load", 7, 6, request=1), admit(1, [3, 5], first=8)
    for kind, expected in [
        ("load-done", [(1105, 0, 1, 0)]),
        ("cancel", [(1105, 0, 1, 0)]),
        ("load-failed", []),
        ("drain", []),
    ]:
        assert told(load, transfer(kind, 7), *admission) == expected
        assert told(load, *admission, transfer(kind, 7)) == expected
    assert told(load, *admission, event("finish", 1)) == []
    # never admitted again
    assert told(*admit(1, [3]), event("finish", 1), load) == []
    reserve = transfer("reserve", 7, 6, request=1)
    assert told(reserve, *admission) == []
    assert told(reserve, load, *admission) == [(1105, 0, 1, 0)]


def test_an_early_load_and_blocks_that_are_known():
    # request 4 wrote block 3: request 1 may have come upon it
    load, admission = transfer("load", 7, 6, request=1), admit(1, [3, 5], first=8)
    wrote = [*admit(4, [3]), event("finish", 4)]
    assert told(load, *wrote, *admission) == []
    assert told(load, *admission) == [(1105, 0, 1, 0)]
    # the null block and ids out of the pool are found as what they are
    assert told(load, *admit(1, [0, 5], first=8)) == [(202, 0, 1, 0)]
    assert told(load, *admit(1, [10, 5], first=8)) == [(201, 0, 1, 0)]


def test_an_early_load_and_a_block_whose_home_a_hit_forgot():
    # with a connector, request 1's hit of block 3, which nobody has, ends what is known of it
    load, admission = transfer("load", 7, 6, request=1), admit(1, [3, 5], first=8)

    def connected(*records):
        return codes(*records, flags=CONNECTOR)

    wrote = begin(1, [*admit(4, [3]), event("finish", 4)], [])
    loaded = begin(1, [transfer("load", 8, 3, request=9), transfer("load-done", 8)], [])
    late = begin(2, [load, *admission], [])
    assert connected(wrote, end(1), late) == []
    assert connected(loaded, end(1), late) == []
    # its home was never known, or a RESET forgot it
    misplaced = [(1105, 0, 1, 0)]
    assert connected(begin(1, [], []), end(1), late) == misplaced
    assert connected(wrote, end(1), reset(), late) == misplaced


def test_a_send_reads_what_its_request_has():
    def sent(*blocks):
        return told(*admit(1, [3, 5]), transfer("send-pending", 7, *blocks, request=1))

    assert sent(5, 3) == []
    assert sent(5, 6) == [(1105, 0, 1, -1)]
    assert sent(6, 7) == [(1105, 0, 1, -1)]
    assert told(transfer("send-pending", 7, 6, request=1)) == []


# read-while-loading


def test_reads_of_what_is_being_filled():
    load = transfer("load", 7, 3, request=1)
    assert read_at(1, [3, 5], load) == [(1101, 0, 1, 0), (1102, 0, 1, 0)]
    assert read_at(4, [3, 5], load) == [(1101, 0, 1, 0)]
    assert read_at(4, [3, 5], transfer("reserve", 7, 3)) == []
    assert read_at(4, [3, 5], transfer("send-pending", 7, 3)) == []
    assert read_at(4, [3, 5], transfer("reserve", 7, 3), load) == [(1101, 0, 1, 0)]
    assert read_at(4, [3, 5], load, transfer("cancel", 7)) == [(1101, 0, 1, 0)]
    assert read_at(4, [3, 5], load, transfer("load-done", 7)) == []
    # column 1 is written from 4 on, and not read before
    second = transfer("load", 7, 5, request=1, first=4)
    assert read_at(4, [3, 5], second) == [(1102, 0, 1, 4)]
    assert read_at(8, [3, 5, 6], second) == [(1101, 0, 1, 4)]
    # one for the row and group
    assert read_at(8, [3, 5, 6], transfer("load", 7, 3, 5, request=1)) == [(1101, 0, 1, 0)]


@pytest.mark.parametrize(
    ("kind", "start", "expected"),
    [
        # at 10 position 3 is needed, at 11 column 0 is not
        (WINDOW, 10, [(1101, 0, 1, 3)]),
        (WINDOW, 11, []),
        ({**WINDOW, "sink": 2}, 11, [(1101, 0, 1, 0)]),
        ({"kind": "chunked", "window": 8}, 7, [(1101, 0, 1, 0)]),
        ({"kind": "chunked", "window": 8}, 8, []),
    ],
)
def test_what_a_window_has_passed_may_be_filled(kind, start, expected):
    assert read_at(start, [3, 5, 2, 6], transfer("load", 7, 3, request=1), kind=kind) == expected


# write-while-pinned


@pytest.mark.parametrize(
    ("kind", "forbidden"), [("load", True), ("send-pending", True), ("reserve", False)]
)
def test_writes_into_what_is_pinned(kind, forbidden):
    # request 1 is at 5 in column 1 (block 5) and writes up to `tokens` more
    def written(block, tokens, *events):
        row = admit(1, [3, 5, 6], first=5)
        rows = [scheduled(1, tokens, 5)]
        pinned = transfer(kind, 7, block, request=1, first=4 * [3, 5, 6].index(block))
        return codes(begin(1, [*row, pinned, *events], rows))

    expected = [(1102, 0, 1, 4)] if forbidden else []
    assert written(5, 1) == expected
    assert written(5, 1, transfer("cancel", 7)) == expected
    assert written(5, 1, transfer("drain", 7)) == []
    assert written(3, 1) == []
    assert written(6, 3) == []
    assert written(6, 4) == ([(1102, 0, 1, 8)] if forbidden else [])
    # one for the request and group
    assert written(5, 4, transfer("send-pending", 8, 6)) == [
        (1102, 0, 1, 4 if forbidden else 8),
    ]
