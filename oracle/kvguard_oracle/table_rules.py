# SPDX-License-Identifier: Apache-2.0
"""Block tables against the bound rows (03xx). judging.md, PLAN, Table."""

from __future__ import annotations

from kvguard_oracle.findings import Finding
from kvguard_oracle.geometry import BOUND_AS_NOTHING, Group, fits
from kvguard_oracle.micro_batches import begins_its_request, ends_its_request
from kvguard_oracle.records import Table
from kvguard_oracle.states import place, written_columns_of
from kvguard_oracle.view import KnownRow, View
from kvguard_oracle.windows import is_needed

TABLE_MISMATCH = 301
TABLE_NULL = 302
TABLE_OUT_OF_RANGE = 303
TABLE_COLUMNS_MISMATCH = 304
PADDED_ROW_NOT_NULL = 305


def expected_entries(group: Group, row: KnownRow) -> list[int]:
    """The bound row in table units: block b shows as b * m .. b * m + m - 1."""
    m = group.entries_per_block()
    expected = []
    for entry in row.request.rows[group.index]:
        for j in range(m):
            expected.append(entry.block * m + j if fits(group, entry.block) else BOUND_AS_NOTHING)
    return expected


def compared_entries(view: View, group: Group, row: KnownRow, count: int) -> list[int]:
    """Of the first `count` entries, those that are compared (judging.md, Windows, Table)."""
    if group.is_state():
        return [column for column in range(count) if is_compared_state(view, group, row, column)]
    at = row.scheduled.start_high + row.before if row.start is None else row.start
    m = group.entries_per_block()
    return [entry for entry in range(count) if is_needed(group, entry // m, at)]


def is_compared_state(view: View, group: Group, row: KnownRow, column: int) -> bool:
    """judging.md, States, Table: the place of the start and the written columns.

    Tables come before the starts that are taken: one that is taken is not known here.
    """
    if row.start is None:
        return False
    start = row.request_start
    written = written_columns_of(group, row.scheduled.row, start)
    if column in written and ends_its_request(view.plan, row):
        return True
    return column == place(row.request, group, start) and begins_its_request(view.plan, row)


def is_null_entry(group: Group, value: int) -> bool:
    if not group.pool.has_null_block():
        # the null entry of a pool without a null block
        return value == -1
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
    for group, part in view.parts():
        if part.table is None:
            continue
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
    for column in compared_entries(view, group, row, compared):
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
