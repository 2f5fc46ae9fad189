# SPDX-License-Identifier: Apache-2.0
"""One armed runner: the order of a step's records, what a violation does, and what the guard's own
failures do (nothing to the engine)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kvguard import _core
from kvguard.errors import KVGuardError
from kvguard.vllm.plan import PlanReader, Unreadable

MUST_RAISE = _core.vllm.FLAG_MUST_RAISE
NEW_FINDINGS = _core.vllm.FLAG_NEW_FINDINGS
NOT_FED = _core.vllm.FLAG_NOT_FED
UNJUDGED = _core.vllm.FLAG_UNJUDGED
MOST_FAILURES = 8  # of the guard itself, before it leaves the engine alone for good


class Ticket:
    """One step's right to release its output. Read by whichever thread asks for the output."""

    __slots__ = ("error",)

    def __init__(self) -> None:
        self.error: str | None = None

    def check(self) -> None:
        if self.error is not None:
            raise KVGuardError(self.error)


class Reporter(Protocol):
    """Where a session tells what happens."""

    def findings(self, found: list[tuple[str, str, dict[str, Any]]]) -> None: ...
    def warn(self, text: str) -> None: ...
    def failure(self, where: str, error: BaseException) -> None: ...
    def disarmed(self, reason: str) -> None: ...


