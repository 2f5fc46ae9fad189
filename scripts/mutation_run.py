# SPDX-License-Identifier: Apache-2.0
"""The judges of a mutant: the C++ tests that come by its place, generated programs, the benchmark.

A test is a GoogleTest case, or an executable that is no GoogleTest (the replayed fuzz targets).
`kvguard_programs --jsonl` of the original has been compared with the oracle, so a mutant whose
output differs is shown to it, for the programs where it differs. A mutant that costs more
instructions than bench/check_instructions.py lets pass is killed too.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from mutation_cost import BENCH, SCENARIOS, Costs, available

KILLED, TIMED_OUT, SURVIVED, UNREACHED, IMPOSSIBLE = (
    "killed",
    "timed out",
    "survived",
    "unreached",
    "impossible",  # the types at that place have no such operator
)
STAGES = (
    "quick tests",
    "programs",
    "cost",
    "slow tests",
)  # what a mutant must survive, in this order
MIN_TIMEOUT = 5.0  # processor seconds
WALL = 10.0  # a process that waits for ever takes no processor time
SLOWER = 10.0  # a mutant may take that many times what the original takes
MEMORY = 4 << 30  # bytes in use; the address space cannot be bounded, since a test maps a huge pool
GLANCE = 0.5  # seconds between two looks at a process's memory
CANNOT_RUN = (126, 127)  # prlimit's, where it cannot start the test
OUT_OF_MEMORY = -9  # as if the kernel had ended it
SLOW_TEST = 0.05  # seconds; such tests come last, one process each ...
SLOW_OWN_TEST = 0.5  # ... but those of the mutant's own room
_PLAIN = ("--features", "full,window,chunked,zero,copy,transfer,content,dcp")
_EVERY = ("--features", f"{_PLAIN[1]},state,cross,draft-pass,micro-batch")
_STATES = ("--features", "full,state,content")
_PREFILL = ("--features", "full,dcp,pcp")
# What scripts/check_belief.sh runs, in small.
CAMPAIGNS = {
    "healthy programs": ["--healthy", "--first", "5000000", "--count", "30"],
    "healthy programs, every layout": [
        *("--healthy", "--first", "6000000", "--count", "30", *_EVERY)
    ],
    "healthy programs, prefill context parallel": [
        *("--healthy", "--first", "9000000", "--count", "30", *_PREFILL)
    ],
}
ORACLE = {
    "oracle: a few": ["--jsonl", "--mutate", "--first", "7000000", "--count", "40", *_PLAIN],
    "oracle: one fault in each": ["--jsonl", "--mutate", "--first", "2000000", "--count", "120"],
    "oracle: one fault in each, prefill context parallel": [
        *("--jsonl", "--mutate", "--first", "8000000", "--count", "100", *_PREFILL)
    ],
    "oracle: one fault in each, recurrent states": [
        *("--jsonl", "--mutate", "--first", "7000000", "--count", "100", *_STATES)
    ],
    "oracle: one fault in each, every layout": [
        *("--jsonl", "--mutate", "--first", "4000000", "--count", "300", *_EVERY)
    ],
}


@dataclass
class Test:
    executable: str  # relative to the build folder
    digest: str  # of its bytes, and of what a campaign asks of it
    name: str  # of the GoogleTest case, or of the campaign; "": the executable as a whole
    arguments: list[str]
    seconds: float = 0.0  # of processor time
    hits: set[int] = field(default_factory=set)
    impossible: set[int] = field(default_factory=set)

    @property
    def title(self) -> str:
        return f"{Path(self.executable).name} {self.name}".strip()


@dataclass
class Outcome:
    status: str
    by: str = ""
    seconds: float = 0.0


@dataclass
class Batch:
    """Tests of one executable, run in one process. judge: what is remembered of a survivor."""

    stage: str
    tests: list[Test]

    @property
    def judge(self) -> str:
        return f"{self.stage} {self.tests[0].digest}"


class Judges:
    def __init__(self, root: Path, folder: Path, python: str, jobs: int) -> None:
        self._root = root
        self._build = folder / "build"
        self._folder = folder
        self._python = python
        self._jobs = jobs
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # mutants crash by the hundred
        self.tests: list[Test] = []
        self.campaigns: list[Test] = []
        self._answers: dict[str, list[str]] = {}  # oracle campaign -> programs of the original
        self._costs = Costs()

    # ---- what there is, and what it comes by

    def survey(self, say: Callable[[str], None]) -> None:
        """Runs every test once on the original. Kept by the executables' bytes."""
        executables = sorted(
            path
            for path in self._build.rglob("kvguard_*")
            if path.is_file() and re.search(rf"_(test|fuzz)$|kvguard_programs$|{BENCH}$", path.name)
        )
        kept_path = self._folder / "survey.json"
        kept = json.loads(kept_path.read_text(encoding="utf-8")) if kept_path.exists() else {}
        fresh = {}
        for path in executables:
            data = path.read_bytes()
            if path.name == "kvguard_programs":
                data += json.dumps([CAMPAIGNS, ORACLE]).encode()
            if path.name == BENCH:
                data += json.dumps([SCENARIOS, available()]).encode()
            digest = hashlib.sha256(data).hexdigest()[:12]
            known = kept.get(digest)
            if known is None:
                say(f"what {path.name} comes by")
                with ThreadPoolExecutor(self._jobs) as pool:
                    known = list(pool.map(self._measured, self._cases(path)))
            fresh[digest] = known
            for row in known:
                test = Test(
                    row["executable"], digest, row["name"], row["arguments"], row["seconds"],
                    set(row["hits"]), set(row["impossible"]),
                )  # fmt: skip
                campaign = path.name == "kvguard_programs"
                (self.campaigns if campaign else self.tests).append(test)
        kept_path.write_text(json.dumps(fresh), encoding="utf-8")
        for test in self.campaigns:
            if test.name in ORACLE:
                self._answers[test.name] = self._agreed(test, say)
        for test in self.tests:
            if test.name in SCENARIOS:
                self._costs.learn(test.name, *self._counted(test, 0)[1:])

    def _cases(self, path: Path) -> list[Test]:
        executable = str(path.relative_to(self._build))
        if path.name == "kvguard_programs":
            both = {**CAMPAIGNS, **ORACLE}
            return [Test(executable, "", name, arguments) for name, arguments in both.items()]
        if path.name == BENCH:
            wanted = SCENARIOS if available() else {}
            return [Test(executable, "", name, arguments) for name, arguments in wanted.items()]
        if path.name.endswith("_fuzz"):
            room = next(self._root.glob(f"src/*/{path.name.removeprefix('kvguard_')}.cc")).parent
            corpus = room / "corpus" / path.name.removeprefix("kvguard_").removesuffix("_fuzz")
            return [Test(executable, "", "", [str(corpus)] if corpus.is_dir() else [])]
        listed = subprocess.run(
            [path, "--gtest_list_tests"], capture_output=True, text=True, check=True
        ).stdout
        return [Test(executable, "", name, []) for name in gtest_names(listed)]

    def _measured(self, test: Test) -> dict[str, object]:
        descriptor, hits = tempfile.mkstemp(dir=self._folder)
        os.close(descriptor)
        status, output, seconds = self._run([test], 0, timeout=600, hits=hits)
        if status != 0:
            raise RuntimeError(f"{test.title} fails on the original:\n{output[-3000:]}")
        seen: dict[str, set[int]] = {"1": set(), "2": set()}
        for line in Path(hits).read_text(encoding="utf-8").splitlines():
            mutant, how = line.split()
            seen["2" if how == "2" else "1"].add(int(mutant))
        os.unlink(hits)
        return {
            "executable": test.executable,
            "name": test.name,
            "arguments": test.arguments,
            "seconds": round(seconds, 4),
            "hits": sorted(seen["1"]),
            "impossible": sorted(seen["2"]),
        }

    def _agreed(self, test: Test, say: Callable[[str], None]) -> list[str]:
        """The programs of the original, which the oracle judges as the core does."""
        _, output, _ = self._run([test], 0, timeout=600)
        programs = split_programs(output)
        oracle = b"".join(p.read_bytes() for p in sorted((self._root / "oracle").rglob("*.py")))
        digest = hashlib.sha256(output.encode() + oracle).hexdigest()
        kept = self._folder / "agreed.txt"
        known = kept.read_text(encoding="utf-8").split() if kept.exists() else []
        if digest not in known:
            say(f"the oracle's answers to {len(programs)} programs ({test.name})")
            if not self._oracle_agrees(programs):
                raise RuntimeError(f"{test.name}: core and oracle differ on the original")
            kept.write_text("\n".join([*known, digest]) + "\n", encoding="utf-8")
        return programs

    # ---- one mutant

    def batches(self, mutant: int, room: str) -> list[Batch]:
        """All that the mutant must survive, in order."""
        return batches([t for t in self.tests + self.campaigns if mutant in t.hits], room)

    def unrun(self, mutant: int) -> str:
        """What is said of a mutant that no test comes by."""
        never = any(mutant in test.impossible for test in self.tests + self.campaigns)
        return IMPOSSIBLE if never else UNREACHED

    def judge(self, mutant: int, some: list[Batch]) -> Outcome:
        started = time.monotonic()
        verdict = None
        for batch in some:
            name = batch.tests[0].name
            ask = (
                self._ask_oracle
                if name in ORACLE
                else self._weigh
                if name in SCENARIOS
                else self._run_batch
            )
            verdict = ask(batch.tests, mutant)
            if verdict:
                break
        status, by = verdict or (SURVIVED, "")
        return Outcome(status, by, round(time.monotonic() - started, 3))

    def _run_batch(self, batch: list[Test], mutant: int) -> tuple[str, str] | None:
        status, output, _ = self._run(batch, mutant)
        if status == 0:
            return None
        title = batch[0].title if len(batch) == 1 else Path(batch[0].executable).name
        failed = re.search(r"^\[  FAILED  \] ([\w/]+\.[\w/]+)", output, re.M)
        if failed:
            title = f"{Path(batch[0].executable).name} {failed[1]}"
        return (TIMED_OUT, title) if status is None else (KILLED, title)

    def _ask_oracle(self, batch: list[Test], mutant: int) -> tuple[str, str] | None:
        test = batch[0]
        status, output, _ = self._run([test], mutant)
        if status is None:
            return TIMED_OUT, test.name
        if status != 0:
            return KILLED, test.name
        answers = self._answers[test.name]
        programs = split_programs(output)
        other = [p for p, answer in zip(programs, answers, strict=False) if p != answer]
        if len(programs) != len(answers):
            return KILLED, test.name
        if other and not self._oracle_agrees(other[:20]):
            return KILLED, test.name
        return None

    def _weigh(self, batch: list[Test], mutant: int) -> tuple[str, str] | None:
        test = batch[0]
        status, steps, dump = self._counted(test, mutant)
        if status is None:
            return TIMED_OUT, test.name
        if status != 0 or self._costs.grew(test.name, steps, dump):
            return KILLED, test.name
        return None

    def _counted(self, test: Test, mutant: int) -> tuple[int | None, int, str]:
        """Exit status, steps, and what callgrind counted in them."""
        descriptor, out = tempfile.mkstemp(dir=self._folder)
        os.close(descriptor)
        status, output, _ = self._run([test], mutant, under=self._costs.command(out))
        dump = Path(out).read_text(encoding="utf-8")
        os.unlink(out)
        steps = re.search(r"^\d+$", output, re.M)
        return status, int(steps[0]) if steps else 1, dump

    def _oracle_agrees(self, programs: Iterable[str]) -> bool:
        done = subprocess.run(
            [self._python, self._root / "oracle/differential.py", "--jobs", "1"],
            input="".join(programs),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode not in (0, 1, 65):
            raise RuntimeError(f"the oracle ended with {done.returncode}: {done.stderr}")
        return done.returncode == 0

    def _run(
        self,
        batch: list[Test],
        mutant: int,
        timeout: float | None = None,
        hits: str = "",
        under: Iterable[str] = (),
    ) -> tuple[int | None, str, float]:
        """Exit status (None: out of time), output and processor seconds of tests of one executable.
        timeout: in processor seconds, so that a busy machine kills no mutant."""
        if timeout is None:
            timeout = max(MIN_TIMEOUT, SLOWER * sum(test.seconds for test in batch))
        executable = self._build / batch[0].executable
        limit = f"--cpu={round(timeout)}:{round(timeout) + 5}"  # SIGXCPU, then SIGKILL
        command = ["prlimit", limit, *under, str(executable), *batch[0].arguments]
        if executable.name.endswith("_test"):
            names = ":".join(test.name for test in batch)
            command += [f"--gtest_filter={names}", "--gtest_fail_fast", "--gtest_brief=1"]
        scratch = tempfile.mkdtemp(dir=self._folder, prefix="scratch-")
        environment = {**os.environ, "KVGUARD_MUTANT": str(mutant), "TMPDIR": scratch}
        environment.pop("KVGUARD_MUTANT_HITS", None)
        if hits:
            environment["KVGUARD_MUTANT_HITS"] = hits
        with tempfile.TemporaryFile(dir=scratch) as output:
            process = subprocess.Popen(
                command,
                cwd=scratch,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that what a test started ends with it
            )
            try:
                status, seconds = wait(process, time.monotonic() + WALL * timeout)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            output.seek(0)
            text = output.read().decode(errors="replace")
        if status in CANNOT_RUN and not executable.exists():
            raise RuntimeError(f"{executable} is gone: what is judged without it is not judged")
        shutil.rmtree(scratch, ignore_errors=True)
        return None if status == -signal.SIGXCPU else status, text, seconds


def wait(process: subprocess.Popen[bytes], end: float) -> tuple[int | None, float]:
    """Exit status (None: out of time) and processor seconds."""
    pause = 0.0005
    glance = time.monotonic() + GLANCE
    while True:
        process_id, code, usage = os.wait4(process.pid, os.WNOHANG)
        if process_id != 0:
            process.returncode = os.waitstatus_to_exitcode(code)
            return process.returncode, usage.ru_utime + usage.ru_stime
        now = time.monotonic()
        memory = now >= glance and resident(process.pid) > MEMORY
        glance = now + GLANCE if now >= glance else glance
        if memory or now >= end:
            process.kill()
            process.wait()
            return OUT_OF_MEMORY if memory else None, 0.0
        time.sleep(pause)
        pause = min(2 * pause, 0.05)


def resident(process: int) -> int:
    try:
        pages = Path(f"/proc/{process}/statm").read_text(encoding="utf-8").split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def gtest_names(listed: str) -> list[str]:
    """The cases that --gtest_list_tests prints, without those that are switched off."""
    names = []
    suite = ""
    for line in listed.splitlines():
        text = line.split("#")[0].rstrip()
        if text and not text.startswith(" ") and text.endswith("."):
            suite = text
        elif text.startswith("  ") and "DISABLED_" not in suite + text:
            names.append(suite + text.strip())
    return names


def split_programs(output: str) -> list[str]:
    programs: list[str] = []
    for line in output.splitlines(keepends=True):
        if line.startswith('{"program":'):
            programs.append("")
        if programs:
            programs[-1] += line
    return programs


def batches(tests: list[Test], room: str) -> list[Batch]:
    """Processes to run: the quick tests by executable, the room's own first; each program, cost
    and slow test apart, so that a killer need not wait for the others."""
    own = f"kvguard_{room}_test"
    quick: dict[str, Batch] = {}
    programs, costs, slow = [], [], []
    for test in sorted(tests, key=lambda test: test.seconds):
        name = Path(test.executable).name
        if name == "kvguard_programs":
            programs.append(Batch("programs", [test]))
        elif name == BENCH:
            costs.append(Batch("cost", [test]))
        elif test.seconds >= (SLOW_OWN_TEST if name == own else SLOW_TEST):
            slow.append(Batch("slow tests", [test]))
        else:
            quick.setdefault(name, Batch("quick tests", [])).tests.append(test)

    def rank(batch: Batch) -> tuple[bool, float]:
        return Path(batch.tests[0].executable).name != own, sum(t.seconds for t in batch.tests)

    return [*sorted(quick.values(), key=rank), *programs, *costs, *slow]
