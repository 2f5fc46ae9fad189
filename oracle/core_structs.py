# SPDX-License-Identifier: Apache-2.0
"""The structs of kvguard.h for ctypes."""

from __future__ import annotations

import ctypes

U32, U64, I32, I64 = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int32, ctypes.c_int64
PTR = ctypes.c_void_p
ALL_GROUPS = 0xFFFFFFFF

VERDICT_COUNTS = [
    "first_sequence",
    "num_findings",
    "steps",
    "steps_judged",
    "plans",
    "rows",
    "slots",
    "entries",
    "proofs",
    "suspicions",
    "assumptions",
    "step_gaps",
    "ignored",
    "violated_steps",
    "first_violated_step",
]


class Pool(ctypes.Structure):
    _fields_ = [
        ("size", U32),
        ("id", U32),
        ("kind", U32),
        ("memory", U32),
        ("num_blocks", U64),
        ("null_block", I64),
        ("read_trash", I64),
        ("write_trash", I64),
        ("arena", U32),
        ("reserved0", U32),
        ("byte_base", U64),
        ("byte_stride", U64),
    ]


class Group(ctypes.Structure):
    _fields_ = [
        ("size", U32),
        ("id", U32),
        ("pool", U32),
        ("kind", U32),
        ("placement", U32),
        ("encoding", U32),
        ("table_unit", U32),
        ("flags", U32),
        ("block_size", U32),
        ("kernel_block_size", U32),
        ("index_scale", U32),
        ("token_stride", U32),
        ("slot_base", I64),
        ("max_columns", U64),
        ("window", U32),
        ("sink", U32),
        ("state_mode", U32),
        ("retained", U32),
        ("num_layers", U32),
        ("shard_formula", U32),
    ]


class Geometry(ctypes.Structure):
    _fields_ = [
        ("size", U32),
        ("flags", U32),
        ("engine", ctypes.c_char_p),
        ("engine_version", ctypes.c_char_p),
        ("pools", ctypes.POINTER(Pool)),
        ("groups", ctypes.POINTER(Group)),
        ("num_pools", U32),
        ("num_groups", U32),
        ("max_rows", U64),
        ("max_tokens", U64),
        ("max_model_len", U64),
        ("num_lookahead", U32),
        ("max_drafts", U32),
        ("pad_slot", I64),
        ("rank", U32),
        ("num_ranks", U32),
        ("tp_rank", U32),
        ("tp_size", U32),
        ("pp_rank", U32),
        ("pp_size", U32),
        ("dcp_rank", U32),
        ("dcp_size", U32),
        ("pcp_rank", U32),
        ("pcp_size", U32),
        ("interleave", U32),
        ("pcp_layout", U32),
        ("standing_gaps", ctypes.POINTER(ctypes.c_char_p)),
        ("num_standing_gaps", U32),
        ("reserved0", U32),
    ]


class Array(ctypes.Structure):
    _fields_ = [("data", PTR), ("count", U64), ("dtype", U32), ("reserved", U32)]


class Event(ctypes.Structure):
    _fields_ = [
        ("size", U32),
        ("kind", U32),
        ("request", U64),
        ("group", U32),
        ("flags", U32),
        ("first", I64),
        ("count", I64),
        ("other", U64),
        ("value", I64),
        ("blocks", PTR),
        ("num_blocks", U64),
        ("tokens", PTR),
        ("num_tokens", U64),
        ("name", ctypes.c_char_p),
        ("name_size", U64),
    ]


class Scheduled(ctypes.Structure):
    _fields_ = [
        ("size", U32),
        ("num_drafts", U32),
        ("request", U64),
        ("num_tokens", I64),
        ("num_computed", I64),
    ]


class Begin(ctypes.Structure):
    _fields_ = [
        ("size", U32),
        ("flags", U32),
        ("events", ctypes.POINTER(Event)),
        ("num_events", U64),
        ("scheduled", ctypes.POINTER(Scheduled)),
        ("num_scheduled", U64),
    ]


class ReadTable(ctypes.Structure):
    _fields_ = [
        ("data", PTR),
        ("dtype", U32),
        ("reserved", U32),
        ("rows", U64),
        ("columns", U64),
        ("row_stride", U64),
        ("seq_lens", Array),
        ("row_columns", Array),
    ]


