# SPDX-License-Identifier: Apache-2.0
"""Reads of what is gone (0701). judging.md, Windows and Rings, read-stale."""

from __future__ import annotations

from kvguard_oracle.account import Account, Entry
from kvguard_oracle.findings import Finding
from kvguard_oracle.geometry import Group
from kvguard_oracle.rings import first_written_over
from kvguard_oracle.view import KnownRow, View
from kvguard_oracle.windows import is_needed, read_position

READ_STALE = 701


def judge_lifetime(view: View) -> list[Finding]:
    findings: list[Finding] = []
    for row in view.rows:
        if not row.has_tokens():
            continue
        for group in view.groups():
            if group.forgets() and not group.is_state():
                findings += judge_row(view, group, row)
            if group.is_ring():
                findings += judge_ring_row(view, group, row)
    return findings


def judge_row(view: View, group: Group, row: KnownRow) -> list[Finding]:
    """One finding at most: the first column that is read and gone."""
    assert row.start is not None
    for column, entry in enumerate(row.request.rows[group.index]):
        if group.first_of(column) >= row.start:
            break
        if is_needed(group, column, row.start) and is_gone(view.account, group, entry):
            position = read_position(group, column, row.start)
            return [view.finding(READ_STALE, row, position, group.index)]
    return []


def judge_ring_row(view: View, group: Group, row: KnownRow) -> list[Finding]:
    assert row.start is not None
    position = first_written_over(group, row.request, row.start)
    return [] if position is None else [view.finding(READ_STALE, row, position, group.index)]


def is_gone(account: Account, group: Group, entry: Entry) -> bool:
    """Bound fresh by anybody since this column was bound, or never there.

    Since: in a later step (within one step a hit may come before its writer: Binding, line 4), or
    by what silently ended this column's claim: a binding, a FREE, a transfer.
    """
    if group.pool.is_null(entry.block) or entry.given_away:
        return True
    return account.fresh_in.get((group.pool.index, entry.block), 0) > entry.bound_in
