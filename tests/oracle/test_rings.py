# SPDX-License-Identifier: Apache-2.0
"""Rings, each sentence of docs/judging.md, Rings, beside its legal neighbour.

A ring of 8 tokens in blocks of 4, 20 blocks; block 0 is null. Request 1 has the blocks 1 and 2:
position 8 stands at slot 4 again.
"""

import pytest
from kvguard_oracle import UnreadableError, UnsupportedError
from kvguard_oracle.geometry import GROUP_REPLICATED
from layout_scenario import (
    Row,
    binds,
    engine,
    flat_group,
    flat_plan,
    listed_of_ring,
    ring,
    ring_engine,
    ring_group,
    runs,
    shown,
    step,
    table,
    written,
)
from scenario import (
    CONNECTOR,
    PAD_ROWS_NULL,
    admit,
    append,
    begin,
    end,
    event,
    found,
    group,
    group_plan,
    judge,
    outcome,
    pool,
    scheduled,
    transfer,
)

ONE, TWO = [1, 2], [3, 4]
TRASH = 80
NO_FORWARD, ABANDONED = 1, 2


def codes(*records, line=None, **fields):
    result = judge(*records, geometry_line=line or ring_engine(**fields))
    assert not any(name.startswith("malformed") for name in result.gaps)
    return found(result)


def told(*records, **fields):
    """Bindings alone: no plan is shown."""
    return codes(*records, **fields)


def ran(tokens, start=0, step_=1, events=None):
    return runs(step_, 1, tokens, start, *(admit(1, ONE) if events is None else events))


# What is refused


@pytest.mark.parametrize(
    ("group_line", "fields"),
    [
        (ring_group("csr"), {}),
        (ring_group("state"), {}),
        (ring_group("table"), {"dcp_size": 2}),
        (ring_group(), {"dcp_size": 2}),
        (ring_group("table"), {"pools": [pool(memory="host")]}),
        (ring_group(), {"pools": [pool(memory="host")]}),
        (ring_group("table"), {"max_drafts": 1}),
        (ring_group("table"), {"pcp_size": 2, "pcp_layout": 1}),
        (ring_group(flags=PAD_ROWS_NULL), {}),
    ],
)
def test_what_is_refused(group_line, fields):
    with pytest.raises(UnsupportedError):
        judge(geometry_line=engine(group_line, **fields))


def test_what_is_not_refused():
    for group_line in (ring_group("table", flags=PAD_ROWS_NULL), ring_group(window=5)):
        assert judge(geometry_line=engine(group_line)).findings == []
    kept_whole = ring_group("table", flags=GROUP_REPLICATED)
    assert judge(geometry_line=engine(kept_whole, dcp_size=2)).findings == []
    for fields in ({"window": 0}, {"sink": 4}, {"retained": 1}):
        with pytest.raises(UnreadableError):
            judge(geometry_line=engine({**ring_group("table"), **fields}))


# Binding


def test_no_column_is_a_hit():
    first = ran(8)
    assert told(*first, begin(2, admit(2, ONE, first=8), [])) == [(601, 0, 2, 0), (601, 0, 2, 1)]
    assert told(*first, begin(2, admit(2, TWO, first=8), [])) == []
    # nor one whose last token is computed again
    again = admit(2, ONE, first=7, count=8)
    assert told(*first, begin(2, again, [])) == [(601, 0, 2, 0), (601, 0, 2, 1)]


def test_bindings_are_judged_as_ever():
    assert told(binds(1, *admit(1, [1, 1]))) == [(203, 0, 1, 1)]
    assert told(binds(1, *admit(1, [0, 20]))) == [(201, 0, 1, 1), (202, 0, 1, 0)]


# Capacity


