# SPDX-License-Identifier: Apache-2.0
"""Rules of a PLAN, each beside its nearest legal neighbour.

The step that is edited: request 1 has 6 tokens in blocks [3, 5, 2] and runs 3 more at 6, 7, 8:
slots 5*4+2, 5*4+3, 2*4+0 = 22, 23, 8, length 9. Request 2 is new in block [7], runs 2 at 0, 1:
slots 28, 29, length 2. Request 3 is idle and holds block 8. The plan's rows are 2, 1.
"""

import copy

import pytest
from scenario import (
    ASYNC,
    PAD_ROWS_NULL,
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
)

TABLE = [[7], [3, 5, 2]]
SLOTS = [28, 29, 22, 23, 8]
POSITIONS = [0, 1, 6, 7, 8]

BEFORE = [
    begin(1, [*admit(1, [3, 5]), *admit(3, [8])], [scheduled(1, 6, 0)]),
    plan(1, [1], [0, 6], [6], group_plan([[3, 5]], [12, 13, 14, 15, 20, 21])),
    end(1),
    begin(2, [append(1, 2), *admit(2, [7])], [scheduled(1, 3, 6), scheduled(2, 2, 0)]),
]


def right(**fields):
    parts = fields.pop("parts", None) or [group_plan(TABLE, SLOTS)]
    return plan(2, [2, 1], [0, 2, 5], [2, 9], *parts, **fields)


def judged(line, **fields):
    result = judge(*BEFORE, line, end(2), geometry_line=geometry(**fields))
    assert all(f.pass_name == "target" and f.stage == "planned" for f in result.findings)
    assert all(f.step == 2 for f in result.findings)
    return found(result)


def with_table(*rows, **fields):
    return right(parts=[group_plan(list(rows), SLOTS, **fields)])


def with_slots(*slots, **fields):
    return right(parts=[group_plan(TABLE, list(slots))], **fields)


def test_the_right_plan_is_clean():
    result = judge(*BEFORE, right(), end(2))
    assert (result.findings, result.verdict(), result.steps_judged) == ([], "clean", 2)
    assert judged(right(positions=POSITIONS, num_computed=[0, 6])) == []


# Rows


def test_row_unknown():
    line = right()
    line["requests"] = [2, 9]
    assert judged(line) == [(101, None, 9, -1), (102, None, 1, -1)]
    # 3 is live, but not scheduled
    line["requests"] = [2, 3]
    assert judged(line) == [(101, None, 3, -1), (102, None, 1, -1)]


def test_row_missing():
    line = plan(2, [1], [0, 3], [9], group_plan([[3, 5, 2]], [22, 23, 8]))
    assert judged(line) == [(102, None, 2, -1)]


def test_row_duplicate():
    part = group_plan([[7], [3, 5, 2], [7]], [28, 29, 22, 23, 8, 28])
    line = plan(2, [2, 1, 2], [0, 2, 5, 6], [2, 9, 2], part)
    # the second row is not judged further: neither its slot nor its length
    assert judged(line) == [(103, None, 2, -1)]


def test_rows_in_the_other_order_are_legal():
    part = group_plan([[3, 5, 2], [7]], [22, 23, 8, 28, 29])
    assert judged(plan(2, [1, 2], [0, 3, 5], [9, 2], part)) == []


def test_query_length_mismatch():
    # request 2 gets one token too few, request 1 four instead of three: 6..9; 9 is block 2's second
    part = group_plan(TABLE, [28, 22, 23, 8, 9])
    line = plan(2, [2, 1], [0, 1, 5], [2, 9], part)
    assert judged(line) == [(104, None, 1, -1), (104, None, 2, -1)]


@pytest.mark.parametrize("offsets", [[1, 2, 5], [0, 2, 4], [0, 6, 5], [0, -1, 5], [0, 2, 6]])
def test_query_start_malformed(offsets):
    line = right()
    line["query_start"] = array(offsets)
    # slots and positions are not judged then; length and table still are
    assert judged(line) == [(105, None, 0, -1)]
    line["groups"][0]["slots"] = array([9, 9, 9, 9, 9])
    line["seq_lens"] = array([2, 8])
    assert judged(line) == [(105, None, 0, -1), (501, None, 1, 9)]


