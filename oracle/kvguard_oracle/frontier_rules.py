# SPDX-License-Identifier: Apache-2.0
"""Where a row starts and how its positions rise (0901, 0903). judging.md, PLAN, Frontier."""

from __future__ import annotations

from kvguard_oracle.findings import Finding
from kvguard_oracle.passes import TARGET
from kvguard_oracle.records import Plan
from kvguard_oracle.view import KnownRow, View

FRONTIER_MISMATCH = 901
POSITION_MISMATCH = 903


def judge_frontier(view: View) -> tuple[list[Finding], int]:
    """The findings and how many starts were taken from the plan (assumptions)."""
    findings: list[Finding] = []
    assumptions = 0
    for row in view.rows:
        if not row.has_tokens():
            continue
        if row.start is None:
            # of the request: what earlier micro-batches had of it comes before the row
            told = told_start(view.plan, row) - row.before
            start = min(max(told, row.scheduled.start_low), row.scheduled.start_high)
            row.start = start + row.before
            if start == told:
                # one that was clamped is a finding already
                row.request.take_start(view.step.number, told)
            assumptions += 1
        findings += judge_row(view, row)
    return findings, assumptions


def told_start(plan: Plan, row: KnownRow) -> int:
    """The plan's own start. It is never learned from."""
    assert row.tokens is not None
    assert plan.seq_lens is not None
    if plan.positions is not None:
        return plan.positions[row.tokens[0]]
    return max(plan.seq_lens[row.index], 0) - len(row.tokens)


def judge_row(view: View, row: KnownRow) -> list[Finding]:
    assert row.tokens is not None
    assert row.start is not None
    findings = []
    plan = view.plan
    mismatch = False
    if plan.positions is not None:
        positions = [plan.positions[token] for token in row.tokens]
        if positions[0] != row.start:
            mismatch = True
            findings.append(view.finding(FRONTIER_MISMATCH, row, row.start))
        for i, position in enumerate(positions):
            if position != positions[0] + i:
                findings.append(view.finding(POSITION_MISMATCH, row, positions[0] + i))
                break
    judged = plan.num_computed is not None and plan.pass_name == TARGET
    told = plan.num_computed[row.index] if judged else row.start
    if told != row.start and not mismatch:
        findings.append(view.finding(FRONTIER_MISMATCH, row, row.start))
    return findings
