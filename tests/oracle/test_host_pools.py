# SPDX-License-Identifier: Apache-2.0
"""Host pools, fills told and loads over what others hold. Corners of docs/judging.md."""

import pytest
from kvguard_oracle import UnsupportedError
from pass_scenario import FILLS_TOLD, Row, engine, host_engine, step, target
from scenario import (
    ASYNC,
    CONNECTOR,
    PAD_ROWS_NULL,
    admit,
    append,
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
    state_plan,
    transfer,
)

HOST = 1


def hosted(*records, kind="full", flags=0):
    result = judge(*records, geometry_line=host_engine(kind, flags=flags))
    assert not any(name.startswith("malformed") for name in result.gaps)
    return found(result, unwritten=True)


def at_host(kind, request=0, **fields):
    return event(kind, request, HOST, **fields)


# Host pools


def test_memory_that_is_not_known():
    with pytest.raises(UnsupportedError):
        judge(geometry_line=geometry(pools=[pool(memory="disk")]))


def ran(row, *events, start=0, tokens=6, own=(3, 5), plans=(), kind="full"):
    """A request with `row` on the host runs a step."""
    began = [*admit(1, list(own), list(row), first=start), *events]
    return hosted(*step(1, began, [(1, tokens, start)], *plans), kind=kind)


def test_the_schedule_does_not_ask_for_it():
    assert ran([]) == []
    # two writers of one host block: the binding alone is judged
    both = [*admit(1, [3], [5]), *admit(2, [8], [5])]
    assert hosted(*step(1, both, [(1, 2, 0), (2, 2, 0)])) == [(601, HOST, 2, 0)]
    sends = at_host("send-pending", 1, value=7, blocks=[5])
    assert ran([5], sends) == []
    lost = [at_host("load", 1, value=7, blocks=[5]), event("load-failed", 1, value=7, blocks=[5])]
    assert ran([5], *lost, start=4, tokens=2) == []
    assert ran([5], at_host("zero", blocks=[5]), start=4, tokens=2) == []


def test_its_bindings_are_judged():
    assert ran([10]) == [(201, HOST, 1, 0)]
    assert ran([0]) == [(202, HOST, 1, 0)]
    assert ran([5, 5]) == [(203, HOST, 1, 1)]
    # the same id in the other pool is another block
    assert ran([3, 5]) == []


def test_its_frees_and_transfers_are_judged():
    assert ran([5], at_host("free", blocks=[5])) == [(702, HOST, 1, 0)]
    loads = at_host("load", 1, value=7, blocks=[6])
    assert ran([5], loads) == [(1105, HOST, 1, 0)]
    sends = at_host("send-pending", 1, value=7, blocks=[6])
    assert ran([5], sends) == [(1105, HOST, 1, -1)]
    assert ran([5], at_host("free", blocks=[9])) == []
    copies = at_host("copy", blocks=[6, 5])
    earlier = [begin(1, admit(1, [3, 5], [5]), []), end(1)]
    assert hosted(*earlier, begin(2, [copies], [])) == [(1204, HOST, 1, -1)]


def test_hits_on_the_host_are_judged():
    # request 2 comes with 4 tokens: the host block is that of another column
    before = [begin(1, admit(1, [3, 5], [6, 7]), []), end(1)]
    second = begin(2, admit(2, [3, 8], [7], first=4), [])
    assert (804, HOST, 2, 0) in hosted(*before, second)


def wrong_part(**fields):
    return group_plan([[99, 98]], [99] * 6, HOST, 2, [1], seq_lens=[99], **fields)


@pytest.mark.parametrize("kind", ["full", "window"])
def test_plans_do_not_judge_it(kind):
    own = target(1, Row(1, [3, 5], 0, 6))
    own["groups"].append(wrong_part())
    assert ran([5, 6], plans=[own], kind=kind) == []
    idle = plan(1, [], [0], [], wrong_part(), pass_name="dummy", padded_tokens=4)
    assert ran([5, 6], plans=[idle], kind=kind) == []
    loads = at_host("load", 1, value=7, blocks=[5])
    later = target(1, Row(1, [3, 5], 4, 2))
    assert ran([5], loads, plans=[later], start=4, tokens=2, kind=kind) == []


