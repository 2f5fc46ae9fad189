# SPDX-License-Identifier: Apache-2.0
"""Groups that forget: expiry, binding, tables and stale reads, each beside its legal neighbour.

Blocks hold 4 tokens. A window of 8 at c needs positions from c - 7 on: column 0 (0..3) is needed
up to c = 10 and not at 11, column 1 (4..7) up to 14 and not at 15. A chunk of 8 needs 0 at c = 7
and 8 at c = 8, so that columns 0 and 1 go together. Numbers by hand from docs/judging.md, Windows.
"""

import pytest
from scenario import (
    ASYNC,
    admit,
    append,
    array,
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
    scheduled,
    transfer,
)

FULL = {}
WINDOW = {"kind": "window", "window": 8}
CHUNKED = {"kind": "chunked", "window": 8}


def codes(*records, kind=WINDOW, flags=0):
    return found(judge(*records, geometry_line=geometry([group(**kind)], flags=flags)))


def ran(tokens, drafts=0, blocks=(3, 5, 2, 6)):
    """Request 1 has run `tokens` tokens in step 1."""
    return [begin(1, admit(1, list(blocks)), [scheduled(1, tokens, 0, drafts)]), end(1)]


def take(block, step=2, *events):
    """Request 2 gets a block as new."""
    return begin(step, [*events, *admit(2, [block])], [])


def back(tokens):
    return event("rollback", 1, count=tokens)


# Expiry


@pytest.mark.parametrize(
    ("kind", "block", "tokens", "owned"),
    [
        (WINDOW, 3, 10, True),
        (WINDOW, 3, 11, False),
        (WINDOW, 5, 14, True),
        (WINDOW, 5, 15, False),
        # kept two tokens longer
        ({**WINDOW, "retained": 2}, 3, 12, True),
        ({**WINDOW, "retained": 2}, 3, 13, False),
        # the sink is whole columns: 1 and 4 tokens are column 0, 5 tokens are two
        ({**WINDOW, "sink": 1}, 3, 16, True),
        ({**WINDOW, "sink": 4}, 3, 16, True),
        ({**WINDOW, "sink": 4}, 5, 15, False),
        ({**WINDOW, "sink": 5}, 5, 15, True),
        (CHUNKED, 3, 7, True),
        (CHUNKED, 3, 8, False),
        (CHUNKED, 5, 7, True),
        (CHUNKED, 5, 8, False),
        (CHUNKED, 2, 15, True),
        (FULL, 3, 16, True),
    ],
)
def test_claims_end_with_the_frontier(kind, block, tokens, owned):
    expected = [(601, 0, 2, 0)] if owned else []
    assert codes(*ran(tokens), take(block), kind=kind) == expected


def test_a_frontier_that_did_not_move_ends_nothing():
    began = ran(11)[0]
    assert codes(began, end(1, flags=1), take(3)) == [(601, 0, 2, 0)]
    # abandoned: the frontier is [0, 11], and at 11 column 0 is not needed: line 5
    assert codes(began, end(1, flags=2), take(3)) == []
    began = ran(10)[0]
    assert codes(began, end(1, flags=2), take(3)) == [(601, 0, 2, 0)]


def test_an_ended_claim_does_not_come_back():
    assert codes(*ran(11), take(3, 2, back(1))) == []
    assert codes(*ran(11), take(3, 2, back(11))) == []
    assert codes(*ran(10), take(3, 2, back(1))) == [(601, 0, 2, 0)]


def test_an_outcome_ends_claims():
    # [10, 11]; one draft accepted: 11 was reached, and going back to 10 does not undo that
    def told(rejected):
        records = [*ran(11, 1), outcome(1, (1, rejected)), take(3, 2, back(1))]
        return codes(*records, flags=ASYNC)

    assert told(0) == []
    assert told(1) == [(601, 0, 2, 0)]


def test_the_count_of_a_schedule_ends_claims():
    # [10, 12] after 2 drafts; step 2 says what was accepted and runs nothing
    def counted(tokens):
        second = [begin(2, [], [scheduled(1, 1, tokens)]), end(2, flags=1)]
        return codes(*ran(12, 2), *second, take(3, 3, back(1)))

    assert counted(11) == []
    assert counted(10) == [(601, 0, 2, 0)]


