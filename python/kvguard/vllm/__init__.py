# SPDX-License-Identifier: Apache-2.0
"""The guard for vLLM's Model Runner V2: `--worker-cls kvguard.vllm.GuardWorker`.

GuardWorker is made when it is first asked for, from the worker class that the platform would have
chosen.
"""

from __future__ import annotations

from typing import Any

__all__ = ["GuardWorker"]


def __getattr__(name: str) -> Any:
    if name == "GuardWorker":
        from kvguard.vllm.worker import make_guard_worker

        worker = make_guard_worker()
        globals()["GuardWorker"] = worker  # one class for the life of the process
        return worker
    raise AttributeError(f"module 'kvguard.vllm' has no attribute '{name}'")
