# SPDX-License-Identifier: Apache-2.0
"""Groups that are sharded over ranks, each finding beside its nearest legal neighbour.

Blocks hold 4 tokens on a rank, the pool has blocks 0..9, block 0 is null (scenario.py); two ranks,
interleave 1: a column stands for 8 positions, of which rank 0 keeps the even ones. Numbers by hand
from docs/judging.md, Context parallel.
"""

import pytest
from hit_streams import draw_hits
from kvguard_oracle import UnreadableError, judge_lines
from scenario import (
    admit,
    begin,
    end,
    event,
    found,
    geometry,
    group,
    group_plan,
    judge,
    plan,
    scheduled,
    transfer,
)

REPLICATED = 1
WINDOW = {"kind": "window", "window": 8}
BOTH = [group(), group(id=1, flags=REPLICATED)]


def shards(groups=None, pools=None, **fields):
    """Rank 0 of two."""
    return geometry(
        groups, pools, **{"dcp_size": 2, "interleave": 1, "max_model_len": 64, **fields}
    )


def codes(*records, **fields):
    return found(judge(*records, geometry_line=shards(**fields)))


def told(*events, **fields):
    """The events of one BEGIN."""
    return codes(begin(1, list(events), []), **fields)


def ran(tokens, blocks=(3, 5, 2, 6), key=1, step=1):
    """A request has run so many tokens."""
    return [begin(step, admit(key, list(blocks)), [scheduled(key, tokens, 0)]), end(step)]


def planned(*parts, start=6, tokens=4, rows=([3, 5],), before=(), **fields):
    """Request 1 comes with `start` tokens and runs some more."""
    rows = [list(row) for row in rows]
    first = begin(1, [*before, *admit(1, *rows, first=start)], [scheduled(1, tokens, start)])
    line = plan(1, [1], [0, tokens], [start + tokens], *parts)
    return codes(first, line, end(1), **fields)


# Slots


WORKED = [
    # ranks, interleave, rank, slots of positions 30..34 in the table [7, 3] of blocks of 16
    (2, 1, 0, [127, -1, 48, -1, 49]),
    (2, 1, 1, [-1, 127, -1, 48, -1]),
    # stretches of 4: 28..31 are of rank 1 (its tokens 12..15), 32..35 of rank 0
    (2, 4, 0, [-1, -1, 48, 49, 50]),
    (2, 4, 1, [126, 127, -1, -1, -1]),
    # a column stands for 48: 24..27 are of rank 0, 28..31 of rank 1 (its tokens 8..11), 32..35 of 2
    (3, 4, 0, [-1, -1, -1, -1, -1]),
    (3, 4, 1, [122, 123, -1, -1, -1]),
    (3, 4, 2, [-1, -1, 120, 121, 122]),
    # a column stands for 64: 16..31 are of rank 1, 32..47 of rank 2
    (4, 16, 1, [126, 127, -1, -1, -1]),
    (4, 16, 2, [-1, -1, 112, 113, 114]),
    (4, 16, 3, [-1, -1, -1, -1, -1]),
]


@pytest.mark.parametrize(("ranks", "interleave", "rank", "slots"), WORKED)
def test_addresses(ranks, interleave, rank, slots):
    wide = {"groups": [group(block_size=16, kernel_block_size=16)]}
    where = {"dcp_size": ranks, "dcp_rank": rank, "interleave": interleave, **wide}

    def written(told_slots):
        part = group_plan([[7, 3]], told_slots)
        return planned(part, start=30, tokens=5, rows=[[7, 3]], max_model_len=0, **where)

    assert written(slots) == []
    for index, slot in enumerate(slots):
        # block 9 is nobody's; 150 is a slot that no other token has
        wrong = [*slots[:index], 150, *slots[index + 1 :]]
        code = 407 if slot == -1 else 401
        assert written(wrong) == [(code, 0, 1, 30 + index)]


