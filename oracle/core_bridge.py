# SPDX-License-Identifier: Apache-2.0
"""Feeds JSON lines to libkvguard through its C header alone, and reads its findings back.

The core as a black box: what `kvguard trace dump --jsonl` printed (or a test edited) becomes the
structs of kvguard.h again. Nothing of src/ is used, so the two judges share no line.
"""

from __future__ import annotations

import ctypes
import os
from collections import Counter
from pathlib import Path
from typing import Any

from core_structs import (
    ALL_GROUPS,
    I32,
    I64,
    PTR,
    U64,
    Array,
    Begin,
    Config,
    CoverageRow,
    End,
    Error,
    Event,
    Finding,
    Gap,
    Geometry,
    Group,
    GroupPlan,
    Outcome,
    OutcomeRow,
    Plan,
    Pool,
    ReadCsr,
    ReadFlat,
    ReadState,
    ReadTable,
    Record,
    Scheduled,
    Verdict,
)
from differential import differences
from kvguard_oracle import Result

CHECKOUT = Path(__file__).resolve().parents[1]

POOL_KINDS = {"pages": 1, "cells": 2, "state": 3}
GROUP_KINDS = {"full": 1, "ring": 2, "window": 3, "chunked": 4, "state": 5, "cross": 6, "none": 7}
PLACEMENTS = {"assigned": 1, "chosen": 2}
ENCODINGS = {"table": 1, "csr": 2, "flat": 3, "mask": 4, "state": 5}
UNITS = {"block": 1, "kernel_block": 2, "kernel-block": 2, "slot": 3, "row": 4}
PASSES = {
    "target": 1,
    "draft": 2,
    "micro_batch": 3,
    "micro-batch": 3,
    "cross": 4,
    "graph_replay": 5,
    "graph-replay": 5,
    "dummy": 6,
}
DTYPES = {"i32": (I32, 1), "i64": (I64, 2), "u8": (ctypes.c_uint8, 3)}
STAGES = {"planned": 1, "final": 2}
RECORD_KINDS = {"begin": 1, "plan": 2, "outcome": 3, "end": 4, "reset": 5}
RESET_REASONS = {"arm": 1, "sleep": 2, "weights": 3, "layout": 4}
GRADES = {1: "proof", 2: "suspicion"}
END_OF_TRACE = 1
VERDICTS = {0: "clean", 1: "violated", 2: "cannot_judge"}

# fields that are copied by name
GROUP_NUMBERS = [
    "id",
    "pool",
    "flags",
    "block_size",
    "kernel_block_size",
    "index_scale",
    "token_stride",
    "slot_base",
    "max_columns",
    "window",
    "sink",
    "state_mode",
    "retained",
    "num_layers",
    "shard_formula",
]
GEOMETRY_NUMBERS = [
    "flags",
    "max_rows",
    "max_tokens",
    "max_model_len",
    "num_lookahead",
    "max_drafts",
    "pad_slot",
    "rank",
    "num_ranks",
    "tp_rank",
    "tp_size",
    "pp_rank",
    "pp_size",
    "dcp_rank",
    "dcp_size",
    "pcp_rank",
    "pcp_size",
    "interleave",
    "pcp_layout",
]


def library_path() -> Path:
    """The shared library of the developer build, or the one that KVGUARD_LIBRARY names."""
    named = os.environ.get("KVGUARD_LIBRARY")
    return Path(named) if named else CHECKOUT / "build" / "libkvguard.so"


def load_library() -> Any:
    library = ctypes.CDLL(str(library_path()))
    library.kvguard_destroy.restype = None
    library.kvguard_destroy.argtypes = [PTR]
    return library


class Keep:
    """Holds the arrays that C pointers of one record point into."""

    def __init__(self) -> None:
        self.held: list[Any] = []

    def hold(self, thing: Any) -> Any:
        self.held.append(thing)
        return thing

    def ints(self, values: list[int], ctype: Any = I64) -> Any:
        return self.hold((ctype * max(len(values), 1))(*values))

    def array(self, view: dict[str, Any] | None) -> Array:
        if view is None:
            return Array()
        ctype, code = DTYPES[view["dtype"]]
        data = self.ints(view["values"], ctype)
        return Array(ctypes.cast(data, PTR), len(view["values"]), code, 0)

    def events(self, events: list[dict[str, Any]]) -> Any:
        rows = (Event * max(len(events), 1))()
        for row, event in zip(rows, events, strict=False):
            name = self.hold(event["name"].encode())
            row.size = ctypes.sizeof(Event)
            row.kind = event["kind_value"]
            row.request = event["request"]
            row.group = ALL_GROUPS if event["group"] is None else event["group"]
            row.flags = event["flags"]
            row.first, row.count = event["first"], event["count"]
            row.other, row.value = event["other"], event["value"]
            if event["blocks"]:
                row.blocks = ctypes.cast(self.ints(event["blocks"]), PTR)
                row.num_blocks = len(event["blocks"])
            if event["tokens"]:
                row.tokens = ctypes.cast(self.ints(event["tokens"]), PTR)
                row.num_tokens = len(event["tokens"])
            if name:
                row.name, row.name_size = name, len(name)
        return self.hold(rows)


