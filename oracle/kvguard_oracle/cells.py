# SPDX-License-Identifier: Apache-2.0
"""Cells of one token: what ERASE and REBASE make of a row. judging.md, Cells."""

from __future__ import annotations

from kvguard_oracle.account import Account, Entry, Request
from kvguard_oracle.binding import REQUEST_UNKNOWN
from kvguard_oracle.findings import Finding
from kvguard_oracle.geometry import NONE, Geometry, Group
from kvguard_oracle.records import Event

ERASE, REBASE = "erase", "rebase"
CELL_EVENTS = (ERASE, REBASE)

# of any row, whatever the model's length is
MOST_COLUMNS = 2**24
# of what REBASE adds, either way
MOST_ADDED = 2**40


def is_followed(geometry: Geometry, event: Event) -> bool:
    assert event.group is not None
    return geometry.groups[event.group].pool.is_cells()


def most_columns(geometry: Geometry, group: Group) -> int:
    """A column at or beyond it is given back."""
    return min(geometry.max_model_len or group.pool.num_blocks, MOST_COLUMNS)


def apply_cells(account: Account, step: int, event: Event) -> list[Finding]:
    assert event.group is not None
    group = account.geometry.groups[event.group]
    request = account.requests.get(event.request)
    if request is None:
        return [Finding(REQUEST_UNKNOWN, step, group.index, event.request)]
    counted = counted_entries(request)
    if event.kind == ERASE:
        give_back(account, request, group, event.first, event.first + event.count)
    else:
        rebase(account, request, group, event)
    end_behind_the_last(request, group)
    forget_hits(account, request, group)
    request.know_frontier(tokens_left(request, counted))
    request.count = request.low
    request.knowledge.forget()
    return []


def counted_entries(request: Request) -> list[Entry]:
    """The columns below `low`: those that are bound ahead do not count."""
    return [entry for row in request.rows.values() for entry in row[: request.low]]


def tokens_left(request: Request, counted: list[Entry]) -> int:
    """Up to the last column that is none of the holes, wherever it stands now."""
    known = {id(entry) for entry in counted if entry.block >= 0}
    columns = [
        column
        for row in request.rows.values()
        for column, entry in enumerate(row)
        if id(entry) in known
    ]
    return max(columns, default=-1) + 1


def hole() -> Entry:
    return Entry(NONE, claims=False)


def give_back(account: Account, request: Request, group: Group, first: int, end: int) -> None:
    """Columns [first, end), as far as there are any."""
    row = request.rows[group.index]
    for column in range(max(first, 0), min(end, len(row))):
        account.end_claim(request, group, column)
        row[column] = hole()


def rebase(account: Account, request: Request, group: Group, event: Event) -> None:
    row = request.rows[group.index]
    first, end, added = event.first, min(event.first + event.count, len(row)), event.value
    taken = []
    for column in range(first, end):
        to = column + added
        if 0 <= to < most_columns(account.geometry, group):
            taken.append((column, row[column]))
        else:
            account.end_claim(request, group, column)
        row[column] = hole()
    give_back(account, request, group, first + added, end + added)
    new_homes = {}
    for before, entry in taken:
        if group.is_hole(entry.block):
            continue
        column = before + added
        # one and the same hole: nothing is ever changed in one, and there may be many
        row += [hole()] * (column + 1 - len(row))
        row[column] = entry
        place = (group.pool.index, entry.block)
        if entry.claims and account.homes.get(place) == (group.index, before):
            new_homes[place] = column
    for place, column in new_homes.items():
        account.homes[place] = (group.index, column)
        if place in account.contents:
            account.contents[place].end = group.end_of(column)


def forget_hits(account: Account, request: Request, group: Group) -> None:
    """Of this record: ordinary claims from now on, which no rule of content judges."""
    of_row = {id(entry) for entry in request.rows[group.index]}
    account.hits_made = [hit for hit in account.hits_made if id(hit.entry) not in of_row]
    for entry in request.rows[group.index]:
        entry.hit_in = None


def end_behind_the_last(request: Request, group: Group) -> None:
    row = request.rows[group.index]
    while row and group.is_hole(row[-1].block):
        row.pop()
