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


def without(
    rows: list[int], batch: Any, read_index: list[torch.Tensor], starts: list[torch.Tensor]
) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
    """Query offsets, read lists and their offsets of these rows alone. The others have no token:
    nobody attends to what they read."""
    ends = batch["cu_seq_lens_q"][[0] + [row + 1 for row in rows]]
    lists, offsets = [], []
    for reads, bounds in zip(read_index, (s.tolist() for s in starts), strict=True):
        spans = [reads[bounds[row] : bounds[row + 1]] for row in rows]
        lists.append(torch.cat(spans) if reads.numel() else reads)
        offsets.append(
            torch.tensor([0] + [bounds[row + 1] - bounds[row] for row in rows]).cumsum(0)
        )
    return ends, lists, offsets


class PlanReader:
    """The plans of one processor."""

    def __init__(self, groups: list[CacheGroup]) -> None:
        self._groups = groups
        self._kept: Any = None  # what the last plan's addresses point to, where it is our own

    def read(self, batch: Any, keys: list[int], lengths: list[int]) -> dict[str, Any]:
        """The fields of a PLAN.

        Args:
            batch: what the forward is given (get_model_kwargs).
            keys: of the rows, in their order.
            lengths: their tokens; a row that has none (a fork's parent with nothing to compute
                before its last token) is left out.
        """
        if batch.get("block_table") is not None:
            raise Unreadable("block-table-path")
        query_start, starts, reads = batch["cu_seq_lens_q"], [], batch["read_index"]
        for group in self._groups:
            of_type = batch["cu_seq_lens_k"]
            # Up to 5.17, layers of one type have no name for it.
            starts.append(of_type[group.layer_type] if isinstance(of_type, Mapping) else of_type)
        padded_rows = query_start.numel() - 1
        if 0 in lengths:
            rows = [row for row, length in enumerate(lengths) if length]
            padded_rows -= len(keys) - len(rows)
            keys = [keys[row] for row in rows]
            query_start, reads, starts = without(rows, batch, reads, starts)
        positions = batch["position_ids"].view(-1)
        total = self._total_lengths(query_start, starts, positions, len(keys))
        self._kept = (query_start, starts, reads, total)
        groups: list[dict[str, Any]] = []
        for index, group in enumerate(self._groups):
            shown: dict[str, Any] = {
                "group": index,
                "slots": array("write_index", batch["write_index"][index]),
                "flat_slots": array("read_index", reads[index]),
                "flat_sentinel": group.sentinel,
            }
            if reads[index].numel():  # else attention takes the keys that it has at hand
                shown["flat_starts"] = array("cu_seq_lens_k", starts[index])
            groups.append(shown)
        return {
            "requests": keys,
            "padded_rows": padded_rows,
            "num_tokens": sum(lengths),
            "padded_tokens": batch["input_ids"].numel(),
            "query_start": array("cu_seq_lens_q", query_start),
            "positions": array("position_ids", positions),
            "seq_lens": array("cu_seq_lens_k", total),
            "groups": groups,
            "stage": _core.STAGE_FINAL,
        }

    def _total_lengths(
        self,
        query_start: torch.Tensor,
        starts: list[torch.Tensor],
        positions: torch.Tensor,
        num_rows: int,
    ) -> torch.Tensor:
        """How long each request is once the batch is computed, as the plan has it."""
        for group, offsets in zip(self._groups, starts, strict=True):
            if group.layer_type == FULL:
                return torch.diff(offsets)
        # Rings alone: their lists do not say it.
        last = query_start[1 : num_rows + 1].long() - 1
        return positions[last.clamp(0, positions.numel() - 1)] + 1
