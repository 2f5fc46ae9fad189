# SPDX-License-Identifier: Apache-2.0
"""Events of a BEGIN: bindings (02xx) and who owns what is bound (0601). judging.md, BEGIN."""

from __future__ import annotations

from kvguard_oracle.account import Account, Entry, Request
from kvguard_oracle.findings import PROOF, SUSPICION, Finding
from kvguard_oracle.geometry import Geometry, Group
from kvguard_oracle.records import Event
from kvguard_oracle.windows import end_passed_claims, expire, is_needed

BLOCK_OUT_OF_RANGE = 201
BLOCK_NULL = 202
BLOCK_REPEATED = 203
REQUEST_UNKNOWN = 205
ROW_TOO_WIDE = 206
BLOCK_OWNED = 601


def ownership_grade(geometry: Geometry) -> str:
    """judging.md: 0601 and 0603 are suspicions where the engine has a connector."""
    return SUSPICION if geometry.has_connector() else PROOF


def is_ignored(account: Account, event: Event) -> bool:
    """A finish or preemption of an unknown key is legal, counted, and changes nothing."""
    return event.kind in ("finish", "preempt") and event.request not in account.requests


def apply_event(account: Account, step: int, event: Event) -> list[Finding]:
    if event.kind in ("gap", "domain"):
        # docs/judging.md says nothing of domains yet: accepted and ignored
        return []
    if event.kind == "admit":
        account.admit(event.request, event.first)
        return []
    if event.kind in ("finish", "preempt"):
        account.requests.pop(event.request, None)
        return []
    request = account.requests.get(event.request)
    if request is None:
        group = None if event.kind == "rollback" else event.group
        return [Finding(REQUEST_UNKNOWN, step, group, event.request)]
    if event.kind == "rollback":
        roll_back(request, event.count)
        expire(account, request)
        return []
    assert event.group is not None
    if event.kind == "truncate":
        del request.rows[event.group][event.first :]
        return []
    if event.kind == "replace":
        request.rows[event.group] = []
    return bind_blocks(account, step, request, account.geometry.groups[event.group], event.blocks)


def roll_back(request: Request, tokens: int) -> None:
    request.low = max(request.low - tokens, 0)
    request.high = max(request.high - tokens, 0)
    request.count = request.high
    request.forget_outcomes()


def bind_blocks(
    account: Account, step: int, request: Request, group: Group, blocks: list[int]
) -> list[Finding]:
    findings = []
    row = request.rows[group.index]
    for block in blocks:
        column = len(row)
        entry, code = judge_binding(account, step, request, group, block)
        entry.bound_in = step
        row.append(entry)
        if code is not None:
            grade = ownership_grade(account.geometry) if code == BLOCK_OWNED else PROOF
            findings.append(Finding(code, step, group.index, request.key, column, grade=grade))
    if group.max_columns != 0 and len(row) > group.max_columns:
        findings.append(Finding(ROW_TOO_WIDE, step, group.index, request.key))
    return findings


def judge_binding(
    account: Account, step: int, request: Request, group: Group, block: int
) -> tuple[Entry, int | None]:
    """judging.md, Binding block b in column c: checked in this order, exactly one line applies.

    In a full-attention group every column is needed, so that Windows, Binding says the same.
    """
    row = request.rows[group.index]
    column = len(row)
    pool = group.pool
    if not pool.in_range(block):
        return Entry(block, claims=False), BLOCK_OUT_OF_RANGE
    if not is_needed(group, column, request.low):
        return Entry(block, claims=False), None
    if pool.is_null(block):
        return Entry(block, claims=False), BLOCK_NULL
    if row_holds(request, group, block):
        return Entry(block, claims=True), BLOCK_REPEATED
    if (column + 1) * group.block_size <= request.low:
        return Entry(block, claims=True, hit_in=step), None
    return judge_fresh(account, step, group, block)


def row_holds(request: Request, group: Group, block: int) -> bool:
    """Line 3; of a window, only columns with a claim that are needed at `high`."""
    for column, entry in enumerate(request.rows[group.index]):
        if entry.claims and entry.block == block and is_needed(group, column, request.high):
            return True
    return False


def judge_fresh(account: Account, step: int, group: Group, block: int) -> tuple[Entry, int | None]:
    """Line 5."""
    end_passed_claims(account, step, group.pool, block)
    owned = account.claims(group.pool, block) > account.hits(group.pool, block, step)
    account.fresh_in[group.pool.index, block] = step
    return Entry(block, claims=True), BLOCK_OWNED if owned else None
