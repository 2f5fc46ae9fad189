# SPDX-License-Identifier: Apache-2.0
"""kvguard's second auditor: slow, obvious, and written apart from the first.

It reads the JSON lines of `kvguard trace dump --jsonl` and applies docs/judging.md. It shares no
code with src/ and was written without reading it: where the two disagree, one of them is wrong.
"""

from kvguard_oracle.errors import UnreadableError, UnsupportedError
from kvguard_oracle.findings import Finding
from kvguard_oracle.judge import Judge, Result, judge_lines

__all__ = ["Finding", "Judge", "Result", "UnreadableError", "UnsupportedError", "judge_lines"]
