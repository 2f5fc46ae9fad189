# SPDX-License-Identifier: Apache-2.0
"""vLLM's own Scheduler, alone: its outputs folded by the guard's walker, step after step.

    python tests/parts/schedule.py [--steps N] [LAYOUT[:SEED[:FAULT]]...]

No model runs: a stand-in counts as a runner does, accepts some drafts, and lets a connector's loads
end well or badly. What is fed is what the adapter has of a real engine: the outputs through the
walker, rows, lengths and positions, and each step's outcome, at once or later. Of a connector's
loads and of tokens the adapter knows nothing, and only layouts that `tells` is set of tell what a
worker could. The adapter refuses recurrent groups; the layouts that have one show what a runner
reads and leaves of their states. No tables and no slots are shown, so that the bindings, the counts
and the states are judged, and they must hold no finding. FAULT: one thing is said wrong, once
(stream_faults.py). Prints a JSON line for each layout.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections import Counter, deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))

from rig import environment, make_models  # noqa: E402

environment.activate()

import torch  # noqa: E402
from kvguard import _core  # noqa: E402
from recurrent import MODES, Recurrent  # noqa: E402
from stand_in import Result, StandIn  # noqa: E402
from stream_faults import FAULTS, Fault  # noqa: E402
from teller import Teller  # noqa: E402
from vllm import SamplingParams  # noqa: E402
from vllm.engine.arg_utils import EngineArgs  # noqa: E402
from vllm.utils.hashing import get_hash_fn_by_name  # noqa: E402
from vllm.v1.core.kv_cache_utils import (  # noqa: E402
    get_request_block_hasher,
    init_none_hash,
    resolve_kv_cache_block_sizes,
)
from vllm.v1.core.sched.async_scheduler import AsyncScheduler  # noqa: E402
from vllm.v1.core.sched.scheduler import Scheduler  # noqa: E402
from vllm.v1.kv_cache_interface import (  # noqa: E402
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
    SlidingWindowSpec,
)
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput  # noqa: E402
from vllm.v1.request import Request, RequestStatus  # noqa: E402
from vllm.v1.structured_output import StructuredOutputManager  # noqa: E402

BLOCK, BLOCKS, MODEL_LEN, ROWS, TOKENS = 16, 40, 256, 8, 96
WINDOW, CHUNK, DRAFTS = 48, 64, 3
BEHIND_FAULT = 50  # steps that a stream goes on behind its fault
KINDS: dict[str, Any] = {
    "full": lambda spec: FullAttentionSpec(**spec),
    "window": lambda spec: SlidingWindowSpec(**spec, sliding_window=WINDOW),
    "chunked": lambda spec: ChunkedLocalAttentionSpec(**spec, attention_chunk_size=CHUNK),
}

USED = re.compile(r"kvguard KV1106 failed-load-used step=(\d+) .*req=(\S+)")


@dataclass(frozen=True)
class Layout:
    """What is scheduled, and how."""

    kinds: tuple[str, ...] = ("full",)
    is_async: bool = False
    drafter: str = ""  # vLLM's name of the method; a draft model writes ahead, n-grams do not
    connector: bool = False
    async_loads: float = 0.5  # share of the connector's loads
    tells: bool = False  # tokens, and what it loads and sends
    state_mode: str = ""  # of a recurrent group beside the others
    state_size: int = BLOCK  # tokens of one block of it
    tells_copies: bool = False  # of states that the runner makes
    blocks: int = BLOCKS

    @property
    def num_drafts(self) -> int:
        return DRAFTS if self.drafter else 0


LAYOUTS: dict[str, Layout] = {
    "full": Layout(),
    "async": Layout(is_async=True),
    "window": Layout(("full", "window")),
    "chunked": Layout(("full", "chunked")),
    "spec": Layout(drafter="ngram"),
    "spec-async": Layout(is_async=True, drafter="ngram_gpu"),
    "spec-ahead": Layout(is_async=True, drafter="draft_model"),
    "hybrid-spec": Layout(("full", "window"), drafter="ngram"),
    "hybrid-spec-async": Layout(("full", "window"), is_async=True, drafter="ngram_gpu"),
    "connector": Layout(connector=True),
    "connector-async": Layout(is_async=True, connector=True),
    "connector-window": Layout(("full", "window"), connector=True),
    "connector-spec": Layout(is_async=True, drafter="ngram_gpu", connector=True),
    "connector-told": Layout(connector=True, async_loads=1, tells=True),
    "connector-told-async": Layout(is_async=True, connector=True, async_loads=1, tells=True),
    "told": Layout(tells=True),
    "spec-told": Layout(drafter="ngram", tells=True),
    "state-none": Layout(state_mode="none", state_size=MODEL_LEN),
    "state-all": Layout(state_mode="all"),
    "state-align": Layout(state_mode="align", tells=True),
    "state-align-async": Layout(state_mode="align", is_async=True, blocks=64),
    "state-none-spec": Layout(state_mode="none", state_size=MODEL_LEN, drafter="ngram", blocks=64),
    "state-align-spec": Layout(
        state_mode="align", drafter="ngram", tells=True, tells_copies=True, blocks=64
    ),
    "state-none-spec-async": Layout(
        state_mode="none", state_size=MODEL_LEN, is_async=True, drafter="ngram_gpu", blocks=64
    ),
    "state-align-spec-async": Layout(
        state_mode="align", is_async=True, drafter="ngram_gpu", blocks=64
    ),
    # Not healthy: see StandIn._follow_unfilled.
    "connector-told-sync": Layout(connector=True, async_loads=0, tells=True),
}


@dataclass
class Told:
    """A step's outcome on its way to the guard."""

    due: int  # a point: three of each step, see Alone.tell
    step: int
    keys: list[int]
    results: list[Result]
    tokens: list[list[int] | None]  # that were sampled, where they are told


