# SPDX-License-Identifier: Apache-2.0
"""Plants the faults of faults.toml in a real engine, below the guard.

`FaultyWorker` is a CPUWorker whose runner is of a faulty subclass; `FaultyGuardWorker` is the
guard's subclass of it, so that every fault stands between the guard and the engine's own code.
Which fault, and from which step on, comes from the environment (KVGUARD_FAULT,
KVGUARD_FAULT_AFTER): an engine may live in a process of its own.

A fault is planted once, at the first step from KVGUARD_FAULT_AFTER on whose situation allows it,
and `planted` says where.
"""

from __future__ import annotations

import copy
import functools
import os
from dataclasses import dataclass, field
from typing import Any

import torch
from kvguard.vllm.worker import guarded_worker
from vllm.v1.worker.cpu_worker import CPUWorker

FAULT = "KVGUARD_FAULT"
AFTER = "KVGUARD_FAULT_AFTER"


@dataclass
class Planted:
    """Where the fault was planted."""

    step: int
    request: str
    what: str


@dataclass
class Plan:
    """The fault to plant and what became of it; `rows` is the worker's own picture of every row."""

    name: str
    after: int
    step: int = 0
    live: bool = False  # warm-up is over
    planted: Planted | None = None
    rows: dict[str, list[int]] = field(default_factory=dict)
    previous_slots: torch.Tensor | None = None

    @property
    def due(self) -> bool:
        """Whether the fault may be planted in this step."""
        return self.live and bool(self.name) and self.planted is None and self.step >= self.after

    def follow(self, output: Any) -> None:
        """Keeps the rows, as the scheduler means them."""
        for request in output.finished_req_ids | (output.preempted_req_ids or set()):
            self.rows.pop(request, None)
        for new in output.scheduled_new_reqs:
            self.rows[new.req_id] = list(new.block_ids[0])
        cached = output.scheduled_cached_reqs
        for request, blocks in zip(cached.req_ids, cached.new_block_ids, strict=True):
            if blocks is not None:
                self.rows[request].extend(blocks[0])

    def set(self, request: str, what: str) -> None:
        """The fault stands."""
        self.planted = Planted(self.step, request, what)


# --- point a: the SchedulerOutput ----------------------------------------------------------------


def _appends(output: Any) -> list[tuple[int, str]]:
    cached = output.scheduled_cached_reqs
    blocks = zip(cached.req_ids, cached.new_block_ids, strict=True)
    return [(i, request) for i, (request, b) in enumerate(blocks) if b is not None and b[0]]


def _replace(output: Any, index: int, block: int) -> None:
    """Puts `block` in the place of the last new block of a running request."""
    new = list(output.scheduled_cached_reqs.new_block_ids[index][0])
    new[-1] = block
    output.scheduled_cached_reqs.new_block_ids[index] = (new,)


def change_output(plan: Plan, output: Any, num_blocks: int) -> None:
    """Faults of point a. `plan.rows` are still those of the step before."""
    cached = output.scheduled_cached_reqs
    if plan.name == "wrong-count":
        if cached.req_ids:
            cached.num_computed_tokens[0] += 1
            plan.set(cached.req_ids[0], f"count {cached.num_computed_tokens[0]}")
        return
    appends = _appends(output)
    if not appends:
        return
    index, request = appends[0]
    gone = output.finished_req_ids | (output.preempted_req_ids or set())
    neighbours = [r for r in cached.req_ids if r != request and r in plan.rows and r not in gone]
    if plan.name == "id-twice-in-a-row":
        block = plan.rows[request][0]
    elif plan.name == "id-out-of-range":
        block = num_blocks + 7
    elif plan.name == "null-block-bound":
        block = 0
    elif plan.name == "live-neighbours-block" and neighbours:
        mine = set(plan.rows[request])
        block = next((b for r in neighbours for b in reversed(plan.rows[r]) if b not in mine), -1)
        if block < 0:
            return
    elif plan.name == "undecidable-swap" and len(appends) > 1:
        other, second = appends[1]
        mine = cached.new_block_ids[index][0][-1]
        _replace(output, index, cached.new_block_ids[other][0][-1])
        _replace(output, other, mine)
        plan.set(request, f"blocks exchanged with {second}")
        return
    else:
        return
    _replace(output, index, block)
    plan.set(request, f"block {block}")


