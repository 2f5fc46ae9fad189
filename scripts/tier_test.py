# SPDX-License-Identifier: Apache-2.0
"""The runner of a tier must never pass what did not run or did not pass."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
import tier

SCRIPT = Path(tier.__file__)


def run_tier(tmp_path, steps, name="t"):
    """Runs steps given as (command, count, extra) through the command line."""
    lines = [f"[{name}]", "steps = ["]
    for number, (command, count, *extra) in enumerate(steps):
        fields = {"name": f"step{number}", "share": f"share{number % 2}", "budget_minutes": 1.0}
        fields |= {"command": command, "count": count} | (extra[0] if extra else {})
        cells = ", ".join(
            f"{k} = {str(v).lower() if isinstance(v, bool) else repr(v)}" for k, v in fields.items()
        )
        lines.append(f"  {{ {cells} }},")
    file = tmp_path / "tiers.toml"
    file.write_text("\n".join([*lines, "]"]), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), name, "--file", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout.splitlines(), done.stderr


def test_passed_steps_are_added_up(tmp_path):
    status, lines, _ = run_tier(
        tmp_path,
        [
            ("echo '3 passed, 0 failed'", "plain"),
            ("echo '===== 4 passed, 2 skipped in 1.20s ====='", "pytest"),
            ("echo '100% tests passed, 0 tests failed out of 5'", "ctest"),
            ("true", "none"),
        ],
    )
    assert status == 0
    assert lines[-1] == "12 passed, 0 failed, 2 skipped"


def test_failed_tests_fail_the_run(tmp_path):
    status, lines, _ = run_tier(
        tmp_path,
        [
            ("echo '=== 2 failed, 4 passed, 1 error in 1.20s ==='; exit 1", "pytest"),
            ("echo '80% tests passed, 1 tests failed out of 5'; exit 8", "ctest"),
            ("echo '1 passed, 0 failed'", "plain"),
        ],
    )
    assert status == 1
    assert lines[-1] == "9 passed, 4 failed"
    assert "FAILED step0: 3 tests" in lines


@pytest.mark.parametrize(
    ("command", "count", "note"),
    [
        ("echo nothing of note", "pytest", "ran no test (status 0)"),
        ("echo '= no tests ran in 0.01s ='; exit 5", "pytest", "ran no test (status 5)"),
        ("echo 'No tests were found!!!'", "ctest", "ran no test (status 0)"),
        ("echo '0 passed, 0 failed'", "plain", "ran no test (status 0)"),
        ("exit 3", "none", "ended with status 3"),
        ("echo '2 passed, 0 failed'; exit 1", "plain", "ended with status 1"),
        ("echo '1 passed, 1 failed'", "plain", "ended with status 0 although tests failed"),
        ("kill -9 $$", "none", "ended with status -9"),
    ],
)
def test_what_did_not_run_fails(tmp_path, command, count, note):
    status, lines, _ = run_tier(
        tmp_path, [("echo '1 passed, 0 failed'", "plain"), (command, count)]
    )
    assert status == 1
    assert f"FAILED step1: {note}" in lines
    assert lines[-1].endswith(", 1 failed")


def test_only_builds_is_not_a_pass(tmp_path):
    status, lines, _ = run_tier(tmp_path, [("true", "none")])
    assert status == 1
    assert lines[-1] == "0 passed, 0 failed"


def test_a_step_that_others_need_stops_the_run(tmp_path):
    status, lines, _ = run_tier(
        tmp_path,
        [
            ("exit 1", "none", {"needed": True}),
            (f"touch {tmp_path}/ran; echo '1 passed, 0 failed'", "plain"),
        ],
    )
    assert status == 1
    assert "FAILED step1: not run: step0 failed" in lines
    assert lines[-1] == "0 passed, 2 failed"
    assert not (tmp_path / "ran").exists()


def test_over_budget_is_shown_and_is_no_failure(tmp_path):
    step = ("sleep 0.8; echo '1 passed, 0 failed'", "plain", {"budget_minutes": 0.01})
    status, lines, _ = run_tier(tmp_path, [step])
    assert status == 0
    assert any("step0 over its budget" in line for line in lines)


def test_a_hanging_step_is_stopped_with_its_children(tmp_path):
    mark = tmp_path / "survived"
    hang = f"(sleep 8; touch {mark}) & sleep 60; echo '1 passed, 0 failed'"
    start = time.monotonic()
    status, lines, _ = run_tier(tmp_path, [(hang, "plain", {"budget_minutes": 0.01})])
    assert status == 1
    assert any(line.startswith("FAILED step0: stopped after") for line in lines)
    assert lines[-1] == "0 passed, 1 failed"
    time.sleep(max(0.0, start + 9 - time.monotonic()))
    assert not mark.exists()


@pytest.mark.parametrize("output", ["", ">/dev/null 2>&1"])
def test_processes_left_behind_fail(monkeypatch, output):
    monkeypatch.setattr(tier, "LEFT_BEHIND_SECONDS", 1.0)
    command = f"sleep 300 {output} & echo '1 passed, 0 failed'"
    result = tier.run_step(tier.Step("s", "x", 1.0, command, "plain"))
    assert result.failed
    assert result.note == "left processes behind"
    assert result.seconds < 20


def test_a_process_that_ends_soon_after_its_step_is_no_failure():
    command = "(sleep 1.5) >/dev/null 2>&1 & echo '1 passed, 0 failed'"
    result = tier.run_step(tier.Step("s", "x", 1.0, command, "plain"))
    assert not result.failed
    assert result.count.passed == 1


def test_a_run_that_is_told_to_end_ends_its_step(tmp_path):
    mark = tmp_path / "survived"
    file = tmp_path / "tiers.toml"
    file.write_text(
        "[t]\nsteps = [{ name = 's', share = 'x', budget_minutes = 1, count = 'none', "
        f'command = "echo ready; sleep 5; touch {mark}" }}]\n',
        encoding="utf-8",
    )
    command = [sys.executable, str(SCRIPT), "t", "--file", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if line.strip() == "ready":
                process.terminate()
        assert process.wait() == 143
    time.sleep(6)
    assert not mark.exists()


def test_output_is_shown_while_a_step_runs(tmp_path):
    step = "echo early; sleep 3; echo '1 passed, 0 failed'"
    file = tmp_path / "tiers.toml"
    file.write_text(
        "[t]\nsteps = [{ name = 's', share = 'x', budget_minutes = 1, "
        f'command = "{step}", count = "plain" }}]\n',
        encoding="utf-8",
    )
    command = [sys.executable, str(SCRIPT), "t", "--file", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        seen = {}
        for line in process.stdout:
            seen.setdefault(line.strip(), time.monotonic())
    assert seen["1 passed, 0 failed"] - seen["early"] > 2


def test_skipped_ctest_cases_are_not_passes():
    lines = [
        "100% tests passed, 0 tests failed out of 3",
        "The following tests did not run:",
        "\t  2 - trace/Big.File (Skipped)",
    ]
    assert tier.count_tests("ctest", lines) == tier.Count(passed=2, failed=0, skipped=1)


def test_lines_of_another_runner_do_not_count():
    assert tier.count_tests("ctest", ["3 passed, 0 failed"]) == tier.Count()
    assert tier.count_tests("plain", ["3 passed, 0 failed in 2s"]) == tier.Count()
    assert tier.count_tests("plain", ["text 3 passed, 0 failed"]) == tier.Count()


def test_newer_ctest_says_it_shorter():
    assert tier.count_tests("ctest", ["100% tests passed out of 8"]) == tier.Count(passed=8)


def test_unknown_tier_and_unknown_way_to_count(tmp_path):
    status, _, error = run_tier(tmp_path, [("true", "tap")])
    assert status == 1
    assert "counts by 'tap', which is unknown" in error
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "tomorrow"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "no tier 'tomorrow'" in done.stderr


def test_the_project_s_own_tiers_load():
    file = SCRIPT.parent / "tiers.toml"
    first = tier.load(file, "test")
    everything = tier.load(file, "test-all")
    assert everything[: len(first)] == first
    assert {s.count for s in first} >= {"ctest", "pytest", "plain"}
    # CI ends a run after 90 minutes: even if every step were stopped at its limit, a verdict falls.
    assert sum(s.budget_minutes for s in first) <= 45
