# SPDX-License-Identifier: Apache-2.0
"""Other passes, host pools, fills and loads: each line of tests/layouts/pass_faults.txt."""

from pathlib import Path

import pytest
from pass_scenario import (
    FILLS_TOLD,
    PAD,
    Row,
    cross,
    draft,
    encoded,
    encoder_engine,
    engine,
    host_engine,
    micro_batch,
    step,
    target,
)
from scenario import (
    CONNECTOR,
    admit,
    begin,
    end,
    event,
    found,
    group,
    group_plan,
    judge,
    outcome,
    state_plan,
    transfer,
)

LIST = Path(__file__).resolve().parents[1] / "layouts" / "pass_faults.txt"

# Micro-batches


def by_request(*second, lengths=2):
    """Request 1 has 3 tokens in the first micro-batch, request 2 has 2 in the second."""
    second = second or (Row(2, [7], 0, 2, length=lengths),)
    plans = [micro_batch(1, 0, Row(1, [3], 0, 3)), micro_batch(1, 1, *second)]
    events = [*admit(1, [3]), *admit(2, [7])]
    return step(1, events, [(1, 3, 0), (2, 2, 0)], *plans)


def inside(second, length=4):
    """4 and 2 tokens of one request."""
    plans = [micro_batch(1, 0, Row(1, [3, 5], 0, 4, length=length)), micro_batch(1, 1, second)]
    return step(1, admit(1, [3, 5]), [(1, 6, 0)], *plans)


def left_out():
    records = by_request()
    return [*records[:2], records[3]]


THE_REST = Row(1, [3, 5], 4, 2)

STATES = group(id=1, kind="state", encoding="state", state_mode=2, max_columns=8)


def with_state(line, starts, ends, init, table=None):
    """A plan that shows group 1 besides."""
    part = state_plan([starts], [ends], [init], 1)
    line["groups"].append(part if table is None else group_plan([table], None, 1, 2))
    return line


def states_inside(first, last, start=4):
    """4 more tokens, in two parts: a state goes from block 11 to block 12.

    `first`, `last`: what the parts show.
    """
    blocks, events = [3, 5], admit(1, [3, 5], [11, 12], first=0)
    before = []
    if start:
        begun = with_state(target(1, Row(1, blocks, 0, 4)), 0, 11, 1)
        before, events = step(1, events, [(1, 4, 0)], begun), []
    parts = [
        with_state(micro_batch(2, index, Row(1, blocks, start + 2 * index, 2)), *shown)
        for index, shown in enumerate((first, last))
    ]
    return [*before, *step(2, events, [(1, 4, start)], *parts)]


# Draft passes

BLOCKS = [3, 5, 7]


def verified(*drafts, rejected=1, events=()):
    """4 tokens, then 3 with two drafts, one of them accepted: 6 are valid."""
    told = [] if rejected is None else [outcome(2, (1, rejected))]
    first = target(1, Row(1, BLOCKS, 0, 4))
    both = [*admit(1, BLOCKS), *events]
    second = target(2, Row(1, BLOCKS, 4, 3))
    late = [] if told else [outcome(2, (1, 1))]
    return [
        *step(1, both, [(1, 4, 0)], first),
        *step(2, [], [(1, 3, 4, 2)], second, *told, *drafts),
        *late,
    ]


def stands(index, position, **fields):
    return draft(2, index, Row(1, BLOCKS, position, 1, **fields), positions=True)


def at_the_limit(length=16):
    """15 tokens and one draft that is accepted, in a model of 16."""
    blocks = [3, 5, 7, 9]
    limited = Row(1, blocks, 15, 1, length=length)
    return [
        *step(1, admit(1, blocks), [(1, 14, 0)], target(1, Row(1, blocks, 0, 14))),
        *step(
            2, [], [(1, 2, 14, 1)], target(2, Row(1, blocks, 14, 2)), outcome(2, (1, 0)),
            draft(2, 1, limited, positions=True), draft(2, 2, limited, positions=True),
        ),
    ]  # fmt: skip


# Cross-attention


def written(*first, second=None, own=(11, 12), positions=None, events=()):
    """Request 1 has 6 encoder tokens in blocks 11 and 12, and 2 of its own, then one."""
    first = first or (Row(1, [11, 12], 0, 6),)
    second = second or Row(1, [11, 12], 0, 0, length=6)
    began = [*encoded(1, [3], list(own), 6), *events]
    return [
        *step(
            1, began, [(1, 2, 0)],
            target(1, Row(1, [3], 0, 2)), cross(1, *first, positions=positions),
        ),
        *step(2, [], [(1, 1, 2)], target(2, Row(1, [3], 2, 1)), cross(2, second)),
    ]  # fmt: skip


def without_encoder():
    events = [*encoded(1, [3], [11, 12], 6), *encoded(2, [5], [], 0)]
    targets = target(1, Row(1, [3], 0, 2), Row(2, [5], 0, 2))
    both = cross(1, Row(2, [], 0, 0), Row(1, [11, 12], 0, 6))
    return step(1, events, [(1, 2, 0), (2, 2, 0)], targets, both)