def test_states_on_the_host():
    pools = [pool(num_blocks=20), pool(id=1, kind="state", memory="host")]
    states = group(
        id=1, pool=1, kind="state", encoding="state", state_mode=2, flags=PAD_ROWS_NULL
    )  # fmt: skip
    described = engine([group(max_columns=8), states], pools)
    own = target(1, Row(1, [3, 5], 0, 6), padded_rows=2)
    own["groups"].append(state_plan([7, 7], [7, 7], [0, 0], 1))
    idle = plan(1, [], [0], [], state_plan([7], [7], None, 1), pass_name="dummy", padded_rows=1)
    records = step(1, admit(1, [3, 5], [0, 0]), [(1, 6, 0)], own, idle)
    assert found(judge(*records, geometry_line=described)) == []


def test_states_on_the_host_are_left_by_nobody():
    states = group(id=1, pool=1, kind="state", encoding="state", state_mode=2)
    for memory, known in (("device", True), ("host", False)):
        pools = [pool(num_blocks=20), pool(id=1, kind="state", memory=memory)]
        described = engine([group(max_columns=8), states], pools)
        records = step(1, admit(1, [3, 5], [7, 8]), [(1, 6, 0)])
        # the state of 8 tokens, in the block that has that of 6
        records.append(
            begin(2, [event("admit", 2, first=8, count=9), append(2, 0, 8, group=1)], [])
        )
        expected = [(804, 1, 2, 1)] if known else []
        assert found(judge(*records, geometry_line=described)) == expected


def test_it_is_not_missed():
    own = target(1, Row(1, [3, 5], 0, 6))
    first = step(1, admit(1, [3, 5], []), [(1, 6, 0)], own)
    result = judge(*first, geometry_line=host_engine())
    assert (result.gaps, result.verdict()) == ({}, "clean")
    # shown at stage FINAL once
    own["stage"] = "final"
    own["groups"].append(wrong_part())
    second = step(2, [], [(1, 1, 6)], target(2, Row(1, [3, 5], 6, 1), stage="final"))
    result = judge(*first, *second, geometry_line=host_engine())
    assert (result.gaps, result.verdict()) == ({}, "clean")


# Fills told


def told(*records, flags=CONNECTOR | FILLS_TOLD, **fields):
    result = judge(*records, geometry_line=engine(flags=flags, **fields))
    hits = [(f.code, f.grade, f.request, f.pos) for f in result.findings]
    return hits, result.assumptions


def reads(number, row, first, key=2, tokens=()):
    events = admit(key, row, first=first)
    events[0]["tokens"] = list(tokens)
    return [begin(number, events, []), end(number)]


FIRST = [begin(1, admit(1, [3, 5]), [scheduled(1, 8, 0)]), end(1)]
GONE = [begin(2, [event("finish", 1)], []), end(2)]
UNWRITTEN = (803, "proof", 2, 0)


def test_nobody_filled_it():
    assert told(*reads(1, [8], 4)) == ([UNWRITTEN], 0)
    # an engine that does not say so
    assert told(*reads(1, [8], 4), flags=CONNECTOR) == ([], 0)
    assert told(*reads(1, [8], 4), flags=0) == ([], 0)
    # without a connector too
    assert told(*reads(1, [8], 4), flags=FILLS_TOLD) == ([UNWRITTEN], 0)
    # a column that is no hit
    assert told(*reads(1, [8], 3)) == ([], 0)
    # no reader says what it holds
    assert told(*reads(1, [8], 4, tokens=[1, 2, 3, 4])) == ([UNWRITTEN], 0)


def test_one_for_the_request_at_the_first_such_column():
    assert told(*FIRST, *reads(2, [3, 8, 9], 12)) == ([(803, "proof", 2, 1)], 0)
    both = [*admit(2, [8], first=4), *admit(4, [8], first=4)]
    assert told(begin(1, both, [])) == ([UNWRITTEN, (803, "proof", 4, 0)], 0)
    # one that was bound and not filled comes first
    bound = [begin(1, admit(1, [3]), []), end(1)]
    assert told(*bound, *reads(2, [3, 8], 8)) == ([UNWRITTEN], 0)


