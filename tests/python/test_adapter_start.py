# SPDX-License-Identifier: Apache-2.0
"""How a guarded worker starts: its configuration, and engines that this version does not know."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fake_vllm
import outputs
import pytest
from kvguard import ConfigError, KVGuardError
from kvguard.vllm import probes, worker
from toy import ON, Engine, spoil_metadata

HERE = Path(__file__).parent


def test_off_is_the_base(capfd: pytest.CaptureFixture[str]) -> None:
    for guard in (None, {"enabled": False}):
        engine = Engine(guard)
        assert type(engine.runner) is fake_vllm.Runner
        assert type(engine.runner.kv_connector) is fake_vllm.KVConnector
    assert capfd.readouterr().err == ""


def test_off_loads_nothing() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import fake_vllm; fake_vllm.install();"
        "from kvguard.vllm import GuardWorker as W; w = W(fake_vllm.vllm_config());"
        "assert W is __import__('kvguard.vllm', fromlist=['x']).GuardWorker;"
        "assert issubclass(W, fake_vllm.CPUWorker) and W.__module__ == 'kvguard.vllm';"
        "print([m for m in sys.modules if m.startswith('kvguard')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(HERE)], capture_output=True, text=True, check=True
    )
    assert "kvguard._core" not in done.stdout
    assert "kvguard.vllm.lifecycle" not in done.stdout


def test_arming_line(capfd: pytest.CaptureFixture[str]) -> None:
    Engine()
    assert (
        "kvguard: armed before-write engine=vllm 0.0.fake groups=1 (full block 4) blocks=40 "
        "action=raise gaps=[prefix-content-unproved]\n"
    ) in capfd.readouterr().err


# --- configuration ---


@pytest.mark.parametrize(
    ("guard", "words"),
    [
        ({"enabled": True, "actoin": "log"}, "action"),
        ("{", "no JSON"),
        ([1], "one JSON object is wanted"),
        ("@/nonexistent.json", "cannot be read"),
    ],
)
def test_a_wrong_configuration_stops_the_start(guard: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Engine(guard)


def test_the_v1_runner_is_refused() -> None:
    with pytest.raises(ConfigError, match="VLLM_USE_V2_MODEL_RUNNER=1"):
        Engine(ON, use_v2_model_runner=False)
    assert Engine({"enabled": False}, use_v2_model_runner=False).life is None


def test_the_environment_is_the_other_door(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KVGUARD_CONFIG", '{"enabled": true, "action": "log"}')
    assert Engine(None).life._settings.action == "log"
    (tmp_path / "guard.json").write_text('{"enabled": true}')
    monkeypatch.setenv("KVGUARD_CONFIG", f"@{tmp_path}/guard.json")
    assert Engine(None).life._settings.action == "raise"
    assert Engine({"enabled": False}).life is None, "the engine's own option comes first"


def test_base_worker_by_platform() -> None:
    yes, no = (lambda: True), (lambda: False)
    name = worker.base_worker_name
    assert name(SimpleNamespace(is_cpu=yes), {}) == "vllm.v1.worker.cpu_worker.CPUWorker"
    assert name(SimpleNamespace(is_cpu=no, is_cuda=yes), {}) == "vllm.v1.worker.gpu_worker.Worker"
    assert name(SimpleNamespace(device_name="npu"), {}) == "vllm_ascend.worker.worker.NPUWorker"
    assert name(SimpleNamespace(), {"KVGUARD_BASE_WORKER": "a.B"}) == "a.B"
    with pytest.raises(ConfigError, match="KVGUARD_BASE_WORKER"):
        name(SimpleNamespace(device_name="abacus"), {})


# --- an engine that is not known ---


class Renamed(fake_vllm.Runner):
    prepare_attn = None  # type: ignore[assignment]


class Arity(fake_vllm.Runner):
    def prepare_attn(self, input_batch: Any, more: Any) -> Any: ...


class NoDummy(fake_vllm.Runner):
    def execute_model(self, scheduler_output: Any, intermediate_tensors: Any = None) -> Any: ...


class Sampler(fake_vllm.Runner):
    def sample_tokens(self, grammar_output: Any, more: Any) -> Any: ...


def change(path: str, value: Any) -> Any:
    def apply(engine_worker: Any) -> None:
        owner: Any = engine_worker
        *parents, last = path.split(".")
        for name in parents:
            owner = owner[int(name)] if name.isdigit() else getattr(owner, name)
        setattr(owner, last, value)

    return apply


def drop(path: str) -> Any:
    def apply(engine_worker: Any) -> None:
        owner: Any = engine_worker
        *parents, last = path.split(".")
        for name in parents:
            owner = getattr(owner, name)
        delattr(owner, last)

    return apply


RUNNER = "model_runner"
REASONS = [
    ("renamed method", change("model_runner.__class__", Renamed), "no method 'prepare_attn'"),
    (
        "arity",
        change("model_runner.__class__", Arity),
        r"prepare_attn needs \['input_batch', 'more'\]",
    ),
    ("dummy_run", change("model_runner.__class__", NoDummy), "no 'dummy_run'"),
    ("sample_tokens", change("model_runner.__class__", Sampler), "sample_tokens takes"),
    ("missing attribute", drop("model_runner.block_tables"), "no 'block_tables'"),
    ("device", change("model_runner.device", SimpleNamespace(type="cuda")), "staging"),
    (
        "tensor parallel",
        change("vllm_config.parallel_config.tensor_parallel_size", 2),
        "tensor parallelism",
    ),
    ("pipeline", change("vllm_config.parallel_config.pipeline_parallel_size", 2), "pipeline"),
    (
        "dcp",
        change("vllm_config.parallel_config.decode_context_parallel_size", 2),
        "decode context",
    ),
    (
        "pcp",
        change("vllm_config.parallel_config.prefill_context_parallel_size", 2),
        "prefill context",
    ),
    ("ranks", change("vllm_config.parallel_config.world_size", 2), "several ranks"),
    (
        "data parallel",
        change("vllm_config.parallel_config.data_parallel_size", 2),
        "data parallelism",
    ),
    ("dbo", change("vllm_config.parallel_config.enable_dbo", True), "dual-batch overlap"),
    ("speculation", change("vllm_config.speculative_config", object()), "speculative decoding"),
    ("encoder-decoder", change("model_runner.is_encoder_decoder", True), "encoder-decoder"),
    (
        "chunked group",
        change(
            "model_runner.kv_cache_config.kv_cache_groups.0.kv_cache_spec",
            fake_vllm.ChunkedLocalAttentionSpec(),
        ),
        "cache group 0 is a ChunkedLocalAttentionSpec",
    ),
    (
        "table unit",
        change("model_runner.block_tables.block_sizes", [2]),
        "the table's block size is 2",
    ),
    (
        "slot dtype",
        change(
            "model_runner.block_tables.slot_mappings",
            fake_vllm.Tensor(fake_vllm.np.zeros((1, 64), fake_vllm.np.float32)),
        ),
        "slots are torch.float32",
    ),
    ("connector", change("model_runner.kv_connector", object()), "no method 'pre_forward'"),
    ("no groups", change("model_runner.kv_cache_config.kv_cache_groups", []), "no KV cache"),
    (
        "elastic",
        change("model_runner.block_tables.redirect_writes_to_null_block", True),
        "null block",
    ),
]


@pytest.mark.parametrize(("alter", "reason"), [r[1:] for r in REASONS], ids=[r[0] for r in REASONS])
def test_not_armed_and_the_engine_is_as_it_was(
    alter: Any, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    guarded = worker.guarded_worker(fake_vllm.CPUWorker)(fake_vllm.vllm_config(ON))
    guarded.model_runner = fake_vllm.Runner()
    alter(guarded)
    before = (type(guarded.model_runner), dict(vars(guarded.model_runner)))
    guarded._kvguard.arm()
    assert guarded._kvguard.compose()["state"] == "not_armed"
    assert guarded._kvguard.compose()["verdict"] == "cannot_judge"
    line = capfd.readouterr().err
    assert line.startswith("kvguard: not armed: ")
    assert re.search(reason, line), line
    assert (type(guarded.model_runner), dict(vars(guarded.model_runner))) == before


def test_missing_scheduler_field(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["vllm.v1.core.sched.output"]
    monkeypatch.setattr(module, "NewRequestData", outputs.CachedRequestData)
    guarded = worker.guarded_worker(fake_vllm.CPUWorker)(fake_vllm.vllm_config(ON))
    guarded.model_runner = fake_vllm.Runner()
    with pytest.raises(probes.NotArmed, match=r"NewRequestData\.block_ids"):
        probes.probe(guarded)


def test_unknown_fields_of_a_later_release(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import dataclass

    @dataclass
    class SchedulerOutput(outputs.SchedulerOutput):
        block_table_updates: Any = None

    module = sys.modules["vllm.v1.core.sched.output"]
    monkeypatch.setattr(module, "SchedulerOutput", SchedulerOutput)
    monkeypatch.setattr(outputs, "SchedulerOutput", SchedulerOutput)
    engine = Engine()
    engine.run(6)
    name = "unknown-field:SchedulerOutput.block_table_updates"
    standing = [g["name"] for g in engine.life._guard.gaps() if g["standing"]]
    assert standing == [name, "prefix-content-unproved"]
    assert engine.verdict()["verdict"] == "clean", "at its default it says nothing"
    output = engine.scheduler.schedule()
    output.block_table_updates = {"a": 1}
    assert engine.step(output), "the engine runs on"
    assert engine.gaps() == {"unknown-field-in-use:SchedulerOutput.block_table_updates": 1}
    engine.run(6)
    assert engine.verdict()["proofs"] == 0
    assert engine.verdict()["verdict"] == "cannot_judge"


def test_an_output_that_cannot_be_read(caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine()
    engine.run(4)
    output = engine.scheduler.schedule()
    output.new_block_ids_to_zero = "text"
    with caplog.at_level(logging.WARNING):
        assert engine.step(output)
    assert "new_block_ids_to_zero is a str, not a list" in caplog.text
    assert engine.gaps() == {"scheduler-output-unreadable": 1}
    engine.run(8)
    assert engine.verdict()["proofs"] == 0


def test_plans_that_cannot_be_read(caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine()
    engine.run(3)

    def far_away(metadata: Any) -> None:
        metadata.block_table = fake_vllm.Tensor(metadata.block_table.array, is_cpu=False)

    engine.runner.faults["metadata"] = far_away
    with caplog.at_level(logging.WARNING):
        engine.step()
    assert "does not lie densely in host memory" in caplog.text
    assert engine.gaps()["plan-unreadable"] == 1
    assert engine.verdict()["proofs"] == 0


def test_backends_whose_metadata_class_is_not_told() -> None:
    class Untyped(fake_vllm.CPUWorker):
        def _make_model_runner(self) -> Any:
            runner = super()._make_model_runner()
            runner.attn_groups[0][0].get_metadata_builder = lambda _: object()
            return runner

    engine = Engine(ON, Untyped)
    engine.run(5)
    standing = [g["name"] for g in engine.life._guard.gaps() if g["standing"]]
    assert "final-metadata-unseen" in standing
    assert engine.verdict()["plans"] == 10, "what they show is judged all the same"

    def hide(metadata: Any) -> None:
        metadata.block_table = None

    engine = Engine(ON, Untyped)
    engine.runner.faults["metadata"] = hide
    engine.run(5)
    assert engine.verdict()["verdict"] == "clean"
    assert engine.verdict()["plans"] == 5
    assert engine.gaps() == {}


def test_backends_whose_metadata_cannot_be_seen() -> None:
    class Quiet(fake_vllm.CPUWorker):
        def _make_model_runner(self) -> Any:
            runner = super()._make_model_runner()
            runner.attn_groups[0][0].get_metadata_builder = None
            return runner

    engine = Engine(ON, Quiet)
    engine.run(5)
    standing = [g["name"] for g in engine.life._guard.gaps() if g["standing"]]
    assert "final-metadata-unseen" in standing
    assert engine.verdict()["verdict"] == "clean"
    assert not [c for c in engine.life._guard.coverage() if c["stage"] == "final"]


def test_fast_prefill_hides_the_final_metadata() -> None:
    class Reduced(fake_vllm.CPUWorker):
        def _make_model_runner(self) -> Any:
            runner = super()._make_model_runner()
            runner.fast_prefill = object()  # some layers get a batch of their own
            return runner

    engine = Engine(ON, Reduced)
    engine.run(5)
    standing = [g["name"] for g in engine.life._guard.gaps() if g["standing"]]
    assert "final-metadata-unseen" in standing
    assert engine.verdict()["verdict"] == "clean"
    assert engine.verdict()["plans"] == 5, "each step's plan as it was planned"


def test_several_backends_in_a_group_are_all_judged() -> None:
    class Two(fake_vllm.CPUWorker):
        def _make_model_runner(self) -> Any:
            runner = super()._make_model_runner()
            runner.attn_groups[0].append(fake_vllm.Backend(["other"]))
            return runner

    engine = Engine(ON, Two)
    engine.run(5)
    assert engine.verdict()["verdict"] == "clean"
    assert engine.verdict()["plans"] == 15
    made: list[Any] = []

    def second_only(metadata: Any) -> None:
        made.append(metadata)
        if len(made) == 2:
            spoil_metadata(metadata)

    engine.runner.faults["metadata"] = second_only
    with pytest.raises(KVGuardError, match="KV0501"):
        engine.step()


def test_a_slot_mapping_that_is_too_short_is_judged() -> None:
    engine = Engine()
    engine.run(4)

    def shorten(metadata: Any) -> None:
        metadata.slot_mapping = metadata.slot_mapping[: metadata.num_actual_tokens - 1]

    engine.runner.faults["metadata"] = shorten
    with pytest.raises(KVGuardError, match="KV0403 slot-pad"):
        engine.step()


@pytest.mark.parametrize("name", ["vllm.forward_context", "vllm.v1.outputs", "kvguard._core"])
def test_what_cannot_be_imported_is_a_reason(name: str, tmp_path: Path) -> None:
    """In a process of its own: modules that were imported stay."""
    code = (
        "import json, sys; sys.path.insert(0, sys.argv[1]); import fake_vllm; fake_vllm.install();"
        "sys.modules[sys.argv[2]] = None;"
        "from kvguard.vllm.worker import guarded_worker;"
        "on = {'enabled': True, 'status': sys.argv[3]};"
        "w = guarded_worker(fake_vllm.CPUWorker)(fake_vllm.vllm_config(on)); w.init_device();"
        "w.compile_or_warm_up_model(); w.execute_model(fake_vllm.warm_up());"
        "assert type(w.sample_tokens(None)) is fake_vllm.AsyncOutput; w.shutdown();"
        "told = json.load(open(sys.argv[3])); print(told['state'], told['reason'])"
    )
    arguments = [sys.executable, "-c", code, str(HERE), name, str(tmp_path / "status.json")]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("not_armed "), done.stdout
    assert name.rpartition(".")[2] in done.stdout
    assert "kvguard: not armed: " in done.stderr
