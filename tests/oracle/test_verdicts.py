# SPDX-License-Identifier: Apache-2.0
"""What a stream comes to: gaps, lost bindings, and what the oracle refuses to judge.

The two steps of test_plan.py, and what is missing or told amiss around them.
"""

import copy

import pytest
from kvguard_oracle import UnreadableError, UnsupportedError
from scenario import (
    NO_SLOTS,
    admit,
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
    reset,
    scheduled,
)
from test_plan import BEFORE, SLOTS, TABLE, right, with_slots


def verdict(*records, **fields):
    result = judge(*records, geometry_line=geometry(**fields))
    return result.verdict(), len(result.gap_steps())


def test_nothing_judged_is_not_clean():
    assert verdict() == ("cannot_judge", 0)
    assert verdict(begin(1, [], []), end(1)) == ("cannot_judge", 0)


def test_what_is_not_presented_is_a_gap():
    assert verdict(*BEFORE, right(), end(2)) == ("clean", 0)
    assert verdict(*BEFORE, end(2)) == ("cannot_judge", 1)
    for part in (group_plan(None, SLOTS), group_plan(TABLE, None)):
        assert verdict(*BEFORE, right(parts=[part]), end(2)) == ("cannot_judge", 1)
    # a proof stands all the same
    wrong = right(parts=[group_plan(None, [28, 29, 22, 23, 9])])
    assert verdict(*BEFORE, wrong, end(2)) == ("violated", 1)
    # nothing ran: nothing to show, and nothing judged
    alone = [begin(1, admit(1, [3, 5]), [scheduled(1, 6, 0)]), end(1, flags=1)]
    assert verdict(*alone) == ("cannot_judge", 0)
    assert verdict(*BEFORE, end(2, flags=1)) == ("clean", 0)


def test_a_final_plan_is_missed_once_it_was_shown():
    first = [*BEFORE[:2], {**BEFORE[1], "stage": "final"}, *BEFORE[2:]]
    assert verdict(*first, right(), end(2)) == ("cannot_judge", 1)
    assert verdict(*first, right(), right(stage="final"), end(2)) == ("clean", 0)
    assert verdict(*first, right(stage="final"), end(2)) == ("clean", 0)


def test_a_final_plan_counts_in_whatever_step_it_was_shown():
    final = {**BEFORE[1], "stage": "final"}
    declared = copy.deepcopy(BEFORE)
    declared[0]["events"].append(event("gap", name="unknown-field"))
    assert verdict(*declared, right(), end(2)) == ("cannot_judge", 1)
    declared.insert(2, final)
    assert verdict(*declared, right(), end(2)) == ("cannot_judge", 2)
    # a RESET does not forget it
    afresh = {"record": "reset", "step": 0, "reason": "arm"}
    again = [begin(2, admit(4, [3]), [scheduled(4, 1, 0)])]
    again += [plan(2, [4], [0, 1], [1], group_plan([[3]], [12])), end(2)]
    assert verdict(*BEFORE[:3], afresh, *again) == ("clean", 0)
    assert verdict(*BEFORE[:2], final, BEFORE[2], afresh, *again) == ("cannot_judge", 1)


def test_a_declared_gap_stops_the_plans_only():
    gap = copy.deepcopy(BEFORE)
    gap[3]["events"].append(event("gap", name="unknown-field"))
    wrong = with_slots(9, 9, 9, 9, 9)
    assert verdict(*gap, wrong, end(2)) == ("cannot_judge", 1)
    # its bindings are followed: step 3 finds block 7 owned
    third = begin(3, admit(4, [7]), [])
    assert found(judge(*gap, wrong, end(2), third)) == [(601, 0, 4, 0)]


def test_lost_bindings_stop_everything_until_a_reset():
    twice = begin(3, [*admit(4, [9]), *admit(4, [6])], [])
    later = begin(4, admit(5, [7]), [])
    stream = [*BEFORE, right(), end(2), twice, end(3), later, end(4)]
    assert found(judge(*stream)) == []
    assert verdict(*stream) == ("cannot_judge", 2)
    afresh = {"record": "reset", "step": 0, "reason": "arm"}
    events = [*admit(6, [7]), *admit(7, [7])]
    assert found(judge(*stream, afresh, begin(5, events, []))) == [(601, 0, 7, 0)]


