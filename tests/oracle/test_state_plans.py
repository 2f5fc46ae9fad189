# SPDX-License-Identifier: Apache-2.0
"""Recurrent groups: what a plan shows of tables and states, each beside its neighbour.

Corners of docs/judging.md, States. Blocks of 4 tokens: the state of c tokens is in column
ceil(c / 4) - 1, behind it those of the drafts.
"""

import pytest
from kvguard_oracle import UnsupportedError
from scenario import (
    ASYNC,
    begin,
    end,
    event,
    found,
    group_plan,
    judge,
    outcome,
    plan,
    pool,
    scheduled,
    state_plan,
)
from state_scenario import (
    ABANDONED,
    ALIGN,
    ALL,
    NO_FORWARD,
    NONE,
    STATES,
    Row,
    binds,
    codes,
    copy,
    drafted,
    engine,
    more,
    new,
    runs,
    shown,
    step,
    transfer,
)

# Places


def starts_from(block, start, *before, mode=ALIGN, ends=None, flags=0):
    """What a row that starts from `block` is told; the state is left in its right column."""
    row = Row(1, start, 1, block, 0)
    part = state_plan([block], None, [0], 1)
    number = 1 + max(record["step"] for record in before)
    records = [*before, *step(number, row, part=part)]
    return [finding for finding in codes(*records, mode=mode, flags=flags) if finding[0] == 1001]


@pytest.mark.parametrize(
    ("rejected", "start", "right"), [(2, 5, 2), (1, 6, 3), (0, 7, 4)], ids=["none", "one", "two"]
)
def test_the_place_moves_with_the_accepted_drafts(rejected, start, right):
    for inside in (True, False):
        told = [outcome(2, (1, rejected))]
        before = drafted()
        before = [*before[:3], *told, before[3]] if inside else [*before, *told]
        for block in (3, 4, right):
            expected = [] if block == right else [(1001, STATES, 1, start)]
            assert starts_from(block, start, *before) == expected


def test_drafts_in_mode_none():
    before = runs(1, 1, 4, 0, *new(1, [1, 2, 3]))
    before += runs(2, 1, 3, 4, drafts=2, outcomes=[(1, 0)])
    for block in (1, 2, 3):
        expected = [] if block == 3 else [(1001, STATES, 1, 7)]
        assert starts_from(block, 7, *before, mode=NONE) == expected
    # without drafts the next step leaves it in column 0 again
    before += runs(3, 1, 1, 7)
    assert starts_from(1, 8, *before, mode=NONE) == []
    assert starts_from(2, 8, *before, mode=NONE) == [(1001, STATES, 1, 8)]


def test_places_that_are_not_known():
    wrong = 9
    before = runs(1, 1, 5, 0, *new(1, [1, 2]))
    assert starts_from(wrong, 5, *before) == [(1001, STATES, 1, 5)]
    # a step that ran nothing changes nothing
    idle = runs(2, 1, 1, 5, flags=NO_FORWARD)
    assert starts_from(wrong, 5, *before, *idle) == [(1001, STATES, 1, 5)]
    # 4 of 5 tokens: where that state stands nobody said
    assert starts_from(wrong, 4, *before) == []
    gone = runs(2, 1, 1, 5, flags=ABANDONED)
    assert starts_from(wrong, 5, *before, *gone) == []
    assert starts_from(wrong, 6, *before, *gone) == []
    # but that of a later step is
    assert starts_from(wrong, 6, *before, *gone, *runs(3, 1, 1, 5)) == [(1001, STATES, 1, 6)]


def test_the_place_of_an_admission():
    assert starts_from(1, 8, binds(1, *new(1, [0, 1, 2], 8)), end(1)) == []
    assert starts_from(3, 8, binds(1, *new(1, [0, 1, 2], 8)), end(1)) == [(1001, STATES, 1, 8)]
    # of other tokens than those that it came with
    assert starts_from(3, 6, binds(1, *new(1, [0, 1, 2], 8)), end(1)) == []
    # a place that is not bound
    back = event("rollback", 1, count=1)
    assert starts_from(3, 7, binds(1, *new(1, [0, 1, 2], 8), back), end(1)) == []
    assert starts_from(3, 8, binds(1, *new(1, [0], 8)), end(1)) == []


