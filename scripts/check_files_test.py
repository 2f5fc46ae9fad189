# SPDX-License-Identifier: Apache-2.0
"""Each rule of the file check, shown to catch what it is for."""

import shutil
import subprocess
import sys
from pathlib import Path

import check_files
import pytest

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"


def text(name, content):
    return [p.split(": ", 1)[1] for p in check_files.text_problems(name, content)]


def test_licence_line():
    assert "no 'SPDX" in text("src/step/a.cc", "int a;\n")[0]
    assert "no 'SPDX" in text("src/step/a.cc", "\n\n" + SPDX)[0]
    assert text("src/step/a.cc", SPDX) == []
    assert (
        text("scripts/a.sh", "#!/usr/bin/env bash\n# SPDX-License-Identifier: Apache-2.0\n") == []
    )
    assert text("README.md", "# kvguard\n") == []
    assert text("tests/slice/__init__.py", "") == []


def test_length():
    long = SPDX + "int a;\n" * check_files.MAX_LINES
    assert text("src/step/a.cc", long) == ["601 lines, at most 600: split it"]
    assert text("src/step/a.cc", long[: -len("int a;\n")]) == []
    assert text(check_files.HEADER, long) == []


@pytest.mark.parametrize(
    "line",
    [
        "see /" + "work/main",
        "open('/" + "root/.cache')",
        "/" + "home/someone/x",
        "/tmp/" + "bash_jobs.0/1",
        "https://" + "pypi" + ".org/simple",
        "deb http://deb." + "debian" + ".org/debian",
        "// TO" + "DO: later",
        "# FIX" + "ME",
    ],
)
def test_paths_hosts_and_marks(line):
    assert len(text("docs/a.md", f"fine\n{line}\n")) == 1


@pytest.mark.parametrize("line", ["src/work/x", "$HOME/work/", "HACKING.md", "todo", "XXXX"])
def test_lines_that_only_look_like_it(line):
    assert text("docs/a.md", f"{line}\n") == []


def test_comment_share_counts_lines():
    share = check_files.comment_share
    assert share("// a\n// b\nint c;\nint d;\n") == pytest.approx(0.5)
    assert share("/* a\n\n b */\nint c; /* d */\n") == pytest.approx(2 / 3)
    assert share('const char* a = "// not a comment";\n') == 0.0
    assert share("") == 0.0


@pytest.fixture
def tree(tmp_path):
    """A small project that passes."""
    for name in ("pyproject.toml", "requirements/tools.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(check_files.ROOT / name, tmp_path / name)
    header = tmp_path / check_files.HEADER
    header.parent.mkdir(parents=True)
    header.write_text(
        "/* SPDX-License-Identifier: Apache-2.0 */\n/* A\n * long\n * word. */\n"
        "#define KVGUARD_VERSION_MAJOR 1\n"
        "#define KVGUARD_VERSION_MINOR 2\n"
        "#define KVGUARD_VERSION_PATCH 3\n",
        encoding="utf-8",
    )
    room = tmp_path / "src" / "step"
    room.mkdir(parents=True)
    (room / "CMakeLists.txt").write_text(
        "# SPDX-License-Identifier: Apache-2.0\nkvguard_room(step SOURCES a.cc)\n", encoding="utf-8"
    )
    (room / "a.cc").write_text(SPDX, encoding="utf-8")
    return tmp_path


def test_a_sound_tree_passes(tree):
    assert check_files.problems(tree) == []


def test_header_with_too_little_comment(tree):
    header = tree / check_files.HEADER
    header.write_text(header.read_text(encoding="utf-8") + "int a;\n" * 9, encoding="utf-8")
    (found,) = check_files.problems(tree)
    assert "25% comment" in found


def test_a_source_that_no_list_names(tree):
    (tree / "src/step/a_test.cc").write_text(SPDX, encoding="utf-8")
    (tree / "cli").mkdir()
    (tree / "cli/main.cc").write_text(SPDX, encoding="utf-8")
    assert check_files.problems(tree) == [
        "cli/main.cc:1: no CMakeLists.txt in its folder lists it",
        "src/step/a_test.cc:1: src/step/CMakeLists.txt does not list it",
    ]


def test_version_out_of_step(tree):
    header = tree / check_files.HEADER
    sound = header.read_text(encoding="utf-8")
    header.write_text(sound.replace("MINOR 2", "MINOR  2"), encoding="utf-8")
    assert any("no line '#define KVGUARD_VERSION_MINOR" in p for p in check_files.problems(tree))
    header.write_text(sound, encoding="utf-8")
    project = tree / "pyproject.toml"
    settings = project.read_text(encoding="utf-8")
    project.write_text(
        settings.replace('"{major}.{minor}.{patch}"', '"{major}.{minor}"'), encoding="utf-8"
    )
    assert any("its pattern reads 1.2 from" in p for p in check_files.problems(tree))
    project.write_text(
        settings.replace('dynamic = ["version"]', 'version = "1.2.3"'), encoding="utf-8"
    )
    assert any("a version of its own" in p for p in check_files.problems(tree))


def test_pins_out_of_step(tree):
    pins = tree / "requirements/tools.txt"
    pins.write_text(
        pins.read_text(encoding="utf-8").replace("nanobind==", "nanobind==9"), encoding="utf-8"
    )
    (found,) = check_files.problems(tree)
    assert "is not the pin in requirements/tools.txt" in found


def test_scripts_binaries_and_traces(tree):
    (tree / "a.sh").write_text(
        "#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n", encoding="utf-8"
    )
    (tree / "b.bin").write_bytes(b"\xff\xfe\x00")
    (tree / "small.kvtrace").write_bytes(b"\xff" * 200_000)
    (tree / "large.kvtrace").write_bytes(b"\xff" * 200_001)
    found = check_files.problems(tree)
    assert [p.split(":")[0] for p in found] == ["a.sh", "b.bin", "large.kvtrace"]


def test_the_command_fails_on_a_bad_tree(tree):
    def run():
        return subprocess.run(
            [sys.executable, str(Path(check_files.__file__)), str(tree)],
            capture_output=True,
            text=True,
            check=False,
        )

    assert run().returncode == 0
    (tree / "src/step/a.cc").write_text("int a;\n", encoding="utf-8")
    done = run()
    assert done.returncode == 1
    assert done.stdout.startswith("src/step/a.cc:1: no 'SPDX")
