# SPDX-License-Identifier: Apache-2.0
"""Which records are malformed: what kvguard.h says a record is, and nothing more.

A malformed record moves nothing and is a step gap (kvguard.h, kvguard_record; judging.md,
Verdicts).
"""

from __future__ import annotations

from kvguard_oracle.cells import CELL_EVENTS, MOST_ADDED
from kvguard_oracle.copy_rules import COPY, COPY_DONE, COPY_EVENTS, ZERO_DONE
from kvguard_oracle.errors import MalformedError, UnsupportedError
from kvguard_oracle.events import SHARE
from kvguard_oracle.geometry import STATE, Geometry
from kvguard_oracle.moves import REMAP, is_well_formed
from kvguard_oracle.records import Begin, Event, GroupPlan, Outcome, Plan, Scheduled
from kvguard_oracle.transfer_rules import TRANSFER_EVENTS
from kvguard_oracle.transfers import ANNOUNCING, LOAD

REQUEST_EVENTS = (
    "admit",
    "finish",
    "preempt",
    "rollback",
    "domain",
    "append",
    "replace",
    "truncate",
    SHARE,
    *CELL_EVENTS,
)
# positions and counts beyond it are nonsense; judging.md and kvguard.h name no bound
MOST_TOKENS = 2**40
TABLE_EVENTS = ("append", "replace", "truncate", SHARE, REMAP, *CELL_EVENTS)
# kvguard.h, kvguard_event_kind: these use `group`
GROUP_EVENTS = (*TABLE_EVENTS, "free", *COPY_EVENTS, *ANNOUNCING)
# transfers, what the worker has done, and (kvguard.h, honesty) what is not known
OUTCOME_EVENTS = (*TRANSFER_EVENTS, ZERO_DONE, COPY_DONE, "gap")


def require(holds: bool, sentence: str) -> None:
    if not holds:
        raise MalformedError(sentence)


def check_begin(geometry: Geometry, live: set[int], begin: Begin) -> None:
    for event in begin.events:
        check_event(geometry, event)
        if event.kind == "admit":
            # judging.md, BEGIN: live when the record comes, whatever the record does before
            require(event.request not in live, "the admitted key is live already")
    for row in begin.scheduled:
        check_scheduled(row)


def check_event(geometry: Geometry, event: Event) -> None:
    known_group = event.group is None or 0 <= event.group < len(geometry.groups)
    require(known_group, "the group is not in the geometry")
    if event.kind == "gap":
        require(event.name != "", "a GAP says by name what is not judged")
        return
    if event.kind not in (*REQUEST_EVENTS, *GROUP_EVENTS, *TRANSFER_EVENTS):
        raise UnsupportedError(f"docs/judging.md does not define the event {event.kind}")
    if event.kind in REQUEST_EVENTS:
        require(event.request != 0, "a request's key is not zero")
    if event.kind in GROUP_EVENTS:
        # a row or an id belongs to one group: a list of ids for all of them says nothing
        require(event.group is not None, "the event names its group")
    if event.kind in (COPY, COPY_DONE, REMAP):
        require(len(event.blocks) % 2 == 0, "the blocks are pairs")
    if event.kind in (COPY, COPY_DONE):
        require(event.count >= 0, "count is a number of tokens")
    if event.kind == REMAP:
        assert event.group is not None
        group = geometry.groups[event.group]
        require(is_well_formed(group, event), "nothing moves to two places, or for no reason")
    if event.kind in CELL_EVENTS:
        require(event.first >= 0 and event.count >= 0, "first and count are positions")
        require(abs(event.value) <= MOST_ADDED, "value is added to positions")
    if event.kind == LOAD:
        require(0 <= event.first <= MOST_TOKENS, "first is a position")
        require(0 <= event.count <= MOST_TOKENS, "count is a number of tokens")
    if event.kind == "admit":
        require(0 <= event.first <= MOST_TOKENS, "first is a number of tokens")
        require(0 <= event.count <= MOST_TOKENS, "count is a number of tokens")
    if event.kind == "domain":
        require(event.first >= 0 and event.count >= 0, "first and count are positions")
    if event.kind == "truncate":
        require(event.first >= 0, "first is a number of columns")
    if event.kind == "rollback":
        require(event.count >= 0, "count is a number of tokens")