class Session:
    """Feeds one runner's records into one guard."""

    def __init__(
        self,
        guard: Any,
        reader: PlanReader,
        reporter: Reporter,
        gate: Callable[[Any, Ticket], Any] | None,
        latch: bool,
        dummy_run_index: int,
    ) -> None:
        self.guard = guard
        self.stream = _core.vllm.Stream(guard)
        self.active = False
        self.open = False  # a step is open and its plan is to be judged
        self._step_open = False
        self._reader = reader
        self._reporter = reporter
        self._gate = gate  # None in log mode: outputs pass as they are
        self._latch = latch
        self._latched: str | None = None
        self._dummy_run_index = dummy_run_index - 1  # among the arguments behind scheduler_output
        self._ticket = Ticket()
        self._no_forward = False
        self._untold = 0  # sequence of the first finding that was not told
        self._failures = 0
        self._start_over = False
        self._batch: Any = None
        self._draft_passes = 0  # of the draft model, in this step

    # --- life ---

    def arm(self) -> None:
        self.stream.reset(_core.RESET_ARM)
        self.active = True

    def reset(self, reason: int) -> None:
        """Everything cached is void."""
        if not self.active:
            return
        try:
            self._end(_core.END_ABANDONED)
            self.stream.reset(reason)
        except Exception as error:  # noqa: BLE001  a bug of ours is not the engine's problem
            self._fail("reset", error)

    def disarm(self) -> None:
        """Ends an open step; the runner is then left alone."""
        if self.active:
            self._end(_core.END_ABANDONED)
        self.active = False

    def suspend(self) -> None:
        """The cache is laid out anew: nothing is judged until rearm()."""
        self.disarm()

    def rearm(self, reader: PlanReader) -> None:
        self._reader = reader
        self.stream.reset(_core.RESET_LAYOUT)
        self.active = True

    # --- hooks ---

    def guards(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether this call of execute_model is a real batch of a guarded runner."""
        if not self.active:
            return False
        if kwargs.get("dummy_run", False):
            return False
        index = self._dummy_run_index
        return not (0 <= index < len(args) and args[index])

    def execute(
        self, call: Callable[..., Any], output: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        self._check_latch()
        if self._step_open:  # the engine never asked for the last step's tokens
            self._end(_core.END_ABANDONED)
        ticket = self._ticket = Ticket()
        try:
            self._begin(output)
            result = call(output, *args, **kwargs)
        except KVGuardError:
            # Held before the forward: nothing was written.
            self._end(_core.END_NO_FORWARD)
            raise
        except BaseException:
            self._end(_core.END_ABANDONED)
            raise
        if result is None and not self._no_forward:
            self.open = False  # the plan is over; the step ends with its tokens
            return None
        self._finish(_core.END_NO_FORWARD if self._no_forward else 0)
        return result if self._gate is None else self._gate(result, ticket)

    def sample(
        self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        self._check_latch()
        if not self._step_open:
            return call(*args, **kwargs)
        ticket = self._ticket
        try:
            result = call(*args, **kwargs)
        except BaseException:
            self._end(_core.END_ABANDONED)
            raise
        self._finish(0)
        return result if self._gate is None else self._gate(result, ticket)

    def planned(self, input_batch: Any, plan: Any) -> None:
        """The runner's tables and slot mappings are made."""
        try:
            self._batch = input_batch
            flags = self._reader.planned(self.stream, input_batch, plan)
        except Unreadable as error:
            flags = self._unreadable(error)
        except Exception as error:  # noqa: BLE001  a bug of ours is not the engine's problem
            self._fail("plan", error)
            return
        if flags:
            self._react(flags)

    def final(self, attn_metadata: Any) -> None:
        """The backend's metadata is made, and the forward has not begun."""
        if self._batch is None:
            return
        try:
            flags = self._reader.final(self.stream, self._batch, attn_metadata)
        except Unreadable as error:
            flags = self._unreadable(error)
        except Exception as error:  # noqa: BLE001  a bug of ours is not the engine's problem
            self._fail("final", error)
            return
        if flags:
            self._react(flags)

    def sampled(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Tokens are sampled, and the runner has not moved its counts by them."""
        if self._batch is None or not self._step_open:
            return
        try:
            flags = self._reader.outcome(self.stream, self._batch, args, kwargs)
        except Unreadable as error:
            flags = self._unreadable(error)
        except Exception as error:  # noqa: BLE001  a bug of ours is not the engine's problem
            self._fail("outcome", error)
            return
        if flags:
            self._react(flags)

    def draft_pass(self, buffers: Any, given: tuple[Any, ...]) -> None:
        """The draft model is about to run."""
        if self._batch is None or not self._step_open:
            return
        index, self._draft_passes = self._draft_passes, self._draft_passes + 1
        try:
            flags = self._reader.draft(self.stream, self._batch, index, buffers, given)
        except Unreadable as error:
            flags = self._unreadable(error)
        except Exception as error:  # noqa: BLE001  a bug of ours is not the engine's problem
            self._fail("draft", error)
            return
        if flags:
            self._react(flags)

    def drafted(self, expected: int) -> None:
        """The draft model has run; a graph would have run it unseen."""
        if self._batch is not None and self._step_open and self._draft_passes != expected:
            self._unreadable(
                Unreadable(
                    "draft-pass-unseen",
                    f"{self._draft_passes} of {expected} draft passes were seen",
                )
            )

    def no_forward(self) -> None:
        self._no_forward = True

    # --- steps ---

    def _begin(self, output: Any) -> None:
        self._no_forward = False
        self._batch = None
        self._draft_passes = 0
        try:
            if self._start_over:
                self.stream.reset(_core.RESET_ARM)
                self._start_over = False
            flags = self.stream.begin(output)
        except Exception as error:  # noqa: BLE001  a bug of ours is not the engine's problem
            self._start_over = True
            self._fail("begin", error)
            return
        self._step_open = self.stream.open
        self.open = self._step_open and not flags & UNJUDGED
        if flags:
            self._react(flags)

    def _end(self, end: int) -> int:
        """Ends the open step, if one is, without holding anything."""
        self.open = False
        self._batch = None
        if not self._step_open:
            return 0
        self._step_open = False
        try:
            flags = self.stream.end(end)
            if flags & NEW_FINDINGS:
                self._tell_findings()
        except Exception as error:  # noqa: BLE001  a bug of ours is not the engine's problem
            self._fail("end", error)
            return 0
        return flags

    def _finish(self, end: int) -> None:
        """Ends the step and holds what is to leave if the end showed a violation."""
        if self._end(end) & MUST_RAISE:
            self._hold()

    # --- reactions ---

    def _react(self, flags: int) -> None:
        if flags & NEW_FINDINGS:
            self._tell_findings()
        if flags & NOT_FED:
            self._reporter.warn("a step is not judged: " + self.stream.sentence)
        if flags & MUST_RAISE:
            self._hold()

    def _tell_findings(self) -> None:
        try:
            found = self.guard.findings(self._untold)
            if found:
                self._untold = found[-1][2]["sequence"] + 1
            proofs = [f for f in found if f[2]["grade"] == "proof"]
            if proofs and self._gate is not None and self._ticket.error is None:
                first = next((f for f in proofs if f[2]["first_cause"]), proofs[0])
                self._ticket.error = f"{first[0]}\n{first[1]}"
            self._reporter.findings(found)
        except Exception as error:  # noqa: BLE001  a bug of ours is not the engine's problem
            self._fail("findings", error)

    def _hold(self) -> None:
        ticket = self._ticket
        if ticket.error is None:
            ticket.error = (
                f"kvguard: step {self.stream.step} is violated; its finding is not stored"
            )
        if self._latch and self._latched is None:
            self._latched = ticket.error
        ticket.check()

    def _check_latch(self) -> None:
        if self._latched is not None:
            raise KVGuardError(self._latched)

    def _unreadable(self, error: Unreadable) -> int:
        self._reporter.warn(f"a step is not judged: {error}")
        return self.stream.gap(error.gap) & MUST_RAISE

    def _fail(self, where: str, error: Exception) -> None:
        """A failure of the guard itself: told, a gap, and never the engine's problem."""
        self._failures += 1
        try:
            self._reporter.failure(where, error)
            self.stream.gap(f"guard-internal-error:{where}")
        except Exception as second:  # noqa: BLE001  a bug of ours is not the engine's problem
            self._start_over = True
            error = second
        if self._failures >= MOST_FAILURES and self.active:
            self.active = self.open = False
            self._reporter.disarmed(f"the guard failed {self._failures} times, last: {error}")
