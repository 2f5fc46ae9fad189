# SPDX-License-Identifier: Apache-2.0
"""Scheduler outputs with the fields of vLLM 0.32.0, without vLLM, and a generator of them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, NamedTuple


@dataclass
class NewRequestData:
    req_id: str
    prompt_token_ids: list[int] | None
    mm_features: list[Any]
    sampling_params: Any
    pooling_params: Any
    block_ids: tuple[list[int], ...]
    num_computed_tokens: int
    lora_request: Any
    prompt_embeds: Any = None
    prompt_is_token_ids: list[bool] | None = None
    prefill_token_ids: list[int] | None = None
    replay_start: int = 0


@dataclass
class CachedRequestData:
    req_ids: list[str] = field(default_factory=list)
    resumed_req_ids: set[str] = field(default_factory=set)
    new_token_ids: list[list[int]] = field(default_factory=list)
    all_token_ids: dict[str, list[int]] = field(default_factory=dict)
    new_block_ids: list[tuple[list[int], ...] | None] = field(default_factory=list)
    num_computed_tokens: list[int] = field(default_factory=list)
    num_output_tokens: list[int] = field(default_factory=list)


@dataclass
class SchedulerOutput:
    scheduled_new_reqs: list[NewRequestData] = field(default_factory=list)
    scheduled_cached_reqs: CachedRequestData = field(default_factory=CachedRequestData)
    num_scheduled_tokens: dict[str, int] = field(default_factory=dict)
    total_num_scheduled_tokens: int = 0
    scheduled_spec_decode_tokens: dict[str, list[int]] = field(default_factory=dict)
    scheduled_encoder_inputs: dict[str, list[int]] = field(default_factory=dict)
    finished_req_ids: set[str] = field(default_factory=set)
    free_encoder_mm_hashes: list[str] = field(default_factory=list)
    scheduled_encoder_input_stats: Any = None
    preempted_req_ids: set[str] | None = None
    has_structured_output_requests: bool = False
    pending_structured_output_tokens: bool = False
    num_invalid_spec_tokens: dict[str, int] | None = None
    kv_connector_metadata: Any = None
    has_sync_kv_loads: bool = False
    aux_output_connector_metadata: Any = None
    ec_connector_metadata: Any = None
    ec_manager_metadata: Any = None
    new_block_ids_to_zero: list[int] | None = None
    kv_cache_block_copies: list[Any] | None = None
    kv_connector_block_state: Any = None
    num_spec_tokens_to_schedule: int = 0
    num_common_prefix_blocks: list[int] = field(default_factory=list)


class BlockCopy(NamedTuple):
    src_block_id: int
    dst_block_id: int


def new_request(
    name: str, blocks: tuple[list[int], ...], computed: int, known: int
) -> NewRequestData:
    return NewRequestData(
        name,
        list(range(known)),
        [],
        None,
        None,
        blocks,
        computed,
        None,
        prefill_token_ids=list(range(known)),
    )


class Stream:
    """A scheduler's outputs: honest ones by default. With `odd` the ids and counts make no sense,
    which a walker must hand through all the same."""

    def __init__(self, seed: int, num_groups: int = 1, odd: bool = False) -> None:
        self.random = random.Random(seed)
        self.num_groups = num_groups
        self.odd = odd
        self.live: dict[str, int] = {}  # name -> computed tokens
        self.gone: list[str] = []
        self.names = 0

    def blocks(self, most: int = 4) -> tuple[list[int], ...]:
        low, high = (-5, 1 << 40) if self.odd else (1, 1000)
        counts = [self.random.randrange(most) for _ in range(self.num_groups)]
        return tuple([self.random.randrange(low, high) for _ in range(n)] for n in counts)

    def next(self) -> SchedulerOutput:
        r = self.random
        output = SchedulerOutput()
        for name in list(self.live):
            draw = r.random()
            if draw < 0.1:
                output.finished_req_ids.add(name)
            elif draw < 0.2:
                output.preempted_req_ids = (output.preempted_req_ids or set()) | {name}
            else:
                continue
            del self.live[name]
            self.gone.append(name)
        if r.random() < 0.2:
            output.finished_req_ids.add(f"never-{r.randrange(5)}")
        if self.gone and r.random() < 0.2:
            output.finished_req_ids.add(r.choice(self.gone))
        for _ in range(r.randrange(3)):
            if self.gone and r.random() < 0.4:
                name = self.gone.pop(r.randrange(len(self.gone)))
            elif self.live and r.random() < 0.1:
                name = r.choice(list(self.live))
            else:
                name = f"request-{self.names}-\u00e9"
                self.names += 1
            computed = r.randrange(50)
            new = new_request(name, self.blocks(), computed, computed + r.randrange(1, 60))
            if r.random() < 0.1:
                new.prefill_token_ids = None
            if r.random() < 0.05:
                new.prefill_token_ids = new.prompt_token_ids = None
            output.scheduled_new_reqs.append(new)
            self.live[name] = computed
        cached = output.scheduled_cached_reqs
        admitted = {new.req_id for new in output.scheduled_new_reqs}
        for name, computed in self.live.items():
            if name in admitted or r.random() < 0.2:
                continue
            cached.req_ids.append(name)
            cached.num_computed_tokens.append(r.randrange(1 << 40) if self.odd else computed)
            cached.new_block_ids.append(None if r.random() < 0.5 else self.blocks(2))
            cached.num_output_tokens.append(1)
            if r.random() < 0.05:
                cached.resumed_req_ids.add(name)
                cached.new_block_ids[-1] = self.blocks()
        if self.odd and r.random() < 0.2:
            cached.req_ids.append("stranger")
            cached.num_computed_tokens.append(3)
            cached.new_block_ids.append(self.blocks())
        names = [*admitted, *cached.req_ids]
        if self.odd and r.random() < 0.2:
            names += [name for name in self.live if name not in names]
        for name in names:
            tokens = r.randrange(1, 30)
            output.num_scheduled_tokens[name] = tokens
            if r.random() < 0.2:
                output.scheduled_spec_decode_tokens[name] = [-1] * r.randrange(1, tokens + 1)
            if name in self.live:
                self.live[name] += tokens
        output.total_num_scheduled_tokens = sum(output.num_scheduled_tokens.values())
        if r.random() < 0.2:
            output.new_block_ids_to_zero = self.blocks()[0]
        if r.random() < 0.1:
            output.kv_cache_block_copies = [BlockCopy(1, 2), BlockCopy(3, 4)]
        return output
