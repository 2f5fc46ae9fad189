# SPDX-License-Identifier: Apache-2.0
"""The shrinker: an oracle with a wrong rule disagrees, and is shown by a handful of records."""

import io
import json
import subprocess
import sys
from pathlib import Path

import core_bridge
import differential
import pytest
import shrink
import shrink_edits as edits
from kvguard_oracle import geometry as oracle_geometry
from kvguard_oracle import slot_rules, windows
from layout_scenario import Row, csr, engine, flat, flat_group, list_group, shown
from random_streams import draw
from scenario import (
    admit,
    append,
    begin,
    end,
    geometry,
    group,
    group_plan,
    outcome,
    plan,
    scheduled,
)
from scenario import pool as pool_line

CHECKOUT = Path(__file__).resolve().parents[2]
SCRIPT = CHECKOUT / "oracle" / "shrink.py"
PROGRAMS = CHECKOUT / "build" / "tests" / "generate" / "kvguard_programs"
KEPT = Path(__file__).resolve().parent / "differences"
MOST_RECORDS = 8

pytestmark = pytest.mark.skipif(
    not core_bridge.library_path().is_file(), reason="libkvguard.so is not built"
)


# wrong rules


def no_slot_written_twice(monkeypatch):
    monkeypatch.setattr(slot_rules, "written_twice", lambda *_: [])


def window_off_by_one(monkeypatch):
    right = windows.first_needed
    monkeypatch.setattr(windows, "first_needed", lambda group, at: right(group, at + 1))


def no_foreign_writes(monkeypatch):
    monkeypatch.setattr(slot_rules, "judge_foreign_writes", lambda *_: [])


def slots_as_on_one_rank(monkeypatch):
    monkeypatch.setattr(
        oracle_geometry.Group,
        "slot_in",
        lambda self, block, position: block * self.block_slots + position % self.block_slots,
    )


WRONG_RULES = {
    "no 0405": (no_slot_written_twice, {}),
    "window off by one": (window_off_by_one, {"windows": True}),
    "no 0602": (no_foreign_writes, {"windows": True, "transfers": True}),
    "slots of one rank": (slots_as_on_one_rank, {"sharded": True}),
}


def first_disagreement(**mode):
    for seed in range(100):
        program = draw(seed, **mode)
        keeps = shrink.keeps_disagreement(program)
        if keeps is not None:
            return program, keeps
    raise AssertionError("the wrong rule was never seen")


@pytest.mark.parametrize("name", WRONG_RULES)
def test_a_wrong_rule_shrinks_to_a_handful_of_records(name, monkeypatch):
    break_rule, mode = WRONG_RULES[name]
    break_rule(monkeypatch)
    program, keeps = first_disagreement(**mode)
    smaller = shrink.shrink(program, keeps, progress=None)
    assert len(program) - 1 > MOST_RECORDS
    assert len(smaller) - 1 <= MOST_RECORDS
    judged = shrink.judge_both(smaller)
    # read by both, no record refused, and it differs in the same
    assert judged is not None
    assert judged.refused() == 0
    before = shrink.signatures(shrink.judge_both(program))
    assert before[0] in shrink.signatures(judged)
    # it was the rule: both agree where it is right
    monkeypatch.undo()
    assert shrink.signatures(shrink.judge_both(smaller)) == []


def listed_plan(encoding):
    """Three rows that read 2, 1 and 3 entries."""
    rows = [Row(1, [1, 2], 0, 5), Row(2, [3], 0, 4), Row(3, [4, 5, 6], 0, 9)]
    show = {"csr": lambda: csr(rows, last=[1, 4, 1]), "flat": lambda: flat(rows)}[encoding]
    return [list_engine(encoding), shown(1, rows, show())]


def test_rows_and_entries_of_lists_are_left_out():
    program = listed_plan("csr")
    smaller = edits.without(program, [edits.parts(program, edits.PLAN_ROWS)[1]])
    lists = smaller[1]["groups"][0]["reads"]
    assert [lists[name]["values"] for name in ("indptr", "indices", "last_page_len")] == [
        [0, 2, 5], [1, 2, 4, 5, 6], [1, 1]
    ]  # fmt: skip
    # an entry of the first row: those behind it begin one earlier
    entries = edits.parts(program, edits.LIST_ENTRIES)
    assert len(entries) == 6
    lists = edits.without(program, entries[:1])[1]["groups"][0]["reads"]
    assert (lists["indptr"]["values"], lists["indices"]["values"]) == (
        [0, 1, 2, 5], [2, 3, 4, 5, 6]
    )  # fmt: skip
    assert program == listed_plan("csr")


