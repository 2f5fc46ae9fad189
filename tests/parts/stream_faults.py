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
        self.name = ""  # of its request
        self.request = 0  # the key of it

    def in_output(self, output: Any) -> None:
        """Before the walker reads it."""

    def in_outcome(self, told: Any) -> None:
        """Before the guard is told."""

    def plant(self, step: int, name: str) -> None:
        self.step, self.name = step, name
        self.settle()

    def settle(self) -> None:
        """An admission has no key before its step has begun."""
        if self.step == self.alone.stream.step and not self.request:
            self.request = self.alone.stream.key_of(self.name)

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
        self.request = key
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

    group = 0

    def in_output(self, output: Any) -> None:
        if not self.is_due():
            return
        cached = output.scheduled_cached_reqs
        for i, name in enumerate(cached.req_ids):
            groups = cached.new_block_ids[i]
            if not groups or not groups[self.group]:
                continue
            ids = self.other(name, list(groups[self.group]))
            if ids is None:
                continue
            said = list(groups)
            said[self.group] = ids
            cached.new_block_ids[i] = tuple(said)
            self.plant(self.alone.stream.step + 1, name)
            return

    def other(self, name: str, ids: list[int]) -> list[int] | None:
        """What is said instead of the group's new blocks."""
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


class StateTwice(Binding):
    """The block that holds the running state of another request."""

    group = 1

    def other(self, name: str, ids: list[int]) -> list[int] | None:
        states = self.alone.runner.states[0]
        for live, row in self.alone.runner.rows.items():
            block = row.blocks[self.group][states.running(live).column]
            if live != name and row.computed and block:
                return [*ids[:-1], block]
        return None


class StateNull(Binding):
    """The column of the state that the step leaves. (No speculative ones: it is the last.)"""

    group = 1

    def other(self, name: str, ids: list[int]) -> list[int] | None:
        return [*ids[:-1], 0] if ids[-1] else None


class HitElsewhere(Fault):
    """A request is admitted to a state of another boundary."""

    def in_output(self, output: Any) -> None:
        states = self.alone.runner.states[0]
        for new in output.scheduled_new_reqs if self.is_due() else ():
            hit = len(new.block_ids[1]) - 1
            while hit >= 0 and (hit + 1) * 16 != new.num_computed_tokens:
                hit -= 1
            for live, row in self.alone.runner.rows.items():
                column = states.running(live).column
                block = row.blocks[1][max(column, 0)]
                if hit < 0 or live == new.req_id or not row.computed or column == hit or not block:
                    continue
                ids = [*new.block_ids[1]]
                ids[hit] = block
                new.block_ids = (new.block_ids[0], ids)
                self.plant(self.alone.stream.step + 1, new.req_id)
                return


class HitOther(Fault):
    """A request is admitted to a block of the same column that holds other tokens."""

    filled = True

    def in_output(self, output: Any) -> None:
        for new in output.scheduled_new_reqs if self.is_due() else ():
            for column in range(new.num_computed_tokens // 16):
                block = self.other(new, column)
                if block is not None:
                    ids = [*new.block_ids[0]]
                    ids[column] = block
                    new.block_ids = (ids, *new.block_ids[1:])
                    self.plant(self.alone.stream.step + 1, new.req_id)
                    return

    def other(self, new: Any, column: int) -> int | None:
        end = (column + 1) * 16
        for live, row in self.alone.runner.rows.items():
            if live == new.req_id or len(row.blocks[0]) <= column:
                continue
            tokens = self.alone.scheduler.requests[live].all_token_ids[:end]
            is_filled = row.computed >= end
            is_other = list(tokens) != list(new.prefill_token_ids[:end])
            if is_filled == self.filled and is_other and (is_filled or row.computed <= end - 8):
                return row.blocks[0][column]
        return None


class HitUnwritten(HitOther):
    """A request is admitted to a block that another one has begun to fill."""

    filled = False


class States(Fault):
    """What a runner reads or leaves of one request's states is wrong, from one step on."""

    moves = False  # in a step that goes on in another column
    least_drafts = 0

    def in_output(self, output: Any) -> None:
        if not self.is_due() or self.alone.untold:
            return
        for name, length in output.num_scheduled_tokens.items():
            states = self.alone.runner.states[0]
            running = states.running(name)
            end = states.column_of(self.alone.runner.rows[name].computed + length)
            drafts = len(output.scheduled_spec_decode_tokens.get(name, ()))
            moves = states.mode == "align" and end != running.column
            if running.accepted > 1 and moves == self.moves and drafts >= self.least_drafts:
                self.change(states, name)
                self.plant(self.alone.stream.step + 1, name)
                return

    def change(self, states: Any, name: str) -> None:
        raise NotImplementedError


class AcceptedIgnored(States):
    def change(self, states: Any, name: str) -> None:
        states.deaf.add(name)


class AcceptedNotCopied(AcceptedIgnored):
    """What is copied is the state before the accepted drafts."""

    moves = True


class DraftsNotStored(States):
    """The step leaves its last state where the one before its drafts belongs."""

    least_drafts = 1

    def change(self, states: Any, name: str) -> None:
        states.short.add(name)


FAULTS: dict[str, type[Fault]] = {
    "rejected-more": RejectedMore,
    "rejected-less": RejectedLess,
    "rejected-more-late": RejectedMoreLate,
    "rejected-less-late": RejectedLessLate,
    "block-twice": BlockTwice,
    "block-missing": BlockMissing,
    "not-taken-back": NotTakenBack,
    "state-twice": StateTwice,
    "state-null": StateNull,
    "hit-elsewhere": HitElsewhere,
    "hit-other": HitOther,
    "hit-unwritten": HitUnwritten,
    "accepted-ignored": AcceptedIgnored,
    "accepted-not-copied": AcceptedNotCopied,
    "drafts-not-stored": DraftsNotStored,
}