def test_a_start_that_ended_open_leaves_no_place():
    # [5, 7] at the start of step 3, and nothing is told before its end
    opened = [*drafted(), *runs(3, 1, 2, 7)]
    told = outcome(2, (1, 0))
    assert starts_from(9, 9, *opened, told, flags=ASYNC) == []
    inside = [*drafted(), *opened[4:5], told, *opened[5:]]
    assert starts_from(9, 9, *inside, flags=ASYNC) == [(1001, STATES, 1, 9)]


def test_a_taken_start_has_a_place():
    # the plan says 6: the state stands in column 2 (block 3)
    def took(block):
        row = Row(1, 6, 1, block, 2)
        records = [begin(3, [], [scheduled(1, 1, 7)]), shown(3, [row], state_part(row)), end(3)]
        return codes(*drafted(), *records, flags=ASYNC)

    assert took(3) == []
    assert took(4) == [(1001, STATES, 1, 6)]


def state_part(row):
    return state_plan([row.starts], [row.ends], [row.init], 1)


# What does not judge states


def test_what_does_not_judge_states():
    ran = runs(1, 1, 5, 0, *new(1, [1, 2]))
    # another block than the one that is bound is loaded and sent
    assert codes(*ran, binds(2, transfer("load", 7, 5, request=1))) == []
    assert codes(*ran, binds(2, transfer("send-pending", 7, 5, request=1))) == []
    # the running state is zeroed, is the target of a copy, or the null block is
    assert codes(*ran, binds(2, event("zero", 0, STATES, blocks=[2]))) == []
    assert codes(*ran, binds(2, event("zero", 0, 0, blocks=[2]))) == []
    assert codes(*ran, binds(2, copy("copy", 1, 2, 1, 0))) == []
    attention = event("copy", 0, 0, blocks=[11, 12])
    assert codes(*ran, binds(2, attention)) == [(1204, 0, 1, -1)]
    # a source that is zeroed is a fault of the record
    zero = event("zero", 0, STATES, blocks=[1])
    assert codes(*ran, binds(2, zero, copy("copy", 1, 2))) == [(1205, STATES, 0, -1)]


def test_uses_before_a_zero_a_copy_or_a_load():
    row = Row(1, 5, 1, 2, 2)
    before = runs(1, 1, 5, 0, *new(1, [1, 2]))
    said = [copy("copy-done", 8, 9), event("zero-done", 0, STATES, blocks=[8])]
    copies = [copy("copy", 1, 2), event("zero", 0, STATES, blocks=[2])]
    assert codes(*before, *step(2, row, events=copies, told=said)) == [
        # that they are lost is told at the end
        (1206, STATES, 0, -1),
        (1206, STATES, 0, -1),
    ]
    loads = transfer("load", 7, 2, request=1, first=4)
    found_codes = codes(*before, *step(2, row, events=[loads]))
    # it writes there, and that is all
    assert found_codes == [(1102, STATES, 1, 4)]


def test_slots_of_states_are_nobodys():
    first = Row(1, 0, 4, 1, 1)
    part = {**state_plan([1], [1], [1], 1), "slots": {"dtype": "i64", "values": [7, 7, 0, 999, 5]}}
    assert codes(*step(1, first, events=new(1, [1]), part=part, padded_tokens=4)) == []
    idle = plan(0, [], [0], [], part, pass_name="dummy", padded_tokens=5)
    assert codes({**idle, "groups": [{**part, "encoding": None, "reads": None}]}) == []
    attention_part = group_plan(None, [0])
    idle = plan(0, [], [0], [], attention_part, pass_name="dummy", padded_tokens=1)
    assert codes(idle) == [(406, 0, 0, 0)]