def geometry_struct(line: dict[str, Any], keep: Keep) -> Geometry:
    pools = keep.hold((Pool * len(line["pools"]))())
    for row, pool in zip(pools, line["pools"], strict=True):
        row.size = ctypes.sizeof(Pool)
        row.kind = POOL_KINDS[pool["kind"]]
        row.memory = 0 if pool["memory"] == "device" else 1
        for name in ["id", "num_blocks", "null_block", "read_trash", "write_trash", "arena"]:
            setattr(row, name, pool[name])
        row.byte_base, row.byte_stride = pool["byte_base"], pool["byte_stride"]
    groups = keep.hold((Group * len(line["groups"]))())
    for row, group in zip(groups, line["groups"], strict=True):
        row.size = ctypes.sizeof(Group)
        row.kind = GROUP_KINDS[group["kind"]]
        row.placement = PLACEMENTS[group["placement"]]
        row.encoding = ENCODINGS[group["encoding"]]
        row.table_unit = UNITS[group["table_unit"]]
        for name in GROUP_NUMBERS:
            setattr(row, name, group[name])
    geometry = Geometry()
    geometry.size = ctypes.sizeof(Geometry)
    geometry.engine = keep.hold(line["engine"].encode())
    geometry.engine_version = keep.hold((line["engine_version"] or "").encode())
    geometry.pools, geometry.groups = pools, groups
    geometry.num_pools, geometry.num_groups = len(pools), len(groups)
    for name in GEOMETRY_NUMBERS:
        setattr(geometry, name, line[name])
    names = [keep.hold(name.encode()) for name in line["standing_gaps"]]
    geometry.standing_gaps = keep.hold((ctypes.c_char_p * max(len(names), 1))(*names))
    geometry.num_standing_gaps = len(names)
    return geometry


def begin_struct(line: dict[str, Any], keep: Keep) -> Begin:
    scheduled = keep.hold((Scheduled * max(len(line["scheduled"]), 1))())
    for row, request in zip(scheduled, line["scheduled"], strict=False):
        row.size = ctypes.sizeof(Scheduled)
        row.num_drafts = request["num_drafts"]
        row.request = request["request"]
        row.num_tokens = request["num_tokens"]
        row.num_computed = request["num_computed"]
    events = keep.events(line["events"])
    sizes = len(line["events"]), len(line["scheduled"])
    return Begin(ctypes.sizeof(Begin), 0, events, sizes[0], scheduled, sizes[1])


def table_struct(view: dict[str, Any], keep: Keep) -> ReadTable:
    ctype, code = (I32, 1) if view["table"]["dtype"] == "i32" else (I64, 2)
    rows, columns = view["table"]["rows"], view["table"]["columns"]
    flat: list[int] = []
    for row in rows:
        flat += row + [0] * (columns - len(row))
    table = ReadTable()
    table.data = ctypes.cast(keep.ints(flat, ctype), PTR)
    table.dtype, table.rows = code, len(rows)
    table.columns = table.row_stride = columns
    table.seq_lens = keep.array(view["seq_lens"])
    table.row_columns = keep.array(view["row_columns"])
    return table


def plan_struct(line: dict[str, Any], keep: Keep) -> Plan:
    groups = keep.hold((GroupPlan * max(len(line["groups"]), 1))())
    for row, group in zip(groups, line["groups"], strict=False):
        row.size = ctypes.sizeof(GroupPlan)
        row.group = group["group"]
        row.slots = keep.array(group["slots"])
        if group["reads"] and group["reads"].get("table"):
            row.encoding = ENCODINGS["table"]
            row.table = table_struct(group["reads"], keep)
        elif group["encoding"] == "state":
            row.encoding = ENCODINGS["state"]
            reads = [keep.array(group["reads"][name]) for name in ("in", "out", "init")]
            row.state = ReadState(*reads)
        elif group["encoding"] == "csr":
            row.encoding = ENCODINGS["csr"]
            names = ("indptr", "indices", "last_page_len")
            row.csr = ReadCsr(*[keep.array(group["reads"][name]) for name in names])
        elif group["encoding"] == "flat":
            row.encoding = ENCODINGS["flat"]
            arrays = [keep.array(group["reads"][name]) for name in ("slots", "starts")]
            row.flat = ReadFlat(*arrays, group["reads"]["sentinel"])
    plan = Plan()
    plan.size = ctypes.sizeof(Plan)
    plan.pass_, plan.stage = PASSES[line["pass"]], STAGES[line["stage"]]
    for name in ["pass_index", "num_rows", "padded_rows", "num_tokens", "padded_tokens"]:
        setattr(plan, name, line[name])
    plan.requests = ctypes.cast(keep.ints(line["requests"], U64), PTR)
    for name in ["query_start", "seq_lens", "positions", "num_computed"]:
        setattr(plan, name, keep.array(line[name]))
    plan.groups, plan.num_groups = groups, len(line["groups"])
    return plan


