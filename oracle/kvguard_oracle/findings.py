# SPDX-License-Identifier: Apache-2.0
"""What a finding is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

PROOF = "proof"
SUSPICION = "suspicion"

# "Position" is the finding's `pos`; "none" is -1 (judging.md, first paragraph).
NO_POSITION = -1
NO_ROW = -1
NO_REQUEST = 0
ALL_GROUPS = None


@dataclass(frozen=True)
class Finding:
    code: int
    step: int
    group: int | None = ALL_GROUPS
    request: int = NO_REQUEST
    pos: int = NO_POSITION
    row: int = NO_ROW
    grade: str = PROOF
    # None for findings of BEGIN, OUTCOME and END
    pass_name: str | None = None
    stage: str | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "grade": self.grade,
            "step": self.step,
            "group": self.group,
            "request": self.request,
            "pos": self.pos,
            "row": self.row,
            "pass": self.pass_name,
            "stage": self.stage,
        }