# Tables


def table(*row, columns=4, row_columns=None):
    return group_plan([list(row)], None, STATES, columns, row_columns)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        # 9 tokens in column 2, a draft's in column 3; the start's state is in column 1
        ((1, 2, 3, 4), []),
        ((9, 2, 3, 4), []),
        ((1, 9, 3, 4), [(301, STATES, 1, 1)]),
        ((1, 2, 0, 4), [(302, STATES, 1, 2)]),
        ((1, 2, 3, 60), [(303, STATES, 1, 3)]),
        ((1, 9, 9, 4), [(301, STATES, 1, 1)]),
    ],
)
def test_entries_that_are_compared(row, expected):
    before = runs(1, 1, 8, 0, *new(1, [1, 2, 3, 4, 5]))
    shows = table(*row, 8, columns=5)
    row = Row(1, 8, 2, 0, 0, drafts=1)
    assert codes(*before, *step(2, row, part=shows, outcomes=[(1, 0)])) == expected


def test_tables_of_the_other_modes():
    none = table(1, 9, 9, columns=3)
    assert codes(*step(1, Row(1, 0, 4, 0, 0), events=new(1, [1, 2, 3]), part=none), mode=NONE) == []
    wrong = table(9, 2, 3, columns=3)
    assert codes(*step(1, Row(1, 0, 4, 0, 0), events=new(1, [1, 2, 3]), part=wrong), mode=NONE) == [
        (301, STATES, 1, 0)
    ]
    # mode all: from the column of the first token on
    before = runs(1, 1, 5, 0, *new(1, [1, 2, 3, 4]))
    row = Row(1, 5, 4, 0, 0)
    assert codes(*before, *step(2, row, part=table(9, 2, 3, 9)), mode=ALL) == []
    assert codes(*before, *step(2, row, part=table(1, 9, 3, 4)), mode=ALL) == [(301, STATES, 1, 1)]
    # how many columns are live is compared as ever
    short = table(1, 2, 3, 4, row_columns=[3])
    assert codes(*before, *step(2, row, part=short), mode=ALL) == [(304, STATES, 1, 3)]


def test_tables_of_rows_whose_start_is_open():
    # [5, 7]: whatever the plan says of the start
    def shows(*row, told=(), row_columns=None):
        shown_row = shown(3, [Row(1, 7, 1, 0, 0)], table(*row, row_columns=row_columns))
        records = [begin(3, [], [scheduled(1, 1, 7)]), *told, shown_row, end(3)]
        return codes(*drafted(), *records, flags=ASYNC)

    assert shows(9, 9, 9, 9) == []
    # how many columns are live is compared as ever
    assert shows(9, 9, 9, 9, row_columns=[3]) == [(304, STATES, 1, 3)]
    # 7 tokens stand in column 3, 8 are left in column 1
    told = [outcome(2, (1, 0))]
    assert shows(9, 2, 9, 4, told=told) == []
    assert shows(9, 2, 9, 9, told=told) == [(301, STATES, 1, 3)]


def test_tables_show_the_place_and_not_what_is_stored_besides():
    # 8 tokens behind two drafts in column 3, and in column 1
    before = runs(1, 1, 5, 0, *new(1, [1, 2, 3, 4]))
    before += runs(2, 1, 3, 5, drafts=2, outcomes=[(1, 0)])
    row = Row(1, 8, 1, 0, 0)
    assert codes(*before, *step(3, row, part=table(9, 9, 3, 4))) == []
    assert codes(*before, *step(3, row, part=table(9, 2, 3, 9))) == [(301, STATES, 1, 3)]


# What a plan shows of states


