# SPDX-License-Identifier: Apache-2.0
"""A copy of the tree with every mutant in it, built once.

Under the work folder: tree/ (the copy), build/, and skipped.json (what would not compile).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from mutation_rewrite import Mutant, Rewriter
from repo_files import repo_files

ROOMS = ("rules", "mirror", "geometry")  # in the order in which their mutants are run
IDS_PER_FILE = 2000  # a file's ids do not move when another file changes
MAX_ROUNDS = 20  # of leaving out what does not compile
_NOT_PRODUCT = ("_test", "_bench", "_fuzz")
_PLACE = re.compile(r"/tree/(src/[\w/.]+):(\d+):(\d+):(.*)")
_CALL = re.compile(r"kvguard_mutant::\w+\((\d+)")


class BuildError(Exception):
    pass


@dataclass
class Source:
    name: str
    digest: str
    text: str  # rewritten
    mutants: list[Mutant]
    left_out: list[Mutant]

    def key(self, mutant: Mutant) -> str:
        return f"{self.digest}:{mutant.place}"


@dataclass
class Work:
    """root: the checkout. folder: where the copy, the build and what is remembered of them lie."""

    root: Path
    folder: Path
    jobs: int
    sources: dict[str, Source] = field(default_factory=dict)

    @property
    def tree(self) -> Path:
        return self.folder / "tree"

    @property
    def build(self) -> Path:
        return self.folder / "build"

    # ---- sources

    def skipped(self) -> dict[str, str]:
        """Source.key -> what the compiler said."""
        path = self.folder / "skipped.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def rewrite(self) -> None:
        skipped = self.skipped()
        names = mutable_files(self.root)
        for index, name in enumerate(names):
            data = (self.root / name).read_bytes()
            digest = hashlib.sha256(data).hexdigest()[:16]
            here = [key.split(":", 1)[1] for key in skipped if key.startswith(digest + ":")]
            rewriter = Rewriter(name, data, 1 + index * IDS_PER_FILE, here)
            made = rewriter.mutants + rewriter.left_out
            if made and max(m.id for m in made) > (index + 1) * IDS_PER_FILE:
                raise BuildError(f"{name} has more than {IDS_PER_FILE} mutants")
            self.sources[name] = Source(
                name, digest, rewriter.text, rewriter.mutants, rewriter.left_out
            )

    def mutants(self) -> list[tuple[Source, Mutant]]:
        """In the order of the rooms."""

        def rank(source: Source) -> tuple[int, str]:
            return ROOMS.index(source.name.split("/")[1]), source.name

        ordered = sorted(self.sources.values(), key=rank)
        return [(source, mutant) for source in ordered for mutant in source.mutants]

    # ---- copy and build

    def write_tree(self) -> None:
        """Files that are the same already keep their times, so that ninja builds what changed."""
        wanted = set()
        for name in repo_files(self.root):
            target = self.tree / name
            wanted.add(target)
            source = self.sources.get(name)
            data = source.text.encode() if source else (self.root / name).read_bytes()
            if target.exists() and target.read_bytes() == data:
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
            shutil.copymode(self.root / name, target)
        for path in self.tree.rglob("*"):
            if path.is_file() and path not in wanted:
                path.unlink()

    def make(self) -> None:
        """Rewrites, copies and builds, leaving out what does not compile."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for _ in range(MAX_ROUNDS):
            self.rewrite()
            self.write_tree()
            self._configure()
            output = self._compile()
            if output is None:
                return
            self._leave_out(output)
        raise BuildError(f"it still does not compile after {MAX_ROUNDS} rounds")

    def _configure(self) -> None:
        """Once for each way to configure."""
        launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
        flags = [
            f"-include {self.tree}/tests/mutation/mutant.h",
            "-w",  # what a mutant does is rarely what a warning likes
            "-Wno-narrowing",  # a constant in braces is a constant no more
            "-D_GLIBCXX_ASSERTIONS",  # reading behind the end of a vector is noticed
        ]
        command = [
            *("cmake", "-S", self.tree, "-B", self.build, "-G", "Ninja"),
            *("-DKVGUARD_DEVELOPER_MODE=ON", "-DKVGUARD_PYTHON=OFF", *launcher),
            f"-DCMAKE_CXX_FLAGS={' '.join(flags)}",
            "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG",  # half the compile time
        ]
        words = "\n".join(map(str, command)) + "\n"
        known = self.build / "configured_with.txt"
        ready = (self.build / "build.ninja").exists() and known.exists()
        if ready and known.read_text(encoding="utf-8") == words:
            return
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BuildError(done.stdout + done.stderr)
        known.write_text(words, encoding="utf-8")

    def targets(self) -> list[str]:
        listed = subprocess.run(
            ["ninja", "-C", self.build, "-t", "targets", "all"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        wanted = r"^(kvguard_\w+_(?:test|fuzz)|kvguard_programs|kvguard_plan_bench): phony$"
        names = re.findall(wanted, listed, re.M)
        return sorted(set(names))

    def _compile(self) -> str | None:
        """What the compiler said; None if all is built."""
        print(f"mutate: building {self.build}", file=sys.stderr, flush=True)
        command = ["ninja", "-C", self.build, "-k", "0", "-j", str(self.jobs), *self.targets()]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return None if done.returncode == 0 else done.stdout + done.stderr

    def _leave_out(self, output: str) -> None:
        skipped = self.skipped()
        before = len(skipped)
        error = ""
        for line in output.splitlines():
            match = _PLACE.search(line)
            if "error:" in line:
                error = line.split("error:", 1)[1].strip()
            if match and ("error:" in line or "required from" in line):
                for key in self._at(match[1], int(match[2]), int(match[3])):
                    skipped.setdefault(key, error or "does not compile")
        if len(skipped) == before:
            raise BuildError(output[-6000:])
        text = json.dumps(skipped, indent=1, sort_keys=True)
        (self.folder / "skipped.json").write_text(text + "\n", encoding="utf-8")
        print(f"mutate: {len(skipped) - before} mutants do not compile", file=sys.stderr)

    def _at(self, name: str, line: int, column: int) -> list[str]:
        """The mutants of the rewritten place next to a column (from 1) of a rewritten line."""
        source = self.sources.get(name)
        if source is None:
            return []
        calls = list(_CALL.finditer(source.text.splitlines()[line - 1]))
        before = [int(call[1]) for call in calls if call.start() < column]
        nearest = before[-1] if before else int(calls[0][1]) if calls else None
        places = {m.place.rsplit(":", 1)[0] for m in source.mutants if m.id == nearest}
        return [source.key(m) for m in source.mutants if m.place.rsplit(":", 1)[0] in places]


def mutable_files(root: Path) -> list[str]:
    names = [
        name
        for name in repo_files(root)
        if name.split("/")[0] == "src"
        and name.split("/")[1] in ROOMS
        and name.endswith((".cc", ".h"))
        and not Path(name).stem.endswith(_NOT_PRODUCT)
    ]
    return sorted(names)


def default_folder(root: Path) -> Path:
    return Path(os.environ.get("KVGUARD_MUTATE_FOLDER", root / "build-mutate"))
