# SPDX-License-Identifier: Apache-2.0
"""What a batch processor's cache is: probed by its attributes, never by the library's version.

Two layouts are known. *Sectors* (5.18 on): one allocator for each attention type, whose blocks lie
in sectors of one arena behind two sectors of trash. *Groups* (5.10 to 5.17): layer groups that
share one pool of blocks, the trash behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from kvguard import _core
from kvguard.geometry import Geometry, Group, Pool

FULL, SLIDING = "full_attention", "sliding_attention"
GAPS = ["mask-unjudged"]  # the dense mask of eager and sdpa says again what the lists say


class NotArmed(Exception):  # noqa: N818  it is an answer, not an error
    """The processor runs unguarded; the text is the reason."""


@dataclass(slots=True)
class CacheGroup:
    """One cache group as the engine has it."""

    layer_type: str
    tables: dict[str, list[int]]  # the engine's own: request -> block ids
    first_block: int  # the engine's id of the pool's first block
    shares: bool  # whether requests may share blocks of it
    sentinel: int
    copy_views: list[torch.Tensor]  # bytes, one row for each block, by the engine's ids


@dataclass(slots=True)
class Layout:
    """A cache that can be judged."""

    geometry: Geometry
    groups: list[CacheGroup]
    summary: str


def _need(what: Any, name: str, kind: type | tuple[type, ...] | None = None) -> Any:
    value = getattr(what, name, None)
    if value is None or (kind is not None and not isinstance(value, kind)):
        raise NotArmed(f"unknown layout: {type(what).__name__}.{name} is not what it was")
    return value


def _kind(layer_type: str) -> str:
    if layer_type not in (FULL, SLIDING):
        raise NotArmed(f"cache groups of layer type '{layer_type}' are not known")
    return "full" if layer_type == FULL else "ring"


def _sectors(cache: Any) -> tuple[list[Pool], list[Group], list[CacheGroup]]:
    pools, groups, own = [], [], []
    arena = _need(cache, "cache_tensor")
    reserved = _need(_need(cache, "pool"), "num_reserved_sectors", int)
    for i, (name, allocator) in enumerate(_need(cache, "cache_allocators", dict).items()):
        page = _need(allocator, "tokens_per_page", int)
        stride = _need(allocator, "block_physical_stride", int)
        per_sector = _need(allocator, "blocks_per_sector", int)
        block_bytes = _need(allocator, "bytes_per_block", int)
        if _need(allocator, "index", int) != i or stride % page:
            raise NotArmed(f"unknown layout: blocks of '{name}' are not whole pages apart")
        first = reserved * per_sector
        pools.append(
            Pool(
                num_blocks=_need(allocator, "num_blocks", int),
                read_trash=_need(allocator, "read_trash_index", int),
                write_trash=_need(allocator, "write_trash_index", int),
                byte_base=first * block_bytes,
                byte_stride=block_bytes,
            )
        )
        kind = _kind(name)
        groups.append(
            Group(
                block_size=page,
                kind=kind,
                pool=i,
                table_unit="slot",
                encoding="flat",
                index_scale=stride // page,
                slot_base=first * stride,
                window=_need(allocator, "sliding_window", int) if kind == "ring" else 0,
                num_layers=len(_need(allocator, "layer_indices", list)),
            )
        )
        own.append(
            CacheGroup(
                layer_type=name,
                tables=_need(allocator, "block_table", dict),
                first_block=first,
                shares=bool(allocator.use_block_sharing),
                sentinel=_need(allocator, "sentinel_index", int),
                copy_views=[arena.view(-1, block_bytes)],
            )
        )
    return pools, groups, own


def _groups(cache: Any) -> tuple[list[Pool], list[Group], list[CacheGroup]]:
    page = _need(cache, "block_size", int)
    num_blocks = _need(cache, "num_blocks", int)
    # 5.10 has one index for both.
    read_trash = getattr(cache, "read_trash_index", getattr(cache, "trash_index", None))
    write_trash = getattr(cache, "write_trash_index", getattr(cache, "trash_index", None))
    if not isinstance(read_trash, int) or not isinstance(write_trash, int):
        raise NotArmed("unknown layout: PagedAttentionCache has no trash index")
    pools = [Pool(num_blocks=num_blocks, read_trash=read_trash, write_trash=write_trash)]
    tensors = _need(cache, "key_cache", list) + _need(cache, "value_cache", list)
    # Bytes: what was never written may be no number, and that is not equal to itself.
    views = [tensor.view(torch.uint8).view(num_blocks + 2, -1) for tensor in tensors]
    places = _need(cache, "layer_index_to_group_indices", dict)
    groups, own = [], []
    for i, manager in enumerate(_need(cache, "group_cache_managers", list)):
        layer_type = SLIDING if getattr(manager, "sliding_window", None) is not None else FULL
        kind = _kind(layer_type)
        groups.append(
            Group(
                block_size=page,
                kind=kind,
                table_unit="slot",
                encoding="flat",
                window=_need(manager, "sliding_window", int) if kind == "ring" else 0,
                num_layers=sum(group == i for group, _ in places.values()),
            )
        )
        own.append(
            CacheGroup(
                layer_type=layer_type,
                tables=_need(manager, "block_table", dict),
                first_block=0,
                shares=bool(_need(manager, "uses_block_sharing", int)),
                sentinel=_need(cache, "sentinel_index", int),
                copy_views=views,
            )
        )
    return pools, groups, own


def _refuse(processor: Any) -> None:
    """Ways to run that are known and not judged."""
    ios = _need(processor, "inputs_and_outputs")
    cache = _need(processor, "cache")
    if hasattr(ios, "io_pairs"):
        raise NotArmed("asynchronous batching is not judged (use_async_batching=False)")
    if getattr(processor.cache.device, "type", str(cache.device)) != "cpu":
        raise NotArmed(f"plans lie on {cache.device}: they would have to be copied back")
    if _need(ios, "block_table").numel() > 0:
        raise NotArmed(
            "the block tables of decode batches are not judged (max_blocks_per_request=0)"
        )
    offload = getattr(_need(processor, "offloading_manager"), "_cpu_pool", None)
    if offload is not None or getattr(processor.offloading_manager, "_cpu_cache", None):
        raise NotArmed("a swap pool on the host is not judged (cpu_offload_space=0)")
    world = getattr(_need(processor, "distributed_helper"), "tp_size", 1)
    if world != 1:
        raise NotArmed(f"tensor parallel over {world} processes is not judged")


def probe(processor: Any, version: str, filled_here: bool) -> Layout:
    """The layout of a processor's cache.

    Args:
        processor: a ContinuousBatchProcessor that no step of is under way.
        version: of the library, for the report.
        filled_here: nothing was written to the cache before.

    Raises:
        NotArmed: where anything is other than it is known to be.
    """
    cache = _need(processor, "cache")
    _refuse(processor)
    for name in ("requests_in_batch", "prepare_batch_update", "write_index_storage"):
        _need(processor.inputs_and_outputs, name)
    _need(_need(processor, "scheduler"), "active_requests", dict)
    _need(_need(processor, "model_runner"), "compute_batch")
    if hasattr(cache, "cache_allocators"):
        pools, groups, own = _sectors(cache)
        layout = "sectors"
    elif hasattr(cache, "group_cache_managers"):
        pools, groups, own = _groups(cache)
        layout = "groups"
    else:
        raise NotArmed("unknown layout: the cache has neither allocators nor group managers")
    max_tokens = _need(cache, "max_batch_tokens", int)
    flags = _core.ENGINE_PREFIX_CACHE if any(group.shares for group in own) else 0
    if filled_here:
        flags |= _core.ENGINE_FILLS_TOLD
    geometry = Geometry(
        engine="transformers",
        engine_version=version,
        pools=pools,
        groups=groups,
        max_rows=max_tokens,
        max_tokens=max_tokens,
        flags=flags,
        standing_gaps=list(GAPS),
    )
    parts = [
        f"{g.kind} page {g.block_size}" + (f" window {g.window}" if g.window else "")
        for g in groups
    ]
    blocks = "+".join(str(pool.num_blocks) for pool in pools)
    summary = f"layout={layout} groups={len(groups)} ({', '.join(parts)}) blocks={blocks}"
    return Layout(geometry=geometry, groups=own, summary=summary)
