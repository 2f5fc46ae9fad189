# SPDX-License-Identifier: Apache-2.0
"""Groups that keep the last `window` tokens in a ring. judging.md, Rings; no rule.

Ring positions and columns of tokens are those of geometry.Group.
"""

from __future__ import annotations

from kvguard_oracle.account import Request, ScheduledRequest
from kvguard_oracle.geometry import Group


def written_columns_of_ring(group: Group, scheduled: ScheduledRequest) -> set[int]:
    """Of the tokens that the schedule may write, the last that fit."""
    end = scheduled.start_high + scheduled.row.num_tokens
    num = min(end - scheduled.start_low, group.window)
    return {group.column_of(position) for position in range(end - num, end)}


def columns_begun_in_ring(group: Group, scheduled: ScheduledRequest) -> set[int]:
    """Those whose first ring position is one of the step's; none while the start is not known."""
    if not scheduled.start_known():
        return set()
    start = scheduled.start_low
    positions = range(start, start + scheduled.row.num_tokens)
    places = {group.place_of(position) for position in positions}
    return {group.column_of(place) for place in places if place % group.column_tokens == 0}


def first_read(group: Group, start: int) -> int:
    """f: the first position that a row which starts at `start` reads."""
    return max(0, start - (group.window - 1))


def was_written_over(group: Group, request: Request, start: int) -> bool:
    """A count went back, and a later token stood where the first one that is read should."""
    first = first_read(group, start)
    return first < start and first + group.window < request.most_high
