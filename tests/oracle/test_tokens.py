# SPDX-License-Identifier: Apache-2.0
"""What a prefix hit finds (0801 to 0803), each beside its nearest legal neighbour.

Blocks hold 4 tokens (scenario.py). Request 1 computes tokens 0..6 and samples more; request 9 reads
blocks 3 and 5 (columns 0 and 1) as prefix hits. Numbers by hand from docs/judging.md, Content.
"""

import pytest
from scenario import (
    ASYNC,
    CONNECTOR,
    admit,
    append,
    begin,
    end,
    event,
    found,
    geometry,
    judge,
    outcome,
    scheduled,
    transfer,
)

TOKENS = [10, 11, 12, 13, 14, 15, 16, 17, 18]
# the same block 0, another block 1
OTHER = [10, 11, 12, 13, 99, 15, 16, 17, 18]
LORA, MULTIMODAL, SALT = 1, 2, 5
GONE = event("finish", 1)

MISMATCH_0, MISMATCH_1 = (801, 0, 9, 0), (801, 0, 9, 1)
UNWRITTEN_0, UNWRITTEN_1 = (803, 0, 9, 0), (803, 0, 9, 1)


def told(key, row, tokens=TOKENS, first=0, count=None):
    """An admission that says its tokens."""
    events = admit(key, row, first=first, count=len(tokens) if count is None else count)
    events[0]["tokens"] = list(tokens)
    return events


def reads(step, tokens=TOKENS, row=(3, 5), before=(), after=()):
    hit = told(9, list(row), tokens, first=4 * len(row), count=16)
    return begin(step, [*before, *hit, *after], [])


def writes(tokens=TOKENS, computed=8, after=()):
    """Step 1: request 1 is new and computes."""
    return [begin(1, [*told(1, [3, 5], tokens), *after], [scheduled(1, computed, 0)]), end(1)]


def sampled(step, tokens, num_sampled=None, rejected=0):
    line = outcome(step, (1, rejected))
    row = line["rows"][0]
    row["tokens"], row["num_tokens"] = list(tokens), len(tokens)
    row["num_sampled"] = len(tokens) if num_sampled is None else num_sampled
    return line


def codes(*records, **fields):
    return found(judge(*records, geometry_line=geometry(**fields)), unwritten=True)


def assumed(*records):
    return judge(*records).assumptions


def domain(key, kind, value=1, first=0, count=16):
    return event("domain", key, 0, other=kind, value=value, first=first, count=count)


# content-mismatch


@pytest.mark.parametrize("before", [[], [GONE]])
@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (TOKENS, []),
        (TOKENS[:8], []),
        (OTHER, [MISMATCH_1]),
        # the first column that differs, once
        ([99, *TOKENS[1:]], [MISMATCH_0]),
        ([*TOKENS[:7], 99], [MISMATCH_1]),
        # beyond what is read
        ([*TOKENS[:8], 99], []),
        # what the reader has is not known that far
        ([99, 99, 99], []),
        (TOKENS[:7], []),
        ([*TOKENS[:3], 99, 14, 15], [MISMATCH_0]),
        ([], []),
    ],
)
def test_tokens_are_compared(before, tokens, expected):
    assert codes(*writes(), reads(2, tokens, before=before)) == expected


def test_a_reader_of_the_same_step():
    for row, expected in ((TOKENS, []), (OTHER, [MISMATCH_1])):
        hit = told(9, [3, 5], row, first=8, count=16)
        for events in ([*hit, *told(1, [3, 5])], [*told(1, [3, 5]), *hit]):
            assert codes(begin(1, events, [scheduled(1, 8, 0)])) == expected


def test_a_hit_that_is_given_back_is_not_judged():
    cut = event("truncate", 9, 0, first=1)
    assert codes(*writes(), reads(2, OTHER, after=[cut])) == []
    assert codes(*writes(), reads(2, [99, *OTHER[1:]], after=[cut])) == [MISMATCH_0]


# tokens that were sampled


def grown(*outcomes, step=2):
    """7 tokens are known, the eighth is sampled, and computed in step 2."""
    first = begin(1, told(1, [3, 5], TOKENS[:7]), [scheduled(1, 7, 0)])
    return [first, *outcomes, end(1), begin(step, [], [scheduled(1, 1, 7)]), end(step)]


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        # 0 + 7 - 0: the eighth token is 17
        ([sampled(1, [17])], [MISMATCH_1]),
        # it may come late, and a row that tells nothing says nothing
        ([sampled(1, [], 0), sampled(1, [17])], [MISMATCH_1]),
        # sampled and not told; told twice: the first is known
        ([sampled(1, [], 1)], []),
        ([sampled(1, [], 1), sampled(1, [17])], []),
        ([sampled(1, [17]), sampled(1, [18])], [MISMATCH_1]),
    ],
)
def test_sampled_tokens_continue_the_known_ones(outcomes, expected):
    assert codes(*grown(*outcomes), reads(3, OTHER)) == expected
    assert codes(*grown(*outcomes), reads(3, TOKENS)) == []
    # what was known stays known
    assert codes(*grown(*outcomes), reads(3, [99, *TOKENS[1:]])) == [MISMATCH_0]


