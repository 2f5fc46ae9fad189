# SPDX-License-Identifier: Apache-2.0
"""guard(model) as a program uses it: generate_batch, managers, and what goes wrong."""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kvguard.errors import ConfigError, KVGuardError
from kvguard.transformers import guard, plan

from tests.hf import engine

INPUTS = engine.prompts([20, 33, 13], seed=3)


@pytest.fixture(scope="module")
def model() -> Any:
    return engine.model("llama")


@pytest.fixture(scope="module")
def expected(model) -> list[list[int]]:
    return engine.plain(model, INPUTS, engine.generation())


def generate(model: Any) -> list[list[int]]:
    return engine.batched(model, INPUTS, engine.batching(), engine.generation())


@pytest.fixture
def processors(model) -> Any:
    """on(work): work(processor) is called for every processor, before any guard sees it."""

    def on(work: Callable[[Any], None]) -> None:
        made = type(model).init_continuous_batching

        def factory(*args: Any, **kwargs: Any) -> Any:
            manager = made(model, *args, **kwargs)
            create = manager._create_batch_processor

            def create_and_work() -> Any:
                old = getattr(manager, "batch_processor", None)
                processor = create()
                if processor is not old:
                    work(processor)
                return processor

            manager._create_batch_processor = create_and_work
            return manager

        model.init_continuous_batching = factory

    yield on
    vars(model).pop("init_continuous_batching", None)


def wrong_read(at: int) -> Callable[[Any], None]:
    """Swaps two entries of the first row's list in the plan of a step."""

    def work(processor: Any) -> None:
        ios, steps = processor.inputs_and_outputs, [0]
        inner = ios.get_model_kwargs

        def kwargs(*args: Any, **more: Any) -> Any:
            batch = inner(*args, **more)
            steps[0] += 1
            if steps[0] == at:
                batch["read_index"][0][:2] = batch["read_index"][0][:2].flip(0)
            return batch

        ios.get_model_kwargs = kwargs

    return work


def test_a_healthy_run_is_clean_and_says_what_generate_says(model, expected):
    with guard(model) as g:
        assert generate(model) == expected
    assert g.verdict == "clean"
    assert g.findings == [] and g.reasons == []
    judged = {row["family"] for row in g.coverage if row["judged"]}
    assert {"step", "binding", "table", "slot", "length", "frontier"} <= judged
    assert all(gap["standing"] for gap in g.gaps)


def test_a_violation_reaches_the_caller_by_the_name_of_its_request(model, processors):
    processors(wrong_read(at=4))
    with guard(model) as g, pytest.raises(KVGuardError, match=r"KV0301 .* step=4 .* req=req_\d"):
        generate(model)
    assert g.verdict == "violated"
    assert g.findings[0].values["step"] == 4
    assert g.incident is not None and Path(g.incident).stat().st_size > 0


def test_a_violation_that_nobody_asked_for_leaves_the_with_statement(model, processors):
    processors(wrong_read(at=4))
    with pytest.raises(KVGuardError, match="KV0301"), guard(model):
        config, generation = engine.batching(), engine.generation()
        manager = model.init_continuous_batching(
            generation_config=generation, continuous_batching_config=config
        )
        manager.start()
        manager.add_request(INPUTS[0], request_id="mine", max_new_tokens=12)
        output = manager.get_result(timeout=60)
        assert "KV0301" in output.error and "req=mine" in output.error
        manager.stop()


def test_log_mode_reports_and_lets_pass(model, processors):
    processors(wrong_read(at=4))
    with guard(model, action="log") as g:
        outputs = generate(model)
    assert [len(tokens) for tokens in outputs] == [12, 12, 12]
    assert g.verdict == "violated"


def test_nothing_judged_is_no_pass(model):
    with guard(model) as g:
        pass
    assert g.verdict == "cannot_judge"
    assert "nothing ran" in g.report()


