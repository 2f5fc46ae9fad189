# SPDX-License-Identifier: Apache-2.0
"""`guard(model)`: from the caller's model to the processors that are made for it, and back to the
caller with what was found.

Only instances are touched: the model's own factory of managers, the manager's factory of
processors, and three methods of the processor that it made. The library's modules and classes stay
as they are, and so do the instances when the guard is left.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from importlib import metadata
from types import TracebackType
from typing import Any, NamedTuple

from kvguard import config, report
from kvguard.errors import KVGuardError
from kvguard.status import StatusFile, write_atomically
from kvguard.transformers.session import Session

logger = logging.getLogger("kvguard")

FACTORY = "init_continuous_batching"
MOST_LINES = 256  # finding lines in the log; what is beyond is in `findings`
MOST_KEPT = 32  # findings in the status file, first ones first
VERDICTS = ("clean", "cannot_judge", "violated")  # of several processors, the last one counts


class Finding(NamedTuple):
    """A finding: its line for machines, its prose, and its values by their names in kvguard.h."""

    line: str
    prose: str
    values: dict[str, Any]


class Guard:
    """The guard of one model, or of one manager. A context manager; its answers stay."""

    def __init__(self, target: Any, settings: config.Settings) -> None:
        self._target = target
        self._settings = settings
        self._managers: list[Any] = []
        self._sessions: list[Session] = []
        self._delivered: list[Session] = []
        self._reasons: list[str] = []
        self._undo: list[Callable[[], None]] = []
        self._findings: list[Finding] = []
        self._incident: str | None = None
        self._missing = 0  # outputs that were asked for and never came
        self._status: StatusFile | None = None
        self._state = "armed"  # "stopped" once the guard is left

    # --- answers ---

    @property
    def verdict(self) -> str:
        """clean, violated or cannot_judge, over every processor that was made. Never clean where a
        processor ran unguarded or nothing was judged."""
        found = [session.guard.verdict()["verdict"] for session in self._sessions]
        if not found or self._reasons or self._missing:
            found.append("cannot_judge")
        return max(found, key=VERDICTS.index)

    @property
    def findings(self) -> list[Finding]:
        """In the order in which they were found."""
        return list(self._findings)

    @property
    def coverage(self) -> list[dict[str, Any]]:
        """How often each family judged something, by processor, group, pass and stage."""
        return [
            {"processor": i} | row
            for i, session in enumerate(self._sessions)
            for row in session.guard.coverage()
        ]

    @property
    def gaps(self) -> list[dict[str, Any]]:
        """What was not judged, by name."""
        return [gap for session in self._sessions for gap in session.guard.gaps()]

    @property
    def reasons(self) -> list[str]:
        """Why a processor runs unguarded, if one does."""
        return list(self._reasons)

    @property
    def incident(self) -> str | None:
        """The file of the first violation."""
        return self._incident

    def report(self) -> str:
        """What was judged how often, and what was not."""
        texts = [f"kvguard: not armed: {reason}" for reason in self._reasons]
        if self._missing:
            texts.append(f"kvguard: {self._missing} outputs never came")
        for session in self._sessions:
            core = session.guard
            texts.append(report.coverage_report(core.verdict(), core.coverage(), core.gaps()))
        return "\n".join(texts) or "kvguard: cannot_judge: nothing ran"

    # --- life ---

    def __enter__(self) -> Guard:
        if not self._settings.enabled:
            return self
        path = config.status_path(self._settings, 0)
        if path:
            self._status = StatusFile(
                path, self._compose, self._settings.status_interval_s, self.warn
            )
            self._status.start()
        if self._settings.unavailable is not None:
            self._not_armed(self._settings.unavailable)
        elif hasattr(self._target, "_create_batch_processor"):
            self._adopt_manager(self._target)
        elif callable(getattr(self._target, FACTORY, None)):
            self._adopt_model(self._target)
        else:
            self._not_armed(
                f"{type(self._target).__name__} has no {FACTORY}: this transformers is not known"
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        while self._undo:
            self._undo.pop()()
        if self._settings.enabled:
            for session in self._sessions:
                self._take_incident(session)
            logger.info("%s", self.report())
        self._state = "stopped"
        if self._status is not None:
            self._status.stop()
        if error is None:
            self._deliver()

    def _deliver(self) -> None:
        """Raises what the background thread met, into the caller; once."""
        for session in self._sessions:
            if session.violation is not None and session not in self._delivered:
                self._delivered.append(session)
                raise KVGuardError(session.violation)

    # --- wrapping ---

    def _wrap(self, what: Any, name: str, wrapper: Callable[..., Any]) -> None:
        """An attribute of this one instance, in front of its class's method."""
        inner = getattr(what, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            return wrapper(inner, *args, **kwargs)

        had = name in vars(what)
        setattr(what, name, call)

        def undo() -> None:
            if vars(what).get(name) is call:
                if had:
                    setattr(what, name, inner)
                else:
                    delattr(what, name)

        self._undo.append(undo)

    def _adopt_model(self, model: Any) -> None:
        def factory(make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            manager = make(*args, **kwargs)
            self._adopt_manager(manager)
            return manager

        def generate(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            outputs = call(*args, **kwargs)
            self._deliver()
            self._count(args[0] if args else kwargs.get("inputs"), outputs)
            return outputs

        self._wrap(model, FACTORY, factory)
        if callable(getattr(model, "generate_batch", None)):
            self._wrap(model, "generate_batch", generate)

    def _count(self, inputs: Any, outputs: Any) -> None:
        """A background thread that dies leaves outputs out, in silence."""
        try:
            missing = len(inputs) - len([k for k in outputs if "__child#" not in str(k)])
            self._missing += max(missing, 0)
        except TypeError:
            self._missing += 1

    def _adopt_manager(self, manager: Any) -> None:
        if not callable(getattr(manager, "_create_batch_processor", None)):
            self._not_armed(
                f"{type(manager).__name__} has no _create_batch_processor: "
                "this transformers is not known"
            )
            return
        if any(manager is known for known in self._managers):
            return
        self._managers.append(manager)

        def create(make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            old = getattr(manager, "batch_processor", None)
            processor = make(*args, **kwargs)
            self._arm(manager, processor, fresh=processor is not old)
            return processor

        self._wrap(manager, "_create_batch_processor", create)
        if getattr(manager, "batch_processor", None) is not None:
            self._arm(manager, manager.batch_processor, fresh=False)

    def _arm(self, manager: Any, processor: Any, fresh: bool) -> None:
        """Never raises: what goes wrong here leaves the processor unguarded."""
        if any(session.processor is processor for session in self._sessions):
            return
        from kvguard import _core
        from kvguard.transformers import layout

        try:
            found = layout.probe(processor, metadata.version("transformers"), fresh)
            core = _core.Guard(found.geometry.as_dict(), self._settings.core)
            raising = self._settings.action == "raise"
            session = Session(processor, found, core, self, raising)
            self._record(core)
            self._wrap(processor, "_generation_step", session.step)
            self._wrap(processor.model_runner, "compute_batch", session.compute)
            self._watch_forks(processor.cache, session)
            self._sessions.append(session)
        except (layout.NotArmed, _core.Error) as error:
            self._not_armed(str(error))
            return
        except Exception as error:  # noqa: BLE001  a bug of ours is not the engine's problem
            self.failure("arm", error)
            self._not_armed(f"the guard failed while it armed: {type(error).__name__}: {error}")
            return
        gaps = ", ".join(found.geometry.standing_gaps)
        self._say(
            f"kvguard: armed before-write engine=transformers {found.geometry.engine_version} "
            f"{found.summary} action={self._settings.action} gaps=[{gaps}]"
        )

    def _watch_forks(self, cache: Any, session: Session) -> None:
        """Forks share what is whole and announce copies of the rest."""

        def by_type(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            pairs = args[2] if len(args) > 2 else kwargs["copy_src_and_dst"]
            before = {name: len(targets) for name, (_, targets) in pairs.items()}
            result = call(*args, **kwargs)
            for name, (sources, targets) in pairs.items():
                n = before[name]
                session.forked(name, result, sources[n:], targets[n:])
            return result

        def of_pool(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            result = call(*args, **kwargs)
            session.forked(
                None, args[1] if len(args) > 1 else kwargs["destination_request_ids"], *result
            )
            return result

        if hasattr(cache, "prepare_fork_request"):
            self._wrap(cache, "prepare_fork_request", by_type)
        else:
            self._wrap(cache, "fork_request", of_pool)

    def _record(self, core: Any) -> None:
        if not self._settings.record:
            return
        from kvguard import _core

        path = config.expand(self._settings.record, len(self._sessions))
        try:
            core.record_start(path, self._settings.record_max_bytes)
        except _core.Error as error:
            logger.error("kvguard: nothing is recorded: %s", error)

    # --- what a session reports ---

    def found(self, session: Session, found: list[tuple[str, str, dict[str, Any]]]) -> None:
        for item in found:
            finding = Finding(*item)
            self._findings.append(finding)
            if len(self._findings) <= MOST_LINES:
                proof = finding.values["grade"] == "proof"
                tell = logger.error if proof else logger.warning
                tell("%s\n%s", finding.line, finding.prose)
        self._take_incident(session)

    def warn(self, text: str) -> None:
        logger.warning("kvguard: %s", text)

    def failure(self, where: str, error: BaseException) -> None:
        logger.error("kvguard: the guard failed in %s; the engine runs on", where, exc_info=error)

    def _take_incident(self, session: Session) -> None:
        data = session.guard.take_incident()
        if data is None:
            return
        name = f"kvguard-incident-{os.getpid()}-{self._sessions.index(session)}.kvtrace"
        path = os.path.join(self._settings.incident_dir, name)
        try:
            write_atomically(path, data)
            self._incident = os.path.abspath(path)
            logger.error("kvguard: the incident is in %s", self._incident)
        except OSError as error:
            logger.error("kvguard: the incident cannot be written to %s: %s", path, error)

    def _not_armed(self, reason: str) -> None:
        self._reasons.append(reason)
        self._say(f"kvguard: not armed: {reason}")

    @staticmethod
    def _say(line: str) -> None:
        logger.info("%s", line)
        print(line, file=sys.stderr, flush=True)

    def _compose(self) -> dict[str, Any]:
        """The status, without schema and time (docs: kvguard run)."""
        verdicts = [session.guard.verdict() for session in self._sessions]
        counts: dict[str, int] = {}
        for verdict in verdicts:
            for name, value in verdict.items():
                if isinstance(value, int):
                    counts[name] = counts.get(name, 0) + value
        return {
            "state": self._state if self._sessions and not self._reasons else "not_armed",
            "reason": "; ".join(self._reasons) or (None if self._sessions else "nothing ran yet"),
            "verdict": self.verdict,
            "action": self._settings.action,
            "grade": "before-write",
            "engine": "transformers",
            "engine_version": metadata.version("transformers"),
            "rank": 0,
            "pid": os.getpid(),
            "counts": counts,
            "coverage": self.coverage,
            "gaps": self.gaps,
            "findings": [{"line": f.line, "prose": f.prose} for f in self._findings[:MOST_KEPT]],
            "incident": self._incident,
        }


def guard(target: Any, action: str | None = None, **options: Any) -> Guard:
    """Guards continuous batching of a model, or of a manager that there is already.

    Args:
        target: a transformers model (every manager that it makes while the guard is entered is
            guarded), or one ContinuousBatchingManager.
        action: "raise": a violating step writes nothing and its requests fail; the error reaches
            the caller of generate_batch, or leaves the with statement. "log": it is reported and
            passes. Default: what KVGUARD_CONFIG says, else "raise".
        options: further keys of kv_guard_config (`kvguard config --docs`).

    Returns:
        A context manager, with verdict, findings, coverage, gaps, reasons and report().

    Raises:
        ConfigError: at once, for options that there are not.
    """
    given = {"enabled": True} | ({"action": action} if action is not None else {}) | options
    if action is None and not options and os.environ.get(config.ENVIRONMENT, "").strip():
        return Guard(target, config.read(None))
    return Guard(target, config.read({config.KEY: given}))
