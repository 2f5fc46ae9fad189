# SPDX-License-Identifier: Apache-2.0
"""Set-up: environments are made whole or not at all, and what is missing is named."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent
SETUP = SCRIPTS / "setup.sh"


def bash(code, **environment):
    return subprocess.run(
        ["bash", "-c", f". {SCRIPTS}/lib.sh\n{code}"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "KVGUARD_PYTHON": sys.executable, **environment},
    )


def test_an_environment_is_moved_into_place_whole_and_once(tmp_path):
    cache = tmp_path / "cache"
    make = 'make_venv "$KVGUARD_CACHE/x-1" x --no-deps -r /dev/null'
    done = bash(f'{make}; touch "$KVGUARD_CACHE/x-1/first"', KVGUARD_CACHE=str(cache))
    assert done.returncode == 0, done.stderr
    assert [p.name for p in cache.iterdir()] == ["x-1"]
    pip = cache / "x-1/bin/pip"
    assert str(cache / "x-1" / "bin") in pip.read_text(encoding="utf-8").splitlines()[0]
    assert subprocess.run([pip, "--version"], capture_output=True, check=False).returncode == 0
    # Who comes second takes the first one's.
    assert bash(make, KVGUARD_CACHE=str(cache)).returncode == 0
    assert (cache / "x-1/first").exists()
    assert [p.name for p in cache.iterdir()] == ["x-1"]


def test_an_environment_that_cannot_be_made_leaves_nothing(tmp_path):
    cache = tmp_path / "cache"
    done = bash(
        'make_venv "$KVGUARD_CACHE/x-1" x --no-index kvguard-no-such-package==1',
        KVGUARD_CACHE=str(cache),
    )
    assert done.returncode == 1
    assert "kvguard-no-such-package" in done.stderr
    assert "could not be made" in done.stderr
    assert list(cache.iterdir()) == []


def test_the_key_follows_the_pins(tmp_path):
    pins = tmp_path / "pins.txt"
    keys = []
    for text in ("a==1\n", "a==2\n", "a==1\n"):
        pins.write_text(text, encoding="utf-8")
        keys.append(bash(f"venv_key {pins}").stdout.strip())
    assert keys[0] == keys[2] != keys[1]
    assert len(keys[0]) == 12


def copy_of_the_project(tmp_path, apt):
    root = tmp_path / "project"
    (root / "requirements").mkdir(parents=True)
    (root / "scripts").mkdir()
    for name in ("lib.sh", "setup.sh"):
        (root / "scripts" / name).write_bytes((SCRIPTS / name).read_bytes())
        (root / "scripts" / name).chmod(0o755)
    (root / "requirements/tools.txt").write_text("", encoding="utf-8")
    (root / "requirements/apt.txt").write_text(apt, encoding="utf-8")
    return root


def run_setup(root, tmp_path, *arguments, user=0, **environment):
    # `id` says who asks; no test installs packages.
    tools = tmp_path / "tools"
    tools.mkdir(exist_ok=True)
    (tools / "id").write_text(f"#!/bin/sh\necho {user}\n", encoding="utf-8")
    (tools / "apt-get").write_text('#!/bin/sh\necho "apt-get $*"\nexit 100\n', encoding="utf-8")
    for name in ("id", "apt-get"):
        (tools / name).chmod(0o755)
    path = f"{tools}:{os.environ['PATH']}"
    environment = {
        "KVGUARD_CACHE": str(tmp_path / "cache"),
        "KVGUARD_PYTHON": sys.executable,
    } | environment
    return subprocess.run(
        [root / "scripts/setup.sh", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment, "PATH": path},
    )


needs_dpkg = pytest.mark.skipif(
    not Path("/usr/bin/dpkg-query").exists(), reason="not a Debian system"
)


@needs_dpkg
def test_who_is_not_root_is_told_what_is_missing(tmp_path):
    root = copy_of_the_project(
        tmp_path, "[build]\nkvguard-no-such # x\nbash # there\n[fuzz]\nother-no # x\n"
    )
    done = run_setup(root, tmp_path, user=1000)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        "setup: these Debian packages are missing: kvguard-no-such. "
        "Install them as root: apt-get install --no-install-recommends kvguard-no-such\n"
    )
    done = run_setup(root, tmp_path, "fuzz", user=1000)
    assert "are missing: kvguard-no-such other-no." in done.stderr


@needs_dpkg
def test_apt_that_fails_is_shown(tmp_path):
    root = copy_of_the_project(tmp_path, "[build]\nkvguard-no-such # x\n")
    done = run_setup(root, tmp_path)
    assert done.returncode == 1
    assert "installing Debian packages: kvguard-no-such" in done.stderr
    assert "apt-get update" in done.stderr
    assert "apt-get could not install: kvguard-no-such" in done.stderr


def test_a_program_counts_whoever_installed_it(tmp_path):
    root = copy_of_the_project(tmp_path, "[build]\nkvguard-no-such cmd=bash # x\n")
    done = run_setup(root, tmp_path, user=1000)
    assert done.returncode == 0, done.stderr
    venv = Path(done.stdout.splitlines()[-1])
    assert (venv / "bin/python").exists()
    assert venv.parent == tmp_path / "cache"
    seconds = []
    for _ in range(3):
        start = time.monotonic()
        again = run_setup(root, tmp_path, user=1000)
        seconds.append(time.monotonic() - start)
    assert min(seconds) < 2
    assert (again.stdout, again.stderr) == (done.stdout, "")
    # The interpreter has gone, as after an upgrade.
    (venv / "bin/python").unlink()
    done = run_setup(root, tmp_path, user=1000)
    assert done.returncode == 0, done.stderr
    assert "making it again" in done.stderr
    assert (venv / "bin/python").exists()


def test_bad_arguments_and_an_old_python(tmp_path):
    root = copy_of_the_project(tmp_path, "[build]\n")
    assert run_setup(root, tmp_path, "everything").returncode == 64
    old = tmp_path / "old-python"
    old.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && { echo Python 3.9.2; exit 0; }\n'
        "case $2 in *version_info*) exit 1 ;; esac\nexit 0\n",
        encoding="utf-8",
    )
    old.chmod(0o755)
    done = run_setup(root, tmp_path, KVGUARD_PYTHON=str(old))
    assert done.returncode == 1
    assert "is Python 3.9.2; kvguard needs 3.11 or newer" in done.stderr