class ReadState(ctypes.Structure):
    _fields_ = [("in_", Array), ("out", Array), ("init", Array)]


class ReadCsr(ctypes.Structure):
    _fields_ = [("indptr", Array), ("indices", Array), ("last_page_len", Array)]


class ReadFlat(ctypes.Structure):
    _fields_ = [("slots", Array), ("starts", Array), ("sentinel", I64)]


class Reads(ctypes.Union):
    # the largest member is the table
    _fields_ = [("table", ReadTable), ("csr", ReadCsr), ("flat", ReadFlat), ("state", ReadState)]


class GroupPlan(ctypes.Structure):
    _anonymous_ = ("reads",)
    _fields_ = [
        ("size", U32),
        ("group", U32),
        ("encoding", U32),
        ("flags", U32),
        ("slots", Array),
        ("reads", Reads),
        ("slots_address", U64),
        ("reads_address", U64),
    ]


class Plan(ctypes.Structure):
    _fields_ = [
        ("size", U32),
        ("pass_", U32),
        ("pass_index", U32),
        ("stage", U32),
        ("flags", U32),
        ("num_groups", U32),
        ("num_rows", U64),
        ("padded_rows", U64),
        ("num_tokens", U64),
        ("padded_tokens", U64),
        ("requests", PTR),
        ("query_start", Array),
        ("seq_lens", Array),
        ("positions", Array),
        ("num_computed", Array),
        ("groups", ctypes.POINTER(GroupPlan)),
    ]


class OutcomeRow(ctypes.Structure):
    _fields_ = [
        ("size", U32),
        ("num_sampled", U32),
        ("num_rejected", U32),
        ("reserved0", U32),
        ("request", U64),
        ("tokens", PTR),
        ("num_tokens", U64),
    ]


class Outcome(ctypes.Structure):
    _fields_ = [
        ("size", U32),
        ("flags", U32),
        ("rows", ctypes.POINTER(OutcomeRow)),
        ("num_rows", U64),
        ("events", ctypes.POINTER(Event)),
        ("num_events", U64),
    ]


class End(ctypes.Structure):
    _fields_ = [("size", U32), ("flags", U32)]


class Record(ctypes.Structure):
    _fields_ = [("size", U32), ("kind", U32), ("step", U64), ("body", PTR)]


class Error(ctypes.Structure):
    _fields_ = [("size", U32), ("status", I32), ("text", ctypes.c_char * 512)]


class Config(ctypes.Structure):
    _fields_ = [
        ("size", U32),
        ("action", U32),
        ("latch", U32),
        ("history_steps", U32),
        ("history_bytes", U64),
        ("max_findings_per_step", U32),
        ("max_findings", U32),
        ("incident", PTR),
        ("incident_context", PTR),
    ]


class Cause(ctypes.Structure):
    _fields_ = [("kind", U32), ("reserved", U32), ("arg", U64)]


class Finding(ctypes.Structure):
    _fields_ = [
        ("size", U32),
        ("code", U32),
        ("grade", U32),
        ("flags", U32),
        ("sequence", U64),
        ("step", U64),
        ("rank", U32),
        ("group", U32),
        ("pass_", U32),
        ("pass_index", U32),
        ("stage", U32),
        ("because_of", U32),
        ("request", U64),
        ("row", I64),
        ("pos", I64),
        ("expected", I64),
        ("observed", I64),
        ("count", U64),
        ("victim", U64),
        ("victim_block", I64),
        ("victim_first", I64),
        ("victim_last", I64),
        ("victim_since", U64),
        ("causes_tried", U32),
        ("num_causes", U32),
        ("causes", Cause * 4),
    ]


class Verdict(ctypes.Structure):
    _fields_ = [
        ("size", U32),
        ("verdict", U32),
        ("step_verdict", U32),
        ("must_raise", U32),
        ("step", U64),
        *[(name, U64) for name in VERDICT_COUNTS],
    ]


class CoverageRow(ctypes.Structure):
    _fields_ = [
        *[(name, U32) for name in ("size", "group", "pass_", "stage", "family", "expected")],
        ("judged", U64),
    ]


class Gap(ctypes.Structure):
    _fields_ = [
        ("size", U32),
        ("standing", U32),
        ("count", U64),
        ("first_step", U64),
        ("name", ctypes.c_char * 96),
    ]
