# SPDX-License-Identifier: Apache-2.0
"""Cross-attention. Corners of docs/judging.md, Other passes.

Request 1 has 6 encoder tokens in blocks 11 and 12 of group 1, and its own tokens in block 3.
"""

import pytest
from kvguard_oracle import UnsupportedError
from pass_scenario import (
    ABANDONED,
    CROSS_GROUP,
    ENCODER,
    NO_FORWARD,
    PAD,
    Row,
    cross,
    draft,
    encoded,
    encoder_engine,
    engine,
    micro_batch,
    step,
    target,
)
from scenario import (
    admit,
    append,
    array,
    begin,
    end,
    event,
    found,
    group,
    group_plan,
    judge,
    plan,
    pool,
    scheduled,
)

OUTPUT = [11, 12]
ALL = Row(1, OUTPUT, 0, 6)


def judged(*records, **fields):
    result = judge(*records, geometry_line=encoder_engine(**fields))
    assert not any(name.startswith("malformed") for name in result.gaps)
    return result


def codes(*records, **fields):
    return found(judged(*records, **fields), unwritten=True)


def first_step(*plans, events=None, own=OUTPUT, tokens=6, flags=0):
    """The step that writes the output, as far as the plans say."""
    began = encoded(1, [3], list(own), tokens) if events is None else events
    return step(1, began, [(1, 2, 0)], *plans, flags=flags)


def later(number, *plans, computed=2, events=(), flags=0):
    return step(number, events, [(1, 1, computed)], *plans, flags=flags)


WROTE = first_step(target(1, Row(1, [3], 0, 2)), cross(1, ALL))


def read(tokens=0, length=6, **fields):
    return Row(1, OUTPUT, 0, tokens, length=length, **fields)


# The geometry


@pytest.mark.parametrize(
    "fields",
    [
        {"groups": [group(kind="cross", encoding="csr")]},
        {"groups": [group(kind="cross")], "pools": [pool(kind="state")]},
        {"groups": [group(kind="cross")], "pools": [pool(kind="cells")]},
    ],
)
def test_what_is_refused(fields):
    with pytest.raises(UnsupportedError):
        judge(geometry_line=engine(**fields))


def test_cross_groups_are_never_sharded():
    # one column for 4 tokens, on each rank
    fields = {"dcp_size": 2, "dcp_rank": 1, "interleave": 1}
    assert codes(*first_step(cross(1, ALL)), **fields) == []
    assert codes(*first_step(own=[11]), **fields) == [(204, 1, 1, 5)]


# How many tokens an encoder has


def marked(*marks, later_marks=()):
    """(kind, first, count) of each DOMAIN; the row of the cross group is empty."""
    events = [
        *admit(1, [3], []),
        *[event("domain", 1, other=kind, value=1, first=at, count=n) for kind, at, n in marks],
    ]
    late = [
        event("domain", 1, other=kind, value=1, first=at, count=n) for kind, at, n in later_marks
    ]
    return codes(begin(1, events, []), end(1), *step(2, late, [(1, 2, 0)]))


def test_the_largest_end_of_the_encoders_marks():
    assert marked() == []
    assert marked((ENCODER, 0, 6)) == [(204, 1, 1, 5)]
    assert marked((ENCODER, 2, 6)) == [(204, 1, 1, 7)]
    assert marked((ENCODER, 4, 6), (ENCODER, 0, 3)) == [(204, 1, 1, 9)]
    assert marked((ENCODER, 0, 0)) == []
    # another kind, or another record
    assert marked((2, 0, 6)) == []
    assert marked(later_marks=[(ENCODER, 0, 6)]) == []


# Bindings and the schedule


@pytest.mark.parametrize(("columns", "short"), [(0, True), (1, True), (2, False), (3, False)])
def test_capacity(columns, short):
    assert codes(*first_step(own=range(11, 11 + columns))) == ([(204, 1, 1, 5)] if short else [])


def test_capacity_is_asked_in_every_step():
    cut = event("truncate", 1, CROSS_GROUP, first=1)
    assert codes(*WROTE, *later(2, events=[cut])) == [(204, 1, 1, 5)]
    # a request without encoder output has no columns to have
    assert codes(*first_step(own=[], tokens=0)) == []


