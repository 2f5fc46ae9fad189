# SPDX-License-Identifier: Apache-2.0
"""Where a block's content belongs, what loads bring, what is freed: beside the nearest legal.

Blocks hold 4 tokens, the pool has blocks 0..9, block 0 is null (scenario.py). Numbers by hand from
docs/judging.md, Content and Frees.
"""

import pytest
from scenario import (
    ASYNC,
    CONNECTOR,
    admit,
    append,
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
    transfer,
)

WINDOW = {"kind": "window", "window": 8}
TWO_GROUPS = {"groups": [group(), group(id=1)]}


def codes(*records, **fields):
    return found(judge(*records, geometry_line=geometry(**fields)))


def told(*events, **fields):
    """The events of one BEGIN."""
    return codes(begin(1, list(events), []), **fields)


# content-misplaced


@pytest.mark.parametrize(
    ("blocks", "first", "expected"),
    [
        # request 1 wrote 3 in column 0 and 5 in column 1
        ([3, 5], 8, []),
        ([3], 4, []),
        ([5], 4, [(804, 0, 2, 0)]),
        ([5, 3], 8, [(804, 0, 2, 0), (804, 0, 2, 1)]),
        ([7, 5], 8, []),
        # column 1 is not whole: 3 is new there, and has an owner
        ([7, 3], 7, [(601, 0, 2, 1)]),
        # block 8 was never new
        ([8, 5], 8, []),
    ],
)
def test_a_hit_is_at_home(blocks, first, expected):
    wrote = begin(1, admit(1, [3, 5]), [])
    assert codes(wrote, end(1), begin(2, admit(2, blocks, first=first), [])) == expected
    # the writer may have left
    left = begin(2, [event("finish", 1), *admit(2, blocks, first=first)], [])
    alone = [finding for finding in expected if finding[0] != 601]
    assert codes(wrote, end(1), left) == alone


def test_the_last_fresh_binding_says_where_home_is():
    # block 5 was in column 1 of request 1, then in column 0 of request 4
    wrote = [begin(1, admit(1, [3, 5]), []), end(1)]
    moved = [begin(2, [event("finish", 1), *admit(4, [5])], []), end(2)]
    assert codes(*wrote, *moved, begin(3, admit(2, [5], first=4), [])) == []
    assert codes(*wrote, *moved, begin(3, admit(2, [3, 5], first=8), [])) == [(804, 0, 2, 1)]


def test_homes_are_looked_up_when_all_events_have_been_applied():
    hit = admit(2, [5, 6], first=4)
    # the same column, in either order; another column, in either order
    assert told(*hit, *admit(3, [5])) == []
    assert told(*admit(3, [5]), *hit) == []
    assert told(*hit, *admit(3, [7, 5])) == [(804, 0, 2, 0)]
    assert told(*admit(3, [7, 5]), *hit) == [(804, 0, 2, 0)]
    # block 5 of column 1 is given back and becomes column 0 of request 3
    wrote = [begin(1, admit(1, [3, 5]), []), end(1)]
    moved = [event("finish", 1), *admit(3, [5])]
    assert codes(*wrote, begin(2, [*hit, *moved], [])) == []
    assert codes(*wrote, begin(2, hit, [])) == [(804, 0, 2, 0)]


def test_a_hit_whose_claim_does_not_stand():
    wrote = [begin(1, admit(1, [3, 5]), []), end(1)]
    hit = admit(2, [5, 6], first=4)

    def after(*events):
        return codes(*wrote, begin(2, [*hit, *events], []))

    assert after() == [(804, 0, 2, 0)]
    assert after(event("finish", 2)) == []
    assert after(event("truncate", 2, 0, first=0)) == []
    assert after(event("replace", 2, 0, blocks=[3, 7])) == []
    # made anew: one hit, not two
    assert after(event("replace", 2, 0, blocks=[5, 7])) == [(804, 0, 2, 0)]


def test_a_hit_of_an_earlier_record_is_not_judged_again():
    hit = begin(1, admit(2, [5, 6], first=4), [])
    moved = begin(2, [*admit(1, [7, 5])], [])
    assert codes(hit, end(1), moved) == [(601, 0, 1, 1)]


def test_a_home_is_in_a_group():
    wrote = [begin(1, admit(1, [3], [5]), []), end(1)]
    assert codes(*wrote, begin(2, admit(2, [3], [5], first=4), []), **TWO_GROUPS) == []
    assert codes(*wrote, begin(2, admit(2, [5], [3], first=4), []), **TWO_GROUPS) == [
        (804, 0, 2, 0), (804, 1, 2, 0),
    ]  # fmt: skip
    # ids of two pools are two blocks
    apart = {"groups": [group(), group(id=1, pool=1)], "pools": [pool(), pool(id=1)]}
    assert codes(*wrote, begin(2, admit(2, [5], [3], first=4), []), **apart) == []


