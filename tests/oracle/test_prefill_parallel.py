# SPDX-License-Identifier: Apache-2.0
"""Prefill context parallelism: each line of tests/layouts/prefill_parallel_faults.txt, and corners.

Blocks hold 4 tokens, the pool has blocks 0..9, block 0 is null, the pad slot is -1 (scenario.py).
The right slots are those of vLLM's own managers, or by hand from docs/judging.md; `|` in a comment
stands between the parts of two ranks.
"""

from pathlib import Path

import pytest
from kvguard_oracle import UnreadableError, UnsupportedError
from scenario import (
    ASYNC,
    admit,
    begin,
    end,
    found,
    geometry,
    group,
    group_plan,
    judge,
    outcome,
    plan,
    pool,
    scheduled,
)

LIST = Path(__file__).resolve().parents[1] / "layouts" / "prefill_parallel_faults.txt"
REPLICATED = 1


class Row:
    """`known`: tokens when it was admitted; more than its start: it is prefilling."""

    def __init__(self, blocks, start, tokens, known, drafts=0):
        self.blocks, self.start, self.tokens = blocks, start, tokens
        self.known, self.drafts = known, drafts


def engine(layout, ranks=2, groups=None, pools=None, **fields):
    return geometry(groups, pools, pcp_size=ranks, pcp_layout=layout, **fields)


def planned(rows, *parts, **fields):
    """Requests 1, 2, ... in the plan's order."""
    keys = list(range(1, len(rows) + 1))
    offsets = [sum(row.tokens for row in rows[:count]) for count in range(len(rows) + 1)]
    lengths = [row.start + row.tokens for row in rows]
    parts = [
        part if isinstance(part, dict) else group_plan([row.blocks for row in rows], part)
        for part in parts
    ]
    fields = {"positions": [p for r in rows for p in range(r.start, r.start + r.tokens)], **fields}
    return plan(1, keys, offsets, lengths, *parts, **fields)


def begun(rows):
    events = []
    for key, row in enumerate(rows, 1):
        events += admit(key, row.blocks, first=row.start, count=row.known)
    told = [scheduled(key, r.tokens, r.start, r.drafts) for key, r in enumerate(rows, 1)]
    return begin(1, events, told)


def step(rows, *parts, **fields):
    return [begun(rows), planned(rows, *parts, **fields), end(1)]


def codes(described, rows, slots, **fields):
    return found(judge(*step(rows, slots, **fields), geometry_line=described))


PREFILL = [Row([9, 5], 0, 7, 7)]
BEHIND = [Row([9, 5, 7, 3], 8, 7, 15)]
# a decode behind 5 tokens, and a prefill
DECODE, FRESH = Row([3, 8], 5, 1, 5), Row([6], 0, 4, 4)
BOTH = [DECODE, FRESH]
SHORT = [Row([6], 0, 1, 1)]

BY_POSITION = [36, 37, 22, -1, 38, 39, 20, 21]
ON_BOTH = [33, 24, 27, -1, 25, 26]
ON_ONE = [33, 24, 27, 25, 26, -1]


def dummy(slots):
    return [plan(1, [], [0], [], group_plan([], slots), pass_name="dummy", padded_tokens=4)]


def real_step(*more):
    return [*step(PREFILL, BY_POSITION), *more]


