# SPDX-License-Identifier: Apache-2.0
"""A stream that is told more than the adapter knows: tokens, transfers, copies of states.

It has the methods of _core.vllm.Stream that schedule.py uses, and feeds what the same walker makes
of each output, with more events around it.
"""

from __future__ import annotations

from typing import Any

from kvguard import _core

Event = dict[str, Any]


class Teller:
    """One runner's records into one guard."""

    def __init__(self, guard: Any, num_groups: int) -> None:
        self.step = 0
        self.before: list[Event] = []  # of the next BEGIN, in front of what is walked
        self.behind: list[Event] = []  # of the next BEGIN, behind it; "name" becomes its request
        self._guard = guard
        self._walker = _core.vllm.Walker(num_groups)

    def key_of(self, name: str) -> int:
        return self._walker.key_of(name)

    def begin(self, output: Any) -> None:
        walked = self._walker.walk_to_dict(output)
        tokens = {
            self.key_of(new.req_id): new.prefill_token_ids for new in output.scheduled_new_reqs
        }
        for event in walked["events"]:
            if event["kind"] == "admit":
                event["tokens"] = tokens[event["request"]]
        for event in self.behind:
            name = event.pop("name", "")
            event["request"] = self.key_of(name) if name else 0
        self.step += 1
        events = [*self.before, *walked["events"], *self.behind]
        self.before, self.behind = [], []
        self._guard.begin(self.step, events, walked["scheduled"])

    def tell(self, events: list[Event]) -> None:
        """In the open step."""
        self._guard.outcome(self.step, [], events)

    def plan(
        self,
        stage: int,
        names: list[str],
        padded_rows: int,
        num_tokens: int,
        padded_tokens: int,
        query_start: Any,
        seq_lens: Any,
        positions: Any,
        groups: Any,
    ) -> None:
        plan = {
            "stage": stage,
            "requests": [self.key_of(name) for name in names],
            "padded_rows": padded_rows,
            "num_tokens": num_tokens,
            "padded_tokens": padded_tokens,
            "query_start": query_start,
            "seq_lens": seq_lens,
            "positions": positions,
            "groups": groups,
        }
        self._guard.plan(self.step, plan)

    def end(self, flags: int) -> None:
        self._guard.end(self.step, flags)