def test_blocks_of_lists_are_renumbered():
    """Block 9 becomes 1, in slots and entries; the sentinel and the trash stay what they are."""
    row = Row(1, [9], 0, 2, listed=[36, 37], slots=[36, 38])
    part = flat([row], sentinel=37)
    program = [list_engine("flat", trash=38), begin(1, admit(1, [9]), []), shown(1, [row], part)]
    moved = edits.compacted_blocks(program, 0)[2]["groups"][0]
    assert moved["slots"]["values"] == [4, 38]
    assert moved["reads"]["slots"]["values"] == [4, 37]
    row = Row(1, [9], 0, 2, listed=[18, 19])
    halves = list_engine("csr", table_unit="kernel_block", kernel_block_size=2)
    program = [halves, begin(1, admit(1, [9]), []), shown(1, [row], csr([row]))]
    moved = edits.compacted_blocks(program, 0)[2]["groups"][0]
    assert moved["reads"]["indices"]["values"] == [2, 3]


def test_slots_that_lie_apart_are_renumbered():
    """Blocks 12 slots apart from slot 100 on: block 9 begins at 208, block 1 at 112."""
    scaled = {"index_scale": 3, "token_stride": 2, "slot_base": 100}
    # a token, one between two, and what lies before every block
    row = Row(1, [9], 0, 3, listed=[208, 99, -1], slots=[210, 211, -1])
    for encoding, show, part in (("flat", flat, "slots"), ("csr", csr, "indices")):
        line = list_engine(encoding, table_unit="slot", **scaled)
        program = [line, begin(1, admit(1, [9]), []), shown(1, [row], show([row]))]
        moved = edits.compacted_blocks(program, 0)[2]["groups"][0]
        assert moved["slots"]["values"] == [114, 115, -1]
        assert moved["reads"][part]["values"] == [112, 99, -1]
    # entries that are no slots are not scaled
    row = Row(1, [9], 0, 3, listed=[9], slots=[208, 210, 212])
    program = [
        list_engine("csr", **scaled),
        begin(1, admit(1, [9]), []),
        shown(1, [row], csr([row])),
    ]
    moved = edits.compacted_blocks(program, 0)[2]["groups"][0]
    assert (moved["slots"]["values"], moved["reads"]["indices"]["values"]) == ([112, 114, 116], [1])


def list_engine(encoding, trash=-1, **fields):
    described = flat_group() if encoding == "flat" else list_group()
    return engine({**described, **fields}, pools=[pool_line(num_blocks=20, write_trash=trash)])


@pytest.mark.skipif(not PROGRAMS.is_file(), reason="kvguard_programs is not built")
def test_a_generated_program_shrinks_on_the_way(monkeypatch, capsys, tmp_path):
    slots_as_on_one_rank(monkeypatch)
    command = [
        PROGRAMS,
        "--jsonl",
        "--first",
        "12",
        "--count",
        "6",
        "--features",
        "full,window,dcp",
    ]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    monkeypatch.setattr(sys, "argv", ["differential.py", "--shrink", str(tmp_path)])
    assert differential.main() == differential.DIFFERENT
    assert "  shrunk " in capsys.readouterr().out
    for file in tmp_path.glob("*.jsonl"):
        (saved,) = shrink.read_programs(file)
        assert len(saved.program) - 1 <= MOST_RECORDS
        assert "KV0401" in saved.about
        assert not shrink.agree(shrink.judge_both(saved.program))


def test_a_difference_of_another_library_is_not_shrunk(capsys, monkeypatch, tmp_path):
    """The core's line says what the library does not."""
    (saved,) = shrink.read_programs(KEPT / "frontier.jsonl")
    core = {"findings": [], "suspicions": {}, "verdict": "clean", "step_gaps": 0, "gaps": []}
    lines = [{"program": {"seed": 1}}, *saved.program, {"core": core}]
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    monkeypatch.setattr(sys, "argv", ["differential.py", "--shrink", str(tmp_path)])
    assert differential.main() == differential.DIFFERENT
    assert "not shrunk" in capsys.readouterr().out


# the search


def long_program():
    steps = range(1, 21)
    lines = [[begin(s, admit(s, [3]), [scheduled(s, 2, 0)]), end(s)] for s in steps]
    return [geometry(), *[line for step in lines for line in step]]


def keeps_two_requests(program):
    """Not of the judges: two things that stand far apart."""
    return {5, 17} <= set(edits.requests(program))


def test_what_is_not_needed_goes():
    shrinker = shrink.Shrinker(long_program(), keeps_two_requests, progress=None)
    smaller = shrinker.run()
    assert edits.requests(smaller) == [5, 17]
    assert len(smaller) - 1 <= 2
    assert not shrinker.spent


def test_the_same_program_gives_the_same():
    runs = [shrink.shrink(long_program(), keeps_two_requests, progress=None) for _ in range(2)]
    assert runs[0] == runs[1]


def test_the_bound_holds_and_keeps_what_was_reached():
    shrinker = shrink.Shrinker(long_program(), keeps_two_requests, most_tries=9, progress=None)
    smaller = shrinker.run()
    assert (shrinker.tries, shrinker.spent) == (9, True)
    assert keeps_two_requests(smaller)
    assert len(smaller) < len(long_program())


def test_no_time_is_a_bound_too():
    shrinker = shrink.Shrinker(long_program(), keeps_two_requests, most_seconds=0, progress=None)
    assert shrinker.run() == long_program()
    assert shrinker.tries == 0


