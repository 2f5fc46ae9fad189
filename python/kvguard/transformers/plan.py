# SPDX-License-Identifier: Apache-2.0
"""Reads the plan of a batch where it lies: addresses of the tensors that the forward is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from kvguard import _core
from kvguard.transformers.layout import FULL, CacheGroup

DTYPES = {torch.int32: _core.I32, torch.int64: _core.I64}

Array = tuple[int, int, int]  # address, elements, dtype


class Unreadable(Exception):  # noqa: N818  it is a gap, not an error of anybody
    """A plan that cannot be read, with the gap's name."""

    def __init__(self, gap: str) -> None:
        super().__init__(gap)
        self.gap = gap


def array(name: str, tensor: torch.Tensor) -> Array:
    """A view of a tensor of integers in host memory whose elements are consecutive."""
    dtype = DTYPES.get(tensor.dtype)
    if dtype is None or not tensor.is_contiguous():
        raise Unreadable(f"plan-unreadable:{name}")
    return tensor.data_ptr(), tensor.numel(), dtype


class PlanReader:
    """The plans of one processor."""

    def __init__(self, groups: list[CacheGroup]) -> None:
        self._groups = groups
        self._lengths: torch.Tensor | None = None  # kept while the last plan's address is in use

    def read(self, batch: Any, keys: list[int], num_tokens: int) -> dict[str, Any]:
        """The fields of a PLAN.

        Args:
            batch: what the forward is given (get_model_kwargs).
            keys: of the rows, in their order.
            num_tokens: of the rows together, padding aside.
        """
        if batch.get("block_table") is not None:
            raise Unreadable("block-table-path")
        query_start, all_starts = batch["cu_seq_lens_q"], batch["cu_seq_lens_k"]
        groups: list[dict[str, Any]] = []
        lengths: torch.Tensor | None = None
        for index, group in enumerate(self._groups):
            starts, reads = all_starts, batch["read_index"][index]
            if isinstance(starts, Mapping):  # up to 5.17 one type of layers has its own alone
                starts = starts[group.layer_type]
            shown: dict[str, Any] = {
                "group": index,
                "slots": array("write_index", batch["write_index"][index]),
                "flat_slots": array("read_index", reads),
                "flat_sentinel": group.sentinel,
            }
            if reads.numel():  # an empty list: attention takes the keys that it has at hand
                shown["flat_starts"] = array("cu_seq_lens_k", starts)
            if lengths is None and group.layer_type == FULL:
                lengths = torch.diff(starts)
            groups.append(shown)
        positions = batch["position_ids"].view(-1)
        if lengths is None:  # rings alone: no list says how long a request is
            last = query_start[1 : len(keys) + 1].long() - 1
            lengths = positions[last.clamp(0, positions.numel() - 1)] + 1
        self._lengths = lengths
        return {
            "requests": keys,
            "padded_rows": query_start.numel() - 1,
            "num_tokens": num_tokens,
            "padded_tokens": batch["input_ids"].numel(),
            "query_start": array("cu_seq_lens_q", query_start),
            "positions": array("position_ids", positions),
            "seq_lens": array("cu_seq_lens_k", lengths),
            "groups": groups,
            "stage": _core.STAGE_FINAL,
        }