# name -> the engine, the records, what is found
SCENARIOS = {
    "layout-1-prefill": (engine(1), step(PREFILL, [22, 36, 37, -1, 38, 39, 20, 21]), []),
    "layout-2-prefill": (engine(2), step(PREFILL, BY_POSITION), []),
    "layout-2-prefill-with-context": (
        engine(2), step(BEHIND, [28, 29, 14, -1, 30, 31, 12, 13]), [],
    ),
    "layout-1-decode-beside-prefill": (engine(1), step(BOTH, [33, 27, 24, -1, 25, 26]), []),
    "layout-2-decode-replicated": (engine(2), step(BOTH, ON_BOTH), []),
    "layout-3-decode-sharded": (engine(3), step(BOTH, ON_ONE), []),
    "prefill-of-one-token": (engine(2), step(SHORT, [24, -1]), []),
    "four-ranks": (engine(2, 4), step(PREFILL, [36, -1, 37, 22, 38, 21, 39, 20]), []),
    # four places a rank, and the last of each holds what stood there before
    "B116-slab-padded-by-a-common-count": (
        engine(2), step(BOTH, [33, 24, 27, 25, -1, 25, 26, 37]), [(406, 0, 0, 3)],
    ),
    # places 0, 1, 2 hold positions 6, 0, 1 in place of 0, 1, 6
    "wrong-order-in-a-rank": (
        engine(2), step(PREFILL, [22, 36, 37, -1, 38, 39, 20, 21]), [(401, 0, 1, 0)],
    ),
    "replicated-row-written-twice": (
        engine(2), step(BOTH, [33, 24, 27, 33, 25, 26]), [(407, 0, 1, 5)],
    ),
    # the place of the row on its rank is empty, and the other rank has a place without a token
    "sharded-row-on-the-wrong-rank": (
        engine(3), step(BOTH, [-1, 24, 27, 25, 26, 33]), [(403, 0, 1, 5), (406, 0, 0, 5)],
    ),
    "token-is-never-written": (
        engine(2), step(PREFILL, [36, 37, -1, -1, 38, 39, 20, 21]), [(403, 0, 1, 6)],
    ),
    # two places a rank: positions 6 and 7 have none
    "slabs-too-short": (
        engine(2), step([Row([3, 8], 4, 4, 4, drafts=3)], [32, 33, -1, -1]), [(403, 0, 1, 6)],
    ),
    # position 6 goes to block 8, which request 2 holds
    "token-in-a-foreign-block": (
        engine(2),
        [
            begin(1, [*admit(1, [9, 5], count=7), *admit(2, [3, 8], first=5)],
                  [scheduled(1, 7, 0)]),
            planned(PREFILL, [36, 37, 34, -1, 38, 39, 20, 21]),
            end(1),
        ],
        [(401, 0, 1, 6), (602, 0, 1, 6)],
    ),
    "dummy-with-a-slot": (
        engine(2), real_step(*dummy([-1, -1, -1, -1, -1, -1, -1, 36])), [(406, 0, 0, 7)],
    ),
}  # fmt: skip

LINES = [
    [cell.strip() for cell in line.split("|")]
    for line in LIST.read_text(encoding="utf-8").splitlines()
    if line.strip() and not line.startswith("#")
]


def test_every_line_has_a_scenario():
    assert [line[0] for line in LINES] == list(SCENARIOS)


@pytest.mark.parametrize("line", LINES, ids=lambda line: line[0])
def test_planted(line):
    name, code = line[0], int(line[1])
    described, records, expected = SCENARIOS[name]
    result = judge(*records, geometry_line=described)
    assert found(result, unwritten=True) == expected
    assert code in {finding.code for finding in result.findings} | ({0} if not expected else set())
    assert result.gaps == {}
    assert result.verdict() == ("violated" if expected else "clean")
    assert {finding.grade for finding in result.findings} <= {"proof"}
    if len(line) > 3:
        assert int(next(other[1] for other in LINES if other[0] == line[3])) == 0


# Which layout is meant


@pytest.mark.parametrize(
    ("layout", "slots", "expected"),
    [
        # the first: 33 27 24 | -1 25 26
        (1, ON_BOTH, [(401, 0, 2, 3)]),
        # the newest: 33 24 27 | 25 26 -1
        (3, ON_BOTH, [(401, 0, 2, 2), (403, 0, 2, 1), (406, 0, 0, 5)]),
        (2, ON_ONE, [(401, 0, 2, 1), (403, 0, 2, 2), (407, 0, 1, 5), (602, 0, 1, 5)]),
    ],
)
def test_slots_of_another_layout(layout, slots, expected):
    assert codes(engine(layout), BOTH, slots) == expected