@pytest.mark.parametrize(
    ("columns", "tokens", "window", "expected"),
    [
        ([1], 4, 8, []),
        ([1], 5, 8, [(204, 0, 1, 4)]),
        (ONE, 20, 8, []),
        ([1], 20, 8, [(204, 0, 1, 19)]),
        (ONE, 20, 6, []),
        ([1], 20, 6, [(204, 0, 1, 19)]),
        ([1], 20, 4, []),
    ],
)
def test_capacity(columns, tokens, window, expected):
    begun = begin(1, admit(1, columns), [scheduled(1, tokens, 0)])
    assert told(begun, window=window) == expected


# Writers


def written_with(tokens, start, sends):
    """What a SEND_PENDING of these blocks forbids."""
    first = [begin(1, admit(1, ONE, first=start), []), end(1)]
    pin = [begin(2, [transfer("send-pending", 1, *sends, request=1)], []), end(2)]
    return told(*first, *pin, begin(3, [], [scheduled(1, tokens, start)]))


@pytest.mark.parametrize(
    ("tokens", "start", "sends", "expected"),
    [
        # positions 6 and 7: column 1
        (2, 6, [1], []),
        (2, 6, [2], [(1102, 0, 1, 4)]),
        # 7 and 8: column 1 and column 0
        (2, 7, [1], [(1102, 0, 1, 0)]),
        (2, 7, [1, 2], [(1102, 0, 1, 0)]),
        # 8 to 11: column 0
        (4, 8, [2], []),
        (4, 8, [1], [(1102, 0, 1, 0)]),
        # of 13 tokens the last 8
        (13, 0, [2], [(1102, 0, 1, 4)]),
    ],
)
def test_the_columns_that_a_step_writes(tokens, start, sends, expected):
    assert written_with(tokens, start, sends) == expected


def test_two_writers():
    rows = [*admit(1, ONE, first=7), *admit(2, ONE, first=7)]
    both = begin(1, rows, [scheduled(1, 1, 7), scheduled(2, 2, 7)])
    expected = [(601, 0, 2, 0), (601, 0, 2, 1), (603, 0, 2, 4)]
    assert told(both) == expected


# Slots


def slot_codes(start, slots, window=8, trash=-1, columns=ONE):
    row = Row(1, ONE, start, len(slots))
    part = flat_plan([listed_of_ring(Row(1, ONE, start, len(slots)), window)], slots)
    first = ran(start) if start else []
    events = [] if start else admit(1, columns)
    lines = [*first, *step(2, events, [row], part)]
    return [f for f in codes(*lines, window=window, trash=trash) if f[0] != 204]


@pytest.mark.parametrize(
    ("start", "slots", "window", "expected"),
    [
        (7, [11], 8, []),
        (8, [4], 8, []),
        (8, [12], 8, [(401, 0, 1, 8)]),
        (13, [9], 8, []),
        # a window of 6: position 6 stands at 0, 11 at 5
        (6, [4], 6, []),
        (6, [10], 6, [(401, 0, 1, 6)]),
        (11, [9], 6, []),
        (7, [11, 4], 8, []),
        (7, [11, -1], 8, [(403, 0, 1, 8)]),
        (7, [11, 3], 8, [(402, 0, 1, 8)]),
        (7, [11, 80], 8, [(404, 0, 1, 8)]),
    ],
)
def test_slots(start, slots, window, expected):
    assert slot_codes(start, slots, window) == expected


def test_clipped_tokens():
    right = [-1, -1, 6, 7, 8, 9, 10, 11, 4, 5]
    assert slot_codes(0, right) == []
    # the trash, where the pool has one
    assert slot_codes(0, [TRASH, -1, *right[2:]], trash=TRASH) == []
    assert slot_codes(0, [TRASH, -1, *right[2:]]) == [(401, 0, 1, 0)]
    # any other is 0401, whatever it is
    for wrong in (4, 3, 99, -2):
        result = slot_codes(0, [wrong, *right[1:]])
        assert [f for f in result if f[0] != 405] == [(401, 0, 1, 0)]
    # the third one stays
    assert slot_codes(0, [-1, -1, -1, *right[3:]]) == [(403, 0, 1, 2)]


