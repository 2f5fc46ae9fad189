# SPDX-License-Identifier: Apache-2.0
"""Reads by lists (CSR, FLAT), each sentence of docs/judging.md, Lists, beside its legal neighbour.

Blocks of 4 tokens, 20 of them; block 0 is null. Numbers by hand: request 1 has the blocks 1, 2 and
6, request 2 the blocks 3 and 4.
"""

import pytest
from kvguard_oracle import UnreadableError, UnsupportedError
from kvguard_oracle.geometry import GROUP_REPLICATED
from layout_scenario import (
    Row,
    csr,
    csr_plan,
    engine,
    flat,
    flat_group,
    flat_plan,
    list_group,
    ring_group,
    runs,
    shown,
    step,
    table,
    written,
)
from scenario import (
    ASYNC,
    CONNECTOR,
    PAD_ROWS_NULL,
    admit,
    append,
    array,
    begin,
    end,
    found,
    group,
    group_plan,
    judge,
    pool,
    scheduled,
)

BLOCKS = [1, 2, 6]


def codes(line, *records):
    return found(judge(*records, geometry_line=line))


def decode(listed, line=None, tokens=5, blocks=BLOCKS, **fields):
    """The decode behind `tokens` tokens of request 1 reads `listed`."""
    row = Row(1, blocks, tokens, 1, listed)
    part = csr_plan([listed], written(Row(1, [1, 2, 6], tokens, 1)), **fields)
    line = line or engine(list_group())
    return codes(line, *runs(1, 1, tokens, 0, *admit(1, blocks)), *step(2, [], [row], part))


def flat_decode(listed, sentinel=-1, tokens=5, line=None, **fields):
    row = Row(1, BLOCKS, tokens, 1)
    part = flat_plan([listed], written(row), sentinel=sentinel, **fields)
    line = line or engine(flat_group())
    return codes(line, *runs(1, 1, tokens, 0, *admit(1, BLOCKS)), *step(2, [], [row], part))


# What is refused


@pytest.mark.parametrize(
    ("group_line", "fields"),
    [
        (list_group(kind="window", window=8), {}),
        (list_group(kind="chunked", window=8), {}),
        (list_group(kind="cross"), {}),
        (list_group(kind="state"), {}),
        (ring_group("csr"), {}),
        (list_group(), {"dcp_size": 2}),
        (flat_group(), {"dcp_size": 2}),
        (list_group(), {"pcp_size": 2, "pcp_layout": 1}),
        (flat_group(), {"pcp_size": 2, "pcp_layout": 1}),
        (list_group(flags=PAD_ROWS_NULL), {}),
        (flat_group(flags=PAD_ROWS_NULL), {}),
        (list_group(), {"pools": [pool(memory="host")]}),
        (flat_group(), {"pools": [pool(memory="host")]}),
        (list_group("flat", "block"), {}),
        (list_group("flat", "kernel_block"), {}),
        (list_group(unit="row"), {}),
        (group(table_unit="slot"), {}),
        (group(encoding="mask"), {}),
    ],
)
def test_what_is_refused(group_line, fields):
    with pytest.raises(UnsupportedError):
        judge(geometry_line=engine(group_line, **fields))


@pytest.mark.parametrize(
    ("group_line", "fields"),
    [
        (list_group(), {}),
        (list_group(unit="kernel_block", kernel_block_size=2), {}),
        (list_group(unit="slot"), {}),
        (flat_group(), {}),
        (list_group(flags=GROUP_REPLICATED), {"dcp_size": 2}),
        (flat_group(), {"flags": CONNECTOR | ASYNC, "max_drafts": 2}),
    ],
)
def test_what_is_not_refused(group_line, fields):
    assert judge(geometry_line=engine(group_line, **fields)).findings == []


# A group is shown by its own encoding, or its reads are left out


def gaps(part, group_line=None):
    row = Row(1, BLOCKS, 0, 5)
    line = engine(group_line or list_group())
    return judge(*step(1, admit(1, BLOCKS), [row], part), geometry_line=line).gaps