def outcome_struct(line: dict[str, Any], keep: Keep) -> Outcome:
    rows = keep.hold((OutcomeRow * max(len(line["rows"]), 1))())
    for row, told in zip(rows, line["rows"], strict=False):
        row.size = ctypes.sizeof(OutcomeRow)
        row.request = told["request"]
        row.num_sampled, row.num_rejected = told["num_sampled"], told["num_rejected"]
        if told.get("tokens"):
            row.tokens = ctypes.cast(keep.ints(told["tokens"]), PTR)
            row.num_tokens = len(told["tokens"])
    events = keep.events(line["events"])
    sizes = len(line["rows"]), len(line["events"])
    return Outcome(ctypes.sizeof(Outcome), 0, rows, sizes[0], events, sizes[1])


def body_struct(line: dict[str, Any], keep: Keep) -> Any:
    kind = line["record"]
    if kind == "begin":
        return begin_struct(line, keep)
    if kind == "plan":
        return plan_struct(line, keep)
    if kind == "outcome":
        return outcome_struct(line, keep)
    if kind == "end":
        return End(ctypes.sizeof(End), line["flags"])
    return End(ctypes.sizeof(End), RESET_REASONS[line["reason"]])


class Core:
    """One guard, fed with JSON lines. Use as a context manager."""

    def __init__(self, geometry: dict[str, Any] | Any, record_to: str | None = None) -> None:
        """geometry: its line, or a pointer to the struct."""
        self.library = load_library()
        self.keep = Keep()
        self.guard = PTR()
        self.errors: list[str] = []
        self.recording = record_to is not None
        config = Config(size=ctypes.sizeof(Config), action=1)
        config.max_findings_per_step = config.max_findings = 1 << 16
        if isinstance(geometry, dict):
            geometry = ctypes.byref(geometry_struct(geometry, self.keep))
        self.call("kvguard_create", geometry, ctypes.byref(config), self.guard)
        if record_to is not None:
            self.call("kvguard_record_start", self.guard, record_to.encode(), U64(0))

    def call(self, name: str, *arguments: Any) -> None:
        error = Error(size=ctypes.sizeof(Error))
        passed = [ctypes.byref(a) if a is self.guard and "create" in name else a for a in arguments]
        status = getattr(self.library, name)(*passed, ctypes.byref(error))
        if status != 0:
            raise RuntimeError(f"{name}: {status} {error.text.decode()}")

    def feed(self, line: dict[str, Any]) -> int:
        keep = Keep()
        body = body_struct(line, keep)
        record = Record(ctypes.sizeof(Record), RECORD_KINDS[line["record"]], line["step"])
        record.body = ctypes.cast(ctypes.pointer(body), PTR)
        return self.feed_struct(ctypes.byref(record), f"{line['record']} {line['step']}")

    def feed_struct(self, record: Any, name: str) -> int:
        error = Error(size=ctypes.sizeof(Error))
        status = self.library.kvguard_feed(self.guard, record, None, ctypes.byref(error))
        if status != 0:
            self.errors.append(f"{name}: {status} {error.text.decode()}")
        return status

    def snapshot(self) -> bytes:
        """The mirror; between steps only."""
        needed = ctypes.c_size_t()
        error = Error(size=ctypes.sizeof(Error))
        # says how long it is, and that there was no room
        self.library.kvguard_snapshot(
            self.guard, None, ctypes.c_size_t(0), ctypes.byref(needed), ctypes.byref(error)
        )
        room = ctypes.create_string_buffer(needed.value)
        size = ctypes.c_size_t(needed.value)
        self.call("kvguard_snapshot", self.guard, room, size, ctypes.byref(needed))
        return room.raw

    def restore(self, mirror: bytes) -> None:
        self.call("kvguard_restore", self.guard, mirror, ctypes.c_size_t(len(mirror)))

    def report(self) -> dict[str, Any]:
        verdict = self.verdict()
        findings = self.findings(verdict.proofs + verdict.suspicions)
        proofs = [finding for finding in findings if finding["grade"] == "proof"]
        suspicions = Counter(str(f["code"]) for f in findings if f["grade"] == "suspicion")
        return {
            "findings": proofs,
            "suspicions": dict(suspicions),
            "verdict": VERDICTS[verdict.verdict],
            "step_gaps": verdict.step_gaps,
            "gaps": self.gaps(),
            "unreached": self.unreached(),
            "errors": self.errors,
            "num_suspicions": verdict.suspicions,
            "assumptions": verdict.assumptions,
            "ignored": verdict.ignored,
        }

    def verdict(self) -> Verdict:
        verdict = Verdict(size=ctypes.sizeof(Verdict))
        self.call("kvguard_verdict_now", self.guard, ctypes.byref(verdict))
        return verdict

    def stored(self, capacity: int, first: int = 0) -> Any:
        """The structs themselves, at most `capacity` of those with sequence >= first."""
        rows = (Finding * max(capacity, 1))()
        for row in rows:
            row.size = ctypes.sizeof(Finding)
        count = ctypes.c_size_t()
        self.call(
            "kvguard_findings", self.guard, U64(first), rows, ctypes.c_size_t(len(rows)),
            ctypes.byref(count),
        )  # fmt: skip
        return rows[: count.value]

    def findings(self, capacity: int, first: int = 0) -> list[dict[str, Any]]:
        pass_names = {0: None, 1: "target", 2: "draft", 3: "micro-batch", 4: "cross",
                      5: "graph-replay", 6: "dummy"}  # fmt: skip
        return [
            {
                "code": f.code,
                "grade": GRADES[f.grade],
                "step": f.step,
                "group": None if f.group == ALL_GROUPS else f.group,
                "request": f.request,
                "pos": f.pos,
                "row": f.row,
                "pass": pass_names[f.pass_],
                "stage": {0: None, 1: "planned", 2: "final"}[f.stage],
            }
            for f in self.stored(capacity, first)
        ]

    def gaps(self) -> list[str]:
        rows = (Gap * 64)()
        for row in rows:
            row.size = ctypes.sizeof(Gap)
        count = ctypes.c_size_t()
        self.call("kvguard_gaps", self.guard, rows, ctypes.c_size_t(64), ctypes.byref(count))
        return [gap.name.decode() for gap in rows[: count.value] if not gap.standing]

    def unreached(self) -> list[tuple[int, int]]:
        """(group, family) that a run must judge and has not judged: its verdict is no clean one."""
        rows = (CoverageRow * 256)()
        for row in rows:
            row.size = ctypes.sizeof(CoverageRow)
        count = ctypes.c_size_t()
        self.call("kvguard_coverage", self.guard, rows, ctypes.c_size_t(256), ctypes.byref(count))
        told = rows[: count.value]
        return [(row.group, row.family) for row in told if row.expected and not row.judged]

    def close(self) -> None:
        if self.recording:
            self.call("kvguard_record_stop", self.guard)
        self.library.kvguard_destroy(self.guard)

    def __enter__(self) -> Core:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def compare(core: dict[str, Any], result: Result) -> list[str]:
    """differential.differences, the sentences alone."""
    return differences(core, result)[0]


def judge(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """What the core says of a geometry line and its records."""
    with Core(lines[0]) as core:
        for line in lines[1:]:
            if line["record"] in RECORD_KINDS and not line.get("refused"):
                core.feed(line)
        return core.report()


def replay(path: Path) -> dict[str, Any]:
    """What the core says of a recorded file that starts with an empty mirror."""
    library = load_library()
    trace, geometry, record = PTR(), PTR(), PTR()
    error = Error(size=ctypes.sizeof(Error))
    status = library.kvguard_trace_open(
        str(path).encode(), ctypes.byref(trace), ctypes.byref(geometry), ctypes.byref(error)
    )
    if status != 0:
        raise RuntimeError(f"kvguard_trace_open: {status} {error.text.decode()}")
    library.kvguard_trace_close.argtypes = [PTR]
    try:
        with Core(geometry) as core:
            while True:
                status = library.kvguard_trace_next(
                    trace, ctypes.byref(record), ctypes.byref(error)
                )
                if status == END_OF_TRACE:
                    return core.report()
                if status != 0:
                    raise RuntimeError(f"kvguard_trace_next: {status} {error.text.decode()}")
                core.feed_struct(record, "record")
    finally:
        library.kvguard_trace_close(trace)