def test_clipped_tokens_are_written_twice():
    assert slot_codes(0, [4, -1, 6, 7, 8, 9, 10, 11, 4, 5]) == [(401, 0, 1, 0), (405, 0, 1, 8)]


def test_a_clipped_token_needs_no_column():
    lines = step(1, admit(1, [1]), [Row(1, ONE, 0, 9)], ring([Row(1, ONE, 0, 9)]))
    assert (401, 0, 1, 0) not in codes(*lines)
    assert (401, 0, 1, 4) in codes(*lines)


def test_foreign_writes():
    other = [begin(1, admit(2, TWO), []), end(1)]
    row = Row(1, ONE, 8, 1, slots=[12])
    lines = [*other, *ran(8, step_=2), *step(3, [], [row], ring([row]))]
    assert codes(*lines) == [(401, 0, 1, 8), (602, 0, 1, 8)]
    # the own block, at the wrong place of the ring
    row = Row(1, ONE, 8, 1, slots=[7])
    assert codes(*other, *ran(8, step_=2), *step(3, [], [row], ring([row]))) == [(401, 0, 1, 8)]


# Tables


def test_tables():
    def shows(*columns):
        part = group_plan([list(columns)], [4], columns=2)
        return codes(*ran(8), *step(2, [], [Row(1, ONE, 8, 1)], part), encoding="table")

    assert shows(1, 2) == []
    assert shows(1, 3) == [(301, 0, 1, 1)]


# Lists


def listing(start, listed, tokens=1, window=8, **fields):
    row = Row(1, ONE, start, tokens, listed)
    first = ran(start) if start else []
    events = [] if start else admit(1, ONE)
    return codes(
        *first, *step(2, events, [row], ring([row], window=window), **fields), window=window
    )


@pytest.mark.parametrize(
    ("start", "listed", "expected"),
    [
        (0, [-1], []),
        (0, [4], [(301, 0, 1, 0)]),
        (3, [4, 5, 6, -1], []),
        # seven tokens before it, as many as the window leaves
        (7, [4, 5, 6, 7, 8, 9, 10, -1], []),
        (8, [5, 6, 7, 8, 9, 10, 11, -1], []),
        # positions 4 to 10
        (11, [8, 9, 10, 11, 4, 5, 6, -1], []),
        (11, [8, 9, 10, 11, 4, 5, 7, -1], [(301, 0, 1, 10)]),
        (11, [8, 9, 10, 3, 4, 5, 6, -1], [(302, 0, 1, 7)]),
        (11, [8, -1, 10, 11, 4, 5, 6, -1], [(301, 0, 1, 5)]),
        (11, [8, -2, 10, 11, 4, 5, 6, -1], [(303, 0, 1, 5)]),
        (11, [8, 9, 10, 11, 4, 5, 6, 7], [(301, 0, 1, 11)]),
        (11, [8, 9, 10, 11, 4, 5, 6], [(304, 0, 1, -1)]),
        (11, [8, 9, 10, 11, 4, 5, 6, -1, -1], [(304, 0, 1, -1)]),
    ],
)
def test_lists(start, listed, expected):
    assert listing(start, listed) == expected


def test_lists_of_more_tokens():
    # positions 4 to 10, then three at hand
    assert listing(11, [8, 9, 10, 11, 4, 5, 6, -1, -1, -1], tokens=3) == []
    assert listing(11, [8, 9, 10, 11, 4, 5, 6, -1, 4, -1], tokens=3) == [(301, 0, 1, 12)]
    # a window of 6: positions 6 to 10
    assert listing(11, [4, 5, 6, 7, 8, -1], window=6) == []


def test_no_entry_at_all():
    for start, expected in ((0, []), (8, [(304, 0, 1, -1)])):
        row = Row(1, ONE, start, 1)
        part = flat_plan(None, written(row, window=8))
        first = ran(8) if start else []
        events = [] if start else admit(1, ONE)
        assert codes(*first, *step(2, events, [row], part)) == expected