def test_reads_that_are_left_out():
    slots = written(Row(1, BLOCKS, 0, 5))
    assert gaps(csr([Row(1, BLOCKS, 0, 5)])) == {}
    assert gaps(group_plan(None, slots)) == {"table-not-presented": {1}}


def test_another_encoding_is_malformed():
    row = Row(1, BLOCKS, 0, 5)
    for part in (table([row]), flat([row])):
        assert any(name.startswith("malformed") for name in gaps(part))
    assert any(name.startswith("malformed") for name in gaps(csr([row]), flat_group()))


def test_when_a_group_counts_as_shown():
    slots = written(Row(1, BLOCKS, 0, 5))
    # FLAT without an entry needs no offsets
    assert gaps(flat_plan(None, slots), flat_group()) == {}
    # with one it does, as CSR does: which row reads it is not said
    with_entries = flat_plan([[4, 5, 6, 7, 8]], slots)
    with_entries["reads"]["starts"] = None
    assert any(name.startswith("malformed") for name in gaps(with_entries, flat_group()))
    with_entries = csr_plan([[1, 2]], slots)
    with_entries["reads"]["indptr"] = None
    assert any(name.startswith("malformed") for name in gaps(with_entries))
    absent = flat_plan(None, slots)
    absent["reads"]["slots"] = None
    assert gaps(absent, flat_group()) == {"table-not-presented": {1}}
    # an empty CSR list without offsets says nothing
    nothing = csr_plan([[]], slots)
    nothing["reads"]["indptr"] = None
    assert gaps(nothing) == {"table-not-presented": {1}}


@pytest.mark.parametrize(("name", "values"), [("indptr", [0]), ("last_page_len", [])])
def test_arrays_that_are_too_short_are_malformed(name, values):
    part = csr([Row(1, BLOCKS, 0, 5)])
    part["reads"][name] = array(values)
    assert any(name.startswith("malformed") for name in gaps(part))


# Offsets


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        ([0, 2], []),
        ([-1, 2], [(304, 0, 1, -1)]),
        ([1, 0], [(304, 0, 1, -1)]),
        ([0, 3], [(304, 0, 1, -1)]),
        ([2, 2], [(304, 0, 1, 0)]),
        ([1, 2], [(301, 0, 1, 0), (304, 0, 1, 1)]),
    ],
)
def test_offsets_that_are_no_list(offsets, expected):
    assert decode([1, 2], offsets=offsets) == expected


def test_a_list_that_is_none_is_not_judged_further():
    for last in (1, 2):
        assert decode([9, 9], offsets=[0, 3], last=[last]) == [(304, 0, 1, -1)]
    assert decode([1, 2], offsets=[0, 2], last=[1]) == [(501, 0, 1, 6)]


# Entries


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ([1, 2], []),
        ([2, 1], [(301, 0, 1, 0)]),
        ([1, 0], [(302, 0, 1, 1)]),
        ([0, 9], [(301, 0, 1, 1), (302, 0, 1, 0)]),
        ([1, -1], [(303, 0, 1, 1)]),
        ([20, 2], [(303, 0, 1, 0)]),
        ([19, 2], [(301, 0, 1, 0)]),
        ([1], [(304, 0, 1, 1)]),
        ([1, 2, 6], [(304, 0, 1, 2)]),
        ([9, 2, 6], [(301, 0, 1, 0), (304, 0, 1, 2)]),
        ([], [(304, 0, 1, 0)]),
    ],
)
def test_entries_of_blocks(listed, expected):
    assert decode(listed) == expected


def test_entries_of_kernel_blocks():
    line = engine(list_group(unit="kernel_block", kernel_block_size=2))
    # 6 tokens: 3 halves; block 0 shows as 0 and 1
    assert decode([2, 3, 4], line) == []
    assert decode([2, 3, 1], line) == [(302, 0, 1, 2)]
    assert decode([2, 3, 40], line) == [(303, 0, 1, 2)]
    assert decode([2, 3, 39], line) == [(301, 0, 1, 2)]
    assert decode([2, 3, 4, 5], line) == [(304, 0, 1, 3)]


