# SPDX-License-Identifier: Apache-2.0
"""A KV connector whose store hits, for a scheduler that has no worker: nothing is ever moved.

Named to vLLM by `kv_connector="StoreConnector"` and `kv_connector_module_path="store_connector"`.
The store is a set of block hashes: what finished requests had computed is saved there, and
`fill` saves at once. What is to be loaded and sent leaves in the metadata of each step, as from
every connector; schedule.py's stand-in of a worker answers it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    SupportsHMA,
)

MOST_KEPT = 400  # block hashes; beyond it some are dropped, so that the store misses too
MAY_WAIT = 0.03  # of the questions: it cannot say yet
IS_SAVED = 0.5  # of the finished requests
IS_SENT = 0.15  # of the finished requests: their blocks are kept until they are sent


@dataclass(frozen=True, eq=False)  # a request may be given the same blocks again
class Load:
    """Tokens [first, first + count) of a request, and the blocks of each group that hold them."""

    name: str
    first: int
    count: int
    blocks: tuple[tuple[int, ...], ...]
    is_async: bool


@dataclass(frozen=True, eq=False)
class Send:
    """Blocks of each group of a request that has finished, kept until they are sent."""

    name: str
    blocks: tuple[tuple[int, ...], ...]


@dataclass
class Transfers(KVConnectorMetadata):
    """What a worker is told with one step."""

    loads: list[Load] = field(default_factory=list)
    sends: list[Send] = field(default_factory=list)


@dataclass
class Match:
    """What a request was answered last."""

    first: int
    is_async: bool


class StoreConnector(KVConnectorBase_V1, SupportsHMA):
    """The scheduler's half; there is no worker's."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
        extra = self._kv_transfer_config.get_from_extra_config
        self._random = random.Random(extra("seed", 0))
        self._async_share: float = extra("async_share", 0.5)
        self._block_size: int = vllm_config.cache_config.block_size
        self._kept: dict[Any, None] = {}  # block hashes; a dict, whose order is that of saving
        self._matches: dict[str, Match] = {}
        self._transfers = Transfers()
        self._loading: set[str] = set()

    # --- the scheduler's questions ---

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """The longest run of stored blocks behind what is computed here."""
        if self._random.random() < MAY_WAIT:
            return None, False
        first = num_computed_tokens // self._block_size
        end = first
        while end < len(request.block_hashes) and request.block_hashes[end] in self._kept:
            end += 1
        count = (end - first) * self._block_size
        is_async = self._random.random() < self._async_share
        if not is_async and num_computed_tokens + count == request.num_tokens:
            count -= 1  # the last token is computed, whatever is stored
        if count <= 0:
            return 0, False
        self._matches[request.request_id] = Match(num_computed_tokens, is_async)
        return count, is_async

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        if num_external_tokens == 0:
            return
        name = request.request_id
        match = self._matches.pop(name)
        first = match.first // self._block_size
        end = -(-(match.first + num_external_tokens) // self._block_size)
        held = tuple(tuple(ids[first:end]) for ids in blocks.get_block_ids())
        load = Load(name, match.first, num_external_tokens, held, match.is_async)
        self._transfers.loads.append(load)
        if match.is_async:
            self._loading.add(name)

    def build_connector_meta(self, scheduler_output: Any) -> Transfers:
        transfers, self._transfers = self._transfers, Transfers()
        return transfers

    def update_connector_output(self, connector_output: Any) -> None:
        self._loading -= connector_output.finished_recving or set()

    def request_finished_all_groups(
        self, request: Any, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, None]:
        name = request.request_id
        self._matches.pop(name, None)
        if name in self._loading or not any(block_ids):
            return False, None  # a load's blocks are kept until it has ended, by vLLM itself
        if self._random.random() < IS_SAVED:
            self.fill(request.block_hashes[: request.num_computed_tokens // self._block_size])
        if self._random.random() >= IS_SENT:
            return False, None
        self._transfers.sends.append(Send(name, tuple(tuple(ids) for ids in block_ids)))
        return True, None

    # --- the store ---

    def fill(self, hashes: Any) -> None:
        """Saves blocks."""
        for each in hashes:
            self._kept[each] = None
        while len(self._kept) > MOST_KEPT:
            del self._kept[next(iter(self._kept))]

    # --- the worker's half ---

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        raise NotImplementedError("this connector has no worker's half")

    def wait_for_layer_load(self, layer_name: str) -> None:
        raise NotImplementedError("this connector has no worker's half")

    def save_kv_layer(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("this connector has no worker's half")

    def wait_for_save(self) -> None:
        raise NotImplementedError("this connector has no worker's half")