def test_no_column_is_a_hit():
    # 8 tokens are computed: of its own tokens two columns are hits, of the encoder's none
    assert codes(*WROTE, begin(2, encoded(2, [5, 7], [13, 14], 6, first=8), [])) == []
    shared = encoded(2, [5, 7], [13, 12], 6, first=8)
    assert codes(*WROTE, begin(2, shared, [])) == [(601, 1, 2, 1)]
    # nor where the last token is computed again
    again = encoded(2, [5, 7], [11], 4, first=3)
    again[0]["count"] = 4
    assert codes(*WROTE, begin(2, again, [])) == [(601, 1, 2, 0)]


def test_the_other_lines_of_the_binding():
    for row, expected in (
        ([20, 12], [(201, 1, 1, 0)]),
        ([0, 12], [(202, 1, 1, 0)]),
        ([11, 11], [(203, 1, 1, 1)]),
    ):
        assert codes(begin(1, encoded(1, [3], row, 6), [])) == expected
    # one pool: a block of the encoder is no block of tokens
    assert codes(*WROTE, begin(2, [append(1, 12)], [])) == [(601, 0, 1, 1)]


def pinned(block, *before, number=2, rows=((1, 1, 2),)):
    sends = event("send-pending", 1, CROSS_GROUP, value=7, blocks=[block])
    return codes(*before, *step(number, [sends], list(rows)))


def test_the_output_is_written_once():
    wrote = [(1102, 1, 1, 4)]
    admitted = [begin(1, encoded(1, [3], [11, 12, 13], 6), []), end(1)]
    assert pinned(12, *admitted, rows=[(1, 2, 0)]) == wrote
    # a column behind it, and no step yet
    assert pinned(13, *admitted, rows=[(1, 2, 0)]) == []
    assert pinned(12, *admitted, rows=[]) == []
    assert pinned(12, *WROTE) == []
    # a step that did not run, or of which it is not known
    for flags in (NO_FORWARD, ABANDONED):
        assert pinned(12, *first_step(flags=flags), rows=[(1, 2, 0)]) == wrote
    # a count that goes back takes nothing
    assert pinned(12, *WROTE, rows=[(1, 3, 0)]) == [(904, None, 1, 0)]
    back = [begin(2, [event("rollback", 1, count=2)], []), end(2)]
    assert pinned(12, *WROTE, *back, number=3, rows=[(1, 2, 0)]) == []


def test_two_writers_of_one_output():
    both = [*encoded(1, [3], [11, 12], 6), *encoded(2, [5], [11, 13], 6)]
    writing = step(1, both, [(1, 2, 0), (2, 2, 0)])
    assert codes(*writing) == [(601, 1, 2, 0), (603, 1, 2, 0)]


def test_written_output_is_content_again():
    # a load of the encoder's block failed: it is computed, and a token's column is no other's
    failed = [
        event("load", 1, CROSS_GROUP, value=7, blocks=[11]),
        event("load-failed", 1, value=7, blocks=[11]),
    ]
    events = [*encoded(1, [3, 5], OUTPUT, 6, first=2), *failed]
    assert codes(*step(1, events, [(1, 2, 2)])) == []
    assert codes(*step(1, events, [(1, 2, 2)]), *step(2, [], [(1, 1, 4)])) == []


# Plans


def test_other_passes_do_not_judge_it():
    wrong = group_plan([[99, 98]], [99, 98], CROSS_GROUP, 2, [7], seq_lens=[5])
    for shown in (target, micro_batch, draft):
        own = Row(1, [3], 0, 2)
        pass_ = target(1, own) if shown is target else shown(1, 0, own)
        pass_["groups"].append(wrong)
        assert codes(*first_step(pass_)) == []
    idle = plan(1, [], [0], [], wrong, pass_name="dummy", padded_tokens=2)
    assert codes(*first_step(idle)) == []
    # nor does a cross pass judge other groups
    pass_ = cross(1, ALL)
    pass_["groups"].append(group_plan([[99]], [99] * 6, 0, 1, [7], seq_lens=[5]))
    assert codes(*first_step(pass_)) == []