def test_what_was_filled_once():
    assert told(*FIRST, *reads(3, [3, 5], 8)) == ([], 0)
    assert told(*FIRST, *GONE, *reads(3, [3, 5], 8)) == ([], 0)
    # a RESET forgets it
    assert told(*FIRST, reset(), *reads(3, [3, 5], 8)) == ([UNWRITTEN], 0)
    # bound as fresh and never filled: 0803 as ever, and a proof
    bound = [begin(1, [*admit(1, [3]), event("finish", 1)], []), end(1)]
    assert told(*bound, *reads(2, [3], 4)) == ([UNWRITTEN], 0)
    assert told(*bound, *reads(2, [3], 4), flags=CONNECTOR) == ([], 0)
    held = [begin(1, admit(1, [3]), []), end(1)]
    assert told(*held, *reads(2, [3], 4)) == ([UNWRITTEN], 0)
    assert told(*held, *reads(2, [3], 4), flags=CONNECTOR) == ([(803, "suspicion", 2, 0)], 0)
    # by its writer in this very step
    both = [*admit(2, [3], first=4), *admit(1, [3])]
    assert told(begin(1, both, [scheduled(1, 4, 0)]), end(1)) == ([], 0)


def test_loads():
    load, done = transfer("load", 7, 8, request=2), transfer("load-done", 7)
    assert told(begin(1, [load], []), end(1), *reads(2, [8], 4)) == ([], 0)
    assert told(begin(1, [load, done], []), end(1), *reads(2, [8], 4)) == ([], 0)
    # a reservation promises nothing
    reserve = transfer("reserve", 7, 8, request=2)
    assert told(begin(1, [reserve], []), end(1), *reads(2, [8], 4)) == ([UNWRITTEN], 0)
    failed = transfer("load-failed", 7, 8)
    assert told(begin(1, [load, failed], []), end(1), *reads(2, [8], 4)) == ([UNWRITTEN], 0)
    # of the record that admits its request, whatever comes first in it
    admitted = admit(2, [8], first=4)
    assert told(begin(1, [*admitted, load], [])) == ([], 0)
    assert told(begin(1, [*admitted, load, failed], [])) == ([UNWRITTEN], 0)
    # a block that is being sent is not filled by that
    sends = transfer("send-pending", 7, 8)
    assert told(begin(1, [sends], []), end(1), *reads(2, [8], 4)) == ([UNWRITTEN], 0)


def test_a_target_of_a_copy_alone():
    copies = event("copy", 0, 0, blocks=[3, 8])
    assert told(*FIRST, begin(2, [copies], []), end(2), *reads(3, [8], 4)) == ([], 0)
    # the source is not filled by that, and a RESET forgets it
    copies = event("copy", 0, 0, blocks=[8, 3])
    assert told(begin(2, [copies], []), end(2), *reads(3, [8], 4)) == ([UNWRITTEN], 0)
    copies = event("copy", 0, 0, blocks=[3, 8])
    forgotten = [begin(2, [copies], []), end(2), reset(), *reads(3, [8], 4)]
    assert told(*forgotten) == ([UNWRITTEN], 0)


def test_a_load_that_failed_in_part():
    def failed(*blocks):
        load = transfer("load", 7, 8, 9, request=5)
        told_of = event("load-failed", 5, value=7, blocks=list(blocks))
        return told(begin(1, [load, told_of], []), end(1), *reads(2, [8], 4))

    # what it does not name is there
    assert failed(9) == ([], 0)
    assert failed(8) == ([UNWRITTEN], 0)
    # it says nothing of any block
    assert failed() == ([UNWRITTEN], 0)


def test_a_hit_that_was_given_back():
    gone = [*admit(2, [8], first=4), event("finish", 2)]
    assert told(begin(1, gone, [])) == ([], 0)


def test_what_is_known_stays_known():
    # nobody claims block 3: its home is column 0, and what it holds are request 1's tokens
    assert told(*FIRST, *GONE, *reads(3, [8, 3], 8))[0] == [
        (804, "proof", 2, 1), UNWRITTEN
    ]  # fmt: skip
    assert told(*FIRST, *GONE, *reads(3, [8, 3], 8), flags=CONNECTOR) == ([], 0)
    first = admit(1, [3])
    first[0]["tokens"] = [1, 2, 3, 4]
    wrote = [begin(1, first, [scheduled(1, 4, 0)]), end(1), *GONE]
    other = reads(3, [3], 4, tokens=[1, 2, 3, 9])
    assert told(*wrote, *other) == ([(801, "proof", 2, 0)], 0)
    assert told(*wrote, *other, flags=CONNECTOR) == ([], 1)


