# SPDX-License-Identifier: Apache-2.0
"""Draft passes. Corners of docs/judging.md, Other passes."""

import pytest
from pass_scenario import PAD, Row, draft, engine, step, target
from scenario import (
    ASYNC,
    admit,
    array,
    begin,
    end,
    event,
    found,
    group,
    group_plan,
    judge,
    outcome,
    scheduled,
    state_plan,
)

BLOCKS = [3, 5, 7]


def judged(*records, **fields):
    result = judge(*records, geometry_line=engine(**fields))
    assert not any(name.startswith("malformed") for name in result.gaps)
    return result


def verified(*drafts, told=1, blocks=(3, 5, 7), events=(), others=(), **fields):
    """4 tokens, then 3 with two drafts, of which `told` were rejected: 5, 6 or 7 are valid."""
    blocks = list(blocks)
    outcomes = [] if told is None else [outcome(2, (1, told))]
    began = [*admit(1, blocks), *others]
    records = [
        *step(1, began, [(1, 4, 0)], target(1, Row(1, blocks, 0, 4))),
        *step(2, events, [(1, 3, 4, 2)], target(2, Row(1, blocks, 4, 3)), *outcomes, *drafts),
    ]
    return judged(*records, **fields)


def codes(*drafts, **fields):
    return found(verified(*drafts, **fields))


def stands(index, position, tokens=1, positions=True, **fields):
    return draft(2, index, Row(1, BLOCKS, position, tokens, **fields), positions=positions)


# Rows


def test_rows_that_are_there():
    assert codes(draft(2, 1)) == []
    assert codes(draft(2, 0)) == []
    unknown = draft(2, 1, Row(9, [8], 6, 1), positions=True)
    assert codes(unknown) == [(101, None, 9, -1)]
    double = draft(2, 1, Row(1, BLOCKS, 6, 1), Row(1, BLOCKS, 6, 1), positions=True)
    assert codes(double) == [(103, None, 1, -1)]
    # the row before is not judged further, and is there
    double = draft(2, 1, Row(1, BLOCKS, 5, 1), Row(1, BLOCKS, 6, 1), positions=True)
    assert codes(double) == [(103, None, 1, -1), (901, None, 1, 6)]


def test_rows_may_have_any_length():
    assert codes(stands(1, 6, 3)) == []
    assert codes(stands(0, 4, 1)) == []
    assert codes(stands(0, 4, 4)) == []
    assert codes(stands(1, 6, 0, length=99)) == []


def test_rows_without_usable_tokens():
    wrong = stands(1, 9, length=99)
    wrong["query_start"] = array([1, 1])
    assert codes(wrong) == [(105, None, 0, -1)]
    wrong["groups"][0]["reads"]["table"]["rows"] = [[3, 8, 7]]
    assert codes(wrong) == [(105, None, 0, -1), (301, 0, 1, 1)]


# Where they stand


@pytest.mark.parametrize(("told", "valid"), [(0, 7), (1, 6), (2, 5)])
@pytest.mark.parametrize("index", [1, 2, 3])
def test_behind_the_last_accepted_token(told, valid, index):
    right = valid + index - 1
    assert codes(stands(index, right), told=told) == []
    for start in (right - 1, right + 1):
        for positions in (True, None):
            told_start = stands(index, start, positions=positions)
            assert codes(told_start, told=told) == [(901, None, 1, right)]


@pytest.mark.parametrize("index", [1, 2])
def test_while_the_outcome_is_open(index):
    for start in range(4, 9):
        shifted = start - index + 1
        nearer = 5 if shifted < 5 else 7
        expected = [] if 5 <= shifted <= 7 else [(901, None, 1, nearer + index - 1)]
        assert codes(stands(index, start), told=None) == expected


def test_without_drafts_there_is_one_place():
    records = step(
        1, admit(1, BLOCKS), [(1, 4, 0)], target(1, Row(1, BLOCKS, 0, 4)),
        draft(1, 1, Row(1, BLOCKS, 4, 1)), draft(1, 1, Row(1, BLOCKS, 5, 1)),
    )  # fmt: skip
    assert found(judged(*records)) == [(901, None, 1, 4)]