@pytest.mark.parametrize(
    ("slots", "expected"),
    [
        ([15, -1, 20, -1], []),
        # a token of the other rank is written: its own block, another's, the null block
        ([15, 14, 20, -1], [(407, 0, 1, 7)]),
        ([15, 36, 20, -1], [(407, 0, 1, 7)]),
        ([15, 2, 20, -1], [(407, 0, 1, 7)]),
        ([15, 39, 20, 38], [(407, 0, 1, 7)]),
        # out of the pool
        ([15, 40, 20, -1], [(404, 0, 1, 7)]),
        ([15, -2, 20, 39], [(404, 0, 1, 7), (407, 0, 1, 9)]),
        # both on one slot
        ([15, 15, 20, -1], [(405, 0, 1, 7), (407, 0, 1, 7)]),
        # an own token: as ever
        ([-1, -1, 20, -1], [(403, 0, 1, 6)]),
        ([15, -1, -1, -1], [(403, 0, 1, 8)]),
        ([40, -1, 20, -1], [(404, 0, 1, 6)]),
        ([2, -1, 20, -1], [(402, 0, 1, 6)]),
        ([14, -1, 20, -1], [(401, 0, 1, 6)]),
        # what rank 1 does
        ([-1, 15, -1, 20], [(403, 0, 1, 6), (407, 0, 1, 7)]),
        # as if nothing were sharded, in columns of 8
        ([18, 19, 20, 21], [(401, 0, 1, 6), (407, 0, 1, 7)]),
    ],
)
def test_slots(slots, expected):
    assert planned(group_plan([[3, 5]], slots)) == expected


def test_the_other_rank():
    for slots, expected in (
        ([-1, 15, -1, 20], []),
        ([15, -1, 20, -1], [(403, 0, 1, 7), (407, 0, 1, 6)]),
    ):
        assert planned(group_plan([[3, 5]], slots), dcp_rank=1) == expected


def test_a_pool_has_the_slots_of_this_rank():
    # 10 blocks of 4: slot 39 is the last one, of block 9
    part = group_plan([[9]], [39, -1])
    assert planned(part, start=6, tokens=2, rows=[[9]]) == []
    for own, expected in ((40, 404), (79, 404), (38, 401)):
        part = group_plan([[9]], [own, -1])
        assert planned(part, start=6, tokens=2, rows=[[9]]) == [(expected, 0, 1, 6)]


def test_another_rank_pads_whatever_is_bound():
    # a row that is too short: 8 has no column, nor has 9
    short = (204, 0, 1, 9)
    part = [group_plan([[3]], slots) for slots in ([15, -1, -1, -1], [-1, 15, -1, -1])]
    assert planned(part[0], rows=[[3]]) == [short, (403, 0, 1, 8)]
    assert planned(part[1], rows=[[3]], dcp_rank=1) == [short, (403, 0, 1, 9)]
    # a block that does not fit 31 bits: an own token is not judged, another rank's is
    large = 2**31
    beyond = (201, 0, 1, 1)
    for slots, expected in (
        ([15, -1, 7, -1], [beyond]),
        ([15, -1, 7, 9], [beyond, (407, 0, 1, 9)]),
    ):
        assert planned(group_plan([[3, -1]], slots), rows=[[3, large]]) == expected


def test_foreign_writes():
    other = admit(2, [9])
    for slots, expected in (
        ([36, -1, 20, -1], [(401, 0, 1, 6), (602, 0, 1, 6)]),
        ([15, 36, 20, -1], [(407, 0, 1, 7), (602, 0, 1, 7)]),
        # block 8 is nobody's
        ([15, 32, 20, -1], [(407, 0, 1, 7)]),
        # one run
        ([36, 37, 20, -1], [(401, 0, 1, 6), (407, 0, 1, 7), (602, 0, 1, 6)]),
        # the pad slot ends a run: it is out of the pool
        ([36, -1, 37, -1], [(401, 0, 1, 6), (602, 0, 1, 6), (602, 0, 1, 8)]),
    ):
        assert planned(group_plan([[3, 5]], slots), before=other) == expected


def test_dummies_and_padding():
    part = group_plan([[3, 5]], [15, -1, 20, -1, -1, 5])
    first = begin(1, admit(1, [3, 5], first=6), [scheduled(1, 4, 6)])
    line = plan(1, [1], [0, 4], [10], part, padded_tokens=6)
    assert codes(first, line) == [(406, 0, 0, 5)]


