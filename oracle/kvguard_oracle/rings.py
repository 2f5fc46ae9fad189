# SPDX-License-Identifier: Apache-2.0
"""Groups that keep the last `window` tokens in a ring. judging.md, Rings; no rule.

Ring positions and columns of tokens are those of geometry.Group.
"""

from __future__ import annotations

from kvguard_oracle.account import Request, Run, ScheduledRequest
from kvguard_oracle.geometry import Group

MOST_RUNS = 16


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


# what was written last


def note_ring_writes(request: Request, scheduled: ScheduledRequest, abandoned: bool) -> None:
    """At END of a step with a forward."""
    first, end = scheduled.start_low, scheduled.start_high + scheduled.row.num_tokens
    sure = scheduled.start_known() and not abandoned
    last = request.runs[-1] if request.runs else None
    if sure and last is not None and last.sure and last.end == first:
        last.end = end
        return
    request.runs.append(Run(first, end, sure))
    del request.runs[:-MOST_RUNS]


def forget_ring_writes(request: Request, group: Group, first: int = 0) -> None:
    """A REPLACE or TRUNCATE takes the columns from `first` on, if there are any."""
    if group.is_ring() and len(request.rows[group.index]) > first:
        request.runs = []


def written_last(group: Group, request: Request, place: int) -> int | None:
    """The position that was written last at a ring position; None: not known."""
    for run in reversed(request.runs):
        position = run.end - 1 - (run.end - 1 - place) % group.window
        if position >= run.first:
            return position if run.sure else None
    return None


def first_written_over(group: Group, request: Request, start: int) -> int | None:
    """Of the positions that a row which starts at `start` reads; None: none of them."""
    for position in range(first_read(group, start), start):
        if written_last(group, request, group.place_of(position)) not in (None, position):
            return position
    return None
