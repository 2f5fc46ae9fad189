# SPDX-License-Identifier: Apache-2.0
"""Lists of what is read against the bound rows (0301 to 0304, 0501). judging.md, Lists.

Rings and cells read by lists of their own: judging.md, Rings and Cells.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvguard_oracle.findings import NO_POSITION, Finding
from kvguard_oracle.geometry import Group, fits
from kvguard_oracle.length_rules import SEQ_LEN_MISMATCH, expected_length
from kvguard_oracle.records import ReadList
from kvguard_oracle.rings import first_read
from kvguard_oracle.table_rules import (
    TABLE_COLUMNS_MISMATCH,
    TABLE_MISMATCH,
    TABLE_NULL,
    TABLE_OUT_OF_RANGE,
    classify,
)
from kvguard_oracle.view import KnownRow, View


@dataclass
class Wanted:
    """One entry as it should be."""

    # where a finding is
    pos: int
    # what is right; none: the entry is not judged
    right: set[int]


def judge_lists(view: View) -> list[Finding]:
    findings: list[Finding] = []
    for group, part in view.parts():
        if part.lists is None or not part.lists.presented():
            continue
        is_empty = has_no_entry(view, part.lists)
        for row in view.rows:
            # once the frontier was judged, every row with tokens has a start
            if not row.has_tokens():
                continue
            told = part.lists.of_row(row.index)
            if told is None:
                # its offsets are no list's: nothing more is judged of it
                pos = NO_POSITION
                findings.append(view.finding(TABLE_COLUMNS_MISMATCH, row, pos, group.index))
                continue
            if not (is_empty and row.start == 0 and told == []):
                findings += judge_row(view, group, part.lists, row, told)
            findings += judge_last_page(view, group, part.lists, row)
    return findings


def has_no_entry(view: View, lists: ReadList) -> bool:
    """FLAT: the kernel reads the keys that it has at hand."""
    if not lists.is_flat():
        return False
    return not lists.entries or all(lists.of_row(row) == [] for row in range(view.plan.num_rows))


def judge_row(
    view: View, group: Group, lists: ReadList, row: KnownRow, told: list[int]
) -> list[Finding]:
    wanted = list(wanted_entries(view, group, lists, row))
    first: dict[int, Finding] = {}
    for value, entry in zip(told, wanted, strict=False):
        if entry.right and value not in entry.right:
            # the sentinel, where it is not right, is none of the other two
            code = TABLE_MISMATCH if value == lists.sentinel else classify_entry(group, value)
            first.setdefault(code, view.finding(code, row, entry.pos, group.index))
    findings = list(first.values())
    if len(told) != len(wanted):
        pos = NO_POSITION if group.is_ring() else min(len(told), len(wanted))
        findings.append(view.finding(TABLE_COLUMNS_MISMATCH, row, pos, group.index))
    return findings


def wanted_entries(view: View, group: Group, lists: ReadList, row: KnownRow) -> Iterator[Wanted]:
    """In the order of the list."""
    assert row.start is not None
    if group.is_ring():
        yield from wanted_of_ring(group, lists, row)
        return
    length = expected_length(view, row)
    assert length is not None
    for first in range(0, length, group.entry_tokens()):
        if is_hole_at(group, row, first):
            continue
        right = right_entry(group, row, first)
        # FLAT: u is 1, so that the entry is of this very token
        if right and lists.is_flat() and first >= row.start:
            right.add(sentinel_of(lists))
        # of cells the token's position, which is k where there are no holes
        yield Wanted(first // group.entry_tokens(), right)


def wanted_of_ring(group: Group, lists: ReadList, row: KnownRow) -> Iterator[Wanted]:
    """What the ring still has before the start, and the row's own tokens at hand."""
    assert row.start is not None
    assert row.tokens is not None
    for position in range(first_read(group, row.start), row.start):
        yield Wanted(position, right_entry(group, row, position))
    for position in range(row.start, row.start + len(row.tokens)):
        yield Wanted(position, {sentinel_of(lists)})


def classify_entry(group: Group, value: int) -> int:
    """In which way a wrong entry is wrong."""
    if not group.lists_slots():
        return classify(group, value)
    if not group.slot_in_range(value):
        return TABLE_OUT_OF_RANGE
    return TABLE_NULL if group.pool.is_null(group.block_of_slot(value)) else TABLE_MISMATCH


def sentinel_of(lists: ReadList) -> int:
    assert lists.sentinel is not None
    return lists.sentinel


def is_hole_at(group: Group, row: KnownRow, position: int) -> bool:
    """A column that is not bound yet is none."""
    entries = row.request.rows[group.index]
    column = group.column_of(position)
    return column < len(entries) and group.is_hole(entries[column].block)


def right_entry(group: Group, row: KnownRow, position: int) -> set[int]:
    """Of the tokens from a position on; none where the column is not bound, or bound as -1."""
    entries = row.request.rows[group.index]
    column = group.column_of(position)
    if column >= len(entries) or not fits(group, entries[column].block):
        return set()
    block = entries[column].block
    if group.lists_slots():
        return {group.slot_in(block, position)}
    within = group.place_of(position) - group.first_of(column)
    return {block * group.entries_per_block() + within // group.entry_tokens()}


def judge_last_page(view: View, group: Group, lists: ReadList, row: KnownRow) -> list[Finding]:
    if lists.last_page_len is None:
        return []
    length = expected_length(view, row)
    assert length is not None
    unit = group.entry_tokens()
    pages = -(-length // unit)
    if pages == 0 or lists.last_page_len[row.index] == length - (pages - 1) * unit:
        return []
    return [view.finding(SEQ_LEN_MISMATCH, row, length, group.index)]
