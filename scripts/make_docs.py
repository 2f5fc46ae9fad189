#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the pages of docs/ that are made from tables.

usage: scripts/make_docs.py [--check] [--command build/kvguard]

docs/rules.md         from `kvguard rules --json`, the planted lists and the table of public bugs
docs/public-bugs.md   from tests/bugs/*.toml

--check writes nothing and ends with 1 if a page is not what its tables say.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BUGS = ROOT / "tests" / "bugs"
PLANTED = ROOT / "tests" / "layouts"
ANSWERS = {
    "fires": "a rule finds it at its first bad step",
    "silent": "a report that was no fault of the addresses: nothing may be found",
    "not_judged": "outside the contract, or the evidence is in no record",
    "later": "waits for the rule families graph or rank",
}
GENERATED = "<!-- made by scripts/make_docs.py: change the tables, not this page -->\n"


def cases() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for path in sorted(BUGS.glob("cases_*.toml")):
        found += tomllib.loads(path.read_text(encoding="utf-8"))["case"]
    return sorted(found, key=lambda case: case["id"])


def planted() -> dict[int, list[tuple[str, str, str]]]:
    """Code -> (fault, its nearest legal neighbour, where), of the committed lists."""
    found: dict[int, list[tuple[str, str, str]]] = {}
    for path in sorted(PLANTED.glob("*_faults.txt")):
        rows = [
            [field.strip() for field in line.split("|")]
            for line in path.read_text(encoding="utf-8").splitlines()
            if line and not line.startswith("#")
        ]
        sentence = {row[0]: row[2] for row in rows}
        for row in rows:
            if row[1] != "0":
                found.setdefault(int(row[1]), []).append((row[2], sentence[row[3]], path.stem))
    return found


def pending() -> dict[str, str]:
    """Report -> what it waits for, of those that no test shows yet."""
    path = BUGS / "pending.txt"
    if not path.is_file():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = [line.split("|") for line in lines if line and not line.startswith("#")]
    return {row[0].strip(): row[1].strip() for row in rows}


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def rules_page(command: Path) -> str:
    run = subprocess.run([command, "rules", "--json"], capture_output=True, text=True, check=True)
    rules = json.loads(run.stdout)
    bugs: dict[str, list[dict[str, Any]]] = {}
    for case in cases():
        for code in case.get("codes", []):
            bugs.setdefault(code, []).append(case)
    examples = planted()
    out = [
        "# Rules\n\n",
        GENERATED,
        "\nWhat each rule says when it fires. [judging.md](judging.md) states exactly what is ",
        "judged, where and when; `kvguard rules CODE` prints one of these in a terminal. A ",
        "*proof* makes the verdict `violated`; a *suspicion* is counted, printed once and never ",
        "raises.\n",
    ]
    family = ""
    for rule in rules:
        if rule["family"] != family:
            family = rule["family"]
            out.append(f"\n## {family}\n")
        code = rule["code"]
        out.append(f"\n### {code} {rule['name']}\n\n{rule['sentence']} *({rule['grade']})*\n")
        for fault, neighbour, _ in examples.get(int(code.removeprefix("KV")), [])[:3]:
            out.append(f"\n- fires: {fault}; silent: {neighbour}")
        known = bugs.get(code, [])
        if known:
            links = [f"[{case['id']}]({case['url']}) ({case['engine']})" for case in known]
            out.append("\n- public bugs: " + ", ".join(links))
        if known or examples.get(int(code.removeprefix("KV"))):
            out.append("\n")
    return "".join(out)


def bugs_page() -> str:
    table = cases()
    waiting = pending()
    counts = Counter(case["answer"] for case in table)
    out = [
        "# Public bugs\n\n",
        GENERATED,
        f"\n{len(table)} public reports of engines that addressed a KV cache wrongly, and what ",
        "kvguard answers to each. Titles and reasons are in our own words; most threads were seen ",
        "in part, so a root cause is what the thread claims. A report whose answer is pending ",
        "has no test yet: it waits for the layout or rule that is named.\n\n",
        "| answer | reports | meaning |\n|---|---|---|\n",
    ]
    out += [f"| {answer} | {counts[answer]} | {text} |\n" for answer, text in ANSWERS.items()]
    out.append("\n| report | engine | what | answer | why |\n|---|---|---|---|---|\n")
    for case in table:
        answer = case["answer"].replace("_", " ")
        if case.get("codes"):
            answer += " " + ", ".join(case["codes"])
        if case["id"] in waiting:
            answer += f" (pending: {cell(waiting[case['id']])})"
        out.append(
            f"| [{case['id']}]({case['url']}) | {cell(case['engine'])} | {cell(case['title'])} "
            f"| {answer} | {cell(case['reason'])} |\n"
        )
    return "".join(out)


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/make_docs.py", description="Writes docs/ pages.")
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    parser.add_argument(
        "--command", type=Path, default=ROOT / "build" / "kvguard", help="the built kvguard"
    )
    arguments = parser.parse_args()
    stale = 0
    pages = {"rules.md": rules_page(arguments.command), "public-bugs.md": bugs_page()}
    for name, text in pages.items():
        path = ROOT / "docs" / name
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        if arguments.check:
            stale += 1
            print(f"docs/{name} is not what its tables say: run scripts/make_docs.py")
        else:
            path.write_text(text, encoding="utf-8")
            print(f"docs/{name} written")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
