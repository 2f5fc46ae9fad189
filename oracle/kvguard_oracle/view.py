# SPDX-License-Identifier: Apache-2.0
"""A plan's rows, and what each is known to be. judging.md, PLAN, Rows."""

from __future__ import annotations

from dataclasses import dataclass

from kvguard_oracle.account import Account, OpenStep, Request, ScheduledRequest
from kvguard_oracle.findings import ALL_GROUPS, NO_POSITION, NO_REQUEST, NO_ROW, Finding
from kvguard_oracle.geometry import Group
from kvguard_oracle.passes import judges
from kvguard_oracle.records import GroupPlan, Plan


@dataclass
class KnownRow:
    """A row that is judged: its request is live, scheduled in this step, and has no earlier row."""

    index: int
    request: Request
    scheduled: ScheduledRequest
    # its tokens in the plan's arrays; None where query_start is malformed
    tokens: range | None
    # the position of its first token; None while drafts are open and the plan's was not taken
    start: int | None
    # its request's tokens in earlier micro-batches
    before: int = 0

    @property
    def request_start(self) -> int:
        """s of its request: of a part of the target pass, of the first part."""
        assert self.start is not None
        return self.start - self.before

    def has_tokens(self) -> bool:
        return self.tokens is not None and len(self.tokens) > 0


@dataclass
class View:
    account: Account
    step: OpenStep
    plan: Plan
    rows: list[KnownRow]

    def groups(self) -> list[Group]:
        """Those that this pass judges."""
        return [group for group in self.account.geometry.groups if judges(self.plan, group)]

    def parts(self) -> list[tuple[Group, GroupPlan]]:
        """What the plan shows of the groups that this pass judges, in the plan's order."""
        parts = [(self.account.geometry.groups[part.group], part) for part in self.plan.groups]
        return [(group, part) for group, part in parts if judges(self.plan, group)]

    def finding(
        self,
        code: int,
        row: KnownRow | None = None,
        pos: int = NO_POSITION,
        group: int | None = ALL_GROUPS,
    ) -> Finding:
        return Finding(
            code=code,
            step=self.plan.step,
            group=group,
            request=row.request.key if row else NO_REQUEST,
            pos=pos,
            row=row.index if row else NO_ROW,
            pass_name=self.plan.pass_name,
            stage=self.plan.stage,
        )
