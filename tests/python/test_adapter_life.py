# SPDX-License-Identifier: Apache-2.0
"""The adapter's own failures, what it puts into the engine, and the status that it leaves."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import fake_vllm
import outputs
import pytest
from kvguard import KVGuardError
from kvguard.vllm import probes, worker
from kvguard.vllm.runner import ConnectorDelegate, RunnerHooks
from toy import ON, Engine, spoil_metadata

HERE = Path(__file__).parent


# --- failures of the guard itself ---


@pytest.mark.parametrize("place", ["planned", "final"])
def test_the_guards_own_failure_is_never_the_engines(
    place: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine = Engine()
    engine.run(3)

    def broken(*_: Any) -> int:
        raise RuntimeError("a bug of the guard")

    monkeypatch.setattr(engine.life._session._reader, place, broken)
    engine.run(4)
    assert engine.verdict()["verdict"] == "cannot_judge"
    assert any(name.startswith("guard-internal-error:") for name in engine.gaps())
    assert len([r for r in caplog.records if "the guard failed" in r.message]) == 1, "told once"
    engine.run(10)
    assert not engine.life._session.active, "after a few it leaves the engine alone"
    assert engine.life.compose()["state"] == "failed"
    assert len(engine.tokens) == 17
    assert all(engine.tokens)


def test_a_failing_begin_forgets_instead_of_guessing(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine()
    engine.run(5)
    session = engine.life._session
    stream = session.stream

    class Broken:
        def __init__(self) -> None:
            self.fail = True

        def begin(self, output: Any) -> int:
            if self.fail:
                raise MemoryError("no memory for the guard")
            return stream.begin(output)

        def __getattr__(self, name: str) -> Any:
            return getattr(stream, name)

    session.stream = Broken()
    engine.step()
    session.stream.fail = False
    engine.run(5)
    assert engine.verdict()["proofs"] == 0
    assert set(engine.gaps()) == {"guard-internal-error:begin", "request-from-before-reset"}


def test_a_failure_while_arming_leaves_the_engine_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("a bug of the guard")

    monkeypatch.setattr(probes, "probe_final", broken)
    engine = Engine()
    engine.run(3)
    assert engine.life.compose()["state"] == "not_armed"
    assert "a bug of the guard" in engine.life.compose()["reason"]


# --- the delegate ---


def test_the_delegate_is_the_connector_in_every_other_way() -> None:
    engine = Engine()
    delegate = engine.runner.kv_connector
    assert type(delegate) is ConnectorDelegate
    assert isinstance(delegate, fake_vllm.KVConnector)
    inner = delegate.__dict__["_kvguard_inner"]
    delegate.set_disabled(True)
    assert inner.disabled is True
    delegate.added = 5
    assert inner.added == 5
    del delegate.added
    assert not hasattr(inner, "added")
    with pytest.raises(AttributeError):
        _ = delegate.nothing
    inner.pre_forward = lambda *args, **kwargs: (args, kwargs)
    assert delegate.pre_forward(1, 2, attn_metadata=3) == ((1, 2), {"attn_metadata": 3})


def test_the_factory_hands_out_ours() -> None:
    guarded = worker.guarded_worker(fake_vllm.CPUWorker)(fake_vllm.vllm_config(ON))
    guarded.init_device()
    assert isinstance(guarded.model_runner, RunnerHooks)
    assert guarded.execute_model(fake_vllm.warm_up()) is None, "until it is armed it does nothing"

    class NoFactory(fake_vllm.CPUWorker):
        def init_device(self) -> None:
            self.model_runner = fake_vllm.Runner()

    engine = Engine(ON, NoFactory)
    assert isinstance(engine.runner, RunnerHooks)
    engine.run(4)
    assert engine.verdict()["verdict"] == "clean"


# --- the status file ---

STATUS_KEYS = {
    "schema",
    "state",
    "reason",
    "verdict",
    "action",
    "grade",
    "engine",
    "engine_version",
    "rank",
    "pid",
    "self_test",
    "kvguard_version",
    "written_unix",
    "counts",
    "drafts",
    "coverage",
    "gaps",
    "findings",
    "incident",
    "trace",
}


def status(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def test_status_file_from_start_to_stop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KVGUARD_STATUS_DIR", str(tmp_path))
    guarded = worker.guarded_worker(fake_vllm.CPUWorker)(fake_vllm.vllm_config(ON))
    path = tmp_path / f"kvguard-status-{os.getpid()}-0.json"
    assert status(path)["state"] == "starting"
    assert status(path)["verdict"] == "cannot_judge"
    guarded.shutdown()
    engine = Engine({"enabled": True, "status_interval_s": 0.1})
    assert status(path)["state"] == "armed"
    engine.run(5)
    deadline = time.monotonic() + 10
    while status(path)["counts"]["steps"] < 5:
        assert time.monotonic() < deadline, "the file is rewritten by itself"
        time.sleep(0.05)
    engine.worker.shutdown()
    last = status(path)
    assert set(last) == STATUS_KEYS
    assert (last["schema"], last["state"], last["verdict"]) == (
        "kvguard.status.v1",
        "stopped",
        "clean",
    )
    assert last["counts"]["rows"] > 0
    assert {c["family"] for c in last["coverage"]} >= {"table", "slot", "binding"}
    assert sorted(p.name for p in tmp_path.iterdir()) == [path.name], "no temporary file is left"


def test_status_at_a_violation(tmp_path: Path) -> None:
    path = tmp_path / "status-r%r.json"
    engine = Engine({"enabled": True, "status": str(path), "status_interval_s": 1000})
    engine.run(4)
    engine.runner.faults["metadata"] = spoil_metadata
    with pytest.raises(KVGuardError) as caught:
        engine.step()
    written = status(tmp_path / "status-r0.json")
    assert written["verdict"] == "violated"
    assert f"{written['findings'][0]['line']}\n{written['findings'][0]['prose']}" == str(
        caught.value
    )


def test_a_status_that_cannot_be_written_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        engine = Engine({"enabled": True, "status": "/nonexistent/status.json"})
        engine.run(3)
        engine.worker.shutdown()
    assert len([r for r in caplog.records if "cannot be written" in r.message]) == 1
    assert engine.worker.shut_down


def test_a_worker_that_ends_without_shutdown_still_tells(tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import toy as t;"
        "e = t.Engine({'enabled': True, 'status': sys.argv[2]}); e.run(5)"
    )
    path = tmp_path / "status.json"
    subprocess.run(
        [sys.executable, "-c", code, str(HERE), str(path)], check=True, capture_output=True
    )
    assert (status(path)["state"], status(path)["verdict"]) == ("stopped", "clean")


def test_repeats_cost_no_memory() -> None:
    engine = Engine()
    engine.run(5)
    engine.runner.faults["metadata"] = spoil_metadata
    with pytest.raises(KVGuardError):
        engine.step()
    output = outputs.SchedulerOutput()

    def rss() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def repeat(times: int) -> None:
        for _ in range(times):
            with pytest.raises(KVGuardError):
                engine.worker.execute_model(output)

    repeat(1000)
    before = rss()
    repeat(9000)
    assert rss() - before < 1 << 20
