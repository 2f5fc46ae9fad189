# SPDX-License-Identifier: Apache-2.0
"""The benchmark's own parts: baselines that really check, and a gate that really closes."""

import importlib.util
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


def load(name):
    spec = importlib.util.spec_from_file_location(f"kvguard_bench_{name}", BENCH / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


baselines = load("baselines")
check_instructions = load("check_instructions")

BLOCK = 4


def make_step():
    """Two decodes of different length, a prefill that starts inside a block, one from zero."""
    rows = [
        {"start": 9, "query": 1, "blocks": [3, 11, 7]},
        {"start": 4, "query": 1, "blocks": [5, 2]},
        {"start": 6, "query": 7, "blocks": [1, 9, 4, 8]},
        {"start": 0, "query": 4, "blocks": [6]},
    ]
    stride = 6
    slots, table, query_start = [], [], [0]
    for row in rows:
        positions = range(row["start"], row["start"] + row["query"])
        slots += [row["blocks"][p // BLOCK] * BLOCK + p % BLOCK for p in positions]
        table += row["blocks"] + [99] * (stride - len(row["blocks"]))  # residue behind what is live
        query_start.append(len(slots))
    return {
        "rows": rows,
        "slots": slots,
        "stride": stride,
        "table": table,
        "query_start": query_start,
        "seq_lens": [row["start"] + row["query"] for row in rows],
    }


def plain(step):
    return baselines.check_plain(baselines.PlainStep.of(BLOCK, step))


def plain_by_token(step):
    return baselines.check_plain_by_token(baselines.PlainStep.of(BLOCK, step))


def vectorised(step):
    return baselines.check_numpy(baselines.NumpyStep.of(BLOCK, step))


@pytest.mark.parametrize("check", [plain, plain_by_token, vectorised])
def test_baseline_sees_every_slot_and_every_live_entry(check):
    assert check(make_step())
    for i in range(len(make_step()["slots"])):
        step = make_step()
        step["slots"][i] += 1
        assert not check(step), f"slot {i}"
    step = make_step()
    for b, row in enumerate(step["rows"]):
        for j in range(step["stride"]):
            step = make_step()
            step["table"][b * step["stride"] + j] += 1
            assert check(step) == (j >= len(row["blocks"])), f"row {b} column {j}"


CALLGRIND = """\
events: Ir
fl=(1) plan_bench.cc
fn=(1) kvguard_bench_plan
10 7
cfn=(2) kvguard_feed
calls=3 20
11 1000
fn=(2)
20 400
cfn=(3) memcpy
calls=9 1
+1 600
fn=(4) kvguard_bench_end
30 2
* 5
fl=(2) other.cc
fn=(1)
12 3
totals: 1017
"""


def test_inclusive_counts_a_function_and_what_it_calls():
    counts = check_instructions.inclusive(CALLGRIND)
    assert counts == {"kvguard_bench_plan": 7 + 1000 + 3, "kvguard_bench_end": 7}


@pytest.mark.parametrize(
    ("then", "now", "failed"),
    [(1000, 1000, 0), (1000, 1049, 0), (1000, 1051, 1), (1000, 500, 0), (100, 120, 0)],
)
def test_growth_beyond_five_percent_fails(then, now, failed, capsys):
    code = check_instructions.compare({"s": {"plan": now}}, {"s": {"plan": then}})
    assert code == (1 if failed else 0)
    assert capsys.readouterr().out.endswith(f"{1 - failed} passed, {failed} failed\n")


def test_what_the_baseline_does_not_know_fails(capsys):
    assert check_instructions.compare({"s": {"plan": 1}}, {}) == 1
    assert "not in the baseline" in capsys.readouterr().out
