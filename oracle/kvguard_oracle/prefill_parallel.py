# SPDX-License-Identifier: Apache-2.0
"""Slots of all ranks of prefill context parallelism. judging.md, Prefill context parallel.

Nothing is kept per rank but a list of places: which token stands where, and who writes it.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvguard_oracle.findings import Finding
from kvguard_oracle.geometry import Geometry, Group
from kvguard_oracle.ownership_rules import FOREIGN_WRITE
from kvguard_oracle.slot_rules import (
    PAD_SLOT_REAL,
    SLOT_NOT_LOCAL,
    SLOT_OUT_OF_RANGE,
    SLOT_PAD,
    classify,
    is_wrong,
)
from kvguard_oracle.view import KnownRow, View

# the oldest orders the pieces of a rank otherwise and splits every prefill; the newest gives a row
# that is not prefilling to one rank
FIRST, NEWEST = 1, 3


@dataclass(frozen=True)
class Piece:
    """Consecutive tokens of a row, whole on one rank."""

    row: KnownRow
    prefilling: bool
    positions: range
    # this rank writes them; another one does where it is False
    written: bool


@dataclass(frozen=True)
class Place:
    """One token of one rank."""

    row: KnownRow
    position: int
    # its index in the array; None: the rank's part ends before it
    index: int | None
    written: bool


# Which tokens a rank has


def start_of(row: KnownRow) -> int:
    assert row.start is not None
    return row.start


def query_of(row: KnownRow) -> int:
    assert row.tokens is not None
    return len(row.tokens)


def is_prefilling(row: KnownRow) -> bool:
    return start_of(row) < row.request.known_count


def chunk_size(geometry: Geometry, row: KnownRow) -> int:
    return -(-query_of(row) // (2 * geometry.pcp_size))


def is_split(geometry: Geometry, row: KnownRow) -> bool:
    if not is_prefilling(row):
        return False
    if geometry.pcp_layout == FIRST or geometry.dcp_size <= 1:
        return True
    # a sharded cache asks that no chunk is empty
    before_the_last = (2 * geometry.pcp_size - 1) * chunk_size(geometry, row)
    return before_the_last < query_of(row)


def chunk(geometry: Geometry, row: KnownRow, number: int) -> range:
    """Positions of one of the 2 * n chunks."""
    size, query = chunk_size(geometry, row), query_of(row)
    first, end = min(number * size, query), min((number + 1) * size, query)
    return range(start_of(row) + first, start_of(row) + end)


def pieces_of_row(geometry: Geometry, row: KnownRow, decodes_before: int, rank: int) -> list[Piece]:
    """`decodes_before`: rows before it that have tokens and are not prefilling."""
    prefilling = is_prefilling(row)
    if is_split(geometry, row):
        own = (rank, 2 * geometry.pcp_size - 1 - rank)
        chunks = [chunk(geometry, row, number) for number in own]
        return [Piece(row, prefilling, positions, True) for positions in chunks if positions]
    whole = range(start_of(row), start_of(row) + query_of(row))
    if geometry.pcp_layout == NEWEST and geometry.dcp_size <= 1 and not prefilling:
        owner = decodes_before % geometry.pcp_size
        return [Piece(row, prefilling, whole, True)] if rank == owner else []
    return [Piece(row, prefilling, whole, rank == 0)]


def pieces_of_rank(geometry: Geometry, rows: list[KnownRow], rank: int) -> list[Piece]:
    """`rows`: those with tokens, in the plan's order."""
    pieces: list[Piece] = []
    decodes = 0
    for row in rows:
        pieces += pieces_of_row(geometry, row, decodes, rank)
        decodes += not is_prefilling(row)
    if geometry.pcp_layout == FIRST:
        return sorted(pieces, key=lambda piece: piece.positions.start == 0)
    return sorted(pieces, key=lambda p: (p.prefilling, p.row.index, p.positions.start))


