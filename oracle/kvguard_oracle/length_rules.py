# SPDX-License-Identifier: Apache-2.0
"""KV lengths (05xx). judging.md, PLAN, Length."""

from __future__ import annotations

from kvguard_oracle.findings import ALL_GROUPS, Finding
from kvguard_oracle.view import View

SEQ_LEN_MISMATCH = 501
PADDED_SEQ_LEN_NONZERO = 502


def judge_lengths(view: View) -> list[Finding]:
    assert view.plan.seq_lens is not None
    findings = judge_array(view, view.plan.seq_lens, ALL_GROUPS)
    for part in view.plan.groups:
        if part.table is not None and part.table.seq_lens is not None:
            findings += judge_array(view, part.table.seq_lens, part.group)
    return findings


def judge_array(view: View, seq_lens: list[int], group: int | None) -> list[Finding]:
    findings = []
    for row in view.rows:
        if row.start is None:
            continue
        expected = row.start + row.scheduled.row.num_tokens
        if seq_lens[row.index] != expected:
            findings.append(view.finding(SEQ_LEN_MISMATCH, row, expected, group))
    for index in range(view.plan.num_rows, min(view.plan.padded_rows, len(seq_lens))):
        if seq_lens[index] != 0:
            findings.append(view.finding(PADDED_SEQ_LEN_NONZERO, group=group))
    return findings