def crossing(starts, told=(), events=(), before=(), mode=ALIGN, init=0):
    """8 tokens in column 1 (block 2); the 9th enters column 2 (block 3)."""
    first = runs(1, 1, 8, 0, *new(1, [1, 2, 3]))
    part = state_plan([starts], None, [init], 1)
    told_step = step(5, Row(1, 8, 1, 0, 0), part=part, told=told, events=events)
    result = judge(*first, *before, *told_step, geometry_line=engine(mode))
    return found(result), result.assumptions


def test_copies():
    done = copy("copy-done", 2, 3)
    other = copy("copy-done", 8, 3)
    assert crossing(2) == ([], 0)
    assert crossing(3) == ([], 1)
    assert crossing(3, [done]) == ([], 0)
    assert crossing(2, [done]) == ([], 0)
    # anywhere, if that was said
    assert crossing(9) == ([(1001, 1, 1, 8)], 0)
    assert crossing(9, [copy("copy-done", 2, 9)]) == ([], 0)
    # copied from elsewhere, or in another step, or in another group
    assert crossing(3, [other]) == ([(1005, 1, 1, 8)], 0)
    earlier = [binds(3, done), end(3)]
    assert crossing(3, before=earlier) == ([(1005, 1, 1, 8)], 0)
    attention = event("copy-done", 0, 0, blocks=[2, 3])
    assert crossing(3, [attention]) == ([], 1)
    # a RESET does not forget what the engine says
    again = [*earlier, {"record": "reset", "step": 0, "reason": "arm"}]
    again += runs(4, 1, 8, 0, *new(1, [1, 2, 3]))
    assert crossing(3, before=again) == ([(1005, 1, 1, 8)], 0)
    # only the mode align copies
    assert crossing(3, mode=ALL) == ([(1001, 1, 1, 8)], 0)
    # nothing is read where it starts anew
    assert crossing(9, init=1) == ([(1004, 1, 1, 8)], 0)


def at_a_boundary(starts, told=(), states=(1, 2, 3, 4), rejected=0):
    """8 tokens behind two drafts in column 3, and in column 1; the 9th enters column 2."""
    before = runs(1, 1, 5, 0, *new(1, states))
    before += runs(2, 1, 3, 5, drafts=2, outcomes=[(1, rejected)])
    row = Row(1, 8 - rejected, 1, starts, 0)
    part = state_plan([starts], None, [0], 1)
    result = judge(*before, *step(3, row, part=part, told=told), geometry_line=engine(ALIGN))
    return found(result), result.assumptions


def test_a_state_that_was_stored_at_a_boundary():
    assert at_a_boundary(4) == ([], 0)
    assert at_a_boundary(2) == ([], 0)
    assert at_a_boundary(1) == ([(1001, STATES, 1, 8)], 0)
    # copied from either, said or unsaid
    assert at_a_boundary(3) == ([], 1)
    assert at_a_boundary(3, [copy("copy-done", 4, 3)]) == ([], 0)
    assert at_a_boundary(3, [copy("copy-done", 2, 3)]) == ([], 0)
    assert at_a_boundary(9, [copy("copy-done", 2, 9)]) == ([], 0)
    assert at_a_boundary(3, [copy("copy-done", 1, 3)]) == ([(1005, STATES, 1, 8)], 0)
    # 7 tokens stand in column 2 alone
    assert at_a_boundary(3, rejected=1) == ([], 0)
    assert at_a_boundary(2, rejected=1) == ([(1001, STATES, 1, 7)], 0)


def test_what_is_stored_in_the_null_block_is_stored_nowhere():
    # column 1, where 5 and 8 tokens end
    null = [(202, STATES, 1, 1)] * 2

    def shown(starts, *told):
        return at_a_boundary(starts, list(told), (1, 0, 3, 4))

    assert shown(4) == (null, 0)
    assert shown(0) == ([*null, (1001, STATES, 1, 8)], 0)
    assert shown(3, copy("copy-done", 4, 3)) == (null, 0)
    assert shown(3, copy("copy-done", 0, 3)) == ([*null, (1005, STATES, 1, 8)], 0)
    assert shown(9, copy("copy-done", 0, 9)) == ([*null, (1001, STATES, 1, 8)], 0)