# Binding


@pytest.mark.parametrize(
    ("blocks", "first", "expected"),
    [
        # at 11 column 0 is not needed: the null block may stand there, at 10 not
        ([0, 5, 2], 11, []),
        ([0, 5, 2], 10, [(202, 0, 1, 0)]),
        ([0, 0, 2], 15, []),
        ([0, 0, 2], 14, [(202, 0, 1, 1)]),
        # an id that is out of the pool is wrong wherever it stands
        ([10, 5, 2], 11, [(201, 0, 1, 0)]),
        ([-1, 5, 2], 11, [(201, 0, 1, 0)]),
        # what is not needed is not repeated
        ([2, 5, 2], 11, []),
        ([2, 5, 2], 10, [(203, 0, 1, 2)]),
        ([5, 5, 2], 11, []),
        ([5, 5, 2], 10, [(203, 0, 1, 1)]),
    ],
)
def test_columns_that_are_not_needed_are_not_judged(blocks, first, expected):
    assert codes(begin(1, admit(1, blocks, first=first), [])) == expected


def test_a_sink_is_always_needed():
    kind = {**WINDOW, "sink": 4}
    assert codes(begin(1, admit(1, [0, 5, 2], first=11), []), kind=kind) == [(202, 0, 1, 0)]
    assert codes(begin(1, admit(1, [3, 0, 2], first=15), []), kind=kind) == []


def test_columns_that_are_not_needed_claim_nothing():
    # request 1 names block 3 as what it has passed; block 3 is then given away as new
    def passed(first):
        return codes(begin(1, admit(1, [3, 5, 2], first=first), []), end(1), take(3))

    assert passed(11) == []
    assert passed(10) == [(601, 0, 2, 0)]


def test_a_hit_is_a_column_that_is_needed_and_whole_before_the_frontier():
    # request 1 is in blocks 3, 5, 2; request 4 hits 5 and 2 at 12 and has 3 as passed
    hit = begin(2, admit(4, [3, 5, 2], first=12), [])
    assert codes(*ran(12), hit, end(2), take(5, 3)) == [(601, 0, 2, 0)]
    assert codes(*ran(12), hit, end(2), take(3, 3)) == []
    # at 11 column 2 is not whole: block 2 would be new
    assert codes(*ran(12), begin(2, admit(4, [3, 5, 2], first=11), [])) == [(601, 0, 4, 2)]


def test_line_5_ends_claims_that_the_drafts_may_have_passed():
    # [10, 11]: the engine may know already that column 0 is passed; [9, 10]: it cannot be
    assert codes(*ran(11, 1), take(3), flags=ASYNC) == []
    assert codes(*ran(10, 1), take(3), flags=ASYNC) == [(601, 0, 2, 0)]
    # one claim ended, another one left: request 4 holds block 3 as a hit
    hit = begin(2, admit(4, [3], first=4), [])
    taken = take(3, 3)
    assert codes(*ran(11, 1), hit, end(2), taken, flags=ASYNC) == [(601, 0, 2, 0)]


def test_line_5_looks_at_the_columns_of_windows_from_any_group_of_the_pool():
    kinds = [group(**WINDOW), group(id=1)]

    def taken(tokens, drafts):
        first = begin(1, admit(1, [3, 5, 2], [6, 7, 8]), [scheduled(1, tokens, 0, drafts)])
        second = begin(2, admit(2, [], [3]), [])
        return found(judge(first, end(1), second, geometry_line=geometry(kinds, flags=ASYNC)))

    assert taken(11, 1) == []
    assert taken(10, 1) == [(601, 1, 2, 0)]


def test_line_3_looks_at_what_is_needed_at_high():
    blocks = (3, 5, 2)
    again = begin(2, [append(1, 3)], [])
    assert codes(*ran(10, 0, blocks), again, flags=ASYNC) == [(203, 0, 1, 3)]
    assert codes(*ran(11, 1, blocks), again, flags=ASYNC) == []
    assert codes(*ran(11, 0, blocks), again, flags=ASYNC) == []