def test_tokens_that_leave_a_gap_are_not_known():
    # 6 known; what step 2 samples stands at 0 + 7: token 6 was never told
    first = [begin(1, told(1, [3, 5], TOKENS[:6]), [scheduled(1, 6, 0)]), end(1)]
    second = [begin(2, [], [scheduled(1, 1, 6)]), sampled(2, [17]), end(2)]
    third = [begin(3, [], [scheduled(1, 1, 7)]), end(3)]
    assert codes(*first, *second, *third, reads(4, OTHER)) == []
    assert codes(*first, sampled(1, [16]), *second, *third, reads(4, OTHER)) == [MISMATCH_1]


@pytest.mark.parametrize(
    ("tokens", "rejected", "expected"), [([16, 17], 0, [MISMATCH_1]), ([16], 1, [])]
)
def test_drafts_stand_before_what_was_sampled(tokens, rejected, expected):
    # 6 known of 7 computed, 1 draft: from 0 + 7 - 1 on
    first = begin(1, told(1, [3, 5], TOKENS[:6]), [scheduled(1, 7, 0, 1)])
    rest = begin(2, [], [scheduled(1, 1 + rejected, 7 - rejected)])
    told_late = [first, end(1), sampled(1, tokens, rejected=rejected), rest, end(2)]
    assert codes(*told_late, reads(3, OTHER), flags=ASYNC) == expected


# domain-mismatch


@pytest.mark.parametrize(
    ("written", "read", "expected"),
    [
        ([(LORA,)], [(LORA,)], []),
        ([(LORA,)], [], [(802, 0, 9, 0)]),
        ([], [(SALT,)], [(802, 0, 9, 0)]),
        ([(LORA, 1)], [(LORA, 2)], [(802, 0, 9, 0)]),
        ([(LORA,)], [(SALT,)], [(802, 0, 9, 0)]),
        # a picture at 5..6: column 1
        ([(MULTIMODAL, 1, 5, 2)], [(MULTIMODAL, 1, 5, 2)], []),
        ([(MULTIMODAL, 1, 5, 2)], [(MULTIMODAL, 2, 5, 2)], [(802, 0, 9, 1)]),
        ([(MULTIMODAL, 1, 5, 2)], [], [(802, 0, 9, 1)]),
        # behind what is read
        ([(MULTIMODAL, 1, 8, 2)], [], []),
        # another part of the picture; a marked adapter is the same in every part
        ([(MULTIMODAL, 1, 5, 2)], [(MULTIMODAL, 1, 5, 1), (MULTIMODAL, 1, 6, 1)], [(802, 0, 9, 1)]),
        ([(LORA, 1, 0, 16)], [(LORA, 1, 0, 3), (LORA, 1, 3, 9)], []),
    ],
)
def test_marks_are_compared(written, read, expected):
    wrote = writes(after=[domain(1, *mark) for mark in written])
    marks = [domain(9, *mark) for mark in read]
    assert codes(*wrote, reads(2, after=marks)) == expected
    assert codes(*wrote, reads(2, before=[GONE], after=marks)) == expected


def test_other_tokens_come_before_other_marks():
    wrote = writes(after=[domain(1, LORA)])
    assert codes(*wrote, reads(2, [99, *TOKENS[1:]])) == [MISMATCH_0]
    # column 0 has other marks, column 1 other tokens: one of each
    assert codes(*wrote, reads(2, OTHER)) == [MISMATCH_1, (802, 0, 9, 0)]


def test_a_late_mark_ends_what_is_known():
    late = [begin(2, [domain(1, LORA, first=6)], []), end(2)]
    assert codes(*writes(), *late, reads(3, [99, *TOKENS[1:]])) == []
    # of a request that is not live it is ignored
    nobody = [begin(2, [domain(7, LORA)], []), end(2)]
    assert judge(*nobody).ignored == 1
    assert codes(*writes(), *nobody, reads(3, [99, *TOKENS[1:]])) == [MISMATCH_0]


# content-unwritten


@pytest.mark.parametrize(
    ("computed", "expected"), [(8, []), (7, [UNWRITTEN_1]), (4, [UNWRITTEN_1]), (3, [UNWRITTEN_0])]
)
@pytest.mark.parametrize("before", [[], [GONE]])
def test_a_column_is_filled(computed, expected, before):
    assert codes(*writes(computed=computed), reads(2, before=before)) == expected


@pytest.mark.parametrize(("tokens", "expected"), [(2, []), (1, [UNWRITTEN_1])])
def test_a_column_that_this_step_fills(tokens, expected):
    hit = told(9, [3, 5], first=8, count=16)
    record = begin(2, hit, [scheduled(1, tokens, 6)])
    assert codes(*writes(computed=6), record) == expected


