# SPDX-License-Identifier: Apache-2.0
"""Binding, ownership and count rules of a BEGIN, each beside its nearest legal neighbour.

Blocks hold 4 tokens, the pool has blocks 0..9, block 0 is null (scenario.py). Every expected number
is worked out by hand from docs/judging.md.
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
)


def codes(*records, **fields):
    return found(judge(*records, geometry_line=geometry(**fields)))


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        ([3, 5], []),
        # ids 10 and -1 are not in 0..9
        ([3, 10], [(201, 0, 1, 1)]),
        ([-1, 5], [(201, 0, 1, 0)]),
        # 9 is the last block
        ([3, 9], []),
        ([3, 0], [(202, 0, 1, 1)]),
        ([3, 5, 3], [(203, 0, 1, 2)]),
        # out of range twice: neither claims anything, so nothing is repeated
        ([10, 10], [(201, 0, 1, 0), (201, 0, 1, 1)]),
        # 4 columns at most; the finding has no position
        ([1, 2, 3, 4], []),
        ([1, 2, 3, 4, 5], [(206, 0, 1, -1)]),
    ],
)
def test_blocks_of_an_admission(blocks, expected):
    assert codes(begin(1, admit(1, blocks), [])) == expected


def test_every_append_to_a_row_that_is_too_wide_is_found():
    events = [*admit(1, [1, 2, 3, 4]), append(1, 5), append(1, 6)]
    assert codes(begin(1, events, [])) == [(206, 0, 1, -1), (206, 0, 1, -1)]
    # 0: the width is not known
    assert codes(begin(1, events, []), groups=[group(max_columns=0)]) == []


def test_events_of_unknown_requests():
    events = [
        append(7, 3),
        event("replace", 7, 0, blocks=[3]),
        event("truncate", 7, 0, first=1),
        event("rollback", 7, count=1),
    ]
    assert codes(begin(1, events, [])) == [
        (205, None, 7, -1), (205, 0, 7, -1), (205, 0, 7, -1), (205, 0, 7, -1),
    ]  # fmt: skip


def test_aborts_of_keys_never_seen_are_counted_and_legal():
    result = judge(begin(1, [event("finish", 7), event("preempt", 8)], []))
    assert (found(result), result.ignored) == ([], 2)


def test_scheduled_without_admission():
    assert codes(begin(1, [], [scheduled(7, 1, 0)])) == [(205, None, 7, -1)]


def test_a_block_of_a_live_request_is_owned():
    first = begin(1, admit(1, [3]), [])
    taken = begin(2, admit(2, [4, 3]), [])
    assert codes(first, end(1), taken) == [(601, 0, 2, 1)]


def test_finish_and_reuse_in_one_record_is_legal():
    first = begin(1, admit(1, [3]), [])
    reused = begin(2, [event("finish", 1), *admit(2, [3])], [])
    assert codes(first, end(1), reused) == []
    # the other order is not
    early = begin(2, [*admit(2, [3]), event("finish", 1)], [])
    assert codes(first, end(1), early) == [(601, 0, 2, 0)]


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        # 8 tokens are claimed valid: columns 0 and 1 lie whole before the frontier
        (8, []),
        # 7: column 1 ends at 8, behind the frontier, so block 4 is taken as new
        (7, [(601, 0, 2, 1)]),
        (4, [(601, 0, 2, 1)]),
        (0, [(601, 0, 2, 0), (601, 0, 2, 1)]),
    ],
)
def test_prefix_hits_end_at_the_frontier(first, expected):
    writer = begin(1, admit(1, [3, 4]), [])
    reader = begin(2, admit(2, [3, 4, 5], first=first), [])
    assert codes(writer, end(1), reader) == expected


def test_a_hit_may_come_before_its_writer_in_one_record():
    hit, write = admit(2, [3, 5], first=4), admit(1, [3])
    assert codes(begin(1, [*hit, *write], [])) == []
    assert codes(begin(1, [*write, *hit], [])) == []


def test_a_hit_of_an_earlier_step_owns_its_block():
    hit, write = admit(2, [3, 5], first=4), admit(1, [3])
    assert codes(begin(1, hit, []), end(1), begin(2, write, [])) == [(601, 0, 1, 0)]


@pytest.mark.parametrize(
    "given_back",
    [
        event("finish", 2),
        event("truncate", 2, 0, first=0),
        event("replace", 2, 0, blocks=[6, 7]),
        # the claim is made anew, as one hit, not two
        event("replace", 2, 0, blocks=[3, 7]),
    ],
)
def test_a_hit_that_was_given_back_excuses_nobody(given_back):
    # request 1 holds block 3; request 2 hits it and gives it back; request 4 gets it as new
    writer = begin(1, admit(1, [3]), [])
    taken = begin(2, [*admit(2, [3, 5], first=4), given_back, *admit(4, [3])], [])
    assert codes(writer, end(1), taken) == [(601, 0, 4, 0)]


def test_groups_of_one_pool_share_ids_and_pools_do_not():
    both = admit(1, [3], [3])
    assert codes(begin(1, both, []), groups=[group(), group(id=1)]) == [(601, 1, 1, 0)]
    apart = {"groups": [group(), group(id=1, pool=1)], "pools": [pool(), pool(id=1)]}
    assert codes(begin(1, both, []), **apart) == []


def test_a_replaced_row_gives_its_blocks_back_first():
    first = begin(1, admit(1, [3, 4]), [])
    again = begin(2, [event("replace", 1, 0, blocks=[4, 3])], [])
    assert codes(first, end(1), again) == []


def test_a_truncated_column_is_free():
    first = begin(1, admit(1, [3, 4]), [])
    cut = begin(2, [event("truncate", 1, 0, first=1), *admit(2, [4])], [])
    assert codes(first, end(1), cut) == []
    cut_less = begin(2, [event("truncate", 1, 0, first=2), *admit(2, [4])], [])
    assert codes(first, end(1), cut_less) == [(601, 0, 2, 0)]


def test_ownership_is_a_suspicion_with_a_connector():
    records = [begin(1, admit(1, [3]), []), end(1), begin(2, admit(2, [3]), [])]
    result = judge(*records, geometry_line=geometry(flags=CONNECTOR))
    assert (result.proofs(), result.suspicions()) == ([], {601: 1})


@pytest.mark.parametrize(
    ("tokens", "blocks", "expected"),
    [
        (8, [3, 4], []),
        # 9 tokens need a third column; the last one has position 8
        (9, [3, 4], [(204, 0, 1, 8)]),
        (1, [], [(204, 0, 1, 0)]),
        # a row may be longer than needed (lookahead)
        (1, [3, 4], []),
    ],
)
def test_capacity(tokens, blocks, expected):
    assert codes(begin(1, admit(1, blocks), [scheduled(1, tokens, 0)])) == expected


def test_capacity_ends_at_the_longest_request_there_may_be():
    # asynchronous, drafts open: the frontier is [5, 7] (5 tokens + 2 drafts), the scheduler counts
    # 7, 7 + 3 = 10 tokens, but no request is longer than 8; 5 + 3 = 8 fit two blocks
    fields = {"flags": ASYNC, "max_model_len": 8}
    first = begin(1, admit(1, [3, 4]), [scheduled(1, 7, 0, 2)])
    second = begin(2, [], [scheduled(1, 3, 7)])
    gaps = judge(first, end(1), second, geometry_line=geometry(**fields))
    assert found(gaps) == []
    # without that bound: 10 tokens need 3 columns
    fields = {"flags": ASYNC, "max_model_len": 0}
    assert codes(first, end(1), second, **fields) == [(204, 0, 1, 9)]


def two_rows(first, tokens, blocks):
    """Request 1 writes block 3 at 0..3; request 2 claims `first` tokens and writes `tokens`."""
    events = [*admit(1, [3]), *admit(2, blocks, first=first)]
    return begin(1, events, [scheduled(1, 4, 0), scheduled(2, tokens, first)])


def test_two_writers_of_one_block():
    # request 2 writes from 4 on: column 1, not the shared column 0
    assert codes(two_rows(4, 2, [3, 5])) == []
    # its row names block 3 again in column 1: a repeated block and a second writer at 1 * 4
    assert codes(two_rows(4, 2, [3, 3])) == [(203, 0, 2, 1), (603, 0, 2, 4)]


def test_two_writers_in_the_columns_of_a_schedule():
    events = [*admit(1, [3]), *admit(2, [4, 3])]
    rows = [scheduled(1, 2, 0), scheduled(2, 5, 0)]
    # 2 is bound to 1's fresh block, and positions 0..4 reach column 1
    assert codes(begin(1, events, rows)) == [(601, 0, 2, 1), (603, 0, 2, 4)]
    # positions 0..3 do not
    rows = [scheduled(1, 2, 0), scheduled(2, 4, 0)]
    assert codes(begin(1, events, rows)) == [(601, 0, 2, 1)]


def test_two_writers_with_a_connector_are_a_suspicion():
    events = [*admit(1, [3]), *admit(2, [4, 3])]
    rows = [scheduled(1, 2, 0), scheduled(2, 5, 0)]
    result = judge(begin(1, events, rows), geometry_line=geometry(flags=CONNECTOR))
    assert (result.proofs(), result.suspicions()) == ([], {601: 1, 603: 1})


@pytest.mark.parametrize("flags", [0, CONNECTOR])
def test_a_running_request_is_given_free_blocks(flags):
    """An APPEND to a request of an earlier record is a proof, connector or not."""

    def grades(*events, before=()):
        first = begin(1, [*admit(1, [3]), *before], [])
        result = judge(
            first, end(1), begin(2, list(events), []), geometry_line=geometry(flags=flags)
        )
        return [(f.code, f.grade) for f in result.findings]

    suspicion = (601, "suspicion" if flags else "proof")
    assert grades(append(2, 3), before=admit(2, [])) == [(601, "proof")]
    # of the same record, or the whole row
    assert grades(*admit(2, []), append(2, 3)) == [suspicion]
    row = event("replace", 2, 0, blocks=[3])
    assert grades(row, before=admit(2, [])) == [suspicion]


def stepped(second, flags=0, drafts=0):
    """Step 1 computes 6 tokens (of which `drafts` are drafts), step 2 schedules `second`."""
    first = begin(1, admit(1, [3, 4]), [scheduled(1, 6, 0, drafts)])
    return found(judge(first, end(1), begin(2, [], [second]), geometry_line=geometry(flags=flags)))


def test_counts():
    assert stepped(scheduled(1, 1, 6)) == []
    assert stepped(scheduled(1, 1, 7)) == [(902, None, 1, 7)]
    # a suspicion: taken back
    assert stepped(scheduled(1, 1, 5)) == [(904, None, 1, 5)]
    assert stepped(scheduled(1, 1, 5), flags=CONNECTOR) == []
    # drafts open: 4 or 5 or 6 tokens are valid, the scheduler may say any of them
    for computed in (4, 5, 6):
        assert stepped(scheduled(1, 1, computed), drafts=2) == []
    assert stepped(scheduled(1, 1, 3), drafts=2) == [(904, None, 1, 3)]
    assert stepped(scheduled(1, 1, 7), drafts=2) == [(902, None, 1, 7)]


def test_an_asynchronous_scheduler_counts_every_draft():
    # two steps of 1 + 2 tokens each in flight: it counts 12, at least 8 are valid
    first = begin(1, admit(1, [3, 4, 5, 6]), [scheduled(1, 6, 0, 2)])
    second = begin(2, [], [scheduled(1, 3, 6, 2)])
    third = begin(3, [], [scheduled(1, 1, 9)])
    ahead = begin(3, [], [scheduled(1, 1, 10)])
    assert codes(first, end(1), second, end(2), third, flags=ASYNC) == []
    assert codes(first, end(1), second, end(2), ahead, flags=ASYNC) == [(902, None, 1, 10)]


def test_a_rollback_takes_the_count_back():
    first = begin(1, admit(1, [3, 4]), [scheduled(1, 6, 0)])
    back = begin(2, [event("rollback", 1, count=2)], [scheduled(1, 1, 4)])
    assert codes(first, end(1), back) == []
    not_back = begin(2, [event("rollback", 1, count=2)], [scheduled(1, 1, 6)])
    assert codes(first, end(1), not_back) == [(902, None, 1, 6)]


def test_more_rejected_than_drafted():
    first = begin(1, admit(1, [3, 4]), [scheduled(1, 6, 0, 2)])
    assert codes(first, outcome(1, (1, 2)), end(1)) == []
    assert codes(first, outcome(1, (1, 3)), end(1)) == [(905, None, 1, -1)]
    # after the step: the same
    assert codes(first, end(1), outcome(1, (1, 2)), flags=ASYNC) == []
    assert codes(first, end(1), outcome(1, (1, 3)), flags=ASYNC) == [(905, None, 1, -1)]
    # an outcome of a request that has gone is nobody's
    assert codes(first, end(1), begin(2, [event("finish", 1)], []), outcome(1, (1, 3))) == []


def test_an_outcome_is_told_once():
    first = begin(1, admit(1, [3, 4]), [scheduled(1, 6, 0, 2)])
    records = [first, end(1), outcome(1, (1, 1)), outcome(1, (1, 1))]
    assert codes(*records, flags=ASYNC) == [(905, None, 1, -1)]
    # nothing rejected changes nothing
    assert codes(*records[:3], outcome(1, (1, 0)), flags=ASYNC) == []


def test_a_forgotten_outcome_may_still_be_told():
    first = begin(1, admit(1, [3, 4]), [scheduled(1, 6, 0, 2)])
    # synchronous: the count of step 2 says what was accepted
    told = begin(2, [], [scheduled(1, 1, 5)])
    assert codes(first, end(1), told, outcome(1, (1, 1)), end(2)) == []


def forgotten(*told, drafts=2, steps=1):
    """Each of `steps` steps had drafts; the count of the next says what became of them."""
    records = []
    for step in range(1, steps + 1):
        row = scheduled(1, drafts + 1, step - 1, drafts)
        records += [
            begin(step, admit(1, [1, 2, 3, 4, 5, 6]) if step == 1 else [], [row]),
            end(step),
        ]
    last = steps + 1
    records += [begin(last, [], [scheduled(1, 1, steps)]), end(last)]
    records += [outcome(step, (1, rejected)) for step, rejected in told]
    return codes(*records, groups=[group(max_columns=6)], max_model_len=24)


def test_a_forgotten_outcome_is_told_once():
    assert forgotten((1, 1)) == []
    assert forgotten((1, 1), (1, 1)) == [(905, None, 1, -1)]
    assert forgotten((1, 1), (1, 0)) == []
    # it knows how many drafts there were
    assert forgotten((1, 2)) == []
    assert forgotten((1, 3)) == [(905, None, 1, -1)]
    # of another step nothing was open
    assert forgotten((2, 1)) == [(905, None, 1, -1)]


def test_the_16_latest_forgotten_outcomes_are_remembered():
    # 20 steps: 5 to 20 are remembered, each told once; of 1 to 4 nothing is said
    latest = [(step, 1) for step in range(5, 21)]
    assert forgotten(*latest, steps=20) == []
    assert forgotten(*latest, (5, 1), steps=20) == [(905, None, 1, -1)]
    assert forgotten((4, 1), (4, 1), steps=20) == []
    assert forgotten((4, 3), steps=20) == []
    assert forgotten((5, 3), steps=20) == [(905, None, 1, -1)]


def test_an_abandoned_step_counts_as_forgotten():
    first = [begin(1, admit(1, [3, 4]), [scheduled(1, 6, 0, 2)]), end(1, flags=2)]
    # of 6 tokens, not of 2 drafts
    assert codes(*first, outcome(1, (1, 6)), flags=ASYNC) == []
    assert codes(*first, outcome(1, (1, 7)), flags=ASYNC) == [(905, None, 1, -1)]
    # no effect: the frontier is [0, 6] before and after
    told = [*first, outcome(1, (1, 2))]
    assert codes(*told, begin(2, [], [scheduled(1, 1, 6)])) == []
    assert codes(*told, begin(2, [], [scheduled(1, 1, 7)])) == [(902, None, 1, 7)]


def test_tokens_behind_an_outcome_inside_the_step():
    # 6 tokens, 2 of them drafts, 1 rejected: 5 are valid
    first = [begin(1, admit(1, [3, 4]), [scheduled(1, 6, 0, 2)]), outcome(1, (1, 1)), end(1)]
    assert codes(*first, begin(2, [], [scheduled(1, 1, 5)])) == []
    assert codes(*first, begin(2, [], [scheduled(1, 1, 6)])) == [(902, None, 1, 6)]
    assert codes(*first, begin(2, [], [scheduled(1, 1, 4)])) == [(904, None, 1, 4)]


def test_a_count_that_is_ahead_is_not_believed():
    # asynchronous, the frontier is [4, 6]: the count of 9 is wrong, the step starts at 4, so that
    # 5 tokens are valid afterwards
    first = begin(1, admit(1, [3, 4, 5]), [scheduled(1, 6, 0, 2)])
    ahead = begin(2, [], [scheduled(1, 1, 9)])
    back = begin(3, [], [scheduled(1, 1, 4)])
    assert codes(first, end(1), ahead, end(2), back, flags=ASYNC) == [
        (902, None, 1, 9), (904, None, 1, 4),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "bad",
    [
        scheduled(0, 1, 0),
        scheduled(1, 0, 0),
        scheduled(1, 1, -1),
        scheduled(1, 1, 0, 2),
        scheduled(1, 1, 2**40 + 1),
    ],
)
def test_malformed_schedules(bad):
    # nothing of the record is applied, and nothing is judged afterwards
    result = judge(begin(1, admit(1, [12]), [bad]), end(1), begin(2, admit(2, [12]), []))
    assert (found(result), len(result.gap_steps())) == ([], 2)


@pytest.mark.parametrize(
    "bad",
    [
        event("finish", 0),
        event("finish", 1, 7),
        event("append", 1, 7, blocks=[3]),
        event("append", 1, None, blocks=[3]),
        event("truncate", 1, 0, first=-1),
        event("rollback", 1, count=-1),
        event("gap"),
        event("admit", 1),
        event("admit", 2, first=-1),
        event("admit", 2, first=2**40 + 1),
    ],
)
def test_malformed_events(bad):
    result = judge(begin(1, [*admit(1, [12]), bad], []), end(1), begin(2, admit(2, [12]), []))
    assert (found(result), len(result.gap_steps())) == ([], 2)


def test_a_step_without_a_forward_moves_nothing():
    first = [begin(1, admit(1, [3, 4]), [scheduled(1, 6, 0)]), end(1, flags=1)]
    assert codes(*first, begin(2, [], [scheduled(1, 1, 0)])) == []
    assert codes(*first, begin(2, [], [scheduled(1, 1, 6)])) == [(902, None, 1, 6)]


def test_an_abandoned_step_may_have_moved():
    first = [begin(1, admit(1, [3, 4]), [scheduled(1, 6, 0)]), end(1, flags=2)]
    for computed in (0, 3, 6):
        assert codes(*first, begin(2, [], [scheduled(1, 1, computed)])) == []
    assert codes(*first, begin(2, [], [scheduled(1, 1, 7)])) == [(902, None, 1, 7)]
