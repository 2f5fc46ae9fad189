# SPDX-License-Identifier: Apache-2.0
"""Properties of both judges on what Hypothesis draws.

A stream on which they differ is written to the build folder's differences/, as small as Hypothesis
made it: oracle/shrink.py and test_differences.py take it as it is. HYPOTHESIS_PROFILE=deep draws
more, and other streams in each run.
"""

import copy
import json
import os
import subprocess
from pathlib import Path

import core_bridge
import pytest
import shrink
from core_bridge import Core
from differential import core_proofs, oracle_proofs
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st
from kvguard_oracle import judge_lines
from strategies import arbitrary_streams, malformed, pass_streams, streams

BUILD = Path(os.environ.get("KVGUARD_BUILD", core_bridge.CHECKOUT / "build"))
COMMAND = BUILD / "kvguard"

settings.register_profile(
    "tier1",
    derandomize=True,  # the same streams in every run
    max_examples=150,
    deadline=None,  # how long one takes says what else the machine does
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("deep", settings.get_profile("tier1"), derandomize=False,
                          max_examples=2000)  # fmt: skip
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "tier1"))

pytestmark = pytest.mark.skipif(
    not core_bridge.library_path().is_file(), reason="libkvguard.so is not built"
)


def both_agree(lines, name):
    judged = shrink.judge_both(lines)
    assert judged is not None, "one of them does not read it"
    found = shrink.signatures(judged)
    for code in shrink.fired(judged):
        event(f"KV{code:04d}")
    event("refused" if judged.refused() else "taken")
    if found:
        path = BUILD / "differences" / f"{name}.jsonl"
        about = shrink.about_disagreement(lines)
        shrink.write_program(path, lines, about)
        pytest.fail(f"{about}; kept as {path}")
    return judged


@given(streams())
def test_both_agree_on_what_is_near_to_right(lines):
    both_agree(lines, "near-to-right")


@given(pass_streams())
def test_both_agree_on_other_groups_and_passes(lines):
    both_agree(lines, "other-passes")


@given(arbitrary_streams())
def test_both_agree_on_anything(lines):
    both_agree(lines, "anything")


def fed(lines):
    """Everything that a guard says of the stream: bytes of findings, and the account."""
    with Core(lines[0]) as core:
        for line in lines[1:]:
            core.feed(line)
        verdict = core.verdict()
        findings = core.stored(verdict.proofs + verdict.suspicions)
        return [bytes(finding) for finding in findings], bytes(verdict), core.gaps(), core.errors


@given(st.one_of(streams(), pass_streams(), arbitrary_streams()))
def test_the_same_stream_gives_the_same_bytes(lines):
    assert fed(lines) == fed(copy.deepcopy(lines))


def ends(lines):
    """Places between two steps: behind an END, and before the first record."""
    places, is_open = [1], False
    for index, line in enumerate(lines[1:], start=1):
        is_open = line["record"] == "begin" or (is_open and line["record"] not in ("end", "reset"))
        if not is_open:
            places.append(index + 1)
    return places


def proofs(core):
    """Suspicions aside: what was told once is not told again, and a snapshot does not hold that."""
    names = ("code", "step", "group", "request", "pos", "row", "pass", "stage")
    verdict = core.verdict()
    found = core.findings(verdict.proofs + verdict.suspicions)
    return [tuple(f[name] for name in names) for f in found if f["grade"] == "proof"]


@given(st.one_of(streams(), pass_streams()), st.data())
def test_a_restored_guard_finds_the_same(lines, data):
    place = data.draw(st.sampled_from(ends(lines)))
    with Core(lines[0]) as first, Core(lines[0]) as second:
        for line in lines[1:place]:
            first.feed(line)
        before, counted = proofs(first), first.verdict().suspicions
        mirror = first.snapshot()
        second.restore(mirror)
        assert second.snapshot() == mirror
        for line in lines[place:]:
            assert first.feed(line) == second.feed(line)
        after = proofs(first)[len(before) :]
        event("proofs behind it" if after else "silent")
        assert after == proofs(second)
        assert first.verdict().suspicions - counted == second.verdict().suspicions


def record(lines, path):
    with Core(lines[0], record_to=str(path)) as core:
        for line in lines[1:]:
            core.feed(line)
        return core.report()


@given(st.one_of(streams(), pass_streams(), arbitrary_streams()))
def test_a_recorded_stream_gives_the_same_again(tmp_path_factory, lines):
    path = tmp_path_factory.getbasetemp() / "drawn.kvtrace"
    path.unlink(missing_ok=True)
    live, again = record(lines, path), core_bridge.replay(path)
    assert len(live.pop("errors")) == len(again.pop("errors"))
    assert live == again


@pytest.mark.skipif(not COMMAND.is_file(), reason="build/kvguard is not built")
@settings(max_examples=30)
@given(st.one_of(streams(), pass_streams(), arbitrary_streams()))
def test_a_dumped_stream_gives_the_oracle_the_same(tmp_path_factory, lines):
    path = tmp_path_factory.getbasetemp() / "dumped.kvtrace"
    path.unlink(missing_ok=True)
    record(lines, path)
    command = [COMMAND, "trace", "dump", "--jsonl", path]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    dumped = [json.loads(line) for line in text.splitlines()]
    one, other = judge_lines(copy.deepcopy(lines)), judge_lines(dumped)
    assert one.findings == other.findings
    assert one.gap_steps() == other.gap_steps()
    assert one.verdict() == other.verdict()
    assert (one.assumptions, one.ignored) == (other.assumptions, other.ignored)


@given(st.one_of(streams(), pass_streams()), st.data())
def test_a_malformed_record_leaves_the_account_as_it_was(lines, data):
    places = [i for i in range(1, len(lines) + 1) if steps_begun(lines[:i])]
    place = data.draw(st.sampled_from(places))
    step = max(steps_begun(lines[:place]))
    more = [*lines[:place], data.draw(malformed(step)), *lines[place:]]
    right = both_agree(lines, "without-malformed")
    wrong = both_agree(more, "with-malformed")
    # after a BEGIN that was refused already nothing is looked at
    assume("bindings-lost" not in right.core["gaps"])
    assert len(wrong.core["errors"]) == len(right.core["errors"]) + 1
    assert wrong.core["errors"] != []
    assert core_proofs(wrong.core) == core_proofs(right.core)
    assert oracle_proofs(wrong.result) == oracle_proofs(right.result)
    assert wrong.core["suspicions"] == right.core["suspicions"]
    assert wrong.core["assumptions"] == right.core["assumptions"]
    assert wrong.core["verdict"] in ("violated", "cannot_judge")


def steps_begun(lines):
    return [line["step"] for line in lines if line["record"] == "begin"]