# Table


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([[7], [3, 5, 2]], []),
        # residue behind the bound columns is never read
        ([[7, 3, 5], [3, 5, 2, 9]], []),
        ([[7], [3, 2, 5]], [(301, 0, 1, 1)]),
        ([[7], [3, 5]], [(302, 0, 1, 2)]),
        ([[7], [3, 10, 2]], [(303, 0, 1, 1)]),
        ([[-1], [3, 5, 2]], [(303, 0, 2, 0)]),
        # the first of each code
        ([[7], [10, 9, 0]], [(301, 0, 1, 1), (302, 0, 1, 2), (303, 0, 1, 0)]),
        ([[3], [7]], [(301, 0, 1, 0), (301, 0, 2, 0), (302, 0, 1, 1)]),
    ],
)
def test_tables(rows, expected):
    assert judged(with_table(*rows)) == expected


def test_columns():
    assert judged(with_table(*TABLE, row_columns=[1, 3])) == []
    # column 2 is not compared then: only that it is missing is found
    assert judged(with_table([7], [3, 5, 9], row_columns=[1, 2])) == [(304, 0, 1, 2)]
    # 4 counted, 3 bound: at the third, where the comparison ends
    assert judged(with_table(*TABLE, row_columns=[1, 4])) == [(304, 0, 1, 3)]
    assert judged(with_table(*TABLE, row_columns=[-5, 3])) == [(304, 0, 2, 0)]
    # the table itself is too narrow
    assert judged(with_table([7], [3, 5], columns=2)) == [(304, 0, 1, 2)]


def test_padded_rows():
    def padded(row, **fields):
        part = group_plan([*TABLE, row], SLOTS)
        return plan(2, [2, 1], [0, 2, 5], [2, 9, 0], part, padded_rows=3, **fields)

    null_rows = {"groups": [group(flags=PAD_ROWS_NULL)]}
    assert judged(padded([]), **null_rows) == []
    assert judged(padded([0, 0, 8]), **null_rows) == [(305, 0, 0, 2)]
    assert judged(padded([0, 0, 8])) == []
    # without a null block, -1 is the null entry
    nothing = {**null_rows, "pools": [pool(null_block=-1)]}
    assert judged(padded([-1, -1, -1, -1]), **nothing) == []
    assert judged(padded([-1, -1, 0, -1]), **nothing) == [(305, 0, 0, 2)]
    # a row beyond padded_rows is nobody's
    part = group_plan([*TABLE, [8]], SLOTS)
    assert judged(right(parts=[part]), **null_rows) == []


def test_padded_lengths():
    line = right(padded_rows=4)
    line["seq_lens"] = array([2, 9, 0, 0])
    assert judged(line) == []
    line["seq_lens"] = array([2, 9, 0, 5])
    assert judged(line) == [(502, None, 0, -1)]
    line["padded_rows"] = 3
    assert judged(line) == []


# Frontier and length


def test_frontier():
    assert judged(right(positions=[0, 1, 5, 6, 7])) == [(901, None, 1, 6)]
    assert judged(right(positions=[0, 1, 6, 8, 8])) == [(903, None, 1, 7)]
    # counted from its own first: 5, then 6 is due and 7 is there
    assert judged(right(positions=[0, 1, 5, 7, 8])) == [(901, None, 1, 6), (903, None, 1, 6)]
    assert judged(right(num_computed=[0, 7])) == [(901, None, 1, 6)]
    # once a row
    assert judged(right(positions=[0, 1, 5, 6, 7], num_computed=[0, 7])) == [(901, None, 1, 6)]


def test_lengths():
    line = right()
    line["seq_lens"] = array([2, 8])
    assert judged(line) == [(501, None, 1, 9)]
    line["seq_lens"] = array([3, 9])
    assert judged(line) == [(501, None, 2, 2)]
    assert judged(with_table(*TABLE, seq_lens=[2, 9])) == []
    assert judged(with_table(*TABLE, seq_lens=[2, 10])) == [(501, 0, 1, 9)]


# Slot