# Columns of tokens


def test_zeroing():
    def zeroed(tokens, block, window=8):
        zero = event("zero", 0, 0, blocks=[block])
        return told(*ran(tokens), binds(2, zero), window=window)

    assert zeroed(4, 2) == []
    assert zeroed(5, 2) == [(1202, 0, 1, 4)]
    assert zeroed(20, 2) == [(1202, 0, 1, 4)]
    assert zeroed(20, 1) == [(1202, 0, 1, 0)]
    # a window of 4 has one column
    assert zeroed(20, 2, window=4) == []


def test_loads_over_what_is_held():
    def load(tokens, block, window=8):
        told_ = transfer("load", 1, block, request=9)
        return told(*ran(tokens), binds(2, told_), window=window, flags=CONNECTOR)

    assert load(4, 2) == []
    assert load(12, 2) == [(805, 0, 9, 4)]
    assert load(12, 2, window=4) == []


def failed(tokens, start, block):
    """A step of request 1 over a block that a load has failed to fill."""
    loads = [
        transfer("load", 1, block, request=1),
        transfer("load-failed", 1, block, request=1),
    ]
    return told(*ran(start), binds(2, *loads), end(2), begin(3, [], [scheduled(1, tokens, start)]))


@pytest.mark.parametrize(
    ("tokens", "start", "block", "expected"),
    [
        (1, 12, 1, [(1106, 0, 1, 0)]),
        (1, 12, 2, []),  # position 12 is the first token of column 1
        (1, 13, 2, [(1106, 0, 1, 4)]),
        (4, 12, 1, [(1106, 0, 1, 0)]),
        (5, 12, 1, []),  # position 16 is the first token of column 0
        (4, 12, 2, []),
    ],
)
def test_blocks_without_content(tokens, start, block, expected):
    assert failed(tokens, start, block) == expected


def test_a_step_gives_content_again():
    loads = [transfer("load", 1, 2, request=1), transfer("load-failed", 1, 2, request=1)]
    lines = [*ran(12), binds(2, *loads), end(2), *ran(1, 12, 3, []), *ran(1, 13, 4, [])]
    assert told(*lines) == []


def test_reads_of_what_is_loading():
    def reads(start, block, window=8):
        row = Row(1, ONE, start, 1)
        load = begin(2, [transfer("load", 1, block)], [])
        lines = [*ran(start), load, end(2), *step(3, [], [row], ring([row], window=window))]
        return [f for f in codes(*lines, window=window) if f[0] == 1101]

    assert reads(4, 2) == []
    assert reads(5, 2) == [(1101, 0, 1, 4)]
    assert reads(12, 2) == [(1101, 0, 1, 4)]
    assert reads(12, 1) == [(1101, 0, 1, 0)]


def test_reads_before_zeroing_and_copies():
    done = [
        begin(0, [], []),
        outcome(0, events=[event("zero-done", 0, 0), event("copy-done", 0, 0)]),
        end(0),
    ]

    def reads(start, *events, window=8):
        row = Row(1, ONE, start, 1)
        lines = [*done, *ran(start), *step(2, list(events), [row], ring([row], window=window))]
        return [f for f in codes(*lines, window=window) if f[0] in (1201, 1203)]

    zero, copy = event("zero", 0, 0, blocks=[2]), event("copy", 0, 0, blocks=[9, 2])
    assert reads(3, zero) == reads(3, copy) == []
    assert reads(4, zero, copy) == [(1201, 0, 1, 4), (1203, 0, 1, 4)]
    assert reads(12, zero, copy) == [(1201, 0, 1, 4), (1203, 0, 1, 4)]
    assert reads(12, zero, copy, window=4) == []


def test_transfers_are_not_misplaced():
    first = ran(12)
    load = transfer("load", 1, 9, request=1)
    send = transfer("send-pending", 2, 9, request=1)
    assert told(*first, binds(2, load, send)) == []


