# SPDX-License-Identifier: Apache-2.0
"""Where draft passes stand. judging.md, Other passes, Draft passes; no rule."""

from __future__ import annotations

from kvguard_oracle.account import ScheduledRequest
from kvguard_oracle.geometry import Geometry
from kvguard_oracle.passes import DRAFT
from kvguard_oracle.records import Plan


def is_behind_the_target(plan: Plan) -> bool:
    """A draft pass of its own tokens: pass 0 has the target's."""
    return plan.pass_name == DRAFT and plan.pass_index > 0


def valid_after_target(scheduled: ScheduledRequest) -> tuple[int, int]:
    """[F_low, F_high]: how many tokens are valid after the target pass."""
    tokens, drafts = scheduled.row.num_tokens, scheduled.row.num_drafts
    if scheduled.rejected is not None and scheduled.start_known():
        valid = scheduled.start_low + tokens - scheduled.rejected
        return valid, valid
    return scheduled.start_low + tokens - drafts, scheduled.start_high + tokens


def start_bounds(geometry: Geometry, scheduled: ScheduledRequest, index: int) -> tuple[int, int]:
    """Of draft pass `index`, greater than 0; the model's last position is not passed."""
    lowest, highest = (valid + index - 1 for valid in valid_after_target(scheduled))
    if geometry.max_model_len != 0:
        last = geometry.max_model_len - 1
        return min(lowest, last), min(highest, last)
    return lowest, highest
