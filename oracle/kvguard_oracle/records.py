# SPDX-License-Identifier: Apache-2.0
"""Reads the JSON lines of `kvguard trace dump --jsonl`.

Only the form is checked here (is it a number, is it a list). What a record must obey beyond that is
in validate.py: a well-formed line may hold a malformed record.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kvguard_oracle.errors import UnreadableError

Line = dict[str, Any]

RECORD_KINDS = ("begin", "plan", "outcome", "end", "reset")


@dataclass
class Event:
    kind: str
    request: int
    # None: KVGUARD_ALL_GROUPS
    group: int | None
    flags: int
    first: int
    count: int
    other: int
    value: int
    blocks: list[int]
    # ids, or [] where they are absent
    tokens: list[int]
    name: str


@dataclass
class Scheduled:
    request: int
    num_tokens: int
    num_computed: int
    num_drafts: int


@dataclass
class Begin:
    step: int
    events: list[Event]
    scheduled: list[Scheduled]


@dataclass
class Table:
    columns: int
    # as printed: a row ends behind its last entry that is not zero
    rows: list[list[int]]
    seq_lens: list[int] | None
    row_columns: list[int] | None

    def entry(self, row: int, column: int) -> int:
        """The entry as the engine had it: zeros are not printed at a row's end."""
        printed = self.rows[row]
        return printed[column] if column < len(printed) else 0


@dataclass
class States:
    """Per row, where it starts from, where it leaves its state, and whether it starts anew."""

    starts: list[int] | None
    ends: list[int] | None
    init: list[int] | None

    def presented(self) -> bool:
        return any(part is not None for part in (self.starts, self.ends, self.init))


@dataclass
class ReadList:
    """CSR or FLAT: row b reads entries[offsets[b]] .. entries[offsets[b + 1] - 1]."""

    # FLAT, and what stands for "the token written now"; None: CSR
    sentinel: int | None
    offsets: list[int] | None
    entries: list[int] | None
    last_page_len: list[int] | None = None

    def is_flat(self) -> bool:
        return self.sentinel is not None

    def presented(self) -> bool:
        """judging.md, Lists: the offsets are, or FLAT's entries are, were there none of them."""
        return self.offsets is not None or (self.is_flat() and self.entries is not None)

    def of_row(self, row: int) -> list[int] | None:
        """None: its offsets are no list's."""
        if self.offsets is None:
            return []
        entries = self.entries or []
        first, end = self.offsets[row], self.offsets[row + 1]
        return entries[first:end] if 0 <= first <= end <= len(entries) else None


@dataclass
class GroupPlan:
    group: int
    # None: reads are not presented
    encoding: str | None
    slots: list[int] | None
    table: Table | None
    states: States | None
    # of encoding CSR or FLAT
    lists: ReadList | None


@dataclass
class Plan:
    step: int
    pass_name: str
    pass_index: int
    stage: str
    num_rows: int
    padded_rows: int
    num_tokens: int
    padded_tokens: int
    requests: list[int]
    query_start: list[int] | None
    seq_lens: list[int] | None
    positions: list[int] | None
    num_computed: list[int] | None
    groups: list[GroupPlan]


@dataclass
class OutcomeRow:
    request: int
    num_sampled: int
    num_rejected: int
    # sampled ids, or [] where they are not known
    tokens: list[int]


@dataclass
class Outcome:
    step: int
    rows: list[OutcomeRow]
    events: list[Event] = field(default_factory=list)


@dataclass
class End:
    step: int
    flags: int


@dataclass
class Reset:
    step: int
    reason: str


@dataclass
class Refused:
    """A record that was malformed when it was recorded: a trace keeps its kind and step alone."""

    step: int
    kind: str


@dataclass
class Footer:
    lost_steps: int
    lost_records: int
    reason: str


Record = Begin | Plan | Outcome | End | Reset | Refused | Footer


def number(line: Line, name: str) -> int:
    value = line.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise UnreadableError(f"{name!r} is {value!r}, not a whole number")
    return value


def text(line: Line, name: str) -> str:
    value = line.get(name)
    if not isinstance(value, str):
        raise UnreadableError(f"{name!r} is {value!r}, not a text")
    return value


def listed(line: Line, name: str) -> list[Any]:
    value = line.get(name)
    if not isinstance(value, list):
        raise UnreadableError(f"{name!r} is not a list")
    return value


def objects(line: Line, name: str) -> list[Line]:
    values = listed(line, name)
    if not all(isinstance(value, dict) for value in values):
        raise UnreadableError(f"{name!r} is not a list of objects")
    return values


def numbers(line: Line, name: str) -> list[int]:
    values = listed(line, name)
    if not all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        raise UnreadableError(f"{name!r} holds something that is not a whole number")
    return values


def group_or_all(line: Line) -> int | None:
    return None if line.get("group") is None else number(line, "group")


def array(line: Line, name: str) -> list[int] | None:
    """A kvguard_array; None where it is not presented."""
    view = line.get(name)
    if view is None:
        return None
    if not isinstance(view, dict):
        raise UnreadableError(f"{name!r} is not an array view")
    return numbers(view, "values")


