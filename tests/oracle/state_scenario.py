# SPDX-License-Identifier: Apache-2.0
"""Steps of an attention group (0) of blocks of 4 beside a group of states (1), for the tests.

The attention rows are never wrong: request r has the blocks 10r .. 10r + 7 from its admission on.
States have the blocks 1 .. 9; 0 is the null block.
"""

from scenario import (
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
    scheduled,
    state_plan,
)

NONE, ALL, ALIGN = 0, 1, 2
STATES = 1
ABANDONED, NO_FORWARD = 2, 1
EIGHT = list(range(100, 108))


def engine(mode, columns=8, tokens=4, **fields):
    """Both groups in one pool."""
    states = group(
        id=STATES, kind="state", encoding="state", state_mode=mode,
        max_columns=columns, block_size=tokens, kernel_block_size=tokens,
    )  # fmt: skip
    limits = {"max_model_len": 32, "max_drafts": 0 if mode == ALL else 4}
    return geometry([group(max_columns=8), states], [pool(num_blocks=60)], **{**limits, **fields})


def new(key, states, first=0, tokens=()):
    """An admission of request `key`."""
    events = admit(key, attention(key), list(states), first=first, count=24)
    events[0]["tokens"] = list(tokens)
    return events


def attention(key):
    return [10 * key + column for column in range(8)]


def more(key, *states):
    return append(key, *states, group=STATES)


def copy(kind, *blocks):
    """COPY or COPY_DONE of states, in pairs."""
    return event(kind, 0, STATES, blocks=list(blocks))


class Row:
    """One row of a step: request, start, tokens, drafts, and the states that the plan shows."""

    def __init__(self, key, start, tokens, starts, ends, drafts=0, init=None):
        self.key, self.start, self.tokens, self.drafts = key, start, tokens, drafts
        self.starts, self.ends = starts, ends
        self.init = int(start == 0) if init is None else init

    def scheduled(self):
        return scheduled(self.key, self.tokens, self.start, self.drafts)

    def slots(self):
        positions = range(self.start, self.start + self.tokens)
        return [attention(self.key)[p // 4] * 4 + p % 4 for p in positions]


def shown(number, rows, part=None, **fields):
    """A plan of these rows. `part`: what is shown of the states, else what the rows say."""
    offsets = [sum(row.tokens for row in rows[:count]) for count in range(len(rows) + 1)]
    slots = [slot for row in rows for slot in row.slots()]
    table = group_plan([attention(row.key) for row in rows], slots, columns=8)
    if part is None:
        part = state_plan(
            [row.starts for row in rows], [row.ends for row in rows], [row.init for row in rows], 1
        )
    lengths = [row.start + row.tokens for row in rows]
    return plan(number, [row.key for row in rows], offsets, lengths, table, part, **fields)


def step(number, *rows, events=(), told=(), outcomes=(), part=None, flags=0, **fields):
    """A whole step. `told`: events of an OUTCOME before the plan; `outcomes`: (key, rejected)."""
    records = [begin(number, list(events), [row.scheduled() for row in rows])]
    if told:
        records.append(outcome(number, events=told))
    records.append(shown(number, rows, part, **fields))
    if outcomes:
        records.append(outcome(number, *outcomes))
    return [*records, end(number, flags)]


def padded(starts, ends, first=0):
    """Row arrays of which the last two rows are padding."""
    return {"part": state_plan(starts, ends, [1] * len(starts), 1), "padded_rows": first + 2}


def codes(*records, mode=ALIGN, **fields):
    result = judge(*records, geometry_line=engine(mode, **fields))
    assert not any(name.startswith("malformed") for name in result.gaps)
    return found(result, unwritten=True)


def runs(number, key, tokens, start, *events, drafts=0, flags=0, outcomes=()):
    """A step without a plan."""
    told = [outcome(number, *outcomes)] if outcomes else []
    began = begin(number, list(events), [scheduled(key, tokens, start, drafts)])
    return [began, *told, end(number, flags)]


def binds(number, *events):
    return begin(number, list(events), [])


def takes(number, block, key=2):
    """Another request gets a block as new."""
    return binds(number, *new(key, [block]))


def transfer(kind, id_, *blocks, request=0, first=0):
    """A LOAD is of whole blocks."""
    count = 4 * len(blocks) if kind == "load" else 0
    return event(kind, request, STATES, value=id_, first=first, count=count, blocks=list(blocks))


def drafted(*told, flags=0):
    """4 tokens in column 0, then 3 with two drafts: states in columns 1, 2 and 3, [5, 7]."""
    first = runs(1, 1, 4, 0, *new(1, [1]))
    return [*first, *runs(2, 1, 3, 4, more(1, 2, 3, 4), drafts=2, flags=flags), *told]
