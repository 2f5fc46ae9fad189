# SPDX-License-Identifier: Apache-2.0
"""Planned writes into a neighbour's block (0602). judging.md, PLAN, Slot, foreign writes."""

from __future__ import annotations

from kvguard_oracle.findings import Finding
from kvguard_oracle.geometry import Group
from kvguard_oracle.view import KnownRow, View

FOREIGN_WRITE = 602
MOST_IN_A_ROW = 8


def block_runs(group: Group, tokens: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """(first position, block) of each run of tokens whose slots lie in one block.

    A slot that is nobody's ends a run: out of range, in the null block, or the trash.
    """
    runs = []
    previous: int | None = None
    for position, slot in tokens:
        block = group.block_of_slot(slot) if group.slot_in_range(slot) else None
        if block is not None and (group.pool.is_null(block) or group.pool.is_trash(slot)):
            block = None
        if block is not None and block != previous:
            runs.append((position, block))
        previous = block
    return runs


def judge_foreign_writes(
    view: View, group: Group, row: KnownRow, tokens: list[tuple[int, int]]
) -> list[Finding]:
    """`tokens`: (position, slot) of a row with a wrong slot."""
    findings = []
    key = row.request.key
    for position, block in block_runs(group, tokens):
        if block == view.account.bound_block(key, group, position):
            continue
        if view.account.held_by_another(group.pool, block, key):
            findings.append(view.finding(FOREIGN_WRITE, row, position, group.index))
    return findings[:MOST_IN_A_ROW]
