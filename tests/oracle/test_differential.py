# SPDX-License-Identifier: Apache-2.0
"""The comparison itself: it sees every kind of difference, and says when it saw nothing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from scenario import admit, begin, end, geometry, group, group_plan, plan, scheduled

SCRIPT = Path(__file__).resolve().parents[2] / "oracle" / "differential.py"

STREAM = [
    geometry(),
    begin(1, admit(1, [3]), [scheduled(1, 2, 0)]),
    plan(1, [1], [0, 2], [2], group_plan([[3]], [12, 14])),
    end(1),
]
# 14 instead of 13
FINDING = {
    "code": 401, "grade": "proof", "step": 1, "group": 0, "request": 1, "pos": 1,
    "pass": "target", "stage": "planned",
}  # fmt: skip
CORE = {
    "findings": [FINDING],
    "suspicions": {},
    "verdict": "violated",
    "step_gaps": 0,
    "gaps": [],
}


def program(seed=1, core=CORE, situations=("one",), stream=STREAM):
    head = {"seed": seed, "options": {}, "situations": list(situations), "mutation": None}
    lines = [{"program": head}, *stream, {"core": core}]
    return "".join(json.dumps(line) + "\n" for line in lines)


def run(text, *arguments):
    command = [sys.executable, str(SCRIPT), *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_equal_programs():
    code, text = run(program(1) + program(2), "--jobs", "2")
    assert code == 0
    assert text == (
        "2 programs (0 mutated), 2 steps, 2 proofs in 2 violated programs, 1 situations, "
        "0 disagreements\n"
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"findings": []}, "only the oracle (1x): KV0401 step 1, group 0, request 1, pos 1"),
        ({"findings": [FINDING, FINDING]}, "only the core (1x): KV0401"),
        ({"findings": [{**FINDING, "pos": 0}]}, "only the core (1x): KV0401"),
        ({"findings": [{**FINDING, "stage": "final"}]}, "target final"),
        ({"suspicions": {"904": 1}}, "suspicions: core {'904': 1} (1), oracle {}"),
        ({"suspicions": {}, "num_suspicions": 2}, "suspicions: core {} (2), oracle {}"),
        ({"verdict": "clean"}, "verdict: core clean, oracle violated"),
        ({"step_gaps": 1, "gaps": ["x"]}, "step gaps: core 1 ['x'], oracle 0"),
    ],
)
def test_each_difference_is_seen(change, said, tmp_path):
    code, text = run(program(7, {**CORE, **change}), "--save", str(tmp_path / "kept"))
    assert code == 1
    assert said in text
    assert "seed 7: disagreement" in text
    # what was kept is a program that disagrees again
    kept = (tmp_path / "kept" / "7.jsonl").read_text(encoding="utf-8")
    assert run(kept)[0] == 1


def test_suspicions_stored_among_the_findings_are_not_proofs():
    stored = {**FINDING, "code": 904, "grade": "suspicion"}
    code, text = run(program(1, {**CORE, "findings": [FINDING, stored]}))
    assert code == 0, text


def test_an_oracle_that_cannot_judge_is_a_disagreement():
    stream = [geometry([group(kind="ring", window=8)]), *STREAM[1:]]
    code, text = run(program(1, stream=stream))
    assert (code, "the oracle cannot judge: docs/judging.md" in text) == (1, True)


def test_required_situations(tmp_path):
    names = tmp_path / "situations.txt"
    names.write_text("# must be reached\none\ntwo  # a comment\n", encoding="utf-8")
    both = program(1) + program(2, situations=["two"])
    assert run(both, "--require", str(names))[0] == 0
    code, text = run(program(1), "--require", str(names))
    assert (code, text.splitlines()[-1]) == (3, "vacuous: never reached: two")


def test_no_program_is_vacuous():
    assert run("")[0] == 3


@pytest.mark.parametrize(
    "text",
    [
        "not json\n",
        program().replace('{"core"', '{"other"'),
        program().replace('"record": "end"', '"record": "unheard-of"'),
        program().replace('"num_tokens": 2', '"num_tokens": "2"'),
        program(core={"findings": []}),
        "".join(program().splitlines(keepends=True)[:-1]),
        "".join(program().splitlines(keepends=True)[1:]),
        program() + program().splitlines(keepends=True)[0],
    ],
)
def test_malformed_streams(text):
    code, said = run(text)
    assert (code, said.startswith("malformed stream: ")) == (65, True)


def judge_file(text, tmp_path):
    path = tmp_path / "stream.jsonl"
    path.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "kvguard_oracle", str(path)]
    return subprocess.run(command, cwd=SCRIPT.parent, capture_output=True, text=True, check=False)


def lines_of(records):
    return "".join(json.dumps(record) + "\n" for record in records)


def test_the_command(tmp_path):
    done = judge_file(lines_of(STREAM), tmp_path)
    finding, verdict = [json.loads(line) for line in done.stdout.splitlines()]
    assert finding == {**FINDING, "row": 0}
    assert (verdict["verdict"], verdict["proofs"], done.returncode) == ("violated", 1, 1)

    right = [*STREAM[:2], plan(1, [1], [0, 2], [2], group_plan([[3]], [12, 13])), end(1)]
    assert judge_file(lines_of(right), tmp_path).returncode == 0
    assert judge_file(lines_of(STREAM[:1]), tmp_path).returncode == 2

    done = judge_file(lines_of([geometry([group(kind="ring", window=8)])]), tmp_path)
    assert (done.returncode, done.stderr.startswith("cannot judge: ")) == (2, True)
    for text in ("", "{", "[]\n", lines_of(STREAM[1:])):
        assert judge_file(text, tmp_path).returncode == 65