# the last known token is computed again, in a block that is held (BEGIN, line 4)


def computed_again(*before, row=(7, 5), **fields):
    """Step 3 admits request 9: 8 tokens known, 7 computed, column 1 ends with the last of them."""
    return codes(*before, begin(3, admit(9, list(row), first=7, count=8), []), **fields)


def hits(row, first, *before):
    """Step 2: request 2 comes upon what it has, and stays."""
    return [begin(2, [*before, *admit(2, row, first=first)], []), end(2)]


@pytest.mark.parametrize("home", [[3, 5], [5, 3]])
def test_a_holder_says_where_a_forgotten_home_was(home):
    # request 1 wrote 5 and left; with a connector, request 2's hit of what nobody has forgets that
    wrote = [begin(1, [*admit(1, home), event("finish", 1)], []), end(1)]
    connected = {"flags": CONNECTOR}
    assert computed_again(*wrote, *hits([8, 5], 8), **connected) == []
    # 5 is held, but in column 0 or 2
    assert computed_again(*wrote, *hits([5], 4), **connected) == [(601, 0, 9, 1)]
    assert computed_again(*wrote, *hits([8, 6, 5], 12), **connected) == [(601, 0, 9, 1)]
    # one of two holders has it in column 1
    both = hits([5], 4, *admit(3, [8, 5], first=8))
    assert computed_again(*wrote, *both, **connected) == []
    # nobody has it any more: it may as well be new
    left = [begin(2, [*admit(2, [5], first=4), event("finish", 2)], []), end(2)]
    assert computed_again(*wrote, *left, **connected) == []


def test_a_holder_says_where_a_home_that_was_never_known_is():
    assert computed_again(*hits([8, 5], 8)) == []
    assert computed_again(*hits([5], 4)) == [(601, 0, 9, 1)]
    # the same column of another group of the pool
    fields, rows = TWO_GROUPS, admit(2, [8], [6, 5], first=8)
    held = [begin(2, rows, []), end(2)]
    assert computed_again(*held, **fields) == [(601, 0, 9, 1)]


@pytest.mark.parametrize("flags", [0, CONNECTOR])
def test_a_known_home_asks_no_holder(flags):
    # 5 is at home in column 0 of request 1, which is live: a wrong hit in column 1 moves nothing
    wrote = [begin(1, admit(1, [5, 3]), []), end(1)]
    wrong = [(601, 0, 9, 1), (804, 0, 2, 1)]
    assert computed_again(*wrote, *hits([8, 5], 8), flags=flags) == wrong
    # at home in column 1: no matter that column 0 of request 2 has it
    wrote = [begin(1, admit(1, [3, 5]), []), end(1)]
    assert computed_again(*wrote, *hits([5], 4), flags=flags) == [(804, 0, 2, 0)]


@pytest.mark.parametrize(
    ("tokens", "drafts", "a_hit"),
    [
        # [13, 14]: column 1 is needed at both; [14, 15]: at 14 alone; 15: not any more
        (14, 1, True),
        (15, 1, True),
        (15, 0, False),
    ],
)
def test_what_a_window_may_have_passed_is_still_held_there(tokens, drafts, a_hit):
    fields = {"groups": [group(**WINDOW)], "flags": ASYNC}
    held = begin(1, admit(1, [3, 5, 2, 6]), [scheduled(1, tokens, 0, drafts)])
    # who has block 5, which request 9 comes upon: what is bound as fresh may be copied into
    copied = event("copy", 0, 0, blocks=[8, 5])
    again = begin(2, [*admit(9, [7, 5], first=7, count=8), copied], [])
    assert codes(held, end(1), again, **fields) == ([(1204, 0, 1, -1)] if a_hit else [])
    # 9 tokens known: column 1 is new, and ends the claim if it may have been passed
    new = begin(2, [*admit(9, [7, 5], first=7, count=9), copied], [])
    passed = codes(held, end(1), new, **fields)
    assert passed == ([(601, 0, 9, 1)] if tokens == 14 else [])


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (4, "load-done", []),
        (5, "load-done", []),
        (0, "load-done", [(804, 0, 2, 1)]),
        # nothing was filled: block 3 is still what request 1 wrote in column 0
        (4, "load-failed", [(804, 0, 2, 1)]),
        (4, "send-done", [(804, 0, 2, 1)]),
        (4, "drain", [(804, 0, 2, 1)]),
    ],
)
def test_a_load_brings_content(first, last, expected):
    events = [*admit(1, [3]), event("finish", 1)]
    load = [transfer("load", 7, 3, request=9, first=first), transfer(last, 7)]
    assert told(*events, *load, *admit(2, [8, 3], first=8)) == expected
    # a fresh binding after it counts: column 0
    again = [*admit(4, [3]), event("finish", 4)]
    assert told(*load, *again, *admit(2, [3], first=4)) == []
    assert told(*load, *again, *admit(2, [8, 3], first=8)) == [(804, 0, 2, 1)]


