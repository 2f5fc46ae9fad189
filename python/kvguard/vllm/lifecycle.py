# SPDX-License-Identifier: Apache-2.0
"""From the start of a worker to its end: arming, telling, and the account that is left behind."""

from __future__ import annotations

import atexit
import logging
import os
import sys
from typing import TYPE_CHECKING, Any

from kvguard import config, report
from kvguard.status import StatusFile, write_atomically

if TYPE_CHECKING:
    from kvguard.vllm.probes import Facts
    from kvguard.vllm.session import Session

# What arming needs of vLLM and of the extension module is imported when the guard arms: where it is
# not there, the engine runs unguarded.
logger = logging.getLogger("vllm.kvguard")  # below vllm's own, whose handlers print it

GRADE = "before-write"
MOST_LINES = 256  # finding lines in the log; what is beyond is counted
MOST_KEPT = 32  # findings in the status file, first ones first
MOST_WARNINGS = 64


class Lifecycle:
    """One worker's guard. Nothing here raises into the engine."""

    def __init__(self, worker: Any, settings: config.Settings) -> None:
        self._worker = worker
        self._settings = settings
        self._state = "starting"
        self._reason: str | None = None
        self._guard: Any = None
        self._session: Session | None = None
        self._facts: Facts | None = None
        self._core: Any = None
        self._tested: str | None = None  # what the self-test came to, for the arming line
        self._guarded: type | None = None
        self._lines = 0
        self._kept: list[dict[str, str]] = []
        self._warned: set[str] = set()
        self._incident: str | None = None
        self._trace: str | None = None
        path = config.status_path(settings, worker.rank)
        self._status = (
            StatusFile(path, self.compose, settings.status_interval_s, self.warn) if path else None
        )
        if self._status is not None:
            self._status.start()
        atexit.register(self._at_exit)

    # --- arming ---

    def adopt(self, runner: Any) -> None:
        """The runner has just been made: from here on it is an instance of our subclass, which does
        nothing until the guard is armed."""
        if self._settings.unavailable is not None:
            return
        try:
            from kvguard.vllm.runner import guarded_class

            self._guarded = guarded_class(type(runner))
            runner.__class__ = self._guarded
        except Exception as error:  # noqa: BLE001  a bug of ours is not the engine's problem
            self._guarded = None
            self.failure("adopt", error)

    def arm(self) -> None:
        """Warm-up is over."""
        if self._settings.unavailable is not None:
            self._not_armed(self._settings.unavailable)
            return
        try:
            from kvguard.vllm.probes import NotArmed
        except ImportError as error:
            self._not_armed(f"what the guard needs cannot be imported: {error}")
            return
        try:
            if self._session is None:
                self._arm()
            else:
                self._arm_again(self._session)
        except NotArmed as reason:
            self._not_armed(str(reason))
        except Exception as error:  # noqa: BLE001  a bug of ours is not the engine's problem
            self.failure("arm", error)
            self._not_armed(f"the guard failed while it armed: {type(error).__name__}: {error}")

    def _arm(self) -> None:
        from kvguard import _core
        from kvguard.vllm import probes

        self._core = _core
        if self._settings.self_test:
            self._tested = self._self_test()
        worker = self._worker
        runner = worker.model_runner
        facts = probes.probe(worker)
        try:
            from kvguard.vllm.plan import PlanReader
            from kvguard.vllm.runner import (
                ConnectorDelegate,
                RunnerHooks,
                gate,
                guarded_class,
                guarded_speculator,
            )
            from kvguard.vllm.session import Session

            guard = _core.Guard(facts.geometry.as_dict(), self._settings.core)
        except (ImportError, _core.Error) as error:
            raise probes.NotArmed(str(error)) from error
        raising = self._settings.action == "raise"
        session = Session(
            guard,
            PlanReader(runner, facts),
            self,
            gate if raising else None,
            raising and self._settings.latch,
            facts.dummy_run_index,
        )
        self._record(guard)
        guarded = self._guarded or guarded_class(type(runner))
        guarded.kvguard_session = session  # our own class
        if not isinstance(runner, RunnerHooks):
            runner.__class__ = guarded
        runner.kv_connector = ConnectorDelegate(runner.kv_connector, session)
        if facts.draft_layers:
            drafter = runner.speculator
            drafter.__class__ = guarded_speculator(type(drafter), session)
        self._guard, self._session, self._facts = guard, session, facts
        session.arm()
        self._state = "armed"
        self._say(self.arming_line())
        self._write_status()

    def _self_test(self) -> str:
        """Before anything of the engine is touched: a guard that misses what was planted judges
        nothing. Families as the catalog has them, each of which the self-test plants and finds."""
        from kvguard.vllm.probes import NotArmed

        try:
            self._core.selftest()
        except self._core.Error as error:
            reason = str(error).removeprefix("self-test: ")
            raise NotArmed(f"self-test failed: {reason}") from error
        families = {rule["family"] for rule in self._core.rules()}
        return f"planted faults of {len(families)} families found"

    def _arm_again(self, session: Session) -> None:
        """The cache was initialised anew; the account goes on where the geometry is what it was."""
        from kvguard.vllm import probes
        from kvguard.vllm.plan import PlanReader
        from kvguard.vllm.runner import ConnectorDelegate, RunnerHooks

        facts = probes.probe(self._worker)
        runner = self._worker.model_runner
        if facts.geometry != self._facts.geometry or not isinstance(runner, RunnerHooks):
            raise probes.NotArmed("the KV cache was initialised anew with another geometry")
        if type(runner.__dict__.get("kv_connector")) is not ConnectorDelegate:
            runner.kv_connector = ConnectorDelegate(runner.kv_connector, session)
        session.rearm(PlanReader(runner, facts))
        self._state, self._reason = "armed", None
        self._say(self.arming_line())
        self._write_status()

    def _record(self, guard: Any) -> None:
        if not self._settings.record:
            return
        path = config.expand(self._settings.record, self._worker.rank)
        try:
            guard.record_start(path, self._settings.record_max_bytes)
            self._trace = path
        except self._core.Error as error:
            logger.error("kvguard: nothing is recorded: %s", error)

    def arming_line(self) -> str:
        facts = self._facts
        gaps = ", ".join(facts.geometry.standing_gaps)
        tested = "" if self._tested is None else f" self-test={self._tested}"
        return (
            f"kvguard: armed {GRADE} engine=vllm {facts.geometry.engine_version} {facts.summary} "
            f"action={self._settings.action} gaps=[{gaps}]{tested}"
        )

    def _not_armed(self, reason: str) -> None:
        self._state = "not_armed" if self._guard is None else "failed"
        self._reason = reason
        self._say(f"kvguard: not armed: {reason}")
        self._write_status()

    def cache_initialised(self) -> None:
        """The pools are about to be laid out; whatever was bound is void."""
        if self._session is not None and self._session.active:
            self._session.suspend()
            self._state, self._reason = "not_armed", "the KV cache is being initialised anew"
            self._write_status()

    def contents_lost(self) -> None:
        if self._session is not None:
            self._session.reset(self._core.RESET_SLEEP)

    # --- the end ---

    def stop(self) -> None:
        """Shutdown has run."""
        if self._state == "stopped":
            return
        try:
            if self._session is not None:
                self._session.disarm()
                self._take_incident()
                self._stop_recording()
                logger.info("%s", self.coverage_report())
            if self._state == "armed":
                self._state = "stopped"
        except Exception as error:  # noqa: BLE001  a bug of ours is not the engine's problem
            self.failure("stop", error)
        if self._status is not None:
            self._status.stop()

    def _stop_recording(self) -> None:
        if self._trace is None:
            return
        try:
            self._guard.record_stop()
        except self._core.Error as error:
            logger.error("kvguard: the trace %s is not whole: %s", self._trace, error)

    def coverage_report(self) -> str:
        """What was judged how often, and what was not."""
        return report.coverage_report(
            self._guard.verdict(), self._guard.coverage(), self._guard.gaps(), self._drafts()
        )

    def _drafts(self) -> dict[str, int] | None:
        """Drafts that were verified and what became of them; None where there are none."""
        if self._session is None or not self._facts.geometry.max_drafts:
            return None
        stream = self._session.stream
        scheduled, rejected = stream.num_drafts, stream.num_rejected
        return {"scheduled": scheduled, "accepted": scheduled - rejected, "rejected": rejected}

    def _at_exit(self) -> None:
        if self._state == "armed":
            self.stop()

    # --- what the session reports ---

    def findings(self, found: list[tuple[str, str, dict[str, Any]]]) -> None:
        for line, prose, finding in found:
            if len(self._kept) < MOST_KEPT:
                self._kept.append({"line": line, "prose": prose})
            self._lines += 1
            if self._lines <= MOST_LINES:
                tell = logger.error if finding["grade"] == "proof" else logger.warning
                tell("%s\n%s", line, prose)
            elif self._lines == MOST_LINES + 1:
                logger.error("kvguard: further findings are counted, not printed")
        if self._take_incident() or len(self._kept) == len(found):
            self._write_status()

    def warn(self, text: str) -> None:
        if text not in self._warned and len(self._warned) < MOST_WARNINGS:
            self._warned.add(text)
            logger.warning("kvguard: %s", text)

    def failure(self, where: str, error: BaseException) -> None:
        if where not in self._warned:
            self._warned.add(where)
            logger.error(
                "kvguard: the guard failed in %s; the engine runs on", where, exc_info=error
            )

    def disarmed(self, reason: str) -> None:
        self._state, self._reason = "failed", reason
        self._say(f"kvguard: disarmed: {reason}")
        self._write_status()

    # --- files ---

    def _take_incident(self) -> bool:
        data = self._guard.take_incident()
        if data is None:
            return False
        name = f"kvguard-incident-{os.getpid()}-{self._worker.rank}.kvtrace"
        path = os.path.join(self._settings.incident_dir, name)
        try:
            write_atomically(path, data)
            self._incident = os.path.abspath(path)
            logger.error("kvguard: the incident is in %s", self._incident)
        except OSError as error:
            logger.error("kvguard: the incident cannot be written to %s: %s", path, error)
        return True

    def compose(self) -> dict[str, Any]:
        """The status, without schema and time. Called by whichever thread writes it: a call of the
        extension module holds the interpreter's lock, so that it never meets a record half fed."""
        guard = self._guard
        verdict = guard.verdict() if guard is not None else {"verdict": "cannot_judge"}
        if self._state not in ("armed", "stopped") and verdict["verdict"] == "clean":
            verdict["verdict"] = "cannot_judge"  # what runs now is not judged
        numbers = {k: v for k, v in verdict.items() if isinstance(v, int)}
        geometry = self._facts.geometry if self._facts is not None else None
        return {
            "state": self._state,
            "reason": self._reason,
            "verdict": verdict["verdict"],
            "action": self._settings.action,
            "grade": GRADE,
            "engine": "vllm",
            "engine_version": geometry.engine_version if geometry is not None else "",
            "rank": self._worker.rank,
            "pid": os.getpid(),
            "self_test": self._tested,
            "kvguard_version": self._core.version if self._core is not None else "",
            "counts": numbers,
            "drafts": self._drafts(),
            "coverage": guard.coverage() if guard is not None else [],
            "gaps": guard.gaps() if guard is not None else [],
            "findings": list(self._kept),
            "incident": self._incident,
            "trace": self._trace,
        }

    def _write_status(self) -> None:
        if self._status is not None:
            self._status.write()

    @staticmethod
    def _say(line: str) -> None:
        logger.info("%s", line)
        print(line, file=sys.stderr, flush=True)