def test_capacity_counts_all_columns():
    def needs(blocks):
        return codes(begin(1, admit(1, blocks, first=12), [scheduled(1, 1, 12)]))

    assert needs([0, 5, 2, 6]) == []
    assert needs([0, 5, 2]) == [(204, 0, 1, 12)]


def test_a_column_without_a_claim_is_not_written():
    # request 1 is at [8, 16], chunks of 8; its column 2 (8..11) is needed at 8, not at 16, and so
    # request 2 may have got block 2: it writes it, and request 1, if it stands at 16, does not
    def written(flags):
        first = begin(1, admit(1, [3, 5, 2, 6, 1]), [scheduled(1, 8, 0)])
        second = [begin(2, [], [scheduled(1, 8, 8)]), end(2, flags=flags)]
        rows = [scheduled(1, 1, 16 if flags == 2 else 8), scheduled(2, 1, 0)]
        third = begin(3, admit(2, [2]), rows)
        line = geometry([group(**CHUNKED, max_columns=0)], flags=ASYNC, max_model_len=0)
        return found(judge(first, end(1), *second, third, geometry_line=line))

    assert written(2) == []
    # nothing ran in step 2: block 2 is request 1's, which writes it from 8 on
    assert written(1) == [(601, 0, 2, 0), (603, 0, 2, 0)]


# Table


def next_token(start, table, blocks=(3, 5, 2), kind=WINDOW, **fields):
    """Request 1 ran `start` tokens, then one at `start` in column 2: block 2, slots 8..11."""
    part = group_plan([table], [8 + start % 4], **fields)
    line = plan(2, [1], [0, 1], [start + 1], part)
    second = begin(2, [], [scheduled(1, 1, start)])
    return codes(*ran(start, 0, blocks), second, line, end(2), kind=kind)


def test_only_needed_columns_are_compared():
    assert next_token(11, [3, 5, 2]) == []
    assert next_token(11, [9, 5, 2]) == []
    assert next_token(11, [0, 5, 2]) == []
    assert next_token(11, [99, 5, 2]) == []
    assert next_token(11, [9, 9, 2]) == [(301, 0, 1, 1)]
    assert next_token(10, [9, 5, 2]) == [(301, 0, 1, 0)]
    assert next_token(10, [0, 5, 2]) == [(302, 0, 1, 0)]
    assert next_token(8, [9, 9, 2], kind=CHUNKED) == []
    assert next_token(8, [9, 9, 9], kind=CHUNKED) == [(301, 0, 1, 2)]
    sink = {**WINDOW, "sink": 2}
    assert next_token(11, [9, 5, 2], kind=sink) == [(301, 0, 1, 0)]
    # the columns are counted all the same
    assert next_token(11, [9, 5, 2], row_columns=[2]) == [(304, 0, 1, 2)]


def test_needed_columns_in_kernel_blocks():
    # entries 0 and 1 are column 0
    kind = {**WINDOW, "table_unit": "kernel_block", "kernel_block_size": 2}
    assert next_token(11, [9, 9, 10, 11, 4, 5], kind=kind, columns=8) == []
    assert next_token(11, [9, 9, 9, 11, 4, 5], kind=kind, columns=8) == [(301, 0, 1, 2)]
    assert next_token(10, [6, 9, 10, 11, 4, 5], kind=kind, columns=8) == [(301, 0, 1, 1)]


def test_an_open_start_is_compared_from_its_high_end():
    # [10, 11]: the row stands at 10, which needs column 0, but it could stand at 11
    def compared(counted):
        part = group_plan([[9, 5, 2]], [10])
        line = plan(2, [1], [0, 1], [11], part, positions=[10])
        second = begin(2, [], [scheduled(1, 1, counted)])
        return codes(*ran(11, 1, (3, 5, 2)), second, line, end(2), flags=ASYNC)

    assert compared(11) == []
    assert compared(10) == [(301, 0, 1, 0)]


# Slots


