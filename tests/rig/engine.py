# SPDX-License-Identifier: Apache-2.0
"""A real vLLM engine in this process: scheduler, worker and Model Runner V2, nothing replaced.

Importing this module prepares the process and imports vllm (about ten seconds). Engines may follow
one another in a process, one at a time; a start and a close cost about two seconds together.
"""

from __future__ import annotations

import collections
import gc
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from rig import environment, make_models
from rig.workload import Request, Workload

environment.activate()

import numpy as np  # noqa: E402
import torch  # noqa: E402
import vllm.envs  # noqa: E402
from vllm import LLM, EngineArgs, LLMEngine, PoolingParams, SamplingParams  # noqa: E402

OPTIONS = environment.ENGINE_OPTIONS


@dataclass(frozen=True)
class KvSnapshot:
    """A copy of the KV pool: per layer, one row of bytes per block.

    Finer than a block it cannot be read: the CPU attention packs the keys of a block in an order
    of its own, so one token's bytes lie all over it.
    """

    layers: dict[str, np.ndarray]  # uint8 [blocks, bytes of a block]

    def _differences(self, later: KvSnapshot) -> list[np.ndarray]:
        if self.layers.keys() != later.layers.keys():
            raise ValueError("the snapshots are of two different pools")
        return [before != later.layers[name] for name, before in self.layers.items()]

    def changed_blocks(self, later: KvSnapshot) -> list[int]:
        """The blocks whose bytes differ in any layer."""
        changed = np.logical_or.reduce([d.any(axis=1) for d in self._differences(later)])
        return np.flatnonzero(changed).tolist()

    def changed_bytes(self, later: KvSnapshot) -> int:
        """How many bytes differ, over all layers."""
        return sum(int(d.sum()) for d in self._differences(later))

    def block(self, layer: str, index: int) -> bytes:
        """The bytes of one block in one layer."""
        return self.layers[layer][index].tobytes()


@dataclass
class RunResult:
    """What a workload gave; names are the caller's, not the engine's."""

    tokens: dict[str, tuple[int, ...]] = field(default_factory=dict)  # aborted ones: as far as sent
    steps: int = 0
    preemptions: int = 0
    prefix_hits: int = 0  # requests whose first schedule found cached tokens
    prefix_hit_tokens: int = 0
    aborts: int = 0  # of requests that were alive
    seconds: float = 0.0
    cpu_seconds: float = 0.0  # of this process; what to compare on a busy machine

    @property
    def ms_per_step(self) -> float:
        """Wall time of a step, the engine's own work included."""
        return 1000 * self.seconds / max(self.steps, 1)

    @property
    def cpu_ms_per_step(self) -> float:
        """Processor time of a step."""
        return 1000 * self.cpu_seconds / max(self.steps, 1)


