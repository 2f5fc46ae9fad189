# SPDX-License-Identifier: Apache-2.0
"""One armed processor: the order of a step's records, what a violation does, and what the guard's
own failures do (nothing to the engine). Everything here runs on the engine's background thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

from kvguard import _core
from kvguard.errors import KVGuardError
from kvguard.transformers.layout import FULL, Layout
from kvguard.transformers.plan import PlanReader, Unreadable
from kvguard.transformers.tables import Event, Tables


class Reporter(Protocol):
    """Where a session tells what happens."""

    def found(self, session: Session, found: list[tuple[str, str, dict[str, Any]]]) -> None: ...
    def warn(self, text: str) -> None: ...
    def failure(self, where: str, error: BaseException) -> None: ...


class Session:
    """Feeds one processor's records into one guard."""

    def __init__(
        self, processor: Any, layout: Layout, guard: Any, reporter: Reporter, raising: bool
    ) -> None:
        self.processor = processor
        self.guard = guard
        self.layout = layout
        self.active = True
        self.violation: str | None = None  # the first one, where the guard raises
        self._tables = Tables(layout.groups)
        self._reader = PlanReader(layout.groups)
        self._reporter = reporter
        self._raising = raising
        self._step = 0
        self._open = False
        self._keys: list[int] = []  # rows of the open step
        self._lengths: list[int] = []
        self._types = [group.layer_type for group in layout.groups]
        # Announced: the fork, its group where ids are the group's own, source, target.
        self._copies: list[tuple[str, int | None, int, int]] = []
        self._loads = 0  # ids that were used
        guard.reset(_core.RESET_ARM)

    # --- hooks ---

    def step(self, call: Callable[[Any], Any], model: Any) -> Any:
        """In place of `_generation_step`: the batch is final, its forward has not run."""
        if not self.active:
            return call(model)
        self._begin()
        try:
            result = call(model)
        except KVGuardError:
            self._end(_core.END_NO_FORWARD)  # held before the forward: nothing was written
            raise
        except BaseException:
            self._end(_core.END_ABANDONED)
            raise
        self._outcome()
        self._end(0)
        return result

    def compute(self, call: Callable[..., Any], model: Any, batch: Any, *rest: Any) -> Any:
        """In place of the runner's `compute_batch`: what it is given is what the kernels read."""
        if self._open:
            self._plan(batch)
        return call(model, batch, *rest)

    def forked(
        self, layer_type: str | None, names: list[str], sources: list[int], targets: list[int]
    ) -> None:
        """The engine has bound blocks for forks, and is about to copy into them.

        Args:
            layer_type: of the group, where each has ids of its own.
            names: of the forks, each of which holds some of the targets.
        """
        try:
            index = None if layer_type is None else self._types.index(layer_type)
            tables = [
                group.tables for i, group in enumerate(self.layout.groups) if index in (None, i)
            ]
            holders = {
                block: name for table in tables for name in names for block in table.get(name, ())
            }
            for source, target in zip(sources, targets, strict=True):
                self._copies.append((holders[target], index, source, target))
        except Exception as error:  # noqa: BLE001  a bug of ours is not the engine's problem
            self._fail("fork", error)

    # --- records ---

    def _begin(self) -> None:
        try:
            self._step += 1
            verdict = self._feed_begin()
            self._open = True
        except Exception as error:  # noqa: BLE001  a bug of ours is not the engine's problem
            self._fail("begin", error)
            return
        self._react(verdict)

    def _feed_begin(self) -> dict[str, Any]:
        scheduler = self.processor.scheduler
        batch = self.processor.inputs_and_outputs.requests_in_batch
        lengths, starts = [], {}
        for future in batch:
            state, length = future.state, future.query_length
            lengths.append(length)
            starts[state.request_id] = state.position_offset - length
        active = scheduler.active_requests
        events = self._tables.changes(active, scheduler.waiting_requests)
        admissions = self._tables.admissions(active, starts)
        if self._copies:  # announced while nobody holds the targets
            copies, loads = self._copied(starts)
            events += copies + admissions + loads
        else:
            events += admissions
        known = self._tables.known
        keys = [known[name].key if name in known else 0 for name in starts]
        if len(keys) != len(lengths) or not all(keys):
            raise RuntimeError("a scheduled request has no table")
        self._keys, self._lengths = keys, lengths
        rows = zip(keys, lengths, starts.values(), strict=True)
        scheduled = [row for row in rows if row[1]]  # a parent waits for its fork without a token
        return self.guard.begin(self._step, events, scheduled)

    def _copied(self, starts: dict[str, int]) -> tuple[list[Event], list[Event]]:
        """Copies behind forks that are still there. They are done where the bytes say so, whatever
        was called. A column that counts as computed is told as loaded besides: what stood in its
        block before is gone."""
        copies, self._copies = self._copies, []
        events: list[Event] = []
        loads: list[Event] = []
        for index, group in enumerate(self.layout.groups):
            page = self.layout.geometry.groups[index].block_size
            pairs = []
            for name, only, source, target in copies:
                known = self._tables.known.get(name)
                if known is None or only not in (None, index) or target not in known.rows[index]:
                    continue
                pairs.append((source, target))
                column = known.rows[index].index(target)
                start = starts.get(name, known.state.position_offset)
                if group.layer_type == FULL and (column + 1) * page <= start:
                    self._loads += 1
                    load: Event = {"request": known.key, "group": index, "value": self._loads}
                    place = {"first": column * page, "count": page}
                    loads.append(
                        load | place | {"kind": "load", "blocks": (target - group.first_block,)}
                    )
                    loads.append(load | {"kind": "load-done"})
            if not pairs:
                continue
            done = [
                (source, target)
                for source, target in pairs
                if all(torch.equal(view[source], view[target]) for view in group.copy_views)
            ]
            for kind, some in (("copy", pairs), ("copy-done", done)):
                blocks = [block - group.first_block for pair in some for block in pair]
                events.append({"kind": kind, "group": index, "blocks": blocks})
        return events, loads

    def _plan(self, batch: Any) -> None:
        try:
            verdict = self.guard.plan(
                self._step, self._reader.read(batch, self._keys, self._lengths)
            )
        except Unreadable as error:
            self._reporter.warn(f"a step is not judged: {error}")
            self._gap(error.gap)
            return
        except Exception as error:  # noqa: BLE001  a bug of ours is not the engine's problem
            self._fail("plan", error)
            return
        self._react(verdict)

    def _outcome(self) -> None:
        if not self._open:
            return
        try:
            batch, tokens, _ = self.processor.inputs_and_outputs.prepare_batch_update()
            sampled = [
                key for future, key in zip(batch, self._keys, strict=True) if future.has_new_token
            ]
            rows = list(zip(sampled, tokens, strict=False))  # behind them, tokens of no row
            verdict = self.guard.outcome(self._step, rows)
        except Exception as error:  # noqa: BLE001  a bug of ours is not the engine's problem
            self._fail("outcome", error)
            return
        self._react(verdict)

    def _end(self, flags: int) -> None:
        if not self._open:
            return
        self._open = False
        try:
            verdict = self.guard.end(self._step, flags)
        except Exception as error:  # noqa: BLE001  a bug of ours is not the engine's problem
            self._fail("end", error)
            return
        if flags:
            self._tell(verdict)
        else:
            self._react(verdict)

    # --- reactions ---

    def _react(self, verdict: dict[str, Any]) -> None:
        self._tell(verdict)
        if verdict["must_raise"]:
            if self.violation is None:
                self.violation = f"kvguard: step {self._step} is violated; no finding is stored"
            raise KVGuardError(self.violation)

    def _tell(self, verdict: dict[str, Any]) -> None:
        if verdict["num_findings"] == 0:
            return
        try:
            found = self.guard.findings(verdict["first_sequence"])
            proofs = [f for f in found if f[2]["grade"] == "proof"]
            if proofs and self._raising and self.violation is None:
                first = next((f for f in proofs if f[2]["first_cause"]), proofs[0])
                self.violation = f"{first[0]}\n{first[1]}"
            self._reporter.found(self, found)
        except Exception as error:  # noqa: BLE001  a bug of ours is not the engine's problem
            self._fail("findings", error)

    def _gap(self, name: str) -> None:
        """The open step is not judged; where none is open, one is made to say so."""
        if not self._open:
            self._step += 1
        event = {"kind": "gap", "name": name}
        if self._open:
            self.guard.outcome(self._step, (), (event,))
        else:
            self.guard.begin(self._step, (event,), ())
            self.guard.end(self._step, _core.END_NO_FORWARD)

    def _fail(self, where: str, error: Exception) -> None:
        """A failure of the guard itself: told, a gap, and never the engine's problem. What was
        bound is not known from here on, so that nothing more is judged."""
        self.active = False
        self._reporter.failure(where, error)
        try:
            self._gap(f"guard-internal-error:{where}")
        except Exception as second:  # noqa: BLE001  a bug of ours is not the engine's problem
            self._reporter.failure("gap", second)
