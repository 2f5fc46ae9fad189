# SPDX-License-Identifier: Apache-2.0
"""Events of a BEGIN: bindings (02xx) and who owns what is bound (0601). judging.md, BEGIN."""

from __future__ import annotations

from kvguard_oracle.account import Account, Entry, Hit, Request
from kvguard_oracle.content import BlockContent, Domain
from kvguard_oracle.findings import NO_REQUEST, PROOF, SUSPICION, Finding
from kvguard_oracle.geometry import MODE_ALIGN, Geometry, Group
from kvguard_oracle.records import Event
from kvguard_oracle.rings import forget_ring_writes
from kvguard_oracle.states import column_of_state, is_a_place
from kvguard_oracle.windows import end_passed_claims, expire, is_needed, is_owned

BLOCK_OUT_OF_RANGE = 201
BLOCK_NULL = 202
BLOCK_REPEATED = 203
REQUEST_UNKNOWN = 205
ROW_TOO_WIDE = 206
BLOCK_OWNED = 601
PINNED_REBOUND = 1103


def ownership_grade(geometry: Geometry) -> str:
    """judging.md: 0601 and 0603 are suspicions where the engine has a connector."""
    return SUSPICION if geometry.has_connector() else PROOF


def is_ignored(account: Account, event: Event) -> bool:
    """A finish, preemption or mark of an unknown key is legal, counted, and changes nothing."""
    kinds = ("finish", "preempt", "domain")
    return event.kind in kinds and event.request not in account.requests


def apply_event(account: Account, step: int, event: Event) -> list[Finding]:
    if event.kind == "gap":
        return []
    if event.kind == "domain":
        mark(account, step, event)
        return []
    if event.kind == "admit":
        account.admit(step, event)
        return []
    if event.kind in ("finish", "preempt"):
        account.finish(event.request)
        return []
    request = account.requests.get(event.request)
    if request is None:
        told_of = None if event.kind == "rollback" else event.group
        return [Finding(REQUEST_UNKNOWN, step, told_of, event.request)]
    if event.kind == "rollback":
        roll_back(request, event.count)
        expire(account, request)
        return []
    assert event.group is not None
    group = account.geometry.groups[event.group]
    if event.kind in ("truncate", "replace"):
        first = event.first if event.kind == "truncate" else 0
        forget_ring_writes(request, group, first)
        account.end_claims(request, group, first)
    if event.kind == "truncate":
        return []
    return bind_blocks(account, step, request, event)


def mark(account: Account, step: int, event: Event) -> None:
    """judging.md, Content: a DOMAIN belongs to the record that admits the request."""
    request = account.requests.get(event.request)
    if request is None:
        return
    if request.admitted_in != step:
        request.knowledge.forget()
        return
    domain = Domain(event.other, event.value, event.first, event.count)
    request.knowledge.domains.append(domain)


def roll_back(request: Request, tokens: int) -> None:
    request.low = max(request.low - tokens, 0)
    request.high = max(request.high - tokens, 0)
    request.count = request.high
    request.forget_outcomes()


def block_owned_grade(geometry: Geometry, step: int, request: Request, event: Event) -> str:
    """What a running request is given comes from the free blocks: nothing was loaded into it."""
    if event.kind == "append" and request.admitted_in != step:
        return PROOF
    return ownership_grade(geometry)


def bind_blocks(account: Account, step: int, request: Request, event: Event) -> list[Finding]:
    """An APPEND, or a REPLACE whose row was emptied."""
    assert event.group is not None
    findings = []
    group = account.geometry.groups[event.group]
    row = request.rows[group.index]
    owned_grade = block_owned_grade(account.geometry, step, request, event)
    for block in event.blocks:
        column = len(row)
        entry, codes = judge_binding(account, step, request, group, block)
        entry.bound_in = step
        row.append(entry)
        if entry.hit_in is not None:
            account.hits_made.append(Hit(request, group, column, entry, request.low))
        if entry.claims:
            account.freed.discard((group.pool.index, block))
        for code in codes:
            grade = owned_grade if code == BLOCK_OWNED else PROOF
            findings.append(Finding(code, step, group.index, request.key, column, grade=grade))
    if group.max_columns != 0 and len(row) > group.max_columns:
        findings.append(Finding(ROW_TOO_WIDE, step, group.index, request.key))
    return findings


def judge_binding(
    account: Account, step: int, request: Request, group: Group, block: int
) -> tuple[Entry, list[int]]:
    """judging.md, Binding block b in column c: checked in this order, exactly one line applies.

    In a full-attention group every column is needed, so that Windows, Binding says the same.
    """
    row = request.rows[group.index]
    column = len(row)
    pool = group.pool
    if not pool.in_range(block):
        return Entry(block, claims=False), [BLOCK_OUT_OF_RANGE]
    if not is_needed(group, column, request.low):
        return Entry(block, claims=False), []
    if group.is_state() and group.forgets():
        return judge_state_binding(account, step, request, group, block)
    if pool.is_null(block):
        return Entry(block, claims=False), [BLOCK_NULL]
    if row_holds(request, group, block):
        return Entry(block, claims=True), [BLOCK_REPEATED]
    if group.is_state() or group.is_cross() or group.is_ring():
        # mode NONE, the output of encoders, and what is written over: no column is a hit
        return judge_fresh(account, step, request, group, block)
    if group.end_of(column) <= request.low:
        forget_unclaimed(account, group, block)
        return Entry(block, claims=True, hit_in=step), []
    if is_recomputed_hit(account, step, request, group, block):
        forget_unclaimed(account, group, block)
        return Entry(block, claims=True, hit_in=step, recomputed_hit=True), []
    return judge_fresh(account, step, request, group, block)


