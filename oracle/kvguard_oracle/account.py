# SPDX-License-Identifier: Apache-2.0
"""The account: what must be true (judging.md, The account). From BEGIN, OUTCOME and END alone.

No counter is kept beside the rows: how many entries name a block is found by looking at all rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kvguard_oracle.geometry import Geometry, Group, Pool
from kvguard_oracle.records import Scheduled

MOST_FORGOTTEN = 16


@dataclass
class Entry:
    """One column of one row."""

    block: int
    # False where the id is out of the pool or null, and where a window has passed the column
    claims: bool
    # the step in which this column was bound
    bound_in: int = 0
    # its claim ended silently because somebody else got the block as new
    given_away: bool = False
    # the step in which this claim was made as a prefix hit; None: it was not
    hit_in: int | None = None


@dataclass
class Request:
    key: int
    rows: dict[int, list[Entry]]
    # the frontier: tokens whose KV is valid, [low, high]
    low: int
    high: int
    # the most that the scheduler may say it counts
    count: int
    # (step, drafts): drafts whose outcome is not known
    open_outcomes: list[tuple[int, int]] = field(default_factory=list)
    # (step, drafts) whose open outcome was forgotten: it may still be told, and changes nothing
    forgotten: list[tuple[int, int]] = field(default_factory=list)
    # the latest step that was forgotten so long ago that nothing is said of it
    forgotten_for_good: int = -1

    def forget_outcomes(self) -> None:
        for step, drafts in self.open_outcomes:
            self.forget(step, drafts)
        self.open_outcomes = []

    def forget(self, step: int, drafts: int) -> None:
        """judging.md, OUTCOME: the 16 latest of a request are remembered."""
        self.forgotten.append((step, drafts))
        if len(self.forgotten) > MOST_FORGOTTEN:
            gone, _ = self.forgotten.pop(0)
            self.forgotten_for_good = max(self.forgotten_for_good, gone)

    def know_frontier(self, tokens: int) -> None:
        """The frontier is exactly `tokens`; what was open does not matter any more."""
        self.low = self.high = tokens
        self.forget_outcomes()


@dataclass
class ScheduledRequest:
    """A row of the open step's schedule and where its first token may stand."""

    row: Scheduled
    start_low: int = 0
    start_high: int = 0
    # as an OUTCOME inside the step told it; None: not told
    rejected: int | None = None

    def start_known(self) -> bool:
        return self.start_low == self.start_high


@dataclass
class OpenStep:
    number: int
    # something was scheduled, if only an unknown request
    has_tokens: bool = False
    scheduled: dict[int, ScheduledRequest] = field(default_factory=dict)
    # (pool, block) -> the request that this step's schedule writes it for
    writers: dict[tuple[int, int], int] = field(default_factory=dict)
    # False after a GAP event: plans are not judged
    judges_plans: bool = True
    # groups with a table, with slots, and at stage FINAL in this step
    tables: set[int] = field(default_factory=set)
    slots: set[int] = field(default_factory=set)
    finals: set[int] = field(default_factory=set)


class Account:
    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry
        self.requests: dict[int, Request] = {}
        # (pool, block) -> the step in which it was last bound fresh
        self.fresh_in: dict[tuple[int, int], int] = {}

    def admit(self, key: int, first: int) -> None:
        rows: dict[int, list[Entry]] = {group.index: [] for group in self.geometry.groups}
        self.requests[key] = Request(key, rows, low=first, high=first, count=first)

    def entries(self, pool: Pool, block: int) -> list[tuple[int, Entry]]:
        """Every claim on a block of a pool, over all groups of the pool, with its request."""
        found = []
        for request in self.requests.values():
            for group in self.geometry.groups_of_pool(pool):
                for entry in request.rows[group.index]:
                    if entry.claims and entry.block == block:
                        found.append((request.key, entry))
        return found

    def claims(self, pool: Pool, block: int) -> int:
        return len(self.entries(pool, block))

    def hits(self, pool: Pool, block: int, step: int) -> int:
        """Of the claims, those made as prefix hits in this step."""
        return len([entry for _, entry in self.entries(pool, block) if entry.hit_in == step])

    def held_by_another(self, pool: Pool, block: int, request: int) -> bool:
        return any(key != request for key, _ in self.entries(pool, block))

    def bound_block(self, request: int, group: Group, position: int) -> int | None:
        """The id that is bound where a position lives; None: no column there."""
        row = self.requests[request].rows[group.index]
        column = group.column_of(position)
        return row[column].block if 0 <= column < len(row) else None
