# SPDX-License-Identifier: Apache-2.0
"""The vLLM adapter on a toy engine: what it does to a healthy one (nothing) and to a wrong step."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import fake_vllm
import outputs
import pytest
from kvguard import KVGuardError
from toy import Engine, spoil_metadata, spoil_state, spoil_table


class TwoGroups(fake_vllm.CPUWorker):
    groups = 2


@pytest.mark.parametrize("base", [fake_vllm.CPUWorker, TwoGroups])
@pytest.mark.parametrize("action", ["raise", "log"])
def test_a_healthy_engine_is_clean_and_unchanged(base: type, action: str) -> None:
    engines = [Engine({"enabled": False}, base), Engine({"enabled": True, "action": action}, base)]
    for engine in engines:
        engine.run(60)
    off, on = engines
    assert off.life is None
    assert on.tokens == off.tokens
    assert (on.runner.pool == off.runner.pool).all()
    assert on.runner.kv_connector.calls == off.runner.kv_connector.calls
    verdict = on.verdict()
    assert verdict["verdict"] == "clean"
    assert verdict["steps_judged"] == 60
    assert verdict["plans"] == 120, (
        "each step's plan is judged when it is planned and when it is final"
    )
    assert on.gaps() == {}


# --- a wrong step ---


@pytest.mark.parametrize(
    ("name", "fault", "code"),
    [
        ("plan", spoil_table, "KV0301"),
        ("metadata", spoil_metadata, "KV0501"),
        ("state", spoil_state, "KV0901"),
    ],
)
def test_a_wrong_plan_is_held_before_anything_is_written(name: str, fault: Any, code: str) -> None:
    engine = Engine()
    engine.run(9)
    pool, calls = engine.runner.pool.copy(), list(engine.runner.kv_connector.calls)
    engine.runner.faults[name] = fault
    with pytest.raises(KVGuardError) as caught:
        engine.step()
    line, prose = str(caught.value).split("\n", 1)
    assert line.startswith(f"kvguard {code} ")
    assert "Request" in prose
    assert (engine.runner.pool == pool).all()
    assert engine.runner.kv_connector.calls == calls, "the connector's hooks did not run either"
    # Latched: every later step fails the same way, whatever it holds, and the runner is not asked.
    del engine.runner.faults[name]
    seen = engine.runner.seen
    for _ in range(3):
        with pytest.raises(KVGuardError) as again:
            engine.worker.execute_model(outputs.SchedulerOutput())
        assert str(again.value) == str(caught.value)
        with pytest.raises(KVGuardError):
            engine.worker.sample_tokens(None)
    assert engine.runner.seen == seen
    assert engine.verdict()["verdict"] == "violated"
    assert engine.verdict()["violated_steps"] == 1


def test_a_wrong_binding_is_held_before_the_runner_sees_it() -> None:
    engine = Engine()
    engine.run(4)
    output = engine.scheduler.schedule()
    output.scheduled_cached_reqs.new_block_ids[0] = ([4000],)
    seen = engine.runner.seen
    with pytest.raises(KVGuardError, match=r"^kvguard KV0201 block-out-of-range "):
        engine.step(output)
    assert engine.runner.seen == seen


def test_a_wrong_binding_without_tokens_is_held_too() -> None:
    engine = Engine()
    engine.run(4)
    output = engine.scheduler.schedule()
    output.num_scheduled_tokens = {}
    output.scheduled_cached_reqs.new_block_ids[0] = ([0],)
    with pytest.raises(KVGuardError, match="KV0202"):
        engine.step(output)


def test_without_the_latch_only_the_wrong_step_fails() -> None:
    engine = Engine({"enabled": True, "latch": False})
    engine.run(9)
    output = engine.scheduler.schedule()
    engine.runner.faults["metadata"] = spoil_metadata
    with pytest.raises(KVGuardError):
        engine.step(output)
    del engine.runner.faults["metadata"]
    # Nothing ran, so the engine may do the same step again, right this time.
    output.scheduled_new_reqs = []
    output.finished_req_ids = set()
    output.scheduled_cached_reqs.new_block_ids = [None] * len(output.scheduled_cached_reqs.req_ids)
    engine.step(output)
    engine.run(5)
    assert engine.verdict()["violated_steps"] == 1


def test_log_mode_reports_and_lets_pass(caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine({"enabled": True, "action": "log"})
    engine.run(9)
    engine.runner.faults["metadata"] = spoil_metadata
    with caplog.at_level(logging.ERROR):
        engine.run(4)
    assert len([r for r in caplog.records if "KV0501" in r.message]) == 4
    assert len(engine.tokens) == 13
    assert all(engine.tokens)
    assert engine.verdict()["violated_steps"] == 4


def test_log_lines_are_bounded(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kvguard.vllm import lifecycle

    monkeypatch.setattr(lifecycle, "MOST_LINES", 5)
    engine = Engine({"enabled": True, "action": "log"})
    engine.runner.faults["metadata"] = spoil_metadata
    with caplog.at_level(logging.ERROR):
        engine.run(20)
    lines = [r for r in caplog.records if "KV0501" in r.message]
    assert len(lines) == 5
    assert sum("further findings are counted" in r.message for r in caplog.records) == 1


def test_output_is_gated_when_it_is_asked_for() -> None:
    engine = Engine()
    engine.scheduler.add("a", 5)
    assert engine.worker.execute_model(engine.scheduler.schedule()) is None
    output = engine.worker.sample_tokens(None)
    assert isinstance(output, fake_vllm.AsyncModelRunnerOutput)
    assert output.extra == "extra"
    ticket = output._kvguard_ticket
    assert output.get_output() == {"a": 5}
    ticket.error = "kvguard KV0000 test\nWords."
    with pytest.raises(KVGuardError, match="KV0000"):
        output.get_output()


def test_log_mode_does_not_wrap_outputs() -> None:
    engine = Engine({"enabled": True, "action": "log"})
    engine.scheduler.add("a", 5)
    engine.worker.execute_model(engine.scheduler.schedule())
    assert type(engine.worker.sample_tokens(None)) is fake_vllm.AsyncOutput


def test_an_incident_is_written_once(tmp_path: Path) -> None:
    engine = Engine({"enabled": True, "action": "log", "incident_dir": str(tmp_path)})
    engine.run(6)
    engine.runner.faults["metadata"] = spoil_metadata
    engine.run(4)
    incident = tmp_path / f"kvguard-incident-{os.getpid()}-0.kvtrace"
    assert incident.stat().st_size > 0
    assert engine.life.compose()["incident"] == str(incident)


# --- steps that are none ---


def test_dummies_are_not_judged() -> None:
    engine = Engine()
    engine.run(3)
    before = engine.verdict()
    assert engine.runner.execute_model(None, None, True) == "dummy"
    assert engine.runner.execute_model(None, dummy_run=True) == "dummy"
    assert engine.verdict() == before


def test_steps_without_tokens_count_their_events() -> None:
    engine = Engine()
    engine.run(6)
    for name in list(engine.scheduler.running):
        engine.scheduler.abort(name)
    engine.scheduler.waiting.clear()
    output = engine.scheduler.schedule()
    assert not output.num_scheduled_tokens
    assert engine.step(output) == {}
    assert engine.life._session.stream.num_live == 0
    engine.run(6)
    assert engine.verdict()["verdict"] == "clean"


@pytest.mark.parametrize("place", ["state", "forward", "sample"])
def test_an_exception_of_the_engine_passes_through(place: str) -> None:
    engine = Engine()
    engine.run(5)

    def explode(*_: Any) -> None:
        raise ZeroDivisionError("the engine's own")

    engine.runner.faults[place] = explode
    with pytest.raises(ZeroDivisionError, match="the engine's own"):
        engine.step()
    assert engine.gaps() == {"step-abandoned": 1}
    assert engine.verdict()["verdict"] == "cannot_judge"


def test_a_step_whose_tokens_are_never_asked_for_is_a_gap() -> None:
    engine = Engine()
    engine.run(3)
    engine.worker.execute_model(engine.scheduler.schedule())
    engine.worker.execute_model(outputs.SchedulerOutput())
    assert engine.gaps() == {"step-abandoned": 1}


def test_sleep_forgets_and_never_accuses() -> None:
    engine = Engine()
    engine.run(6)
    engine.worker.sleep(1)
    engine.worker.wake_up()
    survivors = set(engine.scheduler.running)
    assert survivors
    engine.step()
    assert set(engine.gaps()) == {"request-from-before-reset"}
    for name in survivors:
        engine.scheduler.abort(name)
    judged = engine.verdict()["steps_judged"]
    engine.run(6)
    assert engine.verdict()["steps_judged"] == judged + 6, "new requests are judged as ever"
    assert engine.verdict()["proofs"] == 0


def test_a_cache_that_is_laid_out_anew() -> None:
    engine = Engine()
    engine.run(5)
    engine.worker.initialize_from_config()
    assert not engine.life._session.active
    assert engine.life.compose()["state"] == "not_armed"
    engine.worker.model_runner.rows.clear()
    engine.worker.compile_or_warm_up_model()
    assert engine.life.compose()["state"] == "armed"
    engine.scheduler = fake_vllm.Scheduler()
    engine.run(5)
    assert engine.verdict()["steps_judged"] == 10
    engine.worker.initialize_from_config()
    engine.runner.kv_cache_config.num_blocks = 39
    engine.worker.compile_or_warm_up_model()
    assert engine.life.compose()["state"] == "failed"
    assert engine.life.compose()["verdict"] == "cannot_judge"
    engine.run(3)
    assert engine.verdict()["steps_judged"] == 10