def test_a_replicated_group_beside_a_sharded_one():
    rows = [[3, 5], [6, 7, 8]]
    sharded = group_plan([[3, 5]], [15, -1, 20, -1])
    # 6, 7 in block 7, 8, 9 in block 8
    whole = group_plan([[6, 7, 8]], [30, 31, 32, 33], group=1)
    assert planned(sharded, whole, rows=rows, groups=BOTH) == []
    assert planned(sharded, whole, rows=[[3, 5], [6, 7]], groups=BOTH)[0] == (204, 1, 1, 9)
    padded = group_plan([[6, 7, 8]], [30, -1, 32, -1], group=1)
    assert planned(sharded, padded, rows=rows, groups=BOTH) == [(403, 1, 1, 7)]
    unsharded = group_plan([[3, 5]], [15, 14, 20, -1])
    assert planned(unsharded, whole, rows=rows, groups=BOTH) == [(407, 0, 1, 7)]
    # on another rank the replicated one is the same
    other = group_plan([[3, 5]], [-1, 15, -1, 20])
    assert planned(other, whole, rows=rows, groups=BOTH, dcp_rank=1) == []


# Lengths


@pytest.mark.parametrize(
    ("ranks", "interleave", "lengths"),
    [
        (2, 1, [18, 17]),
        # 35 = 2 * 16 + 3
        (2, 8, [19, 16]),
        (4, 4, [11, 8, 8, 8]),
        # 35 = 2 * 12 + 11
        (3, 4, [12, 12, 11]),
        (4, 16, [16, 16, 3, 0]),
    ],
)
def test_lengths_of_its_own(ranks, interleave, lengths):
    wide = [group(block_size=16, kernel_block_size=16)]
    for rank, length in enumerate(lengths):

        def at(own, rank=rank):
            part = group_plan([[7, 3]], None, seq_lens=[own])
            where = {"dcp_size": ranks, "dcp_rank": rank, "interleave": interleave}
            return planned(
                part, start=30, tokens=5, rows=[[7, 3]], groups=wide, max_model_len=0, **where
            )

        assert at(length) == []
        assert at(length + 1) == [(501, 0, 1, 35)]
        assert at(35) == [(501, 0, 1, 35)]


def test_the_lengths_of_a_plan_and_of_a_replicated_group_are_whole():
    def at(own, other, whole=11):
        parts = [
            group_plan([[3, 5]], None, seq_lens=[own]),
            group_plan([[6, 7, 8]], None, group=1, seq_lens=[other]),
        ]
        first = begin(1, admit(1, [3, 5], [6, 7, 8], first=6), [scheduled(1, 5, 6)])
        return codes(first, plan(1, [1], [0, 5], [whole], *parts), groups=BOTH)

    assert at(6, 11) == []
    assert at(11, 11) == [(501, 0, 1, 11)]
    assert at(6, 6) == [(501, 1, 1, 11)]
    assert at(6, 11, whole=6) == [(501, None, 1, 11)]


def test_padded_lengths_of_its_own():
    def at(last):
        part = group_plan([[3, 5], [0]], None, seq_lens=[5, last])
        first = begin(1, admit(1, [3, 5], first=6), [scheduled(1, 4, 6)])
        return codes(first, plan(1, [1], [0, 4], [10, 0], part, padded_rows=2))

    assert at(0) == []
    assert at(1) == [(502, 0, 0, -1)]


# Columns: bindings, capacity, writers


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        (16, []),
        # columns of 4 would be hits
        (15, [(601, 0, 2, 1)]),
        (8, [(601, 0, 2, 1)]),
        (7, [(601, 0, 2, 0), (601, 0, 2, 1)]),
        (4, [(601, 0, 2, 0), (601, 0, 2, 1)]),
    ],
)
def test_a_hit_is_a_whole_column(first, expected):
    second = begin(2, admit(2, [3, 5], first=first, count=20), [])
    assert codes(*ran(16), second) == expected


def test_a_last_token_is_computed_again():
    def at(first, count):
        return codes(*ran(16), begin(2, admit(2, [3, 5], first=first, count=count), []))

    assert at(15, 16) == []
    assert at(14, 15) == [(601, 0, 2, 1)]
    # the end of a column of 4
    assert at(11, 12) == [(601, 0, 2, 1)]


