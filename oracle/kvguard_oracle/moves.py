# SPDX-License-Identifier: Apache-2.0
"""Blocks that move (REMAP), and what is then found (0201, 0203, 0601, 1204). judging.md, Moves."""

from __future__ import annotations

from kvguard_oracle.account import Account, Entry, Hit, Request
from kvguard_oracle.binding import BLOCK_OWNED, BLOCK_REPEATED, out_of_pool
from kvguard_oracle.copy_rules import COPY_TARGET_HELD, pairs
from kvguard_oracle.findings import Finding
from kvguard_oracle.geometry import CHUNKED, CROSS, STATE, WINDOW, Geometry, Group
from kvguard_oracle.records import Event

REMAP = "remap"
# kvguard.h, kvguard_remap_reason
DEDUPE, MOVE, SWAP = 1, 2, 3
REASONS = (DEDUPE, MOVE, SWAP)


def effective_pairs(group: Group, event: Event) -> list[tuple[int, int]]:
    """(old, new): those that have an effect."""
    pool = group.pool
    return [
        (old, new)
        for old, new in pairs(event.blocks)
        if old != new
        and all(pool.in_range(block) and not pool.is_null(block) for block in (old, new))
    ]


def is_well_formed(group: Group, event: Event) -> bool:
    """As to the reason, and to what may stand twice."""
    if event.value not in REASONS:
        return False
    moved = effective_pairs(group, event)
    olds, news = [old for old, _ in moved], [new for _, new in moved]
    unique = {DEDUPE: [olds], MOVE: [olds, news], SWAP: [olds + news]}[event.value]
    return all(len(set(ids)) == len(ids) for ids in unique)


def is_followed(geometry: Geometry, event: Event) -> bool:
    """False: bindings are lost."""
    assert event.group is not None
    pool = geometry.groups[event.group].pool
    kinds = {group.kind for group in geometry.groups_of_pool(pool)}
    return not kinds & {STATE, CROSS, WINDOW, CHUNKED}


def apply_remap(account: Account, step: int, event: Event) -> list[Finding]:
    assert event.group is not None
    group = account.geometry.groups[event.group]
    findings = out_of_pool(step, group, event)
    moved = effective_pairs(group, event)
    if event.value == DEDUPE:
        return findings + deduplicate(account, step, group, moved)
    if event.value == MOVE:
        findings += judge_targets(account, step, group, moved)
        move(account, group, dict(moved))
    else:
        move(account, group, dict(moved) | {new: old for old, new in moved})
    return findings


def judge_targets(
    account: Account, step: int, group: Group, moved: list[tuple[int, int]]
) -> list[Finding]:
    """copy-target-held, before anything has moved."""
    findings = []
    olds = {old for old, _ in moved}
    for _, new in moved:
        if new in olds or account.is_fresh_in(step, group.pool, new):
            continue
        holder = account.smallest_holder(group.pool, new)
        if holder is not None:
            findings.append(Finding(COPY_TARGET_HELD, step, group.index, holder[0]))
    return findings


def move(account: Account, group: Group, new_of: dict[int, int]) -> None:
    """Pins and announcements stay with their ids. This step's writers are not known yet."""
    for request in account.requests.values():
        for part in account.geometry.groups_of_pool(group.pool):
            for entry in request.rows[part.index]:
                entry.block = new_of.get(entry.block, entry.block)
    account.move_known(group.pool, new_of)


def deduplicate(
    account: Account, step: int, group: Group, moved: list[tuple[int, int]]
) -> list[Finding]:
    new_of = dict(moved)
    # what a pair finds is as it was before the event
    found = []
    for key in sorted(account.requests):
        request = account.requests[key]
        for part in account.geometry.groups_of_pool(group.pool):
            for column, entry in enumerate(request.rows[part.index]):
                if entry.claims and entry.block in new_of:
                    found.append((request, part, column, new_of[entry.block]))
    findings = []
    for request, part, column, new in found:
        # but for what it has done to the columns before
        is_repeated = any(entry.block == new for entry in request.rows[part.index])
        for entry in request.rows[part.index]:
            # an ordinary claim from now on; the rules of content judge it all the same
            entry.hit_in = None
        account.end_claim(request, part, column)
        entry = Entry(new, claims=True, bound_in=step)
        request.rows[part.index][column] = entry
        account.freed.discard((part.pool.index, new))
        if is_repeated:
            findings.append(Finding(BLOCK_REPEATED, step, part.index, request.key, column))
        elif not is_whole_before_the_frontier(request, part, column):
            findings.append(Finding(BLOCK_OWNED, step, part.index, request.key, column))
        else:
            # a hit to the rules of content alone
            account.hits_made.append(Hit(request, part, column, entry, request.low))
    return findings


def is_whole_before_the_frontier(request: Request, group: Group, column: int) -> bool:
    """A ring's is never: it is written over."""
    return not group.is_ring() and group.end_of(column) <= request.low
