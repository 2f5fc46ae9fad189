# SPDX-License-Identifier: Apache-2.0
"""The lints as a whole: each is shown to fail, with the project's own settings."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import lint
import pytest

ROOT = lint.ROOT
pytestmark = pytest.mark.skipif(
    not Path(lint.tool("clang-format")[0]).exists(),
    reason="needs the tools environment: run scripts/pytest.sh",
)

SOUND_CXX = "// SPDX-License-Identifier: Apache-2.0\nint a = 1;\n"
SOUND_PY = "# SPDX-License-Identifier: Apache-2.0\na: int = 1\n"


@pytest.fixture
def tree(tmp_path):
    """The project's scripts and settings, and one sound file of each kind, under git."""
    (tmp_path / "scripts").mkdir()
    for name in ("lint.py", "check_files.py", "check_includes.py", "repo_files.py"):
        shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts" / name)
    for name in (".clang-format", ".clang-tidy", "pyproject.toml", "requirements/tools.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    header = tmp_path / "include/kvguard/kvguard.h"
    header.parent.mkdir(parents=True)
    header.write_text(
        "/* SPDX-License-Identifier: Apache-2.0 */\n/* one\n * two\n * three */\n"
        "#define KVGUARD_VERSION_MAJOR 0\n"
        "#define KVGUARD_VERSION_MINOR 1\n"
        "#define KVGUARD_VERSION_PATCH 0\n",
        encoding="utf-8",
    )
    room = tmp_path / "src/step"
    room.mkdir(parents=True)
    (room / "CMakeLists.txt").write_text(
        "# SPDX-License-Identifier: Apache-2.0\nkvguard_room(step SOURCES a.cc)\n", encoding="utf-8"
    )
    (room / "a.cc").write_text(SOUND_CXX, encoding="utf-8")
    (tmp_path / "python").mkdir()
    (tmp_path / "python/a.py").write_text(SOUND_PY, encoding="utf-8")
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "start")
    return tmp_path


def git(tree, *arguments):
    identity = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    subprocess.run(["git", *identity, *arguments], cwd=tree, check=True)


def run(tree, *arguments):
    done = subprocess.run(
        [sys.executable, str(tree / "scripts/lint.py"), *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=tree,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_sound_tree_passes(tree):
    status, text = run(tree)
    assert status == 0, text
    assert text.splitlines()[-1] == "5 passed, 0 failed"


@pytest.mark.parametrize(
    ("name", "content", "failing"),
    [
        ("src/step/a.cc", SOUND_CXX + "int  b=2;\n", "clang-format"),
        ("python/a.py", SOUND_PY + "b = 'x'\n", "ruff format"),
        ("python/a.py", "# SPDX-License-Identifier: Apache-2.0\nimport os\n", "ruff check"),
        ("src/step/a.cc", SOUND_CXX.replace("int a = 1;", '#include "mirror/b.h"'), "include"),
        ("src/step/a.cc", "int a = 1;\n", "files"),
    ],
)  # fmt: skip
def test_each_lint_fails(tree, name, content, failing):
    (tree / name).write_text(content, encoding="utf-8")
    status, text = run(tree)
    assert status == 1
    failed = [line for line in text.splitlines() if line.startswith("FAILED")]
    assert len(failed) == 1, text
    assert failed[0].startswith(f"FAILED  {failing}")
    assert text.splitlines()[-1] == "4 passed, 1 failed"


def test_chosen_files_and_fix(tree):
    (tree / "src/step/a.cc").write_text(SOUND_CXX + "int  b=2;\n", encoding="utf-8")
    assert run(tree, "python/a.py")[0] == 0
    assert run(tree, "src/step/a.cc")[0] == 1
    assert run(tree, "--fix", "src/step/a.cc")[0] == 0
    assert (tree / "src/step/a.cc").read_text(encoding="utf-8") == SOUND_CXX + "int b = 2;\n"
    assert run(tree, "src/none.cc")[0] == 64


def write_database(tree, *names):
    build = tree / "build"
    build.mkdir()
    entries = [
        {"directory": str(tree), "file": str(tree / n), "command": f"g++ -std=c++20 -c {n}"}
        for n in names
    ]
    (build / "compile_commands.json").write_text(json.dumps(entries), encoding="utf-8")


def test_clang_tidy_on_what_changed(tree):
    bad = "// SPDX-License-Identifier: Apache-2.0\nint* F() { return 0; }\n"
    (tree / "src/step/CMakeLists.txt").write_text(
        "# SPDX-License-Identifier: Apache-2.0\nkvguard_room(step SOURCES a.cc b.cc)\n",
        encoding="utf-8",
    )
    (tree / "src/step/b.cc").write_text(bad, encoding="utf-8")
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "a fault that is there already")
    git(tree, "checkout", "-q", "-b", "work")
    write_database(tree, "src/step/a.cc", "src/step/b.cc")
    (tree / "src/step/a.cc").write_text(SOUND_CXX + "int c = 1;\n", encoding="utf-8")
    status, text = run(tree, "--tidy", "changed")
    assert status == 0, text
    assert "clang-tidy (1 units, changed)" in text
    status, text = run(tree, "--tidy", "all")
    assert status == 1
    assert "modernize-use-nullptr" in text
    (tree / "src/step/a.cc").write_text(bad, encoding="utf-8")
    assert run(tree, "--tidy", "changed")[0] == 1


def test_a_changed_header_checks_those_who_include_it(tree):
    (tree / "src/step/a.h").write_text(SOUND_CXX, encoding="utf-8")
    (tree / "src/step/a.cc").write_text('#include "step/a.h"\n', encoding="utf-8")
    write_database(tree, "src/step/a.cc")
    assert lint.tidy_units(tree / "build", tree, ["src/step/a.h"]) == ["src/step/a.cc"]
    assert lint.tidy_units(tree / "build", tree, ["src/step/b.h"]) == []
    assert lint.tidy_units(tree / "build", tree, None) == ["src/step/a.cc"]


def test_clang_tidy_without_a_build_says_so(tree):
    status, text = run(tree, "--tidy", "all")
    assert status == 1
    assert "run make first" in text


def test_pins_are_what_runs():
    pins = (ROOT / "requirements/tools.txt").read_text(encoding="utf-8")
    for name, module in (("ruff", "ruff"), ("clang-format", "clang_format")):
        assert importlib.util.find_spec(module), name
        version = subprocess.run(
            [*lint.tool(name), "--version"], capture_output=True, text=True, check=True
        ).stdout
        (pin,) = [
            line.split("==")[1].split()[0]
            for line in pins.splitlines()
            if line.startswith(f"{name}==")
        ]
        assert pin in version
