# SPDX-License-Identifier: Apache-2.0
"""What an engine's developer would write instead: the same check in plain Python and in numpy.

Both know the right tables already (their mirror is given to them, keeping it costs them nothing)
and answer whether slots and live table entries are right. Both are written to be as fast as their
kind can be: the guard is compared with them, so a slow baseline would be a lie. They judge less
than the guard does: no lengths, no ownership, no frontier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Json = dict[str, Any]


@dataclass(frozen=True)
class PlainRow:
    """One request: its first position and number of tokens, its blocks, what the table says."""

    start: int
    query: int
    blocks: list[int]
    table: list[int]


@dataclass(frozen=True)
class PlainStep:
    """A step as Python lists; the conversion from tensors is not measured."""

    block_size: int
    rows: list[PlainRow]
    slots: list[int]

    @classmethod
    def of(cls, block_size: int, step: Json) -> PlainStep:
        stride = step["stride"]
        rows = [
            PlainRow(
                row["start"],
                row["query"],
                row["blocks"],
                step["table"][b * stride : (b + 1) * stride],
            )
            for b, row in enumerate(step["rows"])
        ]
        return cls(block_size, rows, list(step["slots"]))


def check_plain(step: PlainStep) -> bool:
    """Element by element. Blocks are walked, not looked up: no element costs a division."""
    block_size = step.block_size
    slots = step.slots
    token = 0
    for row in step.rows:
        blocks = row.blocks
        for found, bound in zip(row.table, blocks):  # noqa: B905 (rows are wider)
            if found != bound:
                return False
        column, offset = divmod(row.start, block_size)
        end = token + row.query
        if row.query == 1:
            if slots[token] != blocks[column] * block_size + offset:
                return False
            token = end
        while token < end:
            last = min(end, token + block_size - offset)
            for expected, slot in enumerate(
                slots[token:last], blocks[column] * block_size + offset
            ):
                if slot != expected:
                    return False
            token = last
            column += 1
            offset = 0
    return True


def check_plain_by_token(step: PlainStep) -> bool:
    """Element by element, as the formula is written down."""
    block_size = step.block_size
    slots = step.slots
    token = 0
    for row in step.rows:
        blocks = row.blocks
        table = row.table
        for column, block in enumerate(blocks):
            if table[column] != block:
                return False
        for position in range(row.start, row.start + row.query):
            if slots[token] != blocks[position // block_size] * block_size + position % block_size:
                return False
            token += 1
    return True


@dataclass(frozen=True)
class NumpyStep:
    """A step as arrays. The mirror, and what follows from the batch's shape, is made here, once."""

    shift: int
    slots: NDArray[np.int64]
    table: NDArray[np.int32]
    mirror: NDArray[np.int32]  # [rows, widest live row]; columns that are not live are zero
    bases: NDArray[np.int64]  # the same, as the first slot of each block
    live: NDArray[np.bool_]  # the same shape
    ragged: bool  # some rows are shorter than the widest
    decodes: NDArray[np.int64]  # rows with one token; they come first
    starts: NDArray[np.int64]
    prefills: list[tuple[int, int, int, int]]  # row, first token, start, query
    offsets: NDArray[np.int64]  # 0 .. block_size - 1
    scratch: NDArray[np.int64]  # [blocks of the longest prefill, block_size]

    @classmethod
    def of(cls, block_size: int, step: Json) -> NumpyStep:
        rows = step["rows"]
        widest = max(len(row["blocks"]) for row in rows)
        mirror = np.zeros((len(rows), widest), np.int32)
        live = np.zeros((len(rows), widest), np.bool_)
        for b, row in enumerate(rows):
            mirror[b, : len(row["blocks"])] = row["blocks"]
            live[b, : len(row["blocks"])] = True
        queries = [row["query"] for row in rows]
        decodes = sum(query == 1 for query in queries)
        assert queries[:decodes] == [1] * decodes, "decoding rows come first"
        return cls(
            shift=block_size.bit_length() - 1,
            slots=np.array(step["slots"], np.int64),
            table=np.array(step["table"], np.int32).reshape(len(rows), step["stride"]),
            mirror=mirror,
            bases=mirror.astype(np.int64) * block_size,
            live=live,
            ragged=not live.all(),
            decodes=np.arange(decodes),
            starts=np.array([row["start"] for row in rows[:decodes]], np.int64),
            prefills=[
                (b, step["query_start"][b], rows[b]["start"], queries[b])
                for b in range(decodes, len(rows))
            ],
            offsets=np.arange(block_size, dtype=np.int64),
            scratch=np.empty((max(queries) // block_size + 2, block_size), np.int64),
        )


def check_numpy(step: NumpyStep) -> bool:
    """One comparison for all tables, one gather for all decodes, one outer sum a prefill."""
    shift = step.shift
    bases = step.bases
    slots = step.slots
    rows, columns = bases.shape
    wrong = step.table[:rows, :columns] != step.mirror
    if step.ragged:
        wrong &= step.live
    if np.count_nonzero(wrong):
        return False
    count = len(step.decodes)
    if count:
        starts = step.starts
        expected = bases[step.decodes, starts >> shift]
        expected += starts & ((1 << shift) - 1)
        if np.count_nonzero(expected != slots[:count]):
            return False
    for row, token, start, query in step.prefills:
        first = start >> shift
        last = ((start + query - 1) >> shift) + 1
        expected = step.scratch[: last - first]
        np.add(bases[row, first:last, None], step.offsets, out=expected)
        skip = start - (first << shift)
        if np.count_nonzero(
            expected.reshape(-1)[skip : skip + query] != slots[token : token + query]
        ):
            return False
    return True