def test_replicated_hits():
    def at(first):
        both = begin(1, admit(1, [3], [6, 7]), [scheduled(1, 8, 0)])
        second = begin(2, admit(2, [3], [6, 7], first=first), [])
        return codes(both, end(1), second, groups=BOTH)

    assert at(8) == []
    assert at(4) == [(601, 0, 2, 0), (601, 1, 2, 1)]


def test_capacity():
    assert codes(*ran(16, [3, 5])) == []
    assert codes(*ran(17, [3, 5])) == [(204, 0, 1, 16)]
    assert codes(*ran(17, [3, 5, 2])) == []
    both = admit(1, [3], [6, 7])
    assert codes(begin(1, both, [scheduled(1, 8, 0)]), groups=BOTH) == []
    assert codes(begin(1, admit(1, [3], [6]), [scheduled(1, 8, 0)]), groups=BOTH) == [
        (204, 1, 1, 7)
    ]


def test_the_width_of_a_row_is_in_columns():
    assert told(*admit(1, [3, 5, 2, 6])) == []
    assert told(*admit(1, [3, 5, 2, 6, 7])) == [(206, 0, 1, -1)]


def test_two_writers():
    owned = (601, 0, 2, 1)

    def at(tokens):
        events = [*admit(1, [3, 5]), *admit(2, [6, 5])]
        return codes(begin(1, events, [scheduled(1, tokens, 0), scheduled(2, tokens, 0)]))

    assert at(8) == [owned]
    assert at(9) == [owned, (603, 0, 2, 8)]


# Tables


KERNEL = [group(kernel_block_size=2, table_unit="kernel_block", max_columns=4)]


@pytest.mark.parametrize(
    ("row", "columns", "expected"),
    [
        # m is 2, however many ranks there are
        ([6, 7, 10, 11], 4, []),
        ([6, 7, 11, 11], 4, [(301, 0, 1, 2)]),
        ([6, 7, 10, 20], 4, [(303, 0, 1, 3)]),
        ([6, 7, 1, 11], 4, [(302, 0, 1, 2)]),
        ([6, 7, 10, 11], 2, [(304, 0, 1, 2)]),
        ([3, 5, 0, 0], 4, [(301, 0, 1, 0), (302, 0, 1, 2)]),
    ],
)
def test_tables_in_kernel_blocks(row, columns, expected):
    part = group_plan([row], [15, -1, 20, -1], row_columns=[columns])
    assert planned(part, groups=KERNEL) == expected


def test_tables_of_a_window_in_kernel_blocks():
    # at 14 position 7 is needed, at 15 the first column is gone: entries 0 and 1
    windowed = [group(kernel_block_size=2, table_unit="kernel_block", **WINDOW)]
    part = group_plan([[8, 8, 10, 11]], None)
    at = {"tokens": 1, "groups": windowed}
    assert planned(part, start=14, **at) == [(301, 0, 1, 0)]
    assert planned(part, start=15, **at) == []
    part = group_plan([[8, 8, 8, 11]], None)
    assert planned(part, start=15, **at) == [(301, 0, 1, 2)]


# Windows


@pytest.mark.parametrize(
    ("kind", "tokens", "block", "expected"),
    [
        # s(14) = 7, s(15) = 8
        (WINDOW, 14, 3, [(1202, 0, 1, 0)]),
        (WINDOW, 15, 3, []),
        (WINDOW, 15, 5, [(1202, 0, 1, 8)]),
        ({**WINDOW, "retained": 1}, 15, 3, [(1202, 0, 1, 0)]),
        ({**WINDOW, "retained": 1}, 16, 3, []),
        # one column of sink, then two
        ({**WINDOW, "sink": 1}, 23, 3, [(1202, 0, 1, 0)]),
        ({**WINDOW, "sink": 8}, 23, 5, []),
        ({**WINDOW, "sink": 9}, 23, 5, [(1202, 0, 1, 8)]),
        # chunks of 16: two columns
        ({"kind": "chunked", "window": 16}, 15, 3, [(1202, 0, 1, 0)]),
        ({"kind": "chunked", "window": 16}, 16, 5, []),
        # chunks of 4: half a column
        ({"kind": "chunked", "window": 4}, 15, 5, [(1202, 0, 1, 8)]),
        ({"kind": "chunked", "window": 4}, 15, 3, []),
        ({"kind": "chunked", "window": 4}, 7, 3, [(1202, 0, 1, 0)]),
        # a window over replicated columns of 4: position 7 is in column 1
        ({**WINDOW, "flags": REPLICATED}, 11, 3, []),
        ({**WINDOW, "flags": REPLICATED}, 14, 5, [(1202, 0, 1, 4)]),
    ],
)
def test_what_a_window_keeps(kind, tokens, block, expected):
    zero = event("zero", 0, 0, blocks=[block])
    assert codes(*ran(tokens), begin(2, [zero], []), groups=[group(**kind)]) == expected