@pytest.mark.parametrize(
    ("slots", "expected"),
    [
        ([28, 29, 22, 23, 8], []),
        # block 9 has no owner
        ([28, 29, 22, 23, 36], [(401, 0, 1, 8)]),
        ([28, 29, 0, 23, 8], [(402, 0, 1, 6)]),
        ([28, 29, 22, -1, 8], [(403, 0, 1, 7)]),
        ([28, 29, 22, 40, 8], [(404, 0, 1, 7)]),
        ([28, 29, -2, 23, 8], [(404, 0, 1, 6)]),
        # block 8 is request 3's: the run starts at position 7
        ([28, 29, 22, 32, 33], [(401, 0, 1, 7), (602, 0, 1, 7)]),
        # request 1's token in request 2's block, on request 2's slot: tokens of one slot are in the
        # order of rows, so the second is request 1's
        ([28, 29, 22, 29, 8], [(401, 0, 1, 7), (405, 0, 1, 7), (602, 0, 1, 7)]),
        # the slots of both rows swapped
        (
            [22, 23, 28, 29, 8],
            [(401, 0, 1, 6), (401, 0, 2, 0), (602, 0, 1, 6), (602, 0, 2, 0)],
        ),
        # inside the own row: nobody else holds block 3
        ([28, 29, 12, 23, 8], [(401, 0, 1, 6)]),
        # twice: 23 at 6 and 7
        ([28, 29, 23, 23, 8], [(401, 0, 1, 6), (405, 0, 1, 7)]),
        # the pad slot is no slot
        ([28, 29, -1, -1, 8], [(403, 0, 1, 6)]),
    ],
)
def test_slots(slots, expected):
    assert judged(with_slots(*slots)) == expected


def test_the_smallest_doubled_slot_is_named():
    # 22 twice (positions 6, 7) and 28 twice (positions 0, 1 of request 2)
    assert judged(with_slots(28, 28, 22, 22, 8)) == [
        (401, 0, 1, 7), (401, 0, 2, 1), (405, 0, 1, 7),
    ]  # fmt: skip


def test_a_shared_prefix_is_no_foreign_block():
    # request 2 hits 1's block 3 and writes 4, 5 into its own block 7: 28, 29
    events = [*admit(1, [3]), *admit(2, [3, 7], first=4)]
    first = begin(1, events, [scheduled(1, 4, 0), scheduled(2, 2, 4)])

    def line(*slots):
        part = group_plan([[3], [3, 7]], [12, 13, 14, 15, *slots])
        return plan(1, [1, 2], [0, 4, 6], [4, 6], part)

    assert found(judge(first, line(28, 29), end(1))) == []
    # a write of position 4 into block 3 hits request 1: block 3 is bound to 2, but not there
    assert found(judge(first, line(12, 29), end(1))) == [
        (401, 0, 2, 4), (405, 0, 2, 4), (602, 0, 2, 4),
    ]  # fmt: skip


def test_padding_tokens():
    assert judged(with_slots(*SLOTS, -1, -1, padded_tokens=7)) == []
    assert judged(with_slots(*SLOTS, -1, 12, padded_tokens=7)) == [(406, 0, 0, 6)]
    # beyond padded_tokens nothing is read
    assert judged(with_slots(*SLOTS, -1, 12, padded_tokens=6)) == []
    # a short array ends the judgement
    assert judged(with_slots(*SLOTS, padded_tokens=7)) == []


def test_dummy_passes():
    def dummy(*slots):
        part = group_plan(None, list(slots))
        fields = {"pass_name": "dummy", "padded_tokens": 3}
        return plan(9, [4], [0, 0], [0], part, **fields)

    result = judge(dummy(-1, -1, -1), *BEFORE, dummy(-1, -1, -1), right(), end(2), dummy(-1))
    assert (result.findings, result.verdict()) == ([], "clean")
    result = judge(*BEFORE, right(), end(2), dummy(-1, 12, 13, 14))
    assert found(result) == [(406, 0, 0, 1)]


def test_dummy_passes_are_judged_whatever_is_known():
    part = group_plan(None, [12])
    dummy = plan(9, [], [0], [], part, pass_name="dummy", padded_tokens=1)
    lost = begin(3, [*admit(4, [9]), *admit(4, [6])], [])
    assert found(judge(*BEFORE, right(), end(2), lost, dummy, end(3), dummy)) == [
        (406, 0, 0, 0), (406, 0, 0, 0),
    ]  # fmt: skip
    declared = copy.deepcopy(BEFORE)
    declared[3]["events"].append(event("gap", name="unknown-field"))
    assert found(judge(*declared, dummy, end(2))) == [(406, 0, 0, 0)]