class Alone:
    """The scheduler, the stand-in, and the guard that folds what they say."""

    def __init__(self, layout: str, seed: int, fault: str = "") -> None:
        self.layout = LAYOUTS[layout]
        self.random = random.Random(seed)
        config = self.engine_config(seed)
        layout = self.layout
        spec = {"block_size": BLOCK, "num_kv_heads": 1, "head_size": 32, "dtype": torch.float32}
        groups = [KVCacheGroupSpec([f"l{i}"], KINDS[k](spec)) for i, k in enumerate(layout.kinds)]
        if layout.state_mode:
            states = MambaSpec(
                block_size=layout.state_size,
                shapes=((4, 4),),
                dtypes=(torch.float32,),
                mamba_cache_mode=layout.state_mode,
                num_speculative_blocks=layout.num_drafts,
            )
            groups.append(KVCacheGroupSpec(["states"], states))
        kv_cache = KVCacheConfig(layout.blocks, kv_cache_tensors=[], kv_cache_groups=groups)
        block_size, hash_size = resolve_kv_cache_block_sizes(kv_cache, config)
        hashing = get_hash_fn_by_name(config.cache_config.prefix_caching_hash_algo)
        init_none_hash(hashing)
        self.hasher = get_request_block_hasher(hash_size, hashing)
        self.scheduler = (AsyncScheduler if self.layout.is_async else Scheduler)(
            vllm_config=config,
            kv_cache_config=kv_cache,
            structured_output_manager=StructuredOutputManager(config),
            block_size=block_size,
            hash_block_size=hash_size,
            log_stats=False,
        )
        geometry = self.geometry(config)
        for said, group in zip(geometry["groups"], groups, strict=True):
            if layout.state_mode != "all":  # vLLM's runner has no rows for it
                said["max_columns"] = group.kv_cache_spec.max_num_blocks_per_req(config, MODEL_LEN)
        self.guard = _core.Guard(geometry, {"action": "log"})
        self.tells_more = layout.tells or bool(layout.state_mode)
        self.stream = (
            Teller(self.guard, len(groups)) if self.tells_more else _core.vllm.Stream(self.guard)
        )
        self.seen: Counter[str] = Counter()
        self.runner = StandIn(self.random, layout.is_async, BLOCK, self.seen)
        self.runner.tells_copies = layout.tells_copies
        if layout.state_mode:
            states = len(groups) - 1, layout.state_mode, layout.state_size
            self.runner.states.append(Recurrent(*states, self.seen))
        self.fault: Fault | None = FAULTS[fault](self) if fault else None
        self.prefixes = [
            [self.random.randrange(3, 250) for _ in range(48 + 16 * (k % 3))]
            for k in range(9 if self.layout.connector else 3)
        ]
        self.waiting: list[tuple[Any, ModelRunnerOutput]] = []
        self.unfilled_hits: list[tuple[int, str]] = []  # see StandIn._follow_unfilled
        self.untold: deque[Told] = deque()
        self.names = 0
        self.live: set[str] = set()
        if self.layout.connector:  # half of the prefixes were saved by somebody else
            for tokens in self.prefixes[::2]:
                self.scheduler.connector.fill(self.request("saved", tokens, 1).block_hashes)

    def engine_config(self, seed: int) -> Any:
        model = str(make_models.build("tiny_llama"))
        options: dict[str, Any] = {
            "model": model,
            "skip_tokenizer_init": True,
            "dtype": "float32",
            "max_model_len": MODEL_LEN,
            "max_num_seqs": ROWS,
            "max_num_batched_tokens": TOKENS,
            "block_size": BLOCK,
            "enable_prefix_caching": self.layout.state_mode != "none",
            "async_scheduling": self.layout.is_async,
        }
        if self.layout.drafter:
            options["speculative_config"] = {
                "method": self.layout.drafter,
                "num_speculative_tokens": DRAFTS,
            }
            if self.layout.drafter == "draft_model":
                options["speculative_config"]["model"] = model
        if self.layout.connector:
            options["kv_transfer_config"] = {
                "kv_connector": "StoreConnector",
                "kv_connector_module_path": "store_connector",
                "kv_role": "kv_both",
                "kv_load_failure_policy": "recompute",
                "kv_connector_extra_config": {
                    "seed": seed,
                    "async_share": self.layout.async_loads,
                },
            }
        config = EngineArgs(**options).create_engine_config()
        config.cache_config.num_gpu_blocks = self.layout.blocks
        if self.layout.state_mode:  # as of a model that has such layers
            config.cache_config.mamba_cache_mode = self.layout.state_mode
            config.cache_config.mamba_block_size = self.layout.state_size
        return config

    def geometry(self, config: Any) -> dict[str, Any]:
        flags = _core.ENGINE_PREFIX_CACHE if self.layout.state_mode != "none" else 0
        flags |= _core.ENGINE_ASYNC if self.layout.is_async else 0
        flags |= _core.ENGINE_CONNECTOR if self.layout.connector else 0
        # Not where synchronous loads fail: what is found of hits there is not understood yet.
        is_sync = self.layout.connector and self.layout.async_loads < 1
        flags |= _core.ENGINE_FILLS_TOLD if self.layout.tells and not is_sync else 0
        windows = {"window": WINDOW, "chunked": CHUNK}
        states = {
            "kind": "state",
            "state_mode": MODES.get(self.layout.state_mode, 0),
            "block_size": self.layout.state_size,
            "encoding": "state",
            "flags": _core.GROUP_NO_SLOTS,
        }
        return {
            "engine": "vllm",
            "flags": flags,
            "pools": [{"num_blocks": self.layout.blocks, "null_block": 0, "kind": "pages"}],
            "groups": [
                *(
                    {"kind": kind, "block_size": BLOCK, "window": windows.get(kind, 0)}
                    for kind in self.layout.kinds
                ),
                *([states] if self.layout.state_mode else []),
            ],
            "max_rows": ROWS,
            "max_tokens": TOKENS,
            "max_model_len": MODEL_LEN,
            "num_lookahead": config.num_lookahead_tokens,
            "max_drafts": self.layout.num_drafts,
        }

    def request(self, name: str, tokens: list[int], most: int) -> Request:
        return Request(
            request_id=name,
            prompt_token_ids=tokens,
            sampling_params=SamplingParams(max_tokens=most, ignore_eos=True),
            pooling_params=None,
            block_hasher=self.hasher,
        )

    def add(self) -> None:
        shared = self.random.choice(self.prefixes) if self.random.random() < 0.6 else []
        own = [self.random.randrange(3, 250) for _ in range(self.random.randrange(1, 40))]
        if shared and self.random.random() < 0.2:
            own = []  # all of it may be stored
        most = self.random.randrange(1, 80) if self.random.random() < 0.95 else MODEL_LEN
        name = f"request{self.names}"
        self.names += 1
        self.scheduler.add_request(self.request(name, [*shared, *own], most))
        self.live.add(name)

    def step(self) -> None:
        while len(self.live) < 12:
            self.add()
        if self.random.random() < 0.02:
            gone = self.random.choice(sorted(self.live))
            self.scheduler.finish_requests([gone], RequestStatus.FINISHED_ABORTED)
            self.seen["aborted"] += 1
        output = self.scheduler.schedule()
        if self.layout.tells and self.layout.connector:
            self.runner.announce(self.stream, output.kv_connector_metadata)
        self.runner.start(output)
        if self.fault:
            self.fault.in_output(output)
        if self.layout.state_mode:
            self.runner.take_states(self.stream, output)
        self.stream.begin(output)
        if self.fault:
            self.fault.settle()
        step = self.stream.step
        self.unfilled_hits += [(step, name) for name in self.runner.unfilled_hits]
        self.tell(3 * step)
        if output.total_num_scheduled_tokens:
            self.runner.feed_plan(self.stream, output)
        keys = [self.stream.key_of(name) for name in output.num_scheduled_tokens]
        answer, results = self.runner.finish(output)
        if self.layout.connector:
            self.note_spoiled(answer.kv_connector_output.invalid_block_ids)
        if self.layout.tells and self.runner.ended:
            self.stream.tell(self.runner.ended)
        if self.layout.drafter or self.layout.tells:
            tokens = answer.sampled_token_ids if self.layout.tells else [None] * len(results)
            self.untold.append(Told(3 * step + self.delay(), step, keys, results, tokens))
        self.tell(3 * step + 1)
        self.stream.end(0 if output.total_num_scheduled_tokens else _core.END_NO_FORWARD)
        self.tell(3 * step + 2)
        self.count(output)
        self.waiting.append((output, answer))
        # An asynchronous engine schedules one step ahead of what it knows.
        while len(self.waiting) > (1 if self.layout.is_async else 0):
            self.scheduler.update_from_output(*self.waiting.pop(0))
        if self.layout.drafter and not self.layout.is_async:
            self.propose(results)
        self.live &= set(self.scheduler.requests)

    def note_spoiled(self, invalid: set[int]) -> None:
        """What is to be computed again: from a request's first invalid block on."""
        if not invalid:
            return
        manager = self.scheduler.kv_cache_manager
        rows = {name: manager.get_block_ids(name)[0] for name in self.scheduler.requests}
        again: set[int] = set()
        for ids in rows.values():
            first = next((i for i, block in enumerate(ids) if block in invalid), len(ids))
            again.update(ids[first:])
        for block in again:
            holders = frozenset(name for name, ids in rows.items() if block in ids)
            self.runner.spoiled[block] = holders

    def delay(self) -> int:
        """In points from the step's beginning to where its outcome is told."""
        late = self.random.random() < (0.7 if self.layout.is_async else 0.1)
        return self.random.randrange(3, 9) if late else self.random.randrange(1, 3)

    def tell(self, point: int) -> None:
        """Points of a step: its plan is not shown yet; it has not ended; it has. Outcomes come in
        the order of their steps."""
        while self.untold and self.untold[0].due <= point:
            told = self.untold.popleft()
            self.seen["outcomes_late"] += point // 3 > told.step
            if self.fault:
                self.fault.in_outcome(told)
            rows = [
                {
                    "request": key,
                    "num_sampled": r.sampled,
                    "num_rejected": r.rejected,
                    "tokens": tokens,
                }
                for key, r, tokens in zip(told.keys, told.results, told.tokens, strict=True)
            ]
            self.guard.outcome(told.step, rows)

    def propose(self, results: list[Result]) -> None:
        """A synchronous engine's drafts for the next step; a grammar takes some away."""
        drafts = [
            [-1] * (DRAFTS if self.random.random() < 0.8 else self.random.randrange(DRAFTS))
            for _ in results
        ]
        if results:
            self.scheduler.update_draft_token_ids(DraftTokenIds([r.name for r in results], drafts))

    def count(self, output: Any) -> None:
        external = self.runner.external
        self.seen["new"] += len(output.scheduled_new_reqs)
        self.seen["prefix_hits"] += sum(
            r.num_computed_tokens > external.pop(r.req_id, 0) for r in output.scheduled_new_reqs
        )
        self.seen["preempted"] += len(output.preempted_req_ids or ())
        self.seen["finished"] += len(output.finished_req_ids)


