# SPDX-License-Identifier: Apache-2.0
"""Block tables against the bound rows (03xx). judging.md, PLAN, Table."""

from __future__ import annotations

from kvguard_oracle.findings import Finding
from kvguard_oracle.geometry import Group
from kvguard_oracle.records import Table
from kvguard_oracle.view import KnownRow, View

TABLE_MISMATCH = 301
TABLE_NULL = 302
TABLE_OUT_OF_RANGE = 303
TABLE_COLUMNS_MISMATCH = 304
PADDED_ROW_NOT_NULL = 305

LARGEST_I32 = 2**31 - 1


def expected_entries(group: Group, row: KnownRow) -> list[int]:
    """The bound row in table units: block b shows as b * m .. b * m + m - 1."""
    m = group.entries_per_block()
    expected = []
    for entry in row.request.rows[group.index]:
        for j in range(m):
            value = entry.block * m + j
            out_of_pool = not group.pool.in_range(entry.block)
            if out_of_pool and not 0 <= value <= LARGEST_I32:
                value = -1
            expected.append(value)
    return expected


def is_null_entry(group: Group, value: int) -> bool:
    if not group.pool.has_null_block():
        return False
    return value // group.entries_per_block() == group.pool.null_block


def classify(group: Group, value: int) -> int:
    """In which way a wrong entry is wrong."""
    if value < 0 or value >= group.pool.num_blocks * group.entries_per_block():
        return TABLE_OUT_OF_RANGE
    if is_null_entry(group, value):
        return TABLE_NULL
    return TABLE_MISMATCH


def judge_tables(view: View) -> list[Finding]:
    findings: list[Finding] = []
    for part in view.plan.groups:
        if part.table is None:
            continue
        group = view.account.geometry.groups[part.group]
        for row in view.rows:
            findings += judge_table_row(view, group, part.table, row)
        if group.pad_rows_null():
            findings += judge_padded_rows(view, group, part.table)
    return findings


def judge_table_row(view: View, group: Group, table: Table, row: KnownRow) -> list[Finding]:
    expected = expected_entries(group, row)
    bound = len(expected)
    told = table.row_columns[row.index] if table.row_columns is not None else None
    compared = min(bound, table.columns)
    if told is not None:
        compared = min(compared, max(told, 0))
    first: dict[int, int] = {}
    for column in range(compared):
        value = table.entry(row.index, column)
        if value != expected[column]:
            first.setdefault(classify(group, value), column)
    findings = [view.finding(code, row, column, group.index) for code, column in first.items()]
    live = told if told is not None else min(bound, table.columns)
    if live != bound:
        findings.append(view.finding(TABLE_COLUMNS_MISMATCH, row, compared, group.index))
    return findings


def judge_padded_rows(view: View, group: Group, table: Table) -> list[Finding]:
    findings = []
    for index in range(view.plan.num_rows, min(view.plan.padded_rows, len(table.rows))):
        for column in range(table.columns):
            if not is_null_entry(group, table.entry(index, column)):
                findings.append(view.finding(PADDED_ROW_NOT_NULL, None, column, group.index))
                break
    return findings
