# SPDX-License-Identifier: Apache-2.0
"""The guard as a vLLM worker's process sees it: the walk over a scheduler output, and a plan.

Scheduler outputs are unpickled anew for every step, as they are in a worker: request ids are then
strings whose hash nobody has computed yet, which is a good part of what the walk costs.
"""

from __future__ import annotations

import pickle
import statistics
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

STEPS = 40  # measured in a round
SETTLE = 8  # at its start that are not


@dataclass
class NewRequestData:
    """The fields of vLLM's class that decide addresses."""

    req_id: str
    block_ids: tuple[list[int], ...]
    num_computed_tokens: int
    prefill_token_ids: list[int]


@dataclass
class CachedRequestData:
    """The same."""

    req_ids: list[str] = field(default_factory=list)
    new_block_ids: list[tuple[list[int], ...] | None] = field(default_factory=list)
    num_computed_tokens: list[int] = field(default_factory=list)
    resumed_req_ids: set[str] = field(default_factory=set)


@dataclass
class SchedulerOutput:
    """The same."""

    scheduled_new_reqs: list[NewRequestData] = field(default_factory=list)
    scheduled_cached_reqs: CachedRequestData = field(default_factory=CachedRequestData)
    num_scheduled_tokens: dict[str, int] = field(default_factory=dict)
    scheduled_spec_decode_tokens: dict[str, list[int]] = field(default_factory=dict)
    finished_req_ids: set[str] = field(default_factory=set)
    preempted_req_ids: set[str] | None = None


@dataclass
class Request:
    """A request of the engine."""

    req_id: str
    computed: int
    query: int
    blocks: list[int]


class GuardLane:
    """An engine without a model on one scenario, and the guard beside it."""

    def __init__(self, core: Any, scenario: dict[str, Any]) -> None:
        self.block_size: int = scenario["block_size"]
        rows = scenario["steps"][0]["rows"]
        self.decodes = [row["start"] for row in rows if row["query"] == 1]
        self.prefills = [row["query"] for row in rows if row["query"] > 1]
        longest = max([*self.prefills, *(start + SETTLE + STEPS for start in self.decodes)])
        columns = -(-2 * longest // self.block_size)
        self.free = deque(range(1, 2 * len(rows) * columns))
        self.core = core
        self.guard = core.Guard(
            {
                "engine": "bench",
                "pools": [{"num_blocks": len(self.free) + 1, "null_block": 0}],
                "groups": [{"kind": "full", "block_size": self.block_size, "max_columns": columns}],
                "max_rows": len(rows),
                "max_tokens": longest + len(rows),
            }
        )
        self.stream = core.vllm.Stream(self.guard)
        self.table = np.zeros((len(rows), columns), np.int32)
        self.slots = np.zeros(longest + len(rows), np.int64)
        self.query_start = np.zeros(len(rows) + 1, np.int32)
        self.seq_lens = np.zeros(len(rows), np.int32)
        self.running: list[Request] = []
        self.finished: set[str] = set()
        self.serial = 0

    def _grow(self, request: Request) -> list[int]:
        need = -(-(request.computed + request.query) // self.block_size) - len(request.blocks)
        fresh = [self.free.popleft() for _ in range(need)]
        request.blocks += fresh
        return fresh

    def _admit(self, tokens: int) -> Request:
        self.serial += 1
        request = Request(f"cmpl-{self.serial:032x}-0", 0, tokens, [])
        self._grow(request)
        return request

    def _finish(self, requests: list[Request]) -> None:
        for request in requests:
            self.finished.add(request.req_id)
            self.free.extend(request.blocks)

    def _step(self, new: list[Request], cached: list[Request]) -> tuple[int, int]:
        """Schedules, plans and feeds one step; nanoseconds of the walk and of the plan."""
        output = SchedulerOutput(finished_req_ids=self.finished)
        self.finished = set()
        data = output.scheduled_cached_reqs
        for request in cached:
            fresh = self._grow(request)
            data.req_ids.append(request.req_id)
            data.new_block_ids.append((fresh,) if fresh else None)
            data.num_computed_tokens.append(request.computed)
        for request in new:
            tokens = [0] * request.query
            output.scheduled_new_reqs.append(
                NewRequestData(request.req_id, (list(request.blocks),), 0, tokens)
            )
        batch = [*cached, *new]
        output.num_scheduled_tokens = {request.req_id: request.query for request in batch}

        token = 0
        for b, request in enumerate(batch):
            end = request.computed + request.query
            positions = np.arange(request.computed, end)
            self.table[b, : len(request.blocks)] = request.blocks
            self.slots[token : token + request.query] = (
                self.table[b, positions // self.block_size] * self.block_size
                + positions % self.block_size
            )
            token += request.query
            self.query_start[b + 1] = token
            self.seq_lens[b] = end
        i32, i64 = self.core.I32, self.core.I64
        slots = (0, self.slots.ctypes.data, token, i64)
        table = (self.table.ctypes.data, i32, len(batch), self.table.shape[1], self.table.shape[1])
        groups = ((*slots, *table, 0, 0, 0),)
        query_start = (self.query_start.ctypes.data, len(batch) + 1, i32)
        seq_lens = (self.seq_lens.ctypes.data, len(batch), i32)

        received = pickle.loads(pickle.dumps(output))
        req_ids = list(received.num_scheduled_tokens)
        stream, stage, rows = self.stream, self.core.STAGE_PLANNED, len(batch)
        clock = time.perf_counter_ns
        start = clock()
        flags = stream.begin(received)
        walked = clock()
        flags |= stream.plan(
            stage, req_ids, rows, token, token, query_start, seq_lens, None, groups
        )
        planned = clock()
        flags |= stream.end()
        if flags:
            raise RuntimeError(f"the guard's answer is {flags:#x}: {stream.sentence}")
        for request in batch:
            request.computed += request.query
        return walked - start, planned - walked

    def round(self) -> dict[str, float]:
        """Medians in microseconds."""
        self._finish(self.running)
        self.running = []
        for start in self.decodes:
            request = self._admit(start)
            self._step([request], [])
            request.query = 1
            self.running.append(request)
        walks, plans = [], []
        prefilled: list[Request] = []
        for i in range(SETTLE + STEPS):
            self._finish(prefilled)
            prefilled = [self._admit(query) for query in self.prefills]
            walk, plan = self._step(prefilled, self.running)
            if i >= SETTLE:
                walks.append(walk)
                plans.append(plan)
        self._finish(prefilled)
        verdict = self.guard.verdict()
        if verdict["verdict"] != "clean":
            raise RuntimeError(f"the verdict is {verdict['verdict']}: {self.guard.findings()[:1]}")
        return {
            "python_walk": statistics.median(walks) / 1000,
            "python_plan": statistics.median(plans) / 1000,
        }