def asynchronous(*drafts, told=(), last=()):
    """[5, 7], and 2 tokens more, of which one is a draft: [6, 9]."""
    first = step(1, admit(1, BLOCKS), [(1, 7, 0, 2)], target(1, Row(1, BLOCKS, 0, 7)))
    second = [begin(2, [], [scheduled(1, 2, 7, 1)]), *told, *drafts, end(2)]
    result = judged(*first, *second, *last, flags=ASYNC)
    return found(result), result.assumptions


def test_where_the_start_is_open():
    for start in range(5, 11):
        expected = [] if 6 <= start <= 9 else [(901, None, 1, 6 if start < 6 else 9)]
        assert asynchronous(stands(1, start)) == (expected, 0)
    # what was rejected says nothing without a start
    rejected = outcome(2, (1, 1))
    assert asynchronous(stands(1, 6), stands(1, 9), told=[rejected]) == ([], 0)
    # the start is 6: [7, 8], and 7 when the draft was rejected
    before = outcome(1, (1, 1))
    assert asynchronous(stands(1, 8), told=[before]) == ([], 0)
    assert asynchronous(stands(1, 9), told=[before]) == ([(901, None, 1, 8)], 0)
    assert asynchronous(stands(1, 8), told=[before, rejected]) == ([(901, None, 1, 7)], 0)


def test_pass_0_takes_the_start_as_a_target_does():
    took = draft(2, 0, Row(1, BLOCKS, 6, 2), positions=True)
    assert asynchronous(took) == ([], 1)
    assert asynchronous(took, last=[outcome(1, (1, 0))]) == ([(901, None, 1, 7)], 1)
    assert codes(stands(0, 5, 3)) == [(401, 0, 1, 4), (501, None, 1, 7), (901, None, 1, 4)]


def test_counts_and_positions():
    # the number of computed tokens is not judged
    for index, start in ((0, 4), (1, 6)):
        counted = draft(2, index, Row(1, BLOCKS, start, 1), num_computed=[99], positions=[start])
        assert codes(counted) == []
    uneven = draft(2, 1, Row(1, BLOCKS, 6, 3), positions=[6, 7, 9])
    assert codes(uneven) == [(903, None, 1, 8)]
    uneven = draft(2, 0, Row(1, BLOCKS, 4, 3), positions=[4, 6, 6])
    assert codes(uneven) == [(903, None, 1, 5)]


def test_the_models_last_position():
    # of 7 tokens: 6 is the last position, wherever the drafts were accepted
    for index in (1, 2, 3):
        assert codes(stands(index, 6), max_model_len=7) == []
        assert codes(stands(index, 7, length=7), max_model_len=7) == [(901, None, 1, 6)]
    assert codes(stands(1, 5), max_model_len=7) == [(901, None, 1, 6)]
    # no bound
    assert codes(stands(3, 8), max_model_len=0) == []


# Lengths


def test_lengths_end_with_the_row():
    assert codes(stands(1, 6, length=8)) == [(501, None, 1, 7)]
    assert codes(stands(1, 6, 3, length=7)) == [(501, None, 1, 9)]
    # at most those of the model
    assert codes(stands(1, 6, 3, length=7), max_model_len=7) == []
    assert codes(stands(1, 6, 3, length=9), max_model_len=7) == [(501, None, 1, 7)]
    own = stands(1, 6)
    own["groups"][0]["reads"]["seq_lens"] = array([9])
    assert codes(own) == [(501, 0, 1, 7)]
    padded = draft(2, 1, Row(1, BLOCKS, 6, 1), padded_rows=2)
    padded["seq_lens"] = array([7, 1])
    assert codes(padded) == [(502, None, 0, -1)]


@pytest.mark.parametrize("index", [0, 1])
def test_a_row_without_tokens_has_no_length(index):
    empty = stands(index, 4, 0, length=99)
    assert codes(empty) == []
    empty["groups"][0]["reads"]["seq_lens"] = array([98])
    assert codes(empty) == []


