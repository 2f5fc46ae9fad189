# SPDX-License-Identifier: Apache-2.0
"""From the engine's tables of two steps to the events between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kvguard import _core
from kvguard.transformers.layout import CacheGroup

Event = dict[str, Any]


@dataclass(slots=True)
class Known:
    """A request as it was told to the core."""

    key: int
    state: Any  # the engine's object: another one under the same name is another incarnation
    rows: list[list[int]] = field(default_factory=list)  # a copy of its row, by group


class Tables:
    """Follows the tables of one processor. Names of requests are the engine's, keys the core's."""

    def __init__(self, groups: list[CacheGroup]) -> None:
        self._groups = groups
        self.known: dict[str, Known] = {}
        self._next_key = 1

    def changes(self, active: dict[str, Any], waiting: Any) -> list[Event]:
        """The events of known requests since the last call, in an order in which they apply.

        Args:
            active: the engine's live requests by name.
            waiting: names of the requests that wait to be scheduled.
        """
        events: list[Event] = []
        first = self._groups[0].tables
        for name, known in list(self.known.items()):
            if name not in first or active.get(name, known.state) is not known.state:
                kind = "preempt" if name in waiting or name in active else "finish"
                events.append({"kind": kind, "request": known.key})
                del self.known[name]
        appends: list[Event] = []
        for index, group in enumerate(self._groups):
            self._swapped(index, group, events)
            for name, row in group.tables.items():
                known = self.known.get(name)
                if known is not None and row != known.rows[index]:
                    event = self._changed(index, group, known, row)
                    (appends if event["kind"] == "append" else events).append(event)
        return events + appends  # what others gave back may be in them

    def admissions(self, active: dict[str, Any], starts: dict[str, int]) -> list[Event]:
        """The events of requests that were not known; they come behind the changes.

        Args:
            active: the engine's live requests by name.
            starts: of the requests of this step, how many tokens they had before it.
        """
        events: list[Event] = []
        for name in self._groups[0].tables:
            if name not in self.known:
                self._admit(name, active.get(name), starts, events)
        return events

    def _swapped(self, index: int, group: CacheGroup, events: list[Event]) -> None:
        """Columns that name another block than they did: a duplicate was given up for the block
        that held the same."""
        if not group.shares:
            return
        pairs: dict[int, int] = {}
        places: list[tuple[list[int], int]] = []
        for name, row in group.tables.items():
            known = self.known.get(name)
            if known is None or row == known.rows[index]:
                continue
            for column, (old, new) in enumerate(zip(known.rows[index], row, strict=False)):
                if old != new:
                    pairs[old] = new
                    places.append((known.rows[index], column))
        if not pairs:
            return
        # The event moves a block in every row: one that still stands in another has not moved.
        for name, row in group.tables.items():
            known = self.known.get(name)
            if known is not None:
                for old, new in zip(known.rows[index], row, strict=False):
                    if old == new:
                        pairs.pop(old, None)
        for row, column in places:
            row[column] = pairs.get(row[column], row[column])
        if pairs:
            base = group.first_block
            blocks = [block - base for pair in pairs.items() for block in pair]
            events.append(
                {"kind": "remap", "group": index, "value": _core.REMAP_DEDUPE, "blocks": blocks}
            )

    @staticmethod
    def _changed(index: int, group: CacheGroup, known: Known, row: list[int]) -> Event:
        was, base = known.rows[index], group.first_block
        event: Event = {"kind": "append", "request": known.key, "group": index}
        if row[: len(was)] == was:
            blocks = row[len(was) :]
        elif row == was[: len(row)]:
            event |= {"kind": "truncate", "first": len(row)}
            blocks = []
        else:
            event["kind"] = "replace"
            blocks = row
        if base:
            blocks = [block - base for block in blocks]
        known.rows[index] = row[:]
        return event | {"blocks": blocks}

    def _admit(self, name: str, state: Any, starts: dict[str, int], events: list[Event]) -> None:
        known = Known(self._next_key, state)
        self._next_key += 1
        self.known[name] = known
        event: Event = {"kind": "admit", "request": known.key, "name": name}
        if state is not None:
            tokens = state.initial_tokens + state.generated_tokens
            first = starts.get(name, state.position_offset)
            event |= {"first": first, "count": max(len(tokens), first), "tokens": tokens}
        events.append(event)
        for index, group in enumerate(self._groups):
            row = group.tables.get(name, [])
            known.rows.append(row[:])
            if row:
                blocks = [block - group.first_block for block in row]
                events.append(
                    {"kind": "append", "request": known.key, "group": index, "blocks": blocks}
                )