@pytest.mark.parametrize("method", ["read", "_total_lengths"])
def test_a_failure_of_the_guard_is_never_the_engines_problem(model, expected, monkeypatch, method):
    def broken(*args: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(plan.PlanReader, method, broken)
    with guard(model) as g:
        assert generate(model) == expected
    assert g.verdict == "cannot_judge"
    assert any(gap["name"].startswith("guard-internal-error") for gap in g.gaps)


def test_a_failure_of_the_engine_is_a_gap(model, processors):
    def work(processor: Any) -> None:
        calls = [0]
        inner = processor.model_runner.compute_batch

        def compute(*args: Any) -> Any:
            calls[0] += 1
            if calls[0] == 3:
                raise MemoryError("no memory for the forward")
            return inner(*args)

        processor.model_runner.compute_batch = compute

    processors(work)
    with guard(model) as g:
        generate(model)
    assert g.verdict == "cannot_judge"
    assert "step-abandoned" in {gap["name"] for gap in g.gaps}


def test_an_unknown_layout_is_not_armed_and_runs(model, expected, processors, capfd):
    def work(processor: Any) -> None:
        if hasattr(processor.cache, "cache_allocators"):
            processor.cache.pool.num_reserved_sectors = None
        else:
            processor.cache.layer_index_to_group_indices = Layers(
                processor.cache.layer_index_to_group_indices
            )

    class Layers:
        def __init__(self, places: Any) -> None:
            self.places = places

        def __getitem__(self, layer: int) -> Any:
            return self.places[layer]

    processors(work)
    with guard(model) as g:
        assert generate(model) == expected
    assert g.verdict == "cannot_judge"
    assert "unknown layout" in g.reasons[0]
    assert "kvguard: not armed: unknown layout" in capfd.readouterr().err


def test_a_model_without_a_factory_is_not_armed():
    with guard(object()) as g:
        pass
    assert g.verdict == "cannot_judge"
    assert "object has no init_continuous_batching" in g.reasons[0]


def test_a_manager_that_there_is_already(model, expected):
    manager = model.init_continuous_batching(
        generation_config=engine.generation(), continuous_batching_config=engine.batching()
    )
    with guard(manager) as g:
        manager.start()
        names = [manager.add_request(t, max_new_tokens=12) for t in INPUTS]
        outputs = {}
        while len(outputs) < len(names):
            output = manager.get_result(timeout=60)
            outputs[output.request_id] = list(output.generated_tokens)
        manager.stop()
    assert [outputs[name] for name in names] == expected
    assert g.verdict == "clean"


def test_blocks_that_were_filled_before_the_guard_came_are_no_finding(model, expected):
    def run() -> list[list[int]]:
        outputs = model.generate_batch(
            INPUTS,
            generation_config=engine.generation(),
            continuous_batching_config=engine.batching(),
            persistent_manager=True,
        )
        return [list(output.generated_tokens) for output in outputs.values()]

    try:
        assert run() == expected
        with guard(model) as g:
            assert run() == expected
            assert run() == expected
        assert g.verdict == "clean", g.report()
        assert run() == expected
    finally:
        model.destroy_cached_continuous_batching_manager()


def members() -> dict[str, dict[str, Any]]:
    """Every module and class of continuous batching, and the model's class, by name."""
    root = importlib.import_module("transformers.generation.continuous_batching")
    found = {}
    names = [name for _, name, _ in pkgutil.walk_packages(root.__path__, root.__name__ + ".")]
    for name in [root.__name__, *names]:
        module = importlib.import_module(name)
        found[name] = dict(vars(module))
        for key, value in vars(module).items():
            if inspect.isclass(value) and value.__module__.startswith(root.__name__):
                found[f"{name}.{key}"] = dict(vars(value))
    return found


def test_the_library_and_the_callers_instances_stay_as_they_were(model):
    classes, before = members(), set(vars(model))
    with guard(model):
        inside = members()
        generate(model)
    for then, now in ((classes, inside), (classes, members())):
        assert then.keys() == now.keys()
        for name, values in then.items():
            changed = {
                k for k in values.keys() | now[name].keys() if values.get(k) is not now[name].get(k)
            }
            # Python's own bookkeeping of abstract classes, and of annotations on demand.
            assert changed <= {"_abc_impl", "__annotations__", "__annotations_cache__"}, name
    assert set(vars(model)) == before


def test_an_option_that_there_is_not_is_refused(model):
    with pytest.raises(ConfigError, match="action"):
        guard(model, actoin="raise")


SCRIPT = """
from tests.hf import engine
import kvguard.transformers
model = engine.model("llama")
with kvguard.transformers.guard(model) as g:
    engine.batched(model, engine.prompts([20, 33], 3), engine.batching(), engine.generation())
"""


def test_kvguard_run_ends_with_the_verdict(tmp_path):
    command = Path(os.environ.get("KVGUARD_BUILD", "build")) / "kvguard"
    script = tmp_path / "serve.py"
    script.write_text(SCRIPT)
    ended = subprocess.run(
        [
            str(command.resolve()) if command.exists() else "kvguard",
            "run",
            "--",
            sys.executable,
            str(script),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=dict(os.environ),
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "kvguard: clean steps=12" in ended.stdout + ended.stderr
