# SPDX-License-Identifier: Apache-2.0
"""KV lengths (05xx). judging.md, PLAN, Length."""

from __future__ import annotations

from kvguard_oracle.findings import ALL_GROUPS, Finding
from kvguard_oracle.geometry import Group
from kvguard_oracle.view import View

SEQ_LEN_MISMATCH = 501
PADDED_SEQ_LEN_NONZERO = 502


def judge_lengths(view: View) -> list[Finding]:
    assert view.plan.seq_lens is not None
    findings = judge_array(view, view.plan.seq_lens, None)
    for part in view.plan.groups:
        if part.table is not None and part.table.seq_lens is not None:
            group = view.account.geometry.groups[part.group]
            findings += judge_array(view, part.table.seq_lens, group)
    return findings


def judge_array(view: View, seq_lens: list[int], group: Group | None) -> list[Finding]:
    """`group`: whose own lengths they are; None: the plan's."""
    findings = []
    index_of_group = ALL_GROUPS if group is None else group.index
    for row in view.rows:
        if row.start is None:
            continue
        length = row.start + row.scheduled.row.num_tokens
        # a sharded group's own lengths count what this rank keeps
        expected = length if group is None else group.local_length(length)
        if seq_lens[row.index] != expected:
            findings.append(view.finding(SEQ_LEN_MISMATCH, row, length, index_of_group))
    for index in range(view.plan.num_rows, min(view.plan.padded_rows, len(seq_lens))):
        if seq_lens[index] != 0:
            findings.append(view.finding(PADDED_SEQ_LEN_NONZERO, group=index_of_group))
    return findings
