# SPDX-License-Identifier: Apache-2.0
"""vLLM's HTTP server on the loopback interface, its engine in a process of its own.

Nothing here imports vllm: a client stays light, and several servers can be watched from one
process. Starting one takes about half a minute, nearly all of it imports.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from rig import environment, make_models

MODEL_NAME = "rig"
_LOG_TAIL = 40


class ServerError(RuntimeError):
    """The server did not do what it was asked for; the message ends with the end of its log."""


@dataclass(frozen=True)
class Completion:
    """An answer, or what came in its place."""

    status: int  # of HTTP; 0 when the connection broke
    tokens: tuple[int, ...] = ()
    error: str = ""

    @property
    def ok(self) -> bool:
        """Whether the request was answered with tokens."""
        return self.status == 200


def free_port() -> int:
    """A port of 127.0.0.1 that was free a moment ago, below those that the system gives out by
    itself: the engine's own sockets take such a port in the seconds until the server binds it."""
    draw = random.SystemRandom()
    for _ in range(100):
        port = draw.randrange(20_000, 30_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise ServerError("no free port was found on 127.0.0.1")


def _flags(options: Mapping[str, Any]) -> list[str]:
    """Options as `vllm serve` spells them; None leaves one out."""
    flags: list[str] = []
    for key, value in options.items():
        name = key.replace("_", "-")
        if value is None:
            continue
        if value is True:
            flags.append(f"--{name}")
        elif value is False:
            flags.append(f"--no-{name}")
        elif isinstance(value, Mapping):
            flags += [f"--{name}", json.dumps(value)]
        else:
            flags += [f"--{name}", str(value)]
    return flags


class Server:
    """One `vllm serve`. Use it in a `with` block: leaving it ends every process it started.

    Args:
        launcher: a command put before `vllm serve`, such as `["kvguard", "run", "--"]`.
        model: a name under models/, or a folder.
        worker_cls: as vLLM's option of that name.
        additional_config: as vLLM's option of that name.
        executor: "uni" runs the worker in the engine's process (one import less), "mp" in a process
            of its own, as the CPU platform does by default.
        environ: variables over the rig's.
        pythonpath: more folders for the processes to import from.
        options: any other option of `vllm serve`, with underscores, over `ENGINE_OPTIONS`.
    """

    def __init__(
        self,
        launcher: Sequence[str] = (),
        *,
        model: str | Path = "tiny_llama",
        worker_cls: str | None = None,
        additional_config: Mapping[str, Any] | None = None,
        executor: str = "uni",
        environ: Mapping[str, str] | None = None,
        pythonpath: Iterable[Path | str] = (),
        **options: Any,
    ) -> None:
        folder = model if Path(model).is_dir() else make_models.build(str(model))
        self.port = free_port()
        given = environment.ENGINE_OPTIONS | {
            "served_model_name": MODEL_NAME,
            "host": "127.0.0.1",
            "port": self.port,
            "distributed_executor_backend": executor,
            "worker_cls": worker_cls,
            "additional_config": additional_config,
            # With vLLM's default of 0 a server that is asked to stop kills its engine at once.
            "shutdown_timeout": None if launcher else 20,
        }
        self.command = [*launcher, "vllm", "serve", str(folder), *_flags(given | options)]
        changes = {"VLLM_LOGGING_LEVEL": "INFO"} | dict(environ or {})
        if executor != "uni":
            changes = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"} | changes
        self._environ = environment.child_environment(changes, pythonpath)
        self._log = tempfile.TemporaryFile(mode="w+b")  # noqa: SIM115  lives as long as the server
        self._process: subprocess.Popen[bytes] | None = None

    # Life.

    def start(self) -> Server:
        """Starts the process; `wait_ready` waits for it."""
        self._process = subprocess.Popen(
            self.command,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        return self

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process that `start` made: the launcher, or the server itself."""
        if self._process is None:
            raise ServerError("the server was not started")
        return self._process

    def wait_ready(self, timeout: float = 300) -> Server:
        """Returns when the server answers; raises ServerError when it ends or takes too long."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise self._failure(f"the server ended with status {self.process.returncode}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self._get("/health").status == 200:
                    return self
            time.sleep(0.2)
        raise self._failure(f"the server was not ready within {timeout:.0f} s")

    def wait(self, timeout: float = 60) -> int:
        """Waits for the end of the process and returns its status, -N for signal N."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise self._failure(f"the server did not end within {timeout:.0f} s") from None

    def stop(self, timeout: float = 60) -> int:
        """Asks the process to end (SIGTERM), as an operator would, and returns its status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.wait(timeout)

    def kill_engine(self) -> list[int]:
        """Kills the engine's processes (SIGKILL), as a crash would, and returns their ids."""
        killed = []
        for child in self._descendants():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                title = " ".join(child.cmdline())
                if title.startswith(("VLLM::EngineCore", "VLLM::Worker")):
                    child.kill()
                    killed.append(child.pid)
        if not killed:
            raise self._failure("no process of the engine was found")
        return killed

    def close(self) -> None:
        """Ends whatever is left of the processes, at once."""
        if self._process is None:
            return
        left = self._descendants()
        if self._process.poll() is None:
            self._process.kill()
        for child in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        self._process.wait()
        psutil.wait_procs(left, timeout=10)

    def __enter__(self) -> Server:
        return self if self._process is not None else self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        self._log.close()

    # Use.

    def complete(self, prompt: Sequence[int], max_tokens: int, timeout: float = 120) -> Completion:
        """Sends a prompt of token ids and returns the ids that came back."""
        body = {
            "model": MODEL_NAME,
            "prompt": list(prompt),
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "return_token_ids": True,
        }
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", "/v1/completions", json.dumps(body), headers)
            response = connection.getresponse()
            text = response.read().decode()
            status = response.status
        except (OSError, http.client.HTTPException) as error:
            return Completion(0, error=f"{type(error).__name__}: {error}")
        finally:
            connection.close()
        if status != 200:
            return Completion(status, error=text)
        return Completion(status, tuple(json.loads(text)["choices"][0]["token_ids"]))

    def log(self) -> str:
        """Everything that the processes have printed so far."""
        descriptor = self._log.fileno()
        # pread: the processes write at the offset they share with this file.
        data = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
        return data.decode(errors="replace")

    # Inside.

    def _get(self, path: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", path)
            return connection.getresponse()
        finally:
            connection.close()

    def _descendants(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(self.process.pid).children(recursive=True)
        return []

    def _failure(self, sentence: str) -> ServerError:
        tail = "\n".join(self.log().splitlines()[-_LOG_TAIL:])
        return ServerError(f"{sentence}: {' '.join(self.command)}\n{tail}")
