# SPDX-License-Identifier: Apache-2.0
"""A toy engine behind vLLM's names: enough of 0.32's worker, runner and scheduler that the adapter
runs on it without vLLM and torch. Tables, slots and KV are real; the model is missing."""

from __future__ import annotations

import contextlib
import logging
import sys
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Generic, TypeVar

import numpy as np
import outputs

PAD = -1
BLOCK = 4
MODULES = (
    "vllm",
    "vllm.logger",
    "vllm.platforms",
    "vllm.forward_context",
    "vllm.v1",
    "vllm.v1.outputs",
    "vllm.v1.core",
    "vllm.v1.core.sched",
    "vllm.v1.core.sched.output",
    "vllm.v1.attention",
    "vllm.v1.attention.backends",
    "vllm.v1.attention.backends.utils",
    "vllm.v1.worker",
    "vllm.v1.worker.cpu",
    "vllm.v1.worker.cpu.model_runner",
    "vllm.v1.worker.cpu_worker",
    "vllm.v1.worker.gpu",
    "vllm.v1.worker.gpu.input_batch",
    "vllm.v1.worker.gpu.kv_connector",
)


class DType:
    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return f"torch.{self.name}"


DTYPES = {name: DType(name) for name in ("int32", "int64", "float32")}


class Tensor:
    """An array with the few methods of a tensor that the adapter may use."""

    def __init__(self, array: np.ndarray, is_cpu: bool = True) -> None:
        self.array = array
        self.is_cpu = is_cpu
        self.shape = array.shape
        self.dtype = DTYPES[str(array.dtype)]

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)

    def element_size(self) -> int:
        return int(self.array.itemsize)

    def stride(self, axis: int) -> int:
        return int(self.array.strides[axis] // self.array.itemsize)

    def dim(self) -> int:
        return int(self.array.ndim)

    def tolist(self) -> list[Any]:
        return self.array.tolist()

    def __getitem__(self, item: Any) -> Tensor:
        return Tensor(self.array[item])


class AsyncModelRunnerOutput(ABC):
    @abstractmethod
    def get_output(self) -> Any: ...


class AsyncOutput(AsyncModelRunnerOutput):
    def __init__(self, tokens: dict[str, int]) -> None:
        self.tokens = tokens
        self.extra = "extra"

    def get_output(self) -> dict[str, int]:
        return self.tokens


@dataclass
class InputBatch:
    req_ids: list[str]
    num_reqs: int
    num_reqs_after_padding: int
    idx_mapping_np: np.ndarray
    num_tokens: int
    num_tokens_after_padding: int
    query_start_loc: Tensor
    seq_lens: Tensor
    positions: Tensor


@dataclass
class Metadata:
    num_actual_tokens: int
    query_start_loc: Tensor
    seq_lens: Tensor
    block_table: Tensor
    slot_mapping: Tensor


class FullAttentionSpec:
    block_size = BLOCK
    tokens_per_state = 1


class ChunkedLocalAttentionSpec(FullAttentionSpec):
    attention_chunk_size = 8


class SlidingWindowSpec(FullAttentionSpec):
    sliding_window = 8


M = TypeVar("M")


class MetadataBuilder(Generic[M]):
    pass


class BackendBuilder(MetadataBuilder[Metadata]):
    pass


class Backend:
    def __init__(self, layer_names: list[str]) -> None:
        self.layer_names = layer_names
        self.kernel_block_size = None

    def get_metadata_builder(self, _: int) -> Any:
        return BackendBuilder()


class KVConnector:
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.disabled = False

    def pre_forward(
        self, scheduler_output: Any, input_batch: Any = None, attn_metadata: Any = None
    ) -> None:
        self.calls.append("pre_forward")

    def no_forward(self, scheduler_output: Any) -> Any:
        self.calls.append("no_forward")
        return {}

    def set_disabled(self, disabled: bool) -> None:
        self.disabled = disabled


CONTEXT: list[Any] = []


class BlockTables:
    def __init__(self, groups: int, rows: int, tokens: int, columns: int) -> None:
        self.block_sizes = [BLOCK] * groups
        self.tables = [np.zeros((rows, columns), np.int32) for _ in range(groups)]
        self.input_block_tables = [
            Tensor(np.zeros((rows, columns), np.int32)) for _ in range(groups)
        ]
        self.slot_mappings = Tensor(np.full((groups, tokens), PAD, np.int64))
        self.num_blocks = SimpleNamespace(np=np.zeros((groups, rows), np.int32))

    def append(self, row: int, blocks: tuple[list[int], ...], overwrite: bool) -> None:
        for g, ids in enumerate(blocks):
            start = 0 if overwrite else int(self.num_blocks.np[g, row])
            self.tables[g][row, start : start + len(ids)] = ids
            self.num_blocks.np[g, row] = start + len(ids)


class Runner:
    """The runner of one worker; `faults` are called with what they may spoil, by name."""

    max_num_reqs = 8
    max_num_tokens = 64
    max_model_len = 64
    is_pooling_model = False
    is_encoder_decoder = False
    num_speculative_steps = 0

    def __init__(self, groups: int = 1) -> None:
        self.device = SimpleNamespace(type="cpu")
        specs = [
            SimpleNamespace(kv_cache_spec=FullAttentionSpec(), layer_names=[f"layer{g}"])
            for g in range(groups)
        ]
        self.kv_cache_config = SimpleNamespace(
            kv_cache_groups=specs, num_blocks=40, needs_kv_cache_zeroing=False
        )
        self.block_tables = BlockTables(groups, self.max_num_reqs, self.max_num_tokens, 16)
        self.attn_groups = [[Backend([f"layer{g}"])] for g in range(groups)]
        self.kv_connector = KVConnector()
        self.rows: dict[str, int] = {}
        self.computed = np.zeros(self.max_num_reqs, np.int64)
        self.query_start = np.zeros(self.max_num_reqs + 1, np.int32)
        self.seq_lens = np.zeros(self.max_num_reqs, np.int32)
        self.positions = np.zeros(self.max_num_tokens, np.int64)
        self.pool = np.zeros(40 * BLOCK, np.int64)
        self.faults: dict[str, Callable[..., None]] = {}
        self.state: InputBatch | None = None
        self.seen = 0

    def fault(self, name: str, *args: Any) -> None:
        if name in self.faults:
            self.faults[name](*args)

    def execute_model(
        self, scheduler_output: Any, intermediate_tensors: Any = None, dummy_run: bool = False
    ) -> Any:
        if dummy_run:
            return "dummy"
        self.seen += 1
        self.update(scheduler_output)
        self.fault("state", self)
        if not scheduler_output.num_scheduled_tokens:
            return self.kv_connector.no_forward(scheduler_output)
        batch = self.prepare_inputs(scheduler_output)
        tables, slots = self.prepare_attn(batch)
        metadata = {}
        by_layer = {}
        for g, backends in enumerate(self.attn_groups):
            written = slots[g]
            for backend in backends:
                made = Metadata(
                    batch.num_tokens, batch.query_start_loc, batch.seq_lens, tables[g], slots[g]
                )
                self.fault("metadata", made)
                metadata |= dict.fromkeys(backend.layer_names, made)
                by_layer |= dict.fromkeys(backend.layer_names, written)
        self.fault("layers", metadata, by_layer)
        with forward_context(metadata, by_layer):
            self.kv_connector.pre_forward(scheduler_output, batch)
            self.fault("forward", self)
            for written in by_layer.values():
                for token, slot in enumerate(written.array[: batch.num_tokens]):
                    self.pool[slot] = batch.positions.array[token]
        self.state = batch
        return None

    def update(self, output: Any) -> None:
        for name in sorted(output.finished_req_ids | (output.preempted_req_ids or set())):
            self.rows.pop(name, None)
        for new in output.scheduled_new_reqs:
            self.rows.pop(new.req_id, None)
            row = min(set(range(self.max_num_reqs)) - set(self.rows.values()))
            self.rows[new.req_id] = row
            self.computed[row] = new.num_computed_tokens
            self.block_tables.append(row, new.block_ids, overwrite=True)
        cached = output.scheduled_cached_reqs
        for name, blocks in zip(cached.req_ids, cached.new_block_ids, strict=True):
            if blocks is not None:
                self.block_tables.append(self.rows[name], blocks, overwrite=False)

    def prepare_inputs(self, output: Any) -> InputBatch:
        names = sorted(output.num_scheduled_tokens, key=output.num_scheduled_tokens.__getitem__)
        rows = np.array([self.rows[name] for name in names])
        lengths = np.array([output.num_scheduled_tokens[name] for name in names])
        tokens = int(lengths.sum())
        self.query_start[1 : len(names) + 1] = np.cumsum(lengths)
        self.query_start[len(names) + 1 :] = tokens
        self.seq_lens[:] = 0
        self.seq_lens[: len(names)] = self.computed[rows] + lengths
        starts = [
            np.arange(self.computed[row], self.computed[row] + n)
            for row, n in zip(rows, lengths, strict=True)
        ]
        self.positions[:tokens] = np.concatenate(starts)
        padded = min(len(names) + 1, self.max_num_reqs)
        return InputBatch(
            req_ids=names,
            num_reqs=len(names),
            num_reqs_after_padding=padded,
            idx_mapping_np=rows,
            num_tokens=tokens,
            num_tokens_after_padding=min(tokens + 3, self.max_num_tokens),
            query_start_loc=Tensor(self.query_start[: padded + 1]),
            seq_lens=Tensor(self.seq_lens[:padded]),
            positions=Tensor(self.positions),
        )

    def prepare_attn(self, input_batch: InputBatch) -> tuple[tuple[Tensor, ...], Tensor]:
        b = self.block_tables
        tables = []
        slots = b.slot_mappings
        slots.array[:] = PAD
        for g, source in enumerate(b.tables):
            target = b.input_block_tables[g].array
            target[input_batch.num_reqs : input_batch.num_reqs_after_padding] = 0
            for i, row in enumerate(input_batch.idx_mapping_np):
                live = int(b.num_blocks.np[g, row])
                target[i, :live] = source[row, :live]
                for t in range(self.query_start[i], self.query_start[i + 1]):
                    p = self.positions[t]
                    slots.array[g, t] = source[row, p // BLOCK] * BLOCK + p % BLOCK
            tables.append(b.input_block_tables[g][: input_batch.num_reqs_after_padding])
        plan = tuple(tables), slots[:, : input_batch.num_tokens_after_padding]
        self.fault("plan", *plan)
        return plan

    def sample_tokens(self, grammar_output: Any) -> Any:
        batch, self.state = self.state, None
        if batch is None:
            return None
        self.fault("sample", self)
        lengths = np.diff(self.query_start[: batch.num_reqs + 1])
        self.computed[batch.idx_mapping_np] += lengths
        return AsyncOutput({name: int(self.computed[self.rows[name]]) for name in batch.req_ids})

    def pool_outputs(self) -> Any:
        return None


@dataclass
class ForwardContext:
    attn_metadata: Any
    slot_mapping: Any


@contextlib.contextmanager
def forward_context(metadata: Any, by_layer: Any) -> Iterator[None]:
    CONTEXT.append(ForwardContext(metadata, by_layer))
    try:
        yield
    finally:
        CONTEXT.pop()


class CPUWorker:
    runner_class: type = Runner
    groups = 1

    def __init__(self, vllm_config: Any, rank: int = 0) -> None:
        self.vllm_config = vllm_config
        self.rank = rank
        self.use_v2_model_runner = vllm_config.use_v2_model_runner
        self.model_runner: Any = None
        self.shut_down = False

    def init_device(self) -> None:
        self.model_runner = self._make_model_runner()

    def _make_model_runner(self) -> Any:
        return self.runner_class(self.groups)

    def initialize_from_config(self, config: Any = None) -> None:
        pass

    def compile_or_warm_up_model(self) -> str:
        self.execute_model(warm_up())
        self.sample_tokens(None)
        self.execute_model(outputs.SchedulerOutput(finished_req_ids={"_warmup_"}))
        return "times"

    def execute_model(self, scheduler_output: Any) -> Any:
        return self.model_runner.execute_model(scheduler_output, None)

    def sample_tokens(self, grammar_output: Any) -> Any:
        return self.model_runner.sample_tokens(grammar_output)

    def sleep(self, level: int = 1) -> None:
        pass

    def wake_up(self, tags: Any = None) -> None:
        pass

    def shutdown(self) -> None:
        self.shut_down = True


def warm_up() -> outputs.SchedulerOutput:
    """As vLLM's warm-up: a request that the worker makes up, with blocks that it picks."""
    return outputs.SchedulerOutput(
        scheduled_new_reqs=[outputs.new_request("_warmup_", ([1],), 0, 3)],
        num_scheduled_tokens={"_warmup_": 3},
        total_num_scheduled_tokens=3,
    )


def vllm_config(guard: Any = None, **changes: Any) -> Any:
    """The parts of a VllmConfig that the adapter reads."""
    config = SimpleNamespace(
        additional_config={} if guard is None else {"kv_guard_config": guard},
        use_v2_model_runner=True,
        parallel_config=SimpleNamespace(
            tensor_parallel_size=1,
            pipeline_parallel_size=1,
            world_size=1,
            data_parallel_size=1,
            enable_dbo=False,
        ),
        scheduler_config=SimpleNamespace(async_scheduling=False),
        cache_config=SimpleNamespace(enable_prefix_caching=True),
        speculative_config=None,
        kv_transfer_config=None,
        num_lookahead_tokens=0,
    )
    for name, value in changes.items():
        setattr(config, name, value)
    return config


class Scheduler:
    """First come, first served over a free list; preempts the youngest when blocks run out."""

    def __init__(self, groups: int = 1, blocks: int = 40) -> None:
        self.groups = groups
        self.free = list(range(1, blocks))
        self.waiting: list[tuple[str, int]] = []
        self.running: dict[str, dict[str, Any]] = {}
        self.finished: set[str] = set()
        self.preempted: set[str] = set()

    def add(self, name: str, length: int) -> None:
        self.waiting.append((name, length))

    def abort(self, name: str) -> None:
        self.release(name)
        self.finished.add(name)

    def release(self, name: str) -> None:
        for row in self.running.pop(name)["rows"]:
            self.free.extend(row)

    def grow(self, entry: dict[str, Any], tokens: int) -> tuple[list[int], ...] | None:
        need = -(-tokens // BLOCK) - len(entry["rows"][0])
        if need * self.groups > len(self.free):
            return None
        added = tuple([self.free.pop(0) for _ in range(max(need, 0))] for _ in range(self.groups))
        for row, ids in zip(entry["rows"], added, strict=True):
            row.extend(ids)
        return added

    def schedule(self) -> outputs.SchedulerOutput:
        output = outputs.SchedulerOutput()
        cached = output.scheduled_cached_reqs
        for name, entry in list(self.running.items()):
            if name not in self.running:
                continue
            added = self.grow(entry, entry["computed"] + 1)
            while added is None:
                youngest = list(self.running)[-1]
                self.waiting.insert(0, (youngest, self.running[youngest]["computed"] + 1))
                self.release(youngest)
                self.preempted.add(youngest)
                if youngest == name:
                    break
                added = self.grow(entry, entry["computed"] + 1)
            if name not in self.running:
                continue
            cached.req_ids.append(name)
            cached.num_computed_tokens.append(entry["computed"])
            cached.new_block_ids.append(added if any(added) else None)
            cached.num_output_tokens.append(1)
            output.num_scheduled_tokens[name] = 1
        while self.waiting and len(self.running) < 6 and not self.preempted:
            name, length = self.waiting[0]
            entry = {"rows": [[] for _ in range(self.groups)], "computed": 0}
            if self.grow(entry, length) is None:
                break
            self.waiting.pop(0)
            self.running[name] = entry
            output.scheduled_new_reqs.append(
                outputs.new_request(name, tuple(list(row) for row in entry["rows"]), 0, length)
            )
            output.num_scheduled_tokens[name] = length
        output.finished_req_ids, self.finished = self.finished, set()
        output.preempted_req_ids, self.preempted = self.preempted, set()
        output.total_num_scheduled_tokens = sum(output.num_scheduled_tokens.values())
        for name, tokens in output.num_scheduled_tokens.items():
            self.running[name]["computed"] += tokens
        return output


def modules() -> dict[str, types.ModuleType]:
    """The fake modules; their parents carry them as attributes, as real packages do."""
    made = {name: types.ModuleType(name) for name in MODULES}
    for name, module in made.items():
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(made[parent], child, module)
        module.__path__ = []  # type: ignore[attr-defined]
    made["vllm"].__version__ = "0.0.fake"  # type: ignore[attr-defined]
    made["vllm.logger"].init_logger = logging.getLogger  # type: ignore[attr-defined]
    made["vllm.platforms"].current_platform = SimpleNamespace(  # type: ignore[attr-defined]
        is_cpu=lambda: True, device_name="cpu"
    )
    context = made["vllm.forward_context"]
    context.ForwardContext = ForwardContext  # type: ignore[attr-defined]
    context.get_forward_context = lambda: CONTEXT[-1]  # type: ignore[attr-defined]
    context.is_forward_context_available = lambda: bool(CONTEXT)  # type: ignore[attr-defined]
    made["vllm.v1.outputs"].AsyncModelRunnerOutput = AsyncModelRunnerOutput  # type: ignore[attr-defined]
    for cls in (outputs.SchedulerOutput, outputs.NewRequestData, outputs.CachedRequestData):
        setattr(made["vllm.v1.core.sched.output"], cls.__name__, cls)
    made["vllm.v1.attention.backends.utils"].PAD_SLOT_ID = PAD  # type: ignore[attr-defined]
    made["vllm.v1.worker.cpu_worker"].CPUWorker = CPUWorker  # type: ignore[attr-defined]
    made["vllm.v1.worker.cpu.model_runner"].CPUModelRunner = Runner  # type: ignore[attr-defined]
    made["vllm.v1.worker.gpu.input_batch"].InputBatch = InputBatch  # type: ignore[attr-defined]
    made["vllm.v1.worker.gpu.kv_connector"].KVConnector = KVConnector  # type: ignore[attr-defined]
    return made


def install() -> None:
    """Puts the fakes in the place of vLLM. For processes that never import the real one."""
    if "vllm" in sys.modules and getattr(sys.modules["vllm"], "__version__", "") != "0.0.fake":
        raise RuntimeError("the real vllm is already imported in this process")
    sys.modules.update(modules())
