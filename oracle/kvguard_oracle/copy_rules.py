# SPDX-License-Identifier: Apache-2.0
"""Zeroing and copies before a forward (12xx). judging.md, Zeroing and copies."""

from __future__ import annotations

from kvguard_oracle.account import Account, Entry, OpenStep
from kvguard_oracle.binding import out_of_pool
from kvguard_oracle.findings import NO_REQUEST, Finding
from kvguard_oracle.geometry import Group
from kvguard_oracle.records import Event
from kvguard_oracle.view import KnownRow, View
from kvguard_oracle.windows import is_needed, read_position

USED_BEFORE_ZEROED = 1201
ZERO_LIVE = 1202
USED_BEFORE_COPIED = 1203
COPY_TARGET_HELD = 1204
COPY_SOURCE_ZEROED = 1205
COPY_LOST = 1206

ZERO, ZERO_DONE, COPY, COPY_DONE = "zero", "zero-done", "copy", "copy-done"
COPY_EVENTS = (ZERO, ZERO_DONE, COPY, COPY_DONE)


def pairs(blocks: list[int]) -> list[tuple[int, int]]:
    """(source, target) pairs."""
    return list(zip(blocks[0::2], blocks[1::2], strict=True))


def apply_copy(account: Account, step: OpenStep | None, number: int, event: Event) -> list[Finding]:
    """`step`: the open one."""
    assert event.group is not None
    group = account.geometry.groups[event.group]
    findings = out_of_pool(number, group, event)
    if event.kind == ZERO:
        assert step is not None
        zeroes = [(group, block) for block in event.blocks]
        step.zeroes += zeroes
        step.zeroes_open += zeroes
    elif event.kind == COPY:
        assert step is not None
        copies = [(group, source, target) for source, target in pairs(event.blocks)]
        step.copies += copies
        step.copies_open += copies
        for _, _, target in copies:
            account.ever_filled.add((group.pool.index, target))
            account.state_tokens.pop((group.pool.index, target), None)
            findings += judge_target(account, number, group, target)
    elif event.kind == ZERO_DONE:
        account.says_done.add(ZERO)
        if step is not None:
            done = [(group, block) for block in event.blocks]
            step.zeroes_open = [zero for zero in step.zeroes_open if zero not in done]
    elif event.kind == COPY_DONE:
        account.says_done.add(COPY)
        account.says_states_copied |= group.is_state()
        copied = [(group, *pair) for pair in pairs(event.blocks)]
        for _, _, target in copied:
            account.state_tokens.pop((group.pool.index, target), None)
        if step is not None:
            step.copied += copied
            step.copies_open = [copy for copy in step.copies_open if copy not in copied]
    return findings


def judge_target(account: Account, step: int, group: Group, target: int) -> list[Finding]:
    """copy-target-held, at the event."""
    if group.is_state():
        return []
    if group.pool.is_null(target):
        return [Finding(COPY_TARGET_HELD, step, group.index, NO_REQUEST)]
    if account.is_fresh_in(step, group.pool, target):
        return []
    holder = account.smallest_holder(group.pool, target)
    if holder is None:
        return []
    return [Finding(COPY_TARGET_HELD, step, group.index, holder[0])]


def judge_announcements(account: Account, step: OpenStep) -> list[Finding]:
    """zero-live and copy-source-zeroed, when the schedule has been judged."""
    findings = []
    for group, block in step.zeroes:
        findings += judge_zero(account, step, group, block)
    for group, source, _ in step.copies:
        zeroed = [block for other, block in step.zeroes if other.pool.index == group.pool.index]
        if source in zeroed:
            findings.append(Finding(COPY_SOURCE_ZEROED, step.number, group.index))
    return findings


def judge_zero(account: Account, step: OpenStep, group: Group, block: int) -> list[Finding]:
    if not group.keeps_tokens() or group.pool.is_host():
        return []
    is_fresh = account.is_fresh_in(step.number, group.pool, block)
    if is_fresh and is_copied_into(step, group, block):
        return []
    for key in sorted(account.requests):
        positions = valid_positions(account, step, key, group, block, of_a_load=is_fresh)
        if positions:
            return [Finding(ZERO_LIVE, step.number, group.index, key, min(positions))]
    return []


def is_copied_into(step: OpenStep, group: Group, block: int) -> bool:
    """By a COPY of this record; ids belong to the pool."""
    return any(
        other.pool.index == group.pool.index and target == block for other, _, target in step.copies
    )


def valid_positions(
    account: Account, step: OpenStep, key: int, group: Group, block: int, of_a_load: bool
) -> list[int]:
    """The first token of each column that the request has the block in and that is valid.

    `of_a_load`: only the block's last fresh binding, where a load had filled that column.
    """
    request = account.requests[key]
    valid = step.scheduled[key].start_low if key in step.scheduled else request.low
    return [
        part.first_of(column)
        for part in account.geometry.groups_of_pool(group.pool)
        if part.keeps_tokens()
        for column, entry in enumerate(request.rows[part.index])
        if entry.claims and entry.block == block and part.begins_before(column, valid)
        if not of_a_load or is_fresh_over_a_load(account, part, entry)
    ]


def is_fresh_over_a_load(account: Account, group: Group, entry: Entry) -> bool:
    return entry.of_a_load and account.fresh_entries.get((group.pool.index, entry.block)) is entry


def undone_zeroes(account: Account, step: OpenStep) -> list[tuple[Group, int]]:
    """(group, block); none while the engine has never said ZERO_DONE."""
    return step.zeroes_open if ZERO in account.says_done else []


def undone_copies(account: Account, step: OpenStep) -> list[tuple[Group, int]]:
    """(group, target); none while the engine has never said COPY_DONE."""
    if COPY not in account.says_done:
        return []
    return [(group, target) for group, _, target in step.copies_open]


def judge_early_use(view: View) -> list[Finding]:
    """used-before-zeroed and used-before-copied."""
    zeroes = undone_zeroes(view.account, view.step)
    copies = undone_copies(view.account, view.step)
    findings: list[Finding] = []
    for row in view.rows:
        if row.has_tokens():
            for group in view.groups():
                if group.is_state():
                    continue
                findings += judge_row(view, USED_BEFORE_ZEROED, group, row, zeroes)
                findings += judge_row(view, USED_BEFORE_COPIED, group, row, copies)
    return findings


def judge_row(
    view: View, code: int, group: Group, row: KnownRow, undone: list[tuple[Group, int]]
) -> list[Finding]:
    assert row.start is not None
    assert row.tokens is not None
    end = row.start + len(row.tokens)
    # ids belong to the pool
    blocks = [block for other, block in undone if other.pool.index == group.pool.index]
    for column, entry in enumerate(row.request.rows[group.index]):
        if not group.begins_before(column, end):
            break
        if not is_needed(group, column, row.start) or group.is_hole(entry.block):
            continue
        if entry.block in blocks:
            position = read_position(group, column, row.start)
            return [view.finding(code, row, position, group.index)]
    return []


def judge_lost(account: Account, step: OpenStep) -> list[Finding]:
    """copy-lost, at END of a step that had a forward: one for each kind and group."""
    findings = []
    for undone in (undone_zeroes(account, step), undone_copies(account, step)):
        for index in sorted({group.index for group, _ in undone}):
            findings.append(Finding(COPY_LOST, step.number, index))
    return findings
