# SPDX-License-Identifier: Apache-2.0
"""vLLM's own Scheduler, alone: its outputs folded by the guard's walker, step after step.

    python tests/parts/schedule.py [LAYOUT...] [--seed N] [--steps N]

No model runs: a made-up output answers each step. No plan is fed either, so that what is judged is
the stream of bindings alone, and it must hold no finding. The connector's store is empty: it is
asked, and never hits. Prints a JSON line for each layout.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))

from rig import environment, make_models  # noqa: E402

environment.activate()

import torch  # noqa: E402
from kvguard import _core  # noqa: E402
from vllm import SamplingParams  # noqa: E402
from vllm.engine.arg_utils import EngineArgs  # noqa: E402
from vllm.utils.hashing import get_hash_fn_by_name  # noqa: E402
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash  # noqa: E402
from vllm.v1.core.sched.async_scheduler import AsyncScheduler  # noqa: E402
from vllm.v1.core.sched.scheduler import Scheduler  # noqa: E402
from vllm.v1.kv_cache_interface import (  # noqa: E402
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    SlidingWindowSpec,
)
from vllm.v1.outputs import ModelRunnerOutput  # noqa: E402
from vllm.v1.request import Request, RequestStatus  # noqa: E402
from vllm.v1.structured_output import StructuredOutputManager  # noqa: E402

BLOCK, BLOCKS, MODEL_LEN, ROWS, TOKENS = 16, 40, 256, 8, 96
WINDOW, CHUNK = 48, 64
KINDS: dict[str, Any] = {
    "full": lambda spec: FullAttentionSpec(**spec),
    "window": lambda spec: SlidingWindowSpec(**spec, sliding_window=WINDOW),
    "chunked": lambda spec: ChunkedLocalAttentionSpec(**spec, attention_chunk_size=CHUNK),
}
# name: the kinds of its groups, asynchronous, a connector.
LAYOUTS: dict[str, tuple[list[str], bool, bool]] = {
    "full": (["full"], False, False),
    "async": (["full"], True, False),
    "window": (["full", "window"], False, False),
    "chunked": (["full", "chunked"], False, False),
    "connector": (["full"], False, True),
}


class Alone:
    """The scheduler, and the guard that folds what it says."""

    def __init__(self, layout: str, seed: int, store: str) -> None:
        kinds, self.is_async, connector = LAYOUTS[layout]
        self.random = random.Random(seed)
        options: dict[str, Any] = {
            "model": str(make_models.build("tiny_llama")),
            "skip_tokenizer_init": True,
            "dtype": "float32",
            "max_model_len": MODEL_LEN,
            "max_num_seqs": ROWS,
            "max_num_batched_tokens": TOKENS,
            "block_size": BLOCK,
            "enable_prefix_caching": True,
        }
        if connector:
            options["kv_transfer_config"] = {
                "kv_connector": "ExampleConnector",
                "kv_role": "kv_both",
                "kv_connector_extra_config": {"shared_storage_path": store},
            }
        config = EngineArgs(**options).create_engine_config()
        config.cache_config.num_gpu_blocks = BLOCKS
        spec = {"block_size": BLOCK, "num_kv_heads": 1, "head_size": 32, "dtype": torch.float32}
        groups = [KVCacheGroupSpec([f"l{i}"], KINDS[k](spec)) for i, k in enumerate(kinds)]
        hashing = get_hash_fn_by_name(config.cache_config.prefix_caching_hash_algo)
        init_none_hash(hashing)
        self.hasher = get_request_block_hasher(BLOCK, hashing)
        self.scheduler = (AsyncScheduler if self.is_async else Scheduler)(
            vllm_config=config,
            kv_cache_config=KVCacheConfig(
                num_blocks=BLOCKS, kv_cache_tensors=[], kv_cache_groups=groups
            ),
            structured_output_manager=StructuredOutputManager(config),
            block_size=BLOCK,
            hash_block_size=BLOCK,
            log_stats=False,
        )
        flags = _core.ENGINE_PREFIX_CACHE
        flags |= _core.ENGINE_ASYNC if self.is_async else 0
        flags |= _core.ENGINE_CONNECTOR if connector else 0
        self.guard = _core.Guard(
            {
                "engine": "vllm",
                "flags": flags,
                "pools": [{"num_blocks": BLOCKS, "null_block": 0, "kind": "pages"}],
                "groups": [self.group(kind) for kind in kinds],
                "max_rows": ROWS,
                "max_tokens": TOKENS,
                "max_model_len": MODEL_LEN,
            },
            {"action": "log"},
        )
        self.stream = _core.vllm.Stream(self.guard)
        self.seen: Counter[str] = Counter()
        self.prefixes = [
            [self.random.randrange(3, 250) for _ in range(48 + 16 * k)] for k in range(3)
        ]
        self.waiting: list[tuple[Any, ModelRunnerOutput]] = []
        self.names = 0
        self.live: set[str] = set()

    @staticmethod
    def group(kind: str) -> dict[str, Any]:
        window = {"window": WINDOW, "chunked": CHUNK}.get(kind, 0)
        return {"kind": kind, "block_size": BLOCK, "window": window}

    def add(self) -> None:
        shared = self.random.choice(self.prefixes) if self.random.random() < 0.6 else []
        own = [self.random.randrange(3, 250) for _ in range(self.random.randrange(1, 40))]
        name = f"request{self.names}"
        self.names += 1
        self.scheduler.add_request(
            Request(
                request_id=name,
                prompt_token_ids=[*shared, *own],
                sampling_params=SamplingParams(
                    max_tokens=self.random.randrange(1, 80), ignore_eos=True
                ),
                pooling_params=None,
                block_hasher=self.hasher,
            )
        )
        self.live.add(name)

    def step(self) -> None:
        while len(self.live) < 12:
            self.add()
        if self.random.random() < 0.02:
            gone = self.random.choice(sorted(self.live))
            self.scheduler.finish_requests([gone], RequestStatus.FINISHED_ABORTED)
            self.seen["aborted"] += 1
        output = self.scheduler.schedule()
        self.stream.begin(output)
        self.stream.end(0 if output.total_num_scheduled_tokens else _core.END_NO_FORWARD)
        self.count(output)
        names = list(output.num_scheduled_tokens)
        sampled = []
        for name in names:
            request = self.scheduler.requests[name]
            known = request.num_computed_tokens
            is_done = known >= request.num_tokens - (1 if self.is_async else 0)
            sampled.append([self.random.randrange(3, 250)] if is_done else [])
        self.waiting.append(
            (
                output,
                ModelRunnerOutput(
                    req_ids=names,
                    req_id_to_index={name: i for i, name in enumerate(names)},
                    sampled_token_ids=sampled,
                    logprobs=None,
                    prompt_logprobs_dict={},
                    pooler_output=[],
                ),
            )
        )
        # An asynchronous engine schedules one step ahead of what it knows.
        while len(self.waiting) > (1 if self.is_async else 0):
            self.scheduler.update_from_output(*self.waiting.pop(0))
        self.live &= set(self.scheduler.requests)

    def count(self, output: Any) -> None:
        self.seen["new"] += len(output.scheduled_new_reqs)
        self.seen["prefix_hits"] += sum(
            r.num_computed_tokens > 0 for r in output.scheduled_new_reqs
        )
        self.seen["preempted"] += len(output.preempted_req_ids or ())
        self.seen["finished"] += len(output.finished_req_ids)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("layouts", nargs="*", metavar="LAYOUT", help=", ".join(LAYOUTS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=5000)
    arguments = parser.parse_args()
    for layout in arguments.layouts or LAYOUTS:
        if layout not in LAYOUTS:
            parser.error(f"no layout '{layout}'; there are {', '.join(LAYOUTS)}")
        with tempfile.TemporaryDirectory() as store:
            alone = Alone(layout, arguments.seed, store)
            for _ in range(arguments.steps):
                alone.step()
        verdict = alone.guard.verdict()
        line = {
            "layout": layout,
            "steps": verdict["steps"],
            "proofs": verdict["proofs"],
            "suspicions": verdict["suspicions"],
            "findings": [text for text, _, _ in alone.guard.findings(most=5)],
            "gaps": sorted(gap["name"] for gap in alone.guard.gaps()),
            "seen": dict(alone.seen),
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