def test_what_was_loaded_has_no_home():
    """A hit of a full group may then find it, whatever it is."""
    groups = engine(group(max_columns=8), ring_group(id=1), flags=CONNECTOR)
    load = event("load", 1, 1, value=1, count=4, blocks=[7])
    done = outcome(1, events=[event("load-done", 1, value=1)])
    hit = begin(2, admit(1, [7, 8], [9], first=4), [])
    assert codes(begin(1, [load], []), end(1), done, hit, line=groups) == []
    # bound in a ring it has one
    bound = [begin(1, admit(2, [], [7]), []), end(1)]
    gone = begin(2, [event("finish", 2), *admit(1, [7, 8], [9], first=4)], [])
    both = engine(group(max_columns=8), ring_group(id=1))
    assert codes(*bound, gone, line=both) == [(804, 0, 1, 0)]


# Other passes


def test_parts_of_the_target_do_not_judge_rings():
    line = engine(group(max_columns=8), ring_group(id=1))
    full = Row(1, [5, 6, 7], 0, 5)
    began = begin(1, admit(1, [5, 6, 7], ONE), [scheduled(1, 5, 0)])
    wrong = flat_plan([[9, 9]], [99] * 5, own=1)
    right = ring([Row(1, ONE, 0, 5)], own=1)

    def shows(*parts, name="micro-batch"):
        plan_ = shown(1, [full], table([full]), *parts, pass_name=name)
        return judge(began, plan_, end(1), geometry_line=line)

    # whatever they show of them: they are not shown
    for result in (shows(), shows(wrong), shows(right)):
        assert result.findings == []
        assert set(result.gaps) == {"slots-not-presented", "table-not-presented"}
    assert shows(right, name="target").gaps == {}


def test_parts_say_nothing_of_final_plans():
    line = engine(group(max_columns=8), ring_group(id=1))
    full, own = Row(1, [5, 6, 7], 0, 5), Row(1, ONE, 0, 5)
    began = begin(1, admit(1, [5, 6, 7], ONE), [scheduled(1, 5, 0)])
    parts = [table([full]), ring([own], own=1)]
    plans = [
        shown(1, [full], *parts),
        shown(1, [full], *parts, pass_name="micro-batch", stage="final"),
    ]
    first = [began, *plans, end(1)]
    later = Row(1, [5, 6, 7], 5, 1), Row(1, ONE, 5, 1)
    second = step(2, [], [later[0]], table([later[0]]), ring([later[1]], own=1))
    # of the full group alone a final plan is missing
    assert judge(*first, *second, geometry_line=line).gaps == {"final-plan-missing": {2}}
    only = shown(2, [later[0]], table([later[0]]), stage="final")
    second.insert(2, only)
    assert judge(*first, *second, geometry_line=line).gaps == {}


def test_draft_passes_do_not_judge_rings():
    row = Row(1, ONE, 0, 4)
    target = shown(1, [row], ring([row]))
    wrong = flat_plan([[9]], [99])
    draft = shown(1, [Row(1, ONE, 4, 1)], wrong, pass_name="draft", pass_index=1)
    assert codes(begin(1, admit(1, ONE), [scheduled(1, 4, 0)]), target, draft, end(1)) == []


def test_rings_beside_lists():
    """A full group by lists, and a ring, of one pool; what is bound besides changes nothing."""
    line = engine(flat_group(), ring_group(id=1))
    lines = []
    for number, (start, tokens) in enumerate([(0, 9), (9, 1)], start=1):
        full, own = Row(1, [5, 6, 7], start, tokens), Row(1, ONE, start, tokens)
        slots = written(full)
        listed = list(range(20, 20 + full.end))
        part = flat_plan([listed], slots)
        events = admit(1, [5, 6, 7], ONE) if number == 1 else []
        lines += step(number, events, [full], part, ring([own], own=1))
    assert codes(*lines, line=line) == []
    assert codes(*lines, begin(3, [append(1, 9)], []), line=line) == []
