# SPDX-License-Identifier: Apache-2.0
"""Programs that were worth keeping: a disagreement that was mended stays mended.

Each file of differences/ is what oracle/shrink.py has written. `fires` says which codes both judges
find in it, so that a program that has come to show nothing is noticed.
"""

from pathlib import Path

import core_bridge
import pytest
import shrink

FOLDER = Path(__file__).resolve().parent / "differences"
FILES = sorted(FOLDER.glob("*.jsonl"))

needs_library = pytest.mark.skipif(
    not core_bridge.library_path().is_file(), reason="libkvguard.so is not built"
)


def test_there_are_programs():
    fires = [set(saved.fires) for file in FILES for saved in shrink.read_programs(file)]
    assert len(fires) >= 3
    assert len(set().union(*fires)) >= 3


@needs_library
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_both_judges_agree(file):
    for saved in shrink.read_programs(file):
        judged = shrink.judge_both(saved.program)
        assert judged is not None, "one of them does not read it"
        assert shrink.signatures(judged) == [], saved.about
        assert shrink.fired(judged) == set(saved.fires), saved.about