def of_another(second=(11, 14)):
    """Request 2 comes when request 1 has written its encoder output."""
    two = list(second)
    rows = [Row(1, [11, 12], 0, 0, length=6), Row(2, two, 0, 6)]
    targets = target(2, Row(1, [3], 2, 1), Row(2, [5], 0, 2))
    both = step(
        2, encoded(2, [5], two, 6), [(1, 1, 2), (2, 2, 0)], targets, cross(2, *rows)
    )  # fmt: skip
    return [*written()[:4], *both]


def table_of_another():
    """In step 2 the row of request 1 shows the blocks of request 2."""
    records = of_another((13, 14))
    records[-2]["groups"][0]["reads"]["table"]["rows"][0] = [13, 14]
    return records


# Host pools, fills, loads


def on_the_host(*events, host=()):
    return step(1, [*admit(1, [3], list(host)), *events], [(1, 2, 0)], target(1, Row(1, [3], 0, 2)))


def host_transfer(kind, id_, *blocks, request=0):
    return event(kind, request, 1, value=id_, blocks=list(blocks))


def reserved_while_sent():
    sent = host_transfer("send-pending", 7, 5, request=2)
    gone = [*admit(2, [8], [5]), sent, event("finish", 2)]
    return on_the_host(*gone, host_transfer("reserve", 8, 5, request=9))


def hits(blocks, first, *before):
    """Request 2 comes with `first` tokens and runs one more."""
    line = target(3, Row(2, blocks, first, 1))
    return [*before, *step(3, admit(2, blocks, first=first), [(2, 1, first)], line)]


def filled():
    """4 tokens of request 1, which has ended."""
    ran = step(1, admit(1, [3]), [(1, 4, 0)], target(1, Row(1, [3], 0, 4)))
    return [*ran, begin(2, [event("finish", 1)], []), end(2)]


def loaded(*blocks):
    told = [outcome(1, events=[transfer("load-done", 7)])]
    return [begin(1, [transfer("load", 7, *blocks, request=2)], []), end(1), *told]


def load_beside(*blocks, first):
    """Request 1 has 8 tokens in blocks 3 and 5; request 2 shares them and loads what is behind."""
    ran = step(1, admit(1, [3, 5]), [(1, 8, 0)], target(1, Row(1, [3, 5], 0, 8)))
    load = [
        begin(2, [transfer("load", 7, *blocks, request=2, first=first)], []), end(2),
        outcome(2, events=[transfer("load-done", 7)]),
    ]  # fmt: skip
    return hits([3, 5, 6, 8], 12, *ran, *load)


TOLD = engine(flags=CONNECTOR | FILLS_TOLD)
CONNECTED = engine(flags=CONNECTOR)
HOST = host_engine()
WITH_ENCODER = encoder_engine()
SIX = [1, 2, 3, 4, 5, 6, 7]

WITH_STATES = engine([group(max_columns=8), STATES], max_drafts=0)

