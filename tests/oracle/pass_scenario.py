# SPDX-License-Identifier: Apache-2.0
"""Steps with passes besides the target's, for the tests.

Blocks of 4 tokens, 20 of them; block 0 is the null block, the pad slot is -1.
"""

from scenario import (
    admit,
    begin,
    end,
    event,
    geometry,
    group,
    group_plan,
    plan,
    pool,
    scheduled,
)

NO_FORWARD, ABANDONED = 1, 2
ENCODER = 4
FILLS_TOLD = 32
PAD = -1
CROSS_GROUP = 1


class Row:
    """One row of a pass: request, its blocks, and which positions the row stands for.

    What is not said is right: slots by the blocks, the length by the end.
    """

    def __init__(self, key, blocks, start, tokens, slots=None, length=None, table=None):
        self.key, self.blocks, self.start, self.tokens = key, blocks, start, tokens
        positions = range(start, start + tokens)
        right = [blocks[p // 4] * 4 + p % 4 if p // 4 < len(blocks) else PAD for p in positions]
        self.slots = right if slots is None else slots
        self.length = start + tokens if length is None else length
        self.table = blocks if table is None else table


def shows(number, pass_name, *rows, index=0, positions=None, own=0, columns=8, **fields):
    """A plan of one group (`own`). `positions`: True: those of the rows, else what is said."""
    offsets = [sum(row.tokens for row in rows[:count]) for count in range(len(rows) + 1)]
    slots = [slot for row in rows for slot in row.slots]
    if positions is True:
        positions = [p for row in rows for p in range(row.start, row.start + row.tokens)]
    part = group_plan([row.table for row in rows], slots, own, columns)
    lengths = [row.length for row in rows]
    return plan(
        number, [row.key for row in rows], offsets, lengths, part,
        pass_name=pass_name, pass_index=index, positions=positions, **fields,
    )  # fmt: skip


def target(number, *rows, **fields):
    return shows(number, "target", *rows, **fields)


def micro_batch(number, index, *rows, **fields):
    return shows(number, "micro-batch", *rows, index=index, **fields)


def draft(number, index, *rows, **fields):
    return shows(number, "draft", *rows, index=index, **fields)


def cross(number, *rows, **fields):
    return shows(number, "cross", *rows, own=CROSS_GROUP, **fields)


def step(number, events, rows, *records, flags=0):
    """`rows`: (request, tokens, computed[, drafts])."""
    return [
        begin(number, list(events), [scheduled(*row) for row in rows]), *records, end(number, flags)
    ]  # fmt: skip


def engine(groups=None, pools=None, **fields):
    pools = pools or [pool(num_blocks=20)]
    return geometry(groups or [group(max_columns=8)], pools, **{"max_model_len": 32, **fields})


def encoder_engine(**fields):
    """Group 1 is cross-attention, in the pool of group 0."""
    groups = [group(max_columns=8), group(id=CROSS_GROUP, kind="cross", max_columns=8)]
    return engine(groups, **fields)


def host_engine(kind="full", **fields):
    """Group 1 lives in a pool of the host."""
    pools = [pool(num_blocks=20), pool(id=1, num_blocks=10, memory="host")]
    window = 8 if kind == "window" else 0
    on_host = group(id=1, pool=1, kind=kind, window=window)
    return engine([group(max_columns=8), on_host], pools, **fields)


def encoded(key, blocks, encoder_blocks, tokens, first=0):
    """An admission with `tokens` tokens of an encoder."""
    events = admit(key, blocks, encoder_blocks, first=first)
    if tokens:
        events.append(event("domain", key, other=ENCODER, value=key, first=0, count=tokens))
    return events
