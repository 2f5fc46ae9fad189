#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All lints, each with one line of result; see scripts/lint.sh."""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import check_files
import check_includes
from repo_files import ROOT, repo_files

CXX = (".cc", ".h", ".hpp", ".c")
TIDY_FOLDERS = ("src/", "cli/", "bindings/", "examples/", "bench/", "tests/")


def run(command: list[str], root: Path) -> tuple[bool, str]:
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    return done.returncode == 0, (done.stdout + done.stderr).strip()


def tool(name: str) -> list[str]:
    """A tool of the environment that this interpreter belongs to."""
    return [str(Path(sys.executable).parent / name)]


def on_files(command: list[str], root: Path, names: list[str]) -> tuple[bool, str]:
    return run([*command, *names], root) if names else (True, "")


def clang_format(root: Path, names: list[str]) -> tuple[bool, str]:
    """One line for each file: the first place where it differs."""
    ok, text = on_files([*tool("clang-format"), "--dry-run", "-Werror"], root, names)
    first: dict[str, str] = {}
    for line in text.splitlines():
        if " error: " in line:
            first.setdefault(line.split(":")[0], line)
    return ok, "\n".join(first.values()) or text


def problems_of(found: list[str], names: set[str] | None) -> tuple[bool, str]:
    shown = [p for p in found if names is None or p.split(":")[0] in names]
    return not shown, "\n".join(shown)


def changed_files(root: Path) -> list[str] | None:
    """What changed since the branch left main (on main: in the last commit), committed or not.

    None where there is no history to compare with.
    """
    _, untracked = run(["git", "ls-files", "--others", "--exclude-standard"], root)
    for base in ("origin/main", "main", "HEAD~1"):
        ok, merge_base = run(["git", "merge-base", base, "HEAD"], root)
        if not ok:
            continue
        ok, differing = run(["git", "diff", "--name-only", "--diff-filter=d", merge_base], root)
        changed = {*differing.splitlines(), *untracked.splitlines()}
        if ok and (changed or base == "HEAD~1"):
            return sorted(changed)
    return None


def tidy_units(build: Path, root: Path, names: list[str] | None) -> list[str]:
    """What to check: all units, or the changed ones and those that include a changed header."""
    database = build / "compile_commands.json"
    if not database.is_file():
        raise SystemExit(f"lint: {database} is missing: run make first, clang-tidy needs its flags")
    entries = json.loads(database.read_text(encoding="utf-8"))
    paths = [os.path.relpath(os.path.join(e["directory"], e["file"]), root) for e in entries]
    units = sorted({p for p in paths if p.startswith(TIDY_FOLDERS)})
    if names is None:
        return units
    changed = set(names)
    changed_headers = [n for n in names if n.endswith((".h", ".hpp"))]
    includes = [h.removeprefix("src/").removeprefix("include/") for h in changed_headers]

    def includes_changed(unit: str) -> bool:
        text = (root / unit).read_text(encoding="utf-8")
        return any(f'"{i}"' in text or f"<{i}>" in text for i in includes)

    return [u for u in units if u in changed or includes_changed(u)]


def clang_tidy(build: Path, root: Path, units: list[str]) -> tuple[bool, str]:
    # The database holds g++'s flags, of which clang need not know every warning.
    flags = ["-p", str(build), "--quiet", "--extra-arg=-Wno-unknown-warning-option"]
    base = [*tool("clang-tidy"), *flags]

    def one(unit: str) -> tuple[str, bool, str]:
        done = subprocess.run([*base, unit], cwd=root, capture_output=True, text=True, check=False)
        return unit, done.returncode == 0, done.stdout.strip() or done.stderr.strip()

    failed = 0
    workers = int(os.environ.get("KVGUARD_JOBS", os.cpu_count() or 1))
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        for unit, ok, text in pool.map(one, units):
            print(f"  clang-tidy {unit}: {'ok' if ok else 'FAILED'}", flush=True)
            if not ok:
                print(text, flush=True)
                failed += 1
    return failed == 0, f"{failed} of {len(units)} files" if failed else ""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/lint.sh", description="Checks the form of the project's files."
    )
    parser.add_argument(
        "files", nargs="*", help="only these files (default: every file of the project)"
    )
    parser.add_argument("--fix", action="store_true", help="format the files first")
    parser.add_argument(
        "--tidy", choices=["changed", "all"], help="clang-tidy too: on changed files, or on all"
    )
    parser.add_argument(
        "--build", default="build", help="the build folder whose flags clang-tidy uses"
    )
    arguments = parser.parse_args()

    root = ROOT
    names = repo_files(root)
    chosen: set[str] | None = None
    if arguments.files:
        chosen = {os.path.relpath(os.path.abspath(f), root) for f in arguments.files}
        unknown = sorted(f for f in chosen if not (root / f).is_file())
        if unknown:
            print(f"lint: no such file: {', '.join(unknown)}", file=sys.stderr)
            return 64
        names = sorted(chosen)
    cxx = [n for n in names if n.endswith(CXX)]
    python = [n for n in names if n.endswith(".py")]

    if arguments.fix:
        on_files([*tool("clang-format"), "-i"], root, cxx)
        on_files([*tool("ruff"), "format", "-q"], root, python)
        on_files([*tool("ruff"), "check", "-q", "--fix"], root, python)

    checks: list[tuple[str, Callable[[], tuple[bool, str]]]] = [
        (f"clang-format ({len(cxx)} files)",
         lambda: clang_format(root, cxx)),
        (f"ruff format ({len(python)} files)",
         lambda: on_files([*tool("ruff"), "format", "--check", "-q", "--diff"], root, python)),
        (f"ruff check ({len(python)} files)",
         lambda: on_files([*tool("ruff"), "check", "-q", "--output-format=concise"], root, python)),
        ("include direction", lambda: problems_of(check_includes.problems(root), chosen)),
        ("files: licence lines, length, paths, marks, lists, version",
         lambda: problems_of(check_files.problems(root), chosen)),
    ]  # fmt: skip
    if arguments.tidy:
        changed = changed_files(root) if arguments.tidy == "changed" else None
        if chosen is not None:
            changed = sorted(chosen)
        units = tidy_units(root / arguments.build, root, changed)
        what = "all" if changed is None else "changed"
        checks.append(
            (
                f"clang-tidy ({len(units)} units, {what})",
                lambda: clang_tidy(root / arguments.build, root, units),
            )
        )

    failed = 0
    for name, check in checks:
        ok, text = check()
        failed += not ok
        print(f"{'ok    ' if ok else 'FAILED'}  {name}", flush=True)
        if not ok:
            print(text, flush=True)
    print(f"{len(checks) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