def places(geometry: Geometry, rows: list[KnownRow], room: int) -> list[Place]:
    """Every token of every rank, in the order of the array. `room`: N, of one rank."""
    found = []
    for rank in range(geometry.pcp_size):
        j = 0
        for piece in pieces_of_rank(geometry, rows, rank):
            for position in piece.positions:
                index = rank * room + j if j < room else None
                found.append(Place(piece.row, position, index, piece.written))
                j += 1
    return found


# What is wrong with its slot


def code_of(view: View, group: Group, slots: list[int], place: Place) -> int | None:
    """None: right, or not judged."""
    if place.index is None:
        return SLOT_PAD
    slot = slots[place.index]
    if not place.written:
        if slot == view.account.geometry.pad_slot:
            return None
        if group.pool.is_trash(slot):
            return SLOT_PAD
        return SLOT_NOT_LOCAL if group.slot_in_range(slot) else SLOT_OUT_OF_RANGE
    block = view.account.bound_block(place.row.request.key, group, place.position)
    if not is_wrong(view, group, place.position, slot, block):
        return None
    return classify(view, group, place.position, slot)


def is_foreign(view: View, group: Group, slot: int, place: Place) -> bool:
    """A live request other than the row's has a claim to the block that the slot lies in."""
    if not group.slot_in_range(slot) or group.pool.is_trash(slot):
        return False
    block, key = group.block_of_slot(slot), place.row.request.key
    if group.pool.is_null(block):
        return False
    if block == view.account.bound_block(key, group, place.position):
        return False
    return view.account.held_by_another(group.pool, block, key)


def rows_with_tokens(view: View) -> list[KnownRow] | None:
    """None: some row with tokens is not known, or has no start."""
    rows = [row for row in view.rows if row.has_tokens()]
    offsets = view.plan.query_start
    assert offsets is not None
    if any(row.tokens is None for row in view.rows) or any(row.start is None for row in rows):
        return None
    with_tokens = [i for i in range(view.plan.num_rows) if offsets[i + 1] != offsets[i]]
    return rows if with_tokens == [row.index for row in rows] else None


def judge_gathered_slots(view: View) -> list[Finding]:
    rows = rows_with_tokens(view)
    if rows is None:
        return []
    findings: list[Finding] = []
    for group, part in view.parts():
        if part.slots is not None:
            findings += judge_group(view, group, part.slots, rows)
    return findings


def judge_group(view: View, group: Group, slots: list[int], rows: list[KnownRow]) -> list[Finding]:
    geometry = view.account.geometry
    of_all = places(geometry, rows, len(slots) // geometry.pcp_size)
    findings: list[Finding] = []
    for row in rows:
        findings += judge_row(view, group, slots, [place for place in of_all if place.row is row])
    taken = {place.index for place in of_all}
    for index, slot in enumerate(slots):
        if index not in taken and slot != geometry.pad_slot:
            findings.append(view.finding(PAD_SLOT_REAL, None, index, group.index))
            break
    return findings


def judge_row(view: View, group: Group, slots: list[int], own: list[Place]) -> list[Finding]:
    first: dict[int, Finding] = {}
    foreign: Finding | None = None
    for place in own:
        code = code_of(view, group, slots, place)
        if code is None:
            continue
        first.setdefault(code, view.finding(code, place.row, place.position, group.index))
        if place.index is None or foreign is not None:
            continue
        if is_foreign(view, group, slots[place.index], place):
            foreign = view.finding(FOREIGN_WRITE, place.row, place.position, group.index)
    return [*first.values(), *([foreign] if foreign else [])]


def judge_gathered_dummy(view: View) -> list[Finding]:
    """No rank has a token: every slot of the array is the pad slot."""
    findings: list[Finding] = []
    for group, part in view.parts():
        if part.slots is not None:
            findings += judge_group(view, group, part.slots, [])
    return findings