def run(layout: str, seed: int, steps: int, fault: str = "") -> dict[str, Any]:
    """The line of one layout."""
    alone = Alone(layout, seed, fault)
    for _ in range(steps):
        alone.step()
        if alone.fault and 0 < alone.fault.step <= alone.stream.step - BEHIND_FAULT:
            break
    verdict = alone.guard.verdict()
    findings = alone.guard.findings()
    line = {
        "layout": layout,
        "seed": seed,
        "steps": verdict["steps"],
        "plans": verdict["plans"],
        "frontiers": sum(
            c["judged"]
            for c in alone.guard.coverage()
            if (c["family"], c["stage"]) == ("frontier", "planned")
        ),
        "verdict": verdict["verdict"],
        "proofs": verdict["proofs"],
        "suspicions": verdict["suspicions"],
        "assumptions": verdict["assumptions"],
        "codes": Counter(finding["code"] for _, _, finding in findings),
        "states": sum(c["judged"] for c in alone.guard.coverage() if c["family"] == "state"),
        "findings": [text for text, _, _ in findings[:20]],
        "unfilled_hits": alone.unfilled_hits,
        "failed_loads_used": [
            (int(found[1]), found[2]) for text, *_ in findings if (found := USED.match(text))
        ],
        "gaps": sorted(gap["name"] for gap in alone.guard.gaps()),
        "seen": dict(alone.seen),
    }
    if alone.fault:
        line["fault"] = {"name": fault, "step": alone.fault.step, "request": alone.fault.request}
        line["first"] = [
            {key: finding[key] for key in ("step", "code", "grade", "request")}
            for _, _, finding in findings[:20]
        ]
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "cases",
        nargs="*",
        metavar="LAYOUT[:SEED[:FAULT]]",
        help=f"layouts: {', '.join(LAYOUTS)} (default: each, with seed 1); "
        f"faults: {', '.join(FAULTS)}",
    )
    parser.add_argument("--steps", type=int, default=5000)
    arguments = parser.parse_args()
    cases = []
    for case in arguments.cases or LAYOUTS:
        layout, seed, fault = (*case.split(":"), "", "")[:3]
        if layout not in LAYOUTS or not (seed or "1").isdecimal() or fault not in {"", *FAULTS}:
            parser.error(f"'{case}' is no LAYOUT[:SEED[:FAULT]]; --help lists them")
        cases.append((layout, int(seed or "1"), fault))
    for layout, seed, fault in cases:
        print(json.dumps(run(layout, seed, arguments.steps, fault)), flush=True)


if __name__ == "__main__":
    main()
