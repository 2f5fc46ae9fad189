# SPDX-License-Identifier: Apache-2.0
"""An engine's geometry, typed. The names are those of kvguard.h."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(slots=True)
class Pool:
    """Blocks that one allocator hands out."""

    num_blocks: int
    null_block: int = -1
    kind: str = "pages"
    read_trash: int = -1
    write_trash: int = -1
    arena: int = 0
    byte_base: int = 0
    byte_stride: int = 0


@dataclass(slots=True)
class Group:
    """Layers that share one table and one slot mapping."""

    block_size: int
    kind: str = "full"
    pool: int = 0
    kernel_block_size: int | None = None
    table_unit: str = "block"
    max_columns: int = 0
    window: int = 0
    retained: int = 0
    num_layers: int = 0
    flags: int = 0
    encoding: str = "table"
    index_scale: int = 1
    slot_base: int = 0


@dataclass(slots=True)
class Geometry:
    """One rank of one engine."""

    engine: str
    pools: list[Pool]
    groups: list[Group]
    max_rows: int
    max_tokens: int
    engine_version: str = ""
    max_model_len: int = 0
    num_lookahead: int = 0
    max_drafts: int = 0
    pad_slot: int = -1
    flags: int = 0
    rank: int = 0
    num_ranks: int = 1
    standing_gaps: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """For kvguard.Guard."""
        return asdict(self)