def test_a_reserve_brings_no_content():
    events = [*admit(1, [3]), event("finish", 1)]
    reserve = [transfer("reserve", 7, 3, request=9, first=4), transfer("load-done", 7)]
    assert told(*events, *reserve, *admit(2, [3], first=4)) == []


# what a load brings, and whose tokens that is

MINE, YOURS, THEIRS = [1, 2, 3, 4], [5, 6, 7, 8], [9, 9, 9, 9]
MISMATCH = (801, 0, 9, 0)


def knowing(key, row, tokens, first=0):
    """An admission that says its tokens."""
    events = admit(key, row, first=first)
    events[0]["tokens"] = list(tokens)
    return events


def reading(step, tokens, key=9):
    """A prefix hit of block 3."""
    return [begin(step, knowing(key, [3], tokens, first=4), []), end(step)]


def loads(request, last="load-done"):
    return [transfer("load", 7, 3, request=request), transfer(last, 7)]


def found_and_assumed(*records):
    result = judge(*records)
    return found(result), result.assumptions


WROTE = [begin(1, knowing(1, [3], MINE), [scheduled(1, 4, 0)]), end(1)]


@pytest.mark.parametrize("gone", [[], [event("finish", 1)]])
@pytest.mark.parametrize(("last", "content"), [("load-done", YOURS), ("load-failed", MINE)])
def test_a_load_decides_whoever_claims_the_block(last, content, gone):
    # request 2 never has block 3, in which request 1 has tokens: 1105 and 0805, and yet it is what
    # was loaded
    loaded = [begin(2, knowing(2, [], YOURS), []), end(2), begin(3, [*loads(2, last), *gone], [])]
    before = [*WROTE, *loaded, end(3)]
    for tokens in (MINE, YOURS, THEIRS):
        wrong = [] if tokens == content else [MISMATCH]
        expected = [*wrong, (805, 0, 2, 0), (1105, 0, 2, 0)]
        assert found_and_assumed(*before, *reading(4, tokens)) == (expected, 0)


def test_no_reader_says_what_was_loaded_while_the_binder_is_there():
    # the load's request is not live: nothing is known of what it brought
    before = [*WROTE, begin(2, loads(4), []), end(2)]
    both = [*reading(3, YOURS, key=2), *reading(4, THEIRS)]
    over = (805, 0, 4, 0)
    assert found_and_assumed(*before, *both) == ([over], 0)
    gone = [begin(5, [event("finish", 1)], []), end(5)]
    assert found_and_assumed(*before, *both, *gone) == ([over], 0)
    # when it has left the first one does
    again = [*reading(6, YOURS, key=5), *reading(7, THEIRS, key=6)]
    assert found_and_assumed(*before, *both, *gone, *again) == ([(801, 0, 6, 0), over], 1)
    # bound anew, it is the binder's
    events = [*loads(4), event("finish", 1), *knowing(2, [3], YOURS)]
    anew = [*WROTE, begin(2, events, [scheduled(2, 4, 0)]), end(2)]
    assert found_and_assumed(*anew, *reading(3, THEIRS)) == ([MISMATCH, over], 0)


def test_a_load_does_not_know_what_is_admitted_in_the_record_of_its_end():
    admitted = knowing(2, [3], YOURS)
    load, done = loads(2)
    same = [begin(1, [*admitted, load, done], []), end(1)]
    later = [begin(1, [*admitted, load], []), end(1), begin(2, [done], []), end(2)]
    # its request still has the block: no reader says it either
    assert found_and_assumed(*same, *reading(3, THEIRS)) == ([], 0)
    assert found_and_assumed(*later, *reading(3, THEIRS)) == ([MISMATCH], 0)
    # an outcome is another record, of the same step too
    row = [begin(1, [*admitted, load], []), outcome(1, (2, 0), events=[done]), end(1)]
    assert found_and_assumed(*row, *reading(3, THEIRS)) == ([MISMATCH], 0)


