# SPDX-License-Identifier: Apache-2.0
"""Engines that are not the known one: the guard says so and they run, or the start is refused."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import pytest
from kvguard import ConfigError
from kvguard.vllm.worker import guarded_worker
from rig.engine import Engine
from vllm.v1.core.sched import output as vllm_output

from slice.planting import FaultyWorker, exchange

PROMPT = list(range(5, 45))
CONFIG = {"kv_guard_config": {"enabled": True, "action": "raise"}}


class _Renamed:
    """A runner whose prepare_attn is gone: an engine of another version."""

    def __getattribute__(self, base: type, name: str) -> Any:
        if name == "prepare_attn" and self.kvguard_hidden:
            raise AttributeError(name)
        return base.__getattribute__(self, name)


class _OtherArity:
    """A runner whose prepare_attn wants one argument more."""

    def prepare_attn(self, base: type, input_batch: Any) -> Any:
        return base.prepare_attn(self, input_batch)


def _two_arguments(self: Any, input_batch: Any, common: Any) -> None:
    """Only its signature is looked at."""


class RenamedWorker(FaultyWorker):
    """Its runner has no prepare_attn as long as the guard looks; then it runs as ever."""

    def init_device(self) -> None:
        super().init_device()
        exchange(self.model_runner, _Renamed, kvguard_hidden=False)

    def compile_or_warm_up_model(self) -> Any:
        result = super().compile_or_warm_up_model()
        type(self.model_runner).kvguard_hidden = True
        return result

    def execute_model(self, scheduler_output: Any) -> Any:
        for base in type(self.model_runner).__mro__:
            if "kvguard_hidden" in vars(base):
                base.kvguard_hidden = False
        return super().execute_model(scheduler_output)


class OtherArityWorker(FaultyWorker):
    """Its runner's prepare_attn looks as if it needed two arguments."""

    def init_device(self) -> None:
        super().init_device()
        exchange(self.model_runner, _OtherArity)
        method = vars(type(self.model_runner))["prepare_attn"]
        functools.update_wrapper(method, _two_arguments)


class NewFieldWorker(FaultyWorker):
    """Its scheduler outputs have a field that nobody knows; `used`: from the third step on."""

    used = False

    def execute_model(self, scheduler_output: Any) -> Any:
        in_use = self.used and self.kvguard_plan.step >= 3
        scheduler_output.block_table_updates = {"r": [1]} if in_use else None
        return super().execute_model(scheduler_output)


class NewFieldInUseWorker(NewFieldWorker):
    used = True


RenamedGuard = guarded_worker(RenamedWorker)
OtherArityGuard = guarded_worker(OtherArityWorker)
NewFieldGuard = guarded_worker(NewFieldWorker)
NewFieldInUseGuard = guarded_worker(NewFieldInUseWorker)


def tokens_of(
    worker_cls: str, additional_config: dict[str, Any] | None = CONFIG
) -> tuple[Any, Any, Any]:
    """The tokens of one request, whether the guard is active, and its account."""
    with Engine(worker_cls=worker_cls, additional_config=additional_config) as engine:
        engine.add("r", PROMPT, 8)
        while engine.busy:
            engine.step()
        session = getattr(engine.runner, "kvguard_session", None)
        active = session is not None and session.active
        account = (session.guard.verdict(), session.guard.gaps()) if active else None
        return engine.tokens["r"], active, account


@pytest.fixture(scope="module")
def right_tokens() -> Any:
    return tokens_of("auto", None)[0]


@pytest.mark.parametrize(
    ("worker_cls", "reason"),
    [("RenamedGuard", "prepare_attn"), ("OtherArityGuard", "prepare_attn needs")],
)
def test_an_unknown_runner_is_not_armed_and_runs(
    worker_cls: str,
    reason: str,
    right_tokens: Any,
    capfd: pytest.CaptureFixture[str],
    figures: list[str],
) -> None:
    tokens, active, _ = tokens_of(f"slice.test_wrong_engine.{worker_cls}")
    assert tokens == right_tokens
    assert not active
    said = [
        line
        for line in capfd.readouterr().err.splitlines()
        if line.startswith("kvguard: not armed: ")
    ]
    assert said and reason in said[0], said
    figures.append(f"{worker_cls}: {said[0]}")


def test_an_unknown_field_at_its_default_is_a_standing_gap(
    right_tokens: Any, monkeypatch: pytest.MonkeyPatch, figures: list[str]
) -> None:
    # A later vLLM declares the field; the probes look at the declared type.
    known = vllm_output.SchedulerOutput
    fields = [("block_table_updates", Any, dataclasses.field(default=None))]
    later = dataclasses.make_dataclass("SchedulerOutput", fields, bases=(known,))
    monkeypatch.setattr(vllm_output, "SchedulerOutput", later)
    tokens, active, (verdict, gaps) = tokens_of("slice.test_wrong_engine.NewFieldGuard")
    assert tokens == right_tokens
    assert active
    assert verdict["violated_steps"] == 0
    names = [(g["name"], bool(g["standing"])) for g in gaps]
    assert any("block_table_updates" in name for name, _ in names), names
    assert all(standing for _, standing in names)
    assert verdict["step_gaps"] == 0, gaps
    assert verdict["verdict"] == "clean"
    figures.append(f"unknown field at its default: armed, clean, standing gaps {names}")


def test_an_unknown_field_in_use_makes_its_steps_unjudged(
    right_tokens: Any, figures: list[str]
) -> None:
    tokens, active, (verdict, gaps) = tokens_of("slice.test_wrong_engine.NewFieldInUseGuard")
    assert tokens == right_tokens
    assert active
    assert verdict["violated_steps"] == 0
    assert verdict["verdict"] == "cannot_judge"
    in_use = [g for g in gaps if not g["standing"] and "block_table_updates" in g["name"]]
    assert in_use, gaps
    assert verdict["steps_judged"] >= 2
    figures.append(
        f"unknown field in use: {in_use[0]['name']} in {in_use[0]['count']} steps, cannot_judge"
    )


def test_the_v1_runner_is_refused() -> None:
    with pytest.raises(Exception) as caught:
        Engine(
            worker_cls="kvguard.vllm.GuardWorker",
            additional_config=CONFIG,
            environ={"VLLM_USE_V2_MODEL_RUNNER": "0"},
        )
    chain: list[BaseException] = []
    error: BaseException | None = caught.value
    while error is not None:
        chain.append(error)
        error = error.__cause__ or error.__context__
    assert any(isinstance(e, ConfigError) and "V1 model runner" in str(e) for e in chain), chain


def test_an_invalid_configuration_stops_the_start() -> None:
    with pytest.raises(ConfigError, match="nearest known key"):
        Engine(
            worker_cls="kvguard.vllm.GuardWorker",
            additional_config={"kv_guard_config": {"enabled": True, "actoin": "log"}},
        )
