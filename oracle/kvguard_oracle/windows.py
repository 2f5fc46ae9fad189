# SPDX-License-Identifier: Apache-2.0
"""What a group that forgets still needs, and how its claims end. judging.md, Windows."""

from __future__ import annotations

from kvguard_oracle.account import Account, Request
from kvguard_oracle.geometry import CHUNKED, STATE, WINDOW, Group, Pool


def first_needed(group: Group, at: int) -> int:
    """s(c) of judging.md: of a row whose next token stands at c, positions from here on.

    Only of a group that forgets.
    """
    if group.kind == WINDOW:
        return max(0, at - group.window + 1 - group.retained)
    if group.kind == CHUNKED:
        return (at // group.window) * group.window
    if group.kind == STATE:
        return max(0, at - 1)
    return 0


def in_sink(group: Group, column: int) -> bool:
    return group.kind == WINDOW and group.first_of(column) < group.sink


def is_needed(group: Group, column: int, at: int) -> bool:
    """Full attention needs every column, and so do states in mode NONE."""
    if not group.forgets() or in_sink(group, column):
        return True
    return group.end_of(column) > first_needed(group, at)


def read_position(group: Group, column: int, start: int) -> int:
    """The first token of the column that a row which starts at `start` reads."""
    first = group.first_of(column)
    return first if in_sink(group, column) else max(first, first_needed(group, start))


def expire(account: Account, request: Request) -> None:
    """Expiry: `low` may have changed. An ended claim does not come back."""
    for group in account.geometry.groups:
        for column in range(len(request.rows[group.index])):
            if not is_needed(group, column, request.low):
                account.end_claim(request, group, column)


def earlier_claims(
    account: Account, pool: Pool, block: int, step: int
) -> list[tuple[Request, Group, int]]:
    """The hits of this very step aside: they may name what is written in it (Binding, line 4)."""
    return [
        (request, group, column)
        for request in account.requests.values()
        for group in account.geometry.groups_of_pool(pool)
        for column, entry in enumerate(request.rows[group.index])
        if entry.claims and entry.block == block and entry.hit_in != step
    ]


def is_owned(account: Account, group: Group, block: int, step: int) -> bool:
    """Binding, lines 4 and 5. Only a fresh binding (5) has ended what may have been passed."""
    return bool(earlier_claims(account, group.pool, block, step))


def end_passed_claims(account: Account, pool: Pool, block: int, step: int) -> None:
    """Binding, line 5: the engine may have known that the drafts were accepted.

    If they were not, what is read there is somebody else's.
    """
    for request, group, column in earlier_claims(account, pool, block, step):
        if not is_needed(group, column, request.high):
            account.end_claim(request, group, column)
            request.rows[group.index][column].given_away = True
