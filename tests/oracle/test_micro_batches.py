# SPDX-License-Identifier: Apache-2.0
"""Micro-batches: the target pass in parts. Corners of docs/judging.md, Other passes."""

import pytest
from pass_scenario import ABANDONED, NO_FORWARD, Row, engine, micro_batch, step, target
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
    reset,
    scheduled,
    state_plan,
)

BLOCKS = [3, 5, 7]


def judged(*records, **fields):
    result = judge(*records, geometry_line=engine(**fields))
    assert not any(name.startswith("malformed") for name in result.gaps)
    return result


def codes(*records, **fields):
    return found(judged(*records, **fields))


def parts(*rows, tokens=10, computed=0, drafts=0, told=(), flags=0, events=None, **fields):
    """Each row is the micro-batch of one request; the rows that are no Row are records."""
    records = [
        micro_batch(1, index, row, **fields) if isinstance(row, Row) else row
        for index, row in enumerate(rows)
    ]
    began = admit(1, BLOCKS, first=computed) if events is None else events
    return step(1, began, [(1, tokens, computed, drafts)], *records, *told, flags=flags)


def row(start, tokens, **fields):
    return Row(1, BLOCKS, start, tokens, **fields)


def test_a_request_in_three_parts():
    three = [row(0, 3), row(3, 1), row(4, 6)]
    assert codes(*parts(*three)) == []
    assert codes(*parts(*three, positions=True)) == []
    assert codes(*parts(row(0, 3), row(3, 0), row(3, 7))) == []
    # what comes before `taken` is the request's start
    assert codes(*parts(row(2, 3), row(5, 5), tokens=8, computed=2)) == []


def test_more_than_is_scheduled():
    # the row that has too many adds nothing: the tokens are missing and may still come
    too_long = row(3, 8)
    assert codes(*parts(row(0, 3), too_long)) == [(104, None, 1, -1), (106, None, 1, 3)]
    assert codes(*parts(row(0, 3), too_long, row(3, 7))) == [(104, None, 1, -1)]
    assert codes(*parts(row(0, 11))) == [(104, None, 1, -1), (106, None, 1, 0)]
    # nothing is left
    assert codes(*parts(row(0, 10), row(10, 1))) == [(104, None, 1, -1)]
    assert codes(*parts(row(0, 10), row(10, 0))) == []


def test_what_is_missing():
    assert codes(*parts(row(0, 3))) == [(106, None, 1, 3)]
    assert codes(*parts(row(2, 3), tokens=8, computed=2)) == [(106, None, 1, 5)]
    assert codes(*parts(row(0, 0))) == [(106, None, 1, 0)]
    # a target plan alone has no parts
    assert codes(*parts(target(1, row(0, 10)))) == []
    assert codes(*parts(target(1, row(0, 10)), row(0, 3))) == [(106, None, 1, 3)]


def test_missing_in_the_order_of_the_schedule():
    events = [event_ for key in (1, 2, 3) for event_ in admit(key, [key + 2])]
    plans = [micro_batch(1, 0, Row(3, [5], 0, 1))]
    result = judged(*step(1, events, [(2, 2, 0), (3, 2, 0), (1, 2, 0)], *plans))
    assert [(f.code, f.request, f.pos) for f in result.findings] == [
        (106, 2, 0), (106, 3, 1), (106, 1, 0),
    ]  # fmt: skip
    assert {(f.pass_name, f.stage, f.row) for f in result.findings} == {(None, None, -1)}
    # an unknown request is not missed
    plans = [micro_batch(1, 0, Row(1, [3], 0, 2))]
    assert codes(*step(1, admit(1, [3]), [(1, 2, 0), (9, 2, 0)], *plans)) == [(205, None, 9, -1)]


@pytest.mark.parametrize("flags", [ABANDONED, NO_FORWARD])
def test_steps_that_miss_nothing(flags):
    assert codes(*parts(row(0, 3), flags=flags)) == []


def test_a_gap_misses_nothing():
    gap = event("gap", name="not seen")
    assert codes(*parts(row(0, 3), events=[*admit(1, BLOCKS), gap])) == []
    assert codes(*parts(row(0, 3), reset())[:-1]) == []


