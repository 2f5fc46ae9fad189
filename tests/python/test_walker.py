# SPDX-License-Identifier: Apache-2.0
"""The walker in C++ against the obvious one, and on outputs that no scheduler should make."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import outputs
import pytest
from kvguard import _core
from reference_walker import ReferenceWalker


@pytest.mark.parametrize("odd", [False, True], ids=["honest", "odd"])
@pytest.mark.parametrize("num_groups", [1, 3])
@pytest.mark.parametrize("seed", range(20))
def test_equals_the_reference(seed: int, num_groups: int, odd: bool) -> None:
    stream = outputs.Stream(seed, num_groups, odd)
    walker = _core.vllm.Walker(num_groups)
    reference = ReferenceWalker(num_groups)
    for step in range(60):
        output = stream.next()
        if step % 2:  # as in a worker's own process: every string is a new object
            output = pickle.loads(pickle.dumps(output))
        assert walker.walk_to_dict(output) == reference.walk(output), f"step {step}"
    assert walker.num_live == len(reference.live)


def test_rows_have_their_requests_keys() -> None:
    walker = _core.vllm.Walker(1)
    output = outputs.SchedulerOutput(scheduled_new_reqs=[outputs.new_request("a", ([1],), 0, 5)])
    walker.walk_to_dict(output)
    assert walker.key_of("a") == 1
    stranger = walker.key_of("b")
    assert stranger not in (0, 1)
    assert walker.key_of("b") == stranger, "within a step a stranger keeps its key"
    walker.walk_to_dict(outputs.SchedulerOutput(finished_req_ids={"a"}))
    assert walker.key_of("a") not in (0, 1), "a key is never used twice"


def test_an_outcome_that_comes_late_names_the_incarnation_that_was_scheduled() -> None:
    guard = _core.Guard(
        {
            "pools": [{"num_blocks": 8, "null_block": 0, "kind": "pages"}],
            "groups": [{"kind": "full", "block_size": 4}],
            "max_rows": 4,
            "max_tokens": 16,
        },
        {"action": "log"},
    )
    stream = _core.vllm.Stream(guard)

    def step(first: bool, **changes: Any) -> int:
        rows = [outputs.new_request("a", ([1, 2],), 4, 8)] if first else []
        output = outputs.SchedulerOutput(
            scheduled_new_reqs=rows,
            num_scheduled_tokens={"a": 4},
            scheduled_spec_decode_tokens={"a": [-1] * 3},
            **changes,
        )
        stream.begin(output)
        key = stream.key_of("a")
        stream.end()
        return key

    before = step(True)
    again = step(True, preempted_req_ids={"a"})  # it is back in the step that preempts it
    assert again != before
    guard.outcome(1, [{"request": before, "num_sampled": 1, "num_rejected": 3}])
    guard.outcome(2, [{"request": again, "num_sampled": 1, "num_rejected": 3}])
    assert guard.findings() == []
    guard.outcome(1, [{"request": again, "num_sampled": 1, "num_rejected": 3}])
    assert [f[2]["code"] for f in guard.findings()] == [905], "it was not scheduled in step 1"


def test_a_running_request_without_an_entry_goes_on() -> None:
    walker = _core.vllm.Walker(1)
    first = outputs.SchedulerOutput(
        scheduled_new_reqs=[outputs.new_request("a", ([1],), 8, 12)], num_scheduled_tokens={"a": 4}
    )
    walker.walk_to_dict(first)
    later = outputs.SchedulerOutput(num_scheduled_tokens={"a": 1})
    counts = [walker.walk_to_dict(later)["scheduled"][0]["num_computed"] for _ in range(3)]
    assert counts == [12, 13, 14]


class Index:
    def __index__(self) -> int:
        return 7


@pytest.mark.parametrize("seven", [7, np.int32(7), np.int64(7), Index()])
def test_any_integer_will_do(seven: Any) -> None:
    walker = _core.vllm.Walker(1)
    output = outputs.SchedulerOutput(
        scheduled_new_reqs=[outputs.new_request("a", ([seven],), 0, 5)]
    )
    assert walker.walk_to_dict(output)["events"][1]["blocks"] == [7]


def honest() -> outputs.SchedulerOutput:
    """One of everything."""
    return outputs.SchedulerOutput(
        scheduled_new_reqs=[outputs.new_request("new", ([1, 2],), 0, 40)],
        scheduled_cached_reqs=outputs.CachedRequestData(
            req_ids=["old"], new_block_ids=[([3],)], num_computed_tokens=[9], num_output_tokens=[1]
        ),
        num_scheduled_tokens={"new": 40, "old": 1},
        total_num_scheduled_tokens=41,
        finished_req_ids={"done"},
        preempted_req_ids={"pushed"},
        new_block_ids_to_zero=[1],
        kv_cache_block_copies=[outputs.BlockCopy(1, 2)],
    )


def test_the_core_takes_one_of_everything() -> None:
    guard = _core.Guard(
        {
            "pools": [{"num_blocks": 8, "null_block": 0, "kind": "pages"}],
            "groups": [{"kind": "full", "block_size": 64}],
            "max_rows": 4,
            "max_tokens": 64,
        },
        {"action": "log"},
    )
    stream = _core.vllm.Stream(guard)
    before = outputs.SchedulerOutput(
        scheduled_new_reqs=[outputs.new_request("old", ([4],), 8, 9)],
        num_scheduled_tokens={"old": 1},
    )
    for output in (before, honest()):
        assert not stream.begin(output) & _core.vllm.FLAG_NOT_FED, stream.sentence
        stream.end()
    copied = [c for c in guard.coverage() if c["family"] == "copy"]
    assert sum(c["judged"] for c in copied) == 3, "a block to zero, and a pair"


class Hostile:
    def __getattr__(self, name: str) -> Any:
        raise ValueError(f"no {name} for you")

    def __iter__(self) -> Any:
        raise ValueError("not iterable today")

    def __index__(self) -> int:
        raise ValueError("no number today")

    def __len__(self) -> int:
        raise ValueError("no length today")

    def __eq__(self, other: object) -> bool:
        raise ValueError("equal to nothing")

    __hash__ = None  # type: ignore[assignment]


ODD_VALUES: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "text": lambda: "text",
    "surrogate": lambda: "\ud800",
    "bytes": lambda: b"bytes",
    "float": lambda: 3.5,
    "bool": lambda: True,
    "huge": lambda: 1 << 70,
    "hugely-negative": lambda: -(1 << 70),
    "empty-list": list,
    "list-of-text": lambda: ["x"],
    "list-of-none": lambda: [None],
    "empty-dict": dict,
    "dict": lambda: {1: 2},
    "set": set,
    "hostile": Hostile,  # pytest looks closely at its parameters, so it is made inside the test
}
PLACES = [
    "scheduled_new_reqs",
    "scheduled_cached_reqs",
    "num_scheduled_tokens",
    "scheduled_spec_decode_tokens",
    "finished_req_ids",
    "preempted_req_ids",
    "new_block_ids_to_zero",
    "kv_cache_block_copies",
    "new.req_id",
    "new.block_ids",
    "new.num_computed_tokens",
    "new.prefill_token_ids",
    "new.replay_start",
    "cached.req_ids",
    "cached.new_block_ids",
    "cached.num_computed_tokens",
    "cached.resumed_req_ids",
    "new.block",
    "cached.block",
    "cached.row",
    "cached.count",
    "tokens",
    "copy",
    "zero",
]


def plant(output: outputs.SchedulerOutput, place: str, value: Any) -> None:
    new, cached = output.scheduled_new_reqs[0], output.scheduled_cached_reqs
    match place.split("."):
        case ["new", "block"]:
            new.block_ids[0][1] = value
        case ["new", name]:
            setattr(new, name, value)
        case ["cached", "block"]:
            cached.new_block_ids[0][0][0] = value
        case ["cached", "row"]:
            cached.new_block_ids[0] = (value,)
        case ["cached", "count"]:
            cached.num_computed_tokens[0] = value
        case ["cached", name]:
            setattr(cached, name, value)
        case ["tokens"]:
            output.num_scheduled_tokens["old"] = value
        case ["copy"]:
            output.kv_cache_block_copies = [value]
        case ["zero"]:
            output.new_block_ids_to_zero = [1, value]
        case [name]:
            setattr(output, name, value)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("value", ODD_VALUES)
def test_wrong_types_are_an_error_or_a_begin(place: str, value: str) -> None:
    """Never a crash and never another exception; and what comes after is walked as ever."""
    output = honest()
    plant(output, place, ODD_VALUES[value]())
    walker = _core.vllm.Walker(1)
    try:
        walker.walk_to_dict(output)
    except _core.Error as error:
        assert error.status == "malformed-argument"
        assert len(str(error)) > 20
    after = walker.walk_to_dict(
        outputs.SchedulerOutput(scheduled_new_reqs=[outputs.new_request("x", ([5],), 0, 3)])
    )
    assert [e["kind"] for e in after["events"][:2]] == ["admit", "replace"]


@pytest.mark.parametrize(
    ("place", "value", "sentence"),
    [
        ("new.block", "5", "scheduled_new_reqs[0].block_ids[0][1] is a str, not an integer"),
        ("new.block", None, "scheduled_new_reqs[0].block_ids[0][1] is None, not an integer"),
        ("new.block", 1 << 70, "scheduled_new_reqs[0].block_ids[0][1] does not fit 64 bits"),
        (
            "cached.block",
            2.0,
            "scheduled_cached_reqs.new_block_ids[0][0][0] is a float, not an integer",
        ),
        ("new.block_ids", ([1], [2]), "scheduled_new_reqs[0].block_ids has 2 groups, the engine 1"),
        ("new.req_id", 5, "scheduled_new_reqs[0].req_id is a int, not a request id (str)"),
        (
            "cached.req_ids",
            [],
            "scheduled_cached_reqs: 0 requests, but 1 lists of blocks and 1 counts",
        ),
        ("tokens", 0, "num_scheduled_tokens has 0 for a request; at least 1 is possible"),
        ("finished_req_ids", None, "finished_req_ids is None, not a set of request ids"),
        ("finished_req_ids", "done", "finished_req_ids is a str, not a set of request ids"),
    ],
)
def test_sentences(place: str, value: Any, sentence: str) -> None:
    output = honest()
    plant(output, place, value)
    with pytest.raises(_core.Error) as caught:
        _core.vllm.Walker(1).walk_to_dict(output)
    assert str(caught.value) == sentence


@pytest.mark.parametrize("make", [lambda: None, lambda: 5, str, object, SimpleNamespace, Hostile])
def test_things_that_are_no_output(make: Callable[[], Any]) -> None:
    with pytest.raises(_core.Error):
        _core.vllm.Walker(1).walk_to_dict(make())


def test_a_failed_walk_makes_no_stranger_of_what_it_admitted() -> None:
    output = honest()
    output.scheduled_new_reqs.append(outputs.new_request("late", ([4],), 0, 3))
    output.scheduled_new_reqs[0].block_ids = None
    walker = _core.vllm.Walker(1)
    with pytest.raises(_core.Error):
        walker.walk_to_dict(output)
    later = outputs.SchedulerOutput(
        scheduled_cached_reqs=outputs.CachedRequestData(
            req_ids=["late"], new_block_ids=[([8],)], num_computed_tokens=[3]
        ),
        num_scheduled_tokens={"late": 1},
    )
    walked = walker.walk_to_dict(later)
    assert walked["scheduled"] == []
    assert [e["name"] for e in walked["events"]] == ["request-from-before-reset"]


def test_forgotten_requests_are_skipped_until_they_come_anew() -> None:
    walker = _core.vllm.Walker(1)
    walker.walk_to_dict(
        outputs.SchedulerOutput(
            scheduled_new_reqs=[outputs.new_request(n, ([i],), 0, 3) for i, n in enumerate("abc")]
        )
    )
    walker.forget()
    walked = walker.walk_to_dict(
        outputs.SchedulerOutput(
            finished_req_ids={"a"},
            scheduled_new_reqs=[outputs.new_request("b", ([9],), 0, 3)],
            scheduled_cached_reqs=outputs.CachedRequestData(
                req_ids=["c"], new_block_ids=[([7],)], num_computed_tokens=[3]
            ),
            num_scheduled_tokens={"b": 3, "c": 1},
        )
    )
    assert [(e["kind"], e["name"]) for e in walked["events"]] == [
        ("admit", "b"),
        ("replace", None),
        ("gap", "request-from-before-reset"),
    ]
    assert len(walked["scheduled"]) == 1


@dataclass
class Later(outputs.SchedulerOutput):
    """A later release's output."""

    block_table_updates: dict[str, Any] | None = None
    hints: list[int] = field(default_factory=list)


