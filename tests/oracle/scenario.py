# SPDX-License-Identifier: Apache-2.0
"""JSON lines by hand, as `kvguard trace dump --jsonl` prints them.

Nothing here computes an address, a length or a frontier: the tests say every number.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from kvguard_oracle import Result, judge_lines

Line = dict[str, Any]

ASYNC, CONNECTOR = 1, 2
NO_SLOTS, PAD_ROWS_NULL = 2, 4


def group(**fields: Any) -> Line:
    """Blocks of 4 tokens, at most 4 columns: 16 tokens a row."""
    return {
        "id": 0, "pool": 0, "kind": "full", "placement": "assigned", "encoding": "table",
        "table_unit": "block", "flags": 0, "block_size": 4, "kernel_block_size": 4,
        "index_scale": 1, "token_stride": 1, "slot_base": 0, "max_columns": 4, "window": 0,
        "sink": 0, "state_mode": 0, "retained": 0, "num_layers": 1, "shard_formula": 0, **fields,
    }  # fmt: skip


def pool(**fields: Any) -> Line:
    """Blocks 0..9; block 0 is the null block: slots 4..39 are real."""
    return {
        "id": 0, "kind": "pages", "memory": "device", "num_blocks": 10, "null_block": 0,
        "read_trash": -1, "write_trash": -1, "arena": 0, "byte_base": 0, "byte_stride": 0, **fields,
    }  # fmt: skip


def geometry(
    groups: list[Line] | None = None, pools: list[Line] | None = None, **fields: Any
) -> Line:
    return {
        "record": "geometry", "kvguard_version": "0.1.0", "incident": False, "engine": "hand",
        "engine_version": "", "flags": 0, "pools": pools or [pool()], "groups": groups or [group()],
        "max_rows": 8, "max_tokens": 32, "max_model_len": 16, "num_lookahead": 0, "max_drafts": 4,
        "pad_slot": -1, "rank": 0, "num_ranks": 1, "tp_rank": 0, "tp_size": 1, "pp_rank": 0,
        "pp_size": 1, "dcp_rank": 0, "dcp_size": 1, "pcp_rank": 0, "pcp_size": 1, "interleave": 1,
        "pcp_layout": 0, "standing_gaps": [], **fields,
    }  # fmt: skip


KIND_VALUES = {
    "admit": 1, "finish": 2, "preempt": 3, "rollback": 4, "domain": 5, "append": 16, "replace": 17,
    "truncate": 18, "share": 19, "remap": 20, "free": 21, "erase": 32, "rebase": 33, "zero": 34,
    "zero-done": 35, "copy": 36, "copy-done": 37,
    "reserve": 48, "load": 49, "load-done": 50, "load-failed": 51, "send-pending": 52,
    "send-done": 53, "cancel": 54, "drain": 55, "gap": 64,
}  # fmt: skip


def event(kind: str, request: int = 0, group: int | None = None, **fields: Any) -> Line:
    return {
        "kind": kind, "kind_value": KIND_VALUES[kind], "request": request, "group": group,
        "flags": 0, "first": 0, "count": 0, "other": 0, "value": 0, "blocks": [], "tokens": [],
        "name": f"r{request}" if kind == "admit" else "", **fields,
    }  # fmt: skip


def admit(request: int, *rows: list[int], first: int = 0, count: int = 16) -> list[Line]:
    """An admission and the row of each group, in order."""
    bound = [event("replace", request, index, blocks=row) for index, row in enumerate(rows)]
    return [event("admit", request, first=first, count=count), *bound]


def append(request: int, *blocks: int, group: int = 0) -> Line:
    return event("append", request, group, blocks=list(blocks))


def scheduled(request: int, num_tokens: int, num_computed: int, num_drafts: int = 0) -> Line:
    return {
        "request": request,
        "num_tokens": num_tokens,
        "num_computed": num_computed,
        "num_drafts": num_drafts,
    }


def begin(step: int, events: list[Line], rows: list[Line]) -> Line:
    return {"record": "begin", "step": step, "events": events, "scheduled": rows}


def array(values: list[int] | None, dtype: str = "i32") -> Line | None:
    return None if values is None else {"dtype": dtype, "values": list(values)}


def group_plan(
    table: list[list[int]] | None,
    slots: list[int] | None,
    group: int = 0,
    columns: int = 4,
    row_columns: list[int] | None = None,
    seq_lens: list[int] | None = None,
) -> Line:
    reads = None
    if table is not None:
        reads = {
            "table": {"dtype": "i32", "columns": columns, "rows": table},
            "seq_lens": array(seq_lens),
            "row_columns": array(row_columns),
        }
    return {
        "group": group, "encoding": None if reads is None else "table",
        "slots": array(slots, "i64"), "reads": reads, "slots_address": 0, "reads_address": 0,
    }  # fmt: skip


def state_plan(
    starts: list[int] | None,
    ends: list[int] | None,
    init: list[int] | None = None,
    group: int = 0,
) -> Line:
    """The states that rows start from and leave, and whether they start anew."""
    reads = {"in": array(starts), "out": array(ends), "init": array(init, "u8")}
    return {
        "group": group, "encoding": "state", "slots": None, "reads": reads, "slots_address": 0,
        "reads_address": 0,
    }  # fmt: skip


def plan(
    step: int,
    requests: list[int],
    query_start: list[int],
    seq_lens: list[int],
    *groups: Line,
    **fields: Any,
) -> Line:
    line = {
        "record": "plan", "step": step, "pass": "target", "pass_index": 0, "stage": "planned",
        "num_rows": len(requests), "padded_rows": len(requests), "num_tokens": query_start[-1],
        "padded_tokens": query_start[-1], "requests": requests, "query_start": array(query_start),
        "seq_lens": array(seq_lens), "positions": None, "num_computed": None,
        "groups": list(groups),
    }  # fmt: skip
    for name, value in fields.items():
        if name in ("positions", "num_computed"):
            value = array(value, "i64")
        line["pass" if name == "pass_name" else name] = value
    return line


def transfer(kind: str, id_: int, *blocks: int, request: int = 0, first: int = 0) -> Line:
    """RESERVE, LOAD, SEND_PENDING, or what ends them, in group 0; a LOAD is of whole blocks."""
    count = 4 * len(blocks) if kind == "load" else 0
    return event(kind, request, 0, value=id_, first=first, count=count, blocks=list(blocks))


def outcome(step: int, *rows: tuple[int, int], events: Sequence[Line] = ()) -> Line:
    """(request, rejected) pairs."""
    told = [
        {"request": key, "num_sampled": 1, "num_rejected": rejected, "num_tokens": 0, "tokens": []}
        for key, rejected in rows
    ]
    return {"record": "outcome", "step": step, "rows": told, "events": list(events)}


def end(step: int, flags: int = 0) -> Line:
    return {"record": "end", "step": step, "flags": flags}


def reset() -> Line:
    return {"record": "reset", "step": 0, "reason": "arm"}


def judge(*records: Line, geometry_line: Line | None = None) -> Result:
    return judge_lines(copy.deepcopy([geometry_line or geometry(), *records]))


CONTENT_UNWRITTEN = 803


def found(result: Result, unwritten: bool = False) -> list[tuple[int, int | None, int, int]]:
    """(code, group, request, pos) of every finding, suspicions too.

    Most scenarios compute nothing of what they hit: 0803 is told only where it is asked for.
    """
    findings = [f for f in result.findings if unwritten or f.code != CONTENT_UNWRITTEN]
    return sorted(
        ((f.code, f.group, f.request, f.pos) for f in findings),
        key=lambda key: (key[0], -1 if key[1] is None else key[1], key[2], key[3]),
    )
