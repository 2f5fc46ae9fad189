# SPDX-License-Identifier: Apache-2.0
"""The adapter's probes on vLLM's classes, before any engine is made: what they can tell without a
model, a cache and a configuration. The rest is probed when the guard arms."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from kvguard.errors import ConfigError
from kvguard.vllm import probes
from kvguard.vllm.worker import base_worker_name

RUNNER_SWITCH = "VLLM_USE_V2_MODEL_RUNNER"
CPU_RUNNER = "vllm.v1.worker.cpu.model_runner.CPUModelRunner"
GPU_RUNNER = "vllm.v1.worker.gpu.model_runner.GPUModelRunner"
CONNECTOR = "vllm.v1.worker.gpu.kv_connector.KVConnector"
WORKER_METHODS = ("initialize_from_config", "compile_or_warm_up_model", "shutdown")
NEEDED = (
    "vllm.forward_context",
    "vllm.v1.attention.backends.utils",
    "kvguard.vllm.plan",
    "kvguard.vllm.runner",
    "kvguard.vllm.session",
)


def load(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    try:
        return probes.attribute(importlib.import_module(module), attribute, module)
    except ImportError as error:
        raise probes.NotArmed(f"{name} cannot be imported: {error}") from None


def unmade(cls: type) -> Any:
    """An instance without its state: enough to read the signatures of its methods."""
    return object.__new__(cls)


def model_runner() -> str | None:
    """Whether the V2 runner is what this environment gives. The model has its say where the switch
    is not set."""
    given = os.environ.get(RUNNER_SWITCH, "").strip().lower()
    if given in ("0", "false"):
        probes.fail(f"{RUNNER_SWITCH}={given}: an enabled guard is refused on the V1 runner")
    try:
        has_triton = getattr(importlib.import_module("vllm.triton_utils"), "HAS_TRITON", True)
    except ImportError:
        has_triton = True  # a vLLM that does not say so does not ask for it
    if not has_triton:
        probes.fail("the V2 runner needs Triton, which this environment does not have")
    if given:
        return f"on ({RUNNER_SWITCH}={given})"
    return f"{RUNNER_SWITCH} is not set: the model decides; `kvguard run` sets it"


def device(platform: Any) -> str | None:
    kind = str(getattr(platform, "device_type", "") or getattr(platform, "device_name", "?"))
    probes.probe_device(SimpleNamespace(device=SimpleNamespace(type=kind)))
    return None


def worker(platform: Any) -> str | None:
    try:
        name = base_worker_name(platform)
    except ConfigError as error:
        raise probes.NotArmed(str(error)) from None
    cls = load(name)
    missing = [method for method in WORKER_METHODS if not callable(getattr(cls, method, None))]
    if missing:
        probes.fail(f"{name} has no {missing}; this vLLM is not one that is known")
    return name


def runner(platform: Any) -> str | None:
    name = CPU_RUNNER if getattr(platform, "is_cpu", lambda: False)() else GPU_RUNNER
    probes.probe_runner_methods(unmade(load(name)))
    return name


def connector() -> str | None:
    probes.probe_connector(unmade(load(CONNECTOR)))
    return None


def scheduler_output() -> str | None:
    gaps = probes.probe_scheduler_output()
    return f"standing gaps: {', '.join(gaps)}" if gaps else None


def imports() -> str | None:
    for name in NEEDED:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise probes.NotArmed(f"{name} cannot be imported: {error}") from None
    return None


def tried(name: str, probe: Callable[[], str | None]) -> dict[str, Any]:
    try:
        return {"name": name, "passed": True, "reason": probe()}
    except probes.NotArmed as reason:
        return {"name": name, "passed": False, "reason": str(reason)}
    except Exception as error:  # noqa: BLE001  an engine that is not known fails in its own ways
        return {"name": name, "passed": False, "reason": f"{type(error).__name__}: {error}"}


def examine() -> dict[str, Any]:
    """Raises where vLLM itself cannot be imported."""
    engine = importlib.import_module("vllm")
    platform = importlib.import_module("vllm.platforms").current_platform
    return {
        "importable": True,
        "version": str(getattr(engine, "__version__", "")),
        "path": os.path.dirname(getattr(engine, "__file__", None) or "") or "?",
        "platform": str(getattr(platform, "device_name", "?")),
        "probes": [
            tried("model-runner", model_runner),
            tried("device", lambda: device(platform)),
            tried("worker", lambda: worker(platform)),
            tried("runner", lambda: runner(platform)),
            tried("connector", connector),
            tried("input-batch", lambda: probes.probe_input_batch()),
            tried("scheduler-output", scheduler_output),
            tried("imports", imports),
        ],
    }
