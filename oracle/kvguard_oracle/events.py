# SPDX-License-Identifier: Apache-2.0
"""Events of a BEGIN or an OUTCOME, each to its part of the account. judging.md, BEGIN."""

from __future__ import annotations

from kvguard_oracle import binding, cells, copy_rules, free_rules, moves, transfer_rules
from kvguard_oracle.account import Account, OpenStep
from kvguard_oracle.findings import Finding
from kvguard_oracle.geometry import Geometry
from kvguard_oracle.records import Event

SHARE = "share"


def is_ignored(account: Account, event: Event) -> bool:
    """Legal, counted, and without effect."""
    return binding.is_ignored(account, event) or transfer_rules.is_forgotten(account, event)


def apply_event(
    account: Account, step: OpenStep | None, number: int, event: Event
) -> list[Finding]:
    """`step`: the open one; `number`: the record's."""
    if event.kind == free_rules.FREE:
        return free_rules.apply_free(account, number, event)
    if event.kind in transfer_rules.TRANSFER_EVENTS:
        return transfer_rules.apply_transfer(account, number, event)
    if event.kind in copy_rules.COPY_EVENTS:
        return copy_rules.apply_copy(account, step, number, event)
    if event.kind == moves.REMAP:
        return moves.apply_remap(account, number, event)
    if event.kind in cells.CELL_EVENTS:
        return cells.apply_cells(account, number, event)
    return binding.apply_event(account, number, event)


def is_followed(geometry: Geometry, event: Event) -> bool:
    """judging.md, Moves. False: bindings are lost."""
    if event.kind == moves.REMAP:
        return moves.is_followed(geometry, event)
    if event.kind in cells.CELL_EVENTS:
        return cells.is_followed(geometry, event)
    return event.kind != SHARE
