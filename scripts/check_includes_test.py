# SPDX-License-Identifier: Apache-2.0
"""Each rule of the include check: what it catches, and the legal line next to it that passes."""

import subprocess
import sys
from pathlib import Path

import check_includes
import pytest


def cxx(name, *includes):
    text = "// SPDX-License-Identifier: Apache-2.0\n" + "\n".join(f"#include {i}" for i in includes)
    return list(check_includes.cxx_problems(name, text))


@pytest.mark.parametrize(
    ("name", "include", "why"),
    [
        ("src/step/a.cc", '"mirror/block.h"', "step comes before mirror"),
        ("src/audit/a.cc", '"trace/codec.h"', "audit comes before trace"),
        ("src/audit/a_test.cc", '"trace/codec.h"', "audit comes before trace"),
        ("src/tools/a.cc", '"cli/run.h"', "src/ does not include cli/"),
        ("src/mirror/a.cc", '"lab/engine.h"', "src/ does not include lab/"),
        ("src/mirror/a.cc", '"tests/builders.h"', "src/ does not include tests/"),
        ("src/mirror/a.cc", '"block.h"', "name the folder"),
        ("src/mirror/a.cc", '"../step/status.h"', "name the folder"),
        ("src/mirror/a.cc", '"src/step/status.h"', "the include root is src/"),
        ("src/mirror/a.cc", '"vendor/x.h"', "not a folder of this project"),
        ("src/mirror/a.cc", "<fmt/format.h>", "only for the rooms after audit"),
        ("src/mirror/a.cc", "<zstd.h>", "only for the rooms after audit"),
        ("src/report/a.cc", "<flatbuffers/flatbuffers.h>", "only for src/trace"),
        ("src/tools/a.cc", '"trace/kvtrace_generated.h"', "stays in src/trace"),
        ("src/tools/a.cc", "<CLI/CLI.hpp>", "only for cli/"),
        ("src/tools/a_test.cc", '"gtest/gtest.h"', "is included as <gtest/gtest.h>"),
        ("src/tools/a.cc", "<gtest/gtest.h>", "only for files named *_test.cc"),
        ("src/tools/a_test.cc", "<benchmark/benchmark.h>", "only for files named *_bench.cc"),
        ("src/audit/a.cc", "<nanobind/nanobind.h>", "only for bindings/"),
        ("bindings/vllm/walker.cc", '"mirror/block.h"', "bindings/ sees only include/"),
        ("lab/engine.cc", '"geometry/layout.h"', "lab/ sees only include/"),
        ("examples/toy.c", '"step/views.h"', "examples/ sees only include/"),
        ("include/kvguard/kvguard.hpp", '"step/views.h"', "only public headers"),
        ("src/misc/a.cc", '"step/views.h"', "src/ holds only the rooms"),
        ("src/loose.cc", "<vector>", "src/ holds only the rooms"),
        ("  src/step/a.cc".strip(), '  "mirror/block.h"', "step comes before mirror"),
    ],
)
def test_caught(name, include, why):
    found = cxx(name, "<vector>", include)
    assert len(found) == 1, found
    assert found[0].startswith(f"{name}:")
    assert why in found[0]


@pytest.mark.parametrize(
    ("name", "include"),
    [
        ("src/mirror/a.cc", '"mirror/block.h"'),
        ("src/mirror/a.cc", '"geometry/layout.h"'),
        ("src/mirror/a.cc", '"kvguard/kvguard.h"'),
        ("src/mirror/a_test.cc", '"tests/builders.h"'),
        ("src/mirror/a_test.cc", "<gtest/gtest.h>"),
        ("src/geometry/a_bench.cc", "<benchmark/benchmark.h>"),
        ("src/trace/a.cc", "<flatbuffers/flatbuffers.h>"),
        ("src/trace/a.cc", '"trace/kvtrace_generated.h"'),
        ("src/trace/a.cc", "<zstd.h>"),
        ("src/config/a.cc", "<nlohmann/json.hpp>"),
        ("cli/a.cc", "<CLI/CLI.hpp>"),
        ("cli/a.cc", '"tools/replay.h"'),
        ("cli/a.cc", '"lab/engine.h"'),
        ("bindings/a.cc", "<nanobind/nanobind.h>"),
        ("bindings/a.cc", '"bindings/vllm/walker.h"'),
        ("bench/a.cc", '"geometry/layout.h"'),
        ("tests/a_test.cc", '"tools/replay.h"'),
    ],
)
def test_let_pass(name, include):
    assert cxx(name, include) == []


def test_python_imports():
    def problems(name, text):
        return list(check_includes.python_problems(name, text))

    assert "shares nothing" in problems("oracle/audit.py", "from kvguard import _core\n")[0]
    assert "shares nothing" in problems("oracle/audit.py", "import kvguard.vllm as v\n")[0]
    assert "nothing of the tests" in problems("python/kvguard/vllm/a.py", "import tests.rig\n")[0]
    assert "not Python" in problems("python/kvguard/a.py", "def\n")[0]
    assert problems("python/kvguard/vllm/a.py", "from kvguard import _core\nimport json\n") == []
    assert problems("oracle/audit.py", "import json\n") == []
    assert problems("tests/rig/engine.py", "import kvguard\n") == []


def test_the_command_reads_a_tree_and_fails_on_it(tmp_path):
    room = tmp_path / "src" / "step"
    room.mkdir(parents=True)
    script = Path(check_includes.__file__)

    def run():
        return subprocess.run(
            [sys.executable, str(script), str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
        )

    (room / "a.cc").write_text('#include "geometry/layout.h"\n', encoding="utf-8")
    assert run().returncode == 0
    (room / "a.cc").write_text('\n#include "mirror/block.h"\n', encoding="utf-8")
    done = run()
    assert done.returncode == 1
    assert done.stdout.startswith("src/step/a.cc:2: ")


def test_rooms_are_those_of_the_build():
    text = (check_includes.ROOT / "cmake" / "KvguardRooms.cmake").read_text(encoding="utf-8")
    assert f"set(KVGUARD_CORE_ROOMS {' '.join(check_includes.CORE_ROOMS)})" in text
    rest = check_includes.ROOMS[len(check_includes.CORE_ROOMS) :]
    assert f"set(KVGUARD_ROOMS ${{KVGUARD_CORE_ROOMS}} {' '.join(rest)})" in text
