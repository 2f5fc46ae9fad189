# SPDX-License-Identifier: Apache-2.0
"""Plants faults in a real engine with several cache groups, below the guard.

`FaultyGuardWorker` is the guard's subclass of a CPUWorker whose runner, block tables and model
state are of faulty subclasses. Which fault, and from which step on, comes from the environment, as
in slice/planting.py. A fault is planted once, at the first step whose situation allows it, and
`planted` says where.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import torch
from kvguard.vllm.worker import guarded_worker
from slice.planting import AFTER, FAULT, Planted, exchange
from vllm.v1.worker.cpu_worker import CPUWorker


@dataclass
class Plan:
    """The fault to plant and what became of it; `rows` is the worker's own picture of every row."""

    fault: Fault | None
    after: int
    step: int = 0
    live: bool = False  # warm-up is over
    planted: Planted | None = None
    rows: dict[str, list[list[int]]] = field(default_factory=dict)  # of each group
    computed: dict[str, int] = field(default_factory=dict)  # before this step, as scheduled
    scheduled: dict[str, int] = field(default_factory=dict)
    drafts: dict[str, int] = field(default_factory=dict)  # of them

    @property
    def due(self) -> bool:
        """Whether the fault may be planted in this step."""
        waits = self.planted is None and self.step >= self.after
        return self.live and self.fault is not None and waits

    def follow(self, output: Any) -> None:
        """Keeps the rows, as the scheduler means them."""
        for request in output.finished_req_ids | (output.preempted_req_ids or set()):
            self.rows.pop(request, None)
        for new in output.scheduled_new_reqs:
            self.rows[new.req_id] = [list(ids) for ids in new.block_ids]
            self.computed[new.req_id] = new.num_computed_tokens
        cached = output.scheduled_cached_reqs
        for request, blocks, computed in zip(
            cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True
        ):
            self.computed[request] = computed
            for row, more in zip(self.rows[request], blocks or (), strict=bool(blocks)):
                row.extend(more)
        self.scheduled = dict(output.num_scheduled_tokens)
        drafts = output.scheduled_spec_decode_tokens
        self.drafts = {request: len(drafts.get(request, ())) for request in self.scheduled}

    def set(self, request: str, what: str) -> None:
        """The fault stands."""
        self.planted = Planted(self.step, request, what)


@dataclass
class Engine:
    """What a fault may look at."""

    plan: Plan
    runner: Any
    batch: Any = None  # of this step, when it is made

    def goes_on(self, request: str, steps: int = 2) -> bool:
        """Whether it has tokens left for some more steps, whatever is accepted."""
        states = self.runner.req_states
        slot = states.req_id_to_index[request]
        most = (1 + self.runner.num_speculative_steps) * steps
        return int(states.total_len.gpu[slot]) + most < int(states.max_seq_len[slot])

    @property
    def sizes(self) -> list[int]:
        """Tokens of a block, of each group."""
        return self.runner.block_tables.block_sizes

    @property
    def windows(self) -> list[int]:
        """Of each group; 0 where it has none."""
        groups = self.runner.kv_cache_config.kv_cache_groups
        return [getattr(g.kv_cache_spec, "sliding_window", None) or 0 for g in groups]

    @property
    def full(self) -> int:
        """The group without a window."""
        return self.windows.index(0)

    def first_needed(self, group: int, computed: int) -> int:
        """The first column that the next token, at `computed`, still reads."""
        window = self.windows[group]
        return max(0, computed - window + 1) // self.sizes[group] if window else 0


class Fault:
    """One kind of fault: the method of its point is overridden."""

    def output(self, engine: Engine, output: Any) -> None:
        """Point a; the plan's rows are still those of the step before."""

    def state(self, engine: Engine, output: Any) -> None:
        """Point b, before the runner follows the output."""

    def append(self, engine: Engine, row: int, blocks: tuple[list[int], ...]) -> Any:
        """Point b: what the runner appends instead; None: nothing is changed."""

    def inputs(self, engine: Engine, batch: Any) -> None:
        """Point b, when the batch is made."""

    def planned(self, engine: Engine, batch: Any, tables: Any, slots: torch.Tensor) -> None:
        """Point c."""

    def metadata(self, engine: Engine, batch: Any, made: dict[str, Any]) -> None:
        """Point d."""

    def sampled(self, engine: Engine, batch: Any, sampled: Any, rejected: Any) -> None:
        """Point s: the counts are changed in place."""

    def counted(self, engine: Engine, batch: Any, rejected: torch.Tensor) -> torch.Tensor:
        """Point u: what the runner takes off its counts."""
        return rejected

    def proposing(self, engine: Engine, batch: Any, rejected: torch.Tensor) -> torch.Tensor:
        """Point b: what the draft model is told was rejected."""
        return rejected

    def drafting(self, engine: Engine, index: int, made: dict[str, Any]) -> None:
        """Points d and e of a draft pass, with its slots where the runner keeps them."""


