# SPDX-License-Identifier: Apache-2.0
"""Where the states of recurrent groups stand, and of how many tokens. judging.md, States; no rule.

P, col(c), last(s), the written columns and the place are those of the page.
"""

from __future__ import annotations

from kvguard_oracle.account import Account, Request, ScheduledRequest, StatesLeft
from kvguard_oracle.geometry import MODE_ALIGN, MODE_ALL, MODE_NONE, Group
from kvguard_oracle.records import Scheduled

# Columns


def column_of_state(group: Group, tokens: int) -> int:
    """col(c), c > 0."""
    if group.state_mode == MODE_NONE:
        return 0
    return group.columns_for(tokens) - 1


def last_column(group: Group, row: Scheduled, start: int) -> int:
    """last(s): where the step leaves the state of its last token."""
    return column_of_state(group, start + row.num_tokens) + row.num_drafts


def first_written(group: Group, row: Scheduled, start: int) -> int:
    if group.state_mode == MODE_NONE:
        return 0
    if group.state_mode == MODE_ALL:
        return group.column_of(start)
    return column_of_state(group, start + row.num_tokens)


def last_written(group: Group, row: Scheduled, start: int) -> int:
    if group.state_mode == MODE_NONE:
        return row.num_drafts
    if group.state_mode == MODE_ALL:
        return column_of_state(group, start + row.num_tokens)
    return last_column(group, row, start)


def written_columns_of(group: Group, row: Scheduled, start: int) -> range:
    """The written columns of a step that starts at `start`."""
    return range(first_written(group, row, start), last_written(group, row, start) + 1)


def written_columns_of_states(group: Group, scheduled: ScheduledRequest) -> range:
    """Those of `start_low` up to those of `start_high`."""
    first = first_written(group, scheduled.row, scheduled.start_low)
    last = last_written(group, scheduled.row, scheduled.start_high)
    return range(first, last + 1)


def columns_of_the_end(group: Group, scheduled: ScheduledRequest, start: int) -> range:
    """col(s + q) .. last(s): the states of the end, those of the drafts behind each other."""
    first = column_of_state(group, start + scheduled.row.num_tokens)
    return range(first, last_column(group, scheduled.row, start) + 1)


def columns_for_states(group: Group, end: int, drafts: int) -> int:
    """Capacity: how many columns a row has."""
    if group.state_mode == MODE_NONE:
        return 1 + drafts
    if group.state_mode == MODE_ALIGN:
        return group.columns_for(end) + drafts
    return group.columns_for(end)


# Places


def place(request: Request, group: Group, tokens: int) -> int | None:
    """The column in which the state of so many tokens stands; None: not known, or no tokens."""
    if tokens <= 0:
        return None
    if group.state_mode == MODE_ALL:
        return column_of_state(group, tokens)
    left = request.states_left
    if left is None:
        return column_of_state(group, tokens) if tokens == request.first else None
    if left.start is None:
        return None
    end = left.start + left.tokens
    without_drafts = end - left.drafts
    if not without_drafts <= tokens <= end:
        return None
    return column_of_state(group, end) + (tokens - without_drafts)


def tokens_at(request: Request, group: Group, column: int) -> int | None:
    """The reverse of `place` in mode ALIGN; None: it is the place of no known number of tokens."""
    left = request.states_left
    if left is None:
        tokens = request.first
    elif left.start is None:
        return None
    else:
        end = left.start + left.tokens
        tokens = end - left.drafts + column - column_of_state(group, end)
    return tokens if place(request, group, tokens) == column else None


def stored_place(request: Request, group: Group, tokens: int) -> int | None:
    """Mode ALIGN: the other column in which the state of so many tokens may stand; None: none.

    An engine stores a state at the end of a block for later hits, and may go on from there.
    """
    if group.state_mode != MODE_ALIGN or place(request, group, tokens) is None:
        return None
    return tokens // group.column_tokens - 1 if tokens % group.column_tokens == 0 else None


def is_a_place(request: Request, group: Group, column: int) -> bool:
    """Of any number of tokens that the frontier leaves open; either, where there are two."""
    stored = group.end_of(column)
    if stored_place(request, group, stored) == column and request.low <= stored <= request.high:
        return True
    tokens = tokens_at(request, group, column)
    return tokens is not None and request.low <= tokens <= request.high


def tokens_before(request: Request) -> int | None:
    """e of the copy clause: at how many tokens the last step ended; an admission: `first`."""
    left = request.states_left
    if left is None:
        return request.first
    return None if left.start is None else left.start + left.tokens


# What a step that ended has left behind


def leave_states(account: Account, scheduled: ScheduledRequest, abandoned: bool) -> None:
    """At END of a step that had a forward, before the frontier moves."""
    request = account.requests[scheduled.row.request]
    for group in account.geometry.groups:
        if group.is_state() and not group.pool.is_host():
            note_tokens(account, request, group, scheduled, abandoned)
    known = scheduled.start_known() and not abandoned
    start = scheduled.start_low if known else None
    row = scheduled.row
    request.states_left = StatesLeft(start, row.num_tokens, row.num_drafts)


def note_tokens(
    account: Account, request: Request, group: Group, scheduled: ScheduledRequest, abandoned: bool
) -> None:
    """judging.md, States, Tokens of a state."""
    known = scheduled.start_known() and not abandoned and scheduled.row.num_drafts == 0
    written = written_columns_of_states(group, scheduled)
    for column, entry in enumerate(request.rows[group.index]):
        if not entry.claims:
            continue
        block = (group.pool.index, entry.block)
        if is_overwritten_place(request, group, scheduled, column):
            account.state_tokens.pop(block, None)
        elif column in written:
            account.state_tokens.pop(block, None)
            held = tokens_left(group, scheduled.row, scheduled.start_low, column)
            if known and held is not None:
                account.state_tokens[block] = held


def tokens_left(group: Group, row: Scheduled, start: int, column: int) -> int | None:
    """Of a written column of a step without drafts: of how many tokens its state is."""
    end = start + row.num_tokens
    if column == column_of_state(group, end):
        return end
    return group.end_of(column) if group.state_mode == MODE_ALL else None


def is_overwritten_place(
    request: Request, group: Group, scheduled: ScheduledRequest, column: int
) -> bool:
    """Mode ALIGN: the state at a boundary inside the step is stored where the start's stood.

    Of any start that the step may have had.
    """
    if group.state_mode != MODE_ALIGN:
        return False
    start = tokens_at(request, group, column)
    if start is None or not scheduled.start_low <= start <= scheduled.start_high:
        return False
    boundary = group.end_of(group.column_of(start))
    return boundary < start + scheduled.row.num_tokens