def tokens(line: Line) -> list[int]:
    """Ids; [] where they are absent."""
    return [] if line.get("tokens") is None else numbers(line, "tokens")


def read_event(line: Line) -> Event:
    return Event(
        kind=text(line, "kind"),
        request=number(line, "request"),
        group=group_or_all(line),
        flags=number(line, "flags"),
        first=number(line, "first"),
        count=number(line, "count"),
        other=number(line, "other"),
        value=number(line, "value"),
        blocks=numbers(line, "blocks"),
        tokens=tokens(line),
        name=text(line, "name"),
    )


def read_scheduled(line: Line) -> Scheduled:
    return Scheduled(
        request=number(line, "request"),
        num_tokens=number(line, "num_tokens"),
        num_computed=number(line, "num_computed"),
        num_drafts=number(line, "num_drafts"),
    )


def read_table(reads: Line | None) -> Table | None:
    if reads is None:
        return None
    view = reads.get("table")
    if view is None:
        return None
    rows = listed(view, "rows")
    return Table(
        columns=number(view, "columns"),
        rows=[numbers({"table row": row}, "table row") for row in rows],
        seq_lens=array(reads, "seq_lens"),
        row_columns=array(reads, "row_columns"),
    )


def read_states(reads: Any) -> States:
    if not isinstance(reads, dict):
        raise UnreadableError("'reads' is not an object")
    return States(array(reads, "in"), array(reads, "out"), array(reads, "init"))


def read_list(encoding: str, reads: Any) -> ReadList:
    if not isinstance(reads, dict):
        raise UnreadableError("'reads' is not an object")
    if encoding == "csr":
        offsets, entries = array(reads, "indptr"), array(reads, "indices")
        return ReadList(None, offsets, entries, array(reads, "last_page_len"))
    return ReadList(number(reads, "sentinel"), array(reads, "starts"), array(reads, "slots"))


def read_group_plan(line: Line) -> GroupPlan:
    encoding = line.get("encoding")
    if encoding is not None and not isinstance(encoding, str):
        raise UnreadableError(f"'encoding' is {encoding!r}")
    is_state, is_list = encoding == "state", encoding in ("csr", "flat")
    reads = line.get("reads")
    return GroupPlan(
        group=number(line, "group"),
        encoding=encoding,
        slots=array(line, "slots"),
        table=None if is_state or is_list else read_table(reads),
        states=read_states(reads) if is_state else None,
        lists=read_list(encoding, reads) if encoding is not None and is_list else None,
    )


def read_plan(line: Line) -> Plan:
    plan = Plan(
        step=number(line, "step"),
        pass_name=text(line, "pass"),
        pass_index=number(line, "pass_index"),
        stage=text(line, "stage"),
        num_rows=number(line, "num_rows"),
        padded_rows=number(line, "padded_rows"),
        num_tokens=number(line, "num_tokens"),
        padded_tokens=number(line, "padded_tokens"),
        requests=numbers(line, "requests"),
        query_start=array(line, "query_start"),
        seq_lens=array(line, "seq_lens"),
        positions=array(line, "positions"),
        num_computed=array(line, "num_computed"),
        groups=[read_group_plan(group) for group in objects(line, "groups")],
    )
    if len(plan.requests) != plan.num_rows:
        raise UnreadableError("'requests' does not have 'num_rows' keys")
    return plan


def read_outcome(line: Line) -> Outcome:
    rows = [
        OutcomeRow(
            request=number(row, "request"),
            num_sampled=number(row, "num_sampled"),
            num_rejected=number(row, "num_rejected"),
            tokens=tokens(row),
        )
        for row in objects(line, "rows")
    ]
    events = [read_event(event) for event in objects(line, "events")]
    return Outcome(number(line, "step"), rows, events)


def read_record(line: Line) -> Record:
    kind = text(line, "record")
    if line.get("refused") is True and kind in RECORD_KINDS:
        return Refused(number(line, "step"), kind)
    if kind == "begin":
        events = [read_event(event) for event in objects(line, "events")]
        scheduled = [read_scheduled(row) for row in objects(line, "scheduled")]
        return Begin(number(line, "step"), events, scheduled)
    if kind == "plan":
        return read_plan(line)
    if kind == "outcome":
        return read_outcome(line)
    if kind == "end":
        return End(number(line, "step"), number(line, "flags"))
    if kind == "reset":
        return Reset(number(line, "step"), text(line, "reason"))
    if kind == "footer":
        return Footer(
            number(line, "lost_steps"), number(line, "lost_records"), text(line, "reason")
        )
    raise UnreadableError(f"a record of the unknown kind {kind!r}")


def read_lines(lines: Iterable[str]) -> Iterator[Line]:
    """Each line as an object, blank ones skipped."""
    for index, raw in enumerate(lines, start=1):
        if not raw.strip():
            continue
        try:
            line = json.loads(raw)
        except ValueError as error:
            raise UnreadableError(f"line {index} is not JSON: {error}") from error
        if not isinstance(line, dict):
            raise UnreadableError(f"line {index} is not an object")
        yield line