@pytest.mark.parametrize("gone", ["finish", "preempt"])
def test_a_key_that_is_live_is_not_admitted_whatever_the_record_does_before(gone):
    # block 9 is bound twice: nothing of the record is applied
    def at(key, *events):
        events = [*events, *admit(4, [9]), *admit(key, [9])]
        return [*BEFORE, right(), end(2), begin(3, events, []), end(3)]

    assert found(judge(*at(1, event(gone, 1)))) == []
    assert verdict(*at(1, event(gone, 1))) == ("cannot_judge", 1)
    # a key of its own
    assert found(judge(*at(5, event(gone, 1)))) == [(601, 0, 5, 0)]


@pytest.mark.parametrize(
    "stray", [right(), outcome(2, (1, 0)), end(2)], ids=["plan", "outcome", "end"]
)
def test_a_step_that_was_never_begun_loses_the_bindings(stray):
    # the BEGIN of step 2 is lost: what it said is not known any more
    later = [begin(3, admit(4, [3]), []), end(3)]
    assert found(judge(*BEFORE[:3], stray, *later)) == []
    assert verdict(*BEFORE[:3], stray, *later) == ("cannot_judge", 2)
    afresh = {"record": "reset", "step": 0, "reason": "arm"}
    again = [begin(4, [*admit(5, [3]), *admit(6, [3])], []), end(4)]
    assert found(judge(*BEFORE[:3], stray, *later, afresh, *again)) == [(601, 0, 6, 0)]
    # of a step that was begun: malformed, and no more than that
    old = {**stray, "step": 1}
    assert found(judge(*BEFORE[:3], old, *later)) == [(601, 0, 4, 0)]


def test_scheduled_twice_is_a_gap():
    rows = [scheduled(1, 1, 0), scheduled(1, 1, 0)]
    line = plan(1, [1], [0, 1], [1], group_plan([[3]], [12]))
    assert verdict(begin(1, admit(1, [3]), rows), line, end(1)) == ("cannot_judge", 1)


def test_an_abandoned_step_is_a_gap():
    assert verdict(*BEFORE, right(), end(2, flags=2)) == ("cannot_judge", 1)


def test_a_reset_forgets():
    afresh = {"record": "reset", "step": 0, "reason": "sleep"}
    again = begin(3, admit(4, [3]), [])
    assert found(judge(*BEFORE, right(), end(2), afresh, again)) == []


# What the page does not define


@pytest.mark.parametrize(
    "fields",
    [
        {"groups": [group(kind="ring", window=8)]},
        {"groups": [group(encoding="state")]},
        {"groups": [group()], "pools": [pool(kind="state")]},
        {"groups": [group(placement="chosen")]},
        {"groups": [group(encoding="mask")]},
        {"groups": [group(table_unit="slot")]},
        {"groups": [group(index_scale=2, kind="window", window=4)]},
        {"groups": [group(flags=NO_SLOTS)]},
        {"flags": 64},
        {"pools": [pool(kind="cells")]},
        {"groups": [group(placement="chosen", encoding="csr")]},
        {"pcp_size": 2, "pcp_layout": 1, "groups": [group(kind="window", window=8)]},
        {"incident": True},
    ],
)
def test_other_geometries_are_refused(fields):
    with pytest.raises(UnsupportedError):
        judge(geometry_line=geometry(**fields))


def test_other_passes_and_events_are_refused():
    for pass_name in ("graph-replay", "none"):
        with pytest.raises(UnsupportedError):
            judge(*BEFORE, right(pass_name=pass_name))
    mask = {**event("append", 1, 0), "kind": "mask"}
    with pytest.raises(UnsupportedError):
        judge(begin(1, [mask], []))


