# SPDX-License-Identifier: Apache-2.0
"""Gives back asynchronous scheduling, which vLLM's CPU platform switches off ("not required").

The scheduler, the batch queue and the runner do it on a CPU as they do elsewhere. Where
KVGUARD_RIG_ASYNC is 1 when an engine starts, what its configuration says stands.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

VARIABLE = "KVGUARD_RIG_ASYNC"
_PLATFORM = "vllm.platforms.cpu"


def _keep(module: ModuleType) -> None:
    platform = module.CpuPlatform
    check = platform.check_and_update_config.__func__

    def check_and_update_config(cls: type, vllm_config: Any) -> None:
        wanted = vllm_config.scheduler_config.async_scheduling
        check(cls, vllm_config)
        if os.environ.get(VARIABLE) == "1":
            vllm_config.scheduler_config.async_scheduling = wanted

    platform.check_and_update_config = classmethod(check_and_update_config)


class _Finder(MetaPathFinder):
    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The platform's module as ever, changed when it has been executed."""
        if fullname != _PLATFORM:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            _keep(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def install() -> None:
    """Before vllm is imported."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