# Slots


def test_the_pad_slot_is_right():
    assert codes(stands(1, 6, 2, slots=[PAD, PAD])) == []
    assert codes(stands(0, 4, 3, slots=[PAD, 21, PAD])) == []
    assert codes(stands(1, 6, 2, slots=[PAD, 99])) == [(404, 0, 1, 7)]
    assert codes(stands(1, 6, 2, slots=[1, 23])) == [(402, 0, 1, 6)]
    # behind the tokens it is the only one
    pads = draft(2, 1, Row(1, BLOCKS, 6, 1, slots=[22, 23]), padded_tokens=2)
    assert codes(pads) == [(406, 0, 0, 1)]


def test_tokens_beyond_the_model():
    assert codes(stands(1, 6, 2, slots=[22, 99], length=7), max_model_len=7) == []
    wrong = stands(1, 6, 2, slots=[22, 32], length=7)
    assert codes(wrong, max_model_len=7, others=admit(2, [8])) == []
    assert codes(wrong, max_model_len=8, others=admit(2, [8])) == [
        (401, 0, 1, 7), (501, None, 1, 8), (602, 0, 1, 7)
    ]  # fmt: skip


def unbound(*slots, tokens=3, others=()):
    """Two columns: positions from 8 on have none."""
    row = Row(1, [3, 5], 6, tokens, slots=list(slots))
    result = verified(draft(2, 1, row, positions=True), blocks=[3, 5], others=others)
    return [(f.code, f.grade, f.pos) for f in result.findings]


def test_columns_that_are_not_bound_are_suspected():
    assert unbound(22, 23, PAD) == []
    for slot in (99, 1, -7, 28):
        assert unbound(22, 23, slot) == [(401, "suspicion", 8)]
    assert unbound(22, 23, 28, 29, tokens=4) == [(401, "suspicion", 8)]
    # found apart from the 0401 of bound columns, which is a proof
    assert unbound(22, 24, 28) == [(401, "proof", 7), (401, "suspicion", 8)]
    assert unbound(23, 24, 28, 29, tokens=4) == [(401, "proof", 6), (401, "suspicion", 8)]
    assert unbound(22, 99, 28) == [(404, "proof", 7), (401, "suspicion", 8)]
    # another request's block is its own
    assert unbound(22, 23, 32, others=admit(2, [8])) == [
        (401, "suspicion", 8), (602, "proof", 8)
    ]  # fmt: skip


def test_slots_that_two_rows_write_are_not_judged():
    row = Row(1, BLOCKS, 6, 2, slots=[22, 22])
    assert codes(draft(2, 1, row, positions=True)) == [(401, 0, 1, 7)]
    # a target's are
    wrong = target(1, Row(1, BLOCKS, 0, 2, slots=[12, 12]))
    begun = [begin(1, admit(1, BLOCKS), [scheduled(1, 2, 0)]), wrong]
    assert found(judged(*begun)) == [(401, 0, 1, 1), (405, 0, 1, 1)]


def test_a_suspicion_alone_is_no_violation():
    row = Row(1, [3, 5], 6, 3, slots=[22, 23, 28])
    result = verified(draft(2, 1, row, positions=True), blocks=[3, 5])
    assert (result.verdict(), dict(result.suspicions())) == ("clean", {401: 1})


def test_slots_of_another_rank():
    # blocks of 4 on two ranks: 8 positions a column; this rank has the even ones
    sharded = {"dcp_size": 2, "dcp_rank": 0, "interleave": 1}
    blocks = [3, 5]

    def drafted(*slots):
        first = target(1, Row(1, blocks, 0, 4, slots=[12, PAD, 13, PAD]))
        row = Row(1, blocks, 4, 2, slots=list(slots))
        records = step(1, admit(1, blocks), [(1, 4, 0)], first, draft(1, 1, row))
        return found(judged(*records, **sharded))

    assert drafted(14, PAD) == []
    assert drafted(PAD, PAD) == []
    assert drafted(14, 15) == [(407, 0, 1, 5)]
    # what is bound does not matter there
    row = Row(1, [3], 7, 3, slots=[PAD, 17, 18])
    first = target(1, Row(1, [3], 0, 7, slots=[12, PAD, 13, PAD, 14, PAD, 15]))
    ran = step(1, admit(1, [3]), [(1, 7, 0)], first, draft(1, 1, row))
    result = judged(*ran, **sharded)
    assert [(f.code, f.grade, f.pos) for f in result.findings] == [
        (401, "suspicion", 8), (407, "proof", 9)
    ]  # fmt: skip