def test_progress_is_told(monkeypatch):
    monkeypatch.setattr(shrink, "SECONDS_BETWEEN_PROGRESS", 0.0)
    told = io.StringIO()
    shrink.shrink(long_program(), keeps_two_requests, progress=told)
    assert "shrink: drop steps: " in told.getvalue()
    assert told.getvalue().splitlines()[-1].startswith("shrink: done: ")


# edits


def two_groups():
    """Two requests, two groups of one pool; what is right of everything."""
    groups = [group(), group(id=1, table_unit="kernel_block", kernel_block_size=2)]
    return [
        geometry(groups, [pool_line(num_blocks=30)]),
        begin(
            4,
            [*admit(7, [13], [14]), *admit(9, [21], [22]), append(9, 23)],
            [scheduled(7, 2, 0), scheduled(9, 3, 0)],
        ),
        plan(
            4, [9, 7], [0, 3, 5], [3, 2],
            group_plan([[21, 23], [13]], [84, 85, 86, 52, 53]),
            group_plan([[44, 45], [28, 29]], [88, 89, 90, 56, 57], group=1),
            positions=[0, 1, 2, 0, 1], num_computed=[0, 0],
        ),
        end(4),
        outcome(4, (7, 0), (9, 0)),
    ]  # fmt: skip


def is_silent(program):
    judged = shrink.judge_both(program)
    return judged.refused() == 0 and shrink.agree(judged) and not shrink.fired(judged)


def test_edits_keep_a_right_program_right():
    program = two_groups()
    assert is_silent(program)
    changed = [
        edits.without_requests(program, {7}),
        edits.without_requests(program, {9}),
        edits.without_group(program, 0),
        edits.without_group(program, 1),
        edits.renumbered_requests(program),
        edits.renumbered_steps(program),
        edits.compacted_blocks(program, 0),
        *[edit(program) for edit in edits.optional_fields(program)],
        *[edit(program) for edit in edits.shorter_rows(program)],
    ]
    assert len(changed) == 16
    for smaller in changed:
        assert smaller != program
        assert is_silent(smaller), smaller
    assert program == two_groups()


def test_rows_are_cut_out_of_every_array():
    smaller = edits.without(two_groups(), [((2, edits.PLAN_ROWS), 0)])[2]
    right = plan(
        4, [7], [0, 2], [2],
        group_plan([[13]], [52, 53]), group_plan([[28, 29]], [56, 57], group=1),
        positions=[0, 1], num_computed=[0],
    )  # fmt: skip
    assert smaller == right


def test_blocks_become_the_lowest():
    smaller = edits.compacted_blocks(two_groups(), 0)
    assert [event["blocks"] for event in smaller[1]["events"]] == [[], [1], [2], [], [3], [4], [5]]
    assert smaller[2]["groups"][0]["reads"]["table"]["rows"] == [[3, 5], [1]]
    assert smaller[2]["groups"][1]["reads"]["table"]["rows"] == [[8, 9], [4, 5]]
    assert smaller[2]["groups"][1]["slots"]["values"] == [16, 17, 18, 8, 9]


def test_a_squashed_step_is_known_at_the_admission():
    program = [
        geometry(),
        begin(1, admit(1, [3, 5]), [scheduled(1, 5, 0)]),
        end(1),
        begin(2, [], [scheduled(1, 1, 5)]),
        end(2),
    ]
    smaller = edits.squashed(program, 1)
    assert [line["record"] for line in smaller] == ["geometry", "begin", "end"]
    assert smaller[1]["events"][0]["first"] == 5
    assert edits.squashed(smaller, 1) is None


def test_numbers_go_down_and_names_stay():
    assert edits.lower(9, "first") == [0, 1, 4, 8]
    assert edits.lower(1, "first") == [0]
    assert edits.lower(4, "dcp_size") == [1, 2, 3]
    assert edits.lower(-1, "pad_slot") == []
    assert edits.lower(-7, "first") == [-1]
    named = {path[-1] for path in edits.numbers(two_groups())}
    assert named.isdisjoint({"step", "request", "group", "columns", "num_rows"})


# the command


def run(*arguments):
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command(tmp_path):
    stream = tmp_path / "stream.jsonl"
    stream.write_text("".join(json.dumps(line) + "\n" for line in draw(1)), encoding="utf-8")
    done = run(stream, "--into", tmp_path / "small", "--fires", "405", "--tries", "400")
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'small' / 'stream.jsonl'}\n")
    assert "shrink: " in done.stderr
    (saved,) = shrink.read_programs(tmp_path / "small" / "stream.jsonl")
    assert 405 in saved.fires
    assert len(saved.program) < len(draw(1))
    # both agree: there is no disagreement to keep
    assert run(stream, "--into", tmp_path).returncode == shrink.NOTHING_TO_KEEP
    assert run(stream).returncode == shrink.USAGE
    for text in ("", "{", "[]\n"):
        stream.write_text(text, encoding="utf-8")
        assert run(stream, "--into", tmp_path).returncode == shrink.MALFORMED
    assert run(tmp_path / "missing", "--into", tmp_path).returncode == shrink.MALFORMED
