# SPDX-License-Identifier: Apache-2.0
"""What must be found: the lists of faults of tests/layouts, each name played as a program."""

from pathlib import Path

import pytest
from kvguard_oracle.judge import CLEAN
from layout_programs import PROGRAMS
from scenario import judge

LISTS = Path(__file__).resolve().parents[1] / "layouts"


def listed(kind):
    """(name, expected first code) of each line."""
    text = (LISTS / f"{kind}_faults.txt").read_text(encoding="utf-8")
    lines = [line.split("|") for line in text.splitlines() if line and not line.startswith("#")]
    return [(name.strip(), int(code)) for name, code, *_ in lines]


FAULTS = [(kind, name, code) for kind in PROGRAMS for name, code in listed(kind)]


@pytest.mark.parametrize("kind", PROGRAMS)
def test_every_name_has_a_program(kind):
    assert {name for name, _ in listed(kind)} == set(PROGRAMS[kind])


@pytest.mark.parametrize(("kind", "name", "code"), FAULTS, ids=[name for _, name, _ in FAULTS])
def test_what_must_be_found_is_found(kind, name, code):
    first, *records = PROGRAMS[kind][name]
    result = judge(*records, geometry_line=first)
    assert not any(gap.startswith("malformed") for gap in result.gaps)
    if code:
        assert code in {finding.code for finding in result.findings}
    else:
        assert result.findings == []
        assert result.verdict() == CLEAN