def test_unknown_fields_matter_when_they_are_used() -> None:
    walker = _core.vllm.Walker(1)
    assert walker.walk_to_dict(Later())["events"] == []
    assert walker.walk_to_dict(Later(hints=[]))["events"] == []
    used = walker.walk_to_dict(Later(block_table_updates={"a": [1]}, hints=[1]))["events"]
    assert [(e["kind"], e["name"]) for e in used] == [
        ("gap", "unknown-field-in-use:SchedulerOutput.block_table_updates"),
        ("gap", "unknown-field-in-use:SchedulerOutput.hints"),
    ]
    assert walker.walk_to_dict(outputs.SchedulerOutput())["events"] == []


def test_attributes_that_were_set_on_an_output() -> None:
    walker = _core.vllm.Walker(1)
    output = outputs.SchedulerOutput()
    output.block_table_updates = None  # type: ignore[attr-defined]
    output.scheduled_cached_reqs._a_cache_of_the_engine = {1: 2}  # type: ignore[attr-defined]
    assert walker.walk_to_dict(output)["events"] == []
    output.block_table_updates = {"a": [1]}  # type: ignore[attr-defined]
    events = walker.walk_to_dict(output)["events"]
    assert [e["name"] for e in events] == [
        "unknown-field-in-use:SchedulerOutput.block_table_updates"
    ]


