#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Proves that the table of public bugs is whole and prints its counts.

usage: python3 tests/bugs/check_cases.py

Exit code 1 with one sentence a flaw. It reads the tables beside it and include/kvguard/kvguard.h,
whose names the tables may use and no others.
"""

import re
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
HEADER = HERE.parent.parent / "include" / "kvguard" / "kvguard.h"
CASES = (
    "cases_vllm_1.toml",
    "cases_vllm_2.toml",
    "cases_vllm_3.toml",
    "cases_vllm_ascend.toml",
    "cases_vllm_plugins.toml",
    "cases_sglang.toml",
    "cases_others.toml",
)
TRAPS = "traps.toml"

# The corpus: numbers are stable names of reports, gaps in them are reports that were withdrawn.
IDS = [
    f"B{number:03}"
    for number in (
        *(1, 2, 3, 4, 6, 7, 8, 9, 10, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 23, 24, 25, 27, 28),
        *(29, 30, 31, 33, 34, 35, 36, 37, 38, 40, 41, 42, 44, 45, 46, 47, 48, 49, 51, 52, 53, 54),
        *(55, 56, 57, 58, 59, 60, 61, 62, 64, 65, 66, 67, 68, 69, 70, 71, 73, 74, 76, 77, 79, 80),
        *(81, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93, 94, 95, 97, 98, 99, 100, 102, 103, 104),
        *(106, 107, 108, 109, 110, 111, 112, 113, 114, 115, 116, 118, 119, 120, 121, 123, 124),
        *(125, 127, 128, 129, 130, 131, 132, 133, 135, 136, 137, 138, 139, 140, 141, 142, 143),
        *(144, 145, 146, 148, 149, 150, 151, 153, 155, 156, 157, 158, 159, 160, 161, 162),
    )
]
NUM_CASES = 139
TRAP_IDS = ["T1", "T2", "T3", "T4", "T5", "T6", "T7"]
ANSWERS = ("fires", "silent", "not_judged", "later")
LATER_FAMILIES = ("family graph", "family rank")
CLASSES = [f"K{number:02}" for number in range(1, 21)]
LAYOUTS = (
    *("full", "window", "chunked", "ring", "state", "cross", "mla", "hybrid", "cells"),
    *("csr", "flat", "dcp", "pcp", "pp", "draft", "microbatch", "graph", "transfer", "host"),
)

# Codes that a table may demand: the catalogue as it is planned, family by family.
CODES = {
    "step": {
        101: "row-unknown",
        102: "row-missing",
        103: "row-duplicate",
        104: "query-length-mismatch",
        105: "query-start-malformed",
        106: "micro-batch-missing",
    },
    "binding": {
        201: "block-out-of-range",
        202: "block-null",
        203: "block-repeated",
        204: "capacity-short",
        205: "request-unknown",
        206: "row-too-wide",
    },
    "table": {
        301: "table-mismatch",
        302: "table-null",
        303: "table-out-of-range",
        304: "table-columns-mismatch",
        305: "padded-row-not-null",
    },
    "slot": {
        401: "slot-mismatch",
        402: "slot-null-block",
        403: "slot-pad",
        404: "slot-out-of-range",
        405: "slot-written-twice",
        406: "pad-slot-real",
        407: "slot-not-local",
    },
    "length": {501: "seq-len-mismatch", 502: "padded-seq-len-nonzero"},
    "ownership": {601: "block-owned", 602: "foreign-write", 603: "two-writers"},
    "lifetime": {701: "read-stale", 702: "freed-while-held", 703: "freed-twice"},
    "content": {
        801: "content-mismatch",
        802: "domain-mismatch",
        803: "content-unwritten",
        804: "content-misplaced",
        805: "load-overwrites",
    },
    "frontier": {
        901: "frontier-mismatch",
        902: "count-ahead",
        903: "position-mismatch",
        904: "count-behind",
        905: "rejected-more-than-drafted",
    },
    "state": {
        1001: "state-mismatch",
        1002: "state-target-mismatch",
        1003: "state-uninitialised",
        1004: "state-discarded",
        1005: "state-not-copied",
        1006: "pad-state-real",
    },
    "transfer": {
        1101: "read-while-loading",
        1102: "write-while-pinned",
        1103: "pinned-rebound",
        1104: "transfer-unknown",
        1105: "transfer-misplaced",
        1106: "failed-load-used",
        1107: "transfer-reused",
    },
    "copy": {
        1201: "used-before-zeroed",
        1202: "zero-live",
        1203: "used-before-copied",
        1204: "copy-target-held",
        1205: "copy-source-zeroed",
        1206: "copy-lost",
    },
}

FIELDS = {
    "case": {
        *("id", "engine", "url", "title", "class", "answer", "codes", "layout"),
        *("needs", "reason", "wrong", "right"),
    },
    "trap": {"id", "url", "title", "layout", "needs", "reason", "right"},
}
RECORDS = ("GEOMETRY", "BEGIN", "PLAN", "OUTCOME", "END")
# The last thing that a wrong sketch says: the finding that must come first.
FIRST = re.compile(
    r"^first: KV(?P<code>\d{4}) step=\d+ at=(?P<at>begin|plan|outcome|end) group=(?:\d+|all)"
    r" request=(?:[A-Z]\d*|none) pos=(?:\d+|none) expected=(?:-?\d+|none) observed=(?:-?\d+|none)"
    r"(?: pass=(?:dummy|cross|(?:draft|micro-batch):\d+)| stage=final| row=\d+| rank=\d+"
    r"| victim=[A-Z]\d*)*$",
    re.MULTILINE,
)
STEP = re.compile(r"\bstep \d+", re.MULTILINE)


def number_of(code: Any) -> int | None:
    if isinstance(code, str) and re.fullmatch(r"KV\d{4}", code):
        return int(code[2:])
    return None


class Header:
    """The names that kvguard.h declares."""

    def __init__(self, text: str) -> None:
        code = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
        self.constants = set(re.findall(r"\bKVGUARD_([A-Z0-9_]+)\b", code))
        self.words = set(re.findall(r"\b[a-z_][a-z0-9_]*\b", code))

    def declares(self, name: str) -> bool:
        if name.isupper():
            return f"EVENT_{name}" in self.constants
        return name in self.words


def flaws_of_text(entry: dict[str, Any], fields: tuple[str, ...]) -> list[str]:
    flaws = []
    for field in fields:
        text = entry.get(field)
        if not isinstance(text, str) or not text.strip():
            flaws.append(f"{field} is missing or empty")
        elif field in ("title", "reason") and "\n" in text:
            flaws.append(f"{field} has more than one line")
        elif field in ("wrong", "right") and any(len(line) > 140 for line in text.splitlines()):
            flaws.append(f"{field} has a line over 140 characters")
    return flaws


def flaws_of_needs(entry: dict[str, Any], header: Header) -> list[str]:
    flaws = []
    for need in entry.get("needs", []):
        record, _, name = str(need).partition(".")
        if record not in RECORDS or not name:
            flaws.append(f'needs "{need}" is not RECORD.name with a record of {", ".join(RECORDS)}')
        elif not header.declares(name):
            flaws.append(f'needs "{need}", but kvguard.h declares no {name}')
    for part in str(entry.get("layout", "")).split("+"):
        if part not in LAYOUTS:
            flaws.append(f'layout part "{part}" is not one of {", ".join(LAYOUTS)}')
    return flaws


def flaws_of_fires(case: dict[str, Any]) -> list[str]:
    flaws = flaws_of_text(case, ("wrong", "right"))
    codes = case.get("codes")
    if not isinstance(codes, list) or not codes:
        return [*flaws, "fires, but codes is missing or empty"]
    known = {code for family in CODES.values() for code in family}
    for code in codes:
        if number_of(code) not in known:
            flaws.append(f"code {code} is not in the planned catalogue")
    if not case.get("needs"):
        flaws.append("fires, but needs names no evidence")
    wrong = str(case.get("wrong", ""))
    firsts = list(FIRST.finditer(wrong))
    if len(firsts) != 1:
        flaws.append('wrong must have one "first: KV.... step= at= group= request= ..." line')
    elif f"KV{firsts[0]['code']}" not in codes:
        flaws.append(f"wrong expects KV{firsts[0]['code']} first, codes says {codes}")
    if not STEP.search(wrong):
        flaws.append("wrong plays no step")
    if "silent" not in str(case.get("right", "")):
        flaws.append("right does not say what is silent")
    return flaws


def flaws_of_case(case: dict[str, Any], header: Header) -> list[str]:
    flaws = flaws_of_text(case, ("engine", "url", "title", "reason"))
    flaws += [f"field {field} is not known" for field in case if field not in FIELDS["case"]]
    if case.get("class") not in CLASSES:
        flaws.append(f"class {case.get('class')} is not one of K01..K20")
    if not str(case.get("url", "")).startswith("https://github.com/"):
        flaws.append("url is not a public thread")
    flaws += flaws_of_needs(case, header)
    answer = case.get("answer")
    if answer not in ANSWERS:
        return [*flaws, f"answer {answer} is not one of {', '.join(ANSWERS)}"]
    if answer == "fires":
        return flaws + flaws_of_fires(case)
    if any(field in case for field in ("codes", "wrong")):
        flaws.append(f"answer is {answer}, so there is no code and nothing wrong to play")
    if answer == "silent":
        flaws += flaws_of_text(case, ("right",))
        if "silent" not in str(case.get("right", "")):
            flaws.append("right does not say what is silent")
    elif "right" in case:
        flaws.append(f"answer is {answer}, so there is nothing to play")
    if answer == "later" and not any(f in str(case.get("reason")) for f in LATER_FAMILIES):
        flaws.append(f"later, but the reason names none of: {', '.join(LATER_FAMILIES)}")
    return flaws


def flaws_of_trap(trap: dict[str, Any], header: Header) -> list[str]:
    flaws = flaws_of_text(trap, ("title", "reason", "right"))
    flaws += [f"field {field} is not known" for field in trap if field not in FIELDS["trap"]]
    if "silent" not in str(trap.get("right", "")):
        flaws.append("right does not say what is silent")
    return flaws + flaws_of_needs(trap, header)


def flaws_of_ids(entries: list[dict[str, Any]], wanted: list[str], what: str) -> list[str]:
    counts = Counter(str(entry.get("id")) for entry in entries)
    flaws = [f"{what} {one} is missing" for one in wanted if one not in counts]
    flaws += [f"{what} {one} is not of the corpus" for one in counts if one not in wanted]
    return flaws + [f"{what} {one} stands {n} times" for one, n in counts.items() if n > 1]


def load(name: str, key: str) -> list[dict[str, Any]]:
    with (HERE / name).open("rb") as file:
        tables = tomllib.load(file)
    if set(tables) != {key}:
        raise ValueError(f"{name}: only [[{key}]] entries belong here, found {sorted(tables)}")
    return tables[key]


def print_counts(cases: list[dict[str, Any]], traps: list[dict[str, Any]]) -> None:
    answers = Counter(case["answer"] for case in cases)
    print(f"{len(cases)} cases, {len(traps)} traps")
    for answer in ANSWERS:
        print(f"  {answer:<12}{answers[answer]:>4}")
    fires = [case for case in cases if case["answer"] == "fires"]
    print("fires, by family")
    codes = Counter(number_of(case["codes"][0]) or 0 for case in fires)
    for family, rules in CODES.items():
        of_family = {code: codes[code] for code in rules if codes[code]}
        names = ", ".join(f"{code:04} x{n}" for code, n in of_family.items())
        print(f"  {family:<12}{sum(of_family.values()):>4}  {names}")
    print(f"by engine{'':<26}all {' '.join(f'{answer:>10}' for answer in ANSWERS)}")
    for engine, n in sorted(Counter(case["engine"] for case in cases).items()):
        of_engine = Counter(case["answer"] for case in cases if case["engine"] == engine)
        row = " ".join(f"{of_engine[answer]:>10}" for answer in ANSWERS)
        print(f"  {engine:<32}{n:>4} {row}")


def main() -> int:
    if len(IDS) != NUM_CASES or len(set(IDS)) != NUM_CASES:
        print(f"check_cases: the list of ids in this file has {len(set(IDS))} of {NUM_CASES} names")
        return 1
    header = Header(HEADER.read_text(encoding="utf-8"))
    flaws: list[str] = []
    cases: list[dict[str, Any]] = []
    traps: list[dict[str, Any]] = []
    try:
        for name in CASES:
            cases += load(name, "case")
        traps = load(TRAPS, "trap")
    except (OSError, ValueError) as error:
        print(f"check_cases: {error}")
        return 1
    flaws += flaws_of_ids(cases, IDS, "case")
    flaws += flaws_of_ids(traps, TRAP_IDS, "trap")
    for case in cases:
        flaws += [f"{case.get('id')}: {flaw}" for flaw in flaws_of_case(case, header)]
    for trap in traps:
        flaws += [f"{trap.get('id')}: {flaw}" for flaw in flaws_of_trap(trap, header)]
    for flaw in flaws:
        print(f"check_cases: {flaw}")
    if flaws:
        return 1
    print_counts(cases, traps)
    return 0


if __name__ == "__main__":
    sys.exit(main())
