# SPDX-License-Identifier: Apache-2.0
"""One thing said wrong, once, in a healthy stream of schedule.py: the guard is to find it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

EARLIEST = 500  # step: caches and queues are full by then


class Fault:
    """Waits for a step in which it can be planted."""

    def __init__(self, alone: Any) -> None:
        self.alone = alone
        self.step = 0  # where it was planted; 0: not yet
        self.request = 0  # the key of its request

    def in_output(self, output: Any) -> None:
        """Before the walker reads it."""

    def in_outcome(self, told: Any) -> None:
        """Before the guard is told."""

    def plant(self, step: int, name: str) -> None:
        self.step, self.request = step, self.alone.stream.key_of(name)

    def is_due(self) -> bool:
        return self.step == 0 and self.alone.stream.step >= EARLIEST


class Outcome(Fault):
    """One request's rejected drafts are told off by one."""

    by = 0
    late = False  # told while a later step is open or has ended

    def in_outcome(self, told: Any) -> None:
        running = self.alone.scheduler.running
        is_late = told.step < self.alone.stream.step
        if not self.is_due() or is_late != self.late or not running:
            return
        request = running[0]  # the last one to be preempted
        key = self.alone.stream.key_of(request.request_id)
        goes_on = request.max_tokens - request.num_output_tokens > 24
        if key not in told.keys or not goes_on:
            return
        i = told.keys.index(key)
        result = told.results[i]
        rejected = result.rejected + self.by
        if result.drafts == 0 or not 0 <= rejected <= result.drafts:
            return
        self.plant(told.step, result.name)
        told.results[i] = replace(result, rejected=rejected, sampled=result.sampled - self.by)


class RejectedMore(Outcome):
    by = 1


class RejectedLess(Outcome):
    by = -1


class RejectedMoreLate(RejectedMore):
    late = True


class RejectedLessLate(RejectedLess):
    late = True


class Binding(Fault):
    """One new block of a running request is said wrong."""

    def in_output(self, output: Any) -> None:
        if not self.is_due():
            return
        cached = output.scheduled_cached_reqs
        for i, name in enumerate(cached.req_ids):
            groups = cached.new_block_ids[i]
            if not groups or not groups[0]:
                continue
            ids = self.other(name, list(groups[0]))
            if ids is None:
                continue
            cached.new_block_ids[i] = (ids, *groups[1:])
            self.plant(self.alone.stream.step + 1, name)
            return

    def other(self, name: str, ids: list[int]) -> list[int] | None:
        """What is said instead of the first group's new blocks."""
        raise NotImplementedError


class BlockTwice(Binding):
    """The block that another request writes next."""

    def other(self, name: str, ids: list[int]) -> list[int] | None:
        for live, row in self.alone.runner.rows.items():
            if live != name and len(row.blocks[0]) * 16 > row.computed:
                return [row.blocks[0][-1], *ids[1:]]
        return None


class BlockMissing(Binding):
    def other(self, name: str, ids: list[int]) -> list[int] | None:
        return ids[:-1]


class NotTakenBack(Fault):
    """A load failed, the scheduler counts back, the runner does not: vLLM's issue 49250."""

    def in_output(self, output: Any) -> None:
        # The stand-in has followed this output already: what it took back is put on again.
        if not self.is_due() or not self.alone.runner.taken_back:
            return
        name, before = self.alone.runner.taken_back[0]
        self.alone.runner.rows[name].computed = before
        self.alone.runner.deaf.add(name)
        self.plant(self.alone.stream.step + 1, name)


FAULTS: dict[str, type[Fault]] = {
    "rejected-more": RejectedMore,
    "rejected-less": RejectedLess,
    "rejected-more-late": RejectedMoreLate,
    "rejected-less-late": RejectedLessLate,
    "block-twice": BlockTwice,
    "block-missing": BlockMissing,
    "not-taken-back": NotTakenBack,
}
