# SPDX-License-Identifier: Apache-2.0
"""The worker of a guarded engine: the platform's own, with the guard at the ends of its life."""

from __future__ import annotations

import importlib
import os
from typing import Any

from kvguard import config
from kvguard.errors import ConfigError

BASE_WORKER = "KVGUARD_BASE_WORKER"
# Predicate of vLLM's current_platform -> the class that it puts in the place of worker_cls "auto".
PLATFORM_WORKERS = (
    ("is_cpu", "vllm.v1.worker.cpu_worker.CPUWorker"),
    ("is_xpu", "vllm.v1.worker.xpu_worker.XPUWorker"),
    ("is_cuda", "vllm.v1.worker.gpu_worker.Worker"),
    ("is_rocm", "vllm.v1.worker.gpu_worker.Worker"),
)
DEVICE_WORKERS = {
    "npu": "vllm_ascend.worker.worker.NPUWorker"
}  # platforms outside of vLLM, by device


def base_worker_name(platform: Any, environ: Any = os.environ) -> str:
    """The worker class that would run without the guard."""
    override = environ.get(BASE_WORKER, "").strip()
    if override:
        return override
    for predicate, name in PLATFORM_WORKERS:
        if getattr(platform, predicate, lambda: False)():
            return name
    device = getattr(platform, "device_name", "?")
    if device in DEVICE_WORKERS:
        return DEVICE_WORKERS[device]
    raise ConfigError(
        f"kvguard does not know the worker class of platform '{device}'; name it in {BASE_WORKER}, "
        "for example KVGUARD_BASE_WORKER=package.module.Worker"
    )


class WorkerHooks:
    """Mixed in front of the platform's worker class."""

    _kvguard: Any = None  # None: off, and every method is the base's

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        settings = config.read(getattr(self.vllm_config, "additional_config", None))
        if not settings.enabled:
            return
        if not getattr(self, "use_v2_model_runner", False):
            raise ConfigError(
                "kvguard is enabled, but this engine uses the V1 model runner, which it cannot "
                "guard. Set VLLM_USE_V2_MODEL_RUNNER=1, or disable the guard (kv_guard_config: "
                "enabled false)"
            )
        from kvguard.vllm.lifecycle import Lifecycle

        self._kvguard = Lifecycle(self, settings)

    def initialize_from_config(self, *args: Any, **kwargs: Any) -> Any:
        if self._kvguard is not None:
            self._kvguard.cache_initialised()
        return super().initialize_from_config(*args, **kwargs)

    def compile_or_warm_up_model(self, *args: Any, **kwargs: Any) -> Any:
        result = super().compile_or_warm_up_model(*args, **kwargs)
        if self._kvguard is not None:
            self._kvguard.arm()
        return result

    def sleep(self, *args: Any, **kwargs: Any) -> Any:
        result = super().sleep(*args, **kwargs)
        if self._kvguard is not None:
            self._kvguard.contents_lost()
        return result

    def wake_up(self, *args: Any, **kwargs: Any) -> Any:
        result = super().wake_up(*args, **kwargs)
        if self._kvguard is not None:
            self._kvguard.contents_lost()
        return result

    def shutdown(self, *args: Any, **kwargs: Any) -> Any:
        result = super().shutdown(*args, **kwargs)
        if self._kvguard is not None:
            self._kvguard.stop()
        return result


class RunnerFactoryHook:
    """For workers that make their runner in a method of its own: the runner leaves it as ours."""

    _kvguard: Any = None

    def _make_model_runner(self) -> Any:
        runner = super()._make_model_runner()
        if self._kvguard is not None:
            self._kvguard.adopt(runner)
        return runner


def guarded_worker(base: type) -> type:
    """A guarded subclass of a worker class."""
    hooks = (
        (WorkerHooks, RunnerFactoryHook) if hasattr(base, "_make_model_runner") else (WorkerHooks,)
    )
    names = {
        "__module__": "kvguard.vllm",
        "__qualname__": "GuardWorker",
        "__doc__": WorkerHooks.__doc__,
    }
    return type("GuardWorker", (*hooks, base), names)


def make_guard_worker() -> type:
    """GuardWorker for the platform of this process."""
    from vllm.platforms import current_platform

    module, _, name = base_worker_name(current_platform).rpartition(".")
    return guarded_worker(getattr(importlib.import_module(module), name))
