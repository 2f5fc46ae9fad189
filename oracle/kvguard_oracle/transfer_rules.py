# SPDX-License-Identifier: Apache-2.0
"""Transfers against what is bound, written and read (11xx). judging.md, Transfers."""

from __future__ import annotations

from kvguard_oracle.account import Account, OpenStep, Request, ScheduledRequest
from kvguard_oracle.binding import PINNED_REBOUND, is_pinned_against, out_of_pool
from kvguard_oracle.content import BlockContent
from kvguard_oracle.findings import Finding
from kvguard_oracle.geometry import Group
from kvguard_oracle.overwrite_rules import judge_overwrites
from kvguard_oracle.records import Event
from kvguard_oracle.transfers import ANNOUNCING, LOAD, Transfer
from kvguard_oracle.view import KnownRow, View
from kvguard_oracle.windows import end_passed_claims, is_needed, read_position
from kvguard_oracle.written import writers_columns, writes_from_its_first_token

READ_WHILE_LOADING = 1101
WRITE_WHILE_PINNED = 1102
TRANSFER_UNKNOWN = 1104
TRANSFER_MISPLACED = 1105
FAILED_LOAD_USED = 1106
TRANSFER_REUSED = 1107

LOAD_DONE, LOAD_FAILED, SEND_DONE = "load-done", "load-failed", "send-done"
CANCEL, DRAIN = "cancel", "drain"
ENDING = (LOAD_DONE, LOAD_FAILED, SEND_DONE, DRAIN)
TRANSFER_EVENTS = (*ANNOUNCING, *ENDING, CANCEL)


def is_forgotten(account: Account, event: Event) -> bool:
    """From a RESET on that forgot any, an unknown id is ignored and counted."""
    if event.kind not in (*ENDING, CANCEL) or not account.transfers.forgot_any:
        return False
    return event.value not in account.transfers.open and event.value not in account.transfers.ended


def apply_transfer(account: Account, step: int, event: Event) -> list[Finding]:
    if event.kind in ANNOUNCING:
        return announce(account, step, event)
    if is_forgotten(account, event):
        return []
    transfer = account.transfers.open.get(event.value)
    if transfer is None or (event.kind == CANCEL and transfer.cancelled):
        return [Finding(TRANSFER_UNKNOWN, step, event.group, event.request)]
    if event.kind == CANCEL:
        transfer.cancelled = True
        return []
    return end_transfer(account, step, event, transfer)


# Announcements


def announce(account: Account, step: int, event: Event) -> list[Finding]:
    assert event.group is not None
    group = account.geometry.groups[event.group]
    if not account.transfers.may_announce(event.kind, event.value):
        return [Finding(TRANSFER_REUSED, step, group.index, event.request)]
    blocks = list(event.blocks)
    transfer = Transfer(
        event.value,
        event.kind,
        group,
        event.request,
        event.first,
        event.count,
        blocks,
        account.begun,
    )
    # the RESERVE of its own id gives way
    account.transfers.open.pop(event.value, None)
    findings = out_of_pool(step, group, event, event.request)
    if transfer.incoming():
        # they hand their blocks out
        for block in event.blocks:
            end_passed_claims(account, group.pool, block, step)
        findings += judge_handed_out(account, step, transfer)
    account.transfers.open[event.value] = transfer
    request = account.requests.get(event.request)
    if event.kind == LOAD:
        if request is None:
            account.transfers.waiting.append(transfer)
        else:
            findings += judge_load(step, transfer, request)
        findings += judge_overwrites(account, step, transfer)
    elif transfer.outgoing() and request is not None:
        findings += judge_send(step, transfer, request)
    return findings


def judge_handed_out(account: Account, step: int, transfer: Transfer) -> list[Finding]:
    """pinned-rebound: nobody claims a block, and another transfer pins it; one for the event."""
    group = transfer.group
    for block in transfer.blocks:
        if account.claims(group.pool, block) > 0:
            continue
        if is_pinned_against(account, transfer.request, group, block):
            return [Finding(PINNED_REBOUND, step, group.index, transfer.request)]
    return []


def has_places(group: Group) -> bool:
    """transfer-misplaced: a position says which column its blocks are for."""
    return group.keeps_tokens() and not group.is_ring()


def judge_load(step: int, load: Transfer, request: Request) -> list[Finding]:
    if not has_places(load.group):
        return []
    row = request.rows[load.group.index]
    for index, block in enumerate(load.blocks):
        column = load.column(index)
        if stands_for_unkept(load.group, block) and not is_needed(load.group, column, request.low):
            continue
        is_bound = column < len(row) and not load.group.is_hole(row[column].block)
        if not is_bound or row[column].block != block:
            return [misplaced(step, load, request, load.group.first_of(column))]
    return []


def judge_send(step: int, send: Transfer, request: Request) -> list[Finding]:
    if not has_places(send.group):
        return []
    row = request.rows[send.group.index]
    bound = [entry.block for entry in row if not send.group.is_hole(entry.block)]
    if all(block in bound or stands_for_unkept(send.group, block) for block in send.blocks):
        return []
    return [misplaced(step, send, request, -1)]


def stands_for_unkept(group: Group, block: int) -> bool:
    """transfer-misplaced: in windowed groups the null block is a column that is not kept."""
    return group.forgets() and group.pool.is_null(block)


def misplaced(step: int, transfer: Transfer, request: Request, pos: int) -> Finding:
    return Finding(TRANSFER_MISPLACED, step, transfer.group.index, request.key, pos)


