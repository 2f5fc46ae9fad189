# SPDX-License-Identifier: Apache-2.0
"""Records made of plain Python objects: what only tests and other adapters tell."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from kvguard import _core

ATTENTION = {"kind": "full", "block_size": 4}
ALIGN = {
    "kind": "state",
    "block_size": 4,
    "state_mode": _core.STATE_ALIGN,
    "encoding": "state",
    "flags": _core.GROUP_NO_SLOTS,
}


def guard(*groups: dict[str, Any], flags: int = _core.ENGINE_PREFIX_CACHE) -> Any:
    geometry = {
        "flags": flags,
        "pools": [{"num_blocks": 16, "null_block": 0, "kind": "pages"}],
        "groups": list(groups),
        "max_rows": 4,
        "max_tokens": 16,
    }
    return _core.Guard(geometry, {"action": "log"})


def codes(alone: Any) -> list[int]:
    return [finding["code"] for _, _, finding in alone.findings()]


def admit(key: int, tokens: list[int], computed: int, *rows: list[int]) -> list[dict[str, Any]]:
    known = {"first": computed, "count": len(tokens), "tokens": tokens}
    return [
        {"kind": "admit", "request": key, **known},
        *({"kind": "append", "request": key, "group": g, "blocks": b} for g, b in enumerate(rows)),
    ]


def row(key: int, tokens: int, computed: int) -> dict[str, int]:
    return {"request": key, "num_tokens": tokens, "num_computed": computed}


def ints(values: list[int], kind: str = "i") -> tuple[array[int], tuple[int, int, int]]:
    kept = array(kind, values)
    dtype = {"i": _core.I32, "B": _core.U8}[kind]
    return kept, (kept.buffer_info()[0], len(kept), dtype)


@pytest.mark.parametrize(("sampled", "found"), [([7], []), ([9], [801])])
def test_tokens_of_events_and_outcomes_name_content(sampled: list[int], found: list[int]) -> None:
    alone = guard(ATTENTION)
    alone.begin(1, admit(1, [1, 2, 3], 0, [5]), [row(1, 3, 0)])
    alone.outcome(1, [{"request": 1, "num_sampled": 1, "tokens": sampled}])
    alone.end(1)
    alone.begin(2, [], [row(1, 1, 3)])
    alone.end(2)
    alone.begin(3, admit(2, [1, 2, 3, 7, 5], 4, [5, 6]), [row(2, 1, 4)])
    alone.end(3)
    assert codes(alone) == found


@pytest.mark.parametrize(
    ("states_in", "states_out", "init", "found"),
    [
        (0, 5, 1, []),
        (0, 6, 1, [1002]),
        (0, 5, 0, [1003]),
    ],
)
def test_states_of_a_plan(states_in: int, states_out: int, init: int, found: list[int]) -> None:
    alone = guard(ALIGN)
    alone.begin(1, admit(1, [1, 2, 3], 0, [5]), [row(1, 3, 0)])
    start, lens = ints([0, 3]), ints([3])
    states = [ints([states_in]), ints([states_out]), ints([init], "B")]
    names = ("states_in", "states_out", "states_init")
    group = {"group": 0, **{n: s[1] for n, s in zip(names, states, strict=True)}}
    plan = {"requests": [1], "num_tokens": 3, "query_start": start[1], "seq_lens": lens[1]}
    alone.plan(1, {**plan, "groups": [group]})
    alone.end(1)
    assert codes(alone) == found
    assert alone.gaps() == []


def test_reads_are_shown_in_one_encoding() -> None:
    alone = guard(ALIGN)
    alone.begin(1, admit(1, [1, 2, 3], 0, [5]), [row(1, 3, 0)])
    start, lens, table = ints([0, 3]), ints([3]), ints([5])
    group = {"group": 0, "table": table[1], "rows": 1, "columns": 1, "states_in": table[1]}
    plan = {"requests": [1], "num_tokens": 3, "query_start": start[1], "seq_lens": lens[1]}
    with pytest.raises(_core.Error, match="shown in one encoding"):
        alone.plan(1, {**plan, "groups": [group]})