def test_stale_reads():
    def at(start, **kind):
        part = group_plan([[0, 5]], None)
        windowed = [group(**WINDOW, **kind)]
        return planned(part, start=start, tokens=1, rows=[[0, 5]], groups=windowed)

    # position 7 is needed at 14
    assert at(14) == [(202, 0, 1, 0), (701, 0, 1, 7)]
    assert at(15) == []
    assert at(15, sink=1) == [(202, 0, 1, 0), (701, 0, 1, 0)]


# Content


def tokens_of(request, blocks, tokens, **fields):
    events = admit(request, blocks, count=len(tokens), **fields)
    events[0]["tokens"] = list(tokens)
    return events


@pytest.mark.parametrize(
    ("changed", "first", "expected"),
    [
        (None, 16, []),
        (7, 8, [(801, 0, 2, 0)]),
        (8, 8, []),
        (8, 16, [(801, 0, 2, 1)]),
        (15, 16, [(801, 0, 2, 1)]),
        (16, 16, []),
    ],
)
def test_content_to_the_end_of_a_column(changed, first, expected):
    tokens = list(range(100, 120))
    wrote = begin(1, tokens_of(1, [3, 5], tokens), [scheduled(1, 16, 0)])
    read = [*tokens, 7]
    if changed is not None:
        read[changed] = 7
    row = [3, 5][: first // 8]
    assert codes(wrote, end(1), begin(2, tokens_of(2, row, read, first=first), [])) == expected


def test_content_that_was_never_written():
    def at(tokens):
        second = begin(2, admit(2, [3], first=8), [])
        return found(judge(*ran(tokens), second, geometry_line=shards()), unwritten=True)

    assert at(7) == [(803, 0, 2, 0)]
    assert at(8) == []


def test_content_that_is_misplaced():
    assert codes(*ran(16), begin(2, admit(2, [5], first=8), [])) == [(804, 0, 2, 0)]

    def loaded(first):
        load = [transfer("load", 4, 7, first=first, request=9), transfer("load-done", 4)]
        return told(*load, *admit(2, [7], first=8))

    # position 4 would be column 1 of columns of 4
    assert loaded(4) == []
    assert loaded(8) == [(804, 0, 2, 0)]


# Transfers


def test_loads_name_columns():
    def load(first, *blocks):
        return told(*admit(1, [3, 5, 2]), transfer("load", 4, *blocks, request=1, first=first))

    assert load(0, 3, 5) == []
    assert load(8, 5, 2) == []
    assert load(8, 5, 6) == [(1105, 0, 1, 16)]
    assert load(4, 5) == [(1105, 0, 1, 0)]
    assert load(15, 5) == []
    assert load(16, 5) == [(1105, 0, 1, 16)]


def test_loads_before_their_request():
    def late(first):
        load = transfer("load", 4, 3, 5, request=1)
        return told(load, *admit(1, [3, 6], first=first), flags=2)

    # column 1 counts as computed from 16 on
    assert late(16) == [(1105, 0, 1, 8)]
    assert late(15) == []
    assert late(8) == []


def test_writes_and_reads_of_what_is_pinned():
    send = transfer("send-pending", 4, 5, request=1)

    def write(tokens):
        return codes(begin(1, [*admit(1, [3, 5]), send], [scheduled(1, tokens, 0)]))

    assert write(8) == []
    assert write(9) == [(1102, 0, 1, 8)]

    def read(start):
        load = transfer("load", 4, 5, request=1, first=8)
        part = group_plan([[3, 5, 2]], None)
        came = [begin(1, [*admit(1, [3, 5, 2], first=start), load], []), end(1)]
        line = plan(2, [1], [0, 1], [start + 1], part)
        ran = [begin(2, [], [scheduled(1, 1, start)]), line]
        return [f for f in codes(*came, *ran) if f[0] == 1101]

    assert read(8) == []
    assert read(9) == [(1101, 0, 1, 8)]


def test_failed_loads():
    def used(start):
        load = transfer("load", 4, 5, request=1, first=8)
        failed = event("load-failed", 0, 0, value=4, blocks=[5])
        events = [*admit(1, [3, 5], first=start), load, failed]
        return codes(begin(1, events, [scheduled(1, 1, start)]))

    # at 8 its first token is written
    assert used(8) == []
    assert used(9) == [(1106, 0, 1, 8)]


# Zeroing and copies


def test_zeroing_each_group_with_its_own_columns():
    # block 7: column 1 of the replicated group, positions 4..7
    def at(tokens, block):
        first = begin(1, admit(1, [3, 5], [6, 7]), [scheduled(1, tokens, 0)])
        return codes(
            first, end(1), begin(2, [event("zero", 0, 0, blocks=[block])], []), groups=BOTH
        )

    assert at(4, 7) == []
    assert at(5, 7) == [(1202, 0, 1, 4)]
    assert at(8, 5) == []
    # the replicated row is too short for 9
    assert at(9, 5) == [(204, 1, 1, 8), (1202, 0, 1, 8)]


@pytest.mark.parametrize(("tokens", "expected"), [(1, []), (2, [(1201, 0, 1, 8)])])
def test_used_before_zeroed(tokens, expected):
    # from 7 on: one token stays in column 0
    done = event("zero-done", 0, 0, blocks=[8])
    told_first = [event("zero", 0, 0, blocks=[8]), done]
    announced = [event("zero", 0, 0, blocks=[5]), *admit(1, [3, 5], first=7)]
    second = begin(2, announced, [scheduled(1, tokens, 7)])
    slots = [-1, 20][:tokens]
    line = plan(2, [1], [0, tokens], [7 + tokens], group_plan([[3, 5]], slots))
    assert codes(begin(1, told_first, []), end(1), second, line) == expected


# What a geometry may be


@pytest.mark.parametrize(
    "fields",
    [
        {"interleave": 0},
        {"interleave": 3},
        {"interleave": 8},
        {"dcp_rank": 2},
        {"groups": [group(), group(id=1, block_size=2, kernel_block_size=2)], "interleave": 4},
    ],
)
def test_malformed_geometries(fields):
    with pytest.raises(UnreadableError):
        codes(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"interleave": 2},
        {"dcp_rank": 1},
        {"dcp_size": 3, "dcp_rank": 2},
        {"dcp_size": 1, "interleave": 0},
    ],
)
def test_geometries(fields):
    assert codes(**fields) == []


def test_what_an_engine_says_of_its_formula_changes_nothing():
    groups = [group(shard_formula=1, kernel_block_size=2)]
    assert planned(group_plan([[3, 5]], [15, -1, 20, -1]), groups=groups) == []
    assert planned(group_plan([[3, 5]], [15, -1, 22, -1]), groups=groups) == [(401, 0, 1, 8)]


# Where no plan is shown, two ranks with half a block each are one with whole blocks.
def halved(lines):
    first = {**lines[0], "dcp_size": 2, "dcp_rank": 1}
    halves = {"block_size": 2, "kernel_block_size": 2}
    first["groups"] = [{**part, **halves} for part in first["groups"]]
    return [first, *lines[1:]]


def test_columns_are_all_that_counts_without_plans():
    reached = set()
    for seed in range(150):
        lines = draw_hits(seed)
        assert lines[0]["groups"][0]["block_size"] == 4
        whole, halves = judge_lines(lines), judge_lines(halved(lines))
        assert halves == whole
        reached |= {finding.code for finding in whole.findings}
    assert reached >= {601, 801, 803, 804}