def judge_waiting_loads(account: Account, step: int, admitted: set[int]) -> list[Finding]:
    """LOADs that came before their request, when it has been admitted."""
    findings = []
    for load in list(account.transfers.waiting):
        if load.request not in admitted:
            continue
        account.transfers.waiting.remove(load)
        request = account.requests.get(load.request)
        if request is not None:
            findings += judge_late_load(account, step, load, request)
    return findings


def judge_late_load(account: Account, step: int, load: Transfer, request: Request) -> list[Finding]:
    """Its request may have come upon other blocks that hold the same."""
    group = load.group
    if not has_places(group):
        return []
    row = request.rows[group.index]
    for index, block in enumerate(load.blocks):
        column = load.column(index)
        if column >= len(row) or group.end_of(column) > request.low:
            continue
        entry = row[column]
        if not entry.claims or (group.pool.index, entry.block) in account.ever_homed:
            continue
        if stands_for_unkept(group, block) and not is_needed(group, column, request.low):
            continue
        if entry.block != block:
            return [misplaced(step, load, request, group.first_of(column))]
    return []


# Ends


def end_transfer(account: Account, step: int, event: Event, transfer: Transfer) -> list[Finding]:
    account.transfers.end(event.value)
    if event.kind in (LOAD_FAILED, DRAIN) and transfer in account.transfers.waiting:
        account.transfers.waiting.remove(transfer)
    group = transfer.group
    if event.kind == LOAD_DONE:
        fill(account, transfer, besides=[])
    if event.kind == LOAD_FAILED:
        if event.blocks and transfer.kind == LOAD:
            # what it does not name was filled before the rest failed
            fill(account, transfer, besides=event.blocks)
        for block in event.blocks:
            if group.pool.in_range(block) and not group.pool.is_null(block):
                account.lost_content.add((group.pool.index, block))
        return out_of_pool(step, group, event, event.request)
    return []


def fill(account: Account, transfer: Transfer, besides: list[int]) -> None:
    for index, block in enumerate(transfer.blocks):
        if block in besides:
            continue
        account.lost_content.discard((transfer.group.pool.index, block))
        if transfer.kind == LOAD:
            bring_content(account, transfer, index)


def bring_content(account: Account, load: Transfer, index: int) -> None:
    """judging.md, Content: a LOAD was done into blocks[index].

    The tokens of an ADMIT of the same record are not known yet.
    """
    column = load.column(index)
    place = (load.group.pool.index, load.blocks[index])
    account.ever_filled.add(place)
    account.forget_content(place)
    if load.group.is_state() or load.group.is_ring():
        # how many tokens' state was loaded, or which turn of the ring, is not said
        return
    content = BlockContent(load.group.end_of(column), loaded=True)
    request = account.requests.get(load.request)
    if request is not None and request.key not in account.admitted_now:
        content.kept = request.knowledge.up_to(content.end)
    account.set_home(place, (load.group.index, column))
    account.loaded_for[place] = load.request
    account.contents[place] = content


# What the schedule writes and reads


def judge_pinned_writes(
    account: Account, step: int, request: Request, scheduled: ScheduledRequest, group: Group
) -> list[Finding]:
    """write-while-pinned: one for the request and group."""
    for column in writers_columns(group, request, scheduled, step):
        block = request.rows[group.index][column].block
        if account.transfers.forbids_writing(group, block, request.key, step, scheduled.start_low):
            position = group.first_of(column)
            return [Finding(WRITE_WHILE_PINNED, step, group.index, request.key, position)]
    return []


def judge_failed_loads(account: Account, step: OpenStep) -> list[Finding]:
    """failed-load-used, when the whole schedule is known."""
    findings = []
    for scheduled in step.scheduled.values():
        for group in account.geometry.groups:
            if not group.pool.is_host():
                findings += judge_failed_row(account, step, scheduled, group)
    return findings


def judge_failed_row(
    account: Account, step: OpenStep, scheduled: ScheduledRequest, group: Group
) -> list[Finding]:
    if group.is_cross():
        return []
    request = account.requests[scheduled.row.request]
    for column, entry in enumerate(request.rows[group.index]):
        if not group.begins_before(column, scheduled.start_low):
            break
        # what a window has passed is not read
        if group.forgets() and not entry.claims:
            continue
        if (group.pool.index, entry.block) not in account.lost_content:
            continue
        if account.transfers.loading(group, entry.block):
            # it comes again
            continue
        if not is_written(account, step, group, entry.block):
            position = group.first_of(column)
            return [Finding(FAILED_LOAD_USED, step.number, group.index, request.key, position)]
    return []


def is_written(account: Account, step: OpenStep, group: Group, block: int) -> bool:
    rows = step.scheduled.values()
    return any(writes_from_its_first_token(account, row, group.pool, block) for row in rows)


def judge_loading_reads(view: View) -> list[Finding]:
    """read-while-loading."""
    findings: list[Finding] = []
    for row in view.rows:
        if row.has_tokens():
            for group in view.groups():
                if not group.is_state():
                    findings += judge_loading_row(view, group, row)
    return findings


def judge_loading_row(view: View, group: Group, row: KnownRow) -> list[Finding]:
    assert row.start is not None
    transfers, step = view.account.transfers, view.step.number
    for column, entry in enumerate(row.request.rows[group.index]):
        if not group.begins_before(column, row.start):
            break
        if not is_needed(group, column, row.start):
            continue
        if transfers.loading_since_before(group, entry.block, step):
            position = read_position(group, column, row.start)
            return [view.finding(READ_WHILE_LOADING, row, position, group.index)]
    return []
