# SPDX-License-Identifier: Apache-2.0
"""Loads into what others have (0805). judging.md, Loads over what others hold."""

from __future__ import annotations

from kvguard_oracle.account import Account
from kvguard_oracle.findings import Finding
from kvguard_oracle.geometry import Group
from kvguard_oracle.transfers import Transfer

LOAD_OVERWRITES = 805


def judge_overwrites(account: Account, step: int, load: Transfer) -> list[Finding]:
    """At a LOAD, when passed claims of its blocks have ended: one, at its first such block."""
    group = load.group
    if load.request == 0 or not group.keeps_tokens() or group.pool.is_host():
        return []
    for block in load.blocks:
        if (group.pool.index, block) in account.lost_content:
            # what is loaded there again was not valid
            continue
        position = first_valid_position(account, group, block, besides=load.request)
        if position is not None:
            return [Finding(LOAD_OVERWRITES, step, group.index, load.request, position)]
    return []


def first_valid_position(account: Account, group: Group, block: int, besides: int) -> int | None:
    """Of the smallest key that has valid tokens there, in its first such column."""
    # a claim is of an id in the pool that is not null
    for key in sorted(account.requests):
        request = account.requests[key]
        if key == besides or request.admitted_in >= account.begun:
            # what this step admits may have been told the same
            continue
        for part in account.geometry.groups_of_pool(group.pool):
            if not part.keeps_tokens():
                continue
            for column, entry in enumerate(request.rows[part.index]):
                is_valid = part.begins_before(column, request.low)
                if entry.claims and entry.block == block and is_valid:
                    return part.first_of(column)
    return None
