# SPDX-License-Identifier: Apache-2.0
"""What recurrent layers start from and leave behind (10xx, 0602). judging.md, States."""

from __future__ import annotations

from dataclasses import replace

from kvguard_oracle.findings import Finding
from kvguard_oracle.geometry import MODE_ALIGN, NONE, Group, fits
from kvguard_oracle.micro_batches import begins_its_request, ends_its_request
from kvguard_oracle.ownership_rules import FOREIGN_WRITE
from kvguard_oracle.records import States
from kvguard_oracle.states import (
    column_of_state,
    last_column,
    place,
    stored_place,
    tokens_before,
)
from kvguard_oracle.view import KnownRow, View

STATE_MISMATCH = 1001
STATE_TARGET_MISMATCH = 1002
STATE_UNINITIALISED = 1003
STATE_DISCARDED = 1004
STATE_NOT_COPIED = 1005
PAD_STATE_REAL = 1006


def judge_states(view: View) -> tuple[list[Finding], int]:
    """The findings, and how many states must have been copied unsaid (assumptions)."""
    findings: list[Finding] = []
    assumptions = 0
    for group, part in view.parts():
        if part.states is None:
            continue
        for row in view.rows:
            if not row.has_tokens():
                continue
            if begins_its_request(view.plan, row):
                read, copied_unsaid = judge_read(view, group, part.states, row)
                findings += read
                assumptions += copied_unsaid
            if ends_its_request(view.plan, row):
                findings += judge_left(view, group, part.states, row)
    return findings, assumptions


def judge_read(
    view: View, group: Group, states: States, row: KnownRow
) -> tuple[list[Finding], int]:
    """What the row starts from."""
    anew = None if states.init is None else states.init[row.index] != 0
    if row.request_start == 0:
        if anew is False:
            return [view.finding(STATE_UNINITIALISED, row, 0, group.index)], 0
        return [], 0
    if anew:
        return [view.finding(STATE_DISCARDED, row, row.request_start, group.index)], 0
    if states.starts is None:
        return [], 0
    code, assumed = judge_start(view, group, row, states.starts[row.index])
    return [view.finding(code, row, row.request_start, group.index)] if code else [], assumed


def judge_start(view: View, group: Group, row: KnownRow, told: int) -> tuple[int | None, int]:
    """The code, if any, and 1 where the engine must have copied the state without a word."""
    standing = place(row.request, group, row.request_start)
    expected = None if standing is None else bound_in(group, row, standing)
    if expected in (None, told):
        return None, 0
    sources = [expected]
    stored = stored_place(row.request, group, row.request_start)
    if stored is not None:
        # at a boundary the state may stand there too, if anything does
        other = bound_in(group, row, stored)
        if other is not None and not group.pool.is_null(other):
            if told == other:
                return None, 0
            sources.append(other)
    if any((group, source, told) in view.step.copied for source in sources):
        return None, 0
    if told != running_state(group, row):
        return STATE_MISMATCH, 0
    if view.account.says_states_copied:
        return STATE_NOT_COPIED, 0
    return None, 1


def running_state(group: Group, row: KnownRow) -> int | None:
    """Mode ALIGN: the block of column col(s + q), where the step enters another column.

    Only then a state is copied there.
    """
    before = tokens_before(row.request)
    if group.state_mode != MODE_ALIGN or before is None:
        return None
    column = column_of_state(group, row.request_start + row.scheduled.row.num_tokens)
    return bound_in(group, row, column) if column != column_of_state(group, before) else None


def bound_in(group: Group, row: KnownRow, column: int) -> int | None:
    """The block that is bound in a column; None: no column there, or bound as -1: not judged."""
    entries = row.request.rows[group.index]
    if column >= len(entries):
        return None
    block = entries[column].block
    return block if fits(group, block) else None


def judge_left(view: View, group: Group, states: States, row: KnownRow) -> list[Finding]:
    """Where the row leaves its state."""
    if states.ends is None:
        return []
    expected = bound_in(group, row, last_column(group, row.scheduled.row, row.request_start))
    told = states.ends[row.index]
    if expected in (None, told):
        return []
    position = row.request_start + row.scheduled.row.num_tokens
    findings = [view.finding(STATE_TARGET_MISMATCH, row, position, group.index)]
    # a claim is of an id in the pool that is not null
    if view.account.held_by_another(group.pool, told, row.request.key):
        findings.append(view.finding(FOREIGN_WRITE, row, position, group.index))
    return findings


def judge_padded_states(view: View, first: int) -> list[Finding]:
    """pad-state-real: rows from `first` on are no request's; one for the group."""
    findings = []
    for group, part in view.parts():
        if part.states is None:
            continue
        for told in (part.states.ends, part.states.starts):
            index = first_real(group, told or [], first, view.plan.padded_rows)
            if index is not None:
                finding = view.finding(PAD_STATE_REAL, None, group=group.index)
                findings.append(replace(finding, row=index))
                break
    return findings


def first_real(group: Group, told: list[int], first: int, end: int) -> int | None:
    """The first index that names a state."""
    for index in range(first, min(end, len(told))):
        if told[index] != NONE and not group.pool.is_null(told[index]):
            return index
    return None