SCENARIOS = {
    "micro-batches-by-request": (engine(), by_request(), []),
    "micro-batches-inside-a-request": (engine(), inside(THE_REST), []),
    "micro-batch-without-tokens": (
        engine(),
        by_request(Row(1, [3], 3, 0), Row(2, [7], 0, 2)),
        [],
    ),
    "micro-batch-left-out": (engine(), left_out(), [(106, None, 2, 0)]),
    "micro-batch-drops-tokens": (engine(), inside(Row(1, [3, 5], 4, 1)), [(106, None, 1, 5)]),
    "micro-batch-twice": (
        engine(),
        inside(Row(1, [3, 5], 0, 4)),
        [(104, None, 1, -1), (106, None, 1, 4), (401, 0, 1, 4), (501, None, 1, 8)],
    ),
    "micro-batch-starts-over": (
        engine(),
        inside(Row(1, [3, 5], 4, 2, slots=[12, 13])),
        [(401, 0, 1, 4)],
    ),
    "B141-lengths-of-the-other-micro-batch": (
        engine(),
        by_request(lengths=3),
        [(501, None, 2, 2)],
    ),
    "micro-batch-length-of-the-whole-request": (
        engine(),
        inside(THE_REST, length=6),
        [(501, None, 1, 4)],
    ),
    "states-inside-a-request": (
        WITH_STATES,
        states_inside((11, 99, 0), (99, 12, 0)),
        [],
    ),
    "first-part-from-another-state": (
        WITH_STATES,
        states_inside((13, 99, 0), (99, 12, 0)),
        [(1001, 1, 1, 4)],
    ),
    "first-part-not-initialised": (
        WITH_STATES,
        states_inside((11, 99, 0), (99, 11, 0), start=0),
        [(1003, 1, 1, 0)],
    ),
    "last-part-leaves-its-state-elsewhere": (
        WITH_STATES,
        states_inside((11, 99, 0), (99, 13, 0)),
        [(1002, 1, 1, 8)],
    ),
    "last-part-table-of-another": (
        WITH_STATES,
        states_inside((11, 99, 0, [11, 19]), (99, 12, 0, [19, 13])),
        [(301, 1, 1, 1)],
    ),
    "draft-reuses-the-target": (
        engine(),
        verified(draft(2, 0, Row(1, BLOCKS, 4, 3), positions=True)),
        [],
    ),
    "draft-steps": (engine(), verified(stands(1, 6), stands(2, 7)), []),
    "draft-steps-before-the-outcome": (
        engine(),
        verified(stands(1, 5), stands(1, 6), stands(1, 7), stands(2, 8), rejected=None),
        [],
    ),
    "draft-at-the-length-limit": (engine(max_model_len=16), at_the_limit(), []),
    "draft-pads-rejected-tokens": (
        engine(),
        verified(draft(2, 0, Row(1, BLOCKS, 4, 3, slots=[20, 21, PAD]))),
        [],
    ),
    "draft-in-a-foreign-block": (
        engine(),
        verified(stands(1, 6, slots=[32]), events=admit(2, [8])),
        [(401, 0, 1, 6), (602, 0, 1, 6)],
    ),
    "draft-one-step-back": (engine(), verified(stands(1, 5)), [(901, None, 1, 6)]),
    "draft-beyond-the-accepted": (engine(), verified(stands(1, 7)), [(901, None, 1, 6)]),
    "B009-rope-coordinate-as-position": (engine(), verified(stands(1, 2)), [(901, None, 1, 6)]),
    "B074-length-beyond-the-model": (
        engine(max_model_len=16),
        at_the_limit(17),
        [(501, None, 1, 16), (501, None, 1, 16)],
    ),
    "draft-table-of-another": (
        engine(),
        verified(stands(1, 6, table=[8, 9, 7])),
        [(301, 0, 1, 0)],
    ),
    "cross-written-once": (WITH_ENCODER, written(), []),
    "cross-written-again": (WITH_ENCODER, written(second=Row(1, [11, 12], 0, 6)), []),
    "cross-without-encoder": (WITH_ENCODER, without_encoder(), []),
    "cross-wrong-slot": (
        WITH_ENCODER,
        written(Row(1, [11, 12], 0, 6, slots=[44, 45, 46, 47, 48, 53])),
        [(401, 1, 1, 5)],
    ),
    "B015-slots-of-a-pool-of-its-own": (
        WITH_ENCODER,
        written(Row(1, [11, 12], 0, 6, slots=[4, 5, 6, 7, 8, 9])),
        [(401, 1, 1, 0)],
    ),
    "cross-not-written": (
        WITH_ENCODER,
        written(Row(1, [11, 12], 0, 0, length=6)),
        [(104, None, 1, -1)],
    ),
    "B077-length-of-the-models-maximum": (
        WITH_ENCODER,
        written(Row(1, [11, 12], 0, 6, length=32)),
        [(501, None, 1, 6)],
    ),
    "cross-table-of-another": (WITH_ENCODER, table_of_another(), [(301, 1, 1, 0)]),
    "cross-short-by-a-block": (
        WITH_ENCODER,
        written(Row(1, [11], 0, 6), own=[11])[:4],
        [(204, 1, 1, 5), (403, 1, 1, 4)],
    ),
    "cross-block-of-another": (WITH_ENCODER, of_another(), [(601, 1, 2, 0)]),
    "cross-positions-of-the-decoder": (
        WITH_ENCODER,
        written(positions=[2, 3, 4, 5, 6, 7]),
        [(901, None, 1, 0)],
    ),
    "host-group-without-blocks": (HOST, on_the_host(), []),
    "host-block-reserved-while-sent": (HOST, reserved_while_sent(), [(1103, 1, 9, -1)]),
    "host-block-out-of-range": (
        HOST,
        on_the_host(host_transfer("load", 7, 5, 10, request=9)),
        [(201, 1, 9, 1)],
    ),
    "fills-told-hit": (TOLD, hits([3, 5], 4, *filled()), []),
    "fills-told-loaded": (TOLD, hits([3, 5, 6], 8, *loaded(3, 5)), []),
    "B065-hit-on-what-nobody-wrote": (TOLD, hits([8, 5], 4, *filled()), [(803, 0, 2, 0)]),
    "B128-loads-cover-too-little": (TOLD, hits(SIX, 24, *loaded(*SIX[:4])), [(803, 0, 2, 4)]),
    "B135-hit-without-a-load": (TOLD, hits([3, 5, 6], 8), [(803, 0, 2, 0)]),
    "load-behind-the-shared-prefix": (CONNECTED, load_beside(6, first=8), []),
    "B125-load-over-a-shared-prefix": (
        CONNECTED,
        load_beside(5, 6, first=4),
        [(805, 0, 2, 4)],
    ),
}

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
    assert [finding.code for finding in result.findings][:1] == ([code] if code else [])
    assert result.gaps == {}
    assert result.verdict() == ("violated" if expected else "clean")
    assert {finding.grade for finding in result.findings} <= {"proof"}
    if len(line) > 3:
        assert int(next(other[1] for other in LINES if other[0] == line[3])) == 0