def test_rows():
    assert codes(*first_step(cross(1))) == [(102, None, 1, -1)]
    assert codes(*first_step(cross(1, ALL, Row(9, [13], 0, 0)))) == [(101, None, 9, -1)]
    assert codes(*first_step(cross(1, ALL, ALL))) == [(103, None, 1, -1)]
    wrong = cross(1, ALL)
    wrong["query_start"] = array([0, 5])
    assert codes(*first_step(wrong)) == [(105, None, 0, -1)]


@pytest.mark.parametrize("tokens", [0, 2, 5, 6, 7])
def test_how_many_tokens_a_row_has(tokens):
    shown = cross(1, Row(1, [11, 12], 0, tokens, length=6))
    expected = [] if tokens == 6 else [(104, None, 1, -1)]
    assert codes(*first_step(shown)) == expected
    shown = cross(2, Row(1, [11, 12], 0, tokens, length=6))
    expected = [] if tokens in (0, 6) else [(104, None, 1, -1)]
    assert codes(*WROTE, *later(2, shown)) == expected


def test_a_step_that_did_not_run_has_written_nothing():
    for flags in (NO_FORWARD, ABANDONED):
        before = first_step(flags=flags)
        assert codes(*before, *step(2, [], [(1, 2, 0)], cross(2, ALL))) == []
        short = step(2, [], [(1, 2, 0)], cross(2, read()))
        assert codes(*before, *short) == [(104, None, 1, -1)]


def test_positions_and_counts():
    def at(*positions, **fields):
        return codes(*first_step(cross(1, ALL, positions=list(positions), **fields)))

    assert at(0, 1, 2, 3, 4, 5, num_computed=[7]) == []
    assert at(1, 2, 3, 4, 5, 6) == [(901, None, 1, 0)]
    assert at(0, 1, 3, 4, 5, 6) == [(903, None, 1, 2)]
    assert at(5, 6, 7, 9, 9, 9) == [(901, None, 1, 0), (903, None, 1, 8)]
    # rows without tokens have none
    assert codes(*WROTE, *later(2, cross(2, read(), positions=[]))) == []


def test_the_rows_start_is_0_where_its_requests_is_not():
    # the third step starts at 3; the drafts before are open
    events = encoded(1, [3, 5], OUTPUT, 6)
    opened = step(1, events, [(1, 4, 0, 2)], cross(1, ALL))
    again = [begin(2, [], [scheduled(1, 2, 4)]), cross(2, ALL, positions=True), end(2)]
    result = judged(*opened, *again, flags=1)
    assert (found(result), result.assumptions) == ([], 0)


@pytest.mark.parametrize("length", [0, 3, 5, 7, 32])
def test_lengths(length):
    wrong = [(501, None, 1, 6)]
    assert codes(*first_step(cross(1, Row(1, OUTPUT, 0, 6, length=length)))) == wrong
    assert codes(*WROTE, *later(2, cross(2, read(length=length)))) == wrong
    own = cross(1, ALL)
    own["groups"][0]["reads"]["seq_lens"] = array([length])
    assert codes(*first_step(own)) == [(501, 1, 1, 6)]


def test_lengths_beyond_the_rows():
    padded = cross(1, ALL, padded_rows=2)
    padded["seq_lens"] = array([6, 6])
    assert codes(*first_step(padded)) == [(502, None, 0, -1)]


def test_lengths_of_rows_without_usable_tokens():
    wrong = cross(1, Row(1, OUTPUT, 0, 6, length=5))
    wrong["query_start"] = array([1, 6])
    assert codes(*first_step(wrong)) == [(105, None, 0, -1), (501, None, 1, 6)]


def test_tables():
    def shown(row, columns=8, **fields):
        pass_ = cross(2, read(), columns=columns)
        pass_["groups"] = [group_plan([row], None, CROSS_GROUP, columns, **fields)]
        return codes(*WROTE, *later(2, pass_))

    assert shown([11, 12, 99]) == []
    assert shown([11, 13]) == [(301, 1, 1, 1)]
    assert shown([0, 99]) == [(302, 1, 1, 0), (303, 1, 1, 1)]
    assert shown([11, 12], row_columns=[1]) == [(304, 1, 1, 1)]