# What is not judged


def test_windows_are_looked_at_from_the_drafts_start():
    # at 11 the window has passed column 0
    kind = {"groups": [group(kind="window", window=8, max_columns=8)]}
    blocks = [3, 5, 7]

    def shown(index, table):
        first = target(1, Row(1, blocks, 0, 10))
        row = Row(1, blocks, 10 + index - 1, 1, table=table)
        records = step(1, admit(1, blocks), [(1, 10, 0)], first, draft(1, index, row))
        return found(judged(*records, **kind))

    assert shown(1, [8, 5, 7]) == [(301, 0, 1, 0)]
    assert shown(2, [8, 5, 7]) == []
    assert shown(2, [3, 8, 7]) == [(301, 0, 1, 1)]


def test_lifetime_and_transfers_are_not_judged():
    told = [event("load", 1, 0, value=7, blocks=[3]), event("zero-done", 0, 0, blocks=[9])]
    records = [
        *step(1, admit(1, BLOCKS), [(1, 4, 0)], target(1, Row(1, BLOCKS, 0, 4))),
        outcome(1, events=told[:1]),
        *step(2, [], [(1, 3, 4, 2)], outcome(2, events=told[1:]), stands(0, 4, 3)),
    ]
    assert found(judged(*records)) == []
    records[-2] = target(2, Row(1, BLOCKS, 4, 3))
    assert found(judged(*records)) == [(1101, 0, 1, 0)]


def test_states_are_not_judged():
    groups = [group(max_columns=8), group(id=1, kind="state", encoding="state", state_mode=2)]
    row = Row(1, BLOCKS, 0, 4)
    for part in (state_plan([9], [9], [0], 1), group_plan([[9, 9]], [99] * 4, 1, 2, [1])):
        pass_ = draft(1, 0, row, padded_rows=2)
        pass_["groups"].append(part)
        for view in ("in", "out"):
            if part["encoding"] == "state":
                part["reads"][view] = array([9, 9])
        records = [begin(1, admit(1, BLOCKS, [1]), [scheduled(1, 4, 0)]), pass_, end(1)]
        assert found(judged(*records, groups=groups)) == []


def test_a_draft_pass_shows_nothing_and_misses_nothing():
    only = [begin(1, admit(1, BLOCKS), [scheduled(1, 4, 0)]), draft(1, 0, Row(1, BLOCKS, 0, 4))]
    result = judged(*only, end(1))
    assert set(result.gaps) == {"slots-not-presented", "table-not-presented"}
    # one at stage FINAL promises nothing
    final = draft(2, 1, Row(1, BLOCKS, 6, 1), stage="final")
    later = step(3, [], [(1, 1, 6)], target(3, Row(1, BLOCKS, 6, 1)))
    records = [
        *step(1, admit(1, BLOCKS), [(1, 4, 0)], target(1, Row(1, BLOCKS, 0, 4))),
        *step(
            2, [], [(1, 3, 4, 2)], target(2, Row(1, BLOCKS, 4, 3)), outcome(2, (1, 1)), final
        ),
        *later,
    ]  # fmt: skip
    result = judged(*records)
    assert (result.findings, result.gaps) == ([], {})
    # and takes no promise's place
    records[1]["stage"] = "final"
    assert judged(*records).gaps == {"final-plan-missing": {2, 3}}
    bare = draft(2, 1, Row(1, BLOCKS, 6, 1))
    bare["groups"] = []
    assert codes(bare) == []
