# SPDX-License-Identifier: Apache-2.0
"""KV lengths (05xx). judging.md, PLAN, Length."""

from __future__ import annotations

from kvguard_oracle.cross import encoder_tokens
from kvguard_oracle.findings import ALL_GROUPS, Finding
from kvguard_oracle.geometry import Group
from kvguard_oracle.passes import CROSS, DRAFT, TARGET
from kvguard_oracle.view import KnownRow, View

SEQ_LEN_MISMATCH = 501
PADDED_SEQ_LEN_NONZERO = 502


def judge_lengths(view: View) -> list[Finding]:
    assert view.plan.seq_lens is not None
    findings = judge_array(view, view.plan.seq_lens, None)
    for group, part in view.parts():
        if part.table is not None and part.table.seq_lens is not None:
            findings += judge_array(view, part.table.seq_lens, group)
    return findings


def expected_length(view: View, row: KnownRow) -> int | None:
    """How long the row's KV is when the pass has run; None: not known."""
    if view.plan.pass_name == CROSS:
        return encoder_tokens(row.request)
    if row.start is None:
        return None
    if view.plan.pass_name == TARGET:
        return row.start + row.scheduled.row.num_tokens
    if row.tokens is None:
        return None
    if view.plan.pass_name == DRAFT and not row.tokens:
        return None
    # micro-batches and draft passes have an end of their own
    length = row.start + len(row.tokens)
    longest = view.account.geometry.max_model_len
    if view.plan.pass_name == DRAFT and longest != 0:
        return min(length, longest)
    return length


def judge_array(view: View, seq_lens: list[int], group: Group | None) -> list[Finding]:
    """`group`: whose own lengths they are; None: the plan's."""
    findings = []
    index_of_group = ALL_GROUPS if group is None else group.index
    for row in view.rows:
        length = expected_length(view, row)
        if length is None:
            continue
        # a sharded group's own lengths count what this rank keeps
        expected = length if group is None else group.local_length(length)
        if seq_lens[row.index] != expected:
            findings.append(view.finding(SEQ_LEN_MISMATCH, row, length, index_of_group))
    for index in range(view.plan.num_rows, min(view.plan.padded_rows, len(seq_lens))):
        if seq_lens[index] != 0:
            findings.append(view.finding(PADDED_SEQ_LEN_NONZERO, group=index_of_group))
    return findings