@pytest.mark.parametrize("block", [5, -5, -1])
def test_columns_that_are_bound_as_nothing_are_not_judged(block):
    # the row starts from column 0 and leaves its state there
    row = Row(1, 3, 1, block, block)
    assert codes(*step(1, row, events=new(1, [-5], 3))) == [(201, STATES, 1, 0)]
    # an id that fits is expected
    expected = [(201, STATES, 1, 0), (1001, STATES, 1, 3), (1002, STATES, 1, 4)]
    assert codes(*step(1, row, events=new(1, [99], 3))) == expected
    # what may be stored in such a column is stored nowhere
    findings, _ = at_a_boundary(-1, states=(1, -5, 3, 4))
    assert findings == [(201, STATES, 1, 1), (1001, STATES, 1, 8)]
    # a column that is not there is no block
    assert codes(*step(1, Row(1, 4, 1, -1, 0), events=new(1, [1], 4))) == [
        (204, STATES, 1, 4), (1001, STATES, 1, 4)
    ]  # fmt: skip


def read(block):
    return state_plan([block], None, [0], 1)


def test_accepted_drafts_inside_a_column_are_not_copied_unsaid():
    # 7 tokens end in column 1, two drafts behind it: all accepted, 7 stand in column 3
    before = runs(1, 1, 4, 0, *new(1, [1, 2, 3, 4]))
    before += runs(2, 1, 3, 4, drafts=2, outcomes=[(1, 0)])
    # 8 tokens end in column 1 too: what stands there is the state of 5
    assert codes(*before, *step(3, Row(1, 7, 1, 0, 0), part=read(2))) == [(1001, STATES, 1, 7)]
    # 9 end in column 2
    assert codes(*before, *step(3, Row(1, 7, 2, 0, 0), part=read(3))) == []
    # an admission of 5 tokens stands in column 1
    before = runs(1, 1, 1, 5, *new(1, [0, 1, 2], 5), flags=NO_FORWARD)
    assert codes(*before, *step(2, Row(1, 5, 3, 0, 0), part=read(2))) == [(1001, STATES, 1, 5)]
    assert codes(*before, *step(2, Row(1, 5, 4, 0, 0), part=read(2))) == []


def test_arrays_that_are_not_presented():
    before = runs(1, 1, 4, 0, *new(1, [1, 2]))

    def told(*arrays):
        return codes(*before, *step(2, Row(1, 4, 1, 0, 0), part=state_plan(*arrays, 1)))

    assert told([9], None, None) == [(1001, STATES, 1, 4)]
    assert told(None, [9], None) == [(1002, STATES, 1, 5)]
    assert told(None, None, [1]) == [(1004, STATES, 1, 4)]
    assert told(None, None, [0]) == []
    assert (
        codes(*step(1, Row(1, 0, 4, 0, 0), events=new(1, [1]), part=state_plan([9], [1], None, 1)))
        == []
    )


def test_what_rows_leave_in_other_blocks():
    other = runs(1, 2, 4, 0, *new(2, [5]))

    def left(block, states=(1, 2)):
        part = state_plan(None, [block], [1], 1)
        return codes(*other, *step(2, Row(1, 0, 5, 0, 0), events=new(1, states), part=part))

    assert left(2) == []
    assert left(1) == [(1002, STATES, 1, 5)]
    assert left(5) == [(602, STATES, 1, 5), (1002, STATES, 1, 5)]
    # a block of attention of the same pool is somebody's too
    assert left(20) == [(602, STATES, 1, 5), (1002, STATES, 1, 5)]
    assert left(10) == [(1002, STATES, 1, 5)]
    for nobody in (0, -1, 60, 9):
        assert left(nobody) == [(1002, STATES, 1, 5)]
    # the column is not bound
    assert left(5, states=[1]) == [(204, STATES, 1, 4)]


