# SPDX-License-Identifier: Apache-2.0
"""What `kvguard doctor` learns of the Python side, and the self-test at arming."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fake_vllm
import pytest
from kvguard import _core, config, preflight, report
from kvguard.vllm import preflight as engine_preflight
from kvguard.vllm import probes
from toy import ON, Engine

HERE = Path(__file__).parent


def named(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {probe["name"]: probe for probe in answer["probes"]}


# --- the self-test at arming ---

TESTED = {"enabled": True, "self_test": True}


def test_the_self_test_is_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    engine = Engine(TESTED)
    families = {rule["family"] for rule in _core.rules()}
    line = capfd.readouterr().err
    assert line.endswith(f" self-test=planted faults of {len(families)} families found\n"), line
    told = engine.life.compose()
    assert told["state"] == "armed"
    assert told["self_test"] == f"planted faults of {len(families)} families found"
    engine.run(6)
    assert engine.verdict()["verdict"] == "clean"


def test_by_default_it_is_not_run(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def never() -> None:
        raise AssertionError("nobody asked for it")

    monkeypatch.setattr(_core, "selftest", never)
    for guard in (ON, {"enabled": True, "self_test": False}):
        engine = Engine(guard)
        assert engine.life.compose()["state"] == "armed"
        assert engine.life.compose()["self_test"] is None
    assert "self-test" not in capfd.readouterr().err
    assert config.read({"kv_guard_config": ON}, {}).self_test is False


def test_a_failed_self_test_is_not_armed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fails() -> None:
        raise _core.Error("self-test: armed but blind: family transfer: nothing was judged of 'x'")

    monkeypatch.setattr(_core, "selftest", fails)
    engine = Engine(TESTED)
    said = "self-test failed: armed but blind: family transfer: nothing was judged of 'x'"
    assert capfd.readouterr().err == f"kvguard: not armed: {said}\n"
    told = engine.life.compose()
    assert (told["state"], told["reason"]) == ("not_armed", said)
    assert told["verdict"] == "cannot_judge"
    assert type(engine.runner.kv_connector) is fake_vllm.KVConnector, "nothing was touched"
    engine.run(6)
    assert len(engine.tokens) == 6, "the engine runs unguarded"


def test_it_is_told_again_where_the_cache_is_laid_out_anew(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    runs: list[int] = []
    real = _core.selftest
    monkeypatch.setattr(_core, "selftest", lambda: (runs.append(1), real())[1])
    engine = Engine(TESTED)
    engine.worker.initialize_from_config()
    engine.worker.compile_or_warm_up_model()
    assert capfd.readouterr().err.count("self-test=planted faults of ") == 2
    assert len(runs) == 1


# --- armed but blind ---

VERDICT = {
    "verdict": "cannot_judge",
    "steps": 4,
    "steps_judged": 4,
    "step_gaps": 0,
    "violated_steps": 0,
    "plans": 4,
    "rows": 4,
    "slots": 4,
    "entries": 0,
    "ignored": 0,
    "suspicions": 0,
    "assumptions": 0,
}


def row(family: str, group: int | None, judged: int, expected: bool = True) -> dict[str, Any]:
    return {
        "family": family,
        "group": group,
        "pass": "target",
        "stage": "planned",
        "expected": expected,
        "judged": judged,
    }


def test_the_verdict_line_names_families_that_judged_nothing() -> None:
    coverage = [
        row("length", None, 0),
        row("table", 1, 0),
        row("slot", 1, 4),
        row("copy", None, 0, expected=False),
    ]
    line = report.verdict_line(VERDICT, [], coverage)
    assert line.endswith("gaps=[] blind=[length, table:1]")
    assert report.coverage_report(VERDICT, iter(coverage), []).startswith(line)
    assert "blind" not in report.verdict_line(VERDICT, [], [row("slot", 1, 4)])
    nothing = VERDICT | {"steps_judged": 0}
    assert "blind" not in report.verdict_line(nothing, [], coverage), "there was nothing to see"


# --- the package ---


def test_the_package_answers_for_itself() -> None:
    answer = preflight.answer(None)
    assert answer["kvguard"] == {
        "core": True,
        "version": _core.version,
        "self_test": "passed",
        "reason": None,
    }
    assert answer["vllm"]["probed"] is False, "no engine is imported that nobody asked for"
    assert "probes" not in answer["vllm"]


def test_a_wrong_module_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise _core.Error("self-test: family slot: 'x' gave nothing")

    monkeypatch.setattr(_core, "selftest", fails)
    assert preflight.package()["self_test"] == "family slot: 'x' gave nothing"
    monkeypatch.setitem(sys.modules, "kvguard._core", None)
    monkeypatch.delattr("kvguard._core", raising=False)
    found = preflight.package()
    assert found["core"] is False
    assert "cannot be loaded" in found["reason"]


def ask(program: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, as the command asks."""
    return subprocess.run(
        [sys.executable, "-c", program, str(HERE)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_stdout_is_the_answer_alone() -> None:
    done = ask(
        "import sys; sys.path.insert(0, sys.argv[1]); import fake_vllm; fake_vllm.install();"
        "from kvguard import preflight; from kvguard.vllm import preflight as p;"
        "real = p.examine; p.examine = lambda: (print('noise', flush=True), real())[1];"
        "sys.exit(preflight.main(['--engine', 'vllm']))"
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert "noise" in done.stderr
    assert answer["vllm"]["importable"] is True
    assert answer["vllm"]["version"] == "0.0.fake"


def test_without_vllm() -> None:
    done = ask(
        "import sys; from kvguard import preflight;"
        "preflight.installed = lambda: False; sys.exit(preflight.main(['--engine', 'vllm']))"
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)["vllm"]
    assert (answer["installed"], answer["probed"]) == (False, False)


def test_a_vllm_that_cannot_be_imported() -> None:
    done = ask(
        "import sys; from kvguard import preflight;"
        "preflight.installed = lambda: True; sys.modules['vllm'] = None;"
        "sys.exit(preflight.main(['--engine', 'vllm']))"
    )
    answer = json.loads(done.stdout)["vllm"]
    assert answer["importable"] is False
    assert "cannot be imported" in answer["reason"]


# --- the adapter's probes without an engine ---


def test_every_probe_passes_on_an_engine_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(engine_preflight.RUNNER_SWITCH, raising=False)
    answer = engine_preflight.examine()
    assert answer["platform"] == "cpu"
    assert {p["name"]: p["reason"] for p in answer["probes"] if not p["passed"]} == {}
    probes_by_name = named(answer)
    assert "is not set" in probes_by_name["model-runner"]["reason"]
    assert probes_by_name["worker"]["reason"] == "vllm.v1.worker.cpu_worker.CPUWorker"
    assert probes_by_name["runner"]["reason"] == engine_preflight.CPU_RUNNER
    monkeypatch.setenv(engine_preflight.RUNNER_SWITCH, "1")
    assert named(engine_preflight.examine())["model-runner"]["reason"].startswith("on ")


def test_the_v1_runner_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(engine_preflight.RUNNER_SWITCH, "0")
    probe = named(engine_preflight.examine())["model-runner"]
    assert probe["passed"] is False
    assert "V1 runner" in probe["reason"]


def test_no_triton_is_no_v2_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm.triton_utils", SimpleNamespace(HAS_TRITON=False))
    probe = named(engine_preflight.examine())["model-runner"]
    assert probe["passed"] is False
    assert "Triton" in probe["reason"]


def test_a_device_that_is_not_judged_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = SimpleNamespace(is_cpu=lambda: False, is_cuda=lambda: True, device_type="cuda")
    monkeypatch.setattr(sys.modules["vllm.platforms"], "current_platform", cuda)
    found = named(engine_preflight.examine())
    assert "staging" in found["device"]["reason"]
    assert found["worker"]["passed"] is False, "the fake has no worker for it"
    assert "gpu_worker" in found["worker"]["reason"]


class Arity(fake_vllm.Runner):
    def prepare_attn(self, input_batch: Any, more: Any) -> Any: ...


@pytest.mark.parametrize(
    ("module", "name", "value", "probe", "words"),
    [
        ("vllm.v1.worker.cpu.model_runner", "CPUModelRunner", Arity, "runner", "prepare_attn"),
        ("vllm.v1.worker.gpu.kv_connector", "KVConnector", object, "connector", "pre_forward"),
        ("vllm.v1.worker.gpu.input_batch", "InputBatch", object, "input-batch", "no dataclass"),
        (
            "vllm.v1.core.sched.output",
            "NewRequestData",
            fake_vllm.outputs.CachedRequestData,
            "scheduler-output",
            "block_ids",
        ),
        ("vllm.v1.worker.cpu_worker", "CPUWorker", object, "worker", "initialize_from_config"),
    ],
)
def test_an_engine_that_is_not_known_fails_by_name(
    module: str, name: str, value: Any, probe: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[module], name, value)
    found = named(engine_preflight.examine())
    assert found[probe]["passed"] is False
    assert words in found[probe]["reason"]
    assert [p for p in found if not found[p]["passed"]] == [probe], "the others still pass"


def test_a_module_that_is_not_there_fails_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm.forward_context", None)
    found = named(engine_preflight.examine())
    assert found["imports"]["passed"] is False
    assert "vllm.forward_context" in found["imports"]["reason"]


def test_a_probe_that_breaks_is_a_failed_probe() -> None:
    def breaks() -> str | None:
        raise RuntimeError("odd")

    assert engine_preflight.tried("x", breaks) == {
        "name": "x",
        "passed": False,
        "reason": "RuntimeError: odd",
    }
    with pytest.raises(probes.NotArmed):
        engine_preflight.load("vllm.nowhere.Thing")
