# SPDX-License-Identifier: Apache-2.0
"""The adapter beyond one group of full attention: what each layer is given, windows, outcomes."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import Any

import fake_vllm
import outputs
import pytest
from kvguard import KVGuardError, _core
from kvguard.vllm import probes
from toy import ON, Engine


class TwoLayers(fake_vllm.CPUWorker):
    """Two groups, two layers in each."""

    groups = 2

    def init_device(self) -> None:
        super().init_device()
        for g, backends in enumerate(self.model_runner.attn_groups):
            backends[0].layer_names = [f"layer{g}", f"layer{g}b"]


def metadata_of_other_group(metadata: Any, slots: Any) -> None:
    metadata["layer0b"] = metadata["layer1b"]


def slots_of_other_group(metadata: Any, slots: Any) -> None:
    slots["layer0b"] = slots["layer1b"]


def no_slots(metadata: Any, slots: Any) -> None:
    del slots["layer1b"]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (metadata_of_other_group, "KV0301 table-mismatch .*group=0.*stage=final"),
        (slots_of_other_group, "KV0401 slot-mismatch .*group=0.*stage=final"),
        (no_slots, "KV0403 slot-pad .*group=1.*stage=final"),
    ],
)
def test_every_layer_is_looked_at(fault: Any, words: str) -> None:
    engine = Engine(ON, TwoLayers)
    engine.run(9)
    assert engine.verdict()["verdict"] == "clean"
    engine.runner.faults["layers"] = fault
    with pytest.raises(KVGuardError, match=words):
        engine.step()


def test_a_context_without_slots_is_a_gap() -> None:
    engine = Engine(ON, TwoLayers)
    engine.run(3)
    engine.runner.faults["layers"] = lambda metadata, slots: slots.clear()
    engine.step()
    assert set(engine.gaps()) == {"final-metadata-unseen", "final-plan-missing"}
    assert engine.verdict()["verdict"] == "cannot_judge"


def test_where_the_context_has_no_slots_those_of_the_metadata_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probes, "probe_forward_context", lambda: False)
    engine = Engine(ON, TwoLayers)
    engine.runner.faults["layers"] = lambda metadata, slots: slots.update(
        dict.fromkeys(slots, slots["layer0"])
    )
    engine.run(9)
    assert engine.verdict()["verdict"] == "clean"


def test_a_window_s_geometry() -> None:
    tables = fake_vllm.BlockTables(1, 8, 64, 16)
    spec = fake_vllm.SlidingWindowSpec()
    group = SimpleNamespace(kv_cache_spec=spec, layer_names=["a", "b"])
    made = probes.probe_group(0, group, tables)
    assert (made.kind, made.window, made.retained, made.num_layers) == ("window", 8, 0, 2)
    spec.extra_retained_tokens = 2  # type: ignore[attr-defined]
    assert probes.probe_group(0, group, tables).retained == 2
    for name, value, reason in (
        ("sliding_window", 0, "a window of 0 tokens"),
        ("uses_slot_mapping", False, "no slot mapping"),
        ("tokens_per_state", 4, "4 tokens a state"),
    ):
        other = fake_vllm.SlidingWindowSpec()
        setattr(other, name, value)
        with pytest.raises(probes.NotArmed, match=reason):
            probes.probe_group(0, SimpleNamespace(kv_cache_spec=other, layer_names=[]), tables)
    group.host_resident = True
    with pytest.raises(probes.NotArmed, match="host memory"):
        probes.probe_group(0, group, tables)


# --- drafts ---


class Looked:
    """A runner that verifies drafts; a speculator without KV of its own."""

    def __init__(self, **more: Any) -> None:
        self.num_speculative_steps = 3
        self.speculator = SimpleNamespace()
        self.__dict__.update(more)

    def postprocess_sampled(
        self, idx_mapping: Any, sampled_tokens: Any, num_sampled: Any, num_rejected: Any
    ) -> None: ...


class Renamed(Looked):
    def postprocess_sampled(self, idx_mapping: Any, outcome: Any) -> None:  # type: ignore[override]
        ...


NGRAM = SimpleNamespace(speculative_config=SimpleNamespace(method="ngram"))


def test_looked_up_drafts_are_taken() -> None:
    assert probes.probe_speculation(NGRAM, Looked()) == (3, (2, 3))
    plain = SimpleNamespace(speculative_config=None)
    assert probes.probe_speculation(plain, Looked(num_speculative_steps=0))[0] == 0


@pytest.mark.parametrize(
    ("method", "runner", "reason"),
    [
        ("eagle", Looked(), "'eagle' has no rules"),
        ("ngram", Looked(speculator=None), "'ngram' has no rules"),
        ("ngram", Looked(speculator=SimpleNamespace(block_tables=1)), "'ngram' has no rules"),
        ("ngram", Looked(adaptive_verification=object()), "adaptive verification"),
        ("ngram", Renamed(), "postprocess_sampled takes"),
        (None, Looked(), "draft tokens of its own"),
    ],
)
def test_what_drafts_otherwise_is_not_armed(method: str | None, runner: Any, reason: str) -> None:
    config = None if method is None else SimpleNamespace(method=method)
    with pytest.raises(probes.NotArmed, match=reason):
        probes.probe_speculation(SimpleNamespace(speculative_config=config), runner)


def stream_with_drafts() -> tuple[Any, Any]:
    """A request that is scheduled with one token and three drafts behind it."""
    guard = _core.Guard(
        {
            "pools": [{"num_blocks": 8, "null_block": 0, "kind": "pages"}],
            "groups": [{"kind": "full", "block_size": 4}],
            "max_rows": 4,
            "max_tokens": 16,
            "max_drafts": 3,
        },
        {"action": "raise"},
    )
    stream = _core.vllm.Stream(guard)
    stream.begin(
        outputs.SchedulerOutput(
            scheduled_new_reqs=[outputs.new_request("a", ([1, 2],), 4, 8)],
            num_scheduled_tokens={"a": 4},
            scheduled_spec_decode_tokens={"a": [-1] * 3},
        )
    )
    return guard, stream


def counts(*values: int, code: str = "i") -> tuple[Any, tuple[int, int, int]]:
    """Kept alive by whoever asks, and described as the adapter does."""
    held = array(code, values)
    kind = _core.I32 if code == "i" else _core.I64
    return held, (held.buffer_info()[0], len(held), kind)


@pytest.mark.parametrize("code", "iq")
def test_an_outcome_moves_the_frontier(code: str) -> None:
    guard, stream = stream_with_drafts()
    held_sampled, sampled = counts(2, code=code)
    held_rejected, rejected = counts(2, code=code)
    assert stream.outcome(["a"], sampled, rejected) == 0
    assert (stream.num_drafts, stream.num_rejected) == (3, 2)
    stream.end()
    cached = outputs.CachedRequestData(
        req_ids=["a"], new_block_ids=[None], num_computed_tokens=[7]
    )  # 4 + 4 - 2 are computed
    output = outputs.SchedulerOutput(scheduled_cached_reqs=cached, num_scheduled_tokens={"a": 1})
    assert stream.begin(output) & _core.vllm.FLAG_MUST_RAISE
    assert [f["code"] for _, _, f in guard.findings()] == [902]
    assert guard.findings()[0][2]["expected"] == 6
    del held_sampled, held_rejected


def test_more_rejected_than_drafted_is_found_at_once() -> None:
    guard, stream = stream_with_drafts()
    held_sampled, sampled = counts(0)
    held_rejected, rejected = counts(4)
    assert stream.outcome(["a"], sampled, rejected) & _core.vllm.FLAG_MUST_RAISE
    assert [f["code"] for _, _, f in guard.findings()] == [905]
    del held_sampled, held_rejected


def test_an_outcome_that_cannot_be_read_is_a_gap() -> None:
    for names, values in ((["a", "a"], (1,)), (["a"], (-1,)), (None, (1,)), ([7], (1,))):
        guard, stream = stream_with_drafts()
        held, described = counts(*values)
        assert stream.outcome(names, described, described) & _core.vllm.FLAG_NOT_FED
        assert stream.sentence
        stream.end()
        assert "outcome-unreadable" in {g["name"] for g in guard.gaps()}
        assert (stream.num_drafts, stream.num_rejected) == (0, 0)
        assert stream.outcome(names, described, described) & _core.vllm.FLAG_UNJUDGED
        del held


# --- draft passes ---


class Speculator:
    """One whose draft model writes KV of its own."""

    num_speculative_steps = 3
    advance_draft_positions = True
    input_buffers = SimpleNamespace(positions="positions")
    block_tables = None

    def __init__(self) -> None:
        self.attn_groups = [[fake_vllm.Backend(["draft"])], []]
        self.ran: list[Any] = []

    def propose(self, batch: Any, num_speculative_tokens: int | None = None) -> str:
        most = 3 if num_speculative_tokens is None else num_speculative_tokens
        for k in range(max(1, most)):
            self._run_model(k, {"draft": 1}, slot_mappings={"draft": 2}, num_tokens_across_dp=None)
        return "drafts"

    def _run_model(
        self,
        num_tokens: int,
        attn_metadata: Any,
        slot_mappings: Any,
        num_tokens_across_dp: Any,
    ) -> None:
        self.ran.append(num_tokens)


class Recorder:
    """A session that keeps what it is told."""

    def __init__(self, active: bool = True) -> None:
        self.active = active
        self.passes: list[Any] = []
        self.expected: list[int] = []

    def draft_pass(self, buffers: Any, given: tuple[Any, ...]) -> None:
        self.passes.append((buffers.positions, *given))

    def drafted(self, expected: int) -> None:
        self.expected.append(expected)


def guarded(session: Recorder) -> Speculator:
    from kvguard.vllm.runner import guarded_speculator  # when vLLM's fake is there

    speculator = Speculator()
    speculator.__class__ = guarded_speculator(Speculator, session)  # type: ignore[arg-type]
    return speculator


@pytest.mark.parametrize(("drafts", "passes"), [(None, 3), (2, 2), (0, 1)])
def test_every_draft_pass_is_told_before_it_runs(drafts: int | None, passes: int) -> None:
    session = Recorder()
    speculator = guarded(session)
    assert isinstance(speculator, Speculator)
    assert speculator.propose("batch", num_speculative_tokens=drafts) == "drafts"
    assert session.passes == [("positions", k, {"draft": 1}, {"draft": 2}) for k in range(passes)]
    assert session.expected == [passes]
    assert speculator.ran == [*range(passes)]


def test_a_draft_model_runs_alone_while_nothing_is_judged() -> None:
    session = Recorder(active=False)
    speculator = guarded(session)
    speculator.propose("batch")
    assert (session.passes, session.expected) == ([], [])
    assert speculator.ran == [0, 1, 2]


def test_a_draft_pass_that_is_not_seen_is_a_gap() -> None:
    engine = Engine()
    engine.run(3)
    session = engine.life._session

    def drafts(seen: int) -> Any:
        def sample(fake: Any) -> None:
            session._draft_passes = seen
            session.drafted(3)

        return sample

    engine.runner.faults["sample"] = drafts(3)
    engine.step()
    assert engine.gaps() == {}
    engine.runner.faults["sample"] = drafts(1)
    engine.step()
    assert engine.gaps() == {"draft-pass-unseen": 1}


def test_a_speculator_s_layers() -> None:
    holder = SimpleNamespace(speculator=Speculator(), num_speculative_steps=3)
    (layer,) = probes.probe_speculator(holder, 2)
    assert (layer.group, layer.layers, layer.with_table) == (0, ("draft",), True)

    class OtherArguments(Speculator):
        def _run_model(self, attn_metadata: Any) -> None:  # type: ignore[override]
            ...

    class StandsStill(Speculator):
        advance_draft_positions = False

    class Unreadable(Speculator):
        def __init__(self) -> None:
            super().__init__()
            self.attn_groups = [[SimpleNamespace(layer_names=["draft"])]]

    for kind, reason in (
        (OtherArguments, "_run_model takes"),
        (StandsStill, "without moving on"),
        (Unreadable, "cannot be read"),
    ):
        holder.speculator = kind()
        with pytest.raises(probes.NotArmed, match=reason):
            probes.probe_speculator(holder, 1)