# --- point b: the runner's state -----------------------------------------------------------------


def advance_frontier(plan: Plan, runner: Any, output: Any) -> None:
    """The device's count of a running request, one too high."""
    for request in output.scheduled_cached_reqs.req_ids:
        slot = runner.req_states.req_id_to_index[request]
        runner.req_states.num_computed_tokens.gpu[slot] += 1
        plan.set(request, f"count {int(runner.req_states.num_computed_tokens.gpu[slot])}")
        return


def swap_index_map(plan: Plan, batch: Any) -> None:
    """Two rows of the map from batch rows to request slots."""
    if batch.num_reqs < 2:
        return
    batch.idx_mapping = batch.idx_mapping.clone()
    batch.idx_mapping[:2] = batch.idx_mapping[:2].flip(0)
    batch.idx_mapping_np = batch.idx_mapping.numpy()
    plan.set(batch.req_ids[0], f"row 0 and row 1 ({batch.req_ids[1]})")


class LossyTables:
    """In front of the runner's BlockTables: an append that gets lost."""

    kvguard_plan: Plan

    def append_block_ids(
        self, base: type, req_index: int, new_block_ids: Any, overwrite: bool
    ) -> None:
        plan = self.kvguard_plan
        if plan.due and not overwrite and new_block_ids[0]:
            plan.set(f"slot {req_index}", f"blocks {list(new_block_ids[0])}")
            return
        base.append_block_ids(self, req_index, new_block_ids, overwrite)


# --- point c: the return of prepare_attn ---------------------------------------------------------


def change_plan(plan: Plan, batch: Any, tables: Any, slots: torch.Tensor, block_size: int) -> None:
    """Faults in the tables and slots that the base class made."""
    if plan.name == "stale-slot-mapping":
        previous = plan.previous_slots
        if previous is not None and not torch.equal(slots[:, : previous.shape[1]], previous):
            n = min(previous.shape[1], batch.num_tokens)
            slots[:, :n] = previous[:, :n]
            plan.set(batch.req_ids[0], f"{n} slots of the step before")
        return
    for b, request in enumerate(batch.req_ids):
        row = plan.rows[request]
        start = int(batch.seq_lens[b]) - int(
            batch.query_start_loc[b + 1] - batch.query_start_loc[b]
        )
        column = start // block_size
        if plan.name == "table-entry-zeroed":
            if len(row) < 2:
                continue
            tables[0][b, 0] = 0
            plan.set(request, "column 0")
            return
        # neighbour-overwritten: the column that this step writes, to another's block
        others = [r for r in batch.req_ids if r != request]
        victim = next((x for r in others for x in reversed(plan.rows[r]) if x not in row), None)
        if victim is None:
            continue
        first, last = int(batch.query_start_loc[b]), int(batch.query_start_loc[b + 1])
        for t in range(first, last):
            if (start + t - first) // block_size == column:
                slots[0, t] = victim * block_size + (start + t - first) % block_size
        tables[0][b, column] = victim
        plan.set(request, f"column {column}, block {victim}")
        return


# --- point d: what the metadata builder made -----------------------------------------------------


def change_metadata(
    plan: Plan, batch: Any, metadata: dict[str, Any], slots: torch.Tensor
) -> dict[str, Any]:
    """Faults in copies, as a builder makes them: the runner's own buffers stay right."""
    if plan.name == "final-table-of-another-row" and batch.num_reqs < 2:
        return metadata
    changed: dict[int, Any] = {}
    for name, made in metadata.items():
        fresh = changed.get(id(made))
        if fresh is None:
            fresh = changed[id(made)] = copy.copy(made)
            if plan.name == "final-seq-len":
                fresh.seq_lens = made.seq_lens.clone()
                fresh.seq_lens[0] += 1
            elif plan.name == "final-table-of-another-row":
                fresh.block_table = made.block_table.clone()
                fresh.block_table[:2] = made.block_table[:2].flip(0)
            else:
                n = made.slot_mapping.shape[0]
                fresh.slot_mapping = slots[0, 1 : n + 1]
        metadata[name] = fresh
    plan.set(batch.req_ids[0], plan.name)
    return metadata