def test_entries_of_slots():
    line = engine(list_group(unit="slot"))
    assert decode([4, 5, 6, 7, 8, 9], line) == []
    assert decode([4, 5, 6, 3, 8, 9], line) == [(302, 0, 1, 3)]
    assert decode([4, 5, 6, 7, 8, 80], line) == [(303, 0, 1, 5)]
    assert decode([4, 5, 6, 7, 8], line) == [(304, 0, 1, 5)]


def test_columns_that_are_not_bound():
    # 204 in both; the second entry is judged by its number alone
    short = [1]
    first = [*runs(1, 1, 4, 0, *admit(1, short))]
    part = csr_plan([[1, 9]], [8])
    found_ = codes(engine(list_group()), *first, *step(2, [], [Row(1, BLOCKS, 4, 1)], part))
    assert [f for f in found_ if f[0] // 100 == 3] == []
    part = csr_plan([[1]], [8])
    found_ = codes(engine(list_group()), *first, *step(2, [], [Row(1, BLOCKS, 4, 1)], part))
    assert [f for f in found_ if f[0] // 100 == 3] == [(304, 0, 1, 1)]


def test_columns_that_are_bound_as_nothing():
    line = engine(list_group(unit="slot"))

    def reads(block, value):
        row = Row(1, [1, block], 4, 1, [4, 5, 6, 7, value])
        part = csr_plan([row.listed], [-1])
        lines = [*runs(1, 1, 4, 0, *admit(1, [1, block])), *step(2, [], [row], part)]
        return [f for f in codes(line, *lines) if f[0] // 100 == 3]

    # id 30 is out of the pool and expected all the same; one beyond 31 bits is not
    assert reads(30, 120) == []
    assert reads(30, 121) == [(303, 0, 1, 4)]
    assert reads(2**29, 5) == []
    assert reads(2**29 - 1, 5) == [(301, 0, 1, 4)]


def test_rows_that_are_not_judged():
    line = engine(list_group())
    wrong = csr_plan([[9, 9]], [8, 9])
    first = runs(1, 1, 4, 0, *admit(1, BLOCKS))
    began = begin(2, [], [scheduled(1, 2, 4)])
    row = Row(1, BLOCKS, 4, 2)
    assert [c[0] for c in codes(line, *first, began, shown(2, [row], wrong), end(2))] == [301]
    # without usable tokens, or with none
    broken = {**shown(2, [row], wrong), "query_start": array([1, 2])}
    assert [c[0] for c in codes(line, *first, began, broken, end(2))] == [105]
    empty = Row(1, BLOCKS, 4, 0)
    none = shown(2, [empty], csr_plan([[9, 9]], []), lengths=[6])
    assert [c[0] for c in codes(line, *first, began, none, end(2))] == [104]
    # of no request
    unknown = shown(2, [Row(7, BLOCKS, 4, 2)], wrong)
    assert {c[0] for c in codes(line, *first, began, unknown, end(2))} == {101, 102}


def test_the_length_is_that_of_the_schedule():
    """A row that has another one than scheduled reads what the schedule says."""
    first = runs(1, 1, 4, 0, *admit(1, BLOCKS))
    began = begin(2, [], [scheduled(1, 5, 4)])
    row = Row(1, BLOCKS, 4, 1)

    def reads(listed):
        shows = shown(2, [row], csr_plan([listed], [8]), lengths=[9])
        return codes(engine(list_group()), *first, began, shows, end(2))

    assert reads([1, 2, 6]) == [(104, None, 1, -1)]
    assert reads([1, 2]) == [(104, None, 1, -1), (304, 0, 1, 2)]


def test_a_start_that_is_taken_from_the_plan():
    """Drafts open: the list is that of the start that the plan says."""
    line = engine(list_group(), flags=ASYNC, max_drafts=2)
    first = [begin(1, admit(1, BLOCKS), [scheduled(1, 5, 0, 1)]), end(1)]

    def reads(start, listed):
        row = Row(1, BLOCKS, start, 1)
        shows = shown(2, [row], csr_plan([listed], written(row)))
        return codes(line, *first, begin(2, [], [scheduled(1, 1, 5)]), shows, end(2))

    assert reads(5, [1, 2]) == reads(4, [1, 2]) == []
    assert reads(5, [1]) == [(304, 0, 1, 1)]

    # the fourth token may be the last or the last but one
    def at_the_edge(start, listed):
        before = [begin(1, admit(1, BLOCKS), [scheduled(1, 4, 0, 1)]), end(1)]
        row = Row(1, BLOCKS, start, 1)
        shows = shown(2, [row], csr_plan([listed], written(row)))
        return codes(line, *before, begin(2, [], [scheduled(1, 1, 4)]), shows, end(2))

    assert at_the_edge(3, [1]) == at_the_edge(4, [1, 2]) == []
    assert at_the_edge(3, [1, 2]) == at_the_edge(4, [1]) == [(304, 0, 1, 1)]


# FLAT


def test_sentinels():
    assert flat_decode([4, 5, 6, 7, 8, -1]) == []
    # of a token that was computed before it is 0301, whatever number it is
    for sentinel in (-1, 80, 3, 12):
        listed = [4, 5, 6, 7, sentinel, sentinel]
        assert flat_decode(listed, sentinel=sentinel) == [(301, 0, 1, 4)]
    assert flat_decode([4, 5, 6, 7, -1, 9], sentinel=-2) == [(303, 0, 1, 4)]
    # the own slot is right too; another one is not
    assert flat_decode([4, 5, 6, 7, 8, 9], sentinel=12) == []
    assert flat_decode([4, 5, 6, 7, 8, 10], sentinel=12) == [(301, 0, 1, 5)]


def test_no_entry_at_all():
    def prefill(second, *, offsets):
        rows = [Row(1, BLOCKS, 0, 5), Row(2, [3, 4], second, 1)]
        before = runs(1, 2, second, 0, *admit(2, [3, 4])) if second else []
        events = [*admit(1, BLOCKS), *([] if second else admit(2, [3, 4]))]
        slots = [slot for row in rows for slot in written(row)]
        part = flat_plan(None, slots, offsets=offsets)
        return codes(engine(flat_group()), *before, *step(2, events, rows, part))

    assert prefill(0, offsets=None) == prefill(0, offsets=[0, 0, 0]) == []
    # a row that has something to read
    assert prefill(4, offsets=None) == prefill(4, offsets=[0, 0, 0]) == [(304, 0, 2, 0)]
    # this is no list
    assert prefill(0, offsets=[0, 0, 1]) == [(304, 0, 2, -1)]


def test_an_empty_list_beside_one_that_is_not():
    rows = [Row(1, BLOCKS, 0, 2), Row(2, [3, 4], 0, 1)]
    slots = [slot for row in rows for slot in written(row)]
    part = flat_plan([[4, 5], []], slots)
    events = [*admit(1, BLOCKS), *admit(2, [3, 4])]
    assert codes(engine(flat_group()), *step(1, events, rows, part)) == [(304, 0, 2, 0)]
    # CSR has no keys at hand
    part = csr_plan([[], []], slots)
    found_ = codes(engine(list_group()), *step(1, events, rows, part))
    assert found_ == [(304, 0, 1, 0), (304, 0, 2, 0)]


# The last page


@pytest.mark.parametrize(("unit", "right"), [("block", 2), ("kernel_block", 2), ("slot", 1)])
def test_the_last_page(unit, right):
    line = engine(list_group(unit=unit, kernel_block_size=2))
    listed = {"block": [1, 2], "kernel_block": [2, 3, 4], "slot": [4, 5, 6, 7, 8, 9]}[unit]
    assert decode(listed, line, last=[right]) == []
    for wrong in (0, right - 1, right + 1):
        assert decode(listed, line, last=[wrong]) == [(501, 0, 1, 6)]


def test_a_full_last_page_is_not_empty():
    assert decode([1, 2], tokens=7, last=[4]) == []
    assert decode([1, 2], tokens=7, last=[0]) == [(501, 0, 1, 8)]


# Other passes


def test_parts_of_the_target():
    began = begin(1, admit(1, BLOCKS), [scheduled(1, 9, 0)])

    def reads(*lists):
        rows = [Row(1, BLOCKS, 0, 4), Row(1, BLOCKS, 4, 5)]
        plans = [
            shown(1, [row], csr_plan([listed], written(row)), pass_name="micro-batch", pass_index=i)
            for i, (row, listed) in enumerate(zip(rows, lists, strict=True))
        ]
        return codes(engine(list_group()), began, *plans, end(1))

    assert reads([1], [1, 2, 6]) == []
    assert reads([1, 2, 6], [1, 2, 6]) == [(304, 0, 1, 1)]
    assert reads([1], [2, 6]) == [(301, 0, 1, 0), (304, 0, 1, 2)]


def test_draft_passes():
    def reads(index, start, tokens, listed, longest=32):
        row = Row(1, BLOCKS, start, tokens)
        target = shown(1, [Row(1, BLOCKS, 0, 8)], csr([Row(1, BLOCKS, 0, 8)]))
        part = csr_plan([listed], [-1] * tokens)
        length = min(row.end, longest)
        positions = list(range(start, start + tokens))
        draft = shown(
            1, [row], part, lengths=[length], positions=positions, pass_name="draft",
            pass_index=index,
        )  # fmt: skip
        began = begin(1, admit(1, BLOCKS), [scheduled(1, 8, 0)])
        line = engine(list_group(), max_model_len=longest)
        return codes(line, began, target, draft, end(1))

    assert reads(0, 0, 8, [1, 2]) == reads(1, 8, 1, [1, 2, 6]) == []
    assert reads(1, 8, 1, [1, 2]) == [(304, 0, 1, 2)]
    # the model ends at 8
    assert reads(1, 7, 2, [1, 2], longest=8) == []
    assert reads(1, 7, 2, [1, 2, 6], longest=8) == [(304, 0, 1, 2)]


def test_draft_passes_need_no_list():
    row = Row(1, BLOCKS, 0, 8)
    target = shown(1, [row], csr([row]))
    draft = shown(1, [Row(1, BLOCKS, 8, 1)], pass_name="draft", pass_index=1)
    began = begin(1, admit(1, BLOCKS), [scheduled(1, 8, 0)])
    result = judge(began, target, draft, end(1), geometry_line=engine(list_group()))
    assert (result.findings, result.verdict()) == ([], "clean")


def test_a_list_that_was_final_is_missed():
    line = engine(list_group())
    row, later = Row(1, BLOCKS, 0, 5), Row(1, BLOCKS, 5, 1)
    first = step(1, admit(1, BLOCKS), [row], csr([row]), stage="final")
    missed = judge(*first, *step(2, [], [later], csr([later])), geometry_line=line)
    assert missed.gaps == {"final-plan-missing": {2}}


def test_lists_follow_the_rows():
    """What is bound later is expected later."""
    line = engine(list_group())
    row = Row(1, [*BLOCKS[:2], 9], 8, 1)
    first = runs(1, 1, 8, 0, *admit(1, BLOCKS[:2]))
    assert codes(line, *first, *step(2, [append(1, 9)], [row], csr([row]))) == []
    before = Row(1, BLOCKS[:2], 8, 1, listed=[1, 2, 7], slots=[28])
    assert codes(line, *first, *step(2, [append(1, 9)], [before], csr([before]))) == [
        (301, 0, 1, 2),
        (401, 0, 1, 8),
    ]


# Scaled slots


def scaled_decode(slot, listed, scale, stride, base, **fields):
    """Position 5, in block 2; block 1 has four tokens and more."""
    formula = {"index_scale": scale, "token_stride": stride, "slot_base": base}
    row = Row(1, BLOCKS, 5, 1)
    lines = [*runs(1, 1, 5, 0, *admit(1, BLOCKS)), *step(2, [], [row], flat_plan([listed], [slot]))]
    return codes(engine({**flat_group(), **formula}, **fields), *lines)


def test_blocks_and_tokens_that_lie_apart():
    # blocks 12 slots apart, tokens 2: position 5 is at 24 + 2 + 100
    right = [112, 114, 116, 118, 124, 126]
    assert scaled_decode(126, right, 3, 2, 100) == []
    # between two tokens it is in its block all the same
    assert scaled_decode(127, right, 3, 2, 100) == [(401, 0, 1, 5)]
    # blocks 0 to 19: the slots 100 to 339
    assert scaled_decode(99, right, 3, 2, 100) == [(404, 0, 1, 5)]
    assert scaled_decode(340, right, 3, 2, 100) == [(404, 0, 1, 5)]
    assert scaled_decode(339, right, 3, 2, 100) == [(401, 0, 1, 5)]
    assert scaled_decode(111, right, 3, 2, 100) == [(402, 0, 1, 5)]
    # entries, too
    for entry, code in ((113, 301), (111, 302), (99, 303), (340, 303), (339, 301)):
        assert scaled_decode(126, [entry, *right[1:]], 3, 2, 100) == [(code, 0, 1, 0)]
    # 0 is 1
    assert scaled_decode(9, [4, 5, 6, 7, 8, 9], 0, 0, 0) == []


def test_trash_sentinel_and_pads_are_not_scaled():
    row = Row(1, BLOCKS, 5, 1)
    right = [112, 114, 116, 118, 124, -1]
    part = flat_plan([right], [126, -1, 7])
    formula = {"index_scale": 3, "token_stride": 2, "slot_base": 100}
    line = engine({**flat_group(), **formula}, pools=[pool(num_blocks=20, write_trash=7)])
    lines = [
        *runs(1, 1, 5, 0, *admit(1, BLOCKS)), *step(2, [], [row], part, padded_tokens=3)
    ]  # fmt: skip
    assert codes(line, *lines) == []


def test_units_of_blocks_are_not_scaled():
    formula = {"index_scale": 3, "token_stride": 1, "slot_base": 100}
    for group_line, listed in (
        (list_group(), [1, 2]),
        (list_group(unit="kernel_block", kernel_block_size=2), [2, 3, 4]),
    ):
        part = csr_plan([listed], [125])
        lines = step(2, [], [Row(1, BLOCKS, 5, 1)], part)
        first = runs(1, 1, 5, 0, *admit(1, BLOCKS))
        assert codes(engine({**group_line, **formula}), *first, *lines) == []


@pytest.mark.parametrize(
    ("group_line", "fields"),
    [
        (group(kind="window", window=8, index_scale=2), {}),
        (group(slot_base=1), {"dcp_size": 2}),
        (group(slot_base=1), {"pcp_size": 2, "pcp_layout": 1}),
    ],
)
def test_scaled_slots_that_are_refused(group_line, fields):
    with pytest.raises(UnsupportedError):
        judge(geometry_line=engine(group_line, **fields))


def test_scaled_slots_that_are_malformed():
    with pytest.raises(UnreadableError):
        judge(geometry_line=engine(group(index_scale=2, token_stride=3)))
    with pytest.raises(UnreadableError):
        judge(geometry_line=engine(group(slot_base=-1)))
    kept_whole = group(index_scale=2, token_stride=2, flags=GROUP_REPLICATED)
    assert judge(geometry_line=engine(kept_whole, dcp_size=2)).findings == []