def test_foreign_writes_look_at_claims():
    # request 2 is due in block 7 (slot 28) and writes slot 12 of block 3, which was request 1's
    def wrong(tokens):
        second = begin(2, admit(2, [7]), [scheduled(2, 1, 0)])
        line = plan(2, [2], [0, 1], [1], group_plan([[7]], [12]))
        return codes(*ran(tokens), second, line, end(2))

    assert wrong(10) == [(401, 0, 2, 0), (602, 0, 2, 0)]
    assert wrong(11) == [(401, 0, 2, 0)]


# read-stale


def gone_back(tokens, block, by, kind=WINDOW, first=0):
    """Request 1 ran to `tokens`; `block` went to request 2 as new; request 1 goes back by `by`."""
    start = tokens - by
    taken = begin(2, admit(2, [block, 8], first=first), [])
    again = begin(3, [back(by)], [scheduled(1, 1, start)])
    row = [3, 5, 2, 6]
    slot = row[start // 4] * 4 + start % 4
    line = plan(3, [1], [0, 1], [start + 1], group_plan([row], [slot]))
    return codes(*ran(tokens), taken, end(2), again, line, end(3), kind=kind)


@pytest.mark.parametrize(
    ("kind", "tokens", "block", "by", "expected"),
    [
        # at 11 column 0 is not read; at 10 position 3 is
        (WINDOW, 11, 3, 0, []),
        (WINDOW, 11, 3, 1, [(701, 0, 1, 3)]),
        (WINDOW, 11, 3, 3, [(701, 0, 1, 1)]),
        (WINDOW, 11, 3, 5, [(701, 0, 1, 0)]),
        # column 1 at 14: position 7
        (WINDOW, 15, 5, 1, [(701, 0, 1, 7)]),
        (WINDOW, 15, 5, 5, [(701, 0, 1, 4)]),
        # a chunk from 0 on, column 1 starts at 4; at 4 it is not read yet
        (CHUNKED, 8, 3, 0, []),
        (CHUNKED, 8, 3, 1, [(701, 0, 1, 0)]),
        (CHUNKED, 8, 5, 1, [(701, 0, 1, 4)]),
        (CHUNKED, 8, 5, 4, []),
    ],
)
def test_reads_of_what_somebody_else_got(kind, tokens, block, by, expected):
    assert gone_back(tokens, block, by, kind=kind) == expected


def test_a_hit_makes_nothing_stale():
    # request 2 took block 3 as a hit, not as new
    assert gone_back(11, 3, 1, first=4) == []


def test_a_hit_before_its_writer_is_not_stale():
    # both orders in one record; read in the same step and in the next
    hit, write = admit(2, [3, 5], first=4), admit(1, [3])

    def ordered(events):
        both = [scheduled(1, 4, 0), scheduled(2, 1, 4)]
        first = plan(1, [1, 2], [0, 4, 5], [4, 5], group_plan([[3], [3, 5]], [12, 13, 14, 15, 20]))
        second = plan(2, [2], [0, 1], [6], group_plan([[3, 5]], [21]))
        later = begin(2, [], [scheduled(2, 1, 5)])
        return codes(begin(1, events, both), first, end(1), later, second, end(2))

    assert ordered([*hit, *write]) == []
    assert ordered([*write, *hit]) == []


def test_the_null_block_is_stale():
    def at(start, kind=WINDOW):
        # admitted at 12 with column 0 passed, back to `start`
        first = [begin(1, admit(1, [0, 5, 2], first=12), []), end(1)]
        again = begin(2, [back(12 - start)], [scheduled(1, 1, start)])
        line = plan(2, [1], [0, 1], [start + 1], group_plan([[0, 5, 2]], [8 + start % 4]))
        return codes(*first, again, line, end(2), kind=kind)

    assert at(11) == []
    assert at(10) == [(701, 0, 1, 3)]


def test_a_stale_sink():
    # block 3 is taken although the sink holds it
    def taken(kind, start):
        second = begin(2, admit(2, [3]), [scheduled(1, 1, start)])
        line = plan(2, [1], [0, 1], [start + 1], group_plan([[3, 5, 2, 6]], [8 + start % 4]))
        return codes(*ran(start), second, line, end(2), kind=kind)

    assert taken({**WINDOW, "sink": 4}, 11) == [(601, 0, 2, 0), (701, 0, 1, 0)]
    assert taken({**WINDOW, "sink": 4}, 10) == [(601, 0, 2, 0), (701, 0, 1, 0)]
    assert taken(WINDOW, 11) == []
    assert taken(WINDOW, 10) == [(601, 0, 2, 0), (701, 0, 1, 3)]
    # full attention is judged by who owns the block
    assert taken(FULL, 10) == [(601, 0, 2, 0)]


def test_the_first_stale_column_is_named_once():
    # columns 0 and 1 both went; at 10 both are read, at 14 only column 1
    def both(start):
        taken = begin(2, admit(2, [5, 3]), [])
        again = begin(3, [back(15 - start)], [scheduled(1, 1, start)])
        row = [3, 5, 2, 6]
        line = plan(3, [1], [0, 1], [start + 1],
                    group_plan([row], [row[start // 4] * 4 + start % 4]))  # fmt: skip
        return codes(*ran(15), taken, end(2), again, line, end(3))

    assert both(10) == [(701, 0, 1, 3)]
    assert both(14) == [(701, 0, 1, 7)]
    assert both(15) == []


def test_a_read_needs_tokens():
    taken = begin(2, admit(2, [3]), [])
    again = begin(3, [back(1)], [scheduled(1, 1, 10)])
    line = plan(3, [1], [0, 1], [11], group_plan([[3, 5, 2, 6]], [10]))
    stream = [*ran(11), taken, end(2), again]
    assert codes(*stream, line, end(3)) == [(701, 0, 1, 3)]
    line["query_start"] = array([1, 1])
    assert codes(*stream, line, end(3)) == [(105, None, 0, -1)]


def test_a_column_bound_and_given_away_in_one_step_is_stale():
    # a window of 1, request 1 at [5, 8]: column 1 (4..7) is needed at 5 and not at 8; it gets block
    # 3 there as new, and so does request 2. The row stands at 5 and reads 4..5 of it
    kind = {"kind": "window", "window": 1}
    first = [begin(1, admit(1, [1, 2, 6]), [scheduled(1, 5, 0)]), end(1)]
    second = [begin(2, [], [scheduled(1, 3, 5)]), end(2, flags=2)]
    moved = [event("truncate", 1, 0, first=1), append(1, 3, 6)]

    def read(*events):
        third = begin(3, list(events), [scheduled(1, 1, 8)])
        line = plan(3, [1], [0, 1], [6], group_plan([[1, 3, 6]], [13]), positions=[5])
        return codes(*first, *second, third, line, end(3), kind=kind, flags=ASYNC)

    assert read(*moved, *admit(2, [3])) == [(701, 0, 1, 5)]
    assert read(*moved) == []


def test_a_given_away_column_is_stale_in_the_step_of_the_gift():
    # [10, 11]: request 2 gets the block of column 0, which may have been passed
    first = [begin(1, admit(1, [3, 5, 2]), [scheduled(1, 11, 0, 1)]), end(1)]
    hit = event("replace", 1, 0, blocks=[3, 5, 2])

    def read(*events):
        second = begin(2, list(events), [scheduled(1, 1, 11)])
        line = plan(2, [1], [0, 1], [11], group_plan([[3, 5, 2]], [10]), positions=[10])
        return codes(*first, second, line, end(2), flags=ASYNC)

    # request 2 got block 3 as new: if the draft was rejected, position 3 is not there
    assert read(*admit(2, [3])) == [(701, 0, 1, 3)]
    # as a hit of the same step, column 0 has what request 2 writes there
    assert read(hit, *admit(2, [3])) == []
    assert read(hit) == []


def test_a_plan_that_was_right_excuses_no_later_one():
    # request 1 comes at 12 with column 0 passed, goes back to 9 and reads 2 and 3 of it: right.
    # Then request 2 gets block 3 as new: position 3 of the next read is gone
    def read(step, start, events):
        line = plan(step, [1], [0, 1], [start + 1], group_plan([[3, 5, 2, 6]], [start]))
        return [begin(step, events, [scheduled(1, 1, start)]), line, end(step)]

    first = [begin(1, admit(1, [3, 5, 2, 6], first=12), []), end(1)]
    assert codes(*first, *read(2, 9, [back(3)]), *read(3, 10, [])) == []
    assert codes(*first, *read(2, 9, [back(3)]), *read(3, 10, admit(2, [3]))) == [(701, 0, 1, 3)]


def test_a_column_that_was_bound_again_is_not_stale():
    # block 3 came back to request 1 after request 2 had it
    taken, gone = begin(2, admit(2, [3]), []), event("finish", 2)
    again = begin(
        3,
        [gone, back(1), event("replace", 1, 0, blocks=[3, 5, 2, 6])],
        [scheduled(1, 1, 10)],
    )
    line = plan(3, [1], [0, 1], [11], group_plan([[3, 5, 2, 6]], [10]))
    assert codes(*ran(11), taken, end(2), again, line, end(3)) == []


def test_a_window_and_full_attention_over_one_pool():
    # group 1 is full attention: its column 0 stays claimed
    kinds = [group(**WINDOW), group(id=1)]
    first = [begin(1, admit(1, [3, 5, 2], [6, 7, 8]), [scheduled(1, 11, 0)]), end(1)]

    def taken(block):
        return found(judge(*first, begin(2, admit(2, [block]), []), geometry_line=geometry(kinds)))

    assert taken(3) == []
    assert taken(6) == [(601, 0, 2, 0)]


def test_windows_in_a_pool_without_a_null_block():
    kinds = {"groups": [group(**WINDOW)], "pools": [pool(null_block=-1)]}
    first = begin(1, admit(1, [0, 5, 2], first=10), [])
    assert found(judge(first, geometry_line=geometry(**kinds))) == []


# Transfers: the null block stands for a column that is not kept


@pytest.mark.parametrize(
    ("kind", "blocks", "low", "loaded", "late"),
    [
        # the column is bound, and passed at 11; at 10 it is needed
        (WINDOW, [0, 5, 2], 11, None, None),
        (WINDOW, [0, 5, 2], 10, 0, 0),
        (WINDOW, [0, 0, 2], 15, None, None),
        (WINDOW, [0, 0, 2], 14, 4, 4),
        ({**WINDOW, "retained": 2}, [0, 5, 2], 12, 0, 0),
        ({**WINDOW, "retained": 2}, [0, 5, 2], 13, None, None),
        # the sink is kept for ever
        ({**WINDOW, "sink": 1}, [0, 5, 2], 11, 0, 0),
        (CHUNKED, [0, 0, 2], 8, None, None),
        (CHUNKED, [0, 5, 2], 7, 0, 0),
        # not yet computed: late it is not judged
        (CHUNKED, [3, 0, 2], 7, 4, None),
        (CHUNKED, [0, 0, 0], 12, 8, 8),
        # only the null block does: another id is judged, late only where it is claimed
        (WINDOW, [6, 5, 2], 11, 0, None),
        # behind the row, 12..15: passed at 23
        (WINDOW, [3, 5, 2, 0], 23, None, None),
        (WINDOW, [3, 5, 2, 0], 22, 12, None),
        (FULL, [0, 5, 2], 12, 0, 0),
    ],
)
def test_transfers_of_columns_that_are_not_kept(kind, blocks, low, loaded, late):
    admission = admit(1, [3, 5, 2], first=low, count=32)
    load = transfer("load", 7, *blocks, request=1)

    def told(*events):
        line = geometry([group(**{"max_columns": 8, **kind})], max_model_len=32)
        return found(judge(begin(1, list(events), []), geometry_line=line))

    def at(position):
        return [] if position is None else [(1105, 0, 1, position)]

    assert told(*admission, load) == at(loaded)
    assert told(load, *admission) == at(late)
    # a SEND_PENDING is asked for its blocks alone, wherever the frontier is
    send = transfer("send-pending", 8, *blocks, request=1)
    misplaced = 6 in blocks or (kind == FULL and 0 in blocks)
    assert told(*admission, send) == at(-1 if misplaced else None)
