# SPDX-License-Identifier: Apache-2.0
"""Write trash, each sentence of docs/judging.md beside its legal neighbour.

Blocks of 4 tokens, 20 of them; block 0 is null. Request 1 has the blocks 1 and 2; slot 80 lies
beyond the pool.
"""

from layout_scenario import Row, engine, shown, step
from scenario import admit, begin, end, found, group, group_plan, judge, plan, pool, scheduled

ONE, TRASH = [1, 2], 80


def codes(*records, line):
    result = judge(*records, geometry_line=line)
    assert not any(name.startswith("malformed") for name in result.gaps)
    return found(result)


def full_engine(trash=TRASH, **fields):
    return engine(group(max_columns=8), pools=[pool(num_blocks=20, write_trash=trash)], **fields)


def full_step(slots, trash=TRASH, blocks=ONE, before=(), padded=0, **fields):
    row = Row(1, ONE, 0, len(slots) - padded)
    part = group_plan([ONE], slots, columns=2)
    lines = step(5, admit(1, blocks), [row], part, padded_tokens=len(slots))
    return codes(*before, *lines, line=full_engine(trash, **fields))


def test_pads_on_the_trash():
    assert full_step([4, 5, TRASH, -1], padded=2) == []
    assert full_step([4, 5, TRASH, 79], padded=2) == [(406, 0, 0, 3)]
    assert full_step([4, 5, TRASH], trash=-1, padded=1) == [(406, 0, 0, 2)]


def test_a_dummy_pass_on_the_trash():
    def dummy(*slots, trash=TRASH):
        part = group_plan(None, list(slots))
        line = plan(1, [], [0], [], part, pass_name="dummy", padded_tokens=len(slots))
        return codes(line, line=full_engine(trash))

    assert dummy(TRASH, -1, TRASH) == []
    assert dummy(TRASH, 4) == [(406, 0, 0, 1)]
    assert dummy(TRASH, trash=-1) == [(406, 0, 0, 0)]


def test_tokens_on_the_trash():
    # beyond the pool, in the null block, or in a block
    for trash in (TRASH, 2, 78):
        assert full_step([4, trash, 6], trash=trash) == [(403, 0, 1, 1)]
    # but in the very place of the token
    assert full_step([4, 5, 6], trash=5) == []
    assert full_step([5, 4, 6], trash=5) == [(401, 0, 1, 1), (403, 0, 1, 0)]
    # two of them are not written twice
    assert full_step([4, TRASH, TRASH]) == [(403, 0, 1, 1)]
    assert full_step([4, 9, 9], trash=-1) == [(401, 0, 1, 1), (405, 0, 1, 2)]
    # a column that is not bound
    assert (403, 0, 1, 1) in full_step([4, TRASH], blocks=[1])


def test_tokens_on_the_trash_of_another_request():
    other = [begin(1, admit(2, [9]), []), end(1)]
    assert full_step([4, 38, 6], trash=-1, before=other) == [(401, 0, 1, 1), (602, 0, 1, 1)]
    assert full_step([4, 38, 6], trash=38, before=other) == [(403, 0, 1, 1)]
    assert full_step([4, 38, 39], trash=38, before=other) == [
        (401, 0, 1, 2), (403, 0, 1, 1), (602, 0, 1, 2)
    ]  # fmt: skip


def test_the_trash_of_another_pool_is_none():
    pools = [pool(num_blocks=20), pool(id=1, num_blocks=20, write_trash=TRASH)]
    line = engine(group(max_columns=8), group(id=1, pool=1, max_columns=8), pools=pools)
    row = Row(1, ONE, 0, 2)
    parts = [group_plan([ONE], [4, 5, TRASH], index, 2) for index in range(2)]
    lines = step(1, admit(1, ONE, ONE), [row], *parts, padded_tokens=3)
    assert codes(*lines, line=line) == [(406, 0, 0, 2)]


def test_context_parallel_ranks_and_trash():
    fields = {"dcp_size": 2, "dcp_rank": 0}
    # positions 0 and 2 are this rank's
    assert full_step([4, -1, 5], **fields) == []
    assert full_step([4, TRASH, 5], **fields) == [(403, 0, 1, 1)]
    assert full_step([4, 5, 5], trash=-1, **fields) == [(405, 0, 1, 2), (407, 0, 1, 1)]


def test_prefill_ranks_and_trash():
    """Tokens 0 and 3 are rank 0's, 1 and 2 rank 1's; two slots of each are of nobody."""
    fields = {"pcp_size": 2, "pcp_layout": 1}

    def shows(*slots):
        row = Row(1, ONE, 0, 4)
        part = group_plan([ONE], list(slots), columns=2)
        return codes(
            *step(1, admit(1, ONE), [row], part), line=full_engine(**fields)
        )  # fmt: skip

    assert shows(7, 4, -1, 5, 6, -1) == []
    # what is of nobody is the pad slot alone
    assert shows(7, 4, -1, 5, 6, TRASH) == [(406, 0, 0, 5)]
    assert shows(7, TRASH, -1, 5, 6, -1) == [(403, 0, 1, 0)]


def test_draft_passes_on_the_trash():
    """As right as the pad slot, whatever is bound; request 1 has the positions 0 to 7."""

    def drafted(slot, trash=TRASH, start=5):
        row, own = Row(1, ONE, 0, 5), Row(1, ONE, start, 1)
        target = shown(1, [row], group_plan([ONE], [4, 5, 6, 7, 8], columns=2))
        # pass 1 stands behind the target, pass 4 three tokens on
        part, index = group_plan([ONE], [slot], columns=2), start - 4
        draft = shown(1, [own], part, pass_name="draft", pass_index=index)
        began = begin(1, admit(1, ONE), [scheduled(1, 5, 0)])
        return codes(began, target, draft, end(1), line=full_engine(trash))

    for trash in (TRASH, 2, 9, 30):
        assert drafted(trash, trash) == drafted(-1, trash) == drafted(9, trash) == []
        assert drafted(trash, trash, start=8) == drafted(-1, trash, start=8) == []
    assert drafted(TRASH, trash=-1) == [(404, 0, 1, 5)]
    assert drafted(30, trash=-1) == [(401, 0, 1, 5)]
    assert drafted(30, trash=-1, start=8) == [(401, 0, 1, 8)]