def check_scheduled(row: Scheduled) -> None:
    require(row.request != 0, "a request's key is not zero")
    require(1 <= row.num_tokens <= MOST_TOKENS, "num_tokens is at least 1")
    require(0 <= row.num_computed <= MOST_TOKENS, "num_computed is a number of tokens")
    require(0 <= row.num_drafts <= row.num_tokens, "the drafts are some of the tokens")


def check_plan(geometry: Geometry, plan: Plan) -> None:
    require(plan.padded_rows >= plan.num_rows, "padded_rows is at least num_rows")
    require(plan.padded_tokens >= plan.num_tokens, "padded_tokens is at least num_tokens")
    require(plan.padded_rows <= geometry.max_rows, "a plan has at most max_rows rows")
    require(plan.padded_tokens <= geometry.max_tokens, "a pass has at most max_tokens tokens")
    require(plan.query_start is not None, "query_start is not optional")
    require(plan.seq_lens is not None, "seq_lens is not optional")
    at_least(plan.query_start, plan.num_rows + 1, "query_start")
    at_least(plan.seq_lens, plan.num_rows, "seq_lens")
    at_least(plan.positions, plan.num_tokens, "positions")
    at_least(plan.num_computed, plan.num_rows, "num_computed")
    seen: set[int] = set()
    for part in plan.groups:
        require(0 <= part.group < len(geometry.groups), "the group is not in the geometry")
        require(part.group not in seen, "a group stands in a plan once")
        seen.add(part.group)
        check_group_plan(geometry, plan, part)


def check_group_plan(geometry: Geometry, plan: Plan, part: GroupPlan) -> None:
    group = geometry.groups[part.group]
    if group.reads_by_list():
        require(part.encoding in (None, group.encoding), "a group's reads have its own encoding")
    elif part.encoding not in (None, "table") and not (group.is_state() and part.encoding == STATE):
        raise UnsupportedError(f"docs/judging.md does not define reads encoded as {part.encoding}")
    at_least(part.slots, plan.num_tokens, "slots")
    # judging.md, Prefill context parallel; a rank's part that is too short is a finding
    even = part.slots is None or len(part.slots) % geometry.pcp_size == 0
    require(even, "the number of slots is divisible by pcp_size")
    if part.states is not None:
        at_least(part.states.starts, plan.num_rows, "in")
        at_least(part.states.ends, plan.num_rows, "out")
        at_least(part.states.init, plan.num_rows, "init")
    if part.lists is not None:
        at_least(part.lists.offsets, plan.num_rows + 1, "the offsets of lists")
        # judging.md, Lists: they may be absent where there is no entry at all
        told = part.lists.offsets is not None or not part.lists.entries
        require(told, "entries have offsets")
        at_least(part.lists.last_page_len, plan.num_rows, "last_page_len")
    if part.table is None:
        return
    require(len(part.table.rows) >= plan.num_rows, "a table has at least num_rows rows")
    at_least(part.table.seq_lens, plan.num_rows, "the group's seq_lens")
    at_least(part.table.row_columns, plan.num_rows, "row_columns")


def at_least(values: list[int] | None, count: int, name: str) -> None:
    """An optional array that is absent is not presented; one that is there is long enough."""
    require(values is None or len(values) >= count, f"{name} is too short")


def check_outcome(geometry: Geometry, outcome: Outcome) -> None:
    for event in outcome.events:
        require(event.kind in OUTCOME_EVENTS, f"a {event.kind} in an OUTCOME")
        check_event(geometry, event)
    for row in outcome.rows:
        require(row.request != 0, "a request's key is not zero")
        require(row.num_rejected >= 0, "num_rejected is a number of drafts")
