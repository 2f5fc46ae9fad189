#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Arrows between rooms go one way: a room includes itself and the rooms before it.

usage: check_includes.py [ROOT]

Also: the core includes no third party, FlatBuffers stays in src/trace, nanobind in bindings/;
bindings/, lab/ and examples/ see only include/ and themselves; the slow auditor (oracle/) imports
nothing of the guard, and the package nothing of the tests.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from repo_files import ROOT, repo_files

# Top to bottom, as in CONTRIBUTING.md and cmake/KvguardRooms.cmake.
ROOMS = [
    "geometry",
    "step",
    "mirror",
    "rules",
    "explain",
    "audit",
    "trace",
    "config",
    "report",
    "tools",
]
CORE_ROOMS = ROOMS[:6]

# Third parties by the start of the included path, each with the places that may include it.
THIRD_PARTIES = {
    "gtest/": "tests",
    "gmock/": "tests",
    "benchmark/": "benches",
    "flatbuffers/": "trace",
    "nanobind/": "bindings",
    "Python.h": "bindings",
    "fmt/": "upper",
    "nlohmann/": "upper",
    "zstd": "upper",
    "xxhash": "upper",
    "CLI/": "cli",
}
PLACES = {
    "tests": "files named *_test.cc and tests/",
    "benches": "files named *_bench.cc and bench/",
    "trace": "src/trace",
    "bindings": "bindings/",
    "upper": "the rooms after audit, and cli/",
    "cli": "cli/",
}
ALONE = ("bindings", "lab", "examples")  # folders that see include/ and themselves
OTHER_FOLDERS = ("cli", "bindings", "tests", "lab", "bench", "examples", "oracle")

_INCLUDE = re.compile(r'^\s*#\s*include\s*(?P<open>["<])(?P<path>[^">]+)[">]')


def _may_use(place: str, name: str, room: str | None) -> bool:
    folder = name.split("/")[0]
    if place == "tests":
        return name.endswith("_test.cc") or folder == "tests"
    if place == "benches":
        return name.endswith("_bench.cc") or folder == "bench"
    if place == "trace":
        return room == "trace"
    if place == "upper":
        return folder in ("cli", "bench", "tests") or (room is not None and room not in CORE_ROOMS)
    return folder == place


def _quoted_problem(name: str, room: str | None, path: str) -> str | None:
    folder = name.split("/")[0]
    first = path.split("/")[0]
    is_test = name.endswith(("_test.cc", "_bench.cc", "_fuzz.cc")) or folder in ("tests", "bench")
    if any(path.startswith(prefix) for prefix in THIRD_PARTIES):
        return f'"{path}": a third party is included as <{path}>'
    if "/" not in path or first in (".", ".."):
        return f'"{path}": name the folder, as in "mirror/block.h"'
    if first == "src":
        return f'"{path}": the include root is src/, leave it out'
    if first == "kvguard":
        return None
    if path.endswith("_generated.h") and room != "trace" and first == "trace":
        return f'"{path}": generated FlatBuffers code stays in src/trace'
    if first in ROOMS:
        if folder == "include":
            return f'"{path}": a public header includes only public headers'
        if folder in ALONE:
            return f'"{path}": {folder}/ sees only include/ and itself'
        if room is not None and ROOMS.index(first) > ROOMS.index(room):
            return f'"{path}": {room} comes before {first}; arrows between rooms go one way'
        return None
    if first not in OTHER_FOLDERS:
        return f'"{path}": {first}/ is not a folder of this project that can be included'
    if first == folder or (first == "tests" and is_test) or (first == "lab" and folder == "cli"):
        return None
    return f'"{path}": {folder}/ does not include {first}/'


def cxx_problems(name: str, text: str) -> Iterator[str]:
    parts = name.split("/")
    room = parts[1] if parts[0] == "src" and len(parts) > 2 else None
    if parts[0] == "src" and (room is None or room not in ROOMS):
        yield f"{name}:1: src/ holds only the rooms {', '.join(ROOMS)}"
        return
    for number, line in enumerate(text.splitlines(), 1):
        match = _INCLUDE.match(line)
        if not match:
            continue
        path = match["path"]
        for prefix, place in THIRD_PARTIES.items():
            if path.startswith(prefix) and not _may_use(place, name, room):
                yield f"{name}:{number}: <{path}> is only for {PLACES[place]}"
        if match["open"] == '"':
            problem = _quoted_problem(name, room, path)
            if problem:
                yield f"{name}:{number}: {problem}"


def _imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.lineno, node.module or ""


def python_problems(name: str, text: str) -> Iterator[str]:
    if name.startswith("oracle/"):
        forbidden, why = {"kvguard"}, "the slow auditor shares nothing with what it is compared to"
    elif name.startswith("python/"):
        forbidden, why = (
            {"oracle", "tests", "lab", "rig", "slice"},
            "the package imports nothing of the tests",
        )
    else:
        return
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        yield f"{name}:{error.lineno}: not Python: {error.msg}"
        return
    for number, module in _imports(tree):
        if module.split(".")[0] in forbidden:
            yield f"{name}:{number}: import {module}: {why}"


def problems(root: Path) -> list[str]:
    found: list[str] = []
    for name in repo_files(root):
        if name.endswith((".cc", ".h", ".hpp", ".c")) and not name.startswith("cmake/"):
            found += cxx_problems(name, (root / name).read_text(encoding="utf-8"))
        elif name.endswith(".py"):
            found += python_problems(name, (root / name).read_text(encoding="utf-8"))
    return found


def main(arguments: list[str]) -> int:
    root = Path(arguments[0]) if arguments else ROOT
    found = problems(root)
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
