# SPDX-License-Identifier: Apache-2.0
"""What an engine says it has given back (0702, 0703). judging.md, Frees."""

from __future__ import annotations

from kvguard_oracle.account import Account
from kvguard_oracle.binding import out_of_pool
from kvguard_oracle.findings import Finding
from kvguard_oracle.geometry import Group
from kvguard_oracle.records import Event
from kvguard_oracle.windows import end_passed_claims

FREED_WHILE_HELD = 702
FREED_TWICE = 703

FREE = "free"


def apply_free(account: Account, step: int, event: Event) -> list[Finding]:
    assert event.group is not None
    group = account.geometry.groups[event.group]
    findings = out_of_pool(step, group, event)
    for block in event.blocks:
        if group.pool.in_range(block) and not group.pool.is_null(block):
            findings += free_block(account, step, group, block)
    return findings


def free_block(account: Account, step: int, group: Group, block: int) -> list[Finding]:
    end_passed_claims(account, group.pool, block, step)
    findings = []
    holder = account.smallest_holder(group.pool, block)
    if holder is not None:
        key, column = holder
        findings.append(Finding(FREED_WHILE_HELD, step, group.index, key, column))
    if (group.pool.index, block) in account.freed:
        findings.append(Finding(FREED_TWICE, step, group.index))
    account.freed.add((group.pool.index, block))
    return findings
