# SPDX-License-Identifier: Apache-2.0
"""Rows of a plan against the schedule (01xx). judging.md, PLAN, Rows (step)."""

from __future__ import annotations

from kvguard_oracle.account import Account, OpenStep
from kvguard_oracle.cross import has_encoder_length
from kvguard_oracle.drafts import is_behind_the_target, start_bounds
from kvguard_oracle.findings import NO_REQUEST, Finding
from kvguard_oracle.frontier_rules import FRONTIER_MISMATCH, told_start
from kvguard_oracle.micro_batches import is_too_long, note_taken, taken_before
from kvguard_oracle.passes import CROSS, DRAFT, MICRO_BATCH, TARGET
from kvguard_oracle.records import Plan
from kvguard_oracle.view import KnownRow, View

ROW_UNKNOWN = 101
ROW_MISSING = 102
ROW_DUPLICATE = 103
QUERY_LENGTH_MISMATCH = 104
QUERY_START_MALFORMED = 105


def first_wrong_offset(plan: Plan) -> int | None:
    """The first index of query_start that is wrong; num_rows where the end is; None: all right."""
    offsets = plan.query_start
    assert offsets is not None
    if offsets[0] != 0:
        return 0
    for index in range(1, plan.num_rows + 1):
        if offsets[index] < offsets[index - 1] or offsets[index] > plan.num_tokens:
            return index
    if offsets[plan.num_rows] != plan.num_tokens:
        return plan.num_rows
    return None


def judge_rows(account: Account, step: OpenStep, plan: Plan) -> tuple[View, list[Finding]]:
    view = View(account, step, plan, [])
    findings: list[Finding] = []
    wrong = first_wrong_offset(plan)
    if wrong is not None:
        findings.append(row_finding(view, QUERY_START_MALFORMED, NO_REQUEST, wrong))
    with_row: set[int] = set()
    for index, key in enumerate(plan.requests):
        if key not in account.requests or key not in step.scheduled:
            findings.append(row_finding(view, ROW_UNKNOWN, key, index))
            continue
        if key in with_row:
            findings.append(row_finding(view, ROW_DUPLICATE, key, index))
            continue
        with_row.add(key)
        row = known_row(view, index, usable=wrong is None)
        view.rows.append(row)
        if row.tokens is not None and not has_its_length(plan, row):
            findings.append(view.finding(QUERY_LENGTH_MISMATCH, row))
    if plan.pass_name in (TARGET, CROSS):
        for key in step.scheduled:
            if key not in with_row:
                findings.append(row_finding(view, ROW_MISSING, key, -1))
    if plan.pass_name == MICRO_BATCH:
        note_taken(step, plan, view.rows)
    if is_behind_the_target(plan):
        findings += judge_draft_starts(view)
    return view, findings


def has_its_length(plan: Plan, row: KnownRow) -> bool:
    """Of a row with usable tokens; a draft pass may have any length."""
    assert row.tokens is not None
    if plan.pass_name == MICRO_BATCH:
        return not is_too_long(row)
    if plan.pass_name == CROSS:
        return has_encoder_length(row)
    return plan.pass_name == DRAFT or len(row.tokens) == row.scheduled.row.num_tokens


def judge_draft_starts(view: View) -> list[Finding]:
    """The plan's own start is taken; a row that cannot stand there is not judged further."""
    findings = []
    known = []
    for row in view.rows:
        if row.has_tokens():
            row.start = told_start(view.plan, row)
            lowest, highest = start_bounds(
                view.account.geometry, row.scheduled, view.plan.pass_index
            )
            if not lowest <= row.start <= highest:
                nearer = lowest if row.start < lowest else highest
                findings.append(view.finding(FRONTIER_MISMATCH, row, nearer))
                continue
        known.append(row)
    view.rows = known
    return findings


def row_finding(view: View, code: int, key: int, index: int) -> Finding:
    plan = view.plan
    return Finding(
        code, plan.step, None, key, row=index, pass_name=plan.pass_name, stage=plan.stage
    )


def known_row(view: View, index: int, usable: bool) -> KnownRow:
    plan = view.plan
    assert plan.query_start is not None
    key = plan.requests[index]
    scheduled = view.step.scheduled[key]
    row = KnownRow(
        index=index,
        request=view.account.requests[key],
        scheduled=scheduled,
        tokens=range(plan.query_start[index], plan.query_start[index + 1]) if usable else None,
        start=scheduled.start_low if scheduled.start_known() else None,
    )
    if plan.pass_name == CROSS:
        # the encoder's tokens
        row.start = 0
    elif is_behind_the_target(plan):
        row.start = None
    elif plan.pass_name == MICRO_BATCH:
        row.before = taken_before(view.step, plan, key)
        row.start = None if row.start is None else row.start + row.before
    return row
