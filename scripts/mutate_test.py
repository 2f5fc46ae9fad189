# SPDX-License-Identifier: Apache-2.0
"""Mutation testing: what is mutated, what a compiler makes of it, what is remembered."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent
ROOT = SCRIPTS.parent


@pytest.fixture(scope="session", autouse=True)
def parser():
    """The parser has an environment of its own."""
    made = subprocess.run(
        [SCRIPTS / "mutate.sh", "--environment"], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    site = next(Path(made.stdout.strip()).glob("lib/python*/site-packages"))
    sys.path.append(str(site))
    yield
    sys.path.remove(str(site))


def rewritten(source, skipped=()):
    from mutation_rewrite import Rewriter

    return Rewriter("src/rules/x.cc", source.encode(), 1, skipped)


def changes(source):
    return [mutant.change for mutant in rewritten(source).mutants]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("x = a < b;", ["a < b -> a <= b", "a < b -> a >= b", "x = a < b; -> nothing"]),
        ("x = a == b;", ["a == b -> a != b", "x = a == b; -> nothing"]),
        ("int y = a % b;", ["a % b -> a * b"]),
        ("int y = a << b;", []),
        ("int y = 0;", ["0 -> 1"]),
        ("int y = 1u;", ["1u -> 0"]),
        ("int y = 0x10;", ["0x10 -> 0x10 + 1", "0x10 -> 0x10 - 1"]),
        ("double y = 1.5;", []),
        ("bool y = true;", ["true -> false"]),
        ("if (f()) return;", ["f() -> its opposite", "return; -> nothing"]),
        ("if (!f()) g();", ["f() -> its opposite", "g(); -> nothing"]),
        (
            "while (p && q) continue;",
            [
                "p -> its opposite",
                "q -> its opposite",
                "p && q -> p || q",
                "continue; -> nothing",
            ],
        ),
        ("x += a;", ["x += a -> x -= a", "x += a; -> nothing"]),
        ("++x;", ["++x -> --x", "++x; -> nothing"]),
        ("int y = x--;", ["x-- -> x++"]),
        ("KVGUARD_CHOOSE(a);", []),
    ],
)
def test_what_is_mutated_in_a_statement(body, expected):
    assert changes(f"void f() {{ {body} }}\n") == expected


@pytest.mark.parametrize(
    "source",
    [
        "constexpr int k = 3 + 4;\n",
        "struct S { static constexpr int k = 1; };\n",
        "static_assert(1 < 2);\n",
        "enum E { kA = 1, kB = kA + 1 };\n",
        "std::array<int, 4> a;\n",
        "int a[4];\n",
        "struct S { unsigned bit : 1; };\n",
        "template <int n = 4> void f();\n",
        "#define KVGUARD_TWICE(x) ((x) + 1)\n",
        "#if KVGUARD_HAVE && 1 < 2\n#endif\n",
        "struct S { virtual void f() = 0; };\n",
    ],
)
def test_what_a_compiler_computes_is_left_alone(source):
    made = rewritten(source)
    assert made.mutants == []
    assert made.text == source


def test_case_labels_are_left_alone_and_their_statements_are_not():
    made = rewritten("void f(int x) { switch (x) { case 1: g(); break; } }\n")
    assert [m.change for m in made.mutants] == ["g(); -> nothing", "break; -> nothing"]
    assert "case 1:" in made.text


def test_returned_truth_values_are_flipped_where_bool_is_declared():
    assert changes("bool f() { return g(); }\n") == ["g() -> its opposite"]
    assert changes("int f() { return g(); }\n") == []
    assert changes("void f() { auto l = [](int i) -> bool { return i; }; }\n") == [
        "i -> its opposite"
    ]


def test_lines_keep_their_numbers():
    source = "bool f(int a,\n int b) {\n  return a <  // less\n b ||\n a == 3;\n}\n"
    made = rewritten(source)
    assert made.text.count("\n") == source.count("\n")
    assert {m.line for m in made.mutants} == {3, 4, 5}
    assert made.mutants[0].text == "return a <  // less"


def test_a_skipped_place_keeps_the_ids_of_the_others():
    source = "int f(int a) { return a + 1 - 2; }\n"
    whole = rewritten(source)
    place = next(m for m in whole.mutants if m.operator == "arithmetic").place
    less = rewritten(source, [place])
    assert {m.id: m.place for m in less.mutants + less.left_out} == {
        m.id: m.place for m in whole.mutants
    }
    assert [m.place for m in less.left_out] == [place]


PROGRAM = """
#include <cstdio>
#include <cstdlib>
#include <string>
constexpr int Twice(int x) { return x * 2; }
static_assert(Twice(2) == 4);
struct Default { long size = 3; unsigned flag : 2; };
int main(int, char** argv) {
  int a = std::atoi(argv[1]), b = std::atoi(argv[2]);
  Default d{.size = 3, .flag = 1};
  std::string s = std::string("x") + "y";
  int* p = nullptr;
  if (p == nullptr && a < b) std::printf("less ");
  for (int i = 0; i < 2; ++i) std::printf("%d", i + a);
  std::printf(" %ld %s %d\\n", d.size, s.c_str(), Twice(a));
}
"""


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    """A rewritten program, compiled: (its mutants, a function that runs one)."""
    folder = tmp_path_factory.mktemp("mutants")
    made = rewritten(PROGRAM)
    (folder / "x.cc").write_text(made.text, encoding="utf-8")
    command = ["g++", "-std=c++20", "-w", "-Wno-narrowing", "-include"]
    command += [str(ROOT / "tests/mutation/mutant.h"), "x.cc", "-o", "x"]
    subprocess.run(command, cwd=folder, check=True)

    def run(mutant, *arguments, hits=None):
        environment = {"KVGUARD_MUTANT": str(mutant)}
        if hits is not None:
            environment["KVGUARD_MUTANT_HITS"] = str(hits)
        done = subprocess.run(
            [folder / "x", *map(str, arguments)],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
        return done.stdout

    return made.mutants, run


@pytest.mark.parametrize(
    ("change", "arguments", "expected"),
    [
        (None, (1, 2), "less 12 3 xy 2\n"),
        ("a < b -> a <= b", (2, 2), "less 23 3 xy 4\n"),
        ("a < b -> a >= b", (1, 2), "12 3 xy 2\n"),
        ("p == nullptr -> p != nullptr", (1, 2), "12 3 xy 2\n"),
        ("p == nullptr && a < b -> p == nullptr || a < b", (2, 1), "less 23 3 xy 4\n"),
        ("i + a -> i - a", (1, 1), "-10 3 xy 2\n"),
        ("x * 2 -> x / 2", (4, 1), "45 3 xy 2\n"),
        ('std::printf("less "); -> nothing', (1, 2), "12 3 xy 2\n"),
    ],
)
def test_a_mutant_is_what_it_says(program, change, arguments, expected):
    mutants, run = program
    number = 0 if change is None else next(m.id for m in mutants if m.change == change)
    assert run(number, *arguments) == expected


def test_the_places_that_a_run_came_by_are_told(program, tmp_path):
    mutants, run = program
    run(0, 2, 1, hits=tmp_path / "hits")
    hits = dict(line.split() for line in (tmp_path / "hits").read_text().splitlines())
    by_change = {m.change: hits.get(str(m.id)) for m in mutants}
    assert by_change["a < b -> a <= b"] == "1"
    assert by_change['std::printf("less "); -> nothing'] is None
    assert by_change['std::string("x") + "y" -> std::string("x") - "y"'] == "2"


# ---- what is remembered


def source_of(text):
    from mutation_build import Source

    made = rewritten(text)
    return Source("src/rules/x.cc", "feed", made.text, made.mutants, [])


class Judged:
    """Judges of which the first mutant is killed by its second batch, and no other is killed."""

    def __init__(self, *names):
        self.names = names
        self.seen = []

    def batches(self, mutant, room):
        from mutation_run import Batch, Test

        return [Batch(stage, [Test("x", name, "", [])]) for stage, name in self.names]

    def unrun(self, mutant):
        return "unreached"

    def judge(self, mutant, some):
        from mutation_run import Outcome

        self.seen += [(mutant, batch.judge) for batch in some]
        killed = mutant == 1 and some[0].stage == "programs"
        return Outcome("killed" if killed else "survived")


def statuses(path):
    from mutate import read_results

    return [result["status"] for result in read_results(path).values()]


def run(judges, path, source, again=False, minutes=None):
    from mutate import Run

    made = Run(judges, path)
    made.plan([(source, mutant) for mutant in source.mutants], again)
    made.go(1, minutes)
    return [(mutant, judge) for mutant, judge in judges.seen]


def test_a_run_goes_on_where_the_last_one_ended(tmp_path):
    source = source_of("int f(int a) { return a + 1; }\n")
    path = tmp_path / "results.jsonl"
    first = ("quick tests", "a"), ("programs", "b"), ("slow tests", "c")
    assert run(Judged(*first), path, source, minutes=0) == []
    assert run(Judged(*first), path, source) == [
        (1, "quick tests a"),
        (2, "quick tests a"),
        (1, "programs b"),
        (2, "programs b"),
        (2, "slow tests c"),
    ]
    assert statuses(path) == ["killed", "survived"]
    # The end of a file that was cut off, and nothing new.
    with path.open("a") as file:
        file.write('{"key": "cut o')
    assert run(Judged(*first), path, source) == []
    path.write_text(path.read_text().rsplit("\n", 1)[0] + "\n")
    # One executable has changed: the survivor is judged by that one.
    assert run(Judged(*first[:2], ("slow tests", "d")), path, source) == [(2, "slow tests d")]
    assert len(run(Judged(*first), path, source, again=True)) == 5


def test_another_source_of_the_same_name_has_other_mutants(tmp_path):
    source = source_of("int f(int a) { return a + 1; }\n")
    path = tmp_path / "results.jsonl"
    judges = ("quick tests", "a"), ("programs", "b")
    run(Judged(*judges), path, source)
    source.digest = "beef"
    assert len(run(Judged(*judges), path, source)) == 4


def test_what_no_test_comes_by_survives_without_a_run(tmp_path):
    source = source_of("int f(int a) { return a + 1; }\n")
    path = tmp_path / "results.jsonl"
    assert run(Judged(), path, source) == []
    assert statuses(path) == ["unreached", "unreached"]
    assert len(run(Judged(("quick tests", "a")), path, source)) == 2


def test_the_page_counts_and_gives_reasons(tmp_path):
    from mutate import page, read_reasons
    from mutation_build import Work

    source = source_of("int f(int a) { return a + 1; }\n")
    work = Work(tmp_path, tmp_path, 1, {source.name: source})
    first, second = source.mutants
    results = {
        source.key(first): {"status": "timed out"},
        source.key(second): {"status": "survived"},
    }
    text, score = page(work, results, {}, "abc")
    assert (score.raw, score.score, score.open, score.good) == (50.0, 50.0, 1, False)
    assert "| `src/rules/x.cc` | 2 | 0 | 1 | 1 | 0 | 0 | 1 | 50.0 % | 50.0 % |" in text
    assert f"| src/rules/x.cc:1 | `` {second.change} `` | open |" in text
    assert read_reasons(tmp_path) == {}
    (tmp_path / "survivors_rules.toml").write_text(
        f"[[survivors]]\nfile = '{second.file}'\nreason = 'says nothing'\n"
        f"mutants = [['{second.text}', '{second.change}']]\n"
    )
    # A survivor with a reason is no evidence about tests.
    text, score = page(work, results, read_reasons(tmp_path), "abc")
    assert f"`` {second.change} `` | says nothing |" in text
    assert "2 mutants, 1 killed: 50.0 % raw; without 1 harmless ones 100.0 %" in text
    assert (score.raw, score.score, score.open, score.good) == (50.0, 100.0, 0, True)
    # A line that says too little is named with the one before it.
    (tmp_path / "survivors_rules.toml").write_text(
        f"[[survivors]]\nfile = '{second.file}'\nreason = 'elsewhere'\n"
        f"mutants = [['}}', '{second.text}', '{second.change}']]\n"
        f"[[survivors]]\nfile = '{second.file}'\nreason = 'here'\n"
        f"mutants = [['', '{second.text}', '{second.change}']]\n"
    )
    assert (
        f"`` {second.change} `` | here |" in page(work, results, read_reasons(tmp_path), "abc")[0]
    )
    # A reason for what is killed, or was not run, counts nothing.
    killed = {source.key(mutant): {"status": "killed"} for mutant in source.mutants}
    assert page(work, killed, read_reasons(tmp_path), "abc")[1].harmless == 0
    score = page(work, {}, read_reasons(tmp_path), "abc")[1]
    assert (score.raw, score.score, score.harmless, score.good) == (0.0, 0.0, 0, False)


@pytest.mark.parametrize(
    ("killed", "harmless", "open_", "unrun", "good"),
    [
        (90, 0, 0, 0, True),
        (18, 80, 0, 0, True),
        (9, 0, 1, 0, False),  # 90 %, but a survivor has no reason
        (99, 0, 0, 1, False),
        (89, 1, 11, 0, False),
    ],
)
def test_the_gate(killed, harmless, open_, unrun, good):
    from mutate import Score

    counts = {"killed": killed, "survived": harmless + open_, "not run": unrun, "impossible": 5}
    assert Score(Counter(counts), harmless, open_).good == good


def test_what_does_not_compile_is_left_out_where_the_compiler_points(tmp_path):
    from mutation_build import BuildError, Work

    source = source_of("int f(int a) {\n  return a + 1;\n}\n")
    work = Work(tmp_path, tmp_path, 1, {source.name: source})
    column = source.text.splitlines()[1].index("Add") + 1
    work._leave_out(f"{tmp_path}/tree/src/rules/x.cc:2:{column}: error: no\n")
    assert list(work.skipped()) == ["feed:src/rules/x.cc:2:12:arithmetic"]
    with pytest.raises(BuildError, match="elsewhere"):
        work._leave_out("elsewhere.cc:1:1: error: no\n")


def test_the_quick_tests_of_the_room_come_first():
    from mutation_run import Test, batches, gtest_names

    slow = Test("a/kvguard_rules_test", "1", "A.Slow", [], 2.0)
    own = Test("a/kvguard_rules_test", "1", "A.B", [], 0.4)
    quick = Test("b/kvguard_traps_test", "2", "C.D", [], 0.01)
    program = Test("c/kvguard_programs", "3", "healthy", [], 1.0)
    cost = Test("kvguard_plan_bench", "4", "decode", [], 0.1)

    def order(room):
        made = batches([slow, quick, own, cost, program], room)
        return [(batch.stage.split()[0], batch.tests[0].name) for batch in made]

    others = [("programs", "healthy"), ("cost", "decode"), ("slow", "A.Slow")]
    assert order("rules") == [("quick", "A.B"), ("quick", "C.D"), *others]
    assert order("mirror") == [("quick", "C.D"), *others[:2], ("slow", "A.B"), others[2]]
    listed = "Running main() from x\nA.\n  B\n  DISABLED_C\nP/D.\n  E/0  # GetParam() = 1\n"
    assert gtest_names(listed) == ["A.B", "P/D.E/0"]


@pytest.mark.parametrize(
    ("code", "status"),
    [("raise SystemExit(3)", 3), ("while True: pass", None), ("import time; time.sleep(60)", None)],
)
def test_a_process_that_does_not_end_is_out_of_time(monkeypatch, tmp_path, code, status):
    import mutation_run
    from mutation_run import Judges, Test

    script = tmp_path / "build/x"
    script.parent.mkdir()
    script.write_text(f"#!{sys.executable}\n{code}\n")
    script.chmod(0o755)
    monkeypatch.setattr(mutation_run, "WALL", 3.0)
    judges = Judges(tmp_path, tmp_path, sys.executable, 1)
    assert judges._run([Test("x", "", "", [])], 1, timeout=1)[0] == status
    assert [path.name for path in tmp_path.iterdir()] == ["build"]


def test_a_test_that_is_gone_is_no_kill(tmp_path):
    from mutation_run import Judges, Test

    judges = Judges(tmp_path, tmp_path, sys.executable, 1)
    with pytest.raises(RuntimeError, match="x is gone"):
        judges._run([Test("x", "", "", [])], 1, timeout=1)


@pytest.mark.parametrize(
    ("plan", "begin", "grew"),
    [(1000, 100, False), (1049, 124, False), (1060, 100, True), (900, 126, True)],
)
def test_what_costs_more_than_the_benchmark_lets_pass_is_noticed(plan, begin, grew):
    from mutation_cost import Costs

    def dump(steps, *costs):
        names = ("kvguard_bench_plan", "kvguard_bench_begin")
        return "".join(
            f"fn=({i}) {name}\n12 {steps * cost}\n"
            for i, (name, cost) in enumerate(zip(names, costs, strict=True))
        )

    costs = Costs()
    costs.learn("decode", 4, dump(4, 1000, 100))
    assert costs.grew("decode", 4, dump(4, plan, begin)) == grew