# Units, pools, unbound columns


def test_kernel_blocks():
    # 2 entries a block: 3 -> 6 7, 5 -> 10 11, 2 -> 4 5, 7 -> 14 15; slots as before
    fields = {"groups": [group(table_unit="kernel_block", kernel_block_size=2)]}
    before = copy.deepcopy(BEFORE)
    before[1]["groups"] = [group_plan([[6, 7, 10, 11]], [12, 13, 14, 15, 20, 21], columns=8)]

    def line(*rows, **more):
        return right(parts=[group_plan(list(rows), SLOTS, columns=8, **more)])

    def kernel(record):
        return found(judge(*before, record, end(2), geometry_line=geometry(**fields)))

    assert kernel(line([14, 15], [6, 7, 10, 11, 4, 5])) == []
    assert kernel(line([14, 15], [6, 7, 10, 11, 5, 4])) == [(301, 0, 1, 4)]
    # 0 and 1 are the null block's entries, 19 is the last one
    assert kernel(line([14, 15], [6, 7, 10, 1, 4, 5])) == [(302, 0, 1, 3)]
    assert kernel(line([14, 19], [6, 7, 10, 20, 4, 5])) == [(301, 0, 2, 1), (303, 0, 1, 3)]
    assert kernel(line([14, 15], [6, 7, 10, 11, 4], row_columns=[2, 5])) == [(304, 0, 1, 5)]
    # a table in blocks: the wrong unit
    assert kernel(line([7], [3, 5, 2])) == [
        (301, 0, 1, 0), (301, 0, 2, 0), (302, 0, 1, 3), (302, 0, 2, 1),
    ]  # fmt: skip


def test_two_groups_are_judged_apart():
    # group 1: blocks of 8 tokens in a pool of its own; request 1 in [4, 6]: 6 tokens, then 6..8
    fields = {"groups": [group(), group(id=1, pool=1, block_size=8)], "pools": [pool(), pool(id=1)]}
    first = begin(1, admit(1, [3, 5, 2], [4, 6], first=0), [scheduled(1, 9, 0)])
    slots0 = [12, 13, 14, 15, 20, 21, 22, 23, 8]
    slots1 = [32, 33, 34, 35, 36, 37, 38, 39, 48]

    def both(table1, wrong=None):
        mapping = list(slots1)
        if wrong is not None:
            mapping[8] = wrong
        parts = [group_plan([[3, 5, 2]], slots0), group_plan(table1, mapping, group=1)]
        return plan(1, [1], [0, 9], [9], *parts)

    def two(record):
        return found(judge(first, record, end(1), geometry_line=geometry(**fields)))

    assert two(both([[4, 6]])) == []
    assert two(both([[4, 5]])) == [(301, 1, 1, 1)]
    assert two(both([[4, 6]], wrong=49)) == [(401, 1, 1, 8)]
    # 79 is the last slot of 10 blocks of 8
    assert two(both([[4, 6]], wrong=79)) == [(401, 1, 1, 8)]
    assert two(both([[4, 6]], wrong=80)) == [(404, 1, 1, 8)]


def bound_wrong(block, table, slots):
    """Request 1 in [3, block], 5 tokens; found are the plan's findings alone."""
    first = begin(1, admit(1, [3, block]), [scheduled(1, 5, 0)])
    line = plan(1, [1], [0, 5], [5], group_plan(table, slots))
    return [key for key in found(judge(first, line, end(1))) if key[0] >= 300]


def test_a_block_bound_out_of_its_pool_is_expected_all_the_same():
    # 12 * 4 = 48
    assert bound_wrong(12, [[3, 12]], [12, 13, 14, 15, 48]) == []
    assert bound_wrong(12, [[3, 5]], [12, 13, 14, 15, 20]) == [(301, 0, 1, 1), (401, 0, 1, 4)]
    # an id that does not fit the table is expected as -1
    huge = 2**31
    assert bound_wrong(huge, [[3, -1]], [12, 13, 14, 15, huge * 4]) == []
    assert bound_wrong(huge, [[3, 12]], [12, 13, 14, 15, huge * 4]) == [(303, 0, 1, 1)]


