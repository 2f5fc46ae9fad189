# SPDX-License-Identifier: Apache-2.0
"""The passes of a step, and which groups each judges. judging.md, Other passes; no rule."""

from __future__ import annotations

from kvguard_oracle.geometry import Group
from kvguard_oracle.records import Plan

TARGET = "target"
DRAFT = "draft"
MICRO_BATCH = "micro-batch"
CROSS = "cross"
DUMMY = "dummy"
# a graph replay is not defined
PASSES = (TARGET, DRAFT, MICRO_BATCH, CROSS, DUMMY)
# judging.md, Prefill context parallel
PREFILL_PARALLEL_PASSES = (TARGET, DUMMY)


def judges(plan: Plan, group: Group) -> bool:
    """What a plan shows of other groups is not looked at."""
    if group.pool.is_host():
        return False
    if group.is_cross() or plan.pass_name == CROSS:
        return group.is_cross() and plan.pass_name == CROSS
    if group.is_ring() and plan.pass_name == MICRO_BATCH:
        return False
    return not ((group.is_state() or group.is_ring()) and plan.pass_name == DRAFT)


def says_what_was_shown(plan: Plan, group: Group) -> bool:
    """A draft pass says of no group that it was shown, a CROSS pass of CROSS groups alone.

    Parts of the target say nothing of rings.
    """
    if group.is_ring() and plan.pass_name == MICRO_BATCH:
        return False
    return plan.pass_name != DRAFT and group.is_cross() == (plan.pass_name == CROSS)


def reads_as_the_target(plan: Plan) -> bool:
    """Lifetime, transfers, zeroing and copies are judged."""
    return plan.pass_name in (TARGET, MICRO_BATCH)
