# SPDX-License-Identifier: Apache-2.0
"""Records the traces that `make demo` replays: real engine runs under the guard, clean.

usage: record_demo.py FOLDER

Needs the rig's environment and kvguard on PYTHONPATH (build/python). The files hold block ids,
counts and request names; token ids are not in them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rig import scene_49250, workload
from rig.engine import Engine

GUARD = "kvguard.vllm.GuardWorker"
MOST_BYTES = 200_000


def conversation(config: dict[str, Any]) -> None:
    """The conversation trace: preemptions, prefix hits, aborts."""
    with Engine(worker_cls=GUARD, additional_config=config) as engine:
        engine.run(workload.load(0))


def larger_pool(config: dict[str, Any]) -> None:
    """Another window of it, with a larger pool."""
    with Engine(worker_cls=GUARD, additional_config=config, num_gpu_blocks_override=40) as engine:
        engine.run(workload.load(2))


def connector(config: dict[str, Any]) -> None:
    """A request whose prefix a KV connector loads, without failure."""
    scene_49250.run_scene(False, worker_cls=GUARD, additional_config=config)


RUNS: dict[str, Callable[[dict[str, Any]], None]] = {
    "vllm-conversation": conversation,
    "vllm-conversation-40-blocks": larger_pool,
    "vllm-connector-load": connector,
}


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 64
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for name, run in RUNS.items():
        path = folder / f"{name}.kvtrace"
        path.unlink(missing_ok=True)
        run({"kv_guard_config": {"enabled": True, "action": "raise", "record": str(path)}})
        size = path.stat().st_size
        print(f"{path.name}: {size} bytes")
        if size >= MOST_BYTES:
            print(f"{path.name} is too large to be committed", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
