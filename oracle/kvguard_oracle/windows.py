# SPDX-License-Identifier: Apache-2.0
"""What a group that forgets still needs, and how its claims end. judging.md, Windows."""

from __future__ import annotations

from kvguard_oracle.account import Account, Request
from kvguard_oracle.geometry import CHUNKED, FULL, WINDOW, Group, Pool


def first_needed(group: Group, at: int) -> int:
    """s(c) of judging.md: of a row whose next token stands at c, positions from here on."""
    if group.kind == WINDOW:
        return max(0, at - group.window + 1 - group.retained)
    if group.kind == CHUNKED:
        return (at // group.window) * group.window
    return 0


def in_sink(group: Group, column: int) -> bool:
    return group.kind == WINDOW and column * group.block_size < group.sink


def is_needed(group: Group, column: int, at: int) -> bool:
    """Full attention needs every column."""
    if group.kind == FULL or in_sink(group, column):
        return True
    return (column + 1) * group.block_size > first_needed(group, at)


def expire(account: Account, request: Request) -> None:
    """Expiry: `low` may have changed. An ended claim does not come back."""
    for group in account.geometry.groups:
        for column, entry in enumerate(request.rows[group.index]):
            if not is_needed(group, column, request.low):
                entry.claims = False


def end_passed_claims(account: Account, step: int, pool: Pool, block: int) -> None:
    """Binding, line 5: the engine may have known that the drafts were accepted.

    If they were not, what is read there is somebody else's; a hit of this very step aside, whose
    writer this is.
    """
    for request in account.requests.values():
        for group in account.geometry.groups_of_pool(pool):
            for column, entry in enumerate(request.rows[group.index]):
                if not entry.claims or entry.block != block:
                    continue
                if not is_needed(group, column, request.high):
                    entry.claims = False
                    entry.given_away = entry.hit_in != step