def test_states_at_boundaries_alone():
    groups = [group(max_columns=8), group(id=1, kind="state", encoding="state", state_mode=2)]

    def hit(first):
        events = [event("admit", 2, first=first, count=16), event("replace", 2, 1, blocks=[0, 8])]
        return told(begin(1, events, []), groups=groups)

    assert hit(8) == ([(803, "proof", 2, 1)], 0)
    assert hit(7) == ([], 0)


def test_windows():
    # at 12 a window of 8 needs columns 1 and 2
    groups = [group(kind="window", window=8, max_columns=8)]
    assert told(*reads(1, [9, 8, 7], 12), groups=groups) == ([(803, "proof", 2, 1)], 0)
    assert told(*reads(1, [0, 8, 7], 12), groups=groups) == ([(803, "proof", 2, 1)], 0)


# Loads over what others hold


def loads(*blocks, request=9, first=0, id_=7):
    return transfer("load", id_, *blocks, request=request, first=first)


def over(*events, held=(), before=(), **fields):
    """`held`: admissions of an earlier step."""
    records = [*before, begin(2, list(held), []), end(2), begin(3, list(events), [])]
    return found(judge(*records, geometry_line=engine(**fields)))


ROW = admit(1, [3, 5, 6], first=6)


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        # 6 tokens are valid: some of column 1, none of column 2
        ([3], [(805, 0, 9, 0)]),
        ([5], [(805, 0, 9, 4)]),
        ([6], []),
        ([8], []),
        # one for the event, at its first such block
        ([6, 5, 3], [(805, 0, 9, 4)]),
        ([8, 3, 5], [(805, 0, 9, 0)]),
        # ids that are no blocks
        ([0, 3], [(805, 0, 9, 0)]),
        ([0], []),
        ([99], [(201, 0, 9, 0)]),
    ],
)
def test_blocks_that_a_live_request_has(blocks, expected):
    assert over(loads(*blocks), held=ROW) == expected


def test_whose_load_it_is():
    assert over(loads(3, request=1), held=ROW) == []
    # nobody's
    assert over(loads(3, request=0), held=ROW) == []
    # the other request that shares it
    both = [*ROW, *admit(2, [3], first=4)]
    assert over(loads(3, request=1), held=both) == [(805, 0, 1, 0)]
    assert over(event("finish", 1), loads(3), held=ROW) == []
    for kind in ("reserve", "send-pending"):
        assert over(transfer(kind, 7, 3, request=9), held=ROW) == []
    # the load after its reservation
    reserved = transfer("reserve", 7, 3, request=9)
    assert over(reserved, loads(3), held=ROW) == [(805, 0, 9, 0)]
    # an id that was used has no effect
    used = [transfer("reserve", 7, 8), transfer("drain", 7)]
    assert over(*used, loads(3), held=ROW) == [(1107, 0, 9, -1)]


def test_who_was_admitted_in_this_step():
    # they may have come upon what is loaded now
    assert over(*ROW, loads(3)) == []
    assert over(*admit(2, [3], first=4), loads(3, request=1), held=ROW) == []
    assert over(*admit(2, [3], first=4), loads(3), held=ROW) == [(805, 0, 9, 0)]
    # the smallest key is not looked at where it came now
    four = [*admit(4, [8, 3], first=8)]
    assert over(*admit(2, [3], first=4), loads(3), held=four) == [(805, 0, 9, 4)]


def test_what_a_failed_load_has_lost():
    failed = [loads(3, 5, request=1), event("load-failed", 1, value=7, blocks=[3])]
    assert over(loads(3, id_=8), held=[*ROW, *failed]) == []
    assert over(loads(3, 5, id_=8), held=[*ROW, *failed]) == [(805, 0, 9, 4)]
    again = [loads(3, request=1, id_=9), transfer("load-done", 9)]
    assert over(loads(3, id_=8), held=[*ROW, *failed, *again]) == [(805, 0, 9, 0)]


def test_a_load_that_is_misplaced_too():
    both = [*ROW, *admit(2, [8, 9], first=8)]
    assert over(loads(3, request=2), held=both) == [(805, 0, 2, 0), (1105, 0, 2, 0)]