def test_a_block_of_several_entries_fits_whole_or_not_at_all():
    # 2 entries a block: 2**30 - 1 ends at 2**31 - 1, 2**30 would start there
    def bound(block, entries):
        kinds = [group(table_unit="kernel_block", kernel_block_size=2)]
        part = group_plan([[6, 7, *entries]], [12, 13, 14, 15, block * 4])
        first = begin(1, admit(1, [3, block]), [scheduled(1, 5, 0)])
        result = judge(first, plan(1, [1], [0, 5], [5], part), geometry_line=geometry(kinds))
        return [key for key in found(result) if key[0] >= 300]

    last = 2**30 - 1
    assert bound(last, [2 * last, 2 * last + 1]) == []
    assert bound(last, [-1, -1]) == [(303, 0, 1, 2)]
    assert bound(last + 1, [-1, -1]) == []
    assert bound(last + 1, [2**31 - 2, 2**31 - 1]) == [(303, 0, 1, 2)]


def test_a_column_bound_as_nothing_has_no_slot_to_judge():
    assert bound_wrong(-1, [[3, -1]], [12, 13, 14, 15, 20]) == []
    assert bound_wrong(-1, [[3, -1]], [12, 13, 14, 16, 20]) == [(401, 0, 1, 3)]
    assert bound_wrong(-1, [[3, -1]], [12, 13, 14, 40, 20]) == [(404, 0, 1, 3)]
    assert bound_wrong(-1, [[3, -1]], [12, 13, 14, 15, -1]) == []


def test_an_unbound_column_has_no_slot():
    first = begin(1, admit(1, [3]), [scheduled(1, 5, 0)])

    def line(slot):
        return plan(1, [1], [0, 5], [5], group_plan([[3]], [12, 13, 14, 15, slot]))

    # wrong whatever it is
    assert found(judge(first, line(-1), end(1))) == [(204, 0, 1, 4), (403, 0, 1, 4)]
    assert found(judge(first, line(20), end(1))) == [(204, 0, 1, 4), (401, 0, 1, 4)]
    assert found(judge(first, line(0), end(1))) == [(204, 0, 1, 4), (402, 0, 1, 4)]
    # and then doubled slots are looked for
    assert found(judge(first, line(15), end(1))) == [
        (204, 0, 1, 4), (401, 0, 1, 4), (405, 0, 1, 4),
    ]  # fmt: skip


def test_foreign_writes_end_after_eight():
    # one token a block: request 1 in 1..20, request 2 in 31..50; 9 tokens right, then 11 wrong
    fields = {
        "groups": [group(block_size=1, kernel_block_size=1, max_columns=0)],
        "pools": [pool(num_blocks=60)],
        "max_model_len": 0,
    }
    own, others = list(range(1, 21)), list(range(31, 51))
    first = begin(1, [*admit(1, own, count=20), *admit(2, others)], [scheduled(1, 20, 0)])
    part = group_plan([own], own[:9] + others[:11], columns=20)
    result = judge(first, plan(1, [1], [0, 20], [20], part), geometry_line=geometry(**fields))
    assert found(result) == [(401, 0, 1, 9), *((602, 0, 1, pos) for pos in range(9, 17))]


def test_a_run_ends_where_a_token_lies_elsewhere():
    # request 2's block 7 (slots 28..31), the null block between
    events = [*admit(1, [1, 2]), *admit(2, [7])]
    part = group_plan([[1, 2]], [28, 29, 0, 30, 8, 9])
    line = plan(1, [1], [0, 6], [6], part)
    assert found(judge(begin(1, events, [scheduled(1, 6, 0)]), line)) == [
        (401, 0, 1, 0), (402, 0, 1, 2), (602, 0, 1, 0), (602, 0, 1, 3),
    ]  # fmt: skip


# Drafts: the start is known as a range


def drafting(*records):
    """Step 1 ran 6 tokens, 2 of them drafts: the frontier is [4, 6]; step 2 runs 1 at 6 at most."""
    first = begin(1, admit(1, [3, 5]), [scheduled(1, 6, 0, 2)])
    ran = plan(1, [1], [0, 6], [6], group_plan([[3, 5]], [12, 13, 14, 15, 20, 21]))
    second = begin(2, [], [scheduled(1, 1, 6)])
    return judge(first, ran, end(1), second, *records, geometry_line=geometry(flags=ASYNC))