class Engine:
    """One engine. Use it in a `with` block, or call `close`.

    Args:
        model: a name under models/, or a folder.
        worker_cls: as vLLM's option of that name.
        additional_config: as vLLM's option of that name.
        environ: variables for the life of this engine, over the rig's.
        options: any other argument of `vllm.LLM`, over `OPTIONS`.
    """

    def __init__(
        self,
        model: str | Path = "tiny_llama",
        *,
        worker_cls: str = "auto",
        additional_config: Mapping[str, Any] | None = None,
        environ: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        self._saved_environ = {key: os.environ.get(key) for key in environ or {}}
        os.environ.update(environ or {})
        vllm.envs.disable_envs_cache()  # the last engine froze vLLM's view of the environment
        # vLLM collects garbage eight times while it starts; a million objects of imported
        # modules made that two of the two and a half seconds.
        gc.freeze()
        arguments = OPTIONS | {"worker_cls": worker_cls} | options
        if additional_config is not None:
            arguments["additional_config"] = dict(additional_config)
        folder = model if Path(model).is_dir() else make_models.build(str(model))
        self._llm_engine: Any = None
        self._pools = arguments.get("runner") == "pooling"
        self.tokens: dict[str, tuple[int, ...]] = {}  # of a pooling model: its embeddings
        self.finished: set[str] = set()
        self.prefix_hit_tokens: dict[str, int] = {}
        self.preemptions: collections.Counter[str] = collections.Counter()
        self.steps = 0
        try:
            if self._pools:  # vllm.LLM wants a tokenizer for these
                given = EngineArgs(model=str(folder), **arguments)
                self._llm_engine = LLMEngine.from_engine_args(given)
            else:
                self._llm_engine = LLM(model=str(folder), **arguments).llm_engine
        except BaseException:
            self._restore_environ()
            raise

    # The parts of the engine, for tests that observe or plant something.

    @property
    def llm_engine(self) -> Any:
        """vLLM's LLMEngine."""
        if self._llm_engine is None:
            raise RuntimeError("the engine is closed")
        return self._llm_engine

    @property
    def core(self) -> Any:
        """vLLM's EngineCore, which runs in this process."""
        return self.llm_engine.engine_core.engine_core

    @property
    def scheduler(self) -> Any:
        """The scheduler instance."""
        return self.core.scheduler

    @property
    def worker(self) -> Any:
        """The worker instance, of the class that `worker_cls` named."""
        return self.core.model_executor.driver_worker.worker

    @property
    def runner(self) -> Any:
        """The model runner instance."""
        return self.worker.model_runner

    # Driving.

    def add(self, name: str, prompt: tuple[int, ...] | list[int], max_tokens: int) -> None:
        """Adds a greedy request that ends at `max_tokens`, never earlier; to a pooling model, one
        that asks for the embedding of the prompt."""
        params: SamplingParams | PoolingParams = SamplingParams(
            max_tokens=max_tokens, temperature=0, ignore_eos=True, detokenize=False
        )
        if self._pools:
            params = PoolingParams(task="embed")
        self.llm_engine.add_request(name, {"prompt_token_ids": list(prompt)}, params)
        self.tokens[name] = ()

    def abort(self, name: str) -> bool:
        """Aborts a request; False when it was not alive."""
        alive = name in self.tokens and name not in self.finished
        self.llm_engine.abort_request([name])
        self.finished.add(name)
        return alive

    @property
    def busy(self) -> bool:
        """Whether any request is unfinished."""
        return bool(self.llm_engine.has_unfinished_requests())

    def step(self) -> list[str]:
        """Runs one engine step and returns the names of the requests that got output."""
        outputs = self.llm_engine.step()
        self.steps += 1
        for output in outputs:
            if self._pools:
                self.tokens[output.request_id] = tuple(output.outputs.data.flatten().tolist())
            else:
                self.tokens[output.request_id] = tuple(output.outputs[0].token_ids)
            if output.num_cached_tokens:
                self.prefix_hit_tokens[output.request_id] = output.num_cached_tokens
            if output.finished:
                self.finished.add(output.request_id)
        for request in self.scheduler.requests.values():
            if request.num_preemptions:
                self.preemptions[request.request_id] = request.num_preemptions
        return [output.request_id for output in outputs]

    def run(
        self,
        workload: Workload,
        before_step: Callable[[Engine], None] | None = None,
        after_step: Callable[[Engine], None] | None = None,
    ) -> RunResult:
        """Plays a workload to its end; an exception of the engine passes through.

        While nothing is alive the workload's clock jumps to the next arrival, so `steps` counts
        engine steps only.
        """
        result = RunResult()
        first_step, first_preemptions = self.steps, sum(self.preemptions.values())
        pending = collections.deque(workload.requests)
        aborts: dict[int, list[Request]] = collections.defaultdict(list)
        for request in workload.requests:
            if request.abort_step is not None:
                aborts[request.abort_step].append(request)
        clock = 0
        started, started_cpu = time.perf_counter(), time.process_time()
        while pending or self.busy:
            if not self.busy:
                clock = max(clock, pending[0].step)
            while pending and pending[0].step <= clock:
                request = pending.popleft()
                self.add(request.name, request.prompt, request.max_tokens)
            for request in aborts.pop(clock, []):
                result.aborts += self.abort(request.name)
            if before_step is not None:
                before_step(self)
            self.step()
            if after_step is not None:
                after_step(self)
            clock += 1
        result.seconds = time.perf_counter() - started
        result.cpu_seconds = time.process_time() - started_cpu
        result.tokens = {r.name: self.tokens[r.name] for r in workload.requests}
        result.steps = self.steps - first_step
        result.preemptions = sum(self.preemptions.values()) - first_preemptions
        hits = [self.prefix_hit_tokens.get(r.name, 0) for r in workload.requests]
        result.prefix_hits = sum(h > 0 for h in hits)
        result.prefix_hit_tokens = sum(hits)
        return result

    # Looking.

    def kv_snapshot(self) -> KvSnapshot:
        """Copies the whole KV pool (a few hundred kilobytes for the tiny models)."""
        layers: dict[str, np.ndarray] = {}
        for name, module in self.runner.compilation_config.static_forward_context.items():
            cache = getattr(module, "kv_cache", None)
            if not isinstance(cache, torch.Tensor):
                continue
            blocks = self.runner.kv_cache_config.num_blocks
            if cache.shape[0] != blocks:
                raise RuntimeError(f"{name}: the cache is not laid out by block: {cache.shape}")
            layers[name] = cache.contiguous().view(torch.uint8).reshape(blocks, -1).numpy().copy()
        if not layers:
            raise RuntimeError("the runner has no KV cache")
        return KvSnapshot(layers)

    def request(self, name: str) -> Any | None:
        """The scheduler's record of a request while it is alive."""
        for request_id, request in self.scheduler.requests.items():
            # The engine appends a random suffix to the caller's name.
            if request_id == name or request_id.rpartition("-")[0] == name:
                return request
        return None

    def table(self, name: str, group: int = 0) -> list[int]:
        """The blocks that the scheduler holds for a request; empty when it has none."""
        request = self.request(name)
        if request is None:
            return []
        return list(self.scheduler.kv_cache_manager.get_block_ids(request.request_id)[group])

    # Ending.

    def _restore_environ(self) -> None:
        for key, value in self._saved_environ.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value

    def close(self) -> None:
        """Shuts the engine down; harmless when repeated."""
        if self._llm_engine is None:
            return
        engine, self._llm_engine = self._llm_engine, None
        try:
            engine.engine_core.shutdown()
        finally:
            self._restore_environ()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