def test_on_ranks_that_do_not_write():
    """The decode's place on the second rank: anything but the pad slot is wrong there."""
    for slot, expected in (
        (-1, []),
        # its own, the null block's, nobody's
        (33, [(407, 0, 1, 5)]),
        (2, [(407, 0, 1, 5)]),
        (4, [(407, 0, 1, 5)]),
        # another request's
        (27, [(407, 0, 1, 5), (602, 0, 1, 5)]),
        (40, [(404, 0, 1, 5)]),
        (-2, [(404, 0, 1, 5)]),
    ):
        assert codes(engine(2), BOTH, [33, 24, 27, slot, 25, 26]) == expected


def test_on_ranks_that_write():
    for slot, expected in (
        (-1, [(403, 0, 1, 5)]),
        (2, [(402, 0, 1, 5)]),
        (40, [(404, 0, 1, 5)]),
        (32, [(401, 0, 1, 5)]),
        (27, [(401, 0, 1, 5), (602, 0, 1, 5)]),
    ):
        assert codes(engine(2), BOTH, [slot, 24, 27, -1, 25, 26]) == expected


def test_one_finding_for_each_code_at_the_first_in_the_array():
    # 0, 1, 6 | 2, 3, 4, 5: position 6 stands before 3
    wrong = [36, 37, 10, -1, 38, 10, 20, -1]
    assert codes(engine(2), PREFILL, wrong) == [(401, 0, 1, 6), (403, 0, 1, 5)]
    # one foreign write for the row: the second is of another request's block too
    wrong = [36, 37, 33, -1, 24, 39, 20, 21]
    others = [*admit(2, [3, 8], first=5), *admit(3, [6])]
    records = [
        begin(1, [*admit(1, [9, 5], count=7), *others], [scheduled(1, 7, 0)]),
        planned(PREFILL, wrong),
        end(1),
    ]
    told = found(judge(*records, geometry_line=engine(2)))
    assert told == [(401, 0, 1, 6), (602, 0, 1, 6)]


def test_two_tokens_on_one_slot_are_not_found_apart():
    assert codes(engine(2), PREFILL, [36, 36, 22, -1, 38, 39, 20, 21]) == [(401, 0, 1, 1)]


def test_columns_that_are_not_bound():
    # positions 4..6 have no column: wrong whatever their slot; 0204 of the schedule
    short = [Row([9], 0, 7, 7)]
    expected = [(204, 0, 1, 6), (401, 0, 1, 6)]
    assert codes(engine(2), short, BY_POSITION) == expected
    silent = [36, 37, -1, -1, 38, 39, -1, -1]
    assert codes(engine(2), short, silent) == [(204, 0, 1, 6), (403, 0, 1, 6)]


def test_blocks_that_are_bound_as_nothing():
    # a column bound to an id that does not fit: its tokens are not judged, the others are
    rows = [Row([9, 2**31], 0, 7, 7)]

    def shown(slots):
        return codes(engine(2), rows, group_plan([[9, -1]], slots))

    assert shown([36, 37, 1, -1, 38, 39, 2, 3]) == [(201, 0, 1, 1)]
    assert shown([36, 37, 1, -1, 38, 38, 2, 3]) == [(201, 0, 1, 1), (401, 0, 1, 3)]


# What is split


def test_a_prefill_is_what_has_not_reached_the_tokens_of_its_admission():
    # 2 more tokens behind 5: the last two of a prompt, or one and a draft
    last, drafts = [Row([3, 8], 5, 2, 7)], [Row([3, 8], 5, 2, 5, drafts=1)]
    for layout in (1, 2, 3):
        # c = 1: chunks 0 and 1
        assert codes(engine(layout), last, [33, 34]) == []
    for layout in (1, 2):
        assert codes(engine(layout), drafts, [33, 34, -1, -1]) == []
        assert codes(engine(layout), drafts, [33, 34]) == [(403, 0, 1, 6), (407, 0, 1, 5)]
    assert codes(engine(3), drafts, [33, 34, -1, -1]) == []