def test_the_smallest_key_and_its_first_column():
    # request 2 has block 3 in column 1, request 4 in column 0
    held = [*admit(4, [3], first=4), *admit(2, [8, 3], first=8)]
    assert (805, 0, 9, 4) in over(loads(3), held=held)
    # the smaller has no valid tokens there
    held = [*admit(4, [3], first=4), *admit(2, [8, 3], first=4)]
    assert (805, 0, 9, 0) in over(loads(3), held=held)


def test_groups_of_the_pool():
    groups = [group(max_columns=8), group(id=1, block_size=8, kernel_block_size=8)]
    row = [*admit(1, [5, 6, 7, 3], [8, 3], first=16)]
    # group 0 comes first
    assert (805, 1, 9, 12) in over(
        event("load", 9, 1, value=7, blocks=[3]), held=row, groups=groups
    )
    row = [*admit(1, [5, 6, 7, 4], [8, 3], first=16)]
    assert over(loads(3), held=row, groups=groups) == [(805, 0, 9, 8)]
    # another pool
    pools = [pool(num_blocks=20), pool(id=1)]
    groups = [group(max_columns=8), group(id=1, pool=1)]
    row = admit(1, [5], [3], first=4)
    assert over(loads(3), held=row, groups=groups, pools=pools) == []
    assert over(loads(5), held=row, groups=groups, pools=pools) == [(805, 0, 9, 0)]


def test_what_a_window_has_passed():
    groups = [group(kind="window", window=8, max_columns=8)]
    # [10, 11]: column 0 may be passed; [9, 10]: it is not
    for tokens, expected in ((11, []), (10, [(805, 0, 9, 0)])):
        first = [begin(1, admit(1, [3, 5, 2]), [scheduled(1, tokens, 0, 1)]), end(1)]
        assert over(loads(3), before=first, groups=groups, flags=ASYNC) == expected


def test_context_parallel():
    # a column stands for 8 positions
    fields = {"dcp_size": 2, "dcp_rank": 0, "interleave": 1}
    row = admit(1, [3, 5, 6], first=9)
    assert over(loads(5), held=row, **fields) == [(805, 0, 9, 8)]
    assert over(loads(6), held=row, **fields) == []


def test_states_and_host_pools_are_not_judged():
    states = group(id=1, kind="state", encoding="state", state_mode=2)
    groups = [group(max_columns=8), states]
    row = admit(1, [5, 6], [8], first=4)
    load = event("load", 9, 1, value=7, blocks=[5])
    assert over(load, held=row, groups=groups) == []
    # a token's group, into a state
    assert over(loads(8), held=row, groups=groups) == []
    assert over(loads(5), held=row, groups=groups) == [(805, 0, 9, 0)]
    came = [begin(1, admit(1, [5], [3], first=4), []), end(1)]
    assert hosted(*came, begin(2, [event("load", 9, 1, value=7, blocks=[3])], [])) == []


def test_the_output_of_encoders_is_not_judged():
    groups = [group(max_columns=8), group(id=1, kind="cross", max_columns=8)]
    row = [*admit(1, [5, 6], [8], first=4), event("domain", 1, other=4, value=1, count=4)]
    assert over(event("load", 9, 1, value=7, blocks=[5]), held=row, groups=groups) == []
    # a token's group, into the encoder's output
    assert over(loads(8), held=row, groups=groups) == []
    assert over(loads(5), held=row, groups=groups) == [(805, 0, 9, 0)]


def test_outcomes_too():
    first = begin(1, ROW, [])
    late = outcome(1, events=[loads(5)])
    # of the step that admits it, open or not; of an open one that comes later
    assert found(judge(first, late, end(1), geometry_line=engine())) == []
    assert found(judge(first, end(1), late, geometry_line=engine())) == []
    later = [first, end(1), begin(2, [], []), late, end(2)]
    assert found(judge(*later, geometry_line=engine())) == [(805, 0, 9, 4)]
    # the count at that time: 8 tokens after the step
    ran_on = [begin(1, ROW, [scheduled(1, 3, 6)]), end(1)]
    assert over(loads(6), before=ran_on) == [(805, 0, 9, 8)]
    assert over(append(1, 7), loads(7), before=ran_on) == []
