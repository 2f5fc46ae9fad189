# SPDX-License-Identifier: Apache-2.0
"""What is believed of addresses, against the real slot kernel of two vLLM releases.

0.28.0 has vllm #51031: where kernel blocks are smaller than blocks, ranks are computed in kernel
blocks. Its sources come from scripts/setup_old_vllm.sh.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

Line = dict[str, Any]


def is_split_over_ranks(line: Line) -> bool:
    case = line["case"]
    return case["ranks"] > 1 and case["sizes"] != case["kernel_sizes"]


@pytest.fixture(scope="module")
def current(run_part: Any) -> list[Line]:
    return run_part("drive.py", "--steps", "14")


@pytest.fixture(scope="module")
def old(run_part: Any) -> list[Line]:
    sources = os.environ.get("KVGUARD_OLD_VLLM")
    if sources is None:
        pytest.skip("KVGUARD_OLD_VLLM is not set: scripts/check_parts.sh sets it")
    return run_part("drive.py", "--steps", "6", sources=sources)


def test_the_current_kernel_is_clean(current: list[Line]) -> None:
    assert not any(line["splits"] for line in current)
    assert {(c["case"]["ranks"], c["case"]["interleave"]) for c in current} >= {
        (1, 1),
        (2, 1),
        (2, 8),
        (4, 1),
        (4, 4),
    }
    for line in current:
        assert (line["verdict"], line["step_gaps"], line["codes"]) == ("clean", 0, []), line
        assert line["steps"] == 14
    slots = sum(line["slots"] for line in current)
    print(f"current kernel: {slots} slots in {len(current)} layouts as expected")
    assert slots >= 21_000


def test_the_old_kernel_is_clean_where_it_is_right(old: list[Line]) -> None:
    assert all(line["splits"] for line in old)
    right = [line for line in old if not is_split_over_ranks(line)]
    assert any(line["case"]["sizes"] != line["case"]["kernel_sizes"] for line in right)
    assert any(line["case"]["ranks"] > 1 for line in right)
    for line in right:
        assert (line["verdict"], line["step_gaps"], line["codes"]) == ("clean", 0, []), line


def test_vllm_51031_is_found_and_named(old: list[Line]) -> None:
    wrong = {line["case"]["rank"]: line for line in old if is_split_over_ranks(line)}
    assert set(wrong) == {0, 1}
    for rank, code in ((0, 407), (1, 403)):
        line = wrong[rank]
        assert line["verdict"] == "violated"
        assert code in line["codes"], line
        assert line["first"].startswith(f"kvguard KV{code:04d} "), line
        assert ["block-size", line["case"]["kernel_sizes"][0]] in line["causes"], line
    print(wrong[0]["first"])