class FaultyModelState:
    """In front of the runner's model state, which asks the builders for metadata."""

    kvguard_plan: Plan

    def prepare_attn(self, base: type, input_batch: Any, *args: Any, **kwargs: Any) -> Any:
        metadata = base.prepare_attn(self, input_batch, *args, **kwargs)
        plan = self.kvguard_plan
        if plan.due and isinstance(metadata, dict) and input_batch.req_ids[0] in plan.rows:
            return change_metadata(plan, input_batch, metadata, self.kvguard_slots)
        return metadata


class FaultyRunner:
    """In front of the runner's own class, below the guard's."""

    kvguard_plan: Plan

    def execute_model(self, base: type, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        plan = self.kvguard_plan
        if plan.due and plan.name == "frontier-advanced" and plan.rows:
            advance_frontier(plan, self, scheduler_output)
        return base.execute_model(self, scheduler_output, *args, **kwargs)

    def prepare_inputs(self, base: type, *args: Any, **kwargs: Any) -> Any:
        batch = base.prepare_inputs(self, *args, **kwargs)
        plan = self.kvguard_plan
        if plan.due and plan.name == "index-map-swapped":
            swap_index_map(plan, batch)
        return batch

    def prepare_attn(self, base: type, input_batch: Any) -> Any:
        tables, slots = base.prepare_attn(self, input_batch)
        plan = self.kvguard_plan
        right = slots[:, : input_batch.num_tokens].clone()
        if plan.due and plan.name in (
            "table-entry-zeroed",
            "neighbour-overwritten",
            "stale-slot-mapping",
        ):
            change_plan(
                plan,
                input_batch,
                tables,
                slots,
                self.kv_cache_config.kv_cache_groups[0].kv_cache_spec.block_size,
            )
        plan.previous_slots = right
        return tables, slots


def as_of(base: type, name: str, method: Any) -> Any:
    """The method under the signature of the one it replaces, which the guard's probes look at."""

    @functools.wraps(getattr(base, name))
    def replaced(self: Any, *args: Any, **kwargs: Any) -> Any:
        return method(self, base, *args, **kwargs)

    return replaced


def exchange(instance: Any, mixin: type, **attributes: Any) -> None:
    """Makes our instance one of a subclass that has the mixin's methods.

    A second base class would change the layout of some of vLLM's classes, so that the methods are
    taken over into a class of one base, which they get as their second argument.
    """
    base = type(instance)
    methods = {k: as_of(base, k, v) for k, v in vars(mixin).items() if callable(v)}
    instance.__class__ = type(f"Faulty{base.__name__}", (base,), {**methods, **attributes})


class FaultyWorker(CPUWorker):
    """A worker with a fault to come, and no guard."""

    kvguard_plan: Plan

    def init_device(self) -> None:
        super().init_device()
        self.kvguard_plan = Plan(os.environ.get(FAULT, ""), int(os.environ.get(AFTER, "1")))
        exchange(self.model_runner, FaultyRunner, kvguard_plan=self.kvguard_plan)

    def compile_or_warm_up_model(self) -> Any:
        result = super().compile_or_warm_up_model()
        runner, plan = self.model_runner, self.kvguard_plan
        plan.live, plan.step = True, 0
        plan.rows.clear()
        if plan.name == "lost-append":
            exchange(runner.block_tables, LossyTables, kvguard_plan=plan)
        if plan.name.startswith("final-"):
            slots = runner.block_tables.slot_mappings
            exchange(runner.model_state, FaultyModelState, kvguard_plan=plan, kvguard_slots=slots)
        return result

    def execute_model(self, scheduler_output: Any) -> Any:
        plan = self.kvguard_plan
        plan.step += 1
        if plan.due:
            change_output(plan, scheduler_output, self.model_runner.kv_cache_config.num_blocks)
        plan.follow(scheduler_output)
        return super().execute_model(scheduler_output)


FaultyGuardWorker = guarded_worker(FaultyWorker)
