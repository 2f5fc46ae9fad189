# SPDX-License-Identifier: Apache-2.0
"""The target pass in parts (0106). judging.md, Other passes, Micro-batches."""

from __future__ import annotations

from kvguard_oracle.account import Account, OpenStep
from kvguard_oracle.findings import NO_POSITION, Finding
from kvguard_oracle.passes import MICRO_BATCH
from kvguard_oracle.records import Plan
from kvguard_oracle.view import KnownRow

MICRO_BATCH_MISSING = 106

PLANNED, FINAL = "planned", "final"


def taken_before(step: OpenStep, plan: Plan, key: int) -> int:
    """`taken`: the tokens of a request in earlier micro-batches of the step and stage."""
    return step.taken.get(plan.stage, {}).get(key, 0)


def note_taken(step: OpenStep, plan: Plan, rows: list[KnownRow]) -> None:
    """When a plan's rows were judged; a row with more tokens than are left adds nothing."""
    taken = step.taken.setdefault(plan.stage, {})
    for row in rows:
        if row.tokens is not None and not is_too_long(row):
            taken[row.request.key] = row.before + len(row.tokens)


def is_too_long(row: KnownRow) -> bool:
    assert row.tokens is not None
    return row.before + len(row.tokens) > row.scheduled.row.num_tokens


def begins_its_request(plan: Plan, row: KnownRow) -> bool:
    """The row has the first token of its request's step."""
    return plan.pass_name != MICRO_BATCH or (row.has_tokens() and row.before == 0)


def ends_its_request(plan: Plan, row: KnownRow) -> bool:
    """The row ends with the last token of its request's step."""
    if plan.pass_name != MICRO_BATCH:
        return True
    if row.tokens is None or not row.tokens:
        return False
    return row.before + len(row.tokens) == row.scheduled.row.num_tokens


def judge_missing(account: Account, step: OpenStep) -> list[Finding]:
    """At END."""
    taken = step.taken.get(PLANNED, step.taken.get(FINAL))
    if taken is None:
        return []
    findings = []
    for key, scheduled in step.scheduled.items():
        so_far = taken.get(key, 0)
        if key not in account.requests or so_far >= scheduled.row.num_tokens:
            continue
        position = scheduled.start_low + so_far if scheduled.start_known() else NO_POSITION
        findings.append(Finding(MICRO_BATCH_MISSING, step.number, None, key, position))
    return findings
