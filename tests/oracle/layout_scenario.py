# SPDX-License-Identifier: Apache-2.0
"""Steps of groups that read by lists, of rings and of cells, for the tests.

Blocks of 4 tokens, 20 of them; block 0 is the null block, the pad slot and the sentinel are -1.
What is not said of a row is right, by the formulas of the page.
"""

from dataclasses import dataclass, field

from scenario import (
    array,
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

PAD = SENTINEL = -1
DEDUPE, MOVE, SWAP = 1, 2, 3
WINDOW, SIZE = 8, 4
TOKENS = list(range(100, 124))


@dataclass
class Row:
    """A row of a pass; `listed` and `slots` where they are not right."""

    key: int
    blocks: list[int]
    start: int
    tokens: int
    listed: list[int] | None = None
    slots: list[int] | None = None
    # of these columns nothing is bound
    holes: list[int] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.start + self.tokens


# what is right


def written(row, size=SIZE, window=0, trash=PAD):
    """The slot of each token."""
    if row.slots is not None:
        return row.slots
    slots = []
    for p in range(row.start, row.end):
        at = p % window if window else p
        clipped = window and p + window < row.end
        slots.append(trash if clipped else row.blocks[at // size] * size + at % size)
    return slots


def listed(row, size=SIZE, unit=SIZE, length=None):
    """One entry for every `unit` tokens."""
    if row.listed is not None:
        return row.listed
    length = row.end if length is None else length
    per = size // unit
    entries = [row.blocks[k // per] * per + k % per for k in range(-(-length // unit))]
    return [entry for k, entry in enumerate(entries) if k not in row.holes]


def listed_of_ring(row, window=WINDOW, size=SIZE, sentinel=SENTINEL):
    """The last positions but one window, then a sentinel for each token of the row."""
    if row.listed is not None:
        return row.listed
    old = [p % window for p in range(max(0, row.start - window + 1), row.start)]
    return [row.blocks[at // size] * size + at % size for at in old] + [sentinel] * row.tokens


# what a plan shows


def offsets_of(lists, first=0):
    return [first + sum(map(len, lists[:count])) for count in range(len(lists) + 1)]


def list_plan(encoding, reads, slots, own=0):
    return {
        "group": own, "encoding": encoding, "slots": array(slots, "i64"),
        "reads": reads, "slots_address": 0, "reads_address": 0,
    }  # fmt: skip


def csr_plan(lists, slots, own=0, offsets=None, last=None, before=()):
    """`before`: entries of nobody, before the first row's."""
    offsets = offsets_of(lists, len(before)) if offsets is None else offsets
    entries = [*before, *(entry for entries in lists for entry in entries)]
    reads = {"indptr": array(offsets), "indices": array(entries), "last_page_len": array(last)}
    return list_plan("csr", reads, slots, own)


def flat_plan(lists, slots, own=0, offsets=None, sentinel=SENTINEL):
    """`lists` None: no entry, and no offsets."""
    entries = [entry for one in lists or [] for entry in one]
    offsets = offsets_of(lists) if offsets is None and lists is not None else offsets
    reads = {"slots": array(entries, "i64"), "starts": array(offsets), "sentinel": sentinel}
    return list_plan("flat", reads, slots, own)


def csr(rows, unit=SIZE, own=0, **fields):
    slots = [slot for row in rows for slot in written(row)]
    return csr_plan([listed(row, unit=unit) for row in rows], slots, own, **fields)


def flat(rows, own=0, size=SIZE, **fields):
    slots = [slot for row in rows for slot in written(row, size)]
    return flat_plan([listed(row, size, 1) for row in rows], slots, own, **fields)


def ring(rows, own=0, window=WINDOW, size=SIZE, trash=PAD, sentinel=SENTINEL):
    slots = [slot for row in rows for slot in written(row, size, window, trash)]
    lists = [listed_of_ring(row, window, size, sentinel) for row in rows]
    return flat_plan(lists, slots, own, sentinel=sentinel)


def table(rows, own=0):
    slots = [slot for row in rows for slot in written(row)]
    return group_plan([row.blocks for row in rows], slots, own, columns=8)


def shown(number, rows, *parts, **fields):
    """A plan of these rows; lengths and offsets are theirs."""
    offsets = [sum(row.tokens for row in rows[:count]) for count in range(len(rows) + 1)]
    lengths = fields.pop("lengths", [row.end for row in rows])
    return plan(number, [row.key for row in rows], offsets, lengths, *parts, **fields)


def step(number, events, rows, *parts, flags=0, **fields):
    """A whole step with one target pass."""
    began = begin(number, list(events), [scheduled(r.key, r.tokens, r.start) for r in rows])
    return [began, shown(number, rows, *parts, **fields), end(number, flags)]


def runs(number, key, tokens, start, *events):
    """A step without a plan."""
    return [begin(number, list(events), [scheduled(key, tokens, start)]), end(number)]


def binds(number, *events):
    return begin(number, list(events), [])


# engines


def engine(*groups, pools=None, **fields):
    limits = {"max_model_len": 32, "max_drafts": 0, "max_tokens": 64}
    return geometry(list(groups), pools or [pool(num_blocks=20)], **{**limits, **fields})


def list_group(encoding="csr", unit="block", **fields):
    return group(encoding=encoding, table_unit=unit, **{"max_columns": 8, **fields})


def flat_group(**fields):
    return list_group("flat", "slot", **fields)


def ring_group(encoding="flat", window=WINDOW, **fields):
    unit = "slot" if encoding == "flat" else "block"
    return list_group(encoding, unit, kind="ring", window=window, **fields)


def ring_engine(trash=PAD, window=WINDOW, encoding="flat", **fields):
    return engine(
        ring_group(encoding, window), pools=[pool(num_blocks=20, write_trash=trash)], **fields
    )


def cell_engine(**fields):
    """20 cells; no id is the null one."""
    cells = flat_group(block_size=1, kernel_block_size=1, max_columns=0)
    return engine(cells, pools=[pool(kind="cells", num_blocks=20, null_block=-1)], **fields)


# events


def remap(reason, *blocks, own=0):
    return event("remap", 0, own, value=reason, blocks=list(blocks))


def erase(key, first, count, own=0):
    return event("erase", key, own, first=first, count=count)


def rebase(key, first, count, added, own=0):
    return event("rebase", key, own, first=first, count=count, value=added)


def known(events, tokens):
    """The ADMIT of these events tells its tokens."""
    return [{**events[0], "tokens": list(tokens)}, *events[1:]]