def test_a_gap_in_an_outcome():
    gap = event("gap", name="not seen")
    told = judge(*BEFORE, outcome(1, (1, 0), events=[gap]), right(), end(2))
    assert (found(told), told.gap_steps()) == ([], {2})
    wrong = right()
    wrong["seq_lens"]["values"][0] += 1
    assert len(found(judge(*BEFORE, outcome(1, (1, 0), events=[gap]), wrong))) == 1
    lost = outcome(1, (1, 0), events=[{**gap, "flags": 4}])
    assert found(judge(*BEFORE, lost, wrong)) == []


def test_domains_are_accepted():
    first = begin(1, [*admit(1, [3]), event("domain", 1, value=7, count=4)], [])
    assert found(judge(first, end(1))) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "window", "window": 0},
        {"kind": "chunked", "window": 8, "sink": 4},
        {"kind": "chunked", "window": 8, "retained": 4},
    ],
)
def test_windows_that_say_nothing_are_no_geometry(fields):
    with pytest.raises(UnreadableError):
        judge(geometry_line=geometry([group(**fields)]))


# Records that a trace keeps by kind and step alone


def refused(kind, step):
    return {"record": kind, "step": step, "refused": True}


def test_refused_records_are_malformed_ones():
    assert verdict(*BEFORE, refused("plan", 2), right(), end(2)) == ("cannot_judge", 1)
    assert verdict(*BEFORE, right(), end(2), refused("outcome", 1)) == ("cannot_judge", 1)
    # without its BEGIN nothing of step 2, or later, is judged
    lost = [*BEFORE[:3], refused("begin", 2), with_slots(9, 9, 9, 9, 9), end(2)]
    assert verdict(*lost, begin(3, admit(4, [3]), []), end(3)) == ("cannot_judge", 2)


def test_a_record_between_steps_is_a_gap_of_the_step_that_ended():
    stray = plan(1, [1], [0, 6], [6], group_plan([[3, 5]], [12, 13, 14, 15, 20, 21]))
    result = judge(*BEFORE[:3], stray, stray, *BEFORE[3:], right(), end(2))
    assert (result.gap_steps(), result.findings) == ({1}, [])


def test_a_key_that_one_record_admits_twice():
    wrong = admit(2, [99])
    for between in ([], [event("finish", 1)], [event("preempt", 1)]):
        twice = [*wrong, *admit(1, [3]), *between, *admit(1, [99])]
        result = judge(begin(1, twice, [scheduled(1, 1, 0)]), end(1))
        assert result.findings == []
        assert set(result.gaps) == {"admitted-twice", "bindings-lost"}
        assert result.gap_steps() == {1}
    # until a RESET
    lost = [begin(1, [*admit(1, [3]), event("admit", 1)], []), end(1)]
    assert verdict(*lost, begin(2, wrong, []), end(2)) == ("cannot_judge", 2)
    assert verdict(*lost, reset(), begin(2, wrong, []), end(2)) == ("violated", 1)
    # one that is live already makes the record malformed, whatever it does with it
    before = [begin(1, admit(1, [3]), []), end(1)]
    for events in (
        [event("finish", 1), *admit(1, [5])],
        [event("finish", 1), *admit(1), *admit(1)],
    ):
        result = judge(*before, begin(2, events, []), end(2))
        assert [name for name in result.gaps if name.startswith("malformed")]
        assert "admitted-twice" not in result.gaps
    # in two records it is another request
    again = begin(2, [event("finish", 1)], []), end(2), begin(3, admit(1, [5]), []), end(3)
    assert judge(*before, *again).gaps == {}


@pytest.mark.parametrize("number", [0, 1])
def test_records_of_a_step_while_none_was_begun(number):
    row = plan(number, [1], [0, 1], [1], group_plan([[3]], [12]))
    for early in (row, outcome(number, (1, 0)), end(number)):
        result = judge(early, begin(number, admit(2, [99]), []), end(number))
        assert result.findings == []
        # before the first step, and in it, whatever its number
        assert "bindings-lost" in result.gaps
        assert len(result.gap_steps()) == 2
