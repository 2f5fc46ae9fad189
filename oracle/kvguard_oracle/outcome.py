# SPDX-License-Identifier: Apache-2.0
"""OUTCOME and END: the frontier moves (0905). judging.md, OUTCOME and END."""

from __future__ import annotations

from kvguard_oracle.account import Account, OpenStep, Request, ScheduledRequest
from kvguard_oracle.cross import note_written
from kvguard_oracle.findings import Finding
from kvguard_oracle.frontier_rules import FRONTIER_MISMATCH
from kvguard_oracle.records import End, Outcome, OutcomeRow
from kvguard_oracle.rings import note_ring_writes
from kvguard_oracle.states import leave_states
from kvguard_oracle.windows import expire
from kvguard_oracle.written import content_written

REJECTED_MORE_THAN_DRAFTED = 905

END_NO_FORWARD = 1 << 0
END_ABANDONED = 1 << 1


def apply_outcome(
    account: Account, step: OpenStep | None, outcome: Outcome
) -> tuple[list[Finding], int]:
    """The findings, and how many rows are ignored."""
    findings = []
    ignored = 0
    for row in outcome.rows:
        request = account.requests.get(row.request)
        if request is None:
            ignored += 1
            continue
        tell_tokens(request, outcome.step, row)
        right, starts = apply_row(request, step, outcome.step, row)
        expire(account, request)
        if not right:
            code = REJECTED_MORE_THAN_DRAFTED
            findings.append(Finding(code, outcome.step, None, row.request))
        for start in starts:
            findings.append(Finding(FRONTIER_MISMATCH, outcome.step, None, row.request, start))
    return findings, ignored


def tell_tokens(request: Request, of_step: int, row: OutcomeRow) -> None:
    """judging.md, Content: they stand from position s + q - d on."""
    scheduled = request.was_scheduled.get(of_step)
    position = None
    if scheduled is not None and scheduled.start_known():
        told = scheduled.row
        position = scheduled.start_low + told.num_tokens - told.num_drafts
    request.knowledge.sampled(position, row.tokens, row.num_sampled)


def apply_row(
    request: Request, step: OpenStep | None, of_step: int, row: OutcomeRow
) -> tuple[bool, list[int]]:
    """False: it rejects more drafts than its step had. Starts that were taken otherwise."""
    scheduled = step.scheduled.get(request.key) if step is not None else None
    if step is not None and of_step == step.number and scheduled is not None:
        if row.num_rejected > scheduled.row.num_drafts:
            return False, []
        scheduled.rejected = row.num_rejected
        return True, []
    right, starts = apply_late_row(request, of_step, row.num_rejected)
    if scheduled is not None and not scheduled.start_known():
        scheduled.start_low = request.low
        scheduled.start_high = max(request.low, min(request.high, scheduled.start_high))
    return right, starts


def apply_late_row(request: Request, of_step: int, rejected: int) -> tuple[bool, list[int]]:
    for index, (step, drafts) in enumerate(request.open_outcomes):
        if step != of_step:
            continue
        if rejected > drafts:
            return False, []
        del request.open_outcomes[index]
        request.low += drafts - rejected
        request.high = max(request.low, request.high - rejected)
        return True, request.tell_outcome(of_step, drafts - rejected)
    return apply_forgotten_row(request, of_step, rejected), []


def apply_forgotten_row(request: Request, of_step: int, rejected: int) -> bool:
    """A step whose outcome was forgotten: no effect, once. Any other: nothing is rejected."""
    for index, (step, drafts) in enumerate(request.forgotten):
        if step != of_step:
            continue
        if rejected > drafts:
            return False
        del request.forgotten[index]
        return True
    return rejected == 0 or of_step <= request.forgotten_for_good


def had_forward(step: OpenStep, end: End) -> bool:
    return step.has_tokens and not end.flags & END_NO_FORWARD


def apply_end(account: Account, step: OpenStep, end: End) -> None:
    if not had_forward(step, end):
        return
    for key, scheduled in step.scheduled.items():
        request = account.requests.get(key)
        if request is not None:
            abandoned = bool(end.flags & END_ABANDONED)
            content_written(account, scheduled)
            leave_states(account, scheduled, abandoned)
            if not abandoned:
                note_written(account, key)
            note_ring_writes(request, scheduled, abandoned)
            move(request, step.number, scheduled, abandoned)
            request.most_high = max(request.most_high, request.high)
            expire(account, request)


def move(request: Request, step: int, scheduled: ScheduledRequest, abandoned: bool) -> None:
    tokens, drafts = scheduled.row.num_tokens, scheduled.row.num_drafts
    if scheduled.start_known():
        request.know_frontier(scheduled.start_low)
    request.count += tokens
    if abandoned:
        request.high += tokens
        request.forget(step, tokens)
    elif scheduled.rejected is not None or drafts == 0:
        rejected = scheduled.rejected or 0
        request.low += tokens - rejected
        request.high += tokens - rejected
    else:
        request.low += tokens - drafts
        request.high += tokens
        request.open_outcomes.append((step, drafts))