def test_malformed_plans_are_not_judged():
    bad = micro_batch(1, 0, row(0, 3))
    bad["seq_lens"] = None
    result = judge(*parts(bad), geometry_line=engine())
    assert result.findings == []
    assert any("seq_lens" in name for name in result.gaps)


def test_rows_that_are_not_judged():
    unknown = micro_batch(1, 0, Row(9, [8], 0, 2))
    assert codes(*parts(unknown)) == [(101, None, 9, -1), (106, None, 1, 0)]
    double = micro_batch(1, 0, row(0, 3), row(3, 7))
    assert codes(*parts(double, row(3, 7))) == [(103, None, 1, -1)]
    # rows without usable tokens add nothing, and have no length
    wrong = micro_batch(1, 0, row(0, 3, length=99))
    wrong["query_start"] = array([1, 3])
    assert codes(*parts(wrong)) == [(105, None, 0, -1), (106, None, 1, 0)]
    assert codes(*parts(wrong, row(0, 10))) == [(105, None, 0, -1)]


def test_stages_are_counted_by_themselves():
    final = {"stage": "final"}
    both = [micro_batch(1, 0, row(0, 10)), micro_batch(1, 0, row(0, 10), **final)]
    assert codes(*parts(*both)) == []
    # PLANNED, if there was one
    assert codes(*parts(both[0], micro_batch(1, 0, row(0, 3), **final))) == []
    assert codes(*parts(micro_batch(1, 0, row(0, 3)), both[1])) == [(106, None, 1, 3)]
    assert codes(*parts(micro_batch(1, 0, row(0, 3), **final))) == [(106, None, 1, 3)]


def test_each_step_begins_anew():
    first = parts(row(0, 10))
    second = step(2, [], [(1, 2, 10)], micro_batch(2, 0, row(10, 1)), micro_batch(2, 1, row(11, 1)))
    assert codes(*first, *second) == []


def test_frontier_and_counts():
    # the slice's count of computed tokens is the request's: not judged
    assert codes(*parts(row(0, 3), row(3, 7), num_computed=[0])) == []
    assert codes(*parts(row(0, 3), row(3, 7), num_computed=[9])) == []
    wrong = [row(0, 3), micro_batch(1, 1, row(3, 7), positions=[0, 1, 2, 3, 4, 5, 6])]
    assert codes(*parts(*wrong)) == [(901, None, 1, 3)]
    uneven = [row(0, 3), micro_batch(1, 1, row(3, 7), positions=[3, 4, 5, 7, 7, 8, 9])]
    assert codes(*parts(*uneven)) == [(903, None, 1, 6)]


def test_lengths():
    assert codes(*parts(row(0, 3, length=10), row(3, 7))) == [(501, None, 1, 3)]
    assert codes(*parts(row(0, 3), row(3, 7, length=7))) == [(501, None, 1, 10)]
    # a row without tokens is as long as what was taken
    assert codes(*parts(row(0, 10), row(10, 0, length=0))) == [(501, None, 1, 10)]
    own = micro_batch(1, 0, row(0, 3))
    own["groups"][0]["reads"]["seq_lens"] = array([10])
    assert codes(*parts(own, row(3, 7))) == [(501, 0, 1, 3)]
    padded = micro_batch(1, 0, row(0, 3), padded_rows=2)
    padded["seq_lens"] = array([3, 4])
    assert codes(*parts(padded, row(3, 7))) == [(502, None, 0, -1)]


def test_slots_of_a_part():
    assert codes(*parts(row(0, 3), row(3, 7, slots=[15, 20, 20, 22, 23, 28, 29]))) == [
        (401, 0, 1, 5), (405, 0, 1, 5)
    ]  # fmt: skip
    # two parts may not share a slot: the second is wrong by itself
    assert codes(*parts(row(0, 3), row(3, 1, slots=[12]), row(4, 6))) == [(401, 0, 1, 3)]


