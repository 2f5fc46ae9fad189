# SPDX-License-Identifier: Apache-2.0
"""The schedule of a BEGIN: counts (0902, 0904), capacity (0204), writers (0603).

judging.md, BEGIN, The schedule.
"""

from __future__ import annotations

from kvguard_oracle.account import Account, OpenStep, Request, ScheduledRequest
from kvguard_oracle.binding import BLOCK_NULL, REQUEST_UNKNOWN, ownership_grade
from kvguard_oracle.cross import columns_of_encoder, encoder_tokens
from kvguard_oracle.findings import SUSPICION, Finding
from kvguard_oracle.geometry import Geometry, Group
from kvguard_oracle.records import Scheduled
from kvguard_oracle.states import columns_for_states, columns_of_the_end
from kvguard_oracle.transfer_rules import judge_pinned_writes
from kvguard_oracle.windows import expire
from kvguard_oracle.written import writers_columns

CAPACITY_SHORT = 204
TWO_WRITERS = 603
COUNT_AHEAD = 902
COUNT_BEHIND = 904

SCHEDULED_TWICE = "scheduled-twice"


def judge_schedule(
    account: Account, step: OpenStep, rows: list[Scheduled]
) -> tuple[list[Finding], list[str]]:
    """The findings and the step gaps; fills step.scheduled."""
    findings: list[Finding] = []
    gaps: list[str] = []
    for row in rows:
        request = account.requests.get(row.request)
        if request is None:
            findings.append(Finding(REQUEST_UNKNOWN, step.number, None, row.request))
        elif row.request in step.scheduled:
            gaps.append(SCHEDULED_TWICE)
        else:
            findings += judge_row(account, step, request, row)
    return findings, gaps


def judge_row(account: Account, step: OpenStep, request: Request, row: Scheduled) -> list[Finding]:
    geometry = account.geometry
    findings = judge_count(geometry, step.number, request, row)
    expire(account, request)
    start_high = max(request.low, min(request.high, row.num_computed))
    if any(finding.code == COUNT_AHEAD for finding in findings):
        # "the frontier stays; the step starts at low"
        start_high = request.low
    scheduled = ScheduledRequest(row, start_low=request.low, start_high=start_high)
    step.scheduled[request.key] = scheduled
    request.was_scheduled[step.number] = scheduled
    for group in geometry.groups:
        if group.pool.is_host():
            # no forward touches it
            continue
        findings += judge_capacity(geometry, step.number, request, scheduled, group)
        findings += judge_null_state(step.number, request, scheduled, group)
        findings += judge_writers(account, step, request, scheduled, group)
        findings += judge_pinned_writes(account, step.number, request, scheduled, group)
    return findings


def judge_count(geometry: Geometry, step: int, request: Request, row: Scheduled) -> list[Finding]:
    counted = row.num_computed
    most = request.count if geometry.is_async() else request.high
    if counted > most:
        return [Finding(COUNT_AHEAD, step, None, request.key, counted)]
    if counted < request.low:
        request.know_frontier(counted)
        request.count = counted
        if geometry.has_connector():
            return []
        return [Finding(COUNT_BEHIND, step, None, request.key, counted, grade=SUSPICION)]
    if not geometry.is_async():
        request.know_frontier(counted)
    request.count = counted
    return []


def tokens_to_hold(geometry: Geometry, scheduled: ScheduledRequest) -> int:
    """`end` of judging.md: the row must hold positions [0, end)."""
    counted, tokens = scheduled.row.num_computed, scheduled.row.num_tokens
    end = max(counted, scheduled.start_high) + tokens
    if geometry.max_model_len != 0:
        end = min(end, geometry.max_model_len)
    return max(end, scheduled.start_low + tokens)


def judge_capacity(
    geometry: Geometry, step: int, request: Request, scheduled: ScheduledRequest, group: Group
) -> list[Finding]:
    end = tokens_to_hold(geometry, scheduled)
    needed = group.columns_for(end)
    if group.is_state():
        needed = columns_for_states(group, end, scheduled.row.num_drafts)
    if group.is_cross():
        end = encoder_tokens(request)
        needed = columns_of_encoder(request, group)
    if len(request.rows[group.index]) >= needed:
        return []
    return [Finding(CAPACITY_SHORT, step, group.index, request.key, end - 1)]


def judge_null_state(
    step: int, request: Request, scheduled: ScheduledRequest, group: Group
) -> list[Finding]:
    """judging.md, States, block-null: a column that the step leaves a state in at its end."""
    if not group.is_state() or not group.forgets() or not scheduled.start_known():
        return []
    columns = columns_of_the_end(group, scheduled, scheduled.start_low)
    for column, entry in enumerate(request.rows[group.index]):
        if column in columns and group.pool.is_null(entry.block):
            return [Finding(BLOCK_NULL, step, group.index, request.key, column)]
    return []


def judge_writers(
    account: Account, step: OpenStep, request: Request, scheduled: ScheduledRequest, group: Group
) -> list[Finding]:
    findings = []
    row = request.rows[group.index]
    for column in writers_columns(group, request, scheduled, step.number):
        place = (group.pool.index, row[column].block)
        if step.writers.get(place, request.key) != request.key:
            findings.append(
                Finding(
                    TWO_WRITERS,
                    step.number,
                    group.index,
                    request.key,
                    group.first_of(column),
                    grade=ownership_grade(account.geometry),
                )
            )
        step.writers[place] = request.key
    return findings