def test_padding():
    def pads(starts, ends, null_block=0):
        ran = step(1, Row(1, 0, 4, 1, 1), events=new(1, [1]))
        ran[1] = shown(1, [Row(1, 0, 4, 1, 1)], state_plan(starts, ends, [1], 1), padded_rows=3)
        described = {**engine(NONE), "pools": [pool(num_blocks=60, null_block=null_block)]}
        result = judge(*ran, geometry_line=described)
        return [(finding.code, finding.row, finding.pos) for finding in result.findings]

    assert pads([1, 0, 0], [1, 0, 0]) == []
    assert pads([1, 2, 0], [1, 0, 0]) == [(1006, 1, -1)]
    assert pads([1, 0, 60], [1, 0, 0]) == [(1006, 2, -1)]
    assert pads([1, -2, 0], [1, 0, 0]) == [(1006, 1, -1)]
    # the states that are left come first
    assert pads([1, 2, 0], [1, 0, 3]) == [(1006, 2, -1)]
    # as far as the arrays go
    assert pads([1], [1, 0]) == []
    assert pads([1], [1, 0, 0, 5]) == []
    # without a null block 0 is a state like any other
    assert pads([1, -1, 0], None, null_block=-1) == [(1006, 2, -1)]


# Gaps and malformed plans


def test_what_must_be_shown():
    first = Row(1, 0, 4, 1, 1)

    def gaps(part):
        ran = step(1, first, events=new(1, [1]), part=part)
        return sorted(judge(*ran, geometry_line=engine(NONE)).gaps)

    assert gaps(None) == []
    assert gaps(table(1, columns=1)) == []
    assert gaps(state_plan(None, None, None, 1)) == ["states-not-presented"]
    assert gaps(group_plan(None, [1, 2, 3, 4], STATES)) == ["states-not-presented"]
    silent = [begin(1, new(1, [1]), [scheduled(1, 4, 0)]), end(1)]
    assert sorted(judge(*silent, geometry_line=engine(NONE)).gaps) == [
        "slots-not-presented",
        "states-not-presented",
        "table-not-presented",
    ]


@pytest.mark.parametrize("arrays", [([], [1], [1]), ([1], [], [1]), ([1], [1], [])])
def test_arrays_that_are_too_short(arrays):
    ran = step(1, Row(1, 0, 4, 1, 1), events=new(1, [1]), part=state_plan(*arrays, 1))
    assert any("too short" in name for name in judge(*ran, geometry_line=engine(NONE)).gaps)


def test_an_attention_group_has_no_states():
    records = [begin(1, new(1, [1]), [scheduled(1, 4, 0)])]
    records.append(plan(1, [1], [0, 4], [4], state_plan([1], [1], [1], 0)))
    with pytest.raises(UnsupportedError):
        judge(*records, geometry_line=engine(NONE))


@pytest.mark.parametrize(("block", "judged"), [(1 << 40, False), ((1 << 31) - 1, True)])
def test_a_column_that_is_bound_as_nothing_is_not_judged(block, judged):
    """Of an id that is out of the pool: whether its whole block fits 31 bits."""

    def shows(starts, ends):
        ran = runs(1, 1, 8, 0, *new(1, [0, 1]))
        enters = step(2, Row(1, 8, 1, 1, block if judged else 2), events=[more(1, block)])
        found_ = codes(*ran, *enters, *step(3, Row(1, 9, 1, starts, ends)))
        return [finding for finding in found_ if finding[0] in (1001, 1002)]

    wrong = [(1001, STATES, 1, 9), (1002, STATES, 1, 10)]
    assert shows(5, 6) == (wrong if judged else [])
    assert shows(-1, -1) == (wrong if judged else [])
    # nor was the state copied there
    ran = runs(1, 1, 8, 0, *new(1, [0, 1]))
    enters = step(2, Row(1, 8, 1, -1, block), events=[more(1, block)])
    assert (1001, STATES, 1, 8) in codes(*ran, *enters)