def test_open_starts():
    # [5, 7] after two drafts; 3 tokens more in parts of 2 and 1
    events = admit(1, BLOCKS)
    first = step(1, events, [(1, 7, 0, 2)], target(1, row(0, 7)))

    def took(*rows, last=(), told=()):
        plans = [micro_batch(2, index, part) for index, part in enumerate(rows)]
        second = [begin(2, [], [scheduled(1, 3, 7)]), *told, *plans, end(2)]
        result = judged(*first, *second, *last, flags=ASYNC)
        return found(result), result.assumptions

    assert took(row(6, 2), row(8, 1)) == ([], 2)
    # a request that is not complete: where is not known
    assert took(row(6, 2)) == ([(106, None, 1, -1)], 1)
    told = [outcome(1, (1, 1))]
    assert took(row(6, 2), told=told) == ([(106, None, 1, 8)], 0)
    # the outcome decides of what was taken, once
    assert took(row(6, 2), row(8, 1), last=told) == ([], 2)
    assert took(row(6, 2), row(8, 1), last=[outcome(1, (1, 0))]) == ([(901, None, 1, 7)], 2)
    # the second part takes another start of the request than the first
    apart = [outcome(1, (1, 0))]
    assert took(row(6, 2), row(9, 1), last=apart) == ([(901, None, 1, 7)], 2)


def test_open_starts_are_clamped():
    first = step(1, admit(1, BLOCKS), [(1, 7, 0, 2)], target(1, row(0, 7)))
    begun = begin(2, [], [scheduled(1, 3, 7)])
    beyond = micro_batch(2, 0, row(8, 3), positions=True)
    # the request starts at 7 at most
    result = judged(*first, begun, beyond, end(2), flags=ASYNC)
    assert (901, None, 1, 7) in found(result)
    assert (501, None, 1, 10) in found(result)
    # the second part begins at 6 at least, behind one token
    early = [micro_batch(2, 0, row(5, 1)), micro_batch(2, 1, row(5, 2), positions=True)]
    assert (901, None, 1, 6) in codes(*first, begun, *early, end(2), flags=ASYNC)


def test_windows_are_looked_at_from_the_parts_start():
    # a window of 8: at 10 column 0 is needed, and at 11 it is not
    kind = {"groups": [group(kind="window", window=8, max_columns=8)]}
    blocks = [3, 5, 7, 9]

    def shown(start, before, table):
        rows = [micro_batch(1, 0, Row(1, blocks, 10, before, length=10 + before, table=blocks))]
        rows.append(micro_batch(1, 1, Row(1, blocks, start, 11 + 1 - start, table=table)))
        events = admit(1, blocks, first=10)
        return codes(*step(1, events, [(1, 2, 10)], *rows), **kind)

    assert shown(11, 1, [8, 5, 7, 9]) == []
    assert shown(10, 0, [8, 5, 7, 9]) == [(301, 0, 1, 0)]


def test_windows_where_the_start_is_open():
    # [9, 10]: of 3 tokens the second part starts at 11 at most, where column 0 is not needed
    kind = {"groups": [group(kind="window", window=8, max_columns=8)], "flags": ASYNC}
    blocks = [3, 5, 7, 9]
    first = step(1, admit(1, blocks), [(1, 10, 0, 1)], target(1, Row(1, blocks, 0, 10)))

    def shown(before, table):
        cut = [Row(1, blocks, 10, before), Row(1, blocks, 10 + before, 3 - before, table=table)]
        plans = [micro_batch(2, index, part) for index, part in enumerate(cut)]
        return codes(*first, begin(2, [], [scheduled(1, 3, 10)]), *plans, end(2), **kind)

    assert shown(1, [8, 5, 7, 9]) == []
    assert shown(1, [3, 8, 7, 9]) == [(301, 0, 1, 1)]
    assert shown(0, [8, 5, 7, 9]) == [(301, 0, 1, 0)]


# States


STATES = group(id=1, kind="state", encoding="state", state_mode=2, max_columns=8)


def with_states(*plans, tokens=6):
    events = [*admit(1, BLOCKS, [1, 2, 8])]
    groups = [group(max_columns=8), STATES]
    return codes(*step(1, events, [(1, tokens, 0)], *plans), groups=groups)


def state_part(index, part, ends, init, table=None):
    line = micro_batch(1, index, part)
    if table is not None:
        line["groups"].append(group_plan([table], None, 1))
    else:
        line["groups"].append(state_plan([9], [ends], [init], 1))
    return line