def test_decodes_go_round_by_their_number_among_decodes():
    blocks = [Row([key], 1, tokens, 1, drafts=tokens - 1) for key, tokens in ((1, 1), (2, 3))]
    rows = [blocks[0], FRESH, blocks[1], Row([7], 2, 1, 2)]
    # 0: request 1, request 4, the prefill's 0 and 3 | 1: request 3, its drafts, 1 and 2
    right = [5, 30, 24, 27, -1, 9, 10, 11, 25, 26]
    assert codes(engine(3), rows, right) == []
    # the third decode on the second rank, as if prefills counted
    wrong = [5, 24, 27, -1, -1, -1, 9, 10, 11, 30, 25, 26]
    assert {finding[2] for finding in codes(engine(3), rows, wrong)} >= {4}
    # three ranks: 1 | 3 | 4; chunks of one token, two of them empty
    right = [5, 24, -1, -1, 9, 10, 11, 25, 30, 26, 27, -1]
    assert codes(engine(3, 3), rows, right) == []


def test_a_chunk_that_is_empty():
    # q = 5, c = 2: 0 1 | 2 3 | 4 |: rank 0 has chunks 0 and 3, rank 1 has 1 and 2
    five = [Row([9, 5], 0, 5, 5)]
    for layout in (2, 3):
        assert codes(engine(layout), five, [36, 37, -1, 38, 39, 20]) == []
    # the first layout: the piece at 0 is the only one of its rank
    assert codes(engine(1), five, [36, 37, -1, 38, 39, 20]) == []


def test_a_row_without_tokens_is_nowhere():
    # the plan leaves request 2 out: the decode behind it is the second one
    left_out = Row([7], 2, 0, 2)
    records = [
        begun([DECODE, Row([7], 2, 1, 2), Row([2], 3, 1, 3)]),
        planned([DECODE, left_out, Row([2], 3, 1, 3)], [33, 11]),
        end(1),
    ]
    records[1]["seq_lens"]["values"][1] = 3
    assert found(judge(*records, geometry_line=engine(3))) == [(104, None, 2, -1)]


def test_order_of_the_first_layout():
    # pieces at 0 come last, among themselves by row: 1's 3, 3's 5, then 1's 0 and 2's 0
    rows = [Row([9], 0, 4, 4), Row([6], 0, 4, 4), Row([3, 8], 5, 1, 5)]
    right = [39, 27, 33, 36, 24, 37, 38, 25, 26, -1]
    assert codes(engine(1), rows, right) == []
    by_row = [36, 39, 24, 27, 33, -1, 37, 38, 25, 26]
    assert {finding[0] for finding in codes(engine(1), rows, by_row)} >= {401}


# Parts that are longer, shorter, or not n


def test_parts_that_are_longer_than_needed():
    right = [33, 24, 27, -1, -1, -1, 25, 26, -1, -1]
    assert codes(engine(2), BOTH, right) == []
    assert codes(engine(2), BOTH, [*right[:4], 4, *right[5:]]) == [(406, 0, 0, 4)]


def test_parts_that_are_shorter():
    # the last token of two decodes with drafts, and of a prefill behind them
    rows = [Row([3, 8], 5, 2, 5, drafts=1), Row([2, 7], 4, 3, 4, drafts=2), FRESH]
    right = [33, 34, 28, 29, 30, 24, 27, -1, -1, -1, -1, -1, 25, 26]
    assert codes(engine(2), rows, right) == []
    # five places: 24 and 27 are missing on rank 0, 25 and 26 on rank 1
    assert codes(engine(2), rows, [*right[:5], *[-1] * 5]) == [(403, 0, 3, 0)]
    # the first slots of an array that is too short for the prefill are judged as ever
    assert codes(engine(2), rows, [33, 35, *right[2:5], *[-1] * 5]) == [
        (401, 0, 1, 6),
        (403, 0, 3, 0),
    ]
    # one place for the prefill: position 3 on rank 0 stands before 2 on rank 1
    assert codes(engine(2), rows, [*right[:6], *right[7:13]]) == [(403, 0, 3, 3)]


def test_a_number_that_the_ranks_do_not_divide():
    records = step(BOTH, [*ON_BOTH, -1])
    result = judge(*records, geometry_line=engine(2))
    assert (found(result), len(result.gap_steps()), result.verdict()) == ([], 1, "cannot_judge")
    dummies = judge(*real_step(*dummy([-1, -1, -1])), geometry_line=engine(2))
    assert (found(dummies), dummies.verdict()) == ([], "cannot_judge")


