# SPDX-License-Identifier: Apache-2.0
"""usage: python3 -m kvguard_oracle [FILE.jsonl]

Judges what `kvguard trace dump --jsonl` printed: findings as JSON lines, then the verdict.
Exit codes: 0 clean, 1 violated, 2 cannot judge, 64 usage, 65 unreadable input.
"""

from __future__ import annotations

import json
import sys

from kvguard_oracle.errors import UnreadableError, UnsupportedError
from kvguard_oracle.judge import CANNOT_JUDGE, CLEAN, VIOLATED, Result, judge_lines
from kvguard_oracle.records import read_lines

EXIT_CODES = {CLEAN: 0, VIOLATED: 1, CANNOT_JUDGE: 2}


def verdict_line(result: Result) -> dict[str, object]:
    return {
        "verdict": result.verdict(),
        "steps": result.steps,
        "steps_judged": result.steps_judged,
        "proofs": len(result.proofs()),
        "suspicions": {str(code): count for code, count in sorted(result.suspicions().items())},
        "assumptions": result.assumptions,
        "ignored": result.ignored,
        "step_gaps": len(result.gap_steps()),
        "gaps": sorted(result.gaps),
    }


def judge_text(path: str | None) -> Result:
    if path is None:
        return judge_lines(read_lines(sys.stdin))
    with open(path, encoding="utf-8") as file:
        return judge_lines(read_lines(file))


def main(arguments: list[str]) -> int:
    if len(arguments) > 1 or any(argument.startswith("-") for argument in arguments):
        print(__doc__, file=sys.stderr)
        return 64
    try:
        result = judge_text(arguments[0] if arguments else None)
    except (UnreadableError, OSError, UnicodeDecodeError) as error:
        print(f"cannot read the input: {error}", file=sys.stderr)
        return 65
    except UnsupportedError as error:
        print(f"cannot judge: {error}", file=sys.stderr)
        print(json.dumps({"verdict": CANNOT_JUDGE, "reason": str(error)}))
        return EXIT_CODES[CANNOT_JUDGE]
    for finding in result.findings:
        print(json.dumps(finding.as_json()))
    print(json.dumps(verdict_line(result)))
    return EXIT_CODES[result.verdict()]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
