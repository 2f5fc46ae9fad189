#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What every file of the project must keep, read off the files.

usage: check_files.py [ROOT]
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from repo_files import ROOT, repo_files

MAX_LINES = 600
MAX_TRACE_BYTES = 200_000
MIN_HEADER_COMMENT = 0.40
HEADER = "include/kvguard/kvguard.h"
LONG_FILES = {HEADER}  # the specification is one file

_CODE = (".cc", ".h", ".hpp", ".c", ".py", ".sh", ".cmake", ".in", ".fbs", ".map", ".toml")
_CODE_NAMES = {"CMakeLists.txt", "Makefile", ".clang-format", ".clang-tidy", ".gitignore", "run"}
_BINARY = (".kvtrace", ".png", ".gz", ".zst")

# Written so that this file does not match itself.
_FORBIDDEN = [
    (
        re.compile(r"(?<![\w.])/(?:work|farm|root|home/[a-z]+)/|/tmp/(?:bash_jobs|kvg)\b"),
        "a machine's own path",
    ),
    (
        re.compile(r"\b(?:pypi|pythonhosted|debian|anaconda|ghcr)[.](?:org|com|io)\b"),
        "a registry's host",
    ),
    (re.compile(r"\b(?:TO" r"DO|FIX" r"ME|X" r"XX|HA" r"CK)\b"), "a mark of unfinished work"),
]
_LISTED_FOLDERS = ("src", "lab", "cli", "bindings", "examples", "bench", "tests")


def is_code(name: str) -> bool:
    return name.endswith(_CODE) or name.rsplit("/", 1)[-1] in _CODE_NAMES


def comment_share(text: str) -> float:
    """Comment lines among the lines that are not blank; code with a comment behind it is code."""
    token = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", re.S)

    def without_comment(match: re.Match[str]) -> str:
        return match.group() if match.group().startswith('"') else "\n" * match.group().count("\n")

    lines = [line for line in text.splitlines() if line.strip()]
    code = [line for line in token.sub(without_comment, text).splitlines() if line.strip()]
    return 1 - len(code) / len(lines) if lines else 0.0


def text_problems(name: str, text: str) -> Iterator[str]:
    lines = text.splitlines()
    if is_code(name) and text:  # an empty __init__.py or py.typed is nobody's work
        if not any("SPDX-License-Identifier: Apache-2.0" in line for line in lines[:2]):
            yield f"{name}:1: no 'SPDX-License-Identifier: Apache-2.0' in the first two lines"
        if len(lines) > MAX_LINES and name not in LONG_FILES:
            yield f"{name}:{MAX_LINES + 1}: {len(lines)} lines, at most {MAX_LINES}: split it"
    for number, line in enumerate(lines, 1):
        for pattern, what in _FORBIDDEN:
            match = pattern.search(line)
            if match:
                yield f"{name}:{number}: '{match.group()}' is {what}"


def listing_problems(root: Path, names: list[str]) -> Iterator[str]:
    """A source that no list names is not built, and a test that is not built cannot fail."""
    lists: dict[str, set[str]] = {}
    for name in names:
        if not name.endswith((".cc", ".c", ".fbs")) or name.split("/")[0] not in _LISTED_FOLDERS:
            continue
        folder = os.path.dirname(name)
        while folder and not (root / folder / "CMakeLists.txt").is_file():
            folder = os.path.dirname(folder)
        if not folder:
            yield f"{name}:1: no CMakeLists.txt in its folder lists it"
            continue
        if folder not in lists:
            lists[folder] = set(
                re.findall(
                    r"[\w./-]+", (root / folder / "CMakeLists.txt").read_text(encoding="utf-8")
                )
            )
        if os.path.relpath(name, folder) not in lists[folder]:
            yield f"{name}:1: {folder}/CMakeLists.txt does not list it"


def version_problems(root: Path) -> Iterator[str]:
    header = (root / HEADER).read_text(encoding="utf-8")
    parts = []
    for part in ("MAJOR", "MINOR", "PATCH"):
        match = re.search(rf"^#define KVGUARD_VERSION_{part} (\d+)$", header, re.M)
        if not match:
            yield f"{HEADER}:1: no line '#define KVGUARD_VERSION_{part} <number>'"
            return
        parts.append(match[1])
    version = ".".join(parts)
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    settings = project["tool"]["scikit-build"]["metadata"]["version"]
    match = re.search(settings["regex"], header)
    seen = settings["result"].format(**match.groupdict()) if match else "nothing"
    if seen != version:
        yield f"pyproject.toml:1: its pattern reads {seen} from {HEADER}, which says {version}"
    if "version" in project["project"]:
        yield f"pyproject.toml:1: a version of its own; the one place is {HEADER}"
    pins = (root / "requirements/tools.txt").read_text(encoding="utf-8")
    for requirement in project["build-system"]["requires"]:
        pin = re.escape(requirement.replace("-", "_"))
        if not re.search(rf"^{pin}\s", pins.replace("-", "_"), re.M):
            yield f"pyproject.toml:1: {requirement} is not the pin in requirements/tools.txt"


def problems(root: Path) -> list[str]:
    names = repo_files(root)
    found: list[str] = []
    for name in names:
        path = root / name
        if name.endswith(".kvtrace") and path.stat().st_size > MAX_TRACE_BYTES:
            found.append(
                f"{name}:1: {path.stat().st_size} bytes, a trace has at most {MAX_TRACE_BYTES}"
            )
        if name.endswith(_BINARY) or "/corpus/" in name or name == "LICENSE":
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            found.append(
                f"{name}:1: neither UTF-8 text nor a kind of binary file that the project has"
            )
            continue
        found += text_problems(name, text)
        if text.startswith("#!") and not os.access(path, os.X_OK):
            found.append(f"{name}:1: starts with #! and is not executable")
        if name == HEADER and (share := comment_share(text)) <= MIN_HEADER_COMMENT:
            found.append(
                f"{name}:1: {share:.0%} comment; as the specification it needs more than 40%"
            )
    found += listing_problems(root, names)
    found += version_problems(root)
    return found


def main(arguments: list[str]) -> int:
    root = Path(arguments[0]) if arguments else ROOT
    found = problems(root)
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
