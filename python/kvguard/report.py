# SPDX-License-Identifier: Apache-2.0
"""Lines and reports for a person."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def gap_list(gaps: Iterable[Mapping[str, Any]]) -> str:
    """[a, b(3)]: step gaps carry how often they were met."""
    names = []
    for gap in gaps:
        names.append(gap["name"] if gap["standing"] else f"{gap['name']}({gap['count']})")
    return "[" + ", ".join(names) + "]"


def blind_families(verdict: Mapping[str, Any], coverage: Iterable[Mapping[str, Any]]) -> list[str]:
    """Families that should have judged something of the steps that were judged, and did not."""
    if verdict["steps_judged"] == 0:
        return []  # there was nothing to see
    return [
        row["family"] if row["group"] is None else f"{row['family']}:{row['group']}"
        for row in coverage
        if row["expected"] and row["judged"] == 0
    ]


def verdict_line(
    verdict: Mapping[str, Any],
    gaps: Iterable[Mapping[str, Any]],
    coverage: Iterable[Mapping[str, Any]] = (),
) -> str:
    """kvguard: clean steps=156 rows=640 slots=3107 suspicions=0 assumptions=0 gaps=[]"""
    counts = " ".join(
        f"{name}={verdict[name]}"
        for name in ("steps", "rows", "slots", "suspicions", "assumptions")
    )
    line = f"kvguard: {verdict['verdict']} {counts} gaps={gap_list(gaps)}"
    blind = blind_families(verdict, coverage)
    return f"{line} blind=[{', '.join(blind)}]" if blind else line


def coverage_report(
    verdict: Mapping[str, Any],
    coverage: Iterable[Mapping[str, Any]],
    gaps: Iterable[Mapping[str, Any]],
    drafts: Mapping[str, int] | None = None,
) -> str:
    """What was judged how often, and what was not."""
    gaps, coverage = list(gaps), list(coverage)
    lines = [verdict_line(verdict, gaps, coverage)]
    lines.append(
        f"  steps ended {verdict['steps']}, judged {verdict['steps_judged']}, "
        f"with gaps {verdict['step_gaps']}, violated {verdict['violated_steps']}; "
        f"plans {verdict['plans']}, table entries {verdict['entries']}, "
        f"ignored events {verdict['ignored']}"
    )
    if drafts is not None:
        lines.append(
            f"  drafts {drafts['scheduled']}, accepted {drafts['accepted']}, "
            f"rejected {drafts['rejected']}"
        )
    for row in coverage:
        group = "all groups" if row["group"] is None else f"group {row['group']}"
        where = "begin" if row["pass"] == "none" else f"{row['pass']} pass, {row['stage']}"
        never = " (expected, and never judged)" if row["expected"] and row["judged"] == 0 else ""
        lines.append(f"  {row['family']:<10} {group}, {where}: {row['judged']} facts{never}")
    for gap in gaps:
        if gap["standing"]:
            lines.append(f"  not judged by this configuration: {gap['name']}")
        else:
            lines.append(
                f"  not judged in {gap['count']} steps, first in step {gap['first_step']}: "
                f"{gap['name']}"
            )
    return "\n".join(lines)