def judge_state_binding(
    account: Account, step: int, request: Request, group: Group, block: int
) -> tuple[Entry, list[int]]:
    """judging.md, States, Binding, of the modes ALL and ALIGN; the column is needed at `low`."""
    column = len(request.rows[group.index])
    holds_the_hit = request.low > 0 and column == column_of_state(group, request.low)
    if group.pool.is_null(block):
        return Entry(block, claims=False), [BLOCK_NULL] if holds_the_hit else []
    held_in = columns_holding(request, group, block)
    if held_in:
        if group.state_mode != MODE_ALIGN:
            return Entry(block, claims=True), [BLOCK_REPEATED]
        if any(is_a_place(request, group, held) for held in held_in):
            return Entry(block, claims=True), [BLOCK_REPEATED]
        # speculative blocks move on: the column before is given up
        for held in held_in:
            account.end_claim(request, group, held)
        return judge_fresh(account, step, request, group, block)
    if holds_the_hit:
        forget_unclaimed(account, group, block)
        return Entry(block, claims=True, hit_in=step), []
    return judge_fresh(account, step, request, group, block)


def forget_unclaimed(account: Account, group: Group, block: int) -> None:
    """judging.md, Content: with a connector it may have been filled from outside unsaid.

    Not where fills are told.
    """
    geometry = account.geometry
    if geometry.fills_told() or not geometry.has_connector():
        return
    if account.claims(group.pool, block) == 0:
        account.forget_content((group.pool.index, block))


def is_recomputed_hit(
    account: Account, step: int, request: Request, group: Group, block: int
) -> bool:
    """Line 4: the last known token of a column that is a hit is computed again.

    Only where a fresh block would be 0601: one that nobody owns may as well be handed out anew.
    """
    column = len(request.rows[group.index])
    return (
        request.admitted_in == step
        and request.first == request.low == request.known_count - 1
        and group.end_of(column) <= request.known_count
        and belongs_here(account, group, column, block)
        and is_owned(account, group, block, step)
    )


def belongs_here(account: Account, group: Group, column: int, block: int) -> bool:
    """Line 4: the block's home or, only where that is not known, where a live request has it."""
    home = account.homes.get((group.pool.index, block))
    if home is not None:
        return home == (group.index, column)
    rows = [request.rows[group.index] for request in account.requests.values()]
    return any(
        row[column].claims and row[column].block == block for row in rows if column < len(row)
    )


def row_holds(request: Request, group: Group, block: int) -> bool:
    """Line 3."""
    return bool(columns_holding(request, group, block))


def columns_holding(request: Request, group: Group, block: int) -> list[int]:
    """Line 3; of a group that forgets, only columns with a claim that are needed at `high`."""
    return [
        column
        for column, entry in enumerate(request.rows[group.index])
        if entry.claims and entry.block == block and is_needed(group, column, request.high)
    ]


def judge_fresh(
    account: Account, step: int, request: Request, group: Group, block: int
) -> tuple[Entry, list[int]]:
    """Line 5."""
    pool = group.pool
    end_passed_claims(account, pool, block, step)
    codes = []
    if is_owned(account, group, block, step):
        codes.append(BLOCK_OWNED)
    if is_pinned_against(account, request.key, group, block):
        codes.append(PINNED_REBOUND)
    account.fresh_in[pool.index, block] = step
    account.ever_filled.add((pool.index, block))
    column = len(request.rows[group.index])
    place, here = (pool.index, block), (group.index, column)
    of_a_load = account.homes.get(place) == here and account.loaded_for.get(place) == request.key
    account.set_home(place, here)
    content = BlockContent(group.end_of(column), binder=request.key)
    account.contents[pool.index, block] = content
    account.lost_content.discard((pool.index, block))
    account.state_tokens.pop((pool.index, block), None)
    entry = Entry(block, claims=True, content=content, of_a_load=of_a_load)
    account.fresh_entries[pool.index, block] = entry
    return entry, codes


def is_pinned_against(account: Account, request: int, group: Group, block: int) -> bool:
    """judging.md, Transfers, pinned-rebound: an incoming pin where both keys are known (not 0)."""
    for transfer in account.transfers.pinning(group, block):
        if transfer.outgoing():
            return True
        if transfer.request != 0 and request not in (0, transfer.request):
            return True
    return False


def out_of_pool(step: int, group: Group, event: Event, request: int = NO_REQUEST) -> list[Finding]:
    """0201 of the events that bind nothing: position the index in `blocks`."""
    return [
        Finding(BLOCK_OUT_OF_RANGE, step, group.index, request, index)
        for index, block in enumerate(event.blocks)
        if not group.pool.in_range(block)
    ]