def test_what_was_taken_back_is_still_there():
    back = [begin(2, [event("rollback", 1, count=6)], []), end(2)]
    assert codes(*writes(), *back, reads(3)) == []
    assert codes(*writes(), *back, reads(3, before=[GONE])) == []
    cut = [begin(2, [event("truncate", 1, 0, first=1)], []), end(2)]
    assert codes(*writes(), *cut, reads(3)) == []
    assert codes(*writes(computed=7), *cut, reads(3)) == [UNWRITTEN_1]
    # bound and filled by somebody else since: column 0
    again = begin(2, [GONE, *told(2, [5], OTHER[4:])], [scheduled(2, 4, 0)])
    hit = told(9, [5], TOKENS[4:], first=4, count=16)
    assert codes(*writes(computed=3), again, end(2), begin(3, hit, [])) == [MISMATCH_0]


def test_with_a_connector_an_unclaimed_block_may_have_been_filled_unsaid():
    # without its writer: neither what was there, nor where, nor whether it was filled is known
    for records in (writes(computed=3), writes(OTHER)):
        assert codes(*records, reads(2, before=[GONE])) != []
        assert codes(*records, reads(2, before=[GONE]), flags=CONNECTOR) == []
        assert codes(*records, reads(2, before=[GONE], row=(5, 3)), flags=CONNECTOR) == []
    # with it
    assert codes(*writes(OTHER), reads(2), flags=CONNECTOR) == [MISMATCH_1]
    # a second reader finds what the first one said
    first = [begin(2, [GONE, *told(2, [3, 5], first=8, count=16)], []), end(2)]
    assert codes(*writes(OTHER), *first, reads(3, OTHER), flags=CONNECTOR) == [MISMATCH_1]


def test_unwritten_is_a_suspicion_with_a_connector():
    result = judge(*writes(computed=7), reads(2), geometry_line=geometry(flags=CONNECTOR))
    assert (result.proofs(), result.suspicions()) == ([], {803: 1})


# what is not known, and loads


def test_the_first_reader_says_what_is_not_known():
    unknown = writes([])
    # while its writer is there, it is what that has
    assert codes(*unknown, reads(2, OTHER)) == []
    assert assumed(*unknown, reads(2, OTHER)) == 0
    first = [begin(2, [GONE, *told(2, [3, 5], first=8, count=16)], []), end(2)]
    assert assumed(*unknown, *first) == 2
    assert codes(*unknown, *first, reads(3, TOKENS)) == []
    assert codes(*unknown, *first, reads(3, OTHER)) == [MISMATCH_1]
    # a reader whose tokens are not known says nothing
    silent = [begin(2, [GONE, *told(2, [3, 5], [], first=8, count=16)], []), end(2)]
    assert assumed(*unknown, *silent, reads(3, OTHER)) == 2


def load(*blocks, request, first=0):
    record = transfer("load", 7, *blocks, request=request, first=first)
    return [{**record, "count": 4 * len(blocks)}, transfer("load-done", 7)]


def test_a_load_brings_the_tokens_of_its_request():
    # request 1 has loaded 0..7
    loaded = [begin(1, [*told(1, [3, 5], first=8, count=16), *load(3, 5, request=1)], []), end(1)]
    assert codes(*loaded, reads(2)) == []
    assert codes(*loaded, reads(2, OTHER)) == [MISMATCH_1]
    assert codes(*loaded, reads(2, OTHER, before=[GONE])) == [MISMATCH_1]
    # of a request that was not live nothing is known
    early = [begin(1, load(3, 5, request=4), []), end(1)]
    assert codes(*early, reads(2, OTHER)) == []
    assert assumed(*early, reads(2, OTHER)) == 2


# the last known token is computed again


def again(first, tokens, row=(3, 5, 6), before=(), **fields):
    events = [*before, *told(9, list(row), tokens, first=first)]
    return codes(*writes(), begin(2, events, [scheduled(9, 1, first)]), **fields)


def test_a_hit_whose_last_token_is_computed_again():
    # 8 known, 7 computed: column 1 ends with the last of them
    assert again(7, TOKENS[:8]) == []
    assert again(7, OTHER[:8]) == [MISMATCH_1]
    # 9 known, or 6 computed: column 1 is new
    assert again(7, TOKENS[:9]) == [(601, 0, 9, 1)]
    assert again(6, TOKENS[:8]) == [(601, 0, 9, 1)]
    # block 3 is at home in column 0
    assert again(7, TOKENS[:8], row=(7, 3, 6)) == [(601, 0, 9, 1)]
    # nobody has it any more: it may as well be new
    assert again(7, OTHER[:8], before=[GONE]) == []


def test_a_last_token_that_is_computed_again_is_no_second_writer():
    def both(first, tokens=1):
        """Request 1 writes 0..7 in this step; request 9 has its blocks, of 8 known tokens."""
        events = [*admit(1, [3, 5], count=8), *admit(9, [3, 5, 6], first=first, count=8)]
        return codes(begin(1, events, [scheduled(1, 8, 0), scheduled(9, tokens, first)]))

    assert both(7) == []
    # two are computed again: column 1 is new
    assert both(6, 2) == [(601, 0, 9, 1), (603, 0, 9, 4)]


def test_only_in_the_record_that_admits():
    first = begin(2, told(9, [3], TOKENS[:8], first=7), [])
    later = begin(3, [append(9, 5)], [scheduled(9, 1, 7)])
    assert codes(*writes(), first, end(2), later) == [(601, 0, 9, 1)]