def test_slots():
    def wrote(*slots, others=(), **fields):
        pass_ = cross(1, Row(1, OUTPUT, 0, 6, slots=list(slots)), **fields)
        return codes(*first_step(pass_, events=[*encoded(1, [3], OUTPUT, 6), *others]))

    assert wrote(44, 45, 46, 47, 48, 49) == []
    assert wrote(44, 45, 46, PAD, 48, 1) == [(402, 1, 1, 5), (403, 1, 1, 3)]
    assert wrote(44, 45, 46, 80, 48, 49) == [(404, 1, 1, 3)]
    assert wrote(44, 45, 46, 47, 44, 49) == [(401, 1, 1, 4), (405, 1, 1, 4)]
    assert wrote(44, 45, 46, 47, 52, 53, others=admit(2, [13], [])) == [
        (401, 1, 1, 4), (602, 1, 1, 4)
    ]  # fmt: skip
    # the decoder's slots
    assert wrote(12, 13, 14, 15, 48, 49) == [(401, 1, 1, 0)]
    pass_ = cross(1, Row(1, OUTPUT, 0, 6, slots=[44, 45, 46, 47, 48, 49, 50]), padded_tokens=7)
    assert codes(*first_step(pass_)) == [(406, 1, 0, 6)]


def test_padding_rows():
    flags = 4
    groups = [group(max_columns=8), group(id=1, kind="cross", max_columns=8, flags=flags)]
    pass_ = cross(1, ALL, padded_rows=2)
    pass_["groups"][0]["reads"]["table"]["rows"] = [[11, 12], [0, 7]]
    result = judge(*first_step(pass_), geometry_line=engine(groups))
    assert found(result) == [(305, 1, 0, 1)]


def test_loads_and_copies_are_not_judged():
    loads = event("load", 1, CROSS_GROUP, value=7, blocks=[11])
    shown = [target(2, Row(1, [3], 2, 1)), cross(2, read())]
    assert codes(*WROTE, *later(2, *shown, events=[loads])) == []


# Gaps


def gaps(*records):
    return {name: sorted(steps) for name, steps in judged(*records).gaps.items()}


TARGET_1, TARGET_2 = target(1, Row(1, [3], 0, 2)), target(2, Row(1, [3], 2, 1))
CROSS_1 = cross(1, ALL)


def without(pass_, what):
    part = {**pass_["groups"][0], what: None}
    if what == "reads":
        part["encoding"] = None
    return {**pass_, "groups": [part]}


def test_what_a_cross_pass_shows():
    assert gaps(*first_step(TARGET_1, CROSS_1)) == {}
    assert gaps(*first_step(TARGET_1)) == {"slots-not-presented": [1], "table-not-presented": [1]}
    assert gaps(*first_step(CROSS_1)) == {"slots-not-presented": [1], "table-not-presented": [1]}
    assert gaps(*first_step(TARGET_1, without(CROSS_1, "slots"))) == {"slots-not-presented": [1]}
    assert gaps(*first_step(TARGET_1, without(CROSS_1, "reads"))) == {"table-not-presented": [1]}
    # each pass of its groups alone
    in_target = {**TARGET_1, "groups": [*TARGET_1["groups"], *CROSS_1["groups"]]}
    assert gaps(*first_step(in_target)) == {"slots-not-presented": [1], "table-not-presented": [1]}
    own = group_plan([[3]], [12, 13, 14, 15, PAD, PAD])
    in_cross = {**CROSS_1, "groups": [own, *CROSS_1["groups"]]}
    assert gaps(*first_step(in_cross)) == {"slots-not-presented": [1], "table-not-presented": [1]}


