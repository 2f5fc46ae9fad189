# SPDX-License-Identifier: Apache-2.0
"""The status file: one rank's account for whoever looks from outside."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

SCHEMA = "kvguard.status.v1"


def write_atomically(path: str, data: bytes) -> None:
    """A reader sees the old file or the new one, whole. Raises OSError."""
    directory = os.path.dirname(path) or "."
    descriptor, temporary = tempfile.mkstemp(dir=directory, prefix=".kvguard-", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


class StatusFile:
    """Rewrites a file from what `compose` answers, every `interval_s` and when asked. Never raises:
    a guard that cannot tell its status tells that once, through `complain`, and guards on."""

    def __init__(
        self,
        path: str,
        compose: Callable[[], dict[str, Any]],
        interval_s: float,
        complain: Callable[[str], None],
    ) -> None:
        self.path = path
        self._compose = compose
        self._interval_s = max(interval_s, 0.05)
        self._complain = complain
        self._complained = False
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def write(self) -> None:
        try:
            with self._lock:
                status = {"schema": SCHEMA, **self._compose(), "written_unix": time.time()}
                write_atomically(self.path, (json.dumps(status, indent=1) + "\n").encode())
        except Exception as error:  # noqa: BLE001  whatever it is, it is not the engine's problem
            if not self._complained:
                self._complained = True
                self._complain(f"the status file {self.path} cannot be written: {error}")

    def start(self) -> None:
        """Writes now, and from then on in the background: an idle engine has a status too."""
        self.write()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="kvguard-status", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Writes a last time."""
        self._stop.set()
        self.write()

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            self.write()