def test_states_of_whole_requests():
    whole = Row(1, BLOCKS, 0, 6)
    assert with_states(state_part(0, whole, 2, 1)) == []
    assert with_states(state_part(0, whole, 1, 0)) == [(1002, 1, 1, 6), (1003, 1, 1, 0)]
    assert with_states(state_part(0, whole, 0, 0, table=[9, 9])) == [(301, 1, 1, 1)]


def test_a_part_starts_from_or_leaves_the_state_of_its_request():
    cut = [Row(1, BLOCKS, 0, 2), Row(1, BLOCKS, 2, 3), Row(1, BLOCKS, 5, 1)]

    def shown(*states):
        plans = [
            state_part(i, row, *two) for i, (row, two) in enumerate(zip(cut, states, strict=True))
        ]
        return with_states(*plans)

    # what the first leaves and the last starts from is not judged, nor the one between them
    assert shown((9, 1), (9, 0), (2, 0)) == []
    assert shown((2, 0), (9, 1), (2, 1)) == [(1003, 1, 1, 0)]
    # s + q is the request's own
    assert shown((9, 1), (2, 0), (1, 0)) == [(1002, 1, 1, 6)]
    empty = Row(1, BLOCKS, 6, 0)
    rows = [state_part(0, Row(1, BLOCKS, 0, 6), 2, 1), state_part(1, empty, 9, 0)]
    assert with_states(*rows) == []


def test_what_a_part_starts_from_stands_where_its_request_starts():
    """4 tokens in column 0, then 4 that are cut in two: the state of 4 tokens, and of 8."""
    first = step(1, admit(1, BLOCKS, [1, 2, 8]), [(1, 4, 0)])

    def shown(*states, table=False):
        plans = []
        for index, (starts, ends) in enumerate(states):
            line = micro_batch(2, index, Row(1, BLOCKS, 4 + 2 * index, 2))
            part = group_plan([[starts, ends]], None, 1, 2, [3])
            line["groups"].append(part if table else state_plan([starts], [ends], [0], 1))
            plans.append(line)
        return codes(
            *first, begin(2, [], [scheduled(1, 4, 4)]), *plans, end(2), groups=[group(), STATES]
        )

    assert shown((1, 9), (9, 2)) == []
    assert shown((8, 9), (9, 2)) == [(1001, 1, 1, 4)]
    assert shown((1, 9), (9, 1)) == [(1002, 1, 1, 8)]
    # of a table the place, and the written column
    assert shown((1, 9), (9, 2), table=True) == []
    assert shown((2, 2), (9, 2), table=True) == [(301, 1, 1, 0)]
    assert shown((1, 9), (9, 1), table=True) == [(301, 1, 1, 1)]


def test_a_part_that_is_too_long_ends_nowhere():
    rows = [state_part(0, Row(1, BLOCKS, 0, 7), 9, 0)]
    assert with_states(*rows) == [(104, None, 1, -1), (106, None, 1, 0), (1003, 1, 1, 0)]


def test_what_is_shown_counts():
    # in place of a target plan
    result = judged(*parts(row(0, 3), row(3, 7)))
    assert (result.gaps, result.verdict()) == ({}, "clean")
    bare = micro_batch(1, 0, row(0, 10))
    bare["groups"] = []
    assert set(judged(*parts(bare)).gaps) == {"slots-not-presented", "table-not-presented"}


def test_loads_and_copies_are_judged_as_in_a_target():
    load = event("load", 1, 0, value=7, blocks=[3])
    before = [begin(0, [*admit(1, BLOCKS, first=4), load], []), end(0)]
    begun = parts(row(4, 6), tokens=6, computed=4, events=[])
    assert codes(*before, *begun) == [(1101, 0, 1, 0)]
    # the second part reads what the first has written
    load = event("load", 1, 0, value=7, first=4, blocks=[5])
    before = [begin(0, [*admit(1, BLOCKS), load], []), end(0)]
    cut = parts(row(0, 3), row(3, 7), events=[])
    assert codes(*before, *cut) == [(1102, 0, 1, 4)]
    cut = parts(row(0, 6), row(6, 4), events=[])
    assert codes(*before, *cut) == [(1101, 0, 1, 4), (1102, 0, 1, 4)]
