# SPDX-License-Identifier: Apache-2.0
"""The toy engine with the guard on, and faults to plant in it."""

from __future__ import annotations

from typing import Any

import fake_vllm

fake_vllm.install()
from kvguard.vllm import worker  # noqa: E402

ON = {"enabled": True}


class Engine:
    """The toy engine with the guard on, started as an executor would."""

    def __init__(self, guard: Any = ON, base: type = fake_vllm.CPUWorker, **changes: Any) -> None:
        self.worker = worker.guarded_worker(base)(fake_vllm.vllm_config(guard, **changes))
        self.worker.init_device()
        self.worker.initialize_from_config()
        assert self.worker.compile_or_warm_up_model() == "times"
        self.scheduler = fake_vllm.Scheduler(base.groups)
        self.tokens: list[dict[str, int]] = []
        self.names = 0

    @property
    def runner(self) -> Any:
        return self.worker.model_runner

    @property
    def life(self) -> Any:
        return self.worker._kvguard

    def step(self, output: Any = None) -> Any:
        output = self.scheduler.schedule() if output is None else output
        result = self.worker.execute_model(output)
        if result is None:
            result = self.worker.sample_tokens(None)
        if hasattr(result, "get_output"):
            result = result.get_output()
        self.tokens.append(result)
        return result

    def run(self, steps: int) -> None:
        for i in range(steps):
            if i % 3 == 0:
                self.scheduler.add(f"request{self.names}", 3 + 5 * i % 17)
                self.names += 1
            if i % 7 == 6:
                self.scheduler.abort(next(iter(self.scheduler.running)))
            self.step()

    def verdict(self) -> dict[str, Any]:
        return self.life._guard.verdict()

    def gaps(self) -> dict[str, int]:
        return {g["name"]: g["count"] for g in self.life._guard.gaps() if not g["standing"]}


def spoil_table(tables: Any, slots: Any) -> None:
    tables[0].array[0, 0] = 39


def spoil_metadata(metadata: Any) -> None:
    metadata.seq_lens = fake_vllm.Tensor(metadata.seq_lens.array.copy())
    metadata.seq_lens.array[0] += 1


def spoil_state(runner: Any) -> None:
    runner.computed[next(iter(runner.rows.values()))] += 1