def test_slots_are_not_asked_for_where_no_encoder_runs():
    shown = without(cross(1, Row(1, [], 0, 0)), "slots")
    assert gaps(*first_step(TARGET_1, shown, events=encoded(1, [3], [], 0))) == {}
    # beside one that does
    events = [*encoded(1, [3], [], 0), *encoded(2, [5], [11, 12], 6)]
    rows = [Row(1, [3], 0, 2), Row(2, [5], 0, 2)]
    both = without(cross(1, Row(1, [], 0, 0), Row(2, OUTPUT, 0, 6)), "slots")
    joined = step(1, events, [(1, 2, 0), (2, 2, 0)], target(1, *rows), both)
    assert gaps(*joined) == {"slots-not-presented": [1]}


def test_an_encoder_has_at_most_so_many_tokens():
    huge = [*admit(1, [3], []), event("domain", 1, other=ENCODER, value=1, first=2**62, count=9)]
    begun = codes(begin(1, huge, [scheduled(1, 2, 0)]))
    assert begun == [(204, CROSS_GROUP, 1, 2**40 - 1)]


def test_transfers_and_zeroing_of_the_output_are_not_judged():
    def at(kind, *blocks, **fields):
        return event(kind, 1, CROSS_GROUP, blocks=list(blocks), **fields)

    wrote = first_step()
    own = codes(*wrote)
    # other blocks than the bound ones, before and behind the admission
    for kind in ("load", "send-pending"):
        told = begin(2, [at(kind, 14, value=7)], [])
        assert codes(*wrote, told) == own
    early = [begin(1, [at("load", 14, value=7)], []), end(1)]
    late = [begin(2, encoded(1, [3], OUTPUT, 6, first=4), []), end(2)]
    assert codes(*early, *late) == []
    # lost, and read from 4 on
    lost = [at("load", 11, value=7), event("load-failed", 1, value=7, blocks=[11])]
    assert codes(*first_step(), *step(2, lost, [(1, 2, 2)])) == own
    # zeroed, by either group's event
    for of in (0, CROSS_GROUP):
        zero = event("zero", 0, of, blocks=[11])
        assert codes(*first_step(), *step(2, [zero], [(1, 2, 2)])) == own
    # request 1's token 0, by an event of the CROSS group
    assert codes(*wrote, begin(2, [event("zero", 0, CROSS_GROUP, blocks=[3])], [])) == own
    assert codes(*wrote, begin(2, [event("zero", 0, 0, blocks=[3])], [])) == [
        *own, (1202, 0, 1, 0)
    ]  # fmt: skip


def test_slots_are_asked_for_while_something_is_written():
    shown = without(cross(2, read()), "slots")
    before = first_step(TARGET_1, CROSS_1)
    assert gaps(*before, *later(2, TARGET_2, shown)) == {}
    assert gaps(*before, *later(2, TARGET_2, without(cross(2, read()), "reads"))) == {
        "table-not-presented": [2]
    }
    # nobody wrote it: the step before did not run
    idle = first_step(flags=NO_FORWARD)
    again = step(2, [], [(1, 2, 0)], target(2, Row(1, [3], 0, 2)), shown)
    assert gaps(*idle, *again) == {"slots-not-presented": [2]}
    # another request comes
    events = encoded(2, [5], [13, 14], 6)
    rows = [Row(1, [3], 2, 1), Row(2, [5], 0, 2)]
    both = without(cross(2, read(), Row(2, [13, 14], 0, 6)), "slots")
    joined = step(2, events, [(1, 1, 2), (2, 2, 0)], target(2, *rows), both)
    assert gaps(*before, *joined) == {"slots-not-presented": [2]}


def test_final_plans():
    final_cross = {**CROSS_1, "stage": "final"}
    before = first_step(TARGET_1, final_cross)
    assert gaps(*before, *later(2, TARGET_2, cross(2, read()))) == {"final-plan-missing": [2]}
    shown = {**cross(2, read()), "stage": "final"}
    assert gaps(*before, *later(2, TARGET_2, shown)) == {}
    # a target plan promises nothing of it
    both = {**TARGET_1, "stage": "final", "groups": [*TARGET_1["groups"], *CROSS_1["groups"]]}
    before = first_step(both, CROSS_1)
    after = later(2, {**TARGET_2, "stage": "final"}, cross(2, read()))
    assert gaps(*before, *after) == {}