def test_a_window_hits_what_it_needs():
    # at 12 column 0 is passed: whatever it names
    kinds = {"groups": [group(**WINDOW)]}
    wrote = begin(1, admit(1, [3, 5, 2]), [])
    assert codes(wrote, end(1), begin(2, admit(2, [5, 5, 2], first=12), []), **kinds) == []
    assert codes(wrote, end(1), begin(2, admit(2, [5, 3, 2], first=12), []), **kinds) == [
        (804, 0, 2, 1)
    ]


# Frees


def free(*blocks):
    return event("free", 0, 0, blocks=list(blocks))


def test_frees_of_what_is_held():
    row = admit(1, [3, 5])
    assert told(*row, free(7)) == []
    assert told(*row, free(5)) == [(702, 0, 1, 1)]
    assert told(*row, free(5, 3)) == [(702, 0, 1, 0), (702, 0, 1, 1)]
    assert told(*row, event("finish", 1), free(5, 3)) == []
    assert told(*row, free(5), event("finish", 1)) == [(702, 0, 1, 1)]
    assert told(*row, event("truncate", 1, 0, first=1), free(5)) == []


def test_the_smallest_key_that_has_it():
    holders = [*admit(4, [3]), *admit(2, [8, 3], first=8)]
    assert told(*holders, free(3)) == [(702, 0, 2, 1), (804, 0, 2, 1)]
    # in another group of the pool
    assert told(*admit(1, [7], [6, 3]), free(3), **TWO_GROUPS) == [(702, 0, 1, 1)]


def test_the_null_block_and_ids_out_of_the_pool_are_not_freed():
    assert told(free(0), free(0)) == []
    assert told(free(3, 10, -1)) == [(201, 0, 0, 1), (201, 0, 0, 2)]
    assert told(free(9)) == []


def test_freed_twice():
    assert told(free(3), free(3)) == [(703, 0, 0, -1)]
    assert told(free(3, 3)) == [(703, 0, 0, -1)]
    assert told(free(3), free(5)) == []
    assert codes(begin(1, [free(3)], []), end(1), begin(2, [free(3)], [])) == [(703, 0, 0, -1)]
    # claimed in between: as new, or as a hit
    gone = event("finish", 1)
    assert told(free(3), *admit(1, [3]), gone, free(3)) == []
    assert told(free(3), *admit(1, [3], first=4), gone, free(3)) == []
    # a transfer claims nothing
    pinned = [transfer("reserve", 7, 3), transfer("drain", 7)]
    assert told(free(3), *pinned, free(3)) == [(703, 0, 0, -1)]


def test_freed_too_early_and_again():
    # freed while request 1 holds it, and once more when it has left
    row, gone = admit(1, [3]), event("finish", 1)
    assert told(*row, free(3), gone) == [(702, 0, 1, 0)]
    assert told(*row, free(3), gone, free(3)) == [(702, 0, 1, 0), (703, 0, 0, -1)]
    assert told(*row, free(3), gone, *admit(2, [3]), event("finish", 2), free(3)) == [
        (702, 0, 1, 0)
    ]


def test_a_window_may_have_passed_what_is_freed():
    # [10, 11]: column 0 may be passed, column 1 is not; at [9, 10] neither
    def freed(tokens, drafts, block):
        first = begin(1, admit(1, [3, 5, 2]), [scheduled(1, tokens, 0, drafts)])
        fields = {"groups": [group(**WINDOW)], "flags": ASYNC}
        return codes(first, end(1), begin(2, [free(block)], []), **fields)

    assert freed(11, 1, 3) == []
    assert freed(11, 1, 5) == [(702, 0, 1, 1)]
    assert freed(10, 1, 3) == [(702, 0, 1, 0)]
    assert freed(11, 0, 3) == []
    assert freed(10, 0, 3) == [(702, 0, 1, 0)]


def test_a_free_ends_what_may_have_been_passed():
    # the claim ended: block 3 may be appended again without being repeated
    first = begin(1, admit(1, [3, 5, 2]), [scheduled(1, 11, 0, 1)])
    fields = {"groups": [group(**WINDOW)], "flags": ASYNC}
    copied = event("copy", 0, 0, blocks=[9, 3])
    assert codes(first, end(1), begin(2, [copied], []), **fields) == [(1204, 0, 1, -1)]
    assert codes(first, end(1), begin(2, [free(3), copied], []), **fields) == []
    assert codes(first, end(1), begin(2, [free(3), append(1, 3)], []), **fields) == []
