# SPDX-License-Identifier: Apache-2.0
"""Which columns a scheduled row writes. judging.md, BEGIN, The schedule, writers."""

from __future__ import annotations

from kvguard_oracle.account import Account, OpenStep, Request, ScheduledRequest
from kvguard_oracle.cross import columns_to_write
from kvguard_oracle.geometry import Group, Pool
from kvguard_oracle.rings import columns_begun_in_ring, written_columns_of_ring
from kvguard_oracle.states import written_columns_of_states


def written_columns(group: Group, request: Request, scheduled: ScheduledRequest) -> list[int]:
    """As far as they are bound and claimed (a claim is of an id in the pool that is not null)."""
    if group.is_cross():
        columns = columns_to_write(request, group)
    elif group.is_state():
        columns = written_columns_of_states(group, scheduled)
    elif group.is_ring():
        columns = written_columns_of_ring(group, scheduled)
    else:
        first = group.column_of(scheduled.start_low)
        last = group.column_of(scheduled.start_high + scheduled.row.num_tokens - 1)
        columns = range(first, last + 1)
    row = request.rows[group.index]
    return [column for column, entry in enumerate(row) if column in columns and entry.claims]


def writers_columns(
    group: Group, request: Request, scheduled: ScheduledRequest, step: int
) -> list[int]:
    """For 0603 and 1102: not one that is a hit (of this step) for a last token computed again."""
    row = request.rows[group.index]
    return [
        column
        for column in written_columns(group, request, scheduled)
        if not (row[column].recomputed_hit and row[column].hit_in == step)
    ]


def writes(
    account: Account, step: OpenStep, scheduled: ScheduledRequest, pool: Pool, block: int
) -> bool:
    """As for 0603, in any group of the pool; no forward touches a host pool."""
    request = account.requests[scheduled.row.request]
    return not pool.is_host() and any(
        request.rows[group.index][column].block == block
        for group in account.geometry.groups_of_pool(pool)
        for column in writers_columns(group, request, scheduled, step.number)
    )


def columns_from_their_first_token(
    group: Group, request: Request, scheduled: ScheduledRequest
) -> list[int]:
    """Of these, those whose first token is written wherever the row starts.

    A state is written anew where the row starts at 0, the output of an encoder as a whole.
    """
    written = written_columns(group, request, scheduled)
    if group.is_cross():
        return written
    if group.is_state():
        return written if scheduled.start_high == 0 else []
    if group.is_ring():
        return [column for column in written if column in columns_begun_in_ring(group, scheduled)]
    return [
        column
        for column in written
        if scheduled.start_high
        <= group.first_of(column)
        < scheduled.start_low + scheduled.row.num_tokens
    ]


def writes_from_its_first_token(
    account: Account, scheduled: ScheduledRequest, pool: Pool, block: int
) -> bool:
    request = account.requests[scheduled.row.request]
    for group in account.geometry.groups_of_pool(pool):
        for column in columns_from_their_first_token(group, request, scheduled):
            if request.rows[group.index][column].block == block:
                return True
    return False


def content_written(account: Account, scheduled: ScheduledRequest) -> None:
    """The step ended: what it wrote from the first token on has content again."""
    request = account.requests[scheduled.row.request]
    for group in account.geometry.groups:
        for column in columns_from_their_first_token(group, request, scheduled):
            block = request.rows[group.index][column].block
            account.lost_content.discard((group.pool.index, block))