def test_fewer_slots_than_tokens():
    # kvguard.h: at least num_tokens
    result = judge(*step(PREFILL, [36, 37, 22, 38, 39, 20]), geometry_line=engine(2))
    assert (found(result), len(result.gap_steps()), result.verdict()) == ([], 1, "cannot_judge")


def test_dummy_passes():
    for layout in (1, 2, 3):
        described = engine(layout)
        records = step(SHORT, [24, -1])
        assert judge(*records, *dummy([-1] * 8), geometry_line=described).verdict() == "clean"
        # behind padded_tokens too
        for index in (0, 3, 4, 11):
            slots = [-1] * 12
            slots[index] = 0
            told = judge(*records, *dummy(slots), geometry_line=described)
            assert found(told) == [(406, 0, 0, index)]


# Decode context parallelism beside it


def sharded(layout, rank, **fields):
    return engine(layout, dcp_size=2, dcp_rank=rank, interleave=1, max_model_len=64, **fields)


@pytest.mark.parametrize("layout", [2, 3])
@pytest.mark.parametrize(
    ("rank", "slots"),
    [
        # 8 positions a column: 0, 1, 6, 7 | 2, 3, 4, 5 of block 9; rank 0 keeps the even ones
        (0, [36, -1, 39, -1, 37, -1, 38, -1]),
        (1, [-1, 36, -1, 39, -1, 37, -1, 38]),
    ],
)
def test_sharded(layout, rank, slots):
    rows = [Row([9], 0, 8, 8)]
    assert codes(sharded(layout, rank), rows, slots) == []
    # one of the other rank's, one that is missing
    other, own = slots.index(-1), 1 - slots.index(-1)
    written = [4 if index == other else slot for index, slot in enumerate(slots)]
    assert codes(sharded(layout, rank), rows, written) == [(407, 0, 1, other)]
    missing = [-1 if index == own else slot for index, slot in enumerate(slots)]
    assert codes(sharded(layout, rank), rows, missing) == [(403, 0, 1, own)]


def test_a_sharded_prefill_with_an_empty_chunk_is_replicated():
    # q = 6, c = 2: 3 * 2 >= 6; the last chunk is empty
    rows = [Row([9], 0, 6, 6)]
    whole = [36, -1, 37, -1, 38, -1, *[-1] * 6]
    split = [36, -1, -1, -1, 37, -1, 38, -1]
    for layout in (2, 3):
        assert codes(sharded(layout, 0), rows, whole) == []
        assert {f[0] for f in codes(sharded(layout, 0), rows, split)} >= {403}
    # the first layout splits it: 0, 1 | 2, 3, 4, 5
    assert codes(sharded(1, 0), rows, split) == []
    assert {f[0] for f in codes(sharded(1, 0), rows, whole)} >= {403}
    # q = 7: 3 * 2 < 7
    for layout in (2, 3):
        seven = [Row([9], 0, 7, 7)]
        assert codes(sharded(layout, 0), seven, [36, -1, 39, -1, 37, -1, 38, -1]) == []


def test_a_sharded_decode_is_on_every_rank():
    rows = [Row([3], 6, 1, 6), Row([8], 5, 1, 5)]
    for layout in (1, 2, 3):
        # position 6 is of rank 0, position 5 of rank 1
        assert codes(sharded(layout, 0), rows, [15, -1, -1, -1]) == []
        assert codes(sharded(layout, 1), rows, [-1, 34, -1, -1]) == []
        assert codes(sharded(layout, 0), rows, [15, -1, 15, -1]) == [(407, 0, 1, 6)]


def test_a_replicated_prefill_stands_among_the_prefills():
    # one token of a prompt behind 7, whole on both ranks, behind the decode in the order
    rows = [Row([9], 0, 1, 1), Row([3], 6, 1, 6)]
    for layout in (2, 3):
        assert codes(sharded(layout, 0), rows, [15, 36, -1, -1]) == []
        wrong = codes(sharded(layout, 0), rows, [36, 15, -1, -1])
        assert wrong == [(401, 0, 1, 0), (401, 0, 2, 6), (602, 0, 1, 0), (602, 0, 2, 6)]