def one_token(position, slot, length, **fields):
    part = group_plan([[3, 5]], [slot])
    return plan(2, [1], [0, 1], [length], part, positions=[position], **fields)


@pytest.mark.parametrize(("start", "slot"), [(4, 20), (5, 21), (6, 22)])
def test_any_start_that_the_drafts_allow(start, slot):
    result = drafting(one_token(start, slot, start + 1), end(2))
    assert (result.findings, result.assumptions) == ([], 1)


def test_a_start_that_no_outcome_allows():
    # clamped to 4: slot 20, length 5
    result = drafting(one_token(3, 15, 4), end(2))
    assert found(result) == [(401, 0, 1, 4), (501, None, 1, 5), (901, None, 1, 4)]


def test_a_start_without_positions_comes_from_the_length():
    part = group_plan([[3, 5]], [21])
    assert found(drafting(plan(2, [1], [0, 1], [6], part), end(2))) == []
    # length 6: the token stands at 5, slot 21 and not 22
    part = group_plan([[3, 5]], [22])
    assert found(drafting(plan(2, [1], [0, 1], [6], part), end(2))) == [(401, 0, 1, 5)]


def test_a_late_outcome_fixes_the_start():
    # 1 of 2 rejected: 5 are valid
    result = drafting(outcome(1, (1, 1)), one_token(5, 21, 6), end(2))
    assert (result.findings, result.assumptions) == ([], 0)
    result = drafting(outcome(1, (1, 1)), one_token(6, 22, 7), end(2))
    assert found(result) == [(401, 0, 1, 5), (501, None, 1, 6), (901, None, 1, 5)]


def test_a_second_step_in_flight_widens_the_frontier():
    # step 2 ran 3 tokens, 2 of them drafts, from 4..6: [5, 9]; both outcomes: 4 + 1 = 5 and all
    # accepted in step 2: 8
    first = begin(1, admit(1, [3, 5, 2]), [scheduled(1, 6, 0, 2)])
    second = begin(2, [], [scheduled(1, 3, 6, 2)])
    known = [outcome(1, (1, 1)), outcome(2, (1, 0))]

    def third(position, slot):
        part = group_plan([[3, 5, 2]], [slot])
        return plan(3, [1], [0, 1], [position + 1], part, positions=[position])

    def ran(*records):
        third_begin = begin(3, [], [scheduled(1, 1, 9)])
        stream = [first, end(1), second, end(2), third_begin, *records, end(3)]
        return judge(*stream, geometry_line=geometry(flags=ASYNC))

    for position, slot in [(5, 21), (7, 23), (8, 8), (9, 9)]:
        assert found(ran(third(position, slot))) == []
    assert found(ran(*known, third(8, 8))) == []
    assert (901, None, 1, 8) in found(ran(*known, third(9, 9)))


@pytest.mark.parametrize(
    ("rejected", "taken", "expected"),
    [
        # 6 tokens ran, 2 of them drafts: the next one stands at 4, 5 or 6
        (2, 4, []),
        (1, 5, []),
        (0, 6, []),
        (0, 4, [(901, None, 1, 6)]),
        (2, 5, [(901, None, 1, 4)]),
        # clamped: found as it was taken, and the start is then 6
        (2, 7, [(901, None, 1, 6)]),
    ],
)
def test_a_taken_start_is_compared_when_the_outcomes_are_told(rejected, taken, expected):
    first = [begin(1, admit(1, [3, 5]), [scheduled(1, 6, 0, 2)]), end(1)]
    second = begin(2, [], [scheduled(1, 1, 6)])
    part = group_plan([[3, 5]], [20 + taken - 4])
    line = plan(2, [1], [0, 1], [min(taken, 6) + 1], part, positions=[taken])
    final = {**line, "stage": "final"}
    told = outcome(1, (1, rejected))
    fields = {"geometry_line": geometry(flags=ASYNC)}

    def without_slots(*records):
        result = judge(*records, **fields)
        return sorted((f.code, f.group, f.request, f.pos) for f in result.findings if f.code == 901)

    assert without_slots(*first, second, line, end(2), told) == expected
    # once for a start, told inside the step too; and never when the outcome is not told
    if taken <= 6:
        assert without_slots(*first, second, line, final, told, end(2)) == expected
        assert without_slots(*first, second, line, end(2)) == []
