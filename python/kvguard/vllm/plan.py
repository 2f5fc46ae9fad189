# SPDX-License-Identifier: Apache-2.0
"""Reads plans where they lie: addresses of the runner's and the backend's tensors, no copies."""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple

from vllm.forward_context import get_forward_context, is_forward_context_available

from kvguard import _core
from kvguard.vllm.probes import FINAL_ATTRIBUTES, FINAL_PARTS, FINAL_UNSEEN, Facts, FinalLayer

DTYPES = {"torch.int32": _core.I32, "torch.int64": _core.I64}


class Unreadable(Exception):  # noqa: N818  it is a gap, not an error of anybody
    """A plan that cannot be read, with the gap's name."""

    def __init__(self, gap: str, text: str) -> None:
        super().__init__(text)
        self.gap = gap


class Tokens(NamedTuple):
    """Of a pass."""

    num: int
    padded: int  # a graph's
    positions: Any  # None: not shown


class Given(NamedTuple):
    """What a layer was given. Without a table: slots that only the forward's context has."""

    group: int
    table: Any
    slots: Any
    seq_lens: Any
    query_start: Any
    metadata: Any


class PlanReader:
    """One runner's plans."""

    def __init__(self, runner: Any, facts: Facts) -> None:
        self._num_groups = len(facts.geometry.groups)
        self._pad_slot = facts.geometry.pad_slot
        self._standing_gaps = frozenset(facts.geometry.standing_gaps)
        self._num_blocks = runner.block_tables.num_blocks if facts.row_columns else None
        self._drafts = facts.geometry.max_drafts > 0
        self._outcome = facts.outcome_arguments
        self._final_layers = facts.final_layers
        self._draft_layers = facts.draft_layers
        self._slots_by_layer = facts.slots_by_layer
        self._dtypes: dict[Any, int] = {}
        self._names: dict[type, tuple[str, ...] | None] = {}

    def planned(self, stream: Any, batch: Any, plan: Any) -> int:
        """The return of prepare_attn: a table for each group, and a row of slots for each."""
        tables, slots = plan
        if len(tables) != self._num_groups or slots.shape[0] != self._num_groups:
            raise Unreadable(
                "plan-unreadable",
                f"prepare_attn gave {len(tables)} tables and {slots.shape[0]} slot mappings for "
                f"{self._num_groups} groups",
            )
        if not slots.is_cpu or slots.stride(1) != 1:
            raise Unreadable(
                "plan-unreadable", "the slot mappings do not lie densely in host memory"
            )
        slots_address = slots.data_ptr()
        slots_stride = slots.stride(0) * slots.element_size()
        slots_count = slots.shape[1]
        slots_dtype = self._dtype(slots)
        groups = []
        held = []  # arrays made here, alive until they were judged
        for index, table in enumerate(tables):
            columns = (0, 0, 0)
            if self._num_blocks is not None:
                live = self._num_blocks.np[index][batch.idx_mapping_np]
                held.append(live)
                columns = (live.ctypes.data, live.shape[0], self._numpy_dtype(live))
            groups.append(
                (
                    index,
                    slots_address + index * slots_stride,
                    slots_count,
                    slots_dtype,
                    *self._table(table),
                    *columns,
                )
            )
        return stream.plan(
            _core.STAGE_PLANNED,
            batch.req_ids,
            batch.num_reqs_after_padding,
            batch.num_tokens,
            batch.num_tokens_after_padding,
            self._array(batch.query_start_loc),
            self._array(batch.seq_lens),
            self._array(batch.positions),
            tuple(groups),
        )

    def outcome(
        self, stream: Any, batch: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> int:
        """What the batch's rows sampled and rejected: the arguments of postprocess_sampled. Nothing
        where no drafts are verified."""
        if not self._drafts:
            return 0
        counts = []
        for name, index in zip(("num_sampled", "num_rejected"), self._outcome, strict=True):
            counts.append(self._array(kwargs[name] if name in kwargs else args[index]))
        return stream.outcome(batch.req_ids, *counts)

    def final(self, stream: Any, batch: Any, attn_metadata: Any) -> int:
        """What the layers were given, once for each array that differs from the others'."""
        if not self._final_layers:
            return 0
        context = get_forward_context() if is_forward_context_available() else None
        if attn_metadata is None and context is not None:
            attn_metadata = context.attn_metadata
        tokens = Tokens(batch.num_tokens, batch.num_tokens_after_padding, batch.positions)
        slots = getattr(context, "slot_mapping", None)
        return self._pass(stream, batch, tokens, self._final_layers, attn_metadata, slots)

    def draft(
        self, stream: Any, batch: Any, index: int, buffers: Any, given: tuple[Any, ...]
    ) -> int:
        """A pass of the draft model, before it runs: `given` are the arguments of _run_model."""
        padded, attn_metadata, slots = given[:3]
        # The first pass runs over the target's tokens, and leaves out positions that were rejected.
        tokens = Tokens(batch.num_tokens, padded, None)
        if index > 0:
            tokens = Tokens(batch.num_reqs, padded, buffers.positions[: batch.num_reqs])
        return self._pass(stream, batch, tokens, self._draft_layers, attn_metadata, slots, index)

    def _pass(
        self,
        stream: Any,
        batch: Any,
        tokens: Tokens,
        layers: list[FinalLayer],
        attn_metadata: Any,
        slots: Any,
        draft: int | None = None,
    ) -> int:
        if not isinstance(attn_metadata, dict):
            raise Unreadable(FINAL_UNSEEN, "the forward's attention metadata is no dict of layers")
        if not self._slots_by_layer:
            slots = None
        elif not slots or not isinstance(slots, dict):
            raise Unreadable(FINAL_UNSEEN, "the forward's slot mappings are no dict of layers")
        # Groups whose rows and lengths are the same arrays are one plan: rules across groups see
        # them together. A plan has a group once.
        plans: dict[tuple[int, int], list[list[Given]]] = {}
        for layer in layers:
            try:
                given = self._given(layer, attn_metadata, slots)
            except Unreadable as error:
                if error.gap not in self._standing_gaps:  # else it was said at arming
                    raise
                continue
            for each in given:
                key = (each.seq_lens.data_ptr(), each.query_start.data_ptr())
                same = plans.setdefault(key, [])
                for members in same:
                    if all(member.group != each.group for member in members):
                        members.append(each)
                        break
                else:
                    same.append([each])
        flags = 0
        for same in plans.values():
            for members in same:
                flags |= self._final_plan(stream, batch, tokens, members, draft)
        return flags

    def _given(
        self, layer: FinalLayer, attn_metadata: dict[str, Any], slots: dict[str, Any] | None
    ) -> list[Given]:
        """What the layers of a backend were given: one, where they share it as they should."""
        first = attn_metadata.get(layer.layers[0])
        first_slots = slots.get(layer.layers[0]) if slots is not None else None
        pairs = [(first, first_slots)]
        for name in layer.layers[1:]:
            metadata = attn_metadata.get(name)
            own_slots = slots.get(name) if slots is not None else None
            if metadata is not first or own_slots is not first_slots:
                pairs.append((metadata, own_slots))
        given = []
        for metadata, own_slots in pairs:
            table, written, seq_lens, query_start = self._tensors(layer, metadata)
            table = table if layer.with_table else None
            given.append(Given(layer.group, table, written, seq_lens, query_start, metadata))
            if slots is None:
                continue
            if own_slots is None:  # a layer without slots writes no token
                own_slots = written[:0]
            if own_slots.data_ptr() != written.data_ptr() or own_slots.shape != written.shape:
                given.append(Given(layer.group, None, own_slots, seq_lens, query_start, metadata))
        return given

    def _final_plan(
        self, stream: Any, batch: Any, tokens: Tokens, members: list[Given], draft: int | None
    ) -> int:
        groups = []
        held = []
        num_rows = batch.num_reqs
        padded_rows = num_rows
        num_tokens = tokens.num
        padded_tokens = None
        for given in members:
            slots = given.slots
            slot_array = self._array(slots)
            if (
                slots.shape[0] < num_tokens
            ):  # a token without a slot is not written: it has the pad slot
                missing = num_tokens - slots.shape[0]
                longer = array("q", slots.tolist() + [self._pad_slot] * missing)
                held.append(longer)
                slot_array = (longer.buffer_info()[0], num_tokens, _core.I64)
            table_array = (0, 0, 0, 0, 0)
            if given.table is not None:
                table_array = self._table(given.table)
                padded_rows = max(padded_rows, given.table.shape[0])
            groups.append((given.group, *slot_array, *table_array, 0, 0, 0))
            count = slot_array[1]
            padded_tokens = count if padded_tokens is None else min(padded_tokens, count)
            actual = getattr(given.metadata, "num_actual_tokens", num_tokens)
            if actual != tokens.padded:  # a graph's metadata counts its padding
                num_tokens = actual
        return stream.plan(
            _core.STAGE_FINAL,
            batch.req_ids,
            padded_rows,
            num_tokens,
            max(padded_tokens or 0, num_tokens),
            self._array(members[0].query_start),
            self._array(members[0].seq_lens),
            None if tokens.positions is None else self._array(tokens.positions),
            tuple(groups),
            _core.PASS_TARGET if draft is None else _core.PASS_DRAFT,
            draft or 0,
        )

    def _tensors(self, layer: FinalLayer, metadata: Any) -> tuple[Any, ...]:
        """(table, slots, seq_lens, query_start) of a metadata object."""
        kind = type(metadata)
        if kind not in self._names:
            self._names[kind] = names_of(metadata)
        names = self._names[kind]
        if names is None and all(hasattr(metadata, name) for name in FINAL_PARTS):
            return joined(metadata)
        tensors = tuple(getattr(metadata, name, None) for name in names) if names else (None,)
        if any(tensor is None for tensor in tensors):
            raise Unreadable(
                FINAL_UNSEEN,
                f"group {layer.group}: {kind.__name__} does not show table, slots and lengths",
            )
        return tensors

    def _table(self, table: Any) -> tuple[int, int, int, int, int]:
        if not table.is_cpu or table.dim() != 2 or table.stride(1) != 1:
            raise Unreadable("plan-unreadable", "a table does not lie densely in host memory")
        shape = table.shape
        return table.data_ptr(), self._dtype(table), shape[0], shape[1], table.stride(0)

    def _array(self, tensor: Any) -> tuple[int, int, int]:
        if (
            not tensor.is_cpu
            or tensor.dim() != 1
            or (tensor.stride(0) != 1 and tensor.shape[0] > 1)
        ):
            raise Unreadable("plan-unreadable", "an array does not lie densely in host memory")
        return tensor.data_ptr(), tensor.shape[0], self._dtype(tensor)

    def _dtype(self, tensor: Any) -> int:
        return self._code(tensor.dtype, str(tensor.dtype))

    def _numpy_dtype(self, array: Any) -> int:
        return self._code(array.dtype, f"torch.{array.dtype}")

    def _code(self, dtype: Any, name: str) -> int:
        code = self._dtypes.get(dtype)
        if code is None:
            if name not in DTYPES:
                raise Unreadable("plan-unreadable", f"an array of {name} is no array of integers")
            code = self._dtypes[dtype] = DTYPES[name]
        return code


def joined(metadata: Any) -> tuple[Any, ...]:
    """(table, slots, seq_lens, query_start) of metadata that keep rows with one token apart from
    the others. They are copies: a plan has its rows in one array."""
    import torch  # not before the engine has it

    decodes, start = metadata.num_decodes, metadata.query_start_loc
    tables, lengths, starts = [], [], [start[: decodes + 1]]
    if metadata.decode is not None:
        tables.append(metadata.decode.block_table[:decodes])
        lengths.append(metadata.decode.seq_lens[:decodes])
    if metadata.prefill is not None:
        own = metadata.prefill.query_start_loc
        context = metadata.prefill.chunked_context
        tables.append(metadata.prefill.block_table)
        lengths.append(own.diff() if context is None else own.diff() + context.context_lens)
        starts.append(own[1:] + metadata.num_decode_tokens)
    if not tables:
        raise Unreadable(FINAL_UNSEEN, f"{type(metadata).__name__} has neither of its parts")
    return torch.cat(tables), metadata.slot_mapping, torch.cat(lengths), torch.cat(starts)


def names_of(metadata: Any) -> tuple[str, ...] | None:
    """The attributes with (table, slots, seq_lens, query_start); None where one is no tensor."""
    names = []
    for key in ("table", "slots", "seq_lens", "query_start"):
        for name in FINAL_ATTRIBUTES[key]:
            if hasattr(getattr(metadata, name, None), "data_ptr"):
                names.append(name)
                break
        else:
            return None
    return tuple(names)
