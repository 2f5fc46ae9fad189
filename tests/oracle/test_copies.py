# SPDX-License-Identifier: Apache-2.0
"""Zeroing and copies before a forward, each finding beside its nearest legal neighbour.

Blocks hold 4 tokens, the pool has blocks 0..9, block 0 is null (scenario.py). Numbers by hand from
docs/judging.md, Zeroing and copies.
"""

import pytest
from scenario import (
    ASYNC,
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
)

WINDOW = {"kind": "window", "window": 8}
# group 1: blocks of 2 tokens
UNEQUAL = [group(), group(id=1, block_size=2, kernel_block_size=2, max_columns=8)]


def zero(*blocks, group=0):
    return event("zero", 0, group, blocks=list(blocks))


def zeroed(*blocks, group=0):
    return event("zero-done", 0, group, blocks=list(blocks))


def copy(*blocks, group=0):
    """Pairs: source, target."""
    return event("copy", 0, group, blocks=list(blocks))


def copied(*blocks, group=0):
    return event("copy-done", 0, group, blocks=list(blocks))


def codes(*records, **fields):
    return found(judge(*records, geometry_line=geometry(**fields)))


def told(*events, **fields):
    return codes(begin(1, list(events), []), **fields)


def ran(tokens, drafts=0, blocks=(3, 5, 2, 6)):
    """Request 1 has run `tokens` tokens in step 1."""
    return [begin(1, admit(1, list(blocks)), [scheduled(1, tokens, 0, drafts)]), end(1)]


# ids out of the pool


def test_ids_out_of_the_pool():
    assert told(zero(3, 10)) == [(201, 0, 0, 1)]
    assert told(zeroed(-1, 3)) == [(201, 0, 0, 0)]
    assert told(copy(3, 10, -1, 5)) == [(201, 0, 0, 1), (201, 0, 0, 2)]
    assert told(copied(10, 3)) == [(201, 0, 0, 0)]
    assert told(zero(9), zeroed(9), copy(8, 9), copied(8, 9)) == []


# zero-live


@pytest.mark.parametrize(
    ("tokens", "block", "expected"),
    [
        (4, 3, [(1202, 0, 1, 0)]),
        # column 1 starts at 4
        (4, 5, []),
        (5, 5, [(1202, 0, 1, 4)]),
        (5, 2, []),
        (5, 7, []),
    ],
)
def test_zeroing_what_holds_tokens(tokens, block, expected):
    assert codes(*ran(tokens), begin(2, [zero(block)], [])) == expected


def test_a_new_block_is_zeroed():
    gone = event("finish", 1)
    assert codes(*ran(4), begin(2, [gone, *admit(2, [3]), zero(3)], [])) == []
    # a hit is not new, in its own step neither
    assert codes(*ran(4), begin(2, [gone, *admit(2, [3], first=4), zero(3)], [])) == [
        (1202, 0, 2, 0)
    ]
    assert told(*admit(1, [3]), *admit(2, [3], first=4), zero(3)) == []


def test_events_are_judged_as_a_whole():
    # request 1 leaves behind the ZERO
    assert codes(*ran(4), begin(2, [zero(3), event("finish", 1)], [])) == []
    assert codes(*ran(4), begin(2, [zero(3)], [])) == [(1202, 0, 1, 0)]


def test_the_smallest_key_and_its_first_token():
    both = [*admit(5, [7, 3], first=8), *admit(2, [3], first=4)]
    assert codes(begin(1, both, []), end(1), begin(2, [zero(3)], [])) == [(1202, 0, 2, 0)]
    # the smaller one's column holds nothing that is valid
    both = [*admit(5, [7, 3], first=8), *admit(2, [3])]
    result = codes(begin(1, both, []), end(1), begin(2, [zero(3)], []))
    assert (1202, 0, 5, 4) in result


def test_a_scheduled_request_counts_with_its_start():
    # the schedule takes the count back to 4: position 4 is written anew
    def counted(tokens):
        return codes(*ran(6), begin(2, [zero(5)], [scheduled(1, 1, tokens)]))

    assert counted(6) == [(1202, 0, 1, 4)]
    assert counted(4) == [(904, None, 1, 4)]

    # open drafts: [4, 6], then [3, 6]
    def drafted(drafts):
        second = begin(2, [zero(5)], [scheduled(1, 1, 6)])
        return codes(*ran(6, drafts), second, flags=ASYNC)

    assert drafted(1) == [(1202, 0, 1, 4)]
    assert drafted(2) == []


def test_each_group_with_its_own_block_size():
    # block 7 is column 1 of group 1: positions 2 and 3; the finding has the event's group
    def at(tokens):
        row = admit(1, [3, 5], [6, 7, 8])
        first = begin(1, row, [scheduled(1, tokens, 0)])
        return codes(first, end(1), begin(2, [zero(7)], []), groups=UNEQUAL)

    assert at(2) == []
    assert at(3) == [(1202, 0, 1, 2)]