def test_a_group_that_is_kept_whole():
    # which rows are split is asked of the engine, where a token lives of the group
    groups = [group(), group(id=1, flags=REPLICATED)]
    rows = [Row([9], 0, 1, 1)]
    described = sharded(2, 1, groups=groups, pools=[pool(num_blocks=20)])
    told = [
        begin(1, admit(1, [9], [5], count=1), [scheduled(1, 1, 0)]),
        planned(rows, [-1, -1], group_plan([[5]], [20, -1], 1)),
        end(1),
    ]
    assert found(judge(*told, geometry_line=described)) == []


# Drafts whose outcome is not known


def test_a_start_that_is_taken():
    described = engine(3, flags=ASYNC)
    first = [
        begin(1, admit(1, [3, 8], first=4, count=4), [scheduled(1, 2, 4, 1)]),
        plan(1, [1], [0, 2], [6], group_plan([[3, 8]], [32, 33, -1, -1])),
        end(1),
    ]
    # one draft open: the next token stands at 5 or 6
    for start, slot in ((5, 33), (6, 34)):
        second = [
            begin(2, [], [scheduled(1, 1, 6)]),
            plan(2, [1], [0, 1], [start + 1], group_plan([[3, 8]], [slot, -1]), positions=[start]),
            outcome(1, (1, 6 - start)),
            end(2),
        ]
        result = judge(*first, *second, geometry_line=described)
        assert (found(result), result.assumptions) == ([], 1)


# What is not judged


def test_a_row_that_is_not_known():
    # a request that is not scheduled: nothing of the slots, whatever they are
    for slots in (ON_BOTH, [1, 2, 3, 4, 5, 6]):
        records = [begun([DECODE]), planned(BOTH, slots), end(1)]
        assert [f[0] for f in found(judge(*records, geometry_line=engine(2)))] == [101]


def test_query_offsets_that_are_wrong():
    records = step(BOTH, [1, 2, 3, 4, 5, 6])
    records[1]["query_start"]["values"] = [0, 2, 1]
    assert 105 in {f[0] for f in found(judge(*records, geometry_line=engine(2)))}
    assert not any(400 <= f[0] < 500 for f in found(judge(*records, geometry_line=engine(2))))


def test_slots_that_are_not_presented():
    result = judge(*step(BOTH, None), geometry_line=engine(2))
    assert (found(result), set(result.gaps)) == ([], {"slots-not-presented"})


def test_tables_and_lengths_are_those_of_an_engine_without_it():
    wrong = group_plan([[3, 7], [6]], ON_BOTH)
    assert codes(engine(2), BOTH, wrong) == [(301, 0, 1, 1)]
    records = step(BOTH, ON_BOTH)
    records[1]["seq_lens"]["values"] = [6, 3]
    assert found(judge(*records, geometry_line=engine(2))) == [(501, None, 2, 4)]


@pytest.mark.parametrize("ranks", [0, 1])
def test_one_rank_is_none(ranks):
    # its layout says nothing then
    described = geometry(pcp_size=ranks, pcp_layout=7)
    assert codes(described, BOTH, [33, 24, 25, 26, 27]) == []


@pytest.mark.parametrize("fields", [{"pcp_layout": 0}, {"pcp_layout": 4}, {"pcp_rank": 2}])
def test_malformed_geometries(fields):
    assert codes(engine(2, pcp_rank=1), BOTH, ON_BOTH) == []
    with pytest.raises(UnreadableError):
        judge(geometry_line={**engine(2), **fields})


@pytest.mark.parametrize("kind", ["window", "chunked", "cross"])
def test_other_kinds_of_groups_are_refused(kind):
    groups = [group(), group(id=1, kind=kind, window=8)]
    with pytest.raises(UnsupportedError):
        judge(geometry_line=engine(2, groups=groups))


@pytest.mark.parametrize("name", ["draft", "micro-batch", "cross"])
def test_other_passes_are_refused(name):
    with pytest.raises(UnsupportedError):
        judge(*step(BOTH, ON_BOTH, pass_name=name), geometry_line=engine(2))
