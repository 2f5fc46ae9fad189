# SPDX-License-Identifier: Apache-2.0
"""Plants the faults of faults.toml in a processor, below the guard.

Every fault is a function of (processor, once): it wraps a method of an instance, and calls `once`
with what it did where it did it, the first time that the situation allows it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.hf import engine
from tests.hf.driver import Arrival

Once = Callable[[str], bool]  # whether it is due; from the first True on it answers False
FAULTS: dict[str, Callable[[Any, Once], None]] = {}


def fault(function: Callable[[Any, Once], None]) -> Callable[[Any, Once], None]:
    FAULTS[function.__name__.replace("_", "-")] = function
    return function


def wrap(what: Any, name: str, wrapper: Callable[..., Any]) -> None:
    inner = getattr(what, name)
    setattr(what, name, lambda *args, **kwargs: wrapper(inner, *args, **kwargs))


def on_plan(processor: Any, edit: Callable[[dict[str, Any], list[Any]], None]) -> None:
    """edit(batch, requests of the batch), each time that a batch is handed out."""

    def call(inner: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        batch = inner(*args, **kwargs)
        edit(batch, processor.inputs_and_outputs.requests_in_batch)
        return batch

    wrap(processor.inputs_and_outputs, "get_model_kwargs", call)


def allocator_of(processor: Any) -> Any:
    return next(iter(processor.cache.cache_allocators.values()))


def decoding(requests: list[Any]) -> bool:
    """A step of decodes alone, of two requests or more, somewhat into their lives."""
    return len(requests) > 1 and all(
        f.query_length == 1 and f.state.position_offset > 18 for f in requests
    )


# --- plan ---


def _plan_fault(name: str, change: Callable[[Any, dict[str, Any], list[Any]], None]) -> None:
    def plant(processor: Any, once: Once) -> None:
        def edit(batch: dict[str, Any], requests: list[Any]) -> None:
            if decoding(requests) and once(name):
                change(processor, batch, requests)

        on_plan(processor, edit)

    FAULTS[name] = plant


def _next_slot(processor: Any, batch: dict[str, Any], requests: list[Any]) -> None:
    batch["write_index"][0][0] += 1


def _neighbour(processor: Any, batch: dict[str, Any], requests: list[Any]) -> None:
    allocator = allocator_of(processor)
    other = allocator.block_table[requests[1].state.request_id][0]
    batch["write_index"][0][0] = other * allocator.block_physical_stride


def _block_behind(processor: Any, batch: dict[str, Any], requests: list[Any]) -> None:
    allocator, state = allocator_of(processor), requests[0].state
    position = state.position_offset - 1
    row = allocator.block_table[state.request_id]
    page = allocator.tokens_per_page
    block = row[position // page - 1]
    batch["write_index"][0][0] = block * allocator.block_physical_stride + position % page


def _rows_swapped(processor: Any, batch: dict[str, Any], requests: list[Any]) -> None:
    index = batch["write_index"][0]
    index[:2] = index[:2].flip(0)


def _out_of_pool(processor: Any, batch: dict[str, Any], requests: list[Any]) -> None:
    batch["write_index"][0][0] = 1 << 40


def _to_trash(processor: Any, batch: dict[str, Any], requests: list[Any]) -> None:
    batch["write_index"][0][0] = allocator_of(processor).write_trash_index


def _entries_swapped(processor: Any, batch: dict[str, Any], requests: list[Any]) -> None:
    index = batch["read_index"][0]
    index[3:5] = index[3:5].flip(0)


def _read_neighbour(processor: Any, batch: dict[str, Any], requests: list[Any]) -> None:
    starts = batch["cu_seq_lens_k"]["full_attention"].tolist()
    index = batch["read_index"][0]
    index[:4] = index[starts[1] : starts[1] + 4].clone()


def _read_trash(processor: Any, batch: dict[str, Any], requests: list[Any]) -> None:
    batch["read_index"][0][2] = allocator_of(processor).read_trash_index


def _one_short(processor: Any, batch: dict[str, Any], requests: list[Any]) -> None:
    batch["read_index"][0] = batch["read_index"][0][:-1]
    batch["cu_seq_lens_k"]["full_attention"][-1] -= 1


def _read_offsets(processor: Any, batch: dict[str, Any], requests: list[Any]) -> None:
    batch["cu_seq_lens_k"]["full_attention"][1] += 1


def _query_offsets(processor: Any, batch: dict[str, Any], requests: list[Any]) -> None:
    batch["cu_seq_lens_q"][1] += 1


def _positions(processor: Any, batch: dict[str, Any], requests: list[Any]) -> None:
    batch["position_ids"][0, 0] += 1


for _name, _change in {
    "write-index-next-slot": _next_slot,
    "write-into-a-neighbours-block": _neighbour,
    "write-one-block-behind": _block_behind,
    "write-rows-swapped": _rows_swapped,
    "write-out-of-the-pool": _out_of_pool,
    "write-a-token-to-the-trash": _to_trash,
    "read-two-entries-swapped": _entries_swapped,
    "read-a-neighbours-block": _read_neighbour,
    "read-from-the-trash": _read_trash,
    "read-list-one-short": _one_short,
    "read-offsets-moved": _read_offsets,
    "query-offsets-moved": _query_offsets,
    "positions-one-ahead": _positions,
}.items():
    _plan_fault(_name, _change)


@fault
def write_index_of_the_last_step(processor: Any, once: Once) -> None:
    last: list[Any] = []

    def edit(batch: dict[str, Any], requests: list[Any]) -> None:
        index = batch["write_index"][0]
        if decoding(requests) and last and len(last[0]) == len(index) and once("the last step's"):
            index[:] = last[0]
        last[:] = [index.clone()]

    on_plan(processor, edit)


@fault
def pad_not_on_the_trash(processor: Any, once: Once) -> None:
    def edit(batch: dict[str, Any], requests: list[Any]) -> None:
        index, tokens = batch["write_index"][0], sum(f.query_length for f in requests)
        if len(index) > tokens and once(f"pad {tokens}"):
            index[tokens] = index[0]

    on_plan(processor, edit)


@fault
def ring_read_one_too_early(processor: Any, once: Once) -> None:
    def edit(batch: dict[str, Any], requests: list[Any]) -> None:
        index = batch["read_index"][0]
        if decoding(requests) and once("the whole list"):
            allocator = allocator_of(processor)
            state = requests[0].state
            past = state.position_offset - 1
            window = allocator.sliding_window
            first = (past - window) % window
            index[: window - 1] = index.new_tensor(
                allocator._token_indices_to_physical_indices(state.request_id, first, window - 1)
            )

    on_plan(processor, edit)


@fault
def ring_sentinel_lost(processor: Any, once: Once) -> None:
    def edit(batch: dict[str, Any], requests: list[Any]) -> None:
        index = batch["read_index"][0]
        if decoding(requests) and once("the first sentinel"):
            at = (index == allocator_of(processor).sentinel_index).nonzero()[0, 0]
            index[at] = index[0]

    on_plan(processor, edit)


@fault
def ring_write_one_turn_late(processor: Any, once: Once) -> None:
    def edit(batch: dict[str, Any], requests: list[Any]) -> None:
        if decoding(requests) and once("the token before"):
            state = requests[0].state
            batch["write_index"][0][0] = allocator_of(processor)._token_indices_to_physical_indices(
                state.request_id, state.position_offset - 2, 1
            )[0]

    on_plan(processor, edit)


@fault
def ring_clipped_token_written(processor: Any, once: Once) -> None:
    def edit(batch: dict[str, Any], requests: list[Any]) -> None:
        index = batch["write_index"][0]
        trash = allocator_of(processor).write_trash_index
        if index[0] == trash and once("the first token"):
            index[0] = index[index != trash][0]

    on_plan(processor, edit)


@fault
def ring_clipped_prefill_from_its_start(processor: Any, once: Once) -> None:
    allocator = allocator_of(processor)

    def write(inner: Callable[..., Any], request: str, past: int, query: int) -> Any:
        window = allocator.sliding_window
        clipped = query - min(query, window)
        if clipped % window and once(f"{clipped} clipped"):
            kept = allocator._token_indices_to_physical_indices(
                request, past % window, query - clipped
            )
            return [allocator.write_trash_index] * clipped + kept
        return inner(request, past, query)

    wrap(allocator, "get_write_indices", write)


# --- tables ---


def _pool_fault(name: str, change: Callable[[Any, list[int], list[list[int]]], int]) -> None:
    """Of the blocks that a running request is given beyond its first ones."""

    def plant(processor: Any, once: Once) -> None:
        allocator = allocator_of(processor)

        def grow(inner: Callable[..., Any], request: str, past: int, query: int) -> Any:
            row = allocator.block_table.get(request, [])
            before = len(row)
            inner(request, past, query)
            row = allocator.block_table[request]
            others = [r for n, r in allocator.block_table.items() if n != request and r]
            if before and len(row) > before and others and once(name):
                row[before] = change(processor, row[:before], others)

        wrap(allocator, "allocate_cache_to_request", grow)

    FAULTS[name] = plant


_pool_fault(
    "block-given-twice",
    lambda processor, row, others: next(b for r in others for b in r if b not in row),
)
_pool_fault("block-twice-in-a-row", lambda processor, row, others: row[0])
_pool_fault(
    "block-out-of-the-pool",
    lambda processor, row, others: (
        allocator_of(processor).num_blocks + 2 * allocator_of(processor).blocks_per_sector
    ),
)
_pool_fault("block-of-the-trash", lambda processor, row, others: 1)


@fault
def count_one_ahead(processor: Any, once: Once) -> None:
    def schedule(inner: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        for state in processor.scheduler.active_requests.values():
            room = -state.position_offset % allocator_of(processor).tokens_per_page
            if state.generated_tokens and room > 2 and once("a decode"):
                state.position_offset += 1
        return inner(*args, **kwargs)

    wrap(processor.scheduler, "schedule_batch", schedule)


# --- content ---


@fault
def prefix_block_of_another_chain(processor: Any, once: Once) -> None:
    """The first block of a match is the first one of a request that begins otherwise."""
    allocator = allocator_of(processor)

    def match(inner: Callable[..., Any], tokens: list[int]) -> list[int]:
        blocks = inner(tokens)
        for name, row in allocator.block_table.items():
            if blocks and row[0] != blocks[0] and once(f"the first one of {name}"):
                return [row[0], *blocks[1:]]
        return blocks

    wrap(allocator, "match_prefix_blocks", match)


@fault
def prefix_block_of_another_column(processor: Any, once: Once) -> None:
    allocator = allocator_of(processor)

    def match(inner: Callable[..., Any], tokens: list[int]) -> list[int]:
        blocks = inner(tokens)
        if len(blocks) > 1 and once("two columns have changed places"):
            return [blocks[1], blocks[0], *blocks[2:]]
        return blocks

    wrap(allocator, "match_prefix_blocks", match)


@fault
def prefix_block_never_filled(processor: Any, once: Once) -> None:
    """The last block of a running request, for the same column of another."""
    allocator = allocator_of(processor)

    def match(inner: Callable[..., Any], tokens: list[int]) -> list[int]:
        blocks = inner(tokens)
        for name, row in allocator.block_table.items():
            column = len(row) - 1
            length = processor.scheduler.active_requests[name].position_offset
            whole = length % allocator.tokens_per_page == 0
            fits = 0 < column <= len(blocks) and not whole
            if fits and len(tokens) > (column + 1) * allocator.tokens_per_page and once(name):
                return [*blocks[:column], row[column]]
        return blocks

    wrap(allocator, "match_prefix_blocks", match)


@fault
def duplicate_given_up_for_other_tokens(processor: Any, once: Once) -> None:
    """The ledger says that a block just filled is the one that another request filled."""
    ledger, allocator = allocator_of(processor).ledger, allocator_of(processor)

    def register(inner: Callable[..., Any], block: int, value: int) -> Any:
        rows = list(allocator.block_table.values())
        column = next((r.index(block) for r in rows if block in r), 0)
        for row in rows:
            whole = len(row) > column and row[column] in ledger.block_to_hash
            if whole and block not in row and once(f"column {column}"):
                return row[column]
        return inner(block, value)

    wrap(ledger, "register_new_hash", register)


@fault
def fork_copy_announced_not_done(processor: Any, once: Once) -> None:
    def copy(inner: Callable[..., Any], sources: list[int], targets: list[int]) -> None:
        if not once(f"{sources} to {targets}"):
            inner(sources, targets)

    wrap(allocator_of(processor), "copy_blocks", copy)


FAULTS["ring-fork-copy-not-done"] = fork_copy_announced_not_done


@fault
def fork_copy_of_another_block(processor: Any, once: Once) -> None:
    allocator = allocator_of(processor)

    def copy(inner: Callable[..., Any], sources: list[int], targets: list[int]) -> None:
        other = next(
            (r[0] for r in allocator.block_table.values() if r[0] not in sources + targets), None
        )
        if other is not None and once(f"{other} to {targets[0]}"):
            sources = [other, *sources[1:]]
        inner(sources, targets)

    wrap(allocator, "copy_blocks", copy)


# --- scenes ---


def scene(name: str) -> tuple[Any, list[Arrival], Any, Any]:
    """Model, arrivals, generation and batching."""
    model, _, kind = name.partition("-")
    inputs = engine.prompts([20, 33, 43, 13, 42], seed=7, shared=24)
    inputs[1] = engine.prompts([33], seed=8)[0]
    arrivals = [
        Arrival(f"r{i}", tokens, step=step)
        for i, (tokens, step) in enumerate(zip(inputs, (1, 1, 4, 6, 8), strict=True))
    ]
    more: dict[str, Any] = {}
    if kind == "padded":
        from transformers.generation.configuration_utils import CompileConfig

        more = {"varlen_compile_config": CompileConfig(), "q_padding_interval_size": 16}
    tokens = 128 if kind == "long" else 64
    return (
        engine.model(model),
        arrivals,
        engine.generation(20, sequences=2 if kind == "forked" else 1),
        engine.batching(tokens=tokens, **more),
    )