def test_a_known_field_that_is_not_judged() -> None:
    output = outputs.SchedulerOutput(scheduled_new_reqs=[outputs.new_request("a", ([1],), 0, 3)])
    output.scheduled_new_reqs[0].replay_start = 4
    events = _core.vllm.Walker(1).walk_to_dict(output)["events"]
    assert events[-1]["name"] == "unjudged-field-in-use:NewRequestData.replay_start"


def test_probe_of_types() -> None:
    types = (outputs.SchedulerOutput, outputs.NewRequestData, outputs.CachedRequestData)
    assert _core.vllm.probe_types(*types) == {"missing": [], "unknown": []}
    probed = _core.vllm.probe_types(Later, outputs.CachedRequestData, outputs.CachedRequestData)
    assert "SchedulerOutput.block_table_updates" in probed["unknown"]
    assert "NewRequestData.block_ids" in probed["missing"]


def test_the_field_table_knows_every_field_of_the_fake() -> None:
    table = _core.vllm.field_table()
    for cls in (outputs.SchedulerOutput, outputs.NewRequestData, outputs.CachedRequestData):
        assert set(cls.__dataclass_fields__) == set(table[cls.__name__])


def test_nothing_is_leaked() -> None:
    stream = outputs.Stream(3, 2, odd=True)
    walker = _core.vllm.Walker(2)
    walked = [stream.next() for _ in range(50)]
    for output in walked:
        walker.walk_to_dict(output)
    counts = []
    for _ in range(4):
        broken = copy.deepcopy(walked[-1])
        broken.num_scheduled_tokens = {"x": "y"}
        for _ in range(200):
            with pytest.raises(_core.Error):
                walker.walk_to_dict(broken)
        del broken
        gc.collect()
        counts.append(len(gc.get_objects()))
    assert counts[-1] - counts[1] < 50, counts
    if hasattr(sys, "getrefcount"):
        name = "request-x"
        before = sys.getrefcount(name)
        for _ in range(100):
            new = outputs.new_request(name, ([1], [2]), 0, 3)
            walker.walk_to_dict(outputs.SchedulerOutput(scheduled_new_reqs=[new]))
            walker.walk_to_dict(outputs.SchedulerOutput(finished_req_ids={name}))
        assert sys.getrefcount(name) - before < 5
