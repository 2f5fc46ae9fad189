# SPDX-License-Identifier: Apache-2.0
"""The symbol check on shared objects that are made here to be wrong."""

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("check_symbols.sh")
pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++ to make shared objects")

STATIC = ["-static-libstdc++", "-static-libgcc"]
OURS = 'extern "C" int kvguard_one() { return 1; }\n'


def check(tmp_path, name, code, *flags):
    source = tmp_path / "x.cc"
    source.write_text(code, encoding="utf-8")
    out = tmp_path / name
    subprocess.run(["g++", "-shared", "-fPIC", "-o", out, source, *flags], check=True)
    done = subprocess.run([SCRIPT, out], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_only_ours(tmp_path):
    status, text = check(tmp_path, "libkvguard.so", OURS, *STATIC)
    assert status == 0
    assert text.splitlines()[-1] == "1 passed, 0 failed"


def test_a_foreign_symbol(tmp_path):
    status, text = check(tmp_path, "libkvguard.so", OURS + "int helper() { return 2; }\n", *STATIC)
    assert status == 1
    assert "helper()" in text
    assert text.splitlines()[-1] == "0 passed, 1 failed"


def test_a_template_s_unique_symbol(tmp_path):
    code = (
        OURS + "template <class T> struct A { static int x; };\ntemplate <class T> int A<T>::x;\n"
    )
    code += "int* use() { return &A<int>::x; }\n"
    status, text = check(tmp_path, "libkvguard.so", code, *STATIC)
    assert status == 1
    assert "process-wide unique symbols: A<int>::x" in text


def test_the_process_s_own_runtime(tmp_path):
    code = "#include <string>\n#include <stdexcept>\n"
    code += 'extern "C" int kvguard_one() { throw std::runtime_error(std::string(9, 0)); }\n'
    status, text = check(tmp_path, "libkvguard.so", code, "-fvisibility=hidden")
    assert status == 1
    assert "needs libstdc++" in text


def test_the_module_shows_its_entry_point_alone(tmp_path):
    entry = 'extern "C" void* PyInit__core() { return nullptr; }\n'
    assert check(tmp_path, "_core.so", entry, *STATIC)[0] == 0
    status, text = check(tmp_path, "_core.so", entry + OURS, *STATIC)
    assert status == 1
    assert "kvguard_one" in text


def test_nothing_exported_and_nothing_to_read(tmp_path):
    status, text = check(tmp_path, "libkvguard.so", "static int a;\n", *STATIC)
    assert status == 1
    assert "exports none" in text
    done = subprocess.run([SCRIPT, tmp_path / "no.so"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "cannot be read" in done.stdout
    assert subprocess.run([SCRIPT], capture_output=True, check=False).returncode == 64