def test_zeroing_what_a_window_has_passed():
    def at(tokens):
        return codes(*ran(tokens), begin(2, [zero(3)], []), groups=[group(**WINDOW)])

    assert at(10) == [(1202, 0, 1, 0)]
    assert at(11) == []


# zero-live, of a block that a load had filled


def loaded(*events, request=2, first=0, blocks=(3, 5), step=1):
    """A LOAD into blocks, done before its request comes."""
    load = event("load", request, 0, value=1, first=first, count=6, blocks=list(blocks))
    return [
        begin(step, [load, *events], []),
        end(step),
        outcome(step, events=[event("load-done", request, value=1)]),
    ]


def zeroed_at_admission(before, row=(3, 5), first=6, key=2, *events, **fields):
    told = [*events, *admit(key, list(row), first=first), zero(*row[first // 4 :])]
    result = codes(*before, begin(5, told, []), **fields)
    return [finding for finding in result if finding[0] == 1202]


def test_zeroing_a_new_block_that_a_load_had_filled():
    # of 6 tokens two are in block 5, which is bound as new
    assert zeroed_at_admission(loaded()) == [(1202, 0, 2, 4)]
    assert zeroed_at_admission([begin(1, [], []), end(1)]) == []
    # a column that holds nothing
    assert zeroed_at_admission(loaded(), first=4) == []
    # a column of another request, of another column, or of nobody
    assert zeroed_at_admission(loaded(request=7)) == []
    assert zeroed_at_admission(loaded(request=0)) == []
    assert zeroed_at_admission(loaded(first=4)) == []
    assert zeroed_at_admission(loaded(first=4, blocks=[5])) == [(1202, 0, 2, 4)]


def test_only_a_load_that_is_done_has_filled():
    load = event("load", 2, 0, value=1, count=6, blocks=[3, 5])
    assert zeroed_at_admission([begin(1, [load], []), end(1)]) == []
    failed = [*loaded()[:2], outcome(1, events=[event("load-failed", 2, value=1, blocks=[5])])]
    assert zeroed_at_admission(failed) == []
    failed = [*loaded()[:2], outcome(1, events=[event("load-failed", 2, value=1, blocks=[3])])]
    assert zeroed_at_admission(failed) == [(1202, 0, 2, 4)]


def test_a_new_owner_between_the_load_and_the_binding():
    """What another request has written over the load is not zeroed by mistake."""
    other = [begin(2, admit(9, [6, 5]), []), end(2), begin(3, [event("finish", 9)], []), end(3)]
    assert zeroed_at_admission([*loaded(), *other]) == []


def test_only_the_column_that_was_loaded_is_looked_at():
    # request 1 has the block too, with tokens: it is not what the load was for
    other = [*ran(8, blocks=(6, 5)), *loaded(step=2)]
    assert zeroed_at_admission(other) == [(1202, 0, 2, 4)]
    # where the load's own column holds nothing, nothing is found
    assert zeroed_at_admission(other, first=4) == []


def test_a_copy_brings_what_a_load_had_filled():
    def copying(*events, before=(), **fields):
        return zeroed_at_admission([*loaded(), *before], (3, 5), 6, 2, *events, **fields)

    assert copying(copy(7, 5)) == []
    assert copying(copy(7, 8, 9, 5)) == []
    # into another block; out of this one; of another record; only said to be done
    lost = [(1202, 0, 2, 4)]
    assert copying(copy(7, 8)) == lost
    assert copying(copy(5, 8)) == lost
    assert copying(before=[begin(2, [copy(7, 5)], []), end(2)]) == lost
    assert copying(copied(7, 5)) == lost
    # the copy is told behind the ZERO
    behind = begin(5, [*admit(2, [3, 5], first=6), zero(5), copy(7, 5)], [])
    assert codes(*loaded(), behind) == []
    # groups of one pool share ids
    groups = [group(), group(id=1)]
    assert copying(copy(7, 5, group=1), groups=groups) == []
    apart = {"groups": [group(), group(id=1, pool=1)], "pools": [pool(), pool(id=1)]}
    assert copying(copy(7, 5, group=1), **apart) == lost
    # a block that is not new is found all the same
    found_ = codes(*ran(4), begin(2, [zero(3), copy(7, 3)], []))
    assert (1202, 0, 1, 0) in found_


# copy-target-held


def test_copies_into_what_is_held():
    def copying(*events):
        return codes(*ran(4), begin(2, list(events), []))

    assert copying(copy(3, 7)) == []
    assert copying(copy(3, 0)) == [(1204, 0, 0, -1)]
    # held, with tokens or without
    assert copying(copy(7, 3)) == [(1204, 0, 1, -1)]
    assert copying(copy(7, 6)) == [(1204, 0, 1, -1)]
    assert copying(copy(7, 8, 7, 5)) == [(1204, 0, 1, -1)]
    assert copying(copy(10, 7)) == [(201, 0, 0, 0)]


def test_copies_into_what_is_new():
    assert told(*admit(2, [7]), copy(3, 7)) == []
    # at the event: not bound yet
    assert told(copy(3, 7), *admit(2, [7])) == []
    first = begin(1, admit(2, [7]), [])
    assert codes(first, end(1), begin(2, [copy(3, 7)], [])) == [(1204, 0, 2, -1)]
    # a hit is not new; the smallest key that has it
    hits = [*admit(5, [7], first=4), *admit(2, [7], first=4)]
    assert told(*hits, copy(3, 7)) == [(1204, 0, 2, -1)]


def test_copies_into_what_a_window_has_passed():
    def at(tokens):
        return codes(*ran(tokens), begin(2, [copy(7, 3)], []), groups=[group(**WINDOW)])

    assert at(10) == [(1204, 0, 1, -1)]
    assert at(11) == []


# copy-source-zeroed


def test_the_source_of_a_copy_is_not_zeroed():
    assert told(zero(8), copy(7, 9)) == []
    assert told(zero(7), copy(7, 9)) == [(1205, 0, 0, -1)]
    assert told(copy(7, 9), zero(7)) == [(1205, 0, 0, -1)]
    assert told(copy(7, 9), zero(9)) == []
    # of another record
    assert codes(begin(1, [zero(7)], []), end(1), begin(2, [copy(7, 9)], [])) == []
    # groups of one pool share ids
    groups = [group(), group(id=1)]
    assert told(copy(7, 9), zero(7, group=1), groups=groups) == [(1205, 0, 0, -1)]
    apart = {"groups": [group(), group(id=1, pool=1)], "pools": [pool(), pool(id=1)]}
    assert told(copy(7, 9), zero(7, group=1), **apart) == []


# used-before-zeroed, used-before-copied, copy-lost

KINDS = [(zero, zeroed, 1201), (lambda *to: copy(*pairs(to)), lambda *to: copied(*pairs(to)), 1203)]


def pairs(targets):
    """Copies of block 7 to each target."""
    return [number for target in targets for number in (7, target)]


def used(announce, done, *events, start=5, tokens=1, blocks=(3, 5), kind=None, said=True, early=()):
    """Step 1 says DONE of block 8; in step 2 request 1 comes with `start` tokens and runs more.

    Zeroing and copying into what it holds already is found as such, and left out here.
    """
    first = [begin(1, [announce(8)], []), outcome(1, events=[done(8)]), end(1)]
    row = list(blocks)
    second = begin(2, [*events, *admit(1, row, first=start)], [scheduled(1, tokens, start)])
    slots = [row[p // 4] * 4 + p % 4 for p in range(start, start + tokens)]
    line = plan(2, [1], [0, tokens], [start + tokens], group_plan([row], slots))
    told_first = [outcome(2, events=list(early))] if early else []
    records = [*(first if said else []), second, *told_first, line, end(2)]
    result = codes(*records, groups=[group(**(kind or {}))])
    return [finding for finding in result if finding[0] not in (1202, 1204)]


@pytest.mark.parametrize(("announce", "done", "code"), KINDS)
def test_used_before_it_was_done(announce, done, code):
    lost = (1206, 0, 0, -1)

    def use(*events, **fields):
        return used(announce, done, *events, **fields)

    assert use(announce(3)) == [(code, 0, 1, 0), lost]
    assert use(announce(3), early=[done(3)]) == []
    assert use(announce(3), done(3)) == []
    # said before it was announced
    assert use(done(3), announce(3)) == [(code, 0, 1, 0), lost]
    # what is written in this step
    assert use(announce(5), start=3) == [lost]
    assert use(announce(5), start=3, tokens=2) == [(code, 0, 1, 4), lost]
    assert use(announce(5), start=4) == [(code, 0, 1, 4), lost]
    # in parts, in any order, and the first one that is not done
    assert use(announce(3, 5), early=[done(5), done(3)]) == []
    assert use(announce(3, 5), early=[done(3)]) == [(code, 0, 1, 4), lost]
    assert use(announce(9), announce(3), early=[done(3, 9)]) == []
    # nobody's block: lost all the same
    assert use(announce(9)) == [lost]


@pytest.mark.parametrize(("announce", "done", "code"), KINDS)
def test_an_engine_that_never_says_done(announce, done, code):
    assert used(announce, done, announce(3), said=False) == []
    # it says so of another block: from here on
    other = used(announce, done, announce(3, 9), said=False, early=[done(9)])
    assert other == [(code, 0, 1, 0), (1206, 0, 0, -1)]


def test_done_is_said_of_each_kind():
    # the engine says ZERO_DONE, never COPY_DONE
    assert used(zero, zeroed, copy(7, 3)) == []
    assert used(lambda *to: copy(*pairs(to)), lambda *to: copied(*pairs(to)), zero(3)) == []


@pytest.mark.parametrize(("announce", "done", "code"), KINDS)
def test_what_a_window_has_passed_is_not_used(announce, done, code):
    def at(start, kind):
        found_ = used(announce, done, announce(3), start=start, blocks=(3, 5, 2, 6), kind=kind)
        return [finding for finding in found_ if finding[0] != 1206]

    assert at(10, WINDOW) == [(code, 0, 1, 3)]
    assert at(11, WINDOW) == []
    assert at(11, {**WINDOW, "sink": 1}) == [(code, 0, 1, 0)]


@pytest.mark.parametrize(
    ("flags", "tokens", "expected"),
    [
        (0, 1, [(1206, 0, 0, -1)]),
        # no forward; nothing scheduled; abandoned: what was done is not known
        (1, 1, []),
        (0, 0, []),
        (2, 1, []),
    ],
)
def test_lost_in_a_step_that_had_a_forward(flags, tokens, expected):
    first = [begin(1, [zero(8), *admit(1, [3])], []), outcome(1, events=[zeroed(8)]), end(1)]
    rows = [scheduled(1, tokens, 0)] if tokens else []
    assert codes(*first, begin(2, [zero(9)], rows), end(2, flags=flags)) == expected


def lost_in(*events, done=(), groups=None):
    """Request 1 runs a token in step 2; the DONEs of step 1 are of blocks that nobody announced."""
    first = [begin(1, admit(1, [3], [2]), []), outcome(1, events=[zeroed(8), copied(7, 8)]), end(1)]
    second = begin(2, list(events), [scheduled(1, 1, 0)])
    said = [outcome(2, events=list(done))]
    groups = [group(), group(id=1)]
    return codes(*first, second, *said, end(2), groups=groups)


def test_one_lost_for_each_kind_and_group():
    assert lost_in(zero(8, 9)) == [(1206, 0, 0, -1)]
    assert lost_in(zero(8), zero(9, group=1)) == [(1206, 0, 0, -1), (1206, 1, 0, -1)]
    assert lost_in(zero(8), copy(5, 9)) == [(1206, 0, 0, -1), (1206, 0, 0, -1)]
    assert lost_in(zero(8), copy(5, 9, group=1)) == [(1206, 0, 0, -1), (1206, 1, 0, -1)]


def test_done_names_the_same_pairs_and_group():
    assert lost_in(copy(5, 9), done=[copied(5, 9)]) == []
    assert lost_in(copy(5, 9), done=[copied(9, 5)]) == [(1206, 0, 0, -1)]
    assert lost_in(copy(5, 9), done=[copied(4, 9)]) == [(1206, 0, 0, -1)]
    assert lost_in(zero(8), done=[zeroed(8, group=1)]) == [(1206, 0, 0, -1)]
    assert lost_in(zero(8), zero(8, group=1), done=[zeroed(8)]) == [(1206, 1, 0, -1)]


def test_a_reset_forgets_announcements_and_not_that_done_is_said():
    first = [begin(1, [zero(8)], []), outcome(1, events=[zeroed(8)]), end(1)]
    opened = begin(2, [zero(9), *admit(1, [3])], [scheduled(1, 1, 0)])
    third = begin(3, admit(2, [9]), [scheduled(2, 1, 0)])
    assert codes(*first, opened, reset(), third, end(3)) == []
    third["events"].append(zero(9))
    assert codes(*first, reset(), third, end(3)) == [(1206, 0, 0, -1)]


def test_pairs_are_pairs():
    assert judge(begin(1, [copy(3, 5, 7)], [])).gap_steps() == {1}
    assert judge(begin(1, [], []), outcome(1, events=[copied(3)])).gap_steps() == {1}
    assert judge(begin(1, [copy(3, 5)], [])).gap_steps() == set()


@pytest.mark.parametrize("kind", ["zero", "copy", "free", "finish", "append"])
def test_an_outcome_tells_no_plans(kind):
    told_ = outcome(1, events=[event(kind, 0 if kind in ("zero", "copy", "free") else 1, 0)])
    assert judge(begin(1, admit(1, [3]), []), told_).gap_steps() == {1}
    right = outcome(1, events=[zeroed(3), copied(3, 5)])
    assert judge(begin(1, admit(1, [3]), []), right).gap_steps() == set()