class FaultyTables:
    """In front of the runner's BlockTables."""

    kvguard_engine: Engine

    def append_block_ids(
        self, base: type, req_index: int, new_block_ids: Any, overwrite: bool
    ) -> None:
        plan = self.kvguard_engine.plan
        if plan.due and not overwrite:
            changed = plan.fault.append(self.kvguard_engine, req_index, new_block_ids)
            new_block_ids = new_block_ids if changed is None else changed
        base.append_block_ids(self, req_index, new_block_ids, overwrite)


class FaultyModelState:
    """In front of the runner's model state, which asks the builders for metadata."""

    kvguard_engine: Engine

    def prepare_attn(self, base: type, input_batch: Any, *args: Any, **kwargs: Any) -> Any:
        made = base.prepare_attn(self, input_batch, *args, **kwargs)
        plan = self.kvguard_engine.plan
        if plan.due and isinstance(made, dict):
            plan.fault.metadata(self.kvguard_engine, input_batch, made)
        return made


class FaultySpeculator:
    """In front of a draft model's speculator."""

    kvguard_engine: Engine

    def propose(self, base: type, *args: Any, **kwargs: Any) -> Any:
        plan = self.kvguard_engine.plan
        if plan.due:
            args = (
                *args[:6],
                plan.fault.proposing(self.kvguard_engine, args[0], args[6]),
                *args[7:],
            )
        return base.propose(self, *args, **kwargs)

    def _build_uniform_attn_metadata(self, base: type, *args: Any, **kwargs: Any) -> Any:
        made = base._build_uniform_attn_metadata(self, *args, **kwargs)
        plan = self.kvguard_engine.plan
        if plan.due and made:
            plan.fault.drafting(self.kvguard_engine, kwargs["step"], made)
        return made


class FaultyRunner:
    """In front of the runner's own class, below the guard's."""

    kvguard_engine: Engine

    def execute_model(self, base: type, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        plan = self.kvguard_engine.plan
        if plan.due:
            plan.fault.state(self.kvguard_engine, scheduler_output)
        return base.execute_model(self, scheduler_output, *args, **kwargs)

    def prepare_inputs(self, base: type, *args: Any, **kwargs: Any) -> Any:
        batch = self.kvguard_engine.batch = base.prepare_inputs(self, *args, **kwargs)
        plan = self.kvguard_engine.plan
        if plan.due:
            plan.fault.inputs(self.kvguard_engine, batch)
        return batch

    def sample(self, base: type, *args: Any, **kwargs: Any) -> Any:
        output, sampled, rejected = base.sample(self, *args, **kwargs)
        engine = self.kvguard_engine
        if engine.plan.due:
            engine.plan.fault.sampled(engine, engine.batch, sampled, rejected)
        return output, sampled, rejected

    def postprocess_sampled(
        self,
        base: type,
        idx_mapping: Any,
        sampled_tokens: Any,
        num_sampled: Any,
        num_rejected: Any,
        query_start_loc: Any = None,
    ) -> None:
        engine = self.kvguard_engine
        if engine.plan.due:
            num_rejected = engine.plan.fault.counted(engine, engine.batch, num_rejected)
        base.postprocess_sampled(
            self, idx_mapping, sampled_tokens, num_sampled, num_rejected, query_start_loc
        )

    def prepare_attn(self, base: type, input_batch: Any) -> Any:
        tables, slots = base.prepare_attn(self, input_batch)
        plan = self.kvguard_engine.plan
        if plan.due:
            plan.fault.planned(self.kvguard_engine, input_batch, tables, slots)
        return tables, slots


class FaultyWorker(CPUWorker):
    """A worker with a fault to come, and no guard."""

    kvguard_plan: Plan

    def init_device(self) -> None:
        from layouts_vllm import draft_faults, faults

        super().init_device()
        name = os.environ.get(FAULT, "")
        fault = (faults.FAULTS | draft_faults.FAULTS)[name]() if name else None
        self.kvguard_plan = Plan(fault, int(os.environ.get(AFTER, "1")))
        self.kvguard_engine = Engine(self.kvguard_plan, self.model_runner)
        exchange(self.model_runner, FaultyRunner, kvguard_engine=self.kvguard_engine)

    def compile_or_warm_up_model(self) -> Any:
        result = super().compile_or_warm_up_model()
        runner, plan = self.model_runner, self.kvguard_plan
        plan.live, plan.step = True, 0
        plan.rows.clear()
        exchange(runner.block_tables, FaultyTables, kvguard_engine=self.kvguard_engine)
        exchange(runner.model_state, FaultyModelState, kvguard_engine=self.kvguard_engine)
        if hasattr(runner.speculator, "_build_uniform_attn_metadata"):
            exchange(runner.speculator, FaultySpeculator, kvguard_engine=self.kvguard_engine)
        return result

    def execute_model(self, scheduler_output: Any) -> Any:
        plan = self.kvguard_plan
        plan.step += 1
        if plan.due:
            plan.fault.output(self.kvguard_engine, scheduler_output)
        plan.follow(scheduler_output)
        return super().execute_model(scheduler_output)


FaultyGuardWorker = guarded_worker(FaultyWorker)
